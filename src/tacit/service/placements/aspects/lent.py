"""Decisions made next to the caller, with what was learned here: whether they can be; taken over as made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.service.log.blocks import Block
from tacit.service.log.requests import DecisionRequest, Impression, Made
from tacit.service.log.rows import DecisionRow

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

ARMS = "arms"


def check_takes_over(placement: Placement) -> None:
    """Check that a placement's decisions can be made elsewhere, be it not now.

    Raises
    ------
    InvalidValue
        If each of them needs something that only the service has.
    """
    why = None
    if placement.config.kind != ARMS:
        why = f"placements of kind {placement.config.kind!r} decide here"
    elif placement.signals is not None:
        why = "its signals are computed here"
    elif placement.control.coin is not None:
        why = "the coin of its holdout is tossed here"
    _refuse(placement, why)


def check_lends(placement: Placement, time: int) -> None:
    """Check that decisions may be made elsewhere at a time, with what was learned here.

    Raises
    ------
    InvalidValue
        As :func:`check_takes_over`; or if the policy does not decide by itself then.
    """
    check_takes_over(placement)
    modes = placement.modes
    if modes.compares or not modes.policy_decides:
        _refuse(placement, f"in mode {modes.now!r} each decision is compared here")
    if placement.pins.at(time) is not None:
        _refuse(placement, "it shows what is pinned")


def _refuse(placement: Placement, why: str | None) -> None:
    if why is not None:
        raise InvalidValue("placement", placement.name, f"ask the service for decisions: {why}")


def checked_made(placement: Placement, request: DecisionRequest, made: Made) -> Impression:
    """Return an impression that was decided elsewhere.

    Raises
    ------
    InvalidValue, UnknownName
        If the impression does not fit, the arm was not on offer, or the propensity is none, or none
        that the policy can have given, if this weighs by it.
    """
    impression, names = placement.checked(request), placement.living.names
    if made.arm not in placement.living.slots:
        raise InvalidValue("arm", made.arm, f"the placement has {', '.join(map(str, names))}")
    if impression.arms is not None and made.arm not in impression.arms:
        raise InvalidValue("arm", made.arm, f"on offer were {list(impression.arms)}")
    if made.propensity is not None:
        checks.number("propensity", made.propensity, 0.0, 1.0, open_low=True)
    placement.learner.check_propensities([made.propensity], [len(placement.offer_of(impression))])
    return impression._replace(given=made)


def taken_over(placement: Placement, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
    """Take over decisions that were made elsewhere, as the fold takes them in: nothing is drawn."""
    known, epoch = placement.learner.__contains__, placement.learner.epoch
    pairs = zip(asked.column("given"), asked.column("key"), strict=True)
    made: list[Any] = [given._replace(epoch=epoch(key) if known(key) else 0) for given, key in pairs]
    rows = placement.rows_of(asked, seq, asked.column("id"), time, made)
    rows = rows.with_column("mode", [placement.modes.of_taken_over] * len(rows))
    placement.recall(rows)
    return rows
