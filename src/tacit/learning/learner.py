"""The learner: choose and learn, separately for each key.

From top to bottom: choosing, learning, and snapshots. Its base class in ``explanation.py`` has estimates and
explanations; that one's base class in ``columns.py`` works on columns and changes arms.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, leaves
from tacit.core.checks import ONLY_KEY
from tacit.core.reward_range import UNIT_RANGE
from tacit.core.seeds import Seed, generator
from tacit.core.text import html_table
from tacit.errors import AssumptionWarning, InvalidValue, refuse_options, with_suggestions
from tacit.learning.columns import check_propensities, find_catalogue
from tacit.learning.decisions import (
    FIRST_CHECK,
    NO_VALUES,
    RING_MASK,
    SECOND_CHECK,
    Arm,
    ArmT_co,
    Decision,
    Decisions,
    Key,
    LearningWatch,
)
from tacit.learning.explanation import EstimatingLearner, as_rows
from tacit.learning.input_columns import order_by_id, read_reward, refuse_unfilled, require_decision
from tacit.learning.lanes import Offer
from tacit.learning.snapshot import (
    OPEN_SUFFIX,
    Arrays,
    LearnerSnapshot,
    from_bytes,
    iter_pieces,
    read_snapshot,
    write_snapshot,
)
from tacit.policies.base import NO_FEATURES, Policy, is_correctable
from tacit.policies.features.click_model import encode_seen
from tacit.policies.stationary.chance import UniformRandom

BOOLEANS = bool, np.bool_
make_tuple: Any = tuple.__new__
USER_KEY_SHARE = 0.98
"""Share of decisions with distinct keys from which on keys seem to be users, which is warned of."""
DECISIONS_PER_KEY = 20
"""Decisions per key from which on a warning says that keys share one model."""
MAX_ARMS_NAMED = 12
"""Number of arms that a notebook's view names."""

METHOD_ALIASES = {
    "fit": "fit_log",
    "partial_fit": "learn",
    "update": "learn",
    "predict": "choose",
    **dict.fromkeys(("select_arm", "pull", "decide", "recommend"), "choose"),
    "merge": "tacit.learning.merging.merge_states",
    "load": "Learner.load(path), which returns the learner that was saved",
}
"""Names of methods in other packages, with the corresponding method of ``Learner``."""

if TYPE_CHECKING:
    from builtins import classmethod as of_class
else:

    class of_class(classmethod):
        """A class method that instances lack, since calling it on one would not change that instance."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the method bound to the class; raise AttributeError if accessed by an instance."""
            if instance is not None:
                raise AttributeError
            return super().__get__(instance, owner)


