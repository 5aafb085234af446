"""Figures 1 and 2, table 1 and the PAC setting of Yue and Joachims (2011), "Beat the mean bandit".

The paper does not say which Interleaved Filter it plays nor, beyond a footnote that calls its
confidence interval equivalent to equation (9), with which radius. Both versions are played with
both radii, δ = 1/(T·K²): (9), sqrt(ln(1/δ)/n), and the wide one of implementations,
sqrt(4·ln(1/δ)/n). Beat-the-Mean is played with the safe radius (4) and the tight one (9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.run_sampling import sample_run
from tacit.core.arrays import Floats, Generator
from tacit.core.parallel import progress
from tacit.environments import preferences
from tacit.plots import assign_line_styles
from tacit.policies import BeatTheMean, BeatTheMeanPAC, DuelPolicy, InterleavedFilter1, InterleavedFilter2

HORIZON = 10**10
ARMS = (10, 50, 100, 200, 300, 400, 500)
GAMMAS = tuple(round(1.0 + 0.05 * i, 2) for i in range(13))
TRIALS = 100

SAFE, TIGHT = "BeatTheMean (4)", "BeatTheMean (9)"
WIDE, NARROW = "InterleavedFilter2 wide", "InterleavedFilter2 (9)"
WIDE1, NARROW1 = "InterleavedFilter1 wide", "InterleavedFilter1 (9)"

Matrix = Callable[[Generator], Floats]
Panel = tuple[dict[str, Any], tuple[str, ...], str]
"""Which cells, of which policies, under which title."""


def contenders(arms: int, gamma: float) -> dict[str, DuelPolicy]:
    """Return the policies by name."""
    return {
        TIGHT: BeatTheMean(arms, HORIZON, gamma, scale=1.0),
        SAFE: BeatTheMean(arms, HORIZON, gamma, scale=3.0 * gamma**2),
        WIDE: InterleavedFilter2(arms, HORIZON),
        NARROW: InterleavedFilter2(arms, HORIZON, scale=1.0),
        WIDE1: InterleavedFilter1(arms, HORIZON),
        NARROW1: InterleavedFilter1(arms, HORIZON, scale=1.0),
    }


class Setting(NamedTuple):
    """One place on the horizontal axis of a figure.

    Attributes
    ----------
    arms : int
    gamma : float
        What Beat-the-Mean assumes.
    matrix : callable
        From a generator to the preferences, the best arm first.
    redrawn : bool
        Whether each trial has preferences of its own.
    """

    arms: int
    gamma: float
    matrix: Matrix
    redrawn: bool = False


def fixed(matrix: Floats) -> Matrix:
    """Return what gives the same preferences whatever the generator."""
    return lambda rng: matrix


# Trials -------------------------------------------------------------------------------------------


def generator(seed: int, *place: int) -> Generator:
    """Return the generator of one place of one reproduction."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=place)))


def play(
    policies: dict[str, Any], setting: Setting, place: int, horizon: int, setup: study.Setup
) -> dict[str, list[Any]]:
    """Return the outcomes of all trials by policy; they do not depend on the workers."""

    def trial(number: int) -> list[Any]:
        own = number if setting.redrawn else 0
        matrix = setting.matrix(generator(setup.seed, place, 0, own))
        gaps = matrix[0] - 0.5
        return [
            sample_run(policy, matrix, gaps, horizon, generator(setup.seed, place, 1 + i, number))
            for i, policy in enumerate(policies.values())
        ]

    outcomes = zip(*study.each_run(trial, setup.runs, setup), strict=True)
    return dict(zip(policies, map(list, outcomes), strict=True))


def cell(policy: str, setting: Setting, outcomes: Iterable[Any]) -> study.Cell:
    """Return the summary of a policy's trials."""
    regret = np.array([outcome.regret for outcome in outcomes])
    low, median, high = np.quantile(regret, [0.1, 0.5, 0.9])
    return {
        "policy": policy,
        "K": setting.arms,
        "gamma": setting.gamma,
        "utilities": "redrawn" if setting.redrawn else "fixed",
        **study.moments(regret),
        "trials": len(regret),
        "regret_q10": float(low),
        "regret_median": float(median),
        "regret_q90": float(high),
        "weak_regret_mean": float(np.mean([outcome.weak for outcome in outcomes])),
        "strong_regret_mean": float(np.mean([outcome.strong for outcome in outcomes])),
        "comparisons_mean": float(np.mean([outcome.comparisons for outcome in outcomes])),
        "mistakes": sum(outcome.winner != 0 for outcome in outcomes),
    }


