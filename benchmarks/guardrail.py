"""How often a guardrail acts wrongly, over all looks and arms, and when it finds harm.

python benchmarks/guardrail.py            everything, about 15 minutes of processor time; writes GUARDRAIL.md
python benchmarks/guardrail.py --quick    few runs; prints only

The policy is ``auto``, which learns clicks; the metric that is watched is drawn apart from them. Each run
looks as the service does: first after 256 decisions, then once there are 256 more, and 1 % more.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from tables import markdown

import tacit
from tacit.core.seeds import stream
from tacit.uplift import HoldoutSums, boundary
from tacit.uplift.holdout import difference_from_ratio, has_enough_data, ratio_ends
from tacit.uplift.metric_degradation import DegradationSums, count_comparisons

HERE = Path(__file__).parent
SEED = 20260726
BLOCK = 256
GROWTH = 1.01


class Effort(NamedTuple):
    """How many runs there are: of what errs, of when harm is found, and of holdouts."""

    errors: int
    power: int
    holdouts: int


FULL, QUICK = Effort(4000, 200, 4000), Effort(20, 10, 100)


class World(NamedTuple):
    """Arms with a chance of a click and of a return each, and the margin of the guardrail.

    Attributes
    ----------
    clicks, returns : tuple of float
        Of each arm; the first one is what others are held against.
    margin : float
    at_least : dict of int to float
        What arms are promised.
    """

    clicks: tuple[float, ...]
    returns: tuple[float, ...]
    margin: float
    at_least: Mapping[int, float] = MappingProxyType({})


class Found(NamedTuple):
    """What became of runs: after how many decisions each acted first; infinite where it did not."""

    first: np.ndarray

    @property
    def share(self) -> str:
        """Of the runs that acted, with its standard error."""
        p = float(np.isfinite(self.first).mean())
        return f"{100 * p:.1f} ± {100 * math.sqrt(p * (1 - p) / len(self.first)):.1f} %"

    def quantile(self, q: float) -> str:
        """Return within how many decisions so many of the runs acted."""
        found = float(np.sort(self.first)[math.ceil(q * len(self.first)) - 1])
        return f"{found:,.0f}" if math.isfinite(found) else "not reached"


def first_of_arms(world: World, decisions: int, seed: int) -> float:
    """Return after how many decisions an arm is proved to do harm, in one run."""
    arms, rng = len(world.clicks), stream("users", seed)
    clicks, returns = np.array(world.clicks), np.array(world.returns)
    learner = tacit.Learner(tacit.auto(arms, at_least=dict(world.at_least)), seed=seed)
    sums, comparisons = DegradationSums(arms), count_comparisons(arms, initial=arms)
    offered = np.ones((BLOCK, arms), np.bool_)
    look = 0.0
    for n in range(BLOCK, decisions + 1, BLOCK):
        made = learner.choose_many(["key"] * BLOCK)
        shown = made.actions[:, 0].copy()
        sums.add(shown, rng.random(BLOCK) < returns[shown], made.propensities, offered, baseline=0)
        learner.learn_many(made, (rng.random(BLOCK) < clicks[shown]).astype(np.float64))
        if n >= look:
            look = max(n + BLOCK, GROWTH * n)
            if sums.find_degradations(world.margin, "less", comparisons):
                return float(n)
    return math.inf


def arms_found(world: World, decisions: int, runs: int) -> Found:
    """Return when runs of arms acted."""
    return Found(np.array([first_of_arms(world, decisions, SEED + run) for run in range(runs)]))


def holdout_found(
    share: float, rates: tuple[float, float], margin: float, decisions: int, runs: int
) -> Found:
    """Return when runs of a policy against its control acted; rates are of control and policy."""
    rng = stream(f"holdout {share} {rates} {margin}", SEED)
    counts, totals = np.zeros((2, runs)), np.zeros((2, runs))
    first, look = np.full(runs, math.inf), 0.0
    for n in range(BLOCK, decisions + 1, BLOCK):
        held = rng.binomial(BLOCK, share, runs)
        each = np.array([held, BLOCK - held])
        counts += each
        totals += rng.binomial(each, np.array(rates)[:, None])
        if n < look:
            continue
        look = max(n + BLOCK, GROWTH * n)
        sums = HoldoutSums(counts, totals, totals)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, _ = ratio_ends(sums, boundary())
            harm = has_enough_data(sums, share) & (difference_from_ratio(sums, low) > margin)
        first[harm & np.isinf(first)] = n
    return Found(first)


# What is measured --------------------------------------------------------------------------------

CLICKS = 0.1
DECISIONS, LONG = 15_000, 60_000
PROMISED = "last far better, 0.2 promised to the first, 0.1 to the second"
ERRORS = [
    (2, 0.02, "alike", 0.0), (5, 0.2, "alike", 0.0), (5, 0.2, "last far better", 0.0),
    (3, 0.1, "alike", 0.05), (5, 0.2, PROMISED, 0.0),
]  # fmt: skip
"""Arms, the rate of the metric, clicks, and the margin, which is also the true harm."""


def errors_of_arms(runs: int) -> list[list[str]]:
    """Return how often runs without harm beyond the margin acted."""
    rows = []
    for arms, rate, alike, margin in ERRORS:
        clicks = (CLICKS,) * (arms - 1) + (CLICKS if alike == "alike" else 2 * CLICKS,)
        promised = {0: 0.2, 1: 0.1} if alike == PROMISED else {}
        world = World(clicks, (rate,) + (rate + margin,) * (arms - 1), margin, promised)
        found = arms_found(world, DECISIONS, runs)
        rows.append([str(arms), f"{rate:g}", alike, f"{margin:g}", found.share])
        print(rows[-1], flush=True)
    return rows


def power_of_arms(runs: int) -> list[list[str]]:
    """Return when harm of twice the margin, of one arm, is found."""
    rows = []
    for arms, (rate, margin) in itertools.product((2, 5), ((0.02, 0.02), (0.2, 0.1))):
        for clicks in ("alike", "the harmful one better"):
            chances = [CLICKS] * arms
            chances[1] = CLICKS if clicks == "alike" else 1.3 * CLICKS
            harmful = [rate] * arms
            harmful[1] = rate + 2 * margin
            world = World(tuple(chances), tuple(harmful), margin)
            found = arms_found(world, LONG, runs)
            row = [str(arms), f"{rate:g}", f"{margin:g}", clicks, found.share]
            rows.append([*row, found.quantile(0.5), found.quantile(0.8)])
            print(rows[-1], flush=True)
    return rows


def of_holdouts(runs: int) -> list[list[str]]:
    """Return how often policies without harm beyond the margin gave way, and when those with twice it did."""
    rows = []
    for share, (rate, margin) in itertools.product((0.1, 0.5), ((0.02, 0.02), (0.2, 0.05))):
        nothing = holdout_found(share, (rate, rate), 0.0, LONG, runs)
        at = holdout_found(share, (rate, rate + margin), margin, LONG, runs)
        twice = holdout_found(share, (rate, rate + 2 * margin), margin, LONG, runs)
        row = [f"{share:g}", f"{rate:g}", f"{margin:g}", nothing.share, at.share, twice.share]
        rows.append([*row, twice.quantile(0.5), twice.quantile(0.8)])
        print(rows[-1], flush=True)
    return rows


def report(effort: Effort) -> str:
    """Return all of it as Markdown."""
    errors, power, holdouts = effort
    parts = [
        "# A guardrail that acts, measured",
        "Written by `python benchmarks/guardrail.py`, with `auto` as the policy, which learns clicks (0.1 of "
        "every arm, but where it says otherwise). The metric is drawn apart from them; "
        "less of it is better.",
        "## Arms: acting wrongly, at any look, on any arm",
        f"{errors:,} runs of {DECISIONS:,} decisions each. All arms but the one that they are held against "
        "are worse by exactly the margin: with 0 all are the same.",
        markdown(["arms", "rate", "clicks", "margin", "acted wrongly"], errors_of_arms(errors)),
        "## Arms: decisions until one that does harm of twice the margin is retired",
        f"{power:,} runs of {LONG:,} decisions each; the others do none.",
        markdown(
            ["arms", "rate", "margin", "clicks", "found", "half of the runs", "4 of 5"], power_of_arms(power)
        ),
        "## The policy against the control",
        f"{holdouts:,} runs of {LONG:,} decisions each.",
        markdown(
            ["holdout", "rate", "margin", "acted wrongly: margin 0, no harm", "harm as large as the margin",
             "found at twice the margin", "half of the runs", "4 of 5"], of_holdouts(holdouts),
        ),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    text = report(QUICK if quick else FULL)
    print(text)
    if not quick:
        (HERE / "GUARDRAIL.md").write_text(text)


if __name__ == "__main__":
    main()
