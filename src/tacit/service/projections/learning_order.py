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

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Booleans, Floats, Ints, copy_state
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
from tacit.service.deciders.open_decisions import OpenDecisions
from tacit.service.deciders.windows import (
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


class TrainingBatch(NamedTuple):
    """A training batch: decisions and their rewards.

    Attributes
    ----------
    entries : array of int64
        Entries of the decisions; valid until the next decisions are made.
    values : list
        Reward of each decision, or its clicked positions.
    previous : float or None
        Reward learned earlier for these decisions, to be replaced.
    row_indices : list of int
        Indices of the feedback rows; empty if the rewards come from closed windows.
    """

    entries: Ints
    values: list[Any]
    previous: float | None = None
    row_indices: Sequence[int] = ()

    def select(self, positions: Sequence[int]) -> TrainingBatch:
        """Return a batch with only the decisions at some positions of this one."""
        return TrainingBatch(
            self.entries[positions],
            [self.values[i] for i in positions],
            self.previous,
            [self.row_indices[i] for i in positions] if self.row_indices else (),
        )


EMPTY_BATCH = TrainingBatch(np.empty(0, np.int64), [])

# ---- The queue of a placement


def counts_open(policy: Policy) -> bool:
    """True if a policy, or its innermost policy, counts decisions that are not learned yet as open."""
    while hasattr(policy, "policy"):
        policy = policy.policy
    return hasattr(policy, "count_open")


@cache
def _make_idle_learner() -> Learner:
    """Return a learner that stands in for all policies without open counts, which share one loop."""
    return Learner(UniformRandom(2), 0)


class LearningOrder:
    """The order in which the open decisions of a placement are learned.

    Parameters
    ----------
    learner : Learner
    open : OpenDecisions
        The open decisions.
    rule : RuleParams
        Rule of attribution.
    get_values : function
        Returns the values to learn of decisions, by their entries and rewards.
    waits_whole : bool
        Whether decisions are learned only when their window closes, whatever the delay of clicks.
    learns_late : bool
        Whether feedback is learned that comes after its decision was learned without any.

    Attributes
    ----------
    columns : OpenFeedback
        Feedback of open decisions, by entry.
    """

    columns: OpenFeedback

    def __init__(
        self,
        learner: Learner,
        open: OpenDecisions,
        rule: RuleParams,
        get_values: Callable[[Ints, list[float], OpenDecisions], list[Any]],
        *,
        waits_whole: bool,
        learns_late: bool,
    ) -> None:
        """Begin with an empty queue and no delays."""
        policy = learner.policy
        self._open, self.rule, self._get_values = open, rule, get_values
        self._waits_whole, self.learns_late = waits_whole, learns_late
        self._single = policy.showing.single and policy.arms is not None
        # An open decision counts as one without a reward, which requires that silence is a reward of 0.
        self.counts_open = counts_open(policy) and not rule.default and not rule.lowest
        # The learner that counts open decisions in its belief.
        self._believer = learner if self.counts_open else _make_idle_learner()
        self.delays = Delays.create(rule.window, policy.arm_count if self._single else 1)
        self._queue = Queue.empty(SPARE_ROWS)
        open.grow_columns(self)
        self._passed = 0
        """Time up to which ages are advanced."""

    @property
    def bytes(self) -> int:
        """Size of the queue in bytes."""
        return sum(column.nbytes for column in self._queue)

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

    def create_columns(self, size: int) -> OpenFeedback:
        """Return columns for a number of entries, all of them free."""
        return OpenFeedback.empty(size)

    def enqueue(self, entries: Ints, start: int, lanes: Ints | None = None, arms: Ints | None = None) -> None:
        """Queue decisions whose windows begin at ``start``, and count them as open.

        Parameters
        ----------
        entries : array of int64
        start : int
        lanes, arms : array of int64, optional
            For new decisions, of which deferred ones are not queued: lane and arm for which each decision
            counts as open in the policy's belief; −1 if it does not.
        """
        windows, columns = self._open.windows, self.columns
        if lanes is not None and arms is not None:
            # The entries may hold data of earlier decisions.
            columns.delay[entries], columns.known[entries] = NO_CLICK, False
            columns.hits[entries] = columns.plays[entries] = 0
            columns.lane[entries], columns.arm[entries] = lanes, arms if self._single else -1
            entries = entries[windows.active[entries]]
        if self._queue.size[0] + len(entries) > len(self._queue.start):
            self._queue = enlarge_queue(self._queue, len(entries))
        belief = self._believer.loops.params, self._believer.lanes.state
        self._loops.enqueue(*belief, self.delays, self._queue, columns, windows, entries, start)

    def skip(self, entries: Ints) -> None:
        """Mark decisions that are never learned as final, so that no later decision waits for them."""
        self.columns.known[entries] = True

    def update_open_counts(self, time: int) -> None:
        """Process the delays of queued decisions up to a time, which changes open counts; learn nothing."""
        self._passed = time
        if self._queue.size[0]:
            belief = self._believer.loops.params, self._believer.lanes.state
            self._loops.update_open_counts(*belief, self.delays, self._queue, self.columns, time)

    def note_feedback(self, entries: Ints, clicked: Booleans, time: int) -> None:
        """Record delay and reward of feedback for queued decisions; final rewards become due."""
        belief = self._believer.loops.params, self._believer.lanes.state
        self._loops.note(*belief, self.delays, self.columns, self._open.windows, entries, clicked, time)

    def take_turns(self, time: int, *, decides: bool = False) -> TrainingBatch:
        """Remove the decisions that are due to be learned; return the ones with a reward, in order.

        Due are leading decisions whose reward is final or whose window has closed at ``time``. With
        ``decides``, just before a new decision, the delays are estimated again, and decisions that have
        reached the learning age are due, too.
        """
        if decides:
            self.update_open_counts(time)
        queue, windows, age = self._queue, self._open.windows, self.rule.window
        begin = int(queue.cursor[RELEASED])
        rewards = np.empty(int(queue.size[0]) - begin)
        if not len(rewards):
            return EMPTY_BATCH
        # Not if all that wait began at this moment: the log does not say how its decisions were grouped.
        if decides and time != queue.start[begin]:
            fitted = self._loops.fit(self.delays, time)
            age = age if self._waits_whole else fitted
        belief = self._believer.loops.params, self._believer.lanes.state
        fixed = self.delays, queue, self.columns, windows, self.rule, time, age
        end = self._loops.release(*belief, *fixed, rewards)
        # Decisions without a reward to learn have NaN, which is not equal to itself.
        (rows,) = (rewards[: end - begin] == rewards[: end - begin]).nonzero()
        if not len(rows):
            return EMPTY_BATCH
        entries, rewards = queue.entry[begin:end][rows], rewards[rows]
        return TrainingBatch(entries, self._get_values(entries, rewards.tolist(), self._open))

    def compile(self) -> None:
        """Compile the loops, or load them from the cache."""
        _ = self._loops

    @cached_property
    def _loops(self) -> OrderLoops:
        """The compiled loops, compiled when they are first used."""
        # Loops are compiled for the types of these arguments, whatever their values.
        params = self._believer.loops.params
        parts = params, self._believer.lanes.state
        fixed = self.delays, self._queue, self.columns
        windows, none = Windows.zeros(0), np.empty(0, np.int64)
        noted = *parts, self.delays, self.columns, windows, none, np.empty(0, np.bool_), 0
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
            # Arms that were added since have no saved values.
            values = np.array(saved[name], array.dtype)
            array[tuple(map(slice, values.shape))] = values

    def export_entries(self, entries: Ints) -> list[Ints]:
        """Return the turns of open decisions and their recorded feedback as columns of integers."""
        columns = self._open.windows.turn, *self.columns
        return [column[entries].astype(np.int64) for column in columns]

    def reopen(self, entries: Ints, lanes: Ints, saved: Any, *, is_new_learner: bool) -> None:
        """Restore turns and recorded feedback of decisions, and append those of open windows to the queue.

        ``entries`` are in the order of their windows. ``saved`` has the columns of :meth:`export_entries`,
        with one value where all are equal. With ``is_new_learner``, waiting decisions are counted as open
        again in the policy's belief.
        """
        turns, *columns = (np.broadcast_to(np.array(column, np.int64), len(entries)) for column in saved)
        self._open.windows.turn[entries] = turns
        answers: list[Any] = list(self.columns)
        for column, values in zip(answers, columns, strict=True):
            column[entries] = values
        counted = columns[OpenFeedback._fields.index("lane")] >= 0
        # Another learner has other lanes.
        self.columns.lane[entries] = np.where(counted, lanes, -1)
        self._requeue(entries[(turns != AT_ONCE) & self._open.windows.open[entries]])
        if is_new_learner and self.counts_open:
            belief, feedback = (self._believer.loops.params, self._believer.lanes.state), self.columns
            for entry in entries[counted & (turns == WAITING)].tolist():
                place = feedback.lane[entry], feedback.arm[entry]
                dispatch.count_open(*belief, *place, feedback.hits[entry], feedback.plays[entry])

    def _requeue(self, entries: Ints) -> None:
        """Append restored decisions to the queue, and advance its cursors by their ages.

        There is one cursor for each edge of the bins of delays, and one for released decisions; each is the
        first decision that has not passed it.
        """
        windows, count = self._open.windows, len(entries)
        if self._queue.size[0] + count > len(self._queue.start):
            self._queue = enlarge_queue(self._queue, count)
        queue, starts = self._queue, windows.deadline[entries] - self.rule.window
        size = int(queue.size[0])
        queue.entry[size : size + count], queue.start[size : size + count] = entries, starts
        queue.size[0] += count
        # Starts ascend: a cursor passes none of these decisions if it has not passed the ones before.
        # At the last edge they also pass decisions that are exactly as old.
        reached = self._passed - self.delays.edges
        reached[-1] += 1
        queue.cursor[:EDGES] += np.searchsorted(starts, reached)
        queue.cursor[RELEASED] += (windows.turn[entries] != WAITING).sum()
