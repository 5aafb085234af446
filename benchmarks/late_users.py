"""Users whose numbers say which arm they like, and users who like items by the items' numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.environments import Environment
from tacit.policies.base import Impression


@dataclass(frozen=True)
class UsersOfKinds(Environment):
    """As many kinds of users as arms; each clicks on its own arm with 50 %, on others with 20 %.

    Chance earns 30 %. A user's numbers say of which kind he is, but for some noise.
    """

    arms: int = 3

    class World(NamedTuple):
        impression: Impression
        kind: Any
        uniform: Any

    @property
    def context_dim(self) -> int:
        return self.arms

    def world(self, rng: Any, horizon: int) -> World:
        impression = Impression(np.arange(self.arms), np.zeros(self.arms))
        return self.World(impression, np.zeros(1, np.int64), np.zeros(1))

    @staticmethod
    def arrive(params: Any, world: World, round: int, rng: Any) -> int:
        kind = int(rng.random() * params.arms)
        world.kind[0] = kind
        for d in range(params.arms):
            world.impression.context[d] = (1.0 if d == kind else 0.0) + 0.2 * (rng.random() - 0.5)
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def expected(params: Any, world: World, lane: int, arm: int) -> float:
        return 0.5 if arm == world.kind[0] else 0.2

    @staticmethod
    def optimum(params: Any, world: World, lane: int) -> float:
        return 0.5


@dataclass(frozen=True)
class ItemsWithNumbers(Environment):
    """Some of a pool of items are on offer; how likely each is clicked follows from its numbers."""

    relevance_dim: int = 40
    offered: int = 5
    pool: int = 200

    class World(NamedTuple):
        impression: Impression
        items: Any
        chances: Any
        uniform: Any

    @property
    def arm_count(self) -> int:
        return self.offered

    def world(self, rng: Any, horizon: int) -> World:
        items = rng.standard_normal((self.pool, self.relevance_dim))
        items /= np.linalg.norm(items, axis=1, keepdims=True)
        taste = rng.standard_normal(self.relevance_dim)
        chances = 1.0 / (1.0 + np.exp(1.0 - 2.0 * items @ taste))
        impression = Impression(
            np.arange(self.offered), np.zeros(0), np.zeros((self.offered, self.relevance_dim))
        )
        return self.World(impression, items, np.concatenate([np.zeros(self.offered), chances]), np.zeros(1))

    @staticmethod
    def arrive(params: Any, world: World, round: int, rng: Any) -> int:
        for place in range(params.offered):
            item = int(rng.random() * params.pool)
            world.chances[place] = world.chances[params.offered + item]
            for d in range(params.relevance_dim):
                world.impression.relevance[place, d] = world.items[item, d]
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def expected(params: Any, world: World, lane: int, arm: int) -> float:
        return float(world.chances[arm])

    @staticmethod
    def optimum(params: Any, world: World, lane: int) -> float:
        best = world.chances[0]
        for place in range(1, params.offered):
            best = max(best, world.chances[place])
        return float(best)
