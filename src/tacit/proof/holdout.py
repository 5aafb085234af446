"""The lift of a holdout: a ratio that may be looked at at any time, and the difference with it.

Everything is computed from :class:`HoldoutSums`, for one experiment or many side by side. The
functions follow docs/proof.md, whose names they use: n and R are the decisions and rewards of
control (0) and policy (1), q(ρ) is the share of rewards that a ratio ρ gives the policy, and ψ is
the dispersion of the rewards, pooled over both groups: small holdouts break on their own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats
from tacit.proof.boundary import boundary, checked_share
from tacit.proof.result import Interval, Lift, claim_of
from tacit.proof.sums import BUCKETS, CONTROL, POLICY, HoldoutSums

ENOUGH = 5.0
"""The least information, in expected rewards of a balanced holdout, for an interval."""

WIDEST = 40.0
"""Logarithms of ratios further out than this are taken for zero and infinity."""

STEPS = 64


class _Pooled(NamedTuple):
    """The sums of an experiment, and what both groups have in common."""

    n0: Floats
    n1: Floats
    r0: Floats
    r1: Floats
    dispersion: Floats
    largest: float

    def excess(self, log_ratio: Floats, c: float) -> Floats:
        """Return D(ρ) − c²·φ(ρ): above 0, the ratio is refuted."""
        rewards = self.r0 + self.r1
        odds = log_ratio + np.log(self.n1 / self.n0)
        log_q, log_p = -np.log1p(np.exp(-odds)), -np.log1p(np.exp(odds))
        deviance = 2 * (_part(self.r1, rewards, log_q) + _part(self.r0, rewards, log_p))
        ratio, q = np.exp(log_ratio), np.exp(log_q)
        mean0 = rewards / (ratio * self.n1 + self.n0)
        mean1 = ratio * mean0
        spread = (1 - mean1 / self.largest) * (1 - q) + (1 - mean0 / self.largest) * q
        return np.asarray(deviance - c * c * self.dispersion * spread)


def _part(rewards: Floats, of: Floats, log_share: Floats) -> Floats:
    """Return r·ln(r/(R·share)), 0 for r = 0."""
    some = np.maximum(rewards, np.finfo(np.float64).tiny)
    return np.asarray(rewards * (np.log(some / of) - log_share))


def dispersion(sums: HoldoutSums, largest: float = 1.0) -> Floats:
    """Return ψ: how much more rewards scatter than clicks of the same mean; 1 for clicks.

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
    (n0, n1), (r0, r1), (rr0, rr1) = sums.counts, sums.totals, sums.squares
    n, r = n0 + n1, r0 + r1
    mean = r / n
    scatter = rr0 + rr1 - r * mean
    if sums.buckets is not None:
        _, decisions, rewards = sums.buckets
        between = np.sum((rewards - mean * decisions) ** 2, axis=0)
        scatter = np.maximum(scatter, BUCKETS / (BUCKETS - 1) * between)
    if math.isinf(largest):
        some0, some1 = np.where(r0 > 0, r0, 1.0), np.where(r1 > 0, r1, 1.0)
        own0 = (rr0 - r0 * r0 / np.maximum(n0, 1)) / some0 * r1
        own1 = (rr1 - r1 * r1 / np.maximum(n1, 1)) / some1 * r0
        scatter = np.maximum(scatter, own0 + own1)
    # Rounding must not make what is zero negative.
    return np.asarray(np.maximum(scatter, 0.0) / (r * (1 - mean / largest)))


def enough(sums: HoldoutSums, share: float, largest: float = 1.0) -> Booleans:
    """Whether there is traffic enough for an interval; until then it is too early.

    Parameters
    ----------
    sums : HoldoutSums
    share : float
        Of the control, as it was configured; in (0, 1).
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 100, [0, 0, 1, 0] * 50)
    >>> bool(enough(sums, share=0.5)), bool(enough(sums, share=0.05))
    (True, False)
    """
    n, r, rr = (np.sum(each, axis=0) for each in sums[:3])
    with np.errstate(invalid="ignore", divide="ignore"):
        information = np.where(rr > 0, r * r / np.where(rr > 0, rr, 1.0), 0.0)
    if not math.isinf(largest):
        information = np.minimum(information, n - r / largest)
    # Rewards that are all the same say nothing of their scatter.
    known = (sums.counts[CONTROL] > 0) & (sums.counts[POLICY] > 0) & (n * rr > r * r * (1 + 1e-9))
    return np.asarray(known & (information * share * (1 - share) >= ENOUGH))


