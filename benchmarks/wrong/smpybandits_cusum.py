"""The random exploration of CUSUM-UCB.

Paper: Liu, Lee and Shroff (2018), algorithm 1: with probability α an arm is drawn uniformly from
all K.
Code: it is drawn by ``randint(0, K - 1)``, which leaves out its upper end: the last arm is never
explored, so a change of it is not seen.
Case: three arms, α = 1.
Shown: the share of the last arm in 3000 draws; the standard error is 0.009.
"""

import contextlib
import io
import json

import numpy as np

with contextlib.redirect_stdout(io.StringIO()):
    from SMPyBandits.Policies import UCB, CUSUM_IndexPolicy

    policy = CUSUM_IndexPolicy(3, policy=UCB, horizon=1000, max_nb_random_events=1)
policy.startGame()
policy.proba_random_exploration = 1.0
np.random.seed(1)  # noqa: NPY002 the package draws from NumPy's global generator
drawn = [policy.choice() for _ in range(3000)]
print(json.dumps({"expected": 1 / 3, "found": drawn.count(2) / 3000}))