class Learner(EstimatingLearner[ArmT_co]):
    """Choose and learn, separately for each key.

    Not safe for use from several threads at once. Arguments are checked before anything changes:
    ``InvalidValue`` names a value out of its range, ``UnknownName`` an unknown name.
    The type of arms may be declared for type checkers: ``learner: tacit.Learner[str] = …``.

    Parameters
    ----------
    policy : Policy
        The algorithm and its hyperparameters.
    seed : int, SeedSequence, Generator or None
        Source of all random draws: the same seed and calls give the same decisions and states, bit
        for bit. Nothing else should draw from a Generator that is passed here.
    propensities : bool, default True
        Whether decisions carry their propensity; this costs time if it must be integrated.
    reward_range : (float, float), (float, None) or None, optional
        The lowest and the highest reward there can be; by default the policy's ``reward_range``.

    Attributes
    ----------
    rng : Generator
        Source of all random draws.
    decisions : int
        Number of decisions made.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.UCB1(arms=5), seed=7)
    >>> decision = learner.choose("independence day")
    >>> learner.learn(decision, reward=1.0)
    True
    >>> decisions = learner.choose_many(["tomato", "independence day"])
    >>> learner.learn_many(decisions, [0.0, 1.0])
    2
    """

    @with_suggestions
    def __init__(
        self, policy: Policy, seed: Seed = None, *, propensities: bool = True, reward_range: Any = ...
    ) -> None:
        """Create a learner without keys; raise InvalidValue if ``policy`` is no policy."""
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
        policy = policy if reward_range is ... else policy.with_range(reward_range)
        super().__init__(policy, generator("learner", seed), propensities)
        clicks = not policy.showing.compared and policy.reward_range == UNIT_RANGE
        self.watch = LearningWatch(clicks, not is_correctable(policy))
        too_long = policy.arms is not None and policy.action_width > policy.arm_count
        self._check_after: float = 0 if too_long else FIRST_CHECK
        self._warned_of_keys = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the matching method's name for names that other packages use."""
            suggestion = f"; did you mean {METHOD_ALIASES[name]}?" if name in METHOD_ALIASES else ""
            raise AttributeError(f"a Learner has no {name!r}{suggestion}", name=name, obj=self)

    def __repr__(self) -> str:
        """Return a text with the policy and the numbers of keys and decisions."""
        return f"<Learner of {self.policy}: {len(self)} keys, {self.decisions} decisions>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the policy, the first 12 arms, and the numbers of keys and decisions."""
        arms = ", ".join(map(str, self.arms[:MAX_ARMS_NAMED])) + ", …" * (len(self.arms) > MAX_ARMS_NAMED)
        about = {"policy": self.policy.label, "arms": arms or "known by features"}
        return html_table([{**about, "keys": len(self), "decisions": self.decisions}])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the function and its arguments, the policy and the snapshot's bytes, by which pickle copies
        the learner.
        """
        # Pickling the policy, too, makes unpickling import the class of a user-defined policy.
        return _unpickle, (self.policy, b"".join(iter_pieces(make_snapshot(self))))

    def choose(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
        **unknown: Never,
    ) -> Decision[ArmT_co]:
        """Choose what to show for one impression and return the decision; a new key gets a state.

        The policy observes the impression, and random numbers are drawn. Warns, after 1,000 and 10,000
        decisions, of signs of misuse.

        Parameters
        ----------
        key : str or int, optional
            The subject of the decision: a query, a place on a page; at most 512 bytes. A number is converted
            to a string. With a single problem leave it out: it is ``"default"``.
        context : array of float, shape (context_dim,), or dict, optional
            Features of the user, or signals about the key; a dict or a row of a frame if the policy has a
            schema. The first context outside of its classifier's universe is warned of, by
            :class:`~tacit.errors.AssumptionWarning`.
        arms : sequence of arms, optional
            The arms on offer for this impression; by default all that are not retired. If the policy
            identifies arms by their features, names of the arms whose features are passed.
        relevance, examination : array of float, shape (arms on offer, d), optional
            Features of each arm on offer, for policies that read them. Without relevance, ``arms`` are
            ids of ``items``, by default all items.
        """
        if unknown:
            refuse_options(Learner.choose, unknown)
        if self.decisions >= self._check_after:
            _check_usage(self, [key])
        name = key if type(key) is str else checks.key(key)
        if self._no_features and arms is None and relevance is None and examination is None:
            if context is not None or self.reads_contexts:
                self.loops.context[:] = self.impression_reader.read_context(self.policy, context)
            return _choose_plain(self, name)
        if relevance is not None and self.catalogue is not None:
            self.catalogue.warn_of_passed_vectors([arms])
        decision = self.choose_rows([name], as_rows(context, arms, relevance, examination))[0]
        return decision.lean() if relevance is None and len(decision.relevance) else decision

    def choose_many(
        self,
        keys: Sequence[Key],
        contexts: npt.ArrayLike | None = None,
        arms: Sequence[Sequence[Arm] | None] | None = None,
        *,
        relevance: Sequence[npt.ArrayLike] | None = None,
        examination: Sequence[npt.ArrayLike] | None = None,
        **unknown: Never,
    ) -> Decisions[ArmT_co]:
        """Choose what to show for each of many impressions, in their order, and return the decisions as
        columns.

        The effects are those of :meth:`choose`; nothing is learned in between.

        Parameters
        ----------
        keys : sequence of str or int
            A key per impression; a key may occur many times.
        contexts : array of float, shape (impressions, context_dim), sequence of dict or table, optional
        arms : sequence, optional
            Per impression the arms on offer, or None for all.
        relevance, examination : sequence of array, optional
            Features per impression of each arm on offer; or an array (impressions, arms on offer, d).
        """
        if unknown:
            refuse_options(Learner.choose_many, unknown)
        if self.decisions >= self._check_after:
            _check_usage(self, keys)
        offers = checks.as_list(arms)
        if offers is not None and not isinstance(offers, str):
            if single_arms := [offer for offer in offers if isinstance(offer, str)]:
                remedy = f"give a list for each impression, such as {single_arms[:1]}"
                raise InvalidValue("arms", single_arms[0], remedy)
            offers = list(map(checks.as_list, offers))
        if relevance is not None and self.catalogue is not None:
            self.catalogue.warn_of_passed_vectors(offers or ())
        return self.choose_rows(checks.keys(keys), (contexts, offers, relevance, examination))

    def learn(self, decision: Decision, reward: float | Sequence[float], *, seen: bool | None = None) -> bool:
        """Update the policy's state of the decision's key with the reward of the decision.

        A second call for the same decision learns it twice; an :class:`~tacit.errors.AssumptionWarning`
        reports the first repetition, among the 8,192 decisions learned last, by the decision's ``id``. Other
        warnings report that zeros are missing, or learned in another order than clicks.

        Parameters
        ----------
        decision : Decision
            A decision of this learner, or of another learner with the same kind of policy.
        reward : float or sequence of float
            Within the policy's ``reward_range``, [0, 1] by default. For an arm: a click (1.0), none (0.0),
            or a reward between. For a duel: 1.0 if the left arm won, 0.0 if the right arm won, 0.5 for a
            tie. For a slate: a number for each position, or for each arm shown if these are fewer.
        seen : bool, optional
            Whether the user saw the shown arm, if known; for policies with examination features.

        Returns
        -------
        bool
            False if the key's lane has restarted since the decision: then nothing is learned.
        """
        if type(decision) is not Decision:
            require_decision(decision)
        loops, lanes, policy = self.loops, self.lanes, self._policy
        if policy.feedback_width > 1:
            feedback = self.decision_reader.read_feedback("reward", [reward], [decision])
            refuse_unfilled("reward", feedback, decision.slots[None])
            loops.feedback[:] = policy.reward_range.to_unit(feedback)
            value = feedback.max()
        else:
            value = float(reward) if type(reward) is not float and isinstance(reward, BOOLEANS) else reward
            loops.feedback_row[0] = read_reward(policy, value)
        if not value:
            self.watch.has_zero = True
        elif value > self.watch.largest:
            self.watch.largest = value
        if seen is not None:
            loops.feedback[:] = encode_seen(policy, loops.feedback, [seen])
        # A fast test first: a single arm's bound, the largest of all; the check has the exact one.
        least = self.least_share
        if least and (decision.propensity or 0.0) * len(decision.offered) < least:
            check_propensities(self, [decision.propensity], [len(decision.offered)])
        # The learner's own buffers suffice for a decision among all its arms, without features.
        batch, slots, key = loops.single_batch, decision.slots, decision.key
        lane = lanes.lane_of_key.get(key)
        loops.lane[0] = lanes.lane(key) if lane is None else lane
        if decision.offered is not self.offer.arm_indices or not self._no_features:
            batch = self.decision_reader.read_batch([decision])
            slots = self.decision_reader.read_actions([decision], batch)[0]
        elif self.reads_contexts:
            loops.context[:] = decision.context
        if len(slots) == 1:
            loops.action_row[0] = slots.item()
        else:
            loops.action_row[:] = slots
        loops.epoch[0] = decision.epoch
        loops.propensity[0] = math.nan if decision.propensity is None else decision.propensity
        is_learned = bool(loops.learn(loops.params, lanes.state, batch, lanes.plays, *loops.outcome))
        # The ring has the ids of the latest decisions learned.
        ring, number = self.watch.ring, decision.id
        place = number & RING_MASK
        if ring[place] == number:
            self.watch.warn_repeated(decision, self.decisions)
        ring[place] = number
        if self.watch.remaining and (
            message := self.watch.check_order(decision, bool(value), self.decisions, len(self))
        ):
            _warn_once(self, message, 3)
        return is_learned

    def learn_many(
        self,
        decisions: Sequence[Decision],
        rewards: npt.ArrayLike,
        *,
        seen: Sequence[bool | None] | None = None,
    ) -> int:
        """Learn the rewards of many decisions, in the order in which they were made; warns as :meth:`learn`.

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
            Each once, as for :meth:`learn`. They are learned by ascending ``id``; if some are of another
            learner, in the order passed, with an :class:`~tacit.errors.AssumptionWarning` if their ids
            do not ascend.
        rewards : array of float, shape (decisions,) or, for slates, (decisions, positions)
            Each within the policy's ``reward_range``.
        seen : sequence of bool or None, optional
            For each decision as for :meth:`learn`; None if unknown.

        Returns
        -------
        int
            How many were learned; the others were made before their lane's last restart.
        """
        checked_rewards = self.decision_reader.read_feedback("rewards", rewards, decisions)
        values = self.policy.reward_range.to_unit(checked_rewards)
        if seen is not None:
            values = encode_seen(self.policy, values, seen)
        if not len(decisions):
            return 0
        # Errors name a decision by its index in the argument, so validation precedes sorting.
        columns = self.decision_reader.read_columns(decisions)
        refuse_unfilled("rewards", checked_rewards, columns[1])
        order = order_by_id(decisions, self.decisions)
        if order is not None:
            decisions, values = [decisions[row] for row in order], values[order]
            columns = self.decision_reader.read_columns(decisions)
        return _learn_columns(self, decisions, columns, values)

    def fit_log(
        self,
        log: Any,
        *more: Any,
        placement: str | None = None,
        missing_reward: float | None = 0.0,
        relevance: Any = None,
        examination: Any = None,
        **reading: Any,
    ) -> Self:
        """Learn a whole click log, written by any policy; return this learner.

        Each row is learned as if it had been decided here and had its feedback before the next row, in the
        order of ``timestamp`` if there is one: a log that is not in that order is read into memory and
        sorted. New keys get states, and rows count as decisions. Arms that the log hardly shows remain
        uncertain. If the log cannot be read, or does not fit the policy, nothing is learned.

        Parameters
        ----------
        log : LogReader, path, or table in memory
            As for :func:`tacit.read_log`; rewards in the policy's ``reward_range``.
        placement : str, optional
            The placement whose rows to learn; may be left out if the log has only one.
        missing_reward : float or None, default 0
            The reward of a row without feedback; None leaves such rows out.
        relevance, examination : sequence of str, or table, optional
            For policies that identify arms by their features: names of log columns with the features
            of the arm shown; or, if an arm's features never change, a dict from arms to features, or a
            table with a column ``arm``.
        **reading
            ``columns``, ``constants``, ``arms``, ``time_unit``, ``strict`` and ``format`` of
            :func:`tacit.read_log`.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.Thompson(arms=["film", "holiday"]), seed=1).fit_log(
        ...     {
        ...         "query": ["independence day"] * 3,
        ...         "shown": ["film", "holiday", "holiday"],
        ...         "clicked": [0, 1, 1],
        ...     },
        ...     columns={"key": "query", "arm": "shown", "reward": "clicked"},
        ...     arms=["film", "holiday"],
        ... )
        >>> learner.decisions
        3
        >>> [round(each.mean, 2) for each in learner.estimates("independence day")]
        [0.33, 0.75]
        """
        from tacit.learning.log_learning import learn_log
        from tacit.logs.sources import open_policy_log, warn_rejected, warn_unread_context

        if more:
            remedy = "it takes one log, with arms and rewards: frame.assign(reward=rewards)"
            raise TypeError(f"Learner.fit_log(): {remedy}")
        reader = open_policy_log(log, self.policy, reading)  # type: ignore[arg-type]
        warn_unread_context(reader, self.policy)
        features = relevance, examination
        learn_log(self, reader, placement, missing_reward, features)
        warn_rejected(reader, log, by_placement=True)
        return self

    def save(self, path: str | Path) -> None:
        """Write a snapshot of the learner to a file.

        A loaded learner continues exactly as this one would, bit for bit. The file holds arrays and a JSON
        header; it replaces an older file only when complete.
        """
        write_snapshot(make_snapshot(self), checks.path(path))

    @of_class
    def load(cls, path: str | Path) -> Learner[Any]:
        """Return the learner in a file that :meth:`save` wrote; the file cannot cause any code to run.

        A user-defined policy class must have been imported before. Counts of open decisions become 0.

        Raises
        ------
        SnapshotError
            If the file is damaged, truncated, of another format or of a newer version.
        """
        learner = read_snapshot(checks.path(path), restore_learner)
        clear_open(learner)
        return learner


def _choose_plain(learner: Learner[ArmT_co], key: str) -> Decision[ArmT_co]:
    """Choose among all arms on offer for one key; return the decision, and count it.

    The fast path of ``choose``, without features of arms. The context, if the policy reads one, must be in
    ``loops.context``.
    """
    loops, lanes, offer = learner.loops, learner.lanes, learner.offer
    lane = lanes.lane_of_key.get(key)
    loops.lane[0] = lanes.admit([key])[0] if lane is None else lane
    propensities, batch = loops.propensity_buffer, loops.single_batch
    loops.choose(loops.params, lanes.state, batch, learner.rng, loops.action, loops.epoch, propensities)
    slots = loops.action_row.copy()
    if len(slots) == 1:
        arms: Any = (offer.names[slots.item()],)
    else:
        arms = tuple([offer.names[slot] for slot in slots.tolist() if slot >= 0])
    propensity = None if propensities is None else propensities.item()
    if propensity != propensity:
        propensity = None
    prefixes = places = NO_VALUES
    if learner.reports_places:
        loops.place(loops.params, lanes.state, batch, loops.action, loops.prefixes, loops.places)
        prefixes, places = loops.prefixes[0].copy(), loops.places[0].copy()
    id = learner.decisions
    learner.decisions = id + 1
    context = loops.context.copy() if learner.reads_contexts else loops.context
    impression = offer.arm_indices, slots, context, NO_FEATURES, NO_FEATURES
    columns = id, key, arms, propensity, loops.epoch.item(), *impression, prefixes, places
    # Calling Decision() instead would make this method half as slow again.
    decision: Decision[ArmT_co] = make_tuple(Decision, columns)
    return decision


def _unpickle(policy: Policy, content: bytes) -> Learner:
    """Return the learner whose snapshot a pickle holds; its counts of open decisions become 0."""
    learner = from_bytes(content, "pickle", restore_learner)
    clear_open(learner)
    return learner


def clear_open(learner: Learner) -> None:
    """Set the counts of open decisions in a learner's state to zero, in place, as what held these decisions
    is gone.
    """
    for name, array in leaves(learner.state):
        if name.endswith(OPEN_SUFFIX):
            array[:] = 0


def get_arrays(learner: Learner) -> Arrays:
    """Return the state and the plays of a learner, without spare lanes and without copying."""
    return Arrays(learner.lanes.view_all(), learner.lanes.plays[: len(learner)])


def make_snapshot(learner: Learner) -> LearnerSnapshot:
    """Return a snapshot of a learner, to be written at once: its arrays are not copied, so learning changes
    them.
    """
    return LearnerSnapshot(
        policy=learner.policy,
        retired=learner.retired,
        propensities=learner.reports_propensities,
        decisions=learner.decisions,
        generator=learner.rng.bit_generator.state,
        keys=learner.lanes.keys(),
        **get_arrays(learner)._asdict(),
        items=find_catalogue(learner),
        logs=learner.logs_learned,
    )


def restore_learner(snapshot: LearnerSnapshot) -> Learner:
    """Return a new learner with the policy, state, keys, items and random generator of a snapshot."""
    learner: Learner = Learner(snapshot.policy, seed=0, propensities=snapshot.propensities)
    learner.rng.bit_generator.state = snapshot.generator
    learner.lanes.restore(snapshot.state, snapshot.plays, snapshot.keys)
    learner.decisions, learner._check_after = snapshot.decisions, math.inf
    learner.catalogue = snapshot.items or learner.catalogue
    learner.logs_learned = set(snapshot.logs)
    learner.lanes.logged = bool(snapshot.logs)
    if snapshot.retired:
        learner.use_policy(learner.policy, Offer(learner.policy.arms, snapshot.retired))
    return learner


def _learn_columns(learner: Learner[Any], decisions: Sequence[Decision], columns: Any, values: Floats) -> int:
    """Learn decisions from their columns, with warnings of misuse; return how many were learned.

    Raises InvalidValue if a propensity is too small for the policy.
    """
    batch, actions, propensities, epochs = columns
    check_propensities(learner, propensities, batch.stops - batch.starts)
    fresh = learner.learn_rows(batch, actions, values, propensities, epochs)
    if message := learner.watch.record_many(decisions, values, learner.decisions, len(learner)):
        _warn_once(learner, message, 4)
    return int(np.count_nonzero(fresh))


def _check_usage(learner: Learner[Any], keys: Sequence[Key]) -> None:
    """Warn if the decisions so far suggest misuse, such as missing zeros or users as keys.

    ``choose`` calls it after 1,000 and after 10,000 decisions, and before the first one if lists have more
    positions than there are arms; it stores when to call it next.
    """
    if not learner._check_after:
        learner._check_after, count = FIRST_CHECK, learner.policy.arm_count
        message = f"positions: {learner.policy.action_width} are more than the {count} arms; give {count}"
        warnings.warn(message, AssumptionWarning, stacklevel=3)
        return
    early = learner.decisions < SECOND_CHECK
    learner._check_after = SECOND_CHECK if early else math.inf
    if learner.logs_learned or isinstance(learner.policy, UniformRandom):
        return
    _warn_of_dropped_keys(learner)
    messages = [learner.watch.check_missing(learner.decisions)]
    has_user_keys = len(learner) >= USER_KEY_SHARE * learner.decisions and not any(
        key in learner for key in keys
    )
    # Only if no array is shared by all keys: then nothing that one key teaches helps another.
    if has_user_keys and not early and all(learner.lanes.rows):
        what = f"key: {learner.decisions:,} decisions are for {len(learner):,} keys, and each begins anew"
        messages.append(f"{what}; give as key a query or a place on a page, and who is asking as context=")
    for message in filter(None, messages):
        _warn_once(learner, message, 4)


def _warn_once(learner: Learner[Any], message: str, depth: int) -> None:
    """Issue a warning that shows the line of code ``depth`` calls up, and end all checks for misuse."""
    learner._check_after, learner.watch.remaining = math.inf, 0
    warnings.warn(message, AssumptionWarning, stacklevel=depth)


def _warn_of_dropped_keys(learner: Learner) -> None:
    """Warn, once per learner, if several keys share one model that does not depend on the key."""
    policy, count = learner.policy, len(learner)
    several = not learner._warned_of_keys and 2 <= count <= learner.decisions / DECISIONS_PER_KEY
    if several and policy.context_dim and policy.feature_dims == (0, 0) and not policy.key_bytes:
        learner._warned_of_keys = True
        own_models = "per_key=True, or " if getattr(policy, "per_key", None) is False else ""
        warnings.warn(
            f"key: {count:,} keys share one model, which learns nothing of what differs between them; "
            f"give {own_models}what tells keys apart as a field of the context",
            AssumptionWarning,
            stacklevel=4,
        )
