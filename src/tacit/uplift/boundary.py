"""Foundations of uplift: width of anytime-valid intervals, claims, sums of a holdout, sample sizes."""

# 1. ``boundary``: half-width, in standard errors, of intervals that are valid at any time.
# 2. ``Interval``, ``Lift``, ``claim_from_interval``: a difference and its significance.
# 3. ``HoldoutSums``: sums from which a lift is computed; sums of shards and periods add up.
# 4. ``decisions_needed``: the sample size that shows a difference, for planning an experiment.

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue, with_suggestions

# ---- Width of intervals that are valid at any time

ANY_TIME = {0.9: 2.98, 0.95: 3.25, 0.99: 3.75}
"""From the confidence to the boundary: constant over a thousandfold range of information, with 0.05
added for skewness."""

LEAST_PROPENSITY = 2.0**-53
"""The least propensity of a sampled arm, as random numbers have 53 bits; sums of weights stay finite."""

PLANNED = 2.548
"""The boundary at one planned look, for a confidence of 95 %."""


def boundary(confidence: float = 0.95, comparisons: int = 1, *, planned: bool = False) -> float:
    """Return the half-width, in standard errors, of a confidence interval that is valid at any time.

    Repeated looks need wider intervals than a single one (1.96 for 95 %). These hold
    simultaneously at all times, over a thousandfold range of information.

    Parameters
    ----------
    confidence : float, default 0.95
        Probability that the interval is right at all times: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        Number of intervals that hold simultaneously; c becomes √(c² + 2 ln m).
    planned : bool, default False
        Whether this is the one look that was planned before the first decision. Its interval is narrower, and
        the intervals of other looks stay valid; for a confidence of 0.95.

    Raises
    ------
    InvalidValue
        If the confidence is not one of these.

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
    allowed = [0.95] if planned else list(ANY_TIME)
    if confidence not in allowed:
        raise InvalidValue("confidence", confidence, f"give one of {allowed}")
    c = PLANNED if planned else ANY_TIME[confidence]
    return math.sqrt(c * c + 2 * math.log(checks.integer("comparisons", comparisons, 1)))


def check_share(share: float) -> float:
    """Return the share of a control as a float if it is within (0, 1).

    Raises
    ------
    InvalidValue
        If it is not within (0, 1).
    """
    if not 0 < share < 1:
        raise InvalidValue("share", share, "give a number between 0 and 1, neither of them")
    return float(share)


# ---- A lift: intervals and the claim that follows from them

Claim = Literal["early", "undecided", "better", "worse"]


class Interval(NamedTuple):
    """An estimate and the bounds of its interval.

    Attributes
    ----------
    estimate, low, high : float
    """

    estimate: float
    low: float
    high: float


class Lift(NamedTuple):
    """The lift of a policy over a control, on average over all decisions so far.

    Attributes
    ----------
    claim : str
        ``better`` or ``worse`` if the difference is significant, else ``undecided``; ``early`` if
        there is too little traffic for any interval.
    ratio : Interval or None
        The policy's mean reward over the control's; None if too early, or if a ratio of
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
        """Return the lift as JSON data; None for a bound that is infinite or unknown."""
        return {
            "claim": self.claim,
            "ratio": None if self.ratio is None else _make_finite_dict(self.ratio),
            "difference": None if self.difference is None else _make_finite_dict(self.difference),
        }


def _make_finite_dict(interval: Interval) -> dict[str, float | None]:
    """Return an interval as a dict of estimate, low and high, with None for values that are not finite."""
    fields = interval._asdict().items()
    return {name: value if math.isfinite(value) else None for name, value in fields}


def claim_from_interval(low: float, high: float) -> Claim:
    """Return the claim that follows from the interval of a difference: better if above 0, worse if below 0.

    It is ``undecided`` if the interval contains 0.

    Examples
    --------
    >>> claim_from_interval(-1.0, 2.0), claim_from_interval(0.04, 0.4)
    ('undecided', 'better')
    """
    return "better" if low > 0.0 else "worse" if high < 0.0 else "undecided"


# ---- Sums over closed decisions by group, from which the lift of a holdout is computed

