"""What the page says of lift, and of which ranker users prefer."""

# 1. The report of the lift: alarms, chapters, and where it stands on a scale.
# 2. Which ranker users prefer, on one scale for all.

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.page.timeline import Range
from tacit.service.placements.lift_report import CHANGES, lift_report
from tacit.service.placements.placement import Placement
from tacit.uplift.sentences import per_decision, percent
from tacit.wire.lift import Bounds, ChapterLift, Group, LiftReport

# ---- What the page says of lift: the report of the API, and where it stands on a scale

WITHOUT = "No holdout: compared with arms drawn uniformly, by the propensities of what was shown."

EDGES = 0.0, 50.0, 100.0
MOST_ROWS = 12
"""So many chapters and their parts are shown."""

ALARMS = {"propensities": "Arms are not shown as often as their propensities say: see the lift."}
ALARM = "The holdout does not have its share: see the lift."


def alarms(report: LiftReport) -> list[str]:
    """Return what is wrong with the traffic behind a lift."""
    return [ALARMS.get(mismatch.what, ALARM) for mismatch in report.srm if mismatch.alarm]


class ShownLift(NamedTuple):
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


class ChapterRow(NamedTuple):
    """A chapter of a lift, or a part of one."""

    since: str
    what: str
    decisions: int
    lift: str
    between: str


class Chapters(NamedTuple):
    """The last chapters and parts of a lift, and how many there were before; nothing of a single
    one."""

    rows: list[ChapterRow]
    more: int


