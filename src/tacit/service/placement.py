"""One placement: its learner, its windows and its series, all a fold over its part of the log."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, groupby, islice, repeat
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from tacit import checks
from tacit.arrays import Ints
from tacit.decisions import NOTHING, Arm, Decision
from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learner import Learner
from tacit.policies import Policy, policy_from_spec, policy_to_spec
from tacit.service.attribution import (
    FROZEN as NOT_LEARNING,
)
from tacit.service.attribution import (
    LATE_EPOCH,
    LEARNED,
    NOTED,
    Attribution,
    Lesson,
    Open,
)
from tacit.service.config import DUELS, FEATURES, PERSONALIZER, SLATES, PlacementConfig
from tacit.service.draws import Draws
from tacit.service.errors import StoreError
from tacit.service.ids import decision_ids
from tacit.service.series import Series
from tacit.service.sharing import Told as Learned
from tacit.service.sharing import shared_of
from tacit.service.signals import PlacementSignals
from tacit.service.store import (
    ACTIVATE,
    APPRENTICE,
    CLICKS,
    FROZEN,
    MERGE,
    MODE,
    MODES,
    ONLINE,
    REWARD,
    SHADOW,
    DecisionRow,
    Draft,
    Event,
    FeedbackRow,
    MarkRow,
    Snapshot,
    Store,
    StoredPlacement,
)
from tacit.snapshot import Frozen, from_bytes, frozen, pieces
from tacit.state import leaves

FOLD_ROWS = 4096
CLOSED = "window-closed"
LONGEST_ID = 256

Rows = Sequence[Sequence[float]]
"""Features: a row for each arm."""

logger = logging.getLogger(__name__)


class Impression(NamedTuple):
    """What a caller wants decided; checked.

    Attributes
    ----------
    key, arms, context, id, deferred
        As :meth:`Placement.checked` is given them.
    asked : str or None
        What else was said, as the log keeps it.
    given : object
        The same, as the placement uses it.
    """

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None
    id: str | None = None
    deferred: bool = False
    asked: str | None = None
    given: Any = None

    def asks_for(self, row: DecisionRow, context: str | None) -> bool:
        """Say whether a decision answers this very impression; its context is as it was asked."""
        told = self.key, _json(self.arms), _json(self.context), int(self.deferred), self.asked
        return told == (row.key, row.offered, context, row.deferred, row.asked)


class Clicks(NamedTuple):
    """What was clicked in a list, as a client tells it: positions from 0, or items."""

    positions: Sequence[int] | None = None
    items: Sequence[Arm] | None = None


class _Saved(msgspec.Struct):
    time: int
    mode: str
    decisions: int
    feedback: int
    outcomes: dict[str, int]
    open: list[tuple[Any, ...]]
    counts: Any = None
    signals: bytes | None = None
    defaults: list[tuple[Any, ...]] = []
    shared: Any = None


class Placement:
    """The learner of a placement, and how its decisions stand in the log.

    This one decides for one of several arms. Other kinds are subclasses: they say what they take,
    show and learn, and everything else is the same for all.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    snapshot : Snapshot, optional
        Where to begin; without one, at the beginning of the log.
    base : Snapshot, optional
        The beginning of the log, where what was before has been dropped.

    Raises
    ------
    StoreError
        If the base is damaged.
    """

    asks_at: ClassVar[str] = "decide"
    """The path at which decisions are asked for."""
    modes: ClassVar[tuple[str, ...]] = MODES
    attribution: ClassVar[type[Attribution]] = Attribution

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        snapshot: Snapshot | None = None,
        base: Snapshot | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] = _new_ids
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.restarts = type(config.policy).epoch is not Policy.epoch
        self._draws, self._shadow_draws = Draws(stored.seed), Draws(stored.seed, "shadow")
        arms = () if config.policy.arms is None else config.policy.arms
        self._slots = {a: s for s, a in enumerate(range(arms) if isinstance(arms, int) else arms)}
        self._all = np.arange(len(self._slots))
        self._alone = {arm: np.array([slot]) for arm, slot in self._slots.items()}
        self.arms: list[Arm] = list(self._slots)
        self._begin()
        if snapshot is not None and base is not None and snapshot.seq < base.seq:
            snapshot = None
        if snapshot is None or not self._restored(snapshot):
            self._rest_on(base)

    def _begin(self) -> None:
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.shadow: Learner | None = None
        if config.shadow is not None:
            self.shadow = Learner(config.shadow, self.seed, propensities=config.propensities)
        self.shared = shared_of(config.policy, config.spread)
        self.series = Series(self._layers)
        self.windows = self.attribution(config.rule)
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self.mode = ONLINE
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.covered = self._held = 0
        self._lessons: list[Lesson] = []

    @property
    def plan(self) -> str:
        """How the log is folded, as JSON."""
        rule = msgspec.to_builtins(self.config.rule)
        if rule["late"] == "record":
            del rule["correction"]
        plan = {
            "rule": rule,
            "shadow": self.config.shadow and policy_to_spec(self.config.shadow),
            "propensities": self.config.propensities,
            **({"spread": True} if self.config.spread else {}),
            **self._own_plan(),
        }
        if self.config.signals is not None:
            plan["signals"] = msgspec.to_builtins(self.config.signals)
        return json.dumps(plan, sort_keys=True)

    @property
    def snapshot_after(self) -> int:
        """After how many events the next snapshot is worth its while.

        It grows with what the last one held, keys and open windows, so that all snapshots together
        take a time that is linear in the events.
        """
        return max(self.config.snapshot_every, self._held)

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return len(self.learner.keys)

    @property
    def pending(self) -> int:
        """How many decisions have an open window."""
        return len(self.windows)

    # What a kind says of itself --------------------------------------------------------------

    @property
    def _layers(self) -> int:
        """How many things the series counts the impressions of."""
        return self.config.policy.arm_count

    def _own_plan(self) -> dict[str, Any]:
        return {}

    def _choose(self, learner: Learner, told: Impression) -> Decision:
        context = told.context if learner.policy.context_dim else None
        return learner.choose(told.key, context, told.arms)

    def _choose_many(self, impressions: Sequence[Impression]) -> Sequence[Decision]:
        keys, arms, contexts, *_ = zip(*impressions, strict=True)
        return self.learner.choose_many(
            keys,
            contexts if self.config.policy.context_dim else None,
            arms if any(offer is not None for offer in arms) else None,
        )

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        """Return what the mode ``apprentice`` shows."""
        return (self.arms[int(decision.offered[0])],)

    def _would(self, decision: Decision) -> Arm:
        """Return what would have been shown, as the log keeps it."""
        return decision.arm

    def _also_shown(self, told: Impression, shown: Decision, id: str) -> str | None:
        """Return what was shown, as the log keeps it where one arm does not say it."""
        return None

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision showed."""
        return (row.arm,)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if len(shown) == 1:
            return self._alone[shown[0]]
        return np.array([self._slots[arm] for arm in shown])

    def _offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        if offered is None:
            return self._all
        return np.array([self._slots[arm] for arm in offered], np.int64)

    def _worths(self, lessons: Sequence[Lesson]) -> list[Any]:
        """Return what the learner is told for what came back; None for nothing."""
        rewards, lowest = [lesson.reward for lesson in lessons], self.config.rule.lowest
        if not lowest:
            return rewards
        return [(reward - lowest) / (1.0 - lowest) for reward in rewards]

    def _became(self, lesson: Lesson) -> str:
        """Return what became of feedback that is learned at once."""
        return LEARNED

    def positions(self, row: DecisionRow, kind: str, clicks: Clicks | None) -> str | None:
        """Return clicked positions of a decision as the log keeps them.

        Raises
        ------
        InvalidValue
            If feedback of this kind does not fit the decision.
        """
        if kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def counts(self) -> Any:
        """Return what else was counted, as JSON data."""
        return None

    def _take_counts(self, counts: Any) -> None:
        """Take over what :meth:`_counts` gave."""

    def check_mode(self, mode: str) -> None:
        """Check that the placement can be in a mode.

        Raises
        ------
        InvalidValue
            If it cannot.
        """
        if mode not in self.modes:
            raise InvalidValue("mode", mode, f"of this placement it is {', '.join(self.modes)}")
        if mode == SHADOW and self.config.shadow is None:
            raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")

    def stands(self, kind: str) -> str | None:
        """Return what the last mark of a kind says, or would say; None for kinds not known."""
        return self.mode if kind == MODE else None

    # Decide ----------------------------------------------------------------------------------

    def checked(
        self,
        key: str,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        id: str | None = None,
        deferred: bool = False,
        relevance: Rows | None = None,
        examination: Rows | None = None,
        session: str | None = None,
    ) -> Impression:
        """Return an impression that :meth:`choose` will take.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context, the session or the id does not fit.
        """
        if relevance is not None or examination is not None:
            field = "examination" if relevance is None else "relevance"
            given = examination if relevance is None else relevance
            raise InvalidValue(field, given, "leave it out: the policy reads no features")
        if arms is not None:
            arms = [self.arms[slot] for slot in self.learner.slots(arms).tolist()]
        return self._impression(key, arms, context, id, deferred, self._session(session))

    def _session(self, id: str | None) -> str | None:
        """Return a session as the log keeps it."""
        if id is None:
            return None
        if self.signals is None:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return self.signals.session(checked_id("session", id))

    def _impression(
        self,
        key: str,
        arms: Sequence[Arm] | None,
        context: Sequence[float] | None,
        id: str | None,
        deferred: bool,
        asked: str | None = None,
        given: Any = None,
    ) -> Impression:
        """Return an impression, its key, context and id checked."""
        signals = self.config.signals
        dim = self.config.context_dim if signals is None else signals.client
        if signals is not None and not dim and context is not None:
            raise InvalidValue("context", context, "leave it out: the signals are the service's")
        if (dim or context is not None) and not _fits(context, dim):
            size = f"{dim} " if dim else ""
            raise InvalidValue("context", context, f"give a list of {size}finite numbers")
        if id is not None:
            id = checked_id("decision_id", id)
        if "\0" in key:
            raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
        return Impression(checks.name("key", key), arms, context, id, deferred, asked, given)

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> list[DecisionRow]:
        """Decide; the rows get the sequence numbers from ``seq`` on.

        A decision with an id of the client's draws from that. Those that the service names draw
        one after the other from the id of the first of them, so that they can be made at once.
        """
        rows: list[DecisionRow] = []
        if self.signals is not None:
            offers = [self._offered_slots(told.arms) for told in impressions]
            impressions = self.signals.read(self.learner, impressions, offers, time)
        for together, run in groupby(impressions, lambda told: told.id is None):
            part = list(run)
            if together and self.mode == ONLINE and len(part) > 1:
                rows += self._chosen_many(part, seq + len(rows), time)
            else:
                rows += [
                    self._chosen(told, seq + len(rows) + i, time) for i, told in enumerate(part)
                ]
        if self.signals is not None:
            self.signals.decided(self.learner, rows)
        return rows

    def asked_before(self, told: Impression, row: DecisionRow) -> bool:
        """Say whether a decision answers this very impression."""
        return told.asks_for(row, row.context if self.signals is None else self.signals.given(row))

    def _chosen_many(
        self, impressions: Sequence[Impression], seq: int, time: int
    ) -> list[DecisionRow]:
        ids = self.new_ids(time, [told.key for told in impressions], seq)
        self._draws.begin(self.learner.rng, ids[0])
        decisions = list(self._choose_many(impressions))
        rows = self._rows(impressions, seq, ids, time, decisions)
        self._decided(rows, decisions, repeat(None))
        return rows

    def _chosen(self, told: Impression, seq: int, time: int) -> DecisionRow:
        id = self.new_ids(time, [told.key], seq)[0] if told.id is None else told.id
        decision = self._drawn(self.learner, self._draws, told, id)
        shown, would = decision, None
        if self.mode == APPRENTICE:
            # A baseline that is always shown has the propensity 1.
            baseline = self._baseline(told, decision)
            slots = self._slots_shown(baseline, told.arms)
            shown = decision._replace(shown=baseline, slots=slots, propensity=1.0)
            would = decision
        elif self.mode == SHADOW and self.shadow is not None:
            would = self._drawn(self.shadow, self._shadow_draws, told, id)
        (row,) = self._rows([told], seq, [id], time, [shown], would)
        shadow = None
        if self.mode == SHADOW and would is not None:
            # The second policy learns from what was shown.
            shadow = shown._replace(epoch=would.epoch, context=would.context)
        self._decided([row], [shown], [shadow])
        return row

    def _rows(
        self,
        impressions: Sequence[Impression],
        seq: int,
        ids: Sequence[str],
        time: int,
        decisions: Sequence[Decision],
        would: Decision | None = None,
    ) -> list[DecisionRow]:
        keys, arms, contexts, _, deferred, asked, _ = zip(*impressions, strict=True)
        _, _, shown, propensities, epochs, *_ = zip(*decisions, strict=True)
        columns = (
            count(seq),
            ids,
            repeat(self.id),
            repeat(self.policy_id),
            repeat(time),
            keys,
            map(_json, arms),
            [first for first, *_ in shown],
            propensities,
            epochs,
            map(_json, contexts),
            repeat(self.mode),
            repeat(would and self._would(would)),
            repeat(would and would.propensity),
            map(int, deferred),
            asked,
            map(self._also_shown, impressions, decisions, ids),
        )
        # In C: rows are made as often as anything here.
        return list(map(DecisionRow._make, zip(*columns, strict=False)))

    def _drawn(self, learner: Learner, draws: Draws, told: Impression, id: str) -> Decision:
        draws.begin(learner.rng, id)
        with self._standing(learner, told.key):
            decision = self._choose(learner, told)
        # The learner uses its array of contexts again.
        return decision._replace(context=decision.context.copy())

    @contextmanager
    def _standing(self, learner: Learner, key: str) -> Iterator[None]:
        """While frozen, leave the key's lane as it was, even by what the policy observes."""
        if self.mode != FROZEN:
            yield
            return
        policy = learner.policy
        known = key in learner.keys
        lane = learner.lane(key) if known else 0
        kept: list[Any] = []
        for (_, array), (_, one), (_, two) in zip(
            leaves(learner.state), leaves(policy.init(1)), leaves(policy.init(2)), strict=True
        ):
            of_lanes = len(one) != len(two)
            kept.append(((array if known else one)[lane] if of_lanes else array).copy())
        yield
        lane = learner.lane(key)
        for (_, array), values in zip(leaves(learner.state), kept, strict=True):
            array[lane if array.ndim > values.ndim else ...] = values

    def _decided(
        self,
        rows: Sequence[DecisionRow],
        decisions: Iterable[Decision],
        shadows: Iterable[Decision | None],
    ) -> None:
        """Open the windows of decisions made at the same time."""
        self.windows.decided_many(rows, decisions, shadows)
        self.decisions += len(rows)
        self.since_snapshot += len(rows)
        counted = [row for row in rows if not row.deferred]
        if counted:
            self._count_impressions(counted)
        # Most keys have never restarted.
        if self.series.epochs or any(row.epoch for row in counted):
            for row in counted:
                self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Sequence[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        self.series.decided_many(
            rows[0].time,
            [self._slots[row.arm] for row in rows],
            [unbiased(row) for row in rows],
            [self._offered(row) for row in rows],
        )

    # Learn -----------------------------------------------------------------------------------

    def advance(self, time: int) -> None:
        """Let time go by: learn what the windows that close by then teach."""
        self.settle()
        lessons = self.windows.advance(time)
        if lessons:
            if self.signals is not None:
                self.signals.closed(lessons)
                self.signals.settle(self.learner)
            self.outcomes[CLOSED] += len(lessons)
            learned = [lesson for lesson in lessons if self._may_learn(lesson)]
            if len(learned) < len(lessons):
                for lesson in lessons:
                    if not self._may_learn(lesson):
                        self.windows.not_learned(lesson.open)
            self._teach(learned)

    def told(self, feedback: Sequence[FeedbackRow]) -> list[str]:
        """Take in feedback for decisions of the log; return what became of each."""
        self.since_snapshot += len(feedback)
        self.feedback += [row.kind for row in feedback].count(REWARD)
        outcomes = list(map(self._told, feedback))
        self.outcomes.update(outcomes)
        return outcomes

    def _told(self, feedback: FeedbackRow) -> str:
        outcome, lesson = self.windows.told(feedback)
        if lesson is not None:
            if self.signals is not None and lesson.before is None:
                self.signals.told(lesson, feedback)
            became = self._learned(lesson)
            return outcome if became == LEARNED else became
        if feedback.kind == ACTIVATE and outcome == NOTED:
            open = self.windows.of(feedback.decision)
            assert open is not None
            self._count_impressions([open.row])
            self.series.at_epoch(open.row.time, open.row.key, open.row.epoch, open.row.context)
            if self.signals is not None:
                offer = self._offered_slots(_parsed(open.row.offered))
                self.signals.activated(self.learner, open.row, offer, feedback.time)
        return outcome

    def _learned(self, lesson: Lesson) -> str:
        if not self._may_learn(lesson):
            return NOT_LEARNING
        if not self.restarts:
            # Many are learned at once, before anything asks what was learned.
            self._lessons.append(lesson)
            return self._became(lesson)
        fresh = lesson.open.decision.epoch == self.learner.epoch(lesson.open.row.key)
        self._teach([lesson])
        return self._became(lesson) if fresh else LATE_EPOCH

    def settle(self) -> None:
        """Learn what feedback has taught since the last time."""
        lessons, self._lessons = self._lessons, []
        self._teach(lessons)
        if self.signals is not None:
            self.signals.settle(self.learner)

    def _may_learn(self, lesson: Lesson) -> bool:
        return self.mode != FROZEN != lesson.open.row.mode

    def _teach(self, lessons: Sequence[Lesson]) -> None:
        for corrects, run in groupby(lessons, lambda lesson: lesson.before is not None):
            (self._correct if corrects else self._teach_first)(list(run))

    def _correct(self, lessons: Sequence[Lesson]) -> None:
        """Put rewards that came late in the place of the defaults."""
        after = self._worths(lessons)
        before = self._worths([lesson._replace(reward=lesson.before or 0.0) for lesson in lessons])
        opens = [lesson.open for lesson in lessons]
        self.learner.correct_many([open.decision for open in opens], before, after)
        shadowed = [i for i, open in enumerate(opens) if open.shadow is not None]
        if shadowed and self.shadow is not None:
            self.shadow.correct_many(
                [opens[i].shadow for i in shadowed],
                [before[i] for i in shadowed],
                [after[i] for i in shadowed],
            )
        self._note(lessons)

    def _teach_first(self, lessons: Sequence[Lesson]) -> None:
        worths = self._worths(lessons)
        learned = [(lesson.open, worth) for lesson, worth in zip(lessons, worths, strict=True)]
        if None in worths:
            learned = [(open, worth) for open, worth in learned if worth is not None]
        _learn(self.learner, [(open.decision, worth) for open, worth in learned])
        if self.shadow is not None:
            _learn(self.shadow, [(o.shadow, worth) for o, worth in learned if o.shadow is not None])
        self._note(lessons)

    def _note(self, lessons: Sequence[Lesson]) -> None:
        """Count what came back for decisions, in place of what was counted before."""
        came = [(open.row, reward, before or 0.0) for open, reward, before in lessons]
        came = [one for one in came if one[1] or one[2]]
        if came:
            self.series.rewarded_many(
                [row.time for row, _, _ in came],
                [unbiased(row) for row, _, _ in came],
                [self._offered(row) for row, _, _ in came],
                [reward for _, reward, _ in came],
                [before for _, _, before in came],
            )

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark."""
        if mark.placement != self.id:
            return
        if mark.kind == MODE:
            self.mode = mark.value
        elif mark.kind == MERGE:
            self.since_snapshot += 1
            if self.shared is not None and self.mode != FROZEN:
                self.shared.take(self.learner, msgspec.json.decode(mark.value, type=Learned))

    # The fold --------------------------------------------------------------------------------

    def recall(self, rows: Sequence[DecisionRow]) -> None:
        """Take in decisions from the log, made by the same moment."""
        if self.signals is not None:
            offers = [self._offered_slots(_parsed(row.offered)) for row in rows]
            self.signals.recall(self.learner, rows, offers)
        if self.restarts or rows[0].mode in (FROZEN, SHADOW):
            for row in rows:
                self._recall_one(row)
            return
        decisions = [_read_by(self.learner, self._decision(row, row.epoch)) for row in rows]
        self.learner.recall(decisions)
        self._decided(rows, decisions, repeat(None))

    def _recall_one(self, row: DecisionRow) -> None:
        """Take in a decision in whose epoch this fold may differ from the one that made it."""
        decision = self._recalled(self.learner, row)
        shadow = None
        if row.mode == SHADOW and self.shadow is not None and self._fits_shadow(row):
            shadow = self._recalled(self.shadow, row)
        self._decided([row], [decision], [shadow])

    def _recalled(self, learner: Learner, row: DecisionRow) -> Decision:
        decision = _read_by(learner, self._decision(row, row.epoch))
        with self._standing(learner, row.key):
            learner.recall([decision])
        return decision._replace(epoch=learner.epoch(row.key))

    def _fits_shadow(self, row: DecisionRow) -> bool:
        """Say whether the second policy can read a context, which may be older than that."""
        dim = 0 if self.shadow is None else self.shadow.policy.context_dim
        return dim == 0 or len(_parsed(row.context) or ()) == dim

    def _decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a decision, the same live and from the log."""
        names = _parsed(row.offered)
        context = NOTHING
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        shown = self.shown(row)
        offered, slots = self._offered_slots(names), self._slots_shown(shown, names)
        return Decision(row.seq, row.key, shown, row.propensity, epoch, offered, slots, context)

    def _offered(self, row: DecisionRow) -> int:
        return len(self._slots) if row.offered is None else len(json.loads(row.offered))

    # Snapshots -------------------------------------------------------------------------------

    def draft(self, seq: int, time: int) -> Draft:
        """Return what was learned from the log up to ``seq``, which is all of it.

        It is a copy, so that it can be encoded while more is learned.
        """
        self._held = len(self.learner) + len(self.windows)
        saved = _Saved(
            self.windows.time,
            self.mode,
            self.decisions,
            self.feedback,
            dict(self.outcomes),
            self.windows.saved(),
            self.counts(),
            None if self.signals is None else self.signals.saved(self.learner),
            self.windows.saved_defaults(),
            self.shared and self.shared.saved(),
        )
        learners = {"learner": self._frozen(self.learner)}
        if self.shadow is not None:
            learners["shadow"] = self._frozen(self.shadow)
        rest = {"series": self.series.to_bytes(), "windows": msgspec.json.encode(saved)}
        return Draft(self.id, seq, time, self.plan, _pieces(learners, rest))

    def _frozen(self, learner: Learner) -> Frozen:
        # Where the generator stands is no part of what was learned.
        self._draws.begin(learner.rng, "")
        return frozen(learner)

    def _rest_on(self, base: Snapshot | None) -> None:
        """Begin where the log begins."""
        if base is None:
            return
        try:
            self._take(base)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            raise StoreError(
                f"store: placement {self.name}: what it had learned from rows that were dropped "
                f"is damaged: {error}; restore a backup"
            ) from error
        if json.loads(base.plan)["shadow"] != json.loads(self.plan)["shadow"]:
            self._shadow_anew()

    def _shadow_anew(self) -> None:
        """Let a second policy that was not there before begin with nothing learned."""
        config = self.config
        self.shadow = None
        if config.shadow is not None:
            self.shadow = Learner(config.shadow, self.seed, propensities=config.propensities)
        self.windows.forget_shadow()

    def _restored(self, snapshot: Snapshot) -> bool:
        """Begin at a snapshot; say whether it could be used."""
        if snapshot.plan != self.plan:
            logger.warning(
                "placement %s: the attribution rule, the shadow policy or the propensities were "
                "changed; folding anew what the log holds",
                self.name,
            )
            return False
        try:
            self._take(snapshot)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            logger.warning(
                "snapshot of placement %s: %s; replaying the whole log instead", self.name, error
            )
            self._begin()
            return False
        return True

    def _take(self, snapshot: Snapshot) -> None:
        saved = msgspec.json.decode(snapshot.windows, type=_Saved)
        self.learner = from_bytes(snapshot.learner, f"snapshot of placement {self.name}")
        if snapshot.shadow is not None:
            self.shadow = from_bytes(snapshot.shadow, f"snapshot of the shadow of {self.name}")
        self.series = Series.from_bytes(snapshot.series)
        self.mode, self.decisions, self.feedback = saved.mode, saved.decisions, saved.feedback
        self.outcomes = Counter(saved.outcomes)
        self.windows.advance(saved.time)
        self._take_counts(saved.counts)
        if self.shared is not None:
            self.shared.restore(saved.shared)
        same = json.loads(snapshot.plan).get("signals") == json.loads(self.plan).get("signals")
        if self.signals is not None and saved.signals is not None and same:
            # Of other signals, the base of a log says nothing: they begin there.
            self.signals.stream.restore(saved.signals)
        for open in saved.open:
            self.windows.restore(self._reopened(*open))
        for open in saved.defaults:
            self.windows.keep_default(self._reopened(*open))
        self.covered, self.snapshot_time = snapshot.seq, snapshot.time
        self._held = len(self.learner) + len(saved.open)

    def _reopened(
        self, row: Sequence[Any], deadline: int, active: bool, reward: Any, examined: bool,
        settled: bool, told: int, ids: Any, epoch: int, shadow_epoch: int | None,
    ) -> Open:  # fmt: skip
        """Return an open decision as a snapshot has it."""
        made = DecisionRow(*row)
        decision, shadow = _read_by(self.learner, self._decision(made, epoch)), None
        if shadow_epoch is not None and self.shadow is not None:
            shadow = _read_by(self.shadow, self._decision(made, shadow_epoch))
        ids = ids and {id: tuple(content) for id, content in ids.items()}
        return Open(made, decision, shadow, deadline, active, reward, examined, settled, told, ids)


def _new_ids(time: int, keys: Sequence[str], place: int) -> list[str]:
    return decision_ids(time, len(keys))


def checked_id(field: str, id: str) -> str:
    """Return an id that a client gave.

    Raises
    ------
    InvalidValue
        If it is empty, too long, or holds what cannot be stored or printed.
    """
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InvalidValue(field, id, f"give 1 to {LONGEST_ID} printable characters")
    return id


def clicked_positions(clicks: Clicks, items: Sequence[Arm]) -> str:
    """Return clicked positions in a list of items as the log keeps them.

    Raises
    ------
    InvalidValue
        If a position or an item is not in the list.

    Examples
    --------
    >>> clicked_positions(Clicks(items=["c", "a"]), ["a", "b", "c"])
    '[0,2]'
    """
    positions = {
        checks.integer(f"clicks[{i}]", position, 0, len(items) - 1)
        for i, position in enumerate(clicks.positions or ())
    }
    places = {item: place for place, item in enumerate(items)}
    for i, item in enumerate(clicks.items or ()):
        if item not in places:
            raise InvalidValue(f"items[{i}]", item, f"the list that was shown is {list(items)}")
        positions.add(places[item])
    return msgspec.json.encode(sorted(positions)).decode()


def _read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)


