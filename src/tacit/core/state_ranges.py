"""Ranges of the arrays of a state, which its fields declare and which are checked when a file is loaded.

A kernel indexes without looking at bounds, so an index or a count that comes from a file is checked first.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from tacit.core.arrays import Floats, Ints, leaves


class ValueRange(NamedTuple):
    """The range of an array's values, for annotations such as ``Annotated[Ints, ValueRange(0)]``.

    Attributes
    ----------
    low, high : float
        The least and the greatest value; NaN is in no range.
    extent : str
        Added to ``high``: the number of ``arms`` or ``lanes``, or the length of an axis of another array of
        the state, by its name; empty for nothing.
    axis : int
        That axis; the last one by default.
    distinct : bool
        Whether values of at least 0 must be distinct along the last axis, like arms in a list.
    """

    low: float
    high: float = 2.0**53
    extent: str = ""
    axis: int = -1
    distinct: bool = False


Count = Annotated[Floats, ValueRange(0)]
IntCount = Annotated[Ints, ValueRange(0)]
ArmIndex = Annotated[Ints, ValueRange(0, -1, "arms")]
ArmIndexOrNone = Annotated[Ints, ValueRange(-1, -1, "arms")]
Permutation = Annotated[Ints, ValueRange(0, -1, "arms", distinct=True)]
ArmList = Annotated[Ints, ValueRange(-1, -1, "arms", distinct=True)]
UNNUMBERED_ARMS = 4096
"""Upper limit of the index of an arm that is known by its features."""


@cache
def read_ranges(kind: Any) -> dict[str, ValueRange]:
    """Return the declared range of each field of a named tuple class that has one, by name; cached."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}  # annotations that only a type checker understands declare nothing
    declared = ((name, getattr(hint, "__metadata__", ())) for name, hint in hints.items())
    return {name: extra for name, extras in declared for extra in extras if isinstance(extra, ValueRange)}


def check_state(state: Any, arms: Any) -> None:
    """Raise ValueError if an array of a state has a value outside of the range that its field declares.

    Parameters
    ----------
    state : named tuple
    arms : int, tuple of str, or None
        The policy's ``arms``.
    """
    count = UNNUMBERED_ARMS if arms is None else arms if isinstance(arms, int) else len(arms)
    lanes = max((len(array) for _, array in leaves(state)), default=0)
    _check_fields(state, {"arms": count, "lanes": lanes}, "")


def _check_fields(state: Any, extents: dict[str, int], prefix: str) -> None:
    """Check the arrays of a state and of its nested named tuples; raise ValueError for a value outside of its
    range.

    ``extents`` has the numbers of arms and lanes; ``prefix`` begins the names of arrays in the error.
    """
    kind: Any = type(state)
    ranges = read_ranges(kind)
    for field, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            _check_fields(value, extents, f"{prefix}{field}.")
        elif field in ranges and value.size:
            _check_array(prefix + field, value, ranges[field], _read_extent(ranges[field], state, extents))


def _read_extent(declared: ValueRange, state: Any, extents: dict[str, int]) -> int:
    """Return the number that a range's ``extent`` names: of arms, lanes, or the length of an axis; 0 if it is
    empty.
    """
    if declared.extent in extents or not declared.extent:
        return extents.get(declared.extent, 0)
    return int(getattr(state, declared.extent).shape[declared.axis])


def _check_array(name: str, array: Any, declared: ValueRange, extent: int) -> None:
    """Raise ValueError if an array has a value outside of its declared range, or repeated values that must be
    distinct.
    """
    low, high = declared.low, declared.high + extent
    least, greatest = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    if not (low <= least and greatest <= high):  # with a NaN, both are NaN
        raise ValueError(f"{name} holds {greatest if low <= least else least}, not in [{low:g}, {high:g}]")
    if declared.distinct:
        ordered = np.sort(array, axis=-1)
        if ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any():
            raise ValueError(f"{name} holds an arm twice")
