"""Open click logs of any form: detect the format or folder layout and return a reader."""

# 1. ``read_log``: returns a reader of a path, a table in memory or record batches.
# 2. Detection of folder layouts, and checks of options against them.
# 3. ``open_log``, ``as_chunks``, ``check_kept_rows``: accept any form of a log, and warn of rejected rows.

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa

from tacit.core import checks
from tacit.core.part import one_word
from tacit.core.refusals import Refusal, refuse_options
from tacit.core.reward_range import UNIT_RANGE, RewardRange, read_range
from tacit.errors import (
    AssumptionWarning,
    InvalidValue,
    LogError,
    option_error,
    parameter_names,
    with_suggestions,
)
from tacit.frames import is_frame
from tacit.logs.data_warnings import MIN_ROWS, NEARLY_ALL
from tacit.logs.formats import FolderLayout, collect_files, is_url, list_suffixes, refuse_duplicates
from tacit.logs.items import ItemTable
from tacit.logs.other_formats import DSJSON, OPEN_BANDIT
from tacit.logs.parts import KeyShard, LogPart
from tacit.logs.reader import BATCH_ROWS, CLIP, REJECT, Frame, LogReader, list_column_refusals
from tacit.logs.rows import MAX_REJECTED, Chunk, convert_values
from tacit.logs.schema import ALLOWED, describe_allowed, describe_range
from tacit.logs.ubi import UBI

LAYOUTS = {layout.name: layout for layout in (OPEN_BANDIT, UBI, DSJSON)}
ALL_SHOWN = "shown"
ARMS_HINT = (
    "give arms by name, arms=['film', 'song'] (--arms film,song), or 'shown' (--arms shown): all it shows"
)


class ReadOptions(TypedDict, total=False):
    """Options of :func:`read_log`, for functions that open a log."""

    format: str | None
    columns: Mapping[str, Any] | None
    constants: Mapping[str, Any] | None
    arms: Sequence[str] | str | None
    strict: bool
    time_unit: str | None
    positions_from: int
    items: Any
    most_rejected: float
    reward_range: Any
    outside: str


