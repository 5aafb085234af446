"""The second policy of a placement: unseen beside the first, or that of the holdout's control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Decision, none_for_nan
from tacit.learning.learner import Learner
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tacit.service.log.rows import SHADOW, DecisionRow, parsed, read_by
from tacit.service.placements.aspects.aspect import Aspect
from tacit.service.placements.aspects.modes import untouched
from tacit.service.placements.open_decisions import OpenDecisions

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class Second(Aspect):
    """A second policy, which learns from decisions of its own.

    In the mode ``shadow`` it says beside each decision what it would have shown, and learns from what was
    shown. Where it is that of a holdout's control, it decides for the control and learns from that.

    Parameters
    ----------
    config : PlacementConfig
    seed : int
        The placement's.
    first : array of int64
        Slots of the arms that the placement began with.

    Attributes
    ----------
    learner : Learner
    of_control : bool
        Whether it is the policy of a holdout's control.
    """

    def __init__(self, config: PlacementConfig, seed: int, first: Ints) -> None:
        assert config.shadow is not None
        self.of_control = config.holdout is not None and config.holdout.policy is not None
        self._draws = Draws(seed, "shadow")
        self.go_on(Learner(config.shadow, seed, propensities=config.propensities), first)

    def go_on(self, learner: Learner, first: Ints) -> None:
        """Go on with a learner, and none of the open decisions."""
        self.learner = learner
        self._open = OpenDecisions(learner, first)
        # Entries of the open decisions that it learns from.
        self._learns: set[int] = set()

    # Deciding --------------------------------------------------------------------------------

    def drawn(self, placement: Placement, impression: Impression, id: str) -> Decision:
        """Return what it would show."""
        return placement.drawn(self.learner, self._draws, impression, id)

    def by_two(
        self, placement: Placement, impression: Impression, seq: int, id: str, time: int
    ) -> Block[DecisionRow]:
        """Decide where it is the control's: one of both policies does, and learns from it.

        The other one is asked what it would have shown, and remembers nothing of it.
        """
        coin = placement.control.coin
        assert coin is not None
        asked: Block[Impression] = Block.of(Impression, [impression])
        every = placement.modes.control_decides
        tossed = coin.toss([id], [impression.unit], [placement.offer_of(impression)], every=every)
        policy, control = (placement.learner, placement.draws), (self.learner, self._draws)
        held = bool(tossed.control[0])
        (maker, draws), (beside, draws_beside) = (control, policy) if held else (policy, control)
        draws.begin(maker.rng, id)
        with placement.standing(maker, impression.key):
            made = placement.choose_many(maker, asked, np.full_like(tossed.imposed, -1))
        draws_beside.begin(beside.rng, id)
        with untouched(beside, impression.key):
            would = placement.choose_many(beside, asked, made.actions)
        beside.decisions -= 1
        alone = [made.propensities, would.propensities]
        mixed = alone[0] if every else coin.mixed(*(reversed(alone) if held else alone))
        own = float(np.nan_to_num(made.propensities[0]))
        epoch = placement.learner.epoch(impression.key)
        chosen = made[0]._replace(propensity=own or None)
        logged = chosen._replace(propensity=none_for_nan(mixed)[0], epoch=epoch)
        row = placement.rows_of(asked, seq, [id], time, [logged], tossed)
        row = row.with_column("would_propensity", [own])
        read = (would if held else made)[0].context
        kept = chosen._replace(epoch=epoch, context=read)
        placement.decided(row, [kept], chosen if held else None)
        return row

    # Open decisions --------------------------------------------------------------------------

    def keep(self, entries: Ints, decision: Decision | None, *, plain: bool) -> None:
        """Keep what it needs to learn from a new open decision; of None, nothing is its to learn."""
        if self._learns:
            self._learns.difference_update(entries.tolist())
        if decision is not None:
            self._open.keep(entries, [decision], plain=plain)
            self._learns.update(entries.tolist())

    def lessons(self, entries: Sequence[int]) -> tuple[Learner, OpenDecisions, list[int]]:
        """Return what learns, what was kept, and which of these open decisions it learns from."""
        learns = self._learns
        return self.learner, self._open, [i for i, entry in enumerate(entries) if entry in learns]

    def epochs(self, entries: Ints) -> Iterator[int | None]:
        """Yield the epochs of open decisions as it counts them; None of those that are not its own."""
        for i, entry in enumerate(entries.tolist()):
            yield int(self._open.epochs(entries[i : i + 1])[0]) if entry in self._learns else None

    # The fold --------------------------------------------------------------------------------

    def recalled(self, placement: Placement, row: DecisionRow) -> Decision | None:
        """Take in a decision of the log beside which it stood; None where it did not."""
        if row.mode != SHADOW or not self._reads(row):
            return None
        return placement.recalled(self.learner, row)

    def recalled_by_two(self, placement: Placement, row: DecisionRow) -> Decision | None:
        """Take in a decision of the log that one of both policies made; None where that was the first."""
        if not self._reads(row):
            return None
        if not row.control:
            self.learner.lanes.admit([row.key])
            return None
        return placement.recalled(self.learner, row)

    def reopened(self, placement: Placement, row: DecisionRow, epoch: int) -> Decision:
        """Return an open decision of a snapshot, in the epoch that was saved."""
        return read_by(self.learner, placement.decision_of(row, epoch))

    def _reads(self, row: DecisionRow) -> bool:
        """Whether it can read a context, which may be older than that."""
        dim = self.learner.policy.context_dim
        return dim == 0 or len(parsed(row.context) or ()) == dim
