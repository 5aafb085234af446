"""What changes a placement: requests, of each what it does, and marks of the log, of each what was changed.

Each aspect says it of its own; here stands how to find it, and what belongs to no aspect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.log.marks import LoggedChange, regime_of
from tacit.service.log.rows import CONFIGURATION, FORGET, POLICY, SETTINGS, START, MarkRow
from tacit.service.placements.aspects.aspect import Effect, Note
from tacit.service.placements.state import ASPECTS


class NewSettings(msgspec.Struct, frozen=True):
    """Other settings of a placement, as its kind encodes them."""

    text: str


CHANGES: dict[type, Effect] = {
    **{asked: effect for aspect in ASPECTS.values() for asked, effect in aspect.changes.items()},
    NewSettings: Effect(SETTINGS, lambda placement, asked, time: asked.text, lambda placement, time: None),
}
"""By the type of what is asked."""
OF_MARK = {aspect.mark: aspect for aspect in ASPECTS.values() if aspect.mark is not None}
AS_IT_IS = SETTINGS, CONFIGURATION, START, FORGET
"""Marks whose value has the details as JSON."""


def changes_of(marks: Iterable[MarkRow], arms: Sequence[Arm]) -> list[LoggedChange]:
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
    [LoggedChange(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    changes: list[LoggedChange] = []
    before: dict[str, MarkRow] = {}
    for mark in marks:
        if mark.kind in OF_MARK:
            change = OF_MARK[mark.kind].change(mark, before.get(mark.kind), arms)
            before[mark.kind] = mark
        elif mark.kind == POLICY:
            change = _regime(mark)
        elif mark.kind in AS_IT_IS:
            change = mark.kind, json.loads(mark.value)
        else:
            change = None
        # Of some it follows from the configuration what they say.
        if change is not None:
            changes.append(LoggedChange(mark.time, mark.who, *change))
    return changes


def _regime(mark: MarkRow) -> Note:
    regime = regime_of(mark)
    detail = {"policy": regime.policy["name"], "left": regime.left}
    if regime.state is not None:
        detail["to"] = regime.state
    if regime.approximate:
        detail["approximate"] = regime.approximate
    return regime.what, detail


def words_of(change: LoggedChange, clock: Callable[[str], str]) -> str | None:
    """Return a change of an aspect in words, times by a clock; None for what its details say by themselves.

    Examples
    --------
    >>> words_of(LoggedChange(0, None, "mode", {"mode": "frozen"}), str)
    'mode: frozen'
    """
    aspect = OF_MARK.get(change.what)
    return None if aspect is None else aspect.words(change.detail, clock)
