"""Duels of many kinds: rankers, close calls, cycles, tournaments, shifts, and readers of interleaved lists.

Arms are in an order drawn at random, six of them (or six draws of utilities) a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.clicks import models, users
from tacit.environments import Environment, PreferenceMatrix, preferences
from tacit.environments.interleaved_rankers import InterleavedRankers
from tacit.interleaving import TeamDraft
from tacit.reproduce.duels.dueling_practice import close_call

WORLDS = 6


class DuelSetting(NamedTuple):
    """Six worlds of a kind, and after how many duels they are looked at."""

    worlds: Sequence[Environment]
    horizons: tuple[int, ...]


def shuffled(matrix: Any, seed: int) -> Any:
    """Return the preferences with the arms in another order."""
    order = np.random.default_rng(seed).permutation(len(matrix))
    return np.asarray(matrix)[np.ix_(order, order)]


def utilities(arms: int, scale: float, seed: int) -> Any:
    """Return preferences by the logistic function of drawn utilities."""
    drawn = np.sort(np.random.default_rng(seed).normal(0.0, scale, arms))[::-1]
    return preferences.validate(1.0 / (1.0 + np.exp(drawn[None, :] - drawn[:, None])))


def declining(arms: int) -> Any:
    """Return margins that grow, ever less, with the distance of two arms."""
    apart = np.arange(arms)[None, :] - np.arange(arms)[:, None]
    return preferences.from_margins(np.where(apart > 0, 0.25 * (1.0 - np.exp(-apart / 3.0)), 0.0))


def cycle() -> Any:
    """Return five arms of which three beat each other in turn, and the others."""
    margins = np.zeros((5, 5))
    margins[:3, 3:] = margins[0, 1] = margins[1, 2] = margins[3, 4] = 0.1
    margins[0, 2] = -0.1
    return preferences.from_margins(margins)


def tournament(seed: int, arms: int = 8) -> Any:
    """Return random margins of which no arm beats all others."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = rng.choice([-1.0, 1.0], (arms, arms)) * rng.uniform(0.05, 0.2, (arms, arms))
        matrix = preferences.from_margins(drawn)
        if preferences.condorcet_winner(matrix) is None:
            return matrix


def readers(kind: str, seed: int, rankers: int = 5) -> Environment:
    """Return rankers of more and more noise, whose lists are interleaved and clicked."""
    rng = np.random.default_rng(seed)
    rankings, grades, order = [], [], rng.permutation(rankers)
    for _ in range(8):
        worth = rng.choice(3, 8, p=[0.6, 0.25, 0.15])
        grades.append(worth.tolist())
        rankings.append([np.argsort(-(worth + rng.normal(0.0, 0.7 + 0.4 * r, 8))).tolist() for r in order])
    position = models.PositionBased((0.1, 0.3, 0.6), tuple(1.0 / (k + 1) for k in range(6)))
    user = position if kind == "position" else getattr(users, kind)(3)
    return InterleavedRankers(rankings, grades, user, TeamDraft(length=6), ties="keep")


def other_best(matrix: Any, first: Any, seed: int) -> Any:
    """Return the preferences in an order in which another arm is the best."""
    while preferences.condorcet_winner(found := shuffled(matrix, seed)) == preferences.condorcet_winner(
        first
    ):
        seed += 10
    return found


def duel_settings() -> dict[str, DuelSetting]:
    """Return what is played."""
    found: dict[str, DuelSetting] = {}

    def add(name: str, matrices: list[Any], *horizons: int, **given: Any) -> None:
        worlds = [PreferenceMatrix(shuffled(m, 77 + i), **given) for i, m in enumerate(matrices)]
        found[name] = DuelSetting(worlds, horizons)

    def shift(name: str, matrices: list[Any], horizon: int) -> None:
        firsts = [shuffled(matrix, 77 + i) for i, matrix in enumerate(matrices)]
        worlds = [
            PreferenceMatrix(first, after=other_best(first, first, 1000 + i), shift=horizon // 2)
            for i, first in enumerate(firsts)
        ]
        found[f"shift, {name}, {horizon:,}"] = DuelSetting(worlds, (horizon,))

    def drawn(arms: int, scale: float, seed: int) -> list[Any]:
        return [utilities(arms, scale, seed + i) for i in range(WORLDS)]

    arxiv, ten = [preferences.arxiv()] * WORLDS, [preferences.uniform_gap(10, 0.1)] * WORLDS
    add("six rankers of ArXiv", arxiv, 1000, 5000, 20_000, 100_000)
    add("10 arms, gap 0.1", ten, 1000, 2000, 10_000, 100_000)
    add("10 arms, γ = 1.4", [preferences.relaxed_chain(10, 1.4)] * WORLDS, 2000, 10_000)
    add("10 arms, utilities 1", drawn(10, 1.0, 901), 2000, 10_000, 100_000)
    add("10 arms, declining", [declining(10)] * WORLDS, 2000, 10_000)
    add("5 arms, utilities 0.2", drawn(5, 0.2, 801), 5000, 20_000)
    add("20 arms, gap 0.1", [preferences.uniform_gap(20, 0.1)] * WORLDS, 5000, 20_000)
    add("50 arms, gap 0.1", [preferences.uniform_gap(50, 0.1)] * WORLDS, 5000, 10_000, 50_000)
    add("20 arms, utilities 1", drawn(20, 1.0, 701), 5000, 20_000)
    add("50 arms, utilities 1", drawn(50, 1.0, 601), 5000, 10_000)
    add("2 arms, gap 0.02", [preferences.uniform_gap(2, 0.02)] * WORLDS, 1000, 10_000, 100_000)
    for gap in (0.01, 0.03):
        add(f"10 arms, best by {gap}", [close_call(10, gap)] * WORLDS, 1000, 10_000, 100_000)
    add("10 arms, gap 0.03", [preferences.uniform_gap(10, 0.03)] * WORLDS, 1000, 10_000, 100_000)
    add("cycle, Copeland", [cycle()] * WORLDS, 1000, 10_000, 100_000, winner="copeland")
    add("cycle, Borda", [cycle()] * WORLDS, 1000, 10_000, winner="borda")
    tournaments = [tournament(501 + i) for i in range(WORLDS)]
    add("tournaments of 8, Copeland", tournaments, 1000, 10_000, 50_000, winner="copeland")
    shift("ArXiv", arxiv, 10_000)
    shift("ArXiv", arxiv, 100_000)
    shift("utilities 1", drawn(10, 1.0, 401), 10_000)
    shift("gap 0.1", ten, 20_000)
    add("ArXiv, half of duels tied", arxiv, 5000, 20_000, ties=0.5)
    longer = {"informational", "position"}
    for kind in ("perfect", "navigational", "informational", "position"):
        horizons = (1000, 5000, 20_000) if kind in longer else (2000, 10_000)
        found[f"readers, {kind}"] = DuelSetting([readers(kind, 201 + i) for i in range(WORLDS)], horizons)
    return found
