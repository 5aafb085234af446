"""Removing an arm in Beat-the-Mean.

Paper: Yue and Joachims (2011), algorithm 1: when an arm leaves, every other arm's wins
and comparisons *against it* are taken back, so that an estimate is always wins by comparisons.
Code: the counts of the leaving arm's own comparisons are taken from those of the others (a row
of the matrix where its column is meant), and no wins are taken back.
Case: arm 0 has beaten arm 2 in 2 of 2 comparisons and arm 1 in 1 of 2. Arm 2 has lost three times
to arm 0 and once to arm 1, and leaves. What is left to arm 0 is 1 win of 2.
Shown: the estimate of arm 0.
"""

import json

import numpy as np
from duelpy.algorithms.beat_the_mean import ComparisonHistory
from duelpy.stats.confidence_radius import HoeffdingConfidenceRadius

np.bool = bool
history = ComparisonHistory(3, HoeffdingConfidenceRadius(0.1))
for arm, other, won in [(0, 2, 1), (0, 2, 1), (0, 1, 1), (0, 1, 0)]:
    history.enter_sample(arm, other, bool(won))
for other in (0, 0, 0, 1):
    history.enter_sample(2, other, False)
history.remove_arm_history(2)
print(json.dumps({"expected": 0.5, "found": float(history.probability_estimate[0])}))
