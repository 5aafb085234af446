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
from tacit.policies.spec import format_policy_name
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.change_events import LoggedChange, PolicyVersion, read_plan_start, read_policy_version
from tacit.service.log.requests import Impression
from tacit.service.log.rows import CONFIGURATION, FORGET, POLICY, START, ChangeRow
from tacit.service.log.store import Snapshot, StoredPlacement
from tacit.service.placements.aspects.aspect import Effect, Note
from tacit.service.placements.decisions import PlacementDecisions
from tacit.service.placements.snapshots import PlacementSnapshots
from tacit.service.placements.state import ASPECTS


class Placement(PlacementDecisions, PlacementSnapshots):
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
        policy_version: PolicyVersion | None = None,
        origin: Snapshot | None = None,
    ) -> None:
        """Restore the state from the snapshot if it is usable, else from the base; compile the loops."""
        super().__init__(name, config, stored, policy_version)
        self.start = None if base is None else read_plan_start(base.plan)
        if snapshot is not None and base is not None and snapshot.seq < base.seq:
            snapshot = None
        if snapshot is None or not self._restore_snapshot(snapshot):
            self._begin_from_base(base, origin)
        # No request should wait for the compiler.
        for learner in self.learners:
            learner.compile()
            if self.control.assigner is not None:
                _ = learner.loops.force
        if self.windows.order is not None:
            self.windows.order.compile()

    @property
    def candidate_size(self) -> int:
        """Number of features of a candidate, at least 1."""
        return max(sum(self.config.policy.feature_dims), 1)

    def count_candidates(self, impressions: Sequence[Impression]) -> Sequence[int]:
        """Return the number of candidates of each impression: here the number of arms on offer."""
        return [len(self.offer.arm_indices)] * len(impressions)

    def read_copy(self) -> Self:
        """Return a copy for reader threads, with copies of series, outcomes and aspects."""
        reader_copy = copy(self)
        reader_copy.series, reader_copy.outcomes = self.series.read_copy(), self.outcomes.copy()
        for name, aspect in self.aspects.items():
            setattr(reader_copy, name, aspect.read_copy())
        return reader_copy

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
    def last_deadline(self) -> int | None:
        """Time at which the last open window closes; None without any."""
        return self.windows.last_deadline

    def current_change(self, kind: str) -> str | None:
        """Return the value of the last change event of a kind; None if unknown or not needed."""
        if kind == START:
            return self.start.text if self.start is not None and self.start_logged else None
        return next(
            (aspect.current(self) for aspect in self.aspects.values() if aspect.change_kind == kind), None
        )

    def is_change(self, kind: str, value: str) -> bool:
        """True if applying a change event of this kind and value would change anything."""
        aspect = next(
            (candidate for candidate in self.aspects.values() if candidate.change_kind == kind), None
        )
        return self.current_change(kind) != value if aspect is None else aspect.is_change(self, value)

    def apply_change(self, change: ChangeRow) -> None:
        """Apply a change event of the log to the aspects of its kind; events of other placements are ignored.

        A new policy version begins a subperiod of the lift and makes a snapshot due.
        """
        if change.placement != self.id:
            return
        for aspect in self.aspects.values():
            if aspect.change_kind == change.kind:
                aspect.apply_change(self, change)
        if change.kind == START:
            self.start_logged = True
        elif change.kind == POLICY:
            # A snapshot soon, so that the next start does not fold the whole log again.
            self.since_snapshot = max(self.since_snapshot, self.snapshot_after)
            self.reward_sums.sums.begin_subperiod(read_policy_version(change).what, change.seq, change.time)


# ---- Requests that change a placement, and change events in words


EFFECTS: dict[type, Effect] = {
    **{request_type: effect for aspect in ASPECTS.values() for request_type, effect in aspect.effects.items()}
}
"""The effect of each type of request that changes a placement."""
ASPECT_BY_KIND = {aspect.change_kind: aspect for aspect in ASPECTS.values() if aspect.change_kind is not None}
JSON_KINDS = CONFIGURATION, START, FORGET
"""Kinds of change events whose value is the details as JSON."""


def list_changes(rows: Iterable[ChangeRow], initial_arms: Sequence[Arm]) -> list[LoggedChange]:
    """Return the changes of a placement with kind and details, from its change events, in order.

    Change events that only follow from the configuration are left out.

    Parameters
    ----------
    rows : iterable of ChangeRow
        All change events of one placement.
    initial_arms : sequence of arms
        Arms that the placement began with.

    Examples
    --------
    >>> rows = [ChangeRow(9, 1, 5, "mode", "frozen", "shop")]
    >>> list_changes(rows, ["a"])
    [LoggedChange(time=5, who='shop', what='mode', detail={'mode': 'frozen'})]
    """
    changes: list[LoggedChange] = []
    before: dict[str, ChangeRow] = {}
    for row in rows:
        if row.kind in ASPECT_BY_KIND:
            change = ASPECT_BY_KIND[row.kind].parse_change(row, before.get(row.kind), initial_arms)
            before[row.kind] = row
        elif row.kind == POLICY:
            change = _describe_policy_version(row)
        elif row.kind in JSON_KINDS:
            change = row.kind, json.loads(row.value)
        else:
            change = None
        # Changes that follow from the configuration have a change event of their own.
        if change is not None:
            changes.append(LoggedChange(row.time, row.who, *change))
    return changes


def _describe_policy_version(change: ChangeRow) -> Note:
    """Return the kind of a change of policy, and its details: policy, left policy, state, caveats."""
    version = read_policy_version(change)
    detail: dict[str, Any] = {"policy": format_policy_name(version.policy), "left": version.left}
    if version.state is not None:
        detail["to"] = version.state
    if version.approximate:
        detail["approximate"] = version.approximate
    return version.what, detail


def format_change(change: LoggedChange, clock: Callable[[str], str]) -> str | None:
    """Return a change as text, with times formatted by ``clock``; None if it has no text of its own.

    Examples
    --------
    >>> format_change(LoggedChange(0, None, "mode", {"mode": "frozen"}), str)
    'mode: frozen'
    """
    aspect = ASPECT_BY_KIND.get(change.what)
    return None if aspect is None else aspect.format_change(change.detail, clock)
