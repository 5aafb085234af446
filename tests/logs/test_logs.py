"""Click logs: reading, checking and writing them."""

import json
import math
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DATA
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue, LogError
from tacit.evaluate import Table, off_policy
from tacit.logs import SCHEMA, read_log, read_open_bandit, write_log
from tacit.logs.rows import convert_values
from tacit.logs.selection import select_columns

FORMATS = ["parquet", "csv", "jsonl"]
MEN = DATA / "open_bandit" / "random" / "men"

GOOD = {
    "timestamp": "2017-07-04T12:00:00Z",
    "decision_id": "1",
    "placement": "home",
    "key": "independence day",
    "arms": ["film", "holiday"],
    "arm": "film",
    "position": 0,
    "propensity": 0.5,
    "position_propensity": 0.25,
    "reward": 1.0,
    "context": [0.5, -1.0],
    "policy": "uniform",
    "version": "1",
}


def table(log):
    return pa.Table.from_batches(list(log), SCHEMA)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def csv_text(rows):
    """Write rows by hand, as another program would."""

    def cell(value):
        if value is None:
            return ""
        text = json.dumps(value) if isinstance(value, list) else str(value)
        return '"' + text.replace('"', '""') + '"'

    return "\n".join([",".join(GOOD), *(",".join(cell(row.get(name)) for name in GOOD) for row in rows)])


# Round trips --------------------------------------------------------------------------------

text = st.text(max_size=12)
times = st.datetimes(timezones=st.just(UTC))


@st.composite
def log_rows(draw):
    arms = draw(st.lists(text, min_size=1, max_size=4, unique=True))
    return {
        "timestamp": draw(times),
        "decision_id": draw(text),
        "placement": draw(text),
        "key": draw(text),
        "arms": arms,
        "arm": draw(st.sampled_from(arms)),
        "position": draw(st.none() | st.integers(0, 2**31 - 1)),
        "propensity": draw(st.none() | st.floats(0, 1, exclude_min=True)),
        "position_propensity": draw(st.none() | st.floats(0, 1, exclude_min=True)),
        "reward": draw(st.none() | st.floats(0, 1)),
        "context": draw(st.none() | st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3)),
        "policy": draw(st.none() | text),
        "version": draw(st.none() | text),
    }


@pytest.mark.parametrize("format", FORMATS)
@examples(60)
@given(rows=st.lists(log_rows(), max_size=5))
def test_what_is_read_back_equals_what_was_written(tmp_path_factory, format, rows):
    written = pa.Table.from_pylist(rows, SCHEMA)
    path = tmp_path_factory.mktemp("log") / f"clicks.{format}"
    write_log(written, path)
    log = read_log(path, strict=True, batch_rows=2)
    assert table(log).equals(written, check_metadata=True)
    assert table(log).equals(written)
    assert (log.report.read, log.report.kept, log.report.rejected) == (len(rows), len(rows), {})


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_one_format_is_made_into_another(tmp_path, source, target):
    written = pa.Table.from_pylist([GOOD | {"timestamp": datetime(2017, 7, 4, tzinfo=UTC)}], SCHEMA)
    write_log(written, tmp_path / f"a.{source}")
    write_log(read_log(tmp_path / f"a.{source}"), tmp_path / f"b.{target}")
    assert table(read_log(tmp_path / f"b.{target}")).equals(written)


