"""What the page says of which ranker users prefer: rows with their places on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.service.reading.verdicts import Verdict


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
    found : Verdict
    """

    def __init__(self, found: Verdict) -> None:
        self.verdict, self.whole, self.open = found.verdict, found.whole, found.open
        self.beyond = sorted(found.beyond.items())
        report: dict[str, Any] = found.report or {}
        self.known = found.report is not None
        self.won = report.get("winner") is not None
        self.leader, self.winner = report.get("leader"), report.get("winner")
        self.searches, self.units = report.get("searches", 0), report.get("units", 0)
        self.credited = sorted(report.get("credited", {}).items(), key=lambda one: -one[1])
        self.warnings = report.get("warnings", [])
        self.confidence = report.get("confidence", 0.95)
        against = [(one["second"], one, True) for one in report.get("comparisons", ())]
        segments = [
            (f"{one['name']} {one['value']}", one["comparison"], one["found"])
            for one in report.get("segments", ())
        ]
        both = [*against, *segments]
        ends = [end for _, one, _ in both if (end := one["lift"]["difference"]) is not None]
        widest = max((abs(side) for end in ends for side in _interval(end)), default=0.0) or 1.0
        self.rivals = [_preference(*one, widest) for one in against]
        self.segments = [_preference(*one, widest) for one in segments]

    @property
    def rival(self) -> str:
        """Whom the leader is compared with in segments."""
        return self.rivals[0].name if self.rivals else ""


def _interval(difference: Any) -> Sequence[float]:
    """Return an estimate's ends, and between them itself."""
    return difference["low"], difference["estimate"], difference["high"]


def _preference(name: str, one: dict[str, Any], sure: bool, widest: float) -> Preference:
    counts = name, one["searches"], one["won"], one["lost"]
    lift = one["lift"]
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
