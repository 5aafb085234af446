"""The sums behind every estimator, and intervals for the value of a policy, computed from them alone.

A *unit* is an element of the average: a row, or a slate. It has a weight w (π/p, the target's over
the logged probability of the arm shown) and a value y (w·r for importance weighting). Parts of
a log can be summed on different machines and merged.

Four kinds of intervals, from little work and an approximation to a guarantee:

- ``normal``: the central limit theorem with the delta method for ratios, corrected for skewness if rewards
  have no bound; right in the limit;
- ``bootstrap``: percentiles over resampled groups of units (Efron 1979; Field and Welsh 2007 for
  clusters); right in the limit, follows the skewness that heavy weights bring;
- ``score``: valid at any time, asymptotically; some 1.6 times as wide as ``normal``, where ``anytime``
  is up to nine times as wide;
- ``anytime``: a confidence sequence, valid for every number of units, at all of them at once, and
  without a bound on the weights.

The first two shrink to a point if all rewards are equal, for example without any click:
:func:`widen_interval` then extends them to an exact interval.
"""

from __future__ import annotations

import math
from functools import lru_cache
from operator import add
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.part import float_range
from tacit.core.reward_range import RewardRange
from tacit.core.seeds import stream
from tacit.uplift.boundary import ANY_TIME, boundary
from tacit.uplift.propensity_lift import Scores

