"""How often the intervals of the offline estimators hold the truth, on logs where it is known."""

# 1. ``World``: a click log's truth, known; ``drawn``: one log of it.
# 2. ``estimates``, ``bounds_of``: each estimator's intervals of that log.
# 3. ``reproduce``: how many intervals hold the truth.

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies import study
from tacit.core.arrays import Floats, Generator
from tacit.evaluate import intervals
from tacit.evaluate.intervals import Bounds, Sums, sum_units
from tacit.plots import COLOURS

TITLE = "Coverage of the intervals of offline estimators"
CONFIDENCE = 0.95
ROWS = (300, 3000, 30_000)
CONTEXTS = 5
KINDS = ("normal", "bootstrap", "anytime")


class World(NamedTuple):
    """Chances of a click and two policies, each (contexts, arms).

    Attributes
    ----------
    truth, logged, target : array of float64, shape (contexts, arms)
        Contexts are equally likely.
    """

    truth: Floats
    logged: Floats
    target: Floats

    @property
    def value(self) -> float:
        """What the target policy earns."""
        return float((self.truth * self.target).sum(axis=1).mean())

    @property
    def weight_bound(self) -> float:
        """The largest weight there can be."""
        return float((self.target / self.logged).max())


def worlds() -> dict[str, World]:
    """Return the settings, the same for every seed."""
    rng = np.random.default_rng(20260101)
    often = rng.uniform(0.1, 0.9, (CONTEXTS, 6))
    rare = rng.uniform(0.001, 0.02, (CONTEXTS, 6))
    flat = np.full((CONTEXTS, 6), 1 / 6)
    greedy = _softmax(8 * often)
    return {
        "uniform log, frequent clicks": World(often, flat, greedy),
        "uniform log, rare clicks": World(rare, flat, _softmax(300 * rare)),
        "log against the target, heavy weights": World(often, _softmax(-4 * often), greedy),
    }


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class Drawn(NamedTuple):
    """One log: weights and rewards, the model's errors, and its expectation under the target."""

    weights: Floats
    rewards: Floats
    errors: Floats
    expected: Floats


def drawn(world: World, rows: int, rng: Generator) -> Drawn:
    """Draw a log; the model of the rewards is fitted to two halves, each for the other."""
    context = rng.integers(CONTEXTS, size=rows)
    arm = (rng.random(rows)[:, None] > world.logged.cumsum(axis=1)[context]).sum(axis=1)
    arm = np.minimum(arm, world.logged.shape[1] - 1)
    reward = (rng.random(rows) < world.truth[context, arm]).astype(np.float64)
    weights = (world.target / world.logged)[context, arm]
    shape = (2, *world.truth.shape)
    fold = np.arange(rows) % 2
    index = np.ravel_multi_index((1 - fold, context, arm), shape)
    size = 2 * world.truth.size
    count = np.bincount(index, minlength=size).reshape(shape)
    total = np.bincount(index, reward, size).reshape(shape)
    model = (total + reward.mean()) / (count + 1.0)
    expected = (model * world.target).sum(axis=2)
    return Drawn(weights, reward, reward - model[fold, context, arm], expected[fold, context])


def estimates(log: Drawn) -> dict[str, tuple[Sums, bool]]:
    """Return the sums of each estimator, and whether it is a ratio."""
    of = partial(sum_units, rewards=log.rewards)
    plain = of(log.weights, log.weights * log.rewards)
    cut = np.minimum(log.weights, 5.0)
    switched = np.where(log.weights <= 5.0, log.weights, 0.0)
    return {
        "IPS": (plain, False),
        "SNIPS": (plain, True),
        "IPS(clip=5)": (of(cut, cut * log.rewards), False),
        "DoublyRobust": (of(log.weights, log.expected + log.weights * log.errors), False),
        "SwitchDR(threshold=5)": (of(switched, log.expected + switched * log.errors), False),
    }


