"""Kernels for delayed feedback: estimate click delays, and decide when a decision is learned.

Clicks come soon, but their absence is known only when a window closes. A policy that learned each outcome
on arrival would mistake every wave of zeros for a change. Here a decision is learned once, in the order of
decisions, at an age by which nearly all clicks have come; until then it counts in the policy's posterior,
but not as evidence of a change.
"""

# 1. ``Delays``: the distribution of delays, per arm and over all, estimated without truncation bias.
# 2. ``Queue``: the decisions that are not yet learned or not yet as old as their window.
# 3. ``OpenFeedback``: the feedback and the counts of each of them, by its entry.
# 4. Kernels, in a decision's order of events: ``enqueue``, ``pass_edges``, ``record_feedback``, ``release``.
# 5. ``refit_delays``, ``compute_learning_age``: the distribution, and the age at which decisions are learned.
# Times are integers, in microseconds in the service; the result does not depend on the steps between times.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints, copy_to_larger
from tacit.core.dispatch import OPEN_UNIT, count_open, kernel

EDGES = 12
"""Number of bins of delays, each twice as wide as the one before; the last ends with the window."""
RELEASED = EDGES
"""The index of the cursor that separates learned decisions from others."""
QUANTILE = 0.95
"""The share of clicks that have come when a decision is learned."""
MIN_CLICKS = 10
"""With fewer clicks, decisions are learned when their window closes."""
PRIOR = 5.0
"""Weight, in clicks, of the distribution of all arms in that of one arm."""
MEMORY = 400.0
"""When a bin has more clicks, its counts are halved, as delays may change."""
GROWTH = 1.05
"""The distribution is estimated again when clicks have grown by this factor."""
FIRST_WINDOW = 3
"""In the first window only delays up to a third of the elapsed time are trusted."""
NO_CLICK = -1

Counts = npt.NDArray[np.int32]


class Delays(NamedTuple):
    """The distribution of the delays of clicks.

    Attributes
    ----------
    edges : array of int64, shape (12,)
        Ends of the bins; the last is the window.
    risk, clicked : array of float64, shape (classes, 12)
        Clicks whose delay is at most the bin's end, and those whose delay is in the bin. A class is an
        arm, or all arms together.
    sums : array of float64, shape (classes, 12)
        The sum of the delays in each bin.
    clicks : array of float64, shape (classes,)
        Total number of clicks.
    curve : array of float64, shape (classes, 13)
        The share of clicks that have come at age 0 and at each edge.
    age : array of int64, shape (1,)
        The age by which nearly all clicks have come.
    fitted : array of float64, shape (1,)
        Number of clicks at the last estimation of the curve.
    begin : array of int64, shape (1,)
        Start of the first window; −1 before any.
    """

    edges: Ints
    risk: Floats
    clicked: Floats
    sums: Floats
    clicks: Floats
    curve: Floats
    age: Ints
    fitted: Floats
    begin: Ints

    @classmethod
    def create(cls, window: int, classes: int) -> Delays:
        """Return the distribution without any clicks, for a ``window`` in microseconds, which is also the
        learning age.
        """
        # Each edge is twice the one before.
        edges = np.array([max(1, window >> (EDGES - 1 - b)) for b in range(EDGES)], np.int64)
        edges[-1] = window
        curve = np.ones((classes, EDGES + 1))
        curve[:, 0] = 0.0
        risk, clicked, sums = np.zeros((3, classes, EDGES))
        age, begin = np.array([window]), np.array([-1])
        return cls(edges, risk, clicked, sums, np.zeros(classes), curve, age, np.zeros(1), begin)


class Queue(NamedTuple):
    """Decisions in the order of the starts of their windows.

    Attributes
    ----------
    start : array of int64, shape (capacity,)
        Starts of their windows.
    entry : array of int64, shape (capacity,)
        Their indices in ``OpenFeedback``.
    cursor : array of int64, shape (13,)
        For each edge, the first decision that has not reached it; last, the first that is not learned.
    size : array of int64, shape (1,)
    """

    start: Ints
    entry: Ints
    cursor: Ints
    size: Ints

    @classmethod
    def empty(cls, capacity: int) -> Queue:
        """Return a queue without decisions that has room for ``capacity`` of them."""
        start, entry = np.zeros((2, capacity), np.int64)
        return cls(start, entry, np.zeros(EDGES + 1, np.int64), np.zeros(1, np.int64))


