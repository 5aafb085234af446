"""The guardrail's actions: change events once degradation of a metric is proved."""

from __future__ import annotations

from tacit.learning.decisions import Arm
from tacit.service.log.rows import ARMS, CONTROL, GUARDRAIL, MODE, encode_json
from tacit.service.placements.arm_changes import plan_arms
from tacit.service.placements.placement import Placement
from tacit.service.projections.guardrail import Guardrail, LoggedGuardrail
from tacit.service.projections.lift_report import compute_metric_lift
from tacit.uplift.boundary import Interval
from tacit.uplift.metric_degradation import count_comparisons
from tacit.wire.control import ArmsOf
from tacit.wire.lift import Harm


def plan_guardrail_changes(placement: Placement) -> list[tuple[str, str]]:
    """Check a placement's guardrail if a check is due; return the change events (kind, value) to log now.

    They are the newly proved degradations, and the change that follows from them, if configured: the arms are
    retired, or the control's policy decides. A check also adds queued decisions to the guardrail's sums.
    """
    guardrail = placement.guardrail
    if guardrail is None or not guardrail.begin_due_check():
        return []
    guardrail.settle()
    degradations = _find_degradations(placement, guardrail)
    changes = [(GUARDRAIL, encode_json(LoggedGuardrail(harm=harm))) for harm in degradations]
    if not degradations or guardrail.config.then == "tell":
        return changes
    arms = [harm.arm for harm in degradations if harm.arm is not None]
    if not arms:
        return [*changes, (MODE, CONTROL)]
    return [*changes, (ARMS, encode_json(plan_arms(placement, ArmsOf(retire=arms))))]


def _find_degradations(placement: Placement, guardrail: Guardrail) -> list[Harm]:
    """Return the proved degradations that are not recorded yet; arm None stands for the policy."""
    intervals = (
        _test_arms(placement, guardrail) if placement.holdout is None else _test_policy(placement, guardrail)
    )
    proved_arms = {harm.arm for harm in guardrail.degradations}
    return [
        Harm(arm, guardrail.config.metric, *interval, then=guardrail.config.then)
        for arm, interval in intervals.items()
        if arm not in proved_arms
    ]


def _test_arms(placement: Placement, guardrail: Guardrail) -> dict[Arm | None, Interval]:
    """Return the interval of degradation of each arm on offer for which degradation is proved."""
    names, offered = placement.lifecycle.names, set(placement.offer.arms)
    comparisons = count_comparisons(len(names), guardrail.initial_arm_count)
    intervals = guardrail.sums.find_degradations(
        guardrail.config.margin, guardrail.metric.better, comparisons
    )
    return {names[index]: harm for index, harm in intervals.items() if names[index] in offered}


def _test_policy(placement: Placement, guardrail: Guardrail) -> dict[Arm | None, Interval]:
    """Return {None: interval} if degradation of the policy against the control is proved; otherwise {}."""
    harm = compute_metric_lift(placement, guardrail.config.metric).difference
    if harm is None:
        return {}
    margin, less = guardrail.config.margin, guardrail.metric.better == "less"
    return {None: harm} if (harm.low > margin if less else harm.high < -margin) else {}
