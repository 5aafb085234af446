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
from datetime import UTC, datetime
from functools import partial
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core import checks
from tacit.core.arrow_columns import find_root, list_nested_names
from tacit.core.refusals import Refusal, refuse_options
from tacit.core.reward_range import UNIT_RANGE
from tacit.core.text import html_table
from tacit.errors import InvalidValue, LogError, suggest_name
from tacit.frames import frame_batches, frame_names, frame_paths, is_frame
from tacit.logs.data_warnings import DECISION, ROW, RowHistory
from tacit.logs.formats import (
    BOOLEAN_TEXTS,
    FORMATS,
    File,
    detect_format,
    find_folder_values,
    header_hint,
    number_rows,
    parse_values,
    read_rewards_note,
)
from tacit.logs.rows import (
    MAX_REJECTED,
    TEXT_COLUMNS,
    Chunk,
    LogReport,
    RawRows,
    check_rows,
    convert_values,
    is_text,
    nulls_for_missing,
    repeat_value,
)
from tacit.logs.schema import ALLOWED, EXTRA, FEATURE, SCHEMA, SEGMENT, EpochTimes
from tacit.logs.time_texts import find_date_orders
from tacit.logs.time_units import check_time_unit
from tacit.policies.context import (
    BOOLEAN,
    FIRST_ROWS,
    NUMBER,
    SIGNAL,
    Encoder,
    Schema,
    infer_schema,
    normalize_schema,
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
    is_stream : bool
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
        """Store a table or iterable of batches; raise InvalidValue if ``data`` is neither."""
        if not is_frame(data) and not isinstance(data, Iterable):
            lazy = ": collect it first, as by log.collect()" if hasattr(data, "collect") else ""
            raise InvalidValue("log", data, f"give a path, a LogReader, or a table in memory{lazy}")
        self.is_stream = isinstance(data, pa.RecordBatchReader) or (not is_frame(data) and iter(data) is data)
        self._data = data
        self._is_consumed = False

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> list[str]:
        """Names of the columns, and dotted paths of the fields of structs.

        Of record batches it reads the first one, which a stream still yields later.
        """
        if is_frame(self._data):
            return [*frame_names(self._data), *frame_paths(self._data)]
        batches = iter(self._data)
        first = next(batches, None)
        if self.is_stream:
            self._data = chain(() if first is None else (first,), batches)
        return [] if first is None else list_nested_names(_check_batch(first).schema)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the named columns as record batches of at most ``rows`` rows.

        For the path of a struct's field the whole struct is yielded.

        Raises
        ------
        LogError
            If a stream has been read before, or Arrow has no type for a column.
        InvalidValue
            If the log is an iterable of anything else than record batches.
        """
        if self.is_stream and self._is_consumed:
            remedy = "make a table of it, such as pyarrow.Table.from_batches(batches)"
            raise LogError(f"log: it is a stream, and was read to its end; {remedy}")
        self._is_consumed = True
        try:
            if is_frame(self._data):
                top_names = frame_names(self._data)
                frame_roots = list(dict.fromkeys(find_root(name, top_names) for name in names))
                yield from frame_batches(self._data, frame_roots, rows)
                return
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise LogError(
                f"log: its columns cannot be read: {'; '.join(map(str, error.args))}; give all "
                "columns as many values, and those of a column one type, such as by astype(str)"
            ) from error
        for batch in self._data:
            for start in range(0, len(_check_batch(batch)), rows):
                columns = dict.fromkeys(find_root(name, batch.schema.names) for name in names)
                yield batch.slice(start, rows).select(list(columns))


def _check_batch(batch: Any) -> Any:
    """Return a record batch unchanged; raise InvalidValue for anything else."""
    if isinstance(batch, Mapping):
        remedy = "make a table of such rows, by pyarrow.Table.from_pylist(log)"
        raise InvalidValue("log", [batch], remedy)
    if not isinstance(batch, pa.RecordBatch):
        remedy = "give a path, a table in memory, such as a data frame or a dict of arrays, or record batches"
        raise InvalidValue("log", batch, remedy)
    return batch


def _decode_texts(batch: Any) -> Any:
    """Return a record batch with its dictionary-encoded texts, such as categories, as plain text."""
    for index, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type) and field.type.value_type == pa.string():
            batch = batch.set_column(index, field.name, batch.column(index).cast(pa.string()))
    return batch


# ---- Files and tables as validated record batches

BATCH_ROWS = 65_536
REJECT, CLIP = "reject", "clip"
"""Treatments of rewards outside the range."""
MEMORY = "table"
"""Format of a log in memory."""
DECISION_ID = "decision_id"
"""Column of decision ids; without it each row is a decision, named by the row's number."""
CONTEXT = "context"
DISTINCT_ROLES = ("team", "click", "outcome", "left", "right", "arm", "reward", "propensity", "position")
"""Roles of which a column can have only one."""
OUTCOME_COLUMNS = ("arm", "reward", "propensity", "position_propensity", "decision_id", "timestamp")
DEFAULT_CONSTANTS = {
    "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
    "placement": "placement",
    "key": checks.ONLY_KEY,
}
"""Values of optional columns: no estimate depends on them; without keys, all rows have the same key."""


class LogFile(NamedTuple):
    """A file of a log, or a log in memory.

    ``columns`` maps the schema's names to those in the file, ``names`` are all of the file's columns, and
    ``folder_values`` the columns whose only value is in the names of its folders, as in ``date=2024-05-01``.
    """

    path: File | Frame
    format: str
    columns: dict[str, str]
    names: tuple[str, ...] = ()
    folder_values: Mapping[str, str | None] = {}

    @property
    def history_columns(self) -> dict[str, str]:
        """The file's columns by which repeated rows are detected, by their names in the schema.

        A placement that is also the segment is left out.
        """
        excluded = {"placement"} if self.columns.get(SEGMENT) == self.columns.get("placement") else set()
        names = ("placement", *(DECISION if DECISION[0] in self.columns else ROW))
        return {name: self.columns[name] for name in names if name in self.columns.keys() - excluded}

    def select_stored(self, columns: Iterable[str]) -> list[str]:
        """Return the distinct columns of ``columns`` that the file stores, without those of its folders."""
        return [name for name in dict.fromkeys(columns) if name not in self.folder_values]

    def add_folder_values(self, raw: RawRows, columns: Iterable[str]) -> RawRows:
        """Return rows with the columns of the file's folders among ``columns``, the same in every row."""
        values = {name: self.folder_values[name] for name in columns if name in self.folder_values}
        scalars = {name: pa.scalar(value, pa.string()) for name, value in values.items()}
        added = {name: repeat_value(scalar, len(raw.rows)) for name, scalar in scalars.items()}
        return raw._replace(columns=raw.columns | added) if added else raw

    def number_rows(
        self, batches: Iterable[Any], columns: Sequence[str], first: int = 1
    ) -> Iterator[RawRows]:
        """Yield the given batches of the file as raw rows with these columns, numbered from ``first``."""
        for raw in number_rows(batches, self.select_stored(columns), first):
            yield self.add_folder_values(raw, columns)

    def read(self, columns: Sequence[str], rows: int) -> Iterator[RawRows]:
        """Yield columns of the file, by their names in it, in batches of at most ``rows`` rows.

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
                yield from number_rows(map(_decode_texts, self.path.batches(columns, rows)), columns)
            else:
                for raw in FORMATS[self.format].read(self.path, self.select_stored(columns), rows):
                    yield self.add_folder_values(raw, columns)


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
    most_rejected : float
        Largest share of rejected rows for which something is concluded from the log.
    reward_range : RewardRange
        The lowest and the highest reward there can be.
    outside : {"reject", "clip"}
        Whether rows with other rewards are rejected, or their reward counts as the nearest end.
    positions_from : int
        The position at the top of the log's lists, which is 0 in batches.
    """

    items: Any = None
    reward_range = UNIT_RANGE
    outside = REJECT
    positions_from = 0
    most_rejected = MAX_REJECTED
    lacks_rewards = False
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
        """Validate the options, open each file for its column names, and map them to the schema.

        Raises LogError if a needed column is missing, InvalidValue if an option is wrong. No row is read.
        """
        self.report = LogReport()
        self.strict = checks.flag("strict", strict)
        self.batch_rows = checks.integer("batch_rows", batch_rows, 1)
        self.time_unit = check_time_unit(time_unit)
        check_columns(columns or {})
        column_names = dict(columns or {})
        # A single name is a column of ready-made contexts; a list or a schema names columns of their parts.
        context = None if isinstance(column_names.get(CONTEXT), str) else column_names.pop(CONTEXT, None)
        check_columns(constants or {}, field="constants")
        self._constant_names = frozenset(constants or ())
        self.constants = _convert_constants(DEFAULT_CONSTANTS | dict(constants or {}), self.time_unit)
        self._context_names: list[str] = []
        self._has_structs = False
        self._date_orders: dict[str, set[str]] = {}
        self._schema: Schema | None = None
        self.files = [self._open_file(path, format, column_names) for path in files]
        files_without_key = [file for file in self.files if file.names and "key" not in file.columns]
        self.one_key = bool(files_without_key) and "key" not in (constants or {})
        if self.one_key and any("key" in file.columns for file in self.files):
            raise LogError(
                missing_columns_error(
                    str(files_without_key[0].path), {"key": "key"}, files_without_key[0].names
                )
            )
        self.rewards = next(
            (read_rewards_note(file.path) for file in self.files if file.format == "parquet"), ""
        )
        # For the whole log: a part without rewards may belong to a log that has some.
        file_columns = [file.columns for file in self.files if file.names]
        lists_rewards = any("reward" in {*self.constants, *column_names} for column_names in file_columns)
        self.lacks_rewards = bool(file_columns) and not lists_rewards
        if context is not None:
            self._set_context(context)

    def __repr__(self) -> str:
        """Return files, columns of the context, and counts of rows read so far as text."""
        paths = ", ".join(str(file.path) for file in self.files[:3])
        rest = f" and {len(self.files) - 3} more" if len(self.files) > 3 else ""
        context = f"; context of {', '.join(self._context_names)}" if self._context_names else ""
        counts = f"; {self.report.kept:,} of {self.report.read:,} rows kept" if self.report.read else ""
        return f"<click log: {paths}{rest}{context}{counts}>"

    def _repr_html_(self) -> str:
        """Return a table of the columns for notebooks."""
        return html_table([{"click log": repr(self)} | (self.files[0].columns if self.files else {})])

    def _open_file(self, path: File | Frame, format: str | None, column_names: dict[str, str]) -> LogFile:
        """Return a file with its format, column names, and its column for each column of the schema.

        Raises LogError if a needed column is missing.
        """
        file = open_file(path, format)
        if file.format == MEMORY and not file.names:
            return file  # without batches; of a log without any row nothing is missing
        sparse = file.format != MEMORY and FORMATS[file.format].sparse
        columns = map_columns(file.names, column_names, self.constants, str(path), sparse=sparse)
        return file._replace(columns=columns)

    def _set_context(self, context: Any) -> None:
        """Set the columns from which this reader builds contexts, and replace ``files`` by files with them.

        ``context`` is a list of names of numeric columns, or a schema of fields. Raises LogError if a file
        has no such column.
        """
        if isinstance(context, Sequence) and all(isinstance(name, str) for name in context):
            names, self._schema = list(context), None
        else:
            self._schema = normalize_schema("columns['context']", context)
            names = [name for name, _ in self._schema]
        self.files = [_with_extra_columns(file, CONTEXT, names) for file in self.without_context().files]
        self._context_names = names

    def with_context(self, schema: Schema) -> LogReader:
        """Return a copy of the reader that builds contexts by the schema of a policy.

        The contexts come from the log's column of structs, from the columns that the log named for its
        context without a schema, or from columns with the names of the schema's fields. The reader itself is
        returned if the schema is empty or its own, and if its contexts come from a column of another name.

        Raises
        ------
        LogError
            If a file lacks a column, or the log was opened with another schema or only some of its fields.
        """
        if not schema or self._schema == schema:
            return self
        # Another schema, or a list of columns that has only some of the fields, contradicts the policy's.
        names, context_names = {name for name, _ in schema}, set(self._context_names)
        if self._schema is not None or (context_names != names and context_names & names):
            log_context = (
                schema_text(self._schema) if self._schema else f"context of {', '.join(self._context_names)}"
            )
            remedy = "make both alike, or say no context of the log, so that the policy's is taken"
            message = f"context: the policy reads {schema_text(schema)}, the log {log_context}; {remedy}"
            raise LogError(message)
        # Without named columns, contexts may be in one column: of structs, whose fields the schema names.
        if not context_names and all(CONTEXT in file.columns for file in self.files):
            context_names = {file.columns[CONTEXT] for file in self.files}
        reader = copy.copy(self)
        if not self._context_names and isinstance(self._find_first_value(context_names), dict):
            reader._has_structs, reader._schema = True, schema
            return reader
        if context_names and context_names != names:  # ready-made contexts of other columns
            return self
        reader._set_context(schema)
        return reader

    @property
    def contexts(self) -> list[str]:
        """Names of the columns of which contexts are built, or of a column of lists; empty without contexts.

        Of a stream, only columns named when it was opened count.
        """
        column = self.files[0].columns.get(CONTEXT) if self.files and not self.is_stream else None
        return self._context_names or ([column] if column and self.holds_lists(column) else [])

    def without_context(self) -> LogReader:
        """Return a copy of the reader that neither reads nor checks contexts."""
        reader = copy.copy(self)
        parts = {CONTEXT, *self.context_columns}
        reader._context_names, reader._schema, reader._has_structs = [], None, False
        reader.files = [
            file._replace(
                columns={ours: theirs for ours, theirs in file.columns.items() if ours not in parts}
            )
            for file in self.files
        ]
        return reader

    def infer_schema(self, columns: Sequence[str], first: int = FIRST_ROWS) -> dict[str, str | list[str]]:
        """Read the first rows of columns and return the schema that they suggest, by column.

        As :func:`tacit.infer_schema`; the same log always gives the same schema. Texts of CSV are read as
        numbers or booleans if possible.

        Raises
        ------
        LogError
            If a file has no such column.
        InvalidValue
            If a column is empty in all rows, or has values that no schema can describe.

        Examples
        --------
        >>> log = {"key": ["a"] * 10, "arm": ["film"] * 10, "device": ["ios", "web"] * 5, "age": range(10)}
        >>> LogReader([Frame(log)], constants={"arms": ["film"]}).infer_schema(["device", "age"])
        {'device': ['ios', 'web'], 'age': 'number'}
        """
        return infer_schema(list(islice(self._iter_dicts(columns, first), first)), first)

    def holds_lists(self, column: str) -> bool:
        """True if a column's first value is a list, or text of a JSON list: a ready-made context."""
        first = self._find_first_value({column})
        return isinstance(first, list) or (isinstance(first, str) and first.lstrip().startswith("["))

    def _find_first_value(self, columns: Collection[str]) -> Any:
        """Return the first value of a single column, or None.

        None for several columns, a stream, a log without rows, and a log in the layout of another system.
        """
        has_other_layout = any(file.format not in {*FORMATS, MEMORY} for file in self.files)
        if len(columns) != 1 or self.is_stream or has_other_layout:
            return None
        (first,) = next(iter(self._iter_dicts(list(columns), at_once=1)), {"": None}).values()
        return first

    def _iter_dicts(self, columns: Sequence[str], at_once: int) -> Iterator[dict[str, Any]]:
        """Yield each row of the log as a dict of the named columns, reading ``at_once`` rows at a time."""
        for file in self.files:
            source_columns = [_find_source_column(file, CONTEXT, name) for name in columns]
            for raw in file.read(list(dict.fromkeys(source_columns)), at_once):
                lists = [parse_values(raw.columns[name], file.format) for name in source_columns]
                yield from (dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True))

    @property
    def lacks_decision_ids(self) -> bool:
        """True if a file of the log has no column of decision ids and no constant replaces it."""
        named = all(DECISION_ID in file.columns for file in self.files)
        return not named and DECISION_ID not in self.constants

    @property
    def is_stream(self) -> bool:
        """True if the log can be read only once."""
        return any(isinstance(file.path, Frame) and file.path.is_stream for file in self.files)

    def with_segment(self, column: str) -> LogReader:
        """Return a copy of the reader that also reads a column of its files, as the column ``segment``.

        Parameters
        ----------
        column : str
            Its name in the files or in the schema.

        Raises
        ------
        InvalidValue
            If it is no text.
        LogError
            If a file has no such column, or it is the log's reward or arm.
        """
        if not isinstance(column, str):
            raise InvalidValue("by", column, "give the name of a column, such as 'device'")
        return self._with_files([_with_segment(file, column) for file in self.files])

    def with_columns(self, columns: Sequence[str], cluster: str | None = None) -> LogReader:
        """Return a copy of the reader that also reads these columns of its files, with unchanged values.

        In batches their names have the prefix "column ". Errors about the column ``cluster`` name the
        option ``cluster``.

        Raises
        ------
        LogError
            If a file has no such column.
        """
        files = [_with_extra_columns(file, EXTRA.strip(), columns, cluster) for file in self.files]
        return self._with_files(files)

    @property
    def context_columns(self) -> list[str]:
        """Names in batches of the columns of which contexts are built; empty if contexts are ready-made."""
        return [CONTEXT] if self._has_structs else [f"{CONTEXT} {name}" for name in self._context_names]

    def build_contexts(self, raw: RawRows) -> RawRows:
        """Return rows with contexts built of their columns; unchanged if the log does not build contexts.

        Raises LogError if a value does not fit its field.
        """
        if self._has_structs and self._schema:
            return _encode_structs(raw, self._schema)
        return _build_contexts(raw, self._context_names, self._schema) if self._context_names else raw

    def with_features(self, columns: Sequence[str]) -> LogReader:
        """Return a copy of the reader that also reads columns of its files as numeric features of the arm.

        In batches their names have the prefix "feature ". Outcomes such as the reward are refused.

        Raises
        ------
        LogError
            If a file has no such column.
        """
        return self._with_files([_with_extra_columns(file, FEATURE.strip(), columns) for file in self.files])

    def _with_files(self, files: list[LogFile]) -> Self:
        """Return a copy of the reader with these files and an empty report; itself if it has them already."""
        if files == self.files:
            return self
        reader = copy.copy(self)
        reader.report = LogReport()
        reader.files = files
        return reader

    def __iter__(self) -> Iterator[Any]:
        """Yield record batches of valid rows; at the end raise LogError if rows were read but none was valid.

        Replaces ``report``.
        """
        for chunk in self.chunks():
            yield chunk.batch
        if self.report.read:
            self.report.check_kept()

    def make_report(self, needs_propensity: bool = False) -> LogReport:
        """Return an empty report of the log, with its range of rewards and notes on keys and rewards.

        With ``needs_propensity``, rows without one are rejected, if others have one; not under ``strict``.
        """
        return LogReport(
            needs_propensity=needs_propensity and not self.strict,
            one_key=self.one_key,
            rewards=self.rewards,
            reward_range=self.reward_range,
            clips=self.outside == CLIP,
        )

    def chunks(self, names: Collection[str] | None = None, needs_propensity: bool = False) -> Iterator[Chunk]:
        """Read the log and yield its valid rows in batches, each with its file and its row numbers there.

        Replaces ``report``, counts rows in it, and adds data warnings at the end. Without ``names``, batches
        have all columns of the schema. With ``names``, they have at least these, texts may be dictionaries,
        and arms that all rows share are stored once. ``needs_propensity`` is as for :meth:`make_report`.

        Raises
        ------
        LogError
            If a file cannot be read, or under ``strict`` at the first invalid row.
        """
        self.report = report = self.make_report(needs_propensity)
        history = RowHistory()
        # Constants that the caller gave are checked, too, whichever columns are read.
        complete = SCHEMA.names if names is None else {*names, *self._constant_names}
        for file in self.files:
            for raw in file.read(list(dict.fromkeys(file.columns.values())), self.batch_rows):
                columns = complete_columns(raw, file.columns, self.constants, complete)
                chunk = self.check_rows(self.build_contexts(columns), file, report, names)
                history.add({name: chunk.batch[name] for name in file.history_columns}, *chunk[1:])
                yield chunk
        report.add_warnings(history.find_warnings())
        report.rewards, report.lists = history.filter_rewards_note(report.rewards), history.has_lists

    def shift_positions(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns with positions from 0; unchanged if they already are, or are all null."""
        if not self.positions_from or "position" not in columns:
            return columns
        positions = convert_values(columns["position"], SCHEMA.field("position").type)
        if not len(positions) or positions.null_count == len(positions):
            return columns
        return columns | {"position": pc.subtract(positions, pa.scalar(self.positions_from, pa.int32()))}

    def check_rows(
        self, raw: RawRows, file: LogFile, report: LogReport, names: Collection[str] | None
    ) -> Chunk:
        """Return the valid rows of a batch of a file; count all its rows in ``report``.

        With ``names``, texts of these columns become dictionaries; with None, all columns are plain.
        Raises LogError if segments are lists, or under ``strict`` for an invalid row.
        """
        source, unit = str(file.path), self.time_unit
        if SEGMENT in raw.columns and _is_nested(raw.columns[SEGMENT]):
            text = f"by: {file.columns[SEGMENT]!r} has lists for values; give a column of text or numbers"
            raise LogError(f"{source}: {text}")
        encoded = None if names is None else [name for name in TEXT_COLUMNS if name in names]
        raw = raw._replace(columns=self.shift_positions(raw.columns))
        orders = partial(self._find_date_orders, file)
        return check_rows(
            raw, source, report, strict=self.strict, time_unit=unit, encoded=encoded, find_date_orders=orders
        )

    def _find_date_orders(self, file: LogFile) -> set[str]:
        """Return whether dates of three numbers in a file begin with day or month, for which it is read once.

        The set of a stream is empty, and the same at each call, so that batches can add to it.
        """
        orders, column = self._date_orders.get(str(file.path)), file.columns.get("timestamp")
        if orders is None:
            orders = self._date_orders[str(file.path)] = set()
            if column is not None and not self.is_stream:
                for raw in file.read([column], self.batch_rows):
                    orders |= find_date_orders(convert_values(raw.columns[column], pa.string()))
        return orders


def open_file(path: File | Frame, format: str | None = None) -> LogFile:
    """Return a file, or table in memory, with its format and the names of its columns.

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
    format_name = detect_format(path, format)
    with reading(path, format_name):
        names = FORMATS[format_name].names(path)
    folder_values = {name: value for name, value in find_folder_values(path).items() if name not in names}
    return LogFile(path, format_name, {}, (*names, *folder_values), folder_values)


@contextmanager
def reading(path: File | Frame, format: str) -> Iterator[None]:
    """Turn errors of reading a file, in a ``with`` block, into LogError with the file's name and a remedy."""
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
    columns: Any,
    allowed: Collection[str] = ALLOWED,
    what: str = "a click log",
    *,
    field: str = "columns",
    more: str = "",
) -> None:
    """Raise InvalidValue for column names that ``allowed`` lacks, and for a column with two exclusive roles.

    ``field`` is the option's name; in messages ``what`` names the table, and ``more`` is the last part.

    Raises
    ------
    InvalidValue
    """
    refuse_options(list_column_refusals(columns, allowed, what, field, more))


