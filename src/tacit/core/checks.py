"""Checks of single values at the boundary; each returns the value in its canonical type."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from tacit.errors import AssumptionWarning, InvalidValue

MAX_NAME_BYTES = 512
HUGE = 1e100
"""Beyond it, squares and their sums overflow."""
ONLY_KEY = "default"
"""The key of data without keys."""
DEEPEST = 100
"""Deepest nesting of JSON that every reader can parse."""


def number(field: str, value: Any, low: float, high: float, *, open_low: bool = False) -> float:
    """Return ``value`` as a float within [low, high], or (low, high] if ``open_low``.

    Raise InvalidValue otherwise.
    """
    # isinstance(value, Real) takes ten times as long.
    if type(value) is float or (isinstance(value, Real) and not isinstance(value, bool)):
        try:
            x = float(value)
        except OverflowError:  # a whole number beyond all floats
            x = math.nan
        if (low < x if open_low else low <= x) and x <= high:
            return x
    bracket = "(" if open_low else "["
    # A bound that is rounded up in the message is outside of the range.
    close = ")" if math.isinf(high) or float(f"{high:g}") > high else "]"
    raise InvalidValue(field, value, f"give a number in {bracket}{low:g}, {high:g}{close}")


def finite(field: str, value: Any) -> float:
    """Return ``value`` as a finite float; raise InvalidValue otherwise."""
    try:
        return number(field, value, -sys.float_info.max, sys.float_info.max)
    except InvalidValue:
        raise InvalidValue(field, value, "give a finite number") from None


def positive(field: str, value: Any) -> float:
    """Return ``value`` as a finite float above zero; raise InvalidValue otherwise."""
    if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf:
        return float(value)
    raise InvalidValue(field, value, "give a finite number above 0")


def integer(field: str, value: Any, low: int, high: int = 2**62) -> int:
    """Return ``value`` as an int within [low, high].

    Raise InvalidValue otherwise, also for true and false.
    """
    # isinstance(value, Integral) takes ten times as long.
    is_integer = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
    if is_integer and low <= int(value) <= high:
        return int(value)
    upper = f" and at most {high}" if high < 2**62 else ""
    raise InvalidValue(field, value, f"give a whole number of at least {low}{upper}")


def name(field: str, value: Any) -> str:
    """Return ``value`` if it is a string of at most 512 bytes in UTF-8; raise InvalidValue otherwise."""
    if isinstance(value, str):
        try:
            # A string of 128 characters cannot exceed 512 bytes, and isascii() needs no copy.
            if (len(value) <= MAX_NAME_BYTES and value.isascii()) or len(value.encode()) <= MAX_NAME_BYTES:
                return value
        except UnicodeEncodeError:
            raise InvalidValue(field, value, "give a string that is valid Unicode") from None
    raise InvalidValue(field, value, f"give a string of at most {MAX_NAME_BYTES} bytes in UTF-8")


def _is_whole(value: Any) -> bool:
    """True if a value is a whole number, and no boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def ranker(field: str, value: Any) -> str:
    """Return ``value`` if it is a name without blanks at its ends; raise InvalidValue otherwise."""
    checked_name = name(field, value)
    if checked_name != checked_name.strip():
        remedy = f"take the blanks at its ends away: {checked_name.strip()!r} is another ranker"
        raise InvalidValue(field, value, remedy)
    return checked_name


def path(value: Any) -> Path:
    """Return a file's name as a path; raise InvalidValue if it is neither text nor a path."""
    if not isinstance(value, str | PathLike):
        raise InvalidValue("path", value, "give the name of a file, such as 'learner.tacit'")
    return Path(value)


def key(value: Any) -> str:
    """Return a key as text; a whole number becomes its digits. Raise InvalidValue for other values."""
    if _is_whole(value):
        return str(int(value))
    if isinstance(value, Mapping | list):
        suggestion = "context=, who is asking" if isinstance(value, Mapping) else "arms=, those on offer"
        raise InvalidValue("key", value, f"give a string, or, by its name, {suggestion}")
    return name("key", value)


def keys(value: Any) -> Any:
    """Return a list or column of keys as texts; raise InvalidValue for other values."""
    values = names("keys", as_list(value))
    if isinstance(values, Mapping) or hasattr(values, "columns") or not isinstance(values, Iterable):
        raise InvalidValue("keys", value, "give one for each impression, in a list or a column of a table")
    return values if set(map(type, values)) <= {str} else list(map(key, values))


