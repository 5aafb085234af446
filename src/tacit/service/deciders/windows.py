"""Attribution windows of open decisions, as columns and compiled loops over them.

Every open decision has an entry. Feedback is columns, too: a loop computes the outcome of each row and the
reward to learn, as soon as no later feedback can change it, or when the window closes.
"""

# 1. ``DeadlineQueue``: decisions by deadline.
# 2. ``Windows``, ``FeedbackColumns``, ``Closing``: columns of windows, feedback, and windows that close.
# 3. The loops: windows open, feedback is applied, windows close.

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compile_loop
from tacit.learning.delayed_feedback import Counts

# ---- Decisions by deadline, as columns: no Python object for a single decision

SPARE = 64


class DueDecisions(NamedTuple):
    """Decisions in the order of a deadline, such as the end of their window.

    Attributes
    ----------
    deadlines : array of int64
    entries : array of int64
    seqs : array of int64
        Sequence numbers, by which reused entries are recognized.
    """

    deadlines: Ints
    entries: Ints
    seqs: Ints

    def select(self, mask: Booleans) -> DueDecisions:
        """Return the decisions for which a boolean mask is True."""
        return DueDecisions(self.deadlines[mask], self.entries[mask], self.seqs[mask])


class DeadlineQueue:
    """A queue of decisions, sorted by deadline.

    Attributes
    ----------
    first, last : int or None
        First and last deadline; None for an empty queue. Stored as numbers because other threads read them.

    Examples
    --------
    >>> queue = DeadlineQueue()
    >>> queue.insert(20, np.array([3, 4]), np.array([30, 40]))
    >>> queue.insert(10, np.array([5]), np.array([50]))
    >>> queue.first, queue.last, queue.pop_due(15).entries, queue.all().entries
    (10, 20, array([5]), array([3, 4]))
    """

    def __init__(self) -> None:
        """Begin with an empty queue."""
        self._rows = np.empty((3, SPARE), np.int64)
        self._begin = self._end = 0
        self.first: int | None = None
        self.last: int | None = None

    def insert(self, deadlines: int | Ints, entries: Ints, seqs: Ints) -> None:
        """Insert decisions by deadline, after equal ones; ``first`` and ``last`` are updated.

        The deadlines must ascend, or be one number for all. Later deadlines than all in the queue are
        inserted fastest.
        """
        count = len(entries)
        if self._end + count > self._rows.shape[1]:
            self._reserve_rows(count)
        begin, end = self._end, self._end + count
        rows, self._end = self._rows, end
        rows[0, begin:end], rows[1, begin:end], rows[2, begin:end] = deadlines, entries, seqs
        if not count:
            return
        # Deadlines ascend while the rule is constant. Only a shorter window, from a changed configuration,
        # needs sorting, which must be stable: ties are in the order of the log.
        if self.last is not None and rows[0, begin] < self.last:
            queued = rows[:, self._begin : end]
            queued[:] = queued[:, np.argsort(queued[0], kind="stable")]
        self.first, self.last = int(rows[0, self._begin]), int(rows[0, end - 1])

    def pop_due(self, until: int) -> DueDecisions:
        """Remove and return the decisions whose deadline is at or before ``until``."""
        queued = self._rows[:, self._begin : self._end]
        count = int(np.searchsorted(queued[0], until, "right"))
        self._begin += count
        self._update_ends()
        return DueDecisions(*queued[:, :count].copy())

    def find_latest(self, until: int) -> int:
        """Return the latest deadline at or before ``until``, which must not be before the first."""
        deadlines = self._rows[0, self._begin : self._end]
        return int(deadlines[np.searchsorted(deadlines, until, "right") - 1])

    def all(self) -> DueDecisions:
        """Return all decisions of the queue, without removing them."""
        return DueDecisions(*self._rows[:, self._begin : self._end])

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self._rows.nbytes

    def _update_ends(self) -> None:
        """Set ``first`` and ``last`` after decisions were removed."""
        if self._begin == self._end:
            self._begin = self._end = 0
            self.first = self.last = None
        else:
            self.first, self.last = int(self._rows[0, self._begin]), int(self._rows[0, self._end - 1])

    def _reserve_rows(self, count: int) -> None:
        """Make room for ``count`` more decisions: move all to the front, in larger columns if necessary."""
        queued = self._rows[:, self._begin : self._end]
        self._end -= self._begin
        self._begin = 0
        size = self._end + count
        if 2 * size > self._rows.shape[1]:
            self._rows = np.empty((3, 2 * size), np.int64)
        self._rows[:, : self._end] = queued


# ---- Windows

REWARD, CLICKS, EXAMINED, ACTIVATE = range(4)
"""Kinds of feedback."""

FIRST, LAST, SUM, MAX, LISTED = range(5)
"""Aggregations of several rewards; ``LISTED`` is left to the caller."""

