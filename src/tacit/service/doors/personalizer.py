"""Placements as Personalizer asks for them: requests read, decisions and rewards, the record of the kind.

A rank request becomes an impression of features; the placement decides, learns and answers in that API's
terms; its table in the configuration, an example of a request, and the record of the kind come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm, Decision
from tacit.learning.learner import Learner
from tacit.policies import ExplorationFloor, LinearEpsilonGreedy, Policy
from tacit.policies.base import NO_FEATURES
from tacit.service.config.schema import PERSONALIZER, Aggregation, Seconds
from tacit.service.config.tables import PlacementTable
from tacit.service.doors import personalizer_wire as wire
from tacit.service.kind import Kind
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression, checked_id
from tacit.service.log.rows import APPRENTICE, CONTROL, MODES, SETTINGS, DecisionRow, MarkRow
from tacit.service.page.kinds import FeatureView
from tacit.service.placements.aspects.control import Tossed
from tacit.service.placements.attribution import Lessons
from tacit.service.placements.lists import FeaturePlacement
from tacit.service.placements.placement import Placement

# ---- Rank requests as impressions: checked, and their features made vectors

KEY = "rank"
"""All events of a placement learn together: as one key."""
MOST_PAIRS = 500_000


class Asked(msgspec.Struct, omit_defaults=True):
    """A rank request as the log keeps it; of a multi-slot one, for one of its slots.

    Attributes
    ----------
    actions : list of (id, features)
    context : list of dict
        Features of the context and of the slot.
    slots : list of str
        Ids of all slots of the event; empty where there are none.
    slot : int
        Which of them this is.
    baseline : str or None
        The slot's baseline action; None for the first that is not excluded.
    """

    actions: list[tuple[str, wire.Blocks]]
    context: wire.Blocks
    slots: list[str] = []
    slot: int = 0
    baseline: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Asked:
        """Return a request of the log."""
        return msgspec.json.decode(text or "", type=cls)


@dataclass(frozen=True)
class DescribedActions:
    """What a request describes, as the placement uses it.

    Attributes
    ----------
    asked : Asked
    relevance : array of float64, shape (candidates, dim)
    baseline : str
    """

    asked: Asked = field(compare=False)
    relevance: Floats = field(compare=False)
    baseline: str


def impression_of(request: wire.RankRequest, dim: int) -> Impression:
    """Return a rank request as an impression.

    Parameters
    ----------
    request : RankRequest
    dim : int
        Length of the vectors.

    Raises
    ------
    InvalidValue
        If something does not fit.
    """
    actions = _checked(request.actions)
    excluded = set(request.excluded_actions or ())
    candidates = [action for action in actions if action not in excluded]
    if not candidates:
        raise InvalidValue("excludedActions", request.excluded_actions, "leave at least one of the actions")
    asked = Asked(_described(request.actions), request.context_features or [])
    features = _features(asked.actions)
    context = wire.features_of("contextFeatures", asked.context)
    _check_size([context], features)
    return _impression(asked, candidates, candidates[0], context, features, dim, request)


def impressions_of(request: wire.MultiSlotRankRequest, dim: int, event: str) -> list[Impression]:
    """Return a rank request for many slots as an impression for each.

    An action stands in one slot only. A slot that excludes so many actions that the slots before
    it could leave none has its baseline action kept for it.

    Parameters
    ----------
    request : MultiSlotRankRequest
    dim : int
        Length of the vectors.
    event : str
        The event's id; its slots' decisions are numbered.

    Raises
    ------
    InvalidValue
        If something does not fit.
    """
    actions = _checked(request.actions)
    slots, candidates = request.slots, []
    _check_slots(slots, set(actions))
    for slot in slots:
        excluded = set(slot.excluded_actions or ())
        candidates.append([action for action in actions if action not in excluded])
    scarce = [
        slot.baseline_action if len(left) < len(slots) else None
        for slot, left in zip(slots, candidates, strict=True)
    ]
    described, names = _described(request.actions), [slot.id for slot in slots]
    features = _features(described)
    blocks = [[*(request.context_features or []), *(slot.features or [])] for slot in slots]
    contexts = [wire.features_of(f"context of {slot.id!r}", c) for slot, c in zip(slots, blocks, strict=True)]
    _check_size(contexts, features)
    impressions = []
    for i, slot in enumerate(slots):
        kept, baseline = set(scarce[i + 1 :]), slot.baseline_action
        asked = Asked(described, blocks[i], names, i, baseline)
        left = [action for action in candidates[i] if action not in kept]
        impression = _impression(asked, left, baseline, contexts[i], features, dim, request)
        impressions.append(impression._replace(id=slot_id(event, i)))
    return impressions


def slot_id(event: str, slot: int) -> str:
    """Return the id of the decision for a slot, counted from 0."""
    return f"{event}#{slot}"


def vector_of(asked: Asked, action: str, dim: int) -> Floats:
    """Return the vector of one of the actions, of shape (1, dim)."""
    (features,) = (features for name, features in asked.actions if name == action)
    context = wire.features_of("contextFeatures", asked.context)
    return wire.vectors(context, [wire.features_of("features", features)], dim)


def _impression(
    asked: Asked,
    candidates: Sequence[str],
    baseline: str,
    context: wire.Features,
    features: Mapping[str, wire.Features],
    dim: int,
    request: wire.RankRequest | wire.MultiSlotRankRequest,
) -> Impression:
    relevance = wire.vectors(context, [features[name] for name in candidates], dim)
    return Impression(
        KEY,
        candidates,
        None,
        checked_id("eventId", request.event_id) if request.event_id else None,
        bool(request.defer_activation),
        msgspec.json.encode(asked).decode(),
        DescribedActions(asked, relevance, baseline),
    )


def _described(actions: Sequence[wire.RankableAction]) -> list[tuple[str, wire.Blocks]]:
    return [(action.id, action.features or []) for action in actions]


def _features(actions: Sequence[tuple[str, wire.Blocks]]) -> dict[str, wire.Features]:
    return {name: wire.features_of(f"features of {name!r}", blocks) for name, blocks in actions}


def _check_size(contexts: Sequence[wire.Features], actions: Mapping[str, wire.Features]) -> None:
    """Refuse a request whose pairs of features would keep others waiting."""
    of_actions = sum(len(hashes) for hashes, _ in actions.values())
    pairs = of_actions * sum(len(hashes) for hashes, _ in contexts)
    if pairs > MOST_PAIRS:
        raise InvalidValue(
            "features", pairs, f"give fewer: at most {MOST_PAIRS} pairs of one feature of the "
            "context and one of an action, all slots together",
        )  # fmt: skip


def _checked(actions: Sequence[wire.RankableAction]) -> list[str]:
    names = [checked_id(f"actions[{i}].id", action.id) for i, action in enumerate(actions)]
    return _distinct("actions", names)


def _check_slots(slots: Sequence[wire.SlotRequest], actions: set[str]) -> None:
    _distinct("slots", [checked_id(f"slots[{i}].id", slot.id) for i, slot in enumerate(slots)])
    _distinct("slots.baselineAction", [slot.baseline_action for slot in slots])
    for i, slot in enumerate(slots):
        if slot.baseline_action not in actions.difference(slot.excluded_actions or ()):
            raise InvalidValue(
                f"slots[{i}].baselineAction",
                slot.baseline_action,
                "name one of the actions that the slot does not exclude",
            )


def _distinct(field: str, names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise InvalidValue(field, names, "give each only once")
    return names


# ---- Placements that answer the Personalizer API: JSON features in, probabilities of actions out


class ShownRanking(msgspec.Struct):
    """What a decision answered, as the log keeps it.

    Attributes
    ----------
    ranking : list of (id, probability)
        All actions of the request; without a probability those that could not be chosen.
    """

    ranking: list[tuple[str, float | None]]

    @classmethod
    def of(cls, row: DecisionRow) -> ShownRanking:
        """Return what a decision of the log answered."""
        return msgspec.json.decode(row.shown or "", type=cls)

    @property
    def candidates(self) -> list[str]:
        """The actions that could be chosen."""
        return [name for name, chance in self.ranking if chance is not None]


class _Counts(msgspec.Struct):
    settings: wire.Settings
    edited: int
    made: int
    taught: int


class PersonalizerPlacement(FeaturePlacement):
    """Decides for one of the actions that a request describes in JSON, in as many slots as it has.

    Parameters are those of :class:`Placement`. The log keeps the features as they came; a vector
    is worked out from them again for what was shown, and nothing else is held in memory.

    Attributes
    ----------
    settings : Settings
    edited : int
        When they were changed last, in microseconds since 1970; 0 for never.
    made, taught : int
        When the first decision was made, and when something was learned last; 0 for never.
    """

    named_features = False
    # What it answers names a probability of each action, which a control that decides everything has not.
    possible_modes = tuple(mode for mode in MODES if mode != CONTROL)

    @property
    def dim(self) -> int:
        """Length of an action's vector."""
        return self.config.policy.feature_dims[0]

    def _begin(self) -> None:
        super()._begin()
        self.settings = wire.Settings.of(self.config.rule, self.config.policy)
        self.edited = self.made = self.taught = 0
        self._taken: set[Arm] = set()
        self._weighed: dict[Arm, tuple[float, float]] = {}

    # Decide ----------------------------------------------------------------------------------

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide one by one; what stands in a slot of an event is not on offer for its others."""
        made = []
        for i, impression in enumerate(impressions):
            if impression.given.asked.slot == 0:
                self._taken = set()
            row = self._chosen(impression, seq + i, time)
            self._taken.update(row.column("arm"))
            made.append(row)
        return Block.joined(DecisionRow, made)

    def count_candidates(self, impressions: Sequence[Impression]) -> Sequence[int]:
        # The slots of an event are decided together, and their actions came with the request.
        return [0] * len(impressions)

    def _choose(self, learner: Learner, impression: Impression) -> Decision:
        offer: DescribedActions = impression.given
        assert impression.arms is not None
        places = [i for i, arm in enumerate(impression.arms) if arm not in self._taken]
        names, rows = [impression.arms[i] for i in places], offer.relevance[places]
        decision = learner.choose(impression.key, None, names, relevance=rows)
        if learner is self.learner:
            chances = learner.probabilities(impression.key, None, names, relevance=rows)
            assert chances is not None
            promises = chances
            if isinstance(learner.policy, LinearEpsilonGreedy):
                # All but the leader have one chance there; what they promise tells them apart.
                promises = rows @ learner.state.mean[learner.lane(impression.key)][: self.dim]
            pairs = zip(chances.tolist(), promises.tolist(), strict=True)
            self._weighed = dict(zip(names, pairs, strict=True))
        return decision

    most_fixed = 0

    def _baseline(self, impression: Impression, decision: Decision) -> tuple[Arm, ...]:
        return (impression.given.baseline,)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        return np.zeros(1, np.int64)

    def _held_out(self, asked: Block[Impression], ids: Sequence[str]) -> tuple[Sequence[Decision], Tossed]:
        assert self.control.coin is not None
        (impression,) = asked
        decision = self._choose(self.learner, impression)
        names = list(self._weighed)
        first = names.index(impression.given.baseline)
        offer = np.array([first, *(i for i in range(len(names)) if i != first)])
        tossed = self.control.coin.toss(ids, [None], [offer])
        each = np.arange(len(names))[:, None]
        alone, promises = np.array([self._weighed[name] for name in names]).T
        control = self.control.coin.control.chances(each, [offer] * len(names))
        mixed = self.control.coin.mixed(alone, control).tolist()
        self._weighed = dict(zip(names, zip(mixed, promises.tolist(), strict=True), strict=True))
        arm = names[tossed.imposed[0, 0]] if tossed.control[0] else decision.arm
        return [decision._replace(shown=(arm,), propensity=self._weighed[arm][0])], tossed

    def control_chances(self, slots: Ints) -> Floats:
        assert self.control.coin is not None
        found = np.empty(len(slots))
        for i, row in enumerate(self.windows.rows(slots)):
            names = ShownRanking.of(row).candidates
            order = Asked.read(row.asked)
            baseline = order.baseline or next(n for n, _ in order.actions if n in names)
            offer = [baseline, *(name for name in names if name != baseline)]
            place = np.array([[offer.index(str(row.arm))]])
            (found[i],) = self.control.coin.control.chances(place, [np.arange(len(offer))])
        return found

    def _all_shown(
        self,
        asked: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> list[str | None]:
        return list(map(self._ranking, asked, decisions))

    def _ranking(self, impression: Impression, shown: Decision) -> str:
        """Return the ranking: what was chosen, the others by what they promise; what could not be
        chosen stays where it stood."""
        chosen, weighed = shown.arm, self._weighed
        others = [arm for arm in weighed if arm != chosen]
        rest = iter([chosen, *sorted(others, key=lambda arm: weighed[arm], reverse=True)])
        ranking: list[tuple[Any, float | None]] = []
        for name, _ in impression.given.asked.actions:
            if name not in weighed:
                ranking.append((name, None))
                continue
            arm = next(rest)
            # A baseline that is always shown has the probability 1.
            fixed = self.modes.now == APPRENTICE
            ranking.append((arm, float(arm == chosen) if fixed else weighed[arm][0]))
        return msgspec.json.encode(ShownRanking(ranking)).decode()

    def decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], second: Decision | None = None
    ) -> None:
        self.made = self.made or rows[0].time
        shown = list(map(self._shown_only, rows, decisions))
        super().decided(rows, shown, second and self._shown_only(rows[0], second))

    def _shown_only(self, row: DecisionRow, decision: Decision) -> Decision:
        """Return a decision without what was not shown."""
        if len(decision.offered) == 1:
            return decision
        return self.decision_of(row, decision.epoch)

    # The log ---------------------------------------------------------------------------------

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        vector = vector_of(Asked.read(row.asked), str(row.arm), self.dim)
        place = np.zeros(1, np.int64)
        return Decision(
            row.seq, row.key, (row.arm,), row.propensity, epoch, place, place, np.empty(0),
            vector, NO_FEATURES,
        )  # fmt: skip

    def _offered(self, row: DecisionRow) -> int:
        return len(ShownRanking.of(row).candidates)

    def _teach(self, rewards: Lessons) -> Booleans:
        if rewards.values:
            self.taught = self.windows.time
        return super()._teach(rewards)

    # Settings --------------------------------------------------------------------------------

    def current_mark(self, kind: str) -> str | None:
        """Return what the last mark of a kind says, or would say; see the base class."""
        return self.settings.text if kind == SETTINGS else super().current_mark(kind)

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark."""
        super().marked(mark)
        if mark.kind == SETTINGS and mark.placement == self.id:
            self.edited = mark.time
            self._settle_on(wire.Settings.read(mark.value))

    def _settle_on(self, settings: wire.Settings) -> None:
        self.settings = settings
        self.windows.rule = settings.rule(self.config.rule)
        self.learner.tune(epsilon=settings.epsilon)

    def counts(self) -> Any:
        """Return what else was counted, as JSON data."""
        return msgspec.to_builtins(_Counts(self.settings, self.edited, self.made, self.taught))

    def _take_counts(self, counts: Any) -> None:
        saved = msgspec.convert(counts, _Counts)
        self.edited, self.made, self.taught = saved.edited, saved.made, saved.taught
        if self.edited:
            self._settle_on(saved.settings)


