"""The theorems of Syed, Slivkins, Mishra (2009), checked by simulation."""

# A theorem a section, each measured by runs that the paper's assumptions hold for; the report is last.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from studies import study
from studies.eventful import theory
from tacit.classifiers import Rectangle
from tacit.core.arrays import Booleans, Floats, Generator
from tacit.environments import BernoulliArms, Environment, ShiftingArms
from tacit.plots import COLOURS, assign_line_styles
from tacit.policies import BWC, KLUCB, UCB1, OracleRestart, Policy, TestableUCB1, Thompson
from tacit.policies.base import Impression
from tacit.policies.baselines import GLRKLUCB
from tacit.policies.index import greedy_choice
from tacit.simulation import Run, standard_error

TITLE = "Syed et al. (2009): the theorems, checked by simulation"
NORMAL_AND_LOUD = Rectangle(dim=1, margin=0.5, anchored=True)
"""For contexts of one number that is 1 at an event and 0 otherwise."""


def _cell(
    check: str, policy: str, rounds: int, value: float, ends: tuple[float, float], **more: Any
) -> dict[str, Any]:
    """Return one number with its interval; ``more`` holds the runs and perhaps a bound."""
    low, high = ends
    row = {"check": check, "policy": policy, "rounds": rounds, "value": value}
    return row | {"low": low, "high": high, "bound": more.get("bound"), "runs": more["runs"]}


def _within(values: Floats) -> tuple[float, tuple[float, float]]:
    """Return the mean and an interval of two standard errors."""
    mean, error = float(values.mean()), standard_error(values)
    return mean, (mean - 2.0 * error, mean + 2.0 * error)


# Theorems 2 and 3 -----------------------------------------------------------------------------

SHIFT = 0.2
MEANS = (0.6, 0.6, 0.4, 0.4, 0.4)
GUESSED = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600)
GUESS_HORIZON = 30_000
WIDE, LONG = 0.9, 1_000_000
PROVED = 4.0 * theory.ESTIMATE_CONSTANT
"""The constant that the proof of theorem 2 supports for even t: δ(t) over sqrt(n/t·ln(t + t0))."""


@dataclass(frozen=True)
class ExploreFirst(TestableUCB1):
    """The "simple fix" of section 6: for ``explore`` rounds arms at random, then UCB1.

    Its guess compares all arms with the one of the highest mean.
    """

    explore: int = GUESSED[-1]

    @classmethod
    def practical(cls, arms: Any, horizon: int, min_shift: float = 0.1, explore: int = GUESSED[-1]) -> Self:
        return cls(arms, horizon, min_shift, alpha=0.5, t0=0.0, prior_plays=0, explore=explore)

    def guess(self, state: Any, lane: int) -> Any:
        best = np.argmax([self.estimate(self.params, state, lane, arm) for arm in range(self.arm_count)])
        return super().guess(state._replace(late=1 * (np.arange(self.arm_count) == best)[None]), 0)

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        if state.counts.rounds[lane] < params.explore:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        return int(greedy_choice(params, state, lane, impression, rng))


PRESETS: dict[str, Callable[..., TestableUCB1]] = {
    "theory": TestableUCB1.theory,
    "practical": TestableUCB1.practical,
    "explore first": ExploreFirst.practical,
}


def constant_of(policy: TestableUCB1, state: Any, means: tuple[float, ...], rounds: int) -> float:
    """Return the least constant c with |Δ(u) − Δ_t(u)| ≤ Δ(u)/4 + c·sqrt(n/t·ln(t + t0)) for all arms u."""
    estimates = np.array([policy.estimate(policy.params, state, 0, arm) for arm in range(len(means))])
    gaps = max(means) - np.array(means)
    off = np.abs(estimates[policy.guess(state, 0).reference] - estimates - gaps) - gaps / 4.0
    return float(off.max() / math.sqrt(len(means) / rounds * math.log(rounds + policy.rounds_before)))


