"""Impressions and rewards of each arm by time: fine recent periods, coarse old ones."""

# Sums by the time of the decision, in periods that get wider as they age, so that the size is bounded:
# ``_add`` finds the period of a time, ``sum_periods`` merges the periods of a time range.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints

SECOND, MINUTE = 1_000_000, 60_000_000
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE
WIDTHS = (5 * SECOND, MINUTE, 15 * MINUTE, 2 * HOUR)
RETAINED_COUNTS = (6, 5, 13, 85)
"""Age up to which each width is used, in periods of the next width: at least five minutes, an hour, a
day and a week."""
STEPS = (
    *(n * SECOND for n in (5, 15, 30)), *(n * MINUTE for n in (1, 5, 15, 30)),
    *(n * HOUR for n in (1, 2, 4, 12, 24)),
)  # fmt: skip
MAX_OLD = 128
FOREVER = 2**62

# Columns: sums of the reward r, of the importance weight w and of their products; number of decisions; then
# impressions and rewards of each arm.
R, W, WW, WR, WWR, WWRR, DECISIONS, FIRST_ARM = range(8)
REWARDED = R, WR, WWR, WWRR


class PeriodSums(NamedTuple):
    """Sums over consecutive periods.

    Attributes
    ----------
    begins, ends : array of int64, shape (periods,)
        Microseconds since 1970.
    sums : array of float64, shape (periods, columns)
    """

    begins: Ints
    ends: Ints
    sums: Floats


