"""Read click logs from files or tables in memory as validated record batches, in constant memory.

1. ``Frame``: a log in memory.
2. ``LogReader``: yields the batches of a log; it can be iterated several times.
3. Steps before rows are checked: columns get the schema's names, constants are filled in, contexts
   become numbers, decisions without an id are numbered.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tacit.core import checks
from tacit.core.arrays import Ints
from tacit.core.text import html_table
from tacit.errors import InvalidValue, LogError, meant
from tacit.frames import frame_batches, frame_names, is_frame
from tacit.logs.data_warnings import LOOKED_INTO, SeenRows
from tacit.logs.formats import FORMATS, TRUTHS, File, as_said, format_of, header_hint, rewards_of
from tacit.logs.rows import Chunk, LogReport, Raw, checked, converted, is_text, without_nothing
from tacit.logs.schema import ALLOWED, FEATURE, OWN, SCHEMA, SEGMENT, EpochTimes
from tacit.logs.time_units import checked_unit
from tacit.policies.context import (
    BOOLEAN,
    FIRST,
    NUMBER,
    SIGNAL,
    Declared,
    Encoder,
    declared,
    schema_of,
    schema_text,
)

# ---- A log in memory: a table or record batches, with the interface of a file


class Frame:
    """A log in memory.

    Parameters
    ----------
    data : table, or iterable of pyarrow.RecordBatch
        A table of any kind that :mod:`tacit.frames` reads.

    Attributes
    ----------
    once : bool
        Whether it is a stream, which can be read only once.

    Raises
    ------
    InvalidValue
        If ``data`` is neither.

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
        """Names of the columns."""
        if is_frame(self._data):
            return frame_names(self._data)
        rest = iter(self._data)
        first = next(rest, None)
        if self.once:
            self._data = chain(() if first is None else (first,), rest)
        return [] if first is None else list(_checked(first).schema.names)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the named columns, in batches of at most ``rows`` rows.

        Raises
        ------
        LogError
            If a stream has been read before, or Arrow has no type for a column.
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
        remedy = "give a path, a table in memory, such as a data frame or a dict of arrays, or record batches"
        raise InvalidValue("log", batch, remedy)
    return batch


def read_frame(frame: Frame, names: Sequence[str], batch_rows: int) -> Iterator[Raw]:
    """Yield the rows of a log in memory, as file formats do."""
    first = 1
    for batch in frame.batches(names, batch_rows):
        rows = np.arange(first, first + len(batch))
        yield Raw(dict(zip(batch.schema.names, batch.columns, strict=True)), rows, [])
        first += len(batch)


# ---- Files and tables as validated record batches

BATCH_ROWS = 65_536
MEMORY = "table"
NUMBERED = "decision_id"
"""Column of decision ids; without it each row is a decision, named by the row's number."""
CONTEXT = "context"
APART = ("team", "click", "outcome", "left", "right", "arm", "reward", "propensity", "position")
"""Roles of which a column can have only one."""
OUTCOME = ("arm", "reward", "propensity", "position_propensity", "decision_id", "timestamp")
USUAL = {"timestamp": "1970-01-01T00:00:00Z", "placement": "placement", "key": checks.ONLY_KEY}
"""Values of optional columns: no estimate depends on them; without keys, all rows have the same key."""


class LogFile(NamedTuple):
    """A file of a log, its format, and its column for each column of the schema."""

    path: File | Frame
    format: str
    columns: dict[str, str]
    names: tuple[str, ...] = ()

    @property
    def looked_into(self) -> dict[str, str]:
        """Columns by which rows are compared with earlier rows, for data warnings."""
        apart = {"placement"} if self.columns.get(SEGMENT) == self.columns.get("placement") else set()
        return {name: self.columns[name] for name in LOOKED_INTO & self.columns.keys() - apart}

    def read(self, columns: Sequence[str], rows: int) -> Iterator[Raw]:
        """Yield columns of the file, by their names in it, in batches of ``rows`` rows.

        Raises
        ------
        LogError
            If the file cannot be read, or several columns have the same name.
        """
        if twice := next((name for name in columns if self.names.count(name) > 1), None):
            remedy = "each column needs a name of its own; leave one out"
            raise LogError(f"{self.path}: {twice}: {self.names.count(twice)} columns are called so; {remedy}")
        with reading(self.path, self.format):
            if isinstance(self.path, Frame):
                yield from read_frame(self.path, columns, rows)
            else:
                yield from FORMATS[self.format].read(self.path, columns, rows)


