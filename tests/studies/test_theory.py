"""The testable bandit and the theorems about it: worked by hand, by brute force, by simulation."""

import itertools
import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import tacit
from studies.eventful import syed2009_theory, theory
from studies.study import Setup, exact_interval, log_slope
from tacit.errors import InvalidValue
from tacit.policies.base import Outcome
from tacit.simulation import Run
from tests.policies.test_testable_ucb import NOTHING, taught

# Theorems 2 and 3 -----------------------------------------------------------------------------


@pytest.mark.parametrize(("arms", "rounds", "t0"), [(2, 1000, 1000), (4, 3000, 50)])
def test_the_error_of_the_estimate_by_hand(arms, rounds, t0):
    """ρ = sqrt(8·n·ln(t0 + t)/⌊t/2⌋); 7 + 1 of it, and (√5/10)·7 of it."""
    rho = math.sqrt(8 * arms * math.log(rounds + t0) / (rounds / 2))
    assert theory.estimate_error(arms, rounds, t0) == pytest.approx((8 + 0.7 * 5**0.5) * rho)


@given(st.integers(1, 50), st.floats(0.05, 1.0), st.integers(32, 10**9))
def test_rounds_to_test_is_the_least_that_will_do(arms, shift, horizon):
    length = theory.rounds_to_test(arms, shift, horizon)
    assert theory.estimate_error(arms, length, horizon) <= shift / 4
    assert theory.estimate_error(arms, length - 1, horizon) > shift / 4
    assert theory.failure_probability(arms, length, horizon) <= (horizon + length) ** -2


def test_the_estimate_keeps_theorem_2():
    """|Δ(u) − Δ_t(u)| < Δ(u)/4 + δ(t) wherever it says something; its own error is < 1e-20."""
    means, horizon = np.array([0.95, 0.9, 0.05]), 300_000
    policy = tacit.policies.TestableUCB1.theory(3, horizon)
    checked = 0
    for number in range(5):
        run = Run(policy, tacit.BernoulliArms(means), horizon, 3, number, np.empty(0, np.int64))
        for t in (75_000, 150_000, 300_000):
            run.advance(t - run.round)
            estimates = [policy.estimate(policy.params, run.state, 0, arm) for arm in range(3)]
            found = estimates[policy.guess(run.state, 0).reference] - np.array(estimates)
            truth = means.max() - means
            allowed = truth / 4 + theory.estimate_error(3, t, horizon)
            assert (np.abs(truth - found) < allowed).all()
            checked += int((allowed < 1.0).sum())
    assert checked > 0


def test_wrong_guesses_become_rare():
    """With arms 0.2 apart a guess after 10 rounds is mostly wrong, after 10 000 hardly ever."""
    policy = tacit.policies.TestableUCB1.theory(5, 30_000, 0.2)
    found = syed2009_theory.guesses(policy, syed2009_theory.MEANS, (10, 10_000), 200, Setup(1))
    early, late = found[:, :, 0].sum(axis=0)
    assert early > 100
    assert late <= 5


def test_theorem_2s_constant_by_hand():
    """Means 1 and 0 estimated for 0.9 and 0.5: 1 − 0.4 − 0.1 is off, over sqrt(2/20·ln 120)."""
    policy = tacit.policies.TestableUCB1(2, horizon=100)
    found = syed2009_theory.constant_of(policy, taught(policy, [0, 1] * 10, [1.0, 0.0] * 10), (0.9, 0.5), 20)
    assert found == pytest.approx(0.5 / math.sqrt(2 / 20 * math.log(120)))
    assert found < syed2009_theory.PROVED


def test_the_simple_fix_explores_then_plays_ucb1():
    fix = syed2009_theory.ExploreFirst.practical(3, 100, 0.4, explore=60)
    plain = tacit.policies.TestableUCB1.practical(3, 100, 0.4)
    state, rng = fix.init(1), np.random.default_rng(1)
    shown = []
    for round in range(100):
        arm = fix.choose(fix.params, state, 0, NOTHING, rng)
        if round >= 60:
            assert arm == plain.choose(plain.params, state, 0, NOTHING, np.random.default_rng(1))
        fix.learn(fix.params, state, 0, Outcome(NOTHING, arm, float(arm == 1), math.nan))
        shown.append(arm)
    assert 10 < shown[:60].count(0) < 30
    assert fix.guess(state, 0).plus == {1}
    assert fix.guess(state, 0).minus == {0, 2}


