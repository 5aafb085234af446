"""Events of others, fed to a service: each counts once, and what cannot be sent is said."""

import csv
import gzip
import http.server
import io
import json
import signal
import subprocess
import threading
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import ROOT
from drawn import is_long
from forked import Forked
from generate.run import run
from harness import PATIENCE, SECOND, Clock, by_clock, eventually, started, stopped, with_home

from tacit.client import Client, Impression
from tacit.feed.event_map import example_map, parse_map
from tacit.feed.mapping import MAX_DECISIONS_EACH, BadEvent, DecisionIndex, Mapper
from tacit.feed.sources import CHUNK_BYTES, EventLines, read_events
from tacit.logs.formats import LONGEST_LINE
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import new_key
from tacit.service.http.feeds import MOST, Feeds
from tacit.wire.site import FeedReport
from tests.cli.test_cli import tacit

MAP = 'placement = { value = "home" }\ndecision_id = "decision"\nreward = "clicked"\nid = "id"\n'
ELSEWHERE = (
    'placement = { value = "home" }\nid = "id"\nevent = "kind"\ndecision_id = "page"\n[reward]\nclick = 1\n'
    '[shown]\nwhere = { kind = "view" }\nelsewhere = true\narm = "banner"\n'
)
NAMELESS = MAP.replace('id = "id"\n', "")


@contextmanager
def served_home(folder, **table):
    """Serve a placement, whose windows stay open however slow the machine is; yield address and client."""
    config = with_home(folder / "t.db", arms=["a", "b"], attribution_window=36_000, **table)
    with run_in_thread(config) as url, Client(url) as client:
        yield url, client


@pytest.fixture
def service(tmp_path):
    """A service with a placement, its client, and a map, in a folder of the test's own."""
    (tmp_path / "feed.toml").write_text(MAP)
    with served_home(tmp_path) as (url, client):
        yield url, client


def decided(client, count):
    """Return the ids of new decisions."""
    found = client.decide_many("home", [Impression(f"key {i % 7}") for i in range(count)])
    return [one.decision_id for one in found]


def events_of(ids):
    return [{"decision": id, "clicked": i % 2, "id": f"e{i}"} for i, id in enumerate(ids)]


def written(path, events):
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


def fed(url, source, *options, map="feed.toml", folder=None):
    """Feed a source by the command; return what came of it, and what it counted."""
    folder = folder or Path(source).parent
    came = tacit("feed", source, "--map", folder / map, "--url", url, "--json", *options)
    return came, json.loads(came.stdout) if came.stdout else None


def counts_of(url, source, *options, **more):
    """Feed a source by the command; return what it counted, and no error."""
    came, counts = fed(url, source, *options, **more)
    assert came.returncode == 0, came.stderr
    return counts


# Once each -----------------------------------------------------------------------------------


def test_a_file_that_is_fed_twice_counts_once(service, tmp_path):
    url, client = service
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 250)))
    assert counts_of(url, path)["sent"] == {"learned": 250}
    assert counts_of(url, path)["sent"] == {"duplicate": 250}
    came = tacit("feed", path, "--map", tmp_path / "feed.toml", "--url", url)
    assert "nothing changed: all 250 were sent before" in came.stdout


def test_an_event_without_an_id_counts_once_wherever_its_file_lies(service, tmp_path):
    url, client = service
    (tmp_path / "nameless.toml").write_text(NAMELESS)
    (one,) = decided(client, 1)
    # Two events of the same content are two; the same file under another name, and compressed, are none.
    path = written(tmp_path / "a.jsonl", [{"decision": one, "clicked": 1}] * 2)
    assert counts_of(url, path, map="nameless.toml")["sent"] == {"learned": 1, "repeated": 1}
    moved = tmp_path / "b.jsonl.gz"
    moved.write_bytes(gzip.compress(path.read_bytes()))
    assert counts_of(url, moved, map="nameless.toml")["sent"] == {"duplicate": 2}


# Sources -------------------------------------------------------------------------------------


def in_format(events, path):
    """Write events as the name of a file says."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(events), path)
        return path
    content = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    if ".csv" in path.name:
        text = io.StringIO()
        table = csv.DictWriter(text, list(events[0]), delimiter=";")
        table.writeheader()
        table.writerows(events)
        content = text.getvalue().encode()
    compressors = {".gz": gzip.compress, ".zst": partial(pa.Codec("zstd").compress, asbytes=True)}
    path.write_bytes(compressors.get(path.suffix, bytes)(content))
    return path


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e.jsonl.zst", "e.csv", "e.csv.gz", "e.parquet"])
def test_events_are_read_from_files_of_each_format(service, tmp_path, name):
    url, client = service
    path = in_format(events_of(decided(client, 20)), tmp_path / name)
    assert counts_of(url, path)["sent"] == {"learned": 20}
    assert counts_of(url, path)["sent"] == {"duplicate": 20}


def test_a_folder_is_read_whole(service, tmp_path):
    url, client = service
    events = events_of(decided(client, 30))
    (tmp_path / "all" / "day").mkdir(parents=True)
    in_format(events[:10], tmp_path / "all" / "a.csv")
    in_format(events[10:20], tmp_path / "all" / "day" / "b.jsonl")
    in_format(events[20:], tmp_path / "all" / "day" / "c.parquet")
    assert counts_of(url, tmp_path / "all", folder=tmp_path)["sent"] == {"learned": 30}


@contextmanager
def feeding(url, source, *options, folder, **more):
    """Run the command as a process of its own, of which nothing is left."""
    arguments = ["-m", "tacit", "feed", str(source), "--map", str(folder / "feed.toml"), "--url", url]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    with Forked([*arguments, "--json", *options], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process, number=None):
    """Return the exit code of a process, perhaps by a signal, and what it counted."""
    if number is not None:
        process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, json.loads(output) if output else errors.decode()


def read_text(url, path, key=None):
    """Return the text that the service answers at a path."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers)) as answer:
        return answer.read().decode()


