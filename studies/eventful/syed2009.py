"""Figure 2 of Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries".

First what becomes of BWC's events and labels, counted where the truth is known; then the figure.
The paper leaves some ten choices open. The reading here came closest to its tables: Zipf(1)
traffic over 100 queries, interleaved; click probabilities uniform in [0, 1] with a lead of the
best of at least 0.1; 1 to 10 events in a shifting query, at uniform rounds; contexts of other
rounds in [0, 1/2]^d, of events outside of that box by at least 0.1; one anchored rectangle for
all queries; L = 500, ε_S = 0.1; EXP3.S with Auer et al.'s parameters for T = 3·10⁶ and S = 10.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.study import Setup
from tacit.classifiers import Rectangle
from tacit.core.arrays import Floats, Ints
from tacit.core.parallel import Report, run_tasks
from tacit.environments import ShiftingArms
from tacit.plots import assign_line_styles, band
from tacit.policies import BWC, UCB1, OracleRestart, Policy
from tacit.policies.baselines import EXP3S
from tacit.simulation import Run, SimulationResult

# ---- What becomes of BWC's events and labels, counted where the truth is known

STRETCH = 10_000
"""Rounds between two looks at the record of restarts, which holds the latest 1024."""


def ignored(rounds: float) -> None:
    """Take a report of progress that nobody waits for."""


class Anatomy(NamedTuple):
    """What happened in a run of BWC, by kind.

    Attributes
    ----------
    regret : float
    events : int
        Rounds in which click probabilities changed.
    noticed : int
        Events that began a testing phase.
    testing : int
        Events within a testing phase, which can begin none.
    missed : int
        Events in an adapting phase whose context was taken for none.
    alarms : int
        Testing phases that no event began, the first of each key left out.
    false_labels : int
        Contexts that were labelled false because they had begun a testing phase.
    contaminated : int
        False labels on contexts of events, those of witnesses included.
    true_labels : int
    mistaken : int
        True labels on contexts of no event.
    """

    regret: float
    events: int
    noticed: int
    testing: int
    missed: int
    alarms: int
    false_labels: int
    contaminated: int
    true_labels: int
    mistaken: int


def dissect(
    policy: BWC, environment: ShiftingArms, horizon: int, seed: int, number: int, report: Report = ignored
) -> Anatomy:
    """Play a run of BWC; compare its record with the truth, event by event.

    Parameters
    ----------
    policy : BWC
    environment : ShiftingArms
    horizon : int
        Rounds of all keys.
    seed, number : int
        Which run of which seed, as :func:`tacit.simulate` numbers them.
    report : callable, optional
        Is called with the number of rounds just played.
    """
    run = Run(policy, environment, horizon, seed, number, np.zeros(0, np.int64))
    first = run.world.segment.copy()
    labels: dict[tuple[int, int], int] = {}
    while played := run.advance(STRETCH):
        report(played)
        diary = run.state.diary
        known = diary.lane[0] >= 0
        entries = zip(diary.lane[0, known], diary.round[0, known], strict=True)
        labels.update(zip(entries, diary.label[0, known].tolist(), strict=True))
    events = {
        lane: [round for round in rounds if round <= run.world.counts[lane]]
        for lane, rounds in enumerate(event_rounds(first, run.world.starts))
    }
    return counted(labels, events, policy, float(run.curve.total[0]))


def dissect_all(policy: BWC, environment: ShiftingArms, horizon: int, setup: Setup) -> list[Anatomy]:
    """Play every run of a setup; the result does not depend on the workers."""
    # Compiled here, once, before threads would ask for it side by side.
    Run(policy, environment, horizon, setup.seed, 0, np.zeros(0, np.int64)).advance(0)
    tasks = [(policy, environment, horizon, setup.seed, number) for number in range(setup.runs)]
    return run_tasks(dissect, tasks, [horizon] * len(tasks), label="dissecting", workers=setup.workers)


def event_rounds(first: Ints, starts: Ints) -> list[list[int]]:
    """Return the rounds of each key's events, from where its segments begin in ``starts``."""
    ends = [*first[1:].tolist(), len(starts) - 1]
    return [starts[at + 1 : end].tolist() for at, end in zip(first.tolist(), ends, strict=True)]


