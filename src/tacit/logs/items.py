"""Vectors of the items in a log: a separate table, joined by id, and by time if vectors change."""

# 1. ``item_batches``: ids, vectors, and optional segments and times of a table, in batches.
# 2. ``ItemTable``: looks up a vector by id and, if vectors change, by the time of the log's row.
# 3. ``get_items``: the table with which a log was opened.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnknownName
from tacit.frames import frame_batches, frame_names, is_frame
from tacit.logs.parts import KeyShard, LogPart
from tacit.logs.reader import MEMORY, LogReader, open_file, reading
from tacit.logs.rows import convert_values
from tacit.logs.schema import EpochTimes

Singles = npt.NDArray[np.float32]

ID, VECTOR, SEGMENT, FROM = "id", "vector", "segment", "from"
COLUMNS = (
    f"give a table, or the path of one, with the columns {ID!r} and {VECTOR!r}, a list of numbers; "
    f"perhaps {SEGMENT!r}; and {FROM!r}, the time from which it holds, where vectors change"
)
BATCH = 8192


class ItemBatch(NamedTuple):
    """A batch of a table's items: Arrow arrays, and vectors of shape (items, dim).

    Segments are null and times None if the table has no such column.
    """

    ids: Any
    vectors: Singles
    segments: Any
    times: Any


def item_batches(table: Any) -> Iterator[ItemBatch]:
    """Read a table of items, or a file that holds it, and yield validated batches.

    Raises
    ------
    InvalidValue
        If it is no table, a column is missing, or vectors have different lengths.
    LogError
        If the file cannot be read.
    """
    dim = None
    for columns in _read_batches(table):
        ids = convert_values(columns[ID], pa.string())
        vectors = _convert_vectors(columns[VECTOR])
        if dim is None and len(vectors):
            dim = vectors.shape[1]
        if ids.null_count or (len(vectors) and vectors.shape[1] != dim):
            raise InvalidValue("items", f"{len(ids)} rows", "give each an id, and as many finite numbers")
        segments = convert_values(columns[SEGMENT], pa.string()) if SEGMENT in columns else pa.nulls(len(ids))
        times = None
        if FROM in columns:
            times = convert_values(columns[FROM], pa.timestamp("us", "UTC"), EpochTimes(unit=None, counts={}))
            if times.null_count:
                raise InvalidValue(f"items[{FROM!r}]", "nothing, or no time", "give each row a time")
        yield ItemBatch(ids, vectors, segments, times)


