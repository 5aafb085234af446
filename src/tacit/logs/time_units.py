"""Units of numeric times: seconds, milliseconds, microseconds or nanoseconds."""

from __future__ import annotations

from tacit.errors import InvalidValue

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units per second."""
NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EARLIEST, LATEST = 946_684_800, 4_102_444_800
"""The years 2000 to 2099 in seconds since 1970: a number falls into them in at most one unit."""
FARTHEST = 253_402_300_800
"""The end of the year 9999, in seconds since 1970."""


def check_time_unit(unit: str | None) -> str | None:
    """Return ``unit`` unchanged if it is "s", "ms", "us", "ns" or None.

    Raises
    ------
    InvalidValue
        If there is no such unit.
    """
    if unit is not None and unit not in UNITS:
        raise InvalidValue("time_unit", unit, f"give one of {', '.join(UNITS)}, or nothing")
    return unit
