"""What there is to see of a placement in shards: a picture of each part, and the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.arrays import Floats
from tacit.service.features import FeaturePlacement
from tacit.service.folding import placement_class
from tacit.service.placement import Placement
from tacit.service.series import ARMS, SHIFTS_KEPT, Series, Shift
from tacit.service.store import StoredPlacement
from tacit.state import leaves

if TYPE_CHECKING:
    from tacit.service.config import PlacementConfig


class Picture(NamedTuple):
    """What is seen of a placement in one shard."""

    mode: str
    decisions: int
    feedback: int
    outcomes: dict[str, int]
    keys: int
    pending: int
    table: Floats
    start: int
    width: int
    restarts: int
    shifts: list[Shift]
    snapshot_time: int | None
    counts: Any
    first: tuple[str, list[Any]] | None


def picture_of(placement: Placement) -> Picture:
    """Return what is seen of a placement."""
    series = placement.series
    return Picture(
        placement.mode,
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        series.table.copy(),
        series.start,
        series.width,
        series.restarts,
        list(series.shifts),
        placement.snapshot_time,
        placement.counts(),
        _first(placement),
    )


def _first(placement: Placement) -> tuple[str, list[Any]] | None:
    """Return the first key and what was learned for it, where this is shown."""
    keys = placement.learner.keys
    if not keys or not isinstance(placement, FeaturePlacement):
        return None
    # The first key has the first lane.
    return keys[0], [array[0].copy() for _, array in leaves(placement.learner.state)]


class Whole:
    """Mixed into the class of a placement: it decides nothing, and shows what its shards do."""

    key_count = 0
    pending = 0

    def show(self, pictures: Sequence[Picture]) -> None:
        """Put the pictures of all shards together."""
        assert isinstance(self, Placement)
        if not pictures:
            return
        spread = self.config.spread
        self.mode = pictures[0].mode
        self.decisions = sum(one.decisions for one in pictures)
        self.feedback = sum(one.feedback for one in pictures)
        self.outcomes = sum((Counter(one.outcomes) for one in pictures), Counter())
        self.key_count = (max if spread else sum)(one.keys for one in pictures)  # type: ignore
        self.pending = sum(one.pending for one in pictures)  # type: ignore[misc]
        self.series = _together(self.series, pictures)
        times = [one.snapshot_time for one in pictures if one.snapshot_time is not None]
        self.snapshot_time = min(times) if len(times) == len(pictures) else None
        counts = [one.counts for one in pictures]
        if all(isinstance(one, dict) for one in counts):
            # Of keys, each of which is in one shard.
            self._take_counts({key: value for one in counts for key, value in one.items()})
        for one in pictures:
            if one.first is not None:
                _show_first(self, *one.first)
                break


def _together(like: Series, pictures: Sequence[Picture]) -> Series:
    made = Series(like.table.shape[1] - ARMS)
    begun = sorted((one for one in pictures if one.start >= 0), key=lambda one: one.start)
    for one in begun:
        made.add(one.table, one.start, one.width)
    made.epochs = {str(shard): one.restarts for shard, one in enumerate(pictures)}
    shifts = sorted(shift for one in pictures for shift in one.shifts)
    made.shifts.extend(shifts[-SHIFTS_KEPT:])
    return made


def _show_first(placement: Placement, key: str, values: list[Any]) -> None:
    learner = placement.learner
    if not learner.keys:
        learner.admit([key])
    if learner.keys == [key]:
        for (_, array), value in zip(leaves(learner.state), values, strict=True):
            array[0] = value


def whole_of(name: str, config: PlacementConfig) -> Placement:
    """Return a placement that shows what its shards do, and checks what they are asked."""
    kind = placement_class(config.kind)
    made: Placement = type(f"Whole{kind.__name__}", (Whole, kind), {})(
        name, config, StoredPlacement(0, 0, "", config.seed or 0)
    )
    return made
