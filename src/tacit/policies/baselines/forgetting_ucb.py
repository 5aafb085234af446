"""Policies that forget: D-UCB discounts its counts, SW-UCB counts a window, EXP3.S shares weight."""

# 1. D-UCB discounts all counts each round.
# 2. SW-UCB removes the oldest round from its counts.
# 3. EXP3.S shares a part of the weight among all arms.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.part import Positive, PositiveFraction, float_range, int_range
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.base import About, ArmBeliefs, Outcome
from tacit.policies.index import RadiusPolicy
from tacit.policies.stationary.chance import ExponentialWeights, ExponentialWeightsPolicy, gain, total_weight

# ---- D-UCB: optimism over discounted counts (Garivier, Moulines 2011)

HEAVIEST = 1e100
"""Weight of the latest round above which all weights are rescaled, so that it is 1 again."""


@dataclass(frozen=True)
class DiscountedUCB(RadiusPolicy):
    """Play the arm with the highest upper confidence bound over discounted counts.

    A round that is k rounds of its key old counts γ^k. With N the discounted plays of an arm, μ
    its discounted mean reward and n the discounted plays of all arms, its index is
    μ + 2·sqrt(ξ·ln n/N). Arms that were never played come first.

    The defaults suit few arms. Played equally often, K arms have 1/(K·(1 − γ)) discounted plays
    each; with the defaults and 40 arms that is 12, the radius 2·sqrt(0.6·ln 500/12) is above 1,
    and arms are played almost uniformly. With many arms take a longer memory and a smaller ξ: on
    the 40 arms of ``python -m studies search-interest`` γ = 0.9999 and ξ = 0.01 did best of those
    tried.

    The discount is applied lazily, by a growing weight of new rounds: a round costs O(1) apart from
    the indices, and only counts below the smallest number are lost. A lane takes
    16·arms + 16 bytes.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    discount : float, default 0.998
        The factor γ, in [0.5, 1]; the memory is 1/(1 − γ) rounds. The default suits about one
        shift in 20 000 rounds; :meth:`from_horizon` sets the published value.
    xi : float, default 0.6
        Scale ξ of the confidence radius; above 0, and above 1/2 for the regret bound to hold.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Garivier, Moulines (2011), "On upper-confidence bound policies for switching bandit
    problems", theorem 1, with rewards in [0, 1], so B = 1. The paper itself was not available for
    checking: radius and γ are those of other implementations, among them that of the authors
    of GLR-klUCB (which has KL-UCB's index in the place of the radius).

    Examples
    --------
    >>> DiscountedUCB.from_horizon(arms=5, horizon=40_000, shifts=4).discount
    0.9975
    """

    class State(NamedTuple):
        plays: Floats  # (lanes, arms) in units of the weight
        rewards: Floats  # (lanes, arms) in units of the weight
        total: Floats  # (lanes,) discounted plays of all arms
        weight: Floats  # (lanes,) weight of the latest round

    about: ClassVar[About] = About(
        source="Garivier, Moulines (2011), D-UCB",
        regret="O(K·sqrt(Υ·T)·ln T) with Υ shifts in T rounds, tuned (theorem 1)",
        assumes="click probabilities that change at rounds few enough to be known in number",
        fails="re-learns for ever what has not changed, or follows late",
        otherwise="SlidingWindowUCB, which is close; GLRKLUCB, which forgets only at a shift",
    )

    discount: Annotated[float, float_range(0.5, 1.0)] = 0.998
    xi: Positive = 0.6

    @classmethod
    def from_horizon(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with the published γ = 1 − sqrt(shifts/horizon)/4.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Number of rounds of a key; at least 2.
        shifts : int
            Number of changes of the click probabilities in the horizon; from 1 to half of the rounds.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        rounds = checks.integer("horizon", horizon, 2)
        changes = checks.integer("shifts", shifts, 1, rounds // 2)
        return cls(arms, discount=1.0 - math.sqrt(changes / rounds) / 4.0)

    def init(self, lanes: int) -> State:
        """Return zero discounted counts, and a weight of 1 for the next round, for each lane."""
        shape = (lanes, self.arm_count)
        return self.State(np.zeros(shape), np.zeros(shape), np.zeros(lanes), np.ones(lanes))

    @staticmethod
    def confidence(params: DiscountedUCB, state: State, lane: int) -> float:
        """Return 2·sqrt(ξ·w·ln n), by which the index of ``RadiusPolicy`` becomes μ + 2·sqrt(ξ·ln n/N).

        n are the discounted plays of all arms; w, the weight of the latest round, is the unit of the stored
        plays.
        """
        log_total = np.log(max(state.total[lane], 1.0))
        return float(2.0 * np.sqrt(params.xi * log_total * state.weight[lane]))

    @staticmethod
    def learn(params: DiscountedUCB, state: State, lane: int, outcome: Outcome) -> None:
        """Count the reward with a weight that grows by 1/discount each round, which discounts all earlier
        rounds.

        Before weights overflow, all counts are rescaled.
        """
        state.weight[lane] /= params.discount
        state.plays[lane, outcome.shown] += state.weight[lane]
        state.rewards[lane, outcome.shown] += state.weight[lane] * outcome.reward
        state.total[lane] = params.discount * state.total[lane] + 1.0
        if state.weight[lane] > HEAVIEST:
            for arm_index in range(state.plays.shape[1]):
                state.plays[lane, arm_index] /= state.weight[lane]
                state.rewards[lane, arm_index] /= state.weight[lane]
            state.weight[lane] = 1.0


# ---- SW-UCB: optimism over the latest rounds alone (Garivier, Moulines 2011)


@dataclass(frozen=True)
class SlidingWindowUCB(RadiusPolicy):
    """Play the arm with the highest upper confidence bound over the last τ rounds.

    With N the plays of an arm among the last τ rounds of the key, μ its mean reward in them and
    t the rounds so far, its index is μ + sqrt(ξ·ln(min(t, τ))/N). Arms that were not played in
    the window come first.

    The defaults suit few arms: with 40, played equally often, each has 25 plays in the window, and
    the radius sqrt(0.6·ln 1000/25) = 0.41 hides most gaps between click rates. With many arms take
    a longer window and a smaller ξ: on the 40 arms of ``python -m studies search-interest`` a window
    of 10 000 rounds and ξ = 0.02 did best of those tried.

    A round costs O(1) apart from the indices. A lane takes 8·window + 16·arms + 8 bytes: rewards
    are stored, and counted, in single precision, so that a window of clicks is summed exactly.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    window : int, default 1000
        Length τ of the window, in rounds; at least 2. The default suits about one shift in
        20 000 rounds; :meth:`from_horizon` sets the published value.
    xi : float, default 0.6
        Scale ξ of the confidence radius; above 0, and above 1/2 for the regret bound to hold.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Garivier, Moulines (2011), "On upper-confidence bound policies for switching bandit
    problems", theorem 2, with rewards in [0, 1], so B = 1. The paper itself was not available for
    checking: radius and τ are those of other implementations, among them that of the authors
    of GLR-klUCB (which has KL-UCB's index in the place of the radius).

    Examples
    --------
    >>> SlidingWindowUCB.from_horizon(arms=5, horizon=100_000, shifts=5).window
    960
    """

    class State(NamedTuple):
        recent_arms: Annotated[npt.NDArray[np.int32], ValueRange(0, -1, "arms")]  # (lanes, window) a ring
        recent_rewards: npt.NDArray[np.float32]  # (lanes, window) a ring
        plays: Floats  # (lanes, arms) in the window
        rewards: Floats  # (lanes, arms) in the window
        rounds: IntCount  # (lanes,) so far

    about: ClassVar[About] = About(
        source="Garivier, Moulines (2011), SW-UCB",
        regret="O(K·sqrt(Υ·T·ln T)) with Υ shifts in T rounds, tuned (theorem 2)",
        assumes="click probabilities that change at rounds few enough to be known in number",
        fails="re-learns for ever what has not changed, or follows late",
        otherwise="DiscountedUCB, where memory is scarce; GLRKLUCB, which forgets only at a shift",
    )

    window: Annotated[int, int_range(2, 2**31)] = 1000
    xi: Positive = 0.6

    @classmethod
    def from_horizon(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with the published τ = 2·sqrt(horizon·ln(horizon)/shifts).

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Number of rounds of a key; at least 2.
        shifts : int
            Number of changes of the click probabilities in the horizon; from 1 to half of the rounds.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        rounds = checks.integer("horizon", horizon, 2)
        changes = checks.integer("shifts", shifts, 1, rounds // 2)
        return cls(arms, window=math.ceil(2.0 * math.sqrt(rounds * math.log(rounds) / changes)))

    def init(self, lanes: int) -> State:
        """Return an empty window and zero counts for each lane."""
        shape, ring = (lanes, self.arm_count), (lanes, self.window)
        return self.State(
            np.zeros(ring, np.int32),
            np.zeros(ring, np.float32),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(lanes, np.int64),
        )

    def beliefs(self, state: State, lane: int) -> ArmBeliefs:
        """Return a key's posteriors of the arms' mean rewards, from the counts of the window."""
        return ArmBeliefs.from_counts(state.plays[lane], state.rewards[lane])

    @staticmethod
    def confidence(params: SlidingWindowUCB, state: State, lane: int) -> float:
        """Return sqrt(ξ·ln(min(t, τ))) in round t; an arm's radius is this over the root of its plays in the
        window.
        """
        window_rounds = min(max(state.rounds[lane], 1), params.window)
        return float(np.sqrt(params.xi * np.log(window_rounds)))

    @staticmethod
    def learn(params: SlidingWindowUCB, state: State, lane: int, outcome: Outcome) -> None:
        """Count the reward; if the window is full, remove its oldest round from the counts first."""
        arm = outcome.shown
        at = state.rounds[lane] % params.window
        if state.rounds[lane] >= params.window:
            oldest = state.recent_arms[lane, at]
            state.plays[lane, oldest] -= 1.0
            state.rewards[lane, oldest] -= state.recent_rewards[lane, at]
        state.recent_arms[lane, at] = arm
        state.recent_rewards[lane, at] = outcome.reward
        state.plays[lane, arm] += 1.0
        state.rewards[lane, arm] += state.recent_rewards[lane, at]
        state.rounds[lane] += 1


# ---- EXP3.S: exponential weights that follow a changing best arm (Auer et al. 2002)

LEAST_WEIGHT = 1e-300
"""Least weight of an arm, where the weight of the last played arm is 1."""


@dataclass(frozen=True)
class EXP3S(ExponentialWeightsPolicy):
    """EXP3 that also shares weight among all arms, so that it can follow a changing best arm.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    gamma : float, default 0.1
        Share of uniform exploration, in (0, 1].
    alpha : float, default 1e-4
        Share of the total weight given to every arm each round, in (0, 1].

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Auer, Cesa-Bianchi, Freund, Schapire (2002), "The nonstochastic multiarmed bandit problem",
    figure 4 and corollary 8.3.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.baselines.EXP3S.from_horizon(arms=5, horizon=30_000, shifts=10)
    >>> round(policy.gamma, 4), policy.alpha == 1 / 30_000
    (0.1087, True)
    """

    about: ClassVar[About] = About(
        source="Auer, Cesa-Bianchi, Freund, Schapire (2002), figure 4",
        regret="O(sqrt(S·K·T·ln(K·T))) against any S arms in sequence (corollary 8.3)",
        assumes="nothing of the rewards but [0, 1]; tuning wants T and S",
        fails="nothing; but with wrong T and S it explores too much or follows late",
        otherwise="Thompson with a discount; both adapt without knowing when intent shifts",
    )
    gamma: float = 0.1
    alpha: PositiveFraction = 1e-4

    @classmethod
    def from_horizon(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with α and γ of corollary 8.3, for ``shifts`` changes of the best arm in
        ``horizon`` rounds.

        Raises InvalidValue if one of them is not a whole number of at least 1.
        """
        k = cls(arms).arm_count
        t = checks.integer("horizon", horizon, 1)
        s = checks.integer("shifts", shifts, 1)
        gamma = math.sqrt(k * (s * math.log(k * t) + math.e) / ((math.e - 1) * t))
        return cls(arms, min(1.0, gamma), 1.0 / t)

    @staticmethod
    def learn(params: EXP3S, state: ExponentialWeights, lane: int, outcome: Outcome) -> None:
        """Multiply the shown arm's weight by the exponential of its gain; give each arm on offer a share of
        all weight.

        Large weights of a lane are rescaled.
        """
        arms, arm = outcome.impression.arms, outcome.shown
        # The shared weight keeps every weight above e·α/K of the total, and a gain is bounded: weights need
        # not be stored as logarithms.
        shared = math.e * params.alpha / len(arms) * total_weight(state, lane, outcome.impression)
        state.weights[lane, arm] *= np.exp(gain(params.gamma, outcome))
        for i in range(len(arms)):
            state.weights[lane, arms[i]] += shared
        if state.weights[lane, arm] > 1e200:
            scale = 1.0 / state.weights[lane, arm]
            for arm_index in range(state.weights.shape[1]):
                # An arm that was not on offer for long stays above 0, so that its weight can grow again.
                state.weights[lane, arm_index] = max(scale * state.weights[lane, arm_index], LEAST_WEIGHT)