def _pieces(learners: dict[str, Frozen], rest: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for field, learner in learners.items():
        for piece in pieces(learner):
            yield field, piece
    yield from rest.items()


def _fits(context: Any, dim: int) -> bool:
    """Say whether a context is ``dim`` finite numbers; any count will do for 0."""
    return (
        isinstance(context, Sequence)
        and len(context) == (dim or len(context))
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )


def _learn(learner: Learner, lessons: Sequence[tuple[Decision, Any]]) -> None:
    if lessons:
        learner.learn_many([decision for decision, _ in lessons], [worth for _, worth in lessons])


def unbiased(row: DecisionRow) -> float | None:
    """Return the propensity by which a decision may be weighed."""
    # What a fixed baseline earned says nothing about uniform exploration.
    return None if row.mode == APPRENTICE else row.propensity


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    return None if values is None else msgspec.json.encode(values).decode()


# Opening -------------------------------------------------------------------------------------


def opened(
    name: str, config: PlacementConfig, store: Store, new_seed: int, *, snapshot: bool = True
) -> Placement:
    """Return a placement at its latest snapshot, made in the store if it is new.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    StoreError
        If the store fails, or what the log begins with is damaged.
    """
    spec = json.dumps(policy_to_spec(config.policy))
    stored = store.placement(name, spec, new_seed if config.seed is None else config.seed)
    checked_stored(name, config, stored)
    latest = store.snapshot(stored.id) if snapshot else None
    return placement_class(config.kind)(name, config, stored, latest, store.base(stored.id))


def checked_stored(name: str, config: PlacementConfig, stored: StoredPlacement) -> None:
    """Check that a placement fits what the store has of it.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_spec(json.loads(stored.spec))
    if before != config.policy:
        raise ConfigError(
            f"placements.{name}.policy: the store holds what {before} learned, which is not for "
            f"{config.policy}; set it back, or give the placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )


def placement_class(kind: str) -> type[Placement]:
    """Return the class of the placements of a kind."""
    if kind == DUELS:
        from tacit.service.duels import DuelPlacement

        return DuelPlacement
    if kind == FEATURES:
        from tacit.service.features import FeaturePlacement

        return FeaturePlacement
    if kind == PERSONALIZER:
        from tacit.service.personalizer.placement import PersonalizerPlacement

        return PersonalizerPlacement
    if kind == SLATES:
        from tacit.service.slates import SlatePlacement

        return SlatePlacement
    return Placement


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Take in, per placement, what the log holds after its snapshot; then let time go by to its
    end."""
    if not placements:
        return
    end = store.end()
    behind = min(placement.covered for placement in placements.values())
    take_in(placements, store.events(behind))
    for placement in placements.values():
        placement.advance(end.time)
        placement.settle()


def take_in(placements: Mapping[int, Placement], events: Iterable[Event]) -> None:
    """Take in a stretch of the log, by placements of these ids."""
    for kind, run in groupby(events, key=_kind):
        for rows in _chunks(run):
            _take_in(placements, kind, rows)


def _take_in(
    placements: Mapping[int, Placement], kind: tuple[Any, ...], rows: Sequence[Any]
) -> None:
    _, id, time = kind[:3]
    if id is None:
        concerned = list(placements.values())
    else:
        concerned = [placements[id]] if id in placements else []
    for placement in concerned:
        fresh = [row for row in rows if row.seq > placement.covered]
        if not fresh:
            continue
        placement.advance(time)
        if isinstance(fresh[0], DecisionRow):
            placement.recall(fresh)
        elif isinstance(fresh[0], FeedbackRow):
            placement.told(fresh)
        else:
            for row in fresh:
                placement.marked(row)


def _kind(event: Event) -> tuple[Any, ...]:
    mode = event.mode if isinstance(event, DecisionRow) else None
    return type(event), event.placement, event.time, mode


def _chunks(run: Iterable[Event]) -> Iterator[list[Any]]:
    while rows := list(islice(run, FOLD_ROWS)):
        yield rows
