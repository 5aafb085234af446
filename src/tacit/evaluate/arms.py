"""The arms that a log offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from tacit.errors import UnknownName
from tacit.logs.selection import list_codes, selected
from tacit.logs.sources import Reading, opened
from tacit.policies.base import Policy


def names_of(policy: Policy) -> list[str]:
    """Return the names of a policy's arms, in the order of their slots; numbers are names, too."""
    arms = policy.arms
    return [str(arm) for arm in (range(arms) if isinstance(arms, int) else arms)]


def unknown_arm(where: str, name: str, known: Sequence[str]) -> UnknownName:
    """Return the error that a policy does not know an arm of the log."""
    return UnknownName(
        f"{where}: arms: the policy has no arm {name!r}, it has {', '.join(map(repr, known))}; "
        "make it with arms=arms_of(log)"
    )


def arms_of(log: Any, **reading: Unpack[Reading]) -> tuple[str, ...]:
    """Return the distinct arms that a log ever offers, in the order of their names.

    Arms whose names are all whole numbers come in the order of the numbers.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        What :func:`tacit.read_log` takes; is read to its end.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Raises
    ------
    LogError
        If the log cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tacit.logs import read_log
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "clicks.csv"
    >>> _ = path.write_text(
    ...     "timestamp,decision_id,placement,key,arms,arm\\n"
    ...     '2017-07-04T12:00:00Z,1,home,tomato,"[10, 9]",9\\n'
    ... )
    >>> arms_of(path)
    ('9', '10')
    """
    return in_order(offered_in(opened(log, **reading)))


def offered_in(log: Any) -> set[str]:
    """Return the distinct arms that a log, or a part of one, ever offers."""
    names: set[str] = set()
    for chunk in selected(log, ()):
        names.update(_distinct(chunk.batch.column("arms")))
    return names


def _distinct(arms: Any) -> list[str]:
    if list_codes(arms) is not None:
        return list(arms[0].as_py())
    return list(arms.flatten().unique().to_pylist())


def in_order(names: set[str]) -> tuple[str, ...]:
    """Return arms in the order of their names, or of their numbers."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
