"""Context as people have it: what a schema makes of dicts and columns, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.context import Encoder, infer_schema, list_columns, normalize_schema

DECLARED = {"device": ["ios", "web"], "age": "number", "new": "boolean", "country": "category(4)"}
SCHEMA = normalize_schema("context", DECLARED)


def test_columns_have_names_and_stand_in_the_order_of_the_fields():
    assert list_columns(SCHEMA) == (
        *("device=ios", "device=web", "device=other", "device missing"),
        *("age", "age missing"),
        *("new", "new missing"),
        *("country#0", "country#1", "country#2", "country#3", "country missing"),
    )


def test_each_field_becomes_the_columns_that_it_declares():
    row = Encoder(SCHEMA).encode_row({"device": "web", "age": 31, "new": True, "country": "de"})
    assert row[:8].tolist() == [0, 1, 0, 0, 31, 0, 1, 0]
    assert sorted(map(abs, row[8:12])) == [0, 0, 0, 1]
    assert row[12] == 0


@pytest.mark.parametrize("absent", [None, math.nan, np.float32("nan").item()])
def test_what_is_missing_has_a_column_of_its_own(absent):
    encoder = Encoder(SCHEMA)
    nothing = encoder.encode_row({})
    assert nothing.tolist() == [0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1]
    assert encoder.encode_row(dict.fromkeys(DECLARED, absent)).tolist() == nothing.tolist()


def test_a_value_that_was_not_declared_is_another_one_and_counted():
    encoder = Encoder(SCHEMA)
    assert encoder.encode_row({"device": "tv"})[:4].tolist() == [0, 0, 1, 0]
    assert encoder.encode_row({"device": "other"})[:4].tolist() == [0, 0, 1, 0]
    assert encoder.undeclared_counts == {"device": 2}


def test_a_canonical_schema_is_its_own_canonical_form_also_after_json():
    assert normalize_schema("context", SCHEMA) == SCHEMA
    assert normalize_schema("context", [[name, holds] for name, holds in SCHEMA]) == SCHEMA


def test_rows_and_columns_say_the_same():
    people = [{"device": "ios", "age": 30}, {"device": "tv", "age": None}]
    columns = {"device": ["ios", "tv"], "age": [30, None]}
    rows = Encoder(SCHEMA).encode_rows(people, "context")
    assert rows.tolist() == Encoder(SCHEMA).encode_rows(columns, "context").tolist()
    assert rows.shape == (2, len(list_columns(SCHEMA)))


def test_hashed_values_have_fixed_columns():
    """Worked out by hand from blake2b: what was learned must find its columns again."""
    row = Encoder(normalize_schema("context", {"country": "category(4)"})).encode_row({"country": "de"})
    assert row.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=5)))
def test_any_text_fits_a_category(values):
    row = Encoder(normalize_schema("context", {"a": "category", "b": "category(3)"})).encode_row(values)
    assert np.abs(row).sum() == 2


def test_an_explanation_needs_no_key_where_all_share_what_is_learned():
    learner = tacit.Learner(tacit.auto(arms=["film", "song"], context={"age": "number"}), seed=1)
    with pytest.raises(UnknownName, match="choose for it first"):
        learner.explain({"age": 30})
    for age in [20, 70] * 60:
        decision = learner.choose("x", {"age": age})
        learner.learn(decision, float((decision.arm == "song") == (age > 50)))
    found = learner.explain({"age": 70})
    film, song = found.records()
    assert film["mean"] < song["mean"]
    assert film["age"] < 0 < song["age"]
    assert found.records() == learner.explain({"age": 70}, "x").records()
    assert learner.keys == ["x"]


# Learned from rows ------------------------------------------------------------------------------

ROWS = [
    {"device": "ios" if i % 3 else "web", "age": 20 + i, "new": i % 2 == 0, "city": f"c{i}", "score": None}
    for i in range(60)
]
ROWS[7]["score"] = 0.5
ROWS[8].pop("device")


def test_a_schema_is_learned_from_rows_in_whatever_form_they_are():
    pandas = pytest.importorskip("pandas")
    expected = {
        "device": ["ios", "web"], "age": "number", "new": "boolean", "city": "category", "score": "number",
    }  # fmt: skip
    for rows in (ROWS, {name: [row.get(name) for row in ROWS] for name in ROWS[0]}, pandas.DataFrame(ROWS)):
        assert infer_schema(rows) == expected


def test_only_the_first_rows_are_looked_at():
    rows = [*ROWS, {"device": "tv", "age": "old"}]
    assert infer_schema(rows, first=60) == infer_schema(ROWS)
    with pytest.raises(InvalidValue, match=r"^context.age"):
        infer_schema(rows)


def test_a_policy_takes_rows_for_a_schema_and_keeps_what_they_said(tmp_path):
    pandas = pytest.importorskip("pandas")
    policy = tacit.auto(arms=["film", "song"], context=pandas.DataFrame(ROWS)[["device", "age"]])
    assert policy == tacit.auto(arms=["film", "song"], context={"device": ["ios", "web"], "age": "number"})
    tacit.Learner(policy, seed=1).save(tmp_path / "learner")
    assert tacit.Learner.load(tmp_path / "learner").policy.schema == policy.schema


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "context"),
        ("rows", "context"),
        ([{"age": 1}, {"age": "x"}], "context.age"),
        ([{"age": None}, {}], "context.age"),
        ([{"tags": ["a"]}], "context.tags"),
        ([{"when": np.datetime64("2026-01-01")}], "context.when"),
        ([{"age": math.inf}], "context.age"),
    ],
)
def test_rows_that_say_no_schema_are_refused_by_field(rows, field):
    with pytest.raises(InvalidValue) as caught:
        infer_schema(rows)
    assert caught.value.field == field


# What is lacking among many ----------------------------------------------------------------------


@pytest.mark.parametrize("absent", [None, [31.0], 5])
def test_one_that_is_no_dict_among_dicts_is_named(absent):
    learner = tacit.Learner(tacit.auto(arms=2, context={"age": "number"}), seed=1)
    with pytest.raises(InvalidValue) as caught:
        learner.choose_many(["a"] * 3, [{"age": 3}, absent, {}])
    assert caught.value.field == "context[1]"
    assert len(learner) == 0


@pytest.mark.parametrize("value", [["a", "b"], {"a": 1}, 3, b"x"])
def test_a_value_that_is_no_text_is_named(value):
    learner = tacit.Learner(tacit.auto(arms=2, context={"tag": "category"}), seed=1)
    with pytest.raises(InvalidValue) as caught:
        learner.choose(context={"tag": value})
    assert caught.value.field == "context.tag"


# What has no names ------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 1.0], ids=["dense", "sparse"])
def test_what_transformers_of_scikit_learn_give_are_contexts(threshold):
    pandas = pytest.importorskip("pandas")
    compose, preprocessing = (
        pytest.importorskip("sklearn.compose"),
        pytest.importorskip("sklearn.preprocessing"),
    )
    rows = pandas.DataFrame({"device": ["ios", "web"] * 5, "age": np.arange(10.0)})
    named = (preprocessing.OneHotEncoder(), ["device"]), (preprocessing.StandardScaler(), ["age"])
    made = compose.make_column_transformer(*named, sparse_threshold=threshold).fit_transform(rows)
    plain = np.asarray(made.todense() if threshold else made)
    learner = tacit.Learner(tacit.auto(arms=2, context_dim=3), seed=1)
    np.testing.assert_array_equal(learner.choose_many(["a"] * 10, made).batch.contexts, plain)
    for one in (made[:1], plain[0], pandas.Series(plain[0])):
        np.testing.assert_array_equal(learner.choose(context=one).context, plain[0])


@pytest.mark.parametrize(
    ("contexts", "field"),
    [([[1, None]], "context[1]"), ([[1, 2], None], "context[1]"), ([[1, "x"]], "context")],
)
def test_a_number_that_is_lacking_is_named_by_its_place(contexts, field):
    learner = tacit.Learner(tacit.auto(arms=2, context_dim=2), seed=1)
    with pytest.raises(InvalidValue) as caught:
        learner.choose_many(["a"] * len(contexts), contexts)
    assert caught.value.field == field
