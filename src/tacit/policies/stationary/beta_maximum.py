"""Beta variables: upper tail, truncated draws, and the probability that one of several is the largest."""

# 1. The upper tail of a Beta variable, and draws from it.
# 2. The probability that one of several is the largest: an integral over log-odds, panel by panel from
#    above; the product of all distribution functions is carried from panel to panel; ``describe`` and
#    ``normalise`` come first, then ``panel_width``, ``lay_nodes``, ``fill_density``, ``multiply_below``;
#    ``probability_largest`` calls them.

from __future__ import annotations

import math

import numpy as np

from tacit.core.arrays import Floats, Generator, borrow_array, release_array
from tacit.core.dispatch import kernel

# ---- The upper tail of a Beta distribution: its probability, and draws from it

TINY = 1e-300


@kernel
def beta_tail(a: float, b: float, x: float) -> float:
    """Return the probability that a Beta(a, b) variable exceeds x.

    It is the regularised incomplete beta function I(b, a) at 1 − x, by Lentz's continued fraction
    on the side where that converges in O(sqrt(a + b)) steps. Its relative error is below 1e-6
    up to a + b = 1e8.

    Examples
    --------
    >>> round(beta_tail(3.0, 1.0, 0.5), 12)
    0.875
    """
    upper = (1.0 - x) * (a + b + 2.0) < b + 1.0
    # The fraction converges fast only on one side of the mean; on the other, 1 − tail is computed.
    if not upper:
        a, b, x = b, a, 1.0 - x
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = np.exp(logarithm + a * np.log(x) + b * np.log1p(-x)) / b
    y = 1.0 - x
    c, d = 1.0, 1.0 - y * (a + b) / (b + 1.0)
    d = 1.0 / (d if abs(d) > TINY else TINY)
    fraction = d
    # Lentz's algorithm: each of the two terms of a round multiplies the fraction by c·d.
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
    tail = min(front * fraction, 1.0)
    return float(tail if upper else 1.0 - tail)


