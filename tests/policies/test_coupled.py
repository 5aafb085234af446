"""One draw for all arms, and the mixture of click models that is played by it."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, logit

import tacit
from tacit.policies import policy_from_spec, policy_to_spec
from tacit.policies.base import Outcome
from tacit.policies.features.click_model import Coupled, choose_coupled, compute_coupled_propensity
from tests.policies.states import assert_propensities_are_frequencies, assert_same_states

COUPLED = [
    tacit.policies.LinTS(2, 3, draw="coupled"),
    tacit.policies.LogisticTS(2, 3, draw="coupled"),
    tacit.policies.LaplaceEC(2, 3, draw="coupled"),
    tacit.policies.LaplaceEC(2, 3, relevance_intercept=True, draw="coupled"),
    tacit.ClickMixture(2, 3),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::tacit.policies.IdentifiabilityWarning"),
    pytest.mark.interpreted,
]
by_label = pytest.mark.parametrize("policy", COUPLED, ids=lambda policy: policy.label)


class Lines(Coupled):
    """Arms whose features are the mean and the deviation of their scores."""

    class Params(NamedTuple):
        coupled: bool

    draw: ClassVar[str] = "coupled"

    @staticmethod
    def line(params, state, lane, impression, place):
        return impression.relevance[place, 0], impression.relevance[place, 1]


def lines_of(pairs):
    rows = np.array(pairs, dtype=float)
    return tacit.Impression(np.arange(len(rows)), np.zeros(0), rows, rows[:, :0])


def propensities(pairs):
    """Return the probability of each arm, given mean and deviation of its score."""
    impression = lines_of(pairs)
    params = Lines.Params(True)
    return [compute_coupled_propensity(params, None, 0, impression, arm) for arm in impression.arms]


def enumerated(means, deviations):
    """Return the same by the order of all crossings: an arm leads from one to the next."""
    crossings = [
        (means[a] - means[b]) / (deviations[b] - deviations[a])
        for a in range(len(means))
        for b in range(len(means))
        if deviations[b] > deviations[a]
    ]
    cuts = [0.0, *sorted(z for z in crossings if z > 0.0)]
    shares = np.zeros(len(means))
    for low, high in zip(cuts, [*cuts[1:], math.inf], strict=True):
        middle = 0.5 * (low + high) if high < math.inf else low + 1.0
        leader = int(np.argmax(means + middle * deviations))
        shares[leader] += 2.0 * (stats.norm.sf(low) - stats.norm.sf(high))
    return shares


def offer_of(rng, offered=6):
    blocks = {"relevance": 2, "examination": 3}
    return {block: rng.standard_normal((offered, dim)) for block, dim in blocks.items()}


def taught(policy, rounds=40, seed=1):
    """Return a learner that has played some rounds, a quarter of them clicked."""
    learner, rng = tacit.Learner(policy, seed=seed), np.random.default_rng(seed)
    for _ in range(rounds):
        learner.learn(learner.choose("q", **offer_of(rng)), float(rng.random() < 0.25))
    return learner


# The draw ------------------------------------------------------------------------------------


def test_intervals_by_hand():
    # 1 + z and 2z cross at z = 1; 0.4 + 1.2z is below one of them everywhere.
    told = propensities([(1.0, 1.0), (0.0, 2.0), (0.4, 1.2)])
    inside = math.erf(1.0 / math.sqrt(2.0))
    assert told == pytest.approx([inside, 1.0 - inside, 0.0], abs=1e-15)
    # Three lines through one point: that in the middle leads nowhere.
    assert propensities([(2.0, 1.0), (1.0, 2.0), (0.0, 3.0)])[1] == 0.0
    # Alike are played alike; the same deviation with a lower mean is never played.
    assert propensities([(1.0, 1.0), (1.0, 1.0), (0.9, 1.0)]) == [0.5, 0.5, 0.0]
    assert propensities([(0.3, 0.0)]) == [1.0]


PAIRS = st.one_of(
    st.tuples(st.integers(-3, 3), st.integers(0, 4)), st.tuples(st.floats(-30.0, 30.0), st.floats(0.0, 10.0))
)


@examples(200)
@given(pairs=st.lists(PAIRS, min_size=1, max_size=12), seed=st.integers(0, 2**32))
@example(pairs=[(0.0, 1.0), (0.0, 1.0 + 2**-52)], seed=0)
@example(pairs=[(1.0, 1.0), (1.0 + 2**-52, 1.0 - 2**-53)], seed=0)
@example(pairs=[(1.0, 1.0 + 2**-52), (1.0, 1.0)], seed=0)
def test_propensities_sum_to_one_and_nothing_else_is_played(pairs, seed):
    with np.errstate(over="ignore"):
        told = propensities(pairs)
    assert min(told) >= 0.0
    assert sum(told) == pytest.approx(1.0, abs=1e-12)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        assert told[choose_coupled(Lines.Params(True), None, 0, lines_of(pairs), rng)] > 0.0


def test_arms_alike_are_played_alike():
    """Chi-square on 6,000 choices among three of a kind, error probability 1e-6."""
    rng, impression = np.random.default_rng(4), lines_of([(0, 1), (-1, 1), (0, 1), (0, 1)])
    params = Lines.Params(True)
    counts = np.bincount([choose_coupled(params, None, 0, impression, rng) for _ in range(6000)], minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-6


@by_label
def test_propensities_are_the_frequencies_of_choices(policy):
    """Error probability 1e-6 per policy and arm: each count is binomial, checked at 5.1 sigma."""
    offer = offer_of(np.random.default_rng(7))
    offer = {block: np.vstack([rows, rows[:1]]) for block, rows in offer.items()}
    told = assert_propensities_are_frequencies(taught(policy), 4000, "q", **offer)
    assert told[0] == told[-1]


@by_label
def test_propensities_against_the_enumeration_of_crossings(policy):
    learner, rng = taught(policy), np.random.default_rng(8)
    cls, params, state, lane = type(policy), policy.params, learner.state, learner.lane("q")
    several = 0
    for _ in range(30):
        offer = offer_of(rng, offered=10)
        impression = tacit.Impression(np.arange(10), np.zeros(0), *offer.values())
        lines = [cls.line(params, state, lane, impression, place) for place in range(10)]
        told = learner.probabilities("q", **offer)
        np.testing.assert_allclose(told, enumerated(*np.array(lines).T), atol=1e-12)
        several += (told > 0.0).sum() > 1
    assert several > 5


def test_lines_are_those_of_the_posterior():
    """Means and deviations by linear algebra, the gradient of the product by differences."""
    offer = offer_of(np.random.default_rng(9))
    impression = tacit.Impression(np.arange(6), np.zeros(0), *offer.values())
    features = np.hstack([offer["relevance"], offer["examination"]])
    linear = taught(tacit.policies.LinTS(2, 3, scale=0.5, draw="coupled"))
    product = taught(tacit.policies.LaplaceEC(2, 3, draw="coupled"))
    for i, row in enumerate(features):
        found = linear.posterior("q")
        x = np.append(row, 1.0)
        told = tacit.policies.LinTS.line(linear.policy.params, linear.state, 0, impression, i)
        assert told == pytest.approx((x @ found.mean, 0.5 * math.sqrt(x @ found.covariance @ x)))

        def click(theta, row=row):
            return logit(expit(row[:2] @ theta[:2]) * expit(row[2:] @ theta[2:]))

        found = product.posterior("q").joint
        h = np.array([click(found.mean + e) - click(found.mean - e) for e in 1e-6 * np.eye(5)])
        h /= 2e-6
        told = tacit.policies.LaplaceEC.line(product.policy.params, product.state, 0, impression, i)
        assert told == pytest.approx((click(found.mean), math.sqrt(h @ found.covariance @ h)), rel=1e-6)


def test_the_default_draw_is_that_of_all_parameters():
    policy = tacit.policies.LaplaceEC(2, 3)
    assert "draw" not in policy_to_spec(policy)
    assert taught(policy).choose("q", **offer_of(np.random.default_rng(1))).propensity is None
    assert policy_to_spec(COUPLED[0])["draw"] == "coupled"
    assert policy_from_spec("lin-ts(2, 3, draw='coupled')") == COUPLED[0]


def test_a_restarted_policy_keeps_its_propensity():
    learner = taught(tacit.policies.CUSUMRestart(tacit.policies.LinTS(2, 3, draw="coupled")))
    offer = offer_of(np.random.default_rng(3))
    told = learner.probabilities("q", **offer)
    decision = learner.choose("q", **offer)
    assert decision.propensity == told[decision.slot] > 0.0


# The mixture ---------------------------------------------------------------------------------

ONE = tacit.Impression(np.arange(1), np.zeros(0), np.ones((1, 1)), np.ones((1, 1)))
VARIANCES = np.array([0.25, 1.0, 4.0])


def prior_moments():
    """Return logits and their variances before the first click, with x_C = x_E = 1, by hand.

    Where results may go unseen, f = ¼ at θ = 0, and either block moves the logit by
    ½/(1 − ¼) = ⅔ of its own; the constant's variance is ¼, and that of the arm's offset 1.
    """
    logits = np.repeat([math.log(1.0 / 3.0), 0.0], 3)
    return logits, np.concatenate([4.0 / 9.0 * (2.0 * VARIANCES + 0.25 + 1.0), 3.0 * VARIANCES + 1.0])


def test_moments_of_the_mixture_by_hand():
    policy = tacit.ClickMixture(1, 1)
    logits, variances = prior_moments()
    mean = logits.mean()
    told = tacit.ClickMixture.line(policy.params, policy.init(1), 0, ONE, 0)
    assert told == pytest.approx((mean, math.sqrt((variances + logits**2).mean() - mean**2)))


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.25])
def test_weights_by_hand(reward):
    """A reward between 0 and 1 is so much of a click and the rest of none."""
    policy = tacit.ClickMixture(1, 1)
    state = policy.init(1)
    assert tacit.ClickMixture.believed(policy.params, state, 0, ONE, 0) == pytest.approx(0.375)
    tacit.ClickMixture.learn(policy.params, state, 0, Outcome(ONE, 0, reward, 1.0))
    logits, variances = prior_moments()
    clicked = expit(logits / np.sqrt(1.0 + math.pi * variances / 8.0))
    weights = clicked**reward * (1.0 - clicked) ** (1.0 - reward)
    np.testing.assert_allclose(state.weight[0], weights / weights.sum(), rtol=1e-12)


def offers_in(rng, rounds, offered, dims=(2, 3)):
    """Return impressions with features between −1 and 1."""
    blocks = [rng.uniform(-1.0, 1.0, (rounds, offered, dim)) for dim in dims]
    arms, context = np.arange(offered), np.zeros(0)
    return [tacit.Impression(arms, context, *rows) for rows in zip(*blocks, strict=True)]


def played(policy, impressions, seed=5, truth=None):
    """Return a state after each impression's arms were shown in turn, in plain Python."""
    cls, state, rng = type(policy), policy.init(1), np.random.default_rng(seed)
    for turn, impression in enumerate(impressions):
        arm = turn % len(impression.arms)
        chance = 0.25 if truth is None else truth(impression, arm)
        cls.learn(policy.params, state, 0, Outcome(impression, arm, float(rng.random() < chance), 1.0))
    return state


