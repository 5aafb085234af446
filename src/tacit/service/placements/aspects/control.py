"""The control group of a placement's holdout: which decisions are the control's, and on what terms."""

# 1. ``ControlGroup``: the holdout that holds, its coin, and what the propensities are once it is tossed.
# 2. Whether a placement can have a holdout; the verbs that begin and end one.

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tacit.core.arrays import Ints
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm, Decisions
from tacit.service.config.holdout import DECISION, UNIFORM, ControlTable, HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.ids import as_text
from tacit.service.log.rows import CONFIGURATION, HOLDOUT, DecisionRow, MarkRow, by_two, some_by_two
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.service.placements.aspects.chapters import configured_in, holdout_in, terms_of
from tacit.service.placements.aspects.coin import Coin, ListControl
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class ControlGroup(Aspect):
    """The holdout, its coin, and what the propensities are once it is tossed.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        None where nothing is held out.

    Attributes
    ----------
    holdout : HoldoutConfig or None
    coin : Coin or None
        Knows the slot of the control's arm.
    """

    mark = HOLDOUT

    def __init__(self, holdout: HoldoutConfig | None) -> None:
        self.holdout = holdout
        self.coin: Coin | None = None
        # Entries of open decisions that a control's own policy made.
        self.not_own: set[int] = set()

    def arms_named(self, placement: Placement) -> None:
        """Have a coin that knows the slot of the control's arm."""
        holdout = self.holdout
        self.coin = None
        if holdout is not None:
            self.coin = Coin(holdout, placement.seed, placement.control_of(holdout))

    def hold_out(self, placement: Placement, holdout: HoldoutConfig | None) -> None:
        """Have another holdout, or none."""
        self.holdout = holdout
        self.arms_named(placement)

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark: another holdout, or none, from now on."""
        self.hold_out(placement, holdout_in(mark.value))
        sticky = self.holdout is not None and self.holdout.unit != DECISION
        placement.earnings.sums.begin(mark.value, mark.seq, mark.time, clustered=sticky)

    def current(self, placement: Placement) -> str:
        """Return what the last mark says, or would say."""
        return placement.earnings.sums.terms

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its part of a snapshot, which the sums behind the lift have."""
        if saved.lift is not None:
            self.hold_out(placement, holdout_in(placement.earnings.sums.terms))

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note | None:
        """Return another holdout, or none; of one that is configured, the configuration's own mark tells."""
        if mark.who == CONFIGURATION:
            return None
        return HOLDOUT, {"holdout": (json.loads(mark.value) or {}).get("holdout")}

    def show(self, placement: Placement, parts: Sequence[None]) -> None:
        """Show the holdout on which the sums of all shards rest."""
        self.hold_out(placement, holdout_in(placement.earnings.sums.terms))

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made next to the caller."""
        return None if self.coin is None else "the coin of its holdout is tossed here"

    # Terms -----------------------------------------------------------------------------------

    def terms(self, placement: Placement) -> str:
        """Return what the sums behind the lift shall rest on, as JSON; with other terms they begin anew.

        What somebody has put in the place of the configured holdout stays until that is changed.
        """
        configured = placement.config.holdout
        stays = configured_in(placement.earnings.sums.terms) == configured
        return _terms_with(placement.config, self.holdout if stays else configured)

    def after(self, placement: Placement, holdout: HoldoutConfig | None, time: int) -> str:
        """Return the terms with another holdout at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If the placement cannot have such a holdout.
        """
        if placement.two:
            remedy = "a control's own policy is set in the configuration, and taken over at SIGHUP"
            raise InvalidValue("holdout", placement.name, remedy)
        if holdout is not None:
            _check(placement, holdout, time)
        elif placement.modes.control_decides:
            remedy = "set another mode first: its control decides everything"
            raise InvalidValue("holdout", placement.name, remedy)
        return _terms_with(placement.config, holdout)

    # Deciding --------------------------------------------------------------------------------

    def mixed(self, made: Decisions, offers: Sequence[Ints]) -> Decisions:
        """Return decisions with the propensities of policy and control together."""
        assert self.coin is not None
        coin, control = self.coin, self.coin.control
        mixed = replace(
            made, propensities=coin.mixed(made.propensities, control.chances(made.actions, offers))
        )
        if not len(made.prefixes) or not isinstance(control, ListControl):
            return mixed
        return replace(
            mixed,
            prefixes=coin.mixed(made.prefixes, control.prefixes(made.actions, offers)),
            places=coin.mixed(made.places, control.places(made.actions, offers)),
        )

    def alone(self, made: Decisions, offers: Sequence[Ints]) -> Decisions:
        """Return decisions with the propensities of the control, which decides everything."""
        assert self.coin is not None
        control = self.coin.control
        sure = replace(made, propensities=control.chances(made.actions, offers))
        if not len(made.prefixes) or not isinstance(control, ListControl):
            return sure
        return replace(
            sure, prefixes=control.prefixes(made.actions, offers), places=control.places(made.actions, offers)
        )

    def shows(self, offer: Ints) -> list[int] | None:
        """Return what the control shows of an offer always; None where it draws, or there is none."""
        if self.coin is None or self.coin.config.control == UNIFORM:
            return None
        return self.coin.control.shown(offer, 0).tolist()  # type: ignore[no-any-return]

    # Open decisions --------------------------------------------------------------------------

    def keep(self, entries: Ints, rows: Block[DecisionRow]) -> None:
        """Keep which new open decisions are not the placement's own policy's to learn from."""
        if self.not_own:
            self.not_own.difference_update(entries.tolist())
        if some_by_two(rows):
            made = zip(entries.tolist(), rows, strict=True)
            self.not_own.update(entry for entry, row in made if row.control and by_two(row))

    def own(self, entries: Sequence[int]) -> Sequence[int]:
        """Return the places of the open decisions that the placement's own policy learns from."""
        if not self.not_own:
            return range(len(entries))
        return [i for i, entry in enumerate(entries) if entry not in self.not_own]


