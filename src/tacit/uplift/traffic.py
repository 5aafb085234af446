"""Checks of an experiment's traffic: shares of the groups, and propensities against frequencies.

Both compute e-values: evidence that exceeds 100 with a probability of at most 1 %, at any time, if the
traffic is right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.uplift.boundary import BUCKETS, LEAST_PROPENSITY, HoldoutSums, check_share

ALARM = math.log(100.0)
"""Logarithm of the evidence at which there is an alarm."""

PRIOR_WEIGHT = 1e4
"""κ: the concentration of the Dirichlet prior over other shares, in decisions."""

RATES = 2.0 ** (-np.arange(12) / 2)
"""λ: sizes of the bets against propensities."""


def share_evidence(counts: Sequence[float], share: float) -> float:
    """Return the log of the evidence for a sample ratio mismatch: that the control has a wrong share.

    Some of the control's or policy's decisions, activations or feedback are then lost, or
    counted twice. Above ``ALARM``, do not trust the lift.

    Parameters
    ----------
    counts : sequence of float
        Decisions of the control, and of the policy.
    share : float
        Configured share of the control, in (0, 1).

    References
    ----------
    A Dirichlet mixture over other shares, as in Lindon, Malek (2022), "Anytime-valid inference for
    multinomial count data"; constants from benchmarks/FORMULAS.md.

    Examples
    --------
    >>> share_evidence([1000, 9000], 0.1) < 0, share_evidence([700, 9300], 0.1) > ALARM
    (True, True)
    """
    share = check_share(share)
    evidence = math.lgamma(PRIOR_WEIGHT) - math.lgamma(PRIOR_WEIGHT + float(sum(counts)))
    for count, theta in zip(counts, (share, 1 - share), strict=True):
        weight = PRIOR_WEIGHT * theta
        evidence += math.lgamma(weight + count) - math.lgamma(weight) - count * math.log(theta)
    return evidence


def independent_counts(sums: HoldoutSums) -> tuple[float, float]:
    """Return the numbers of independent decisions of control and policy with the same information on shares.

    If units stay in their group, their decisions are less informative about shares: both counts are divided
    by the design effect, the variance of the control's share over buckets of units relative to independent
    decisions, if it is above 1. Without buckets they are unchanged.

    Parameters
    ----------
    sums : HoldoutSums
    """
    control, policy = map(float, sums.counts)
    if sums.buckets is None or control + policy == 0:
        return control, policy
    control_decisions, decisions, _ = sums.buckets
    share = control / (control + policy)
    between = BUCKETS / (BUCKETS - 1) * float(np.sum((control_decisions - share * decisions) ** 2))
    effect = max(1.0, between / max((control + policy) * share * (1 - share), 1.0))
    return control / effect, policy / effect


def _log_mean_exp(exponents: Floats) -> float:
    """Return the logarithm of the mean of the exponentials of all numbers in an array."""
    top = float(exponents.max())
    return top + math.log(float(np.mean(np.exp(exponents - top))))


class PropensitySums(NamedTuple):
    """Sums for a test of propensities against the frequency of one arm per decision.

    Attributes
    ----------
    sums : array of float64, shape (2,)
        D, the observed minus the expected number of times the arm was shown, and V, its variance.

    Examples
    --------
    >>> honest, wrong = PropensitySums.empty(), PropensitySums.empty()
    >>> honest.add([True, False] * 1000, [0.5] * 2000)
    >>> wrong.add([True, False] * 1000, [0.8] * 2000)
    >>> honest.evidence() < ALARM < wrong.evidence()
    True
    """

    sums: Floats

    @classmethod
    def empty(cls) -> PropensitySums:
        """Return sums over no decisions."""
        return cls(np.zeros(2))

    def add(self, shown: npt.ArrayLike, propensities: npt.ArrayLike) -> None:
        """Add decisions in place: shown minus propensity of the tested arm, and the variance of that.

        Parameters
        ----------
        shown : array of bool, shape (n,)
            Whether the tested arm was shown. This arm must be selected before the draw, for example as the
            arm of the highest propensity.
        propensities : array of float, shape (n,)
            The tested arm's logged probability.
        """
        q = np.asarray(propensities, np.float64)
        # Unlike np.sum, np.add.at gives the same bits for any batch sizes.
        np.add.at(self.sums, np.zeros(len(q), np.int64), np.asarray(shown, np.float64) - q)
        np.add.at(self.sums, np.ones(len(q), np.int64), q * (1 - q))

    def evidence(self) -> float:
        """Return the log of the evidence that the propensities are wrong; above ``ALARM`` they are.

        References
        ----------
        A mixture of exp(λD − (e^|λ| − 1 − |λ|)V) over λ = ±2^(−j/2), j = 0 … 11: Freedman (1975),
        "On tail probabilities for martingales".
        """
        d, v = self.sums
        bets = np.concatenate([RATES, -RATES])
        sizes = np.abs(bets)
        return _log_mean_exp(bets * d - (np.expm1(sizes) - sizes) * v)

    def merge(self, other: PropensitySums) -> PropensitySums:
        """Return new sums over the decisions of both."""
        return PropensitySums(self.sums + other.sums)


BETS = RATES[1::2]
"""λ < 1: sizes of the bets that an arm is shown more often than its propensities say."""


class FrequencySums(NamedTuple):
    """Sums for a test of propensities against the frequencies of all arms.

    Unlike :class:`PropensitySums`, this needs only the propensity of the arm shown, as in a
    log. An arm that is shown too seldom is detected because others are shown too often.

    Attributes
    ----------
    logs : array of float64, shape (arms, 6)
        For each arm and each λ, the sum of ln(1 + λ(1/q − 1)) − ln(1 − λ) over the decisions that
        showed it, with the propensity q.
    offered : array of float64, shape (arms,)
        Number of decisions that could show the arm.
    whole : array of float64, shape (6,)
        For each λ, the sum of ln(1 + λ(1/(nq) − 1)) over all decisions, with n arms on offer: detects
        that likely arms, whichever they are, are shown less often than their propensities.

    Examples
    --------
    >>> honest, wrong = FrequencySums.empty(2), FrequencySums.empty(2)
    >>> shown, both = np.arange(2000) % 2, [np.arange(2)] * 2000
    >>> honest.add(shown, np.full(2000, 0.5), both)
    >>> wrong.add(shown, np.where(shown == 0, 0.8, 0.2), both)
    >>> honest.evidence() < ALARM < wrong.evidence()
    True
    """

    logs: Floats
    offered: Floats
    whole: Floats

    @classmethod
    def empty(cls, arms: int) -> FrequencySums:
        """Return sums over no decisions, for this number of arms."""
        return cls(np.zeros((arms, len(BETS))), np.zeros(arms), np.zeros(len(BETS)))

    def add(self, shown: npt.ArrayLike, propensities: npt.ArrayLike, offers: Sequence[Ints]) -> None:
        """Add decisions to the three sums, in place; propensities below 2⁻⁵³ count as 2⁻⁵³.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        propensities : array of float, shape (n,)
            Probability of each arm shown; in (0, 1].
        offers : sequence of array of int
            The arms on offer in each decision.
        """
        arms = np.asarray(shown, np.int64)
        q = np.maximum(np.asarray(propensities, np.float64), LEAST_PROPENSITY)
        gains = np.log1p(BETS * (1 / q[:, None] - 1)) - np.log1p(-BETS)
        np.add.at(self.logs, arms, gains)
        sizes = np.array(list(map(len, offers)), np.float64)
        whole_gains = np.log1p(BETS * (1 / (sizes * q)[:, None] - 1))
        self.whole[:] = np.add.accumulate(np.vstack([self.whole, whole_gains]))[-1]
        # Usually all offers are the same object, so count objects.
        distinct = {id(offer): offer for offer in offers}
        for object_id, times in Counter(map(id, offers)).items():
            self.offered[distinct[object_id]] += times

    def evidence(self) -> float:
        """Return the log of the evidence that the propensities are wrong; above ``ALARM`` they are.

        References
        ----------
        For each arm a, 1[A = a]/q − 1 has the mean 0, or less if a cannot be shown at all, so
        that Π(1 + λ(1[A = a]/q − 1)) is a nonnegative supermartingale: it exceeds 100 with a
        probability of at most 1 % (Ville). So is Π(1 + λ(1/(nq) − 1)), n the arms on offer. This is
        the mean over all of these and over λ = 2^(−j/2), j = 1, 3 … 11; see also Waudby-Smith,
        Ramdas (2024), "Estimating means of bounded random variables by betting".
        """
        arm_logs = self.logs + self.offered[:, None] * np.log1p(-BETS)
        return _log_mean_exp(np.vstack([arm_logs, self.whole]))

    def merge(self, other: FrequencySums) -> FrequencySums:
        """Return new sums over the decisions of both."""
        return FrequencySums(*(a + b for a, b in zip(self, other, strict=True)))
