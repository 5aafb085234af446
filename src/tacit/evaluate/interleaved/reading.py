"""From files to searches: rows, search engines' answers, UBI events, or tacit's own log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.core import checks
from tacit.errors import InvalidValue, LogError
from tacit.evaluate.interleaved.columns import MORE, OWN, ROW, Columns
from tacit.evaluate.interleaved.engines import found, hits_of, id_of, is_result, team_of_event
from tacit.evaluate.interleaved.own import own_search
from tacit.evaluate.interleaved.searches import Assembly, number, text
from tacit.logs.formats import format_of
from tacit.logs.reader import BATCH_ROWS, file_at, reading
from tacit.logs.rows import MALFORMED, Example, LogReport, converted
from tacit.logs.ubi.json_lines import records_in
from tacit.logs.ubi.records import CLICK, EXAMINED, event_of, is_event


def read_searches(
    paths: Sequence[Path],
    columns: Columns = Columns(),  # noqa: B008 - it is a constant
    *,
    format: str | None = None,
    strict: bool = False,
) -> tuple[Assembly, LogReport]:
    """Read searches with interleaved lists.

    Parameters
    ----------
    paths : sequence of path
        Parquet, CSV or JSON lines. See docs/interleaving.md for what they may hold.
    columns : Columns
    format : {"parquet", "csv", "json"}, optional
        By default the suffix says it.
    strict : bool, default False
        Whether to stop at the first row that is wrong, instead of counting it.

    Returns
    -------
    assembly : Assembly
        Its searches can be asked for once all is read.
    rows : LogReport
        What became of the rows.

    Raises
    ------
    LogError
        If a file cannot be read, or tells nothing of interleaved searches.
    """
    assembly, rows = Assembly(), LogReport()
    for path in paths:
        for row, record in _records(path, format_of(path, format), columns, rows, strict):
            rows.read += 1
            try:
                _take(assembly, record, f"{path}:{row}", columns)
            except InvalidValue as error:
                _reject(rows, error, Example(str(path), row, error.field, error.value), strict)
            else:
                rows.kept += 1
    return assembly, rows


def tells_pairs(path: Path, format: str | None = None, renamed: Any = None) -> bool:
    """Whether a file is tacit's own log of duels, with a pair of rankers in each row."""
    present = set(file_at(path, format).names)
    return {(renamed or {}).get(side, side) for side in ("left", "right")} <= present


def _reject(rows: LogReport, error: InvalidValue, example: Example, strict: bool) -> None:
    if strict:
        raise LogError(f"{example.source}: row {example.row}: {error}")
    why = "missing" if error.value is None else "wrong"
    rows.reject(f"{why}-{error.field.partition('.')[0]}", 1, example)


def _records(
    path: Path, format: str, columns: Columns, rows: LogReport, strict: bool
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each row or record with its number."""
    with reading(path, format):
        if format == "json":
            source: Iterator[tuple[int, Any]] = records_in(path)
        else:
            source = _of_table(path, format, columns)
        for row, record in source:
            if isinstance(record, Mapping):
                yield row, _renamed(record, columns)
                continue
            rows.read += 1
            if strict:
                raise LogError(f"{path}: row {row}: it is malformed: {record!r}")
            rows.reject(MALFORMED, 1, Example(str(path), row, "row", record))


def _renamed(record: Mapping[str, Any], columns: Columns) -> Mapping[str, Any]:
    if not columns.renamed:
        return record
    return {**record, **{ours: record.get(theirs) for ours, theirs in columns.renamed.items()}}


def _of_table(path: Path, format: str, columns: Columns) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa

    file = file_at(path, format)
    present = file.names
    wanted = {*ROW, *MORE, *OWN, *columns.units, *columns.by, *columns.renamed.values()}
    used = [name for name in present if name in wanted]
    rows = {columns.renamed.get(name, name) for name in ROW[:3]}
    if not rows <= set(used) and not {"left", "right"} <= set(used):
        raise LogError(
            f"{path}: it has neither the columns {', '.join(ROW)} nor left and right; name those "
            "that it has with --column OURS=THEIRS"
        )
    for name in (*columns.by, *((columns.unit,) if columns.unit else ())):
        if name not in present:
            raise LogError(f"{path}: {name}: there is no such column")
    for raw in file.read(used, BATCH_ROWS):
        yield from raw.malformed
        given = {
            name: values if isinstance(values, list) else converted(values, pa.string()).to_pylist()
            for name, values in raw.columns.items()
        }
        for place, row in enumerate(raw.rows):
            yield int(row), {name: values[place] for name, values in given.items()}


# Records -------------------------------------------------------------------------------------


def _take(assembly: Assembly, record: Mapping[str, Any], where: str, columns: Columns) -> None:
    """Note what a record says."""
    told = next((found(record, name) for name in columns.units if found(record, name)), None)
    unit = None if told is None else text("unit", told)
    segments = {name: found(record, name) for name in columns.by}
    if is_event(record):
        search = _event(assembly, record)
    elif record.get("left") is not None and record.get("right") is not None:
        whole = own_search(record, where)
        assembly.take(whole)
        search = whole.id
    elif is_result(record):
        search = id_of(record)
        hits = hits_of(record)
        for place, hit in enumerate(hits):
            assembly.show(search, place, hit.id, hit.team)
    elif record.get("query_id") is not None and "team" not in record:
        # A query of UBI: it tells whose the search is, and that there was one.
        search = text("query_id", record["query_id"])
    else:
        search = _row(assembly, record)
    assembly.tell(search, unit, segments)


def _event(assembly: Assembly, record: Mapping[str, Any]) -> str:
    event = event_of(record)
    team = team_of_event(record)
    name = event.objects[0] if event.objects else None
    place = None if event.ordinal is None else event.ordinal - 1
    if event.action in EXAMINED:
        if team is not None and place is not None and name is not None:
            assembly.show(event.query, place, name, team)
        return event.query
    amount = found(record, "amount")
    told = 1.0 if amount is None else checks.number("amount", amount, 0.0, 1e300)
    assembly.act(event.query, event.action, told, place, name, team)
    return event.query


def _row(assembly: Assembly, record: Mapping[str, Any]) -> str:
    search = text("search", record.get("search"))
    position = number("position", record.get("position"))
    team, item = record.get("team"), record.get("item")
    team = None if team in (None, "") else text("team", team)
    item = None if item in (None, "") else text("item", item)
    clicks = number("click", record.get("click"), default=1.0)
    kind = text("action", record.get("action") or CLICK)
    amount = number("amount", record.get("amount"), default=1.0)
    assembly.show(search, position, item, team)
    if clicks > 0:
        assembly.act(search, kind, amount, position)
    return search