@with_suggestions
def read_log(
    log: Any,
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    arms: Sequence[str] | str | None = None,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
    time_unit: str | None = None,
    positions_from: int = 0,
    items: Any = None,
    most_rejected: float = MAX_REJECTED,
    reward_range: Any = (0.0, 1.0),
    outside: str = REJECT,
) -> LogReader:
    """Open a click log and return a reader of its valid rows; rows are read when it is iterated.

    Warns of constants that are not used. With arms="shown", the log is read once to list its arms.

    Parameters
    ----------
    log : path, sequence of paths, or table in memory
        A file; a folder, whose files, also in subfolders, are read in order of their names; or a
        pattern with ``*`` for these. Parquet may be given by a URL of pyarrow's file systems
        (``s3://``, ``gs://``, ``hdfs://``, ``file://``). A folder of the Open Bandit Dataset is
        recognised, and one with files ``ubi_queries*``. Or a table in memory: a data frame of
        pandas or polars, a DuckDB relation, a pyarrow table, record batches, any object with
        Arrow's PyCapsule interface, a data set of Hugging Face, or a dict of arrays.
    format : str, optional
        ``"parquet"``, ``"csv"``, ``"json"`` (one object per line), ``"open-bandit"``, ``"ubi"`` or
        ``"dsjson"``, which Vowpal Wabbit writes; by default that of the suffix.
    columns : dict, optional
        From columns of the schema to their names in the file. A ``context`` may be built of several
        columns: ``{"context": ["age", "visits"]}``, all numbers, or by a schema, as
        :func:`tacit.auto` takes it: ``{"context": {"device": ["ios", "web"], "age": "number"}}``.
    constants : dict, optional
        Values for columns that the file lacks.
    arms : sequence of str, or "shown", optional
        The arms on offer in every row, if the file has no column of them; "shown": all arms that the
        log ever shows, for which it is read once more.
    strict : bool, default False
        Whether to stop at the first invalid row, instead of counting it in
        ``reader.report``.
    batch_rows : int, default 65,536
        The most rows in a batch.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Unit of times that are numbers since 1970. By default a number is read in the unit in which it
        is a time from 2000 to 2099, and its row rejected if there is none; the report has the units.
    positions_from : int, default 0
        The position at the top of the log's lists: 1 for a log whose positions count from 1.
    items : path, or table in memory, optional
        Vectors of the items that are the log's arms, for policies that learn from item vectors:
        columns ``id`` and ``vector``, and, if vectors change, ``from``, the time from which a vector
        is valid. The ``items`` of a learner have this form.
    most_rejected : float, default 0.05
        The largest share of invalid rows, in [0, 1], with which the log is evaluated or learned. A larger
        share raises TooManyRejected, as rows may be invalid by their outcome: from 1,000 rows on, and in
        shorter logs if no row is invalid for another reason than its reward. Reading alone is not limited.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward there can be, in the unit of the log; None where there is no
        bound. A row with a reward outside is invalid.
    outside : {"reject", "clip"}, default "reject"
        ``"clip"``: a reward outside the range counts as its nearest end, and results say how many did, and
        how much that is in sum.

    Returns
    -------
    LogReader

    Raises
    ------
    LogError
        If there is nothing to read, or a required column is missing: arm or arms. Without ``key`` all
        rows have the same key, which results report; without ``decision_id`` each row is a decision
        of its own; without ``placement`` all rows have the same placement; without ``timestamp``
        all times are 1970-01-01.
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
    >>> frame = {"query": ["tomato"] * 2, "shown": [1, 2], "clicked": [True, False]}
    >>> log = read_log(
    ...     frame, columns={"key": "query", "arm": "shown", "reward": "clicked"}, arms="shown"
    ... )
    >>> [batch["reward"].to_pylist() for batch in log]
    [[1.0, 0.0]]
    """
    table, share = ItemTable.from_table(items), checks.number("most_rejected", most_rejected, 0.0, 1.0)
    rewards = read_range("reward_range", reward_range)
    one_word(REJECT, CLIP)("outside", outside)
    positions_from = checks.integer("positions_from", positions_from, 0)
    arms = checks.as_list(arms)
    places = None if _is_in_memory(log) else [log] if isinstance(log, str | Path) else list(log)
    refuse_options(_list_refusals(log, places, arms, columns or {}, constants or {}))
    all_constants = dict(constants or {}) | ({} if arms is None or arms == ALL_SHOWN else {"arms": arms})
    options: dict[str, Any] = {"strict": strict, "batch_rows": batch_rows}
    limits: dict[str, Any] = {"items": table, "most_rejected": share, "positions_from": positions_from}
    limits |= {"reward_range": rewards, "outside": outside}
    if places is not None:
        refuse_duplicates(places)
        layout = _detect_layout(places[0], format)
        if layout is not None:
            refuse_options(_list_layout_refusals(layout.name, arms, time_unit, positions_from))
            reader: LogReader = layout.open(places, columns, constants=all_constants, **options)
            vars(reader).update(limits)  # in place of the defaults of the class
            return reader
    files: list[Any] = [Frame(log)] if places is None else collect_files(places, list_suffixes(format))
    options |= {"format": format, "columns": columns, "time_unit": time_unit}
    if arms == ALL_SHOWN:
        # Any arms will do to open the log: only the arms shown are read.
        arm_reader = LogReader(files, constants=all_constants | {"arms": ["?"]}, **options)
        all_constants["arms"] = _collect_arms(arm_reader)
    reader = LogReader(files, constants=all_constants, **options)
    refuse_options(_list_column_refusals(arms, reader))
    _warn_unused_constants(all_constants, reader)
    vars(reader).update(limits)
    return reader


def _list_refusals(
    log: Any, places: list[Any] | None, arms: Any, columns: Any, constants: Any
) -> Iterator[Refusal]:
    """Yield the checks of options of :func:`read_log` that are made before a file is opened.

    ``places`` are the paths of the log, None for a log in memory.
    """
    is_text = isinstance(arms, str) and arms != ALL_SHOWN and arms[:1] != "["
    is_wrong = is_text or not (arms is None or isinstance(arms, Iterable))
    yield Refusal("arms", is_wrong, ARMS_HINT, arms)
    for field, names in ("columns", columns), ("constants", constants):
        yield from list_column_refusals(names, ALLOWED, "a click log", field, "")
    for name in sorted(columns.keys() & constants.keys()):
        yield Refusal("constants", True, "columns says it, too; leave one out", name)
    yield Refusal("path", places is not None and not places, "give a file at least", log)


def _list_column_refusals(arms: Any, log: LogReader) -> Iterator[Refusal]:
    """Yield the checks that the option ``arms`` is not mistaken for a column of the log.

    A single name must not be a column; ``arms="shown"`` is refused if an unused column of lists is called so.
    """
    name = arms[0] if isinstance(arms, list | tuple) and len(arms) == 1 else None
    column_hint = f"it is a column, which goes into columns={{'arm': {name!r}}} (--column arm={name})"
    shown_hint = "a column is called so, too: take it with columns={'arms': 'shown'} (--column arms=shown), "
    shown_hint += "call it otherwise, or name the arms"
    for file in log.files:
        yield Refusal("arms", name is not None and name in file.names, f"{column_hint}; {ARMS_HINT}", arms)
        has_shown = ALL_SHOWN in file.names and file.columns.get("arm") != ALL_SHOWN
        is_ambiguous = arms == ALL_SHOWN and has_shown and log.holds_lists(ALL_SHOWN)
        yield Refusal("arms", is_ambiguous, shown_hint, arms)


