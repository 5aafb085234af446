"""What a placement is and knows, and what its kind says of it; decisions open their windows here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from tacit.core.arrays import Ints, leaves
from tacit.errors import InvalidValue
from tacit.learning.decisions import NOTHING, Arm, Decision, Decisions
from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.policies.context import Encoder
from tacit.service.attribution.attribution import Attribution, Rewards
from tacit.service.attribution.open_decisions import OpenDecisions
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.kind import kind_of
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws, decision_ids
from tacit.service.log.marks import Pin, Regime
from tacit.service.log.requests import Clicks, Impression
from tacit.service.log.rows import (
    CLICKS,
    FIXED,
    FROZEN,
    MODES,
    ONLINE,
    UNLEARNED,
    DecisionRow,
    by_two,
    some_by_two,
)
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.chapters import configured_in, terms_of
from tacit.service.placements.coin import Coin, Control
from tacit.service.placements.lift_sums import LiftSums
from tacit.service.placements.series import Series
from tacit.service.placements.shared import shared_of
from tacit.service.placements.signals import PlacementSignals

# ---- What a placement is and knows, and what its kind says of it

"""Features: a row for each arm."""


class State:
    """The learners of a placement, its open decisions and its counts.

    Kinds of placements differ in what they take, show and learn, which they say here; everything
    else is the same for all.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    """

    modes: ClassVar[tuple[str, ...]] = MODES
    attribution: ClassVar[type[Attribution]] = Attribution
    shows_one: ClassVar[bool] = True
    """Whether a decision shows one arm, so that a reward fits it."""

    @property
    def actions(self) -> Collection[str]:
        """What may be done to an item of a list, besides clicks."""
        return ()

    def __init__(
        self, name: str, config: PlacementConfig, stored: StoredPlacement, regime: Regime | None = None
    ) -> None:
        self.name = name
        self.config = config
        self.kind = kind_of(config.kind)
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self._salt = stored.salt
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] = _new_ids
        self.regime = regime
        self.approximate: list[str] = []
        # Whether what is taken in teaches the policy nothing.
        self.sets_aside = False
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        # Each policy learns from decisions of its own.
        self.two = config.holdout is not None and config.holdout.policy is not None
        policies = [config.policy, config.shadow if self.two else None]
        self.restarts = any(p and type(p).epoch is not Policy.epoch for p in policies)
        self._draws, self._shadow_draws = Draws(stored.seed), Draws(stored.seed, "shadow")
        self._plain = config.policy.arms is not None and not any(config.policy.feature_dims)
        schema = config.policy.schema or (config.shadow.schema if config.shadow is not None else ())
        self.encoder = Encoder(schema) if schema else None
        self._told_dim = config.context_dim if config.signals is None else config.signals.client
        self._begin()

    def _begin(self) -> None:
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.shadow: Learner | None = None
        if config.shadow is not None:
            self.shadow = Learner(config.shadow, self.seed, propensities=config.propensities)
        self.holdout = config.holdout
        self._name_arms()
        # The arms that the placement began with; and, since these changed, all that were on offer
        # at a time.
        self._all = self.learner.offer.slots
        self._wholes: list[str] = []
        self.shared = shared_of(config.policy, config.spread)
        self.series = Series(self._layers)
        self.windows = self.attribution(config.rule)
        self._open_none()
        # Slots of decisions that the second policy knows, of those made while frozen, and of those
        # that a control's own policy made.
        self._shadowed: set[int] = set()
        self._unlearned: set[int] = set()
        self._not_own: set[int] = set()
        self.signals: PlacementSignals | None = None
        if config.signals is not None:
            self.signals = PlacementSignals(config.signals, config.policy.arm_count)
        self._lift = LiftSums(max(len(self._slots), 1), config.metrics)
        self.mode = ONLINE
        self.pin: Pin | None = None
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.covered = self._held = 0

    def _open_none(self) -> None:
        self._open = OpenDecisions(self.learner, self._all)
        self._shadow_open = None if self.shadow is None else OpenDecisions(self.shadow, self._all)

    def _name_arms(self) -> None:
        """Name the arm of each slot, be it on offer or retired."""
        self.arms: list[Arm] = list(self.learner.offer.names)
        self._slots = {arm: slot for slot, arm in enumerate(self.arms)}
        self._alone = {arm: np.array([slot]) for arm, slot in self._slots.items()}
        self.coin = self._made_coin()

    def _hold(self, holdout: HoldoutConfig | None) -> None:
        """Have a holdout from now on."""
        self.holdout = holdout
        self.coin = self._made_coin()

    @property
    def lift_terms(self) -> str:
        """What the sums behind the lift shall rest on, as JSON; with other terms they begin anew.

        What somebody has put in the place of the configured holdout stays until that is changed.
        """
        configured = self.config.holdout
        stays = configured_in(self._lift.terms) == configured
        return self._terms_with(self.holdout if stays else configured)

    def _terms_with(self, holdout: HoldoutConfig | None) -> str:
        config = self.config
        if holdout == config.holdout:
            rules = {} if holdout is None else {"rule": config.rule, "metrics": config.metrics}
            return terms_of(holdout, rules)
        return terms_of(holdout, {"rule": config.rule, "metrics": config.metrics}, config.holdout)

    def _made_coin(self) -> Coin | None:
        """Return the coin of the holdout, which knows the slot of its control's arm."""
        holdout = self.holdout
        return None if holdout is None else Coin(holdout, self.seed, self._control(holdout))

    @property
    def lift(self) -> LiftSums:
        """The sums behind the lift."""
        self.settle()
        return self._lift

    def settle(self) -> None:
        """Put into sums what waits for it, so that whoever reads them changes nothing."""
        self._lift.settle()

    @property
    def randomized(self) -> bool:
        """Whether decisions carry the policy's propensities."""
        return self.learner.reports_propensities

    # What a kind says of itself --------------------------------------------------------------

    @property
    def _layers(self) -> int:
        """How many things the series counts the impressions of."""
        return self.learner.policy.arm_count

    def _own_fold_spec(self) -> dict[str, Any]:
        return {}

    def _control(self, holdout: HoldoutConfig) -> Control:
        """Return what the control of a holdout shows."""
        # One that is to come is shown by nobody yet.
        slot = None if holdout.arm is None else self._slots.get(holdout.arm, -1)
        return Control(holdout.named, slot)

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
        contexts = asked.column("context") if learner.policy.context_dim else None
        return contexts, None if arms.count(None) == len(arms) else arms, None, None

    def _offer_of(self, impression: Impression) -> Ints:
        """Return the slots of the arms on offer, the baseline first."""
        if impression.arms is None:
            return self.learner.offer.slots
        return self._offered_slots(impression.arms)

    def _baseline(self, impression: Impression, decision: Decision) -> tuple[Arm, ...]:
        """Return what the mode ``apprentice`` shows."""
        return (self.arms[int(decision.offered[0])],)

    def _counterfactual(self, decision: Decision) -> Arm:
        """Return what would have been shown, as the log keeps it."""
        return decision.arm

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision showed."""
        return (row.arm,)

    def _all_shown(
        self,
        asked: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> list[str | None]:
        """Return what was shown, as the log keeps it where one arm does not say it.

        ``control`` says which decisions are a holdout's, as the log does.
        """
        return [None] * len(ids)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if len(shown) == 1:
            return self._alone[shown[0]]
        return np.array([self._slots[arm] for arm in shown])

    def _offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        if offered is None:
            return self._all
        return np.array([self._slots[arm] for arm in offered], np.int64)

    def _offered(self, row: DecisionRow) -> int:
        return len(self._all) if row.offered is None else len(json.loads(row.offered))

    def _policy_rewards(self, rewards: Rewards) -> list[Any]:
        """Return what the learner learns from what came back; None for nothing."""
        return self._scaled(rewards.values)

    def _scaled(self, rewards: list[float]) -> list[float]:
        lowest = self.config.rule.lowest
        if not lowest:
            return rewards
        return [(reward - lowest) / (1.0 - lowest) for reward in rewards]

    def _name(self, rewards: Rewards, outcomes: list[str]) -> None:
        """Name what became of feedback that was learned at once, where a kind knows better."""

    def positions(self, row: DecisionRow, kind: str, clicks: Clicks | None) -> str | None:
        """Return clicked positions of a decision as the log keeps them.

        Raises
        ------
        InvalidValue
            If feedback of this kind does not fit the decision.
        """
        if kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def counts(self) -> Any:
        """Return what else was counted, as JSON data."""
        return None

    def _take_counts(self, counts: Any) -> None:
        """Take over what :meth:`_counts` gave."""

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a decision, the same live and from the log."""
        names = parsed(row.offered)
        context = NOTHING
        if self.config.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        shown = self.shown(row)
        offered, slots = self._offered_slots(names), self._slots_shown(shown, names)
        (propensity,) = learned_propensities(Block.of(DecisionRow, [row]))
        return Decision(row.seq, row.key, shown, propensity, epoch, offered, slots, context)


