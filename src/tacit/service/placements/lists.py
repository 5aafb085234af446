"""Placements that show lists, and placements whose requests describe their arms by features."""

# 1. ``SlatePlacement``: shows an ordered list of arms; learns from clicks on positions.
# 2. ``FeaturePlacement``: arms come with the request and are described by features.
# 3. Checks of feature rows, and their conversion to arrays.
# 4. ``ItemListPlacement``: lists of items from requests or from a catalogue.

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnknownName
from tacit.learning.catalogue import Located, Whole
from tacit.learning.decisions import Arm, Decision, in_pieces
from tacit.learning.explanation import as_rows
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES
from tacit.service.config.file import checked_within
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.log import requests
from tacit.service.log.blocks import Block, values
from tacit.service.log.rows import DecisionRow, slate_of, slate_text, text_of
from tacit.service.placements.aspects.control_group import Control, ListControl
from tacit.service.placements.aspects.items import Sought, as_array, shown_of, shown_text, sought_by
from tacit.service.placements.attribution import ClickAttribution, Lessons
from tacit.service.placements.learning import Earned
from tacit.service.placements.placement import Placement
from tacit.service.placements.state import Asked, Held, Texts

# ---- Slate placements: ordered lists of arms, and clicks on positions

# Rows of the tally by position: lists with an arm at the position, with a click there, and with their first
# click there.
SHOWN, CLICKED, FIRST = range(3)


