"""How many rows commits write, and how long they take."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import Histogram

RATE_SECONDS = 10


class Commits:
    """Counts commits, and how long they take.

    Attributes
    ----------
    span : function
        Returns, for a number of rows, the context in which their commit runs.
    seconds_histogram, rows_histogram : Histogram or None
        Where commits are counted, if anywhere.
    last : int or None
        Time of the last commit, in microseconds since 1970.
    seconds : float
        How long it took.
    """

    def __init__(self) -> None:
        self.span: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
        self.seconds_histogram: Histogram | None = None
        self.rows_histogram: Histogram | None = None
        self.last: int | None = None
        self.seconds = 0.0
        self._recent: deque[tuple[int, int]] = deque()

    def count(self, rows: int, seconds: float, now: int) -> None:
        """Count a commit of so many rows that has worked.

        Parameters
        ----------
        rows : int
        seconds : float
            How long it took.
        now : int
            Microseconds since 1970.
        """
        self.last, self.seconds = now, seconds
        if self.seconds_histogram is not None and self.rows_histogram is not None:
            self.seconds_histogram.observe(seconds)
            self.rows_histogram.observe(rows)
        second = now // 1_000_000
        if self._recent and self._recent[-1][0] == second:
            rows += self._recent.pop()[1]
        self._recent.append((second, rows))
        while self._recent[0][0] <= second - RATE_SECONDS:
            self._recent.popleft()

    def rate(self, now: int) -> float:
        """Return how many rows were committed per second, over the last 10 seconds."""
        since = now // 1_000_000 - RATE_SECONDS
        return sum(rows for second, rows in self._recent if second > since) / RATE_SECONDS
