"""Every purpose draws for itself: one seed may be used for the decisions and for the clicks."""

import numpy as np
import pyarrow as pa
import pytest

import tacit
from tacit.environments import environment_from_spec, preferences
from tacit.evaluate import IPS, Table, off_policy, replay

ROWS = 4000
ARMS = ["film", "holiday"]


def log_of(shown, rewards):
    """Return a log of uniform choices."""
    return pa.table(
        {
            "timestamp": ["2017-07-04T12:00:00Z"] * len(shown),
            "decision_id": [str(row) for row in range(len(shown))],
            "placement": ["home"] * len(shown),
            "key": ["independence day"] * len(shown),
            "arms": [ARMS] * len(shown),
            "arm": [ARMS[arm] for arm in shown],
            "propensity": [0.5] * len(shown),
            "reward": rewards.astype(float),
        }
    )


@pytest.mark.parametrize("seed", [0, 7, 2**70])
def test_clicks_of_the_learners_seed_know_nothing_of_its_choices(seed):
    learner = tacit.Learner(tacit.UniformRandom(2), seed=seed)
    clicks = np.random.default_rng(seed).random(ROWS) < 0.5
    shown = learner.choose_many(["key"] * ROWS).slots
    for arm in (0, 1):
        # Five standard errors.
        assert clicks[shown == arm].mean() == pytest.approx(0.5, abs=5 * 0.5 / (ROWS / 2) ** 0.5)


def test_children_of_the_learners_seed_know_nothing_of_its_choices():
    shown = tacit.Learner(tacit.UniformRandom(2), seed=7).choose_many(["key"] * ROWS).slots
    for child in np.random.SeedSequence(7).spawn(8):
        clicks = np.random.default_rng(child).random(ROWS) < 0.5
        assert clicks[shown == 0].mean() == pytest.approx(0.5, abs=0.06)


def test_a_generator_or_a_sequence_is_taken_as_it_is():
    sequence = np.random.SeedSequence(7).spawn(1)[0]
    given = tacit.Learner(tacit.UniformRandom(2), seed=np.random.default_rng(sequence))
    made = tacit.Learner(tacit.UniformRandom(2), seed=sequence)
    expected = (np.random.default_rng(sequence).random(50) * 2).astype(int).tolist()
    assert given.choose_many(["key"] * 50).slots.tolist() == expected
    assert made.choose_many(["key"] * 50).slots.tolist() == expected


def test_a_replay_knows_nothing_of_a_log_drawn_from_its_seed():
    policy = tacit.UniformRandom(ARMS)
    for seed in [np.random.SeedSequence(7), *np.random.SeedSequence(7).spawn(2)]:
        rng = np.random.default_rng(seed)
        shown = (rng.random(ROWS) * 2).astype(int)
        for matched in replay(policy, log_of(shown, rng.random(ROWS) < 0.5), passes=2, seed=7).matched:
            assert matched == pytest.approx(ROWS / 2, abs=5 * (ROWS / 4) ** 0.5)


def test_the_bootstrap_resamples_with_draws_of_its_own():
    rows = 40
    rewards = np.arange(rows) / rows
    log = log_of(np.zeros(rows, int), rewards)
    found = off_policy(Table({"film": 0.5, "holiday": 0.5}), log, [IPS()], seed=3)
    raw = np.random.default_rng(3).integers(rows, size=(1000, rows))
    same = np.quantile(rewards[raw].mean(axis=1), [0.025, 0.975])
    low, high = found.estimates[0].intervals["bootstrap"]
    assert (low, high) == pytest.approx(same, abs=0.05)
    assert (low, high) != pytest.approx(same, abs=1e-9)


def test_a_drawn_matrix_is_not_that_of_the_bare_seed():
    drawn = environment_from_spec("logistic-utilities(5, seed=3)").matrix
    bare = preferences.logistic_utilities(5, np.random.default_rng(3))
    assert not np.isclose(drawn, bare)[np.triu_indices(5, 1)].any()
