"""What a placement shows: one arm. Kinds that show lists or duels, or arms with features, override it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.learning.decisions import NO_VALUES, Arm, Decision, Decisions, nan_to_none
from tacit.learning.learner import Learner
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.deciders.arm_lifecycle import ArmLifecycle, encode_lists
from tacit.service.deciders.assignment import Control
from tacit.service.deciders.choices import Choices
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, decode_json, select_propensities

LogTexts = list[str | None]
OfferFeatures = tuple[Ints, Floats, Floats]
"""Indices of the arms on offer, and their relevance and examination features."""


class Shows:
    """Actions of a placement that shows one arm: in requests, for the learner, and in the log.

    Parameters
    ----------
    config : PlacementConfig
    lifecycle : ArmLifecycle
    seed : int
        Seed of the placement.

    Attributes
    ----------
    single : bool
        Whether one arm is shown, not a list or a pair.
    has_plain_arms : bool
        Whether arms have names, and no features.
    is_arm_logged : bool
        Whether the log's field ``arm`` describes the whole decision.
    """

    def __init__(self, config: PlacementConfig, lifecycle: ArmLifecycle, seed: int) -> None:
        self.config, self.lifecycle, self.seed = config, lifecycle, seed
        showing = config.policy_kind.showing
        self.single = showing.single
        self.has_plain_arms = config.policy.arms is not None and not any(config.policy.feature_dims)
        self.is_arm_logged = self.single and self.has_plain_arms
        self.has_plain_offer = self.has_plain_arms and not showing.compared

    @property
    def layers(self) -> int:
        """Number of arms for which the series counts impressions separately."""
        return len(self.lifecycle.names)

    @property
    def max_pinned(self) -> int:
        """Maximum number of arms in a pin."""
        return 1

    @property
    def fold_settings(self) -> dict[str, Any]:
        """Settings of the kind that change how the log is folded, by name; by default none."""
        return {}

    def make_control(self, holdout: HoldoutConfig) -> Control:
        """Return the control of a holdout, which chooses for the control group: an arm or a policy."""
        # An arm that is about to be added has no index yet.
        arm_index = None if holdout.arm is None else self.lifecycle.arm_indices.get(holdout.arm, -1)
        return Control(holdout.named, arm_index)

    # Offers ----------------------------------------------------------------------------------

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the names of the arms on offer to an impression: its own, or all that are offered now."""
        return self.lifecycle.offer.arms if impression.arms is None else impression.arms

    def get_offer(self, impression: Impression) -> Ints:
        """Return the indices of the arms on offer to an impression, the baseline first."""
        if impression.arms is None:
            return self.lifecycle.offer.arm_indices
        return self.get_offered_indices(impression.arms)

    def list_offers(self, impressions: Block[Impression]) -> list[Ints]:
        """Return the indices of the arms on offer to each impression, the baseline first."""
        arms = impressions.column("arms")
        if self.has_plain_arms and arms.count(None) == len(arms):
            return [self.lifecycle.offer.arm_indices] * len(arms)
        return list(map(self.get_offer, impressions))

    def get_offered_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms that a logged decision had on offer.

        ``offered`` are their names; None stands for the placement's initial arms.
        """
        return self.lifecycle.get_indices(offered)

    def count_offered(self, offered: str | None, shown: str | None, asked: str | None) -> int:
        """Return the number of arms on offer to a logged decision, from fields of its row."""
        return len(self.lifecycle.initial_indices) if offered is None else len(json.loads(offered))

    def has_plain_offers(self, rows: Block[DecisionRow]) -> bool:
        """True if every decision had the initial arms on offer and arms have no features."""
        return self.has_plain_arms and not any(rows.column("offered"))

    def is_full_offer(self, offered: str | None) -> bool:
        """True if an offer, in the log's JSON, was at some time the offer of all arms."""
        return offered in self.lifecycle.full_offers

    def limit_offers(self, impressions: Block[Impression]) -> Block[Impression]:
        """Return impressions whose offers lack arms that are no longer offered; by default unchanged."""
        return impressions

    # Actions ---------------------------------------------------------------------------------

    def read_inputs(self, learner: Learner, impressions: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return the columns of impressions that a learner takes: contexts, arms, relevance and examination.

        A column is None if the learner does not need it; the last two always are.
        """
        arms = impressions.column("arms")
        contexts = impressions.column("context") if learner.reads_contexts else None
        return contexts, None if arms.count(None) == len(arms) else arms, None, None

    def pin_action(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the action that shows pinned arms; here the arms themselves."""
        return tuple(arms)

    def get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of shown arms.

        ``offered`` are the names on offer; only kinds whose arms come with requests read them.
        """
        if len(shown) == 1:
            return self.lifecycle.get_index_array(shown[0])
        return np.array([self.lifecycle.arm_indices[arm] for arm in shown])

    # The log ---------------------------------------------------------------------------------

    def make_rows(self, choices: Choices, placement: int, policy: int) -> Block[DecisionRow]:
        """Return decisions as rows of the log.

        Parameters
        ----------
        choices : Choices
        placement, policy : int
            Their numbers in the store.
        """
        impressions, ids, seq, time, _ = choices.batch
        keys, arms, contexts, _, deferred, requests, *_ = impressions.columns
        count, decisions, assignment = len(keys), choices.decisions, choices.assignment
        if isinstance(decisions, Decisions):
            shown_arms, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = choices.propensities or nan_to_none(decisions.propensities)
        else:
            decision_list: Any = decisions
            shown_arms = [decision.arm for decision in decision_list]
            epochs = [decision.epoch for decision in decision_list]
            propensities = [decision.propensity for decision in decision_list]
        nothing = [None] * count
        control = nothing if assignment is None else assignment.in_control
        # In the order of the fields of ``DecisionRow``.
        columns = (
            list(range(seq, seq + count)),
            ids,
            [placement] * count,
            [policy] * count,
            [time] * count,
            keys,
            arms
            if arms.count(None) == count and not self.lifecycle.full_offers
            else self.format_offers(arms),
            shown_arms,
            propensities,
            epochs,
            contexts if contexts.count(None) == count else encode_lists(contexts),
            [choices.mode] * count,
            nothing if choices.counterfactuals is None else list(choices.counterfactuals),
            choices.counterfactual_propensities or nothing,
            list(map(int, deferred)),
            requests,
            nothing if self.is_arm_logged else self.format_shown(impressions, decisions, ids, control),
            control,
            nothing if assignment is None else assignment.buckets,
        )
        return Block(DecisionRow, columns)

    def format_offers(self, arms: list[Any]) -> LogTexts:
        """Return the offer of each request as JSON for the log.

        ``arms`` has the names of each request, or None for all arms. As long as the placement's arms have
        never changed, None is logged for all arms; after that, every offer is logged in full.
        """
        return self.lifecycle.format_offers(arms)

    def format_shown(
        self,
        impressions: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> LogTexts:
        """Return the text of each shown action for the log; None where the log's field ``arm`` is enough.

        Parameters
        ----------
        impressions : Block
        decisions : sequence of Decision
        ids : sequence of str
        control : sequence of int or None
            1 for the control, 0 for the policy, None without a holdout.
        """
        return [None] * len(ids)

    def format_counterfactuals(self, decisions: Decisions) -> Sequence[Arm]:
        """Return the actions of a shadow's decisions as the log holds them; by default their arms."""
        return decisions.arms

    def get_shown_arms(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the names of the arms that a logged decision showed."""
        return (row.arm,)

    def get_actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return the arm indices that logged decisions showed, shape (rows, width)."""
        indices = list(map(self.lifecycle.arm_indices.__getitem__, rows.column("arm")))
        return np.array(indices, np.int64).reshape(-1, 1)

    def restore_decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's decision for a row of the log, equal to the one when it was made.

        ``epoch`` is the number of earlier restarts of the row's key.
        """
        names = decode_json(row.offered)
        context = NO_VALUES
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        arms = self.get_shown_arms(row)
        offered, indices = self.get_offered_indices(names), self.get_shown_indices(arms, names)
        (propensity,) = select_propensities(Block.from_rows(DecisionRow, [row]))
        return Decision(row.seq, row.key, arms, propensity, epoch, offered, indices, context)

    def describe_offers(self, decisions: Sequence[Decision], texts: LogTexts) -> list[OfferFeatures]:
        """Return the arms on offer to decisions, with the features that learning needs.

        ``texts`` are their shown actions as the log holds them.
        """
        return [(decision.offered, decision.relevance, decision.examination) for decision in decisions]
