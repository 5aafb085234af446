"""Looking inside: why which arm is shown to who is asking, and what notebooks and warnings say of it."""

import struct
import warnings

import numpy as np
import pytest
from harness import with_home

import tacit
from tacit.errors import AssumptionWarning, ConfigError
from tacit.learning import lanes
from tacit.logs import read_log

ARMS = ["film", "song"]
SCHEMA = {"device": ["ios", "web"], "age": "number"}


@pytest.fixture(scope="module")
def learner():
    """One whose users like songs from 50 on, whatever their device."""
    found = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1)
    rng = np.random.default_rng(2)
    for _ in range(400):
        who = {"device": str(rng.choice(["ios", "web"])), "age": float(rng.uniform(20, 80))}
        decision = found.choose(context=who)
        found.learn(decision, float((decision.arm == "song") == (who["age"] > 50)))
    return found


def test_the_columns_of_a_field_are_added_up(learner):
    found = learner.explain({"device": "ios", "age": 70})
    assert found.fields == ("device",) * 4 + ("age",) * 2
    by_field = found.contributions_by_field
    np.testing.assert_allclose(by_field["device"], found.added[:, :4].sum(axis=1))
    np.testing.assert_allclose(by_field["age"], found.added[:, 4:].sum(axis=1))
    assert by_field["age"][1] > 1 > abs(by_field["device"][1])


def test_what_matters_to_all_comes_first(learner):
    found = learner.explain({"device": "ios", "age": 70})
    assert list(found.matters) == ["age", "device"]
    assert found.matters["age"] > 3 * found.matters["device"]
    # What moves all arms alike moves none before another one.
    alike = found.__class__(**{**vars(found), "slopes": np.ones_like(found.slopes)})
    assert set(alike.matters.values()) == {0.0}


def test_it_is_said_how_likely_it_is_that_contexts_say_nothing(learner):
    found = learner.explain({"age": 70})
    assert 0.0 <= found.says_nothing < 0.5
    assert f"{100 * found.says_nothing:.1f} %" in str(found)
    rng = np.random.default_rng(3)
    idle = tacit.Learner(tacit.auto(arms=2, context_dim=3), seed=1)
    for _ in range(1500):
        decision = idle.choose(context=rng.standard_normal(3))
        idle.learn(decision, float(rng.random() < (0.2, 0.6)[decision.arm]))
    assert idle.explain([0, 0, 0]).says_nothing > 0.5


def test_numbers_without_names_are_fields_of_their_own():
    learner = tacit.Learner(tacit.auto(arms=2, context_dim=2), seed=1)
    learner.learn(learner.choose(context=[1, 2]), 1.0)
    assert learner.explain([1, 2]).fields == ("context[0]", "context[1]")


def test_it_is_drawn_with_bands_and_names(learner, tmp_path):
    pytest.importorskip("matplotlib")
    found = learner.explain({"device": "ios", "age": 70})
    axes = found.plot(tmp_path / "why.png")
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert [label.split("\n")[0] for label in labels] == ARMS[::-1]
    assert "age +" in labels[0]
    assert "95%" in axes.get_xlabel()
    bands = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert (found.estimates[0].low, found.estimates[0].high) in bands
    width, _ = struct.unpack(">II", (tmp_path / "why.png").read_bytes()[16:24])
    assert width >= 400


# What each key takes ----------------------------------------------------------------------------


def test_a_policy_says_what_it_reads_and_what_a_key_takes():
    shared, own = tacit.ContextMixture(3, 8), tacit.ContextMixture(3, 8, per_key=True)
    assert shared.key_bytes == 3 * 16 + 1
    assert tacit.ContextMixture(3, 8, key_levels=False).key_bytes == 0
    assert "one model for all keys, levels of arms by key" in shared.reason
    one, two = (sum(array.nbytes for array in arrays_of(own.init(keys))) for keys in (1, 2))
    assert own.key_bytes == two - one
    assert f"{own.key_bytes:,} bytes" in own.reason
    assert "reads    a context of device, age;" in tacit.auto(arms=3, context=SCHEMA).reason
    assert "reads    signals, 2 numbers" in tacit.auto(arms=3, signals_dim=2).reason
    assert "relevance of each arm, 40 numbers" in tacit.auto(relevance_dim=40, context_dim=2).reason
    assert tacit.ExplorationFloor(own).reads == own.reads
    assert "reads" not in tacit.auto(arms=3).reason


def arrays_of(state):
    return [state] if isinstance(state, np.ndarray) else [a for part in state for a in arrays_of(part)]


def test_keys_that_take_much_are_warned_of_before_they_do(monkeypatch):
    monkeypatch.setattr(lanes, "WARNING_BYTES", 2**16)
    policy = tacit.ContextMixture(3, 8, per_key=True)
    with pytest.warns(AssumptionWarning, match=f"room is made for 64 of {policy.key_bytes:,} bytes each"):
        tacit.Learner(policy, seed=1).choose_many(["a"], [[0.0] * 8])
    with warnings.catch_warnings(action="error"):
        tacit.Learner(tacit.ContextMixture(3, 8), seed=1).choose_many(["a"], [[0.0] * 8])


def test_the_service_bounds_what_a_key_takes():
    given = {"context": {"tag": "category(400)"}, "policy": "context-mixture(per_key=True)"}
    assert with_home(arms=["a", "b"], **given)
    with pytest.raises(ConfigError, match=r"policy.*each key would take [0-9,]+ bytes"):
        with_home(arms=list(map(str, range(300))), **given)


# What notebooks show ----------------------------------------------------------------------------


def test_a_notebook_shows_policies_logs_and_explanations_as_tables(learner):
    log = read_log(
        {"key": ["a"] * 3, "arm": ["film"] * 3, "age": [1, 2, 3]}, arms=ARMS, columns={"context": ["age"]}
    )
    for each in [
        learner.policy,
        tacit.UCB1(2),
        tacit.EmbeddingMixture(40),
        log,
        learner.explain({"age": 70}),
        learner,
    ]:
        assert each._repr_html_().startswith("<table>")
    assert "one model for all keys" in learner.policy._repr_html_()
    assert repr(log) == "<click log: log; context of age>"
    list(log)
    assert repr(log) == "<click log: log; context of age; 3 of 3 rows kept>"


def test_many_decisions_are_shown_by_their_first():
    made = tacit.Learner(tacit.UCB1(ARMS), seed=1).choose_many([f"key {i}" for i in range(30)])
    assert repr(made).startswith("<30 decisions from 0 on: '")
    assert repr(made).endswith(", …>")
    assert repr(made).count("'") == 20
    assert made._repr_html_().count("<tr>") == 11
    assert "key 9" in made._repr_html_()
    assert repr(
        tacit.Learner(tacit.auto(relevance_dim=2), seed=1).choose_many(["a"], relevance=[[[1, 2], [2, 3]]])
    ) in ("<1 decisions from 0 on: 0>", "<1 decisions from 0 on: 1>")