def list_column_refusals(
    columns: Any, allowed: Collection[str], what: str, field: str, more: str
) -> Iterator[Refusal]:
    """Yield the rules for a dict of columns or constants, each as a Refusal that says whether it is broken.

    The parameters have the meaning that they have in :func:`check_columns`.
    """
    remedy = "give a dict from our names to those of the log, {'arm': 'banner'}"
    yield Refusal(field, not isinstance(columns, Mapping), remedy, columns)
    unknown = [(name, column) for name, column in columns.items() if name not in allowed]
    for name, column in unknown:
        is_inverted = field == "columns" and isinstance(column, str) and column in allowed
        hint = f"did you mean {{{column!r}: {name!r}}}? " if is_inverted else ""
        remedy = f"{hint}{what} has the columns {', '.join(allowed)}{suggest_name(name, allowed)}{more}"
        yield Refusal(field, True, remedy, name)
    roles = [ours for ours in DISTINCT_ROLES if ours in allowed and field == "columns"]
    conflicts = [
        (role, taken_role)
        for role, taken_role in combinations(roles, 2)
        if columns.get(role, role) == columns.get(taken_role, taken_role)
    ]
    for role, taken_role in conflicts:
        remedy = f"the column serves as {taken_role} already; give one that holds the {role}, or leave it out"
        is_wrong = (role, taken_role) != ("arm", "position")  # arms may be positions
        yield Refusal(f"{field}[{role!r}]", is_wrong, remedy, columns.get(role, role))


