"""What imperfect warnings of an event do to each policy that could follow shifting intent.

Queries with Zipf(1) traffic, some of which shift one to ten times; the warnings that come
with an event are perfect in one column and worse in the others, down to pure noise. Each regret
is a multiple of that of ORA with the same base bandit, on the same impressions and chances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers import Rectangle
from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import choose, learn, restart
from tacit.environments import ShiftingArms
from tacit.policies import (
    BWC,
    CUSUMUCB,
    GLRKLUCB,
    KLUCB,
    MUCB,
    UCB1,
    About,
    DiscountedUCB,
    Impression,
    OracleRestart,
    Policy,
    ProbationBandit,
    SlidingWindowUCB,
    Thompson,
)
from tacit.policies.base import Outcome
from tacit.policies.shifting.detector import forced_arm
from tacit.policies.shifting.glr_kl_ucb import ABOVE, BELOW, Hull, extend, likelihood_ratio
from tacit.policies.shifting.restarting import Restarting, check_restartable
from tacit.reproduce.report import Item, Reproduction, Setup
from tacit.reproduce.study import markdown_table
from tacit.simulation import simulate, standard_error

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

    class Params(NamedTuple):
        policy: Any
        alpha: float
        delta: float

    class State(NamedTuple):
        policy: Any
        hull: Hull
        shown: Ints
        restarts: Ints

    about: ClassVar[About] = About(
        source="the test of Besson, Kaufmann, Maillard, Seznec (2022), around any policy",
        regret="none proved but around kl-UCB, where it is GLRKLUCB's",
        assumes="click probabilities that are constant between abrupt events",
        fails="restarts on drift, again and again, or not at all where it is slow",
        otherwise="ProbationBandit where contexts announce events",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Policy
    alpha: float = 0.005
    delta: float = 1e-3

    def __post_init__(self) -> None:
        check_restartable("policy", self.policy)
        self._set("arms", self.policy.arms)
        self._set("alpha", checks.number("alpha", self.alpha, 0.0, 1.0))
        self._set("delta", checks.number("delta", self.delta, 0.0, 1.0, open_low=True))

    def with_arms(self, arms: int | tuple[str, ...]) -> Self:
        return replace(self, policy=self.policy.with_arms(arms))

    @cached_property
    def params(self) -> Params:
        return self.Params(self.policy.params, self.alpha, self.delta)

    def init(self, lanes: int) -> State:
        hull = GLRKLUCB(self.arms).init(lanes).hull
        inner = self.policy.init(lanes)
        return self.State(inner, hull, np.zeros(lanes, np.int64), np.zeros(lanes, np.int64))

    @staticmethod
    def observe(params: Params, state: State, lane: int, impression: Impression) -> None:
        state.shown[lane] += 1

    @staticmethod
    def choose(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator
    ) -> int:
        arms = state.hull.sizes.shape[1]
        forced = forced_arm(params.alpha, state.shown[lane], arms, impression)
        if forced >= 0:
            return forced
        return int(choose(params.policy, state.policy, lane, impression, rng))

    @staticmethod
    def propensity(
        params: Params, state: State, lane: int, impression: Impression, arm: int
    ) -> float:
        return float(np.nan)

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        arm = outcome.shown
        learn(params.policy, state.policy, lane, outcome)
        hull = state.hull
        last = hull.sizes[lane, arm, BELOW] - 1
        plays = hull.times[lane, arm, BELOW, last] + 1.0
        total = hull.sums[lane, arm, BELOW, last] + outcome.reward
        extend(hull, lane, arm, BELOW, plays, total)
        extend(hull, lane, arm, ABOVE, plays, -total)
        if likelihood_ratio(hull, lane, arm) >= np.log(3.0 * plays * np.sqrt(plays) / params.delta):
            hull.sizes[lane] = 1
            restart(params.policy, state.policy, lane)
            state.restarts[lane] += 1

    @staticmethod
    def epoch(params: Params, state: State, lane: int) -> int:
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
    policy: Policy
    reads: bool


def entrants(scale: Scale) -> list[Entrant]:
    """Return all rows, each ORA before what is compared with it."""
    rectangle = Rectangle(dim=FEATURES, margin=MARGIN, anchored=True)
    bases = {"UCB1": UCB1(ARMS), "KL-UCB": KLUCB(ARMS), "Thompson": Thompson(ARMS)}
    a_query = scale.horizon // scale.queries
    rows = [
        Entrant("ORA", base, OracleRestart(policy, signal=FEATURES), True)
        for base, policy in bases.items()
    ]
    rows += [Entrant("plain", base, policy, False) for base, policy in bases.items()]
    for merged in (True, False):
        policy = BWC(
            policy=bases["UCB1"],
            classifier=rectangle,
            test_rounds=500,
            min_shift=0.1,
            merge_phases=merged,
        )
        reading = "merged" if merged else "faithful"
        rows.append(Entrant(f"BWC, {reading}", "UCB1", policy, True))
    for name, base in (("thompson", "Thompson"), ("kl-ucb", "KL-UCB")):
        weighing = ProbationBandit(ARMS, classifier=rectangle, base=name)
        rows.append(Entrant(PROBATION, base, weighing, True))
    rows += [
        Entrant("GLR", "UCB1", RatioRestart(bases["UCB1"]), False),
        Entrant("GLR", "KL-UCB", GLRKLUCB(ARMS), False),
        Entrant("GLR", "Thompson", RatioRestart(bases["Thompson"]), False),
        Entrant(UNFORCED, "UCB1", RatioRestart(bases["UCB1"], alpha=0.0), False),
        Entrant(UNFORCED, "KL-UCB", GLRKLUCB(ARMS, alpha=0.0), False),
        Entrant(UNFORCED, "Thompson", RatioRestart(bases["Thompson"], alpha=0.0), False),
        Entrant("CUSUM-UCB", "UCB1", CUSUMUCB.tuned(ARMS, a_query, SHIFTS), False),
        Entrant("M-UCB", "UCB1", MUCB.tuned(ARMS, a_query, SHIFTS), False),
        Entrant("discounted UCB", "UCB1", DiscountedUCB.tuned(ARMS, a_query, SHIFTS), False),
        Entrant("sliding window", "UCB1", SlidingWindowUCB.tuned(ARMS, a_query, SHIFTS), False),
        Entrant("discounted", "Thompson", Thompson(ARMS, discount=0.998), False),
    ]
    return rows


def environment(fraction: float, signals: str, events: str, queries: int) -> ShiftingArms:
    """Return the queries of one cell."""
    return ShiftingArms(
        arms=ARMS,
        keys=queries,
        shifting=fraction,
        dim=FEATURES,
        margin=MARGIN,
        stealthy=events == "stealth",
        announced=True,
        **SIGNALS[signals],
    )


def play(fraction: float, signals: str, events: str, setup: Setup) -> dict[tuple[str, str], Floats]:
    """Return the final regret of each run by name and base."""
    scale = SCALES[setup.reading]
    taking_part = [row for row in entrants(scale) if row.reads or signals == "clean"]
    result = simulate(
        [row.policy for row in taking_part],
        environment(fraction, signals, events, scale.queries),
        scale.horizon,
        runs=setup.runs,
        seed=setup.seed,
        workers=setup.workers,
        checkpoints=1,
    )
    return {
        (row.name, row.base): regret
        for row, regret in zip(taking_part, result.regret[:, :, -1], strict=True)
    }


# What came of it -------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """A mean regret as a multiple of another, and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def paired_ratio(regret: Floats, oracle: Floats) -> Ratio:
    """Return the ratio of two means over the same runs, its error by the delta method."""
    ratio = float(regret.mean() / oracle.mean())
    return Ratio(ratio, standard_error(regret - ratio * oracle) / float(oracle.mean()))