def measured(
    settings: list[Setting], label: str, setup: study.Setup, without: tuple[str, ...] = ()
) -> list[study.Cell]:
    """Return the cells of a figure, without those of some policies."""
    cells = []
    with progress(len(settings), label) as advance:
        for place, setting in enumerate(settings):
            every = contenders(setting.arms, setting.gamma)
            policies = {name: policy for name, policy in every.items() if name not in without}
            found = play(policies, setting, place, HORIZON, setup)
            cells += [cell(policy, setting, outcomes) for policy, outcomes in found.items()]
            advance(1)
    return cells


# What holds ---------------------------------------------------------------------------------------


def spread(found: study.Cell) -> float:
    """Return the standard deviation over the mean."""
    return float(found["regret_std"] / found["regret_mean"])


def error_of(found: study.Cell) -> float:
    """Return the standard error of the mean, relative to it."""
    return spread(found) / math.sqrt(found["trials"])


def ratios(cells: Sequence[study.Cell], others: Sequence[study.Cell]) -> list[float]:
    """Return the mean regrets of some cells over those of others."""
    return [a["regret_mean"] / b["regret_mean"] for a, b in zip(cells, others, strict=True)]


def wrong_arms(cells: Sequence[study.Cell]) -> tuple[str, int]:
    """Return in how many trials the arm found was not the best: as text, and the number."""
    wrong, trials = (sum(c[count] for c in cells) for count in ("mistakes", "trials"))
    return f"{wrong} of {trials} trials", wrong


def regrets(cells: list[study.Cell], axis: str) -> str:
    """Return the regret of every policy as a Markdown table."""

    def tell(c: study.Cell) -> str:
        wrong = f", {c['mistakes']} wrong" if c["mistakes"] else ""
        mean, deviation, median = (short(c[f"regret_{name}"]) for name in ("mean", "std", "median"))
        return f"{mean} ± {deviation} (median {median}{wrong})"

    return study.pivot([c | {axis: f"{c[axis]:g}"} for c in cells], axis, "policy", tell)


