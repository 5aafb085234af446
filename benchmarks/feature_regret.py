"""Regret of the policies over features where results may go unseen, paired run by run.

python benchmarks/feature_regret.py [ROUNDS [RUNS]]     2,000 rounds and 400 runs by default
python benchmarks/feature_regret.py crossed             few arms that no linear score orders
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
from scipy.spatial import ConvexHull
from scipy.special import expit

import tacit

SEEDS = {1.0: 7_411, 4.0: 7_414}
"""Of the runs, by the factor on the parameters."""
POLICIES: list[tacit.Policy] = [
    tacit.ClickMixture(5, 5),
    tacit.policies.LaplaceEC(5, 5, draw="coupled"),
    tacit.policies.LaplaceEC(5, 5),
    tacit.policies.LogisticTS(5, 5, draw="coupled"),
    tacit.policies.LogisticTS(5, 5),
    tacit.policies.LinTS(5, 5, draw="coupled"),
    tacit.policies.LinTS(5, 5),
    tacit.policies.LinUCB(5, 5, alpha=1.0),
    tacit.policies.LinUCB(5, 5),
]


FEW_ARMS: list[tacit.Policy] = [
    tacit.ClickMixture(1, 1),
    tacit.policies.LaplaceEC(1, 1, draw="coupled"),
    tacit.policies.LaplaceEC(1, 1),
    tacit.policies.LaplaceECMixture(1, 1),
    tacit.policies.LinUCB(1, 1, alpha=1.0),
]


def crossed(count: int) -> Iterator[tuple[tacit.ExaminationArms, float]]:
    """Yield problems of six arms, the best inside of the others' hull, and how far it is ahead."""
    rng = np.random.default_rng(999)
    while count:
        arms, theta = 2.0 * rng.normal(size=(6, 2)), 2.0 * rng.normal(size=2)
        chances = expit(arms * theta).prod(axis=1)
        gap = float(np.diff(np.sort(chances))[-1])
        if gap >= 0.1 and chances.argmax() not in ConvexHull(arms).vertices:
            count -= 1
            told = {"arms": arms.tolist(), "parameters": theta.tolist()}
            yield tacit.ExaminationArms(1, 1, offered=6, **told), gap


def few_arms(problems: int = 60, rounds: int = 5_000) -> None:
    """Measure and print how often a wrong arm is played in half of the later rounds and more."""
    regret, stuck = [], []
    for seed, (environment, gap) in enumerate(crossed(problems)):
        found = tacit.simulate(FEW_ARMS, environment, rounds, runs=1, seed=seed, workers=1)
        curve = found.regret[:, 0]
        regret.append(curve[:, -1])
        stuck.append(curve[:, -1] - curve[:, curve.shape[1] // 2] > 0.25 * gap * rounds)
    for i, policy in enumerate(FEW_ARMS):
        last = np.array(regret)[:, i]
        error, share = last.std(ddof=1) / problems**0.5, np.array(stuck)[:, i].mean()
        print(f"{policy.label:75} {last.mean():6.1f} ± {error:.1f}   {share:.0%} on a wrong arm")


def main() -> None:
    """Measure and print: ten of a hundred arms on offer, five features a block."""
    warnings.simplefilter("ignore", tacit.policies.IdentifiabilityWarning)
    if sys.argv[1:] == ["crossed"]:
        few_arms()
        return
    rounds, runs = [int(given) for given in sys.argv[1:]] + [2_000, 400][len(sys.argv) - 1 :]
    for scale, seed in SEEDS.items():
        environment = tacit.ExaminationArms(scale=scale)
        result = tacit.simulate(POLICIES, environment, rounds, runs=runs, seed=seed, workers=1)
        print(f"\n{rounds:,} rounds, {runs} runs, θ × {scale:g}: regret, ± standard error")
        for i, policy in enumerate(POLICIES):
            last = result.regret[i, :, -1]
            error = last.std(ddof=1) / runs**0.5
            paired = (last - result.regret[0, :, -1]) if i else last * 0.0
            gap = f"{paired.mean():+.1f} ± {paired.std(ddof=1) / runs**0.5:.1f} beside the first"
            print(f"{policy.label:75} {last.mean():6.1f} ± {error:.1f}   {gap}", flush=True)


if __name__ == "__main__":
    main()
