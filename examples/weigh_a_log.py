"""What would each fixed choice, and the best choice per key, have earned? Asked of one log.

A log of epsilon-greedy decisions is made for two keys with different tastes; then it is weighted
for policies that it never played, and the truth, known here, is put beside each estimate.

    python examples/weigh_a_log.py
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

import tacit
from tacit.core.text import align_columns
from tacit.evaluate import SNIPS, Table

ARMS = ["drama", "comedy", "thriller"]
LIKES = {"evening": [0.10, 0.05, 0.14], "morning": [0.06, 0.12, 0.04]}
ROWS = 20_000


def made_log(seed: int) -> pa.Table:
    """Return a log of epsilon-greedy decisions with their propensities."""
    rng = np.random.default_rng(seed)
    learner = tacit.Learner(tacit.EpsilonGreedy(ARMS, epsilon=0.3), seed=seed)
    keys = [str(key) for key in rng.choice(list(LIKES), ROWS)]
    rows = []
    for start in range(0, ROWS, 100):
        batch = learner.choose_many(keys[start : start + 100])
        chances = [LIKES[key][slot] for key, slot in zip(keys[start : start + 100], batch.slots, strict=True)]
        rewards = (rng.random(len(chances)) < chances).astype(float)
        learner.learn_many(batch, rewards)
        rows += [
            (ARMS[slot], float(propensity), float(reward))
            for slot, propensity, reward in zip(batch.slots, batch.propensities, rewards, strict=True)
        ]
    arm, propensity, reward = zip(*rows, strict=True)
    return pa.table(
        {
            "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC")),
            "decision_id": [str(row) for row in range(ROWS)],
            "placement": ["front page"] * ROWS,
            "key": keys,
            "arms": [ARMS] * ROWS,
            "arm": list(arm),
            "propensity": list(propensity),
            "reward": list(reward),
        }
    )


def main() -> None:
    """Print estimates beside the truth."""
    log = made_log(seed=1)
    plans: dict[str, dict[str, str]] = {f"always {arm}": dict.fromkeys(LIKES, arm) for arm in ARMS} | {
        "the best for each key": {key: ARMS[int(np.argmax(p))] for key, p in LIKES.items()}
    }
    rows = [["plan", "estimate", "95 % anytime", "truth"]]
    for name, plan in plans.items():
        target = Table({key: {arm: 1.0} for key, arm in plan.items()}, per="key")
        (estimate,) = tacit.off_policy(target, log, [SNIPS()]).estimates
        low, high = estimate.intervals["anytime"]
        truth = np.mean([LIKES[key][ARMS.index(arm)] for key, arm in plan.items()])
        rows.append([name, f"{estimate.value:.4f}", f"{low:.3f} to {high:.3f}", f"{truth:.4f}"])
    print(align_columns(rows))


if __name__ == "__main__":
    main()
