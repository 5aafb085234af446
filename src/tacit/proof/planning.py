"""How many decisions it takes to show a difference; to be asked before an experiment begins."""

from __future__ import annotations

import math

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.proof.boundary import boundary, checked_share

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
