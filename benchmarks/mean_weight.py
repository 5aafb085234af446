"""How often a mean weight is called wrong where propensities are right, and where they are wrong by a tenth.

    python benchmarks/mean_weight.py [LOGS] [SEED]     400 logs of each of 48 cells by default

Cells: 2, 5 or 20 arms; the log shows them alike, one of them nine times in ten, or by odds that differ from
row to row (exp of a normal times 1, or times 3); the target shows all alike or the last one alone; 300 or
10,000 rows. Beside the evidence by betting that tacit goes by stands a mean weight 2.58 and 4 of its standard
errors from 1: by chance one log in a hundred, and one in 16,000, if standard errors were right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from tables import markdown

from tacit.evaluate.estimate_sums import largest_possible
from tacit.evaluate.intervals import evidence_against_weights, sum_units
from tacit.evaluate.results import MIN_EVIDENCE

ARMS, TARGETS, ROWS = (2, 5, 20), ("all", "last"), (300, 10_000)
LOGS = ("alike", "one nine in ten", "odds × 1", "odds × 3")
FACTORS = (1.0, 0.9, 1.1)
TESTS = ("betting", "2.58 errors", "4 errors")


class Cell(NamedTuple):
    """A kind of log, and what is asked of it."""

    arms: int
    log: str
    target: str
    rows: int

    def chances(self, rng: Any) -> Any:
        """Return how likely each arm was to be shown in each row."""
        if self.log == "one nine in ten":
            chances = np.full((self.rows, self.arms), 0.1 / (self.arms - 1))
            chances[:, 0] = 0.9
            return chances
        spread = 0.0 if self.log == "alike" else float(self.log[-1])
        odds = np.exp(spread * rng.standard_normal((self.rows, self.arms)))
        return odds / odds.sum(axis=1, keepdims=True)

    def doubted(self, rng: Any) -> list[list[bool]]:
        """Return, of one log, what each test says of its propensities times each factor."""
        chances = self.chances(rng)
        arm = np.minimum((chances.cumsum(axis=1) < rng.random((self.rows, 1))).sum(axis=1), self.arms - 1)
        given = chances[np.arange(self.rows), arm]
        shown = np.full(self.rows, 1 / self.arms) if self.target == "all" else (arm == self.arms - 1) * 1.0
        offers, offer = [range(self.arms)], np.zeros(self.rows, np.int64)
        found = []
        for factor in FACTORS:
            propensity = np.minimum(given * factor, 1.0)
            rows: Any = SimpleNamespace(offers=offers, offer=offer, propensity=propensity)
            weights = shown / propensity
            sums = sum_units(weights, weights)._replace(possible=largest_possible(rows, shown))
            off = abs(sums.mean_weight - 1)
            error = math.sqrt(max(sums.ww / sums.n - sums.mean_weight**2, 0.0) / sums.n)
            far = [error > 0 and off >= errors * error for errors in (2.58, 4.0)]
            found.append([evidence_against_weights(sums) >= MIN_EVIDENCE, *far])
        return found


def cells() -> Iterator[Cell]:
    """Yield all of them."""
    yield from (Cell(*x) for x in product(ARMS, LOGS, TARGETS, ROWS))


def main(logs: int = 400, seed: int = 1) -> None:
    """Print shares of logs in percent: means over cells ± standard errors, and the worst cell."""
    shares: dict[Cell, Any] = {}
    for number, cell in enumerate(cells()):
        rng = np.random.default_rng([seed, number])
        shares[cell] = 100 * np.mean([cell.doubted(rng) for _ in range(logs)], axis=0)
    lines = []
    for log, rows in product(LOGS, ROWS):
        mine = np.array([share for cell, share in shares.items() if (cell.log, cell.rows) == (log, rows)])
        error = np.sqrt((mine * (100 - mine) / logs).sum(axis=0)) / len(mine)
        worst = (mine.max(axis=0)[0], mine.min(axis=0)[1])
        lines += [
            [log, f"{rows:,}", what, *(f"{m:.1f} ± {e:.1f} ({w:.1f})" for m, e, w in zip(*x, strict=True))]
            for what, x in (
                ("right", (mine.mean(axis=0)[0], error[0], worst[0])),
                ("a tenth too small", (mine.mean(axis=0)[1], error[1], worst[1])),
                ("a tenth too large", (mine.mean(axis=0)[2], error[2], mine.min(axis=0)[2])),
            )
        ]
    print(markdown(["arms are shown", "rows", "propensities", *TESTS], lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