def test_theorem_6_ii_is_played_and_claim_6_holds(monkeypatch):
    monkeypatch.setattr(syed2009_theory, "ALARM_HORIZONS", (8000,))
    cells = syed2009_theory.alarmed_regret(Setup(5, seed=1, workers=1))
    quiet, event, claim = cells[:3], cells[3:6], cells[6:]
    assert [c["policy"] for c in quiet] == ["UCB1", "Thompson", "BWC"]
    # BWC pays for false alarms, and at this horizon for the true one as well.
    assert quiet[2]["value"] > 1.5 * quiet[0]["value"]
    assert event[2]["value"] > event[0]["value"]
    assert all(c["high"] >= c["bound"] for c in claim)


def test_a_guess_is_judged_by_definition_1():
    policy = tacit.policies.TestableUCB1(2, horizon=100, min_shift=0.4)
    state = taught(policy, [0, 1] * 10, [1.0, 0.0] * 10)
    assert not syed2009_theory.is_wrong(policy, state, (0.9, 0.5))
    assert syed2009_theory.is_wrong(policy, state, (0.5, 0.9))
    assert syed2009_theory.is_wrong(policy, state, (0.5, 0.5))
    # An arm that is neither best nor worse by ε may be in any set.
    assert not syed2009_theory.is_wrong(policy, state, (0.9, 0.8))


# Theorems 1 and 4 -----------------------------------------------------------------------------


def test_regret_bounds_by_hand():
    by_gap = 3 * (8 * 49 * math.log(2e6) / 0.5 + 1)
    assert theory.event_free_regret(4, 0.5, 1e6, t0=1e6) == pytest.approx(by_gap)
    by_rounds = 14 * math.sqrt(32 * 1e6 * math.log(2e6)) + 4
    assert theory.event_free_regret(4, 0.001, 1e6, t0=1e6) == pytest.approx(by_rounds)
    assert theory.event_free_regret(4, 0.5, 100.0) == 100.0
    # k = 2, d = 3: 8 testing phases, 6 of them without event; k·L = 20; 2/L = 1/5.
    found = theory.bwc_regret(math.sqrt, 2, 3, 10, 200)
    assert found == pytest.approx(8 * math.sqrt(25) + 6 * math.sqrt(10) + 20 + 0.2)


@given(st.integers(1, 20), st.floats(0.01, 1.0), st.floats(1.0, 1e7), st.floats(1.0, 1e7))
def test_event_free_regret_is_concave_as_theorem_1_wants(arms, gap, s, t):
    def bound(rounds):
        return theory.event_free_regret(arms, gap, rounds, t0=1000.0)

    assert bound((s + t) / 2) >= (bound(s) + bound(t)) / 2 * (1 - 1e-12)


def test_regret_is_within_equation_5():
    horizon, means = 100_000, [0.9, 0.1, 0.1]
    policies = [
        tacit.policies.TestableUCB1.theory(3, horizon),
        tacit.policies.TestableUCB1(3, horizon, alpha=1, t0=0),
    ]
    result = tacit.simulate(policies, tacit.BernoulliArms(means), horizon, runs=10, seed=1)
    for policy, regret in zip(policies, result.regret.mean(axis=1), strict=True):
        for rounds, found in zip(result.rounds[20:], regret[20:], strict=True):
            bound = theory.event_free_regret(3, 0.8, rounds, policy.alpha, policy.t0)
            assert bound < 0.8 * rounds or policy.alpha > 1
            assert found < bound


def test_theorem_4_wants_a_horizon_beyond_l():
    with pytest.raises(InvalidValue, match="horizon"):
        theory.bwc_ucb1_regret(5, 0.1, 0.1, 1, 91, 30_000)


