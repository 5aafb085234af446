"""What is accepted but likely a mistake is warned of, once, with how often and where first."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import tacit
from tacit import cluster
from tacit.cli import cli
from tacit.errors import AssumptionWarning
from tacit.evaluate import Uniform, examine, off_policy
from tacit.logs import data_warnings, write_log

ARMS = ["film", "holiday"]


def log_of(rows=2000, **columns):
    sound = {
        "decision_id": [str(row) for row in range(rows)],
        "key": ["tomato"] * rows,
        "arms": [ARMS] * rows,
        "arm": ARMS * (rows // 2),
        "propensity": [0.5] * rows,
        "reward": [0.0, 1.0] * (rows // 2),
    }
    return sound | columns


def told(function, *given, **options):
    """Return what was warned of."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        function(*given, **options)
    assert all(each.category is AssumptionWarning for each in caught)
    return [str(each.message) for each in caught]


def forms(log, folder):
    """Yield a log in memory, and as files of each format."""
    yield log
    table = pa.table(log)
    timed = table.append_column("timestamp", pa.array(["2017-07-04T12:00:00Z"] * len(table)))
    timed = timed.append_column("placement", pa.array(["home"] * len(table)))
    for suffix in ("csv", "jsonl"):
        write_log(timed, folder / f"log.{suffix}")
        yield folder / f"log.{suffix}"
    pyarrow.parquet.write_table(table, folder / "log.parquet", row_group_size=300)
    yield folder / "log.parquet"


def test_a_sound_log_is_told_nothing_of(tmp_path):
    for log in forms(log_of(), tmp_path):
        assert told(off_policy, Uniform(), log) == []


@pytest.mark.parametrize(
    ("ids", "count", "row"),
    [(["7"] * 2000, 1999, 2), ([str(row % 1000) for row in range(2000)], 1000, 1001)],
    ids=["one for all", "doubled rows"],
)
def test_decisions_that_are_told_twice(tmp_path, ids, count, row):
    for log in forms(log_of(decision_id=ids), tmp_path):
        source = "log" if isinstance(log, dict) else log
        (text,) = told(off_policy, Uniform(), log)
        assert text.startswith(
            f"decision_id: {count:,} rows repeat the decision and the position of an earlier row, "
            f"first {source} row {row}: {ids[row - 1]!r}; each counts anew"
        )
        assert "if another column names decisions, take it with columns={'decision_id': ANOTHER}" in text


def test_every_reader_of_logs_tells_of_them(tmp_path):
    log = log_of(decision_id=["7"] * 2000, position=[0, 1] * 1000)
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "log.parquet", row_group_size=300)
    learner = tacit.Learner(tacit.UCB1(ARMS))
    with warnings.catch_warnings(action="ignore"):
        twice = [
            told(examine, log, "randomization"),
            told(tacit.replay, tacit.UCB1(ARMS), log, passes=2),
            told(learner.fit_log, log),
            told(off_policy, Uniform(), tacit.read_log(log)),
            told(cluster.off_policy, Uniform(), tmp_path / "log.parquet"),
        ]
    assert [sum("1,998 rows repeat" in text for text in texts) for texts in twice] == [1] * 5


