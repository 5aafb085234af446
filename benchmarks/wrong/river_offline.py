"""Replay of a log whose choices were not uniform.

Paper: Li, Chu, Langford and Wang (2011): rows that match are an unbiased sample where the log's
arms were chosen uniformly.
Code: ``evaluate_offline`` takes any log and asks for no probabilities (its source notes that
weights are to be done), and does not say so.
Case: arm 0 pays 0 and is 90 % of the log, arm 1 pays 1. A uniform policy would earn 1/2.
Shown: what is reported of the uniform policy, over 20 000 rows; its standard error is 0.003.
"""

import json
import random

from river import bandit

draw = random.Random(1)
log = [([0, 1], None, arm, float(arm)) for arm in (int(draw.random() < 0.1) for _ in range(20_000))]
total, matched = bandit.evaluate_offline(bandit.RandomPolicy(seed=1), log)
print(json.dumps({"expected": 0.5, "found": total.get() / matched}))
