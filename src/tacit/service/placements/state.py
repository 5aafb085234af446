"""State of a placement: its learner, aspects and open decisions, and the hooks of its kind."""

# 1. ``__init__`` and ``_begin``: the initial state; ``_begin`` again if a snapshot is unusable.
# 2. Aspects, and properties for readers.
# 3. Hooks that kinds override: shown arms, pins, rewards, counts.
# 4. ``record_decisions``: decisions, new or from the log, open their windows and are counted.
# Subclasses add deciding (``PlacementDecisions``), learning (``PlacementLearning``) and snapshots
# (``PlacementSnapshots``).

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.learning.decisions import NO_VALUES, Arm, Decision, Decisions
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.policies.context import Encoder
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import PolicyVersion
from tacit.service.log.ids import Draws
from tacit.service.log.requests import FeedbackRequest, Impression
from tacit.service.log.rows import CLICKS, CONTROL, FIXED_MODES, DecisionRow, decode_json, select_propensities
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.aspects.arm_lifecycle import ArmLifecycle
from tacit.service.placements.aspects.aspect import Aspect
from tacit.service.placements.aspects.client_decisions import FeedOffsets
from tacit.service.placements.aspects.control_group import Control, ControlGroup, HoldoutAssigner
from tacit.service.placements.aspects.feedback_rule import FeedbackRule
from tacit.service.placements.aspects.guardrail import Guardrail
from tacit.service.placements.aspects.items import Items, make_items_aspect
from tacit.service.placements.aspects.modes import Modes, SecondaryPolicy, restore_on_exit
from tacit.service.placements.aspects.pins import Pins
from tacit.service.placements.aspects.reward_sums import LiftSums, RewardSums
from tacit.service.placements.aspects.shared_learning import SharedLearning, make_shared_states
from tacit.service.placements.aspects.signals import PlacementSignals
from tacit.service.placements.attribution import Attribution, TrainingBatch
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.service.placements.series import Series

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

ImpressionBlock = Block[Impression]
ControlFlags = Sequence[int | None]
"""For each decision 1 for the control, 0 for the policy, None without a holdout, as in the log."""
LogTexts = list[str | None]

ASPECTS: dict[str, type[Aspect]] = {
    "feedback_rule": FeedbackRule,
    "lifecycle": ArmLifecycle,
    "modes": Modes,
    "pins": Pins,
    "secondary": SecondaryPolicy,
    "reward_sums": RewardSums,
    "control": ControlGroup,
    "guardrail": Guardrail,
    "shared": SharedLearning,
    "signals": PlacementSignals,
    "items": Items,
    "feed_offsets": FeedOffsets,
}
"""Aspects by the attribute of the placement that holds them, in the order in which they are restored."""


