"""The Python client against the real service, and against a line that cuts, hangs and lies."""

import asyncio
import contextlib
import http.client
import inspect
import json
import logging
import math
import pickle
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from typing import get_type_hints
from unittest.mock import create_autospec

import numpy as np
import pytest
from conftest import ROOT
from harness import PATIENCE, configured
from hypothesis import example, given
from hypothesis import strategies as st
from stores import free_port

from tacit.client import (
    AsyncClient,
    Clicks,
    Client,
    Conflict,
    Decided,
    Denied,
    Dueled,
    Feedback,
    Impression,
    InvalidRequest,
    Listed,
    NotFound,
    Recorded,
    Search,
    ServiceError,
    Standings,
    Unavailable,
)
from tacit.client.call import LONGEST_RETRY_AFTER, Reply, compute_pause, parse_retry_after
from tacit.errors import InvalidValue, MissingExtra, TacitError
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import new_key

ARMS = ["holiday", "film", "recipe"]
BEFORE, AFTER, WITHIN, HANG = "cut before", "cut after", "cut within", "hang"
ERROR_AFTER = "500 after"
AT_ONCE = {"aggregation": "first"}
FEATURED = "lin-ts(relevance_dim=2, examination_dim=1)"
RANKINGS = {"old": ["a", "b", "c"], "new": ["c", "b", "d"]}

LEARNED_OR_WAITS = "learned", "pending"
"""By what other tests left, which use the same service."""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    values = {
        "placements.default.arms": ARMS,
        "placements.default.seed": 7,
        "placements.plain.arms": 3,
        "placements.plain.policy": "ucb1",
        "placements.shelf": {"kind": "slates", "arms": ARMS, "positions": 2, **AT_ONCE},
        "placements.rankers": {"kind": "duels", "rankers": ["old", "new"], **AT_ONCE},
        "placements.front": {"kind": "features", "policy": FEATURED},
        "placements.who": {"arms": ARMS, "context_dim": 2, "seed": 1},
        "placements.counted": {"arms": 3, "context_dim": 2},
        "placements.news": {
            "arms": 2,
            "policy": "bwc(policy=thompson, classifier=rectangle(dim=3, margin=0.1))",
            "signals": ["volume", "reformulation"],
            "client_signals": 1,
        },
    }
    with run_in_thread(configured(tmp_path_factory.mktemp("client") / "s.db", **values)) as address:
        yield address


@pytest.fixture(params=["sync", "async"])
def ask(request):
    """Give a function that calls one method of a new client of either kind."""

    def ask_sync(url, method, *args, secret=None, retries=3, timeout=PATIENCE, **options):
        with Client(url, secret, timeout=timeout, retries=retries, rng=generator()) as client:
            return getattr(client, method)(*args, **options)

    def ask_async(url, method, *args, secret=None, retries=3, timeout=PATIENCE, **options):
        async def asked():
            settings = {"timeout": timeout, "retries": retries, "rng": generator()}
            async with AsyncClient(url, secret, **settings) as client:
                return await getattr(client, method)(*args, **options)

        return asyncio.run(asked())

    return ask_sync if request.param == "sync" else ask_async


def generator():
    return np.random.default_rng(1)