class OpenFeedback(NamedTuple):
    """Feedback and counts of each decision that is not yet learned, by its entry.

    Attributes
    ----------
    delay : array of int64, shape (entries,)
        Delay of its last click; −1 for none.
    lane, arm : array of int32, shape (entries,)
        The lane and arm for which it counts as open; −1 for none.
    hits, plays : array of int32, shape (entries,)
        How much it counts as a click and as a play, in units of 1/1024.
    known : array of bool, shape (entries,)
        Whether its outcome is final.
    """

    delay: Ints
    lane: Counts
    arm: Counts
    hits: Counts
    plays: Counts
    known: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, entries: int) -> OpenFeedback:
        """Return arrays for ``entries`` decisions without feedback, lane and arm (all −1)."""
        lane, arm, hits, plays = np.full((4, entries), -1, np.int32)
        delay, is_final = np.full(entries, NO_CLICK, np.int64), np.zeros(entries, np.bool_)
        return cls(delay, lane, arm, hits, plays, is_final)


def enlarge_queue(queue: Queue, count: int) -> Queue:
    """Return a queue with room for ``count`` more decisions, without those that every cursor has passed.

    If the arrays have room, they are reused and changed; otherwise the result has new arrays.
    """
    first, size = int(queue.cursor.min()), int(queue.size[0])
    remaining = size - first
    larger = queue if 2 * (remaining + count) <= len(queue.start) else Queue.empty(2 * (remaining + count))
    larger.start[:remaining], larger.entry[:remaining] = queue.start[first:size], queue.entry[first:size]
    larger.cursor[:], larger.size[0] = queue.cursor - first, remaining
    return larger


def enlarge_delays(delays: Delays, classes: int) -> Delays:
    """Return a copy of the distributions for a total of ``classes`` arms, estimated again.

    A new arm has no clicks yet, so it starts with the distribution of all arms.
    """
    larger = copy_to_larger(delays, Delays.create(int(delays.edges[-1]), classes))
    refit_delays(larger)
    return larger  # type: ignore[no-any-return]


# ---- A decision's life


@kernel
def find_class(delays: Delays, arm: int) -> int:
    """Return the row of an arm in the arrays of ``delays``; 0 if delays are not distinguished by arm."""
    return int(arm) if 0 <= arm < len(delays.clicks) else 0


@kernel
def compute_share_in_bin(delays: Delays, arm: int, b: int) -> int:
    """Return the share of an arm's clicks that have come by the middle of bin ``b``, in units of 1/1024.

    It is 1024, the whole, for decisions that do not show one arm (``arm`` −1), such as duels.
    """
    if arm < 0:
        return OPEN_UNIT
    k = find_class(delays, arm)
    return int(0.5 * OPEN_UNIT * (delays.curve[k, b] + delays.curve[k, b + 1]) + 0.5)


@kernel
def enqueue(
    params: object,
    state: object,
    delays: Delays,
    queue: Queue,
    open_feedback: OpenFeedback,
    entry: int,
    start: int,
) -> None:
    """Append a decision to the queue, and count it as open in the policy's ``state``; its window starts at
    ``start``.

    The queue must have room, and ``open_feedback`` must have the decision's lane and arm at index ``entry``;
    its other fields are reset. With lane −1 the decision is not counted in ``state``.
    """
    place = queue.size[0]
    queue.start[place], queue.entry[place] = start, entry
    queue.size[0] = place + 1
    if delays.begin[0] < 0:
        delays.begin[0] = start
    open_feedback.delay[entry], open_feedback.known[entry] = NO_CLICK, False
    open_feedback.hits[entry], open_feedback.plays[entry] = 0, 0
    if open_feedback.lane[entry] >= 0:
        plays = compute_share_in_bin(delays, open_feedback.arm[entry], 0)
        open_feedback.plays[entry] = plays
        count_open(params, state, open_feedback.lane[entry], open_feedback.arm[entry], 0, plays)


