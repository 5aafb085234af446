"""Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit feedback": the simulations.

The paper's setting: blocks of five relevance and five examination features, 100 arms of which
ten are on offer, parameters and features from the unit ball, 10 000 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import arrive, believed, choose, learn, respond
from tacit.core.run_mode import compile_loop
from tacit.environments import Environment, ExaminationArms
from tacit.plots import assign_line_styles, band
from tacit.policies import (
    ClickModel,
    CUSUMRestart,
    ECBandit,
    Impression,
    LaplaceEC,
    LaplaceECMixture,
    LinTS,
    LinUCB,
    LogisticTS,
    OracleRestart,
    Policy,
    UniformRandom,
)
from tacit.policies.base import Outcome
from tacit.policies.baselines import HLinUCB, PlacedPBMUCB
from tacit.policies.baselines.hidden_linucb import highest_bound
from tacit.policies.features.click_model import find_place
from tacit.policies.features.gaussian import sigmoid
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream

DIM = 5
HORIZON = 10_000
READINGS = ("blocks", "joint")


class StartedHLinUCB(HLinUCB):
    """hLinUCB whose hidden features each run draws for itself, so that runs are independent."""

    def init(self, lanes: int) -> HLinUCB.State:
        state = super().init(lanes)
        state.start[:] = np.nan
        return state

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        start, hidden = state.start[lane], state.hidden[lane]
        if np.isnan(start[0, 0]):
            for arm in range(len(start)):
                for i in range(start.shape[1]):
                    start[arm, i] = hidden[arm, i] = rng.standard_normal() / np.sqrt(start.shape[1])
        return int(highest_bound(params, state, lane, impression))


FIGURE_1_POLICIES: dict[str, Policy] = {
    "E-C Bandit": ECBandit(DIM, DIM),
    "LaplaceEC": LaplaceEC(DIM, DIM),
    "LaplaceEC, mixture of 8": LaplaceECMixture(DIM, DIM),
    "Logistic, no intercept (the paper's)": LogisticTS(DIM, DIM, intercept=False),
    "Logistic, intercept": LogisticTS(DIM, DIM),
    "hLinUCB, no intercept": StartedHLinUCB(100, DIM, DIM, intercept=False),
    "hLinUCB, intercept": StartedHLinUCB(100, DIM, DIM),
    "LinUCB, no intercept": LinUCB(DIM, DIM, intercept=False),
    "LinUCB, intercept": LinUCB(DIM, DIM),
    "LinTS, intercept": LinTS(DIM, DIM),
    "random": UniformRandom(100),
}


class RealizedArms(ExaminationArms):
    """The same arms, but regret is counted in clicks: C of the best arm less C of the shown."""

    @staticmethod
    def expected(params: Any, world: Any, lane: int, arm: int) -> float:
        chance = world.chances[find_place(world.impression.arms, arm)]
        return 1.0 if world.round[1] < chance else 0.0

    @staticmethod
    def optimum(params: Any, world: Any, lane: int) -> float:
        return 1.0 if world.round[1] < world.round[0] else 0.0


def _settings(setup: study.Setup, horizon: int) -> dict[str, Any]:
    return setup.settings(horizon=horizon, reading=setup.reading)


def _curves(ax: Any, curves: dict[str, Floats], rounds: Any, title: str, **labels: Any) -> None:
    """Draw the regret of policies with bands of two standard errors."""
    shown = assign_line_styles(curves)
    for policy, own in curves.items():
        band(ax, rounds, own, policy, **shown[policy])
    labels = {"xlabel": "round", "ylabel": "cumulative regret (expected clicks missed)"} | labels
    study.inscribe(ax, title, legend=8, **labels)


def _points(horizon: int) -> list[int]:
    """Return fifty rounds up to a horizon."""
    points: list[int] = np.linspace(horizon / 50, horizon, 50).astype(int).tolist()
    return points


# Figure 1 ------------------------------------------------------------------------------------


def figure_1(setup: study.Setup) -> study.Reproduction:
    """Regret in the paper's setting, expected and realized."""
    setting: dict[str, Any] = {"ball": setup.reading, "identified": True}
    points, policies = _points(HORIZON), FIGURE_1_POLICIES
    played = study.play(policies, ExaminationArms(**setting), HORIZON, setup, points)
    realized = study.play(policies, RealizedArms(**setting), HORIZON, setup).regret[:, :, -1]
    regret = dict(zip(policies, played.regret, strict=True))
    cells = [
        {
            "policy": name,
            "reading": setup.reading,
            "horizon": HORIZON,
            **study.moments(own[:, -1]),
            **study.moments(clicks, "realized"),
            "runs": len(own),
        }
        for (name, own), clicks in zip(regret.items(), realized, strict=True)
    ]
    columns: dict[str, study.Tell] = {
        "policy": "{policy}",
        "expected regret ± s.e.": study.text_with_error("regret"),
        "realized regret ± s.e.": study.text_with_error("realized"),
        "s.d. over runs": "{regret_std:,.1f}",
    }

    def draw(path: Path) -> None:
        names = list(policies)
        shown = {names[i]: regret[names[i]] for i in (0, 1, 3, 4, 6, 8)}
        title = f"{setup.runs} runs; bars of one standard deviation, as the paper's; bands of ±2 s.e."
        with study.drawing(path, 7.0, 4.8) as ax:
            _curves(ax, shown, played.rounds, title, ylim=(0, None))
            for i, (name, own) in enumerate(shown.items()):
                at = slice(4, None, 5)
                look = {"color": assign_line_styles(shown)[name]["color"], "ls": "none", "capsize": 2}
                deviations = [study.std(values) for values in own[:, at].T]
                ax.errorbar(played.rounds[at] + 60 * (i - 2.5), own[:, at].mean(axis=0), deviations, **look)

    text = study.report(
        "qi2018_figure1",
        setup,
        horizon=HORIZON,
        balls=READING_TEXT[setup.reading],
        table=study.table(cells, columns),
        regret={cell["policy"]: cell["regret_mean"] for cell in cells},
    )
    return study.Reproduction(cells, text, draw, _settings(setup, HORIZON))