def counted(
    labels: dict[tuple[int, int], int], events: dict[int, list[int]], policy: BWC, regret: float
) -> Anatomy:
    """Compare labelled restarts with events; both by key and round of the key."""
    restarts: dict[int, list[int]] = {lane: [] for lane in events}
    for lane, round in sorted(labels):
        restarts[lane].append(round)
    noticed = testing = missed = witnessed = 0
    for lane, rounds in events.items():
        for event in rounds:
            # A key's first testing phase begins with its first round.
            began = [round for round in restarts[lane] if round <= event][-1]
            age = event - began
            noticed += age == 0
            testing += 0 < age < policy.test_rounds
            missed += age >= policy.test_rounds
            witnessed += labels[lane, began] == 0 and is_witness(policy, age)
    true_events = {(lane, event) for lane, rounds in events.items() for event in rounds}
    false = {place for place, label in labels.items() if label == 0}
    true = {place for place, label in labels.items() if label == 1}
    return Anatomy(
        regret=regret,
        events=len(true_events),
        noticed=noticed,
        testing=testing,
        missed=missed,
        alarms=sum(round > 1 and (lane, round) not in true_events for lane, round in labels),
        false_labels=len(false),
        contaminated=len(false & true_events) + witnessed,
        true_labels=len(true),
        mistaken=len(true - true_events),
    )


