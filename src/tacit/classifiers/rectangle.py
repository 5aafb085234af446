"""Axis-parallel rectangles: of normal signals (Syed et al. 2009, section 5.1), and of what is usual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from tacit.classifiers.base import TIE, Classifier
from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import PositiveFraction
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class Rectangle(Classifier):
    """Call a context an event if it is outside the box of all that were none, by the margin.

    The truth is a box: contexts inside it are no events, events are farther than the margin
    from it in some coordinate, and nothing happens between. The classifier keeps the smallest
    box of the false-labelled contexts; a context is negative iff each coordinate is within the
    margin of the box's side, inclusive up to 1e-12. Before the first label all are positive.

    Parameters
    ----------
    dim : int
        Length of a context; contexts are in [0, 1]^dim.
    margin : float
        Least distance of an event from the true box in the largest coordinate; in (0, 1].
    anchored : bool, default False
        Whether the true box is known to reach down to 0 in every coordinate, as in the
        experiments of the paper: only what is above normal is an event.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 5.1. At a distance of exactly the margin the paper's
    concepts call a context an event and its classifier calls it none; here it is none.

    Examples
    --------
    >>> from tacit.classifiers import SafeClassifier
    >>> classifier = SafeClassifier(Rectangle(dim=2, margin=0.1))
    >>> classifier.predict([0.3, 0.4])
    True
    >>> classifier.learn_false([0.3, 0.4])
    >>> classifier.predict([0.4, 0.3]), classifier.predict([0.4, 0.6])
    (False, True)
    """

    class State(NamedTuple):
        low: Floats
        high: Floats

    margin: PositiveFraction
    anchored: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.anchored, bool | np.bool_):
            raise InvalidValue("anchored", self.anchored, "give True or False")
        self._set("anchored", bool(self.anchored))

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        return cls(dim, margin=0.1)

    @property
    def diameter(self) -> float:
        """The most false positives there can be: 1 + dim·(⌈1/margin⌉ − 1), and no bound is lower.

        This is claim 2 for contexts in [0, 1]^dim. The first false positive makes the box a
        point; each later one moves a side outward by more than the margin. The moves in one
        coordinate add up to at most 1, so there are fewer than 1/margin of them. It is reached
        from the origin by equal steps along one axis after another.
        """
        moves = math.ceil(1.0 / (self.margin + TIE)) - 1
        return 1.0 + self.dim * moves

    def init(self, rows: int) -> State:
        shape = (rows, self.dim)
        return self.State(np.full(shape, np.inf), np.full(shape, -np.inf))

    def merged(self, first: State, second: State) -> State:
        return self.State(np.minimum(first.low, second.low), np.maximum(first.high, second.high))

    @staticmethod
    def predict(params: Rectangle, state: State, row: int, context: Floats) -> bool:
        reach = params.margin + TIE
        for i in range(len(context)):
            if context[i] < state.low[row, i] - reach or context[i] > state.high[row, i] + reach:
                return True
        return False

    @staticmethod
    def learn_false(params: Rectangle, state: State, row: int, context: Floats) -> None:
        for i in range(len(context)):
            lowest = 0.0 if params.anchored else context[i]
            state.low[row, i] = min(state.low[row, i], lowest)
            state.high[row, i] = max(state.high[row, i], context[i])


# ---- Which contexts are unusual, by what contexts were so far; nobody labels any

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
        slack = margin * (usual.sides[0, i, 0] + usual.sides[0, i, 1])
        for side in range(2):
            value = context[i] if side == 0 else -context[i]
            unusual = unusual or value > usual.sides[0, i, side] + slack
            if first or value > usual.present[0, i, side]:
                usual.present[0, i, side] = value
            if ends:
                usual.peaks[0, (blocks - 1) % BLOCKS, i, side] = usual.present[0, i, side]
                usual.sides[0, i, side] = middle_peak(usual, min(blocks, BLOCKS), i, side)
            elif blocks == 0:
                usual.sides[0, i, side] = usual.present[0, i, side]
    return enough and unusual
