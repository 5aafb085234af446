"""Rounds in which each ranker gives one item, in random order: probabilities and shares."""

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Floats

MOST_RANKERS = 16
"""Sums over all orders of a round take time 2^rankers."""


def shares(chances: Floats) -> tuple[float, Floats]:
    """Sum over all orders of the rankers in a round.

    Parameters
    ----------
    chances : array, shape (positions, rankers)
        The probability that a ranker, when it is its turn, gives the item at this position of
        the round; no more positions than rankers.

    Returns
    -------
    probability : float
        Of the round's items, over uniform orders.
    shares : array, shape (positions, rankers)
        The probability that the ranker gave the item at the position, given the round's items.

    Examples
    --------
    >>> total, share = shares(np.array([[1.0, 0.5], [0.0, 0.5]]))
    >>> total
    0.25
    >>> share
    array([[1., 0.],
           [0., 1.]])
    """
    positions, rankers = chances.shape
    sets = np.arange(2**rankers)
    without = [sets[sets >> ranker & 1 == 0] for ranker in range(rankers)]
    before = np.zeros((positions + 1, len(sets)))  # by the set of rankers that have given
    before[0, 0] = 1.0
    for position in range(positions):
        for ranker, free in enumerate(without):
            gain = before[position, free] * chances[position, ranker]
            before[position + 1, free | 1 << ranker] += gain
    after = np.zeros_like(before)
    after[positions] = np.bitwise_count(sets) == positions
    given = np.zeros_like(chances)
    for position in reversed(range(positions)):
        for ranker, free in enumerate(without):
            rest = chances[position, ranker] * after[position + 1, free | 1 << ranker]
            after[position, free] += rest
            given[position, ranker] = before[position, free] @ rest
    total = float(after[0, 0])
    return total / math.perm(rankers, positions), given / total if total > 0 else given
