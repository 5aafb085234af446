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
from tacit.learning.decisions import Arm, Decision, nan_to_none
from tacit.learning.learner import Learner
from tacit.service.config.schema import PlacementConfig
from tacit.service.log import rows
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, SavedState
from tacit.service.placements.aspects.lift_periods import parse_holdout
from tacit.service.placements.attribution import TrainingBatch
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

    change_kind = rows.MODE

    def __init__(self) -> None:
        self.mode = rows.ONLINE
        # Entries of open decisions made while nothing was learned.
        self.unlearned: set[int] = set()

    def apply_change(self, placement: Placement, change: rows.ChangeRow) -> None:
        """Apply a change event: set another mode, and begin a subperiod of the lift."""
        self.mode = change.value
        placement.lift.begin_subperiod(f"mode {change.value}", change.seq, change.time)

    def current(self, placement: Placement) -> str:
        """Return the mode of the last change event."""
        return self.mode

    @staticmethod
    def parse_change(
        change: rows.ChangeRow, previous: rows.ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note:
        """Return ("mode", {"mode": mode}) of a change event."""
        return rows.MODE, {"mode": change.value}

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a change of mode as text: "mode: NAME"."""
        return f"mode: {detail.get('mode')}"

    def save_state(self, placement: Placement) -> dict[str, Any]:
        """Return the snapshot's field: {"mode": mode}."""
        return {"mode": self.mode}

    def restore(self, placement: Placement, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the mode from a snapshot."""
        self.mode = saved.mode

    def export_part(self, placement: Placement) -> str:
        """Return the mode of a shard."""
        return self.mode

    def merge_parts(self, placement: Placement, parts: Sequence[str]) -> None:
        """Take over the mode of the first shard: all shards have it."""
        self.mode = parts[0]

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return {"mode": mode}."""
        return {"mode": self.mode}

    def reason_not_local(self, placement: Placement, time: int | None) -> str | None:
        """Return that mode ``shadow`` compares each decision in the service; None in other modes.

        Also None without a time.
        """
        if time is None or not self.has_counterfactuals:
            return None
        return f"in mode {self.mode!r} each decision is compared here"

    def check(self, placement: Placement, mode: str) -> None:
        """Check that a placement can change to a mode; changes nothing.

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
        """Check that the current mode still exists, and has the holdout that it needs.

        Raises
        ------
        ConfigError
            If the mode is one of 0.3, or the configuration has no holdout.
        """
        if self.mode not in rows.MODES:
            raise ConfigError(
                f"placements.{placement.name}.mode: {self.mode!r}: version 0.3 was the last to have it; set "
                f"another mode with tacit 0.3 first: tacit placement mode {placement.name} --mode online"
            )
        if self.control_decides and parse_holdout(placement.lift_terms) is None:
            raise ConfigError(
                f"placements.{placement.name}.holdout: its control decides everything (mode 'control'); "
                "set another mode before the holdout goes"
            )

    @property
    def frozen(self) -> bool:
        """True if nothing is learned."""
        return self.mode == rows.FROZEN

    @property
    def control_decides(self) -> bool:
        """True if the control of the holdout decides everything."""
        return self.mode == rows.CONTROL

    @property
    def has_counterfactuals(self) -> bool:
        """True if a secondary policy computes counterfactual decisions."""
        return self.mode == rows.SHADOW

    @property
    def client_mode(self) -> str:
        """The mode that the log gives to client-side decisions: ``frozen`` or ``online``."""
        return rows.FROZEN if self.frozen else rows.ONLINE

    def keep(self, entries: Ints, modes: Sequence[str]) -> None:
        """Update ``unlearned``: new open decisions (entries) whose logged mode forbids learning.

        Entries that are used again for other decisions are taken out.
        """
        if self.unlearned:
            self.unlearned.difference_update(entries.tolist())
        if not set(modes).isdisjoint(rows.UNLEARNED_MODES):
            pairs = zip(entries.tolist(), modes, strict=True)
            self.unlearned.update(entry for entry, mode in pairs if mode in rows.UNLEARNED_MODES)

    def learnable(self, rewards: TrainingBatch) -> TrainingBatch:
        """Return the part of a training batch that may be learned.

        Nothing while frozen, and no decisions that were made while frozen.
        """
        if self.frozen:
            return rewards.select([])
        if not self.unlearned:
            return rewards
        entries = rewards.entries.tolist()
        return rewards.select([i for i, entry in enumerate(entries) if entry not in self.unlearned])


@contextmanager
def restore_on_exit(learner: Learner, key: str) -> Iterator[None]:
    """In a ``with`` block: let a policy change its state of a key, and undo the changes at the end.

    A new key is admitted to the learner and stays.
    """
    lanes = learner.lanes
    (lane,) = lanes.admit([key]).tolist()
    saved_arrays = [array.copy() for _, array in leaves(lanes.view(lane))]
    yield
    for (_, array), values in zip(leaves(lanes.view(lane)), saved_arrays, strict=True):
        array[:] = values


# ---- The verb that changes it


def _mode(placement: Placement, request: wire.ModeOf, time: int) -> str:
    """Check that the placement can have the requested mode, and return it as the change event's value."""
    placement.modes.check(placement, request.mode)
    return request.mode


def _get_status(placement: Placement, time: int) -> wire.ModeNow:
    """Return the current mode as the answer to a request."""
    return wire.ModeNow(placement.mode)


Modes.effects = {wire.ModeOf: Effect(rows.MODE, _mode, _get_status)}


# ---- The secondary policy: shadow, or the control of the holdout


class SecondaryPolicy(Aspect):
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

    def __init__(self, config: PlacementConfig, seed: int, initial_indices: Ints) -> None:
        """Make the learner of the secondary policy, with its own random draws."""
        assert config.shadow is not None
        self.is_control = config.holdout is not None and config.holdout.policy is not None
        self._draws = Draws(seed, "shadow")
        self.set_learner(Learner(config.shadow, seed, propensities=config.propensities), initial_indices)

    def set_learner(self, learner: Learner, initial_indices: Ints) -> None:
        """Replace the learner, and forget its open decisions."""
        self.learner = learner
        self._open = OpenDecisions(learner, initial_indices)
        # Entries of the open decisions that this policy learns from.
        self._learns: set[int] = set()

    # Deciding --------------------------------------------------------------------------------

    def draw_counterfactual(self, placement: Placement, impression: Impression, id: str) -> Decision:
        """Draw the decision that this policy would make for an impression; nothing is recorded or learned."""
        return placement.draw_decision(self.learner, self._draws, impression, id)

    def decide_by_group(
        self, placement: Placement, impression: Impression, seq: int, id: str, time: int
    ) -> Block[rows.DecisionRow]:
        """Decide with the policy of the assigned group, record the decision as open, and return its row.

        The other policy computes a counterfactual; its state of the key is restored afterwards.
        """
        assigner = placement.control.assigner
        assert assigner is not None
        block: Block[Impression] = Block.from_rows(Impression, [impression])
        all_control = placement.modes.control_decides
        assignment = assigner.assign(
            [id], [placement.get_unit(impression)], [placement.get_offer(impression)], all_control=all_control
        )
        policy, control = (placement.learner, placement.draws), (self.learner, self._draws)
        in_control = bool(assignment.in_control[0])
        (maker, draws), (observer, observer_draws) = (control, policy) if in_control else (policy, control)
        draws.begin(maker.rng, id)
        with placement.protect_state(maker, impression.key):
            decisions = placement.choose_many(maker, block, np.full_like(assignment.forced_actions, -1))
        observer_draws.begin(observer.rng, id)
        with restore_on_exit(observer, impression.key):
            counterfactual = placement.choose_many(observer, block, decisions.actions)
        observer.decisions -= 1
        propensities = [decisions.propensities, counterfactual.propensities]
        mixed = (
            propensities[0]
            if all_control
            else assigner.mix_propensities(*(reversed(propensities) if in_control else propensities))
        )
        probability = float(np.nan_to_num(decisions.propensities[0]))
        epoch = placement.learner.epoch(impression.key)
        decision = decisions[0]._replace(propensity=probability or None)
        logged = decision._replace(propensity=nan_to_none(mixed)[0], epoch=epoch)
        row = placement.make_rows(block, seq, [id], time, [logged], assignment)
        row = row.with_column("would_propensity", [probability])
        context = (counterfactual if in_control else decisions)[0].context
        learned_decision = decision._replace(epoch=epoch, context=context)
        placement.record_decisions(row, [learned_decision], decision if in_control else None)
        return row

    # Open decisions --------------------------------------------------------------------------

    def keep(self, entries: Ints, decision: Decision | None, *, plain: bool) -> None:
        """Store a new open decision that this policy will learn from; None if it does not learn from it.

        Parameters
        ----------
        entries : array of int64
            Entry of the decision in the placement's open decisions.
        decision : Decision or None
        plain : bool
            Passed on to :meth:`OpenDecisions.keep`.
        """
        if self._learns:
            self._learns.difference_update(entries.tolist())
        if decision is not None:
            self._open.keep(entries, [decision], plain=plain)
            self._learns.update(entries.tolist())

    def select_decisions(self, entries: Sequence[int]) -> tuple[Learner, OpenDecisions, list[int]]:
        """Return the learner, its open decisions, and positions in ``entries`` of those it learns from."""
        learns = self._learns
        return self.learner, self._open, [i for i, entry in enumerate(entries) if entry in learns]

    def epochs(self, entries: Ints) -> Iterator[int | None]:
        """Yield the key's epoch in this policy for each open decision; None if it does not learn from it."""
        for i, entry in enumerate(entries.tolist()):
            yield int(self._open.epochs(entries[i : i + 1])[0]) if entry in self._learns else None

    # The fold --------------------------------------------------------------------------------

    def recall_counterfactual(self, placement: Placement, row: rows.DecisionRow) -> Decision | None:
        """Restore the decision for this learner from the row of a shadow decision; None for other rows."""
        if row.mode != rows.SHADOW or not self._reads(row):
            return None
        return placement.recall_decision(self.learner, row)

    def recall_by_group(self, placement: Placement, row: rows.DecisionRow) -> Decision | None:
        """Restore a logged decision of the control's policy; None if the placement's policy decided.

        In that case the key is still admitted to this learner. Also None if the context cannot be read.
        """
        if not self._reads(row):
            return None
        if not row.control:
            self.learner.lanes.admit([row.key])
            return None
        return placement.recall_decision(self.learner, row)

    def restore_open(self, placement: Placement, row: rows.DecisionRow, epoch: int) -> Decision:
        """Restore an open decision of a snapshot in its saved epoch, without a context that is not read."""
        return rows.drop_unread_context(self.learner, placement.restore_decision(row, epoch))

    def _reads(self, row: rows.DecisionRow) -> bool:
        """True if the row's context has the length that this policy reads; old rows may differ."""
        dim = self.learner.policy.context_dim
        return dim == 0 or len(rows.decode_json(row.context) or ()) == dim
