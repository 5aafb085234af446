"""Figures 1 and 2, table 1 and the PAC setting of Yue and Joachims (2011), "Beat the mean bandit".

The paper does not say which Interleaved Filter it plays nor, beyond a footnote that calls its
confidence interval equivalent to equation (9), with which radius. Both versions are played with
both radii, δ = 1/(T·K²): (9), sqrt(ln(1/δ)/n), and the wide one of implementations,
sqrt(4·ln(1/δ)/n). Beat-the-Mean is played with the safe radius (4) and the tight one (9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.progress import progress
from tacit.environments import preferences
from tacit.policies import (
    BeatTheMean,
    BeatTheMeanPAC,
    DuelPolicy,
    InterleavedFilter1,
    InterleavedFilter2,
)
from tacit.reproduce.claims import beyond, both, exact_interval, rate, verdict
from tacit.reproduce.report import Item, Reproduction, Setup
from tacit.reproduce.study import (
    Cell,
    Tell,
    drawing,
    each_run,
    markdown_table,
    moments,
    only,
    select,
    table,
)

HORIZON = 10**10
ARMS = (10, 50, 100, 200, 300, 400, 500)
GAMMAS = tuple(round(1.0 + 0.05 * i, 2) for i in range(13))
TRIALS = 100

SAFE, TIGHT = "BeatTheMean (4)", "BeatTheMean (9)"
WIDE, NARROW = "InterleavedFilter2 wide", "InterleavedFilter2 (9)"
WIDE1, NARROW1 = "InterleavedFilter1 wide", "InterleavedFilter1 (9)"

Matrix = Callable[[Generator], Floats]


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
        What Beat-the-Mean is told.
    matrix : callable
        From a generator to the preferences, the best arm first.
    redrawn : bool
        Whether each trial has preferences of its own.
    """

    arms: int
    gamma: float
    matrix: Matrix
    redrawn: bool = False


# Trials -------------------------------------------------------------------------------------------


def generator(seed: int, *place: int) -> Generator:
    """Return the generator of one place of one reproduction."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=place)))


def play(
    policies: dict[str, Any], setting: Setting, place: int, horizon: int, setup: Setup
) -> dict[str, list[Any]]:
    """Return the outcomes of all trials by policy; they do not depend on the workers."""

    def trial(number: int) -> list[Any]:
        own = number if setting.redrawn else 0
        matrix = setting.matrix(generator(setup.seed, place, 0, own))
        gaps = matrix[0] - 0.5
        return [
            policy.sample_run(matrix, gaps, horizon, generator(setup.seed, place, 1 + i, number))
            for i, policy in enumerate(policies.values())
        ]

    outcomes = zip(*each_run(trial, setup.runs, setup), strict=True)
    return dict(zip(policies, map(list, outcomes), strict=True))


def cell(policy: str, setting: Setting, outcomes: Iterable[Any]) -> Cell:
    """Return the summary of a policy's trials."""
    regret = np.array([outcome.regret for outcome in outcomes])
    low, median, high = np.quantile(regret, [0.1, 0.5, 0.9])
    return {
        "policy": policy,
        "K": setting.arms,
        "gamma": setting.gamma,
        "utilities": "redrawn" if setting.redrawn else "fixed",
        **moments(regret),
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
    settings: list[Setting], label: str, setup: Setup, without: tuple[str, ...] = ()
) -> list[Cell]:
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


def chosen(cells: list[Cell], policy: str, **where: Any) -> list[Cell]:
    """Return the cells of a policy in the order of the axis."""
    return select(cells, policy=policy, **where)


def exponent(cells: list[Cell], value: str = "regret_mean") -> float:
    """Return how regret grows with K: 1 is linear; least squares in logarithms, K ≥ 50."""
    points = [(math.log(c["K"]), math.log(c[value])) for c in cells if c["K"] >= 50]
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def spread(found: dict[str, Any]) -> float:
    """Return the standard deviation over the mean."""
    return float(found["regret_std"] / found["regret_mean"])