GROUPS = 1024
"""Groups of units that the bootstrap draws; up to so many units, each is a group of its own."""
LARGEST = 5
"""How many of the largest weights are kept."""
MAXIMA = 1024
"""Maxima of weights among which a lower bound of the largest ones is searched for."""


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
        The largest weights, in descending order; padded with 0.
    groups : array of float64, shape (3, groups)
        Number of units, sum of weights and sum of values in each group. A cluster lies in one
        group as a whole; without clusters, units are assigned to groups in turn.
    r, rr : float
        Sum of the units' logged rewards, and of their squares.
    least, most : float
        The smallest and the largest of these rewards among units of a weight above 0.
    possible : float
        The largest weight that a unit could have had, whatever was shown; 0 if unknown.
    cubes : array of float64, shape (4,)
        Sums of y³, y²w, yw² and w³, of values y and weights w; 0 unless the range of rewards has an open end.
    magnitude : float
        Sum of the absolute values; likewise.
    largest_values : array of float64, shape (LARGEST,)
        The largest absolute values, in descending order; likewise.

    Examples
    --------
    >>> import numpy as np
    >>> early = sum_units(np.array([0.5, 1.5]), np.array([0.0, 1.5]))
    >>> late = sum_units(np.array([1.0]), np.array([1.0]))
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
    possible: float = 0.0
    cubes: Floats = np.zeros(4)
    magnitude: float = 0.0
    largest_values: Floats = np.zeros(LARGEST)

    def merge(self, other: Sums) -> Sums:
        """Return the sums over the units of both; ``largest`` keeps the largest weights of the two."""
        return Sums._make(map(add, self, other))._replace(
            largest_values=_find_largest(np.concatenate([self.largest_values, other.largest_values])),
            largest=_find_largest(np.concatenate([self.largest, other.largest])),
            least=min(self.least, other.least),
            most=max(self.most, other.most),
            possible=max(self.possible, other.possible),
        )

    def rotate_groups(self, units: int) -> Sums:
        """Return the sums with bootstrap groups rotated, as if ``units`` units had come before.

        So the sums of a later part of a log can be merged with an earlier part's sums.
        """
        return self._replace(groups=np.roll(self.groups, units % self.groups.shape[1], axis=1))

    def to_unit(self, reward_range: RewardRange, length: float = 1.0) -> Sums:
        """Return the sums of the same units with rewards mapped from their range to [0, 1].

        Values must be w·r. ``length`` is the number of positions of a unit. Groups and cubes stay unchanged:
        score and anytime intervals, which need [0, 1], do not use them.
        """
        low, width = reward_range.low or 0.0, reward_range.width
        least, most = ((end - length * low) / width for end in (self.least, self.most))
        return self._replace(
            y=(self.y - low * self.w) / width,
            yy=(self.yy - 2 * low * self.wy + low**2 * self.ww) / width**2,
            wy=(self.wy - low * self.ww) / width,
            r=(self.r - low * length * self.n) / width,
            rr=(self.rr - 2 * low * length * self.r + (low * length) ** 2 * self.n) / width**2,
            least=least,
            most=most,
        )

    @property
    def effective_sample_size(self) -> float:
        """(Σw)²/Σw²: the number of equally weighted units with the same information (Kong 1992), or 0."""
        return self.w**2 / self.ww if self.ww > 0 else 0.0

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of the sum of absolute values that the largest value and the five largest bring."""
        magnitude = self.magnitude or 1.0
        return float(self.largest_values[0]) / magnitude, float(self.largest_values.sum()) / magnitude

    @property
    def mean_weight(self) -> float:
        """The mean weight Σw/n; NaN without units.

        Its expectation is 1 if the log could have shown every arm that the target shows.
        """
        return self.w / self.n if self.n else math.nan


def empty_sums(groups: int = GROUPS) -> Sums:
    """Return the sums over no units, all 0, with ``groups`` bootstrap groups."""
    return Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(LARGEST), np.zeros((3, groups)))


def sum_units(
    weights: Floats,
    values: Floats,
    groups: int = GROUPS,
    *,
    rewards: Floats | None = None,
    cluster: Ints | None = None,
    first: int = 0,
    tails: bool = False,
) -> Sums:
    """Return the sums, largest weights and bootstrap groups of units with weights and values.

    Parameters
    ----------
    weights : array of float64, shape (units,)
        At least 0.
    values : array of float64, shape (units,)
    rewards : array of float64, shape (units,), optional
        The units' rewards in the log.
    groups : int
        Number of groups for the bootstrap.
    cluster : array of int64, shape (units,), optional
        The group of each unit's cluster, in [0, groups).
    first : int, default 0
        Number of earlier units; without clusters, units are assigned to groups in turn.
    tails : bool, default False
        Whether to sum cubes and magnitudes, too.
    """
    if not len(weights):
        return empty_sums(groups)
    if cluster is None:
        by_group = [_sum_in_turn(x, len(weights), groups, first) for x in (None, weights, values)]
    else:
        count = np.bincount(cluster, minlength=groups).astype(np.float64)
        by_group = [count, *(np.bincount(cluster, x, groups).astype(float) for x in (weights, values))]
    # Without rewards, and without tails, the other fields of Sums keep their defaults.
    reward_sums = () if rewards is None else _sum_rewards(weights, rewards)
    sums = Sums(
        len(weights),
        float(weights.sum()),
        _dot(weights, weights),
        float(values.sum()),
        _dot(values, values),
        _dot(weights, values),
        _find_largest(weights),
        np.stack(by_group),
        *reward_sums,
    )
    if not tails:
        return sums
    y2, w2, sizes = values * values, weights * weights, np.abs(values)
    cubes = [_dot(y2, values), _dot(y2, weights), _dot(values, w2), _dot(w2, weights)]
    magnitude, largest = float(sizes.sum()), _find_largest(sizes)
    return sums._replace(cubes=np.array(cubes), magnitude=magnitude, largest_values=largest)


def _sum_rewards(weights: Floats, rewards: Floats) -> tuple[float, float, float, float]:
    """Return the rewards' sum and sum of squares, and the least and largest reward of positive weight."""
    # compress() takes a sixth of the time of where=... or of an index.
    counted = rewards if weights.min() > 0 else rewards.compress(weights > 0)
    least, most = counted.min(initial=math.inf), counted.max(initial=-math.inf)
    return float(rewards.sum()), _dot(rewards, rewards), float(least), float(most)


