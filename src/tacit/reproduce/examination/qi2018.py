"""Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit feedback": the simulations.

The paper's setting: blocks of five relevance and five examination features, 100 arms of which
ten are on offer, parameters and features from the unit ball, 10 000 rounds.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import arrive, believed, choose, expected, learn, respond
from tacit.environments import Environment, ExaminationArms
from tacit.plots import band
from tacit.policies import (
    ClickModel,
    CUSUMRestart,
    ECBandit,
    HLinUCB,
    LaplaceEC,
    LaplaceECMixture,
    LinTS,
    LinUCB,
    LogisticTS,
    OracleRestart,
    PlacedPBMUCB,
    Policy,
    UniformRandom,
)
from tacit.policies.base import Outcome
from tacit.policies.features.click_model import place_of
from tacit.policies.features.gaussian import sigmoid
from tacit.reproduce.report import Item, Reproduction, Setup
from tacit.reproduce.study import (
    Cell,
    Tell,
    drawing,
    markdown_table,
    moments,
    play,
    select,
    std,
    table,
    told_with_error,
)
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream

DIM = 5
HORIZON = 10_000
READINGS = ("blocks", "joint")

FIGURE_1_POLICIES: dict[str, Policy] = {
    "E-C Bandit": ECBandit(DIM, DIM),
    "LaplaceEC": LaplaceEC(DIM, DIM),
    "LaplaceEC, mixture of 8": LaplaceECMixture(DIM, DIM),
    "Logistic, no intercept (the paper's)": LogisticTS(DIM, DIM, intercept=False),
    "Logistic, intercept": LogisticTS(DIM, DIM),
    "hLinUCB, no intercept": HLinUCB(100, DIM, DIM, intercept=False),
    "hLinUCB, intercept": HLinUCB(100, DIM, DIM),
    "LinUCB, no intercept": LinUCB(DIM, DIM, intercept=False),
    "LinUCB, intercept": LinUCB(DIM, DIM),
    "LinTS, intercept": LinTS(DIM, DIM),
    "random": UniformRandom(100),
}


class RealizedArms(ExaminationArms):
    """The same arms, but regret is counted in clicks: C of the best arm less C of the shown."""

    class Params(NamedTuple):
        identified: int
        devices: int
        positions: int

    @staticmethod
    def expected(params: Any, world: Any, lane: int, arm: int) -> float:
        chance = world.chances[place_of(world.impression.arms, arm)]
        return 1.0 if world.round[1] < chance else 0.0

    @staticmethod
    def optimum(params: Any, world: Any, lane: int) -> float:
        return 1.0 if world.round[1] < world.round[0] else 0.0


def _settings(setup: Setup, horizon: int) -> dict[str, Any]:
    return setup.told(horizon=horizon, reading=setup.reading)


def _curves(ax: Any, curves: dict[str, Floats], rounds: Any, title: str) -> None:
    """Draw the regret of policies with bands of two standard errors."""
    for name, own in curves.items():
        band(ax, rounds, own, name)
    ax.set_xlabel("round")
    ax.set_ylabel("cumulative regret (expected clicks missed)")
    ax.set_title(title, size=10)
    ax.legend(frameon=False, fontsize=8)


def _points(horizon: int) -> list[int]:
    """Return fifty rounds up to a horizon."""
    points: list[int] = np.linspace(horizon / 50, horizon, 50).astype(int).tolist()
    return points


# Figure 1 ------------------------------------------------------------------------------------


def figure_1(setup: Setup) -> Reproduction:
    """Regret in the paper's setting, expected and realized."""
    setting: dict[str, Any] = {"ball": setup.reading, "identified": True}
    points, policies = _points(HORIZON), FIGURE_1_POLICIES
    played = play(policies, ExaminationArms(**setting), HORIZON, setup, points)
    realized = play(policies, RealizedArms(**setting), HORIZON, setup).regret[:, :, -1]
    regret = dict(zip(policies, played.regret, strict=True))
    cells = [
        {
            "policy": name,
            "reading": setup.reading,
            "horizon": HORIZON,
            **moments(own[:, -1]),
            **moments(clicks, "realized"),
            "runs": len(own),
        }
        for (name, own), clicks in zip(regret.items(), realized, strict=True)
    ]
    columns: dict[str, Tell] = {
        "policy": "{policy}",
        "expected regret ± s.e.": told_with_error("regret"),
        "realized regret ± s.e.": told_with_error("realized"),
        "s.d. over runs": "{regret_std:,.1f}",
    }

    def draw(path: Path) -> None:
        names = list(policies)
        shown = {names[i]: regret[names[i]] for i in (0, 1, 3, 4, 6, 8)}
        with drawing(path, 7.0, 4.8) as ax:
            title = f"{setup.runs} runs, bands of ±2 standard errors"
            _curves(ax, shown, played.rounds, title)
            ax.set_ylim(bottom=0)

    by_name = {cell["policy"]: cell["regret_mean"] for cell in cells}
    without = by_name["Logistic, no intercept (the paper's)"]
    report = f"""# Qi et al. (2018), figure 1: regret in simulation

d_C = d_E = 5, 100 arms, ten on offer, {HORIZON:,} rounds, {setup.runs} runs, seed {setup.seed};
reading "{setup.reading}": {READING_TEXT[setup.reading]}. In each run all policies meet the same
offers and the same chance behind each click. Expected regret counts probabilities; realized
regret counts clicks, as the paper does.

{table(cells, columns)}

The paper shows its logistic baseline with linear regret and lays it to unobserved examination.
**What drives that gap is a missing intercept.** An arm with all features 0 is clicked with
probability 1/4; a logistic model without a constant says 1/2, for ever. Without one its
regret is {without:,.0f}; with one it is {by_name["Logistic, intercept"]:,.0f}, beside
{by_name["E-C Bandit"]:,.0f} of E-C Bandit. The linear policies with an intercept, which fit this
nearly linear setting with fewer parameters, have {by_name["LinUCB, intercept"]:,.0f} (LinUCB) and
{by_name["hLinUCB, intercept"]:,.0f} (hLinUCB). So this setting does not show that modelling
examination pays; `tacit reproduce qi2018-scale` and `qi2018-appendix-f` show where it does.

PolyaGammaTS is left out: with ten thousand observations it takes milliseconds a choice.
"""
    return Reproduction(cells, report, draw, _settings(setup, HORIZON))


