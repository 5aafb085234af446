"""Every policy: exact small cases, propensities against frequencies, ties, regret."""

import copy
import inspect
import json
import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import integrate, stats

import tacit
from tacit.core import dispatch
from tacit.core.arrays import leaves
from tacit.policies import Counts, policy_from_spec, policy_to_spec
from tacit.policies.base import Outcome, make_outcome, registry
from tacit.policies.stationary.beta_maximum import NODES, WEIGHTS, probability_largest
from tacit.policies.stationary.ucb import bernoulli_kl, kl_upper_bound
from tests.policies.states import assert_propensities_are_frequencies, chances_of

SHIPPED = dispatch.list_parts(registry, "policies")
POLICIES = [
    *(kind.example(3) for kind in dispatch.list_parts(registry, "policies.stationary")),
    tacit.Thompson(3, discount=0.9),
    tacit.policies.baselines.EXP3S(3, gamma=0.2, alpha=0.01),
    tacit.ExplorationFloor(tacit.UCB1(3), epsilon=0.3),
    tacit.ExplorationFloor(tacit.policies.EXP3(3, gamma=0.2), epsilon=0.3),
]
by_label = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)


def taught(policy, rewards):
    """Return a learner that has played some rounds, with the reward of each arm given."""
    learner, rng = tacit.Learner(policy, seed=1), np.random.default_rng(1001)
    for _ in range(30):
        decision = learner.choose("query")
        learner.learn(decision, float(rng.random() < rewards[decision.arm]))
    return learner


def arrays(state):
    """Return the arrays of a state."""
    return [array for _, array in leaves(state)]


@by_label
def test_propensity_is_the_frequency_of_the_choice(policy):
    learner = taught(policy, [0.3, 0.5, 0.4])
    if policy.randomized:
        assert_propensities_are_frequencies(learner, 40_000)
    else:
        assert np.isnan(learner.choose_many(["query"] * 40).propensities).all()


@by_label
def test_propensities_over_a_subset_sum_to_one(policy):
    learner = taught(policy, [0.3, 0.5, 0.4])
    kernel_propensity = type(policy).propensity
    impression = tacit.Impression(np.array([0, 2]), np.zeros(0))
    lane = learner.lane("query")
    total = sum(kernel_propensity(policy.params, learner.state, lane, impression, arm) for arm in (0, 2))
    assert total == pytest.approx(1.0, abs=1e-7)
    assert set(learner.choose_many(["query"] * 200, arms=[[0, 2]] * 200).slots) <= {0, 2}


@by_label
def test_a_fresh_lane_chooses_every_arm_alike(policy):
    """Ties are broken at random: chi-square on fresh keys, error probability 1e-6."""
    decisions = tacit.Learner(policy, seed=5).choose_many([f"key {i}" for i in range(6000)])
    assert stats.chisquare(np.bincount(decisions.slots, minlength=3)).pvalue > 1e-6


# Cases worked by hand ------------------------------------------------------------------------


def test_ucb1_index_by_hand():
    # Round t = 5 after 3 plays with 2 clicks of arm 0 and 1 play without of arm 1:
    # arm 0: 2/3 + sqrt(2 ln 5/3), arm 1: 0 + sqrt(2 ln 5).
    state = Counts(np.array([[3.0, 1.0]]), np.array([[2.0, 0.0]]), np.array([4.0]))
    params = tacit.UCB1(2).params
    shared = tacit.UCB1.confidence(params, state, 0)
    assert tacit.UCB1.index(params, state, 0, 0, shared) == pytest.approx(
        2 / 3 + math.sqrt(2 * math.log(5) / 3)
    )
    assert tacit.UCB1.index(params, state, 0, 1, shared) == pytest.approx(math.sqrt(2 * math.log(5)))
    # α = 1, t0 = 10 is sqrt(8 ln 15/n).
    params = tacit.UCB1(2, alpha=1.0, t0=10).params
    shared = tacit.UCB1.confidence(params, state, 0)
    assert tacit.UCB1.index(params, state, 0, 1, shared) == pytest.approx(math.sqrt(8 * math.log(15)))


