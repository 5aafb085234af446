"""How repetitions may count where users keep what they were shown: bias and coverage in simulated logs.

    PYTHONPATH=src python benchmarks/sticky.py [--logs 2000]

A log has 400 users who come 1 to hundreds of times (1 + a geometric number whose mean differs from user to
user), each with a chance of its own to click; what a user was shown at first stays. Three ways to count:

visits   each visit as a decision of its own, as if it were drawn anew
draws    one decision of each draw: what the policy learns and what click logs hold
users    all visits, with the error of means over users: what the lift does, by its buckets of users

For A/A (both arms click alike) and A/B (arm b has a quarter more) the table has the mean error of the
difference b − a in its own unit, the coverage of its 95 % interval, and the share of logs in which a Thompson
policy with these counts would hold one arm for better with 95 %.
"""

from __future__ import annotations

import argparse

import numpy as np

USERS, CHANCE, SPREAD = 400, 0.2, 2.0
"""Users of a log, and mean and strength of their chances to click: Beta(0.2 · 2, 0.8 · 2)."""
QUANTILE = 1.959964
DRAWS = 2_000


def simulate(rng, effect):
    """Return each user's arm, number of visits, clicks in all visits, and click in the first."""
    chance = rng.beta(CHANCE * SPREAD, (1 - CHANCE) * SPREAD, USERS)
    visits = 1 + rng.geometric(1 / (1 + rng.gamma(0.5, 12.0, USERS))) - 1
    arm = rng.integers(2, size=USERS)
    chance = np.minimum(chance * np.where(arm == 1, effect, 1.0), 1.0)
    first = rng.random(USERS) < chance
    return arm, visits, first + rng.binomial(visits - 1, chance), first


def compare_means(arm, weights, clicks):
    """Return the difference of two ratios of sums, and its standard error over units."""
    ratios, variances = [], []
    for number in (0, 1):
        mine = arm == number
        total = weights[mine].sum()
        ratio = clicks[mine].sum() / total
        ratios.append(ratio)
        variances.append(((clicks[mine] - ratio * weights[mine]) ** 2).sum() / total**2)
    return ratios[1] - ratios[0], np.sqrt(sum(variances))


def count_visits(arm, visits, clicks):
    """Return the difference of two means of visits, and its standard error if all were independent."""
    ratios, variances = [], []
    for number in (0, 1):
        mine = arm == number
        n = visits[mine].sum()
        ratio = clicks[mine].sum() / n
        ratios.append(ratio)
        variances.append(ratio * (1 - ratio) / n)
    return ratios[1] - ratios[0], np.sqrt(sum(variances))


def is_sure(rng, arm, counts, clicks):
    """True if a Thompson policy with these counts holds one arm for better with 95 %."""
    samples = []
    for number in (0, 1):
        n, won = counts[arm == number].sum(), clicks[arm == number].sum()
        samples.append(rng.beta(1 + won, 1 + n - won, DRAWS))
    share = (samples[1] > samples[0]).mean()
    return share > 0.95 or share < 0.05


def measure(effect, logs):
    """Return for each way of counting its bias, coverage and share of sure policies."""
    # In the mean over visits heavy users count more; chances do not depend on visits, so all estimands agree.
    rng = np.random.default_rng(1)
    chance = rng.beta(CHANCE * SPREAD, (1 - CHANCE) * SPREAD, 4_000_000)
    truth = np.minimum(chance * effect, 1.0).mean() - chance.mean()
    results = {name: [] for name in ("visits", "draws", "users")}
    for i in range(logs):
        rng = np.random.default_rng((2, i))
        arm, visits, clicks, first = simulate(rng, effect)
        once = np.ones(USERS)
        for name, (estimate, error), sure in (
            ("visits", count_visits(arm, visits, clicks), is_sure(rng, arm, visits, clicks)),
            ("draws", compare_means(arm, once, first), is_sure(rng, arm, once, first)),
            ("users", compare_means(arm, visits, clicks), np.nan),
        ):
            covered = abs(estimate - truth) <= QUANTILE * error
            results[name].append((estimate - truth, covered, sure))
    return truth, {name: np.mean(rows, axis=0) for name, rows in results.items()}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=2000)
    logs = parser.parse_args().logs
    print("| logs | counted | b - a | bias | coverage of 95 % | sure of an arm |")
    print("|---|---|--:|--:|--:|--:|")
    for name, effect in (("A/A", 1.0), ("A/B", 1.25)):
        truth, results = measure(effect, logs)
        for way, (bias, coverage, sure) in results.items():
            shown = "" if np.isnan(sure) else f"{sure:.1%}"
            print(f"| {name} | {way} | {truth:.4f} | {bias:+.4f} | {coverage:.1%} | {shown} |")


if __name__ == "__main__":
    main()
