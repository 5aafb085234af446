"""Which decisions a learner has learned: one that is learned twice counts twice."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Sequence

import numpy as np

from tacit.core.arrays import Booleans, Ints
from tacit.errors import AssumptionWarning
from tacit.learning.decisions import Decision, Decisions

LATEST = 8192
"""How many of the decisions learned last are remembered, by their numbers modulo this."""
NEWEST = LATEST - 1


class Learned:
    """The decisions of a learner that it learned last; says once that one comes again.

    Attributes
    ----------
    ring : array of int
        At each number modulo its length the latest of these that was learned; −1 for none.
    told : bool
        Whether a repetition was told, after which none is looked for.
    """

    def __init__(self) -> None:
        self.ring = array("q", [-1]) * LATEST
        self.told = False

    def tell(self, decision: Decision, made: int, again: int = 1) -> None:
        """Warn, once, that decisions were learned before; the first of them is given.

        A learner that made fewer knows the number only from another one.
        """
        if self.told or decision.id >= made:
            return
        self.told = True
        warnings.warn(
            f"decision: {again:,} learned before and counted twice, first {decision.id} of key "
            f"{decision.key!r}; learn each decision once, and change what was learned by "
            "correct_many (decisions of several learners share their numbers: to tell them apart, "
            "let a learner learn either its own or those of others)",
            AssumptionWarning,
            stacklevel=3,
        )

    def many(self, decisions: Sequence[Decision], made: int) -> None:
        """Remember decisions that were learned, and tell of those that come again."""
        if self.told or not len(decisions):
            return
        if isinstance(decisions, Decisions):
            numbers = decisions.first_id + np.arange(len(decisions))
        else:
            numbers = np.array([decision.id for decision in decisions], np.int64)
        ring = np.frombuffer(self.ring, np.int64)
        again = (ring[numbers % LATEST] == numbers) | _seen_above(numbers, decisions)
        again &= numbers < made
        ring[numbers % LATEST] = numbers
        if again.any():
            self.tell(decisions[int(np.argmax(again))], made, int(again.sum()))


def _seen_above(numbers: Ints, decisions: Sequence[Decision]) -> Booleans:
    """Return of each number whether it stands further above, too."""
    again = np.zeros(len(numbers), np.bool_)
    if not isinstance(decisions, Decisions):
        again[:] = True
        again[np.unique(numbers, return_index=True)[1]] = False
    return again
