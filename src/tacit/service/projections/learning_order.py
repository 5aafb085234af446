"""Learning order: open decisions are learned once each, in the order in which their windows began.

A click comes soon; its absence is known only when the window closes. A policy that learned each when it came
would mistake every wave of silence for a change. So a decision is learned at an age by which nearly all
clicks have come (:mod:`tacit.learning.delayed_feedback`): when a new decision is made, or as soon as all
earlier decisions are learned and its own reward is final, or when its window closes.
"""

# 1. Compiled loops over the kernels of ``tacit.learning.delayed_feedback``.
# 2. ``LearningOrder``: the queue of a placement, by the entries of its open decisions.
# The result depends on the log alone: edges may be passed in any number of steps, and the distribution of
# delays is estimated when decisions are made.

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Booleans, Floats, Ints, copy_state, copy_to_larger
from tacit.core.run_mode import compile_loop
from tacit.learning.delayed_feedback import (
    EDGES,
    NO_CLICK,
    RELEASED,
    Delays,
    OpenFeedback,
    Queue,
    compute_learning_age,
    enlarge_delays,
    enlarge_queue,
    enqueue,
    is_outgrown,
    pass_edges,
    record_feedback,
    refit_delays,
    release,
)
from tacit.learning.learner import Learner
from tacit.policies.base import Policy
from tacit.policies.stationary.chance import UniformRandom
from tacit.service.projections.open_entries import OpenEntries
from tacit.service.projections.windows import (
    AT_ONCE,
    LEARNED_IN_TURN,
    WAITING,
    RuleParams,
    Windows,
    compute_reward,
)

SPARE_ROWS = 256
ENOUGH_CLICKS = 100
"""Number of clicks from which their delay is reported."""
PASSED = "passed"

# ---- The loops


def enqueue_rows(
    params: Any,
    state: Any,
    delays: Delays,
    queue: Queue,
    answers: OpenFeedback,
    windows: Windows,
    entries: Ints,
    start: int,
) -> None:
    """Append decisions whose windows begin at ``start`` to the queue, and mark them as waiting.

    They are counted as open in the policy's ``state``. Times are microseconds.
    """
    for entry in entries:
        enqueue(params, state, delays, queue, answers, entry, start)
        windows.turn[entry] = WAITING


def note_rows(
    params: Any,
    state: Any,
    delays: Delays,
    answers: OpenFeedback,
    windows: Windows,
    entries: Ints,
    clicked: Booleans,
    time: int,
) -> None:
    """Record delay and reward of feedback for queued decisions, and adjust their open counts in ``state``.

    ``clicked`` says which feedback is a click. The reward of a click is its decision's reward so far, or 1 if
    that is 0, as for a lost duel; without a click it is 0.
    """
    window = delays.edges[EDGES - 1]
    for i in range(len(entries)):
        entry = entries[i]
        delay = time - (windows.deadline[entry] - window)
        reward = windows.reward[entry]
        if not clicked[i]:
            reward = 0.0
        elif reward == 0.0:
            reward = 1.0
        record_feedback(params, state, answers, entry, delay, reward, windows.settled[entry])


def release_rows(
    params: Any,
    state: Any,
    delays: Delays,
    queue: Queue,
    answers: OpenFeedback,
    windows: Windows,
    rule: RuleParams,
    time: int,
    age: int,
    rewards: Floats,
) -> int:
    """Advance the queue past the leading decisions that are due at ``time``; return its new first index.

    Due are decisions older than ``age``, and decisions with a final reward. Their rewards are written to
    ``rewards``, they are marked as learned, and their open counts are subtracted from ``state``.
    """
    begin = queue.cursor[RELEASED]
    end = release(params, state, delays, queue, answers, time, age)
    for i in range(end - begin):
        entry = queue.entry[begin + i]
        rewards[i] = compute_reward(windows, rule, entry)
        windows.turn[entry] = LEARNED_IN_TURN
    return end


def fit_delays(delays: Delays, time: int) -> int:
    """Estimate delays again, in place, if enough new clicks came; return the age at which to learn."""
    if is_outgrown(delays):
        refit_delays(delays)
    return compute_learning_age(delays, time)


