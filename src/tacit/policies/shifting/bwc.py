"""BWC, "bandit with classifier": restart when a context announces an event, and learn which contexts do."""

# 1. ``Phases`` and ``RestartLog``: the phase of each lane, and the latest restarts of all lanes.
# 2. ``begin_phase``: adapting, then testing; a phase may continue with the bandit of the last one.
# 3. ``record_restart``, ``store_witness``, ``detect_change``: compare the best arms before and after a
#    restart.
# 4. ``label_trigger``: label the context as an event or not; the classifier learns the label.
# 5. ``BWC``: the policy around an inner one (Syed et al. 2009, algorithm 1).

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers import Classifier, Rectangle
from tacit.classifiers.base import check_classifier
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import estimate, kernel, learn, learn_false, predict, restart
from tacit.core.part import PositiveFraction, int_range, optional, set_field
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.actions import delegate_property
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.shifting.restarting import Restarting, check_restartable

UNLABELLED, FALSE, TRUE = -1, 0, 1
LOG_ENTRIES = 1024


class Restart(NamedTuple):
    """One restart of a key.

    Attributes
    ----------
    round : int
        Round of the key, from 1, whose context the classifier took for an event.
    context : array of float64, shape (dim,)
    label : bool or None
        False if the best arm had not changed, True if it had; None if this is not, or not yet, known.
    """

    round: int
    context: Floats
    label: bool | None


class Diagnostics(NamedTuple):
    """Checks of a policy's assumptions against its log of restarts.

    Labels are counted over the restarts that are still in the log.

    Attributes
    ----------
    restarts : int
        Number of restarts so far, of all keys.
    false_labels, true_labels, unlabelled : int
        Number of restarts by label.
    close : int
        True-labelled restarts that came less than 2·L rounds after another one of their key.
    contradictions : int
        Contexts that were labelled true, but that the classifier now takes for no event.
    outside : int
        Contexts outside the range of the classifier, as counted by the learner since it was
        created or loaded.
    warnings : tuple of str
        Contradictions to the policy's assumptions.

    Notes
    -----
    False labels on true events, events during testing and missed events cannot be
    detected from the clicks; ``python -m studies syed2009-labels`` counts them in simulations.
    """

    restarts: int
    false_labels: int
    true_labels: int
    unlabelled: int
    close: int
    contradictions: int
    outside: int
    warnings: tuple[str, ...]


class Phases(NamedTuple):
    """The present phase of each lane.

    Attributes
    ----------
    number : array of int64, shape (lanes,)
        Number of the present phase: odd while testing, even while adapting, 0 before the first round.
    length : array of int64, shape (lanes,)
        Rounds learned in the present phase.
    seen : array of int64, shape (lanes,)
        Impressions of the key.
    epochs : array of int64, shape (lanes,)
        Restarts of the bandit.
    late : array of int64, shape (lanes, arms)
        Plays in the later half of the first L rounds of the phase.
    good : array of bool, shape (lanes, arms)
        G⁺, the good arms, of the most recent full phase.
    full : array of bool, shape (lanes,)
        Whether there has been a full phase.
    context : array of float64, shape (lanes, dim)
        Context of the first round of the present testing phase.
    witnesses : array of float64, shape (lanes, witnesses, dim)
        Contexts of further rounds of the present testing phase.
    entry : array of int64, shape (lanes,)
        Index of the present testing phase's restart in the log.
    """

    number: IntCount
    length: IntCount
    seen: IntCount
    epochs: IntCount
    late: IntCount
    good: Booleans
    full: Booleans
    context: Floats
    witnesses: Floats
    entry: Annotated[Ints, ValueRange(0, LOG_ENTRIES - 1)]


class RestartLog(NamedTuple):
    """The latest restarts of all lanes, in a ring buffer; every array has a leading axis of 1.

    Attributes
    ----------
    restarts : array of int64, shape (1, 1)
        Number of restarts so far.
    lane, round, label : array of int64, shape (1, entries)
    context : array of float64, shape (1, entries, dim)
    """

    restarts: IntCount
    lane: Annotated[Ints, ValueRange(-1, -1, "lanes")]
    round: IntCount
    label: Annotated[Ints, ValueRange(-1, 1)]
    context: Floats


@kernel
def begin_phase(params: Any, state: Any, lane: int, fresh: bool) -> None:
    """Start a lane's next phase: raise its number, and reset its counts of rounds and plays.

    If ``fresh``, also restart the inner policy and count this as an epoch; else the inner policy continues.
    """
    phases = state.phases
    # Odd numbers are testing phases, even ones adapting; an audit also leads from adapting to testing.
    phases.number[lane] += 1
    phases.length[lane] = 0
    phases.late[lane, :] = 0
    if fresh:
        restart(params.policy, state.policy, lane)
        phases.epochs[lane] += 1


