"""Pins: arms that every decision shows if they are on offer, with propensity 1, until a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.service.log.ids import as_text, parse_time
from tacit.service.log.requests import Impression
from tacit.service.log.rows import PIN, PINNED, PINNED_FROZEN, ChangeRow, encode_json
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, SavedState
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


UNPIN = "unpin"


class Pin(msgspec.Struct, frozen=True):
    """A pin, as a change event of the log holds it.

    Attributes
    ----------
    arms : list of arms
        One arm, or the top of a list.
    until : int
        End of the pin, in microseconds since 1970.
    """

    arms: list[int | str]
    until: int


def parse_pin(text: str) -> Pin | None:
    """Parse the pin in a change event's JSON value; None if the event removes the pin.

    Examples
    --------
    >>> parse_pin('{"arms":["a"],"until":5}'), parse_pin("null")
    (Pin(arms=['a'], until=5), None)
    """
    return msgspec.json.decode(text, type=Pin | None)


class Pins(Aspect):
    """Shows the pinned arms if an impression offers them.

    Otherwise the policy decides as if there were no pin. The time of a decision determines whether a pin
    holds, so the log determines it, too.

    Attributes
    ----------
    last : Pin or None
        Pin of the last change event; it may have ended.
    """

    change_kind = PIN

    def __init__(self) -> None:
        self.last: Pin | None = None

    def apply_change(self, placement: Placement, change: ChangeRow) -> None:
        """Apply a change event: set another pin, or none."""
        self.last = parse_pin(change.value)

    def current(self, placement: Placement) -> str:
        """Return the pin of the last change event as JSON; "null" without one."""
        return encode_json(self.last)

    @staticmethod
    def parse_change(change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]) -> Note:
        """Return ("pin", {"arms": …, "until": …}) for a pin, ("unpin", {}) for its removal."""
        pin = parse_pin(change.value)
        return (UNPIN, {}) if pin is None else (PIN, {"arms": pin.arms, "until": as_text(pin.until)})

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a pin as text.

        Examples
        --------
        >>> Pins.format_change({"arms": ["a"], "until": "2026-05-03T12:00:00+00:00"}, str)
        'pinned until 2026-05-03T12:00:00+00:00: a'
        """
        return f"pinned until {clock(detail['until'])}: {', '.join(map(str, detail['arms']))}"

    def save_state(self, placement: Placement) -> dict[str, Any]:
        """Return the snapshot's field: {"pin": pin of the last change event or None}."""
        return {"pin": self.last}

    def restore(self, placement: Placement, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the pin from a snapshot."""
        self.last = msgspec.convert(saved.pin, Pin | None)

    def export_part(self, placement: Placement) -> Pin | None:
        """Return the pin of a shard's last change event."""
        return self.last

    def merge_parts(self, placement: Placement, parts: Sequence[Pin | None]) -> None:
        """Take over the pin of the first shard: all shards have it."""
        self.last = parts[0]

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return {"pinned": arms that are pinned now, or None}."""
        pin = self.get_pin(now)
        return {"pinned": None if pin is None else pin.arms}

    def remark(self, placement: Placement, now: int) -> str | None:
        """Return the arms that are pinned now as text; None without a pin."""
        pin = self.get_pin(now)
        return None if pin is None else f"pinned: {', '.join(map(str, pin.arms))}"

    def reason_not_local(self, placement: Placement, time: int | None) -> str | None:
        """Return that a pin holds at the time; None if none does or no time is given."""
        return "it shows what is pinned" if time is not None and self.get_pin(time) is not None else None

    def get_pin(self, time: int) -> Pin | None:
        """Return the pin that holds at a time of the log; None if there is none or it has ended."""
        return self.last if self.last is not None and time < self.last.until else None

    def get_pinned_action(
        self, placement: Placement, impression: Impression, time: int
    ) -> tuple[Arm, ...] | None:
        """Return the arms that a pin shows to an impression at a time of the log.

        None if the policy decides: no pin holds, or the impression does not offer all pinned arms.
        """
        pin = self.get_pin(time)
        if pin is None or not set(pin.arms) <= set(placement.list_offer(impression)):
            return None
        return placement.pin_action(pin.arms)

    @staticmethod
    def mode(placement: Placement) -> str:
        """Return the mode that the log gives to decisions that show a pin; another one while frozen."""
        return PINNED_FROZEN if placement.modes.frozen else PINNED

    def plan_pin(self, placement: Placement, request: wire.PinOf, time: int) -> Pin:
        """Return the pin that a request at a time of the log would set; changes nothing.

        Raises
        ------
        InvalidValue
            If the pin is impossible.
        """
        until = parse_time("until", request.until)
        if until <= time:
            remedy = f"give a time after that of the service, which is {as_text(time)}"
            raise InvalidValue("until", as_text(until), remedy)
        return Pin(_check_arms(placement, request.arms), until)


def _check_arms(placement: Placement, arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms to pin as the placement names them.

    Raises
    ------
    InvalidValue
        If they are none, too many or repeated, or one is not on offer.
    """
    most = placement.max_pinned
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


# ---- The verbs that change it


def _pin(placement: Placement, request: wire.PinOf, time: int) -> str:
    """Return the change event's value for a request to pin arms; changes nothing."""
    return encode_json(placement.pins.plan_pin(placement, request, time))


def _unpin(placement: Placement, request: wire.Unpin, time: int) -> str | None:
    """Return the change event's value that removes the pin; None if no pin holds. Changes nothing."""
    return None if placement.pins.get_pin(time) is None else encode_json(None)


def _get_status(placement: Placement, time: int) -> wire.PinNow:
    """Return the pin that holds at the time, or none, as the answer to a request."""
    pin = placement.pins.get_pin(time)
    return wire.PinNow(None if pin is None else wire.Pinned(pin.arms, as_text(pin.until)))


Pins.effects = {wire.PinOf: Effect(PIN, _pin, _get_status), wire.Unpin: Effect(PIN, _unpin, _get_status)}
