"""What a call of a learner costs: one decision with its feedback, and a key of a thousand at once.

python benchmarks/calls.py

Each figure is the least processor time of nine turns, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import tacit

DIM = 64
KEYS = [f"key {number}" for number in range(1000)]
POLICIES = {
    "UCB1(arms=10)": tacit.UCB1(arms=10),
    "Thompson(arms=5)": tacit.Thompson(arms=5),
    "auto(arms=10)": tacit.auto(arms=10),
    f"auto(arms=10, context_dim={DIM})": tacit.auto(arms=10, context_dim=DIM),
}


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Return the least time of a call."""
    call()
    turns = []
    for _ in range(9):
        began = time.process_time()
        for _ in range(calls):
            call()
        turns.append((time.process_time() - began) / calls)
    return min(turns) * 1e6


def main() -> None:
    contexts = np.random.default_rng(0).normal(size=(len(KEYS), DIM))
    print(f"{'policy':<30} propensities  choose + learn  a key of {len(KEYS)}")
    for name, policy in POLICIES.items():
        context, each = (contexts[0], contexts) if policy.context_dim else (None, None)
        for propensities in (False, True):
            learner = tacit.Learner(policy, seed=1, propensities=propensities)

            def one(learner: tacit.Learner = learner, context: object = context) -> None:
                learner.learn(learner.choose("key 1", context), 0.0)

            def many(learner: tacit.Learner = learner, each: object = each) -> None:
                learner.choose_many(KEYS, each)

            single, batch = microseconds(one, 2000), microseconds(many, 20) / len(KEYS)
            print(f"{name:<30} {propensities!s:<12} {single:>14.2f}  {batch:>13.3f}", flush=True)


if __name__ == "__main__":
    main()
