"""Duels that eliminate arms: the working set, the ones due to play first; and whole runs drawn at once."""

# 1. ``WorkingSet``: those still in, with those of fewest comparisons in front, by exchanges alone.
# 2. ``Eliminating``: what such policies promise and find.
# 3. Whole runs drawn at once: binomial draws that stay accurate up to 10¹⁰ trials, and what a run came to.

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import Permutation, ValueRange
from tacit.policies.actions import DuelPolicy
from tacit.policies.base import Impression

MANY = 2**62


class WorkingSet(NamedTuple):
    """Which arms are still in, per lane; those with the fewest comparisons come first.

    Attributes
    ----------
    members : array of int64, shape (lanes, arms)
        The arms still in, then the others.
    place : array of int64, shape (lanes, arms)
        Where each arm is in ``members``.
    size, due : array of int64, shape (lanes,)
        How many arms are in, and how many of these have the fewest comparisons.
    left : array of int64, shape (lanes, arms)
        Comparisons made when an arm left; −1 while it has not.
    """

    members: Permutation
    place: Permutation
    size: Annotated[Ints, ValueRange(0, 0, "arms")]
    due: Annotated[Ints, ValueRange(0, 0, "arms")]
    left: Annotated[Ints, ValueRange(-1)]

    @classmethod
    def full(cls, lanes: int, arms: int) -> WorkingSet:
        """Return the working sets of lanes that have seen nothing."""
        slots = np.tile(np.arange(arms), (lanes, 1))
        every = np.full(lanes, arms)
        return cls(slots, slots.copy(), every, every.copy(), np.full((lanes, arms), -1))


@dispatch.kernel
def has(working: WorkingSet, lane: int, arm: int) -> bool:
    """Return whether an arm is still in."""
    return bool(working.place[lane, arm] < working.size[lane])


@dispatch.kernel
def exchange(working: WorkingSet, lane: int, arm: int, place: int) -> None:
    """Put an arm at a place; the arm there takes its place."""
    members, places = working.members, working.place
    other, old = members[lane, place], places[lane, arm]
    members[lane, place], members[lane, old] = arm, other
    places[lane, arm], places[lane, other] = place, old


@dispatch.kernel
def drop(working: WorkingSet, lane: int, arm: int, moment: int) -> None:
    """Take an arm out; ``regroup`` must follow."""
    working.size[lane] -= 1
    exchange(working, lane, arm, working.size[lane])
    working.left[lane, arm] = moment


@dispatch.kernel
def regroup(working: WorkingSet, lane: int, plays: Ints) -> int:
    """Bring the arms with the fewest comparisons to the front; return that number."""
    size = working.size[lane]
    least = plays[lane, working.members[lane, 0]]
    for i in range(1, size):
        count = plays[lane, working.members[lane, i]]
        least = count if count < least else least
    due = 0
    for i in range(size):
        arm = working.members[lane, i]
        if plays[lane, arm] == least:
            if due < i:
                exchange(working, lane, arm, due)
            due += 1
    working.due[lane] = due
    return int(least)


@dispatch.kernel
def played(working: WorkingSet, lane: int, arm: int) -> bool:
    """Note that an arm was compared; return whether all that were due have been."""
    if working.place[lane, arm] < working.due[lane]:
        working.due[lane] -= 1
        exchange(working, lane, arm, working.due[lane])
    return bool(working.due[lane] == 0)


@dispatch.kernel
def draw(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, fewest: bool,
    rng: Generator,
) -> int:  # fmt: skip
    """Draw an arm that is in and on offer, of the fewest comparisons if asked; −1 if none is."""
    if len(impression.arms) == working.members.shape[1]:
        count = working.due[lane] if fewest else working.size[lane]
        return int(working.members[lane, int(rng.random() * count)])
    chosen, ties, least = -1, 0, MANY
    for arm in impression.arms:
        if has(working, lane, arm):
            n = int(plays[lane, arm]) if fewest else 0
            if n < least:
                ties, least = 0, n
            if n == least:
                ties += 1
                if rng.random() * ties < 1.0:
                    chosen = arm
    return chosen


