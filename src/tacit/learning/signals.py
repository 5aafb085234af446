"""Signals of intent shifts, computed from a key's own stream of decisions; each is in [0, 1].

Search engines use the volume of a query, searches without a click, reformulations and new
results. Here these are computed from the stream of decisions and feedback: sums that decay
exponentially with two time constants, *fast* and *slow*, compare the present with the key's own
past. The cost per event does not depend on the length of the stream.

Let n and x be fast sums, N and X the corresponding slow sums, at the time t of a decision and
before it is counted, a the time since the key's first decision, and τ, T the constants:

=============  ====================================================================================
volume         (n + 1)/(n + e + 2), n the decisions and e = N·τ(1 − exp(−a/τ))/T(1 − exp(−a/T))
               the number expected by the slow average: ½ if unchanged, ⅘ if four times as many
abandonment    (x + 2p)/(n + 2), p = (X + 1)/(N + 2): the share of decisions with feedback but
               without a click, shrunk to the key's own past with a weight of 2
reformulation  the same for decisions with a session: the share that were followed, by the same
               session and within τ, by a decision on another key
new-arms       the mean over the arms on offer of exp(−(t − s)/T), s when the arm was first offered
               to the key; 0 for the arms of its first decision
since-shift    1 − exp(−(t − s)/T), s when the key last restarted; 1 if it never did
=============  ====================================================================================

References
----------
Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries", section 1,
names such signals; the formulas are our own.
"""

# 1. ``Scales``, ``KeyActivity``, ``SessionTable``, ``Arrivals``: arrays of keys, of sessions, of one batch.
# 2. ``fade`` and ``add``: decaying sums, brought to a time before they are read or incremented.
# 3. A function for each signal, in the order of the table above.
# 4. ``arrive_rows``, ``answer_rows``, ``shift_rows``: the loops; a row's signals are computed before it is
#    counted, so that no decision affects its own signals.
# 5. ``Signals``: the loops over a placement's keys, and its part of a snapshot.

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints, copy_to_larger, leaves, rebuild_state, trim_state
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compile_loop
from tacit.errors import InvalidValue, SnapshotError

VOLUME, ABANDONMENT, REFORMULATION, NEW_ARMS, SINCE_SHIFT = range(5)
NAMES = ("volume", "abandonment", "reformulation", "new-arms", "since-shift")

DECISIONS, ANSWERED, UNCLICKED, SESSIONS, REFORMULATED, COUNTS = range(6)
NEVER = -1
SPARE_LANES = 64
SESSION_PLACES = 65_536
"""Number of places for sessions; a session overwrites another one at the same place."""


class Scales(NamedTuple):
    """The time constants τ and T, in microseconds."""

    fast: float
    slow: float


class KeyActivity(NamedTuple):
    """Decayed counts of decisions and times of events, one row (lane) for each key.

    Attributes
    ----------
    first, time : array of int64, shape (lanes,)
        Time of the key's first decision, and the time to which the sums have decayed; −1 for never.
    fast, slow : array of float64, shape (lanes, 5)
        Decaying numbers of decisions; with feedback; without a click; with a session; followed by
        a decision of the session on another key.
    epoch : array of int64, shape (lanes,)
    shifts : array of int64, shape (lanes, 2)
        Times of the key's last restart and of the one before.
    offered : array of int64, shape (lanes, arms)
        When each arm was first offered to the key.
    """

    first: Ints
    time: Ints
    fast: Floats
    slow: Floats
    epoch: Ints
    shifts: Ints
    offered: Ints

    @classmethod
    def empty(cls, lanes: int, arms: int) -> KeyActivity:
        """Return rows for ``lanes`` keys without decisions: all counts are 0, all times −1 (never)."""
        return cls(
            first=np.full(lanes, NEVER),
            time=np.full(lanes, NEVER),
            fast=np.zeros((lanes, COUNTS)),
            slow=np.zeros((lanes, COUNTS)),
            epoch=np.zeros(lanes, np.int64),
            shifts=np.full((lanes, 2), NEVER),
            offered=np.full((lanes, arms), NEVER),
        )


