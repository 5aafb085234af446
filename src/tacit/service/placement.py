"""One placement: its learner, its windows and its series, all a fold over its part of the log."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import filterfalse, groupby, islice
from typing import Any, ClassVar

import msgspec
import numpy as np

from tacit import checks
from tacit.arrays import Booleans, Ints
from tacit.decisions import NOTHING, Arm, Decision, Decisions, none_for_nan
from tacit.errors import InvalidValue, TacitError
from tacit.learner import Learner
from tacit.policies import Policy, policy_to_spec
from tacit.service.attribution import FROZEN as NOT_LEARNING
from tacit.service.attribution import LATE_EPOCH, NOTED, Attribution, Lessons
from tacit.service.blocks import Block, distinct
from tacit.service.config import PlacementConfig
from tacit.service.draws import Draws
from tacit.service.errors import StoreError
from tacit.service.ids import decision_ids
from tacit.service.impressions import Clicks, Impression, as_json, checked_id
from tacit.service.kept import Kept
from tacit.service.rows import (
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
    FeedbackRow,
    MarkRow,
)
from tacit.service.series import Series
from tacit.service.sharing import Told as Learned
from tacit.service.sharing import shared_of
from tacit.service.signals import PlacementSignals
from tacit.service.store import Draft, Snapshot, StoredPlacement
from tacit.snapshot import Frozen, from_bytes, frozen, pieces
from tacit.state import leaves

CLOSED = "window-closed"
OPEN_AT_ONCE = 500
NOTHING_OPEN = b'"defaults":[],"open":[]}'

Rows = Sequence[Sequence[float]]
"""Features: a row for each arm."""

logger = logging.getLogger(__name__)


class _Saved(msgspec.Struct):
    time: int
    mode: str
    decisions: int
    feedback: int
    outcomes: dict[str, int]
    counts: Any = None
    signals: bytes | None = None
    shared: Any = None
    # The last ones, so that they can be written bit by bit.
    defaults: list[tuple[Any, ...]] = []
    open: list[tuple[Any, ...]] = []


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
    shows_one: ClassVar[bool] = True
    """Whether a decision shows one arm, so that a reward fits it."""

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
        self._plain = bool(self._slots) and not any(config.policy.feature_dims)
        self._told_dim = config.context_dim if config.signals is None else config.signals.client
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
        self._kept = Kept(self.learner)
        self._shadow_kept = None if self.shadow is None else Kept(self.shadow)
        # Slots of decisions that the second policy knows, and of those made while frozen.
        self._shadowed: set[int] = set()
        self._unlearned: set[int] = set()
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self.mode = ONLINE
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.covered = self._held = 0

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
        return len(self.learner)

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

    def _choose_many(self, asked: Block[Impression]) -> Sequence[Decision]:
        arms = asked.column("arms")
        return self.learner.choose_many(
            asked.column("key"),
            asked.column("context") if self.config.policy.context_dim else None,
            None if arms.count(None) == len(arms) else arms,
        )

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        """Return what the mode ``apprentice`` shows."""
        return (self.arms[int(decision.offered[0])],)

    def _would(self, decision: Decision) -> Arm:
        """Return what would have been shown, as the log keeps it."""
        return decision.arm

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

    def _worths(self, lessons: Lessons) -> list[Any]:
        """Return what the learner is told for what came back; None for nothing."""
        return self._scaled(lessons.rewards)

    def _scaled(self, rewards: list[float]) -> list[float]:
        lowest = self.config.rule.lowest
        if not lowest:
            return rewards
        return [(reward - lowest) / (1.0 - lowest) for reward in rewards]

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

    def checked_keys(self, keys: Sequence[str]) -> Block[Impression]:
        """Return impressions of which nothing is said but their keys; as :meth:`checked`.

        Raises
        ------
        InvalidValue
            As :meth:`checked`.
        """
        if not self.shows_one or not self._plain or self._told_dim:
            return Block.of(Impression, list(map(self.checked, keys)))
        for key in filterfalse(self.learner.__contains__, keys):
            _checked_key(key)
        count = len(keys)
        blank: tuple[list[Any], ...] = [None] * count, [None] * count, [None] * count
        columns = list(keys), *blank, [False] * count, [None] * count, [None] * count
        return Block(Impression, columns)

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
        dim = self._told_dim
        if self.signals is not None and not dim and context is not None:
            raise InvalidValue("context", context, "leave it out: the signals are the service's")
        if (dim or context is not None) and not _fits(context, dim):
            size = f"{dim} " if dim else ""
            raise InvalidValue("context", context, f"give a list of {size}finite numbers")
        if id is not None:
            id = checked_id("decision_id", id)
        return Impression(_checked_key(key), arms, context, id, deferred, asked, given)

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide; the rows get the sequence numbers from ``seq`` on.

        A decision with an id of the client's draws from that. Those that the service names draw
        one after the other from the id of the first of them, so that they can be made at once.
        """
        asked: Block[Impression] = Block.of(Impression, impressions)
        if self.signals is not None:
            offers = list(map(self._offered_slots, asked.column("arms")))
            read = self.signals.read(self.learner, asked, offers, time)
            asked = Block.of(Impression, read)
        rows = Block.joined(DecisionRow, list(self._in_parts(asked, seq, time)))
        if self.signals is not None:
            self.signals.decided(self.learner, rows)
        return rows

    def _in_parts(
        self, asked: Block[Impression], seq: int, time: int
    ) -> Iterator[Block[DecisionRow]]:
        ids = asked.column("id")
        if ids.count(None) == len(ids) > 1 and self.mode == ONLINE:
            yield self._chosen_many(asked, seq, time)
            return
        start = 0
        for unnamed, run in groupby(ids, lambda id: id is None):
            stop = start + len(list(run))
            if unnamed and self.mode == ONLINE and stop > start + 1:
                yield self._chosen_many(asked[start:stop], seq + start, time)
            else:
                for i in range(start, stop):
                    yield self._chosen(asked[i], seq + i, time)
            start = stop

    def asked_before(self, told: Impression, row: DecisionRow) -> bool:
        """Say whether a decision answers this very impression."""
        return told.asks_for(row, row.context if self.signals is None else self.signals.given(row))

    def _chosen_many(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        ids = self.new_ids(time, asked.column("key"), seq)
        self._draws.begin(self.learner.rng, ids[0])
        decisions = self._choose_many(asked)
        rows = self._rows(asked, seq, ids, time, decisions)
        self._decided(rows, decisions)
        return rows

    def _chosen(self, told: Impression, seq: int, time: int) -> Block[DecisionRow]:
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
        row = self._rows(Block.of(Impression, [told]), seq, [id], time, [shown], would)
        shadow = None
        if self.mode == SHADOW and would is not None:
            # The second policy learns from what was shown.
            shadow = shown._replace(epoch=would.epoch, context=would.context)
        self._decided(row, [shown], shadow)
        return row

    def _rows(
        self,
        asked: Block[Impression],
        seq: int,
        ids: list[str],
        time: int,
        decisions: Sequence[Decision],
        would: Decision | None = None,
    ) -> Block[DecisionRow]:
        keys, arms, contexts, _, deferred, told, _ = asked.columns
        count = len(keys)
        if isinstance(decisions, Decisions):
            shown, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = none_for_nan(decisions.propensities)
        else:
            shown = [decision.arm for decision in decisions]
            epochs = [decision.epoch for decision in decisions]
            propensities = [decision.propensity for decision in decisions]
        columns = (
            list(range(seq, seq + count)),
            ids,
            [self.id] * count,
            [self.policy_id] * count,
            [time] * count,
            keys,
            _as_json(arms),
            shown,
            propensities,
            epochs,
            _as_json(contexts),
            [self.mode] * count,
            [would and self._would(would)] * count,
            [would and would.propensity] * count,
            list(map(int, deferred)),
            told,
            self._all_shown(asked, decisions, ids),
        )
        return Block(DecisionRow, columns)

    def _all_shown(
        self, asked: Block[Impression], decisions: Sequence[Decision], ids: Sequence[str]
    ) -> list[str | None]:
        """Return what was shown, as the log keeps it where one arm does not say it."""
        return [None] * len(ids)

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
        known = key in learner
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
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        shadow: Decision | None = None,
    ) -> None:
        """Open the windows of decisions made at the same time.

        Where the second policy is to learn from it too, there is one decision.
        """
        slots = self.windows.decided(rows)
        self._keep(slots, rows, decisions, shadow)
        self.decisions += len(rows)
        self.since_snapshot += len(rows)
        deferred = rows.column("deferred")
        counted = rows
        if any(deferred):
            counted = rows.those([i for i, waits in enumerate(deferred) if not waits])
        self._count(counted)

    def _keep(
        self,
        slots: Ints,
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        shadow: Decision | None,
    ) -> None:
        self._kept.keep(slots, decisions, plain=self._offers_all(rows))
        for some in filter(None, (self._shadowed, self._unlearned)):
            some.difference_update(slots.tolist())
        if FROZEN in (modes := rows.column("mode")):
            pairs = zip(slots.tolist(), modes, strict=True)
            self._unlearned.update(slot for slot, mode in pairs if mode == FROZEN)
        if shadow is not None:
            self._keep_shadow(slots, rows, shadow)

    def _keep_shadow(self, slots: Ints, rows: Block[DecisionRow], shadow: Decision) -> None:
        if self._shadow_kept is not None:
            self._shadow_kept.keep(slots, [shadow], plain=self._offers_all(rows))
            self._shadowed.update(slots.tolist())

    def _offers_all(self, rows: Block[DecisionRow]) -> bool:
        """Say whether each decision could choose among all arms, without features."""
        return self._plain and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that they show."""
        if not len(rows):
            return
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        self.series.decided_many(
            rows.column("time")[0],
            list(map(self._slots.__getitem__, rows.column("arm"))),
            self._weighable(rows),
            self._offer_sizes(rows),
        )

    @staticmethod
    def _weighable(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities by which decisions of one mode may be weighed."""
        # What a fixed baseline earned says nothing about uniform exploration.
        if rows.column("mode")[0] == APPRENTICE:
            return [None] * len(rows)
        return rows.column("propensity")

    def _offer_sizes(self, rows: Block[DecisionRow]) -> list[int]:
        """Return how many arms were on offer."""
        if not any(rows.column("offered")):
            return [len(self._slots)] * len(rows)
        return list(map(self._offered, rows))

    # Learn -----------------------------------------------------------------------------------

    def advance(self, time: int) -> None:
        """Let time go by: learn what the windows that close by then teach."""
        lessons = self.windows.advance(time)
        if not lessons.rewards:
            return
        if self.signals is not None:
            keys = self.windows.values(lessons.slots, "key")
            ends = list(map(self.windows.deadline, lessons.slots.tolist()))
            self.signals.answered(self.learner, keys, ends, self.windows.clicked(lessons.slots))
        self.outcomes[CLOSED] += len(lessons.rewards)
        learned = self._learnable(lessons)
        if len(learned.rewards) < len(lessons.rewards):
            left = np.setdiff1d(lessons.slots, learned.slots)
            self.windows.not_learned(left)
        self._teach(learned)

    def told(self, feedback: Block[FeedbackRow], slots: Ints | None = None) -> list[str]:
        """Take in feedback of one moment for decisions of the log; return what became of each.

        Parameters
        ----------
        feedback : Block
        slots : array of int64, optional
            Of the decisions, where they are known to be open, and none comes twice.
        """
        self.since_snapshot += len(feedback)
        self.feedback += feedback.column("kind").count(REWARD)
        outcomes: list[str] = []
        if slots is not None:
            outcomes += self._told(feedback, slots)
        else:
            for part in distinct(feedback, "decision"):
                outcomes += self._told(part)
        self.outcomes.update(outcomes)
        return outcomes

    def _told(self, feedback: Block[FeedbackRow], slots: Ints | None = None) -> list[str]:
        outcomes, parts = self.windows.told(feedback, slots)
        if NOTED in outcomes:
            self._activated(feedback, outcomes)
        time = feedback.column("time")[0]
        for lessons in parts:
            if self.signals is not None and lessons.before is None:
                keys = self.windows.values(lessons.slots, "key")
                clicked = self.windows.clicked(lessons.slots)
                self.signals.answered(self.learner, keys, [time] * len(keys), clicked)
            self._learned(lessons, outcomes)
        return outcomes

    def _activated(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Count the decisions that were activated."""
        columns = (feedback.column(field) for field in ("kind", "decision", "time"))
        for kind, seq, time, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED:
                row = self.windows.of(seq)
                self._count(Block.of(DecisionRow, [row]))
                if self.signals is not None:
                    offer = self._offered_slots(_parsed(row.offered))
                    self.signals.activated(self.learner, row, offer, time)

    def _learned(self, lessons: Lessons, outcomes: list[str]) -> None:
        """Learn what feedback taught; where that was something else, say so."""
        learned = self._learnable(lessons)
        if len(learned.rewards) < len(lessons.rewards):
            for place in set(lessons.places).difference(learned.places):
                outcomes[place] = NOT_LEARNING
        fresh = self._teach(learned)
        self._name(learned, outcomes)
        if self.restarts and lessons.before is None:
            for place, taught in zip(learned.places, fresh.tolist(), strict=True):
                if not taught:
                    outcomes[place] = LATE_EPOCH

    def _name(self, lessons: Lessons, outcomes: list[str]) -> None:
        """Name what became of feedback that was learned at once, where a kind knows better."""

    def _learnable(self, lessons: Lessons) -> Lessons:
        """Return those lessons that are to be learned: nothing while frozen, or shown so."""
        if self.mode == FROZEN:
            return lessons.those([])
        if not self._unlearned:
            return lessons
        slots = lessons.slots.tolist()
        return lessons.those([i for i, slot in enumerate(slots) if slot not in self._unlearned])

    def _teach(self, lessons: Lessons) -> Booleans:
        """Learn; say of each lesson whether its decision was of the key's present epoch."""
        if not lessons.rewards:
            return np.zeros(0, np.bool_)
        worths = self._worths(lessons)
        told = [i for i, worth in enumerate(worths) if worth is not None]
        fresh = np.ones(len(worths), np.bool_)
        slots = lessons.slots
        if len(told) < len(worths):
            slots, worths = slots[told], [worths[i] for i in told]
        before = None if lessons.before is None else self._scaled([lessons.before] * len(worths))
        if told:
            fresh[told] = self._taught(self.learner, self._kept, slots, worths, before)
        shadowed = [i for i, slot in enumerate(slots.tolist()) if slot in self._shadowed]
        if shadowed and self.shadow is not None and self._shadow_kept is not None:
            some = [worths[i] for i in shadowed]
            old = before and before[: len(some)]
            self._taught(self.shadow, self._shadow_kept, slots[shadowed], some, old)
        self._note(lessons)
        return fresh

    @staticmethod
    def _taught(
        learner: Learner, kept: Kept, slots: Ints, worths: list[Any], before: list[float] | None
    ) -> Any:
        """Teach a learner, or put rewards that came late in the place of the defaults."""
        decisions = kept.decisions(slots)
        if before is not None:
            learner.correct_many(decisions, before, worths)
            return True
        return learner.learn_each(decisions, worths)

    def _note(self, lessons: Lessons) -> None:
        """Count what came back for decisions, in place of what was counted before."""
        before = lessons.before or 0.0
        came = [i for i, reward in enumerate(lessons.rewards) if reward or before]
        if came:
            slots = lessons.slots[came]
            self.series.rewarded_many(
                self.windows.values(slots, "time"),
                self._propensities(slots),
                self._sizes(slots),
                [lessons.rewards[i] for i in came],
                [before] * len(came),
            )

    def _propensities(self, slots: Ints) -> list[float | None]:
        """Return the propensities by which open decisions may be weighed."""
        propensities = self.windows.values(slots, "propensity")
        modes = self.windows.values(slots, "mode")
        if APPRENTICE not in modes:
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode == APPRENTICE else value for value, mode in pairs]

    def _sizes(self, slots: Ints) -> list[int]:
        """Return how many arms open decisions could choose among."""
        if self._plain and not any(self.windows.values(slots, "offered")):
            return [len(self._slots)] * len(slots)
        return list(map(self._offered, self.windows.rows(slots)))

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

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Take in decisions from the log, made by the same moment in the same mode."""
        if self.signals is not None:
            offers = [self._offered_slots(_parsed(offered)) for offered in rows.column("offered")]
            self.signals.recall(self.learner, rows, offers)
        if self.restarts or rows.column("mode")[0] in (FROZEN, SHADOW):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        decisions = self._recalled_many(rows, rows.column("epoch"))
        self.learner.recall(decisions)
        self._decided(rows, decisions)

    def _recalled_many(self, rows: Block[DecisionRow], epochs: Sequence[int]) -> Sequence[Decision]:
        """Return the learner's form of decisions of the log."""
        learner = self.learner
        if not self._offers_all(rows):
            made = map(self._decision, rows, epochs)
            return [_read_by(learner, decision) for decision in made]
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return learner.columns(
            learner.impressions(learner.lanes(rows.column("key")), contexts),
            self._actions(rows),
            np.array(epochs, np.int64),
            # NumPy takes None for NaN.
            np.array(rows.column("propensity"), np.float64),
        )

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return what decisions showed, as the slots of arms."""
        slots = list(map(self._slots.__getitem__, rows.column("arm")))
        return np.array(slots, np.int64).reshape(-1, 1)

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Take in a decision in whose epoch this fold may differ from the one that made it."""
        row = rows[0]
        decision = self._recalled(self.learner, row)
        shadow = None
        if row.mode == SHADOW and self.shadow is not None and self._fits_shadow(row):
            shadow = self._recalled(self.shadow, row)
        self._decided(rows, [decision], shadow)

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
            self.counts(),
            None if self.signals is None else self.signals.saved(self.learner),
            self.shared and self.shared.saved(),
        )
        known = (self.windows.saved_defaults(self._epochs), self.windows.saved(self._epochs))
        learners = {"learner": self._frozen(self.learner)}
        if self.shadow is not None:
            learners["shadow"] = self._frozen(self.shadow)
        series = self.series.to_bytes()
        return Draft(self.id, seq, time, self.plan, _pieces(learners, series, saved, known))

    def open_windows(self) -> list[Any]:
        """Return the open decisions as what JSON can hold, in the order of their windows."""
        return list(self.windows.saved(self._epochs))

    def _epochs(self, slots: Ints) -> tuple[list[int], list[int | None]]:
        """Return the epochs of open decisions, as either policy counts them."""
        shadows: list[int | None] = [None] * len(slots)
        for i, slot in enumerate(slots.tolist() if self._shadowed else ()):
            if slot in self._shadowed and self._shadow_kept is not None:
                (shadows[i],) = self._shadow_kept.epochs(slots[i : i + 1])
        return self._kept.epochs(slots), shadows

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
        self._shadow_kept = None if self.shadow is None else Kept(self.shadow)
        self._shadowed.clear()

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
        self._kept = Kept(self.learner)
        self._shadow_kept = None if self.shadow is None else Kept(self.shadow)
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
        self._reopen(saved.open, defaulted=False)
        self._reopen(saved.defaults, defaulted=True)
        self.covered, self.snapshot_time = snapshot.seq, snapshot.time
        self._held = len(self.learner) + len(saved.open)

    def _reopen(self, saved: Sequence[tuple[Any, ...]], *, defaulted: bool) -> None:
        """Take over open decisions as a snapshot has them."""
        if not saved:
            return
        slots = self.windows.restore(saved, defaulted=defaulted)
        rows: Block[DecisionRow] = Block.of(DecisionRow, self.windows.rows(slots))
        *_, epochs, shadow_epochs = zip(*saved, strict=True)
        self._keep(slots, rows, self._recalled_many(rows, epochs), None)
        for i, epoch in enumerate(shadow_epochs):
            if epoch is not None and self.shadow is not None:
                shadow = _read_by(self.shadow, self._decision(rows[i], epoch))
                self._keep_shadow(slots[i : i + 1], rows[i : i + 1], shadow)


