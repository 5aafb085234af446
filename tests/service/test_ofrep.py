"""The service asked through OpenFeature, by the stock provider of its remote evaluation."""

import json
import re
import subprocess
from pathlib import Path

import harness
import pytest
from conftest import ROOT
from generate.run import execute
from harness import configured

pytest.importorskip("openfeature.contrib.provider.ofrep")

from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode

from tacit.client import Client
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import new_key

ARMS = ["reference", "news", "shop"]
FEATURES = "lin-ts(relevance_dim=1, examination_dim=1)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    placements = {
        "search": {"arms": ARMS, "policy": "epsilon-greedy", "seed": 7},
        "dark-mode": {"arms": ["true", "false"], "policy": "thompson"},
        "greedy": {"arms": 2, "policy": "ucb1"},
        "home": {"kind": "slates", "arms": ARMS, "policy": "list-mix(positions=2)"},
        "items": {"kind": "features", "policy": FEATURES},
        "race": {"kind": "duels", "rankers": ["old", "new"]},
    }
    with run_in_thread(
        configured(tmp_path_factory.mktemp("ofrep") / "s.db", placements=placements)
    ) as address:
        yield address


@pytest.fixture
def flags(address):
    api.set_provider(OFREPProvider(address))
    yield api.get_client()
    api.shutdown()


def context(who="user 17", **attributes):
    return EvaluationContext(who, attributes)


def test_a_flag_is_a_decision_and_its_feedback_is_learned(flags, address):
    details = flags.get_string_details("search", "none", context(key="not asked for before", country="DE"))
    assert details.error_code is None
    assert details.value in ARMS
    assert details.variant == details.value
    assert details.reason == "SPLIT"
    told = details.flag_metadata
    assert told["propensity"] == pytest.approx(1 / 3)
    with Client(address) as client:
        recorded = client.feedback("search", told["decision_id"], 1.0)
        # Other tests of this service may have left decisions that wait before it.
        assert recorded.outcome in ("learned", "pending")
    again = flags.get_string_details(
        "search", "none", context(key="not asked for before", decision_id=told["decision_id"])
    )
    assert again.value == details.value
    assert again.flag_metadata["decision_id"] == told["decision_id"]


def test_without_a_key_there_is_one_problem(flags, address):
    assert flags.get_string_value("search", "none") in ARMS
    assert flags.get_string_value("search", "none", context()) in ARMS


def test_arms_called_true_and_false_are_a_boolean(flags):
    details = flags.get_boolean_details("dark-mode", False, context())
    assert details.error_code is None
    assert details.variant == str(details.value).lower()


def test_numbers_and_lists(flags):
    number = flags.get_integer_details("greedy", -1, context())
    assert number.value in (0, 1)
    assert number.reason == "TARGETING_MATCH"
    assert "propensity" not in number.flag_metadata
    listed = flags.get_object_details("home", [], context(key="jaguar"))
    assert set(listed.value) == set(ARMS)
    assert listed.variant == ",".join(listed.value)
    given = {"relevance": [[0.1], [0.9]], "examination": [[1.0], [1.0]]}
    assert flags.get_integer_value("items", -1, context(**given)) in (0, 1)


@pytest.mark.parametrize(
    ("flag", "attributes", "code"),
    [
        ("nowhere", {}, ErrorCode.FLAG_NOT_FOUND),
        ("search", {"key": 17}, ErrorCode.INVALID_CONTEXT),
        ("search", {"arms": ["film"]}, ErrorCode.INVALID_CONTEXT),
        ("items", {}, ErrorCode.INVALID_CONTEXT),
        ("race", {}, ErrorCode.INVALID_CONTEXT),
    ],
)
def test_what_cannot_be_decided_is_the_default_with_a_reason(flags, flag, attributes, code):
    details = flags.get_string_details(flag, "mine", context(**attributes))
    assert details.value == "mine"
    assert details.error_code == code


DEEP = b'{"context": {"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}"


@pytest.mark.parametrize(
    ("flags", "sent", "status", "code"),
    [
        ("/nowhere", b"{}", 404, "FLAG_NOT_FOUND"),
        ("/search", b"{", 400, "PARSE_ERROR"),
        ("/search", DEEP, 400, "PARSE_ERROR"),
        ("/search", b'{"context": 1}', 400, "INVALID_CONTEXT"),
        ("/search", b'{"context": {"targetingKey": 123}}', 400, "INVALID_CONTEXT"),
        ("", b"{", 400, "PARSE_ERROR"),
        ("", b'{"context": 1}', 400, "INVALID_CONTEXT"),
        ("", b'{"context": {"targetingKey": 123}}', 400, "INVALID_CONTEXT"),
        ("", b'{"context": {"targetingKey": "a\\u0000"}}', 400, "INVALID_CONTEXT"),
        ("", b'{"context": {"decision_id": "d"}}', 400, "INVALID_CONTEXT"),
    ],
)
def test_failures_have_the_form_of_the_protocol(client, flags, sent, status, code):
    answered, headers, body = client.ask("POST", f"/ofrep/v1/evaluate/flags{flags}", sent)
    assert (answered, headers["content-type"], body["errorCode"]) == (status, "application/json", code)
    assert body.get("key", "") == flags[1:]
    if flags == "/nowhere":
        assert "nowhere" in body["errorDetails"]
    if b"targetingKey" in sent:
        assert body["errorDetails"].startswith("targetingKey: ")


