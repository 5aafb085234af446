"""Figure 2 of Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries".

First what becomes of BWC's events and labels, counted where the truth is known; then the figure.
The paper leaves some ten choices open. The reading here came closest to its tables: Zipf(1)
traffic over 100 queries, interleaved; click probabilities uniform in [0, 1] with a lead of the
best of at least 0.1; 1 to 10 events in a shifting query, at uniform rounds; contexts of other
rounds in [0, 1/2]^d, of events outside of that box by at least 0.1; one anchored rectangle for
all queries; L = 500, ε_S = 0.1; EXP3.S with Auer et al.'s parameters for T = 3·10⁶ and S = 10.
Other readings change one of them each: phases that start cold, events 2·L rounds apart, contexts
and rectangles of section 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.eventful import theory
from studies.study import Setup
from tacit.classifiers import Rectangle
from tacit.core.arrays import Booleans, Floats, Generator, Ints
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
    alarms = sum(round > 1 and (lane, round) not in true_events for lane, round in labels)
    contaminated, mistaken = len(false & true_events) + witnessed, len(true - true_events)
    became = len(true_events), noticed, testing, missed, alarms
    return Anatomy(regret, *became, len(false), contaminated, len(true), mistaken)


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
READINGS = ("merged", "faithful", "spaced", "ball")
TESTED = 500


@dataclass(frozen=True)
class BallRectangle(Rectangle):
    """The rectangle of section 5.1, for contexts in the L∞ ball."""

    universe = "numbers in [-1, 1]"

    @property
    def diameter(self) -> float:
        return theory.rectangle_diameter(self.dim, self.margin, "ball")

    def feasible(self, contexts: Floats) -> Booleans:
        return np.asarray((np.abs(contexts) <= 1.0).all(axis=1))


@dataclass(frozen=True)
class PaperQueries(ShiftingArms):
    """Queries whose events may have to be some rounds apart, and whose contexts may be in the L∞ ball.

    Parameters
    ----------
    space : int
        Least number of rounds from an event of a query to the next; fewer events fit into its rounds.
    ball : bool
        Whether each signal is above or below 0, at random.

    Examples
    --------
    >>> queries = PaperQueries(events=(10, 10), space=100)
    >>> world = queries.world(np.random.default_rng(1), 950)
    >>> len(world.starts) - 2, bool(np.diff(world.starts[1:-1]).min() >= 100)
    (10, True)
    """

    space: int = 1
    ball: bool = False

    def _draw_event_rounds(self, rng: Generator, expected: int) -> list[int]:
        # Spaced rounds are any rounds of a shorter history, each moved behind the gaps before it.
        least, most = self.events
        count = min(int(rng.integers(least, most + 1)), max(1 + (expected - 2) // self.space, 0))
        gaps = (self.space - 1) * np.arange(count)
        free = max(expected - 1 - int(gaps.max(initial=0)), 1)
        rounds: list[int] = (2 + np.sort(rng.choice(free, count, replace=False)) + gaps).tolist()
        return rounds

    @staticmethod
    def arrive(params: Any, world: ShiftingArms.World, round: int, rng: Generator) -> int:
        lane = theory.shifting_arrive(params, world, round, rng)
        if params.ball:
            for i in range(params.dim):
                world.impression.context[i] *= 1.0 - 2.0 * (rng.random() < 0.5)
        return int(lane)


def environment(fraction: float, features: int, reading: str = "merged") -> ShiftingArms:
    """Return the paper's queries."""
    space, ball = 2 * TESTED if reading == "spaced" else 1, reading == "ball"
    draws: dict[str, Any] = {"events": (1, 10), "gap": 0.1, "traffic": 1.0, "margin": MARGIN}
    sizes = ARMS, QUERIES, fraction
    return PaperQueries(*sizes, **draws, dim=features, announced=True, space=space, ball=ball)


