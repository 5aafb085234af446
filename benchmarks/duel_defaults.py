"""The default for duels beside RMED1, in 62 settings: regret, and how often a run ends with a wrong arm.

    python benchmarks/duel_defaults.py --runs 96 --seed 71000    # a minute of processor time

Six rankers, five to fifty arms, close calls, cycles and tournaments without an arm that beats all, shifts in
the middle, and readers of interleaved lists. Arms are in an order drawn at random, six of them (or six draws
of utilities) a setting; settings of 50,000 duels and more are played half as often. A run ends wrong if it
has settled on an arm that is not the best.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import numpy as np

import tacit
from studies.cells import WORLDS, DuelSetting, duel_settings
from tacit.simulation import Run

LONG = 50_000


def settled_wrong(run: Run) -> bool:
    """Return whether a run of the default has settled on an arm that is not the best."""
    gaps = run.world.gaps if hasattr(run.world, "gaps") else run.world.shortfall
    ladder = run.state
    return bool(ladder.soonest[0] > np.log(run.round) and gaps[ladder.leader[0]] > 1e-9)


def play(policy: type[tacit.Policy], setting: DuelSetting, runs: int, seed: int) -> tuple[Any, Any]:
    """Return regrets and wrong ends, of shape (runs, horizons)."""
    horizons = setting.horizons
    each = max(runs // WORLDS // (2 if horizons[-1] >= LONG else 1), 1)
    regrets, wrong = [], []
    for i, world in enumerate(setting.worlds):
        for number in range(each):
            run = Run(policy(world.arm_count), world, horizons[-1], seed + i, number, np.array(horizons))
            ends = []
            for horizon in horizons:
                run.advance(horizon - run.round)
                ends.append(policy is tacit.HorizonDraw and settled_wrong(run))
            regrets.append(run.curve.values[:, 0].copy())
            wrong.append(ends)
    return np.array(regrets), np.array(wrong)


def main() -> None:
    """Play everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=96)
    parser.add_argument("--seed", type=int, default=71_000)
    given = parser.parse_args()
    logs, errors, ended = [], [], []
    print(f"{'setting':32} {'duels':>8} {'default':>14} {'RMED1':>14} {'ratio':>6} {'worst':>7} {'wrong':>6}")
    for name, setting in duel_settings().items():
        ours, wrong = play(tacit.HorizonDraw, setting, given.runs, given.seed)
        theirs, _ = play(tacit.policies.RMED1, setting, given.runs // 2, given.seed + 1_000_000)
        for k, horizon in enumerate(setting.horizons):
            cells = [(x[:, k].mean(), x[:, k].std(ddof=1) / len(x) ** 0.5) for x in (ours, theirs)]
            (mean, error), (other, its) = cells
            logs.append(np.log(mean / other))
            errors.append((error / mean) ** 2 + (its / other) ** 2)
            ended.append(wrong[:, k].mean())
            text = f"{mean:8.1f} ± {error:3.1f} {other:8.1f} ± {its:3.1f} {mean / other:6.2f}"
            print(f"{name:32} {horizon:8} {text} {ours[:, k].max():7.0f} {ended[-1]:6.3f}", flush=True)
    ratio, error = np.exp(np.mean(logs)), np.sum(errors) ** 0.5 / len(logs)
    print(f"geometric mean {ratio:.3f} ± {ratio * error:.3f}, largest {np.exp(max(logs)):.2f}")
    print(f"settled on a wrong arm: {np.mean(ended):.3f}")


if __name__ == "__main__":
    main()
