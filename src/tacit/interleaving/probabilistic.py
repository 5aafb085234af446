"""Interleaving by chance: probabilistic interleaving and multileaving, and optimized interleaving.

Probabilistic methods draw items with better ranks more often. Optimized interleaving solves for the
probabilities of whole lists that favour no ranker and, among these, decide duels most sensitively.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Annotated, Any

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.part import float_range, int_range, one_word
from tacit.errors import InvalidValue, MissingExtra
from tacit.interleaving.base import (
    Credit,
    Interleaved,
    InterleavingMethod,
    Item,
    Ranked,
    Rankings,
    complete_list,
    draw_index,
    fair_depth,
    find_ranks,
    make_duel_credit,
)
from tacit.interleaving.team_draft import MOST_RANKERS, compute_round

# ---- Probabilistic interleaving: every item can come from either ranker, better ranks more often


@dataclass(frozen=True)
class Probabilistic(InterleavingMethod):
    """Probabilistic interleaving of two rankings.

    For every position a coin chooses the ranker, and the ranker draws among its remaining items
    with probability ∝ 1/rank^decay. So any list of the items is possible, and small differences
    of the rankings change every credit a little.

    The credit is *marginalised*: given the list, each item came from the left ranker with a known
    probability, and ``chance`` is the probability, over all assignments of items to rankers, that more
    clicks fell on the left ranker's items (ties counted half). Its mean over impressions is
    unbiased and varies less than that of observed assignments. Rounded to a winner it is *not*
    unbiased: random clicks can favour a ranker. For single duels use ``credit.draw_outcome(rng)``.

    Below the length of the shorter ranking the list is filled up with the remaining items, best ranks
    first; they give no credit.

    Memory: ``shares``, per ranker and shown item the probability that it came from the ranker,
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

    decay: Annotated[float, float_range(0.0, 20.0)] = 3.0
    marginalised: bool = True

    @property
    def _remembers(self) -> str:
        """Name of the entry in the memory: ``shares`` of the rankers, or the ``teams`` that were drawn."""
        return "shares" if self.marginalised else "teams"

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw a list: for each position a coin chooses the ranker, which draws among its remaining items."""
        items: list[Item] = []
        teams: list[int] = []
        urns = [Urn(ranking, self.decay) for ranking in rankings]
        for _ in range(fair_depth(rankings, self.length)):
            teams.append(int(rng.integers(2)))
            items.append(urns[teams[-1]].draw(rng))
            for urn in urns:
                urn.remove(items[-1])
        return self._complete_draw(rankings, items, teams)

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield every possible list, with its probability.

        Unless ``marginalised``, a list is yielded once per assignment of its items to teams.
        """
        union = list(dict.fromkeys(item for ranking in rankings for item in ranking))
        depth = fair_depth(rankings, self.length)
        for items in permutations(union, depth):
            chances = turn_chances(rankings, items, self.decay)
            if self.marginalised:
                interleaved = self._complete_draw(rankings, list(items), [])
                if interleaved.probability:
                    yield interleaved.probability, interleaved
                continue
            for teams in product(range(2), repeat=depth):
                joint = math.prod(chances[team, position] / 2 for position, team in enumerate(teams))
                if joint > 0.0:
                    yield joint, self._complete_draw(rankings, list(items), list(teams))

    def _complete_draw(self, rankings: Ranked, items: list[Item], teams: list[int]) -> Interleaved:
        """Return the list that begins with the drawn items and is filled up from the rankings.

        Its memory has the shares of the rankers if ``marginalised``, else ``teams``, the rankers that drew;
        its probability is that of drawing the items.
        """
        chances = turn_chances(rankings, items, self.decay)
        total = chances.sum(axis=0)
        complete = complete_list(rankings, items, self.length)
        padding = [None] * (len(complete) - len(items))
        memory = (
            [[*row, *padding] for row in (chances / total).tolist()]
            if self.marginalised and total.all()
            else [*teams, *padding]
        )
        return self._build_interleaved(complete, 2, memory, float(np.prod(total / 2)))

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the number of clicks on each team, or, if ``marginalised``, each ranker's chance of winning.

        The chance is the probability that most clicks fell on the ranker's items, ties counted half.
        """
        if not self.marginalised:
            teams = [interleaved.memory["teams"][position] for position in clicks]
            return make_duel_credit((float(teams.count(0)), float(teams.count(1))), len(clicks))
        shares = [interleaved.memory["shares"][0][position] for position in clicks]
        chance = majority_chance([share for share in shares if share is not None])
        return Credit((chance, 1.0 - chance), len(clicks), chance)


class Urn:
    """The remaining items of a ranker, to be drawn with probability ∝ 1/rank^decay."""

    def __init__(self, items: Sequence[Item], decay: float) -> None:
        """Fill the urn with all items of a ranking, best first."""
        self._weights: dict[Item, float] = {item: rank**-decay for rank, item in enumerate(items, 1)}

    def draw(self, rng: Generator) -> Item:
        """Draw an item and return it; it stays in the urn."""
        return list(self._weights)[draw_index(list(self._weights.values()), rng)]

    def chance(self, item: Item) -> float:
        """Return the probability that the next draw gives this item; 0 if it is not in the urn."""
        return float(self._weights.get(item, 0.0) / math.fsum(self._weights.values()))

    def remove(self, item: Item) -> None:
        """Remove an item, if it is there."""
        self._weights.pop(item, None)


def turn_chances(rankings: Sequence[Sequence[Item]], items: Sequence[Item], decay: float) -> Floats:
    """Return the probability that each ranker, if it has its turn at a position, draws the item there.

    ``items`` is a list from the top; earlier items are removed from all rankings before each position.

    Returns
    -------
    array of float64, shape (rankers, positions)
    """
    urns = [Urn(ranking, decay) for ranking in rankings]
    chances = np.zeros((len(rankings), len(items)))
    for position, item in enumerate(items):
        for ranker, urn in enumerate(urns):
            chances[ranker, position] = urn.chance(item)
            urn.remove(item)
    return chances


def majority_chance(shares: Sequence[float]) -> float:
    """Return the probability that most clicks fell on the left ranker's items, ties counted half.

    Parameters
    ----------
    shares : sequence of float
        For each click, independently, the probability that it fell on the left ranker's item.

    Examples
    --------
    >>> round(majority_chance([0.9, 0.5, 0.5]), 4)  # 0.9 · 0.75 + 0.1 · 0.25
    0.7
    >>> majority_chance([])
    0.5
    """
    counts = np.ones(1)
    for share in shares:
        counts = np.convolve(counts, [1.0 - share, share])
    difference = 2 * np.arange(len(counts)) - len(shares)
    return float(counts[difference > 0].sum() + counts[difference == 0].sum() / 2)


# ---- Probabilistic multileaving: many rankers, each drawing better ranks of its own ranking more often


@dataclass(frozen=True)
class ProbabilisticMultileave(InterleavingMethod):
    """Probabilistic multileaving of 2 to 16 rankings.

    In every round the rankers take turns in a random order; each draws among its remaining items
    with probability ∝ 1/rank^decay. A ranker's credit is the expected number of clicks on
    its items, over all orders that could have produced the list. The paper samples
    these orders; here the sum is exact, which takes time 2^rankers.

    A ranker's mean credit is unbiased under random clicks; comparing the credits of a single list
    (:meth:`Credit.duel`) is not.

    Below the length of the shortest ranking the list is filled up with the remaining items, best ranks
    first; they give no credit.

    Memory: ``shares``, per ranker and shown item the probability that it came from the ranker,
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

    decay: Annotated[float, float_range(0.0, 20.0)] = 3.0

    _remembers = "shares"

    def _check_rankings(self, rankings: Rankings) -> Ranked:
        """Return the validated rankings; raise InvalidValue for more than 16."""
        checked = super()._check_rankings(rankings)
        if len(checked) > MOST_RANKERS:
            remedy = f"give at most {MOST_RANKERS}, or use TeamDraftMultileave"
            raise InvalidValue("rankings", rankings, remedy)
        return checked

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw a list: in each round the rankers draw in random order among their remaining items."""
        items: list[Item] = []
        urns = [Urn(ranking, self.decay) for ranking in rankings]
        depth = fair_depth(rankings, self.length)
        while len(items) < depth:
            for ranker in rng.permutation(len(rankings))[: depth - len(items)]:
                items.append(urns[ranker].draw(rng))
                for urn in urns:
                    urn.remove(items[-1])
        return self._complete_draw(rankings, items)

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield every possible list with its probability."""
        union = list(dict.fromkeys(item for ranking in rankings for item in ranking))
        for items in permutations(union, fair_depth(rankings, self.length)):
            interleaved = self._complete_draw(rankings, list(items))
            if interleaved.probability:
                yield interleaved.probability, interleaved

    def _complete_draw(self, rankings: Ranked, items: list[Item]) -> Interleaved:
        """Return the list that begins with the drawn items and is filled up from the rankings.

        Its memory has the rankers' shares of each item, its probability is that of drawing the items.
        """
        chances = turn_chances(rankings, items, self.decay).T
        starts = range(0, len(items), len(rankings))
        rounds = [compute_round(chances[start : start + len(rankings)]) for start in starts]
        complete = complete_list(rankings, items, self.length)
        padding = [None] * (len(complete) - len(items))
        share_rows = np.vstack([share for _, share in rounds]).T.tolist()
        probability = math.prod(total for total, _ in rounds)
        rows = [[*row, *padding] for row in share_rows]
        return self._build_interleaved(complete, len(rankings), rows, probability)

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the sum of each ranker's shares of the clicked items."""
        share_rows = interleaved.memory["shares"]
        credits = (math.fsum(row[position] or 0.0 for position in clicks) for row in share_rows)
        return Credit(tuple(credits), len(clicks))


