"""Logs in containers of every kind: variants of text, dictionaries, structs, sparse columns and folders."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit import read_log
from tacit.evaluate import IPS, Table, off_policy
from tacit.logs.reader import Frame

ROWS = 100
TEXTS = ("arm", "key", "device")
LOG = pa.table(
    {
        "arm": ["a", "b"] * 50,
        "key": ["k1", "k1", "k2", "k2"] * 25,
        "device": ["ios", "web"] * 50,
        "arms": [["a", "b"]] * ROWS,
        "propensity": [0.5] * ROWS,
        "reward": [1, 0, 0, 0] * 25,
    }
)
ALWAYS_A = Table({"a": 1.0})
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")


def replace_columns(table, columns):
    """Return a table of Arrow with other arrays for some of its columns."""
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


VIEWS = pa.string_view(), pa.binary_view()


def encode(values, text, indices):
    """Return texts as a dictionary with these types."""
    codes = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(codes.indices.cast(indices), codes.dictionary.cast(text))


def check_log(log, **options):
    """Check the estimate, the segments, and the contexts of a log with the content of ``LOG``."""
    reader = read_log(log, columns={"context": {"device": ["ios", "web"]}}, **options)
    result = off_policy(ALWAYS_A, reader, [IPS()], by="device")
    assert result.estimates[0].value == pytest.approx(0.5)
    assert sorted(result.segments) == ["ios", "web"]
    (batch,) = reader
    assert batch["key"].to_pylist()[:3] == ["k1", "k1", "k2"]
    first, second = batch["context"].to_pylist()[:2]
    assert first != second


@pytest.mark.parametrize("indices", [None, pa.int8(), pa.uint32(), pa.int32()], ids=str)
@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), *VIEWS], ids=str)
def test_variants_of_text(text, indices, tmp_path):
    table = LOG
    for name in TEXTS:
        values = LOG[name].combine_chunks()
        values = values.cast(text) if indices is None else encode(values, text, indices)
        table = replace_columns(table, {name: values})
    elements = pa.array(["a", "b"] * ROWS)
    elements = elements.cast(text) if indices is None else encode(elements, text, indices)
    offsets = pa.array(np.arange(0, 2 * ROWS + 1, 2), pa.int32())
    for lists in (
        pa.ListArray.from_arrays(offsets, elements),
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), elements),
        pa.FixedSizeListArray.from_arrays(elements, 2),
    ):
        log = replace_columns(table, {"arms": lists})
        check_log(log)
        check_log(log.drop_columns(["arms"]), arms="shown")
        if indices is None or text not in VIEWS:  # Arrow does not write dictionaries of views
            pq.write_table(log, tmp_path / "log.parquet")
            check_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(
    "kind", [pl.Categorical, pl.Enum(["web", "b", "a", "ios", "k2", "k1", "no"])], ids=str
)
def test_categories_of_polars(kind, tmp_path):
    frame = pl.DataFrame(LOG).with_columns(pl.col(name).cast(kind) for name in TEXTS)
    for lists in (pl.List(kind), pl.Array(kind, 2)):
        log = frame.with_columns(pl.col("arms").cast(lists))
        log.write_parquet(tmp_path / "log.parquet")
        for source in (log, tmp_path / "log.parquet"):
            check_log(source)
    check_log(frame.drop("arms"), arms="shown")


def test_runs_and_sparse_columns():
    check_log(replace_columns(LOG, {"key": pa.compute.run_end_encode(LOG["key"])}))
    frame = LOG.to_pandas().assign(reward=lambda frame: pd.arrays.SparseArray(frame["reward"]))
    frame["device"] = frame["device"].astype("category")
    check_log(frame)


# ---- Nested columns and folders

NESTED = [
    {
        "user": {"geo": {"country": country}, "age": 20 + row},
        "decision": {"variant": arm, "prob": 0.5},
        "outcome": {"clicked": arm == "a" and row % 3 == 0},
    }
    for row, (arm, country) in enumerate([("a", "fr"), ("b", "de"), ("b", "de"), ("a", "fr")] * 25)
]
NESTED_VALUE = sum(row["outcome"]["clicked"] for row in NESTED) / 0.5 / ROWS
NESTED_COLUMNS = {"arm": "decision.variant", "reward": "outcome.clicked", "propensity": "decision.prob"}


def write_nested(folder):
    """Write the nested log in every format, and return its files, and frames in memory."""
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    table = pa.Table.from_pylist(NESTED)
    pq.write_table(table, folder / "log.parquet")
    frames = table, table.to_batches(), pl.DataFrame(NESTED), pd.DataFrame(NESTED)
    columns = {name: [row[name] for row in NESTED] for name in NESTED[0]}
    return [folder / "log.jsonl", folder / "log.parquet", *frames, columns]


def test_dotted_columns_of_nested_logs(tmp_path):
    for log in write_nested(tmp_path):
        columns = NESTED_COLUMNS | {"key": "user.geo.country", "context": ["user.age"]}
        reader = read_log(log, columns=columns, arms="shown")
        result = off_policy(ALWAYS_A, reader, [IPS()], by="user.geo.country")
        assert result.estimates[0].value == pytest.approx(NESTED_VALUE)
        assert sorted(result.segments) == ["de", "fr"]
        (batch,) = reader
        assert batch["key"].to_pylist()[:2] == ["fr", "de"]
        assert batch["context"].to_pylist()[:2] == [[20.0], [21.0]]
        schema = {"user.geo.country": ["de", "fr"], "user.age": "number"}
        (batch,) = read_log(log, columns=NESTED_COLUMNS | {"context": schema}, arms="shown")
        assert all(batch["context"].to_pylist())


def test_a_nested_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    for log in write_nested(tmp_path):
        with pytest.raises(Exception, match=r"did you mean 'decision\.variant'.*'user\.geo\.country'"):
            read_log(log, columns=NESTED_COLUMNS | {"arm": "decision.varient"}, arms="shown")


def test_a_column_with_a_dot_in_its_name_is_itself(tmp_path):
    assert Frame({"a.b": ["x", "y"] * 5, "a": [{"b": "z"}] * 10}).names == ["a.b", "a", "a.b"]
    pq.write_table(pa.table({"arm.name": ["x", "y"] * 5, "propensity": [0.5] * 10}), tmp_path / "log.parquet")
    (batch,) = read_log(tmp_path / "log.parquet", columns={"arm": "arm.name"}, arms="shown")
    assert batch["arm"].to_pylist()[:2] == ["x", "y"]


def test_columns_of_folders(tmp_path):
    for country, rows in ("de", 10), ("fr", 20), ("__HIVE_DEFAULT_PARTITION__", 30), ("a%20b", 40):
        folder = tmp_path / f"country={country}"
        folder.mkdir()
        arms = ["x", "y"] * (rows // 2)
        table = pa.table({"arm": arms, "propensity": [0.5] * rows, "reward": [float(rows == 20)] * rows})
        pq.write_table(table, folder / "part-0.parquet")
    result = off_policy(Table({"x": 1.0}), tmp_path, [IPS()], arms="shown", by="country")
    assert result.segments.keys() >= {"de", "fr", "a b"}
    assert result.segments["fr"].estimates[0].value == 1.0
    log = read_log(tmp_path, columns={"context": {"country": ["de", "fr", "a b"]}}, arms="shown")
    assert sum(len(batch) for batch in log) == 100
    log = read_log(tmp_path / "country=de", columns={"key": "country"}, arms="shown")
    assert {key for batch in log for key in batch["key"].to_pylist()} == {"de"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_of_folders_of_text(tmp_path, suffix):
    texts = {"csv": "arm,reward\nx,1\ny,0\n", "jsonl": '{"arm":"x","reward":1}\n{"arm":"y","reward":0}\n'}
    for day in ("01", "02"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / f"log.{suffix}").write_text(texts[suffix])
    log = read_log(tmp_path, columns={"key": "day"}, arms="shown")
    assert [batch["key"].to_pylist() for batch in log] == [["01"] * 2, ["02"] * 2]
