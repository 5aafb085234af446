"""Which of 20 rankers is best, and how many impressions does it take to find out?

Everything is generated: queries, documents with grades of relevance, and rankers that see the
relevance through more and more noise. Simulated users click on interleaved lists. For every method
of interleaving and every kind of user the study says which ranker wins, how clearly, and how many
impressions it takes to be sure of it if all pairs are shown equally often; then it lets policies
choose the pairs.

    python examples/interleaving_study.py            # some 2 min of one core
    python examples/interleaving_study.py --help
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tacit
from tacit.clicks import ClickModel, informational, navigational, perfect
from tacit.core.text import align_columns
from tacit.environments.interleaved_rankers import InterleavedRankers
from tacit.evaluate.duels import log_evidence
from tacit.interleaving import Balanced, InterleavingMethod, Optimized, Probabilistic, TeamDraft
from tacit.plots import assign_line_styles, figure, save
from tacit.policies.base import Outcome

GRADES = 5
USERS = {"perfect": perfect, "navigational": navigational, "informational": informational}
POLICIES = (
    "RMED1",
    "DoubleThompsonSampling",
    "RUCB",
    "SelfSparring",
    "WinnerStays",
    "InterleavedFilter2",
    "BeatTheMean",
)
CONFIDENCE = 0.95
SAMPLES = 3000
"""Lists drawn for each query and pair under probabilistic interleaving; all else is exact."""
SETTLED = 0.1
"""Regret per impression, relative to random pairs, below which a policy has settled."""


@dataclass(frozen=True)
class RandomPairs(tacit.policies.DuelPolicy):
    """Any two rankers: what every policy should beat."""

    class Params(NamedTuple):
        pass

    class State(NamedTuple):
        nothing: Any

    def init(self, lanes: int) -> State:
        return self.State(np.zeros(lanes))

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Any, rng: Any) -> Any:
        arms = impression.arms
        return arms[int(rng.random() * len(arms))], arms[int(rng.random() * len(arms))]

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Any, pair: Any) -> float:
        return 1.0 / len(impression.arms) ** 2

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        pass


class Collection(NamedTuple):
    """Generated queries: rankings, grades of the documents, and each ranker's quality."""

    rankings: list[list[list[int]]]
    grades: list[list[int]]
    quality: Any  # (rankers,) mean NDCG


def generated(queries: int, documents: int, rankers: int, length: int, seed: int) -> Collection:
    """Generate a collection whose rankers see relevance through more and more noise, 15 % each.

    Which number a ranker has is drawn.
    """
    rng = np.random.default_rng(seed)
    noise = rng.permutation(0.5 * 1.15 ** np.arange(rankers))
    rankings, grades, quality = [], [], np.zeros(rankers)
    discounts = 1.0 / np.log2(np.arange(2, length + 2))
    for _ in range(queries):
        relevance = np.minimum(rng.geometric(0.5, documents) - 1, GRADES - 1)
        scores = relevance[:, None] + noise * rng.standard_normal((documents, rankers))
        order = np.argsort(-scores, axis=0)[: 2 * length]
        gains = 2.0 ** relevance[order[:length]] - 1.0
        ideal = np.sort(2.0**relevance - 1.0)[::-1][:length] @ discounts
        quality += (discounts @ gains) / ideal / queries
        rankings.append(order.T.tolist())
        grades.append(relevance.tolist())
    return Collection(rankings, grades, quality)


def impressions_to_decide(preference: float, rankers: int) -> float:
    """Return how many duels make it certain that one of a pair is better, at mean outcomes."""
    bound = math.log(rankers * (rankers - 1) / 2 / (1.0 - CONFIDENCE))
    low, high = 1.0, 2.0
    while log_evidence(preference * high, high, 0.5) < bound:
        low, high = high, 2.0 * high
        if high > 1e12:
            return math.inf
    while high / low > 1.001:
        middle = (low + high) / 2
        enough = log_evidence(preference * middle, middle, 0.5) >= bound
        low, high = (low, middle) if enough else (middle, high)
    return high


def compared(environment: InterleavedRankers, best: int) -> dict[str, Any]:
    """Return how clearly the best ranker wins, and what certainty costs with all pairs alike."""
    rankers = environment.arm_count
    _, ties, precision = environment.tables
    against = np.delete(environment.preferences[environment.best], environment.best)
    hardest = float(against.min())
    needed = impressions_to_decide(hardest, rankers) if hardest > 0.5 else math.inf
    off = ~np.eye(rankers, dtype=bool)
    return {
        "winner": environment.best,
        "is_best": environment.best == best,
        "hardest": hardest,
        "ties": float(ties.mean(axis=0)[off].mean()),
        "impressions": needed * rankers * (rankers - 1) / 2,
        "precision": precision,
    }


def settled(regret: Any, rounds: Any, random: float) -> float:
    """Return after how many impressions regret stays below a tenth of that of random pairs."""
    slope = np.diff(regret.mean(axis=0), prepend=0.0) / np.diff(rounds, prepend=0)
    above = np.flatnonzero(slope >= SETTLED * random)
    if len(above) == 0:
        return float(rounds[0])
    return math.inf if above[-1] == len(rounds) - 1 else float(rounds[above[-1] + 1])