def regrets(cells: list[Cell], axis: str) -> str:
    """Return the regret of every policy as a Markdown table."""
    values = sorted({c[axis] for c in cells})
    rows = [[axis, *dict.fromkeys(c["policy"] for c in cells)]]
    for value in values:
        row = [f"{value:g}"]
        for policy in rows[0][1:]:
            c = only(cells, policy=policy, **{axis: value})
            wrong = f", {c['mistakes']} wrong" if c["mistakes"] else ""
            row.append(
                f"{short(c['regret_mean'])} ± {short(c['regret_std'])} "
                f"(median {short(c['regret_median'])}{wrong})"
            )
        rows.append(row)
    return markdown_table(rows)


def short(value: float) -> str:
    """Return a number with three significant digits, in thousands or millions where large."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def growths(cells: list[Cell]) -> tuple[float, float, float]:
    """Return how mean and median regret grow with K, and the latter's standard error.

    That of a median is taken to be 1.25 times that of the mean, as in a normal distribution; where
    tails are heavy it is less.
    """
    large = [c for c in cells if c["K"] >= 50]
    x = np.log([c["K"] for c in large])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    relative = [1.25 * spread(c) / math.sqrt(c["trials"]) for c in large]
    error = float(np.sqrt(((weights * relative) ** 2).sum()))
    return exponent(cells), exponent(cells, "regret_median"), error


def preamble(setup: Setup) -> str:
    """Return what all reports of figures begin with."""
    return f"""Regret (1) after T = 10¹⁰ comparisons: mean ± standard deviation over {setup.runs}
trials (seed {setup.seed}); k is a thousand, M a million. "(4)", "(9)" and "wide" name the
confidence radius: 3γ²·sqrt(ln(1/δ)/n), sqrt(ln(1/δ)/n), and sqrt(4·ln(1/δ)/n). "Wrong" counts
trials in which the arm played in the end is not the best. The paper plots, but does not print,
its numbers, and does not say which Interleaved Filter it plays. Its footnote 7 calls the radius
of Interleaved Filter equivalent to (9); implementations use the wide one. Simulated by leaps,
which have exactly the law of single comparisons.

A claim holds, or does not, where the number is two standard errors (± below) or more from the
limit that is named; nearer, it is not decided by this number of trials."""


# Figure 1 -----------------------------------------------------------------------------------------


def figure_1_top(setup: Setup) -> Reproduction:
    """Uniform gaps of 0.1: γ = 1, K from 10 to 500."""
    settings = [
        Setting(arms, 1.0, lambda rng, arms=arms: preferences.uniform_gap(arms, 0.1))  # type: ignore[misc]
        for arms in ARMS
    ]
    cells = measured(settings, "figure 1, top", setup)
    title = "Yue and Joachims (2011), figure 1 (top): ε(i, j) = 0.1"
    report = f"""# {title}

{preamble(setup)}

{regrets(cells, "K")}

The paper says, and what was found:

{strong_transitivity(cells)}
"""
    return Reproduction(cells, report, by_arms(cells, TIGHT, title), settings_of(setup))


def figure_1_bottom(setup: Setup) -> Reproduction:
    """Logistic preferences between utilities N(0, 1): K from 10 to 500."""
    settings = [
        Setting(
            arms,
            1.0,
            lambda rng, arms=arms: preferences.logistic_utilities(arms, rng),  # type: ignore[misc]
            redrawn,
        )
        for redrawn in (True, False)
        for arms in ARMS
    ]
    cells = measured(settings, "figure 1, bottom", setup)
    title = "Yue and Joachims (2011), figure 1 (bottom): logistic utilities"
    parts = {name: [c for c in cells if c["utilities"] == name] for name in ("redrawn", "fixed")}
    report = f"""# {title}

{preamble(setup)}

With utilities redrawn in each trial the spread is mostly that of the draw: the regret of a trial
grows with 1/ε(1, 2), whose distribution has a heavy tail. Means and deviations then rest on few
trials; medians, and the trials of one fixed draw of utilities per K, say more.

## Utilities redrawn in each trial

{regrets(parts["redrawn"], "K")}

{strong_transitivity(parts["redrawn"])}

## One draw of utilities per K

{regrets(parts["fixed"], "K")}

