"""Environments of dueling rankers: rankings are interleaved, and clicks of simulated users decide duels."""

# 1. ``InterleavedRankers``: for each query, two rankings are interleaved, a click model clicks, and credit
#    for the clicks decides the duel.
# 2. ``draft_lists`` …: the exact probability of each outcome, by sums over all lists and all clicks.
# 3. ``from_rankers``: the environment from rankings and judgments of relevance.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Annotated, Any, NamedTuple

import numpy as np

from tacit.clicks import ClickModel
from tacit.clicks.base import EMPTY
from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import int_range, one_word, param, set_field
from tacit.core.run_mode import compile_loop
from tacit.environments.duels import DuelEnvironment
from tacit.errors import InvalidValue
from tacit.interleaving import Balanced, InterleavingMethod, Optimized, Probabilistic, TeamDraft
from tacit.interleaving.base import TIE, Item, check_ranking, fair_depth
from tacit.interleaving.rules import outcome_weights
from tacit.policies.base import Impression

MAX_LENGTH = 14
"""Longest list, as sums over all clicks take time 2^length."""


@dataclass(frozen=True)
class InterleavedRankers(DuelEnvironment):
    """Duels of rankers: for a random query, two rankings are interleaved and a user clicks.

    For a query and a pair, outcomes are independent, so they are drawn from a table of their
    probabilities, which is computed once. It is *exact*: a sum over all lists that the method
    can show and all possible clicks. Probabilistic interleaving has too many lists; for it
    ``samples`` lists are drawn for each query and pair, each summed over all clicks, and
    ``precision`` is the standard error of the table.

    The regret of a duel is the mean gap of both rankers: the probability that the best ranker
    beats them, minus 1/2. The best ranker is the Condorcet winner; without one it is the ranker
    that beats most others, among equals the one with the highest mean, and a regret can be
    negative.

    Parameters
    ----------
    rankings : sequence, shape (queries, rankers, items)
        Per query, each ranker's ranking of items, by their indices in ``grades``.
    grades : sequence, shape (queries, items)
        Per query, each item's grade of relevance, which the click model uses.
    user : ClickModel
    method : InterleavingMethod, default TeamDraft()
        A method for two rankings, with a length of at most 14.
    traffic : sequence of float, optional
        Relative frequency of each query; by default all equal.
    ties : {"coin", "keep"}, default "coin"
        How ties, such as lists without clicks, are decided: by a fair coin, or as an outcome of 0.5.
    samples : int, default 500
        Number of lists drawn for each query and pair, for probabilistic interleaving.
    names : sequence of str, optional
        The rankers' names.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", sections 1 and 2.

    Examples
    --------
    >>> from tacit.clicks import perfect
    >>> from tacit.interleaving import TeamDraft
    >>> rankings = [[[0, 1, 2], [2, 1, 0]]]  # one query, two rankers
    >>> environment = InterleavedRankers(
    ...     rankings, grades=[[1, 0, 0]], user=perfect(2), method=TeamDraft(length=2)
    ... )
    >>> environment.preferences[0, 1]  # item 0 is always shown, in the team of ranker 0
    np.float64(1.0)
    """

    class World(NamedTuple):
        impression: Impression
        wins: Floats  # (queries, rankers, rankers)
        ties: Floats  # (queries, rankers, rankers)
        traffic: Floats  # (queries,) cumulative probability
        shortfall: Floats  # (rankers,)
        query: Any  # (1,)
        uniform: Floats  # (1,)

    rankings: Any
    grades: Any
    user: ClickModel
    method: InterleavingMethod = TeamDraft()  # noqa: RUF009 - it is frozen
    traffic: Any = None
    ties: Annotated[str, one_word("coin", "keep")] = "coin"
    samples: Annotated[int, int_range(2, 10**7)] = 500
    names: Any = None

    def __post_init__(self) -> None:
        """Validate all parameters and store them as tuples; raise InvalidValue if one is invalid."""
        super().__post_init__()
        if not isinstance(self.user, ClickModel):
            raise InvalidValue("user", self.user, "give a click model")
        if not isinstance(self.method, (Balanced, Optimized, Probabilistic, TeamDraft)):
            raise InvalidValue("method", self.method, "give one for two rankings")
        checks.integer("method.length", self.method.length, 1, MAX_LENGTH)
        set_field(self, "grades", tuple(self._validate_grades(grades) for grades in self.grades))
        set_field(self, "rankings", self._validate_rankings())
        traffic = [1.0] * len(self.grades) if self.traffic is None else self.traffic
        set_field(self, "traffic", tuple(checks.number("traffic", x, 0.0, 1e300) for x in traffic))
        if len(self.traffic) != len(self.grades) or sum(self.traffic) <= 0.0:
            raise InvalidValue("traffic", traffic, "give a number for each query, some above 0")
        if self.names is not None:
            set_field(self, "names", checks.arms("names", self.names))
            if isinstance(self.names, int) or len(self.names) != self.arm_count:
                raise InvalidValue("names", self.names, f"give {self.arm_count} names")

    def _validate_grades(self, grades: Any) -> tuple[int, ...]:
        """Return a query's grades as a tuple; raise InvalidValue for one that the click model lacks."""
        most = self.user.kinds - 1
        return tuple(checks.integer("grades", grade, 0, most) for grade in grades)

    def _validate_rankings(self) -> Any:
        """Return the rankings as nested tuples.

        Raises InvalidValue unless each query has the same rankers, at least two, and rankings of its items.
        """
        if len(self.rankings) != len(self.grades) or len(self.rankings) == 0:
            raise InvalidValue("rankings", self.rankings, "give as many queries as in grades")
        rankings = tuple(tuple(check_ranking("rankings", row) for row in query) for query in self.rankings)
        for query, grades in zip(rankings, self.grades, strict=True):
            if len(query) != len(rankings[0]) or len(query) < 2:
                raise InvalidValue("rankings", len(query), "give the same rankers for each query")
            for items in query:
                if not set(items) <= set(range(len(grades))):
                    raise InvalidValue("rankings", items, f"items go from 0 to {len(grades) - 1}")
        return rankings

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of rankers."""
        return len(self.rankings[0])

    @param
    def keeps_ties(self) -> bool:
        """True if a tie is an outcome of 0.5; read by kernels."""
        return self.ties == "keep"

    @cached_property
    def tables(self) -> tuple[Floats, Floats, float]:
        """Probabilities of a win of the left ranker, and of a tie, and a preference's largest standard error.

        The first two are arrays of shape (queries, rankers, rankers); they are computed once.
        """
        count, rankers = len(self.rankings), self.arm_count
        wins, ties = np.zeros((count, rankers, rankers)), np.zeros((count, rankers, rankers))
        ties[:, range(rankers), range(rankers)] = 1.0
        variance = np.zeros((rankers, rankers))
        for query, share in enumerate(np.array(self.traffic) / sum(self.traffic)):
            for left_ranker, right_ranker in combinations(range(rankers), 2):
                chances, outcomes = self._compute_outcomes(query, left_ranker, right_ranker)
                wins[query, left_ranker, right_ranker], tie, wins[query, right_ranker, left_ranker] = (
                    chances @ outcomes
                )
                ties[query, left_ranker, right_ranker] = ties[query, right_ranker, left_ranker] = tie
                if isinstance(self.method, Probabilistic):
                    spread = np.var(outcomes[:, 0] + outcomes[:, 1] / 2, ddof=1) / self.samples
                    variance[left_ranker, right_ranker] += share**2 * spread
        return wins, ties, float(np.sqrt(variance.max()))

    def _compute_outcomes(self, query: int, left_ranker: int, right_ranker: int) -> tuple[Floats, Floats]:
        """Return the probability of each list, and of a win, tie or loss of the left ranker with it.

        The shapes are (lists,) and (lists, 3).
        """
        pair = self.rankings[query][left_ranker], self.rankings[query][right_ranker]
        if isinstance(self.method, (TeamDraft, Probabilistic)):
            items, weights = self._draft_lists(
                pair, len(self.grades[query]), [query, left_ranker, right_ranker]
            )
            chances = np.full(len(items), 1.0 / len(items))
        else:
            weighted_lists = list(self.method.lists(pair))
            chances = np.array([chance for chance, _ in weighted_lists])
            items = np.array([shown_list.items for _, shown_list in weighted_lists], np.int64)
            weights = np.array([outcome_weights(shown_list) for _, shown_list in weighted_lists])
        chain = self.user.chain(np.array(self.grades[query])[items])
        outcomes = np.zeros((len(items), 3))
        workspace = np.zeros((2, 2 ** items.shape[1]))
        compile_loop(compute_outcomes)(*chain, weights, outcomes, workspace)
        return chances, outcomes

    def _draft_lists(self, pair: Any, items: int, seed: list[int]) -> tuple[Ints, Floats]:
        """Return equally likely interleaved lists of a pair of rankings, and the credit for their clicks.

        They are all lists of team draft, or a sample for probabilistic interleaving, which ``seed``
        determines. The lists have the shape (lists, positions). The credit has the shape (lists, positions,
        positions): if a list's lowest click is at position k, a click at j counts ``credit[list, k, j]`` for
        the left ranker. ``items`` is the query's number of items.
        """
        depth = fair_depth(pair, self.method.length)
        ranked = np.full((2, max(map(len, pair))), EMPTY)
        for row, ranker_items in zip(ranked, pair, strict=True):
            row[: len(ranker_items)] = ranker_items
        if isinstance(self.method, Probabilistic):
            # Credit of the drawn rankers has the same distribution as settled marginalised credit. A
            # ranker draws its items in the order of exponential times with rates 1/rank^decay.
            rng = np.random.default_rng(seed)
            rates = np.arange(1.0, ranked.shape[1] + 1) ** -self.method.decay
            times = rng.exponential(1.0, (self.samples, *ranked.shape)) / rates
            order = np.argsort(np.where(ranked == EMPTY, np.inf, times), axis=2)
            orders = np.take_along_axis(ranked[None], order, axis=2)
            turns = rng.integers(0, 2, (self.samples, depth))
        else:
            orders = ranked[None]
            first = np.array(list(product([0, 1], repeat=(depth + 1) // 2)), np.int64)
            turns = np.repeat(first, 2, axis=1)
            turns[:, 1::2] ^= 1
            turns = np.ascontiguousarray(turns[:, :depth])
        length = min(self.method.length, len(set(pair[0]) | set(pair[1])))
        lists = np.zeros((len(turns), length), np.int64)
        weights = np.zeros((len(turns), length, length))
        last_list = np.full(items, -1)
        compile_loop(draft_lists)(orders, ranked, turns, lists, weights, last_list)
        return lists, weights

    @property
    def precision(self) -> float:
        """The largest standard error of a preference; 0 if all are exact."""
        return self.tables[2]

    @cached_property
    def preferences(self) -> Floats:
        """The probability that the left ranker beats the right one, a tie counted half.

        An array of shape (rankers, rankers) whose entry and mirror image sum to 1.
        """
        wins, ties, _ = self.tables
        weights = np.array(self.traffic) / sum(self.traffic)
        return np.asarray(np.tensordot(weights, wins + ties / 2, axes=1))

    @property
    def best(self) -> int:
        """The index of the best ranker, relative to which regret is measured.

        It beats most others; among equals it has the highest mean.
        """
        beaten = (self.preferences > 0.5 + TIE).sum(axis=1)
        mean = self.preferences.mean(axis=1)
        return int(np.lexsort((mean, beaten))[-1])

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run: probabilities of wins and ties, traffic and gaps; draws nothing."""
        wins, ties, _ = self.tables
        rankers = self.arm_count
        return self.World(
            impression=Impression(np.arange(rankers), np.zeros(0)),
            wins=wins,
            ties=ties,
            traffic=np.cumsum(self.traffic) / sum(self.traffic),
            shortfall=self.preferences[self.best] - 0.5,
            query=np.zeros(1, np.int64),
            uniform=np.zeros(1),
        )

    @staticmethod
    def arrive(params: InterleavedRankers, world: World, round: int, rng: Generator) -> int:
        """Draw a query by its traffic, and the number that decides the duel; return lane 0."""
        place = np.searchsorted(world.traffic, rng.random(), "right")
        world.query[0] = min(place, len(world.traffic) - 1)
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def respond(params: InterleavedRankers, world: World, lane: int, pair: Any) -> float:
        """Return 1.0 if the left ranker of the pair wins for this round's query, 0.0 if the right one.

        A tie is 0.5 if ties are kept; otherwise a fair coin decides it.
        """
        win = world.wins[world.query[0], pair[0], pair[1]]
        tie = world.ties[world.query[0], pair[0], pair[1]]
        if params.keeps_ties:
            outcome = 1.0 if world.uniform[0] < win else 0.0
            return 0.5 if win <= world.uniform[0] < win + tie else outcome
        return 1.0 if world.uniform[0] < win + 0.5 * tie else 0.0

    @staticmethod
    def expected(params: InterleavedRankers, world: World, lane: int, pair: Any) -> float:
        """Return 1/2 minus the mean gap of both rankers of the pair."""
        return float(0.5 - 0.5 * (world.shortfall[pair[0]] + world.shortfall[pair[1]]))


