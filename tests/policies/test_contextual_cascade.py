"""Lists of arms known by features: against enumeration, integrals, differences, frequencies."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import tacit
from tacit.checking.kernels import Trial
from tacit.environments import environment_from_spec
from tacit.errors import InvalidValue
from tacit.policies import policy_from_spec
from tacit.policies.base import Outcome
from tacit.policies.lists.cascade_ec import click_gradient, fill_list
from tests.policies import test_features
from tests.policies.states import assert_same_states, learn

pytestmark = pytest.mark.interpreted

impression_of = partial(test_features.impression_of, offered=5, context=[0.0])


def test_an_oracle_restarts_a_policy_of_lists():
    inner = tacit.policies.CascadeEC(2, 3)
    policy, trial = tacit.policies.OracleRestart(inner), Trial(inner, 1, 20, 0, 0.0)
    learner = trial.make_learner()
    trial.play(learner, "query", range(12))
    state = policy.init(1)._replace(policy=learner.lanes.view_all())
    policy.observe(policy.params, state, 0, impression_of(np.random.default_rng(1), context=[1.0]))
    assert_same_states(inner.init(1), state.policy)
    assert policy.epoch(policy.params, state, 0) == 1
    assert (policy.shows, policy.action_width, policy.feedback_width) == ("slate", 3, 3)


def test_names_and_short_offers():
    learner = tacit.Learner(tacit.policies.CascadeEC(1, 1), seed=1)
    features = {"relevance": [[1.0], [2.0]], "examination": [[0.0], [1.0]]}
    decision = learner.choose("query", arms=["film", "holiday"], **features)
    assert set(decision.slate) == {"film", "holiday"}
    assert decision.slots[2] == -1
    assert learner.learn(decision, [0.0, 1.0, 0.0])
    assert learner.posterior("query").examination.mean.shape == (4,)


# What a list teaches --------------------------------------------------------------------------


def chain(theta, impression, action, clicks, one_click, split=1):
    """Give the probability of clicks by enumeration of how far the reader comes, for each θ."""
    p = [expit(theta[:, :split] @ impression.relevance[a]) for a in action]
    dims = impression.examination.shape[1]
    constants = theta[:, split + dims :]
    e = [
        expit(
            theta[:, split : split + dims] @ impression.examination[a]
            + (constants[:, k] if constants.shape[1] else 0.0)
        )
        for k, a in enumerate(action)
    ]
    total = np.zeros(len(theta))
    stop = clicks.index(1) + 1 if one_click and 1 in clicks else len(action)
    for seen in range(len(action) + 1):
        if any(clicks[seen:]) or seen > stop:
            continue
        chance = np.ones(len(theta))
        for k in range(seen):
            chance = chance * e[k] * (p[k] if clicks[k] else 1.0 - p[k])
        # Who was stopped by a click did not decide whether to look further.
        if seen < len(action) and not (one_click and 1 in clicks[:seen]):
            chance = chance * (1.0 - e[seen])
        total += chance
    return total


@pytest.mark.parametrize("one_click", [True, False])
def test_clicks_of_the_chain_sum_to_one(one_click):
    rng = np.random.default_rng(2)
    impression, theta = impression_of(rng, offered=3, dims=(1, 2)), rng.standard_normal((4, 6))
    every = itertools.product([0, 1], repeat=3)
    total = sum(
        chain(theta, impression, [2, 0, 1], clicks, one_click)
        for clicks in every
        if not one_click or sum(clicks) <= 1
    )
    np.testing.assert_allclose(total, 1.0)


@examples(60)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.3, 1.0, 5.0]), read=st.integers(0, 2))
def test_what_may_have_been_seen_is_taken_in_as_its_likelihood(seed, scale, read):
    """The factors multiply to the chain's likelihood; each gradient is that of differences."""
    rng = np.random.default_rng(seed)
    impression, action = impression_of(rng), np.array([3, 0, 4])
    mean = scale * rng.standard_normal(2 + 3 + 3)

    def logit(k, at, h=None):
        h = np.zeros(8) if h is None else h
        return click_gradient(impression, action, read, k, at, 2, h, np.zeros(8))

    none = np.prod([expit(-logit(k, mean)) for k in range(read, 3)])
    shifted = np.concatenate([mean[:5], mean[5 + read :]])[None]
    tail = action[read:].tolist()
    exact = chain(shifted, impression, tail, [0] * len(tail), False, split=2)
    assert none == pytest.approx(exact[0], rel=1e-10)
    for k in range(read, 3):
        h = np.zeros(8)
        logit(k, mean, h)
        for i in range(8):
            step = np.zeros(8)
            step[i] = 1e-6
            slope = (logit(k, mean + step) - logit(k, mean - step)) / 2e-6
            assert h[i] == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("size", [40.0, 700.0, 5000.0])
