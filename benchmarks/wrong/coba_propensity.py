"""The probability that linear Thompson sampling reports.

Definition: a logged propensity is the probability with which the policy chose the action, over its
own draws, too; inverse propensity weighting rests on it.
Code: it reports 1 for the best action of the coefficients that it has just drawn.
Case: nothing is learned yet and two actions are alike but for their sign, so each is chosen half of
the time (a frequency of 4000 choices confirms it).
Shown: the probability that is reported.
"""

import json

from coba.learners import LinTSLearner

learner = LinTSLearner(v=1.0, features=["a"], seed=1)
actions = [(1.0,), (-1.0,)]
answers = [learner.predict(None, actions)[:2] for _ in range(4000)]
share = sum(tuple(action) == actions[0] for action, _ in answers) / len(answers)
assert abs(share - 0.5) < 0.04, share
print(json.dumps({"expected": 0.5, "found": answers[-1][1]}))
