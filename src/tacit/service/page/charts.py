"""Format numbers and times, and draw charts as SVG on the server.

A chart has no fixed width: the plot is stretched to the width of the page, while lines and letters
keep their size, so one drawing fits all screens. Colours come from the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from tacit.service.config.holdout import RewardScale

# ---- Format probabilities, times and sizes

UNITS = (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 1), ("s", 1, 1))
"""Name and seconds of each unit, and the number of units of an age from it on, such as days and hours."""


def chance(probability: float) -> str:
    """Format a probability in whole percent, never as 0 or 100 %.

    Examples
    --------
    >>> chance(0.5), chance(0.9999), chance(0.0001)
    ('50 %', '> 99 %', '< 1 %')
    """
    if probability > 0.99:
        return "> 99 %"
    return "< 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def format_age(microseconds: int) -> str:
    """Format an age in microseconds in words, by its one or two largest units.

    Examples
    --------
    >>> format_age(400_000), format_age(90_000_000), format_age(7_300_000_000)
    ('now', '1 min ago', '2 h 1 min ago')
    """
    seconds = microseconds // SECOND
    first = next((i for i, (_, length, _) in enumerate(UNITS) if seconds >= length), None)
    if first is None:
        return "now"
    parts = []
    for name, length, _ in UNITS[first : first + UNITS[first][2]]:
        count, seconds = divmod(seconds, length)
        parts.append(f"{count} {name}")
    return f"{' '.join(parts)} ago"


def size(count: int) -> str:
    """Format a number of bytes in B, kB, MB or GB.

    Examples
    --------
    >>> size(900), size(5_600_000)
    ('900 B', '5.6 MB')
    """
    if count < 1000:
        return f"{count} B"
    unit, factor = next((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= f)
    return f"{count / factor:.1f} {unit}"


def seconds(time: float) -> str:
    """Format a short duration, given in seconds, in seconds or milliseconds.

    Examples
    --------
    >>> seconds(0.0022), seconds(0.0464), seconds(1.5), seconds(float("inf"))
    ('2.2 ms', '46 ms', '1.5 s', 'more than 15 s')
    """
    if time == float("inf"):
        return "more than 15 s"
    return f"{1000 * time:.2g} ms" if time < 0.0995 else f"{time:.2g} s"


HEIGHT = 250
TOP = 26
PLOT = 190
UNIT = 1000
"""The plot's own coordinates run from 0 to this, in both directions."""
LEAST_DISTANCE = 0.04
"""Remarks that are closer than this share of the width have one label together."""
GAP_FACTOR = 3.0
"""A curve has a gap if points are apart by more than their width multiplied by this."""
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
STEPS = (
    *(n * SECOND for n in (1, 2, 5, 10, 15, 30)), *(n * MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR for n in (1, 2, 3, 6, 12)), *(n * DAY for n in (1, 2, 7, 14, 28, 56, 112)),
    *(365 * n * DAY for n in (1, 2, 5, 10, 20, 50)),
)  # fmt: skip
MOST_TICKS = 4
SHARES = RewardScale()
CHARACTER = 0.025
"""Width of a character, as a share of the chart on the narrowest screen."""


class Point(NamedTuple):
    """A value in an interval of time, with its confidence interval.

    Attributes
    ----------
    begin, end : int
        Microseconds since 1970.
    value, low, high : float
    trials : int
        Number of impressions behind the value.
    """

    begin: int
    end: int
    value: float
    low: float
    high: float
    trials: int


class ChartLine(NamedTuple):
    """A curve of values over time.

    Attributes
    ----------
    name : str
    style : str
        CSS class with the curve's colour.
    points : sequence of Point
        In the order of time.
    """

    name: str
    style: str
    points: Sequence[Point]


class Remark(NamedTuple):
    """An event that a chart marks: its time and its text."""

    time: int
    text: str


class Span(NamedTuple):
    """The range of time of a chart, in microseconds since 1970."""

    begin: int
    end: int

    def place(self, time: float) -> float:
        """Return the position of a time in the span, from 0 to 1.

        Times outside are moved to the nearest end.
        """
        return min(max((time - self.begin) / max(self.end - self.begin, 1), 0.0), 1.0)


