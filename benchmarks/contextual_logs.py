"""How well contextual policies are judged on logs: coverage, width, bias, over many simulated logs.

python benchmarks/contextual_logs.py [RUNS] [SEED]

Contexts are five normal numbers, a click of each of five arms is logistic in them (or in a curve of
them, which a ridge does not hold). The log's policy is uniform, or prefers arms by the context, with
a floor of .1; the target shows by a rule of its own what it prefers, with a floor of .05.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tacit.evaluate import IPS, SNIPS, DirectMethod, DoublyRobust, Probabilities, SwitchDR, off_policy

ARMS = ["a", "b", "c", "d", "e"]
DIM = 5
ROWS = 1000, 5000
KINDS = "normal", "bootstrap", "score"
ESTIMATORS = [IPS(), SNIPS(), DirectMethod(), DoublyRobust(), SwitchDR(), SwitchDR(threshold=50)]


class World(NamedTuple):
    """Weights per arm: of clicks, of the policy that logs, and of the target; and what clicks are."""

    tastes: np.ndarray
    logging: np.ndarray
    target: np.ndarray
    base: float
    curved: bool

    def clicks(self, contexts):
        """Return the chance of a click on each arm."""
        shape = np.abs(contexts) - 0.8 if self.curved else contexts
        return 1 / (1 + np.exp(-(self.base + shape @ self.tastes)))


def shown(contexts, weights, floor):
    """Return the probabilities of a policy that prefers arms by the context."""
    scores = np.exp(contexts @ weights)
    return (1 - floor) * scores / scores.sum(axis=1, keepdims=True) + floor / len(ARMS)


def worlds(rng):
    """Yield settings by name."""
    tastes, own, target = rng.normal(size=(3, DIM, len(ARMS)))
    for base, often in ((-0.5, "frequent clicks"), (-3.0, "rare clicks")):
        yield f"uniform log, {often}", World(tastes, 0 * own, 2 * target, base, False)
        yield f"contextual log, {often}", World(tastes, own, 2 * target, base, False)
    yield "contextual log, clicks by a curve", World(tastes, own, 2 * target, -0.5, True)


def log_of(world, rows, rng):
    """Return a simulated log."""
    contexts = rng.normal(size=(rows, DIM))
    chances = shown(contexts, world.logging, 0.1)
    arm = (chances.cumsum(axis=1) < rng.random(rows)[:, None]).sum(axis=1).clip(0, len(ARMS) - 1)
    at = np.arange(rows), arm
    return pa.table(
        {
            "timestamp": np.zeros(rows, "datetime64[us]"),
            "decision_id": [str(row) for row in range(rows)],
            "placement": ["home"] * rows,
            "key": ["all"] * rows,
            "arms": [ARMS] * rows,
            "arm": [ARMS[each] for each in arm],
            "propensity": chances[at],
            "reward": (rng.random(rows) < world.clicks(contexts)[at]).astype(float),
            "context": list(contexts),
        }
    )


def measured(world, rows, runs, rng):
    """Return the truth, and of each estimator the estimates and intervals, shape (runs, estimators, 7)."""
    people = rng.normal(size=(1_000_000, DIM))
    truth = float((shown(people, world.target, 0.05) * world.clicks(people)).sum(axis=1).mean())

    def aim(batch):
        given = np.array(batch["context"].to_pylist())
        return shown(given, world.target, 0.05)

    target = Probabilities(aim, ARMS)
    found = np.full((runs, len(ESTIMATORS), 7), np.nan)
    for run in range(runs):
        with warnings.catch_warnings(action="ignore"):
            result = off_policy(target, log_of(world, rows, rng), ESTIMATORS, seed=run)
        for place, each in enumerate(result.estimates):
            found[run, place, 0] = each.value
            for column, kind in enumerate(KINDS):
                if kind in each.intervals:
                    found[run, place, 1 + 2 * column : 3 + 2 * column] = each.intervals[kind]
    return truth, found


HEAD = (
    "log",
    "rows",
    "estimator",
    "bias",
    "rmse",
    "intervals",
    "normal holds",
    "bootstrap holds",
    "score holds",
    "width / IPS",
    "score / normal",
)


def line(found, truth, place):
    """Return the cells of an estimator, of all the runs of a setting."""
    runs, miss = len(found), found[:, place, 0] - truth
    cells = [f"{miss.mean():+.4f} ± {miss.std() / np.sqrt(runs):.4f}", f"{np.sqrt((miss**2).mean()):.4f}"]
    has = np.isfinite(found[:, place, 1])
    cells.append(f"{has.mean():.0%}")
    if not has.any():
        return [*cells, *"–––––"]
    mine = found[has, place]
    for k in (1, 3, 5):
        given = mine[np.isfinite(mine[:, k])]
        if not len(given):
            cells.append("–")
            continue
        held = np.mean((given[:, k] <= truth) & (truth <= given[:, k + 1]))
        share = "" if len(given) == runs else f" of {len(given) / runs:.0%}"
        cells.append(f"{held:.1%} ± {np.sqrt(held * (1 - held) / len(given)):.1%}{share}")
    ratio = (mine[:, 2] - mine[:, 1]) / (found[has, 0, 2] - found[has, 0, 1])
    cells.append(f"{ratio.mean():.2f} ± {ratio.std() / np.sqrt(len(mine)):.3f}")
    wider = (mine[:, 6] - mine[:, 5]) / (mine[:, 2] - mine[:, 1])
    return [*cells, "–" if np.isnan(wider).all() else f"{np.nanmedian(wider):.2f}"]


def main(runs=1000, seed=28_004):
    """Print a row per setting, rows and estimator."""
    rng = np.random.default_rng(seed)
    print(f"| {' | '.join(HEAD)} |\n|{'--|' * len(HEAD)}")
    for name, world in worlds(rng):
        for rows in ROWS:
            truth, found = measured(world, rows, runs, rng)
            for place, each in enumerate(ESTIMATORS):
                cells = [name, f"{rows:,}", each.label, *line(found, truth, place)]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
