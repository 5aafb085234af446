"""What replay came to: counts of passes, and the estimate that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple

from tacit.core.text import Tabulated
from tacit.evaluate.intervals import wilson

NO_OVERLAP = "no overlap: no row shows what the policy chose"
PerPass = tuple[tuple[float, ...], tuple[float, ...]]
"""How many rows matched and the sum of their rewards, per pass."""


class ReplaySegment(NamedTuple):
    """What a policy would have earned in one segment, having learned from all.

    Attributes
    ----------
    estimate, low, high : float
        As of :class:`ReplayResult`; not corrected for the number of segments.
    matched : float
        Rows that counted, on average over the passes.
    """

    estimate: float
    low: float
    high: float
    matched: float


@dataclass(frozen=True)
class ReplayResult(Tabulated):
    """What a policy would have earned.

    Attributes
    ----------
    policy : str
        The policy and its hyperparameters.
    estimate : float
        Mean over the passes of the mean reward of a pass's matched rows; NaN without a match, which
        is told as "no overlap".
    low, high : float
        95 % interval for it: the score interval of Wilson (1927) for as many rows as a pass
        matched on average. Passes share their rows, so more passes never narrow it; a reward
        in [0, 1] varies at most as a click of the same mean does, so it is conservative for
        fractions. Rewards of a policy that learns depend on one another, but the deviations
        from the expected reward of what was shown are martingale differences, so the interval
        covers, at the given rate for many matches, the expected reward of the arms that were
        shown. How much the policy's own luck in learning matters is seen from ``estimates``.
    logged : float
        Mean reward of the log itself; NaN if it is empty.
    rows : int
        Rows of the log that were replayed in each pass.
    unanswered : int
        Rows to which no feedback came.
    matched : tuple of int
        Rows that counted, per pass: those in which the policy chose the logged arm.
    clicks : tuple of float
        Sum of their rewards, per pass.
    estimates : tuple of float
        Mean of their rewards, per pass; NaN without a match.
    by : str or None
        The column that tells segments apart, if one was asked for.
    segments : dict
        From its values to a :class:`ReplaySegment`, the largest first.
    """

    policy: str
    estimate: float
    low: float
    high: float
    logged: float
    rows: int
    unanswered: int
    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    estimates: tuple[float, ...]
    by: str | None = None
    segments: dict[str, ReplaySegment] = field(default_factory=dict)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict, of the passes their means; with segments, one for each besides."""
        passes = len(self.matched)
        mean = sum(self.matched) / passes
        if self.by is not None:
            whole = ReplaySegment(self.estimate, self.low, self.high, mean)
            return [
                {"policy": self.policy, "segment": name, **part._asdict()}
                for name, part in [(None, whole), *self.segments.items()]
            ]
        return [
            {
                "policy": self.policy,
                "estimate": self.estimate,
                "low": self.low,
                "high": self.high,
                "logged": self.logged,
                "rows": self.rows,
                "unanswered": self.unanswered,
                "passes": passes,
                "matched": mean,
                "clicks": sum(self.clicks) / passes,
            }
        ]

    def summary(self) -> str:
        """Return the result as text."""
        passes = len(self.matched)
        matched, clicks = sum(self.matched) / passes, sum(self.clicks) / passes
        share = matched / self.rows if self.rows else 0.0
        return "\n".join(
            [
                f"{self.policy}, replayed on {self.rows:,} logged rows, passes: {passes}",
                *self._earned(),
                f"  the log's own    {self.logged:.5f}",
                f"  matched a pass   {matched:,.1f} rows ({share:.1%}) with {clicks:,.1f} clicks",
                f"  without feedback {self.unanswered:,} rows",
                *(self._segment_lines() if self.by is not None else ()),
            ]
        )

    def _earned(self) -> list[str]:
        known = [estimate for estimate in self.estimates if estimate == estimate]
        if not known:
            return [f"  mean reward      {NO_OVERLAP}"]
        return [
            f"  mean reward      {self.estimate:.5f}, 95 % interval {self.low:.5f} to {self.high:.5f}",
            f"  single passes    {min(known):.5f} to {max(known):.5f}",
        ]

    def _segment_lines(self) -> list[str]:
        from tacit.core.text import aligned

        body = [
            [
                name or "(none)",
                f"{part.estimate:.5f}" if part.matched else NO_OVERLAP.partition(":")[0],
                f"[{part.low:.5f}, {part.high:.5f}]",
                f"{part.matched:,.1f}",
            ]
            for name, part in self.segments.items()
        ]
        head = [str(self.by), "mean reward", "95 % interval", "matched a pass"]
        return [
            "",
            aligned([head, *body]),
            f"each interval is for its segment alone, not corrected for how many there are ({len(body)})",
        ]


