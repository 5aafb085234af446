"""Webhooks: events that others push are feedback by the same map, from those alone who may push."""

import asyncio
import hashlib
import hmac
import json
import urllib.error
import urllib.request
from contextlib import contextmanager

import msgspec
import pytest
from conftest import DATA
from harness import configured

from tacit.client import Client
from tacit.errors import ConfigError
from tacit.feed.event_map import example_map
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import ANYBODY, new_key
from tacit.service.http.feeds import Feeds, Hooks
from tests.feed.test_feed import MAP, decided, events_of, read_text

SECRET = "a secret that is long enough"
CLOUD, CLOUD_BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"


def body_of(name):
    return json.loads((DATA / "webhooks" / f"{name}.json").read_text())


def signature(body, secret=SECRET):
    return hmac.new(secret.encode(), body, hashlib.sha1).hexdigest()


def pushed(address, body, headers):
    """Push a body, of bytes or to be encoded; return the status and the content of the answer."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    sent = {"content-type": "application/json"} | {n.replace("_", "-"): v for n, v in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, content, sent)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@contextmanager
def served(folder, map=MAP, secret=False, **values):
    """Serve a placement and a feed, signed or with keys; yield what pushes a body, and a client."""
    (folder / "feed.toml").write_text(map)
    feed = {"map": str(folder / "feed.toml")}
    if secret:
        (folder / "secret").write_text(SECRET + "\n")
        feed["secret_file"] = str(folder / "secret")
    home = {"arms": ["a", "b"], "attribution_window": 36_000, "seed": 7}
    keys = {name: new_key() for name in ("deciding", "feeding", "reading")}
    scopes = {"deciding": ["decide", "read"], "feeding": ["feedback"], "reading": ["read"]}
    table = {name: {"sha256": sha, "scopes": scopes[name]} for name, (_, sha) in keys.items()}
    values = {"placements": {"home": home}, "feeds": {"shop": feed}, "keys": table} | values
    config = configured(folder / "t.db", **values)

    def push(body, key="feeding", name="shop", **headers):
        if key is not None:
            headers["authorization"] = f"Bearer {keys[key][0]}"
        return pushed(f"{url}/v1/feed/{name}", body, headers)

    push.get = lambda path: read_text(url, path, keys["reading"][0])
    with run_in_thread(config) as url, Client(url, key=keys["deciding"][0]) as client:
        yield push, client


# What senders send ---------------------------------------------------------------------------


def test_segments_body_counts_once_where_it_is_signed(tmp_path):
    with served(tmp_path, example_map("segment"), secret=True) as (push, client):
        (one,) = decided(client, 1)
        event = body_of("segment")
        event["properties"]["decision_id"] = one
        content = json.dumps(event).encode()
        for outcome in ("learned", "duplicate"):
            status, taken = push(content, key=None, x_signature=signature(content))
            assert (status, taken["sent"]) == (200, {outcome: 1})


def test_rudderstacks_body_counts_with_a_key(tmp_path):
    with served(tmp_path, example_map("segment")) as (push, client):
        (one,) = decided(client, 1)
        event = body_of("rudderstack")
        event["properties"]["decision_id"] = one
        assert push(event)[1]["sent"] == {"learned": 1}
        event["type"] = "identify"
        answer = push(event)[1]
        assert "type is 'identify'; [where] has type = 'track'" in answer.pop("first")["left-out"]
        assert answer == {"read": 1, "left_out": 1, "sent": {}, "rejected": {}}


def test_posthogs_body_counts_with_a_key(tmp_path):
    with served(tmp_path, example_map("posthog-webhook")) as (push, client):
        (one,) = decided(client, 1)
        event = body_of("posthog")
        event["event"]["properties"]["decision_id"] = one
        assert push(event)[1]["sent"] == {"learned": 1}


def test_cloudevents_count_alone_in_batches_and_in_binary_mode(tmp_path):
    text = example_map("cloudevents").replace("com.example.clicked", "com.example.someotherevent")
    with served(tmp_path, text.replace("data.decision_id", "data.appinfoA")) as (push, client):
        ids, (first, second) = decided(client, 3), body_of("cloudevents")
        for id, content_type, body in ((ids[0], CLOUD, second), (ids[1], CLOUD_BATCH, [first, second])):
            second |= {"id": f"event {id}", "data": second["data"] | {"appinfoA": id}}
            status, taken = push(body, content_type=content_type)
            assert (status, taken["sent"]) == (200, {"learned": 1})
        said = {f"ce-{name}": str(value) for name, value in second.items() if name != "data"}
        said |= {"ce-id": "caf%C3%A9"}
        status, taken = push({"appinfoA": ids[2]}, **said)
        assert (status, taken["sent"]) == (200, {"learned": 1})


class Idle:
    """What records nothing; no event of its test gets so far."""

    def __init__(self, config):
        self.config = config


@pytest.mark.parametrize(
    "event", [{}, {"decision": 7, "clicked": 1}, {"skip": 1}, {"see": 1, "decision": "d", "at": 1e9}]
)
async def test_a_body_gives_way_after_each_250_events_whatever_becomes_of_them(tmp_path, event):
    text = """