READING_TEXT = {
    "blocks": "each block of features, and of parameters, is uniform in a 5-ball of its own",
    "joint": "both blocks side by side are uniform in the 10-ball",
}

# Figure 2 ------------------------------------------------------------------------------------


def play_discrepancy(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    rng: Generator,
    env_rng: Generator,
    squares: Floats,
) -> None:
    """Play as many rounds as ``squares`` has; fill it with (f − f*)² of the arms shown."""
    impression = world.impression
    for round in range(len(squares)):
        lane = arrive(env, world, round, env_rng)
        arm = choose(params, state, lane, impression, rng)
        off = believed(params, state, lane, impression, arm) - expected(env, world, lane, arm)
        squares[round] = off * off
        reward = respond(env, world, lane, arm)
        learn(params, state, lane, Outcome(impression, arm, reward, 1.0))


def discrepancies(policy: ClickModel, environment: Environment, setup: Setup) -> Floats:
    """Return Σ (f − f*)² up to each round, a row per run."""
    from tacit.core.compiled import compiled

    squares = np.zeros((setup.runs, HORIZON))
    for run, row in enumerate(squares):
        env_rng = run_stream(setup.seed, run, ENVIRONMENT_STREAM)
        rng = run_stream(setup.seed, run, POLICY_STREAM)
        world, state = environment.world(env_rng, HORIZON), policy.init(1)
        driver = compiled(play_discrepancy, policy.params, environment.params)
        driver(policy.params, state, environment.params, world, rng, env_rng, row)
    return np.cumsum(squares, axis=1)


def proposition_1(rounds: float, dim: int = 2 * DIM) -> float:
    """Return β of proposition 1 with δ = 1/t and α = 1/t².

    Examples
    --------
    >>> round(proposition_1(10_000), -3)
    31000.0
    """
    least, most = 1.0 / (1.0 + math.e) ** 2, 1.0 / (1.0 + math.exp(-1.0)) ** 2
    rate = 3.0 / (1.0 / least + 1.0 / (1.0 - most)) ** 2
    gamma = 2.0 * sigmoid(1.0) * 0.25
    covering = dim * math.log(gamma * rounds**2) + math.log(rounds)
    eta = (4.0 * most + 1.0 / min(least, 1.0 - most)) * rounds
    return 2.0 / rate * covering + 2.0 * eta / rounds**2


