"""Policies that explore at random at a constant rate: ε-greedy, uniform choice, and EXP3."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Fraction, PositiveFraction
from tacit.policies.base import ADDED_LATER, About, Counts, Impression, Outcome, Policy
from tacit.policies.index import CountingPolicy, greedy_choice, greedy_propensity


@dataclass(frozen=True)
class EpsilonGreedy(CountingPolicy):
    """Play a uniformly chosen arm with probability ε, else the arm of the highest mean.

    Arms that were never played come first.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    epsilon : float, default 0.1
        Probability of a uniform choice, in [0, 1].
    priors : dict of arm to (float, float), optional
        Prior successes and failures of arms, with which each key begins. ``{"film": (4, 96)}`` is 4
        clicks in 100 impressions.

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
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)

    @staticmethod
    def index(params: EpsilonGreedy, state: Counts, lane: int, arm: int, confidence: float) -> float:
        """Return the mean reward of an arm; infinity before its first play."""
        plays = state.plays[lane, arm]
        return math.inf if plays == 0.0 else float(state.rewards[lane, arm] / plays)

    @staticmethod
    def choose(
        params: EpsilonGreedy, state: Counts, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return a uniformly drawn arm with probability ε, else the arm of the highest mean."""
        arms = impression.arms
        if rng.random() < params.epsilon:
            return int(arms[int(rng.random() * len(arms))])
        return greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(
        params: EpsilonGreedy, state: Counts, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability that ``choose`` returns ``arm``.

        It is ε/(arms on offer), plus (1 − ε)/(arms tied for the highest mean) if it is one of these.
        """
        greedy = greedy_propensity(params, state, lane, impression, arm)
        return params.epsilon / len(impression.arms) + (1.0 - params.epsilon) * greedy


# ---- Uniform choice: the baseline of comparisons, and the log that replay needs


@dataclass(frozen=True)
class UniformRandom(Policy):
    """Show each offered arm with the same probability, whatever the feedback.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.

    Raises
    ------
    InvalidValue
        If ``arms`` is neither.

    References
    ----------
    Li, Chu, Langford, Wang (2011), section 3: replay needs logs of this policy.

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
        """Return the initial state: 0 rounds for each lane."""
        return self.State(np.zeros(lanes))

    @staticmethod
    def choose(params: UniformRandom, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Return an offered arm drawn uniformly."""
        arms = impression.arms
        return int(arms[int(rng.random() * len(arms))])

    @staticmethod
    def propensity(params: UniformRandom, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return 1/(number of arms on offer)."""
        return 1.0 / len(impression.arms)

    @staticmethod
    def learn(params: UniformRandom, state: State, lane: int, outcome: Outcome) -> None:
        """Add one round to the lane; the reward is ignored."""
        state.rounds[lane] += 1.0

    @staticmethod
    def unlearn(params: UniformRandom, state: State, lane: int, outcome: Outcome) -> None:
        """Remove one round from the lane."""
        state.rounds[lane] -= 1.0


# ---- EXP3: exponential weights, for rewards that may be anything (Auer et al. 2002)


MOST_GAIN = 2.5
"""Largest increment of a log weight by one reward.

The increment is 1 at the smallest propensity of the policy itself, and 2 if half of the decisions belong to
a holdout. A smaller logged propensity is not from this policy, and must not outweigh all later rewards:
10⁻⁶ would add 50,000.
"""


class ExponentialWeights(NamedTuple):
    """Logarithms of the weights, and the weights themselves relative to exp(base).

    The relative weights save an exponential per arm and round; they are recomputed from the logarithms
    before they could overflow.

    Attributes
    ----------
    logs, weights : array of float64, shape (lanes, arms)
    base : array of float64, shape (lanes,)
    """

    logs: Floats
    weights: Floats
    base: Floats

    @classmethod
    def equal(cls, lanes: int, arms: int) -> ExponentialWeights:
        """Return weights of 1 (logarithms of 0) for ``lanes`` lanes and ``arms`` arms."""
        return cls(np.zeros((lanes, arms)), np.ones((lanes, arms)), np.zeros(lanes))


@kernel
def total_weight(state: ExponentialWeights, lane: int, impression: Impression) -> float:
    """Return the sum of the weights, relative to the lane's base, of the offered arms."""
    total = 0.0
    for i in range(len(impression.arms)):
        total += state.weights[lane, impression.arms[i]]
    return total


@kernel
def gain(gamma: float, outcome: Outcome) -> float:
    """Return the amount that an outcome adds to the log weight of the shown arm: γ·reward/(propensity·offered
    arms).

    It is at most MOST_GAIN, and 0 if the propensity is unknown.
    """
    if not outcome.propensity > 0.0:
        return 0.0
    weighed = gamma * outcome.reward / (outcome.propensity * len(outcome.impression.arms))
    return float(min(weighed, MOST_GAIN))


@kernel
def reweigh(state: ExponentialWeights, lane: int, arm: int) -> None:
    """Recompute the weight of an arm from its logarithm, in place, after the logarithm has changed.

    If the weight would be too large, the base is moved and all weights of the lane are recomputed.
    """
    if state.logs[lane, arm] - state.base[lane] > 200.0:
        state.base[lane] = state.logs[lane, arm]
        for i in range(state.logs.shape[1]):
            state.weights[lane, i] = np.exp(state.logs[lane, i] - state.base[lane])
    state.weights[lane, arm] = np.exp(state.logs[lane, arm] - state.base[lane])


class ExponentialWeightsPolicy(Policy, abstract=True):
    """Base of the policies that mix uniform choice, at a rate γ, with exponential weights."""

    learns_from_propensity: ClassVar[bool] = True

    gamma: PositiveFraction

    @property
    def least_share(self) -> float:  # type: ignore[override]
        """Lower bound of (an arm's propensity) × (number of arms on offer): γ."""
        return self.gamma

    def init(self, lanes: int) -> ExponentialWeights:
        """Return equal weights for each lane."""
        return ExponentialWeights.equal(lanes, self.arm_count)

    def enrol(self, state: ExponentialWeights, lanes: int, known: int) -> None:
        """Give new arms, from index ``known`` on, the mean weight of the earlier arms of their lane.

        Only the first ``lanes`` lanes, which have learned, are changed.
        """
        # The reward of a new arm so far is unknown: it is taken to be the average of the others.
        mean = state.weights[:lanes, :known].mean(axis=1, keepdims=True)
        state.weights[:lanes, known:] = mean
        state.logs[:lanes, known:] = state.base[:lanes, None] + np.log(mean)

    @staticmethod
    def choose(
        params: Any, state: ExponentialWeights, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return an arm: with probability γ drawn uniformly, else drawn in proportion to the weights.

        If the weights of all offered arms are 0, it is drawn uniformly. One random number decides all.
        """
        arms, gamma = impression.arms, params.gamma
        last = len(arms) - 1
        u = rng.random()
        total = total_weight(state, lane, impression)
        if u < gamma or total == 0.0:
            uniform = u / gamma if u < gamma else (u - gamma) / (1.0 - gamma)
            return int(arms[min(int(uniform * len(arms)), last)])
        remainder = (u - gamma) / (1.0 - gamma) * total
        for i in range(last):
            remainder -= state.weights[lane, arms[i]]
            if remainder < 0.0:
                return int(arms[i])
        return int(arms[last])

    @staticmethod
    def propensity(
        params: Any, state: ExponentialWeights, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability of an arm: γ/(arms on offer) + (1 − γ)·(its share of the weights)."""
        total = total_weight(state, lane, impression)
        uniform = 1.0 / len(impression.arms)
        # Only a few arms may be on offer, with negligible weights compared with the other arms.
        share = state.weights[lane, arm] / total if total > 0.0 else uniform
        return float((1.0 - params.gamma) * share + params.gamma * uniform)


@dataclass(frozen=True)
class EXP3(ExponentialWeightsPolicy):
    """Draw arms in proportion to exponential weights of their importance-weighted rewards.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    gamma : float, default 0.1
        Share of uniform exploration, in (0, 1]; :meth:`from_horizon` uses the published value.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Auer, Cesa-Bianchi, Freund, Schapire (2002), "The nonstochastic multiarmed bandit problem",
    figure 1 and corollary 3.2.

    Examples
    --------
    >>> import tacit
    >>> round(tacit.policies.EXP3.from_horizon(arms=5, horizon=100_000).gamma, 5)
    0.00684
    """

    about: ClassVar[About] = About(
        source="Auer, Cesa-Bianchi, Freund, Schapire (2002), figure 1",
        regret="2.63·sqrt(T·K·ln K) against the best fixed arm (corollary 3.2)",
        assumes="nothing of the rewards but [0, 1]",
        fails="nothing; but the best fixed arm may earn far less than following the best one",
        otherwise="EXP3S against a sequence of arms; Thompson where clicks are stationary",
    )
    gamma: float = 0.1

    @classmethod
    def from_horizon(cls, arms: int | tuple[str, ...], horizon: int) -> Self:
        """Return the policy with the γ, at most 1, that corollary 3.2 recommends for ``horizon`` rounds."""
        count = cls(arms).arm_count
        rounds = checks.integer("horizon", horizon, 1)
        return cls(arms, min(1.0, math.sqrt(count * math.log(max(count, 2)) / ((math.e - 1) * rounds))))

    @staticmethod
    def learn(params: EXP3, state: ExponentialWeights, lane: int, outcome: Outcome) -> None:
        """Add the importance-weighted reward to the shown arm's log weight, and recompute its weight."""
        state.logs[lane, outcome.shown] += gain(params.gamma, outcome)
        reweigh(state, lane, outcome.shown)
