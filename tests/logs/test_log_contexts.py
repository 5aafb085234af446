"""Contextual policies judged on logs: contexts made of a log's columns, by numbers or by a schema."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from log_files import as_file, in_form

import tacit
from tacit import cluster
from tacit.cli import cli
from tacit.errors import AssumptionWarning, LogError
from tacit.evaluate import (
    IPS,
    ArmMeans,
    ArmRidges,
    DirectMethod,
    DoublyRobust,
    Learning,
    Probabilities,
    Rewards,
    SwitchDR,
    Table,
    Uniform,
    off_policy,
    replay,
)
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
    (batch,) = read_log(path, columns={"context": (SCHEMA | {"new": "boolean"})}, arms=ARMS)
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
    assert found.low > replay(tacit.Thompson(ARMS), log, seed=1, passes=3, arms=ARMS).high


def test_it_is_replayed_alike_in_parts(log):
    policy = tacit.auto(arms=ARMS, context=SCHEMA)
    here = replay(policy, log, seed=1, passes=2, arms=ARMS)
    assert cluster.replay(policy, read_log(log, arms=ARMS), seed=1, passes=2) == here


def test_it_is_weighed_beside_a_fixed_one(log):
    target = Learning(tacit.auto(arms=ARMS, context_dim=1))
    found = off_policy(target, log, arms=ARMS, columns={"context": ["age"]})
    # Whoever ignores who is asking earns 0.4.
    assert found.estimates[1].intervals["normal"][0] > 0.45


def test_a_learner_begins_with_a_log_and_goes_on_with_dicts(log):
    learner = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1).fit_log(log, arms=ARMS)
    assert learner.decisions == ROWS
    assert learner.choose(context={"age": 75, "device": "web"}).arm == "song"
    assert learner.choose(context={"age": 20}).arm == "film"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"context: None does not fit.*columns=\{'context'"),
        ({"context": ["aeg"]}, "context: there is no column 'aeg'.*did you mean 'age'"),
        ({"context": ["device"]}, "context: device holds no numbers"),
    ],
)
def test_a_log_whose_contexts_are_missing_or_wrong_says_how_to_give_them(log, columns, message):
    with pytest.raises(LogError, match=message):
        replay(tacit.auto(arms=ARMS, context_dim=1), log, columns=columns, arms=ARMS, strict=True)


def test_a_value_that_is_not_what_its_field_holds_names_its_rows(log):
    with pytest.raises(LogError, match=r"rows 1 to .*context\[0\]\.device: .* give True or False"):
        list(read_log(log, columns={"context": {"device": "boolean"}}, arms=ARMS))


def test_the_command_line_takes_columns_with_commas(log, tmp_path):
    path = as_file(log | {"visits": np.zeros(ROWS)}, tmp_path / "log.parquet")
    told = ["evaluate", str(path), "--arms", "film,song", "--passes", "1", "--column", "context=age,visits"]
    found = CliRunner().invoke(cli, [*told, "--policy", "context-mixture(context_dim=2)"])
    assert found.exit_code == 0, found.output
    assert "ContextMixture(context_dim=2), replayed on 3,000 logged rows" in found.output
    policy = tacit.auto(arms=ARMS, context=["age", "visits"])
    assert policy == tacit.auto(arms=ARMS, context={"age": "number", "visits": "number"})
    found = CliRunner().invoke(cli, [*told[:-2], "--policy", "auto(context=['age', 'visits'])", "--json"])
    assert (
        json.loads(found.stdout)["policy"] == f"ContextMixture(context_dim=4, context={dict(policy.context)})"
    )


# ---- A model of the rewards over the context: regressions of the log's other rows

LEAN = [IPS(), DirectMethod(), DoublyRobust()]


def with_contexts(log, offset=0.0):
    """Return the log with its ages, and visits that say nothing, as contexts."""
    visits = np.random.default_rng(3).poisson(4, ROWS)
    return log | {"context": np.column_stack([log["age"] + offset, visits]).tolist()}


def fitted_by_hand(log, folds, strength, penalty):
    """Return what the arms earn in each row by a plain ridge on the rows of other folds."""
    given, reward = np.array(log["context"]), np.asarray(log["reward"])
    fold, found = np.arange(ROWS) % folds, np.zeros((ROWS, len(ARMS)))
    for number in range(folds):
        train, held = fold != number, fold == number
        scaled = (given - given[train].mean(axis=0)) / given[train].std(axis=0)
        features, mean = np.column_stack([np.ones(ROWS), scaled]), reward[train].mean()
        for place, arm in enumerate(ARMS):
            mine = train & (log["arm"] == arm)
            held_back = np.diag([strength, penalty, penalty])
            products = features[mine].T @ features[mine] + held_back
            weights = np.linalg.solve(products, features[mine].T @ (reward[mine] - mean))
            found[held, place] = np.clip(mean + features[held] @ weights, 0, 1)
    return found


def test_rewards_are_regressed_on_the_context_of_other_rows(log):
    given = with_contexts(log)
    expected = fitted_by_hand(given, folds=3, strength=10.0, penalty=7.0)
    model = ArmRidges(folds=3, penalty=7.0)
    target = Table({"film": 0.3, "song": 0.7})
    dm, dr = off_policy(target, given, [DirectMethod(model), DoublyRobust(model)], arms=ARMS).estimates
    direct = expected @ [0.3, 0.7]
    assert dm.value == pytest.approx(direct.mean(), abs=1e-9)
    slot = (log["arm"] == "song").astype(int)
    weight = np.array([0.3, 0.7])[slot] / 0.5
    errors = log["reward"] - expected[np.arange(ROWS), slot]
    assert dr.value == pytest.approx((direct + weight * errors).mean(), abs=1e-9)


def test_large_numbers_that_hardly_vary_are_regressed_on_as_well(log):
    near, far = (off_policy(Uniform(), with_contexts(log, by), LEAN, arms=ARMS) for by in (0.0, 1e9))
    for one, other in zip(near.estimates, far.estimates, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-6)


def test_doubly_robust_is_the_sharper_for_the_context(log):
    older = Learning(tacit.auto(arms=ARMS, context_dim=2))
    blind = [DoublyRobust(ArmMeans())]
    ips, _, sharp, plain = off_policy(older, with_contexts(log), LEAN + blind, arms=ARMS).estimates
    # A context explains a third of the rewards' variance here; the estimates are of the same rows.
    assert sharp.standard_error < plain.standard_error < ips.standard_error


def test_without_a_context_means_of_arms_are_what_is_regressed(log):
    ridge, means = (
        off_policy(Uniform(), log, [DirectMethod(model)], arms=ARMS).estimates[0].value
        for model in (None, ArmMeans())
    )
    assert ridge == pytest.approx(means, abs=1e-12)


def test_contexts_of_several_lengths_have_models_of_their_own(log):
    both = with_contexts(log)
    whole = pa.array(both["context"])  # half of them null, with numbers that the nulls hide
    half = pa.ListArray.from_arrays(whole.offsets, whole.values, mask=pa.array(np.arange(ROWS) % 2 == 0))
    mixed = off_policy(Uniform(), pa.table(both | {"context": half}), LEAN, arms=ARMS)
    assert mixed.estimates[2].standard_error < mixed.estimates[0].standard_error
    ragged = [[0.0] * (row % 30) for row in range(ROWS)]
    with pytest.raises(LogError, match="context: of more than 20 different lengths"):
        off_policy(Uniform(), pa.table(both | {"context": ragged}), LEAN, arms=ARMS)


def test_the_regressions_are_the_same_however_many_work_at_them(log, tmp_path):
    whole = pa.table(with_contexts(log, 1e6))
    for part in range(4):
        pq.write_table(whole.slice(part * 800, 800), tmp_path / f"{part}.csv.parquet", row_group_size=300)
    reader = read_log(tmp_path, arms=ARMS)
    here = off_policy(Uniform(), reader, LEAN)
    alone, many = (cluster.off_policy(Uniform(), reader, LEAN, workers=n) for n in (1, 4))
    assert [each.value for each in alone.estimates] == [each.value for each in many.estimates]
    for one, other in zip(here.estimates, many.estimates, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-9)


def test_the_direct_method_of_a_contextual_learner_is_worked_by_hand(log):
    few, policy = 40, tacit.auto(arms=ARMS, context_dim=1)
    rows = {name: column[:few] for name, column in log.items()}
    rows["context"] = rows["age"][:, None].tolist()
    learner, values = tacit.Learner(policy, seed=1), []
    for row in range(few):
        values.append(learner.probabilities(context=rows["context"][row]) @ [0.2, 0.6])
        learner.fit_log({name: [column[row]] for name, column in rows.items()}, arms=ARMS)
    model = Rewards({"film": 0.2, "song": 0.6})
    (found,) = off_policy(policy, rows, [DirectMethod(model)], arms=ARMS).estimates
    assert found.value == pytest.approx(np.mean(values), abs=1e-12)


def test_what_switch_dr_leaves_to_the_model_has_no_interval(log):
    target = Table({"song": 1.0})
    with pytest.warns(AssumptionWarning, match="left to the model"):
        switched, kept = off_policy(
            target, log, [SwitchDR(threshold=1.5), SwitchDR(threshold=2)], arms=ARMS
        ).estimates
    assert switched.intervals == {}
    assert switched.mean_weight == kept.mean_weight
    assert "normal" in kept.intervals


# ---- Targets that look at who is asking: functions, tables, learners


@pytest.fixture(params=["memory", "parquet", "csv"])
def kept(request, log, tmp_path):
    """The log in memory, and in files."""
    return in_form(request.param, log, tmp_path)


def older(batch):
    """Return songs for those above 50, films for others."""
    age = np.array(batch["age"].to_pylist(), float)
    return np.column_stack([age <= 50, age > 50]).astype(float)


def test_a_function_of_named_columns_is_a_target(log, kept):
    (found,) = off_policy(Probabilities(older, ARMS, columns=["age"]), kept, [IPS()], arms=ARMS).estimates
    right = (log["arm"] == "song") == (log["age"] > 50)
    assert found.value == pytest.approx((right * log["reward"] / 0.5).mean(), abs=1e-12)


def test_a_table_has_a_row_for_each_segment_of_any_column(log, kept):
    numbers = {"ios": {"film": 0.9, "song": 0.1}, "web": {"film": 0.2, "song": 0.8}}
    (found,) = off_policy(Table(numbers, per="device"), kept, [IPS()], arms=ARMS).estimates
    share = np.array([numbers[d][a] for d, a in zip(log["device"], log["arm"], strict=True)])
    assert found.value == pytest.approx((share * log["reward"] / 0.5).mean(), abs=1e-12)
    with pytest.raises(LogError, match="device: the target policy has no probabilities for 'web'"):
        off_policy(Table({"ios": {"film": 1.0}}, per="device"), kept, arms=ARMS)


def test_what_is_true_or_false_has_a_row_for_each_in_a_table(log):
    table = Table({True: {"song": 1.0}, False: {"film": 1.0}}, per="old")
    (found,) = off_policy(table, log | {"old": log["age"] > 50}, [IPS()], arms=ARMS).estimates
    (by_age,) = off_policy(Probabilities(older, ARMS, columns=["age"]), log, [IPS()], arms=ARMS).estimates
    assert found.value == pytest.approx(by_age.value, abs=1e-12)


def test_a_learning_policy_is_weighed_by_the_schema_that_it_declares(kept):
    found = off_policy(tacit.auto(arms=ARMS, context=SCHEMA), kept, arms=ARMS)
    # Whoever ignores who is asking earns 0.4.
    assert found.estimates[1].intervals["normal"][0] > 0.45


def test_a_frozen_learner_is_weighed_by_what_it_believes(log, kept, tmp_path):
    learner = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1)
    learner.fit_log({name: column[:300] for name, column in log.items()}, arms=ARMS)
    expected = [
        learner.probabilities("home", {"age": age, "device": device})[ARMS.index(arm)] * reward / 0.5
        for age, device, arm, reward in zip(
            *(log[name] for name in ("age", "device", "arm", "reward")), strict=True
        )
    ]
    learner.save(tmp_path / "learner")
    (found,) = off_policy(learner, kept, [IPS()], arms=ARMS).estimates
    assert found.value == pytest.approx(np.mean(expected), abs=1e-12)
    learner.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "learner").read_bytes()
    path = as_file(log | {"context": learner_columns(log)}, tmp_path / "log.parquet")
    told = ["evaluate", str(path), "--arms", "film,song", "--policy", f"learner:{tmp_path / 'learner'}"]
    said = CliRunner().invoke(cli, [*told, "--estimator", "ips,dr", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["estimates"][0]["value"] == pytest.approx(found.value, abs=1e-9)


def learner_columns(log):
    """Return the contexts that the schema makes of a log."""
    (batch,) = read_log(log, columns={"context": SCHEMA}, arms=ARMS)
    return batch["context"].to_pylist()


def test_targets_by_context_are_the_same_in_parts(log, tmp_path):
    reader = read_log(as_file(log, tmp_path / "log.parquet"), arms=ARMS)
    learner = tacit.Learner(tacit.auto(arms=ARMS, context=SCHEMA), seed=1)
    numbers = {"ios": {"film": 1.0}, "web": {"song": 1.0}}
    for target in (Probabilities(older, ARMS, columns=["age"]), Table(numbers, per="device"), learner):
        here, parts = (off_policy(target, reader), cluster.off_policy(target, reader))
        assert [each.value for each in parts.estimates] == [each.value for each in here.estimates]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", '{"device": {"ios": {"film": 1}, "web": {"song": 1}}}'),
        ("t.csv", "device,arm,probability\nios,film,1\nweb,song,1\n"),
    ],
)
def test_the_command_line_takes_tables_per_column(log, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    path = as_file(log, tmp_path / "log.parquet")
    told = ["evaluate", str(path), "--arms", "film,song", "--policy", f"table:{tmp_path / name}"]
    said = CliRunner().invoke(cli, [*told, "--estimator", "ips,snips,dm,dr", "--json"])
    assert said.exit_code == 0, said.output
    numbers = {"ios": {"film": 1.0}, "web": {"song": 1.0}}
    (found,) = off_policy(Table(numbers, per="device"), log, [IPS()], arms=ARMS).estimates
    assert json.loads(said.stdout)["estimates"][0]["value"] == pytest.approx(found.value, abs=1e-9)


def test_a_log_that_as_good_as_never_shows_what_the_target_would_is_refused(log):
    # As of a contextual policy without a floor, once it is sure: other arms have some 1e-9.
    sure = log | {"propensity": np.where(np.arange(ROWS) == 70, 1 - 2e-9, 0.5)}
    with pytest.raises(LogError, match=r"row 71: .*certain but for 2e-09 .*exploration-floor\(auto, eps"):
        off_policy(Uniform(), sure, arms=ARMS)
    # Whoever shows the same there is judged all the same.
    arm = log["arm"][70]
    same = Probabilities(
        lambda batch: np.where(np.array(batch["age"])[:, None] == log["age"][70], np.array(ARMS) == arm, 0.5),
        ARMS,
        columns=["age"],
    )
    assert off_policy(same, sure, arms=ARMS).rows == ROWS
