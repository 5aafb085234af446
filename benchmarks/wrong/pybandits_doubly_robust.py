"""What doubly robust evaluation corrects.

Paper: Dudik, Langford and Li (2011), section 2: to the model's value of the policy it adds, of each
row, weight·(reward − the model's reward *of the logged action*). A model that is right makes the
estimate right even where propensities are wrong.
Code: it subtracts the model's value of the policy instead, so that a right model does not help.
Case: the model is right (0.8 and 0.2) and the rewards are exactly those; the policy plays action 0
in three of four rounds, and is worth 0.65. The log chose each action half of the time, but says
that it chose action 0 with probability 1/4 and action 1 with probability 3/4.
Shown: the estimate.
"""

import json
import os
import sys

import numpy as np

# It logs every model that it makes.
with open(os.devnull, "w") as sys.stderr:
    from pybandits.offline_policy_estimator import DoublyRobust
sys.stderr = sys.__stderr__

rewards = DoublyRobust().estimate_sample_rewards(
    action=np.array([0, 1]),
    reward=np.array([0.8, 0.2]),
    propensity_score=np.array([0.25, 0.75]),
    estimated_policy=np.array([[0.75, 0.25]] * 2),
    expected_reward=np.array([[0.8, 0.2]] * 2),
)
print(json.dumps({"expected": 0.65, "found": float(np.mean(rewards))}))
