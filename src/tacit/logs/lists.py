"""Rows of a click log as whole lists: the rows of one decision, which stand together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans
from tacit.logs.rows import Chunk


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
    one = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    (batch,) = one.combine_chunks().to_batches()
    return Chunk(batch, late.source, np.concatenate([early.rows, late.rows]))
