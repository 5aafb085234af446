"""Read only the needed columns of a click log; other columns are neither read nor checked.

Estimators need a few columns of long logs. Of a Parquet file only these are read, texts stay
dictionary-encoded.
"""

# 1. ``select_columns``: entry for any log; ``_select_parquet`` reads single columns of Parquet.
# 2. ``_read_columns``, ``_read_group``: a file or a row group of it, with its texts as dictionaries.

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tacit.errors import LogError
from tacit.logs.data_warnings import RowHistory
from tacit.logs.formats import File, parquet_file
from tacit.logs.parts import KeyShard, LogPart
from tacit.logs.reader import (
    DECISION_ID,
    LogFile,
    LogReader,
    complete_columns,
    missing_columns_error,
    reading,
)
from tacit.logs.rows import TEXT_COLUMNS, Chunk, LogReport, RawRows
from tacit.logs.sources import check_kept_rows, open_log


def select_columns(log: Any, names: Collection[str], needs_propensity: bool = False) -> Iterator[Chunk]:
    """Yield the valid rows of a log with at least the columns ``names``, ``arm`` and ``arms``.

    Text columns may be dictionary-encoded. Of a Parquet file, only the columns that are read are validated.
    Updates the log's report. For a whole log, the end raises LogError if no row was valid.

    Parameters
    ----------
    log : LogReader, LogPart, KeyShard, or what :func:`read_log` takes
    names : collection of str
        Columns of the schema, ``segment``, features, or additional columns with which the log was opened.
    needs_propensity : bool, default False
        Whether to reject rows without a propensity, if others have one; not under ``strict``.

    Raises
    ------
    LogError, InvalidValue
        As for reading the whole log; also if ``decision_id`` is needed and the log has none.
    """
    log = open_log(log)
    if isinstance(log, KeyShard):
        return log.filter_rows(select_columns(log.log, {*names, "placement", "key"}, needs_propensity))
    groups: Sequence[tuple[int, int] | None] | None = None
    if isinstance(log, LogPart):
        log, groups = log.log, log.groups
    if DECISION_ID in names and log.lacks_decision_ids:
        hint = " (and no position, either: say what column has it with columns={'position': ...}; of single "
        hint += "arms give a policy that shows one, or always:ARM)"
        hint *= any("position" not in file.columns for file in log.files)
        raise LogError(
            f"log: {DECISION_ID}: there is none{hint}, so nothing says which rows belong together; say what "
            f"column to take with columns={{{DECISION_ID!r}: ...}} (--column {DECISION_ID}=...)"
        )
    if "reward" in names and log.lacks_rewards:
        file_names = log.files[0].names
        raise LogError(missing_columns_error(str(log.files[0].path), {"reward": "reward"}, file_names))
    if all(file.format == "parquet" for file in log.files):
        report = log.report = log.make_report(needs_propensity)
        chunks = _select_parquet(log, report, groups or [None] * len(log.files), {*names, "arm", "arms"})
    else:
        chunks = log.chunks({*names, "arm", "arms"}, needs_propensity)
    # A part may be without valid rows.
    return check_kept_rows(log, chunks) if groups is None else chunks


def _select_parquet(
    log: LogReader, report: LogReport, groups: Sequence[tuple[int, int] | None], names: set[str]
) -> Iterator[Chunk]:
    """Yield the valid rows of Parquet files, or of ranges of their row groups, with the columns ``names``.

    Adds data warnings to the report, and counts rows in it.
    """
    history = RowHistory()
    names = names | set(log.context_columns if "context" in names else ())
    for file, span in zip(log.files, groups, strict=True):
        with reading(file.path, "parquet"):
            _fill_history(history, log, file, span)
            columns = {name: column for name, column in file.columns.items() if name in names}
            for raw in _read_columns(log, file, span, columns):
                complete = complete_columns(raw, columns, log.constants, names)
                if columns.keys() & set(log.context_columns):
                    complete = log.build_contexts(complete)
                yield log.check_rows(complete, file, report, names)
    report.add_warnings(history.find_warnings())
    report.rewards, report.lists = history.filter_rewards_note(report.rewards), history.has_lists


def _fill_history(history: RowHistory, log: LogReader, file: LogFile, span: tuple[int, int] | None) -> None:
    """Add a Parquet file's first rows to the history, with the columns by which it finds duplicates.

    ``span`` is the range of row groups, None for all. Stops once the history is full, which afterwards
    needs placements only.
    """
    needed = {"placement"} if history.is_full else set(file.history_columns)
    columns = {name: column for name, column in file.history_columns.items() if name in needed}
    for raw in _read_columns(log, file, span, columns) if columns else ():
        named = {name: raw.columns[column] for name, column in columns.items()}
        history.add(log.shift_positions(named), str(file.path), raw.rows)
        if history.is_full:
            return


def _read_columns(
    log: LogReader, file: LogFile, span: tuple[int, int] | None, columns: Mapping[str, str]
) -> Iterator[RawRows]:
    """Yield columns of a Parquet file in batches, with texts as dictionaries; rows are numbered from 1.

    ``columns`` maps the schema's names to those in the file. ``span`` is the range of row groups; None
    reads all.
    """
    path: Any = file.path
    with parquet_file(path) as parquet:
        # The paths of columns of values, such as "arms.list.element".
        leaves = [parquet.schema.column(column).path for column in range(len(parquet.schema))]
        sizes = [
            parquet.metadata.row_group(group).num_rows for group in range(parquet.metadata.num_row_groups)
        ]
    text_columns, arms = {columns.get(name) for name in TEXT_COLUMNS}, f"{columns.get('arms')}."
    texts = [leaf for leaf in leaves if leaf in text_columns or leaf.startswith(arms)]
    names = list(dict.fromkeys(columns.values()))
    start, stop = span or (0, len(sizes))
    for group in range(start, stop):
        batches = _read_group(path, group, log.batch_rows, file.select_stored(names), texts)
        yield from file.number_rows(batches, names, 1 + sum(sizes[:group]))


def _read_group(path: File, group: int, size: int, columns: list[str], encoded: list[str]) -> Iterator[Any]:
    """Yield the batches of one row group, with the text columns in ``encoded`` as dictionaries.

    If Arrow cannot read them so, the rows not yet yielded are read again, as plain text.
    """
    rows_done = 0
    for texts in (encoded, []):
        with parquet_file(path, read_dictionary=texts) as file:
            try:
                skip = rows_done
                for batch in file.iter_batches(size, row_groups=[group], columns=columns):
                    remaining = batch.slice(min(skip, len(batch)))
                    skip -= len(batch) - len(remaining)
                    if len(remaining):
                        rows_done += len(remaining)
                        yield remaining
                return
            except pa.ArrowNotImplementedError:
                if not texts:
                    raise