def refuted(sums: HoldoutSums, c: float, *, ratio: float = 1.0, largest: float = 1.0) -> Booleans:
    """Whether the interval leaves out a ratio.

    Parameters
    ----------
    sums : HoldoutSums
        With :func:`enough` traffic.
    c : float
        From :func:`boundary`.
    ratio : float, default 1
    largest : float, default 1
        The largest reward possible; infinite for revenue.
    """
    return np.asarray(_pooled(sums, largest).excess(np.log(np.float64(ratio)), c) > 0)


def ratio_ends(sums: HoldoutSums, c: float, *, largest: float = 1.0) -> tuple[Floats, Floats]:
    """Return the ends of the interval of ratios.

    Parameters
    ----------
    sums : HoldoutSums
        With :func:`enough` traffic.
    c : float
        From :func:`boundary`.
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    References
    ----------
    See docs/proof.md: {ρ: D(ρ) ≤ c²·φ(ρ)}, by bisection on ln ρ.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> low, high = ratio_ends(sums, c=3.25)
    >>> round(float(low), 3), round(float(high), 3)
    (1.637, 2.473)
    """
    pooled = _pooled(sums, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.log(pooled.r1 / pooled.n1) - np.log(pooled.r0 / pooled.n0)
    centre = np.clip(centre, -WIDEST, WIDEST)
    ends = []
    for far in (-WIDEST, WIDEST):
        inside, outside = centre, np.full_like(centre, far)
        for _ in range(STEPS):
            between = (inside + outside) / 2
            out = pooled.excess(between, c) > 0
            inside, outside = np.where(out, inside, between), np.where(out, between, outside)
        open_end = 0.0 if far < 0 else np.inf
        ends.append(np.where(np.abs(inside) > WIDEST - 1e-9, open_end, np.exp(inside)))
    return ends[0], ends[1]


def difference_at(sums: HoldoutSums, ratio: Floats) -> Floats:
    """Return the difference of mean rewards that a ratio means for the rewards there are.

    Both have the same sign always, so that no two verdicts can contradict each other.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> difference_at(sums, np.array([0.0, 1.0, 2.0, np.inf])).round(3)
    array([-0.75,  0.  ,  0.25,  0.75])
    """
    n0, n1 = sums.counts
    rewards = sums.totals[CONTROL] + sums.totals[POLICY]
    finite = np.where(np.isinf(ratio), 1.0, ratio)
    at = (finite - 1) * rewards / (finite * n1 + n0)
    return np.asarray(np.where(np.isinf(ratio), rewards / n1, at))


def _pooled(sums: HoldoutSums, largest: float) -> _Pooled:
    (n0, n1), (r0, r1) = sums.counts, sums.totals
    return _Pooled(n0, n1, r0, r1, dispersion(sums, largest), largest)


def holdout_lift(
    sums: HoldoutSums,
    share: float,
    *,
    confidence: float = 0.95,
    comparisons: int = 1,
    largest: float = 1.0,
    planned: bool = False,
) -> Lift:
    """Return what the policy earned more than the control, in intervals that hold at any time.

    The lift is the average over all decisions so far. The policy may learn and drift meanwhile;
    the coin that makes a decision the control's must not depend on it.

    Parameters
    ----------
    sums : HoldoutSums
        Of closed decisions, in the order in which they were made.
    share : float
        Of the control, as it was configured; in (0, 1).
    confidence : float, default 0.95
        Probability that no look at the interval ever misleads: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        How many intervals are to hold together.
    largest : float, default 1
        The largest reward possible; infinite for revenue, which may be any amount.
    planned : bool, default False
        As for :func:`boundary`.

    Returns
    -------
    Lift
        Its claim is ``early`` until there is traffic enough.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    References
    ----------
    See docs/proof.md, which says how often it errs.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1] * 1000, [0, 0, 1, 0, 0, 1, 0, 1] * 250)
    >>> lift = holdout_lift(sums, share=0.5)
    >>> lift.claim, lift.ratio.estimate, round(lift.difference.low, 3)
    ('better', 2.0, 0.181)
    """
    checked_share(share)
    c = boundary(confidence, comparisons, planned=planned)
    if not enough(sums, share, largest):
        return Lift("early")
    low, high = ratio_ends(sums, c, largest=largest)
    with np.errstate(divide="ignore"):
        mean0, mean1 = sums.totals / sums.counts
        ratio = Interval(float(mean1 / mean0), float(low), float(high))
    ends = difference_at(sums, low), difference_at(sums, high)
    difference = Interval(float(mean1 - mean0), *map(float, ends))
    return Lift(claim_of(difference.low, difference.high), ratio, difference)
