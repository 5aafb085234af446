"""Ten lines of Vowpal Wabbit, without its text format, its tuning and its restarts.

vw = vowpalwabbit.Workspace("--cb_explore_adf --squarecb --quiet")
pmf = vw.predict([f"shared |user device={device} age:{age}", "|arm a=film", "|arm a=song"])
arm = rng.choice(2, p=pmf); cost = -click(arm)
vw.learn([f"shared |user …", *(f"0:{cost}:{pmf[arm]} |arm …" if chosen else "|arm …")])

python examples/replace_vowpal_wabbit.py
"""

import numpy as np

import tacit

policy = tacit.auto(arms=["film", "song"], context={"device": ["ios", "web"], "age": "number"})
learner, rng, right = tacit.Learner(policy, seed=1), np.random.default_rng(1), 0
for _ in range(2000):
    user = {"device": str(rng.choice(["ios", "web"])), "age": rng.uniform(18, 80)}
    decision = learner.choose(context=user)  # decision.propensity is for the log
    best = "song" if user["age"] > 50 else "film"
    learner.learn(decision, float(rng.random() < (0.3 if decision.arm == best else 0.1)))
    right += decision.arm == best
print(f"right in {right:,} of 2,000 rounds")
learner.save("users.tacit")
again = tacit.Learner.load("users.tacit")
print(again.choose(context={"device": "web", "age": 70}).arm)
print(again.explain({"device": "web", "age": 70}))