def draw_chart(
    curves: Sequence[ChartLine],
    span: Span,
    title: str,
    summary: str,
    remarks: Sequence[Remark] = (),
    open_since: int | None = None,
    unit: RewardScale = SHARES,
) -> Markup:
    """Return an SVG chart of curves over time, with confidence bands and tooltips.

    Very wide bands are cut off.

    Parameters
    ----------
    curves : sequence of ChartLine
        Later ones are drawn over earlier ones.
    span : Span
    title, summary : str
        Texts for screen readers.
    remarks : sequence of Remark
        Events, which the chart marks by numbers from 1 on.
    open_since : int, optional
        Time from which on windows are open, so that values may still rise.
    unit : RewardScale, optional
        Unit of values; by default they are shares.
    """
    points = [point for curve in curves for point in curve.points]
    values = [point.value for point in points] or [0.0]
    # Limit the range, so that a wide interval does not flatten all curves: there is at most as much space
    # above the values as between them.
    reach = max(2.0 * max(values) - min(values), max(values), 0.0)
    ticks = choose_ticks(min(max((p.high for p in points), default=0.0), reach), min(0.0, *values))
    scale = _Scale(span, ticks[0], ticks[-1])
    marks = [scale.draw_band(curve) for curve in curves] + [scale.draw_line(curve) for curve in curves]
    shares = unit.shares
    levels = [(scale.place_value(tick), f"{100 * tick:.4g} %" if shares else f"{tick:.4g}") for tick in ticks]
    grid = "".join(f'<path class="grid" d="M0 {y:.1f}H{UNIT}"/>' for y, _ in levels)
    labels = "".join(
        f'<text x="-10" y="{TOP + PLOT * y / UNIT + 4:.1f}" text-anchor="end">{level}</text>'
        for y, level in levels
    )
    ground = f"{_draw_open_windows(span, open_since)}{grid}{_draw_remarks(remarks, span)}"
    return Markup(  # noqa: S704 (every name in it is escaped)
        f'<svg class="chart" role="img" width="100%" height="{HEIGHT}">'
        f"<title>{escape(title)}</title><desc>{escape(summary)}</desc>"
        f'<svg y="{TOP}" width="100%" height="{PLOT}" viewBox="0 0 {UNIT} {UNIT}" '
        f'preserveAspectRatio="none">{ground}{"".join(marks)}'
        f"{_draw_tooltips(curves, span, unit)}</svg>"
        f"{labels}{_label_remarks(remarks, span)}{_label_times(span)}</svg>"
    )


class _Scale(NamedTuple):
    """The scale of a chart: its span of time, and the values at its lower and upper edge."""

    span: Span
    lowest: float
    highest: float

    def place_value(self, value: float) -> float:
        """Return the vertical coordinate of a value, from 0 at the top to ``UNIT``.

        Values outside are clipped.
        """
        share = (value - self.lowest) / (self.highest - self.lowest)
        return UNIT * (1.0 - min(max(share, 0.0), 1.0))

    def place_time(self, time: float) -> float:
        """Return the horizontal coordinate of a time, from 0 to ``UNIT``."""
        return UNIT * self.span.place(time)

    def draw_line(self, curve: ChartLine) -> str:
        """Return SVG paths through a curve's values, with gaps where points are missing."""
        paths = ""
        for run in _split_curve(curve.points):
            path = " L".join(
                f"{self.place_time((p.begin + p.end) / 2):.1f} {self.place_value(p.value):.1f}" for p in run
            )
            # A line of no length is drawn as a dot by its round ends.
            dot = "h0" if len(run) == 1 else ""
            paths += f'<path class="line {escape(curve.style)}" d="M{path}{dot}"/>'
        return paths

    def draw_band(self, curve: ChartLine) -> str:
        """Return SVG areas of a curve's confidence intervals, with gaps where points are missing."""
        paths = ""
        for run in _split_curve(curve.points):
            upper = [(self.place_time((p.begin + p.end) / 2), self.place_value(p.high)) for p in run]
            lower = [(self.place_time((p.begin + p.end) / 2), self.place_value(p.low)) for p in run]
            # A lone point has an area as wide as its interval of time.
            if len(run) == 1:
                ends = self.place_time(run[0].begin), self.place_time(run[0].end)
                upper = [(x, upper[0][1]) for x in ends]
                lower = [(x, lower[0][1]) for x in ends]
            path = " L".join(f"{x:.1f} {y:.1f}" for x, y in [*upper, *lower[::-1]])
            paths += f'<path class="band {escape(curve.style)}" d="M{path}Z"/>'
        return paths


def draw_sparkline(points: Sequence[Point], span: Span, title: str) -> Markup:
    """Return a small SVG chart of one curve over time, without labels; empty without points.

    Parameters
    ----------
    points : sequence of Point
    span : Span
    title : str
        Text for screen readers, with the values.
    """
    if not points:
        return Markup("")
    values = [point.value for point in points]
    low, high = min(values), max(values)
    # A constant curve needs a range, too.
    apart = (high - low) or abs(high) or 0.01
    scale = _Scale(span, low - 0.25 * apart, high + 0.25 * apart)
    curve = ChartLine("", "learned", points)
    return Markup(  # noqa: S704 (the title is escaped)
        f'<svg class="spark" role="img" width="100%" height="36" viewBox="0 0 {UNIT} {UNIT}" '
        f'preserveAspectRatio="none"><title>{escape(title)}</title>'
        f"{scale.draw_band(curve)}{scale.draw_line(curve)}</svg>"
    )


