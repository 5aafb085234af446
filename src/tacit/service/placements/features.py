"""Placements whose requests describe their arms by features, or name items of a catalogue."""

# 1. ``FeatureShows``, ``FeatureReader``, ``FeatureResults``: arms come with the request.
# 2. Checks of feature rows, and their conversion to arrays.
# 3. ``ItemListShows``, ``ItemListResults``: lists of items.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.learning.catalogue import AllIds, CandidateSet
from tacit.learning.columns import find_catalogue
from tacit.learning.decisions import Arm, Decision, Decisions
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES
from tacit.service.config.file import check_item
from tacit.service.deciders.items import (
    CandidateQuery,
    format_shown_item,
    make_candidate_query,
    parse_shown_item,
    read_vectors,
)
from tacit.service.log import requests
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, decode_json, encode_json, encode_list
from tacit.service.placements.lists import ListResults, ListShows
from tacit.service.placements.requests import RequestReader
from tacit.service.placements.results import Results
from tacit.service.placements.shows import LogTexts, OfferFeatures, Shows

MAX_ARMS = 10_000
ARM_NUMBERS = np.arange(MAX_ARMS)
"""Indices of arms without names: one array, of which all open decisions hold views."""

# ---- Arms come with the request and are described by features


class FeatureShows(Shows):
    """Actions of a placement that shows one of the arms that a request describes by their features.

    The log holds the features of every arm on offer, or the vector of the shown item of the catalogue.
    """

    @property
    def layers(self) -> int:
        """Number of arms whose impressions the series counts; 1 if arms come with requests."""
        # Arms that come and go have no share of the impressions.
        return max(len(self.lifecycle.arm_indices), 1)

    # Offers ----------------------------------------------------------------------------------

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the names of the arms on offer to an impression; 0, 1, … if its arms have no names."""
        if impression.arms is not None or self.lifecycle.arm_indices:
            return super().list_offer(impression)
        return range(max(len(rows) for rows in impression.details if rows is not None))

    def get_offer(self, impression: Impression) -> Ints:
        """Return the indices of the arms on offer, the baseline first; 0, 1, … if arms come with requests."""
        if self.lifecycle.arm_indices or impression.arms is not None:
            return self.get_offered_indices(impression.arms)
        return np.arange(max(len(rows) for rows in impression.details if rows is not None))

    def get_offered_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a logged decision.

        They are 0, 1, … if arms come with requests.
        """
        if self.lifecycle.arm_indices or offered is None:
            return super().get_offered_indices(offered)
        return np.arange(len(offered))

    def count_offered(self, offered: str | None, shown: str | None, asked: str | None) -> int:
        """Return the number of arms on offer to a logged decision, from fields of its row."""
        items = self.parse_items(shown)
        if items is not None:
            count: int = items.of
            return count
        if offered is not None:
            return len(decode_json(offered))
        features = decode_json(asked)
        return len(features["relevance"] or features["examination"])

    # Actions ---------------------------------------------------------------------------------

    def read_inputs(self, learner: Learner, impressions: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return the columns of impressions that a learner takes: contexts, arms, relevance and examination.

        A column is None if the policy does not read it.
        """
        dims = self.config.policy.feature_dims
        # ``details`` are pairs of relevance and examination; without impressions there is no pair.
        features = list(zip(*impressions.column("details"), strict=True)) or [(), ()]
        relevance, examination = (read_vectors(features[i], dims[i]) if dims[i] else None for i in range(2))
        contexts = None
        if learner.policy.context_dim:
            contexts = [context or () for context in impressions.column("context")]
        return contexts, impressions.column("arms"), relevance, examination

    def get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of shown arms; their positions on offer if arms come with requests."""
        if self.lifecycle.arm_indices:
            return super().get_shown_indices(shown, offered)
        if offered is None:
            return np.array([int(arm) for arm in shown])
        return np.array([list(offered).index(arm) for arm in shown])

    # The log ---------------------------------------------------------------------------------

    def format_offers(self, arms: list[Any]) -> LogTexts:
        """Return the offer of each request as JSON for the log; None if it is the whole catalogue."""
        return super().format_offers(
            [None if isinstance(candidates, AllIds) else candidates for candidates in arms]
        )

    def format_shown(
        self,
        impressions: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> LogTexts:
        """Return the catalogue item that each decision showed as JSON for the log.

        None if the features came with the request.
        """
        candidate_sets = _read_candidates(impressions)
        if candidate_sets.count(None) == len(candidate_sets):
            return [None] * len(ids)
        slots = decisions.slots.tolist() if isinstance(decisions, Decisions) else [d.slot for d in decisions]
        pairs = zip(candidate_sets, slots, strict=True)
        return [
            None if candidates is None else format_shown_item(candidates, slot) for candidates, slot in pairs
        ]

    def parse_items(self, shown: str | None) -> Any:
        """Return the catalogue item that a logged decision showed; None if the request had the features.

        A placement that shows lists has several. ``shown`` is the field of the decision's row.
        """
        return parse_shown_item(shown)

    def describe_offers(self, decisions: Sequence[Decision], texts: LogTexts) -> list[OfferFeatures]:
        """Return the offers of decisions, among catalogue items with the features of shown items only.

        ``texts`` are the shown items as the log holds them; None without a catalogue.
        """
        # The same in columns if all are from the catalogue, whose items have no examination features.
        if isinstance(decisions, Decisions) and decisions.actions.shape[1] == 1 and all(texts):
            batch = decisions.batch
            relevance = batch.relevance[batch.starts + decisions.slots]
            pairs = zip((batch.stops - batch.starts).tolist(), relevance[:, None], strict=True)
            return [(ARM_NUMBERS[:count], features, batch.examination) for count, features in pairs]
        pairs = zip(decisions, texts, strict=True)
        offers = super().describe_offers([each.lean() if text else each for each, text in pairs], texts)
        return [
            (ARM_NUMBERS[: len(arms)] if text else arms, relevance, examination)
            for (arms, relevance, examination), text in zip(offers, texts, strict=True)
        ]

    def restore_decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's decision for a row of the log, with the features of its arms.

        Features come from the catalogue item in the row, or else from the logged request. ``epoch`` is the
        number of earlier restarts of the row's key.
        """
        items = self.parse_items(row.shown)
        if items is not None:
            indexed = super().restore_decision(row._replace(arm=items.place, offered=None, shown=None), epoch)
            return indexed._replace(
                shown=(row.arm,), offered=ARM_NUMBERS[: items.of], relevance=items.relevance
            )
        decision = super().restore_decision(row, epoch)
        features = decode_json(row.asked)
        relevance, examination = (
            to_matrix(features.get(field), dim)
            for field, dim in zip(("relevance", "examination"), self.config.policy.feature_dims, strict=True)
        )
        offered = decision.offered
        if row.offered is None:
            offered = np.arange(max(len(relevance), len(examination)))
        return decision._replace(offered=offered, relevance=relevance, examination=examination)


class FeatureReader(RequestReader):
    """Reads requests with features of arms, or with queries of the catalogue."""

    def read(self, request: requests.DecisionRequest) -> Impression:
        """Check a request and its features, or its query of the catalogue; return its impression.

        A request with its own vectors may warn if the catalogue has the same items.

        Raises
        ------
        InvalidValue, UnknownName
            If the request does not fit the placement.
        """
        self._check_session(request.session)
        if request.relevance is None and self.has_catalogue:
            return self._check_catalogue_request(request)
        if request.segment is not None or request.unknown is not None:
            field, value = ("segment", request.segment) if request.segment else ("unknown", request.unknown)
            raise InvalidValue(field, value, "leave it out: the features come with the request")
        features = []
        fields = ("relevance", request.relevance), ("examination", request.examination)
        for (field, rows), dim in zip(fields, self._config.policy.feature_dims, strict=True):
            features.append(check_features(field, rows, dim))
        sizes = {len(rows) for rows in features if rows is not None}
        if len(sizes) > 1:
            raise InvalidValue("examination", len(features[1] or ()), "give as many rows as of relevance")
        (size,), arms = sizes, request.arms
        if self._lifecycle.arm_indices and arms is None and size != len(self._lifecycle.arm_indices):
            raise InvalidValue(
                "relevance", size, f"give a row for each of {len(self._lifecycle.arm_indices)} arms"
            )
        if arms is not None:
            arms = self._check_arms(arms, size)
            if self.has_catalogue and request.relevance is not None:
                self._policy.learner.items.warn_of_passed_vectors([arms])
        text = msgspec.json.encode(dict(zip(("relevance", "examination"), features, strict=True)))
        impression = self._make_impression(request, arms, text.decode(), features)
        return self._with_unit(impression, request.session, request.user)

    def _check_catalogue_request(self, request: requests.DecisionRequest) -> Impression:
        """Check a request without features; return its impression, with the candidate query as details."""
        query = make_candidate_query(request)
        impression = self._make_impression(request, request.arms, query.text, query)
        return self._with_unit(impression, request.session, request.user)

    def is_same_request(self, impression: Impression, row: DecisionRow) -> bool:
        """True if a logged decision answers an equal impression.

        If the request skips missing items, only the items that existed are compared.
        """
        if (
            isinstance(impression.details, CandidateQuery)
            and impression.details.skips
            and row.offered is not None
        ):
            # Missing items were skipped: compare with the items that existed.
            item_ids = set(decode_json(row.offered))
            impression = impression._replace(arms=[arm for arm in impression.arms or () if arm in item_ids])
        return super().is_same_request(impression, row)

    def look_up_candidates(self, impressions: Block[Impression], places: Sequence[int]) -> Block[Impression]:
        """Return impressions in which candidates from the catalogue replace the candidate queries.

        With several impressions, errors name the position of the impression in its request (``places``).

        Raises
        ------
        InvalidValue, UnknownName
            If an impression has no candidates, or one is missing.
        """
        details, arms = impressions.column("details"), impressions.column("arms")
        if not self.has_catalogue or not any(isinstance(source, CandidateQuery) for source in details):
            return impressions
        pairs = zip(details, arms, strict=True)
        if len(details) == 1:
            sources = [self._look_up(*pair) for pair in pairs]
        else:
            sources = [
                check_item(f"decisions[{place}]", self._look_up, pair)
                for place, pair in zip(places, pairs, strict=True)
            ]
        details, arms = map(list, zip(*sources, strict=True))
        return impressions.with_column("details", details).with_column("arms", arms)

    def _look_up(self, source: Any, arms: Sequence[Arm] | None) -> tuple[Any, Sequence[Arm] | None]:
        """Return details and arms of an impression, with the candidates that its query finds, if it has one.

        Raises
        ------
        InvalidValue, UnknownName
            If there is no catalogue, no candidate, or one is missing.
        """
        if not isinstance(source, CandidateQuery):
            return source, arms
        if find_catalogue(self._policy.learner) is None:
            dim, _ = self._config.policy.feature_dims
            remedy = f"give {dim} finite numbers for each arm on offer, or put items into the catalogue"
            raise InvalidValue("relevance", None, remedy)
        candidates = source.find_candidates(self._policy.learner.items, arms)
        return (candidates, None), candidates.ids  # in place of relevance and examination

    def count_candidates(self, impressions: Block[Impression]) -> Sequence[int]:
        """Return the number of candidates of each impression; 0 for decisions of clients."""
        return list(map(self._count_candidates, impressions.column("details"), impressions.column("arms")))

    def _count_candidates(self, source: Any, arms: Sequence[Arm] | None) -> int:
        """Return the number of candidates of an impression, given its details and its arms."""
        if isinstance(source, CandidateQuery):
            return source.count_candidates(self._policy.learner.items, arms)
        if isinstance(source, requests.ClientDecision):
            return 0
        relevance, examination = source
        return len(examination if relevance is None else relevance)

    def _check_arms(self, arms: Sequence[Arm], size: int) -> list[Arm]:
        """Check that a request names ``size`` different arms, and return them as the placement names them.

        Raises
        ------
        InvalidValue, UnknownName
            If the arms are not ``size`` different ones, or one is unknown.
        """
        if self._lifecycle.arm_indices:
            offer = self._lifecycle.check_arms(arms)
        else:
            offer = [checks.name("arms", a) if isinstance(a, str) else int(a) for a in arms]
        if len(offer) != size or len(set(offer)) < size:
            raise InvalidValue("arms", arms, f"name each of the {size} arms with features, once")
        return offer


class FeatureResults(Results):
    """Counts impressions and rewards of arms described by features, which may come with requests."""

    def _get_rewarded_arms(self, entries: Ints) -> list[int | None]:
        """Return for each open decision the index of its rewarded arm; None if arms come with requests."""
        # Arms that come with requests have no permanent index.
        return super()._get_rewarded_arms(entries) if self._lifecycle.arm_indices else [None] * len(entries)


# ---- Features of arms


def _read_candidates(impressions: Block[Impression]) -> list[CandidateSet | None]:
    """Return the candidates that each impression has from the catalogue; None for other impressions."""
    return [
        features[0] if isinstance(features[0], CandidateSet) else None
        for features in impressions.column("details")
    ]


def check_features(field: str, rows: Any, dim: int) -> list[list[float]] | None:
    """Check rows of features and return them as lists of floats; None if the policy reads none (``dim`` 0).

    Raises
    ------
    InvalidValue
        If there is no row, too many, a row is not ``dim`` finite numbers, or rows are given for ``dim`` 0.
    """
    if dim == 0:
        if rows is not None:
            raise InvalidValue(field, rows, "leave it out: the policy reads none")
        return None
    if not isinstance(rows, Sequence) or not 0 < len(rows) <= MAX_ARMS:
        raise InvalidValue(field, rows, f"give {dim} finite numbers for each arm on offer")
    result = []
    for i, row in enumerate(rows):
        numbers = [float(x) for x in row]
        if len(numbers) != dim or not all(map(math.isfinite, numbers)):
            raise InvalidValue(f"{field}[{i}]", row, f"give {dim} finite numbers")
        result.append(numbers)
    return result


def to_matrix(rows: requests.FeatureRows | None, dim: int) -> Floats:
    """Return rows of features as an array, shape (rows, dim); an empty array for None."""
    return NO_FEATURES if rows is None else np.array(rows, np.float64).reshape(-1, dim)


# ---- Lists of items with features, from requests or from a catalogue


class ShownItems(msgspec.Struct, frozen=True):
    """The catalogue items that a decision listed, as its row of the log holds them.

    Attributes
    ----------
    slate : list of str or int
        Listed items from the top.
    prefixes, places : list of float
        Propensities, as in :class:`~tacit.service.log.rows.ShownList`.
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


class ItemListShows(ListShows, FeatureShows):
    """Actions of a placement that lists items, best first."""

    def list_arms(self, decision: Decision) -> list[Arm | None]:
        """Return the names of the listed items, from the top."""
        return list(decision.shown)

    def get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the position among the candidates of each listed item; −1 for empty positions."""
        indices = np.full(self.positions, -1, np.int64)
        indices[: len(shown)] = shown if offered is None else [offered.index(arm) for arm in shown]
        return indices

    # The log ---------------------------------------------------------------------------------

    def format_shown(
        self,
        impressions: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> LogTexts:
        """Return each decision's list as JSON for the log; with the vectors of items from the catalogue."""
        return [
            self._format_items(*pair) for pair in zip(_read_candidates(impressions), decisions, strict=True)
        ]

    def _format_items(self, candidates: CandidateSet | None, decision: Decision) -> str:
        """Return a decision's list and propensities as JSON; with the items' vectors if they have candidates.

        ``candidates`` is None if the features came with the request.
        """
        arms = self.list_arms(decision)
        propensities = (decision.prefix_propensities, decision.position_propensities)
        if candidates is None:
            return encode_list(arms, *propensities)
        prefix_propensities, position_propensities = (values[: len(arms)].tolist() for values in propensities)
        indices = decision.slots[: len(arms)].tolist()
        vectors = candidates.halves[candidates.rows[indices]].tobytes()
        items = list(decision.shown)
        return encode_json(
            ShownItems(items, prefix_propensities, position_propensities, vectors, indices, len(candidates))
        )

    def parse_items(self, shown: str | None) -> ShownItems | None:
        """Return the catalogue items that a logged decision listed; None if the request had the features."""
        text = shown or ""
        return msgspec.json.decode(text, type=ShownItems) if '"vectors":' in text else None

    def restore_decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's decision for a row of the log, with the features of the listed items only.

        Features come from the catalogue items in the row, or else from the logged request. ``epoch`` is the
        number of earlier restarts of the row's key.
        """
        items = self.parse_items(row.shown)
        if items is None:
            return super().restore_decision(row, epoch).lean()
        by_place = row._replace(offered=None, shown=encode_json(items.at))
        decision = super().restore_decision(by_place, epoch)
        return decision._replace(
            shown=tuple(items.slate), offered=ARM_NUMBERS[: items.of], relevance=items.relevance
        )


class ItemListResults(ListResults):
    """Counts listed items and clicks of all items together, because items come and go."""

    def count(self, rows: Block[DecisionRow]) -> None:
        """Count every listed item as an impression of arm 0 in the series."""
        count = sum(len(self.shows.get_shown_arms(row)) for row in rows)
        self.series.count_decisions(rows[0].time, [0] * count, [None] * count, [1] * count, len(rows))

    def _get_click_arm(self, arm_index: int) -> None:
        """Return None: clicks on items are counted to no arm."""
        return None