@dispatch.kernel
def draw_pair(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, rng: Generator
) -> tuple[int, int]:
    """Draw an arm of the fewest comparisons and any arm that is in; −1 and −1 if none is."""
    if len(impression.arms) == working.members.shape[1]:
        # The fraction of one draw is a draw too: of 2⁻⁵³ times ``due``, so fine enough.
        place = rng.random() * working.due[lane]
        first = int(place)
        second = int((place - first) * working.size[lane])
        return int(working.members[lane, first]), int(working.members[lane, second])
    left = draw(working, lane, plays, impression, True, rng)
    right = draw(working, lane, plays, impression, False, rng) if left >= 0 else -1
    return left, right


@dispatch.kernel
def drawn(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, fewest: bool, arm: int
) -> float:
    """Return the probability with which ``draw`` returns an arm, −1 standing for none."""
    chosen, ties, least = 0, 0, MANY
    for other in impression.arms:
        if has(working, lane, other):
            n = int(plays[lane, other]) if fewest else 0
            if n < least:
                chosen, ties, least = 0, 0, n
            if n == least:
                ties += 1
                chosen += other == arm
    if ties == 0:
        return 1.0 if arm < 0 else 0.0
    return chosen / ties


@dispatch.kernel
def on_offer(impression: Impression, arm: int) -> bool:
    """Return whether an arm is on offer."""
    found = False
    for i in range(len(impression.arms)):
        found |= impression.arms[i] == arm
    return found


@dispatch.kernel
def any_pair(impression: Impression, rng: Generator) -> tuple[int, int]:
    """Draw any two arms on offer."""
    count = len(impression.arms)
    left = impression.arms[int(rng.random() * count)]
    return int(left), int(impression.arms[int(rng.random() * count)])


class Duels(NamedTuple):
    """What a policy that eliminates arms has found in a lane.

    Attributes
    ----------
    winner : int or None
        Slot of the arm found best; None while the policy explores.
    eliminated : tuple of int
        Slots in the order in which they left; arms of the same moment by their slot.
    comparisons : int
        Comparisons that exploration has learned from.
    guarantee : str
        What is known of the winner, and under which assumptions.
    """

    winner: int | None
    eliminated: tuple[int, ...]
    comparisons: int
    guarantee: str


class Eliminating(DuelPolicy, abstract=True):
    """Base of the policies that eliminate arms: ``working``, ``spent``, ``winner`` in the State."""

    @property
    def guarantee(self) -> str:
        """What is known of the winner."""
        raise NotImplementedError

    def sample_run(self, preferences: Floats, gaps: Floats, horizon: int, rng: Generator) -> Any:
        """Simulate one run, exact in law, without playing every comparison.

        Parameters
        ----------
        preferences : array of float64, shape (arms, arms)
            P(row beats column).
        gaps : array of float64, shape (arms,)
            P(best arm beats this one) − 1/2.
        horizon : int
        rng : Generator

        Returns
        -------
        SampledRun
        """
        raise NotImplementedError

    def result(self, state: Any, lane: int) -> Duels:
        """Return what a lane has found.

        Parameters
        ----------
        state : State
        lane : int

        Returns
        -------
        Duels
        """
        winner = int(state.winner[lane])
        return Duels(
            winner if winner >= 0 else None,
            departures(state.working.left[lane]),
            int(state.spent[lane]),
            self.guarantee,
        )


def departures(left: Any) -> tuple[int, ...]:
    """Return the arms that left, in order; those of the same moment by their slot.

    Parameters
    ----------
    left : array of int64, shape (arms,)
        Comparisons made when each arm left; −1 if it stayed.
    """
    order = np.argsort(left, kind="stable")
    return tuple(int(arm) for arm in order if left[arm] >= 0)


# ---- Whole runs of elimination duels drawn at once: binomial draws, and what came of a run