{strong_transitivity(parts["fixed"])}
"""
    draw = panels(
        cells,
        "K",
        [({"utilities": name}, (TIGHT, WIDE, NARROW), f"utilities {name}") for name in parts],
        "number of arms K",
        title,
    )
    return Reproduction(cells, report, draw, settings_of(setup))


def strong_transitivity(cells: list[Cell]) -> str:
    """Return what figure 1 is said to show, and whether it does."""
    tight, safe = chosen(cells, TIGHT), chosen(cells, SAFE)
    lines = []
    for name in (TIGHT, WIDE, NARROW):
        growth, typical, error = growths(chosen(cells, name))
        lines.append(
            verdict(
                f"The regret of {name} grows linearly with K.",
                both(beyond(typical, 0.8, error), beyond(-typical, -1.2, error)),
                f"It grows with K^{growth:.2f}, its median with K^{typical:.2f} ± {error:.2f} "
                "(K from 50 to 500; 0.8 to 1.2 counts as linear).",
            )
        )
    for name in (WIDE, NARROW):
        ratios = [
            spread(theirs) / spread(ours)
            for ours, theirs in zip(tight, chosen(cells, name), strict=True)
        ]
        logs = np.log(ratios)
        error = float(logs.std(ddof=1) / math.sqrt(len(logs)))
        lines.append(
            verdict(
                f"The regret of {name} has a far higher spread.",
                beyond(float(logs.mean()), math.log(3.0), error),
                "Standard deviation over mean is "
                f"{min(ratios):.1f} to {max(ratios):.1f} times that of {TIGHT} "
                f"(geometric mean {math.exp(logs.mean()):.1f}, a factor of "
                f"{math.exp(error):.2f} either way; 3 counts as far higher).",
            )
        )
    for name in (WIDE1, NARROW1):
        _, typical, error = growths(chosen(cells, name))
        lines.append(
            f"- The median regret of {name}, whose bound has another factor ln K, grows with "
            f"K^{typical:.2f} ± {error:.2f}."
        )
    cost = [s["regret_mean"] / t["regret_mean"] for s, t in zip(safe, tight, strict=True)]
    wrong, trials = (sum(c[count] for c in tight) for count in ("mistakes", "trials"))
    lines.append(
        f"- What radius (4) costs Beat-the-Mean where (9) would do: {min(cost):.1f} to "
        f"{max(cost):.1f} times the regret. With (9), {wrong} of {trials} trials ended with a "
        f"wrong arm ({rate(wrong, trials)})."
    )
    return "\n".join(lines)


# Figure 2 -----------------------------------------------------------------------------------------


def chain(arms: int, gamma: float) -> Setting:
    """Return case B."""
    return Setting(arms, gamma, lambda rng: preferences.relaxed_chain(arms, gamma))


def figure_2_top(setup: Setup) -> Reproduction:
    """Case B with γ = 1.3: K from 10 to 500."""
    cells = measured([chain(arms, 1.3) for arms in ARMS], "figure 2, top", setup)
    title = "Yue and Joachims (2011), figure 2 (top): γ = 1.3"
    lines = []
    for name in (SAFE, TIGHT):
        _, growth, error = growths(chosen(cells, name))
        lines.append(
            verdict(
                f"The regret of {name} stays linear in K.",
                beyond(-growth, -1.2, error),
                f"Its median grows with K^{growth:.2f} ± {error:.2f} (up to 1.2 counts as linear).",
            )
        )
    for name in (WIDE, NARROW, WIDE1, NARROW1):
        found = chosen(cells, name)
        _, growth, error = growths(found)
        ratio = found[-1]["regret_mean"] / chosen(cells, SAFE)[-1]["regret_mean"]
        lines.append(
            verdict(
                f"The regret of {name} grows faster than K, and its spread is far higher.",
                both(
                    beyond(growth, 1.2, error),
                    spread(found[-1]) > 3 * spread(chosen(cells, SAFE)[-1]),
                ),
                f"Its median grows with K^{growth:.2f} ± {error:.2f} (above 1.2 counts as faster); "
                f"at K = 500 its mean is {ratio:.2g} times that of "
                f"{SAFE}, its deviation {spread(found[-1]):.2g} of its mean, against "
                f"{spread(chosen(cells, SAFE)[-1]):.2g}.",
            )
        )
    report = f"""# {title}

{preamble(setup)}

{regrets(cells, "K")}

The paper says, and what was found:

{chr(10).join(lines)}

