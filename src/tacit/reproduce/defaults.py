"""The recommended policy, untuned, beside others that were tuned for each setting.

Candidates are played on streams of their own first; the one of least regret there is the *tuned
best* of the setting, and meets the recommended policy on other streams, paired run by run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.environments import (
    BernoulliArms,
    CascadeArms,
    Environment,
    ExaminationArms,
    LongTail,
    ShiftingArms,
)
from tacit.plots import COLOURS
from tacit.policies import (
    EXP3S,
    GLRKLUCB,
    KLUCB,
    PBMUCB,
    UCB1,
    CascadeKLUCB,
    CascadeUCB1,
    DiscountedUCB,
    EpsilonGreedy,
    LaplaceEC,
    LinTS,
    LinUCB,
    LogisticTS,
    PBMThompson,
    Policy,
    RankedBandit,
    SlidingWindowUCB,
    Thompson,
    policy_from_spec,
)
from tacit.reproduce.study import (
    Cell,
    Item,
    Reproduction,
    Setup,
    drawing,
    inscribe,
    listed,
    play,
    report,
    table,
)

TITLE = "One default, untuned, beside everything else, tuned"
TUNING_SHARE, LEAST_TUNING = 4, 5
TUNING_SEED = 1_000_000
"""Added to the seed for the streams on which candidates are tuned."""
INTENTS = ((0.55, 0.25, 0.15, 0.10, 0.05), (0.10, 0.50, 0.15, 0.25, 0.05), (0.05, 0.15, 0.60, 0.10, 0.35))


def _grid(make: Callable[..., Policy], **values: tuple[Any, ...]) -> list[Policy]:
    """Return a policy for each combination of hyperparameters."""
    return [make(**dict(zip(values, each, strict=True))) for each in product(*values.values())]


def _named_arms(world: Environment, horizon: int) -> list[Policy]:
    arms, windows = world.arm_count, (horizon // 50, horizon // 10)
    return [
        KLUCB(arms),
        Thompson(arms),
        *_grid(partial(UCB1, arms), alpha=(0.1, 0.2, 0.35, 0.5)),
        *_grid(partial(EpsilonGreedy, arms), epsilon=(0.01, 0.05, 0.1)),
        *_grid(partial(Thompson, arms), discount=(0.9, 0.99, 0.999, 0.9999)),
        *_grid(partial(GLRKLUCB, arms), alpha=(0.0, 0.005, 0.02)),
        *_grid(partial(SlidingWindowUCB, arms), window=windows, xi=(0.1, 0.3, 0.6)),
        *_grid(partial(DiscountedUCB, arms), discount=(0.99, 0.999, 0.9999), xi=(0.1, 0.3)),
        EXP3S.tuned(arms, horizon, 4),
    ]


def _features(world: Environment, horizon: int) -> list[Policy]:
    dims = world.feature_dims
    return [
        *_grid(partial(LinUCB, *dims), alpha=(0.25, 0.5, 1.0, 2.0)),
        *_grid(partial(LaplaceEC, *dims), draw=("parameters", "coupled")),
        *_grid(partial(LogisticTS, *dims), draw=("parameters", "coupled")),
        *_grid(partial(LinTS, *dims), draw=("parameters", "coupled")),
    ]


def _lists(world: Environment, horizon: int) -> list[Policy]:
    arms, positions = world.arm_count, world.action_width
    return [
        CascadeKLUCB(arms, positions=positions),
        CascadeUCB1(arms, positions=positions),
        PBMUCB(arms, positions=positions),
        PBMThompson(arms, positions=positions),
        RankedBandit(KLUCB(arms), positions=positions),
    ]


class RegretSetting(NamedTuple):
    """Where everybody is played, for how long, and against whom.

    Attributes
    ----------
    environment : Environment
    horizon : int
    candidates : function
        Of the environment and the horizon.
    stealthy : bool
        Whether shifts leave the clicks on what is shown as they are; such settings count apart.
    """

    environment: Environment
    horizon: int
    candidates: Callable[[Environment, int], list[Policy]] = _named_arms
    stealthy: bool = False


def _recurring(count: int, horizon: int) -> ShiftingArms:
    events = [1 + i * horizon // (count + 1) for i in range(1, count + 1)]
    clicks = [INTENTS[i % len(INTENTS)] for i in range(count + 1)]
    return ShiftingArms(arms=len(INTENTS[0]), events=events, clicks=clicks)


SETTINGS: dict[str, RegretSetting] = {
    "steady, 1,000 rounds": RegretSetting(ShiftingArms(events=0), 1_000),
    "steady, 10,000 rounds": RegretSetting(ShiftingArms(events=0), 10_000),
    "steady, 40 arms": RegretSetting(ShiftingArms(arms=40, events=0, gap=0.02), 10_000),
    "clicks of 1 to 5 %": RegretSetting(BernoulliArms([0.01, 0.02, 0.03, 0.04, 0.05]), 10_000),
    "1 shift": RegretSetting(ShiftingArms(events=1), 10_000),
    "3 shifts": RegretSetting(ShiftingArms(events=3), 10_000),
    "10 shifts": RegretSetting(ShiftingArms(events=10), 10_000),
    "3 shifts, feedback in batches of 50": RegretSetting(ShiftingArms(events=3, batch=50), 10_000),
    "3 shifts, late feedback": RegretSetting(ShiftingArms(events=3, delay=(10, 200)), 10_000),
    "3 intents, again and again": RegretSetting(_recurring(20, 20_000), 20_000),
    "3 stealthy shifts": RegretSetting(ShiftingArms(events=3, stealthy=True), 10_000, stealthy=True),
    **{
        f"200 keys, 50 rounds each: {text}": RegretSetting(LongTail(keys=200, alike=alike), 10_000)
        for alike, text in {
            "arms": "alike by arm", "clusters": "four clusters", "offsets": "alike but for a level",
            "nothing": "nothing in common",
        }.items()
    },
    "features, θ × 1": RegretSetting(ExaminationArms(), 2_000, _features),
    "features, θ × 4": RegretSetting(ExaminationArms(scale=4.0), 2_000, _features),
    "features, ten arms": RegretSetting(ExaminationArms(pool=10), 2_000, _features),
    "features, one shift": RegretSetting(ExaminationArms(redraws=(1_001,)), 2_000, _features),
    "lists read from the top": RegretSetting(
        CascadeArms([0.3, 0.25, 0.2, 0.2, 0.15, 0.15, *[0.1] * 14], positions=5), 10_000, _lists
    ),
}  # fmt: skip


def ratio_of(own: Floats, other: Floats) -> tuple[float, float]:
    """Return the ratio of two paired means, and its standard error by the delta method."""
    ratio = own.mean() / other.mean()
    error = (own - ratio * other).std(ddof=1) / math.sqrt(len(own)) / other.mean()
    return float(ratio), float(error)


def _cell(name: str, setting: RegretSetting, setup: Setup) -> Cell:
    """Tune the candidates, and play the best of them beside the recommended policy."""
    world, horizon = setting.environment, setting.horizon
    candidates = setting.candidates(world, horizon)
    tuning = setup._replace(runs=max(setup.runs // TUNING_SHARE, LEAST_TUNING), seed=setup.seed + TUNING_SEED)
    tuned = play(candidates, world, horizon, tuning).regret[:, :, -1].mean(axis=1)
    best = candidates[int(tuned.argmin())]
    own = policy_from_spec("auto", world.arm_count, setting=world.setting)
    regret = play([own, best], world, horizon, setup).regret[:, :, -1]
    ratio, error = ratio_of(*regret)
    return {
        "setting": name,
        "stealthy": setting.stealthy,
        "policy": own.label,
        "regret_mean": float(regret[0].mean()),
        "best": best.label,
        "best_mean": float(regret[1].mean()),
        "ratio": ratio,
        "ratio_se": error,
        "runs": setup.runs,
        "tuning_runs": tuning.runs,
        "candidates": len(candidates),
    }


def _summary(cells: list[Cell], what: str) -> str:
    ratios = np.array([cell["ratio"] for cell in cells])
    worst = cells[int(ratios.argmax())]
    mean = float(np.exp(np.log(ratios).mean()))
    return (
        f"{what}: geometric mean of the ratios {mean:.2f}; the worst, {worst['ratio']:.2f} ± "
        f"{worst['ratio_se']:.2f}, in \N{LEFT DOUBLE QUOTATION MARK}{worst['setting']}"
        f"\N{RIGHT DOUBLE QUOTATION MARK}"
    )


def _written(cells: list[Cell], setup: Setup) -> str:
    columns = {
        "setting": "{setting}",
        "untuned": "{policy}",
        "regret": "{regret_mean:,.1f}",
        "tuned best": "{best}",
        "its regret": "{best_mean:,.1f}",
        "ratio ± s.e.": "{ratio:.2f} ± {ratio_se:.2f}",
    }
    open_ = [cell for cell in cells if not cell["stealthy"]]
    summary = listed([_summary(cells, "All settings"), _summary(open_, "Without stealthy shifts")])
    tuning = cells[0]["tuning_runs"]
    return report("defaults", setup, title=TITLE, tuning=tuning, table=table(cells, columns), summary=summary)


def _draw(cells: list[Cell], path: Path) -> None:
    with drawing(path, 7.5, 0.3 * len(cells) + 1.2) as ax:
        for y, cell in enumerate(reversed(cells)):
            better = cell["ratio"] + 2.0 * cell["ratio_se"] < 1.0
            worse = cell["ratio"] - 2.0 * cell["ratio_se"] > 1.0
            colour = COLOURS[0] if better else COLOURS[1] if worse else "0.5"
            ax.errorbar(cell["ratio"], y, xerr=2.0 * cell["ratio_se"], fmt="o", ms=5, color=colour)
        ax.axvline(1.0, color="0.6", lw=1.0)
        ax.set_yticks(range(len(cells)), [cell["setting"] for cell in reversed(cells)], size=8)
        ticks = [0.25, 0.5, 1.0, 2.0, 4.0]
        inscribe(ax, xscale="log", xlim=(0.2, 5.0))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_xlabel("regret, the untuned default's over the tuned best's (±2 s.e.)")


def reproduce(setup: Setup) -> Reproduction:
    """Play every setting."""
    cells = [_cell(name, setting, setup) for name, setting in SETTINGS.items()]
    return Reproduction(cells, _written(cells, setup), partial(_draw, cells), setup.settings())


DEFAULTS = Item(TITLE, 100, reproduce)