def players(rankers: int, horizon: int) -> list[tacit.Policy]:
    """Return random pairs, and every policy for duels that there is."""
    found: list[Any] = [RandomPairs(arms=rankers)]
    for name in POLICIES:
        if hasattr(tacit, name):
            policy = getattr(tacit, name)
            takes = {field.name for field in fields(policy) if field.init}
            found.append(policy(rankers, **({"horizon": horizon} if "horizon" in takes else {})))
    return found


Cell = dict[str, Any]


def played_by_users(
    collection: Collection, length: int
) -> tuple[dict[tuple[str, str], InterleavedRankers], list[Cell]]:
    """Return the duels of each user by each method, and what they tell of the best ranker."""
    methods: tuple[InterleavingMethod, ...] = (
        Balanced(length),
        TeamDraft(length),
        Probabilistic(length),
        Optimized(length),
    )
    best = int(collection.quality.argmax())
    cells, environments = [], {}
    for name, user in USERS.items():
        for method in methods:
            model: ClickModel = user(GRADES)
            environment = InterleavedRankers(
                collection.rankings, collection.grades, model, method, samples=SAMPLES
            )
            environments[name, type(method).__name__] = environment
            cell = compared(environment, best)
            cells.append({"user": name, "method": type(method).__name__, **cell})
    return environments, cells


def table_of_methods(cells: list[Cell]) -> str:
    """Return what each method tells, as a table."""
    header = "user", "method", "winner", "hardest pair", "ties", "impressions to be sure"
    rows = [
        (
            cell["user"],
            cell["method"],
            f"{cell['winner']}{'' if cell['is_best'] else ' (not the best)'}",
            f"{cell['hardest']:.4f}" + (f" ±{cell['precision']:.4f}" if cell["precision"] else ""),
            f"{cell['ties']:.1%}",
            f"{cell['impressions']:,.0f}",
        )
        for cell in cells
    ]
    return align_columns([header, *rows])


def table_of_policies(curves: dict[str, Any], horizon: int) -> str:
    """Return the regret of each policy, and when it settled, as a table."""
    table: list[tuple[str, ...]] = [("policy", *(f"{name}: regret, settled" for name in USERS))]
    for i, policy in enumerate(curves["perfect"].names):
        row = [policy]
        for name in USERS:
            result = curves[name]
            random = result.regret[0, :, -1].mean() / horizon
            when = settled(result.regret[i], result.rounds, random)
            row.append(f"{result.regret[i, :, -1].mean():,.0f}, {when:,.0f}")
        table.append(tuple(row))
    return align_columns(table)


def study(
    queries: int = 30,
    documents: int = 60,
    rankers: int = 20,
    length: int = 5,
    horizon: int = 300_000,
    runs: int = 10,
    seed: int = 1,
    out: Path | None = Path("out"),
) -> dict[str, Any]:
    """Run the study; print its tables and draw its figure into ``out``."""
    collection = generated(queries, documents, rankers, length, seed)
    best = int(collection.quality.argmax())
    ordered = np.sort(collection.quality)[::-1]
    print(
        f"{rankers} rankers, {queries} queries. By NDCG@{length} the best is ranker {best} "
        f"({ordered[0]:.3f}); then {ordered[1]:.3f}, {ordered[2]:.3f}, …, {ordered[-1]:.3f}.\n"
    )
    environments, cells = played_by_users(collection, length)
    print(table_of_methods(cells))
    print(f"\nAll pairs equally often, confidence {CONFIDENCE}. Policies, with team-draft:\n")
    curves = {
        name: tacit.simulate(
            players(rankers, horizon), environments[name, "TeamDraft"], horizon, runs=runs, seed=seed
        )
        for name in USERS
    }
    print(table_of_policies(curves, horizon))
    if out is not None:
        print(f"\nwrote {drawn(curves, out / 'interleaving_study.png')}")
    return {"quality": collection.quality, "best": best, "cells": cells, "curves": curves}


def drawn(curves: dict[str, Any], path: Path) -> Path:
    """Draw the regret of every policy, a panel for each kind of user."""
    drawing, axes = figure(height=8.0, rows=len(curves), sharex=True)
    for ax, (name, result) in zip(axes, curves.items(), strict=True):
        shown = assign_line_styles(result.names)
        for policy, regret in zip(result.names, result.regret, strict=True):
            ax.plot(result.rounds, regret.mean(axis=0), label=policy, **shown[policy])
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylabel("cumulative regret")
        ax.set_title(f"{name} users", size=10)
    axes[0].legend(frameon=False, fontsize=7)
    axes[-1].set_xlabel("impression")
    return save(drawing, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in zip(
        ("queries", "documents", "rankers", "length", "horizon", "runs", "seed"),
        study.__defaults__,
        strict=False,
    ):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path("out"))
    study(**vars(parser.parse_args()))
