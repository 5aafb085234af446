"""Long runs of Exp3.S.

Paper: Auer, Cesa-Bianchi, Freund and Schapire (2002), section 8: an arm is played with probability
(1 − γ)·w/Σw + γ/K. Weights grow without bound; only their shares matter.
Code: the weights are not rescaled. Once one overflows, its share is NaN, which is set to 0: the
best arm is not played, and when all have overflowed, all are played alike.
Case: two arms, γ = 1/2; arm 0 is played and pays 1 for 2200 rounds.
Shown: the probability of arm 0.
"""

import contextlib
import io
import json
import warnings

with contextlib.redirect_stdout(io.StringIO()):
    from SMPyBandits.Policies import Exp3S

warnings.simplefilter("ignore")
policy = Exp3S(2, gamma=0.5, alpha=1e-4)
policy.startGame()
played = 0
while played < 2200 and policy.trusts[0] > 0:
    policy.getReward(0, 1.0)
    played += 1
print(json.dumps({"expected": 0.75, "found": round(float(policy.trusts[0]), 3)}))