@kernel
def record_restart(state: Any, lane: int, context: Floats) -> None:
    """Add a restart to the log, and store its context, which is labelled at the end of the testing phase.

    The log's oldest entry is overwritten. Until :func:`store_witness` stores others, the same context stands
    for all witnesses.
    """
    phases, log = state.phases, state.diary
    entry = log.restarts[0, 0] % log.lane.shape[1]
    log.restarts[0, 0] += 1
    log.lane[0, entry] = lane
    log.round[0, entry] = phases.seen[lane]
    log.label[0, entry] = UNLABELLED
    phases.entry[lane] = entry
    for i in range(phases.context.shape[1]):
        phases.context[lane, i] = context[i]
        log.context[0, entry, i] = context[i]
        for k in range(phases.witnesses.shape[1]):
            phases.witnesses[lane, k, i] = context[i]


@kernel
def store_witness(params: Any, phases: Phases, lane: int, context: Floats) -> None:
    """Store every (L/4n)-th context of a testing phase of L rounds, up to n, as witnesses, which share its
    label.

    In other rounds, do nothing.
    """
    # Only early contexts: an event among them would still be noticed at the phase's end.
    count = phases.witnesses.shape[1]
    step = max(params.test_rounds // 4 // count, 1)
    length = phases.length[lane]
    if length % step == 0 and 0 < length // step <= count:
        for i in range(phases.context.shape[1]):
            phases.witnesses[lane, length // step - 1, i] = context[i]


@kernel
def detect_change(params: Any, state: Any, lane: int) -> bool:
    """Update a lane's good arms G⁺ from the present phase; return True if an arm that was good is bad now.

    An arm is judged by its mean reward against v*, the most played arm of the phase's later half.
    """
    phases = state.phases
    most = 0
    for arm in range(1, phases.late.shape[1]):
        if phases.late[lane, arm] > phases.late[lane, most]:
            most = arm
    reference = estimate(params.policy, state.policy, lane, most)
    changed = False
    for arm in range(phases.late.shape[1]):
        # Algorithm 2, lines 8 to 11: good within ¼ of the minimum shift, bad beyond ½ of it, else neither.
        gap = reference - estimate(params.policy, state.policy, lane, arm)
        changed = changed or (phases.good[lane, arm] and gap > 0.5 * params.min_shift)
        phases.good[lane, arm] = gap <= 0.25 * params.min_shift
    return changed


@kernel
def label_trigger(params: Any, state: Any, lane: int, changed: bool) -> None:
    """Write the label ``changed`` to the log for the context that began the testing phase.

    If it is False, the classifier learns that this context and its witnesses announce nothing.
    """
    phases, log = state.phases, state.diary
    if not changed:
        row = lane if params.per_key else 0
        learn_false(params.classifier, state.classifier, row, phases.context[lane])
        for k in range(phases.witnesses.shape[1]):
            learn_false(params.classifier, state.classifier, row, phases.witnesses[lane, k])
    entry = phases.entry[lane]
    # The log is a ring buffer of all lanes: another key's restart may have overwritten the entry.
    if log.lane[0, entry] == lane:
        log.label[0, entry] = TRUE if changed else FALSE


@dataclass(frozen=True)
class BWC(Restarting):
    """Restart a policy when a safe classifier takes the context for an event.

    Phases alternate. A *testing* phase lasts ``test_rounds`` rounds of its key; an *adapting*
    phase lasts until the classifier says "event", and that round is the first of the next
    testing phase. After ``test_rounds`` rounds of a phase the arms are classified as good, bad
    or neither. If at the end of a testing phase no arm that was good in the most recent full
    phase is bad now, nothing has changed: the context that began the phase is labelled false,
    and the classifier learns it. No labels by hand are needed.

    With late feedback, rounds are counted as they are learned, and a restart happens at
    once, with the impression that announces the event.

    Parameters
    ----------
    arms : int or sequence of str, optional
        Number of arms, or their names; may be left out if ``policy`` is given, whose arms it replaces.
    policy : Policy, optional
        The policy within a phase: UCB1, KLUCB, Thompson or EpsilonGreedy; by default UCB1.
    classifier : Classifier
        The classifier of contexts, such as ``Rectangle(dim=2, margin=0.1)``.
    test_rounds : int, default 500
        L, the length of a testing phase; at least 2. Two events of a key should be at least 2·L
        of its rounds apart.
    min_shift : float, default 0.1
        Least amount by which an event lowers a formerly best arm below the new best arm; in (0, 1].
    merge_phases : bool, default True
        Whether an adapting phase continues with the bandit of its testing phase, instead of
        restarting it as in the paper's pseudocode.
    per_key : bool, default False
        Whether each key has a separate classifier, instead of one for all.
    witnesses : int, default 0
        Number of further contexts from the first quarter of a testing phase that are labelled false along
        with the one that began it. They cost nothing and the classifier learns faster; but an
        event among them that is not noticed becomes a false label.
    audit_rounds : int, default 0
        Number of rounds after which an adapting phase ends without an event, so that contexts which the
        classifier takes for no event are tested, too; 0 for never. Each audit costs a restart; it repairs the
        effect of missed events.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy cannot be restarted.

    References
    ----------
    Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries", full
    version, algorithm 1 and section 4. Arms are classified as in algorithm 2, lines 8 to 11, for every
    policy: v* is the arm played most often in the last ⌊L/2⌋ of the L rounds, an arm is good
    if its mean is at most ``min_shift``/4 below that of v*, bad if it is more than
    ``min_shift``/2 below. ``witnesses`` and ``audit_rounds`` are tacit's additions: section 9 asks for
    labels upon negative predictions.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.BWC(arms=5, classifier=tacit.classifiers.Rectangle(dim=2, margin=0.1))
    >>> learner = tacit.Learner(policy, seed=1)
    >>> decision = learner.choose("independence day", context=[0.2, 0.4])
    >>> learner.learn(decision, reward=1.0)
    True
    >>> learner.restarts("independence day")[0].round
    1
    """

    class State(NamedTuple):
        policy: Any
        classifier: Any
        phases: Phases
        diary: RestartLog

    about: ClassVar[About] = About(
        source="Syed, Slivkins, Mishra (2009), full version, algorithm 1",
        regret="(2k + d)·R₀(T/(2k + d)) + (k + d)·R₀(L) + k·L for k events and a classifier of "
        "FP-complexity d (theorem 1)",
        assumes="contexts that announce events without error, within the classifier's concept "
        "class; events at least 2·L rounds apart that lower a best arm by min_shift",
        fails="one false label can hide all later events; false alarms restart it for nothing",
        otherwise="ShiftMixture where contexts say little or are often wrong",
    )

    arms: Annotated[Any, optional(checks.arms)] = None
    classifier: Annotated[Classifier, check_classifier] = field(kw_only=True)
    policy: Policy = field(default=None, kw_only=True)  # type: ignore[assignment]
    test_rounds: Annotated[int, int_range(2, 2**40)] = field(default=500, kw_only=True)
    min_shift: PositiveFraction = field(default=0.1, kw_only=True)
    merge_phases: bool = field(default=True, kw_only=True)
    per_key: bool = field(default=False, kw_only=True)
    witnesses: Annotated[int, int_range(0, 1024)] = field(default=0, kw_only=True)
    audit_rounds: Annotated[int, int_range(0, 2**40)] = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; make the inner policy UCB1 if only arms are given."""
        super().__post_init__()
        if self.policy is None:
            from tacit.policies.stationary.ucb import UCB1

            set_field(self, "policy", UCB1(self.arms))
        elif isinstance(self.policy, Policy) and self.arms is not None:
            set_field(self, "policy", self.policy.with_arms(self.arms))
        check_restartable(self.policy)
        self._copy_fields("arms", "randomized")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over UCB1 with a rectangle of ``dim`` context numbers."""
        return cls(arms, classifier=Rectangle(dim, margin=0.1))

    @property
    def inner(self) -> Policy:
        """The policy within the phases."""
        return self.policy

    def with_arms(self, arms: int | tuple[str, ...]) -> Self:
        """Return a copy of the policy with other arms, also in its inner policy."""
        return replace(self, arms=arms, policy=self.inner.with_arms(arms))

    context_dim = delegate_property("dim", part="classifier")

    def init(self, lanes: int) -> State:
        """Return the initial state: the inner policy's, the classifier's, phases of zero and an empty log."""
        arms, dim = self.arm_count, self.classifier.dim

        def ints(*shape: int) -> Ints:
            """Return an array of zeros, of type int64, of a shape."""
            return np.zeros(shape, np.int64)

        phases = Phases(
            number=ints(lanes),
            length=ints(lanes),
            seen=ints(lanes),
            epochs=ints(lanes),
            late=ints(lanes, arms),
            good=np.zeros((lanes, arms), np.bool_),
            full=np.zeros(lanes, np.bool_),
            context=np.zeros((lanes, dim)),
            witnesses=np.zeros((lanes, self.witnesses, dim)),
            entry=ints(lanes),
        )
        log = RestartLog(
            restarts=ints(1, 1),
            lane=np.full((1, LOG_ENTRIES), -1, np.int64),
            round=ints(1, LOG_ENTRIES),
            label=ints(1, LOG_ENTRIES),
            context=np.zeros((1, LOG_ENTRIES, dim)),
        )
        rows = lanes if self.per_key else 1
        return self.State(self.inner.init(lanes), self.classifier.init(rows), phases, log)

    def restarts(self, state: State, lane: int) -> list[Restart]:
        """Return a lane's restarts, oldest first, as far as they are among the latest 1024 of all lanes."""
        log = state.diary
        count, size = int(log.restarts[0, 0]), log.lane.shape[1]
        entries = [i % size for i in range(max(0, count - size), count)]
        labels = {UNLABELLED: None, FALSE: False, TRUE: True}
        return [
            Restart(int(log.round[0, i]), log.context[0, i].copy(), labels[int(log.label[0, i])])
            for i in entries
            if log.lane[0, i] == lane
        ]

    def diagnostics(self, state: State) -> Diagnostics:
        """Return counts of the restarts and labels in the log, and warnings where they contradict the
        policy's assumptions.

        ``outside`` is 0; the learner sets it.
        """
        log = state.diary
        count, size = int(log.restarts[0, 0]), log.lane.shape[1]
        labels = log.label[0, : min(count, size)]
        events = np.flatnonzero(labels == TRUE)
        close, contradictions = (
            self._count_close_events(log, events),
            self._count_contradictions(state, events),
        )
        warnings = []
        if close:
            warnings.append(
                f"{close} of {len(events)} events came less than 2·test_rounds = "
                f"{2 * self.test_rounds} rounds after another one of their key; labels may be "
                "wrong; give a smaller test_rounds"
            )
        if contradictions:
            warnings.append(
                f"{contradictions} of {len(events)} contexts that announced an event are now taken "
                "for none: labels contradict each other, and later events like them are missed; "
                "use ProbationBandit, or a smaller margin"
            )
        return Diagnostics(
            restarts=count,
            false_labels=int((labels == FALSE).sum()),
            true_labels=len(events),
            unlabelled=int((labels == UNLABELLED).sum()),
            close=close,
            contradictions=contradictions,
            outside=0,
            warnings=tuple(warnings),
        )

    def _count_close_events(self, log: RestartLog, events: Ints) -> int:
        """Return the number of ``events`` (indices of the log) less than 2·``test_rounds`` rounds after
        another of their lane.
        """
        lanes, rounds = log.lane[0, events], log.round[0, events]
        order = np.lexsort((rounds, lanes))
        same = np.diff(lanes[order]) == 0
        return int((same & (np.diff(rounds[order]) < 2 * self.test_rounds)).sum())

    def _count_contradictions(self, state: State, events: Ints) -> int:
        """Return the number of ``events`` (indices of the log) whose context the classifier takes for no
        event now.
        """
        params, log = self.classifier.params, state.diary
        return sum(
            not predict(
                params, state.classifier, int(log.lane[0, i]) if self.per_key else 0, log.context[0, i]
            )
            for i in events
        )

    @staticmethod
    def observe(params: BWC, state: State, lane: int, impression: Impression) -> None:
        """Count the impression, and begin a testing phase if its context announces an event.

        A testing phase also begins with a key's first round, and after ``audit_rounds`` of an adapting phase.
        In a testing phase, contexts are only stored as witnesses.
        """
        phases = state.phases
        phases.seen[lane] += 1
        row = lane if params.per_key else 0
        context = impression.context[: phases.context.shape[1]]
        first = phases.number[lane] == 0
        adapting = phases.number[lane] % 2 == 0
        audited = params.audit_rounds > 0 and phases.length[lane] >= params.audit_rounds
        if not first and not adapting:
            if phases.witnesses.shape[1] > 0:
                store_witness(params, phases, lane, context)
        # A testing phase does not use the classifier: algorithm 1 tests to its end.
        elif first or audited or predict(params.classifier, state.classifier, row, context):
            begin_phase(params, state, lane, not first)
            record_restart(state, lane, context)

    @staticmethod
    def learn(params: BWC, state: State, lane: int, outcome: Outcome) -> None:
        """Let the inner policy learn the outcome, and count the round in its phase.

        In round ``test_rounds`` of a phase, the arms are classified. That ends a testing phase: its context
        is labelled, and an adapting phase begins.
        """
        learn(params.policy, state.policy, lane, outcome)
        phases = state.phases
        phases.length[lane] += 1
        length, full = phases.length[lane], params.test_rounds
        if length > full:
            return
        # v* is the most played arm of the later half: by then the bandit has found the best arm.
        if length > full - full // 2:
            phases.late[lane, outcome.shown] += 1
        if length == full:
            changed = detect_change(params, state, lane)
            if phases.number[lane] % 2 == 1:
                if phases.full[lane]:
                    label_trigger(params, state, lane, changed)
                begin_phase(params, state, lane, not params.merge_phases)
            phases.full[lane] = True

    @staticmethod
    def epoch(params: BWC, state: State, lane: int) -> int:
        """Return how often the inner policy was restarted in the lane."""
        return int(state.phases.epochs[lane])
