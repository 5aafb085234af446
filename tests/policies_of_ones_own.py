"""Policies as a user would write them, in a file of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit


@dataclass(frozen=True)
class ExploreThenCommit(tacit.Policy):
    """Play each arm ``tries`` times in turn, then the best of them for ever."""

    class State(NamedTuple):
        plays: np.ndarray
        rewards: np.ndarray

    tries: int = 10

    def init(self, lanes):
        shape = (lanes, self.arm_count)
        return self.State(np.zeros(shape), np.zeros(shape))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        leader, best = impression.arms[0], -1.0
        for arm in impression.arms:
            if state.plays[lane, arm] < params.tries:
                return arm
            mean = state.rewards[lane, arm] / state.plays[lane, arm]
            if mean > best:
                leader, best = arm, mean
        return leader

    @staticmethod
    def learn(params, state, lane, outcome):
        state.plays[lane, outcome.shown] += 1
        state.rewards[lane, outcome.shown] += outcome.reward


@dataclass(frozen=True)
class InTurn(ExploreThenCommit):
    """The same, said to be without chance."""

    randomized = False


@dataclass(frozen=True)
class Forgetful(tacit.Policy):
    """Choose uniformly and restart the lane after every ``patience`` rewards."""

    class State(NamedTuple):
        rewards: np.ndarray
        restarts: np.ndarray

    patience: int = 3

    def init(self, lanes):
        return self.State(np.zeros(lanes), np.zeros(lanes, np.int64))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        return impression.arms[int(rng.random() * len(impression.arms))]

    @staticmethod
    def learn(params, state, lane, outcome):
        state.rewards[lane] += 1
        if state.rewards[lane] == params.patience:
            state.rewards[lane] = 0
            state.restarts[lane] += 1

    @staticmethod
    def epoch(params, state, lane):
        return state.restarts[lane]


class Pool(NamedTuple):
    """What the arms earned over all keys, and the prior of each that follows."""

    plays: np.ndarray
    rewards: np.ndarray
    prior: np.ndarray


@tacit.kernel
def fit_prior(pool):
    for arm in range(pool.plays.shape[1]):
        pool.prior[0, arm] = (pool.rewards[0, arm] + 1.0) / (pool.plays[0, arm] + 2.0)


@tacit.kernel
def pool_reward(pool, arm, reward, sign):
    pool.plays[0, arm] += sign
    pool.rewards[0, arm] += sign * reward
    fit_prior(pool)


@tacit.kernel
def pooled_leader(params, state, lane, arms):
    leader, best = arms[0], -1.0
    for arm in arms:
        plays = state.plays[lane, arm] + params.weight
        mean = (state.rewards[lane, arm] + params.weight * state.shared.prior[0, arm]) / plays
        if mean > best:
            leader, best = arm, mean
    return leader


@dataclass(frozen=True)
class Pooled(tacit.Policy):
    """Mostly show the best arm, where a new key expects of each arm what all keys got from it.

    How much its rewards differed from the prior of their moment tells the order of learning.
    """

    class State(NamedTuple):
        plays: np.ndarray
        rewards: np.ndarray
        surprise: np.ndarray
        shared: Pool

    sums = "shared.plays", "shared.rewards"
    weight: float = 4.0
    epsilon: float = 0.2

    def init(self, lanes):
        shape, pool = (lanes, self.arm_count), (1, self.arm_count)
        shared = Pool(np.zeros(pool), np.zeros(pool), np.full(pool, 0.5))
        return self.State(np.zeros(shape), np.zeros(shape), np.zeros(lanes), shared)

    @staticmethod
    def choose(params, state, lane, impression, rng):
        arms = impression.arms
        if rng.random() < params.epsilon:
            return arms[int(rng.random() * len(arms))]
        return pooled_leader(params, state, lane, arms)

    @staticmethod
    def propensity(params, state, lane, impression, arm):
        leads = pooled_leader(params, state, lane, impression.arms) == arm
        return params.epsilon / len(impression.arms) + (1.0 - params.epsilon) * leads

    @staticmethod
    def learn(params, state, lane, outcome):
        arm, reward = outcome.shown, outcome.reward
        state.plays[lane, arm] += 1.0
        state.rewards[lane, arm] += reward
        state.surprise[lane] += (reward - state.shared.prior[0, arm]) ** 2
        pool_reward(state.shared, arm, reward, 1.0)

    @staticmethod
    def unlearn(params, state, lane, outcome):
        arm = outcome.shown
        state.plays[lane, arm] -= 1.0
        state.rewards[lane, arm] -= outcome.reward
        pool_reward(state.shared, arm, outcome.reward, -1.0)

    @staticmethod
    def refit(params, state):
        fit_prior(state.shared)

    @staticmethod
    def restart(params, state, lane):
        state.plays[lane, :] = 0.0
        state.rewards[lane, :] = 0.0
        state.surprise[lane] = 0.0

    @staticmethod
    def estimate(params, state, lane, arm):
        plays = state.plays[lane, arm]
        return state.rewards[lane, arm] / plays if plays > 0.0 else 0.0


@dataclass(frozen=True)
class OfMyOwn(tacit.UniformRandom):
    c: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.c < 0:
            raise ValueError("c must not be below 0")