# ---- Optimized interleaving: the fairest probabilities of lists, and among these the most sensitive

MOST_ITEMS = 12
"""Longest list: up to 2^length lists enter the linear program."""

SCORES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "binary": lambda own, other: (own < other).astype(np.float64),
    "linear": lambda own, other: other - own,
    "inverse": lambda own, other: 1.0 / own - 1.0 / other,
}


@dataclass(frozen=True)
class Optimized(InterleavingMethod):
    """Optimized interleaving of two rankings.

    A list is allowed if each next item is the best item of a ranking that is not listed yet.
    A linear program finds the probabilities of these lists. They are fair: for every k, a user who clicks
    at random on one of the first k positions favours no ranker on average. Among fair probabilities they
    maximize sensitivity: users whose clicks fall with the position like 1/position decide as many duels
    as evenly as possible. With the score ``binary`` there may be no fair probabilities (none exist for
    ``abcd`` and ``bcda``, where one ranker has the better rank for three of four items on every list);
    then the least unfair ones are used.

    Fairness concerns the mean difference of credits, not the share of wins: one large credit can
    balance many small ones, so that random clicks let one ranker win more often (two of three
    duels in the example below). Compare rankers by their mean credits, or duel with
    :class:`TeamDraft`.

    Memory: ``credits``, per ranker and shown item the credit for a click. Needs scipy
    (``tacit-learn[interleaving]``). Solutions for the latest 8192 pairs of rankings are cached.

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

    length: Annotated[int, int_range(1, MOST_ITEMS)] = 10
    score: Annotated[str, one_word(*SCORES)] = "linear"

    _remembers = "credits"

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw one of the lists with the optimal probabilities."""
        choices = solve_lists(rankings, self.length, self.score)
        return self._build_choice(choices[draw_index([choice[0] for choice in choices], rng)])

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield the probability and the list of each choice of positive probability."""
        for choice in solve_lists(rankings, self.length, self.score):
            yield choice[0], self._build_choice(choice)

    def _build_choice(self, choice: tuple[float, tuple[Item, ...], Floats]) -> Interleaved:
        """Return a choice of ``solve_lists`` as a list, with the credits for a click at each position."""
        probability, items, difference = choice
        credits = [np.maximum(difference, 0.0).tolist(), np.maximum(-difference, 0.0).tolist()]
        return self._build_interleaved(items, 2, credits, probability)

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the sums of the stored credits of the clicked positions, and the winner."""
        rows = interleaved.memory["credits"]
        return make_duel_credit((math.fsum(row[place] for place in clicks) for row in rows), len(clicks))


