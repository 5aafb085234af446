"""Something new to show that is no part of the package: a set, whose order says nothing.

All of it is here: the record of what is shown, a policy, users who see every item, and placements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tacit
from tacit.policies.action_kind import ActionKind
from tacit.policies.actions import SlatePolicy
from tacit.service.http import slates

SHOWS = ActionKind("set", listed=True)


@dataclass(frozen=True)
class Basket(SlatePolicy):
    """Show the arms with the most clicks an impression, each with some luck besides."""

    shows: ClassVar[str] = "set"

    class Params(NamedTuple):
        positions: int

    class State(NamedTuple):
        plays: np.ndarray
        clicks: np.ndarray

    positions: int = 2

    @property
    def knows_propensity(self) -> bool:
        return False

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)), np.zeros((lanes, self.arm_count)))

    @staticmethod
    def decide(params, state, lane, impression, rng, action):
        scores = np.full(state.plays.shape[1], -1.0)
        for arm in impression.arms:
            luck = rng.random() / np.sqrt(state.plays[lane, arm] + 1.0)
            scores[arm] = luck + state.clicks[lane, arm] / (state.plays[lane, arm] + 1.0)
        action[:] = -1
        best = np.argsort(-scores)[: min(len(action), len(impression.arms))]
        # In the order of their slots, as a set has none of its own.
        action[: len(best)] = np.sort(best)

    @staticmethod
    def learn(params, state, lane, outcome):
        for k in range(len(outcome.shown)):
            if outcome.shown[k] >= 0:
                state.plays[lane, outcome.shown[k]] += 1.0
                state.clicks[lane, outcome.shown[k]] += outcome.reward[k]


@dataclass(frozen=True)
class Shelf(tacit.environments.CascadeArms):
    """Users who look at all that is shown, and click whatever attracts them."""

    takes: ClassVar[str] = "set"

    @staticmethod
    def react(params, world, lane, shown, feedback):
        for k in range(len(shown)):
            feedback[k] = 0.0
            if shown[k] >= 0 and world.uniforms[shown[k]] < world.attraction[shown[k]]:
                feedback[k] = 1.0


class SetsTable(slates.SlatesTable, forbid_unknown_fields=True, kw_only=True):
    """Shows several of its arms, in no order."""

    policy: Any = "toy_set:Basket"


KIND = replace(slates.KIND, name="sets", shows="set", table=SetsTable)