# ---- Binomial draws that stay accurate, and fast, from one trial to 10¹⁰ and beyond
#
# Small means are drawn by inversion, others by transformed rejection. Its test compares the
# probability of a value with that of the mode; differences of log-factorials would lose all digits
# at 10¹⁰ trials, so the probabilities are Loader's saddle-point form, in which nothing cancels.
#
# References
# ----------
# Hörmann (1993), "The generation of binomial random variates", algorithm BTRS. Loader (2000), "Fast
# and accurate computation of binomial probabilities".

INVERTED = 10.0
"""Means below this are drawn by inversion; rejection is proved correct from here on."""
TABLE = tuple(
    math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi) if n > 0 else 0.0
    for n in range(16)
)
"""log n! less Stirling's formula, where the series does not serve."""


@kernel
def stirling_error(n: float) -> float:
    """Return log n! less Stirling's formula, for n ≥ 1."""
    if n < 16.0:
        return TABLE[int(n)]
    s = 1.0 / (n * n)
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / n


@kernel
def deviance(x: float, mean: float) -> float:
    """Return x·log(x/mean) + mean − x, for x > 0, without cancellation where both are close."""
    gap = x - mean
    if abs(gap) >= 0.1 * (x + mean):
        return float(x * np.log(x / mean) - gap)
    v = gap / (x + mean)
    total, term, odd = gap * v, 2.0 * x * v, 1.0
    v *= v
    while True:
        term *= v
        odd += 2.0
        following = total + term / odd
        if following == total:
            return total
        total = following


@kernel
def log_probability(k: float, n: float, p: float) -> float:
    """Return the logarithm of the probability that k of n trials succeed."""
    if k == 0.0:
        return float(n * np.log1p(-p))
    if k == n:
        return float(n * np.log(p))
    return float(
        stirling_error(n)
        - stirling_error(k)
        - stirling_error(n - k)
        - deviance(k, n * p)
        - deviance(n - k, n * (1.0 - p))
        - 0.5 * np.log(2.0 * math.pi * k * ((n - k) / n))
    )


@kernel
def by_inversion(n: int, p: float, rng: Generator) -> int:
    """Draw a binomial of small mean by adding up probabilities from 0."""
    odds = p / (1.0 - p)
    step = (n + 1) * odds
    none = np.exp(n * np.log1p(-p))
    while True:
        left, probability, k = rng.random(), none, 0
        while left > probability and k <= n:
            left -= probability
            k += 1
            probability *= step / k - odds
        if k <= n:
            return k


@kernel
def by_rejection(n: int, p: float, rng: Generator) -> int:
    """Draw a binomial of mean at least 10, p ≤ 1/2, by transformed rejection."""
    deviation = np.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    sure = 0.92 - 4.2 / b
    while True:
        u, v = rng.random() - 0.5, rng.random()
        edge = 0.5 - abs(u)
        if edge <= 0.0:
            continue
        k = np.floor((2.0 * a / edge + b) * u + centre)
        if edge >= 0.07 and v <= sure:
            return int(k)
        if k < 0.0 or k > n:
            continue
        v *= (2.83 + 5.1 / b) * deviation / (a / (edge * edge) + b)
        mode = np.floor((n + 1) * p)
        ratio = log_probability(k, float(n), p) - log_probability(mode, float(n), p)
        if np.log(v) <= ratio:
            return int(k)


@kernel
def binomial(n: int, p: float, rng: Generator) -> int:
    """Draw how many of ``n`` independent trials of probability ``p`` succeed.

    Parameters
    ----------
    n : int
        From 0 to 2^53.
    p : float
        In [0, 1].
    rng : Generator
    """
    small = min(p, 1.0 - p)
    if n <= 0 or small <= 0.0:
        return n if p >= 1.0 and n > 0 else 0
    if n == 1:
        return 1 if rng.random() < p else 0
    k = by_inversion(n, small, rng) if n * small < INVERTED else by_rejection(n, small, rng)
    return k if p <= 0.5 else n - k


# ---- What came of one run of a dueling policy, and the regret of its comparisons


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
    found = int(winner), int(spent), departures(left)
    return SampledRun(*found, float(regret), float(weak), float(strong), float(wins))
