"""Duels whose best arm depends on what is known of the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.ranges import Positive, whole, within
from tacit.environments.duel import DuelEnvironment
from tacit.policies.base import Impression
from tacit.policies.features.gaussian import sigmoid


@dataclass(frozen=True)
class ContextualDuels(DuelEnvironment):
    """Many keys, each with a context: kinds of query, and rankers that suit some of them.

    A key's context is drawn once a run, standard normal over √context_dim; so are the arms'
    utilities: linear in the context, times ``scale``, plus a constant, and plus what is the
    key's own and its context does not tell, times ``own``. The better of two arms wins with the
    logistic function of the difference. Keys come equally often. The regret of a duel is half
    the sum of what both arms fall short of the key's best one, as probabilities to lose to it
    beyond 1/2.

    Parameters
    ----------
    arms : int, default 5
        At least 2.
    context_dim : int, default 4
        Signals of a context; at least 1.
    keys : int, default 50
        At least 1.
    scale : float, default 2
        Of what the context says; above 0.
    own : float, default 0
        Of what it does not say; 0 to 100.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ContextualDuels(arms=3, context_dim=2, keys=10)
    >>> environment.lanes, environment.context_dim
    (10, 2)
    """

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: Impression
        contexts: Floats  # (keys, context_dim)
        utilities: Floats  # (keys, arms)
        best: Floats  # (keys,)
        uniform: Floats  # (1,)

    arms: Annotated[int, whole(2, 2**16)] = 5
    context_dim: Annotated[int, whole(1, 256)] = 4
    keys: Annotated[int, whole(1, 2**20)] = 50
    scale: Positive = 2.0
    own: Annotated[float, within(0.0, 100.0)] = 0.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, dim, 4)

    @property
    def arm_count(self) -> int:
        return self.arms

    @property
    def lanes(self) -> int:
        return self.keys

    def world(self, rng: Generator, horizon: int) -> World:
        contexts = rng.standard_normal((self.keys, self.context_dim)) / np.sqrt(self.context_dim)
        slopes = rng.standard_normal((self.context_dim, self.arms))
        constants = 0.3 * rng.standard_normal(self.arms)
        own = self.own * rng.standard_normal((self.keys, self.arms))
        utilities = self.scale * (contexts @ slopes) + constants + own
        return self.World(
            impression=Impression(np.arange(self.arms), np.zeros(self.context_dim)),
            contexts=contexts,
            utilities=utilities,
            best=utilities.max(axis=1),
            uniform=np.zeros(1),
        )

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        key = int(rng.random() * len(world.contexts))
        world.impression.context[:] = world.contexts[key]
        world.uniform[0] = rng.random()
        return key

    @staticmethod
    def respond(params: Params, world: World, lane: int, pair: Any) -> float:
        ahead = world.utilities[lane, pair[0]] - world.utilities[lane, pair[1]]
        return 1.0 if world.uniform[0] < sigmoid(ahead) else 0.0

    @staticmethod
    def expected(params: Params, world: World, lane: int, pair: Any) -> float:
        best = world.best[lane]
        left = sigmoid(best - world.utilities[lane, pair[0]]) - 0.5
        right = sigmoid(best - world.utilities[lane, pair[1]]) - 0.5
        return float(0.5 - 0.5 * (left + right))

    @staticmethod
    def optimum(params: Params, world: World, lane: int) -> float:
        return 0.5
