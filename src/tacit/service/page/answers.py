"""How fast and how well requests of each placement were answered, over the last hour."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Container
from typing import NamedTuple

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
            for old in [one for one in of if one <= minute - MINUTES]:
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