@kernel
def draw_above(a: float, b: float, x: float, rng: Generator) -> float:
    """Return a draw from Beta(a, b), a and b at least 1, under the condition that it exceeds x.

    Near the mode, draws are repeated until one exceeds x. Far in the upper tail, where that would take long,
    a draw from an exponential is accepted or rejected; the exponential touches the log-concave density at x
    and lies above it.
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


# ---- The probability that one of several independent Beta variables is the largest
#
# P(a is largest) = ∫ f_a(x)·Π_{b≠a} F_b(x) dx, integrated over the log-odds y = ln(x/(1 − x)). There
# the density of Beta(s, f) is exp(s·y − (s + f)·softplus(y)) up to a constant: smooth,
# log-concave, with exponential tails, whatever the counts. Only an interval matters: below it the
# product of all F is negligible, above it all F are 1. It is cut, from its upper end, into panels as wide
# as the scale of every variable allows; on each panel all densities are interpolated at sixteen
# Gauss–Legendre nodes, which gives their masses, the running integrals 1 − F, and the outer integral.
#
# The loops over nodes have no calls and branches, so that they become vector instructions: hence
# the polynomials in place of ``np.exp`` and ``np.log1p``. All densities of a panel are computed
# before the first is used, so that the processor works on several at a time.

# Gauss–Legendre of sixteen points; numpy.polynomial would compute it, but takes long to import.
UPPER_NODES = np.array(
    [
        0.09501250983763744, 0.2816035507792589, 0.45801677765722737, 0.6178762444026438,
        0.755404408355003, 0.8656312023878318, 0.9445750230732326, 0.9894009349916499,
    ]
)  # fmt: skip
UPPER_WEIGHTS = np.array(
    [
        0.18945061045506864, 0.18260341504492364, 0.16915651939500265, 0.1495959888165767,
        0.12462897125553407, 0.0951585116824926, 0.062253523938647456, 0.027152459411754176,
    ]
)  # fmt: skip
PAIRS = len(UPPER_NODES)
"""Nodes come in pairs: node i above the middle, and node PAIRS + i at the same distance below it."""
NODES = np.concatenate([UPPER_NODES, -UPPER_NODES])
WEIGHTS = np.concatenate([UPPER_WEIGHTS, UPPER_WEIGHTS])
POINTS = len(NODES)


def _running_integrals() -> tuple[Floats, Floats]:
    """Return two arrays of weights, (8, 9) and (8, 8), that turn a function's values at the nodes into its
    integrals from each node up to 1.

    Values enter as sums and differences of node pairs. The integral from upper node i is the sums weighed by
    column i of the first array, plus the differences weighed by column i of the second; from its mirror image
    it is the total, minus the former, plus the latter. The total is the sums weighed by the last column of
    the first array.
    """
    lagrange = np.linalg.inv(np.vander(NODES, increasing=True))
    powers = np.arange(1, POINTS + 1)
    running = (((1.0 - UPPER_NODES[:, None] ** powers) / powers) @ lagrange).T
    upper, lower = running[:PAIRS], running[PAIRS:]
    of_sums = np.column_stack([0.5 * (upper + lower), UPPER_WEIGHTS])
    return np.ascontiguousarray(of_sums), np.ascontiguousarray(0.5 * (upper - lower))


def _stirling_remainders(most: int) -> Floats:
    """Return the remainders of Stirling's formula for ln Γ(k) for k from 1 to ``most``, indexed by k; NaN at
    0.
    """
    x = range(1, most + 1)
    return np.array([math.nan, *(math.lgamma(k) - (k - 0.5) * math.log(k) + k - HALF_LOG_2PI for k in x)])


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
OF_SUMS, OF_DIFFERENCES = _running_integrals()
REMAINDERS = _stirling_remainders(9)

NEGLIGIBLE = 20.0
"""−ln of the mass that may be neglected, for all variables together."""
CORE_WIDTH = 7.0
"""Half-width of a density's curved core around its mode, in deviations."""
WIDEST = 5.0 / CORE_WIDTH
"""Width of a panel in cores."""
STEEPEST = 8.0
"""Width of a panel in e-foldings of a tail."""
BENT = 3.5
"""Width of a panel in log-odds near 0, where softplus bends; its singularities are at distance π."""
MANY = 1e7
"""Counts from which on the exponent of a density is computed relative to its mode."""
MANY_VARIABLES = 32
"""Number of variables from which on those with equal parameters are merged: so many arms have few counts."""
LEAST = 1e-12
"""Least probability that is returned: an arm that was drawn has some, and weights divide by it."""

# Rows of ``variables``, with a column for each variable, and of ``work``, with a column for each node.
SUCCESSES, FAILURES, MODE, LOW, HIGH, VARIANCE, PEAK, TOTAL, ABOVE = range(9)
CORE, TAIL_ABOVE, TAIL_BELOW, TIMES, FACTS = range(9, 14)
NODE, SOFTPLUS, PRODUCT, SUM, DIFFERENCE, DENSITY = range(6)
"""Rows of ``work``; those from DENSITY on are the densities of the variables."""


@kernel
def decay(x: float) -> float:
    """Return exp(x) for x ≤ 0, with an absolute error below 1e-14, by a polynomial in x/32 that is squared
    five times.
    """
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
def decay_of_density(x: float) -> float:
    """Return exp(x) for x ≤ 0, with an absolute error below 2e-10; it takes half the time of ``decay``."""
    r = (x if x > -44.0 else -44.0) / 32.0
    p = 1 / 6 + r * (1 / 24 + r * (1 / 120 + r / 720))
    p = 1.0 + r * (1.0 + r * (1 / 2 + r * p))
    p *= p
    p *= p
    p *= p
    p *= p
    return p * p