def cells_of(
    events: str, signals: str, fraction: float, regrets: dict[tuple[str, str], Floats]
) -> list[dict[str, Any]]:
    """Return one row for each policy of a cell."""
    cells = []
    for (name, base), regret in regrets.items():
        ratio = paired_ratio(regret, regrets["ORA", base])
        cells.append(
            {
                "events": events,
                "signals": signals,
                "fraction": fraction,
                "policy": name,
                "base": base,
                "regret_mean": float(regret.mean()),
                "regret_se": standard_error(regret),
                "ratio": ratio.value,
                "ratio_se": ratio.error,
                "runs": len(regret),
            }
        )
    return cells


class Table:
    """Ratios by policy, base, kind of event, signals and fraction."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        names = ("policy", "base", "events", "signals", "fraction")
        self.ratios = {
            tuple(cell[name] for name in names): Ratio(cell["ratio"], cell["ratio_se"])
            for cell in cells
        }
        self.rows = list(dict.fromkeys((cell["policy"], cell["base"]) for cell in cells))

    def ratio(self, row: tuple[str, str], events: str, signals: str, fraction: float) -> Ratio:
        """Return a ratio; what reads no contexts has one for all signals."""
        found = self.ratios.get((*row, events, signals, fraction))
        return found or self.ratios[*row, events, "clean", fraction]

    def markdown(self, events: str, fraction: float) -> str:
        """Return all policies and signals at a fraction."""
        rows = [["policy", "base", *SIGNALS]]
        for name, base in self.rows:
            if name != "ORA":
                ratios = [self.ratio((name, base), events, s, fraction) for s in SIGNALS]
                rows.append([name, base, *map(str, ratios)])
        return markdown_table(rows)


class Target(NamedTuple):
    """What a cell was meant to reach, and did or did not.

    Attributes
    ----------
    what : str
    events, signals : str
    fraction : float
    base : str
    reached : Ratio
    bound : float
    """

    what: str
    events: str
    signals: str
    fraction: float
    base: str
    reached: Ratio
    bound: float

    @property
    def verdict(self) -> str:
        """In words; within two standard errors counts for neither side."""
        if self.reached.value <= self.bound:
            return "reached"
        near = self.reached.value - 2.0 * self.reached.error <= self.bound
        return "not reached, but within two standard errors" if near else "not reached"


def targets(table: Table) -> list[Target]:
    """Return every target of ProbationBandit with both bases, in the table's order."""
    found = []
    for base in ("Thompson", "KL-UCB"):
        for events in EVENTS:
            for fraction in FRACTIONS:
                ratios = {s: table.ratio((PROBATION, base), events, s, fraction) for s in SIGNALS}
                detector = table.ratio(("GLR", base), events, "clean", fraction).value
                for signals, ratio in ratios.items():
                    if fraction == 0.0:
                        what, bound = "1.03 × plain", 1.03
                    elif signals == "clean":
                        stealth = events == "stealth"
                        what, bound = ("1.3 × ORA", 1.3) if stealth else ("1.2 × ORA", 1.2)
                    else:
                        what = "1.05 × the better of GLR and its own clean"
                        bound = 1.05 * min(detector, ratios["clean"].value)
                    found.append(Target(what, events, signals, fraction, base, ratio, bound))
    return found