class LogReader:
    """A click log; iteration yields record batches of valid rows, and fails if no row is valid.

    It can be iterated several times and opens its files again each time. It holds one batch in
    memory (and at most a row group of Parquet, or 32 MiB of CSV read ahead), whatever the log's
    size. Returned by :func:`read_log` and :func:`read_open_bandit`.

    Parameters
    ----------
    files : sequence of path, or of Frame
        Read one after the other.
    format : str, optional
        ``"parquet"``, ``"csv"`` or ``"json"``; by default that of each file's suffix.
    columns, constants, strict, batch_rows, time_unit
        As for :func:`read_log`.

    Attributes
    ----------
    report : LogReport
        Counts of valid and rejected rows of the latest iteration, so far.
    files, constants, strict, batch_rows, time_unit
        The validated parameters.
    items : ItemTable or None
        Vectors of the log's items.
    """

    items: Any = None
    unrewarded = False
    rewards = ""

    def __init__(
        self,
        files: Sequence[File | Frame],
        *,
        format: str | None = None,
        columns: Mapping[str, Any] | None = None,
        constants: Mapping[str, Any] | None = None,
        strict: bool = False,
        batch_rows: int = BATCH_ROWS,
        time_unit: str | None = None,
    ) -> None:
        self.report = LogReport()
        self.strict = checks.flag("strict", strict)
        self.batch_rows = checks.integer("batch_rows", batch_rows, 1)
        self.time_unit = checked_unit(time_unit)
        check_columns(columns or {})
        renamed = dict(columns or {})
        context = None if isinstance(renamed.get(CONTEXT), str) else renamed.pop(CONTEXT, None)
        check_columns(constants or {}, field="constants")
        self.constants = _constants(USUAL | dict(constants or {}), self.time_unit)
        self._made_of: list[str] = []
        self._structs = False
        self._schema: Declared | None = None
        self.files = [self._planned(path, format, renamed) for path in files]
        keyless = [file for file in self.files if file.names and "key" not in file.columns]
        self.one_key = bool(keyless) and "key" not in (constants or {})
        if self.one_key and any("key" in file.columns for file in self.files):
            raise LogError(absent(str(keyless[0].path), {"key": "key"}, keyless[0].names))
        self.rewards = next((rewards_of(file.path) for file in self.files if file.format == "parquet"), "")
        # For the whole log: a part without rewards may belong to a log that has some.
        named = [file.columns for file in self.files if file.names]
        self.unrewarded = bool(named) and not any("reward" in {*self.constants, *each} for each in named)
        if context is not None:
            self._take_context(context)

    def __repr__(self) -> str:
        shown = ", ".join(str(file.path) for file in self.files[:3])
        more = f" and {len(self.files) - 3} more" if len(self.files) > 3 else ""
        context = f"; context of {', '.join(self._made_of)}" if self._made_of else ""
        counted = f"; {self.report.kept:,} of {self.report.read:,} rows kept" if self.report.read else ""
        return f"<click log: {shown}{more}{context}{counted}>"

    def _repr_html_(self) -> str:
        columns = self.files[0].columns if self.files else {}
        return html_table([{"click log": repr(self)} | columns])

    def _planned(self, path: File | Frame, format: str | None, renamed: dict[str, str]) -> LogFile:
        file = file_at(path, format)
        if file.format == MEMORY and not file.names:
            return file  # without batches; of a log without any row nothing is missing
        sparse = file.format != MEMORY and FORMATS[file.format].sparse
        columns = mapped(file.names, renamed, self.constants, str(path), sparse=sparse)
        return file._replace(columns=columns)

    def _take_context(self, given: Any) -> None:
        """Build contexts of the files' columns: of numbers, or of fields that a schema declares."""
        if isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
            names, self._schema = list(given), None
        else:
            self._schema = declared("columns['context']", given)
            names = [name for name, _ in self._schema]
        self.files = [_besides(file, CONTEXT, names) for file in self.without_context().files]
        self._made_of = names

    def with_context(self, schema: Declared) -> LogReader:
        """Return the log with contexts built of its columns by a schema; unchanged if it has contexts.

        If the log names the same columns for its context, without a schema, this schema is applied to them.

        Raises
        ------
        LogError
            If a file lacks a column, or the log was opened with other fields.
        """
        if not schema or self._schema == schema:
            return self
        names, made_of = {name for name, _ in schema}, set(self._made_of)
        if self._schema is not None or (made_of != names and made_of & names):
            theirs = schema_text(self._schema) if self._schema else f"context of {', '.join(self._made_of)}"
            remedy = "make both alike, or say no context of the log, so that the policy's is taken"
            raise LogError(f"context: the policy reads {schema_text(schema)}, the log {theirs}; {remedy}")
        if not made_of and all(CONTEXT in file.columns for file in self.files):
            made_of = {file.columns[CONTEXT] for file in self.files}
        found = copy.copy(self)
        if not self._made_of and isinstance(self._first_of(made_of), dict):
            found._structs, found._schema = True, schema
            return found
        if made_of and made_of != names:
            return self
        found._take_context(schema)
        return found

    @property
    def contexts(self) -> list[str]:
        """Columns of which contexts are built; of a stream, only columns named when it was opened."""
        column = self.files[0].columns.get(CONTEXT) if self.files and not self.once else None
        return self._made_of or ([column] if column and self.holds_lists(column) else [])

    def without_context(self) -> LogReader:
        """Return the log without its contexts, which then are neither read nor checked."""
        found = copy.copy(self)
        parts = {CONTEXT, *self.made_of}
        found._made_of, found._schema, found._structs = [], None, False
        found.files = [
            file._replace(
                columns={ours: theirs for ours, theirs in file.columns.items() if ours not in parts}
            )
            for file in self.files
        ]
        return found

    def schema_of(self, columns: Sequence[str], first: int = FIRST) -> dict[str, str | list[str]]:
        """Return the schema that the first rows of the columns suggest; see :func:`tacit.schema_of`.

        The same log always gives the same schema. Texts of CSV are read as numbers or booleans if possible.

        Raises
        ------
        LogError
            If a file has no such column.
        InvalidValue
            If a column is empty in all rows, or has values that no schema can describe.

        Examples
        --------
        >>> log = {"key": ["a"] * 10, "arm": ["film"] * 10, "device": ["ios", "web"] * 5, "age": range(10)}
        >>> LogReader([Frame(log)], constants={"arms": ["film"]}).schema_of(["device", "age"])
        {'device': ['ios', 'web'], 'age': 'number'}
        """
        return schema_of(list(islice(self._rows_of(columns, first), first)), first)

    def holds_lists(self, column: str) -> bool:
        """True if a column's first value is a list, or text of a JSON list: a ready-made context."""
        first = self._first_of({column})
        return isinstance(first, list) or (isinstance(first, str) and first.lstrip().startswith("["))

    def _first_of(self, columns: Collection[str]) -> Any:
        """Return the first value of a single column; None for several columns, a stream, or no rows."""
        # Layouts of other systems have readers of their own.
        foreign = any(file.format not in {*FORMATS, MEMORY} for file in self.files)
        if len(columns) != 1 or self.once or foreign:
            return None
        (first,) = next(iter(self._rows_of(list(columns), 1)), {"": None}).values()
        return first

    def _rows_of(self, columns: Sequence[str], at_once: int) -> Iterator[dict[str, Any]]:
        for file in self.files:
            theirs = [_theirs(file, CONTEXT, name) for name in columns]
            for raw in file.read(list(dict.fromkeys(theirs)), at_once):
                lists = [as_said(raw.columns[name], file.format) for name in theirs]
                yield from (dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True))

    @property
    def numbered(self) -> bool:
        """True if the log does not name its decisions."""
        named = all(NUMBERED in file.columns for file in self.files)
        return not named and NUMBERED not in self.constants

    @property
    def once(self) -> bool:
        """True if the log can be read only once."""
        return any(isinstance(file.path, Frame) and file.path.once for file in self.files)

    def by(self, column: str) -> LogReader:
        """Return the log with a column of its files as the additional column ``segment``.

        Parameters
        ----------
        column : str
            Its name in the files or in the schema.

        Raises
        ------
        InvalidValue
            If it is no text.
        LogError
            If a file has no such column.
        """
        if not isinstance(column, str):
            raise InvalidValue("by", column, "give the name of a column, such as 'device'")
        files = [_segmented(file, column) for file in self.files]
        if files == self.files:
            return self
        found = copy.copy(self)
        found.report = LogReport()
        found.files = files
        return found

    def with_columns(self, columns: Sequence[str], cluster: str | None = None) -> LogReader:
        """Return the log with additional columns of its files, unchanged.

        Errors about the column ``cluster`` name the option ``cluster``.

        Raises
        ------
        LogError
            If a file has no such column.
        """
        files = [_besides(file, OWN.strip(), columns, cluster) for file in self.files]
        if files == self.files:
            return self
        found = copy.copy(self)
        found.files = files
        return found

    @property
    def made_of(self) -> list[str]:
        """Batch columns of which contexts are built; empty if the context is one column."""
        return [CONTEXT] if self._structs else [f"{CONTEXT} {name}" for name in self._made_of]

    def with_made(self, raw: Raw) -> Raw:
        """Return the rows with contexts built of their columns, if the log builds contexts."""
        if self._structs and self._schema:
            return _of_structs(raw, self._schema)
        return _with_contexts(raw, self._made_of, self._schema) if self._made_of else raw

    def with_features(self, columns: Sequence[str]) -> LogReader:
        """Return the log with additional columns of its files as numeric features.

        Raises
        ------
        LogError
            If a file has no such column.
        """
        found = copy.copy(self)
        found.files = [_besides(file, FEATURE.strip(), columns) for file in self.files]
        return found

    def __iter__(self) -> Iterator[Any]:
        for chunk in self.chunks():
            yield chunk.batch
        if self.report.read:
            self.report.check_kept()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the batches, each with its file and its row numbers in that file.

        Raises
        ------
        LogError
            If a file cannot be read, or under ``strict`` at the first invalid row.
        """
        self.report = report = LogReport(one_key=self.one_key, rewards=self.rewards)
        seen = SeenRows()
        for file in self.files:
            for raw in file.read(list(dict.fromkeys(file.columns.values())), self.batch_rows):
                columns = completed(raw, file.columns, self.constants)
                chunk = self.checked(self.with_made(columns), file, report)
                seen.add({name: chunk.batch[name] for name in file.looked_into}, *chunk[1:])
                yield chunk
        report.doubt(seen.doubts())
        report.rewards, report.lists = seen.said_of(report.rewards), seen.lists

    def checked(self, raw: Raw, file: LogFile, report: LogReport) -> Chunk:
        """Return the valid rows of a file; count all rows in ``report``."""
        source, unit = str(file.path), self.time_unit
        if SEGMENT in raw.columns and _nested(raw.columns[SEGMENT]):
            raise LogError(
                f"{source}: by: {file.columns[SEGMENT]!r} has lists for values; give a column of "
                "text or numbers"
            )
        return checked(raw, source, report, strict=self.strict, time_unit=unit)


def file_at(path: File | Frame, format: str | None = None) -> LogFile:
    """Open a file or a table in memory; return it with the names of its columns.

    Raises
    ------
    InvalidValue
        If there is no such format.
    LogError
        If the file cannot be read.
    """
    if isinstance(path, Frame):
        if format is not None:
            raise InvalidValue("format", format, "leave it out: the log is in memory")
        with reading(path, MEMORY):
            return LogFile(path, MEMORY, {}, tuple(path.names))
    known = format_of(path, format)
    with reading(path, known):
        return LogFile(path, known, {}, tuple(FORMATS[known].names(path)))


@contextmanager
def reading(path: File | Frame, format: str) -> Iterator[None]:
    """Raise errors of reading a file as :class:`~tacit.errors.LogError` that names the file."""
    try:
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        remedy = "mend it, or say what it is with format= (--format)"
        if isinstance(error, UnicodeDecodeError):
            remedy = "it is not in UTF-8: save it in UTF-8"
        elif isinstance(error, FileNotFoundError):
            remedy = "give one that is there, with its path from here or from the root"
        elif format == MEMORY:
            remedy = "give a table, such as a data frame or a dict of arrays"
        elif isinstance(path, Path) and path.is_file() and not path.stat().st_size:
            raise LogError(f"{path}: it is empty; give one that has rows") from None
        raise LogError(f"{path}: cannot be read as {format}: {error}; {remedy}") from error


def check_columns(
    given: Any,
    known: Collection[str] = ALLOWED,
    what: str = "a click log",
    *,
    field: str = "columns",
    more: str = "",
) -> None:
    """Refuse unknown column names, and columns that have two exclusive roles.

    Raises
    ------
    InvalidValue
    """
    if not isinstance(given, Mapping):
        raise InvalidValue(field, given, "give a dict from our names to those of the log, {'arm': 'banner'}")
    for name, theirs in given.items():
        if name not in known:
            turned = field == "columns" and isinstance(theirs, str) and theirs in known
            hint = f"did you mean {{{theirs!r}: {name!r}}}? " if turned else ""
            remedy = f"{hint}{what} has the columns {', '.join(known)}{meant(name, known)}{more}"
            raise InvalidValue(field, name, remedy)
    served = [(given.get(ours, ours), ours) for ours in APART if ours in known and field == "columns"]
    for (theirs, one), (same, other) in combinations(served, 2):
        if theirs == same and (one, other) != ("arm", "position"):  # arms may be places
            remedy = f"the column serves as {other} already; give one that holds the {one}, or leave it out"
            raise InvalidValue(f"{field}[{one!r}]", theirs, remedy)


def _constants(given: Mapping[str, Any], time_unit: str | None) -> dict[str, Any]:
    """Return each constant as a scalar of its column's type."""
    scalars = {}
    for name, value in given.items():
        times = EpochTimes(time_unit, {})
        scalar = converted([value], SCHEMA.field(name).type, times)[0]
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
    """Return the column of a source for each column of the schema.

    Raises
    ------
    LogError
        If a column is missing that the schema needs.
    """
    mapped: dict[str, str] = {}
    missing: dict[str, str] = {}
    for field in SCHEMA:
        name = renamed.get(field.name, field.name)
        fixed = field.name in constants
        # A file without any row may lack columns.
        if name in names or (sparse and (field.nullable or not names) and not fixed):
            mapped[field.name] = name
        elif field.name in renamed or not (field.nullable or fixed or field.name == NUMBERED):
            missing[field.name] = name
    if missing:
        raise LogError(absent(source, missing, names))
    return mapped


