"""Optimized interleaving: the fairest probabilities of lists, and among them the most telling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.part import one_of, whole
from tacit.errors import MissingExtra
from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod, Item, compared, ranks

MOST_ITEMS = 12
"""Up to 2^length lists enter the linear program."""

SCORES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "binary": lambda own, other: (own < other).astype(np.float64),
    "linear": lambda own, other: other - own,
    "inverse": lambda own, other: 1.0 / own - 1.0 / other,
}


@dataclass(frozen=True)
class Optimized(InterleavingMethod):
    """Optimized interleaving of two rankings.

    All lists are allowed in which each next item is the best of a ranking that is not shown yet.
    A linear program finds their probabilities: such that a user who clicks at random on one of the
    first k positions favours nobody on average, for every k, and, given that, such that users
    whose clicks fall with the position like 1/position decide as many duels as evenly as possible.
    With the score ``binary`` there may be no fair probabilities (none are for ``abcd`` and
    ``bcda``, where one ranker has the better rank for three of four items, whatever is shown);
    then those are taken that are least unfair.

    Fairness concerns the mean difference of credits, not the share of wins: one large credit can
    balance many small ones, so that random clicks let one ranker win more often (two of three
    duels in the example below). Compare rankers by their mean credits, or duel with
    :class:`TeamDraft`.

    Remembers ``credits``: per ranker and item shown, the credit for a click. Needs scipy
    (``tacit[interleaving]``). Solutions for the latest 8192 pairs of rankings are kept.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 12.
    score : {"linear", "inverse", "binary"}
        The credit of a click: the item's rank in the other ranking minus that in the ranker's own;
        the difference of the ranks' inverses; or 1 for the ranker that ranks it higher. An item
        that a ranking lacks has the rank after its last.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    MissingExtra
        If scipy is not installed.

    References
    ----------
    Radlinski, Craswell (2013), "Optimized interleaving for online retrieval evaluation", section 4:
    the allowed lists, the credit functions, the constraints and the sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> method = Optimized(length=3)
    >>> shown = method.interleave([["a", "b", "c"], ["b", "c", "a"]], np.random.default_rng(1))
    >>> shown.items, round(shown.probability, 3)
    (('b', 'a', 'c'), 0.333)
    >>> method.credit(shown, clicks=[1]).outcome
    1.0
    """

    length: Annotated[int, whole(1, MOST_ITEMS)] = 10
    score: Annotated[str, one_of(*SCORES)] = "linear"

    @property
    def _remembers(self) -> str:
        return "credits"

    def _interleave(self, rankings: tuple[tuple[Item, ...], ...], rng: Generator) -> Interleaved:
        choices = solved(rankings, self.length, self.score)
        cumulative = np.cumsum([probability for probability, _, _ in choices])
        index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], "right"))
        return self._chosen(choices[min(index, len(choices) - 1)])

    def _lists(self, rankings: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[float, Interleaved]]:
        for choice in solved(rankings, self.length, self.score):
            yield choice[0], self._chosen(choice)

    def _chosen(self, choice: tuple[float, tuple[Item, ...], Floats]) -> Interleaved:
        probability, items, difference = choice
        credits = [np.maximum(difference, 0.0).tolist(), np.maximum(-difference, 0.0).tolist()]
        return self._interleaved(items, 2, credits, probability)

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        left, right = (
            math.fsum(row[position] for position in clicks) for row in interleaved.memory["credits"]
        )
        return Credit((left, right), len(clicks), compared(left - right))


def allowed(rankings: Sequence[Sequence[Item]], length: int) -> list[tuple[Item, ...]]:
    """Return all lists in which each next item is the best that one ranking has left.

    Examples
    --------
    >>> allowed(["ab", "bc"], 2)
    [('a', 'b'), ('b', 'a'), ('b', 'c')]
    """
    lists: list[tuple[Item, ...]] = [()]
    for _ in range(min(length, len({item for given in rankings for item in given}))):
        extended: dict[tuple[Item, ...], None] = {}
        for items in lists:
            tops = (next((item for item in given if item not in items), None) for given in rankings)
            extended |= {(*items, top): None for top in tops if top is not None}
        lists = list(extended)
    return lists


def differences(rankings: Sequence[Sequence[Item]], lists: Sequence[Sequence[Item]], score: str) -> Floats:
    """Return the left ranker's credit minus the right one's, per list and position."""
    found = []
    for items in lists:
        left, right = (
            np.array([len(given) + 1.0 if rank is None else rank + 1.0 for rank in row])
            for given, row in zip(rankings, ranks(rankings, items), strict=True)
        )
        credit = SCORES[score]
        both = credit(left, right)
        # The other scores are differences already.
        found.append(both - credit(right, left) if score == "binary" else both)
    return np.array(found)


def sensitivity(difference: Floats) -> Floats:
    """Return how telling each list is: the entropy of who wins a click ∝ 1/position, without ties.

    Parameters
    ----------
    difference : array, shape (lists, positions)
    """
    attention = 1.0 / np.arange(1, difference.shape[1] + 1)
    attention /= attention.sum()
    left, right = (difference > 0) @ attention, (difference < 0) @ attention
    decided = left + right
    share = np.divide(left, decided, out=np.zeros_like(left), where=decided > 0)
    entropy = np.zeros_like(left)
    for part in (share, 1.0 - share):
        entropy -= part * np.log2(part, out=np.zeros_like(part), where=part > 0)
    return np.asarray(decided * entropy)


@lru_cache(maxsize=8192)
def solved(
    rankings: tuple[tuple[Item, ...], ...], length: int, score: str
) -> tuple[tuple[float, tuple[Item, ...], Floats], ...]:
    """Return the lists to choose from: probability, items, difference of credits by position.

    Raises
    ------
    MissingExtra
        If scipy is not installed.
    """
    lists = allowed(rankings, length)
    difference = differences(rankings, lists, score)
    probabilities = _program(np.cumsum(difference, axis=1), sensitivity(difference))
    probabilities[probabilities < 1e-9] = 0.0
    probabilities /= probabilities.sum()
    return tuple((float(probabilities[i]), lists[i], difference[i]) for i in np.flatnonzero(probabilities))


def _program(unfairness: Floats, telling: Floats) -> Any:
    """Return the fair probabilities of lists that tell most; if none are fair, the least unfair."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("scipy", "interleaving") from None

    count, positions = unfairness.shape
    fair = linprog(
        -telling, A_eq=np.vstack([np.ones(count), unfairness.T]), b_eq=np.array([1.0, *[0.0] * positions])
    )
    if fair.status == 0:
        return fair.x
    # Slack in both directions, as little as possible.
    slack = np.hstack([unfairness.T, np.eye(positions), -np.eye(positions)])
    total = np.array([*[1.0] * count, *[0.0] * (2 * positions)])
    least = linprog(
        np.array([*[0.0] * count, *[1.0] * (2 * positions)]),
        A_eq=np.vstack([total, slack]),
        b_eq=np.array([1.0, *[0.0] * positions]),
    )
    return least.x[:count]
