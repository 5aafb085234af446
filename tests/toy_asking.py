"""Policies that read who is asking and know arms by name, of each thing to show: what somebody may write.

Each keeps what it learned apart for contexts above 0 and for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit
from tacit.core.dispatch import kernel
from tacit.policies.actions import DuelPolicy
from tacit.policies.lists.one_draw import Lines
from tacit.policies.lists.user_models import update_beliefs

LUCK = 0.4
"""How often what is shown is drawn uniformly."""


class Counts(NamedTuple):
    """Rewards of each arm, for contexts above 0 and for others: arrays of shape (lanes, 2, arms)."""

    plays: np.ndarray
    rewards: np.ndarray


@kernel
def best(state: Counts, lane: int, impression: tacit.Impression) -> int:
    """Return the arm on offer of the highest mean for who is asking; the first of them."""
    side, leader, highest = int(impression.context[0] > 0), -1, -1.0
    for arm in impression.arms:
        mean = state.rewards[lane, side, arm] / (state.plays[lane, side, arm] + 1.0)
        if mean > highest:
            leader, highest = arm, mean
    return leader


class Asking:
    """What the policies of an arm and of a duel have in common."""

    @property
    def context_dim(self):
        return 1

    def init(self, lanes):
        shape = lanes, 2, self.arm_count
        return Counts(np.zeros(shape), np.zeros(shape))


@dataclass(frozen=True)
class AskingArm(Asking, tacit.Policy):
    """Show the best for who is asking, now and then any."""

    @staticmethod
    def choose(params, state, lane, impression, rng):
        if rng.random() < LUCK:
            return impression.arms[int(rng.random() * len(impression.arms))]
        return best(state, lane, impression)

    @staticmethod
    def propensity(params, state, lane, impression, arm):
        leads = 1.0 if arm == best(state, lane, impression) else 0.0
        return LUCK / len(impression.arms) + (1.0 - LUCK) * leads

    @staticmethod
    def learn(params, state, lane, outcome):
        side = int(outcome.impression.context[0] > 0)
        state.plays[lane, side, outcome.shown] += 1.0
        state.rewards[lane, side, outcome.shown] += outcome.reward


@dataclass(frozen=True)
class AskingDuel(Asking, DuelPolicy):
    """Let the best for who is asking, or now and then any, meet any at its right."""

    @staticmethod
    def choose(params, state, lane, impression, rng):
        arms = impression.arms
        right = arms[int(rng.random() * len(arms))]
        if rng.random() < LUCK:
            return arms[int(rng.random() * len(arms))], right
        return best(state, lane, impression), right

    @staticmethod
    def propensity(params, state, lane, impression, pair):
        leads = 1.0 if pair[0] == best(state, lane, impression) else 0.0
        return (LUCK / len(impression.arms) + (1.0 - LUCK) * leads) / len(impression.arms)

    @staticmethod
    def learn(params, state, lane, outcome):
        side = int(outcome.impression.context[0] > 0)
        left, right = outcome.shown
        state.plays[lane, side, left] += 1.0
        state.plays[lane, side, right] += 1.0
        state.rewards[lane, side, left] += outcome.reward
        state.rewards[lane, side, right] += 1.0 - outcome.reward


@dataclass(frozen=True)
class AskingList(tacit.ListMix):
    """List what is believed to be best; for contexts above 0 what is believed to be worst."""

    # Nobody is told to use it.
    about = tacit.ListMix.about._replace(suits="")

    @property
    def context_dim(self):
        return 1

    @staticmethod
    def arrange(params, state, lane, impression):
        update_beliefs(state, lane, impression.arms, params.doubt)
        if impression.context[0] > 0:
            for arm in impression.arms:
                state.mean[lane, arm] = 1.0 - state.mean[lane, arm]
        return Lines(state.mean[lane], state.spread[lane], state.rank[lane])
