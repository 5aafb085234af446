"""A log that is evaluated in parts: what is merged is what one process finds."""

import dataclasses
import inspect
import json
import os
import signal
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit import cluster, evaluate
from tacit.errors import InvalidValue, LogError, UnfitLog
from tacit.evaluate import (
    IPS,
    SNIPS,
    ArmMeans,
    CascadeIPS,
    DirectMethod,
    DoublyRobust,
    IndependentIPS,
    Probabilities,
    SwitchDR,
    Table,
    Uniform,
)
from tacit.evaluate.evaluation import OffPolicyEvaluation
from tacit.evaluate.intervals import sum_units
from tacit.evaluate.options import OffPolicyOptions, ReplayOptions
from tacit.evaluate.rewards import ArmCounts
from tacit.evaluate.rows import RowReader
from tacit.evaluate.windows import ReplayConfig
from tacit.logs import parts as cutting
from tacit.logs.parts import KeyShard, assign_shards, split_log

ARMS = ["film", "holiday", "flag", "hat"]
CHANCES = np.array([0.4, 0.3, 0.2, 0.1])
TARGET = Table(dict(zip(ARMS, [0.1, 0.2, 0.3, 0.4], strict=True)))


def rows_of(rows, seed, *, keys=7, arms=ARMS):
    """Return logged rows in which some got no feedback."""
    rng = np.random.default_rng(seed)
    shown = rng.choice(len(arms), size=rows, p=CHANCES[: len(arms)] / CHANCES[: len(arms)].sum())
    reward = (rng.random(rows) < 0.1 * (1 + shown)).astype(float)
    return pa.table(
        {
            "timestamp": pa.array(np.arange(rows), pa.timestamp("us", "UTC")),
            "decision_id": [f"{seed}-{row // 3}" for row in range(rows)],
            "placement": ["home"] * rows,
            "key": [f"query {key}" for key in rng.integers(keys, size=rows)],
            "arms": [arms] * rows,
            "arm": [arms[arm] for arm in shown],
            "position": pa.array(np.arange(rows) % 3, pa.int32()),
            "propensity": (CHANCES[: len(arms)] / CHANCES[: len(arms)].sum())[shown],
            "reward": pa.array(reward, mask=rng.random(rows) < 0.1),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A partitioned log: three files of several row groups in folders of their own.

    The first offers two arms only, so that the parts meet the arms in different orders.
    """
    root = tmp_path_factory.mktemp("logs")
    for file, (rows, arms) in enumerate([(300, ARMS[:2]), (801, ARMS), (450, ARMS)]):
        (root / f"day={file}").mkdir()
        table = rows_of(rows, file, arms=arms)
        pyarrow.parquet.write_table(table, root / f"day={file}/part.parquet", row_group_size=97)
    (root / "_SUCCESS").touch()
    (root / "_temporary").mkdir()
    (root / "_temporary/half.parquet").write_bytes(b"PAR1")
    return root


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Cut every 200 rows."""
    monkeypatch.setattr(cutting.split_log, "__defaults__", (200,))


def the_same(ours, theirs, *, but=()):
    """Compare all numbers of two results."""
    for mine, other in zip(ours.table(), theirs.table(), strict=True):
        for name in mine.keys() - set(but):
            if isinstance(mine[name], float):
                assert mine[name] == pytest.approx(other[name], rel=1e-9, abs=1e-12, nan_ok=True), name
            else:
                assert mine[name] == other[name], name
    for name in ("target", "rows", "unanswered", "never_shown", "confidence"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.logged == pytest.approx(theirs.logged, rel=1e-12)


# Where logs are -----------------------------------------------------------------------------


def test_a_folder_a_pattern_and_a_url_name_the_same_files(folder):
    places = [folder, f"{folder}/day=*", f"{folder}/day=*/*.parquet", folder.as_uri()]
    places += [f"{folder.as_uri()}/day=*/part.parquet", f"{folder.as_uri()}/day=*"]
    assert {sum(len(batch) for batch in tacit.read_log(place)) for place in places} == {300 + 801 + 450}
    files = [folder / f"day={file}/part.parquet" for file in (1, 0)]
    assert [str(file.path) for file in tacit.read_log(files).files] == list(map(str, files))
    (one,) = tacit.read_log((folder / "day=2/part.parquet").as_uri()).files
    assert one.path.name == "part.parquet"


@pytest.mark.parametrize("place", ["{}/night=*", "file://{}/night=*", "file://{}/nothing"])
def test_a_place_without_files_is_an_error_that_names_it(folder, place):
    with pytest.raises(LogError, match=r"night|nothing"):
        tacit.read_log(place.format(folder))


def test_other_formats_are_not_read_by_url(tmp_path):
    (tmp_path / "log.csv").write_text("key\n")
    with pytest.raises(InvalidValue, match="copy other logs here"):
        tacit.read_log((tmp_path / "log.csv").as_uri())


# Parts --------------------------------------------------------------------------------------


def test_parts_are_cut_between_row_groups_and_hold_every_row_once(folder):
    log = tacit.read_log(folder)
    parts = split_log(log)
    # 97·4 rows are the first to reach 200 after 97·2, whatever the file.
    assert sum(part.rows for part in parts) == 1551
    assert all(part.rows >= 200 for part in parts[:-1])
    read = [rows for part in parts for rows in RowReader(()).read(part)]
    assert sum(len(rows.reward) for rows in read) == 1551
    (whole,) = split_log(log, 10_000)
    assert whole.groups == ((0, 4), (0, 9), (0, 5))
    assert len(split_log(log, whole_files=True)) == 3


def test_a_bad_row_is_named_by_its_place_in_the_file(folder, tmp_path):
    table = rows_of(500, 1).set_column(7, "propensity", pa.array([0.5] * 450 + [1.0] * 50))
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    with pytest.raises(UnfitLog, match=r"log.parquet: row 451: propensity"):
        cluster.off_policy(Uniform(), tmp_path)


ESTIMATORS = [
    IPS(),
    SNIPS(clip=3),
    DirectMethod(),
    DoublyRobust(),
    DoublyRobust(ArmMeans("key", folds=3)),
    SwitchDR(ArmMeans("position"), threshold=2),
]


@pytest.mark.parametrize("missing_reward", [0.0, None])
@pytest.mark.parametrize("grouping", [None, "key", "decision_id"])
def test_estimates_in_parts_are_those_of_one_process(folder, missing_reward, grouping):
    options = {"missing_reward": missing_reward, "cluster": grouping, "seed": 3}
    ours = cluster.off_policy(Uniform(), folder, ESTIMATORS, **options)
    the_same(ours, evaluate.off_policy(Uniform(), tacit.read_log(folder), ESTIMATORS, **options))


def test_a_table_per_key_a_logging_policy_and_a_bound_too(folder):
    table = {f"query {key}": {"film": 0.5, "holiday": 0.5} for key in range(7)}
    options = {"logging": Uniform(), "weight_bound": 5.0}
    target = Table(table, per="key")
    ours = cluster.off_policy(target, folder, ESTIMATORS, **options)
    the_same(ours, evaluate.off_policy(target, tacit.read_log(folder), ESTIMATORS, **options))


def test_models_that_were_fitted_before_know_which_rows_are_whose(folder):
    log = tacit.read_log(folder)
    fitted = [DoublyRobust(ArmMeans().fit(log)), DoublyRobust(ArmMeans("key").fit(log))]
    the_same(cluster.off_policy(Uniform(), log, fitted), evaluate.off_policy(Uniform(), log, fitted))


def test_slates_are_weighted_whole_and_may_not_lie_in_two_parts(folder, tmp_path, monkeypatch):
    estimators = [IndependentIPS(3), CascadeIPS(3), IPS()]
    log = tacit.read_log(folder)
    the_same(cluster.off_policy(Uniform(), log, estimators), evaluate.off_policy(Uniform(), log, estimators))
    table = rows_of(30, 1)
    for file, part in enumerate([table.slice(0, 16), table.slice(16)]):
        pyarrow.parquet.write_table(part, tmp_path / f"{file}.parquet")
    log = tacit.read_log(tmp_path)
    some = estimators[:2]
    the_same(cluster.off_policy(Uniform(), log, some), evaluate.off_policy(Uniform(), log, some))
    monkeypatch.setattr(cutting.split_log, "__defaults__", (10,))
    with pytest.raises(UnfitLog, match="'1-5' lies in two files"):
        cluster.off_policy(Uniform(), log, estimators)


def test_rejected_rows_are_reported_and_leave_the_rest_as_it_is(folder, tmp_path):
    table = rows_of(900, 5)
    table = table.set_column(8, "reward", pa.array(np.where(np.arange(900) % 50 == 7, 2.0, 1.0)))
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    (tmp_path / "more.csv").write_text("timestamp,decision_id,placement,key,arms,arm\n")
    log, one = tacit.read_log(tmp_path), tacit.read_log(tmp_path)
    the_same(cluster.off_policy(TARGET, log, ESTIMATORS), evaluate.off_policy(TARGET, one, ESTIMATORS))
    assert log.report.rejected == one.report.rejected == {"reward-outside-range": 18}
    assert log.report == one.report


def test_an_arm_that_is_never_shown_is_named_although_another_part_offers_it(tmp_path):
    for file, arms in enumerate([ARMS[:2], [*ARMS[:2], "never"]]):
        table = rows_of(300, file, arms=ARMS[:2]).set_column(4, "arms", [[arms] * 300])
        pyarrow.parquet.write_table(table, tmp_path / f"{file}.parquet")
    assert cluster.off_policy(Uniform(), tmp_path).never_shown == ("never",)


@examples(50)
@given(st.lists(st.floats(0.0, 5.0), max_size=40), st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_sums_of_parts_are_the_sums_of_the_whole_wherever_it_is_cut(weights, a, b, groups):
    weights = np.array(weights)
    values = weights**2 - 1.0
    cuts = sorted([min(a, len(weights)), min(b, len(weights))])
    pairs = zip(np.split(weights, cuts), np.split(values, cuts), strict=True)
    parts = [sum_units(w, v, groups) for w, v in pairs]
    merged = reduce(lambda before, after: before.merge(after.rotate_groups(before.n)), parts)
    for ours, theirs in zip(merged, sum_units(weights, values, groups), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_counts_of_parts_turn_by_the_rows_before_them():
    # Folds of rows 0, 1, 2 | 3, 4 in the whole: 0, 1, 0 | 1, 0.
    first = ArmCounts(
        3, [""], ["a", "b"], np.array([[[2.0, 0.0]], [[0.0, 1.0]]]), np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    )
    second = ArmCounts(
        2, [""], ["c", "a"], np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([[[1.0, 0.0]], [[0.0, 0.0]]])
    )
    both = first.merge(second)
    assert both.arms == ["a", "b", "c"]
    assert both.plays.tolist() == [[[3.0, 0.0, 0.0]], [[0.0, 1.0, 1.0]]]
    assert both.total.tolist() == [[[1.0, 0.0, 0.0]], [[0.0, 1.0, 1.0]]]


# Policies that learn ------------------------------------------------------------------------

LEARNING = tacit.Thompson(arms=ARMS)


def test_shards_hold_whole_keys_and_all_rows(folder):
    log = tacit.read_log(folder)
    table = pa.Table.from_batches(log)
    which = assign_shards(table["placement"].combine_chunks(), table["key"].combine_chunks(), 3)
    keys = np.array(table["key"].to_pylist())
    assert all(len(set(which[keys == key])) == 1 for key in set(keys))
    assert len(set(which)) > 1
    for shard in range(3):
        read = RowReader({"key"}).read(KeyShard(log, shard, 3))
        assert sum(len(rows.reward) for rows in read) == (which == shard).sum()


def test_a_policy_that_learns_each_key_alone_is_weighted_alike_in_shards(folder):
    whole = evaluate.off_policy(LEARNING, tacit.read_log(folder))
    the_same(cluster.off_policy(LEARNING, folder), whole)
    the_same(cluster.off_policy(LEARNING, folder, shards=3), whole, but=["bootstrap_low", "bootstrap_high"])
    by_key = evaluate.off_policy(LEARNING, tacit.read_log(folder), cluster="key")
    the_same(cluster.off_policy(LEARNING, folder, shards=3, cluster="key"), by_key)


@pytest.fixture(scope="module")
def uniform(tmp_path_factory):
    """A log of uniform choices."""
    table = rows_of(2000, 4)
    shown = np.random.default_rng(1).integers(4, size=2000)
    table = table.set_column(5, "arm", pa.array([ARMS[arm] for arm in shown]))
    table = table.set_column(7, "propensity", pa.array([0.25] * 2000))
    path = tmp_path_factory.mktemp("uniform") / "log.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=300)
    return path


def test_passes_side_by_side_are_those_of_one_process(uniform):
    options = {"passes": 3, "seed": 2, "window": 700}
    whole = tacit.replay(LEARNING, uniform, **options)
    assert cluster.replay(LEARNING, uniform, **options) == whole


def test_shards_of_a_replay_add_up(uniform):
    result = cluster.replay(LEARNING, uniform, passes=2, shards=3)
    assert result.rows == 2000
    again = cluster.replay(LEARNING, uniform, passes=2, shards=3, workers=1)
    assert dataclasses.asdict(again) == dataclasses.asdict(result)
    # The log's arm is any of four, whatever is chosen: 500 ± 19.4 rows match, and 5 standard
    # deviations are exceeded once in 1.7 million.
    assert all(abs(matched - 500) < 97 for matched in result.matched)
    assert result.logged == tacit.replay(LEARNING, uniform, passes=1).logged


def test_arms_are_those_that_any_part_offers(folder):
    assert cluster.arms_of(folder) == evaluate.arms_of(tacit.read_log(folder))


# On Ray -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_two():
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def test_a_cluster_gives_the_same_also_when_a_worker_is_killed(folder, on_two, tmp_path):
    marker = str(tmp_path / "killed")

    def deadly(batch):
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((len(batch), 2), 0.5)

    def harmless(batch):
        return np.full((len(batch), 2), 0.5)

    with cluster.on_ray():
        ours = cluster.off_policy(Probabilities(deadly, ARMS[:2], columns=["key"]), folder, ESTIMATORS)
        replayed = cluster.off_policy(LEARNING, folder, shards=2)
    assert os.path.exists(marker)
    target = Probabilities(harmless, ARMS[:2], columns=["key"])
    log = tacit.read_log(folder)
    the_same(ours, evaluate.off_policy(target, log, ESTIMATORS))
    the_same(replayed, evaluate.off_policy(LEARNING, log), but=["bootstrap_low", "bootstrap_high"])


def test_errors_of_a_part_come_back_as_they_are(folder, on_two):
    with cluster.on_ray(), pytest.raises(UnfitLog, match=r"day=0.*'hat'"):
        cluster.off_policy(Table({"hat": 1.0}), folder)


def test_the_command_line_gives_the_same_on_ray(folder, uniform, on_two, capsys):
    from tacit.cli import cli

    def command(arguments):
        cli.main(arguments, standalone_mode=False)

    found = []
    for more in ([], ["--ray"]):
        command(["evaluate", f"{folder}/day=*", "--policy", "uniform", "--estimator", "ips,dr",
              "--json", *more])  # fmt: skip
        command(["evaluate", str(uniform), "--policy", "thompson", "--estimator", "replay,snips",
              "--passes", "2", "--json", *more])  # fmt: skip
        out = capsys.readouterr().out
        found.append([json.loads(part) for part in out.replace("}\n{", "}\0{").split("\0")])
    assert found[0][1] == found[1][1]
    for mine, other in zip(found[0][0]["estimates"], found[1][0]["estimates"], strict=True):
        for name, value in mine.items():
            same = value if value is None or isinstance(value, str) else pytest.approx(value, 1e-9)
            assert other[name] == same, name


@pytest.mark.parametrize(
    ("function", "options", "record"),
    [
        (evaluate.off_policy, OffPolicyOptions, OffPolicyEvaluation),
        (evaluate.replay, ReplayOptions, ReplayConfig),
    ],
)
def test_options_are_the_same_in_one_process_and_in_parts(function, options, record):
    """What a user sees, what is passed on, and what is checked and kept."""
    kept = {field.name: field.default for field in dataclasses.fields(record)}
    taken = inspect.signature(function).parameters
    assert {name: taken[name].default for name in options.__annotations__} == {
        name: kept[name] for name in options.__annotations__
    }
    asked = {"target", "policy", "estimators", "log", "progress", "reading"}
    assert set(taken) - asked == set(kept) - asked == set(options.__annotations__)