def asked(url, path, key=None):
    """Return what the service answers at a path, in JSON."""
    return json.loads(read_text(url, path, key))


def feedback_of(url):
    """Return how much feedback the service has."""
    (home,) = asked(url, "/v1/placements")["placements"]
    return home["feedback"]


def test_standard_input_is_sent_as_it_comes(service, tmp_path):
    url, client = service
    events = [msgspec.json.encode(event) + b"\n" for event in events_of(decided(client, 3))]
    with feeding(url, "-", folder=tmp_path, stdin=subprocess.PIPE) as process:
        process.stdin.write(events[0] + events[1][:5])
        process.stdin.flush()
        eventually(lambda: feedback_of(url) == 1)
        process.stdin.write(events[1][5:] + events[2].rstrip())
        code, counts = ended(process)
        assert (code, counts["sent"]) == (0, {"learned": 3})


def test_a_file_is_followed_as_it_grows_and_is_replaced(service, tmp_path):
    url, client = service
    events = [msgspec.json.encode(event) + b"\n" for event in events_of(decided(client, 6))]
    events[4] = events[4].rstrip() + b" " * 200 + b"\n"
    path = tmp_path / "events.jsonl"
    path.write_bytes(events[0])
    with feeding(url, path, "--follow", folder=tmp_path) as process:
        eventually(lambda: feedback_of(url) == 1)
        with path.open("ab") as file:
            file.write(events[1] + events[2][:7])
            file.flush()
            eventually(lambda: feedback_of(url) == 2)
            # What is half written is sent once it is whole, also under another name.
            path.rename(tmp_path / "events.jsonl.1")
            file.write(events[2][7:] + events[3])
        path.write_bytes(events[4])
        eventually(lambda: feedback_of(url) == 5)
        # Cut short, it is read from its beginning; what is half written in the end is no event yet.
        path.write_bytes(events[5] + b'{"half')
        eventually(lambda: feedback_of(url) == 6)
        code, counts = ended(process, signal.SIGINT)
        assert code == 0
        assert counts["sent"]["learned"] == 6
        assert counts["rejected"] == {}