def largest_discrepancy(rounds: float) -> float:
    """Return the largest Σ (f − f*)² that any model within the paper's bounds can have.

    Examples
    --------
    >>> round(largest_discrepancy(10_000), -2)
    2100.0
    """
    least, most = 1.0 / (1.0 + math.e) ** 2, 1.0 / (1.0 + math.exp(-1.0)) ** 2
    return rounds * (most - least) ** 2


def figure_2(setup: Setup) -> Reproduction:
    """Aggregate discrepancy, and the bound that it is said to obey."""
    models: dict[str, ClickModel] = {
        "E-C Bandit": ECBandit(DIM, DIM),
        "LaplaceEC": LaplaceEC(DIM, DIM),
        "Logistic, no intercept (the paper's)": LogisticTS(DIM, DIM, intercept=False),
        "Logistic, intercept": LogisticTS(DIM, DIM),
    }
    environment = ExaminationArms(ball=setup.reading)
    found = {name: discrepancies(model, environment, setup) for name, model in models.items()}
    bound, largest = proposition_1(HORIZON), largest_discrepancy(HORIZON)
    cells = [
        {
            "policy": name,
            "reading": setup.reading,
            "horizon": HORIZON,
            **moments(sums[:, -1], "discrepancy"),
            "bound": bound,
            "largest_possible": largest,
            "runs": len(sums),
        }
        for name, sums in found.items()
    ]
    columns: dict[str, Tell] = {
        "policy": "{policy}",
        "discrepancy ± s.e.": told_with_error("discrepancy"),
    }

    def draw(path: Path) -> None:
        rounds = np.unique(np.geomspace(10, HORIZON, 100).astype(int))
        with drawing(path) as ax:
            for name, sums in found.items():
                band(ax, rounds, sums[:, rounds - 1], name)
            ax.plot(rounds, [proposition_1(t) for t in rounds], "k--", lw=1, label="proposition 1")
            ax.plot(rounds, largest_discrepancy(1.0) * rounds, "k:", lw=1, label="largest possible")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("round")
            ax.set_ylabel("Σ (f − f*)² over the arms shown")
            ax.legend(frameon=False, fontsize=8)

    report = f"""# Qi et al. (2018), figure 2: aggregate discrepancy and its bound

Σ (f − f*)² over {HORIZON:,} rounds, f being the click probability at the posterior's mean when the
arm was shown; {setup.runs} runs, seed {setup.seed}, reading "{setup.reading}".

{table(cells, columns)}

Proposition 1 bounds the square of the distance between the truth and the log-loss estimate by
β = {bound:,.0f} here (with δ = 1/t and α = 1/t²; equation 9 as printed gives even more). **That
says nothing**: no model whose probabilities lie where the paper's do can have a discrepancy
above {largest:,.0f}, whatever it learns, and the logistic model obeys the bound as well. β falls
below what is possible at all only after some {_informative():,.0f} rounds.
"""
    return Reproduction(cells, report, draw, _settings(setup, HORIZON))


def _informative() -> float:
    """Return the round from which proposition 1 excludes anything."""
    low, high = 1e3, 1e9
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _vacuous(middle) else (low, middle)
    return high


def _vacuous(rounds: float) -> bool:
    return proposition_1(rounds) > largest_discrepancy(rounds)


# Appendix F ----------------------------------------------------------------------------------

CROSSED_ROUNDS = 20_000


