"""What a simulation on a log reports.

Paper: Li, Chu, Langford and Wang (2011), algorithm 2: only rows count in which the policy chooses
the logged arm; that makes the mean unbiased.
Code: other rows count, too, with the arm's mean reward in the training part, as the documentation
says. It is not the replay of Li et al., and what changed since then is not seen.
Case: in training arm 0 pays 0 and arm 1 pays 1; in the test neither pays. The greedy policy
chooses arm 1.
Shown: its mean reward in the test.
"""

import json

from mabwiser.mab import MAB, LearningPolicy
from mabwiser.simulator import Simulator

bandit = MAB([0, 1], LearningPolicy.EpsilonGreedy(epsilon=0.0))
decisions, rewards = [0, 1] * 4, [0, 1] * 2 + [0] * 4
simulator = Simulator([("greedy", bandit)], decisions, rewards, test_size=0.5, is_ordered=True, is_quick=True)
simulator.run()
found = simulator.bandit_to_arm_to_stats_avg["greedy"][1]["mean"]
print(json.dumps({"expected": 0.0, "found": float(found)}))
