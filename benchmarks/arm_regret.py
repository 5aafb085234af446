"""Regret of the policies over named arms, paired run by run, in settings that nobody tuned for.

python benchmarks/arm_regret.py [SETTING ...] [--runs RUNS] [--seed SEED]     by default, all
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import tacit


@dataclass(frozen=True)
class Recurring(tacit.ShiftingArms):
    """Shifts from one of a few intents to the next, again and again."""

    intents: int = 3

    def _draw_segments(self, rng: Any, count: int) -> list[Any]:
        drawn: list[Any] = []
        while len({int(clicks.argmax()) for clicks in drawn}) < self.intents:
            drawn = super()._draw_segments(rng, self.intents)
        return [drawn[i % self.intents] for i in range(count)]


SHIFTING = [
    tacit.DriftMixture,
    tacit.policies.ShiftMixture,
    tacit.Thompson,
    tacit.KLUCB,
    tacit.policies.baselines.GLRKLUCB,
]
STEADY = SHIFTING[:4]
SETTINGS: dict[str, tuple[tacit.environments.Environment, int, int, list[Any]]] = {
    "steady": (tacit.ShiftingArms(events=0), 10_000, 100, SHIFTING),
    "3 shifts": (tacit.ShiftingArms(events=3), 10_000, 100, SHIFTING),
    "10 shifts": (tacit.ShiftingArms(events=10), 10_000, 100, SHIFTING),
    "recurring": (Recurring(events=20), 20_000, 50, SHIFTING),
    "stealthy": (tacit.ShiftingArms(events=3, stealthy=True), 10_000, 50, SHIFTING),
    **{
        f"long tail, alike: {alike}": (
            tacit.environments.LongTail(keys=200, alike=alike), 10_000, 50, STEADY
        )
        for alike in ("arms", "clusters", "offsets", "nothing")
    },
    "40 arms": (tacit.ShiftingArms(arms=40, events=0), 100_000, 60, STEADY[:3]),
}  # fmt: skip
"""Environment, rounds, runs and policies by name."""


def main() -> None:
    """Measure and print the settings that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=", ".join(SETTINGS))
    parser.add_argument("--runs", type=int, help="in place of each setting's own")
    parser.add_argument("--seed", type=int, default=8_423)
    options = parser.parse_args()
    for name in options.settings or SETTINGS:
        environment, rounds, runs, kinds = SETTINGS[name]
        runs = options.runs or runs
        policies = [kind(environment.arm_count) for kind in kinds]
        result = tacit.simulate(
            policies, environment, rounds, runs=runs, seed=options.seed, workers=1, checkpoints=1
        )
        print(f"\n{name}: {rounds:,} rounds, {runs} runs, regret, ± standard error")
        for i, policy in enumerate(policies):
            last, first = result.regret[i, :, -1], result.regret[0, :, -1]
            error, paired = last.std(ddof=1) / runs**0.5, (last - first).std(ddof=1) / runs**0.5
            gap = f"{(last - first).mean():+9.1f} ± {paired:.1f} beside the first" if i else ""
            print(f"  {policy.label:14} {last.mean():9.1f} ± {error:5.1f} {gap}", flush=True)


if __name__ == "__main__":
    main()