@kernel
def softplus(y: float) -> float:
    """Return ln(1 + exp(y)), the softplus: 2·artanh(u/(2 + u)) for u = exp(−|y|)."""
    u = decay(-abs(y))
    z = u / (2.0 + u)
    q = z * z
    p = 1 / 19 + q * (1 / 21 + q * (1 / 23 + q * (1 / 25 + q * (1 / 27 + q * (1 / 29 + q / 31)))))
    p = 1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * p)))))
    return (y if y > 0.0 else 0.0) + 2.0 * z * (1.0 + q * (1 / 3 + q * (1 / 5 + q * p)))


@kernel
def stirling_remainder(x: float) -> float:
    """Return the remainder of Stirling's formula, ln Γ(x) − ((x − 1/2)·ln x − x + ln(2π)/2)."""
    if x < 10.0:
        if x == int(x):
            return float(REMAINDERS[int(x)])
        return float(math.lgamma(x) - (x - 0.5) * np.log(x) + x - HALF_LOG_2PI)
    q = 1.0 / (x * x)
    return float((1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q / 1188)))) / x)


@kernel
def describe(variables: Floats, b: int, s: float, f: float, level: float) -> None:
    """Fill column b of ``variables`` with mode, limits and scales of the log-odds of a Beta(s, f) variable.

    The mass beyond each of the limits LOW and HIGH is at most exp(−``level``). The rows TOTAL and ABOVE are
    not filled in.

    By Chernoff's inequality, P(y < mode − d) ≤ exp(−h(d)), h(d) = s·d + n·ln(1 − p + p·exp(−d)), with n = s +
    f, p = s/n, and likewise above. As h'' falls by no more than exp(−d), h(d) ≥ v·(exp(−d) − 1 + d) ≥ v·d²/(2
    + d), where v = n·p·(1 − p); and h(d) ≥ s·d + n·ln(1 − p). If d is small against 1, the first terms of the
    inverse of h are below both bounds; t³/24 exceeds the remaining terms, as a search over s and f from 0.05
    to 1e7 has shown.
    """
    n = s + f
    p, q, inverse_s, inverse_f = s / n, f / n, 1.0 / s, 1.0 / f
    log_s, log_f = -np.log(p), -np.log(q)
    mode, variance = log_f - log_s, p * f
    deviation = np.sqrt(n * inverse_s * inverse_f)
    t = np.sqrt(2.0 * level) * deviation
    even, odd = t + t * t * t / 24.0, t * t * (1.0 - 2.0 * p) / 6.0
    variables[SUCCESSES, b], variables[FAILURES, b], variables[MODE, b] = s, f, mode
    variables[LOW, b] = mode - min(even + odd, (level + n * log_f) * inverse_s)
    variables[HIGH, b] = mode + min(even - odd, (level + n * log_s) * inverse_f)
    variables[VARIANCE, b], variables[PEAK, b] = variance, -s * log_s - f * log_f
    variables[CORE, b] = CORE_WIDTH * min(deviation, 1.5)
    variables[TAIL_ABOVE, b], variables[TAIL_BELOW, b] = STEEPEST * inverse_f, STEEPEST * inverse_s
    variables[TIMES, b] = 1.0


@kernel
def normalise(variables: Floats, b: int) -> None:
    """Set TOTAL of variable b to the factor that makes its density, which is computed as 1 at its mode,
    integrate to 1.

    Its mass ABOVE the panel becomes 0.
    """
    s, f = variables[SUCCESSES, b], variables[FAILURES, b]
    remainder = stirling_remainder(s + f) - stirling_remainder(s) - stirling_remainder(f)
    variables[TOTAL, b] = np.sqrt(variables[VARIANCE, b] / (2.0 * math.pi)) * np.exp(remainder)
    variables[ABOVE, b] = 0.0


