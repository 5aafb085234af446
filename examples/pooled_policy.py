"""A policy of one's own whose keys learn together: a new key expects of an arm what all keys have got of it.

An array whose leading axis is always 1 belongs to all keys. ``sums`` names those that shards add up.

python examples/pooled_policy.py
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit


class Pool(NamedTuple):  # what all keys share: arrays with a leading axis of 1
    plays: np.ndarray
    rewards: np.ndarray


@dataclass(frozen=True)
class PooledUCB(tacit.policies.IndexPolicy):
    class State(NamedTuple):
        plays: np.ndarray
        rewards: np.ndarray
        shared: Pool

    sums = ("shared.plays", "shared.rewards")
    weight: float = 5.0

    def init(self, lanes):
        own, every = (lanes, self.arm_count), (1, self.arm_count)
        return self.State(np.zeros(own), np.zeros(own), Pool(np.zeros(every), np.zeros(every)))

    @staticmethod
    def index(params, state, lane, arm, confidence):
        expected = (state.shared.rewards[0, arm] + 1) / (state.shared.plays[0, arm] + 2)
        plays = state.plays[lane, arm] + params.weight
        rewards = state.rewards[lane, arm] + params.weight * expected
        return rewards / plays + 0.5 / np.sqrt(plays)

    @staticmethod
    def learn(params, state, lane, outcome):
        arm, reward = outcome.shown, outcome.reward
        state.plays[lane, arm] += 1
        state.rewards[lane, arm] += reward
        state.shared.plays[0, arm] += 1
        state.shared.rewards[0, arm] += reward


learner = tacit.Learner(PooledUCB(2), seed=1)
for key in "abcdef":  # six keys are offered arm 1 alone, and it is clicked
    learner.learn(learner.choose(key, arms=[1]), 1.0)
print("new keys begin with:", *(learner.choose(key).arm for key in "ghij"))
print("what all keys share:", learner.state.shared.plays.tolist())
