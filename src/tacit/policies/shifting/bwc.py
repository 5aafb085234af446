"""BWC, "bandit with classifier": restart when a context announces an event, and learn which do."""

# 1. ``Phases`` and ``Diary``: where each lane stands, and the latest restarts of all, with their contexts.
# 2. ``begin_phase``: adapting, then testing; a phase may take over what the last one learned.
# 3. ``note_trigger``, ``note_witness``, ``shows_change``: was there an event? The best arms before and after
#    say it.
# 4. ``give_label``: then the context was an event, or not, and the classifier learns which.
# 5. ``BWC``: the policy around an inner one (Syed et al. 2009, algorithm 1).

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers import Classifier, Rectangle
from tacit.classifiers.base import checked_classifier
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import estimate, kernel, learn, learn_false, predict, restart
from tacit.core.part import PositiveFraction, optional, whole
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.actions import passed_on
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.shifting.restarting import Restarting, check_restartable

UNLABELLED, FALSE, TRUE = -1, 0, 1
REMEMBERED = 1024


class Restart(NamedTuple):
    """One restart of a key.

    Attributes
    ----------
    round : int
        Round of the key, from 1, whose context the classifier took for an event.
    context : array of float64, shape (dim,)
    label : bool or None
        False if the best arm turned out not to have changed, True if it had; None as long as,
        or wherever, nothing could be known.
    """

    round: int
    context: Floats
    label: bool | None


class Diagnostics(NamedTuple):
    """What a policy's own record says of its assumptions.

    Labels are counted among the restarts that are still remembered.

    Attributes
    ----------
    restarts : int
        All restarts so far, of all keys.
    false_labels, true_labels, unlabelled : int
    close : int
        True-labelled restarts that came less than 2·L rounds after another one of their key.
    contradictions : int
        Contexts that were labelled true, and that the classifier now takes for no event.
    outside : int
        Contexts outside of what the classifier knows, as the learner counted them since it was
        made or loaded.
    warnings : tuple of str
        What of this contradicts the policy's assumptions.

    Notes
    -----
    False labels on true events, events during testing and events that were missed cannot be
    known from the clicks; ``python -m studies syed2009-labels`` counts them where the truth is known.
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
    """Where each lane stands in its phases.

    Attributes
    ----------
    number : array of int64, shape (lanes,)
        The present phase: odd while testing, even while adapting, 0 before the first round.
    length : array of int64, shape (lanes,)
        Rounds of the present phase that were learned.
    seen : array of int64, shape (lanes,)
        Impressions of the key.
    epochs : array of int64, shape (lanes,)
        Restarts of the bandit.
    late : array of int64, shape (lanes, arms)
        Plays in the later half of the first L rounds of the phase.
    good : array of bool, shape (lanes, arms)
        G⁺ of the most recent full phase.
    full : array of bool, shape (lanes,)
        Whether there has been one.
    context : array of float64, shape (lanes, dim)
        Context of the first round of the present testing phase.
    witnesses : array of float64, shape (lanes, witnesses, dim)
        Contexts of further rounds of it.
    entry : array of int64, shape (lanes,)
        Where the present testing phase stands in the diary.
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
    entry: Annotated[Ints, ValueRange(0, REMEMBERED - 1)]