@kernel
def find_lower_limit(variables: Floats, count: int, low: float, high: float, level: float) -> float:
    """Return the log-odds, from ``low`` to below ``high``, below which the product of all F is negligible.

    F is a variable's distribution function. Negligible is at most exp(−``level``), by the bound of
    :func:`describe` on each F. Five bisections of the interval find the point; it is ``low`` if they find
    none above it. Variable v of ``count`` has the columns v, v + ``count``, … of ``variables``. Several
    columns are a mixture of Betas, whose F is at most the largest F of its Betas.
    """
    for _ in range(5):
        y = 0.5 * (low + high)
        exponent = 0.0
        for variable in range(count):
            least = np.inf
            for b in range(variable, variables.shape[1], count):
                d = max(variables[MODE, b] - y, 0.0)
                least = min(least, variables[VARIANCE, b] * d * d / (2.0 + d))
            exponent += least * variables[TIMES, variable]
        if exponent > level:
            low = y
        else:
            high = y
    return low


@kernel
def widest_panel(contenders: float) -> float:
    """Return the largest width of a panel, in cores of a density, for a number of contending variables.

    It falls with their number: the product of many distribution functions is steeper than each. The exponent
    keeps the error of up to 80 equal variables below 5e-9, and the least width that of 10,000 below 1e-9.
    """
    return float(min(WIDEST, max(contenders**-0.3, 0.25)))


@kernel
def panel_width(y: float, variables: Floats, count: int, bottom: float, reach: float, widest: float) -> float:
    """Return the width of the next panel below y (log-odds), narrow enough that all densities in it are
    smooth.

    It is at most y − ``bottom``. ``variables`` has a column for each of ``count`` densities. Within ``reach``
    of 0 the bend of softplus limits the width. ``widest`` is the largest width in cores of a density.
    """
    width = y - bottom
    if y > -reach:
        width = min(width, max(y - reach, BENT))
    for b in range(count):
        if variables[HIGH, b] > bottom and y > variables[LOW, b]:
            core, d = variables[CORE, b], y - variables[MODE, b]
            smooth_width = widest * core
            # The tails fall like exp(−f·y) and exp(s·y).
            if d > core:
                smooth_width = max(smooth_width, min(d - core, variables[TAIL_ABOVE, b]))
            elif d < -core:
                smooth_width = max(smooth_width, variables[TAIL_BELOW, b])
            width = min(width, max(smooth_width, y - variables[HIGH, b]))
    return float(width)


@kernel
def lay_nodes(work: Floats, points: int, middle: float, half: float) -> None:
    """Fill the nodes of a panel into ``work``, from its ``middle`` and ``half``-width, with softplus at each
    node.

    PRODUCT is set to the nodes' weights; :func:`multiply_below` multiplies it by each variable's F.
    """
    for i in range(points):
        work[NODE, i] = middle + half * NODES[i]
        work[PRODUCT, i] = half * WEIGHTS[i]
        work[SOFTPLUS, i] = softplus(work[NODE, i])


@kernel
def exponent_of_many(y: float, s: float, f: float, mode: float) -> float:
    """Return s·y − (s + f)·softplus(y), minus its value at the mode, accurately for large s and f.

    Both terms are of the order of s + f, with rounding errors of that order; their differences from the mode,
    computed from the smaller of s and f, are of the order of its root.
    """
    fewer, d = (s, y - mode) if s < f else (f, mode - y)
    return float(fewer * d - (s + f) * np.log1p(fewer / (s + f) * np.expm1(d)))


@kernel
def fill_density(work: Floats, points: int, variables: Floats, b: int) -> None:
    """Fill row DENSITY + b of ``work`` with the density of variable b at the panel's nodes."""
    s, f = variables[SUCCESSES, b], variables[FAILURES, b]
    n, peak, total = s + f, variables[PEAK, b], variables[TOTAL, b]
    if n > MANY:
        for i in range(points):
            exponent = exponent_of_many(work[NODE, i], s, f, variables[MODE, b])
            work[DENSITY + b, i] = total * decay_of_density(exponent)
        return
    for i in range(points):
        exponent = s * work[NODE, i] - n * work[SOFTPLUS, i] - peak
        work[DENSITY + b, i] = total * decay_of_density(exponent)