def test_files_that_come_into_a_folder_are_followed(service, tmp_path):
    url, client = service
    events = events_of(decided(client, 4))
    folder = tmp_path / "events"
    folder.mkdir()
    written(folder / "a.jsonl", events[:2])
    with feeding(url, folder, "--follow", folder=tmp_path) as process:
        eventually(lambda: feedback_of(url) == 2)
        written(folder / "b.jsonl", events[2:])
        eventually(lambda: feedback_of(url) == 4)
        assert ended(process, signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.jsonl.gz"])
def test_what_cannot_grow_is_not_followed(service, tmp_path, name):
    path = in_format([{"decision": "d", "clicked": 1, "id": "e"}], tmp_path / name)
    came, _ = fed(service[0], path, "--follow")
    assert came.returncode == 1
    assert "only JSON lines that are not compressed" in came.stderr


def test_lines_know_their_places_however_they_are_cut():
    content = b'{"a":1}\n\n{"b":"\xc3\xbc"}\r\n[1]\nnone\n{"c":3}'
    whole = [*(lines := EventLines("s")).parse_chunk(content), *lines.parse_rest()]
    assert [found.event_id.partition("@")[2] for found in whole] == list(map(str, [0, 9, 21, 25, 30]))
    assert [found.reason for found in whole] == ["", "", "not-an-object", "not-json", ""]
    for size in range(1, len(content)):
        lines = EventLines("s")
        parts = [content[i : i + size] for i in range(0, len(content), size)]
        assert [*(found for part in parts for found in lines.parse_chunk(part)), *lines.parse_rest()] == whole


def test_a_line_that_is_too_long_is_rejected_and_not_kept():
    lines = EventLines("s")
    found = list(lines.parse_chunk(b'{"a":1}\n"'))
    for _ in range(3 * LONGEST_LINE // CHUNK_BYTES):
        found += lines.parse_chunk(b"x" * CHUNK_BYTES)
    found += lines.parse_chunk(b'"\n{"b":2}\n')
    long = 3 * LONGEST_LINE + 2
    assert [one.reason for one in found] == ["", "too-long", ""]
    assert f"{long:,} bytes" in found[1].detail
    assert len(found[1].text) <= 1000
    assert found[2].event_id.endswith(f"@{8 + long + 1}")


# Bad events ----------------------------------------------------------------------------------


def test_what_cannot_be_sent_is_counted_by_reason_with_the_first_of_each(service, tmp_path):
    url, client = service
    a, b, c = decided(client, 3)
    lines = [
        {"decision": a, "clicked": 1, "id": "1"},
        {"decision": "never", "clicked": 1, "id": "2"},
        {"decision": b, "clicked": 2, "id": "3"},
        {"decision": b, "id": "4"},
        {"decision": a, "clicked": 0, "id": "1"},
        {"decision": b, "clicked": "0.5", "id": ["5"]},
        {"decision": "\\ud800", "clicked": 1, "id": "6"},
        {"decision": c, "clicked": "true", "id": 7},
    ]
    path = written(tmp_path / "events.jsonl", lines)
    path.write_bytes(path.read_bytes() + b'{"decision": NaN}\n{"decision": "\xff"}\n7\n')
    counts = counts_of(url, path, "--most-rejected", "100%", "--rejected", tmp_path / "bad.jsonl")
    # Of one between them nothing came.
    assert counts["sent"] == {"learned": 1, "pending": 1}
    assert counts["rejected"] == {
        "unknown-decision": 2, "bad-reward": 1, "missing-field": 1, "conflict": 1, "bad-id": 1, "not-json": 2,
        "not-an-object": 1,
    }  # fmt: skip
    assert counts["first"]["bad-reward"]["line"] == 3
    why = "clicked: 2 is not in [0, 1]; divide it in the source, or send it as a metric"
    assert counts["first"]["bad-reward"]["detail"] == why
    text = tacit("feed", path, "--map", tmp_path / "feed.toml", "--url", url).stdout
    assert f"1 rejected, bad-reward; the first in {path}, line 3:" in text
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 9


def test_rejected_events_are_fed_again_as_the_events_that_they_were(service, tmp_path):
    url, client = service
    (tmp_path / "feed.toml").write_text(NAMELESS)
    (one,) = decided(client, 1)
    events = [{"decision": decision, "clicked": 1} for decision in (one, "x")]
    path = written(tmp_path / "events.jsonl", events)
    bad = tmp_path / "bad.jsonl"
    came, counts = fed(url, path, "--rejected", bad)
    assert (came.returncode, counts["rejected"]) == (3, {"unknown-decision": 1})
    client.decide("home", "key", decision_id="x")
    assert counts_of(url, bad)["sent"] == {"learned": 1}
    assert counts_of(url, path)["sent"] == {"duplicate": 2}


def test_a_strict_feed_ends_at_the_first_bad_event_after_what_came_before(service, tmp_path):
    url, client = service
    events = events_of(decided(client, 4))
    events[2]["clicked"] = 7
    came, counts = fed(url, written(tmp_path / "events.jsonl", events), "--strict")
    assert came.returncode == 3
    assert "1 of 3 events are rejected, none is allowed" in came.stderr
    assert counts["sent"] == {"learned": 2}


def test_too_many_bad_events_end_a_feed_after_the_first_thousand(service, tmp_path):
    url, client = service
    bad = [{"decision": "d", "clicked": 9, "id": "e"}]
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 1000)) + bad * 5000)
    came, counts = fed(url, path)
    assert came.returncode == 3
    assert "at most 5 % are allowed" in came.stderr
    # More than a twentieth of what was read by then.
    assert counts["sent"] == {"learned": 1000}
    assert counts["rejected"] == {"bad-reward": 53}
    # A share of a few is looked at in the end, and all that can be sent is sent.
    path = written(tmp_path / "few.jsonl", bad + events_of(decided(client, 3)))
    came, counts = fed(url, path)
    assert (came.returncode, counts["sent"]) == (3, {"learned": 3})
    assert fed(url, path, "--most-rejected", "0.25")[0].returncode == 0


def test_a_placement_that_is_none_rejects_its_events_alone(service, tmp_path):
    url, client = service
    (tmp_path / "feed.toml").write_text(MAP.replace('{ value = "home" }', '"where"'))
    events = events_of(decided(client, 4))
    for event, place in zip(events, ["home", "nowhere", "no/where", "home"], strict=True):
        event["where"] = place
    counts = counts_of(url, written(tmp_path / "events.jsonl", events), "--most-rejected", "50%")
    # Of one between them nothing came.
    assert counts["sent"] == {"learned": 1, "pending": 1}
    assert counts["rejected"] == {"unknown-placement": 1, "invalid-value": 1}


def test_a_request_of_which_one_is_refused_is_sent_without_it(service, tmp_path):
    url, client = service
    text = MAP.replace('reward = "clicked"', 'event = "kind"')
    text += '[reward]\nclick = 1\nbuy = { metric = "none", field = "total" }\n'
    (tmp_path / "feed.toml").write_text(text)
    events = [{"decision": id, "id": id, "kind": "click"} for id in decided(client, 5)]
    events[1] |= {"kind": "buy", "total": 7}
    events[3] |= {"kind": "buy", "total": 8}
    events.append({"kind": "page"})
    counts = counts_of(url, written(tmp_path / "e.jsonl", events), "--most-rejected", "50%")
    assert counts["sent"] == {"learned": 1, "pending": 2}
    assert (counts["rejected"], counts["left_out"]) == ({"invalid-value": 2}, 1)


def test_rows_of_csv_that_are_wrong_are_rejected(tmp_path):
    path = tmp_path / "events.csv"
    path.write_bytes(b'decision,clicked\na,1\nb\n"c\nd",0\ne,\xff\nf,1\n')
    found = list(read_events(str(path)))
    assert [(one.line, one.reason) for one in found] == [
        (2, ""), (3, "bad-row"), (4, ""), (6, "not-utf-8"), (7, "")
    ]  # fmt: skip
    assert found[2].event == {"decision": "c\nd", "clicked": "0"}


# Before anything is sent ---------------------------------------------------------------------