def absent(source: str, missing: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the error message for missing columns: how to name them or give constants."""
    ours = next(iter(missing))
    every = "; where every row offers all arms, give arms=[...] (--arms film,song), or arms='shown' (--arms "
    every += "shown) if the log shows all of them"
    constant = f", or give it a value with constants={{{ours!r}: ...}} (--constant {ours}=...)"
    return f"{source}: {unnamed(missing, names)}{constant}{every * ('arms' in missing)}"


def no_column(field: str, name: str, names: Iterable[str], *, also: Iterable[str] = (), too: str = "") -> str:
    """Return the error message for a column that does not exist, with similar names."""
    names = list(names)
    near = meant(name, [*names, *also])
    columns = ", ".join(map(repr, names))
    return f"{field}: there is no column {name!r}{near}{too}; the columns are {columns}{header_hint(names)}"


def unnamed(absent: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the part of the error message that names missing columns and how to map them."""
    ours, *others = absent
    too = f" (and none for {', '.join(others)})" if others else ""
    given = ", ".join(f"{name!r}: ..." for name in absent)
    typed = " ".join(f"--column {name}=..." for name in absent)
    said = no_column(ours, absent[ours], names, too=too)
    return f"{said}; say which one to take with columns={{{given}}} ({typed})"


def _nested(values: Any) -> bool:
    if isinstance(values, list):
        return any(isinstance(value, list | dict) for value in values)
    return bool(pa.types.is_nested(values.type))


def _segmented(file: LogFile, column: str) -> LogFile:
    theirs = _theirs(file, "by", column)
    _refuse_roles(file, "by", [theirs], ["reward", "arm"])
    return file._replace(columns=file.columns | {SEGMENT: theirs})


def _besides(file: LogFile, what: str, columns: Sequence[str], cluster: str | None = None) -> LogFile:
    """Return a file with additional columns, as features or parts of contexts."""
    fields = {column: "cluster" if column == cluster else what for column in columns}
    added = {f"{what} {column}": _theirs(file, field, column) for column, field in fields.items()}
    _refuse_roles(file, what, added.values(), () if what == OWN.strip() else OUTCOME)
    return file._replace(columns=file.columns | added)


def _refuse_roles(file: LogFile, field: str, columns: Collection[str], roles: Collection[str]) -> None:
    """Raise LogError if one of the columns has one of the given roles already."""
    for ours in roles:
        if (theirs := file.columns.get(ours)) in columns:
            remedy = "leave it out: it is known only with the decision, or after it"
            if (field, ours) == ("by", "arm"):
                remedy = "for an estimate per arm weigh the log once for each: a policy that always shows it"
            raise LogError(f"{file.path}: {field}: {theirs!r} is the log's {ours}; {remedy}")


def _with_contexts(raw: Raw, names: Sequence[str], schema: Declared | None) -> Raw:
    """Return the rows with contexts built of their columns: as numbers, or encoded by a schema.

    Raises
    ------
    LogError
        If a value does not fit its field.
    """
    values = {name: raw.columns.pop(f"{CONTEXT} {name}") for name in names}
    if schema is None:
        columns = [_all_numbers(raw, name, column) for name, column in values.items()]
        rows = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    else:
        lists = [_held(values[name], holds) for name, holds in schema]
        return _encoded(raw, schema, [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)])
    return raw._replace(columns=raw.columns | {CONTEXT: pa.array(list(rows), pa.list_(pa.float64()))})


