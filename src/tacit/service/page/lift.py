"""What the page says of lift: the report of the API, and where it stands on a scale."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from tacit.errors import InvalidValue
from tacit.proof.sentences import NO_PROPENSITIES, per_decision, percent
from tacit.service.lift.report import CHANGES, ChapterLift, Group, LiftReport, lift_report
from tacit.service.page.reader import PlacementReader
from tacit.service.page.timeline import Range

WITHOUT = "No holdout: compared with arms drawn uniformly, by the propensities of what was shown."

EDGES = 0.0, 50.0, 100.0
MOST_ROWS = 12
"""So many chapters and their parts are shown."""

ALARMS = {"propensities": "Arms are not shown as often as their propensities say: see the lift."}
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


class Row(NamedTuple):
    """A chapter of a lift, or a part of one."""

    since: str
    what: str
    decisions: int
    lift: str
    between: str


class Chapters(NamedTuple):
    """The last chapters and parts of a lift, and how many there were before; nothing of a single
    one."""

    rows: list[Row]
    more: int


def chapters(report: LiftReport) -> Chapters:
    """Return what a report says of chapters, the last first, each with its parts."""
    rows = []
    for place, one in reversed(list(enumerate(report.chapters))):
        before = report.chapters[place - 1].ended if place else None
        what = before or f"{one.control} to {percent(one.share or 0)}, by {one.unit}"
        left = "" if one.counted else "; not counted"
        told = f"Chapter {one.number}: {what}{left}"
        rows.append(Row(_day(one.since), told, _decisions(one.groups), *_chapter_ends(one)))
        for part in one.parts[::-1] if len(one.parts) > 1 else ():
            ratio = "" if part.ratio is None else _signed(part.ratio, 1.0, percent)
            label = CHANGES.get(part.what, part.what) or "at first"
            rows.append(Row(_day(part.since), label, _decisions(part.groups), ratio, ""))
    if len(rows) < 2:
        return Chapters([], 0)
    return Chapters(rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _chapter_ends(one: ChapterLift) -> tuple[str, str]:
    told: Callable[[float], str]
    of, nothing, told = one.ratio, 1.0, percent
    if of is None:
        of, nothing, told = one.difference, 0.0, _bare
    if of is None:
        return "too early", ""
    estimate, low, high = (_signed(end, nothing, told) for end in (of.estimate, of.low, of.high))
    return estimate, f"{low} to {high}"


def _decisions(groups: dict[str, Group]) -> int:
    return sum(group.decisions for group in groups.values())


def _day(since: str | None) -> str:
    return "" if since is None else f"{datetime.fromisoformat(since):%-d %b %Y}"


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
