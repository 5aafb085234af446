"""What the default pays, and gains, by a spread of rewards for each arm or item, beside one spread for all.

python benchmarks/graded_rewards.py [RUNS] [SEED]

One spread for all is what 0.3 had. Regret is of 3,000 rounds where nothing else is said; the same runs are
played by both, so the standard error of a ratio is that of pairs. The time is that of the processor, of
a round of choosing and learning, with the environment.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import tacit
from tacit.environments import GradedArms
from tacit.policies import DriftMixture

Q = 0.9
"""A run is wrong if an arm below the best is shown in more than 80 % of the last tenth of its rounds."""
STREAMS = {
    "steady beside clicks": [("normal", 0.5, 0.05), ("click", 0.55)],
    "the best is steady": [("normal", 0.7, 0.04), ("click", 0.62)],
}
ITEMS = {
    "items: steady beside clicks": [("normal", 0.5, 0.05), ("click", 0.55)],
    "items: the best is steady": [("normal", 0.66, 0.06), ("click", 0.6), ("click", 0.5)],
}
SALES = [("sale", 0.02, 122, 1), ("sale", 0.035, 55, 1), ("sale", 0.03, 50, 1), ("sale", 0.04, 35, 1)]
JUDGES = 0.02, 0.05, 0.1, 0.15, 0.2, 0.3
DIM = 40


def play_arms(policy, arms, horizon, runs, seed, **options):
    """Return the regret of each run, and of its last tenth."""
    checkpoints = [int(Q * horizon), horizon]
    environment = GradedArms(arms, **options)
    result = tacit.simulate(policy, environment, horizon, runs=runs, seed=seed, checkpoints=checkpoints)
    before, regret = result.regret[0].T
    return regret, regret - before


def play_items(spread, arms, runs, seed):
    """Return the regret of each run of items with random embeddings, whose rewards are those of arms."""
    means = np.array([arm[1] for arm in arms])
    regrets = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        items = rng.standard_normal((len(arms), DIM))
        learner = tacit.Learner(tacit.EmbeddingMixture(DIM, spread=spread), seed=run)
        regrets.append(0.0)
        for _ in range(3000):
            uniform, normal = rng.random(), rng.standard_normal()
            decision = learner.choose("all", relevance=items)
            family, *numbers = arms[decision.arm]
            reward = uniform < numbers[0] if family == "click" else numbers[0] + numbers[1] * normal
            learner.learn(decision, min(max(float(reward), 0.0), 1.0))
            regrets[-1] += means.max() - means[decision.arm]
    return np.array(regrets)


def describe(values):
    """Return mean ± standard error as text."""
    return f"{values.mean():,.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f}"


def compute_ratio(values, base):
    """Return the ratio of two means over the same runs, and its standard error."""
    ratio = values.mean() / base.mean()
    return ratio, (values - ratio * base).std(ddof=1) / len(base) ** 0.5 / base.mean()


def compare_judges(horizon, runs, seed):
    """Print the mean ratio over eight assignments of six spreads to six means."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(8):
        means = 0.45 + 0.15 * rng.permutation(6) / 5
        arms = [("normal", float(m), float(s)) for m, s in zip(means, rng.permutation(JUDGES), strict=True)]
        both = [
            play_arms(DriftMixture(6, spread=spread), arms, horizon, runs, seed) for spread in ("arm", "all")
        ]
        pairs.append(compute_ratio(both[0][0], both[1][0]))
    ratios, errors = np.array(pairs).T
    mean = np.exp(np.log(ratios).mean())
    error = mean * np.sqrt(((errors / ratios) ** 2).sum()) / len(ratios)
    print(f"six judges, {horizon:,}: ratio {mean:.2f} ± {error:.2f}, largest {ratios.max():.2f}", flush=True)


def measure_round(environment, rounds=1_000_000):
    """Return the least of five times of a round of the default with ten arms, in µs."""
    times = []
    for _ in range(6):
        start = time.process_time()
        tacit.simulate(tacit.auto(arms=10), environment, rounds, runs=1, seed=5)
        times.append(time.process_time() - start)
    return min(times[1:]) / rounds * 1e6


def main(runs=100, seed=1):
    """Print a line for each stream: a spread for each arm or item; one for all."""
    for name, arms in STREAMS.items():
        both = [
            play_arms(DriftMixture(2, spread=spread), arms, 3000, runs, seed)[0] for spread in ("arm", "all")
        ]
        print(f"{name}: {describe(both[0])}; {describe(both[1])}", flush=True)
    for horizon in (3000, 20_000):
        compare_judges(horizon, runs, seed)
    for name, arms in ITEMS.items():
        both = [play_items(spread, arms, runs, seed) for spread in ("item", "all")]
        print(f"{name}: {describe(both[0])}; {describe(both[1])}", flush=True)
    policy = tacit.auto(4, reward_range=(0, None))
    regret, late = play_arms(policy, SALES, 20_000, runs, seed, reward_range=(0, None))
    # The best arm earns 2.44 a round, the next 1.925.
    wrong = int((late > 0.8 * (2.44 - 1.925) * (1 - Q) * 20_000).sum())
    print(f"rare large sales, 20,000, auto: {describe(regret)}; wrong {wrong} of {runs}", flush=True)
    graded = GradedArms([("normal", 0.3 + 0.03 * i, 0.1) for i in range(10)])
    clicks = tacit.BernoulliArms([0.3 + 0.03 * i for i in range(10)])
    print(f"a round: graded {measure_round(graded):.2f} µs, clicks {measure_round(clicks):.2f} µs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