def _convert_constants(constants: Mapping[str, Any], time_unit: str | None) -> dict[str, Any]:
    """Return each constant as an Arrow scalar of its column's type; raise InvalidValue if it does not fit."""
    scalars = {}
    for name, value in constants.items():
        scalar = convert_values([value], SCHEMA.field(name).type, EpochTimes(time_unit, {}))[0]
        if not scalar.is_valid:
            raise InvalidValue(f"constants[{name}]", value, f"give {ALLOWED[name]}")
        scalars[name] = scalar
    return scalars


def map_columns(
    names: Sequence[str],
    column_names: Mapping[str, str],
    constants: Mapping[str, Any],
    source: str,
    *,
    sparse: bool = False,
) -> dict[str, str]:
    """Return the source's column for each column of the schema that it has.

    ``names`` are the source's columns, ``column_names`` the renamed ones; columns with a constant may be
    missing. With ``sparse``, nullable columns count as present even if they are not among the names.

    Raises
    ------
    LogError
        If a column is missing that the schema needs.
    """
    columns: dict[str, str] = {}
    missing: dict[str, str] = {}
    for field in SCHEMA:
        name = column_names.get(field.name, field.name)
        is_constant = field.name in constants
        # A file without any row may lack columns.
        if name in names or (sparse and (field.nullable or not names) and not is_constant):
            columns[field.name] = name
        # A column that the caller named must be there; others may be missing if something replaces them.
        elif field.name in column_names or not (field.nullable or is_constant or field.name == DECISION_ID):
            missing[field.name] = name
    if missing:
        raise LogError(missing_columns_error(source, missing, names))
    return columns


