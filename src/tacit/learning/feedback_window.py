"""A feedback window: join decisions with delayed feedback, and learn each decision once, in order."""

# 1. Compiled loops over the kernels of ``tacit.learning.delayed_feedback``.
# 2. ``OpenDecisions``: decisions, their feedback, and the arrays of the loops.
# 3. ``FeedbackWindow``: add decisions, join feedback to them, learn those that are due.
# 4. The file of a window: the learner's snapshot, the open decisions, arrays.

from __future__ import annotations

import io
import json
import math
import time as clock
import warnings
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, leaves
from tacit.core.run_mode import compile_loop
from tacit.core.text import html_table
from tacit.errors import AssumptionWarning, InvalidValue, SnapshotError
from tacit.learning.columns import check_propensities
from tacit.learning.decisions import Arm, ArmT_co, Decision, Decisions, Key
from tacit.learning.delayed_feedback import (
    RELEASED,
    Delays,
    OpenFeedback,
    Queue,
    compute_learning_age,
    enlarge_delays,
    enqueue,
    is_outgrown,
    pass_edges,
    record_feedback,
    refit_delays,
    release,
)
from tacit.learning.input_columns import refuse_unfilled, require_decision
from tacit.learning.learner import Learner, clear_open, make_snapshot, restore_learner
from tacit.learning.snapshot import (
    WINDOW_HEADER,
    StoredArchive,
    from_bytes,
    iter_pieces,
    read_array,
    read_file,
    replace_file,
)

MICROSECONDS = 1_000_000
"""Times are counted in microseconds."""
MAX_SECONDS = 10 * 365 * 86_400.0
"""The longest window, in seconds."""
MAX_TIME = 2.0**42
"""The latest time that fits, in seconds since 1970."""
FORMAT, VERSION = "tacit-feedback-window", 1
LEARNER, DECISIONS = "learner.tacit", "decisions.json"
SPARE_ROWS = 64
WATCHED_COUNT = 100
"""If so many feedbacks all come late, times or the window are probably of another unit."""

Time = float | datetime | np.datetime64
Status = Literal["pending", "learned", "repeated", "late", "unknown"]


def enqueue_rows(
    params: Any, state: Any, delays: Delays, queue: Queue, open_feedback: OpenFeedback, count: int, time: int
) -> None:
    """Append ``count`` decisions, made at ``time`` (µs), to the queue, and count them as open in the policy's
    ``state``.

    The caller has written their lanes and arms to ``open_feedback``.
    """
    for _ in range(count):
        enqueue(params, state, delays, queue, open_feedback, queue.size[0], time)


def release_due(
    params: Any,
    state: Any,
    delays: Delays,
    queue: Queue,
    open_feedback: OpenFeedback,
    time: int,
    everything: bool,
) -> int:
    """Release the queued decisions that are due at ``time`` (µs), or all if ``everything``; return the queue
    index after the last released one.

    The caller learns the released decisions. The counts behind the distribution of delays are updated for the
    ages that decisions have reached, and the distribution is estimated again after enough new clicks.
    Released decisions no longer count as open in the policy's ``state``.
    """
    pass_edges(params, state, delays, queue, open_feedback, time)
    if is_outgrown(delays):
        refit_delays(delays)
    age = 0 if everything else compute_learning_age(delays, time)
    return release(params, state, delays, queue, open_feedback, time, age)


class _Loops(NamedTuple):
    """A policy's ``params`` and the loops that are compiled for them."""

    params: Any
    enqueue: Any
    release: Any
    record: Any


