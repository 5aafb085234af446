"""The probability that one of several independent Beta variables is the largest.

P(a is largest) = ∫ f_a(x)·Π_{b≠a} F_b(x) dx, integrated over the log-odds y = ln(x/(1 − x)). There
the density of Beta(s, f) is exp(s·y − (s + f)·softplus(y)) up to a constant: smooth,
log-concave, with exponential tails, whatever the counts. The line is cut into panels as wide as
every variable's own scale allows; on each panel all densities are interpolated at eight
Gauss–Legendre nodes, which gives their masses, the running integrals F, and the outer integral.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import Floats
from tacit.dispatch import kernel

# Gauss–Legendre of eight points; numpy.polynomial would compute it, but takes long to import.
HALF_NODES = np.array(
    [0.18343464249564978, 0.525532409916329, 0.7966664774136267, 0.9602898564975362]
)
HALF_WEIGHTS = np.array(
    [0.36268378337836166, 0.3137066458778869, 0.22238103445337443, 0.10122853629037706]
)
NODES = np.concatenate([-HALF_NODES[::-1], HALF_NODES])
WEIGHTS = np.concatenate([HALF_WEIGHTS[::-1], HALF_WEIGHTS])


def _running_integrals() -> Floats:
    """Give the matrix that takes values at the nodes to integrals from −1 up to each node."""
    lagrange = np.linalg.inv(np.vander(NODES, increasing=True))
    powers = np.arange(1, len(NODES) + 1)
    antiderivatives = (NODES[:, None] ** powers - (-1.0) ** powers) / powers
    return np.ascontiguousarray(antiderivatives @ lagrange)


RUNNING = _running_integrals()


@kernel
def softplus(y: float) -> float:
    """Give ln(1 + exp(y)) without overflow."""
    return float(max(y, 0.0) + np.log1p(np.exp(-abs(y))))


@kernel
def panel_width(y: float, scales: Floats, reach: float) -> float:
    """Give how far from y on all densities are smooth enough for one panel."""
    width = 1.5 if abs(y) < reach else np.inf
    for b in range(len(scales)):
        low, mode, deviation, high, left, right = scales[b]
        z = (y - mode) / deviation
        if y < low:
            width = min(width, low - y)
        elif z < -7.0:
            # The tails fall like exp(s·y) and exp(−f·y): panels of three e-foldings.
            width = min(width, left, max(mode - 7.0 * deviation - y, 1e-3 * deviation))
        elif z < 7.0:
            width = min(width, (1.25 if abs(z + 0.6) < 3.6 else 2.0) * deviation)
        elif y < high:
            width = min(width, right)
    return float(width)


@kernel
def probability_largest(successes: Floats, failures: Floats, chosen: int) -> float:
    """Give the probability that variable ``chosen`` is the largest, to 1e-8.

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
    scales = np.empty((count, 6))
    peak = np.empty(count)
    reach, fewest, start, stop = 0.0, np.inf, np.inf, -np.inf
    for b in range(count):
        s, f = successes[b], failures[b]
        mode, deviation = np.log(s) - np.log(f), min(np.sqrt(1.0 / s + 1.0 / f), 1.5)
        low = mode - 7.0 * deviation - 26.0 / s
        high = mode + 7.0 * deviation + 26.0 / f
        scales[b, 0], scales[b, 1], scales[b, 2] = low, mode, deviation
        scales[b, 3], scales[b, 4], scales[b, 5] = high, 3.0 / s, 3.0 / f
        peak[b] = s * mode - (s + f) * softplus(mode)
        reach = max(reach, abs(np.log(s)), abs(np.log(f)))
        fewest = min(fewest, s, f)
        start, stop = min(start, low), max(stop, high)
    # Where a count is small, the bend of softplus is sharper than the deviation says.
    reach = reach + np.log(2.0 * count) + 8.0 if fewest < 1.5 else 0.0

    below = np.zeros(count)  # mass of each density below the panel, not normalised
    inner = np.zeros((count, len(NODES)))  # the same below each node of the panel
    density = np.zeros((count, len(NODES)))
    bend = np.empty(len(NODES))
    total = np.empty(count)
    large = False
    for b in range(count):
        s, f = successes[b], failures[b]
        total[b] = np.exp(math.lgamma(s) + math.lgamma(f) - math.lgamma(s + f) - peak[b])
        large = large or s + f > 1e5
    integral = 0.0
    # Above that the difference of logarithms of gamma functions loses too many digits, and the
    # masses are integrated in a sweep of their own.
    for sweep in range(0 if large else 1, 2):
        y = start
        while y < (stop if sweep == 0 else scales[chosen, 3]):
            width = panel_width(y, scales, reach)
            half, middle = 0.5 * width, y + 0.5 * width
            for i in range(len(NODES)):
                bend[i] = softplus(middle + half * NODES[i])
            for b in range(count):
                active = scales[b, 0] < y + width and y < scales[b, 3]
                inner[b, :] = below[b]
                density[b, :] = 0.0
                if active:
                    s, f = successes[b], failures[b]
                    for i in range(len(NODES)):
                        node = middle + half * NODES[i]
                        exponent = s * node - (s + f) * bend[i] - peak[b]
                        density[b, i] = half * np.exp(exponent)
                        below[b] += WEIGHTS[i] * density[b, i]
            if sweep == 1 and scales[chosen, 0] < y + width:
                for b in range(count):
                    for i in range(len(NODES)):
                        for j in range(len(NODES)):
                            inner[b, i] += RUNNING[i, j] * density[b, j]
                for i in range(len(NODES)):
                    product = WEIGHTS[i] * density[chosen, i] / total[chosen]
                    for b in range(count):
                        if b != chosen:
                            product *= inner[b, i] / total[b]
                    integral += product
            y += width
        if sweep == 0:
            total[:] = below
            below[:] = 0.0
    return float(min(max(integral, 0.0), 1.0))
