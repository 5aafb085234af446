"""Balanced interleaving, and credit in it that is weighed by how well items were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.part import optional, whole
from tacit.errors import InvalidValue
from tacit.interleaving.base import LONGEST, Credit, Interleaved, InterleavingMethod, Item, compared, ranks

# ---- Balanced interleaving: the shown list holds, from the top, equally much of both rankings


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


# ---- Debiased balanced interleaving: credit is weighed by how well items were seen


def examination(field: str, value: Any) -> Any:
    """Return how likely each place is seen: a curve by name, or probabilities from the top."""
    if value == "inverse":
        return value
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or not len(value):
        raise InvalidValue(field, value, "give 'inverse', or a probability for each place")
    curve = tuple(checks.number(field, chance, 0.0, 1.0) for chance in value)
    if curve[0] <= 0:
        raise InvalidValue(field, curve, "the first place is seen with some probability")
    return curve


@dataclass(frozen=True)
class DebiasedBalanced(InterleavingMethod):
    """Debiased balanced interleaving of two rankings: credit on the scale of an A/B test.

    Lists are those of :class:`Balanced`: a coin says who leads. A click on an item is credited to
    each ranker with the probability that the item is seen where that ranker puts it, over the
    probability that it is seen on the lists of the coin. Where users see a place with the
    probability given, whatever stands around it, the mean credit of a ranker is the clicks per
    search that it would earn alone, on its ``top``; its difference is unbiased, which that of
    :class:`Balanced` is not. Items that both rank alike earn both the same. With another curve than
    the users' random clicks can favour a ranker, and :class:`Optimized` never does.

    The *mean credits* are to be compared, as :func:`tacit.proof.preference` does. Which of the two
    is larger on a single list may still favour a ranker.

    Remembers ``credits``: per ranker and item shown, the credit for a click.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.
    examined : "inverse" or sequence of float, default "inverse"
        With which probability a user sees each place, from the top: 1/place, or yours, such as
        :func:`tacit.evaluate.interleaved.examination_curve` finds; 0 below its end.
    top : int, optional
        So many places of a ranker's own list earn credit; by default half of ``length``, rounded
        up: so deep the lists reach into both rankings.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    After the description of Bi, Castells, Gilbert, Galperin, Tardif, Ahuja (2022), "Debiased
    balanced interleaving at Amazon Search": balanced lists, and clicks weighed by inverse
    propensities of a counterfactual evaluation. Their formulas were not at hand; these follow
    from the position-based model.

    Examples
    --------
    >>> import numpy as np
    >>> method = DebiasedBalanced(length=3)
    >>> shown = method.interleave([["a", "b", "c"], ["b", "c", "a"]], np.random.default_rng(1))
    >>> shown.items, np.round(shown.memory["credits"][0], 2)
    (('a', 'b', 'c'), array([1.33, 0.67, 0.  ]))
    """

    examined: Annotated[Any, examination] = "inverse"
    top: Annotated[int | None, optional(whole(1, LONGEST))] = None

    @property
    def _remembers(self) -> str:
        return "credits"

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        both = [shown for _, shown in self._lists(rankings)]
        return both[int(rng.integers(2))]

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        both = [merged(rankings, leader, self.length) for leader in range(2)]
        probability = 1.0 if both[0] == both[1] else 0.5
        curve = self._curve()
        seen: dict[Item, float] = {}
        for items in both:
            for place, item in enumerate(items):
                seen[item] = seen.get(item, 0.0) + curve[place] / 2
        top = (self.length + 1) // 2 if self.top is None else self.top
        earned = [{item: curve[rank] for rank, item in enumerate(given[:top])} for given in rankings]
        for items in both:
            credits = [
                [own.get(item, 0.0) / seen[item] if seen[item] > 0 else 0.0 for item in items]
                for own in earned
            ]
            yield 0.5, self._interleaved(items, 2, credits, probability)

    def _curve(self) -> Floats:
        curve = np.zeros(LONGEST)
        if self.examined == "inverse":
            return 1.0 / np.arange(1.0, LONGEST + 1)
        curve[: len(self.examined)] = self.examined[:LONGEST]
        return curve

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        left, right = (float(sum(row[place] for place in clicks)) for row in interleaved.memory["credits"])
        return Credit((left, right), len(clicks), compared(left - right))
