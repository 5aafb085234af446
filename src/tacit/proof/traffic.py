"""How many decisions an experiment takes, and whether its traffic is what it should be.

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

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.proof.boundary import BUCKETS, HoldoutSums, boundary, checked_share

# ---- How many decisions it takes to show a difference; to be asked before an experiment begins

PER_VARIANCE = {0.8: 14.4, 0.5: 8.6}
"""From the power to the decisions that it takes for each unit of variance."""

QUANTILE = {0.8: 0.842, 0.5: 0.0}


def decisions_needed(
    rate: float,
    lift: float,
    share: float = 0.1,
    *,
    power: float = 0.8,
    dispersion: float = 1.0,
    largest: float = 1.0,
) -> float:
    """Return after how many decisions a holdout will show a lift.

    Parameters
    ----------
    rate : float
        Mean reward of the control, such as its click rate; above 0.
    lift : float
        To be shown, as a share of that: 0.1 for 10 % more, −0.1 for 10 % less; above −1, not 0.
    share : float, default 0.1
        Of the control, in (0, 1).
    power : float, default 0.8
        Probability that it shows by then: 0.8 or 0.5.
    dispersion : float, default 1
        How much more rewards scatter than clicks; see :func:`dispersion`.
    largest : float, default 1
        The largest reward possible; infinite for revenue.

    Raises
    ------
    InvalidValue
        If a value is out of its range, or the policy would earn more than the largest reward.

    References
    ----------
    See docs/proof.md; for a confidence of 95 %.

    Examples
    --------
    >>> round(decisions_needed(rate=0.05, lift=0.1), -3)
    331000.0
    >>> round(decisions_needed(rate=0.01, lift=0.1, share=0.05), -5)
    3300000.0
    """
    p, ratio = checks.positive("rate", rate), 1 + lift
    h = checked_share(share)
    if not 0 < ratio < math.inf or lift == 0:
        raise InvalidValue("lift", lift, "give a number above -1, and not 0")
    if ratio * p > largest:
        raise InvalidValue("lift", lift, f"the policy would earn more than {largest:g}")
    spread = (1 - p / largest) / (p * h) + (1 - ratio * p / largest) / (ratio * p * (1 - h))
    return _per_variance(power) * dispersion * spread / math.log(ratio) ** 2


def duels_needed(
    edge: float,
    ties: float = 0.0,
    *,
    power: float = 0.8,
    per_user: float = 1.0,
    likeness: float = 0.0,
    comparisons: int = 1,
) -> float:
    """Return after how many duels it shows which of two rankers is better.

    Parameters
    ----------
    edge : float
        How far the probability to win, a tie counting one half, is from one half; in (0, 0.5].
    ties : float, default 0
        Share of ties, in [0, 1).
    power : float, default 0.8
        Probability that it shows by then: 0.8 or 0.5.
    per_user : float, default 1
        Duels of a user, as a duel sees them: Σm²/Σm over users with m of them; at least 1.
    likeness : float, default 0
        The correlation of two duels of a user, in [0, 1]: 0 where tastes do not differ, so that a
        user is no more than so many duels.
    comparisons : int, default 1
        One less than there are rankers, of which the best one is to be found.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    References
    ----------
    See docs/proof.md; for a confidence of 95 %.

    Examples
    --------
    >>> round(duels_needed(edge=0.02, ties=0.3))
    6300
    >>> round(duels_needed(edge=0.02, ties=0.3, per_user=20, likeness=0.05))
    12285
    """
    edge = checks.number("edge", edge, 0.0, 0.5, open_low=True)
    tied = checks.number("ties", ties, 0.0, 1.0)
    per_user = checks.number("per_user", per_user, 1.0, math.inf)
    likeness = checks.number("likeness", likeness, 0.0, 1.0)
    deviation = math.sqrt((1 - tied) * (1 + (per_user - 1) * likeness))
    return searches_needed(2 * edge, deviation, power=power, comparisons=comparisons)


def searches_needed(
    difference: float, deviation: float, *, power: float = 0.8, comparisons: int = 1
) -> float:
    """Return after how many interleaved searches a difference of credit shows.

    Parameters
    ----------
    difference : float
        Of the mean credit per search; not 0.
    deviation : float
        The standard deviation of a search's difference, times the square root of what
        :attr:`PairSums.dispersion` says; at least 0.
    power : float, default 0.8
        Probability that it shows by then: 0.8 or 0.5.
    comparisons : int, default 1
        How many are to show together.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    References
    ----------
    See docs/proof.md; for a confidence of 95 %.

    Examples
    --------
    >>> round(searches_needed(difference=0.04, deviation=0.7**0.5))
    6300
    """
    if not difference:
        raise InvalidValue("difference", difference, "give a number other than 0")
    deviation = checks.number("deviation", deviation, 0.0, math.inf)
    per_variance = _per_variance(power)
    single, several = (boundary(comparisons=m) + QUANTILE[power] for m in (1, comparisons))
    return per_variance * (several / single) ** 2 * (deviation / difference) ** 2


def _per_variance(power: float) -> float:
    if power not in PER_VARIANCE:
        raise InvalidValue("power", power, f"give one of {list(PER_VARIANCE)}")
    return PER_VARIANCE[power]


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
    multinomial count data"; constants from docs/proof.md.

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
        arms, q = np.asarray(shown, np.int64), np.asarray(propensities, np.float64)
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
