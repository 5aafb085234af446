"""Who changed what of a placement, and when, by the marks of its log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tacit.learning.decisions import Arm
from tacit.service.log.clock import as_text
from tacit.service.log.pins import pin_of
from tacit.service.log.regimes import regime_of
from tacit.service.log.rows import (
    ARMS,
    CONFIGURATION,
    FORGET,
    HOLDOUT,
    MODE,
    PIN,
    POLICY,
    SETTINGS,
    START,
    MarkRow,
)

UNPIN = "unpin"


class Change(NamedTuple):
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


def changes_of(marks: Iterable[MarkRow], arms: Sequence[Arm]) -> list[Change]:
    """Return the changes that marks tell, in order.

    Parameters
    ----------
    marks : iterable of MarkRow
        Of one placement, from the first on.
    arms : sequence of arms
        Those that it began with.

    Examples
    --------
    >>> marks = [MarkRow(9, 1, 5, "mode", "frozen", "shop")]
    >>> changes_of(marks, ["a"])
    [Change(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    told: list[Change] = []
    before = list(arms), set[Arm]()
    for mark in marks:
        if mark.kind == ARMS:
            after = _arms(mark.value)
            detail = _coming_and_going(before, after)
            before = after
        elif mark.kind == PIN:
            pin = pin_of(mark.value)
            if pin is None:
                told.append(Change(mark.time, mark.who, UNPIN, {}))
                continue
            detail = {"arms": pin.arms, "until": as_text(pin.until)}
        elif mark.kind == POLICY:
            regime = regime_of(mark)
            detail = {"policy": regime.policy["name"], "left": regime.left}
            if regime.state is not None:
                detail["to"] = regime.state
            if regime.approximate:
                detail["approximate"] = regime.approximate
            told.append(Change(mark.time, mark.who, regime.what, detail))
            continue
        elif mark.kind == HOLDOUT and mark.who != CONFIGURATION:
            detail = {"holdout": (json.loads(mark.value) or {}).get("holdout")}
        elif mark.kind in _DETAILS:
            detail = _DETAILS[mark.kind](mark.value)
        else:
            # What it says follows from the configuration.
            continue
        told.append(Change(mark.time, mark.who, mark.kind, detail))
    return told


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
    MODE: lambda value: {"mode": value},
    SETTINGS: json.loads,
    CONFIGURATION: json.loads,
    START: json.loads,
    FORGET: json.loads,
}
