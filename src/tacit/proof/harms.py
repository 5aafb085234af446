"""Which arms do harm: a metric of each arm against that of one arm, weighed by propensities.

Each arm is held against the baseline over the decisions that could show both, so that arms may come
and go, and requests may offer some of them. The scores are those of :mod:`tacit.proof.scores`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.proof.boundary import Interval, boundary
from tacit.proof.scores import Scores


class HarmSums(NamedTuple):
    """Sums of a metric for each arm against the baseline, kept in constant time.

    Attributes
    ----------
    sums : array of float64, shape (6, arms)
        The fields of :class:`~tacit.proof.Scores` of each arm; of the baseline nothing.

    Notes
    -----
    Error: the intervals of :func:`~tacit.proof.boundary` hold at any time, and
    :func:`comparisons_of` says how wide they are so that all of them hold together.

    Examples
    --------
    >>> sums, arms = HarmSums.empty(2), np.arange(8000) % 2
    >>> returned = arms * (np.arange(8000) % 10 == 1)
    >>> sums.add(arms, returned, np.full(8000, 0.5), np.ones((8000, 2), bool), baseline=0)
    >>> harms = sums.harms(margin=0.02, better="less", comparisons=comparisons_of(2, begun=2))
    >>> {arm: round(harm.estimate, 2) for arm, harm in harms.items()}
    {1: 0.2}
    """

    sums: Floats

    @classmethod
    def empty(cls, arms: int) -> HarmSums:
        """Return sums of nothing, for a number of arms."""
        return cls(np.zeros((6, arms)))

    def reaching(self, arms: int) -> HarmSums:
        """Return the same sums with room for so many arms; more than there were."""
        return HarmSums(np.hstack([self.sums, np.zeros((6, arms - self.sums.shape[1]))]))

    def add(
        self, shown: npt.ArrayLike, amounts: npt.ArrayLike, propensities: npt.ArrayLike,
        offered: Booleans, baseline: int,
    ) -> None:  # fmt: skip
        """Add closed decisions, one after the other, in the order in which they were made.

        Parameters
        ----------
        shown : array of int, shape (n,)
            The arms shown.
        amounts : array of float, shape (n,)
            Of the metric.
        propensities : array of float, shape (n,)
            With what probability each was shown; in (0, 1].
        offered : array of bool, shape (n, arms)
            Which arms each could show.
        baseline : int
            The arm that the others are held against.
        """
        arms: Ints = np.asarray(shown, np.int64)
        amount = np.asarray(amounts, np.float64)[:, None]
        both = offered & offered[:, baseline : baseline + 1]
        both[:, baseline] = False
        before = _running(self.sums[:3], both, both * amount, both * amount * amount)
        mean = before[1, :-1] / np.maximum(before[0, :-1], 1)
        signs = (np.arange(both.shape[1]) == arms[:, None]) * 1.0 - (arms == baseline)[:, None]
        coef = both * signs / np.asarray(propensities, np.float64)[:, None]
        score = coef * (amount - mean)
        after = _running(self.sums[3:], score, score * score, coef * coef)
        self.sums[:3], self.sums[3:] = before[:, -1], after[:, -1]

    def harms(
        self, margin: float, better: Literal["more", "less"], comparisons: npt.ArrayLike,
        confidence: float = 0.95,
    ) -> dict[int, Interval]:  # fmt: skip
        """Return the arms whose metric is worse than the baseline's by more than a margin, without doubt.

        Parameters
        ----------
        margin : float
            Amount for a decision, at least 0.
        better : str
            Whether ``more`` of the metric is better, or ``less``.
        comparisons : array of int, shape (arms,)
            As :func:`comparisons_of` says.
        confidence : float, default 0.95
            Probability that no arm is ever named wrongly: 0.9, 0.95 or 0.99.

        Returns
        -------
        dict of int to Interval
            Of each such arm, by how much its metric exceeds the baseline's.
        """
        scores = Scores(*self.sums)
        c = np.array([boundary(confidence, m) for m in np.asarray(comparisons).tolist()])
        low, high = scores.ends(c)
        worse = scores.enough & (low > margin if better == "less" else high < -margin)
        mean = self.sums[3] / np.maximum(self.sums[0], 1)
        return {
            arm: Interval(float(mean[arm]), float(low[arm]), float(high[arm]))
            for arm in np.flatnonzero(worse).tolist()
        }


def _running(before: Floats, *rows: npt.ArrayLike) -> Floats:
    """Return running sums from the first row on: the same bits however decisions are parted."""
    each = np.empty((len(rows), len(np.asarray(rows[0])) + 1, before.shape[1]))
    each[:, 0] = before
    for sums, row in zip(each, rows, strict=True):
        sums[1:] = row
    return np.asarray(np.add.accumulate(each, axis=1))


def comparisons_of(arms: int, begun: int) -> list[int]:
    """Return among how many comparisons each arm's counts, so that all of them hold together.

    An arm of the beginning has the K-th part of the error, K of them K − 1 parts without the baseline;
    the j-th arm, if it came later, 1/(j(j + 1)), which is 1/K for all that may ever come.

    Parameters
    ----------
    arms : int
        All that there ever were.
    begun : int
        How many there were in the beginning, the baseline one of them.

    Examples
    --------
    >>> comparisons_of(5, begun=3)
    [3, 3, 3, 12, 20]
    """
    return [begun if arm < begun else arm * (arm + 1) for arm in range(arms)]
