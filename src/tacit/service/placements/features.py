"""Feature placements: arms come with the request, and are known by their features."""

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
from tacit.learning.decisions import Arm, Decision
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import DecisionRequest, FeatureRows, Impression
from tacit.service.log.rows import DecisionRow
from tacit.service.placements.base import Placement

MOST_ARMS = 10_000


class FeaturePlacement(Placement):
    """Decides for one of the arms that a request describes by their features.

    Parameters are those of :class:`Placement`. The log keeps the features of every arm on offer.
    """

    named_features: ClassVar[bool] = True
    """Whether a weight speaks of one feature."""

    @property
    def _layers(self) -> int:
        # Arms that come and go have no share of the impressions.
        return max(len(self._slots), 1)

    @property
    def first_belief(self) -> tuple[str, Any] | None:
        """What is believed of the features for the first key; None where that is not known."""
        keys = self.learner._batch.lanes.of
        if not keys or not self.named_features:
            return None
        first = next(iter(keys))
        # One that restarts another asks that one, which may have none.
        with contextlib.suppress(UnknownName, AttributeError):
            return first, self.learner.posterior(first)
        return None

    # Decide ----------------------------------------------------------------------------------

    def checked(self, request: DecisionRequest) -> Impression:
        """Return an impression that :meth:`choose` will take.

        Raises
        ------
        InvalidValue, UnknownName
            If something does not fit.
        """
        self._session(request.session)
        given = []
        fields = ("relevance", request.relevance), ("examination", request.examination)
        for (field, rows), dim in zip(fields, self.config.policy.feature_dims, strict=True):
            given.append(feature_rows(field, rows, dim))
        sizes = {len(rows) for rows in given if rows is not None}
        if len(sizes) > 1:
            raise InvalidValue("examination", len(given[1] or ()), "give as many rows as of relevance")
        (size,), arms = sizes, request.arms
        if self._slots and arms is None and size != len(self._slots):
            raise InvalidValue("relevance", size, f"give a row for each of {len(self._slots)} arms")
        if arms is not None:
            arms = self._offer(arms, size)
        asked = msgspec.json.encode(dict(zip(("relevance", "examination"), given, strict=True)))
        told = self._impression(request, arms, asked.decode(), given)
        return self._of_unit(told, request.session, request.user)

    def _offer(self, arms: Sequence[Arm], size: int) -> list[Arm]:
        if self._slots:
            offer = self._named_arms(arms)
        else:
            offer = [checks.name("arms", a) if isinstance(a, str) else int(a) for a in arms]
        if len(offer) != size or len(set(offer)) < size:
            raise InvalidValue("arms", arms, f"name each of the {size} arms with features, once")
        return offer

    def _choose(self, learner: Learner, told: Impression) -> Decision:
        context = told.context if learner.policy.context_dim else None
        relevance, examination = told.given
        return learner.choose(told.key, context, told.arms, relevance=relevance, examination=examination)

    def _given(self, learner: Learner, asked: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        dims = self.config.policy.feature_dims
        relevance, examination = (
            [given[i] for given in asked.column("given")] if dims[i] else None for i in range(2)
        )
        contexts = None
        if learner.policy.context_dim:
            contexts = [context or () for context in asked.column("context")]
        return contexts, asked.column("arms"), relevance, examination

    def _offer_of(self, told: Impression) -> Ints:
        if self._slots or told.arms is not None:
            return self._offered_slots(told.arms)
        return np.arange(max(len(rows) for rows in told.given if rows is not None))

    def _named_pins(self, arms: Sequence[Arm]) -> list[Arm]:
        # What is on offer comes with each request, unless it has slots of its own.
        return super()._named_pins(arms) if self._slots else list(arms)

    def _can_show(self, told: Impression) -> Sequence[Arm]:
        if told.arms is not None or self._slots:
            return super()._can_show(told)
        return range(max(len(rows) for rows in told.given if rows is not None))

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        if told.arms is None and not self._slots:
            return (0,)
        return super()._baseline(told, decision) if told.arms is None else (told.arms[0],)

    # The log ---------------------------------------------------------------------------------

    def _decision(self, row: DecisionRow, epoch: int) -> Decision:
        decision = super()._decision(row, epoch)
        features = json.loads(row.asked or "")
        relevance, examination = (
            matrix(features[field], dim)
            for field, dim in zip(("relevance", "examination"), self.config.policy.feature_dims, strict=True)
        )
        offered = decision.offered
        if row.offered is None:
            offered = np.arange(max(len(relevance), len(examination)))
        return decision._replace(offered=offered, relevance=relevance, examination=examination)

    def _offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        if self._slots or offered is None:
            return super()._offered_slots(offered)
        return np.arange(len(offered))

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if self._slots:
            return super()._slots_shown(shown, offered)
        if offered is None:
            return np.array([int(arm) for arm in shown])
        return np.array([list(offered).index(arm) for arm in shown])

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        slots = [self._slots.get(arm, 0) for arm in rows.column("arm")]
        offered = list(map(self._offered, rows))
        self.series.decided_many(rows[0].time, slots, self._weighable(rows), offered)

    def _earning(self, slots: Ints) -> list[int | None]:
        # Arms that come with a request have no slots that last.
        return super()._earning(slots) if self._slots else [None] * len(slots)

    def _offered(self, row: DecisionRow) -> int:
        if row.offered is not None:
            return len(json.loads(row.offered))
        features = json.loads(row.asked or "")
        return len(features["relevance"] or features["examination"])


def feature_rows(field: str, rows: Any, dim: int) -> list[list[float]] | None:
    """Return rows of features as floats; None where none are read.

    Raises
    ------
    InvalidValue
        If there is no row, or one that is not ``dim`` finite numbers; it names the row.
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


def matrix(rows: FeatureRows | None, dim: int) -> Floats:
    """Return rows of features as an array."""
    return NO_FEATURES if rows is None else np.array(rows, np.float64).reshape(-1, dim)