# Section 5 ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.floats(0.01, 1.0))
def test_diameters_in_the_box_are_those_of_the_classifiers(dim, margin):
    assert theory.rectangle_diameter(dim, margin) == tacit.classifiers.Rectangle(dim, margin).diameter
    assert theory.hyperplane_diameter(dim, margin) == pytest.approx(
        tacit.classifiers.Hyperplane(dim, margin).diameter
    )


def test_diameters_in_the_ball_of_the_paper():
    assert theory.rectangle_diameter(1, 1.0, "ball") == 2  # −1, then 1
    assert theory.hyperplane_diameter(3, 0.5, "ball") == pytest.approx(27)


def most_false_positives(concepts):
    """Play definition 2 to the end in every way there is: all truths, all orders of contexts."""
    table, most = np.array(concepts.table), 0
    for truth in table:
        for order in itertools.permutations(np.flatnonzero(truth == -1)):
            classifier = tacit.classifiers.SafeClassifier(concepts)
            wrong = 0
            for context in order:
                if classifier.predict([context]):
                    wrong += 1
                    classifier.learn_false([context])
            most = max(most, wrong)
    return most


@examples(20)
@given(arrays(int, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(-1, 1)))
def test_fp_complexity_is_what_the_worst_game_gives(table):
    concepts = tacit.classifiers.FiniteConcepts(table.tolist())
    found = theory.false_positive_complexity(concepts)
    assert found == most_false_positives(concepts)
    assert found <= concepts.diameter


# The hard instances ---------------------------------------------------------------------------


def test_theorem_5_moves_the_neglected_arm():
    quiet = theory.neglected_arm(100, 0.25, 0)
    assert quiet.events == ()
    assert quiet.clicks == ((0.5, 0.25),)
    assert theory.neglected_arm(100, 0.25, 1).clicks == ((0.5, 0.75),)
    late = theory.neglected_arm(100, 0.25, 10)
    assert late.events == (91,)
    assert late.clicks == ((0.5, 0.25), (0.5, 0.75))
    for wrong in ((99, 0.25, 0), (100, 0.25, 11)):
        with pytest.raises(InvalidValue):
            theory.neglected_arm(*wrong)


def test_theorem_6_i_refuses_a_phase_without_a_change():
    with pytest.raises(InvalidValue, match="twice in a row"):
        theory.fresh_instances(3, 100, [1, 1], 0.1)


def contexts_of(environment, rounds):
    """Return what comes in each round: the context, and whether each arm is clicked."""
    world, params = environment.world(np.random.default_rng(1), rounds), environment.params
    seen, arms = [], range(environment.arm_count)
    for round in range(rounds):
        lane = environment.arrive(params, world, round, np.random.default_rng(2))
        clicks = [environment.respond(params, world, lane, arm) for arm in arms]
        seen.append((world.impression.context[0], *clicks))
    return seen


def test_theorem_6_ii_alarms_are_all_positive_until_labelled():
    concepts = theory.alarm_concepts(5)
    assert concepts.diameter == 5
    classifier = tacit.classifiers.SafeClassifier(concepts)
    for context, *_ in contexts_of(theory.false_alarms(1000, 5, 0), 1000):
        if not context:
            continue
        assert classifier.predict([context])
        classifier.learn_false([context])
    assert not classifier.predict([0])


def test_theorem_6_ii_instances_agree_until_the_event():
    quiet, eventful = (theory.false_alarms(1000, 100, 0), theory.false_alarms(1000, 100, 4))
    assert quiet.alarms == 10  # min(d, T^(1/3)) phases
    assert eventful.events == (301,)
    told = [[context for context, *_ in contexts_of(each, 400)] for each in (quiet, eventful)]
    assert told[0] == told[1]
    assert [(round, x) for round, x in enumerate(told[0]) if x] == [(0, 1), (100, 2), (200, 3), (300, 4)]
    low, high = eventful.clicks[0][1], eventful.clicks[1][1]
    assert high / low == pytest.approx(math.exp(1 / 3))


