"""One placement: its learner, its windows and its series, all a fold over its part of the log.

Last, what changes it: each aspect says its own, here stands how to find it and what belongs to no aspect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Self

from tacit.learning.decisions import Arm
from tacit.policies.spec import name_in
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.change_events import LoggedChange, Regime, regime_of, start_of
from tacit.service.log.requests import Impression
from tacit.service.log.rows import CONFIGURATION, FORGET, POLICY, START, MarkRow
from tacit.service.log.store import Snapshot, StoredPlacement
from tacit.service.placements.aspects.aspect import Effect, Note
from tacit.service.placements.decisions import Deciding
from tacit.service.placements.snapshots import Saving
from tacit.service.placements.state import ASPECTS


class Placement(Deciding, Saving):
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
        for learner in self.learners:
            learner.compile()
            if self.control.coin is not None:
                _ = learner.loops.impose
        if self.windows.order is not None:
            self.windows.order.compile()

    @property
    def candidate_size(self) -> int:
        """How many numbers describe a candidate."""
        return max(sum(self.config.policy.feature_dims), 1)

    def count_candidates(self, impressions: Sequence[Impression]) -> Sequence[int]:
        """Return of each impression how many candidates it has, or all arms that there are."""
        return [len(self.offer.slots)] * len(impressions)

    def still(self) -> Self:
        """Return what there is to see of it by now, for another thread while this one goes on."""
        seen = copy(self)
        seen.series, seen.outcomes = self.series.still(), self.outcomes.copy()
        for name, aspect in self.aspects.items():
            setattr(seen, name, aspect.still())
        return seen

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return len(self.learner)

    @property
    def open_bytes(self) -> int:
        """How many bytes those decisions take, nearly."""
        return self.windows.bytes + self.open.bytes

    @property
    def pending(self) -> int:
        """How many decisions have an open window."""
        return len(self.windows)

    @property
    def closes(self) -> int | None:
        """When the last window closes that is open."""
        return self.windows.closes

    def current_mark(self, kind: str) -> str | None:
        """Return what the last mark of a kind says, or would say; None for kinds not known."""
        if kind == START:
            return self.start.text if self.start is not None and self.start_marked else None
        return next((each.current(self) for each in self.aspects.values() if each.mark == kind), None)

    def is_news(self, kind: str, value: str) -> bool:
        """Whether a mark says what was not so before."""
        aspect = next((each for each in self.aspects.values() if each.mark == kind), None)
        return self.current_mark(kind) != value if aspect is None else aspect.is_news(self, value)

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark."""
        if mark.placement != self.id:
            return
        for aspect in self.aspects.values():
            if aspect.mark == mark.kind:
                aspect.marked(self, mark)
        if mark.kind == START:
            self.start_marked = True
        elif mark.kind == POLICY:
            # A start should not fold it all again.
            self.since_snapshot = max(self.since_snapshot, self.snapshot_after)
            self.earnings.sums.begin_part(regime_of(mark).what, mark.seq, mark.time)


# ---- What changes a placement: requests, and what each does; marks of the log, and what each changed


CHANGES: dict[type, Effect] = {
    **{asked: effect for aspect in ASPECTS.values() for asked, effect in aspect.changes.items()}
}
"""By the type of what is asked."""
OF_MARK = {aspect.mark: aspect for aspect in ASPECTS.values() if aspect.mark is not None}
AS_IT_IS = CONFIGURATION, START, FORGET
"""Marks whose value has the details as JSON."""


def changes_of(marks: Iterable[MarkRow], arms: Sequence[Arm]) -> list[LoggedChange]:
    """Return the changes that marks tell, in order.

    Parameters
    ----------
    marks : iterable of MarkRow
        Of one placement, from the first on.
    arms : sequence of arms
        Those that it began with.

    Examples
    --------
    >>> marks = [MarkRow(9, 1, 5, "mode", "frozen", "shop")]
    >>> changes_of(marks, ["a"])
    [LoggedChange(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    changes: list[LoggedChange] = []
    before: dict[str, MarkRow] = {}
    for mark in marks:
        if mark.kind in OF_MARK:
            change = OF_MARK[mark.kind].change(mark, before.get(mark.kind), arms)
            before[mark.kind] = mark
        elif mark.kind == POLICY:
            change = _regime(mark)
        elif mark.kind in AS_IT_IS:
            change = mark.kind, json.loads(mark.value)
        else:
            change = None
        # Of some it follows from the configuration what they say.
        if change is not None:
            changes.append(LoggedChange(mark.time, mark.who, *change))
    return changes


def _regime(mark: MarkRow) -> Note:
    regime = regime_of(mark)
    detail: dict[str, Any] = {"policy": name_in(regime.policy), "left": regime.left}
    if regime.state is not None:
        detail["to"] = regime.state
    if regime.approximate:
        detail["approximate"] = regime.approximate
    return regime.what, detail


def words_of(change: LoggedChange, clock: Callable[[str], str]) -> str | None:
    """Return a change of an aspect in words, times by a clock; None for what its details say by themselves.

    Examples
    --------
    >>> words_of(LoggedChange(0, None, "mode", {"mode": "frozen"}), str)
    'mode: frozen'
    """
    aspect = OF_MARK.get(change.what)
    return None if aspect is None else aspect.words(change.detail, clock)
