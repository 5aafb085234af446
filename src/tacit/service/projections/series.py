"""Time series of impressions and rewards in a fixed number of buckets, at O(1) for each event."""

# 1. ``Series``: buckets that double their width when time outgrows them.
# 2. ``count_rows``: counts impressions, as a compiled loop.
# 3. ``weigh_reward``, ``estimate_uniform_reward``: reward of uniform exploration, by importance weights.

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.run_mode import compile_loop
from tacit.service.projections.arm_results import FIRST_ARM, REWARDED, WR, WW, WWR, WWRR, ArmResults, R, W

BUCKETS = 200
FIRST_WIDTH = 1_000_000
MAX_SHIFTS = 20
MIN_EFFECTIVE = 30.0
MIN_PROPENSITY = 1e-9
"""Least propensity of a chosen arm: one that is integrated to 1e-8 may be computed as 0."""

ARMS = 6
"""First column of the arms' impressions, after those of :mod:`tacit.service.projections.arm_results`."""


class KeyRestart(NamedTuple):
    """A restart of a key: time, epoch and context of the first decision after it."""

    time: int
    key: str
    epoch: int
    context: str | None = None


class UniformEstimate(NamedTuple):
    """An estimated reward per impression, and the half-width of its 95 % confidence interval."""

    value: float
    margin: float


class _Saved(msgspec.Struct):
    start: int
    width: int
    rows: list[msgspec.Raw]
    epochs: dict[str, int]
    shifts: list[KeyRestart]