CONTROL, POLICY = 0, 1
BUCKETS = 128
"""Number of buckets of units, for the variance if decisions of one unit depend on one another."""


class HoldoutSums(NamedTuple):
    """Sums of rewards of the control and the policy, updated in constant time.

    The first axis is the group: the control, then the policy. Additional trailing axes hold parallel
    experiments; all methods but :meth:`add` support them.

    Attributes
    ----------
    counts : array of float64, shape (2, …)
        Numbers of decisions.
    totals : array of float64, shape (2, …)
        Sums of their rewards.
    squares : array of float64, shape (2, …)
        Sums of the rewards' squares.
    buckets : array of float64, shape (3, 128, …), or None
        Per bucket of units: decisions of the control, all decisions, all rewards. None if each
        decision is its own unit.

    Notes
    -----
    For the rewards that each method supports see benchmarks/FORMULAS.md. Add only decisions whose window is
    closed, in the order in which they were made: clicks arrive before the lack of one is known, so that sums
    over open windows are biased.

    Examples
    --------
    >>> sums = HoldoutSums.empty()
    >>> sums.add([0, 1, 1], [0.0, 1.0, 0.5])
    >>> sums.counts, sums.totals
    (array([1., 2.]), array([0. , 1.5]))
    >>> sums.merge(sums).squares
    array([0. , 2.5])
    """

    counts: Floats
    totals: Floats
    squares: Floats
    buckets: Floats | None = None

    @classmethod
    def empty(cls, *, clustered: bool = False) -> HoldoutSums:
        """Return sums over no decisions: all zero, with buckets of units if ``clustered``.

        Parameters
        ----------
        clustered : bool, default False
            Whether units, such as users, have several decisions and stay in their group.
        """
        buckets = np.zeros((3, BUCKETS)) if clustered else None
        return cls(np.zeros(2), np.zeros(2), np.zeros(2), buckets)

    def add(
        self, groups: npt.ArrayLike, rewards: npt.ArrayLike, buckets: npt.ArrayLike | None = None
    ) -> None:
        """Add closed decisions to the counts, rewards, squares and, if clustered, buckets, in place.

        Parameters
        ----------
        groups : array of int, shape (n,)
            0 for the control, 1 for the policy.
        rewards : array of float, shape (n,)
            Rewards of the decisions; at least 0.
        buckets : array of int, shape (n,), optional
            Buckets of the decisions' units, from 0 to 127; required if the sums are clustered.

        Raises
        ------
        InvalidValue
            If buckets are missing, or the sums are not clustered, or a group or a reward is invalid.
        """
        if (buckets is None) != (self.buckets is None):
            raise InvalidValue("buckets", buckets, "give them where sums are clustered, only there")
        group_codes, amounts = np.asarray(groups), np.asarray(rewards, np.float64)
        if not ((group_codes == CONTROL) | (group_codes == POLICY)).all():
            raise InvalidValue("groups", groups, "give 0 for the control, 1 for the policy")
        if group_codes.shape != amounts.shape or not math.isfinite(amounts.sum()):
            remedy = f"give a finite number for each of {len(group_codes)} decisions"
            raise InvalidValue("rewards", rewards, remedy)
        group_codes = group_codes.astype(np.int64, copy=False)
        # Unlike np.sum, np.add.at gives the same bits for any batch sizes.
        np.add.at(self.counts, group_codes, 1.0)
        np.add.at(self.totals, group_codes, amounts)
        np.add.at(self.squares, group_codes, amounts * amounts)
        if self.buckets is not None:
            places: Ints = np.asarray(buckets, np.int64)
            np.add.at(self.buckets[0], places, group_codes == CONTROL)
            np.add.at(self.buckets[1], places, 1.0)
            np.add.at(self.buckets[2], places, amounts)

    def merge(self, other: HoldoutSums) -> HoldoutSums:
        """Return new sums over the decisions of both.

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
        counts = self.counts + other.counts
        return HoldoutSums(counts, self.totals + other.totals, self.squares + other.squares, buckets)

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as JSON data: lists by field name, None without buckets."""
        return {
            name: None if array is None else array.tolist()
            for name, array in zip(self._fields, self, strict=True)
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HoldoutSums:
        """Return the sums from the JSON data of :meth:`as_dict`, as new arrays."""
        lists = (data[name] for name in cls._fields)
        arrays: list[Any] = [None if values is None else np.array(values, np.float64) for values in lists]
        return cls(*arrays)


# ---- Sample sizes: numbers of decisions that show a difference

PER_VARIANCE = {0.8: 14.4, 0.5: 8.6}
"""From the power to the number of decisions for each unit of variance."""

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
    """Return the number of decisions, of both groups, after which a holdout shows a lift.

    Warns if the lift is above 1, as it may be meant as a ratio.

    Parameters
    ----------
    rate : float
        Mean reward of the control, such as its click rate; above 0.
    lift : float
        The lift as a share of the rate: 0.1 for 10 % more, −0.1 for 10 % less; above −1, not 0.
    share : float, default 0.1
        Share of the control, in (0, 1).
    power : float, default 0.8
        Probability that the lift is shown by then: 0.8 or 0.5.
    dispersion : float, default 1
        Variance of rewards relative to clicks; see :func:`dispersion`.
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
    h = check_share(share)
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
    # The variance of the log ratio, for one decision.
    spread = (1 - p / largest) / (p * h) + (1 - ratio * p / largest) / (ratio * p * (1 - h))
    return _compute_per_variance(power) * dispersion * spread / math.log(ratio) ** 2


@with_suggestions
def duels_needed(
    edge: float,
    ties: float = 0.0,
    *,
    power: float = 0.8,
    per_user: float | None = None,
    likeness: float | None = None,
    comparisons: int = 1,
) -> float:
    """Return the number of duels after which the better of two rankers is shown.

    Parameters
    ----------
    edge : float
        Difference of the win probability, a tie counting one half, from one half; in (0, 0.5].
    ties : float, default 0
        Share of ties, in [0, 1).
    power : float, default 0.8
        Probability that the better ranker is shown by then: 0.8 or 0.5.
    per_user : float, optional
        Mean number of duels of a duel's user: Σm²/Σm over users with m duels; at least 1.
    likeness : float, optional
        The correlation of two duels of a user, in [0, 1]: 0 if users do not differ in taste.
        Without both, each duel is of another user.
    comparisons : int, default 1
        Number of rankers minus one, if the best of several is to be found.

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
        missing = "likeness" if likeness is None else "per_user"
        raise InvalidValue(missing, None, "give both per_user and likeness, or neither")
    per_user = checks.number("per_user", 1.0 if per_user is None else per_user, 1.0, math.inf)
    likeness = checks.number("likeness", likeness or 0.0, 0.0, 1.0)
    # A duel's credit is 1, 0 or −1, with the mean 2·edge; a user's duels count by the design effect.
    deviation = math.sqrt((1 - tied) * (1 + (per_user - 1) * likeness))
    return searches_needed(2 * edge, deviation, power=power, comparisons=comparisons)


def searches_needed(
    difference: float, deviation: float, *, power: float = 0.8, comparisons: int = 1
) -> float:
    """Return the number of interleaved searches after which a difference of credit is shown.

    Parameters
    ----------
    difference : float
        Of the mean credit per search; not 0.
    deviation : float
        The standard deviation of a search's difference, times the square root of
        :attr:`PairSums.dispersion`; at least 0.
    power : float, default 0.8
        Probability that the difference is shown by then: 0.8 or 0.5.
    comparisons : int, default 1
        Number of differences that are shown simultaneously.

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
    per_variance = _compute_per_variance(power)
    # ``per_variance`` is for one comparison; with several, the boundary is wider.
    single, several = (boundary(comparisons=m) + QUANTILE[power] for m in (1, comparisons))
    return per_variance * (several / single) ** 2 * (deviation / difference) ** 2


def _compute_per_variance(power: float) -> float:
    """Return the number of decisions per unit of variance that gives a test this power.

    Raises InvalidValue unless it is 0.8 or 0.5.
    """
    if power not in PER_VARIANCE:
        raise InvalidValue("power", power, f"give one of {list(PER_VARIANCE)}")
    return PER_VARIANCE[power]
