"""Figures: labelled axes, error bands, colours that tell apart for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import MissingExtra

# Okabe and Ito's palette, made for all kinds of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333", "#999999")


def figure(
    width: float = 7.0, height: float = 4.3, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes in the house style, with no global state.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plots") from None
    drawing = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots(rows, 1, squeeze=False, **options)[:, 0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.25, linewidth=0.6)
        ax.set_prop_cycle(color=COLOURS)
    return drawing, axes[0] if rows == 1 else axes


def save(drawing: Any, path: Path) -> Path:
    """Write a figure; the suffix gives the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)
    return path


def band(ax: Any, x: Any, samples: Any, label: str, **style: Any) -> None:
    """Draw the mean over samples (axis 0) with a band of two standard errors."""
    mean = samples.mean(axis=0)
    (line,) = ax.plot(x, mean, label=label, **style)
    if len(samples) > 1:
        error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
        ax.fill_between(
            x, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, lw=0
        )


def regret_curves(curves: dict[str, Any], rounds: Any, title: str, path: Path) -> Path:
    """Draw the mean regret of each policy with a band of two standard errors.

    Parameters
    ----------
    curves : dict of str to array of float, shape (runs, checkpoints)
        Regret up to each checkpoint, by the name of the policy.
    rounds : array of int, shape (checkpoints,)
    title : str
    path : Path
    """
    drawing, ax = figure()
    for name, samples in curves.items():
        band(ax, rounds, samples, name)
    ax.set_xlabel("round")
    ax.set_ylabel("cumulative regret (expected clicks missed)")
    ax.set_title(title, size=10)
    ax.set_xlim(0, rounds[-1])
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.legend(frameon=False)
    return save(drawing, path)
