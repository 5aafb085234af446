"""Uniform choice: what everything is measured against, and the log that replay needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.policies.base import About, Impression, Outcome, Policy


@dataclass(frozen=True)
class UniformRandom(Policy):
    """Show each offered arm with the same probability, whatever was clicked.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.

    Raises
    ------
    InvalidValue
        If ``arms`` is neither.

    References
    ----------
    Li, Chu, Langford, Wang (2011), section 3: logs made this way are what replay needs.

    Examples
    --------
    >>> import tacit
    >>> tacit.Learner(tacit.UniformRandom(arms=4), seed=1).choose("query").propensity
    0.25
    """

    class State(NamedTuple):
        rounds: Floats

    about: ClassVar[About] = About(
        source="Li, Chu, Langford, Wang (2011), section 3",
        regret="linear",
        assumes="nothing",
        fails="nothing; but it never learns",
        otherwise="any other policy",
    )

    def init(self, lanes: int) -> State:
        return self.State(np.zeros(lanes))

    @staticmethod
    def choose(params: UniformRandom, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        arms = impression.arms
        return int(arms[int(rng.random() * len(arms))])

    @staticmethod
    def propensity(params: UniformRandom, state: State, lane: int, impression: Impression, arm: int) -> float:
        return 1.0 / len(impression.arms)

    @staticmethod
    def learn(params: UniformRandom, state: State, lane: int, outcome: Outcome) -> None:
        state.rounds[lane] += 1.0

    @staticmethod
    def unlearn(params: UniformRandom, state: State, lane: int, outcome: Outcome) -> None:
        state.rounds[lane] -= 1.0
