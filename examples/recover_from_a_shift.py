"""How many impressions does each policy need to notice that intent has shifted?

Fifty queries, three results each. After 2000 impressions of each the best result changes, and
nobody says so. This counts the impressions until nine of the last ten showed the new best one.

    python examples/recover_from_a_shift.py
"""

from __future__ import annotations

import numpy as np

import tacit
from tacit.core.text import align_columns

BEFORE, AFTER = np.array([0.6, 0.2, 0.1]), np.array([0.2, 0.6, 0.1])
SHIFT, PATIENCE, QUERIES = 2000, 3000, 50
POLICIES = (
    tacit.KLUCB(3),
    tacit.Thompson(3),
    tacit.Thompson(3, discount=0.995),
    tacit.policies.baselines.SlidingWindowUCB(3),
    tacit.policies.baselines.GLRKLUCB(3),
)


def recoveries(policy: tacit.Policy, seed: int) -> np.ndarray:
    """Return for each query the impressions until 9 of 10 show the new best; infinite if never."""
    learner = tacit.Learner(policy, seed=seed, propensities=False)
    rng = np.random.default_rng(seed)
    keys = [f"query {number}" for number in range(QUERIES)]
    right = np.zeros((SHIFT + PATIENCE, QUERIES))
    for impression in range(SHIFT + PATIENCE):
        chances = BEFORE if impression < SHIFT else AFTER
        decisions = learner.choose_many(keys)
        learner.learn_many(decisions, (rng.random(QUERIES) < chances[decisions.slots]).astype(float))
        right[impression] = decisions.slots == np.argmax(AFTER)
    of_ten = np.lib.stride_tricks.sliding_window_view(right[SHIFT:], 10, axis=0).sum(axis=2)
    found = of_ten >= 9
    return np.where(found.any(axis=0), found.argmax(axis=0) + 10, np.inf)


def main() -> None:
    """Print the median and the worst query of each policy."""
    rows = [["policy", "median", "worst"]]
    for policy in POLICIES:
        counts = recoveries(policy, seed=1)
        rows.append([policy.label, f"{np.median(counts):g}", f"{counts.max():g}"])
    print(align_columns(rows))


if __name__ == "__main__":
    main()
