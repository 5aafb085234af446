"""Detect arms that degrade a metric: compare each arm's metric with a baseline arm's, by propensities.

Each arm is compared with the baseline over the decisions that offer both, so that arms may be added
and removed, and requests may offer some of them. A decision that showed the arm A with the propensity q has
the score ±(w/q)·(x − m): x is its amount, m the mean amount of the earlier decisions, + for the arm, − for
the baseline. Its mean is w times the difference of both arms' mean amounts, for any w and m that are
determined before the draw. w is pr/(p + r), where p and r are predictions of both arms' propensities:
from the propensity of the last arm shown for the key, and from recent frequencies of the others. A
weight of 1/q alone, which is huge for a policy that has learned, would make intervals too wide.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.uplift.boundary import LEAST_PROPENSITY, Interval, boundary
from tacit.uplift.propensity_lift import MIN_INFORMATION, add_running

BLOCK = 64
"""Number of decisions between two updates of the arms' frequencies."""
DECAY = 1 - 1 / 200
"""Decay of a key's frequencies with each decision."""
PRIOR = 0.5
"""Pseudo-count of each arm."""
BUCKETS = 512
"""Number of buckets of keys; keys of one bucket share weights."""
MIN_PROBABILITY = 1e-4
"""Least predicted probability of all arms but the last one shown, together."""
N, TOTAL, SQUARE, WEIGHT, D, DD, GG = range(7)
ARRAYS = "sums", "known", "fresh", "last"


def hash_keys(keys: Sequence[str]) -> Ints:
    """Return the bucket, from 0 to 511, of each key, for frequencies by key."""
    return np.array([zlib.crc32(key.encode()) % BUCKETS for key in keys], np.int64)


