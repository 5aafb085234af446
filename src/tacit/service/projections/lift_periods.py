"""Periods of a lift: reward sums of control and policy while the terms are constant.

1. ``TimeBins``: sums by time, in a fixed number of bins.
2. ``LiftPeriod``: sums while the terms are constant, with a subperiod after each other change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.service.config.lift_terms import NO_HOLDOUT, parse_look_time
from tacit.uplift import HoldoutSums, Scores

# ---- Rewards of control and policy by time, in a fixed number of bins

COUNT = 128
FIRST_WIDTH = 60_000_000
"""Initial width of a bin in microseconds."""


class RangeSums(NamedTuple):
    """Sums over a time range, with its begin and end."""

    sums: HoldoutSums
    begin: int
    end: int


class TimeBins:
    """Sums by the time of the decision; the bins double their width when the range outgrows them.

    Examples
    --------
    >>> bins = TimeBins()
    >>> bins.add(np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0]))
    >>> bins.add(np.array([300 * FIRST_WIDTH]), np.array([1]), np.array([0.5]))
    >>> bins.width // FIRST_WIDTH, bins.sum_range(0, 2**62).sums.counts
    (4, array([1., 3.]))
    >>> bins.sum_range(0, FIRST_WIDTH).sums.totals
    array([0., 2.])
    """

    def __init__(self) -> None:
        self.start, self.width = -1, FIRST_WIDTH
        self.table = np.zeros((3, 2, COUNT))

    def add(self, times: Ints, groups: Ints, rewards: Floats) -> None:
        """Add decisions in their order to the bins of their times; bins get wider if a time lies beyond them.

        Parameters
        ----------
        times : array of int64, shape (n,)
            Times of the decisions, in microseconds.
        groups : array of int64, shape (n,)
            0 for the control, 1 for the policy.
        rewards : array of float64, shape (n,)
        """
        if self.start < 0:
            self.start = int(times[0])
        begin = 0
        while begin < len(times):
            # Bins are widened at the first decision beyond the range, whatever the size of the
            # batch, so that the sums have the same bits.
            late = np.flatnonzero(times[begin:] >= self.start + COUNT * self.width)
            stop = begin + int(late[0]) if len(late) else len(times)
            part = slice(begin, stop)
            bin_indices = np.maximum((times[part] - self.start) // self.width, 0)
            part_rewards = rewards[part]
            for sums, values in zip(
                self.table,
                (np.ones_like(part_rewards), part_rewards, part_rewards * part_rewards),
                strict=True,
            ):
                np.add.at(sums, (groups[part], bin_indices), values)
            if stop < len(times):
                self._widen()
            begin = stop

    def _widen(self) -> None:
        """Merge pairs of bins, so that every bin is twice as wide and the second half is empty."""
        pairs = self.table.reshape(3, 2, COUNT // 2, 2).sum(axis=3)
        self.table[:, :, : COUNT // 2], self.table[:, :, COUNT // 2 :] = pairs, 0.0
        self.width *= 2

    def sum_range(self, begin: int, end: int) -> RangeSums:
        """Return the sums over the bins that overlap [begin, end).

        ``begin`` and ``end`` of the result are the range of the bins that have decisions.
        """
        edges = self.start + self.width * np.arange(COUNT)
        within = (edges + self.width > begin) & (edges < end)
        counts, totals, squares = self.table[:, :, within].sum(axis=2)
        filled = edges[within & (self.table[0].sum(axis=0) > 0)]
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
        return RangeSums(HoldoutSums(counts, totals, squares), first, last + self.width)

    def merge(self, other: TimeBins) -> TimeBins:
        """Return new bins with the sums of both, from the earlier start and as wide as needed."""
        result = TimeBins()
        filled = [bins for bins in (self, other) if bins.start >= 0]
        filled.sort(key=lambda bins: bins.start)
        if not filled:
            return result
        result.start = filled[0].start
        result.width = max(bins.width for bins in filled)
        ends = [bins.start + COUNT * bins.width for bins in filled]
        while result.start + COUNT * result.width < max(ends):
            result.width *= 2
        for bins in filled:
            bin_indices = (bins.start - result.start + bins.width * np.arange(COUNT)) // result.width
            for g in range(2):
                for sums, table in zip(result.table, bins.table, strict=True):
                    np.add.at(sums[g], bin_indices, table[g])
        return result

    def save_state(self) -> dict[str, Any]:
        """Return start, width and sums as JSON data, for :meth:`from_state`."""
        return {"start": self.start, "width": self.width, "table": self.table.tolist()}

    @classmethod
    def from_state(cls, saved: dict[str, Any]) -> TimeBins:
        """Return the bins that :meth:`save_state` wrote."""
        bins = cls()
        bins.start, bins.width = saved["start"], saved["width"]
        bins.table[:] = saved["table"]
        return bins


# ---- Periods of a lift: control, share, unit and the meaning of rewards are constant in each

LARGEST = 5
"""How many of the largest amounts of a metric are kept."""
NO_TAIL = np.zeros(1 + LARGEST)
MAX_SUBPERIODS = 100
"""Beyond this number, the oldest subperiods of a period are merged."""


class Subperiod(NamedTuple):
    """Sums of a period after one change of arms, policy or mode.

    Attributes
    ----------
    change : str
        ``arms``, ``rebuild``, ``rollback`` or ``mode NAME``; empty for the first.
    seq, time : int
        Row and time of the change, in microseconds since 1970.
    sums : HoldoutSums
        Sums of the decisions until the next change.
    """

    change: str
    seq: int
    time: int
    sums: HoldoutSums

    @classmethod
    def begin(cls, what: str, seq: int, time: int) -> Subperiod:
        """Return an empty subperiod that begins with the change ``what`` at a row and time."""
        return cls(what, seq, time, HoldoutSums.empty())

    def merge(self, other: Subperiod) -> Subperiod:
        """Return a subperiod with the sums of both and the earlier time; change and row are this one's."""
        time = min(filter(None, (self.time, other.time)), default=0)
        return self._replace(time=time, sums=self.sums.merge(other.sums))


