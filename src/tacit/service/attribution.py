"""Which reward a decision earned: a pure function of the log.

The log holds what happened: decisions, rewards, examinations, activations, each with its time. A
rule says what they mean. Time itself comes from the log: a window closes when a row is logged at
or after its end, so folding the same rows gives the same state, whatever the clock said.

Open decisions are columns, each in a slot of its own (:mod:`tacit.windows`): nothing is made for
one of them alone.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np

from tacit import windows as codes
from tacit.arrays import Ints
from tacit.decisions import none_for_nan
from tacit.service.blocks import Block
from tacit.service.open_rows import OpenRows
from tacit.service.rows import ACTIVATE, CLICKS, EXAMINED, REWARD, DecisionRow, FeedbackRow
from tacit.state import copied_into
from tacit.windows import LISTED, OPEN, Feedback, Terms, Windows, entries

Aggregation = Literal["first", "last", "sum", "max"]
ClickAggregation = Literal["union", "first", "last"]

LEARNED = "learned"
PENDING = "pending"
REPEATED = "repeated"
LATE = "late"
LATE_EPOCH = "late-epoch"
CORRECTED = "corrected"
INACTIVE = "inactive"
FROZEN = "frozen"
NOTED = "noted"
TIED = "tied"
DUPLICATE = "duplicate"

OUTCOMES = {
    LEARNED: "it taught the policy",
    PENDING: "it counts, and is learned when the decision's window closes",
    REPEATED: "the decision had its reward already: recorded only",
    LATE: "it came after the decision's window: recorded only",
    CORRECTED: "it came after the window, and took the place of the default",
    LATE_EPOCH: "the key has restarted since the decision: recorded only",
    INACTIVE: "the decision was deferred and not activated: recorded only",
    FROZEN: "the placement does not learn at present: recorded only",
    NOTED: "an examination or activation, taken in",
    TIED: "the duel was a tie, from which nothing is learned here: recorded only",
    DUPLICATE: "this very feedback was recorded before: nothing was done",
}
"""What became of feedback."""


class Rule(msgspec.Struct, frozen=True):
    """How rewards are attributed to decisions.

    Attributes
    ----------
    window : int
        Microseconds from a decision (from its activation, if it was deferred) in which feedback
        counts.
    default : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum``
        (at most 1, at least ``lowest``), or the ``max``; where clicks are told by their
        positions, the ``union``.
    seen : str
        Which decisions without a reward earn the default: all that were ``decided``, or only those
        ``examined``; the others teach nothing.
    late : str
        What a reward after the window does: ``record``, or ``correct`` the default, if it is the
        first one.
    correction : int
        Microseconds after the end of a window in which it may be corrected.
    activation : int
        Microseconds in which a deferred decision must be activated; else it never counts.
    name : str
    version : int
        Of the meaning of all this.
    lowest : float
        The least reward, in [−1, 0]. A reward r is learned as (r − lowest)/(1 − lowest).
    """

    window: int = 30_000_000
    default: float = 0.0
    aggregation: Aggregation | ClickAggregation = "first"
    seen: Literal["decided", "examined"] = "decided"
    late: Literal["record", "correct"] = "record"
    activation: int = 3_600_000_000
    correction: int = 3_600_000_000
    name: str = "window"
    version: int = 1
    lowest: float = 0.0


Content = tuple[str, float | None, str | None]
"""What feedback says: its kind, its reward, its clicks."""

Beside = Callable[[Ints], Iterable[Iterable[Any]]]
"""Returns columns of what is known elsewhere of decisions, by their slots."""

KINDS = {
    REWARD: codes.REWARD,
    CLICKS: codes.CLICKS,
    EXAMINED: codes.EXAMINED,
    ACTIVATE: codes.ACTIVATE,
}
AGGREGATIONS = {
    "first": codes.FIRST,
    "last": codes.LAST,
    "sum": codes.SUM,
    "max": codes.MAX,
}
_BECAME = {
    codes.LEARNED: LEARNED,
    codes.PENDING: PENDING,
    codes.REPEATED: REPEATED,
    codes.LATE: LATE,
    codes.CORRECTED: CORRECTED,
    codes.INACTIVE: INACTIVE,
    codes.NOTED: NOTED,
}
SPARE_SLOTS = 256


class Lessons(NamedTuple):
    """Decisions and the rewards that they earned.

    Attributes
    ----------
    slots : array of int64
        Of the decisions; theirs until the next ones are decided.
    rewards : list
        A number for each, or the clicked positions.
    before : float or None
        What was learned for them before, and is to be taken out.
    places : list of int
        Which rows of the feedback taught this; empty where windows have closed.
    """

    slots: Ints
    rewards: list[Any]
    before: float | None = None
    places: Sequence[int] = ()

    def those(self, places: Sequence[int]) -> Lessons:
        """Return some of them."""
        return Lessons(
            self.slots[places],
            [self.rewards[i] for i in places],
            self.before,
            [self.places[i] for i in places] if self.places else (),
        )


class _Queued(NamedTuple):
    """Windows that end at the same time; numbers tell slots that were given to others since."""

    deadline: int
    slots: Ints
    seqs: Ints


class Attribution:
    """The open windows of one placement.

    Parameters
    ----------
    rule : Rule

    Examples
    --------
    >>> attribution = Attribution(Rule(window=30))
    >>> row = DecisionRow(1, "a", 1, 1, 100, "tomato", None, 0, 0.5, 0, None)
    >>> attribution.advance(row.time).rewards
    []
    >>> _ = attribution.decided(Block.of(DecisionRow, [row]))
    >>> attribution.advance(129).rewards, attribution.advance(130).rewards
    ([], [0.0])
    """

    aggregations: ClassVar[dict[str, int]] = AGGREGATIONS

    def __init__(self, rule: Rule) -> None:
        self.time = 0
        self._open: dict[str, int] = {}
        self.find = self._open.get
        """Return the slot of an open decision by its id, or None."""
        self._windows = Windows.zeros(0)
        self._free = np.empty(0, np.int64)
        self._free_count = 0
        self._spent: list[Ints] = []
        self._rows = OpenRows()
        self._ids: dict[int, dict[str, Content]] = {}
        self._queue: deque[_Queued] = deque()
        self._deferred: deque[_Queued] = deque()
        self._defaulted: deque[_Queued] = deque()
        self.rule = rule
        self._tell, self._close = entries(self._windows, self._terms)

    @property
    def rule(self) -> Rule:
        """What the log means; another one holds from now on."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        self._rule = rule
        self._terms = Terms(
            int(rule.window),
            float(rule.default),
            float(rule.lowest),
            self.aggregations.get(rule.aggregation, LISTED),
            rule.seen == "examined",
            rule.late == "correct",
        )

    def __len__(self) -> int:
        return len(self._open)

    @property
    def capacity(self) -> int:
        """How many slots there are."""
        return len(self._windows.seq)

    @property
    def due(self) -> int | None:
        """When the next window closes, or the next deferred decision is given up."""
        firsts = [queue[0].deadline for queue in (self._queue, self._deferred) if queue]
        return min(firsts, default=None)

    @property
    def oldest(self) -> int | None:
        """The place in the log of the first decision from which something may still be learned."""
        known = self._windows.open | self._windows.defaulted
        return int(self._windows.seq[known].min()) if known.any() else None

    # One decision ----------------------------------------------------------------------------

    def row(self, slot: int) -> DecisionRow:
        """Return the row of a decision."""
        block = self._rows.block(int(self._windows.block[slot]))
        return block[int(self._windows.place[slot])]

    def of(self, seq: int) -> DecisionRow:
        """Return the row of an open decision by its place in the log."""
        return self.row(self._located(seq))

    def _located(self, seq: int) -> int:
        """Return the slot of a decision by its place in the log; −1 if it is long forgotten."""
        slot, windows = self._rows.slot_of(seq), self._windows
        if slot is None or windows.seq[slot] != seq:
            return -1
        return slot if windows.open[slot] or windows.defaulted[slot] else -1

    def rows(self, slots: Ints) -> list[DecisionRow]:
        """Return the rows of decisions."""
        blocks = map(self._rows.block, self._windows.block[slots].tolist())
        places = self._windows.place[slots].tolist()
        return [block[place] for block, place in zip(blocks, places, strict=True)]

    def values(self, slots: Ints, field: str) -> list[Any]:
        """Return one field of the rows of decisions."""
        numbers = self._windows.block[slots].tolist()
        columns = {number: self._rows.block(number).column(field) for number in set(numbers)}
        places = self._windows.place[slots].tolist()
        return [columns[n][place] for n, place in zip(numbers, places, strict=True)]

    def seqs(self, slots: Ints) -> list[int]:
        """Return the numbers of decisions in the log."""
        numbers: list[int] = self._windows.seq[slots].tolist()
        return numbers

    def earned(self, lessons: Lessons) -> Iterator[tuple[int, Any]]:
        """Give the numbers of decisions in the log, and what each has earned."""
        return zip(self.seqs(lessons.slots), lessons.rewards, strict=True)

    def deadline(self, slot: int) -> int:
        """Return when a decision's window closes."""
        return int(self._windows.deadline[slot])

    def clicked(self, slots: Ints) -> list[bool]:
        """Say for each decision whether something came back for it that is not 0."""
        answers: list[bool] = (np.nan_to_num(self._windows.reward[slots]) != 0.0).tolist()
        return answers

    def times_told(self, slot: int) -> int:
        """Return how much feedback came for a decision."""
        return int(self._windows.told[slot])

    def told_less(self, slots: Ints, most: int) -> bool:
        """Say whether each of some decisions had feedback less than ``most`` times."""
        return bool(self._windows.told[slots].max() < most)

    def contents(self, slot: int) -> dict[str, Content]:
        """Return what came with an id, by that id."""
        return self._ids.get(slot, {})

    # Decide ----------------------------------------------------------------------------------

    def decided(self, block: Block[DecisionRow]) -> Ints:
        """Open the windows of decisions made at the same time; return their slots."""
        slots = self._given(block)
        windows, deferred = self._windows, block.column("deferred")
        windows.active[slots] = True
        if not any(deferred):
            deadline = self.time + self.rule.window
            windows.deadline[slots] = deadline
            self._enqueue(self._queue, deadline, slots)
            return slots
        for waits, queue, length in (
            (0, self._queue, self.rule.window),
            (1, self._deferred, self.rule.activation),
        ):
            those = slots[np.array(deferred) == waits]
            windows.active[those] = not waits
            windows.deadline[those] = self.time + length
            if len(those):
                self._enqueue(queue, self.time + length, those)
        return slots

    def _given(self, block: Block[DecisionRow], *, in_order: bool = True) -> Ints:
        """Give decisions slots, in which nothing is known but where their rows are."""
        self._release()
        count = len(block)
        if self._free_count < count:
            self._grow(count)
        self._free_count -= count
        slots = self._free[self._free_count : self._free_count + count].copy()
        given, windows = slots.tolist(), self._windows
        seqs = block.column("seq")
        windows.seq[slots], windows.told[slots], windows.reward[slots] = seqs, 0, np.nan
        windows.open[slots] = True
        for flags in (windows.examined, windows.settled, windows.defaulted):
            flags[slots] = False
        number = self._rows.put(block, slots, in_order=in_order)
        windows.block[slots], windows.place[slots] = number, np.arange(count)
        self._open.update(zip(block.column("id"), given, strict=True))
        return slots

    def _grow(self, count: int) -> None:
        old = self.capacity
        new = max(SPARE_SLOTS, 2 * old, old + count)
        self._windows = copied_into(self._windows, Windows.zeros(new))
        # There is room for all slots, so that none is ever made when they are given back.
        free = np.empty(new, np.int64)
        free[: new - old] = np.arange(old, new)
        free[new - old : new - old + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + new - old

    def _release(self) -> None:
        """Let slots be given to others."""
        for slots in self._spent:
            self._free[self._free_count : self._free_count + len(slots)] = slots
            self._free_count += len(slots)
            self._rows.let_go(self._windows.block[slots])
        self._spent.clear()

    def _enqueue(self, queue: deque[_Queued], deadline: int, slots: Ints) -> None:
        """Put windows behind all that end no later: last, unless windows got shorter."""
        place = len(queue)
        while place and queue[place - 1].deadline > deadline:
            place -= 1
        queue.insert(place, _Queued(deadline, slots, self._windows.seq[slots]))

    # Time ------------------------------------------------------------------------------------

    def advance(self, time: int) -> Lessons:
        """Close the windows that end at or before ``time``; return what they teach."""
        self.time = time = max(self.time, time)
        self._give_up(time)
        closed = []
        while self._queue and self._queue[0].deadline <= time:
            closed.append(self._queue.popleft())
        while self._deferred and self._deferred[0].deadline <= time:
            self._abandon(self._deferred.popleft())
        if not closed:
            return Lessons(np.empty(0, np.int64), [])
        return self._closed(closed)

    def _closed(self, closed: Sequence[_Queued]) -> Lessons:
        slots = np.concatenate([queued.slots for queued in closed])
        earned = np.empty(len(slots))
        self._close(self._windows, self._terms, slots, earned)
        for queued in closed:
            self._forget(queued)
        taught = np.flatnonzero(earned == earned)
        return Lessons(slots[taught], self._earned(slots[taught], earned[taught].tolist()))

    def _earned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        """Return what decisions have earned whose windows closed."""
        return rewards

    def _forget(self, queued: _Queued) -> None:
        """Forget closed decisions, but for defaults that may be corrected."""
        slots, windows = queued.slots, self._windows
        for number in np.unique(windows.block[slots]).tolist():
            ids = self._rows.block(number).column("id")
            places = windows.place[slots[windows.block[slots] == number]].tolist()
            # An id is unique in a placement, so whatever it names is this decision.
            for place in places:
                del self._open[ids[place]]
        for slot in slots.tolist() if self._ids else ():
            self._ids.pop(slot, None)
        kept = windows.defaulted[slots]
        if kept.any():
            self._keep_defaults(queued._replace(slots=slots[kept], seqs=queued.seqs[kept]))
            slots = slots[~kept]
        self._spent.append(slots)

    def _abandon(self, queued: _Queued) -> None:
        """Give up deferred decisions that nobody has activated."""
        windows, slots = self._windows, queued.slots
        waits = windows.open[slots] & ~windows.active[slots] & (windows.seq[slots] == queued.seqs)
        windows.open[slots[waits]] = False
        if waits.any():
            self._forget(queued._replace(slots=slots[waits], seqs=queued.seqs[waits]))

    def _keep_defaults(self, queued: _Queued) -> None:
        """Remember decisions that earned the default, in the order in which windows close."""
        if queued.deadline + self.rule.correction > self.time:
            self._defaulted.append(queued)
        else:
            self._windows.defaulted[queued.slots] = False
            self._spent.append(queued.slots)

    def not_learned(self, slots: Ints) -> None:
        """Let defaults stand that were not learned: there is nothing to correct."""
        self._windows.defaulted[slots] = False

    def _give_up(self, time: int) -> None:
        """Forget the defaults that can no longer be corrected."""
        while self._defaulted and self._defaulted[0].deadline + self.rule.correction <= time:
            queued = self._defaulted.popleft()
            self._windows.defaulted[queued.slots] = False
            self._spent.append(queued.slots)

    # Feedback --------------------------------------------------------------------------------

    def told(
        self, feedback: Block[FeedbackRow], slots: Ints | None = None
    ) -> tuple[list[str], list[Lessons]]:
        """Take in feedback of one moment; return what became of each, and what is to be learned.

        No decision may come twice. A lesson is given as soon as no later feedback could change
        it; those that follow each other are together.

        Parameters
        ----------
        feedback : Block
        slots : array of int64, optional
            Of the decisions, where they are known to be open.
        """
        if slots is None:
            slots = np.array(list(map(self._located, feedback.column("decision"))), np.int64)
        came = self._came(feedback, slots)
        self._tell(self._windows, self._terms, self.time, came)
        self._note_ids(feedback, came)
        self._aggregate(feedback, came)
        self._start_windows(came)
        outcomes = list(map(_BECAME.__getitem__, came.outcomes.tolist()))
        return outcomes, list(self._lessons(came))

    def _came(self, feedback: Block[FeedbackRow], slots: Ints) -> Feedback:
        kinds = list(map(KINDS.__getitem__, feedback.column("kind")))
        # NumPy takes None for NaN.
        rewards = np.array(feedback.column("reward"), np.float64)
        return Feedback.of(slots, np.array(kinds, np.int64), rewards)

    def _note_ids(self, feedback: Block[FeedbackRow], came: Feedback) -> None:
        ids = feedback.column("id")
        if not any(ids):
            return
        for i, (id, slot) in enumerate(zip(ids, came.slots.tolist(), strict=True)):
            if id is not None and slot >= 0 and self._windows.open[slot]:
                self._ids.setdefault(slot, {})[id] = feedback[i].content

    def _aggregate(self, feedback: Block[FeedbackRow], came: Feedback) -> None:
        """Work out what the compiled loop leaves to the kind of placement."""

    def _start_windows(self, came: Feedback) -> None:
        """Let the windows begin of decisions that were activated."""
        started = (came.kinds == KINDS[ACTIVATE]) & (came.outcomes == codes.NOTED)
        for i in np.flatnonzero(started).tolist():
            slot = came.slots[i : i + 1]
            self._enqueue(self._queue, int(self._windows.deadline[slot[0]]), slot)

    def _lessons(self, came: Feedback) -> Iterator[Lessons]:
        taught = np.flatnonzero(came.teaches)
        corrects = (came.outcomes[taught] == codes.CORRECTED).tolist()
        start = 0
        for corrected, run in groupby(corrects):
            stop = start + len(list(run))
            places = taught[start:stop]
            slots, rewards = came.slots[places], came.rewards[places].tolist()
            before = self.rule.default if corrected else None
            yield Lessons(slots, self._learned(slots, rewards), before, places.tolist())
            start = stop

    def _learned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        """Return what decisions have earned that are to be learned at once."""
        return rewards

    # Snapshots -------------------------------------------------------------------------------

    def saved(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Give the open decisions as what JSON can hold, in the order of their windows.

        They are those of the moment of the call, however much happens before all are given.

        Parameters
        ----------
        beside : function
            Returns columns of what is to be saved beside some slots.
        """
        waiting = [
            slot
            for queued in self._deferred
            for slot, seq in zip(queued.slots.tolist(), queued.seqs.tolist(), strict=True)
            if self._windows.open[slot] and not self._windows.active[slot]
            if self._windows.seq[slot] == seq
        ]
        parts = [queued.slots for queued in self._queue]
        return self._packed(np.concatenate([*parts, np.array(waiting, np.int64)]), beside)

    def saved_defaults(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Give the decisions whose defaults may still be corrected, as :meth:`saved` does."""
        parts = [queued.slots for queued in self._defaulted]
        slots = np.concatenate([*parts, np.empty(0, np.int64)])
        return self._packed(slots[self._windows.defaulted[slots]], beside)

    def _packed(self, slots: Ints, beside: Beside) -> Iterator[tuple[Any, ...]]:
        windows = self._windows
        numbers = windows.block[slots].tolist()
        blocks = {number: self._rows.block(number) for number in set(numbers)}
        contents: Iterable[Any] = repeat(None)
        if self._ids:
            found = map(self._ids.get, slots.tolist())
            contents = [content and dict(content) for content in found]
        rows = zip(
            numbers,
            windows.place[slots].tolist(),
            windows.deadline[slots].tolist(),
            windows.active[slots].tolist(),
            self._so_far(slots),
            windows.examined[slots].tolist(),
            windows.settled[slots].tolist(),
            windows.told[slots].tolist(),
            contents,
            *beside(slots),
            strict=False,
        )
        return ((blocks[number][place], *rest) for number, place, *rest in rows)

    def _so_far(self, slots: Ints) -> list[Any]:
        """Return what came for decisions; None for nothing."""
        return none_for_nan(self._windows.reward[slots])

    def restore(self, saved: Iterable[Sequence[Any]], *, defaulted: bool = False) -> Ints:
        """Take over open decisions of a snapshot, as :meth:`saved` gave them; return their slots.

        Parameters
        ----------
        saved : iterable of sequence
            Of each, what comes first is read.
        defaulted : bool
            Whether their windows have closed, and they earned a default.
        """
        parts = [one[:8] for one in saved]
        if not parts:
            return np.empty(0, np.int64)
        rows, deadlines, active, rewards, examined, settled, told, ids = zip(*parts, strict=True)
        block: Block[DecisionRow] = Block.of(DecisionRow, map(DecisionRow._make, rows))
        slots, windows = self._given(block, in_order=False), self._windows
        windows.deadline[slots], windows.active[slots] = deadlines, active
        windows.examined[slots], windows.settled[slots] = examined, settled
        windows.told[slots] = told
        for slot, reward, contents in zip(slots.tolist(), rewards, ids, strict=True):
            if reward is not None:
                self._take_so_far(slot, reward)
            # A late one is looked up in the store.
            if contents and not defaulted:
                self._ids[slot] = {id: tuple(content) for id, content in contents.items()}
        self._requeue(slots, defaulted)
        return slots

    def _take_so_far(self, slot: int, reward: Any) -> None:
        self._windows.reward[slot] = reward

    def _requeue(self, slots: Ints, defaulted: bool) -> None:
        windows = self._windows
        ends = zip(windows.deadline[slots].tolist(), windows.active[slots].tolist(), strict=True)
        start = 0
        for (deadline, active), run in groupby(ends):
            stop = start + len(list(run))
            part, start = slots[start:stop], stop
            if defaulted:
                windows.open[part], windows.defaulted[part] = False, True
                for id in self.values(part, "id"):
                    del self._open[id]
                self._keep_defaults(_Queued(deadline, part, windows.seq[part]))
            else:
                self._enqueue(self._queue if active else self._deferred, deadline, part)


class ClickAttribution(Attribution):
    """The open windows of a placement that shows lists: what came back is clicked positions.

    No click is an answer too: the empty list. Which clicks a decision had is known when its window
    closes, unless the first feedback is to hold them all. A reward, which stands for the outcome
    of a pair, is final.
    """

    aggregations: ClassVar[dict[str, int]] = {}

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._clicked: dict[int, list[int]] = {}

    def _earned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        return [self._clicked.get(slot, []) for slot in slots.tolist()]

    def _learned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        pairs = zip(slots.tolist(), rewards, strict=True)
        return [self._clicked.get(slot, reward) for slot, reward in pairs]

    def _aggregate(self, feedback: Block[FeedbackRow], came: Feedback) -> None:
        for i in np.flatnonzero(came.outcomes == OPEN).tolist():
            slot, clicks = int(came.slots[i]), feedback.column("clicks")[i]
            if clicks is None:
                self._windows.reward[slot] = came.rewards[i]
                self._clicked.pop(slot, None)
            else:
                positions = json.loads(clicks)
                if self.rule.aggregation == "union":
                    positions = sorted({*self._clicked.get(slot, ()), *positions})
                self._take_so_far(slot, positions)
            settled = clicks is None or self.rule.aggregation == "first"
            self._windows.settled[slot] = came.teaches[i] = settled
            came.outcomes[i] = codes.LEARNED if settled else codes.PENDING

    def clicked(self, slots: Ints) -> list[bool]:
        """Say for each decision whether something came back for it that is not 0."""
        pairs = zip(slots.tolist(), super().clicked(slots), strict=True)
        return [bool(self._clicked.get(slot, reward)) for slot, reward in pairs]

    def _so_far(self, slots: Ints) -> list[Any]:
        pairs = zip(slots.tolist(), super()._so_far(slots), strict=True)
        return [self._clicked.get(slot, reward) for slot, reward in pairs]

    def _take_so_far(self, slot: int, reward: Any) -> None:
        if isinstance(reward, list):
            # Any number says that something came.
            self._clicked[slot], reward = reward, 0.0
        super()._take_so_far(slot, reward)

    def _given(self, block: Block[DecisionRow], *, in_order: bool = True) -> Ints:
        slots = super()._given(block, in_order=in_order)
        for slot in slots.tolist() if self._clicked else ():
            self._clicked.pop(slot, None)
        return slots
