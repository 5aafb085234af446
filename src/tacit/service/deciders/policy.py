"""A policy that decides for a placement, and its open decisions, from which it learns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints, leaves
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
from tacit.policies.base import NO_FEATURES, is_correctable
from tacit.policies.features.click_model import with_seen
from tacit.service.deciders.choices import Choices, ImpressionBatch
from tacit.service.deciders.open_decisions import OpenDecisions
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, decode_json, drop_unread_context


class Showing(Protocol):
    """The inputs of a learner in requests and in the log, which depend on the placement's kind."""

    def read_inputs(self, learner: Learner, impressions: Block[Impression]) -> tuple[Any, Any, Any, Any]:
        """Return contexts, arms, relevance and examination of impressions as arguments of a learner."""

    def restore_decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return a logged decision, made in an epoch of the policy, as a decision of the learner."""


class LearningColumns(NamedTuple):
    """Data with which a policy learns open decisions, by entry.

    Attributes
    ----------
    lanes, epochs : array of int64, shape (entries,)
        The learner's lane of the key, and how often the key had restarted.
    actions : array of int64, shape (entries, width)
        Indices of the shown arms.
    propensities : array of float64, shape (entries,)
        NaN if unknown.
    contexts : array of float64, shape (entries, dimensions)
    unlearned : array of bool, shape (entries,)
        Whether another policy made the decision and learns from it.
    """

    lanes: Ints
    epochs: Ints
    actions: Ints
    propensities: Floats
    contexts: Floats
    unlearned: Booleans


class PolicyDecider:
    """A policy that decides and learns.

    Parameters
    ----------
    learner : Learner
    draws : Draws
        Seeds the random draws of each batch.
    shows : Showing
    initial_indices : array of int64
        Indices of the arms that the placement began with.
    open : OpenDecisions
    number : int
        Number of the policy in the store.

    Attributes
    ----------
    columns : LearningColumns
        The open decisions by entry, in the form from which the learner learns.
    """

    columns: LearningColumns

    def __init__(
        self,
        learner: Learner,
        draws: Draws,
        shows: Showing,
        initial_indices: Ints,
        open: OpenDecisions,
        number: int = 0,
    ) -> None:
        self.draws, self.number, self._shows, self._open = draws, number, shows, open
        self.set_learner(learner, initial_indices)

    def set_learner(self, learner: Learner, initial_indices: Ints) -> None:
        """Replace the learner, which learns none of the decisions that are open."""
        self.learner, self._initial_indices = learner, initial_indices
        # The watch does not see learning by entries; it would warn that nothing is ever learned.
        learner.watch.stop()
        self._offers: dict[int, tuple[Ints, Floats, Floats]] = {}
        self._open.grow_columns(self)

    def create_columns(self, size: int) -> LearningColumns:
        """Return columns for a number of entries, of which the policy learns none yet."""
        policy = self.learner.policy
        actions, context_shape = np.zeros((size, policy.action_width), np.int64), (size, policy.context_dim)
        lanes, epochs = np.zeros((2, size), np.int64)
        return LearningColumns(
            lanes, epochs, actions, np.zeros(size), np.zeros(context_shape), np.ones(size, np.bool_)
        )

    # Deciding --------------------------------------------------------------------------------

    @property
    def observes(self) -> bool:
        """True if an impression may change the policy's state before the choice."""
        return self.learner.policy.observes

    def choose(
        self,
        batch: ImpressionBatch,
        forced: Ints | None = None,
        rows: Ints | None = None,
        *,
        keeps_state: bool = False,
    ) -> Decisions:
        """Decide for a batch of impressions, or for some of its rows; open decisions are not stored.

        Parameters
        ----------
        batch : ImpressionBatch
        forced : array of int64, optional
            Arm indices to show for each decision in place of the policy's choice; −1 to keep it.
        rows : array of int64, optional
        keeps_state : bool
            Whether to undo changes of the keys' states; of a policy that observes impressions, one key.
        """
        impressions = batch.impressions if rows is None else batch.impressions.take(rows.tolist())
        keys, inputs = impressions.column("key"), self._shows.read_inputs(self.learner, impressions)
        self.draws.begin(self.learner.rng, batch.ids[0 if rows is None else rows[0]])
        with restore_on_exit(self.learner, keys[0]) if keeps_state and self.observes else nullcontext():
            return self.learner.choose_rows(keys, inputs, forced)

    # Open decisions --------------------------------------------------------------------------

    def keep(
        self, entries: Ints, decisions: Sequence[Decision], offers: list[tuple[Ints, Floats, Floats]] | None
    ) -> None:
        """Store decisions to learn at their entries, in place of earlier ones; new keys are admitted.

        Parameters
        ----------
        entries : array of int64
        decisions : Decisions or sequence of Decision
        offers : list of (array, array, array) or None
            Indices of the arms on offer to each, with their relevance and examination features; None if
            exactly the initial arms were on offer, without features.
        """
        # An entry may still hold the offer of an earlier decision.
        for entry in entries.tolist() if self._offers else ():
            self._offers.pop(entry, None)
        columns = self.columns
        columns.unlearned[entries] = False
        if isinstance(decisions, Decisions):
            columns.lanes[entries], columns.actions[entries] = decisions.batch.lanes, decisions.actions
            columns.epochs[entries], columns.propensities[entries] = decisions.epochs, decisions.propensities
            if columns.contexts.shape[1]:
                columns.contexts[entries] = decisions.batch.contexts
        else:
            columns.lanes[entries] = self.learner.lanes.admit([d.key for d in decisions])
            columns.actions[entries] = [d.slots for d in decisions]
            columns.epochs[entries] = [d.epoch for d in decisions]
            # NumPy converts None to NaN.
            columns.propensities[entries] = np.array([d.propensity for d in decisions], np.float64)
            columns.contexts[entries] = [d.context for d in decisions]
        if offers is not None:
            self._offers.update(zip(entries.tolist(), offers, strict=True))

    def get_offers(self, entries: Ints) -> list[Ints]:
        """Return the indices of the arms that were on offer to each open decision, one array each."""
        initial_indices = self._initial_indices
        if not self._offers:
            return [initial_indices] * len(entries)
        return [
            self._offers[entry][0] if entry in self._offers else initial_indices for entry in entries.tolist()
        ]

    def _make_batch(self, entries: Ints) -> tuple[Batch, Ints]:
        """Return the impressions of decisions as a batch for the learner, and their actions' arm indices.

        Offers are the ones at the time of the decisions. Of arms with features, only shown arms may be
        stored; the indices refer to the arms in the batch.
        """
        columns = self.columns
        plain = self.learner.loops.make_plain_batch(columns.lanes[entries], columns.contexts[entries])
        # Arms added or retired since must not change the offer of an older decision.
        is_initial = plain.arms is self._initial_indices or np.array_equal(plain.arms, self._initial_indices)
        if not self._offers and is_initial:
            return plain, columns.actions[entries]
        initial_offer = self._initial_indices, NO_FEATURES, NO_FEATURES
        offers = [self._offers.get(entry, initial_offer) for entry in entries.tolist()]
        policy = self.learner.policy
        named, listed = policy.arms is not None, policy.showing.listed
        pairs = zip(offers, columns.actions[entries], strict=True)
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

    # Learning --------------------------------------------------------------------------------

    def learn(
        self, entries: Ints, values: Sequence[Any], previous: list[float] | None, examined: Floats | None
    ) -> Booleans:
        """Learn the rewards of open decisions, or replace learned rewards by late ones.

        A policy that cannot replace rewards learns late ones in addition.

        Parameters
        ----------
        entries : array of int64
        values : sequence
            Reward of each decision; of a list, one for each position.
        previous : list of float, optional
            The learned rewards to be replaced.
        examined : array of float64, optional
            1 for examined decisions, 0 for others, if the policy learns examination.

        Returns
        -------
        array of bool
            True for each decision that was learned; False if its key has restarted since.
        """
        columns, learner, policy = self.columns, self.learner, self.learner.policy
        # If the policy cannot replace a reward, the late one is learned in addition.
        if previous is not None and is_correctable(policy):
            exact = columns.epochs[entries], columns.propensities[entries]
            decisions = build_decisions(learner, *self._make_batch(entries), *exact)
            learner.correct_many(decisions, previous, values)
            return np.ones(len(entries), np.bool_)
        # The control's policy may not learn examination.
        if examined is not None and policy.learns_seen:
            values = with_seen(np.array(values), examined).tolist()
        feedback = np.array(values, np.float64).reshape(len(entries), -1)
        pieces: Iterable[slice] = [slice(None)]
        if self._offers:
            # Large offers are split into several batches to bound memory.
            sizes = list(map(len, self.get_offers(entries)))
            pieces = split_by_size(sizes, count_features_per_arm(policy))
        has_same_epoch = []
        for piece in pieces:
            rows = entries[piece]
            batch, actions = self._make_batch(rows)
            inputs = feedback[piece], columns.propensities[rows], columns.epochs[rows]
            has_same_epoch.append(learner.learn_rows(batch, actions, *inputs))
        return np.concatenate(has_same_epoch)

    def list_epochs(self, entries: Ints) -> list[int | None]:
        """Return the epoch of each open decision's key; None if this policy does not learn the decision."""
        pairs = zip(
            self.columns.epochs[entries].tolist(), self.columns.unlearned[entries].tolist(), strict=True
        )
        return [None if is_unlearned else epoch for epoch, is_unlearned in pairs]

    # The fold --------------------------------------------------------------------------------

    def recall(self, row: DecisionRow, *, keeps_state: bool = False) -> Decision:
        """Let the policy observe a logged decision; return it as a decision of the learner.

        It gets the current epoch of its key. With ``keeps_state``, the observation is undone.
        """
        decision = drop_unread_context(self.learner, self._shows.restore_decision(row, row.epoch))
        with restore_on_exit(self.learner, row.key) if keeps_state and self.observes else nullcontext():
            self.learner.observe_decisions([decision])
        # The epoch of this fold, not of the log: another policy may restart at other times.
        return decision._replace(epoch=self.learner.epoch(row.key))

    def reads(self, row: DecisionRow) -> bool:
        """True if the row's context has the length that this policy reads, or the policy reads none."""
        dim = self.learner.policy.context_dim
        return dim == 0 or len(decode_json(row.context) or ()) == dim

    def restore_open(self, row: DecisionRow, epoch: int) -> Decision:
        """Return a logged decision, made in an epoch, as a decision of the learner.

        A context that the policy does not read is left out.
        """
        return drop_unread_context(self.learner, self._shows.restore_decision(row, epoch))