def choose_ticks(highest: float, lowest: float = 0.0) -> list[float]:
    """Return equidistant round numbers from at most ``lowest`` and 0 to at least ``highest``.

    Examples
    --------
    >>> [round(tick, 3) for tick in choose_ticks(0.13)]
    [0.0, 0.05, 0.1, 0.15]
    >>> [round(tick, 3) for tick in choose_ticks(0.2, -0.3)]
    [-0.4, -0.2, 0.0, 0.2]
    """
    reach = max(highest, 0.0) - min(lowest, 0.0)
    if reach <= 0.0:
        return [0.0, 0.01]
    # The smallest round step of which four cover the range; 1e-9 forgives rounding errors.
    scale = 10.0 ** math.floor(math.log10(reach / 2))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10, 20) if reach <= 4 * s * scale)
    first, last = (math.floor(min(lowest, 0.0) / step + 1e-9), math.ceil(highest / step - 1e-9))
    return [step * i for i in range(first, max(last, first + 1) + 1)]


def percent(value: float) -> str:
    """Format a share in percent with one decimal, or with two if it is below 1 %.

    Examples
    --------
    >>> percent(0.1234), percent(0.05), percent(0.0012)
    ('12.3 %', '5.0 %', '0.12 %')
    """
    return f"{100 * value:.{2 if 0 < value < 0.01 else 1}f} %"


def format_reward(amount: float, scale: RewardScale) -> str:
    """Format a mean reward in its unit: in percent if the scale is one of shares, else as a number.

    Examples
    --------
    >>> format_reward(0.1234, RewardScale()), format_reward(12.345, RewardScale(0.0, 200.0, "revenue"))
    ('12.3 %', '12.35')
    """
    return percent(amount) if scale.shares else f"{amount:.4g}"


def reward(share: float, scale: RewardScale) -> str:
    """Format a mean reward, given as a share of the range of rewards, in its unit.

    Examples
    --------
    >>> reward(0.25, SHARES), reward(0.25, RewardScale(0.0, 200.0, "revenue"))
    ('25.0 %', '50')
    """
    return format_reward(scale.convert(share), scale)


def interval(ends: Sequence[float], scale: RewardScale) -> str:
    """Format the low and the high end of an interval of mean rewards in their unit.

    Examples
    --------
    >>> interval([0.1, 0.25], SHARES), interval([20.0, 50.0], RewardScale(0.0, 200.0, "revenue"))
    ('10.0–25.0 %', '20–50')
    """
    if scale.shares:
        return "{:.1f}–{:.1f} %".format(*(100 * end for end in ends))
    return "–".join(format_reward(end, scale) for end in ends)


def format_time(time: int, step: int = MINUTE) -> str:
    """Format a time in microseconds since 1970 in UTC.

    Below a minute ``step`` adds seconds, from a day on only days.

    Examples
    --------
    >>> format_time(1_700_000_000_000_000), format_time(1_700_000_000_000_000, DAY)
    ('14 Nov 22:13', '14 Nov')
    """
    moment = datetime.fromtimestamp(time / SECOND, UTC)
    if step >= DAY:
        return f"{moment.day} {moment:%b}" + (f" {moment:%Y}" if step >= 56 * DAY else "")
    return f"{moment.day} {moment:%b} {moment:%H:%M}" + (f":{moment:%S}" if step < MINUTE else "")


