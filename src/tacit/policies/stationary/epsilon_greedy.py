"""Policies that explore at a fixed rate: epsilon-greedy, and the uniform choice all is measured against."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.part import Fraction
from tacit.policies.base import About, Counts, Impression, Outcome, Policy
from tacit.policies.index import LATER, CountingPolicy, greedy_choice, greedy_propensity


@dataclass(frozen=True, repr=False)
class EpsilonGreedy(CountingPolicy):
    """Play a uniformly chosen arm with probability ε, else the arm of the highest mean.

    An arm that was never played comes before all that were.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    epsilon : float, default 0.1
        Probability of a uniform choice, in [0, 1].
    priors : dict of arm to (float, float), optional
        Successes and failures known of arms before: each key begins as if it had been shown the arm
        so often. ``{"film": (4, 96)}`` is 4 clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Sutton, Barto (2018), "Reinforcement Learning", 2nd edition, section 2.4.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.EpsilonGreedy(arms=2, epsilon=0.2), seed=1)
    >>> round(learner.choose("query").propensity, 3)
    0.5
    """

    about: ClassVar[About] = About(
        source="Sutton, Barto (2018), section 2.4",
        regret="linear, ε·(mean gap) a round",
        assumes="nothing; the regret is the price of exploring for ever",
        fails="nothing; but exploring costs its share for ever",
        otherwise="Thompson or KLUCB where click probabilities stay",
    )
    randomized: ClassVar[bool] = True

    epsilon: Fraction = 0.1
    priors: Any = field(default=(), kw_only=True, metadata=LATER)

    @staticmethod
    def index(params: EpsilonGreedy, state: Counts, lane: int, arm: int, confidence: float) -> float:
        plays = state.plays[lane, arm]
        return math.inf if plays == 0.0 else float(state.rewards[lane, arm] / plays)

    @staticmethod
    def choose(
        params: EpsilonGreedy, state: Counts, lane: int, impression: Impression, rng: Generator
    ) -> int:
        arms = impression.arms
        if rng.random() < params.epsilon:
            return int(arms[int(rng.random() * len(arms))])
        return greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(
        params: EpsilonGreedy, state: Counts, lane: int, impression: Impression, arm: int
    ) -> float:
        greedy = greedy_propensity(params, state, lane, impression, arm)
        return params.epsilon / len(impression.arms) + (1.0 - params.epsilon) * greedy


# ---- Uniform choice: what everything is measured against, and the log that replay needs


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