@contextmanager
def restore_on_exit(learner: Learner, key: str) -> Iterator[None]:
    """In a ``with`` block: let a policy change its state of a key; restore the state at the end.

    A new key is admitted to the learner and stays.
    """
    lanes = learner.lanes
    (lane,) = lanes.admit([key]).tolist()
    saved_arrays = [array.copy() for _, array in leaves(lanes.view(lane))]
    yield
    for (_, array), values in zip(leaves(lanes.view(lane)), saved_arrays, strict=True):
        array[:] = values


@dataclass
class PlainDecider:
    """The last stage of a chain: the placement's policy decides everything.

    Parameters
    ----------
    policy : PolicyDecider
    mode : str
        Mode that the log gives to the decisions.
    keeps_state : bool
        Whether nothing is learned, so that choosing must not change the policy's state either.
    """

    policy: PolicyDecider
    mode: str
    keeps_state: bool

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Return the policy's decisions for a batch."""
        return (Choices(batch, self.policy.choose(batch, keeps_state=self.keeps_state), self.mode),)


@dataclass
class ClientDecider:
    """Takes the decisions of clients as they are; nothing is drawn.

    Parameters
    ----------
    policy : PolicyDecider
        The policy of which clients have replicas.
    mode : str
        Mode that the log gives to clients' decisions.
    """

    policy: PolicyDecider
    mode: str

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Return clients' decisions unchanged but for the current epoch of each key."""
        learner = self.policy.learner
        pairs = zip(*map(batch.impressions.column, ("details", "key")), strict=True)
        decisions: list[Any] = [
            decision._replace(epoch=learner.epoch(key) if key in learner else 0) for decision, key in pairs
        ]
        return (Choices(batch, decisions, self.mode, is_recalled=True),)