def list_candidates(rankings: Sequence[Sequence[Item]], length: int) -> list[tuple[Item, ...]]:
    """Return all lists in which each next item is the best remaining item of one ranking.

    They have ``length`` items, or all if there are fewer.

    Examples
    --------
    >>> list_candidates(["ab", "bc"], 2)
    [('a', 'b'), ('b', 'a'), ('b', 'c')]
    """
    lists: list[tuple[Item, ...]] = [()]
    for _ in range(min(length, len({item for ranking in rankings for item in ranking}))):
        extended: dict[tuple[Item, ...], None] = {}
        for items in lists:
            tops = (next((item for item in ranking if item not in items), None) for ranking in rankings)
            extended |= {(*items, top): None for top in tops if top is not None}
        lists = list(extended)
    return lists


def credit_differences(
    rankings: Sequence[Sequence[Item]], lists: Sequence[Sequence[Item]], score: str
) -> Floats:
    """Return the left ranker's credit for a click minus the right one's, shape (lists, positions).

    ``score`` names the credit as a function of both ranks; an item that is not ranked has the rank after the
    last one.
    """
    rows = []
    for items in lists:
        left_ranks, right_ranks = (
            np.array([len(ranking) + 1.0 if rank is None else rank + 1.0 for rank in row])
            for ranking, row in zip(rankings, find_ranks(rankings, items), strict=True)
        )
        credit = SCORES[score]
        difference = credit(left_ranks, right_ranks)
        # The scores "linear" and "inverse" are differences already.
        rows.append(difference - credit(right_ranks, left_ranks) if score == "binary" else difference)
    return np.array(rows)


