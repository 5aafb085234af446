"""How many searches interleaving takes, against an A/B test of the same rankers: exact moments.

Users are click models, so that every way in which a user can click a list has a known probability.
Summed over all lists that a method shows, these give the mean and the variance of a search's
difference of credit, and of clicks under each ranker alone. The searches that it takes to show
either with the same test are proportional to variance over squared mean.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.ab_scale import position_weights
from tacit import interleaving
from tacit.clicks import ClickModel, PositionBased, informational, navigational, perfect
from tacit.clicks.base import Chain, conditional_clicks
from tacit.core.arrays import Booleans, Floats, Generator
from tacit.interleaving.rules import item_shares
from tacit.plots import COLOURS
from tacit.uplift import searches_needed

TITLE = "Searches that interleaving takes, against an A/B test of the same rankers"
LENGTH = 8
GRADES = 5
QUERIES = 40
DOCUMENTS = 16
CURVE: Floats = 1.0 / np.arange(1.0, LENGTH + 1)[None]
"""How well credit by rank takes places to be seen, for every reader."""
SAMPLED = 64
"""Lists drawn for a query under probabilistic interleaving, which can show too many."""
EXAMINATION = tuple(float(1 / (place + 1) ** 0.8) for place in range(LENGTH))

READERS: dict[str, ClickModel] = {
    "perfect": perfect(GRADES),
    "navigational": navigational(GRADES),
    "informational": informational(GRADES),
    "position-based": PositionBased((0.02, 0.08, 0.2, 0.35, 0.5), EXAMINATION),
}
SWAP, SMALL, CLEAR = "one swap in 10 % of queries", "small", "clear"
CLOSENESS = {SWAP: 0.1, SMALL: 0.1, CLEAR: 0.6}
"""Of how many queries, or how much noise: the deviation, where a grade of relevance is 1."""

METHODS: dict[str, interleaving.InterleavingMethod] = {
    "TeamDraft": interleaving.TeamDraft(LENGTH),
    "Balanced": interleaving.Balanced(LENGTH),
    "DebiasedBalanced": interleaving.DebiasedBalanced(LENGTH),
    "Optimized": interleaving.Optimized(LENGTH),
    "Probabilistic": interleaving.Probabilistic(LENGTH),
}
BY_RANK = "TeamDraft, by rank"
"""Team drafts whose clicks are credited by where the rankers put the item, not by its team."""
CREDITS, WINS = "credits", "wins"


class Moments(NamedTuple):
    """The mean and the variance of something per search."""

    mean: float
    variance: float

    def needed(self) -> float:
        """Return after how many searches the mean shows, 4 times in 5; infinite for none."""
        if self.mean == 0:
            return float("inf")
        return searches_needed(self.mean, self.variance**0.5)


class GradedQuery(NamedTuple):
    """The grades of a query's documents, and how both rankers order them."""

    grades: Any
    better: tuple[int, ...]
    worse: tuple[int, ...]


def rankers(closeness: str, rng: Generator) -> list[GradedQuery]:
    """Return queries with two rankers, the one with the higher discounted gain first.

    ``one swap``: the worse one exchanges two neighbours in a tenth of the queries, the better one
    of them moves down.
    """
    found = []
    noise = CLOSENESS[closeness]
    for number in range(QUERIES):
        grades = np.minimum(rng.geometric(0.5, DOCUMENTS) - 1, GRADES - 1)
        scores = grades + 0.8 * rng.standard_normal(DOCUMENTS)
        better = np.argsort(-scores)
        if closeness == SWAP:
            worse = better.copy()
            falls = np.flatnonzero(np.diff(grades[better[:LENGTH]]) < 0)
            if number < noise * QUERIES and len(falls):
                at = int(rng.choice(falls))
                worse[[at, at + 1]] = worse[[at + 1, at]]
        else:
            worse = np.argsort(-(scores + noise * rng.standard_normal(DOCUMENTS)))
        found.append(GradedQuery(grades, tuple(better.tolist()), tuple(worse.tolist())))
    # More noise may help by chance.
    if quality(found, "better") < quality(found, "worse"):
        return [GradedQuery(grades, worse, better) for grades, better, worse in found]
    return found


def quality(queries: list[GradedQuery], side: str) -> float:
    """Return the sum of a ranker's discounted gains, by which it is called the better one."""
    discounts = 1 / np.log2(np.arange(LENGTH) + 2)
    tops = [query.grades[list(getattr(query, side)[:LENGTH])] for query in queries]
    return float(sum((2.0**grades - 1) @ discounts for grades in tops))


