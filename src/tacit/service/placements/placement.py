"""One placement: its learner, its windows and its series, all a fold over its part of the log."""

from __future__ import annotations

from copy import copy
from typing import Self

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.service.config.holdout import DECISION, HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.ids import as_text
from tacit.service.log.marks import Regime, pin_of, pin_text, regime_of, start_of
from tacit.service.log.rows import ARMS, FROZEN, HOLDOUT, MERGE, MODE, PIN, POLICY, SHADOW, START, MarkRow
from tacit.service.log.store import Snapshot, StoredPlacement
from tacit.service.placements.chapters import holdout_in
from tacit.service.placements.learning import Learning
from tacit.service.placements.living import encoded
from tacit.service.placements.shared import Learned
from tacit.service.placements.snapshots import Saving


class Placement(Learning, Saving):
    """The learner of a placement, and how its decisions stand in the log.

    This one decides for one of several arms. Other kinds are subclasses: they say what they take,
    show and learn, and everything else is the same for all.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    snapshot : Snapshot, optional
        Where to begin; without one, at the beginning of the log.
    base : Snapshot, optional
        The beginning of the log, where what was before has been dropped.
    regime : Regime, optional
        The last one, where the policy is another one than in the beginning.
    origin : Snapshot, optional
        The state that it has gone back to.

    Raises
    ------
    StoreError
        If the base is damaged.
    """

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        snapshot: Snapshot | None = None,
        base: Snapshot | None = None,
        regime: Regime | None = None,
        origin: Snapshot | None = None,
    ) -> None:
        super().__init__(name, config, stored, regime)
        self.start = None if base is None else start_of(base.plan)
        if snapshot is not None and base is not None and snapshot.seq < base.seq:
            snapshot = None
        if snapshot is None or not self._restored(snapshot):
            self._rest_on(base, origin)
        # Nobody's request shall wait for the compiler.
        for learner in filter(None, (self.learner, self.shadow)):
            learner.compile()
            if self.coin is not None:
                _ = learner.loops.impose

    def still(self) -> Self:
        """Return what there is to see of it by now, for another thread while this one goes on."""
        seen = copy(self)
        seen.series, seen._lift = self.series.still(), self.lift.still()
        seen.outcomes = self.outcomes.copy()
        return seen

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return len(self.learner)

    @property
    def pending(self) -> int:
        """How many decisions have an open window."""
        return len(self.windows)

    @property
    def closes(self) -> int | None:
        """When the last window closes that is open."""
        return self.windows.closes

    def check_mode(self, mode: str) -> None:
        """Check that the placement can be in a mode.

        Raises
        ------
        InvalidValue
            If it cannot.
        """
        if mode not in self.modes:
            raise InvalidValue("mode", mode, f"of this placement it is {', '.join(self.modes)}")
        if mode == SHADOW and not self.config.can_shadow:
            raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")

    def current_mark(self, kind: str) -> str | None:
        """Return what the last mark of a kind says, or would say; None for kinds not known."""
        return {
            MODE: self.mode,
            HOLDOUT: self._lift.terms,
            ARMS: encoded(self.arms_now),
            PIN: pin_text(self.pin),
            START: self.start.text if self.start is not None and self.start_marked else None,
        }.get(kind)

    def is_news(self, kind: str, value: str) -> bool:
        """Whether a mark says what was not so before."""
        return self.lacks_arms(value) if kind == ARMS else self.current_mark(kind) != value

    def terms_after(self, holdout: HoldoutConfig | None, time: int) -> str:
        """Return the terms with another holdout at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If the placement cannot have such a holdout.
        """
        if self.two:
            remedy = "a control's own policy is set in the configuration, and taken over at SIGHUP"
            raise InvalidValue("holdout", self.name, remedy)
        if holdout is not None:
            if holdout.arm is not None and holdout.arm not in self.offer.arms:
                offered = ", ".join(map(str, self.offer.arms)) or "none: they come with requests"
                raise InvalidValue("control", holdout.arm, f"on offer are {offered}")
            try:
                holdout.check(self.kind.name, self.kind.controls, self.kind.units)
            except ConfigError as error:
                raise InvalidValue("holdout", self.name, str(error)) from error
            if holdout.looked is not None and holdout.looked <= time:
                remedy = f"plan it before the first decision: it is {as_text(time)} by now"
                raise InvalidValue("look", holdout.look, remedy)
        return self._terms_with(holdout)

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark."""
        if mark.placement != self.id:
            return
        if mark.kind == MODE:
            self.mode = mark.value
            self._lift.begin_part(f"mode {mark.value}", mark.seq, mark.time)
        elif mark.kind == HOLDOUT:
            self._hold(holdout_in(mark.value))
            sticky = self.holdout is not None and self.holdout.unit != DECISION
            self._lift.begin(mark.value, mark.seq, mark.time, clustered=sticky)
        elif mark.kind == ARMS:
            self.since_snapshot += 1
            self._arms_changed(mark.value, mark.seq, mark.time)
        elif mark.kind == START:
            self.start_marked = True
        elif mark.kind == PIN:
            self.pin = pin_of(mark.value)
        elif mark.kind == POLICY:
            # A start should not fold it all again.
            self.since_snapshot = max(self.since_snapshot, self.snapshot_after)
            self._lift.begin_part(regime_of(mark).what, mark.seq, mark.time)
        elif mark.kind == MERGE:
            self.since_snapshot += 1
            if self.shared is not None and self.mode != FROZEN:
                self.shared.take(self.learner, msgspec.json.decode(mark.value, type=Learned))
