"""What came of one run of a dueling policy, and the regret of its comparisons."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.arrays import Floats, Ints
from tacit.dispatch import kernel


class Outcome(NamedTuple):
    """What came of one run.

    Attributes
    ----------
    winner : int
        Slot of the arm that is played against itself from then on.
    comparisons : int
        Comparisons spent before that.
    eliminated : tuple of int
        Slots in the order in which they left; arms of the same moment by their slot.
    regret, weak, strong : float
        Totals over the horizon of (ε(1, left) + ε(1, right))/2, of the lesser and of the greater
        of the two, ε(1, ·) being by how much the best arm beats the other beyond one half.
    """

    winner: int
    comparisons: int
    eliminated: tuple[int, ...]
    regret: float
    weak: float
    strong: float


@kernel
def charge(regret: Floats, left: float, right: float, times: float) -> None:
    """Add the regret, the weak and the strong regret of a comparison that was made ``times``."""
    regret[0] += times * 0.5 * (left + right)
    regret[1] += times * min(left, right)
    regret[2] += times * max(left, right)


def departures(left: Ints) -> tuple[int, ...]:
    """Return the arms that left, in order; those of the same moment by their slot.

    Parameters
    ----------
    left : array of int64, shape (arms,)
        Comparisons made when each arm left; −1 if it stayed.
    """
    order = np.argsort(left, kind="stable")
    return tuple(int(arm) for arm in order if left[arm] >= 0)
