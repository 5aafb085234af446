"""The mode of a placement, and its secondary policy (shadow, or the control of a holdout)."""

# 1. ``Modes``: whether the policy decides and learns.
# 2. ``SecondaryPolicy``: the policy of a shadow or of the holdout's control.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.arrays import Ints, leaves
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm, Decision, none_for_nan
from tacit.learning.learner import Learner
from tacit.service.config.schema import PlacementConfig
from tacit.service.log import rows
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.service.placements.aspects.lift_periods import holdout_in
from tacit.service.placements.attribution import Lessons
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class Modes(Aspect):
    """The mode, and the open decisions that are not learned because of it.

    Attributes
    ----------
    mode : str
        ``online``, ``frozen`` (nothing is learned), ``shadow`` (a secondary policy computes
        counterfactuals) or ``control`` (the control of the holdout decides everything).
    """

    mark = rows.MODE

    def __init__(self) -> None:
        self.now = rows.ONLINE
        # Entries of open decisions made while nothing was learned.
        self.unlearned: set[int] = set()

    def marked(self, placement: Placement, mark: rows.MarkRow) -> None:
        """Apply a change event: another mode."""
        self.now = mark.value
        placement.lift.begin_part(f"mode {mark.value}", mark.seq, mark.time)

    def current(self, placement: Placement) -> str:
        """Return the mode of the last change event."""
        return self.now

    @staticmethod
    def change(mark: rows.MarkRow, before: rows.MarkRow | None, arms: Sequence[Arm]) -> Note:
        """Return the mode of a change event."""
        return rows.MODE, {"mode": mark.value}

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a mode as text."""
        return f"mode: {detail.get('mode')}"

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's field of a snapshot."""
        return {"mode": self.now}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the mode from a snapshot."""
        self.now = saved.mode

    def part(self, placement: Placement) -> str:
        """Return the mode of a shard."""
        return self.now

    def show(self, placement: Placement, parts: Sequence[str]) -> None:
        """Set the mode of the first shard: all shards have it."""
        self.now = parts[0]

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return the mode."""
        return {"mode": self.now}

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made at the client."""
        if time is None or not self.compares:
            return None
        return f"in mode {self.now!r} each decision is compared here"

    def check(self, placement: Placement, mode: str) -> None:
        """Check that a placement can be in a mode.

        Raises
        ------
        InvalidValue
            If the mode is impossible.
        """
        if mode not in rows.MODES:
            raise InvalidValue("mode", mode, f"give one of {', '.join(rows.MODES)}")
        if mode == rows.SHADOW and not placement.config.can_shadow:
            raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")
        if mode == rows.CONTROL and placement.holdout is None:
            raise InvalidValue("mode", mode, "give the placement a holdout first: its control is to decide")

    def check_configured(self, placement: Placement) -> None:
        """Check that the logged mode still exists, and a holdout if its control decides everything.

        Raises
        ------
        ConfigError
            If the mode is one of 0.3, or the configuration has no holdout.
        """
        if self.now not in rows.MODES:
            raise ConfigError(
                f"placements.{placement.name}.mode: {self.now!r}: version 0.3 was the last to have it; set "
                f"another mode with tacit 0.3 first: tacit placement mode {placement.name} --mode online"
            )
        if self.control_decides and holdout_in(placement.lift_terms) is None:
            raise ConfigError(
                f"placements.{placement.name}.holdout: its control decides everything (mode 'control'); "
                "set another mode before the holdout goes"
            )

    @property
    def frozen(self) -> bool:
        """True if nothing is learned."""
        return self.now == rows.FROZEN

    @property
    def control_decides(self) -> bool:
        """True if the control of the holdout decides everything."""
        return self.now == rows.CONTROL

    @property
    def compares(self) -> bool:
        """True if a secondary policy computes counterfactual decisions."""
        return self.now == rows.SHADOW

    @property
    def of_taken_over(self) -> str:
        """The mode of client-side decisions: the policy decides, whatever the mode here."""
        return rows.FROZEN if self.frozen else rows.ONLINE

    def keep(self, entries: Ints, modes: Sequence[str]) -> None:
        """Track which new open decisions must not be learned."""
        if self.unlearned:
            self.unlearned.difference_update(entries.tolist())
        if not set(modes).isdisjoint(rows.UNLEARNED):
            pairs = zip(entries.tolist(), modes, strict=True)
            self.unlearned.update(entry for entry, mode in pairs if mode in rows.UNLEARNED)

    def learnable(self, rewards: Lessons) -> Lessons:
        """Return the rewards to learn: none while frozen, and none of decisions made while frozen."""
        if self.frozen:
            return rewards.take([])
        if not self.unlearned:
            return rewards
        entries = rewards.entries.tolist()
        return rewards.take([i for i, entry in enumerate(entries) if entry not in self.unlearned])


@contextmanager
def untouched(learner: Learner, key: str) -> Iterator[None]:
    """Restore the learner's state of a key on exit, even if the policy changed it while deciding."""
    lanes = learner.lanes
    (lane,) = lanes.admit([key]).tolist()
    kept = [array.copy() for _, array in leaves(lanes.view(lane))]
    yield
    for (_, array), values in zip(leaves(lanes.view(lane)), kept, strict=True):
        array[:] = values


