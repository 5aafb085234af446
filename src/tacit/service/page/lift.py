"""Prepare lifts, and verdicts on rankers, for the page: texts, and coordinates of intervals on a scale."""

# 1. The lift: alarms, periods, and coordinates on a scale.
# 2. ``Preferences``: which ranker users prefer, with all intervals on one scale.

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.page.timeline import Range
from tacit.service.placements.placement import Placement
from tacit.service.projections.lift_report import CHANGES, make_lift_report
from tacit.uplift.sentences import per_decision, percent
from tacit.wire.lift import Bounds, ChapterLift, Group, LiftReport

# ---- The lift: the report of the API, and coordinates on a scale

WITHOUT = "No holdout: compared with arms drawn uniformly, by the propensities of what was shown."

EDGES = 0.0, 50.0, 100.0
"""Coordinates of low end, estimate and high end if they are unknown."""
MOST_ROWS = 12
"""Rows of periods and their parts that are shown at most."""

ALARMS = {"propensities": "Arms are not shown as often as their propensities say: see the lift."}
ALARM = "The holdout does not have its share: see the lift."


def list_alarms(report: LiftReport) -> list[str]:
    """Return a sentence for each sample ratio mismatch with an alarm in a lift report."""
    return [ALARMS.get(mismatch.what, ALARM) for mismatch in report.srm if mismatch.alarm]


class ScaledLift(NamedTuple):
    """A lift and its interval as texts, and their coordinates on a scale around no lift.

    Attributes
    ----------
    estimate, low, high : str
    of : str
        Unit of the numbers; empty for percentages.
    left, middle, right : float
        Coordinates from 0 to 100; no lift is at 50.
    """

    estimate: str
    low: str
    high: str
    of: str
    left: float
    middle: float
    right: float


class PeriodRow(NamedTuple):
    """Row of the table of periods: a period of a lift, or a part of one."""

    since: str
    what: str
    decisions: int
    lift: str
    between: str


class PeriodTable(NamedTuple):
    """Rows of the last periods of a lift and their parts, and the number of earlier rows."""

    rows: list[PeriodRow]
    more: int


