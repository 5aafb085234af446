"""The mode of a placement: whether the policy decides and learns, learns from others, or stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.core.arrays import Ints, leaves
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm
from tacit.learning.learner import Learner
from tacit.service.log.rows import APPRENTICE, CONTROL, FROZEN, MODE, ONLINE, SHADOW, UNLEARNED, MarkRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.service.placements.aspects.chapters import holdout_in
from tacit.service.placements.attribution import Lessons
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class Modes(Aspect):
    """The mode, and the open decisions that teach nothing because of it.

    Attributes
    ----------
    now : str
        ``online``, ``apprentice`` (the caller decides, and the policy learns from that), ``frozen`` (nothing
        is learned), ``shadow`` (a second policy decides beside, unseen) or ``control`` (that of the holdout
        decides everything).
    """

    mark = MODE

    def __init__(self) -> None:
        self.now = ONLINE
        # Entries of open decisions that were made while nothing was learned.
        self.unlearned: set[int] = set()

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark."""
        self.now = mark.value
        placement.lift.begin_part(f"mode {mark.value}", mark.seq, mark.time)

    def current(self, placement: Placement) -> str:
        """Return what the last mark says."""
        return self.now

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note:
        """Return the mode of a mark."""
        return MODE, {"mode": mark.value}

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Return a mode, in words."""
        return f"mode: {detail.get('mode')}"

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"mode": self.now}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.now = saved.mode

    def part(self, placement: Placement) -> str:
        """Return the mode of a shard."""
        return self.now

    def show(self, placement: Placement, parts: Sequence[str]) -> None:
        """Show the mode of the first shard: all have it."""
        self.now = parts[0]

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return the mode."""
        return {"mode": self.now}

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made next to the caller."""
        if time is None or (self.policy_decides and not self.compares):
            return None
        return f"in mode {self.now!r} each decision is compared here"

    def check(self, placement: Placement, mode: str) -> None:
        """Check that a placement can be in a mode.

        Raises
        ------
        InvalidValue
            If it cannot.
        """
        possible = placement.possible_modes
        if mode not in possible:
            raise InvalidValue("mode", mode, f"of this placement it is {', '.join(possible)}")
        if mode == SHADOW and not placement.config.can_shadow:
            raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")
        if mode == CONTROL and placement.holdout is None:
            raise InvalidValue("mode", mode, "give the placement a holdout first: its control is to decide")

    def check_configured(self, placement: Placement) -> None:
        """Check that there is a control, where it decides everything.

        Raises
        ------
        ConfigError
            If the configuration has it no more.
        """
        if self.control_decides and holdout_in(placement.lift_terms) is None:
            raise ConfigError(
                f"placements.{placement.name}.holdout: its control decides everything (mode 'control'); "
                "set another mode before the holdout goes"
            )

    @property
    def frozen(self) -> bool:
        """Whether nothing is learned."""
        return self.now == FROZEN

    @property
    def policy_decides(self) -> bool:
        """Whether what the policy chooses is shown."""
        return self.now != APPRENTICE

    @property
    def control_decides(self) -> bool:
        """Whether the control of the holdout decides everything."""
        return self.now == CONTROL

    @property
    def compares(self) -> bool:
        """Whether a second policy says what it would have shown."""
        return self.now == SHADOW

    @property
    def of_taken_over(self) -> str:
        """The mode of decisions that were made elsewhere: the policy decided, whatever happens here."""
        return FROZEN if self.frozen else ONLINE

    def keep(self, entries: Ints, modes: Sequence[str]) -> None:
        """Keep which new open decisions shall teach nothing."""
        if self.unlearned:
            self.unlearned.difference_update(entries.tolist())
        if not set(modes).isdisjoint(UNLEARNED):
            pairs = zip(entries.tolist(), modes, strict=True)
            self.unlearned.update(entry for entry, mode in pairs if mode in UNLEARNED)

    def learnable(self, rewards: Lessons) -> Lessons:
        """Return the rewards that are to be learned: nothing while frozen, or shown so."""
        if self.frozen:
            return rewards.take([])
        if not self.unlearned:
            return rewards
        entries = rewards.entries.tolist()
        return rewards.take([i for i, entry in enumerate(entries) if entry not in self.unlearned])


@contextmanager
def untouched(learner: Learner, key: str) -> Iterator[None]:
    """Leave what a learner knows of a key as it was, even by what the policy observes."""
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


Modes.changes = {wire.ModeOf: Effect(MODE, _mode, _now)}
