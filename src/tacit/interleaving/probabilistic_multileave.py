"""Probabilistic multileaving: many rankers, each drawing softly from its own ranking."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated

import numpy as np

from tacit.core.arrays import Generator
from tacit.core.ranges import within
from tacit.errors import InvalidValue
from tacit.interleaving.base import (
    Credit,
    Interleaved,
    InterleavingMethod,
    Item,
    Rankings,
    fair_depth,
    filled,
)
from tacit.interleaving.drafts import MOST_RANKERS, shares
from tacit.interleaving.probabilistic import Urn, given_chances


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