class SlatePlacement(Placement):
    """Decides which arms to list, best first, and learns from the clicks on each position.

    Parameters are those of :class:`Placement`.
    """

    attribution = ClickAttribution

    def _begin(self) -> None:
        super()._begin()
        self.tally = np.zeros((3, self._positions), np.int64)

    @property
    def _positions(self) -> int:
        return self.config.policy.action_width

    def control_of(self, holdout: HoldoutConfig) -> Control:
        return ListControl(holdout.named, self._positions)

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        return [
            slate_text(self._listed(decision), decision.prefix_propensities, decision.position_propensities)
            for decision in made
        ]

    def _listed(self, decision: Decision) -> list[Arm | None]:
        """Return the arm at each position, without empty positions at the end; None for empty ones."""
        slots = decision.slots.tolist()
        while slots and slots[-1] < 0:
            slots.pop()
        return [None if slot < 0 else self.arms[slot] for slot in slots]

    @property
    def most_fixed(self) -> int:
        return self._positions

    def _would_show(self, decision: Decision) -> Arm:
        return json.dumps(self._listed(decision))

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision listed, best first; None at an empty position."""
        return tuple(slate_of(row.shown).arms)  # type: ignore[arg-type]

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        slots = np.full(self._positions, -1, np.int64)
        slots[: len(shown)] = [self.living.slots.get(arm, -1) for arm in shown]
        return slots

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        return np.array([self._slots_shown(self.shown(row), None) for row in rows])

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        known = self.living.slots
        slots = [known[arm] for row in rows for arm in self.shown(row) if arm in known]
        unknown = [None] * len(slots)
        self.series.decided_many(rows[0].time, slots, unknown, [1] * len(slots), len(rows))

    def positions(self, row: DecisionRow, feedback: requests.FeedbackRequest) -> str | None:
        """Format the clicked positions of feedback for the log; see the base class."""
        listed = self.shown(row)
        positions = requests.clicked_positions(feedback, listed)
        if positions is None:
            return None
        for position in json.loads(positions):
            if listed[position] is None:
                raise InvalidValue("clicks", position, "nothing was shown at this position")
        return positions

    def _policy_rewards(self, rewards: Lessons) -> list[Any]:
        """Return for each decision 1 at clicked positions and 0 at others."""
        return list(map(self._clicked, rewards.values))

    def _clicked(self, clicks: Sequence[int]) -> float | list[float]:
        rewards = [0.0] * self._positions
        for position in clicks:
            rewards[position] = 1.0
        return rewards if self._positions > 1 else rewards[0]

    def _count_rewards(self, rewards: Lessons) -> None:
        times = self.windows.values(rewards.entries, "time")
        actions = self.open.actions(rewards.entries)
        for time, slots, clicks in zip(times, actions, rewards.values, strict=True):
            for position in clicks:
                self.series.rewarded(time, None, 1, 1.0, self._clicked_slot(slots[position]))
            self.tally[SHOWN] += slots >= 0
            self.tally[CLICKED, clicks] += 1
            self.tally[FIRST, clicks[:1]] += 1

    def _earned(self, rewards: Lessons) -> list[Earned]:
        listed = self.open.actions(rewards.entries).tolist()
        return [
            [(self._clicked_slot(slots[position]), [1.0]) for position in clicks]
            for slots, clicks in zip(listed, rewards.values, strict=True)
        ]

    def _clicked_slot(self, slot: int) -> int | None:
        """Return the arm index to which clicks on a listed arm are counted; None if arms are not counted."""
        return int(slot)

    def counts(self) -> Any:
        """Return the tally of all positions as JSON data."""
        return self.tally.tolist()

    def _take_counts(self, counts: Any) -> None:
        # Old snapshots without a tally have None, which fails here, and the log is folded.
        self.tally[:] = np.array(counts, np.int64)

    def show_counts(self, parts: Sequence[Any]) -> None:
        self.tally[:] = np.sum(np.array(parts, np.int64), axis=0)


# ---- Feature placements: arms come with the request and are described by features

MOST_ARMS = 10_000
PLACES = np.arange(MOST_ARMS)
"""Indices of arms without names: one array, of which all open decisions hold views."""


class FeaturePlacement(Placement):
    """Decides for one of the arms that a request describes by their features.

    Parameters are those of :class:`Placement`. The log holds the features of every arm on offer.
    """

    named_features: ClassVar[bool] = True
    """Whether each weight of the policy belongs to one feature."""

    @property
    def layers(self) -> int:
        # Arms that come and go have no share of the impressions.
        return max(len(self.living.slots), 1)

    @property
    def first_belief(self) -> tuple[str, Any] | None:
        """The first key, and its posterior over the features' weights; None if it has none."""
        keys = self.learner.lanes.of
        if not keys or not self.named_features:
            return None
        first = next(iter(keys))
        # A restarting policy delegates to its inner policy, which may have no posterior.
        with contextlib.suppress(UnknownName, AttributeError):
            return first, self.learner.posterior(first)
        return None

    # Decide ----------------------------------------------------------------------------------

    def checked(self, request: requests.DecisionRequest) -> requests.Impression:
        """Check a request and return its impression.

        Raises
        ------
        InvalidValue, UnknownName
            If the request does not fit the placement.
        """
        self._session(request.session)
        if request.relevance is None and self.items is not None:
            return self._of_catalogue(request)
        if request.segment is not None or request.unknown is not None:
            field, value = ("segment", request.segment) if request.segment else ("unknown", request.unknown)
            raise InvalidValue(field, value, "leave it out: the features come with the request")
        given = []
        fields = ("relevance", request.relevance), ("examination", request.examination)
        for (field, rows), dim in zip(fields, self.config.policy.feature_dims, strict=True):
            given.append(feature_rows(field, rows, dim))
        sizes = {len(rows) for rows in given if rows is not None}
        if len(sizes) > 1:
            raise InvalidValue("examination", len(given[1] or ()), "give as many rows as of relevance")
        (size,), arms = sizes, request.arms
        if self.living.slots and arms is None and size != len(self.living.slots):
            raise InvalidValue("relevance", size, f"give a row for each of {len(self.living.slots)} arms")
        if arms is not None:
            arms = self._offer(arms, size)
        asked = msgspec.json.encode(dict(zip(("relevance", "examination"), given, strict=True)))
        impression = self._impression(request, arms, asked.decode(), given)
        return self._of_unit(impression, request.session, request.user)

    def _of_catalogue(self, request: requests.DecisionRequest) -> requests.Impression:
        sought = sought_by(request)
        impression = self._impression(request, request.arms, sought.text, sought)
        return self._of_unit(impression, request.session, request.user)

    def asked_before(self, impression: requests.Impression, row: DecisionRow) -> bool:
        if isinstance(impression.given, Sought) and impression.given.skips and row.offered is not None:
            # Missing items were skipped: compare with the items that existed.
            there = set(json.loads(row.offered))
            impression = impression._replace(arms=[arm for arm in impression.arms or () if arm in there])
        return super().asked_before(impression, row)

    def looked_up(
        self, impressions: Sequence[requests.Impression], places: Sequence[int]
    ) -> Sequence[requests.Impression]:
        if self.items is None or not any(isinstance(each, Sought) for each in values(impressions, "given")):
            return impressions
        if len(impressions) == 1:
            return [self._looked_up(impressions[0])]
        pairs = zip(places, impressions, strict=True)
        return [checked_within(f"decisions[{place}]", self._looked_up, (each,)) for place, each in pairs]

    def _looked_up(self, impression: requests.Impression) -> requests.Impression:
        if not isinstance(impression.given, Sought):
            return impression
        if self.learner.kept_items is None:
            dim, _ = self.config.policy.feature_dims
            remedy = f"give {dim} finite numbers for each arm on offer, or put items into the catalogue"
            raise InvalidValue("relevance", None, remedy)
        found = impression.given.candidates(self.learner.items, impression.arms)
        return impression._replace(arms=found.ids, given=(found, None))

    def count_candidates(self, impressions: Sequence[requests.Impression]) -> Sequence[int]:
        return list(map(self._count_candidates, impressions))

    def _count_candidates(self, impression: requests.Impression) -> int:
        """Return the number of candidates of an impression; 0 for a client-side decision."""
        given = impression.given
        if isinstance(given, Sought):
            return given.count_candidates(self.learner.items, impression.arms)
        if isinstance(given, requests.Made):
            return 0
        return max(len(rows) for rows in given if rows is not None)

    def _offer(self, arms: Sequence[Arm], size: int) -> list[Arm]:
        if self.living.slots:
            offer = self.living.named(arms)
        else:
            offer = [checks.name("arms", a) if isinstance(a, str) else int(a) for a in arms]
        if len(offer) != size or len(set(offer)) < size:
            raise InvalidValue("arms", arms, f"name each of the {size} arms with features, once")
        return offer

    def _choose(self, learner: Learner, impression: requests.Impression) -> Decision:
        context = impression.context if learner.policy.context_dim else None
        relevance, examination = impression.given
        if isinstance(relevance, Located):
            # ``choose`` refuses relevance for a policy with a catalogue, so rows are passed directly.
            rows = as_rows(context, impression.arms, relevance.vectors, examination)
            return learner.choose_rows([impression.key], rows)[0]
        key, arms = impression.key, impression.arms
        return learner.choose(key, context, arms, relevance=relevance, examination=examination)

    def _chosen_many(self, asked: Block[requests.Impression], seq: int, time: int) -> Block[DecisionRow]:
        pieces = in_pieces(self.count_candidates(asked), self.candidate_size)
        chosen = super()._chosen_many
        parts = [chosen(asked[part], seq + part.start, time) for part in pieces]
        return Block.joined(DecisionRow, parts)

    def _given(self, learner: Learner, asked: Block[requests.Impression]) -> tuple[Any, Any, Any, Any]:
        dims = self.config.policy.feature_dims
        relevance, examination = (
            [as_array(given[i]) for given in asked.column("given")] if dims[i] else None for i in range(2)
        )
        contexts = None
        if learner.policy.context_dim:
            contexts = [context or () for context in asked.column("context")]
        return contexts, asked.column("arms"), relevance, examination

    def offer_of(self, impression: requests.Impression) -> Ints:
        if self.living.slots or impression.arms is not None:
            return self.offered_slots(impression.arms)
        return np.arange(max(len(rows) for rows in impression.given if rows is not None))

    def can_show(self, impression: requests.Impression) -> Sequence[Arm]:
        if impression.arms is not None or self.living.slots:
            return super().can_show(impression)
        return range(max(len(rows) for rows in impression.given if rows is not None))

    # The log ---------------------------------------------------------------------------------

    def rows_of(self, asked: Block[requests.Impression], *given: Any, **more: Any) -> Block[DecisionRow]:
        arms = [None if isinstance(each, Whole) else each for each in asked.column("arms")]
        return super().rows_of(asked.with_column("arms", arms), *given, **more)

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        located = _located(asked)
        if located.count(None) == len(located):
            return [None] * len(ids)
        pairs = zip(located, made, strict=True)
        return [None if found is None else shown_text(found, decision) for found, decision in pairs]

    def _keep(
        self, entries: Ints, rows: Block[DecisionRow], decisions: Sequence[Decision], second: Decision | None
    ) -> None:
        shown = rows.column("shown")
        if any(shown):
            pairs = zip(decisions, shown, strict=True)
            decisions = [_lean(decision) if text else decision for decision, text in pairs]
            second = second and _lean(second)
        super()._keep(entries, rows, decisions, second)

    def _known_item(self, row: DecisionRow) -> Any:
        """Return the catalogue item that a logged decision showed; None if its candidates were others."""
        return shown_of(row.shown)

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        item = self._known_item(row)
        if item is not None:
            at = super().decision_of(row._replace(arm=item.place, offered=None, shown=None), epoch)
            return at._replace(shown=(row.arm,), offered=PLACES[: item.of], relevance=item.relevance)
        decision = super().decision_of(row, epoch)
        features = json.loads(row.asked or "")
        relevance, examination = (
            matrix(features.get(field), dim)
            for field, dim in zip(("relevance", "examination"), self.config.policy.feature_dims, strict=True)
        )
        offered = decision.offered
        if row.offered is None:
            offered = np.arange(max(len(relevance), len(examination)))
        return decision._replace(offered=offered, relevance=relevance, examination=examination)

    def offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        if self.living.slots or offered is None:
            return super().offered_slots(offered)
        return np.arange(len(offered))

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if self.living.slots:
            return super()._slots_shown(shown, offered)
        if offered is None:
            return np.array([int(arm) for arm in shown])
        return np.array([list(offered).index(arm) for arm in shown])

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        slots = [self.living.slots.get(arm, 0) for arm in rows.column("arm")]
        offered = list(map(self._offered, rows))
        self.series.decided_many(rows[0].time, slots, self._weighable(rows), offered)

    def _earning(self, entries: Ints) -> list[int | None]:
        # Arms that come with requests have no permanent index.
        return super()._earning(entries) if self.living.slots else [None] * len(entries)

    def _offered(self, row: DecisionRow) -> int:
        item = self._known_item(row)
        if item is not None:
            count: int = item.of
            return count
        if row.offered is not None:
            return len(json.loads(row.offered))
        features = json.loads(row.asked or "")
        return len(features["relevance"] or features["examination"])