# The constant stands after relevance in the mixture, and at the end in LogisticTS.
ORDER = [0, 1, 5, 2, 3, 4]


def test_a_component_learns_what_it_would_learn_alone():
    """Twenty arms at once are many, so there are no offsets."""
    impressions = offers_in(np.random.default_rng(5), 30, offered=20)
    mixture = played(tacit.ClickMixture(2, 3), impressions)
    np.testing.assert_array_equal(mixture.inputs.factor, 1.0)
    alone = played(tacit.policies.LaplaceEC(2, 3, prior_variance=0.25, relevance_intercept=True), impressions)
    np.testing.assert_array_equal(mixture.mean[0, 0], alone.mean[0])
    np.testing.assert_array_equal(mixture.root[0, 0], alone.root[0])
    for k, variance in zip((3, 4, 5), VARIANCES, strict=True):
        logistic = played(tacit.policies.LogisticTS(2, 3, prior_variance=variance), impressions)
        # The step to the mode ends where it moves less than 1e-9: sums in another order may show.
        np.testing.assert_allclose(mixture.mean[0, k], logistic.mean[0][ORDER], atol=1e-8)
        covariance = (logistic.root[0] @ logistic.root[0].T)[np.ix_(ORDER, ORDER)]
        np.testing.assert_allclose(mixture.root[0, k] @ mixture.root[0, k].T, covariance, atol=1e-8)