def placement(url, name="default"):
    """Return what the service says of a placement."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("GET", "/v1/placements")
    placements = json.loads(connection.getresponse().read())["placements"]
    connection.close()
    return next(p for p in placements if p["name"] == name)


class Line(socketserver.ThreadingTCPServer):
    """A line to the service on which each request meets the next fault; then it is sound.

    A fault is one of the words above, or bytes that are answered in the service's place.
    """

    daemon_threads = True

    def __init__(self, url, faults):
        self.service = url.removeprefix("http://")
        self.faults = list(faults)
        self.bodies = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), Transfer)


class Transfer(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            while self.one_request():
                pass

    def one_request(self):
        start = self.rfile.readline().decode().split()
        if not start:
            return False
        headers = {k.lower(): v for k, v in http.client.parse_headers(self.rfile).items()}
        body = self.rfile.read(int(headers["content-length"]))
        self.server.bodies.append(body)
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, bytes):
            self.wfile.write(fault)
            return False
        if fault == BEFORE:
            return False
        answer = self.asked(start[0], start[1], body, headers)
        if fault == HANG:
            self.server.over.wait(PATIENCE)
        elif fault == ERROR_AFTER:
            self.wfile.write(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n")
        elif fault == WITHIN:
            self.wfile.write(answer[:-10])
        elif fault is None:
            self.wfile.write(answer)
        return fault is None

    def asked(self, method, path, body, headers):
        connection = http.client.HTTPConnection(self.server.service, timeout=PATIENCE)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return (f"HTTP/1.1 {response.status} x\r\ncontent-length: {len(content)}\r\n\r\n").encode() + content


@contextlib.contextmanager
def line(url, *faults):
    with Line(url, faults) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def test_a_decision_and_its_feedback(url, ask):
    decided = ask(url, "decide", "who", "tomato", arms=["film", "recipe"], context=[0.5, 1])
    assert isinstance(decided, Decided)
    assert decided.arm in ("film", "recipe")
    assert (decided.epoch, decided.durability, decided.would) == (0, "committed", None)
    assert uuid.UUID(decided.decision_id).version == 7
    recorded = ask(url, "feedback", "who", decided.decision_id, 1)
    assert (recorded.decision_id, recorded.durability) == (decided.decision_id, "committed")
    assert recorded.outcome in LEARNED_OR_WAITS


def test_the_same_question_gets_the_same_answer(url, ask):
    asked = {"arms": ["film", "recipe"], "decision_id": f"page {ask.__name__}"}
    first = ask(url, "decide", "default", "a", **asked)
    assert ask(url, "decide", "default", "a", **asked) == first
    told = ask(url, "feedback", "default", first.decision_id, 0, feedback_id="none")
    again = ask(url, "feedback", "default", first.decision_id, 0, feedback_id="none")
    assert told.outcome in LEARNED_OR_WAITS
    assert again.outcome == "duplicate"


def test_many_at_once(url, ask):
    asked = [Impression(f"key {i % 3}", arms=["film", "holiday"]) for i in range(20)]
    decided = ask(url, "decide_many", "default", asked)
    assert len({d.decision_id for d in decided}) == 20
    told = [Feedback(d.decision_id, i % 2) for i, d in enumerate(decided)]
    told.append(Feedback("never made", 1))
    recorded = ask(url, "feedback_many", "default", told)
    assert {r.outcome for r in recorded[:20]} <= set(LEARNED_OR_WAITS)
    assert [r.outcome for r in recorded[20:]] == ["unknown-decision"]
    assert [r.decision_id for r in recorded] == [t.decision_id for t in told]


def test_deferred_decisions_and_examinations(url, ask):
    decided = ask(url, "decide", "plain", "ahead", deferred=True)
    assert decided.propensity is None
    outcomes = [
        ask(url, "feedback", "plain", decided.decision_id, 1).outcome,
        ask(url, "activate", "plain", decided.decision_id).outcome,
        ask(url, "record_examination", "plain", decided.decision_id).outcome,
        ask(url, "feedback", "plain", decided.decision_id, 1).outcome,
    ]
    assert outcomes[:3] == ["inactive", "noted", "noted"]
    assert outcomes[3] in LEARNED_OR_WAITS


def test_lists_and_their_clicks(url, ask):
    shown = ask(url, "slate", "shelf", "tomato", arms=["film", "recipe"])
    assert isinstance(shown, Listed)
    assert set(shown.slate) == {"film", "recipe"}
    told = ask(url, "clicks", "shelf", shown.decision_id, [1])
    assert (told.decision_id, told.durability) == (shown.decision_id, "committed")
    # Others of this placement may wait before it.
    assert (told.learned, told.outcome, told.learned_within is None) in (
        (True, "learned", True),
        (False, "pending", False),
    )
    many = ask(url, "slate_many", "shelf", [Impression("tomato"), Impression("film")])
    assert [len(one.slate) for one in many] == [2, 2]
    clicks = [Clicks(many[0].decision_id, items=[many[0].slate[1]]), Clicks("never made", [])]
    outcomes = [told.outcome for told in ask(url, "clicks_many", "shelf", clicks)]
    assert outcomes[0] in LEARNED_OR_WAITS
    assert outcomes[1] == "unknown-decision"


def test_duels_and_their_standings(url, ask):
    key = f"duels {ask.__name__}"
    shown = ask(url, "duel", "rankers", RANKINGS, key=key, decision_id=key)
    assert isinstance(shown, Dueled)
    assert ask(url, "duel", "rankers", RANKINGS, key=key, decision_id=key) == shown
    assert {shown.left, shown.right} <= {"old", "new"}
    assert set(shown.items) <= set("abcd")
    assert len(shown.teams) == len(shown.items)
    assert ask(url, "clicks", "rankers", shown.decision_id, items=shown.items[:1]).learned
    pair, lists = ask(url, "duel_many", "rankers", [Search(key=key), Search(RANKINGS, key)])
    assert pair.items is None
    assert ask(url, "feedback", "rankers", pair.decision_id, 1).learned
    assert ask(url, "clicks", "rankers", lists.decision_id, []).learned
    standings = ask(url, "standings", "rankers", key, confidence=0.9)
    assert isinstance(standings, Standings)
    assert standings.key == key
    assert standings.report["safe_to_stop"] is False
    with pytest.raises(InvalidRequest) as caught:
        ask(url, "standings", "rankers", "nobody searched for this")
    assert (caught.value.status, caught.value.field) == (422, "key")
    with pytest.raises(InvalidRequest, match="give the list of every ranker") as caught:
        ask(url, "duel", "rankers", {"old": ["a"]})
    assert caught.value.field == "rankings.new"


@pytest.mark.parametrize("fault", [AFTER, WITHIN, ERROR_AFTER])
def test_a_list_whose_answer_is_lost_is_decided_once_and_clicked_once(url, ask, fault):
    before = placement(url, "rankers")
    with line(url, fault) as cut:
        shown = ask(cut.url, "duel", "rankers", RANKINGS, key=f"lost {ask.__name__} {fault}")
    with line(url, fault) as cut:
        told = ask(cut.url, "clicks", "rankers", shown.decision_id, [0])
    assert told.outcome == "duplicate"
    after = placement(url, "rankers")
    assert after["decisions"] == before["decisions"] + 1
    assert after["outcomes"]["learned"] == before["outcomes"].get("learned", 0) + 1


def test_arms_with_features(url, ask):
    rows = {"relevance": [[0.2, 1], [0.9, 0]], "examination": [[1], [0.4]]}
    shown = ask(url, "decide", "front", "page", arms=["flood", "final"], **rows)
    assert shown.arm in ("flood", "final")
    (shown,) = ask(url, "decide_many", "front", [Impression("page", **rows)])
    assert shown.arm in (0, 1)


def test_signals_of_the_service(url, ask):
    key = f"signals {ask.__name__}"
    shown = ask(url, "decide", "news", key, context=[0.5], session="ann")
    assert shown.signals == {"volume": 0.5, "reformulation": 0.5}
    (shown,) = ask(url, "decide_many", "news", [Impression(key, context=[0.5], session="bob")])
    assert list(shown.signals) == ["volume", "reformulation"]
    with pytest.raises(InvalidRequest) as caught:
        ask(url, "decide", "plain", key, session="ann")
    assert (caught.value.field, caught.value.value) == ("session", "ann")


def test_the_mode(url, ask):
    assert ask(url, "mode", "plain", "frozen") == "frozen"
    decided = ask(url, "decide", "plain", "frozen", arms=[2, 0])
    assert ask(url, "feedback", "plain", decided.decision_id, 1).outcome == "frozen"
    assert ask(url, "mode", "plain", "online") == "online"


def test_numbers_of_numpy_are_numbers(url, ask):
    context = np.array([0.25, 1.0], dtype=np.float32)
    decided = ask(url, "decide", "counted", "numpy", arms=np.array([2]), context=context)
    assert decided.arm == 2
    assert ask(url, "feedback", "counted", decided.decision_id, np.float32(1)).learned


@pytest.mark.parametrize("fault", [BEFORE, AFTER, WITHIN, HANG, ERROR_AFTER])
def test_a_decision_whose_answer_is_lost_is_made_once(url, ask, fault):
    before = placement(url)["decisions"]
    with line(url, fault, fault) as cut:
        # Only what hangs needs to be given up; a busy machine may be given up once more.
        options = {"timeout": 0.5, "retries": 100} if fault == HANG else {}
        decided = ask(cut.url, "decide", "default", "lost", **options)
        assert len(cut.bodies) == 3 or (fault == HANG and len(cut.bodies) > 3)
    assert len(set(cut.bodies)) == 1
    assert placement(url)["decisions"] == before + 1
    assert ask(url, "decide", "default", "lost", decision_id=decided.decision_id) == decided


@pytest.mark.parametrize("fault", [BEFORE, AFTER])
def test_feedback_whose_answer_is_lost_counts_once(url, ask, fault):
    decided = ask(url, "decide_many", "default", [Impression("lost")] * 3)
    before = placement(url)
    with line(url, fault) as cut:
        told = [Feedback(d.decision_id, 1) for d in decided]
        recorded = ask(cut.url, "feedback_many", "default", told)
    expected = LEARNED_OR_WAITS if fault == BEFORE else ("duplicate",)
    assert {r.outcome for r in recorded} <= set(expected)
    after = placement(url)
    assert after["feedback"] == before["feedback"] + 3
    assert after["rewards"] == before["rewards"] + 3


def answered(status, body=b"", **headers):
    """Return an answer that is not the service's."""
    lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_respected(url, ask, status):
    with line(url, answered(status, retry_after=1)) as busy:
        started = time.monotonic()
        ask(busy.url, "decide", "default", "later")
        assert time.monotonic() - started >= 1.0
        assert len(busy.bodies) == 2


