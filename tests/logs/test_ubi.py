"""User Behavior Insights records: read as a click log, with every way to be wrong."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.clicks import PositionBased, read_sessions
from tacit.errors import AssumptionWarning, InvalidValue, LogError
from tacit.evaluate import IndependentIPS, Uniform, examination, off_policy
from tacit.logs import read_log, read_ubi, write_log
from tacit.logs.ubi_records import CLICKS, EXAMINED, find_position, parse_event, parse_query
from tests.cli.test_cli import tacit as tacit_command

TIME = "2025-02-26T12:00:00Z"
MICROS = 1_740_571_200_000_000


def query(id="q", hits=("a", "b", "c"), **more):
    record = {"query_id": id, "user_query": "toner", "timestamp": TIME}
    return record | {"query_response_hit_ids": list(hits)} | more


def event(action="click", id="q", object="b", ordinal=2, **more):
    attributes = {"position": {"ordinal": ordinal}}
    if object is not None:
        attributes["object"] = {"object_id": object}
    record = {"action_name": action, "query_id": id, "timestamp": TIME}
    return record | {"event_attributes": attributes} | more


def written(path, *records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def rows(reader, *names):
    """Return some columns of all rows as tuples."""
    found = [row for batch in reader for row in batch.to_pylist()]
    return [tuple(row[name] for name in names) for row in found]


def test_each_object_returned_is_a_row(tmp_path):
    reader = read_ubi(
        written(tmp_path / "r.ndjson", event(), query(application="shop"), query("r", ["c"]), event(id="r"))
    )
    (batch,) = reader
    assert batch.schema.equals(tacit.logs.SCHEMA)
    first, _, _, last = batch.to_pylist()
    assert first["timestamp"].isoformat() == "2025-02-26T12:00:00+00:00"
    assert {name: first[name] for name in ("decision_id", "placement", "key", "arms", "arm")} == {
        "decision_id": "q",
        "placement": "shop",
        "key": "toner",
        "arms": ["a", "b", "c"],
        "arm": "a",
    }
    assert first["propensity"] is first["policy"] is None
    assert last["placement"] == "ubi"
    assert rows(reader, "arm", "position", "reward") == [
        ("a", 0, 0.0), ("b", 1, 1.0), ("c", 2, 0.0), ("c", 0, 0.0)
    ]  # fmt: skip
    report = reader.report
    assert (report.queries, report.events, report.clicks, report.examined) == (2, 2, 2, 0)
    # The click on b cannot be one on the second query's list.
    assert report.rejected == {"unknown-object": 1}
    assert report.examples["unknown-object"].value == "b"
    assert "2 queries, 2 events: 2 clicks" in report.summary()


def test_what_is_seen_and_how_long_a_page_is(tmp_path):
    path = written(
        tmp_path / "r.ndjson",
        query(hits=["a", "b", "c", "d"]),
        event("impression", object="a"),
        event("view", object="b"),
        event("click", object="b"),
        event("purchase", object="c"),
        event("hover", object="c"),
    )
    reader = read_ubi(path, seen="examined")
    assert rows(reader, "arm", "position", "reward") == [("a", 0, 0.0), ("b", 1, 1.0)]
    assert reader.report.others == {"hover": 1, "purchase": 1}
    assert (reader.report.clicks, reader.report.examined) == (1, 2)
    reader = read_ubi(path, seen="examined", clicks=["purchase"], examined=["hover"])
    assert rows(reader, "arm", "reward") == [("c", 1.0)]
    assert rows(read_ubi(path, length=2), "arm") == [("a",), ("b",)]
    assert set(CLICKS) & set(EXAMINED) == set()


def test_objects_are_found_by_their_ids_or_their_place(tmp_path):
    other = event(object="isbn 1")
    other["event_attributes"]["object"]["internal_id"] = "c"
    number = event(object=7, ordinal=None)
    path = written(
        tmp_path / "r.ndjson",
        query("q", ["a", "b", "c"]), other,
        query("r", ["a", "b"]), event(id="r", object=None, ordinal=1),
        query("s", ["6", "7"]), number | {"query_id": "s"},
        query("t", ["a"]), event(id="t", object=None, ordinal=2),
        query("u", ["a"]), event(id="u", object=None, ordinal=0),
    )  # fmt: skip
    reader = read_ubi(path)
    clicked = [row for row in rows(reader, "decision_id", "arm", "reward") if row[2]]
    assert clicked == [("q", "c", 1.0), ("r", "a", 1.0), ("s", "7", 1.0)]
    assert reader.report.rejected == {"unknown-object": 2}


def test_actions_have_grades_and_a_reward_out_of_range_is_rejected_as_in_any_log(tmp_path):
    def graded(action, arm, reward):
        attributes = {"object": {"object_id": arm}, "tacit": {"reward": reward}}
        return event(action) | {"event_attributes": attributes}

    path = written(
        tmp_path / "r.ndjson",
        query("q", ["a", "b", "c", "d"]), event("click", object="a"), event("purchase", object="a"),
        event(), graded("rated", "c", -0.5), graded("rated", "d", 7), graded("rated", "a", "x"),
    )  # fmt: skip
    reader = read_ubi(path, clicks={"click": 0.3, "purchase": 1})
    assert rows(reader, "arm", "reward") == [("a", 1.0), ("b", 0.3)]
    assert reader.report.rejected == {"reward-outside-range": 2, "wrong-event_attributes.tacit.reward": 1}
    reader = read_log(path, format="ubi", reward_range=(-1, 7))
    assert rows(reader, "arm", "reward")[2:] == [("c", -0.5), ("d", 7.0)]
    out = tmp_path / "clicks.csv"
    assert tacit_command("ubi", path, out, "--clicks", "click=0.2,purchase=0.9").returncode == 0
    assert rows(read_log(out), "arm", "reward") == [("a", 0.9), ("b", 0.2)]


def test_what_the_attributes_say_comes_first(tmp_path):
    ours = {
        "decision_id": "d", "placement": "shelf", "policy": "Uniform(arms=4)", "version": "1f",
        "arms": ["a", "b", "c", "z"], "propensities": [0.25, 0.5, None],
    }  # fmt: skip
    path = written(
        tmp_path / "r.ndjson",
        query(query_attributes={"tacit": ours, "page": 1}),
        query("r", ["a"], query_attributes={"tacit": {"propensity": 0.2, "context": [1.5]}}),
        event("bought", id="r", object="a")
        | {"event_attributes": {"object": {"object_id": "a"}, "tacit": {"reward": 0.75}}},
    )
    reader = read_ubi(path)
    assert rows(reader, *("decision_id", "placement", "policy", "version", "propensity", "reward")) == [
        ("d", "shelf", "Uniform(arms=4)", "1f", 0.25, 0.0),
        ("d", "shelf", "Uniform(arms=4)", "1f", 0.5, 0.0),
        ("d", "shelf", "Uniform(arms=4)", "1f", None, 0.0),
        ("r", "ubi", None, None, 0.2, 0.75),
    ]
    assert rows(reader, "arms", "context")[2:] == [(["a", "b", "c", "z"], None), (["a"], [1.5])]
    fixed = read_ubi(path, constants={"placement": "mine", "policy": "bm25"})
    assert rows(fixed, "placement", "policy")[0] == ("mine", "bm25")


WRONG = {
    "not json": "malformed-row",
    "[1]": "malformed-row",
    json.dumps(query() | {"query_id": None}): "missing-query_id",
    json.dumps(query("x" * 101)): "wrong-query_id",
    json.dumps(query("r", user_query={"query": "toner"})): "wrong-user_query",
    json.dumps(query("r", query_response_hit_ids="a")): "wrong-query_response_hit_ids",
    json.dumps(query("r", query_response_hit_ids=[1])): "wrong-query_response_hit_ids",
    json.dumps(query("r", query_response_hit_ids=None)): "missing-query_response_hit_ids",
    json.dumps(query("r", timestamp="yesterday")): "wrong-timestamp",
    json.dumps(query("r", timestamp=10**30)): "wrong-timestamp",
    json.dumps(query("r", query_attributes=[])): "wrong-query_attributes",
    json.dumps(query("r", query_attributes={"tacit": 1})): "wrong-query_attributes.tacit",
    json.dumps(query("q")): "repeated-query",
    json.dumps(event(id="nobody's")): "unknown-query",
    json.dumps(event() | {"query_id": None}): "missing-query_id",
    json.dumps(event() | {"timestamp": None}): "missing-timestamp",
    json.dumps(event(object=True)): "wrong-event_attributes.object.object_id",
    json.dumps(event(object="x" * 257)): "wrong-event_attributes.object.object_id",
    json.dumps(event(ordinal="1")): "wrong-event_attributes.position.ordinal",
    json.dumps(event() | {"event_attributes": {"position": 1}}): "wrong-event_attributes.position",
    json.dumps(event(object="z")): "unknown-object",
    json.dumps(query("r", ["a"]) | {"timestamp": None}): "missing-timestamp",
    json.dumps(query("r", ["a", "a"])): "bad-arms",
}


@pytest.mark.parametrize(("line", "reason"), WRONG.items())
def test_a_wrong_record_is_counted_and_named(tmp_path, line, reason):
    path = tmp_path / "r.ndjson"
    path.write_text(f"{json.dumps(query())}\n{json.dumps(event())}\n{line}\n")
    reader = read_ubi(path)
    assert rows(reader, "arm", "reward") == [("a", 0.0), ("b", 1.0), ("c", 0.0)]
    assert list(reader.report.rejected) == [reason]
    example = reader.report.examples[reason]
    assert (example.source, example.row) == (str(path), 1 if reason == "unknown-object" else 3)
    with pytest.raises(LogError, match=rf"r\.ndjson: row {example.row}: .*{example.column}"):
        list(read_ubi(path, strict=True))


def test_numbers_are_milliseconds_since_1970(tmp_path):
    path = written(tmp_path / "r.ndjson", query(timestamp=MICROS // 1000))
    assert rows(read_ubi(path), "timestamp")[0][0].timestamp() == MICROS / 1e6


def test_files_may_be_bulk_requests_search_hits_or_parquet(tmp_path):
    plain = written(tmp_path / "plain.ndjson", query(), event())
    expected = rows(read_ubi(plain), "arm", "reward", "timestamp")
    action = {"index": {"_index": "ubi_queries"}}
    bulk = written(tmp_path / "bulk.ndjson", action, query(), {"create": {}}, event())
    hits = written(tmp_path / "hits.json", {"_id": "1", "_source": query()}, {"_source": event()})
    for path in (bulk, hits):
        reader = read_ubi(path)
        assert rows(reader, "arm", "reward", "timestamp") == expected
        assert not reader.report.rejected
    folder = tmp_path / "parquet"
    folder.mkdir()
    as_text = event() | {"event_attributes": json.dumps(event()["event_attributes"])}
    queries = pa.Table.from_pylist([query()])
    times = queries["timestamp"].cast(pa.timestamp("us", "UTC"))
    queries = queries.set_column(queries.schema.get_field_index("timestamp"), "timestamp", times)
    for events in (event(), as_text):
        pq.write_table(queries, folder / "ubi_queries.parquet")
        pq.write_table(pa.Table.from_pylist([events]), folder / "ubi_events.parquet")
        reader = read_log(folder)
        assert rows(reader, "arm", "reward", "timestamp") == expected
        assert reader.report.queries == 1


def test_batches_and_files_change_nothing(tmp_path):
    records = [query(str(i), ["a", "b"]) for i in range(7)]
    clicks = [event(id=str(i)) for i in range(0, 7, 2)]
    whole = written(tmp_path / "whole.ndjson", *records, *clicks)
    one, two = (written(tmp_path / f"{i}.ndjson", *records[i::2]) for i in range(2))
    three = written(tmp_path / "events.ndjson", *clicks)
    expected = sorted(rows(read_ubi(whole), "decision_id", "arm", "reward"))
    assert sum(row[2] for row in expected) == 4
    small = read_ubi([three, one, two], batch_rows=3)
    assert sorted(rows(small, "decision_id", "arm", "reward")) == expected
    assert max(len(batch) for batch in small) <= 4


def test_estimators_and_formats_take_it_as_any_click_log(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    # c is clicked wherever it stands, and stands at both places equally often.
    lists = [["a", "c"], ["c", "a"]] * 50
    ours = {"tacit": {"propensities": [0.5, 0.5]}}
    records = [query(str(i), hits, query_attributes=ours) for i, hits in enumerate(lists)]
    written(folder / "ubi_queries.ndjson", *records)
    clicks = [event(id=str(i), object="c") for i in range(0, 100, 1)]
    written(folder / "ubi_events.ndjson", *clicks)
    log = read_log(folder)
    assert examination.examine(log, "harvesting").effects.tolist() == [1.0, 1.0]
    (estimate,) = off_policy(Uniform(), log, [IndependentIPS(slots=2)]).estimates
    assert estimate.value == pytest.approx(1.0)
    sessions = read_sessions(log)
    assert sessions.shown[:2].tolist() == [[0, 1], [1, 0]]
    assert sessions.names == [("toner", "a"), ("toner", "c")]
    assert PositionBased.fit(sessions.shown, sessions.clicks).model.attraction == pytest.approx((0.0, 1.0))
    write_log(log, tmp_path / "clicks.parquet")
    copied = read_log(tmp_path / "clicks.parquet")
    assert [b.to_pylist() for b in copied] == [b.to_pylist() for b in read_log(folder)]


def test_sessions_need_a_place_for_each_arm(tmp_path):
    log = read_ubi(written(tmp_path / "r.ndjson", query()))
    assert read_sessions(log, "arm").names == ["a", "b", "c"]
    table = pa.Table.from_batches(log)
    with pytest.raises(LogError, match="row 4: position: 0"):
        read_sessions(pa.concat_tables([table, table]))
    with pytest.raises(LogError, match="row 1: position: None"):
        read_sessions(table.drop_columns("position"))
    below = table.set_column(6, "position", [[1, 2, 3]])
    with pytest.warns(AssumptionWarning, match="none is at position 0.*positions_from=1"):
        assert read_sessions(below).shown.shape == (1, 4)
    assert (read_sessions(below, positions_from=1).shown == read_sessions(table).shown).all()
    with pytest.raises(LogError, match="no rows"):
        read_sessions(table.slice(0, 0))
    with pytest.raises(InvalidValue, match="kind"):
        read_sessions(table, "colour")


def test_the_command_line_reads_them(tmp_path):
    path = written(tmp_path / "r.ndjson", query(), event("buy"), event(id="nobody's"))
    out = tmp_path / "clicks.csv"
    result = tacit_command(*["ubi", path, out, "--clicks", "buy,click", "--length", "2", "--json"])
    assert result.returncode == 0, result.stderr
    known = {
        "rows": 2, "queries": 1, "events": 2, "clicks": 2, "examined": 0, "others": {},
        "rejected": {"unknown-query": 1},
    }  # fmt: skip
    assert json.loads(result.stdout).items() >= known.items()
    assert rows(read_log(out), "arm", "reward") == [("a", 0.0), ("b", 1.0)]
    assert "nobody's" in tacit_command("ubi", path, out).stdout
    assert tacit_command("ubi", path, tmp_path / "clicks.txt").returncode == 2
    refused = tacit_command("ubi", path, out, "--strict")
    assert refused.returncode == 1
    assert "r.ndjson: row 3: query_id" in refused.stderr
    result = tacit_command("evaluate", path, "--format", "ubi", "--policy", "ucb1")
    assert "propensit" in result.stderr


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = {**query(application="a", query_attributes={}), **event()}


@given(st.dictionaries(st.sampled_from(list(FIELDS)), json_values), st.booleans())
def test_whatever_a_record_holds_it_is_read_or_refused_by_field(changes, an_event):
    record = (event() if an_event else query()) | changes
    wrong = None
    try:
        parse_event(record) if an_event else parse_query(record)
    except InvalidValue as error:
        wrong = error.field
    assert wrong is None or wrong.partition(".")[0] in record


@given(st.lists(st.text(max_size=2)), st.integers(-1, 5), st.text(max_size=2))
def test_a_place_is_one_of_the_list(hits, ordinal, name):
    for names in ((), (name,)):
        at = find_position(names, ordinal, hits)
        assert at is None or 0 <= at < len(hits)
        assert not (names and at is not None) or hits[at] == name