def test_a_key_is_asked_for_where_there_are_keys(tmp_path):
    secret, sha256 = new_key()
    keys = {"shop": {"sha256": sha256, "scopes": ["decide"]}}
    with run_in_thread(
        configured(tmp_path / "s.db", placements={"search": {"arms": ARMS}}, keys=keys)
    ) as address:
        asked = "POST", "/ofrep/v1/evaluate/flags/search", b"{}"
        assert harness.Client(address).ask(*asked)[0] == 401
        assert harness.Client(address).ask(*asked, {"Authorization": f"Bearer {secret}"})[0] == 200


BROWSER_SCRIPT = Path(__file__).with_name("stock_providers.js")


@pytest.mark.needs("node")
@pytest.mark.needs("@openfeature/server-sdk")
@pytest.mark.needs("@openfeature/ofrep-provider")
@pytest.mark.needs("@openfeature/web-sdk")
@pytest.mark.needs("@openfeature/ofrep-web-provider")
def test_the_stock_providers_for_javascript(tmp_path):
    placements = {
        "search": {"arms": ARMS},
        "dark-mode": {"arms": ["true", "false"]},
        "greedy": {"arms": 2, "policy": "ucb1"},
        "users": {"arms": 2, "holdout": {"share": 0.5, "unit": "user"}},
    }
    with run_in_thread(configured(tmp_path / "s.db", placements=placements)) as address:
        asked = subprocess.run(
            ["node", BROWSER_SCRIPT, address], capture_output=True, text=True, timeout=harness.PATIENCE
        )
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout)
    server, browser = told["server"], told["browser"]
    assert server["text"]["value"] in ARMS
    assert server["truth"]["value"] in (True, False)
    assert server["number"]["value"] in (0, 1)
    codes = {name: server[name].get("errorCode") for name in ("text", "missing", "unfit", "nobody")}
    assert codes == {
        "text": None,
        "missing": "FLAG_NOT_FOUND",
        "unfit": "INVALID_CONTEXT",
        "nobody": "TARGETING_KEY_MISSING",
    }
    # The page polls: what it has is valid, and stays; another user's flags are other decisions.
    assert browser["statuses"][0] == 200
    assert 304 in browser["statuses"]
    assert browser["details"]["value"] in ARMS
    assert browser["again"] == browser["details"]
    assert browser["missing"]["value"] == "none"
    assert len({browser[name]["flagMetadata"]["decision_id"] for name in ("details", "other")}) == 2
    assert browser["recorded"]["outcome"] in ("learned", "pending")