def is_witness(policy: BWC, age: int) -> bool:
    """Whether the context of a testing phase's round, from 0, is one of the witnesses."""
    if policy.witnesses == 0:
        return False
    step = max(policy.test_rounds // 4 // policy.witnesses, 1)
    return age % step == 0 and 0 < age // step <= policy.witnesses


def means(anatomies: list[Anatomy]) -> dict[str, Any]:
    """Return the mean of each count over runs, and the standard error of the regret."""
    table: Floats = np.array(anatomies, dtype=np.float64)
    error = table[:, 0].std(ddof=1) / np.sqrt(len(table)) if len(table) > 1 else np.nan
    found = dict(zip(Anatomy._fields, table.mean(axis=0).tolist(), strict=True))
    return {"regret": found.pop("regret"), "regret_se": float(error), **found}


# ---- Figure 2

ARMS = 5
QUERIES = 100
HORIZON = 3_000_000
MARGIN = 0.1
NAMES = ("ORA", "BWC", "UCB1", "EXP3.S")

# Final regret in thousands, as the NIPS version prints it.
PAPER_FRACTIONS = {
    0.0: (17.2, 17.8, 17.2, 78.4),
    0.125: (22.8, 24.6, 34.1, 123.7),
    0.25: (30.4, 39.9, 114.9, 180.2),
    0.375: (33.8, 46.7, 84.2, 197.6),
    0.5: (39.5, 99.4, 140.0, 243.1),
}
PAPER_FEATURES = {
    10: (21.9, 23.1, 32.3, 111.6),
    20: (23.2, 24.4, 33.5, 109.4),
    30: (21.9, 22.9, 31.1, 112.5),
    40: (22.8, 23.7, 37.4, 121.3),
}
# Standard deviations in thousands, where the text prints them.
PAPER_DEVIATIONS = {("fraction", 0.375): (1.0, 10.0, 12.0, 6.0), ("features", 10): (0.355, 1.0, 5.0, 4.0)}
READINGS = ("merged", "faithful")


def environment(fraction: float, features: int) -> ShiftingArms:
    """Return the paper's queries."""
    return ShiftingArms(
        arms=ARMS,
        keys=QUERIES,
        shifting=fraction,
        events=(1, 10),
        gap=0.1,
        traffic=1.0,
        dim=features,
        margin=MARGIN,
        announced=True,
    )


def policies(features: int, reading: str) -> list[Policy]:
    """Return the paper's four policies, in the order of ``NAMES``."""
    rectangle = Rectangle(dim=features, margin=MARGIN, anchored=True)
    return [
        OracleRestart(UCB1(ARMS), signal=features),
        BWC(ARMS, classifier=rectangle, test_rounds=500, min_shift=0.1, merge_phases=reading == "merged"),
        UCB1(ARMS),
        EXP3S.from_horizon(ARMS, HORIZON, 10),
    ]


def column(fraction: float, features: int, setup: study.Setup, checkpoints: int = 1) -> SimulationResult:
    """Simulate one column of a table."""
    queries = environment(fraction, features)
    return study.play(policies(features, setup.reading), queries, HORIZON, setup, checkpoints)


def _cells(name: str, value: float, result: SimulationResult, paper: Any) -> list[study.Cell]:
    """Return the cells of one column; ``paper`` holds the printed thousands."""
    cells = study.regret_cells(NAMES, result.regret[:, :, -1], **{name: value})
    printed = {"paper": paper, "paper_std": PAPER_DEVIATIONS.get((name, value))}
    return [
        cell | {key: 1000.0 * thousands[i] if thousands else None for key, thousands in printed.items()}
        for i, cell in enumerate(cells)
    ]


def _table(name: str, cells: list[study.Cell]) -> str:
    """Return the cells as a Markdown table, in thousands."""

    def tell(cell: study.Cell) -> str:
        text = f"{cell['regret_mean'] / 1000:.1f} (s.d. {cell['regret_std'] / 1000:.1f})"
        printed = f"; paper {cell['paper'] / 1000:.1f}" if cell["paper"] else ""
        return text + printed + (f" (s.d. {cell['paper_std'] / 1000:.3g})" if cell["paper_std"] else "")

    return study.pivot(cells, "policy", name, tell, "{:g}")


def _report(title: str, setup: study.Setup, table: str, finding: str) -> str:
    return study.report("syed2009", setup, title=title, table=table, finding=finding)


def _settings(setup: study.Setup) -> dict[str, Any]:
    return setup.settings(reading=setup.reading, horizon=HORIZON)


# Figure 2a: regret over time ------------------------------------------------------------------


def figure_2a(setup: study.Setup) -> study.Reproduction:
    """Regret over time where a tenth of the queries shift."""
    result = column(0.1, 10, setup, checkpoints=200)
    cells = _cells("fraction", 0.1, result, None)
    title = "Syed et al. (2009), figure 2a: cumulative regret, 10 % of the queries shifting"

    def draw(path: Path) -> None:
        with study.drawing(path) as ax:
            shown = assign_line_styles(NAMES)
            for name, samples in zip(NAMES[:3], result.regret, strict=False):
                band(ax, result.rounds, samples / 1000, name, **shown[name])
            heading = f"10 % of 100 queries shift; {setup.runs} runs, bands ±2 s.e."
            study.inscribe(ax, heading, legend="medium", xlim=(0, HORIZON), ylim=(0, None))
            ax.set(xlabel="impressions (all queries)", ylabel="cumulative regret (thousands)")
            ax.xaxis.set_major_formatter("{x:,.0f}")

    finding = (
        "As in the paper, BWC pays at first, while its classifier takes all contexts for events, "
        "and ends near ORA. EXP3.S is left out of the figure, as there; its row is above."
    )
    text = _report(title, setup, _table("fraction", cells), finding)
    return study.Reproduction(cells, text, draw, _settings(setup))


# Figures 2b and 2c: final regret --------------------------------------------------------------


def figure_2b(setup: study.Setup) -> study.Reproduction:
    """Final regret over the fraction of queries that shift."""
    cells = []
    for fraction, paper in PAPER_FRACTIONS.items():
        found = _cells("fraction", fraction, column(fraction, 10, setup), paper)
        cells += _with_labels(found, fraction, setup)
    title = "Syed et al. (2009), figure 2b: final regret by fraction of shifting queries"
    label = "fraction of the queries that shift"
    return _final("fraction", label, cells, title, setup, f"\n\n{_labels_table(cells)}")


def _final(
    name: str, label: str, cells: list[study.Cell], title: str, setup: study.Setup, more: str = ""
) -> study.Reproduction:
    """Return what came of final regrets over a quantity of this name."""
    text = _report(title, setup, _table(name, cells), _orderings(name, cells) + more)
    return study.Reproduction(cells, text, _drawing(name, label, cells), _settings(setup))


LABELLING = ("events", "noticed", "testing", "missed", "false_labels", "contaminated")


def _with_labels(found: list[study.Cell], fraction: float, setup: study.Setup) -> list[study.Cell]:
    """Add to a column's cells what became of BWC's events and labels, means per run."""
    bwc = policies(10, setup.reading)[NAMES.index("BWC")]
    assert isinstance(bwc, BWC)
    counts = means(dissect_all(bwc, environment(fraction, 10), HORIZON, setup))
    labels = {key: counts[key] for key in LABELLING}
    none = dict.fromkeys(LABELLING)
    return [cell | (labels if cell["policy"] == "BWC" else none) for cell in found]


def _labels_table(cells: list[study.Cell]) -> str:
    """Return what became of BWC's events and labels as text and a Markdown table."""
    columns = {"fraction": "{fraction:g}"} | {key: f"{{{key}:.1f}}" for key in LABELLING}
    return f"""What became of events and labels in BWC, means per run: an event is noticed if it
begins a testing phase, and else falls into one (testing) or is missed because its context was
taken for none. A contaminated label calls the context of an event false; such labels are why later
events are missed.

{study.table(study.select(cells, policy="BWC"), columns)}"""


def figure_2c(setup: study.Setup) -> study.Reproduction:
    """Final regret over the number of features."""
    cells = []
    for features, paper in PAPER_FEATURES.items():
        cells += _cells("features", features, column(0.1, features, setup), paper)
    title = "Syed et al. (2009), figure 2c: final regret by number of features"
    return _final("features", "features of a context", cells, title, setup)


def _orderings(name: str, cells: list[study.Cell]) -> str:
    """Return, in words, in how many columns the policies come in the order in which the paper has them."""
    values = sorted({cell[name] for cell in cells})
    agreeing = 0
    for value in values:
        ours = sorted(study.select(cells, **{name: value}), key=lambda cell: float(cell["regret_mean"]))
        agreeing += all(a["paper"] <= b["paper"] for a, b in pairwise(ours))
    return (
        f"The order of the four policies is the paper's in {agreeing} of {len(values)} columns "
        "(policies that the paper prints level may come either way)."
    )


def _drawing(name: str, label: str, cells: list[study.Cell]) -> Any:
    def draw(path: Path) -> None:
        with study.drawing(path) as ax:
            for policy, look in assign_line_styles(NAMES).items():
                mine = study.select(cells, policy=policy)
                x = [cell[name] for cell in mine]
                means = [cell["regret_mean"] / 1000 for cell in mine]
                errors = [2 * c["regret_std"] / 1000 / math.sqrt(c["runs"]) for c in mine]
                ax.errorbar(x, means, errors, label=policy, **look, **study.MARKED)
                printed = [cell["paper"] / 1000 for cell in mine]
                ax.plot(x, printed, color=look["color"], ls="none", marker="x", ms=7)
            ax.plot([], [], color="black", ls="none", marker="x", label="paper")
            regret = "final regret (thousands; bars ±2 s.e.)"
            study.inscribe(ax, legend="medium", xlabel=label, ylabel=regret, ylim=(0, None))

    return draw


FIGURE_2A = study.Item("Syed et al. (2009), figure 2a: regret of BWC over time", 10, figure_2a, READINGS)
FIGURE_2B = study.Item(
    "Syed et al. (2009), figure 2b: regret by fraction of shifting queries", 10, figure_2b, READINGS
)
FIGURE_2C = study.Item("Syed et al. (2009), figure 2c: regret by number of features", 10, figure_2c, READINGS)
