"""What may be turned at a placement, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import State
from tacit.service.log.pins import Pin
from tacit.service.page.charts import clock_time
from tacit.service.page.overview import MODES
from tacit.service.page.reader import PlacementReader


class Controls(NamedTuple):
    """What may be turned.

    Attributes
    ----------
    keyed : bool
        Whether a key is asked for.
    modes : list of (str, str)
        Those that the placement can have, and what each does.
    holdout : HoldoutConfig or None
    holding : list of (str or dict, str), or str
        The controls that there can be, and what each is in words; or why it cannot be set here.
    units : tuple of str
        Who can stay in one group.
    fixed : str or None
        Why arms cannot change; None where they can.
    numbered : bool
        Whether arms are numbers.
    offered, retired : list of arms
    pinnable : bool
        Whether what is shown can be pinned.
    several : bool
        Whether several arms can be, as where lists are shown.
    pin : Pin or None
        What is pinned.
    until : str
        Until when.
    sharded : bool
        Whether it is in shards, where no log is folded anew.
    states : list of (str, str)
        What can be gone back to, the latest first: names, and what they are in words.
    """

    keyed: bool
    modes: list[tuple[str, str]]
    holdout: HoldoutConfig | None
    holding: list[tuple[Any, str]] | str
    units: tuple[str, ...]
    fixed: str | None
    numbered: bool
    offered: list[Any]
    retired: list[Any]
    pinnable: bool
    several: bool
    pin: Pin | None
    until: str
    sharded: bool
    states: list[tuple[str, str]]


def controls_of(
    placement: PlacementReader,
    config: Config,
    now: int,
    states: Sequence[State] = (),
    *,
    sharded: bool = False,
) -> Controls:
    """Return what may be turned at a placement.

    Parameters
    ----------
    placement : PlacementReader
    config : Config
        Of the service.
    now : int
        Microseconds since 1970.
    states : sequence of State
        What can be gone back to, in order.
    sharded : bool, default False
        Whether it is in shards.
    """
    pin = placement.pin_at(now)
    modes = []
    for mode in placement.modes:
        try:
            placement.check_mode(mode)
        except InvalidValue:
            continue
        modes.append((mode, MODES.get(mode, "")))
    fixed = None
    try:
        placement.check_living()
    except InvalidValue as error:
        fixed = error.allowed.removeprefix("its arms cannot change: ")
    offer = placement.offer
    return Controls(
        bool(config.keys),
        modes,
        placement.holdout,
        _holding(placement),
        placement.kind.units,
        fixed,
        isinstance(offer.all, int),
        offer.arms,
        offer.retired,
        placement.kind.pinned,
        not placement.shows_one or not offer.arms,
        pin,
        "" if pin is None else clock_time(pin.until),
        sharded,
        [(one.name, f"{clock_time(one.time)}, {one.policy['name']}") for one in states[::-1]],
    )


def _holding(placement: PlacementReader) -> list[tuple[Any, str]] | str:
    """Return the controls that a holdout can have, or why none can be set here."""
    kinds = placement.kind.controls
    if not kinds:
        return f"Placements of kind {placement.kind.name!r} have none."
    if placement.config.holdout is not None and placement.config.holdout.policy is not None:
        return "A control’s own policy is set in the configuration, and taken over at SIGHUP."
    named: list[tuple[Any, str]] = [(one, one) for one in ("uniform", "baseline") if one in kinds]
    arms = placement.offer.arms if "arm" in kinds else ()
    return named + [({"arm": arm}, f"arm {arm}") for arm in arms]
