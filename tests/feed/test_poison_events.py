"""Events that hold anything at all: each is feedback, left out, or rejected with a reason."""

import asyncio
import datetime
import json
import math
import time
from decimal import Decimal

import msgspec
import pytest
from harness import configured, served
from hypothesis import given
from hypothesis import strategies as st

from tacit.client import Client
from tacit.feed.event_map import parse_map
from tacit.feed.mapping import BadEvent, MappedEvent, Mapper
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import ANYBODY, new_key
from tacit.service.http.feeds import Feeds, Hooks
from tests.feed.test_feed import decided, fed, served_home, written

SHOWN = """
placement = "place"
decision_id = "decision"
id = "id"
time = "time"
key = "page"
event = "type"
[reward]
click = { field = "clicked" }
buy = { metric = "revenue", field = "total" }
[seen]
where = { type = "seen" }
[shown]
where = { type = "view" }
elsewhere = true
key = "page"
arm = "item"
propensity = "chance"
arms = "offer"
context = "context"
"""
UNIFORM = SHOWN.replace('"chance"', '"uniform"')
MAPS = {
    "shown": SHOWN,
    "uniform": UNIFORM.replace('"context"\n', '{ device = "context.device" }\n'),
    "clicks": 'placement = "place"\ndecision_id = "decision"\nclicks = "clicked"\n',
    "items": 'placement = "place"\ndecision_id = "decision"\nitems = "clicked"\n',
    "reward": 'placement = "place"\ndecision_id = "decision.0"\nreward = "clicked"\n',
}
EVENT = {
    "place": "home", "decision": "d", "id": "e", "time": 1_700_000_000, "page": "front", "type": "view",
    "clicked": 1, "total": 3.5, "item": "a", "chance": 0.5, "offer": ["a", "b"], "context": {"device": "ios"},
}  # fmt: skip


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


JSON = [
    None, "", [], {}, [[]], [None], ["a", "b"], ["a", ["b"]], {"a": {}}, {"device": {}}, {"device": 7},
    {"device": "x" * 2000}, {"age": 2**70}, {"age": 10**400}, {"": 1}, {"\0": "\0"}, [0.5], ["a"] * 2000,
    0, -1, 7, 2**62, 2**64, -(2**70), 10**400, 0.5, 1.5, -0.0, 1e-300, 1e308, True, False, "nan", "1e400",
    "9" * 5000, "²", "\0", "\x9b", "\u202e", "é" * 256, "x" * 257, "[", "[]", "[[1]]", '{"a": 1}', "a/b", ".",
    "..", "%2e", "home", "shelf", "none", "view", "seen", "click", "buy", "0001-01-01",
    "9999-12-31T23:59:59-23:59", "2017-02-30", nested(90), nested(900),
]  # fmt: skip
FOREIGN = [
    b"x", (1, 2), math.nan, math.inf, Decimal("sNaN"), Decimal("1e999"), datetime.date(2020, 1, 1),
    datetime.datetime.min, datetime.datetime.max, {1: 2}, {1, 2}, object(),
]  # fmt: skip
"""What files of Parquet hold besides, and more."""


def poisoned():
    """Yield events with each value in each field."""
    for kind in ("view", "click", "buy", "seen"):
        for field in EVENT:
            for value in JSON:
                yield EVENT | {"type": kind, field: value}


