"""Items kept with their vectors: what is put, removed and asked for, decisions by id, snapshots."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.core.arrays import leaves
from tacit.errors import InvalidValue, UnknownName
from tacit.learning.catalogue import Catalogue

pytestmark = pytest.mark.interpreted

DIM = 5


def vectors(count, seed=1):
    """Return vectors that half precision keeps as they are."""
    return np.random.default_rng(seed).integers(-9, 10, size=(count, DIM)) / 4.0


def learner_with(count=30, policy=None):
    learner = tacit.Learner(policy or tacit.EmbeddingMixture(relevance_dim=DIM), seed=3)
    learner.items.put(
        list(range(count)), vectors(count), ["even" if i % 2 == 0 else None for i in range(count)]
    )
    return learner


def taught(learner, rounds=40):
    for i in range(rounds):
        learner.learn(learner.choose(arms=[i % 30, (i + 7) % 30]), float(i % 3 == 0))
    return learner


def test_a_decision_by_ids_is_that_with_the_vectors_of_the_ids():
    by_id, by_vectors = learner_with(), tacit.Learner(tacit.EmbeddingMixture(relevance_dim=DIM), seed=3)
    known = vectors(30)
    rng = np.random.default_rng(5)
    for _ in range(60):
        offer = rng.choice(30, size=4, replace=False).tolist()
        one = by_id.choose(arms=offer)
        other = by_vectors.choose(arms=offer, relevance=known[offer])
        assert one.arm == other.arm
        assert one.propensity == other.propensity
        reward = float(rng.random() < 0.3)
        by_id.learn(one, reward)
        by_vectors.learn(other, reward)
    many, others = (
        by_id.choose_many(["a", "b"], arms=[[1, 2], [3, 4, 5]]),
        by_vectors.choose_many(
            ["a", "b"], arms=[[1, 2], [3, 4, 5]], relevance=[known[[1, 2]], known[[3, 4, 5]]]
        ),
    )
    assert many.arms == others.arms
    assert (
        by_id.probabilities(arms=[7, 9]).tolist()
        == by_vectors.probabilities(arms=[7, 9], relevance=known[[7, 9]]).tolist()
    )
    assert [each.arm for each in by_id.estimates(arms=[7, 9])] == [7, 9]


def test_without_arms_all_items_are_candidates():
    learner = learner_with(3)
    assert learner.probabilities().shape == (3,)
    assert {learner.choose().arm for _ in range(60)} == {0, 1, 2}
    learner.items.remove([1])
    assert {learner.choose().arm for _ in range(60)} == {0, 2}
    assert {d.arm for d in learner.choose_many(["a"] * 40, arms=[None, [0]] * 20)} == {0, 2}
    assert {learner.choose(arms=learner.items.ids("even")).arm for _ in range(40)} == {0, 2}


def test_what_a_decision_saw_is_what_it_teaches():
    one, other = learner_with(), learner_with()
    first, second = one.choose(arms=[1, 2]), other.choose(arms=[1, 2])
    one.items.put([1, 2], np.zeros((2, DIM)))
    one.items.remove([2])
    one.learn(first, 1.0)
    other.learn(second, 1.0)
    assert all(np.array_equal(a, b) for a, b in zip(one.state.kept, other.state.kept, strict=True))


def test_a_decision_by_ids_keeps_the_vector_of_what_it_shows_alone():
    learner = learner_with()
    decision = learner.choose(arms=[1, 2, 3])
    assert decision.relevance.tolist() == learner.items.vectors([decision.arm]).tolist()
    again = tacit.Decision.from_json(decision.to_json())
    other = learner_with()
    other.choose(arms=[1, 2, 3])
    assert learner.learn(decision, 1.0)
    assert other.learn_many([again], [1.0]) == 1
    assert all(np.array_equal(a, b) for a, b in zip(learner.state.kept, other.state.kept, strict=True))


def test_lists_and_arms_with_features_learn_from_lean_decisions():
    lists = [
        tacit.policies.CascadeEC(2, 2, positions=2),
        *(tacit.ItemListMix(2, positions=n) for n in (1, 2)),
    ]
    for policy, offered in itertools.product([*lists, tacit.policies.LogisticTS(2, 2)], (2, 4)):
        whole, lean = tacit.Learner(policy, seed=1), tacit.Learner(policy, seed=1)
        rng = np.random.default_rng(2)
        for _ in range(20):
            features = rng.standard_normal((offered, 2))
            given_features = {"relevance": features, "examination": features[:, ::-1]}
            if not policy.feature_dims[1]:
                del given_features["examination"]
            one, other = (learner.choose("a", **given_features) for learner in (whole, lean))
            reward = [1.0, 0.0] if policy.feedback_width > 1 else 1.0
            whole.learn(one, reward)
            lean.learn(other.lean(), reward)
        assert all(
            np.array_equal(a, b)
            for (_, a), (_, b) in zip(leaves(whole.state), leaves(lean.state), strict=True)
        )


@pytest.mark.parametrize(
    ("ids", "given_vectors", "segments", "says"),
    [
        (["a", "a"], np.zeros((2, DIM)), None, "item once"),
        (["a", True], np.zeros((2, DIM)), None, "ids"),
        (["a" * 513], np.zeros((1, DIM)), None, "512 bytes"),
        ("ab", np.zeros((2, DIM)), None, "a list of names"),
        (["a"], np.zeros((2, DIM)), None, "vectors"),
        (["a"], np.zeros((1, DIM + 1)), None, f"rows of {DIM} numbers"),
        (["a"], np.zeros(DIM), None, r"vectors: .*; it is one row of numbers; .* as \[vector\] of one"),
        ({"a": np.zeros(DIM)}, None, None, r"give list\(ids\.values\(\)\), and as ids list\(ids\)"),
        (["a"], [["x"] * DIM], None, f"rows of {DIM} numbers"),
        (["a"], np.full((1, DIM), np.nan), None, r"vectors\[0, 0\]"),
        (["a"], np.full((1, DIM), 1e6), None, "65,504"),
        (["a"], np.zeros((1, DIM)), ["x", "y"], "segments"),
        (["a"], np.zeros((1, DIM)), [3], "segments"),
    ],
)
def test_what_cannot_be_put_changes_nothing(ids, given_vectors, segments, says):
    catalogue = Catalogue(DIM)
    catalogue.put(["b"], np.ones((1, DIM)))
    with pytest.raises(InvalidValue, match=says):
        catalogue.put(ids, given_vectors, segments)
    assert (catalogue.ids(), catalogue.version) == (["b"], 1)


steps = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, 11), min_size=1), st.sampled_from([None, "x", "y"])),
    max_size=20,
)


@examples(60)
@given(steps)
def test_it_holds_what_a_dict_would(changes):
    catalogue, known = Catalogue(DIM), {}
    copies = []
    for number, (puts, ids, segment) in enumerate(changes):
        given_vectors = vectors(len(ids), number)
        if puts:
            catalogue.put(list(ids), given_vectors, segment)
            for id, vector in zip(ids, given_vectors, strict=True):
                known.pop(id, None)
                known[id] = vector, segment
        else:
            there = [id for id in ids if id in known]
            catalogue.remove(there)
            for id in there:
                del known[id]
        copies.append((catalogue.copy(), dict(known)))
    for found, expected in [(catalogue, known), *copies, (copy.deepcopy(catalogue), known)]:
        assert found.ids() == list(expected)
        for segment in ("x", "y"):
            assert found.ids(segment) == [id for id, (_, own) in expected.items() if own == segment]
        assert all(np.array_equal(found.vectors([id])[0], vector) for id, (vector, _) in expected.items())
        ids, segments, halves = found.columns()
        assert ids == list(expected)
        assert segments == [own for _, own in expected.values()]
        assert halves.shape == (len(expected), DIM)
        assert found.ids() == list(expected)


def test_many_changes_take_no_more_memory_than_the_items():
    catalogue = Catalogue(DIM)
    for number in range(60):
        catalogue.put(list(range(500)), vectors(500, number))
    assert catalogue.nbytes <= 2 * 2 * DIM * 2048
    assert np.array_equal(catalogue.vectors(range(500)), vectors(500, 59))


def test_a_learner_is_saved_with_its_items(tmp_path):
    learner = taught(learner_with())
    learner.items.put(["film"], vectors(1, 9), "new")
    learner.items.remove([4])
    learner.save(tmp_path / "learner.tacit")
    again = tacit.Learner.load(tmp_path / "learner.tacit")
    before = [learner.choose().arm for _ in range(9)]
    assert [again.choose().arm for _ in range(9)] == before
    for found in (again, pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        assert found.items.columns()[:2] == learner.items.columns()[:2]
        assert found.items.version == learner.items.version
        assert np.array_equal(found.items.vectors(["film", 7]), learner.items.vectors(["film", 7]))
        assert found.choose().arm in learner.items


def test_a_snapshot_without_items_is_as_before(tmp_path):
    tacit.Learner(tacit.EmbeddingMixture(relevance_dim=DIM), seed=1).save(tmp_path / "learner.tacit")
    assert len(tacit.Learner.load(tmp_path / "learner.tacit").items) == 0
    assert b'"version": 1' in (tmp_path / "learner.tacit").read_bytes()


def test_only_policies_that_know_arms_by_relevance_have_items():
    with pytest.raises(UnknownName, match="items: Thompson"):
        _ = tacit.Learner(tacit.Thompson(arms=2), seed=1).items
    floor = tacit.ExplorationFloor(tacit.EmbeddingMixture(relevance_dim=DIM), 0.1)
    assert taught(learner_with(policy=floor)).choose(arms=[1, 2]).propensity >= 0.05
