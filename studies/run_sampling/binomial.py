"""Binomial draws that stay accurate, and fast, from one trial to 10¹⁰ and beyond."""

# Small means are drawn by inversion, others by transformed rejection. Its test compares the
# probability of a value with that of the mode; differences of log-factorials would lose all digits
# at 10¹⁰ trials, so the probabilities are Loader's saddle-point form, in which nothing cancels.
#
# References
# ----------
# Hörmann (1993), "The generation of binomial random variates", algorithm BTRS. Loader (2000), "Fast
# and accurate computation of binomial probabilities".

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Generator
from tacit.core.dispatch import kernel

INVERTED = 10.0
"""Means below this are drawn by inversion; rejection is proved correct from here on."""
TABLE = tuple(
    math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi) if n > 0 else 0.0
    for n in range(16)
)
"""log n! less Stirling's formula, where the series does not serve."""


@kernel
def stirling_error(n: float) -> float:
    """Return log n! less Stirling's formula, for n ≥ 1."""
    if n < 16.0:
        return TABLE[int(n)]
    s = 1.0 / (n * n)
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / n


@kernel
def deviance(x: float, mean: float) -> float:
    """Return x·log(x/mean) + mean − x, for x > 0, without cancellation where both are close."""
    gap = x - mean
    if abs(gap) >= 0.1 * (x + mean):
        return float(x * np.log(x / mean) - gap)
    v = gap / (x + mean)
    total, term, odd = gap * v, 2.0 * x * v, 1.0
    v *= v
    while True:
        term *= v
        odd += 2.0
        following = total + term / odd
        if following == total:
            return total
        total = following


@kernel
def log_probability(k: float, n: float, p: float) -> float:
    """Return the logarithm of the probability that k of n trials succeed."""
    if k == 0.0:
        return float(n * np.log1p(-p))
    if k == n:
        return float(n * np.log(p))
    return float(
        stirling_error(n)
        - stirling_error(k)
        - stirling_error(n - k)
        - deviance(k, n * p)
        - deviance(n - k, n * (1.0 - p))
        - 0.5 * np.log(2.0 * math.pi * k * ((n - k) / n))
    )


@kernel
def by_inversion(n: int, p: float, rng: Generator) -> int:
    """Draw a binomial of small mean by adding up probabilities from 0."""
    odds = p / (1.0 - p)
    step = (n + 1) * odds
    none = np.exp(n * np.log1p(-p))
    while True:
        left, probability, k = rng.random(), none, 0
        while left > probability and k <= n:
            left -= probability
            k += 1
            probability *= step / k - odds
        if k <= n:
            return k


@kernel
def by_rejection(n: int, p: float, rng: Generator) -> int:
    """Draw a binomial of mean at least 10, p ≤ 1/2, by transformed rejection."""
    deviation = np.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    sure = 0.92 - 4.2 / b
    while True:
        u, v = rng.random() - 0.5, rng.random()
        edge = 0.5 - abs(u)
        if edge <= 0.0:
            continue
        k = np.floor((2.0 * a / edge + b) * u + centre)
        if edge >= 0.07 and v <= sure:
            return int(k)
        if k < 0.0 or k > n:
            continue
        v *= (2.83 + 5.1 / b) * deviation / (a / (edge * edge) + b)
        mode = np.floor((n + 1) * p)
        ratio = log_probability(k, float(n), p) - log_probability(mode, float(n), p)
        if np.log(v) <= ratio:
            return int(k)


@kernel
def binomial(n: int, p: float, rng: Generator) -> int:
    """Draw how many of ``n`` independent trials of probability ``p`` succeed.

    Parameters
    ----------
    n : int
        From 0 to 2^53.
    p : float
        In [0, 1].
    rng : Generator
    """
    small = min(p, 1.0 - p)
    if n <= 0 or small <= 0.0:
        return n if p >= 1.0 and n > 0 else 0
    if n == 1:
        return 1 if rng.random() < p else 0
    k = by_inversion(n, small, rng) if n * small < INVERTED else by_rejection(n, small, rng)
    return k if p <= 0.5 else n - k