class ClosedRewards(NamedTuple):
    """Decisions of a holdout in the order in which their windows closed.

    Attributes
    ----------
    seqs, times, groups : array of int64
    rewards : array of float64
    buckets : array of int64 or None
    """

    seqs: Ints
    times: Ints
    groups: Ints
    rewards: Floats
    buckets: Ints | None

    def select(self, rows: slice) -> ClosedRewards:
        """Return a slice of the rows."""
        return ClosedRewards(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


def extend_tail(tail: Floats, sizes: Floats, largest: Floats) -> Floats:
    """Return a metric's tail, its sum of absolute amounts and then its five largest, with more amounts.

    ``sizes`` are added to the sum one by one, so that the bits do not depend on batch sizes; the five largest
    are chosen among those before and ``largest``.
    """
    total = np.add.accumulate([tail[0], *sizes])[-1]
    # The last five of the sorted amounts, backwards: largest first.
    return np.array([total, *np.sort([*tail[1:], *largest])[: -LARGEST - 1 : -1]])


class LiftPeriod:
    """Sums of a lift while the terms of the holdout and the meaning of rewards are constant.

    Other changes do not end a period; each begins a subperiod.

    Attributes
    ----------
    terms : str
        JSON of the holdout and of the rule.
    seq, time, end : int
        First row; time of the first decision and end in microseconds since 1970. The time is 0 before the
        first decision, the end is 0 until the period ends.
    reward : HoldoutSums
    time_bins : TimeBins
        Rewards by time.
    metrics : dict of str to HoldoutSums
    tails : dict of str to array of float64, shape (6,)
        Of each metric whose range has an open end: see :func:`extend_tail`.
    subperiods : list of Subperiod
        Rewards since each change, without users.
    look_sums : HoldoutSums or None
        Rewards at the planned look, once there is a later decision.
    uniform_scores : Scores
        Comparison of the policy with uniformly drawn arms, of decisions before the last change of arms.
    decided_counts, answered_counts : array of float64, shape (2,)
        Numbers of decisions, and of decisions with a reward, of control and policy.
    """

    def __init__(
        self, terms: str = NO_HOLDOUT, seq: int = 0, time: int = 0, *, clustered: bool = False
    ) -> None:
        """Begin an empty period.

        Parameters
        ----------
        terms : str
            JSON of the holdout and of the rule.
        seq, time : int
            First row, and time of the first decision.
        clustered : bool
            Whether users or sessions stay in their group, so that sums are kept by bucket.
        """
        self.terms, self.clustered = terms, clustered
        self.seq, self.time, self.end = seq, time, 0
        self.reward = HoldoutSums.empty(clustered=clustered)
        self.time_bins = TimeBins()
        self.metrics: dict[str, HoldoutSums] = {}
        self.tails: dict[str, Floats] = {}
        self.subperiods = [Subperiod.begin("", seq, time)]
        self.look_sums: HoldoutSums | None = None
        self.uniform_scores = Scores(*np.zeros(7).tolist())
        self.decided_counts, self.answered_counts = np.zeros(2), np.zeros(2)
        self._look = parse_look_time(terms)

    def begin_subperiod(self, what: str, seq: int, time: int) -> None:
        """Begin a subperiod after a change that leaves the terms as they are.

        Do nothing before the first decision.

        Beyond ``MAX_SUBPERIODS``, the two oldest subperiods are merged.
        """
        if not self.time:
            return
        self.subperiods.append(Subperiod.begin(what, seq, time))
        if len(self.subperiods) > MAX_SUBPERIODS:
            self.subperiods[:2] = [self.subperiods[0].merge(self.subperiods[1])]

    def count(self, closings: ClosedRewards) -> None:
        """Add decisions in their order to the sums of the period and its subperiods.

        Before the first decision at or after the planned look, the sums are copied to ``look_sums``.
        """
        if self._look is not None and self.look_sums is None:
            late = np.flatnonzero(closings.times >= self._look)
            if len(late):
                self._count(closings.select(slice(int(late[0]))))
                # Merging with empty sums makes a copy.
                self.look_sums = self.reward.merge(HoldoutSums.empty(clustered=self.clustered))
                closings = closings.select(slice(int(late[0]), None))
        self._count(closings)

    def _count(self, closings: ClosedRewards) -> None:
        """Add decisions to the reward sums, time bins and the subperiods in which they were made."""
        seqs, times, groups, rewards, buckets = closings
        if not len(seqs):
            return
        self.reward.add(groups, rewards, buckets)
        self.time_bins.add(times, groups, rewards)
        if seqs.min() >= self.subperiods[-1].seq:
            self.subperiods[-1].sums.add(groups, rewards)
            return
        # Decisions that were open at a change belong to the subperiod before it.
        begins = [part.seq for part in self.subperiods]
        subperiod_indices = np.maximum(np.searchsorted(begins, seqs, "right") - 1, 0)
        for index in np.unique(subperiod_indices).tolist():
            within = subperiod_indices == index
            self.subperiods[index].sums.add(groups[within], rewards[within])

    def as_ended(self, time: int) -> LiftPeriod:
        """Return a copy that ended at ``time``, without metrics that no decision has; it shares the sums."""
        # Only the fields of a period: ``self`` may be a subclass with more.
        period = LiftPeriod()
        vars(period).update({name: getattr(self, name) for name in vars(period)})
        period.end = time
        # Metrics without a decision were not observed.
        period.metrics = {name: sums for name, sums in self.metrics.items() if sums.counts.any()}
        return period

    def add_period(self, other: LiftPeriod) -> None:
        """Add the sums of a period with the same terms on another shard to this one.

        Subperiods are added by their position.
        """
        if other.look_sums is not None or self.look_sums is not None:
            self.look_sums = (self.look_sums or self.reward).merge(other.look_sums or other.reward)
        self.reward = self.reward.merge(other.reward)
        self.time_bins = self.time_bins.merge(other.time_bins)
        none = HoldoutSums.empty(clustered=self.clustered)
        for name, sums in other.metrics.items():
            self.metrics[name] = self.metrics.get(name, none).merge(sums)
        for name, tail in other.tails.items():
            self.tails[name] = extend_tail(self.tails.get(name, NO_TAIL), tail[:1], tail[1:])
        longer, shorter = sorted((self.subperiods, other.subperiods), key=len, reverse=True)
        pairs = zip_longest(longer, shorter, fillvalue=Subperiod.begin("", 0, 0))
        self.subperiods = [subperiod.merge(match) for subperiod, match in pairs]
        self.uniform_scores = add_scores(self.uniform_scores, other.uniform_scores)
        self.decided_counts = self.decided_counts + other.decided_counts
        self.answered_counts = self.answered_counts + other.answered_counts
        self.time = min(filter(None, (self.time, other.time)), default=0)
        self.end = max(self.end, other.end)

    def save_state(self) -> dict[str, Any]:
        """Return all fields and sums as JSON data, for :meth:`from_state`."""
        return {
            "terms": self.terms,
            "clustered": self.clustered,
            "seq": self.seq,
            "time": self.time,
            "end": self.end,
            "reward": self.reward.as_dict(),
            "slices": self.time_bins.save_state(),
            "metrics": {name: sums.as_dict() for name, sums in self.metrics.items()},
            "parts": [(*part[:3], part.sums.as_dict()) for part in self.subperiods],
            "planned": self.look_sums and self.look_sums.as_dict(),
            "uniform": list(map(float, self.uniform_scores)),
            "decided": self.decided_counts.tolist(),
            "answered": self.answered_counts.tolist(),
        } | ({"tails": {name: tail.tolist() for name, tail in self.tails.items()}} if self.tails else {})

    @classmethod
    def from_state(cls, saved: dict[str, Any]) -> LiftPeriod:
        """Return the period that :meth:`save_state` wrote."""
        period = LiftPeriod(saved["terms"], saved["seq"], saved["time"], clustered=saved["clustered"])
        period.reward = HoldoutSums.from_dict(saved["reward"])
        period.time_bins = TimeBins.from_state(saved["slices"])
        period.metrics = {n: HoldoutSums.from_dict(sums) for n, sums in saved["metrics"].items()}
        period.tails = {name: np.array(tail) for name, tail in saved.get("tails", {}).items()}
        period.decided_counts = np.array(saved["decided"])
        period.answered_counts = np.array(saved["answered"])
        period.end, period.uniform_scores = saved["end"], Scores(*saved["uniform"])
        period.subperiods = [
            Subperiod(what, seq, time, HoldoutSums.from_dict(sums))
            for what, seq, time, sums in saved["parts"]
        ]
        planned = saved["planned"]
        period.look_sums = None if planned is None else HoldoutSums.from_dict(planned)
        return period


def add_scores(scores: Scores, other: Scores) -> Scores:
    """Return the sums of both scores, field by field."""
    return Scores(*(a + b for a, b in zip(scores, other, strict=True)))


def merge_periods(shards: Iterable[Sequence[LiftPeriod]]) -> Iterator[LiftPeriod]:
    """Merge the periods of all shards; yield the current period first, then past ones from new to old.

    Periods of different shards are added if they have the same terms and are equally far from the end among
    the periods with these terms.
    """
    periods: dict[tuple[str, int], LiftPeriod] = {}
    for shard_periods in shards:
        counts: Counter[str] = Counter()
        for shard_period in reversed(shard_periods):
            counts[shard_period.terms] += 1
            period = periods.setdefault(
                (shard_period.terms, counts[shard_period.terms]),
                LiftPeriod(
                    shard_period.terms, shard_period.seq, shard_period.time, clustered=shard_period.clustered
                ),
            )
            period.add_period(shard_period)
    first, *past_periods = periods.values()
    yield first
    yield from sorted(past_periods, key=lambda shard_period: shard_period.time, reverse=True)