values = st.recursive(
    st.sampled_from([*JSON, *FOREIGN]) | st.text(max_size=5) | st.floats() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def read(mapper, event):
    """Return an event as feedback, or why it is none, for a reason that was thought of."""
    try:
        return mapper.read(event, "named")
    except BadEvent as error:
        reason, detail = error.reason, error.detail
    assert reason != "unreadable", detail
    return f"{reason}: {detail}"


@given(st.sampled_from(list(MAPS)), st.dictionaries(st.sampled_from(list(EVENT)), values, max_size=4))
def test_an_event_that_holds_anything_is_feedback_or_has_a_reason(name, changes):
    came = read(Mapper(parse_map(MAPS[name])), EVENT | changes)
    # What is sent, and what is said, can be written.
    msgspec.json.encode(came.message if isinstance(came, MappedEvent) else came, enc_hook=str)


@pytest.mark.parametrize("name", MAPS)
def test_each_value_in_each_field_is_feedback_or_has_a_reason(name):
    mapper = Mapper(parse_map(MAPS[name]))
    for field in EVENT:
        for kind in ("view", "click", "buy", "seen"):
            for value in [*JSON, *FOREIGN, 10**5000]:
                read(mapper, EVENT | {"type": kind, field: value})


@pytest.mark.parametrize(
    ("value", "said"),
    [([], "item: [] is not one arm"), (["a", "b"], "item: ['a', 'b'] is not one arm"), (None, "item: it")],
)
def test_what_names_not_one_arm_is_rejected_with_the_field_and_the_value(value, said):
    with pytest.raises(BadEvent) as error:
        Mapper(parse_map(SHOWN)).read(EVENT | {"item": value})
    assert error.value.detail.startswith(said)


# Wherever events come from -------------------------------------------------------------------

HOME = {
    "arms": ["a", "b"], "seed": 7, "attribution_window": 36_000,
    "context": {"device": ["ios", "web"], "age": "number"},
}  # fmt: skip
SHELF = {"kind": "slates", "arms": ["a", "b", "c"], "positions": 2, "seed": 7, "attribution_window": 36_000}
PLACES = {"home": HOME, "shelf": SHELF}


@pytest.mark.parametrize("name", MAPS)
def test_a_webhook_takes_what_is_good_around_any_events(tmp_path, name):
    asyncio.run(pushed(tmp_path, name))


async def pushed(tmp_path, name):
    (tmp_path / "feed.toml").write_text(MAPS[name])
    feeds = {"shop": {"map": str(tmp_path / "feed.toml")}}
    config = configured(tmp_path / "t.db", placements=PLACES, feeds=feeds)
    async with served(tmp_path / "t.db", config, clock=lambda: time.time_ns() // 1000) as engine:
        hooks = Hooks(engine, Feeds())
        body = msgspec.json.encode([EVENT | {"id": "v", "decision": "first"}, *poisoned()])
        taken = await hooks.record_body("shop", body, {}, ANYBODY)
        assert taken.read == 1 + sum(1 for _ in poisoned())
        assert "unreadable" not in taken.rejected, taken.first
        if "view" in MAPS[name]:
            event = EVENT | {"type": "click", "decision": "first", "id": "last"}
            last = await hooks.record_body("shop", msgspec.json.encode(event), {}, ANYBODY)
            assert last.sent == {"learned": 1}


@pytest.mark.parametrize("name", MAPS)
def test_a_feed_goes_on_behind_any_event(tmp_path, name):
    (tmp_path / "feed.toml").write_text(MAPS[name])
    view = EVENT | {"decision": "first", "id": "v"}
    last = EVENT | {"decision": "first", "id": "last", "type": "click"}
    with served_home(tmp_path, values={"placements": PLACES}) as (url, _):
        path = written(tmp_path / "e.jsonl", [view, *poisoned(), last])
        bad = tmp_path / "bad.jsonl"
        came, counts = fed(url, path, "--most-rejected", "100%", "--rejected", bad)
        assert came.returncode == 0, came.stderr
        assert counts["read"] == len(path.read_bytes().splitlines())
        assert "unreadable" not in counts["rejected"], counts["first"]
        assert len(bad.read_bytes().splitlines()) == sum(counts["rejected"].values())
        if "view" in MAPS[name]:
            assert counts["sent"]["learned"] >= 1


def test_a_placement_that_the_key_does_not_reach_ends_no_feed_whose_events_name_it(tmp_path):
    key, sha = new_key()
    table = {"sha256": sha, "scopes": ["feedback", "decide"], "placements": ["home"]}
    plain = {"arms": ["a", "b"], "attribution_window": 36_000}
    config = configured(tmp_path / "t.db", placements={"home": plain, "shelf": SHELF}, keys={"one": table})
    with run_in_thread(config) as url, Client(url, key=key) as client:
        shelf, home = ({"decision": id, "clicked": 1} for id in decided(client, 2))
        path = written(tmp_path / "e.jsonl", [shelf | {"place": "shelf"}, home | {"place": "home"}])
        text = 'placement = "place"\ndecision_id = "decision"\nreward = "clicked"\n'
        (tmp_path / "feed.toml").write_text(text)
        came, counts = fed(url, path, "--most-rejected", "100%", "--key", key)
        assert came.returncode == 0, came.stderr
        assert (counts["sent"], counts["rejected"]) == ({"pending": 1}, {"forbidden": 1})
        assert "the key reaches the placements home" in json.dumps(counts["first"])
        # Where the map names it, the feed is wrong, and no event.
        (tmp_path / "feed.toml").write_text(text.replace('"place"', '{ value = "shelf" }'))
        came, _ = fed(url, path, "--key", key)
        assert came.returncode not in (0, 3)
