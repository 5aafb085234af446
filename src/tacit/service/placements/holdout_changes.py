"""Changes of a placement's holdout: checks, and the terms that change events hold."""

from __future__ import annotations

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.service.config.holdout import USER, ControlTable, HoldoutConfig
from tacit.service.config.lift_terms import encode_terms, parse_configured_holdout
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.ids import as_text
from tacit.service.log.rows import HOLDOUT
from tacit.service.placements.effect import Effect
from tacit.service.placements.placement import Placement
from tacit.wire import control as wire


def resolve_terms(placement: Placement) -> str:
    """Return the terms of the reward sums as JSON: holdout, rule of rewards and metrics; changes nothing.

    If they differ from the current terms, the caller begins a new period. The holdout is the one that a
    request has set, as long as the configured one stays the same; otherwise the configured one. The terms are
    ``null`` if there is no holdout, neither configured nor set.
    """
    configured = placement.config.holdout
    stays = parse_configured_holdout(placement.reward_sums.sums.terms) == configured
    return _make_terms(placement.config, placement.holdout if stays else configured)


def make_terms(placement: Placement, holdout: HoldoutConfig | None, time: int) -> str:
    """Return the terms, as JSON, that a request for a holdout (None to end it) would set; changes nothing.

    Raises
    ------
    InvalidValue
        If the placement cannot have the holdout.
    """
    if placement.has_control_policy:
        remedy = "a control's own policy is set in the configuration, and taken over at SIGHUP"
        raise InvalidValue("holdout", placement.name, remedy)
    if holdout is not None:
        _check(placement, holdout, time)
    elif placement.modes.control_decides:
        remedy = "set another mode first: its control decides everything"
        raise InvalidValue("holdout", placement.name, remedy)
    return _make_terms(placement.config, holdout)


def _make_terms(config: PlacementConfig, holdout: HoldoutConfig | None) -> str:
    """Return the terms with a holdout as JSON; with the configured holdout, too, if it differs."""
    if holdout == config.holdout:
        rules = {} if holdout is None else {"rule": config.rule, "metrics": config.metrics}
        return encode_terms(holdout, rules)
    return encode_terms(holdout, {"rule": config.rule, "metrics": config.metrics}, config.holdout)


def _check(placement: Placement, holdout: HoldoutConfig, time: int) -> None:
    """Raise InvalidValue if the placement cannot have the holdout at a time of the log."""
    kind, offered = placement.kind, placement.offer.arms
    if holdout.arm is not None and holdout.arm not in offered:
        allowed = ", ".join(map(str, offered)) or "none: they come with requests"
        raise InvalidValue("control", holdout.arm, f"on offer are {allowed}")
    check_look(holdout, time)
    if placement.config.sticky is not None and holdout.unit != USER:
        raise InvalidValue("unit", holdout.unit, 'give "user": users keep their arms')
    try:
        holdout.check(kind.name, kind.controls)
    except ConfigError as error:
        raise InvalidValue("holdout", placement.name, str(error)) from error


def check_look(holdout: HoldoutConfig | None, time: int) -> None:
    """Check that the holdout's planned look, if any, lies after a time of the log.

    Raises
    ------
    InvalidValue
        If the look is not later.
    """
    if holdout is not None and holdout.look_time is not None and holdout.look_time <= time:
        remedy = f"plan a later one, or leave it out: it is {as_text(time)} by now"
        raise InvalidValue("look", holdout.look, remedy)


# ---- The verbs that change it


def _encode_begin(placement: Placement, request: wire.HoldoutOf, time: int) -> str:
    """Return the terms as JSON that a request to begin a holdout would set; changes nothing."""
    control_request = request.control
    control = control_request if isinstance(control_request, str) else ControlTable(arm=control_request.arm)
    holdout = HoldoutConfig(request.share, control, request.unit, request.look)
    return make_terms(placement, holdout, time)


def _encode_end(placement: Placement, request: wire.EndHoldout, time: int) -> str:
    """Return the terms as JSON that a request to end the holdout would set; changes nothing."""
    return make_terms(placement, holdout=None, time=time)


def _get_status(placement: Placement, time: int) -> wire.HoldoutNow:
    """Return the current holdout as the answer to a request."""
    holdout = placement.holdout
    return wire.HoldoutNow(None if holdout is None else wire.Holdout(**msgspec.to_builtins(holdout)))


EFFECTS: dict[type, Effect] = {
    wire.HoldoutOf: Effect(HOLDOUT, _encode_begin, _get_status),
    wire.EndHoldout: Effect(HOLDOUT, _encode_end, _get_status),
}
