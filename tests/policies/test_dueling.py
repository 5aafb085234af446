"""Beat-the-Mean and Interleaved Filter, by hand and in law."""

import math

import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.environments import preferences
from tacit.policies import sample_size
from tacit.policies.base import Outcome
from tests.policies.states import assert_same_states

# By hand ------------------------------------------------------------------------------------------


def told(policy, results):
    """Return the state of a lane that has learned from (left, right, outcome) triples."""
    state = policy.init(1)
    for left, right, outcome in results:
        policy.learn(policy.params, state, 0, Outcome(None, (left, right), outcome, math.nan))
    return state


def of_radius(policy_class, arms, kappa, horizon=1000):
    """Return a policy whose confidence radius after n comparisons is kappa/√n."""
    return policy_class(arms, horizon, scale=kappa / policy_class(arms, horizon, scale=1.0).kappa)


def test_beat_the_mean_by_hand():
    policy = of_radius(tacit.policies.BeatTheMean, 3, 0.4)
    first = [(0, 1, 1.0), (1, 2, 0.0)]
    state = told(policy, first)
    assert state.working.due[0] == 1
    assert policy.result(state, 0)[:3] == (None, (), 2)
    # The third comparison lifts n* to 1: shares 1, 0 and 1 are two radii of 0.4 apart.
    state = told(policy, [*first, (2, 0, 1.0)])
    assert policy.result(state, 0)[:3] == (None, (1,), 3)
    # The only comparison of arm 0 was with arm 1: it is deleted, and arm 0 is due alone.
    assert state.plays[0].tolist() == [0, 1, 1]
    assert state.means[0, [0, 2]].tolist() == [0.5, 1.0]
    assert (state.radius[0], state.working.due[0], state.working.members[0, 0]) == (1.0, 1, 0)
    state = told(policy, [*first, (2, 0, 1.0), (0, 2, 0.0)])
    assert policy.result(state, 0)[:3] == (2, (1, 0), 4)
    rng = np.random.default_rng(1)
    assert policy.choose(policy.params, state, 0, tacit.Impression(np.arange(3), np.zeros(0)), rng) == (2, 2)


def test_the_test_comes_after_every_comparison_with_the_fewest_of_any_arm():
    policy = of_radius(tacit.policies.BeatTheMean, 2, 0.45)
    # After one sweep shares 1 and 0: one apart, two radii are 0.9.
    assert policy.result(told(policy, [(0, 1, 1.0), (1, 0, 0.0)]), 0)[:3] == (0, (1,), 2)
    policy = of_radius(tacit.policies.BeatTheMean, 2, 0.6)
    # Radius 0.6 after one, 0.424 after two; during the second sweep the fewest is still one.
    results = [(0, 1, 1.0), (1, 0, 0.0), (0, 0, 1.0)]
    assert policy.result(told(policy, results), 0).winner is None
    assert policy.result(told(policy, [*results, (1, 1, 0.0)]), 0)[:3] == (0, (1,), 4)


def test_a_horizon_ends_the_exploration_with_the_best_share_of_wins():
    policy = tacit.policies.BeatTheMean(3, horizon=4, scale=50.0)
    state = told(policy, [(0, 1, 0.0), (1, 2, 1.0), (2, 2, 0.5), (1, 0, 0.5), (0, 1, 1.0)])
    assert policy.result(state, 0)[:3] == (1, (), 4)


def test_pac_mode_ends_when_every_arm_has_enough():
    policy = tacit.policies.BeatTheMeanPAC(2, epsilon=0.49, delta=0.9)
    found = policy.result(told(policy, [(0, 1, 1.0), (1, 0, 0.0)] * policy.enough), 0)
    assert found.winner == 0
    assert found.comparisons <= 2 * policy.enough
    assert "0.99" in found.guarantee
    ties = told(policy, [(0, 0, 0.5), (1, 1, 0.5)] * (policy.enough - 1))
    assert policy.result(ties, 0).winner is None
    ties = told(policy, [(0, 0, 0.5), (1, 1, 0.5)] * policy.enough)
    assert policy.result(ties, 0)[:3] == (0, (), 2 * policy.enough)


@pytest.mark.parametrize(("arms", "gamma", "epsilon", "delta"), [(2, 1.0, 0.25, 0.1), (6, 1.5, 0.4, 0.05)])
def test_the_sample_size_is_the_smallest_solution(arms, gamma, epsilon, delta):
    def image(n):
        return np.ceil(36 * gamma**6 / epsilon**2 * np.log(arms**3 * n / delta))

    n = sample_size(arms, epsilon, delta, gamma)
    assert image(float(n)) == n
    below = np.arange(1.0, n)
    assert not (image(below) == below).any()


def test_interleaved_filter_by_hand():
    policy = of_radius(tacit.policies.InterleavedFilter2, 3, 0.3)
    state = told(policy, [(0, 1, 1.0)])
    assert (state.candidate[0], policy.result(state, 0).winner) == (0, None)
    # The sweep ends: 0 surely beats 1, and 2 surely beats 0; both leave at the same moment.
    state = told(policy, [(0, 1, 1.0), (0, 2, 0.0)])
    assert policy.result(state, 0)[:3] == (2, (0, 1), 2)


