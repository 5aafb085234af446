"""What Yue and Joachims (2011) prove of Beat-the-Mean, as numbers: exact, or over trials.

Observations 1 and 2 are enumerated over all working sets. Lemmas 1 to 4, theorem 1 and corollary 1 are
compared with what was played: where the paper says O(·), ratios must not grow with T and K.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from studies import study
from studies.run_sampling.beat_the_mean import beat_the_mean
from studies.run_sampling.result import SampledRun
from studies.yue2011 import generator
from tacit.core.arrays import Floats
from tacit.environments import preferences
from tacit.policies import BeatTheMean, BeatTheMeanPAC

TITLE = "Yue and Joachims (2011): what is proved of Beat-the-Mean, as numbers"
MATRICES = {
    "gaps of 0.1": preferences.uniform_gap(8, 0.1),
    "case B, γ = 1.3": preferences.relaxed_chain(8, 1.3),
    "utilities": preferences.logistic_utilities(8, np.random.default_rng(1)),
    "table 1": preferences.arxiv(),
}
PLAYED = [*itertools.product((1.0, 1.3), (5, 20, 80), (10**8, 10**9, 10**10))]
TIGHTER = (1.0, 0.25, 0.125, 0.0625, 0.03125)


def observations(matrix: Floats) -> tuple[float, float]:
    """Return the least E[P̂₁ − P̂ₖ]/ε₁ₖ, and the largest E[P̂ⱼ − P̂ₖ]/(2γ²·ε₁ₖ), of all working sets.

    Examples
    --------
    >>> round(observations(preferences.uniform_gap(3, 0.1))[0], 12)
    1.0
    """
    gamma, ratios = preferences.measure(matrix).gamma, []
    for size in range(1, len(matrix)):
        for others in itertools.combinations(range(1, len(matrix)), size):
            share = matrix[np.ix_((0, *others), (0, *others))].mean(axis=1)
            margins = (share - share[-1]) / (matrix[0, others[-1]] - 0.5)
            ratios.append((margins[0], margins.max() / (2.0 * gamma**2)))
    return float(np.min(ratios, axis=0)[0]), float(np.max(ratios, axis=0)[1])


def ratios_of(run: SampledRun, matrix: Floats, gamma: float, horizon: int) -> Floats:
    """Return a run's comparisons over Σ D·ln T (lemma 4), its regret over (6)'s and corollary 1's sums."""
    gaps, left, sums = matrix[0] - 0.5, list(range(len(matrix))), np.zeros(2)
    for arm in run.eliminated:
        order = min(gamma**4 / gaps[1:].min() ** 2, gamma**6 / gaps[left[-1]] ** 2)
        sums += order, gamma * gaps[left[-1]] * order
        left.remove(arm)
    scale = np.array([*sums, (gamma**8 / gaps[1:]).sum()]) * math.log(horizon)
    return np.array([run.comparisons, run.regret, run.regret]) / scale


def trials(matrix: Floats, policy: Any, horizon: int, factor: float, setup: study.Setup) -> list[SampledRun]:
    """Play runs with the radius, and the square root of N, times a factor."""
    sizes = {"budget": policy.budget, "enough": max(int(policy.enough * factor**2), 1)}
    drawn = (generator(setup.seed, horizon, number) for number in range(setup.runs))
    gaps, kappa = matrix[0] - 0.5, policy.kappa * factor
    return [beat_the_mean(matrix, gaps, kappa, horizon, rng, **sizes) for rng in drawn]


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Check all that is numbered."""
    cells: list[study.Cell] = []

    def add(check: str, setting: str, value: float, most: float, bound: float | None) -> None:
        row = {"check": check, "setting": setting, "value": float(value), "most": float(most)}
        cells.append(row | {"bound": bound, "runs": setup.runs})

    def add_wrong(check: str, setting: str, runs: list[SampledRun], bound: float) -> None:
        wrong = sum(run.winner != 0 for run in runs)
        add(check, setting, wrong / len(runs), study.exact_interval(wrong, len(runs))[1], bound)

    for name, matrix in MATRICES.items():
        for number, value in enumerate(observations(matrix), 1):
            add(f"observation {number}", name, value, value, 1.0)
    two = preferences.uniform_gap(2, 0.4)
    more = setup._replace(runs=400 * setup.runs)
    found = trials(two, BeatTheMean(2, 10_000, 1.0, scale=3.0), 10_000, 1.0, more)
    add_wrong("lemmas 1 and 2", "two arms, gap 0.4, T = 10,000", found, 1e-4)
    needed = np.array([run.comparisons for run in found]) / 2.0 * 0.4**2 / math.log(20_000)
    add("lemma 3", "the same", needed.mean(), needed.max(), 144.0)
    pac, more = BeatTheMeanPAC(2, 0.2, 0.1), setup._replace(runs=10 * setup.runs)
    for factor in TIGHTER:
        found = trials(preferences.uniform_gap(2, 0.21), pac, 10**9, factor, more)
        add_wrong("theorem 2", f"ε = 0.2, gap 0.21, radius × {factor:g}", found, pac.delta)
    for gamma, arms, horizon in PLAYED:
        matrix = preferences.relaxed_chain(arms, gamma)
        found = trials(matrix, BeatTheMean(arms, horizon, gamma, 3.0 * gamma**2), horizon, 1.0, setup)
        ratios = np.array([ratios_of(run, matrix, gamma, horizon) for run in found]).T
        for check, ratio in zip(("lemma 4", "theorem 1", "corollary 1"), ratios, strict=True):
            add(check, f"γ = {gamma:g}, K = {arms}, T = {horizon:.0e}", ratio.mean(), ratio.max(), None)

    def draw(path: Path) -> None:
        shown = np.array([c["value"] for c in study.select(cells, check="theorem 1")]).reshape(-1, 3)
        with study.drawing(path) as ax:
            for (gamma, arms, _), values in zip(PLAYED[::3], shown, strict=True):
                ax.plot([row[2] for row in PLAYED[:3]], values, "o-", label=f"γ = {gamma:g}, K = {arms}")
            study.inscribe(ax, TITLE, legend=8, xscale="log", xlabel="T", ylim=(0, None))
            ax.set_ylabel("regret over theorem 1's sum · ln T")

    columns: dict[str, study.Tell] = {"check": "{check}", "setting": "{setting}"}
    columns |= {"value": "{value:.3g}", "largest": "{most:.3g}", "bound": "{bound}"}
    text = study.report("yue2011_theory", setup, title=TITLE, table=study.table(cells, columns))
    return study.Reproduction(cells, text, draw, setup.settings())


THEORY = study.Item(TITLE, 100, reproduce)
