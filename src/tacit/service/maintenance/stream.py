"""The log as a stream: its rows as JSON lines, each once, from any of them on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from tacit.errors import TacitError
from tacit.service.log.rows import DecisionRow, FeedbackRow, MarkRow
from tacit.service.log.store import Store

POLL_SECONDS = 0.2
"""How often a log is looked at that has nothing new."""
AT_ONCE = 5_000
"""Rows that are read in one transaction: whoever takes them slowly must not hold the store's files."""
JSON_FIELDS = "offered", "context", "asked", "shown", "clicks", "metrics"
"""What the log keeps as JSON in a text."""

SORTS = {DecisionRow: "decision", FeedbackRow: "feedback", MarkRow: "mark"}

logger = logging.getLogger(__name__)


def lines_after(store: Store, after: int) -> Iterator[tuple[int, str]]:
    """Yield the next rows after a number, in order, each with its number; nothing if there are none yet.

    Parameters
    ----------
    store : Store
    after : int

    Raises
    ------
    TacitError
        If the log does not reach so far.
    """
    names = {stored.id: name for name, stored in store.placements().items()}
    rows = list(islice(store.events(after), AT_ONCE))
    if not rows and after > (end := store.end().seq):
        raise TacitError(f"after: {after} is not in the log, which ends at {end}; give a number up to that")
    if rows and not after and rows[0].seq > 1:
        logger.warning("the log begins with row %s: those before it were dropped by age", rows[0].seq)
    for row in rows:
        yield row.seq, msgspec.json.encode(_as_dict(row, names)).decode()


def _as_dict(row: Any, names: dict[int, str]) -> dict[str, Any]:
    """Return what a row says: of which sort it is, its placement by name, and what has a value."""
    said = {"seq": row.seq, "row": SORTS[type(row)]} | row._asdict() | {"placement": names.get(row.placement)}
    return {
        field: msgspec.Raw(value.encode()) if field in JSON_FIELDS else value
        for field, value in said.items()
        if value is not None
    }
