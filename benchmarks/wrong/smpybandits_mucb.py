"""When M-UCB restarts.

Paper: Cao, Wen, Kveton and Xie (2019), algorithm 1: it restarts when the sums of the two halves of
an arm's last w rewards differ by more than b.
Code: the test returns the pair (changed, place). A pair is true in Python whatever it holds, so
it restarts whenever a window is full.
Case: w = 4 and b = 100, which sums of two rewards never reach. Arm 0 pays 1 four times.
Shown: the number of rewards of arm 0 that it still remembers.
"""

import contextlib
import io
import json

with contextlib.redirect_stdout(io.StringIO()):
    from SMPyBandits.Policies import UCB, Monitored_IndexPolicy

    policy = Monitored_IndexPolicy(2, policy=UCB, w=4, b=100.0, gamma=0.05, horizon=1000)
policy.startGame()
for _ in range(4):
    policy.getReward(0, 1.0)
print(json.dumps({"expected": 4, "found": int(policy.last_pulls[0])}))