def test_lists_tell_each_decision_once(tmp_path):
    ids = [str(row // 2) for row in range(2000)]
    for log in forms(log_of(decision_id=ids, position=[0, 1] * 1000), tmp_path):
        assert told(off_policy, Uniform(), log) == []


@pytest.mark.parametrize(("step", "count"), [("s", 1000), ("D", 0)])
def test_rows_without_ids_are_copies_only_where_times_tell_rows_apart(tmp_path, step, count):
    times = np.datetime64("2026-01-01T00:00:00") + np.arange(1000).astype("timedelta64[s]")
    times = np.tile(times.astype(f"datetime64[{step}]").astype("datetime64[us]"), 2)
    log = {name: values for name, values in log_of(timestamp=times).items() if name != "decision_id"}
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "log.parquet", row_group_size=300)
    for form in (log, tmp_path / "log.parquet"):
        found = told(off_policy, Uniform(), form)
        assert ["1,000 rows repeat time, key, arm and reward" in text for text in found] == [True] * (
            count > 0
        )


def test_rows_of_several_placements_that_count_together(tmp_path):
    placed = log_of(placement=["home"] * 1500 + ["shop"] * 500)
    for form in (placed, tmp_path / "log.csv", tmp_path / "log.jsonl", tmp_path / "log.parquet"):
        if not isinstance(form, dict):
            write_log(placed | {"timestamp": ["2017-07-04T12:00:00Z"] * 2000}, form)
        for asked in (off_policy, cluster.off_policy) if form != placed else (off_policy,):
            (text,) = told(asked, Uniform(), form)
            source = "log" if form == placed else form
            assert text.startswith(
                f"placement: 500 rows are of another one than the first, first {source} row 1501: 'shop'; "
            )
            assert "by='placement' (--by placement)" in text
        assert told(off_policy, Uniform(), form, by="placement") == []
        assert told(tacit.Learner(tacit.UCB1(ARMS)).fit_log, form, placement="shop") == []
    assert len(told(tacit.replay, tacit.UCB1(ARMS), placed)) == 1


def test_so_many_rows_are_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(data_warnings, "DUPLICATE_CHECK_ROWS", 500)
    log = pa.table(log_of(decision_id=[str(row % 1000) for row in range(2000)]))
    pyarrow.parquet.write_table(log, tmp_path / "log.parquet", row_group_size=250)
    assert told(off_policy, Uniform(), tacit.read_log(log, batch_rows=250)) == []
    assert told(off_policy, Uniform(), tmp_path / "log.parquet") == []


@pytest.mark.parametrize("column", ["key", "arm"])
def test_names_with_blanks_around_them(tmp_path, column):
    plain = ["plan A", "plan A ", "\tplan B", "plan A"]
    log = log_of(4, arms=[sorted(set(plain))] * 4, propensity=[1 / 3] * 4, arm=plain[:1] * 4)
    for form in forms(log | {column: plain}, tmp_path):
        (text,) = [x for x in told(off_policy, Uniform(), form, cluster="key") if "blanks" in x]
        assert text.startswith(f"{column}: 2 rows have blanks around the name, or none, first ")
        assert " row 2: 'plan A '; " in text
        assert "strip the names" in text


def test_arms_that_differ_by_blanks_alone():
    (text,) = told(tacit.UCB1, ["plan A", "plan B", "plan A "])
    assert text.startswith("arms: 1 differ from another one by blanks around the name alone, first")
    assert "'plan A '" in text
    assert told(tacit.UCB1, [" plan A", "plan B"]) == []


def test_numbers_with_a_fraction_for_names(tmp_path):
    log = log_of(key=np.arange(1.0, 2001.0))
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    for form in (log, tmp_path / "log.parquet"):
        (text,) = told(off_policy, Uniform(), form, cluster="key")
        assert text.startswith("key: 2,000 rows have a number with a fraction for a name, first ")
        assert "row 1: 1.0; give text or whole numbers" in text


def test_the_command_line_says_it_once_and_to_machines_too(tmp_path):
    rows = "".join('7,tomato,"[""a"",""b""]",a,0.5,1\n' for _ in range(9))
    (tmp_path / "log.csv").write_text("decision_id,key,arms,arm,propensity,reward\n" + rows)
    asked = ["evaluate", str(tmp_path / "log.csv"), "--policy", "uniform", "--json"]
    with pytest.warns(AssumptionWarning, match="8 rows repeat"):
        run = CliRunner().invoke(cli, asked)
    (note,) = json.loads(run.stdout)["notes"]
    assert note.startswith("decision_id: 8 rows repeat")


# Learned twice ----------------------------------------------------------------------------------


def test_a_decision_that_is_learned_twice_is_told_once():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    first, second = learner.choose("tomato"), learner.choose("tomato")
    assert told(learner.learn, first, 1.0) == []
    (text,) = told(learner.learn, tacit.Decision.from_json(first.to_json()), 1.0)
    assert text.startswith("decision: 1 learned before and counted twice, first 0 of key 'tomato'")
    assert told(learner.learn, second, 1.0) == []
    assert told(learner.learn, second, 1.0) == []


def test_decisions_that_are_learned_twice_at_once_are_counted():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    decisions = learner.choose_many(["a", "b", "c"])
    assert told(learner.learn_many, decisions, [0.0] * 3) == []
    (text,) = told(learner.learn_many, decisions, [0.0] * 3)
    assert "3 learned before and counted twice, first 0 of key 'a'" in text


def test_decisions_of_other_learners_are_not_taken_for_ones_own():
    workers = [tacit.Learner(tacit.UCB1(2), seed=seed) for seed in range(3)]
    later = [[worker.choose("tomato") for _ in range(2)][1] for worker in workers]
    teacher = tacit.Learner(tacit.UCB1(2))
    teacher.choose("tomato")  # number 0; the others' are 1
    for decision in later:
        assert told(teacher.learn, decision, 1.0) == []


def test_many_decisions_each_learned_once_are_told_nothing_of():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    for _ in range(3):
        assert told(learner.learn_many, learner.choose_many(["tomato"] * 10_000), np.zeros(10_000)) == []


def decide(learner, rounds, keys):
    """Decide one by one for keys in turn, each with a context."""
    for i in range(rounds):
        learner.learn(learner.choose(f"key {i % keys}", context=[i % 3]), float(i % 2))


def test_several_keys_that_share_one_model_are_warned_of_once():
    assert told(decide, tacit.Learner(tacit.auto(2, context_dim=1), seed=1), 10_100, 4) == []
    learner = tacit.Learner(tacit.ContextMixture(2, 1, key_levels=False), seed=1)
    assert told(decide, learner, 1000, 4) == []
    assert told(decide, learner, 10_100, 4) == [
        "key: 4 keys share one model, which learns nothing of what differs between them; give "
        "per_key=True, or what tells keys apart as a field of the context"
    ]


@pytest.mark.parametrize(("options", "keys"), [({"per_key": True}, 4), ({}, 1), ({}, 1000)])
def test_keys_with_models_of_their_own_and_keys_of_one_decision_are_not_warned_of(options, keys):
    assert told(decide, tacit.Learner(tacit.auto(2, context_dim=1, **options), seed=1), 1100, keys) == []
