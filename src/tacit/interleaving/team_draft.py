"""Interleaving by turns: balanced interleaving and team draft.

A balanced list takes items from two rankings in turn; its credit may be weighed by the probability that
items are seen. In a team draft, two or more rankers pick items for their teams in rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated, Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.part import int_range, optional
from tacit.errors import InvalidValue
from tacit.interleaving.base import (
    LONGEST,
    Credit,
    Interleaved,
    InterleavingMethod,
    Item,
    Ranked,
    complete_list,
    fair_depth,
    find_ranks,
    make_duel_credit,
)

# ---- Balanced interleaving: the shown list holds, from the top, equally many items of both rankings


class MergingMethod(InterleavingMethod):
    """Base of methods of duels that show one of two merged lists, by a fair coin."""

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw one of the two merged lists with a fair coin."""
        return [candidate for _, candidate in self._list_outcomes(rankings)][int(rng.integers(2))]

    def _merge_both(self, rankings: Ranked) -> tuple[list[list[Item]], float]:
        """Return both merged lists, one per leading ranker, and the probability that a list is shown.

        That is 1 if they are equal, else ½.
        """
        merges = [merge_rankings(rankings, leader, self.length) for leader in range(2)]
        return merges, 1.0 if merges[0] == merges[1] else 0.5