def appendix_f(setup: Setup) -> Reproduction:
    """Four arms whose order no score that is linear in the features can tell."""
    policies: dict[str, Policy] = {
        "LaplaceEC, mixture of 8": LaplaceECMixture(1, 1),
        "LaplaceEC": LaplaceEC(1, 1),
        "E-C Bandit": ECBandit(1, 1),
        "Logistic, intercept": LogisticTS(1, 1),
        "Logistic, no intercept (the paper's)": LogisticTS(1, 1, intercept=False),
        "LinUCB, intercept": LinUCB(1, 1),
        "random": UniformRandom(4),
    }
    points = _points(CROSSED_ROUNDS)
    played = play(policies, ExaminationArms.crossed(), CROSSED_ROUNDS, setup, points)
    rounds, regret = played.rounds, played.regret
    gap, half = _gap(), len(rounds) // 2
    late = (regret[:, :, -1] - regret[:, :, half - 1]) / (CROSSED_ROUNDS - rounds[half - 1])
    locked = (late > 0.25 * gap).mean(axis=1)
    cells = [
        {
            "policy": name,
            "horizon": CROSSED_ROUNDS,
            **moments(own[:, -1]),
            "locked_in": None if name == "random" else float(share),
            "runs": len(own),
        }
        for name, own, share in zip(policies, regret, locked, strict=True)
    ]
    columns: dict[str, Tell] = {
        "policy": "{policy}",
        "regret ± s.e.": told_with_error("regret"),
        "locked in": lambda c: (
            "–" if c["locked_in"] is None else f"{c['locked_in']:.0%} of {c['runs']} runs"
        ),
    }

    def draw(path: Path) -> None:
        title = f"Four crossed arms; {setup.runs} runs, bands of ±2 s.e."
        with drawing(path) as ax:
            _curves(ax, dict(zip(policies, regret, strict=True)), rounds, title)
            ax.set_yscale("log")

    report = f"""# Qi et al. (2018), appendix F: where every score that is linear fails

The paper orders four arms, A and C above B and D, by their features in a way that no product of
two logistic functions can have: with x_B < x_A < x_C < x_D and y_A < y_B < y_D < y_C, parameters
of one sign forbid the tie of A and C, and parameters of different signs the order. These four
do what it wants: θ = (1, 2), A = (.5, .75), B = (−2, 2), C = (1.5, .25), D = (4, −1), with click
probabilities .509, .117, .509, .117. All lie on x + 2y = 2, so a score that is linear in the
features is monotone along B, A, C, D, and its best is always B or D: a loss of {gap:.3f} a round.
{CROSSED_ROUNDS:,} rounds, all four on offer, {setup.runs} runs, seed {setup.seed}. Locked in: B or
D in more than a quarter of the rounds of the second half.

{table(cells, columns)}

Modelling examination is what it takes here, and one Gaussian is not enough for it: the posterior
has several modes, and E-C Bandit and, less often, LaplaceEC settle on a wrong one. A mixture keeps
the others.
"""
    return Reproduction(cells, report, draw, _settings(setup, CROSSED_ROUNDS))


def _gap() -> float:
    return sigmoid(0.5) * sigmoid(1.5) - sigmoid(-2.0) * sigmoid(4.0)


# Beyond the paper ----------------------------------------------------------------------------

SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONG = 100_000
HORIZONS = (1_000, 3_000, 10_000, 30_000, 100_000)
SHIFTS = (10_001, 20_001)
SHIFTED_ROUNDS = 30_000