LEARNED, PENDING, REPEATED, LATE, CORRECTED, INACTIVE, NOTED, OPEN = range(8)
"""Outcomes of feedback; ``OPEN`` is left to the caller, which aggregates clicks on lists."""

AT_ONCE, WAITING, LEARNED_IN_TURN = range(3)
"""Turns: learned when the reward is final, waiting for its turn in the order, or learned in its turn."""


# ---- Columns of windows and feedback


class RuleParams(NamedTuple):
    """Parameters of the attribution rule; times in microseconds.

    Attributes
    ----------
    window : int
        Length of the window after an activation.
    default : float
        Reward of a decision without feedback.
    lowest : float
        Least possible reward.
    aggregation : int
        ``FIRST``, ``LAST``, ``SUM``, ``MAX`` or ``LISTED``.
    only_examined : bool
        Whether only examined decisions get the default.
    corrects : bool
        Whether the first reward after the window replaces the default.
    highest : float
        Largest possible reward; inf for none.
    zero : float
        Reward of the amount 0: several rewards add up as their distances from it.
    """

    window: int
    default: float
    lowest: float
    aggregation: int
    only_examined: bool
    corrects: bool
    highest: float = 1.0
    zero: float = 0.0


class Windows(NamedTuple):
    """The windows of open decisions, by entry.

    Attributes
    ----------
    seq, deadline : array of int64, shape (entries,)
        Sequence number, and end of the window.
    answers : array of int32, shape (entries,)
        Number of feedback rows.
    reward : array of float64, shape (entries,)
        Reward so far; NaN without feedback.
    open, active, examined, settled : array of bool, shape (entries,)
        Whether the window is open, the decision is active (not deferred), it was examined, and its reward
        is final.
    defaulted : array of bool, shape (entries,)
        Whether it got the default, which may still be corrected.
    unlearned : array of bool, shape (entries,)
        Whether it was made while nothing was learned.
    turn : array of int8, shape (entries,)
        ``AT_ONCE``, ``WAITING`` or ``LEARNED_IN_TURN``.
    block : array of int64, shape (entries,)
        Block of its row.
    place : array of int32, shape (entries,)
        Index of the row in the block.
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
    unlearned: Booleans
    turn: npt.NDArray[np.int8]
    block: Ints
    place: Counts

    @classmethod
    def zeros(cls, entries: int) -> Windows:
        """Return columns for a number of entries, all of them free."""
        seq, deadline, block = np.zeros((3, entries), np.int64)
        answers, place = np.zeros((2, entries), np.int32)
        open, active, examined, settled, defaulted, unlearned = np.zeros((6, entries), np.bool_)
        flags = open, active, examined, settled, defaulted, unlearned
        reward = np.full(entries, np.nan)
        return cls(seq, deadline, answers, reward, *flags, np.zeros(entries, np.int8), block, place)


class FeedbackColumns(NamedTuple):
    """Feedback as columns, in its order, with output columns for its outcomes.

    Attributes
    ----------
    entries : array of int64, shape (rows,)
        Entries of the decisions; −1 for decisions that are closed for good.
    kinds : array of int64, shape (rows,)
    rewards : array of float64, shape (rows,)
        Rewards as received; the loop replaces a final one by the reward to learn.
    outcomes : array of int64, shape (rows,)
        Output: outcome of each row.
    is_final : array of bool, shape (rows,)
        Output: whether the row makes the reward final.
    """

    entries: Ints
    kinds: Ints
    rewards: Floats
    outcomes: Ints
    is_final: Booleans


class Closing(NamedTuple):
    """Windows that close, with output columns for their rewards.

    Attributes
    ----------
    entries : array of int64, shape (rows,)
    rewards_to_learn : array of float64, shape (rows,)
        Output: rewards that are not learned yet; NaN if there is none.
    rewards : array of float64, shape (rows,)
        Output: rewards, learned before or not; NaN if there is none.
    is_answered : array of bool, shape (rows,)
        Output: whether the reward is feedback, not the default.
    """

    entries: Ints
    rewards_to_learn: Floats
    rewards: Floats
    is_answered: Booleans

    @classmethod
    def from_entries(cls, entries: Ints) -> Closing:
        """Return windows to close, with output columns whose values are not set yet."""
        rewards_to_learn, rewards = np.empty((2, len(entries)))
        return cls(entries, rewards_to_learn, rewards, np.empty(len(entries), np.bool_))


class WindowLoops(NamedTuple):
    """The compiled loops of this file."""

    open: Any
    apply: Any
    close: Any


# ---- The loops: windows open, feedback is applied, windows close


def open_rows(windows: Windows, entries: Ints, seqs: Ints, block: int, place: int, deadline: int) -> None:
    """Set windows, in place, to open ones without feedback that end at ``deadline``.

    The decisions' rows are consecutive in ``block``, from index ``place`` on.
    """
    for i in range(len(entries)):
        entry = entries[i]
        windows.seq[entry], windows.deadline[entry], windows.answers[entry] = seqs[i], deadline, 0
        windows.reward[entry] = np.nan
        windows.open[entry], windows.active[entry] = True, True
        windows.examined[entry], windows.settled[entry] = False, False
        windows.defaulted[entry], windows.unlearned[entry], windows.turn[entry] = False, False, AT_ONCE
        windows.block[entry], windows.place[entry] = block, place + i


def apply_feedback_rows(windows: Windows, rule: RuleParams, time: int, feedback: FeedbackColumns) -> None:
    """Apply feedback of one time to windows, row by row, in place.

    Fill the output columns of ``feedback``.
    """
    for i in range(len(feedback.entries)):
        entry, kind = feedback.entries[i], feedback.kinds[i]
        outcomes, is_final = feedback.outcomes, feedback.is_final
        outcomes[i], is_final[i] = LATE, False
        # The decision is closed for good.
        if entry < 0:
            continue
        # Closed with the default, which the first late reward may still replace, once.
        if not windows.open[entry]:
            if kind == REWARD and rule.corrects and windows.defaulted[entry]:
                windows.defaulted[entry] = False
                outcomes[i], is_final[i] = CORRECTED, True
                feedback.rewards[i] = min(max(feedback.rewards[i], rule.lowest), rule.highest)
            continue
        # All feedback for an open decision is counted, so that the log's growth can be limited.
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
        # A reward implies an examination.
        windows.examined[entry] = True
        if kind == EXAMINED:
            outcomes[i] = NOTED
        elif windows.settled[entry]:
            outcomes[i] = REPEATED
        elif rule.aggregation == LISTED:
            outcomes[i] = OPEN
        else:
            reward, previous = feedback.rewards[i], windows.reward[entry]
            # Not NaN: there is an earlier reward.
            if previous == previous:
                if rule.aggregation == SUM:
                    reward = previous + (reward - rule.zero)
                elif rule.aggregation == MAX:
                    reward = max(previous, reward)
            windows.reward[entry] = reward
            # An amount below 0 may still lower a sum.
            rises = rule.lowest >= 0.0 and rule.zero == 0.0
            tops = rule.aggregation == MAX or (rule.aggregation == SUM and rises)
            if rule.aggregation == FIRST or (tops and reward >= rule.highest):
                windows.settled[entry] = True
                outcomes[i], is_final[i] = LEARNED, True
                feedback.rewards[i] = min(max(reward, rule.lowest), rule.highest)
            else:
                outcomes[i] = PENDING


@kernel
def compute_reward(windows: Windows, rule: RuleParams, entry: int) -> float:
    """Return a decision's reward so far, clipped to the rule's range; without feedback the default, or NaN.

    NaN means that the decision counts only if it was examined, and was not.
    """
    reward = windows.reward[entry]
    if reward == reward:
        return float(min(max(reward, rule.lowest), rule.highest))
    if windows.examined[entry] or not rule.only_examined:
        return rule.default
    return np.nan


def close_rows(windows: Windows, rule: RuleParams, closing: Closing) -> None:
    """Close windows, in place, and fill the output columns of ``closing``.

    Windows that get the default are marked in ``defaulted`` if the rule allows corrections.
    """
    for i in range(len(closing.entries)):
        entry = closing.entries[i]
        reward = windows.reward[entry]
        is_answered = reward == reward
        windows.open[entry] = False
        final_reward = compute_reward(windows, rule, entry)
        closing.rewards[i], closing.is_answered[i] = final_reward, is_answered
        # A settled reward was learned when it came; it still counts for the lift.
        closing.rewards_to_learn[i] = np.nan if windows.settled[entry] else final_reward
        if final_reward == final_reward and not is_answered and not windows.settled[entry]:
            windows.defaulted[entry] = rule.corrects


@cache
def compile_loops() -> WindowLoops:
    """Return the compiled loops of windows; they are compiled once for all placements."""
    # Loops are compiled for the types of these arguments, whatever their values.
    windows, rule = Windows.zeros(0), RuleParams(1, 0.0, 0.0, 0, False, False, 1.0, 0.0)
    none = np.empty(0, np.int64)
    feedback = FeedbackColumns(none, none, np.empty(0), none, np.empty(0, np.bool_))
    return WindowLoops(
        compile_loop(open_rows).entry((windows, none, none, 0, 0, 0)),
        compile_loop(apply_feedback_rows).entry((windows, rule, 0, feedback)),
        compile_loop(close_rows).entry((windows, rule, Closing.from_entries(none))),
    )
