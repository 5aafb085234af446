"""Epsilon-greedy over a linear regression, for arms that are known by their features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Fraction, Positive, PositiveFraction, whole
from tacit.policies.base import About, Impression
from tacit.policies.features.click_model import MAX_DIM, ClickModel, place_of
from tacit.policies.features.gaussian import Gaussian, scored
from tacit.policies.features.linear import LeastSquares


@kernel
def leader_of(impression: Impression, mean: Floats, rng: Generator) -> int:
    """Return the place of the highest score; ties are broken uniformly at random."""
    best, leader, ties = -np.inf, 0, 0.0
    for i in range(len(impression.arms)):
        score = scored(impression.relevance[i], mean)
        if score > best:
            best, leader, ties = score, i, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = i
    return leader


@kernel
def share_of_lead(impression: Impression, mean: Floats, place: int) -> float:
    """Return the probability of :func:`leader_of` returning ``place``."""
    best, ties = -np.inf, 0.0
    for i in range(len(impression.arms)):
        score = scored(impression.relevance[i], mean)
        if score > best:
            best, ties = score, 1.0
        elif score == best:
            ties += 1.0
    return 1.0 / ties if scored(impression.relevance[place], mean) == best else 0.0


@dataclass(frozen=True)
class LinearEpsilonGreedy(LeastSquares):
    """Play a uniformly chosen arm with probability ε, else the best by a linear regression.

    Each arm on offer has at least the probability ε/K, and all of them are known exactly: what
    is logged is fit for offline evaluation.

    Parameters
    ----------
    dim : int
        Number of features per arm, given as ``relevance``; at least 1. A reward costs O(dim²).
    epsilon : float, default 0.2
        Probability of a uniform choice, in [0, 1].
    prior_variance : float, default 1
        Inverse of the ridge penalty; above 0.
    intercept : bool, default True
        Whether there is a constant.
    discount : float, default 1
        Factor on the precision of what was learned before, at each reward, in (0, 1].

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Langford, Zhang (2008), "The epoch-greedy algorithm for contextual multi-armed bandits";
    Bietti, Agarwal, Langford (2021), "A contextual bandit bake-off", algorithm 1 (ε-greedy), here
    with ridge regression as its oracle.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.LinearEpsilonGreedy(dim=2, epsilon=0.2), seed=1)
    >>> offer = [[1.0, 0.0], [0.0, 1.0]]
    >>> decision = learner.choose("home", arms=["film", "holiday"], relevance=offer)
    >>> learner.learn(decision, reward=1.0)
    True
    >>> sorted(learner.probabilities("home", relevance=offer).round(3).tolist())
    [0.1, 0.9]
    """

    kernels: ClassVar[tuple[Any, ...]] = ClickModel.kernels
    about: ClassVar[About] = About(
        source="Bietti, Agarwal, Langford (2021), algorithm 1",
        regret="linear, ε·(mean gap) a round; O(T^(2/3)) where ε falls as T^(−1/3)",
        assumes="that the expected reward is linear in the features",
        fails="settles on a wrong arm where no such score orders them rightly; takes what was not "
        "seen for unwanted; explores for ever",
        otherwise="LinTS or LogisticTS where no propensities are needed",
    )

    dim: Annotated[int, whole(1, MAX_DIM)]
    epsilon: Fraction = 0.2
    prior_variance: Positive = 1.0
    intercept: Flag = True
    discount: PositiveFraction = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(dim)

    @property
    def feature_dims(self) -> tuple[int, int]:
        return self.dim, 0

    @staticmethod
    def choose(
        params: LinearEpsilonGreedy, state: Gaussian, lane: int, impression: Impression, rng: Generator
    ) -> int:
        if rng.random() < params.epsilon:
            place = int(rng.random() * len(impression.arms))
        else:
            place = leader_of(impression, state.mean[lane], rng)
        return int(impression.arms[place])

    @staticmethod
    def propensity(
        params: LinearEpsilonGreedy, state: Gaussian, lane: int, impression: Impression, arm: int
    ) -> float:
        lead = share_of_lead(impression, state.mean[lane], place_of(impression.arms, arm))
        return params.epsilon / len(impression.arms) + (1.0 - params.epsilon) * lead
