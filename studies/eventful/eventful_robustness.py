"""What imperfect warnings of an event do to each policy that could follow shifting intent.

Queries with Zipf(1) traffic, some of which shift one to ten times; the warnings that come
with an event are perfect in one column and worse in the others, down to pure noise. Each regret
is a multiple of that of ORA with the same base bandit, on the same impressions and chances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from studies import study
from tacit import policies
from tacit.classifiers import Rectangle
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import choose, learn, restart
from tacit.core.part import Fraction, PositiveFraction, set_field
from tacit.environments import ShiftingArms
from tacit.plots import assign_line_styles
from tacit.policies import baselines
from tacit.policies.base import Outcome
from tacit.policies.baselines.detector_ucb import explore_in_turn
from tacit.policies.baselines.glr_kl_ucb import ABOVE, BELOW, Hull, extend_hull, likelihood_ratio
from tacit.policies.shifting.restarting import Restarting, check_restartable
from tacit.simulation import standard_error

ARMS, FEATURES, MARGIN = 5, 5, 0.1


class Scale(NamedTuple):
    """How many queries share how many impressions."""

    queries: int
    horizon: int


SCALES = {"practical": Scale(16, 120_000), "full": Scale(50, 500_000)}
"""By reading; ``full`` takes some four times as long."""

SHIFTS = 5  # a shifting query's mean number of events, which the published rules ask for
FRACTIONS = (0.0, 0.125, 0.25, 0.5)
EVENTS = ("plain", "stealth")
SIGNALS: dict[str, dict[str, Any]] = {
    "clean": {},
    "false alarms 1e-4": {"false_alarms": 1e-4},
    "false alarms 1e-3": {"false_alarms": 1e-3},
    "20 % missed": {"missed": 0.2},
    "oblique": {"signals": "oblique"},
    "gaussian": {"signals": "gaussian"},
    "noise": {"signals": "noise"},
}
PROBATION, UNFORCED = "ProbationBandit", "GLR, α = 0"


# The context-free detector, for any base -------------------------------------------------------


@dataclass(frozen=True)
class RatioRestart(Restarting):
    """Restart any policy by GLRKLUCB's test, with its forced exploration and its defaults.

    Parameters
    ----------
    policy : Policy
        What is restarted.
    alpha : float, default 0.005
        Share of forced exploration, in [0, 1].
    delta : float, default 0.001
        The δ of the threshold, in (0, 1].

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy cannot be restarted.
    """

    class State(NamedTuple):
        policy: Any
        hull: Hull
        shown: Ints
        restarts: Ints

    about: ClassVar[policies.About] = policies.About(
        source="the test of Besson, Kaufmann, Maillard, Seznec (2022), around any policy",
        regret="none proved but around kl-UCB, where it is GLRKLUCB's",
        assumes="click probabilities that are constant between abrupt events",
        fails="restarts on drift, again and again, or not at all where it is slow",
        otherwise="ProbationBandit where contexts announce events",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: policies.Policy
    alpha: Fraction = 0.005
    delta: PositiveFraction = 1e-3

    def __post_init__(self) -> None:
        check_restartable(self.policy)
        super().__post_init__()
        set_field(self, "arms", self.policy.arms)

    def init(self, lanes: int) -> State:
        hull = baselines.GLRKLUCB(self.arms).init(lanes).hull
        inner = self.policy.init(lanes)
        return self.State(inner, hull, np.zeros(lanes, np.int64), np.zeros(lanes, np.int64))

    @staticmethod
    def observe(params: RatioRestart, state: State, lane: int, impression: policies.Impression) -> None:
        state.shown[lane] += 1

    @staticmethod
    def choose(
        params: RatioRestart, state: State, lane: int, impression: policies.Impression, rng: Generator
    ) -> int:
        arms = state.hull.sizes.shape[1]
        forced = explore_in_turn(params.alpha, state.shown[lane], arms, impression)
        if forced >= 0:
            return forced
        return int(choose(params.policy, state.policy, lane, impression, rng))

    @staticmethod
    def propensity(
        params: RatioRestart, state: State, lane: int, impression: policies.Impression, arm: int
    ) -> float:
        return float(np.nan)

    @staticmethod
    def learn(params: RatioRestart, state: State, lane: int, outcome: Outcome) -> None:
        arm = outcome.shown
        learn(params.policy, state.policy, lane, outcome)
        hull = state.hull
        last = hull.sizes[lane, arm, BELOW] - 1
        plays = hull.times[lane, arm, BELOW, last] + 1.0
        total = hull.sums[lane, arm, BELOW, last] + outcome.reward
        extend_hull(hull, lane, arm, BELOW, plays, total)
        extend_hull(hull, lane, arm, ABOVE, plays, -total)
        if likelihood_ratio(hull, lane, arm) >= np.log(3.0 * plays * np.sqrt(plays) / params.delta):
            hull.sizes[lane] = 1
            restart(params.policy, state.policy, lane)
            state.restarts[lane] += 1

    @staticmethod
    def epoch(params: RatioRestart, state: State, lane: int) -> int:
        return int(state.restarts[lane])


# Who takes part --------------------------------------------------------------------------------


class Entrant(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    name, base : str
        What the policy is called, and the base bandit with whose ORA it is compared.
    policy : Policy
    reads : bool
        Whether it reads contexts. Where not, it is the same in law in all columns of a kind of
        event, and is simulated in the clean one.
    """

    name: str
    base: str
    policy: policies.Policy
    reads: bool


