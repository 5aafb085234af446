"""Lists by name before five kinds of readers: the tables of docs/lists.md.

python benchmarks/list_readers.py [streams] [horizon]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))
import numpy as np

import tacit
from studies.cells import KINDS, SHAPES, STARTS, UsersOfLists

SEED = 20_261


@dataclass(frozen=True)
class Fixed(tacit.policies.SlatePolicy):
    """Show the first ``shown`` arms as they are offered."""

    class Params(NamedTuple):
        shown: int

    class State(NamedTuple):
        nothing: np.ndarray

    positions: int = 3
    shown: int = 3

    def init(self, lanes):
        return self.State(np.zeros(lanes))

    @staticmethod
    def decide(params, state, lane, impression, rng, action):
        for k in range(len(action)):
            action[k] = impression.arms[k] if k < params.shown else -1

    @staticmethod
    def learn(params, state, lane, outcome):
        pass


def policies(arms, positions):
    """Return what is compared, the start list and the empty one last."""
    return {
        "ListMix": tacit.ListMix(arms, positions=positions),
        "SafeListMix": tacit.policies.SafeListMix(arms, positions=positions),
        "CascadeKLUCB": tacit.policies.CascadeKLUCB(arms, positions=positions),
        "PBMUCB": tacit.policies.baselines.PBMUCB(arms, positions=positions),
        "RankedBandit(KLUCB)": tacit.policies.baselines.RankedBandit(tacit.KLUCB(arms), positions=positions),
        "the start list": Fixed(arms, positions=positions, shown=positions),
        "nothing": Fixed(arms, positions=positions, shown=0),
    }


def main(streams=100, horizon=5_000):
    """Print, for each setting, what is lost of the best list's clicks, and the worst shortfall."""
    for shape, (arms, positions) in SHAPES.items():
        for start, (noise, scale) in STARTS.items():
            compared = policies(arms, positions)
            for number, kind in enumerate(KINDS):
                environment = UsersOfLists(kind, arms, positions, noise, scale)
                seed = SEED + number
                result = tacit.simulate(
                    list(compared.values()), environment, horizon, runs=streams, seed=seed
                )
                lost = result.regret / result.regret[-1]
                below = (result.regret - result.regret[-2]) / (result.regret[-1] - result.regret[-2])
                print(f"\n{shape}, {start}, {kind}")
                for i, name in enumerate(list(compared)[:-1]):
                    end, ahead = 100 * lost[i, :, -1], 100 * (lost[i] - lost[0])[:, -1]
                    error, paired = (x.std(ddof=1) / streams**0.5 for x in (end, ahead))
                    worst = 100 * below[i].mean(axis=0).max()
                    print(
                        f"  {name:20} {end.mean():6.2f} ± {error:.2f}, behind ListMix "
                        f"{ahead.mean():6.2f} ± {paired:.2f}, below the start at most {worst:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
