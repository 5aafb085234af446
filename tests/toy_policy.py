"""A policy without chance: it plays each arm ``tries`` times in turn, then the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tacit.policies import Policy


@dataclass(frozen=True)
class InTurn(Policy):
    class State(NamedTuple):
        plays: np.ndarray
        rewards: np.ndarray

    tries: int = 2
    randomized = False

    def init(self, lanes):
        plays, rewards = np.zeros((2, lanes, self.arm_count))
        return self.State(plays, rewards)

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
