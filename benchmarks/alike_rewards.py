"""How often intervals hold the truth where hardly anybody clicks, or hardly anybody does not.

python benchmarks/alike_rewards.py [RUNS] [SEED]

Rewards are 0 or 1, whatever was shown. Weights are 0 or 2, or 1/6, 1 and 6. Beside the normal
interval as it is in the limit stands what is made of it where all rewards that carry weight are
alike.
"""

from __future__ import annotations

import sys

import numpy as np

from tacit.evaluate.intervals import normal, sum_units, widen_interval

WEIGHTS = {"half of the rows": ((0.0, 2.0), (0.5, 0.5)), "heavy": ((1 / 6, 1, 6), (0.6, 0.3, 0.1))}
ROWS = 100, 460, 2000
EXPECTED = 0.5, 2.0, 5.0, -2.0
"""Clicks in a log; below 0, rows without one."""


def main(runs=4000, seed=7):
    """Print a line for each setting."""
    rng = np.random.default_rng(seed)
    print("weights, rows, rate: IPS normal, widened; SNIPS normal, widened; alike, held there")
    for name, (weights, chances) in WEIGHTS.items():
        for rows in ROWS:
            for clicks in EXPECTED:
                rate = clicks / rows % 1.0
                told = measured(rng, np.array(weights), chances, rows, rate, runs)
                print(f"{name}, {rows}, {rate:.4f}:", *(f"{share:.3f}" for share in told))


def measured(rng, weights, chances, rows, rate, runs):
    """Return the shares of the logs, and of those whose rewards were alike."""
    held, alike = np.zeros(5), 0
    for _ in range(runs):
        weight = rng.choice(weights, size=rows, p=chances)
        reward = (rng.random(rows) < rate).astype(np.float64)
        sums = sum_units(weight, weight * reward, rewards=reward)
        bounds = [normal(sums, ratio) for ratio in (False, True)]
        bounds = [each for before in bounds for each in (before, widen_interval(before, sums))]
        holds = [low <= rate <= high for low, high in bounds]
        same = sums.least == sums.most
        alike += same
        held += [*holds, same and holds[1] and holds[3]]
    return [*(held[:4] / runs), alike / runs, held[4] / max(alike, 1)]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
