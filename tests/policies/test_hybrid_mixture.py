"""Keys that are alike as far as their clicks say so: against the joint posterior of all keys."""

import math

import numpy as np
import pytest
from scipy.special import expit

import tacit
from tacit.core.arrays import leaves
from tacit.policies.base import Outcome
from tacit.policies.features.click_mixture import HybridClickMixture, fill_centre
from tests.policies.states import assert_frequencies, chances_of

DIMS = 2, 1
KEYS = 3
pytestmark = [
    pytest.mark.filterwarnings("ignore::tacit.policies.IdentifiabilityWarning"),
    pytest.mark.interpreted,
]


def clicks(rng, rounds, offered=4):
    """Return keys, impressions with features between −1 and 1, shown arms and rewards."""
    context, arms = np.zeros(0), np.arange(offered)
    for _ in range(rounds):
        blocks = [rng.uniform(-1.0, 1.0, (offered, dim)) for dim in DIMS]
        impression = tacit.Impression(arms, context, *blocks)
        yield int(rng.integers(KEYS)), impression, int(rng.integers(offered)), rng.random() < 0.4


def taught(rounds=60, seed=1):
    policy = HybridClickMixture(*DIMS)
    state = policy.init(KEYS)
    for key, impression, arm, clicked in clicks(np.random.default_rng(seed), rounds):
        HybridClickMixture.learn(policy.params, state, key, Outcome(impression, arm, float(clicked), 1.0))
    return policy, state


def per_key(block, key):
    """Return features as all keys have them, and half of them once more for the key alone."""
    return np.hstack([block] + [0.5 * block * (other == key) for other in range(KEYS)])


@pytest.mark.parametrize(("component", "variance"), [(0, 0.25), (2, 4.0), (3, 0.25), (5, 4.0)])
def test_it_is_the_joint_posterior_of_all_keys(component, variance):
    """Of a single click model over x and ½·key⊗x, with a constant of prior variance ¼ or v."""
    _, state = taught()
    np.testing.assert_array_equal(state.shared.inputs.factor, 1.0)
    hides = component < 3
    constant = math.sqrt(0.25 / variance) if hides else 1.0
    ones = np.full((4, 1), constant)
    dims = 3 * (1 + KEYS), 1 + KEYS
    if hides:
        dense = tacit.policies.LaplaceEC(*dims, prior_variance=variance)
    else:
        dense = tacit.policies.LogisticTS(*dims, prior_variance=variance, intercept=False)
    exact = dense.init(1)
    for key, impression, arm, clicked in clicks(np.random.default_rng(1), 60):
        wide = impression._replace(
            relevance=per_key(np.hstack([impression.relevance, ones]), key),
            examination=per_key(impression.examination, key),
        )
        outcome = Outcome(wide, arm, float(clicked), 1.0)
        type(dense).learn(dense.params, exact, 0, outcome)
    mean, covariance = exact.mean[0], exact.root[0] @ exact.root[0].T
    scale = np.diag([1.0, 1.0, constant, 1.0])
    pick = np.zeros((4, len(mean)))
    pick[range(4), [0, 1, 2, 12]] = 1.0
    np.testing.assert_allclose(state.shared.mean[0, component], scale @ pick @ mean, atol=1e-7)
    root = state.shared.root[0, component]
    wanted = scale @ pick @ covariance @ pick.T @ scale
    np.testing.assert_allclose(root @ root.T, wanted, atol=1e-7)
    variances = np.diag([variance, variance, 0.25 if hides else variance, variance])
    for key in range(KEYS):
        own = pick.copy()
        own[range(4), [*range(3 * (1 + key), 3 * (2 + key)), 13 + key]] = 0.5
        found = state.root[key, component] @ state.root[key, component].T
        follows = found @ np.linalg.inv(0.25 * variances)
        told = state.mean[key, component] + follows @ state.shared.mean[0, component]
        np.testing.assert_allclose(told, scale @ own @ mean, atol=1e-7)
        spread = found + follows @ root @ root.T @ follows.T
        np.testing.assert_allclose(spread, scale @ own @ covariance @ own.T @ scale, atol=1e-7)


def test_lines_are_those_of_the_posterior():
    """With a single component left; the gradient of the product by differences."""
    policy, state = taught()
    state.shared.weight[:] = 0.0
    state.shared.weight[0, 1] = 1.0
    told = policy.posterior(state, 2).joint
    ((_, impression, *_),) = clicks(np.random.default_rng(7), 1)
    for i in range(4):
        x = np.concatenate([impression.relevance[i], [1.0], impression.examination[i]])

        def logit(theta, x=x):
            chance = expit(theta[:3] @ x[:3]) * expit(theta[3:] @ x[3:])
            return math.log(chance / (1.0 - chance))

        h = [(logit(told.mean + e) - logit(told.mean - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
        deviation = math.sqrt(h @ told.covariance @ h)
        chance = HybridClickMixture.believed(policy.params, state, 2, impression, i)
        assert chance == pytest.approx(expit(logit(told.mean)))
        fill_centre(state, 2, policy.split)
        found = HybridClickMixture.line(policy.params, state, 2, impression, i)
        assert found == pytest.approx((logit(told.mean), deviation), rel=1e-6)


def test_choosing_changes_nothing_and_says_how_likely():
    policy, state = taught()
    before = [array.copy() for _, array in leaves(state)]
    ((_, impression, *_),) = clicks(np.random.default_rng(7), 1)
    rng = np.random.default_rng(3)
    told = chances_of(policy, state, impression, lane=1)
    chosen = [HybridClickMixture.choose(policy.params, state, 1, impression, rng) for _ in range(1000)]
    assert told.sum() == pytest.approx(1.0, abs=1e-12)
    assert_frequencies(np.bincount(chosen, minlength=4), 1000, told)
    for was, (name, now) in zip(before, leaves(state), strict=True):
        np.testing.assert_array_equal(was, now, err_msg=name)


def test_a_new_key_begins_with_what_the_others_learned(tmp_path):
    learner, rng = tacit.Learner(HybridClickMixture(2), seed=4), np.random.default_rng(4)
    for i in range(120):
        rows = rng.uniform(-1.0, 1.0, (4, 2))
        decision = learner.choose(f"user {i % 6}", relevance=rows)
        learner.learn(decision, float(rng.random() < expit(4.0 * rows[decision.slot, 0])))
    test = [[-1.0, 0.0], [1.0, 0.0]]
    assert learner.probabilities("stranger", relevance=test)[1] > 0.99
    assert tacit.Learner(HybridClickMixture(2), seed=4).probabilities("stranger", relevance=test)[1] < 0.9
    learner.save(tmp_path / "learner.tacit")
    loaded = tacit.Learner.load(tmp_path / "learner.tacit")
    for (name, a), (_, b) in zip(leaves(learner.state), leaves(loaded.state), strict=True):
        assert a[: len(b)].tobytes() == b.tobytes(), name