def test_who_is_told_to_come_back_much_later_hears_it_at_once(url, ask):
    with line(url, answered(503, retry_after=3600)) as busy:
        with pytest.raises(Unavailable) as caught:
            ask(busy.url, "decide", "default", "later")
        assert len(busy.bodies) == 1
    assert (caught.value.status, caught.value.kind) == (503, "foreign")


@pytest.mark.parametrize("retries", [0, 2])
def test_it_gives_up_after_its_retries(url, ask, retries):
    with line(url, *[AFTER] * 9) as cut:
        with pytest.raises(Unavailable, match=rf"url: no answer in {retries + 1} tr") as caught:
            ask(cut.url, "decide", "default", "cut", retries=retries)
        assert len(cut.bodies) == retries + 1
    error = caught.value
    assert (error.field, error.value, error.kind, error.status) == ("url", cut.url, "no-answer", None)


def test_nobody_there(ask):
    with pytest.raises(Unavailable, match="see whether the service runs there"):
        ask(f"http://127.0.0.1:{free_port()}", "decide", "default", "a", retries=1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answered(200, b"<html>"), ServiceError),
        (answered(200, b'{"decision_id": 7}'), ServiceError),
        (answered(200, b"\xff\xfe"), ServiceError),
        (answered(404, b"<html>"), NotFound),
        (answered(307, location="http://127.0.0.1:1/"), ServiceError),
    ],
)
def test_something_else_that_answers_is_told_apart(url, ask, answer, error):
    with line(url, answer) as other:
        with pytest.raises(error) as caught:
            ask(other.url, "decide", "default", "a")
        assert len(other.bodies) == 1
    assert (caught.value.field, caught.value.kind) == ("url", "foreign")