def _warn_unused_constants(constants: Mapping[str, Any], log: LogReader) -> None:
    """Warn of each constant for a column that all files of a log have."""
    for name, value in constants.items():
        columns = [file.columns.get(name) for file in log.files]
        if columns and all(columns):
            text = f"{name}: {value!r} is not used, as the log's column {columns[0]!r} says it; leave it out"
            warnings.warn(text, AssumptionWarning, stacklevel=4)


def _is_in_memory(log: Any) -> bool:
    """True if a log is a table or other object in memory rather than a path or a sequence of paths."""
    if isinstance(log, str | Path):
        return False
    has_paths = isinstance(log, Sequence) and all(isinstance(place, str | Path) for place in log)
    return is_frame(log) or not has_paths


def _list_layout_refusals(
    name: str, arms: Any, time_unit: str | None, positions_from: int
) -> Iterator[Refusal]:
    """Yield the checks of options that the layout ``name``, of another system, does not allow."""
    yield Refusal("arms", arms == ALL_SHOWN, f"leave it out: a log of {name} says its arms", arms)
    remedy = f"leave it out: a log of {name} says its times"
    yield Refusal("time_unit", time_unit is not None, remedy, time_unit)
    remedy = f"leave it out: positions of {name} count from 0 as they are read"
    yield Refusal("positions_from", bool(positions_from) and name != OPEN_BANDIT.name, remedy, positions_from)


def _collect_arms(log: LogReader) -> list[str]:
    """Read a log and return the distinct arms that it shows, in order of first appearance.

    Raises LogError if there is none, InvalidValue for a stream. Warns if nearly each row has an arm of its
    own.
    """
    if log.is_stream:
        raise InvalidValue("arms", ALL_SHOWN, "name the arms: the log is a stream, to be read only once")
    arms: dict[str, None] = {}
    rows = malformed = 0
    for file in log.files:
        column = file.columns.get("arm")
        for raw in file.read([column], log.batch_rows) if column else ():
            assert column is not None
            rows, malformed = rows + len(raw.rows), malformed + len(raw.malformed)
            texts = convert_values(raw.columns[column], pa.string()).unique().to_pylist()
            arms |= dict.fromkeys(text for text in texts if text is not None)
    if not arms:
        remedy = f"{malformed:,} rows have more or fewer fields than the header; mend them"
        if not malformed:
            remedy = "give their names" if rows else "it has no rows; give a log that has some"
        raise LogError(f"{log.files[0].path}: arms: it shows none; {remedy}")
    if rows >= MIN_ROWS and len(arms) > NEARLY_ALL * rows:
        message = f"arms: {len(arms):,} are shown in {rows:,} rows, nearly each of them once"
        remedy = "if ids of rows are taken for arms, columns={'arm': ...} (--column arm=...)"
        warnings.warn(f"{message}; {remedy}", AssumptionWarning, stacklevel=4)
    return list(arms)


def _detect_layout(place: str | Path, name: str | None) -> FolderLayout | None:
    """Return the layout called ``name``, or that of the folder ``place``; None for plain files."""
    if name is not None:
        return LAYOUTS.get(name)
    if is_url(place):
        return None
    return next((form for form in LAYOUTS.values() if form.recognises(Path(place))), None)


def open_log(log: Any, **options: Unpack[ReadOptions]) -> Any:
    """Return a reader of a log, opened by :func:`read_log`; an open log, or a part of one, is unchanged.

    A log in memory is read strictly, unless ``strict=False`` or ``most_rejected`` is among the options.

    Raises
    ------
    InvalidValue
        If it is no log, or it is open and there are options.
    """
    for name in options:
        if name not in ReadOptions.__annotations__:
            raise _make_option_error(name)
    if isinstance(log, LogReader | LogPart | KeyShard):
        for option, value in options.items():
            raise InvalidValue(option, value, "give it to read_log: this log is open already")
        return log
    if _is_in_memory(log):
        return read_log(log, **({"strict": "most_rejected" not in options} | options))  # type: ignore[arg-type]
    return read_log(log, **options)


