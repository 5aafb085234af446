"""The base class of ``Learner`` that works on columns; the service and offline evaluation use it.

From top to bottom: its parts, arms on offer and hyperparameters, choosing and learning in columns, and
functions of a learner: of its shared sums, stored decisions, propensities, plays, logs and items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Generator, Ints
from tacit.core.checks import ONLY_KEY
from tacit.core.dispatch import learns_from_propensity
from tacit.errors import InvalidValue, UnknownName
from tacit.learning.batch import Batch
from tacit.learning.catalogue import Catalogue
from tacit.learning.decisions import (
    NO_TABLE,
    Arm,
    ArmT_co,
    Decision,
    Decisions,
    Key,
    count_features_per_arm,
    split_by_size,
)
from tacit.learning.input_columns import DecisionReader, ImpressionReader
from tacit.learning.lanes import Lanes, Loops, Offer
from tacit.policies.base import Policy, can_weigh_places, enrol_arms, is_correctable

ROUNDING = 1e-9


class ColumnLearner(Generic[ArmT_co]):
    """Base class of :class:`~tacit.Learner` with its parts and its choices and learning in columns.

    The service and offline evaluation need nothing else. A ``Batch`` is not validated: it must fit
    the policy.

    Parameters
    ----------
    policy : Policy
    rng : Generator
    propensities : bool
        Whether decisions carry their propensity if the policy is randomized.

    Attributes
    ----------
    lanes : Lanes
    offer : Offer
    loops : Loops
    decision_reader : DecisionReader
    impression_reader : ImpressionReader
    least_share : float
        Lower bound of the propensities to learn from, times the arms on offer; 0: no bound.
    catalogue : Catalogue or None
        Items, if the policy knows arms by relevance features.
    decisions : int
        Number of decisions made.
    logs_learned : set of (int, int)
        For each learned log the number of its decisions and a hash of their rewards.
    reports_propensities, reports_places : bool
        Whether decisions carry their propensity, and propensities by position.
    """

    def __init__(self, policy: Policy, rng: Generator, propensities: bool) -> None:
        """Create a learner without keys; nothing is compiled yet."""
        self.rng = rng
        self.decisions = 0
        self.logs_learned: set[tuple[int, int]] = set()
        self.reports_propensities = propensities and policy.randomized
        self.reports_places = self.reports_propensities and can_weigh_places(policy)
        self.lanes = Lanes(policy)
        # ``use_policy`` takes the minimum over all policies so far.
        self.least_share = math.inf
        self.impression_reader = ImpressionReader(policy)
        by_features = policy.arms is None and policy.feature_dims[0] > 0
        self.catalogue = Catalogue(policy.feature_dims[0]) if by_features else None
        self.use_policy(policy, Offer(policy.arms))

    @property
    def policy(self) -> Policy:
        """The current policy and its hyperparameters; another algorithm needs a new learner."""
        return self._policy

    @property
    def state(self) -> Any:
        """The policy's state itself, not a copy: arrays with a leading axis of lanes.

        Some lanes are spare; arrays that all keys share have an axis of length 1.
        """
        return self.lanes.state

    @property
    def keys(self) -> list[str]:
        """A list of all keys in the order of their lanes."""
        return list(self.lanes.lane_of_key)

    def __len__(self) -> int:
        """Return the number of keys so far."""
        return len(self.lanes.lane_of_key)

    def __contains__(self, key: Key) -> bool:
        """True if the key has a lane."""
        return checks.key(key) in self.lanes.lane_of_key

    def __bool__(self) -> bool:
        """True always: a learner without keys is one, too."""
        return True

    @property
    def arms(self) -> list[ArmT_co]:
        """A list of the arms on offer; empty if the policy identifies arms by their features."""
        return self.offer.arms

    @property
    def retired(self) -> list[ArmT_co]:
        """A list of the arms that are no longer on offer."""
        return self.offer.retired

    @property
    def items(self) -> Catalogue:
        """The catalogue of items; raises UnknownName unless the policy knows arms by relevance features."""
        if self.catalogue is None:
            raise UnknownName(
                f"items: {self.policy.label} does not know arms by their relevance alone, as "
                "tacit.auto(relevance_dim=…) does: make the learner of that"
            )
        return self.catalogue

    def lane(self, key: Key = ONLY_KEY) -> int:
        """Return the lane of a known key; raise UnknownName for an unknown one."""
        return self.lanes.lane(checks.key(key))

    def use_policy(self, policy: Policy, offer: Offer) -> None:
        """Replace the policy and the offer, and rebuild loops and reader for them; the state does not
        change.
        """
        self._policy, self.offer = policy, offer
        self.reads_contexts, self._no_features = policy.context_dim > 0, policy.feature_dims == (0, 0)
        self._is_plain = self._no_features and not self.reads_contexts
        share = policy.least_share if learns_from_propensity(policy.params) else 0.0
        # Decisions made before a change of hyperparameters keep their propensities.
        self.least_share = min(self.least_share, share * (1.0 - ROUNDING))
        self.loops = Loops(policy, offer, self.lanes, self.rng, self.reports_propensities)
        self.decision_reader = DecisionReader(policy, offer, self.lanes)

    def add_arms(self, arms: int | Sequence[str]) -> list[ArmT_co]:
        """Put new arms on offer for all keys and return them; the state grows.

        New arms start from the prior; policies that learn a prior over all keys start from that one. Raises
        InvalidValue if an arm exists already.

        Parameters
        ----------
        arms : int or sequence of str
            Number of new arms if arms are numbered; otherwise their names, which must be new.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["holiday"]), seed=1)
        >>> learner.add_arms(["film"])
        ['film']
        >>> learner.retire_arms(["holiday"])
        >>> learner.arms, learner.retired
        (['film'], ['holiday'])
        """
        before = self.policy.arm_count
        added, offer = self.offer.with_new_arms(checks.as_list(arms))
        policy = self.policy.with_arms(offer.all)
        self.lanes.resize(policy)
        enrol_arms(policy, self.state, len(self), before)
        self.use_policy(policy, offer)
        refit_sums(self)
        return added

    def retire_arms(self, arms: Sequence[Arm]) -> None:
        """Take arms off offer; raise InvalidValue if none would stay, UnknownName for an unknown arm.

        Their state is kept, and feedback on decisions that showed them is still learned.
        """
        self.use_policy(self.policy, self.offer.exclude_arms(checks.as_list(arms)))

    def restore_arms(self, arms: Sequence[Arm]) -> None:
        """Put retired arms on offer again with their learned state; arms already on offer are not affected.

        Raises UnknownName for an unknown arm.
        """
        self.use_policy(self.policy, self.offer.with_restored_arms(checks.as_list(arms)))

    def add_arm(self, name: str | None = None) -> ArmT_co:
        """Put one new arm, or a retired arm named ``name``, on offer and return it; numbered arms need no
        name.
        """
        if name is not None and name in self.retired:
            self.restore_arms([name])
            return name
        (added,) = self.add_arms(1 if name is None else [name])
        return added

    def retire_arm(self, arm: Arm) -> None:
        """Take one arm off offer; raise InvalidValue if none would stay, UnknownName for an unknown arm."""
        self.retire_arms([arm])

    def compile(self) -> None:
        """Compile the loops for choosing and learning, or load them from the cache.

        Otherwise each is compiled at its first call, which takes seconds to minutes.
        """
        loops = self.loops
        _ = loops.choose, loops.observe, loops.learn, self.reports_places and loops.place

    def choose_rows(
        self, keys: Sequence[str], inputs: tuple[Any, Any, Any, Any], forced: Ints | None = None
    ) -> Decisions[ArmT_co]:
        """Choose for many impressions, in their order, and return the decisions as columns.

        ``inputs`` are contexts, arms, relevance and examination, as in :meth:`Learner.choose_many`.
        ``forced`` has a row of arm indices to show in place of each choice; a row that begins with −1 keeps
        the policy's choice. Propensities are the policy's own probabilities of the arms shown. New keys get
        lanes, and the decisions are counted.
        """
        rows, loops = len(keys), self.loops
        contexts, arms, relevance, examination = inputs
        if self._is_plain and contexts is None and arms is None and relevance is None and examination is None:
            batch = loops.make_plain_batch(self.lanes.admit(keys), np.empty((rows, 0)))
        else:
            inputs = add_candidates(self, rows, inputs)
            arms = inputs[1]
            impressions = self.impression_reader.read(self.policy, self.offer, rows, inputs)
            batch = Batch(self.lanes.admit(keys), *impressions)
            self.impression_reader.advise(self.policy, batch.relevance, batch.examination)
        actions = np.empty((rows, loops.action.shape[1]), np.int64)
        epochs, propensities = np.empty(rows, np.int64), np.empty(rows)
        propensities.fill(np.nan)
        state = loops.params, self.lanes.state
        if forced is None:
            propensity_buffer = None if loops.propensity_buffer is None else propensities
            loops.choose(*state, batch, self.rng, actions, epochs, propensity_buffer)
        else:
            randomized = self.policy.randomized
            loops.force(*state, batch, self.rng, forced, randomized, actions, epochs, propensities)
            # The loop computes them in any case; this learner does not report them.
            if randomized and loops.propensity_buffer is None:
                propensities[:] = np.nan
        places = NO_TABLE, NO_TABLE
        if self.reports_places:
            places = np.empty(actions.shape), np.empty(actions.shape)
            loops.place(*state, batch, actions, *places)
        offers = (arms or [None] * rows) if self._policy.arms is None else None
        columns = self.decisions, tuple(keys), self.offer.names, offers, actions, epochs, propensities
        self.decisions += rows
        return Decisions(*columns, batch, self.lanes.lane_of_key, *places)

    def learn_rows(
        self, batch: Batch, actions: Ints, feedback: Floats, propensities: Floats, epochs: Ints
    ) -> Booleans:
        """Learn from columns without validating them; return for each row whether it was learned.

        ``batch`` has the impressions, in lanes of this learner. A row is not learned if its lane restarted
        since the decision. Plays of the learned rows are counted.
        """
        fresh = np.empty(len(actions), np.bool_)
        columns = batch, self.lanes.plays, actions, feedback, propensities, epochs, fresh
        self.loops.learn(self.loops.params, self.lanes.state, *columns)
        return fresh

    def correct_many(self, decisions: Sequence[Decision], before: npt.ArrayLike, after: npt.ArrayLike) -> int:
        """Replace already learned rewards ``before`` by ``after`` in the learner's state, in any order of
        decisions.

        ``before`` and ``after`` have a reward for each decision. Only for policies that can unlearn
        (``is_correctable``); others raise InvalidValue. Return how many were corrected: not those from before
        their lane's last restart.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> decisions = learner.choose_many(["tomato", "tomato"])
        >>> learner.learn_many(decisions, [0.0, 0.0])
        2
        >>> learner.correct_many(decisions[:1], [0.0], [1.0])
        1
        """
        if not is_correctable(self.policy):
            remedy = "take one of sums, such as tacit.auto(arms=…, sums=True)"
            raise InvalidValue("policy", self.policy, f"it cannot take out what it has learned; {remedy}")
        to_unit = self.policy.reward_range.to_unit
        old = to_unit(self.decision_reader.read_feedback("before", before, decisions))
        new = to_unit(self.decision_reader.read_feedback("after", after, decisions))
        if not decisions:
            return 0
        batch, actions, propensities, epochs = self.decision_reader.read_columns(decisions)
        columns = batch, actions, old, new, propensities, epochs
        return int(self.loops.correct(self.loops.params, self.state, *columns))

    def observe_decisions(self, decisions: Sequence[Decision]) -> None:
        """Let the policy observe the impressions of logged decisions, which updates the state, and count the
        decisions.

        Nothing is decided again. Learning their feedback afterwards restores the exact state of the learner
        that made them.
        """
        batches: Iterable[Batch]
        if isinstance(decisions, Decisions) and decisions.lanes is self.lanes.lane_of_key:
            batches = [decisions.batch]
        elif decisions:
            self.lanes.admit([d.key for d in decisions])
            parts = split_by_size([len(d.offered) for d in decisions], count_features_per_arm(self.policy))
            batches = (self.decision_reader.read_batch(decisions[part]) for part in parts)
        else:
            return
        for batch in batches:
            self.loops.observe(self.loops.params, self.lanes.state, batch)
        self.decisions += len(decisions)


def refit_sums(learner: ColumnLearner[Any]) -> None:
    """Recompute the values in the state that follow from sums that all keys share; do nothing if there are
    none.
    """
    if learner.policy.sums:
        learner.loops.refit(learner.loops.params, learner.state)


def build_decisions(
    learner: ColumnLearner[Any], batch: Batch, actions: Ints, epochs: Ints, propensities: Floats
) -> Decisions[ArmT_co]:
    """Return columns as ``Decisions`` of this learner, without keys; nothing is decided or counted.

    A row has its impression, in a lane of this learner, the arm indices shown, the epoch, and the propensity,
    NaN if the policy is deterministic.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
    >>> made = learner.choose_many(["tomato", "tomato"])
    >>> again = build_decisions(learner, made.batch, made.actions, made.epochs, made.propensities)
    >>> learner.learn_many(again, [0.0, 1.0])
    2
    """
    decision_columns = learner.decisions, (), learner.offer.names, None, actions, epochs, propensities
    return Decisions(*decision_columns, batch, learner.lanes.lane_of_key)


def check_propensities(
    learner: ColumnLearner[Any],
    propensities: Sequence[float | None] | Floats,
    offered: Sequence[int] | Ints,
    error: Callable[[int, str], Exception] | None = None,
) -> None:
    """Raise if a propensity is missing or too small, and the policy learns from propensities.

    ``propensities`` are NaN or None where a row has none; ``offered`` is the number of arms on offer in a
    row. ``error`` returns the exception for a row and a message; by default it is an ``InvalidValue``.
    """
    if not learner.least_share:
        return
    values = np.array(propensities, np.float64)  # NumPy takes None for NaN.
    least = learner.least_share / np.asarray(offered, np.float64) ** learner.policy.action_width
    wrong = ~(values >= least)
    if wrong.any():
        row = int(np.argmax(wrong))
        value = None if np.isnan(values[row]) else float(values[row])
        remedy = (
            f"{type(learner.policy).__name__} weighs by it, and gives at least {least[row]:.6g} "
            "with so many arms on offer; give the propensity with which this was chosen, or "
            "have a policy that does not weigh by it"
        )
        if error is not None:
            raise error(row, f"propensity: {value} is not allowed; {remedy}")
        raise InvalidValue("propensity", value, remedy)


def count_plays(learner: ColumnLearner[Any], lane: int) -> Floats:
    """Return how often each arm was ever shown to a lane's key and learned from, shape (arms,); NaN if
    unknown.
    """
    beliefs = getattr(learner.policy, "beliefs", None)
    if learner.policy.forgets or beliefs is None:
        return learner.lanes.count_plays(lane)
    # Beliefs count all plays, and plays from ``priors``, which are subtracted.
    plays: Floats = beliefs(learner.state, lane).plays - beliefs(learner.policy.init(1), 0).plays
    return plays


def replay_rows(
    learner: ColumnLearner[Any], batch: Batch, actions: Ints, feedback: Floats, propensities: Floats
) -> None:
    """Learn logged decisions as if made by this learner, each with its feedback before the next, and count
    them.

    The columns are as for :meth:`learn_rows` and are not validated. A row is learned even if its lane
    restarts before.
    """
    fresh = np.ones(len(actions), np.bool_)
    columns = batch, learner.lanes.plays, actions, feedback, propensities, fresh
    learner.loops.replay(learner.loops.params, learner.lanes.state, *columns)
    learner.decisions += len(actions)


def add_candidates(
    learner: ColumnLearner[Any], rows: int, inputs: tuple[Any, Any, Any, Any]
) -> tuple[Any, Any, Any, Any]:
    """Return an impression's arguments; without relevance, ids and vectors of the catalogue are filled in.

    They are unchanged if relevance was passed, or without items in a catalogue. Raises UnknownName for
    unknown items.
    """
    contexts, arms, relevance, examination = inputs
    if relevance is not None or learner.catalogue is None or not len(learner.catalogue):
        return inputs
    return contexts, *learner.catalogue.find_candidates(arms, rows), examination


def find_catalogue(learner: ColumnLearner[Any]) -> Catalogue | None:
    """Return the learner's catalogue if any item was ever put into it, else None."""
    return learner.catalogue if learner.catalogue is not None and learner.catalogue.version else None
