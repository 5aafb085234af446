"""The click-log schema: one row per decision, with its propensity and feedback.

A list has one row for each of its arms; its rows are consecutive and have the same ``decision_id``.

Version 1. A column is null only where the table says so.

=================== ================ ======== =================================================
column              type             null     meaning
=================== ================ ======== =================================================
timestamp           timestamp, µs    never    when the decision was made, in UTC
decision_id         string           never    names the decision
placement           string           never    where it was shown; a placement's keys are its own
key                 string           never    subject of the decision: a query, a place; at
                                              most 512 bytes
arms                list of string   never    the arms on offer, distinct, at least one
arm                 string           never    the arm that was shown, one of ``arms``
position            int32            allowed  position on the page, from 0; null without
                                              positions
propensity          float64          allowed  probability, in (0, 1], with which the policy
                                              chose ``arm`` among ``arms``; in a list, given
                                              the arms above it; null: a deterministic policy
position_propensity float64          allowed  of a list, probability, in (0, 1], with which the
                                              policy put ``arm`` at ``position``, whatever it
                                              showed elsewhere; null: not known
reward              float64          allowed  1 for a click, 0 for none, or between, or any
                                              number in ``reward_range``; null: no feedback came
context             list of float64  allowed  signals about the key, finite; null: none were
                                              given
policy              string           allowed  the policy that decided
version             string           allowed  the version of that policy
=================== ================ ======== =================================================

A Parquet file carries the version as ``tacit_log_version`` in its metadata.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import AssumptionWarning
from tacit.logs.time_units import EARLIEST, FARTHEST, LATEST, UNITS

VERSION = 1
SEGMENT = "segment"
"""Additional column of batches for results per segment."""
FEATURE = "feature "
"""Prefix of additional columns with features of the arm that a row shows."""
EXTRA = "column "
"""Prefix of additional columns taken unchanged from the log."""
VERSION_KEY = b"tacit_log_version"
REWARDS_KEY = b"tacit_rewards"
"""Key of a Parquet file's metadata with the note on the unit of rewards."""

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("decision_id", pa.string(), nullable=False),
        pa.field("placement", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("arms", pa.list_(pa.string()), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("position", pa.int32()),
        pa.field("propensity", pa.float64()),
        pa.field("position_propensity", pa.float64()),
        pa.field("reward", pa.float64()),
        pa.field("context", pa.list_(pa.float64())),
        pa.field("policy", pa.string()),
        pa.field("version", pa.string()),
    ],
    metadata={VERSION_KEY: str(VERSION).encode()},
)

ALLOWED = {
    "timestamp": "an ISO 8601 time (UTC where it names no zone; 01/02/2026 may be January or February: write "
    "2026-02-01), or a number since 1970, for which time_unit= (--time-unit) is s, ms, us or ns",
    "decision_id": "text",
    "placement": "text",
    "key": "text of at most 512 bytes in UTF-8",
    "arms": 'a list of at least one arm on offer, each once (in text as JSON: ["a", "b"]), '
    "or those of all rows as arms=[...] (--arms a,b)",
    "arm": "one of the arms on offer, or have arms='shown' (--arms shown) offer all that the log shows",
    "position": "a whole number of at least 0, or nothing",
    "propensity": "a number in (0, 1], or nothing where it is not known; such a row is not weighed",
    "position_propensity": "a number in (0, 1], or nothing where it is not known",
    "reward": "a number in [0, 1], or nothing where no feedback came",
    "context": "a list of finite numbers, or nothing",
    "policy": "text, or nothing",
    "version": "text, or nothing",
}
"""Allowed values of each column, phrased as the remedy in errors."""


def describe_allowed(column: str, reward_range: RewardRange = UNIT_RANGE, value: Any = None) -> str:
    """Return the allowed values of a column, phrased as the remedy in errors, for a range of rewards.

    If ``value`` is a reward outside the range, the text says how to give a wider one.
    """
    if column != "reward":
        return ALLOWED[column]
    allowed = f"{reward_range.limits_text}, or nothing where no feedback came"
    try:
        reward = float(value)
    except (TypeError, ValueError):
        return allowed
    if not math.isfinite(reward) or reward_range.contains(reward):
        return allowed
    return f"{allowed}; or say what rewards there can be, {describe_range(reward_range.widen(reward))}"


def describe_range(reward_range: RewardRange) -> str:
    """Return, for error messages, the option that sets this range of rewards in a function and a command."""
    return f"reward_range={reward_range.text} ({reward_range.option})"


# ---- Numeric times


class EpochTimes:
    """Read numbers as times since 1970, and count them per unit.

    Parameters
    ----------
    unit : {None, "s", "ms", "us", "ns"}
        None infers the unit of each number: the one in which it is a time from 2000 to 2099; at
        most one unit fits. A number that fits in no unit is not a time.
    counts : dict
        Number of times per unit; updated by ``read``.
    find_date_orders : function, optional
        Returns whether dates of three numbers begin with the day or the month, for times that are text.

    Attributes
    ----------
    zoneless, first_zoneless : int, str
        Number of times in text that name no zone, and the first of them.

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

    def __init__(
        self, unit: str | None, counts: dict[str, int], find_date_orders: Callable[[], set[str]] = set
    ) -> None:
        self.unit, self.counts, self.find_date_orders = unit, counts, find_date_orders
        self.zoneless, self.first_zoneless = 0, ""

    def read(self, numbers: Any) -> Any:
        """Return numbers as an Arrow array of times, null for numbers that are no time; update ``counts``.

        Warns if another unit than the given one would put all numbers into the years 2000 to 2099.
        """
        if pa.types.is_boolean(numbers.type):
            return pa.nulls(len(numbers), pa.timestamp("us", "UTC"))
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        is_number = ~np.asarray(numbers.is_null())
        micros = np.zeros(len(values), np.int64)
        is_time = np.zeros(len(values), np.bool_)
        if self.unit is not None and is_number.any():
            plausible_units = [unit for unit in UNITS if _is_in_century(values[is_number], UNITS[unit]).all()]
            if plausible_units and self.unit not in plausible_units:
                text = f"time_unit: {self.unit!r} puts no time into this century; give {plausible_units[0]!r}"
                warnings.warn(text, AssumptionWarning, stacklevel=2)
        for unit in UNITS if self.unit is None else (self.unit,):
            fits = is_number & self._fits(values, UNITS[unit])
            if fits.any():
                micros[fits] = _to_microseconds(values[fits], UNITS[unit])
                is_time |= fits
                self.counts[unit] = self.counts.get(unit, 0) + int(np.count_nonzero(fits))
        return pa.array(micros, pa.timestamp("us", "UTC"), mask=~is_time)

    def _fits(self, values: Any, scale: int) -> Any:
        """Return a mask of the numbers that are times in units of 1/scale seconds.

        If the unit is given, times reach to the end of the year 9999, else from 2000 to 2099.
        """
        if self.unit is not None:
            return np.abs(values.astype(np.float64)) < float(FARTHEST * scale)
        return _is_in_century(values, scale)


def _is_in_century(values: Any, scale: int) -> Any:
    """Return a mask of the numbers that are times from 2000 to 2099 in units of 1/scale seconds."""
    return (values >= EARLIEST * scale) & (values < LATEST * scale)


def _to_microseconds(values: Any, scale: int) -> Any:
    """Return times in units of 1/scale seconds as microseconds: floats rounded, integers rounded down."""
    if values.dtype.kind == "f":
        return np.round(values * (10**6 / scale)).astype(np.int64)
    whole = values.astype(np.int64)
    return whole * (10**6 // scale) if scale <= 10**6 else whole // (scale // 10**6)
