"""A policy that decides for a placement, and its open decisions, from which it learns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints, leaves
from tacit.learning.decisions import Decision, Decisions
from tacit.learning.learner import Learner
from tacit.policies.base import is_correctable
from tacit.policies.features.click_model import with_seen
from tacit.service.deciders.choices import Choices, EntryFlags, ImpressionBatch
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
    number : int
        Number of the policy in the store.

    Attributes
    ----------
    open : OpenDecisions
        The open decisions, in the form from which the learner learns.
    unlearned : EntryFlags
        Open decisions that another policy made and learns from.
    """

    def __init__(
        self, learner: Learner, draws: Draws, shows: Showing, initial_indices: Ints, number: int = 0
    ) -> None:
        self.draws, self.number, self._shows = draws, number, shows
        self.set_learner(learner, initial_indices)

    def set_learner(self, learner: Learner, initial_indices: Ints) -> None:
        """Replace the learner, and drop all open decisions."""
        self.learner = learner
        self.open = OpenDecisions(learner, initial_indices)
        self.unlearned = EntryFlags()

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

    # Learning --------------------------------------------------------------------------------

    def keep(self, entries: Ints, decisions: Sequence[Decision], *, plain: bool) -> None:
        """Store open decisions from which this policy learns, as :meth:`OpenDecisions.keep`."""
        self.open.keep(entries, decisions, plain=plain)
        if self.unlearned:
            self.unlearned.set(entries, flags=False)

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
        # If the policy cannot replace a reward, the late one is learned in addition.
        if previous is not None and is_correctable(self.learner.policy):
            self.learner.correct_many(self.open.get_decisions(entries), previous, values)
            return np.ones(len(entries), np.bool_)
        # The control's policy may not learn examination.
        if examined is not None and self.learner.policy.learns_seen:
            values = with_seen(np.array(values), examined).tolist()
        return self.open.learn(entries, values)

    def list_epochs(self, entries: Ints) -> list[int | None]:
        """Return the epoch of each open decision's key; None if this policy does not learn the decision."""
        unlearned = self.unlearned.get(entries)
        epochs = iter(self.open.get_epochs(entries[~unlearned]).tolist())
        return [None if is_unlearned else next(epochs) for is_unlearned in unlearned.tolist()]

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
