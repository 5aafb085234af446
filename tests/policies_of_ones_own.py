"""Policies as a user would write them, in a file of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit


@dataclass(frozen=True)
class ExploreThenCommit(tacit.Policy):
    """Play each arm ``tries`` times in turn, then the best of them for ever."""

    class Params(NamedTuple):
        tries: int

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
    def learn(params, state, lane, impression, arm, reward, propensity):
        state.plays[lane, arm] += 1
        state.rewards[lane, arm] += reward


@dataclass(frozen=True)
class Forgetful(tacit.Policy):
    """Choose uniformly and restart the lane after every ``patience`` rewards."""

    class Params(NamedTuple):
        patience: int

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
    def learn(params, state, lane, impression, arm, reward, propensity):
        state.rewards[lane] += 1
        if state.rewards[lane] == params.patience:
            state.rewards[lane] = 0
            state.restarts[lane] += 1

    @staticmethod
    def epoch(params, state, lane):
        return state.restarts[lane]
