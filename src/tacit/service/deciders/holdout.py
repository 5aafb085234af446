"""A holdout: the control makes a share of the decisions; propensities are of both together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.decisions import Decisions, nan_to_none
from tacit.service.config.holdout import DECISION
from tacit.service.deciders.assignment import Assignment, HoldoutAssigner, ListControl
from tacit.service.deciders.choices import Choices, ImpressionBatch
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression


class Offers(Protocol):
    """The offers of a placement, which depend on its kind."""

    def list_offers(self, impressions: Block[Impression]) -> list[Ints]:
        """Return the indices of the arms on offer to each impression, the baseline first."""


def assign(
    batch: ImpressionBatch, assigner: HoldoutAssigner, offers: Sequence[Ints] | None, *, all_control: bool
) -> Assignment:
    """Assign a batch of impressions to the control or the policy.

    ``offers`` are the indices of the arms on offer to each impression, the baseline first; None if the
    control has a policy of its own, which chooses.
    """
    unit = assigner.config.unit
    units = [None] * len(batch.ids) if unit == DECISION else batch.impressions.column(unit)
    return assigner.assign(batch.ids, units, offers, all_control=all_control)


@dataclass
class HoldoutDecider:
    """A holdout whose control needs no learning: it shows one arm, the baseline, or a random arm.

    Parameters
    ----------
    policy : PolicyDecider
    assigner : HoldoutAssigner
    offers : Offers
    mode : str
        Mode that the log gives to the decisions.
    keeps_state : bool
        Whether nothing is learned, so that choosing must not change the policy's state either.
    all_control : bool
        Whether the control decides everything.
    """

    policy: PolicyDecider
    assigner: HoldoutAssigner
    offers: Offers
    mode: str
    keeps_state: bool
    all_control: bool

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Return the decisions of policy and control for a batch."""
        offers = self.offers.list_offers(batch.impressions)
        assignment = assign(batch, self.assigner, offers, all_control=self.all_control)
        decisions = self.policy.choose(batch, assignment.forced_actions, keeps_state=self.keeps_state)
        return (Choices(batch, self._mix(decisions, offers), self.mode, assignment=assignment),)

    def _mix(self, decisions: Decisions, offers: Sequence[Ints]) -> Decisions:
        """Return the decisions with propensities, of positions too, over policy and control together."""
        control, actions = self.assigner.control, decisions.actions
        mixed = self._mix_propensities(decisions.propensities, control.compute_probabilities(actions, offers))
        if not len(decisions.prefixes) or not isinstance(control, ListControl):
            return replace(decisions, propensities=mixed)
        by_prefix = control.compute_prefix_probabilities(actions, offers)
        by_position = control.compute_position_probabilities(actions, offers)
        prefixes = self._mix_propensities(decisions.prefixes, by_prefix)
        places = self._mix_propensities(decisions.places, by_position)
        return replace(decisions, propensities=mixed, prefixes=prefixes, places=places)

    def _mix_propensities(self, policy: Floats, control: Floats) -> Floats:
        """Return probabilities of actions over all traffic, from policy and control."""
        return control if self.all_control else self.assigner.mix_propensities(policy, control)


@dataclass
class PolicyHoldoutDecider:
    """A holdout whose control is a policy of its own, which learns from its own decisions.

    Parameters are those of :class:`HoldoutDecider`, but for the offers; ``control`` is the control's policy.
    """

    policy: PolicyDecider
    control: PolicyDecider
    assigner: HoldoutAssigner
    mode: str
    keeps_state: bool
    all_control: bool

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Return the decisions of both policies for a batch.

        Each policy also computes the propensity of the other's decisions, without a change of its state.
        """
        assignment = assign(batch, self.assigner, offers=None, all_control=self.all_control)
        in_control = np.array(assignment.in_control, np.bool_)
        (control_rows,), (policy_rows,) = in_control.nonzero(), (~in_control).nonzero()
        keys = batch.impressions.column("key")
        lanes = self.control.learner.lanes.admit(keys)
        # ``under_control`` has the propensities of all decisions under the control's policy.
        forced, under_control = np.full_like(assignment.forced_actions, -1), np.empty(len(keys))
        control_decisions = None
        if len(control_rows):
            control_decisions = self.control.choose(
                batch, forced[control_rows], control_rows, keeps_state=self.keeps_state
            )
            forced[control_rows] = control_decisions.actions
            under_control[control_rows] = control_decisions.propensities
        # A policy only observes the other's decisions: these do not change its state.
        decisions = self.policy.choose(batch, forced, keeps_state=self.keeps_state or len(control_rows) > 0)
        # ``choose`` counts all decisions, also the ones that the other policy made.
        self.policy.learner.decisions -= len(control_rows)
        if len(policy_rows):
            rows, places = self._select_distinct(batch, lanes, decisions.actions, policy_rows)
            observed = self.control.choose(batch, decisions.actions[rows], rows, keeps_state=True)
            self.control.learner.decisions -= len(rows)
            under_control[policy_rows] = observed.propensities[places]
        return (self._combine(batch, assignment, in_control, decisions, under_control, control_decisions),)

    def _select_distinct(self, batch: ImpressionBatch, lanes: Ints, actions: Ints, rows: Ints) -> Any:
        """Return some of the rows, and for each row the place among them of one with an equal propensity.

        All impressions of a key that show the same arm have an equal one, unless they differ in more.
        """
        policy, arms = self.control.learner.policy, batch.impressions.column("arms")
        differ = policy.context_dim > 0 or any(policy.feature_dims) or arms.count(None) < len(arms)
        # A policy without propensities may draw among equal arms.
        is_each = differ or not policy.randomized
        codes = rows if is_each else lanes[rows] * policy.arm_count + actions[rows, 0]
        _, firsts, places = np.unique(codes, return_index=True, return_inverse=True)
        return rows[firsts], places

    def _combine(
        self,
        batch: ImpressionBatch,
        assignment: Assignment,
        in_control: Booleans,
        decisions: Decisions,
        under_control: Floats,
        control_decisions: Decisions | None,
    ) -> Choices:
        """Return the decisions of both policies as choices.

        The log gets propensities over all traffic, and as counterfactual ones those of the policy that
        decided. Each policy learns with its own; NaN stands for unknown.
        """
        mix = self.assigner.mix_propensities
        mixed = under_control if self.all_control else mix(decisions.propensities, under_control)
        # 0 stands for an unknown propensity.
        decider_propensities = np.nan_to_num(np.where(in_control, under_control, decisions.propensities))
        epochs = decisions.epochs
        # Observations that were undone may have restarted a key, but only for that time.
        if self.policy.observes:
            epochs = np.array(list(map(self.policy.learner.epoch, batch.impressions.column("key"))))
        learned_propensities = np.where(decider_propensities == 0.0, np.nan, decider_propensities)
        if control_decisions is not None:
            control_decisions = replace(control_decisions, propensities=learned_propensities[in_control])
        return Choices(
            batch,
            replace(decisions, propensities=learned_propensities, epochs=epochs),
            self.mode,
            propensities=nan_to_none(mixed),
            assignment=assignment,
            counterfactual_propensities=decider_propensities.tolist(),
            secondary=control_decisions,
            by_control=in_control,
        )