def entrants(scale: Scale) -> list[Entrant]:
    """Return all rows, each ORA before what is compared with it."""
    rectangle = Rectangle(dim=FEATURES, margin=MARGIN, anchored=True)
    bases = {"UCB1": policies.UCB1(ARMS), "KL-UCB": policies.KLUCB(ARMS), "Thompson": policies.Thompson(ARMS)}
    told = ARMS, scale.horizon // scale.queries, SHIFTS
    rows = [
        Entrant("ORA", base, policies.OracleRestart(policy, signal=FEATURES), True)
        for base, policy in bases.items()
    ]
    rows += [Entrant("plain", base, policy, False) for base, policy in bases.items()]
    for merged in (True, False):
        policy = policies.BWC(
            policy=bases["UCB1"], classifier=rectangle, test_rounds=500, min_shift=0.1, merge_phases=merged
        )
        reading = "merged" if merged else "faithful"
        rows.append(Entrant(f"BWC, {reading}", "UCB1", policy, True))
    for name, base in (("thompson", "Thompson"), ("kl-ucb", "KL-UCB")):
        weighing = policies.ProbationBandit(ARMS, classifier=rectangle, base=name)
        rows.append(Entrant(PROBATION, base, weighing, True))
    rows.append(Entrant("auto", "Thompson", policies.auto(ARMS, signals_dim=FEATURES), True))
    rows += [
        Entrant("GLR", "UCB1", RatioRestart(bases["UCB1"]), False),
        Entrant("GLR", "KL-UCB", baselines.GLRKLUCB(ARMS), False),
        Entrant("GLR", "Thompson", RatioRestart(bases["Thompson"]), False),
        Entrant(UNFORCED, "UCB1", RatioRestart(bases["UCB1"], alpha=0.0), False),
        Entrant(UNFORCED, "KL-UCB", baselines.GLRKLUCB(ARMS, alpha=0.0), False),
        Entrant(UNFORCED, "Thompson", RatioRestart(bases["Thompson"], alpha=0.0), False),
        Entrant("CUSUM-UCB", "UCB1", baselines.CUSUMUCB.from_horizon(*told), False),
        Entrant("M-UCB", "UCB1", baselines.MUCB.from_horizon(*told), False),
        Entrant("discounted UCB", "UCB1", baselines.DiscountedUCB.from_horizon(*told), False),
        Entrant("sliding window", "UCB1", baselines.SlidingWindowUCB.from_horizon(*told), False),
        Entrant("discounted", "Thompson", policies.Thompson(ARMS, discount=0.998), False),
    ]
    return rows