class Series:
    """Impressions, rewards and importance weights of one placement over time.

    A reward counts at the time of its decision. When time outgrows the buckets, neighbours are
    merged in pairs and every bucket becomes twice as wide.

    Parameters
    ----------
    arms : int
        Number of arms.

    Attributes
    ----------
    results : ArmResults
        Sums for each arm, with finer recent periods; saved separately in snapshots.
    restarts : int
        Number of intent shifts of all keys.

    Examples
    --------
    >>> series = Series(arms=2)
    >>> for second in range(500):
    ...     series.count_decisions(second * 1_000_000, [second % 2], [0.5], [2])
    >>> series.count_rewards([0], [0.5], [2], rewards=[1.0], before=[0.0], arm_indices=[0])
    >>> series.width // 1_000_000, series.impressions, series.rewards
    (4, 500, 1.0)
    """

    def __init__(self, arms: int) -> None:
        """Begin without impressions; the first one sets the start."""
        self.start = -1
        self.width = FIRST_WIDTH
        self.table = np.zeros((BUCKETS, ARMS + arms))
        self.epochs: dict[str, int] = {}
        self.restarts = 0
        self.shifts: deque[KeyRestart] = deque(maxlen=MAX_SHIFTS)
        self.results = ArmResults(arms)

    def extend_arms(self, arms: int) -> None:
        """Add columns for new arms, up to a total of ``arms``, also in the arms' results."""
        more = ARMS + arms - self.table.shape[1]
        if more > 0:
            self.table = np.pad(self.table, ((0, 0), (0, more)))
        self.results.extend_arms(arms)

    @property
    def impressions(self) -> int:
        """Number of impressions of all arms."""
        return int(self.table[:, ARMS:].sum())

    @property
    def rewards(self) -> float:
        """Sum of all rewards."""
        return float(self.table[:, R].sum())

    def count_decisions(
        self,
        time: int,
        arm_indices: Sequence[int],
        propensities: Sequence[float | None],
        offered: Sequence[int],
        count: int | None = None,
    ) -> None:
        """Count impressions of decisions made at ``time``, here and in the arms' results.

        Parameters
        ----------
        time : int
            Microseconds since 1970.
        arm_indices : sequence of int
            Index of the shown arm of each impression.
        propensities : sequence of float or None
            None for impressions without an importance weight.
        offered : sequence of int
            Number of arms on offer.
        count : int, optional
            Number of decisions; by default one for each impression.
        """
        # NumPy converts None to NaN.
        chosen_propensities = np.array(propensities, np.float64)
        sizes, indices = np.array(offered, np.int64), np.array(arm_indices, np.int64)
        period_sums = self.results.count_decisions(time, len(indices) if count is None else count)
        compile_counting()(self._find_row(time), period_sums, indices, chosen_propensities, sizes)

    def count_rewards(
        self,
        times: Sequence[int],
        propensities: Sequence[float | None],
        offered: Sequence[int],
        rewards: Sequence[float],
        before: Sequence[float],
        arm_indices: Sequence[int | None],
    ) -> None:
        """Add the rewards of decisions made at ``times`` to their buckets and to the arms' results.

        ``before`` are rewards counted earlier for the same decisions, which are replaced; 0 for none.
        ``arm_indices`` are the indices of the rewarded arms; None if there is no single arm.
        """
        # First the buckets are widened, if necessary: that changes their numbers.
        self._find_row(max(times))
        sums: dict[int, list[float]] = {}
        for time, propensity, count, reward, previous, arm_index in zip(
            times, propensities, offered, rewards, before, arm_indices, strict=True
        ):
            bucket = max(time - self.start, 0) // self.width
            row = sums.get(bucket) or sums.setdefault(bucket, self.table[bucket, :ARMS].tolist())
            amounts = weigh_reward(propensity, count, reward, previous)
            for column, amount in zip(REWARDED, amounts, strict=False):
                row[column] += amount
            self.results.count_reward(time, arm_index, amounts)
        for bucket, row in sums.items():
            self.table[bucket, :ARMS] = row

    def note_epoch(self, time: int, key: str, epoch: int, context: str | None = None) -> None:
        """Record the epoch of a key's decision; a new epoch is counted and listed as a restart."""
        before = self.epochs.get(key, 0)
        if epoch != before:
            self.epochs[key] = epoch
            self.restarts += epoch - before
            self.shifts.append(KeyRestart(time, key, epoch, context))

    def _find_row(self, time: int) -> Floats:
        """Return the sums of the bucket that contains a time, as an array to change in place.

        If the time lies beyond the last bucket, buckets are merged in pairs before.
        """
        if self.start < 0:
            self.start = time
        # A clock that was set back counts into the first bucket.
        while (bucket := max(time - self.start, 0) // self.width) >= BUCKETS:
            # A new table: threads that read the old one see unchanged buckets.
            table = np.zeros_like(self.table)
            table[: BUCKETS // 2] = self.table.reshape(BUCKETS // 2, 2, -1).sum(axis=1)
            self.table, self.width = table, 2 * self.width
        row: Floats = self.table[bucket]
        return row

    def read_copy(self) -> Series:
        """Return a copy for reader threads.

        The sums are shared: a reader may see some of the decisions that are made meanwhile.
        """
        reader_copy = copy(self)
        reader_copy.shifts, reader_copy.results = self.shifts.copy(), self.results.read_copy()
        return reader_copy

    def add_table(self, table: Floats, start: int, width: int) -> None:
        """Add the sums of another series; it must not begin earlier nor have more arms."""
        for bucket in np.flatnonzero(table.any(axis=1)).tolist():
            self._find_row(start + bucket * width)[: table.shape[1]] += table[bucket]

    def resample(self, most: int) -> tuple[list[int], Floats]:
        """Merge the buckets to at most ``most`` periods of equal width; return their ends and sums.

        The last period contains the last impression.

        Returns
        -------
        ends : list of int
            End of each period in microseconds since 1970.
        sums : array of float64, shape (periods, columns)
        """
        filled = np.flatnonzero(self.table[:, ARMS:].sum(axis=1))
        count = int(filled[-1]) + 1 if len(filled) else 0
        step = math.ceil(count / most) or 1
        firsts = np.arange(0, count, step)
        sums = np.add.reduceat(self.table, firsts)[: len(firsts)] if count else self.table[:0]
        return [self.start + self.width * int(first + step) for first in firsts], sums

    def to_bytes(self) -> bytes:
        """Return the series as JSON bytes, without the arms' results."""
        rows: Any = self.table.tolist()
        saved = _Saved(self.start, self.width, rows, self.epochs, list(self.shifts))
        return msgspec.json.encode(saved)

    @classmethod
    def from_bytes(cls, content: bytes) -> Series:
        """Return the series that :meth:`to_bytes` wrote; its arms' results are empty."""
        saved = msgspec.json.decode(content, type=_Saved)
        columns = bytes(saved.rows[0]).count(b",") + 1
        series = cls(columns - ARMS)
        series.start, series.width, series.epochs = saved.start, saved.width, saved.epochs
        series.restarts = sum(saved.epochs.values())
        empty = msgspec.json.encode([0.0] * columns)
        for i, row in enumerate(map(bytes, saved.rows)):
            # Most rows are empty, and reading them would take most of the time.
            if row != empty:
                series.table[i] = msgspec.json.decode(row)
        series.shifts.extend(saved.shifts)
        return series


def count_rows(row: Floats, fine: Floats, arm_indices: Ints, propensities: Floats, offered: Ints) -> None:
    """Add impressions to the sums of a bucket and of a period of the arms' results, in place.

    ``row`` has the sums of the bucket, ``fine`` of the period. They are added one after the other, so that
    the sums do not depend on how decisions are grouped. A NaN propensity adds no weight.
    """
    for arm_index in arm_indices:
        row[ARMS + arm_index] += 1.0
        fine[FIRST_ARM + 2 * arm_index] += 1.0
    for i in range(len(propensities)):
        if propensities[i] == propensities[i]:
            weight = 1.0 / (offered[i] * max(propensities[i], MIN_PROPENSITY))
            for sums in (row, fine):
                sums[W] += weight
                sums[WW] += weight * weight


@cache
def compile_counting() -> Any:
    """Return :func:`count_rows`, compiled at the first call."""
    none, sums = np.empty(0, np.int64), np.empty(0)
    return compile_loop(count_rows).entry((sums, sums, none, sums, none))


def weigh_reward(propensity: float | None, offered: int, reward: float, before: float = 0.0) -> list[float]:
    """Return the amounts that a reward adds to the sums; it replaces ``before``, 0 if none.

    They are the changes of r, wr, w²r and w²r², where r is the reward and w the importance weight of uniform
    exploration; of r alone if the propensity is unknown.
    """
    gain = reward - before
    if propensity is None:
        return [gain]
    # Importance weight of uniform exploration.
    weight = 1.0 / (offered * max(propensity, MIN_PROPENSITY))
    more = (weight * reward) ** 2 - (weight * before) ** 2
    return [gain, weight * gain, weight * weight * gain, more]


def estimate_uniform_reward(sums: Floats) -> UniformEstimate | None:
    """Estimate the mean reward of uniform exploration from logged decisions.

    It is the self-normalised importance-sampling estimator (SNIPS) with its delta-method interval.

    Parameters
    ----------
    sums : array of float64, shape (columns,)
        Sum over rows of a series.

    Returns
    -------
    UniformEstimate or None
        None if propensities are unknown, or the effective sample size is below 30 impressions.
    """
    weight, squared = float(sums[W]), float(sums[WW])
    if squared == 0.0 or weight * weight / squared < MIN_EFFECTIVE:
        return None
    value = float(sums[WR]) / weight
    spread = sums[WWRR] - 2 * value * sums[WWR] + value**2 * squared
    return UniformEstimate(value, 1.96 * math.sqrt(max(float(spread), 0.0)) / weight)
