"""Policies that forget or detect changes: their statistics by hand and by brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.core import dispatch
from tacit.core.arrays import leaves
from tacit.policies.base import Outcome
from tacit.policies.baselines.detector_ucb import CUSUMUCB, MUCB, explore_in_turn
from tacit.policies.baselines.forgetting_ucb import DiscountedUCB, SlidingWindowUCB
from tacit.policies.baselines.glr_kl_ucb import ABOVE, BELOW, GLRKLUCB, Hull, extend_hull, likelihood_ratio
from tacit.policies.stationary.ucb import bernoulli_kl
from tests.policies.states import RESTLESS

DETECTORS = [policy for policy in RESTLESS if isinstance(policy, CUSUMUCB | MUCB | GLRKLUCB)]
restless = pytest.mark.parametrize("policy", RESTLESS, ids=lambda policy: policy.label)
detectors = pytest.mark.parametrize("policy", DETECTORS, ids=lambda policy: policy.label)

THREE = tacit.Impression(np.arange(3), np.zeros(0))
plays_and_rewards = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=60
)


def taught(policy, history):
    """Return the state of one lane after these (arm, reward) pairs."""
    state = policy.init(1)
    for arm, reward in history:
        policy.learn(policy.params, state, 0, Outcome(THREE, arm, reward, math.nan))
    return state


def index_of(policy, state, arm):
    """Return an arm's index in the coming round."""
    return policy.index(policy.params, state, 0, arm, policy.confidence(policy.params, state, 0))


