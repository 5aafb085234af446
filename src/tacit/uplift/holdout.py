"""The lift of a holdout: ratio and difference of mean rewards, with intervals valid at any time.

Everything is computed from :class:`HoldoutSums`, for one experiment or many in parallel. The
functions follow benchmarks/FORMULAS.md and its notation: n and R are the decisions and rewards of
control (0) and policy (1), q(ρ) is the policy's share of rewards under a ratio ρ, and ψ is
the dispersion of the rewards, pooled over both groups, as a small control is too unreliable alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.uplift.boundary import (
    BUCKETS,
    CONTROL,
    POLICY,
    HoldoutSums,
    Interval,
    Lift,
    boundary,
    check_share,
    claim_from_interval,
)
from tacit.uplift.traffic import independent_counts, share_evidence

MIN_MISMATCH_EVIDENCE = math.log(1e6)
"""Log evidence at which the control's share is declared wrong."""

MIN_INFORMATION = 5.0
"""The least information, in expected rewards of a balanced holdout, for an interval."""

MAX_LOG_RATIO = 40.0
"""Log ratios beyond this are treated as zero and infinity."""

MIN_GROUP = 100
"""Least number of decisions of each group for the difference of amounts of either sign."""

STEPS = 64
"""Bisections for an end of an interval: they leave 2⁻⁶⁴ of the range of ln ρ."""


Periods = HoldoutSums | Sequence[HoldoutSums]
"""Sums of one holdout, or of consecutive periods with different shares, units or controls."""


class _PooledPeriods(NamedTuple):
    """Periods pooled to one experiment: rates of each group, weighted by a period's decisions.

    The first axis of arrays is the period. ``n0`` and ``n1`` are the decisions, ``r0`` and ``r1`` the rewards
    of control and policy, ``weights`` the periods' shares of all decisions, ``dispersion`` their ψ;
    ``correlation_factor`` is the variance over all periods relative to periods with independent units.
    """

    n0: Floats
    n1: Floats
    r0: Floats
    r1: Floats
    weights: Floats
    dispersion: Floats
    correlation_factor: Floats
    largest: float

    @classmethod
    def pool(cls, periods: Periods, largest: float) -> _PooledPeriods:
        """Return the rates and weights of periods, by which they count as one experiment.

        Nothing is summed over the periods here. A period without decisions has weight 0. ``largest`` is the
        largest reward possible.
        """
        period_list = _as_list(periods)
        n, r = (np.stack(list(x)) for x in zip(*(sums[:2] for sums in period_list), strict=True))
        # Both of shape (periods, groups, …); 1 in place of 0 decisions, whose weight is 0, makes rates 0.
        decisions = n.sum(axis=1)
        weights = decisions / np.maximum(decisions.sum(axis=0), 1)
        has_decisions = (decisions > 0)[:, None]
        n0, n1 = np.moveaxis(np.where(has_decisions, n, 1.0), 1, 0)
        spread = np.stack([dispersion(sums, largest) for sums in period_list])
        spread = np.where(has_decisions[:, 0], spread, 1.0)
        factor = _compute_variance_factor(period_list, n0 / (n0 + n1), largest)
        return cls(n0, n1, r[:, 0], r[:, 1], weights, spread, factor, largest)

    @property
    def rates(self) -> tuple[Floats, Floats]:
        """Mean rewards of the control and of the policy, weighted by the periods' decisions."""
        return self._average(self.r0 / self.n0), self._average(self.r1 / self.n1)

    def control(self, ratio: Floats) -> Floats:
        """Return the control's mean reward by period that fits best if the policy's is ``ratio`` times it."""
        return np.asarray((self.r0 + self.r1) / (ratio * self.n1 + self.n0))

    def _average(self, values: Floats) -> Floats:
        """Return the mean of values over the periods, weighted by decisions."""
        return np.asarray((self.weights * values).sum(axis=0))

    def difference(self, ratio: Floats) -> Floats:
        """Return the difference of mean rewards, policy minus control, that a ratio of them implies.

        An infinite ratio means that all rewards are the policy's.
        """
        finite = np.where(np.isinf(ratio), 1.0, ratio)
        finite_difference = (finite - 1) * self._average(self.control(finite))
        limit = self._average((self.r0 + self.r1) / self.n1)
        return np.asarray(np.where(np.isinf(ratio), limit, finite_difference))

    def excess(self, log_ratio: Floats, c: float) -> Floats:
        """Return D(ρ) − c²·φ(ρ) for a log ratio ln ρ; it is positive if the ratio is outside of the interval.

        D is the deviance of the observed rates, φ the factor of their variance, c the half-width of the
        interval.
        """
        ratio = np.exp(log_ratio)
        mean0 = self.control(ratio)
        mean1 = ratio * mean0
        square = self.weights**2 * self.dispersion
        vary0, vary1 = square * mean0 / self.n0, square * mean1 / self.n1
        # Decisions and rewards of a single experiment with the same information.
        n0 = self._average(mean0) / vary0.sum(axis=0)
        n1 = self._average(mean1) / vary1.sum(axis=0)
        rate0, rate1 = self.rates
        r0, r1 = n0 * rate0, n1 * rate1
        # Logs of the share of the rewards that the ratio gives the policy, q(ρ), and the control.
        odds = log_ratio + np.log(n1 / n0)
        log_q, log_p = -np.log1p(np.exp(-odds)), -np.log1p(np.exp(odds))
        deviance = 2 * (_compute_deviance(r1, r0 + r1, log_q) + _compute_deviance(r0, r0 + r1, log_p))
        # φ: the mean of 1 − mean/largest over groups and periods, weighted by variance (the control's by ρ²).
        vary0 = ratio * ratio * vary0
        variances = vary1 * (1 - mean1 / self.largest) + vary0 * (1 - mean0 / self.largest)
        spread = variances.sum(axis=0) / (vary0 + vary1).sum(axis=0)
        return np.asarray(deviance - c * c * self.correlation_factor * spread)