def _new_ids(time: int, keys: Sequence[str], place: int) -> list[str]:
    return decision_ids(time, len(keys))


def _checked_key(key: str) -> str:
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _as_json(values: list[Any]) -> list[str | None]:
    """Return lists as the log keeps them; most often there is none."""
    return values if values.count(None) == len(values) else list(map(as_json, values))


def _read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)


def _pieces(
    learners: dict[str, Frozen],
    series: bytes,
    saved: _Saved,
    known: tuple[Iterator[tuple[Any, ...]], ...],
) -> Iterator[tuple[str, bytes]]:
    """Give the fields of a snapshot bit by bit; encoding one holds up everything else."""
    for field, learner in learners.items():
        for piece in pieces(learner):
            yield field, piece
    yield "series", series
    head = msgspec.json.encode(saved)
    assert head.endswith(NOTHING_OPEN)
    yield "windows", head.removesuffix(NOTHING_OPEN)
    for name, opens in zip((b'"defaults":[', b'],"open":['), known, strict=True):
        between = name
        while some := list(islice(opens, OPEN_AT_ONCE)):
            yield "windows", between + msgspec.json.encode(some)[1:-1]
            between = b","
        if between is name:
            yield "windows", name
    yield "windows", b"]}"


def _fits(context: Any, dim: int) -> bool:
    """Say whether a context is ``dim`` finite numbers; any count will do for 0."""
    return (
        isinstance(context, Sequence)
        and len(context) == (dim or len(context))
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )


def unbiased(row: DecisionRow) -> float | None:
    """Return the propensity by which a decision may be weighed."""
    # What a fixed baseline earned says nothing about uniform exploration.
    return None if row.mode == APPRENTICE else row.propensity


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)
