"""Arms with constant click probabilities: for a single key, and for many keys with little traffic each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.part import float_range, int_range, one_word, probabilities
from tacit.environments.base import Environment
from tacit.policies.base import Impression

# ---- Arms with constant click probabilities


@dataclass(frozen=True)
class BernoulliArms(Environment):
    """One key; arm i is clicked with the constant probability ``means[i]``.

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

    class World(NamedTuple):
        impression: Impression
        means: Floats  # (arms,)
        best: Floats  # (1,)
        uniform: Floats  # (1,)

    means: Annotated[Any, probabilities]

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example whose click probabilities increase evenly; ``dim`` is ignored."""
        return cls(np.arange(1, arms + 1) / (arms + 1))

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of click probabilities."""
        return len(self.means)

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run: click probabilities, the highest of them, and all arms on offer."""
        means = np.array(self.means)
        impression = Impression(np.arange(len(means)), np.zeros(0))
        return self.World(impression, means, np.array([means.max()]), np.zeros(1))

    @staticmethod
    def arrive(params: BernoulliArms, world: World, round: int, rng: Generator) -> int:
        """Draw the uniform number that decides the click of this round; return lane 0."""
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def expected(params: BernoulliArms, world: World, lane: int, arm: int) -> float:
        """Return the click probability of an arm."""
        return float(world.means[arm])

    @staticmethod
    def optimum(params: BernoulliArms, world: World, lane: int) -> float:
        """Return the highest click probability."""
        return float(world.best[0])


# ---- Many keys with little traffic each, similar or not

ALIKE = ("arms", "clusters", "offsets", "nothing")
CLUSTERS = 4


@dataclass(frozen=True)
class LongTail(Environment):
    """Keys with Zipf traffic and constant, correlated click probabilities.

    The log-odds of a click on an arm for a key are normal around ``level``; the component shared by
    keys has a variance of 1, the remaining one of 1/4.

    Parameters
    ----------
    arms : int, default 10
        Number of arms of each key.
    keys : int, default 100
        Number of keys; the mean traffic of a key is the horizon divided by it.
    alike : str, default "arms"
        The shared component. ``arms``: each arm is about as good for all keys. ``clusters``: the
        same within each of four groups of keys. ``offsets``: as ``arms``, but keys also differ in
        their overall level of clicks, with a variance of 1. ``nothing``: the component is independent.
    level : float, default -1.5
        Mean log-odds of a click; −1.5 is a probability of 0.18.
    traffic : float, default 1
        Exponent of the keys' Zipf distribution; at least 0.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.LongTail(arms=5, keys=200)
    >>> policies = [tacit.policies.ShiftMixture(arms=5), tacit.Thompson(arms=5)]
    >>> result = tacit.simulate(policies, environment, horizon=4000, runs=10, seed=1)
    >>> result.compare("ShiftMixture", "Thompson").difference < 0
    True
    """

    class World(NamedTuple):
        impression: Impression
        clicks: Floats  # (keys, arms)
        best: Floats  # (keys,)
        traffic: Floats  # (keys,) cumulative probability
        uniform: Floats  # (1,)

    arms: Annotated[int, int_range(1, 2**20)] = 10
    keys: Annotated[int, int_range(1, 2**24)] = 100
    alike: Annotated[str, one_word(*ALIKE)] = "arms"
    level: Annotated[float, float_range(-20.0, 20.0)] = -1.5
    traffic: Annotated[float, float_range(0.0, 10.0)] = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` arms; ``dim`` is ignored."""
        return cls(arms)

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw the click probabilities of all keys; return them with the keys' cumulative traffic."""
        clicks = 1.0 / (1.0 + np.exp(-self._draw_log_odds(rng)))
        weights = np.arange(1, self.keys + 1) ** -self.traffic
        traffic = np.cumsum(weights / weights.sum())
        impression = Impression(np.arange(self.arms), np.zeros(0))
        return self.World(impression, clicks, clicks.max(axis=1), traffic, np.zeros(1))

    def _draw_log_odds(self, rng: Generator) -> Floats:
        """Draw the log-odds of a click, shape (keys, arms); ``alike`` says which component keys share."""
        log_odds = self.level + 0.5 * rng.standard_normal((self.keys, self.arms))
        if self.alike == "nothing":
            return log_odds + rng.standard_normal(log_odds.shape)
        if self.alike == "clusters":
            groups = rng.standard_normal((CLUSTERS, self.arms))
            return log_odds + groups[rng.integers(CLUSTERS, size=self.keys)]
        log_odds += rng.standard_normal(self.arms)
        if self.alike == "offsets":
            log_odds += rng.standard_normal((self.keys, 1))
        return log_odds

    @staticmethod
    def arrive(params: LongTail, world: World, round: int, rng: Generator) -> int:
        """Draw a key by its traffic, and the uniform number that decides the click; return the key's lane."""
        lane = int(np.searchsorted(world.traffic, rng.random(), "right"))
        world.uniform[0] = rng.random()
        return min(lane, len(world.traffic) - 1)

    @staticmethod
    def expected(params: LongTail, world: World, lane: int, arm: int) -> float:
        """Return the click probability of an arm for a lane's key."""
        return float(world.clicks[lane, arm])

    @staticmethod
    def optimum(params: LongTail, world: World, lane: int) -> float:
        """Return the highest click probability for a lane's key."""
        return float(world.best[lane])
