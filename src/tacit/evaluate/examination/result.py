"""How much each position is examined: the result, as table, text and figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.text import Tabulated
from tacit.evaluate.intervals import CONFIDENCE


@dataclass(frozen=True)
class Examination(Tabulated):
    """How much each position is examined.

    Attributes
    ----------
    method : str
    positions : array of int64, shape (positions,)
        The positions of the log, in ascending order.
    effects : array of float64, shape (positions,)
        Examination of each relative to the first; NaN where the log does not tell, as without
        clicks.
    low, high : array of float64, shape (positions,)
        Interval for each effect (delete-a-group jackknife, on the scale of logarithms). Where that
        has no width, as without any click, for ``randomization`` from Wilson's intervals of both
        click rates, else NaN.
    shown, clicks : array of float64, shape (positions,)
        Rows at each position, and their rewards; for ``randomization`` weighted towards uniform
        placement.
    confidence : float
    """

    method: str
    positions: Ints
    effects: Floats
    low: Floats
    high: Floats
    shown: Floats
    clicks: Floats
    confidence: float = CONFIDENCE

    @property
    def probabilities(self) -> Floats:
        """The effects scaled so that the largest is 1: examination as policies take it."""
        return np.asarray(self.effects / np.nanmax(self.effects))

    def table(self) -> list[dict[str, Any]]:
        """Return :meth:`records`."""
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per position."""
        return [
            {
                "method": self.method,
                "position": int(self.positions[place]),
                "effect": float(self.effects[place]),
                "low": float(self.low[place]),
                "high": float(self.high[place]),
                "shown": float(self.shown[place]),
                "clicks": float(self.clicks[place]),
            }
            for place in range(len(self.positions))
        ]

    def summary(self) -> str:
        """Return the result as text."""
        from tacit.core.text import aligned

        head = ["position", "effect", f"{self.confidence:.0%} interval", "shown", "clicks"]
        body = [
            [
                str(row["position"]),
                "–" if math.isnan(row["effect"]) else f"{row['effect']:.3f}",
                "–" if math.isnan(row["low"]) else f"[{row['low']:.3f}, {row['high']:.3f}]",
                f"{row['shown']:,.0f}",
                f"{row['clicks']:,.0f}",
            ]
            for row in self.table()
        ]
        title = f"examination relative to position {self.positions[0]}, by {self.method}"
        return f"{title}\n{aligned([head, *body])}"


def plot(results: Sequence[Examination], path: str | Path | None = None, *, ax: Any = None) -> Any:
    """Draw the effects by each method with their intervals; return the axes."""
    from tacit.plots import drawn

    with drawn(path, ax, height=4.0) as axes:
        _draw(results, axes)
    return axes


def _draw(results: Sequence[Examination], ax: Any) -> None:
    for number, result in enumerate(results):
        x = result.positions + 0.12 * (number - (len(results) - 1) / 2)
        errors = np.abs(np.stack([result.low, result.high]) - result.effects)
        ax.errorbar(x, result.effects, np.nan_to_num(errors), fmt="o", capsize=3, lw=1.5,
                    label=result.method)  # fmt: skip
    ax.set_xticks(results[0].positions)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("position")
    ax.set_ylabel(f"examination relative to position {results[0].positions[0]}")
    ax.set_title(f"position effects, {results[0].confidence:.0%} intervals", size=10)
    ax.legend(frameon=False)
