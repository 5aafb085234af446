"""What changes a placement: of each request the mark that it makes in the log, and what is so then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tacit.service.config.holdout import ControlTable, HoldoutConfig
from tacit.service.log.ids import as_text
from tacit.service.log.marks import pin_text
from tacit.service.log.rows import ARMS, HOLDOUT, MODE, PIN, SETTINGS
from tacit.service.placements.living import ConfiguredArms, encoded
from tacit.service.placements.placement import Placement
from tacit.wire import control as wire


class NewSettings(msgspec.Struct, frozen=True):
    """Other settings of a placement, as its kind encodes them."""

    text: str


class Effect(NamedTuple):
    """What a request does to a placement.

    Attributes
    ----------
    kind : str
        Of the mark.
    mark : function
        Returns what the mark says, from the placement, the request and the time of the log; None
        where nothing changes. Raises TacitError where it cannot be; changes nothing itself.
    answer : function
        Returns what is so now, from the placement and the time.
    leads : bool
        Whether, of several shards, the first one changes first.
    """

    kind: str
    mark: Callable[[Placement, Any, int], str | None]
    answer: Callable[[Placement, int], Any]
    leads: bool = False


def _mode(placement: Placement, asked: wire.ModeOf, time: int) -> str:
    placement.check_mode(asked.mode)
    return asked.mode


def _mode_now(placement: Placement, time: int) -> wire.ModeNow:
    return wire.ModeNow(placement.mode)


def _arms(placement: Placement, asked: wire.ArmsOf, time: int) -> str:
    return encoded(placement.arms_after(asked))


def _arms_now(placement: Placement, time: int) -> wire.ArmsNow:
    return wire.ArmsNow(placement.offer.arms, placement.offer.retired)


def _pin(placement: Placement, asked: wire.PinOf, time: int) -> str:
    return pin_text(placement.pin_after(asked, time))


def _unpin(placement: Placement, asked: wire.Unpin, time: int) -> str | None:
    return None if placement.pin_at(time) is None else pin_text(None)


def _pin_now(placement: Placement, time: int) -> wire.PinNow:
    pin = placement.pin_at(time)
    return wire.PinNow(None if pin is None else wire.Pinned(pin.arms, as_text(pin.until)))


def _hold_out(placement: Placement, asked: wire.HoldoutOf, time: int) -> str:
    shown = asked.control
    control = shown if isinstance(shown, str) else ControlTable(arm=shown.arm)
    return placement.terms_after(HoldoutConfig(asked.share, control, asked.unit, asked.look), time)


def _end_holdout(placement: Placement, asked: wire.EndHoldout, time: int) -> str:
    return placement.terms_after(None, time)


def _holdout_now(placement: Placement, time: int) -> wire.HoldoutNow:
    holdout = placement.holdout
    return wire.HoldoutNow(None if holdout is None else wire.Holdout(**msgspec.to_builtins(holdout)))


def _settings(placement: Placement, asked: NewSettings, time: int) -> str:
    return asked.text


CHANGES: dict[type, Effect] = {
    wire.ModeOf: Effect(MODE, _mode, _mode_now),
    wire.ArmsOf: Effect(ARMS, _arms, _arms_now, leads=True),
    ConfiguredArms: Effect(ARMS, _arms, _arms_now),
    wire.PinOf: Effect(PIN, _pin, _pin_now),
    wire.Unpin: Effect(PIN, _unpin, _pin_now),
    wire.HoldoutOf: Effect(HOLDOUT, _hold_out, _holdout_now),
    wire.EndHoldout: Effect(HOLDOUT, _end_holdout, _holdout_now),
    NewSettings: Effect(SETTINGS, _settings, lambda placement, time: None),
}
"""By the type of what is asked."""