READING_TEXT = {
    "blocks": "each block of features, and of parameters, is uniform in a 5-ball of its own",
    "joint": "both blocks side by side are uniform in the 10-ball",
}

# Figure 2 ------------------------------------------------------------------------------------

DISCREPANCY_POINTS = 100


def play_discrepancy(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    rng: Generator,
    env_rng: Generator,
    pool: Impression,
    truth: Floats,
    step: int,
    sums: Floats,
) -> None:
    """Play rounds; every ``step`` of them fill ``sums`` with squared errors of the arms shown.

    Its first row judges the present estimate on all arms shown so far, as the paper's norm does: in
    round t the estimate from t − 1 rounds, on t arms. The second adds up the error of each round's
    estimate at its own time.
    """
    shown, running = np.zeros(len(truth)), 0.0
    for round in range(step * sums.shape[1]):
        lane = arrive(env, world, round, env_rng)
        arm = choose(params, state, lane, world.impression, rng)
        off = believed(params, state, lane, world.impression, arm) - truth[arm]
        shown[arm] += 1.0
        running += off * off
        if (round + 1) % step == 0:
            point = round // step
            sums[1, point] = running
            for a in range(len(truth)):
                off = believed(params, state, lane, pool, a) - truth[a]
                sums[0, point] += shown[a] * off * off
        reward = respond(env, world, lane, arm)
        learn(params, state, lane, Outcome(world.impression, arm, reward, 1.0))


def sigmoid_of(logits: Floats) -> Floats:
    """Return ρ of each number."""
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def click_probabilities(relevance: Floats, examination: Floats, world: Any) -> Floats:
    """Return f* of each row of features."""
    return sigmoid_of(relevance @ world.theta_c[0]) * sigmoid_of(examination @ world.theta_e[0])


def discrepancies(policy: ClickModel, environment: Environment, setup: study.Setup) -> Floats:
    """Return the sums of :func:`play_discrepancy`, shape (2, runs, points)."""
    sums = np.zeros((setup.runs, 2, DISCREPANCY_POINTS))
    for run, row in enumerate(sums):
        env_rng = run_stream(setup.seed, run, ENVIRONMENT_STREAM)
        rng = run_stream(setup.seed, run, POLICY_STREAM)
        world, state = environment.world(env_rng, HORIZON), policy.init(1)
        features = world.relevance, world.examination
        pool = Impression(np.arange(len(features[0])), np.zeros(0), *features)
        truth = click_probabilities(*features, world)
        driver = compile_loop(play_discrepancy, policy.params, environment.params)
        step = HORIZON // DISCREPANCY_POINTS
        driver(policy.params, state, environment.params, world, rng, env_rng, pool, truth, step, row)
    return sums.transpose(1, 0, 2)