class ArmResults:
    """Sums by the time of the decision, in periods whose width grows with their age.

    Periods are 5 seconds wide in the last five minutes, 1 minute in the last hour, 15 minutes in the last
    day, 2 hours in the last week; older decisions are in at most 128 periods.

    Parameters
    ----------
    arms : int
        Number of arms.

    Attributes
    ----------
    seq, time : int
        First row of the log that counts, and its time; snapshots of earlier versions lack the rows before.
    last : int
        Time of the last decision.

    Examples
    --------
    >>> results = ArmResults(arms=2)
    >>> for minute in range(3000):
    ...     row = results.find_row(minute * MINUTE)
    ...     row[[DECISIONS, FIRST_ARM + 2 * (minute % 2)]] += 1.0
    >>> hour = results.sum_periods(2940 * MINUTE, 3000 * MINUTE, 60)
    >>> len(hour.begins), get_impressions(hour.sums).sum(axis=0)
    (60, array([30., 30.]))
    >>> results.sum_periods(0, 3000 * MINUTE, 60).sums[:, DECISIONS].sum()
    np.float64(3000.0)
    """

    def __init__(self, arms: int) -> None:
        """Begin without periods."""
        self._columns = FIRST_ARM + 2 * arms
        self._rows: list[dict[int, Floats]] = [{} for _ in (*WIDTHS, DAY)]
        self._widths = [*WIDTHS, DAY]
        # Periods before these times have the next width.
        self._oldest_begins = [0] * len(WIDTHS)
        self._next_merge = 0
        self.seq = self.time = self.last = 0

    def extend_arms(self, arms: int) -> None:
        """Add columns of zeros for new arms to all periods; fewer arms than before change nothing."""
        extra = FIRST_ARM + 2 * arms - self._columns
        if extra > 0:
            self._columns += extra
            for rows in self._rows:
                for period, row in rows.items():
                    rows[period] = np.pad(row, (0, extra))

    def advance(self, time: int) -> None:
        """Merge periods that are old at ``time`` into wider ones; at most once a minute, else nothing.

        While there are more than 128 periods of the widest kind, their width doubles.
        """
        if time < self._next_merge:
            return
        self._next_merge = (time // MINUTE + 1) * MINUTE
        for level, count in enumerate(RETAINED_COUNTS):
            wider = self._widths[min(level + 1, len(WIDTHS) - 1)]
            # ``count`` periods of the next width, with the present one, are still kept at this level.
            self._oldest_begins[level] = max((time // wider - count + 1) * wider, 0)
            rows, width = self._rows[level], self._widths[level]
            for period in sorted(p for p in rows if p * width < self._oldest_begins[level]):
                self._add(level + 1, period * width, rows.pop(period))
        while len(old := self._rows[-1]) > MAX_OLD:
            self._widths[-1] *= 2
            self._rows[-1] = {}
            for period in sorted(old):
                self._add(-1, period * self._widths[-1] // 2, old[period])

    def _add(self, level: int, time: int, row: Floats) -> None:
        """Add a row of sums to the period that contains ``time`` and has the width of a level."""
        rows, period = self._rows[level], time // self._widths[level]
        if period in rows:
            # Not in place: a reader's copy would count the row twice.
            rows[period] = rows[period] + row
        else:
            rows[period] = row.copy()

    def find_row(self, time: int) -> Floats:
        """Return the sums of the period that contains the time, as an array to change in place.

        A new period begins with zeros.
        """
        level = 0
        if time < self._oldest_begins[0]:
            level = next((i for i, since in enumerate(self._oldest_begins) if time >= since), -1)
        rows, period = self._rows[level], time // self._widths[level]
        row = rows.get(period)
        if row is None:
            row = rows[period] = np.zeros(self._columns)
        return row

    def count_decisions(self, time: int, count: int) -> Floats:
        """Count decisions of the same time in the sums of their period; old periods are merged first.

        Returns
        -------
        array of float64, shape (columns,)
            Sums of their period, to which the caller adds the impressions.
        """
        if time >= self._next_merge:
            self.advance(time)
        self.last = time
        row = self.find_row(time)
        row[DECISIONS] += count
        return row

    def count_reward(self, time: int, arm_index: int | None, amounts: Sequence[float]) -> None:
        """Add a reward to the period of its decision.

        Parameters
        ----------
        time : int
        arm_index : int or None
            Index of the rewarded arm; None if there is no single arm.
        amounts : sequence of float
            The reward; also its products with the weight, if the weight is known.
        """
        row = self.find_row(time)
        for column, amount in zip(REWARDED, amounts, strict=False):
            row[column] += amount
        if arm_index is not None:
            row[FIRST_ARM + 2 * arm_index + 1] += amounts[0]

    def sum_range(self, begin: int, end: int = FOREVER) -> Floats:
        """Return the sums over all periods that begin in [begin, end), one for each column."""
        rows = [row for time, _, row in self._list_periods() if begin <= time < end]
        return np.sum(rows, axis=0) if rows else np.zeros(self._columns)

    def _list_periods(self) -> list[tuple[int, int, Floats]]:
        """Return (begin, end, sums) of every period with a decision, by time."""
        periods = [
            (period_number * width, (period_number + 1) * width, row)
            for rows, width in zip(self._rows, self._widths, strict=True)
            for period_number, row in rows.items()
        ]
        return sorted(periods, key=lambda period: period[:2])

    def sum_periods(self, begin: int, end: int, most: int) -> PeriodSums:
        """Return the sums of at most ``most`` periods of equal width in a time range, without empty ones.

        Parameters
        ----------
        begin, end : int
            Periods that begin within [begin, end) count as a whole.
        most : int
            Maximum number of periods.
        """
        periods = [period for period in self._list_periods() if begin <= period[0] < end]
        # Periods cannot be split, so all results are at least as wide as the widest period.
        width = max((b - begin_time for begin_time, b, _ in periods), default=WIDTHS[0])
        first, last = (periods[0][0], periods[-1][1]) if periods else (begin, end)
        # Periods begin at multiples of their width; the number of them is rounded up.
        width = next(w for w in _iterate_widths(width) if -(-(last - first // w * w) // w) <= most)
        joined: dict[int, Floats] = {}
        for begin_time, _, row in periods:
            joined[begin_time // width] = joined.get(begin_time // width, 0.0) + row
        sums = np.array(list(joined.values())).reshape(len(joined), self._columns)
        begins = np.array(list(joined), np.int64) * width
        return PeriodSums(begins, begins + width, sums)

    def merge(self, other: ArmResults) -> None:
        """Add the sums of another object with the same arms, such as another shard's, to this one."""
        # Up to the last time of both, so that equal periods have equal widths.
        self.advance(max((b for _, b, _ in other._list_periods()), default=0) - 1)
        for begin_time, _, row in other._list_periods():
            self.find_row(begin_time)[: len(row)] += row
        self.last = max(self.last, other.last)
        if other.time:
            self.time = min(filter(None, (self.time, other.time)))

    def read_copy(self) -> ArmResults:
        """Return a copy for reader threads, with arrays shared as in :meth:`Series.read_copy`."""
        reader_copy = copy(self)
        reader_copy._rows = [dict(rows) for rows in self._rows]
        return reader_copy

    def save_state(self) -> dict[str, Any]:
        """Return all fields and sums as JSON data, for :meth:`restore`."""
        return {
            "seq": self.seq,
            "time": self.time,
            "last": self.last,
            "widths": list(self._widths),
            "since": list(self._oldest_begins),
            "next": self._next_merge,
            "columns": self._columns,
            "rows": [[[p, rows[p].tolist()] for p in sorted(rows)] for rows in self._rows],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Replace all fields and sums by the output of :meth:`save_state`."""
        self.seq, self.time, self.last = saved["seq"], saved["time"], saved["last"]
        self._widths, self._oldest_begins = list(saved["widths"]), list(saved["since"])
        self._next_merge, self._columns = saved["next"], saved["columns"]
        self._rows = [{period: np.array(row) for period, row in rows} for rows in saved["rows"]]


def _iterate_widths(width: int) -> Iterator[int]:
    """Yield the allowed widths of at least ``width``, without end.

    Each is a multiple of the finer periods.
    """
    yield from (step for step in STEPS if step >= width)
    width = max(width, DAY)
    while True:
        width *= 2
        yield width


def get_impressions(sums: Floats) -> Floats:
    """Return a view of the columns of ``sums`` that hold each arm's impressions, shape (..., arms)."""
    return sums[..., FIRST_ARM::2]


def get_rewards(sums: Floats) -> Floats:
    """Return a view of the columns of ``sums`` that hold each arm's rewards, shape (..., arms)."""
    return sums[..., FIRST_ARM + 1 :: 2]
