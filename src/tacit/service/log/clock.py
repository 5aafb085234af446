"""The log's clock: it agrees with the wall's at the start, and never jumps."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from tacit.errors import InvalidValue


def as_text(time: int) -> str:
    """Return a time of the log, in microseconds since 1970, in ISO 8601.

    Examples
    --------
    >>> as_text(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123456+00:00'
    """
    return datetime.fromtimestamp(time // 1_000_000, UTC).replace(microsecond=time % 1_000_000).isoformat()


def moment(time: int) -> datetime:
    """Return a time of the log as a moment, of UTC."""
    return datetime.fromtimestamp(time / 1e6, UTC)


def as_time(field: str, text: str) -> int:
    """Return a time in ISO 8601 in microseconds since 1970; without a zone it is one of UTC.

    Raises
    ------
    InvalidValue
        If it is none.

    Examples
    --------
    >>> as_time("until", "2023-11-14T22:13:20.123456Z")
    1700000000123456
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(field, text, "give a time in ISO 8601, such as 2026-05-03") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e6)


class LogClock:
    """Give the time in microseconds since 1970, by what has passed since the start.

    A wall clock that is set forward would close every window at once, one that is set back would
    keep them open for as long; this one goes on as before, until the next start.

    Parameters
    ----------
    wall : function, optional
        Nanoseconds since 1970, read once.
    passed : function, optional
        Nanoseconds since any moment, never going back.

    Examples
    --------
    >>> passed = iter([500_000, 2_500_000])
    >>> LogClock(wall=lambda: 7_000_000, passed=lambda: next(passed))()
    9000
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, passed: Callable[[], int] | None = None
    ) -> None:
        self._passed = passed or _boot_time
        self._offset = wall() - self._passed()

    def __call__(self) -> int:
        return (self._offset + self._passed()) // 1000


def wall_time() -> int:
    """Return the time of this machine's clock in microseconds since 1970."""
    return time.time_ns() // 1000


def _boot_time() -> int:
    """Return the time since the machine started, its sleep included where that is known."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class LogTime:
    """The time of the log, which never goes back.

    Parameters
    ----------
    clock : function
        Returns microseconds since 1970.
    last : int
        The time of the last row.
    wall : function, optional
        Returns microseconds since 1970 as this machine says at the moment; by default ``clock``.

    Examples
    --------
    >>> clock = iter([90, 91, 89])
    >>> time = LogTime(lambda: next(clock), last=100)
    >>> time.advance(), time.now()
    (101, 101)
    """

    def __init__(self, clock: Callable[[], int], last: int, wall: Callable[[], int] | None = None) -> None:
        self.clock = clock
        self._wall = wall or clock
        self._last = last
        # A wall that lags behind the log must not make the log's time stand still.
        self._ahead = max(last - clock(), 0)

    def now(self) -> int:
        """Return the time of a row that is logged now."""
        return max(self.clock() + self._ahead, self._last)

    @property
    def wall_ahead(self) -> int:
        """By how many microseconds the wall is ahead of the log's time, or behind it."""
        return self._wall() - self.now()

    def surely(self) -> int:
        """Return the time that has come by the log and by the wall."""
        return min(self.now(), self._wall())

    def advance(self) -> int:
        """Return the time of a group that begins now."""
        self._last = self.now()
        return self._last
