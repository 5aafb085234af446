"""The probability that one of several independent Beta variables is the largest.

P(a is largest) = ∫ f_a(x)·Π_{b≠a} F_b(x) dx, integrated over the log-odds y = ln(x/(1 − x)). There
the density of Beta(s, f) is exp(s·y − (s + f)·softplus(y)) up to a constant: smooth,
log-concave, with exponential tails, whatever the counts. Only a stretch of the line matters: below
it the product of all F is negligible, above it all are 1. It is cut, from its upper end, into
panels as wide as every variable's own scale allows; on each panel all densities are interpolated
at eight Gauss–Legendre nodes, which gives their masses, the running integrals 1 − F, and the outer
integral.

The loops over nodes are long and free of calls and branches, so that they become vector
instructions: hence the polynomials in place of ``np.exp`` and ``np.log1p``.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel

# Gauss–Legendre of eight points; numpy.polynomial would compute it, but takes long to import.
HALF_NODES = np.array(
    [0.18343464249564978, 0.525532409916329, 0.7966664774136267, 0.9602898564975362]
)
HALF_WEIGHTS = np.array(
    [0.36268378337836166, 0.3137066458778869, 0.22238103445337443, 0.10122853629037706]
)
NODES = np.concatenate([-HALF_NODES[::-1], HALF_NODES])
WEIGHTS = np.concatenate([HALF_WEIGHTS[::-1], HALF_WEIGHTS])
POINTS = len(NODES)


def _running_integrals() -> Floats:
    """Return the matrix that takes values at the nodes to integrals from each node up to 1."""
    lagrange = np.linalg.inv(np.vander(NODES, increasing=True))
    powers = np.arange(1, POINTS + 1)
    antiderivatives = (1.0 - NODES[:, None] ** powers) / powers
    return np.ascontiguousarray(antiderivatives @ lagrange)


def _stirling_remainders(most: int) -> Floats:
    """Return what Stirling's formula leaves of ln Γ at 1, …, ``most`` (and nothing at 0)."""
    x = range(1, most + 1)
    return np.array(
        [math.nan, *(math.lgamma(k) - (k - 0.5) * math.log(k) + k - HALF_LOG_2PI for k in x)]
    )


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
RUNNING = _running_integrals()
REMAINDERS = _stirling_remainders(9)

NEGLIGIBLE = 20.0
"""−ln of the mass that may be left out, for all variables together."""
TIGHT, LOOSE = 1.8, 2.4
"""Widths of a panel in deviations, near a mode and away from it."""
PANELS = 16
"""How many panels are worked on at a time; a multiple of LANES."""
LANES = 4
"""Panels are filled up to a multiple of this, so that vector loops leave no rest."""

# What is known of each variable, and of each node of the panels in work.
SUCCESSES, FAILURES, MODE, LOW, HIGH, SCALE, VARIANCE, PEAK, TOTAL, ABOVE = range(10)
MIDDLE, HALF, BEFORE, NODE, BEND, WIDTH, DENSITY, PRODUCT = range(8)


@kernel
def decay(x: float) -> float:
    """Return exp(x) for x ≤ 0, with an absolute error below 1e-14."""
    r = (x if x > -44.0 else -44.0) / 32.0
    p = 1 / 40320 + r * (1 / 362880 + r / 3628800)
    p = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (
        1 / 5040 + r * p)))))))  # fmt: skip
    p *= p
    p *= p
    p *= p
    p *= p
    return p * p


@kernel
def bend(y: float) -> float:
    """Return ln(1 + exp(y)), the softplus: 2·artanh(u/(2 + u)) for u = exp(−|y|)."""
    u = decay(-abs(y))
    z = u / (2.0 + u)
    q = z * z
    p = 1 / 19 + q * (1 / 21 + q * (1 / 23 + q * (1 / 25 + q * (1 / 27 + q * (1 / 29 + q / 31)))))
    p = 1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * p)))))
    return (y if y > 0.0 else 0.0) + 2.0 * z * (1.0 + q * (1 / 3 + q * (1 / 5 + q * p)))


