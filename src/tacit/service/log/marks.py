"""Marks: what a placement's log says besides decisions and feedback.

Pins, starts and regimes, each with how a mark holds it; last the history of changes that the marks tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.log import rows
from tacit.service.log.ids import as_text

# ---- Pins: what a placement always shows until some time, whatever its policy would


class Pin(msgspec.Struct, frozen=True):
    """What is shown always, as a mark of the log holds it.

    Attributes
    ----------
    arms : list of arms
        One; of a list, those from the top.
    until : int
        From then on the policy decides again, in microseconds since 1970.
    """

    arms: list[int | str]
    until: int

    @property
    def shown(self) -> tuple[Arm, ...]:
        """The arms as a decision has them."""
        return tuple(self.arms)


def pin_text(pin: Pin | None) -> str:
    """Return a pin as a mark of the log holds it.

    Examples
    --------
    >>> pin_text(Pin(["a"], 5)), pin_text(None)
    ('{"arms":["a"],"until":5}', 'null')
    """
    return msgspec.json.encode(pin).decode()


def pin_of(text: str) -> Pin | None:
    """Return what :func:`pin_text` was given."""
    return msgspec.json.decode(text, type=Pin | None)


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
        return msgspec.json.encode(self).decode()


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
        return msgspec.json.encode(msgspec.structs.replace(self, seq=0)).decode()

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


def state_name(time: int, policy: str) -> str:
    """Return the name of what a policy had learned at a time.

    Examples
    --------
    >>> state_name(1_700_000_000_123_456, "UCB1")
    '2023-11-14T22:13:20.123456Z-UCB1'
    """
    return f"{as_text(time).removesuffix('+00:00')}Z-{policy}"


# ---- Who changed what of a placement, and when, by the marks of its log

UNPIN = "unpin"


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


def changes_of(marks: Iterable[rows.MarkRow], arms: Sequence[Arm]) -> list[LoggedChange]:
    """Return the changes that marks tell, in order.

    Parameters
    ----------
    marks : iterable of MarkRow
        Of one placement, from the first on.
    arms : sequence of arms
        Those that it began with.

    Examples
    --------
    >>> marks = [rows.MarkRow(9, 1, 5, "mode", "frozen", "shop")]
    >>> changes_of(marks, ["a"])
    [LoggedChange(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    changes: list[LoggedChange] = []
    before = list(arms), set[Arm]()
    for mark in marks:
        if mark.kind == rows.ARMS:
            after = _arms(mark.value)
            detail = _coming_and_going(before, after)
            before = after
        elif mark.kind == rows.PIN:
            pin = pin_of(mark.value)
            if pin is None:
                changes.append(LoggedChange(mark.time, mark.who, UNPIN, {}))
                continue
            detail = {"arms": pin.arms, "until": as_text(pin.until)}
        elif mark.kind == rows.POLICY:
            regime = regime_of(mark)
            detail = {"policy": regime.policy["name"], "left": regime.left}
            if regime.state is not None:
                detail["to"] = regime.state
            if regime.approximate:
                detail["approximate"] = regime.approximate
            changes.append(LoggedChange(mark.time, mark.who, regime.what, detail))
            continue
        elif mark.kind == rows.HOLDOUT and mark.who != rows.CONFIGURATION:
            detail = {"holdout": (json.loads(mark.value) or {}).get("holdout")}
        elif mark.kind == rows.GUARDRAIL and (harm := json.loads(mark.value).get("harm")) is not None:
            detail = harm
        elif mark.kind in _DETAILS:
            detail = _DETAILS[mark.kind](mark.value)
        else:
            # What it says follows from the configuration.
            continue
        changes.append(LoggedChange(mark.time, mark.who, mark.kind, detail))
    return changes


def _arms(value: str) -> tuple[list[Arm], set[Arm]]:
    now = json.loads(value)
    arms = now["arms"]
    return list(range(arms)) if isinstance(arms, int) else arms, set(now["retired"])


def _coming_and_going(
    before: tuple[list[Arm], set[Arm]], after: tuple[list[Arm], set[Arm]]
) -> dict[str, Any]:
    """Return what was changed in the words in which it is asked for."""
    known, was_retired = before
    arms, retired = after
    return {
        "add": arms[len(known) :],
        "retire": [arm for arm in arms if arm in retired - was_retired],
        "restore": [arm for arm in arms if arm in was_retired - retired],
    }


_DETAILS: dict[str, Callable[[str], dict[str, Any]]] = {
    rows.MODE: lambda value: {"mode": value},
    rows.SETTINGS: json.loads,
    rows.CONFIGURATION: json.loads,
    rows.START: json.loads,
    rows.FORGET: json.loads,
}
