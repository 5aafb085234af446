"""Probability that one of several variables is the largest: two-valued variables, or mixtures of Betas."""

# 1. The largest of several variables of two values each.
# 2. The largest of several mixtures of Betas, by the integral of ``beta_maximum.py``.

from __future__ import annotations

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.policies.stationary import beta_maximum

# ---- The probability that one of several independent variables of two values each is the largest


@kernel
def two_valued_largest(values: Floats, shares: Floats, count: int, chosen: int) -> float:
    """Return the probability that variable ``chosen`` is the largest; ties are broken uniformly. It costs
    O(count²).

    Parameters
    ----------
    values, shares : array of float64, shape (2·count,)
        The two values of each variable, and their probabilities. First come the first values of all
        variables, then the second ones.
    count : int
        Number of variables.
    chosen : int
        Index of the variable.

    Examples
    --------
    >>> import numpy as np
    >>> values, shares = np.array([1.0, 1.0, 2.0, 0.0]), np.array([0.8, 0.5, 0.2, 0.5])
    >>> round(two_valued_largest(values, shares, 2, 0), 9)   # 0.2 + 0.8·(0.5/2 + 0.5)
    0.8
    """
    tie_chance = np.empty(count)
    probability = 0.0
    for outcome in range(chosen, 2 * count, count):
        # Probability that none of the other variables so far is larger and that n are equal.
        tie_chance[0], rivals = 1.0, 0
        for rival in range(count):
            if rival == chosen:
                continue
            below, level = 0.0, 0.0
            for k in range(rival, 2 * count, count):
                if values[k] < values[outcome]:
                    below += shares[k]
                elif values[k] == values[outcome]:
                    level += shares[k]
            rivals += 1
            tie_chance[rivals] = tie_chance[rivals - 1] * level
            for n in range(rivals - 1, 0, -1):
                tie_chance[n] = tie_chance[n] * below + tie_chance[n - 1] * level
            tie_chance[0] *= below
        for n in range(rivals + 1):
            probability += shares[outcome] * tie_chance[n] / (n + 1.0)
    return float(probability)


# ---- The probability that one of several independent mixtures of Betas is the largest
#
# The integral is the same as for single Betas (:mod:`tacit.policies.stationary.beta_maximum`); the
# density of a variable is the weighted sum of the densities of its Betas.


@kernel
def sum_densities(
    work: Floats, points: int, variables: Floats, count: int, variable: int, lowest: float
) -> None:
    """Fill a row of ``work`` with the density of one mixture variable at the panel's nodes, the sum over its
    Betas.

    Betas without mass above ``lowest`` (log-odds) are left out. ``count`` is the number of variables.
    """
    for i in range(points):
        work[beta_maximum.DENSITY + variable, i] = 0.0
    for b in range(variable, variables.shape[1], count):
        if variables[beta_maximum.HIGH, b] > lowest:
            s, f = variables[beta_maximum.SUCCESSES, b], variables[beta_maximum.FAILURES, b]
            n, peak, total = s + f, variables[beta_maximum.PEAK, b], variables[beta_maximum.TOTAL, b]
            for i in range(points):
                if n > beta_maximum.MANY:
                    exponent = beta_maximum.exponent_of_many(
                        work[beta_maximum.NODE, i], s, f, variables[beta_maximum.MODE, b]
                    )
                else:
                    exponent = s * work[beta_maximum.NODE, i] - n * work[beta_maximum.SOFTPLUS, i] - peak
                work[beta_maximum.DENSITY + variable, i] += total * beta_maximum.decay_of_density(exponent)


@kernel
def mixture_largest(successes: Floats, failures: Floats, shares: Floats, count: int, chosen: int) -> float:
    """Return the probability that variable ``chosen`` is the largest of ``count`` mixtures of Betas; at least
    1e-12.

    The error is below 1e-8 where all parameters are at least 0.5.

    Parameters
    ----------
    successes, failures, shares : array of float64, shape (count · Betas of each,)
        Parameters of the Betas, above 0, and their shares in their variables. First come the first
        Betas of all variables, then the second ones, and so on.
    count : int
        Number of variables.
    chosen : int
        Index of the variable.

    Examples
    --------
    >>> import numpy as np
    >>> successes, shares = np.array([1.0, 1.0, 2.0, 1.0]), np.array([0.5, 1.0, 0.5, 0.0])
    >>> p = mixture_largest(successes, np.ones(4), shares, 2, 0)
    >>> round(p, 9) == round(0.5 / 2 + 0.5 * 2 / 3, 9)
    True
    """
    betas = len(successes)
    variables = np.empty((beta_maximum.FACTS, betas))
    work = np.empty((beta_maximum.DENSITY + count, beta_maximum.POINTS))
    level = beta_maximum.NEGLIGIBLE + np.log(float(count))
    fewest, most, same = np.inf, 0.0, True
    for b in range(betas):
        beta_maximum.describe(variables, b, successes[b], failures[b], level)
        fewest, most = min(fewest, successes[b], failures[b]), max(most, successes[b], failures[b])
        same = same and successes[b] == successes[0] and failures[b] == failures[0]
    if same:
        return 1.0 / count
    # The largest variable is between ``bottom`` and ``top``; the chosen one is at most ``ceiling``.
    bottom, top, ceiling = -np.inf, -np.inf, -np.inf
    for variable in range(count):
        low = np.inf
        for b in range(variable, betas, count):
            low, top = min(low, variables[beta_maximum.LOW, b]), max(top, variables[beta_maximum.HIGH, b])
            if variable == chosen:
                ceiling = max(ceiling, variables[beta_maximum.HIGH, b])
        bottom = max(bottom, low)
    if ceiling <= bottom:
        return beta_maximum.LEAST
    bottom = beta_maximum.find_lower_limit(variables, count, bottom, ceiling, level)
    # Where a count is small, the bend of softplus is sharper than the deviation says.
    reach = 0.0
    if fewest < 1.5:
        reach = max(np.log(most), -np.log(fewest)) + np.log(2.0 * count) + 8.0
    for b in range(betas):
        beta_maximum.normalise(variables, b)
        variables[beta_maximum.TOTAL, b] *= shares[b]
    y, integral = top, 0.0
    widest, points = beta_maximum.widest_panel(count), beta_maximum.POINTS if bottom < top else 0
    while y > bottom:
        width = beta_maximum.panel_width(y, variables, betas, bottom, reach, widest)
        half = 0.5 * width
        beta_maximum.lay_nodes(work, points, y - half, half)
        y = y - width if width < y - bottom else bottom
        for variable in range(count):
            sum_densities(work, points, variables, count, variable, y)
        for variable in range(count):
            if variable != chosen:
                above, row = variables[beta_maximum.ABOVE, variable], beta_maximum.DENSITY + variable
                variables[beta_maximum.ABOVE, variable] = beta_maximum.multiply_below(
                    work, points, row, half, above, 1
                )
        for i in range(beta_maximum.POINTS):
            integral += work[beta_maximum.PRODUCT, i] * work[beta_maximum.DENSITY + chosen, i]
    return float(min(max(integral, beta_maximum.LEAST), 1.0))
