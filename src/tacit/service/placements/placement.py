"""A placement: its learner, its windows and its series, as a fold over its part of the log.

1. ``Placement``: restores its state from a snapshot, and applies change events.
2. ``EFFECTS`` and ``list_changes``: requests that change a placement, and its change events in words.
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
    """A placement that shows one of several arms; subclasses show lists, duels or arms with features.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        The placement's row in the store.
    snapshot : Snapshot, optional
        Latest snapshot; without one, the placement folds the whole log.
    base : Snapshot, optional
        Snapshot at the beginning of the log, if older rows were dropped.
    policy_version : PolicyVersion, optional
        Current policy version, if the policy was replaced since the beginning.
    origin : Snapshot, optional
        State to which the placement was rolled back.

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
        # No request should wait for the compiler.
        for learner in self.learners:
            learner.compile()
            if self.control.coin is not None:
                _ = learner.loops.impose
        if self.windows.order is not None:
            self.windows.order.compile()

    @property
    def candidate_size(self) -> int:
        """Number of features of a candidate, at least 1."""
        return max(sum(self.config.policy.feature_dims), 1)

    def count_candidates(self, impressions: Sequence[Impression]) -> Sequence[int]:
        """Return the number of candidates of each impression."""
        return [len(self.offer.slots)] * len(impressions)

    def still(self) -> Self:
        """Return a copy for reader threads."""
        seen = copy(self)
        seen.series, seen.outcomes = self.series.still(), self.outcomes.copy()
        for name, aspect in self.aspects.items():
            setattr(seen, name, aspect.still())
        return seen

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.learner)

    @property
    def open_bytes(self) -> int:
        """Approximate size of the open decisions in bytes."""
        return self.windows.bytes + self.open.bytes

    @property
    def pending(self) -> int:
        """Number of decisions with an open window."""
        return len(self.windows)

    @property
    def closes(self) -> int | None:
        """Time at which the last open window closes; None without any."""
        return self.windows.closes

    def current_mark(self, kind: str) -> str | None:
        """Return the current value of a kind of change event; None for an unknown kind."""
        if kind == START:
            return self.start.text if self.start is not None and self.start_marked else None
        return next((each.current(self) for each in self.aspects.values() if each.mark == kind), None)

    def is_news(self, kind: str, value: str) -> bool:
        """True if a change event would change anything."""
        aspect = next((each for each in self.aspects.values() if each.mark == kind), None)
        return self.current_mark(kind) != value if aspect is None else aspect.is_news(self, value)

    def marked(self, mark: MarkRow) -> None:
        """Apply a change event of the log."""
        if mark.placement != self.id:
            return
        for aspect in self.aspects.values():
            if aspect.mark == mark.kind:
                aspect.marked(self, mark)
        if mark.kind == START:
            self.start_marked = True
        elif mark.kind == POLICY:
            # A snapshot soon, so that the next start does not fold the whole log again.
            self.since_snapshot = max(self.since_snapshot, self.snapshot_after)
            self.earnings.sums.begin_part(regime_of(mark).what, mark.seq, mark.time)


# ---- Requests that change a placement, and change events in words


CHANGES: dict[type, Effect] = {
    **{asked: effect for aspect in ASPECTS.values() for asked, effect in aspect.changes.items()}
}
"""The effect of each type of request that changes a placement."""
OF_MARK = {aspect.mark: aspect for aspect in ASPECTS.values() if aspect.mark is not None}
AS_IT_IS = CONFIGURATION, START, FORGET
"""Kinds of change events whose value is the details as JSON."""


def changes_of(marks: Iterable[MarkRow], arms: Sequence[Arm]) -> list[LoggedChange]:
    """Return the changes of a placement in words and details, from its change events, in order.

    Parameters
    ----------
    rows : iterable of ChangeRow
        All change events of one placement.
    initial_arms : sequence of arms
        Arms that the placement began with.

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
        # Changes that follow from the configuration have a change event of their own.
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
    """Return a change in words, with times formatted by ``clock``; None if its details are enough.

    Examples
    --------
    >>> words_of(LoggedChange(0, None, "mode", {"mode": "frozen"}), str)
    'mode: frozen'
    """
    aspect = OF_MARK.get(change.what)
    return None if aspect is None else aspect.words(change.detail, clock)
