"""What changes a placement: of each request what it does. Each aspect says it of its own requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tacit.service.log.rows import SETTINGS
from tacit.service.placements.aspects import control, elsewhere, items, living, modes, pins
from tacit.service.placements.aspects.aspect import Effect


class NewSettings(msgspec.Struct, frozen=True):
    """Other settings of a placement, as its kind encodes them."""

    text: str


OF_ASPECTS: list[Mapping[Any, Effect]] = [
    modes.CHANGES,
    living.CHANGES,
    pins.CHANGES,
    control.CHANGES,
    items.CHANGES,
    elsewhere.CHANGES,
]
CHANGES: dict[type, Effect] = {
    **{asked: effect for changes in OF_ASPECTS for asked, effect in changes.items()},
    NewSettings: Effect(SETTINGS, lambda placement, asked, time: asked.text, lambda placement, time: None),
}
"""By the type of what is asked."""