def policies(features: int, reading: str) -> list[Policy]:
    """Return the paper's four policies, in the order of ``NAMES``."""
    box = Rectangle(features, MARGIN, anchored=True) if reading != "ball" else BallRectangle(features, MARGIN)
    return [
        OracleRestart(UCB1(ARMS), signal=features),
        BWC(ARMS, classifier=box, test_rounds=TESTED, min_shift=0.1, merge_phases=reading != "faithful"),
        UCB1(ARMS),
        EXP3S.from_horizon(ARMS, HORIZON, 10),
    ]


def column(fraction: float, features: int, setup: study.Setup, checkpoints: int = 1) -> SimulationResult:
    """Simulate one column of a table."""
    queries = environment(fraction, features, setup.reading)
    return study.play(policies(features, setup.reading), queries, HORIZON, setup, checkpoints)


def _cells(
    name: str, value: float, result: SimulationResult, paper: Any, setup: study.Setup
) -> list[study.Cell]:
    """Return the cells of one column; ``paper`` holds the printed thousands."""
    cells = study.regret_cells(NAMES, result.regret[:, :, -1], reading=setup.reading, **{name: value})
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
    cells = _cells("fraction", 0.1, result, None, setup)
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
    """Final regret over the fraction of queries that shift, by all readings."""
    cells = []
    for reading in READINGS:
        for fraction, paper in PAPER_FRACTIONS.items():
            cells += _with_labels(fraction, paper, setup._replace(reading=reading))
    title = "Syed et al. (2009), figure 2b: final regret by fraction of shifting queries"
    label = "fraction of the queries that shift"
    return _final("fraction", label, cells, title, setup, _labels(cells, setup))


def _final(
    name: str, label: str, cells: list[study.Cell], title: str, setup: study.Setup, more: str = ""
) -> study.Reproduction:
    """Return what came of final regrets over a quantity of this name."""
    mine = study.select(cells, reading=setup.reading)
    text = _report(title, setup, _table(name, mine), _orderings(name, mine) + more)
    return study.Reproduction(cells, text, _drawing(name, label, mine), _settings(setup))


LABELLING = ("events", "noticed", "testing", "missed", "false_labels", "contaminated")


def _with_labels(fraction: float, paper: Any, setup: study.Setup) -> list[study.Cell]:
    """Return a column's cells and what became of BWC's events and labels in it, means per run."""
    found = _cells("fraction", fraction, column(fraction, 10, setup), paper, setup)
    bwc = policies(10, setup.reading)[NAMES.index("BWC")]
    assert isinstance(bwc, BWC)
    counts = means(dissect_all(bwc, environment(fraction, 10, setup.reading), HORIZON, setup))
    labels = {key: counts[key] for key in LABELLING}
    none = dict.fromkeys(LABELLING)
    return [cell | (labels if cell["policy"] == "BWC" else none) for cell in found]


def _labels(cells: list[study.Cell], setup: study.Setup) -> str:
    """Return what became of BWC's events and labels, and of its regret by other readings."""

    def tell(cell: study.Cell) -> str:
        labels = f" ({cell['contaminated']:.1f})" if cell["policy"] == "BWC" else ""
        return f"{cell['regret_mean'] / 1000:.1f}{labels}"

    columns = {"fraction": "{fraction:g}"} | {key: f"{{{key}:.1f}}" for key in LABELLING}
    mine = study.table(study.select(cells, policy="BWC", reading=setup.reading), columns)
    both = [cell for cell in cells if cell["policy"] in ("ORA", "BWC")]
    readings = study.pivot(both, ("reading", "policy"), "fraction", tell)
    return "\n\n" + study.report("syed2009_contamination", setup, mine=mine, readings=readings)


def figure_2c(setup: study.Setup) -> study.Reproduction:
    """Final regret over the number of features."""
    cells = []
    for features, paper in PAPER_FEATURES.items():
        cells += _cells("features", features, column(0.1, features, setup), paper, setup)
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