class ReplayCounts(NamedTuple):
    """What passes over a log, or over a shard of one, came to.

    Attributes
    ----------
    matched : tuple of int
        Per pass.
    clicks : tuple of float
    rows, unanswered : int
        Of the log.
    reward : float
        Sum of all its rewards.
    warnings : tuple of str
        What the record of the first pass says against the policy's assumptions.
    segments : mapping of str to (tuple of float, tuple of float)
        Of each segment, how many rows matched and the sum of their rewards, per pass.
    """

    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    rows: int
    unanswered: int
    reward: float
    warnings: tuple[str, ...]
    segments: Mapping[str, PerPass] = MappingProxyType({})

    def beside(self, other: ReplayCounts) -> ReplayCounts:
        """Return the result of these passes and of others over the same rows."""
        return self._replace(
            matched=self.matched + other.matched,
            clicks=self.clicks + other.clicks,
            segments={
                name: (mine[0] + other.segments[name][0], mine[1] + other.segments[name][1])
                for name, mine in self.segments.items()
            },
        )

    def merge(self, other: ReplayCounts) -> ReplayCounts:
        """Return the result of the same passes over these rows and over others."""
        return ReplayCounts(
            tuple(a + b for a, b in zip(self.matched, other.matched, strict=True)),
            tuple(a + b for a, b in zip(self.clicks, other.clicks, strict=True)),
            self.rows + other.rows,
            self.unanswered + other.unanswered,
            self.reward + other.reward,
            self.warnings + other.warnings,
            _added(self.segments, other.segments),
        )

    def result(self, policy: str, by: str | None = None) -> ReplayResult:
        """Return what follows for a policy of this name, by segments of a column if there are."""
        estimates = tuple(_ratios(self.matched, self.clicks))
        estimate, low, high, _ = _segment((self.matched, self.clicks))
        parts = {name: _segment(counts) for name, counts in self.segments.items()}
        return ReplayResult(
            policy=policy,
            estimate=estimate,
            low=low,
            high=high,
            logged=self.reward / self.rows if self.rows else math.nan,
            rows=self.rows,
            unanswered=self.unanswered,
            matched=self.matched,
            clicks=self.clicks,
            estimates=estimates,
            by=by,
            segments=dict(sorted(parts.items(), key=lambda item: -item[1].matched)),
        )


def _ratios(matched: Sequence[float], clicks: Sequence[float]) -> list[float]:
    return [c / rows if rows else math.nan for c, rows in zip(clicks, matched, strict=True)]


def _segment(counts: PerPass) -> ReplaySegment:
    known = [ratio for ratio in _ratios(*counts) if not math.isnan(ratio)]
    estimate = math.fsum(known) / len(known) if known else math.nan
    matched = sum(counts[0]) / len(counts[0])
    return ReplaySegment(estimate, *wilson(estimate, matched), matched)


def _added(one: Mapping[str, PerPass], other: Mapping[str, PerPass]) -> dict[str, PerPass]:
    found = {**other, **one}
    for name in set(one) & set(other):
        found[name] = (
            tuple(map(add, one[name][0], other[name][0])),
            tuple(map(add, one[name][1], other[name][1])),
        )
    return found