def test_extreme_logits_stay_finite(size):
    one = np.ones((3, 1))
    for a, b in itertools.product([-size, size], repeat=2):
        impression = tacit.Impression(np.arange(3), np.zeros(0), a * one, b * one)
        for clicks in itertools.product([0.0, 1.0], repeat=3):
            policy = tacit.policies.CascadeEC(1, 1, one_click=False)
            state = policy.init(1)
            state.posterior.mean[:, :2] = 1.0
            action, feedback = np.arange(3), np.array(clicks)
            learn(policy, state, 0, impression, action, feedback)
            assert np.isfinite(state.posterior.mean).all()
            assert np.isfinite(state.posterior.root).all()
            policy.decide(policy.params, state, 0, impression, np.random.default_rng(1), action)
            assert sorted(action.tolist()) == [0, 1, 2]


def test_one_position_is_laplace_ec():
    list_of_one = tacit.policies.CascadeEC(2, 3, positions=1, position_constants=False)
    plain = tacit.policies.LaplaceEC(2, 3)
    ours, theirs = list_of_one.init(1), plain.init(1)
    impression = impression_of(np.random.default_rng(4))
    for arm, reward in ((2, 0.0), (0, 1.0), (2, 0.5), (4, 0.0)):
        action, feedback = np.array([arm]), np.array([reward])
        learn(list_of_one, ours, 0, impression, action, feedback)
        plain.learn(plain.params, theirs, 0, Outcome(impression, arm, reward, 1.0))
    np.testing.assert_allclose(ours.posterior.mean, theirs.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.posterior.root, theirs.root, rtol=1e-12)
    believed = list_of_one.believed(list_of_one.params, ours, 0, impression, 3)
    assert believed == pytest.approx(plain.believed(plain.params, theirs, 0, impression, 3))


def test_only_what_was_read_teaches():
    """Below the second position's click nothing was read, or it may have been seen or not."""
    impression = impression_of(np.random.default_rng(5))
    for one_click in (True, False):
        policy = tacit.policies.CascadeEC(2, 3, one_click=one_click)
        state, action = policy.init(1), np.array([1, 4, 2])
        learn(policy, state, 0, impression, action, np.array([0.0, 1.0, 0.0]))
        constants = state.posterior.mean[0, 5:]
        assert constants[1] > 0.0
        assert constants[2] == 0.0 if one_click else constants[2] < 0.0


@pytest.mark.parametrize("one_click", [True, False])
def test_posteriors_against_quadrature(one_click):
    """Means within 0.35 exact deviations, deviations within 15 %, on average over 20 logs.

    The same bounds as LaplaceEC is held to; 40 lists of two of three arms each.
    """
    policy = tacit.policies.CascadeEC(1, 1, positions=2, one_click=one_click, position_constants=False)
    line = np.linspace(-6.0, 6.0, 121)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    off, ratios = [], []
    for run in range(20):
        rng = np.random.default_rng(run)
        theta, state = rng.standard_normal((1, 2)), policy.init(1)
        logs = -0.5 * (grid**2).sum(axis=1)
        patterns = [c for c in itertools.product([0, 1], repeat=2) if not one_click or sum(c) <= 1]
        for _ in range(40):
            impression, action = impression_of(rng, offered=3, dims=(1, 1)), rng.permutation(3)[:2]
            chances = [chain(theta, impression, action, c, one_click)[0] for c in patterns]
            clicks = patterns[rng.choice(len(patterns), p=chances)]
            learn(policy, state, 0, impression, action, np.array(clicks, float))
            logs += np.log(chain(grid, impression, action, clicks, one_click))
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = weights @ grid
        deviation = np.sqrt(weights @ (grid - mean) ** 2)
        told = policy.posterior(state, 0).joint
        off.append(np.abs(told.mean - mean) / deviation)
        ratios.append(np.sqrt(np.diag(told.covariance)) / deviation)
    assert np.mean(off) < 0.35
    assert 0.85 < np.mean(ratios) < 1.15


# The best list --------------------------------------------------------------------------------


def worth(slate, p, e, one_click):
    """Give a list's expected clicks from the top: with e[arm, position]."""
    clicks, reached = 0.0, 1.0
    for k, arm in enumerate(slate):
        reached *= e[arm, k]
        clicks += reached * p[arm]
        if one_click:
            reached *= 1.0 - p[arm]
    return clicks


def draw(seed, kind, scale):
    """Return an impression and parameters; what examination depends on is ``kind``."""
    rng = np.random.default_rng(seed)
    impression = impression_of(rng, offered=7, dims=(2, 2))
    theta = scale * rng.standard_normal(2 + 2 + 3)
    if kind == "arms":
        theta[4:] = 0.0
    elif kind == "positions":
        theta[2:4] = 0.0
    p = expit(impression.relevance @ theta[:2])
    return impression, theta, p, expit((impression.examination @ theta[2:4])[:, None] + theta[4:])


def shortfall(seed, kind, one_click, scale):
    """Return what our list falls short of the best of all, as a share of that."""
    impression, theta, p, e = draw(seed, kind, scale)
    action = np.zeros(3, np.int64)
    fill_list(impression, theta, 2, int(one_click), np.zeros((5, 4)), action)
    best = max(worth(s, p, e, one_click) for s in itertools.permutations(range(7), 3))
    return 1.0 - worth(action, p, e, one_click) / best


