"""A log in memory: a table or record batches, read as a file is; and rows as whole lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans
from tacit.errors import InvalidValue, LogError
from tacit.frames import frame_batches, frame_names, is_frame
from tacit.logs.rows import Chunk, Raw

# ---- A log in memory: a table or record batches, read as a file is


class Frame:
    """A log in memory.

    Parameters
    ----------
    data : table, or iterable of pyarrow.RecordBatch
        A table is what :mod:`tacit.frames` takes.

    Attributes
    ----------
    once : bool
        Whether it can be read only once, as a stream can.

    Raises
    ------
    InvalidValue
        If it is none.

    Examples
    --------
    >>> Frame({"arm": ["film"], "reward": [1.0]}).names
    ['arm', 'reward']
    """

    name = "log"
    suffix = ""

    def __init__(self, data: Any) -> None:
        if not is_frame(data) and not isinstance(data, Iterable):
            lazy = ": collect it first, as by log.collect()" if hasattr(data, "collect") else ""
            raise InvalidValue("log", data, f"give a path, a LogReader, or a table in memory{lazy}")
        self.once = isinstance(data, pa.RecordBatchReader) or (not is_frame(data) and iter(data) is data)
        self._data = data
        self._read = False

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> list[str]:
        """The columns."""
        if is_frame(self._data):
            return frame_names(self._data)
        rest = iter(self._data)
        first = next(rest, None)
        if self.once:
            self._data = chain(() if first is None else (first,), rest)
        return [] if first is None else list(_checked(first).schema.names)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the columns of these names, in batches of at most so many rows.

        Raises
        ------
        LogError
            If it is a stream that has been read, or Arrow knows no type for a column.
        """
        if self.once and self._read:
            raise LogError(
                "log: it is a stream, and was read to its end; make a table of it, such as "
                "pyarrow.Table.from_batches(batches)"
            )
        self._read = True
        try:
            if is_frame(self._data):
                yield from frame_batches(self._data, names, rows)
                return
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise LogError(
                f"log: its columns cannot be read: {'; '.join(map(str, error.args))}; give all "
                "columns as many values, and those of a column one type, such as by astype(str)"
            ) from error
        for batch in self._data:
            for start in range(0, len(_checked(batch)), rows):
                yield batch.slice(start, rows).select(list(names))


def _checked(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        remedy = "make a table of such rows, by pyarrow.Table.from_pylist(log)"
        raise InvalidValue("log", [batch], remedy)
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidValue("log", batch, "give a table in memory, or record batches")
    return batch


def read_frame(frame: Frame, names: Sequence[str], batch_rows: int) -> Iterator[Raw]:
    """Yield the rows of a log in memory, as the formats of files do."""
    first = 1
    for batch in frame.batches(names, batch_rows):
        rows = np.arange(first, first + len(batch))
        yield Raw(dict(zip(batch.schema.names, batch.columns, strict=True)), rows, [])
        first += len(batch)


# ---- Rows of a click log as whole lists: the rows of one decision, which stand together


def beginnings(ids: Any) -> Booleans:
    """Return for each row whether it is of another decision than the row before."""
    ids = ids.cast(pa.string()) if pa.types.is_dictionary(ids.type) else ids
    starts = np.ones(len(ids), np.bool_)
    starts[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return starts


def whole_lists(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the rows of some chunks, cut only between decisions."""
    held: Chunk | None = None
    for chunk in chunks:
        if not len(chunk.rows):
            continue
        if held is not None:
            chunk = _joined(held, chunk)
        last = int(np.flatnonzero(beginnings(chunk.batch["decision_id"]))[-1])
        if last:
            yield Chunk(chunk.batch.slice(0, last), chunk.source, chunk.rows[:last])
        held = Chunk(chunk.batch.slice(last), chunk.source, chunk.rows[last:])
    if held is not None:
        yield held


def _joined(early: Chunk, late: Chunk) -> Chunk:
    tables = [pa.Table.from_batches([chunk.batch]) for chunk in (early, late)]
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    (batch,) = table.combine_chunks().to_batches()
    return Chunk(batch, late.source, np.concatenate([early.rows, late.rows]))
