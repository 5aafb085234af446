"""What is believed of arms that are known by their features, and of the features."""

import numpy as np
import pytest

import tacit
from tacit.policies.base import Impression, Outcome, registry

OFFER = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
SEEN = np.array([[1.0], [0.5], [1.0]])
CLICKS = [(2, 1.0), (1, 0.0), (0, 0.0), (2, 1.0), (1, 1.0), (2, 0.0), (0, 1.0), (2, 1.0)] * 4


def taught(policy):
    """Return a state that some clicks have taught, and an impression; nothing is compiled."""
    blocks = zip((OFFER, SEEN), policy.feature_dims, strict=True)
    relevance, examination = (block if dim else np.zeros((0, 0)) for block, dim in blocks)
    arms, context = np.arange(3), np.full(policy.context_dim, 0.5)
    impression, state = Impression(arms, context, relevance, examination), policy.init(1)
    for shown, reward in CLICKS:
        if policy.shows == "slate":
            slots, rewards = np.array([shown, -1]), np.array([reward, 0.0])
            policy.learn(policy.params, state, 0, Outcome(impression, slots, rewards, 1.0))
        else:
            policy.learn(policy.params, state, 0, Outcome(impression, shown, reward, 1.0))
    return state, impression


POLICIES = [
    tacit.policies.LinUCB(2, 1),
    tacit.policies.LinTS(2),
    tacit.policies.LogisticTS(2, 1),
    tacit.policies.PolyaGammaTS(2, 1),
    tacit.policies.LinearEpsilonGreedy(2),
    tacit.policies.baselines.HLinUCB(3, 2, 1),
    tacit.policies.LaplaceEC(2, 1, relevance_intercept=True),
    tacit.policies.ECBandit(2, 1),
    tacit.policies.LaplaceECMixture(2, 1),
    tacit.ClickMixture(2, 1, context_dim=1),
    tacit.policies.HybridClickMixture(2, 1),
    tacit.policies.CascadeEC(2, 1, positions=2),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
def test_draws_lie_about_what_the_policy_believes(policy):
    state, impression = taught(policy)
    draws = policy.reward_draws(state, 0, impression, np.random.default_rng(1), 4000)
    assert draws.shape == (4000, 3)
    assert ((draws >= 0) & (draws <= 1)).all()
    assert (draws.std(axis=0) > 0.01).all()
    if hasattr(policy, "believed"):
        each = [policy.believed(policy.params, state, 0, impression, arm) for arm in range(3)]
        # The mean of a bent function is not the function of the mean.
        assert draws.mean(axis=0) == pytest.approx(each, abs=0.09)


def test_every_policy_over_features_tells_what_candidates_would_earn():
    ours = [kind for kind in registry.values() if kind.__module__.startswith("tacit.policies.")]
    examples = [kind.example(3, 2) for kind in ours]
    silent = {
        type(policy).__name__
        for policy in examples
        if policy.feature_dims != (0, 0) and not hasattr(policy, "reward_draws")
    }
    assert silent == set()


@pytest.mark.parametrize("policy", [tacit.ClickMixture(2), tacit.policies.HybridClickMixture(2)])
def test_draws_of_a_mixture_spread_as_its_own_line_says(policy):
    """Without examination logits are linear, and the mean and variance of the line are exact."""
    state, impression = taught(policy)
    draws = policy.reward_draws(state, 0, impression, np.random.default_rng(1), 60_000)
    logits = np.log(draws / (1 - draws))
    if isinstance(policy, tacit.policies.HybridClickMixture):
        from tacit.policies.features.click_mixture import fill_centre

        fill_centre(state, 0, policy.split)
    for place in range(3):
        mean, spread = policy.line(policy.params, state, 0, impression, place)
        assert logits[:, place].mean() == pytest.approx(mean, abs=5 * spread / 60_000**0.5)
        assert logits[:, place].std() == pytest.approx(spread, rel=0.02)


def test_a_linear_regression_by_hand():
    learner = tacit.Learner(tacit.policies.LinUCB(1, intercept=False), seed=1)
    learner.learn_many([learner.choose("a", relevance=[[2.0]]) for _ in range(2)], [1.0, 0.0])
    # Precision 1 + 2² + 2² = 9, mean (2·1 + 2·0)/9; the noise of a reward is ½ at most.
    (found,) = learner.coefficients("a")
    assert found.feature == "relevance[0]"
    assert found.mean == pytest.approx(2 / 9)
    assert found.high - found.mean == pytest.approx(1.96 * 0.5 / 3, rel=1e-3)
    assert found.chance_positive == pytest.approx(0.909, abs=1e-3)  # Φ((2/9)/(1/6))
    film, song = learner.estimates("a", arms=["film", "song"], relevance=[[1.5], [0.0]])
    assert (film.arm, song.arm) == ("film", "song")
    assert film.plays is film.plays_now is None
    assert film.mean == pytest.approx(1 / 3, abs=0.02)
    assert (song.mean, song.low, song.high) == (0, 0, 0)
    assert film.chance_best == pytest.approx(0.909 + 0.091 / 2, abs=0.01)


def test_candidates_are_told_the_same_each_time_and_names_are_kept():
    learner = tacit.Learner(tacit.policies.baselines.HLinUCB(["film", "song", "talk"], 2, 1), seed=1)
    offer = {"relevance": OFFER, "examination": SEEN}
    learner.learn(learner.choose("a", **offer), 1.0)
    found = learner.estimates("a", **offer)
    assert [each.arm for each in found] == ["film", "song", "talk"]
    assert str(found) == str(learner.estimates("a", **offer))
    assert str(found).splitlines()[0].split() == ["arm", "mean", "95", "%", "best"]
    two = learner.estimates("a", arms=["talk", "film"], relevance=OFFER[:2], examination=SEEN[:2])
    assert [each.arm for each in two] == ["talk", "film"]
    names = [each.feature for each in learner.coefficients("a")]
    assert names[:4] == ["relevance[0]", "relevance[1]", "examination[0]", "constant"]
    assert names[4:] == [f"hidden[{i}]" for i in range(5)]


def test_a_policy_around_another_tells_what_that_believes():
    own, around = tacit.policies.LaplaceEC(2, 1), tacit.policies.CUSUMRestart(tacit.policies.LaplaceEC(2, 1))
    learned, impression = taught(own)
    state = around.init(1)._replace(policy=learned)
    draws = [
        policy.reward_draws(policy_state, 0, impression, np.random.default_rng(1), 100)
        for policy, policy_state in ((own, learned), (around, state))
    ]
    assert np.array_equal(*draws)
    assert around.posterior(state, 0).relevance.mean.shape == (2,)
    plain = tacit.BWC.example(3)
    assert plain.beliefs(plain.init(1), 0).plays.tolist() == [0, 0, 0]
