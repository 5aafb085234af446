"""The outcome of a sampled run, and the regret of its comparisons."""

from __future__ import annotations

from typing import NamedTuple

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.policies.duels.working_set import elimination_order


class SampledRun(NamedTuple):
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
    wins : float
        Comparisons that the left arm won.
    """

    winner: int
    comparisons: int
    eliminated: tuple[int, ...]
    regret: float
    weak: float
    strong: float
    wins: float


@kernel
def charge(totals: Floats, left: float, right: float, times: float, wins: float) -> None:
    """Add a comparison that was made ``times``: regret, weak and strong regret, and wins."""
    totals[0] += times * 0.5 * (left + right)
    totals[1] += times * min(left, right)
    totals[2] += times * max(left, right)
    totals[3] += wins


def concluded(
    winner: int, spent: int, left: Ints, totals: Floats, gaps: Floats, horizon: int, rng: Generator
) -> SampledRun:
    """Return the outcome of a run, with what is left of the horizon played by the winner."""
    rest = horizon - spent
    regret, weak, strong = totals[:3] + rest * gaps[winner]
    wins = totals[3] + rng.binomial(rest, 0.5)
    found = int(winner), int(spent), elimination_order(left)
    return SampledRun(*found, float(regret), float(weak), float(strong), float(wins))