def shifting_rewards(rounds=150):
    """Return rewards of each round and arm that change their order every 25 rounds."""
    rates = np.array([[0.05, 0.5, 0.95], [0.95, 0.5, 0.05]])[np.arange(rounds) // 25 % 2]
    return (np.random.default_rng(3).random((rounds, 3)) < rates).astype(float)


# One algorithm everywhere --------------------------------------------------------------------


@restless
def test_an_arm_that_is_added_later_is_played(policy):
    learner = tacit.Learner(policy, seed=4)
    for rewards in shifting_rewards(60):
        decision = learner.choose("query")
        learner.learn(decision, rewards[decision.arm])
    added = learner.add_arm()
    played = []
    for _ in range(40):
        decision = learner.choose("query")
        played.append(decision.arm)
        learner.learn(decision, 1.0 if decision.arm == added else 0.0)
    assert played.count(added) >= 5


@restless
def test_propensity_is_the_frequency_of_the_choice(policy):
    """Error probability below 1e-6 per policy: binomial counts at 5.5 sigma, in many states."""
    state, rng = policy.init(1), np.random.default_rng(8)
    for rewards in shifting_rewards(40):
        dispatch.observe(policy.params, state, 0, THREE)
        told = [policy.propensity(policy.params, state, 0, THREE, arm) for arm in range(3)]
        assert sum(told) == pytest.approx(1.0, abs=1e-12)
        drawn = [policy.choose(policy.params, state, 0, THREE, rng) for _ in range(200)]
        for arm in range(3):
            sigma = math.sqrt(told[arm] * (1 - told[arm]) / 200)
            # Next to 0 and 1 a binomial is no Gaussian: two draws of 200 are allowed for that.
            assert abs(drawn.count(arm) / 200 - told[arm]) <= 5.5 * sigma + 0.01 * (sigma > 0)
        arm = drawn[-1]
        policy.learn(policy.params, state, 0, Outcome(THREE, arm, rewards[arm], math.nan))


@detectors
def test_what_was_decided_before_a_restart_teaches_nothing_after_it(policy):
    learner = tacit.Learner(policy, seed=2)
    stale = learner.choose("query")
    for rewards in shifting_rewards():
        decision = learner.choose("query")
        learner.learn(decision, rewards[decision.arm])
        if learner.epoch("query"):
            break
    assert learner.epoch("query") == 1
    before = [leaf.copy() for _, leaf in leaves(learner.state)]
    assert not learner.learn(stale, 1.0)
    for leaf, (name, other) in zip(before, leaves(learner.state), strict=True):
        np.testing.assert_array_equal(leaf, other, err_msg=name)


# D-UCB ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [0.5, 0.7, 0.99, 1.0])
def test_discounted_counts_are_the_direct_sums(discount):
    """900 rounds of γ = 1/2 also pass the rounds in which the weights are scaled back."""
    rng = np.random.default_rng(6)
    arms, rewards = rng.integers(0, 3, 900), rng.random(900)
    policy = DiscountedUCB(3, discount=discount)
    state = taught(policy, zip(arms, rewards, strict=True))
    age = discount ** np.arange(899, -1, -1.0)
    plays = np.array([age[arms == arm].sum() for arm in range(3)])
    sums = np.array([(age * rewards)[arms == arm].sum() for arm in range(3)])
    np.testing.assert_allclose(state.plays[0] / state.weight[0], plays, rtol=1e-9)
    np.testing.assert_allclose(state.rewards[0] / state.weight[0], sums, rtol=1e-9)
    for arm in range(3):
        radius = 2 * math.sqrt(0.6 * math.log(age.sum()) / plays[arm])
        assert index_of(policy, state, arm) == pytest.approx(sums[arm] / plays[arm] + radius)


def test_discounted_index_by_hand():
    # γ = 1/2 after arms 0, 1, 0 with rewards 1, 0, 1/2: N₀ = 1/4 + 1, N₁ = 1/2, n = 7/4.
    policy = DiscountedUCB(3, discount=0.5, xi=1.0)
    state = taught(policy, [(0, 1.0), (1, 0.0), (0, 0.5)])
    assert index_of(policy, state, 0) == pytest.approx(0.75 / 1.25 + 2 * math.sqrt(math.log(1.75) / 1.25))
    assert index_of(policy, state, 1) == pytest.approx(2 * math.sqrt(math.log(1.75) / 0.5))
    assert index_of(policy, state, 2) == math.inf


# SW-UCB --------------------------------------------------------------------------------------


@given(history=plays_and_rewards, window=st.integers(2, 20))
def test_sliding_counts_are_those_of_the_window(history, window):
    policy = SlidingWindowUCB(3, window=window, xi=0.75)
    state = taught(policy, history)
    for arm in range(3):
        kept = [reward for played, reward in history[-window:] if played == arm]
        assert state.plays[0, arm] == len(kept)
        assert state.rewards[0, arm] == sum(kept)
        expected = math.inf
        if kept:
            radius = math.sqrt(0.75 * math.log(min(len(history), window)) / len(kept))
            expected = sum(kept) / len(kept) + radius
        assert index_of(policy, state, arm) == pytest.approx(expected)


# CUSUM-UCB -----------------------------------------------------------------------------------


def test_cusum_recursion_by_hand():
    # Baseline 1/2 from rewards 1, 0; then steps of +1/4 up or −3/4, the other walk mirrored.
    policy = CUSUMUCB(3, samples=2, epsilon=0.25, threshold=1.0)
    state = taught(policy, [(1, 1.0), (1, 1.0), (1, 0.0)])
    walks = []
    for arm, reward in [(0, 1.0), (0, 0.0), (0, 1.0), (0, 1.0), (0, 0.0), *[(0, 1.0)] * 4]:
        policy.learn(policy.params, state, 0, Outcome(THREE, arm, reward, math.nan))
        walks.append((state.rise[0, 0], state.fall[0, 0], policy.epoch(policy.params, state, 0)))
    assert walks == [
        (0.0, 0.0, 0),  # a baseline in the making
        (0.0, 0.0, 0),
        (0.25, 0.0, 0),
        (0.5, 0.0, 0),
        (0.0, 0.25, 0),
        (0.25, 0.0, 0),
        (0.5, 0.0, 0),
        (0.75, 0.0, 0),
        (0.0, 0.0, 1),  # 1 ≥ h: restarted
    ]
    # Only arm 0 was restarted: n counts the 3 plays of arm 1.
    assert state.counts.plays[0].tolist() == [0.0, 3.0, 0.0]
    assert index_of(policy, state, 0) == math.inf
    assert index_of(policy, state, 1) == pytest.approx(2 / 3 + math.sqrt(math.log(3) / 3))


def test_cusum_notices_a_fall():
    policy = CUSUMUCB(3, samples=1, epsilon=0.5, threshold=1.0)
    history = [(2, 1.0), (2, 0.0), (2, 0.0)]
    assert policy.epoch(policy.params, taught(policy, history[:2]), 0) == 0
    assert policy.epoch(policy.params, taught(policy, history), 0) == 1


# M-UCB ---------------------------------------------------------------------------------------


def test_m_ucb_window_by_hand():
    # Halves (0, 0) and (1, 1) differ by 2, which is more than 1.5 but not more than 2.
    history = [(0, 1.0), (1, 1.0), (0, 0.0), (0, 0.0), (0, 1.0), (0, 1.0)]
    strict, lenient = MUCB(3, window=4, threshold=2.0), MUCB(3, window=4, threshold=1.5)
    state = taught(strict, history)
    assert (state.older[0, 0], state.newer[0, 0], state.restarts[0]) == (0.0, 2.0, 0)
    assert index_of(strict, state, 0) == pytest.approx(3 / 5 + math.sqrt(2 * math.log(7) / 5))
    state = taught(lenient, history)
    assert state.restarts[0] == 1
    assert not state.counts.plays.any()
    assert not state.counts.rounds.any()
    # The rings hold what was; none of it may count after the restart.
    state = taught(lenient, [*history, (0, 1.0), (0, 1.0), (0, 1.0), (0, 1.0)])
    assert (state.older[0, 0], state.newer[0, 0], state.restarts[0]) == (2.0, 2.0, 1)


@given(history=plays_and_rewards, half=st.integers(1, 6))
def test_m_ucb_halves_are_those_of_the_window(history, half):
    state = taught(MUCB(3, window=2 * half, threshold=100.0), history)
    for arm in range(3):
        rewards = [reward for played, reward in history if played == arm]
        assert state.newer[0, arm] == sum(rewards[-half:])
        assert state.older[0, arm] == sum(rewards[-2 * half : -half])


@pytest.mark.parametrize("policy", [MUCB(3, gamma=0.5), GLRKLUCB(3, alpha=0.5)])
def test_arms_are_explored_in_turn(policy):
    """⌊3/0.5⌋ = 6, so impressions 1 to 3 of 6 are forced, though nothing is learned between."""
    learner = tacit.Learner(policy, seed=1)
    first = learner.choose("query", arms=[2])
    for _ in range(5):
        learner.learn(first, 1.0)
    learner.choose_many(["query"] * 5)
    slots = learner.choose_many(["query"] * 12).slots
    assert slots[[0, 1, 2, 6, 7, 8]].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(slots[[3, 4, 5, 9, 10, 11]].tolist()) <= {0, 1}  # never played, so ahead of arm 2
    assert set(learner.choose_many(["query"] * 6, arms=[[1, 2]] * 6).slots[1:3].tolist()) == {1, 2}


def test_an_arm_that_is_not_on_offer_loses_its_turn():
    some = tacit.Impression(np.array([0, 2]), np.zeros(0))
    assert [explore_in_turn(0.5, shown, 3, some) for shown in range(1, 9)] == [
        *(0, -1, 2, -1, -1, -1),
        *(0, -1),
    ]
    assert explore_in_turn(0.0, 1, 3, some) == -1


# GLR-klUCB -----------------------------------------------------------------------------------


def empty_hull(vertices):
    return Hull(np.zeros((1, 1, 2, vertices)), np.zeros((1, 1, 2, vertices)), np.ones((1, 1, 2), np.int64))


def ratio_of(rewards, vertices):
    """Return the statistic after these rewards."""
    hull, total = empty_hull(vertices), 0.0
    for n, reward in enumerate(rewards, 1):
        total += reward
        extend_hull(hull, 0, 0, BELOW, float(n), total)
        extend_hull(hull, 0, 0, ABOVE, float(n), -total)
    return likelihood_ratio(hull, 0, 0)


def ratio_by_brute_force(rewards):
    """Return the largest statistic of all splits."""
    n, mean = len(rewards), sum(rewards) / len(rewards)
    return max(
        (
            s * bernoulli_kl(sum(rewards[:s]) / s, mean)
            + (n - s) * bernoulli_kl(sum(rewards[s:]) / (n - s), mean)
            for s in range(1, n)
        ),
        default=0.0,
    )


streams = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=80),
    st.lists(st.integers(0, 64).map(lambda i: i / 64), min_size=1, max_size=80),
)