def test_ucb1_plays_each_arm_once_first():
    learner = tacit.Learner(tacit.UCB1(5), seed=3)
    seen = []
    for _ in range(5):
        decision = learner.choose("query")
        seen.append(decision.arm)
        learner.learn(decision, 1.0)
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_exp3_by_hand():
    # γ = 0.5, two arms: first p = 1/2; reward 1 adds γ·(1/p)/K = 0.5 to that log weight.
    learner = tacit.Learner(tacit.policies.EXP3(2, gamma=0.5), seed=1)
    first = learner.choose("query")
    assert first.propensity == pytest.approx(0.5)
    learner.learn(first, 1.0)
    chosen = 0.5 * math.exp(0.5) / (1 + math.exp(0.5)) + 0.25
    for _ in range(20):
        decision = learner.choose("query")
        expected = chosen if decision.arm == first.arm else 1 - chosen
        assert decision.propensity == pytest.approx(expected)


def test_exp3s_by_hand():
    # γ = 0.5, α = 0.1, K = 2, weights 1, 1: the shared part is e·0.1/2·2 = 0.1e.
    learner = tacit.Learner(tacit.policies.baselines.EXP3S(2, gamma=0.5, alpha=0.1), seed=1)
    first = learner.choose("query")
    learner.learn(first, 1.0)
    weights = learner.state.weights[0]
    assert weights[first.arm] == pytest.approx(math.exp(0.5) + 0.1 * math.e)
    assert weights[1 - first.arm] == pytest.approx(1 + 0.1 * math.e)


@pytest.mark.parametrize(
    "policy", [tacit.policies.EXP3(2, gamma=0.9), tacit.policies.baselines.EXP3S(2, gamma=0.9, alpha=1e-9)]
)
def test_exponential_weights_never_overflow(policy):
    """Some implementations overflow here and then play uniformly without a word."""
    learner = tacit.Learner(policy, seed=1)
    for _ in range(40):
        decisions = learner.choose_many(["query"] * 250)
        learner.learn_many(decisions, [float(arm == 1) for arm in decisions.arms])
    decision = learner.choose("query")
    assert np.isfinite(learner.state.weights).all()
    told = decision.propensity if decision.arm == 1 else 1 - decision.propensity
    assert told == pytest.approx(0.55, abs=1e-6)


def test_exp3_tuning_is_the_published_one():
    gamma = tacit.policies.EXP3.from_horizon(5, horizon=10_000).gamma
    assert gamma == pytest.approx(math.sqrt(5 * math.log(5) / ((math.e - 1) * 10_000)))
    policy = tacit.policies.baselines.EXP3S.from_horizon(5, horizon=3_000_000, shifts=10)
    t = 3_000_000
    assert policy.alpha == 1 / t
    assert policy.gamma == pytest.approx(math.sqrt(5 * (10 * math.log(5 * t) + math.e) / ((math.e - 1) * t)))


def test_thompson_counts_and_forgets():
    learner = tacit.Learner(tacit.Thompson(2, discount=0.5), seed=1)
    first = learner.choose("query", arms=[0])
    learner.learn(first, 1.0)
    learner.learn(first, 0.25)
    assert learner.state.successes[0].tolist() == [0.75, 0.0]
    assert learner.state.failures[0].tolist() == [0.75, 0.0]


def test_exploration_floor_by_hand():
    learner = tacit.Learner(tacit.ExplorationFloor(tacit.UCB1(4, alpha=0.01), 0.2), seed=1)
    for _ in range(60):
        decision = learner.choose("query")
        assert decision.propensity in (
            pytest.approx(0.05),
            *(pytest.approx(0.05 + 0.8 / ties) for ties in (1, 2, 3, 4)),
        )
        learner.learn(decision, float(decision.arm == 2))
    shares = {d.arm: d.propensity for d in learner.choose_many(["query"] * 300)}
    assert shares[2] == pytest.approx(0.85)
    assert [shares[arm] for arm in (0, 1, 3)] == pytest.approx([0.05] * 3)


# Numerics ------------------------------------------------------------------------------------


