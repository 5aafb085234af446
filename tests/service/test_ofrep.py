"""The service asked through OpenFeature, by the stock provider of its remote evaluation."""

from __future__ import annotations

import re

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
    asked = context(key="not asked for before", country="DE")
    details = flags.get_string_details("search", "none", asked)
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
        # All flags at once would be decisions for what is not shown.
        ("", b"{}", 404, "GENERAL"),
    ],
)
def test_failures_have_the_form_of_the_protocol(client, flags, sent, status, code):
    answered, headers, body = client.ask("POST", f"/ofrep/v1/evaluate/flags{flags}", sent)
    assert (answered, headers["content-type"], body["errorCode"]) == (status, "application/json", code)
    if flags == "/nowhere":
        assert body["key"] == "nowhere"
        assert "nowhere" in body["errorDetails"]


def test_a_key_is_asked_for_where_there_are_keys(tmp_path):
    secret, sha256 = new_key()
    keys = {"shop": {"sha256": sha256, "scopes": ["decide"]}}
    with run_in_thread(
        configured(tmp_path / "s.db", placements={"search": {"arms": ARMS}}, keys=keys)
    ) as address:
        asked = "POST", "/ofrep/v1/evaluate/flags/search", b"{}"
        assert harness.Client(address).ask(*asked)[0] == 401
        assert harness.Client(address).ask(*asked, {"Authorization": f"Bearer {secret}"})[0] == 200


def test_the_page_runs_and_prints_what_it_shows(address):
    page = (ROOT / "docs" / "elsewhere" / "openfeature.md").read_text(encoding="utf-8")
    code, shown = (
        "".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
        for language in ("python", "text")
    )
    assert execute(code.replace("http://127.0.0.1:8787", address), {}, "page") == shown
    api.shutdown()
