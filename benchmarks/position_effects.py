"""How well position effects and click models are told from logs of many tails, where the truth is known."""

# 1. ``draw_lists``: who searches, and in which order results stand.
# 2. ``measure``: the parameters that each method fits to one log, and whether its intervals hold the truth.
# 3. ``compare_methods``: bias and coverage over many logs.

from __future__ import annotations

import argparse
import math
import warnings
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from studies import study
from tacit.clicks import DependentClick, DynamicBayesian, PositionBased
from tacit.core.arrays import Floats, Generator, Ints
from tacit.errors import AssumptionWarning
from tacit.evaluate import examine

TITLE = "Position effects and click models from long-tail logs"
SEARCHES, ARMS, PLACES = 4000, 12, 5
TRAFFIC = ("60 queries, as likely", "5,000 queries, Zipf", "80 % of queries seen once")
RELEVANCE = ("Beta(1.5, 1.5)", "0.8 or 0.1")
SWAPS = 0.2
EXAMINATION, CONTINUATION, PERSISTENCE = (1.0, 0.6, 0.4, 0.3, 0.2), (0.8, 0.6, 0.5, 0.4), 0.8
ORDERS: tuple[float | None, ...] = (None, 0.5, 0.9)
"""Correlation of the ranker's scores with relevance; None for a random order of each list."""


class Lists(NamedTuple):
    """Lists of one log: the query of each, its arms (lists, places), and relevance (queries, arms)."""

    query: Ints
    arms: Ints
    relevance: Floats


def draw_lists(traffic: str, order: float | None, law: str, rng: Generator) -> Lists:
    """Draw who searches, how relevant arms are, and in which order they stand."""
    if traffic == TRAFFIC[0]:
        query = rng.integers(60, size=SEARCHES)
    elif traffic == TRAFFIC[1]:
        odds = 1.0 / np.arange(1, 5001)
        query = rng.choice(5000, SEARCHES, p=odds / odds.sum())
    else:
        query = np.where(rng.random(SEARCHES) < 0.2, 0, np.arange(1, SEARCHES + 1))
    shape = int(query.max()) + 1, ARMS
    relevance = (
        rng.beta(1.5, 1.5, shape) if law == RELEVANCE[0] else rng.choice([0.8, 0.1], shape, p=[0.3, 0.7])
    )
    if order is None:
        arms = rng.permuted(np.tile(np.arange(ARMS), (SEARCHES, 1)), axis=1)
    else:
        known = (relevance - relevance.mean()) / relevance.std()
        scores = order * known + math.sqrt(1.0 - order**2) * rng.standard_normal(shape)
        arms = np.argsort(-scores, axis=1)[query]
        for place in range(ARMS - 1):
            swapped = np.flatnonzero(rng.random(SEARCHES) < SWAPS)
            arms[swapped, place : place + 2] = arms[swapped, place : place + 2][:, ::-1]
    return Lists(query, arms[:, :PLACES], relevance)


def measure(traffic: str, order: float | None, law: str, seed: int, run: int) -> dict[str, tuple[Any, ...]]:
    """Return for each method errors of its parameters, whether intervals hold the truth, and their widths."""
    rng = np.random.default_rng([seed, run])
    lists = draw_lists(traffic, order, law, rng)
    pairs, shown = np.unique(lists.query[:, None] * ARMS + lists.arms, return_inverse=True)
    shown, attraction = shown.reshape(lists.arms.shape), lists.relevance.ravel()[pairs]
    satisfaction = np.full(len(pairs), 0.4)
    models: list[tuple[Any, str, Any]] = [
        (PositionBased(attraction, EXAMINATION), "examination", EXAMINATION),
        (DependentClick(attraction, CONTINUATION), "continuation", CONTINUATION),
        (DynamicBayesian(attraction, satisfaction, PERSISTENCE), "persistence", PERSISTENCE),
    ]
    measured: dict[str, tuple[Any, ...]] = {}
    for model, name, truth in models:
        clicks = model.simulate(shown, rng)
        if name == "examination":
            measured = _examine(lists, clicks)
        # What all kinds share is fitted first, and attraction by the iterations.
        fitted = np.atleast_1d(getattr(type(model).fit(shown, clicks, iterations=1).model, name))
        measured[f"{type(model).__name__}.fit"] = (fitted - truth, None, None)
    return measured


def _examine(lists: Lists, clicks: Any) -> dict[str, tuple[Any, ...]]:
    """Return errors, hits and mean width of the intervals of ``tacit.examine`` on a log of these clicks."""
    table = pa.table(
        {
            "decision_id": np.repeat(np.arange(SEARCHES), PLACES).astype(str),
            "key": np.repeat(lists.query, PLACES).astype(str),
            "position": np.tile(np.arange(PLACES), SEARCHES),
            "arm": lists.arms.ravel().astype(str),
            "reward": clicks.ravel().astype(np.float64),
        }
    )
    truth = np.array(EXAMINATION[1:])
    result = examine(table, "em", arms="shown")
    low, high = result.low[1:], result.high[1:]
    holds = (low <= truth) & (truth <= high)
    return {"examine, em": (result.effects[1:] - truth, holds, float((high - low).mean()))}


def compare_methods(setup: study.Setup) -> list[study.Cell]:
    """Draw logs of every setting, and compare what each method fits to them with the truth."""
    cells = []
    for number, (traffic, order, law) in enumerate(product(TRAFFIC, ORDERS, RELEVANCE)):
        run = partial(measure, traffic, order, law, 1000 * setup.seed + number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            runs = study.each_run(run, setup.runs, setup)
        name = "random" if order is None else f"ranker, correlation {order:.1f}"
        for method in runs[0]:
            errors = np.stack([values[method][0] for values in runs])
            holds = [values[method][1] for values in runs if values[method][1] is not None]
            worst = np.abs(errors.mean(axis=0)).argmax()
            cells.append(
                {
                    "traffic": traffic,
                    "order": name,
                    "relevance": law,
                    "method": method,
                    "bias": float(errors.mean(axis=0)[worst]),
                    "bias_se": float(errors.std(axis=0)[worst] / math.sqrt(setup.runs)),
                    "coverage": float(np.mean(holds)) if holds else None,
                    "width": float(np.mean([values[method][2] for values in runs])) if holds else None,
                    "runs": setup.runs,
                }
            )
    return cells


def format_cells(cells: list[study.Cell]) -> str:
    """Return the table of all settings, and the largest bias and the coverage of each method."""
    methods = dict.fromkeys(cell["method"] for cell in cells)
    lines = []
    for method in methods:
        mine = study.select(cells, method=method)
        worst = max(mine, key=lambda cell: abs(cell["bias"]))
        line = f"{method}: largest bias {worst['bias']:+.3f} ± {worst['bias_se']:.3f} ({worst['traffic']})"
        coverages = [cell["coverage"] for cell in mine]
        if None not in coverages:
            line += f"; intervals hold the truth in {np.mean(coverages):.1%}, at least {min(coverages):.1%}"
        lines.append(line)
    columns: dict[str, study.Tell] = {
        name: f"{{{name}}}" for name in ("traffic", "order", "relevance", "method")
    }
    columns |= {
        "bias": "{bias:+.3f} ± {bias_se:.3f}",
        "coverage": lambda cell: "" if cell["coverage"] is None else f"{cell['coverage']:.1%}",
        "width": lambda cell: "" if cell["width"] is None else f"{cell['width']:.3f}",
    }
    return f"{study.table(cells, columns)}\n\n{study.listed(lines)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(format_cells(compare_methods(study.Setup(options.runs, options.seed))))


if __name__ == "__main__":
    main()