def draft_lists(
    orders: Ints, ranked: Ints, turns: Ints, lists: Ints, weights: Floats, last_list: Ints
) -> None:
    """Fill ``lists`` with the items that rankers contribute in turn, and ``weights`` with credit by team.

    Remaining positions are filled from the rankings without credit.

    Parameters
    ----------
    orders : array of int64, shape (1 or lists, 2, items)
        The order in which each ranker contributes its items.
    ranked : array of int64, shape (2, items)
        The rankings, to fill remaining positions.
    turns : array of int64, shape (lists, drafted positions)
        The ranker at each position.
    lists : array of int64, shape (lists, positions)
    weights : array of float64, shape (lists, positions, positions)
    last_list : array of int64, shape (items,)
        Workspace: the last list that an item was put on; −1 at first.
    """
    for i in range(len(lists)):
        order = orders[i % len(orders)]
        size = 0
        for turn in range(turns.shape[1]):
            team = turns[i, turn]
            place = 0
            while last_list[order[team, place]] == i:
                place += 1
            lists[i, size] = order[team, place]
            last_list[order[team, place]] = i
            weights[i, :, size] = 1.0 - 2.0 * team
            size += 1
        for place in range(ranked.shape[1]):
            for ranker in range(2):
                item = ranked[ranker, place]
                if size < lists.shape[1] and item >= 0 and last_list[item] != i:
                    lists[i, size] = item
                    last_list[item] = i
                    size += 1


