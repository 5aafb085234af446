"""What defaults earn where only clicks are sent, late, as a share of what they earn with zeros sent at once.

    python benchmarks/clicks_only.py [--runs 24] [--seed 918273]    # four minutes of processor time

A round without a click is known to have none when its window ends. Three arms of 0.3, 0.5 and 0.1, steady for
12,000 rounds or with three shifts in 20,000; then what else the defaults show.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from late_users import ItemsWithNumbers, UsersOfKinds

import tacit
from studies.defaults import delays_within
from tacit.environments import Environment, PreferenceMatrix
from tacit.policies import Policy

RATES = (0.3, 0.5, 0.1)
MATRIX = PreferenceMatrix([[0.5, 0.7, 0.8], [0.3, 0.5, 0.6], [0.2, 0.4, 0.5]])
TWENTY = tacit.environments.CascadeArms([0.3, 0.25, 0.2, 0.2, 0.15, 0.15, *[0.1] * 14], positions=5)
STEP = 10
"""Regret is noted after so many rounds each."""


def worlds(rates: tuple[float, ...], horizon: int, shifts: int) -> Environment:
    """Return arms of these rates, which change places at shifts."""
    events = [1 + i * horizon // (shifts + 1) for i in range(1, shifts + 1)]
    clicks = [rates[i:] + rates[:i] for i in (0, 1, 2, 0)[: shifts + 1]]
    return tacit.ShiftingArms(arms=len(rates), events=events, clicks=clicks)


class Bench:
    """Plays policies with clicks only and with zeros sent, on the same streams."""

    def __init__(self, runs: int, seed: int) -> None:
        self.more: dict[str, Any] = {"runs": runs, "seed": seed}

    def row(
        self, name: str, policy: Policy, world: Environment, horizon: int, window: int, delay: Any = None
    ) -> None:
        """Print what a policy earns: whole, and after two windows; of duels, nearness to the worst duel."""
        more = self.more | {"checkpoints": horizon // STEP}
        late = tacit.simulate(
            policy, world, horizon, feedback="clicks only", window=window, delay=delay, **more
        )
        zeros = tacit.simulate(policy, world, horizon, **more)
        # What is expected of what is shown, but for one constant: what the best earns.
        best = 0.25 * horizon if policy.showing.compared else (zeros.reward + zeros.regret)[0, :, -1].mean()
        share = (best - late.regret[0, :, -1]) / (best - zeros.regret[0, :, -1]).mean()
        first = min(2 * window // STEP, horizon // STEP - 1)
        rest = 1.0 - (first + 1) / (horizon // STEP)
        missed = [(x.regret[0, :, -1] - x.regret[0, :, first]).mean() for x in (late, zeros)]
        after = (best * rest - missed[0]) / (best * rest - missed[1])
        error = share.std(ddof=1) / len(share) ** 0.5
        print(f"| {name} | {window:,} | {share.mean():.3f} ± {error:.3f} | {share.min():.3f} | {after:.3f} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=918273)
    options = parser.parse_args()
    bench, auto = Bench(options.runs, options.seed), tacit.auto(arms=3)
    print("| what | window | of zeros sent | worst run | after two windows |\n|---|--:|--:|--:|--:|")
    for shifts, horizon in ((0, 12_000), (3, 20_000)):
        text, world = f"arms, {shifts} shifts", worlds(RATES, horizon, shifts)
        for window in (10, 30, 100, 300, 1_000, 3_000):
            bench.row(text, auto, world, horizon, window)
        for name, delay in delays_within(1_000).items():
            bench.row(f"{text}, delays {name}", auto, world, horizon, 1_000, delay)
    for window in (100, 1_000, 3_000):
        bench.row("arms of 3, 5 and 1 %", auto, worlds((0.03, 0.05, 0.01), 20_000, 0), 20_000, window)
    bench.row("20 keys", auto, tacit.environments.LongTail(keys=20, arms=3), 40_000, 1_000)
    ten = tacit.BernoulliArms([0.5, 0.3, 0.3, 0.3, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1])
    shown: list[tuple[str, Policy, Environment]] = [
        ("ten arms", tacit.auto(arms=10), ten),
        ("Thompson", tacit.Thompson(3), worlds(RATES, 12_000, 0)),
        ("UCB1", tacit.UCB1(3), worlds(RATES, 12_000, 0)),
        ("a context", tacit.auto(arms=3, context_dim=3), UsersOfKinds()),
        ("features", tacit.auto(relevance_dim=3, examination_dim=3), tacit.ExaminationArms(3, 3)),
        ("items", tacit.auto(relevance_dim=40), ItemsWithNumbers()),
        ("lists, 5 of 20", tacit.auto(arms=20, shows="slate", positions=5), TWENTY),
        (
            "lists of items",
            tacit.auto(relevance_dim=40, shows="slate", positions=3),
            tacit.environments.ItemLists(40, positions=3, pool=200, offered=6),
        ),
        ("duels", tacit.auto(arms=3, shows="duel"), MATRIX),
    ]
    for name, policy, world in shown:
        for window in (100, 1_000, 3_000):
            bench.row(name, policy, world, 12_000, window)


if __name__ == "__main__":
    main()
