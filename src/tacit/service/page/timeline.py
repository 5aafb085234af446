"""Data over time for the pages: rewards and impressions by interval of time, answers, and changes."""

# 1. Ranges of time, and sums of rewards and impressions in intervals of them.
# 2. Rates with confidence intervals.
# 3. ``AnswerCounts``: numbers and times of answers to requests in the last hour.
# 4. Changes of a placement in words.

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.service.config.holdout import RewardScale
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import as_time
from tacit.service.page.charts import SHARES, Point, Remark, Span, clock_time
from tacit.service.placements.arm_results import DAY, DECISIONS, HOUR, SECOND, WIDTHS, R, impressions, rewards
from tacit.service.placements.placement import words_of
from tacit.service.placements.series import ARMS, Series, UniformEstimate, uniform_estimate

MOST_POINTS = 96
MARGIN = 50
"""The range of all time ends after the last decision by its length divided by this."""
FEWEST, FEWEST_OF_ARMS = 50, 200
"""Intervals with fewer impressions are merged with their neighbours: for the reward, and for the shares
of arms."""
Z = 1.96
RANGES = {"hour": HOUR, "day": DAY, "week": 7 * DAY}
NAMES = {"hour": "last hour", "day": "last day", "week": "last week", "all": "all time"}


class Range(NamedTuple):
    """The range of time of a page.

    Attributes
    ----------
    name : str
        ``hour``, ``day``, ``week``, ``all``, or empty for a range between two times.
    span : Span
    """

    name: str
    span: Span

    @property
    def label(self) -> str:
        """Name of the range in sentences."""
        return NAMES.get(self.name, "the time chosen")

    @property
    def whole(self) -> bool:
        """True if the range is all time."""
        return self.name == "all"


def asked_range(name: str | None, begin: str | None, end: str | None, series: Series, now: int) -> Range:
    """Return the range of time that the query of an address asks for.

    Parameters
    ----------
    name, begin, end : str or None
        Name of a range, or two times in ISO 8601; by default the last day, or all time if that is less.
    series : Series
        Decisions of the placement: all time is from the first one to a little after the last one.
    now : int
        Microseconds since 1970.

    Raises
    ------
    InvalidValue
        If there is no such range, or a time is not valid.
    """
    first = min(series.start if series.start > 0 else now, now - 1)
    if begin or end:
        start, stop = _moment("from", begin, first), _moment("to", end, now)
        if not start < stop:
            raise InvalidValue("from", begin, "give a time before 'to'")
        return Range("", Span(start, stop))
    name = name or ("day" if now - first > DAY else "all")
    if name == "all":
        # If traffic has ended, a range until now would shrink its curve into a corner.
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
    """Sums of rewards and impressions in an interval of time.

    Attributes
    ----------
    begin, end : int
        Microseconds since 1970.
    sums : array of float64
        Sums of rewards and weights.
    impressions : array of float64, shape (arms,)
        Impressions of each arm.
    """

    begin: int
    end: int
    sums: Floats
    shown: Floats

    def joined(self, other: Stretch) -> Stretch:
        """Return the sums of this interval and the next one together."""
        return Stretch(self.begin, other.end, self.sums + other.sums, self.shown + other.shown)

    @property
    def trials(self) -> float:
        """Number of impressions."""
        return float(self.shown.sum())

    @property
    def uniform(self) -> UniformEstimate | None:
        """Estimated reward of uniform exploration."""
        return uniform_estimate(self.sums)


def stretches(series: Series, asked: Range, most: int = MOST_POINTS) -> list[Stretch]:
    """Return the sums in a range of time, in at most ``most`` intervals, without empty ones."""
    rows: list[tuple[int, int, Floats, Floats]]
    if asked.whole and (series.results.seq or series.width < WIDTHS[0]):
        # These sums go back to the beginning, unlike results from a snapshot of an earlier version, and have
        # a finer resolution for a placement that is only minutes old.
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
    """Merge intervals until each has ``fewest`` impressions, or a twentieth of all if that is less."""
    fewest = min(fewest, sum(stretch.trials for stretch in found) / 20)
    joined: list[Stretch] = []
    for stretch in found:
        if joined and joined[-1].trials < fewest:
            joined[-1] = joined[-1].joined(stretch)
        else:
            joined.append(stretch)
    if len(joined) > 1 and joined[-1].trials < fewest:
        # The last interval, which may have just begun, has no successor to merge with.
        joined[-2:] = [joined[-2].joined(joined[-1])]
    return joined