def compute_outcomes(
    click: Floats,
    after_click: Floats,
    after_skip: Floats,
    weights: Floats,
    outcomes: Floats,
    workspace: Floats,
) -> None:
    """Fill ``outcomes`` with the probabilities that the left ranker wins, ties, loses, for each list.

    Parameters
    ----------
    click, after_click, after_skip : array of float64, shape (lists, positions)
        Probabilities of a click at a position that is reached, and of reading on after a click or without.
    weights : array of float64, shape (lists, positions, positions)
        Credit of the left ranker for a click at each position, by the position of the lowest click.
    outcomes : array of float64, shape (lists, 3)
    workspace : array of float64, shape (2, 2^positions)
    """
    for i in range(len(outcomes)):
        sum_over_clicks(
            click[i], after_click[i], after_skip[i], weights[i], outcomes[i], workspace[0], workspace[1]
        )


@kernel
def sum_over_clicks(
    click: Floats,
    after_click: Floats,
    after_skip: Floats,
    weights: Floats,
    outcomes: Floats,
    reach: Floats,
    lead: Floats,
) -> None:
    """Fill ``outcomes`` of one list with the probabilities that the left ranker wins, ties, loses.

    It sums over all sets of clicks, grouped by their lowest click. A set is a number whose bit k stands for
    a click at position k. At each position ``click`` is the probability of a click there, and ``after_click``
    and ``after_skip`` the probabilities of reading on; ``weights[k, j]`` is the credit of a click at j if the
    lowest is at k. ``reach`` and ``lead`` are workspace, with one number per set.
    """
    positions = len(click)
    outcomes[:] = 0.0
    reach[0] = 1.0  # the probability of a set of clicks so far, and of reading on
    nothing = 1.0  # the probability of no click so far, and of reading on
    for last in range(positions):
        # The probability of no further click.
        quiet = 1.0
        for below in range(positions - 1, last, -1):
            skip = 1.0 - click[below]
            quiet = skip * (1.0 - after_skip[below] + after_skip[below] * quiet)
        end = click[last] * (1.0 - after_click[last] + after_click[last] * quiet)
        lead[0] = weights[last, last]
        for above in range(last):
            for clicks in range(1 << above):
                lead[clicks + (1 << above)] = lead[clicks] + weights[last, above]
        for clicks in range(1 << last):
            if lead[clicks] > TIE:
                outcomes[0] += reach[clicks] * end
            elif lead[clicks] >= -TIE:
                outcomes[1] += reach[clicks] * end
            else:
                outcomes[2] += reach[clicks] * end
        outcomes[1] += nothing * (1.0 - click[last]) * (1.0 - after_skip[last])
        nothing *= (1.0 - click[last]) * after_skip[last]
        for clicks in range(1 << last):
            reach[clicks + (1 << last)] = reach[clicks] * click[last] * after_click[last]
            reach[clicks] *= (1.0 - click[last]) * after_skip[last]
    outcomes[1] += nothing