def test_a_check_says_what_would_be_sent_and_tells_nothing(service, tmp_path):
    url, client = service
    (tmp_path / "feed.toml").write_text(MAP + '[where]\nkind = ["click", "view"]\n')
    (one,) = decided(client, 1)
    events = [{"decision": one, "clicked": 1, "id": "1", "kind": "click"}, {"kind": "page"}, {"kind": "view"}]
    path = written(tmp_path / "events.jsonl", events + [{"kind": "page"}] * 2000)
    came = tacit("feed", path, "--map", tmp_path / "feed.toml", "--check")
    assert came.returncode == 0, came.stderr
    lines = came.stdout.splitlines()
    assert lines[0] == f"{path}, line 1: home: decision {one}: reward 1.0"
    assert lines[1] == f"{path}, line 2: left out: kind is 'page'; [where] has kind = ['click', 'view']"
    assert "line 3: rejected, missing-field: decision" in lines[2]
    assert "1,000 events: 1 would be sent, 998 left out by the map, 1 rejected" in came.stdout
    assert feedback_of(url) == 0
    assert tacit("feed", path, "--map", tmp_path / "feed.toml", "--check", "--follow").returncode == 2


PLACED = 'placement = "p"\ndecision_id = "d"\n'


def test_options_that_are_wrong_are_refused(service, tmp_path):
    url, client = service
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 1)))
    for options, said in [
        (["--most-rejected", "some"], "is no share"),
        (["--most-rejected", "5"], "is no share"),
        (["--rejected", path], "is a part of SOURCE"),
    ]:
        came, _ = fed(url, path, *options)
        assert came.returncode == 2
        assert said in came.stderr
    assert tacit("feed").returncode == 2
    came, _ = fed(url, tmp_path / "none.jsonl")
    assert came.returncode == 1
    assert "there is no such file" in came.stderr
    assert feedback_of(url) == 0


# What others write ---------------------------------------------------------------------------

# As their public documentation shows them, shortened, with the decision's id that a page adds:
# twilio.com/docs/segment/connections/spec/common, posthog.com/docs/data-pipelines/batch-exports/s3,
# github.com/o19s/ubi, support.google.com/analytics/answer/7029846.
SEGMENT = {
    "anonymousId": "507f191e810c19729de860ea",
    "event": "Product Clicked",
    "messageId": "022bb90c-bbac-11e4-8dfc-aa07a5b093db",
    "properties": {"decision_id": "D", "product_id": "507f1f77bcf86cd799439011"},
    "timestamp": "2015-02-23T22:28:55.111Z",
    "type": "track",
    "userId": "97980cfea0067",
}
POSTHOG = {
    "uuid": "0190d0b1-1c5e-7f4e-9d5f-5b4d3c2b1a09",
    "event": "clicked",
    "distinct_id": "user",
    "properties": {"decision_id": "D", "$browser": "Chrome"},
    "timestamp": "2024-07-20T10:00:00Z",
}
UBI = {
    "action_name": "click",
    "query_id": "D",
    "timestamp": "2024-07-20T10:00:00.000Z",
    "event_attributes": {
        "object": {"object_id": "B07", "object_id_field": "asin"},
        "position": {"ordinal": 2},
    },
}
GA4 = {
    "event_timestamp": "1611705600000000",
    "event_name": "select_content",
    "event_params": [
        {"key": "page_location", "value": {"string_value": "https://example.org"}},
        {"key": "decision_id", "value": {"string_value": "D"}},
    ],
}


@pytest.mark.parametrize(
    ("name", "event", "sent"),
    [
        ("segment", SEGMENT, ("D", 1.0, SEGMENT["messageId"], 1424730535.111)),
        ("posthog", POSTHOG, ("D", 1.0, POSTHOG["uuid"], 1721469600.0)),
        (
            "posthog",
            POSTHOG | {"properties": json.dumps(POSTHOG["properties"])},
            ("D", 1.0, POSTHOG["uuid"], 1721469600.0),
        ),
        ("ubi", UBI, ("D", ["B07"], "named", 1721469600.0)),
        ("ga4", GA4, ("D", 1.0, "named", 1611705600.0)),
    ],
)
def test_what_others_write_is_sent_by_the_map_that_is_printed_for_it(name, event, sent):
    text = tacit("feed", "--example", name).stdout
    assert text == example_map(name)
    mapper = Mapper(parse_map(text))
    assert mapper.skip_reason(event) is None
    _, message, time = mapper.map_event(event, "named")
    value = message.items if name == "ubi" else message.reward
    assert (message.decision_id, value, message.feedback_id, time) == sent
    other = {"type": "page", "event": "other", "action_name": "other", "event_name": "other"}
    assert mapper.skip_reason(event | other) is not None


