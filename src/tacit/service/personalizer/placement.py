"""Placements that answer the Personalizer API: JSON features in, probabilities of actions out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.decisions import Arm, Decision
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES
from tacit.service.attribution.attribution import Rewards
from tacit.service.lift.coin import Tossed
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import Impression
from tacit.service.log.rows import APPRENTICE, SETTINGS, DecisionRow, MarkRow
from tacit.service.personalizer.requests import Asked, Offer, vector_of
from tacit.service.personalizer.settings import Settings
from tacit.service.placements.features import FeaturePlacement


class Shown(msgspec.Struct):
    """What a decision answered, as the log keeps it.

    Attributes
    ----------
    ranking : list of (id, probability)
        All actions of the request; without a probability those that could not be chosen.
    """

    ranking: list[tuple[str, float | None]]

    @classmethod
    def of(cls, row: DecisionRow) -> Shown:
        """Return what a decision of the log answered."""
        return msgspec.json.decode(row.shown or "", type=cls)

    @property
    def candidates(self) -> list[str]:
        """The actions that could be chosen."""
        return [name for name, chance in self.ranking if chance is not None]


class _Counts(msgspec.Struct):
    settings: Settings
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

    @property
    def dim(self) -> int:
        """Length of an action's vector."""
        return self.config.policy.feature_dims[0]

    def _begin(self) -> None:
        super()._begin()
        self.settings = Settings.of(self.config.rule, self.config.policy)
        self.edited = self.made = self.taught = 0
        self._taken: set[Arm] = set()
        self._weighed: dict[Arm, tuple[float, float]] = {}

    # Decide ----------------------------------------------------------------------------------

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide one by one; what stands in a slot of an event is not on offer for its others."""
        made = []
        for i, told in enumerate(impressions):
            if told.given.asked.slot == 0:
                self._taken = set()
            row = self._chosen(told, seq + i, time)
            self._taken.update(row.column("arm"))
            made.append(row)
        return Block.joined(DecisionRow, made)

    def _choose(self, learner: Learner, told: Impression) -> Decision:
        offer: Offer = told.given
        assert told.arms is not None
        places = [i for i, arm in enumerate(told.arms) if arm not in self._taken]
        names, rows = [told.arms[i] for i in places], offer.relevance[places]
        decision = learner.choose(told.key, None, names, relevance=rows)
        if learner is self.learner:
            chances = learner.probabilities(told.key, None, names, relevance=rows)
            assert chances is not None
            mean = learner.state.mean[learner.lane(told.key)]
            pairs = zip(chances.tolist(), (rows @ mean[: self.dim]).tolist(), strict=True)
            self._weighed = dict(zip(names, pairs, strict=True))
        return decision

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        return (told.given.baseline,)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        return np.zeros(1, np.int64)

    def _held_out(
        self, asked: Block[Impression], ids: Sequence[str]
    ) -> tuple[Sequence[Decision], Tossed | None]:
        assert self.coin is not None
        (told,) = asked
        decision = self._choose(self.learner, told)
        names = list(self._weighed)
        first = names.index(told.given.baseline)
        offer = np.array([first, *(i for i in range(len(names)) if i != first)])
        tossed = self.coin.toss(ids, [None], [offer])
        each = np.arange(len(names))[:, None]
        alone, promises = np.array([self._weighed[name] for name in names]).T
        control = self.coin.control.chances(each, [offer] * len(names))
        mixed = self.coin.mixed(alone, control).tolist()
        self._weighed = dict(zip(names, zip(mixed, promises.tolist(), strict=True), strict=True))
        arm = names[tossed.imposed[0, 0]] if tossed.control[0] else decision.arm
        return [decision._replace(shown=(arm,), propensity=self._weighed[arm][0])], tossed

    def _control_chances(self, slots: Ints) -> Floats:
        assert self.coin is not None
        found = np.empty(len(slots))
        for i, row in enumerate(self.windows.rows(slots)):
            names = Shown.of(row).candidates
            order = Asked.read(row.asked)
            baseline = order.baseline or next(n for n, _ in order.actions if n in names)
            offer = [baseline, *(name for name in names if name != baseline)]
            place = np.array([[offer.index(str(row.arm))]])
            (found[i],) = self.coin.control.chances(place, [np.arange(len(offer))])
        return found

    def _all_shown(
        self,
        asked: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> list[str | None]:
        return list(map(self._ranking, asked, decisions))

    def _ranking(self, told: Impression, shown: Decision) -> str:
        """Return the ranking: what was chosen, the others by what they promise; what could not be
        chosen stays where it stood."""
        chosen, weighed = shown.arm, self._weighed
        others = [arm for arm in weighed if arm != chosen]
        rest = iter([chosen, *sorted(others, key=lambda arm: weighed[arm], reverse=True)])
        ranking: list[tuple[Any, float | None]] = []
        for name, _ in told.given.asked.actions:
            if name not in weighed:
                ranking.append((name, None))
                continue
            arm = next(rest)
            # A baseline that is always shown has the probability 1.
            fixed = self.mode == APPRENTICE
            ranking.append((arm, float(arm == chosen) if fixed else weighed[arm][0]))
        return msgspec.json.encode(Shown(ranking)).decode()

    def _decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], shadow: Decision | None = None
    ) -> None:
        self.made = self.made or rows[0].time
        shown = list(map(self._shown_only, rows, decisions))
        super()._decided(rows, shown, shadow and self._shown_only(rows[0], shadow))

    def _shown_only(self, row: DecisionRow, decision: Decision) -> Decision:
        """Return a decision without what was not shown."""
        if len(decision.offered) == 1:
            return decision
        return self._decision(row, decision.epoch)

    # The log ---------------------------------------------------------------------------------

    def _decision(self, row: DecisionRow, epoch: int) -> Decision:
        vector = vector_of(Asked.read(row.asked), str(row.arm), self.dim)
        place = np.zeros(1, np.int64)
        return Decision(
            row.seq, row.key, (row.arm,), row.propensity, epoch, place, place, np.empty(0),
            vector, NO_FEATURES,
        )  # fmt: skip

    def _offered(self, row: DecisionRow) -> int:
        return len(Shown.of(row).candidates)

    def _teach(self, rewards: Rewards) -> Booleans:
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
            self._settle_on(Settings.read(mark.value))

    def _settle_on(self, settings: Settings) -> None:
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