def _sum_in_turn(values: Floats | None, units: int, groups: int, first: int) -> Floats:
    """Return the sums of values by group, with units assigned to groups 0, 1, … in turn.

    ``values`` None counts units instead; ``first`` is the number of earlier units.
    """
    full = units - units % groups
    if values is None:
        sums = np.full(groups, float(full // groups))
        sums[: units - full] += 1.0
    else:
        sums = values[:full].reshape(-1, groups).sum(axis=0)
        sums[: units - full] += values[full:]
    return np.roll(sums, first % groups) if first % groups else sums


def _dot(x: Floats, y: Floats) -> float:
    """Return the sum of products of two arrays, Σ x·y."""
    # x @ y would use threads of a linear algebra library, which is slower here.
    return float(np.einsum("i,i", x, y))


def _find_largest(weights: Floats) -> Floats:
    """Return the LARGEST (5) largest weights, in descending order, padded with 0."""
    if len(weights) <= LARGEST:
        largest = np.zeros(LARGEST)
        largest[: len(weights)] = weights
    else:
        blocks = len(weights) // MAXIMA
        if blocks > 1:  # the fifth largest of these maxima is at most the fifth largest weight
            maxima = weights[: blocks * MAXIMA].reshape(blocks, MAXIMA).max(axis=0)
            weights = weights.compress(weights >= np.partition(maxima, -LARGEST)[-LARGEST])
        largest = np.partition(weights, len(weights) - LARGEST)[-LARGEST:]
    return np.sort(largest)[::-1]


# ---- Intervals, all computed from sums

CONFIDENCE = 0.95
check_confidence = float_range(0.5, 1 - 1e-12)
"""Check that a confidence is in range."""
REPLICATES = 1000
MIN_TAIL_REPLICATES = 2
"""Fewest replicates on either side of a bootstrap interval."""
BETS = 0.5 * 2.0 ** -np.arange(24)
"""Bets λ that the confidence sequence mixes, fixed before any data: they serve standard
deviations over √n from about 1 down to 10⁻⁷."""
BETS_OF_ANY_UNIT = 2.0 ** np.arange(-40, 41)
"""Bets per unit of value, for values without an upper bound and in any unit."""

Bounds = tuple[float, float]


def compute_estimate(sums: Sums, ratio: bool) -> float:
    """Return the mean value Σy/n, or the self-normalised Σy/Σw if ``ratio``; NaN if the denominator is 0."""
    below = sums.w if ratio else float(sums.n)
    return sums.y / below if below > 0 else math.nan


def standard_error(sums: Sums, ratio: bool, *, clustered: bool = False) -> float:
    """Return the standard error of :func:`compute_estimate`; NaN for fewer than two units or clusters.

    Parameters
    ----------
    sums : Sums
    ratio : bool
        Whether the estimate is Σy/Σw.
    clustered : bool, default False
        Whether units of a cluster depend on one another; the variance is then estimated between
        groups of clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> standard_error(sum_units(np.ones(4), np.array([0.0, 0.0, 1.0, 1.0])), False)
    0.28867513459481287
    """
    value = compute_estimate(sums, ratio)
    if clustered:
        count, weights, values = sums.groups[:, sums.groups[0] > 0]
        below = weights if ratio else count
        squares = float(np.sum((values - value * below) ** 2))
        units = len(count)
    else:
        # Σ(y − θx)² with x = w or x = 1.
        xx, xy, x = (sums.ww, sums.wy, sums.w) if ratio else (sums.n, sums.y, sums.n)
        squares = max(0.0, sums.yy - 2 * value * xy + value**2 * xx)
        units, below = sums.n, x
    total = float(np.sum(below))
    if units < 2 or total <= 0:
        return math.nan
    return math.sqrt(squares * units / (units - 1)) / total


def normal_quantile(confidence: float) -> float:
    """Return the normal quantile of a two-sided confidence: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(mean: float, count: float, confidence: float = CONFIDENCE) -> Bounds:
    """Return Wilson's score interval for a mean of values in [0, 1].

    For values between 0 and 1 it is conservative, as their variance is less than that of a
    Bernoulli variable of the same mean.

    Parameters
    ----------
    mean : float
        Mean of the values.
    count : float
        Number of values; may be a fraction.
    confidence : float, default 0.95
        Probability, for many values, that the interval covers the expectation; in (0, 1).

    Returns
    -------
    (float, float)
        Within [0, 1]; (0, 1) if there are no values.

    References
    ----------
    Wilson (1927), "Probable inference, the law of succession, and statistical inference".

    Examples
    --------
    >>> low, high = wilson(0.5, 100)
    >>> round(low, 4), round(high, 4)
    (0.4038, 0.5962)
    >>> wilson(float("nan"), 0)
    (0.0, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    z = normal_quantile(confidence)
    share = z * z / count
    centre = (mean + share / 2) / (1 + share)
    radius = math.sqrt(share * mean * (1 - mean) + share * share / 4) / (1 + share)
    return max(0.0, centre - radius), min(1.0, centre + radius)


def normal(
    sums: Sums,
    ratio: bool = False,
    confidence: float = CONFIDENCE,
    *,
    clustered: bool = False,
    skewed: bool = False,
) -> Bounds:
    """Return the interval of the estimate by the central limit theorem; NaN for fewer than two units.

    For a ratio (self-normalised), the variance follows from the delta method: Σ(y − θw)²/(Σw)². With
    ``clustered`` it is estimated between groups of clusters. With ``skewed`` the interval is corrected for
    skewness, for which the sums must have cubes.

    References
    ----------
    Owen (2013), "Monte Carlo theory, methods and examples", section 9.2 (self-normalised
    importance sampling); as for :func:`correct_skewness`.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> low, high = normal(sum_units(np.ones(4), np.array([0.0, 0.0, 1.0, 1.0])))
    >>> round(low, 4), round(high, 4)
    (-0.0658, 1.0658)
    """
    quantile = normal_quantile(check_confidence("confidence", confidence))
    value = compute_estimate(sums, ratio)
    error = standard_error(sums, ratio, clustered=clustered)
    if skewed:
        return correct_skewness(value, error, *_compute_central_moments(sums, ratio, clustered), confidence)
    return value - quantile * error, value + quantile * error


def _compute_central_moments(sums: Sums, ratio: bool, clustered: bool) -> tuple[float, float, float]:
    """Return the mean square and mean cube of an estimate's residuals, and the number of residuals.

    With θ the estimate, a residual is y − θ, or y − θw for a ratio, of each unit or, if ``clustered``, each
    group of clusters.
    """
    value = compute_estimate(sums, ratio)
    if clustered:
        count, weights, values = sums.groups[:, sums.groups[0] > 0]
        gaps = values - value * (weights if ratio else count)
        return float(np.mean(gaps**2)), float(np.mean(gaps**3)), float(len(gaps))
    n, (yyy, yyw, yww, www) = sums.n, sums.cubes
    # Σ(y − θx)² and Σ(y − θx)³ with x = w or x = 1.
    yyx, yxx, xxx, xy, xx = (yyw, yww, www, sums.wy, sums.ww) if ratio else (sums.yy, sums.y, n, sums.y, n)
    squares = sums.yy - 2 * value * xy + value**2 * xx
    cubes = yyy - 3 * value * yyx + 3 * value**2 * yxx - value**3 * xxx
    return float(squares) / n, float(cubes) / n, float(n)


def correct_skewness(
    value: float, error: float, square: float, cube: float, n: float, confidence: float = CONFIDENCE
) -> Bounds:
    """Return the interval of a mean by the central limit theorem, corrected for the skewness of its values.

    With θ the true mean and t = (value − θ)/error, Johnson's statistic t + γ(1 + 2t²)/(6√n) is nearly normal
    where t is not, as with a few large values. The interval contains each θ at which the statistic is within
    the normal quantile.

    Parameters
    ----------
    value, error : float
        The mean, and its standard error.
    square, cube : float
        Second and third central moment of the values; their skewness is γ = cube/square^1.5.
    n : float
        Number of values.
    confidence : float, default 0.95

    References
    ----------
    Johnson (1978), "Modified t tests and confidence intervals for asymmetrical populations".

    Examples
    --------
    >>> correct_skewness(10.0, 1.0, 100.0, 0.0, 100) == (10 - 1.959963984540054, 10 + 1.959963984540054)
    True
    >>> low, high = correct_skewness(10.0, 1.0, 100.0, 2000.0, 100)
    >>> round(low, 3), round(high, 3)
    (8.272, 12.367)
    """
    quantile = normal_quantile(check_confidence("confidence", confidence))
    if not square > 0:
        return value - quantile * error, value + quantile * error
    bend = cube / square**1.5 / (6 * math.sqrt(n))
    ends = _solve_bent(abs(bend), quantile)
    low, high = ends if bend >= 0 else (-ends[1], -ends[0])
    return value - error * high, value - error * low


def _solve_bent(bend: float, quantile: float) -> Bounds:
    """Return the interval of t around 0 in which |t + bend·(1 + 2t²)| ≤ ``quantile``, for bend ≥ 0."""
    if bend < 1e-12:
        return -quantile, quantile
    # Roots of 2·bend·t² + t + bend = ±quantile.
    high = (-1 + math.sqrt(max(1 - 8 * bend * (bend - quantile), 0.0))) / (4 * bend)
    root = 1 - 8 * bend * (bend + quantile)
    # Where the statistic is never below −quantile, it is above quantile on the other side.
    low = (-1 + math.sqrt(root)) / (4 * bend) if root > 0 else -1 / (2 * bend) - high
    return low, high


def widen_interval(
    bounds: Bounds,
    sums: Sums,
    confidence: float = CONFIDENCE,
    *,
    length: float = 1.0,
    clustered: bool = False,
) -> Bounds:
    """Return the interval unchanged, or, if all rewards are equal, widened to an exact one.

    If every reward of positive weight is the same c, for example without any click, the sample has no
    variation, and asymptotic intervals shrink to a point. As none of n units had another reward, the
    probability of another one is, by Clopper and Pearson, at most q = 1 − (α/2)^(1/n), some 3.7/n for 95 %;
    and each such unit moves the value by at most its weight. With W the largest weight, the value lies
    between c − cWq and c + (1 − c)Wq.

    Parameters
    ----------
    bounds : (float, float)
        The interval to widen; NaN if unknown.
    sums : Sums
        With the units' rewards.
    confidence : float, default 0.95
    length : float, default 1
        As for :func:`anytime`.
    clustered : bool, default False
        Whether clusters, rather than units, are independent; groups are then counted as clusters.

    References
    ----------
    Clopper, Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of
    the binomial"; Hanley, Lippman-Hand (1983), "If nothing goes wrong, is everything all right?"
    (the rule of three).

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> never = sum_units(np.ones(230), np.zeros(230), rewards=np.zeros(230))
    >>> low, high = widen_interval(normal(never), never)
    >>> low, round(high, 4)
    (0.0, 0.0159)
    """
    if not 0 <= sums.least == sums.most:
        return bounds
    weights = sums.groups[1, sums.groups[0] > 0]
    units = len(weights) if clustered else sums.n
    # A cluster moves the mean over all n units by weight/n, which is heaviest/units.
    heaviest = weights.max() * units / sums.n if clustered else sums.largest[0]
    tail = (1 - check_confidence("confidence", confidence)) / 2
    chance = min(1.0, float(heaviest) / length * (1 - tail ** (1 / units)))
    low, high = sums.most * (1 - chance), sums.most + (length - sums.most) * chance
    # Comparisons with NaN are false.
    return min(low, bounds[0]), max(high, bounds[1])


def bootstrap(
    sums: Sums,
    ratio: bool = False,
    confidence: float = CONFIDENCE,
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> Bounds:
    """Return percentile bounds of the estimate over resampled groups, widened to contain the estimate itself.

    Groups are drawn with replacement; with as many groups as units this is Efron's bootstrap. With more
    units each group is a sum of many: the first three cumulants of the resampled total keep their
    expectation, for any number of units, in memory that depends on the number of groups only. NaN for fewer
    than two groups, and if there are too few replicates for the confidence: above 0.996 by default.

    References
    ----------
    Efron (1979), "Bootstrap methods: another look at the jackknife"; Field, Welsh (2007),
    "Bootstrapping clustered data", on resampling clusters.
    """
    groups = sums.groups[:, sums.groups[0] > 0]
    size = groups.shape[1]
    tail = (1 - check_confidence("confidence", confidence)) / 2
    if size < 2 or tail * replicates < MIN_TAIL_REPLICATES:
        return math.nan, math.nan
    times = _draw_counts(size, replicates, seed)
    # The denominator is the sum of row 0, the numbers of units, or of row 1, their weights.
    values, below = (np.einsum("rg,g->r", times, row) for row in (groups[2], groups[int(ratio)]))
    with np.errstate(invalid="ignore", divide="ignore"):
        estimates = values / below
    low, high = np.quantile(estimates[~np.isnan(estimates)], [tail, 1 - tail])
    value = compute_estimate(sums, ratio)  # the last digits of a sum depend on its order
    return min(float(low), value), max(float(high), value)


@lru_cache(maxsize=2)
def _draw_counts(size: int, replicates: int, seed: int) -> Floats:
    """Return how often each bootstrap replicate draws each group, shape (replicates, groups).

    Random by ``seed``; the result is cached, as all estimators of a log use the same.
    """
    draws = stream("bootstrap", seed)
    sampled = draws.integers(size, size=(replicates, size)) + size * np.arange(replicates)[:, None]
    counts = np.bincount(sampled.ravel(), minlength=replicates * size)
    return counts.reshape(replicates, size).astype(np.float64)


def score(
    sums: Sums, confidence: float = CONFIDENCE, *, length: float = 1.0, segments: int = 1
) -> Bounds | None:
    """Return an asymptotic interval of the target's mean reward that is valid at any time, or None.

    A unit with the reward r and the weight w scores w·(r − m), m the log's own mean reward; the mean score
    estimates by how much the target exceeds m. The interval extends c standard errors to either side, with
    c = 3.25 for 95 %, the boundary for monitoring over a thousandfold range of information. The variance is
    at least that of scores whose rewards are independent of their weights: the empirical variance alone is
    too small if weights are heavy.

    Parameters
    ----------
    sums : Sums
        Of weights w, values w·r and rewards r, r in [0, 1]; for slates, sums over their positions.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    length : float, default 1
        As for :func:`anytime`.
    segments : int, default 1
        Number of such intervals that hold simultaneously.

    Returns
    -------
    (float, float) or None
        None for another confidence, and with too little data: (Σr)²/Σr² · n/Σw² below 10, or
        all rewards of positive weight are equal.

    References
    ----------
    See benchmarks/FORMULAS.md.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> weights, clicks = np.ones(1000), np.arange(1000) % 2.0
    >>> low, high = score(sum_units(weights, weights * clicks, rewards=clicks))
    >>> round(low, 3), round(high, 3)
    (0.449, 0.551)
    """
    if confidence not in ANY_TIME or sums.rr <= 0 or sums.least >= sums.most:
        return None
    mean, squares = sums.r / sums.n, sums.ww / length**2
    # d and dd are the sums of the scores w·(r − m) and of their squares.
    d = sums.y - mean * sums.w / length
    dd = sums.yy - 2 * mean * sums.wy / length + mean**2 * squares
    scores = Scores(sums.n, sums.r, sums.rr, d, dd, squares)
    if not scores.has_enough_data:
        return None
    low, high = scores.interval(boundary(confidence, segments))
    return mean + float(low), mean + float(high)


def anytime(
    sums: Sums, confidence: float = CONFIDENCE, *, length: float = 1.0, weight_bound: float | None = None
) -> Bounds:
    """Return lower and upper bound of the target's mean reward that hold at all times simultaneously.

    The bounds are a confidence sequence. For a unit with y = w·r and r in [0, 1], y ≥ 0 and E[y] = θ. For
    every λ in (0, 1) ∏(1 + λ(yᵢ − θ)) is a martingale of mean 1, and at least exp(λS − ψ(λ)V) with S = Σ(y −
    θ), V = Σ(y − θ)² and ψ(λ) = −log(1 − λ) − λ. A mixture over fixed λ exceeds 2/α at any time with
    probability at most α/2, so every θ at which it does is below the interval. The same for w·(1 − r), whose
    mean is 1 − θ, gives the upper bound. Neither needs a bound on the weights. Weights clipped from above
    only lower both means, so the interval stays valid for the value itself.

    Units need not be independent: it is enough that each unit's mean given all earlier ones is θ.

    Parameters
    ----------
    sums : Sums
        Of weights w and values w·r with r in [0, 1]; for slates, sums over their positions.
    confidence : float, default 0.95
    length : float, default 1
        Number of positions of a unit; its w and y are sums over them, and θ is within [0, length].
    weight_bound : float, optional
        An upper bound on all weights, known beforehand. If clicks are rare it gives a tighter
        upper bound, from the range [0, weight_bound] of w·r; weights must then not be clipped.

    References
    ----------
    Karampatziakis, Mineiro, Ramdas (2021), "Off-policy confidence sequences" (betting on w·r and
    w·(1 − r)); Fan, Grama, Liu (2015), "Exponential inequalities for martingales with
    applications", lemma 4.1 (log(1 + λx) ≥ λx − ψ(λ)x² for x ≥ −1); Waudby-Smith, Wu, Ramdas,
    Karampatziakis, Mineiro (2024), "Anytime-valid off-policy inference for contextual bandits"
    (without a bound on the weights).

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> weights, clicks = np.ones(1000), np.arange(1000) % 2.0
    >>> low, high = anytime(sum_units(weights, weights * clicks))
    >>> round(low, 3), round(high, 3)
    (0.436, 0.564)
    """
    threshold = math.log(2 / (1 - check_confidence("confidence", confidence)))
    y, yy = sums.y / length, sums.yy / length**2
    low = _bound_below(sums.n, y, yy, threshold)
    if weight_bound is not None:
        return length * low, anytime_in_range(sums, 0.0, length * weight_bound, confidence)[1]
    # Sums of w·(1 − r) and of its squares.
    missed = sums.w / length - y
    missed2 = (sums.ww - 2 * sums.wy + sums.yy) / length**2
    return length * low, length * (1.0 - _bound_below(sums.n, missed, missed2, threshold))


def anytime_below(sums: Sums, confidence: float = CONFIDENCE) -> Bounds:
    """Return a lower bound of the target's mean reward, valid at all times, and infinity as the upper bound.

    As :func:`anytime`, for rewards ≥ 0 without an upper bound: their mean then has no upper bound, either.

    Parameters
    ----------
    sums : Sums
        Of weights w and values w·r with r ≥ 0; for slates, sums over their positions.
    confidence : float, default 0.95

    References
    ----------
    As for :func:`anytime`.

    Examples
    --------
    >>> weights, cents = np.ones(1000), 500.0 * (np.arange(1000) % 2)
    >>> bound = anytime_below(sum_units(weights, weights * cents))
    >>> round(bound[0], 1), bound[1]
    (217.1, inf)
    """
    threshold = math.log(2 / (1 - check_confidence("confidence", confidence)))
    return _bound_below(sums.n, sums.y, sums.yy, threshold, bounded=False), math.inf


def anytime_in_range(sums: Sums, low: float, high: float, confidence: float = CONFIDENCE) -> Bounds:
    """Return an interval for the mean of values in [low, high], valid at all times simultaneously.

    The values may be negative, as with the doubly robust estimator, but their range must be known
    beforehand.

    Parameters
    ----------
    sums : Sums
        Only the number of values, their sum and the sum of their squares are used.
    low, high : float
        The range of each value.
    confidence : float, default 0.95

    References
    ----------
    As for :func:`anytime`.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate.intervals import sum_units
    >>> values = np.arange(1000) % 2.0
    >>> bounds = anytime_in_range(sum_units(values, values), 0.0, 1.0)
    >>> round(bounds[0], 3), round(bounds[1], 3)
    (0.436, 0.564)
    """
    threshold = math.log(2 / (1 - check_confidence("confidence", confidence)))
    # Σ(y − low)² and Σ(high − y)².
    n, span = sums.n, high - low
    square = sums.yy - 2 * low * sums.y + n * low**2
    mirror = sums.yy - 2 * high * sums.y + n * high**2
    below = _bound_below(n, (sums.y - n * low) / span, square / span**2, threshold)
    above = _bound_below(n, (n * high - sums.y) / span, mirror / span**2, threshold)
    return low + span * below, high - span * above


def evidence_against_weights(sums: Sums) -> float:
    """Return the log of the evidence that the mean weight is not 1, and propensities therefore are wrong.

    If the mean is 1, the result ever exceeds log 1/α with probability at most α. An observed mean
    below 1 counts only if the largest possible weight, ``sums.possible``, is known: heavy weights may be
    yet to come.

    References
    ----------
    As for :func:`anytime`.

    Examples
    --------
    >>> fair, wrong = np.array([0.0, 2.0] * 500), np.array([0.0, 1.6] * 500)
    >>> sums = [sum_units(w, w)._replace(possible=2.0) for w in (fair, wrong)]
    >>> [evidence_against_weights(x) > math.log(100) for x in sums]
    [False, True]
    """
    n, most = sums.n, sums.possible
    above = _log_evidence(n, sums.w, sums.ww, np.ones(1))[0]
    if not most:
        return float(above)
    # Sums of 1 − w/most, the relative distance of each weight to the largest possible one, and its squares.
    below = n - sums.w / most, n - 2 * sums.w / most + sums.ww / most**2
    # The mean of the evidence on both sides is evidence, too.
    return float(np.logaddexp(above, _log_evidence(n, *below, np.array([1 - 1 / most]))[0]) - math.log(2))


def find_suspect_arm(tally: Floats) -> tuple[int, float]:
    """Return the index of the arm with the strongest evidence of wrong propensities, and the evidence's log.

    With right propensities an arm's Σ1/p is in expectation the number of rows that offer it, or less if it
    could never be shown. The log evidence, corrected for the number of arms, exceeds log 1/α with
    probability at most α.

    Parameters
    ----------
    tally : array of float64, shape (4, arms)
        How often each arm was shown and on offer, and Σ1/p and Σ1/p² over the rows that show it.

    References
    ----------
    As for :func:`anytime`.
    """
    _, offered, w, ww = tally
    # Of each offer, 1/p if the arm is shown and 0 if not, whose mean is at most 1.
    evidence = [_log_evidence(int(n), y, yy, np.ones(1))[0] for n, y, yy in zip(offered, w, ww, strict=True)]
    arm = int(np.argmax(evidence))
    return arm, float(evidence[arm]) - math.log(len(evidence))


def _bound_below(n: int, y: float, yy: float, threshold: float, *, bounded: bool = True) -> float:
    """Return the lower confidence bound of the mean of ``n`` values ≥ 0; within [0, 1] if ``bounded``.

    ``y`` and ``yy`` are the sums of the values and of their squares. Means below the bound have log
    evidence against them of at least ``threshold``.
    """
    low, high = 0.0, y / n if n else 0.0
    high, compute = (min(1.0, high), _log_evidence) if bounded else (high, _log_evidence_any_unit)
    if compute(n, y, yy, np.zeros(1))[0] < threshold:
        return 0.0
    # The evidence against m falls as m grows towards the mean: refine the grid around the threshold, eight
    # times to a 32nd, so to 2⁻⁴⁰ of the range.
    for _ in range(8):
        grid = np.linspace(low, high, 33)
        refuted = int(np.flatnonzero(compute(n, y, yy, grid) >= threshold)[-1])
        low, high = float(grid[refuted]), float(grid[min(refuted + 1, 32)])
    return low


def _log_evidence(n: int, y: float, yy: float, means: Floats) -> Floats:
    """Return, for each candidate mean, the log of the evidence that the true mean is larger.

    It is the log of the mixture of exp(λS − ψ(λ)V) over the fixed bets λ; ``n``, ``y``, ``yy`` are the
    number of values, their sum and their sum of squares.
    """
    # S and V for each candidate mean; log(1 − λ) + λ is −ψ(λ).
    first, second = y - n * means, yy - 2 * means * y + n * means**2
    exponents = BETS[:, None] * first + (np.log1p(-BETS) + BETS)[:, None] * second
    top = exponents.max(axis=0)
    return np.asarray(top + np.log(np.mean(np.exp(exponents - top), axis=0)))


def _log_evidence_any_unit(n: int, y: float, yy: float, means: Floats) -> Floats:
    """Return the result of :func:`_log_evidence` for values ≥ 0 without an upper bound.

    A bet b on the mean m is λ = b·m on values in units of m; it is used if b·m ≤ ½. The wealth is a
    supermartingale for every mean of at most m, as log(1 + b(y − m)) ≥ b(y − m) − ψ(bm)/m²·(y − m)².
    """
    first, second = y - n * means, yy - 2 * means * y + n * means**2
    bets = BETS_OF_ANY_UNIT[:, None]
    stakes = bets * means
    is_used = stakes <= 0.5
    stakes = np.where(is_used, stakes, 0.0)
    # ψ(λ)/λ², whose limit at 0 is ½ + λ/3.
    is_small = stakes < 1e-4
    safe = np.where(is_small, 1.0, stakes)
    curve = np.where(
        is_small, 0.5 + stakes / 3, -(np.log1p(-np.where(is_small, 0.0, stakes)) + stakes) / safe**2
    )
    exponents = np.where(is_used, bets * first - curve * bets**2 * second, -np.inf)
    top = exponents.max(axis=0)
    return np.asarray(top + np.log(np.mean(np.exp(exponents - top), axis=0)))
