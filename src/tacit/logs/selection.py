"""Read only the needed columns of a click log; other columns are neither read nor checked.

Estimators need a few columns of long logs. Of a Parquet file only these are read, texts stay
dictionary-encoded, and whole columns are checked at once; only a batch with an invalid row
is checked row by row.
"""

# 1. ``select_columns``: entry for any log; ``_select_parquet`` reads single columns of Parquet.
# 2. ``_batches``: a row group, with its texts as dictionaries.
# 3. ``_is_valid``: checks all rows of a batch by whole columns.
# 4. ``common_list_codes``: the list of arms that all rows of a batch share.

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.checks import MAX_NAME_BYTES
from tacit.errors import LogError
from tacit.logs.data_warnings import RowHistory, find_name_warnings, find_row_warnings
from tacit.logs.formats import File, parquet_file
from tacit.logs.parts import KeyShard, LogPart
from tacit.logs.reader import DECISION_ID, LogFile, LogReader, missing_columns_error, reading
from tacit.logs.rows import Chunk, LogReport, RawRows, nulls_for_empty_texts
from tacit.logs.schema import SCHEMA, SEGMENT
from tacit.logs.sources import check_kept_rows, open_log

TEXTS = ("placement", "key", "arm", "policy", "version", SEGMENT)
FILLERS = {
    "timestamp": pa.scalar(0, pa.timestamp("us", "UTC")),
    "decision_id": pa.scalar(""),
    "placement": pa.scalar(""),
    "key": pa.scalar(""),
}


def select_columns(log: Any, names: Collection[str]) -> Iterator[Chunk]:
    """Yield the valid rows of a log with at least the columns ``names``, ``arm`` and ``arms``.

    Text columns may be dictionary-encoded. Of a Parquet file, only the columns that are read are validated.
    Updates the log's report. For a whole log, the end raises LogError if no row was valid.

    Parameters
    ----------
    log : LogReader, LogPart, KeyShard, or what :func:`read_log` takes
    names : collection of str
        Columns of the schema, ``segment``, features, or additional columns with which the log was opened.

    Raises
    ------
    LogError, InvalidValue
        As for reading the whole log; also if ``decision_id`` is needed and the log has none.
    """
    log = open_log(log)
    if isinstance(log, KeyShard):
        return log.filter_rows(select_columns(log.log, {*names, "placement", "key"}))
    groups: Sequence[tuple[int, int] | None] | None = None
    if isinstance(log, LogPart):
        log, groups = log.log, log.groups
    if DECISION_ID in names and log.lacks_decision_ids:
        has_position = all("position" in file.columns for file in log.files)
        hint = (
            ""
            if has_position
            else " (and no position, either: say what column has it with columns={'position': ...}; of "
            "single arms give a policy that shows one, or always:ARM)"
        )
        raise LogError(
            f"log: {DECISION_ID}: there is none{hint}, so nothing says which rows belong together; say what "
            f"column to take with columns={{{DECISION_ID!r}: ...}} (--column {DECISION_ID}=...)"
        )
    if "reward" in names and log.lacks_rewards:
        raise LogError(
            missing_columns_error(str(log.files[0].path), {"reward": "reward"}, log.files[0].names)
        )
    if all(file.format == "parquet" for file in log.files):
        chunks = _select_parquet(log, groups or [None] * len(log.files), {*names, "arm", "arms"})
    else:
        chunks = log.chunks()
    return check_kept_rows(log, chunks) if groups is None else chunks


def _select_parquet(
    log: LogReader, groups: Sequence[tuple[int, int] | None], names: set[str]
) -> Iterator[Chunk]:
    """Yield the valid rows of Parquet files, or of ranges of their row groups, with the columns ``names``.

    Replaces the log's report, and adds data warnings to it.
    """
    log.report = report = LogReport(one_key=log.one_key, rewards=log.rewards)
    history = RowHistory()
    names = names | set(log.context_columns if "context" in names else ())
    for file, span in zip(log.files, groups, strict=True):
        columns = {name: column for name, column in file.columns.items() if name in names}
        constants = {name: log.constants[name] for name in names & set(log.constants) - set(columns)}
        with reading(file.path, "parquet"):
            _check_history(history, file, span, log.batch_rows)
            yield from _select_file(log, file, span, columns, constants)
    report.add_warnings(history.find_warnings())
    report.rewards, report.lists = history.filter_rewards_note(report.rewards), history.has_lists


