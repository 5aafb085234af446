"""EXP3: exponential weights for rewards that anyone may choose (Auer et al. 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import PositiveFraction
from tacit.policies.base import About, Impression, Outcome, Policy

MOST_GAIN = 2.5
"""What a reward adds to a log weight at most.

It is 1 at the smallest propensity that the policy itself can give, and 2 where half of the
decisions are a holdout's. Who logged a smaller one did not decide with it, and shall not outweigh
whatever comes after: 10⁻⁶ would add 50,000.
"""


class ExponentialWeights(NamedTuple):
    """Logarithms of the weights, and the weights themselves relative to exp(base).

    The logarithms are the truth; the relative weights save an exponential per arm and round
    and are computed anew from them before they could overflow.

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
        """Return equal weights."""
        return cls(np.zeros((lanes, arms)), np.ones((lanes, arms)), np.zeros(lanes))


@kernel
def total_weight(state: ExponentialWeights, lane: int, impression: Impression) -> float:
    """Return the sum of the offered arms' weights."""
    total = 0.0
    for i in range(len(impression.arms)):
        total += state.weights[lane, impression.arms[i]]
    return total


@kernel
def gain(gamma: float, outcome: Outcome) -> float:
    """Return what an outcome adds to a log weight: nothing where no propensity is known."""
    if not outcome.propensity > 0.0:
        return 0.0
    weighed = gamma * outcome.reward / (outcome.propensity * len(outcome.impression.arms))
    return float(min(weighed, MOST_GAIN))


@kernel
def reweigh(state: ExponentialWeights, lane: int, arm: int) -> None:
    """Bring an arm's weight in line with its logarithm, moving the base if it grew too far."""
    if state.logs[lane, arm] - state.base[lane] > 200.0:
        state.base[lane] = state.logs[lane, arm]
        for other in range(state.logs.shape[1]):
            state.weights[lane, other] = np.exp(state.logs[lane, other] - state.base[lane])
    state.weights[lane, arm] = np.exp(state.logs[lane, arm] - state.base[lane])


@kernel
def mixed_choice(
    gamma: float, state: ExponentialWeights, lane: int, impression: Impression, rng: Generator
) -> int:
    """Draw an arm: uniform with probability γ, else in proportion to the weights."""
    arms = impression.arms
    last = len(arms) - 1
    u = rng.random()
    total = total_weight(state, lane, impression)
    if u < gamma or total == 0.0:
        uniform = u / gamma if u < gamma else (u - gamma) / (1.0 - gamma)
        return int(arms[min(int(uniform * len(arms)), last)])
    left = (u - gamma) / (1.0 - gamma) * total
    for i in range(last):
        left -= state.weights[lane, arms[i]]
        if left < 0.0:
            return int(arms[i])
    return int(arms[last])


@kernel
def mixed_propensity(
    gamma: float, state: ExponentialWeights, lane: int, impression: Impression, arm: int
) -> float:
    """Return the probability with which ``mixed_choice`` returns ``arm``."""
    total = total_weight(state, lane, impression)
    uniform = 1.0 / len(impression.arms)
    # Only a few arms may be on offer, and all of them may be negligible beside the others.
    share = state.weights[lane, arm] / total if total > 0.0 else uniform
    return float((1.0 - gamma) * share + gamma * uniform)


class ExponentialWeightsPolicy(Policy, abstract=True):
    """Base of the policies that mix uniform choice, at a rate γ, with exponential weights."""

    learns_from_propensity: ClassVar[bool] = True

    gamma: PositiveFraction

    @property
    def least_share(self) -> float:
        return self.gamma

    def init(self, lanes: int) -> ExponentialWeights:
        return ExponentialWeights.equal(lanes, self.arm_count)

    def enrol(self, state: ExponentialWeights, lanes: int, known: int) -> None:
        # What an arm would have earned so far nobody knows: as much as the others, on average.
        mean = state.weights[:lanes, :known].mean(axis=1, keepdims=True)
        state.weights[:lanes, known:] = mean
        state.logs[:lanes, known:] = state.base[:lanes, None] + np.log(mean)

    @staticmethod
    def choose(
        params: Any, state: ExponentialWeights, lane: int, impression: Impression, rng: Generator
    ) -> int:
        return mixed_choice(params.gamma, state, lane, impression, rng)

    @staticmethod
    def propensity(
        params: Any, state: ExponentialWeights, lane: int, impression: Impression, arm: int
    ) -> float:
        return mixed_propensity(params.gamma, state, lane, impression, arm)


@dataclass(frozen=True)
class EXP3(ExponentialWeightsPolicy):
    """Draw arms in proportion to exponential weights of their importance-weighted rewards.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    gamma : float, default 0.1
        Share of uniform exploration, in (0, 1]; :meth:`tuned` gives the published value.

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
    >>> round(tacit.EXP3.tuned(arms=5, horizon=100_000).gamma, 5)
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
    def tuned(cls, arms: int | tuple[str, ...], horizon: int) -> Self:
        """Return the policy with γ of corollary 3.2 for a total reward of at most ``horizon``."""
        count = cls(arms).arm_count
        rounds = checks.integer("horizon", horizon, 1)
        return cls(arms, min(1.0, math.sqrt(count * math.log(max(count, 2)) / ((math.e - 1) * rounds))))

    @staticmethod
    def learn(params: EXP3, state: ExponentialWeights, lane: int, outcome: Outcome) -> None:
        state.logs[lane, outcome.shown] += gain(params.gamma, outcome)
        reweigh(state, lane, outcome.shown)
