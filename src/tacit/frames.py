"""Read tables in memory, of any package.

A table has Arrow's PyCapsule interface (pandas, polars, DuckDB relations, pyarrow and more), or is a
dict from names to arrays, or a data set of Hugging Face. None of these packages is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue

BATCH_ROWS = 65_536
NESTED_ROWS = 100
"""Rows of a column that are searched for objects."""


def is_frame(value: Any) -> bool:
    """True if a value is a table in memory: a mapping, a data set of Hugging Face, or has Arrow's interface.

    Examples
    --------
    >>> is_frame({"arm": ["film"]}), is_frame([1, 2]), is_frame("clicks.csv")
    (True, False, False)
    """
    interfaces = ("__arrow_c_stream__", "__arrow_c_array__")
    return isinstance(value, Mapping) or _is_dataset(value) or any(hasattr(value, n) for n in interfaces)


def _is_dataset(value: Any) -> bool:
    """True if a value is a data set of Hugging Face, which has its own interface for Arrow tables."""
    return hasattr(value, "with_format") and hasattr(value, "column_names")


def frame_names(frame: Any) -> list[str]:
    """Return the names of a table's columns as text, in order.

    Examples
    --------
    >>> frame_names({"arm": ["film"], "reward": [1.0]})
    ['arm', 'reward']
    """
    if isinstance(frame, Mapping):
        return list(map(str, frame))
    if _is_dataset(frame):
        return list(frame.column_names or [])
    if _is_pandas(frame):
        return list(map(str, frame.columns))
    names = getattr(getattr(frame, "schema", None), "names", None)
    if isinstance(names, list):  # pyarrow has the names without reading data
        return names
    return list(_open_stream(frame).schema.names)


def frame_paths(frame: Any) -> list[str]:
    """Return the dotted paths of all fields of a table's structs; objects count as structs by their first 100
    rows.

    Examples
    --------
    >>> frame_paths({"arm": ["film"], "user": [{"age": 30}]})
    ['user.age']
    """
    import pyarrow as pa

    from tacit.core.arrow_columns import list_nested_names

    if isinstance(frame, Mapping) or _is_pandas(frame):
        columns: Any = {
            name: frame[name] for name in (frame if isinstance(frame, Mapping) else frame.columns)
        }
        fields = {}
        for name, values in columns.items():
            if isinstance(values, pa.Array | pa.ChunkedArray):
                fields[str(name)] = values.type
            elif isinstance(values, Iterable) and getattr(getattr(values, "dtype", 0), "kind", "O") == "O":
                sample = [value for value in islice(iter(values), NESTED_ROWS) if isinstance(value, Mapping)]
                fields |= {str(name): pa.infer_type(sample)} if sample else {}
        schema = pa.schema(fields)
    elif _is_dataset(frame):
        schema = frame.features.arrow_schema if frame.features else pa.schema({})
    else:
        schema = getattr(frame, "schema", None)
        schema = schema if isinstance(schema, pa.Schema) else _open_stream(frame).schema
    return [name for name in list_nested_names(schema) if name not in schema.names]


def frame_batches(frame: Any, names: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Yield the named columns of a table, in that order, as record batches of at most ``rows`` rows.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If columns have different lengths, or the values of a column have no common type.

    Examples
    --------
    >>> [batch.num_rows for batch in frame_batches({"reward": [1.0, 0.0, 1.0]}, ["reward"], 2)]
    [2, 1]
    """
    if _is_dataset(frame):
        tables = frame.with_format("arrow").iter(batch_size=rows)
        batches = (batch for table in tables for batch in table.select(list(names)).to_batches())
    else:
        batches = iter(_open_stream(frame, names))
    for batch in batches:
        for start in range(0, len(batch), rows):
            yield batch.slice(start, rows).select(list(names))


def _open_stream(frame: Any, names: Sequence[str] | None = None) -> Any:
    """Return an Arrow reader of a table's record batches, of the named columns or of all.

    Raises ValueError with column and row if the values of a column have no common type.
    """
    import pyarrow as pa

    if isinstance(frame, Mapping):
        column_names = map(str, frame) if names is None else names
        columns = {str(name): values for name, values in frame.items()}
        return pa.table({name: _to_array(name, columns[name]) for name in column_names}).to_reader()
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame]).to_reader()
    if _is_pandas(frame) and names is not None:
        # Other columns may have values that Arrow cannot represent.
        columns_frame = frame.loc[:, [name for name in frame.columns if str(name) in set(names)]]
        columns_frame = columns_frame.apply(_to_dense) if _has_sparse(columns_frame) else columns_frame
        if any(_has_mixed_zones(column) for _, column in columns_frame.items()):
            return _open_stream({str(name): column for name, column in columns_frame.items()}, names)
        try:
            return pa.RecordBatchReader.from_stream(columns_frame)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            for name in columns_frame.columns:  # the faulty column raises an error with its row
                _to_array(str(name), list(columns_frame[name]))
            raise
    if not hasattr(frame, "__arrow_c_stream__"):
        return pa.Table.from_batches([pa.record_batch(frame)]).to_reader()
    return pa.RecordBatchReader.from_stream(frame)


