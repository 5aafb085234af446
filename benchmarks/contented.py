"""What the clicks cost that a learner of attraction misses where readers stop content: for docs/lists.md.

python benchmarks/contented.py [worlds]

Worlds are the dynamic Bayesian readers of benchmarks/list_readers.py, all known. Three lists are compared:
the most attractive arms, best first; the list of most clicks; the list that contents most readers. The
latter two are climbed to from the first one by exchanges.
"""

from __future__ import annotations

import sys

import numpy as np

SEED = 90_211


def read(order, attraction, contents, goes_on):
    """Return expected clicks and the probability that the reader ends content."""
    looking, clicks, content = 1.0, 0.0, 0.0
    for arm in order:
        clicks += looking * attraction[arm]
        content += looking * attraction[arm] * contents[arm]
        looking *= goes_on * (1.0 - attraction[arm] * contents[arm])
    return np.array([clicks, content])


def exchanges(order, arms):
    """Yield the lists in which one position has another arm."""
    for k in range(len(order)):
        for arm in range(arms):
            other = list(order)
            if arm in other:
                other[other.index(arm)] = other[k]
            other[k] = arm
            yield other


def climb(order, world, reading):
    """Return a list that no exchange makes better in clicks, 0, or contented readers, 1."""

    def value(other):
        return read(other, *world)[reading]

    while True:
        best = max(exchanges(order, len(world[0])), key=value)
        if value(best) <= value(order) + 1e-12:
            return order
        order = best


def main(worlds=400, arms=20, positions=5):
    """Print clicks and contented readers of the three lists, as shares of the most that can be had."""
    for scale in (1.0, 0.1):
        rng, shares = np.random.default_rng(SEED), []
        for _ in range(worlds):
            world = scale * rng.beta(1.0, 3.0, arms), rng.uniform(0.1, 0.9, arms), rng.uniform(0.7, 1.0)
            liked = [int(arm) for arm in np.argsort(-world[0])[:positions]]
            clicked, contenting = (climb(liked, world, reading) for reading in (0, 1))
            rows = np.array([read(order, *world) for order in (liked, clicked, contenting)])
            shares.append(rows / [rows[1, 0], rows[2, 1]])
        mean, error = np.mean(shares, 0), np.std(shares, 0, ddof=1) / worlds**0.5
        print(f"\nattraction up to {scale}, {worlds} worlds, {positions} of {arms} arms")
        print(f"  {'list':22}{'clicks':>16}{'content':>16}")
        for name, m, e in zip(
            ("the most attractive", "most clicks", "most content"), mean, error, strict=True
        ):
            print(f"  {name:22}{m[0]:8.3f} ± {e[0]:.3f}{m[1]:9.3f} ± {e[1]:.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