def test_a_worth_can_be_a_metric_beside_a_reward():
    text = 'placement = "p"\ndecision_id = "d"\nevent = "e"\n[reward]\n'
    text += 'buy = { reward = 1, metric = "revenue", field = "sum" }\nlike = { metric = "likes" }\n'
    text += 'rate = { field = "stars" }'
    mapper = Mapper(parse_map(text))
    event = {"p": "home", "d": "D"}
    buy = mapper.map_event(event | {"e": "buy", "sum": "12.5"}, "n").message
    assert (buy.reward, buy.metrics) == (1.0, {"revenue": 12.5})
    like = mapper.map_event(event | {"e": "like"}, "n").message
    assert (like.reward, like.metrics) == (None, {"likes": 1.0})
    assert mapper.map_event(event | {"e": "rate", "stars": 0.8}, "n").message.reward == 0.8
    for bad in ({"e": "rate", "stars": 4}, {"e": "rate", "stars": []}, {"e": "rate", "stars": 10**400}):
        with pytest.raises(BadEvent):
            mapper.map_event(event | bad, "n")


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"revenue": 59.9}, "revenue"),
        ({"properties": {"revenue": 60}}, "properties.revenue"),
        *(({name: value}, None) for name, value in (("revenue", 1), ("revenue", True), ("total", 5.0))),
    ],
)
def test_an_amount_that_the_map_does_not_take_is_doubted_once(event, place):
    text = 'placement = "p"\ndecision_id = "d"\nevent = "e"\n[reward]\nbuy = { metric = "revenue" }\n'
    mapper = Mapper(parse_map(text))
    for _ in range(2):
        sent = mapper.map_event({"p": "home", "d": "D", "e": "buy"} | event, "n").message
        assert sent.metrics == {"revenue": 1.0}
    assert [f'field = "{place}"' in doubt for doubt in mapper.warnings] == [True] * (place is not None)
    mapper = Mapper(parse_map(text.replace(" }", ', field = "revenue" }')))
    mapper.map_event({"p": "home", "d": "D", "e": "buy", "revenue": 5}, "n")
    assert mapper.warnings == []


def test_clicks_on_lists_are_sent_by_position_or_item(tmp_path):
    values = {"placements": {"shelf": {"kind": "slates", "arms": ["a", "b", "c"], "positions": 2, "seed": 7}}}
    with served_home(tmp_path, values=values) as (url, client):
        for field in ("clicks", "items"):
            text = f'placement = {{ value = "shelf" }}\ndecision_id = "d"\n{field} = "clicked"\n'
            (tmp_path / "feed.toml").write_text(text)
            listed = client.slate("shelf", "key")
            clicked = 0 if field == "clicks" else listed.slate[0]
            events = [{"d": listed.decision_id, "clicked": value} for value in (clicked, "none")]
            came, counts = fed(url, written(tmp_path / "e.jsonl", events))
            assert counts["sent"] == {"pending": 1}, came.stderr
            assert sum(counts["rejected"].values()) == 1


def test_the_page_runs_and_prints_what_it_shows(tmp_path):
    differences, _ = run(ROOT / "docs/events.md", tmp_path)
    assert not differences, "\n".join(map(str, differences))


# Events that say what was shown --------------------------------------------------------------

JOINED = """
placement = { value = "home" }
decision_id = "decision"
id = "id"
time = "at"
user = "user"
arm = "item"
join_seconds = 60
event = "kind"
[reward]
click = 1
[shown]
where = { kind = "shown" }
decision_id = "of"
user = "visitor"
arm = "item"
"""


def test_events_without_a_decision_are_joined_to_the_last_one_before_and_never_guessed(service, tmp_path):
    url, client = service
    (tmp_path / "feed.toml").write_text(JOINED)
    a, b, c, d, e = decided(client, 5)
    at = 1_700_000_000

    def shown(id, seconds, item="x"):
        return {"kind": "shown", "of": id, "visitor": "u", "item": item, "at": at + seconds}

    def click(id, seconds, **more):
        return {"kind": "click", "id": id, "user": "u", "item": "x", "at": at + seconds} | more

    events = [
        shown(a, 0), shown(b, 10), shown(c, 10, "y"), click("1", 9), click("2", 30),
        click("3", 30, item="y"), click("early", -1), click("late", 71), click("other", 5, user="v"),
        shown(d, 20), shown(e, 20), shown(e, 20), click("which", 25), click("4", 25, decision=d),
        click("nobody", 5, user=None),
    ]  # fmt: skip
    path = written(tmp_path / "events.jsonl", events)
    counts = counts_of(url, path, "--most-rejected", "50%")
    assert counts["sent"] == {"remembered": 6, "learned": 4}
    assert counts["rejected"] == {"unmatched": 3, "ambiguous": 1, "missing-field": 1}
    assert counts["first"]["ambiguous"]["line"] == 13
    assert counts_of(url, path, "--most-rejected", "50%")["sent"] == {"remembered": 6, "duplicate": 4}
    text = tacit("feed", path, "--map", tmp_path / "feed.toml", "--check").stdout
    assert f"line 2: home: what was shown, to be joined to\n{path}, line 3" in text
    assert f"line 4: home: decision {a}: reward 1.0" in text


SHOWN_BY_OTHERS = """
placement = { value = "home" }
id = "id"\ntime = "at"\nuser = "user"\nreward = "clicked"
[shown]
where = { page = "front" }
elsewhere = true\nkey = "page"\nuser = "user"\narm = "item"\npropensity = "chance"\narms = "of"
"""


def test_what_was_decided_elsewhere_becomes_a_decision_that_counts_once(service, tmp_path):
    url, _ = service
    (tmp_path / "feed.toml").write_text(SHOWN_BY_OTHERS)
    common = {"page": "front", "at": 1_700_000_000}
    events = [
        common | {"id": "s1", "user": "u", "item": "a", "chance": 0.5, "of": ["a", "b"]},
        common | {"id": "s2", "user": "v", "item": "b"},
        common | {"id": "s3", "user": "w", "item": "none"},
        {"id": "c1", "user": "u", "at": 1_700_000_005, "clicked": 1},
        {"id": "c2", "user": "w", "at": 1_700_000_005, "clicked": 1},
    ]
    path = written(tmp_path / "events.jsonl", events)
    _, counts = fed(url, path)
    assert counts["sent"] == {"logged": 2, "learned": 1}
    # What is shown to nobody's knowledge has no feedback either.
    assert counts["rejected"] == {"invalid-value": 1, "unknown-decision": 1}
    _, counts = fed(url, path)
    assert counts["sent"] == {"duplicate": 3}
    (home,) = asked(url, "/v1/placements")["placements"]
    assert (home["decisions"], home["feedback"]) == (2, 1)