{the_surprise(cells)}
"""
    return Reproduction(cells, report, by_arms(cells, SAFE, title), settings_of(setup))


def the_surprise(cells: list[Cell]) -> str:
    """Return which radius gives the printed picture, and what radius (4) costs."""
    at = {c["policy"]: c for c in cells if c["K"] == 500 and c["gamma"] == 1.3}
    safe, tight = at[SAFE], at[TIGHT]
    wide, narrow = at[WIDE]["regret_mean"], at[NARROW]["regret_mean"]
    mean = safe["regret_mean"]
    return f"""Which radius gives the printed picture, at K = 500 and γ = 1.3: with the wide one
Interleaved Filter 2 has {wide / mean:.2g} times the regret of Beat-the-Mean with its safe radius
(4); with (9) it has {narrow / mean:.2g} times that regret. Beat-the-Mean with radius (9) has
{tight["regret_mean"] / mean:.2g} times the regret that it has with (4), ended with a wrong arm in
{tight["mistakes"]} of {tight["trials"]} trials, and is not covered by the theorem where γ > 1."""


def figure_2_bottom(setup: Setup) -> Reproduction:
    """Case B with K = 500: γ from 1 to 1.6."""
    settings = [chain(arms, gamma) for arms in (250, 500) for gamma in GAMMAS]
    cells = measured(settings, "figure 2, bottom", setup, (WIDE1, NARROW1))
    title = "Yue and Joachims (2011), figure 2 (bottom): K = 500"
    large = [c for c in cells if c["K"] == 500]
    rows = [["γ", SAFE, TIGHT, WIDE, NARROW]]
    for gamma in GAMMAS:
        rows.append([f"{gamma:g}", *(f"{doubling(cells, n, gamma):.2f}" for n in rows[0][1:])])
    lines = []
    for name in (WIDE, NARROW):
        curve = chosen(large, name)
        steep = [g for g in GAMMAS if beyond(*faster(cells, name, g))]
        start = f"from γ = {steep[0]:g} on" if steep else "for no γ"
        peak = max(curve, key=lambda c: c["regret_mean"])
        fall = peak["regret_mean"] - curve[-1]["regret_mean"]
        error = math.hypot(*(c["regret_std"] / math.sqrt(c["trials"]) for c in (peak, curve[-1])))
        lines.append(
            verdict(
                f"{name} suffers super-linear regret from near γ = 1.3 on, "
                "which then falls a little.",
                both(
                    bool(steep) and 1.2 <= steep[0] <= 1.4,
                    peak is not curve[-1] and beyond(fall, 0.0, error),
                ),
                f"Its regret surely grows faster than K^1.2 {start}; it is highest at "
                f"γ = {peak['gamma']:g}"
                + (f", and {short(fall)} ± {short(error)} lower at γ = 1.6." if fall else "."),
            )
        )
    worst = max(GAMMAS, key=lambda gamma: doubling(cells, SAFE, gamma))
    growth, limit, error = faster(cells, SAFE, worst)
    lines.append(
        verdict(
            "Beat-the-Mean stays linear in K, whatever γ.",
            beyond(-growth, -limit, error),
            f"With radius (4) its regret grows with at most K^{growth:.2f} ± {error:.2f}.",
        )
    )
    price = [
        s["regret_mean"] / t["regret_mean"]
        for s, t in zip(chosen(large, SAFE), chosen(large, TIGHT), strict=True)
    ]
    wrong = sum(c["mistakes"] for c in chosen(large, TIGHT))
    trials = sum(c["trials"] for c in chosen(large, TIGHT))
    lines.append(
        verdict(
            "Beat-the-Mean may behave correctly with tighter intervals such as (9).",
            wrong == 0,
            f"It ended with a wrong arm in {wrong} of {trials} trials ({rate(wrong, trials)}), and "
            f"had {min(price):.1f} (γ = 1) to {max(price):.1f} times less regret than with (4).",
        )
    )
    report = f"""# {title}

{preamble(setup)}

{regrets(large, "gamma")}

How regret grows with K: the exponent between K = 250 and K = 500 (1 is linear, 2 quadratic), from
means.

{markdown_table(rows)}

The paper says, and what was found:

{chr(10).join(lines)}

