"""Changes of a placement's arms, by requests and by the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learning.decisions import Arm
from tacit.learning.lanes import Offer
from tacit.service.config.file import check_field, find_similar_names
from tacit.service.config.holdout import get_drawing_policy
from tacit.service.config.lift_terms import parse_holdout
from tacit.service.deciders.arm_lifecycle import LoggedArms, iterate_arms, to_logged
from tacit.service.log.rows import ARMS, encode_json
from tacit.service.placements.effect import Effect
from tacit.service.placements.holdout_changes import resolve_terms
from tacit.service.placements.placement import Placement, check_changeable
from tacit.wire import control as wire


class ConfiguredArms(wire.ArmsOf, frozen=True):
    """A change of arms by the configuration.

    Attributes
    ----------
    configured : int, sequence of str, or None
        Arms of the configuration.
    """

    configured: int | Sequence[str] | None = None


def plan_arms(placement: Placement, change: wire.ArmsOf) -> LoggedArms:
    """Return the logged arms that a request for a change of arms would lead to; changes nothing.

    They are the current ones if the request makes no difference.

    Raises
    ------
    InvalidValue, UnknownName
        If an added arm exists, another arm does not, one is named twice, or no arm would be on
        offer; or arms of this placement cannot change.
    """
    check_changeable(placement)
    offer = _change_offer(placement.lifecycle.offer, change)
    # The configuration may change the holdout at the same time.
    configured: Any = change.configured if isinstance(change, ConfiguredArms) else None
    holdout = placement.holdout if configured is None else parse_holdout(resolve_terms(placement))
    if holdout is not None and holdout.arm is not None and holdout.arm in change.retire:
        raise InvalidValue("retire", holdout.arm, "the control of the holdout shows it")
    if placement.guardrail is not None and placement.guardrail.against in change.retire:
        remedy = "the guardrail holds the others against it; configure another one first (against)"
        raise InvalidValue("retire", placement.guardrail.against, remedy)
    for learner in placement.learners:
        check_field("add", learner.policy.with_arms, offer.all)
    if configured is None:
        # The configuration has already been checked.
        _check_guardrail(placement, change.add, offer)
        configured = placement.lifecycle.logged_arms.configured
    now = placement.lifecycle.logged_arms
    counters = now.changes, now.suspended
    after = LoggedArms(to_logged(offer.all), offer.retired, to_logged(configured), *counters)
    # Without a difference there is no change event.
    suspended, changes = _find_suspended_shares(placement, offer.retired), now.changes + 1
    return now if after == now else replace(after, changes=changes, suspended=suspended)


def _check_guardrail(placement: Placement, add: Any, offer: Offer) -> None:
    """Raise InvalidValue if the guardrail, without a holdout, could not estimate metrics of added arms."""
    if not add or placement.guardrail is None or placement.holdout is not None:
        return
    if not get_drawing_policy(placement.learner.policy.with_arms(offer.all)).randomized:
        remedy = "the guardrail cannot weigh what is promised no share; configure them, with at_least"
        raise InvalidValue("add", add, remedy)


def get_config_change(placement: Placement) -> ConfiguredArms | None:
    """Return the change from the arms that were configured before to the arms configured now; None if equal.

    Arms that the configuration no longer names are retired; arms that it newly names are added or restored.
    Requests' changes of other arms stay, unless no arm would be on offer.
    """
    config, lifecycle = placement.config, placement.lifecycle
    configured, before = config.config_arms, lifecycle.logged_arms.configured
    if before is None:
        before = to_logged(config.policy.arms)
    new_arms, old_arms = set(iterate_arms(configured)), set(iterate_arms(before))
    if new_arms == old_arms:
        return None
    add: Any = [arm for arm in iterate_arms(configured) if arm not in lifecycle.arm_indices]
    retired = [arm for arm in lifecycle.offer.arms if arm in old_arms - new_arms]
    # If no arm would be on offer, all configured arms are restored.
    empty = not add and len(retired) == len(lifecycle.offer.arms)
    restored = [arm for arm in lifecycle.offer.retired if arm in (new_arms if empty else new_arms - old_arms)]
    if isinstance(configured, int):
        add = len(add)
    return ConfiguredArms(add, retired, restored, configured)


def check_configured_arms(placement: Placement) -> None:
    """Raise ConfigError if the current arms cannot become the configured ones; changes nothing.

    Raises
    ------
    ConfigError
        If the change is impossible.
    """
    change = get_config_change(placement)
    try:
        if change is not None:
            plan_arms(placement, change)
    except TacitError as error:
        raise ConfigError(
            f"placements.{placement.name}: its arms cannot become those that are configured: "
            f"{error}; set them back to what they were"
        ) from error


def _change_offer(offer: Offer, change: wire.ArmsOf) -> Offer:
    """Return the offer after adding, restoring and retiring arms; raises InvalidValue or UnknownName."""
    changed_arms = [*change.retire, *change.restore]
    for field, arms in (("retire", change.retire), ("restore", changed_arms)):
        if len(set(arms)) < len(arms):
            raise InvalidValue(field, arms, "name each arm once")
    if change.add:
        _, offer = check_field("add", offer.with_new_arms, change.add)
    offer = check_field("restore", offer.with_restored_arms, change.restore)
    after: Offer = check_field("retire", offer.exclude_arms, change.retire)
    return after


def _find_suspended_shares(placement: Placement, retired: Sequence[Arm]) -> dict[str, float]:
    """Return the minimum shares (``at_least``) that the policy promises to retired arms, by arm."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    return {str(arm): shares[arm] for arm in retired if arm in shares}


def _encode_arms(placement: Placement, request: wire.ArmsOf, time: int) -> str:
    """Return the change event's value for a request to change arms; changes nothing."""
    return encode_json(plan_arms(placement, request))


def _get_status(placement: Placement, time: int) -> wire.ArmsNow:
    """Return the arms on offer, the retired ones and the suspended shares as the answer."""
    offer = placement.lifecycle.offer
    # Single letters may differ in case.
    names = find_similar_names(arm for arm in map(str, offer.arms) if len(arm) > 1)
    warning = f"arms: {names} differ by capitals or blanks alone; retire one" if names else None
    return wire.ArmsNow(offer.arms, offer.retired, _find_suspended_shares(placement, offer.retired), warning)


EFFECTS: dict[type, Effect] = {
    wire.ArmsOf: Effect(ARMS, _encode_arms, _get_status, leads=True),
    ConfiguredArms: Effect(ARMS, _encode_arms, _get_status),
}