def _as_list(periods: Periods) -> Sequence[HoldoutSums]:
    """Return periods as a sequence, also if there is only one."""
    return [periods] if isinstance(periods, HoldoutSums) else periods


def _compute_variance_factor(periods: Sequence[HoldoutSums], shares: Floats, largest: float) -> Floats:
    """Return the variance of the lift relative to periods with independent units; at least 1.

    ``shares`` are the observed shares of the control by period. It is 1 with fewer than two clustered
    periods. Units that stay in their group do so across periods: a unit in the control at a share of 5 % is
    also in it at 10 %.
    """
    clustered = [i for i, sums in enumerate(periods) if sums.buckets is not None]
    if len(clustered) < 2:
        return np.ones(shares.shape[1:])
    # The standard deviation of the assignment to the control.
    deviation = np.sqrt(shares * (1 - shares))
    # A unit's part in the difference is its excess times (in control − h)/(h(1 − h)), with h the share.
    variances = np.sum([_sum_squares(sums, largest) for sums in periods] / deviation**2, axis=0)
    excess = {i: _compute_bucket_excess(periods[i]) for i in clustered}
    covariances = np.zeros_like(variances)
    for i, j in combinations(clustered, 2):
        product = np.sum(excess[i] * excess[j], axis=0) * BUCKETS / (BUCKETS - 1)
        assignment_covariance = np.minimum(shares[i], shares[j]) - shares[i] * shares[j]
        covariances += 2 * product * assignment_covariance / (deviation[i] * deviation[j]) ** 2
    return np.asarray(1 + np.maximum(covariances, 0.0) / np.where(variances > 0, variances, 1.0))


def _compute_bucket_excess(sums: HoldoutSums) -> Floats:
    """Return, per bucket of units, the rewards minus the expected ones: decisions times the mean reward."""
    assert sums.buckets is not None
    _, decisions, rewards = sums.buckets
    mean = sums.totals.sum(axis=0) / np.maximum(sums.counts.sum(axis=0), 1)
    return np.asarray(rewards - mean * decisions)