@kernel
def count_click(delays: Delays, k: int, b: int, delay: int) -> None:
    """Count a click of class ``k`` with a delay of at most the end of bin ``b``; if it is in the bin, add it
    to the bin.

    Counts of a bin with more than 400 clicks are halved, so that changes of delays are followed.
    """
    delays.risk[k, b] += 1.0
    if b == 0 or delay > delays.edges[b - 1]:
        delays.clicked[k, b] += 1.0
        delays.sums[k, b] += delay
        delays.clicks[k] += 1.0
    if delays.risk[k, b] > MEMORY:
        delays.risk[k, b] *= 0.5
        delays.clicked[k, b] *= 0.5
        delays.sums[k, b] *= 0.5


@kernel
def pass_edges(
    params: object, state: object, delays: Delays, queue: Queue, open_feedback: OpenFeedback, time: int
) -> None:
    """Update counts for all ends of bins that queued decisions have reached by ``time``; nothing is learned
    yet.

    When a decision reaches a bin's end, its click, if any, is counted in ``delays``, and its open count in
    the policy's ``state`` grows to the share of clicks that come by the middle of the next bin. The queue's
    cursors advance.
    """
    for b in range(EDGES):
        place, edge = queue.cursor[b], delays.edges[b]
        # Strictly older than the edge, as feedback at that very time is valid, except at the window's end.
        reached = time if b + 1 == EDGES else time - 1
        while place < queue.size[0] and queue.start[place] + edge <= reached:
            entry = queue.entry[place]
            delay, arm = open_feedback.delay[entry], open_feedback.arm[entry]
            if 0 <= delay <= edge:
                count_click(delays, find_class(delays, arm), b, delay)
            # Count the share of the next bin; a final 0 already counts as a whole play.
            zero = open_feedback.known[entry] and open_feedback.hits[entry] == 0
            if open_feedback.lane[entry] >= 0 and b + 1 < EDGES and not zero:
                plays = compute_share_in_bin(delays, arm, b + 1)
                count_open(
                    params, state, open_feedback.lane[entry], arm, 0, plays - open_feedback.plays[entry]
                )
                open_feedback.plays[entry] = plays
            place += 1
        queue.cursor[b] = place


@kernel
def record_feedback(
    params: object,
    state: object,
    open_feedback: OpenFeedback,
    entry: int,
    delay: int,
    reward: float,
    final: bool,
) -> None:
    """Record feedback on an open decision, and adjust its open counts in the policy's ``state``.

    ``reward`` is the decision's total so far; ``delay`` is recorded unless the reward is 0; ``final`` means
    that the reward cannot change. With lane −1, as for a learned decision, ``state`` does not change.
    """
    if reward != 0.0:
        open_feedback.delay[entry] = delay
    open_feedback.known[entry] = open_feedback.known[entry] or final
    if open_feedback.lane[entry] < 0:
        return
    hits = int(OPEN_UNIT * min(max(reward, 0.0), 1.0) + 0.5)
    plays = OPEN_UNIT if reward == 0.0 and final else int(open_feedback.plays[entry])
    more = hits - open_feedback.hits[entry], plays - open_feedback.plays[entry]
    count_open(params, state, open_feedback.lane[entry], open_feedback.arm[entry], more[0], more[1])
    open_feedback.hits[entry], open_feedback.plays[entry] = hits, plays


@kernel
def release(
    params: object,
    state: object,
    delays: Delays,
    queue: Queue,
    open_feedback: OpenFeedback,
    time: int,
    age: int,
) -> int:
    """Release the first decisions of the queue that are older than ``age`` or final; return the index after
    them.

    The queue's cursor moves there; their open counts are subtracted from the policy's ``state``, and their
    lanes become −1. The caller learns them next.
    """
    place = queue.cursor[RELEASED]
    while place < queue.size[0]:
        entry = queue.entry[place]
        if queue.start[place] + age > time and not open_feedback.known[entry]:
            break
        if open_feedback.lane[entry] >= 0:
            hits, plays = open_feedback.hits[entry], open_feedback.plays[entry]
            count_open(params, state, open_feedback.lane[entry], open_feedback.arm[entry], -hits, -plays)
            open_feedback.lane[entry] = -1
        place += 1
    queue.cursor[RELEASED] = place
    return int(place)