def _of_structs(raw: Raw, schema: Declared) -> Raw:
    """Return the rows with contexts, which are structs, encoded by a schema; other fields are ignored."""
    column, names = raw.columns[CONTEXT], [name for name, _ in schema]
    given = column if isinstance(column, list) else column.to_pylist()
    return _encoded(raw, schema, [{name: (row or {}).get(name) for name in names} for row in given])


def _encoded(raw: Raw, schema: Declared, each: list[dict[str, Any]]) -> Raw:
    try:
        rows = Encoder(schema).rows(each) if each else []
    except InvalidValue as error:
        raise LogError(f"rows {raw.rows[0]} to {raw.rows[-1]}: {error}") from error
    return raw._replace(columns=raw.columns | {CONTEXT: pa.array(list(rows), pa.list_(pa.float64()))})


def _all_numbers(raw: Raw, name: str, column: Any) -> Any:
    """Return a column as numbers, null for other values; refuse a column without any number."""
    numbers = converted(column, pa.float64())
    if len(numbers) and numbers.null_count == len(numbers):
        given = [value for value in as_said(column, "") if value is not None]
        raise LogError(
            f"rows {raw.rows[0]} to {raw.rows[-1]}: context: {name} holds no numbers but {given[:1]}; say "
            f"what it holds by a schema, columns={{'context': {{{name!r}: 'category', …}}}}, or have it "
            "learned by tacit.schema_of"
        )
    return numbers