PATTERNS: Booleans = np.array(list(product([False, True], repeat=LENGTH)))
"""All ways to click a list."""


def chances(user: ClickModel, grades: Any) -> Floats:
    """Return the probability of each way to click a list, by the grades of its documents."""
    chain = Chain(*(np.repeat(each, len(PATTERNS), axis=0) for each in user.chain(grades[None])))
    each = conditional_clicks(chain, PATTERNS)
    return np.asarray(np.where(PATTERNS, each, 1.0 - each).prod(axis=1))


def differences(shown: interleaving.Interleaved) -> Floats:
    """Return the difference of credit for each way to click a list."""
    if "ranks" not in shown.memory:
        left, right = np.array(item_shares(shown, []))
        return np.asarray(PATTERNS @ (left - right))
    found = np.zeros(len(PATTERNS))
    for number, pattern in enumerate(PATTERNS):
        clicks = np.flatnonzero(pattern).tolist()
        left, right = np.array(item_shares(shown, clicks))[:, clicks].sum(axis=1)
        found[number] = left - right
    return found


class WeightedList(NamedTuple):
    """A list that may be shown for a query: its weight, its items, who leads after which clicks."""

    query: int
    weight: float
    items: tuple[Any, ...]
    lead: Floats


def listed(queries: list[GradedQuery], name: str, seed: int) -> list[WeightedList]:
    """Return all lists that a method shows, but for queries on which the rankers agree."""
    method = METHODS[name.partition(",")[0]]
    found = []
    for number, query in enumerate(queries):
        pair = query.better, query.worse
        if pair[0][:LENGTH] == pair[1][:LENGTH]:
            continue
        for chance, shown in _lists_of(method, pair, seed + number):
            if name == BY_RANK:
                weights = position_weights(shown.method, pair, shown.items, LENGTH // 2, CURVE)
                lead = np.asarray(PATTERNS @ weights[:, 0])
            else:
                lead = differences(shown)
            found.append(WeightedList(number, chance / len(queries), shown.items, lead))
    return found


def _lists_of(
    method: interleaving.InterleavingMethod, pair: tuple[tuple[int, ...], ...], seed: int
) -> list[tuple[float, interleaving.Interleaved]]:
    if not isinstance(method, interleaving.Probabilistic):
        return list(method.lists(pair))
    rng = np.random.default_rng(seed)
    return [(1.0 / SAMPLED, method.interleave(pair, rng)) for _ in range(SAMPLED)]


class ClickChances:
    """The probabilities of all ways to click, once for each list of grades."""

    def __init__(self, user: ClickModel) -> None:
        self._user = user
        self._known: dict[tuple[int, ...], Floats] = {}

    def __call__(self, query: GradedQuery, items: Any) -> Floats:
        """Return them for the items of a list."""
        grades = query.grades[list(items)]
        key = tuple(grades.tolist())
        if key not in self._known:
            self._known[key] = chances(self._user, grades)
        return self._known[key]


def of_interleaving(
    queries: list[GradedQuery], lists: list[WeightedList], clicks: ClickChances, score: str
) -> Moments:
    """Return the moments of the better ranker's lead on a search."""
    first, second = 0.0, 0.0
    for each in lists:
        lead = np.sign(np.round(each.lead, 9)) if score == WINS else each.lead
        chances = each.weight * clicks(queries[each.query], each.items)
        first += float(chances @ lead)
        second += float(chances @ lead**2)
    return Moments(first, second - first**2)


METRICS = {
    "clicks": PATTERNS.sum(axis=1).astype(np.float64),
    "any click": PATTERNS.any(axis=1).astype(np.float64),
    "clicks, by 1/log": PATTERNS @ (1 / np.log2(np.arange(LENGTH) + 2)),
}
"""What an A/B test may count of a search."""


def of_ab_test(queries: list[GradedQuery], metric: str, clicks: ClickChances) -> Moments:
    """Return the moments of a metric's difference, were half of the users each ranker's."""
    worth, means, variances = METRICS[metric], [], []
    for side in ("better", "worse"):
        values = [
            (p @ worth, p @ worth**2)
            for p in (clicks(query, getattr(query, side)[:LENGTH]) for query in queries)
        ]
        mean, square = np.mean(values, axis=0)
        means.append(mean)
        variances.append(square - mean**2)
    # Each ranker has half of the searches.
    return Moments(float(means[0] - means[1]), float(2 * sum(variances)))


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Compare every method with A/B tests, for every kind of reader, over pairs of rankers."""
    cells = [
        {"rankers": closeness, "run": run, **cell}
        for closeness in CLOSENESS
        for run in range(setup.runs)
        for cell in _of_a_pair(closeness, setup.seed + run)
    ]
    settings = setup.settings(queries=QUERIES, length=LENGTH)
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, path), settings)


def _of_a_pair(closeness: str, seed: int) -> list[study.Cell]:
    queries = rankers(closeness, np.random.default_rng(seed))
    lists = {name: listed(queries, name, seed) for name in (*METHODS, BY_RANK)}
    found = []
    for reader, user in READERS.items():
        clicks = ClickChances(user)
        tests = {metric: of_ab_test(queries, metric, clicks) for metric in METRICS}
        metric = min(tests, key=lambda name: tests[name].needed())
        best = tests[metric]
        for name, mine in lists.items():
            for score in (CREDITS, WINS):
                own = of_interleaving(queries, mine, clicks, score)
                found.append(
                    {
                        "reader": reader,
                        "method": name,
                        "score": score,
                        "mean": own.mean,
                        "searches": own.needed(),
                        "ab_metric": metric,
                        "ab_mean": best.mean,
                        "ab_searches": best.needed(),
                        "times": best.needed() / own.needed(),
                    }
                )
    return found


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    tables = "\n\n".join(
        f"## {name[0].upper()}{name[1:]}\n\n{_table(study.select(cells, rankers=name))}" for name in CLOSENESS
    )
    given = {"title": TITLE, "queries": QUERIES, "length": LENGTH, "tables": tables}
    return study.report("sensitivity", setup, **given)


def _table(cells: list[study.Cell]) -> str:
    rows = [["", *(f"{reader}" for reader in READERS)]]
    of_test = [study.select(cells, reader=reader, method="TeamDraft", score=CREDITS) for reader in READERS]
    rows.append(["A/B test", *(f"{_median(mine, 'ab_searches'):,.0f}" for mine in of_test)])
    opposite = [sum(cell["ab_mean"] < 0 for cell in mine) for mine in of_test]
    rows.append(["… says the contrary", *(f"{n} of {len(of_test[0])}" for n in opposite)])
    for name in (*METHODS, BY_RANK):
        for score in (CREDITS, WINS):
            row = [f"{name}, {score}"]
            for reader in READERS:
                mine = study.select(cells, reader=reader, method=name, score=score)
                wrong = sum(cell["mean"] < 0 for cell in mine)
                least, most = (f(cell["times"] for cell in mine) for f in (min, max))
                said = f"{_median(mine, 'times'):,.0f} × ({least:,.0f}–{most:,.0f})"
                row.append(said + (f", wrong {wrong}" if wrong else ""))
            rows.append(row)
    return study.markdown_table(rows)


def _median(cells: list[study.Cell], name: str) -> float:
    return float(np.median([cell[name] for cell in cells]))


def _draw(cells: list[study.Cell], path: Path) -> None:
    with study.drawing(path, 8.0, 9.0, rows=len(CLOSENESS), sharex=True) as axes:
        for ax, closeness in zip(axes, CLOSENESS, strict=True):
            names = [*METHODS, BY_RANK]
            for place, reader in enumerate(READERS):
                for y, name in enumerate(names):
                    given = {"rankers": closeness, "reader": reader, "method": name}
                    mine = study.select(cells, score=CREDITS, **given)
                    times = np.array([cell["times"] for cell in mine])
                    label = reader if y == 0 else None
                    style = {"color": COLOURS[place], "label": label}
                    at = y + 0.15 * (place - 1.5)
                    ax.plot([times.min(), times.max()], [at, at], lw=1.2, color=COLOURS[place])
                    ax.plot(np.median(times), at, "o", ms=4, **style)
            ax.axvline(60, color="0.4", lw=0.8, ls="--")
            ax.set_yticks(range(len(names)), names)
            study.inscribe(ax, f"rankers: {closeness}", 9, xscale="log")
        axes[-1].set_xlabel("times fewer searches than an A/B test (dashed: 60)")
        study.legend_below(axes, 8, 4)


SENSITIVITY = study.Item(TITLE, 12, reproduce)