@pytest.mark.parametrize("worth", [0, 1])
def test_past_clicks_without_what_was_not_clicked_are_said_to_mislead(service, tmp_path, worth):
    url, _ = service
    (tmp_path / "feed.toml").write_text(ELSEWHERE.replace("[reward]", f"[reward]\nleave = {worth}"))
    events = [{"id": f"v{i}", "kind": "view", "page": f"p{i}", "banner": "a"} for i in range(2)]
    events += [{"id": "c0", "kind": "click", "page": "p0"}, {"id": "c1", "kind": "leave", "page": "p1"}]
    path = written(tmp_path / "events.jsonl", events)
    came = tacit("feed", path, "--map", tmp_path / "feed.toml", "--url", url)
    assert ("no event says what was not clicked" in came.stdout) == (worth == 1)
    assert counts_of(url, written(tmp_path / "more.jsonl", [events[0] | {"page": "p2"}]))["warnings"] == []
    # What was known already says so.
    again = tacit("feed", path, "--map", tmp_path / "feed.toml", "--url", url)
    assert "4 duplicate: it was recorded before" in again.stdout
    assert "nothing changed: all 4 were sent before" in again.stdout
    assert "not clicked" not in again.stdout


@pytest.mark.parametrize(("seen", "said"), [("View", True), ("Page", False)])
def test_clicks_that_a_nought_before_makes_void_are_said(service, tmp_path, seen, said):
    url, client = service
    text = MAP.replace('reward = "clicked"', 'event = "kind"') + "[reward]\nClick = 1\nView = 0\n"
    (tmp_path / "feed.toml").write_text(text)
    events = [
        {"decision": one, "id": f"{kind}{i}", "kind": kind}
        for i, one in enumerate(decided(client, 20))
        for kind in (seen, "Click")
    ]
    events += [{"decision": one, "id": f"l{i}", "kind": "View"} for i, one in enumerate(decided(client, 5))]
    _, counts = fed(url, written(tmp_path / "events.jsonl", events))
    assert counts["sent"] == ({"learned": 25, "repeated": 20} if said else {"learned": 25})
    assert ["aggregation: 20 " in doubt for doubt in counts["warnings"]] == [True] * said


@pytest.mark.parametrize(("table", "kind"), [('[where]\nkind = "click"\n', "Click"), ("", "view")])
def test_a_map_that_leaves_all_events_out_is_said(service, tmp_path, table, kind):
    url, client = service
    text = MAP.replace('reward = "clicked"', 'event = "kind"') + "[reward]\nClick = 1\n" + table
    (tmp_path / "feed.toml").write_text(text)
    events = [{"decision": one, "id": one, "kind": kind} for one in decided(client, 2)]
    # A file of an hour in which nobody clicked is no error.
    counts = counts_of(url, written(tmp_path / "events.jsonl", events))
    assert ["[where]" in doubt for doubt in counts["warnings"]] == [True]
    told = tacit("feed", tmp_path / "events.jsonl", "--map", tmp_path / "feed.toml", "--check").stdout
    assert f"left out: kind is '{kind}'; {'[where]' if table else '[reward]'} has " in told


def test_a_whole_batch_of_which_each_event_is_refused_for_itself_is_rejected_one_by_one(service, tmp_path):
    url, _ = service
    (tmp_path / "feed.toml").write_text(SHOWN_BY_OTHERS)
    common = {"page": "front", "user": "u", "at": 1_700_000_000}
    events = [common | {"id": f"s{i}", "item": "retired"} for i in range(1_000)]
    events.insert(500, common | {"id": "good", "item": "a", "chance": 0.7})
    counts = counts_of(url, written(tmp_path / "events.jsonl", events), "--most-rejected", "100%")
    assert counts["rejected"] == {"invalid-value": 1_000}
    assert counts["sent"] == {"logged": 1}


@pytest.mark.parametrize(
    ("stated", "propensity", "arms"),
    [
        ("propensity = 0.5", 0.5, None),
        ("propensity = { value = 0.25 }", 0.25, None),
        ("propensity = 1", 1.0, None),
        ('propensity = "uniform"\narms = ["a", "b"]', 0.5, ["a", "b"]),
        ('propensity = "uniform"\narms = { value = ["a", "b"] }', 0.5, ["a", "b"]),
        ('propensity = "uniform"\narms = "offered"', 1 / 3, ["a", "b", "c"]),
        ('propensity = "uniform"\narms = "cell"', 0.5, ["a", "b"]),
        ('propensity = "chance"\narms = ["a", "b"]', 0.125, ["a", "b"]),
    ],
)
def test_what_is_the_same_for_all_events_is_stated_in_the_map(stated, propensity, arms):
    mapper = Mapper(parse_map(f'{ELSEWHERE}key = {{ value = "front" }}\n{stated}'))
    event = {"kind": "view", "page": "1", "banner": "a", "offered": ["a", "b", "c"], "chance": 0.125}
    found = mapper.map_event(event | {"cell": '["a", "b"]', "id": "e"}, "").message
    assert (found.key, found.arm, found.propensity, found.arms) == ("front", "a", propensity, arms)