@kernel
def stirling_remainder(x: float) -> float:
    """Return ln Γ(x) − ((x − 1/2)·ln x − x + ln(2π)/2)."""
    if x < 10.0:
        if x == int(x):
            return float(REMAINDERS[int(x)])
        return float(math.lgamma(x) - (x - 0.5) * np.log(x) + x - HALF_LOG_2PI)
    q = 1.0 / (x * x)
    return float((1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q / 1188)))) / x)


@kernel
def describe(variables: Floats, b: int, s: float, f: float, level: float) -> None:
    """Fill in where variable b has its mass.

    By Chernoff's inequality, P(y < mode − d) ≤ exp(−h(d)), h(d) = s·d + n·ln(1 − p + p·exp(−d)),
    with n = s + f, p = s/n, and likewise above. As h'' falls by no more than exp(−d),
    h(d) ≥ v·(exp(−d) − 1 + d) ≥ v·d²/(2 + d), where v = n·p·(1 − p); and h(d) ≥ s·d + n·ln(1 − p).
    """
    n = s + f
    v = s * f / n
    log_s, log_f = np.log(n / s), np.log(n / f)
    mode, reach = log_f - log_s, (level + np.sqrt(level * (level + 8.0 * v))) / (2.0 * v)
    variables[SUCCESSES, b], variables[FAILURES, b], variables[MODE, b] = s, f, mode
    variables[LOW, b] = mode - min(reach, (level + n * log_f) / s)
    variables[HIGH, b] = mode + min(reach, (level + n * log_s) / f)
    variables[SCALE, b], variables[VARIANCE, b] = min(1.0 / np.sqrt(v), 1.5), v
    variables[PEAK, b] = -s * log_s - f * log_f


@kernel
def normalise(variables: Floats, b: int) -> None:
    """Fill in what makes the density of variable b, 1 at its mode, integrate to 1."""
    s, f = variables[SUCCESSES, b], variables[FAILURES, b]
    remainder = stirling_remainder(s + f) - stirling_remainder(s) - stirling_remainder(f)
    variables[TOTAL, b] = np.sqrt(variables[VARIANCE, b] / (2.0 * math.pi)) * np.exp(remainder)
    variables[ABOVE, b] = 0.0


@kernel
def lower_end(variables: Floats, count: int, low: float, high: float, level: float) -> float:
    """Return a place from ``low`` to ``high`` up to which the product of all F is negligible."""
    for _ in range(5):
        y = 0.5 * (low + high)
        exponent = 0.0
        for b in range(count):
            d = max(variables[MODE, b] - y, 0.0)
            exponent += variables[VARIANCE, b] * d * d / (2.0 + d)
        if exponent > level:
            low = y
        else:
            high = y
    return low


@kernel
def panel_width(y: float, variables: Floats, count: int, bottom: float, reach: float) -> float:
    """Return how far down from y all densities that matter are smooth enough for one panel."""
    width = y - bottom
    if y > -reach:
        width = min(width, max(y - reach, 1.25))
    for b in range(count):
        if variables[HIGH, b] > bottom:
            scale = variables[SCALE, b]
            z = (y - variables[MODE, b]) / scale
            if z > 7.0:
                # The tails fall like exp(−f·y) and exp(s·y): panels of three e-foldings.
                widest = min((z - 7.0) * scale, 3.0 / variables[FAILURES, b])
                widest = max(LOOSE * scale, widest)
            elif z > -7.0:
                widest = (TIGHT if abs(z - 0.6) < 3.6 else LOOSE) * scale
            else:
                widest = max(LOOSE * scale, 3.0 / variables[SUCCESSES, b])
            if y > variables[LOW, b]:
                width = min(width, max(widest, y - variables[HIGH, b]))
    return float(width)


@kernel
def lay_nodes(work: Floats, size: int) -> None:
    """Fill in the nodes of panels, those of the same rank side by side."""
    for i in range(POINTS):
        for p in range(size):
            k = i * size + p
            work[NODE, k] = work[MIDDLE, p] + work[HALF, p] * NODES[i]
            work[WIDTH, k] = work[HALF, p]
            work[PRODUCT, k] = WEIGHTS[i]
    for k in range(POINTS * size):
        work[BEND, k] = bend(work[NODE, k])


