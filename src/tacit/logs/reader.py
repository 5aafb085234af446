"""Reading click logs: files in, validated record batches out, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tacit import checks
from tacit.errors import InvalidValue, LogError
from tacit.logs.formats import FORMATS, format_of
from tacit.logs.places import File, RemoteFile, files_at, is_url
from tacit.logs.rows import Chunk, LogReport, Raw, checked, converted
from tacit.logs.schema import ALLOWED, SCHEMA

BATCH_ROWS = 65_536


class LogFile(NamedTuple):
    """A file of a log, its format, and which of its columns serves as which of the schema's."""

    path: File
    format: str
    columns: dict[str, str]


class LogReader:
    """A click log in files; iterating gives record batches in the schema, all rows valid.

    It can be iterated many times and opens its files anew each time. At any moment it holds
    one batch (of Parquet at most a row group besides, of CSV some 32 MiB read ahead), whatever
    the log's size. Made by :func:`read_log` and :func:`read_open_bandit`.

    Parameters
    ----------
    files : sequence of path
        Read one after the other.
    format : str, optional
        ``"parquet"``, ``"csv"`` or ``"json"``; by default each file's suffix says it.
    columns, constants, strict, batch_rows
        As for :func:`read_log`.

    Attributes
    ----------
    report : LogReport
        What became of the rows that the latest iteration has read so far.
    files, constants, strict, batch_rows
        What it was made of, checked.
    """

    def __init__(
        self,
        files: Sequence[File],
        *,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        constants: Mapping[str, Any] | None = None,
        strict: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self.report = LogReport()
        self.strict = strict
        self.batch_rows = checks.integer("batch_rows", batch_rows, 1)
        self.constants = _constants(constants or {})
        renamed = dict(columns or {})
        for name in renamed:
            _check_column("columns", name)
        self.files = [self._planned(path, format_of(path, format), renamed) for path in files]

    def _planned(self, path: File, format: str, renamed: dict[str, str]) -> LogFile:
        if isinstance(path, RemoteFile) and format != "parquet":
            raise InvalidValue("format", format, f"give Parquet at {path}; copy other logs here")
        with reading(path, format):
            names = FORMATS[format].names(path)
        sparse = FORMATS[format].sparse
        columns = _mapped(names, renamed, self.constants, str(path), sparse=sparse)
        return LogFile(path, format, columns)

    def __iter__(self) -> Iterator[Any]:
        return (chunk.batch for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Give the batches, each with its file and the numbers of its rows there.

        Raises
        ------
        LogError
            If a file cannot be read, or under ``strict`` at the first row that is wrong.
        """
        self.report = report = LogReport()
        for file in self.files:
            for raw in self._raw(file):
                columns = completed(raw, file.columns, self.constants)
                yield checked(columns, str(file.path), report, strict=self.strict)

    def _raw(self, file: LogFile) -> Iterator[Raw]:
        names = list(dict.fromkeys(file.columns.values()))
        with reading(file.path, file.format):
            yield from FORMATS[file.format].read(file.path, names, self.batch_rows)


@contextmanager
def reading(path: File, format: str) -> Iterator[None]:
    """Turn what goes wrong with a file into a :class:`~tacit.errors.LogError` that names it."""
    try:
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise LogError(f"{path}: cannot be read as {format}: {error}") from error


def _check_column(field: str, name: str) -> None:
    if name not in ALLOWED:
        raise InvalidValue(field, name, f"a click log has the columns {', '.join(ALLOWED)}")


def _constants(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return each constant as a scalar of its column's type."""
    scalars = {}
    for name, value in given.items():
        _check_column("constants", name)
        scalar = converted([value], SCHEMA.field(name).type)[0]
        if not scalar.is_valid:
            raise InvalidValue(f"constants[{name}]", value, f"give {ALLOWED[name]}")
        scalars[name] = scalar
    return scalars


def _mapped(
    names: Sequence[str],
    renamed: Mapping[str, str],
    constants: Mapping[str, Any],
    source: str,
    *,
    sparse: bool = False,
) -> dict[str, str]:
    """Say which column of a source serves as which column of the schema."""
    mapped = {}
    for field in SCHEMA:
        name = renamed.get(field.name, field.name)
        fixed = field.name in constants
        # Of a file without any row nothing is missing.
        if name in names or (sparse and (field.nullable or not names) and not fixed):
            mapped[field.name] = name
        elif field.name in renamed or not (field.nullable or fixed):
            raise LogError(
                f"{source}: {field.name}: there is no column {name!r}; the columns are "
                f"{', '.join(map(repr, names))}; say which one to take with "
                f"columns={{{field.name!r}: ...}}, or give it a value with "
                f"constants={{{field.name!r}: ...}}"
            )
    return mapped


def completed(raw: Raw, columns: Mapping[str, str], constants: Mapping[str, Any]) -> Raw:
    """Return all columns of the schema, under its names."""
    rows = len(raw.rows)
    complete: dict[str, Any] = {}
    for field in SCHEMA:
        if field.name in columns:
            complete[field.name] = raw.columns[columns[field.name]]
        elif field.name in constants:
            complete[field.name] = pa.repeat(constants[field.name], rows)
        else:
            complete[field.name] = pa.nulls(rows, field.type)
    return raw._replace(columns=complete)


def read_log(
    path: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    arms: Sequence[str] | None = None,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> LogReader:
    """Open a click log.

    Parameters
    ----------
    path : path, or sequence of them
        A file; a folder whose files, those of its folders among them, are read in the order of
        their names; or a pattern with ``*`` for these. Parquet may be given by a URL that
        pyarrow's file systems know (``s3://``, ``gs://``, ``hdfs://``, ``file://``). A folder of
        the Open Bandit Dataset is recognised, and one with files ``ubi_queries*``.
    format : str, optional
        ``"parquet"``, ``"csv"``, ``"json"`` (one object a line), ``"open-bandit"`` or
        ``"ubi"``; by default the suffix says it.
    columns : dict, optional
        From columns of the schema to the names that the file has for them.
    constants : dict, optional
        Values for columns that the file has not.
    arms : sequence of str, optional
        The arms on offer in every row, where the file does not say them.
    strict : bool, default False
        Whether to stop at the first row that is wrong, instead of counting it in
        ``reader.report``.
    batch_rows : int, default 65,536
        The most rows in a batch.

    Returns
    -------
    LogReader

    Raises
    ------
    LogError
        If there is nothing to read, or a column that is never null is missing.
    InvalidValue
        If an option is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "clicks.csv"
    >>> _ = path.write_text(
    ...     "timestamp,decision_id,query,shown,clicked\\n"
    ...     "2017-07-04T12:00:00Z,1,independence day,film,1\\n"
    ...     "2017-07-04T12:00:01Z,2,independence day,flim,0\\n"
    ... )
    >>> log = read_log(
    ...     path,
    ...     columns={"key": "query", "arm": "shown", "reward": "clicked"},
    ...     constants={"placement": "home"},
    ...     arms=["film", "holiday"],
    ... )
    >>> [batch.num_rows for batch in log]
    [1]
    >>> log.report.rejected
    {'arm-not-offered': 1}
    """
    from tacit.logs.open_bandit import is_open_bandit, read_open_bandit
    from tacit.logs.ubi import FORMAT, is_ubi, read_ubi

    places = [path] if isinstance(path, str | Path) else list(path)
    if not places:
        raise InvalidValue("path", path, "give a file at least")
    fixed = dict(constants or {}) | ({} if arms is None else {"arms": arms})
    if format == "open-bandit" or (
        format is None and not is_url(places[0]) and is_open_bandit(Path(places[0]))
    ):
        if len(places) > 1:
            raise InvalidValue("path", path, "give one folder of the Open Bandit Dataset at a time")
        return read_open_bandit(
            places[0], columns=columns, constants=fixed, strict=strict, batch_rows=batch_rows
        )
    if format == FORMAT or (format is None and not is_url(places[0]) and is_ubi(Path(places[0]))):
        if columns:
            raise InvalidValue("columns", columns, "leave them out: the fields of UBI are known")
        return read_ubi(places, constants=fixed, strict=strict, batch_rows=batch_rows)
    return LogReader(
        [file for place in places for file in files_at(place, _suffixes(format))],
        format=format,
        columns=columns,
        constants=fixed,
        strict=strict,
        batch_rows=batch_rows,
    )


def _suffixes(format: str | None) -> list[str]:
    """Return the endings of the files that a folder is looked through for."""
    known = FORMATS if format is None else {format: FORMATS[format_of(Path(), format)]}
    return [suffix for form in known.values() for suffix in form.suffixes]


def as_chunks(log: Any) -> Iterator[Chunk]:
    """Give the valid rows of any form that a click log can have.

    Parameters
    ----------
    log : LogReader, path, pyarrow.Table, pyarrow.RecordBatch or iterable of pyarrow.RecordBatch
        What is in memory already is checked strictly.

    Raises
    ------
    InvalidValue
        If it is none of these.
    LogError
        If it cannot be read or a row is wrong.
    """
    if isinstance(log, (str, Path)):
        log = read_log(log)
    if isinstance(log, LogReader):
        return log.chunks()
    if isinstance(log, pa.RecordBatch):
        log = [log]
    elif isinstance(log, pa.Table):
        log = log.to_batches(max_chunksize=BATCH_ROWS)
    if not isinstance(log, Iterable):
        raise InvalidValue("log", log, "give a path, a LogReader, or a pyarrow Table")
    return _checked_batches(log)


def _checked_batches(batches: Iterable[Any]) -> Iterator[Chunk]:
    source, first = "log", 1
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidValue("log", batch, "give record batches")
        rows = np.arange(first, first + len(batch))
        raw = Raw(dict(zip(batch.schema.names, batch.columns, strict=True)), rows, [])
        mapped = _mapped(batch.schema.names, {}, {}, source)
        yield checked(completed(raw, mapped, {}), source, LogReport(), strict=True)
        first += len(batch)