def environment(fraction: float, signals: str, events: str, queries: int) -> ShiftingArms:
    """Return the queries of one cell."""
    contexts: dict[str, Any] = {"dim": FEATURES, "margin": MARGIN, "announced": True} | SIGNALS[signals]
    return ShiftingArms(ARMS, queries, fraction, stealthy=events == "stealth", **contexts)


def played(fraction: float, signals: str, events: str, setup: study.Setup) -> dict[tuple[str, str], Floats]:
    """Return the final regret of each run by name and base."""
    scale = SCALES[setup.reading]
    taking_part = [row for row in entrants(scale) if row.reads or signals == "clean"]
    queries = environment(fraction, signals, events, scale.queries)
    found = study.play([row.policy for row in taking_part], queries, scale.horizon, setup)
    names = [(row.name, row.base) for row in taking_part]
    return dict(zip(names, found.regret[:, :, -1], strict=True))


# What came of it -------------------------------------------------------------------------------


def cells_of(
    events: str, signals: str, fraction: float, regrets: dict[tuple[str, str], Floats]
) -> list[study.Cell]:
    """Return one row for each policy of a setting."""
    cells = []
    for (name, base), regret in regrets.items():
        ratio, error = study.ratio_of(regret, regrets["ORA", base])
        cells.append(
            {
                "events": events,
                "signals": signals,
                "fraction": fraction,
                "policy": name,
                "base": base,
                "regret_mean": float(regret.mean()),
                "regret_se": standard_error(regret),
                "ratio": ratio,
                "ratio_se": error,
                "runs": len(regret),
            }
        )
    return cells


def completed(cells: list[study.Cell]) -> list[study.Cell]:
    """Return the cells with those of policies that read no contexts in every column of signals."""
    reading = {(c["policy"], c["base"]) for c in cells if c["signals"] != "clean"}
    everywhere = [
        [cell["signals"]] if (cell["policy"], cell["base"]) in reading else list(SIGNALS) for cell in cells
    ]
    return [cell | {"signals": name} for cell, names in zip(cells, everywhere, strict=True) for name in names]


def shown_ratio(cell: study.Cell) -> str:
    """Return a ratio and its standard error."""
    return f"{cell['ratio']:.2f} ± {cell['ratio_se']:.2f}"


# What ProbationBandit is meant to reach, in words.
QUIET = "without events, at most 1.03 times the plain base"
CLEAN = "clean signals, at most 1.2 times ORA"
STEALTHY = "clean signals and stealthy events, at most 1.3 times ORA"
IMPERFECT = (
    "imperfect signals, at most 1.05 times the better of GLR with the same base and its own "
    "result with clean signals"
)


def targets(cells: list[study.Cell]) -> list[study.Cell]:
    """Return ProbationBandit's cells with what each was meant to reach, and the bound."""
    found = []
    for cell in study.select(cells, policy=PROBATION):
        setting = {name: cell[name] for name in ("events", "fraction", "base")}
        if cell["fraction"] == 0.0:
            what, bound = QUIET, 1.03
        elif cell["signals"] == "clean":
            what, bound = (STEALTHY, 1.3) if cell["events"] == "stealth" else (CLEAN, 1.2)
        else:
            rivals = (
                study.only(cells, policy=name, signals="clean", **setting)["ratio"]
                for name in ("GLR", PROBATION)
            )
            what, bound = IMPERFECT, 1.05 * min(rivals)
        found.append(cell | {"what": what, "bound": bound})
    order = {base: i for i, base in enumerate(("Thompson", "KL-UCB"))}
    return sorted(found, key=lambda cell: order[cell["base"]])


def summary(found: list[study.Cell]) -> str:
    """Return, in words, how many targets of each kind were reached."""
    lines = []
    for what in (QUIET, CLEAN, STEALTHY, IMPERFECT):
        mine = study.select(found, what=what)
        missed = [cell for cell in mine if cell["ratio"] > cell["bound"]]
        near = sum(cell["ratio"] - 2.0 * cell["ratio_se"] <= cell["bound"] for cell in missed)
        also = f", missed by less than two standard errors in {near} more." if near else "."
        reached = len(mine) - len(missed)
        lines.append(f"{what}: reached in {reached} of {len(mine)} cells{also}")
    return study.listed(lines)