def test_a_batch_that_is_answered_in_part_is_no_answer(url, ask):
    only = b'{"decision_id": "d", "arm": "film", "propensity": 0.5, "epoch": 0, "durability": "committed"}'
    for answers, error in [(only, "1 answers to 2 questions"), (b"", "length >= 1")]:
        short = answered(200, b'{"decisions": [%s]}' % answers)
        with line(url, short) as other, pytest.raises(ServiceError, match=error):
            ask(other.url, "decide_many", "default", [Impression("a"), Impression("b")])


@pytest.mark.parametrize(
    ("method", "arguments", "options", "error", "field", "value", "kind"),
    [
        ("decide", ("attic", "a"), {}, NotFound, "placement", "attic", "unknown-placement"),
        ("feedback", ("default", "x", 1), {}, NotFound, "decision_id", "x", "unknown-decision"),
        ("decide", ("default", "a"), {"arms": ["opera"]}, InvalidRequest, "arms", ["opera"], "invalid-value"),
        (
            "decide_many", ("default", [Impression("a"), Impression("a", arms=[])]), {},
            InvalidRequest, "decisions[1].arms", [], "invalid-value",
        ),
        ("decide_many", ("default", []), {}, InvalidRequest, "decisions", [], "invalid-value"),
        ("mode", ("plain", "idle"), {}, InvalidRequest, "mode", "idle", "invalid-value"),
    ],
)  # fmt: skip
def test_what_the_service_refuses_names_field_value_and_remedy(
    url, ask, method, arguments, options, error, field, value, kind
):
    with pytest.raises(error) as caught:
        ask(url, method, *arguments, **options)
    refused = caught.value
    assert isinstance(refused, TacitError)
    assert (refused.field, refused.value, refused.kind) == (field, value, kind)
    assert str(refused).startswith(f"{field}: ")
    assert repr(value) in str(refused)
    assert refused.remedy
    assert refused.remedy in str(refused)
    copy = pickle.loads(pickle.dumps(refused))
    assert (type(copy), str(copy), copy.status) == (error, str(refused), refused.status)