def verdicts(found: list[Target]) -> str:
    """Return the targets as a table: a row for each column of signals, fractions beside it."""
    rows = [["base", "events", "signals", *(f"fraction {f:g}" for f in FRACTIONS)]]
    for base in ("Thompson", "KL-UCB"):
        for events in EVENTS:
            for signals in SIGNALS:
                mine = [
                    t for t in found if (t.base, t.events, t.signals) == (base, events, signals)
                ]
                texts = [
                    f"{t.reached} of {t.bound:.2f}" + ("" if t.verdict == "reached" else " ✗")
                    for t in mine
                ]
                rows.append([base, events, signals, *texts])
    return markdown_table(rows)


def summary(found: list[Target]) -> str:
    """Say how many targets of each kind were reached."""
    kinds: dict[str, Callable[[Target], bool]] = {
        "without events, at most 1.03 times the plain base": lambda t: t.fraction == 0.0,
        "clean signals, at most 1.2 times ORA": lambda t: t.what == "1.2 × ORA",
        "clean signals and stealthy events, at most 1.3 times ORA": lambda t: t.what == "1.3 × ORA",
        "imperfect signals, at most 1.05 times the better of GLR with the same base and its own "
        "result with clean signals": lambda t: t.fraction > 0.0 and t.signals != "clean",
    }
    lines = []
    for text, belongs in kinds.items():
        mine = [target for target in found if belongs(target)]
        reached = sum(target.verdict == "reached" for target in mine)
        near = sum("within" in target.verdict for target in mine)
        lines.append(
            f"- {text}: reached in {reached} of {len(mine)} cells"
            + (f", missed by less than two standard errors in {near} more." if near else ".")
        )
    return "\n".join(lines)