def _read_batches(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the columns of an item table, or of its file, by name, in batches of up to 8192 rows.

    Raises
    ------
    InvalidValue
        If it is no table, or has no ids or vectors.
    """
    if isinstance(table, str | Path):
        file = open_file(Path(table))
        columns = _select_columns(file.names, str(table))
        for raw in file.read(columns, BATCH):
            yield raw.columns
    elif is_frame(table):
        columns = _select_columns(frame_names(table), "a table")
        with reading("items", MEMORY):  # type: ignore[arg-type]
            for batch in frame_batches(table, columns, BATCH):
                yield dict(zip(columns, batch.columns, strict=True))
    else:
        raise InvalidValue("items", table, COLUMNS)


def _select_columns(names: Any, where: str) -> list[str]:
    """Return which columns of an item table to read; raise InvalidValue without ids or vectors."""
    if ID not in names or VECTOR not in names:
        raise InvalidValue("items", f"{where} with the columns {', '.join(map(repr, names))}", COLUMNS)
    return [name for name in (ID, VECTOR, SEGMENT, FROM) if name in names]


def _convert_vectors(lists: Any) -> Singles:
    """Return a column of lists of equal length as an array of float32, shape (rows, length).

    Raises
    ------
    InvalidValue
        If the column does not hold lists of finite numbers, all of the same length.
    """
    lists = pa.array(lists) if isinstance(lists, list) else lists
    try:
        if not pa.types.is_fixed_size_list(lists.type):
            lists = lists.cast(pa.list_(pa.float32()))
        numbers = lists.flatten().cast(pa.float32())
    except pa.ArrowException:
        remedy = "give lists of numbers, in Parquet or JSON lines"
        raise InvalidValue(f"items[{VECTOR!r}]", str(lists.type), remedy) from None
    width = len(numbers) // max(len(lists), 1)
    values: Singles = numbers.to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(lists)
    if lists.null_count or (len(lists) and not pc.all(pc.equal(lengths, width)).as_py()):
        raise InvalidValue(f"items[{VECTOR!r}]", f"{len(lists)} rows", "give all as many numbers, at least 1")
    if not np.isfinite(values).all():
        raise InvalidValue(f"items[{VECTOR!r}]", "a number that is not finite", "give finite numbers")
    return values.reshape(len(lists), width)


class ItemTable:
    """Vectors of items by id and, if the table has a column ``from``, by the time from which each is valid.

    Parameters
    ----------
    table : path, or table
        With the columns ``id``, ``vector`` and optionally ``from``.

    Attributes
    ----------
    dim : int
        Length of a vector.
    has_times : bool
        Whether the table has the column ``from``.

    Raises
    ------
    InvalidValue
        If it is no such table, or an id occurs twice, or twice with the same time.

    Examples
    --------
    >>> table = ItemTable({"id": ["film", "song"], "vector": [[0.5, 1.0], [2.0, 0.0]]})
    >>> table.vectors(table.rows(table.codes(pa.array(["song"]), "log"), None, "log")).tolist()
    [[2.0, 0.0]]
    """

    def __init__(self, table: Any) -> None:
        """Read all vectors into memory, sorted by id and time; raise InvalidValue if the table is wrong."""
        batches = list(item_batches(table))
        if not batches or not sum(len(batch.ids) for batch in batches):
            raise InvalidValue("items", "a table without rows", COLUMNS)
        ids = pa.chunked_array([batch.ids for batch in batches]).combine_chunks().dictionary_encode()
        codes = ids.indices.to_numpy().astype(np.int64)
        self.has_times = batches[0].times is not None
        # Without times all rows have the same, so that an id must be unique.
        times = np.zeros(len(codes), np.int64)
        if self.has_times:
            times = np.concatenate([_to_microseconds(batch.times) for batch in batches])
        self._times = np.unique(times)
        keys = self._combine_keys(codes, np.searchsorted(self._times, times))
        order = np.argsort(keys, kind="stable")
        self._sorted_keys, self._names = keys[order], ids.dictionary
        if (np.diff(self._sorted_keys) == 0).any():
            remedy = f"say {FROM!r} of each, or give each once"
            duplicate = ids[int(order[np.argmin(np.diff(self._sorted_keys))])].as_py()
            raise InvalidValue("items", f"{duplicate!r} twice", remedy)
        self._vectors = np.concatenate([batch.vectors for batch in batches])[order]
        self.dim = self._vectors.shape[1]

    @classmethod
    def from_table(cls, table: Any) -> ItemTable | None:
        """Return an ItemTable of a table or path; None for None, and an ItemTable unchanged."""
        return table if table is None or isinstance(table, ItemTable) else cls(table)

    def _combine_keys(self, codes: Ints, places: Ints) -> Ints:
        """Return one number per pair of item code and index of a time, sorted as the pairs are."""
        return codes * len(self._times) + places

    def codes(self, ids: Any, where: str) -> Ints:
        """Return the code of each id of an Arrow array: its number among the table's distinct ids.

        Raises
        ------
        UnknownName
            If the table has no such id; the error begins with ``where``.
        """
        codes = pc.index_in(ids.cast(pa.string()), value_set=self._names)
        if codes.null_count:
            missing = ids.filter(codes.is_null())[0].as_py()
            raise UnknownName(f"{where}: arms: items has no vector of {missing!r}; give it, or leave it out")
        return np.asarray(codes.to_numpy(), np.int64)

    def rows(self, codes: Ints, times: Any, where: str) -> Ints:
        """Return, for each item code, the row of the table with the vector that is valid at its time.

        If the table has no times, rows are codes and ``times`` is ignored.

        Raises
        ------
        UnknownName
            If an item has no vector yet at its time; the error begins with ``where``.
        """
        if not self.has_times:
            return codes
        latest = np.searchsorted(self._times, _to_microseconds(times), side="right") - 1
        rows = np.searchsorted(self._sorted_keys, self._combine_keys(codes, latest), side="right") - 1
        # Before its first time, an item's row is −1 or one of the item before it.
        is_too_early = (latest < 0) | (rows < 0) | (self._sorted_keys[rows] // len(self._times) != codes)
        if is_too_early.any():
            row = int(np.argmax(is_too_early))
            raise UnknownName(
                f"{where}: arms: items has no vector of {self._names[int(codes[row])].as_py()!r} by "
                f"{times[row].as_py()}; give what was so then, by {FROM!r}"
            )
        return rows

    def vectors(self, rows: Ints) -> Floats:
        """Return the vectors in these rows of the table as float64, shape (rows, dim)."""
        return self._vectors[rows].astype(np.float64)


def _to_microseconds(times: Any) -> Ints:
    """Return times of an Arrow array in microseconds since 1970."""
    return np.asarray(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy())


def get_items(log: Any) -> ItemTable | None:
    """Return the table of items with which a log, or the log of a part, was opened; None without one."""
    while isinstance(log, LogPart | KeyShard):
        log = log.log
    return log.items if isinstance(log, LogReader) else None
