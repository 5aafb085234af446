"""Whether an experiment's traffic is what it should be.

Shares of the holdout, and propensities against frequencies: both are e-values, evidence that exceeds
100 with a probability of at most 1 %, at any time, if all is as it should be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.uplift.boundary import BUCKETS, LEAST_PROPENSITY, HoldoutSums, checked_share

ALARM = math.log(100.0)
"""Logarithm of the evidence at which there is an alarm."""

WEIGHT = 1e4
"""κ: how many decisions the guess of other shares is worth."""

RATES = 2.0 ** (-np.arange(12) / 2)
"""λ: on so much difference per decision the evidence against propensities bets."""


def share_evidence(counts: Sequence[float], share: float) -> float:
    """Return the logarithm of the evidence that groups do not have the shares that they should.

    A sample ratio mismatch: some of the control's decisions, activations or feedback are lost, or
    counted twice. Above ``ALARM``, do not trust the lift.

    Parameters
    ----------
    counts : sequence of float
        Decisions of the control, and of the policy.
    share : float
        That the control should have, in (0, 1).

    References
    ----------
    A Dirichlet mixture over other shares, as in Lindon, Malek (2022), "Anytime-valid inference for
    multinomial count data"; constants from benchmarks/FORMULAS.md.

    Examples
    --------
    >>> share_evidence([1000, 9000], 0.1) < 0, share_evidence([700, 9300], 0.1) > ALARM
    (True, True)
    """
    share = checked_share(share)
    n = float(sum(counts))
    evidence = math.lgamma(WEIGHT) - math.lgamma(WEIGHT + n)
    for count, theta in zip(counts, (share, 1 - share), strict=True):
        weight = WEIGHT * theta
        evidence += math.lgamma(weight + count) - math.lgamma(weight) - count * math.log(theta)
    return evidence


def independent_counts(sums: HoldoutSums) -> tuple[float, float]:
    """Return the decisions of control and policy, as if each were a unit of its own.

    Where units stay in their group, their decisions say less about shares: both counts are
    divided by how much more the control's share scatters over buckets of units.

    Parameters
    ----------
    sums : HoldoutSums
    """
    control, policy = map(float, sums.counts)
    if sums.buckets is None or control + policy == 0:
        return control, policy
    own, decisions, _ = sums.buckets
    share = control / (control + policy)
    between = BUCKETS / (BUCKETS - 1) * float(np.sum((own - share * decisions) ** 2))
    effect = max(1.0, between / max((control + policy) * share * (1 - share), 1.0))
    return control / effect, policy / effect


class PropensitySums(NamedTuple):
    """How often an arm was shown against how often it should have been.

    Attributes
    ----------
    sums : array of float64, shape (2,)
        D, the times it was shown more often than its propensities say, and V, their variance.

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
        """Return sums of nothing."""
        return cls(np.zeros(2))

    def add(self, shown: npt.ArrayLike, propensities: npt.ArrayLike) -> None:
        """Add decisions, one after the other.

        Parameters
        ----------
        shown : array of bool, shape (n,)
            Whether the arm that is watched was shown: one chosen before the draw, such as that of
            the highest propensity.
        propensities : array of float, shape (n,)
            With what probability it should have been.
        """
        q = np.asarray(propensities, np.float64)
        np.add.at(self.sums, np.zeros(len(q), np.int64), np.asarray(shown, np.float64) - q)
        np.add.at(self.sums, np.ones(len(q), np.int64), q * (1 - q))

    def evidence(self) -> float:
        """Return the logarithm of the evidence that the propensities are not the true ones.

        References
        ----------
        A mixture of exp(λD − (e^|λ| − 1 − |λ|)V) over λ = ±2^(−j/2), j = 0 … 11: Freedman (1975),
        "On tail probabilities for martingales".
        """
        d, v = self.sums
        bets = np.concatenate([RATES, -RATES])
        sizes = np.abs(bets)
        exponents = bets * d - (np.expm1(sizes) - sizes) * v
        top = float(exponents.max())
        return top + math.log(float(np.mean(np.exp(exponents - top))))

    def merged(self, other: PropensitySums) -> PropensitySums:
        """Return the sums over the decisions of both."""
        return PropensitySums(self.sums + other.sums)


BETS = RATES[1::2]
"""λ < 1: on so many times more than its propensities say the evidence bets that an arm is shown."""


class FrequencySums(NamedTuple):
    """How often each arm was shown against how often it should have been, by its propensities.

    Unlike :class:`PropensitySums` this needs the propensity of what was shown alone, which is what
    a log has. An arm that is shown too seldom is one in whose place others are shown too often.

    Attributes
    ----------
    logs : array of float64, shape (arms, 6)
        Of each arm and each λ, the sum of ln(1 + λ(1/q − 1)) − ln(1 − λ) over the decisions that
        showed it, with the propensity q.
    offered : array of float64, shape (arms,)
        Decisions that could show it.
    whole : array of float64, shape (6,)
        Of each λ, the sum of ln(1 + λ(1/(nq) − 1)) over all decisions, of n arms each: arms that
        are likely to be shown, whichever these are, must not be shown less often.

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
        """Return sums of nothing."""
        return cls(np.zeros((arms, len(BETS))), np.zeros(arms), np.zeros(len(BETS)))

    def add(self, shown: npt.ArrayLike, propensities: npt.ArrayLike, offers: Sequence[Ints]) -> None:
        """Add decisions, one after the other.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        propensities : array of float, shape (n,)
            With what probability each was shown; in (0, 1].
        offers : sequence of array of int
            The arms that each could show.
        """
        arms = np.asarray(shown, np.int64)
        q = np.maximum(np.asarray(propensities, np.float64), LEAST_PROPENSITY)
        gains = np.log1p(BETS * (1 / q[:, None] - 1)) - np.log1p(-BETS)
        np.add.at(self.logs, arms, gains)
        sizes = np.array(list(map(len, offers)), np.float64)
        of_all = np.log1p(BETS * (1 / (sizes * q)[:, None] - 1))
        self.whole[:] = np.add.accumulate(np.vstack([self.whole, of_all]))[-1]
        # Most often all offers are one and the same.
        distinct = {id(offer): offer for offer in offers}
        for name, times in Counter(map(id, offers)).items():
            self.offered[distinct[name]] += times

    def evidence(self) -> float:
        """Return the logarithm of the evidence that the propensities are not the true ones.

        References
        ----------
        For each arm a, 1[A = a]/q − 1 has the mean 0, or less where a cannot be shown at all, so
        that Π(1 + λ(1[A = a]/q − 1)) is a nonnegative supermartingale: it exceeds 100 with a
        probability of at most 1 % (Ville). So is Π(1 + λ(1/(nq) − 1)), n the arms on offer. This is
        the mean over all of these and over λ = 2^(−j/2), j = 1, 3 … 11; see also Waudby-Smith,
        Ramdas (2024), "Estimating means of bounded random variables by betting".
        """
        of_arms = self.logs + self.offered[:, None] * np.log1p(-BETS)
        exponents = np.vstack([of_arms, self.whole])
        top = float(exponents.max())
        return top + math.log(float(np.mean(np.exp(exponents - top))))

    def merged(self, other: FrequencySums) -> FrequencySums:
        """Return the sums over the decisions of both."""
        return FrequencySums(*(a + b for a, b in zip(self, other, strict=True)))
