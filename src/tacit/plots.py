"""Figures: labelled axes, error bands, colours that tell apart for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import MissingExtra

# Okabe and Ito's palette, made for all kinds of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333", "#999999")
# A policy's row says which colour it has in every figure. The default of each kind has the first.
POLICIES = (
    ("ShiftMixture", "ClickMixture", "HybridClickMixture", "ListMix", "SafeListMix", "RMED1"),
    ("Thompson", "LogisticTS", "BeatTheMean", "PBMThompson", "CascadeUCB1", "ProbationBandit"),
    ("UCB1", "LinUCB", "RUCB", "PBMUCB", "CascadeKLUCB", "BWC"),
    ("KLUCB", "HLinUCB", "InterleavedFilter1", "RankedBandit", "CUSUMUCB", "BeatTheMeanPAC"),
    ("GLRKLUCB", "LaplaceEC", "DoubleThompsonSampling", "CascadeEC", "PlacedPBMUCB"),
    ("EXP3", "LinTS", "InterleavedFilter2", "EXP3S", "OracleRestart"),
    ("EpsilonGreedy", "PolyaGammaTS", "SelfSparring", "MUCB", "SlidingWindowUCB", "ECBandit"),
    ("UniformRandom", "WinnerStays", "DiscountedUCB", "LaplaceECMixture", "LinearEpsilonGreedy"),
)
PAPERS = {"E-C Bandit": "ECBandit", "Logistic": "LogisticTS"}
"""What papers call a policy, and figures after them."""


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
        _in_style(ax)
    return drawing, axes[0] if rows == 1 else axes


def save(drawing: Any, path: Path) -> Path:
    """Write a figure; the suffix gives the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)
    return path


@contextmanager
def drawn(
    path: str | Path | None, ax: Any, width: float = 7.0, height: float = 4.3
) -> Iterator[Any]:
    """Yield the axes to draw on, and write their figure in the end if there is a path.

    Parameters
    ----------
    path : path or None
    ax : matplotlib.axes.Axes or None
        None for a figure of its own: where nothing is written, one of ``matplotlib.pyplot``, which
        notebooks and ``show`` know of.
    width, height : float
        Of a figure of its own, in inches.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    if ax is None:
        ax = _shown(width, height) if path is None else figure(width, height)[1]
    yield ax
    if path is not None:
        save(ax.figure, Path(path))


def _shown(width: float, height: float) -> Any:
    """Return axes in the house style, of a figure that a notebook shows."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("matplotlib", "plots") from None
    _, ax = pyplot.subplots(figsize=(width, height), layout="constrained")
    _in_style(ax)
    return ax


def _in_style(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
    ax.set_prop_cycle(color=COLOURS)


def colour(ax: Any, policy: str, palette: Sequence[str] = COLOURS) -> str:
    """Return the colour that a policy has everywhere, or one that these axes do not have yet."""
    taken = {line.get_color() for line in ax.lines}
    name = re.split("[(,]", policy)[0].strip()
    name = PAPERS.get(name, name)
    own = [palette[i] for i, row in enumerate(POLICIES) if name in row and i < len(palette)]
    free = [each for each in (*own, *reversed(palette)) if each not in taken]
    return free[0] if free else palette[len(ax.lines) % len(palette)]


def band(ax: Any, x: Any, samples: Any, label: str, **style: Any) -> None:
    """Draw the mean over samples (axis 0) with a band of two standard errors."""
    style.setdefault("color", colour(ax, label))
    mean = samples.mean(axis=0)
    (line,) = ax.plot(x, mean, label=label, **style)
    if len(samples) > 1:
        error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
        ax.fill_between(
            x, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, lw=0
        )


def regret_curves(ax: Any, curves: dict[str, Any], rounds: Any, title: str) -> None:
    """Draw the mean regret of each policy with a band of two standard errors.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    curves : dict of str to array of float, shape (runs, checkpoints)
        Regret up to each checkpoint, by the name of the policy.
    rounds : array of int, shape (checkpoints,)
    title : str
    """
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
