"""What the page says of lift: the report of the API, and where it stands on a scale."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from tacit.errors import InvalidValue
from tacit.proof.sentences import NO_PROPENSITIES, per_decision, percent
from tacit.service.lift.report import LiftReport, lift_report
from tacit.service.page.reader import PlacementReader
from tacit.service.page.timeline import Range

WITHOUT = "No holdout: compared with arms drawn uniformly, by the propensities of what was shown."

EDGES = 0.0, 50.0, 100.0

ALARMS = {
    "propensities": "Arms are not shown as often as their propensities say: see the lift.",
}
ALARM = "The holdout does not have its share: see the lift."


def alarms(report: LiftReport) -> list[str]:
    """Return what is wrong with the traffic behind a lift."""
    return [ALARMS.get(one.what, ALARM) for one in report.srm if one.alarm]


class Shown(NamedTuple):
    """A lift as numbers: how much, between what, and where that is on a scale around nothing.

    Attributes
    ----------
    estimate, low, high : str
    of : str
        What they are of, where they are no percentages.
    left, middle, right : float
        Places from 0 to 100; nothing is at 50.
    """

    estimate: str
    low: str
    high: str
    of: str
    left: float
    middle: float
    right: float


def lift_of(placement: PlacementReader, now: int, asked: Range | None = None) -> LiftReport | None:
    """Return the lift, of a range where that is kept; None of lists without a holdout."""
    if not placement.shows_one and placement.holdout is None:
        return None
    if asked is not None and not asked.whole:
        ends = (datetime.fromtimestamp(time / 1e6, UTC).isoformat() for time in asked.span)
        try:
            return lift_report(placement, now, stretch=tuple(ends))  # type: ignore[arg-type]
        except InvalidValue:
            # Of propensities, and of users who stay in their group, sums are of all time.
            pass
    return lift_report(placement, now)


def shown(report: LiftReport) -> Shown | None:
    """Return what a report says as numbers; None where it is too early."""
    told: Callable[[float], str]
    of, nothing, told, unit = report.ratio, 1.0, percent, ""
    if of is None:
        of, nothing, told, unit = report.difference, 0.0, _bare, "reward per decision, "
    if of is None or of.estimate is None:
        return None
    ends = of.low, of.estimate, of.high
    widest = max((abs(end - nothing) for end in ends if end is not None), default=0.0) or 1.0
    places = [_place(end, nothing, widest, at) for end, at in zip(ends, EDGES, strict=True)]
    low, estimate, high = (_signed(end, nothing, told) for end in ends)
    return Shown(estimate, low, high, unit, *places)


def _place(end: float | None, nothing: float, widest: float, unknown: float) -> float:
    return unknown if end is None else 50.0 + 50.0 * (end - nothing) / widest


def _signed(end: float | None, nothing: float, told: Callable[[float], str]) -> str:
    if end is None:
        return "?"
    text = told(abs(end - nothing))
    return f"{'+' if end >= nothing else '−'}{text}"


def _bare(amount: float) -> str:
    return per_decision(amount).split()[0]


def compared(report: LiftReport) -> str:
    """Return what a lift compares with, where that is not a holdout and something is known."""
    known = report.method == "propensities" and not report.verdict.startswith(NO_PROPENSITIES)
    return WITHOUT if known else ""
