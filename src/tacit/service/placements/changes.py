"""Requests that change a placement, and its change events in words."""

# 1. Pins, modes and items: checks of requests, and the values of their change events.
# 2. ``EFFECTS``: the effect of each type of request.
# 3. ``list_changes``, ``format_change``: change events in words.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tacit.errors import ConfigError, InvalidValue
from tacit.learning.catalogue import Catalogue
from tacit.learning.decisions import Arm
from tacit.policies.spec import format_policy_name
from tacit.service.config.lift_terms import parse_holdout
from tacit.service.deciders.arm_lifecycle import ArmLifecycle
from tacit.service.deciders.aspect import Note
from tacit.service.deciders.control_group import ControlGroup
from tacit.service.deciders.items import Items, ItemsChange
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.pinned import Pin
from tacit.service.deciders.pins import Pins
from tacit.service.log import rows
from tacit.service.log.change_events import LoggedChange, read_policy_version
from tacit.service.log.ids import as_text, parse_time
from tacit.service.log.rows import CONFIGURATION, FORGET, POLICY, START, ChangeRow, encode_json
from tacit.service.placements import arm_changes, holdout_changes
from tacit.service.placements.effect import Effect
from tacit.service.placements.holdout_changes import resolve_terms
from tacit.service.placements.placement import Placement
from tacit.service.projections.feed_offsets import FeedOffsets
from tacit.service.projections.feedback_rule import FeedbackRule
from tacit.service.projections.guardrail import Guardrail
from tacit.service.projections.shared_learning import SharedLearning
from tacit.wire import control as wire
from tacit.wire.decisions import ItemsGone, ItemsNow, ItemsOf
from tacit.wire.site import FedOf, Status

# ---- Pins


def _encode_pin(placement: Placement, request: wire.PinOf, time: int) -> str:
    """Return the change event's value for a request to pin arms; changes nothing.

    Raises
    ------
    InvalidValue
        If the pin is impossible.
    """
    until = parse_time("until", request.until)
    if until <= time:
        remedy = f"give a time after that of the service, which is {as_text(time)}"
        raise InvalidValue("until", as_text(until), remedy)
    return encode_json(Pin(_check_pinned_arms(placement, request.arms), until))


def _check_pinned_arms(placement: Placement, arms: Sequence[Arm]) -> list[Arm]:
    """Check the arms of a pin, and return them as the placement names them.

    Raises
    ------
    InvalidValue
        If they are none, too many or repeated, or one is not on offer.
    """
    most = placement.shows.max_pinned
    if not 0 < len(arms) <= most or len(set(arms)) < len(arms):
        count = "one arm" if most == 1 else f"1 to {most} arms, each once"
        raise InvalidValue("arms", list(arms), f"pin {count}")
    if not placement.lifecycle.arm_indices:
        # The offer comes with each request.
        return list(arms)
    offered = {str(arm): arm for arm in placement.offer.arms}
    for arm in arms:
        if str(arm) not in offered:
            raise InvalidValue("arms", arm, f"on offer are {', '.join(offered)}")
    return [offered[str(arm)] for arm in arms]


def _encode_unpin(placement: Placement, request: wire.Unpin, time: int) -> str | None:
    """Return the change event's value that removes a pin, or None if no pin holds; changes nothing."""
    return None if placement.pins.get_pin(time) is None else encode_json(None)


def _get_pin_status(placement: Placement, time: int) -> wire.PinNow:
    """Return the pin that holds at the time, or none, as the answer to a request."""
    pin = placement.pins.get_pin(time)
    if pin is None:
        return wire.PinNow(None)
    count, most = len(pin.arms), placement.shows.max_pinned
    full = min(most, len(placement.offer.arms) or most)
    short = f"arms: lists of {count} are shown while this holds, not of {full}; pin {full} to fill them"
    return wire.PinNow(wire.Pinned(pin.arms, as_text(pin.until), short if count < full else None))


# ---- Modes


def check_mode(placement: Placement, mode: str) -> None:
    """Check that a placement can change to a mode; changes nothing.

    Raises
    ------
    InvalidValue
        If the mode is impossible.
    """
    if mode not in rows.MODES:
        raise InvalidValue("mode", mode, f"give one of {', '.join(rows.MODES)}")
    if mode == rows.SHADOW and not placement.config.can_shadow:
        raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")
    if mode == rows.CONTROL and placement.holdout is None:
        raise InvalidValue("mode", mode, "give the placement a holdout first: its control is to decide")


def check_configured_mode(placement: Placement) -> None:
    """Check that the current mode still exists, and has the holdout that it needs.

    Raises
    ------
    ConfigError
        If the mode is one of 0.3, or the configuration has no holdout.
    """
    if placement.mode not in rows.MODES:
        raise ConfigError(
            f"placements.{placement.name}.mode: {placement.mode!r}: version 0.3 was the last to have it; set "
            f"another mode with tacit 0.3 first: tacit placement mode {placement.name} --mode online"
        )
    if placement.modes.control_decides and parse_holdout(resolve_terms(placement)) is None:
        raise ConfigError(
            f"placements.{placement.name}.holdout: its control decides everything (mode 'control'); "
            "set another mode before the holdout goes"
        )


def _encode_mode(placement: Placement, request: wire.ModeOf, time: int) -> str:
    """Return the requested mode as the change event's value if the placement can have it; changes nothing."""
    check_mode(placement, request.mode)
    return request.mode