@given(mean=st.floats(0.0, 1.0), budget=st.floats(0.0, 50.0))
@example(mean=0.5, budget=19.0)
@example(mean=1.6604607649575058e-146, budget=0.0)
@example(mean=0.40625, budget=2.807928790583222e-31)
def test_kl_upper_bound_solves_its_equation(mean, budget):
    q = kl_upper_bound(mean, budget)
    assert mean <= q <= 1.0
    if q < 1.0 - 1e-12:
        slope = (q - mean) / (q * (1.0 - q)) if q > 0.0 else 0.0
        assert abs(bernoulli_kl(mean, q) - budget) <= 1e-9 * max(1.0, slope) + 1e-9


def test_nodes_and_weights_are_those_of_gauss_and_legendre():
    nodes, weights = np.polynomial.legendre.leggauss(16)
    order = np.argsort(NODES)
    np.testing.assert_allclose(NODES[order], nodes, rtol=1e-15)
    np.testing.assert_allclose(WEIGHTS[order], weights, rtol=1e-14)


def exact_largest(successes, failures, chosen):
    """P(chosen is largest) by adaptive quadrature over x, split at the variables' quantiles."""
    betas = [stats.beta(s, f) for s, f in zip(successes, failures, strict=True)]
    cuts = sorted({q for b in betas for q in b.ppf([1e-13, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-4])})

    def integrand(x):
        others = (b.cdf(x) for i, b in enumerate(betas) if i != chosen)
        return betas[chosen].pdf(x) * math.prod(others)

    pairs = zip([0.0, *cuts], [*cuts, 1.0], strict=True)
    return sum(integrate.quad(integrand, a, b, epsabs=1e-12, limit=200)[0] for a, b in pairs if a < b)


@examples(25)
@given(counts=st.lists(st.tuples(st.floats(1.0, 3000.0), st.floats(1.0, 3000.0)), min_size=2, max_size=5))
def test_probability_largest_against_quadrature(counts):
    successes, failures = map(np.array, zip(*counts, strict=True))
    told = [probability_largest(successes, failures, i) for i in range(len(counts))]
    assert sum(told) == pytest.approx(1.0, abs=1e-8)
    assert told[0] == pytest.approx(exact_largest(successes, failures, 0), abs=1e-8)


def test_probability_largest_of_a_lane_that_learns():
    """All arms sum to 1, whatever their scales; each arm's error is within 1e-8."""
    rng = np.random.default_rng(5)
    for plays in (10, 100, 1000, 100_000):
        rates = rng.beta(2.0, 18.0, size=10)
        shares = rng.dirichlet(np.full(10, 0.3))
        successes = 1.0 + rng.binomial(np.int64(plays * shares), rates)
        failures = 1.0 + plays * shares - (successes - 1.0)
        failures = np.maximum(failures, 1.0)
        told = [probability_largest(successes, failures, i) for i in range(10)]
        assert sum(told) == pytest.approx(1.0, abs=1e-8)
        best = int(np.argmax(told))
        assert told[best] == pytest.approx(exact_largest(successes, failures, best), abs=1e-8)


def test_probability_largest_of_very_different_scales():
    # Beta(1, 1) against a point mass near 0.3: the uniform wins with probability 0.7.
    successes, failures = np.array([1.0, 3e8]), np.array([1.0, 7e8])
    assert probability_largest(successes, failures, 0) == pytest.approx(0.7, abs=1e-6)
    # Jeffreys-like priors with singular densities, by symmetry.
    assert probability_largest(np.full(4, 0.05), np.full(4, 0.05), 2) == pytest.approx(0.25, abs=1e-7)


@pytest.mark.parametrize("count", [5, 12, 40])
def test_probability_largest_of_many_that_are_nearly_equal(count):
    """The product of their distribution functions is far steeper than each of them."""
    successes, failures = np.full(count, 50.0), np.full(count, 4000.0)
    successes[0] = 51.5
    first, other = (probability_largest(successes, failures, i) for i in (0, 1))
    assert first + (count - 1) * other == pytest.approx(1.0, abs=count * 1e-8)
    assert first == pytest.approx(exact_largest(successes, failures, 0), abs=1e-8)


# Learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "bound"),
    [(tacit.UCB1(3), 0.15), (tacit.KLUCB(3), 0.05), (tacit.Thompson(3), 0.05), (tacit.policies.EXP3(3), 0.3)],
    ids=lambda value: getattr(value, "label", str(value)),
)
def test_regret_stays_far_below_uniform_choice(policy, bound):
    environment = tacit.BernoulliArms([0.2, 0.5, 0.8])
    result = tacit.simulate([policy, tacit.UniformRandom(3)], environment, 5000, runs=10, seed=4)
    mine, uniform = result.regret[:, :, -1].mean(axis=1)
    assert mine < bound * uniform


# Boundaries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value"), [("true", True), ("True", True), ("false", False), ("False", False)]
)
def test_true_and_false_are_read_as_files_and_as_python_write_them(word, value):
    assert policy_from_spec(f"context-mixture(context_dim=2, per_key={word})", 3).per_key is value


def test_specs_as_text():
    assert policy_from_spec("UCB1", 3) == tacit.UCB1(3)
    assert policy_from_spec("epsilon-greedy(epsilon=0.2)", 3) == tacit.EpsilonGreedy(3, 0.2)
    assert policy_from_spec("epsilon_greedy(0.2)", 3) == tacit.EpsilonGreedy(3, 0.2)
    floor = tacit.ExplorationFloor(tacit.EpsilonGreedy(3, 0.2), 0.1)
    assert policy_from_spec("exploration-floor(epsilon-greedy(0.2), epsilon=0.1)", 3) == floor
    assert policy_from_spec("thompson(arms=['a-b', 'c'])").arms == ("a-b", "c")


def test_the_name_of_a_policy_of_the_package_is_taken_only_where_it_was_defined():
    def define(module):
        return type("UCB1", (), {"Params": None, "__module__": module})

    registry = {"ucb1": tacit.UCB1}
    for module in ("mine", "tacit.policies.shifting.ucb"):
        with pytest.raises(TypeError, match=r"UCB1 is the name of .*; choose another one"):
            dispatch.register_name(define(module), registry)
    assert registry == {"ucb1": tacit.UCB1}
    again = define(tacit.UCB1.__module__)
    dispatch.register_name(again, registry)  # as importlib.reload does
    assert registry == {"ucb1": again}


def test_tab_completion_finds_all_that_is_exported():
    assert {"UCB1", "BernoulliArms", "read_log", "simulate"} <= set(tacit.__all__)
    assert set(tacit.__all__) <= set(dir(tacit))
    rooms = {name for name in dir(tacit) if inspect.ismodule(getattr(tacit, name))}
    assert {"errors", "interleaving", "policies"} <= rooms
    assert set(dir(tacit)) == {*tacit.__all__, *rooms, "__version__"}
    assert len(dir(tacit)) <= 46  # a reader takes them in at once


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.__name__)
def test_every_policy_is_exported_says_what_it_rests_on_and_plays_as_its_example(kind):
    room = (
        tacit.policies.baselines if kind.__module__.startswith("tacit.policies.baselines") else tacit.policies
    )
    assert getattr(room, kind.__name__) is kind
    assert kind.__name__ in room.__all__
    assert all(kind.about[:-2])  # what it is recommended for, and where it is weak, is told of few
    policy = kind.example(arms=3, dim=2)
    params, state = policy.params, policy.init(1)
    rng, features = np.random.default_rng(1), (np.ones((3, dim)) for dim in policy.feature_dims)
    impression = tacit.Impression(np.arange(3), np.zeros(policy.context_dim), *features)
    action = np.full(policy.action_width, -1)
    for _ in range(3):
        dispatch.observe(params, state, 0, impression)
        same, before = np.full_like(action, -1), copy.deepcopy(rng)
        dispatch.decide(params, state, 0, impression, rng, action)
        assert set(action) <= {0, 1, 2}
        chance = kind.propensity(params, state, 0, impression, dispatch.shown_in(params, action))
        if not kind.remembers:
            weighed = dispatch.decide_and_weigh(params, state, 0, impression, before, same)
            assert (list(same), before.random()) == (list(action), copy.deepcopy(rng).random())
            assert weighed == chance or (math.isnan(weighed) and math.isnan(chance))
        assert math.isnan(chance) or 0.0 < chance <= 1.0
        kind.learn(
            params, state, 0, make_outcome(params, impression, action, np.ones(policy.feedback_width), chance)
        )


