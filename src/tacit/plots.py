"""Figures: labelled axes, error bands, and colours for all kinds of colour vision."""

# 1. Colours: a policy has the same colour in every figure.
# 2. ``figure``, ``save``, ``open_axes``, ``Plot``: axes in the house style, new or passed by the caller.
# 3. Estimates with intervals, means with bands, regret curves.

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidValue, MissingExtra

# Okabe and Ito's palette, designed for all kinds of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333", "#999999")
STYLES = ("-", "--", ":", "-.")
# The row of a policy determines its colour. The default policy of each kind is in the first row.
COLOUR_ROWS = (
    (
        "ShiftMixture", "ClickMixture", "HybridClickMixture", "ListMix", "SafeListMix", "RMED1",
        "ProbationBandit", "HorizonDraw",
    ),
    ("Thompson", "LogisticTS", "BeatTheMean", "PBMThompson", "CascadeUCB1"),
    ("UCB1", "LinUCB", "RUCB", "PBMUCB", "CascadeKLUCB", "SlidingWindowUCB"),
    ("KLUCB", "HLinUCB", "InterleavedFilter1", "RankedBandit", "CUSUMUCB", "BeatTheMeanPAC"),
    ("GLRKLUCB", "LaplaceEC", "DoubleThompsonSampling", "CascadeEC", "PlacedPBMUCB"),
    ("EXP3", "LinTS", "InterleavedFilter2", "EXP3S", "MUCB"),
    ("EpsilonGreedy", "PolyaGammaTS", "SelfSparring", "BWC", "ECBandit"),
    (
        "UniformRandom", "OracleRestart", "WinnerStays", "DiscountedUCB", "LaplaceECMixture",
        "LinearEpsilonGreedy",
    ),
)  # fmt: skip
PAPER_NAMES = {
    "doublethompson": "DoubleThompsonSampling",
    "logistic": "LogisticTS",
    "ora": "OracleRestart",
    "random": "UniformRandom",
}
"""Policies by their names in papers and figures, if these differ from the class's name."""


def figure(width: float = 7.0, height: float = 4.3, rows: int = 1, **options: Any) -> tuple[Any, Any]:
    """Return a new matplotlib figure and its axes in the house style, without pyplot's global state.

    With several rows, the axes are an array; ``options`` are passed to matplotlib's ``subplots``.

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
        _apply_style(ax)
    return drawing, axes[0] if rows == 1 else axes


def check_plot(path: Path) -> None:
    """Raise an error in advance if a figure cannot be drawn, or written in the format of a path's suffix;
    write nothing.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    InvalidValue
        If no format has the path's suffix.
    """
    _check_suffix(figure()[0], path)


def _check_suffix(drawing: Any, path: Path) -> None:
    """Raise InvalidValue if a figure cannot be written in the format of the path's suffix."""
    suffixes = drawing.canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in suffixes:
        raise InvalidValue("plot", str(path), f"give a name that ends in one of .{', .'.join(suffixes)}")


def save(drawing: Any, path: Path) -> Path:
    """Write a figure to a file, in the format of its suffix, and create missing folders; return the path."""
    _check_suffix(drawing, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)
    return path


@contextmanager
def open_axes(path: str | Path | None, ax: Any, height: float = 4.3) -> Iterator[Any]:
    """Yield axes to draw on, ``ax`` or new ones; at the end, write their figure to the path, if there is one.

    Parameters
    ----------
    path : path or None
    ax : matplotlib.axes.Axes or None
        None for a new figure: without a path, one of ``matplotlib.pyplot``, which notebooks and ``show``
        display.
    height : float
        Height of a new figure, in inches.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    if ax is None:
        ax = _notebook_axes(height) if path is None else figure(height=height)[1]
    yield ax
    if path is not None:
        save(ax.figure, Path(path))


class Plot:
    """Base of results that can be drawn, on new axes or on the caller's."""

    @property
    def height(self) -> float:
        """Height of a new figure, in inches; subclasses must implement it."""
        raise NotImplementedError

    def draw(self, ax: Any) -> None:
        """Draw the result on the axes; subclasses must implement it."""
        raise NotImplementedError

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the result on new axes or on ``ax``, write the figure to a path, if one is passed, and return
        the axes.

        The arguments are as for :meth:`tacit.simulation.SimulationResult.plot`.
        """
        with open_axes(path, ax, height=self.height) as axes:
            self.draw(axes)
        return axes


LineStyle = Mapping[str, Any]
"""Style of a line, as keyword arguments of matplotlib."""


class EstimateRow(NamedTuple):
    """A row of a figure of estimates.

    Attributes
    ----------
    name : str
    estimate : float or None
        None if it is too early for an estimate.
    intervals : list of ((float, float), dict)
        Intervals and their styles; later ones are drawn on top.
    point_style : dict
        Style of the estimate's point.
    """

    name: str
    estimate: float | None
    intervals: Sequence[tuple[tuple[float, float], LineStyle]] = ()
    point_style: LineStyle = MappingProxyType({})


def draw_estimates(ax: Any, rows: Sequence[EstimateRow], reference: float) -> None:
    """Draw each row's estimate with its intervals, from the bottom up, and a dashed line at ``reference``.

    A row without an estimate says "too early". Sets limits and labels of the vertical axis.
    """
    for y, row in enumerate(rows):
        if row.estimate is None:
            ax.text(reference, y, " too early", va="center", color="0.4", size=9)
            continue
        for bounds, style in row.intervals:
            ax.plot(bounds, [y, y], **style)
        ax.plot(row.estimate, y, "o", **row.point_style)
    ax.axvline(reference, color="0.4", lw=0.8, ls="--")
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_ylim(-0.6, len(rows) - 0.4)


def _notebook_axes(height: float) -> Any:
    """Return axes in the house style of a new pyplot figure, which notebooks show; ``height`` is in
    inches.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("matplotlib", "plots") from None
    _, ax = pyplot.subplots(figsize=(7.0, height), layout="constrained")
    _apply_style(ax)
    return ax


