"""One group of requests, applied to the placements; its rows wait in the order of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tacit.errors import TacitError
from tacit.learning.offer import Offer
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.engine.deciding import decide
from tacit.service.engine.pending import Key, PendingLog
from tacit.service.engine.recording import record
from tacit.service.log.pins import Pin, pin_text
from tacit.service.log.requests import (
    ChangeArms,
    ChangeHoldout,
    Decide,
    Export,
    PinArms,
    Record,
    Request,
    Switch,
)
from tacit.service.log.rows import ARMS, HOLDOUT, PIN, REWARD, TICK, FeedbackRow, Found
from tacit.service.placements.base import Placement
from tacit.service.placements.living import encoded


def apply(pending: PendingLog, requests: Sequence[Request], found: dict[Key, Found]) -> list[Any | Exception]:
    """Close windows, switch, change arms, pin, hold out, decide, record and export, in this order.

    Parameters
    ----------
    pending : PendingLog
    requests : sequence of Request
    found : dict
        What the store knows of what is :meth:`~PendingLog.unknown`.

    Returns
    -------
    list
        For each request its result, or the error that it met.
    """
    now = pending.time.advance()
    closing = pending.closing(now)
    if closing:
        _keep_closing(pending, requests, found, now)
    # The others have nothing due: for them no time needs to go by.
    touched = {request.placement for request in requests} | {p.name for p in closing}
    for name in touched:
        pending.placements[name].advance(now)
    before = pending.seq
    results: dict[int, Any] = {}
    kinds: defaultdict[type, dict[int, Any]] = defaultdict(dict)
    for i, request in enumerate(requests):
        kinds[type(request)][i] = request
    for kind, step in CHANGES.items():
        for i, change in kinds.pop(kind, {}).items():
            results[i] = step(pending, change, now)
    if Decide in kinds:
        results |= decide(pending, kinds[Decide], found, now)
    if Record in kinds:
        results |= record(pending, kinds[Record], found, now)
    for i, export in kinds.pop(Export, {}).items():
        results[i] = now, _exported(pending.placements[export.placement], export.everything)
    if closing and pending.seq == before:
        # Nothing else in the log says that these windows have closed.
        pending.log_mark(None, now, TICK, "")
    pending.touch(touched)
    return [results[i] for i in range(len(requests))]


def _keep_closing(
    pending: PendingLog, requests: Sequence[Request], found: dict[Key, Found], now: int
) -> None:
    """Remember the decisions that are asked for while their windows close."""
    for placement, named in pending.named(requests):
        windows = placement.windows
        for id in named:
            slot = windows.find(id)
            if slot is not None and windows.deadline(slot) <= now:
                row, contents = windows.row(slot), windows.contents(slot)
                times = windows.times_told(slot)
                nameless = [(None, (REWARD, None, None))] * times
                feedback = [
                    FeedbackRow(0, placement.id, row.seq, name, 0, *content)
                    for name, content in [*contents.items(), *nameless]
                ]
                found[placement.id, id] = Found(row, feedback[:times])


def _switch(pending: PendingLog, request: Switch, now: int) -> None:
    placement = pending.placements[request.placement]
    _, value, kind, who = request
    if placement.is_news(kind, value):
        placement.marked(pending.log_mark(placement.id, now, kind, value, who))


def _change_arms(pending: PendingLog, request: ChangeArms, now: int) -> Offer | TacitError:
    """Return the arms after a change, or why there is none."""
    placement = pending.placements[request.placement]
    try:
        after = placement.arms_after(request)
    except TacitError as error:
        return error
    _switch(pending, Switch(request.placement, encoded(after), ARMS, request.who), now)
    return placement.offer


def _pin(pending: PendingLog, request: PinArms, now: int) -> Pin | TacitError | None:
    """Return what is pinned after a request, or why it cannot be."""
    placement = pending.placements[request.placement]
    try:
        after = placement.pin_after(request, now)
    except TacitError as error:
        return error
    if after is not None or placement.pin_at(now) is not None:
        _switch(pending, Switch(request.placement, pin_text(after), PIN, request.who), now)
    return after


def _hold(pending: PendingLog, request: ChangeHoldout, now: int) -> HoldoutConfig | TacitError | None:
    """Return the holdout after a request, or why it cannot be."""
    placement = pending.placements[request.placement]
    try:
        terms = placement.terms_after(request, now)
    except TacitError as error:
        return error
    _switch(pending, Switch(request.placement, terms, HOLDOUT, request.who), now)
    return placement.holdout


CHANGES: dict[type, Callable[[PendingLog, Any, int], Any]] = {
    Switch: _switch,
    ChangeArms: _change_arms,
    PinArms: _pin,
    ChangeHoldout: _hold,
}
"""What is changed before anything is decided, in this order."""


def _exported(placement: Placement, everything: bool) -> dict[str, Any]:
    if placement.shared is None:
        return {}
    return placement.shared.told(placement.learner, everything)
