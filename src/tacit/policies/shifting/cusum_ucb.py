"""CUSUM-UCB: restart an arm when its rewards drift from their first mean (Liu et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.ranges import Fraction, Positive, PositiveFraction, whole
from tacit.policies.base import About, Counts, Impression, Outcome, count
from tacit.policies.index import greedy_choice, greedy_propensity
from tacit.policies.shifting.detector import Detector


class DriftState(NamedTuple):
    """Counts since each arm's restart, and the two walks of each arm's test.

    Attributes
    ----------
    counts : Counts
        Plays and rewards since the arm's last restart; ``rounds`` sums the plays.
    baseline : array of float64, shape (lanes, arms)
        Mean of the first rewards, once there are enough of them.
    rise, fall : array of float64, shape (lanes, arms)
    restarts : array of int64, shape (lanes,)
    """

    counts: Counts
    baseline: Floats
    rise: Floats
    fall: Floats
    restarts: Ints


@kernel
def restart_arm(state: DriftState, lane: int, arm: int) -> None:
    """Forget what an arm has taught; its baseline is measured anew."""
    state.counts.rounds[lane] -= state.counts.plays[lane, arm]
    state.counts.plays[lane, arm] = 0.0
    state.counts.rewards[lane, arm] = 0.0
    state.rise[lane, arm] = 0.0
    state.fall[lane, arm] = 0.0
    state.restarts[lane] += 1


@dataclass(frozen=True)
class CUSUMUCB(Detector):
    """Play UCB, explore at random, and restart an arm when a two-sided CUSUM test says so.

    The first M rewards of an arm give its baseline. Each later reward r moves two walks that
    never go below 0: one by r − baseline − ε, the other by baseline − r − ε. When one of them
    reaches h the arm alone is restarted. Otherwise, with N the plays of an arm since its
    restart, μ their mean reward and n the plays of all arms since theirs, the index is
    μ + sqrt(ξ·ln n/N). With probability α an arm is shown uniformly at random instead, so that
    changes of the others are noticed.

    The restart of any arm opens a new epoch of the lane. A round costs O(1) but for the
    indices. A lane takes 40·arms + 16 bytes.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    samples : int, default 100
        The rewards M behind a baseline; at least 1. If the baseline is off by more than ε, which
        happens with a probability of some 2·exp(−2·M·ε²), an alarm is only a matter of time.
    epsilon : float, default 0.1
        The drift ε that is tolerated; in (0, 1). Half of the smallest change to be found.
    threshold : float, default 10
        The height h of an alarm; above 0. The default suits about one shift in 20 000 rounds;
        :meth:`tuned` gives the published value.
    alpha : float, default 0.02
        Probability α of a uniform choice, in [0, 1]. An arm of K that is not played otherwise gets
        α/K of the rounds: with 40 arms and the default one in 2000, so that its M rewards take
        200 000 rounds, and a change of it is found late.
    xi : float, default 1
        Scale ξ of the confidence radius; above 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Liu, Lee, Shroff (2018), "A change-detection based framework for piecewise-stationary
    multi-armed bandit problem", algorithms CD-UCB and CUSUM, and corollary 2. The paper itself was
    not at hand to check against: walks, restarts, h and α are those of two other implementations,
    of SMPyBandits and of the authors of GLR-klUCB.

    Examples
    --------
    >>> policy = CUSUMUCB.tuned(arms=5, horizon=100_000, shifts=5)
    >>> round(policy.threshold, 2), round(policy.alpha, 4)
    (9.9, 0.0223)
    """

    class Params(NamedTuple):
        samples: int
        epsilon: float
        threshold: float
        alpha: float
        xi: float

    about: ClassVar[About] = About(
        source="Liu, Lee, Shroff (2018), CUSUM-UCB",
        regret="O(sqrt(Υ·T·ln(T/Υ))) with Υ shifts in T rounds, tuned (corollary 2)",
        assumes="changes of at least 2ε, with more than M plays of every arm between them",
        fails="smaller changes go unnoticed, and sooner ones fall into the baseline",
        otherwise="GLRKLUCB, which needs no size of a change and no baseline",
    )
    randomized: ClassVar[bool] = True

    samples: Annotated[int, whole(1, 2**31)] = 100
    epsilon: PositiveFraction = 0.1
    threshold: Positive = 10.0
    alpha: Fraction = 0.02
    xi: Positive = 1.0

    @classmethod
    def tuned(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with h = ln(T/Υ) and α = sqrt(Υ/T·ln(T/Υ)).

        These are the published orders with their constants, which depend on M and ε, set to 1,
        as is usual in experiments; M and ε keep their defaults. Corollary 2 has the number of arms
        as a factor of α besides, which experiments leave out: with many arms α is too small to
        find changes of arms that are hardly played.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Rounds T of a key; at least 2.
        shifts : int
            How often, Υ, its click probabilities change in them; from 1 to half of the rounds.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        rounds = checks.integer("horizon", horizon, 2)
        ratio = rounds / checks.integer("shifts", shifts, 1, rounds // 2)
        return cls(arms, threshold=math.log(ratio), alpha=math.sqrt(math.log(ratio) / ratio))

    def init(self, lanes: int) -> DriftState:
        shape = (lanes, self.arm_count)
        return DriftState(
            Counts.zeros(*shape), np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(lanes, np.int64)
        )

    @staticmethod
    def confidence(params: Params, state: DriftState, lane: int) -> float:
        return float(np.sqrt(params.xi * np.log(max(state.counts.rounds[lane], 1.0))))

    @staticmethod
    def choose(params: Params, state: DriftState, lane: int, impression: Impression, rng: Generator) -> int:
        if rng.random() < params.alpha:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        return greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(params: Params, state: DriftState, lane: int, impression: Impression, arm: int) -> float:
        greedy = greedy_propensity(params, state, lane, impression, arm)
        return float(params.alpha / len(impression.arms) + (1.0 - params.alpha) * greedy)

    @staticmethod
    def learn(params: Params, state: DriftState, lane: int, outcome: Outcome) -> None:
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        plays = state.counts.plays[lane, arm]
        if plays == params.samples:
            state.baseline[lane, arm] = state.counts.rewards[lane, arm] / plays
        elif plays > params.samples:
            drift = outcome.reward - state.baseline[lane, arm]
            rise = max(0.0, state.rise[lane, arm] + drift - params.epsilon)
            fall = max(0.0, state.fall[lane, arm] - drift - params.epsilon)
            state.rise[lane, arm] = rise
            state.fall[lane, arm] = fall
            if max(rise, fall) >= params.threshold:
                restart_arm(state, lane, arm)
