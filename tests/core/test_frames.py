"""Tables in memory, and data as people have them: any frame is read as a file is."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit.errors import AssumptionWarning, InvalidValue, LogError, UnfitLog
from tacit.evaluate import IPS, Table, Uniform, arms_of, off_policy
from tacit.frames import to_matrix
from tacit.logs import read_log, write_log

NOON = "2017-07-04T12:00:00+00:00"
SHOP = {
    "when": [1499169600, 1499169601, 1499169602],
    "query": ["tomato", "tomato", "toner"],
    "shown": [1, 2, 2],
    "chance": [0.5, 0.5, 0.5],
    "clicked": [True, False, True],
    "device": ["phone", "desk", "phone"],
}
COLUMNS = {"timestamp": "when", "key": "query", "arm": "shown", "propensity": "chance", "reward": "clicked"}


def pandas_frame(data):
    return pytest.importorskip("pandas").DataFrame(data)


def polars_frame(data):
    return pytest.importorskip("polars").DataFrame(data)


def duckdb_relation(data):
    table = pa.table(data)
    return pytest.importorskip("duckdb").connect().from_arrow(table)


def hugging_face(data):
    import datasets

    return datasets.Dataset(datasets.table.InMemoryTable(pa.table(data)), fingerprint="shop")


class CapsuleOnly:
    """What speaks Arrow and nothing else."""

    def __init__(self, data):
        self._table = pa.table(data)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "dict": dict,
    "dict of arrays": lambda data: {name: np.array(values) for name, values in data.items()},
    "pyarrow": pa.table,
    "batch": pa.record_batch,
    "batches": lambda data: pa.table(data).to_batches(max_chunksize=2),
    "capsule": CapsuleOnly,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "duckdb": duckdb_relation,
    "datasets": hugging_face,
}
FORMS = [pytest.param(name, marks=pytest.mark.needs(name)) if name == "datasets" else name for name in FRAMES]


def rows(log):
    return pa.Table.from_batches(list(log)).to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_read_as_a_file_is(tmp_path, form):
    frame = FRAMES[form](SHOP)
    pq.write_table(pa.table(SHOP), tmp_path / "shop.parquet")
    options = {"columns": COLUMNS, "constants": {"placement": "shop"}, "arms": ["1", "2"]}
    log = read_log(frame, batch_rows=2, **options)
    assert rows(log) == rows(read_log(tmp_path / "shop.parquet", **options))
    assert rows(log) == rows(log)  # and again
    first = rows(log)[0]
    assert (first["timestamp"].isoformat(), first["decision_id"]) == (NOON, "1")
    assert (first["arm"], first["arms"], first["reward"]) == ("1", ["1", "2"], 1.0)
    assert log.report.kept == 3
    assert log.report.notes() == ["timestamp: numbers, read as seconds since 1970 (3 rows)"]


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_weighed_and_replayed_in_one_call(form):
    frame = FRAMES[form](SHOP)
    reading = {"columns": COLUMNS, "arms": ["1", "2"]}
    (ips,) = off_policy(Table({"2": 1.0}), frame, [IPS()], **reading).estimates
    assert ips.value == pytest.approx(2 / 3)
    assert arms_of(frame, columns=COLUMNS, arms="shown") == ("1", "2")
    assert tacit.replay(tacit.UCB1(["1", "2"]), frame, passes=1, **reading).rows == 3


def test_a_stream_is_read_once_and_says_so():
    def stream():
        return pa.table(SHOP).to_reader()

    reading = {"columns": COLUMNS, "arms": ["1", "2"]}
    assert off_policy(Uniform(), stream(), [IPS()], **reading).rows == 3
    assert off_policy(Uniform(), (b for b in stream()), [IPS()], **reading).rows == 3
    log = read_log(stream(), **reading)
    assert len(rows(log)) == 3
    with pytest.raises(LogError, match="it is a stream, and was read to its end; make a table"):
        rows(log)
    with pytest.raises(InvalidValue, match="to be read only once"):
        read_log(stream(), columns=COLUMNS, arms="shown")


def test_columns_that_nobody_asked_for_may_hold_anything():
    frame = pandas_frame(SHOP | {"junk": [1, "two", object()]})
    assert len(rows(read_log(frame, columns=COLUMNS, arms="shown"))) == 3


def test_contexts_and_arms_of_a_dict_may_be_matrices():
    frame = SHOP | {"context": np.arange(6.0).reshape(3, 2), "arms": np.array([[1, 2]] * 3)}
    log = rows(read_log(frame, columns=COLUMNS))
    assert [row["context"] for row in log] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert log[0]["arms"] == ["1", "2"]


def test_wrong_rows_in_memory_stop_or_are_told_of():
    frame = SHOP | {"chance": [0.5, 0.0, 0.5]}
    reading = {"columns": COLUMNS, "arms": ["1", "2"]}
    with pytest.raises(LogError, match=r"log: row 2: propensity: 0\.0 .*\(0, 1\]"):
        off_policy(Uniform(), frame, [IPS()], **reading)
    with pytest.warns(AssumptionWarning, match="propensity-outside-range: 1, first log row 2"):
        found = off_policy(Uniform(), frame, [IPS()], strict=False, **reading)
    assert found.rows == 2
    log = read_log(frame, **reading)
    assert (len(rows(log)), log.report.rejected) == (2, {"propensity-outside-range": 1})


def test_a_log_of_which_every_row_is_wrong_says_why_and_what_to_do(tmp_path):
    write_log(read_log(SHOP, columns=COLUMNS, arms="shown"), tmp_path / "shop.csv")
    (tmp_path / "shop.csv").write_text((tmp_path / "shop.csv").read_text().replace("2017-07-04", "4 July"))
    for log in (tmp_path / "shop.csv", read_log(tmp_path / "shop.csv")):
        with pytest.raises(LogError, match=r"(?s)0 kept.*unparsable-timestamp: 3.*ISO 8601.*unit"):
            off_policy(Uniform(), log, [IPS()])


def test_a_log_without_propensities_names_three_remedies():
    bare = {name: values for name, values in SHOP.items() if name != "chance"}
    columns = {ours: name for ours, name in COLUMNS.items() if name != "chance"}
    with pytest.raises(UnfitLog, match=r"constants=.*propensities=Table.*propensities=\"estimated"):
        off_policy(Uniform(), bare, columns=columns, arms="shown")


# Times --------------------------------------------------------------------------------------

SECOND = 1_499_169_600


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([SECOND], "s"),
        ([float(SECOND)], "s"),
        ([SECOND * 10**3], "ms"),
        ([SECOND * 10**6], "us"),
        ([SECOND * 10**9], "ns"),
        ([str(SECOND * 10**3)], "ms"),
    ],
)
def test_the_unit_of_times_is_found_out_and_stated(times, unit):
    log = read_log({"timestamp": times, "key": ["a"], "arm": ["x"]}, arms=["x"])
    assert rows(log)[0]["timestamp"].isoformat() == NOON
    assert log.report.time_units == {unit: 1}


def test_times_of_several_units_are_each_stated():
    log = read_log({"timestamp": [SECOND, SECOND * 1000], "key": ["a"] * 2, "arm": ["x"] * 2}, arms=["x"])
    assert {row["timestamp"].isoformat() for row in rows(log)} == {NOON}
    assert log.report.time_units == {"s": 1, "ms": 1}


def test_a_time_that_fits_no_unit_is_wrong_unless_the_unit_is_told():
    frame = {"timestamp": [7], "key": ["a"], "arm": ["x"]}
    with pytest.raises(LogError, match=r"timestamp: 7 is not allowed .*--time-unit"):
        rows(read_log(frame, arms=["x"], strict=True))
    (row,) = rows(read_log(frame, arms=["x"], time_unit="ms"))
    assert row["timestamp"].timestamp() == 0.007
    with pytest.raises(InvalidValue, match="time_unit: 'min'"):
        read_log(frame, arms=["x"], time_unit="min")


def test_fractions_of_seconds_are_kept():
    (row,) = rows(read_log({"timestamp": [SECOND + 0.25], "key": ["a"], "arm": ["x"]}, arms=["x"]))
    assert row["timestamp"].microsecond == 250_000


# Files as people have them ------------------------------------------------------------------


def shop_csv(delimiter=","):
    cells = [SHOP, *zip(*SHOP.values(), strict=True)]
    return "".join(delimiter.join(map(str, row)) + "\n" for row in cells)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_says_by_its_header_what_stands_between(tmp_path, delimiter):
    path = tmp_path / "shop.csv"
    path.write_text(shop_csv(delimiter))
    log = read_log(path, columns=COLUMNS, arms="shown", strict=True)
    assert rows(log) == rows(read_log(SHOP, columns=COLUMNS, arms="shown"))


@pytest.mark.parametrize("name", ["shop.csv.gz", "shop.jsonl.gz"])
def test_compressed_text_is_read_and_found_in_folders(tmp_path, name):
    texts = [dict(zip(SHOP, row, strict=True)) for row in zip(*SHOP.values(), strict=True)]
    text = shop_csv() if "csv" in name else "".join(json.dumps(row) + "\n" for row in texts)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    for place in (tmp_path / name, tmp_path):
        assert len(rows(read_log(place, columns=COLUMNS, arms="shown", strict=True))) == 3


def test_a_csv_without_a_header_is_told(tmp_path):
    (tmp_path / "shop.csv").write_text(shop_csv().partition("\n")[2])
    with pytest.raises(LogError, match=r"does the first line hold a row\? '1499169600' is no name"):
        read_log(tmp_path / "shop.csv", columns=COLUMNS)


@pytest.mark.parametrize("nothing", ["", '""', "NULL", r"\N", "NA"])
def test_what_programs_write_for_nothing_is_nothing(tmp_path, nothing):
    (tmp_path / "a.csv").write_text(f"key,arm,reward,propensity\nNA,x,{nothing},0.5\n")
    (row,) = rows(read_log(tmp_path / "a.csv", arms=["x"], strict=True))
    assert (row["key"], row["reward"], row["propensity"]) == ("NA", None, 0.5)


def test_clicks_may_be_true_or_false(tmp_path):
    (tmp_path / "a.csv").write_text("key,arm,reward\na,x,True\na,x,FALSE\na,x,0.5\n")
    log = rows(read_log(tmp_path / "a.csv", arms=["x"], strict=True))
    assert [row["reward"] for row in log] == [1.0, 0.0, 0.5]


def test_a_constant_does_not_replace_what_a_parquet_file_has(tmp_path):
    path = tmp_path / "a.parquet"
    write_log(read_log(SHOP, columns=COLUMNS, arms="shown"), path)
    log = read_log(path, constants={"propensity": 1.0})
    assert off_policy(Uniform(), log, [IPS()]).estimates[0].mean_weight == 1.0


def test_decisions_without_names_are_rows_but_no_lists(tmp_path):
    frame = {"key": ["a"] * 2, "arm": ["x", "y"], "position": [0, 1], "propensity": [1.0, 1.0]}
    log = read_log(frame, arms=["x", "y"])
    assert [row["decision_id"] for row in rows(log)] == ["1", "2"]
    with pytest.raises(LogError, match="decision_id: there is none, so nothing says which rows"):
        off_policy(Uniform(), log, [tacit.evaluate.IndependentIPS(2)])


# Features -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [form for form in FORMS if form != "batches"])
def test_features_come_from_frames(form):
    features = {"price": [1.0, 2.0], "age": [0.5, 0.25]}
    assert to_matrix("relevance", FRAMES[form](features)).tolist() == [[1.0, 0.5], [2.0, 0.25]]


def test_a_policy_reads_features_from_frames():
    features = {"price": [1.0, 2.0], "age": [0.5, 0.25]}
    policy = tacit.policies.LinUCB(2)
    plain, framed = (tacit.Learner(policy, seed=1) for _ in range(2))
    array = np.array([[1.0, 0.5], [2.0, 0.25]])
    expected = plain.choose("a", relevance=array)
    for frame in (features, pa.table(features)):
        decision = framed.choose("a", relevance=frame)
        assert decision.relevance.tolist() == expected.relevance.tolist() == array.tolist()
    with pytest.raises(InvalidValue, match=r"relevance\['price'\]: .* transformer of scikit-learn"):
        plain.choose("a", relevance={"price": ["cheap", "dear"], "age": [1, 2]})


def test_a_comma_in_a_fraction_is_read_and_one_in_a_thousand_is_not(tmp_path):
    (tmp_path / "a.csv").write_text("key;arm;propensity\na;x;0,5\na;x;1,0\na;x;1,000\n")
    log = read_log(tmp_path / "a.csv", arms=["x"])
    assert [row["propensity"] for row in rows(log)] == [0.5, 1.0]
    assert log.report.rejected == {"unparsable-propensity": 1}