def scale(setup: Setup) -> Reproduction:
    """Where modelling examination pays, and what calibration and restarts add."""
    models: dict[str, Policy] = {
        "E-C Bandit": ECBandit(DIM, DIM),
        "LaplaceEC": LaplaceEC(DIM, DIM),
        "Logistic, intercept": LogisticTS(DIM, DIM),
    }
    cells: list[Cell] = []
    ratios = np.zeros((2, len(SCALES), len(HORIZONS)))
    for row, factor in enumerate(SCALES):
        environment = ExaminationArms(scale=factor, ball=setup.reading)
        regret = play(models, environment, LONG, setup, HORIZONS).regret
        means = regret.mean(axis=1)
        ratios[:, row] = means[2] / means[0], means[2] / means[1]
        for name, own in zip(models, regret, strict=True):
            for column, horizon in enumerate(HORIZONS):
                cells.append(_cell("map", name, f"θ × {factor:g}", horizon, own[:, column]))
    cells += _shifting(setup) + _contextual(setup) + _coverage(setup)
    report = f"""# Where modelling examination pays

Beyond the paper, in its setting (reading "{setup.reading}"), {setup.runs} runs, seed
{setup.seed}; means ± standard errors. LogisticTS has an intercept.

## Larger parameters, longer horizons

Regret of LogisticTS over that of E-C Bandit and of LaplaceEC (above 1: modelling examination pays):

{markdown_table(_ratio_table(ratios))}

Regret after {LONG:,} rounds:

{markdown_table(_final_table(cells))}

## Parameters drawn anew at rounds {SHIFTS[0]:,} and {SHIFTS[1]:,}, θ × 4, {SHIFTED_ROUNDS:,} rounds

{_part_table(cells, "shifts")}

## Position effects that vary with the device

Ten items at six positions, three devices, ten placements on offer, θ × 4, {HORIZON:,} rounds. The
examination features are an indicator for each position on each device.

{_part_table(cells, "devices")}

## Calibration

Share of arms whose true click probability lies in the central 90 % interval of the posterior,
under uniform logging:

{_part_table(cells, "coverage")}
"""

    def draw(path: Path) -> None:
        limit = np.abs(np.log2(ratios)).max()
        colours: dict[str, Any] = {"cmap": "RdBu", "vmin": -limit, "vmax": limit}
        with drawing(path, 6.5, 7.0, rows=2) as axes:
            for ax, values, name in zip(axes, ratios, ("E-C Bandit", "LaplaceEC"), strict=True):
                image = ax.imshow(np.log2(values), aspect="auto", **colours)
                ax.grid(False)
                ax.set_xticks(range(len(HORIZONS)), [f"{t:,}" for t in HORIZONS])
                ax.set_yticks(range(len(SCALES)), [f"× {factor:g}" for factor in SCALES])
                for i, j in np.ndindex(values.shape):
                    ax.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", size=9)
                ax.set_ylabel("scale of θ")
                ax.set_title(f"regret of LogisticTS over regret of {name}", size=10)
                ax.figure.colorbar(image, ax=ax, label="log₂ of the ratio")
            axes[-1].set_xlabel("rounds")

    return Reproduction(cells, report, draw, _settings(setup, LONG))


def _cell(part: str, policy: str, setting: str, horizon: int, values: Floats) -> Cell:
    return {
        "part": part,
        "policy": policy,
        "setting": setting,
        "horizon": horizon,
        "mean": float(values.mean()),
        "std": std(values),
        "runs": len(values),
    }


def _shifting(setup: Setup) -> list[Cell]:
    laplace, bounds = LaplaceEC(DIM, DIM), ECBandit(DIM, DIM)
    policies: dict[str, Policy] = {
        "LaplaceEC, oracle restart": OracleRestart(laplace),
        "LaplaceEC, CUSUM restart": CUSUMRestart(laplace),
        "LaplaceEC, discount 0.998": LaplaceEC(DIM, DIM, discount=0.998),
        "LaplaceEC": laplace,
        "E-C Bandit, CUSUM restart": CUSUMRestart(bounds),
        "E-C Bandit, discount 0.998": ECBandit(DIM, DIM, discount=0.998),
        "E-C Bandit": bounds,
        "Logistic, CUSUM restart": CUSUMRestart(LogisticTS(DIM, DIM)),
    }
    environment = ExaminationArms(scale=4, ball=setup.reading, redraws=SHIFTS, announced=True)
    regret = play(policies, environment, SHIFTED_ROUNDS, setup).regret
    return [
        _cell("shifts", name, "θ × 4, redrawn twice", SHIFTED_ROUNDS, own[:, -1])
        for name, own in zip(policies, regret, strict=True)
    ]


def _contextual(setup: Setup) -> list[Cell]:
    cells = []
    for devices in (1, 3):
        width = 6 * devices
        policies: dict[str, Policy] = {
            "E-C Bandit": ECBandit(DIM, width),
            "LaplaceEC": LaplaceEC(DIM, width),
            "Logistic, intercept": LogisticTS(DIM, width),
            "LinUCB, intercept": LinUCB(DIM, width),
            "PBM-UCB, effects estimated": PlacedPBMUCB(60, positions=6),
            "random": UniformRandom(60),
        }
        environment = ExaminationArms(
            pool=60, positions=6, devices=devices, scale=4, identified=True
        )
        regret = play(policies, environment, HORIZON, setup).regret
        cells += [
            _cell("devices", name, f"{devices} device(s)", HORIZON, own[:, -1])
            for name, own in zip(policies, regret, strict=True)
        ]
    return cells


