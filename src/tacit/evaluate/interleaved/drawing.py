"""The figure of interleaved searches: differences of credit with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.plots import COLOURS, figure, save


def drawn(report: Any, path: Path) -> Path:
    """Draw the leader against the others, and the segments below; the suffix gives the format.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    rows = [(each.second, each.lift, True) for each in report.comparisons]
    rows += [(f"{each.name} {each.value}", each.comparison.lift, each.found) for each in report.segments]
    drawing, ax = figure(height=1.7 + 0.3 * len(rows))
    for y, (_, lift, sure) in enumerate(reversed(rows)):
        if lift.difference is None:
            ax.text(0.0, y, " too early", va="center", color="0.4", size=9)
            continue
        estimate, low, high = lift.difference
        shown = sure and lift.claim in ("better", "worse")
        colour = COLOURS[0] if shown else COLOURS[7]
        ax.plot([low, high], [y, y], color=colour, lw=2.5, solid_capstyle="butt")
        ax.plot(estimate, y, "o", color=colour, ms=5)
    if report.segments:
        ax.axhline(len(report.segments) - 0.5, color="0.8", lw=0.8)
    ax.axvline(0.0, color="0.4", lw=0.8, ls="--")
    ax.set_yticks(range(len(rows)), [name for name, _, _ in reversed(rows)])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel(f"credit per search of {report.leader} minus the other's")
    ax.set_title(
        f"{report.confidence:.0%} intervals that hold at any time; grey: no difference shown", size=9
    )
    return save(drawing, path)