class Diary(NamedTuple):
    """The latest restarts of all lanes, a ring; every array has a leading axis of 1.

    Attributes
    ----------
    restarts : array of int64, shape (1, 1)
        Restarts so far.
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
    """Enter the next phase, with a fresh bandit or with what the last phase learned."""
    phases = state.phases
    # Odd numbers are testing phases, even ones adapting; one that is audited ends in a test, too.
    phases.number[lane] += 1
    phases.length[lane] = 0
    phases.late[lane, :] = 0
    if fresh:
        restart(params.policy, state.policy, lane)
        phases.epochs[lane] += 1


@kernel
def note_trigger(state: Any, lane: int, context: Floats) -> None:
    """Keep the context that began a testing phase, for its label."""
    phases, diary = state.phases, state.diary
    entry = diary.restarts[0, 0] % diary.lane.shape[1]
    diary.restarts[0, 0] += 1
    diary.lane[0, entry] = lane
    diary.round[0, entry] = phases.seen[lane]
    diary.label[0, entry] = UNLABELLED
    phases.entry[lane] = entry
    for i in range(phases.context.shape[1]):
        phases.context[lane, i] = context[i]
        diary.context[0, entry, i] = context[i]
        for k in range(phases.witnesses.shape[1]):
            phases.witnesses[lane, k, i] = context[i]


@kernel
def note_witness(params: Any, phases: Phases, lane: int, context: Floats) -> None:
    """Keep the context if it is one of those, spread over L/4 rounds, that share the label."""
    # Early ones: an event among them would still show at the phase's end.
    wanted = phases.witnesses.shape[1]
    step = max(params.test_rounds // 4 // wanted, 1)
    length = phases.length[lane]
    if length % step == 0 and 0 < length // step <= wanted:
        for i in range(phases.context.shape[1]):
            phases.witnesses[lane, length // step - 1, i] = context[i]


@kernel
def shows_change(params: Any, state: Any, lane: int) -> bool:
    """Replace G⁺ by that of the present phase; return whether its G⁻ meets the G⁺ before it."""
    phases = state.phases
    most = 0
    for arm in range(1, phases.late.shape[1]):
        if phases.late[lane, arm] > phases.late[lane, most]:
            most = arm
    reference = estimate(params.policy, state.policy, lane, most)
    changed = False
    for arm in range(phases.late.shape[1]):
        # Algorithm 2, lines 8 to 11: good within ¼, bad beyond ½ of the least shift; what lies between is
        # neither.
        gap = reference - estimate(params.policy, state.policy, lane, arm)
        changed = changed or (phases.good[lane, arm] and gap > 0.5 * params.min_shift)
        phases.good[lane, arm] = gap <= 0.25 * params.min_shift
    return changed


@kernel
def give_label(params: Any, state: Any, lane: int, changed: bool) -> None:
    """Label the context that began the testing phase; a false one teaches the classifier."""
    phases, diary = state.phases, state.diary
    if not changed:
        row = lane if params.per_key else 0
        learn_false(params.classifier, state.classifier, row, phases.context[lane])
        for k in range(phases.witnesses.shape[1]):
            learn_false(params.classifier, state.classifier, row, phases.witnesses[lane, k])
    entry = phases.entry[lane]
    # The diary is a ring of all lanes: the entry may have been written over by another key's restart.
    if diary.lane[0, entry] == lane:
        diary.label[0, entry] = TRUE if changed else FALSE


@dataclass(frozen=True)
class BWC(Restarting):
    """Restart a policy when a safe classifier takes the context for an event.

    Phases alternate. A *testing* phase lasts ``test_rounds`` rounds of its key; an *adapting*
    phase lasts until the classifier says "event", and that round is the first of the next
    testing phase. After ``test_rounds`` rounds of a phase the arms are guessed to be good, bad
    or neither. If at the end of a testing phase no arm that was good in the most recent full
    phase is bad now, nothing has changed: the context that began the phase is labelled false,
    and the classifier learns it. Nobody has to label anything.

    Where feedback comes late, rounds are counted as they are learned, and a restart happens at
    once, with the impression that announces it.

    Parameters
    ----------
    policy : Policy or int or sequence of str
        What decides within a phase: UCB1, KLUCB, Thompson or EpsilonGreedy; or only the arms,
        for UCB1.
    classifier : Classifier
        Such as ``Rectangle(dim=2, margin=0.1)``.
    test_rounds : int, default 500
        L, the length of a testing phase; at least 2. Two events of a key should be at least 2·L
        of its rounds apart.
    min_shift : float, default 0.1
        By how much an event lowers, against the new best arm, an arm that was best; in (0, 1].
    merge_phases : bool, default True
        Whether an adapting phase goes on with what its testing phase has learned, instead of
        starting cold as in the paper's pseudocode.
    per_key : bool, default False
        Whether each key has a classifier of its own, instead of one for all.
    witnesses : int, default 0
        Further contexts of a testing phase, from its first quarter, that are labelled false along
        with the one that began it. They cost nothing and teach the classifier faster; but an
        event among them that is not noticed becomes a false label.
    audit_rounds : int, default 0
        After so many rounds an adapting phase ends without an event, so that a context which was
        taken for none is tested, too; 0 for never. Each audit costs a restart; it repairs what a
        missed event has spoiled.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy cannot be restarted.

    References
    ----------
    Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries", full
    version, algorithm 1 and section 4. The guess is that of algorithm 2, lines 8 to 11, whatever
    the policy: v* is the arm played most often in the last ⌊L/2⌋ of the L rounds, an arm is good
    if its mean is at most ``min_shift``/4 below that of v*, bad if it is more than
    ``min_shift``/2 below. ``witnesses`` and ``audit_rounds`` are ours: section 9 asks for labels
    upon negative predictions.

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
        diary: Diary

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
    classifier: Annotated[Classifier, checked_classifier] = field(kw_only=True)
    policy: Policy = field(default=None, kw_only=True)  # type: ignore[assignment]
    test_rounds: Annotated[int, whole(2, 2**40)] = field(default=500, kw_only=True)
    min_shift: PositiveFraction = field(default=0.1, kw_only=True)
    merge_phases: bool = field(default=True, kw_only=True)
    per_key: bool = field(default=False, kw_only=True)
    witnesses: Annotated[int, whole(0, 1024)] = field(default=0, kw_only=True)
    audit_rounds: Annotated[int, whole(0, 2**40)] = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy is None:
            from tacit.policies.stationary.ucb import UCB1

            self._set("policy", UCB1(self.arms))
        elif isinstance(self.policy, Policy) and self.arms is not None:
            self._set("policy", self.policy.with_arms(self.arms))
        check_restartable("policy", self.policy)
        self._take_over("arms", "randomized")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, classifier=Rectangle(dim, margin=0.1))

    @property
    def inner(self) -> Policy:
        """The policy within the phases."""
        return self.policy

    def with_arms(self, arms: int | tuple[str, ...]) -> Self:
        return replace(self, arms=arms, policy=self.inner.with_arms(arms))

    context_dim = passed_on("dim", part="classifier")

    def init(self, lanes: int) -> State:
        arms, dim = self.arm_count, self.classifier.dim

        def ints(*shape: int) -> Ints:
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
        diary = Diary(
            restarts=ints(1, 1),
            lane=np.full((1, REMEMBERED), -1, np.int64),
            round=ints(1, REMEMBERED),
            label=ints(1, REMEMBERED),
            context=np.zeros((1, REMEMBERED, dim)),
        )
        rows = lanes if self.per_key else 1
        return self.State(self.inner.init(lanes), self.classifier.init(rows), phases, diary)

    def restarts(self, state: State, lane: int) -> list[Restart]:
        """Return the lane's restarts among the latest 1024 of all lanes, oldest first."""
        diary = state.diary
        count, size = int(diary.restarts[0, 0]), diary.lane.shape[1]
        entries = [i % size for i in range(max(0, count - size), count)]
        labels = {UNLABELLED: None, FALSE: False, TRUE: True}
        return [
            Restart(int(diary.round[0, i]), diary.context[0, i].copy(), labels[int(diary.label[0, i])])
            for i in entries
            if diary.lane[0, i] == lane
        ]

    def diagnostics(self, state: State) -> Diagnostics:
        """Return what the record of restarts says of the policy's assumptions."""
        diary = state.diary
        count, size = int(diary.restarts[0, 0]), diary.lane.shape[1]
        labels = diary.label[0, : min(count, size)]
        events = np.flatnonzero(labels == TRUE)
        close, contradictions = self._close(diary, events), self._contradictions(state, events)
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

    def _close(self, diary: Diary, events: Ints) -> int:
        """Count the events that came too soon after another one of their lane."""
        lanes, rounds = diary.lane[0, events], diary.round[0, events]
        order = np.lexsort((rounds, lanes))
        same = np.diff(lanes[order]) == 0
        return int((same & (np.diff(rounds[order]) < 2 * self.test_rounds)).sum())

    def _contradictions(self, state: State, events: Ints) -> int:
        """Count the contexts of events that the classifier would now let pass."""
        params, diary = self.classifier.params, state.diary
        return sum(
            not predict(
                params, state.classifier, int(diary.lane[0, i]) if self.per_key else 0, diary.context[0, i]
            )
            for i in events
        )

    @staticmethod
    def observe(params: BWC, state: State, lane: int, impression: Impression) -> None:
        phases = state.phases
        phases.seen[lane] += 1
        row = lane if params.per_key else 0
        context = impression.context[: phases.context.shape[1]]
        first = phases.number[lane] == 0
        adapting = phases.number[lane] % 2 == 0
        audited = params.audit_rounds > 0 and phases.length[lane] >= params.audit_rounds
        if not first and not adapting:
            if phases.witnesses.shape[1] > 0:
                note_witness(params, phases, lane, context)
        # In a testing phase the classifier is not asked: algorithm 1 tests to its end.
        elif first or audited or predict(params.classifier, state.classifier, row, context):
            begin_phase(params, state, lane, not first)
            note_trigger(state, lane, context)

    @staticmethod
    def learn(params: BWC, state: State, lane: int, outcome: Outcome) -> None:
        learn(params.policy, state.policy, lane, outcome)
        phases = state.phases
        phases.length[lane] += 1
        length, full = phases.length[lane], params.test_rounds
        if length > full:
            return
        # v* is played most in the later half: by then the bandit has found its arm.
        if length > full - full // 2:
            phases.late[lane, outcome.shown] += 1
        if length == full:
            changed = shows_change(params, state, lane)
            if phases.number[lane] % 2 == 1:
                if phases.full[lane]:
                    give_label(params, state, lane, changed)
                begin_phase(params, state, lane, not params.merge_phases)
            phases.full[lane] = True

    @staticmethod
    def epoch(params: BWC, state: State, lane: int) -> int:
        return int(state.phases.epochs[lane])
