"""Arms whose click probabilities never change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.environments.base import Environment, probabilities
from tacit.policies.base import Impression


@dataclass(frozen=True)
class BernoulliArms(Environment):
    """One key; arm i is clicked with probability ``means[i]``, for ever.

    Parameters
    ----------
    means : sequence of float, shape (arms,)
        Click probabilities in [0, 1].
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Lai, Robbins (1985), "Asymptotically efficient adaptive allocation rules".

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.BernoulliArms([0.1, 0.2, 0.3])
    >>> result = tacit.simulate(tacit.UniformRandom(arms=3), environment, 1000, runs=2, seed=1)
    >>> [float(regret) for regret in result.regret[0, :, -1].round(-1)]
    [100.0, 100.0]
    """

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: Impression
        means: Floats
        best: Floats
        uniform: Floats

    means: Annotated[Any, partial(probabilities, ndim=1)]

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(np.arange(1, arms + 1) / (arms + 1))

    @property
    def arm_count(self) -> int:
        return len(self.means)

    def world(self, rng: Generator, horizon: int) -> World:
        means = np.array(self.means)
        impression = Impression(np.arange(len(means)), np.zeros(0))
        return self.World(impression, means, np.array([means.max()]), np.zeros(1))

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def respond(params: Params, world: World, lane: int, arm: int) -> float:
        return 1.0 if world.uniform[0] < world.means[arm] else 0.0

    @staticmethod
    def expected(params: Params, world: World, lane: int, arm: int) -> float:
        return float(world.means[arm])

    @staticmethod
    def optimum(params: Params, world: World, lane: int) -> float:
        return float(world.best[0])
