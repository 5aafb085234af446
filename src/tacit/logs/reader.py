"""Reading click logs: files in, validated record batches out, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tacit.core import checks
from tacit.errors import InvalidValue, LogError
from tacit.logs.formats import FORMATS, format_of
from tacit.logs.places import File, RemoteFile
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
        columns = mapped(names, renamed, self.constants, str(path), sparse=sparse)
        return LogFile(path, format, columns)

    def __iter__(self) -> Iterator[Any]:
        return (chunk.batch for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Yield the batches, each with its file and the numbers of its rows there.

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


class FolderLayout(NamedTuple):
    """A layout of files that other systems write, read as a click log.

    Attributes
    ----------
    name : str
        How it is asked for in place of a file format.
    recognises : function
        From a folder to whether it has this layout.
    open : function
        From places, columns and the other options of :func:`read_log` to a reader.
    """

    name: str
    recognises: Callable[[Path], bool]
    open: Callable[..., LogReader]


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


def mapped(
    names: Sequence[str],
    renamed: Mapping[str, str],
    constants: Mapping[str, Any],
    source: str,
    *,
    sparse: bool = False,
) -> dict[str, str]:
    """Return which column of a source serves as which column of the schema."""
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
