"""Lift without a holdout, from logged propensities.

A decision that showed arm A with the propensity q has the score coef·(r − m), where coef is the policy's
probability of A minus the control's, over q, and m is the mean reward of the earlier decisions.
The mean score estimates the difference of mean rewards between the two, for any m.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import InvalidValue
from tacit.uplift.boundary import LEAST_PROPENSITY, Interval, Lift, boundary, claim_from_interval

ROWS = np.arange(5)[:, None]
"""Rows of :attr:`ScoreSums.arms`, as a column: with arms as a row, an index of one cell each."""
MIN_INFORMATION = 10.0
"""The least information, in rewards over the mean square of coef, for an interval."""

TOLERANCE = 0.01
"""Relative tolerance of equal probabilities: a third may be written as 0.33."""

MAX_DEVIATION = 4.0
"""Standard errors by which a mean may deviate from its expectation, at any time."""


class Scores(NamedTuple):
    """Sums of scores for one comparison.

    Attributes
    ----------
    n : array of float64
        Number of decisions.
    total, square : array of float64
        Sums of their rewards, and of the rewards' squares.
    d, dd : array of float64
        Sums of the scores, and of their squares.
    gg, g : array of float64
        Sums of coef² and of coef. The mean of coef is 0 if every arm of the control could be shown.
    """

    n: Any
    total: Any
    square: Any
    d: Any
    dd: Any
    gg: Any
    g: Any = 0.0

    @property
    def has_enough_data(self) -> Booleans:
        """True if there is enough traffic and reward for an interval."""
        square, gg = (np.where(self.square > 0, self.square, 1.0), np.where(self.gg > 0, self.gg, 1.0))
        information = self.total * self.total / square * self.n / gg
        return np.asarray((self.square > 0) & (self.gg > 0) & (information >= MIN_INFORMATION))

    @property
    def is_even(self) -> bool:
        """True if policy and control have the same propensities, so that there is nothing to compare."""
        return bool(self.n and self.gg <= TOLERANCE * TOLERANCE * self.n)

    @property
    def is_covered(self) -> bool:
        """True if every arm of the control could be shown: the mean of coef is 0 within error.

        If an arm on offer is practically never shown in some decisions, its weight is missing from the
        mean of coef, and its reward from the comparison.
        """
        if not self.n:
            return True
        # Weight that the control lacks makes the mean positive.
        mean = self.g / self.n
        variance = max(self.gg / self.n - mean * mean, 0.0)
        return bool(mean <= TOLERANCE + MAX_DEVIATION * np.sqrt(variance / self.n))

    def interval(self, c: float) -> tuple[Floats, Floats]:
        """Return low and high of the interval of the difference, of half-width ``c`` standard errors.

        The variance is at least that of scores whose rewards are independent of the arms shown:
        the empirical variance alone is too small if weights are heavy.
        """
        n = np.maximum(self.n, 1)
        variance = np.maximum(self.square / n - (self.total / n) ** 2, 0.0)
        empirical = np.maximum(self.dd - self.d * self.d / n, 0.0)
        radius = c * np.sqrt(np.maximum(empirical, variance * self.gg)) / n
        return np.asarray(self.d / n - radius), np.asarray(self.d / n + radius)

    def lift(self, confidence: float = 0.95, comparisons: int = 1) -> Lift:
        """Return the difference of mean rewards as a lift, with an interval valid at any time.

        The claim is ``early`` without enough data, or if policy and control have the same propensities. A
        ratio is not estimated. The interval is asymptotic; for a guarantee, see the ``anytime`` intervals of
        ``tacit.off_policy``.

        Parameters
        ----------
        confidence : float, default 0.95
            0.9, 0.95 or 0.99.
        comparisons : int, default 1
            Number of intervals that hold simultaneously.

        Raises
        ------
        InvalidValue
            If the confidence is not one of these.
        """
        c = boundary(confidence, comparisons)
        if not self.has_enough_data or self.is_even:
            return Lift("early")
        low, high = map(float, self.interval(c))
        difference = Interval(float(self.d / self.n), low, high)
        return Lift(claim_from_interval(low, high), ratio=None, difference=difference)


class ScoreSums(NamedTuple):
    """Sums for comparisons of the policy with arms and with uniform choice, updated in constant time.

    Attributes
    ----------
    overall : array of float64, shape (3,)
        Number of decisions, sum of rewards, sum of their squares.
    policy, uniform : array of float64, shape (3,) and (4,)
        For the policy's value, and for its difference from uniform choice: sums of scores, of their
        squares, and of coef²; for the latter also of coef.
    arms : array of float64, shape (5, arms)
        For each arm's value: sums of scores, of their squares, and of coef²; then of the products of the
        arm's and the policy's scores, and of their coefs.

    Notes
    -----
    See benchmarks/FORMULAS.md. Propensities must have a lower bound, from an exploration floor or a share of
    uniform decisions; the smaller they are, the wider the intervals.

    Examples
    --------
    >>> sums = ScoreSums.empty(arms=2)
    >>> shown = np.arange(4000) % 2
    >>> sums.add(shown, shown * (np.arange(4000) % 3 == 0), np.full(4000, 0.5))
    >>> lift = sums.compare_arms(1, 0).lift()
    >>> lift.claim, round(lift.difference.estimate, 2)
    ('better', 0.33)
    """

    overall: Floats
    policy: Floats
    uniform: Floats
    arms: Floats

    @classmethod
    def empty(cls, arms: int) -> ScoreSums:
        """Return sums over no decisions, for this number of arms."""
        return cls(np.zeros(3), np.zeros(3), np.zeros(4), np.zeros((5, arms)))

    def add(
        self,
        shown: npt.ArrayLike,
        rewards: npt.ArrayLike,
        propensities: npt.ArrayLike,
        policy: npt.ArrayLike | None = None,
        offered: npt.ArrayLike | None = None,
    ) -> None:
        """Add closed decisions to all sums, in the order in which they were made, in place.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        rewards : array of float, shape (n,)
        propensities : array of float, shape (n,)
            Probability of each arm shown; in (0, 1].
        policy : array of float, shape (n,), optional
            Probability of each arm shown under the policy alone, if the propensity includes a holdout.
        offered : array of int, shape (n,), optional
            Number of arms on offer; all by default.

        Raises
        ------
        InvalidValue
            If a propensity is outside (0, 1].
        """
        arms: Ints = np.asarray(shown, np.int64)
        r, q = np.asarray(rewards, np.float64), np.asarray(propensities, np.float64)
        if not ((q > 0) & (q <= 1)).all():
            raise InvalidValue("propensities", propensities, "give probabilities in (0, 1]")
        q = np.maximum(q, LEAST_PROPENSITY)
        policy_weight = (q if policy is None else np.asarray(policy, np.float64)) / q
        count = self.arms.shape[1] if offered is None else np.asarray(offered, np.float64)
        deviation = r - self._compute_means_before(r)
        _add_scores(self.policy, policy_weight, deviation)
        _add_scores(self.uniform, policy_weight - 1 / (count * q), deviation)
        score = deviation / q
        additions = [score, score * score, 1 / (q * q), policy_weight * deviation * score, policy_weight / q]
        np.add.at(self.arms, (ROWS, arms), np.array(additions))

    def _compute_means_before(self, rewards: Floats) -> Floats:
        """Return the mean reward before each decision, 0 for the first; add the decisions to ``overall``."""
        running = add_running(self.overall, np.ones_like(rewards), rewards, rewards * rewards)
        self.overall[:] = running[:, -1]
        return np.asarray(running[1, :-1] / np.maximum(running[0, :-1], 1))

    def compare_with_uniform(self) -> Scores:
        """Return the sums of scores that compare the policy with uniform choice."""
        return self._make_scores(self.uniform)

    def compare_with_arm(self, arm: int) -> Scores:
        """Return the sums of scores that compare the policy with one arm.

        The arm must always have been on offer.
        """
        d, dd, gg, products, coefs = self.arms[:, arm]
        # The score is a difference of scores: (a − b)² = a² + b² − 2ab.
        policy_sums = self.policy
        compared = policy_sums[0] - d, policy_sums[1] + dd - 2 * products, policy_sums[2] + gg - 2 * coefs
        return self._make_scores(compared)

    def compare_arms(self, arm: int, other: int) -> Scores:
        """Return the sums of scores that compare two arms; both must always have been on offer.

        Scores are positive where ``arm`` earns more than ``other``.
        """
        # A decision shows only one of the two, so that products of their scores are 0.
        (d, dd, gg), (d2, dd2, gg2) = self.arms[:3, arm], self.arms[:3, other]
        return self._make_scores((d - d2, dd + dd2, gg + gg2))

    def _make_scores(self, compared: Iterable[Any]) -> Scores:
        """Return the overall counts and ``compared``, the sums of scores d, dd, gg and perhaps g, as one."""
        return Scores(*self.overall, *compared)

    def merge(self, other: ScoreSums) -> ScoreSums:
        """Return new sums over the decisions of both."""
        return ScoreSums(*(a + b for a, b in zip(self, other, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as JSON data: lists by field name."""
        return {name: array.tolist() for name, array in zip(self._fields, self, strict=True)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScoreSums:
        """Return the sums from the JSON data of :meth:`as_dict`, also of earlier releases."""
        sums = cls(*(np.array(data[name], np.float64) for name in cls._fields))
        # Data from the first 0.3 release lacks the sum of coef.
        return sums._replace(uniform=np.append(sums.uniform, np.zeros(4 - len(sums.uniform))))


def _add_scores(sums: Floats, coef: Floats, deviation: Floats) -> None:
    """Add decisions to ``sums`` in place: scores, their squares, coef² and, as a fourth sum if any, coef.

    A score is coef times the deviation of the reward from the mean reward before.
    """
    score = coef * deviation
    columns = score, score * score, coef * coef, coef
    sums[:] = add_running(sums, *columns[: len(sums)])[:, -1]


def add_running(before: Floats, *columns: npt.NDArray[Any]) -> Floats:
    """Return the running sums of each column over n decisions, from ``before`` on; shape (columns, n + 1, …).

    A column has the shape (n, …). Sums are added one by one, so that the bits do not depend on batch sizes.
    """
    running = np.empty((len(columns), len(columns[0]) + 1, *before.shape[1:]))
    running[:, 0] = before
    running[:, 1:] = columns
    return np.asarray(np.add.accumulate(running, axis=1))


class Winner(NamedTuple):
    """The best arm, if it is significantly better.

    Attributes
    ----------
    leader : int
        The arm with the best estimate.
    declared : bool
        True if it significantly beats every other arm.
    behind : list of Interval
        Leader's mean reward per decision minus each arm's; 0 for the leader.
    """

    leader: int
    declared: bool
    behind: list[Interval]


def winner(sums: ScoreSums, confidence: float = 0.95, arms: Sequence[int] | None = None) -> Winner | None:
    """Return the arm with the best mean reward over all decisions so far, and whether that is significant.

    The arms' means may drift together, as over a day: click counts could then declare a false winner, this
    weighting by propensities does not. If arms drift apart, the result is about these decisions only.

    Parameters
    ----------
    sums : ScoreSums
        Of decisions that could show every one of these arms.
    confidence : float, default 0.95
        Probability that no false winner is ever declared: 0.9, 0.95 or 0.99.
    arms : sequence of int, optional
        Arms to compare; all by default.

    Returns
    -------
    Winner or None
        None if there is only one arm, or too little traffic.

    Raises
    ------
    InvalidValue
        If the confidence is not one of these.

    References
    ----------
    See benchmarks/FORMULAS.md.

    Examples
    --------
    >>> sums = ScoreSums.empty(arms=2)
    >>> shown = np.arange(4000) % 2
    >>> sums.add(shown, shown * (np.arange(4000) % 3 == 0), np.full(4000, 0.5))
    >>> result = winner(sums)
    >>> result.leader, result.declared, round(result.behind[0].low, 2)
    (1, True, 0.3)
    """
    compared = range(sums.arms.shape[1]) if arms is None else arms
    if len(compared) < 2:
        return None
    c = boundary(confidence, len(compared) - 1)
    leader = int(max(compared, key=lambda arm: sums.arms[0, arm]))  # by the sums of scores
    pairs = {arm: sums.compare_arms(leader, arm) for arm in compared if arm != leader}
    if not all(pair.has_enough_data for pair in pairs.values()):
        return None
    differences = {arm: Interval(float(p.d / p.n), *map(float, p.interval(c))) for arm, p in pairs.items()}
    declared = all(interval.low > 0 for interval in differences.values())
    return Winner(leader, declared, [differences.get(arm, Interval(0.0, 0.0, 0.0)) for arm in compared])
