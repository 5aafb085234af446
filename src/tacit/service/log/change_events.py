"""Marks: what a placement's log says besides decisions and feedback.

Starts and regimes, each with how a mark holds it; last what a change is that marks tell. What marks say of an
aspect of a placement is said there (:mod:`tacit.service.placements.aspects`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tacit.policies.spec import name_in
from tacit.service.log import rows
from tacit.service.log.ids import as_text

# ---- What a placement began with: a learner that was fitted elsewhere


class Start(msgspec.Struct, frozen=True):
    """A learner's file, as a mark of the log names it. What it held is where the log begins.

    Attributes
    ----------
    file : str
        Its name, without the folder.
    sha256 : str
        Of all that was in it.
    decisions, keys : int
        How many it had learned.
    """

    file: str
    sha256: str
    decisions: int
    keys: int

    @property
    def text(self) -> str:
        """It as the value of a mark."""
        return rows.text_of(self)


def start_of(plan: str) -> Start | None:
    """Return what the fold began with that a snapshot's plan describes.

    Examples
    --------
    >>> start_of('{"start": {"file": "a.tacit", "sha256": "…", "decisions": 9, "keys": 1}}').file
    'a.tacit'
    >>> start_of('{"rule": {}}')
    """
    start = json.loads(plan).get("start")
    return None if start is None else msgspec.convert(start, Start)


def marked_start(marks: Iterable[rows.MarkRow]) -> Start | None:
    """Return what a placement began with, by its marks."""
    found = (mark.value for mark in marks if mark.kind == rows.START)
    return next((msgspec.json.decode(value, type=Start) for value in found), None)


# ---- Regimes: which policy folds the log, and what of it teaches that policy

REBUILD, ROLLBACK = "rebuild", "rollback"


class Regime(msgspec.Struct, frozen=True):
    """From when on a placement has which policy, as a mark of the log holds it.

    Attributes
    ----------
    what : str
        ``rebuild`` or ``rollback``.
    policy : dict
        As :func:`tacit.policies.policy_to_spec` gives it, over the arms that the placement began
        with.
    number : int
        The store's for it.
    left : str
        The name of the state that was left.
    state : str or None
        The name of the state that was gone back to.
    origin : int or None
        The last row that this state had taken in.
    aside : list of (int, int, int)
        Rows between the first two of each teach the policy nothing; 0 stands for the row of the
        mark, while there is none yet. The third is the time until which windows had closed before.
    approximate : list of str
        What of the log could not be taken in as it was.
    seq : int
        The row of the mark; 0 while there is none yet.
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
        """It as the value of a mark."""
        return rows.text_of(msgspec.structs.replace(self, seq=0))

    def sets_aside(self, seq: int) -> int | None:
        """Return, of a row that teaches nothing, until when windows had closed before it.

        Examples
        --------
        >>> regime = Regime("rollback", {}, 1, "", aside=[(5, 9, 1_700_000_000_000_000)])
        >>> [seq for seq in range(12) if regime.sets_aside(seq) is not None]
        [6, 7, 8]
        """
        for after, before, closed in self.aside:
            if after < seq and (seq < before or not before):
                return closed
        return None


def regimes_of(marks: list[rows.MarkRow]) -> list[Regime]:
    """Return the regimes that marks of a placement tell, in order."""
    return [regime_of(mark) for mark in marks if mark.kind == rows.POLICY]


def regime_of(mark: rows.MarkRow) -> Regime:
    """Return the regime that a mark tells."""
    regime = msgspec.json.decode(mark.value, type=Regime)
    return msgspec.structs.replace(regime, seq=mark.seq)


def state_name(time: int, policy: Mapping[str, Any]) -> str:
    """Return the name of what a policy had learned at a time.

    Examples
    --------
    >>> state_name(1_700_000_000_123_456, {"name": "UCB1", "arms": 3})
    '2023-11-14T22:13:20.123456Z-UCB1'
    """
    return f"{as_text(time).removesuffix('+00:00')}Z-{name_in(policy)}"


# ---- Who changed what of a placement, and when, by the marks of its log


class LoggedChange(NamedTuple):
    """A change of a placement.

    Attributes
    ----------
    time : int
        Microseconds since 1970.
    who : str or None
        The name of the key with which it was made, or ``configuration``; None without keys.
    what : str
    detail : dict
    """

    time: int
    who: str | None
    what: str
    detail: dict[str, Any]