def test_columns_that_may_be_null_may_be_left_out(tmp_path):
    required = {name: GOOD[name] for name in ("decision_id", "placement", "key", "arms", "arm")}
    row = {"timestamp": datetime(2017, 7, 4, tzinfo=UTC), **required}
    write_log(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (batch,) = read_log(tmp_path / "a.parquet")
    assert batch.to_pylist() == [{name: row.get(name) for name in GOOD}]


def test_a_format_can_be_named_where_the_suffix_does_not_say_it(tmp_path):
    (batch,) = pa.Table.from_pylist([GOOD]).to_batches()
    write_log(batch, tmp_path / "clicks.log", format="csv")
    with pytest.raises(InvalidValue, match=r"format: 'clicks\.log'"):
        read_log(tmp_path / "clicks.log")
    assert table(read_log(tmp_path / "clicks.log", format="csv"))["arm"].to_pylist() == ["film"]


# Writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, format):
    path = tmp_path / f"clicks.{format}"
    good = pa.Table.from_pylist([GOOD | {"timestamp": datetime(2017, 7, 4, tzinfo=UTC)}], SCHEMA)
    write_log(good, path)
    before = path.read_bytes()

    def interrupted():
        yield from good.to_batches()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_log(interrupted(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_wrong_row_is_not_written(tmp_path):
    bad = pa.Table.from_pylist([GOOD, GOOD | {"reward": 2.0}])
    with pytest.raises(LogError, match=r"log: row 2: reward: 2\.0 .*give a number in \[0, 1\]"):
        write_log(bad, tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


# Wrong rows ---------------------------------------------------------------------------------

WRONG = [
    ("missing-timestamp", {"timestamp": None}),
    ("unparsable-timestamp", {"timestamp": "noon"}),
    ("missing-key", {"key": None}),
    ("key-too-long", {"key": "ü" * 257}),
    ("missing-arms", {"arms": None}),
    ("unparsable-arms", {"arms": "film"}),
    ("unparsable-arms", {"arms": 7}),
    ("unparsable-arms", {"arms": [["film"]]}),
    ("bad-arms", {"arms": []}),
    ("bad-arms", {"arms": ["film", "film"]}),
    ("bad-arms", {"arms": ["film", None]}),
    ("missing-arm", {"arm": None}),
    ("arm-not-offered", {"arm": "flim"}),
    ("unparsable-position", {"position": "top"}),
    ("unparsable-position", {"position": 1.5}),
    ("negative-position", {"position": -1}),
    ("unparsable-propensity", {"propensity": "half"}),
    ("propensity-outside-range", {"propensity": 0}),
    ("propensity-outside-range", {"propensity": 1.001}),
    ("position-propensity-outside-range", {"position_propensity": 0}),
    ("unparsable-reward", {"reward": "perhaps"}),
    ("reward-outside-range", {"reward": -0.1}),
    ("reward-outside-range", {"reward": math.inf}),
    ("unparsable-context", {"context": ["warm"]}),
    ("context-not-finite", {"context": [0.5, math.nan]}),
    ("context-not-finite", {"context": [None]}),
]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(("reason", "change"), WRONG)
def test_a_wrong_row_is_counted_by_its_reason_or_stops(tmp_path, format, reason, change):
    path = tmp_path / f"clicks.{format}"
    rows = [GOOD, GOOD | change, GOOD, GOOD | change]
    if format == "csv":
        path.write_text(csv_text(rows))
    else:
        lines(path, rows)
    log = read_log(path, most_rejected=1.0)
    assert table(log).num_rows == 2
    assert (log.report.read, log.report.kept, log.report.rejected) == (4, 2, {reason: 2})
    ((column, value),) = change.items()
    example = log.report.examples[reason]
    assert (example.source, example.row, example.column) == (str(path), 2, column)
    if format == "jsonl":
        assert repr(example.value) == repr(value)
    summary = log.report.summary()
    assert reason in summary
    assert sum(len(chunk.rows) for chunk in select_columns(log, ["propensity", "reward"])) == 2
    assert log.report.summary() == summary
    with pytest.raises(LogError, match=rf"clicks\.{format}: row 2: {column}: .*\({reason}\); give"):
        list(read_log(path, strict=True))


def test_a_row_with_several_faults_counts_once(tmp_path):
    row = GOOD | {"timestamp": "noon", "reward": 7, "arm": "flim"}
    log = read_log(lines(tmp_path / "a.jsonl", [row]))
    with pytest.raises(LogError, match="unparsable-timestamp: 1, first"):
        list(log)
    assert log.report.rejected == {"unparsable-timestamp": 1}


def test_strict_stops_at_the_first_wrong_row_whatever_its_fault(tmp_path):
    path = lines(tmp_path / "a.jsonl", [GOOD, GOOD | {"reward": 7}, GOOD | {"key": None}])
    with pytest.raises(LogError, match=r"row 2: reward: 7 "):
        list(read_log(path, strict=True))


def test_malformed_csv_rows_are_counted_and_do_not_shift_row_numbers(tmp_path):
    good = csv_text([GOOD]).split("\n")[1]
    bad = csv_text([GOOD | {"reward": 9}]).split("\n")[1]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join(GOOD), good, "too,few", good, "1," * 20, bad, good, "end"]))
    for batch_rows in (1, 100):
        log = read_log(path, batch_rows=batch_rows)
        assert [row for chunk in log.chunks() for row in chunk.rows] == [1, 3, 6]
        assert log.report.rejected == {"malformed-row": 3, "reward-outside-range": 1}
        assert log.report.examples["reward-outside-range"].row == 5
        assert log.report.examples["malformed-row"].row == 2
        assert log.report.read == 7


def test_bytes_that_are_not_utf8_reject_their_row_alone(tmp_path):
    path = tmp_path / "a.csv"
    second = csv_text([GOOD | {"key": "XX"}]).encode().split(b"\n")[1].replace(b"XX", b"\xff")
    path.write_bytes(csv_text([GOOD]).encode() + b"\n" + second)
    log = read_log(path)
    assert table(log)["key"].to_pylist() == ["independence day"]
    assert log.report.rejected == {"unparsable-key": 1}


def test_malformed_json_lines_are_counted_and_blank_ones_are_not(tmp_path):
    good = json.dumps(GOOD).encode()
    surrogate = good.replace(b"independence", b"\\ud800")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([b"\xef\xbb\xbf" + good, b"", b"{", b"[1]", b"\xff", surrogate, good]))
    log = read_log(path)
    assert [row for chunk in log.chunks() for row in chunk.rows] == [1, 7]
    assert log.report.rejected == {"malformed-row": 4}
    assert log.report.examples["malformed-row"].row == 3


