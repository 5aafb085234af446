"""Checks of decisions that clients make with a replica of a placement's policy."""

from __future__ import annotations

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.columns import ROUNDING, check_propensities
from tacit.service.config.propensity_floor import compute_floor
from tacit.service.log.requests import ClientDecision, DecisionRequest, Impression
from tacit.service.placements.placement import Placement
from tacit.uplift.boundary import LEAST_PROPENSITY

ARMS = "arms"


def check_client_side(placement: Placement, time: int | None = None) -> None:
    """Check that clients may decide for a placement with a replica of its policy.

    With a time (microseconds) the state at that time counts, such as pins; with None only the configuration.

    Raises
    ------
    InvalidValue
        If decisions need data that only the service has; or, at a time, if the policy alone does not
        decide.
    """
    why = None
    if placement.config.kind != ARMS:
        why = f"placements of kind {placement.config.kind!r} decide here"
    for aspect in placement.aspects.values():
        why = why or aspect.get_reason_not_local(time)
    if why is not None:
        raise InvalidValue("placement", placement.name, f"ask the service for decisions: {why}")


def check_client_decision(
    placement: Placement, request: DecisionRequest, client_decision: ClientDecision
) -> Impression:
    """Check a client's decision and return its impression, with the decision as its details.

    Raises
    ------
    InvalidValue, UnknownName
        If the impression does not fit, the arm was not on offer, or the policy cannot have given the
        propensity.
    """
    impression, names = placement.reader.read(request), placement.lifecycle.names
    if client_decision.arm not in placement.lifecycle.arm_indices:
        raise InvalidValue("arm", client_decision.arm, f"the placement has {', '.join(map(str, names))}")
    if impression.arms is not None and client_decision.arm not in impression.arms:
        raise InvalidValue("arm", client_decision.arm, f"on offer were {list(impression.arms)}")
    if client_decision.propensity is not None:
        checks.number("propensity", client_decision.propensity, 0.0, 1.0, open_low=True)
    check_propensities(
        placement.learner, [client_decision.propensity], [len(placement.shows.get_offer(impression))]
    )
    least_propensity = _compute_least_propensity(placement)
    if client_decision.propensity is not None and client_decision.propensity < least_propensity:
        remedy = f"the placement's policy gives at least {least_propensity:.6g}; deliver what it gave"
        raise InvalidValue("propensity", client_decision.propensity, remedy)
    return impression._replace(details=client_decision)


def _compute_least_propensity(placement: Placement) -> float:
    """Return the least propensity that any policy of the placement, also an earlier one, can have given."""
    # A spooled decision may be from the policy before a rebuild, or among more arms.
    share = compute_floor(placement.config.policy) if placement.policy_version is None else 0.0
    return max(share * (1.0 - ROUNDING) / len(placement.lifecycle.names), LEAST_PROPENSITY)