@examples(200)
@given(rewards=streams)
def test_the_likelihood_ratio_is_the_largest_over_all_splits(rewards):
    assert ratio_of(rewards, 90) == pytest.approx(ratio_by_brute_force(rewards), abs=1e-9)


@given(rewards=streams, vertices=st.integers(3, 6))
def test_a_hull_without_room_only_underestimates(rewards, vertices):
    assert ratio_of(rewards, vertices) <= ratio_by_brute_force(rewards) + 1e-9


def test_a_hull_without_room_still_finds_what_is_recent():
    # Rewards that grow make every split a vertex; dropping the oldest keeps the latest ones.
    rewards = [i / 100 for i in range(40)] + [1.0] * 3
    assert ratio_of(rewards, 20) > 0.9 * ratio_by_brute_force(rewards)


def test_hulls_of_clicks_stay_small():
    """Vertices of 100 000 clicks on 40 sides: about ln n + 1 each, the end points included."""
    learner = tacit.Learner(GLRKLUCB(1, delta=1e-12), seed=1, propensities=False)
    keys = [f"key {i}" for i in range(20)]
    rng = np.random.default_rng(9)
    for rate in np.linspace(0.05, 0.95, 20).reshape(2, 10):
        for _ in range(20):
            decisions = learner.choose_many(keys[:10] * 5000)
            learner.learn_many(decisions, (rng.random((5000, 10)) < rate).ravel().astype(float))
        keys = keys[10:] + keys[:10]
    sizes = learner.state.hull.sizes[:20]
    assert learner.state.counts.plays[:20, 0].tolist() == [100_000.0] * 20
    assert abs(sizes.mean() - math.log(100_000) - 1) < 2.5  # 5 standard errors
    assert sizes.max() < 32


