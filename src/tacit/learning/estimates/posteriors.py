"""Beta posteriors of several arms: intervals of their means, and which arm is the best."""

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Floats
from tacit.policies.stationary.beta_maximum import BENT, CORE_WIDTH, NODES, POINTS, STEEPEST, WEIGHTS, WIDEST

REACH = 9.0
"""Deviations on either side of the mode, in log-odds; the tails beyond are longer."""
TAIL, LONG_TAIL = 10.0, 20.0
"""E-foldings of the tails beyond, for a quantile and for an integral."""
FINE = 1025
"""Points of a density whose quantiles are looked up."""
LEAST = 1e-12
"""The least that a distribution function is taken for, where it is divided by."""
AT_ONCE = 4096
"""Arms whose densities are worked out together, to bound the memory."""

_powers = np.arange(1, POINTS + 1)
RUNNING = (((1.0 - NODES[:, None] ** _powers) / _powers) @ np.linalg.inv(np.vander(NODES, increasing=True))).T
"""Values at the nodes of [−1, 1] times column i: the integral from node i up to 1."""


def intervals(successes: Floats, failures: Floats, means: Floats, confidence: float = 0.95) -> Floats:
    """Return the central interval of each arm's mean reward.

    Where the mean that is shown beside lies outside of that, as that of an arm without clicks
    does, the interval of the same probability that ends there.

    Parameters
    ----------
    successes, failures : array of float64, shape (arms,)
        Parameters of the posteriors; above 0.
    means : array of float64, shape (arms,)
        In [0, 1]; NaN where none is shown.
    confidence : float, default 0.95

    Returns
    -------
    array of float64, shape (arms, 2)

    Examples
    --------
    >>> intervals(np.ones(2), np.ones(2), np.array([0.5, 1.0])).round(3).tolist()
    [[0.025, 0.975], [0.05, 1.0]]
    """
    tail = (1.0 - confidence) / 2.0
    ends = np.empty((len(means), 2))
    for i, (low, high) in enumerate(zip(*_reach(successes, failures, TAIL), strict=True)):
        y = np.linspace(low, high, FINE)
        exponent = successes[i] * y - (successes[i] + failures[i]) * np.logaddexp(0.0, y)
        density = np.exp(exponent - exponent.max())
        mass = density / density.sum()
        below = np.cumsum(mass) - 0.5 * mass
        with np.errstate(divide="ignore"):
            odds = np.log(means[i]) - np.log1p(-means[i])
        under = float(np.interp(odds, y, below, 0.0, 1.0))
        # A mean that is NaN fails any comparison, which leaves the central interval.
        start = max(min(tail, under), under - confidence)
        found = 1.0 / (1.0 + np.exp(-np.interp([start, start + confidence], below, y)))
        # The grid ends, and numbers are rounded, a little beside.
        ends[i] = np.fmin(found[0], means[i]), np.fmax(found[1], means[i])
    return ends


def chances_best(successes: Floats, failures: Floats) -> Floats:
    """Return the probability that each arm is the best: ∫ fᵢ ∏ Fⱼ, of all arms in one pass.

    The panels over the log-odds are those of :mod:`tacit.policies.stationary.beta_maximum`, and
    every arm's density and distribution at their nodes serve the integrals of all. It takes arms ×
    nodes of work, however the arms are spread. Arms with the same posterior are worked out once.

    Parameters
    ----------
    successes, failures : array of float64, shape (arms,)
        Parameters of the posteriors; above 0.

    Returns
    -------
    array of float64, shape (arms,)
        They sum to 1.

    Examples
    --------
    >>> chances_best(np.array([1.0, 2.0]), np.ones(2)).round(6).tolist()
    [0.333333, 0.666667]
    """
    # Pairs as complex numbers are sorted ten times as fast, and without the interpreter.
    pairs = successes + 1j * failures
    kinds, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    low, high = _reach(kinds.real, kinds.imag, LONG_TAIL)
    # An arm that lies below another one for certain is never the best.
    rivals = high > low.max()
    chances = np.zeros(len(kinds))
    chances[rivals] = _chances(kinds.real[rivals], kinds.imag[rivals], counts[rivals])
    each: Floats = (chances / (chances @ counts))[which]
    return each


def _reach(s: Floats, f: Floats, tail: float) -> tuple[Floats, Floats]:
    """Return between which log-odds a variable lies, but for what is negligible."""
    mode, spread = np.log(s) - np.log(f), REACH * np.sqrt(1.0 / s + 1.0 / f)
    # The tails fall like exp(s·y) and exp(−f·y).
    return mode - spread - tail / s, mode + spread + tail / f


def _chances(s: Floats, f: Floats, counts: Floats) -> Floats:
    """Return the probability of one arm of each kind, where there are so many of each."""
    low, high = _reach(s, f, LONG_TAIL)
    bottom, y = float(low.max()), float(high.max())
    norm = np.array([math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
                     for a, b in zip(s.tolist(), f.tolist(), strict=True)])  # fmt: skip
    widest = min(WIDEST, float(counts.sum()) ** -0.3)
    above, chances = np.zeros(len(s)), np.zeros(len(s))
    while y > bottom:
        width = min(_width(y, s, f, high, widest), y - bottom)
        nodes = y - width / 2 + width / 2 * NODES
        bends = np.logaddexp(0.0, nodes)
        y -= width
        reached = np.flatnonzero(high > y)
        parts = [reached[i : i + AT_ONCE] for i in range(0, len(reached), AT_ONCE)]
        product = np.zeros(POINTS)
        known = []
        for part in parts:
            a, b = s[part, None], f[part, None]
            density = width / 2 * np.exp(a * nodes - (a + b) * bends - norm[part, None])
            below = np.log(np.maximum(1.0 - above[part, None] - density @ RUNNING, LEAST))
            above[part] += density @ WEIGHTS
            product += counts[part] @ below
            known.append((part, density, below))
        for part, density, below in known:
            # Without the arm itself: the product of all of them is no larger than any.
            others = np.exp(np.minimum(product - below, 0.0))
            chances[part] += (density * others) @ WEIGHTS
    return chances


def _width(y: float, s: Floats, f: Floats, high: Floats, widest: float) -> float:
    """Return how far down from y all densities are smooth enough for one panel."""
    core = CORE_WIDTH * np.minimum(np.sqrt(1.0 / s + 1.0 / f), 1.5)
    own = widest * core
    beyond = y - np.log(s) + np.log(f)
    own = np.where(beyond > core, np.maximum(own, np.minimum(beyond - core, STEEPEST / f)), own)
    own = np.where(beyond < -core, np.maximum(own, STEEPEST / s), own)
    width = float(np.maximum(own, y - high).min())
    # Where a count is small, the bend of softplus is sharper than the deviation says.
    fewest, most = min(s.min(), f.min()), max(s.max(), f.max())
    reach = 0.0
    if fewest < 1.5:
        reach = max(np.log(most), -np.log(fewest)) + np.log(2.0 * len(s)) + 8.0
    return min(width, max(y - reach, BENT)) if y > -reach else width
