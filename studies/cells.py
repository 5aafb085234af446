"""Worlds for studies: duels of many kinds, and readers of lists of five kinds."""

# 1. Duels: matrices of several shapes, and settings of six worlds each.
# 2. Lists: five kinds of users, and orders to begin with that are good, random or sparse.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from studies.dueling_practice import close_call
from tacit.clicks import models
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.run_mode import compile_loop
from tacit.environments import Environment, PreferenceMatrix, preferences
from tacit.environments.interleaved_rankers import InterleavedRankers
from tacit.interleaving import TeamDraft
from tacit.policies import Impression

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
    user = position if kind == "position" else getattr(models, kind)(3)
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


# ---- Readers of lists of five kinds, and starts that are good, random or sparse

SHAPES = {"5 of 20": (20, 5), "10 of 10": (10, 10)}
STARTS = {"good": (0.5, 1.0), "random": (50.0, 1.0), "sparse, good": (0.5, 0.1)}
KINDS = ("position-based", "cascade", "dependent click", "dynamic Bayesian", "mixture")


class UserSegments(NamedTuple):
    """Readers of one kind, as columns: their share; whether they read from the top (1), look at
    positions (0) or click at random (2); which taste they have; how they go on.

    ``onward`` holds, for position-based ones, the probability of each position being seen; for
    the others, of going on after a click there.
    """

    share: Floats  # (groups,)
    kind: Ints  # (groups,)
    taste: Floats  # (groups, arms)
    leaves: Floats  # (groups, arms) probability of being done after a click on an arm
    skip: Floats  # (groups,) of going on after a skip
    onward: Floats  # (groups, positions)


@kernel
def clicks_of(group: UserSegments, g: int, action: Ints) -> float:
    """Return the expected clicks of one group on a list."""
    total, examined = 0.0, 1.0
    for k in range(len(action)):
        if action[k] < 0:
            continue
        if group.kind[g] == 2:
            total += group.skip[g]
            continue
        if group.kind[g] == 0:
            examined = group.onward[g, k]
        m = group.taste[g, action[k]]
        total += examined * m
        stays = m * group.onward[g, k] * (1.0 - group.leaves[g, action[k]])
        examined *= stays + (1.0 - m) * group.skip[g]
    return total


@kernel
def clicks(group: UserSegments, action: Ints) -> float:
    """Return the expected clicks on a list."""
    total = 0.0
    for g in range(len(group.share)):
        total += group.share[g] * clicks_of(group, g, action)
    return total


def climb(group: UserSegments, order: Ints, action: Ints) -> float:
    """Exchange arms of an order while that adds to the clicks on its beginning."""
    best, better = clicks(group, order[: len(action)]), True
    while better:
        better = False
        for i in range(len(action)):
            for j in range(i + 1, len(order)):
                order[i], order[j] = order[j], order[i]
                now = clicks(group, order[: len(action)])
                if now > best + 1e-12:
                    best, better = now, True
                else:
                    order[i], order[j] = order[j], order[i]
    return best


@dataclass(frozen=True)
class UsersOfLists(Environment):
    """One key and its readers, drawn anew in each run; arms are offered in the start's order.

    ``noise`` is the deviation of the logits by which the start list is sorted.
    """

    takes: ClassVar[str] = "slate"

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: Impression
        group: UserSegments
        drawn: Floats  # (1 + 2 · positions,)
        best: Floats  # (1,)

    readers: str
    arms: int
    positions: int
    noise: float
    scale: float

    def world(self, rng: Generator, horizon: int) -> World:
        taste = self.scale * rng.beta(1.0, 3.0, (2, self.arms))
        k = np.arange(1.0, self.positions + 1)
        by_position = k ** -rng.uniform(0.3, 1.3)
        after_click = rng.uniform(0.4, 0.9) * k ** -rng.uniform(0.0, 0.5)
        done = rng.uniform(0.1, 0.9, self.arms)
        gamma, mixed = rng.uniform(0.7, 1.0), rng.uniform(0.2, 0.6)
        full, none = np.ones(self.positions), np.zeros(self.arms)
        rows = {
            "position-based": [(1.0, 0, 0, none, 1.0, by_position)],
            "cascade": [(1.0, 1, 0, none, 1.0, 0.0 * full)],
            "dependent click": [(1.0, 1, 0, none, 1.0, after_click)],
            "dynamic Bayesian": [(1.0, 1, 0, done, gamma, gamma * full)],
            "mixture": [
                (0.9 * mixed, 0, 0, none, 1.0, by_position),
                (0.9 - 0.9 * mixed, 1, 1, none, gamma, after_click),
                (0.1, 2, 0, none, 0.1 * self.scale, full),
            ],
        }[self.readers]
        share, kind, tastes, leaves, skip, onward = zip(*rows, strict=True)
        group = UserSegments(
            np.array(share), np.array(kind), taste[list(tastes)], np.array(leaves),
            np.array(skip), np.array(onward),
        )  # fmt: skip
        liked = np.array(share)[np.array(kind) != 2] @ group.taste[np.array(kind) != 2]
        order, action = np.argsort(-liked), np.zeros(self.positions, np.int64)
        best = compile_loop(climb, self.params)(group, order, action)
        guess = np.log(liked) + self.noise * rng.standard_normal(self.arms)
        impression = Impression(np.argsort(-guess), np.zeros(0))
        drawn = np.zeros(1 + 2 * self.positions)
        return self.World(impression, group, drawn, np.array([best]))

    @staticmethod
    def arrive(params: Any, world: World, round: int, rng: Generator) -> int:
        for i in range(len(world.drawn)):
            world.drawn[i] = rng.random()
        return 0

    @staticmethod
    def react(params: Any, world: World, lane: int, action: Ints, feedback: Floats) -> None:
        group, g, u = world.group, 0, world.drawn[0]
        while g + 1 < len(group.share) and u >= group.share[g]:
            u -= group.share[g]
            g += 1
        reading = True
        for k in range(len(action)):
            feedback[k] = 0.0
            if action[k] < 0 or not reading:
                continue
            p = group.taste[g, action[k]]
            if group.kind[g] == 0:
                p *= group.onward[g, k]
            if group.kind[g] == 2:
                p = group.skip[g]
            onward = group.skip[g]
            if world.drawn[1 + 2 * k] < p:
                feedback[k] = 1.0
                onward = group.onward[g, k] * (1.0 - group.leaves[g, action[k]])
            if group.kind[g] == 1:
                reading = world.drawn[2 + 2 * k] < onward

    @staticmethod
    def regret(params: Any, world: World, lane: int, action: Ints) -> float:
        return float(world.best[0] - clicks(world.group, action))