def _compute_deviance(rewards: Floats, total: Floats, log_share: Floats) -> Floats:
    """Return r·ln(r/(R·share)) from rewards r, their total R and the log of the share; 0 for r = 0."""
    positive = np.maximum(rewards, np.finfo(np.float64).tiny)
    return np.asarray(rewards * (np.log(positive / total) - log_share))


def dispersion(sums: HoldoutSums, largest: float = 1.0) -> Floats:
    """Return ψ: the variance of rewards, pooled over both groups, relative to clicks of the same mean.

    It is 1 for clicks of independent units, and larger if units are correlated.

    Parameters
    ----------
    sums : HoldoutSums
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1, 0, 1], [0.0, 1.0, 0.0, 0.0])
    >>> float(dispersion(sums))
    1.0
    """
    n, r = sums.counts.sum(axis=0), sums.totals.sum(axis=0)
    return np.asarray(_sum_squares(sums, largest) / (r * (1 - r / n / largest)))


def _sum_squares(sums: HoldoutSums, largest: float) -> Floats:
    """Return the sum of squared deviations of rewards from their mean, for both groups together.

    Where these are larger, it is the sum of squares between buckets of units, and, without a largest reward,
    a sum of squares within the groups, weighted by their rewards.
    """
    (n0, n1), (r0, r1), (rr0, rr1) = sums.counts, sums.totals, sums.squares
    scatter = rr0 + rr1 - (r0 + r1) * ((r0 + r1) / np.maximum(n0 + n1, 1))
    if sums.buckets is not None:
        between = np.sum(_compute_bucket_excess(sums) ** 2, axis=0)
        scatter = np.maximum(scatter, BUCKETS / (BUCKETS - 1) * between)
    if math.isinf(largest):
        # Without rewards the squares are 0, too, whatever they are divided by.
        some0, some1 = np.where(r0 > 0, r0, 1.0), np.where(r1 > 0, r1, 1.0)
        within0 = (rr0 - r0 * r0 / np.maximum(n0, 1)) / some0 * r1
        within1 = (rr1 - r1 * r1 / np.maximum(n1, 1)) / some1 * r0
        scatter = np.maximum(scatter, within0 + within1)
    # Rounding must not make a zero negative.
    return np.asarray(np.maximum(scatter, 0.0))


def has_enough_data(sums: HoldoutSums, share: float, largest: float = 1.0) -> Booleans:
    """True if a period has enough traffic and rewards for an interval.

    Parameters
    ----------
    sums : HoldoutSums
    share : float
        Configured share of the control; in (0, 1).
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 100, [0, 0, 1, 0] * 50)
    >>> bool(has_enough_data(sums, share=0.5)), bool(has_enough_data(sums, share=0.05))
    (True, False)
    """
    n, r, rr = (np.sum(array, axis=0) for array in sums[:3])
    with np.errstate(invalid="ignore", divide="ignore"):
        information = np.where(rr > 0, r * r / np.where(rr > 0, rr, 1.0), 0.0)
    if not math.isinf(largest):
        information = np.minimum(information, n - r / largest)
    # Equal rewards do not show their variance.
    is_defined = (sums.counts[CONTROL] > 0) & (sums.counts[POLICY] > 0) & (n * rr > r * r * (1 + 1e-9))
    return np.asarray(is_defined & (information * share * (1 - share) >= MIN_INFORMATION))


def is_refuted(sums: Periods, c: float, *, ratio: float = 1.0, largest: float = 1.0) -> Booleans:
    """True if the interval at half-width ``c`` excludes a ratio of mean rewards.

    Parameters
    ----------
    sums : HoldoutSums, or sequence of HoldoutSums
        Each period :func:`has_enough_data`.
    c : float
        From :func:`boundary`.
    ratio : float, default 1
    largest : float, default 1
        The largest reward possible; infinite for revenue.
    """
    return np.asarray(_PooledPeriods.pool(sums, largest).excess(np.log(np.float64(ratio)), c) > 0)


