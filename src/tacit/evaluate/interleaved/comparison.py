"""Compare rankers from files of interleaved searches."""

# 1. ``read_searches``: read rows, responses of search engines, UBI events or tacit's own log of duels.
# 2. ``_add_record``: add one record to its search; the records of a search may be in any order.
# 3. ``read_interleaved``: credit the searches and report.

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tacit.core import checks
from tacit.errors import AssumptionWarning, InvalidValue, LogError
from tacit.evaluate.duels.duel_log import read_rows, warn_of_rows
from tacit.evaluate.interleaved.report import InterleavedReport, SearchAccumulator, check_rule
from tacit.evaluate.interleaved.searches import (
    DUEL_COLUMNS,
    OPTIONAL_COLUMNS,
    PAIR_COLUMNS,
    ROW_COLUMNS,
    Columns,
    Search,
    SearchAssembler,
    count_clicked_results,
    get_event_team,
    get_field,
    get_search_id,
    hits_of,
    is_result,
    parse_duel_row,
    parse_text,
)
from tacit.interleaving import CreditRule
from tacit.logs.data_warnings import MIN_ROWS
from tacit.logs.formats import File, collect_files, detect_format, list_suffixes
from tacit.logs.reader import check_columns, missing_columns_text, no_column_error, open_file, reading
from tacit.logs.rows import MALFORMED, MAX_REJECTED, NO_ROWS, Example, LogReport
from tacit.logs.ubi_records import CLICK, EXAMINED, is_event, parse_event, read_records

# ---- From files to searches: rows, search engines' responses, UBI events, or tacit's own log


def read_searches(
    paths: Sequence[File],
    columns: Columns = Columns(),  # noqa: B008 - it is a constant
    *,
    format: str | None = None,
    strict: bool = False,
) -> tuple[SearchAssembler, LogReport]:
    """Read files of interleaved searches, and return the assembled searches with counts of rows.

    Warns if a unit or segment varies within a search.

    Parameters
    ----------
    paths : sequence of path, or of RemoteFile
        Parquet, CSV or JSON lines. See docs/interleaving.md for their records.
    columns : Columns
    format : {"parquet", "csv", "json"}, optional
        By default from the suffix.
    strict : bool, default False
        Whether to stop at the first invalid row, instead of counting it.

    Returns
    -------
    assembler : SearchAssembler
        Has all searches.
    rows : LogReport
        Counts of valid and rejected rows.

    Raises
    ------
    LogError
        If a file cannot be read, or has no interleaved searches.
    """
    assembly, rows = SearchAssembler(), LogReport()
    absent, names = {*columns.by, *([columns.unit] if columns.unit else [])}, dict[str, None]()
    for place, path in enumerate(paths):
        for row, record in _iter_records(path, detect_format(path, format), columns, rows, strict):
            rows.read += 1
            names |= dict.fromkeys(record) if absent or not rows.kept else {}
            absent -= {name for name in absent if get_field(record, name) is not None}
            try:
                _add_record(assembly, record, f"{place}:{row}", columns)
            except InvalidValue as error:
                rows.reject_error(error, str(path), row, strict)
            else:
                rows.kept += 1
    columns_by_option = {"unit": columns.unit} | {name: name for name in columns.by}
    for name, column in columns_by_option.items():
        if column and name in assembly.varying:
            option = "unit" if name == "unit" else "by"
            doubt = f"{option}: {column!r} varies within searches, and the first counts"
            remedy = "give a column that says the same of all of a search, such as user or market"
            warnings.warn(f"{doubt}: {assembly.varying[name]}; {remedy}", AssumptionWarning, stacklevel=3)
    for name in sorted(absent) if rows.kept else ():
        _refuse_column(columns, name, names)
    if not rows.kept and {"missing-search", "missing-position"} & set(rows.rejected):
        _refuse_missing_columns(", ".join(map(str, paths)), columns, names)
    return assembly, rows


def _refuse_column(columns: Columns, name: str, names: Iterable[str]) -> None:
    """Raise LogError that the column ``name`` of option ``unit`` or ``by`` is missing or empty.

    ``names`` are the columns that exist.
    """
    option = "unit" if name == columns.unit else "by"
    lacks = (
        f"{option}: no row has anything in {name!r}"
        if name in names
        else no_column_error(option, name, names)
    )
    raise LogError(f"{lacks}; give one of these" + f": {', '.join(names)}" * (name in names))


