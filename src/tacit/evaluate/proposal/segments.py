"""Where a key's clicks changed, found afterwards: binary segmentation by likelihood ratios."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints

LIKELY = math.log(1000.0)
"""A split that is a thousand times less likely than the best one is ruled out."""


class Change(NamedTuple):
    """A place where click probabilities changed.

    Attributes
    ----------
    round : int
        The most likely first round after the change, from 0.
    first, last : int
        The range of rounds that are not ruled out.
    """

    round: int
    first: int
    last: int


def changes(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> list[Change]:
    """Return the changes in one key's clicks, in the order of their rounds.

    The rounds are split where, for some arm, two rates explain its rewards better than one by
    a log-likelihood ratio of ln(3·n·sqrt(n)·arms/δ), n being its plays; the place is the one
    at which the ratios of all arms add up to most. Both parts are searched in turn.

    Parameters
    ----------
    arms : array of int64, shape (rounds,)
        Slot of the arm that was shown in each round.
    rewards : array of float64, shape (rounds,)
        In [0, 1].
    arm_count : int
    delta : float
        About the probability of finding a change where there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> arms = rng.integers(2, size=4000)
    >>> rates = np.where(np.arange(4000) < 1500, [[0.5], [0.2]], [[0.1], [0.2]])
    >>> rewards = (rng.random(4000) < rates[arms, np.arange(4000)]).astype(float)
    >>> [abs(change.round - 1500) < 30 for change in changes(arms, rewards, 2, 0.01)]
    [True]
    """
    found: list[Change] = []
    parts = [(0, len(arms))]
    while parts:
        start, stop = parts.pop()
        change = best_split(arms[start:stop], rewards[start:stop], arm_count, delta)
        if change is not None:
            found.append(Change(*(start + round for round in change)))
            parts += [(start, start + change.round), (start + change.round, stop)]
    return sorted(found)


def best_split(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> Change | None:
    """Return the most likely change, if the evidence for any suffices."""
    total = np.zeros(max(len(arms) - 1, 0))
    evident = False
    for arm in range(arm_count):
        mine = arms == arm
        plays = int(mine.sum())
        if plays < 2:
            continue
        ratios = likelihood_ratios(mine, rewards)
        total += ratios
        threshold = math.log(3.0 * plays * math.sqrt(plays) * arm_count / delta)
        evident = evident or ratios.max() >= threshold
    if not evident:
        return None
    likely = np.flatnonzero(total >= total.max() - LIKELY)
    # The split after round i makes round i + 1 the first of the new rates.
    return Change(1 + int(total.argmax()), 1 + int(likely[0]), 1 + int(likely[-1]))


def likelihood_ratios(mine: np.ndarray, rewards: Floats) -> Floats:
    """Return, for a split after each round but the last, the log-likelihood ratio of one arm.

    Parameters
    ----------
    mine : array of bool, shape (rounds,)
        In which rounds the arm was shown.
    rewards : array of float64, shape (rounds,)

    Examples
    --------
    >>> ratios = likelihood_ratios(np.array([True, True, False, True]), np.array([1, 1, 0, 0.0]))
    >>> [round(float(ratio), 4) for ratio in ratios]  # 3·entropy(2/3) − 2·entropy(1/2), then all
    [0.5232, 1.9095, 1.9095]
    """
    before, clicks = np.cumsum(mine)[:-1], np.cumsum(np.where(mine, rewards, 0.0))
    plays, total = before[-1] + mine[-1], clicks[-1]
    first = clicks[:-1]
    apart = likelihood(first, before) + likelihood(total - first, plays - before)
    return np.asarray(apart - likelihood(total, plays))


def likelihood(clicks: Floats, plays: Ints) -> Floats:
    """Return the largest Bernoulli log-likelihood of clicks in plays, 0 where there are none."""
    missed = np.maximum(plays - clicks, 0.0)
    hit = np.maximum(clicks, 0.0)
    shown = np.log(np.maximum(plays, 1))
    return np.asarray(
        hit * (np.log(np.where(hit > 0.0, hit, 1.0)) - shown)
        + missed * (np.log(np.where(missed > 0.0, missed, 1.0)) - shown)
    )
