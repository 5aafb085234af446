"""What is pinned: shown by every decision that offers it, with propensity 1, until a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.service.log.ids import as_text, as_time
from tacit.service.log.marks import Pin, pin_of, pin_text
from tacit.service.log.requests import Impression
from tacit.service.log.rows import PIN, MarkRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Saved
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class Pins(Aspect):
    """Shows what is pinned where an impression offers it.

    What could not be shown is decided by the policy, as if nothing were pinned. The time of a decision says
    whether a pin still holds, so that the log says it, too.

    Attributes
    ----------
    last : Pin or None
        As the last mark left it; it may have ended since.
    """

    mark = PIN

    def __init__(self) -> None:
        self.last: Pin | None = None

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark."""
        self.last = pin_of(mark.value)

    def current(self, placement: Placement) -> str:
        """Return what the last mark says."""
        return pin_text(self.last)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"pin": self.last}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.last = saved.pin

    def at(self, time: int) -> Pin | None:
        """Return what is pinned at a time of the log."""
        return self.last if self.last is not None and time < self.last.until else None

    def shown(self, placement: Placement, impression: Impression, time: int) -> tuple[Arm, ...] | None:
        """Return what an impression shows because it is pinned; None where the policy decides."""
        pin = self.at(time)
        if pin is None or not set(pin.arms) <= set(placement.can_show(impression)):
            return None
        return placement.shown_pinned(pin)

    def after(self, placement: Placement, asked: wire.PinOf, time: int) -> Pin:
        """Return what is pinned after a request at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If that cannot be.
        """
        until = as_time("until", asked.until)
        if until <= time:
            remedy = f"give a time after that of the service, which is {as_text(time)}"
            raise InvalidValue("until", as_text(until), remedy)
        return Pin(_checked(placement, asked.arms), until)


def _checked(placement: Placement, arms: Sequence[Arm]) -> list[Arm]:
    """Return arms that can be pinned, by the names that the placement has for them."""
    kind = placement.kind
    if not kind.pinned:
        why = f"what is on offer at a placement of kind {kind.name!r} comes with requests"
        raise InvalidValue("placement", placement.name, f"nothing can be pinned: {why}")
    most = placement.most_pinned
    if not 0 < len(arms) <= most or len(set(arms)) < len(arms):
        some = "one arm" if most == 1 else f"1 to {most} arms, each once"
        raise InvalidValue("arms", list(arms), f"pin {some}")
    return placement.named_pins(arms)


# ---- The verbs that change it


def _pin(placement: Placement, asked: wire.PinOf, time: int) -> str:
    return pin_text(placement.pins.after(placement, asked, time))


def _unpin(placement: Placement, asked: wire.Unpin, time: int) -> str | None:
    return None if placement.pins.at(time) is None else pin_text(None)


def _now(placement: Placement, time: int) -> wire.PinNow:
    pin = placement.pins.at(time)
    return wire.PinNow(None if pin is None else wire.Pinned(pin.arms, as_text(pin.until)))


CHANGES = {wire.PinOf: Effect(PIN, _pin, _now), wire.Unpin: Effect(PIN, _unpin, _now)}
