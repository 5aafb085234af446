"""The bandit that weighs warnings: its Bayes factors by hand, and what it is good for."""

import math
from itertools import chain, combinations

import numpy as np
import pytest
from drawn import is_long

import tacit
from tacit.core.dispatch import choose
from tacit.core.run_mode import compile_loop
from tacit.policies.base import Outcome
from tacit.policies.shifting.probation_odds import COMMIT, QUIET, SORTING, WARNED, weigh_explanations
from tacit.policies.stationary.ucb import kl_upper_bound

BOX = tacit.classifiers.Rectangle(dim=1, margin=0.1)


def beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def test_three_explanations_are_weighed_by_beta_binomials():
    """Old counts 6 of 8, then 1 of 3: B(2, 3)/B(1, 1) against B(8, 5)/B(7, 3).

    A fresh record holds that one event in three changes a single arm, either of the two.
    """
    policy = tacit.policies.ProbationBandit(2, classifier=BOX, changes=0.8)
    cls, params, state = type(policy), policy.params, policy.init(1)
    state.lanes.old[0, 0] = 6.0, 2.0
    state.lanes.mode[0] = WARNED
    state.lanes.prior[0] = 0.4
    impression = tacit.Impression(np.arange(2), np.array([0.2]))
    for reward in (0.0, 1.0, 0.0):
        cls.learn(params, state, 0, Outcome(impression, 0, reward, np.nan))
    expected = (beta(2, 3) - beta(1, 1)) - (beta(8, 5) - beta(7, 3))
    assert state.lanes.factor[0, 0] == pytest.approx(expected)
    assert state.lanes.factor[0, 1] == 0.0
    whole, single, nothing = weigh_explanations(params, state, 0)
    assert whole == pytest.approx(0.4 * 2 / 3 * (0.8 * math.exp(expected) + 0.2))
    assert single == pytest.approx(0.4 * 1 / 3 * (math.exp(expected) + 1.0) / 2)
    assert nothing == pytest.approx(0.6)


def test_a_warning_is_worth_what_the_record_says():
    """Seven events in 7000 rounds weigh 10/10 000 with the prior's three; one warning in 100 rounds
    makes that 1/10, and a lane that had twice as many events as expected 2/9 to 1."""
    policy = tacit.policies.ProbationBandit(2, classifier=BOX)
    state = policy.init(1)
    state.record.announced[0], state.record.rounds[0] = 7.0, 6999.0
    state.record.span[0] = 99.0
    state.lanes.found[0], state.lanes.due[0] = 0.5, 0.1
    impression = tacit.Impression(np.arange(2), np.array([0.2]))
    type(policy).observe(policy.params, state, 0, impression)
    assert state.lanes.mode[0] == WARNED
    assert state.lanes.prior[0] == pytest.approx(2 / 11)


def test_one_warning_of_many_is_labelled_false_at_once():
    policy = tacit.policies.ProbationBandit(2, classifier=BOX)
    state = policy.init(1)
    for _ in range(3):
        impression = tacit.Impression(np.arange(2), np.array([0.2]))
        type(policy).observe(policy.params, state, 0, impression)
    assert state.lanes.mode[0] == 0
    assert state.classifier.low[0, 0] == state.classifier.high[0, 0] == 0.2
    assert state.record.warnings[0] == pytest.approx(0.7)


@pytest.mark.parametrize("base", ["thompson", "kl-ucb"])
def test_a_true_warning_is_believed_and_a_false_one_is_not(base):
    learner = tacit.Learner(tacit.policies.ProbationBandit(2, classifier=BOX, base=base), seed=1)

    def play(rounds, best, context):
        for _ in range(rounds):
            decision = learner.choose("query", context=context)
            learner.learn(decision, float(decision.arm == best))
        return decision

    play(1500, best=0, context=[0.2])
    assert learner.epoch("query") == 0
    assert learner.state.classifier.low[0, 0] == 0.2  # the first contexts were warnings, and wrong
    assert learner.state.record.announced[0] == 0.0
    assert play(1, best=0, context=[0.2]).arm == 0
    last = play(1, best=1, context=[0.9])
    assert learner.state.lanes.mode[0] == WARNED
    last = play(100, best=1, context=[0.2])
    assert learner.epoch("query") >= 1
    assert learner.state.record.announced[0] > 0.9
    assert learner.state.lanes.found[0] > 0.9
    assert last.arm == 1


