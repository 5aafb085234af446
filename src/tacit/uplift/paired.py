"""Preferences from paired comparisons: interleaved lists, of which both rankers are a part.

Every search gives a difference of credit, the left ranker's minus the right one's. Its mean is
followed over all searches, those without clicks and those on which the rankers agree included, by
sums that are kept in constant time. Searches of one user or session depend on one another, so
that the variance is at least that between buckets of units.
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
from tacit.uplift.boundary import ANY_TIME, BUCKETS, Interval, Lift, boundary, claim_of

DECIDED = 20.0
"""The least sum of squared differences, in units of their mean size, for an interval."""

UNITS = 8.0
"""The least number of buckets between which the evidence is spread, for an interval."""


def bucket_of(unit: str) -> int:
    """Return the bucket of a user, a session, or a search that is its own unit; from 0 to 127.

    Examples
    --------
    >>> bucket_of("user 1"), bucket_of("user 2")
    (43, 37)
    """
    digest = hashlib.blake2b(unit.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % BUCKETS


class PairSums(NamedTuple):
    """What searches said of two rankers, as sums.

    More axes behind those below are experiments side by side, which everything but :meth:`add`
    takes.

    Attributes
    ----------
    sums : array of float64, shape (4, …)
        Searches; differences of credit; their sizes; their squares.
    buckets : array of float64, shape (2, 128, …)
        Per bucket of units: searches, and differences.

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
        """Return sums of nothing."""
        return cls(np.zeros(4), np.zeros((2, BUCKETS)))

    def add(self, differences: npt.ArrayLike, units: Sequence[str]) -> None:
        """Add searches, one after the other.

        Parameters
        ----------
        differences : array of float, shape (n,)
            The left ranker's credit minus the right one's; 0 where nothing was clicked, where
            both earned the same, and where both lists are the same.
        units : sequence of str
            Whose the searches are: the user, the session, or the search itself.
        """
        d = np.asarray(differences, np.float64)
        places: Ints = np.array([bucket_of(unit) for unit in units], np.int64)
        # Unlike sums over the array, this gives the same bits however searches are parted.
        for row, amount in enumerate((np.ones_like(d), d, np.abs(d), d * d)):
            np.add.at(self.sums, np.full(len(d), row), amount)
        np.add.at(self.buckets[0], places, 1.0)
        np.add.at(self.buckets[1], places, d)

    def merged(self, other: PairSums) -> PairSums:
        """Return the sums over the searches of both."""
        return PairSums(self.sums + other.sums, self.buckets + other.buckets)

    def turned(self) -> PairSums:
        """Return the sums with left and right exchanged."""
        sums, buckets = self.sums.copy(), self.buckets.copy()
        sums[1], buckets[1] = -sums[1], -buckets[1]
        return PairSums(sums, buckets)

    @property
    def searches(self) -> Floats:
        """How many searches there are."""
        return np.asarray(self.sums[0])

    @property
    def mean(self) -> Floats:
        """The mean difference per search; 0 without any."""
        return np.asarray(self.sums[1] / np.maximum(self.sums[0], 1.0))

    @property
    def _apart(self) -> tuple[Floats, Floats]:
        """The sum of squares about the mean: of searches, and between buckets."""
        within = self.sums[3] - self.sums[1] * self.mean
        between = np.sum((self.buckets[1] - self.mean * self.buckets[0]) ** 2, axis=0)
        return np.maximum(within, 0.0), BUCKETS / (BUCKETS - 1) * between

    @property
    def error(self) -> Floats:
        """The standard error of the mean difference; 0 without any search."""
        return np.asarray(np.sqrt(np.maximum(*self._apart)) / np.maximum(self.sums[0], 1.0))

    @property
    def dispersion(self) -> Floats:
        """How much more the mean scatters than if searches were independent; at least 1.

        One user's searches are alike, so that they say less than as many users' would.
        """
        within, between = self._apart
        return np.asarray(np.maximum(between / np.where(within > 0, within, 1.0), 1.0))

    @property
    def enough(self) -> Booleans:
        """Whether there are clicks and units enough for an interval; until then it is too early."""
        _, _, size, square = self.sums
        squares = self.buckets[1] ** 2
        spread = squares.sum(axis=0) ** 2 / np.maximum((squares**2).sum(axis=0), 1e-300)
        decided = size * size / np.maximum(square, 1e-300)
        return np.asarray((square > 0) & (decided >= DECIDED) & (spread >= UNITS))

    @property
    def score(self) -> Floats:
        """The mean difference over its standard error; 0 where it is too early."""
        error = self.error
        known = self.enough & (error > 0)
        return np.asarray(np.where(known, self.mean / np.where(known, error, 1.0), 0.0))


def preference(sums: PairSums, confidence: float = 0.95, comparisons: int = 1) -> Lift:
    """Return which of two rankers is preferred, to be looked at whenever one likes.

    Parameters
    ----------
    sums : PairSums
    confidence : float, default 0.95
        Probability that no look ever misleads: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        How many such statements are to hold together.

    Returns
    -------
    Lift
        Its claim is ``better`` where the left ranker is; the difference is of credit per search.

    Raises
    ------
    InvalidValue
        If the confidence is another one.

    References
    ----------
    The boundary of benchmarks/FORMULAS.md; how often it errs, and for which users, docs/interleaving.md.

    Examples
    --------
    >>> sums = PairSums.empty()
    >>> sums.add([1.0, 0.0, 1.0, -1.0] * 100, [str(i // 4) for i in range(400)])
    >>> found = preference(sums)
    >>> found.claim, found.difference.estimate, round(found.difference.low, 2)
    ('better', 0.25, 0.12)
    """
    c = boundary(confidence, comparisons)
    if not sums.enough:
        return Lift("early")
    mean, radius = float(sums.mean), c * float(sums.error)
    low, high = mean - radius, mean + radius
    return Lift(claim_of(low, high), None, Interval(mean, low, high))


def chance_of_score(score: float) -> float:
    """Return the probability, at most, that a score ever gets so far from 0 without a difference.

    It is a p-value that holds at every look, by the formula that the boundaries of several
    comparisons come from: c² grows by 2 ln m.

    Examples
    --------
    >>> round(chance_of_score(3.25), 4), chance_of_score(0.0)
    (0.05, 1.0)
    """
    c = ANY_TIME[0.95]
    return min(1.0, 0.05 * math.exp((c * c - score * score) / 2))


def discoveries(chances: Sequence[float], share: float = 0.05) -> list[bool]:
    """Return which of several segments differ, with few false ones among them.

    Parameters
    ----------
    chances : sequence of float
        A p-value for each segment, such as :func:`chance_of_score`.
    share : float, default 0.05
        Of what is returned, so much is false at most, on average; in (0, 1].

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
    found = np.zeros(len(p), np.bool_)
    found[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return [bool(each) for each in found]