class WaitingDecisions:
    """Decisions whose windows are open, in the order of their start.

    Parameters
    ----------
    width : int
        Number of values in the feedback of a decision.

    Attributes
    ----------
    rows : list of Decision
        By their places in the queue; None if the window has closed.
    queue, open_feedback
        A decision's entry in ``open_feedback`` is its place in the queue.
    rewards : array of float64, shape (capacity, width)
        NaN if no feedback came.
    newest : int
        The largest id ever; −1 before any.
    closed : int
        Number of decisions at the beginning of the queue whose window has closed.
    """

    def __init__(self, width: int) -> None:
        """Create an empty queue; its arrays have no rows until :meth:`reserve` enlarges them."""
        self.rows: list[Any] = []
        self.queue, self.open_feedback = Queue.empty(0), OpenFeedback.empty(0)
        self.rewards = np.empty((0, width))
        self.newest = -1
        self.closed = 0
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of decisions in the queue, closed ones included."""
        return int(self.queue.size[0])

    def find(self, id: int) -> int:
        """Return the place in the queue of the decision with an id; −1 if it is not in the queue.

        The window of the decision is open if the place is at least ``closed``.
        """
        return self._places.get(id, -1)

    def add(self, decisions: Sequence[Decision]) -> int:
        """Store decisions without rewards (NaN), enlarging the arrays if needed; return the place of the
        first.

        The queue itself does not change: the caller calls the compiled loop ``enqueue_rows`` next.
        """
        if len(self) + len(decisions) > len(self.queue.start):
            self.reserve(len(decisions))
        first = len(self)
        self.rewards[first : first + len(decisions)] = np.nan
        self.rows += [decision.lean() for decision in decisions]
        for place, decision in enumerate(decisions, first):
            self._places[decision.id] = place
            self.newest = max(self.newest, decision.id)
        return first

    def close(self) -> None:
        """Forget the decisions whose window has closed: those before all cursors of the queue.

        Their places and their rows in the arrays stay until :meth:`reserve`.
        """
        end = int(self.queue.cursor.min())
        self.rows[self.closed : end] = [None] * (end - self.closed)
        self.closed = end

    def reserve(self, more: int) -> None:
        """Move the open decisions to new arrays with room for ``more``; closed decisions are dropped.

        The place of each open decision decreases by the number of dropped ones.
        """
        first, size = self.closed, len(self)
        count = size - first
        capacity = max(SPARE_ROWS, 2 * (count + more))
        queue, open_feedback = Queue.empty(capacity), OpenFeedback.empty(capacity)
        rewards = np.full((capacity, self.rewards.shape[1]), np.nan)
        queue.start[:count], rewards[:count] = self.queue.start[first:size], self.rewards[first:size]
        queue.entry[:] = np.arange(capacity)
        queue.cursor[:], queue.size[0] = self.queue.cursor - first, count
        for (_, source), (_, target) in zip(leaves(self.open_feedback), leaves(open_feedback), strict=True):
            target[:count] = source[first:size]
        self.queue, self.open_feedback, self.rewards = queue, open_feedback, rewards
        del self.rows[:first]
        self._places = {decision.id: place for place, decision in enumerate(self.rows)}
        self.closed = 0

    def arrays(self) -> list[tuple[str, Any]]:
        """Return pairs of name and array, for the file: the cursors, and the filled part of each array of
        decisions.

        Call it only after :meth:`reserve` has dropped the closed decisions.
        """
        by_decision = {"start": self.queue.start, "rewards": self.rewards, **dict(leaves(self.open_feedback))}
        named = ((name, array[: len(self)]) for name, array in by_decision.items())
        return [("cursor", self.queue.cursor), *named]

    def restore(self, decisions: list[Decision]) -> None:
        """Add the decisions of a loaded file and set the queue's size.

        The caller fills the arrays of :meth:`arrays` next.
        """
        self.add(decisions)
        self.queue.size[0] = len(decisions)


class FeedbackWindow(Generic[ArmT_co]):
    """Join decisions with delayed feedback, and learn each decision once, in order.

    Clicks come soon, but their absence is known only when a decision's window closes. A learner that learned
    each outcome on arrival would mistake every wave of zeros for a change. Here a decision is learned at an
    age by which nearly all clicks (95 %) have come, estimated from the delays of clicks, or when its outcome
    is final; after all earlier decisions, with its reward or with 0. Due decisions are learned at the next
    call of :meth:`choose`. An open decision counts in the posterior of Thompson sampling and of
    ``tacit.auto`` with named arms, but not as evidence of a change. A click on a learned decision, while its
    window lasts, is learned as an additional success. So only clicks need to be sent.

    Use one window per learner, and choose and learn only through it. Not safe for use from several threads
    at once. Times do not decrease: an earlier time counts as the latest one so far.

    Parameters
    ----------
    learner : Learner
    seconds : float
        Length of the window; later feedback is not learned. Choose it so that hardly any click comes
        later; a window that is too long costs memory, but hardly any time.

    Attributes
    ----------
    learner : Learner

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.auto(arms=["film", "holiday"]), seed=1)
    >>> window = tacit.FeedbackWindow(learner, seconds=60)
    >>> first = window.choose("independence day", time=0.0)
    >>> second = window.choose("independence day", time=1.0)
    >>> window.feedback(second, time=3.0)  # a click: it waits for the decision before it
    'pending'
    >>> window.advance(61.0)  # what choose does by itself: the first was not clicked
    2
    >>> window.feedback(second.id, time=62.0), window.feedback(first, time=62.0), window.open_count
    ('late', 'late', 0)
    """

    def __init__(self, learner: Learner[ArmT_co], *, seconds: float) -> None:
        """Create a window without decisions, and prepare the learner for it.

        The learner's counts of open decisions become 0. It no longer warns of rewards that are never 0, or of
        decisions learned out of order, as the window sees to both.
        """
        if not isinstance(learner, Learner):
            raise InvalidValue("learner", learner, "give a tacit.Learner")
        checks.number("seconds", seconds, 1e-3, MAX_SECONDS)
        if not learner.policy.reward_range.contains(0.0):
            remedy = f"without feedback a decision counts as 0, outside of {learner.policy.reward_range.text}"
            raise InvalidValue("learner", learner, f"{remedy}: call its learn when a reward comes")
        clear_open(learner)
        self._initialize(learner, round(seconds * MICROSECONDS))

    def _initialize(self, learner: Learner[ArmT_co], window: int) -> None:
        """Set all fields to those of a window without decisions, of ``window`` microseconds.

        The learner stops to warn of how it is used. Called for new and for loaded windows.
        """
        self.learner = learner
        learner.watch.stop()
        policy = learner.policy
        self._by_arm = policy.showing.single and policy.arms is not None
        self._delays = Delays.create(window, policy.arm_count if self._by_arm else 1)
        self._time = -1
        self._warned = False
        self._late_ages: list[int] | None = []
        self._open = WaitingDecisions(policy.feedback_width)
        self._policy: Any = None

    def __repr__(self) -> str:
        """Return a text with the window's length, the number of open decisions and the learning age."""
        seconds = int(self._delays.edges[-1]) / MICROSECONDS
        waiting = f"{self.open_count:,} decisions open, learned at an age of {self.learning_age:g} s"
        return f"<FeedbackWindow of {seconds:g} s: {waiting}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the window's length, the number of open decisions and the learning age."""
        about = {"seconds": int(self._delays.edges[-1]) / MICROSECONDS, "open": self.open_count}
        return html_table([{**about, "learned at": self.learning_age}])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the function and its argument, the window's file content, by which pickle copies a
        window.
        """
        return _unpickle, (self._to_bytes(),)

    @property
    def open_count(self) -> int:
        """Number of decisions that are not learned yet."""
        return int(self._open.queue.size[0] - self._open.queue.cursor[RELEASED])

    @property
    def learning_age(self) -> float:
        """The age in seconds at which decisions are learned now; before ten clicks, the window's length."""
        return compute_learning_age(self._delays, self._time) / MICROSECONDS

    @property
    def delays(self) -> dict[str, list[Any]]:
        """The distribution of click delays as columns: ``arm``, ``seconds`` and ``share``.

        ``share`` is the share of clicks that come within so many seconds, at 0 and at the end of each bin.
        ``arm`` is None if arms are not distinguished; an arm with few clicks is shrunk to the distribution of
        all arms.
        """
        arms = self.learner.offer.names if self._by_arm else (None,)
        ages = [0.0, *(self._delays.edges / MICROSECONDS).tolist()]
        shares = self._delays.curve[: len(arms)].ravel().tolist()
        names = [arm for arm in arms for _ in ages]
        return {"arm": names[: len(shares)], "seconds": (ages * len(arms))[: len(shares)], "share": shares}

    # Add decisions ---------------------------------------------------------------------------

    def choose(
        self,
        key: Key = checks.ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        time: Time | None = None,
        **features: Any,
    ) -> Decision[ArmT_co]:
        """Learn due decisions, then choose what to show for one impression, and keep the decision open for
        feedback.

        Parameters
        ----------
        key, context, arms, **features
            As for :meth:`Learner.choose`.
        time : float or datetime, optional
            In seconds since 1970, or with a time zone; by default now.
        """
        self.advance(time)
        decision = self.learner.choose(key, context, arms, **features)
        self._append([decision])
        return decision

    def choose_many(
        self,
        keys: Sequence[Key],
        contexts: npt.ArrayLike | None = None,
        arms: Sequence[Sequence[Arm] | None] | None = None,
        *,
        time: Time | None = None,
        **features: Any,
    ) -> Decisions[ArmT_co]:
        """Learn due decisions, then choose for many impressions, all at one time, and keep the decisions
        open.

        Parameters
        ----------
        keys, contexts, arms, **features
            As for :meth:`Learner.choose_many`.
        time : float or datetime, optional
            As for :meth:`choose`.
        """
        self.advance(time)
        decisions = self.learner.choose_many(keys, contexts, arms, **features)
        self._append(list(decisions))
        return decisions

    def add(self, decision: Decision | str, time: Time | None = None) -> Decision[Any]:
        """Learn due decisions, then add a decision that was not made by this window; return it as a
        ``Decision``.

        Decisions must be added in the order of time.

        Parameters
        ----------
        decision : Decision or str
            A decision of the learner, or of another learner with the same kind of policy; or its JSON from
            ``to_json``, as text that is not parsed.
        time : float or datetime, optional
            When it was made.

        Raises
        ------
        InvalidValue, UnknownName
            If the learner cannot learn it, or a decision with its id is open.
        """
        if isinstance(decision, str | bytes):
            decision = Decision.from_json(decision)
        require_decision(decision)
        _check_learnable(self.learner, [decision])
        if self._open.find(decision.id) >= self._open.closed:
            remedy = "a decision of this id is open; give each decision once"
            raise InvalidValue("decision", decision.id, remedy)
        self.advance(time)
        self._append([decision])
        return decision

    def _append(self, decisions: Sequence[Decision[Any]]) -> None:
        """Store decisions as open, and append them to the queue as made at the window's present time."""
        first, count = self._open.add(decisions), len(decisions)
        lanes, open_feedback = self.learner.lanes.lane_of_key, self._open.open_feedback
        open_feedback.lane[first : first + count] = [lanes[decision.key] for decision in decisions]
        open_feedback.arm[first : first + count] = [
            decision.slots[0] if self._by_arm else -1 for decision in decisions
        ]
        self._run(self._loops().enqueue, count, self._time)

    # Join feedback ---------------------------------------------------------------------------

    def feedback(
        self, decision: Decision | int | str, reward: float | Sequence[float] = 1.0, time: Time | None = None
    ) -> Status:
        """Join feedback to a decision and return its status; the window's time advances to ``time``.

        Only feedback on an already learned decision is learned at once; other feedback waits until it is due.

        Parameters
        ----------
        decision : Decision, int or str
            The decision, its id, or its JSON.
        reward : float or sequence of float, default 1.0
            As for :meth:`Learner.learn`. A reward of 0 need not be sent; if it is, the decision is final and
            is learned sooner. Clicks on a list may be sent one by one.
        time : float or datetime, optional
            When the feedback came; by default now.

        Returns
        -------
        str
            ``pending``: it is learned when the decision is due. ``learned``: the decision was already learned
            as 0, and this is learned as an additional success. ``repeated``: the decision had feedback
            before, which stays. ``late``: the window has closed, or a list was learned with other clicks; the
            feedback is not learned. ``unknown``: the window has no such decision, which is warned of once.
        """
        source = _read_decision(decision)
        id = source if isinstance(source, int) else source.id
        now = _read_time(time)
        place = self._open.find(id)
        is_open = place >= self._open.closed
        if is_open:
            open_decision = self._open.rows[place]
            # Up to the epoch: the window keeps lean decisions, without some features.
            if not isinstance(source, int) and source[:5] != open_decision[:5]:
                remedy = f"its number is that of another one here, {open_decision}; give it to its own window"
                raise InvalidValue("decision", source, remedy)
            values = self.learner.decision_reader.read_feedback("reward", [reward], [open_decision])
            refuse_unfilled("reward", values, open_decision.slots[None])
        self._time = max(self._time, now)
        if id > self._open.newest:
            return self._refuse_unknown(id)
        age = self._time - int(self._open.queue.start[place]) if place >= 0 else int(self._delays.edges[-1])
        if not is_open or age >= self._delays.edges[-1]:
            return self._refuse_late(age)
        return self._join(place, values[0], age)

    def feedback_many(
        self,
        decisions: Sequence[Decision | int | str],
        rewards: npt.ArrayLike | None = None,
        times: Sequence[Time] | npt.NDArray[Any] | None = None,
    ) -> list[Status]:
        """Join feedback to many decisions, one after the other as by :meth:`feedback`; return their statuses.

        The feedback must be in the order of time.

        Parameters
        ----------
        decisions : sequence of Decision, int or str
        rewards : array of float, shape (decisions,) or, for lists, (decisions, positions), optional
            By default 1 for each.
        times : sequence of float or datetime, optional
            By default now.

        Returns
        -------
        list of str
            The status of each, as of :meth:`feedback`.
        """
        count = len(decisions)
        reward_list: list[Any] = [1.0] * count if rewards is None else list(checks.as_list(rewards))
        moments: list[Any] = [None] * count if times is None else list(times)
        for field, values in ("rewards", reward_list), ("times", moments):
            if len(values) != count:
                raise InvalidValue(field, len(values), f"give one for each of {count} decisions")
        rows = zip(decisions, reward_list, moments, strict=True)
        return [self.feedback(*row) for row in rows]

    def _join(self, place: int, values: Floats, delay: int) -> Status:
        """Record feedback on the decision at ``place`` of the queue, whose window is open; return the status.

        ``values`` has a reward for each position, ``delay`` is in microseconds. The feedback waits until the
        decision is due, except a click on a decision that was already learned as 0: it is learned at once.
        Status and effects are listed at :meth:`feedback`.
        """
        self._late_ages = None
        before, listed = self._open.rewards[place], len(values) > 1
        is_first, is_open = math.isnan(before[0]), place >= self._open.queue.cursor[RELEASED]
        more = values if is_first else np.maximum(before, values)
        if not is_first and (not listed or (more == before).all()):
            return "repeated"
        if not is_open and not is_first:
            return "late"
        default, to_unit = self._default_reward, self.learner.policy.reward_range.to_unit
        # The click's weight in the distribution of delays: the largest reward, scaled to [0, 1]; 1
        # where no feedback is not the least reward, as for duels.
        amount = 0.0 if (more == default).all() else 1.0 if to_unit(default) else float(to_unit(more.max()))
        self._open.rewards[place] = more
        # More clicks on a list may come.
        final = not listed or amount == 0.0
        loops, learner = self._loops(), self.learner
        loops.record(loops.params, learner.state, self._open.open_feedback, place, delay, amount, final)
        if is_open:
            return "pending"
        if amount:
            _learn(learner, [self._open.rows[place]], more[None])
        return "learned"

    @property
    def _default_reward(self) -> float:
        """The reward that is learned without feedback: 0, or 0.5 (a tie) for duels."""
        return 0.5 if self.learner.policy.showing.compared else 0.0

    def _refuse_late(self, age: int) -> Status:
        """Return ``late``; warn if the first 100 feedbacks were all late.

        ``age`` is that of the decision in microseconds, or the window's length if it is not known.
        """
        if self._late_ages is not None:
            self._late_ages.append(age)
            if len(self._late_ages) == WATCHED_COUNT:
                ages = sorted(self._late_ages)[WATCHED_COUNT // 2], int(self._delays.edges[-1])
                self._late_ages, (typical, window) = None, (age / MICROSECONDS for age in ages)
                late = f"time: the first {WATCHED_COUNT} feedbacks all came late, most {typical:g} s or more"
                remedy = "give times and the window in seconds, or a longer window"
                message = f"{late} after their decision, and the window is of {window:g} s; {remedy}"
                warnings.warn(message, AssumptionWarning, stacklevel=3)
        return "late"

    def _refuse_unknown(self, id: int) -> Status:
        """Return ``unknown``, the status of an id larger than all so far; warn of the first one."""
        if not self._warned:
            self._warned = True
            message = f"decision: {id} is not of this window; choose by it, or give it decisions by add"
            warnings.warn(message, AssumptionWarning, stacklevel=3)
        return "unknown"

    # Learn due decisions ---------------------------------------------------------------------

    def advance(self, time: Time | None = None) -> int:
        """Advance the window's time, learn the decisions that are due by then, and return their number.

        :meth:`choose` calls this. Do not call it while no decisions are made: until the next decision, more
        clicks may come for those that are due.

        Parameters
        ----------
        time : float or datetime, optional
            In seconds since 1970, or with a time zone; by default now. An earlier time changes nothing.
        """
        self._time = max(self._time, _read_time(time))
        return self._learn_due(everything=False)

    def flush(self) -> int:
        """Learn all open decisions with their feedback so far, as at the end of a log; return their number.

        Decisions without feedback are learned as 0.
        """
        return self._learn_due(everything=True)

    def _learn_due(self, everything: bool) -> int:
        """Learn the decisions that are due, or all open ones if ``everything``; return their number.

        They are learned in the order in which they were made. Without feedback the reward is 0, or 0.5 for
        duels. Decisions whose window has closed are forgotten.
        """
        if not len(self._open):
            return 0
        first = int(self._open.queue.cursor[RELEASED])
        end: int = self._run(self._loops().release, self._time, everything)
        if end > first:
            rewards = self._open.rewards[first:end]
            rewards = np.where(np.isnan(rewards), self._default_reward, rewards)
            learner, decisions = self.learner, self._open.rows[first:end]
            if len(decisions) == 1:
                learner.learn(decisions[0], rewards[0] if rewards.size > 1 else rewards.item())
            else:
                _learn(learner, decisions, rewards)
                learner.watch.record_many(decisions, rewards, learner.decisions, len(learner))
        self._open.close()
        return end - first

    def _run(self, loop: Any, *arguments: Any) -> Any:
        """Call a compiled loop with the policy's params and state, the window's arrays, and ``arguments``;
        return its result.
        """
        params, state = self._compiled.params, self.learner.state
        return loop(params, state, self._delays, self._open.queue, self._open.open_feedback, *arguments)

    def _loops(self) -> _Loops:
        """Return the compiled loops for the learner's present policy.

        Loops are compiled at the first call, and again if the learner's policy has been replaced, as by one
        with more arms; then the distribution of delays is enlarged to as many arms.
        """
        policy = self.learner.policy
        if self._policy is not policy:
            params = policy.params
            if self._by_arm and policy.arm_count > len(self._delays.clicks):
                self._delays = enlarge_delays(self._delays, policy.arm_count)
            # Example arguments: loops are compiled for their types, whatever their values.
            before = params, self.learner.state
            queue = *before, self._delays, self._open.queue, self._open.open_feedback
            row = *before, self._open.open_feedback, 0, 0, 1.0, True
            self._compiled = _Loops(
                params,
                compile_loop(enqueue_rows, params).entry((*queue, 1, 0)),
                compile_loop(release_due, params).entry((*queue, 0, False)),
                compile_loop(record_feedback, params).entry(row),
            )
            self._policy = policy
        return self._compiled

    # The file of a window --------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the window with its open decisions, and its learner, to one file; loading it continues
        exactly.

        The file holds arrays and JSON; it replaces an older file only when complete.
        """
        replace_file(checks.path(path), [self._to_bytes()])

    @classmethod
    def load(cls, path: str | Path) -> FeedbackWindow[Any]:
        """Load a window and its learner from a file that :meth:`save` wrote.

        The file cannot cause any code to run.

        Raises
        ------
        SnapshotError
            If the file is damaged, truncated, of another format or of a newer version.
        """
        place = checks.path(path)
        return _from_bytes(read_file(place), str(place))

    def _to_bytes(self) -> bytes:
        """Return the content of the window's file: a zip archive of a header, the learner's snapshot, the
        open decisions as JSON, and arrays.

        Closed decisions are dropped from the window's arrays first.
        """
        self._open.reserve(0)
        header = {
            "format": FORMAT,
            "version": VERSION,
            "time": self._time,
            "newest": self._open.newest,
            "window": int(self._delays.edges[-1]),
            "classes": len(self._delays.clicks),
        }
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            texts = {WINDOW_HEADER: header, DECISIONS: [decision.to_json() for decision in self._open.rows]}
            for name, values in texts.items():
                with archive.open(name, "w") as member:
                    member.write(json.dumps(values).encode())
            with archive.open(LEARNER, "w") as member:
                member.writelines(iter_pieces(make_snapshot(self.learner)))
            for name, array in self._arrays():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
        return content.getvalue()

    def _arrays(self) -> list[tuple[str, Any]]:
        """Return pairs of name and array for all arrays of the window's file."""
        return [*leaves(self._delays, "delays."), *self._open.arrays()]


def _read_decision(decision: Any) -> Decision | int:
    """Return a decision, passed as it is or as its JSON text, or the id, passed as a number or text.

    Raises InvalidValue for anything else.
    """
    if isinstance(decision, str | bytes):
        is_id = len(decision) < 20 and decision.isascii() and decision.isdigit()
        return int(decision) if is_id else Decision.from_json(decision)
    return decision if type(decision) is Decision else checks.integer("decision", decision, 0)


def _read_time(time: Time | None) -> int:
    """Return a time in whole microseconds since 1970; now if None.

    Raises InvalidValue for a datetime without time zone, or seconds outside of 0 to 2**42. A NumPy datetime64
    is UTC and is not checked.
    """
    if time is None:
        return round(clock.time() * MICROSECONDS)
    if isinstance(time, np.datetime64):
        return int(time.astype("datetime64[us]").astype(np.int64))
    seconds = time.timestamp() if isinstance(time, datetime) and time.tzinfo is not None else time
    try:
        return round(checks.number("time", seconds, 0.0, MAX_TIME) * MICROSECONDS)
    except InvalidValue:
        remedy = "give seconds since 1970, or a datetime with a time zone"
        raise InvalidValue("time", time, remedy) from None


def _check_learnable(learner: Learner, decisions: list[Decision]) -> None:
    """Raise InvalidValue or UnknownName if a learner cannot learn one of the decisions; learn nothing."""
    for decision in decisions:
        batch, _, propensities, _ = learner.decision_reader.read_columns([decision])
        check_propensities(learner, propensities, batch.stops - batch.starts)


def _learn(learner: Learner, decisions: list[Decision], values: Floats) -> None:
    """Learn validated decisions with their rewards in their order; ``values`` has a row for each decision."""
    batch, actions, propensities, epochs = learner.decision_reader.read_columns(decisions)
    unit_values = learner.policy.reward_range.to_unit(values)
    learner.learn_rows(batch, actions, unit_values, propensities, epochs)


def _restore(window: FeedbackWindow[Any], archive: StoredArchive, header: dict[str, Any]) -> None:
    """Fill a window that has none with the open decisions, time and arrays of a file.

    The window has its learner already. Raises an exception of any type if the file's content is invalid; the
    caller makes it a SnapshotError.
    """
    decisions = [Decision.from_json(decision) for decision in json.loads(archive.read(DECISIONS))]
    _check_learnable(window.learner, decisions)
    window._delays = Delays.create(int(header["window"]), int(header["classes"]))
    window._open.restore(decisions)
    window._time, window._open.newest = int(header["time"]), int(header["newest"])
    for name, array in window._arrays():
        array[...] = read_array(archive, name, array)
    cursor, size, open_feedback = window._open.queue.cursor, len(decisions), window._open.open_feedback
    if (cursor < 0).any() or (cursor > size).any():
        raise ValueError("cursor is out of range")
    lanes = [window.learner.lanes.lane_of_key[decision.key] for decision in decisions]
    open_feedback.arm[:size] = [decision.slots[0] if window._by_arm else -1 for decision in decisions]
    # Released decisions, before the cursor, are learned, and count as open no more.
    open_feedback.lane[:size] = np.where(np.arange(size) < cursor[RELEASED], -1, lanes)


def _from_bytes(content: bytes, source: str) -> FeedbackWindow[Any]:
    """Return the window that a file's content holds; raise SnapshotError if it is not valid.

    ``source`` names the file in the error.
    """
    remedy = "give a file that its save wrote; Learner.load reads a learner's"
    foreign = SnapshotError(f"{source}: foreign: this is no feedback window; {remedy}")
    if not content.startswith(b"PK\x03\x04"):
        raise foreign
    try:
        with StoredArchive(content) as archive:
            if WINDOW_HEADER not in archive.namelist():
                raise foreign
            archive.refuse_inflating()
            header = json.loads(archive.read(WINDOW_HEADER))
            if header["version"] > VERSION:
                raise SnapshotError(f"{source}: newer: of version {header['version']}; update tacit")
            window: FeedbackWindow[Any] = FeedbackWindow.__new__(FeedbackWindow)
            learner: Learner[Any] = from_bytes(archive.read(LEARNER), source, restore_learner)
            window._initialize(learner, int(header["window"]))
            _restore(window, archive, header)
            return window
    except SnapshotError:
        raise
    except Exception as error:
        # A damaged archive makes zipfile and NumPy raise almost anything.
        raise SnapshotError(f"{source}: damaged: {error}") from error


def _unpickle(content: bytes) -> FeedbackWindow[Any]:
    """Return the window whose file content a pickle holds."""
    return _from_bytes(content, "pickle")
