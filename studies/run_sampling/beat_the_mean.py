"""Beat-the-Mean sampled run by run: exact in law, far faster than one comparison at a time.

Three facts make it possible (W is the working set, m its size, S_b = Σ_{j ∈ W} P(b, j)).

- The policy decides on wins w_b and comparisons n_b alone. Given these, the opponents of b's wins
  are independent draws from W in proportion to P(b, j), and those of its losses in proportion to
  1 − P(b, j). So an arm wins a comparison with probability S_b/m, and opponents are drawn only when
  an arm x leaves: Bin(w_b, P(b, x)/S_b) of b's wins and Bin(n_b − w_b, (1 − P(b, x))/(m − S_b)) of
  its losses were against x. What remains has opponents that are again such draws, from W∖{x}.
- Arms with the fewest comparisons play first, so comparisons go in sweeps that lift all arms from
  one level (the least number of comparisons) to the next. An arm with w wins of n lies between
  w/n' and (w + n' − n)/n' until it has n' comparisons. While no pair of these bounds is two radii
  apart, no comparison can end the round, whatever its outcome: such a stretch needs no draws at
  all, and what its arms won is drawn, as one binomial each, when it first matters.
- Where the bounds leave it open, the stretch is halved, the earlier half comes first, and only
  the arms that could end it are looked at again. A single sweep that may end the round is
  played comparison by comparison, in random order.

Draws are made in the order of time, so nothing is conditioned on what comes later, and none is
approximate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from studies.run_sampling.binomial import binomial
from studies.run_sampling.result import SampledRun, charge, concluded
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compile_loop

CAUTION = 1.0 - 1e-12
"""A stretch counts as safe only beyond the rounding of the policy's own test."""
DEEPEST = 64
SHARE = 5
"""The first stretch to be tried is level / 2^SHARE sweeps long."""


class Book(NamedTuple):
    """The state of one run; by arm but for the last two.

    Attributes
    ----------
    members : array of int64
        The working set in front; within it, the arms under watch first.
    wins, counts : array of int64
        What has been drawn so far: comparisons of an arm and its wins.
    base : array of int64
        Comparisons of each arm when the round began.
    drawn : array of int64
        Outcome in the coming sweep, −1 where it is not drawn.
    order : array of int64
        The arms that play in a sweep.
    strength : array of float64
        S_b: the sum of P(b, j) over the working set.
    chance : array of float64
        S_b/m: the probability to win a comparison.
    means : array of float64
        The shares of wins during a sweep that is played out.
    left : array of int64
        Comparisons made when the arm left; −1 while it has not.
    ends, sizes : array of int64, shape (DEEPEST,)
        Stretches under way: where each ends, how many arms it watches.
    """

    members: Ints
    wins: Ints
    counts: Ints
    base: Ints
    drawn: Ints
    order: Ints
    strength: Floats
    chance: Floats
    means: Floats
    left: Ints
    ends: Ints
    sizes: Ints

    @classmethod
    def opened(cls, preferences: Floats) -> Book:
        """Return the book of a run that has not begun."""
        arms = len(preferences)
        strength = preferences.sum(axis=1)

        def zeros() -> Ints:
            return np.zeros(arms, np.int64)

        return cls(
            np.arange(arms),
            zeros(),
            zeros(),
            zeros(),
            zeros() - 1,
            zeros(),
            strength,
            strength / arms,
            np.zeros(arms),
            zeros() - 1,
            np.zeros(DEEPEST, np.int64),
            np.zeros(DEEPEST, np.int64),
        )


@kernel
def settle(book: Book, arm: int, level: int, rng: Generator) -> None:
    """Draw what an arm won until ``level``."""
    due = max(book.base[arm], level) - book.counts[arm]
    if due > 0:
        book.wins[arm] += binomial(due, book.chance[arm], rng)
        book.counts[arm] += due


@kernel
def watch(book: Book, size: int, level: int, end: int, kappa: float, rng: Generator) -> int:
    """Bring the arms that could end the round before ``end`` to the front; return how many.

    Looks at the first ``size`` members; those that it finds are settled until ``level``.
    """
    members, wins, counts, base = book.members, book.wins, book.counts, book.base
    reach = 2.0 * kappa / np.sqrt(end) * CAUTION
    while True:
        low, high = math.inf, -math.inf
        for i in range(size):
            arm = members[i]
            plays = max(base[arm], end)
            low = min(low, wins[arm] / plays)
            high = max(high, (wins[arm] + plays - counts[arm]) / plays)
        if high - low < reach:
            return 0
        front, settled = 0, True
        for i in range(size):
            arm = members[i]
            plays = max(base[arm], end)
            most = (wins[arm] + plays - counts[arm]) / plays
            if most - low >= reach or high - wins[arm] / plays >= reach:
                members[i], members[front] = members[front], arm
                front += 1
                if counts[arm] < max(base[arm], level):
                    settle(book, arm, level, rng)
                    settled = False
        size = front
        if settled:
            return front


