"""Read User Behavior Insights (UBI) 1.3 as a click log: one row per object that a query returned.

Query and event records may be in separate or the same files. The files are read twice: first the
events, which are kept in memory per query and object, then the queries, in a stream.
"""

# 1. ``UbiReport``: counts of valid and rejected records.
# 2. ``UbiReader``: two passes; ``_collect_events`` gathers rewards per object, ``_iter_rows`` makes a row
#    of each result.
# 3. ``read_ubi``: opens files or a folder.

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.logs import ubi_records
from tacit.logs.formats import File, FolderLayout, collect_files, detect_format, parquet_file
from tacit.logs.reader import BATCH_ROWS, CLIP, LogFile, LogReader, complete_columns, reading
from tacit.logs.rows import MALFORMED, Chunk, Example, LogReport, RawRows, check_rows
from tacit.logs.schema import SCHEMA

FORMAT = "ubi"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
QUERIES = "ubi_queries"
"""Prefix of files with queries, by which a folder is recognised."""
PLACEMENT = "ubi"
"""Placement of queries without an application."""
RETURNED, EXAMINED = "returned", "examined"
ATTRIBUTE_FIELDS = ("query_attributes", "event_attributes")


class RecordPlace(NamedTuple):
    """A record's file and row number."""

    source: str
    row: int


@dataclass
class UbiReport(LogReport):
    """Counts of UBI records; ``read`` and ``kept`` count rows of the click log, ``rejected`` also records.

    Attributes
    ----------
    queries, events : int
        Number of valid records.
    clicks, examined : int
        Number of events that were clicks, or views of an object.
    others : dict
        Number of events per other action.
    """

    queries: int = 0
    events: int = 0
    clicks: int = 0
    examined: int = 0
    others: dict[str, int] = field(default_factory=dict)

    def check_limit(self, share: float, *, ended: bool = True) -> None:
        """Raise TooManyRejected as for other logs, but only at the end, as events come before rows."""
        if ended:
            super().check_limit(share)

    def summary(self) -> str:
        """Return counts of queries, events and rows, and reasons of rejection, as text."""
        text = f"{self.queries} queries, {self.events} events: {self.clicks} clicks, {self.examined} examined"
        other_counts = (f", {count} {action}" for action, count in sorted(self.others.items()))
        return f"{text}{''.join(other_counts)}\n{super().summary()}"