def coverage(policy: Any, factor: float, rounds: int, setup: Setup) -> Floats:
    """Return per run the share of arms whose click probability lies in its 90 % interval.

    Clicks are logged by uniform choice; the interval lies between quantiles of 1000 draws from the
    posterior.
    """
    from tacit.learning.learner import Learner

    shares = np.zeros(setup.runs)
    for run in range(setup.runs):
        rng = run_stream(setup.seed, run, ENVIRONMENT_STREAM)
        world = ExaminationArms(scale=factor, ball=setup.reading).world(rng, rounds)
        relevance, examination = world.relevance, world.examination
        logits = relevance @ world.theta_c[0], examination @ world.theta_e[0]
        truth = 1.0 / ((1.0 + np.exp(-logits[0])) * (1.0 + np.exp(-logits[1])))
        shown = rng.integers(len(truth), size=rounds)
        learner = Learner(policy, seed=run)
        decisions = learner.choose_many(
            ["one"] * rounds,
            relevance=list(relevance[shown][:, None]),
            examination=list(examination[shown][:, None]),
        )
        learner.learn_many(decisions, (rng.random(rounds) < truth[shown]).astype(float))
        known = learner.posterior("one")
        factors = []
        blocks = (known.relevance, relevance), (known.examination, examination)
        if known.joint is not None:
            drawn = rng.multivariate_normal(known.joint.mean, known.joint.covariance, 1000)
            samples = drawn[:, :DIM], drawn[:, DIM:]
        else:
            first, second = (
                rng.multivariate_normal(block.mean, block.covariance, 1000) for block, _ in blocks
            )
            samples = first, second
        for theta, (_, features) in zip(samples, blocks, strict=True):
            factors.append(1.0 / (1.0 + np.exp(-theta @ features.T)))
        low, high = np.quantile(factors[0] * factors[1], [0.05, 0.95], axis=0)
        shares[run] = np.mean((low <= truth) & (truth <= high))
    return shares


def _coverage(setup: Setup) -> list[Cell]:
    return [
        _cell("coverage", name, f"θ × {factor:g}", rounds, coverage(policy, factor, rounds, setup))
        for factor in (1.0, 4.0)
        for rounds in (1_000, 10_000)
        for name, policy in (
            ("LaplaceEC", LaplaceEC(DIM, DIM)),
            ("LaplaceEC, prior variance 4", LaplaceEC(DIM, DIM, prior_variance=4.0)),
            ("E-C Bandit", ECBandit(DIM, DIM)),
        )
    ]


def _ratio_table(ratios: Floats) -> list[list[str]]:
    head = ["scale of θ", *(f"{horizon:,} rounds" for horizon in HORIZONS)]
    body = [
        [f"× {factor:g}", *(f"{a:.2f} and {b:.2f}" for a, b in zip(*ratios[:, row], strict=True))]
        for row, factor in enumerate(SCALES)
    ]
    return [head, *body]


def _final_table(cells: list[Cell]) -> list[list[str]]:
    final = select(cells, part="map", horizon=LONG)
    names = list(dict.fromkeys(cell["policy"] for cell in final))
    rows = [["scale of θ", *names, "LaplaceEC / E-C Bandit"]]
    for factor in SCALES:
        row = {c["policy"]: c for c in select(final, setting=f"θ × {factor:g}")}
        ratio = row["LaplaceEC"]["mean"] / row["E-C Bandit"]["mean"]
        rows.append(
            [f"× {factor:g}", *(told_with_error("")(row[name]) for name in names), f"{ratio:.2f}"]
        )
    return rows


def _part_table(cells: list[Cell], part: str) -> str:
    columns: dict[str, Tell] = {
        "policy": "{policy}",
        "setting": "{setting}",
        "rounds": "{horizon:,}",
        "mean ± s.e.": told_with_error("", 3 if part == "coverage" else 1),
    }
    return table(select(cells, part=part), columns)


FIGURE_1 = Item(
    "Qi et al. (2018), figure 1: regret of E-C Bandit, and what drives the gap",
    100,
    figure_1,
    READINGS,
)
FIGURE_2 = Item(
    "Qi et al. (2018), figure 2: aggregate discrepancy and its bound", 100, figure_2, READINGS
)
APPENDIX_F = Item("Qi et al. (2018), appendix F: four crossed arms", 100, appendix_f)
SCALE = Item("Where modelling examination pays, and what goes beyond it", 20, scale, READINGS)