@kernel
def mean(book: Book, arm: int) -> float:
    """Return an arm's share of wins; one half before its first comparison."""
    return book.wins[arm] / book.counts[arm] if book.counts[arm] > 0 else 0.5


@kernel
def radius(kappa: float, level: int) -> float:
    """Return the confidence radius at the least number of comparisons."""
    return kappa / np.sqrt(level) if level > 0 else 1.0


@kernel
def calm(book: Book, front: int, level: int, kappa: float, rng: Generator) -> bool:
    """Draw the coming sweep of the arms under watch; return whether it surely goes by."""
    low, high = math.inf, -math.inf
    for i in range(front):
        arm = book.members[i]
        before = after = mean(book, arm)
        if book.base[arm] <= level:
            book.drawn[arm] = 1 if rng.random() < book.chance[arm] else 0
            after = (book.wins[arm] + book.drawn[arm]) / (level + 1)
        low, high = min(low, before, after), max(high, before, after)
    if high - low >= 2.0 * kappa / np.sqrt(level + 1) * CAUTION:
        return False
    for i in range(front):
        arm = book.members[i]
        if book.base[arm] <= level:
            book.wins[arm] += book.drawn[arm]
            book.counts[arm] += 1
            book.drawn[arm] = -1
    return True


@kernel
def extremes(book: Book, size: int) -> tuple[float, float]:
    """Return the least and the greatest share of wins in the working set."""
    low, high = math.inf, -math.inf
    for i in range(size):
        value = book.means[book.members[i]]
        low, high = min(low, value), max(high, value)
    return low, high


@kernel
def replay(book: Book, size: int, level: int, limit: int, kappa: float, rng: Generator) -> tuple[int, int]:
    """Play a sweep comparison by comparison; return who leaves (or −1) and how many were played.

    Outcomes that are drawn already are used; the sweep ends after ``limit`` comparisons.
    """
    playing = 0
    for i in range(size):
        arm = book.members[i]
        settle(book, arm, level, rng)
        book.means[arm] = mean(book, arm)
        if book.base[arm] <= level:
            book.order[playing] = arm
            playing += 1
    low, high = extremes(book, size)
    leaving, played = -1, 0
    while played < min(limit, playing) and leaving < 0:
        pick = played + int(rng.random() * (playing - played))
        arm = book.order[pick]
        book.order[pick] = book.order[played]
        played += 1
        if book.drawn[arm] < 0:
            book.drawn[arm] = 1 if rng.random() < book.chance[arm] else 0
        book.wins[arm] += book.drawn[arm]
        book.counts[arm] += 1
        before, after = book.means[arm], mean(book, arm)
        book.means[arm] = after
        if before in (low, high):
            low, high = extremes(book, size)
        else:
            low, high = min(low, after), max(high, after)
        c = radius(kappa, level + 1 if played == playing else level)
        if low + c <= high - c:
            leaving = worst(book, size, low)
    for i in range(size):
        book.drawn[book.members[i]] = -1
    return leaving, played


@kernel
def worst(book: Book, size: int, low: float) -> int:
    """Return the lowest slot whose share of wins is ``low``."""
    found = len(book.means)
    for i in range(size):
        arm = book.members[i]
        if book.means[arm] == low:
            found = min(found, arm)
    return found


@kernel
def leap(book: Book, size: int, level: int, top: int, kappa: float, rng: Generator) -> int:
    """Play sweeps until an arm leaves, which is returned, or until ``top``: then −1."""
    while level < top:
        depth = 0
        book.ends[0], book.sizes[0] = min(top, level + max(1, level >> SHARE)), size
        while depth >= 0:
            end = book.ends[depth]
            front = 0
            if level < end:
                front = watch(book, book.sizes[depth], level, end, kappa, rng)
            if front == 0:
                level = end
                depth -= 1
            elif end > level + 1:
                book.sizes[depth] = front
                depth += 1
                book.ends[depth], book.sizes[depth] = level + (end - level) // 2, front
            else:
                if not calm(book, front, level, kappa, rng):
                    leaving, _ = replay(book, size, level, size, kappa, rng)
                    if leaving >= 0:
                        return leaving
                level = end
                depth -= 1
    for i in range(size):
        settle(book, book.members[i], top, rng)
    return -1


@kernel
def affordable(book: Book, size: int, budget: int) -> int:
    """Return the highest level that all members reach within ``budget`` comparisons."""
    highest, total = 0, 0
    for i in range(size):
        count = book.counts[book.members[i]]
        highest, total = max(highest, count), total + count
    if highest * size - total <= budget:
        return highest + (budget - (highest * size - total)) // size
    low = 0
    while low < highest:
        middle = (low + highest + 1) // 2
        needed = 0
        for i in range(size):
            needed += max(0, middle - book.counts[book.members[i]])
        if needed <= budget:
            low = middle
        else:
            highest = middle - 1
    return low