# ---- The verb that changes it


def _mode(placement: Placement, asked: wire.ModeOf, time: int) -> str:
    placement.modes.check(placement, asked.mode)
    return asked.mode


def _now(placement: Placement, time: int) -> wire.ModeNow:
    return wire.ModeNow(placement.mode)


Modes.changes = {wire.ModeOf: Effect(rows.MODE, _mode, _now)}


# ---- The secondary policy: shadow, or the control of the holdout


class Second(Aspect):
    """A secondary policy, which learns from decisions of its own.

    In mode ``shadow`` it computes a counterfactual for each decision and learns from the shown arms. As the
    policy of a holdout's control it decides for the control and learns from that.

    Parameters
    ----------
    config : PlacementConfig
    seed : int
        Seed of the placement.
    initial_indices : array of int64
        Indices of the arms that the placement began with.

    Attributes
    ----------
    learner : Learner
    is_control : bool
        Whether the policy is that of a holdout's control.
    """

    def __init__(self, config: PlacementConfig, seed: int, first: Ints) -> None:
        assert config.shadow is not None
        self.of_control = config.holdout is not None and config.holdout.policy is not None
        self._draws = Draws(seed, "shadow")
        self.go_on(Learner(config.shadow, seed, propensities=config.propensities), first)

    def go_on(self, learner: Learner, first: Ints) -> None:
        """Set the learner, without open decisions."""
        self.learner = learner
        self._open = OpenDecisions(learner, first)
        # Entries of the open decisions that this policy learns from.
        self._learns: set[int] = set()

    # Deciding --------------------------------------------------------------------------------

    def drawn(self, placement: Placement, impression: Impression, id: str) -> Decision:
        """Return the counterfactual decision."""
        return placement.drawn(self.learner, self._draws, impression, id)

    def by_two(
        self, placement: Placement, impression: Impression, seq: int, id: str, time: int
    ) -> Block[rows.DecisionRow]:
        """Decide with the policy of the assigned group, which also learns from the decision.

        The other policy computes a counterfactual and keeps no trace of it.
        """
        coin = placement.control.coin
        assert coin is not None
        asked: Block[Impression] = Block.of(Impression, [impression])
        every = placement.modes.control_decides
        tossed = coin.toss(
            [id], [placement.unit_of(impression)], [placement.offer_of(impression)], every=every
        )
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
        """Store a new open decision to learn from; None if this policy does not learn from it."""
        if self._learns:
            self._learns.difference_update(entries.tolist())
        if decision is not None:
            self._open.keep(entries, [decision], plain=plain)
            self._learns.update(entries.tolist())

    def lessons(self, entries: Sequence[int]) -> tuple[Learner, OpenDecisions, list[int]]:
        """Return the learner, its open decisions, and the indices of the entries that it learns from."""
        learns = self._learns
        return self.learner, self._open, [i for i, entry in enumerate(entries) if entry in learns]

    def epochs(self, entries: Ints) -> Iterator[int | None]:
        """Yield this policy's epochs of open decisions; None for decisions of the other policy."""
        for i, entry in enumerate(entries.tolist()):
            yield int(self._open.epochs(entries[i : i + 1])[0]) if entry in self._learns else None

    # The fold --------------------------------------------------------------------------------

    def recalled(self, placement: Placement, row: rows.DecisionRow) -> Decision | None:
        """Restore the counterfactual of a logged shadow decision; None for other decisions."""
        if row.mode != rows.SHADOW or not self._reads(row):
            return None
        return placement.recalled(self.learner, row)

    def recalled_by_two(self, placement: Placement, row: rows.DecisionRow) -> Decision | None:
        """Restore a logged decision of the control's policy; None if the first policy decided."""
        if not self._reads(row):
            return None
        if not row.control:
            self.learner.lanes.admit([row.key])
            return None
        return placement.recalled(self.learner, row)

    def reopened(self, placement: Placement, row: rows.DecisionRow, epoch: int) -> Decision:
        """Restore an open decision of a snapshot, in its saved epoch."""
        return rows.read_by(self.learner, placement.decision_of(row, epoch))

    def _reads(self, row: rows.DecisionRow) -> bool:
        """True if the policy can read the row's context, which may be older than the policy."""
        dim = self.learner.policy.context_dim
        return dim == 0 or len(rows.parsed(row.context) or ()) == dim
