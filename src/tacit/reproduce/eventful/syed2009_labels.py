"""Labels beyond the positives of Syed, Slivkins, Mishra (2009): what they teach, and cost.

The paper's section 9 asks whether labels upon negative predictions, "trading off the regret from
additional exploration", would train the classifier faster. Two ways are measured: witnesses, whose
exploration is paid for already, and audits, which pay for it with a restart.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from tacit.classifiers import Rectangle
from tacit.plots import COLOURS
from tacit.policies import BWC, UCB1, OracleRestart
from tacit.reproduce.eventful.syed2009 import ARMS, HORIZON, MARGIN, environment
from tacit.reproduce.examination.labels import dissect_all, means
from tacit.reproduce.report import Item, Reproduction, Setup
from tacit.reproduce.study import Cell, drawing, markdown_table, only, play
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


def reproduce(setup: Setup) -> Reproduction:
    """Play every variant in every case, and the oracle for comparison."""
    cells: list[Cell] = []
    for fraction, features in CASES:
        world = environment(fraction, features)
        oracle = OracleRestart(UCB1(ARMS), signal=features)
        regret = play(oracle, world, HORIZON, setup).regret[0, :, -1]
        found = {"regret": float(regret.mean()), "regret_se": standard_error(regret)}
        case = {"fraction": fraction, "features": features, "runs": setup.runs}
        cells.append({"policy": "ORA", **case, **found, **dict.fromkeys(COUNTS)})
        for name, extra in VARIANTS.items():
            counts = means(dissect_all(variant(features, extra), world, HORIZON, setup))
            kept = {key: counts[key] for key in ("regret", "regret_se", *COUNTS)}
            cells.append({"policy": name, **case, **kept})
    settings = setup.told(horizon=HORIZON)
    return Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, path), settings)


def _cell(cells: list[Cell], name: str, case: tuple[float, int]) -> Cell:
    return only(cells, policy=name, fraction=case[0], features=case[1])


def _finding(cells: list[Cell]) -> str:
    """Say what the most witnesses and the most audits did to the distance from the oracle."""

    def gap(name: str, case: tuple[float, int]) -> str:
        oracle = _cell(cells, "ORA", case)["regret"]
        return f"{100.0 * (_cell(cells, name, case)['regret'] / oracle - 1.0):.1f} %"

    def alarms(name: str, case: tuple[float, int]) -> str:
        return f"{_cell(cells, name, case)['alarms']:.1f}"

    lines = []
    for case in CASES:
        told = (f"{name}: {gap(name, case)} ({alarms(name, case)})" for name in CONTRASTED)
        lines.append(f"{case[0]:g} shifting, d = {case[1]}: {'; '.join(told)}.")
    shown = "\n".join(f"- {line}" for line in lines)
    return f"How far above ORA, and (false alarms a run):\n\n{shown}"


def _report(cells: list[Cell], setup: Setup) -> str:
    heads = [f"{fraction:g} shifting, d = {features}" for fraction, features in CASES]
    regrets, counts = [["policy", *heads]], [["policy", "case", *COUNTS]]
    for name in ("ORA", *VARIANTS):
        found = [_cell(cells, name, case) for case in CASES]
        regrets.append(
            [name, *(f"{c['regret'] / 1000:.2f} ± {c['regret_se'] / 1000:.2f}" for c in found)]
        )
    for name, (case, head) in product(VARIANTS, zip(CASES, heads, strict=True)):
        cell = _cell(cells, name, case)
        counts.append([name, head, *(f"{cell[key]:,.1f}" for key in COUNTS)])
    return f"""# {TITLE}

The paper's experiment (3 million impressions of 100 queries, five results, L = 500, merged phases,
one anchored rectangle for all queries), with labels beyond those of positive predictions.
*Witnesses* are further contexts of a testing phase, spread over its first quarter, that are
labelled false along with the one that began it: the testing phase has paid for the exploration.
*Audits* end an adapting phase after so many rounds of its query without a positive, so that a
context which was taken for none is tested: each costs a restart.

Final regret in thousands, mean ± standard error over {setup.runs} runs (seed {setup.seed}):

{markdown_table(regrets)}

{_finding(cells)}

What became of events and labels, means per run. Alarms are testing phases that no event began,
audits included; an event is noticed if it begins a testing phase, and else falls into one
(testing) or is missed; a contaminated label calls the context of an event false.

{markdown_table(counts)}
"""


def _draw(cells: list[Cell], path: Path) -> None:
    names = ["ORA", *VARIANTS]
    width = 0.8 / len(names)
    with drawing(path) as ax:
        for i, (name, colour) in enumerate(zip(names, COLOURS * 2, strict=False)):
            found = [_cell(cells, name, case) for case in CASES]
            x = [at + i * width for at in range(len(CASES))]
            heights = [c["regret"] / 1000 for c in found]
            errors = [2 * c["regret_se"] / 1000 for c in found]
            ax.bar(x, heights, width, yerr=errors, color=colour, label=name)
        ax.set_xticks([at + 0.4 - width / 2 for at in range(len(CASES))])
        ax.set_xticklabels([f"{fraction:g} shifting\nd = {d}" for fraction, d in CASES])
        ax.set_ylabel("final regret (thousands; bars ±2 s.e.)")
        ax.legend(frameon=False, fontsize=7)


LABELS = Item(TITLE, 10, reproduce)
