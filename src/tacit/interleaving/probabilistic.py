"""Probabilistic interleaving and multileaving: better ranks are drawn more often."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Annotated

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.part import within
from tacit.errors import InvalidValue
from tacit.interleaving.base import (
    Credit,
    Interleaved,
    InterleavingMethod,
    Item,
    Rankings,
    compared,
    fair_depth,
    filled,
)
from tacit.interleaving.team_draft import MOST_RANKERS, shares

# ---- Probabilistic interleaving: every item can come from either ranker, better ranks more often


@dataclass(frozen=True)
class Probabilistic(InterleavingMethod):
    """Probabilistic interleaving of two rankings.

    For every position a coin chooses the ranker, and the ranker draws among the items it has left
    with probability ∝ 1/rank^decay. So any list of its items can be shown, and small differences
    of the rankings move every credit a little.

    The credit is *marginalised*: given the list, each item came from the left ranker with a known
    probability, and over all these assignments at once ``chance`` is the probability that more
    clicks fell on the left ranker's items (ties counted half). Its mean over impressions is
    unbiased and varies less than that of observed assignments. Rounded to a winner it is *not*
    unbiased: random clicks can favour a ranker. Single duels should be ``credit.settled(rng)``.

    Below the length of the shorter ranking the list is filled up with what is left, best ranks
    first, and nobody gets credit for that.

    Remembers ``shares``: per ranker and item shown, the probability that it came from the ranker,
    null for none; or, if not marginalised, ``teams``: the ranker that was drawn, null for none.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.
    decay : float, default 3
        The exponent, in [0, 20]; the paper's τ.
    marginalised : bool, default True
        Whether credit is summed over all assignments; otherwise clicks count for the ranker that
        was drawn.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Hofmann, Whiteson, de Rijke (2011), "A probabilistic method for inferring preferences from
    clicks", section 4. There the sum over assignments is enumerated; here it is a convolution.

    Examples
    --------
    >>> import numpy as np
    >>> method = Probabilistic(length=2)
    >>> shown = method.interleave([["a", "b"], ["b", "a"]], np.random.default_rng(1))
    >>> shown.items
    ('b', 'a')
    >>> credit = method.credit(shown, clicks=[0])
    >>> round(credit.chance, 4), credit.outcome
    (0.1111, 0.0)
    """

    decay: Annotated[float, within(0.0, 20.0)] = 3.0
    marginalised: bool = True

    @property
    def _remembers(self) -> str:
        return "shares" if self.marginalised else "teams"

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        items: list[Item] = []
        teams: list[int] = []
        urns = [Urn(given, self.decay) for given in rankings]
        for _ in range(fair_depth(rankings, self.length)):
            teams.append(int(rng.integers(2)))
            items.append(urns[teams[-1]].drawn(rng))
            for urn in urns:
                urn.remove(items[-1])
        return self._finished(rankings, items, teams)

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        union = list(dict.fromkeys(item for given in rankings for item in given))
        depth = fair_depth(rankings, self.length)
        for items in permutations(union, depth):
            chances = given_chances(rankings, items, self.decay)
            if self.marginalised:
                shown = self._finished(rankings, list(items), [])
                if shown.probability:
                    yield shown.probability, shown
                continue
            for teams in product(range(2), repeat=depth):
                joint = math.prod(chances[team, position] / 2 for position, team in enumerate(teams))
                if joint > 0.0:
                    yield joint, self._finished(rankings, list(items), list(teams))

    def _finished(
        self, rankings: tuple[tuple[Item, ...], ...], items: list[Item], teams: list[int]
    ) -> Interleaved:
        """Fill the list up, and say what came from whom with which probability."""
        chances = given_chances(rankings, items, self.decay)
        total = chances.sum(axis=0)
        complete = filled(rankings, items, self.length)
        nobody = [None] * (len(complete) - len(items))
        memory = (
            [[*row, *nobody] for row in (chances / total).tolist()]
            if self.marginalised and total.all()
            else [*teams, *nobody]
        )
        return self._interleaved(complete, 2, memory, float(np.prod(total / 2)))

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        if not self.marginalised:
            teams = [interleaved.memory["teams"][position] for position in clicks]
            left, right = float(teams.count(0)), float(teams.count(1))
            return Credit((left, right), len(clicks), compared(left - right))
        shares = [interleaved.memory["shares"][0][position] for position in clicks]
        chance = chance_of_more([share for share in shares if share is not None])
        return Credit((chance, 1.0 - chance), len(clicks), chance)


class Urn:
    """The items that a ranker has left, to be drawn with probability ∝ 1/rank^decay."""

    def __init__(self, items: Sequence[Item], decay: float) -> None:
        self._weights: dict[Item, float] = {item: rank**-decay for rank, item in enumerate(items, 1)}

    def drawn(self, rng: Generator) -> Item:
        """Draw an item."""
        cumulative = np.cumsum(list(self._weights.values()))
        index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], "right"))
        return list(self._weights)[min(index, len(cumulative) - 1)]

    def chance(self, item: Item) -> float:
        """Return the probability with which an item is drawn next."""
        return float(self._weights.get(item, 0.0) / math.fsum(self._weights.values()))

    def remove(self, item: Item) -> None:
        """Take an item out, if it is there."""
        self._weights.pop(item, None)


def given_chances(rankings: Sequence[Sequence[Item]], items: Sequence[Item], decay: float) -> Floats:
    """Return the probability that each ranker, when it is its turn, gives the item shown.

    Returns
    -------
    array of float64, shape (rankers, positions)
    """
    urns = [Urn(given, decay) for given in rankings]
    chances = np.zeros((len(rankings), len(items)))
    for position, item in enumerate(items):
        for ranker, urn in enumerate(urns):
            chances[ranker, position] = urn.chance(item)
            urn.remove(item)
    return chances


def chance_of_more(shares: Sequence[float]) -> float:
    """Return the probability that most of the clicks fell to the left, ties counted half.

    Parameters
    ----------
    shares : sequence of float
        For each click on its own, the probability that it fell to the left.

    Examples
    --------
    >>> round(chance_of_more([0.9, 0.5, 0.5]), 4)  # 0.9 · 0.75 + 0.1 · 0.25
    0.7
    >>> chance_of_more([])
    0.5
    """
    counts = np.ones(1)
    for share in shares:
        counts = np.convolve(counts, [1.0 - share, share])
    difference = 2 * np.arange(len(counts)) - len(shares)
    return float(counts[difference > 0].sum() + counts[difference == 0].sum() / 2)


# ---- Probabilistic multileaving: many rankers, each drawing softly from its own ranking


@dataclass(frozen=True)
class ProbabilisticMultileave(InterleavingMethod):
    """Probabilistic multileaving of 2 to 16 rankings.

    In every round the rankers take turns in a random order; each draws among the items it has
    left with probability ∝ 1/rank^decay. A ranker's credit is the expected number of clicks on
    the items that it gave, over all orders that could have given the list. The paper samples
    these orders; here the sum is exact, which takes time 2^rankers.

    A ranker's mean credit is unbiased under random clicks; comparing the credits of a single list
    (:meth:`Credit.duel`) is not.

    Below the length of the shortest ranking the list is filled up with what is left, best ranks
    first, and nobody gets credit for that.

    Remembers ``shares``: per ranker and item shown, the probability that it came from the ranker,
    null for none.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.
    decay : float, default 3
        The exponent, in [0, 20]; the paper's τ.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Schuth, Bruintjes, Büttner, van Doorn, Groenland, Oosterhuis, et al. (2015), "Probabilistic
    multileave for online retrieval evaluation".

    Examples
    --------
    >>> import numpy as np
    >>> method = ProbabilisticMultileave(length=3)
    >>> rankings = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    >>> shown = method.interleave(rankings, np.random.default_rng(3))
    >>> shown.items
    ('c', 'b', 'a')
    >>> [round(credit, 2) for credit in method.credit(shown, clicks=[0]).credits]
    [0.04, 0.04, 0.93]
    """

    duels = False

    decay: Annotated[float, within(0.0, 20.0)] = 3.0

    @property
    def _remembers(self) -> str:
        return "shares"

    def _checked(self, rankings: Rankings) -> tuple[tuple[Item, ...], ...]:
        checked = super()._checked(rankings)
        if len(checked) > MOST_RANKERS:
            raise InvalidValue(
                "rankings", rankings, f"give at most {MOST_RANKERS}, or use TeamDraftMultileave"
            )
        return checked

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        items: list[Item] = []
        urns = [Urn(given, self.decay) for given in rankings]
        depth = fair_depth(rankings, self.length)
        while len(items) < depth:
            for ranker in rng.permutation(len(rankings))[: depth - len(items)]:
                items.append(urns[ranker].drawn(rng))
                for urn in urns:
                    urn.remove(items[-1])
        return self._finished(rankings, items)

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        union = list(dict.fromkeys(item for given in rankings for item in given))
        for items in permutations(union, fair_depth(rankings, self.length)):
            shown = self._finished(rankings, list(items))
            if shown.probability:
                yield shown.probability, shown

    def _finished(self, rankings: tuple[tuple[Item, ...], ...], items: list[Item]) -> Interleaved:
        """Fill the list up, and say what came from whom with which probability."""
        chances = given_chances(rankings, items, self.decay).T
        starts = range(0, len(items), len(rankings))
        rounds = [shares(chances[start : start + len(rankings)]) for start in starts]
        complete = filled(rankings, items, self.length)
        nobody = [None] * (len(complete) - len(items))
        given = np.vstack([share for _, share in rounds]).T.tolist()
        probability = math.prod(total for total, _ in rounds)
        return self._interleaved(complete, len(rankings), [[*row, *nobody] for row in given], probability)

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        given = interleaved.memory["shares"]
        return Credit(
            tuple(math.fsum(row[position] or 0.0 for position in clicks) for row in given), len(clicks)
        )