# ---- Items of a catalogue


def _get_catalogue(placement: Placement) -> Catalogue:
    """Return the catalogue of a placement's learner.

    Raises
    ------
    InvalidValue
        If the placement has none.
    """
    if placement.items is None:
        why = 'it has no catalogue; ask one of kind = "features" that knows its arms by relevance_dim alone'
        raise InvalidValue("placement", placement.name, why)
    return placement.learner.items


def _encode_items(placement: Placement, request: ItemsOf, time: int) -> str:
    """Return the change event's value that puts items into a catalogue; changes nothing.

    Raises
    ------
    InvalidValue
        If an item does not fit, or there is no catalogue.
    """
    items = _get_catalogue(placement)
    for i, item in enumerate(request.items):
        if len(item.vector) != items.dim:
            remedy = f"the policy reads {items.dim} numbers of each item"
            raise InvalidValue(f"items[{i}].vector", f"{len(item.vector)} numbers", remedy)
        for field, text in (("id", item.id), ("segment", item.segment or "")):
            if "\0" in text:
                raise InvalidValue(f"items[{i}].{field}", text, "leave out the character U+0000")
    ids, segments = [item.id for item in request.items], [item.segment for item in request.items]
    names, halves, segments = items.validate(ids, [item.vector for item in request.items], segments)
    return encode_json(ItemsChange(names, halves.tobytes(), segments if any(segments) else []))


def _encode_removal(placement: Placement, request: ItemsGone, time: int) -> str:
    """Return the change event's value that removes items from a catalogue; changes nothing.

    Raises
    ------
    InvalidValue, UnknownName
        If an item is missing or named twice, or there is no catalogue.
    """
    return encode_json(ItemsChange(_get_catalogue(placement).check_present(request.ids)))


def get_items_status(placement: Placement, time: int = 0) -> ItemsNow:
    """Return the size, version and segments of a placement's catalogue.

    Raises
    ------
    InvalidValue
        If the placement has none.
    """
    _get_catalogue(placement)
    assert placement.items is not None
    return placement.items.get_status()


# ---- The effect of each type of request


EFFECTS: dict[type, Effect] = {
    wire.ModeOf: Effect(rows.MODE, _encode_mode, lambda placement, time: wire.ModeNow(placement.mode)),
    wire.PinOf: Effect(rows.PIN, _encode_pin, _get_pin_status),
    wire.Unpin: Effect(rows.PIN, _encode_unpin, _get_pin_status),
    ItemsOf: Effect(rows.ITEMS, _encode_items, get_items_status),
    ItemsGone: Effect(rows.ITEMS, _encode_removal, get_items_status),
    FedOf: Effect(
        rows.FED, lambda placement, request, time: encode_json(request), lambda placement, time: Status("ok")
    ),
    **arm_changes.EFFECTS,
    **holdout_changes.EFFECTS,
}
"""The effect of each type of request that changes a placement."""

# ---- Change events in words

ASPECTS = FeedbackRule, ArmLifecycle, Modes, Pins, ControlGroup, Guardrail, SharedLearning, Items, FeedOffsets
ASPECT_BY_KIND = {aspect.change_kind: aspect for aspect in ASPECTS}
JSON_KINDS = CONFIGURATION, START, FORGET
"""Kinds of change events whose value is the details as JSON."""


def list_changes(rows: Iterable[ChangeRow], initial_arms: Sequence[Arm]) -> list[LoggedChange]:
    """Return the changes of a placement, with kind and details, from its change events in order.

    Change events that follow from a change of the configuration are left out.

    Parameters
    ----------
    rows : iterable of ChangeRow
        All change events of one placement.
    initial_arms : sequence of arms
        Arms that the placement began with.

    Examples
    --------
    >>> rows = [ChangeRow(9, 1, 5, "mode", "frozen", "shop")]
    >>> list_changes(rows, ["a"])
    [LoggedChange(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    changes: list[LoggedChange] = []
    before: dict[str, ChangeRow] = {}
    for row in rows:
        if row.kind in ASPECT_BY_KIND:
            change = ASPECT_BY_KIND[row.kind].parse_change(row, before.get(row.kind), initial_arms)
            before[row.kind] = row
        elif row.kind == POLICY:
            change = _describe_policy_version(row)
        elif row.kind in JSON_KINDS:
            change = row.kind, json.loads(row.value)
        else:
            change = None
        # Changes that follow from the configuration have a change event of their own.
        if change is not None:
            changes.append(LoggedChange(row.time, row.who, *change))
    return changes


def _describe_policy_version(change: ChangeRow) -> Note:
    """Return what replaced the policy, "rebuild" or "rollback", and its details.

    The details are the new policy, when the previous one was left, the state that was restored, and caveats.
    """
    version = read_policy_version(change)
    detail: dict[str, Any] = {"policy": format_policy_name(version.policy), "left": version.left}
    if version.state is not None:
        detail["to"] = version.state
    if version.approximate:
        detail["approximate"] = version.approximate
    return version.what, detail


def format_change(change: LoggedChange, clock: Callable[[str], str]) -> str | None:
    """Return a change as text, with times formatted by ``clock``; None if it has no text of its own.

    Examples
    --------
    >>> format_change(LoggedChange(0, None, "mode", {"mode": "frozen"}), str)
    'mode: frozen'
    """
    aspect = ASPECT_BY_KIND.get(change.what)
    return None if aspect is None else aspect.format_change(change.detail, clock)
