"""Times that are written as numbers: seconds, milliseconds, microseconds or nanoseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tacit.errors import InvalidValue

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of each a second has."""
NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EARLIEST, LATEST = 946_684_800, 4_102_444_800
"""The years 2000 to 2099 in seconds: no number is a time of theirs in two units."""
FARTHEST = 253_402_300_800
"""The end of the year 9999."""


def checked_unit(unit: str | None) -> str | None:
    """Return a unit of time, if it is one.

    Raises
    ------
    InvalidValue
        If it is none.
    """
    if unit is not None and unit not in UNITS:
        raise InvalidValue("time_unit", unit, f"give one of {', '.join(UNITS)}, or nothing")
    return unit


class EpochTimes:
    """Read numbers as times since 1970, and count in which unit.

    Parameters
    ----------
    unit : {None, "s", "ms", "us", "ns"}
        None takes, number by number, the unit in which it is a time from 2000 to 2099: there is
        one at most. A number that is none in any unit has none.
    counts : dict
        Where times are counted by their unit.

    Examples
    --------
    >>> import pyarrow as pa
    >>> times = EpochTimes(None, {})
    >>> found = times.read(pa.array([1499169600, 1499169600000, 7])).to_pylist()
    >>> [time and time.isoformat() for time in found]
    ['2017-07-04T12:00:00+00:00', '2017-07-04T12:00:00+00:00', None]
    >>> times.counts
    {'s': 1, 'ms': 1}
    """

    def __init__(self, unit: str | None, counts: dict[str, int]) -> None:
        self.unit = unit
        self.counts = counts

    def read(self, numbers: Any) -> Any:
        """Return the times of an array of numbers, null where one is none."""
        if pa.types.is_boolean(numbers.type):
            return pa.nulls(len(numbers), pa.timestamp("us", "UTC"))
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        known = ~np.asarray(numbers.is_null())
        micros = np.zeros(len(values), np.int64)
        found = np.zeros(len(values), np.bool_)
        for unit in UNITS if self.unit is None else (self.unit,):
            fits = known & self._fits(values, UNITS[unit])
            if fits.any():
                micros[fits] = _micros(values[fits], UNITS[unit])
                found |= fits
                self.counts[unit] = self.counts.get(unit, 0) + int(np.count_nonzero(fits))
        return pa.array(micros, pa.timestamp("us", "UTC"), mask=~found)

    def _fits(self, values: Any, scale: int) -> Any:
        if self.unit is not None:
            return np.abs(values.astype(np.float64)) < float(FARTHEST * scale)
        return (values >= EARLIEST * scale) & (values < LATEST * scale)


def _micros(values: Any, scale: int) -> Any:
    if values.dtype.kind == "f":
        return np.round(values * (10**6 / scale)).astype(np.int64)
    whole = values.astype(np.int64)
    return whole * (10**6 // scale) if scale <= 10**6 else whole // (scale // 10**6)