@dataclass(frozen=True)
class Balanced(MergingMethod):
    """Balanced interleaving of two rankings.

    A coin decides which ranker leads; then the rankers take turns, and each adds its next item unless the
    list has it already. At any depth the list holds the top k of both rankings, or the top k + 1 of the
    leader and the top k of the other. The credit of a ranker is the number of clicks on its top k,
    where k is the least depth at which either ranking holds the lowest clicked item.

    It is *biased*: for some pairs of rankings random clicks favour one of them, because the two
    lists that can be shown do not show their items symmetrically (rankings ``abcd`` and ``bcda``:
    one click at a random position gives the second ranker the win in three of four cases). Where
    that matters, use :class:`TeamDraft`.

    Memory: ``ranks``, per ranker the rank of each shown item from 0, null if it does not rank the item.

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

    _remembers = "ranks"

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield the two lists, one per leading ranker, with probability ½ each."""
        merges, probability = self._merge_both(rankings)
        for items in merges:
            yield 0.5, self._build_interleaved(items, 2, find_ranks(rankings, items), probability)

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the number of clicks on each ranker's top k, and the winner of the duel.

        k is the smaller of the two ranks of the lowest clicked item.
        """
        rank_rows = interleaved.memory["ranks"]
        if not clicks:
            return Credit((0.0, 0.0), 0, 0.5)
        last = [rank[clicks[-1]] for rank in rank_rows]
        depth = min((rank for rank in last if rank is not None), default=0)
        counts = (float(sum(rank[i] is not None and rank[i] <= depth for i in clicks)) for rank in rank_rows)
        return make_duel_credit(counts, len(clicks))


def merge_rankings(rankings: Ranked, leader: int, length: int) -> list[Item]:
    """Return both rankings merged in turns, ``leader`` first, without repeats, at most ``length`` items.

    The remaining items of the longer ranking follow.
    """
    first, second = rankings[leader], rankings[1 - leader]
    turns = [item for pair in zip(first, second, strict=False) for item in pair]
    turns += [*first[len(second) :], *second[len(first) :]]
    return list(dict.fromkeys(turns))[:length]


# ---- Debiased balanced interleaving: credit is weighed by the probability that items are seen


def check_examination(field: str, value: Any) -> Any:
    """Return the probability that each position is seen, as a tuple of numbers, or "inverse" unchanged.

    Raises InvalidValue for other values, and if the first probability is 0.
    """
    if value == "inverse":
        return value
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or not len(value):
        raise InvalidValue(field, value, "give 'inverse', or a probability for each place")
    curve = tuple(checks.number(field, chance, 0.0, 1.0) for chance in value)
    if curve[0] <= 0:
        raise InvalidValue(field, curve, "the first place is seen with some probability")
    return curve


@dataclass(frozen=True)
class DebiasedBalanced(MergingMethod):
    """Debiased balanced interleaving of two rankings: credit on the scale of an A/B test.

    Lists are built as by :class:`Balanced`. The credit of a ranker for a click on an item is the probability
    that users see the item at its rank in that ranking, divided by the probability that they see it on the
    two possible lists. If users see each position with the probability in ``examined``, whatever the other
    items are, a ranker's mean credit is the number of clicks per search that its own list, down to ``top``,
    would get alone. The difference of mean credits is then unbiased; that of :class:`Balanced` is not. An
    item that both rank the same gives both the same credit. If ``examined`` is not the users' curve, random
    clicks can favour a ranker; with :class:`Optimized` they never do.

    Compare the *mean credits*, as :func:`tacit.uplift.preference` does. The larger credit on a single list
    may still favour a ranker.

    Memory: ``credits``, per ranker and shown item the credit for a click.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.
    examined : "inverse" or sequence of float, default "inverse"
        Probability that a user sees each position, from the top: 1/position, or your own numbers, such as
        ``studies.ab_scale.examination_curve`` estimates; 0 below their end.
    top : int, optional
        Number of top ranks of each ranking that get credit; by default half of ``length``, rounded
        up, as lists reach that deep into both rankings.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    After the description of Bi, Castells, Gilbert, Galperin, Tardif, Ahuja (2022), "Debiased
    balanced interleaving at Amazon Search": balanced lists, and clicks weighed by inverse
    propensities as in counterfactual evaluation. Their formulas were not available; these are derived
    from the position-based model.

    Examples
    --------
    >>> import numpy as np
    >>> method = DebiasedBalanced(length=3)
    >>> shown = method.interleave([["a", "b", "c"], ["b", "c", "a"]], np.random.default_rng(1))
    >>> shown.items, np.round(shown.memory["credits"][0], 2)
    (('a', 'b', 'c'), array([1.33, 0.67, 0.  ]))
    """

    examined: Annotated[Any, check_examination] = "inverse"
    top: Annotated[int | None, optional(int_range(1, LONGEST))] = None

    _remembers = "credits"

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield the two lists with probability ½ each, with the credits for a click at each position."""
        merges, probability = self._merge_both(rankings)
        curve = self._make_curve()
        seen_chances: dict[Item, float] = {}
        for items in merges:
            for place, item in enumerate(items):
                seen_chances[item] = seen_chances.get(item, 0.0) + curve[place] / 2
        top = (self.length + 1) // 2 if self.top is None else self.top
        alone_chances = [{item: curve[rank] for rank, item in enumerate(row[:top])} for row in rankings]
        for items in merges:
            list_chances = [seen_chances[item] or math.inf for item in items]
            credits = [
                [chances.get(item, 0.0) / chance for item, chance in zip(items, list_chances, strict=True)]
                for chances in alone_chances
            ]
            yield 0.5, self._build_interleaved(items, 2, credits, probability)

    def _make_curve(self) -> Floats:
        """Return the probability that each of 100 positions is seen; 0 below the end of a given curve."""
        curve = np.zeros(LONGEST)
        if self.examined == "inverse":
            return 1.0 / np.arange(1.0, LONGEST + 1)
        curve[: len(self.examined)] = self.examined[:LONGEST]
        return curve

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the sums of the stored credits of the clicked positions, and the winner."""
        rows = interleaved.memory["credits"]
        return make_duel_credit((float(sum(row[place] for place in clicks)) for row in rows), len(clicks))


# ---- Team draft

# ---- Rounds in which each ranker picks one item, in random order: probabilities and shares

MOST_RANKERS = 16
"""Sums over all orders of a round take time 2^rankers."""


def compute_round(chances: Floats) -> tuple[float, Floats]:
    """Return the probability of the items of a round, and the shares of its rankers in each item.

    In a round each ranker picks one item, in random order. Both results are exact sums over all orders.

    Parameters
    ----------
    chances : array, shape (positions, rankers)
        The probability that a ranker, if it has its turn at this position of the round, picks the item
        there; no more positions than rankers.

    Returns
    -------
    probability : float
        Probability of the round's items, over uniform orders.
    shares : array, shape (positions, rankers)
        Probability that the ranker picked the item at the position, given the round's items.

    Examples
    --------
    >>> total, share = compute_round(np.array([[1.0, 0.5], [0.0, 0.5]]))
    >>> total
    0.25
    >>> share
    array([[1., 0.],
           [0., 1.]])
    """
    positions, rankers = chances.shape
    sets = np.arange(2**rankers)
    sets_without = [sets[sets >> ranker & 1 == 0] for ranker in range(rankers)]
    before = np.zeros((positions + 1, len(sets)))  # by the set of rankers that have picked
    before[0, 0] = 1.0
    for position in range(positions):
        for ranker, free in enumerate(sets_without):
            gain = before[position, free] * chances[position, ranker]
            before[position + 1, free | 1 << ranker] += gain
    after = np.zeros_like(before)
    after[positions] = np.bitwise_count(sets) == positions
    joint = np.zeros_like(chances)
    for position in reversed(range(positions)):
        for ranker, free in enumerate(sets_without):
            completion = chances[position, ranker] * after[position + 1, free | 1 << ranker]
            after[position, free] += completion
            joint[position, ranker] = before[position, free] @ completion
    total = float(after[0, 0])
    return total / math.perm(rankers, positions), joint / total if total > 0 else joint


# ---- Team-draft multileaving: many rankers pick items for their teams, as captains do

Teams = list[int | None]
Drafted = dict[Item, int]
"""The drafted items, each with its turn, from 0."""


@dataclass(frozen=True)
class TeamDraftMultileave(InterleavingMethod):
    """Team-draft multileaving of two or more rankings.

    In every round the rankers pick in a random order, each its best item that is not listed yet,
    for its team. A ranker's credit is the number of clicks on its team. Clicks that do not depend
    on the items favour no ranker. With more rankers than positions, only a random part of them has
    a team on each list.

    Below the length of the shortest ranking the list is filled up with the remaining items, best ranks
    first, which belong to no team.

    Memory: ``teams``, per shown item the number of the ranker that picked it, null for none.
    The probability of the list is computed for up to 16 rankers.

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

    _remembers = "teams"

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw a random order for each round, let the rankers pick, and return the list with its teams."""
        rankers, depth = len(rankings), fair_depth(rankings, self.length)
        rounds = np.arange(math.ceil(depth / rankers) * rankers).reshape(-1, rankers) % rankers
        orders = rng.permuted(rounds, axis=1)
        order: list[int] = orders.ravel()[:depth].tolist()
        items: Drafted = {}
        pick_items(list(map(iter, rankings)), order, items)
        return self._complete_draft(rankings, items, [*order])

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield the probability and the list of every draft; a list comes once per assignment to teams."""
        yield from self._list_drafts(rankings, {}, [], 1.0)

    def _list_drafts(
        self, rankings: Ranked, items: Drafted, teams: Teams, chance: float
    ) -> Iterator[tuple[float, Interleaved]]:
        """Yield the probability and the list of every way to complete a partial draft.

        ``items`` and ``teams`` are drafted so far, with the probability ``chance``.
        """
        picks = min(len(rankings), fair_depth(rankings, self.length) - len(items))
        if not picks:
            yield chance, self._complete_draft(rankings, items, teams)
            return
        order_chance = chance / math.perm(len(rankings), picks)
        for order in permutations(range(len(rankings)), picks):
            picked = dict(items)
            pick_items(list(map(iter, rankings)), order, picked)
            yield from self._list_drafts(rankings, picked, [*teams, *order], order_chance)

    def _complete_draft(self, rankings: Ranked, items: Drafted, teams: Teams) -> Interleaved:
        """Return the list that begins with the drafted items and is filled up with items of no team.

        Its memory has the teams, and its probability is that of drafting the items.
        """
        complete = complete_list(rankings, items, self.length)
        return self._build_interleaved(
            complete,
            len(rankings),
            teams + [None] * (len(complete) - len(items)),
            draft_probability(rankings, items),
        )

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return the number of clicks on each ranker's team, and the winner of a duel."""
        teams = [interleaved.memory["teams"][position] for position in clicks]
        counts = tuple([float(teams.count(ranker)) for ranker in range(interleaved.rankers)])
        return make_duel_credit(counts, len(clicks)) if self.duels else Credit(counts, len(clicks))


