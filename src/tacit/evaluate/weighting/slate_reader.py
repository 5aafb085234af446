"""From rows to slates, as tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import UnfitLog
from tacit.evaluate.rows import LoggedRows, positions


class SlateTable(NamedTuple):
    """Slates as tables, each in the order of its positions.

    Attributes
    ----------
    weights, rewards : array of float64, shape (slates, slots)
        1 and 0 in slots that a slate has not.
    """

    weights: Floats
    rewards: Floats


class SlateReader:
    """Makes slates of rows; a slate may go on in the next batch.

    Parameters
    ----------
    slots : int
        The most places that a slate has.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._rest: tuple[Floats, Floats, Ints] = np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
        self._id: str | None = None

    def add(self, weights: Floats, rows: LoggedRows) -> SlateTable:
        """Return the slates that are complete with these rows."""
        ids = rows.chunk.batch["decision_id"]
        ids = ids.cast(pa.string()) if pa.types.is_dictionary(ids.type) else ids
        new = np.ones(len(ids), np.bool_)
        new[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
        new[0] = self._id is not None and ids[0].as_py() != self._id
        held = len(self._rest[0])
        columns = [
            np.concatenate(pair)
            for pair in zip(self._rest, (weights, rows.reward, positions(rows)), strict=True)
        ]
        starts = np.concatenate([np.zeros(held, np.bool_), new])
        self._id = ids[-1].as_py()
        last = int(np.flatnonzero(starts)[-1]) if starts.any() else 0
        self._rest = tuple(column[last:] for column in columns)  # type: ignore[assignment]
        return self._table(columns, starts, last, rows)

    def end(self) -> SlateTable:
        """Return the last slate."""
        starts = np.zeros(len(self._rest[0]), np.bool_)
        return self._table([*self._rest], starts, len(starts), None)

    def _table(
        self, columns: list[Any], starts: Booleans, stop: int, rows: LoggedRows | None
    ) -> SlateTable:
        slate = np.cumsum(starts[:stop])
        order = np.lexsort((columns[2][:stop], slate))
        slate = slate[order]
        size = int(slate[-1]) + 1 if stop else 0
        first = np.searchsorted(slate, np.arange(size))
        slot = np.arange(stop) - first[slate]
        if stop and int(slot.max()) >= self._slots:
            where = rows.chunk.source if rows else "log"
            raise UnfitLog(
                f"{where}: decision_id: a slate has {int(slot.max()) + 1} rows or more, but "
                f"slots={self._slots}; give as many slots as a page has"
            )
        found = SlateTable(np.ones((size, self._slots)), np.zeros((size, self._slots)))
        found.weights[slate, slot] = columns[0][:stop][order]
        found.rewards[slate, slot] = columns[1][:stop][order]
        return found