def test_the_page_shows_the_hook_that_is_tried():
    page = (ROOT / "docs" / "elsewhere" / "openfeature.md").read_text(encoding="utf-8")
    (hook,) = re.findall(r"^```javascript\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert hook.strip() in BROWSER_SCRIPT.read_text(encoding="utf-8")


ALL = "POST", "/ofrep/v1/evaluate/flags"


def evaluate_all(client, context, tag=None):
    headers = {} if tag is None else {"If-None-Match": tag}
    status, answered, body = client.ask(*ALL, {"context": context}, headers)
    return status, answered, {flag["key"]: flag for flag in (body or {}).get("flags", ())}


def test_all_flags_at_once_are_deferred_decisions(address):
    client = harness.Client(address)
    status, headers, flags = evaluate_all(client, {"targetingKey": "user 17", "key": "all", "country": "DE"})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert headers["access-control-expose-headers"] == "etag"
    # A placement of duels is no flag; one of items lacks the features of its arms, and says so.
    assert set(flags) == {"search", "dark-mode", "greedy", "home", "items"}
    assert (flags["items"]["errorCode"], "value" in flags["items"]) == ("INVALID_CONTEXT", False)
    assert flags["items"]["errorDetails"].startswith("relevance: ")
    assert flags["search"]["value"] in ARMS
    assert flags["dark-mode"]["value"] in (True, False)
    assert set(flags["home"]["value"]) == set(ARMS)
    for flag in ("search", "dark-mode"):
        decision = {"decision_id": flags[flag]["metadata"]["decision_id"]}
        # A reward alone is not learned: of users who did not react there would be nothing.
        for path, sent, outcomes in (
            ("feedback", {"reward": 1.0}, ["inactive"]),
            ("activate", {}, ["noted"]),
            ("feedback", {"reward": 1.0}, ["learned", "pending"]),
        ):
            assert client.post(f"{flag}/{path}", decision | sent)[2]["outcome"] in outcomes


def count_decisions(client):
    _, _, listed = client.ask("GET", "/v1/placements")
    return [placement["decisions"] for placement in listed["placements"]]


def test_flags_that_a_client_has_are_not_decided_again(address):
    client = harness.Client(address)
    asked = {"targetingKey": "user 17", "key": "tagged"}
    _, headers, _ = evaluate_all(client, asked)
    tag = headers["etag"]
    before = count_decisions(client)
    for known in (tag, f"W/{tag}", f'"another", {tag}'):
        status, headers, flags = evaluate_all(client, asked, known)
        assert (status, flags, headers["etag"].removeprefix("W/")) == (304, {}, tag)
        assert "content-length" not in headers
    assert count_decisions(client) == before
    for context, known in (
        (asked | {"targetingKey": "user 18"}, tag),
        (asked, '"another"'),
        (asked, tag[:-2] + ('1"' if tag[-2] == "0" else '0"')),
        (asked, ""),
    ):
        assert evaluate_all(client, context, known)[0] == 200


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("pin", {"arms": ["news"], "until": "2999-01-01T00:00:00Z"}),
        ("arms", {"add": ["film"]}),
        ("mode", {"mode": "frozen"}),
        ("holdout", {"share": 0.1}),
        ("rebuild", {"policy": "ucb1"}),
    ],
)
def test_what_is_set_by_hand_reaches_clients_that_have_flags(tmp_path, path, change):
    with run_in_thread(configured(tmp_path / "s.db", placements={"search": {"arms": ARMS}})) as address:
        client = harness.Client(address)
        tag = evaluate_all(client, {})[1]["etag"]
        assert evaluate_all(client, {}, tag)[0] == 304
        status, _, answer = client.post(f"search/{path}", change)
        assert status == 200, answer
        assert evaluate_all(client, {}, tag)[0] == 200


def test_flags_are_evaluated_again_before_they_cannot_be_activated(tmp_path):
    placements = {"search": {"arms": ARMS}, "home": {"arms": ARMS, "activation_window": 60.0}}
    clock = harness.Clock()
    with harness.by_clock(configured(tmp_path / "s.db", placements=placements), clock) as address:
        client = harness.Client(address)
        tag = evaluate_all(client, {})[1]["etag"]
        for seconds, status in ((29, 304), (1, 200)):
            clock.now += seconds * 1_000_000
            assert evaluate_all(client, {}, tag)[0] == status


def test_a_placement_that_keeps_users_apart_needs_a_targeting_key(tmp_path):
    placements = {"search": {"arms": ARMS, "holdout": {"share": 0.5, "unit": "user"}}, "home": {"arms": ARMS}}
    with run_in_thread(configured(tmp_path / "s.db", placements=placements)) as address:
        client = harness.Client(address)
        for context in ({}, {"targetingKey": ""}, {"targetingKey": None}):
            status, _, body = client.ask("POST", f"{ALL[1]}/search", {"context": context})
            assert (status, body["key"], body["errorCode"]) == (400, "search", "TARGETING_KEY_MISSING")
            assert body["errorDetails"].startswith("targetingKey: ")
            flags = evaluate_all(client, context)[2]
            assert flags["search"]["errorCode"] == "TARGETING_KEY_MISSING"
            assert flags["home"]["value"] in ARMS
        for context in ({"targetingKey": "toto"}, {"user": "toto"}):
            assert client.ask("POST", f"{ALL[1]}/search", {"context": context})[0] == 200


def test_all_flags_are_those_of_the_key(tmp_path):
    secret, sha256 = new_key()
    keys = {"shop": {"sha256": sha256, "scopes": ["decide"], "placements": ["shop-*"]}}
    placements = {name: {"arms": ARMS} for name in ("shop-1", "shop-2", "news")}
    with run_in_thread(configured(tmp_path / "s.db", placements=placements, keys=keys)) as address:
        assert harness.Client(address).ask(*ALL, {})[0] == 401
        _, _, body = harness.Client(address).ask(*ALL, {}, {"Authorization": f"Bearer {secret}"})
        assert [flag["key"] for flag in body["flags"]] == ["shop-1", "shop-2"]


def test_the_page_runs_and_prints_what_it_shows(address):
    page = (ROOT / "docs" / "elsewhere" / "openfeature.md").read_text(encoding="utf-8")
    code, shown = (
        "".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
        for language in ("python", "text")
    )
    assert execute(code.replace("http://127.0.0.1:8787", address), {}, "page") == shown
    api.shutdown()