def as_list(value: Any) -> Any:
    """Convert an array or a column of a data frame to a list; return other values unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> as_list(np.array(["film", "holiday"])), as_list(5), as_list("film")
    (['film', 'holiday'], 5, 'film')
    """
    return value.tolist() if hasattr(value, "tolist") else value


def names(field: str, value: Any) -> Any:
    """Return ``value`` unless it is a single string, which would be read as a list of letters: that raises
    InvalidValue.
    """
    if isinstance(value, str | bytes):
        raise InvalidValue(field, value, f"give a list of names, such as [{value!r}]")
    return value


def offer(value: Any) -> Any:
    """Return the arms of one offer unchanged; raise InvalidValue if they are not a flat collection of names.

    Warns of a set, whose order changes from process to process.
    """
    nested = isinstance(value, list | tuple) and bool(value) and isinstance(value[0], list | tuple | dict)
    if nested or not isinstance(value, Iterable):
        raise InvalidValue("arms", value, "give names, in one list")
    if isinstance(value, Set):
        doubt = "arms: the order of a set is another in each process, and with it what is drawn"
        warnings.warn(f"{doubt}; give a list, such as sorted(arms)", AssumptionWarning, stacklevel=2)
    return names("arms", value)


def arms(field: str, value: Any) -> int | tuple[str, ...]:
    """Return ``value`` as a number of arms, or as a tuple of distinct arm names; raise InvalidValue
    otherwise.

    Warns of names that are nearly the same, or empty.
    """
    value = as_list(value)
    if _is_whole(value):
        return integer(field, value, 1)
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0:
        if all(map(_is_whole, value)):
            remedy = (
                f"give names in quotes, such as {list(map(str, value[:3]))}, or their number: {len(value)}"
            )
            raise InvalidValue(field, value, remedy)
        names = tuple(name(field, arm) for arm in value)
        if len(set(names)) == len(names):
            if doubt := describe_similar_names(field, names):
                warnings.warn(doubt, AssumptionWarning, stacklevel=2)
            return names
        raise InvalidValue(field, value, "give each arm a name of its own")
    raise InvalidValue(field, value, "give the number of arms (at least 1) or a list of arm names")


def describe_similar_names(field: str, names: Collection[str]) -> str:
    """Return a warning if there is an empty name, or names that differ only in case or in blanks around them.

    "" if all are different. Single letters may differ in case.
    """
    plain: dict[str, str] = {}
    # Names without blanks around them come first: the others are told as different from these.
    for name in sorted(names, key=lambda name: name != name.strip()):
        plain.setdefault(name.strip().casefold(), name)
    # Single letters may differ in case only.
    odd = [name for name in names if plain[name.strip().casefold()] != name and len(name) > 1]
    doubt = "'' is an empty name, and an arm like any other; leave it out, or name it" if "" in names else ""
    if odd:
        how = "capitals" if odd[0] == odd[0].strip() else "blanks around the name"
        doubt = f"{len(odd)} differ from another one by {how} alone, first "
        doubt += f"{odd[0]!r}: they are arms of their own; write each in one way"
    return f"{field}: {doubt}" if doubt else ""


def amount(column: str, value: Any, default: float | None = None) -> float:
    """Return the number in a cell of a table, which may be text, true (1) or false (0); it must be at least
    0.

    An empty cell gives ``default``, unless that is None. Raises InvalidValue for other values.
    """
    if value in (None, "") and default is not None:
        return default
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        low = value.strip().lower()
        if low in ("true", "false"):
            return float(low == "true")
        try:
            value = float(low)
        except ValueError:
            raise InvalidValue(column, value, "give a number") from None
    return number(column, value, 0.0, 1e300)


def flag(field: str, value: Any) -> bool:
    """Return ``value`` if it is true or false; raise InvalidValue otherwise."""
    if isinstance(value, bool):
        return value
    raise InvalidValue(field, value, "give true or false")


def parse_json(field: str, value: Any) -> Any:
    """Return the parsed value of JSON text, or a value that is not text unchanged.

    Raise InvalidValue if text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidValue(field, value, "give JSON") from None


def is_deeper(value: Any, depth: int = DEEPEST) -> bool:
    """True if lists and objects are nested deeper than ``depth`` levels.

    Examples
    --------
    >>> is_deeper([[1]], 2), is_deeper({"a": [1]}, 1)
    (False, True)
    """
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(is_deeper(item, depth - 1) for item in inner)
