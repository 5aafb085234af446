"""The time that a page is about, and what a placement did in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.service.page.charts import Point, Span
from tacit.service.placements.results import DAY, DECISIONS, HOUR, SECOND, R, impressions, rewards
from tacit.service.placements.series import ARMS, Series, UniformEstimate, uniform_estimate

MOST_POINTS = 96
MARGIN = 50
"""How much of all time is left free after its last decision: one part of so many."""
FEWEST, FEWEST_OF_ARMS = 50, 200
"""Stretches with fewer impressions are drawn together with their neighbours: for the
reward, and for the shares of arms."""
Z = 1.96
RANGES = {"hour": HOUR, "day": DAY, "week": 7 * DAY}
NAMES = {"hour": "last hour", "day": "last day", "week": "last week", "all": "all time"}


class Range(NamedTuple):
    """What time somebody asks for.

    Attributes
    ----------
    name : str
        ``hour``, ``day``, ``week``, ``all``, or empty between two times.
    span : Span
    """

    name: str
    span: Span

    @property
    def label(self) -> str:
        """What it is called."""
        return NAMES.get(self.name, "the time chosen")

    @property
    def whole(self) -> bool:
        """Whether it is all there was."""
        return self.name == "all"


def asked_range(name: str | None, begin: str | None, end: str | None, series: Series, now: int) -> Range:
    """Return the time that an address asks for.

    Parameters
    ----------
    name, begin, end : str or None
        Of a range, or two times in ISO 8601; by default the last day, or all if that is less.
    series : Series
        What was decided: all time goes from its first decision to a little after its last.
    now : int
        Microseconds since 1970.

    Raises
    ------
    InvalidValue
        If there is no such range, or a time is none.
    """
    first = min(series.start if series.start > 0 else now, now - 1)
    if begin or end:
        start, stop = _moment("from", begin, first), _moment("to", end, now)
        if not start < stop:
            raise InvalidValue("from", begin, "give a time before 'to'")
        return Range("", Span(start, stop))
    name = name or ("day" if now - first > DAY else "all")
    if name == "all":
        # Or the line of traffic that has ended would shrink into a corner.
        last = series.results.last
        after = max(last, first) + max((last - first) // MARGIN, SECOND) if last else now
        return Range(name, Span(first, min(after, now)))
    if name not in RANGES:
        raise InvalidValue("range", name, f"give one of {', '.join(NAMES)}")
    return Range(name, Span(now - RANGES[name], now))


def _moment(field: str, text: str | None, default: int) -> int:
    if not text:
        return default
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1e6)
    except (ValueError, OverflowError):
        raise InvalidValue(field, text, "give a time in ISO 8601, such as 2026-05-03") from None


class Stretch(NamedTuple):
    """What was in a stretch of time.

    Attributes
    ----------
    begin, end : int
        Microseconds since 1970.
    sums : array of float64
        Of rewards and weights.
    shown : array of float64, shape (arms,)
        Impressions of each.
    """

    begin: int
    end: int
    sums: Floats
    shown: Floats

    def joined(self, other: Stretch) -> Stretch:
        """Return this stretch and the next one as one."""
        return Stretch(self.begin, other.end, self.sums + other.sums, self.shown + other.shown)

    @property
    def trials(self) -> float:
        """How many impressions there were."""
        return float(self.shown.sum())

    @property
    def uniform(self) -> UniformEstimate | None:
        """What uniform exploration would have earned."""
        return uniform_estimate(self.sums)


def stretches(series: Series, asked: Range, most: int = MOST_POINTS) -> list[Stretch]:
    """Return what was in a range, in so many stretches at most."""
    rows: list[tuple[int, int, Floats, Floats]]
    if asked.whole and series.results.seq:
        # A snapshot of an earlier version kept no results; these sums go back to the beginning.
        ends, sums = series.points(most)
        width = ends[1] - ends[0] if len(ends) > 1 else series.width
        rows = [(end - width, end, row, row[ARMS:]) for end, row in zip(ends, sums, strict=True)]
    else:
        begin = 0 if asked.whole else asked.span.begin
        fine = zip(*series.results.between(begin, asked.span.end + 1, most), strict=True)
        rows = [(int(begin), int(end), row, impressions(row)) for begin, end, row in fine]
    found = [Stretch(begin, end, row[:ARMS], shown) for begin, end, row, shown in rows
             if shown.any()]  # fmt: skip
    return found


def together(found: Sequence[Stretch], fewest: float = FEWEST) -> list[Stretch]:
    """Join stretches until each has impressions enough; of little traffic, a twentieth of it."""
    fewest = min(fewest, sum(stretch.trials for stretch in found) / 20)
    joined: list[Stretch] = []
    for one in found:
        if joined and joined[-1].trials < fewest:
            joined[-1] = joined[-1].joined(one)
        else:
            joined.append(one)
    if len(joined) > 1 and joined[-1].trials < fewest:
        # Such as the stretch that has just begun.
        joined[-2:] = [joined[-2].joined(joined[-1])]
    return joined


class Rate(NamedTuple):
    """A mean of rewards, and its 95 % interval."""

    value: float
    low: float
    high: float
    trials: int


def rate_of(total: float, trials: float, lowest: float = 0.0) -> Rate:
    """Return the mean of so many rewards in [lowest, 1] with the interval of Wilson (1927).

    That is the interval of clicks; rewards between the extremes vary less.

    Examples
    --------
    >>> [round(x, 3) for x in rate_of(10, 100)[:3]]
    [0.1, 0.055, 0.174]
    """
    if trials <= 0:
        return Rate(0.0, lowest, 1.0, 0)
    span, n = 1.0 - lowest, trials
    share = min(max((total / n - lowest) / span, 0.0), 1.0)
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    margin = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    low, high = (lowest + span * end for end in (middle - margin, middle + margin))
    return Rate(total / n, min(max(low, lowest), total / n), max(min(high, 1.0), total / n), int(n))


def rate_points(found: Sequence[Stretch], each: int = 1, lowest: float = 0.0) -> list[Point]:
    """Return rewards per impression over time; ``each`` arms are shown in one of a duel."""
    return [
        Point(one.begin, one.end, *rate_of(float(one.sums[R]), one.trials / each, lowest)) for one in found
    ]


def uniform_points(found: Sequence[Stretch]) -> list[Point]:
    """Return what uniform exploration would have earned over time, where that is known."""
    points = []
    for one in found:
        known = one.uniform
        if known is not None:
            ends = known.value - known.margin, known.value + known.margin
            points.append(Point(one.begin, one.end, known.value, *ends, int(one.trials)))
    return points


def share_points(found: Sequence[Stretch], slots: Sequence[int]) -> list[Point]:
    """Return the share of some arms of the impressions over time."""
    return [
        Point(stretch.begin, stretch.end, *rate_of(float(stretch.shown[slots].sum()), stretch.trials))
        for stretch in found
    ]


class ArmSums(NamedTuple):
    """What every arm had in a range, and since when that is known."""

    shown: Floats
    earned: Floats
    since: int


def arm_sums(series: Series, asked: Range) -> ArmSums:
    """Return impressions and rewards of every arm."""
    found = series.results
    begin = max(asked.span.begin if not asked.whole else 0, found.time)
    sums = found.over(begin) if asked.whole else found.over(begin, asked.span.end)
    return ArmSums(impressions(sums), rewards(sums), found.time)


def decisions_since(series: Series, begin: int) -> int:
    """Return how many decisions were made, by minutes or quarters of an hour."""
    return int(series.results.over(begin)[DECISIONS])