class SessionTable(NamedTuple):
    """The latest decision of each session, at the place of its number modulo the table's size.

    Attributes
    ----------
    number, lane, time : array of int64, shape (places,)
        The session (0 for none), the lane of its latest decision, and its time.
    """

    number: Ints
    lane: Ints
    time: Ints

    @classmethod
    def zeros(cls, places: int) -> SessionTable:
        """Return a table of ``places`` places without sessions."""
        return cls(*np.zeros((3, places), np.int64))


class Arrivals(NamedTuple):
    """Decisions as columns, in their order.

    Attributes
    ----------
    lanes, times : array of int64, shape (rows,)
    sessions : array of int64, shape (rows,)
        Numbers of sessions; 0 if unknown.
    counted : array of bool, shape (rows,)
        Whether to count the decision, or only to compute its signals.
    arms, starts, stops : array of int64
        Row i was offered ``arms[starts[i]:stops[i]]``.
    """

    lanes: Ints
    times: Ints
    sessions: Ints
    counted: Booleans
    arms: Ints
    starts: Ints
    stops: Ints


@kernel
def fade(lanes: KeyActivity, scales: Scales, lane: int, time: int) -> None:
    """Decay all sums of a lane to ``time`` (µs), in place; do nothing if its sums are of a later time."""
    since = time - lanes.time[lane]
    if lanes.time[lane] == NEVER or since <= 0:
        lanes.time[lane] = max(lanes.time[lane], time)
        return
    fast, slow = np.exp(-since / scales.fast), np.exp(-since / scales.slow)
    for i in range(COUNTS):
        lanes.fast[lane, i] *= fast
        lanes.slow[lane, i] *= slow
    lanes.time[lane] = time


@kernel
def add(lanes: KeyActivity, scales: Scales, lane: int, column: int, ago: int) -> None:
    """Add one event, which happened ``ago`` microseconds before the lane's time, to its fast and slow sum
    ``column``.

    An earlier event counts less than one, as it has decayed since.
    """
    lanes.fast[lane, column] += np.exp(-ago / scales.fast)
    lanes.slow[lane, column] += np.exp(-ago / scales.slow)


@kernel
def compute_volume(lanes: KeyActivity, scales: Scales, lane: int, time: int) -> float:
    """Return the signal ``volume`` of a lane at ``time``: the number of decisions relative to the key's past.

    It is 1/2 if traffic is unchanged, and near 1 if it has grown much.
    """
    count, expected = lanes.fast[lane, DECISIONS], lanes.slow[lane, DECISIONS]
    age = time - lanes.first[lane]
    if lanes.first[lane] != NEVER and age > 0:
        # The sums of a steady stream of this age, up to a factor: they make the slow count comparable.
        fast = -scales.fast * np.expm1(-age / scales.fast)
        slow = -scales.slow * np.expm1(-age / scales.slow)
        expected *= fast / slow
    return float((count + 1.0) / (count + expected + 2.0))


@kernel
def compute_share(lanes: KeyActivity, lane: int, part: int, whole: int) -> float:
    """Return the ratio of two fast sums of a lane, ``part`` to ``whole``, shrunk to the ratio of its slow
    sums.

    This is the signal ``abandonment`` or ``reformulation``.
    """
    # Two added decisions: in the slow ratio half of them are in ``part``, in the fast one that ratio of them.
    past = (lanes.slow[lane, part] + 1.0) / (lanes.slow[lane, whole] + 2.0)
    return float((lanes.fast[lane, part] + 2.0 * past) / (lanes.fast[lane, whole] + 2.0))


@kernel
def compute_novelty(lanes: KeyActivity, scales: Scales, lane: int, time: int, arms: Ints) -> float:
    """Return the signal ``new-arms``: the mean novelty of the arms on offer; 0 for a key's first decision.

    An arm's novelty is 1 when it is first on offer for the key, and decays exponentially; for arms of the
    key's first decision it is 0.
    """
    if lanes.first[lane] == NEVER or lanes.offered.shape[1] == 0:
        return 0.0
    total = 0.0
    for arm in arms:
        since = lanes.offered[lane, arm]
        if since == NEVER:
            total += 1.0
        elif since > lanes.first[lane]:
            total += np.exp(-(time - since) / scales.slow)
    return float(total / len(arms))


@kernel
def compute_calm(lanes: KeyActivity, scales: Scales, lane: int, time: int) -> float:
    """Return the signal ``since-shift``, which grows to 1 with the time since the key's last restart.

    Only restarts before ``time`` count; 1 if there was none.
    """
    latest = lanes.shifts[lane, 0]
    if latest >= time:
        latest = lanes.shifts[lane, 1]
    return 1.0 if latest == NEVER else float(-np.expm1(-(time - latest) / scales.slow))


