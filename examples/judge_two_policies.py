"""Two policies for who is asking, judged on one log of random choices.

python examples/judge_two_policies.py
"""

import numpy as np

import tacit
from tacit.evaluate import replay

rng, rows, arms = np.random.default_rng(1), 5000, ["film", "song"]
age, visits, arm = rng.uniform(18, 80, rows), rng.poisson(3, rows), rng.choice(arms, rows)
likes = (arm == "song") == (age > 50)
log = {
    "key": ["home"] * rows, "arm": arm, "propensity": np.full(rows, 0.5), "age": age, "visits": visits,
    "reward": (rng.random(rows) < np.where(likes, 0.3, 0.1)).astype(float),
}  # fmt: skip
for context in ({"age": "number"}, {"visits": "number"}):
    policy = tacit.auto(arms=arms, context=context)
    found = replay(policy, log, arms=arms, passes=3)
    print(f"by {', '.join(context):8} {found.estimate:.3f}, between {found.low:.3f} and {found.high:.3f}")
print(f"the log     {found.logged:.3f}")
print("of", found.rows, "rows")
