"""Feeds: who feeds events to the service says how far it is; kept in memory, for people and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tacit.service.config.keys import ANYBODY, Caller
from tacit.wire.site import FeedNow, FeedReport

MOST = 100
"""Of more feeds, those that were silent for longest are forgotten."""


class _Reported(NamedTuple):
    report: FeedReport
    time: float
    by: str | None


class Feeds:
    """What was reported last of each feed.

    Parameters
    ----------
    clock : function, optional
        Returns the time in seconds since 1970.

    Examples
    --------
    >>> feeds = Feeds(lambda: 1000.0)
    >>> feeds.report("clicks", FeedReport(read=7, last=940.0))
    >>> [(feed.name, feed.read, feed.lag) for feed in feeds.now()]
    [('clicks', 7, 60.0)]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, _Reported] = {}

    def report(self, name: str, report: FeedReport, caller: Caller = ANYBODY) -> None:
        """Take a report."""
        self._known.pop(name, None)
        self._known[name] = _Reported(report, self._clock(), caller.name)
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def now(self, caller: Caller = ANYBODY) -> list[FeedNow]:
        """Return the feeds that a caller may know of: its own, unless its key reaches all placements."""
        now = self._clock()
        return [
            FeedNow(
                **msgspec.structs.asdict(known.report),
                name=name,
                seconds=max(0.0, now - known.time),
                lag=None if known.report.last is None else max(0.0, known.time - known.report.last),
            )
            for name, known in sorted(self._known.items())
            if caller.placements is None or known.by == caller.name
        ]
