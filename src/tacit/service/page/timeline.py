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
from typing import Any, NamedTuple

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.service.config.holdout import RewardScale
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import parse_time
from tacit.service.page.charts import SHARES, Point, Remark, Span, format_time
from tacit.service.placements.changes import format_change
from tacit.service.projections.arm_results import (
    DAY,
    DECISIONS,
    HOUR,
    SECOND,
    WIDTHS,
    R,
    get_impressions,
    get_rewards,
)
from tacit.service.projections.series import ARMS, Series, UniformEstimate, estimate_uniform_reward

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
        """Name of the range in sentences, such as "last hour"."""
        return NAMES.get(self.name, "the time chosen")

    @property
    def whole(self) -> bool:
        """True if the range is all time."""
        return self.name == "all"


def parse_range(name: str | None, begin: str | None, end: str | None, series: Series, now: int) -> Range:
    """Return the page's range of time from the parameters ``range``, ``from`` and ``to`` of its address.

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
    # Without decisions (-1) all time begins now; no range is empty.
    first = min(series.start if series.start > 0 else now, now - 1)
    if begin or end:
        start = parse_time("from", begin) if begin else first
        stop = parse_time("to", end) if end else now
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


class TimeBin(NamedTuple):
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
    impressions: Floats

    def merge(self, other: TimeBin) -> TimeBin:
        """Return one bin with the sums of this one and ``other``, which follows it in time."""
        return TimeBin(self.begin, other.end, self.sums + other.sums, self.impressions + other.impressions)

    @property
    def trials(self) -> float:
        """Number of impressions of all arms."""
        return float(self.impressions.sum())

    @property
    def uniform(self) -> UniformEstimate | None:
        """Estimated mean reward of uniform exploration; None if it cannot be estimated."""
        return estimate_uniform_reward(self.sums)


def read_time_bins(series: Series, time_range: Range, most: int = MOST_POINTS) -> list[TimeBin]:
    """Return rewards and impressions in a range of time, in at most ``most`` intervals.

    Intervals without impressions are left out.
    """
    rows: list[tuple[int, int, Floats, Floats]]
    if time_range.whole and (series.results.seq or series.width < WIDTHS[0]):
        # These sums go back to the beginning, unlike results from a snapshot of an earlier version, and have
        # a finer resolution for a placement that is only minutes old.
        ends, sums = series.resample(most)
        width = ends[1] - ends[0] if len(ends) > 1 else series.width
        rows = [(end - width, end, row, row[ARMS:]) for end, row in zip(ends, sums, strict=True)]
    else:
        begin = 0 if time_range.whole else time_range.span.begin
        periods = zip(*series.results.sum_periods(begin, time_range.span.end + 1, most), strict=True)
        rows = [(int(begin), int(end), row, get_impressions(row)) for begin, end, row in periods]
    time_bins = [TimeBin(begin, end, row[:ARMS], counts) for begin, end, row, counts in rows
             if counts.any()]  # fmt: skip
    return time_bins


def merge_time_bins(time_bins: Sequence[TimeBin], fewest: float = FEWEST) -> list[TimeBin]:
    """Merge successive intervals until each has at least ``fewest`` impressions.

    ``fewest`` is lowered to a twentieth of all impressions if that is less.
    """
    fewest = min(fewest, sum(time_bin.trials for time_bin in time_bins) / 20)
    merged: list[TimeBin] = []
    for time_bin in time_bins:
        if merged and merged[-1].trials < fewest:
            merged[-1] = merged[-1].merge(time_bin)
        else:
            merged.append(time_bin)
    if len(merged) > 1 and merged[-1].trials < fewest:
        # The last interval, which may have just begun, has no successor to merge with.
        merged[-2:] = [merged[-2].merge(merged[-1])]
    return merged


class Rate(NamedTuple):
    """A mean of rewards with its 95 % interval and number of trials."""

    value: float
    low: float
    high: float
    trials: int


def compute_rate(total: float, trials: float, scale: RewardScale = SHARES) -> Rate:
    """Return the mean of logged rewards with Wilson's 95 % interval (1927), in the unit of the scale.

    ``total`` is the sum of logged rewards. Without trials, the mean is 0 and the interval the whole scale.
    The interval is exact for clicks and too wide for rewards between the extremes, which vary less. On a
    scale without a largest reward both ends are the mean.

    Examples
    --------
    >>> [round(x, 3) for x in compute_rate(10, 100)[:3]]
    [0.1, 0.055, 0.174]
    """
    if scale.is_open:
        mean = scale.convert_logged(total, trials) / trials if trials > 0 else 0.0
        return Rate(mean, mean, mean, int(trials))
    if trials <= 0:
        return Rate(0.0, scale.low, scale.convert(1.0), 0)
    n, mean = trials, scale.convert_logged(total, trials) / trials
    share = min(max((mean - scale.low) / scale.span, 0.0), 1.0)
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    margin = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    low, high = (scale.convert(end) for end in (middle - margin, middle + margin))
    return Rate(mean, min(max(low, scale.low), mean), max(min(high, scale.convert(1.0)), mean), int(n))


def make_rate_points(
    time_bins: Sequence[TimeBin], arms_per_reward: int = 1, scale: RewardScale = SHARES
) -> list[Point]:
    """Return the mean reward per impression of each interval as points of a chart, in the unit of the scale.

    A decision that shows ``arms_per_reward`` arms counts as one impression.
    """
    points = []
    for time_bin in time_bins:
        rate = compute_rate(float(time_bin.sums[R]), time_bin.trials / arms_per_reward, scale)
        points.append(Point(time_bin.begin, time_bin.end, *rate))
    return points


def convert_estimate(estimate: UniformEstimate | None, scale: RewardScale) -> UniformEstimate | None:
    """Convert an estimated reward of uniform exploration from a share of the range to the unit of rewards.

    None stays None; clicks stay unchanged.
    """
    if estimate is None or not scale.of:
        return estimate
    return UniformEstimate(scale.convert_logged(estimate.value, 1.0), scale.span * estimate.margin)


def make_uniform_points(time_bins: Sequence[TimeBin], scale: RewardScale) -> list[Point]:
    """Return the estimated rewards of uniform exploration over time, for intervals that have an estimate."""
    points = []
    for time_bin in time_bins:
        estimate = convert_estimate(time_bin.uniform, scale)
        if estimate is not None:
            ends = estimate.value - estimate.margin, estimate.value + estimate.margin
            points.append(Point(time_bin.begin, time_bin.end, estimate.value, *ends, int(time_bin.trials)))
    return points


def make_share_points(time_bins: Sequence[TimeBin], arm_indices: Sequence[int]) -> list[Point]:
    """Return for each interval the share of its impressions that showed one of the given arms."""
    points = []
    for time_bin in time_bins:
        share = compute_rate(float(time_bin.impressions[arm_indices].sum()), time_bin.trials)
        points.append(Point(time_bin.begin, time_bin.end, *share))
    return points


class ArmSums(NamedTuple):
    """Impressions and rewards of every arm in a range, and the time from which they are counted."""

    impressions: Floats
    rewards: Floats
    since: int


def sum_arms(series: Series, time_range: Range) -> ArmSums:
    """Return impressions and rewards of every arm in a range, as far back as there are results."""
    results = series.results
    begin = max(time_range.span.begin if not time_range.whole else 0, results.time)
    sums = results.sum_range(begin) if time_range.whole else results.sum_range(begin, time_range.span.end)
    return ArmSums(get_impressions(sums), get_rewards(sums), results.time)


def count_decisions(series: Series, begin: int) -> int:
    """Return the number of decisions since a time, rounded to a period of the results."""
    return int(series.results.sum_range(begin)[DECISIONS])


# ---- Numbers and times of answers to requests of each placement, over the last hour

MINUTES = 60
BOUNDS = tuple(1e-4 * 10 ** (i / 6) for i in range(32))
"""Upper bounds of the histogram in seconds, from 0.1 ms to 15 s; neighbours differ by less than a half."""
REFUSED, FAILED, FIRST = 0, 1, 2
"""Indices in the counts of a minute: refused and failed answers, and the first interval of the histogram."""
TOO_MANY = 0.01
FEW = 100


class AnswerStatistics(NamedTuple):
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
        """Warning if more than 1 % of at least 100 requests failed; empty otherwise."""
        if self.requests < FEW or self.failed <= TOO_MANY * self.requests:
            return ""
        return f"{self.failed} of {self.requests} requests of the last hour failed (status 5xx)."


class AnswerCounts:
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
        self._counts: dict[str, dict[int, list[int]]] = {}

    def count(self, placement: str | None, status: int, seconds: float) -> None:
        """Count an answer by its status and duration in seconds under the current minute.

        Counts older than an hour are dropped. Nothing is counted without a placement, or for an unknown one.
        """
        minutes = None if placement is None else self._counts.get(placement)
        if minutes is None:
            if placement is None or placement not in self._placements():
                return
            minutes = self._counts[placement] = {}
        minute = int(time.monotonic() // 60)
        counts = minutes.get(minute)
        if counts is None:
            for past in [past for past in minutes if past <= minute - MINUTES]:
                del minutes[past]
            counts = minutes[minute] = [0] * (FIRST + len(BOUNDS) + 1)
        counts[FIRST + bisect_left(BOUNDS, seconds)] += 1
        if status >= 400:
            counts[REFUSED if status < 500 else FAILED] += 1

    def read_statistics(self, placement: str) -> AnswerStatistics | None:
        """Return counts and durations of a placement's answers of the last hour; None if there were none."""
        minute = int(time.monotonic() // 60)
        minutes = self._counts.get(placement, {})
        recent = [counts for when, counts in minutes.items() if when > minute - MINUTES]
        if not recent:
            return None
        refused, failed, *times = map(sum, zip(*recent, strict=True))
        median, slow = (_find_quantile(times, share) for share in (0.5, 0.99))
        return AnswerStatistics(sum(times), median, slow, refused, failed)


def _find_quantile(counts: list[int], share: float) -> float:
    """Return a quantile of a histogram over ``BOUNDS``, rounded up to a bound.

    Infinite beyond the last one.
    """
    rank, total = share * sum(counts), 0
    for bound, count in zip((*BOUNDS, math.inf), counts, strict=True):
        total += count
        if total >= rank:
            return bound
    return math.inf


# ---- Changes of a placement, in words

MOST_LINES = 20
CONFIGURATION, GUARDRAIL = "configuration", "guardrail"


class HistoryRow(NamedTuple):
    """Row of the page's table of changes."""

    when: str
    who: str
    what: str


def describe_change(change: LoggedChange) -> str:
    """Describe a logged change in words, with its times formatted.

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
    text = format_change(change, lambda moment: format_time(parse_time("moment", moment)))
    if text is not None:
        return text
    if change.what in ("rebuild", "rollback"):
        to = f" of {detail['to']}" if "to" in detail else ""
        return f"{change.what}: {detail['policy']}{to} decides"
    if change.what == "start":
        return f"started from {detail['file']}"
    parts = [f"{name}: {_format_value(value)}" for name, value in detail.items()]
    return "; ".join(parts) or change.what


def _format_value(value: Any) -> str:
    """Format a value of a change: text as it is, before and after as "A to B", anything else as JSON."""
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{_format_value(value['before'])} to {_format_value(value['after'])}"
    return value if isinstance(value, str) else json.dumps(value)


def make_remarks(changes: Sequence[LoggedChange]) -> list[Remark]:
    """Return for each change its time and description, to be shown in charts."""
    return [Remark(change.time, describe_change(change)) for change in changes]


def make_history(changes: Sequence[LoggedChange]) -> list[HistoryRow]:
    """Return rows for at most ``MOST_LINES`` latest changes, the last first."""
    return [
        HistoryRow(format_time(change.time), _format_author(change.who), describe_change(change))
        for change in changes[: -MOST_LINES - 1 : -1]
    ]


def _format_author(author: str | None) -> str:
    """Format the author of a change: a key, the configuration or the guardrail; a dash for None."""
    if author is None:
        return "\N{EN DASH}"
    return f"the {author}" if author in (CONFIGURATION, GUARDRAIL) else f"key {author}"
