"""The upper tail of a Beta distribution: its probability, and draws from it."""

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Generator
from tacit.core.dispatch import kernel

TINY = 1e-300


@kernel
def beta_tail(a: float, b: float, x: float) -> float:
    """Return the probability that a Beta(a, b) variable exceeds x.

    It is the regularised incomplete beta function I(b, a) at 1 − x, by Lentz's continued fraction
    on the side on which that converges in O(sqrt(a + b)) steps. Its relative error is below 1e-6
    up to a + b = 1e8.

    Examples
    --------
    >>> round(beta_tail(3.0, 1.0, 0.5), 12)
    0.875
    """
    upper = (1.0 - x) * (a + b + 2.0) < b + 1.0
    if not upper:
        a, b, x = b, a, 1.0 - x
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = np.exp(logarithm + a * np.log(x) + b * np.log1p(-x)) / b
    y = 1.0 - x
    c, d = 1.0, 1.0 - y * (a + b) / (b + 1.0)
    d = 1.0 / (d if abs(d) > TINY else TINY)
    fraction = d
    for m in range(1, 1_000_000):
        for step in (
            y * m * (a - m) / ((b + 2 * m - 1.0) * (b + 2 * m)),
            -y * (b + m) * (a + b + m) / ((b + 2 * m) * (b + 2 * m + 1.0)),
        ):
            d = 1.0 + step * d
            c = 1.0 + step / c
            c = c if abs(c) > TINY else TINY
            d = 1.0 / (d if abs(d) > TINY else TINY)
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    found = min(front * fraction, 1.0)
    return float(found if upper else 1.0 - found)


@kernel
def draw_above(a: float, b: float, x: float, rng: Generator) -> float:
    """Draw from Beta(a, b), a and b at least 1, given that the draw exceeds x.

    Far out, from the exponential that touches the log-concave density at x and lies above it;
    else by drawing until it does.
    """
    slope = (b - 1.0) / (1.0 - x) - (a - 1.0) / x
    far = slope * slope > (a + b) * 4.0 and slope > 0.0
    while True:
        if far:
            step = -np.log(1.0 - rng.random()) / slope
            if step < 1.0 - x:
                # ln of the density's ratio to the exponential's, at most 0.
                ratio = (a - 1.0) * np.log1p(step / x) + (b - 1.0) * np.log1p(-step / (1.0 - x))
                if np.log(1.0 - rng.random()) <= ratio + slope * step:
                    return float(x + step)
        else:
            draw = rng.beta(a, b)
            if draw > x:
                return float(draw)
