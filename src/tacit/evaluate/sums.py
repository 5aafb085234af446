"""The sums behind every estimator: pure data that add up, whatever the order of the rows.

A *unit* is what is averaged: a row, or a slate. Each brings its weight w (π/p, the target's over
the log's probability of what was shown) and its value y (w·r for importance weighting). Parts of
a log can be summed on different machines and merged: nothing else is kept of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints

GROUPS = 1024
"""Groups of units that the bootstrap draws; up to so many units, each is a group of its own."""
LARGEST = 5
"""How many of the largest weights are kept."""


class Sums(NamedTuple):
    """Sums over the units of a log, or of a part of one.

    Attributes
    ----------
    n : int
        Number of units.
    w, ww : float
        Sum of the weights and of their squares.
    y, yy : float
        Sum of the values and of their squares.
    wy : float
        Sum of weight times value.
    largest : array of float64, shape (LARGEST,)
        The largest weights, in descending order; 0 where there were fewer units.
    groups : array of float64, shape (3, groups)
        Number of units, sum of weights and sum of values in each group. A cluster lies in one
        group as a whole; without clusters, units are dealt out in turn.
    r, rr : float
        Sum of the units' own rewards, and of their squares.
    least, most : float
        The smallest and the largest of these rewards among units of a weight above 0.

    Examples
    --------
    >>> import numpy as np
    >>> early = summed(np.array([0.5, 1.5]), np.array([0.0, 1.5]))
    >>> late = summed(np.array([1.0]), np.array([1.0]))
    >>> both = early.merge(late)
    >>> both.n, both.w, both.y, both.wy
    (3, 3.0, 2.5, 3.25)
    >>> both.effective_sample_size
    2.5714285714285716
    """

    n: int
    w: float
    ww: float
    y: float
    yy: float
    wy: float
    largest: Floats
    groups: Floats
    r: float = 0.0
    rr: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def merge(self, other: Sums) -> Sums:
        """Return the sums over the units of both."""
        return Sums(
            self.n + other.n,
            self.w + other.w,
            self.ww + other.ww,
            self.y + other.y,
            self.yy + other.yy,
            self.wy + other.wy,
            _top(np.concatenate([self.largest, other.largest])),
            self.groups + other.groups,
            self.r + other.r,
            self.rr + other.rr,
            min(self.least, other.least),
            max(self.most, other.most),
        )

    def after(self, units: int) -> Sums:
        """Return the sums as they are where so many units were dealt out before these."""
        return self._replace(groups=np.roll(self.groups, units % self.groups.shape[1], axis=1))

    @property
    def effective_sample_size(self) -> float:
        """(Σw)²/Σw²: how many equally weighted units would tell as much (Kong 1992)."""
        return self.w**2 / self.ww if self.ww > 0 else 0.0

    @property
    def mean_weight(self) -> float:
        """Σw/n; its expectation is 1 where the log could have shown all the target shows."""
        return self.w / self.n if self.n else math.nan


def nothing(groups: int = GROUPS) -> Sums:
    """Return the sums over no units."""
    return Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(LARGEST), np.zeros((3, groups)))


def summed(
    weights: Floats,
    values: Floats,
    groups: int = GROUPS,
    *,
    rewards: Floats | None = None,
    cluster: Ints | None = None,
    first: int = 0,
) -> Sums:
    """Return the sums over some units.

    Parameters
    ----------
    weights : array of float64, shape (units,)
        At least 0.
    values : array of float64, shape (units,)
    rewards : array of float64, shape (units,), optional
        What the units earned in the log.
    groups : int
        How many groups to keep.
    cluster : array of int64, shape (units,), optional
        The group of each unit's cluster, in [0, groups).
    first : int, default 0
        How many units came before; without clusters, they are dealt out to the groups in turn.
    """
    if not len(weights):
        return nothing(groups)
    if cluster is None:
        by_group = [_dealt(x, len(weights), groups, first) for x in (None, weights, values)]
    else:
        count = np.bincount(cluster, minlength=groups).astype(np.float64)
        by_group = [count, *(_counted(cluster, x, groups) for x in (weights, values))]
    earned = () if rewards is None else _earned(weights, rewards)
    return Sums(
        len(weights),
        float(weights.sum()),
        _product(weights, weights),
        float(values.sum()),
        _product(values, values),
        _product(weights, values),
        _top(weights),
        np.stack(by_group),
        *earned,
    )


def _earned(weights: Floats, rewards: Floats) -> tuple[float, float, float, float]:
    """Return r, rr, least and most of :class:`Sums`."""
    # Not by where=..., nor by an index: both take six times as long.
    counted = rewards.compress(weights > 0)
    least, most = counted.min(initial=math.inf), counted.max(initial=-math.inf)
    return float(rewards.sum()), _product(rewards, rewards), float(least), float(most)


def _dealt(values: Floats | None, units: int, groups: int, first: int) -> Floats:
    """Return the sums of values dealt out to groups in turn (None: how many there are)."""
    full = units - units % groups
    if values is None:
        sums = np.full(groups, float(full // groups))
        sums[: units - full] += 1.0
    else:
        sums = values[:full].reshape(-1, groups).sum(axis=0)
        sums[: units - full] += values[full:]
    return np.roll(sums, first % groups)


def _counted(cluster: Ints, values: Floats, groups: int) -> Floats:
    return np.asarray(np.bincount(cluster, values, groups), np.float64)


def _product(x: Floats, y: Floats) -> float:
    # Not x @ y: that goes to threads of a linear algebra library, for less than no gain.
    return float(np.einsum("i,i", x, y))


def _top(weights: Floats) -> Floats:
    if len(weights) <= LARGEST:
        found = np.zeros(LARGEST)
        found[: len(weights)] = weights
    else:
        found = np.partition(weights, len(weights) - LARGEST)[-LARGEST:]
    return np.sort(found)[::-1]
