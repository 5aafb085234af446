"""Labels beyond the positives of Syed, Slivkins, Mishra (2009): what they teach, and cost.

The paper's section 9 asks whether labels upon negative predictions, "trading off the regret from
additional exploration", would train the classifier faster. Two ways are measured: witnesses, whose
exploration is paid for already, and audits, which pay for it with a restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies import study
from studies.eventful.syed2009 import ARMS, HORIZON, MARGIN, dissect_all, environment, means
from tacit.classifiers import Rectangle
from tacit.plots import assign_line_styles
from tacit.policies import BWC, UCB1, OracleRestart
from tacit.simulation import standard_error

TITLE = "Syed et al. (2009), section 9: labels on negatives, from cheap exploration"
# Fraction of the queries that shift, and features of a context.
CASES = ((0.0, 10), (0.1, 10), (0.1, 40), (0.5, 10))
VARIANTS: dict[str, dict[str, Any]] = {
    "BWC": {},
    "4 witnesses": {"witnesses": 4},
    "16 witnesses": {"witnesses": 16},
    "audits after 100,000": {"audit_rounds": 100_000},
    "audits after 20,000": {"audit_rounds": 20_000},
    "16 witnesses, audits after 100,000": {"witnesses": 16, "audit_rounds": 100_000},
}
CONTRASTED = ("BWC", "16 witnesses", "audits after 20,000")
COUNTS = ("alarms", "events", "noticed", "testing", "missed", "false_labels", "contaminated")


def variant(features: int, options: dict[str, Any]) -> BWC:
    """Return the paper's BWC (merged phases) with more labels."""
    rectangle = Rectangle(dim=features, margin=MARGIN, anchored=True)
    return BWC(ARMS, classifier=rectangle, test_rounds=500, min_shift=0.1, **options)


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play every variant in every case, and the oracle for comparison."""
    cells: list[study.Cell] = []
    for fraction, features in CASES:
        world = environment(fraction, features)
        oracle = OracleRestart(UCB1(ARMS), signal=features)
        regret = study.play(oracle, world, HORIZON, setup).regret[0, :, -1]
        found = {"regret": float(regret.mean()), "regret_se": standard_error(regret)}
        case = {"fraction": fraction, "features": features, "runs": setup.runs}
        cells.append({"policy": "ORA", **case, **found, **dict.fromkeys(COUNTS)})
        for name, extra in VARIANTS.items():
            counts = means(dissect_all(variant(features, extra), world, HORIZON, setup))
            kept = {key: counts[key] for key in ("regret", "regret_se", *COUNTS)}
            cells.append({"policy": name, **case, **kept})
    settings = setup.settings(horizon=HORIZON)
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, path), settings)


def _cell(cells: list[study.Cell], name: str, case: tuple[float, int]) -> study.Cell:
    return study.only(cells, policy=name, fraction=case[0], features=case[1])


def _finding(cells: list[study.Cell]) -> str:
    """Return, in words, what the most witnesses and the most audits did to the distance from the oracle."""

    def above(name: str, case: tuple[float, int]) -> str:
        cell, oracle = _cell(cells, name, case), _cell(cells, "ORA", case)
        share = 100.0 * (cell["regret"] / oracle["regret"] - 1.0)
        return f"{name}: {share:.1f} % ({cell['alarms']:.1f})"

    shown = study.listed(
        f"{case[0]:g} shifting, d = {case[1]}: {'; '.join(above(n, case) for n in CONTRASTED)}."
        for case in CASES
    )
    return f"How far above ORA, and (false alarms a run):\n\n{shown}"


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    order = {name: i for i, name in enumerate(VARIANTS)}
    shown = [cell | {"case": f"{cell['fraction']:g} shifting, d = {cell['features']}"} for cell in cells]
    variants = sorted((cell for cell in shown if cell["policy"] in order), key=lambda c: order[c["policy"]])

    def regret(cell: study.Cell) -> str:
        return f"{cell['regret'] / 1000:.2f} ± {cell['regret_se'] / 1000:.2f}"

    counts = {"policy": "{policy}", "case": "{case}"} | {key: f"{{{key}:,.1f}}" for key in COUNTS}
    return study.report(
        "syed2009_labels",
        setup,
        title=TITLE,
        regrets=study.pivot(shown, "policy", "case", regret),
        finding=_finding(cells),
        counts=study.table(variants, counts),
    )


def _draw(cells: list[study.Cell], path: Path) -> None:
    names = ["ORA", *VARIANTS]
    width = 0.8 / len(names)
    with study.drawing(path) as ax:
        shown = assign_line_styles(names)
        for i, name in enumerate(names):
            found = [_cell(cells, name, case) for case in CASES]
            x = [at + i * width for at in range(len(CASES))]
            heights = [c["regret"] / 1000 for c in found]
            errors = [2 * c["regret_se"] / 1000 for c in found]
            ax.bar(x, heights, width, yerr=errors, color=shown[name]["color"], label=name)
        ax.set_xticks([at + 0.4 - width / 2 for at in range(len(CASES))])
        ax.set_xticklabels([f"{fraction:g} shifting\nd = {d}" for fraction, d in CASES])
        study.inscribe(ax, legend=7, ylabel="final regret (thousands; bars ±2 s.e.)")


LABELS = study.Item(TITLE, 10, reproduce)
