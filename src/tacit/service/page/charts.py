"""Charts as SVG, drawn on the server.

A chart has no width of its own: its plot is stretched to the page's while lines and letters keep
their size, so one drawing fits a telephone and a wall. Colours come from the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

HEIGHT = 236
TOP = 12
PLOT = 190
UNIT = 1000
"""The plot's own coordinates run from 0 to this, in both directions."""

Values = Sequence[float | None]


class Curve(NamedTuple):
    """Values over time under one name.

    Attributes
    ----------
    name : str
    style : str
        Class of the style sheet that gives its colour.
    values : sequence of float or None
        None leaves a gap.
    """

    name: str
    style: str
    values: Values


def line_chart(curves: Sequence[Curve], times: Sequence[str], title: str, summary: str) -> Markup:
    """Draw shares over time as lines.

    Parameters
    ----------
    curves : sequence of Curve
        Later ones are drawn over earlier ones.
    times : sequence of str
        What to call each point in time.
    title, summary : str
        For those who listen instead of looking.
    """
    highest = max((v for curve in curves for v in curve.values if v is not None), default=0.0)
    ticks = nice_ticks(highest)
    places = _places(len(times))
    marks = []
    for curve in curves:
        heights = [None if v is None else UNIT * (1 - v / ticks[-1]) for v in curve.values]
        for run in _runs(places, heights):
            path = " L".join(f"{x:.1f} {y:.1f}" for x, y in run)
            # A stretch of no length is drawn as a dot by its round ends.
            alone = "h0" if len(run) == 1 else ""
            marks.append(f'<path class="line {escape(curve.style)}" d="M{path}{alone}"/>')
    return _chart(curves, times, title, summary, ticks, marks)


def area_chart(curves: Sequence[Curve], times: Sequence[str], title: str, summary: str) -> Markup:
    """Draw shares that add up to one over time, stacked from the bottom in their order.

    Parameters are those of :func:`line_chart`, without gaps.
    """
    places = _places(len(times))
    floor = [0.0] * len(times)
    marks = []
    for curve in curves:
        ceiling = [low + (v or 0.0) for low, v in zip(floor, curve.values, strict=True)]
        outline = [*zip(places, ceiling, strict=True), *_backwards(places, floor)]
        if len(times) == 1:
            outline = [(0.0, ceiling[0]), (UNIT, ceiling[0]), (UNIT, floor[0]), (0.0, floor[0])]
        path = " L".join(f"{x:.1f} {UNIT * (1 - y):.1f}" for x, y in outline)
        marks.append(f'<path class="area {escape(curve.style)}" d="M{path}Z"/>')
        floor = ceiling
    return _chart(curves, times, title, summary, [0.0, 0.5, 1.0], marks)


def nice_ticks(highest: float) -> list[float]:
    """Return round numbers from 0 to one that is at least ``highest``.

    Examples
    --------
    >>> [round(tick, 3) for tick in nice_ticks(0.13)]
    [0.0, 0.05, 0.1, 0.15]
    """
    if highest <= 0.0:
        return [0.0, 0.01]
    scale = 10.0 ** math.floor(math.log10(highest / 2))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10, 20) if highest <= 4 * s * scale)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def percent(value: float) -> str:
    """Write a share.

    Examples
    --------
    >>> percent(0.1234), percent(0.05), percent(0.0012)
    ('12.3 %', '5.0 %', '0.12 %')
    """
    return f"{100 * value:.{2 if 0 < value < 0.01 else 1}f} %"


def _places(count: int) -> list[float]:
    return [UNIT / 2] if count == 1 else [UNIT * i / (count - 1) for i in range(count)]


def _backwards(places: list[float], values: list[float]) -> list[tuple[float, float]]:
    return list(zip(places, values, strict=True))[::-1]


def _runs(
    places: Sequence[float], heights: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
    """Split a curve at its gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(places, heights, strict=True):
        if y is not None:
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _chart(
    curves: Sequence[Curve],
    times: Sequence[str],
    title: str,
    summary: str,
    ticks: Sequence[float],
    marks: Sequence[str],
) -> Markup:
    levels = [(UNIT * (1 - tick / ticks[-1]), f"{100 * tick:.4g} %") for tick in ticks]
    grid = "".join(f'<path class="grid" d="M0 {y:.1f}H{UNIT}"/>' for y, _ in levels)
    labels = "".join(
        f'<text x="-10" y="{TOP + PLOT * y / UNIT + 4:.1f}" text-anchor="end">{label}</text>'
        for y, label in levels
    )
    return Markup(  # noqa: S704 (every name in it is escaped)
        f'<svg class="chart" role="img" width="100%" height="{HEIGHT}">'
        f"<title>{escape(title)}</title><desc>{escape(summary)}</desc>"
        f'<svg y="{TOP}" width="100%" height="{PLOT}" viewBox="0 0 {UNIT} {UNIT}" '
        f'preserveAspectRatio="none">{grid}{"".join(marks)}{_hints(curves, times)}</svg>'
        f"{labels}{_time_labels(times)}</svg>"
    )


def _hints(curves: Sequence[Curve], times: Sequence[str]) -> str:
    """Return an invisible column per point in time that tells its values when pointed at."""
    width = UNIT / max(len(times) - 1, 1)
    columns = []
    for i, (x, time) in enumerate(zip(_places(len(times)), times, strict=True)):
        values = [(curve.name, curve.values[i]) for curve in curves]
        lines = [f"{name}: {percent(value)}" for name, value in values if value is not None]
        columns.append(
            f'<rect class="hint" x="{x - width / 2:.1f}" width="{width:.1f}" height="{UNIT}">'
            f"<title>{escape(chr(10).join([time, *lines]))}</title></rect>"
        )
    return "".join(columns)


def _time_labels(times: Sequence[str]) -> str:
    places = [("50%", "middle", times[len(times) // 2])]
    if len(times) > 1:
        places = [("0", "start", times[0]), *places, ("100%", "end", times[-1])]
    # Two ticks of the same name would say nothing of the time between them.
    shown = {time: (x, anchor, time) for x, anchor, time in reversed(places)}.values()
    return "".join(
        f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(time)}</text>'
        for x, anchor, time in shown
    )
