"""Change events: rows of a placement's log besides decisions and feedback.

This module has the values of two kinds of change events, the learner that a placement starts from and its
policy versions, and a change of a placement as users see it. The values of other kinds are in
:mod:`tacit.service.placements.changes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tacit.policies.spec import format_policy_name
from tacit.service.log import rows
from tacit.service.log.ids import as_text

# ---- The learner that a placement starts from


class StartFile(msgspec.Struct, frozen=True):
    """The file of a learner from which a placement starts, as a change event records it.

    Attributes
    ----------
    file : str
        Its name, without the folder.
    sha256 : str
        Hash of its content.
    decisions, keys : int
        Numbers of decisions and keys that the learner had learned.
    """

    file: str
    sha256: str
    decisions: int
    keys: int

    @property
    def text(self) -> str:
        """JSON for the value of a change event."""
        return rows.encode_json(self)


def read_plan_start(plan: str) -> StartFile | None:
    """Return the learner file named in a snapshot's plan, which is JSON; None if it names none.

    Examples
    --------
    >>> read_plan_start('{"start": {"file": "a.tacit", "sha256": "…", "decisions": 9, "keys": 1}}').file
    'a.tacit'
    >>> read_plan_start('{"rule": {}}')
    """
    start = json.loads(plan).get("start")
    return None if start is None else msgspec.convert(start, StartFile)


def find_start(changes: Iterable[rows.ChangeRow]) -> StartFile | None:
    """Return the learner file in a placement's first start event; None if it has no start event."""
    values = (change.value for change in changes if change.kind == rows.START)
    return next((msgspec.json.decode(value, type=StartFile) for value in values), None)


# ---- Policy versions: the policy that folds the log, and the rows that it does not learn from

REBUILD, ROLLBACK = "rebuild", "rollback"


class PolicyVersion(msgspec.Struct, frozen=True):
    """A policy that replaced a placement's policy by a rebuild or rollback, as a change event records it.

    Attributes
    ----------
    what : str
        ``rebuild`` or ``rollback``.
    policy : dict
        The policy as :func:`tacit.policies.policy_to_spec` returns it, over the placement's first arms.
    number : int
        Number of the policy in the store.
    left : str
        Name of the state that was replaced.
    state : str or None
        Name of the state that was restored by a rollback.
    origin : int or None
        Last row that the restored state had learned from.
    aside : list of (int, int, int)
        Ranges of rows that the policy does not learn from: the rows strictly between the first two
        numbers, where 0 stands for the row of this change event before it is logged. The third number is
        the time up to which windows had closed before the range.
    approximate : list of str
        Parts of the log that could only be learned approximately, in words.
    seq : int
        Row of the change event; 0 before it is logged.
    """

    what: str
    policy: dict[str, Any]
    number: int
    left: str
    state: str | None = None
    origin: int | None = None
    aside: list[tuple[int, int, int]] = []
    approximate: list[str] = []
    seq: int = 0

    @property
    def text(self) -> str:
        """JSON for the value of a change event."""
        return rows.encode_json(msgspec.structs.replace(self, seq=0))

    def find_skip_time(self, seq: int) -> int | None:
        """Return the time up to which windows had closed before a row that the policy does not learn from.

        None for rows that it learns from.

        Examples
        --------
        >>> version = PolicyVersion("rollback", {}, 1, "", aside=[(5, 9, 1_700_000_000_000_000)])
        >>> [seq for seq in range(12) if version.find_skip_time(seq) is not None]
        [6, 7, 8]
        """
        for after, before, closed in self.aside:
            if after < seq and (seq < before or not before):
                return closed
        return None


def read_policy_versions(changes: list[rows.ChangeRow]) -> list[PolicyVersion]:
    """Return the policy versions in the change events of a placement, in order."""
    return [read_policy_version(change) for change in changes if change.kind == rows.POLICY]


def read_policy_version(change: rows.ChangeRow) -> PolicyVersion:
    """Return the policy version in a change event of kind POLICY, with the event's row number."""
    return msgspec.structs.replace(msgspec.json.decode(change.value, type=PolicyVersion), seq=change.seq)


def name_state(time: int, policy: Mapping[str, Any]) -> str:
    """Return the name of a policy's learned state at a time, for rollbacks.

    Examples
    --------
    >>> name_state(1_700_000_000_123_456, {"name": "UCB1", "arms": 3})
    '2023-11-14T22:13:20.123456Z-UCB1'
    """
    return f"{as_text(time).removesuffix('+00:00')}Z-{format_policy_name(policy)}"


# ---- A change of a placement, as its history shows it


class LoggedChange(NamedTuple):
    """A change of a placement: when it was made, by whom, and its content.

    Attributes
    ----------
    time : int
        Microseconds since 1970.
    who : str or None
        Name of the API key that made it, or ``configuration``; None without keys.
    what : str
    detail : dict
    """

    time: int
    who: str | None
    what: str
    detail: dict[str, Any]
