"""Statistics of a placement over all shards: the part of each shard, and the merged placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.service.placements.learning import DecisionCounts
from tacit.service.placements.placement import Placement, ShardTotals
from tacit.service.projections.arm_results import ArmResults
from tacit.service.projections.series import ARMS, MAX_SHIFTS, KeyRestart, Series


class PlacementPart(NamedTuple):
    """Statistics of a placement in one shard, as data that can be encoded."""

    decisions: int
    feedback: int
    outcomes: dict[str, int]
    keys: int
    pending: int
    last_deadline: int | None
    table: list[list[float]]
    start: int
    width: int
    restarts: int
    shifts: list[KeyRestart]
    snapshot_time: int | None
    counts: Any
    results: dict[str, Any]
    aspects: dict[str, Any]


def export_part(placement: Placement) -> PlacementPart:
    """Return a shard's statistics of a placement."""
    series = placement.series
    parts = {name: aspect.export_part() for name, aspect in placement.aspects.items()}
    return PlacementPart(
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        placement.last_deadline,
        series.table.tolist(),
        series.start,
        series.width,
        series.restarts,
        list(series.shifts),
        placement.snapshot_time,
        placement.results.export_counts(),
        series.results.save_state(),
        {name: part for name, part in parts.items() if part is not None},
    )


def merge_parts(placement: Placement, parts: Sequence[PlacementPart]) -> Placement:
    """Return a copy of this shard's placement that shows the merged statistics of all shards.

    Numbers are added; those of keys are not if every shard has all keys.
    """
    merged = placement.read_copy()
    merged.counts = DecisionCounts(
        sum(part.decisions for part in parts),
        sum(part.feedback for part in parts),
        sum((Counter(part.outcomes) for part in parts), Counter()),
    )
    deadlines = [part.last_deadline for part in parts if part.last_deadline is not None]
    merged.totals = ShardTotals(
        (max if placement.config.spread else sum)(part.keys for part in parts),
        sum(part.pending for part in parts),
        max(deadlines, default=None),
    )
    merged.results.series = _merge_series(placement.series, parts)
    for name, aspect in merged.aspects.items():
        # A shard may not have applied the configuration yet.
        values = [part.aspects[name] for part in parts if name in part.aspects]
        if len(values) == len(parts):
            aspect.merge_parts(values)
    times = [part.snapshot_time for part in parts if part.snapshot_time is not None]
    merged.snapshot_time = min(times) if len(times) == len(parts) else None
    merged.results.merge_counts([part.counts for part in parts])
    return merged


def _merge_series(series: Series, parts: Sequence[PlacementPart]) -> Series:
    """Return a new series with the sums of all shards and the latest restarts of keys."""
    # Shards may differ in their arms while a change propagates.
    columns = max(series.table.shape[1], *(len(part.table[0]) for part in parts))
    merged = Series(columns - ARMS)
    for part in sorted(parts, key=lambda part: part.start):
        if part.start >= 0:
            merged.add_table(np.array(part.table), part.start, part.width)
    for part in parts:
        results = ArmResults(columns - ARMS)
        results.restore(part.results)
        merged.results.merge(results)
    merged.restarts = sum(part.restarts for part in parts)
    merged.shifts.extend(sorted(shift for part in parts for shift in part.shifts)[-MAX_SHIFTS:])
    return merged
