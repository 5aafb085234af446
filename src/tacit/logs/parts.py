"""Split a log for separate reading: into ranges of row groups, shards of keys, and whole lists."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans, Ints
from tacit.errors import UnfitLog
from tacit.logs.data_warnings import DUPLICATE_CHECK_ROWS
from tacit.logs.formats import parquet_file
from tacit.logs.reader import Frame, LogFile, LogReader, reading
from tacit.logs.rows import Chunk

PART_ROWS = 4_000_000
"""Rows of a part, if the log can be cut there."""
MAX_PARTS = 2048
"""Most parts of a log; the parts of a longer log have more rows."""
SORTED_BATCH_ROWS = 65_536
"""Rows of a batch of a sorted log."""


class LogPart(NamedTuple):
    """A range of consecutive rows of a log.

    Attributes
    ----------
    log : LogReader
        Reader of the files that the part covers.
    groups : tuple of (int, int) or None
        Per file the range of row groups, with the end excluded; None for a whole file.
    rows : int
        Number of rows; 0 if the files do not record it.
    """

    log: LogReader
    groups: tuple[tuple[int, int] | None, ...]
    rows: int


class _Piece(NamedTuple):
    """A row group of a file, or, with group None and 0 rows, a file that cannot be cut."""

    file: LogFile
    group: int | None
    rows: int


def split_log(log: LogReader, rows: int = PART_ROWS, *, whole_files: bool = False) -> list[LogPart]:
    """Return a log cut into consecutive parts; the cuts depend on the log alone.

    Parquet is cut between row groups. Each file of CSV or JSON lines, and a table in memory, is a part of
    its own.

    Parameters
    ----------
    log : LogReader
    rows : int, default 4,000,000
        A part ends as soon as it has this many rows, or more if the log would have over 2,048 parts.
    whole_files : bool, default False
        Whether files are kept whole.
    """
    pieces = [piece for file in log.files for piece in _list_pieces(file)]
    # Rounded up, so that there are at most MAX_PARTS parts.
    size = max(rows, -(-sum(piece.rows for piece in pieces) // MAX_PARTS))
    parts: list[list[_Piece]] = []
    rows_left = 0
    for previous, piece in zip([None, *pieces], pieces, strict=False):
        is_same_file = whole_files and previous is not None and previous.file is piece.file
        # A file that cannot be cut is a part of its own.
        cannot_join = piece.group is None or (previous is not None and previous.group is None)
        if cannot_join or (rows_left <= 0 and not is_same_file):
            parts.append([])
            rows_left = size
        parts[-1].append(piece)
        rows_left -= size if piece.group is None else piece.rows
    return [_join_pieces(log, part) for part in parts]


def _list_pieces(file: LogFile) -> list[_Piece]:
    """Return the row groups of a Parquet file, or other files and tables as one piece of unknown size (0)."""
    if isinstance(file.path, Frame) or file.format != "parquet":
        return [_Piece(file, group=None, rows=0)]
    with reading(file.path, "parquet"), parquet_file(file.path) as opened:
        info = opened.metadata
        return [_Piece(file, group, info.row_group(group).num_rows) for group in range(info.num_row_groups)]


def _join_pieces(log: LogReader, pieces: list[_Piece]) -> LogPart:
    """Return the part of a log that consists of consecutive pieces."""
    files: list[LogFile] = []
    groups: list[tuple[int, int] | None] = []
    for file, group, _ in pieces:
        if files and files[-1] is file and group is not None:
            assert groups[-1] is not None
            groups[-1] = groups[-1][0], group + 1
        else:
            files.append(file)
            groups.append(None if group is None else (group, group + 1))
    part = copy.copy(log)
    part.files = files
    return LogPart(part, tuple(groups), sum(piece.rows for piece in pieces))


class KeyShard(NamedTuple):
    """The rows of a log whose keys belong to one shard.

    Attributes
    ----------
    log : LogReader
    shard, shards : int
        The shard's number, and the number of shards. A hash of placement and key, the same on every
        machine, assigns rows to shards.
    """

    log: LogReader
    shard: int
    shards: int

    def filter_rows(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield from each chunk the rows that belong to the shard; chunks without such rows are left out."""
        for chunk in chunks:
            in_shard = assign_shards(chunk.batch["placement"], chunk.batch["key"], self.shards) == self.shard
            if in_shard.any():
                yield chunk.filter_rows(pa.array(in_shard))