def list_periods(report: LiftReport) -> PeriodTable:
    """Return table rows for the periods of a report and their subperiods, the last first.

    No rows if there would be only one. ``more`` counts the rows beyond ``MOST_ROWS``.
    """
    rows = []
    for place, period in reversed(list(enumerate(report.chapters))):
        # A period is named by the change that ended the one before it, the first one by its holdout.
        change = report.chapters[place - 1].ended if place else None
        what = change or f"{period.control} to {percent(period.share or 0)}, by {period.unit}"
        title = f"Chapter {period.number}: {what}{'' if period.counted else '; not counted'}"
        since, decisions = _format_day(period.since), _count_decisions(period.groups)
        rows.append(PeriodRow(since, title, decisions, *_format_period_lift(period)))
        for part in period.parts[::-1] if len(period.parts) > 1 else ():
            # A ratio of 1 is no lift.
            ratio = "" if part.ratio is None else _format_signed(part.ratio, 1.0, percent)
            label = CHANGES.get(part.what, part.what) or "at first"
            rows.append(PeriodRow(_format_day(part.since), label, _count_decisions(part.groups), ratio, ""))
    if len(rows) < 2:
        return PeriodTable([], 0)
    return PeriodTable(rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _format_period_lift(period: ChapterLift) -> tuple[str, str]:
    """Return a period's signed lift and its interval as texts; "too early" and "" without an estimate."""
    bounds, no_lift, format_amount, _ = _choose_bounds(period)
    if bounds is None:
        return "too early", ""
    estimate, low, high = (
        _format_signed(end, no_lift, format_amount) for end in (bounds.estimate, bounds.low, bounds.high)
    )
    return estimate, f"{low} to {high}"


def _count_decisions(groups: dict[str, Group]) -> int:
    """Return the number of decisions of all groups."""
    return sum(group.decisions for group in groups.values())


def _format_day(since: str | None) -> str:
    """Format the date of a time in ISO 8601, such as "3 May 2026"; "" for None."""
    return "" if since is None else f"{datetime.fromisoformat(since):%-d %b %Y}"


def compute_lift(placement: Placement, now: int, time_range: Range | None = None) -> LiftReport | None:
    """Return the lift report for a range of time; over all time if sums are not kept by time.

    None for placements that show several arms and never had a holdout.
    """
    if time_range is not None and not time_range.whole:
        ends = (datetime.fromtimestamp(time / 1e6, UTC).isoformat() for time in time_range.span)
        try:
            return make_lift_report(placement, now, time_range=tuple(ends))  # type: ignore[arg-type]
        except InvalidValue:
            # For propensities, and for holdouts of users or sessions, there are only sums over all time.
            pass
    with suppress(InvalidValue):
        return make_lift_report(placement, now)
    return None


def scale_lift(report: LiftReport) -> ScaledLift | None:
    """Return the lift of a report as texts and coordinates on a scale; None if there is no estimate yet."""
    bounds, no_lift, format_amount, unit = _choose_bounds(report, report.rewards)
    if bounds is None or bounds.estimate is None:
        return None
    ends = bounds.low, bounds.estimate, bounds.high
    widest = max((abs(end - no_lift) for end in ends if end is not None), default=0.0) or 1.0
    places = [_place_end(end, no_lift, widest, at) for end, at in zip(ends, EDGES, strict=True)]
    low, estimate, high = (_format_signed(end, no_lift, format_amount) for end in ends)
    return ScaledLift(estimate, low, high, unit, *places)


def _choose_bounds(
    report: LiftReport | ChapterLift, rewards: str = "reward"
) -> tuple[Bounds | None, float, Callable[[float], str], str]:
    """Return the interval of a report's ratio, or else of its difference, and how to format it.

    The interval is None if there is neither. The others are the value that means no lift, the function that
    formats a value, and the unit.
    """
    if report.ratio is not None:
        return report.ratio, 1.0, percent, ""
    return report.difference, 0.0, _format_amount, f"{rewards} per decision, "


def _place_end(end: float | None, no_lift: float, widest: float, default: float) -> float:
    """Return the coordinate of an interval's end on a scale with no lift at 50; ``default`` if it is None."""
    return default if end is None else 50.0 + 50.0 * (end - no_lift) / widest


def _format_signed(end: float | None, no_lift: float, format_amount: Callable[[float], str]) -> str:
    """Format the difference of an end from no lift, with its sign; "?" if the end is None."""
    if end is None:
        return "?"
    text = format_amount(abs(end - no_lift))
    return f"{'+' if end >= no_lift else '−'}{text}"


def _format_amount(amount: float) -> str:
    """Format a reward per decision as a number, without its unit."""
    return per_decision(amount).split()[0]


def describe_control(report: LiftReport) -> str:
    """Return a note if a lift is estimated from propensities without a holdout; "" otherwise."""
    is_estimated = report.method == "propensities" and report.groups["policy"].decisions
    return WITHOUT if is_estimated else ""


# ---- Which ranker users prefer: rows with coordinates on one scale


class Preference(NamedTuple):
    """Comparison of the leader with a ranker, or with its closest rival in a segment.

    Attributes
    ----------
    name : str
        The other ranker; or the segment and its value.
    searches, won, lost : int
    credit, between : str
        The difference of credit per search, and its interval; empty if it is too early.
    sure : bool
        Whether the difference is significant.
    left, middle, right : float
        Coordinates from 0 to 100; no difference is at 50.
    """

    name: str
    searches: int
    won: int
    lost: int
    credit: str = ""
    between: str = ""
    sure: bool = False
    left: float = 50.0
    middle: float = 50.0
    right: float = 50.0


class Preferences:
    """A verdict on rankers, prepared for the page.

    Parameters
    ----------
    verdict : ReadVerdict
    """

    def __init__(self, verdict: ReadVerdict) -> None:
        self.verdict, self.whole, self.open = verdict.verdict, verdict.whole, verdict.open
        self.beyond = sorted(verdict.beyond.items())
        report: dict[str, Any] = verdict.report or {}
        self.known = verdict.report is not None
        self.won = report.get("winner") is not None
        self.leader, self.winner = report.get("leader"), report.get("winner")
        self.searches, self.units = report.get("searches", 0), report.get("units", 0)
        self.credited = sorted(report.get("credited", {}).items(), key=lambda credit: -credit[1])
        self.warnings = report.get("warnings", [])
        self.confidence = report.get("confidence", 0.95)
        # Name, comparison, and whether a difference is reported: that of rankers always is.
        against = [(comparison["second"], comparison, True) for comparison in report.get("comparisons", ())]
        segments = [
            (f"{segment['name']} {segment['value']}", segment["comparison"], segment["found"])
            for segment in report.get("segments", ())
        ]
        both = [*against, *segments]
        ends = [end for _, comparison, _ in both if (end := comparison["lift"]["difference"]) is not None]
        widest = max((abs(side) for end in ends for side in _read_interval(end)), default=0.0) or 1.0
        self.rivals = [_make_preference(*rival, widest) for rival in against]
        self.segments = [_make_preference(*segment, widest) for segment in segments]

    @property
    def rival(self) -> str:
        """Name of the ranker with which the leader is compared in segments; "" without comparisons."""
        return self.rivals[0].name if self.rivals else ""


def _read_interval(difference: Any) -> Sequence[float]:
    """Return low end, estimate and high end of a difference."""
    return difference["low"], difference["estimate"], difference["high"]


def _make_preference(name: str, comparison: dict[str, Any], is_reported: bool, widest: float) -> Preference:
    """Return a comparison as a row of the page; its coordinates put ``widest`` at the edge of the scale.

    The row is marked significant if the claim is, unless ``is_reported`` is False, as for a segment that is
    not reported as different at the false discovery rate. Without a difference yet, texts are empty and
    coordinates in the middle.
    """
    counts = name, comparison["searches"], comparison["won"], comparison["lost"]
    lift = comparison["lift"]
    if lift["difference"] is None:
        return Preference(*counts)
    ends = _read_interval(lift["difference"])
    low, estimate, high = (f"{end:+.3g}".replace("-", "\N{MINUS SIGN}") for end in ends)
    return Preference(
        *counts,
        estimate,
        f"{low} to {high}",
        is_reported and lift["claim"] in ("better", "worse"),
        *(50.0 + 50.0 * end / widest for end in ends),
    )
