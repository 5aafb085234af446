"""Windows: what feedback in a decision's time earns it, as compiled loops over columns.

Every open decision has an entry. Feedback comes as columns too, and a loop says of each row what
became of it and what is now to be learned: as soon as no later feedback could change it, or when
the window closes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compiled
from tacit.learning.delayed_feedback import Counts

# ---- Decisions by when something ends for them, as columns: nothing is made for one of them alone

SPARE = 64


class Ending(NamedTuple):
    """Decisions, in the order in which something ends for them.

    Attributes
    ----------
    deadlines : array of int64
        When it ends.
    entries : array of int64
    seqs : array of int64
        Their numbers in the log, which tell entries that were given to others since.
    """

    deadlines: Ints
    entries: Ints
    seqs: Ints

    def where(self, wanted: Booleans) -> Ending:
        """Return some of them."""
        return Ending(self.deadlines[wanted], self.entries[wanted], self.seqs[wanted])


class Deadlines:
    """A queue of decisions: first come those for which something ends first.

    Attributes
    ----------
    first, last : int or None
        When it ends for the first and the last of them; None for an empty queue. They are numbers of
        their own, as another thread may ask.

    Examples
    --------
    >>> queue = Deadlines()
    >>> queue.put(20, np.array([3, 4]), np.array([30, 40]))
    >>> queue.put(10, np.array([5]), np.array([50]))
    >>> queue.first, queue.last, queue.take(15).entries, queue.all().entries
    (10, 20, array([5]), array([3, 4]))
    """

    def __init__(self) -> None:
        self._rows = np.empty((3, SPARE), np.int64)
        self._begin = self._end = 0
        self.first: int | None = None
        self.last: int | None = None

    def put(self, deadlines: int | Ints, entries: Ints, seqs: Ints) -> None:
        """Add decisions, of ascending deadlines or one, behind all for which it ends no later."""
        count = len(entries)
        if self._end + count > self._rows.shape[1]:
            self._make_room(count)
        begin, end = self._end, self._end + count
        rows, self._end = self._rows, end
        rows[0, begin:end], rows[1, begin:end], rows[2, begin:end] = deadlines, entries, seqs
        if not count:
            return
        # Deadlines ascend as long as the rule stays, so that a sorted queue costs nothing; only a shorter
        # window, from a changed configuration, makes sorting necessary, which must be stable: ties are in the
        # log's order.
        if self.last is not None and rows[0, begin] < self.last:
            # Windows got shorter.
            known = rows[:, self._begin : end]
            known[:] = known[:, np.argsort(known[0], kind="stable")]
        self.first, self.last = int(rows[0, self._begin]), int(rows[0, end - 1])

    def take(self, until: int) -> Ending:
        """Remove and return those for which it ends by a time."""
        found = self._rows[:, self._begin : self._end]
        count = int(np.searchsorted(found[0], until, "right"))
        self._begin += count
        self._note_ends()
        return Ending(*found[:, :count].copy())

    def find_latest(self, until: int) -> int | None:
        """Return the latest deadline up to a time; None if there is none."""
        if self.first is None or self.first > until:
            return None
        deadlines = self._rows[0, self._begin : self._end]
        return int(deadlines[np.searchsorted(deadlines, until, "right") - 1])

    def all(self) -> Ending:
        """Return all of them."""
        return Ending(*self._rows[:, self._begin : self._end])

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return self._rows.nbytes

    def _note_ends(self) -> None:
        if self._begin == self._end:
            self._begin = self._end = 0
            self.first = self.last = None
        else:
            self.first, self.last = int(self._rows[0, self._begin]), int(self._rows[0, self._end - 1])

    def _make_room(self, count: int) -> None:
        """Move all to the front, of larger columns if those are half full."""
        known = self._rows[:, self._begin : self._end]
        self._end -= self._begin
        self._begin = 0
        needed = self._end + count
        if 2 * needed > self._rows.shape[1]:
            self._rows = np.empty((3, 2 * needed), np.int64)
        self._rows[:, : self._end] = known


# ---- Windows

REWARD, CLICKS, EXAMINED, ACTIVATE = range(4)
"""Kinds of feedback."""

FIRST, LAST, SUM, MAX, LISTED = range(5)
"""What several rewards make; ``LISTED`` is left to the caller."""

LEARNED, PENDING, REPEATED, LATE, CORRECTED, INACTIVE, NOTED, OPEN = range(8)
"""What became of feedback; ``OPEN`` is left to the caller, who aggregates lists."""

AT_ONCE, WAITING, TAUGHT = range(3)
"""Whether a decision is learned when its reward is final, waits for its turn, or has been learned in it."""


# ---- What open decisions are kept as: columns


class RuleParams(NamedTuple):
    """What windows mean; times in microseconds.

    Attributes
    ----------
    window : int
        Length of the window after an activation.
    default : float
        Reward of a decision for which none came.
    lowest : float
        The least reward.
    aggregation : int
        What several rewards make.
    only_examined : bool
        Whether only decisions that were examined earn the default.
    corrects : bool
        Whether the first reward after the window takes the place of the default.
    """

    window: int
    default: float
    lowest: float
    aggregation: int
    only_examined: bool
    corrects: bool


class Windows(NamedTuple):
    """What is known of each open decision, by its entry.

    Attributes
    ----------
    seq, deadline : array of int64, shape (entries,)
        Its number, and when its window closes.
    answers : array of int32, shape (entries,)
        How much feedback came.
    reward : array of float64, shape (entries,)
        What came so far; NaN for nothing.
    open, active, examined, settled : array of bool, shape (entries,)
        Whether the window is open, whether the decision counts, whether it was looked at, and
        whether it was learned so that nothing can change that.
    defaulted : array of bool, shape (entries,)
        Whether it earned the default, which may still be corrected.
    turn : array of int8, shape (entries,)
        ``AT_ONCE``, ``WAITING`` or ``TAUGHT``.
    block : array of int64, shape (entries,)
        The block of its row.
    place : array of int32, shape (entries,)
        The place of its row in the block.
    """

    seq: Ints
    deadline: Ints
    answers: Counts
    reward: Floats
    open: Booleans
    active: Booleans
    examined: Booleans
    settled: Booleans
    defaulted: Booleans
    turn: npt.NDArray[np.int8]
    block: Ints
    place: Counts

    @classmethod
    def zeros(cls, entries: int) -> Windows:
        """Return entries that are free."""
        seq, deadline, block = np.zeros((3, entries), np.int64)
        answers, place = np.zeros((2, entries), np.int32)
        open, active, examined, settled, defaulted = np.zeros((5, entries), np.bool_)
        reward = np.full(entries, np.nan)
        flags = open, active, examined, settled, defaulted
        turn = np.zeros(entries, np.int8)
        return cls(seq, deadline, answers, reward, *flags, turn, block, place)


class FeedbackColumns(NamedTuple):
    """Feedback as columns, in its order, and what became of it.

    Attributes
    ----------
    entries : array of int64, shape (rows,)
        Of the decisions; −1 where they are long forgotten.
    kinds : array of int64, shape (rows,)
    rewards : array of float64, shape (rows,)
        As they came; afterwards, where something is to be learned, what.
    outcomes : array of int64, shape (rows,)
        Filled in.
    teaches : array of bool, shape (rows,)
        Filled in: whether there is something to be learned at once.
    """

    entries: Ints
    kinds: Ints
    rewards: Floats
    outcomes: Ints
    teaches: Booleans

    @classmethod
    def of(cls, entries: Ints, kinds: Ints, rewards: Floats) -> FeedbackColumns:
        """Return feedback with nothing filled in."""
        return cls(entries, kinds, rewards, np.empty(len(kinds), np.int64), np.empty(len(kinds), np.bool_))


class Closing(NamedTuple):
    """Windows that close, and what is to be filled in of their decisions.

    Attributes
    ----------
    entries : array of int64, shape (rows,)
    taught : array of float64, shape (rows,)
        What is now to be learned; NaN for nothing.
    earned : array of float64, shape (rows,)
        What they have earned in all, learned before or not; NaN for nothing.
    answered : array of bool, shape (rows,)
        Whether a reward came, and not the default.
    """

    entries: Ints
    taught: Floats
    earned: Floats
    answered: Booleans

    @classmethod
    def of(cls, entries: Ints) -> Closing:
        """Return windows with nothing filled in."""
        taught, earned = np.empty((2, len(entries)))
        return cls(entries, taught, earned, np.empty(len(entries), np.bool_))


class WindowLoops(NamedTuple):
    """The compiled loops of this file."""

    open: Any
    tell: Any
    close: Any


# ---- The loops over them: decisions open, feedback comes, decisions close


def open_rows(windows: Windows, entries: Ints, seqs: Ints, block: int, place: int, deadline: int) -> None:
    """Open the windows of decisions from some place of a block on, of which nothing came back yet."""
    for i in range(len(entries)):
        entry = entries[i]
        windows.seq[entry], windows.deadline[entry], windows.answers[entry] = seqs[i], deadline, 0
        windows.reward[entry] = np.nan
        windows.open[entry], windows.active[entry] = True, True
        windows.examined[entry], windows.settled[entry] = False, False
        windows.defaulted[entry], windows.turn[entry] = False, AT_ONCE
        windows.block[entry], windows.place[entry] = block, place + i


def tell_rows(windows: Windows, rule: RuleParams, time: int, feedback: FeedbackColumns) -> None:
    """Take feedback in, row by row."""
    for i in range(len(feedback.entries)):
        entry, kind = feedback.entries[i], feedback.kinds[i]
        outcomes, teaches = feedback.outcomes, feedback.teaches
        outcomes[i], teaches[i] = LATE, False
        # The decision is long forgotten.
        if entry < 0:
            continue
        # Closed, but its entry is kept: it earned the default, which the first reward may still replace,
        # once.
        if not windows.open[entry]:
            if kind == REWARD and rule.corrects and windows.defaulted[entry]:
                windows.defaulted[entry] = False
                outcomes[i], teaches[i] = CORRECTED, True
            continue
        # Whatever comes for an open decision is counted, so that nobody can grow the log without an end.
        windows.answers[entry] += 1
        if kind == ACTIVATE:
            outcomes[i] = REPEATED if windows.active[entry] else NOTED
            if not windows.active[entry]:
                windows.active[entry] = True
                windows.deadline[entry] = time + rule.window
            continue
        if not windows.active[entry]:
            outcomes[i] = INACTIVE
            continue
        # A reward is a look, too: an answer comes from somebody who has seen it.
        windows.examined[entry] = True
        if kind == EXAMINED:
            outcomes[i] = NOTED
        elif windows.settled[entry]:
            outcomes[i] = REPEATED
        elif rule.aggregation == LISTED:
            outcomes[i] = OPEN
        else:
            reward, before = feedback.rewards[i], windows.reward[entry]
            # Not NaN: something came before.
            if before == before:
                if rule.aggregation == SUM:
                    reward = before + reward
                elif rule.aggregation == MAX:
                    reward = max(before, reward)
            windows.reward[entry] = reward
            # A reward below 0 may still lower a sum.
            tops = rule.aggregation == MAX or (rule.aggregation == SUM and rule.lowest >= 0.0)
            if rule.aggregation == FIRST or (tops and reward >= 1.0):
                windows.settled[entry] = True
                outcomes[i], teaches[i] = LEARNED, True
                feedback.rewards[i] = min(max(reward, rule.lowest), 1.0)
            else:
                outcomes[i] = PENDING


@kernel
def reward_so_far(windows: Windows, rule: RuleParams, entry: int) -> float:
    """Return the reward of a decision if nothing more comes for it; NaN if it has none."""
    reward = windows.reward[entry]
    if reward == reward:
        return float(min(max(reward, rule.lowest), 1.0))
    if windows.examined[entry] or not rule.only_examined:
        return rule.default
    return np.nan


def close_rows(windows: Windows, rule: RuleParams, closing: Closing) -> None:
    """Close windows; fill in what their decisions have earned."""
    for i in range(len(closing.entries)):
        entry = closing.entries[i]
        reward = windows.reward[entry]
        came = reward == reward
        windows.open[entry] = False
        earned = reward_so_far(windows, rule, entry)
        closing.earned[i], closing.answered[i] = earned, came
        # What was settled was taught when it came; it is earned all the same, and counts for the lift.
        closing.taught[i] = np.nan if windows.settled[entry] else earned
        if earned == earned and not came and not windows.settled[entry]:
            windows.defaulted[entry] = rule.corrects


@cache
def loops() -> WindowLoops:
    """Return the loops :func:`open_rows`, :func:`tell_rows` and :func:`close_rows`, compiled."""
    windows, rule = Windows.zeros(0), RuleParams(1, 0.0, 0.0, 0, False, False)
    none = np.empty(0, np.int64)
    feedback = FeedbackColumns.of(none, none, np.empty(0))
    return WindowLoops(
        compiled(open_rows).entry((windows, none, none, 0, 0, 0)),
        compiled(tell_rows).entry((windows, rule, 0, feedback)),
        compiled(close_rows).entry((windows, rule, Closing.of(none))),
    )
