"""The terms of a lift, and its chapters: stretches in which they stay the same.

What was earned in stretches of time is kept in a fixed number of slices.
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
from tacit.proof import HoldoutSums, Scores
from tacit.proof.sentences import percent
from tacit.service.config.holdout import HoldoutConfig, MetricConfig

# ---- What control and policy earned in stretches of time, kept in a fixed number of slices

COUNT = 128
FIRST_WIDTH = 60_000_000
"""Microseconds of a slice at first."""


class StretchSums(NamedTuple):
    """Sums over a stretch of time, and from when to when it is."""

    sums: HoldoutSums
    begin: int
    end: int


class Slices:
    """Sums by the time of the decision; when it outgrows the slices, each becomes twice as wide.

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
        """Add decisions, one after the other.

        Parameters
        ----------
        times : array of int64, shape (n,)
            When they were made, in microseconds.
        groups : array of int64, shape (n,)
        rewards : array of float64, shape (n,)
        """
        if self.start < 0:
            self.start = int(times[0])
        begun = 0
        while begun < len(times):
            # Slices are joined where the first one that is too late comes, however many come
            # together: the sums are then the same bits.
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
        """Return the sums over the slices that begin within [begin, end)."""
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
        """Return what :meth:`saved` gave."""
        made = cls()
        made.start, made.width = saved["start"], saved["width"]
        made.table[:] = saved["table"]
        return made


# ---- The terms of a lift: the holdout and the rules that hold since a mark of the log

NO_HOLDOUT = "null"
"""What a mark says where there is no holdout."""


class _Terms(msgspec.Struct):
    holdout: HoldoutConfig | None = None
    configured: HoldoutConfig | UnsetType | None = UNSET


def terms_of(
    holdout: HoldoutConfig | None, rules: dict[str, Any], configured: HoldoutConfig | UnsetType | None = UNSET
) -> str:
    """Return the value of a mark.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        The one that holds.
    rules : dict
        What else the sums rest on.
    configured : HoldoutConfig or None, optional
        The one of the configuration, in whose place somebody has put the other.

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
    """Return a holdout as marks have it: without a look where none is planned, as ever."""
    plain = msgspec.to_builtins(holdout)
    if plain is not None and plain["look"] is None:
        del plain["look"]
    return plain


def holdout_in(terms: str) -> HoldoutConfig | None:
    """Return the holdout that a mark tells."""
    return _read(terms).holdout


def configured_in(terms: str) -> HoldoutConfig | UnsetType | None:
    """Return the holdout of the configuration that a mark puts another in the place of."""
    return _read(terms).configured


def look_in(terms: str) -> int | None:
    """Return when a look is planned, in microseconds since 1970."""
    holdout = holdout_in(terms)
    return None if holdout is None else holdout.looked


@cache
def rule_in(terms: str) -> Any:
    """Return the rule of rewards that a mark tells."""
    return (json.loads(terms) or {}).get("rule")


@cache
def metrics_in(terms: str) -> dict[str, Any]:
    """Return the metrics that a mark tells, as they were configured."""
    return (json.loads(terms) or {}).get("metrics", {})  # type: ignore[no-any-return]


def metric_configs_in(terms: str) -> dict[str, MetricConfig] | None:
    """Return the metrics that a mark tells; None without a holdout, where it tells none."""
    if holdout_in(terms) is None:
        return None
    return msgspec.convert(metrics_in(terms), dict[str, MetricConfig])


def change_between(terms: str, after: str) -> str:
    """Return in words what ended a chapter of some terms, and began another one.

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


# ---- Chapters of a lift: stretches in which control, share, unit and the meaning of rewards stay

MOST_PARTS = 100
"""Of more parts of a chapter, the oldest are joined."""


class ChapterPart(NamedTuple):
    """What a chapter summed from one change on: of arms, of the policy, of the mode.

    Attributes
    ----------
    what : str
        ``arms``, ``rebuild``, ``rollback`` or ``mode NAME``; empty for the first.
    seq, time : int
        The row of the change, and when it was, in microseconds since 1970.
    sums : HoldoutSums
        Of the decisions made from then on until the next change.
    """

    what: str
    seq: int
    time: int
    sums: HoldoutSums

    @classmethod
    def begun(cls, what: str, seq: int, time: int) -> ChapterPart:
        """Return a part of nothing yet."""
        return cls(what, seq, time, HoldoutSums.empty())

    def merged(self, other: ChapterPart) -> ChapterPart:
        """Return a part with the decisions of both."""
        time = min(filter(None, (self.time, other.time)), default=0)
        return self._replace(time=time, sums=self.sums.merged(other.sums))


class Closings(NamedTuple):
    """Decisions of a holdout whose windows have closed, in that order.

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
        """Return some of them."""
        return Closings(*(None if column is None else column[wanted] for column in self))  # type: ignore[arg-type]


class Chapter:
    """What is summed while the coin's terms and the meaning of rewards stay what they are.

    Whatever the coin knows nothing of goes on within a chapter, and begins a part of it.

    Attributes
    ----------
    terms : str
        JSON of the holdout and of the rule that hold.
    seq, time, end : int
        The first row that counts, when it began, and when it ended, in microseconds since 1970; 0
        where nothing was decided yet, and while it goes on.
    reward : HoldoutSums
    slices : Slices
        The same over time.
    metrics : dict of str to HoldoutSums
    parts : list of ChapterPart
        The same as the reward's, without users, since each change.
    planned : HoldoutSums or None
        The reward's at the time of the planned look, once there is a decision after it.
    uniform : Scores
        The comparison of the policy with arms drawn uniformly, of decisions before the arms changed last.
    decided, answered : array of float64, shape (2,)
        Decisions, and those to which a reward came: of the control, of the policy.
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
        """Go on after a change that the coin knows nothing of."""
        if not self.time:
            return
        self.parts.append(ChapterPart.begun(what, seq, time))
        if len(self.parts) > MOST_PARTS:
            self.parts[:2] = [self.parts[0].merged(self.parts[1])]

    def count(self, closings: Closings) -> None:
        """Count decisions, one after the other; stop for a moment at the planned look."""
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
        # Decisions that were open when something changed belong to what was before.
        begins = [part.seq for part in self.parts]
        places = np.maximum(np.searchsorted(begins, seqs, "right") - 1, 0)
        for place in np.unique(places).tolist():
            within = places == place
            self.parts[place].sums.add(groups[within], rewards[within])

    def ended(self, time: int) -> Chapter:
        """Return what it was until a time; nothing is counted any more."""
        made = Chapter()
        vars(made).update({name: getattr(self, name) for name in vars(made)})
        made.end = time
        # Nothing is known of what nobody watched.
        made.metrics = {name: sums for name, sums in self.metrics.items() if sums.counts.any()}
        return made

    def take(self, other: Chapter) -> None:
        """Add the decisions of another one with the same terms."""
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
        """Return what :meth:`saved` gave."""
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
    """Yield the chapters of all shards, each of those that tell of the same one; the last first.

    Chapters are the same where they have the same terms, the last ones with these, the ones
    before the last … of each shard.
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