LEAST, MOST = (1.0 + math.e) ** -2, (1.0 + math.exp(-1.0)) ** -2
"""m_f and M_f of the paper: the least and the largest click probability of its models."""
RATE = 3.0 / (1.0 / LEAST + 1.0 / (1.0 - MOST)) ** 2
"""λ₀ of proposition 1."""
STEEPNESS = 2.0 * math.sqrt(MOST) * 0.25
"""γ = 2·M_ρ·k_ρ·x of lemma 8, with contexts and parameters in the unit ball."""
SLACK = 4.0 * MOST + 1.0 / min(LEAST, 1.0 - MOST)
"""η_t/t of proposition 1."""


def proposition_1(rounds: float) -> float:
    """Return β of proposition 1 with δ = 1/t and α = 1/t².

    Examples
    --------
    >>> round(proposition_1(10_000), -3)
    31000.0
    """
    covering = 2 * DIM * math.log(STEEPNESS * rounds**2) + math.log(rounds)
    return 2.0 / RATE * covering + 2.0 * SLACK / rounds


def equation_9(rounds: float) -> float:
    """Return β as the paper prints it: d·ln(γt³) for d·ln(γt²) + ln t, and 1 for 2 before η_t/t².

    Examples
    --------
    >>> equation_9(10_000) > proposition_1(10_000)
    True
    """
    return 2.0 / RATE * 2 * DIM * math.log(STEEPNESS * rounds**3) + SLACK / rounds


def theorem_1(rounds: float, arms: int = 100) -> float:
    """Return the bound (8) on Bayesian regret, with the eluder dimension at most the number of arms.

    Examples
    --------
    >>> theorem_1(10_000) > 1e5
    True
    """
    return 1.0 + (arms + 1.0) + 4.0 * math.sqrt(arms * proposition_1(rounds) * rounds)


def lemma_8(norm: float) -> float:
    """Return |f(θ₁) − f(θ₂)|/(γ·‖θ₁ − θ₂‖), which the lemma's proof says is at most 1 in the ∞-norm.

    Features, θ₁ and θ₁ − θ₂ point the same way, with equal numbers; θ₁ and the features have length 1.

    Examples
    --------
    >>> round(lemma_8(math.inf), 2), round(lemma_8(2), 2)
    (1.27, 0.4)
    """
    step, way = 1e-6, np.full(2 * DIM, (2 * DIM) ** -0.5)
    rise = sigmoid(0.5) ** 2 - sigmoid(0.5 - step / 2.0) ** 2
    return float(rise / (STEEPNESS * np.linalg.norm(step * way, norm)))


def largest_discrepancy(rounds: float) -> float:
    """Return the largest Σ (f − f*)² that any model within the paper's bounds can have.

    Examples
    --------
    >>> round(largest_discrepancy(10_000), -2)
    2100.0
    """
    return rounds * (MOST - LEAST) ** 2