def from_rankers(
    rankings: Mapping[str, Mapping[str, Sequence[Item]]],
    judgments: Mapping[str, Mapping[Item, int]],
    user: ClickModel,
    method: InterleavingMethod | None = None,
    *,
    traffic: Mapping[str, float] | None = None,
    ties: str = "coin",
    samples: int = 500,
) -> InterleavedRankers:
    """Return the environment of dueling rankers from their rankings of ids and judgments of relevance.

    Parameters
    ----------
    rankings : dict
        From queries to rankers to rankings, lists of ids; the same rankers for each query.
    judgments : dict
        From queries to ids to grades of relevance, from 0; an id without judgment has grade 0.
    user : ClickModel
    method : InterleavingMethod, optional
        By default :class:`~tacit.interleaving.TeamDraft`.
    traffic : dict, optional
        From queries to their relative frequencies; by default all equal.
    ties, samples
        As for :class:`InterleavedRankers`.

    Raises
    ------
    InvalidValue
        If a query lacks a ranker or an option is invalid.

    Examples
    --------
    >>> from tacit.clicks import navigational
    >>> environment = from_rankers(
    ...     {"jaguar": {"old": ["cat", "car"], "new": ["car", "cat"]}},
    ...     {"jaguar": {"car": 1}},
    ...     navigational(2),
    ... )
    >>> environment.names, environment.preferences[1, 0].round(3)
    (('old', 'new'), np.float64(0.958))
    """
    if not isinstance(rankings, Mapping) or not rankings:
        raise InvalidValue("rankings", rankings, "give rankings by query and ranker")
    names = list(next(iter(rankings.values())))
    places, grades = [], []
    for query, ranker_rankings in rankings.items():
        if set(ranker_rankings) != set(names):
            raise InvalidValue(f"rankings[{query!r}]", list(ranker_rankings), f"give {', '.join(names)}")
        validated = [check_ranking(f"rankings[{query!r}]", ranker_rankings[name]) for name in names]
        items = {item: i for i, item in enumerate(dict.fromkeys(sum(validated, ())))}
        judged = judgments.get(query, {})
        places.append([[items[item] for item in ranking] for ranking in validated])
        grades.append([judged.get(item, 0) for item in items])
    return InterleavedRankers(
        places,
        grades,
        user,
        TeamDraft() if method is None else method,
        None if traffic is None else [traffic.get(query, 0.0) for query in rankings],
        ties,
        samples,
        names,
    )