{the_surprise(cells)}
"""
    draw = panels(
        large,
        "gamma",
        [({}, (SAFE, WIDE), "wide radius"), ({}, (SAFE, TIGHT, NARROW), "radius (9)")],
        "γ",
        title,
    )
    return Reproduction(cells, report, draw, settings_of(setup))


def doubling(cells: list[Cell], policy: str, gamma: float) -> float:
    """Return the exponent of growth between K = 250 and K = 500."""
    half, full = sorted(chosen(cells, policy, gamma=gamma), key=lambda c: c["K"])
    return math.log2(full["regret_mean"] / half["regret_mean"])


def faster(cells: list[Cell], policy: str, gamma: float) -> tuple[float, float, float]:
    """Return that exponent, the limit of what counts as linear, and the standard error."""
    pair = chosen(cells, policy, gamma=gamma)
    error = math.hypot(*(spread(c) / math.sqrt(c["trials"]) for c in pair)) / math.log(2.0)
    return doubling(cells, policy, gamma), 1.2, error


# Table 1 ------------------------------------------------------------------------------------------


def table_1(setup: Setup) -> Reproduction:
    """The ArXiv matrix: what it satisfies, and what the policies make of it."""
    setting = Setting(6, 1.5, lambda rng: preferences.arxiv())
    cells = measured([setting], "table 1", setup)
    matrix = preferences.arxiv()
    found = preferences.measure(matrix)
    names = "ABCDEF"
    rows = [["", *names]]
    for name, row in zip(names, matrix, strict=True):
        rows.append([name, *(f"{p - 0.5:+.2f}" for p in row)])

    def told(triple: tuple[int, ...]) -> str:
        return f"({', '.join(names[arm] for arm in triple)})"

    witnesses = " ".join(map(told, found.gamma_witnesses))
    violated = ", ".join(f"{told(v.triple)} by {v.excess:.2f}" for v in found.triangle_violations)
    lines = [
        verdict(
            "Preferences obey a total order A ≻ B ≻ … ≻ F.",
            found.strict_order,
            "D and F tie: ε(D, F) = 0.00.",
        ),
        verdict(
            "Relaxed stochastic transitivity holds for γ = 1.5, due to A, B, D.",
            math.isclose(found.gamma, 1.5),
            f"The smallest γ is {found.gamma:g}, due to {witnesses}.",
        ),
        verdict(
            "The stochastic triangle inequality holds.",
            not found.triangle_violations,
            f"It is violated in {violated}; footnote 1 would need λ = {found.lambda_:g}. "
            "(A, C, F) is an equality.",
        ),
    ]
    wrong = {c["policy"]: c["mistakes"] for c in cells}
    title = "Yue and Joachims (2011), table 1: six retrieval functions of ArXiv.org"
    report = f"""# {title}

P(row beats column) − 1/2:

{markdown_table(rows)}

The paper says, and what was found:

{chr(10).join(lines)}

## What the policies make of it

{preamble(setup)}

{regrets(cells, "K")}