def _apply_style(ax: Any) -> None:
    """Set spines, grid and colour cycle of the axes to the house style."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
    ax.set_prop_cycle(color=COLOURS)


def assign_line_styles(
    policies: Iterable[str], palette: Sequence[str] = COLOURS, ax: Any = None
) -> dict[str, dict[str, str]]:
    """Return the line colour and style of each policy of a figure, as keyword arguments of matplotlib.

    A policy has the same colour in every figure. Names that share a colour, such as a policy with
    different hyperparameters, have different line styles, the shortest name a solid line; if all names
    are of one policy, they have different colours. Other names get unused colours.

    Parameters
    ----------
    policies : iterable of str
        Names, with or without hyperparameters, in any order.
    palette : sequence of str
        Replaces ``COLOURS``, with as many colours, such as for a dark page.
    ax : matplotlib.axes.Axes, optional
        Axes with existing lines, whose styles are not used again.

    Examples
    --------
    >>> assign_line_styles(["Thompson(arms=2, discount=0.99)", "Thompson", "UCB1"])["Thompson"]
    {'color': '#D55E00', 'ls': '-'}
    """
    rows = {policy: _policy_row(policy) for policy in policies}
    if len(rows) > 1 and len({*rows.values()}) == 1:
        rows = dict.fromkeys(rows)
    all_rows = range(len(palette))
    free_rows = [row for row in reversed(all_rows) if row not in rows.values()] or all_rows
    used_styles = {(line.get_color(), line.get_linestyle()) for line in ax.lines} if ax else set()
    styles = {}
    for policy in sorted(rows, key=lambda name: (len(name), name)):
        row = rows[policy]
        own_styles = [] if row is None else [(palette[row], style) for style in STYLES]
        free_styles = [(palette[row], style) for style in STYLES for row in free_rows]
        style_pair = next(
            (candidate for candidate in own_styles + free_styles if candidate not in used_styles),
            free_styles[0],
        )
        used_styles.add(style_pair)
        styles[policy] = dict(zip(("color", "ls"), style_pair, strict=True))
    return {policy: styles[policy] for policy in rows}


def _policy_row(policy: str) -> int | None:
    """Return the row of colours of the policy whose name begins a text, in any spelling; None if it begins
    with none.
    """
    words = re.split(r"[ .]", re.split("[(,]", policy)[0])
    for count in range(len(words), 0, -1):
        name = re.sub(r"\W", "", "".join(words[:count])).lower()
        name = PAPER_NAMES.get(name, name).lower()
        for row, names in enumerate(COLOUR_ROWS):
            if name in map(str.lower, names):
                return row
    return None


def band(ax: Any, x: Any, samples: Any, label: str, **style: Any) -> None:
    """Draw the mean over samples (axis 0) as a line, with a band of two standard errors if there are
    several.
    """
    mean = samples.mean(axis=0)
    (line,) = ax.plot(x, mean, label=label, **style)
    if len(samples) > 1:
        error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
        ax.fill_between(x, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, lw=0)


def regret_curves(ax: Any, curves: dict[str, Any], rounds: Any, title: str) -> None:
    """Draw the mean regret of each policy with a band of two standard errors; set labels, limits and legend.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    curves : dict of str to array of float, shape (runs, checkpoints)
        Cumulative regret at each checkpoint, by policy.
    rounds : array of int, shape (checkpoints,)
    title : str
    """
    styles = assign_line_styles(curves, ax=ax)
    for name, samples in curves.items():
        band(ax, rounds, samples, name, **styles[name])
    ax.set_xlabel("round")
    ax.set_ylabel("cumulative regret (expected clicks missed)")
    ax.set_title(title, size=10)
    ax.set_xlim(0, rounds[-1])
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.legend(frameon=False)
