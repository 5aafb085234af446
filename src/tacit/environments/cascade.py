"""Lists that are read from the top until something attracts: the cascade model of clicks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.environments.base import Environment, probabilities
from tacit.policies.base import Impression


@dataclass(frozen=True)
class CascadeArms(Environment):
    """One key; its users read a list from the top and click the first arm that attracts them.

    Arm i attracts with probability ``attraction[i]``, whatever is shown beside it. Below the
    click nothing is read. The regret of a list is the probability of a click on the best list,
    the arms of the highest attraction, less its own.

    Parameters
    ----------
    attraction : sequence of float, shape (arms,)
        In [0, 1].
    positions : int, default 3
        Length of the list; at least 1 and at most the number of arms.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Craswell, Zoeter, Taylor, Ramsey (2008), "An experimental comparison of click position-bias
    models"; Kveton, Szepesvári, Wen, Ashkan (2015), "Cascading bandits", section 2.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.CascadeArms([0.5, 0.4, 0.1, 0.1], positions=2)
    >>> policy = tacit.CascadeKLUCB(arms=4, positions=2)
    >>> result = tacit.simulate(policy, environment, 2000, runs=5, seed=1)
    >>> bool(result.regret[0, :, -1].mean() < 60)
    True
    """

    takes: ClassVar[str] = "slate"

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: Impression
        attraction: Floats  # (arms,)
        drawn: Floats  # (arms,) this round's uniform numbers
        best: Floats  # (1,) probability of a click on the best list

    attraction: Annotated[Any, partial(probabilities, ndim=1)]
    positions: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        positions = checks.integer("positions", self.positions, 1, len(self.attraction))
        self._set("positions", positions)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(np.arange(1, arms + 1) / (arms + 1), positions=min(arms, 3))

    @property
    def arm_count(self) -> int:
        return len(self.attraction)

    @property
    def action_width(self) -> int:
        return self.positions

    def world(self, rng: Generator, horizon: int) -> World:
        attraction = np.array(self.attraction)
        top = np.sort(attraction)[-self.positions :]
        impression = Impression(np.arange(len(attraction)), np.zeros(0))
        best = np.array([1.0 - np.prod(1.0 - top)])
        return self.World(impression, attraction, np.zeros(len(attraction)), best)

    @staticmethod
    def arrive(params: Params, world: World, round: int, rng: Generator) -> int:
        for arm in range(len(world.drawn)):
            world.drawn[arm] = rng.random()
        return 0

    @staticmethod
    def react(params: Params, world: World, lane: int, shown: Ints, feedback: Floats) -> None:
        feedback[:] = 0.0
        for k in range(len(shown)):
            if shown[k] >= 0 and world.drawn[shown[k]] < world.attraction[shown[k]]:
                feedback[k] = 1.0
                break

    @staticmethod
    def regret(params: Params, world: World, lane: int, shown: Ints) -> float:
        none = 1.0
        for arm in shown:
            if arm >= 0:
                none *= 1.0 - world.attraction[arm]
        return float(world.best[0] - (1.0 - none))