def is_wrong(policy: TestableUCB1, state: Any, means: tuple[float, ...]) -> bool:
    """Whether a lane's guess breaks definition 1, given the true means."""
    guess, best = policy.guess(state, 0), max(means)
    optimal = {arm for arm, mean in enumerate(means) if mean == best}
    # The means are decimal fractions: a gap of exactly the shift must not be lost to rounding.
    bad = {arm for arm, mean in enumerate(means) if best - mean >= policy.min_shift - 1e-9}
    right = optimal <= guess.plus and bad <= guess.minus
    return not right or bool(optimal & guess.minus or bad & guess.plus)


def guesses(
    policy: TestableUCB1, means: tuple[float, ...], rounds: tuple[int, ...], runs: int, setup: study.Setup
) -> Floats:
    """Return of each run and number of rounds whether the guess is wrong, and theorem 2's constant."""
    environment = BernoulliArms(means)

    def judge(number: int) -> list[tuple[float, float]]:
        nothing = np.empty(0, np.int64)
        run = Run(policy, environment, rounds[-1], setup.seed, number, nothing)
        outcomes = []
        for target in rounds:
            run.advance(target - run.round)
            constant = constant_of(policy, run.state, means, target)
            outcomes.append((float(is_wrong(policy, run.state, means)), constant))
        return outcomes

    return np.array(study.each_run(judge, runs, setup))


def wrong_guesses(setup: study.Setup) -> list[study.Cell]:
    """Judge guesses: over rounds at a usual horizon, and at theorem 3's L at a long one."""
    cells = []
    for name, preset in PRESETS.items():
        policy, runs = preset(len(MEANS), GUESS_HORIZON, SHIFT), 50 * setup.runs
        found = guesses(policy, MEANS, GUESSED, runs, setup)
        paid = study.play(policy, BernoulliArms(MEANS), GUESSED[-1], setup, GUESSED).regret[0]
        for i, rounds in enumerate(GUESSED):
            wrong, constants = found[:, i].T
            ends = study.exact_interval(int(wrong.sum()), runs)
            cells.append(_cell("wrong guess", name, rounds, wrong.mean(), ends, runs=runs))
            mean, ends = _within(paid[:, i])
            cells.append(_cell("regret while guessing", name, rounds, mean, ends, runs=setup.runs))
            if name == "theory":
                ends = float(np.quantile(constants, 0.5)), float(constants.max())
                cells.append(_cell("theorem 2", name, rounds, ends[1], ends, bound=PROVED, runs=runs))
    runs, length = 10 * setup.runs, theory.rounds_to_test(2, WIDE, LONG)
    wide = TestableUCB1.theory(2, LONG, WIDE)
    count = int(guesses(wide, (0.95, 0.05), (length,), runs, setup)[:, 0, 0].sum())
    cells.append(
        _cell(
            "wrong guess at L",
            "theory",
            length,
            count / runs,
            study.exact_interval(count, runs),
            bound=theory.failure_probability(2, length, LONG),
            runs=runs,
        )
    )
    return cells


# Theorems 1 and 4 -----------------------------------------------------------------------------

EVENT_FREE = {2: (0.75, 0.25), 5: (0.75, 0.25, 0.25, 0.25, 0.25)}
BWC_HORIZON = 10_000_000


