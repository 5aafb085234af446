"""Balanced interleaving: the shown list holds, from the top, equally much of both rankings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tacit.core.arrays import Generator
from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod, Item, compared, ranks


@dataclass(frozen=True)
class Balanced(InterleavingMethod):
    """Balanced interleaving of two rankings.

    A coin says who leads; then the rankers take turns, each giving its next item, which is shown
    unless it is already. At any depth the list holds the tops of both rankings, as deep as each
    other or the leader's one deeper. The credit of a ranker is the number of clicks on its top k,
    where k is the least depth at which either ranking holds the lowest clicked item.

    It is *biased*: for some pairs of rankings random clicks favour one of them, because the two
    lists that can be shown do not show their items symmetrically (rankings ``abcd`` and ``bcda``:
    one click at a random position gives the second ranker the win in three of four cases). Where
    that matters, use :class:`TeamDraft`.

    Remembers ``ranks``: per ranker, the rank from 0 that it gives each item shown, null for none.

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
    Joachims (2003), "Evaluating retrieval performance using clickthrough data", in Text Mining;
    Radlinski, Kurup, Joachims (2008), "How does clickthrough data reflect retrieval quality?",
    algorithm 1, and their section on its bias.

    Examples
    --------
    >>> import numpy as np
    >>> method = Balanced(length=3)
    >>> shown = method.interleave([["a", "b", "c"], ["b", "d", "a"]], np.random.default_rng(2))
    >>> shown.items
    ('b', 'a', 'd')
    >>> method.credit(shown, clicks=[2]).outcome
    0.0
    """

    @property
    def _remembers(self) -> str:
        return "ranks"

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        both = [shown for _, shown in self._lists(rankings)]
        return both[int(rng.integers(2))]

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        both = [merged(rankings, leader, self.length) for leader in range(2)]
        probability = 1.0 if both[0] == both[1] else 0.5
        for items in both:
            yield 0.5, self._interleaved(items, 2, ranks(rankings, items), probability)

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        given = interleaved.memory["ranks"]
        if not clicks:
            return Credit((0.0, 0.0), 0, 0.5)
        last = [rank[clicks[-1]] for rank in given]
        depth = min((rank for rank in last if rank is not None), default=0)
        left, right = (float(sum(rank[i] is not None and rank[i] <= depth for i in clicks)) for rank in given)
        return Credit((left, right), len(clicks), compared(left - right))


def merged(rankings: tuple[tuple[Item, ...], ...], leader: int, length: int) -> list[Item]:
    """Merge two rankings in turns; what is left of the longer one follows."""
    first, second = rankings[leader], rankings[1 - leader]
    turns = [item for pair in zip(first, second, strict=False) for item in pair]
    turns += [*first[len(second) :], *second[len(first) :]]
    return list(dict.fromkeys(turns))[:length]
