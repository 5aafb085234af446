"""Policies over items known by vectors that compile fast, for tests of what is around such policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import tacit
from tacit.policies.features.embedding_mixture import EmbeddingPolicy
from tacit.policies.lists.one_draw import LinePolicy, Lines


class Taste(NamedTuple):
    """What each number of an item has earned."""

    earned: np.ndarray


@tacit.kernel
def liking(state, lane, item):
    found = 0.0
    for i in range(len(item)):
        found += state.earned[lane, i] * item[i]
    return found


@tacit.kernel
def weight_of(state, lane, item):
    return 0.1 + 1.0 / (1.0 + np.exp(-liking(state, lane, item)))


@tacit.kernel
def taste(state, lane, item, reward):
    for i in range(len(item)):
        state.earned[lane, i] += 0.1 * (reward - 0.4) * item[i]


@tacit.kernel
def place_among(arms, arm):
    for i in range(len(arms)):
        if arms[i] == arm:
            return i
    return -1


@dataclass(frozen=True)
class LikedItems(EmbeddingPolicy):
    """Show an item the more often, the more its numbers have earned."""

    State = Taste

    def init(self, lanes):
        return Taste(np.zeros((lanes, self.relevance_dim)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        arms, items, whole = impression.arms, impression.relevance, 0.0
        for i in range(len(arms)):
            whole += weight_of(state, lane, items[i])
        left = rng.random() * whole
        for i in range(len(arms) - 1):
            left -= weight_of(state, lane, items[i])
            if left < 0.0:
                return arms[i]
        return arms[len(arms) - 1]

    @staticmethod
    def propensity(params, state, lane, impression, arm):
        own, whole = 0.0, 0.0
        for i in range(len(impression.arms)):
            weight = weight_of(state, lane, impression.relevance[i])
            whole += weight
            if impression.arms[i] == arm:
                own = weight
        return own / whole

    @staticmethod
    def learn(params, state, lane, outcome):
        impression = outcome.impression
        taste(state, lane, impression.relevance[place_among(impression.arms, outcome.shown)], outcome.reward)


@dataclass(frozen=True)
class LikedLists(LinePolicy, EmbeddingPolicy):
    """List the items whose numbers have earned most, or those of one draw with what they are wide by."""

    State = Taste
    arms: Any = field(default=None, init=False, repr=False, compare=False)

    def init(self, lanes):
        return Taste(np.zeros((lanes, self.relevance_dim)))

    @staticmethod
    def arrange(params, state, lane, impression):
        count = len(impression.arms)
        mean, spread = np.zeros(count), np.zeros(count)
        for i in range(count):
            mean[i] = liking(state, lane, impression.relevance[i])
            spread[i] = 0.1 + 0.05 * i
        return Lines(mean, spread, np.arange(count))

    @staticmethod
    def clear(params, state, lane):
        pass

    @staticmethod
    def learn(params, state, lane, outcome):
        impression = outcome.impression
        for k in range(len(outcome.shown)):
            at = place_among(impression.arms, outcome.shown[k])
            if at >= 0:
                taste(state, lane, impression.relevance[at], outcome.reward[k])
