"""What a learner must know again of open decisions: columns by their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.batch import Batch
from tacit.learning.decisions import Decision, Decisions
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES

_COLUMNS = ("_lanes", "_epochs", "_actions", "_propensities", "_contexts")


class OpenDecisions:
    """The learner's side of open decisions.

    Parameters
    ----------
    learner : Learner
    whole : array of int64
        Slots of all arms that it began with.
    """

    def __init__(self, learner: Learner, whole: Ints) -> None:
        self._learner, self._whole = learner, whole
        policy = learner.policy
        self._lanes, self._epochs = np.zeros((2, 0), np.int64)
        self._actions = np.zeros((0, policy.action_width), np.int64)
        self._propensities = np.zeros(0)
        self._contexts = np.zeros((0, policy.context_dim))
        self._offers: dict[int, tuple[Ints, Floats, Floats]] = {}

    def keep(self, slots: Ints, decisions: Sequence[Decision], *, plain: bool) -> None:
        """Keep decisions in their slots.

        Parameters
        ----------
        slots : array of int64
        decisions : Decisions or sequence of Decision
        plain : bool
            Whether all arms that there were in the beginning were on offer, without features.
        """
        self._reach(slots)
        for slot in slots.tolist() if self._offers else ():
            self._offers.pop(slot, None)
        if isinstance(decisions, Decisions):
            self._lanes[slots] = decisions.batch.lanes
            self._actions[slots] = decisions.actions
            self._epochs[slots] = decisions.epochs
            self._propensities[slots] = decisions.propensities
            self._contexts[slots] = decisions.batch.contexts
        else:
            self._lanes[slots] = self._learner._batch.lanes.admit([d.key for d in decisions])
            self._actions[slots] = [d.slots for d in decisions]
            self._epochs[slots] = [d.epoch for d in decisions]
            # NumPy takes None for NaN.
            self._propensities[slots] = np.array([d.propensity for d in decisions], np.float64)
            self._contexts[slots] = [d.context for d in decisions]
        if not plain:
            offers = [(d.offered, d.relevance, d.examination) for d in decisions]
            self._offers.update(zip(slots.tolist(), offers, strict=True))

    def _reach(self, slots: Ints) -> None:
        """Make room."""
        old, wanted = len(self._lanes), max(slots.tolist(), default=-1) + 1
        if wanted <= old:
            return
        for name in _COLUMNS:
            column = getattr(self, name)
            larger = np.zeros((max(wanted, 2 * old), *column.shape[1:]), column.dtype)
            larger[:old] = column
            setattr(self, name, larger)

    def epochs(self, slots: Ints) -> list[int]:
        """Return the epochs of decisions."""
        epochs: list[int] = self._epochs[slots].tolist()
        return epochs

    def actions(self, slots: Ints) -> Ints:
        """Return what decisions showed, as the slots of arms."""
        return self._actions[slots]

    def propensities(self, slots: Ints) -> Floats:
        """Return the propensities of decisions; NaN where they are not known."""
        return self._propensities[slots]

    def offers(self, slots: Ints) -> list[Ints]:
        """Return the slots of the arms that were on offer."""
        whole = self._whole
        if not self._offers:
            return [whole] * len(slots)
        return [self._offers[slot][0] if slot in self._offers else whole for slot in slots.tolist()]

    def decisions(self, slots: Ints) -> Decisions:
        """Return decisions, for the learner to learn from; without their keys."""
        return self._learner._batch.decisions(
            self._batch(slots), self._actions[slots], self._epochs[slots], self._propensities[slots]
        )

    def learn(self, slots: Ints, values: Sequence[Any]) -> Booleans:
        """Let the learner learn what decisions earned; return of each whether it taught something.

        Parameters
        ----------
        slots : array of int64
        values : sequence
            Numbers within [0, 1], of a list one for each position.
        """
        return self._learner._batch.learn_rows(
            self._batch(slots),
            self._actions[slots],
            np.array(values, np.float64).reshape(len(slots), -1),
            self._propensities[slots],
            self._epochs[slots],
        )

    def _batch(self, slots: Ints) -> Batch:
        plain = self._learner._batch.impressions(self._lanes[slots], self._contexts[slots])
        same = plain.arms is self._whole or np.array_equal(plain.arms, self._whole)
        if not self._offers and same:
            return plain
        whole = self._whole, NO_FEATURES, NO_FEATURES
        offers = [self._offers.get(slot, whole) for slot in slots.tolist()]
        arms, relevance, examination = zip(*offers, strict=True)
        sizes = np.array(list(map(len, arms)), np.int64)
        stops = np.cumsum(sizes)
        return plain._replace(
            arms=np.concatenate(arms),
            starts=stops - sizes,
            stops=stops,
            relevance=np.concatenate(relevance),
            examination=np.concatenate(examination),
        )
