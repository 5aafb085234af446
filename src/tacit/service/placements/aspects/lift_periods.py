"""Terms of a lift, and its periods: reward sums of control and policy while the terms are constant.

1. ``TimeBins``: sums by time, in a fixed number of bins.
2. The terms: holdout, rule and metrics, as a change event of the log holds them.
3. ``LiftPeriod``: sums while the terms are constant, with a subperiod after each other change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from tacit.core.arrays import Floats, Ints
from tacit.service.config.holdout import HoldoutConfig, MetricConfig
from tacit.uplift import HoldoutSums, Scores
from tacit.uplift.sentences import percent

# ---- Rewards of control and policy by time, in a fixed number of bins

COUNT = 128
FIRST_WIDTH = 60_000_000
"""Initial width of a bin in microseconds."""


class StretchSums(NamedTuple):
    """Sums over a time range, with its begin and end."""

    sums: HoldoutSums
    begin: int
    end: int


class Slices:
    """Sums by the time of the decision; the bins double their width when the range outgrows them.

    Examples
    --------
    >>> slices = Slices()
    >>> slices.add(np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0]))
    >>> slices.add(np.array([300 * FIRST_WIDTH]), np.array([1]), np.array([0.5]))
    >>> slices.width // FIRST_WIDTH, slices.between(0, 2**62).sums.counts
    (4, array([1., 3.]))
    >>> slices.between(0, FIRST_WIDTH).sums.totals
    array([0., 2.])
    """

    def __init__(self) -> None:
        self.start, self.width = -1, FIRST_WIDTH
        self.table = np.zeros((3, 2, COUNT))

    def add(self, times: Ints, groups: Ints, rewards: Floats) -> None:
        """Add decisions in their order.

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
        begun = 0
        while begun < len(times):
            # Bins are widened at the first decision beyond the range, whatever the size of the
            # batch, so that the sums have the same bits.
            late = np.flatnonzero(times[begun:] >= self.start + COUNT * self.width)
            stop = begun + int(late[0]) if len(late) else len(times)
            part = slice(begun, stop)
            places = np.maximum((times[part] - self.start) // self.width, 0)
            earned = rewards[part]
            for sums, values in zip(self.table, (np.ones_like(earned), earned, earned * earned), strict=True):
                np.add.at(sums, (groups[part], places), values)
            if stop < len(times):
                self._widen()
            begun = stop

    def _widen(self) -> None:
        pairs = self.table.reshape(3, 2, COUNT // 2, 2).sum(axis=3)
        self.table[:, :, : COUNT // 2], self.table[:, :, COUNT // 2 :] = pairs, 0.0
        self.width *= 2

    def between(self, begin: int, end: int) -> StretchSums:
        """Return the sums over the bins that begin within [begin, end)."""
        edges = self.start + self.width * np.arange(COUNT)
        within = (edges + self.width > begin) & (edges < end)
        counts, totals, squares = self.table[:, :, within].sum(axis=2)
        filled = edges[within & (self.table[0].sum(axis=0) > 0)]
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
        return StretchSums(HoldoutSums(counts, totals, squares), first, last + self.width)

    def merged(self, other: Slices) -> Slices:
        """Return the sums over the decisions of both."""
        both = Slices()
        begun = [slices for slices in (self, other) if slices.start >= 0]
        begun.sort(key=lambda slices: slices.start)
        if not begun:
            return both
        both.start = begun[0].start
        both.width = max(slices.width for slices in begun)
        ends = [slices.start + COUNT * slices.width for slices in begun]
        while both.start + COUNT * both.width < max(ends):
            both.width *= 2
        for slices in begun:
            places = (slices.start - both.start + slices.width * np.arange(COUNT)) // both.width
            for g in range(2):
                for sums, table in zip(both.table, slices.table, strict=True):
                    np.add.at(sums[g], places, table[g])
        return both

    def saved(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        return {"start": self.start, "width": self.width, "table": self.table.tolist()}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Slices:
        """Return the sums that :meth:`save_state` wrote."""
        made = cls()
        made.start, made.width = saved["start"], saved["width"]
        made.table[:] = saved["table"]
        return made


# ---- The terms of a lift: the holdout and the rules since a change event

NO_HOLDOUT = "null"
"""Value of a change event without a holdout."""


class _Terms(msgspec.Struct):
    holdout: HoldoutConfig | None = None
    configured: HoldoutConfig | UnsetType | None = UNSET


def terms_of(
    holdout: HoldoutConfig | None, rules: dict[str, Any], configured: HoldoutConfig | UnsetType | None = UNSET
) -> str:
    """Encode terms as the value of a change event.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        The current holdout.
    rules : dict
        Other terms of the sums: the rule of rewards and the metrics.
    configured : HoldoutConfig or None, optional
        The holdout of the configuration, if a request has replaced it.

    Examples
    --------
    >>> terms_of(None, {}), terms_of(None, {}, HoldoutConfig(share=0.2))[:35]
    ('null', '{"configured":{"control":"uniform",')
    """
    if holdout is None and configured is UNSET:
        return NO_HOLDOUT
    terms = {"holdout": _plain(holdout), **rules}
    if configured is not UNSET:
        terms["configured"] = _plain(configured)
    return msgspec.json.encode(terms, order="sorted").decode()


def _plain(holdout: HoldoutConfig | UnsetType | None) -> Any:
    """Convert a holdout to JSON data; without ``look`` if none is planned, as in earlier logs."""
    plain = msgspec.to_builtins(holdout)
    if plain is not None and plain["look"] is None:
        del plain["look"]
    return plain


def holdout_in(terms: str) -> HoldoutConfig | None:
    """Return the holdout of a change event's terms."""
    return _read(terms).holdout


def configured_in(terms: str) -> HoldoutConfig | UnsetType | None:
    """Return the configured holdout that the terms replace."""
    return _read(terms).configured


def look_in(terms: str) -> int | None:
    """Return the time of the planned look, in microseconds since 1970, or None."""
    holdout = holdout_in(terms)
    return None if holdout is None else holdout.looked


@cache
def rule_in(terms: str) -> Any:
    """Return the rule of rewards of a change event's terms."""
    return (json.loads(terms) or {}).get("rule")


@cache
def metrics_in(terms: str) -> dict[str, Any]:
    """Return the metrics of a change event's terms, as they were configured."""
    return (json.loads(terms) or {}).get("metrics", {})  # type: ignore[no-any-return]


def metric_configs_in(terms: str) -> dict[str, MetricConfig] | None:
    """Return the metric configurations of the terms; None without a holdout."""
    if holdout_in(terms) is None:
        return None
    return msgspec.convert(metrics_in(terms), dict[str, MetricConfig])


def change_between(terms: str, after: str) -> str:
    """Describe in words how the terms changed from one period to the next.

    Examples
    --------
    >>> tenth, fifth = (terms_of(HoldoutConfig(share), {}) for share in (0.1, 0.2))
    >>> change_between(tenth, fifth), change_between(fifth, "null")
    ('the share became 20 %', 'the holdout ended')
    """
    old, new = holdout_in(terms), holdout_in(after)
    if old is None or new is None:
        return "the holdout ended" if new is None else "a holdout was set up"
    changes = []
    if old.share != new.share:
        changes.append(f"the share became {percent(new.share)}")
    if old.control != new.control:
        changes.append(f"the control became {new.named}")
    if old.unit != new.unit:
        changes.append(f"the unit became the {new.unit}")
    if rule_in(terms) != rule_in(after):
        changes.append("the rule of rewards changed")
    if metrics_in(terms) != metrics_in(after):
        changes.append("the metrics changed")
    if old.look != new.look:
        changes.append("a look was planned" if new.look else "the planned look was dropped")
    return ", ".join(changes) or "what the control shows changed"


@cache
def _read(terms: str) -> _Terms:
    return msgspec.json.decode(terms, type=_Terms | None) or _Terms()


# ---- Periods of a lift: control, share, unit and the meaning of rewards are constant in each

MOST_PARTS = 100
"""Beyond this number, the oldest subperiods of a period are merged."""


class ChapterPart(NamedTuple):
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

    what: str
    seq: int
    time: int
    sums: HoldoutSums

    @classmethod
    def begun(cls, what: str, seq: int, time: int) -> ChapterPart:
        """Return an empty subperiod."""
        return cls(what, seq, time, HoldoutSums.empty())

    def merged(self, other: ChapterPart) -> ChapterPart:
        """Return a subperiod with the decisions of both."""
        time = min(filter(None, (self.time, other.time)), default=0)
        return self._replace(time=time, sums=self.sums.merged(other.sums))


class Closings(NamedTuple):
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

    def take(self, wanted: slice) -> Closings:
        """Return a slice of the rows."""
        return Closings(*(None if column is None else column[wanted] for column in self))  # type: ignore[arg-type]


class Chapter:
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
        self.terms, self.clustered = terms, clustered
        self.seq, self.time, self.end = seq, time, 0
        self.reward = HoldoutSums.empty(clustered=clustered)
        self.slices = Slices()
        self.metrics: dict[str, HoldoutSums] = {}
        self.parts = [ChapterPart.begun("", seq, time)]
        self.planned: HoldoutSums | None = None
        self.uniform = Scores(*np.zeros(7).tolist())
        self.decided, self.answered = np.zeros(2), np.zeros(2)
        self._look = look_in(terms)

    def begin_part(self, what: str, seq: int, time: int) -> None:
        """Begin a subperiod after a change that leaves the terms as they are."""
        if not self.time:
            return
        self.parts.append(ChapterPart.begun(what, seq, time))
        if len(self.parts) > MOST_PARTS:
            self.parts[:2] = [self.parts[0].merged(self.parts[1])]

    def count(self, closings: Closings) -> None:
        """Add decisions in their order; copy the sums at the planned look."""
        if self._look is not None and self.planned is None:
            late = np.flatnonzero(closings.times >= self._look)
            if len(late):
                self._count(closings.take(slice(int(late[0]))))
                self.planned = self.reward.merged(HoldoutSums.empty(clustered=self.clustered))
                closings = closings.take(slice(int(late[0]), None))
        self._count(closings)

    def _count(self, closings: Closings) -> None:
        seqs, times, groups, rewards, buckets = closings
        if not len(seqs):
            return
        self.reward.add(groups, rewards, buckets)
        self.slices.add(times, groups, rewards)
        if seqs.min() >= self.parts[-1].seq:
            self.parts[-1].sums.add(groups, rewards)
            return
        # Decisions that were open at a change belong to the subperiod before it.
        begins = [part.seq for part in self.parts]
        places = np.maximum(np.searchsorted(begins, seqs, "right") - 1, 0)
        for place in np.unique(places).tolist():
            within = places == place
            self.parts[place].sums.add(groups[within], rewards[within])

    def ended(self, time: int) -> Chapter:
        """Return the period as ended at a time; nothing is added to it any more."""
        made = Chapter()
        vars(made).update({name: getattr(self, name) for name in vars(made)})
        made.end = time
        # Metrics without a decision were not observed.
        made.metrics = {name: sums for name, sums in self.metrics.items() if sums.counts.any()}
        return made

    def take(self, other: Chapter) -> None:
        """Add the decisions of another period with the same terms."""
        if other.planned is not None or self.planned is not None:
            self.planned = (self.planned or self.reward).merged(other.planned or other.reward)
        self.reward = self.reward.merged(other.reward)
        self.slices = self.slices.merged(other.slices)
        none = HoldoutSums.empty(clustered=self.clustered)
        for name, sums in other.metrics.items():
            self.metrics[name] = self.metrics.get(name, none).merged(sums)
        longer, shorter = sorted((self.parts, other.parts), key=len, reverse=True)
        nothing = ChapterPart.begun("", 0, 0)
        both = zip_longest(longer, shorter, fillvalue=nothing)
        self.parts = [part.merged(its) for part, its in both]
        self.uniform = added(self.uniform, other.uniform)
        self.decided = self.decided + other.decided
        self.answered = self.answered + other.answered
        self.time = min(filter(None, (self.time, other.time)), default=0)
        self.end = max(self.end, other.end)

    def saved(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        return {
            "terms": self.terms,
            "clustered": self.clustered,
            "seq": self.seq,
            "time": self.time,
            "end": self.end,
            "reward": self.reward.as_dict(),
            "slices": self.slices.saved(),
            "metrics": {name: sums.as_dict() for name, sums in self.metrics.items()},
            "parts": [(*part[:3], part.sums.as_dict()) for part in self.parts],
            "planned": self.planned and self.planned.as_dict(),
            "uniform": list(map(float, self.uniform)),
            "decided": self.decided.tolist(),
            "answered": self.answered.tolist(),
        }

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Chapter:
        """Return the period that :meth:`save_state` wrote."""
        made = Chapter(saved["terms"], saved["seq"], saved["time"], clustered=saved["clustered"])
        made.reward = HoldoutSums.from_dict(saved["reward"])
        made.slices = Slices.restored(saved["slices"])
        made.metrics = {n: HoldoutSums.from_dict(sums) for n, sums in saved["metrics"].items()}
        made.decided, made.answered = np.array(saved["decided"]), np.array(saved["answered"])
        made.end, made.uniform = saved["end"], Scores(*saved["uniform"])
        made.parts = [
            ChapterPart(what, seq, time, HoldoutSums.from_dict(sums))
            for what, seq, time, sums in saved["parts"]
        ]
        planned = saved["planned"]
        made.planned = None if planned is None else HoldoutSums.from_dict(planned)
        return made


def added(scores: Scores, other: Scores) -> Scores:
    """Return the sums of both comparisons."""
    return Scores(*(a + b for a, b in zip(scores, other, strict=True)))


def together(shards: Iterable[Sequence[Chapter]]) -> Iterator[Chapter]:
    """Yield the periods of all shards, merged with their matches in other shards; the last first.

    Periods match if they have the same terms and the same position among those from the end.
    """
    found: dict[tuple[str, int], Chapter] = {}
    for chapters in shards:
        seen: Counter[str] = Counter()
        for chapter in reversed(chapters):
            seen[chapter.terms] += 1
            known = found.setdefault(
                (chapter.terms, seen[chapter.terms]),
                Chapter(chapter.terms, chapter.seq, chapter.time, clustered=chapter.clustered),
            )
            known.take(chapter)
    first, *rest = found.values()
    yield first
    yield from sorted(rest, key=lambda chapter: chapter.time, reverse=True)