# ---- Placements that answer the Personalizer API


class PersonalizerTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """Answers the interface of Personalizer.

    Attributes
    ----------
    default_reward : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum`` (at
        most 1), or the ``max``.
    """

    policy: str | dict[str, Any] = "linear-epsilon-greedy(dim=256)"
    attribution_window: Seconds = 600.0
    default_reward: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)] = 0.0
    aggregation: Aggregation = "first"
    propensities: Literal[True] = True

    choices = None

    @property
    def attribution(self) -> dict[str, Any]:
        return {"default": self.default_reward, "aggregation": self.aggregation, "lowest": -1.0}


def example(placement: Placement) -> dict[str, Any]:
    """Return a request for one of two actions."""
    actions = [{"id": name, "features": [{"topic": name}]} for name in ("news", "sport")]
    return {"contextFeatures": [{"time": "morning"}], "actions": actions}


def check(policy: Policy) -> None:
    """Check that a policy reads vectors of actions, and that settings can say how much it explores.

    Raises
    ------
    ConfigError
        If not.
    """
    floored = isinstance(policy, ExplorationFloor) and policy.feature_dims[1] == policy.context_dim == 0
    if not isinstance(policy, LinearEpsilonGreedy) and not floored:
        raise ConfigError(
            f"policy: {type(policy).__name__} does not say with what "
            "probability it chooses each action; give linear-epsilon-greedy(dim=256), or "
            "exploration-floor(policy=embedding-mixture(relevance_dim=256), epsilon=0.2)"
        )


KIND = Kind(
    PERSONALIZER, "personalizer/v1.0/rank", "arm", PersonalizerTable, PersonalizerPlacement,
    FeatureView, example,
    by_features=True,
    sharded=False,
    controls=("uniform", "baseline"),
    units=("decision",),
    check=check,
)  # fmt: skip
