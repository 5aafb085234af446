"""The figures of the first page: one for each of the three problems, for light and for dark.

python -m generate.home
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tacit
from tacit.plots import COLOURS, assign_line_styles, band, figure

IMAGES = Path(__file__).parents[1] / "images"
SEED = 1
# Text, grid, and colours that tell apart for everybody, on light and on dark.
THEMES = {
    "light": ("#333333", "#bbbbbb", COLOURS),
    "dark": (
        "#dddddd",
        "#555555",
        ("#6BB5F0", "#FF8A3D", "#2FCF9F", "#E6A0C8", "#A5DDF7", "#F5C04E", "#DDDDDD", "#999999"),
    ),
}


def shift() -> tuple[tacit.simulation.SimulationResult, dict[str, str]]:
    """Play a query whose intent shifts twice."""
    environment = tacit.ShiftingArms(
        arms=3, events=[1001, 3001], clicks=[[0.6, 0.2, 0.1], [0.2, 0.6, 0.1], [0.5, 0.2, 0.1]]
    )
    policies = [
        tacit.KLUCB(3),
        tacit.Thompson(3, discount=0.995),
        tacit.policies.baselines.GLRKLUCB(3),
        tacit.auto(arms=3),
    ]
    result = tacit.simulate(policies, environment, horizon=5000, runs=50, seed=SEED)
    labels = ("KLUCB: learns once", "Thompson: forgets", "GLRKLUCB: notices", "the default: weighs both")
    return result, dict(zip(result.names, labels, strict=True))


def duel() -> tuple[tacit.simulation.SimulationResult, dict[str, str]]:
    """Find the best of six rankers by duels."""
    environment = tacit.PreferenceMatrix("arxiv")
    policies = [
        tacit.policies.BeatTheMean(6, horizon=20_000),
        tacit.policies.baselines.RUCB(6),
        tacit.auto(6, shows="duel"),
    ]
    # In fewer runs the few that end with a wrong ranker would say too much or too little.
    result = tacit.simulate(policies, environment, horizon=20_000, runs=200, seed=SEED)
    labels = ("BeatTheMean: all pairs, for long", "RUCB: optimism", "the default: what is worth it")
    return result, dict(zip(result.names, labels, strict=True))


def unseen() -> tuple[tacit.simulation.SimulationResult, dict[str, str]]:
    """Choose among results some of which are hardly looked at."""
    environment = tacit.ExaminationArms(5, 5, scale=4.0)
    policies = [tacit.policies.LogisticTS(5, 5), tacit.policies.LaplaceEC(5, 5)]
    result = tacit.simulate(policies, environment, horizon=30_000, runs=20, seed=SEED)
    labels = ("LogisticTS: unclicked is unwanted", "LaplaceEC: perhaps unseen")
    return result, dict(zip(result.names, labels, strict=True))


FIGURES: dict[str, tuple[Callable[[], Any], str]] = {
    "home-shift": (shift, "impressions of one query; its intent shifts at 1,000 and 3,000"),
    "home-duel": (duel, "duels of six rankers of ArXiv.org"),
    "home-unseen": (unseen, "impressions, ten results on offer in each"),
}


def draw(result: Any, labels: dict[str, str], rounds: str, theme: str, path: Path) -> None:
    """Draw the mean regret of each policy with a band of two standard errors."""
    text, grid, colours = THEMES[theme]
    drawing, ax = figure(6.4, 3.1)
    drawing.patch.set_alpha(0.0)
    ax.patch.set_alpha(0.0)
    shown = assign_line_styles(result.names, colours)
    for name, samples in zip(result.names, result.regret, strict=True):
        band(ax, result.rounds, samples, labels[name], lw=2, **shown[name])
    ax.set_xlabel(rounds, color=text)
    ax.set_ylabel("clicks missed, in all" if "duels" not in rounds else "regret, in all", color=text)
    ax.set_xlim(0, result.rounds[-1])
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.tick_params(colors=text)
    ax.grid(axis="y", color=grid, alpha=0.5, lw=0.6)
    for spine in ax.spines.values():
        spine.set_color(grid)
    ax.legend(frameon=False, labelcolor=text, loc="upper left")
    save(drawing, path)


def save(drawing: Any, path: Path) -> None:
    """Write a small SVG that is the same in every run."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        drawing.savefig(path, metadata={"Date": None, "Creator": None}, transparent=True)
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 sans-serif", svg)
    path.write_text(svg, encoding="utf-8")


def main() -> None:
    """Draw all figures, for light and for dark."""
    for name, (play, rounds) in FIGURES.items():
        result, labels = play()
        print(name, result.summary(), sep="\n", flush=True)
        for theme in THEMES:
            draw(result, labels, rounds, theme, IMAGES / f"{name}-{theme}.svg")


if __name__ == "__main__":
    main()
