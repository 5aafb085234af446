"""Target policies: whose value is to be estimated, as probabilities of arms row by row.

Anything with the methods of :class:`Target` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from tacit.core.arrays import Booleans, Floats
from tacit.evaluate.rows import LoggedRows


class Target(Protocol):
    """A policy to evaluate.

    Attributes
    ----------
    label : str
        How results call it.
    columns : frozenset of str
        The columns of the log that it looks at.
    """

    label: str
    columns: frozenset[str]

    def begin(self, every: bool = False) -> Self:
        """Return it as it is before the first row of a log; say whether ``every`` is needed."""

    def shown(self, rows: LoggedRows) -> Floats:
        """Return the probability of the arm that was shown, per row; called once per batch."""

    def every(self, rows: LoggedRows) -> Floats:
        """Return the probability of each arm, shape (rows, arms), in the order of
        ``rows.arm.names``; called after :meth:`shown` of the same batch."""

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return those of some arms that it may have shown in the rows so far, if it knows."""


class Uniform:
    """Every arm on offer with the same probability."""

    label = "uniform"
    columns: frozenset[str] = frozenset()

    def reached(self, arms: Sequence[str]) -> list[str]:
        return list(arms)

    def begin(self, every: bool = False) -> Self:
        return self

    def shown(self, rows: LoggedRows) -> Floats:
        sizes = np.array([len(offer) for offer in rows.offers], np.float64)
        return (1.0 / sizes)[rows.offer]

    def every(self, rows: LoggedRows) -> Floats:
        on_offer = offered(rows)
        return np.asarray((on_offer / on_offer.sum(axis=1, keepdims=True))[rows.offer], np.float64)


def offered(rows: LoggedRows) -> Booleans:
    """Return whether each arm is on each list of offers, shape (offers, arms)."""
    found = np.zeros((len(rows.offers), len(rows.arm.names)), np.bool_)
    for offer, arms in enumerate(rows.offers):
        found[offer, arms] = True
    return found


def impossible(rows: LoggedRows, row: int, arm: str, probability: float) -> str:
    """Return the message that a row could not have shown what the target would show there."""
    return (
        f"{rows.where(row)}: arms: the target policy shows {arm!r} with probability "
        f"{probability:g}, but it was not on offer, so the log could never have shown it; leave "
        "it out of the target policy, or take a log that offers it"
    )
