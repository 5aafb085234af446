"""From files to searches: rows, search engines' answers, UBI events, or tacit's own log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit.core import checks
from tacit.errors import InvalidValue, LogError
from tacit.evaluate.interleaved.engines import (
    UNITS,
    found,
    hits_of,
    id_of,
    is_result,
    team_of_event,
)
from tacit.evaluate.interleaved.searches import Assembly, Search, text
from tacit.interleaving import Action, Interleaved, credited
from tacit.interleaving.base import ranking
from tacit.logs.formats import format_of
from tacit.logs.reader import BATCH_ROWS, file_at, reading
from tacit.logs.rows import MALFORMED, Example, LogReport, converted
from tacit.logs.ubi.json_lines import records_in
from tacit.logs.ubi.records import CLICK, EXAMINED, event_of, is_event

ROW = ("search", "team", "position", "click")
"""The columns of a row for each item shown, or for each one clicked."""
MORE = ("item", "action", "amount")
OWN = ("left", "right", "outcome", "interleaved", "clicks", "rankings", "decision_id")
"""Those of tacit's own log of duels."""


class Columns(NamedTuple):
    """What to read beside the fixed columns.

    Attributes
    ----------
    unit : str or None
        Whose searches are; None: the first of ``user``, ``client_id``, ``session``,
        ``session_id`` that there is.
    by : tuple of str
        Segments.
    renamed : dict
        From our names of columns to the file's.
    """

    unit: str | None = None
    by: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}

    @property
    def units(self) -> tuple[str, ...]:
        """Where the unit may stand, the likeliest first."""
        return UNITS if self.unit is None else (self.unit,)


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
    position = _number("position", record.get("position"))
    team, item = record.get("team"), record.get("item")
    team = None if team in (None, "") else text("team", team)
    item = None if item in (None, "") else text("item", item)
    clicks = _number("click", record.get("click"), default=1.0)
    kind = text("action", record.get("action") or CLICK)
    amount = _number("amount", record.get("amount"), default=1.0)
    assembly.show(search, position, item, team)
    if clicks > 0:
        assembly.act(search, kind, amount, position)
    return search


def own_search(record: Mapping[str, Any], where: str) -> Search:
    """Return the search that a row of tacit's own log tells; ``where`` names one without an id.

    Raises
    ------
    InvalidValue
        If it tells none.
    """
    rankers = text("left", record["left"]), text("right", record["right"])
    given = record.get("search") or record.get("decision_id")
    search = where if given is None else text("search", given)
    rankings = None
    if record.get("interleaved") is None:
        outcome = checks.number("outcome", _number("outcome", record.get("outcome")), 0.0, 1.0)
        shown = Interleaved((0, 1), 2, "TeamDraft", {"teams": [0, 1]})
        actions = [Action(0, CLICK, outcome), Action(1, CLICK, 1.0 - outcome)]
    else:
        shown = Interleaved.from_dict(checks.parsed("interleaved", record["interleaved"]))
        if shown.rankers != 2:
            remedy = "give a list of two rankers"
            raise InvalidValue("interleaved.rankers", shown.rankers, remedy)
        clicks = checks.parsed("clicks", record.get("clicks"))
        if not isinstance(clicks, list):
            raise InvalidValue("clicks", clicks, "give a list of positions")
        actions = [_action(click, len(shown.items)) for click in clicks]
        # The method must know its list again.
        credited(shown, [action.position for action in actions])
        if record.get("rankings") is not None:
            rankings = _rankings(checks.parsed("rankings", record["rankings"]), rankers)
    return Search(search, search, {}, rankers, shown, actions, rankings)


def _action(click: Any, positions: int) -> Action:
    """Return a click as the log gives it: a position, or an object with its kind."""
    if isinstance(click, Mapping):
        place = checks.integer("clicks", click.get("position"), 0, positions - 1)
        kind = text("clicks.action", click.get("action", CLICK))
        return Action(
            place, kind, checks.number("clicks.amount", click.get("amount", 1.0), 0, 1e300)
        )
    return Action(checks.integer("clicks", click, 0, positions - 1))


def _rankings(given: Any, rankers: Sequence[str]) -> tuple[Sequence[Any], ...]:
    if isinstance(given, Mapping):
        given = [given.get(name) for name in rankers]
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(isinstance(g, list) for g in given)
    ):
        raise InvalidValue("rankings", given, "give the left and the right ranker's list")
    return tuple(ranking("rankings", each) for each in given)


def _number(column: str, value: Any, default: float | None = None) -> float:
    if value in (None, "") and default is not None:
        return default
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        low = value.strip().lower()
        if low in ("true", "false"):
            return float(low == "true")
        try:
            value = float(low)
        except ValueError:
            raise InvalidValue(column, value, "give a number") from None
    return checks.number(column, value, 0.0, 1e300)
