"""How often the score interval misses the truth at any of many looks, and how wide it is.

python benchmarks/score_interval.py [RUNS] [SEED]

Rewards are 0 or 1; the log's arms were drawn uniformly, or eight times as often where the target
shows them rarely. There are 60 looks, evenly spaced in the logarithm, from 200 to 200,000 rows.
"""

from __future__ import annotations

import sys

import numpy as np

from tacit.evaluate.intervals import Sums, anytime, empty_sums, normal, score

RATES = 0.01, 0.05, 0.3, 0.6
LOOKS = np.unique(np.geomspace(200, 200_000, 60).astype(int))


def targets(arms=10):
    """Return the target's and the log's probabilities of the arms, by name."""
    one, flat = np.eye(arms)[0], np.full(arms, 1 / arms)
    mixed = np.linspace(1.0, 0.1, arms)
    against = 1.0 / (mixed + 0.1)
    return {
        "one of ten arms, uniform log": (one, flat),
        "all arms, log against the target": (mixed / mixed.sum(), against / against.sum()),
        "the log's own": (flat, flat),
    }


def sums_of(counts, weights, rewards):
    """Return the sums over units of some kinds, so many of each."""
    y = weights * rewards
    told = (counts @ x for x in (weights, weights**2, y, y**2, weights * y))
    empty = empty_sums(1)
    r = float(counts @ rewards)
    return Sums(int(counts.sum()), *told, empty.largest, empty.groups, r, r, 0.0, 1.0)


def measure(target, logged, rate, runs, rng):
    """Return the share of runs that were missed at some look, and mean widths at the last one."""
    clicks = np.clip(rate * np.linspace(1.5, 0.5, len(target)), 0.0, 0.95)
    truth = float(target @ clicks)
    weights = np.tile(target / logged, 2)
    rewards = np.repeat([1.0, 0.0], len(target))
    kinds = np.concatenate([logged * clicks, logged * (1 - clicks)])
    missed, widths = np.zeros(2), []
    for _ in range(runs):
        steps = rng.multinomial(np.diff(LOOKS, prepend=0), kinds)
        ever = np.zeros(2, bool)
        for counts in np.cumsum(steps, axis=0).astype(float):
            sums = sums_of(counts, weights, rewards)
            found = score(sums), normal(sums)
            ever |= [b is not None and not b[0] <= truth <= b[1] for b in found]
        missed += ever
        last = *found, anytime(sums)
        widths.append([np.nan if bounds is None else bounds[1] - bounds[0] for bounds in last])
    return missed / runs, np.nanmean(widths, axis=0)


def main(runs=1000, seed=20_263):
    """Print a row per setting."""
    rng = np.random.default_rng(seed)
    print("ever missed (of intervals of 95 %): score, normal; widths over normal's: score, anytime")
    for name, (target, logged) in targets().items():
        for rate in RATES:
            missed, (own, plain, sure) = measure(target, logged, rate, runs, rng)
            told = ", ".join(f"{share:.1%}" for share in missed)
            error = (missed[0] * (1 - missed[0]) / runs) ** 0.5
            print(
                f"{name:34} clicks {rate:4.0%}: {told} (± {error:.1%} of score); "
                f"{own / plain:.2f}, {sure / plain:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
