"""What a placement is made of, what its kind says of it, and how decisions open their windows."""

# A placement is this class, with what its kind says otherwise, and aspects for what its configuration needs:
# 1. ``__init__`` and ``_begin``: what it is made of; ``_begin`` again where a snapshot could not be used.
# 2. Its aspects, and what those who look ask of it.
# 3. What a kind says of itself: what is shown, pinned, taken back, counted.
# 4. ``decided``: decisions, made just now or read from the log, open their windows and are counted.
# Below it ``Deciding``, ``Teaching`` and ``Saving`` add how it decides, learns and is saved, a file each.

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
"""Which decisions are a holdout's, as the log says it."""
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
"""The aspects of a placement by their names, in the order in which they take over a snapshot."""


class State:
    """The learner of a placement, its open decisions, its counts, and its aspects.

    Kinds of placements differ in what they take, show and learn, which they say here; everything
    else is the same for all.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    regime : Regime, optional
        The last one, where the policy is another one than in the beginning.
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
        # Where a shard names decisions; otherwise their ids tell nothing but the time.
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] | None = None
        self.regime = regime
        self.approximate: list[str] = []
        # Whether what is taken in teaches the policy nothing.
        self.sets_aside = False
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.draws = Draws(stored.seed)
        # What of it was warned of since the start.
        self.doubted: set[str] = set()
        # Of the last decisions since the start; the log does not say it.
        self.decided_elsewhere = False
        self._plain = config.policy.arms is not None and not any(config.policy.feature_dims)
        schema = config.policy.schema or (config.shadow.schema if config.shadow is not None else ())
        self.encoder = Encoder(schema) if schema else None
        self.key_limit = config.key_limit
        self._told_dim = config.context_dim if config.signals is None else config.signals.client
        # Whether of a request nothing needs to be looked at but its key, where it says nothing else.
        self.asks_just_keys = self.kind.showing.single and self._plain and not self._told_dim
        self._begin()
        policies = [config.policy, config.shadow if self.two else None]
        self.restarts = any(p and type(p).epoch is not Policy.epoch for p in policies)

    def _begin(self) -> None:
        """Be what the placement was before its first decision."""
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.living = Living(self.learner)
        self.modes, self.pins, self.fed = Modes(), Pins(), Fed()
        self.second = self._second_anew()
        self.earnings = Earnings(len(self.living.slots), config.metrics)
        self.control = ControlGroup(config.holdout)
        self.guardrail = None if config.guardrail is None else Guardrail(config)
        # Before the arms are named: what is shared has sums of each.
        parts = shared_of(config.policy, config.spread)
        self.shared = Sharing(parts) if parts else None
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self.items = items_for(config.policy)
        # The control's coin knows its arm by its slot, which is there from here on.
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
        """Return the second policy as it was before its first decision."""
        config = self.config
        return None if config.shadow is None else Second(config, self.seed, self.living.first)

    def _open_none(self) -> None:
        self.open = OpenDecisions(self.learner, self.living.first)

    # Aspects ---------------------------------------------------------------------------------

    @property
    def here(self) -> Placement:
        """This placement, as its aspects know it: whole."""
        return cast("Placement", self)

    @property
    def aspects(self) -> dict[str, Aspect]:
        """What it does besides deciding and learning; what its configuration does not need is not there."""
        return {name: aspect for name in ASPECTS if (aspect := getattr(self, name)) is not None}

    def name_arms(self) -> None:
        """Let all aspects have the arms of the learner."""
        for aspect in self.aspects.values():
            aspect.arms_named(self.here)

    @property
    def arms(self) -> list[Arm]:
        """The arm of each slot, be it on offer or retired."""
        return self.living.names

    @property
    def offer(self) -> Offer:
        """The arms, and which of them are on offer."""
        return self.learner.offer

    @property
    def mode(self) -> str:
        """Whether the policy decides and learns: ``online``, ``frozen``, ``shadow`` or ``control``."""
        return self.modes.now

    @property
    def holdout(self) -> HoldoutConfig | None:
        """The holdout, if there is one."""
        return self.control.holdout

    @property
    def two(self) -> bool:
        """Whether the holdout's control has a policy of its own."""
        return self.second is not None and self.second.of_control

    @property
    def learners(self) -> list[Learner]:
        """The placement's learner, and that of the second policy if there is one."""
        return [self.learner] if self.second is None else [self.learner, self.second.learner]

    @property
    def lift(self) -> LiftSums:
        """The sums behind the lift, with all that has closed in them."""
        self.settle()
        return self.earnings.sums

    def settle(self) -> None:
        """Put into sums what waits, so that those who read them change nothing."""
        self.earnings.sums.settle()

    @property
    def lift_terms(self) -> str:
        """What the sums behind the lift shall rest on, as JSON; with other terms they begin anew."""
        return self.control.terms(self.here)

    @property
    def control_shows(self) -> list[int] | None:
        """What the control shows where all arms are on offer; None where it draws, or learns."""
        return None if self.two else self.control.shows(self.offer.slots)

    # What a kind says of itself --------------------------------------------------------------

    @property
    def layers(self) -> int:
        """How many things the series counts the impressions of."""
        return self.learner.policy.arm_count

    def _own_fold_spec(self) -> dict[str, Any]:
        return {}

    def control_of(self, holdout: HoldoutConfig) -> Control:
        """Return what the control of a holdout shows."""
        # One that is to come is shown by nobody yet.
        slot = None if holdout.arm is None else self.living.slots.get(holdout.arm, -1)
        return Control(holdout.named, slot)

    def control_chances(self, entries: Ints) -> Floats:
        """Return with what probability the control would have shown what open decisions did."""
        return self._coin.control.chances(self.open.actions(entries), self.open.offers(entries))

    @property
    def _coin(self) -> Coin:
        assert self.control.coin is not None
        return self.control.coin

    @property
    def most_fixed(self) -> int:
        """How many arms can be fixed, to be shown together always."""
        return 1

    def can_show(self, impression: Impression) -> Sequence[Arm]:
        """Return the arms that an impression offers."""
        return self.offer.arms if impression.arms is None else impression.arms

    def check_offered(self, impressions: Sequence[Impression]) -> None:
        """Check that what impressions name is on offer still.

        Raises
        ------
        InvalidValue, UnknownName
            If something was retired since it was asked for.
        """
        self.living.check_offered(impressions)

    def looked_up(self, impressions: Sequence[Impression], places: Sequence[int]) -> Sequence[Impression]:
        """Return impressions, with what is on offer now to those that named it or said where it is found.

        Where there are many, errors name the place of one in its request.

        Raises
        ------
        InvalidValue, UnknownName
            If one has nothing on offer, or something is not there.
        """
        return impressions

    def shown_fixed(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return what a decision shows of which these arms are fixed."""
        return tuple(arms)

    def _choose(self, learner: Learner, impression: Impression) -> Decision:
        context = impression.context if learner.policy.context_dim else None
        return learner.choose(impression.key, context, impression.arms)

    def choose_many(
        self, learner: Learner, asked: Block[Impression], imposed: Ints | None = None
    ) -> Decisions:
        """Decide for many; show what is imposed, where it does not begin with −1."""
        return learner.choose_rows(asked.column("key"), self._given(learner, asked), imposed)

    def _given(self, learner: Learner, asked: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return contexts, arms, relevance and examination, as a learner takes them."""
        arms = asked.column("arms")
        contexts = asked.column("context") if learner.reads_contexts else None
        return contexts, None if arms.count(None) == len(arms) else arms, None, None

    def offer_of(self, impression: Impression) -> Ints:
        """Return the slots of the arms on offer, the baseline first."""
        return self.offer.slots if impression.arms is None else self.offered_slots(impression.arms)

    def _would_show(self, decision: Decision) -> Arm:
        """Return what would have been shown, as the log keeps it."""
        return decision.arm

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision showed."""
        return (row.arm,)

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        """Return what was shown, as the log keeps it where one arm does not say it."""
        return [None] * len(ids)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if len(shown) == 1:
            return self.living.slot_of(shown[0])
        return np.array([self.living.slots[arm] for arm in shown])

    def offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the slots of arms that the log says were on offer."""
        return self.living.slots_of(offered)

    def _offered(self, row: DecisionRow) -> int:
        return len(self.living.first) if row.offered is None else len(json.loads(row.offered))

    def _policy_rewards(self, rewards: Lessons) -> list[Any]:
        """Return what the learner learns from what came back; None for nothing."""
        return self.scaled(rewards.values)

    def scaled(self, rewards: list[float]) -> list[float]:
        """Return rewards on the scale from 0 to 1 that policies learn from."""
        lowest = self.config.rule.lowest
        if not lowest:
            return rewards
        return [(reward - lowest) / (1.0 - lowest) for reward in rewards]

    def _name(self, rewards: Lessons, outcomes: list[str]) -> None:
        """Name what became of feedback that was learned at once, where a kind knows better."""

    def positions(self, row: DecisionRow, feedback: FeedbackRequest) -> str | None:
        """Return clicked positions of a decision as the log keeps them.

        Raises
        ------
        InvalidValue
            If feedback of this kind does not fit the decision.
        """
        if feedback.kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def counts(self) -> Any:
        """Return what else was counted, as JSON data."""
        return None

    def _take_counts(self, counts: Any) -> None:
        """Take over what :meth:`counts` gave."""

    def show_counts(self, parts: Sequence[Any]) -> None:
        """Show what :meth:`counts` gave in all shards together; nothing where they do not add up."""

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a decision, the same live and from the log."""
        names = parsed(row.offered)
        context = NOTHING
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        shown = self.shown(row)
        offered, slots = self.offered_slots(names), self._slots_shown(shown, names)
        (propensity,) = learned_propensities(Block.of(DecisionRow, [row]))
        return Decision(row.seq, row.key, shown, propensity, epoch, offered, slots, context)

    # Decisions as they are made or recalled: their windows opened, and counted -----------------

    def decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], second: Decision | None = None
    ) -> None:
        """Open the windows of decisions made at the same time.

        Where the second policy is to learn from it too, there is one decision.
        """
        # First the windows, which give entries; all else that is kept of decisions is by these.
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
            # Entries are used again, so what was kept of the decision before must go, also if nothing is kept
            # now.
            self.control.keep(entries, rows)
        if self.second is not None:
            self.second.keep(entries, second, plain=plain)

    def _offers_all(self, rows: Block[DecisionRow]) -> bool:
        """Whether each decision could choose among all arms, without features."""
        return self._plain and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that they show."""
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                # How often another policy had restarted says nothing about this one.
                if row.policy == self.policy_id:
                    self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        plain = not any(rows.column("offered"))
        self.series.decided_many(
            rows.column("time")[0],
            list(map(self.living.slots.__getitem__, rows.column("arm"))),
            self._weighable(rows),
            [len(self.living.first)] * len(rows) if plain else list(map(self._offered, rows)),
        )

    @staticmethod
    def _weighable(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities by which decisions of one mode may be weighed."""
        # What is always shown says nothing about uniform exploration.
        if rows.column("mode")[0] in FIXED:
            return [None] * len(rows)
        return rows.column("propensity")

    def _propensities(self, entries: Ints) -> list[float | None]:
        """Return the propensities by which open decisions may be weighed."""
        propensities, modes = self.windows.columns(entries, "propensity", "mode")
        if set(modes).isdisjoint(FIXED):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in FIXED else value for value, mode in pairs]

    def sizes(self, entries: Ints) -> list[int]:
        """Return how many arms open decisions could choose among."""
        if self._plain and not any(self.windows.values(entries, "offered")):
            return [len(self.living.first)] * len(entries)
        return list(map(self._offered, self.windows.rows(entries)))

    def standing(self, learner: Learner, key: str) -> Any:
        """While nothing is learned, leave the state as it was, even by what the policy observes."""
        return untouched(learner, key) if self.modes.frozen or self.sets_aside else nullcontext()