@kernel
def count_session(
    lanes: KeyActivity, sessions: SessionTable, scales: Scales, lane: int, time: int, number: int
) -> None:
    """Count a decision of a session, and store it in the table as the session's latest one.

    If the session's previous decision was on another key, and recent, that decision counts as reformulated.
    """
    add(lanes, scales, lane, SESSIONS, 0)
    # The table's length is a power of two.
    place = number & (len(sessions.number) - 1)
    other_lane, ago = sessions.lane[place], time - sessions.time[place]
    if sessions.number[place] == number and other_lane != lane and ago <= scales.fast:
        fade(lanes, scales, other_lane, time)
        # At the time of the earlier decision, so that reformulations never exceed decisions.
        add(lanes, scales, other_lane, REFORMULATED, ago)
    sessions.number[place], sessions.lane[place], sessions.time[place] = number, lane, time


def arrive_rows(
    lanes: KeyActivity, sessions: SessionTable, scales: Scales, arrivals: Arrivals, signals: Floats
) -> None:
    """Fill ``signals``, shape (rows, 5), with the signals of each decision, then count the decision in
    ``lanes``.

    Counting adds to the sums, to the arms that were on offer for the key, and to the sessions. Rows that are
    not ``counted`` only let the sums decay.
    """
    for i in range(len(arrivals.lanes)):
        lane, time = arrivals.lanes[i], arrivals.times[i]
        arms = arrivals.arms[arrivals.starts[i] : arrivals.stops[i]]
        fade(lanes, scales, lane, time)
        signals[i, VOLUME] = compute_volume(lanes, scales, lane, time)
        signals[i, ABANDONMENT] = compute_share(lanes, lane, UNCLICKED, ANSWERED)
        signals[i, REFORMULATION] = compute_share(lanes, lane, REFORMULATED, SESSIONS)
        signals[i, NEW_ARMS] = compute_novelty(lanes, scales, lane, time, arms)
        signals[i, SINCE_SHIFT] = compute_calm(lanes, scales, lane, time)
        for k in range(signals.shape[1]):
            # Only by rounding can a signal be outside of [0, 1].
            signals[i, k] = min(max(signals[i, k], 0.0), 1.0)
        if not arrivals.counted[i]:
            continue
        if lanes.first[lane] == NEVER:
            # The first decision only starts the clock; it is no evidence of the volume.
            lanes.first[lane] = time
        else:
            add(lanes, scales, lane, DECISIONS, 0)
        if lanes.offered.shape[1] > 0:
            for arm in arms:
                if lanes.offered[lane, arm] == NEVER:
                    lanes.offered[lane, arm] = time
        if arrivals.sessions[i] != 0 and len(sessions.number) > 0:
            count_session(lanes, sessions, scales, lane, time, arrivals.sessions[i])


def answer_rows(lanes: KeyActivity, scales: Scales, rows: Ints, times: Ints, clicked: Booleans) -> None:
    """Count the feedback of decisions, a click or none, in the sums of ``lanes``.

    ``rows`` has the lane of each decision.
    """
    for i in range(len(rows)):
        fade(lanes, scales, rows[i], times[i])
        add(lanes, scales, rows[i], ANSWERED, 0)
        if not clicked[i]:
            add(lanes, scales, rows[i], UNCLICKED, 0)


def shift_rows(lanes: KeyActivity, rows: Ints, times: Ints, epochs: Ints) -> None:
    """Store the epochs of decisions in ``lanes``; an epoch that differs from the stored one is a restart at
    the row's time.

    ``rows`` has the lane of each decision.
    """
    for i in range(len(rows)):
        lane = rows[i]
        if epochs[i] != lanes.epoch[lane]:
            lanes.epoch[lane] = epochs[i]
            if times[i] > lanes.shifts[lane, 0]:
                lanes.shifts[lane, 1] = lanes.shifts[lane, 0]
                lanes.shifts[lane, 0] = times[i]


