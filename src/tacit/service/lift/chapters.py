"""Chapters of a lift: stretches in which control, share, unit and the meaning of rewards stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.proof import HoldoutSums, Scores
from tacit.service.lift.slices import Slices
from tacit.service.lift.terms import NO_HOLDOUT, look_in

MOST_PARTS = 100
"""Of more parts of a chapter, the oldest are joined."""


class Part(NamedTuple):
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
    def begun(cls, what: str, seq: int, time: int) -> Part:
        """Return a part of nothing yet."""
        return cls(what, seq, time, HoldoutSums.empty())

    def merged(self, other: Part) -> Part:
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

    def take(self, some: slice) -> Closings:
        """Return some of them."""
        return Closings(*(None if column is None else column[some] for column in self))  # type: ignore[arg-type]


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
    parts : list of Part
        The same as the reward's, without users, since each change.
    planned : HoldoutSums or None
        The reward's at the time of the planned look, once there is a decision after it.
    uniform : Scores
        The comparison of the policy with arms drawn uniformly, before the arms changed last.
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
        self.parts = [Part.begun("", seq, time)]
        self.planned: HoldoutSums | None = None
        self.uniform = Scores(*np.zeros(6).tolist())
        self.decided, self.answered = np.zeros(2), np.zeros(2)
        self._look = look_in(terms)

    def begin_part(self, what: str, seq: int, time: int) -> None:
        """Go on after a change that the coin knows nothing of."""
        if not self.time:
            return
        self.parts.append(Part.begun(what, seq, time))
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
            some = places == place
            self.parts[place].sums.add(groups[some], rewards[some])

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
        nothing = Part.begun("", 0, 0)
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
        """Return what :meth:`saved` gave, or its like of an earlier version."""
        made = Chapter(saved["terms"], saved["seq"], saved["time"], clustered=saved["clustered"])
        made.reward = HoldoutSums.from_dict(saved["reward"])
        made.slices = Slices.restored(saved["slices"])
        made.metrics = {n: HoldoutSums.from_dict(sums) for n, sums in saved["metrics"].items()}
        made.decided, made.answered = np.array(saved["decided"]), np.array(saved["answered"])
        # Earlier versions knew the present chapter alone, in one part.
        made.parts = [Part("", made.seq, made.time, made.reward._replace(buckets=None))]
        made.parts[0] = made.parts[0].merged(Part.begun("", 0, 0))
        if "parts" in saved:
            made.end, made.uniform = saved["end"], Scores(*saved["uniform"])
            made.parts = [
                Part(what, seq, time, HoldoutSums.from_dict(sums)) for what, seq, time, sums in saved["parts"]
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