def _located(asked: Asked) -> list[Located | None]:
    """Return the candidates that each impression has from the catalogue; None for others."""
    return [given[0] if isinstance(given[0], Located) else None for given in asked.column("given")]


def _lean(decision: Decision) -> Decision:
    """Return a decision with the features of its shown arms alone, and unnamed arms on offer."""
    return decision.lean()._replace(offered=PLACES[: len(decision.offered)])


def feature_rows(field: str, rows: Any, dim: int) -> list[list[float]] | None:
    """Check rows of features and convert them to floats; None if the policy reads none.

    Raises
    ------
    InvalidValue
        If there is no row, or a row is not ``dim`` finite numbers; the error names the row.
    """
    if dim == 0:
        if rows is not None:
            raise InvalidValue(field, rows, "leave it out: the policy reads none")
        return None
    if not isinstance(rows, Sequence) or not 0 < len(rows) <= MOST_ARMS:
        raise InvalidValue(field, rows, f"give {dim} finite numbers for each arm on offer")
    found = []
    for i, row in enumerate(rows):
        numbers = [float(x) for x in row]
        if len(numbers) != dim or not all(map(math.isfinite, numbers)):
            raise InvalidValue(f"{field}[{i}]", row, f"give {dim} finite numbers")
        found.append(numbers)
    return found