def compute_sensitivity(difference: Floats) -> Floats:
    """Return the sensitivity of each list: P(no tie) · entropy in bits of the winner if there is no tie.

    A click falls on a position with a probability proportional to 1/position; the ranker with more credit
    there wins, equal credits are a tie.

    Parameters
    ----------
    difference : array, shape (lists, positions)
        Credit of the left ranker minus that of the right one.

    Returns
    -------
    array, shape (lists,)
        From 0, if the same ranker always wins or all positions tie, to 1.
    """
    attention = 1.0 / np.arange(1, difference.shape[1] + 1)
    attention /= attention.sum()
    left_wins, right_wins = (difference > 0) @ attention, (difference < 0) @ attention
    decided = left_wins + right_wins
    share = np.divide(left_wins, decided, out=np.zeros_like(left_wins), where=decided > 0)
    entropy = np.zeros_like(left_wins)
    for part in (share, 1.0 - share):
        entropy -= part * np.log2(part, out=np.zeros_like(part), where=part > 0)
    return np.asarray(decided * entropy)


@lru_cache(maxsize=8192)
def solve_lists(
    rankings: Ranked, length: int, score: str
) -> tuple[tuple[float, tuple[Item, ...], Floats], ...]:
    """Return the lists that optimized interleaving shows: probability, items and credit differences of each.

    Probabilities are above 0 and sum to 1; a credit difference is the left ranker's credit for a click at a
    position minus the right one's. Results are cached.

    Raises
    ------
    MissingExtra
        If scipy is not installed.
    """
    lists = list_candidates(rankings, length)
    difference = credit_differences(rankings, lists, score)
    probabilities = _solve_program(np.cumsum(difference, axis=1), compute_sensitivity(difference))
    probabilities[probabilities < 1e-9] = 0.0
    probabilities /= probabilities.sum()
    return tuple((float(probabilities[i]), lists[i], difference[i]) for i in np.flatnonzero(probabilities))


def _solve_program(unfairness: Floats, sensitivities: Floats) -> Any:
    """Return the most sensitive fair probabilities of lists; if none are fair, the least unfair ones.

    ``unfairness``, shape (lists, positions), is the left ranker's lead in credit if each of the first k
    positions is clicked; probabilities are fair if its mean is 0 for every k. Raises MissingExtra without
    scipy.
    """
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("scipy", "interleaving") from None

    count, positions = unfairness.shape
    fair = linprog(
        -sensitivities,
        A_eq=np.vstack([np.ones(count), unfairness.T]),
        b_eq=np.array([1.0, *[0.0] * positions]),
    )
    if fair.status == 0:
        return fair.x
    # No solution is exactly fair: allow slack in both directions and minimize it.
    slack = np.hstack([unfairness.T, np.eye(positions), -np.eye(positions)])
    total = np.array([*[1.0] * count, *[0.0] * (2 * positions)])
    least = linprog(
        np.array([*[0.0] * count, *[1.0] * (2 * positions)]),
        A_eq=np.vstack([total, slack]),
        b_eq=np.array([1.0, *[0.0] * positions]),
    )
    return least.x[:count]
