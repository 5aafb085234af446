"""What it is worth to learn of each item what it is beyond its numbers: one number an item, shrunken.

python benchmarks/own_effects.py [--first 41000] [--seeds 24]

ItemListMix learns it, and lists of one are what EmbeddingMixture shows, which does not.
"""

import argparse
import warnings

import numpy as np

import tacit
from tacit.errors import AssumptionWarning

DIM, OFFERED, ROUNDS = 32, 20, 3_000
POLICIES = tacit.EmbeddingMixture(DIM), tacit.ItemListMix(DIM, positions=1)


def regret(policy, seed, count, deviation):
    """Return the regret in clicks where items differ so beyond their numbers."""
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((count, DIM)) / np.sqrt(1 + np.arange(DIM))
    taste = rng.standard_normal(DIM)
    logits = -1.4 + items @ taste / np.std(items @ taste) + deviation * rng.standard_normal(count)
    chances = 1 / (1 + np.exp(-logits))
    offers = [rng.choice(count, OFFERED, replace=False) for _ in range(ROUNDS)]
    learner, lost = tacit.Learner(policy, seed=seed), 0.0
    for offer, drawn in zip(offers, rng.random(ROUNDS), strict=True):
        decision = learner.choose("all", relevance=items[offer])
        chance = chances[offer[decision.slots[0]]]
        lost += chances[offer].max() - chance
        learner.learn(decision, float(drawn < chance))
    return lost


def compared(count, deviation, seeds):
    """Return the mean regret of both, and the geometric mean of their ratio with its factor of one s.e."""
    lost = np.array([[regret(policy, seed, count, deviation) for policy in POLICIES] for seed in seeds])
    logs = np.log(lost[:, 1] / lost[:, 0])
    return *lost.mean(axis=0), np.exp(logs.mean()), np.exp(logs.std(ddof=1) / np.sqrt(len(logs)))


def main():
    """Print what was compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=41_000)
    parser.add_argument("--seeds", type=int, default=24)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", AssumptionWarning)
    for count in (30, 200, 2_000):
        for deviation in (0.0, 0.35, 0.7):
            seeds = range(asked.first, asked.first + asked.seeds)
            without, own, ratio, error = compared(count, deviation, seeds)
            means = f"{without:4.0f} {own:4.0f}"
            print(f"{count:5,} items, {deviation:4}: {means}, {ratio:.2f} times or over {error:.2f}")


if __name__ == "__main__":
    main()
