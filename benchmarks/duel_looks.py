"""How often the verdict on interleaving errs if one looks daily, and when it comes.

python benchmarks/duel_looks.py            some minutes; writes DUEL_LOOKS.md
python benchmarks/duel_looks.py --quick    fewer runs; prints only
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import markdown

from tacit.core.seeds import stream
from tacit.uplift import PairSums, boundary, duels_needed
from tacit.uplift.boundary import BUCKETS

HERE = Path(__file__).parent
SEED = 20261122
DAYS = 60
SEARCHES = (5, 50)
"""Of a user, evenly between."""


class Users(NamedTuple):
    """Who searches: how many, how often nobody wins, how much tastes differ, and who wins.

    Attributes
    ----------
    count : int
    ties : float
    taste : float
        The deviation of users' probabilities to prefer one of the rankers.
    edge : float
        By how much the mean of these exceeds 1/2.
    purchases : float
        Share of decided searches that count tenfold.
    """

    count: int
    ties: float
    taste: float
    edge: float = 0.0
    purchases: float = 0.0


def daily(users: Users, runs: int, rng: Any, pairs: int = 1) -> Any:
    """Yield, day by day, sums with axes (…, pairs, runs); pairs share users, not clicks."""
    shape = users.count, pairs, runs
    left = np.broadcast_to(rng.integers(SEARCHES[0], SEARCHES[1] + 1, (users.count, 1, runs)), shape)
    left = left.copy()
    taste = np.clip(0.5 + users.edge + users.taste * rng.standard_normal(shape), 0, 1)
    sums = PairSums(np.zeros((4, pairs, runs)), np.zeros((2, BUCKETS, pairs, runs)))
    buckets = rng.integers(0, BUCKETS, users.count)
    start = rng.integers(0, DAYS // 2, (users.count, 1, 1))
    for day in range(DAYS):
        here = np.where(day >= start, 1.0 / (DAYS - day), 0.0)
        n = rng.binomial(left, here)
        left -= n
        decided = rng.binomial(n, 1 - users.ties)
        dear = rng.binomial(decided, users.purchases) if users.purchases else np.zeros_like(decided)
        cheap = decided - dear
        d = (2.0 * rng.binomial(cheap, taste) - cheap) + 10 * (2.0 * rng.binomial(dear, taste) - dear)
        sizes, squares = cheap + 10.0 * dear, cheap + 100.0 * dear
        for row, each in enumerate((n, d, sizes, squares)):
            sums.sums[row] += each.sum(axis=0)
        for row, each in enumerate((n, d)):
            np.add.at(sums.buckets[row], buckets, each)
        yield sums


def share(happened: Any) -> str:
    """Return in how many runs something happened, with its standard error."""
    n, p = len(happened), float(np.mean(happened))
    return f"{100 * p:.1f} ± {100 * math.sqrt(max(p * (1 - p), 1 / n) / n):.1f} %"


def errors(runs: int) -> list[list[str]]:
    """Return how often a difference is declared where there is none, at any of 60 looks."""
    rows = [["users", "ties", "tastes", "purchases", "declared, any look", "z = 1.96, by search"]]
    number = 0
    for count in (30, 100, 400, 2000):
        for ties, taste, purchases in (
            (0.5, 0.0, 0.0),
            (0.5, 0.25, 0.0),
            (0.95, 0.0, 0.0),
            (0.95, 0.25, 0.0),
            (0.8, 0.1, 0.05),
        ):
            number += 1
            rng = stream("errors", SEED, number)
            wrong, naive = np.zeros((2, runs), bool)
            for sums in daily(Users(count, ties, taste, 0.0, purchases), runs, rng):
                wrong |= (np.abs(sums.score) > boundary())[0]
                with np.errstate(invalid="ignore"):
                    naive |= (np.abs(sums.sums[1]) / np.sqrt(sums.sums[3]) > 1.96)[0]
            cells = [f"{count:,}", f"{ties:.0%}", f"{taste:g}", f"{purchases:.0%}"]
            rows.append([*cells, share(wrong), share(naive)])
    return rows


def winners(runs: int) -> list[list[str]]:
    """Return how often one of several equal rankers is declared to beat the best."""
    rows = [["rankers", "users", "declared, any look"]]
    for number, rankers in enumerate((2, 5, 10)):
        rng = stream("winners", SEED, number)
        wrong = np.zeros(runs, bool)
        # A ranker is falsely the winner only if it beats the best one, among others.
        for sums in daily(Users(300, 0.6, 0.15), runs, rng, pairs=rankers - 1):
            wrong |= (sums.score > boundary(comparisons=rankers - 1)).any(axis=0)
        rows.append([str(rankers), "300", share(wrong)])
    return rows


def planned(runs: int) -> list[list[str]]:
    """Return how many searches are needed in truth, over what the planner says."""
    rows = [["edge, if decided", "ties", "tastes", "planned", "needed for 80 %", "needed/planned"]]
    number = 0
    for edge, ties in ((0.05, 0.5), (0.03, 0.5), (0.05, 0.8)):
        for taste in (0.0, 0.1, 0.2):
            number += 1
            rng = stream("planned", SEED, number)
            low, high = SEARCHES
            sizes = np.arange(low, high + 1)
            per_user = float((sizes**2).mean() / sizes.mean())
            # The covariance of two outcomes in {−1, 0, 1} of a user, over their variance.
            likeness = (1 - ties) * (2 * taste) ** 2
            plan = duels_needed((1 - ties) * edge, ties, per_user=per_user, likeness=likeness)
            users = round(1.6 * plan / sizes.mean())
            when = np.full(runs, np.inf)
            for sums in daily_of(users, edge, ties, taste, runs, rng):
                fresh = (sums.score > boundary()) & np.isinf(when)
                when[fresh] = sums.sums[0][fresh]
            needed = float(np.quantile(when, 0.8, method="inverted_cdf"))
            cells = [f"{edge:g}", f"{ties:.0%}", f"{taste:g}", f"{plan:,.0f}", f"{needed:,.0f}"]
            rows.append([*cells, f"{needed / plan:.2f}"])
    return rows


def daily_of(users: int, edge: float, ties: float, taste: float, runs: int, rng: Any) -> Any:
    """Yield sums after each hundredth of the users, who come one after the other."""
    sums = PairSums(np.zeros((4, runs)), np.zeros((2, BUCKETS, runs)))
    parts = np.array_split(np.arange(users), 100)
    for part in parts:
        shape = len(part), runs
        n = rng.integers(SEARCHES[0], SEARCHES[1] + 1, shape)
        decided = rng.binomial(n, 1 - ties)
        chance = np.clip(0.5 + edge + taste * rng.standard_normal(shape), 0, 1)
        d = 2.0 * rng.binomial(decided, chance) - decided
        for row, each in enumerate((n, d, decided, decided)):
            sums.sums[row] += each.sum(axis=0)
        for row, each in enumerate((n, d)):
            np.add.at(sums.buckets[row], part % BUCKETS, each)
        yield sums


def table(title: str, rows: list[list[str]]) -> str:
    """Print a table, and return it as Markdown."""
    text = f"## {title}\n\n{markdown(rows[0], rows[1:])}"
    print(text, flush=True)
    return text


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs; prints only")
    quick = parser.parse_args().quick
    runs = 100 if quick else 400
    parts = [
        "# Looking daily at interleaved searches\n\n"
        f"{runs} experiments each, {DAYS} days with a look each, {SEARCHES[0]} to {SEARCHES[1]} "
        "searches a user; seed "
        f"{SEED}. Written by `python benchmarks/duel_looks.py`. *Tastes* is the deviation of "
        "users' probabilities to prefer one ranker; a share of decided searches are *purchases*, "
        "which count tenfold.",
        table("No difference: declared all the same", errors(runs)),
        table("The best of several equal rankers", winners(runs)),
        table("The planner", planned(runs)),
    ]
    if not quick:
        (HERE / "DUEL_LOOKS.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
