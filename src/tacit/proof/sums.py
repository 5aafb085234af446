"""Sums over closed decisions, by group: all that the lift of a holdout is computed from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue

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
    Which reward belongs to which method: see docs/proof.md. Add decisions whose window is closed,
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
            If buckets are missing, or not asked for.
        """
        if (buckets is None) != (self.buckets is None):
            raise InvalidValue("buckets", buckets, "give them where sums are clustered, only there")
        of, earned = np.asarray(groups, np.int64), np.asarray(rewards, np.float64)
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