Although the triangle inequality fails, the trials that ended with a wrong arm are:
{", ".join(f"{policy} {count}" for policy, count in wrong.items())}, of {setup.runs} each.
"""
    return Reproduction(cells, report, lambda path: _heat(matrix, path), settings_of(setup))


def _heat(matrix: Floats, path: Path) -> None:
    with drawing(path, 5.2, 4.6) as ax:
        image = ax.imshow(matrix - 0.5, cmap="RdBu", vmin=-0.12, vmax=0.12)
        for i, j in np.ndindex(matrix.shape):
            margin = matrix[i, j] - 0.5
            colour = "white" if abs(margin) > 0.08 else "black"
            ax.text(j, i, f"{margin:+.2f}", ha="center", va="center", size=8, color=colour)
        ax.set_xticks(range(6), "ABCDEF")
        ax.set_yticks(range(6), "ABCDEF")
        ax.grid(visible=False)
        ax.set_xlabel("loses")
        ax.set_ylabel("wins")
        ax.set_title("ArXiv.org: P(row beats column) − 1/2", size=10)
        ax.figure.colorbar(image, ax=ax, shrink=0.8)


# The PAC setting ----------------------------------------------------------------------------------

PAC_SETTINGS: dict[str, tuple[float, float, float, tuple[int, ...], Callable[[int], Floats]]] = {
    # name: (epsilon, delta, gamma, arms, matrix)
    "gaps of 0.1": (0.09, 0.05, 1.0, (5, 20, 80), lambda k: preferences.uniform_gap(k, 0.1)),
    "gaps of 0.02": (0.05, 0.05, 1.0, (5, 20, 80), lambda k: preferences.uniform_gap(k, 0.02)),
    "case B, γ = 1.3": (0.09, 0.05, 1.3, (5, 20, 80), lambda k: preferences.relaxed_chain(k, 1.3)),
    "table 1": (0.04, 0.05, 1.5, (6,), lambda k: preferences.arxiv()),
}


def pac(setup: Setup) -> Reproduction:
    """Sample complexity against theorem 2, and the rate of failure."""
    cells = []
    for place, (name, (epsilon, delta, gamma, sizes, matrix)) in enumerate(PAC_SETTINGS.items()):
        for arms in sizes:
            policy = BeatTheMeanPAC(arms, epsilon, delta, gamma)
            preference = matrix(arms)
            setting = Setting(arms, gamma, lambda rng, p=preference: p)  # type: ignore[misc]
            # More comparisons than any run can make (footnote 6).
            horizon = arms**2 * policy.enough
            runs = play({"PAC": policy}, setting, 100 * place + arms, horizon, setup)["PAC"]
            cells.append(_pac_cell(name, policy, preference, runs))
    title = "Yue and Joachims (2011): Beat-the-Mean in the PAC setting"
    report, settings = _pac_report(title, cells, setup), {"seed": setup.seed, "trials": setup.runs}
    return Reproduction(cells, report, lambda path: _pac_figure(cells, title, path), settings)


def _pac_cell(name: str, policy: BeatTheMeanPAC, matrix: Floats, runs: list[Any]) -> dict[str, Any]:
    made = np.array([run.comparisons for run in runs], float)
    failures = int(sum(matrix[0, run.winner] - 0.5 > policy.epsilon + 1e-12 for run in runs))
    low, high = exact_interval(failures, len(runs))
    per_bound = made / (policy.arm_count * policy.enough)
    return {
        "preferences": name,
        "K": policy.arm_count,
        "gamma": policy.gamma,
        "epsilon": policy.epsilon,
        "delta": policy.delta,
        "N": policy.enough,
        "comparisons_mean": float(made.mean()),
        "comparisons_q90": float(np.quantile(made, 0.9)),
        "comparisons_max": float(made.max()),
        "share_of_KN_mean": float(per_bound.mean()),
        "share_of_KN_max": float(per_bound.max()),
        "ended_by_N": sum(len(run.eliminated) < policy.arm_count - 1 for run in runs),
        "failures": failures,
        "failure_low": low,
        "failure_high": high,
        "trials": len(runs),
    }


PAC_COLUMNS: dict[str, Tell] = {
    "preferences": "{preferences}",
    "K": "{K}",
    "γ": "{gamma:g}",
    "ε": "{epsilon:g}",
    "N": "{N:,}",
    "comparisons/(K·N), mean": "{share_of_KN_mean:.4f}",
    "max": "{share_of_KN_max:.4f}",
    "ended by N": "{ended_by_N}",
    "failures": "{failures}",
    "95 % interval": "{failure_low:.4f}–{failure_high:.4f}",
}


def _pac_report(title: str, cells: list[Cell], setup: Setup) -> str:
    most = max(c["share_of_KN_max"] for c in cells)
    surely = all(c["failure_high"] <= c["delta"] for c in cells)
    possible = all(c["failure_low"] <= c["delta"] for c in cells)
    said = "Every interval lies below δ." if surely else "An interval reaches beyond δ."
    lines = [
        verdict(
            "The sample complexity is O(K·N) (theorem 2).",
            most <= 2.0,
            f"No trial made more than {most:.2f}·K·N comparisons, whatever K.",
        ),
        verdict(
            "The arm found is within ε of the best with probability at least 1 − δ.",
            True if surely else None if possible else False,
            said,
        ),
    ]
    return f"""# {title}

{setup.runs} trials each (seed {setup.seed}), δ = {cells[0]["delta"]:g}. A failure is an arm that
the best one beats by more than ε beyond one half; its rate has the interval of Clopper and Pearson.
N solves (8). Table 1 violates the triangle inequality, so theorem 2 does not cover it.

{table(cells, PAC_COLUMNS)}

The paper says, and what was found:

{chr(10).join(lines)}