def _held(column: Any, holds: Any) -> list[Any]:
    """Return a column's values for a field of a schema; texts, as of CSV, are parsed to the field's type."""
    if isinstance(column, list):
        return column
    given: list[Any] = column.to_pylist()
    if not is_text(column.type):
        return given
    read = converted(column, pa.float64() if holds in (NUMBER, SIGNAL) else pa.string()).to_pylist()
    if holds == BOOLEAN:
        read = [TRUTHS.get(str(text).lower(), text) for text in read]
    # Values that cannot be parsed stay unchanged, so that the error shows them.
    return [before if after is None else after for before, after in zip(given, read, strict=True)]


def _theirs(file: LogFile, field: str, column: str) -> str:
    theirs = column if column in file.names else file.columns.get(column)
    if theirs is None:
        said = no_column(field, column, file.names, also=file.columns)
        raise LogError(f"{file.path}: {said}; give one of these")
    return theirs


def completed(raw: Raw, columns: Mapping[str, str], constants: Mapping[str, Any]) -> Raw:
    """Return rows with all columns of the schema; missing columns are constants or null."""
    rows = len(raw.rows)
    complete: dict[str, Any] = {}
    for field in SCHEMA:
        if field.name in columns:
            complete[field.name] = without_nothing(raw.columns[columns[field.name]], field.type)
        elif field.name in constants and rows:
            complete[field.name] = pa.repeat(constants[field.name], rows)
        elif field.name == NUMBERED:
            complete[field.name] = numbered(raw.rows)
        else:
            complete[field.name] = pa.nulls(rows, field.type)
    besides = {name: raw.columns[columns[name]] for name in columns if name not in complete}
    return raw._replace(columns=complete | besides)


def numbered(rows: Ints) -> Any:
    """Return the row numbers as decision ids, as text."""
    return pa.array(rows).cast(pa.string())