def open_policy_log(log: Any, policy: Any, options: ReadOptions, *, learns: bool = True) -> Any:
    """Return a reader of a log for a policy, opened with the policy's range of rewards by default.

    Raises
    ------
    InvalidValue
        If the policy ``learns`` the log, which is read with another range than the policy's.
    """
    if isinstance(log, LogReader | LogPart | KeyShard) or policy.reward_range == UNIT_RANGE:
        reader = open_log(log, **options)
    else:
        reader = open_log(log, **({"reward_range": policy.reward_range} | options))  # type: ignore[arg-type]
    logged = get_reward_range(reader)
    if learns and logged != policy.reward_range:
        whose = (
            f"the policy {policy.label} learns rewards in {policy.reward_range.text}, the log is read with"
        )
        remedy = f"read it with {describe_range(policy.reward_range)}, or give the policy the log's"
        raise InvalidValue("reward_range", logged.text, f"{whose} {logged.text}; {remedy}")
    return reader


def get_reward_range(log: Any) -> RewardRange:
    """Return the range of rewards of an open log, or of a part of one."""
    return getattr(log, "log", log).reward_range  # type: ignore[no-any-return]


def _make_option_error(name: str) -> TypeError:
    """Return the TypeError that a public function of tacit has no option ``name``.

    The function is the outermost one of tacit on the call stack.
    """
    frame = caller = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("tacit."):
        caller, frame = frame, frame.f_back
    assert caller is not None
    option_names = dict.fromkeys([*parameter_names(caller.f_code), *ReadOptions.__annotations__])
    return option_error(caller.f_code.co_name, name, option_names)


def warn_unread_context(log: Any, policy: Any) -> None:
    """Warn if a log has contexts but the policy reads none.

    Parameters
    ----------
    log : LogReader
        Logs of other types are ignored.
    policy : Policy
    """
    columns = log.contexts if isinstance(log, LogReader) and not policy.context_dim else []
    if columns:
        warnings.warn(
            f"context: {policy.label} reads none, and the log's ({', '.join(columns)}) says nothing to it; "
            "what does is tacit.auto(arms=…, context=…)",
            AssumptionWarning,
            stacklevel=3,
        )


def warn_rejected(reader: Any, log: Any, *, by_placement: bool = False) -> tuple[str, ...]:
    """Issue the data warnings of a log, and warnings of invalid rewards and rejected rows; return its notes.

    The notes are about its keys and rewards. Rejected rows are summarised only if ``reader`` is not ``log``
    itself, but was opened for a caller who cannot see its report. With ``by_placement``, there is no warning
    about several placements.
    """
    report = getattr(reader, "log", reader).report  # a part has the report of its log
    lines = [report.summary()] if reader is not log and report.rejected else []
    for reason in ("reward-outside-range", "unparsable-reward"):
        if example := report.examples.get(reason):
            allowed = describe_allowed("reward", report.reward_range, example.value)
            message = f"{example.source}: row {example.row}: {example}; give {allowed}"
            lines.append(f"{message}: such rows are left out, and the others may earn more or less")
    for text in [*lines, *report.warning_lines(by_placement=by_placement)]:
        warnings.warn(text, AssumptionWarning, stacklevel=3)
    # Notes on the units of times come last, and are left out.
    count = report.one_key + bool(report.rewards) + bool(report.rejected) + bool(report.clipped)
    return tuple(report.notes()[:count])


def as_chunks(log: Any, *, empty: bool = False, needs_propensity: bool = False) -> Iterator[Chunk]:
    """Open a click log of any form and yield its valid rows as chunks.

    Parameters
    ----------
    log : LogReader, or what :func:`read_log` takes
        A log in memory is checked strictly.
    empty : bool, default False
        Whether a log without any row is allowed, and one with more rejected rows than its limit.
    needs_propensity : bool, default False
        Whether to reject rows without a propensity, if others have one; not under ``strict``.

    Raises
    ------
    InvalidValue
        If it is no log.
    LogError
        If it cannot be read, has an invalid row (in memory), has no row, or too many rows are rejected.
    """
    reader = open_log(log)
    return check_kept_rows(reader, reader.chunks(needs_propensity=needs_propensity), empty=empty)


def check_kept_rows(reader: LogReader, chunks: Iterator[Chunk], *, empty: bool = False) -> Iterator[Chunk]:
    """Yield all chunks of a log; raise TooManyRejected beyond its limit, and LogError if no row was valid.

    With ``empty``, a log without any row is allowed, and any share of rejected rows.

    Raises
    ------
    LogError
    """
    rows, share = 0, 1.0 if empty else reader.most_rejected
    for chunk in chunks:
        rows += len(chunk.rows)
        reader.report.check_limit(share, ended=False)
        yield chunk
    if rows:
        reader.report.check_limit(share)
    # The report may belong to another iteration by now, which has no valid rows either.
    if not (rows or (empty and not reader.report.read)):
        reader.report.check_kept()
