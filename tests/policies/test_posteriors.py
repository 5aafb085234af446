"""Which arm is the best, of many at once: as the propensity of Thompson sampling, one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.learning.estimates import compute_best_probabilities, compute_intervals
from tacit.policies.stationary.beta_maximum import probability_largest

pytestmark = pytest.mark.interpreted

PARAMETER = st.floats(-1.3, 6.0).map(lambda exponent: 10.0**exponent)


@given(st.lists(st.tuples(PARAMETER, PARAMETER), min_size=2, max_size=7))
def test_chances_are_those_of_each_arm_by_itself(pairs):
    successes, failures = map(np.array, zip(*pairs, strict=True))
    chances = compute_best_probabilities(successes, failures)
    alone = [probability_largest(successes, failures, i) for i in range(len(pairs))]
    np.testing.assert_allclose(chances, alone, atol=2e-7)
    assert abs(chances.sum() - 1.0) < 1e-12


def test_arms_alike_are_alike_however_many():
    chances = compute_best_probabilities(np.full(1000, 3.0), np.full(1000, 5.0))
    np.testing.assert_allclose(chances, 0.001, rtol=1e-9)
    successes, failures = np.arange(40) % 3 + 1.0, np.arange(40) % 2 + 2.0 + (np.arange(40) == 5)
    chances = compute_best_probabilities(successes, failures)
    alone = [probability_largest(successes, failures, i) for i in range(6)]
    np.testing.assert_allclose(alone, chances[:6], atol=2e-8)


def test_one_that_is_far_ahead_beside_flat_ones():
    """By hand: a Beta(1, 1) is larger than one that is 1/2 for sure half of the time."""
    sure, flat = [5e9, 1.0], [5e9, 1.0]
    np.testing.assert_allclose(compute_best_probabilities(np.array(sure), np.array(flat)), 0.5, atol=1e-5)
    # Of two such beside it, one at least is larger three times of four.
    ends = np.array([5e9, 1.0, 1.0])
    np.testing.assert_allclose(compute_best_probabilities(ends, ends), [0.25, 0.375, 0.375], atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 1.0)), min_size=1, max_size=5))
def test_an_interval_holds_the_mean_beside_it(arms):
    plays = np.array([float(n) for n, _ in arms])
    rewards = np.array([n * share for n, share in arms])
    with np.errstate(invalid="ignore"):
        means = rewards / plays
    ends = compute_intervals(1.0 + rewards, 1.0 + plays - rewards, means)
    played = plays > 0
    assert (ends[played, 0] <= means[played]).all()
    assert (means[played] <= ends[played, 1]).all()
    assert ((ends >= 0) & (ends <= 1)).all()


def test_a_learner_of_many_arms_is_asked_for_all_of_them():
    learner = tacit.Learner(tacit.Thompson(arms=2000), seed=1)
    learner.learn(learner.choose("a"), 1.0)
    found = learner.estimates("a")
    assert len(found) == 2000
    assert abs(sum(each.chance_best for each in found) - 1.0) < 1e-9