def _has_sparse(frame: Any) -> bool:
    """True if a column of a data frame of pandas is sparse, which Arrow does not read."""
    return any(hasattr(kind, "fill_value") for kind in frame.dtypes)


def _to_dense(column: Any) -> Any:
    """Return a column of pandas; a sparse one is converted to one that stores all values."""
    return column.sparse.to_dense() if hasattr(column.dtype, "fill_value") else column


def _is_pandas(frame: Any) -> bool:
    """True if a table is a data frame of pandas, which has row labels."""
    return hasattr(frame, "loc") and hasattr(frame, "columns")


def _to_array(name: str, values: Any) -> Any:
    """Return the values of a column as an Arrow array.

    Raises ValueError if they are no column, or, with the row, if they have no common type.
    """
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__array__"):
        values = np.asarray(values)
        values = list(values) if values.ndim > 1 else values
    # A list of lists may be ragged, or hold None.
    if not isinstance(values, Sequence) and np.ndim(values) == 0:
        raise ValueError(f"{name}: {values!r} is no column; give an array")
    if _has_mixed_zones(values):
        # As times they would all be in one zone, and which had none would not be known any more.
        values = [str(value) if isinstance(value, datetime) else value for value in values]
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        row = _find_odd_row(list(values))
        problem = f"{name}: row {row + 1}: {values[row]!r} is of another type than what is above it"
        raise ValueError(problem) from None


def _has_mixed_zones(values: Any) -> bool:
    """True if a column of objects that begins with a datetime has some with a time zone and some without."""
    is_objects = getattr(getattr(values, "dtype", None), "kind", "O") == "O" and len(values)
    if not is_objects or not isinstance(next(iter(values)), datetime):
        return False
    # A missing time of pandas differs from itself.
    times = (value for value in values if isinstance(value, datetime) and value == value)
    return len({time.tzinfo is None for time in times}) > 1


def _find_odd_row(values: list[Any]) -> int:
    """Return the index, from 0, of the first value whose type does not fit the values before it."""
    import pyarrow as pa

    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            pa.array(values[:middle], from_pandas=True)
            good = middle
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            bad = middle
    return bad - 1


def to_matrix(field: str, value: Any) -> Any:
    """Return a table of numbers as an array of shape (rows, columns); return other values unchanged.

    Parameters
    ----------
    field : str
        Name of the value in errors.
    value : table, or anything
        Its columns become the array's columns, in order.

    Raises
    ------
    InvalidValue
        If a column is not numeric.

    Examples
    --------
    >>> to_matrix("contexts", {"price": [1, 2], "age": [0.5, 0.25]}).tolist()
    [[1.0, 0.5], [2.0, 0.25]]
    >>> to_matrix("contexts", [[1.0]])
    [[1.0]]
    """
    if isinstance(value, np.ndarray | list | tuple) or not is_frame(value):
        return value
    names = frame_names(value)
    parts = [_batch_to_numbers(field, batch, names) for batch in frame_batches(value, names)]
    return np.concatenate(parts) if parts else np.zeros((0, len(names)))


def to_numeric(field: str, value: Any) -> Any:
    """Return numbers, or a table of numbers, as an array; raise TypeError for text, even of digits.

    Raises
    ------
    TypeError, ValueError
        If the value is text, or no array.
    """
    # Such as a column of a data frame whose values are vectors.
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        value = value.tolist()
    array = np.asarray(to_matrix(field, value))
    if array.dtype.kind in "SU":
        raise TypeError(field)
    try:
        return array.astype(np.float64) if array.dtype.kind == "O" else array
    except OverflowError:  # a whole number beyond all floats
        raise ValueError(field) from None


def _batch_to_numbers(field: str, batch: Any, names: Sequence[str]) -> Floats:
    """Return a record batch as an array of floats, shape (rows, columns); raise InvalidValue for a column of
    others.
    """
    numbers = np.zeros((len(batch), len(names)))
    for column, name in enumerate(names):
        values = batch.column(column)
        try:
            numbers[:, column] = values.to_numpy(zero_copy_only=False)
        except (TypeError, ValueError):
            remedy = "make numbers of it, such as by a transformer of scikit-learn"
            raise InvalidValue(f"{field}[{name!r}]", values.type, remedy) from None
    return numbers
