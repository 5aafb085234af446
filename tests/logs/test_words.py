"""Words and notations of other systems: missing values, booleans, times, and blanks after commas."""

import json
import math
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit import read_log
from tacit.evaluate import IPS, Table, off_policy
from tacit.logs.reader import LogReader
from tacit.logs.rows import convert_values
from tacit.logs.schema import EpochTimes

pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
WORDS = ["NaN", "nan", "NA", "N/A", "#N/A", "null", "NULL", "None", "\\N", "", "-", "?"]
TIME = pa.timestamp("us", "UTC")


def table_of(rewards):
    """Return a log in which arm a is shown with each of the rewards, and so is b."""
    return {
        "arm": ["a", "b"] * len(rewards),
        "propensity": ["0.5"] * 2 * len(rewards),
        "reward": [reward for reward in rewards for _ in range(2)],
    }


def write_formats(table, folder):
    """Write a table in every format, and return its files, and frames in memory."""
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    csv = "".join(",".join(map(str, row.values())) + "\n" for row in rows)
    (folder / "log.csv").write_text(",".join(table) + "\n" + csv)
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arrow = pa.table(table)
    pq.write_table(arrow, folder / "log.parquet")
    frames = arrow, pl.DataFrame(table), pd.DataFrame(table), table
    return [folder / "log.csv", folder / "log.jsonl", folder / "log.parquet", *frames]


def test_words_for_missing_values_are_read_alike_everywhere(tmp_path):
    for log in write_formats(table_of(["1", "0", *WORDS]), tmp_path):
        reader = read_log(log, arms="shown")
        (batch,) = reader
        assert batch["reward"].to_pylist() == [1.0, 1.0, 0.0, 0.0] + [None] * 2 * len(WORDS)
        result = off_policy(Table({"a": 1.0}), reader, [IPS()])
        assert result.estimates[0].value == pytest.approx(1 / (2 + len(WORDS)))
        assert result.unanswered == 2 * len(WORDS)


def test_nan_is_missing_everywhere(tmp_path):
    table = table_of([1.0, 0.0, math.nan]) | {"propensity": [0.5, 0.5, 0.5, 0.5, math.nan, 0.5]}
    for log in write_formats(table, tmp_path):
        (batch,) = read_log(log, arms="shown")
        assert batch["reward"].to_pylist() == [1.0, 1.0, 0.0, 0.0, None, None]
        assert batch["propensity"].to_pylist() == [0.5, 0.5, 0.5, 0.5, None, 0.5]
    nan = pa.table({"arm": ["a", "b"], "reward": pa.array([math.nan, 1.0], pa.float64())})
    (batch,) = read_log(nan, arms="shown")
    assert batch["reward"].to_pylist() == [None, 1.0]