class OrderLoops(NamedTuple):
    """The compiled loops of this file."""

    enqueue: Any
    update_open_counts: Any
    note: Any
    release: Any
    fit: Any


class Turns(NamedTuple):
    """Decisions to learn now, in their order.

    Attributes
    ----------
    entries : array of int64
    rewards : array of float64
        NaN if there is nothing to learn.
    """

    entries: Ints
    rewards: Floats


NO_TURNS = Turns(np.empty(0, np.int64), np.empty(0))

# ---- The queue of a placement


def counts_open(policy: Policy) -> bool:
    """True if a policy, or its innermost policy, counts decisions that are not learned yet as open."""
    while hasattr(policy, "policy"):
        policy = policy.policy
    return hasattr(policy, "count_open")


@cache
def _make_idle_parts() -> tuple[Any, Any]:
    """Return params and state that stand in for all policies without open counts, which share one loop."""
    policy = UniformRandom(2)
    return policy.params, policy.init(1)


class LearningOrder:
    """The order in which the open decisions of a placement are learned.

    Parameters
    ----------
    learner : Learner
    open : OpenEntries
        The open decisions.
    rule : RuleParams
        Rule of attribution.
    waits_whole : bool
        Whether decisions are learned only when their window closes, whatever the delay of clicks.
    learns_late : bool
        Whether feedback is learned that comes after its decision was learned without any.
    """

    def __init__(
        self, learner: Learner, open: OpenEntries, rule: RuleParams, *, waits_whole: bool, learns_late: bool
    ) -> None:
        """Begin with an empty queue and no delays."""
        policy = learner.policy
        self._learner, self._open, self.rule, self._waits_whole = learner, open, rule, waits_whole
        self.learns_late = learns_late
        self._single = policy.showing.single and policy.arms is not None
        # An open decision counts as one without a reward, which requires that silence is a reward of 0.
        self.counts_open = counts_open(policy) and not rule.default and not rule.lowest
        self.delays = Delays.create(rule.window, policy.arm_count if self._single else 1)
        self._queue = Queue.empty(SPARE_ROWS)
        self._answers = OpenFeedback.empty(0)
        self._passed = 0
        """Time up to which ages are advanced."""

    @property
    def bytes(self) -> int:
        """Approximate size of the queue in bytes."""
        return sum(column.nbytes for column in (*self._queue, *self._answers))

    @property
    def waiting_count(self) -> int:
        """Number of decisions that are not learned yet."""
        return int(self._queue.size[0] - self._queue.cursor[RELEASED])

    def get_waiting_time(self, time: int) -> int:
        """Return how long the first decision has waited to be learned, in microseconds; 0 if none waits."""
        first = self._queue.cursor[RELEASED]
        return time - int(self._queue.start[first]) if first < self._queue.size[0] else 0

    def get_learning_age(self, time: int) -> int:
        """Return the age, in microseconds, at which decisions are learned: at most the window."""
        return self.rule.window if self._waits_whole else int(compute_learning_age(self.delays, time))

    @property
    def click_delay(self) -> float | None:
        """Seconds within which 95 % of clicks come; None with fewer than 100 clicks."""
        if self.delays.clicks.sum() < ENOUGH_CLICKS:
            return None
        # Those by which decisions are learned can be out of date: they are estimated while decisions wait.
        delays = copy_state(self.delays)
        self._loops.fit(delays, 0)
        return int(delays.age[0]) / 1e6

    def extend_arms(self, arms: int) -> None:
        """Add delays for new arms, up to a total of ``arms``; nothing if delays are not kept per arm."""
        if self._single and arms > len(self.delays.clicks):
            self.delays = enlarge_delays(self.delays, arms)

    def begin(self, entries: Ints, lanes: Ints, arms: Ints, time: int) -> None:
        """Register new open decisions, and queue them for learning; deferred ones wait for their activation.

        Parameters
        ----------
        entries : array of int64
        lanes, arms : array of int64
            Lane and arm for which each decision counts as open in the policy's belief; −1 if it does not.
        time : int
        """
        self._reserve_entries(entries)
        # The entries may hold data of earlier decisions.
        self._answers.delay[entries], self._answers.known[entries] = NO_CLICK, False
        self._answers.hits[entries] = self._answers.plays[entries] = 0
        self._answers.lane[entries] = lanes
        self._answers.arm[entries] = arms if self._single else -1
        self.enqueue(entries[self._open.windows.active[entries]], time)

    def get_turns(self, entries: Ints) -> Ints:
        """Return when each decision is learned: ``AT_ONCE``, ``WAITING`` (queued) or ``LEARNED_IN_TURN``."""
        return self._open.windows.turn[entries].astype(np.int64)

    def skip(self, entries: Ints) -> None:
        """Mark decisions that are never learned as final, so that no later decision waits for them."""
        self._answers.known[entries] = True

    def enqueue(self, entries: Ints, start: int) -> None:
        """Append decisions whose windows begin at ``start`` to the queue, and count them as open."""
        self._reserve_entries(entries)
        self._reserve_queue(len(entries))
        loop, parts = self._loops.enqueue, self._get_policy()
        loop(*parts, self.delays, self._queue, self._answers, self._open.windows, entries, start)

    def update_open_counts(self, time: int) -> None:
        """Process the delays of queued decisions up to a time, which changes open counts; learn nothing."""
        self._passed = time
        if self._queue.size[0]:
            self._loops.update_open_counts(*self._get_policy(), self.delays, self._queue, self._answers, time)

    def note_feedback(self, entries: Ints, clicked: Booleans, time: int) -> None:
        """Record delay and reward of feedback for queued decisions; final rewards become due."""
        loop, parts = self._loops.note, self._get_policy()
        loop(*parts, self.delays, self._answers, self._open.windows, entries, clicked, time)

    def release(self, time: int, *, decides: bool = False) -> Turns:
        """Remove and return the decisions that are due to be learned, with their rewards, in order.

        Due are leading decisions whose reward is final or whose window has closed at ``time``. With
        ``decides``, just before a new decision, the delays are estimated again, and decisions that have
        reached the learning age are due, too.
        """
        count = self.waiting_count
        if not count:
            return NO_TURNS
        loops, age = self._loops, self.rule.window
        # Not if all that wait began at this moment: the log does not say how its decisions were grouped.
        if decides and self.get_waiting_time(time):
            fitted = loops.fit(self.delays, time)
            age = age if self._waits_whole else fitted
        begin, rewards = int(self._queue.cursor[RELEASED]), np.empty(count)
        fixed = self.delays, self._queue, self._answers, self._open.windows, self.rule
        end = loops.release(*self._get_policy(), *fixed, time, age, rewards)
        if end == begin:
            return NO_TURNS
        return Turns(self._queue.entry[begin:end].copy(), rewards[: end - begin])

    def _get_policy(self) -> tuple[Any, Any]:
        """Return params and state of the policy that counts open decisions; of a dummy if it counts none."""
        if not self.counts_open:
            return _make_idle_parts()
        return self._learner.loops.params, self._learner.lanes.state

    def _reserve_entries(self, entries: Ints) -> None:
        """Enlarge the columns of feedback, if necessary, to hold these entries."""
        size = int(entries.max(initial=-1)) + 1
        if size > len(self._answers.delay):
            larger = OpenFeedback.empty(max(size, 2 * len(self._answers.delay), SPARE_ROWS))
            self._answers = copy_to_larger(self._answers, larger)

    def _reserve_queue(self, count: int) -> None:
        """Make room for more decisions in the queue."""
        if self._queue.size[0] + count > len(self._queue.start):
            self._queue = enlarge_queue(self._queue, count)

    def compile(self) -> None:
        """Compile the loops, or load them from the cache."""
        _ = self._loops

    @cached_property
    def _loops(self) -> OrderLoops:
        """The compiled loops, compiled when they are first used."""
        parts, params = self._get_policy(), self._get_policy()[0]
        fixed = self.delays, self._queue, self._answers
        windows, none = Windows.zeros(0), np.empty(0, np.int64)
        noted = *parts, self.delays, self._answers, windows, none, np.empty(0, np.bool_), 0
        return OrderLoops(
            compile_loop(enqueue_rows, params).entry((*parts, *fixed, windows, none, 0)),
            compile_loop(pass_edges, params).entry((*parts, *fixed, 0)),
            compile_loop(note_rows, params).entry(noted),
            compile_loop(release_rows, params).entry((*parts, *fixed, windows, self.rule, 0, 0, np.empty(0))),
            compile_loop(fit_delays).entry((self.delays, 0)),
        )

    # Snapshots -------------------------------------------------------------------------------

    def save_state(self) -> dict[str, list[float] | list[list[float]]]:
        """Return the delays, and the time up to which they are counted, as JSON data."""
        return {name: array.tolist() for name, array in self.delays._asdict().items()} | {
            PASSED: [self._passed]
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Set the delays from the output of :meth:`save_state`.

        Nothing if it is None or of another window.
        """
        if saved is None or saved["edges"] != self.delays.edges.tolist():
            return
        (self._passed,) = saved[PASSED]
        for name, array in self.delays._asdict().items():
            values = np.array(saved[name], array.dtype)
            array[tuple(map(slice, values.shape))] = values

    def export_entries(self, entries: Ints) -> list[list[int]]:
        """Return turn and recorded feedback of each open decision as a list of integers, for JSON."""
        self._reserve_entries(entries)
        columns = [self._open.windows.turn[entries].tolist()]
        columns += [column[entries].astype(np.int64).tolist() for column in self._answers]
        return list(map(list, zip(*columns, strict=True)))

    def reopen(
        self, entries: Ints, lanes: Ints, saved: Sequence[Sequence[int] | None], *, is_new_learner: bool
    ) -> None:
        """Restore turns and recorded feedback of decisions, and append those of open windows to the queue.

        ``entries`` are in the order of their windows. ``saved`` is the output of :meth:`export_entries`; None
        for decisions without a turn. With ``is_new_learner``, waiting decisions are counted as open again in
        the policy's belief.
        """
        has_turn = np.array([row is not None for row in saved], np.bool_)
        if not has_turn.any():
            return
        entries, lanes = entries[has_turn], lanes[has_turn]
        # From one flat sequence, NumPy makes an array in a third of the time.
        rows: Any = compress(saved, has_turn)
        turns, *columns = np.fromiter(chain.from_iterable(rows), np.int64).reshape(len(entries), -1).T
        self._reserve_entries(entries)
        self._open.windows.turn[entries] = turns
        answers: list[Any] = list(self._answers)
        for column, values in zip(answers, columns, strict=True):
            column[entries] = values
        counted = columns[1] >= 0
        # Another learner has other lanes.
        self._answers.lane[entries] = np.where(counted, lanes, -1)
        self._requeue(entries[(turns != AT_ONCE) & self._open.windows.open[entries]])
        if is_new_learner and self.counts_open:
            self._count_again(entries[counted & (turns == WAITING)])

    def _requeue(self, entries: Ints) -> None:
        """Append restored decisions to the queue, and advance its cursors by their ages.

        There is one cursor for each edge of the bins of delays, and one for released decisions; each is the
        first decision that has not passed it.
        """
        windows, count = self._open.windows, len(entries)
        self._reserve_queue(count)
        queue, starts = self._queue, windows.deadline[entries] - self.rule.window
        size = int(queue.size[0])
        queue.entry[size : size + count], queue.start[size : size + count] = entries, starts
        queue.size[0] += count
        # Starts ascend: a cursor passes none of these decisions if it has not passed the ones before.
        for b, edge in enumerate(self.delays.edges.tolist()):
            queue.cursor[b] += np.searchsorted(
                starts + edge, self._passed, "right" if b == EDGES - 1 else "left"
            )
        queue.cursor[RELEASED] += (windows.turn[entries] != WAITING).sum()

    def _count_again(self, entries: Ints) -> None:
        """Count waiting decisions as open in the policy's belief."""
        (params, state), answers = self._get_policy(), self._answers
        for entry in entries.tolist():
            lane, arm = answers.lane[entry], answers.arm[entry]
            dispatch.count_open(params, state, lane, arm, answers.hits[entry], answers.plays[entry])
