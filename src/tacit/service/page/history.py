"""What was: how requests were answered over the last hour, and who changed what."""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from tacit.service.log.ids import as_time
from tacit.service.log.marks import LoggedChange
from tacit.service.page.charts import Remark, clock_time

# ---- How fast and how well requests of each placement were answered, over the last hour

MINUTES = 60
BOUNDS = tuple(1e-4 * 10 ** (i / 6) for i in range(32))
"""Seconds, from 0.1 ms to 15 s; neighbours differ by less than a half."""
REFUSED, FAILED, FIRST = 0, 1, 2
TOO_MANY = 0.01
FEW = 100


class Answered(NamedTuple):
    """What became of requests.

    Attributes
    ----------
    requests : int
    median, slow : float
        Seconds within which half of them were answered, and 99 %.
    refused, failed : int
        How many were, by their statuses from 400 and from 500 on.
    """

    requests: int
    median: float
    slow: float
    refused: int
    failed: int

    @property
    def wrong(self) -> str:
        """What is wrong with that; empty where all is well."""
        if self.requests < FEW or self.failed <= TOO_MANY * self.requests:
            return ""
        return f"{self.failed} of {self.requests} requests of the last hour failed (status 5xx)."


class Answers:
    """Counts answers by placement and minute.

    Parameters
    ----------
    placements : function
        Returns those of now by their names: any name may be asked for, and only those are counted.
    clock : function, optional
        Seconds.

    Examples
    --------
    >>> answers = Answers(lambda: {"home"})
    >>> for status in (200, 200, 422):
    ...     answers.count("home", status, 0.002)
    >>> answers.of("home").refused, round(answers.of("home").slow, 4)
    (1, 0.0022)
    """

    def __init__(
        self, placements: Callable[[], Container[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._placements, self._clock = placements, clock
        self._of: dict[str, dict[int, list[int]]] = {}

    def count(self, placement: str | None, status: int, seconds: float) -> None:
        """Count the answer to a request."""
        if placement is None or placement not in self._placements():
            return
        minute = int(self._clock() // 60)
        of = self._of.setdefault(placement, {})
        counts = of.get(minute)
        if counts is None:
            for old in [minute_of for minute_of in of if minute_of <= minute - MINUTES]:
                del of[old]
            counts = of[minute] = [0] * (FIRST + len(BOUNDS) + 1)
        counts[FIRST + bisect_left(BOUNDS, seconds)] += 1
        if status >= 400:
            counts[REFUSED if status < 500 else FAILED] += 1

    def of(self, placement: str) -> Answered | None:
        """Return what became of the last hour's requests; None if there were none."""
        minute = int(self._clock() // 60)
        of = self._of.get(placement, {})
        lately = [counts for when, counts in of.items() if when > minute - MINUTES]
        if not lately:
            return None
        refused, failed, *times = map(sum, zip(*lately, strict=True))
        median, slow = (_within(times, share) for share in (0.5, 0.99))
        return Answered(sum(times), median, slow, refused, failed)


def _within(counts: list[int], share: float) -> float:
    """Return the seconds within which a share was answered, rounded up to a bound."""
    wanted, seen = share * sum(counts), 0
    for bound, count in zip((*BOUNDS, math.inf), counts, strict=True):
        seen += count
        if seen >= wanted:
            return bound
    return math.inf


# ---- Who changed what of a placement, in words

MOST_LINES = 20
CONFIGURATION, GUARDRAIL = "configuration", "guardrail"
ARMS = {"add": "added", "retire": "retired", "restore": "restored"}


class Line(NamedTuple):
    """A change as the page tells it."""

    when: str
    who: str
    what: str


def words(change: LoggedChange) -> str:
    """Return what was changed.

    Examples
    --------
    >>> words(LoggedChange(0, None, "mode", {"mode": "frozen"}))
    'mode: frozen'
    >>> words(LoggedChange(0, "ann", "arms", {"add": ["a"], "retire": [], "restore": ["b", "c"]}))
    'arm added: a; arms restored: b, c'
    >>> words(LoggedChange(0, None, "configuration", {"window": {"before": 30, "after": 60}}))
    'window: 30 to 60'
    >>> words(LoggedChange(0, None, "rebuild", {"policy": "UCB1", "left": "…"}))
    'rebuild: UCB1 decides'
    >>> words(LoggedChange(0, None, "pin", {"arms": ["a"], "until": "2026-05-03T12:00:00+00:00"}))
    'pinned until 3 May 12:00: a'
    """
    detail = change.detail
    if change.what == "arms":
        return "; ".join(
            f"arm{'s' if len(detail[key]) > 1 else ''} {verb}: {', '.join(map(str, detail[key]))}"
            for key, verb in ARMS.items()
            if detail.get(key)
        )
    if change.what == "pin":
        until = clock_time(as_time("until", detail["until"]))
        return f"pinned until {until}: {', '.join(map(str, detail['arms']))}"
    if change.what in ("rebuild", "rollback"):
        to = f" of {detail['to']}" if "to" in detail else ""
        return f"{change.what}: {detail['policy']}{to} decides"
    if change.what == "guardrail":
        who = "the policy" if detail["arm"] is None else detail["arm"]
        return f"{detail['metric']} harmed by {who}: {detail['then']}"
    if change.what == "start":
        return f"started from {detail['file']}"
    if change.what == "mode":
        return f"mode: {detail.get('mode')}"
    parts = [f"{name}: {_value(value)}" for name, value in detail.items()]
    return "; ".join(parts) or change.what


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{_value(value['before'])} to {_value(value['after'])}"
    return value if isinstance(value, str) else json.dumps(value)


def remarks(changes: Sequence[LoggedChange]) -> list[Remark]:
    """Return changes for the charts."""
    return [Remark(change.time, words(change)) for change in changes]


def latest(changes: Sequence[LoggedChange]) -> list[Line]:
    """Return the latest changes, the last first."""
    return [
        Line(clock_time(change.time), _who(change.who), words(change))
        for change in changes[: -MOST_LINES - 1 : -1]
    ]


def _who(who: str | None) -> str:
    if who is None:
        return "\N{EN DASH}"
    return f"the {who}" if who in (CONFIGURATION, GUARDRAIL) else f"key {who}"