def test_an_id_that_stands_for_something_else_is_a_conflict(url, ask):
    id = f"taken by {ask.__name__}"
    ask(url, "decide", "default", "a", decision_id=id)
    with pytest.raises(Conflict, match="send the same request, or another id") as caught:
        ask(url, "decide", "default", "b", decision_id=id)
    assert (caught.value.field, caught.value.value) == ("decision_id", id)
    assert (caught.value.status, caught.value.kind) == (409, "conflict")


def test_keys(tmp_path, ask, caplog):
    caplog.set_level(logging.DEBUG)
    key, sha256 = new_key()
    stranger, _ = new_key()
    keys = {"shop": {"sha256": sha256, "scopes": ["decide"]}}
    with run_in_thread(configured(tmp_path / "s.db", keys=keys)) as url:
        assert ask(url, "decide", "default", "a", secret=key).arm in range(5)
        with line(url, AFTER) as cut:
            ask(cut.url, "decide", "default", "a", secret=key)
        refusals = []
        for wrong, why in (stranger, "this key is not known"), (None, "there is no key"):
            with pytest.raises(Denied, match=f"^authorization: {why}; send Authorization: Bearer") as caught:
                ask(url, "decide", "default", "a", secret=wrong)
            refusals.append(caught.value)
        with pytest.raises(Denied, match="needs the scope 'admin', which key 'shop' has not") as caught:
            ask(url, "mode", "default", "frozen", secret=key)
        refusals.append(caught.value)
        # No path is one for all who have a key.
        nowhere = urllib.request.Request(f"{url}/v1/placement", headers={"authorization": f"Bearer {key}"})
        with pytest.raises(urllib.error.HTTPError) as missed:
            urllib.request.urlopen(nowhere)
        assert missed.value.code == 404
    assert [(r.status, r.kind, r.field, r.value) for r in refusals] == [
        (401, "unauthorized", "authorization", None),
        (401, "unauthorized", "authorization", None),
        (403, "forbidden", "authorization", None),
    ]
    assert "again in" in caplog.text
    shown = caplog.text + "".join(f"{r} {r!r} {vars(r)}" for r in refusals)
    assert key not in shown
    assert stranger not in shown
    with Client(url, key) as client:
        assert repr(client) == f"Client({url!r})"


@pytest.mark.parametrize(
    ("method", "arguments", "options", "field"),
    [
        ("decide", ("default", 7), {}, "key"),
        ("decide_many", ("default", [Impression("a"), Impression(7)]), {}, "decisions[1].key"),
        ("clicks", ("default", "x", [-1]), {}, "clicks[0]"),
        ("mode", ("default", None), {}, "mode"),
    ],
)
def test_what_cannot_be_right_is_not_sent(ask, method, arguments, options, field):
    with pytest.raises(InvalidValue) as caught:
        ask("http://127.0.0.1:1", method, *arguments, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"url": "http://me:tacit_secret@localhost"}, "url"),
        ({"key": "tacit_secret\r\nx: y"}, "key"),
        ({"key": b"tacit_secret"}, "key"),
    ],
)
def test_what_a_client_cannot_be_made_of_names_no_secret(kind, options, field):
    with pytest.raises(InvalidValue) as caught:
        kind(**{"url": "http://localhost:8787", **options})
    assert caught.value.field == field
    assert "tacit_secret" not in f"{caught.value} {vars(caught.value)}"