def _check_history(history: RowHistory, file: LogFile, span: tuple[int, int] | None, size: int) -> None:
    """Add a Parquet file's first rows to the history, with the columns by which it finds duplicates.

    ``span`` is the range of row groups, ``size`` the rows of a batch. Stops once the history is full.
    """
    columns = {
        name: at for name, at in file.history_columns.items() if name == "placement" or not history.is_full
    }
    if not columns:
        return
    path: Any = file.path
    with parquet_file(path) as parquet:
        groups = range(*(span or (0, parquet.metadata.num_row_groups)))
        first = 1 + sum(parquet.metadata.row_group(group).num_rows for group in range(groups.start))
        for batch in parquet.iter_batches(size, row_groups=list(groups), columns=[*columns.values()]):
            arrays = {name: batch.column(column) for name, column in columns.items()}
            history.add(arrays, str(path), np.arange(first, first + len(batch)))
            first += len(batch)
            if history.is_full:
                return


def _select_file(
    log: LogReader,
    file: LogFile,
    span: tuple[int, int] | None,
    columns: dict[str, str],
    constants: dict[str, Any],
) -> Iterator[Chunk]:
    """Yield the valid rows of one Parquet file in batches; count all rows in the log's report.

    A batch with an invalid row is checked row by row.
    """
    path: Any = file.path
    texts = [columns[name] for name in TEXTS if name in columns]
    with parquet_file(path) as parquet:
        nested = [leaf for leaf in _leaves(parquet) if leaf.startswith(f"{columns.get('arms')}.")]
        start, stop = span or (0, parquet.metadata.num_row_groups)
        first = 1 + sum(parquet.metadata.row_group(group).num_rows for group in range(start))
    source_columns = list(dict.fromkeys(columns.values()))
    for group in range(start, stop):
        for batch in _batches(path, group, log.batch_rows, source_columns, texts + nested):
            arrays = {name: batch.column(column) for name, column in columns.items()}
            rows = np.arange(first, first + len(batch))
            first += len(batch)
            if columns.keys() & set(log.context_columns):
                arrays = log.build_contexts(RawRows(arrays, rows, [])).columns
            if _is_valid(arrays, constants):
                log.report.add_warnings(find_name_warnings(arrays, arrays, str(path), rows))
                log.report.add_warnings(find_row_warnings(arrays, str(path), rows))
                log.report.read += len(batch)
                log.report.kept += len(batch)
                all_columns = arrays | {name: _repeat_value(x, len(batch)) for name, x in constants.items()}
                yield Chunk(pa.RecordBatch.from_pydict(all_columns), str(path), rows)
            else:
                raw = RawRows(_fill_columns(arrays, constants, len(batch)), rows, [])
                yield log.check_rows(raw, file, log.report)


def _leaves(file: Any) -> list[str]:
    """Return the paths of all leaf columns of a Parquet file."""
    return [file.schema.column(leaf).path for leaf in range(len(file.schema))]


def _batches(path: File, group: int, size: int, columns: list[str], encoded: list[str]) -> Iterator[Any]:
    """Yield the batches of one row group; texts in ``encoded`` stay dictionaries if Arrow can do so."""
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


def _repeat_value(value: Any, rows: int) -> Any:
    """Return an Arrow array that has one value in ``rows`` rows, in a compact form."""
    if pa.types.is_string(value.type):
        return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value]))
    if pa.types.is_list(value.type):
        # All rows refer to the same list.
        sizes = np.full(rows, len(value), np.int32)
        return pa.ListViewArray.from_arrays(np.zeros(rows, np.int32), sizes, value.values)
    return pa.repeat(value, rows)