class Signals:
    """Compute signals from a stream of decisions and their feedback.

    The state depends only on the calls and their times, so replaying a stream gives the same
    signals. A lane takes 120 bytes, and 8 for each arm if ``new-arms`` is among the signals.

    Parameters
    ----------
    names : sequence of str
        The signals, out of :data:`NAMES`, in their order in contexts.
    arms : int
        Number of arms.
    fast, slow : float
        The time constants τ and T in seconds; slow is the larger one.

    Attributes
    ----------
    state : KeyActivity
        The sums of each lane (some may be spare).

    Raises
    ------
    InvalidValue
        If a signal does not exist or is repeated, or a constant is invalid.

    Examples
    --------
    >>> signals = Signals(["volume", "new-arms"], arms=3, fast=60, slow=3600)
    >>> for second in range(0, 600, 10):
    ...     _ = signals.arrive([0], 1_000_000 * second, arms=[[0, 1]])
    >>> for second in range(600, 660, 2):
    ...     values = signals.arrive([0], 1_000_000 * second, arms=[[0, 1, 2]])
    >>> values.round(2).tolist()
    [[0.7, 0.33]]
    """

    def __init__(self, names: Sequence[str], arms: int, fast: float, slow: float) -> None:
        """Validate the names and time constants (seconds), create an empty state, and compile the loops."""
        check_signals(names, fast, slow)
        self.names = tuple(names)
        self._columns = [NAMES.index(name) for name in names]
        self._scales = Scales(1e6 * fast, 1e6 * slow)
        self._arms = arms if "new-arms" in names else 0
        self.state = KeyActivity.empty(0, self._arms)
        self._sessions = SessionTable.zeros(SESSION_PLACES if self.follows_sessions else 0)
        self._prepare()

    def reserve_arms(self, arms: int) -> None:
        """Enlarge the state to ``arms`` arms; new arms were never on offer. Does nothing without the signal
        ``new-arms``.
        """
        if "new-arms" in self.names and arms > self._arms:
            self._arms = arms
            self.state = copy_to_larger(self.state, KeyActivity.empty(len(self.state.first), arms))

    def _prepare(self) -> None:
        """Compile the loops, or load them from the cache, and store their entry points."""
        lanes, scales, none = self.state, self._scales, np.empty(0, np.int64)
        arrivals = self._arrivals(none, none, arms=None, sessions=None, counted=None)
        out = np.empty((0, len(NAMES)))
        self._arrive = compile_loop(arrive_rows).entry((lanes, self._sessions, scales, arrivals, out))
        self._answer = compile_loop(answer_rows).entry((lanes, scales, none, none, none > 0))
        self._shift = compile_loop(shift_rows).entry((lanes, none, none, none))

    @property
    def follows_sessions(self) -> bool:
        """True if any of the signals depends on sessions."""
        return "reformulation" in self.names

    def arrive(
        self,
        lanes: Sequence[int] | Ints,
        times: int | Sequence[int] | Ints,
        arms: Sequence[Sequence[int] | Ints] | None = None,
        sessions: Sequence[int] | None = None,
        counted: Sequence[bool] | None = None,
    ) -> Floats:
        """Return the signals of decisions, each just before it is counted, and count them in order.

        Parameters
        ----------
        lanes : sequence of int
            The lanes of their keys.
        times : int or sequence of int
            Microseconds; within a lane they never decrease.
        arms : sequence of sequence of int, optional
            Indices of the arms on offer for each; by default all.
        sessions : sequence of int, optional
            Numbers of 64 bits; 0 if unknown.
        counted : sequence of bool, optional
            False computes the signals without counting the decision.

        Returns
        -------
        array of float64, shape (rows, signals)
        """
        rows = np.asarray(lanes, np.int64)
        self._reserve_lanes(rows)
        when = np.broadcast_to(np.asarray(times, np.int64), rows.shape).copy()
        arrivals = self._arrivals(rows, when, arms, sessions, counted)
        out = np.empty((len(rows), len(NAMES)))
        self._arrive(self.state, self._sessions, self._scales, arrivals, out)
        signals: Floats = out[:, self._columns]
        return signals

    def _arrivals(
        self,
        lanes: Ints,
        times: Ints,
        arms: Sequence[Sequence[int] | Ints] | None,
        sessions: Sequence[int] | None,
        counted: Sequence[bool] | None,
    ) -> Arrivals:
        """Return decisions as columns; missing arguments mean all arms, no sessions, and that all are
        counted.
        """
        rows = len(lanes)
        if arms is None:
            offered, starts = np.arange(self._arms), np.zeros(rows, np.int64)
            stops = np.full(rows, self._arms)
        else:
            stops = np.cumsum([len(offer) for offer in arms], dtype=np.int64)
            starts = np.concatenate((np.zeros(1, np.int64), stops))[:rows]
            offered = np.concatenate(arms).astype(np.int64) if rows else np.arange(0)
        numbers = np.zeros(rows, np.int64) if sessions is None else np.array(sessions, np.int64)
        counts = np.ones(rows, np.bool_) if counted is None else np.array(counted, np.bool_)
        return Arrivals(lanes, times, numbers, counts, offered, starts, stops)

    def record_feedback(
        self, lanes: Sequence[int] | Ints, times: Sequence[int], clicked: Sequence[bool]
    ) -> None:
        """Count the feedback of decisions, a click or none, for later signals of ``abandonment``."""
        rows = np.array(lanes, np.int64)
        self._reserve_lanes(rows)
        outcomes = np.array(times, np.int64), np.array(clicked, np.bool_)
        self._answer(self.state, self._scales, rows, *outcomes)

    def record_epochs(self, lanes: Sequence[int] | Ints, times: Sequence[int], epochs: Sequence[int]) -> None:
        """Store the epochs of decisions; where a lane's epoch has changed, it restarted at that time (µs)."""
        rows = np.asarray(lanes, np.int64)
        self._reserve_lanes(rows)
        self._shift(self.state, rows, np.array(times, np.int64), np.array(epochs, np.int64))

    def _reserve_lanes(self, lanes: Ints) -> None:
        """Enlarge the state if it has fewer lanes than the largest of ``lanes`` needs."""
        lane_count, min_count = len(self.state.first), int(lanes.max(initial=-1)) + 1
        if min_count > lane_count:
            larger = KeyActivity.empty(max(SPARE_LANES, 2 * lane_count, min_count), self._arms)
            self.state = copy_to_larger(self.state, larger)

    # Snapshots -------------------------------------------------------------------------------

    def to_bytes(self, lanes: int) -> bytes:
        """Return the state of the first ``lanes`` lanes and the sessions as the bytes of a NumPy archive."""
        self._reserve_lanes(np.array([lanes - 1]))
        state = trim_state(self.state, KeyActivity.empty(lanes, self._arms))
        buffer = io.BytesIO()
        places = np.flatnonzero(self._sessions.number)
        sessions = {f"session-{n}": array[places] for n, array in leaves(self._sessions)}
        np.savez(buffer, allow_pickle=False, places=places, **dict(leaves(state)), **sessions)
        return buffer.getvalue()

    def restore(self, content: bytes) -> None:
        """Replace the state and the sessions by those in a result of :meth:`to_bytes`.

        Raises
        ------
        SnapshotError
            If it is damaged, or of other signals.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as saved:
                like = KeyActivity.empty(len(saved["first"]), self._arms)
                arrays = [_check_array(saved[name], array) for name, array in leaves(like)]
                for name, array in leaves(self._sessions):
                    array[:] = 0
                    array[saved["places"]] = saved[f"session-{name}"]
        except Exception as error:
            # A damaged archive makes zipfile and NumPy raise almost anything.
            raise SnapshotError(f"signals: damaged: {error}") from error
        self.state = rebuild_state(like, iter(arrays))


def _check_array(array: Any, like: Any) -> Any:
    """Return an array if it has the shape and type of ``like``; raise ValueError otherwise."""
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(f"{array.dtype}{array.shape} in place of {like.dtype}{like.shape}")
    return array


def check_signals(names: Sequence[str], fast: float, slow: float) -> None:
    """Raise InvalidValue unless the names of signals and their time constants are valid.

    Raises
    ------
    InvalidValue
        If a signal does not exist or is repeated, or a constant is invalid.
    """
    for name in names:
        if name not in NAMES:
            raise InvalidValue("signals", name, f"give some of {', '.join(NAMES)}")
    if len(set(names)) < len(names):
        raise InvalidValue("signals", list(names), "name each signal once")
    checks.positive("signals_fast", fast)
    if checks.positive("signals_slow", slow) <= fast:
        raise InvalidValue("signals_slow", slow, f"give more than signals_fast, {fast:g} s")
