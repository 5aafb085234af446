"""Environments over features, for measurements: what the library has none of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tacit
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.environments.examination import offer_arms, uniform_in_ball
from tacit.policies.features.gaussian import dot, sigmoid

NOISE = 0.25
"""Standard deviation of a reward of the linear truth, before it is clipped to [0, 1]."""


@kernel
def clipped_mean(mean: float) -> float:
    """Return the mean of a normal variable that is clipped to [0, 1]."""
    low, high = -mean / NOISE, (1.0 - mean) / NOISE
    below, above = 0.5 * math.erfc(-low / math.sqrt(2.0)), 0.5 * math.erfc(high / math.sqrt(2.0))
    bell = (np.exp(-0.5 * low * low) - np.exp(-0.5 * high * high)) / math.sqrt(2.0 * math.pi)
    return float(above + mean * (1.0 - below - above) + NOISE * bell)


@dataclass(frozen=True)
class PlainArms(tacit.environments.Environment):
    """A hundred arms, ten on offer; clicks are logistic in all features, or rewards linear.

    Features of both blocks, and parameters, are uniform in the unit ball. The click probability
    is σ(scale·x·θ); with ``linear`` the reward is 1/2 + scale·x·θ/4 and normal noise, clipped.
    """

    class Params(NamedTuple):
        scale: float
        linear: bool

    class World(NamedTuple):
        impression: tacit.Impression
        relevance: Floats  # (pool, 5)
        examination: Floats
        theta_c: Floats  # (5,)
        theta_e: Floats
        order: Ints  # (pool,)
        means: Floats  # (offered,)
        noise: Floats  # (2,) uniform, normal

    scale: float = 1.0
    linear: bool = False

    @property
    def arm_count(self) -> int:
        return 10

    @property
    def feature_dims(self) -> tuple[int, int]:
        return 5, 5

    def world(self, rng: Generator, horizon: int) -> World:
        arms, theta = [uniform_in_ball(rng, 100, 5) for _ in range(2)], uniform_in_ball(rng, 2, 5)
        blank = tacit.Impression(np.arange(10), np.zeros(0), np.zeros((10, 5)), np.zeros((10, 5)))
        return self.World(blank, *arms, *theta, np.arange(100), np.zeros(10), np.zeros(2))

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        impression = world.impression
        offer_arms(world, rng)
        for i in range(len(impression.arms)):
            x = dot(impression.relevance[i], world.theta_c)
            x = params.scale * (x + dot(impression.examination[i], world.theta_e))
            world.means[i] = 0.5 + 0.25 * x if params.linear else sigmoid(x)
        world.noise[0] = rng.random()
        world.noise[1] = rng.standard_normal()
        return 0

    @staticmethod
    def respond(params: Params, world: World, lane: int, arm: int) -> float:
        mean = world.means[arm]
        if params.linear:
            return float(min(max(mean + NOISE * world.noise[1], 0.0), 1.0))
        return 1.0 if world.noise[0] < mean else 0.0

    @staticmethod
    def expected(params: Params, world: World, lane: int, arm: int) -> float:
        return clipped_mean(world.means[arm]) if params.linear else float(world.means[arm])

    @staticmethod
    def optimum(params: Params, world: World, lane: int) -> float:
        best = 0.0
        for i in range(len(world.means)):
            best = max(best, world.means[i])
        return clipped_mean(best) if params.linear else best


class ChancesTold(tacit.environments.Environment):
    """Base of those whose world has the chances of all arms on offer, and a noise a round."""

    @staticmethod
    def respond(params: Any, world: Any, lane: int, arm: int) -> float:
        return 1.0 if world.noise[0] < world.chances[arm] else 0.0

    @staticmethod
    def expected(params: Any, world: Any, lane: int, arm: int) -> float:
        return float(world.chances[arm])

    @staticmethod
    def optimum(params: Any, world: Any, lane: int) -> float:
        best = 0.0
        for i in range(len(world.chances)):
            best = max(best, world.chances[i])
        return best


@dataclass(frozen=True)
class KeyedArms(ChancesTold):
    """Keys in random order whose parameters lie about common ones; a hundred arms, ten on offer.

    A click has the probability σ(x_C·θ_C)·σ(x_E·θ_E). A key's parameters are ``scale``·θ₀ and
    ``unlike``·δ, all uniform in the unit ball of their block. Where keys are ``pooled``, the
    policy takes them for one.
    """

    class Params(NamedTuple):
        keys: int
        pooled: bool

    class World(NamedTuple):
        impression: tacit.Impression
        relevance: Floats  # (pool, 5)
        examination: Floats
        theta_c: Floats  # (keys, 5)
        theta_e: Floats
        order: Ints  # (pool,)
        chances: Floats  # (offered,)
        noise: Floats  # (1,)

    keys: int = 10
    scale: float = 2.0
    unlike: float = 0.5
    pooled: bool = False

    @property
    def arm_count(self) -> int:
        return 10

    @property
    def lanes(self) -> int:
        return 1 if self.pooled else self.keys

    @property
    def feature_dims(self) -> tuple[int, int]:
        return 5, 5

    def world(self, rng: Generator, horizon: int) -> World:
        arms, common = [uniform_in_ball(rng, 100, 5) for _ in range(2)], uniform_in_ball(rng, 2, 5)
        own = [uniform_in_ball(rng, self.keys, 5) for _ in range(2)]
        thetas = [self.scale * common[i] + self.unlike * own[i] for i in range(2)]
        blank = tacit.Impression(np.arange(10), np.zeros(0), np.zeros((10, 5)), np.zeros((10, 5)))
        return self.World(blank, *arms, *thetas, np.arange(100), np.zeros(10), np.zeros(1))

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        impression = world.impression
        offer_arms(world, rng)
        key = int(rng.random() * params.keys)
        for i in range(len(impression.arms)):
            relevance = dot(impression.relevance[i], world.theta_c[key])
            examination = dot(impression.examination[i], world.theta_e[key])
            world.chances[i] = sigmoid(relevance) * sigmoid(examination)
        world.noise[0] = rng.random()
        return 0 if params.pooled else key


@dataclass(frozen=True)
class UserArms(ChancesTold):
    """Users who like different arms: ten arms with four features, users with four, drawn a round.

    The click probability is σ(scale·(x·w + u·W·x)), x and u of length 1. ``told`` says what a
    policy is given of users: ``context``; ``beside``, their features beside those of each arm; or
    ``product``, the arm's and the outer product.
    """

    class Params(NamedTuple):
        scale: float
        way: int

    class World(NamedTuple):
        impression: tacit.Impression
        arms: Floats  # (arms, 4)
        taste: Floats  # (4,)
        matrix: Floats  # (4, 4)
        user: Floats  # (4,)
        chances: Floats  # (arms,)
        noise: Floats  # (1,)

    scale: float = 2.0
    told: str = "context"

    @property
    def way(self) -> int:
        """Which of the three it is, as a number."""
        return ("context", "beside", "product").index(self.told)

    @property
    def arm_count(self) -> int:
        return 10

    @property
    def context_dim(self) -> int:
        return 4 if self.told == "context" else 0

    @property
    def feature_dims(self) -> tuple[int, int]:
        return (4, 8, 20)[self.way], 0

    def world(self, rng: Generator, horizon: int) -> World:
        arms, taste = rng.standard_normal((10, 4)), rng.standard_normal(4)
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        rows = np.zeros((10, self.feature_dims[0]))
        rows[:, :4] = arms
        blank = tacit.Impression(np.arange(10), np.zeros(self.context_dim), rows, rows[:, :0])
        matrix, scratch = rng.standard_normal((4, 4)), (np.zeros(4), np.zeros(10), np.zeros(1))
        return self.World(blank, arms, taste, matrix, *scratch)

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        user, length = world.user, 0.0
        for i in range(4):
            user[i] = rng.standard_normal()
            length += user[i] * user[i]
        for i in range(4):
            user[i] /= np.sqrt(length)
        for a in range(len(world.arms)):
            score = dot(world.arms[a], world.taste)
            for i in range(4):
                score += user[i] * dot(world.matrix[i], world.arms[a])
                if params.way == 0:
                    world.impression.context[i] = user[i]
                elif params.way == 1:
                    world.impression.relevance[a, 4 + i] = user[i]
                else:
                    for j in range(4):
                        world.impression.relevance[a, 4 + 4 * i + j] = user[i] * world.arms[a, j]
            world.chances[a] = sigmoid(params.scale * score)
        world.noise[0] = rng.random()
        return 0
