"""What every arm earned, finely for a short time and coarsely for a long one."""

# Sums by the time of the decision, in stretches that get wider as they age, so that the size is bounded:
# ``_add`` finds the stretch, ``between`` joins what a range of time covers.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints

SECOND, MINUTE = 1_000_000, 60_000_000
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE
WIDTHS = (5 * SECOND, MINUTE, 15 * MINUTE, 2 * HOUR)
KEPT = (6, 5, 13, 85)
"""For how many stretches of the next width each width is kept: five minutes, an hour, a day and a
week, at least."""
STEPS = (
    *(n * SECOND for n in (5, 15, 30)), *(n * MINUTE for n in (1, 5, 15, 30)),
    *(n * HOUR for n in (1, 2, 4, 12, 24)),
)  # fmt: skip
MOST_OLD = 128
FOREVER = 2**62

# Columns: sums of the reward r, the importance weight w and their products, and of decisions; then
# for each arm its impressions and its rewards.
R, W, WW, WR, WWR, WWRR, DECISIONS, FIRST_ARM = range(8)
REWARDED = R, WR, WWR, WWRR


class Stretches(NamedTuple):
    """Sums over stretches of time, one after the other.

    Attributes
    ----------
    begins, ends : array of int64, shape (stretches,)
        Microseconds since 1970.
    sums : array of float64, shape (stretches, columns)
    """

    begins: Ints
    ends: Ints
    sums: Floats


