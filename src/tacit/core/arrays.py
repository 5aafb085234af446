"""Arrays, their short names, and states as trees of them: walking, growing and trimming."""

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


# ---- Room for the time of a kernel
#
# A loop that makes arrays counts the references to all that it reads and writes; one that borrows does not.


def borrowed(rows: int, columns: int) -> Floats:
    """Return room to work in, filled with anything; who borrows gives it back before returning."""
    return np.empty((rows, columns))


def give_back(room: Floats) -> None:
    """Let room go that was borrowed: nothing may use it any more. Outside of loops, nothing happens."""


# ---- States as trees of arrays: walking, growing and trimming them, and telling lanes apart
#
# The leading axis of an array is that of lanes. An array that all lanes share has one row, whatever
# their number: ``init`` says which those are.


def floats(values: Any) -> Floats:
    """Return values as an array of numbers; where they are none, an empty one with one axis."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each array of a (nested) named tuple with its dotted name."""
    for field, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            yield from leaves(value, f"{prefix}{field}.")
        else:
            yield prefix + field, value


def rebuilt(state: Any, arrays: Iterator[Any]) -> Any:
    """Return a named tuple of the same form with other arrays, taken in order."""
    return type(state)(
        *(rebuilt(value, arrays) if isinstance(value, tuple) else next(arrays) for value in state)
    )


def copied(state: Any) -> Any:
    """Return a named tuple of the same form with arrays of its own."""
    return rebuilt(state, (array.copy() for _, array in leaves(state)))


def copied_into(small: Any, large: Any) -> Any:
    """Copy each array of ``small`` into the leading corner of its namesake in ``large``.

    An axis of lanes or of arms that has grown keeps its new part as ``large`` had it.
    """
    for (_, source), (_, target) in zip(leaves(small), leaves(large), strict=True):
        target[tuple(slice(0, n) for n in source.shape)] = source
    return large


def trimmed(large: Any, small: Any) -> Any:
    """Return the leading corners of ``large`` in the shapes of ``small``."""
    corners = (
        array[tuple(slice(0, n) for n in like.shape)]
        for (_, array), (_, like) in zip(leaves(large), leaves(small), strict=True)
    )
    return rebuilt(small, corners)


def lane_rows(init: Callable[[int], Any]) -> list[int]:
    """Return how many rows of each array a lane has; 0 for arrays that all lanes share.

    Parameters
    ----------
    init : function
        Returns the state of so many lanes, as :meth:`tacit.Policy.init`.

    Raises
    ------
    TypeError
        If an array has neither as many rows for each lane nor a single one for all.
    """
    rows = []
    empty, single, double = (list(leaves(init(lanes))) for lanes in range(3))
    for (name, *_), counts in zip(single, _lengths(empty, single, double), strict=True):
        each = counts[1] - counts[0]
        if counts not in ((0, each, 2 * each), (1, 1, 1)):
            raise TypeError(
                f"{name} has {counts[0]}, {counts[1]} and {counts[2]} rows for 0, 1 and 2 lanes: "
                "give each lane as many, or a single one to all of them"
            )
        rows.append(each)
    return rows


def _lengths(*states: list[tuple[str, Any]]) -> Iterator[tuple[int, ...]]:
    return (tuple(len(array) for _, array in arrays) for arrays in zip(*states, strict=True))


def lanes_view(state: Any, rows: Sequence[int], start: int, stop: int) -> Any:
    """Return what the kernels of some lanes read and write: their rows, and all that is shared.

    The arrays are views; ``rows`` is what :func:`lane_rows` returns.
    """
    arrays = (array for _, array in leaves(state))
    views = (
        array[start * count : stop * count] if count else array
        for array, count in zip(arrays, rows, strict=True)
    )
    return rebuilt(state, views)


def byte_count(state: Any) -> int:
    """Return the size of all arrays in bytes."""
    return sum(int(np.asarray(array).nbytes) for _, array in leaves(state))