def test_json_columns_may_appear_late(tmp_path):
    bare = {name: value for name, value in GOOD.items() if name != "reward"}
    assert table(read_log(lines(tmp_path / "a.jsonl", [bare] * 1500 + [GOOD])))["reward"].null_count == 1500


# Values of other types ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2017-07-04T12:00:00Z", 0),
        ("2017-07-04 12:00:00.25", 0.25),
        ("2017-07-04T12:00:00.123456789Z", 0.123456),
        ("2017-07-04T14:00:00+02:00", 0),
        ("2017-07-04", -12 * 3600),
    ],
)
def test_times_are_iso_8601(given, seconds):
    noon = datetime(2017, 7, 4, 12, tzinfo=UTC)
    array = convert_values(pa.array([given, "no", None]), SCHEMA.field("timestamp").type)
    assert array.to_pylist() == [noon + timedelta(seconds=seconds), None, None]


def test_a_bare_number_is_no_time():
    kind = SCHEMA.field("timestamp").type
    assert convert_values([1499169600, "2017-07-04"], kind).is_valid().to_pylist() == [False, True]
    assert convert_values(pa.array([1499169600]), kind).null_count == 1


def test_parquet_columns_of_other_types_are_converted(tmp_path):
    day = datetime(2017, 7, 4, tzinfo=timezone(timedelta(hours=2)))
    foreign = pa.table(
        {
            "timestamp": pa.array([day], pa.timestamp("ns", "Europe/Berlin")),
            "decision_id": pa.array([17]),
            "placement": pa.array(["home"]).dictionary_encode(),
            "key": pa.array(["tomato"], pa.large_string()),
            "arms": pa.array([[1, 2]], pa.large_list(pa.int64())),
            "arm": pa.array([2], pa.int8()),
            "position": pa.array([3.0]),
            "reward": pa.array([True]),
            "propensity": pa.array([0.5], pa.float32()),
        }
    )
    pq.write_table(foreign, tmp_path / "a.parquet")
    (row,) = table(read_log(tmp_path / "a.parquet", strict=True)).to_pylist()
    assert row["timestamp"] == day
    assert (row["decision_id"], row["placement"], row["key"]) == ("17", "home", "tomato")
    assert (row["arms"], row["arm"], row["position"]) == (["1", "2"], "2", 3)
    assert (row["reward"], row["propensity"]) == (1.0, 0.5)