def test_texts_keep_words_for_missing_values(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("key,arm,reward\nNA,none,1\nDE,-,0\n")  # Namibia, and an arm that shows nothing
    (batch,) = read_log(path, arms="shown")
    assert (batch["key"].to_pylist(), batch["arm"].to_pylist()) == (["NA", "DE"], ["none", "-"])


def test_a_missing_value_in_a_column_that_needs_one_is_so_called(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,arm,reward\nNaT,a,1\n2026-01-01,a,0\n")
    log = read_log(path, arms="shown")
    list(log)
    assert log.report.rejected == {"missing-timestamp": 1}


def test_contexts_have_missing_values(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"a,{age},{'t' if age == 'NA' else 'f'}\n" for age in ["20", "30", "NA", "-", "25"]]
    path.write_text("arm,age,vip\n" + "".join(rows))
    assert LogReader([path], constants={"arms": ["a"]}).infer_schema(["age"]) == {"age": "number"}
    (batch,) = read_log(path, columns={"context": {"age": "number", "vip": "boolean"}}, arms="shown")
    first, _, missing, *_ = batch["context"].to_pylist()
    assert first != missing
    assert len(batch) == 5


@pytest.mark.parametrize("words", ["t f", "T F", "true FALSE", "yes NO", "Y n"])
def test_words_for_booleans(tmp_path, words):
    yes, no = words.split()
    for log in write_formats(table_of([yes, no, no]), tmp_path):
        assert off_policy(Table({"a": 1.0}), log, [IPS()], arms="shown").estimates[0].value == pytest.approx(
            1 / 3
        )


NOON = datetime(2026, 1, 13, 12, 0, tzinfo=UTC)
TIMES = [
    "2026-01-13 12:00:00 UTC", "2026-01-13 12:00:00.000000 UTC", "2026-01-13 12:00:00+00", "2026/01/13 12:00",
    "2026/1/13 12:00:00", "2026-01-13 12:00:00,000", "2026-01-13T12:00:00,000Z",
    "Tue, 13 Jan 2026 12:00:00 GMT", "13.01.2026 12:00:00",
    "13 Jan 2026 13:00:00 +0100", "13/Jan/2026:13:00:00 +0100", "[13/Jan/2026:12:00:00 +0000]",
    "01/13/2026 12:00:00 PM", "1/13/2026 12:00", "01/13/2026, 12:00 PM", "13/01/2026 12:00",
    "Tue Jan 13 12:00:00 UTC 2026", "Tue Jan 13 12:00:00 +0000 2026", " 2026-01-13 12:00:00 ", "1768305600",
    "20260113T120000Z", "2026-01-13 12:00:00 +0000 UTC", "Jan 13, 2026 12:00 PM", "January 13 2026 12:00:00",
]  # fmt: skip


@pytest.mark.parametrize("text", TIMES)
def test_notations_of_times(text):
    assert convert_values(pa.array([text, "junk"]), TIME, EpochTimes(None, {})).to_pylist() == [NOON, None]


@pytest.mark.parametrize(
    "text", ["01/02/2026", "1/2/2026 3:04 PM", "01-02-2026", "2026-02-31 00:00:00 UTC", "13/13/2026",
             "Tue, 13 Jan 2026 12:00:00 EST", "01/13/26", "2026-01-13 12:00:00 Europe/Berlin"],
)  # fmt: skip
def test_times_that_are_ambiguous_or_wrong_are_refused(text):
    assert convert_values(pa.array([text]), TIME, EpochTimes(None, {})).to_pylist() == [None]


def test_one_date_tells_the_order_of_days_and_months_of_its_batch():
    times = convert_values(pa.array(["01/02/2026", "01/31/2026 11:30 PM"]), TIME)
    assert times.to_pylist() == [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 31, 23, 30, tzinfo=UTC)]
    assert convert_values(pa.array(["01/02/2026", "31/01/2026"]), TIME)[0].as_py().month == 2
    assert convert_values(pa.array(["20260131", "20260201"]), TIME)[1].as_py().month == 2
    assert convert_values(pa.array(["01/02/2026", "31/01/2026", "01/31/2026"]), TIME).null_count == 1


@pytest.mark.parametrize(
    ("dates", "read"),
    [
        (["01/02/2026", "02/02/2026", "03/02/2026", "31/01/2026"], ["02-01", "02-02", "02-03", "01-31"]),
        (["01/02/2026", "02/02/2026", "03/02/2026", "01/31/2026"], ["01-02", "02-02", "03-02", "01-31"]),
        (["01/02/2026", "31/01/2026", "03/02/2026", "01/31/2026"], ["01-31", "01-31"]),
    ],
)
def test_the_whole_file_tells_the_order_of_days_and_months(tmp_path, dates, read):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,arm,reward\n" + "".join(f"{date},a,1\n" for date in dates))
    log = read_log(path, arms=["a"], batch_rows=1)
    times = [time for batch in log for time in batch["timestamp"].to_pylist()]
    assert [f"{time:%m-%d}" for time in times] == read
    assert (
        log.report.rejected == ({} if len(read) == len(dates) else {"missing-timestamp": 2})
        or log.report.rejected
    )


def test_blanks_after_commas(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("key, arm, reward,  propensity\nk1, a, 1, 0.5\nk1, b, NA, 0.5 \n")
    log = read_log(path, arms="shown")
    (batch,) = log
    rows = [tuple(row.values()) for row in batch.select(["arm", "reward", "propensity"]).to_pylist()]
    assert rows == [("a", 1.0, 0.5), ("b", None, 0.5)]
    assert not log.report.warning_lines()


def test_blanks_before_quotes(tmp_path):
    """Also where a block of the file ends between a comma and its quotes."""
    path = tmp_path / "log.csv"
    path.write_text('key, "arm", reward, arms\n' + 'k1, "a", 1,  "[""a"", ""b""]"\n' * 200_000)
    log = read_log(path, strict=True)
    arms = [(batch["arm"].unique().to_pylist(), batch["arms"].to_pylist()[-1]) for batch in log]
    assert arms == [(["a"], ["a", "b"])] * len(arms)
    assert log.report.kept == 200_000


def test_blanks_around_a_name_are_kept_where_the_header_has_none(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("key,arm,reward\nk1, a, 1\nk1,b,0\n")
    log = read_log(path, arms="shown")
    (batch,) = log
    assert batch["arm"].to_pylist() == [" a", "b"]
    assert batch["reward"].to_pylist() == [1.0, 0.0]
    assert "have blanks around the name" in log.report.warning_lines()[0]