def test_offsets_are_parameters_of_indicators():
    """The joint posterior over features and an indicator of each arm, whose prior variance is 1."""
    (few,) = offers_in(np.random.default_rng(8), 1, offered=4)
    impressions = [few] * 60
    state = played(tacit.ClickMixture(2, 3), impressions)
    assert state.inputs.counts[0].tolist() == [60, 240, 4]
    for k, variance in ((0, 0.25), (3, 0.25), (4, 1.0), (5, 4.0)):
        wide = [few._replace(relevance=np.hstack([few.relevance, np.eye(4) / math.sqrt(variance)]))] * 60
        if k == 0:
            dense = tacit.policies.LaplaceEC(6, 3, prior_variance=variance, relevance_intercept=True)
            features, offsets = [0, 1, 6, 7, 8, 9], [2, 3, 4, 5]
        else:
            dense = tacit.policies.LogisticTS(6, 3, prior_variance=variance)
            features, offsets = [0, 1, 9, 6, 7, 8], [2, 3, 4, 5]
        exact = played(dense, wide)
        mean, covariance = exact.mean[0], exact.root[0] @ exact.root[0].T
        root, slope = state.root[0, k], state.offsets.slope[0, k, :4]
        own = root @ root.T
        np.testing.assert_allclose(state.mean[0, k], mean[features], atol=1e-7)
        np.testing.assert_allclose(own, covariance[np.ix_(features, features)], atol=1e-7)
        # An offset is the weight of an indicator times that one's value.
        scale = 1.0 / math.sqrt(variance)
        told = state.offsets.mean[0, k, :4] - slope @ state.mean[0, k]
        np.testing.assert_allclose(told, scale * mean[offsets], atol=1e-7)
        np.testing.assert_allclose(-slope @ own, scale * covariance[np.ix_(offsets, features)], atol=1e-7)
        spread = slope @ own @ slope.T + np.diag(state.offsets.variance[0, k, :4])
        np.testing.assert_allclose(spread, scale**2 * covariance[np.ix_(offsets, offsets)], atol=1e-7)