def report(setup: Setup, table: Table) -> str:
    """Return the report."""
    found = targets(table)
    queries, horizon = SCALES[setup.reading]
    tables = "\n\n".join(
        f"### {events.capitalize()} events, fraction {fraction:g}\n\n"
        + table.markdown(events, fraction)
        for events in EVENTS
        for fraction in FRACTIONS
    )
    return f"""# Imperfect warnings of shifting intent

{queries} queries, Zipf(1) traffic, {horizon:,} impressions, {ARMS} results; a fraction of the
queries shift 1 to 10 times. {setup.runs} runs with fresh instances (seed {setup.seed}). Every
number is a mean final regret as a multiple of that of ORA (told of every event) **with the same
base bandit** on the same impressions and chances, with the standard error of the ratio. *Plain*
events redraw all click probabilities; *stealth* events leave the shown result's as it is and lift
another above it by 0.10 to 0.15, where there is room. Contexts have {FEATURES} numbers, and every
classifier is an anchored rectangle with margin {MARGIN:g}: right for the first four kinds of
signals, wrong for oblique, gaussian and noise.

Policies that read no contexts are the same in law whatever the signals; they were simulated with
clean ones and that ratio stands in all columns. GLR is GLRKLUCB, or its test and forced exploration
around the base (α = 0.005, or 0 where it says so; δ = 0.001); CUSUM-UCB, M-UCB, discounted UCB and
the sliding window exist with UCB1 only and have their published parameters for
{horizon // queries:,} rounds with {SHIFTS} shifts; discounted Thompson has 0.998. BWC has the
paper's UCB1, L = 500 and ε = 0.1.

## Targets of ProbationBandit

{summary(found)}

Each cell: reached, of the most that the target allows; ✗ where it is not reached.

{verdicts(found)}

## All policies

{tables}
"""


def draw(table: Table, path: Path) -> Path:
    """Draw the ratios at a fraction of 1/4: one panel for each kind of event."""
    from tacit.plots import COLOURS, figure, save

    marks = (
        (PROBATION, "Thompson", "o", 0),
        (PROBATION, "KL-UCB", "o", 1),
        ("GLR", "Thompson", "_", 0),
        ("GLR", "KL-UCB", "_", 1),
        (UNFORCED, "KL-UCB", "+", 1),
        ("BWC, merged", "UCB1", "s", 2),
        ("BWC, faithful", "UCB1", "D", 3),
        ("plain", "Thompson", "x", 0),
        ("plain", "KL-UCB", "x", 1),
    )
    shown = [mark for mark in marks if mark[:2] in table.rows]
    drawing, axes = figure(8.0, 7.6, rows=2, sharex=True)
    for ax, events in zip(axes, EVENTS, strict=True):
        for i, (name, base, marker, colour) in enumerate(shown):
            ratios = [table.ratio((name, base), events, signals, 0.25) for signals in SIGNALS]
            ax.errorbar(
                [x + (i - (len(shown) - 1) / 2) * 0.09 for x in range(len(SIGNALS))],
                [ratio.value for ratio in ratios],
                [2.0 * ratio.error for ratio in ratios],
                ls="none",
                marker=marker,
                color=COLOURS[colour],
                ms=6,
                capsize=2,
                label=f"{name} ({base})",
            )
        ax.axhline(1.0, color="black", lw=0.8)
        ax.set_yscale("log")
        ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        ax.minorticks_off()
        ax.set_ylabel("regret ÷ that of ORA, same base")
        ax.set_title(f"{events} events, a quarter of the queries shift", size=10, loc="left")
    axes[1].set_xticks(range(len(SIGNALS)), [name.replace(" ", "\n", 1) for name in SIGNALS])
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return save(drawing, path)


def reproduce(setup: Setup) -> Reproduction:
    """Play all cells."""
    cells = [
        cell
        for events in EVENTS
        for signals in SIGNALS
        for fraction in FRACTIONS
        for cell in cells_of(events, signals, fraction, play(fraction, signals, events, setup))
    ]
    table = Table(cells)
    settings = {
        "seed": setup.seed,
        "runs": setup.runs,
        "reading": setup.reading,
        "horizon": SCALES[setup.reading].horizon,
        "queries": SCALES[setup.reading].queries,
        "arms": ARMS,
        "features": FEATURES,
        "margin": MARGIN,
    }
    return Reproduction(cells, report(setup, table), lambda path: draw(table, path), settings)


EVENTFUL_ROBUSTNESS = Item(
    "Imperfect warnings: every policy for shifting intent as multiples of its oracle",
    12,
    reproduce,
    tuple(SCALES),
)
