"""What models read of an arm: its features at a common size, and which of a few arms it is.

Columns are divided by their largest value, and each block by the root mean square of its rows'
lengths, both over the arms on offer in the first decisions that were learned from. Then the
measure stands still, so that what is learned is a fold of the log.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression

LENGTH = 0.8
"""Of a block's rows in the root mean square, once they are at the common size."""
MEASURED = 100
"""Decisions over which features are measured."""
FEW = 16
"""Arms of so many different rows of relevance, at most, are known one by one."""
NEW, MANY = -1, -2
"""Places of an arm that was not met before, and of any where arms are many."""


class Inputs(NamedTuple):
    """What is known of a lane's features.

    Attributes
    ----------
    largest, squares, factor : array of float64, shape (lanes, d)
        Of each column, the constant included: the largest value and the sum of squares so far,
        and what the column is multiplied by.
    arms : array of float64, shape (lanes, 16, relevance_dim)
        Different rows of relevance, as they were met.
    counts : array of int64, shape (lanes, 3)
        Decisions that were measured, arms on offer in them, and different arms that were met; 17
        of these are many.
    """

    largest: Floats
    squares: Floats
    factor: Floats
    arms: Floats
    counts: Ints

    @classmethod
    def unmet(cls, lanes: int, width: int, relevance_dim: int) -> Inputs:
        """Return what lanes know that have met nothing."""
        largest, squares = np.zeros((2, lanes, width))
        arms, counts = np.zeros((lanes, FEW, relevance_dim)), np.zeros((lanes, 3), np.int64)
        return cls(largest, squares, np.ones((lanes, width)), arms, counts)


@kernel
def forget_inputs(inputs: Inputs, lane: int) -> None:
    """Know nothing of features again."""
    for j in range(inputs.factor.shape[1]):
        inputs.largest[lane, j] = 0.0
        inputs.squares[lane, j] = 0.0
        inputs.factor[lane, j] = 1.0
    for i in range(FEW):
        for j in range(inputs.arms.shape[2]):
            inputs.arms[lane, i, j] = 0.0
    for i in range(3):
        inputs.counts[lane, i] = 0


@kernel
def read_raw(impression: Impression, place: int, split: int, x: Floats) -> None:
    """Fill ``x`` with an arm's features: relevance, that times each signal, 1, examination."""
    dim, signals = impression.relevance.shape[1], len(impression.context)
    for j in range(dim):
        x[j] = impression.relevance[place, j]
    for i in range(signals if split > dim + 1 else 0):
        for j in range(dim):
            x[(i + 1) * dim + j] = impression.context[i] * impression.relevance[place, j]
    x[split - 1] = 1.0
    for j in range(split, len(x)):
        x[j] = impression.examination[place, j - split]


@kernel
def read(inputs: Inputs, lane: int, impression: Impression, place: int, split: int, x: Floats) -> None:
    """Fill ``x`` with an arm's features at their common size."""
    read_raw(impression, place, split, x)
    for j in range(len(x)):
        x[j] *= inputs.factor[lane, j]


def rows_read(inputs: Inputs, lane: int, impression: Impression, split: int, width: int) -> Floats:
    """Return the features of all arms on offer at their common size."""
    rows = np.empty((len(impression.arms), width))
    for place, row in enumerate(rows):
        read(inputs, lane, impression, place, split, row)
    return rows


@kernel
def known_arm(inputs: Inputs, lane: int, impression: Impression, place: int) -> int:
    """Return which of few arms stands at a place on offer; NEW or MANY if it is none of them."""
    met = inputs.counts[lane, 2]
    if met > FEW:
        return MANY
    for i in range(met):
        j = 0
        while j < inputs.arms.shape[2] and inputs.arms[lane, i, j] == impression.relevance[place, j]:
            j += 1
        if j == inputs.arms.shape[2]:
            return i
    return NEW


@kernel
def measure_offer(inputs: Inputs, lane: int, impression: Impression, split: int, x: Floats) -> None:
    """Measure the arms on offer in a decision that is learned from; uses ``x``."""
    counts = inputs.counts[lane]
    if counts[0] >= MEASURED:
        return
    counts[0] += 1
    counts[1] += len(impression.arms)
    for place in range(len(impression.arms)):
        read_raw(impression, place, split, x)
        for j in range(len(x)):
            inputs.largest[lane, j] = max(inputs.largest[lane, j], abs(x[j]))
            inputs.squares[lane, j] += x[j] * x[j]
    measure(inputs, lane, 0, split - 1)
    measure(inputs, lane, split, len(x))


@kernel
def meet(inputs: Inputs, lane: int, impression: Impression) -> None:
    """Come to know the arms on offer in a decision that is learned from, if they are few."""
    counts = inputs.counts[lane]
    for place in range(len(impression.arms)):
        if known_arm(inputs, lane, impression, place) == NEW:
            if counts[2] < FEW:
                for j in range(inputs.arms.shape[2]):
                    inputs.arms[lane, counts[2], j] = impression.relevance[place, j]
            counts[2] += 1


@kernel
def measure(inputs: Inputs, lane: int, start: int, stop: int) -> None:
    """Set the factors of a block's columns; a column that was always 0 is taken for indicators."""
    length = 0.0
    for j in range(start, stop):
        peak = inputs.largest[lane, j]
        if peak > 0.0:
            length += inputs.squares[lane, j] / (peak * peak)
    rows = inputs.counts[lane, 1]
    shrink = LENGTH * np.sqrt(rows / length) if length > 0.0 else 1.0
    for j in range(start, stop):
        peak = inputs.largest[lane, j]
        factor = shrink / peak if peak > 0.0 else shrink
        if not 0.5 * factor < inputs.factor[lane, j] < 2.0 * factor:
            inputs.factor[lane, j] = factor