class Rate(NamedTuple):
    """A mean of rewards with its 95 % interval and number of trials."""

    value: float
    low: float
    high: float
    trials: int


def rate_of(total: float, trials: float, scale: RewardScale = SHARES) -> Rate:
    """Return the mean of logged rewards with Wilson's interval (1927), in the unit of the scale.

    The interval is that of clicks; rewards between the extremes vary less.

    Examples
    --------
    >>> [round(x, 3) for x in compute_rate(10, 100)[:3]]
    [0.1, 0.055, 0.174]
    """
    if trials <= 0:
        return Rate(0.0, scale.low, scale.amount(1.0), 0)
    n, mean = trials, scale.logged(total, trials) / trials
    share = min(max((mean - scale.low) / scale.span, 0.0), 1.0)
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    margin = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    low, high = (scale.amount(end) for end in (middle - margin, middle + margin))
    return Rate(mean, min(max(low, scale.low), mean), max(min(high, scale.amount(1.0)), mean), int(n))


def rate_points(found: Sequence[Stretch], each: int = 1, scale: RewardScale = SHARES) -> list[Point]:
    """Return rewards per impression over time, where an impression shows ``arms_per_reward`` arms."""
    return [
        Point(stretch.begin, stretch.end, *rate_of(float(stretch.sums[R]), stretch.trials / each, scale))
        for stretch in found
    ]


def in_unit(estimate: UniformEstimate | None, scale: RewardScale) -> UniformEstimate | None:
    """Convert an estimated reward of uniform exploration to the unit of rewards."""
    if estimate is None or not scale.of:
        return estimate
    return UniformEstimate(scale.amount(estimate.value), scale.span * estimate.margin)


def uniform_points(found: Sequence[Stretch], scale: RewardScale) -> list[Point]:
    """Return the estimated rewards of uniform exploration over time, for intervals that have an estimate."""
    points = []
    for stretch in found:
        known = in_unit(stretch.uniform, scale)
        if known is not None:
            ends = known.value - known.margin, known.value + known.margin
            points.append(Point(stretch.begin, stretch.end, known.value, *ends, int(stretch.trials)))
    return points


def share_points(found: Sequence[Stretch], slots: Sequence[int]) -> list[Point]:
    """Return the share of impressions of some arms over time."""
    return [
        Point(stretch.begin, stretch.end, *rate_of(float(stretch.shown[slots].sum()), stretch.trials))
        for stretch in found
    ]


class ArmSums(NamedTuple):
    """Impressions and rewards of every arm in a range, and the time from which they are counted."""

    shown: Floats
    earned: Floats
    since: int


def arm_sums(series: Series, asked: Range) -> ArmSums:
    """Return impressions and rewards of every arm in a range of time."""
    found = series.results
    begin = max(asked.span.begin if not asked.whole else 0, found.time)
    sums = found.over(begin) if asked.whole else found.over(begin, asked.span.end)
    return ArmSums(impressions(sums), rewards(sums), found.time)


def decisions_since(series: Series, begin: int) -> int:
    """Return the number of decisions since a time, to the minute or quarter of an hour."""
    return int(series.results.over(begin)[DECISIONS])


# ---- Numbers and times of answers to requests of each placement, over the last hour

MINUTES = 60
BOUNDS = tuple(1e-4 * 10 ** (i / 6) for i in range(32))
"""Upper bounds of the histogram in seconds, from 0.1 ms to 15 s; neighbours differ by less than a half."""
REFUSED, FAILED, FIRST = 0, 1, 2
TOO_MANY = 0.01
FEW = 100


class Answered(NamedTuple):
    """Statistics of the answers to requests.

    Attributes
    ----------
    requests : int
    median, slow : float
        Median and 99th percentile of the time in seconds.
    refused, failed : int
        Numbers of answers with statuses 4xx and 5xx.
    """

    requests: int
    median: float
    slow: float
    refused: int
    failed: int

    @property
    def wrong(self) -> str:
        """Warning if many requests failed; empty otherwise."""
        if self.requests < FEW or self.failed <= TOO_MANY * self.requests:
            return ""
        return f"{self.failed} of {self.requests} requests of the last hour failed (status 5xx)."