@given(st.lists(st.floats(allow_nan=False) | st.text(max_size=3) | st.none(), max_size=40))
def test_only_what_is_no_number_becomes_null(values):
    for value, number in zip(values, convert_values(values, pa.float64()).to_pylist(), strict=True):
        if isinstance(value, float):
            assert number == value
        elif value is None:
            assert number is None
        elif number is not None and value.strip().lower() not in ("t", "f", "y", "n", "yes", "no"):
            assert number == float(value.strip()) or math.isnan(number)


# Foreign columns and files ------------------------------------------------------------------


def test_foreign_columns_are_mapped_and_absent_ones_filled(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text("when,no,query,shown,place\n2017-07-04,1,tomato,red,home\n")
    log = read_log(
        path,
        columns={"timestamp": "when", "decision_id": "no", "key": "query", "arm": "shown"},
        constants={"placement": "shop", "propensity": 0.5, "position": 2},
        arms=["red", "green"],
    )
    (row,) = table(log).to_pylist()
    assert (row["key"], row["arm"], row["arms"]) == ("tomato", "red", ["red", "green"])
    assert (row["placement"], row["propensity"], row["position"]) == ("shop", 0.5, 2)


def test_a_constant_does_not_replace_what_the_file_has(tmp_path):
    path = lines(tmp_path / "a.jsonl", [GOOD])
    assert table(read_log(path, constants={"key": "other"}))["key"].to_pylist() == [GOOD["key"]]


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_column_is_named_with_the_remedy(tmp_path, format):
    path = tmp_path / f"a.{format}"
    write_log(pa.Table.from_pylist([GOOD]), path)
    with pytest.raises(LogError, match=r"key: there is no column 'query'; .*'key'.*columns=\{'key'"):
        read_log(path, columns={"key": "query"})
    other = lines(tmp_path / "b.jsonl", [{"query": "tomato"}])
    with pytest.raises(LogError, match=r"arms: there is no .*the columns are 'query'; .*const"):
        read_log(other)


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    lines(tmp_path / "b.jsonl", [GOOD | {"decision_id": "2"}, GOOD | {"decision_id": "3"}])
    lines(tmp_path / "a.jsonl", [GOOD])
    lines(tmp_path / ".c.jsonl", [GOOD | {"decision_id": "4"}])
    (tmp_path / "notes.txt").write_text("not a log")
    log = read_log(tmp_path)
    assert table(log)["decision_id"].to_pylist() == ["1", "2", "3"]
    assert [chunk.rows.tolist() for chunk in log.chunks()] == [[1], [1, 2]]
    assert log.report.read == 3


def test_a_log_can_be_read_twice(tmp_path):
    log = read_log(lines(tmp_path / "a.jsonl", [GOOD, GOOD | {"reward": 3}]))
    assert table(log).equals(table(log))
    assert (log.report.read, log.report.kept) == (2, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_log_is_refused(tmp_path, format):
    path = tmp_path / f"a.{format}"
    with pytest.raises(LogError, match="cannot be read"):
        read_log(path)
    path.write_bytes(b"\x00\xff\n")
    with pytest.raises(LogError, match=f"a.{format}"):
        list(read_log(path, strict=True))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_memory_does_not_grow_with_the_log(tmp_path, format):
    text_bytes = 4096
    names = [f"{number:0{text_bytes}d}" for number in range(1000)]
    part = pa.Table.from_pylist([GOOD | {"version": name} for name in names])
    path = tmp_path / f"a.{format}"
    write_log((batch for _ in range(25) for batch in part.to_batches()), path)
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    for batch in read_log(path, batch_rows=1000):
        peak = max(peak, pa.total_allocated_bytes() - before)
        rows += len(batch)
    assert rows == 25_000
    assert peak < 0.5 * rows * text_bytes


def test_memory_does_not_grow_with_a_log_in_json_lines(tmp_path):
    path = lines(tmp_path / "a.jsonl", [GOOD | {"version": "1" * 1000}] * 10_000)
    tracemalloc.start()
    try:
        rows = sum(len(batch) for batch in read_log(path, batch_rows=500))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 10_000
    assert peak < 0.5 * path.stat().st_size


# The Open Bandit Dataset --------------------------------------------------------------------

OPEN_BANDIT = (
    ",timestamp,item_id,position,click,propensity_score\n"
    "0,2019-11-24 00:03:13.442536+00:00,2,3,0,0.25\n"
    "1,2019-11-24 00:03:36.705207+00:00,0,1,1,0.25\n"
)


@pytest.fixture
def campaign(tmp_path):
    folder = tmp_path / "random" / "men"
    folder.mkdir(parents=True)
    (folder / "men.csv").write_text(OPEN_BANDIT)
    return folder


def test_an_open_bandit_folder_is_recognised(campaign):
    (campaign / "item_context.csv").write_text(",item_id\n0,0\n1,1\n2,2\n3,3\n")
    first, second = table(read_log(campaign)).to_pylist()
    known = {
        "timestamp": datetime(2019, 11, 24, 0, 3, 13, 442536, UTC),
        "decision_id": "0",
        "placement": "men",
        "key": "men",
        "arms": ["0", "1", "2", "3"],
        "arm": "2",
        "position": 3,
        "propensity": 0.25,
        "position_propensity": None,
        "reward": 0.0,
        "context": None,
        "policy": "random",
        "version": None,
    }
    assert first.items() >= known.items()
    assert (second["arm"], second["reward"]) == ("0", 1.0)


def test_without_a_list_of_items_those_that_were_shown_are_on_offer(campaign):
    assert table(read_open_bandit(campaign))["arms"].to_pylist() == [["2", "0"]] * 2


def test_each_position_can_learn_on_its_own(campaign):
    assert table(read_open_bandit(campaign, key="position"))["key"].to_pylist() == ["3", "1"]
    with pytest.raises(InvalidValue, match="key: 'slot'"):
        read_open_bandit(campaign, key="slot")


def test_real_data_are_read_whole():
    log = read_log(MEN, strict=True)
    whole = table(log)
    assert log.report.read == log.report.kept == whole.num_rows == 1_042
    assert np.allclose(whole["propensity"].to_numpy(), 1 / 34)
    assert sum(whole["reward"].to_pylist()) == 46


def test_results_say_what_rewards_stand_for(tmp_path):
    rows = {"key": ["k"] * 4, "arm": ["a", "b"] * 2, "propensity": [0.5] * 4, "reward": [0.2, 0.4, 0.0, 1.0]}
    known = read_log(rows, arms=["a", "b"])
    for name, said in (("c.parquet", ("reward: 1 stands for 100 euros",)), ("c.csv", ())):
        write_log(known, tmp_path / name, rewards="1 stands for 100 euros")
        found = off_policy(Table({"a": 1.0}), tmp_path / name)
        assert found.notes == said
        assert all(note in found.summary() for note in said)
