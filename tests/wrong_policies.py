"""A right policy, and the same made wrong in each way that a check must catch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit


class Counts(NamedTuple):
    plays: np.ndarray
    rewards: np.ndarray


def softmax(params, state, lane, impression, arm):
    """Return with what probability an arm is chosen: more, the better it was."""
    total = share = 0.0
    for other in impression.arms:
        weight = np.exp((state.rewards[lane, other] + 0.5) / (state.plays[lane, other] + 1.0))
        total += weight
        if other == arm:
            share = weight
    return share / total


tacit.kernel(softmax)


@dataclass(frozen=True)
class Right(tacit.Policy):
    """Choose by a softmax of the means; what is wrong with it is below."""

    State = Counts
    tries: int = 10

    def init(self, lanes):
        shape = (lanes, self.arm_count)
        return self.State(np.zeros(shape), np.zeros(shape))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        u = rng.random()
        for arm in impression.arms:
            u -= softmax(params, state, lane, impression, arm)
            if u < 0.0:
                return arm
        return impression.arms[-1]

    @staticmethod
    def propensity(params, state, lane, impression, shown):
        return softmax(params, state, lane, impression, shown)

    @staticmethod
    def learn(params, state, lane, outcome):
        state.plays[lane, outcome.shown] += 1.0
        state.rewards[lane, outcome.shown] += outcome.reward

    @staticmethod
    def unlearn(params, state, lane, outcome):
        state.plays[lane, outcome.shown] -= 1.0
        state.rewards[lane, outcome.shown] -= outcome.reward


class SamePropensity(Right):
    @staticmethod
    def propensity(params, state, lane, impression, shown):
        return 1.0 / len(impression.arms)


class TooMuchPropensity(Right):
    @staticmethod
    def propensity(params, state, lane, impression, shown):
        return 1.5 * softmax(params, state, lane, impression, shown)


class OneLaneForAll(Right):
    @staticmethod
    def learn(params, state, lane, outcome):
        state.plays[0, outcome.shown] += 1.0
        state.rewards[0, outcome.shown] += outcome.reward


class ReadsAnother(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        if state.plays[0, 0] + state.plays[0, 1] + state.plays[0, 2] > 5.0:
            return impression.arms[0]
        return impression.arms[int(rng.random() * len(impression.arms))]


class FirstOfTies(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        leader = impression.arms[0]
        for arm in impression.arms:
            if state.rewards[lane, arm] > state.rewards[lane, leader]:
                leader = arm
        return leader

    @staticmethod
    def propensity(params, state, lane, impression, shown):
        return np.nan


class NotOnOffer(FirstOfTies):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        return int(rng.random() * 3)


class Fraction(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        return rng.random()


class OutOfBounds(Right):
    @staticmethod
    def learn(params, state, lane, outcome):
        state.plays[lane, outcome.shown + 1] += 1.0


class WritesWhenItChooses(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        state.plays[lane, 0] += 1.0
        return impression.arms[int(rng.random() * len(impression.arms))]


class OtherChance(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        return impression.arms[int(np.random.random() * len(impression.arms))]  # noqa: NPY002


class TakesBackTooLittle(Right):
    @staticmethod
    def unlearn(params, state, lane, outcome):
        state.plays[lane, outcome.shown] -= 1.0


class NoNameForNumba(Right):
    @staticmethod
    def choose(params, state, lane, impression, rng):
        return impression.arms[rng.integers(3)]


@dataclass(frozen=True)
class NotInJSON(Right):
    weights: frozenset[int] = frozenset({1, 2})


class NoLaneAxis(Right):
    def init(self, lanes):
        return self.State(np.zeros((self.arm_count, 3)), np.zeros((lanes, self.arm_count)))


@dataclass(frozen=True)
class OfAnObject(Right):
    def choose(self, state, lane, impression, rng):
        return impression.arms[0]


@dataclass(frozen=True)
class Unwritten(tacit.Policy):
    def init(self, lanes):
        return Counts(np.zeros((lanes, self.arm_count)), np.zeros((lanes, self.arm_count)))


@dataclass(frozen=True, repr=False)
class KeepsWhatWasOpen(tacit.Thompson):
    """It goes on counting decisions as open that were learned since, and as those of one arm."""

    @staticmethod
    def count_open(params, state, lane, arm, hits, plays):
        state.open[lane, 2, 1] += abs(plays)