class Answers:
    """Counts answers by placement and minute.

    Parameters
    ----------
    placements : function
        Returns the names of existing placements; requests to other names are not counted.

    Examples
    --------
    >>> answers = AnswerCounts(lambda: {"home"})
    >>> for status in (200, 200, 422):
    ...     answers.count("home", status, 0.002)
    >>> answers.read_statistics("home").refused, round(answers.read_statistics("home").slow, 4)
    (1, 0.0022)
    """

    def __init__(self, placements: Callable[[], Container[str]]) -> None:
        self._placements = placements
        self._of: dict[str, dict[int, list[int]]] = {}

    def count(self, placement: str | None, status: int, seconds: float) -> None:
        """Count the answer to a request."""
        of = None if placement is None else self._of.get(placement)
        if of is None:
            if placement is None or placement not in self._placements():
                return
            of = self._of[placement] = {}
        minute = int(time.monotonic() // 60)
        counts = of.get(minute)
        if counts is None:
            for old in [minute_of for minute_of in of if minute_of <= minute - MINUTES]:
                del of[old]
            counts = of[minute] = [0] * (FIRST + len(BOUNDS) + 1)
        counts[FIRST + bisect_left(BOUNDS, seconds)] += 1
        if status >= 400:
            counts[REFUSED if status < 500 else FAILED] += 1

    def of(self, placement: str) -> Answered | None:
        """Return the statistics of the last hour's answers of a placement; None if there were none."""
        minute = int(time.monotonic() // 60)
        of = self._of.get(placement, {})
        lately = [counts for when, counts in of.items() if when > minute - MINUTES]
        if not lately:
            return None
        refused, failed, *times = map(sum, zip(*lately, strict=True))
        median, slow = (_within(times, share) for share in (0.5, 0.99))
        return Answered(sum(times), median, slow, refused, failed)


def _within(counts: list[int], share: float) -> float:
    """Return a quantile of a histogram over ``BOUNDS``, rounded up to a bound."""
    wanted, seen = share * sum(counts), 0
    for bound, count in zip((*BOUNDS, math.inf), counts, strict=True):
        seen += count
        if seen >= wanted:
            return bound
    return math.inf


# ---- Changes of a placement, in words

MOST_LINES = 20
CONFIGURATION, GUARDRAIL = "configuration", "guardrail"


class Line(NamedTuple):
    """Row of the page's table of changes."""

    when: str
    who: str
    what: str


def words(change: LoggedChange) -> str:
    """Describe a change in words.

    Examples
    --------
    >>> describe_change(LoggedChange(0, None, "mode", {"mode": "frozen"}))
    'mode: frozen'
    >>> describe_change(LoggedChange(0, "ann", "arms", {"add": ["a"], "retire": [], "restore": ["b", "c"]}))
    'arm added: a; arms restored: b, c'
    >>> describe_change(LoggedChange(0, None, "configuration", {"window": {"before": 30, "after": 60}}))
    'window: 30 to 60'
    >>> describe_change(LoggedChange(0, None, "rebuild", {"policy": "UCB1", "left": "…"}))
    'rebuild: UCB1 decides'
    """
    detail = change.detail
    said = words_of(change, lambda moment: clock_time(as_time("moment", moment)))
    if said is not None:
        return said
    if change.what in ("rebuild", "rollback"):
        to = f" of {detail['to']}" if "to" in detail else ""
        return f"{change.what}: {detail['policy']}{to} decides"
    if change.what == "start":
        return f"started from {detail['file']}"
    parts = [f"{name}: {_value(value)}" for name, value in detail.items()]
    return "; ".join(parts) or change.what


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{_value(value['before'])} to {_value(value['after'])}"
    return value if isinstance(value, str) else json.dumps(value)


def remarks(changes: Sequence[LoggedChange]) -> list[Remark]:
    """Convert changes to remarks of charts."""
    return [Remark(change.time, words(change)) for change in changes]


def latest(changes: Sequence[LoggedChange]) -> list[Line]:
    """Return rows for the latest changes, the last first."""
    return [
        Line(clock_time(change.time), _who(change.who), words(change))
        for change in changes[: -MOST_LINES - 1 : -1]
    ]


def _who(who: str | None) -> str:
    if who is None:
        return "\N{EN DASH}"
    return f"the {who}" if who in (CONFIGURATION, GUARDRAIL) else f"key {who}"
