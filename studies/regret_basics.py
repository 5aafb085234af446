"""The classical policies on Bernoulli arms, against the bound of Lai and Robbins (1985)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from studies import study
from tacit.environments import BernoulliArms
from tacit.plots import assign_line_styles, band
from tacit.policies import EXP3, KLUCB, UCB1, EpsilonGreedy, Policy, Thompson
from tacit.policies.stationary.ucb import bernoulli_kl
from tacit.simulation import SimulationResult

TITLE = "Classical policies on Bernoulli arms, against the bound of Lai and Robbins"
HORIZON = 100_000

SETTINGS = {
    "two close arms": (0.5, 0.55),
    "five arms": (0.1, 0.2, 0.3, 0.4, 0.5),
    "ten rare clicks": (0.1, 0.05, 0.05, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01),
}


def lai_robbins(means: tuple[float, ...]) -> float:
    """Return C = Σ Δ/kl(μ, μ*): no consistent policy has less than C·ln T regret in the limit.

    Examples
    --------
    >>> round(lai_robbins((0.5, 0.55)), 3)
    9.95
    """
    best = max(means)
    return sum((best - mean) / bernoulli_kl(mean, best) for mean in means if mean < best)


def policies(arms: int) -> list[Policy]:
    """Return the policies that are compared."""
    return [EpsilonGreedy(arms), EXP3.from_horizon(arms, HORIZON), UCB1(arms), KLUCB(arms), Thompson(arms)]


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Simulate every setting."""
    rounds = np.unique(np.geomspace(10, HORIZON, 80).astype(int)).tolist()
    results = {
        name: study.play(policies(len(means)), BernoulliArms(means), HORIZON, setup, rounds)
        for name, means in SETTINGS.items()
    }
    cells = [cell for name, result in results.items() for cell in _cells(name, result)]
    text = _report(cells, setup)
    settings = setup.settings(horizon=HORIZON)
    return study.Reproduction(cells, text, lambda path: _draw(results, path), settings)


def _cells(setting: str, result: SimulationResult) -> list[study.Cell]:
    final = result.regret[:, :, -1]
    return [
        {
            "setting": setting,
            "policy": name,
            "horizon": HORIZON,
            **study.moments(regret),
            "runs": len(regret),
            "lai_robbins": lai_robbins(SETTINGS[setting]) * math.log(HORIZON),
        }
        for name, regret in zip(result.names, final, strict=True)
    ]


COLUMNS: dict[str, study.Tell] = {
    "setting": "{setting}",
    "policy": "{policy}",
    "regret ± s.e.": study.text_with_error("regret"),
    "s.d. over runs": "{regret_std:,.1f}",
    "C·ln T": "{lai_robbins:,.1f}",
    "ratio": lambda c: f"{c['regret_mean'] / c['lai_robbins']:.2f}",
}


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    settings = study.listed(f"{name}: {', '.join(map(str, means))}" for name, means in SETTINGS.items())
    given = {"title": TITLE, "horizon": HORIZON, "settings": settings}
    return study.report("regret_basics", setup, table=study.table(cells, COLUMNS), **given)


def _draw(results: dict[str, SimulationResult], path: Path) -> None:
    with study.drawing(path, 7.0, 9.0, rows=len(results)) as axes:
        for ax, (name, result) in zip(axes, results.items(), strict=True):
            shown = assign_line_styles(result.names)
            for policy, samples in zip(result.names, result.regret, strict=True):
                band(ax, result.rounds, samples, policy, **shown[policy])
            bound = lai_robbins(SETTINGS[name]) * np.log(result.rounds)
            ax.plot(result.rounds, bound, color="black", ls="--", lw=1, label="Lai–Robbins C·ln t")
            title = f"{name}: {', '.join(map(str, SETTINGS[name]))}"
            study.inscribe(ax, title, 9, xscale="log", yscale="log", xlim=result.rounds[[0, -1]])
            ax.set_ylabel("cumulative regret")
        axes[-1].set_xlabel("round (bands: ±2 standard errors)")
        axes[0].legend(frameon=False, fontsize=8)


REGRET_BASICS = study.Item(TITLE, 200, reproduce)
