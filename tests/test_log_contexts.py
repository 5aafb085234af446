"""Contextual policies judged on logs: contexts made of a log's columns, by numbers or by a schema."""

import numpy as np
import pytest
from click.testing import CliRunner

import tacit
from tacit import cluster
from tacit.cli import cli
from tacit.errors import LogError
from tacit.evaluate import Learning, off_policy, replay
from tacit.logs import read_log

ARMS = ["film", "song"]
SCHEMA = {"age": "number", "device": ["ios", "web"]}
ROWS = 3000


@pytest.fixture(scope="module")
def log():
    """Clicks at random: songs are for those above 50, whatever their device. The best earns 0.6."""
    rng = np.random.default_rng(11)
    age, device = rng.uniform(18, 80, ROWS), rng.choice(["ios", "web"], ROWS)
    arm = rng.choice(ARMS, ROWS)
    likes = (arm == "song") == (age > 50)
    return {
        "key": ["home"] * ROWS,
        "arm": arm,
        "propensity": np.full(ROWS, 0.5),
        "reward": (rng.random(ROWS) < np.where(likes, 0.6, 0.2)).astype(float),
        "age": age,
        "device": device,
    }


def test_numbers_of_several_columns_are_a_context(log):
    (batch, *_) = read_log(log, columns={"context": ["age"]}, arms=ARMS)
    assert batch["context"].to_pylist() == [[x] for x in log["age"][: len(batch)].tolist()]


def test_a_schema_makes_contexts_of_columns(log):
    (batch, *_) = read_log(log, columns={"context": SCHEMA}, arms=ARMS)
    people = zip(log["age"], log["device"] == "ios", strict=True)
    expected = [[age, 0, ios, not ios, 0, 0] for age, ios in people]
    assert batch["context"].to_pylist() == expected[: len(batch)]


def written_as_csv(path, rows):
    """Write rows of age, device and new, with what each click needs, and return the file."""
    head = "key,arm,propensity,reward,age,device,new"
    path.write_text("\n".join([head, *(f"home,film,0.5,1,{row}" for row in rows)]) + "\n")
    return path


def test_a_schema_makes_contexts_of_text(tmp_path):
    path = written_as_csv(tmp_path / "log.csv", ["31,web,true", ",ios,False", "2.5,,1"])
    holds = SCHEMA | {"new": "boolean"}
    (batch,) = read_log(path, columns={"context": holds}, arms=ARMS)
    assert batch["context"].to_pylist() == [
        [31.0, 0, 0, 1, 0, 0, 1, 0],
        [0.0, 1, 1, 0, 0, 0, 0, 0],
        [2.5, 0, 0, 0, 0, 1, 1, 0],
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("old,web,true", r"context\.age: .*'?old.* give a finite number"),
        ("3,web,maybe", "new: 'maybe' .* True or"),
    ],
)
def test_text_that_is_not_what_its_field_holds_is_refused(tmp_path, row, message):
    path = written_as_csv(tmp_path / "log.csv", [row])
    with pytest.raises(LogError, match=message):
        list(read_log(path, columns={"context": SCHEMA | {"new": "boolean"}}, arms=ARMS))


@pytest.mark.parametrize(
    ("policy", "reading"),
    [
        (tacit.auto(arms=ARMS, context=SCHEMA), {}),
        (tacit.auto(arms=ARMS, context_dim=1), {"columns": {"context": ["age"]}}),
    ],
)
def test_a_contextual_policy_is_replayed_and_earns_more(log, policy, reading):
    found = replay(policy, log, seed=1, passes=3, arms=ARMS, **reading)
    # Whoever ignores who is asking earns 0.4 at most; both intervals are of 95 %.
    blind = replay(tacit.Thompson(ARMS), log, seed=1, passes=3, arms=ARMS)
    assert found.low > blind.high


def test_it_is_replayed_alike_in_parts(log):
    policy = tacit.auto(arms=ARMS, context=SCHEMA)
    here = replay(policy, log, seed=1, passes=2, arms=ARMS)
    parts = cluster.replay(policy, read_log(log, arms=ARMS), seed=1, passes=2)
    assert parts == here


def test_it_is_weighed_beside_a_fixed_one(log):
    policy = tacit.auto(arms=ARMS, context_dim=1)
    target = Learning(tacit.ExplorationFloor(policy, 0.1))
    found = off_policy(target, log, arms=ARMS, columns={"context": ["age"]})
    # Whoever ignores who is asking earns 0.4.
    assert found.estimates[1].intervals["normal"][0] > 0.45


def test_a_learner_begins_with_a_log_and_goes_on_with_dicts(log):
    learner = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1)
    assert learner.fit_log(log, arms=ARMS) == ROWS
    assert learner.choose(context={"age": 75, "device": "web"}).arm == "song"
    assert learner.choose(context={"age": 20}).arm == "film"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"context: None does not fit.*columns=\{'context'"),
        ({"context": ["aeg"]}, "context: there is no column 'aeg'.*did you mean 'age'"),
        ({"context": ["device"]}, r"context: \[nan\] is not allowed \(context-not-finite\)"),
    ],
)
def test_a_log_whose_contexts_are_missing_or_wrong_says_how_to_give_them(log, columns, message):
    with pytest.raises(LogError, match=message):
        replay(tacit.auto(arms=ARMS, context_dim=1), log, columns=columns, arms=ARMS, strict=True)


def test_a_value_that_is_not_what_its_field_holds_names_its_rows(log):
    with pytest.raises(LogError, match=r"rows 1 to .*context\[0\]\.device: .* give True or False"):
        list(read_log(log, columns={"context": {"device": "boolean"}}, arms=ARMS))


def test_the_command_line_takes_columns_with_commas(log, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "log.parquet"
    both = log | {"visits": np.zeros(ROWS)}
    pq.write_table(pa.table(both), path)
    told = ["evaluate", str(path), "--arms", "film,song", "--passes", "1", "--column", "context=age,visits"]
    found = CliRunner().invoke(cli, [*told, "--policy", "context-mixture(context_dim=2)"])
    assert found.exit_code == 0, found.output
    assert "ContextMixture(context_dim=2), replayed on 3,000 logged rows" in found.output
