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
from tacit.learning.decisions import NOTHING, Arm, Decision, Decisions
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.policies.context import Encoder
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import Regime
from tacit.service.log.ids import Draws
from tacit.service.log.requests import FeedbackRequest, Impression
from tacit.service.log.rows import CLICKS, CONTROL, FIXED, DecisionRow, learned_propensities, parsed
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.aspects.arm_lifecycle import Living
from tacit.service.placements.aspects.aspect import Aspect
from tacit.service.placements.aspects.client_decisions import Fed
from tacit.service.placements.aspects.control_group import Coin, Control, ControlGroup
from tacit.service.placements.aspects.feedback_rule import FeedbackRule
from tacit.service.placements.aspects.guardrail import Guardrail
from tacit.service.placements.aspects.items import Items, items_for
from tacit.service.placements.aspects.modes import Modes, Second, untouched
from tacit.service.placements.aspects.pins import Pins
from tacit.service.placements.aspects.reward_sums import Earnings, LiftSums
from tacit.service.placements.aspects.shared_learning import Sharing, shared_of
from tacit.service.placements.aspects.signals import PlacementSignals
from tacit.service.placements.attribution import Attribution, Lessons
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.service.placements.series import Series

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

Asked = Block[Impression]
Held = Sequence[int | None]
"""For each decision 1 for the control, 0 for the policy, None without a holdout, as in the log."""
Texts = list[str | None]

ASPECTS: dict[str, type[Aspect]] = {
    "feedback_rule": FeedbackRule,
    "living": Living,
    "modes": Modes,
    "pins": Pins,
    "second": Second,
    "earnings": Earnings,
    "control": ControlGroup,
    "guardrail": Guardrail,
    "shared": Sharing,
    "signals": PlacementSignals,
    "items": Items,
    "fed": Fed,
}
"""Aspects by the attribute of the placement that holds them, in the order in which they are restored."""


