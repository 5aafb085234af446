"""The learner in columns, which the service and offline evaluation use: a ``Learner`` is one of these.

From top to bottom: what it is made of, its arms on offer and its hyperparameters, deciding for many
impressions at once, learning from many decisions, and taking in what a log holds.
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
from tacit.learning.decisions import Arm, ArmT_co, Decision, Decisions, Key, in_pieces, laid_out, no_places
from tacit.learning.input_columns import DecisionReader, ImpressionReader
from tacit.learning.lanes import Lanes, Loops, Offer
from tacit.policies.base import Policy

ROUNDING = 1e-9
NO_PLACES = no_places()


class ColumnLearner(Generic[ArmT_co]):
    """The parts of a :class:`~tacit.Learner`, and what it does with whole columns of impressions.

    This is all that the service and offline evaluation need of it. A ``Batch`` is known to fit, and
    is not checked.

    Parameters
    ----------
    policy : Policy
    rng : Generator
    propensities : bool
        Whether decisions carry their propensity, where the policy draws at random.

    Attributes
    ----------
    lanes : Lanes
    offer : Offer
    loops : Loops
    decision_reader : DecisionReader
    decisions : int
        How many decisions were made.
    logs_learned : set of (int, int)
        Of each log that was learned here, how many decisions it taught, and a hash of their rewards.
    reports_propensities, reports_places : bool
    """

    def __init__(self, policy: Policy, rng: Generator, propensities: bool) -> None:
        self.rng = rng
        self.decisions = 0
        self.logs_learned: set[tuple[int, int]] = set()
        self.reports_propensities = propensities and policy.randomized
        self.reports_places = self.reports_propensities and policy.knows_places
        self.lanes = Lanes(policy)
        self._least_share = math.inf
        self._impressions = ImpressionReader(policy)
        by_features = policy.arms is None and policy.feature_dims[0] > 0
        self._items = Catalogue(policy.feature_dims[0]) if by_features else None
        self.go_on(policy, Offer(policy.arms))

    @property
    def policy(self) -> Policy:
        """The algorithm and its hyperparameters, as they are now; another one needs its own learner."""
        return self._policy

    @property
    def state(self) -> Any:
        """What was learned: arrays with a leading lane axis (some spare), of 1 where shared."""
        return self.lanes.state

    @property
    def keys(self) -> list[str]:
        """All keys in the order of their lanes."""
        return list(self.lanes.of)

    def __len__(self) -> int:
        return len(self.lanes.of)

    def __contains__(self, key: Key) -> bool:
        return checks.key(key) in self.lanes.of

    def __bool__(self) -> bool:
        return True

    @property
    def arms(self) -> list[ArmT_co]:
        """The arms on offer."""
        return self.offer.arms

    @property
    def retired(self) -> list[ArmT_co]:
        """The arms that are no longer on offer."""
        return self.offer.retired

    @property
    def items(self) -> Catalogue:
        """The catalogue of items, of a policy that knows arms by their relevance."""
        if self._items is None:
            raise UnknownName(
                f"items: {self.policy.label} does not know arms by their relevance alone, as "
                "tacit.auto(relevance_dim=…) does: make the learner of that"
            )
        return self._items

    @property
    def kept_items(self) -> Catalogue | None:
        """The catalogue, if anything was ever put into it."""
        return self._items if self._items is not None and self._items.version else None

    @kept_items.setter
    def kept_items(self, items: Catalogue | None) -> None:
        # A snapshot before items has none.
        if items is not None:
            self._items = items

    def _with_items(self, rows: int, given: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        """Return what is given of impressions, with candidates out of the catalogue where it has some."""
        contexts, arms, relevance, examination = given
        if relevance is not None or self._items is None or not len(self._items):
            return given
        return contexts, *self._items.candidates(arms, rows), examination

    def lane(self, key: Key = ONLY_KEY) -> int:
        """Return the lane of a known key."""
        return self.lanes.lane(checks.key(key))

    def go_on(self, policy: Policy, offer: Offer) -> None:
        """Make anew what depends on the policy and on the arms on offer."""
        self._policy, self.offer = policy, offer
        self.reads_contexts, self._no_features = policy.context_dim > 0, policy.feature_dims == (0, 0)
        self._plain = self._no_features and not self.reads_contexts
        share = policy.least_share if learns_from_propensity(policy.params) else 0.0
        # What was decided before it was tuned keeps the propensity that it had.
        self._least_share = min(self._least_share, share * (1.0 - ROUNDING))
        self.loops = Loops(policy, offer, self.lanes, self.rng, self.reports_propensities)
        self.decision_reader = DecisionReader(policy, offer, self.lanes)

    def add_arms(self, arms: int | Sequence[str]) -> list[ArmT_co]:
        """Put new arms on offer, for all keys; return them.

        They begin as arms do of which nothing is known; where a policy has learned over all keys
        what arms are like, with that.

        Parameters
        ----------
        arms : int or sequence of str
            How many, where arms are numbered; or their names, which must be new.

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
        added, offer = self.offer.with_new(checks.listed(arms))
        policy = self.policy.with_arms(offer.all)
        self.lanes.fit(policy)
        policy.enrol(self.state, len(self), before)
        self.go_on(policy, offer)
        self.refit()
        return added

    def retire_arms(self, arms: Sequence[Arm]) -> None:
        """Take arms off offer; one at least must stay.

        What was learned of them is kept, and decisions that showed them still teach it.
        """
        self.go_on(self.policy, self.offer.without(checks.listed(arms)))

    def restore_arms(self, arms: Sequence[Arm]) -> None:
        """Put retired arms on offer again, with all that was learned of them; others stay."""
        self.go_on(self.policy, self.offer.restored(checks.listed(arms)))

    def add_arm(self, name: str | None = None) -> ArmT_co:
        """Put one arm on offer, a new or a retired one; return it. Numbered ones need no name."""
        if name is not None and name in self.retired:
            self.restore_arms([name])
            return name
        (added,) = self.add_arms(1 if name is None else [name])
        return added

    def retire_arm(self, arm: Arm) -> None:
        """Take one arm off offer, as :meth:`retire_arms`."""
        self.retire_arms([arm])

    def compile(self) -> None:
        """Compile what choosing and learning run, or find it in the cache.

        Without this, each is compiled when it is first called, which takes seconds to minutes.
        """
        loops = self.loops
        _ = loops.choose, loops.observe, loops.learn, self.reports_places and loops.place

    def refit(self) -> None:
        """Compute anew what follows from the sums that all keys share."""
        if self.policy.sums:
            self.loops.refit(self.loops.params, self.state)

    # Decide ----------------------------------------------------------------------------------

    def choose_rows(
        self, keys: Sequence[str], given: tuple[Any, Any, Any, Any], imposed: Ints | None = None
    ) -> Decisions[ArmT_co]:
        """Choose for many impressions, in their order.

        Parameters
        ----------
        keys : sequence of str
        given : tuple
            Contexts, arms, relevance and examination as ``Learner.choose_many`` takes them.
        imposed : array of int64, shape (rows, width), optional
            Slots to show whatever the policy chooses; −1 first for its choice. Propensities are
            then those of the policy for what is shown, which are 1 or 0 for one that is
            deterministic.

        Raises
        ------
        InvalidValue, UnknownName
            As ``Learner.choose_many``; then nothing was decided.
        """
        rows, loops = len(keys), self.loops
        contexts, arms, relevance, examination = given
        if self._plain and contexts is None and arms is None and relevance is None and examination is None:
            batch = loops.plain_batch(self.lanes.admit(keys), np.empty((rows, 0)))
        else:
            given = self._with_items(rows, given)
            arms = given[1]
            columns = self._impressions.read(self.policy, self.offer, rows, given)
            batch = Batch(self.lanes.admit(keys), *columns)
            self._impressions.advise(self.policy, batch.relevance, batch.examination)
        actions = np.empty((rows, loops.action.shape[1]), np.int64)
        epochs, propensities = np.empty(rows, np.int64), np.empty(rows)
        propensities.fill(np.nan)
        state = loops.params, self.lanes.state
        if imposed is None:
            asked = None if loops.asked is None else propensities
            loops.choose(*state, batch, self.rng, actions, epochs, asked)
        else:
            drawn = self.policy.randomized
            loops.impose(*state, batch, self.rng, imposed, drawn, actions, epochs, propensities)
            if drawn and loops.asked is None:
                propensities[:] = np.nan
        places = NO_PLACES, NO_PLACES
        if self.reports_places:
            places = np.empty(actions.shape), np.empty(actions.shape)
            loops.place(*state, batch, actions, *places)
        offers = (arms or [None] * rows) if self.policy.arms is None else None
        made = self.decisions, tuple(keys), self.offer.names, offers, actions, epochs, propensities
        self.decisions += rows
        return Decisions(*made, batch, self.lanes.of, *places)

    def decisions_of(
        self, batch: Batch, actions: Ints, epochs: Ints, propensities: Floats
    ) -> Decisions[ArmT_co]:
        """Return decisions that were made here as columns, without their keys.

        Of each row the impression, in a lane of this learner, the slots that were shown, the epoch, and
        the propensity, NaN where the policy is deterministic.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> made = learner.choose_many(["tomato", "tomato"])
        >>> again = learner.decisions_of(made.batch, made.actions, made.epochs, made.propensities)
        >>> learner.learn_many(again, [0.0, 1.0])
        2
        """
        made = self.decisions, (), self.offer.names, None, actions, epochs, propensities
        return Decisions(*made, batch, self.lanes.of)

    # Learn -----------------------------------------------------------------------------------

    def check_propensities(
        self,
        propensities: Sequence[float | None] | Floats,
        offered: Sequence[int] | Ints,
        error: Callable[[int, str], Exception] | None = None,
    ) -> None:
        """Check that the policy can have given propensities, if it weighs by them.

        Of each row the propensity, NaN or None where there is none, and how many arms were on offer;
        ``error`` returns what to raise for a row and what is wrong, by default an ``InvalidValue``.
        """
        if not self._least_share:
            return
        given = np.array(propensities, np.float64)  # NumPy takes None for NaN.
        least = self._least_share / np.asarray(offered, np.float64) ** self.policy.action_width
        wrong = ~(given >= least)
        if wrong.any():
            row = int(np.argmax(wrong))
            value = None if np.isnan(given[row]) else float(given[row])
            remedy = (
                f"{type(self.policy).__name__} weighs by it, and gives at least {least[row]:.6g} "
                "with so many arms on offer; give the propensity with which this was chosen, or "
                "have a policy that does not weigh by it"
            )
            if error is not None:
                raise error(row, f"propensity: {value} is not allowed; {remedy}")
            raise InvalidValue("propensity", value, remedy)

    def learn_rows(
        self, batch: Batch, actions: Ints, feedback: Floats, propensities: Floats, epochs: Ints
    ) -> Booleans:
        """Learn from columns that are known to fit; return of each row whether it taught something.

        Parameters
        ----------
        batch : Batch
            The impressions, in lanes of this learner.
        actions : array of int64, shape (rows, action_width)
        feedback : array of float64, shape (rows, feedback_width)
        propensities : array of float64, shape (rows,)
        epochs : array of int64, shape (rows,)
        """
        fresh = np.empty(len(actions), np.bool_)
        given = batch, self.lanes.plays, actions, feedback, propensities, epochs, fresh
        self.loops.learn(self.loops.params, self.lanes.state, *given)
        return fresh

    def correct_many(self, decisions: Sequence[Decision], before: npt.ArrayLike, after: npt.ArrayLike) -> int:
        """Put other rewards in the place of those that were learned, whatever was learned since.

        For policies that can take out what they have learned (``correctable``).

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
        before, after : array of float, shape (decisions,)
            What was learned for each, and what it shall be; in [0, 1].

        Returns
        -------
        int
            How many were corrected; the others were made before their lane's last restart.

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
        if not self.policy.correctable:
            remedy = "take one of sums, such as tacit.auto(arms=…, sums=True)"
            raise InvalidValue("policy", self.policy, f"it cannot take out what it has learned; {remedy}")
        old = self.decision_reader.feedback("before", before, decisions)
        new = self.decision_reader.feedback("after", after, decisions)
        if not decisions:
            return 0
        batch, actions, propensities, epochs = self.decision_reader.columns(decisions)
        given = batch, actions, old, new, propensities, epochs
        return int(self.loops.correct(self.loops.params, self.state, *given))

    def plays_of(self, lane: int) -> Floats:
        """Return how often each arm was shown to a key and learned from, ever; NaN if not known."""
        beliefs = getattr(self.policy, "beliefs", None)
        if self.policy.forgets or beliefs is None:
            return self.lanes.plays_of(lane)
        # All count still, and the plays of ``priors``.
        found: Floats = beliefs(self.state, lane).plays - beliefs(self.policy.init(1), 0).plays
        return found

    # What a log holds ------------------------------------------------------------------------

    def recall(self, decisions: Sequence[Decision]) -> None:
        """Take in decisions that were made before, as read from a log, without deciding again.

        Their keys get lanes and their impressions are observed; learning what came back for
        them then gives the very state that the learner had.
        """
        batches: Iterable[Batch]
        if isinstance(decisions, Decisions) and decisions.lanes is self.lanes.of:
            batches = [decisions.batch]
        elif decisions:
            self.lanes.admit([d.key for d in decisions])
            parts = in_pieces([len(d.offered) for d in decisions], laid_out(self.policy))
            batches = (self.decision_reader.batch(decisions[part]) for part in parts)
        else:
            return
        for batch in batches:
            self.loops.observe(self.loops.params, self.lanes.state, batch)
        self.decisions += len(decisions)

    def relive(self, batch: Batch, actions: Ints, feedback: Floats, propensities: Floats) -> None:
        """Learn from what was shown elsewhere, as if it had been decided here and answered at once.

        The columns are those of :meth:`learn_rows`.
        """
        fresh = np.ones(len(actions), np.bool_)
        given = batch, self.lanes.plays, actions, feedback, propensities, fresh
        self.loops.relive(self.loops.params, self.lanes.state, *given)
        self.decisions += len(actions)