def assign_shards(placements: Any, keys: Any, shards: int) -> Ints:
    """Return the shard number of each row, in [0, shards), by a hash of its placement and key.

    Examples
    --------
    >>> assign_shards(pa.array(["home"] * 3), pa.array(["a", "b", "a"]), 3).tolist()
    [0, 2, 0]
    """
    placement, key = (column.dictionary_encode() for column in (placements, keys))
    salts = [zlib.crc32(name.encode() + b"\0") for name in placement.dictionary.to_pylist()]
    names = [name.encode() for name in key.dictionary.to_pylist()]
    pairs = placement.indices.to_numpy().astype(np.int64) * max(len(names), 1)
    pairs += key.indices.to_numpy()
    distinct, pair_index = np.unique(pairs, return_inverse=True)
    shard_numbers = [
        zlib.crc32(names[pair % len(names)], salts[pair // len(names)]) % shards for pair in distinct.tolist()
    ]
    return np.array(shard_numbers, np.int64)[pair_index]


# ---- Whole lists: the consecutive rows of one decision


def find_list_starts(ids: Any) -> Booleans:
    """Return a mask of the rows whose decision id differs from the row before; the first row is True."""
    ids = ids.cast(pa.string())
    starts = np.ones(len(ids), np.bool_)
    starts[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return starts


def cut_between_lists(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the same rows in chunks that end between decisions, so that no decision's rows are in two chunks.

    Raises
    ------
    UnfitLog
        If rows of one decision are not consecutive; only the first 131,072 rows are checked.
    """
    open_list: Chunk | None = None
    positions_by_id: dict[str, tuple[int, set[int]]] = {}
    rows = 0
    for chunk in chunks:
        if not len(chunk.rows):
            continue
        if open_list is not None:
            chunk = _join_chunks([open_list, chunk])
        last = int(np.flatnonzero(find_list_starts(chunk.batch["decision_id"]))[-1])
        if last:
            rows += last
            yield _check_lists_together(
                chunk.slice_rows(0, last), positions_by_id if rows <= DUPLICATE_CHECK_ROWS else None
            )
        open_list = chunk.slice_rows(last)  # the chunk's last list may go on in the next chunk
    if open_list is not None:
        yield _check_lists_together(open_list, positions_by_id if rows <= DUPLICATE_CHECK_ROWS else None)


def _check_lists_together(chunk: Chunk, positions_by_id: dict[str, tuple[int, set[int]]] | None) -> Chunk:
    """Check that the rows of each decision follow each other; return the chunk unchanged.

    The first row and the positions of each decision are recorded in ``positions_by_id``, for later chunks. If
    that is None, or the log has no positions, nothing is checked.

    Raises
    ------
    UnfitLog
        If a decision comes again, with positions that it did not have before.
    """
    if positions_by_id is None or "position" not in chunk.batch.schema.names:
        return chunk
    starts = np.flatnonzero(find_list_starts(chunk.batch["decision_id"]))
    ids = chunk.batch["decision_id"].take(pa.array(starts)).to_pylist()
    row_positions = chunk.batch["position"].to_pylist()
    for name, start, stop in zip(
        ids, starts.tolist(), [*starts[1:].tolist(), len(row_positions)], strict=True
    ):
        first, positions = positions_by_id.setdefault(name, (int(chunk.rows[start]), set()))
        # An id that is used again, as in another file, names another list, whose positions start again.
        if positions and positions.isdisjoint(row_positions[start:stop]):
            raise UnfitLog(
                f"{chunk.row_location(start)}: decision_id: {name!r} comes again, after row {first} and "
                "others; put the rows of a decision together: sort by decision_id and position"
            )
        positions.update(row_positions[start:stop])
    return chunk


def _join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Return one chunk with the rows of all chunks; its source is the last one's."""
    tables = [pa.Table.from_batches([chunk.batch]) for chunk in chunks]
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    (batch,) = table.combine_chunks().to_batches()
    return Chunk(batch, chunks[-1].source, np.concatenate([chunk.rows for chunk in chunks]))


def has_times_in_order(chunk: Chunk, latest: int) -> tuple[bool, int]:
    """Return whether times never decrease, starting from ``latest``, and the chunk's last time.

    Times are microseconds since 1970. Without times or rows: True and ``latest``.
    """
    if "timestamp" not in chunk.batch.schema.names or not len(chunk.rows):
        return True, latest
    times = _get_times(chunk)
    return bool(times[0] >= latest and (np.diff(times) >= 0).all()), int(times[-1])


def sort_by_time(chunks: Iterator[Chunk], by_list: bool) -> Iterator[Chunk]:
    """Yield all rows sorted by time; rows of equal times keep their order.

    With ``by_list``, the rows of a list stay together, at the time of the first, and all are in one chunk.
    All rows are held in memory. If there are several files, errors name the last one, and the row's number
    in its own file.
    """
    nonempty = [chunk for chunk in chunks if len(chunk.rows)]
    if not nonempty:
        return
    chunk = _join_chunks(nonempty)
    times = _get_times(chunk)
    if by_list:
        starts = find_list_starts(chunk.batch["decision_id"])
        times = times[np.flatnonzero(starts)[np.cumsum(starts) - 1]]  # of the list's first row
    order = np.argsort(times, kind="stable")
    chunk = Chunk(chunk.batch.take(pa.array(order)), chunk.source, chunk.rows[order])
    size = len(order) if by_list else SORTED_BATCH_ROWS
    for start in range(0, len(order), size):
        yield chunk.slice_rows(start, start + size)


def _get_times(chunk: Chunk) -> Ints:
    """Return the times of a chunk in microseconds since 1970."""
    return np.asarray(chunk.batch["timestamp"].cast(pa.int64()).to_numpy())
