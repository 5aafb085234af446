"""Statistics of a placement over all shards: the part of each shard, and the merged placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.service.placements.learning import DecisionCounts
from tacit.service.placements.placement import Placement, ShardTotals
from tacit.service.projections.arm_results import ArmResults
from tacit.service.projections.series import ARMS, MAX_SHIFTS, Series


class PlacementPart(NamedTuple):
    """Statistics of a placement in one shard, as data that can be encoded."""

    decisions: int
    feedback: int
    outcomes: dict[str, int]
    keys: int
    pending: int
    deferred: int
    last_deadline: int | None
    series: bytes
    arm_results: dict[str, Any]
    snapshot_time: int | None
    counts: Any
    aspects: dict[str, Any]


def export_part(placement: Placement) -> PlacementPart:
    """Return a shard's statistics of a placement."""
    parts = {name: aspect.export_part() for name, aspect in placement.aspects.items()}
    return PlacementPart(
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        placement.deferred,
        placement.last_deadline,
        placement.series.to_bytes(),
        placement.series.results.save_state(),
        placement.snapshot_time,
        placement.results.export_counts(),
        {name: part for name, part in parts.items() if part is not None},
    )


def merge_parts(placement: Placement, parts: Sequence[PlacementPart]) -> Placement:
    """Return a copy of this shard's placement that shows the merged statistics of all shards.

    Counts are added; the number of keys is the largest one if every shard has all keys.
    """
    merged = placement.read_copy()
    merged.counts = DecisionCounts(
        sum(part.decisions for part in parts),
        sum(part.feedback for part in parts),
        sum((Counter(part.outcomes) for part in parts), Counter()),
    )
    # The last one of all shards: then no window is open.
    deadlines = [part.last_deadline for part in parts if part.last_deadline is not None]
    merged.totals = ShardTotals(
        (max if placement.config.spread else sum)(part.keys for part in parts),
        sum(part.pending for part in parts),
        sum(part.deferred for part in parts),
        max(deadlines, default=None),
    )
    merged.results.series = _merge_series(placement.series, parts)
    for name, aspect in merged.aspects.items():
        # A shard may not have applied the configuration yet.
        values = [part.aspects[name] for part in parts if name in part.aspects]
        if len(values) == len(parts):
            aspect.merge_parts(values)
    times = [part.snapshot_time for part in parts if part.snapshot_time is not None]
    # Unknown if any shard has no snapshot.
    merged.snapshot_time = min(times) if len(times) == len(parts) else None
    merged.results.merge_counts([part.counts for part in parts])
    return merged


def _merge_series(series: Series, parts: Sequence[PlacementPart]) -> Series:
    """Return a new series with the sums of all shards and the latest restarts of keys."""
    shards = sorted((Series.from_bytes(part.series) for part in parts), key=lambda shard: shard.start)
    # Shards may differ in their arms while a change propagates.
    arms = max(each.table.shape[1] for each in (series, *shards)) - ARMS
    merged = Series(arms)
    for shard in shards:
        # -1 stands for no decision yet.
        if shard.start >= 0:
            merged.add_table(shard.table, shard.start, shard.width)
    for part in parts:
        results = ArmResults(arms)
        results.restore(part.arm_results)
        merged.results.merge(results)
    merged.restarts = sum(shard.restarts for shard in shards)
    merged.shifts.extend(sorted(shift for shard in shards for shift in shard.shifts)[-MAX_SHIFTS:])
    return merged
