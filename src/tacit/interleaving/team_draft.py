"""Team draft: rankers pick items for their teams, as captains do; two of them or many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.interleaving.base import (
    Credit,
    Interleaved,
    InterleavingMethod,
    Item,
    compared,
    fair_depth,
    filled,
)

# ---- Rounds in which each ranker gives one item, in random order: probabilities and shares

MOST_RANKERS = 16
"""Sums over all orders of a round take time 2^rankers."""


def shares(chances: Floats) -> tuple[float, Floats]:
    """Sum over all orders of the rankers in a round.

    Parameters
    ----------
    chances : array, shape (positions, rankers)
        The probability that a ranker, when it is its turn, gives the item at this position of
        the round; no more positions than rankers.

    Returns
    -------
    probability : float
        Of the round's items, over uniform orders.
    shares : array, shape (positions, rankers)
        The probability that the ranker gave the item at the position, given the round's items.

    Examples
    --------
    >>> total, share = shares(np.array([[1.0, 0.5], [0.0, 0.5]]))
    >>> total
    0.25
    >>> share
    array([[1., 0.],
           [0., 1.]])
    """
    positions, rankers = chances.shape
    sets = np.arange(2**rankers)
    without = [sets[sets >> ranker & 1 == 0] for ranker in range(rankers)]
    before = np.zeros((positions + 1, len(sets)))  # by the set of rankers that have given
    before[0, 0] = 1.0
    for position in range(positions):
        for ranker, free in enumerate(without):
            gain = before[position, free] * chances[position, ranker]
            before[position + 1, free | 1 << ranker] += gain
    after = np.zeros_like(before)
    after[positions] = np.bitwise_count(sets) == positions
    given = np.zeros_like(chances)
    for position in reversed(range(positions)):
        for ranker, free in enumerate(without):
            rest = chances[position, ranker] * after[position + 1, free | 1 << ranker]
            after[position, free] += rest
            given[position, ranker] = before[position, free] @ rest
    total = float(after[0, 0])
    return total / math.perm(rankers, positions), given / total if total > 0 else given


# ---- Team-draft multileaving: many rankers pick items for their teams, as captains do

Teams = list[int | None]


@dataclass(frozen=True)
class TeamDraftMultileave(InterleavingMethod):
    """Team-draft multileaving of two or more rankings.

    In every round the rankers pick in a random order, each its best item that is not shown yet,
    for its team. A ranker's credit is the number of clicks on its team. Clicks that do not depend
    on what is shown favour nobody. With more rankers than places, only a random part of them has
    a team on each list.

    Below the length of the shortest ranking the list is filled up with what is left, best ranks
    first, and those items belong to no team.

    Remembers ``teams``: per item shown, the number of the ranker that picked it, null for none.
    The probability of the list is known up to 16 rankers.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Schuth, Sietsma, Whiteson, Lefortier, de Rijke (2014), "Multileaved comparisons for fast online
    evaluation", algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> method = TeamDraftMultileave(length=3)
    >>> rankings = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    >>> shown = method.interleave(rankings, np.random.default_rng(3))
    >>> shown.items, shown.memory["teams"], round(shown.probability, 4)
    (('c', 'b', 'a'), [2, 1, 0], 0.1667)
    >>> method.credit(shown, clicks=[0]).credits
    (0.0, 0.0, 1.0)
    """

    duels = False

    @property
    def _remembers(self) -> str:
        return "teams"

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        items: list[Item] = []
        teams: Teams = []
        while slots := self._slots(rankings, items):
            order = rng.permutation(len(rankings))[:slots].tolist()
            pick(rankings, order, items)
            teams += order
        return self._finished(rankings, items, teams)

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        yield from self._drafts(rankings, [], [], 1.0)

    def _drafts(
        self, rankings: tuple[tuple[Item, ...], ...], items: list[Item], teams: Teams, chance: float
    ) -> Iterator[tuple[float, Interleaved]]:
        """Return all ways in which a draft that has come so far can go on."""
        slots = self._slots(rankings, items)
        if not slots:
            yield chance, self._finished(rankings, items, teams)
            return
        each = chance / math.perm(len(rankings), slots)
        for order in permutations(range(len(rankings)), slots):
            picked = list(items)
            pick(rankings, order, picked)
            yield from self._drafts(rankings, picked, [*teams, *order], each)

    def _slots(self, rankings: tuple[tuple[Item, ...], ...], items: Sequence[Item]) -> int:
        """Return how many items the next round gives."""
        return min(len(rankings), fair_depth(rankings, self.length) - len(items))

    def _finished(
        self, rankings: tuple[tuple[Item, ...], ...], items: list[Item], teams: Teams
    ) -> Interleaved:
        """Fill the list up, and say with which probability it is shown."""
        complete = filled(rankings, items, self.length)
        return self._interleaved(
            complete,
            len(rankings),
            teams + [None] * (len(complete) - len(items)),
            draft_probability(rankings, items),
        )

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        teams = [interleaved.memory["teams"][position] for position in clicks]
        counts = tuple(float(teams.count(ranker)) for ranker in range(interleaved.rankers))
        return Credit(counts, len(clicks))


def pick(rankings: tuple[tuple[Item, ...], ...], order: Sequence[int], items: list[Item]) -> None:
    """Let the rankers of ``order`` each add its best item that is not shown yet."""
    shown = set(items)
    for ranker in order:
        item = next(item for item in rankings[ranker] if item not in shown)
        items.append(item)
        shown.add(item)


def draft_probability(rankings: tuple[tuple[Item, ...], ...], items: Sequence[Item]) -> float | None:
    """Return the probability that drafts give these items, whatever the teams."""
    rankers = len(rankings)
    if rankers > MOST_RANKERS:
        return None
    tops = []
    left = [list(given) for given in rankings]
    for item in items:
        tops.append([float(given[0] == item) for given in left])
        for given in left:
            if item in given:
                given.remove(item)
    rounds = [tops[start : start + rankers] for start in range(0, len(items), rankers)]
    if rankers == 2:  # the same sum, without arrays
        return math.prod(
            sum(one) / 2 if not rest else (one[0] * rest[0][1] + one[1] * rest[0][0]) / 2
            for one, *rest in rounds
        )
    return math.prod(shares(np.array(captains))[0] for captains in rounds)


# ---- Team-draft interleaving: the rankers pick items for their teams, as captains do


@dataclass(frozen=True)
class TeamDraft(TeamDraftMultileave):
    """Team-draft interleaving of two rankings: the method to begin with.

    In every round a coin says who picks first; each ranker picks its best item that is not shown
    yet, for its team. The ranker whose team gets more clicks wins; equally many, or none, are a
    tie. Clicks that do not depend on what is shown favour nobody.

    Below the length of the shortest ranking the list is filled up with what is left, best ranks
    first, and those items belong to no team.

    Remembers ``teams``: per item shown, the ranker that picked it (0 left, 1 right), null for none.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Radlinski, Kurup, Joachims (2008), "How does clickthrough data reflect retrieval quality?",
    algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> method = TeamDraft(length=4)
    >>> rankings = [["a", "b", "c", "d"], ["b", "e", "a", "f"]]
    >>> shown = method.interleave(rankings, np.random.default_rng(7))
    >>> shown.items, shown.memory["teams"]
    (('a', 'b', 'c', 'e'), [0, 1, 0, 1])
    >>> method.credit(shown, clicks=[0, 2]).outcome
    1.0
    >>> method.credit(shown, clicks=[]).outcome
    0.5
    """

    duels = True

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        credit = super()._credits(interleaved, clicks)
        return credit._replace(chance=compared(credit.credits[0] - credit.credits[1]))
