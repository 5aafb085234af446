"""Index policies: rank the arms by a number each, play the highest."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tacit.core import dispatch
from tacit.core.arrays import Generator
from tacit.core.dispatch import confidence, index, kernel
from tacit.policies.base import ArmBeliefs, Counts, Impression, Outcome, Policy, count, forget, uncount
from tacit.policies.known import TellsArms


@kernel
def greedy_choice(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    """Return the offered arm of the highest index; ties are broken uniformly at random."""
    shared = confidence(params, state, lane)
    best, leader, ties = -math.inf, -1, 0.0
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        score = index(params, state, lane, arm, shared)
        if score > best:
            best, leader, ties = score, arm, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = arm
    return leader


@kernel
def greedy_propensity(params: Any, state: Any, lane: int, impression: Impression, shown: int) -> float:
    """Return the probability of ``greedy_choice`` returning that: 0, 1, or a share of a tie."""
    shared = confidence(params, state, lane)
    best, ties = -math.inf, 0.0
    for offered in impression.arms:
        score = index(params, state, lane, offered, shared)
        if score > best:
            best, ties = score, 1.0
        elif score == best:
            ties += 1.0
    return 1.0 / ties if index(params, state, lane, shown, shared) == best else 0.0


class IndexPolicy(Policy):
    """Base of the policies that play the arm of the highest index; ties are broken at random.

    A subclass gives the kernels ``confidence(params, state, lane)``, computed once a round, and
    ``index(params, state, lane, arm, confidence)``, computed for each arm; and ``learn``.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.INDEX_KERNELS
    randomized: ClassVar[bool] = False

    @staticmethod
    def confidence(params: Any, state: Any, lane: int) -> float:
        """Return what the indices of a lane's arms have in common; by default nothing."""
        return 0.0

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        """Return the number by which ``arm`` is ranked."""
        raise NotImplementedError

    choose = staticmethod(greedy_choice)
    propensity = staticmethod(greedy_propensity)


class CountingPolicy(TellsArms, IndexPolicy):
    """Base of the index policies that keep plays and rewards per arm, and nothing else.

    One with the field ``priors`` begins each key as if it had been shown so often before.
    """

    def init(self, lanes: int) -> Counts:
        state = Counts.zeros(lanes, self.arm_count)
        if len(self.priors):
            plays = self.known.sum(axis=1)
            state.plays[:], state.rewards[:], state.rounds[:] = plays, self.known[:, 0], plays.sum()
        return state

    @staticmethod
    def learn(params: Any, state: Counts, lane: int, outcome: Outcome) -> None:
        count(state, lane, outcome.shown, outcome.reward)

    @staticmethod
    def unlearn(params: Any, state: Counts, lane: int, outcome: Outcome) -> None:
        uncount(state, lane, outcome.shown, outcome.reward)

    @property
    def forgets(self) -> bool:
        return type(self).epoch is not Policy.epoch

    def beliefs(self, state: Counts, lane: int) -> ArmBeliefs:
        """Return what its counts say of the arms."""
        return ArmBeliefs.of_counts(state.plays[lane], state.rewards[lane])

    @staticmethod
    def restart(params: Any, state: Counts, lane: int) -> None:
        forget(state, lane)

    @staticmethod
    def estimate(params: Any, state: Counts, lane: int, arm: int) -> float:
        plays = state.plays[lane, arm]
        return float(state.rewards[lane, arm] / plays) if plays > 0.0 else 0.0
