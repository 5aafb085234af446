"""Every dueling policy on the same three preference matrices: regret, its spread, and time."""

# 1. Three matrices, and the policies that need no horizon or know it.
# 2. ``reproduce``: regret, its spread, time; then report, table, advice and figure.

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies import study
from tacit import policies
from tacit.core.arrays import Floats
from tacit.environments import PreferenceMatrix, preferences
from tacit.plots import assign_line_styles
from tacit.simulation import Run

TITLE = "Dueling policies in practice: regret, its spread, and time"
HORIZONS = (10**5, 10**6, 10**7)
TIMED = 10**6
"""Duels of the run by which a policy's time is taken."""


class NamedMatrix(NamedTuple):
    """A preference matrix, and what it is."""

    matrix: Floats
    about: str

    @property
    def gamma(self) -> float:
        """The smallest γ of relaxed stochastic transitivity that holds in it."""
        return preferences.measure(self.matrix).gamma


def close_call(arms: int, epsilon: float) -> Floats:
    """Return a matrix in which the second arm is nearly as good as the first, all others not.

    Examples
    --------
    >>> close_call(3, 0.01).round(2).tolist()
    [[0.5, 0.51, 0.6], [0.49, 0.5, 0.6], [0.4, 0.4, 0.5]]
    """
    margins = preferences.uniform_gap(arms, 0.1) - 0.5
    margins[0, 1] = epsilon
    return preferences.from_margins(margins)


def settings() -> dict[str, NamedMatrix]:
    """Return what is played."""
    return {
        "ArXiv": NamedMatrix(preferences.arxiv(), "six retrieval functions of ArXiv.org"),
        "50 arms": NamedMatrix(preferences.uniform_gap(50, 0.1), "each arm beats every later one by 0.1"),
        "close call": NamedMatrix(
            close_call(6, 0.01), "six arms; the best beats the second by 0.01, others by 0.1"
        ),
    }


def anytime(arms: int) -> dict[str, policies.DuelPolicy]:
    """Return the policies that need no horizon."""
    return {
        "HorizonDraw": policies.HorizonDraw(arms),
        "RMED1": policies.RMED1(arms),
        "Double Thompson": policies.baselines.DoubleThompsonSampling(arms),
        "RUCB": policies.baselines.RUCB(arms),
        "Self-sparring": policies.baselines.SelfSparring(arms),
        "Winner stays": policies.baselines.WinnerStays(arms),
    }


def tuned(arms: int, horizon: int, gamma: float) -> dict[str, policies.DuelPolicy]:
    """Return the policies that know the horizon."""
    return {
        "Beat-the-Mean, radius (9)": policies.BeatTheMean(arms, horizon, scale=1.0),
        "Beat-the-Mean, radius (4)": policies.BeatTheMean(arms, horizon, scale=3.0 * gamma**2),
        "Interleaved Filter 1": policies.InterleavedFilter1(arms, horizon),
        "Interleaved Filter 2": policies.InterleavedFilter2(arms, horizon),
        "Interleaved Filter 2, radius (9)": policies.InterleavedFilter2(arms, horizon, scale=1.0),
    }


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play every setting, and time every policy on one run."""
    regrets: dict[tuple[str, str], Floats] = {}
    nanoseconds: dict[tuple[str, str], float] = {}
    for name, setting in settings().items():
        arms = len(setting.matrix)
        for policy, found in played(anytime(arms), setting, HORIZONS, setup).items():
            regrets[name, policy] = found
        columns: dict[str, list[Floats]] = {}
        for horizon in HORIZONS:
            contenders = tuned(arms, horizon, setting.gamma)
            for policy, found in played(contenders, setting, (horizon,), setup).items():
                columns.setdefault(policy, []).append(found)
        for policy, parts in columns.items():
            regrets[name, policy] = np.concatenate(parts, axis=1)
        everyone = anytime(arms) | tuned(arms, HORIZONS[-1], setting.gamma)
        for policy, contender in everyone.items():
            nanoseconds[name, policy] = time_of(contender, setting, setup.seed)
    cells = [
        cell
        for (name, policy), found in regrets.items()
        for cell in _cells(name, policy, found, nanoseconds[name, policy])
    ]
    played_to = setup.settings(horizons=HORIZONS)
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(regrets, path), played_to)


def played(
    contenders: dict[str, policies.DuelPolicy],
    setting: NamedMatrix,
    horizons: tuple[int, ...],
    setup: study.Setup,
) -> dict[str, Floats]:
    """Return per policy the regret of each run after each horizon."""
    result = study.play(contenders, PreferenceMatrix(setting.matrix), horizons[-1], setup, horizons)
    return dict(zip(contenders, result.regret, strict=True))


def time_of(policy: policies.DuelPolicy, setting: NamedMatrix, seed: int) -> float:
    """Return the processor's nanoseconds a duel, its environment included, in one thread."""
    run = Run(policy, PreferenceMatrix(setting.matrix), TIMED, seed, 0, np.array([TIMED]))
    run.advance(0)
    start = time.thread_time()
    run.advance(TIMED)
    return (time.thread_time() - start) / TIMED * 1e9


