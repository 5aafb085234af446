"""Ten recommendations out of 200 retrieved items, for a user: learned from what readers see and like.

python examples/recommend_a_list.py
"""

import numpy as np

import tacit

rng = np.random.default_rng(1)
catalogue = rng.standard_normal((5_000, 48))  # embeddings, of your items
taste = rng.standard_normal((4, 48)) / 48**0.5  # what users like; nobody knows it
user = {"age": "number", "new": "boolean"}
policy = tacit.auto(shows="slate", relevance_dim=48, positions=10, context=user)
learner = tacit.Learner(policy, seed=1)
clicks = []
for _ in range(1_500):
    retrieved = catalogue[rng.choice(5_000, 200)]  # by your search: the best first, if it knows
    age, new = rng.uniform(15, 75), rng.random() < 0.5
    decision = learner.choose(context={"age": age, "new": new}, relevance=retrieved)
    likes = retrieved[decision.slots] @ ([1.0, (age - 45) / 17, 2 * new - 1, 0.0] @ taste) > 2.0
    clicked = likes & (rng.random(10) < 1 / np.arange(1, 11))  # fewer look at lower positions
    learner.learn(decision, clicked.astype(float))
    clicks.append(clicked.sum())
for name, stretch in {"the first 100": clicks[:100], "the last 500": clicks[-500:]}.items():
    print(f"clicks on a list, {name}: {np.mean(stretch):.2f}")
print("ten for somebody of 20:", learner.choose(context={"age": 20, "new": True}, relevance=retrieved).slate)
print(policy.reason.splitlines()[1])