def test_alarms_and_clicks_come_as_the_theorem_says():
    environment = theory.AlarmingArms(
        2, clicks=[[1.0, 0.0], [0.0, 1.0]], events=[3], announced=True, length=2, alarms=2
    )
    assert contexts_of(environment, 6) == [(1, 1, 0), (0, 1, 0), (2, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)]


def test_bwc_tests_every_alarm_of_theorem_6_ii():
    """Nothing but a test tells a false alarm from the event, and context 0 never alarms."""
    policy = tacit.BWC(2, classifier=theory.alarm_concepts(3), test_rounds=1000, min_shift=0.08)
    run = Run(policy, theory.false_alarms(27_000, 3, 3), 27_000, 1, 0, np.empty(0, np.int64))
    run.advance(27_000)
    assert [restart.round for restart in policy.restarts(run.state, 0)] == [1, 9001, 18_001]


def test_theorem_5_separates_those_who_read_contexts_from_those_who_do_not():
    slopes, horizons = {}, (100**2, 200**2, 400**2)
    for name in ("UCB1", "BWC"):
        met = [(syed2009_theory.contenders(horizon)[name], math.isqrt(horizon)) for horizon in horizons]
        regrets = [syed2009_theory.worst_regret(*each, Setup(runs=10)).mean() for each in met]
        assert (regrets > syed2009_theory.HIDDEN * np.sqrt(horizons) / 4).all()
        slopes[name], _ = log_slope(horizons, regrets, [0.0] * 3)
    assert slopes["BWC"] < 0.35
    assert slopes["UCB1"] > 0.45


def test_slopes_carry_the_error_of_their_points():
    # Over ln T = 0, 1, 2 (steps of e) the slope is (y₂ − y₀)/2: its variance (0.1² + 0.2²)/4.
    slope, error = log_slope([1.0, math.e, math.e**2], [1.0, 5.0, math.e], [0.1, 1.8, 0.2])
    assert slope == pytest.approx(0.5)
    assert error == pytest.approx(math.sqrt(0.05 / 4))


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_intervals_are_exact(observed):
    failures, trials = observed
    expected = stats.binomtest(failures, trials).proportion_ci(0.95, "exact")
    assert exact_interval(failures, trials) == pytest.approx(expected, abs=1e-9)


# Theorems 1 and 6 (i), simulated -------------------------------------------------------------


def test_bwc_is_within_the_bound_of_theorem_1(monkeypatch):
    monkeypatch.setattr(syed2009_theory, "MEASURED_HORIZON", 40_000)
    monkeypatch.setattr(syed2009_theory, "EVENT_COUNTS", (0, 3))
    calm, busy = syed2009_theory.regret_by_events(Setup(3, seed=1, workers=1))
    assert 0 < calm["value"] < busy["value"] <= busy["bound"]
    assert calm["bound"] < busy["bound"]


def test_the_rate_of_theorem_6_by_hand():
    """kl(0.3, 0.7) = 0.4·ln(7/3) = 0.33892: 2·9·0.4·ln(1000)/0.33892 for ten arms, two phases."""
    assert syed2009_theory.least_regret(10, 2, 2000) == pytest.approx(146.748, rel=1e-4)


def test_what_events_cost_grows_with_arms_and_phases(monkeypatch):
    monkeypatch.setattr(syed2009_theory, "FRESH_HORIZONS", (10_000,))
    monkeypatch.setattr(syed2009_theory, "FRESH_SIZES", ((3, 1), (3, 4), (6, 4)))
    monkeypatch.setattr(
        syed2009_theory, "oracles", lambda arms: {"ORA": tacit.policies.OracleRestart(tacit.KLUCB(arms))}
    )
    found = syed2009_theory.fresh_regret(Setup(6, seed=1, workers=1))
    once, often, many = (cell["value"] for cell in found)
    assert 2.0 * once < often < 0.7 * many
    for cell in found:
        assert 0.4 < cell["value"] / cell["bound"] < 1.5