@kernel
def fill_density(work: Floats, size: int, variables: Floats, b: int) -> None:
    """Fill in the density of variable b at the nodes, times half the width of the panel."""
    s, n = variables[SUCCESSES, b], variables[SUCCESSES, b] + variables[FAILURES, b]
    peak, total = variables[PEAK, b], variables[TOTAL, b]
    for k in range(POINTS * size):
        exponent = s * work[NODE, k] - n * work[BEND, k] - peak
        work[DENSITY, k] = total * work[WIDTH, k] * decay(exponent)


@kernel
def multiply_below(work: Floats, size: int, variables: Floats, variable: int) -> None:
    """Multiply the product by F of a variable: 1 less its mass above each node."""
    for p in range(size):
        mass = 0.0
        for i in range(POINTS):
            mass += WEIGHTS[i] * work[DENSITY, i * size + p]
        work[BEFORE, p] = mass
    above = variables[ABOVE, variable]
    for p in range(size):
        mass = work[BEFORE, p]
        work[BEFORE, p] = above
        above += mass
    variables[ABOVE, variable] = above
    for i in range(POINTS):
        a, b, c, d = RUNNING[i, 0], RUNNING[i, 1], RUNNING[i, 2], RUNNING[i, 3]
        e, f, g, h = RUNNING[i, 4], RUNNING[i, 5], RUNNING[i, 6], RUNNING[i, 7]
        # Written out, because a loop within the loop would not become vector instructions.
        for p in range(size):
            inner = (
                a * work[DENSITY, p]
                + b * work[DENSITY, size + p]
                + c * work[DENSITY, 2 * size + p]
                + d * work[DENSITY, 3 * size + p]
                + e * work[DENSITY, 4 * size + p]
                + f * work[DENSITY, 5 * size + p]
                + g * work[DENSITY, 6 * size + p]
                + h * work[DENSITY, 7 * size + p]
            )
            work[PRODUCT, i * size + p] *= 1.0 - work[BEFORE, p] - inner


@kernel
def probability_largest(successes: Floats, failures: Floats, chosen: int) -> float:
    """Return the probability that variable ``chosen`` is the largest.

    The error is below 1e-8 where all parameters are at least 0.5, and below 1e-7 down to 0.05.

    Parameters
    ----------
    successes, failures : array of float64, shape (variables,)
        Parameters of the Beta distributions; above 0.
    chosen : int
        Which variable.

    Examples
    --------
    >>> import numpy as np
    >>> p = probability_largest(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1)
    >>> round(p, 9) == round(2 / 3, 9)
    True
    """
    count = len(successes)
    variables = np.empty((10, count))
    work = np.empty((8, POINTS * PANELS))
    level = NEGLIGIBLE + np.log(float(count))
    bottom, fewest, most, same = -np.inf, np.inf, 0.0, True
    for b in range(count):
        s, f = successes[b], failures[b]
        describe(variables, b, s, f, level)
        bottom = max(bottom, variables[LOW, b])
        fewest, most = min(fewest, s, f), max(most, s, f)
        same = same and s == successes[0] and f == failures[0]
    if same:
        return 1.0 / count
    ceiling = variables[HIGH, chosen]
    if ceiling <= bottom:
        return 0.0
    bottom = lower_end(variables, count, bottom, ceiling, level)
    # Where a count is small, the bend of softplus is sharper than the deviation says.
    reach = 0.0
    if fewest < 1.5:
        reach = max(np.log(most), -np.log(fewest)) + np.log(2.0 * count) + 8.0
    y = bottom
    for b in range(count):
        if variables[HIGH, b] > bottom:
            normalise(variables, b)
            y = max(y, variables[HIGH, b])
    integral = 0.0
    while y > bottom:
        size = 0
        while y > bottom and size < PANELS:
            width = panel_width(y, variables, count, bottom, reach)
            work[MIDDLE, size], work[HALF, size] = y - 0.5 * width, 0.5 * width
            y = y - width if width < y - bottom else bottom
            size += 1
        while size % LANES:
            work[MIDDLE, size], work[HALF, size] = y, 0.0
            size += 1
        lay_nodes(work, size)
        for b in range(count):
            if b != chosen and variables[HIGH, b] > max(y, bottom):
                fill_density(work, size, variables, b)
                multiply_below(work, size, variables, b)
        fill_density(work, size, variables, chosen)
        for k in range(POINTS * size):
            integral += work[PRODUCT, k] * work[DENSITY, k]
    return float(min(max(integral, 0.0), 1.0))