def median_interval(values: Floats) -> tuple[float, float]:
    """Return order statistics that enclose the median with probability at least 95 %.

    The whole range, where there are too few values for that.

    Examples
    --------
    >>> import numpy as np
    >>> median_interval(np.arange(1.0, 21.0))
    (6.0, 15.0)
    """
    n = len(values)
    ordered = np.sort(values)
    tail, cut = 0.0, 0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        cut = k
    return float(ordered[cut]), float(ordered[n - 1 - cut])


def _cells(name: str, policy: str, regret: Floats, nanoseconds: float) -> list[study.Cell]:
    return [
        {
            "setting": name,
            "policy": policy,
            "horizon": horizon,
            "regret_median": float(np.median(values)),
            **dict(zip(("median_low", "median_high"), median_interval(values), strict=True)),
            "regret_q90": float(np.quantile(values, 0.9)),
            "regret_max": float(values.max()),
            **study.moments(values),
            "runs": len(values),
            "ns_per_duel": nanoseconds,
        }
        for horizon, values in zip(HORIZONS, regret.T, strict=True)
    ]


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    tables = "\n\n".join(
        f"## {name}: {setting.about} (γ = {setting.gamma:g})\n\n" + _table(study.select(cells, setting=name))
        for name, setting in settings().items()
    )
    given = {"title": TITLE, "timed": TIMED, "tables": tables}
    return study.report("dueling_practice", setup, advice=_advice(cells), **given)


def _table(cells: list[study.Cell]) -> str:
    head = ["policy"]
    for horizon in HORIZONS:
        head += [f"T = 10^{round(math.log10(horizon))}: median", "q90", "worst"]
    rows = [[*head, "ns/duel"]]
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        row = [policy]
        for cell in (mine := study.select(cells, policy=policy)):
            median = "{regret_median:,.0f} ({median_low:,.0f}–{median_high:,.0f})"
            row += [study.text_of(cell, tell) for tell in (median, "{regret_q90:,.0f}", "{regret_max:,.0f}")]
        rows.append([*row, f"{mine[-1]['ns_per_duel']:,.0f}"])
    return study.markdown_table(rows)


def _advice(cells: list[study.Cell]) -> str:
    """Return what follows from the numbers, in words."""
    last = study.select(cells, horizon=HORIZONS[-1])
    lines = []
    for name in dict.fromkeys(cell["setting"] for cell in last):
        mine = study.select(last, setting=name)
        lowest = min(mine, key=lambda cell: cell["regret_median"])
        rivals = [
            cell["policy"]
            for cell in mine
            if cell is not lowest and cell["median_low"] <= lowest["median_high"]
        ]
        safest = min(mine, key=lambda cell: cell["regret_q90"])
        tied = f" (not separated: {', '.join(rivals)})" if rivals else ""
        heavy = [
            f"{cell['policy']} {cell['regret_max'] / cell['regret_median']:,.0f} times"
            for cell in mine
            if cell["regret_max"] > 5.0 * cell["regret_median"]
        ]
        tails = f" The worst run exceeds the median by: {', '.join(heavy)}." if heavy else ""
        lines.append(
            f"{name}, T = 10^7: lowest median {lowest['policy']}{tied}; "
            f"lowest 90 % quantile {safest['policy']}.{tails}"
        )
    return study.listed(lines)


def _draw(regrets: dict[tuple[str, str], Floats], path: Path) -> None:
    names = list(settings())
    with study.drawing(path, 8.0, 11.0, rows=len(names)) as axes:
        for ax, name in zip(axes, names, strict=True):
            mine = {p: found for (setting, p), found in regrets.items() if setting == name}
            shown = assign_line_styles(mine)
            for policy, found in mine.items():
                style = {"marker": "o", "lw": 1.2, "ms": 3} | shown[policy]
                ax.plot(HORIZONS, np.median(found, axis=0), label=policy, **style)
                high = np.quantile(found, 0.9, axis=0)
                thin = {"marker": "^", "ls": ":", "lw": 0.7, "ms": 3}
                ax.plot(HORIZONS, high, **thin, color=shown[policy]["color"])
            labels = {"ylabel": "regret: median (●), q90 (▲)"}
            study.inscribe(ax, name, 9, xscale="log", yscale="log", **labels)
        axes[-1].set_xlabel("duels")
        axes[0].legend(frameon=False, fontsize=7, ncols=2)


DUELING_PRACTICE = study.Item(TITLE, 40, reproduce)
