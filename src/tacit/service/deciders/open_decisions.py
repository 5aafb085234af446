"""Data with which a learner learns open decisions, in columns by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.batch import Batch
from tacit.learning.columns import build_decisions
from tacit.learning.decisions import (
    Decision,
    Decisions,
    count_features_per_arm,
    find_featured_arms,
    split_by_size,
)
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES

_COLUMNS = ("_lanes", "_epochs", "_actions", "_propensities", "_contexts")


class OpenDecisions:
    """Lanes, epochs, actions, propensities, contexts and offers of open decisions, by entry.

    Parameters
    ----------
    learner : Learner
    initial_indices : array of int64
        Indices of the arms that the placement began with.
    """

    def __init__(self, learner: Learner, initial_indices: Ints) -> None:
        """Begin without decisions, and stop the learner's watch for missing feedback."""
        self._learner, self._initial_indices = learner, initial_indices
        # The watch does not see learning by entries; it would warn that nothing is ever learned.
        learner.watch.stop()
        policy = learner.policy
        self._lanes, self._epochs = np.zeros((2, 0), np.int64)
        self._actions = np.zeros((0, policy.action_width), np.int64)
        self._propensities = np.zeros(0)
        self._contexts = np.zeros((0, policy.context_dim))
        self._offers: dict[int, tuple[Ints, Floats, Floats]] = {}

    def keep(self, entries: Ints, decisions: Sequence[Decision], *, plain: bool) -> None:
        """Store decisions at their entries, in place of earlier ones; new keys are admitted.

        Parameters
        ----------
        entries : array of int64
        decisions : Decisions or sequence of Decision
        plain : bool
            Whether exactly the initial arms were on offer, without features.
        """
        size = max(entries.tolist(), default=-1) + 1
        if size > len(self._lanes):
            self._grow(size)
        # An entry may still hold the offer of an earlier decision.
        for entry in entries.tolist() if self._offers else ():
            self._offers.pop(entry, None)
        rows = _row_index(entries)
        if isinstance(decisions, Decisions):
            self._lanes[rows] = decisions.batch.lanes
            self._actions[rows] = decisions.actions
            self._epochs[rows] = decisions.epochs
            self._propensities[rows] = decisions.propensities
            if self._contexts.shape[1]:
                self._contexts[rows] = decisions.batch.contexts
        else:
            self._lanes[rows] = self._learner.lanes.admit([d.key for d in decisions])
            self._actions[rows] = [d.slots for d in decisions]
            self._epochs[rows] = [d.epoch for d in decisions]
            # NumPy converts None to NaN.
            self._propensities[rows] = np.array([d.propensity for d in decisions], np.float64)
            self._contexts[rows] = [d.context for d in decisions]
        if not plain:
            offers = [(d.offered, d.relevance, d.examination) for d in decisions]
            self._offers.update(zip(entries.tolist(), offers, strict=True))

    def _grow(self, size: int) -> None:
        """Enlarge the columns to at least this number of entries."""
        old = len(self._lanes)
        for name in _COLUMNS:
            column = getattr(self, name)
            larger = np.zeros((max(size, 2 * old), *column.shape[1:]), column.dtype)
            larger[:old] = column
            setattr(self, name, larger)

    @property
    def bytes(self) -> int:
        """Size of the columns in bytes."""
        return sum(getattr(self, name).nbytes for name in _COLUMNS)

    def get_epochs(self, entries: Ints) -> Ints:
        """Return the epochs of decisions: how often their keys had restarted when they were made."""
        epochs: Ints = self._epochs[entries]
        return epochs

    def get_lanes(self, entries: Ints) -> Ints:
        """Return the learner's lanes of the keys of decisions."""
        return self._lanes[entries]

    def get_actions(self, entries: Ints) -> Ints:
        """Return the arm indices that decisions showed, shape (rows, width)."""
        return self._actions[entries]

    def get_propensities(self, entries: Ints) -> Floats:
        """Return the propensities of decisions; NaN if unknown."""
        return self._propensities[entries]

    def get_offers(self, entries: Ints) -> list[Ints]:
        """Return the indices of the arms that were on offer to each decision, one array each."""
        initial_indices = self._initial_indices
        if not self._offers:
            return [initial_indices] * len(entries)
        return [
            self._offers[entry][0] if entry in self._offers else initial_indices for entry in entries.tolist()
        ]

    def get_decisions(self, entries: Ints) -> Decisions:
        """Return stored decisions, without their keys, as the learner needs them to correct rewards."""
        batch, actions = self._batch(entries)
        return build_decisions(
            self._learner, batch, actions, self._epochs[entries], self._propensities[entries]
        )

    def learn(self, entries: Ints, values: Sequence[Any]) -> Booleans:
        """Let the learner learn the rewards of decisions.

        Returns True for each decision that was learned, False if its key has restarted since. Large offers
        are split into several batches to bound memory.

        Parameters
        ----------
        entries : array of int64
        values : sequence
            Rewards in [0, 1]; for a list, one reward for each position.
        """
        feedback = np.array(values, np.float64).reshape(len(entries), -1)
        if not self._offers:
            return self._learn(entries, feedback)
        pieces = split_by_size(
            list(map(len, self.get_offers(entries))), count_features_per_arm(self._learner.policy)
        )
        return np.concatenate([self._learn(entries[part], feedback[part]) for part in pieces])

    def _learn(self, entries: Ints, feedback: Floats) -> Booleans:
        """Let the learner learn one batch of rewards; return True for each decision that was learned."""
        batch, actions = self._batch(entries)
        rows = _row_index(entries)
        return self._learner.learn_rows(
            batch, actions, feedback, self._propensities[rows], self._epochs[rows]
        )

    def _batch(self, entries: Ints) -> tuple[Batch, Ints]:
        """Return the impressions of decisions as a batch for the learner, and their actions' arm indices.

        Offers are the ones at the time of the decisions. Of arms with features, only shown arms may be
        stored; the indices refer to the arms in the batch.
        """
        rows = _row_index(entries)
        plain = self._learner.loops.make_plain_batch(self._lanes[rows], self._contexts[rows])
        # Arms added or retired since must not change the offer of an older decision.
        is_initial = plain.arms is self._initial_indices or np.array_equal(plain.arms, self._initial_indices)
        if not self._offers and is_initial:
            return plain, self._actions[rows]
        initial_offer = self._initial_indices, NO_FEATURES, NO_FEATURES
        offers = [self._offers.get(entry, initial_offer) for entry in entries.tolist()]
        policy = self._learner.policy
        named, listed = policy.arms is not None, policy.showing.listed
        pairs = zip(offers, self._actions[entries], strict=True)
        described_actions = [
            find_featured_arms(offer[0], action, *offer[1:], named=named, listed=listed)
            for offer, action in pairs
        ]
        arms, actions, relevance, examination = zip(*described_actions, strict=True)
        sizes = np.array(list(map(len, arms)), np.int64)
        stops = np.cumsum(sizes)
        batch = plain._replace(
            arms=np.concatenate(arms),
            starts=stops - sizes,
            stops=stops,
            relevance=np.concatenate(relevance),
            examination=np.concatenate(examination),
        )
        return batch, np.array(actions)


def _row_index(entries: Ints) -> Ints | slice:
    """Return an index for the rows of entries in a column.

    It is a slice for a single entry, which takes a fifth of the time.
    """
    if len(entries) != 1:
        return entries
    entry = int(entries[0])
    return slice(entry, entry + 1)