def short(value: float) -> str:
    """Return a number with three significant digits, in thousands or millions where large."""
    for scale, name in ((1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{name}"
    return f"{value:.3g}"


class Growth(NamedTuple):
    """How regret grows with K ≥ 50: the exponent of its mean and its median, and their error.

    That of a median is taken to be 1.25 times that of the mean, as in a normal distribution; where
    tails are heavy it is less.
    """

    mean: float
    median: float
    error: float

    def __str__(self) -> str:
        return f"K^{self.median:.2f} ± {self.error:.2f}"


def growth(cells: list[study.Cell]) -> Growth:
    """Return how regret grows with K: 1 is linear; least squares in logarithms."""
    large = [c for c in cells if c["K"] >= 50]
    arms, errors = [c["K"] for c in large], [1.25 * error_of(c) for c in large]
    mean, median = (
        study.log_slope(arms, [c[f"regret_{name}"] for c in large], errors) for name in ("mean", "median")
    )
    return Growth(mean[0], *median)


def simulated(
    name: str,
    title: str,
    cells: list[study.Cell],
    draw: Callable[[Path], Any],
    setup: study.Setup,
    **more: Any,
) -> study.Reproduction:
    """Return what came of a figure or table that policies were played for."""
    preamble = study.report("yue2011_preamble", setup).strip()
    text = study.report(f"yue2011_{name}", setup, title=title, preamble=preamble, **more)
    settings = {"seed": setup.seed, "trials": setup.runs, "horizon": HORIZON}
    return study.Reproduction(cells, text, draw, settings)


# Figure 1 -----------------------------------------------------------------------------------------


def figure_1_top(setup: study.Setup) -> study.Reproduction:
    """Uniform gaps of 0.1: γ = 1, K from 10 to 500."""
    settings = [Setting(arms, 1.0, fixed(preferences.uniform_gap(arms, 0.1))) for arms in ARMS]
    cells = measured(settings, "figure 1, top", setup)
    title = "Yue and Joachims (2011), figure 1 (top): ε(i, j) = 0.1"
    claims = {"regrets": regrets(cells, "K"), "claims": strong_transitivity(cells)}
    return simulated("figure1_top", title, cells, by_arms(cells, TIGHT, title), setup, **claims)


def figure_1_bottom(setup: study.Setup) -> study.Reproduction:
    """Logistic preferences between utilities N(0, 1): K from 10 to 500."""
    settings = [
        Setting(arms, 1.0, partial(preferences.logistic_utilities, arms), redrawn)
        for redrawn in (True, False)
        for arms in ARMS
    ]
    cells = measured(settings, "figure 1, bottom", setup)
    title = "Yue and Joachims (2011), figure 1 (bottom): logistic utilities"
    parts = {name: study.select(cells, utilities=name) for name in ("redrawn", "fixed")}
    texts = {name: f"{regrets(c, 'K')}\n\n{strong_transitivity(c)}" for name, c in parts.items()}
    shown = [({"utilities": name}, (TIGHT, WIDE, NARROW), f"utilities {name}") for name in parts]
    draw = panels(cells, "K", shown, "number of arms K", title)
    return simulated("figure1_bottom", title, cells, draw, setup, **texts)


def strong_transitivity(cells: list[study.Cell]) -> str:
    """Return what figure 1 is said to show, and whether it does."""
    tight, safe = study.select(cells, policy=TIGHT), study.select(cells, policy=SAFE)
    lines = []
    for name in (TIGHT, WIDE, NARROW):
        found = growth(study.select(cells, policy=name))
        lines.append(
            study.verdict(
                f"The regret of {name} grows linearly with K.",
                study.both(
                    study.beyond(found.median, 0.8, found.error),
                    study.beyond(-found.median, -1.2, found.error),
                ),
                f"It grows with K^{found.mean:.2f}, its median with {found} "
                "(K from 50 to 500; 0.8 to 1.2 counts as linear).",
            )
        )
    for name in (WIDE, NARROW):
        theirs = study.select(cells, policy=name)
        times = [spread(a) / spread(b) for a, b in zip(theirs, tight, strict=True)]
        logs = np.log(times)
        error = float(logs.std(ddof=1) / math.sqrt(len(logs)))
        lines.append(
            study.verdict(
                f"The regret of {name} has a far higher spread.",
                study.beyond(float(logs.mean()), math.log(3.0), error),
                "Standard deviation over mean is "
                f"{min(times):.1f} to {max(times):.1f} times that of {TIGHT} "
                f"(geometric mean {math.exp(logs.mean()):.1f}, a factor of "
                f"{math.exp(error):.2f} either way; 3 counts as far higher).",
            )
        )
    lines += [
        f"- The median regret of {name}, whose bound has another factor ln K, grows with "
        f"{growth(study.select(cells, policy=name))}."
        for name in (WIDE1, NARROW1)
    ]
    cost, (wrong, _) = ratios(safe, tight), wrong_arms(tight)
    lines.append(
        f"- What radius (4) costs Beat-the-Mean where (9) would do: {min(cost):.1f} to "
        f"{max(cost):.1f} times the regret. With (9), {wrong} ended with a "
        f"wrong arm ({rate_of(tight)})."
    )
    return "\n".join(lines)


def rate_of(cells: Sequence[study.Cell]) -> str:
    """Return the rate of trials that ended with a wrong arm, in words."""
    return study.rate(sum(c["mistakes"] for c in cells), sum(c["trials"] for c in cells))


# Figure 2 -----------------------------------------------------------------------------------------


def chain(arms: int, gamma: float) -> Setting:
    """Return case B."""
    return Setting(arms, gamma, lambda rng: preferences.relaxed_chain(arms, gamma))


def figure_2_top(setup: study.Setup) -> study.Reproduction:
    """Case B with γ = 1.3: K from 10 to 500."""
    cells = measured([chain(arms, 1.3) for arms in ARMS], "figure 2, top", setup)
    title = "Yue and Joachims (2011), figure 2 (top): γ = 1.3"
    last = study.only(cells, policy=SAFE, K=ARMS[-1])
    lines = []
    for name in (SAFE, TIGHT):
        found = growth(study.select(cells, policy=name))
        lines.append(
            study.verdict(
                f"The regret of {name} stays linear in K.",
                study.beyond(-found.median, -1.2, found.error),
                f"Its median grows with {found} (up to 1.2 counts as linear).",
            )
        )
    for name in (WIDE, NARROW, WIDE1, NARROW1):
        mine = study.select(cells, policy=name)
        found = growth(mine)
        (ratio,) = ratios(mine[-1:], [last])
        lines.append(
            study.verdict(
                f"The regret of {name} grows faster than K, and its spread is far higher.",
                study.both(study.beyond(found.median, 1.2, found.error), spread(mine[-1]) > 3 * spread(last)),
                f"Its median grows with {found} (above 1.2 counts as faster); "
                f"at K = 500 its mean is {ratio:.2g} times that of "
                f"{SAFE}, its deviation {spread(mine[-1]):.2g} of its mean, against "
                f"{spread(last):.2g}.",
            )
        )
    texts = {"regrets": regrets(cells, "K"), "claims": "\n".join(lines)}
    texts["surprise"] = the_surprise(cells, setup)
    return simulated("figure2_top", title, cells, by_arms(cells, SAFE, title), setup, **texts)


def the_surprise(cells: list[study.Cell], setup: study.Setup) -> str:
    """Return which radius gives the printed picture, and what radius (4) costs."""
    at = [study.only(cells, policy=name, K=500, gamma=1.3) for name in (WIDE, NARROW, TIGHT, SAFE)]
    wide, narrow, ratio = ratios(at[:3], [at[3]] * 3)
    text = study.report("yue2011_surprise", setup, wide=wide, narrow=narrow, ratio=ratio, tight=at[2])
    return text.strip()


def figure_2_bottom(setup: study.Setup) -> study.Reproduction:
    """Case B with K = 500: γ from 1 to 1.6."""
    settings = [chain(arms, gamma) for arms in (250, 500) for gamma in GAMMAS]
    cells = measured(settings, "figure 2, bottom", setup, (WIDE1, NARROW1))
    title = "Yue and Joachims (2011), figure 2 (bottom): K = 500"
    large = study.select(cells, K=500)
    exponents = [
        {"γ": f"{gamma:g}", "policy": name, "exponent": doubling(cells, name, gamma)[0]}
        for gamma in GAMMAS
        for name in (SAFE, TIGHT, WIDE, NARROW)
    ]
    lines = [rise_and_fall(cells, name) for name in (WIDE, NARROW)]
    steepest, error = max(doubling(cells, SAFE, gamma) for gamma in GAMMAS)
    lines.append(
        study.verdict(
            "Beat-the-Mean stays linear in K, whatever γ.",
            study.beyond(-steepest, -LINEAR, error),
            f"With radius (4) its regret grows with at most K^{steepest:.2f} ± {error:.2f}.",
        )
    )
    tight = study.select(large, policy=TIGHT)
    price, (share, wrong) = ratios(study.select(large, policy=SAFE), tight), wrong_arms(tight)
    lines.append(
        study.verdict(
            "Beat-the-Mean may behave correctly with tighter intervals such as (9).",
            wrong == 0,
            f"It ended with a wrong arm in {share} ({rate_of(tight)}), and "
            f"had {min(price):.1f} (γ = 1) to {max(price):.1f} times less regret than with (4).",
        )
    )
    shown: list[Panel] = [({}, (SAFE, WIDE), "wide radius"), ({}, (SAFE, TIGHT, NARROW), "radius (9)")]
    return simulated(
        "figure2_bottom",
        title,
        cells,
        panels(large, "gamma", shown, "γ", title),
        setup,
        regrets=regrets(large, "gamma"),
        exponents=study.pivot(exponents, "γ", "policy", "{exponent:.2f}"),
        claims="\n".join(lines),
        surprise=the_surprise(cells, setup),
    )


LINEAR = 1.2
"""The largest exponent of K that counts as linear."""


def doubling(cells: list[study.Cell], policy: str, gamma: float) -> tuple[float, float]:
    """Return the exponent of growth between K = 250 and K = 500, and its standard error."""
    half, full = (study.only(cells, policy=policy, gamma=gamma, K=arms) for arms in (250, 500))
    exponent = math.log2(full["regret_mean"] / half["regret_mean"])
    return exponent, math.hypot(error_of(half), error_of(full)) / math.log(2.0)


def rise_and_fall(cells: list[study.Cell], name: str) -> str:
    """Return whether regret is super-linear from near γ = 1.3 on, and then falls a little."""
    curve = study.select(cells, policy=name, K=500)
    growths = {gamma: doubling(cells, name, gamma) for gamma in GAMMAS}
    steep = [g for g, (exponent, error) in growths.items() if study.beyond(exponent, LINEAR, error)]
    start = f"from γ = {steep[0]:g} on" if steep else "for no γ"
    peak = max(curve, key=lambda c: c["regret_mean"])
    fall = peak["regret_mean"] - curve[-1]["regret_mean"]
    error = math.hypot(*(c["regret_std"] / math.sqrt(c["trials"]) for c in (peak, curve[-1])))
    falls = peak is not curve[-1] and study.beyond(fall, 0.0, error)
    after = f", and {short(fall)} ± {short(error)} lower at γ = 1.6." if fall else "."
    return study.verdict(
        f"{name} suffers super-linear regret from near γ = 1.3 on, which then falls a little.",
        study.both(bool(steep) and 1.2 <= steep[0] <= 1.4, falls),
        f"Its regret surely grows faster than K^1.2 {start}; it is highest at γ = {peak['gamma']:g}{after}",
    )


# Table 1 ------------------------------------------------------------------------------------------


def table_1(setup: study.Setup) -> study.Reproduction:
    """The ArXiv matrix: what it satisfies, and what the policies make of it."""
    matrix = preferences.arxiv()
    cells = measured([Setting(6, 1.5, fixed(matrix))], "table 1", setup)
    found = preferences.measure(matrix)
    names = "ABCDEF"
    rows = [["", *names]]
    for name, row in zip(names, matrix, strict=True):
        rows.append([name, *(f"{p - 0.5:+.2f}" for p in row)])

    def named(triple: tuple[int, ...]) -> str:
        return f"({', '.join(names[arm] for arm in triple)})"

    witnesses = " ".join(map(named, found.gamma_witnesses))
    violated = ", ".join(f"{named(v.triple)} by {v.excess:.2f}" for v in found.triangle_violations)
    claims = (
        ("Preferences obey a total order A ≻ B ≻ … ≻ F.", found.strict_order, "D and F tie: ε(D, F) = 0.00."),
        (
            "Relaxed stochastic transitivity holds for γ = 1.5, due to A, B, D.",
            math.isclose(found.gamma, 1.5),
            f"The smallest γ is {found.gamma:g}, due to {witnesses}.",
        ),
        (
            "The stochastic triangle inequality holds.",
            not found.triangle_violations,
            f"It is violated in {violated}; footnote 1 would need λ = {found.lambda_:g}. "
            "(A, C, F) is an equality.",
        ),
    )
    return simulated(
        "table1",
        "Yue and Joachims (2011), table 1: six retrieval functions of ArXiv.org",
        cells,
        lambda path: _heat(matrix, path),
        setup,
        matrix=study.markdown_table(rows),
        claims="\n".join(study.verdict(*claim) for claim in claims),
        regrets=regrets(cells, "K"),
        wrong=", ".join(f"{c['policy']} {c['mistakes']}" for c in cells),
    )


def _heat(matrix: Floats, path: Path) -> None:
    with study.drawing(path, 5.2, 4.6) as ax:
        image = ax.imshow(matrix - 0.5, cmap="RdBu", vmin=-0.12, vmax=0.12)
        for i, j in np.ndindex(matrix.shape):
            margin = matrix[i, j] - 0.5
            colour = "white" if abs(margin) > 0.08 else "black"
            ax.text(j, i, f"{margin:+.2f}", ha="center", va="center", size=8, color=colour)
        ax.set_xticks(range(6), "ABCDEF")
        ax.set_yticks(range(6), "ABCDEF")
        ax.grid(visible=False)
        study.inscribe(ax, "ArXiv.org: P(row beats column) − 1/2", xlabel="loses", ylabel="wins")
        ax.figure.colorbar(image, ax=ax, shrink=0.8)


# The PAC setting ----------------------------------------------------------------------------------

PAC_SETTINGS: dict[str, tuple[float, float, float, tuple[int, ...], Callable[[int], Floats]]] = {
    # name: (epsilon, delta, gamma, arms, matrix)
    "gaps of 0.1": (0.09, 0.05, 1.0, (5, 20, 80), lambda k: preferences.uniform_gap(k, 0.1)),
    "gaps of 0.02": (0.05, 0.05, 1.0, (5, 20, 80), lambda k: preferences.uniform_gap(k, 0.02)),
    "case B, γ = 1.3": (0.09, 0.05, 1.3, (5, 20, 80), lambda k: preferences.relaxed_chain(k, 1.3)),
    "table 1": (0.04, 0.05, 1.5, (6,), lambda k: preferences.arxiv()),
}


def pac(setup: study.Setup) -> study.Reproduction:
    """Sample complexity against theorem 2, and the rate of failure."""
    cells = []
    for place, (name, (epsilon, delta, gamma, sizes, matrix)) in enumerate(PAC_SETTINGS.items()):
        for arms in sizes:
            policy = BeatTheMeanPAC(arms, epsilon, delta, gamma)
            preference = matrix(arms)
            setting = Setting(arms, gamma, fixed(preference))
            # More comparisons than any run can make (footnote 6).
            horizon = arms**2 * policy.enough
            runs = play({"PAC": policy}, setting, 100 * place + arms, horizon, setup)["PAC"]
            cells.append(_pac_cell(name, policy, preference, runs))
    title = "Yue and Joachims (2011): Beat-the-Mean in the PAC setting"
    parts = {"table": study.table(cells, PAC_COLUMNS), "claims": _pac_claims(cells)}
    text = study.report("yue2011_pac", setup, title=title, delta=cells[0]["delta"], **parts)
    settings = {"seed": setup.seed, "trials": setup.runs}
    return study.Reproduction(cells, text, lambda path: _pac_figure(cells, title, path), settings)


def _pac_cell(name: str, policy: BeatTheMeanPAC, matrix: Floats, runs: list[Any]) -> dict[str, Any]:
    made = np.array([run.comparisons for run in runs], float)
    failures = int(sum(matrix[0, run.winner] - 0.5 > policy.epsilon + 1e-12 for run in runs))
    low, high = study.exact_interval(failures, len(runs))
    per_bound = made / (policy.arm_count * policy.enough)
    return {
        "preferences": name,
        "K": policy.arm_count,
        "gamma": policy.gamma,
        "epsilon": policy.epsilon,
        "delta": policy.delta,
        "N": policy.enough,
        "comparisons_mean": float(made.mean()),
        "share_of_KN_mean": float(per_bound.mean()),
        "share_of_KN_max": float(per_bound.max()),
        "ended_by_N": sum(len(run.eliminated) < policy.arm_count - 1 for run in runs),
        "failures": failures,
        "failure_low": low,
        "failure_high": high,
        "trials": len(runs),
    }


PAC_COLUMNS: dict[str, study.Tell] = {"preferences": "{preferences}", "K": "{K}", "γ": "{gamma:g}"}
PAC_COLUMNS |= {"ε": "{epsilon:g}", "N": "{N:,}", "comparisons/(K·N), mean": "{share_of_KN_mean:.4f}"}
PAC_COLUMNS |= {"max": "{share_of_KN_max:.4f}", "ended by N": "{ended_by_N}", "failures": "{failures}"}
PAC_COLUMNS |= {"95 % interval": "{failure_low:.4f}–{failure_high:.4f}"}


def _pac_claims(cells: list[study.Cell]) -> str:
    most = max(c["share_of_KN_max"] for c in cells)
    surely = all(c["failure_high"] <= c["delta"] for c in cells)
    possible = all(c["failure_low"] <= c["delta"] for c in cells)
    complexity = study.verdict(
        "The sample complexity is O(K·N) (theorem 2).",
        most <= 2.0,
        f"No trial made more than {most:.2f}·K·N comparisons, whatever K.",
    )
    failures = study.verdict(
        "The arm found is within ε of the best with probability at least 1 − δ.",
        True if surely else None if possible else False,
        "Every interval lies below δ." if surely else "An interval reaches beyond δ.",
    )
    return f"{complexity}\n{failures}"


def _pac_figure(cells: list[study.Cell], title: str, path: Path) -> None:
    with study.drawing(path) as ax:
        for name in PAC_SETTINGS:
            mine = study.select(cells, preferences=name)
            x, means, most = ([c[key] for c in mine] for key in ("K", "share_of_KN_mean", "share_of_KN_max"))
            bars = [[0.0] * len(x), np.subtract(most, means)]
            ax.errorbar(x, means, bars, label=name, **study.MARKED)
        ax.axhline(1.0, color="black", ls="--", lw=1, label="K·N")
        ax.set_xticks([5, 20, 80])
        share = "comparisons/(K·N): mean, bar to the maximum"
        study.inscribe(ax, title, xlabel="number of arms K", ylabel=share, ylim=(0, None))
        ax.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.73))


