"""Interleaved Filter sampled run by run: exact in law, far faster than one comparison at a time.

In a round the candidate meets every arm of the working set once a sweep, so its records against
them are independent walks. After n sweeps it has won between w and w + n − n' of the n comparisons
with an arm, where w of the first n' is what has been drawn. While these bounds stay within the
confidence radius of one half nothing can happen, so such a stretch needs no draws; otherwise the
stretch is halved, the earlier half comes first, and only the arms that could leave it are looked
at again. What an arm's record is at the end of a round is one binomial draw. Draws are made in
the order of time, so nothing is conditioned on what comes later, and none is approximate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studies.run_sampling.beat_the_mean import CAUTION, DEEPEST, SHARE
from studies.run_sampling.binomial import binomial
from studies.run_sampling.result import SampledRun, charge, concluded
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compile_loop


class FilterRun(NamedTuple):
    """The state of one run, by arm but for the last two.

    Attributes
    ----------
    members : array of int64
        The working set in front; within it, the arms under watch first.
    wins, counts : array of int64
        What has been drawn of the candidate's comparisons with an arm.
    left : array of int64
        Comparisons made when the arm left; −1 while it has not.
    ends, sizes : array of int64, shape (DEEPEST,)
        Stretches under way: where each ends, how many arms it watches.
    """

    members: Ints
    wins: Ints
    counts: Ints
    left: Ints
    ends: Ints
    sizes: Ints

    @classmethod
    def opened(cls, arms: int) -> FilterRun:
        """Return the book of a run that has not begun."""
        wins, counts, left = np.zeros((3, arms), np.int64)
        ends, sizes = np.zeros((2, DEEPEST), np.int64)
        return cls(np.arange(arms), wins, counts, left, ends, sizes)


@kernel
def meet(book: FilterRun, arm: int, level: int, chance: float, rng: Generator) -> None:
    """Draw how the candidate fared against an arm until ``level``."""
    due = level - book.counts[arm]
    if due > 0:
        book.wins[arm] += binomial(due, chance, rng)
        book.counts[arm] = level


@kernel
def suspect(
    book: FilterRun, size: int, level: int, end: int, kappa: float, chances: Floats, rng: Generator
) -> int:
    """Bring the arms that may be decided before ``end`` to the front; return how many.

    Looks at the first ``size`` members; those that it finds have met until ``level``.
    """
    members, wins, counts = book.members, book.wins, book.counts
    reach = kappa / np.sqrt(end) * CAUTION
    while True:
        front, met = 0, True
        for i in range(size):
            arm = members[i]
            most = (wins[arm] + end - counts[arm]) / end
            if most - 0.5 >= reach or 0.5 - wins[arm] / end >= reach:
                members[i], members[front] = members[front], arm
                front += 1
                if counts[arm] < level:
                    meet(book, arm, level, chances[arm], rng)
                    met = False
        size = front
        if met:
            return front


@kernel
def verdict(book: FilterRun, arm: int, kappa: float) -> int:
    """Return 1 if the candidate beats the arm for sure, −1 if it loses, else 0."""
    n = book.counts[arm]
    if n == 0:
        return 0
    lead = book.wins[arm] / n - 0.5
    if abs(lead) < kappa / np.sqrt(n):
        return 0
    return 1 if lead > 0.0 else -1


@kernel
def sweep(book: FilterRun, front: int, level: int, kappa: float, chances: Floats, rng: Generator) -> bool:
    """Play the next sweep of the arms under watch; return whether it decides anything."""
    decided = False
    for i in range(front):
        arm = book.members[i]
        meet(book, arm, level + 1, chances[arm], rng)
        decided |= verdict(book, arm, kappa) != 0
    return decided


@kernel
def leap(
    book: FilterRun, size: int, level: int, top: int, kappa: float, chances: Floats, rng: Generator
) -> int:
    """Play sweeps until one decides something, or until ``top``; return how many were played."""
    while level < top:
        depth = 0
        book.ends[0], book.sizes[0] = min(top, level + max(1, level >> SHARE)), size
        while depth >= 0:
            end = book.ends[depth]
            front = 0
            if level < end:
                front = suspect(book, book.sizes[depth], level, end, kappa, chances, rng)
            if front == 0:
                level = end
                depth -= 1
            elif end > level + 1:
                book.sizes[depth] = front
                depth += 1
                book.ends[depth], book.sizes[depth] = level + (end - level) // 2, front
            else:
                decided = sweep(book, front, level, kappa, chances, rng)
                level = end
                depth -= 1
                if decided:
                    return level
    return level


@kernel
def dismiss(book: FilterRun, size: int, place: int, moment: int) -> None:
    """Take the member at ``place`` out of the working set."""
    arm = book.members[place]
    book.members[place], book.members[size - 1] = book.members[size - 1], arm
    book.left[arm] = moment


@kernel
def challenger(book: FilterRun, size: int, level: int, kappa: float) -> int:
    """Return the place of the arm that beats the candidate most clearly, or −1.

    Ties go to the lowest slot.
    """
    found = -1
    for i in range(size):
        arm = book.members[i]
        if book.counts[arm] == level and verdict(book, arm, kappa) < 0:
            if found < 0:
                found = i
            else:
                best = book.members[found]
                fewer = book.wins[arm] < book.wins[best]
                if fewer or (book.wins[arm] == book.wins[best] and arm < best):
                    found = i
    return found


@kernel
def break_off(
    book: FilterRun, size: int, level: int, left: int, chances: Floats, gap: float, gaps: Floats,
    rng: Generator, totals: Floats,
) -> None:  # fmt: skip
    """Play ``left`` comparisons of a sweep that stays unfinished; it decides nothing."""
    for i in range(size):
        if i < left:
            pick = i + int(rng.random() * (size - i))
            arm = book.members[pick]
            book.members[pick], book.members[i] = book.members[i], arm
        arm = book.members[i]
        times = level + 1 if i < left else level
        meet(book, arm, times, chances[arm], rng)
        charge(totals, gap, gaps[arm], times, book.wins[arm])


@kernel
def succeed(book: FilterRun, size: int, place: int, level: int, moment: int, prunes: bool) -> int:
    """Let the member at ``place`` become the candidate; return how many are left for it to meet."""
    dismiss(book, size, place, -1)
    size -= 1
    for i in range(size - 1, -1, -1):
        arm = book.members[i]
        if prunes and 2 * book.wins[arm] > level:
            dismiss(book, size, i, moment)
            size -= 1
        book.wins[arm] = 0
        book.counts[arm] = 0
    return size


def explore(
    book: FilterRun,
    preferences: Floats,
    gaps: Floats,
    kappa: float,
    budget: int,
    prunes: bool,
    rng: Generator,
    totals: Floats,
) -> tuple[int, int]:
    """Play Interleaved Filter until it ends; return the winner and the comparisons spent."""
    candidate = int(rng.random() * len(preferences))
    size, spent, level = len(preferences), 0, 0
    book.left[:] = -1
    book.members[candidate], book.members[size - 1] = size - 1, candidate
    size -= 1
    while size > 0:
        chances = preferences[candidate]
        left = budget - spent - level * size
        if left < size:
            break_off(book, size, level, left, chances, gaps[candidate], gaps, rng, totals)
            return candidate, budget
        level = leap(book, size, level, level + left // size, kappa, chances, rng)
        moment = spent + level * size
        place = size - 1
        while place >= 0:
            arm = book.members[place]
            if book.counts[arm] == level and verdict(book, arm, kappa) > 0:
                charge(totals, gaps[candidate], gaps[arm], level, book.wins[arm])
                dismiss(book, size, place, moment)
                spent, size = spent + level, size - 1
            place -= 1
        place = challenger(book, size, level, kappa)
        if place >= 0:
            winner = book.members[place]
            for i in range(size):
                arm = book.members[i]
                meet(book, arm, level, chances[arm], rng)
                charge(totals, gaps[candidate], gaps[arm], level, book.wins[arm])
            size = succeed(book, size, place, level, moment, prunes)
            book.left[candidate] = moment
            candidate, spent, level = winner, moment, 0
    return candidate, spent


def interleaved_filter(
    preferences: Floats,
    gaps: Floats,
    kappa: float,
    horizon: int,
    rng: Generator,
    *,
    prunes: bool,
    budget: int | None = None,
) -> SampledRun:
    """Simulate one run of Interleaved Filter.

    Parameters
    ----------
    preferences : array of float64, shape (arms, arms)
        P(row beats column), complementary, within (0, 1).
    gaps : array of float64, shape (arms,)
        P(best arm beats this one) − 1/2.
    kappa : float
        The confidence radius is κ/√n.
    horizon : int
        Comparisons in all; those after the exploration pair the winner with itself.
    rng : Generator
    prunes : bool
        Whether a new candidate frees the working set of all arms that its predecessor leads
        (Interleaved Filter 2) or not (Interleaved Filter 1).
    budget : int, optional
        The most comparisons that exploration may take; by default ``horizon``.

    Returns
    -------
    SampledRun

    References
    ----------
    Yue, Broder, Kleinberg, Joachims (2009), "The K-armed dueling bandits problem", algorithms 2
    and 3.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments.preferences import uniform_gap
    >>> matrix = uniform_gap(4, 0.1)
    >>> rng = np.random.default_rng(1)
    >>> interleaved_filter(matrix, matrix[0] - 0.5, 5.0, 10**9, rng, prunes=True).winner
    0
    """
    book, totals = FilterRun.opened(len(preferences)), np.zeros(4)
    budget = horizon if budget is None else min(budget, horizon)
    play = compile_loop(explore)
    winner, spent = play(book, preferences, gaps, float(kappa), budget, prunes, rng, totals)
    return concluded(winner, spent, book.left, totals, gaps, horizon, rng)
