"""The seed of linear Thompson sampling.

Documentation: ``seed`` is "a seed for a random number generation".
Code: coefficients are always drawn with seed 1, so runs that differ in their seed alone draw the
same coefficients, and their spread says nothing.
Case: nothing is learned yet and two actions are alike but for their sign. Two learners of different
seeds should agree in half of 1000 choices; the standard error is 0.016.
Shown: the share of choices in which they agree.
"""

import json

from coba.learners import LinTSLearner

actions = [(1.0,), (-1.0,)]
choices = []
for seed in (1, 2):
    learner = LinTSLearner(v=1.0, features=["a"], seed=seed)
    choices.append([tuple(learner.predict(None, actions)[0]) for _ in range(1000)])
agree = sum(one == other for one, other in zip(*choices, strict=True)) / 1000
print(json.dumps({"expected": 0.5, "found": agree}))
