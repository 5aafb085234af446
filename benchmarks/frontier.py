"""What watching for changes that nobody sees costs where nothing changes: regret with against regret without.

python benchmarks/frontier.py [--runs RUNS] [--seed SEED]     prints both, and draws docs/images/frontier.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from risen_arms import RisenMixture

import tacit
from tacit.plots import COLOURS, figure, save

HORIZONS = {10_000: 100, 100_000: 40}
"""Rounds, and how many runs of them."""
STEADY = tacit.ShiftingArms(events=0)
UNSEEN = tacit.ShiftingArms(events=3, stealthy=True)
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "frontier.png"
TICKS = [tick * 10**power for power in (1, 2, 3, 4) for tick in (1, 2, 5)]
NOTICED = {10_000: (2_000, 5_000, 10_000), 100_000: (10_000, 20_000, 50_000)}
THRESHOLDS = (8.0, 14.0, 20.0, 28.0)
# Measured once on the streams of this seed: the default whose memory is dealt (1 + m/1,000)^−p of its share
# after m rounds without a change that was believed, for p of −½, −¼, ¼, ½ and 1; then two that know
# √(1 + m/1,000) times the rounds and the plays, the second with p of ½. None is shipped.
TRIED = {
    10_000: [
        (33.5, 340.7),
        (30.9, 370.1),
        (25.7, 462.9),
        (23.8, 537.0),
        (20.8, 560.5),
        (26.7, 423.0),
        (22.8, 484.8),
    ],
    100_000: [
        (203.6, 886.9),
        (126.1, 1001.0),
        (57.2, 2239.5),
        (44.1, 2887.0),
        (31.0, 4476.8),
        (102.3, 1066.4),
        (58.2, 1854.2),
    ],
}


def contenders(horizon: int) -> dict[str, list[tacit.Policy]]:
    """Return families of policies; the first one is the default alone."""
    arms = STEADY.arm_count
    windows = [
        tacit.policies.baselines.SlidingWindowUCB(arms, window=horizon // part, xi=0.1)
        for part in (20, 10, 4)
    ]
    wider = [
        tacit.policies.baselines.SlidingWindowUCB(arms, window=horizon // part, xi=0.3)
        for part in (20, 10, 4)
    ]
    return {
        "the default": [tacit.auto(arms)],
        "the default, notice_within": [tacit.auto(arms, notice_within=rounds) for rounds in NOTICED[horizon]],
        "the default, checking arms (not shipped)": [
            RisenMixture(arms, threshold=threshold) for threshold in THRESHOLDS
        ],
        "Thompson (sums=True)": [tacit.auto(arms, sums=True)],
        "ShiftMixture": [tacit.policies.ShiftMixture(arms)],
        "SlidingWindowUCB, xi=0.1": windows,
        "SlidingWindowUCB, xi=0.3": wider,
    }


def played(policies: list[tacit.Policy], world: Any, horizon: int, runs: int, seed: int) -> Any:
    """Return mean regrets and their standard errors."""
    result = tacit.simulate(policies, world, horizon, runs=runs, seed=seed, workers=1, checkpoints=1)
    regret = result.regret[:, :, -1]
    return regret.mean(axis=1), regret.std(axis=1, ddof=1) / runs**0.5


def draw(ax: Any, horizon: int, families: dict[str, int], without: Any, unseen: Any) -> None:
    """Draw a point for each policy, those of a family joined, and where the default's product lies."""
    place = 0
    for (name, count), colour in zip(families.items(), COLOURS, strict=False):
        mine = slice(place, place + count)
        place += count
        bars = {"xerr": 2.0 * without[1][mine], "yerr": 2.0 * unseen[1][mine]}
        style = {"fmt": "o-", "ms": 8 if place == 1 else 5, "lw": 1.0, "color": colour}
        ax.errorbar(without[0][mine], unseen[0][mine], **bars, **style, label=name)
    ax.plot(*zip(*TRIED[horizon], strict=True), "x", color="0.4", ms=5, label="the default, other memories")
    ends = np.array([0.7 * without[0].min(), 1.5 * without[0].max()])
    product = without[0][0] * unseen[0][0]
    ax.plot(ends, product / ends, ls=":", color="0.4", lw=1.2, label="the default's product")
    lowest, highest = 0.75 * unseen[0].min(), 1.35 * unseen[0].max()
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=(lowest, highest))
    ax.set(xlabel=f"regret where nothing changes, {horizon:,} rounds", ylabel="with three unseen changes")
    for axis, (low, high) in ((ax.xaxis, ends), (ax.yaxis, (lowest, highest))):
        marks = [tick for tick in TICKS if low < tick < high]
        axis.set_ticks(marks, [f"{tick:,}" for tick in marks])
        axis.set_ticks([], minor=True)


def main() -> None:
    """Play, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, help="in place of each horizon's own")
    parser.add_argument("--seed", type=int, default=77_001)
    options = parser.parse_args()
    drawing, axes = figure(7.0, 8.0, rows=2)
    for ax, (horizon, runs) in zip(axes, HORIZONS.items(), strict=True):
        families = contenders(horizon)
        policies = [policy for family in families.values() for policy in family]
        given = horizon, options.runs or runs, options.seed
        without, unseen = played(policies, STEADY, *given), played(policies, UNSEEN, *given)
        for i, policy in enumerate(policies):
            product = without[0][i] * unseen[0][i] / (without[0][0] * unseen[0][0])
            steady = f"{without[0][i]:9,.1f} ± {without[1][i]:5.1f}"
            print(f"{policy.label:36} {steady}   {unseen[0][i]:9,.1f} ± {unseen[1][i]:5.1f}   {product:.2f}")
        draw(ax, horizon, {name: len(family) for name, family in families.items()}, without, unseen)
    axes[0].legend(frameon=False, fontsize=8)
    save(drawing, IMAGE)


if __name__ == "__main__":
    main()
