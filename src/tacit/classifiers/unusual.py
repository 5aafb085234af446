"""Which contexts are unusual, by what contexts were so far; nobody labels any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel

BLOCK, BLOCKS = 231, 15
# As many contexts tell what is usual before any is unusual.
LEAST = 20


class Usual(NamedTuple):
    """What contexts were so far, a rectangle; every array has a leading axis of 1.

    A side is where the extremes of half of all blocks of 231 contexts are inside, by the latest
    15 blocks: some 0.3 % of the contexts are beyond it (½ = 0.997^231). So what is rarer than
    that does not widen the rectangle, however far outside it is.

    Attributes
    ----------
    seen : array of int64, shape (1,)
    sides, present : array of float64, shape (1, dim, 2)
        The highest usual value and minus the lowest; the extremes of the present block.
    peaks : array of float64, shape (1, 15, dim, 2)
        The extremes of the latest blocks, a ring.
    """

    seen: Ints
    sides: Floats
    present: Floats
    peaks: Floats

    @classmethod
    def nothing(cls, dim: int) -> Usual:
        """Return what is known of contexts of a length before the first."""
        return cls(
            seen=np.zeros(1, np.int64),
            sides=np.zeros((1, dim, 2)),
            present=np.zeros((1, dim, 2)),
            peaks=np.zeros((1, BLOCKS, dim, 2)),
        )


@kernel
def middle_peak(usual: Usual, blocks: int, i: int, side: int) -> float:
    """Return the median of the blocks' extremes; of an even number, the lower one."""
    for k in range(blocks):
        value, lower, alike = usual.peaks[0, k, i, side], 0, 0
        for other in range(blocks):
            lower += usual.peaks[0, other, i, side] < value
            alike += usual.peaks[0, other, i, side] == value
        if lower <= (blocks - 1) // 2 < lower + alike:
            return float(value)
    return np.nan


@kernel
def is_unusual(usual: Usual, margin: float, context: Floats) -> bool:
    """Return whether a context is outside of what is usual, and take it in.

    It is so by more than a margin, which is a share of the width of what is usual.
    """
    enough, first = usual.seen[0] >= LEAST, usual.seen[0] % BLOCK == 0
    usual.seen[0] += 1
    blocks, ends = usual.seen[0] // BLOCK, usual.seen[0] % BLOCK == 0
    unusual = False
    for i in range(usual.present.shape[1]):
        room = margin * (usual.sides[0, i, 0] + usual.sides[0, i, 1])
        for side in range(2):
            value = context[i] if side == 0 else -context[i]
            unusual = unusual or value > usual.sides[0, i, side] + room
            if first or value > usual.present[0, i, side]:
                usual.present[0, i, side] = value
            if ends:
                usual.peaks[0, (blocks - 1) % BLOCKS, i, side] = usual.present[0, i, side]
                usual.sides[0, i, side] = middle_peak(usual, min(blocks, BLOCKS), i, side)
            elif blocks == 0:
                usual.sides[0, i, side] = usual.present[0, i, side]
    return enough and unusual
