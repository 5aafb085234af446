"""Who changed what of a placement, in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.service.log.changes import Change
from tacit.service.log.clock import as_time
from tacit.service.page.charts import Remark, clock_time

MOST_TOLD = 20
CONFIGURATION = "configuration"
ARMS = {"add": "added", "retire": "retired", "restore": "restored"}


class Told(NamedTuple):
    """A change as the page tells it."""

    when: str
    who: str
    what: str


def words(change: Change) -> str:
    """Return what was changed.

    Examples
    --------
    >>> words(Change(0, None, "mode", {"mode": "frozen"}))
    'mode: frozen'
    >>> words(Change(0, "ann", "arms", {"add": ["a"], "retire": [], "restore": ["b", "c"]}))
    'arm added: a; arms restored: b, c'
    >>> words(Change(0, None, "configuration", {"window": {"before": 30, "after": 60}}))
    'window: 30 to 60'
    >>> words(Change(0, None, "rebuild", {"policy": "UCB1", "left": "…"}))
    'rebuild: UCB1 decides'
    >>> words(Change(0, None, "pin", {"arms": ["a"], "until": "2026-05-03T12:00:00+00:00"}))
    'pinned until 3 May 12:00: a'
    """
    detail = change.detail
    if change.what == "arms":
        return "; ".join(
            f"arm{'s' if len(detail[key]) > 1 else ''} {verb}: {', '.join(map(str, detail[key]))}"
            for key, verb in ARMS.items()
            if detail.get(key)
        )
    if change.what == "pin":
        until = clock_time(as_time("until", detail["until"]))
        return f"pinned until {until}: {', '.join(map(str, detail['arms']))}"
    if change.what in ("rebuild", "rollback"):
        to = f" of {detail['to']}" if "to" in detail else ""
        return f"{change.what}: {detail['policy']}{to} decides"
    if change.what == "start":
        return f"started from {detail['file']}"
    if change.what == "mode":
        return f"mode: {detail.get('mode')}"
    parts = [f"{name}: {_value(value)}" for name, value in detail.items()]
    return "; ".join(parts) or change.what


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{_value(value['before'])} to {_value(value['after'])}"
    return value if isinstance(value, str) else json.dumps(value)


def remarks(changes: Sequence[Change]) -> list[Remark]:
    """Return changes for the charts."""
    return [Remark(change.time, words(change)) for change in changes]


def told(changes: Sequence[Change]) -> list[Told]:
    """Return the latest changes, the last first."""
    return [
        Told(clock_time(change.time), _who(change.who), words(change))
        for change in changes[: -MOST_TOLD - 1 : -1]
    ]


def _who(who: str | None) -> str:
    if who is None:
        return "\N{EN DASH}"
    return "the configuration" if who == CONFIGURATION else f"key {who}"