def test_likelihood_ratio_test_by_hand():
    # 0, 0, 0, 1, 1: 3·kl(0, 2/5) + 2·kl(1, 2/5) = 3.37 against ln(3·5·√5) = 3.51;
    # one more 1: 6·ln 2 = 4.16 against ln(3·6·√6) = 3.79.
    assert ratio_of([0, 0, 0, 1, 1], 32) == pytest.approx(3 * math.log(5 / 3) + 2 * math.log(2.5))
    assert ratio_of([0, 0, 0, 1, 1, 1], 32) == pytest.approx(6 * math.log(2))
    policy = GLRKLUCB(3, delta=1.0)
    history = [(1, 1.0), (0, 0.0), (0, 0.0), (0, 0.0), (0, 1.0), (0, 1.0)]
    state = taught(policy, history)
    assert policy.epoch(policy.params, state, 0) == 0
    # Round 7: arm 0 has 5 plays, so its index solves 5·kl(2/5, q) = ln 7.
    assert 5 * bernoulli_kl(0.4, index_of(policy, state, 0)) == pytest.approx(math.log(7))
    state = taught(policy, [*history, (0, 1.0)])
    assert policy.epoch(policy.params, state, 0) == 1
    assert state.counts.plays[0].tolist() == [0.0, 0.0, 0.0]


def test_local_restarts_spare_the_other_arms():
    policy = GLRKLUCB(3, delta=1.0, local=True)
    state = taught(policy, [(1, 1.0), (1, 0.0), *([(0, 0.0)] * 3 + [(0, 1.0)] * 3), (0, 1.0), (0, 0.0)])
    assert policy.epoch(policy.params, state, 0) == 1
    assert state.counts.plays[0].tolist() == [2.0, 2.0, 0.0]
    # Round 11; arm 0 was restarted after round 8, so its clock says 3, that of arm 1 says 11.
    for arm, clock in [(0, 3), (1, 11)]:
        assert 2 * bernoulli_kl(0.5, index_of(policy, state, arm)) == pytest.approx(math.log(clock))


def test_tests_can_be_made_rarer():
    history = [(0, 0.0)] * 3 + [(0, 1.0)] * 7
    assert [
        next(n for n in range(1, 11) if policy.epoch(policy.params, taught(policy, history[:n]), 0) > 0)
        for policy in (GLRKLUCB(3, delta=1.0, every=every) for every in (1, 4))
    ] == [6, 8]


# Detection -----------------------------------------------------------------------------------


def fed(learner, rate, rewards, keys=50, seed=5):
    """Give each of many keys with one arm so many rewards of this rate; return their epochs."""
    names = [f"key {i}" for i in range(keys)]
    clicks = np.random.default_rng(seed).random((rewards, keys)) < rate
    learner.learn_many(learner.choose_many(names * rewards), clicks.ravel().astype(float))
    return np.array([learner.epoch(name) for name in names])


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        # With a probability of 1 − 2e-7 all baselines are within ε/2 of the truth. Then a walk
        # that drifts down by ε/2 reaches h from a given round with one of exp(−4·ε·h) = 1e-14,
        # and one that drifts up by 0.35 reaches it within 400 rounds but for one of 2e-8.
        (CUSUMUCB(1, samples=4000, epsilon=0.1, threshold=80.0), 5000, 400),
        # Hoeffding: 2·exp(−2·b²/w) = 4e-22 a test; exp(−2·(0.75·200 − 100)²/400) = 4e-6 a key.
        (MUCB(1, window=400, threshold=100.0), 1000, 200),
        # δ a key; and the ratio passes the threshold of 25 within 60 rewards but for 1e-8.
        (GLRKLUCB(1, delta=1e-7), 1000, 120),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_changes_are_found_in_time_and_nothing_else_is(policy, before, after):
    """50 keys whose rate goes from 0.15 to 0.9; error probability below 2e-4 in total."""
    learner = tacit.Learner(policy, seed=1, propensities=False)
    assert fed(learner, 0.15, before).tolist() == [0] * 50
    assert fed(learner, 0.9, after, seed=6).tolist() == [1] * 50


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_false_alarms_are_rarer_than_delta(rate):
    """300 keys with δ = 0.1: binomial, error probability 1e-6."""
    learner = tacit.Learner(GLRKLUCB(1, delta=0.1), seed=1, propensities=False)
    assert fed(learner, rate, 1000, keys=300).sum() <= stats.binom.ppf(1 - 1e-6, 300, 0.1)