def verdict(cell: study.Cell) -> str:
    """Return, in words, what was reached, of how much."""
    reached = cell["ratio"] <= cell["bound"]
    return f"{shown_ratio(cell)} of {cell['bound']:.2f}" + ("" if reached else " ✗")


def written(setup: study.Setup, cells: list[study.Cell]) -> str:
    """Return the report."""
    found = targets(cells)
    scale = SCALES[setup.reading]
    others = [cell for cell in cells if cell["policy"] != "ORA"]
    tables = "\n\n".join(
        f"### {events.capitalize()} events, fraction {fraction:g}\n\n"
        + study.pivot(
            study.select(others, events=events, fraction=fraction), ("policy", "base"), "signals", shown_ratio
        )
        for events in EVENTS
        for fraction in FRACTIONS
    )
    return study.report(
        "eventful_robustness",
        setup,
        scale=scale,
        a_query=scale.horizon // scale.queries,
        arms=ARMS,
        features=FEATURES,
        margin=MARGIN,
        shifts=SHIFTS,
        summary=summary(found),
        verdicts=study.pivot(found, ("base", "events", "signals"), "fraction", verdict, "fraction {:g}"),
        tables=tables,
    )


def draw(cells: list[study.Cell], path: Path) -> None:
    """Draw the ratios at a fraction of 1/4: one panel for each kind of event."""
    # A base is known by its colour, what is done with it by its mark.
    marks = (
        (PROBATION, "Thompson", "o"),
        (PROBATION, "KL-UCB", "o"),
        ("GLR", "Thompson", "v"),
        ("GLR", "KL-UCB", "v"),
        (UNFORCED, "KL-UCB", "^"),
        ("BWC, merged", "UCB1", "s"),
        ("BWC, faithful", "UCB1", "D"),
        ("plain", "Thompson", "x"),
        ("plain", "KL-UCB", "x"),
    )
    colours = {base: look["color"] for base, look in assign_line_styles(mark[1] for mark in marks).items()}
    quarter = study.select(cells, fraction=0.25)
    shown = [mark for mark in marks if study.select(quarter, policy=mark[0], base=mark[1])]
    with study.drawing(path, 8.0, 7.6, rows=2, sharex=True) as axes:
        for ax, events in zip(axes, EVENTS, strict=True):
            for i, (name, base, marker) in enumerate(shown):
                mine = study.select(quarter, policy=name, base=base, events=events)
                x = [place + (i - (len(shown) - 1) / 2) * 0.09 for place in range(len(SIGNALS))]
                bars = [2.0 * cell["ratio_se"] for cell in mine]
                style = {"ls": "none", "marker": marker, "color": colours[base], "ms": 6}
                label = f"{name} ({base})"
                ax.errorbar(x, [c["ratio"] for c in mine], bars, capsize=2, label=label, **style)
            ax.axhline(1.0, color="black", lw=0.8)
            study.inscribe(ax, yscale="log", ylabel="regret ÷ that of ORA, same base")
            ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
            ax.minorticks_off()
            title = f"{events} events, a quarter of the queries shift"
            ax.set_title(title, size=10, loc="left")
        axes[1].set_xticks(range(len(SIGNALS)), [name.replace(" ", "\n", 1) for name in SIGNALS])
        study.legend_below(axes, ncols=3, fontsize=9)


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play all settings."""
    cells = [
        cell
        for events in EVENTS
        for signals in SIGNALS
        for fraction in FRACTIONS
        for cell in cells_of(events, signals, fraction, played(fraction, signals, events, setup))
    ]
    queries, horizon = SCALES[setup.reading]
    given = {"horizon": horizon, "queries": queries, "arms": ARMS, "features": FEATURES, "margin": MARGIN}
    settings = setup.settings(reading=setup.reading, **given)
    everything = completed(cells)
    return study.Reproduction(cells, written(setup, everything), partial(draw, everything), settings)


EVENTFUL_ROBUSTNESS = study.Item(
    "Imperfect warnings: every policy for shifting intent as multiples of its oracle",
    12,
    reproduce,
    tuple(SCALES),
)