@pytest.mark.parametrize("reward", ["1", "{ value = 1 }"])
def test_events_that_are_all_worth_the_same_need_no_kind(reward):
    mapper = Mapper(parse_map(f'placement = {{ value = "home" }}\ndecision_id = "page"\nreward = {reward}'))
    assert mapper.map_event({"page": "1"}, "line 1").message.reward == 1.0


@pytest.mark.parametrize("offered", [None, [], ["b", "c"], "a|b"])
def test_a_split_over_arms_among_which_the_one_that_was_shown_is_none_is_refused(offered):
    mapper = Mapper(parse_map(f'{ELSEWHERE}propensity = "uniform"\narms = "offered"'))
    event = {"kind": "view", "page": "1", "banner": "a", "offered": offered, "id": "e"}
    with pytest.raises(BadEvent, match="offered: "):
        mapper.map_event(event, "")


@pytest.mark.parametrize("name", ["e.jsonl", "e.csv"])
def test_a_split_that_was_drawn_elsewhere_is_learned_and_its_best_arm_is_named(tmp_path, name):
    config, clock = with_home(tmp_path / "t.db", arms=["a", "b", "c"]), Clock()
    (tmp_path / "feed.toml").write_text(f'{ELSEWHERE}propensity = "uniform"\narms = ["a", "b", "c"]\n')
    events = []
    for i in range(1_200):
        arm = "abc"[i % 3]
        event = {"page": f"p{i}", "banner": arm}
        events.append(event | {"id": f"v{i}", "kind": "view"})
        # Every second click comes for a, every tenth for b and c.
        if i // 3 % (2 if arm == "a" else 10) == 0:
            events.append(event | {"id": f"c{i}", "kind": "click"})
    with by_clock(config, clock) as url, Client(url) as client:
        counts = counts_of(url, in_format(events, tmp_path / name))
        # Decisions without a click wait before most of those with one.
        assert counts["sent"].pop("learned") + counts["sent"].pop("pending") == 280
        assert counts["sent"] == {"logged": 1_200}
        clock.now += 40 * SECOND
        client.decide("home", "later")
        even, over_b = client.lift("home"), client.lift("home", control="arm b")
    # What was shown is what the control of old would have shown.
    assert (even.claim, even.difference) == ("early", None)
    assert "Compare with an arm" in even.verdict
    assert even.winner.declared
    assert even.winner_verdict.startswith("a is best")
    assert not any(each.alarm for each in even.srm)
    assert (over_b.claim, round(over_b.difference.estimate, 2)) == ("better", 0.13)


def test_of_more_decisions_than_are_remembered_the_first_are_forgotten():
    joining = DecisionIndex(1000.0, max_decisions=3)
    for i in range(5):
        joining.add(("u",), float(10 * i), str(i))
    found = [joining.find(("u",), 10.0 * i + 5) for i in range(5)]
    assert found == [("", 0), ("", 0), ("2", 1), ("3", 1), ("4", 1)]


class Counted(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return float.__eq__(self, other)

    def __lt__(self, other):
        Counted.compared += 1
        return float.__lt__(self, other)

    __hash__ = float.__hash__


def test_a_decision_is_remembered_without_a_look_at_each_of_its_user():
    joining, count = DecisionIndex(1000.0, max_decisions=2000), 6000
    Counted.compared = 0
    for i in range(count):
        joining.add(("u",), Counted(count - i), str(i))
    assert Counted.compared < 60 * count


def test_one_user_with_many_decisions_pushes_no_other_out():
    joining = DecisionIndex(1e9, max_decisions=MAX_DECISIONS_EACH + 10)
    joining.add(("other",), 5.0, "kept")
    for i in range(MAX_DECISIONS_EACH + 100):
        joining.add(("u",), float(i), str(i))
    assert joining.find(("other",), 5.0) == ("kept", 1)
    assert joining.find(("u",), 99.0) == ("", 0)
    assert joining.find(("u",), 100.0) == ("100", 1)
    # One that is earlier than all that are remembered is none of them.
    joining.add(("u",), 50.0, "late")
    assert joining.find(("u",), 60.0) == ("", 0)


# Seen ----------------------------------------------------------------------------------------


def test_the_service_says_how_far_a_feed_is(service, tmp_path):
    url, client = service
    bad = [{"decision": "never", "clicked": 1, "id": "x"}]
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 30)) + bad)
    fed(url, path, "--name", "shop")
    fed(url, path)
    feeds = asked(url, "/v1/feeds")["feeds"]
    assert [feed["name"] for feed in feeds] == ["events.jsonl", "shop"]
    first = feeds[1]
    assert (first["read"], first["sent"], first["ended"], first["lag"]) == (31, {"learned": 30}, True, None)
    assert first["rejected"] == {"unknown-decision": 1}
    assert feeds[0]["sent"] == {"duplicate": 30}
    metrics = read_text(url, "/metrics")
    assert 'tacit_feed_sent_total{feed="shop",key="",outcome="learned"} 30.0' in metrics
    assert 'tacit_feed_rejected_total{feed="shop",key="",reason="unknown-decision"} 1.0' in metrics
    page = read_text(url, "/")
    assert '<tr data-feed="shop">' in page
    assert "30 learned" in page


