"""What replay came to: counts of passes, and the estimate that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tacit.evaluate.intervals import wilson


@dataclass(frozen=True)
class ReplayResult:
    """What a policy would have earned.

    Attributes
    ----------
    policy : str
        The policy and its hyperparameters.
    estimate : float
        Mean over the passes of the mean reward of a pass's matched rows; NaN without a match.
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

    def summary(self) -> str:
        """Return the result as text."""
        passes = len(self.matched)
        matched, clicks = sum(self.matched) / passes, sum(self.clicks) / passes
        share = matched / self.rows if self.rows else 0.0
        known = [estimate for estimate in self.estimates if estimate == estimate] or [math.nan]
        return "\n".join(
            [
                f"{self.policy}, replayed on {self.rows:,} logged rows, passes: {passes}",
                f"  mean reward      {self.estimate:.5f}, "
                f"95 % interval {self.low:.5f} to {self.high:.5f}",
                f"  single passes    {min(known):.5f} to {max(known):.5f}",
                f"  the log's own    {self.logged:.5f}",
                f"  matched a pass   {matched:,.1f} rows ({share:.1%}) with {clicks:,.1f} clicks",
                f"  without feedback {self.unanswered:,} rows",
            ]
        )


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
    """

    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    rows: int
    unanswered: int
    reward: float
    warnings: tuple[str, ...]

    def beside(self, other: ReplayCounts) -> ReplayCounts:
        """Return the result of these passes and of others over the same rows."""
        return self._replace(
            matched=self.matched + other.matched, clicks=self.clicks + other.clicks
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
        )

    def result(self, policy: str) -> ReplayResult:
        """Return what follows for a policy of this name."""
        counts = list(zip(self.clicks, self.matched, strict=True))
        estimates = tuple(clicks / rows if rows else math.nan for clicks, rows in counts)
        matched = [estimate for estimate in estimates if not math.isnan(estimate)]
        estimate = math.fsum(matched) / len(matched) if matched else math.nan
        low, high = wilson(estimate, sum(self.matched) / len(self.matched))
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
        )
