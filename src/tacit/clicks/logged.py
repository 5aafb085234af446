"""Sessions of a click log, as click models are fitted to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.clicks.base import NOTHING
from tacit.core.arrays import Booleans, Ints
from tacit.errors import InvalidValue, LogError


class Sessions(NamedTuple):
    """Sessions, and what their kinds stand for.

    Attributes
    ----------
    shown : array of int64, shape (sessions, positions)
        The kind of each result, −1 for none.
    clicks : array of bool, of the same shape
    names : list of str, or of (str, str)
        What the kinds stand for: arms, or keys and arms.
    """

    shown: Ints
    clicks: Booleans
    names: list[Any]


def sessions_of(log: Any, kind: str = "key-arm", **reading: Any) -> Sessions:
    """Return the sessions of a click log: a row for each decision, in the order of the log.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        What :func:`tacit.read_log` takes, with the ``position`` of every arm. A reward above 0 is a
        click.
    kind : {"key-arm", "arm"}
        What has an attraction of its own: each pair of key and arm, or each arm.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Raises
    ------
    InvalidValue
        If there is no such kind.
    LogError
        If the log cannot be read or is empty, a row has no position, or two of a decision have the
        same.

    Examples
    --------
    >>> import pyarrow as pa
    >>> row = {"timestamp": "2025-02-26T12:00:00Z", "decision_id": "1", "placement": "home"}
    >>> row |= {"key": "toner", "arms": ["a", "b"]}
    >>> found = sessions_of(
    ...     pa.Table.from_pylist(
    ...         [
    ...             row | {"arm": "b", "position": 0, "reward": 0.0},
    ...             row | {"arm": "a", "position": 1, "reward": 1.0},
    ...         ]
    ...     )
    ... )
    >>> found.shown.tolist(), found.clicks.tolist(), found.names
    ([[0, 1]], [[False, True]], [('toner', 'b'), ('toner', 'a')])
    """
    from tacit.logs.selection import selected
    from tacit.logs.sources import opened

    if kind not in ("key-arm", "arm"):
        raise InvalidValue("kind", kind, "give 'key-arm' or 'arm'")
    columns = ["placement", "decision_id", "position", "key", "arm", "reward"]
    rows: dict[tuple[str, str], int] = {}
    kinds: dict[Any, int] = {}
    cells: dict[tuple[int, int], tuple[int, bool]] = {}
    for batch, source, numbers in selected(opened(log, **reading), columns):
        values = zip(numbers, *(batch[name].to_pylist() for name in columns), strict=True)
        for number, placement, decision, position, key, arm, reward in values:
            row = rows.setdefault((placement, decision), len(rows))
            name = arm if kind == "arm" else (key, arm)
            cell = kinds.setdefault(name, len(kinds)), (reward or 0.0) > 0.0
            if position is None or cells.setdefault((row, position), cell) is not cell:
                raise LogError(
                    f"{source}: row {number}: position: {position!r} is not allowed; give each "
                    "arm of a decision a place of its own"
                )
    shape = len(rows), 1 + max(position for _, position in cells)
    shown, clicks = np.full(shape, NOTHING, np.int64), np.zeros(shape, np.bool_)
    for at, (number, clicked) in cells.items():
        shown[at], clicks[at] = number, clicked
    return Sessions(shown, clicks, list(kinds))