def test_without_any_warning_an_event_is_found_from_the_clicks():
    learner = tacit.Learner(tacit.policies.ProbationBandit(2, classifier=BOX), seed=1)
    for best in (0, 1):
        for _ in range(2000):
            decision = learner.choose("query", context=[0.2])
            learner.learn(decision, float(decision.arm == best))
    assert decision.arm == 1
    assert learner.epoch("query") >= 1
    assert learner.state.record.surprises[0] >= 1.0


def test_odds_that_reach_the_threshold_restart_the_arm_and_put_the_others_in_doubt():
    policy = tacit.policies.ProbationBandit(2, classifier=BOX, surprise=0.5)
    cls, params, state = type(policy), policy.params, policy.init(1)
    lanes = state.lanes
    lanes.old[0, :] = 90.0, 10.0
    lanes.rounds[0], lanes.start[0] = 10.0, 5.0
    state.record.rounds[0] = 0.8  # with the prior's 0.2 rounds: 0.1 of an event a round
    impression = tacit.Impression(np.arange(2), np.array([0.2]))
    odds = 5 * 0.1 * (2 / 3 + 1 / 6)
    factor = 0.0
    while odds * math.exp(factor) <= COMMIT:
        assert lanes.mode[0] == 0
        n = lanes.new[0, 0, 1]
        factor += math.log((1 + n) / (2 + n)) - math.log((11 + n) / (102 + n))
        # What the lane is expected to have had comes off its own rate.
        odds = 5 * 0.1 * (2 / 3 + 1 / 6) * 0.3 / (0.3 + 0.1 * n)
        cls.learn(params, state, 0, Outcome(impression, 0, 0.0, np.nan))
    assert lanes.mode[0] == 2
    assert lanes.old[0, 0].sum() == 0.0
    assert lanes.old[0, 1].tolist() == [90.0, 10.0]
    assert lanes.prior[0] == pytest.approx(2 / 3 / (2 / 3 + 1 / 6))


def test_counts_are_merged_and_never_lost_while_nothing_changes():
    learner = tacit.Learner(tacit.policies.ProbationBandit(2, classifier=BOX), seed=2)
    rng = np.random.default_rng(3)
    for i in range(3000):
        decision = learner.choose("query", context=[0.3])
        learner.learn(decision, float(rng.random() < (0.5, 0.3)[decision.arm]))
        lanes = learner.state.lanes
        if learner.epoch("query") == 0:
            assert lanes.old[0].sum() + lanes.new[0].sum() == i + 1


@pytest.mark.parametrize("base", ["thompson", "kl-ucb"])
def test_warnings_help_where_they_tell_and_cost_little_where_they_do_not(base):
    """Paired with the same base: at most half as much again without events (10 to 30 % here, with
    20 000 rounds a key), far better with them."""
    runs = 6 if is_long() else 2
    plain = tacit.Thompson(4) if base == "thompson" else tacit.KLUCB(4)
    policies = [
        plain,
        tacit.policies.ProbationBandit(4, classifier=tacit.classifiers.Rectangle(3, 0.1), base=base),
    ]
    quiet = tacit.ShiftingArms(arms=4, keys=10, shifting=0.0, dim=3)
    result = tacit.simulate(policies, quiet, 200_000, runs=runs, seed=5)
    still, weighing = result.regret[:, :, -1].mean(axis=1)
    assert weighing < 1.5 * still
    for options in ({}, {"signals": "noise"}, {"missed": 0.5}):
        shifting = tacit.ShiftingArms(arms=4, keys=10, events=(4, 4), dim=3, **options)
        result = tacit.simulate(policies, shifting, 200_000, runs=runs, seed=5)
        still, weighing = result.regret[:, :, -1].mean(axis=1)
        assert weighing < 0.6 * still, options


# How likely it shows an arm -----------------------------------------------------------------------


def in_mode(mode, base, arms=4):
    """Return a learner that has been brought into a mode by clicks and contexts."""
    policy = tacit.policies.ProbationBandit(arms, classifier=BOX, base=base, surprise=0.02)
    learner, rng = tacit.Learner(policy, seed=4), np.random.default_rng(5)
    for i in range(3000):
        shifted = i > 300
        decision = learner.choose("query", context=[0.9 if i > 400 and mode == WARNED else 0.2])
        rate = 0.6 if decision.arm == (1 if shifted and mode != QUIET else 0) else 0.3
        learner.learn(decision, float(rng.random() < rate))
        lanes = learner.state.lanes
        if i > 200 and lanes.mode[0] == mode and lanes.length[0] >= 5:
            return learner
    raise AssertionError("it was never in this mode")