def pick_items(queues: Sequence[Iterator[Item]], order: Iterable[int], items: Drafted) -> None:
    """Add to ``items``, for each ranker in ``order``, the next item of its queue that is not listed yet.

    There must be such an item for each ranker.
    """
    for ranker in order:
        for item in queues[ranker]:
            if item not in items:
                items[item] = len(items)
                break


def draft_probability(rankings: Ranked, items: Drafted) -> float | None:
    """Return the probability of drafting these items in this order, summed over all assignments to teams.

    None for more than 16 rankers, as the sum would take too long.
    """
    rankers = len(rankings)
    if rankers > MOST_RANKERS:
        return None
    # An item is its ranker's best choice in its turn if all items above it were drafted in earlier turns.
    tops = [[0.0] * rankers for _ in items]
    for ranker, ranking in enumerate(rankings):
        last = -1
        for turn in map(items.get, ranking):
            if turn is None:
                break
            if turn > last:
                tops[turn][ranker], last = 1.0, turn
    if rankers == 2:  # the same sum, without arrays
        pairs = zip(tops[::2], tops[1::2], strict=False)
        chance = math.prod([(a * follow_b + b * follow_a) / 2 for (a, b), (follow_a, follow_b) in pairs])
        return chance * sum(tops[-1]) / 2 if len(items) % 2 else chance
    rounds = [tops[start : start + rankers] for start in range(0, len(items), rankers)]
    return math.prod(compute_round(np.array(captains))[0] for captains in rounds)


# ---- Team-draft interleaving: the rankers pick items for their teams, as captains do


@dataclass(frozen=True)
class TeamDraft(TeamDraftMultileave):
    """Team-draft interleaving of two rankings: the method to begin with.

    In every round a coin decides which ranker picks first; each picks its best item that is not listed
    yet, for its team. The ranker whose team gets more clicks wins; equally many, or none, are a
    tie. Clicks that do not depend on the items favour no ranker.

    Below the length of the shortest ranking the list is filled up with the remaining items, best ranks
    first, which belong to no team.

    Memory: ``teams``, per shown item the ranker that picked it (0 left, 1 right), null for none.

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