placement = { value = "home" }
decision_id = "decision"
time = "at"
where = { skip = [0] }
reward = "clicked"
arm = "at"
[shown]
where = { see = 1 }
arm = "at"
"""
    (tmp_path / "feed.toml").write_text(text)
    config = configured(tmp_path / "t.db", feeds={"shop": {"map": str(tmp_path / "feed.toml")}})
    count, turns = 5_000, 0

    body = msgspec.json.encode([event] * count)
    taking = asyncio.ensure_future(Hooks(Idle(config), Feeds()).record_body("shop", body, {}, ANYBODY))
    while not taking.done():
        turns += 1
        await asyncio.sleep(0)
    assert taking.result().read == count
    assert turns >= count / 250


# Who may push --------------------------------------------------------------------------------


def test_without_a_key_or_a_signature_nothing_is_taken(tmp_path):
    with served(tmp_path) as (push, client):
        (event,) = events_of(decided(client, 1))
        assert push(event, key=None)[0] == 401
        assert push(event, key="reading")[0] == 403
        # Saying that it is signed is no key where nothing is signed.
        content = msgspec.json.encode(event)
        assert push(content, key=None, x_signature=signature(content))[0] == 401
        assert push(event)[1]["sent"] == {"learned": 1}


def test_a_forged_body_is_refused_whatever_is_wrong_with_it(tmp_path):
    with served(tmp_path, secret=True) as (push, client):
        one, two = events_of(decided(client, 2))
        content, other = msgspec.json.encode(one), msgspec.json.encode(two)
        good = signature(content)
        wrong = ["", "0" * 40, good[:-1], good + "0", signature(content, "another secret entirely"), "é"]
        for given in wrong:
            assert push(content, key=None, x_signature=given)[0] == 401
        # Another body by a signature that was seen; and a key does not stand in for one.
        assert push(other, key=None, x_signature=good)[0] == 401
        assert push(content)[0] == 401
        status, refusal = push(content + b" ", key=None, x_signature=good)
        assert status == 401
        assert SECRET not in json.dumps(refusal)
        assert good not in json.dumps(refusal)
        # Of a batch Segment signs the first event alone: more could be added to it.
        status, refusal = push([one, two], key=None, x_signature=good)
        assert status == 401
        assert "batches" in refusal["detail"]
        status, taken = push(content, key=None, x_signature=good.upper())
        assert (status, taken["sent"]) == (200, {"learned": 1})


def test_headers_of_a_signed_body_say_nothing_as_nobody_signs_them(tmp_path):
    with served(tmp_path, MAP.replace('"decision"', '"data.decision"'), secret=True) as (push, client):
        one, two = decided(client, 2)
        content = msgspec.json.encode({"data": {"decision": one}, "decision": two, "clicked": 0, "id": "e"})
        forged = {"ce_specversion": "1.0", "ce_clicked": "1", "ce_id": "forged"}
        status, taken = push(content, key=None, x_signature=signature(content), **forged)
        assert (status, taken["sent"]) == (200, {"learned": 1})
        # The same event without these headers is the same event.
        assert push(content, key=None, x_signature=signature(content))[1]["sent"] == {"duplicate": 1}
        bare = msgspec.json.encode({"decision": two})
        status, taken = push(bare, key=None, x_signature=signature(bare), **forged)
        assert (status, taken["sent"], taken["rejected"]) == (200, {}, {"missing-field": 1})


def test_a_feed_that_there_is_not_is_named_to_those_with_a_key_alone(tmp_path):
    with served(tmp_path) as (push, _):
        assert push({}, key=None, name="other", x_signature="0" * 40)[0] == 401
        status, refusal = push({}, name="other")
        assert (status, refusal["field"]) == (404, "feed")


def test_a_key_feeds_the_placements_that_it_reaches(tmp_path):
    key, sha = new_key()
    own = {"sha256": sha, "scopes": ["feedback", "decide"], "placements": ["shop-*"]}
    home = {"arms": ["a", "b"], "attribution_window": 36_000}
    places = {"home": home, "shop-1": home}
    (tmp_path / "feed.toml").write_text(MAP.replace('{ value = "home" }', '"place"'))
    feeds = {"shop": {"map": str(tmp_path / "feed.toml")}}
    config = configured(tmp_path / "t.db", placements=places, feeds=feeds, keys={"own": own})
    event = {"decision": "x", "clicked": 1}
    with run_in_thread(config) as url:
        events = [event | {"place": place, "id": place} for place in ("home", "shop-1", "?")]
        _, taken = pushed(f"{url}/v1/feed/shop", events, {"authorization": f"Bearer {key}"})
    assert taken["rejected"] == {"forbidden": 2, "unknown-decision": 1}


# Bodies --------------------------------------------------------------------------------------


def test_what_is_wrong_with_one_event_stops_no_other_and_is_counted_by_reason(tmp_path):
    with served(tmp_path) as (push, client):
        ids = decided(client, 600)
        good = events_of(ids)
        bad = [
            {"decision": "nobody's", "clicked": 1, "id": "u"},
            {"decision": ids[0], "clicked": 7, "id": "r"},
            7,
            {"clicked": 1, "id": "m"},
            {"decision": ids[1], "clicked": 0, "id": "e1"},
        ]
        status, taken = push([*good[:300], *bad, *good[300:]])
        assert (status, taken["read"], taken["sent"]) == (200, 605, {"learned": 600})
        assert taken["rejected"] == {
            "unknown-decision": 1, "bad-reward": 1, "not-an-object": 1, "missing-field": 1, "conflict": 1,
        }  # fmt: skip
        assert taken["first"]["bad-reward"] == (
            "clicked: 7 is not in [0, 1]; divide it in the source, or send it as a metric"
        )
        assert push(good)[1]["sent"] == {"duplicate": 600}


def test_an_event_without_an_id_counts_once_in_whichever_body(tmp_path):
    with served(tmp_path, MAP.replace('id = "id"\n', "")) as (push, client):
        one, two = ({"decision": id, "clicked": 1} for id in decided(client, 2))
        assert push(one)[1]["sent"] == {"learned": 1}
        assert push([two, dict(reversed(one.items()))])[1]["sent"] == {"learned": 1, "duplicate": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"decision": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b"7", 422),
        (b"null", 422),
        (b'"' + b"x" * 2_000_000 + b'"', 413),
    ],
)
def test_a_body_that_holds_no_events_is_refused(tmp_path, body, status):
    with served(tmp_path) as (push, _):
        assert push(body)[0] == status
        assert push({}, content_type="text/plain")[0] == 415


def test_an_event_that_is_nested_deep_is_rejected(tmp_path):
    with served(tmp_path) as (push, client):
        (good,) = events_of(decided(client, 1))
        deep = b'{"decision": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}"
        status, taken = push(b"[" + deep + b"," + msgspec.json.encode(good) + b"]")
        assert (status, taken["sent"], taken["rejected"]) == (200, {"learned": 1}, {"too-deep": 1})


def test_events_are_joined_and_decisions_made_elsewhere_are_logged(tmp_path):
    text = """