# Figures ------------------------------------------------------------------------------------------


def by_arms(cells: list[study.Cell], ours: str, title: str) -> Callable[[Path], None]:
    """Return what draws regret over K, once per radius of Interleaved Filter."""
    parts: list[Panel] = [
        ({}, (ours, WIDE), "Interleaved Filter with the wide radius"),
        ({}, (ours, NARROW), "Interleaved Filter with radius (9)"),
    ]
    return panels(cells, "K", parts, "number of arms K", title)


def panels(
    cells: list[study.Cell], axis: str, parts: Sequence[Panel], label: str, title: str
) -> Callable[[Path], None]:
    """Return what draws panels of regret with bars of one standard deviation, and medians."""

    def draw(path: Path) -> None:
        regret = "regret (millions; bars ±1 s.d.)"
        shown = assign_line_styles(policy for _, policies, _ in parts for policy in policies)
        with study.drawing(path, 7.0, 3.6 * len(parts), rows=len(parts)) as axes:
            for ax, (where, policies, heading) in zip(axes, parts, strict=True):
                for policy in policies:
                    mine, look = study.select(cells, policy=policy, **where), shown[policy]
                    x = [c[axis] for c in mine]
                    means, bars, medians = (
                        [c[name] / 1e6 for c in mine]
                        for name in ("regret_mean", "regret_std", "regret_median")
                    )
                    ax.errorbar(x, means, bars, label=policy, **look, **study.MARKED)
                    ax.plot(x, medians, color=look["color"], ls="none", marker="x", ms=6)
                ax.plot([], [], color="black", ls="none", marker="x", label="median")
                study.inscribe(ax, heading, 9, legend=8, ylabel=regret, ylim=(0, None))
            axes[-1].set_xlabel(label)
            axes[-1].figure.suptitle(title, size=10)

    return draw


FIGURE_1_TOP = study.Item("Yue and Joachims (2011), figure 1 (top): equal gaps", TRIALS, figure_1_top)
FIGURE_1_BOTTOM = study.Item(
    "Yue and Joachims (2011), figure 1 (bottom): logistic utilities", TRIALS, figure_1_bottom
)
FIGURE_2_TOP = study.Item(
    "Yue and Joachims (2011), figure 2 (top): relaxed transitivity, by K", TRIALS, figure_2_top
)
FIGURE_2_BOTTOM = study.Item(
    "Yue and Joachims (2011), figure 2 (bottom): relaxed transitivity, by γ", TRIALS, figure_2_bottom
)
TABLE_1 = study.Item("Yue and Joachims (2011), table 1: ArXiv.org", TRIALS, table_1)
PAC = study.Item("Yue and Joachims (2011): the PAC setting", 1000, pac)