def _refuse_missing_columns(source: str, columns: Columns, names: Collection[str]) -> None:
    """Raise LogError if a table with the columns ``names`` lacks columns that searches need.

    The message has the missing and similar names. If only the column of clicks is missing, so that every row
    counts as a click, it is a warning.
    """
    named = columns.renamed
    theirs = {ours: named.get(ours, ours) for ours in (*ROW_COLUMNS, *PAIR_COLUMNS, *named)}
    lacking = {ours: name for ours, name in theirs.items() if name not in names}
    # A log has a row per result, with the columns of the first form, or a row per duel, with the second.
    rows, pairs = ([ours for ours in form if ours in lacking] for form in (ROW_COLUMNS[:3], PAIR_COLUMNS))
    misnamed = [ours for ours in named if ours in lacking]
    if {"arms", "arm", "reward"} <= {*names}:
        remedy = "give duels-NAME.parquet of an export, or searches.parquet of lists whose map names teams"
        raise LogError(f"{source}: it is a click log; {remedy}")
    if len(rows) == len(ROW_COLUMNS[:3]) and len(pairs) == len(PAIR_COLUMNS) and not misnamed:
        raise LogError(
            f"{source}: it has neither the columns {', '.join(ROW_COLUMNS)} nor left and right; it has "
            f"{', '.join(map(repr, names))}; name those that are called otherwise, such as with "
            "columns={'search': 'query_id'} (--column search=query_id)"
        )
    is_duel_log = "interleaved" in names  # tacit's own log of duels, which has all but the rankers
    absent = pairs if is_duel_log or len(pairs) < len(PAIR_COLUMNS) else rows
    absent = absent if rows and pairs else []
    # Without a column "click" every row is a click, which is wrong if that column is only misspelled.
    is_action_missing = not {"action", named.get("action")} & {*names}
    unclicked = "click" in lacking and is_action_missing and pairs and not is_duel_log
    if unclicked and (absent or get_close_matches("click", names, 1)):
        absent = [*absent, "click"]
    if absent or misnamed:
        raise LogError(
            f"{source}: {missing_columns_text({ours: lacking[ours] for ours in [*absent, *misnamed]}, names)}"
        )
    if unclicked and not {*names} <= {
        *ROW_COLUMNS,
        *OPTIONAL_COLUMNS,
        *columns.unit_names,
        *columns.by,
        *named.values(),
    }:
        doubt = no_column_error("click", "click", names)
        remedy = "so each row counts as one; if one has clicks, columns={'click': ...} (--column click=...)"
        warnings.warn(f"{source}: {doubt}, {remedy}", AssumptionWarning, stacklevel=2)


def is_duel_log(path: File, format: str | None = None, renamed: Mapping[str, str] | None = None) -> bool:
    """True if a file has a left and a right ranker in each row, and an interleaved list in none."""
    file = open_file(path, format)
    left, right, lists = ((renamed or {}).get(name, name) for name in (*PAIR_COLUMNS, "interleaved"))
    if not {left, right} <= set(file.names):
        return False
    cells = (cells for _, cells in read_rows(file, {"lists": lists}) if isinstance(cells, Mapping))
    return lists not in file.names or all(cell["lists"] is None for cell in cells)