@examples(40)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["arms", "positions"]),
    one_click=st.booleans(),
    scale=st.sampled_from([0.5, 2.0, 8.0]),
)
def test_the_order_of_the_list_is_the_best_one(seed, kind, one_click, scale):
    """Of the arms that are shown, no other order has more clicks."""
    impression, theta, p, e = draw(seed, kind, scale)
    action = np.zeros(3, np.int64)
    fill_list(impression, theta, 2, int(one_click), np.zeros((5, 4)), action)
    best = max(worth(s, p, e, one_click) for s in itertools.permutations(action))
    assert worth(action, p, e, one_click) >= best * (1.0 - 1e-9)


@pytest.mark.parametrize("kind", ["arms", "positions", "both"])
def test_the_list_is_all_but_the_best(kind):
    """The best list in each of 100 draws; where both matter, a search that loses 1.8 % of it."""
    lost = [shortfall(seed, kind, seed % 2 == 0, 2.0) for seed in range(100)]
    assert min(lost) > -1e-9
    assert np.mean(lost) < (0.03 if kind == "both" else 1e-9)


# The environment ------------------------------------------------------------------------------


@pytest.mark.parametrize("one_click", [True, False])
def test_the_best_list_and_the_clicks_are_as_told(one_click):
    """Clicks of 4000 readers at 5 sigma; the best list by enumeration."""
    environment = tacit.environments.ContextualCascade(
        scale=3, pool=6, offered=6, position_constants=(1.0, 0.0, -1.0), one_click=one_click
    )
    rng = np.random.default_rng(6)
    world, params = environment.world(rng, 1), environment.params
    counted, squared, told = 0.0, 0.0, 0.0
    action, feedback = np.array([4, 1, 5]), np.zeros(3)
    for round in range(4000):
        environment.arrive(params, world, round, rng)
        environment.react(params, world, 0, action, feedback)
        assert feedback.sum() <= (1.0 if one_click else 3.0)
        counted += feedback.sum()
        squared += feedback.sum() ** 2
        told += world.best[0] - environment.regret(params, world, 0, action)
    p = expit(world.impression.relevance @ world.theta_c)
    e = expit((world.impression.examination @ world.theta_e)[:, None] + world.constants)
    assert told / 4000 == pytest.approx(worth(action, p, e, one_click))
    best = max(worth(s, p, e, one_click) for s in itertools.permutations(range(6), 3))
    assert world.best[0] == pytest.approx(best)
    deviation = math.sqrt((squared / 4000 - (counted / 4000) ** 2) * 4000)
    assert abs(counted - told) < 5.0 * deviation


def test_readers_who_leave_do_not_come_back():
    environment = tacit.environments.ContextualCascade(1, 1, pool=3, offered=3, one_click=False)
    world, feedback = environment.world(np.random.default_rng(0), 1), np.zeros(3)
    params = environment.params
    world.seen[:], world.attraction[:] = 0.5, 0.5
    world.clicking[:] = [0.1, 0.9, 0.1]
    for looking, clicks in [([0.1, 0.1, 0.1], [1, 0, 1]), ([0.1, 0.9, 0.1], [1, 0, 0])]:
        world.looking[:] = looking
        environment.react(params, world, 0, np.arange(3), feedback)
        assert feedback.tolist() == clicks
    environment.react(params, world, 0, np.array([2, -1, -1]), feedback)
    assert feedback.tolist() == [1, 0, 0]


@pytest.mark.compiled
def test_late_feedback_is_learned():
    """The second half of 6000 rounds has less than half the regret of the first, in 6 runs."""
    environment = tacit.environments.ContextualCascade(scale=4, delay=(0, 9), batch=4)
    result = tacit.simulate(
        tacit.policies.CascadeEC(5, 5), environment, 6000, runs=6, seed=1, checkpoints=[3000, 6000]
    )
    first, whole = result.regret[0].mean(axis=0)
    assert whole - first < 0.5 * first


# Restarts over features -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", [tacit.policies.LaplaceEC(2, 2), tacit.policies.CascadeEC(2, 2)])
def test_policies_over_features_have_no_estimates_for_bwc(policy):
    with pytest.raises(InvalidValue, match="CUSUMRestart") as caught:
        tacit.BWC(classifier=tacit.classifiers.Rectangle(dim=1, margin=0.1), policy=policy)
    assert caught.value.field == "policy"


# Boundaries -----------------------------------------------------------------------------------


def test_they_can_be_told_as_text():
    text = "cascade-ec(relevance_dim=5, examination_dim=2, positions=4)"
    assert policy_from_spec(text) == tacit.policies.CascadeEC(5, 2, positions=4)
    environment = environment_from_spec("contextual-cascade(scale=4, positions=2)")
    assert environment == tacit.environments.ContextualCascade(scale=4, positions=2)
