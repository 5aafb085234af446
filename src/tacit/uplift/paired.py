"""Preferences from paired comparisons of two rankers by interleaved lists.

Every search has a difference of credit, the left ranker's minus the right one's. Its mean is
estimated over all searches, including searches without clicks and with equal rankings, from
sums that are updated in constant time. Searches of one user or session depend on one another, so
the variance is at least that between buckets of units.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.uplift.boundary import ANY_TIME, BUCKETS, Interval, Lift, boundary, claim_from_interval

MIN_DECIDED = 20.0
"""The least sum of squared differences, in units of their mean size, for an interval."""

MIN_BUCKETS = 8.0
"""The least effective number of buckets of units with a difference, for an interval."""


def hash_unit(unit: str) -> int:
    """Return the bucket, from 0 to 127, of a unit: a user, a session or a search.

    All searches of a unit are in one bucket, so that buckets are independent.

    Examples
    --------
    >>> hash_unit("user 1"), hash_unit("user 2")
    (43, 37)
    """
    return int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8).digest(), "big") % BUCKETS


class PairSums(NamedTuple):
    """Sums over searches for a pair of rankers.

    Additional trailing axes hold parallel experiments; all methods but :meth:`add` support them.

    Attributes
    ----------
    sums : array of float64, shape (4, …)
        Number of searches; sums of differences of credit, of their absolute values, of their squares.
    buckets : array of float64, shape (2, 128, …)
        Per bucket of units: number of searches, and sum of differences.

    Examples
    --------
    >>> sums = PairSums.empty()
    >>> sums.add([1.0, 0.0, -2.0], ["ann", "ann", "ben"])
    >>> sums.sums
    array([ 3., -1.,  3.,  5.])
    """

    sums: Floats
    buckets: Floats

    @classmethod
    def empty(cls) -> PairSums:
        """Return sums over no searches."""
        return cls(np.zeros(4), np.zeros((2, BUCKETS)))

    def add(self, differences: npt.ArrayLike, units: Sequence[str]) -> None:
        """Add searches to the sums and to the buckets of their units, in place.

        Parameters
        ----------
        differences : array of float, shape (n,)
            The left ranker's credit minus the right one's; 0 without clicks, with equal credit, and
            with equal rankings.
        units : sequence of str
            The unit of each search: the user, the session, or the search itself.
        """
        d = np.asarray(differences, np.float64)
        places: Ints = np.array([hash_unit(unit) for unit in units], np.int64)
        # Unlike np.sum, np.add.at gives the same bits for any batch sizes.
        for row, amount in enumerate((np.ones_like(d), d, np.abs(d), d * d)):
            np.add.at(self.sums, np.full(len(d), row), amount)
        np.add.at(self.buckets[0], places, 1.0)
        np.add.at(self.buckets[1], places, d)

    def merge(self, other: PairSums) -> PairSums:
        """Return new sums over the searches of both."""
        return PairSums(self.sums + other.sums, self.buckets + other.buckets)

    def swap_sides(self) -> PairSums:
        """Return new sums with the left and the right ranker exchanged."""
        sums, buckets = self.sums.copy(), self.buckets.copy()
        sums[1], buckets[1] = -sums[1], -buckets[1]
        return PairSums(sums, buckets)

    @property
    def searches(self) -> Floats:
        """Number of searches added."""
        return np.asarray(self.sums[0])

    @property
    def mean(self) -> Floats:
        """Mean difference of credit per search, left minus right; 0 without any."""
        return np.asarray(self.sums[1] / np.maximum(self.sums[0], 1.0))

    @property
    def _squares(self) -> tuple[Floats, Floats]:
        """Sums of squares of differences about the mean: over searches, and between buckets of units."""
        within = self.sums[3] - self.sums[1] * self.mean
        between = np.sum((self.buckets[1] - self.mean * self.buckets[0]) ** 2, axis=0)
        return np.maximum(within, 0.0), BUCKETS / (BUCKETS - 1) * between

    @property
    def error(self) -> Floats:
        """Standard error of the mean difference; 0 without any search.

        It is computed between buckets of units if that is larger than between single searches.
        """
        return np.asarray(np.sqrt(np.maximum(*self._squares)) / np.maximum(self.sums[0], 1.0))

    @property
    def dispersion(self) -> Floats:
        """Variance of the mean relative to independent searches (the design effect); at least 1.

        Searches of a user are correlated, so they are less informative than searches of as many users.
        """
        within, between = self._squares
        return np.asarray(np.maximum(between / np.where(within > 0, within, 1.0), 1.0))

    @property
    def has_enough_data(self) -> Booleans:
        """True if there are enough differences of credit, from enough buckets of units, for an interval."""
        _, _, size, square = self.sums
        # Effective numbers, (Σx)²/Σx²: of buckets by their squared sums, of searches by their differences.
        squares = self.buckets[1] ** 2
        spread = squares.sum(axis=0) ** 2 / np.maximum((squares**2).sum(axis=0), 1e-300)
        decided = size * size / np.maximum(square, 1e-300)
        return np.asarray((square > 0) & (decided >= MIN_DECIDED) & (spread >= MIN_BUCKETS))

    @property
    def score(self) -> Floats:
        """The mean difference over its standard error; 0 without enough data."""
        error = self.error
        is_known = self.has_enough_data & (error > 0)
        return np.asarray(np.where(is_known, self.mean / np.where(is_known, error, 1.0), 0.0))


def preference(sums: PairSums, confidence: float = 0.95, comparisons: int = 1) -> Lift:
    """Return the preference between two rankers as a lift: claim and difference of credit, valid at any time.

    The claim is ``early`` without enough data.

    Parameters
    ----------
    sums : PairSums
    confidence : float, default 0.95
        Probability that the interval is right at all times: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        Number of preferences that hold simultaneously.

    Returns
    -------
    Lift
        Its claim is ``better`` if the left ranker is better; the difference is of credit per search.

    Raises
    ------
    InvalidValue
        If the confidence is not one of these.

    References
    ----------
    The boundary of benchmarks/FORMULAS.md; error rates in docs/interleaving.md.

    Examples
    --------
    >>> sums = PairSums.empty()
    >>> sums.add([1.0, 0.0, 1.0, -1.0] * 100, [str(i // 4) for i in range(400)])
    >>> lift = preference(sums)
    >>> lift.claim, lift.difference.estimate, round(lift.difference.low, 2)
    ('better', 0.25, 0.12)
    """
    c = boundary(confidence, comparisons)
    if not sums.has_enough_data:
        return Lift("early")
    mean, radius = float(sums.mean), c * float(sums.error)
    low, high = mean - radius, mean + radius
    return Lift(claim_from_interval(low, high), ratio=None, difference=Interval(mean, low, high))


def chance_of_score(score: float) -> float:
    """Return the anytime-valid p-value of a score, which is a mean difference in standard errors.

    It bounds the probability that the score ever exceeds this value if there is no difference. It inverts the
    boundary for m comparisons, √(c² + 2 ln m).

    Examples
    --------
    >>> round(chance_of_score(3.25), 4), chance_of_score(0.0)
    (0.05, 1.0)
    """
    c = ANY_TIME[0.95]
    return min(1.0, 0.05 * math.exp((c * c - score * score) / 2))


def discoveries(chances: Sequence[float], share: float = 0.05) -> list[bool]:
    """Return for each segment whether it differs significantly, at a bounded false discovery rate.

    Parameters
    ----------
    chances : sequence of float
        A p-value for each segment, such as :func:`chance_of_score`.
    share : float, default 0.05
        False discovery rate; in (0, 1].

    Raises
    ------
    InvalidValue
        If a value is out of its range.

    References
    ----------
    Benjamini, Hochberg (1995), "Controlling the false discovery rate"; for segments that are
    independent or positively dependent, such as markets.

    Examples
    --------
    >>> discoveries([0.001, 0.8, 0.02, 0.03])
    [True, False, True, True]
    """
    share = checks.number("share", share, 0.0, 1.0, open_low=True)
    p = np.array([checks.number("chances", chance, 0.0, 1.0) for chance in chances])
    order = np.argsort(p, kind="stable")
    passing = np.flatnonzero(p[order] <= share * np.arange(1, len(p) + 1) / max(len(p), 1))
    is_different = np.zeros(len(p), np.bool_)
    is_different[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return [bool(value) for value in is_different]
