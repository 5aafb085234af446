"""What is pinned: shown by every decision that offers it, with propensity 1, until a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.service.log.ids import as_text, as_time
from tacit.service.log.requests import Impression
from tacit.service.log.rows import PIN, PINNED, PINNED_FROZEN, MarkRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


UNPIN = "unpin"


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


def pin_of(text: str) -> Pin | None:
    """Return what a mark's value says is pinned.

    Examples
    --------
    >>> pin_of('{"arms":["a"],"until":5}'), pin_of("null")
    (Pin(arms=['a'], until=5), None)
    """
    return msgspec.json.decode(text, type=Pin | None)


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
        return text_of(self.last)

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note:
        """Return what was pinned by a mark, or that nothing is any more."""
        pin = pin_of(mark.value)
        return (UNPIN, {}) if pin is None else (PIN, {"arms": pin.arms, "until": as_text(pin.until)})

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Return what was pinned, in words.

        Examples
        --------
        >>> Pins.words({"arms": ["a"], "until": "2026-05-03T12:00:00+00:00"}, str)
        'pinned until 2026-05-03T12:00:00+00:00: a'
        """
        return f"pinned until {clock(detail['until'])}: {', '.join(map(str, detail['arms']))}"

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"pin": self.last}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.last = msgspec.convert(saved.pin, Pin | None)

    def part(self, placement: Placement) -> Pin | None:
        """Return what the last mark of a shard left."""
        return self.last

    def show(self, placement: Placement, parts: Sequence[Pin | None]) -> None:
        """Show what is pinned in the first shard: it was pinned in all."""
        self.last = parts[0]

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return the arms that are pinned."""
        pin = self.at(now)
        return {"pinned": None if pin is None else pin.arms}

    def remark(self, placement: Placement, now: int) -> str | None:
        """Return what is pinned."""
        pin = self.at(now)
        return None if pin is None else f"pinned: {', '.join(map(str, pin.arms))}"

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made next to the caller."""
        return "it shows what is pinned" if time is not None and self.at(time) is not None else None

    def at(self, time: int) -> Pin | None:
        """Return what is pinned at a time of the log."""
        return self.last if self.last is not None and time < self.last.until else None

    def shown(self, placement: Placement, impression: Impression, time: int) -> tuple[Arm, ...] | None:
        """Return what an impression shows because it is pinned; None where the policy decides."""
        pin = self.at(time)
        if pin is None or not set(pin.arms) <= set(placement.can_show(impression)):
            return None
        return placement.shown_fixed(pin.arms)

    @staticmethod
    def mode(placement: Placement) -> str:
        """Return the mode by which the log tells a decision that shows what is pinned."""
        return PINNED_FROZEN if placement.modes.frozen else PINNED

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
    most = placement.most_fixed
    if not 0 < len(arms) <= most or len(set(arms)) < len(arms):
        count = "one arm" if most == 1 else f"1 to {most} arms, each once"
        raise InvalidValue("arms", list(arms), f"pin {count}")
    if not placement.living.slots:
        # What is on offer comes with each request.
        return list(arms)
    offered = {str(arm): arm for arm in placement.offer.arms}
    for arm in arms:
        if str(arm) not in offered:
            raise InvalidValue("arms", arm, f"on offer are {', '.join(offered)}")
    return [offered[str(arm)] for arm in arms]


# ---- The verbs that change it


def _pin(placement: Placement, asked: wire.PinOf, time: int) -> str:
    return text_of(placement.pins.after(placement, asked, time))


def _unpin(placement: Placement, asked: wire.Unpin, time: int) -> str | None:
    return None if placement.pins.at(time) is None else text_of(None)


def _now(placement: Placement, time: int) -> wire.PinNow:
    pin = placement.pins.at(time)
    return wire.PinNow(None if pin is None else wire.Pinned(pin.arms, as_text(pin.until)))


Pins.changes = {wire.PinOf: Effect(PIN, _pin, _now), wire.Unpin: Effect(PIN, _unpin, _now)}