def figure_2(setup: study.Setup) -> study.Reproduction:
    """Aggregate discrepancy, and the bound that it is said to obey."""
    models: dict[str, ClickModel] = {
        "E-C Bandit": ECBandit(DIM, DIM),
        "LaplaceEC": LaplaceEC(DIM, DIM),
        "Logistic, no intercept (the paper's)": LogisticTS(DIM, DIM, intercept=False),
        "Logistic, intercept": LogisticTS(DIM, DIM),
    }
    environment = ExaminationArms(ball=setup.reading, identified=True)
    found = {name: discrepancies(model, environment, setup) for name, model in models.items()}
    rounds = [HORIZON // DISCREPANCY_POINTS * i for i in range(1, DISCREPANCY_POINTS + 1)]
    bound, largest = proposition_1(HORIZON), largest_discrepancy(HORIZON)
    cells = [
        {
            "policy": name,
            "reading": setup.reading,
            "horizon": HORIZON,
            **study.moments(present[:, -1], "discrepancy"),
            **study.moments(running[:, -1], "running"),
            "growth": study.log_slope(rounds[9:], present[:, 9:].mean(axis=0).tolist(), [0.0] * 91)[0],
            "bound": bound,
            "largest_possible": largest,
            "runs": len(present),
        }
        for name, (present, running) in found.items()
    ]
    running = study.text_with_error("running")
    columns: dict[str, study.Tell] = {"policy": "{policy}", "grows with": "t^{growth:.2f}"}
    columns |= {"discrepancy ± s.e.": study.text_with_error("discrepancy")}
    columns |= {"sum of each round's own ± s.e.": running}

    def draw(path: Path) -> None:
        with study.drawing(path) as ax:
            shown = assign_line_styles(found)
            for name, (present, _) in found.items():
                band(ax, rounds, present, name, **shown[name])
            ax.plot(rounds, [proposition_1(t) for t in rounds], "k--", lw=1, label="proposition 1")
            ax.plot(rounds, [largest_discrepancy(t) for t in rounds], "k:", lw=1, label="largest possible")
            study.inscribe(ax, legend=8, xscale="log", yscale="log", xlabel="round t")
            ax.set_ylabel("‖f̂ − f*‖² over the arms shown up to t")

    text = study.report(
        "qi2018_figure2",
        setup,
        horizon=HORIZON,
        table=study.table(cells, columns),
        bound=bound,
        largest=largest,
        printed=equation_9(HORIZON),
        informative=_informative(proposition_1, largest_discrepancy),
        lemma=[lemma_8(2), lemma_8(math.inf)],
        theorem=theorem_1(HORIZON),
        worst=HORIZON * (MOST - LEAST),
        sublinear=_informative(theorem_1, lambda rounds: rounds * (MOST - LEAST)),
        growth={cell["policy"]: cell["growth"] for cell in cells},
    )
    return study.Reproduction(cells, text, draw, _settings(setup, HORIZON))


def _informative(bound: Callable[[float], float], largest: Callable[[float], float]) -> float:
    """Return the round from which a bound excludes anything."""
    low, high = 1e3, 1e12
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bound(middle) > largest(middle) else (low, middle)
    return high


# Appendix F ----------------------------------------------------------------------------------

CROSSED_ROUNDS = 20_000


def appendix_f(setup: study.Setup) -> study.Reproduction:
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
    played = study.play(policies, ExaminationArms.make_crossed(), CROSSED_ROUNDS, setup, points)
    rounds, regret = played.rounds, played.regret
    gap, half = sigmoid(0.5) * sigmoid(1.5) - sigmoid(-2.0) * sigmoid(4.0), len(rounds) // 2
    late = (regret[:, :, -1] - regret[:, :, half - 1]) / (CROSSED_ROUNDS - rounds[half - 1])
    locked = (late > 0.25 * gap).mean(axis=1)
    cells = [
        {
            "policy": name,
            "horizon": CROSSED_ROUNDS,
            **study.moments(own[:, -1]),
            "locked_in": None if name == "random" else float(share),
            "runs": len(own),
        }
        for name, own, share in zip(policies, regret, locked, strict=True)
    ]
    columns: dict[str, study.Tell] = {
        "policy": "{policy}",
        "regret ± s.e.": study.text_with_error("regret"),
        "locked in": lambda c: "–" if c["locked_in"] is None else f"{c['locked_in']:.0%} of {c['runs']} runs",
    }

    def draw(path: Path) -> None:
        title = f"Four crossed arms; {setup.runs} runs, bands of ±2 s.e."
        with study.drawing(path, 7.0, 8.6, rows=2) as (above, below):
            _contour(above)
            curves = dict(zip(policies, regret, strict=True))
            _curves(below, curves, rounds, title, yscale="log")

    text = study.report(
        "qi2018_appendix_f", setup, gap=gap, horizon=CROSSED_ROUNDS, table=study.table(cells, columns)
    )
    return study.Reproduction(cells, text, draw, _settings(setup, CROSSED_ROUNDS))


def _contour(ax: Any) -> None:
    """Draw figure 5: the click probability over both features, and the four arms."""
    arms = np.array(ExaminationArms.make_crossed().arms)
    x, y = np.meshgrid(np.linspace(-3.0, 5.0, 81), np.linspace(-2.0, 3.0, 81))
    lines = ax.contour(x, y, sigmoid_of(x) * sigmoid_of(2.0 * y), np.arange(0.1, 1.0, 0.1), cmap="viridis")
    ax.clabel(lines, fontsize=7)
    ax.plot(*arms.T, "ko-", lw=0.8, ms=4)
    for name, (x0, y0) in zip("BACD", arms, strict=True):
        text = f"{name} {sigmoid(x0) * sigmoid(2.0 * y0):.3f}"
        ax.annotate(text, (x0, y0), (5, 5), textcoords="offset points")
    title = "Figure 5: f(x, y) = ρ(x)·ρ(2y); a linear score rises or falls along the line"
    study.inscribe(ax, title, xlabel="x (examination)", ylabel="y (relevance)")


# Beyond the paper ----------------------------------------------------------------------------

SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONG = 100_000
HORIZONS = (1_000, 3_000, 10_000, 30_000, 100_000)
SHIFTS = (10_001, 20_001)
SHIFTED_ROUNDS = 30_000


class TablePart(NamedTuple):
    """What is played for one table."""

    name: str
    setting: str
    policies: dict[str, Policy]
    environment: Environment
    horizons: tuple[int, ...]


def parts(reading: str) -> list[TablePart]:
    """Return what is played beyond the paper."""
    laplace, bounds = LaplaceEC(DIM, DIM), ECBandit(DIM, DIM)
    models: dict[str, Policy] = {
        "E-C Bandit": bounds,
        "LaplaceEC": laplace,
        "Logistic, intercept": LogisticTS(DIM, DIM),
    }
    found = [
        TablePart("map", f"θ × {factor:g}", models, ExaminationArms(scale=factor, ball=reading), HORIZONS)
        for factor in SCALES
    ]
    followers: dict[str, Policy] = {
        "LaplaceEC, oracle restart": OracleRestart(laplace),
        "LaplaceEC, CUSUM restart": CUSUMRestart(laplace),
        "LaplaceEC, discount 0.998": LaplaceEC(DIM, DIM, discount=0.998),
        "LaplaceEC": laplace,
        "E-C Bandit, CUSUM restart": CUSUMRestart(bounds),
        "E-C Bandit, discount 0.998": ECBandit(DIM, DIM, discount=0.998),
        "E-C Bandit": bounds,
        "Logistic, CUSUM restart": CUSUMRestart(LogisticTS(DIM, DIM)),
    }
    redrawn = ExaminationArms(scale=4, ball=reading, redraws=SHIFTS, announced=True)
    found.append(TablePart("shifts", "θ × 4, redrawn twice", followers, redrawn, (SHIFTED_ROUNDS,)))
    for devices in (1, 3):
        dims = DIM, 6 * devices
        readers: dict[str, Policy] = {
            "E-C Bandit": ECBandit(*dims),
            "LaplaceEC": LaplaceEC(*dims),
            "Logistic, intercept": LogisticTS(*dims),
            "LinUCB, intercept": LinUCB(*dims),
            "PBM-UCB, effects estimated": PlacedPBMUCB(60, positions=6),
            "random": UniformRandom(60),
        }
        placed = ExaminationArms(pool=60, positions=6, devices=devices, scale=4, identified=True)
        found.append(TablePart("devices", f"{devices} device(s)", readers, placed, (HORIZON,)))
    return found


def scale(setup: study.Setup) -> study.Reproduction:
    """Where modelling examination pays, and what calibration and restarts add."""
    cells: list[study.Cell] = []
    for part in parts(setup.reading):
        played = study.play(part.policies, part.environment, part.horizons[-1], setup, part.horizons)
        for name, own in zip(part.policies, played.regret, strict=True):
            for column, horizon in enumerate(part.horizons):
                cells.append(_cell(part.name, name, part.setting, horizon, own[:, column]))
    cells += _coverage(setup)
    ratios = _ratios(study.select(cells, part="map"))
    text = study.report(
        "qi2018_scale",
        setup,
        ratios=study.markdown_table(_ratio_table(ratios)),
        regrets=_final_table(study.select(cells, part="map", horizon=LONG)),
        horizon=HORIZON,
        long=LONG,
        shifts=SHIFTS,
        shifted=SHIFTED_ROUNDS,
        parts={part: _part_table(cells, part) for part in ("shifts", "devices", "coverage")},
    )
    return study.Reproduction(cells, text, partial(_map, ratios), _settings(setup, LONG))


def _ratios(cells: list[study.Cell]) -> Floats:
    """Return by model, scale and horizon how many times its regret LogisticTS has."""
    means = {
        name: np.array([c["mean"] for c in study.select(cells, policy=name)])
        for name in ("E-C Bandit", "LaplaceEC", "Logistic, intercept")
    }
    without = means.pop("Logistic, intercept")
    return np.array([without / own for own in means.values()]).reshape(2, len(SCALES), -1)


def _map(ratios: Floats, path: Path) -> None:
    limit = np.abs(np.log2(ratios)).max()
    with study.drawing(path, 6.5, 7.0, rows=2) as axes:
        for ax, values, name in zip(axes, ratios, ("E-C Bandit", "LaplaceEC"), strict=True):
            image = ax.imshow(np.log2(values), "RdBu", aspect="auto", vmin=-limit, vmax=limit)
            ax.grid(False)
            ax.set_xticks(range(len(HORIZONS)), [f"{t:,}" for t in HORIZONS])
            ax.set_yticks(range(len(SCALES)), [f"× {factor:g}" for factor in SCALES])
            for i, j in np.ndindex(values.shape):
                colour = "white" if abs(np.log2(values[i, j])) > 0.7 * limit else "black"
                ax.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", size=9, color=colour)
            study.inscribe(ax, f"regret of LogisticTS over regret of {name}", ylabel="scale of θ")
            ax.figure.colorbar(image, ax=ax, label="log₂ of the ratio")
        axes[-1].set_xlabel("rounds")


def _cell(part: str, policy: str, setting: str, horizon: int, values: Floats) -> study.Cell:
    """Return the mean of what was measured of a policy in a part."""
    where = {"part": part, "policy": policy, "setting": setting, "horizon": horizon}
    return where | {"mean": float(values.mean()), "std": study.std(values), "runs": len(values)}


def coverage(policy: Any, factor: float, rounds: int, setup: study.Setup) -> Floats:
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
        truth = click_probabilities(relevance, examination, world)
        shown = rng.integers(len(truth), size=rounds)
        learner = Learner(policy, seed=run)
        decisions = learner.choose_many(
            ["one"] * rounds,
            relevance=list(relevance[shown][:, None]),
            examination=list(examination[shown][:, None]),
        )
        learner.learn_many(decisions, (rng.random(rounds) < truth[shown]).astype(float))
        known = learner.posterior("one")
        blocks = [known.relevance, known.examination] if known.joint is None else [known.joint]
        drawn = [rng.multivariate_normal(block.mean, block.covariance, 1000) for block in blocks]
        samples = np.hsplit(np.hstack(drawn), [DIM])
        factors = [
            sigmoid_of(theta @ features.T)
            for theta, features in zip(samples, (relevance, examination), strict=True)
        ]
        low, high = np.quantile(factors[0] * factors[1], [0.05, 0.95], axis=0)
        shares[run] = np.mean((low <= truth) & (truth <= high))
    return shares


def _coverage(setup: study.Setup) -> list[study.Cell]:
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


def _final_table(cells: list[study.Cell]) -> str:
    rows = []
    for factor in SCALES:
        mine = study.select(cells, setting=f"θ × {factor:g}")
        means = {cell["policy"]: cell["mean"] for cell in mine}
        ratio = f"{means['LaplaceEC'] / means['E-C Bandit']:.2f}"
        rows.append([f"× {factor:g}", *map(study.text_with_error(""), mine), ratio])
    names = list(dict.fromkeys(cell["policy"] for cell in cells))
    return study.markdown_table([["scale of θ", *names, "LaplaceEC / E-C Bandit"], *rows])


def _part_table(cells: list[study.Cell], part: str) -> str:
    columns: dict[str, study.Tell] = {
        "policy": "{policy}",
        "setting": "{setting}",
        "rounds": "{horizon:,}",
        "mean ± s.e.": study.text_with_error("", 3 if part == "coverage" else 1),
    }
    return study.table(study.select(cells, part=part), columns)


FIGURE_1 = study.Item(
    "Qi et al. (2018), figure 1: regret of E-C Bandit, and what drives the gap", 100, figure_1, READINGS
)
FIGURE_2 = study.Item(
    "Qi et al. (2018), figure 2: aggregate discrepancy and its bound", 100, figure_2, READINGS
)
APPENDIX_F = study.Item("Qi et al. (2018), appendix F: four crossed arms", 100, appendix_f)
SCALE = study.Item("Where modelling examination pays, and what goes beyond it", 20, scale, READINGS)
