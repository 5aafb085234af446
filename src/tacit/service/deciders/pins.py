"""Pins: arms that every decision shows if they are on offer, with propensity 1, until a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.deciders.aspect import Aspect, Note, SavedState
from tacit.service.deciders.pinned import Pin
from tacit.service.log.ids import as_text
from tacit.service.log.rows import PIN, ChangeRow, encode_json
from tacit.service.log.store import Snapshot

UNPIN = "unpin"


def parse_pin(text: str) -> Pin | None:
    """Parse the pin in a change event's JSON value; None if the event removes the pin.

    Examples
    --------
    >>> parse_pin('{"arms":["a"],"until":5}'), parse_pin("null")
    (Pin(arms=['a'], until=5), None)
    """
    return msgspec.json.decode(text, type=Pin | None)


class Pins(Aspect):
    """The pin of a placement: arms that are shown to every impression that offers them, until a time.

    Otherwise the policy decides as if there were no pin. The time of a decision in the log determines whether
    the pin holds.

    Attributes
    ----------
    last : Pin or None
        Pin of the last change event; it may have ended.
    """

    change_kind = PIN

    def __init__(self) -> None:
        self.last: Pin | None = None

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: replace the pin, or remove it."""
        self.last = parse_pin(change.value)
        return 0

    def current(self) -> str:
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

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's field: {"pin": pin of the last change event or None}."""
        return {"pin": self.last}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the pin from a snapshot."""
        self.last = msgspec.convert(saved.pin, Pin | None)

    def summary(self, now: int) -> dict[str, Any]:
        """Return {"pinned": arms that are pinned now, or None}."""
        pin = self.get_pin(now)
        return {"pinned": None if pin is None else pin.arms}

    def make_remark(self, now: int) -> str | None:
        """Return the arms that are pinned now as text; None without a pin."""
        pin = self.get_pin(now)
        return None if pin is None else f"pinned: {', '.join(map(str, pin.arms))}"

    def get_reason_not_local(self, time: int | None) -> str | None:
        """Return that a pin holds at the time; None if none holds or no time is given."""
        return "it shows what is pinned" if time is not None and self.get_pin(time) is not None else None

    def get_pin(self, time: int) -> Pin | None:
        """Return the pin that holds at a time of the log; None if there is none or it has ended."""
        return self.last if self.last is not None and time < self.last.until else None