def test_a_key_for_some_placements_knows_of_its_own_feeds(tmp_path):
    (tmp_path / "feed.toml").write_text(MAP)
    made = {name: new_key() for name in ("some", "other", "all")}
    keys = {
        name: {"sha256": sha256, "scopes": ["decide", "feedback", "read"]}
        for name, (_, sha256) in made.items()
    }
    keys["some"]["placements"] = keys["other"]["placements"] = ["home"]
    with served_home(tmp_path, values={"keys": keys}) as (url, _):
        for name in ("some", "other"):
            with Client(url, made[name][0]) as client:
                path = written(tmp_path / f"{name}.jsonl", events_of(decided(client, 3)))
            counts_of(url, path, "--key", made[name][0])
        for name, seen in (("some", ["some.jsonl"]), ("all", ["other.jsonl", "some.jsonl"])):
            assert [feed["name"] for feed in asked(url, "/v1/feeds", made[name][0])["feeds"]] == seen


def test_of_more_feeds_than_are_kept_the_silent_ones_are_forgotten():
    feeds = Feeds(lambda: 1000.0)
    for i in range(MOST + 1):
        feeds.report(f"feed {i}", FeedReport(read=i))
    feeds.report("feed 1", FeedReport(read=7))
    names = {feed.name for feed in feeds.list_feeds()}
    assert len(names) == MOST
    assert "feed 0" not in names


def test_a_key_overwrites_no_report_of_another(tmp_path):
    made = {name: new_key() for name in ("shop", "other")}
    keys = {name: {"sha256": sha, "scopes": ["feedback", "read"]} for name, (_, sha) in made.items()}
    with served_home(tmp_path, values={"keys": keys}) as (url, _):
        clients = {name: Client(url, key) for name, (key, _) in made.items()}
        clients["shop"].report_feed("clicks", FeedReport(read=7))
        clients["other"].report_feed("clicks", FeedReport(read=9, ended=True))
        # Nor does it crowd them out.
        for i in range(MOST + 1):
            clients["other"].report_feed(f"feed {i}", FeedReport(read=i))
        clients["other"].report_feed("clicks", FeedReport(read=9, ended=True))
        feeds = asked(url, "/v1/feeds", made["shop"][0])["feeds"]
        read = {(feed["name"], feed["key"]): feed["read"] for feed in feeds}
        assert (read["clicks", "shop"], read["clicks", "other"]) == (7, 9)
        assert len(read) == MOST + 1
        metrics = read_text(url, "/metrics", made["shop"][0])
        assert 'tacit_feed_events_total{feed="clicks",key="shop"} 7.0' in metrics
        assert 'tacit_feed_events_total{feed="clicks",key="other"} 9.0' in metrics
        for client in clients.values():
            client.close()


# Faults --------------------------------------------------------------------------------------


@contextmanager
def before(url, refusals, status):
    """Yield the address of what refuses the first requests, and hands the others on to a service."""
    left = [refusals]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["content-length"]))
            if left[0] > 0:
                left[0] -= 1
                return self.answered(status, b"{}")
            request = urllib.request.Request(url + self.path, content, {"content-type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                return self.answered(200, answer.read())

        def answered(self, status, content):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_busy_slows_a_feed_down_and_loses_nothing(service, tmp_path, status):
    url, client = service
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 1000)))
    # More refusals than the client itself bears.
    with before(url, 6, status) as address:
        assert counts_of(address, path)["sent"] == {"learned": 1000}


def test_a_service_that_stays_away_ends_a_feed_which_says_how_to_go_on(service, tmp_path):
    url, client = service
    path = written(tmp_path / "events.jsonl", events_of(decided(client, 10)))
    with before(url, 10**9, 503) as address:
        came, _ = fed(address, path, "--wait", "0")
    assert came.returncode == 1
    assert "feed it again: what is sent counts once" in came.stderr
    assert counts_of(url, path)["sent"] == {"learned": 10}


def test_an_interrupt_ends_after_a_whole_batch(service, tmp_path):
    url, client = service
    with feeding(url, "-", folder=tmp_path, stdin=subprocess.PIPE) as process:
        process.stdin.write(
            b"".join(msgspec.json.encode(one) + b"\n" for one in events_of(decided(client, 5)))
        )
        process.stdin.flush()
        eventually(lambda: feedback_of(url) == 5)
        code, counts = ended(process, signal.SIGINT)
        assert (code, counts["sent"]) == (130, {"learned": 5})


def test_each_event_counts_once_though_feeder_and_service_are_killed(tmp_path):
    (tmp_path / "feed.toml").write_text(MAP)
    config = tmp_path / "tacit.toml"
    config.write_text(
        f'[server]\nport = 0\n[store]\npath = "{tmp_path}/t.db"\n'
        '[placements.home]\narms = ["a", "b"]\nseed = 7\nattribution_window = 36000\n'
    )
    server, port = started(config)
    with Client(f"http://127.0.0.1:{port}") as client:
        ids = [id for _ in range(20 if is_long() else 5) for id in decided(client, 1000)]
    path = written(tmp_path / "events.jsonl", events_of(ids))
    for i in range(6 if is_long() else 4):
        url = f"http://127.0.0.1:{port}"
        with feeding(url, path, folder=tmp_path) as feeder:
            # Each time it gets further before one of the two is killed.
            enough = len(ids) * 3 // 20 * (i + 1)
            eventually(lambda url=url, enough=enough: feedback_of(url) >= enough)
            if i % 2:
                stopped(server, signal.SIGKILL)
                server, port = started(config)
            feeder.kill()
    url = f"http://127.0.0.1:{port}"
    counts = counts_of(url, path)["sent"]
    assert counts.keys() <= {"learned", "duplicate"}
    assert sum(counts.values()) == len(ids)
    assert feedback_of(url) == len(ids)
    assert counts_of(url, path)["sent"] == {"duplicate": len(ids)}
    assert stopped(server, signal.SIGTERM) == 0