# Shares that arms are promised ------------------------------------------------------------------


def shares_of(policy, state, offered):
    return chances_of(policy, state, tacit.Impression(np.array(offered), np.zeros(policy.context_dim)))


def test_promised_shares_by_hand():
    """UCB1 plays the one arm that was not played; what is left of 1 − 0.12 is nine tenths its."""
    policy = tacit.policies.MinimumShares(tacit.UCB1(3), epsilon=0.3, at_least={0: 0.1, 2: 0.02})
    state, impression = policy.init(1), tacit.Impression(np.arange(3), np.zeros(0))
    for arm in (0, 2):
        policy.learn(policy.params, state, 0, Outcome(impression, arm, 1.0, 0.5))
    left = 0.88
    assert shares_of(policy, state, [0, 1, 2]) == pytest.approx(
        [0.1 + 0.1 * left, 0.8 * left, 0.02 + 0.1 * left]
    )
    # Arm 0 is not on offer: what it was promised is left to the policy.
    assert shares_of(policy, state, [1, 2]) == pytest.approx([0.85 * 0.98, 0.02 + 0.15 * 0.98])
    assert shares_of(policy, state, [0]) == pytest.approx([1.0])


def test_promised_shares_are_the_frequencies_of_arms():
    """Three binomial counts at 5.1 sigma: error probability 1e-6."""
    policy = tacit.policies.MinimumShares(tacit.Thompson(3), epsilon=0.1, at_least={0: 0.2, 2: 0.05})
    learner = taught(policy, [0.2, 0.5, 0.3])
    told = assert_propensities_are_frequencies(learner, 20_000)
    assert shares_of(policy, learner.state, [0, 1, 2]) == pytest.approx(told, rel=1e-12)


def test_promised_shares_hold_for_arms_by_name_as_they_come_and_go():
    policy = tacit.policies.MinimumShares(tacit.Thompson(["control", "new"]), at_least={"control": 0.2})
    learner = tacit.Learner(policy, seed=3)
    for _ in range(300):
        decision = learner.choose("query")
        assert decision.propensity >= 0.2 or decision.arm == "new"
        learner.learn(decision, float(decision.arm == "new"))
    learner.add_arm("newer")
    shown = learner.choose_many(["query"] * 4000)
    assert abs(np.mean([decision.arm == "control" for decision in shown]) - 0.2) < 0.04
    assert all(decision.propensity >= 0.2 for decision in shown if decision.arm == "control")
    learner.retire_arm("control")
    assert {decision.arm for decision in learner.choose_many(["query"] * 200)} <= {"new", "newer"}


def test_promised_shares_hold_whoever_is_asking():
    """Over a policy that reads contexts: f + (1 − F)·p of its own p, for each context."""
    policy = tacit.auto(["a", "b", "control"], context_dim=1, at_least={"control": 0.1})
    state, plain = policy.init(1), policy.policy
    for x in (-1.0, 1.0):
        impression = tacit.Impression(np.arange(3), np.array([x]))
        for arm in (0, 1, 2):
            policy.learn(policy.params, state, 0, Outcome(impression, arm, float(arm == (x > 0)), 0.5))
        inner, found = (chances_of(one, state, impression) for one in (plain, policy))
        assert found == pytest.approx([0.9 * inner[0], 0.9 * inner[1], 0.1 + 0.9 * inner[2]])


def test_promises_are_written_as_tables_and_text():
    policy = tacit.auto(["a", "b"], at_least={"b": 0.1})
    assert policy_from_spec(json.loads(json.dumps(policy_to_spec(policy)))) == policy
    assert policy_from_spec({"name": "auto", "at_least": {"b": 0.1}}, ["a", "b"]) == policy
    assert policy.least_share == 0.0
    floor = tacit.policies.MinimumShares(tacit.UCB1(2), epsilon=0.2, at_least={0: 0.5})
    assert floor.least_share == pytest.approx(0.1)
