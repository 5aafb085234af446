"""Contextual duels: which arm for which context."""

import numpy as np
import pytest

import tacit

pytestmark = pytest.mark.interpreted

ARMS = ["short", "long"]


def taught(rounds=400, **options):
    """A learner for which the left arm wins where the context is positive."""
    learner = tacit.Learner(tacit.policies.baselines.FeelGoodThompson(ARMS, 1, **options), seed=3)
    rng = np.random.default_rng(4)
    for number in range(rounds):
        context = rng.choice([-1.0, 1.0])
        decision = learner.choose(f"query {number % 7}", context=[context])
        left, right = decision.slots
        if left != right:
            learner.learn(decision, float((rng.random() < (0.85 if context > 0 else 0.15)) == (left == 0)))
    return learner


def shown(learner, context, times=60):
    pairs = [learner.choose("a query never seen", context=[context]).pair for _ in range(times)]
    return [arm for pair in pairs for arm in pair]


def test_a_new_key_begins_with_what_contexts_have_taught():
    learner = taught()
    assert shown(learner, 1.0).count("short") > 100
    assert shown(learner, -1.0).count("long") > 100


def test_one_duel_moves_the_posterior_to_its_mode():
    """One observation along x: the mode solves l = s·(1 − σ(l)), with s = x·x."""
    learner = tacit.Learner(tacit.policies.baselines.FeelGoodThompson(2, 1), seed=1)
    while True:
        decision = learner.choose("a", context=[0.5])
        if decision.slots[0] != decision.slots[1]:
            break
    learner.learn(decision, 1.0)
    left = decision.slots[0]
    contrast = np.array([0.5, 1.0, -0.5, -1.0]) * (1 if left == 0 else -1)
    logit = contrast @ learner.state.shared.mean[0]
    assert np.isclose(logit, (contrast @ contrast) * (1 - 1 / (1 + np.exp(-logit))), atol=1e-6)
    chance = 1 / (1 + np.exp(-logit))
    precision = np.eye(4) + chance * (1 - chance) * np.outer(contrast, contrast)
    root = learner.state.shared.root[0]
    assert np.allclose(root @ root.T @ precision, np.eye(4), atol=1e-6)


def test_an_arm_that_comes_later_keeps_what_the_others_have_taught():
    learner = taught()
    learner.add_arms(["new"])
    arms = shown(learner, 1.0, times=200)
    assert arms.count("long") < arms.count("short")
    assert "new" in arms


@pytest.mark.compiled
def test_contexts_pay_where_keys_are_many():
    environment = tacit.environments.ContextualDuels(arms=4, context_dim=3, keys=200)
    policies = [tacit.policies.baselines.FeelGoodThompson(4, 3), tacit.policies.RMED1(4)]
    found = tacit.simulate(policies, environment, 5000, runs=8, seed=5, workers=1).compare(0, 1)
    assert found.difference < -100
