"""Regret of policies that show lists of arms known by features: the table of docs/lists.md.

python benchmarks/lists.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import tacit
from tacit.core.dispatch import learn
from tacit.policies.base import Outcome
from tacit.policies.features.click_model import find_place
from tacit.policies.features.gaussian import clear, draw_gaussian, score_row, sigmoid

HORIZON, RUNS, SEED = 10_000, 24, 1


@dataclass(frozen=True)
class TopK(tacit.policies.ClickModel, tacit.policies.SlatePolicy):
    """LaplaceEC that lists the arms of the highest drawn click probabilities.

    Each position is an impression of its own to it, seen or not by its examination features
    alone, wherever it stands and whatever was clicked above.
    """

    class Params(NamedTuple):
        policy: tacit.policies.LaplaceEC.Params

    class State(NamedTuple):
        policy: tacit.policies.features.to_gaussian.Gaussian
        room: np.ndarray  # (lanes, positions)

    positions: int = 3

    @property
    def inner(self):
        return tacit.policies.LaplaceEC(self.relevance_dim, self.examination_dim)

    @property
    def params(self):
        return self.Params(self.inner.params)

    def init(self, lanes):
        return self.State(self.inner.init(lanes), np.zeros((lanes, self.positions)))

    @staticmethod
    def decide(params, state, lane, impression, rng, action):
        room, best, split = state.policy.room[lane], state.room[lane], params.policy.split
        draw_gaussian(state.policy.mean[lane], state.policy.root[lane], 1.0, rng, room[0], room[1])
        for k in range(len(action)):
            action[k], best[k] = -1, -1.0
        for i in range(len(impression.arms)):
            chance = sigmoid(score_row(impression.relevance[i], room[1, :split]))
            chance *= sigmoid(score_row(impression.examination[i], room[1, split:]))
            arm = impression.arms[i]
            for k in range(len(action)):
                if chance > best[k]:
                    action[k], arm = arm, action[k]
                    best[k], chance = chance, best[k]
        for k in range(len(action)):
            best[k] = 0.0
        clear(room)

    @staticmethod
    def learn(params, state, lane, outcome):
        impression, action = outcome.impression, outcome.shown
        for k in range(len(action)):
            if action[k] >= 0:
                place = find_place(impression.arms, action[k])
                arm = impression.arms[place]
                one = Outcome(impression, arm, outcome.reward[k], 1.0)
                learn(params.policy, state.policy, lane, one)


def table(scale: float, pool: int, constants: tuple[float, ...]) -> None:
    """Print mean and standard error of the regret of each policy."""
    environment = tacit.environments.ContextualCascade(
        scale=scale, pool=pool, position_constants=constants, identified=True
    )
    policies = {
        "CascadeEC": tacit.policies.CascadeEC(5, 5),
        "LaplaceEC, best three": TopK(5, 5),
        "CascadeKLUCB": tacit.policies.CascadeKLUCB(pool),
        "CascadeKLUCB(c=0)": tacit.policies.CascadeKLUCB(pool, c=0.0),
        "RankedBandit(KLUCB)": tacit.policies.baselines.RankedBandit(tacit.KLUCB(pool)),
        "RankedBandit(EXP3)": tacit.policies.baselines.RankedBandit(tacit.policies.EXP3(pool)),
    }
    result = tacit.simulate(
        list(policies.values()), environment, HORIZON, runs=RUNS, seed=SEED, checkpoints=1
    )
    print(f"scale {scale:g}, {pool} arms, position constants {constants}")
    for name, regret in zip(policies, result.regret[:, :, -1], strict=True):
        error = regret.std(ddof=1) / RUNS**0.5
        print(f"  {name:24}{regret.mean():9.1f} ± {error:.1f}", flush=True)


if __name__ == "__main__":
    for scale in (1.0, 4.0):
        for pool in (20, 100):
            table(scale, pool, (1.0, 0.5, 0.0))