# ---- The distribution of delays


@kernel
def is_outgrown(delays: Delays) -> bool:
    """True if there are so many new clicks since the last estimation, 5 % more, that it should be
    repeated.
    """
    total, classes = 0.0, len(delays.clicks)
    for k in range(classes):
        total += delays.clicks[k]
    # Counts are bounded by MEMORY, so growth is relative to at most that many clicks.
    before = delays.fitted[0]
    return bool(total > before + (GROWTH - 1.0) * min(before, MEMORY * classes))


@kernel
def compute_quantile_in_bin(low: float, high: float, mean: float, share: float) -> float:
    """Return the delay by which ``share`` of the delays between ``low`` and ``high``, of a given mean, have
    come.

    Delays are taken as uniform about their mean, up to the nearer end: they may be nearly equal, and a
    uniform distribution over the bin could put the quantile before all of them.
    """
    if 2.0 * mean > low + high:
        low = 2.0 * mean - high
    else:
        high = 2.0 * mean - low
    return low + share * (high - low)


@kernel
def refit_delays(delays: Delays) -> None:
    """Estimate again, in ``delays``, the share of clicks that have come by each bin's end, and the learning
    age.

    The learning age is when 95 % of clicks have come, at most the window; it is the window with fewer than 10
    clicks. The estimator is the product limit in reverse time, for right-truncated delays: its hazard is the
    share of clicks in a bin among those with a delay of at most the bin's end.
    """
    classes, total = len(delays.clicks), 0.0
    for k in range(classes):
        total += delays.clicks[k]
    delays.fitted[0] = total
    longest = 0.0
    # The first round estimates all arms together.
    for k in range(-1, classes):
        # From the last bin to the first: ``share`` of clicks that have come by the bin's end, ``upper`` by
        # the next one's; ``reached`` is the delay by which 95 % have come.
        share, reached, upper = 1.0, -1.0, 1.0
        for b in range(EDGES - 1, -1, -1):
            risk, clicked, took = 0.0, 0.0, 0.0
            for class_index in range(classes):
                risk += delays.risk[class_index, b]
                clicked += delays.clicked[class_index, b]
                took += delays.sums[class_index, b]
            low, high = 0.0 if b == 0 else float(delays.edges[b - 1]), float(delays.edges[b])
            hazard = clicked / risk if risk > 0.0 else 0.0
            mean = took / clicked if clicked > 0.0 else 0.5 * (low + high)
            # An arm's own estimates are shrunk to those of all arms together.
            if k >= 0:
                mean = (delays.sums[k, b] + PRIOR * mean) / (delays.clicked[k, b] + PRIOR)
                hazard = (delays.clicked[k, b] + PRIOR * hazard) / (delays.risk[k, b] + PRIOR)
                delays.curve[k, b + 1] = share
            upper, share = share, share * (1.0 - hazard)
            below = 0.0 if b == 0 else share  # no click has a delay below 0
            if reached < 0.0 and below < QUANTILE:
                # The share of the bin's own clicks that come before the quantile.
                part = (QUANTILE - below) / (upper - below) if upper > below else 1.0
                reached = compute_quantile_in_bin(low, high, mean, part)
        if k < 0 or delays.clicks[k] >= MIN_CLICKS:
            longest = max(longest, reached)
    window = delays.edges[EDGES - 1]
    # Rounded up, so that it is not below a delay that many clicks have.
    delays.age[0] = min(max(int(np.ceil(longest)), 1), window) if total >= MIN_CLICKS else window


@kernel
def compute_learning_age(delays: Delays, time: int) -> int:
    """Return the age at which decisions are learned at ``time``: the estimated age or, at first, the whole
    window.

    It is the window until three times the estimated age, or the whole first window, has passed.
    """
    age, window = delays.age[0], delays.edges[EDGES - 1]
    elapsed = time - delays.begin[0]
    # Long delays cannot have been observed yet, so the estimate would be too short.
    if elapsed < window and age * FIRST_WINDOW > elapsed:
        return int(window)
    return int(age)