@kernel
def share(rest: int, part: float, whole: float, rng: Generator) -> int:
    """Draw how many of ``rest`` comparisons belong to a part of what is left to share."""
    if rest == 0 or part >= whole:
        return rest
    return binomial(rest, part / whole, rng)


@kernel
def disclose(
    book: Book, size: int, arm: int, preferences: Floats, gaps: Floats, totals: Floats,
    rng: Generator,
) -> None:  # fmt: skip
    """Draw the opponents of all comparisons of an arm, and charge their regret."""
    wins, losses = book.wins[arm], book.counts[arm] - book.wins[arm]
    to_win, to_lose = book.strength[arm], size - book.strength[arm]
    for i in range(size):
        other = book.members[i]
        p = preferences[arm, other]
        if i == size - 1:
            to_win, to_lose = p, 1.0 - p
        won, lost = share(wins, p, to_win, rng), share(losses, 1.0 - p, to_lose, rng)
        charge(totals, gaps[arm], gaps[other], won + lost, won)
        wins, losses = wins - won, losses - lost
        to_win, to_lose = to_win - p, to_lose - (1.0 - p)


@kernel
def remove(
    book: Book, size: int, leaving: int, preferences: Floats, gaps: Floats, totals: Floats,
    rng: Generator,
) -> None:  # fmt: skip
    """Take an arm out of the working set, and every comparison with it out of the others."""
    disclose(book, size, leaving, preferences, gaps, totals, rng)
    kept = 0
    for i in range(size):
        arm = book.members[i]
        if arm == leaving:
            continue
        book.members[kept] = arm
        kept += 1
        p = preferences[arm, leaving]
        losses = book.counts[arm] - book.wins[arm]
        won = share(book.wins[arm], p, book.strength[arm], rng)
        lost = share(losses, 1.0 - p, size - book.strength[arm], rng)
        charge(totals, gaps[arm], gaps[leaving], won + lost, won)
        book.wins[arm] -= won
        book.counts[arm] -= won + lost
        book.strength[arm] -= p
        book.chance[arm] = book.strength[arm] / (size - 1)
    book.members[kept] = leaving


def explore(
    book: Book,
    preferences: Floats,
    gaps: Floats,
    kappa: float,
    budget: int,
    enough: int,
    rng: Generator,
    totals: Floats,
) -> tuple[int, int]:
    """Play Beat-the-Mean until it ends; return the winner and the comparisons spent.

    It ends with the last arm, after ``budget`` comparisons, or when each arm left has ``enough``.
    """
    size, spent, level = len(preferences), 0, 0
    while size > 1 and spent < budget and level < enough:
        began = 0
        for i in range(size):
            arm = book.members[i]
            book.base[arm] = book.counts[arm]
            began += book.counts[arm]
        top = min(enough, affordable(book, size, budget - spent))
        leaving = leap(book, size, level, top, kappa, rng)
        if leaving < 0 and top < enough:
            made = -began
            for i in range(size):
                made += book.counts[book.members[i]]
            leaving, _ = replay(book, size, top, budget - spent - made, kappa, rng)
        level = enough
        for i in range(size):
            spent += book.counts[book.members[i]]
        spent -= began
        if leaving >= 0:
            remove(book, size, leaving, preferences, gaps, totals, rng)
            book.left[leaving] = spent
            size -= 1
            for i in range(size):
                level = min(level, book.counts[book.members[i]])
    winner, best = -1, -1.0
    for i in range(size):
        arm = book.members[i]
        if mean(book, arm) > best or (mean(book, arm) == best and arm < winner):
            winner, best = arm, mean(book, arm)
        disclose(book, size, arm, preferences, gaps, totals, rng)
    return winner, spent


def beat_the_mean(
    preferences: Floats,
    gaps: Floats,
    kappa: float,
    horizon: int,
    rng: Generator,
    *,
    budget: int | None = None,
    enough: int = 2**62,
) -> SampledRun:
    """Simulate one run of Beat-the-Mean.

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
    budget : int, optional
        The most comparisons that exploration may take; by default ``horizon``.
    enough : int, optional
        N: exploration ends when every arm left has so many comparisons.

    Returns
    -------
    SampledRun

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments.preferences import uniform_gap
    >>> matrix = uniform_gap(4, 0.1)
    >>> rng = np.random.default_rng(1)
    >>> beat_the_mean(matrix, matrix[0] - 0.5, 5.0, 10**9, rng).winner
    0
    """
    book, totals = Book.opened(preferences), np.zeros(4)
    budget = horizon if budget is None else min(budget, horizon)
    play = compile_loop(explore)
    winner, spent = play(book, preferences, gaps, float(kappa), budget, enough, rng, totals)
    return concluded(winner, spent, book.left, totals, gaps, horizon, rng)
