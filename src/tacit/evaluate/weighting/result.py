"""What estimators say of a target policy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.evaluate.intervals import Bounds
from tacit.evaluate.sums import Sums

INTERVALS = ("normal", "bootstrap", "score", "anytime")


@dataclass(frozen=True)
class Estimate:
    """What one estimator says.

    Attributes
    ----------
    estimator : str
    value : float
        NaN where the log shows nothing of what the target policy would do.
    standard_error : float
        By the central limit theorem.
    intervals : dict
        Per kind (normal, bootstrap, score, anytime) its bounds; a kind is left out where an
        estimator has none.
    effective_sample_size : float
        (Σw)²/Σw²: how many equally weighted units would tell as much.
    mean_weight : float
        Of a list, over its slots; 1 in expectation; far from it (in its own standard errors) the
        log's propensities are wrong, or the log could not have shown what the target policy shows.
    largest_weights : tuple of float
    sums : Sums
        All that was kept of the rows.
    warnings : tuple of str
        Why the normal and the bootstrap interval are not to be trusted, and which one is. They
        hold in the limit only; with an effective sample size below 100 it is far away, and where
        the normal interval leaves the range of mean rewards it has not been reached. No interval
        is clipped to that range: it would look better than it is.
    """

    estimator: str
    value: float
    standard_error: float
    intervals: dict[str, Bounds]
    effective_sample_size: float
    mean_weight: float
    largest_weights: tuple[float, ...]
    sums: Sums
    warnings: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return it as a flat dict of plain numbers, None for an interval that there is not."""
        bounds = {
            f"{kind}_{side}": self.intervals[kind][end] if kind in self.intervals else None
            for kind in INTERVALS
            for end, side in enumerate(("low", "high"))
        }
        return {
            "estimator": self.estimator,
            "value": self.value,
            "standard_error": self.standard_error,
            **bounds,
            "units": self.sums.n,
            "effective_sample_size": self.effective_sample_size,
            "mean_weight": self.mean_weight,
            "largest_weight": self.largest_weights[0] if self.largest_weights else math.nan,
        }


@dataclass(frozen=True)
class OffPolicyResult:
    """What several estimators say of one target policy.

    Attributes
    ----------
    target : str
    estimates : tuple of Estimate
        In the order of the estimators.
    logged : float
        Mean reward of the log itself, per list where lists are weighed; NaN if it is empty.
    rows, unanswered : int
        Rows that were used, and rows without feedback.
    never_shown : tuple of str
        Arms that the target policy would show and that were on offer, but that the log never
        shows: by chance, or because it could not.
    confidence : float
    lists : int or None
        How many lists there were, if the estimators weigh lists.
    assumes : str
        What is assumed where propensities are not those of the log; empty where they are.
    """

    target: str
    estimates: tuple[Estimate, ...]
    logged: float
    rows: int
    unanswered: int
    never_shown: tuple[str, ...]
    confidence: float
    lists: int | None = None
    assumes: str = ""

    def table(self) -> list[dict[str, Any]]:
        """Return one flat dict per estimator."""
        return [{"target": self.target, **estimate.row()} for estimate in self.estimates]

    def summary(self) -> str:
        """Return the result as text."""
        from tacit.core.text import aligned

        head = ["estimator", "value", *INTERVALS, "n_eff", "mean w", "max w"]
        body = [
            [
                estimate.estimator,
                f"{estimate.value:.5f}",
                *(bounds_text(estimate.intervals.get(kind)) for kind in INTERVALS),
                f"{estimate.effective_sample_size:,.0f}",
                f"{estimate.mean_weight:.3f}",
                f"{max(estimate.largest_weights, default=math.nan):.4g}",
            ]
            for estimate in self.estimates
        ]
        of = f"{self.rows:,} logged rows"
        what = f"mean reward, from {of}"
        if self.lists is not None:
            what = f"mean reward of a list, from {self.lists:,} lists of {of}"
        lines = [
            f"{self.target}: {what}",
            aligned([head, *body]),
            f"the log's own mean reward: {self.logged:.5f}; rows without feedback: "
            f"{self.unanswered:,}; intervals of {self.confidence:.0%}",
        ]
        if self.assumes:
            lines.append(self.assumes)
        if self.never_shown:
            shown = ", ".join(map(repr, self.never_shown[:5]))
            more = ", …" if len(self.never_shown) > 5 else ""
            lines.append(
                f"the log never shows {shown}{more}, which the target policy would: by chance, or "
                "because it could not; then these estimates are too low"
            )
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """Draw the estimates with their intervals; the suffix of ``path`` says the format."""
        from tacit.plots import COLOURS, figure, save

        drawing, ax = figure(7.0, 1.2 + 0.62 * len(self.estimates))
        for number, kind in enumerate(INTERVALS):
            label = f"{kind} interval"
            for place, estimate in enumerate(self.estimates):
                if kind in estimate.intervals:
                    y = place + 0.16 * (number - 1.5)
                    bounds = estimate.intervals[kind]
                    ax.plot(bounds, [y, y], color=COLOURS[number], lw=2, label=label)
                    label = "_"
        values = [estimate.value for estimate in self.estimates]
        ax.plot(values, range(len(values)), "o", color="black", ms=4, label="estimate")
        ax.axvline(self.logged, color="grey", lw=1, ls="--", label="the log's own mean")
        ax.set_yticks(range(len(values)), [estimate.estimator for estimate in self.estimates])
        ax.set_ylim(len(values) - 0.5, -0.5)
        ax.grid(axis="x", alpha=0.25, linewidth=0.6)
        ax.set_xlabel(f"mean reward ({self.confidence:.0%} intervals)")
        ax.set_title(f"{self.target}, from {self.rows:,} logged rows", size=10)
        ax.legend(frameon=False, fontsize=8)
        return save(drawing, Path(path))


def bounds_text(bounds: Bounds | None) -> str:
    return "–" if bounds is None else f"[{bounds[0]:.5f}, {bounds[1]:.5f}]"
