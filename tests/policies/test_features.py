"""Policies over features: against linear algebra, integrals, frequencies; their environment."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import tacit
from tacit.policies import policy_from_spec
from tacit.policies.base import Outcome
from tacit.policies.features.ec_bandit import most_clicked, variational
from tacit.policies.features.gaussian import jaakkola, log_sigmoid
from tests.policies.states import assert_propensities_are_frequencies, learn

pytestmark = pytest.mark.interpreted


def impression_of(rng, offered=4, dims=(2, 3), context=()):
    """Return an impression with random features."""
    blocks = (rng.standard_normal((offered, dim)) for dim in dims)
    return tacit.Impression(np.arange(offered), np.array(context, float), *blocks)


def test_policies_as_text():
    text = "cusum-restart(laplace-ec(relevance_dim=5, examination_dim=2), threshold=10)"
    policy = tacit.policies.CUSUMRestart(tacit.policies.LaplaceEC(5, 2), threshold=10.0)
    assert policy_from_spec(text) == policy
    assert policy.feature_dims == (5, 2)


# The choice ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 30.0, 100.0]))
def test_the_arm_of_the_largest_product_is_played(seed, scale):
    rng = np.random.default_rng(seed)
    impression = impression_of(rng, 12)
    theta_c, theta_e = scale * rng.standard_normal(2), scale * rng.standard_normal(3)
    a, b = impression.relevance @ theta_c, impression.examination @ theta_e
    values = [log_sigmoid(x) + log_sigmoid(y) for x, y in zip(a, b, strict=True)]
    if max(values) > -340.0:
        assert most_clicked(impression, theta_c, theta_e) == int(np.argmax(values))


def test_certain_clicks_and_impossible_ones_are_told_apart():
    one = np.ones(1)
    sure = tacit.Impression(
        np.arange(3), np.zeros(0), np.array([[30.0], [36.0], [33.0]]), np.full((3, 1), 36.0)
    )
    assert most_clicked(sure, one, one) == 1
    hopeless = tacit.Impression(np.arange(2), np.zeros(0), np.array([[-700.0], [-300.0]]), np.ones((2, 1)))
    assert most_clicked(hopeless, one, one) == 1


# E-C Bandit ----------------------------------------------------------------------------------


def paper_update(mean, cov, x, reward, iterations):
    """Equations (3) to (6) with matrices, and q with the sign that its derivation gives."""
    post_mean, post_cov = [m.copy() for m in mean], [c.copy() for c in cov]

    def g(at, xi):
        return at / 2 - xi / 2 + log_sigmoid(xi) - jaakkola(xi) * (at**2 - xi**2)

    for _ in range(iterations):
        at = [x[i] @ post_mean[i] for i in (0, 1)]
        xi = [math.sqrt(x[i] @ post_cov[i] @ x[i] + at[i] ** 2) for i in (0, 1)]
        # E[g] where E[(xᵀθ)²] = ξ²: the quadratic term vanishes.
        means = [[sign * at[i] / 2 - xi[i] / 2 + log_sigmoid(xi[i]) for sign in (-1, 1)] for i in (0, 1)]
        q = expit(means[0][0] + means[1][1] - means[1][0])
        weights = [q ** (1 - reward), 1.0]
        linear = [0.5 * (-q) ** (1 - reward), 0.5 * (2 * q - 1) ** (1 - reward)]
        for i in (0, 1):
            precision = np.linalg.inv(cov[i]) + 2 * weights[i] * jaakkola(xi[i]) * np.outer(x[i], x[i])
            post_cov[i] = np.linalg.inv(precision)
            post_mean[i] = post_cov[i] @ (np.linalg.inv(cov[i]) @ mean[i] + linear[i] * x[i])
    assert g(1.0, 1.0) == pytest.approx(log_sigmoid(1.0))
    return post_mean, post_cov


def test_ec_bandit_is_the_papers_update():
    policy = tacit.policies.ECBandit(2, 3)
    state, rng = policy.init(1), np.random.default_rng(4)
    mean, cov = [np.zeros(2), np.zeros(3)], [np.eye(2), np.eye(3)]
    for reward in (0, 1, 0, 0, 1, 0):
        impression = impression_of(rng, 1)
        x = impression.relevance[0], impression.examination[0]
        tacit.policies.ECBandit.learn(policy.params, state, 0, Outcome(impression, 0, float(reward), 1.0))
        mean, cov = paper_update(mean, cov, x, reward, 5)
    told = policy.posterior(state, 0)
    for block, m, c in zip((told.relevance, told.examination), mean, cov, strict=True):
        np.testing.assert_allclose(block.mean, m, rtol=1e-10)
        np.testing.assert_allclose(block.covariance, c, rtol=1e-10)


@given(
    s=st.tuples(st.floats(0.0, 1e6), st.floats(0.0, 1e6)),
    at=st.tuples(st.floats(-700.0, 700.0), st.floats(-700.0, 700.0)),
    reward=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_bounds_never_overflow(s, at, reward):
    c_c, b_c, c_e, b_e = variational(s[0], at[0], s[1], at[1], reward, 5)
    assert 0.0 <= c_c <= 0.25 + 1e-12
    assert 0.0 <= c_e <= 0.25 + 1e-12
    assert max(abs(b_c), abs(b_e)) <= 0.5 + 1e-12


# Against integration -------------------------------------------------------------------------


def exact_posterior(rows, rewards, split, points):
    """Return mean and covariance of θ under N(0, I) by quadrature on a grid."""
    line = np.linspace(-6.0, 6.0, points)
    grid = np.stack(np.meshgrid(*[line] * rows.shape[1], indexing="ij"), -1).reshape(-1, rows.shape[1])
    logs = -0.5 * (grid**2).sum(axis=1)
    for row, reward in zip(rows, rewards, strict=True):
        chance = expit(grid[:, :split] @ row[:split]) * expit(grid[:, split:] @ row[split:])
        logs += np.log(chance if reward else 1.0 - chance)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    off = grid - mean
    return mean, (weights[:, None] * off).T @ off


def errors_against_quadrature(policy, dims, rounds, points):
    """Return the means over runs: error of the mean in exact deviations, ratio of deviations."""
    split, off, ratios = dims[0], [], []
    for run in range(12 if dims == (1, 1) else 4):
        rng = np.random.default_rng(run)
        theta = rng.standard_normal(sum(dims))
        state, rows, rewards = policy.init(1), [], []
        for _ in range(rounds):
            impression = impression_of(rng, 1, dims)
            row = np.concatenate([impression.relevance[0], impression.examination[0]])
            chance = expit(row[:split] @ theta[:split]) * expit(row[split:] @ theta[split:])
            reward = float(rng.random() < chance)
            type(policy).learn(policy.params, state, 0, Outcome(impression, 0, reward, 1.0))
            rows.append(row)
            rewards.append(reward)
        mean, cov = exact_posterior(np.array(rows), rewards, split, points)
        told = policy.posterior(state, 0)
        ours = np.concatenate([told.relevance.mean, told.examination.mean])
        spread = np.concatenate([np.diag(told.relevance.covariance), np.diag(told.examination.covariance)])
        off.append(np.abs(ours - mean) / np.sqrt(np.diag(cov)))
        ratios.append(np.sqrt(spread / np.diag(cov)))
    return float(np.mean(off)), float(np.mean(ratios))


QUADRATURE = [
    # policy, dims, rounds, grid; most error of means (in exact s.d.), range of s.d. ratios.
    (tacit.policies.LaplaceEC(1, 1), (1, 1), 60, 121, 0.35, (0.85, 1.1)),
    (tacit.policies.LaplaceECMixture(1, 1), (1, 1), 60, 121, 0.35, (0.85, 1.1)),
    (tacit.policies.ECBandit(1, 1), (1, 1), 60, 121, 0.9, (0.45, 0.85)),
    (tacit.policies.LaplaceEC(2, 2), (2, 2), 40, 19, 0.35, (0.85, 1.1)),
]


@pytest.mark.parametrize(
    ("policy", "dims", "rounds", "points", "most", "ratios"),
    QUADRATURE,
    ids=lambda value: getattr(value, "label", None),
)
def test_posteriors_against_quadrature(policy, dims, rounds, points, most, ratios):
    off, ratio = errors_against_quadrature(policy, dims, rounds, points)
    assert off < most
    assert ratios[0] < ratio < ratios[1]


def test_polya_gamma_draws_from_the_exact_posterior():
    """One logistic parameter and a constant: the draws' mean within 5 s.e. of quadrature's."""
    policy = tacit.policies.PolyaGammaTS(1, 1, sweeps=6, memory=20, intercept=False)
    cls, state, rng = tacit.policies.PolyaGammaTS, policy.init(1), np.random.default_rng(2)
    rows, rewards = [], []
    for _ in range(12):
        impression = impression_of(rng, 1, (1, 1))
        reward = float(rng.random() < 0.3)
        cls.learn(policy.params, state, 0, Outcome(impression, 0, reward, 1.0))
        rows.append([impression.relevance[0, 0], impression.examination[0, 0]])
        rewards.append(reward)
    line = np.linspace(-6.0, 6.0, 201)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    logits = grid @ np.array(rows).T
    logs = -0.5 * (grid**2).sum(1) + (np.array(rewards) * logits - np.logaddexp(0, logits)).sum(1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    # Which of two opposite arms is played says the sign of a draw's inner product.
    probe = tacit.Impression(np.arange(2), np.zeros(0), np.array([[0.3], [-0.3]]), np.array([[1.0], [-1.0]]))
    exact = float(weights[grid @ np.array([0.3, 1.0]) > 0.0].sum())
    draws = 300
    played = sum(cls.choose(policy.params, state, 0, probe, rng) == 0 for _ in range(draws))
    assert abs(played / draws - exact) < 5.0 * math.sqrt(exact * (1.0 - exact) / draws) + 0.005


def test_intercepts_stand_last_in_their_block():
    policy = tacit.policies.LaplaceEC(1, 1, relevance_intercept=True, examination_intercept=True)
    state, rng = policy.init(1), np.random.default_rng(3)
    nothing = tacit.Impression(np.arange(1), np.zeros(0), np.zeros((1, 1)), np.zeros((1, 1)))
    for _ in range(300):
        tacit.policies.LaplaceEC.learn(
            policy.params, state, 0, Outcome(nothing, 0, float(rng.random() < 0.9), 1.0)
        )
    told = policy.posterior(state, 0)
    assert told.relevance.mean[0] == told.examination.mean[0] == 0.0
    assert min(told.relevance.mean[1], told.examination.mean[1]) > 1.0
    assert tacit.policies.LaplaceEC.believed(policy.params, state, 0, nothing, 0) == pytest.approx(
        0.9, abs=0.06
    )
    assert told.joint.covariance[1, 3] < 0.0


# In the learner and in simulations -----------------------------------------------------------


@pytest.mark.compiled
def test_learning_pays_and_modelling_examination_more():
    """Margins: the differences are above 10 standard errors in runs of this length."""
    policies = [
        tacit.policies.LaplaceEC(5, 5),
        tacit.policies.ECBandit(5, 5),
        tacit.policies.LogisticTS(5, 5),
        tacit.UniformRandom(10),
    ]
    result = tacit.simulate(policies, tacit.ExaminationArms(scale=8), 10_000, runs=6, seed=3)
    laplace, bounds, logistic, random = result.regret[:, :, -1].mean(axis=1)
    assert laplace < bounds < 0.2 * random
    assert laplace < 0.7 * logistic


def test_identifiability_is_warned_of_once():
    features = np.random.default_rng(1).standard_normal((30, 5))
    learner = tacit.Learner(tacit.policies.LaplaceEC(5, 5), seed=1)
    with pytest.warns(tacit.policies.IdentifiabilityWarning, match="share 5 directions"):
        learner.choose("a", relevance=features, examination=features)
    with warnings.catch_warnings(action="error"):
        learner.choose("a", relevance=features, examination=features)


def test_features_of_the_user_alone_are_warned_of_once():
    """They are the same for all arms of a decision, and so change the place of none."""
    rng, learner = np.random.default_rng(1), tacit.Learner(tacit.policies.LogisticTS(3), seed=1)
    films, users = rng.standard_normal((4, 1)), rng.standard_normal((30, 2))
    offers = [np.hstack([films, np.tile(user, (4, 1))]) for user in users]
    with pytest.warns(tacit.errors.AssumptionWarning, match=r"columns \[1, 2\] are the same.*dim=2"):
        learner.choose_many(["home"] * 30, relevance=offers)
    with warnings.catch_warnings(action="error"):
        learner.choose_many(["home"] * 30, relevance=offers)
        # One user throughout, or a constant, says nothing of the kind; nor do arms on their own.
        for same in ([offers[0]] * 30, [offer[:1] for offer in offers]):
            tacit.Learner(tacit.policies.LogisticTS(3), seed=1).choose_many(["home"] * 30, relevance=same)


def test_what_features_leave_undetermined():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((2, 40, 3))
    slots = np.eye(3)[rng.integers(3, size=40)]
    assert tacit.policies.identifiability(x, slots) == []
    assert tacit.policies.identifiability(x, y, relevance_intercept=True) == []
    (missing,) = tacit.policies.identifiability(x, y)
    assert "neither block has a constant" in missing
    (double,) = tacit.policies.identifiability(x, slots, relevance_intercept=True)
    assert "sum" in double
    (shared,) = tacit.policies.identifiability(x, np.hstack([x[:, :1] - x[:, 1:2], slots]))
    assert "share 1 direction" in shared


# The environment -----------------------------------------------------------------------------


def test_arms_are_clicked_as_their_features_say():
    """Every offer of a run, round by round; clicks at 5 standard errors."""
    environment = tacit.ExaminationArms(2, 3, pool=8, offered=3, scale=3.0, redraws=(400,), announced=True)
    rng = np.random.default_rng(5)
    world, cls, params = environment.world(rng, 1000), tacit.ExaminationArms, environment.params
    clicks, told, thetas = 0.0, [], set()
    for round in range(800):
        assert cls.arrive(params, world, round, rng) == 0
        segment = int(round >= 399)
        assert world.impression.context[0] == float(round == 399)
        theta_c, theta_e = world.theta_c[segment], world.theta_e[segment]
        thetas.add(tuple(theta_c))
        chances = expit(world.impression.relevance @ theta_c) * expit(world.impression.examination @ theta_e)
        assert len({tuple(row) for row in world.impression.relevance}) == 3
        for arm in range(3):
            assert cls.expected(params, world, 0, arm) == pytest.approx(chances[arm])
        assert cls.optimum(params, world, 0) == pytest.approx(chances.max())
        clicks += cls.respond(params, world, 0, 1)
        told.append(chances[1])
    assert len(thetas) == 2
    told = np.array(told)
    assert abs(clicks - told.sum()) < 5.0 * math.sqrt((told * (1.0 - told)).sum())


@pytest.mark.parametrize("ball", ["blocks", "joint"])
def test_features_are_uniform_in_their_ball(ball):
    world = tacit.ExaminationArms(2, 2, pool=4000, ball=ball).world(np.random.default_rng(1), 10)
    radii = np.linalg.norm(world.relevance, axis=1)
    both = np.hypot(radii, np.linalg.norm(world.examination, axis=1))
    # The share of a d-ball within radius 0.9 is 0.9^d; 5 standard errors of it are 0.035.
    share, dim = (radii, 2) if ball == "blocks" else (both, 4)
    assert share.max() <= 1.0
    assert np.mean(share < 0.9) == pytest.approx(0.9**dim, abs=0.04)


def test_positions_and_devices_change_what_is_seen():
    environment = tacit.ExaminationArms(2, pool=6, offered=6, positions=3, devices=2, identified=True)
    assert environment.feature_dims == (2, 6)
    rng = np.random.default_rng(2)
    world, params = environment.world(rng, 100), environment.params
    seen = set()
    for round in range(60):
        tacit.ExaminationArms.arrive(params, world, round, rng)
        impression = world.impression
        ones = impression.examination.argmax(axis=1)
        assert impression.examination.sum(axis=1).tolist() == [1.0] * 6
        assert (ones % 3 == impression.arms % 3).all()
        assert len(set((ones // 3).tolist())) == 1
        seen.add(int(ones[0] // 3))
        items = impression.relevance[np.argsort(impression.arms)].reshape(2, 3, 2)
        assert (items == items[:, :1]).all()
    assert seen == {0, 1}


def test_crossed_arms_are_as_told():
    environment = tacit.ExaminationArms.make_crossed()
    world = environment.world(np.random.default_rng(0), 10)
    tacit.ExaminationArms.arrive(environment.params, world, 0, np.random.default_rng(0))
    assert world.chances.round(4).tolist() == [0.1171, 0.5089, 0.5089, 0.1171]
    assert (world.relevance[:, 0] + 2.0 * world.examination[:, 0]).tolist() == [2.0] * 4


# Drift ---------------------------------------------------------------------------------------


def test_the_cusum_restarts_by_hand():
    policy = tacit.policies.CUSUMRestart(tacit.policies.LaplaceEC(1, 1), drift=0.5, threshold=2.0, armed=1)
    state = policy.init(1)
    nothing = tacit.Impression(np.arange(1), np.zeros(0), np.zeros((1, 1)), np.zeros((1, 1)))

    # All features 0: the click has probability 1/4 for ever, a click's residual is sqrt(3).
    def learn(reward):
        tacit.policies.CUSUMRestart.learn(policy.params, state, 0, Outcome(nothing, 0, reward, 1.0))
        return state.walks[0].tolist(), int(state.restarts[0])

    assert learn(1.0) == ([0.0, 0.0], 0)
    (rise, fall), restarts = learn(1.0)
    assert (rise, fall, restarts) == (pytest.approx(math.sqrt(3.0) - 0.5), 0.0, 0)
    (rise, fall), _ = learn(0.0)
    assert rise == pytest.approx(math.sqrt(3.0) - 1.0 - 1.0 / math.sqrt(3.0))
    assert fall == pytest.approx(1.0 / math.sqrt(3.0) - 0.5)
    learn(1.0)
    assert learn(1.0) == ([0.0, 0.0], 1)
    assert tacit.policies.CUSUMRestart.epoch(policy.params, state, 0) == 1


@pytest.mark.long
def test_restarts_follow_parameters_that_change():
    environment = tacit.ExaminationArms(scale=4, redraws=(5001,), announced=True)
    base = tacit.policies.LaplaceEC(5, 5)
    policies = [tacit.policies.OracleRestart(base), tacit.policies.CUSUMRestart(base), base]
    result = tacit.simulate(policies, environment, 10_000, runs=8, seed=2)
    oracle, cusum, alone = result.regret[:, :, -1].mean(axis=1)
    assert oracle < cusum < 0.5 * alone
    assert cusum < 2.0 * oracle


# The position-based model --------------------------------------------------------------------


def test_pbm_bounds_by_hand():
    policy = tacit.policies.baselines.PlacedPBMUCB(4, positions=2, position_effects=(1.0, 0.5))
    cls, params, state = tacit.policies.baselines.PlacedPBMUCB, policy.params, policy.init(1)
    rng = np.random.default_rng(0)
    impression = tacit.Impression(np.arange(4), np.zeros(0))
    # Item 0: at position 0 shown 3 times, 2 clicks; at position 1 shown twice, no click. Item 1:
    # at position 0 four times, one click. N = 5, Ñ = 4, S = 2; N = Ñ = 4, S = 1; t = 9.
    for arm, reward in (
        (0, 1.0),
        (0, 1.0),
        (0, 0.0),
        (1, 0.0),
        (1, 0.0),
        (2, 1.0),
        (2, 0.0),
        (2, 0.0),
        (2, 0.0),
    ):
        cls.learn(params, state, 0, Outcome(impression, arm, reward, 1.0))
    first = 2 / 4 + math.sqrt(5 / 4) * math.sqrt(math.log(9) / 8)
    second = 1 / 4 + math.sqrt(math.log(9) / 8)
    from tacit.policies.baselines.position_based import upper_bound

    assert upper_bound(state, 0, 0, 1.0) == pytest.approx(first)
    assert upper_bound(state, 0, 1, 1.0) == pytest.approx(second)
    assert cls.choose(params, state, 0, impression, rng) == 0


@pytest.mark.parametrize("policy", [tacit.policies.baselines.PBMUCB, tacit.policies.baselines.PBMThompson])
@pytest.mark.parametrize("effects", [(0.3, 1.0, 0.6), None])
def test_slates_of_the_position_based_model(policy, effects):
    """In plain Python: the best arms are found, and the best of them stands where it is seen."""
    made = policy(5, positions=3, position_effects=effects)
    state, rng = made.init(1), np.random.default_rng(4)
    impression = tacit.Impression(np.arange(5), np.zeros(0))
    attraction, seen = np.array([0.05, 0.9, 0.1, 0.5, 0.3]), np.array([0.3, 1.0, 0.6])
    action, late = np.zeros(3, np.int64), np.zeros((3, 5))
    for round in range(1500 if policy is tacit.policies.baselines.PBMUCB else 500):
        policy.decide(made.params, state, 0, impression, rng, action)
        assert len(set(action.tolist())) == 3
        learn(made, state, 0, impression, action, (rng.random(3) < attraction[action] * seen).astype(float))
        if round >= 300:
            late[range(3), action] += 1.0
    assert late[1].argmax() == 1
    if effects is None:
        assert state.counts.effects[0].round(1).tolist() == pytest.approx([0.3, 1.0, 0.6], abs=0.15)
    policy.decide(made.params, state, 0, tacit.Impression(np.array([3]), np.zeros(0)), rng, action)
    assert sorted(action.tolist()) == [-1, -1, 3]


def test_grids_hold_the_exact_posterior():
    policy = tacit.policies.baselines.PBMThompson(1, positions=2, position_effects=(1.0, 0.4))
    state = policy.init(1)
    impression = tacit.Impression(np.arange(1), np.zeros(0))
    for action, clicks in (([0, -1], [1.0, 0.0]), ([-1, 0], [0.0, 0.0]), ([0, -1], [0.0, 0.0])):
        learn(policy, state, 0, impression, action, clicks)
    x = np.linspace(0.0, 1.0, 100_001)
    exact = x * (1.0 - 0.4 * x) * (1.0 - x)
    weights = np.diff(state.cumulative[0, 0], prepend=0.0)
    centres = (np.arange(256) + 0.5) / 256
    assert weights @ centres / weights.sum() == pytest.approx((x * exact).sum() / exact.sum(), abs=1e-4)


# Hidden features -----------------------------------------------------------------------------


def test_hidden_features_are_least_squares_given_each_other():
    policy = tacit.policies.baselines.HLinUCB(3, 1, 1, hidden_dim=2)
    cls, params, state = tacit.policies.baselines.HLinUCB, policy.params, policy.init(1)
    rng = np.random.default_rng(6)
    start = state.hidden[0].copy()
    gram, linear = np.eye(5), np.zeros(5)
    own_gram, own_linear = [np.eye(2) for _ in range(3)], [start[a].copy() for a in range(3)]
    hidden = start.copy()
    for _ in range(15):
        impression = impression_of(rng, 3, (1, 1))
        arm, reward = int(rng.integers(3)), float(rng.random() < 0.5)
        given = np.array([impression.relevance[arm, 0], impression.examination[arm, 0], 1.0])
        row = np.concatenate([given, hidden[arm]])
        gram += np.outer(row, row)
        linear += reward * row
        theta = np.linalg.solve(gram, linear)
        own_gram[arm] += np.outer(theta[3:], theta[3:])
        own_linear[arm] += theta[3:] * (reward - given @ theta[:3])
        hidden[arm] = np.linalg.solve(own_gram[arm], own_linear[arm])
        cls.learn(params, state, 0, Outcome(impression, arm, reward, 1.0))
    np.testing.assert_allclose(state.shared.mean[0], theta, rtol=1e-9)
    np.testing.assert_allclose(state.hidden[0], hidden, rtol=1e-9)


# Boundaries ----------------------------------------------------------------------------------


# Under an exploration floor -------------------------------------------------------------------

OFFER = {
    "relevance": [[0.3, -1.0], [1.0, 0.2], [-0.4, 0.9]],
    "examination": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.2, 0.2, -1.0]],
}
KNOWN = [
    (tacit.policies.LinUCB(2, 3), OFFER),
    pytest.param(tacit.policies.baselines.HLinUCB(3, 2, 3), OFFER, marks=pytest.mark.long),
    (tacit.policies.LinearEpsilonGreedy(2, epsilon=0.3), {"relevance": OFFER["relevance"]}),
    pytest.param(tacit.policies.CUSUMRestart(tacit.policies.LinUCB(2, 3)), OFFER, marks=pytest.mark.long),
    (tacit.policies.LaplaceEC(2, 3, draw="coupled"), OFFER),
    pytest.param(tacit.ClickMixture(2, 3), OFFER, marks=pytest.mark.long),
    pytest.param(tacit.ClickMixture(2), {"relevance": OFFER["relevance"]}, marks=pytest.mark.long),
    pytest.param(tacit.policies.HybridClickMixture(2, 3), OFFER, marks=pytest.mark.long),
    pytest.param(tacit.policies.LinTS(2, 3, draw="coupled"), OFFER, marks=pytest.mark.long),
    pytest.param(tacit.policies.LogisticTS(2, 3, draw="coupled"), OFFER, marks=pytest.mark.long),
    (tacit.policies.baselines.PlacedPBMUCB(3, positions=1, position_effects=(1.0,)), {}),
]


def floored(policy, offer, epsilon=0.2, **options):
    """Return a learner under a floor that has learned from some clicks."""
    learner = tacit.Learner(tacit.ExplorationFloor(policy, epsilon, **options), seed=3)
    rng = np.random.default_rng(3)
    for _ in range(20):
        learner.learn(learner.choose("q", **offer), float(rng.random() < 0.3))
    return learner


@pytest.mark.parametrize(("policy", "offer"), KNOWN, ids=lambda given: getattr(given, "label", ""))
def test_a_floor_tells_exact_propensities_over_features(policy, offer):
    """Error probability 1e-6 per policy and arm: each count is binomial, checked at 5.1 sigma."""
    for learner in (floored(policy, offer), tacit.Learner(tacit.ExplorationFloor(policy, 0.2), 3)):
        assert assert_propensities_are_frequencies(learner, 3000, "q", **offer).min() >= 0.2 / 3 - 1e-12


def test_a_deterministic_choice_under_a_floor_is_told_by_hand():
    learner = tacit.Learner(tacit.ExplorationFloor(tacit.policies.LinUCB(1, 1), epsilon=0.3), seed=1)
    offer = {"relevance": [[1.0], [2.0], [0.5]], "examination": [[0.0], [1.0], [0.0]]}
    # Nothing is known yet, so the bound is that of the longest features: of arm 1.
    assert learner.probabilities("q", **offer).tolist() == pytest.approx([0.1, 0.8, 0.1])
    assert tacit.Learner(tacit.policies.LinUCB(1, 1), seed=1).choose("q", **offer).propensity is None


def test_a_floor_without_candidates_says_so_and_explores():
    with pytest.warns(tacit.errors.AssumptionWarning, match="LaplaceEC does not know its propens"):
        learner = floored(tacit.policies.LaplaceEC(2, 3), OFFER, epsilon=1.0, draws=0)
    decisions = learner.choose_many(["q"] * 3000, **{block: [rows] * 3000 for block, rows in OFFER.items()})
    assert np.isnan(decisions.propensities).all()
    assert learner.choose("q", **OFFER).propensity is None
    assert learner.probabilities("q", **OFFER) is None
    observed = np.bincount(decisions.slots, minlength=3) / 3000
    np.testing.assert_allclose(observed, 1 / 3, atol=5.1 * math.sqrt(2 / 9 / 3000))
    assert learner.posterior("q").relevance.mean.shape == (2,)


def test_a_floor_hands_on_what_its_policy_warns_of():
    twice = [[1.0, 1.0]] * 3
    policy = tacit.policies.LaplaceEC(2, 2, relevance_intercept=True, examination_intercept=True)
    floor = tacit.ExplorationFloor(policy)
    with pytest.warns(UserWarning, match="both blocks have a constant"):
        tacit.Learner(floor, seed=1).choose_many(["q"] * 9, relevance=[twice] * 9, examination=[twice] * 9)
