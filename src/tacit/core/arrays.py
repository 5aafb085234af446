"""Array types, workspaces of kernels, and operations on states, which are trees of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# ---- Short names for the arrays and the generator that kernels handle

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Generator = np.random.Generator


# ---- Workspaces of kernels
#
# A loop that creates arrays must count references to all its arrays; one that only borrows workspaces
# does not.


def borrow_array(rows: int, columns: int) -> Floats:
    """Return an uninitialised workspace; the caller must free it with :func:`release_array`."""
    return np.empty((rows, columns))


def release_array(workspace: Floats) -> None:
    """Free the memory of a workspace of :func:`borrow_array`; in plain Python this does nothing."""


# ---- States as trees of arrays: iterating, growing, trimming, and views of lanes
#
# The leading axis of an array is that of lanes. An array that all lanes share has one row for any
# number of lanes; ``init`` determines which these are.


def floats(values: Any) -> Floats:
    """Return values as an array of float64; an empty array with one axis if they are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the array of each field of a (nested) named tuple of arrays."""
    for field, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            yield from leaves(value, f"{prefix}{field}.")
        else:
            yield prefix + field, value


def rebuild_state(state: Any, arrays: Iterator[Any]) -> Any:
    """Return a named tuple of the nested form of ``state``, filled with ``arrays`` in order."""
    return type(state)(
        *(rebuild_state(value, arrays) if isinstance(value, tuple) else next(arrays) for value in state)
    )


def copy_state(state: Any) -> Any:
    """Return a deep copy of a named tuple of arrays."""
    return rebuild_state(state, (array.copy() for _, array in leaves(state)))


def copy_to_larger(small: Any, large: Any) -> Any:
    """Copy each array of ``small`` into the leading corner of the same array in ``large``; return ``large``.

    The remaining part of ``large`` is unchanged, so that a state can grow in lanes or arms.
    """
    for (_, source), (_, target) in zip(leaves(small), leaves(large), strict=True):
        target[tuple(slice(0, n) for n in source.shape)] = source
    return large


def trim_state(large: Any, small: Any) -> Any:
    """Return views of the arrays of ``large``, each cut to the shape of the same array in ``small``."""
    corners = (
        array[tuple(slice(0, n) for n in like.shape)]
        for (_, array), (_, like) in zip(leaves(large), leaves(small), strict=True)
    )
    return rebuild_state(small, corners)


def lane_rows(init: Callable[[int], Any]) -> list[int]:
    """Return, for each array of a state, the number of rows of a lane; 0 for arrays that all lanes share.

    Parameters
    ----------
    init : function
        Returns the state of a number of lanes, as :meth:`tacit.Policy.init`.

    Raises
    ------
    TypeError
        If an array has neither equally many rows for each lane nor a single one for all.
    """
    rows = []
    empty, single, double = (list(leaves(init(lanes))) for lanes in range(3))
    for (name, *_), counts in zip(single, _lengths(empty, single, double), strict=True):
        per_lane = counts[1] - counts[0]
        if counts not in ((0, per_lane, 2 * per_lane), (1, 1, 1)):
            raise TypeError(
                f"{name} has {counts[0]}, {counts[1]} and {counts[2]} rows for 0, 1 and 2 lanes: "
                "give each lane as many, or a single one to all of them"
            )
        rows.append(per_lane)
    return rows


def _lengths(*states: list[tuple[str, Any]]) -> Iterator[tuple[int, ...]]:
    """Yield, for each array, its number of rows in each of the states."""
    return (tuple(len(array) for _, array in arrays) for arrays in zip(*states, strict=True))


def lanes_view(state: Any, rows: Sequence[int], start: int, stop: int) -> Any:
    """Return views of the state of lanes ``start`` to ``stop`` − 1: their rows, and the whole of shared
    arrays.

    ``rows`` is the result of :func:`lane_rows`: rows of a lane per array, 0 if it is shared.
    """
    arrays = (array for _, array in leaves(state))
    views = (
        array[start * count : stop * count] if count else array
        for array, count in zip(arrays, rows, strict=True)
    )
    return rebuild_state(state, views)


def byte_count(state: Any) -> int:
    """Return the size of all arrays of a state in bytes."""
    return sum(byte_count(array) if isinstance(array, tuple) else int(array.nbytes) for array in state)
