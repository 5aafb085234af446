"""Schemas that are learned from a log: what its columns hold, by its first rows."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from log_files import as_file, in_form

import tacit
from tacit.cli import cli
from tacit.errors import AssumptionWarning, LogError
from tacit.evaluate import IPS, DoublyRobust, off_policy, replay
from tacit.logs import read_log

ARMS = ["film", "song"]
SCHEMA = {"age": "number", "device": ["ios", "web"]}
ROWS = 400


@pytest.fixture(scope="module")
def log():
    """Clicks at random."""
    rng = np.random.default_rng(3)
    return {
        "key": ["home"] * ROWS,
        "arm": rng.choice(ARMS, ROWS).tolist(),
        "propensity": [0.5] * ROWS,
        "reward": rng.integers(2, size=ROWS).astype(float).tolist(),
        "age": rng.uniform(18, 80, ROWS).tolist(),
        "device": rng.choice(["ios", "web"], ROWS).tolist(),
    }


@pytest.fixture(params=["memory", "parquet", "csv"])
def kept(request, log, tmp_path):
    """The log in memory, and in files."""
    return in_form(request.param, log, tmp_path)


def test_a_schema_is_learned_from_the_first_rows_whatever_the_format(log, kept):
    reader = read_log(kept, arms=ARMS)
    assert reader.infer_schema(["age", "device"]) == {"age": "number", "device": ["ios", "web"]}
    assert reader.infer_schema(["age"], first=10) == {"age": "number"}
    with pytest.raises(LogError, match="no column 'nothing'"):
        reader.infer_schema(["nothing"])


def test_csv_says_numbers_and_truths_as_text(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"home,film,{i},{i % 2 == 0},{'' if i % 3 else 'x'},{i % 2}" for i in range(30)]
    path.write_text("\n".join(["key,arm,age,new,label,flag", *rows]))
    found = read_log(path, arms=["film"]).infer_schema(["age", "new", "label", "flag"])
    assert found == {"age": "number", "new": "boolean", "label": ["x"], "flag": "number"}


def test_columns_named_for_a_policy_with_a_schema_are_what_it_says_of_them(log):
    named = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1).fit_log(
        log, arms=ARMS, columns={"context": ["age", "device"]}
    )
    said = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1).fit_log(log, arms=ARMS)
    who = {"age": 70, "device": "ios"}
    np.testing.assert_array_equal(named.probabilities(context=who), said.probabilities(context=who))


def test_lists_that_are_ragged_or_missing_name_their_row():
    contexts = [[1.0, 2.0], None, [3.0]]
    log = {"key": ["a"] * 3, "arm": ["film"] * 3, "reward": [1.0] * 3, "context": contexts}
    assert [batch["context"].to_pylist() for batch in read_log(log, arms=ARMS)] == [contexts]
    learner = tacit.Learner(tacit.auto(arms=ARMS, context_dim=2), seed=1)
    with pytest.raises(LogError, match="row 2: context: it has 0 numbers"):
        learner.fit_log(log, arms=ARMS)


def asked(*arguments):
    return CliRunner().invoke(cli, list(map(str, arguments)))


def test_the_command_line_learns_what_columns_hold(log, tmp_path):
    columns = as_file(log, tmp_path / "log.csv"), "--arms", ",".join(ARMS), "--column"
    suggested = asked("schema", *columns, "context=age,device")
    assert suggested.output == 'context = { age = "number", device = ["ios", "web"] }\n'
    (tmp_path / "schema.toml").write_text(suggested.output)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    made = []
    for i, said in enumerate(("age,device", f"@{tmp_path}/schema.toml", f"@{tmp_path}/schema.json")):
        out = tmp_path / f"{i}.tacit"
        result = asked("fit", *columns, f"context={said}", "-o", out)
        assert result.exit_code == 0, result.output
        made.append(tacit.Learner.load(out))
    who = {"age": 70, "device": "ios"}
    chances = [learner.probabilities(context=who).tolist() for learner in made]
    assert chances[0] == chances[1] == chances[2]
    assert made[0].policy.schema == (("age", "number"), ("device", ("ios", "web")))
    typed = "context-mixture(context={'age': 'number', 'device': ['ios', 'web']})"
    result = asked("evaluate", *columns, "context=age,device", "--policy", typed, "--passes", 1)
    assert result.exit_code == 0, result.output
    result = asked("fit", *columns[:-1], "--policy", typed, "-o", tmp_path / "typed.tacit")
    assert result.exit_code == 0, result.output
    assert tacit.Learner.load(tmp_path / "typed.tacit").probabilities(context=who).tolist() == chances[0]
    single = asked("evaluate", *columns, "context=age", "--policy", "auto", "--passes", 1)
    assert "ContextMixture" in single.output


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("@nothing.toml", "cannot be read"),
        ("@{}/wrong.toml", "context.age"),
        ("@{}/list.json", "name each field"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(tmp_path, said, message):
    (tmp_path / "wrong.toml").write_text('context = { age = "numbers" }')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "log.csv").write_text("key,arm,age\na,film,3\n")
    columns = "--column", f"context={said.format(tmp_path)}"
    result = asked("fit", tmp_path / "log.csv", "--arms", "film", "-o", "l", *columns)
    assert result.exit_code == 2
    assert message in result.output


# What a policy does not read, and what was on offer ------------------------------------------------


@pytest.mark.parametrize("columns", [None, {"context": ["age"]}], ids=["its own", "named"])
def test_contexts_that_a_policy_does_not_read_are_told_of_once(log, columns):
    plain, rows = tacit.Thompson(ARMS), log if columns else log | {"context": [[1.0]] * ROWS}
    reading = {"arms": ARMS, "columns": columns}
    target = tacit.ExplorationFloor(plain, 0.1)
    for work in (
        lambda: tacit.Learner(plain, seed=1).fit_log(rows, **reading),
        lambda: replay(plain, rows, passes=1, **reading),
        lambda: off_policy(target, rows, [IPS()], **reading),
    ):
        with pytest.warns(
            AssumptionWarning, match=r"^context: .*Thompson.* reads none, .*\((age|context)\)"
        ) as said:
            work()
        assert len(said) == 1


def test_where_contexts_are_read_nothing_is_said_of_them(log):
    read, rows = tacit.auto(arms=ARMS, context=SCHEMA), log | {"context": [None] * ROWS}
    with warnings.catch_warnings(action="error"):
        tacit.Learner(read, seed=1).fit_log(log, arms=ARMS)
        tacit.Learner(tacit.Thompson(ARMS), seed=1).fit_log(log, arms=ARMS)
        tacit.Learner(tacit.Thompson(ARMS), seed=1).fit_log(rows, arms=ARMS)
        off_policy(tacit.Thompson(ARMS), log, [DoublyRobust()], arms=ARMS, columns={"context": ["age"]})


def test_what_was_on_offer_in_each_row_counts_for_contextual_policies(tmp_path):
    """Three arms, of which two or three were on offer: songs are for those above 50."""
    rng, arms = np.random.default_rng(5), ["film", "song", "game"]
    offered = [sorted(rng.choice(arms, rng.integers(2, 4), replace=False).tolist()) for _ in range(ROWS)]
    age = rng.uniform(18, 80, ROWS).tolist()
    arm = [offer[rng.integers(len(offer))] for offer in offered]
    log = {
        "key": ["home"] * ROWS,
        "arm": arm,
        "offered": offered,
        "propensity": [1 / len(offer) for offer in offered],
        "reward": [float((shown == "song") == (years > 50)) for shown, years in zip(arm, age, strict=True)],
        "age": age,
    }
    policy, columns = tacit.auto(arms=arms, context={"age": "number"}), {"arms": "offered"}
    learner = tacit.Learner(policy, seed=1).fit_log(log, columns=columns)
    replayed = replay(policy, log, columns=columns, passes=2)
    assert replayed.estimate > replayed.logged + 0.1
    found = off_policy(learner, log, [IPS(), DoublyRobust()], columns=columns)
    for estimate in found.estimates:
        assert estimate.value > found.logged + 0.1
    path = as_file(log, tmp_path / "log.jsonl")
    columns = "--column", "arms=offered", "--column", "context=age"
    result = asked("evaluate", path, "--policy", "auto", "--passes", 1, *columns)
    assert result.exit_code == 0, result.output
    assert "ContextMixture" in result.output


@pytest.mark.parametrize("form", ["memory", "jsonl", "parquet"])
def test_contexts_with_names_in_one_column_are_read_by_a_schema(log, tmp_path, form):
    named = [{"age": age, "device": device} for age, device in zip(log["age"], log["device"], strict=True)]
    rows = {name: log[name] for name in ("key", "arm", "propensity", "reward")} | {"context": named}
    given = in_form(form, pa.table(rows), tmp_path)
    policy = tacit.auto(arms=ARMS, context=SCHEMA)
    ours, theirs = (tacit.Learner(policy, seed=1).fit_log(each, arms=ARMS) for each in (given, log))
    who = {"age": 70, "device": "ios"}
    np.testing.assert_array_equal(ours.probabilities(context=who), theirs.probabilities(context=who))
    assert replay(policy, given, arms=ARMS, passes=1).rows == ROWS
    wrong = tacit.Learner(tacit.auto(arms=ARMS, context={"device": "boolean"}), seed=1)
    with pytest.raises(LogError, match=r"context\[0\]\.device: .*True or False"):
        wrong.fit_log(given, arms=ARMS)