@kernel
def first_half(work: Floats, row: int) -> tuple[float, ...]:
    """Return the first eight numbers of a row of ``work`` as a tuple, which compiled code holds in
    registers.
    """
    return (
        work[row, 0], work[row, 1], work[row, 2], work[row, 3],
        work[row, 4], work[row, 5], work[row, 6], work[row, 7],
    )  # fmt: skip


@kernel
def weigh_sums(i: int, sums: tuple[float, ...]) -> float:
    """Return the dot product of column ``i`` of OF_SUMS and the sums of a function at the node pairs.

    Written out, because a nested loop would not become vector instructions.
    """
    return float(
        OF_SUMS[0, i] * sums[0] + OF_SUMS[1, i] * sums[1]
        + OF_SUMS[2, i] * sums[2] + OF_SUMS[3, i] * sums[3]
        + OF_SUMS[4, i] * sums[4] + OF_SUMS[5, i] * sums[5]
        + OF_SUMS[6, i] * sums[6] + OF_SUMS[7, i] * sums[7]
    )  # fmt: skip


@kernel
def weigh_differences(i: int, differences: tuple[float, ...]) -> float:
    """Return the dot product of column ``i`` of OF_DIFFERENCES and a function's differences at node pairs."""
    return float(
        OF_DIFFERENCES[0, i] * differences[0] + OF_DIFFERENCES[1, i] * differences[1]
        + OF_DIFFERENCES[2, i] * differences[2] + OF_DIFFERENCES[3, i] * differences[3]
        + OF_DIFFERENCES[4, i] * differences[4] + OF_DIFFERENCES[5, i] * differences[5]
        + OF_DIFFERENCES[6, i] * differences[6] + OF_DIFFERENCES[7, i] * differences[7]
    )  # fmt: skip


@kernel
def multiply_below(work: Floats, points: int, row: int, half: float, above: float, times: int) -> float:
    """Multiply PRODUCT at each node, in place, by F to the power ``times``; F is 1 − the mass above the node.

    ``row`` of ``work`` holds the density of a variable, ``above`` its mass above the panel. Overwrites the
    rows SUM and DIFFERENCE. Return the mass above the panel's lower end.
    """
    pairs = points // 2
    for i in range(pairs):
        upper, lower = half * work[row, i], half * work[row, PAIRS + i]
        work[SUM, i], work[DIFFERENCE, i] = upper + lower, upper - lower
    sums, differences = first_half(work, SUM), first_half(work, DIFFERENCE)
    mass = weigh_sums(PAIRS, sums)
    below_top, below_bottom = 1.0 - above, 1.0 - above - mass
    for i in range(pairs):
        even, odd = weigh_sums(i, sums), weigh_differences(i, differences)
        work[SUM, i], work[SUM, PAIRS + i] = below_top - even - odd, below_bottom + even - odd
    while True:
        if times % 2 == 1:
            for i in range(points):
                work[PRODUCT, i] *= work[SUM, i]
        times //= 2
        if times == 0:
            return above + mass
        for i in range(points):
            work[SUM, i] *= work[SUM, i]


@kernel
def probability_largest(successes: Floats, failures: Floats, chosen: int) -> float:
    """Return the probability that Beta variable ``chosen`` is the largest; at least 1e-12.

    The error is below 1e-8 where all parameters are at least 0.5, and below 1e-7 down to 0.05.

    Parameters
    ----------
    successes, failures : array of float64, shape (variables,)
        Parameters of the Beta distributions; above 0.
    chosen : int
        Index of the variable.

    Examples
    --------
    >>> import numpy as np
    >>> p = probability_largest(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1)
    >>> round(p, 9) == round(2 / 3, 9)
    True
    """
    merged = borrow_array(3, len(successes))
    count, place = merge_equal(successes, failures, chosen, merged)
    variables = borrow_array(FACTS, count)
    work = borrow_array(DENSITY + count, POINTS)
    probability = integrate_largest(merged, place, len(successes), variables, work)
    release_array(work)
    release_array(variables)
    release_array(merged)
    return probability