def regret_within_bounds(setup: study.Setup) -> list[study.Cell]:
    """Play the testable bandit without events, and BWC over it with one, beside their bounds."""
    cells = []

    def measure(check: str, policy: Policy, environment: Environment, horizon: int, bound: float) -> None:
        mean, ends = _within(study.play(policy, environment, horizon, setup).regret[0, :, -1])
        name = type(policy).__name__
        cells.append(_cell(check, name, horizon, mean, ends, bound=bound, runs=setup.runs))

    for arms, means in EVENT_FREE.items():
        bound = theory.event_free_regret(arms, 0.5, LONG, t0=LONG)
        policy = TestableUCB1.theory(arms, LONG)
        measure(f"equation 5, {arms} arms", policy, BernoulliArms(means), LONG, bound)
    bwc = BWC(
        classifier=NORMAL_AND_LOUD,
        policy=TestableUCB1.theory(2, BWC_HORIZON, WIDE),
        test_rounds=theory.rounds_to_test(2, WIDE, BWC_HORIZON),
        min_shift=WIDE,
        merge_phases=False,
    )
    environment = ShiftingArms(
        arms=2, events=[BWC_HORIZON // 2], clicks=[[0.95, 0.05], [0.05, 0.95]], announced=True
    )
    bound = theory.bwc_ucb1_regret(2, WIDE, WIDE, 1, NORMAL_AND_LOUD.diameter, BWC_HORIZON)
    measure("theorem 4, 2 arms, 1 event", bwc, environment, BWC_HORIZON, bound)
    return cells


# Theorem 1, with a measured R₀ -----------------------------------------------------------------

MEASURED_HORIZON = 400_000
TESTED = 500
BOXES = Rectangle(dim=5, margin=0.1, anchored=True)
KNOWN = ((0.75, 0.25), (0.25, 0.75))
EVENT_COUNTS = (0, 1, 4, 16)


def measured_regret(setup: study.Setup) -> Callable[[float], float]:
    """Return R₀, the mean regret of UCB1 on the first of the known problems, interpolated."""
    rounds = np.unique(np.geomspace(2, MEASURED_HORIZON, 400).astype(int))
    more = setup._replace(runs=5 * setup.runs, seed=setup.seed + 1)
    played = study.play(UCB1(2), BernoulliArms(KNOWN[0]), MEASURED_HORIZON, more, rounds.tolist())
    mean = played.regret[0].mean(axis=0)
    return lambda t: float(np.interp(t, [0, *rounds], [0.0, *mean]))


def regret_by_events(setup: study.Setup) -> list[study.Cell]:
    """Play BWC over UCB1, cold phases, with more and more events, beside theorem 1's bound."""
    event_free, cells = measured_regret(setup), []
    bwc = BWC(2, classifier=BOXES, test_rounds=TESTED, min_shift=0.5, merge_phases=False)
    for count in EVENT_COUNTS:
        events = [i * MEASURED_HORIZON // (count + 1) + 1 for i in range(1, count + 1)]
        clicks = [KNOWN[i % 2] for i in range(count + 1)]
        environment = ShiftingArms(2, events=events, clicks=clicks, dim=BOXES.dim)
        mean, ends = _within(study.play(bwc, environment, MEASURED_HORIZON, setup).regret[0, :, -1])
        bound = theory.bwc_regret(event_free, count, BOXES.diameter, TESTED, MEASURED_HORIZON)
        check = f"theorem 1, measured R₀, {count} events"
        cells.append(_cell(check, "BWC", MEASURED_HORIZON, mean, ends, bound=bound, runs=setup.runs))
    return cells


# Theorem 6 (i) ---------------------------------------------------------------------------------

FRESH = "theorem 6 (i)"
FRESH_SHIFT = 0.2
FRESH_SIZES = ((3, 1), (3, 10), (12, 1), (12, 10))
FRESH_HORIZONS = (10_000, 31_600, 100_000, 316_000)


def oracles(arms: int) -> dict[str, Policy]:
    """Return policies that know every event."""
    return {
        "ORA(UCB1)": OracleRestart(UCB1(arms)),
        "ORA(KLUCB)": OracleRestart(KLUCB(arms)),
        "ORA(Thompson)": OracleRestart(Thompson(arms)),
    }


def least_regret(arms: int, phases: int, horizon: int) -> float:
    """Return Lai and Robbins' rate for theorem 6 (i): k·(n − 1)·2ε·ln(T/k)/kl(1/2 − ε, 1/2 + ε).

    It holds in the limit of long phases, for policies that are good on every instance.
    """
    low, high = 0.5 - FRESH_SHIFT, 0.5 + FRESH_SHIFT
    divergence = low * math.log(low / high) + high * math.log(high / low)
    gap = 2.0 * FRESH_SHIFT
    return phases * (arms - 1) * gap * math.log(horizon / phases) / divergence


def fresh_regret(setup: study.Setup) -> list[study.Cell]:
    """Measure what policies pay that know the events, each of which is a new problem."""
    cells = []
    for arms, phases in FRESH_SIZES:
        best = [i % arms for i in range(phases)]
        for horizon in FRESH_HORIZONS:
            environment = theory.fresh_instances(arms, horizon, best, FRESH_SHIFT)
            policies = oracles(arms)
            result = study.play(policies, environment, horizon, setup)
            least = least_regret(arms, phases, horizon)
            for name, regret in zip(policies, result.regret[:, :, -1], strict=True):
                mean, ends = _within(regret)
                check = f"{FRESH}, {arms} arms, {phases} phases"
                cells.append(_cell(check, name, horizon, mean, ends, bound=least, runs=setup.runs))
    return cells


# Theorem 6 (ii), claim 6 ------------------------------------------------------------------------

HIDDEN_ALARM = 3
ALARM_HORIZONS = (1000, 8000, 64_000, 512_000)


def alarmed_regret(setup: study.Setup) -> list[study.Cell]:
    """Play theorem 6 (ii)'s I₀ and I₃, with d = 3: every alarm is false, or the last one tells the truth.

    Claim 6 compares how likely arm z, the neglected one, has fewer than ln T plays in phase 3: on
    I₃ (the value) at least T^(−1/3) times as likely as on I₀ (that is the bound).
    """
    cells, more = [], setup._replace(runs=20 * setup.runs)
    for horizon in ALARM_HORIZONS:
        length, seldom = horizon // HIDDEN_ALARM, {}
        policies: dict[str, Policy] = {
            "UCB1": UCB1(2),
            "Thompson": Thompson(2),
            "BWC": BWC(
                2,
                classifier=theory.alarm_concepts(HIDDEN_ALARM),
                test_rounds=math.ceil(30.0 * math.log(horizon)),
                min_shift=0.08,
                merge_phases=False,
            ),
        }
        for phase in (0, HIDDEN_ALARM):
            environment = theory.false_alarms(horizon, HIDDEN_ALARM, phase)
            gap = abs(environment.clicks[-1][1] - 0.5)
            played = study.play(policies, environment, horizon, more, [2 * length, horizon])
            for name, regret in zip(policies, played.regret, strict=True):
                mean, ends = _within(regret[:, -1])
                cells.append(_cell(f"theorem 6 (ii), I{phase}", name, horizon, mean, ends, runs=more.runs))
                worse = (regret[:, 1] - regret[:, 0]) / gap
                neglected = horizon - 2 * length - worse if phase else worse
                seldom[name, phase] = int((neglected.round() < math.log(horizon)).sum())
        for name in policies:
            count, other = seldom[name, HIDDEN_ALARM], seldom[name, 0] / more.runs
            ends, least = study.exact_interval(count, more.runs), horizon ** (-1.0 / 3.0) * other
            cells.append(
                _cell("claim 6", name, horizon, count / more.runs, ends, bound=least, runs=more.runs)
            )
    return cells


# Theorem 5 ------------------------------------------------------------------------------------

HIDDEN = 0.25
ROOTS = (32, 56, 100, 178, 316, 562, 1000)
GROWTH = "theorem 5"
SLOPE = "theorem 5, log–log slope"


def contenders(horizon: int) -> dict[str, Policy]:
    """Return the policies that meet theorem 5's adversary; the last one reads the context."""
    return {
        "UCB1": UCB1(2),
        "KLUCB": KLUCB(2),
        "Thompson": Thompson(2),
        "GLRKLUCB": GLRKLUCB.from_horizon(2, horizon, 1),
        "BWC": BWC(
            2,
            classifier=NORMAL_AND_LOUD,
            test_rounds=math.ceil(30.0 * math.log(horizon)),
            min_shift=HIDDEN,
            merge_phases=False,
        ),
    }


def worst_regret(policy: Policy, root: int, setup: study.Setup) -> Floats:
    """Return the regret of each run on the instance that theorem 5's adversary would choose.

    The adversary watches the policy where nothing happens, and lets the event happen in the
    phase from which the neglected arm is left alone for longest, in the mean over runs: until it
    is played the policy cannot tell the two instances apart. Then, with other seeds for the event,
    it takes the worse of the two.
    """
    horizon = root**2
    quiet = theory.neglected_arm(horizon, HIDDEN, 0)
    ends = list(range(root, horizon + 1, root))
    watched = study.play(policy, quiet, horizon, setup, ends)
    # Without an event only the neglected arm costs regret, so regret tells when it was played.
    played = np.diff(watched.regret[0], axis=1, prepend=0.0) > 0.0
    event = theory.neglected_arm(horizon, HIDDEN, longest_neglect(played))
    found = study.play(policy, event, horizon, setup._replace(seed=setup.seed + 1))
    candidates = watched.regret[0, :, -1], found.regret[0, :, -1]
    return max(candidates, key=lambda regret: float(regret.mean()))


def longest_neglect(played: Booleans) -> int:
    """Return the phase (from 1) after whose start the next play is farthest, in the mean.

    Parameters
    ----------
    played : array of bool, shape (runs, phases)

    Examples
    --------
    >>> longest_neglect(np.array([[True, False, False, True], [True, True, False, False]]))
    3
    """
    wait, waits = np.zeros(len(played)), []
    for column in played.T[::-1]:
        wait = np.where(column, 0.0, wait + 1.0)
        waits.append(wait.mean())
    return 1 + int(np.argmax(waits[::-1]))


def growth(setup: study.Setup) -> list[study.Cell]:
    """Measure how regret grows with the horizon against theorem 5's adversary."""
    cells, slopes = [], []
    horizons = [root**2 for root in ROOTS]
    for name in contenders(horizons[0]):
        means, errors = [], []
        for root, horizon in zip(ROOTS, horizons, strict=True):
            regret = worst_regret(contenders(horizon)[name], root, setup)
            mean, ends = _within(regret)
            means.append(mean)
            errors.append(standard_error(regret) / mean)
            least = HIDDEN * root / 4.0
            cells.append(_cell(GROWTH, name, horizon, mean, ends, bound=least, runs=setup.runs))
        slope, error = study.log_slope(horizons, means, errors)
        ends = slope - 2.0 * error, slope + 2.0 * error
        bound = None if name == "BWC" else 0.5
        slopes.append(_cell(SLOPE, name, horizons[-1], slope, ends, bound=bound, runs=setup.runs))
    return cells + slopes


# The report -----------------------------------------------------------------------------------


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Check every theorem that can be checked."""
    cells = wrong_guesses(setup) + regret_within_bounds(setup) + regret_by_events(setup)
    cells += growth(setup) + fresh_regret(setup) + alarmed_regret(setup)
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, path), setup.settings())


def _by_rounds(cells: list[study.Cell], check: str, tell: str, head: str = "{}") -> str:
    """Return the cells of a check as a table: a row for each number of rounds, a column for each policy."""
    shown = [c | {"rounds": f"{c['rounds']:,}"} for c in study.select(cells, check=check)]
    return study.pivot(shown, "rounds", "policy", tell, head)


REGRET_COLUMNS: dict[str, study.Tell] = {
    "": "{check}",
    "rounds": "{rounds:,}",
    "regret (±2 s.e.)": "{value:,.0f} ({low:,.0f}–{high:,.0f})",
    "bound": "{bound:,.0f}",
    "share of the bound": lambda c: f"{c['value'] / c['bound']:.2f}",
}


def _regret_table(cells: list[study.Cell]) -> str:
    kinds = ("equation", "theorem 4", "theorem 1")
    return study.table([c for c in cells if c["check"].startswith(kinds)], REGRET_COLUMNS)


def _growth_table(cells: list[study.Cell]) -> str:
    rows = [["policy", *(f"T = {root**2:,}" for root in ROOTS), "slope (±2 s.e.)"]]
    for slope in study.select(cells, check=SLOPE):
        means = [f"{c['value']:,.0f}" for c in study.select(cells, check=GROWTH, policy=slope["policy"])]
        error = (slope["high"] - slope["low"]) / 2.0
        rows.append([slope["policy"], *means, f"{slope['value']:.2f} ± {error:.2f}"])
    rows.append(["ε·√T/4", *(f"{HIDDEN * root / 4.0:,.0f}" for root in ROOTS), "0.50"])
    return study.markdown_table(rows)


def _fresh_table(cells: list[study.Cell]) -> str:
    horizons = [f"T = {horizon:,}" for horizon in FRESH_HORIZONS]
    rows = [["n", "k", "policy", *horizons, "growth over ln(T/k)"]]
    for arms, phases in FRESH_SIZES:
        check = f"{FRESH}, {arms} arms, {phases} phases"
        logs = np.log(np.array(FRESH_HORIZONS) / phases)
        for name in oracles(arms):
            found = study.select(cells, check=check, policy=name)
            shown = [f"{c['value']:,.0f} ({c['value'] / c['bound']:.2f})" for c in found]
            rise = np.polyfit(logs, [c["value"] for c in found], 1)[0]
            rate = found[0]["bound"] / logs[0]
            rows.append([str(arms), str(phases), name, *shown, f"{rise / rate:.2f}"])
    return study.markdown_table(rows)


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    (at_length,) = study.select(cells, check="wrong guess at L")
    decades = [c["value"] for c in study.select(cells, check=GROWTH, policy="BWC")][2::2]
    return study.report(
        "syed2009_theory",
        setup,
        title=TITLE,
        many=50 * setup.runs,
        several=5 * setup.runs,
        means=", ".join(map(str, MEANS)),
        shift=SHIFT,
        horizon=GUESS_HORIZON,
        needed=theory.rounds_to_test(len(MEANS), SHIFT, GUESS_HORIZON),
        wide=WIDE,
        long=LONG,
        at_length=at_length,
        tested=TESTED,
        boxes=BOXES,
        hidden=HIDDEN,
        gains=np.diff(decades),
        gap=2 * FRESH_SHIFT,
        guesses=_by_rounds(cells, "wrong guess", "{value:.3f} ({low:.3f}–{high:.3f})", "{}: wrong guesses"),
        paid=_by_rounds(cells, "regret while guessing", "{value:,.0f}", "{}: regret"),
        constants=_by_rounds(cells, "theorem 2", "{low:.2f}, {high:.2f}", "median, largest of all runs"),
        proved=PROVED,
        quiet=_by_rounds(cells, "theorem 6 (ii), I0", "{value:,.1f} ({low:,.1f}–{high:,.1f})"),
        eventful=_by_rounds(
            cells, f"theorem 6 (ii), I{HIDDEN_ALARM}", "{value:,.1f} ({low:,.1f}–{high:,.1f})"
        ),
        claim=_by_rounds(cells, "claim 6", "{value:.3f} ({low:.3f}–{high:.3f}) ≥ {bound:.4f}"),
        often=20 * setup.runs,
        regrets=_regret_table(cells),
        growth=_growth_table(cells),
        fresh=_fresh_table(cells),
    )


def _draw(cells: list[study.Cell], path: Path) -> None:
    with study.drawing(path, 7.0, 8.0, rows=2) as (above, below):
        for name, colour in zip(PRESETS, COLOURS, strict=False):
            _with_bars(above, study.select(cells, check="wrong guess", policy=name), colour, name)
        title = f"TestableUCB1, arms {', '.join(map(str, MEANS))}, ε = {SHIFT}"
        study.inscribe(above, title, legend="medium", xlabel="rounds", xscale="log", ylim=(0, None))
        above.set_ylabel("share of wrong guesses (95 % intervals)")
        shown = assign_line_styles(slope["policy"] for slope in study.select(cells, check=SLOPE))
        for slope in study.select(cells, check=SLOPE):
            colour = shown[slope["policy"]]["color"]
            label = f"{slope['policy']}, slope {slope['value']:.2f}"
            _with_bars(below, study.select(cells, check=GROWTH, policy=slope["policy"]), colour, label)
        horizons = [root**2 for root in ROOTS]
        bound = [HIDDEN * root / 4.0 for root in ROOTS]
        below.plot(horizons, bound, color="black", ls="--", lw=1, label="ε·√T/4, slope 0.50")
        title = f"Theorem 5's instances, ε = {HIDDEN}"
        study.inscribe(below, title, legend=8, xscale="log", yscale="log", xlabel="horizon T (rounds)")
        below.set_ylabel("regret against the adversary (bars ±2 s.e.)")


def _with_bars(ax: Any, cells: list[study.Cell], colour: str, label: str) -> None:
    """Draw values over rounds with their intervals."""
    values = np.array([c["value"] for c in cells])
    ends = np.array([[c["low"], c["high"]] for c in cells]).T
    bars = np.abs(ends - values)
    x = [c["rounds"] for c in cells]
    ax.errorbar(x, values, bars, color=colour, label=label, **study.MARKED)


THEORY = study.Item(TITLE, 12, reproduce)