def _iter_records(
    path: File, format: str, columns: Columns, rows: LogReport, strict: bool
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number of each row of a table, or of each JSON record, and its fields by tacit's names.

    Malformed rows are counted as rejected in ``rows``; under ``strict`` they raise LogError.
    """
    with reading(path, format):
        if format == "json":
            source: Iterator[tuple[int, Any]] = read_records(path)
        else:
            source = _read_table(path, format, columns)
        for row, record in source:
            if isinstance(record, Mapping):
                yield row, _rename_fields(record, columns)
                continue
            rows.read += 1
            rows.reject_row(MALFORMED, Example(str(path), row, "row", record), strict)


def _rename_fields(record: Mapping[str, Any], columns: Columns) -> Mapping[str, Any]:
    """Return a copy of a record in which renamed columns also have tacit's names."""
    if not columns.renamed:
        return record
    return {**record, **{ours: record.get(theirs) for ours, theirs in columns.renamed.items()}}


def _read_table(path: File, format: str, columns: Columns) -> Iterator[tuple[int, Any]]:
    """Yield number and cells of each row of a table, with only the columns that searches need.

    Raises LogError if the table lacks a required column, or one of ``unit`` or ``by``.
    """
    file = open_file(path, format)
    present = file.names
    read_names = {
        *ROW_COLUMNS,
        *OPTIONAL_COLUMNS,
        *DUEL_COLUMNS,
        *columns.unit_names,
        *columns.by,
        *columns.renamed.values(),
    }
    read_names |= {*columns.find_unit_candidates(present)}
    file_columns = [name for name in present if name in read_names]
    _refuse_missing_columns(str(path), columns, present)
    for name in (*columns.by, *((columns.unit,) if columns.unit else ())):
        if name not in present:
            _refuse_column(columns, name, present)
    yield from read_rows(file, {name: name for name in file_columns})


# Records -------------------------------------------------------------------------------------


def _add_record(assembly: SearchAssembler, record: Mapping[str, Any], where: str, columns: Columns) -> None:
    """Add a record of any kind to its search: an event, a duel, a response, a query or a row.

    Its segments and, if it has one, its unit are added to the search, too; without a unit, its columns that
    may hold the unit are recorded. ``where`` is the id of a duel that has none. Raises InvalidValue if the
    record is invalid.
    """
    owner = next((get_field(record, name) for name in columns.unit_names if get_field(record, name)), None)
    unit = None if owner is None else parse_text("unit", owner)
    segments = {name: get_field(record, name) for name in columns.by}
    if is_event(record):
        search = _add_event(assembly, record)
    elif record.get("left") is not None and record.get("right") is not None:
        complete_search = parse_duel_row(record, where)
        assembly.add_search(complete_search)
        search = complete_search.id
    elif is_result(record):
        search = get_search_id(record)
        hits = hits_of(record)
        for place, hit in enumerate(hits):
            assembly.add_result(search, place, hit.id, hit.team)
    elif record.get("query_id") is not None and "team" not in record:
        # A UBI query: it has the unit and the segments of the search.
        search = parse_text("query_id", record["query_id"])
    else:
        search = _add_row(assembly, record)
    assembly.add_attributes(search, unit, segments)
    for name in columns.find_unit_candidates(record) if unit is None else ():
        if record[name] is not None:
            assembly.unit_candidates.setdefault(name, {})[search] = record[name]


def _add_event(assembly: SearchAssembler, record: Mapping[str, Any]) -> str:
    """Add a UBI event to its search and return the search's id.

    A click or other action is added as an action; a view adds the result, if its ranker and position are
    known.
    """
    event = parse_event(record)
    team = get_event_team(record)
    name = event.objects[0] if event.objects else None
    place = None if event.ordinal is None else event.ordinal - 1
    if event.action in EXAMINED:
        if team is not None and place is not None and name is not None:
            assembly.add_result(event.query, place, name, team)
        return event.query
    amount = get_field(record, "amount")
    worth = 1.0 if amount is None else checks.number("amount", amount, 0.0, 1e300)
    assembly.add_action(event.query, event.action, worth, place, name, team)
    return event.query


def _add_row(assembly: SearchAssembler, record: Mapping[str, Any]) -> str:
    """Add a row's result, and its action if it has one, to its search; return the search's id.

    Without columns ``click`` and ``action`` each row is a click. Rows without a click are counted.
    """
    search = parse_text("search", record.get("search"))
    position = checks.amount("position", record.get("position"))
    team, item = record.get("team"), record.get("item")
    team = None if team in (None, "") else checks.ranker("team", parse_text("team", team))
    item = None if item in (None, "") else parse_text("item", item)
    # An empty cell is no click, unless another action is named.
    is_click = "click" not in record or bool(record.get("action"))
    clicks = checks.amount("click", record.get("click"), default=float(is_click))
    kind = parse_text("action", record.get("action") or CLICK)
    amount = checks.amount("amount", record.get("amount"), default=1.0)
    is_repeated = assembly.add_result(search, position, item, team)
    if clicks > 0:
        assembly.add_action(search, kind, amount, position)
    else:
        assembly.unclicked[is_repeated] += 1
    return search


# ---- From files of interleaved searches to a report

MAX_CLICK_SHARE = 0.9
"""Share of clicked results above which the log must lack rows without a click."""
MAX_SEGMENT_VALUES = 9
"""Most values of a column that is a segment of users rather than an id of users."""
UNIT_AND_SEGMENTS = (
    "; that which says whose a search is goes with unit= (--unit), one of segments with by= (--by)"
)


def check_search_columns(columns: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the renamed columns of a log of searches, {} for None; raise InvalidValue if one is unknown.

    Raises
    ------
    InvalidValue
    """
    check_columns(
        columns or {},
        [*ROW_COLUMNS, *OPTIONAL_COLUMNS, *DUEL_COLUMNS],
        "a log of searches",
        more=UNIT_AND_SEGMENTS,
    )
    return columns or {}


def read_interleaved(
    paths: str | Path | Sequence[str | Path],
    *,
    rule: CreditRule | None = None,
    unit: str | None = None,
    by: Sequence[str] = (),
    wins: bool = False,
    depth: int | None = None,
    confidence: float = 0.95,
    false_share: float = 0.05,
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    strict: bool = False,
    most_rejected: float = MAX_REJECTED,
) -> tuple[InterleavedReport, LogReport]:
    """Read a log of searches that showed interleaved lists, and return the report on their rankers.

    Issues AssumptionWarning if data look wrong, such as repeated rows or missing rows without clicks.

    Parameters
    ----------
    paths : path, or sequence of them
        Files, folders or patterns of Parquet, CSV or JSON lines: rows of (search, team, position,
        click), responses of OpenSearch, Elasticsearch or Solr with UBI events, or tacit's own log of
        duels; see docs/interleaving.md.
    rule : CreditRule, optional
        Credit of actions; by default 1 for a click.
    unit : str, optional
        The column or field with the user or session of a search.
    by : sequence of str
        Columns or fields of segments, such as the market.
    wins : bool, default False
        Whether a search counts 1 for its winner, in place of its difference of credit.
    depth : int, optional
        Number of positions from the top that earn credit.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    false_share : float, default 0.05
        False discovery rate among the segments reported as different.
    columns : dict, optional
        From tacit's names of columns to the file's.
    format : {"parquet", "csv", "json"}, optional
        By default from the suffix.
    strict : bool, default False
        Whether to stop at the first invalid row, instead of counting it.
    most_rejected : float, default 0.05
        The largest share of invalid rows, as for :func:`tacit.read_log`.

    Returns
    -------
    report : InterleavedReport
    rows : LogReport
        Counts of valid and rejected rows.

    Raises
    ------
    LogError
        If a file cannot be read, or the files have fewer than two rankers; TooManyRejected.
    InvalidValue
        If an option is wrong.
    """
    sources = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(sources, Sequence) or not all(isinstance(path, str | Path) for path in sources):
        raise InvalidValue("paths", paths, "give files, such as ['searches.jsonl']; write tables into one")
    depth = None if depth is None else checks.integer("depth", depth, 1)
    share = checks.number("most_rejected", most_rejected, 0.0, 1.0)
    column_names = Columns(unit, tuple(checks.names("by", by)), check_search_columns(columns))
    result_columns = {
        column_names.renamed.get(name, name)
        for name in (*ROW_COLUMNS[1:], *OPTIONAL_COLUMNS, "outcome", "clicks")
    }
    if wrong := [name for name in column_names.by if name in result_columns]:
        remedy = "it is of what a search showed, or of what was done; give what is so of whole searches"
        raise InvalidValue("by", wrong[0], f"{remedy}, such as the market")
    files = collect_files(sources, list_suffixes(format))
    assembly, rows = read_searches(files, column_names, format=format, strict=strict)
    names = assembly.rankers
    if len(names) < 2:
        reason = (
            f"two rankers are needed, there are {names}: name each result's in team, or two others in left "
        )
        reason += f"and right; {rows.summary()}"
        if not rows.kept:
            reason = f"none of its rows can be used; {rows.summary()}" if rows.read else NO_ROWS
        raise LogError(f"{', '.join(map(str, sources))}: {reason}")
    rows.check_limit(share)
    warn_of_rows(names, rows)
    searches = list(assembly.searches())
    _refuse_unmixed(searches)
    doubts = (
        []
        if "wrong-team" in rows.rejected
        else [_copies_warning(assembly.unclicked), _data_warning(searches)]
    )
    doubts.append(_unit_warning(assembly.unit_candidates))
    for doubt in filter(None, doubts):
        warnings.warn(doubt, AssumptionWarning, stacklevel=2)
    rule = check_rule(rule, searches)
    accumulator = SearchAccumulator(rule, by, wins=wins, depth=depth)
    for search in searches:
        accumulator.add(search)
    sums = accumulator.compute_sums(names)
    sums.uncredited.update(assembly.uncredited)
    return InterleavedReport(sums, confidence, false_share), rows


def _refuse_unmixed(searches: Sequence[Search]) -> None:
    """Raise LogError if every search with several results shows results of one ranker only.

    That is an A/B test; with fewer than 100 such searches there is no error.
    """
    team_lists = [search.shown.memory.get("teams") or () for search in searches]
    mixed = [len({*teams} - {None}) > 1 for teams in team_lists if len(teams) - teams.count(None) > 1]
    if len(mixed) >= MIN_ROWS and not any(mixed):
        message = (
            f"team: none of {len(mixed):,} searches shows results of two rankers, so nothing was interleaved"
        )
        remedy = "say which ranker gave each result; what shows a search one ranker alone is an A/B "
        remedy += "test: tacit evaluate judges it, with --constant propensity=0.5"
        raise LogError(f"{message}; {remedy}")


def _count_team_agreement(search: Search) -> int:
    """Return 1 if the item shown where the rankings first differ is the one that its team ranked there.

    −1 if it is the one of the other ranking, 0 if this cannot be decided.
    """
    teams = search.shown.memory.get("teams") or ()
    pairs = enumerate(zip(*search.rankings, strict=False)) if search.rankings else ()
    index = next((index for index, (left_item, right_item) in pairs if left_item != right_item), len(teams))
    if index >= len(teams) or teams[index] is None or not search.rankings:
        return 0
    lists = search.rankings if teams[index] == 0 else search.rankings[::-1]
    is_from_team, is_from_rival = (bool(items[index] == search.shown.items[index]) for items in lists)
    return is_from_team - is_from_rival


def _copies_warning(unclicked: Mapping[bool, int]) -> str:
    """Return a warning if most rows without a click repeat an earlier row, else "".

    ``unclicked`` has the numbers of repeated (True) and of new (False) rows.
    """
    copies = unclicked[True]
    if copies < max(MIN_ROWS, MAX_CLICK_SHARE * unclicked[False]):
        return ""
    message = f"search: {copies:,} rows repeat search and position of others, and clicks count anew"
    return f"{message}; leave copies out"


def _unit_warning(candidates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a warning that names a column which may hold the units of the searches, else "".

    ``candidates`` has, for each such column, its value for each search.
    """
    for name, unit_of_search in candidates.items():
        values = len(set(map(str, unit_of_search.values())))
        if MAX_SEGMENT_VALUES < values < len(unit_of_search):
            message = (
                f"unit: each search counts as of a user of its own; if {name!r}, of {values:,} values, says "
            )
            return f"{message}whose it is, give unit={name!r} (--unit {name})"
    return ""


def _data_warning(searches: Sequence[Search]) -> str:
    """Return a warning if the searches together suggest an error in the data, else "".

    Examples are clicks on nearly all results, no click at all, one result per search, one unit, swapped
    rankings. With fewer than 100 searches there is none.
    """
    if len(searches) < MIN_ROWS:
        return ""
    results = sum(len(search.shown.items) for search in searches)
    clicks = sum(map(count_clicked_results, searches))
    if clicks >= MAX_CLICK_SHARE * results:
        text = (
            f"click: {clicks:,} of {results:,} results have one; are the rows without a click missing? Give"
        )
        return f"{text} a row for each result that was shown, and the column that says whether it was clicked"
    if not any(search.actions for search in searches):
        remedy = "give what says it, by columns={'click': ...} (--column click=...)"
        return f"click: no result of {len(searches):,} searches has one; {remedy}"
    if results == len(searches):
        text = "search: each shows one result; if they are rows of longer lists, give what all of a list have"
        return f"{text} in common, by columns={{'search': ...}} (--column search=...)"
    if len(units := {search.unit for search in searches}) == 1:
        text = f"unit: {len(searches):,} searches are of {units.pop()!r} alone, which tells nothing of others"
        return f"{text}; give what tells users apart, by unit='user' (--unit user)"
    agreements = Counter(map(_count_team_agreement, searches))
    if agreements[-1] > agreements[1]:
        share = f"{agreements[-1]:,} of {agreements.total():,}"
        text = f"rankings: in {share} searches what a ranker gave is the other's"
        return f"{text}; give left and right, and the lists of rankings and interleaved, in one order"
    return ""
