"""What the control of a holdout shows, and with what probability it would have shown something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.service.config.holdout import BASELINE


class Control:
    """A control that shows one arm: drawn uniformly, the first one on offer, or one always.

    Parameters
    ----------
    named : str
        ``uniform`` or ``baseline``; read where no slot is given.
    slot : int, optional
        Of the arm that is shown always.

    Examples
    --------
    >>> Control("baseline").shown(np.array([2, 0, 1]), draw=7)
    array([2])
    >>> Control("uniform").chances(np.array([[2], [0]]), [np.arange(4), np.arange(2)])
    array([0.25, 0.5 ])
    """

    width = 1

    def __init__(self, named: str, slot: int | None = None) -> None:
        self._first, self._slot = named == BASELINE, slot

    def shown(self, offer: Ints, draw: int) -> Ints:
        """Return the slots of what is shown, by a number that nobody can foresee.

        Parameters
        ----------
        offer : array of int64
            Slots of the arms on offer; the first one is the baseline.
        draw : int
            Below 2**64.
        """
        return np.full(self.width, self._arm(offer, draw), np.int64)

    def _arm(self, offer: Ints, draw: int) -> int:
        if self._slot is not None:
            # A request that was checked before the holdout changed may not offer it.
            return self._slot if self._slot < 0 or self._slot in offer else int(offer[0])
        return int(offer[0 if self._first else draw % len(offer)])

    def chances(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have shown the same.

        Parameters
        ----------
        shown : array of int64, shape (rows, width)
        offers : sequence of array of int64
        """
        first = shown[:, 0]
        if self._slot is not None:
            found = first == [self._arm(offer, 0) for offer in offers]
        elif self._first:
            found = first == [offer[0] for offer in offers]
        else:
            found = 1.0 / np.array(list(map(len, offers)), np.float64)
        return np.asarray((shown == first[:, None]).all(axis=1) * found, np.float64)


class PairControl(Control):
    """A control of duels: the list of one ranker alone."""

    width = 2


class ListControl(Control):
    """A control that lists arms: in a random order, or as they come.

    Parameters
    ----------
    named : str
    positions : int

    Examples
    --------
    >>> control = ListControl("baseline", positions=2)
    >>> control.shown(np.array([2, 0, 1]), draw=7)
    array([2, 0])
    >>> ListControl("uniform", positions=2).chances(np.array([[2, 0]]), [np.arange(3)]).round(3)
    array([0.167])
    """

    def __init__(self, named: str, positions: int) -> None:
        super().__init__(named)
        self.width = positions

    def shown(self, offer: Ints, draw: int) -> Ints:
        """Return the slots of a list; −1 where too few are on offer."""
        listed = np.full(self.width, -1, np.int64)
        if not self._first:
            offer = np.random.Generator(np.random.PCG64(draw)).permutation(offer)
        count = min(self.width, len(offer))
        listed[:count] = offer[:count]
        return listed

    def chances(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have shown the same list."""
        return self.prefixes(shown, offers)[:, -1]

    def prefixes(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability its list would have begun so, down to each position."""
        return np.asarray(np.cumprod(self._given_above(shown, offers), axis=1), np.float64)

    def places(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have had each arm at its position."""
        if self._first:
            return self._given_above(shown, offers)
        sizes = np.array(list(map(len, offers)), np.float64)[:, None]
        return np.where(shown >= 0, 1.0 / sizes, self._given_above(shown, offers))

    def _given_above(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it has each arm at its position, given those above."""
        found = np.empty(shown.shape)
        for row, slots, offer in zip(found, shown, offers, strict=True):
            if self._first:
                row[:] = slots == self.shown(offer, 0)
            else:
                left = len(offer) - np.arange(self.width)
                # Where none is left the position is empty, and only there.
                row[:] = np.where(left > 0, (slots >= 0) / np.maximum(left, 1), slots < 0)
        return found
