"""States as trees of arrays: walking, growing and trimming them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give each array of a (nested) named tuple with its dotted name."""
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


def byte_count(state: Any) -> int:
    """Return the size of all arrays in bytes."""
    return sum(int(np.asarray(array).nbytes) for _, array in leaves(state))