@kernel
def merge_equal(successes: Floats, failures: Floats, chosen: int, merged: Floats) -> tuple[int, int]:
    """Write distinct pairs of parameters into rows 0 and 1 of ``merged``, and their frequencies into row 2.

    Return the number of pairs and the column of variable ``chosen``. Below MANY_VARIABLES nothing is merged.
    """
    count, place, slots = 0, chosen, 2 * len(successes)
    columns = borrow_array(1, slots)  # a hash table of columns of ``merged``, −1 where it is empty
    columns[0, :] = -1.0
    for b in range(len(successes)):
        s, f = successes[b], failures[b]
        column = count
        if len(successes) >= MANY_VARIABLES:
            key = s * 0.6180339887498949 + f * 0.7548776662466927
            slot = int((key - np.floor(key)) * slots)
            while columns[0, slot] >= 0.0:
                column = int(columns[0, slot])
                if merged[0, column] == s and merged[1, column] == f:
                    break
                slot, column = (slot + 1) % slots, count
            columns[0, slot] = column
        if column == count:
            merged[0, count], merged[1, count], merged[2, count] = s, f, 0.0
            count += 1
        merged[2, column] += 1.0
        if b == chosen:
            place = column
    release_array(columns)
    return count, place


@kernel
def integrate_largest(merged: Floats, chosen: int, total: int, variables: Floats, work: Floats) -> float:
    """Return the probability that one Beta variable of column ``chosen`` is the largest of ``total``.

    ``merged`` is as :func:`merge_equal` fills it; the two work arrays are overwritten.
    """
    count = variables.shape[1]
    level = NEGLIGIBLE + np.log(float(total))
    bottom, fewest, most, same = -np.inf, np.inf, 0.0, True
    for b in range(count):
        s, f = merged[0, b], merged[1, b]
        describe(variables, b, s, f, level)
        variables[TIMES, b] = merged[2, b]
        bottom = max(bottom, variables[LOW, b])
        fewest, most = min(fewest, s, f), max(most, s, f)
        same = same and s == merged[0, 0] and f == merged[1, 0]
    if same:
        return 1.0 / total
    ceiling = variables[HIGH, chosen]
    # Another variable is above the chosen one, up to a negligible probability.
    if ceiling <= bottom:
        return LEAST
    bottom = find_lower_limit(variables, count, bottom, ceiling, level)
    # Where a count is small, the bend of softplus is sharper than the deviation says.
    reach = 0.0
    if fewest < 1.5:
        reach = max(np.log(most), -np.log(fewest)) + np.log(2.0 * total) + 8.0
    y, contenders = bottom, 0.0
    for b in range(count):
        if variables[HIGH, b] > bottom:
            normalise(variables, b)
            y = max(y, variables[HIGH, b])
            contenders += variables[TIMES, b]
    widest = widest_panel(contenders)
    # The number of points is hidden from LLVM: it would unroll the loops instead of vectorising them.
    points = POINTS if bottom < y else 0
    integral = 0.0
    while y > bottom:
        width = panel_width(y, variables, count, bottom, reach, widest)
        half = 0.5 * width
        lay_nodes(work, points, y - half, half)
        y = y - width if width < y - bottom else bottom
        for b in range(count):
            if variables[HIGH, b] > y:
                fill_density(work, points, variables, b)
        for b in range(count):
            times = int(variables[TIMES, b]) - (b == chosen)
            if times > 0 and variables[HIGH, b] > y:
                above = variables[ABOVE, b]
                variables[ABOVE, b] = multiply_below(work, points, DENSITY + b, half, above, times)
        if ceiling > y:
            for i in range(POINTS):
                integral += work[PRODUCT, i] * work[DENSITY + chosen, i]
    return float(min(max(integral, LEAST), 1.0))
