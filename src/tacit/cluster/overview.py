"""What there is to see of a placement in shards: a picture of each part, and the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.core.arrays import Floats, leaves
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.placement import Placement
from tacit.service.placements.results import Results
from tacit.service.placements.series import ARMS, SHIFTS_KEPT, SeenRestart, Series

if TYPE_CHECKING:
    from tacit.service.config.schema import PlacementConfig


class ShardSnapshot(NamedTuple):
    """What is seen of a placement in one shard."""

    decisions: int
    feedback: int
    outcomes: dict[str, int]
    keys: int
    pending: int
    closes: int | None
    table: Floats
    start: int
    width: int
    restarts: int
    shifts: list[SeenRestart]
    snapshot_time: int | None
    counts: Any
    results: Results
    first: tuple[str, list[Any]] | None
    aspects: dict[str, Any]


def snapshot_of(placement: Placement) -> ShardSnapshot:
    """Return what is seen of a placement."""
    series = placement.series
    return ShardSnapshot(
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        placement.closes,
        series.table.copy(),
        series.start,
        series.width,
        series.restarts,
        list(series.shifts),
        placement.snapshot_time,
        placement.counts(),
        deepcopy(series.results),
        _first(placement),
        {name: aspect.part(placement) for name, aspect in placement.aspects_by_name},
    )


def _first(placement: Placement) -> tuple[str, list[Any]] | None:
    """Return the first key and what was learned for it, where this is shown."""
    keys = placement.learner.keys
    if not keys or not placement.kind.by_features:
        return None
    # The first key has the first lane.
    return keys[0], [array[0].copy() for _, array in leaves(placement.learner.state)]


class ShardedView:
    """Mixed into the class of a placement: it decides nothing, and shows what its shards do."""

    key_count = 0
    pending = 0
    closes: int | None = None

    def show(self, snapshots: Sequence[ShardSnapshot]) -> None:
        """Put the snapshots of all shards together."""
        assert isinstance(self, Placement)
        if not snapshots:
            return
        spread = self.config.spread
        self.decisions = sum(snapshot.decisions for snapshot in snapshots)
        self.feedback = sum(snapshot.feedback for snapshot in snapshots)
        self.outcomes = sum((Counter(snapshot.outcomes) for snapshot in snapshots), Counter())
        self.key_count = (max if spread else sum)(snapshot.keys for snapshot in snapshots)  # type: ignore
        self.pending = sum(snapshot.pending for snapshot in snapshots)  # type: ignore[misc]
        ends = (snapshot.closes for snapshot in snapshots)
        self.closes = max((end for end in ends if end is not None), default=None)  # type: ignore[misc]
        self.series = _together(self.series, snapshots)
        for name, aspect in self.aspects_by_name:
            aspect.show(self, [snapshot.aspects[name] for snapshot in snapshots])
        times = [snapshot.snapshot_time for snapshot in snapshots if snapshot.snapshot_time is not None]
        self.snapshot_time = min(times) if len(times) == len(snapshots) else None
        self.show_counts([snapshot.counts for snapshot in snapshots])
        for one in snapshots:
            if one.first is not None:
                _show_first(self, *one.first)
                break


def _together(like: Series, snapshots: Sequence[ShardSnapshot]) -> Series:
    # A shard may be about to have the arms that another one has.
    columns = max(like.table.shape[1], *(snapshot.table.shape[1] for snapshot in snapshots))
    made = Series(columns - ARMS)
    begun = sorted((snapshot for snapshot in snapshots if snapshot.start >= 0), key=lambda one: one.start)
    for one in begun:
        made.add(one.table, one.start, one.width)
    for one in snapshots:
        made.results.take(one.results)
    made.restarts = sum(snapshot.restarts for snapshot in snapshots)
    shifts = sorted(shift for snapshot in snapshots for shift in snapshot.shifts)
    made.shifts.extend(shifts[-SHIFTS_KEPT:])
    return made


def _show_first(placement: Placement, key: str, values: list[Any]) -> None:
    learner = placement.learner
    if not learner.keys:
        learner.lanes.admit([key])
    if learner.keys == [key]:
        for (_, array), value in zip(leaves(learner.state), values, strict=True):
            array[0] = value


def sharded_view(name: str, config: PlacementConfig) -> Placement:
    """Return a placement that shows what its shards do, and checks what they are asked."""
    kind = config.served_as.placement
    made: Placement = type(f"Sharded{kind.__name__}", (ShardedView, kind), {})(
        name, config, StoredPlacement(0, 0, "", config.seed or 0)
    )
    return made