def chapters(report: LiftReport) -> Chapters:
    """Return what a report says of chapters, the last first, each with its parts."""
    rows = []
    for place, chapter in reversed(list(enumerate(report.chapters))):
        before = report.chapters[place - 1].ended if place else None
        what = before or f"{chapter.control} to {percent(chapter.share or 0)}, by {chapter.unit}"
        title = f"Chapter {chapter.number}: {what}{'' if chapter.counted else '; not counted'}"
        since, decisions = _day(chapter.since), _decisions(chapter.groups)
        rows.append(ChapterRow(since, title, decisions, *_chapter_ends(chapter)))
        for part in chapter.parts[::-1] if len(chapter.parts) > 1 else ():
            ratio = "" if part.ratio is None else _signed(part.ratio, 1.0, percent)
            label = CHANGES.get(part.what, part.what) or "at first"
            rows.append(ChapterRow(_day(part.since), label, _decisions(part.groups), ratio, ""))
    if len(rows) < 2:
        return Chapters([], 0)
    return Chapters(rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _chapter_ends(chapter: ChapterLift) -> tuple[str, str]:
    of, nothing, written, _ = _scaled(chapter)
    if of is None:
        return "too early", ""
    estimate, low, high = (_signed(end, nothing, written) for end in (of.estimate, of.low, of.high))
    return estimate, f"{low} to {high}"


def _decisions(groups: dict[str, Group]) -> int:
    return sum(group.decisions for group in groups.values())


def _day(since: str | None) -> str:
    return "" if since is None else f"{datetime.fromisoformat(since):%-d %b %Y}"


def lift_of(placement: Placement, now: int, asked: Range | None = None) -> LiftReport | None:
    """Return the lift, of a range where that is kept; None of lists without a holdout."""
    if not placement.kind.showing.single and placement.holdout is None:
        return None
    if asked is not None and not asked.whole:
        ends = (datetime.fromtimestamp(time / 1e6, UTC).isoformat() for time in asked.span)
        try:
            return lift_report(placement, now, stretch=tuple(ends))  # type: ignore[arg-type]
        except InvalidValue:
            # Of propensities, and of users who stay in their group, sums are of all time.
            pass
    return lift_report(placement, now)


def shown(report: LiftReport) -> ShownLift | None:
    """Return what a report says as numbers; None where it is too early."""
    of, nothing, written, unit = _scaled(report, report.rewards)
    if of is None or of.estimate is None:
        return None
    ends = of.low, of.estimate, of.high
    widest = max((abs(end - nothing) for end in ends if end is not None), default=0.0) or 1.0
    places = [_place(end, nothing, widest, at) for end, at in zip(ends, EDGES, strict=True)]
    low, estimate, high = (_signed(end, nothing, written) for end in ends)
    return ShownLift(estimate, low, high, unit, *places)


def _scaled(
    of: LiftReport | ChapterLift, rewards: str = "reward"
) -> tuple[Bounds | None, float, Callable[[float], str], str]:
    """Return the ratio or else the difference, what of it is no lift, and how an amount of it is written."""
    if of.ratio is not None:
        return of.ratio, 1.0, percent, ""
    return of.difference, 0.0, _bare, f"{rewards} per decision, "


def _place(end: float | None, nothing: float, widest: float, unknown: float) -> float:
    return unknown if end is None else 50.0 + 50.0 * (end - nothing) / widest


def _signed(end: float | None, nothing: float, written: Callable[[float], str]) -> str:
    if end is None:
        return "?"
    text = written(abs(end - nothing))
    return f"{'+' if end >= nothing else '−'}{text}"


def _bare(amount: float) -> str:
    return per_decision(amount).split()[0]


def compared(report: LiftReport) -> str:
    """Return what a lift compares with, where that is not a holdout and something is known."""
    known = report.method == "propensities" and report.groups["policy"].decisions
    return WITHOUT if known else ""


# ---- What the page says of which ranker users prefer: rows with their places on one scale


class Preference(NamedTuple):
    """The leader against a ranker, or against its closest rival in a segment.

    Attributes
    ----------
    name : str
        The other ranker; or the segment and its value.
    searches, won, lost : int
    credit, between : str
        The difference of credit per search, and its interval; empty where it is too early.
    sure : bool
        Whether a difference is shown.
    left, middle, right : float
        Places from 0 to 100; no difference is at 50.
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
    """A verdict as the page shows it.

    Parameters
    ----------
    found : ReadVerdict
    """

    def __init__(self, found: ReadVerdict) -> None:
        self.verdict, self.whole, self.open = found.verdict, found.whole, found.open
        self.beyond = sorted(found.beyond.items())
        report: dict[str, Any] = found.report or {}
        self.known = found.report is not None
        self.won = report.get("winner") is not None
        self.leader, self.winner = report.get("leader"), report.get("winner")
        self.searches, self.units = report.get("searches", 0), report.get("units", 0)
        self.credited = sorted(report.get("credited", {}).items(), key=lambda credit: -credit[1])
        self.warnings = report.get("warnings", [])
        self.confidence = report.get("confidence", 0.95)
        against = [(comparison["second"], comparison, True) for comparison in report.get("comparisons", ())]
        segments = [
            (f"{segment['name']} {segment['value']}", segment["comparison"], segment["found"])
            for segment in report.get("segments", ())
        ]
        both = [*against, *segments]
        ends = [end for _, comparison, _ in both if (end := comparison["lift"]["difference"]) is not None]
        widest = max((abs(side) for end in ends for side in _interval(end)), default=0.0) or 1.0
        self.rivals = [_preference(*rival, widest) for rival in against]
        self.segments = [_preference(*segment, widest) for segment in segments]

    @property
    def rival(self) -> str:
        """Whom the leader is compared with in segments."""
        return self.rivals[0].name if self.rivals else ""


def _interval(difference: Any) -> Sequence[float]:
    """Return an estimate's ends, and between them itself."""
    return difference["low"], difference["estimate"], difference["high"]


def _preference(name: str, comparison: dict[str, Any], sure: bool, widest: float) -> Preference:
    counts = name, comparison["searches"], comparison["won"], comparison["lost"]
    lift = comparison["lift"]
    if lift["difference"] is None:
        return Preference(*counts)
    ends = _interval(lift["difference"])
    low, estimate, high = (f"{end:+.3g}".replace("-", "\N{MINUS SIGN}") for end in ends)
    return Preference(
        *counts,
        estimate,
        f"{low} to {high}",
        sure and lift["claim"] in ("better", "worse"),
        *(50.0 + 50.0 * end / widest for end in ends),
    )
