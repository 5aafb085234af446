"""The log as files of User Behavior Insights (UBI 1.3) records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tacit.service.doors.ubi_records import Names
from tacit.service.log.rows import QUERY, DecisionRow, FeedbackRow
from tacit.service.log.store import Store

QUERIES, EVENTS = "ubi_queries", "ubi_events"


def export_ubi(store: Store, folder: Path) -> dict[str, int]:
    """Write the log to ``ubi_queries.ndjson`` and ``ubi_events.ndjson``, a record a line.

    What tacit knows besides (the decision's id, policy, its version, propensity, teams, the ids of
    feedback) stands in ``query_attributes.tacit`` and ``event_attributes.tacit``. Records that were
    kept beside the log follow as they came. :func:`tacit.logs.read_ubi` reads the folder.

    Returns
    -------
    dict of str to int
        How many records each file has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = {QUERIES: 0, EVENTS: 0}
    paths = {name: folder / f"{name}.ndjson" for name in counts}
    with paths[QUERIES].open("wb") as queries, paths[EVENTS].open("wb") as events:
        files = {QUERIES: queries, EVENTS: events}
        for name, line in _lines(store):
            files[name].write(line + b"\n")
            counts[name] += 1
    return counts


def _lines(store: Store) -> Iterator[tuple[str, bytes]]:
    encode = msgspec.json.Encoder().encode
    names = {stored.id: Names(name, stored) for name, stored in store.placements().items()}
    made: dict[int, DecisionRow] = {}
    for row in store.events(0):
        if isinstance(row, DecisionRow):
            made[row.seq] = row
            yield QUERIES, encode(names[row.placement].query(row))
        elif isinstance(row, FeedbackRow):
            decision = made[row.decision]
            for record in names[row.placement].events(decision, row):
                yield EVENTS, encode(record)
    for kept in store.records():
        yield QUERIES if kept.kind == QUERY else EVENTS, kept.content.encode()
