"""Readers of lists of five kinds, and starts that are good, random or sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.compiled import compiled
from tacit.core.dispatch import kernel
from tacit.environments import Environment
from tacit.policies import Impression

SHAPES = {"5 of 20": (20, 5), "10 of 10": (10, 10)}
STARTS = {"good": (0.5, 1.0), "random": (50.0, 1.0), "sparse, good": (0.5, 0.1)}
KINDS = ("position-based", "cascade", "dependent click", "dynamic Bayesian", "mixture")


class ReaderGroup(NamedTuple):
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
def clicks_of(group: ReaderGroup, g: int, action: Ints) -> float:
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
def clicks(group: ReaderGroup, action: Ints) -> float:
    """Return the expected clicks on a list."""
    total = 0.0
    for g in range(len(group.share)):
        total += group.share[g] * clicks_of(group, g, action)
    return total


def climb(group: ReaderGroup, order: Ints, action: Ints) -> float:
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
class ReadersOfLists(Environment):
    """One key and its readers, drawn anew in each run; arms are offered in the start's order.

    ``noise`` is the deviation of the logits by which the start list is sorted.
    """

    takes: ClassVar[str] = "slate"

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: Impression
        group: ReaderGroup
        drawn: Floats  # (1 + 2 · positions,)
        best: Floats  # (1,)

    readers: str
    arms: int
    positions: int
    noise: float
    scale: float

    @property
    def arm_count(self) -> int:
        return self.arms

    @property
    def action_width(self) -> int:
        return self.positions

    def world(self, rng: Generator, horizon: int) -> World:
        taste = self.scale * rng.beta(1.0, 3.0, (2, self.arms))
        k = np.arange(1.0, self.positions + 1)
        by_position = k ** -rng.uniform(0.3, 1.3)
        after_click = rng.uniform(0.4, 0.9) * k ** -rng.uniform(0.0, 0.5)
        done = rng.uniform(0.1, 0.9, self.arms)
        gamma, mixed = rng.uniform(0.7, 1.0), rng.uniform(0.2, 0.6)
        one, none = np.ones(self.positions), np.zeros(self.arms)
        rows = {
            "position-based": [(1.0, 0, 0, none, 1.0, by_position)],
            "cascade": [(1.0, 1, 0, none, 1.0, 0.0 * one)],
            "dependent click": [(1.0, 1, 0, none, 1.0, after_click)],
            "dynamic Bayesian": [(1.0, 1, 0, done, gamma, gamma * one)],
            "mixture": [
                (0.9 * mixed, 0, 0, none, 1.0, by_position),
                (0.9 - 0.9 * mixed, 1, 1, none, gamma, after_click),
                (0.1, 2, 0, none, 0.1 * self.scale, one),
            ],
        }[self.readers]
        share, kind, tastes, leaves, skip, onward = zip(*rows, strict=True)
        group = ReaderGroup(
            np.array(share), np.array(kind), taste[list(tastes)], np.array(leaves),
            np.array(skip), np.array(onward),
        )  # fmt: skip
        liked = np.array(share)[np.array(kind) != 2] @ group.taste[np.array(kind) != 2]
        order, action = np.argsort(-liked), np.zeros(self.positions, np.int64)
        best = compiled(climb, self.params)(group, order, action)
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
