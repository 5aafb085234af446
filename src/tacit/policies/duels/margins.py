"""How much each arm beats each other: utilities that all duels teach, and what a pair has of its own.

The margin of arm i over arm j, its chance to win beyond one half, is m(i, j) = u(i) − u(j) + s(i, j), with
u ~ N(0, σ²) an arm's utility and s ~ N(0, τ²) the pair's own, so that no order of all arms is imposed. A
duel's outcome is m + ½ with noise of variance ¼. Given its wins, a pair says of u(i) − u(j) what one
observation of precision λ = 4n/(1 + 4nτ²) does; a duel changes that precision, and the utilities' mean and
covariance by a rank of one. Two arms are worth a duel until their *gate* is beyond the horizon.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel

# Variances of an arm's utility and of what a pair has of its own: margins of some tenths, nearly in order.
UTILITY, OWN = 0.12**2, 0.05**2


class Margins(NamedTuple):
    """What is known of all margins.

    Attributes
    ----------
    wins : array of float64, shape (lanes, arms, arms)
        How often the row's arm beat the column's, weighed by how decided a duel was: a tie counts nothing.
    mean : array of float64, shape (lanes, arms)
        Of the arms' utilities.
    covariance : array of float64, shape (lanes, arms, arms)
    """

    wins: Floats
    mean: Floats
    covariance: Floats

    @classmethod
    def blank(cls, lanes: int, arms: int) -> Margins:
        """Return what lanes know that have seen nothing."""
        covariance = np.zeros((lanes, arms, arms))
        covariance[:, range(arms), range(arms)] = UTILITY
        return cls(np.zeros((lanes, arms, arms)), np.zeros((lanes, arms)), covariance)


@kernel
def lead(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return by how many duels of theirs the arm is ahead of the other."""
    return float(margins.wins[lane, arm, other] - margins.wins[lane, other, arm])


@kernel
def ahead(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return a number of the sign of the mean margin of an arm over another one."""
    mean = margins.mean[lane]
    return float(mean[arm] - mean[other] + 2.0 * OWN * lead(margins, lane, arm, other))


@kernel
def margin_of(margins: Margins, lane: int, arm: int, other: int) -> tuple[float, float]:
    """Return mean and variance of the margin of an arm over another one."""
    covariance = margins.covariance[lane]
    duels = margins.wins[lane, arm, other] + margins.wins[lane, other, arm]
    left = 1.0 / (1.0 + 4.0 * OWN * duels)
    apart = covariance[arm, arm] + covariance[other, other] - 2.0 * covariance[arm, other]
    return left * ahead(margins, lane, arm, other), left * left * max(apart, 0.0) + OWN * left


@kernel
def says(margins: Margins, lane: int, arm: int, other: int) -> tuple[float, float]:
    """Return what a pair's duels say of the difference of utilities: a precision, and it times the mean."""
    duels = margins.wins[lane, arm, other] + margins.wins[lane, other, arm]
    left = 1.0 / (1.0 + 4.0 * OWN * duels)
    return 4.0 * left * duels, 2.0 * left * lead(margins, lane, arm, other)


@kernel
def take_in(margins: Margins, lane: int, arm: int, other: int, precision: float, linear: float) -> None:
    """Let the utilities know more of the difference of two of them."""
    mean, covariance = margins.mean[lane], margins.covariance[lane]
    arms = len(mean)
    apart = covariance[arm, arm] + covariance[other, other] - 2.0 * covariance[arm, other]
    scale = 1.0 / (1.0 + precision * apart)
    step = scale * (linear - precision * (mean[arm] - mean[other]))
    for i in range(arms):
        mean[i] += step * (covariance[i, arm] - covariance[i, other])
    # Rows but those of the two first: those are read until the end.
    for i in range(arms):
        if i != arm and i != other:
            row = covariance[i]
            part = scale * precision * (row[arm] - row[other])
            for j in range(arms):
                row[j] -= part * (covariance[arm, j] - covariance[other, j])
    first, second = covariance[arm], covariance[other]
    a = scale * precision * (first[arm] - first[other])
    b = scale * precision * (second[arm] - second[other])
    for j in range(arms):
        difference = first[j] - second[j]
        first[j] -= a * difference
        second[j] -= b * difference


@kernel
def count_duel(margins: Margins, lane: int, left: int, right: int, outcome: float) -> None:
    """Learn the outcome of a duel of two arms."""
    before, linear_before = says(margins, lane, left, right)
    margins.wins[lane, left, right] += max(2.0 * outcome - 1.0, 0.0)
    margins.wins[lane, right, left] += max(1.0 - 2.0 * outcome, 0.0)
    precision, linear = says(margins, lane, left, right)
    take_in(margins, lane, left, right, precision - before, linear - linear_before)


@kernel
def fade_pairs(margins: Margins, lane: int, most: float) -> None:
    """Keep of each pair at most so many duels, won by the same shares, and compute the rest anew."""
    wins, arms = margins.wins[lane], margins.mean.shape[1]
    margins.mean[lane] = 0.0
    margins.covariance[lane] = 0.0
    for i in range(arms):
        margins.covariance[lane, i, i] = UTILITY
    for i in range(arms):
        for j in range(i):
            duels = wins[i, j] + wins[j, i]
            if duels > most:
                wins[i, j] *= most / duels
                wins[j, i] *= most / duels
            if duels > 0.0:
                precision, linear = says(margins, lane, i, j)
                take_in(margins, lane, i, j, precision, linear)


@kernel
def gate_of(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return the logarithm of the horizon from which on two arms are worth more duels.

    It is the duels that they would take against what may be gained (Lai 1988); and however sure it seems
    from other pairs, two arms in whose own duels nobody leads are met.
    """
    mean, variance = margin_of(margins, lane, arm, other)
    own = lead(margins, lane, arm, other)
    own = max(own if mean > 0.0 else -own, 0.0)
    return float(min(np.log(0.125 / variance) + 1.5 * mean * mean / variance, 2.0 * own))


@kernel
def gain_of(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return by how much the arm that seems worse is expected to be better: E max(0, its margin)."""
    mean, variance = margin_of(margins, lane, arm, other)
    deviation = np.sqrt(variance)
    x = abs(mean) / deviation
    density = 0.3989422804014327 * np.exp(-0.5 * x * x)
    return float(deviation * (density - 0.5 * x * math.erfc(x * 0.7071067811865476)))