def choose_time_ticks(span: Span) -> list[tuple[int, str]]:
    """Return about ``MOST_TICKS`` round times in a span, each with a distinct label in UTC.

    Examples
    --------
    >>> [name for _, name in choose_time_ticks(Span(0, 86_400 * SECOND))]
    ['06:00', '12:00', '18:00', '2 Jan']
    """
    step = next((s for s in STEPS if (span.end - span.begin) / s <= MOST_TICKS), STEPS[-1])
    # Rounded up to a multiple of the step.
    first = -(-max(span.begin, 1) // step) * step
    times = range(first, span.end + 1, step)
    ticks = [(time, _format_tick(time, step)) for time in times]
    # If times of the day repeat, every second tick has its date, too.
    if len({name for _, name in ticks}) < len(ticks):
        ticks = [(time, format_time(time, step)) for time in times[::2]]
    return ticks


def _format_tick(time: int, step: int) -> str:
    """Format a tick's time: the date at midnight or for steps of days, else the time of the day."""
    # Ticks at midnight have the date as their label, others the time of the day.
    if step >= DAY or time % DAY == 0:
        return format_time(time, max(step, DAY))
    return format_time(time, step).split()[2]


def _split_curve(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points of a curve in runs; a gap is longer than ``GAP_FACTOR`` times an interval."""
    runs: list[list[Point]] = [list(points[:1])] if points else []
    for before, point in pairwise(points):
        width = max(before.end - before.begin, point.end - point.begin)
        if point.begin - before.end > GAP_FACTOR * width:
            runs.append([])
        runs[-1].append(point)
    return runs


def _draw_tooltips(curves: Sequence[ChartLine], span: Span, unit: RewardScale) -> str:
    """Return SVG with an invisible column for each interval of time, whose tooltip has the curves' values."""
    values: dict[tuple[int, int], list[str]] = {}
    for curve in curves:
        for p in curve.points:
            value = f"{curve.name}: {format_reward(p.value, unit)}"
            # Without a largest reward, rewards have no interval.
            if p.low < p.high or not unit.is_open:
                value += f" ({format_reward(p.low, unit)} to {format_reward(p.high, unit)})"
            values.setdefault((p.begin, p.end), []).append(value)
    columns = []
    for (begin, end), lines in sorted(values.items()):
        x = UNIT * span.place(begin)
        step = SECOND if end - begin < MINUTE else MINUTE
        when = f"{format_time(begin, step)} to {format_time(end, step)} (UTC)"
        columns.append(
            f'<rect class="hint" x="{x:.1f}" width="{UNIT * span.place(end) - x:.1f}" '
            f'height="{UNIT}"><title>{escape(chr(10).join([when, *lines]))}</title></rect>'
        )
    return "".join(columns)


def _draw_open_windows(span: Span, since: int | None) -> str:
    """Return SVG that shades the chart from the time on when windows are open.

    "" if no time is in the span.
    """
    if since is None or since >= span.end:
        return ""
    x = UNIT * span.place(since)
    return f'<rect class="open" x="{x:.1f}" width="{UNIT - x:.1f}" height="{UNIT}"/>'


def _draw_remarks(remarks: Sequence[Remark], span: Span) -> str:
    """Return SVG with a vertical line at the time of each remark."""
    places = (UNIT * span.place(remark.time) for remark in remarks)
    return "".join(f'<path class="remark" d="M{x:.1f} 0V{UNIT}"/>' for x in places)


def _label_remarks(remarks: Sequence[Remark], span: Span) -> str:
    """Return SVG with the numbers of remarks above the plot; close ones share a label, such as 2–4."""
    # The place of a label, and the first and the last number in it.
    clusters: list[tuple[float, int, int]] = []
    for number, remark in enumerate(remarks, 1):
        place = span.place(remark.time)
        if clusters and place - clusters[-1][0] < LEAST_DISTANCE:
            clusters[-1] = clusters[-1][0], clusters[-1][1], number
        else:
            clusters.append((place, number, number))
    return "".join(
        f'<text class="remarked" x="{100 * place:.1f}%" y="{TOP - 8}" '
        f'text-anchor="{_choose_anchor(place)}">{first}{f"–{last}" if last > first else ""}</text>'
        for place, first, last in clusters
    )


def _choose_anchor(place: float) -> str:
    """Return the SVG text anchor of a label at a place from 0 to 1, so that labels at edges stay inside."""
    return "start" if place < 0.08 else "end" if place > 0.92 else "middle"


def _label_times(span: Span) -> str:
    """Return SVG with the labels of times below the plot.

    A label at an edge is left out if it overlaps its neighbour.
    """
    labels = [(span.place(time), name) for time, name in choose_time_ticks(span)]
    # A label at an edge is not centred on its time, and may overlap the next one.
    if len(labels) > 1 and _choose_anchor(labels[0][0]) == "start" and _labels_overlap(*labels[:2]):
        del labels[0]
    # The last label, then its neighbour.
    if len(labels) > 1 and _choose_anchor(labels[-1][0]) == "end" and _labels_overlap(*labels[:-3:-1]):
        del labels[-1]
    return "".join(
        f'<text x="{100 * place:.1f}%" y="{TOP + PLOT + 22}" '
        f'text-anchor="{_choose_anchor(place)}">{escape(name)}</text>'
        for place, name in labels
    )


def _labels_overlap(at_edge: tuple[float, str], inside: tuple[float, str]) -> bool:
    """True if a label at an edge and its neighbour overlap; each is a pair of place and text."""
    return abs(inside[0] - at_edge[0]) < CHARACTER * (len(at_edge[1]) + len(inside[1]) / 2)