class UbiReader(LogReader):
    """UBI records in files as a click log; returned by :func:`read_ubi`.

    Parameters
    ----------
    files : sequence of path
    clicks, examined, seen, length, **options
        As for :func:`read_ubi`.
    """

    def __init__(
        self,
        files: Sequence[File],
        clicks: Collection[str] | Mapping[str, float],
        examined: Collection[str],
        seen: str,
        length: int | None,
        **options: Any,
    ) -> None:
        """Validate the options; raise InvalidValue if one is wrong. No record is read."""
        super().__init__([], **options)
        if seen not in (RETURNED, EXAMINED):
            raise InvalidValue("seen", seen, f"give {RETURNED!r} or {EXAMINED!r}")
        self.length = None if length is None else checks.integer("length", length, 1)
        self.seen = seen
        named = clicks if isinstance(clicks, Mapping) else dict.fromkeys(checks.names("clicks", clicks), 1.0)
        self._clicks = {name: checks.finite(f"clicks.{name}", reward) for name, reward in named.items()}
        self._examined = frozenset(checks.names("examined", examined))
        self._places = list(files)
        # A query and its events may be in different files, so the log cannot be split.
        self.files = [LogFile(files[0], FORMAT, dict(zip(SCHEMA.names, SCHEMA.names, strict=True)))]

    def chunks(self, names: Collection[str] | None = None, needs_propensity: bool = False) -> Iterator[Chunk]:
        """Read the files twice, first events, then queries; yield one row per returned object in batches.

        Each batch has its file and the row numbers of its queries, and all columns of the schema, whatever
        ``names`` and ``needs_propensity`` are. Replaces ``report`` and counts records in it. At the end,
        queries of events that no file has are counted as rejected.

        Raises
        ------
        LogError
            If a file cannot be read, or under ``strict`` at the first invalid record.
        """
        self.report = report = UbiReport(reward_range=self.reward_range, clips=self.outside == CLIP)
        events = self._collect_events(report)
        yield from self._iter_rows(events, report)
        for query, (_, place) in events.items():
            self._reject(report, "unknown-query", Example(*place, "query_id", query))

    # Events ----------------------------------------------------------------------------------

    def _collect_events(self, report: UbiReport) -> _EventsByQuery:
        """Read all events; return, per query, the rewards of its objects and the place of its first event.

        The reward of an object is the largest of its events, None if it was only seen. Counts events and
        rejected records in ``report``.
        """
        events: _EventsByQuery = {}
        for place, record in self._iter_records(report):
            if not ubi_records.is_event(record):
                continue
            event = self._parse_record(report, place, ubi_records.parse_event, record)
            if event is None:
                continue
            report.events += 1
            reward = self._count_event(event, report)
            if reward is not None or event.action in self._examined:
                objects, _ = events.setdefault(event.query, ({}, place))
                object = _Object(event.objects, event.ordinal)
                objects[object] = _join_rewards(objects.get(object), reward)
        return events

    def _count_event(self, event: ubi_records.UbiEvent, report: UbiReport) -> float | None:
        """Count an event by its kind of action in ``report``; return its reward or None.

        It is that of a click, by default 1, else the event's own reward, or None.
        """
        if event.action in self._clicks:
            report.clicks += 1
            return self._clicks[event.action]
        if event.action in self._examined:
            report.examined += 1
        else:
            report.others[event.action] = report.others.get(event.action, 0) + 1
        # A reward outside the range makes its row invalid, as in any log.
        return None if event.reward is None else float(event.reward)

    # Queries ---------------------------------------------------------------------------------

    def _iter_rows(self, events: _EventsByQuery, report: UbiReport) -> Iterator[Chunk]:
        """Read all queries and yield the valid rows of their results in batches of one file.

        Removes each query's entry from ``events``, so that only events of unknown queries remain. Counts
        queries in ``report``, and rejects repeated queries and queries without results.
        """
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        source = ""
        query_ids: set[str] = set()
        # Without a report: malformed records were counted with the events.
        for place, record in self._iter_records(report=None):
            if ubi_records.is_event(record):
                continue
            if rows and (len(rows) >= self.batch_rows or place.source != source):
                yield self._check_rows(rows, numbers, source, report)
                rows, numbers = [], []
            source = place.source
            query = self._parse_record(report, place, ubi_records.parse_query, record)
            if query is None:
                continue
            if query.id in query_ids:
                self._reject(report, "repeated-query", Example(*place, "query_id", query.id))
                continue
            query_ids.add(query.id)
            objects, _ = events.pop(query.id, ({}, None))
            report.queries += 1
            if query.hits is None:
                field = "query_response_hit_ids"
                self._reject(report, f"missing-{field}", Example(*place, field, value=None))
                continue
            query_rows = self._make_rows(query, self._locate_rewards(query, objects, place, report))
            rows += query_rows
            numbers += [place.row] * len(query_rows)
        if rows:
            yield self._check_rows(rows, numbers, source, report)

    def _locate_rewards(
        self,
        query: ubi_records.UbiQuery,
        objects: Mapping[_Object, float | None],
        place: RecordPlace,
        report: UbiReport,
    ) -> dict[int, float]:
        """Return a query's rewards by position, for positions with events; 0 for objects that were only seen.

        ``objects`` are the rewards of its events by object, ``place`` is the query's record. Objects that the
        query did not return are counted as rejected in ``report``.
        """
        rewards: dict[int, float | None] = {}
        for object, reward in objects.items():
            position = ubi_records.find_position(*object, query.hits or ())
            if position is None:
                object_name = object.names[0] if object.names else object.ordinal
                example = Example(*place, "event_attributes.object", object_name)
                self._reject(report, "unknown-object", example)
            else:
                rewards[position] = _join_rewards(rewards.get(position), reward)
        return {position: reward or 0.0 for position, reward in rewards.items()}

    def _make_rows(self, query: ubi_records.UbiQuery, rewards: Mapping[int, float]) -> list[dict[str, Any]]:
        """Return one dict per result of a query, with the columns of a click log.

        Results beyond ``length``, and with seen="examined" results without an event, are left out.
        """
        hits = (query.hits or ())[: self.length]
        attributes = query.attributes
        lists = (attributes.get(name) for name in ("propensities", "position_propensities"))
        by_position = [dict(enumerate(values)) if isinstance(values, list) else None for values in lists]
        propensities, position_propensities = by_position[0], by_position[1] or {}
        if propensities is None:  # a single result may have one number in place of a list
            propensities = {0: attributes.get("propensity")} if len(hits) == 1 else {}
        return [
            {
                "timestamp": query.time,
                "decision_id": attributes.get("decision_id", query.id),
                "placement": attributes.get("placement") or query.application or PLACEMENT,
                "key": query.text,
                "arms": attributes.get("arms", hits),
                "arm": hit,
                "position": position,
                "propensity": propensities.get(position),
                "position_propensity": position_propensities.get(position),
                "reward": rewards.get(position, 0.0),
                "context": attributes.get("context"),
                "policy": attributes.get("policy"),
                "version": attributes.get("version"),
            }
            for position, hit in enumerate(hits)
            if self.seen == RETURNED or position in rewards
        ]

    def _check_rows(
        self, rows: list[dict[str, Any]], numbers: list[int], source: str, report: UbiReport
    ) -> Chunk:
        """Return the valid rows as a chunk; ``numbers`` are the row numbers of their queries.

        Constants replace columns. Counts all rows in ``report``.
        """
        names = {name: name for name in SCHEMA.names if name not in self._constant_names}
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
        raw = complete_columns(RawRows(columns, np.array(numbers, np.int64), []), names, self.constants)
        return check_rows(raw, source, report, strict=self.strict)

    # Records ---------------------------------------------------------------------------------

    def _iter_records(self, report: UbiReport | None) -> Iterator[tuple[RecordPlace, dict[str, Any]]]:
        """Yield every record of all files with its place; count malformed ones in ``report``, if any."""
        for path in self._places:
            form = detect_format(path)
            with reading(path, form):
                records = _iter_parquet(path) if form == "parquet" else ubi_records.read_records(path)
                for row, record in records:
                    place = RecordPlace(str(path), row)
                    if isinstance(record, dict):
                        yield place, record
                    elif report is not None:
                        self._reject(report, MALFORMED, Example(*place, "row", record))

    def _parse_record(self, report: UbiReport, place: RecordPlace, read: Any, record: dict[str, Any]) -> Any:
        """Return ``read(record)``; on InvalidValue count the record as rejected and return None."""
        try:
            return read(record)
        except InvalidValue as error:
            reason = "missing" if error.value is None else "wrong"
            example = Example(*place, error.field, error.value, remedy=error.allowed)
            self._reject(report, f"{reason}-{error.field}", example)

    def _reject(self, report: UbiReport, reason: str, example: Example) -> None:
        """Count a record as read and rejected in ``report``, or raise LogError if the reader is strict."""
        report.reject_row(reason, example, self.strict)
        report.read += 1