class State:
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
        self, name: str, config: PlacementConfig, stored: StoredPlacement, regime: Regime | None = None
    ) -> None:
        self.name = name
        self.config = config
        self.kind = config.served_as
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self._salt = stored.salt
        self._first_rule = stored.feedback_rule
        # Set in shards, whose ids contain the shard; other ids contain the time alone.
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] | None = None
        self.regime = regime
        self.approximate: list[str] = []
        # Whether feedback is recorded without being learned.
        self.sets_aside = False
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.draws = Draws(stored.seed)
        # Warnings already given since the start.
        self.doubted: set[str] = set()
        # Whether the last decisions were made by clients; not in the log.
        self.decided_elsewhere = False
        self._plain = config.policy.arms is not None and not any(config.policy.feature_dims)
        schema = config.policy.schema or (config.shadow.schema if config.shadow is not None else ())
        self.encoder = Encoder(schema) if schema else None
        self.key_limit = config.key_limit
        self._told_dim = config.context_dim if config.signals is None else config.signals.client
        # Whether a request with a key alone needs no check but that of the key.
        self.asks_just_keys = self.kind.showing.single and self._plain and not self._told_dim
        self._begin()
        policies = [config.policy, config.shadow if self.two else None]
        self.restarts = any(p and type(p).epoch is not Policy.epoch for p in policies)

    def _begin(self) -> None:
        """Set the state before the first decision."""
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.living = Living(self.learner)
        self.modes, self.pins, self.fed = Modes(), Pins(), Fed()
        self.second = self._second_anew()
        self.earnings = Earnings(len(self.living.slots), config.metrics)
        self.control = ControlGroup(config.holdout)
        self.guardrail = None if config.guardrail is None else Guardrail(config)
        # Before the arms are set: shared sums have a row for each arm.
        parts = shared_of(config.policy, config.spread)
        self.shared = Sharing(parts) if parts else None
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self.items = items_for(config.policy)
        # The holdout's assigner needs the index of the control's arm, which exists from here on.
        self.control.arms_named(self.here)
        self.series = Series(self.layers)
        self.windows = self.attribution(config.rule)
        self.feedback_rule = FeedbackRule(self._first_rule)
        self.windows.order = self.feedback_rule.order(self.here)
        self._open_none()
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.covered = self._held = 0

    def _second_anew(self) -> Second | None:
        """Return the secondary policy as before its first decision; None without one."""
        config = self.config
        return None if config.shadow is None else Second(config, self.seed, self.living.first)

    def _open_none(self) -> None:
        self.open = OpenDecisions(self.learner, self.living.first)

    # Aspects ---------------------------------------------------------------------------------

    @property
    def here(self) -> Placement:
        """This object, typed as the complete placement."""
        return cast("Placement", self)

    @property
    def aspects(self) -> dict[str, Aspect]:
        """Aspects of the placement by name; without those that its configuration does not need."""
        return {name: aspect for name in ASPECTS if (aspect := getattr(self, name)) is not None}

    def name_arms(self) -> None:
        """Update all aspects after the learner's arms changed."""
        for aspect in self.aspects.values():
            aspect.arms_named(self.here)

    @property
    def arms(self) -> list[Arm]:
        """All arms in the order of their indices, with retired ones."""
        return self.living.names

    @property
    def offer(self) -> Offer:
        """The arms on offer and the retired arms."""
        return self.learner.offer

    @property
    def mode(self) -> str:
        """Mode of the placement: ``online``, ``frozen``, ``shadow`` or ``control``."""
        return self.modes.now

    @property
    def holdout(self) -> HoldoutConfig | None:
        """The current holdout, or None."""
        return self.control.holdout

    @property
    def two(self) -> bool:
        """True if the control of the holdout has a policy of its own."""
        return self.second is not None and self.second.of_control

    @property
    def learners(self) -> list[Learner]:
        """The placement's learner, and the learner of the secondary policy if there is one."""
        return [self.learner] if self.second is None else [self.learner, self.second.learner]

    @property
    def lift(self) -> LiftSums:
        """The reward sums behind the lift, with all closed decisions."""
        self.settle()
        return self.earnings.sums

    def settle(self) -> None:
        """Add pending decisions to the reward sums, so that reading the sums changes nothing."""
        self.earnings.sums.settle()

    @property
    def lift_terms(self) -> str:
        """The terms that the reward sums should have, as JSON; other terms begin a new period."""
        return self.control.terms(self.here)

    @property
    def control_shows(self) -> list[int] | None:
        """Arm indices that the control always shows of a full offer; None if it draws or learns."""
        return None if self.two else self.control.shows(self.offer.slots)

    # Hooks of the kind -----------------------------------------------------------------------

    @property
    def layers(self) -> int:
        """Number of arms whose impressions the series counts."""
        return self.learner.policy.arm_count

    def _own_fold_spec(self) -> dict[str, Any]:
        return {}

    def control_of(self, holdout: HoldoutConfig) -> Control:
        """Return the control of a holdout, which chooses its actions."""
        # An arm that is about to be added has no index yet.
        slot = None if holdout.arm is None else self.living.slots.get(holdout.arm, -1)
        return Control(holdout.named, slot)

    def control_chances(self, entries: Ints) -> Floats:
        """Return the probabilities with which the control shows the actions of open decisions."""
        return self._coin.control.chances(self.open.actions(entries), self.open.offers(entries))

    @property
    def _coin(self) -> Coin:
        assert self.control.coin is not None
        return self.control.coin

    @property
    def most_fixed(self) -> int:
        """Maximum number of arms in a pin."""
        return 1

    def can_show(self, impression: Impression) -> Sequence[Arm]:
        """Return the arms on offer to an impression."""
        return self.offer.arms if impression.arms is None else impression.arms

    def check_offered(self, impressions: Sequence[Impression]) -> None:
        """Check that the arms named by impressions are still on offer.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        self.living.check_offered(impressions)

    def looked_up(self, impressions: Sequence[Impression], places: Sequence[int]) -> Sequence[Impression]:
        """Return impressions with their candidates from the catalogue, if the kind has one.

        With several impressions, errors name the position of the impression in its request (``places``).

        Raises
        ------
        InvalidValue, UnknownName
            If an impression has no candidates, or one is missing.
        """
        return impressions

    def shown_fixed(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the action that shows pinned arms."""
        return tuple(arms)

    def _choose(self, learner: Learner, impression: Impression) -> Decision:
        context = impression.context if learner.policy.context_dim else None
        return learner.choose(impression.key, context, impression.arms)

    def choose_many(
        self, learner: Learner, asked: Block[Impression], imposed: Ints | None = None
    ) -> Decisions:
        """Decide for impressions; show the forced actions (rows that do not begin with −1)."""
        return learner.choose_rows(asked.column("key"), self._given(learner, asked), imposed)

    def _given(self, learner: Learner, asked: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return contexts, arms, relevance and examination of impressions as arguments of a learner."""
        arms = asked.column("arms")
        contexts = asked.column("context") if learner.reads_contexts else None
        return contexts, None if arms.count(None) == len(arms) else arms, None, None

    def offer_of(self, impression: Impression) -> Ints:
        """Return the indices of the arms on offer, the baseline first."""
        return self.offer.slots if impression.arms is None else self.offered_slots(impression.arms)

    def _would_show(self, decision: Decision) -> Arm:
        """Format a counterfactual action for the log."""
        return decision.arm

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a logged decision showed."""
        return (row.arm,)

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        """Format shown actions for the log; None if the log's field ``arm`` is enough."""
        return [None] * len(ids)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if len(shown) == 1:
            return self.living.slot_of(shown[0])
        return np.array([self.living.slots[arm] for arm in shown])

    def offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a logged decision."""
        return self.living.slots_of(offered)

    def _offered(self, row: DecisionRow) -> int:
        return len(self.living.first) if row.offered is None else len(json.loads(row.offered))

    def _policy_rewards(self, rewards: Lessons) -> list[Any]:
        """Convert rewards to values for the learner; None for rewards that it does not learn."""
        return self.scaled(rewards.values)

    def scaled(self, rewards: list[float]) -> list[float]:
        """Scale rewards to [0, 1], the range of policies."""
        lowest = self.config.rule.lowest
        if not lowest:
            return rewards
        return [(reward - lowest) / (1.0 - lowest) for reward in rewards]

    def _name(self, rewards: Lessons, outcomes: list[str]) -> None:
        """Replace outcomes of learned feedback by more specific ones of the kind."""

    def positions(self, row: DecisionRow, feedback: FeedbackRequest) -> str | None:
        """Format the clicked positions of feedback for the log; None without any.

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

    def counts(self) -> Any:
        """Return additional counts of the kind as JSON data; None without any."""
        return None

    def _take_counts(self, counts: Any) -> None:
        """Restore the output of :meth:`export_counts`."""

    def show_counts(self, parts: Sequence[Any]) -> None:
        """Set the counts to the sum of :meth:`export_counts` over all shards."""

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a logged decision, equal to that of the live decision."""
        names = parsed(row.offered)
        context = NOTHING
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        shown = self.shown(row)
        offered, slots = self.offered_slots(names), self._slots_shown(shown, names)
        (propensity,) = learned_propensities(Block.of(DecisionRow, [row]))
        return Decision(row.seq, row.key, shown, propensity, epoch, offered, slots, context)

    # Decisions, new or from the log: open their windows, and count them -------------------------

    def decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], second: Decision | None = None
    ) -> None:
        """Open the windows of decisions of the same time, and count them.

        With ``second``, the secondary policy's form of the decision, there is one decision.
        """
        # Windows come first: they assign the entries by which everything else is stored.
        entries = self.windows.decided(rows)
        self._keep(entries, rows, decisions, second)
        self.feedback_rule.begin_turns(self.here, entries)
        count, deferred = len(rows), rows.column("deferred")
        control = rows.column("control")
        if control.count(None) < count or CONTROL in rows.column("mode") or not self.earnings.sums.time:
            self.earnings.made(rows)
        self.decisions += count
        self.since_snapshot += count
        if not any(deferred):
            self._count(rows)
        elif not all(deferred):
            self._count(rows.take([i for i, waits in enumerate(deferred) if not waits]))

    def _keep(
        self, entries: Ints, rows: Block[DecisionRow], decisions: Sequence[Decision], second: Decision | None
    ) -> None:
        plain = self._offers_all(rows)
        self.open.keep(entries, decisions, plain=plain)
        self.modes.keep(entries, rows.column("mode"))
        if self.control.not_own or rows.column("would_propensity").count(None) < len(rows):
            # Entries are reused, so data of an earlier decision must be dropped even if none is stored now.
            self.control.keep(entries, rows)
        if self.second is not None:
            self.second.keep(entries, second, plain=plain)

    def _offers_all(self, rows: Block[DecisionRow]) -> bool:
        """True if each decision had the initial arms on offer, without features."""
        return self._plain and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that their epochs show."""
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                # Epochs of another policy do not count for this one.
                if row.policy == self.policy_id:
                    self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of decisions of the same time."""
        plain = not any(rows.column("offered"))
        self.series.decided_many(
            rows.column("time")[0],
            list(map(self.living.slots.__getitem__, rows.column("arm"))),
            self._weighable(rows),
            [len(self.living.first)] * len(rows) if plain else list(map(self._offered, rows)),
        )

    @staticmethod
    def _weighable(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities of decisions of one mode; None if they must not be used as weights."""
        # An action that is always shown has no information about uniform exploration.
        if rows.column("mode")[0] in FIXED:
            return [None] * len(rows)
        return rows.column("propensity")

    def _propensities(self, entries: Ints) -> list[float | None]:
        """Return the propensities of open decisions; None if they must not be used as weights."""
        propensities, modes = self.windows.columns(entries, "propensity", "mode")
        if set(modes).isdisjoint(FIXED):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in FIXED else value for value, mode in pairs]

    def sizes(self, entries: Ints) -> list[int]:
        """Return the number of arms on offer to each open decision."""
        if self._plain and not any(self.windows.values(entries, "offered")):
            return [len(self.living.first)] * len(entries)
        return list(map(self._offered, self.windows.rows(entries)))

    def standing(self, learner: Learner, key: str) -> Any:
        """Return a context manager that restores the key's state if nothing is to be learned."""
        return untouched(learner, key) if self.modes.frozen or self.sets_aside else nullcontext()