def missing_columns_error(source: str, missing: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the text of an error on missing columns, with advice to name them or give constants.

    ``missing`` maps the schema's names to the names that were looked for among ``names``.
    """
    column = next(iter(missing))
    arms_hint = (
        "; where every row offers all arms, give arms=[...] (--arms film,song), or arms='shown' (--arms "
    )
    arms_hint += "shown) if the log shows all of them"
    constant = f", or give it a value with constants={{{column!r}: ...}} (--constant {column}=...)"
    return f"{source}: {missing_columns_text(missing, names)}{constant}{arms_hint * ('arms' in missing)}"


def no_column_error(
    field: str, name: str, names: Iterable[str], *, also: Iterable[str] = (), too: str = ""
) -> str:
    """Return the text of an error that there is no column ``name``, with similar and existing names.

    It begins with ``field``, the option or column that needs it. Names of ``also`` are suggested, too, but
    not listed; ``too`` is text behind the suggestion.
    """
    names = list(names)
    hint = suggest_name(name, [*names, *also])
    columns = ", ".join(map(repr, names))
    return f"{field}: there is no column {name!r}{hint}{too}; the columns are {columns}{header_hint(names)}"


def missing_columns_text(missing: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the text of an error that names missing columns and says how to map them to existing ones.

    ``missing`` maps the schema's names to the names that were looked for among ``names``.
    """
    column, *more = missing
    too = f" (and none for {', '.join(more)})" if more else ""
    mapping = ", ".join(f"{name!r}: ..." for name in missing)
    options = " ".join(f"--column {name}=..." for name in missing)
    message = no_column_error(column, missing[column], names, too=too)
    return f"{message}; say which one to take with columns={{{mapping}}} ({options})"


def _is_nested(values: Any) -> bool:
    """True if a column holds lists or objects."""
    if isinstance(values, list):
        return any(isinstance(value, list | dict) for value in values)
    return bool(pa.types.is_nested(values.type))


def _with_segment(file: LogFile, column: str) -> LogFile:
    """Return a file that also reads one of its columns as ``segment``.

    Raises LogError if it has no such column, or the column is the reward or the arm.
    """
    source_column = _find_source_column(file, "by", column)
    _refuse_roles(file, "by", [source_column], ["reward", "arm"])
    return file._replace(columns=file.columns | {SEGMENT: source_column})


def _with_extra_columns(
    file: LogFile, what: str, columns: Sequence[str], cluster: str | None = None
) -> LogFile:
    """Return a file that also reads ``columns``, each under the name "WHAT COLUMN" in batches.

    ``what`` is "context" or "feature", for which outcomes such as the reward are refused, or "column".
    Errors name ``what``; for the column ``cluster`` they name the option ``cluster``.

    Raises
    ------
    LogError
        If the file has no such column, or it is refused.
    """
    fields = {column: "cluster" if column == cluster else what for column in columns}
    added = {f"{what} {column}": _find_source_column(file, field, column) for column, field in fields.items()}
    _refuse_roles(file, what, added.values(), () if what == EXTRA.strip() else OUTCOME_COLUMNS)
    return file._replace(columns=file.columns | added)


def _refuse_roles(file: LogFile, field: str, columns: Collection[str], roles: Collection[str]) -> None:
    """Raise LogError if one of the columns already serves as one of ``roles``, such as the reward."""
    for role in roles:
        if (source_column := file.columns.get(role)) in columns:
            remedy = "leave it out: it is known only with the decision, or after it"
            if (field, role) == ("by", "arm"):
                remedy = "for an estimate per arm weigh the log once for each: a policy that always shows it"
            raise LogError(f"{file.path}: {field}: {source_column!r} is the log's {role}; {remedy}")


def _build_contexts(raw: RawRows, names: Sequence[str], schema: Schema | None) -> RawRows:
    """Return rows with one column ``context``, of lists of numbers, instead of the columns of the context.

    The numbers are the values of the columns ``names``, or their encoding by a schema. The columns are taken
    out of ``raw``, too.

    Raises
    ------
    LogError
        If a value does not fit its field, or without a schema a column holds no number.
    """
    values = {name: raw.columns.pop(f"{CONTEXT} {name}") for name in names}
    if schema is None:
        columns = [_parse_numbers(raw, name, column) for name, column in values.items()]
        rows = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    else:
        lists = [_parse_field(values[name], field_type) for name, field_type in schema]
        value_rows = zip(*lists, strict=True)
        return _encode_contexts(raw, schema, [dict(zip(names, row, strict=True)) for row in value_rows])
    return raw._replace(columns=raw.columns | {CONTEXT: pa.array(list(rows), pa.list_(pa.float64()))})


def _encode_structs(raw: RawRows, schema: Schema) -> RawRows:
    """Return rows with their contexts, which are structs, encoded as numbers by a schema.

    Fields that the schema lacks are ignored. Raises LogError if a value does not fit its field.
    """
    column, names = raw.columns[CONTEXT], [name for name, _ in schema]
    structs = column if isinstance(column, list) else column.to_pylist()
    return _encode_contexts(raw, schema, [{name: (row or {}).get(name) for name in names} for row in structs])


def _encode_contexts(raw: RawRows, schema: Schema, contexts: list[dict[str, Any]]) -> RawRows:
    """Return rows with these contexts, encoded as numbers by a schema, as the column ``context``.

    Raises LogError if a value does not fit its field.
    """
    try:
        rows = Encoder(schema).encode_rows(contexts) if contexts else []
    except InvalidValue as error:
        raise LogError(f"rows {raw.rows[0]} to {raw.rows[-1]}: {error}") from error
    return raw._replace(columns=raw.columns | {CONTEXT: pa.array(list(rows), pa.list_(pa.float64()))})


def _parse_numbers(raw: RawRows, name: str, column: Any) -> Any:
    """Return a column as floats, null for other values; raise LogError if it has values but no number.

    The error has the column's ``name`` and the numbers of its rows, from ``raw``.
    """
    column = nulls_for_missing(column, pa.float64())
    numbers = convert_values(column, pa.float64())
    if len(numbers) and numbers.null_count == len(numbers):
        # Not as CSV: an error shows the texts as they are.
        values = [value for value in parse_values(column, format="") if value is not None]
        if not values:
            return numbers
        raise LogError(
            f"rows {raw.rows[0]} to {raw.rows[-1]}: context: {name} holds no numbers but {values[:1]}; say "
            f"what it holds by a schema, columns={{'context': {{{name!r}: 'category', …}}}}, or have it "
            "learned by tacit.infer_schema"
        )
    return numbers


def _parse_field(column: Any, field_type: Any) -> list[Any]:
    """Return a column's values for a field of a schema; texts, as of CSV, are parsed to the field's type.

    Texts that cannot be parsed stay texts.
    """
    is_numeric = field_type in (NUMBER, SIGNAL)
    column = nulls_for_missing(column, pa.float64() if is_numeric or field_type == BOOLEAN else pa.string())
    if isinstance(column, list):
        return column
    values: list[Any] = column.to_pylist()
    if not is_text(column.type):
        return values
    parsed_values = convert_values(column, pa.float64() if is_numeric else pa.string()).to_pylist()
    if field_type == BOOLEAN:
        parsed_values = [BOOLEAN_TEXTS.get(str(text).lower(), text) for text in parsed_values]
    # Values that cannot be parsed stay unchanged, so that the error shows them.
    return [value if parsed is None else parsed for value, parsed in zip(values, parsed_values, strict=True)]


def _find_source_column(file: LogFile, field: str, column: str) -> str:
    """Return a column's name in the file; ``column`` is that name, or a name in the schema.

    Raises
    ------
    LogError
        If there is no such column; the message names ``field``.
    """
    source_column = column if column in file.names else file.columns.get(column)
    if source_column is None:
        message = no_column_error(field, column, file.names, also=file.columns)
        raise LogError(f"{file.path}: {message}; give one of these")
    return source_column


def complete_columns(
    raw: RawRows,
    columns: Mapping[str, str],
    constants: Mapping[str, Any],
    names: Collection[str] = tuple(SCHEMA.names),
) -> RawRows:
    """Return rows with the schema's names for their columns, and with all of its columns among ``names``.

    ``columns`` maps the schema's names to those in ``raw``. Columns that the source lacks are filled with
    their constant, decision ids with row numbers, others with null. Missing-value words become null.
    """
    rows = len(raw.rows)
    complete: dict[str, Any] = {}
    for field in SCHEMA:
        if field.name in columns:
            complete[field.name] = nulls_for_missing(raw.columns[columns[field.name]], field.type)
        elif field.name not in names:
            continue
        elif field.name in constants:
            complete[field.name] = repeat_value(constants[field.name], rows)
        elif field.name == DECISION_ID:
            complete[field.name] = pa.array(raw.rows).cast(pa.string())
        else:
            complete[field.name] = pa.nulls(rows, field.type)
    extra = {name: raw.columns[columns[name]] for name in columns if name not in complete}
    for name in extra:
        if name == SEGMENT or name.startswith(FEATURE):
            extra[name] = nulls_for_missing(extra[name], pa.string() if name == SEGMENT else pa.float64())
    return raw._replace(columns=complete | extra)
