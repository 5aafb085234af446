"""The testable bandit of Syed, Slivkins and Mishra (2009)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.policies.base import Outcome

NOTHING = tacit.Impression(np.arange(3), np.zeros(0))


def taught(policy, arms, rewards=None):
    """Return the state of one lane that was taught plays in order."""
    state = policy.init(1)
    for arm, reward in zip(arms, rewards or [0.0] * len(arms), strict=True):
        type(policy).learn(policy.params, state, 0, Outcome(NOTHING, arm, reward, math.nan))
    return state


@given(
    horizon=st.integers(1, 12),
    arms=st.lists(st.integers(0, 2), max_size=40),
    again=st.lists(st.integers(0, 2), max_size=40),
)
def test_the_window_is_exact_in_every_round(horizon, arms, again):
    policy = tacit.policies.TestableUCB1(3, horizon)
    state = policy.init(2)
    for plays in (arms, again):
        for t, arm in enumerate(plays, 1):
            policy.learn(policy.params, state, 1, Outcome(NOTHING, arm, 0.0, math.nan))
            window = plays[t - min(t, horizon) // 2 : t]
            assert state.late[1].tolist() == np.bincount(window, minlength=3).tolist()
        policy.restart(policy.params, state, 1)
        assert not state.late.any()
        assert not state.counts.plays.any()
    assert not state.late[0].any()


def test_the_guess_by_hand():
    policy = tacit.policies.TestableUCB1(3, horizon=100, min_shift=0.4)
    # Window after 8 rounds: the plays 1, 1, 0, 1. Means 1/2 (of 2), 3/5 (of 5) and 0 (of 1): the
    # gaps from arm 1 are 1/10, within 0.4/4, and 3/5, beyond 0.4/2.
    arms = [0, 2, 1, 1, 1, 1, 0, 1]
    assert policy.guess(taught(policy, arms, [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), 0) == ({0, 1}, {2}, 1)


def test_the_reference_is_recent_rather_than_frequent():
    policy = tacit.policies.TestableUCB1(3, horizon=100)
    assert policy.guess(taught(policy, [0, 0, 0, 0, 2, 1, 1, 0, 1]), 0).reference == 1
    assert policy.guess(policy.init(1), 0) == ({0, 1, 2}, set(), 0)


def test_between_the_thresholds_an_arm_is_in_neither_set():
    policy = tacit.policies.TestableUCB1(2, horizon=100, min_shift=1.0)
    arms, rewards = [1] * 8 + [0] * 8, [1.0] * 5 + [0.0] * 3 + [1.0] * 8
    guess = policy.guess(taught(policy, arms, rewards), 0)  # a gap of 3/8 between 1/4 and 1/2
    assert guess == ({0}, set(), 0)


def test_the_theory_preset_is_algorithm_2():
    policy = tacit.policies.TestableUCB1.theory(3, horizon=1000, min_shift=0.2)
    assert policy == tacit.policies.TestableUCB1(3, 1000, 0.2, alpha=6.0, t0=1000)
    state = taught(policy, [0, 0, 1], [1.0, 0.0, 1.0])
    shared = policy.confidence(policy.params, state, 0)
    indices = [policy.index(policy.params, state, 0, arm, shared) for arm in range(3)]
    radius = 12 * math.sqrt(2 * math.log(4 + 1000))
    assert indices == pytest.approx([0.5 + radius / math.sqrt(3), 1.0 + radius / math.sqrt(2), radius])
    assert radius == pytest.approx(6 * math.sqrt(8 * math.log(1004)))


def test_the_practical_preset_plays_as_ucb1_does():
    environment = tacit.BernoulliArms([0.3, 0.5, 0.6])
    policies = [tacit.policies.TestableUCB1.practical(3, horizon=1000), tacit.UCB1(3)]
    result = tacit.simulate(policies, environment, horizon=3000, runs=3, seed=1)
    np.testing.assert_array_equal(result.regret[0], result.regret[1])


def test_it_can_be_the_bandit_of_bwc():
    inner = tacit.policies.TestableUCB1.practical(2, horizon=5000)
    options = {"classifier": tacit.classifiers.Rectangle(dim=1, margin=0.5), "merge_phases": False}
    policies = [tacit.BWC(policy=inner, test_rounds=200, **options), tacit.BWC(2, test_rounds=200, **options)]
    environment = tacit.ShiftingArms(arms=2, events=[2501], clicks=[[0.9, 0.1], [0.1, 0.9]], announced=True)
    result = tacit.simulate(policies, environment, horizon=5000, runs=5, seed=1)
    np.testing.assert_array_equal(result.regret[0], result.regret[1])
    assert result.regret[0, :, -1].max() < 400


def test_a_lane_takes_the_memory_that_is_told():
    for arms, width in ((256, 1), (257, 2)):
        state = tacit.policies.TestableUCB1(arms, horizon=1001).init(3)
        size = state.recent.nbytes + state.late.nbytes + sum(array.nbytes for array in state.counts)
        assert size == 3 * (width * 501 + 24 * arms + 8)