def ratio_ends(sums: Periods, c: float, *, largest: float = 1.0) -> tuple[Floats, Floats]:
    """Return both ends of the interval of the ratio of mean rewards, policy over control: low and high.

    They are 0 and infinity where the interval has no end.

    Parameters
    ----------
    sums : HoldoutSums, or sequence of HoldoutSums
        Each period :func:`has_enough_data`.
    c : float
        From :func:`boundary`.
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    References
    ----------
    See benchmarks/FORMULAS.md: {ρ: D(ρ) ≤ c²·φ(ρ)}, by bisection on ln ρ.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> low, high = ratio_ends(sums, c=3.25)
    >>> round(float(low), 3), round(float(high), 3)
    (1.637, 2.473)
    """
    pooled = _PooledPeriods.pool(sums, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate0, rate1 = pooled.rates
        centre = np.log(rate1) - np.log(rate0)
    centre = np.clip(centre, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ends = []
    for end in (-MAX_LOG_RATIO, MAX_LOG_RATIO):
        inside, outside = centre, np.full_like(centre, end)
        for _ in range(STEPS):
            between = (inside + outside) / 2
            is_outside = pooled.excess(between, c) > 0
            inside, outside = np.where(is_outside, inside, between), np.where(is_outside, between, outside)
        open_end = 0.0 if end < 0 else np.inf
        ends.append(np.where(np.abs(inside) > MAX_LOG_RATIO - 1e-9, open_end, np.exp(inside)))
    return ends[0], ends[1]


def difference_from_ratio(sums: Periods, ratio: Floats) -> Floats:
    """Return the difference of mean rewards, policy minus control, that a ratio of them implies.

    It is computed for the rewards so far, and always has the sign of the log ratio, so that the difference
    and the ratio support the same claim.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> ratios = map(np.array, (0.0, 1.0, 2.0, np.inf))
    >>> [round(float(difference_from_ratio(sums, ratio)), 3) for ratio in ratios]
    [-0.75, 0.0, 0.25, 0.75]
    """
    # A difference does not depend on the largest reward.
    return _PooledPeriods.pool(sums, largest=math.inf).difference(ratio)


def holdout_lift(
    sums: Periods,
    share: float | Sequence[float],
    *,
    confidence: float = 0.95,
    comparisons: int = 1,
    largest: float = 1.0,
    planned: bool = False,
) -> Lift:
    """Return the lift of the policy over the control as claim, ratio and difference, valid at any time.

    The lift is the average over all decisions so far. The policy may learn and drift meanwhile; the random
    assignment to the control must not depend on it. If the control's share or unit or the control itself has
    changed, give the sums of each period: mean rewards are then weighted by the decisions of the periods,
    omitting periods with too little traffic for their own interval.

    Parameters
    ----------
    sums : HoldoutSums, or sequence of HoldoutSums
        Of closed decisions, in the order in which they were made; one for each period.
    share : float, or sequence of float
        Configured share of the control, in (0, 1); one for each period.
    confidence : float, default 0.95
        Probability that the interval is right at all times: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        Number of intervals that hold simultaneously.
    largest : float, default 1
        The largest reward possible; infinite for revenue, which may be any amount.
    planned : bool, default False
        As for :func:`boundary`.

    Returns
    -------
    Lift
        Its claim is ``early`` until there is enough traffic.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    Warns
    -----
    AssumptionWarning
        If the control's share of the decisions is far from the configured one.

    References
    ----------
    See benchmarks/FORMULAS.md, and benchmarks/PROOF.md for error rates.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> lift = holdout_lift(sums, share=0.5)
    >>> lift.claim, lift.ratio.estimate, round(lift.difference.low, 3)
    ('better', 2.0, 0.181)
    """
    periods = _as_list(sums)
    shares = [share] if isinstance(share, int | float) else share
    for period in periods if math.isfinite(largest) else ():
        if (earned := period.totals.sum() / max(1.0, period.counts.sum())) > largest * (1 + 1e-9):
            remedy = f"the control and the policy earned {earned:.3g} a decision; give the largest reward"
            raise InvalidValue("largest", largest, remedy)
    # With several periods, the service reports mismatches itself.
    for holdout in [sums] if isinstance(sums, HoldoutSums) else ():
        if share_evidence(independent_counts(holdout), shares[0]) > MIN_MISMATCH_EVIDENCE:
            control_share = holdout.counts[CONTROL] / holdout.counts.sum()
            doubt = f"share: Do not trust this: the control has {control_share:.3g} "
            doubt += f"of the decisions, not {shares[0]:g}; give the share that was configured, and "
            warnings.warn(f"{doubt}groups that are 0 for the control", AssumptionWarning, stacklevel=2)
    c = boundary(confidence, comparisons, planned=planned)
    with_shares = zip(periods, map(check_share, shares), strict=True)
    usable = [sums for sums, h in with_shares if has_enough_data(sums, h, largest)]
    if not usable:
        return Lift("early")
    low, high = ratio_ends(usable, c, largest=largest)
    with np.errstate(divide="ignore"):
        mean0, mean1 = _PooledPeriods.pool(usable, largest).rates
        ratio = Interval(float(mean1 / mean0), float(low), float(high))
    ends = difference_from_ratio(usable, low), difference_from_ratio(usable, high)
    difference = Interval(float(mean1 - mean0), *map(float, ends))
    return Lift(claim_from_interval(difference.low, difference.high), ratio, difference)


def difference_lift(
    sums: Periods, share: float | Sequence[float], *, confidence: float = 0.95, comparisons: int = 1
) -> Lift:
    """Return the lift only as a difference of means, for amounts without a known lower or upper bound.

    The interval is valid for many decisions, whose means are about normally distributed. No interval is
    valid at any time for amounts without a lower bound. If a lower bound is known, subtract it from the
    amounts and use :func:`holdout_lift`.

    Parameters
    ----------
    sums, share, confidence, comparisons
        As for :func:`holdout_lift`; amounts may be negative.

    Returns
    -------
    Lift
        Its claim is ``early`` until both groups have 100 decisions, and there is no ratio.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [-5, 3, 1, -2, 0, 8, -4, 1] * 250)
    >>> lift = difference_lift(sums, share=0.5)
    >>> lift.claim, lift.ratio, lift.difference.estimate, round(lift.difference.low, 2)
    ('better', None, 4.5, 4.04)
    """
    periods = _as_list(sums)
    shares = [share] if isinstance(share, int | float) else share
    c = boundary(confidence, comparisons)
    for control_share in shares:
        check_share(control_share)
    usable = [part for part in periods if part.counts.min() >= MIN_GROUP and _difference_variance(part) > 0]
    if not usable:
        return Lift("early")
    counts = np.array([part.counts for part in usable])
    weights = counts.sum(axis=1) / counts.sum()
    means = np.array([part.totals / part.counts for part in usable])
    variance = (weights**2 * [_difference_variance(part) for part in usable]).sum()
    variance *= _compute_variance_factor(usable, counts[:, CONTROL] / counts.sum(axis=1), largest=1.0)
    estimate = float((weights * (means[:, POLICY] - means[:, CONTROL])).sum())
    radius = c * math.sqrt(variance)
    difference = Interval(estimate, estimate - radius, estimate + radius)
    return Lift(claim_from_interval(difference.low, difference.high), ratio=None, difference=difference)


def _difference_variance(sums: HoldoutSums) -> float:
    """Return the variance of the difference of mean amounts, times the design effect of units (at least 1).

    It is at least that of two groups whose amounts vary alike: a small control without any of the few large
    amounts would seem to vary too little.
    """
    n, r, rr = sums[:3]
    scatter = np.maximum(rr - r * r / n, 0.0)
    independent_squares = (rr.sum() - r.sum() ** 2 / n.sum()) or 1.0
    # Any finite ``largest`` gives the squares about the common mean, or between buckets of units.
    design_effect = max(float(_sum_squares(sums, largest=1.0)) / float(independent_squares), 1.0)
    alike = scatter.sum() / n.sum() * (1 / n).sum()
    return max(float((scatter / n / n).sum()), float(alike)) * design_effect
