"""Levels of arms by key: worked by hand, and what keys that differ, or do not, lose by sharing a model."""

import math

import numpy as np
import pytest

import tacit
from tacit.policies import ContextMixture
from tacit.policies.features import key_levels
from tacit.policies.features.key_levels import KeyLevels
from tacit.policies.spec import policy_from_stored, policy_to_spec
from tests.policies.states import assert_frequencies


def play(policy, rates, seed, rounds=3000):
    """Return a policy's regret for keys with these click rates, of shape (keys, arms), and its learner."""
    rng, learner, regret = np.random.default_rng(seed), tacit.Learner(policy, seed, propensities=False), 0.0
    contexts, keys = rng.standard_normal((rounds, 2)), rng.integers(0, len(rates), rounds)
    for context, key, uniform in zip(contexts, keys.tolist(), rng.random(rounds).tolist(), strict=True):
        decision = learner.choose(f"key {key}", context)
        learner.learn(decision, float(uniform < rates[key][decision.arm]))
        regret += max(rates[key]) - rates[key][decision.arm]
    return regret, learner


def test_a_level_is_a_normal_update_and_hypotheses_are_weighed_by_the_reward():
    """The first click of a second key, of a belief of variance 0 at a log-odds of 0: by hand."""
    levels = KeyLevels.initial(2, 1)
    key_levels.learn_level(levels, 0, 0, 0.0, 0.0, 1.0, 1.0)
    assert (levels.keys[0], levels.means.any(), key_levels.mix_level(levels, 0, 0)) == (
        1.0,
        False,
        (0.0, 0.0),
    )
    key_levels.learn_level(levels, 1, 0, 0.0, 0.0, 1.0, 1.0)
    # Under a prior variance v, the click has probability 1/2 and weight 1/4: the level is v/(v + 4)·2.
    np.testing.assert_allclose(levels.means[1, 0], [0.25 / 4.25 * 2, 2.5 / 6.5 * 2], rtol=1e-6)
    np.testing.assert_allclose(levels.learned[1, 0], 0.25)
    # Every hypothesis gave the click one half.
    np.testing.assert_allclose(levels.weights[0], key_levels.WEIGHTS)
    mean, variance = key_levels.mix_level(levels, 1, 0)
    moments = [key_levels.read_level(levels, 1, 0, j) for j in (0, 1)]
    assert mean == pytest.approx(sum(0.05 * level for level, _ in moments))
    assert variance == pytest.approx(sum(0.05 * (v + m * m) for m, v in moments) - mean**2)


def test_one_key_is_learned_as_without_levels():
    """Decisions and propensities are the same to the bit."""
    learners = [tacit.Learner(ContextMixture(3, 2, key_levels=on), seed=3) for on in (True, False)]
    rng = np.random.default_rng(1)
    for _ in range(300):
        context = rng.standard_normal(2)
        first, second = (learner.choose("query", context) for learner in learners)
        assert (first.arm, first.propensity) == (second.arm, second.propensity)
        reward = float(rng.random() < (0.2, 0.5, 0.4)[first.arm])
        for learner, decision in zip(learners, (first, second), strict=True):
            learner.learn(decision, reward)


def test_keys_that_differ_share_a_model_and_are_told_apart():
    """Keys like another of four arms each: without levels the loss is several times as large."""
    rates = np.where(np.eye(4)[np.arange(8) % 4] > 0, 0.7, 0.2)
    with_levels = [play(ContextMixture(4, 2), rates, seed)[0] for seed in range(4)]
    assert np.mean(with_levels) < 0.5 * play(ContextMixture(4, 2, key_levels=False), rates, 1)[0]


def test_propensities_are_frequencies_and_estimates_are_those_of_the_key():
    """Chances sum to 1 and are met by draws; keys that like other arms have other estimates."""
    rates = np.array([[0.8, 0.2], [0.2, 0.8]])
    _, learner = play(ContextMixture(2, 2), rates, 5, rounds=400)
    chances = learner.probabilities("key 0", [0.0, 0.0])
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    decisions = learner.choose_many(["key 0"] * 5_000, [[0.0, 0.0]] * 5_000)
    assert_frequencies(np.bincount(decisions.slots, minlength=2), 5_000, chances)
    best = [learner.estimates(f"key {key}", [0.0, 0.0]) for key in (0, 1)]
    assert best[0][0].mean > best[0][1].mean
    assert best[1][0].mean < best[1][1].mean


def test_a_learner_of_version_0_3_has_no_levels():
    """Its table does not have the field; a policy of today has."""
    stored = policy_from_stored({"name": "ContextMixture", "arms": 2, "context_dim": 2})
    assert not stored.key_levels
    assert not math.prod(stored.init(3).levels.means.shape)
    assert policy_from_stored(policy_to_spec(ContextMixture(2, 2))) == ContextMixture(2, 2)
