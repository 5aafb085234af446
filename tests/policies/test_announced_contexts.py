"""Signals beside a context: they announce that tastes change, and are believed as far as they were right."""

import numpy as np
import pytest

import tacit
from tacit.policies.features.context_models import RECENT
from tests.policies.states import assert_same_states

pytestmark = pytest.mark.interpreted

ARMS, DIM = 3, 2
QUIET, LOUD = 0.0, 50.0


def policy(**more):
    return tacit.auto(ARMS, context_dim=DIM, signals_dim=1, **more)


def quiet(rng):
    """Return a signal that is not beyond what is usual once some dozens were seen."""
    return float(rng.choice([-1.0, 1.0]))


def played(learner, rounds, rng, taste, loud=(), key="all"):
    """Let users come whose clicks are certain by their first number; return the clicks."""
    clicks = []
    for round in range(rounds):
        numbers = rng.standard_normal(DIM)
        signal = LOUD if round in loud else quiet(rng)
        decision = learner.choose(key, context=[*numbers, signal])
        best = (taste + int(numbers[0] > 0)) % ARMS
        clicks.append(float(decision.arm == best))
        learner.learn(decision, clicks[-1])
    return clicks


def recent(learner):
    tally = learner.state.tally
    return tally.age[0], tally.weights[0, RECENT]


def test_signals_that_say_nothing_change_nothing():
    """With signals as usual the models are those of the context alone, to the last bit."""
    both, alone = tacit.Learner(policy(), seed=1), tacit.Learner(tacit.auto(ARMS, context_dim=DIM), seed=1)
    played(both, 300, np.random.default_rng(2), 0)
    rng = np.random.default_rng(2)
    for _ in range(300):
        numbers, _ = rng.standard_normal(DIM), quiet(rng)
        decision = alone.choose("all", context=numbers)
        alone.learn(decision, float(decision.arm == int(numbers[0] > 0)))
    assert_same_states(both.state.models, alone.state.models)
    np.testing.assert_array_equal(both.state.tally.weights, alone.state.tally.weights)


def test_a_warning_lets_the_recent_hypothesis_begin_as_heavy_as_the_heaviest():
    learner, rng = tacit.Learner(policy(), seed=1), np.random.default_rng(3)
    played(learner, 300, rng, 0)
    others = np.delete(learner.state.tally.weights[0], RECENT)
    before, weight = recent(learner)
    assert before > 0
    assert weight < others.max()
    learner.choose("all", context=[0.0, 0.0, LOUD])
    age, weight = recent(learner)
    assert age == 0
    # Nothing is known of warnings: one is as likely right as what the heaviest says.
    np.testing.assert_allclose(weight, others.max() / (others.sum() + others.max()))


def test_before_contexts_are_measured_no_warning_is_heeded():
    learner, rng = tacit.Learner(policy(), seed=1), np.random.default_rng(3)
    played(learner, 100, rng, 0)
    learner.choose("all", context=[0.0, 0.0, LOUD])
    assert recent(learner)[0] == 100


def test_warnings_that_were_wrong_are_believed_less_and_less():
    learner, rng = tacit.Learner(policy(), seed=1), np.random.default_rng(4)
    played(learner, 200, rng, 0)
    believed = []
    for _ in range(12):
        learner.choose("all", context=[0.0, 0.0, LOUD])
        believed.append(recent(learner)[1])
        played(learner, 60, rng, 0)
    announced = learner.state.tally.announced
    assert believed[1] < 0.5 * believed[0]
    assert believed[3] < 0.3 * believed[0]
    assert announced.right[0] < 0.1 * announced.warnings[0]


@pytest.mark.compiled
def test_what_was_announced_is_learned_sooner():
    """Tastes change at rounds that a signal announces: fixed seeds, ten of each."""
    missed = {"both": 0.0, "alone": 0.0}
    for seed in range(10):
        for name, loud in (("both", (0,)), ("alone", ())):
            learner, rng = tacit.Learner(policy(), seed=seed), np.random.default_rng(seed)
            played(learner, 600, rng, 0)
            missed[name] += 300 - sum(played(learner, 300, rng, 1, loud))
    assert missed["both"] < 0.85 * missed["alone"]


def test_keys_with_models_of_their_own_have_warnings_of_their_own():
    shared = tacit.ContextMixture(ARMS, DIM + 1, signals_dim=1, per_key=True)
    learner, rng = tacit.Learner(shared, seed=1), np.random.default_rng(5)
    for key in ("a", "b"):
        played(learner, 170, rng, 0, key=key)
    learner.choose("b", context=[0.0, 0.0, LOUD])
    ages = learner.state.tally.age
    assert ages[learner.lane("a")] > 0
    assert ages[learner.lane("b")] == 0


def test_what_was_learned_folds_and_is_stored(tmp_path):
    learner, again = (tacit.Learner(policy(), seed=seed) for seed in (1, 2))
    rng, made = np.random.default_rng(6), []
    for round in range(400):
        context = [*rng.standard_normal(DIM), LOUD if round in (250, 330) else quiet(rng)]
        made.append(learner.choose("all", context=context))
        learner.learn(made[-1], float(made[-1].slot == 0))
    for decision in made:
        again.observe_decisions([decision])
        again.learn(decision, float(decision.slot == 0))
    learner.save(tmp_path / "learner")
    for other in (again, tacit.Learner.load(tmp_path / "learner")):
        assert_same_states(learner.state, other.state, 1)


def test_propensities_add_up_to_one_at_a_warning():
    learner, rng = tacit.Learner(policy(), seed=1), np.random.default_rng(7)
    played(learner, 300, rng, 0)
    learner.choose("all", context=[0.1, -0.2, LOUD])
    for signal in (QUIET, LOUD):
        assert abs(learner.probabilities("all", context=[0.1, -0.2, signal]).sum() - 1.0) <= 1e-12


# Fields that are signals ------------------------------------------------------------------------

SCHEMA = {"volume": "signal", "device": ["ios", "web"], "age": "number"}


def test_a_schema_says_which_fields_are_signals_and_puts_them_last():
    found = tacit.auto(ARMS, context=SCHEMA)
    assert [name for name, _ in found.schema] == ["device", "age", "volume"]
    assert (found.signals_dim, found.context_dim) == (1, 7)
    assert found == tacit.auto(ARMS, context=SCHEMA, signals_dim=1)
    learner = tacit.Learner(found, seed=1)
    learner.choose(context={"age": 31, "volume": 3.0})
    assert "volume" not in str(learner.explain({"age": 31, "volume": 3.0}))