@pytest.mark.parametrize("base", ["thompson", "kl-ucb"])
@pytest.mark.parametrize("mode", [QUIET, WARNED, SORTING])
@pytest.mark.parametrize("offered", [[0, 1, 2, 3], [3, 1], [2]])
def test_the_propensity_is_the_frequency_of_the_arm(mode, base, offered):
    """Chosen from one state; of some 50 binomial counts, each at 6 sigma, none fails by chance
    with probability above 1e-6."""
    learner, draws = in_mode(mode, base), 40_000
    params, state = learner.policy.params, learner.state
    impression = tacit.Impression(np.array(offered), np.array([0.2]))
    seen, told = np.zeros(4), np.zeros(4)
    compile_loop(chosen_often, params)(params, state, impression, np.random.default_rng(6), seen, draws)
    for arm in offered:
        told[arm] = tacit.policies.ProbationBandit.propensity(params, state, 0, impression, arm)
    assert told.sum() == pytest.approx(1.0, abs=1e-7)
    assert (np.abs(seen - draws * told) <= 6 * np.sqrt(draws * told * (1 - told)) + 1).all()
    assert mode == QUIET or len(offered) == 1 or (told[offered] > 1e-4).sum() > 1


def chosen_often(params, state, impression, rng, seen, draws):
    for _ in range(draws):
        seen[choose(params, state, 0, impression, rng)] += 1.0


def test_the_propensity_is_summed_over_all_explanations_by_hand():
    """With KL-UCB and a single click each, scores are few: enumerate who has changed."""
    policy = tacit.policies.ProbationBandit(3, classifier=BOX, base="kl-ucb", changes=0.7)
    params, state = policy.params, policy.init(1)
    lanes = state.lanes
    lanes.old[0] = [[6.0, 2.0], [5.0, 5.0], [6.0, 2.0]]
    lanes.new[0] = [[2.0, 1.0], [2.0, 0.0], [0.0, 0.0]]
    lanes.factor[0] = [1.1, 0.4, 0.0]
    lanes.mode[0], lanes.prior[0] = WARNED, 0.4
    whole, single, nothing = weigh_explanations(params, state, 0)
    factors = np.exp(lanes.factor[0])

    def winners(changed, everywhere):
        plays = [lanes.new[0, a] + (0.0 if a in changed else lanes.old[0, a]) for a in range(3)]
        total = lanes.new[0].sum() + (0.0 if everywhere else lanes.old[0].sum())
        scores = [
            kl_upper_bound(w / (w + m), math.log(total + 1.0) / (w + m)) if w + m else 2.0 for w, m in plays
        ]
        best = np.array(scores) == max(scores)
        return best / best.sum()

    expected = nothing * winners((), False)
    for arm in range(3):
        expected += single * factors[arm] / factors.sum() * winners((arm,), False)
    share = 0.7 * factors / (0.7 * factors + 0.3)
    for changed in powerset(range(3)):
        odds = math.prod(share[a] if a in changed else 1.0 - share[a] for a in range(3))
        expected += whole * odds * winners(changed, True)
    expected /= whole + single + nothing
    impression = tacit.Impression(np.arange(3), np.array([0.2]))
    told = [tacit.policies.ProbationBandit.propensity(params, state, 0, impression, a) for a in range(3)]
    np.testing.assert_allclose(told, expected, rtol=1e-12)
    assert (expected > 0.01).all()


def powerset(items):
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


FIRST = {
    "thompson": "012000200021000110000000002000001100000000000000000000000000"
    "020220022222222222222222222212222222222122222222222222222222",
    "kl-ucb": "201000001121111000000000001000000000000000000000000000000000"
    "000221222222222222222222222222222222222222222222222222212222",
}


def test_it_draws_as_it_did_before_it_knew_its_propensity():
    """What version 0.1 chose with this seed, so that what began then goes on as it would have."""
    for base, expected in FIRST.items():
        learner = tacit.Learner(tacit.policies.ProbationBandit(3, classifier=BOX, base=base), seed=8)
        rng, shown = np.random.default_rng(9), ""
        for i in range(120):
            decision = learner.choose("query", context=[0.9 if i == 60 else 0.2])
            best = 0 if i < 60 else 2
            learner.learn(decision, float(rng.random() < (0.8 if decision.arm == best else 0.2)))
            shown += str(decision.arm)
        assert shown == expected