def bounds_of(name: str, sums: Sums, ratio: bool, world: World, seed: int) -> Iterator[tuple[str, Bounds]]:
    """Yield the intervals of one estimator by kind, as ``off_policy`` computes them."""
    limits = intervals.normal(sums, ratio, CONFIDENCE)
    yield "normal", intervals.widen_interval(limits, sums, CONFIDENCE)
    limits = intervals.bootstrap(sums, ratio, CONFIDENCE, seed=seed, replicates=400)
    yield "bootstrap", intervals.widen_interval(limits, sums, CONFIDENCE)
    bound = world.weight_bound
    if "IPS" in name:
        yield "anytime", intervals.anytime(sums, CONFIDENCE)
    if name == "IPS":
        yield "anytime, bounded", intervals.anytime(sums, CONFIDENCE, weight_bound=bound)
    if name == "DoublyRobust":
        yield "anytime, bounded", intervals.anytime_in_range(sums, -bound, 1.0 + bound, CONFIDENCE)


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Draw the logs of every setting and size, and count the intervals that hold the truth."""
    runs = [(name, world, rows) for name, world in worlds().items() for rows in ROWS]
    seeds = np.random.SeedSequence(setup.seed).spawn(len(runs))
    with ThreadPoolExecutor(setup.workers) as pool:
        jobs = [
            pool.submit(_cells, name, world, rows, seed, setup.runs)
            for (name, world, rows), seed in zip(runs, seeds, strict=True)
        ]
        parts = [job.result() for job in jobs]
    cells = [cell for part in parts for cell in part]
    settings = setup.settings(confidence=CONFIDENCE, rows=ROWS)
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, path), settings)


def _cells(name: str, world: World, rows: int, seeds: np.random.SeedSequence, runs: int) -> list[study.Cell]:
    values: dict[str, list[float]] = {}
    held: dict[tuple[str, str], list[tuple[bool, float]]] = {}
    for run, seed in enumerate(seeds.spawn(runs)):
        log = drawn(world, rows, np.random.default_rng(seed))
        for estimator, (sums, ratio) in estimates(log).items():
            values.setdefault(estimator, []).append(intervals.compute_estimate(sums, ratio))
            for kind, (low, high) in bounds_of(estimator, sums, ratio, world, run):
                found = held.setdefault((estimator, kind), [])
                found.append((low <= world.value <= high, high - low))
    return [
        {
            "setting": name,
            "rows": rows,
            "estimator": estimator,
            "interval": kind,
            "coverage": float(np.mean([inside for inside, _ in found])),
            "coverage_se": _error(found),
            "mean_width": float(np.mean([width for _, width in found])),
            "bias": float(np.mean(values[estimator]) - world.value),
            "rmse": float(np.sqrt(np.mean((np.array(values[estimator]) - world.value) ** 2))),
            "truth": world.value,
            "weight_bound": world.weight_bound,
            "runs": runs,
        }
        for (estimator, kind), found in held.items()
    ]


def _error(found: list[tuple[bool, float]]) -> float:
    share = float(np.mean([inside for inside, _ in found]))
    return math.sqrt(share * (1 - share) / len(found))


COLUMNS: dict[str, study.Tell] = {
    "setting": "{setting}",
    "rows": "{rows:,}",
    "estimator": "{estimator}",
    "interval": "{interval}",
    "coverage": "{coverage:.1%} ± {coverage_se:.1%}",
    "width": "{mean_width:.4f}",
    "bias": "{bias:+.5f}",
    "RMSE": "{rmse:.5f}",
}


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    short = study.listed(
        f"{cell['setting']}, {cell['rows']:,} rows: {cell['estimator']}, {cell['interval']}: "
        f"{cell['coverage']:.1%}"
        for cell in cells
        if cell["coverage"] + 2 * cell["coverage_se"] < CONFIDENCE
        and cell["estimator"] in ("IPS", "SNIPS", "DoublyRobust")
    )
    settings = study.listed(
        f"{name}: the target earns {world.value:.4f}; weights up to {world.weight_bound:.1f}"
        for name, world in worlds().items()
    )
    return study.report(
        "offline_coverage",
        setup,
        title=TITLE,
        confidence=CONFIDENCE,
        contexts=CONTEXTS,
        settings=settings,
        short=short or "- nowhere",
        table=study.table(cells, COLUMNS),
    )


def _draw(cells: list[study.Cell], path: Path) -> None:
    names, estimators = list(worlds()), ("IPS", "SNIPS", "DoublyRobust")
    kinds = dict(zip((*KINDS, "anytime, bounded"), ("-", "--", ":", "-."), strict=True))
    with study.drawing(path, 7.5, 9.0, rows=len(names), sharex=True) as axes:
        for ax, name in zip(axes, names, strict=True):
            for (colour, estimator), kind in product(zip(COLOURS, estimators, strict=False), kinds):
                mine = study.select(cells, setting=name, estimator=estimator, interval=kind)
                if mine:
                    x, y = [c["rows"] for c in mine], [c["coverage"] for c in mine]
                    label, style = f"{estimator}, {kind}", kinds[kind]
                    ax.plot(x, y, style, marker="o", ms=3, color=colour, label=label)
            ax.axhline(CONFIDENCE, color="black", lw=0.8)
            study.inscribe(ax, name, 9, xscale="log", ylabel="coverage")
        study.legend_below(axes, ncols=4, fontsize=7)
        axes[-1].set_xlabel(f"rows of the log ({CONFIDENCE:.0%} intervals)")


OFFLINE_COVERAGE = study.Item(TITLE, 1000, reproduce)