class Results:
    """Sums by the time of the decision: by minutes of the last hour (of its last five minutes, by
    five seconds), by quarters of an hour of the last day, by two hours of the last week, and of
    what was before in at most 128 stretches.

    An impression is in one stretch, and moves with it to a wider one as time goes by.

    Parameters
    ----------
    arms : int

    Attributes
    ----------
    seq, time : int
        The first row of the log that counts, and when it was; a snapshot of an earlier version
        knows nothing of the rows before it.
    last : int
        When the last decision was.

    Examples
    --------
    >>> results = Results(arms=2)
    >>> for minute in range(3000):
    ...     row = results.at(minute * MINUTE)
    ...     row[[DECISIONS, FIRST_ARM + 2 * (minute % 2)]] += 1.0
    >>> hour = results.between(2940 * MINUTE, 3000 * MINUTE, 60)
    >>> len(hour.begins), impressions(hour.sums).sum(axis=0)
    (60, array([30., 30.]))
    >>> results.between(0, 3000 * MINUTE, 60).sums[:, DECISIONS].sum()
    np.float64(3000.0)
    """

    def __init__(self, arms: int) -> None:
        self._columns = FIRST_ARM + 2 * arms
        self._rows: list[dict[int, Floats]] = [{} for _ in (*WIDTHS, DAY)]
        self._widths = [*WIDTHS, DAY]
        # Before these times, stretches are those of the next width.
        self._since = [0] * len(WIDTHS)
        self._next = 0
        self.seq = self.time = self.last = 0

    def reach(self, arms: int) -> None:
        """Make room for more arms."""
        more = FIRST_ARM + 2 * arms - self._columns
        if more > 0:
            self._columns += more
            for rows in self._rows:
                for place, row in rows.items():
                    rows[place] = np.pad(row, (0, more))

    def advance(self, time: int) -> None:
        """Let stretches that are old become wider ones."""
        if time < self._next:
            return
        self._next = (time // MINUTE + 1) * MINUTE
        for level, kept in enumerate(KEPT):
            wider = self._widths[min(level + 1, len(WIDTHS) - 1)]
            self._since[level] = max((time // wider - kept + 1) * wider, 0)
            rows, width = self._rows[level], self._widths[level]
            for place in sorted(p for p in rows if p * width < self._since[level]):
                self._add(level + 1, place * width, rows.pop(place))
        while len(old := self._rows[-1]) > MOST_OLD:
            self._widths[-1] *= 2
            self._rows[-1] = {}
            for place in sorted(old):
                self._add(-1, place * self._widths[-1] // 2, old[place])

    def _add(self, level: int, time: int, row: Floats) -> None:
        rows, place = self._rows[level], time // self._widths[level]
        if place in rows:
            # Not in place: a reader of a copy of these would count the row twice.
            rows[place] = rows[place] + row
        else:
            rows[place] = row.copy()

    def at(self, time: int) -> Floats:
        """Return the sums over the stretch of a time, to be added to."""
        level = 0
        if time < self._since[0]:
            level = next((i for i, since in enumerate(self._since) if time >= since), -1)
        rows, place = self._rows[level], time // self._widths[level]
        row = rows.get(place)
        if row is None:
            row = rows[place] = np.zeros(self._columns)
        return row

    def decided(self, time: int, count: int) -> Floats:
        """Count decisions that were made at the same time.

        Returns
        -------
        array of float64, shape (columns,)
            The sums to which what they showed is to be added.
        """
        if time >= self._next:
            self.advance(time)
        self.last = time
        row = self.at(time)
        row[DECISIONS] += count
        return row

    def rewarded(self, time: int, slot: int | None, amounts: Sequence[float]) -> None:
        """Count a reward by the time of its decision.

        Parameters
        ----------
        time : int
        slot : int or None
            Of the arm that earned it, if a single one did.
        amounts : sequence of float
            The reward; where its weight is known, its products with that, too.
        """
        row = self.at(time)
        for column, amount in zip(REWARDED, amounts, strict=False):
            row[column] += amount
        if slot is not None:
            row[FIRST_ARM + 2 * slot + 1] += amounts[0]

    def over(self, begin: int, end: int = FOREVER) -> Floats:
        """Return the sums over all stretches that begin within [begin, end)."""
        found = [row for time, _, row in self._stretches() if begin <= time < end]
        return np.sum(found, axis=0) if found else np.zeros(self._columns)

    def _stretches(self) -> list[tuple[int, int, Floats]]:
        """Return beginning, end and sums of every stretch in which something was shown."""
        found = [
            (place * width, (place + 1) * width, row)
            for rows, width in zip(self._rows, self._widths, strict=True)
            for place, row in rows.items()
        ]
        return sorted(found, key=lambda stretch: stretch[:2])

    def between(self, begin: int, end: int, most: int) -> Stretches:
        """Return the sums over at most some stretches of a time; empty ones are left out.

        Parameters
        ----------
        begin, end : int
            Stretches that begin within are counted as a whole.
        most : int
        """
        found = [stretch for stretch in self._stretches() if begin <= stretch[0] < end]
        # Wide ones are not parted, so all are as wide as the widest, or wider.
        width = max((b - a for a, b, _ in found), default=WIDTHS[0])
        first, last = (found[0][0], found[-1][1]) if found else (begin, end)
        width = next(w for w in _wider(width) if -(-(last - first // w * w) // w) <= most)
        joined: dict[int, Floats] = {}
        for a, _, row in found:
            joined[a // width] = joined.get(a // width, 0.0) + row
        sums = np.array(list(joined.values())).reshape(len(joined), self._columns)
        begins = np.array(list(joined), np.int64) * width
        return Stretches(begins, begins + width, sums)

    def take(self, other: Results) -> None:
        """Add what another one of the same arms counted."""
        self.advance(max((b for _, b, _ in other._stretches()), default=0) - 1)
        for a, _, row in other._stretches():
            self.at(a)[: len(row)] += row
        self.last = max(self.last, other.last)
        if other.time:
            self.time = min(filter(None, (self.time, other.time)))

    def still(self) -> Results:
        """Return what is there by now, for another thread; see :meth:`Series.still`."""
        seen = copy(self)
        seen._rows = [dict(rows) for rows in self._rows]
        return seen

    def saved(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        return {
            "seq": self.seq,
            "time": self.time,
            "last": self.last,
            "widths": self._widths,
            "since": self._since,
            "next": self._next,
            "columns": self._columns,
            "rows": [[[p, rows[p].tolist()] for p in sorted(rows)] for rows in self._rows],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what :meth:`saved` gave."""
        self.seq, self.time, self.last = saved["seq"], saved["time"], saved["last"]
        self._widths, self._since = list(saved["widths"]), list(saved["since"])
        self._next, self._columns = saved["next"], saved["columns"]
        self._rows = [{place: np.array(row) for place, row in rows} for rows in saved["rows"]]


def _wider(width: int) -> Iterator[int]:
    """Yield widths that hold whole stretches of each other."""
    yield from (step for step in STEPS if step >= width)
    width = max(width, DAY)
    while True:
        width *= 2
        yield width


def impressions(sums: Floats) -> Floats:
    """Return the impressions of each arm."""
    return sums[..., FIRST_ARM::2]


def rewards(sums: Floats) -> Floats:
    """Return the rewards of each arm."""
    return sums[..., FIRST_ARM + 1 :: 2]