class PlacementState:
    """The learner of a placement, its open decisions, its counts, and its aspects.

    Kinds of placements override the hooks for requests, shown arms and rewards.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        The placement's row in the store.
    policy_version : PolicyVersion, optional
        Current policy version, if the policy was replaced since the beginning.
    """

    attribution: ClassVar[type[Attribution]] = Attribution

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        policy_version: PolicyVersion | None = None,
    ) -> None:
        """Set the state before the first decision, from the configuration and the store's row."""
        self.name = name
        self.config = config
        self.kind = config.policy_kind
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self._salt = stored.salt
        self._first_rule = stored.feedback_rule
        # Set in shards, whose ids contain the shard; other ids contain the time alone.
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] | None = None
        self.policy_version = policy_version
        self.approximate: list[str] = []
        # Whether feedback is recorded without being learned.
        self.learns_nothing = False
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.draws = Draws(stored.seed)
        # Warnings already given since the start.
        self.warned: set[str] = set()
        # Whether the last decisions were made by clients; not in the log.
        self.has_client_decisions = False
        self._has_plain_arms = config.policy.arms is not None and not any(config.policy.feature_dims)
        schema = config.policy.schema or (config.shadow.schema if config.shadow is not None else ())
        self.encoder = Encoder(schema) if schema else None
        self.key_limit = config.key_limit
        self._request_dim = config.context_dim if config.signals is None else config.signals.client
        # Whether a request with a key alone needs no check but that of the key.
        self.reads_only_keys = self.kind.showing.single and self._has_plain_arms and not self._request_dim
        self._begin()
        policies = [config.policy, config.shadow if self.has_control_policy else None]
        self.restarts = any(p and type(p).epoch is not Policy.epoch for p in policies)

    def _begin(self) -> None:
        """Set learner, aspects, series, windows and counts to the state before the first decision."""
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.lifecycle = ArmLifecycle(self.learner)
        self.modes, self.pins, self.feed_offsets = Modes(), Pins(), FeedOffsets()
        self.secondary = self._new_secondary()
        self.reward_sums = RewardSums(len(self.lifecycle.arm_indices), config.metrics)
        self.control = ControlGroup(config.holdout)
        self.guardrail = None if config.guardrail is None else Guardrail(config)
        # Before the arms are set: shared sums have a row for each arm.
        parts = make_shared_states(config.policy, config.spread)
        self.shared = SharedLearning(parts) if parts else None
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self.items = make_items_aspect(config.policy)
        # The holdout's assigner needs the index of the control's arm, which exists from here on.
        self.control.update_arms(self.as_placement)
        self.series = Series(self.layers)
        self.windows = self.attribution(config.rule)
        self.feedback_rule = FeedbackRule(self._first_rule)
        self.windows.order = self.feedback_rule.order(self.as_placement)
        self._reset_open()
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.snapshot_seq = self._snapshot_size = 0

    def _new_secondary(self) -> SecondaryPolicy | None:
        """Make the secondary policy as before its first decision; None without one."""
        config = self.config
        return (
            None
            if config.shadow is None
            else SecondaryPolicy(config, self.seed, self.lifecycle.initial_indices)
        )

    def _reset_open(self) -> None:
        """Forget all data of open decisions for the learner."""
        self.open = OpenDecisions(self.learner, self.lifecycle.initial_indices)

    # Aspects ---------------------------------------------------------------------------------

    @property
    def as_placement(self) -> Placement:
        """This object, typed as the complete placement."""
        return cast("Placement", self)

    @property
    def aspects(self) -> dict[str, Aspect]:
        """Aspects of the placement by name; without those that its configuration does not need."""
        return {name: aspect for name in ASPECTS if (aspect := getattr(self, name)) is not None}

    def update_arms(self) -> None:
        """Update all aspects after the learner's arms changed."""
        for aspect in self.aspects.values():
            aspect.update_arms(self.as_placement)

    @property
    def arms(self) -> list[Arm]:
        """All arms in the order of their indices, with retired ones."""
        return self.lifecycle.names

    @property
    def offer(self) -> Offer:
        """The arms on offer and the retired arms."""
        return self.learner.offer

    @property
    def mode(self) -> str:
        """Mode of the placement: ``online``, ``frozen``, ``shadow`` or ``control``."""
        return self.modes.mode

    @property
    def holdout(self) -> HoldoutConfig | None:
        """The current holdout, or None."""
        return self.control.holdout

    @property
    def has_control_policy(self) -> bool:
        """True if the control of the holdout has a policy of its own."""
        return self.secondary is not None and self.secondary.is_control

    @property
    def learners(self) -> list[Learner]:
        """The placement's learner, and the learner of the secondary policy if there is one."""
        return [self.learner] if self.secondary is None else [self.learner, self.secondary.learner]

    @property
    def lift(self) -> LiftSums:
        """The reward sums behind the lift; reading them adds all pending decisions first."""
        self.settle()
        return self.reward_sums.sums

    def settle(self) -> None:
        """Add pending decisions to the reward sums, so that reading the sums changes nothing."""
        self.reward_sums.sums.settle()

    @property
    def lift_terms(self) -> str:
        """Terms for the reward sums as JSON; a new period must begin if they differ from the current ones."""
        return self.control.resolve_terms(self.as_placement)

    @property
    def control_action(self) -> list[int] | None:
        """Arm indices that the control always shows of a full offer; None if it draws or learns.

        Also None without a holdout.
        """
        return None if self.has_control_policy else self.control.get_constant_action(self.offer.arm_indices)

    # Hooks of the kind -----------------------------------------------------------------------

    @property
    def layers(self) -> int:
        """Number of arms for which the series counts impressions separately."""
        return self.learner.policy.arm_count

    def _extra_fold_spec(self) -> dict[str, Any]:
        """Return settings of the kind on which the fold depends; here none."""
        return {}

    def make_control(self, holdout: HoldoutConfig) -> Control:
        """Return the control of a holdout, which chooses the control's actions."""
        # An arm that is about to be added has no index yet.
        arm_index = None if holdout.arm is None else self.lifecycle.arm_indices.get(holdout.arm, -1)
        return Control(holdout.named, arm_index)

    def control_propensities(self, entries: Ints) -> Floats:
        """Return the probabilities with which the control shows the actions of open decisions."""
        return self._assigner.control.compute_probabilities(
            self.open.actions(entries), self.open.offers(entries)
        )

    @property
    def _assigner(self) -> HoldoutAssigner:
        """The assigner of the holdout, which must exist."""
        assert self.control.assigner is not None
        return self.control.assigner

    @property
    def max_pinned(self) -> int:
        """Maximum number of arms in a pin."""
        return 1

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the names of the arms on offer to an impression."""
        return self.offer.arms if impression.arms is None else impression.arms

    def check_offer(self, impressions: Sequence[Impression]) -> None:
        """Check that the arms named by impressions are still on offer.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        self.lifecycle.check_offer(impressions)

    def look_up_candidates(
        self, impressions: Sequence[Impression], places: Sequence[int]
    ) -> Sequence[Impression]:
        """Return impressions with their candidates from the catalogue; here unchanged, as there is none.

        With several impressions, errors name the position of the impression in its request (``places``).

        Raises
        ------
        InvalidValue, UnknownName
            If an impression has no candidates, or one is missing.
        """
        return impressions

    def pin_action(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the action that shows pinned arms; here the arms themselves."""
        return tuple(arms)

    def _choose(self, learner: Learner, impression: Impression) -> Decision:
        """Decide for one impression with a learner; nothing is recorded as open."""
        context = impression.context if learner.policy.context_dim else None
        return learner.choose(impression.key, context, impression.arms)

    def choose_many(
        self, learner: Learner, impressions: Block[Impression], forced_actions: Ints | None = None
    ) -> Decisions:
        """Decide for impressions with a learner; nothing is recorded as open.

        Rows of ``forced_actions`` that do not begin with −1 are shown instead of the policy's choice.
        """
        return learner.choose_rows(
            impressions.column("key"), self._learner_inputs(learner, impressions), forced_actions
        )

    def _learner_inputs(self, learner: Learner, impressions: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return contexts, arms, relevance and examination of impressions as arguments of a learner."""
        arms = impressions.column("arms")
        contexts = impressions.column("context") if learner.reads_contexts else None
        return contexts, None if arms.count(None) == len(arms) else arms, None, None

    def get_offer(self, impression: Impression) -> Ints:
        """Return the indices of the arms on offer to an impression, the baseline first."""
        return (
            self.offer.arm_indices if impression.arms is None else self.get_offered_indices(impression.arms)
        )

    def _format_counterfactual(self, decision: Decision) -> Arm:
        """Format a counterfactual action for the log; here its arm."""
        return decision.arm

    def get_shown_arms(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the names of the arms that a logged decision showed."""
        return (row.arm,)

    def _format_shown(
        self,
        impressions: ImpressionBlock,
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: ControlFlags,
    ) -> LogTexts:
        """Return the text of each shown action for the log; None where the log's field ``arm`` is enough."""
        return [None] * len(ids)

    def _get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of shown arms; ``offered`` matters only if arms come with requests."""
        if len(shown) == 1:
            return self.lifecycle.get_index_array(shown[0])
        return np.array([self.lifecycle.arm_indices[arm] for arm in shown])

    def get_offered_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a logged decision; None stands for the initial arms."""
        return self.lifecycle.get_indices(offered)

    def _count_offered(self, row: DecisionRow) -> int:
        """Return the number of arms on offer to a logged decision."""
        return len(self.lifecycle.initial_indices) if row.offered is None else len(json.loads(row.offered))

    def _convert_rewards(self, rewards: TrainingBatch) -> list[Any]:
        """Convert rewards to values for the learner; None for rewards that it does not learn."""
        return self.scale_rewards(rewards.values)

    def scale_rewards(self, rewards: list[float]) -> list[float]:
        """Scale rewards from [lowest, 1] to [0, 1], the range of policies."""
        least = self.config.rule.lowest
        if not least:
            return rewards
        return [(reward - least) / (1.0 - least) for reward in rewards]

    def _refine_outcomes(self, rewards: TrainingBatch, outcomes: list[str]) -> None:
        """Replace outcomes of feedback, in place, by more specific ones of the kind; here nothing."""

    def format_clicks(self, row: DecisionRow, feedback: FeedbackRequest) -> str | None:
        """Format the clicked positions of feedback for the log; None without any, as always here.

        Raises
        ------
        InvalidValue
            If the feedback does not fit the decision.
        """
        if feedback.kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def export_counts(self) -> Any:
        """Return additional counts of the kind as JSON data; None without any, as here."""
        return None

    def _restore_counts(self, counts: Any) -> None:
        """Set the kind's counts from the output of :meth:`export_counts`; here nothing."""

    def merge_counts(self, parts: Sequence[Any]) -> None:
        """Set the kind's counts to the sum of :meth:`export_counts` over all shards; here nothing."""

    def restore_decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a logged decision, equal to that of the live decision.

        ``epoch`` is the number of earlier restarts of the row's key.
        """
        names = decode_json(row.offered)
        context = NO_VALUES
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        arms = self.get_shown_arms(row)
        offered, indices = self.get_offered_indices(names), self._get_shown_indices(arms, names)
        (propensity,) = select_propensities(Block.from_rows(DecisionRow, [row]))
        return Decision(row.seq, row.key, arms, propensity, epoch, offered, indices, context)

    # Decisions, new or from the log: open their windows, and count them -------------------------

    def record_decisions(
        self,
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        secondary_decision: Decision | None = None,
    ) -> None:
        """Open the windows of decisions of the same time, store them for learning, and count them.

        With ``secondary_decision``, the secondary policy's form of the decision, there is one decision.
        Deferred decisions are not counted as impressions yet.
        """
        # Windows come first: they assign the entries by which everything else is stored.
        entries = self.windows.open_windows(rows)
        self._store_open(entries, rows, decisions, secondary_decision)
        self.feedback_rule.begin_turns(self.as_placement, entries)
        count, deferred = len(rows), rows.column("deferred")
        control = rows.column("control")
        if control.count(None) < count or CONTROL in rows.column("mode") or not self.reward_sums.sums.time:
            self.reward_sums.count_decisions(rows)
        self.decisions += count
        self.since_snapshot += count
        if not any(deferred):
            self._count(rows)
        elif not all(deferred):
            self._count(rows.take([i for i, waits in enumerate(deferred) if not waits]))

    def _store_open(
        self,
        entries: Ints,
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        secondary_decision: Decision | None,
    ) -> None:
        """Store data of open decisions at their entries: for the learners, the mode and the control."""
        plain = self._has_plain_offers(rows)
        self.open.keep(entries, decisions, plain=plain)
        self.modes.keep(entries, rows.column("mode"))
        if self.control.control_entries or rows.column("would_propensity").count(None) < len(rows):
            # Entries are reused, so data of an earlier decision must be dropped even if none is stored now.
            self.control.keep(entries, rows)
        if self.secondary is not None:
            self.secondary.keep(entries, secondary_decision, plain=plain)

    def _has_plain_offers(self, rows: Block[DecisionRow]) -> bool:
        """True if each decision had the initial arms on offer, without features."""
        return self._has_plain_arms and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that their epochs show, in the series."""
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                # Epochs of another policy do not count for this one.
                if row.policy == self.policy_id:
                    self.series.note_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count the impressions of decisions of the same time in the series."""
        plain = not any(rows.column("offered"))
        self.series.count_decisions(
            rows.column("time")[0],
            list(map(self.lifecycle.arm_indices.__getitem__, rows.column("arm"))),
            self._weighable_propensities(rows),
            [len(self.lifecycle.initial_indices)] * len(rows)
            if plain
            else list(map(self._count_offered, rows)),
        )

    @staticmethod
    def _weighable_propensities(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities of decisions of one mode; None where an arm was always shown."""
        # An action that is always shown has no information about uniform exploration.
        if rows.column("mode")[0] in FIXED_MODES:
            return [None] * len(rows)
        return rows.column("propensity")

    def _propensities(self, entries: Ints) -> list[float | None]:
        """Return the logged propensities of open decisions; None where an arm was always shown."""
        propensities, modes = self.windows.columns(entries, "propensity", "mode")
        if set(modes).isdisjoint(FIXED_MODES):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in FIXED_MODES else value for value, mode in pairs]

    def offer_sizes(self, entries: Ints) -> list[int]:
        """Return the number of arms on offer to each open decision."""
        if self._has_plain_arms and not any(self.windows.values(entries, "offered")):
            return [len(self.lifecycle.initial_indices)] * len(entries)
        return list(map(self._count_offered, self.windows.rows(entries)))

    def protect_state(self, learner: Learner, key: str) -> Any:
        """Return a context manager for deciding, which undoes changes of the key's state while frozen.

        It does nothing if the placement learns.
        """
        return restore_on_exit(learner, key) if self.modes.frozen or self.learns_nothing else nullcontext()