def _new_ids(time: int, keys: Sequence[str], place: int) -> list[str]:
    return decision_ids(time, len(keys))


def learned_propensities(rows: Block[DecisionRow]) -> list[float | None]:
    """Return the propensities of decisions to those who learn from them."""
    logged: list[float | None] = rows.column("propensity")
    if not some_by_two(rows):
        return logged
    # One that rounding made 0 is not known.
    return [(row.would_propensity or None) if by_two(row) else row.propensity for row in rows]


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)


# ---- Decisions as they are made or recalled: their windows opened, and counted


class Opening(State):
    """Opens the windows of decisions, keeps what learning needs of them, and counts them."""

    def _decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], shadow: Decision | None = None
    ) -> None:
        """Open the windows of decisions made at the same time.

        Where the second policy is to learn from it too, there is one decision.
        """
        slots = self.windows.decided(rows)
        self._keep(slots, rows, decisions, shadow)
        self._lift.made(rows.column("control"), rows.column("time")[0])
        self.decisions += len(rows)
        self.since_snapshot += len(rows)
        deferred = rows.column("deferred")
        counted = rows
        if any(deferred):
            counted = rows.take([i for i, waits in enumerate(deferred) if not waits])
        self._count(counted)

    def _keep(
        self, slots: Ints, rows: Block[DecisionRow], decisions: Sequence[Decision], shadow: Decision | None
    ) -> None:
        self._open.keep(slots, decisions, plain=self._offers_all(rows))
        for some in filter(None, (self._shadowed, self._unlearned, self._not_own)):
            some.difference_update(slots.tolist())
        if some_by_two(rows):
            made = zip(slots.tolist(), rows, strict=True)
            self._not_own.update(slot for slot, row in made if row.control and by_two(row))
        if not set(modes := rows.column("mode")).isdisjoint(UNLEARNED):
            pairs = zip(slots.tolist(), modes, strict=True)
            self._unlearned.update(slot for slot, mode in pairs if mode in UNLEARNED)
        if shadow is not None:
            self._keep_shadow(slots, rows, shadow)

    def _keep_shadow(self, slots: Ints, rows: Block[DecisionRow], shadow: Decision) -> None:
        if self._shadow_open is not None:
            self._shadow_open.keep(slots, [shadow], plain=self._offers_all(rows))
            self._shadowed.update(slots.tolist())

    def _offers_all(self, rows: Block[DecisionRow]) -> bool:
        """Whether each decision could choose among all arms, without features."""
        return self._plain and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that they show."""
        if not len(rows):
            return
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                # How often another policy had restarted says nothing about this one.
                if row.policy == self.policy_id:
                    self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        self.series.decided_many(
            rows.column("time")[0],
            list(map(self._slots.__getitem__, rows.column("arm"))),
            self._weighable(rows),
            self._offer_sizes(rows),
        )

    @staticmethod
    def _weighable(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities by which decisions of one mode may be weighed."""
        # What is always shown says nothing about uniform exploration.
        if rows.column("mode")[0] in FIXED:
            return [None] * len(rows)
        return rows.column("propensity")

    def _offer_sizes(self, rows: Block[DecisionRow]) -> list[int]:
        """Return how many arms were on offer."""
        if not any(rows.column("offered")):
            return [len(self._all)] * len(rows)
        return list(map(self._offered, rows))

    def _propensities(self, slots: Ints) -> list[float | None]:
        """Return the propensities by which open decisions may be weighed."""
        propensities, modes = self.windows.columns(slots, "propensity", "mode")
        if set(modes).isdisjoint(FIXED):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in FIXED else value for value, mode in pairs]

    def _sizes(self, slots: Ints) -> list[int]:
        """Return how many arms open decisions could choose among."""
        if self._plain and not any(self.windows.values(slots, "offered")):
            return [len(self._all)] * len(slots)
        return list(map(self._offered, self.windows.rows(slots)))

    @contextmanager
    def _standing(self, learner: Learner, key: str) -> Iterator[None]:
        """While nothing is learned, leave the state as it was, even by what the policy observes."""
        if self.mode != FROZEN and not self.sets_aside:
            yield
            return
        with untouched(learner, key):
            yield


@contextmanager
def untouched(learner: Learner, key: str) -> Iterator[None]:
    """Leave what a learner knows of a key as it was."""
    lanes = learner.lanes
    (lane,) = lanes.admit([key]).tolist()
    kept = [array.copy() for _, array in leaves(lanes.view(lane))]
    yield
    for (_, array), values in zip(leaves(lanes.view(lane)), kept, strict=True):
        array[:] = values
