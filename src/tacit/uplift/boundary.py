"""The ground of all proof: how far intervals extend, what is claimed, sums, how many decisions it takes."""

# 1. ``boundary``: how many standard errors, so that the interval may be looked at at any time.
# 2. ``Interval``, ``Lift``, ``claim_of``: what is said of a difference.
# 3. ``HoldoutSums``: all that a lift is computed from; sums, so that shards and chapters add up.
# 4. ``decisions_needed``: how many it takes to show a difference, to be asked before an experiment begins.

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue, suggesting

# ---- How many standard errors an interval extends that may be looked at at any time

ANY_TIME = {0.9: 2.98, 0.95: 3.25, 0.99: 3.75}
"""From the confidence to the boundary: flat over a thousandfold range of information, with 0.05
added for skewness."""

LEAST_PROPENSITY = 2.0**-53
"""No arm is drawn with a smaller one, as random numbers have 53 bits; sums of weights stay finite."""

PLANNED = 2.548
"""The boundary at one planned look, for a confidence of 95 %."""


def boundary(confidence: float = 0.95, comparisons: int = 1, *, planned: bool = False) -> float:
    """Return how many standard errors an interval extends to either side.

    Many looks need wider intervals than one look (1.96 for 95 %). These hold
    for all looks together, over a thousandfold range of information.

    Parameters
    ----------
    confidence : float, default 0.95
        Probability that no look ever misleads: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        How many intervals are to hold together; c becomes √(c² + 2 ln m).
    planned : bool, default False
        Whether this is the one look that was planned before the first decision. It is sharper, and
        the others hold as they do without it; for a confidence of 0.95.

    Raises
    ------
    InvalidValue
        If the confidence is another one.

    References
    ----------
    See benchmarks/FORMULAS.md.

    Examples
    --------
    >>> boundary(), round(boundary(comparisons=5), 3)
    (3.25, 3.712)
    >>> boundary(planned=True)
    2.548
    """
    known = [0.95] if planned else list(ANY_TIME)
    if confidence not in known:
        raise InvalidValue("confidence", confidence, f"give one of {known}")
    c = PLANNED if planned else ANY_TIME[confidence]
    return math.sqrt(c * c + 2 * math.log(checks.integer("comparisons", comparisons, 1)))


def checked_share(share: float) -> float:
    """Return the share of a control.

    Raises
    ------
    InvalidValue
        If it is not within (0, 1).
    """
    if not 0 < share < 1:
        raise InvalidValue("share", share, "give a number between 0 and 1, neither of them")
    return float(share)


# ---- What is said of a lift: intervals and what they claim

Claim = Literal["early", "undecided", "better", "worse"]


class Interval(NamedTuple):
    """An estimate, and what it lies between.

    Attributes
    ----------
    estimate, low, high : float
    """

    estimate: float
    low: float
    high: float