class DegradationSums:
    """Sums of a metric for each arm against the baseline, updated in constant time.

    Parameters
    ----------
    arms : int

    Attributes
    ----------
    sums : array of float64, shape (7, arms)
        Over the decisions that offer both arms: number, sums of amounts, and of their squares; then of
        weights, of scores, of their squares, and of squares of w/q. 0 for the baseline.
    known, fresh : array of float64, shape (512, arms)
        Decayed frequency of each arm in each bucket of keys, before this block of decisions and in it.
    last : array of float64, shape (2, 512)
        The last arm shown in each bucket, and its propensity.
    seen : int
        Number of decisions.

    Notes
    -----
    Intervals with the half-width of :func:`~tacit.uplift.boundary` are valid at any time; with the numbers of
    :func:`count_comparisons` the intervals of all arms hold simultaneously. See benchmarks/GUARDRAIL.md for
    error rates.

    Examples
    --------
    >>> sums, shown = DegradationSums(arms=2), np.arange(8000) % 2
    >>> returned = shown * (np.arange(8000) % 10 == 1)
    >>> sums.add(shown, returned, np.full(8000, 0.5), np.ones((8000, 2), bool), baseline=0)
    >>> comparisons = count_comparisons(2, initial=2)
    >>> degradations = sums.find_degradations(margin=0.02, better="less", comparisons=comparisons)
    >>> {arm: round(interval.estimate, 2) for arm, interval in degradations.items()}
    {1: 0.2}
    """

    def __init__(self, arms: int) -> None:
        """Create sums over no decisions, all zero."""
        self.sums = np.zeros((7, arms))
        self.known, self.fresh = np.zeros((BUCKETS, arms)), np.zeros((BUCKETS, arms))
        self.last = np.zeros((2, BUCKETS))
        self.seen = 0

    def grow(self, arms: int) -> None:
        """Grow the arrays to ``arms`` arms in place; new arms start at 0."""
        new = ((0, 0), (0, arms - self.sums.shape[1]))
        self.sums, self.known, self.fresh = (np.pad(x, new) for x in (self.sums, self.known, self.fresh))

    def add(
        self,
        shown: npt.ArrayLike,
        amounts: npt.ArrayLike,
        propensities: npt.ArrayLike,
        offered: Booleans,
        baseline: int,
        buckets: Ints | None = None,
    ) -> None:
        """Add closed decisions to all sums and frequencies, in the order in which they were made, in place.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        amounts : array of float, shape (n,)
            Of the metric.
        propensities : array of float, shape (n,)
            Probability of each arm shown; in (0, 1].
        offered : array of bool, shape (n, arms)
            Which arms were on offer in each decision.
        baseline : int
            The arm that the others are compared with.
        buckets : array of int, shape (n,), optional
            Buckets of the keys (:func:`hash_keys`); by default there is one key.
        """
        arms: Ints = np.asarray(shown, np.int64)
        key_buckets: Ints = np.zeros_like(arms) if buckets is None else buckets
        x = np.asarray(amounts, np.float64)
        q = np.maximum(np.asarray(propensities, np.float64), LEAST_PROPENSITY)
        last = self._update_last(arms, q, key_buckets)
        start = 0
        while start < len(arms):
            # Blocks are those of all decisions so far, whatever the sizes of calls.
            block = slice(start, start + BLOCK - self.seen % BLOCK)
            predicted = self._predict_propensities(key_buckets[block], last[:, block])
            self._add_block(arms[block], x[block, None], q[block, None], offered[block], baseline, predicted)
            np.add.at(self.fresh, (key_buckets[block], arms[block]), 1.0)
            self.seen += len(arms[block])
            start = block.stop
            if self.seen % BLOCK == 0:
                # Once for each decision of the bucket in the block.
                self.known = self.known * DECAY ** self.fresh.sum(axis=1, keepdims=True) + self.fresh
                self.fresh = np.zeros_like(self.fresh)

    def _update_last(self, arms: Ints, q: Floats, buckets: Ints) -> Floats:
        """Return the last arm shown before each decision in its bucket, and its propensity; shape (2, n).

        ``arms`` and ``q`` are the decisions' arms and propensities. A propensity of 0 means that there was no
        arm before. Also updates the attribute ``last``.
        """
        # Sorted by bucket, the decision before is the column before; the first of a bucket follows ``last``.
        order = np.argsort(buckets, kind="stable")
        sorted_buckets, current = buckets[order], np.array([arms, q])[:, order]
        before = np.hstack([np.zeros((2, 1)), current[:, :-1]])
        first = np.diff(sorted_buckets, prepend=-1) != 0
        before[:, first] = self.last[:, sorted_buckets[first]]
        ends = np.diff(sorted_buckets, append=-1) != 0
        self.last[:, sorted_buckets[ends]] = current[:, ends]
        previous = np.empty_like(before)
        previous[:, order] = before
        return previous

    def _predict_propensities(self, buckets: Ints, last: Floats) -> Floats:
        """Return each arm's predicted propensity, shape (n, arms), from data before each decision.

        ``last`` is the last arm shown in the decision's bucket of keys, and its propensity, which that arm
        keeps; the others share the rest by their frequencies. Without a last arm, all are frequencies.
        """
        frequencies = self.known[buckets] + PRIOR
        rows, last_arms = np.arange(len(buckets)), last[0].astype(np.int64)
        has_last = last[1] > 0
        other_counts = frequencies.sum(axis=1) - frequencies[rows, last_arms]
        predicted = frequencies / frequencies.sum(axis=1, keepdims=True)
        other_share = np.maximum(1.0 - last[1], MIN_PROBABILITY) / np.where(
            other_counts > 0, other_counts, 1.0
        )
        predicted[has_last] = (frequencies * other_share[:, None])[has_last]
        predicted[rows[has_last], last_arms[has_last]] = last[1, has_last]
        return np.asarray(predicted, np.float64)

    def _add_block(
        self, arms: Ints, x: Floats, q: Floats, offered: Booleans, baseline: int, p: Floats
    ) -> None:
        """Add the scores of a block of decisions, ±(w/q)·(x − m), to ``sums``, in place.

        ``x`` and ``q`` are columns of amounts and propensities, ``p`` the predicted propensities of all arms,
        shape (n, arms); w = p·p₀/(p + p₀), with p₀ of the baseline, and m is the mean amount before a
        decision. Only decisions with both the arm and the baseline on offer count for an arm.
        """
        both = offered & offered[:, baseline : baseline + 1]
        both[:, baseline] = False
        weight = both * (p * p[:, baseline : baseline + 1] / (p + p[:, baseline : baseline + 1]))
        before = add_running(self.sums[:D], both, both * x, both * x * x, weight)
        # Column i has the sums before decision i, the last column those after all.
        mean = before[TOTAL, :-1] / np.maximum(before[N, :-1], 1)
        sign = (np.arange(both.shape[1]) == arms[:, None]) * 1.0 - (arms == baseline)[:, None]
        coef = sign * weight / q
        score = coef * (x - mean)
        after = add_running(self.sums[D:], score, score * score, coef * coef)
        self.sums[:D], self.sums[D:] = before[:, -1], after[:, -1]

    def find_degradations(
        self,
        margin: float,
        better: Literal["more", "less"],
        comparisons: Sequence[int],
        confidence: float = 0.95,
    ) -> dict[int, Interval]:
        """Return the arms whose metric is significantly worse than the baseline's by more than a margin.

        Arms with too little data are left out.

        Parameters
        ----------
        margin : float
            Tolerated degradation, as an amount per decision; at least 0.
        better : str
            Whether ``more`` of the metric is better, or ``less``.
        comparisons : sequence of int
            For each arm, from :func:`count_comparisons`.
        confidence : float, default 0.95
            Probability that no arm is ever reported wrongly: 0.9, 0.95 or 0.99.

        Returns
        -------
        dict of int to Interval
            From each degraded arm to its metric minus the baseline's, per decision.
        """
        n, total, square, weight, d, dd, gg = self.sums
        is_defined = (weight > 0) & (gg > 0) & (square > 0)
        n, weight = np.maximum(n, 1), np.where(is_defined, weight, 1.0)
        # The information, as a number of amounts in an unweighted comparison.
        has_information = is_defined & (total**2 * weight**2 >= MIN_INFORMATION * n * square * gg)
        variance = np.maximum(square / n - (total / n) ** 2, 0.0)
        # At least the variance of scores whose amounts are independent of the arms shown.
        spread = np.sqrt(np.maximum(np.maximum(dd - d * d / n, 0.0), variance * gg))
        radius = np.array([boundary(confidence, m) for m in comparisons]) * spread / weight
        mean = d / weight
        low, high = mean - radius, mean + radius
        is_worse = has_information & (low > margin if better == "less" else high < -margin)
        return {
            arm: Interval(float(mean[arm]), float(low[arm]), float(high[arm]))
            for arm in np.flatnonzero(is_worse).tolist()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the sums and frequencies as JSON data, by attribute."""
        return {name: getattr(self, name).tolist() for name in ARRAYS} | {"seen": self.seen}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> DegradationSums:
        """Return the sums from the JSON data of :meth:`as_dict`."""
        sums = cls(len(saved["sums"][0]))
        for name in ARRAYS:
            setattr(sums, name, np.array(saved[name], np.float64))
        sums.seen = saved["seen"]
        return sums


def count_comparisons(arms: int, initial: int) -> list[int]:
    """Return the number of comparisons for each arm's interval, with which all intervals hold simultaneously.

    An interval for m comparisons has an m-th of the probability of error. Each of K initial arms has a K-th,
    so the K − 1 arms other than the baseline have (K − 1)/K; the j-th arm, if it was added later, has
    1/(j(j + 1)), in total 1/K for any number of later arms.

    Parameters
    ----------
    arms : int
        Number of all arms, including removed ones.
    initial : int
        Number of arms at the beginning, including the baseline.

    Examples
    --------
    >>> count_comparisons(5, initial=3)
    [3, 3, 3, 12, 20]
    """
    return [initial if arm < initial else arm * (arm + 1) for arm in range(arms)]