def _join_rewards(earlier: float | None, reward: float | None) -> float | None:
    """Return the larger of two rewards of an object, each None if it was only seen."""
    return max((value for value in (earlier, reward) if value is not None), default=None)


class _Object(NamedTuple):
    """The object of an event: its ids and its ordinal."""

    names: tuple[str, ...]
    ordinal: int | None


_EventsByQuery = dict[str, tuple[dict[_Object, float | None], RecordPlace]]
"""Per query, the rewards of the objects with events, and the place of the first event record."""


def _iter_parquet(path: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a Parquet file with their row numbers, without empty fields, as of JSON."""
    row = 0
    with parquet_file(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            for record in batch.to_pylist():
                row += 1
                fields = {name: value for name, value in record.items() if value is not None}
                yield row, {name: _to_json_value(name, value) for name, value in fields.items()}


def _to_json_value(name: str, value: Any) -> Any:
    """Return a value of Parquet in its JSON form: times as text, attributes that are JSON text parsed."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _to_json_value(key, inner) for key, inner in value.items() if inner is not None}
    if name in ATTRIBUTE_FIELDS and isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def is_ubi(folder: Path) -> bool:
    """True if a folder has a file whose name begins with "ubi_queries", of JSON lines or Parquet."""
    files = islice(folder.glob(f"{QUERIES}*"), 100)
    return folder.is_dir() and any(file.suffix in SUFFIXES for file in files)


def read_ubi(
    path: str | Path | Sequence[str | Path],
    *,
    clicks: Collection[str] | Mapping[str, float] = ubi_records.CLICKS,
    examined: Collection[str] = ubi_records.EXAMINED,
    seen: str = RETURNED,
    length: int | None = None,
    constants: Mapping[str, Any] | None = None,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> UbiReader:
    """Return a reader of User Behavior Insights (UBI 1.3) as a click log: one row per object returned.

    Each query is a decision; its key is the user's text, its placement the application. The arms are the
    objects that were returned, the position is an object's rank. Values in ``query_attributes.tacit`` take
    precedence, and may add a propensity, a policy and its version. The reward is 1 if the object was
    clicked.

    Parameters
    ----------
    path : path, or sequence of them
        Files of JSON lines (also bulk requests, or hits with ``_source``) or Parquet, folders of
        these, or patterns. Queries and events may be in separate or the same files.
    clicks : collection of str, or dict
        Names of actions that are clicks; or the reward of each, such as ``{"click": 0.3, "purchase": 1}``, of
        which an object that was returned gets the largest.
    examined : collection of str
        Names of actions that mean that the user saw an object.
    seen : {"returned", "examined"}
        Which objects become rows: all that were returned, or only those with an event that they were
        seen or clicked.
    length : int, optional
        Most objects that a page shows; objects returned beyond are left out.
    constants, strict, batch_rows
        As for :func:`read_log`.

    Returns
    -------
    UbiReader

    Raises
    ------
    LogError
        If there is nothing to read.
    InvalidValue
        If an option is wrong.

    References
    ----------
    o19s/ubi, schema 1.3.0.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> query = {
    ...     "query_id": "1",
    ...     "user_query": "toner",
    ...     "timestamp": "2025-02-26T12:00:00Z",
    ...     "query_response_hit_ids": ["a", "b"],
    ... }
    >>> click = {
    ...     "action_name": "click",
    ...     "query_id": "1",
    ...     "timestamp": "2025-02-26T12:00:05Z",
    ...     "event_attributes": {"object": {"object_id": "b"}, "position": {"ordinal": 2}},
    ... }
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "ubi.ndjson"
    >>> _ = path.write_text(f"{json.dumps(query)}\\n{json.dumps(click)}\\n")
    >>> [batch.select(["key", "arm", "reward"]).to_pylist() for batch in read_ubi(path)]
    [[{'key': 'toner', 'arm': 'a', 'reward': 0.0}, {'key': 'toner', 'arm': 'b', 'reward': 1.0}]]
    """
    places = [path] if isinstance(path, str | Path) else list(path)
    files = collect_files(places, SUFFIXES)
    for file in files:
        if detect_format(file) == "csv":
            raise InvalidValue("path", str(file), "give JSON lines, or Parquet")
    options: dict[str, Any] = {"constants": constants, "strict": strict, "batch_rows": batch_rows}
    return UbiReader(files, clicks, examined, seen, length, **options)


def _open_ubi(places: Sequence[str | Path], columns: Mapping[str, str] | None, **options: Any) -> UbiReader:
    """Return a reader of UBI files; raise InvalidValue if columns are renamed."""
    if columns:
        raise InvalidValue("columns", columns, "leave them out: the fields of UBI are known")
    return read_ubi(places, **options)


UBI = FolderLayout(FORMAT, is_ubi, _open_ubi)
