"""Why which arm is shown to who is asking: what is believed of each, and what each field adds to that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.text import Tabulated
from tacit.learning.estimates import Estimates
from tacit.plots import COLOURS, Plotted, Rung, ladder

MOST_NAMED = 3
"""Fields that are named in words for each arm; the rows of an explanation have all columns."""


@dataclass(frozen=True, repr=False)
class Explanation(Tabulated, Plotted):
    """Why an arm is shown in a context: what is believed of each, and what each column adds.

    Attributes
    ----------
    estimates : Estimates
        Of the arms on offer: mean reward in this context, an interval around it, the chance to be best.
    chances : array of float64 or None
        With what probability each would be shown now.
    columns, fields : tuple of str
        The names of the context's columns, and the field of each; without a schema it is one of its own.
    added : array of float64, shape (arms, columns)
        What each column adds to the log-odds of a click, beside an average context.
    slopes : array of float64, shape (arms, columns)
        What a column adds at its common size, which is about its deviation over all contexts.
    says_nothing : float
        The weight, in [0, 1], of the hypothesis that contexts say hardly anything.
    """

    estimates: Estimates
    chances: Floats | None
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    added: Floats
    slopes: Floats
    says_nothing: float

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per arm."""
        chances = [None] * len(self.estimates) if self.chances is None else self.chances.tolist()
        return [
            {"arm": each.arm, "mean": each.mean, "low": each.low, "high": each.high, "shown": chance}
            | dict(zip(self.columns, added.tolist(), strict=True))
            for each, chance, added in zip(self.estimates, chances, self.added, strict=True)
        ]

    @property
    def added_by_field(self) -> dict[str, Floats]:
        """What each field adds to the log-odds of each arm, beside an average context: all its columns."""
        return {
            field: self.added[:, [name == field for name in self.fields]].sum(axis=1)
            for field in dict.fromkeys(self.fields)
        }

    @property
    def matters(self) -> dict[str, float]:
        """By how much each field moves arms against one another, over all contexts: what matters most first.

        In log-odds of a click: the deviation that a field's columns bring about, were they unrelated.
        """
        apart = ((self.slopes - self.slopes.mean(axis=0)) ** 2).mean(axis=0)
        found = {
            field: float(np.sqrt(apart[[name == field for name in self.fields]].sum()))
            for field in dict.fromkeys(self.fields)
        }
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _named(self, arm: int) -> str:
        """Return what adds and takes away most of an arm."""
        added = {field: float(values[arm]) for field, values in self.added_by_field.items()}
        most = sorted(added, key=lambda field: -abs(added[field]))[:MOST_NAMED]
        return ", ".join(f"{field} {added[field]:+.2f}" for field in most if added[field])

    def summary(self) -> str:
        """Return the estimates, what adds and takes away most of each arm, and which fields matter to all."""
        lines = [str(self.estimates), ""]
        for arm, each in enumerate(self.estimates):
            lines.append(f"{each.arm}: {self._named(arm) or 'nothing of the context says anything'}")
        lines.append("in log-odds of a click, beside an average context")
        matters = [f"{field} {size:.2f}" for field, size in self.matters.items() if size][:MOST_NAMED]
        if matters:
            lines.append(f"over all who ask, between arms: {', '.join(matters)}")
        lines.append(f"chance that contexts say hardly anything: {self.says_nothing:.1%}".replace("%", " %"))
        return "\n".join(lines)

    @property
    def height(self) -> float:
        return 1.4 + 0.5 * len(self.estimates)

    def draw(self, ax: Any) -> None:
        """Draw what is believed of each arm with its band, and what adds most to it."""
        best = max(range(len(self.estimates)), key=lambda arm: self.estimates[arm].mean or 0.0)
        rungs = []
        for arm, each in reversed(list(enumerate(self.estimates))):
            look = {"color": COLOURS[0 if arm == best else -1]}
            bars = [((each.low, each.high), look | {"lw": 3, "solid_capstyle": "round"})]
            rungs.append(Rung(f"{each.arm}\n{self._named(arm)}".strip(), each.mean, bars, look))
        ladder(ax, rungs, float(self.estimates[best].mean or 0.0))
        ax.tick_params(axis="y", labelsize=8)
        ax.set_xlim(0.0, max(1.05 * max(each.high for each in self.estimates), 1e-3))
        ax.grid(axis="x", alpha=0.25, linewidth=0.6)
        ax.set_xlabel(f"mean reward for who is asking, {self.estimates.confidence:.0%} interval")
        ax.set_title("what is believed of each arm, and what adds most to it in log-odds", size=9)