def test_offsets_end_where_arms_are_many():
    """Sixteen arms are few. With the next one θ's own posterior remains, and lines have no more."""
    rng, policy = np.random.default_rng(9), tacit.ClickMixture(2, 3)
    first, second = offers_in(rng, 2, offered=8)
    state = played(policy, [first, second] * 10)
    cls, params = tacit.ClickMixture, policy.params
    before = cls.line(params, state, 0, first, 0)
    assert state.inputs.counts[0, 2] == 16
    (other,) = offers_in(rng, 1, offered=1)
    kept = state.mean.copy()
    cls.learn(params, state, 0, Outcome(other, 0, 1.0, 1.0))
    assert state.inputs.counts[0, 2] == 17
    assert (state.mean != kept).any()
    assert cls.line(params, state, 0, first, 0) != pytest.approx(before, abs=0.01)
    offsets = [array.copy() for array in state.offsets]
    cls.learn(params, state, 0, Outcome(first, 0, 1.0, 1.0))
    for was, now in zip(offsets, state.offsets, strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.compiled
def test_few_crossed_arms_are_told_apart():
    """The best of four arms on a line is beside the worst: no linear score puts it first."""
    environment = tacit.ExaminationArms.make_crossed()
    found = tacit.simulate(tacit.ClickMixture(1, 1), environment, 3000, runs=8, seed=21, workers=1)
    # One run on a wrong arm costs 0.39 a round.
    assert found.regret[0, :, -1].max() < 0.39 * 3000 / 4


# Features as they come -----------------------------------------------------------------------


def test_the_measure_of_features_by_hand():
    rows = np.array([[10.0, 0.0], [-40.0, 3.0]])
    impression = tacit.Impression(np.arange(2), np.zeros(0), rows, np.array([[0.02], [0.01]]))
    policy = tacit.ClickMixture(2, 1)
    state = played(policy, [impression])
    # Columns over their largest: (¼, 0) and (−1, 1); the squared lengths' mean is (1/16 + 2)/2.
    shrink = 0.8 / math.sqrt((1.0 / 16.0 + 2.0) / 2.0)
    alone = 0.8 / math.sqrt((1.0 + 0.25) / 2.0)
    wanted = [shrink / 40.0, shrink / 3.0, 1.0, alone / 0.02]
    np.testing.assert_allclose(state.inputs.factor[0], wanted, rtol=1e-12)
    # Half as large again is near enough to stay; after a hundred decisions nothing changes it.
    played_on = played(policy, [impression] * 100)
    larger = impression._replace(relevance=1.5 * rows)
    tacit.ClickMixture.learn(policy.params, state, 0, Outcome(larger, 0, 1.0, 1.0))
    np.testing.assert_allclose(state.inputs.factor[0], wanted, rtol=1e-12)
    tacit.ClickMixture.learn(
        policy.params, state, 0, Outcome(larger._replace(relevance=9.0 * rows), 0, 1.0, 1.0)
    )
    assert (state.inputs.factor[0, :2] < 0.5 * np.array(wanted[:2])).all()
    tacit.ClickMixture.learn(
        policy.params, played_on, 0, Outcome(larger._replace(relevance=9.0 * rows), 0, 1.0, 1.0)
    )
    np.testing.assert_allclose(played_on.inputs.factor[0], wanted, rtol=1e-12)


def test_features_of_any_size_teach_the_same():
    policy, states = tacit.ClickMixture(2, 3), []
    for size in (2.0**-9, 2.0**7):
        rng = np.random.default_rng(3)
        impressions = [
            each._replace(relevance=size * each.relevance, examination=each.examination / size)
            for each in offers_in(rng, 40, offered=6)
        ]
        states.append(played(policy, impressions))
    for name in ("mean", "root", "weight"):
        one, other = (getattr(state, name) for state in states)
        np.testing.assert_array_equal(one, other, err_msg=name)
    told = [policy.posterior(state, 0).relevance.mean[:2] for state in states]
    np.testing.assert_allclose(told[0], 2.0**16 * told[1], rtol=1e-12)


def test_a_context_multiplies_the_features_of_arms():
    rng = np.random.default_rng(12)
    short, long = [], []
    for impression in offers_in(rng, 40, offered=20, dims=(2, 1)):
        context = rng.uniform(-1.0, 1.0, 2)
        rows = impression.relevance
        short.append(impression._replace(context=context))
        long.append(impression._replace(relevance=np.hstack([rows, context[0] * rows, context[1] * rows])))
    one, other = tacit.ClickMixture(2, 1, context_dim=2), tacit.ClickMixture(6, 1)
    crossed, plain = played(one, short), played(other, long)
    for name in ("mean", "root", "weight"):
        np.testing.assert_array_equal(getattr(crossed, name), getattr(plain, name), err_msg=name)
    line = tacit.ClickMixture.line
    assert line(one.params, crossed, 0, short[0], 3) == line(other.params, plain, 0, long[0], 3)


def test_who_likes_what_is_learned_from_user_and_arm():
    """Two kinds of users like opposite films: without the product nothing could be learned."""
    learner, rng = (tacit.Learner(tacit.ClickMixture(2, context_dim=1), seed=5), np.random.default_rng(5))
    films, clicks = [[1.0, 0.0], [0.0, 1.0]], []
    for _ in range(300):
        user = float(rng.choice([-1.0, 1.0]))
        decision = learner.choose("home", [user], ["comedy", "drama"], relevance=films)
        liked = decision.arm == ("comedy" if user > 0 else "drama")
        clicks.append(rng.random() < (0.8 if liked else 0.2))
        learner.learn(decision, float(clicks[-1]))
    # At 0.8 each the deviation is 0.04 over 100 rounds; without the product, 0.5.
    assert np.mean(clicks[-100:]) > 0.62


@pytest.mark.parametrize(
    "policy",
    [tacit.ClickMixture(2), tacit.policies.LogisticTS(2), tacit.policies.LogisticTS(2, intercept=False),
     tacit.policies.LinTS(2, draw="coupled"), tacit.policies.LinUCB(2),
     tacit.policies.PolyaGammaTS(2, sweeps=2, memory=8)],
    ids=lambda policy: policy.label,
)  # fmt: skip
def test_features_need_no_examination(policy):
    learner, rng = tacit.Learner(policy, seed=1), np.random.default_rng(1)
    state, cls = policy.init(1), type(policy)
    for _ in range(30):
        rows = rng.uniform(-1.0, 1.0, (3, 2))
        decision = learner.choose("q", relevance=rows)
        reward = float(rng.random() < 0.5)
        learner.learn(decision, reward)
        empty = tacit.Impression(np.arange(3), np.zeros(0), rows)
        cls.learn(policy.params, state, 0, Outcome(empty, decision.slot, reward, 1.0))
        assert 0.0 <= cls.believed(policy.params, state, 0, empty, 0) <= 1.0
    assert_same_states(learner.state, state, rows=1, rtol=1e-6, atol=1e-9)


def test_without_examination_nothing_hides_results():
    assert tacit.ClickMixture(2).init(1).weight[0].tolist() == [0.0, 0.0, 0.0] + 3 * [1.0 / 3.0]


def test_components_that_foretell_badly_are_dropped_for_good():
    """Clicks that no examination hides: f = σ(3·(x + y)) rises above any product's."""

    def truth(impression, arm):
        return expit(6.0 * (impression.relevance[arm, 0] + impression.examination[arm, 0]))

    policy = tacit.ClickMixture(2, 3)
    impressions = offers_in(np.random.default_rng(6), 600, offered=4)
    few, many = (played(policy, impressions[:rounds], truth=truth) for rounds in (500, 600))
    gone = few.weight[0] == 0.0
    assert gone[:3].all()
    assert few.weight[0].sum() == pytest.approx(1.0, abs=1e-12)
    assert (many.weight[0][gone] == 0.0).all()
    np.testing.assert_array_equal(few.mean[0][gone], many.mean[0][gone])
    assert (few.mean[0][~gone] != many.mean[0][~gone]).any()
    assert many.weight[0][~gone].min() > math.exp(-30.0)
    policy.restart(policy.params, many, 0)
    assert_same_states(policy.init(1), many)


def test_the_heaviest_component_is_told():
    learner = taught(tacit.ClickMixture(2, 3))
    told = learner.posterior("q")
    heaviest = int(np.argmax(told.weights))
    assert told.weights.sum() == pytest.approx(1.0)
    factor = learner.state.inputs.factor[0]
    np.testing.assert_array_equal(told.joint.mean, factor * learner.state.mean[0, heaviest])
    assert told.relevance.mean.shape == told.examination.mean.shape == (3,)