Where the gaps are below ε every arm is within ε and exploration goes on until each has N
comparisons: the bound is met almost exactly, and no arm can be a failure. Where they
are larger, all arms but one leave before.
"""


def _pac_figure(cells: list[Cell], title: str, path: Path) -> None:
    with drawing(path) as ax:
        for name in PAC_SETTINGS:
            mine = select(cells, preferences=name)
            x = [c["K"] for c in mine]
            means = [c["comparisons_mean"] / (c["K"] * c["N"]) for c in mine]
            up = [c["share_of_KN_max"] - mean for c, mean in zip(mine, means, strict=True)]
            ax.errorbar(x, means, [[0.0] * len(up), up], marker="o", ms=4, capsize=3, label=name)
        ax.axhline(1.0, color="black", ls="--", lw=1, label="K·N")
        ax.set_xscale("log")
        ax.set_xticks([5, 10, 20, 40, 80], ["5", "10", "20", "40", "80"])
        ax.minorticks_off()
        ax.set_xlabel("number of arms K")
        ax.set_ylabel("comparisons/(K·N): mean, bar to the maximum")
        ax.set_ylim(bottom=0)
        ax.set_title(title, size=10)
        ax.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.73))


# Figures ------------------------------------------------------------------------------------------

COLOURS = {
    TIGHT: "#56B4E9",
    SAFE: "#0072B2",
    WIDE: "#333333",
    NARROW: "#D55E00",
}


def by_arms(cells: list[Cell], ours: str, title: str) -> Callable[[Path], None]:
    """Return what draws regret over K, once per radius of Interleaved Filter."""
    parts: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
        ({}, (ours, WIDE), "Interleaved Filter with the wide radius"),
        ({}, (ours, NARROW), "Interleaved Filter with radius (9)"),
    ]
    return panels(cells, "K", parts, "number of arms K", title)


def panels(
    cells: list[Cell],
    axis: str,
    parts: list[tuple[dict[str, Any], tuple[str, ...], str]],
    label: str,
    title: str,
) -> Callable[[Path], None]:
    """Return what draws panels of regret with bars of one standard deviation, and medians."""

    def draw(path: Path) -> None:
        style = {"marker": "o", "ms": 4, "capsize": 3}
        with drawing(path, 7.0, 3.6 * len(parts), rows=len(parts)) as axes:
            for ax, (where, policies, name) in zip(axes, parts, strict=True):
                for policy in policies:
                    mine, colour = chosen(cells, policy, **where), COLOURS[policy]
                    x = [c[axis] for c in mine]
                    means = [c["regret_mean"] / 1e6 for c in mine]
                    bars = [c["regret_std"] / 1e6 for c in mine]
                    ax.errorbar(x, means, bars, color=colour, label=policy, **style)
                    medians = [c["regret_median"] / 1e6 for c in mine]
                    ax.plot(x, medians, color=colour, ls="none", marker="x", ms=6)
                ax.plot([], [], color="black", ls="none", marker="x", label="median")
                ax.set_title(name, size=9)
                ax.set_ylabel("regret (millions; bars ±1 s.d.)")
                ax.set_ylim(bottom=0)
                ax.legend(frameon=False, fontsize=8)
            axes[-1].set_xlabel(label)
            axes[-1].figure.suptitle(title, size=10)

    return draw


def settings_of(setup: Setup) -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {"seed": setup.seed, "trials": setup.runs, "horizon": HORIZON}


FIGURE_1_TOP = Item("Yue and Joachims (2011), figure 1 (top): equal gaps", TRIALS, figure_1_top)
FIGURE_1_BOTTOM = Item(
    "Yue and Joachims (2011), figure 1 (bottom): logistic utilities", TRIALS, figure_1_bottom
)
FIGURE_2_TOP = Item(
    "Yue and Joachims (2011), figure 2 (top): relaxed transitivity, by K", TRIALS, figure_2_top
)
FIGURE_2_BOTTOM = Item(
    "Yue and Joachims (2011), figure 2 (bottom): relaxed transitivity, by γ",
    TRIALS,
    figure_2_bottom,
)
TABLE_1 = Item("Yue and Joachims (2011), table 1: ArXiv.org", TRIALS, table_1)
PAC = Item("Yue and Joachims (2011): the PAC setting", 1000, pac)