def _terms_with(config: PlacementConfig, holdout: HoldoutConfig | None) -> str:
    if holdout == config.holdout:
        rules = {} if holdout is None else {"rule": config.rule, "metrics": config.metrics}
        return terms_of(holdout, rules)
    return terms_of(holdout, {"rule": config.rule, "metrics": config.metrics}, config.holdout)


def _check(placement: Placement, holdout: HoldoutConfig, time: int) -> None:
    """Check that a placement can have a holdout at a time of the log."""
    kind, offered = placement.kind, placement.offer.arms
    if holdout.arm is not None and holdout.arm not in offered:
        known = ", ".join(map(str, offered)) or "none: they come with requests"
        raise InvalidValue("control", holdout.arm, f"on offer are {known}")
    try:
        holdout.check(kind.name, kind.controls, kind.units)
    except ConfigError as error:
        raise InvalidValue("holdout", placement.name, str(error)) from error
    if holdout.looked is not None and holdout.looked <= time:
        remedy = f"plan it before the first decision: it is {as_text(time)} by now"
        raise InvalidValue("look", holdout.look, remedy)


# ---- The verbs that change it


def _hold_out(placement: Placement, asked: wire.HoldoutOf, time: int) -> str:
    shown = asked.control
    control = shown if isinstance(shown, str) else ControlTable(arm=shown.arm)
    holdout = HoldoutConfig(asked.share, control, asked.unit, asked.look)
    return placement.control.after(placement, holdout, time)


def _end(placement: Placement, asked: wire.EndHoldout, time: int) -> str:
    return placement.control.after(placement, None, time)


def _now(placement: Placement, time: int) -> wire.HoldoutNow:
    holdout = placement.holdout
    return wire.HoldoutNow(None if holdout is None else wire.Holdout(**msgspec.to_builtins(holdout)))


ControlGroup.changes = {
    wire.HoldoutOf: Effect(HOLDOUT, _hold_out, _now),
    wire.EndHoldout: Effect(HOLDOUT, _end, _now),
}