class Lift(NamedTuple):
    """What the policy earned more than the control, on average over all decisions so far.

    Attributes
    ----------
    claim : str
        ``better`` or ``worse`` if the intervals leave no doubt, else ``undecided``; ``early`` if
        there is too little traffic for any interval.
    ratio : Interval or None
        The policy's mean reward over the control's; None if too early, or where a ratio of
        rewards has no meaning or is not estimated.
    difference : Interval or None
        The policy's mean reward minus the control's, per decision; None if too early.

    Examples
    --------
    >>> Lift("better", Interval(1.2, 1.04, 1.4), Interval(0.01, 0.002, 0.02)).as_dict()["ratio"]
    {'estimate': 1.2, 'low': 1.04, 'high': 1.4}
    """

    claim: Claim
    ratio: Interval | None = None
    difference: Interval | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the lift as JSON data; None for an end that is infinite or not known."""
        return {
            "claim": self.claim,
            "ratio": None if self.ratio is None else _finite(self.ratio),
            "difference": None if self.difference is None else _finite(self.difference),
        }


def _finite(interval: Interval) -> dict[str, float | None]:
    fields = interval._asdict().items()
    return {name: value if math.isfinite(value) else None for name, value in fields}


def claim_of(low: float, high: float) -> Claim:
    """Return what the interval of a difference claims.

    Examples
    --------
    >>> claim_of(-1.0, 2.0), claim_of(0.04, 0.4)
    ('undecided', 'better')
    """
    return "better" if low > 0.0 else "worse" if high < 0.0 else "undecided"


# ---- Sums over closed decisions, by group: all that the lift of a holdout is computed from

CONTROL, POLICY = 0, 1
BUCKETS = 128
"""Into so many buckets units are hashed, where decisions of one unit depend on one another."""


class HoldoutSums(NamedTuple):
    """What the control and the policy earned, as sums that are kept in constant time.

    The first axis is the group: the control, then the policy. More axes behind it are experiments
    side by side, which everything but :meth:`add` takes.

    Attributes
    ----------
    counts : array of float64, shape (2, …)
        Decisions.
    totals : array of float64, shape (2, …)
        Sums of their rewards.
    squares : array of float64, shape (2, …)
        Sums of the rewards' squares.
    buckets : array of float64, shape (3, 128, …), or None
        Per bucket of units: decisions of the control, all decisions, all rewards. None where each
        decision is a unit of its own.

    Notes
    -----
    Which reward belongs to which method: see benchmarks/FORMULAS.md. Add decisions whose window is closed,
    in the order in which they were made: clicks come before the lack of one, so that sums of what
    has come so far are biased at every moment.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1, 1], [0.0, 1.0, 0.5])
    >>> sums.counts, sums.totals
    (array([1., 2.]), array([0. , 1.5]))
    >>> sums.merged(sums).squares
    array([0. , 2.5])
    """

    counts: Floats
    totals: Floats
    squares: Floats
    buckets: Floats | None = None

    @classmethod
    def empty(cls, *, clustered: bool = False) -> HoldoutSums:
        """Return sums of nothing.

        Parameters
        ----------
        clustered : bool, default False
            Whether units, such as users, have several decisions, and stay in their group.
        """
        buckets = np.zeros((3, BUCKETS)) if clustered else None
        return cls(np.zeros(2), np.zeros(2), np.zeros(2), buckets)

    def add(
        self, groups: npt.ArrayLike, rewards: npt.ArrayLike, buckets: npt.ArrayLike | None = None
    ) -> None:
        """Add closed decisions, one after the other.

        Parameters
        ----------
        groups : array of int, shape (n,)
            0 for the control, 1 for the policy.
        rewards : array of float, shape (n,)
            What the decisions earned; at least 0.
        buckets : array of int, shape (n,), optional
            Of their units, from 0 to 127; where the sums are clustered.

        Raises
        ------
        InvalidValue
            If buckets are missing, or not asked for, or a group or a reward is none.
        """
        if (buckets is None) != (self.buckets is None):
            raise InvalidValue("buckets", buckets, "give them where sums are clustered, only there")
        of, earned = np.asarray(groups), np.asarray(rewards, np.float64)
        if not ((of == CONTROL) | (of == 1)).all():
            raise InvalidValue("groups", groups, "give 0 for the control, 1 for the policy")
        if of.shape != earned.shape or not math.isfinite(earned.sum()):
            raise InvalidValue("rewards", rewards, f"give a finite number for each of {len(of)} decisions")
        of = of.astype(np.int64, copy=False)
        # Unlike sums over the array, this gives the same bits however decisions are parted.
        np.add.at(self.counts, of, 1.0)
        np.add.at(self.totals, of, earned)
        np.add.at(self.squares, of, earned * earned)
        if self.buckets is not None:
            places: Ints = np.asarray(buckets, np.int64)
            np.add.at(self.buckets[0], places, of == CONTROL)
            np.add.at(self.buckets[1], places, 1.0)
            np.add.at(self.buckets[2], places, earned)

    def merged(self, other: HoldoutSums) -> HoldoutSums:
        """Return the sums over the decisions of both.

        Raises
        ------
        InvalidValue
            If only one of them is clustered.
        """
        if (self.buckets is None) != (other.buckets is None):
            raise InvalidValue("other", other, "merge sums that are both clustered, or both not")
        buckets = None
        if self.buckets is not None and other.buckets is not None:
            buckets = self.buckets + other.buckets
        return HoldoutSums(
            self.counts + other.counts, self.totals + other.totals, self.squares + other.squares, buckets
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        return {
            name: None if array is None else array.tolist()
            for name, array in zip(self._fields, self, strict=True)
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HoldoutSums:
        """Return the sums that :meth:`as_dict` gave."""
        buckets = data["buckets"]
        return cls(
            np.array(data["counts"], np.float64),
            np.array(data["totals"], np.float64),
            np.array(data["squares"], np.float64),
            None if buckets is None else np.array(buckets, np.float64),
        )


# ---- How many decisions it takes to show a difference

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
    See benchmarks/FORMULAS.md; for a confidence of 95 %.

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
    if p > largest:
        remedy = f"it is a mean of rewards up to {largest:g}, such as 0.05 for 5 %"
        raise InvalidValue("rate", rate, f"{remedy}; or give largest=")
    if ratio * p > largest:
        raise InvalidValue("lift", lift, f"the policy would earn more than {largest:g}; 0.1 is 10 % more")
    if lift > 1:
        doubt = f"lift: {lift:g} is {100 * lift:g} % more; give {lift - 1:.3g} if it is a ratio that you mean"
        warnings.warn(doubt, AssumptionWarning, stacklevel=2)
    spread = (1 - p / largest) / (p * h) + (1 - ratio * p / largest) / (ratio * p * (1 - h))
    return _per_variance(power) * dispersion * spread / math.log(ratio) ** 2


@suggesting
def duels_needed(
    edge: float,
    ties: float = 0.0,
    *,
    power: float = 0.8,
    per_user: float | None = None,
    likeness: float | None = None,
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
    per_user : float, optional
        Duels of a user, as a duel sees them: Σm²/Σm over users with m of them; at least 1.
    likeness : float, optional
        The correlation of two duels of a user, in [0, 1]: 0 where tastes do not differ, so that a
        user is no more than so many duels. Without both, each duel is of a user of its own.
    comparisons : int, default 1
        One less than there are rankers, of which the best one is to be found.

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    References
    ----------
    See benchmarks/FORMULAS.md; for a confidence of 95 %.

    Examples
    --------
    >>> round(duels_needed(edge=0.02, ties=0.3))
    6300
    >>> round(duels_needed(edge=0.02, ties=0.3, per_user=20, likeness=0.05))
    12285
    """
    edge = checks.number("edge", edge, 0.0, 0.5, open_low=True)
    tied = checks.number("ties", ties, 0.0, 1.0)
    if 2 * edge > 1 - tied + 1e-9:
        raise InvalidValue("edge", edge, f"give at most (1 - ties) / 2, which is {(1 - tied) / 2:g}")
    if (per_user is None) != (likeness is None):
        lacking = "likeness" if likeness is None else "per_user"
        raise InvalidValue(lacking, None, "give both per_user and likeness, or neither")
    per_user = checks.number("per_user", 1.0 if per_user is None else per_user, 1.0, math.inf)
    likeness = checks.number("likeness", likeness or 0.0, 0.0, 1.0)
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
    See benchmarks/FORMULAS.md; for a confidence of 95 %.

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
