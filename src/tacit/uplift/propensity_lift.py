"""Lift without a holdout: what was shown, weighed by the chances with which it was.

A decision that showed arm A with the propensity q scores coef·(r − m), where coef compares what
the policy would have shown with what a control would have, over q, and m is the mean reward of
the decisions before. Its mean is the difference between the two, whatever m is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import InvalidValue
from tacit.uplift.boundary import LEAST_PROPENSITY, Interval, Lift, boundary, claim_of

ROWS = np.arange(5)[:, None]
ENOUGH = 10.0
"""The least information, in rewards over the mean square of coef, for an interval."""

UNEVEN = 0.01
"""So far apart, as a share, may chances be that are called even: a third may be written as 0.33."""

CHANCE = 4.0
"""By how many standard errors an average may miss what it should be, at whichever look."""


class Scores(NamedTuple):
    """Sums of one comparison.

    Attributes
    ----------
    n : array of float64
        Decisions.
    total, square : array of float64
        Sums of their rewards, and of the rewards' squares.
    d, dd : array of float64
        Sums of the scores, and of their squares.
    gg, g : array of float64
        Sums of coef² and of coef. Those of coef average 0 where all that the control shows could be shown.
    """

    n: Any
    total: Any
    square: Any
    d: Any
    dd: Any
    gg: Any
    g: Any = 0.0

    @property
    def enough(self) -> Booleans:
        """Whether there is traffic enough for an interval."""
        square, gg = (np.where(self.square > 0, self.square, 1.0), np.where(self.gg > 0, self.gg, 1.0))
        information = self.total * self.total / square * self.n / gg
        return np.asarray((self.square > 0) & (self.gg > 0) & (information >= ENOUGH))

    @property
    def even(self) -> bool:
        """Whether what was shown was as likely as the control shows it: then there is nothing to compare."""
        return bool(self.n and self.gg <= UNEVEN * UNEVEN * self.n)

    @property
    def covered(self) -> bool:
        """Whether all that the control shows could be shown: coefs average 0, but for chance and rounding.

        Where an arm that was on offer is as good as never shown to somebody, its weight is missing from the
        average, and what it would have earned from the comparison.
        """
        if not self.n:
            return True
        mean = self.g / self.n
        return bool(mean <= UNEVEN + CHANCE * np.sqrt(max(self.gg / self.n - mean * mean, 0.0) / self.n))

    def ends(self, c: float) -> tuple[Floats, Floats]:
        """Return the ends of the interval of the difference.

        The variance is at least that of scores whose rewards do not depend on what was shown:
        what was realised alone understates it where weights are heavy.
        """
        n = np.maximum(self.n, 1)
        variance = np.maximum(self.square / n - (self.total / n) ** 2, 0.0)
        realised = np.maximum(self.dd - self.d * self.d / n, 0.0)
        radius = c * np.sqrt(np.maximum(realised, variance * self.gg)) / n
        return np.asarray(self.d / n - radius), np.asarray(self.d / n + radius)

    def lift(self, confidence: float = 0.95, comparisons: int = 1) -> Lift:
        """Return the difference of mean rewards, in an interval that holds at any time.

        A ratio is not estimated. The interval is right in the limit of much traffic; where a
        guarantee is demanded, see the ``anytime`` intervals of ``tacit.off_policy``.

        Parameters
        ----------
        confidence : float, default 0.95
            0.9, 0.95 or 0.99.
        comparisons : int, default 1
            How many intervals are to hold together.

        Raises
        ------
        InvalidValue
            If the confidence is another one.
        """
        c = boundary(confidence, comparisons)
        if not self.enough or self.even:
            return Lift("early")
        low, high = map(float, self.ends(c))
        difference = Interval(float(self.d / self.n), low, high)
        return Lift(claim_of(low, high), None, difference)


class ScoreSums(NamedTuple):
    """Sums for all comparisons that logged propensities allow, kept in constant time.

    Attributes
    ----------
    overall : array of float64, shape (3,)
        Decisions, rewards, squares of rewards.
    policy, uniform : array of float64, shape (3,) and (4,)
        Of the policy's own value, and of its difference from arms drawn uniformly: scores, their
        squares, and coef²; of the latter coef, too.
    arms : array of float64, shape (5, arms)
        Of each arm's value: scores, their squares, coef²; then the products of the arm's and the
        policy's scores, and of their coefs.

    Notes
    -----
    See benchmarks/FORMULAS.md. Propensities must have a floor, such as an exploration floor or a share of
    uniform decisions; the smaller they are, the wider the intervals.

    Examples
    --------
    >>> sums = ScoreSums.empty(arms=2)
    >>> shown = np.arange(4000) % 2
    >>> sums.add(shown, shown * (np.arange(4000) % 3 == 0), np.full(4000, 0.5))
    >>> lift = sums.between(1, 0).lift()
    >>> lift.claim, round(lift.difference.estimate, 2)
    ('better', 0.33)
    """

    overall: Floats
    policy: Floats
    uniform: Floats
    arms: Floats

    @classmethod
    def empty(cls, arms: int) -> ScoreSums:
        """Return sums of nothing, for a number of arms."""
        return cls(np.zeros(3), np.zeros(3), np.zeros(4), np.zeros((5, arms)))

    def add(
        self,
        shown: npt.ArrayLike,
        rewards: npt.ArrayLike,
        propensities: npt.ArrayLike,
        policy: npt.ArrayLike | None = None,
        offered: npt.ArrayLike | None = None,
    ) -> None:
        """Add closed decisions, one after the other, in the order in which they were made.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        rewards : array of float, shape (n,)
        propensities : array of float, shape (n,)
            With what probability each was shown; in (0, 1].
        policy : array of float, shape (n,), optional
            With what probability the policy alone would have shown it, where a holdout took part
            in the propensity.
        offered : array of int, shape (n,), optional
            How many arms there were to show; all by default.

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
        own = (q if policy is None else np.asarray(policy, np.float64)) / q
        count = self.arms.shape[1] if offered is None else np.asarray(offered, np.float64)
        apart = r - self._means_before(r)
        _add(self.policy, own, apart)
        _add(self.uniform, own - 1 / (count * q), apart)
        score = apart / q
        kept = np.array([score, score * score, 1 / (q * q), own * apart * score, own / q])
        np.add.at(self.arms, (ROWS, arms), kept)

    def _means_before(self, rewards: Floats) -> Floats:
        """Return the mean reward before each decision; count them all."""
        ones = np.ones_like(rewards)
        running = _running(self.overall, ones, rewards, rewards * rewards)
        self.overall[:] = running[:, -1]
        return np.asarray(running[1, :-1] / np.maximum(running[0, :-1], 1))

    def over_uniform(self) -> Scores:
        """Return the comparison of the policy with arms drawn uniformly."""
        return self._scores(self.uniform)

    def over(self, arm: int) -> Scores:
        """Return the comparison of the policy with one arm, which was always to be had."""
        d, dd, gg, products, coefs = self.arms[:, arm]
        own = self.policy
        compared = own[0] - d, own[1] + dd - 2 * products, own[2] + gg - 2 * coefs
        return self._scores(compared)

    def between(self, arm: int, other: int) -> Scores:
        """Return the comparison of two arms, which were always to be had."""
        (d, dd, gg), (d2, dd2, gg2) = self.arms[:3, arm], self.arms[:3, other]
        return self._scores((d - d2, dd + dd2, gg + gg2))

    def _scores(self, compared: Iterable[Any]) -> Scores:
        return Scores(*self.overall, *compared)

    def merged(self, other: ScoreSums) -> ScoreSums:
        """Return the sums over the decisions of both."""
        return ScoreSums(*(a + b for a, b in zip(self, other, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        return {name: array.tolist() for name, array in zip(self._fields, self, strict=True)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScoreSums:
        """Return the sums that :meth:`as_dict` gave."""
        made = cls(*(np.array(data[name], np.float64) for name in cls._fields))
        # The first 0.3 had no sum of coef.
        return made._replace(uniform=np.append(made.uniform, np.zeros(4 - len(made.uniform))))


def _add(sums: Floats, coef: Floats, apart: Floats) -> None:
    score = coef * apart
    columns = score, score * score, coef * coef, coef
    sums[:] = _running(sums, *columns[: len(sums)])[:, -1]


def _running(before: Floats, *columns: Floats) -> Floats:
    """Return running sums of columns, from the left: the same bits however they are parted."""
    each = np.empty((len(columns), len(columns[0]) + 1))
    each[:, 0] = before
    each[:, 1:] = columns
    return np.asarray(np.add.accumulate(each, axis=1))


class Winner(NamedTuple):
    """Which arm is best, if that can be said.

    Attributes
    ----------
    leader : int
        The arm with the best estimate.
    declared : bool
        Whether it beats every other one, without doubt.
    behind : list of Interval
        By how much each of the arms earns less than the leader, per decision; the leader's own is 0.
    """

    leader: int
    declared: bool
    behind: list[Interval]


def winner(sums: ScoreSums, confidence: float = 0.95, arms: Sequence[int] | None = None) -> Winner | None:
    """Return which arm is best, on average over all decisions so far.

    The means may drift together, as they do over a day: counts of clicks would then declare false
    winners, propensities do not. Where the arms drift apart, it is said of these decisions alone.

    Parameters
    ----------
    sums : ScoreSums
        Of decisions that could show every one of these arms.
    confidence : float, default 0.95
        Probability that no look ever declares a false winner: 0.9, 0.95 or 0.99.
    arms : sequence of int, optional
        Those to compare; all by default.

    Returns
    -------
    Winner or None
        None if there is but one arm, or too little traffic.

    Raises
    ------
    InvalidValue
        If the confidence is another one.

    References
    ----------
    See benchmarks/FORMULAS.md.

    Examples
    --------
    >>> sums = ScoreSums.empty(arms=2)
    >>> shown = np.arange(4000) % 2
    >>> sums.add(shown, shown * (np.arange(4000) % 3 == 0), np.full(4000, 0.5))
    >>> found = winner(sums)
    >>> found.leader, found.declared, round(found.behind[0].low, 2)
    (1, True, 0.3)
    """
    compared = range(sums.arms.shape[1]) if arms is None else arms
    if len(compared) < 2:
        return None
    c = boundary(confidence, len(compared) - 1)
    leader = int(max(compared, key=lambda arm: sums.arms[0, arm]))
    pairs = {arm: sums.between(leader, arm) for arm in compared if arm != leader}
    if not all(pair.enough for pair in pairs.values()):
        return None
    behind = {arm: Interval(float(p.d / p.n), *map(float, p.ends(c))) for arm, p in pairs.items()}
    declared = all(interval.low > 0 for interval in behind.values())
    return Winner(leader, declared, [behind.get(arm, Interval(0.0, 0.0, 0.0)) for arm in compared])
