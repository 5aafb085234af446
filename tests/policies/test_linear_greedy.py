"""Epsilon-greedy over a linear regression: against ridge regression and against frequencies."""

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import tacit


def taught(policy, rounds, seed=1, offered=4):
    """Return a learner that has played some rounds, with what it was shown and told."""
    learner, rng = tacit.Learner(policy, seed=seed), np.random.default_rng(seed)
    rows, rewards = [], []
    for _ in range(rounds):
        features = rng.standard_normal((offered, policy.dim))
        decision = learner.choose("home", relevance=features)
        rows.append(features[decision.arm])
        rewards.append(float(rng.random() < 0.4))
        learner.learn(decision, rewards[-1])
    return learner, np.array(rows), np.array(rewards)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_regression_is_that_of_the_normal_equations(intercept):
    policy = tacit.policies.LinearEpsilonGreedy(3, prior_variance=0.5, intercept=intercept)
    learner, rows, rewards = taught(policy, 40)
    x = np.column_stack([rows, np.ones(len(rows))]) if intercept else rows
    precision = x.T @ x + np.eye(x.shape[1]) / 0.5
    belief = learner.posterior("home")
    np.testing.assert_allclose(belief.mean, np.linalg.solve(precision, x.T @ rewards), atol=1e-10)
    np.testing.assert_allclose(belief.covariance, np.linalg.inv(precision), atol=1e-10)


def test_forgetting_weighs_what_came_later():
    policy = tacit.policies.LinearEpsilonGreedy(1, intercept=False, discount=0.5, epsilon=0.0)
    learner = tacit.Learner(policy, seed=1)
    for reward in (0.0, 1.0):
        learner.learn(learner.choose("home", relevance=[[1.0]]), reward)
    # The first reward finds nothing to forget; the second halves the precision 2 that was there.
    assert learner.posterior("home").mean[0] == pytest.approx(1.0 / (0.5 * 2.0 + 1.0))


def test_ties_share_what_is_not_explored():
    learner = tacit.Learner(tacit.policies.LinearEpsilonGreedy(1, epsilon=0.3), seed=1)
    learner.learn(learner.choose("home", relevance=[[1.0]]), 1.0)
    found = learner.probabilities("home", relevance=[[1.0], [0.0], [1.0], [-1.0]])
    np.testing.assert_allclose(found, [0.425, 0.075, 0.425, 0.075])


@examples(30)
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([0.0, 0.1, 1.0]))
def test_probabilities_are_a_distribution_with_a_floor(seed, epsilon):
    learner, _, _ = taught(tacit.policies.LinearEpsilonGreedy(2, epsilon=epsilon), 5, seed=seed)
    rng = np.random.default_rng(seed)
    # Few values, so that there are ties.
    features = rng.integers(0, 2, (int(rng.integers(1, 9)), 2)).astype(float)
    found = learner.probabilities("home", relevance=features)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= epsilon / len(features)).all()
    decision = learner.choose("home", relevance=features)
    assert decision.propensity == found[decision.arm] > 0


def test_arms_are_chosen_as_often_as_their_probability_says():
    rounds, alpha = 20_000, 1e-6
    learner, _, _ = taught(tacit.policies.LinearEpsilonGreedy(2, epsilon=0.4), 20)
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    expected = learner.probabilities("home", relevance=features)
    chosen = learner.choose_many(["home"] * rounds, relevance=[features] * rounds)
    shares = np.bincount([d.arm for d in chosen], minlength=4) / rounds
    # Hoeffding's bound for each of the four.
    assert np.abs(shares - expected).max() < math.sqrt(math.log(8 / alpha) / (2 * rounds))


def test_it_finds_the_better_arm_where_rewards_are_linear():
    rng = np.random.default_rng(5)
    learner = tacit.Learner(tacit.policies.LinearEpsilonGreedy(3, epsilon=0.1), seed=5)
    weights, best = np.array([0.5, 0.3, -0.2]), 0
    for i in range(1500):
        features = rng.random((5, 3))
        decision = learner.choose("home", relevance=features)
        chances = features @ weights
        best += i >= 1000 and chances[decision.arm] > chances.max() - 0.02
        learner.learn(decision, float(rng.random() < chances[decision.arm].clip(0, 1)))
    # Chance alone finds one of five; exploration costs 8 % of the rounds.
    assert best > 300


def test_probabilities_of_other_policies():
    assert tacit.Learner(tacit.policies.LinTS(1, 1), seed=1).probabilities(
        "home", relevance=[[1.0]], examination=[[1.0]]
    ) is None  # fmt: skip
    assert tacit.Learner(tacit.Thompson(2), seed=1).probabilities("q").sum() == pytest.approx(1.0)
