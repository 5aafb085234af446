"""States of policies compared, and policies beside the examples, for the tests of this folder and others."""

import numpy as np
import pytest

import tacit
from tacit.core.arrays import leaves
from tacit.policies import baselines
from tacit.policies.base import make_outcome

BOX = tacit.classifiers.Rectangle(dim=1, margin=0.1)
RESTLESS = [
    baselines.DiscountedUCB(3, discount=0.5),
    baselines.SlidingWindowUCB(3, window=7),
    baselines.CUSUMUCB(3, samples=3, epsilon=0.05, threshold=0.5, alpha=0.3),
    baselines.MUCB(3, window=4, threshold=0.8, gamma=0.5),
    baselines.GLRKLUCB(3, alpha=0.5, delta=1.0),
    baselines.GLRKLUCB(3, alpha=0.5, delta=1.0, local=True, every=2),
]
"""Policies with which much is forgotten, restarted and forced within a few dozen rounds."""
VARIANTS = [
    tacit.Thompson(3, discount=0.9),
    baselines.EXP3S(3, gamma=0.2, alpha=0.01),
    tacit.ExplorationFloor(tacit.UCB1(3), epsilon=0.3),
    tacit.ExplorationFloor(tacit.policies.EXP3(3, gamma=0.2), epsilon=0.3),
    *RESTLESS,
    tacit.BWC(2, classifier=BOX, test_rounds=10, min_shift=0.5),
    tacit.BWC(2, classifier=BOX, test_rounds=3, min_shift=0.5, merge_phases=False),
    tacit.BWC(policy=tacit.Thompson(3), classifier=BOX, test_rounds=20, per_key=True),
    tacit.BWC(policy=tacit.KLUCB(3), classifier=BOX, test_rounds=20),
    tacit.policies.ProbationBandit(3, classifier=BOX, base="kl-ucb", per_key=True),
    tacit.policies.ShiftMixture(["a", "b"], context_dim=2, margin=0.2),
    tacit.policies.ECBandit(2, 3, relevance_intercept=True, discount=0.99),
    tacit.policies.LaplaceEC(2, 3, examination_intercept=True, discount=0.99),
    tacit.policies.LaplaceEC(2, 3, draw="coupled"),
    tacit.policies.LaplaceEC(2, 3, relevance_intercept=True, draw="coupled"),
    tacit.policies.LaplaceECMixture(2, 3, components=3),
    tacit.ClickMixture(2, 3),
    tacit.policies.LogisticTS(2, 3, draw="coupled"),
    tacit.policies.LogisticTS(2, 3, intercept=False),
    tacit.policies.LinTS(2, 3, draw="coupled"),
    tacit.policies.PolyaGammaTS(2, 3, sweeps=3, memory=8),
    tacit.policies.CascadeEC(2, 3, one_click=False, relevance_intercept=True, discount=0.99),
    tacit.policies.CascadeEC(2, 3, position_constants=False),
    tacit.policies.OracleRestart(tacit.policies.CascadeEC(2, 3)),
    tacit.ExplorationFloor(tacit.EmbeddingMixture(3), epsilon=0.1),
    tacit.ListMix(6, positions=3, epsilon=0.1),
    tacit.policies.SafeListMix(6, positions=3, epsilon=0.1),
    tacit.ItemListMix(5, positions=2, epsilon=0.1),
    baselines.FeelGoodThompson(["short", "long"], 1, feel_good=0.05),
    baselines.WinnerStays(4, variant="weak"),
    tacit.policies.RMED1(4, f=0.0),
    tacit.ExplorationFloor(tacit.policies.LogisticTS(2, 2), epsilon=0.2),
]


def assert_same_states(state, expected, rows=None, **tolerances):
    """Compare the first ``rows`` rows (or all) of each array of two states, exactly or to tolerances."""
    for (name, array), (_, other) in zip(leaves(state), leaves(expected), strict=True):
        np.testing.assert_allclose(
            array[:rows], other[:rows], err_msg=name, **{"rtol": 0.0, "atol": 0.0} | tolerances
        )


def learn(policy, state, lane, impression, action, feedback, propensity=np.nan):
    """Have the kernel learn the arm indices of an action and their rewards, numbers or arrays."""
    arms, rewards = np.atleast_1d(action), np.atleast_1d(np.asarray(feedback, float))
    outcome = make_outcome(policy.params, impression, arms, rewards, propensity)
    type(policy).learn(policy.params, state, lane, outcome)


def chances_of(policy, state, impression, lane=0):
    """Return the propensity of each arm on offer."""
    kernel = type(policy).propensity
    return np.array([kernel(policy.params, state, lane, impression, arm) for arm in impression.arms])


def assert_frequencies(counts, draws, chances):
    """Compare counts of some draws with their chances, each a binomial, at 5.1 standard deviations."""
    chances = np.asarray(chances)
    deviations = np.sqrt(chances * (1.0 - chances) / draws)
    assert (np.abs(np.asarray(counts) / draws - chances) <= 5.1 * deviations + 1e-12).all()


def assert_propensities_are_frequencies(learner, draws, key="query", **offer):
    """Draw decisions for a key and compare frequencies and propensities with the learner's probabilities.

    Each count of an arm is checked at 5.1 standard deviations: 1e-6 each. Returns the probabilities.
    """
    told = learner.probabilities(key, **offer)
    assert told.sum() == pytest.approx(1.0, abs=1e-12)
    made = learner.choose_many([key] * draws, **{name: [rows] * draws for name, rows in offer.items()})
    np.testing.assert_allclose(made.propensities, told[made.slots], rtol=1e-12)
    assert_frequencies(np.bincount(made.slots, minlength=len(told)), draws, told)
    return told