placement = { value = "home" }
id = "id"
time = "t"
key = "page"
event = "type"
[reward]
click = 1
[shown]
where = { type = "view" }
elsewhere = true
key = "page"
arm = "item"
propensity = "p"
"""
    with served(tmp_path, text) as (push, _):
        view = {"type": "view", "page": "front", "item": "b", "p": 0.5, "t": 1_700_000_000, "id": "v"}
        click = {"type": "click", "page": "front", "t": 1_700_000_060, "id": "c"}
        assert push([click | {"t": 1}, click])[1]["rejected"] == {"bad-time": 1, "unmatched": 1}
        assert push([click, view])[1]["rejected"] == {"unmatched": 1}
        assert push(click)[1]["sent"] == {"learned": 1}
        assert push(view)[1]["sent"] == {"duplicate": 1}
        assert push(view | {"item": "a"})[1]["rejected"] == {"conflict": 1}


def test_feeds_page_and_metrics_show_what_was_pushed(tmp_path):
    with served(tmp_path) as (push, client):
        push([*events_of(decided(client, 3)), {}])
        (feed,) = json.loads(push.get("/v1/feeds"))["feeds"]
        assert (feed["name"], feed["read"], feed["sent"]) == ("shop", 4, {"learned": 3})
        assert feed["rejected"] == {"missing-field": 1}
        assert feed["rate"] > 0
        assert 'tacit_feed_events_total{feed="shop",key=""} 4.0' in push.get("/metrics")
        assert 'data-feed="shop"' in push.get("/")


# The configuration ---------------------------------------------------------------------------


def test_a_feed_that_is_configured_wrong_is_refused(tmp_path, monkeypatch):
    (tmp_path / "feed.toml").write_text(MAP)
    (tmp_path / "wrong.toml").write_text("placement = 7")
    (tmp_path / "short").write_text("abc123")
    good = {"map": str(tmp_path / "feed.toml")}
    monkeypatch.delenv("SHOP_SECRET", raising=False)
    for table, said in (
        ({}, "feeds.shop"),
        ({"map": str(tmp_path / "none.toml")}, "feeds.shop.map: .*there is no such file"),
        ({"map": str(tmp_path / "wrong.toml")}, "placement"),
        (good | {"secret_env": "SHOP_SECRET"}, "secret_env: SHOP_SECRET has 0 characters"),
        (good | {"secret_file": str(tmp_path / "short")}, "give 16 at least"),
        (good | {"secret_file": str(tmp_path / "gone")}, "secret_file"),
        (good | {"secret_env": "A", "secret_file": "B"}, "not both"),
        (good | {"secret": SECRET}, "secret"),
    ):
        with pytest.raises(ConfigError, match=said) as refusal:
            configured(feeds={"shop": table})
        assert "abc123" not in str(refusal.value)
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    assert SECRET not in repr(configured(feeds={"shop": good | {"secret_env": "SHOP_SECRET"}}))
    with pytest.raises(ConfigError, match="its name stands in addresses"):
        configured(feeds={"a/b": good})