def test_an_address_may_have_a_path(url):
    with line(url, answered(404)) as proxied, Client(f"{proxied.url}/tacit/") as client:
        assert repr(client) == f"Client('{proxied.url}/tacit')"
        with pytest.raises(NotFound):
            client.decide("default", "a")


def test_one_client_serves_many_threads_and_many_tasks(url):
    before = placement(url)["decisions"]
    with Client(url) as client:
        threads = [
            threading.Thread(target=lambda: [client.decide("default", "t") for _ in range(5)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def many():
        async with AsyncClient(url) as client:
            return await asyncio.gather(*(client.decide("default", "t") for _ in range(60)))

    assert len({d.decision_id for d in asyncio.run(many())}) == 60
    assert placement(url)["decisions"] == before + 100


@given(
    tries=st.integers(1, 10_000),
    more=st.integers(0, 5),
    asked=st.integers(0, 100),
    status=st.sampled_from([None, 200, 400, 408, 409, 429, 500, 503]),
    seed=st.integers(0, 100),
)
def test_pauses_grow_within_their_bound(tries, more, asked, status, seed):
    reply = Reply(status, retry_after=str(asked))
    seconds = compute_pause(reply, tries, tries - 1 + more, 0.0, np.random.default_rng(seed))
    if status in (200, 400, 409) or more == 0 or asked > LONGEST_RETRY_AFTER:
        assert seconds == math.inf
    else:
        share = np.random.default_rng(seed).random()
        assert seconds == asked + share * min(10.0, 0.1 * 2 ** min(tries - 1, 20))


@given(st.text(max_size=40))
@example("Fri, 31 Dec 9999 23:59:59 GMT")
@example("Fri, 31 Dec 9999 23:59:59 -2300")
@example("Fri, 31 Dec 99999999999999999999 23:59:59 GMT")
@example("Mon, 01 Jan 0001 00:00:00 +2300")
@example("Mon, 01 Jan 2001 00:00:00 +99999999999999999999")
@example("Thu, 01 Jan 1970 00:00:09 -0000")
@example("9" * 5000)
def test_whatever_retry_after_says_it_is_a_pause(text):
    assert 0.0 <= parse_retry_after(text, 0.0) < math.inf


def public_methods(kind):
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_both_clients_offer_the_same_calls():
    blocking, awaited = public_methods(Client), public_methods(AsyncClient)
    assert set(blocking) == set(awaited)
    assert {"decide", "slate_many", "duel", "standings", "mode", "close"} <= set(blocking)
    for name, method in blocking.items():
        for reads in (inspect.signature, get_type_hints, inspect.getdoc):
            assert reads(method) == reads(awaited[name])
        assert method.__doc__
        assert inspect.iscoroutinefunction(awaited[name])
        assert not inspect.iscoroutinefunction(method)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_call_says_what_it_answers_and_stands_in_for_itself(kind):
    assert get_type_hints(kind.decide)["return"] is Decided
    assert get_type_hints(kind.clicks_many)["return"] == list[Recorded]
    assert inspect.signature(kind.mode).return_annotation is str
    assert kind.decide.__qualname__ == f"{kind.__name__}.decide"
    stand_in = create_autospec(kind, instance=True)
    with pytest.raises(TypeError, match="missing a required argument: 'key'"):
        stand_in.decide("default")


def test_a_missing_package_names_the_extra(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("tacit.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match=r"tacit-learn\[client\]"):
        import tacit.client  # noqa: F401


def test_the_client_needs_nothing_of_the_service():
    code = "import sys, tacit.client; print({'starlette', 'uvicorn', 'apsw', 'numba'} & sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_nothing_else_imports_httpx():
    sources = (ROOT / "src").rglob("*.py")
    assert {p.parent.name for p in sources if "import httpx" in p.read_text(encoding="utf-8")} == {"client"}