@pytest.mark.parametrize(
    ("policy_class", "left", "kept"),
    [(tacit.policies.InterleavedFilter1, (0, 2), {1}), (tacit.policies.InterleavedFilter2, (0, 1, 2), set())],
)
def test_only_the_second_filter_prunes(policy_class, left, kept):
    # The radius is 0.46 after three: 3 of 3 decides, 2 of 3 does not.
    policy = of_radius(policy_class, 4, 0.8)
    sweeps = [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 0.0)] * 2 + [(0, 1, 0.0), (0, 2, 1.0), (0, 3, 0.0)]
    state = told(policy, sweeps)
    found = policy.result(state, 0)
    assert state.candidate[0] == 3
    assert (found.eliminated, found.comparisons) == (left, 9)
    assert set(state.working.members[0, : state.working.size[0]].tolist()) == kept
    assert found.winner == (None if kept else 3)
    assert not state.plays[0, list(kept)].any()


def test_results_of_arms_that_left_teach_nothing():
    policy = of_radius(tacit.policies.BeatTheMean, 3, 0.4)
    results = [(0, 1, 1.0), (1, 2, 0.0), (2, 0, 1.0)]
    late = told(policy, [*results, (1, 2, 1.0), (0, 1, 1.0)])
    assert_same_states(told(policy, results), late)


POLICIES = [
    tacit.policies.BeatTheMean(4, 10_000),
    tacit.policies.BeatTheMean(4, 300, scale=0.4),
    tacit.policies.BeatTheMeanPAC(4, 0.3, 0.1),
    tacit.policies.InterleavedFilter1(4, 10_000),
    tacit.policies.InterleavedFilter2(4, 10_000, scale=0.3),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
@pytest.mark.parametrize("rounds", [0, 7, 101])
@pytest.mark.parametrize("offered", [None, [1, 3], [2]])
def test_propensities_are_the_frequencies_of_pairs(policy, rounds, offered):
    """Each of 45 chi-square tests has level 10⁻⁶, one and all."""
    learner, rng = tacit.Learner(policy, seed=3), np.random.default_rng(4)
    for _ in range(rounds):
        decision = learner.choose("key")
        learner.learn(decision, float(rng.random() < 0.5 + 0.3 * np.diff(decision.slots)[0] / 3))
    draws = 4000
    offers = None if offered is None else [offered] * draws
    decisions = learner.choose_many(["key"] * draws, arms=offers)
    impression = tacit.Impression(np.array(offered or range(4)), np.zeros(0))
    lane, expected = learner.lane("key"), np.zeros((4, 4))
    for pair in np.ndindex(4, 4):
        if set(pair) <= set(offered or range(4)):
            expected[pair] = policy.propensity(policy.params, learner.state, lane, impression, pair)
    assert expected.sum() == pytest.approx(1.0)
    observed = np.zeros((4, 4))
    for decision in decisions:
        observed[tuple(decision.slots)] += 1
        assert decision.propensity == pytest.approx(expected[tuple(decision.slots)])
    possible = expected > 0
    if possible.sum() > 1:
        assert stats.chisquare(observed[possible], draws * expected[possible]).pvalue > 1e-6


def test_the_radii_are_those_of_the_paper():
    log = math.log(2 * 10**6 * 5)
    assert tacit.policies.BeatTheMean(5, 10**6).kappa == pytest.approx(math.sqrt(log))
    assert tacit.policies.BeatTheMean(5, 10**6, gamma=1.5).kappa == pytest.approx(3 * 1.5**2 * math.sqrt(log))
    wide = tacit.policies.InterleavedFilter2(5, 10**6)
    assert wide.kappa == pytest.approx(math.sqrt(4 * math.log(25 * 10**6)))
    pac = tacit.policies.BeatTheMeanPAC(5, 0.2, 0.1, gamma=1.2)
    assert pac.kappa == pytest.approx(3 * 1.2**2 * math.sqrt(math.log(125 * pac.enough / 0.1)))


def test_outcomes_are_exact_although_their_first_bits_decide():
    environment = tacit.PreferenceMatrix(preferences.relaxed_chain(8, 1.5, 0.2))
    rng = np.random.default_rng(1)
    world = environment.world(rng, 1)
    for pair, chance in np.ndenumerate(np.array(environment.matrix)):
        edges = np.floor(256.0 * chance) / 256.0
        near = [np.nextafter(chance, 0.0), chance, np.nextafter(chance, 1.0), edges]
        for uniform in (*near, np.nextafter(edges, 0.0), *rng.random(20)):
            world.uniform[0] = uniform
            assert environment.respond(environment.params, world, 0, pair) == float(uniform < chance)


def test_counts_by_opponent_survive_their_first_byte():
    policy = tacit.policies.BeatTheMean(3, 10**12, scale=100.0)
    state = told(policy, [(0, 1, 1.0)] * 300 + [(0, 1, 0.5)] * 101 + [(0, 2, 0.0)])
    counts = state.met[0] + state.recent[0]
    assert counts[0].tolist() == [[0, 0], [701, 401], [0, 1]]
    assert counts[1:].sum() == 0


@pytest.mark.parametrize("kind", [tacit.policies.BeatTheMean, tacit.policies.InterleavedFilter2])
def test_checkpoints_change_no_number(kind):
    environment, policy = tacit.PreferenceMatrix("arxiv"), of_radius(kind, 6, 1.2, 2000)
    end, more = (
        tacit.simulate(policy, environment, 2000, runs=2, seed=1, checkpoints=rounds) for rounds in (1, 5)
    )
    assert end.rounds.tolist() == [2000]
    assert end.regret[..., -1].tolist() == more.regret[..., -1].tolist()