# Regret --------------------------------------------------------------------------------------


def test_regret_after_a_shift_is_far_below_that_of_a_policy_that_never_forgets():
    """The best arm loses some of its rate, and one that was long given up surpasses it."""
    environment = tacit.ShiftingArms(arms=3, events=[60_001], clicks=[[0.2, 0.25, 0.9], [0.8, 0.25, 0.6]])
    limits = {
        DiscountedUCB(3, discount=0.9995): 0.75,
        SlidingWindowUCB(3, window=2000): 0.35,
        CUSUMUCB(3): 0.5,
        MUCB(3): 0.6,
        GLRKLUCB(3): 0.3,
        GLRKLUCB(3, alpha=0.02, local=True): 0.45,
    }
    everything = [*limits, tacit.UCB1(3), tacit.UniformRandom(3)]
    result = tacit.simulate(everything, environment, 100_000, runs=10, seed=2)
    *mine, ucb1, uniform = result.regret[:, :, -1].mean(axis=1)
    for (policy, limit), regret in zip(limits.items(), mine, strict=True):
        assert regret < limit * ucb1, policy
        assert regret < 0.1 * uniform, policy


def test_over_a_long_horizon_exploration_costs_little():
    """Two shifts that the shown arm's clicks give away: what is forced is only lost."""
    environment = tacit.ShiftingArms(
        arms=3, events=[16_001, 32_001], clicks=[[0.5, 0.2, 0.1], [0.1, 0.5, 0.2], [0.6, 0.1, 0.2]]
    )
    policies = [GLRKLUCB.from_horizon(3, 48_000, 2), GLRKLUCB(3), GLRKLUCB(3, alpha=0.02)]
    result = tacit.simulate(policies, environment, 48_000, runs=10, seed=3)
    tuned, default, explores = result.regret[:, :, -1].mean(axis=1)
    assert tuned < 1.2 * default
    assert default < 0.7 * explores


# Parameters ----------------------------------------------------------------------------------


def test_tuning_follows_the_published_rules():
    t, k, shifts = 40_000, 5, 4
    assert DiscountedUCB.from_horizon(k, t, shifts).discount == pytest.approx(1 - 0.01 / 4)
    window = SlidingWindowUCB.from_horizon(k, t, shifts).window
    assert window - 1 < 2 * math.sqrt(t * math.log(t) / shifts) <= window
    cusum = CUSUMUCB.from_horizon(k, t, shifts)
    assert cusum.threshold == pytest.approx(math.log(t / shifts))
    assert cusum.alpha == pytest.approx(math.sqrt(shifts / t * math.log(t / shifts)))
    policy = GLRKLUCB.from_horizon(k, t, shifts)
    # A tenth of sqrt(4·5·ln(40 000)/40 000) = sqrt(20·10.5966/40 000).
    assert policy.alpha == pytest.approx(0.0072790, rel=1e-4)
    assert policy.delta == pytest.approx(0.005)
    assert GLRKLUCB.from_horizon(k, t, shifts, local=True) == replace(policy, local=True)
    m_ucb = MUCB.from_horizon(k, t, shifts, change=0.8)
    # ln(2·5·40 000²) = 23.496, ln 80 000 = 11.290: w = 6.25·(4.8473 + 3.3600)² = 421.0.
    assert m_ucb.window == 422
    assert m_ucb.threshold == pytest.approx(math.sqrt(422 * 23.4958 / 2), rel=1e-5)
    # b/δ = 88.01 and 3·sqrt(w) = 61.6: min(211, 89 + 61.6) = 150.6 plays a change.
    assert m_ucb.gamma == pytest.approx(math.sqrt(4 * 5 * 150.6 / 80_000), rel=1e-3)