def matrix(rows: requests.FeatureRows | None, dim: int) -> Floats:
    """Return rows of features as an array."""
    return NO_FEATURES if rows is None else np.array(rows, np.float64).reshape(-1, dim)


# ---- Lists of items with features, from requests or from a catalogue


class ItemsShown(msgspec.Struct, frozen=True):
    """The catalogue items that a decision listed, as its row of the log holds them.

    Attributes
    ----------
    slate : list of str or int
        Listed items from the top.
    prefixes, places : list of float
        Propensities, as in :class:`~tacit.service.log.rows.Slate`.
    vectors : bytes
        Vectors of the listed items: numbers of half precision, one vector after the other.
    at : list of int
        Positions of the listed items among the candidates.
    of : int
        Number of candidates.
    """

    slate: list[Arm]
    prefixes: list[float]
    places: list[float]
    vectors: bytes
    at: list[int]
    of: int

    @property
    def relevance(self) -> Floats:
        """Vectors of the listed items; in the order of the candidates if all candidates are listed."""
        rows = np.frombuffer(self.vectors, np.float16).reshape(len(self.at), -1).astype(np.float64)
        return rows[np.argsort(self.at)] if len(self.at) == self.of else rows


class ItemListPlacement(SlatePlacement, FeaturePlacement):
    """Decides which items to list, best first, and learns from the clicks on each position.

    Parameters are those of :class:`~tacit.service.placements.placement.Placement`.
    """

    named_features = False

    def _listed(self, decision: Decision) -> list[Arm | None]:
        return list(decision.shown)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        slots = np.full(self._positions, -1, np.int64)
        slots[: len(shown)] = shown if offered is None else [offered.index(arm) for arm in shown]
        return slots

    # The log ---------------------------------------------------------------------------------

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        return [self._shown_text(*pair) for pair in zip(_located(asked), made, strict=True)]

    def _shown_text(self, found: Located | None, decision: Decision) -> str:
        listed, given = self._listed(decision), (decision.prefix_propensities, decision.position_propensities)
        if found is None:
            return slate_text(listed, *given)
        prefixes, places = (chances[: len(listed)].tolist() for chances in given)
        at = decision.slots[: len(listed)].tolist()
        vectors = found.halves[found.rows[at]].tobytes()
        return text_of(ItemsShown(list(decision.shown), prefixes, places, vectors, at, len(found)))

    def _known_item(self, row: DecisionRow) -> ItemsShown | None:
        text = row.shown or ""
        return msgspec.json.decode(text, type=ItemsShown) if '"vectors":' in text else None

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        items = self._known_item(row)
        if items is None:
            return super().decision_of(row, epoch).lean()
        by_place = row._replace(offered=None, shown=text_of(items.at))
        at = super().decision_of(by_place, epoch)
        return at._replace(shown=tuple(items.slate), offered=PLACES[: items.of], relevance=items.relevance)

    # Counts ----------------------------------------------------------------------------------

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        # Items that come and go have no share of the impressions.
        count = sum(len(self.shown(row)) for row in rows)
        self.series.decided_many(rows[0].time, [0] * count, [None] * count, [1] * count, len(rows))

    def _clicked_slot(self, slot: int) -> None:
        return None