def _fill_columns(arrays: dict[str, Any], constants: dict[str, Any], rows: int) -> dict[str, Any]:
    """Return all columns of the schema: columns as read, constants, and fillers or nulls for others."""
    all_columns = {}
    for field in SCHEMA:
        if field.name in arrays:
            all_columns[field.name] = nulls_for_empty_texts(_plain(arrays[field.name]), field.type)
        else:
            filler = constants.get(field.name, FILLERS.get(field.name))
            all_columns[field.name] = (
                pa.nulls(rows, field.type) if filler is None else pa.repeat(filler, rows)
            )
    return all_columns | {name: arrays[name] for name in arrays if name not in all_columns}


def _plain(array: Any) -> Any:
    """Return a column of lists with its texts decoded from dictionaries; other columns unchanged."""
    if pa.types.is_list(array.type) and pa.types.is_dictionary(array.type.value_type):
        return array.cast(pa.list_(pa.string()))
    return array


def _is_valid(arrays: dict[str, Any], constants: dict[str, Any]) -> bool:
    """True if a check of whole columns shows that every row is valid; False if rows need single checks."""
    for name, array in arrays.items():
        if name not in SCHEMA.names:
            continue
        kind = SCHEMA.field(name).type
        if name in TEXTS:
            texts = array.dictionary if pa.types.is_dictionary(array.type) else None
            if texts is None or texts.type != kind or texts.null_count:
                return False
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if name == "key" and longest > MAX_NAME_BYTES:
                return False
        elif name != "arms" and array.type != kind:
            return False
        if array.null_count and not SCHEMA.field(name).nullable:
            return False
    return all(
        array is None or _is_in_range(array, low, strict)
        for array, low, strict in (
            (arrays.get("propensity"), 0.0, True),
            (arrays.get("position_propensity"), 0.0, True),
            (arrays.get("reward"), 0.0, False),
        )
    ) and _has_valid_arms(arrays, constants)


def _is_in_range(array: Any, low: float, strict: bool) -> bool:
    """True if all values, except nulls, are from ``low`` to 1; with ``strict`` they must exceed ``low``."""
    values = array.drop_null().to_numpy(zero_copy_only=False)
    if not len(values):
        return True
    least, most = values.min(), values.max()
    # A comparison with NaN is false.
    return bool((least > low if strict else least >= low) and most <= 1.0)


def _has_valid_arms(arrays: dict[str, Any], constants: dict[str, Any]) -> bool:
    """True if contexts and positions are valid, and all rows share one valid offer that has their arms."""
    if "context" in arrays:
        values = arrays["context"].flatten()
        if values.null_count or not np.isfinite(values.to_numpy()).all():
            return False
    if "position" in arrays and (pc.min(arrays["position"]).as_py() or 0) < 0:
        return False
    offer = _common_offer(arrays["arms"]) if "arms" in arrays else constants["arms"].as_py()
    if not offer or None in offer or len(set(offer)) < len(offer):
        return False
    arm = arrays.get("arm")
    if arm is None:
        return constants["arm"].as_py() in offer
    is_shown = np.bincount(arm.indices.to_numpy(), minlength=len(arm.dictionary)) > 0
    is_offered = pc.is_in(arm.dictionary, value_set=pa.array(offer)).to_numpy(zero_copy_only=False)
    return bool(is_offered[is_shown].all())


def _common_offer(arms: Any) -> list[Any] | None:
    """Return the list of arms that all rows share; None if they differ or that is expensive to tell."""
    codes = common_list_codes(arms)
    return None if codes is None else arms[0].as_py()


def common_list_codes(arms: Any) -> Any:
    """Return the codes of the list that all rows share, as an array; None if lists differ or are empty."""
    if pa.types.is_list_view(arms.type):
        return np.arange(len(arms[0])) if len(arms) else None
    if not len(arms) or arms.null_count or not pa.types.is_list(arms.type):
        return None
    offsets = arms.offsets.to_numpy()
    size = int(offsets[1] - offsets[0])
    values = arms.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if not size or len(values) != size * len(arms) or values.null_count:
        return None
    if pa.types.is_dictionary(values.type):
        codes = values.indices.to_numpy()
    else:
        codes = values.dictionary_encode().indices.to_numpy()
    if (np.diff(offsets) != size).any():
        return None
    table = codes.reshape(-1, size)
    return table[0] if (table == table[0]).all() else None
