"""Typical mistakes in a configuration and over HTTP: the answer names the field, the value and the remedy."""

import json
import signal
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
import warnings
from datetime import date, datetime
from functools import partial

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT
from forked import Forked, ran
from harness import Clock, by_clock, configured, eventually, served, with_home
from placement_access import decide

from tacit.cli import cli
from tacit.client import (
    AsyncClient,
    Client,
    Decided,
    Feedback,
    Impression,
    InvalidRequest,
    Local,
    Unavailable,
)
from tacit.errors import AssumptionWarning, ConfigError, InvalidValue, TacitError
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import lint_config, load_config
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.page.overview import list_problems

HOME = '[placements.home]\narms = ["film", "song"]\n'
CONFIGURED = {
    # what the file says, and what the error names: field, value and remedy
    HOME + "metrics = { revenue = 'sum' }": ("home.metrics.revenue", "'sum'", "give a table"),
    HOME + "holdout = { control = 'none' }": (
        "home.holdout.control",
        "'none'",
        "give one of uniform, baseline",
    ),
    HOME + "holdout = { share = 10 }": ("home.holdout.share", "10", "give a number of at most 0.5"),
    HOME + "holdout = 0.1": ("home.holdout", "0.1", "or nothing, such as { share = 0.1 }"),
    HOME + "guardrail = 'returns'": ("home.guardrail", "'returns'", 'such as { metric = "returns" }'),
    HOME + "at_least = 0.1": ("home.at_least", "0.1", "such as { NAME = 0.1 }"),
    HOME + "reward = 'revenue'": (
        "home.reward",
        "'revenue'",
        "add metrics.revenue = { range = [0, LARGEST] }",
    ),
    HOME + "reward = 'Revenue'\nmetrics = { revenue = {} }": ("'Revenue'", "did you mean 'revenue'?"),
    HOME + "signals = ['volume']\ncontext = { device = ['ios', 'web'] }": (
        "home: signals",
        "['volume']",
        'as fields that hold a "signal"',
    ),
    HOME + "client_signals = 2\ncontext_dim = 3": ("home: client_signals", "2", "leave it out"),
    HOME + "policy = 'ucb1(arms=5)'": ("home: policy", "'ucb1(arms=5)'", "leave its arms out"),
    HOME + "kind = 'features'\nrelevance_dim = 2": ("home: arms", "'song'", "leave it out"),
    HOME + "late = true": ("home.late", "True", "give one of record, correct"),
    HOME + "policy = 'thompson_sampling'": ("home: policy", "'thompson_sampling'", "did you mean Thompson?"),
    HOME + "policy = 3": ("home.policy", "3", "give text or a table of names and values"),
    "[placements.home]\narrms = 2": ("home.arrms", "unknown", "did you mean arms?"),
    HOME + "[store]\npath = ''": ("store.path", "is a folder", "give a file in it, such as"),
    HOME + f"[store]\nretention = 7\narchive = {__file__!r}": ("store.archive", __file__, "give a folder"),
    HOME + "[store]\npath = 'postgresql://x/y'": ("store.path", "address", "that of a database as url"),
    "[server]\nallow_origins = ['shop.example']\n" + HOME: (
        "server.allow_origins[0]",
        "'shop.example'",
        "give an origin alone, such as https://shop.example",
    ),
    "[server]\nallow_origins = 'https://x'\n" + HOME: ("allow_origins", 'give a list, such as ["https://x"]'),
    HOME + "metrics = { revenue = {} }": ("home.metrics", "they need", "a holdout, or a guardrail"),
    HOME + "holdout = { control = { arm = 'x' } }": ("control.arm", "'x'", "none of the arms, film, song"),
    "[placements.home]\nkind = 'duels'\nrankers = ['a', 'b']\npolicy = 'ucb1'": (
        "home.policy: UCB1 shows an arm",
        "give a policy that is, such as auto",
    ),
    HOME + "metrics = { returns = {} }\nguardrail = { metric = 'return' }": (
        "home.guardrail.metric",
        "'return'",
        "none of the metrics, returns (did you mean 'returns'?)",
    ),
    "[placements.home]\nkind = 'duels'\narms = ['a', 'b']": ("home.arms", "unknown", "did you mean rankers?"),
    "port = 8787\n" + HOME: ("port", "it stands in [server]", "write it below that"),
    "[holdout]\nshare = 0.1\n" + HOME: ("holdout", "it stands in [placements.NAME]", "write it below that"),
    HOME + "[server]\nattribution_window = 5": ("server.attribution_window", "[placements.NAME]"),
    HOME + "retention = 7\npath = 'x.db'": ("placements.home.path", "it stands in [store]"),
    HOME + "[placements.home.metrics]\nattribution_window = 60": (
        "placements.home.metrics.attribution_window",
        "60",
        "it stands in [placements.home]; write it above [placements.home.metrics]",
    ),
    HOME + "[placements.home.holdout]\nshare = 0.1\nseed = 3": ("holdout.seed", "3", "above [placements.ho"),
    HOME + "[placements.home.guardrail]\nreward = 'r'": (
        "guardrail.reward",
        "'r'",
        "above [placements.home.g",
    ),
    HOME + "[placements.home.context]\nage = 'number'\nlate = 'record'": (
        "context.late",
        "'record'",
        "above",
    ),
    "[server]\nhost = 'http://127.0.0.1'\n" + HOME: (
        "server.host",
        "'http://127.0.0.1'",
        "give an address alone, such as 127.0.0.1",
    ),
    "[server]\nhost = '127.0.0.1:8787'\n" + HOME: (
        "server.host",
        "'127.0.0.1:8787'",
        "the port is server.port",
    ),
    HOME + "[keys.web]\nsha256 = 'AB'\nscopes = ['read']": ("web.sha256", "(hidden)", "give 64 digits and"),
    HOME + "[feeds.shop]": (
        "feeds.shop.map",
        "it is missing",
        "give the path of a file: tacit feed --example",
    ),
    HOME + "segments = ['device']": (
        "home.segments",
        "only placements of kind duels have it",
        "leave it out",
    ),
    HOME + "positions = 3": ("home.positions", "only placements of kind slates have it", "give kind"),
    HOME + "[export]\nkafka = 'localhost:9092/clicks'": (
        "export.kafka",
        "'localhost:9092/clicks'",
        "give a topic, such as kafka://localhost:9092/clicks",
    ),
    HOME + "[traces]\nendpoint = 'localhost:4318'": (
        "traces.endpoint",
        "'localhost:4318'",
        "give an address, such as http://127.0.0.1:4318/v1/traces",
    ),
    HOME + "[store]\nschema = 'My-Schema'": ("store.schema", "'My-Schema'", "lower-case letters"),
    HOME + "holdout = { look = 12:00:00 }": ("home.holdout.look", "'12:00:00'", "give a time in ISO 8601"),
    HOME + "attribution_window = '1h'": (
        "home.attribution_window",
        "'1h'",
        "give a number, in seconds: 3600",
    ),
    HOME + "retention = '36 hours'": (
        "home.retention",
        "'36 hours'",
        "give a number, in days: 1.5, or nothing",
    ),
    "[server]\nidle_timeout = 'long'\n" + HOME: (
        "server.idle_timeout",
        "'long'",
        "give a number, in seconds",
    ),
    "[placements.home]\nseed = 1": ("home.arms", "it is missing", "give a whole number or a list"),
    HOME + "guardrail = { margin = 0.1 }": ("home.guardrail.metric", "it is missing", "give text"),
    HOME + "holdout = { control = 'film' }": (
        "control",
        "'film'",
        'or a table of arm or policy, such as { arm = "film" }',
    ),
    "home: 3": ("toml", "line 1, column 5", 'write lines such as name = "text"'),
    HOME + "[feeds.shop]\nmap = 'nowhere.toml'": (
        "feeds.shop.map: ",
        "nowhere.toml: there is no such file",
        "tacit feed --example segment",
    ),
    HOME + "attribution_window = -1": ("home.attribution_window", "-1", "give a number of at least 0.001"),
    HOME + "mode = 'learn'": ("home.mode", "'learn'", "give one of online, frozen, shadow"),
    HOME + "aggregation = 'mean'": ("home.aggregation", "'mean'", "give one of first, last, sum, max"),
    HOME + "placing = 2": ("home.placing", "unknown field", "there is kind, policy"),
    "[placements.home]\narms = 'film, song'": (
        "home.arms",
        "'film, song'",
        'a list, such as ["film","song"]',
    ),
    "[placements]\nhome = 3": ("placements.home", "3", "give a table of names and values"),
    "[keys.x]\nscopes = ['decides']": ("keys.x.scopes[0]", "'decides'", "give one of decide,"),
    "[keys.x]\nsha256 = 'secret'": ("keys.x.sha256", "(hidden)", "tacit key x prints such a table"),
}
C = {"device": "ios", "age": 31}
ASKED = {
    "a query for a key": ("home/decide", {"query": "a"}, ("query", "did you mean key?")),
    "a policy for a control": (
        "home/holdout",
        {"control": {"policy": "ucb1"}},
        ("control.policy", "is set in the configuration", "SIGHUP"),
    ),
    "a metric that is not watched": (
        "home/feedback",
        {"decision_id": "d", "reward": 1, "metrics": {"returns": 1}},
        ("metrics.returns", "1", "leave it out, or configure metrics.returns"),
    ),
    # the path, what is sent, and what the answer names: field, value and remedy
    "a field misspelt": ("home/decide", {"key": "a", "contxt": C}, ("contxt", "`contxt`", "mean context?")),
    "a number for a key": ("home/decide", {"key": 5, "context": C}, ("key", "5", "give text")),
    "a text for arms": (
        "home/decide",
        {"key": "a", "arms": "film"},
        ("arms", "'film'", "give a list, or nothing"),
    ),
    "a reward of 5": (
        "home/feedback",
        {"decision_id": "d", "reward": 5},
        (
            "reward",
            "5",
            'give a number in [0, 1]; amounts have names, and go to metrics, as metrics = {"revenue": 59.9}',
        ),
    ),
    "a reward as text": (
        "home/feedback",
        {"decision_id": "d", "reward": "1"},
        ("reward", "'1'", "give a number"),
    ),
    "a metric as text": (
        "home/feedback",
        {"decision_id": "d", "reward": 1, "metrics": {"visits": 1, "revenue": "3"}},
        ("metrics.revenue", "'3'", "give a number"),
    ),
    "one of a batch": (
        "home/decide/batch",
        {"decisions": [{"key": "a"}, {"key": "b", "user": 7}]},
        ("decisions[1].user", "7", "give text, or nothing"),
    ),
    "a policy that shows otherwise": (
        "home/rebuild",
        {"policy": "list-mix(positions=2)"},
        ("policy", "'ListMix(", "shows a slate and reads no features"),
    ),
    "a policy of duels": (
        "home/rebuild",
        {"policy": "rmed1"},
        ("policy", "'RMED1'", "RMED1 shows a duel and reads no features of arms, which is not for the kind"),
    ),
    "a metric alone": (
        "home/feedback",
        {"decision_id": "d", "metrics": {"revenue": 1}},
        ("reward", "null", "beside metrics, too; to learn a metric in its place, configure reward = "),
    ),
    "a refund": (
        "home/feedback",
        {"decision_id": "d", "reward": 1, "metrics": {"revenue": -60}},
        ("metrics.revenue", "-60", 'what is given back is a metric of its own, with better = "less"'),
    ),
    "many for one": (
        "home/decide",
        {"decisions": [{"key": "a"}]},
        ("decisions", "unknown", "send many at once to this path with /batch behind it"),
    ),
    "a pin without its end": (
        "home/pin",
        {"arms": ["film"]},
        ("until", "it is missing", "give a time in ISO 8601, such as 2026-"),
    ),
    "a pin until a number": (
        "home/pin",
        {"arms": ["film"], "until": 7},
        ("until", "7", "give a time in ISO"),
    ),
    "duels of arms": (
        "home/duels",
        None,
        ("placement", "'home'", "its kind, 'arms', takes 'decide', not 'duel'"),
    ),
    "a mode that is none": ("home/mode", {"mode": "live"}, ("mode", "'live'", "give one of online, frozen")),
    "a query misspelt": ("home/lift?confidance=0.9", None, ("confidance", "", "did you mean confidence?")),
    "a confidence as text": ("home/lift?confidence=high", None, ("confidence", "'high'", "give a number")),
    "a field that is missing": (
        "home/feedback",
        {"reward": 1},
        ("decision_id", "it is missing", "give the id, as text, that the decision's answer has"),
    ),
    "nothing for a key": ("home/decide", {"key": None}, ("key", "null", "give text")),
    "a truth for a reward": (
        "home/feedback",
        {"decision_id": "d", "reward": True},
        ("reward", "true", "give a number"),
    ),
    "a truth for text in a context": (
        "home/decide",
        {"key": "a", "context": {"device": True}},
        ("context.device", "true", "give a string, or nothing where it is missing"),
    ),
    "a list for a request": ("home/decide", [1], ("body", "[1]", "give a table of names and values")),
}


@pytest.mark.parametrize("text", CONFIGURED)
def test_a_wrong_configuration_is_told_by_field_value_and_remedy(text, tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    for part in CONFIGURED[text]:
        assert part in str(caught.value)


STORE = '[server]\nport = 0\n[store]\npath = "new/s.db"\n'
LISTS = '[placements.list]\nkind = "slates"\narms = ["a", "b"]\npositions = 9\n'
LATE = '[placements.late]\narms = 2\nlate = "correct"\n'
KEY = f"[keys.web]\nsha256 = '{'0' * 64}'\nscopes = ['admin']\nplacements = ['hom']\n"
BEGUN = STORE + LISTS + LATE + KEY + '[placements.home]\narms = ["a", "b"]\nat_least = { a = 0.3 }\n'
DOUBTED = [
    "new/s.db, in a folder that was not there",
    "keys.web.placements: 'hom' fits none of the placements, list, late, home; mend it",
    "placements.list.positions: 9 are more than the 2 arms; give 2",
]
ANEW = {
    # what of the file is replaced, by what, and what the service says of it at SIGHUP
    ("port = 0", "port = 1"): "server.port: 1 needs a restart; still 0",
    ("s.db", "t.db"): "t.db needs a restart; still",
    (
        "at_least",
        'mode = "frozen"\nat_least',
    ): "home.mode: frozen is for a placement without decisions; change",
    (
        "at_least = { a = 0.3 }",
        "",
    ): "placements.home.at_least: the store holds what was learned with {'a': 0.3}",
    ("at_least", "attribution_window = 60\nat_least"): "home.attribution_window: 60.0, before: 30.0",
    ("placements.home", "placements.house"): "placements.home: no longer served; what it learned stays",
    ('arms = ["a", "b"]\nat', 'arms = ["a"]\nat'): "placements.home.arms: ('a',), before: ('a', 'b')",
    (
        "[placements.home]",
        "[placements.home]\nkind = 'duels'\nrankers = ['a', 'b']\n[placements.new]",
    ): "home.kind",
}


def test_what_is_configured_and_can_hardly_be_meant_is_said_and_what_is_read_anew(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(BEGUN)
    command = ["-m", "tacit", "serve", "--config", path]
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        said = []
        service.stdout.readline()
        for (old, new), what in ANEW.items():
            path.write_text(BEGUN.replace(old, new))
            service.send_signal(signal.SIGHUP)
            said += until(service.stderr, what)
            path.write_text(BEGUN)
            service.send_signal(signal.SIGHUP)
            said += until(service.stderr, "was read anew")
        service.terminate()
    for what in DOUBTED:
        assert any(what in line for line in said)
    assert all(line.startswith("WARNING") for line in said if "needs a restart" in line)


HARDLY = {
    # what the file says, and what is said of it
    "[server]\nport = 0": "placements: default is the only one, as where none is configured; add",
    HOME + "correction_window = 60": 'home.correction_window: nothing is corrected; give late = "correct"',
    HOME + "correction_window = 3600": 'home.correction_window: nothing is corrected; give late = "correct"',
    HOME + "[store]\nretention = 7776000": "store.retention: 7776000 days are 21304 years; if seconds were "
    "meant, give 90",
    HOME + "retention = 7776000": "placements.home.retention: 7776000 days are 21304 years",
    HOME + "attribution_window = 1800000\nactivation_window = 864000": (
        "placements.home.attribution_window: 1800000 s are 20.8 days; if milliseconds were meant, give 1800"
    ),
    HOME + "[store]\narchive = 'old'": "store.archive: nothing comes into it, as no row is dropped; give",
    HOME + KEY.replace("hom", "home") + KEY.replace("hom", "home").replace("web", "app"): (
        "keys.app.sha256: that of web, too"
    ),
    HOME
    + "[traces]\nendpoint = 'http://127.0.0.1:4318'": "traces.endpoint: http://127.0.0.1:4318 has no path; "
    "collectors take traces at http://127.0.0.1:4318/v1/traces",
    HOME + "metrics = { returns = { range = [0, 1] } }\nguardrail = { metric = 'returns', margin = 0.02 }": (
        "placements.home.metrics.returns: more of it is better, so the guardrail acts where there is less; "
        'give better = "less" if it is a harm'
    ),
    HOME + "context = { device = ['ios', 'web', 'iOS '] }": "home.context.device: 'ios' and 'iOS ' differ by",
    HOME + "policy = { name = 'auto', priors = { film = [0.04, 100] } }": (
        "placements.home.priors.film: [0.04, 100] are successes and failures; if a rate and a count were "
        "meant, give [4, 96]"
    ),
    "[placements.list]\nkind = 'duels'\nrankers = ['old', 'new']\nworth = { clicks = 1, purchase = 10 }": (
        "placements.list.worth.clicks: clicks come as click"
    ),
    HOME + "context = { Age = 'number', age = 'number' }": "home.context: 'Age' and 'age' differ by",
    HOME
    + "[feeds.shop]\nmap = 'map.toml'": "feeds.shop.map: placement: 'hom' is none of the placements, home",
}


@pytest.mark.parametrize("text", HARDLY)
def test_what_can_hardly_be_meant_is_said(text, tmp_path):
    (tmp_path / "map.toml").write_text(MAP.replace('"p"', '{ value = "hom" }'))
    path = tmp_path / "tacit.toml"
    path.write_text(text)
    (said,) = lint_config(load_config(path))
    assert HARDLY[text] in said


def test_what_is_configured_otherwise_than_before_is_said_at_a_restart_too(tmp_path, caplog):
    caplog.set_level("INFO")
    values = {"server.port": 0, "store.path": str(tmp_path / "s.db"), "placements.old": {"arms": 2}}
    home = {"arms": ["film", "song"], "holdout": {"share": 0.2}}
    with (
        run_in_thread(load_config(overrides=values | {"placements.home": home})) as url,
        Client(url) as client,
    ):
        client.decide("home", "a")
    assert "configuration:" not in caplog.text
    del values["placements.old"]
    home |= {"attribution_window": 60, "holdout": {"share": 0.4}, "arms": ["films", "song"]}
    with run_in_thread(load_config(overrides=values | {"placements.home": home})):
        said = set(caplog.messages)
    assert said >= {
        "configuration: placements.old: no longer served; what it learned stays in the store",
        "configuration: placements.home.holdout.share: 0.4, before: 0.2",
        "configuration: placements.home.arms: film is retired, and films begins anew; if it is film renamed, "
        "call it that to go on",
        "configuration: placements.home.attribution_window: 60.0, before: 30.0",
        "placements.home.attribution_window: 60.0, before: 30.0; folding anew what the log holds",
    }
    with run_in_thread(load_config(overrides=values | {"placements.new": home})):
        assert "served now, with what the store has of this name" in caplog.text
        assert "placements.new: if it is home renamed, it begins anew; call it home to go on" in caplog.text


def test_a_setting_that_lets_the_default_be_another_policy_is_not_ignored_in_silence(tmp_path, caplog):
    caplog.set_level("INFO")
    values = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    home = {"kind": "slates", "arms": 3, "positions": 2}
    with (
        run_in_thread(load_config(overrides=values | {"placements.home": home})) as url,
        Client(url) as client,
    ):
        client.slate("home", "a")
    assert "rebuild" not in caplog.text
    home |= {"policy": "auto(own_order=true)"}
    with run_in_thread(load_config(overrides=values | {"placements.home": home})):
        (said,) = (line for line in caplog.messages if "SafeListMix" in line)
    assert said.startswith("configuration: placements.home.policy: auto is SafeListMix")
    assert "rebuild = true" in said


@pytest.mark.parametrize(
    ("table", "clicked", "said"), [({}, 1, 1), ({}, 2, 0), ({"default_reward": 1}, 1, 0)]
)
async def test_a_reward_for_all_that_is_shown_is_doubted_on_the_page(table, clicked, said, tmp_path):
    async with served(tmp_path / "s.db", with_home(arms=2, **table)) as engine:
        home = engine.placements["home"]
        made = await decide(engine, *(DecisionRequest("a") for _ in range(200)))
        told = [FeedbackRequest(row.id, reward=float(i % clicked == 0)) for i, row in enumerate(made)]
        await engine.record_many("home", told)
        found = list_problems(home, engine.clock())
    assert len(found) == said
    assert all("100 % of 200 decisions" in each and "in place of what was clicked" in each for each in found)


def until(lines, what):
    """Return lines up to the one that says something; it must come."""
    read = []
    for line in lines:
        read.append(line)
        if what in line:
            return read
    raise AssertionError(f"{what!r} was never said: {read}")


@pytest.mark.parametrize(
    "text",
    [
        "[keys]\nweb = 'SECRET'",
        "[keys.web]\nsha256 = 'SECRET'\nscopes = ['decide']",
        "keys = 'SECRET'\n[placements.home]\narms = 2",
    ],
)
def test_a_key_in_the_place_of_its_hash_is_shown_to_nobody(text, tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(text.replace("SECRET", key := "tacit_not_to_be_seen"))
    with pytest.raises(ConfigError, match="keys") as caught:
        load_config(path)
    seen: BaseException | None = caught.value
    assert "hidden" in str(seen) or "pattern" in str(seen)
    while seen is not None:
        assert key not in str(seen)
        seen = seen.__cause__


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    context = {"device": ["ios", "web"], "age": "number"}
    home = {
        "arms": ["film", "song"],
        "context": context,
        "holdout": {},
        "metrics": {"revenue": {}, "visits": {}},
    }
    store = str(tmp_path_factory.mktemp("mistakes") / "clicks.db")
    with run_in_thread(
        load_config(overrides={"server.port": 0, "store.path": store, "placements": {"home": home}})
    ) as url:
        yield url


@pytest.mark.parametrize("mistake", ASKED)
def test_a_wrong_request_is_answered_by_field_value_and_remedy(mistake, address):
    path, sent, (field, *told) = ASKED[mistake]
    body = None if sent is None else json.dumps(sent).encode()
    request = urllib.request.Request(
        f"{address}/v1/placements/{path}", body, {"content-type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    answer = json.load(caught.value)
    assert (answer["status"], answer["field"]) == (422, field)
    for part in told:
        assert part in answer["detail"]


def answered(url, body=None, media="application/json", method=None):
    request = urllib.request.Request(url, body, {"content-type": media}, method=method)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    return json.load(caught.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"key": "a"', "body: it ends at byte 11 with a bracket or quote still open; send one JSON object"),
        (b'{"key": ', "body: it ends at byte 8"),
        (b"", "body: it is empty; send one JSON object"),
        (b'{"key": a}', "byte 8"),
        (b"\x1f\x8b\x08", "body: it is compressed; send one JSON object"),
        (b"\xef\xbb\xbf{}", "body: it begins with a byte order mark; send one JSON object"),
        (b'{"key": "a", "context": [NaN]}', "NaN is no JSON, null is"),
    ],
)
def test_a_body_that_is_not_json_is_told_where_it_ends_to_be(body, why, address):
    answer = answered(f"{address}/v1/placements/home/decide", body)
    assert (answer["status"], answer["field"]) == (400, "body")
    assert why in answer["detail"]


def test_what_is_asked_elsewhere_or_otherwise_is_told_what_there_is(address):
    decide = f"{address}/v1/placements/home/decide"
    assert "GET /openapi.json lists" in answered(f"{address}/v1/decide/home", b"{}")["detail"]
    meant = "did you mean /v1/placements/home/decide? "
    paths = "placements/home/decide", "v2/placements/home/decide", "/v1/placements/home/decide"
    for path in (*paths, "v1/placements/home/decide/", "v1/placements/v1/placements/home/decide"):
        assert meant in answered(f"{address}/{path}", b"{}")["detail"]
    twice = [{"key": key, "decision_id": "z", "context": {"age": 3}} for key in "aab"]
    clash = answered(f"{decide}/batch", json.dumps({"decisions": twice}).encode())
    assert (clash["status"], clash["field"]) == (409, "decisions[2].decision_id")
    assert "'z' stands for another decision at decisions[0] of this batch; give each" in clash["detail"]
    assert clash["detail"].endswith(" (nothing of the batch counts)")
    for path in ("decide", "v1/decide", "v1/placements/decide"):
        assert "did you mean /v1/placements/NAME/decide? " in answered(f"{address}/{path}", b"{}")["detail"]
    assert answered(decide)["detail"] == "method: 'GET' is not allowed; this path takes POST"
    what = "content-type: 'text/plain' is not allowed; send application/json"
    assert answered(decide, b"{}", "text/plain")["detail"] == what
    beside = answered(f"{decide}?deferred=true", b'{"key": "a", "context": {}}')
    assert (beside["status"], beside["field"]) == (422, "deferred")
    assert "leave it out of the address" in beside["detail"]


def test_what_of_a_request_is_hardly_meant_is_said_in_its_answer_and_by_the_client(tmp_path):
    home = {"arms": 2, "context": {"device": ["ios", "web"]}, "holdout": {"unit": "user"}}
    config = load_config(
        overrides={"server.port": 0, "store.path": str(tmp_path / "s.db"), "placements.home": home}
    )
    asked = [Impression("a", user="u", context={"device": device}) for device in ("ios", "iOS", "tv")]
    with run_in_thread(config) as url, Client(url) as client:
        with pytest.warns(AssumptionWarning, match=r"context\.device: 'iOS' counts as other; send 'ios'"):
            said = [each.warning for each in client.decide_many("home", asked)]
        assert [bool(each) for each in said] == [False, True, False]
        with pytest.warns(AssumptionWarning, match=r"holdout\.unit: .* send user with each") as found:
            alone = client.decide("home", "a", context={"device": "web"})
        assert __file__ in {each.filename for each in found}
        assert alone.warning in {str(each.message) for each in found}
        assert client.decide("home", "a", context={"device": "web"}, user="u").warning is None


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_what_of_feedback_is_hardly_meant_is_said_in_its_answer(tmp_path):
    home = {"arms": 2, "holdout": {}, "metrics": {"revenue": {"range": [0, 200]}}}
    placements = {"home": home, "list": {"kind": "slates", "arms": 5, "positions": 4}}
    with run_in_thread(configured(tmp_path / "s.db", placements=placements)) as url, Client(url) as client:
        for amount, said in ((5999, "metrics.revenue: 5999 is beyond its range, [0.0, 200.0], "), (60, "")):
            given = client.decide("home", "a").decision_id, 1, {"revenue": amount}
            one = client.feedback("home", *given[:2], metrics=given[2])
            (again,) = client.feedback_many("home", [Feedback(*given[:2], None, given[2])])
            assert (one.warning or "").startswith(said)
            assert one.warning == again.warning
            assert bool(said) == bool(one.warning)
        shown = client.slate("list", "a").decision_id
        flags = client.clicks("list", shown, [0, 0, 1]).warning
        assert flags.startswith("clicks: [0, 0, 1] ")
        assert "give [2]" in flags
        for clicks in ([], [0], [0, 1], [0, 0], [0, 0, 0], [1, 1, 2]):
            assert client.clicks("list", shown, clicks).warning is None
        for clicks, meant in (([0] * 4, "[]"), ([1] * 4, "[0, 1, 2, 3]")):
            assert f"give {meant} if 1 means clicked" in client.clicks("list", shown, clicks).warning


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_an_id_that_is_given_to_decision_after_decision_is_doubted(tmp_path):
    clock, home = Clock(), {"arms": 2}
    config = configured(tmp_path / "s.db", placements={"home": home, "list": {"kind": "slates", "arms": 5}})
    remedy = "give each decision an id of its own"
    with by_clock(config, clock) as url, Client(url) as client:

        def decided(id):
            clock.now += 1_000_000
            one = client.decide("home", "a", decision_id=id).warning
            (again,) = client.decide_many("home", [Impression("a", decision_id=id)])
            assert one == again.warning
            return one

        assert [decided("user-17"), decided("user-17"), decided("user-18")] == [None] * 3
        client.feedback("home", "user-17", 1)
        learned = f"decision_id: 'user-17' was decided before, and has its feedback; {remedy}"
        assert [decided("user-17"), decided("user-18"), decided("user-19")] == [learned, None, None]
        clock.now += 3_600_000_000
        decided(None)
        over = f"decision_id: 'user-18' was decided before, and its window is over; {remedy}"
        assert [decided("user-18"), decided("user-20")] == [over, None]
        shown = client.slate("list", "a", decision_id="b").decision_id
        clock.now += 1_000_000
        client.clicks("list", shown, [])
        assert remedy in client.slate("list", "a", decision_id="b").warning


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_why_feedback_is_not_learned_is_said_where_it_could_be(tmp_path):
    revenue = {"reward": "revenue", "metrics": {"revenue": {"range": [0, 200]}}}
    placements = {"home": {"arms": 2}, "shop": {"arms": 2} | revenue}
    placements["quick"] = {"arms": 2, "attribution_window": 0.01}
    placements["late"] = {"arms": 2, "attribution_window": 0.5, "late": "correct", "policy": "ucb1"}
    with run_in_thread(configured(tmp_path / "s.db", placements=placements)) as url, Client(url) as client:
        shown = client.decide("home", "a", deferred=True).decision_id
        assert client.feedback("home", shown, 1).warning.startswith(
            "decision_id: it was deferred and not act"
        )
        shown = client.decide("home", "a").decision_id
        said = [client.feedback("home", shown, reward).warning for reward in (0, 1, 0)]
        remedy = "a lower one came first; send none until it is known, or give aggregation = 'max'"
        assert said == [None, f"reward: 1 is not learned, as {remedy}", None]
        shown = client.decide("shop", "a").decision_id
        said = [client.feedback("shop", shown, metrics={"revenue": each}).warning for each in (60, 30, 0)]
        remedy = "an amount came before; aggregation = 'sum' learns all that a decision earns"
        assert said == [None, f"metrics.revenue: 30 is not learned, as {remedy}", None]
        shown = client.decide("quick", "a").decision_id
        eventually(lambda: client.feedback("quick", shown, 1).outcome == "late")
        assert client.feedback("quick", shown, 0).warning is None
        (late,) = client.feedback_many("quick", [Feedback(shown, 1)])
        assert late.warning.startswith(
            "attribution_window: this came after its 0.01 s, and is not learned; leng"
        )
        shown = client.decide("late", "a").decision_id
        client.feedback("late", shown, 0.2)
        eventually(lambda: client.feedback("late", shown, 1).outcome == "late")
        assert client.feedback("late", shown, 1).warning.endswith(
            "; late = 'correct' replaces a default once, and nothing that was learned"
        )
        shown = client.decide("shop", "a").decision_id
        with pytest.raises(InvalidRequest, match=r'as metrics = {"revenue": 0\.5}: it is what is learned'):
            client.feedback("shop", shown, 0.5)


def test_what_is_called_otherwise_by_others_is_found(tmp_path):
    with pytest.raises(TacitError, match="unknown field `variations`; did you mean arms"):
        configured(tmp_path / "s.db", placements={"home": {"variations": ["a", "b"]}})
    with run_in_thread(configured(tmp_path / "s.db", placements={"home": {"arms": 2}})) as url:
        with Client(url) as client, pytest.raises(TypeError, match="'query'; did you mean 'key'"):
            client.decide("home", query="a")
        with (
            Local(url, "home", tmp_path / "waiting") as local,
            pytest.raises(TypeError, match="it takes key, arms"),
        ):
            local.decide("home", "a")
        with pytest.raises(TypeError, match="by async with, in place of with"), AsyncClient(url):
            pass


ASTRAY = """
import sys
from tacit.client import Client
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

placements = {"own": {"arms": 3, "policy": "wrong_policies:NotOnOffer", "seed": 1}, "home": {"arms": 2}}
config = load_config(overrides={"server.port": 0, "store.path": sys.argv[1], "placements": placements})
with run_in_thread(config) as url, Client(url) as client:
    shown = {client.decide("own", str(key), arms=[1, 2]).arm for key in range(20)}
    print(shown, client.decide("home", "a").arm in (0, 1))
"""


def test_a_policy_that_shows_what_is_not_on_offer_stops_no_service(tmp_path):
    told = ran(["-c", ASTRAY, tmp_path / "s.db"], cwd=ROOT / "tests")
    assert told.stdout == "{0, 1, 2} True\n", told.stderr


def test_a_variable_that_is_nearly_that_of_an_option_is_doubted(monkeypatch):
    monkeypatch.setenv("TACIT_SERVER_PORT", "3")
    monkeypatch.setenv("TACIT_SERVE_KEY", "k")
    said = r"^TACIT_SERVER_PORT: it sets nothing; call it TACIT_SERVE_PORT if that is meant$"
    with pytest.warns(AssumptionWarning, match=said) as found:
        CliRunner().invoke(cli, ["serve", "--help"], prog_name="tacit")
    assert len(found) == 1
    monkeypatch.delenv("TACIT_SERVER_PORT")
    for name in ("TACIT_PORT", "TACIT_KEY", "TACIT_QUIET"):
        monkeypatch.setenv(name, "3")
    for typed, name, meant in (
        ("serve", "TACIT_PORT", "TACIT_SERVE_PORT"),
        ("placement pin", "TACIT_KEY", "TACIT_PLACEMENT_KEY"),
    ):
        with pytest.warns(AssumptionWarning, match=f"^{name}: .*; call it {meant} if") as found:
            CliRunner().invoke(cli, [*typed.split(), "--help"], prog_name="tacit")
        assert len(found) == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"metrics": {"revenu": 3}}, "feedback[1].metrics.revenu"),
        ({"feedback_id": "a\nb"}, "feedback[1].feedback_id"),
    ],
)
def test_one_of_several_feedbacks_is_named_by_its_place(wrong, field, address):
    context = {"device": "ios", "age": 31}
    decisions = {"decisions": [{"key": "a", "context": context}] * 2}
    asked = urllib.request.Request(
        f"{address}/v1/placements/home/decide/batch",
        json.dumps(decisions).encode(),
        {"content-type": "application/json"},
    )
    made = json.load(urllib.request.urlopen(asked))["decisions"]
    feedback = [{"decision_id": each["decision_id"], "reward": 1} for each in made]
    body = json.dumps({"feedback": [feedback[0], feedback[1] | wrong]}).encode()
    answer = answered(f"{address}/v1/placements/home/feedback/batch", body)
    assert (answer["status"], answer["field"]) == (422, field)


def test_the_table_of_a_key_is_toml_whatever_its_name():
    made = CliRunner().invoke(cli, ["key", "my key"]).output.partition("configuration:\n\n")[2]
    assert list(tomllib.loads(made)["keys"]) == ["my key"]


MAP = 'placement = "p"\ndecision_id = "d"\nevent = "e"\n[reward]\nclick = 1\n'
FILES = {
    "map.toml": MAP,
    "ndjson.toml": MAP,
    "lines.jsonl": '{"p": "home", "d": "x", "e": "Click"}\n{"p": "home", "d": "x", "e": "click"\n',
    "other.toml": "[simulat]\nhorizon = 5\n",
    "option.toml": "[simulate]\nhorizonn = 5\n",
    "value.toml": "[simulate]\nhorizon = 'many'\n",
    "yaml.toml": "simulate: 5\n",
    "long.toml": MAP.replace("[reward]", 'join_seconds = "30m"\n[reward]'),
}
BESIDE = "with its path from here"
TYPED = {
    # what is typed, and what the error names
    "serve --config nowhere.toml": (
        "'--config'",
        "nowhere.toml",
        'write one, such as: placements.home.arms = ["',
    ),
    "warmup --config .": ("'--config'", "'.'", "write one, such as"),
    "simulate --config nowhere.toml": ("'--config'", "nowhere.toml", "[simulate] with horizon = 1000"),
    "feed lines.jsonl --map nowhere.toml": ("'--map'", "nowhere.toml", "tacit feed --example segment"),
    "feed lines.jsonl --map long.toml": ("join_seconds", "'30m'", "give a number, in seconds: 1800"),
    "examine nowhere.csv": ("'LOG'", "nowhere.csv", BESIDE),
    "items load home nowhere.parquet": ("'FILE'", "nowhere.parquet", BESIDE),
    "log import nowhere": ("'FOLDER'", "nowhere", BESIDE),
    "log forget --user u --backups nowhere": ("'--backups'", "nowhere", BESIDE),
    "log verify --store nowhere.db": ("--store", "nowhere.db", "give another, or the service's --config"),
    "log export out --store nowhere.db": ("--store", "nowhere.db", "give another"),
    "log export": ("'FOLDER'", "for example: ", "log export exported"),
    "lift home --key map.toml": ("--key", "this is a file", "give what is in it"),
    "key web --scope decide,feedback": ("--scope", "'decide,feedback'", "give each by --scope of its own"),
    "demo --context --lists": ("give one", "--context", "--interest give one"),
    "demo --duel --holdout 0.1": ("--duel", "it has no holdout", "leave out --holdout"),
    "evaluate": ("'LOGS...'", "for example: ", "evaluate clicks.parquet --policy thompson"),
    "placement pin home film": ("'--until'", "for example: ", "pin home film --until 2030-01-01T12:00"),
    "placement rebuild home": ("'--policy'", "for example: ", "rebuild home --policy thompson"),
    "log reshard": ("'--shards'", "for example: ", "log reshard --shards 4"),
    "serve --port http": ("'--port'", "'http'", "give a whole number"),
    "simulate --horizon 1e6": ("'--horizon'", "'1e6'", "give a whole number"),
    "serve --merge-seconds often": ("'--merge-seconds'", "'often'", "give a number"),
    "simulate --config other.toml": ("other.toml", "[simulat]", "there is no table [simulate]"),
    "simulate --config option.toml": ("simulate.horizonn", "no such option", "horizon, runs"),
    "simulate --config value.toml": ("'--horizon'", "'many'", "give a whole number"),
    "simulate --config yaml.toml": ("yaml.toml", "line 1, column 9", "write lines such as"),
    "simulate --policy ucb1 --plot regret.abc": ("plot", "'regret.abc'", ".png"),
    "check mine:Policy": ("policy", "'mine:Policy'", "call it where mine.py lies"),
    "placement holdout home": ("--none alone", "such as --share 0.1"),
    "placement holdout home --share 0.1 --none": ("--none alone", "what there shall be"),
    "placement arms home --add a,b": ("--add", "'a,b'", "give each by --add of its own"),
    "placement arms home spring": ("(spring)", "give each as an --add of its own"),
    "log export out --url http://x": ("--url", "give --config or --store"),
    "log export out --config map.toml": ("map.toml", "it is the map of a feed", "tacit feed --map"),
    "serve map.toml": ("unexpected extra argument (map.toml)", "give it as --config"),
    "pin home film": ("'pin'", "it is cli placement pin", ""),
    "export out": ("'export'", "it is cli log export", ""),
    "servee": ("'servee'", "did you mean 'serve'?", ""),
    "log exprot out": ("'exprot'", "did you mean 'export'?", "there is backup"),
    "log export out.parquet": ("'FOLDER'", "out.parquet is called as a file", "several files come into it"),
    "placement --url x unpin home": ("'--url'", "options follow their command", "placement unpin --url"),
    "placement pins home": ("'pins'", "did you mean 'pin'?", "there is arms, "),
    "items lod home": ("'lod'", "did you mean 'load'?", "there is count, load, remove"),
    "placement holdout home --control film": ("--control", "'film'", "give uniform, baseline or arm=film"),
}


@pytest.mark.parametrize("typed", TYPED)
def test_a_command_typed_wrongly_is_told_by_field_value_and_remedy(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    ran = CliRunner().invoke(cli, typed.split())
    assert ran.exit_code == 2, ran.output
    for part in TYPED[typed]:
        assert part in " ".join(ran.output.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("logs", "remedy"),
    [
        (["clicks", "duels-search"], "give ex/clicks.parquet, or ex/duels-search.parquet to tacit duel"),
        (["items-home", "lists-home"], "give ex/lists-home.parquet"),
        ([], "export it with --config, so that it has clicks.parquet"),
    ],
)
def test_an_export_is_no_log_but_has_some(logs, remedy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ex").mkdir()
    for name in ["placements.json", "bases.parquet", *(f"{each}.parquet" for each in logs)]:
        (tmp_path / "ex" / name).touch()
    ran = CliRunner().invoke(cli, ["evaluate", "ex", "--policy", "thompson"])
    assert ran.output.endswith(f"Error: ex: it is an export, of which not all is a log; {remedy}\n")


def test_a_click_log_is_no_log_of_duels(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("timestamp,key,arms,arm,propensity,reward\n2026-01-01,x,[],a,0.5,1\n")
    ran = CliRunner().invoke(cli, ["duel", str(path)])
    assert str(ran.exception).startswith(f"{path}: it is a click log; ")
    assert "duels-NAME.parquet" in str(ran.exception)


def test_a_key_longer_than_a_file_name_may_be_is_a_key():
    ran = CliRunner().invoke(cli, ["lift", "home", "--url", "x", "--key", "k" * 5000])
    assert str(ran.exception).startswith("url: 'x' is not allowed; give http://")


def test_an_event_that_is_none_or_is_left_out_is_told_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    said = CliRunner().invoke(cli, ["feed", "lines.jsonl", "--map", "map.toml", "--check"]).output
    assert "line 1: left out: e is 'Click'; [reward] has 'click'" in said
    lacking = CliRunner().invoke(cli, ["feed", "nowhere.jsonl", "--map", "map.toml"])
    assert (lacking.output, "there is no such file" in str(lacking.exception)) == ("", True)
    elsewhere = '[shown]\nelsewhere = true\nwhere = { e = "Click" }\narm = "d"\n'
    (tmp_path / "map.toml").write_text(MAP.replace('"p"', '"home"') + elsewhere)
    warned = CliRunner().invoke(cli, ["feed", "lines.jsonl", "--map", "map.toml", "--check"]).output
    assert "shown.propensity: without it no lift will be known" in warned
    assert 'home: it is not there; if that is its name, give placement = { value = "home" }' in warned
    assert (
        "line 2: rejected, not-json: it ends at byte 36 with a bracket or quote still open; give one" in said
    )


def test_events_that_are_wrong_are_counted_by_reason_and_field(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lacking = '{"p": "home", "e": "click"}\n', '{"d": "x", "e": "click"}\n', '{"p": "home", "d": "x"}\n'
    (tmp_path / "lines.jsonl").write_text(lacking[0] * 3 + lacking[1] * 2 + lacking[2])
    (tmp_path / "map.toml").write_text(MAP)
    said = CliRunner().invoke(cli, ["feed", "lines.jsonl", "--map", "map.toml", "--check"]).output
    for line, count in ((1, 3), (4, 2), (6, 1)):
        assert f"{count} rejected, missing-field; the first in lines.jsonl, line {line}:" in said


def test_kinds_of_events_that_the_map_does_not_know_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    joined = 'placement = { value = "home" }\nuser = "u"\ntime = "t"\nevent = "e"\n[reward]\nclick = 1\n'
    shown = '[shown]\nwhere = { e = "veiw" }\nuser = "u"\ndecision_id = "d"\n'
    (tmp_path / "map.toml").write_text(joined + shown)
    events = [{"u": "x", "t": 1.7e9 + i, "d": "d1", "e": e} for i, e in enumerate(("view", "click", "view"))]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, events)))
    said = CliRunner().invoke(cli, ["feed", "lines.jsonl", "--map", "map.toml", "--check"]).output
    assert "  2 left out: e is 'view'; [reward] has 'click', [shown] is where e = 'veiw'" in said
    none = "no event so far is what [shown] wants, e = 'veiw': e is 'view', e is 'click'; mend its where"
    assert f"    user: 'x': {none}" in said


def test_every_example_of_a_command_has_all_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("clicks.parquet", "items.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "exported").mkdir()
    for words, found in commands(cli, []):
        if any(parameter.required for parameter in found.params):
            lacking = CliRunner().invoke(cli, words)
            example = lacking.output.rpartition("for example: ")[2].split()[1:]
            found.make_context(words[-1], example[len(words) :], resilient_parsing=False)


def commands(found, words):
    if not isinstance(found, click.Group):
        yield words, found
        return
    context = click.Context(found)
    for name in found.list_commands(context):
        yield from commands(found.get_command(context, name), [*words, name])


def test_one_of_what_is_sent_as_many_is_refused_with_a_remedy():
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidValue, match=r"decisions: Impression.* give a list of Impression"):
            client.decide_many("home", Impression("a"))
        with pytest.raises(InvalidValue, match=r"feedback: Feedback.* give a list of Feedback"):
            client.feedback_many("home", Feedback("d", 1.0))


def test_times_are_dates_too_and_what_is_none_is_told_to_be():
    with Client("http://127.0.0.1:9", retries=0) as client:
        for time in (date(2030, 1, 1), datetime(2030, 1, 1, 12)):
            for call in (
                partial(client.pin, "home", ["film"], time),
                partial(client.lift, "home", begin=time),
            ):
                with pytest.raises(Unavailable):
                    call()
        for call in (partial(client.hold_out, "home", look=5), partial(client.lift, "home", end=5)):
            with pytest.raises(InvalidValue, match=r"(look|end): 5 .* give a time in ISO 8601, such as 2026"):
                call()


def test_a_time_of_here_without_its_zone_is_doubted(monkeypatch):
    now = datetime(2030, 1, 1, 12)
    with Client("http://127.0.0.1:9", retries=0) as client:
        for zone, said in (("Europe/Berlin", 1), ("UTC", 0)):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always", AssumptionWarning)
                for until in (now, now.astimezone(), now.date(), now.isoformat()):
                    with pytest.raises(Unavailable):
                        client.pin("home", ["film"], until)
            doubts = [each for each in found if each.category is AssumptionWarning]
            assert len(doubts) == said
            for each in doubts:
                assert "until: 2030-01-01 12:00 has no zone, and is taken as UTC; if" in str(each.message)
                assert each.filename == __file__
    monkeypatch.undo()
    time.tzset()


def test_a_call_with_an_option_that_there_is_not_says_which_is_meant():
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(TypeError, match=r"^Client\.decide\(\) .* 'contxt'; did you mean 'context'\?"):
            client.decide("home", "a", contxt={})
        with pytest.raises(
            TypeError, match=r"^Client\.feedback\(\) .* 'value'; it takes placement, decision_id"
        ):
            client.feedback("home", "d", value=1)


def test_a_client_that_is_closed_and_a_decision_in_place_of_its_id_are_refused_with_a_remedy():
    client = Client("http://127.0.0.1:9")
    with pytest.raises(InvalidValue, match=r"decision_id: 'Decided' is not allowed; give its \.decision_id"):
        client.feedback("home", Decided("d", "film", 0.5, 0, "committed"), 1)
    client.close()
    with pytest.raises(InvalidValue, match="client: 'closed' is not allowed; make another"):
        client.decide("home", "a")


@pytest.mark.parametrize(
    ("typed", "effect"), [("lift home", ""), ("placement unpin home", ", so nothing was changed")]
)
def test_what_nobody_answers_has_changed_nothing(typed, effect):
    ran = CliRunner().invoke(cli, [*typed.split(), "--url", "http://127.0.0.1:9"])
    remedy = "see whether the service runs there, or give its url (--url of a command)"
    assert f"Connection refused){effect}; {remedy}" in str(ran.exception)


def test_a_file_of_the_service_that_is_not_read_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tacit.toml").write_text(HOME + "[store]\npath = '.'")
    with pytest.warns(AssumptionWarning, match=r"tacit\.toml lies here .*; give --config tacit\.toml"):
        CliRunner().invoke(cli, ["serve", "--store", "."])
    with warnings.catch_warnings(action="error"):
        ran = CliRunner().invoke(cli, ["serve", "--store", ".", "--config", "tacit.toml"])
    assert "store.path: . is a folder" in ran.output


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("tacit_a\n", r"it ends with a line break, which \.strip\(\) takes away; give"),
        ("tacit_a\n\nThis is the key\n", "it is of several lines; give"),
        ("Bearer tacit_a", "it begins with Bearer, which the client adds; give"),
        ("tacit a", "is not allowed; give the key as `tacit key` printed it, and no more"),
    ],
)
def test_what_is_more_than_a_key_is_said_without_the_key(key, why):
    with pytest.raises(InvalidValue, match=why) as caught:
        Client("http://127.0.0.1:9", key)
    assert "tacit_a" not in str(caught.value)


def test_a_value_of_few_is_told_which_there_are():
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidValue, match="unknown: True is not allowed; give one of refuse, skip"):
            client.decide("home", "a", arms=["x"], unknown=True)
        with pytest.raises(
            InvalidValue, match=r"reward: 59\.9 .*; give a number in \[0, 1\]; .* metrics = {"
        ):
            client.feedback("home", "d", 59.9)
        with pytest.raises(TypeError, match=r"Decided has fields; give \.arm in place of \['arm'\]"):
            Decided("d", "film", 0.5, 0, "committed")["arm"]


def test_a_lift_in_per_cent_is_doubted_where_it_is_asked_for():
    with Client("http://127.0.0.1:9", retries=0) as client:
        for shown, meant in ((10, "0.1 if 10 % are meant"), (1.1, "0.1 if it is a ratio meant")):
            with (
                pytest.warns(AssumptionWarning, match=f"shown: {shown} is .* % more; give {meant}") as found,
                pytest.raises(Unavailable),
            ):
                client.lift("home", shown=shown)
            assert found[0].filename == __file__


def test_the_address_of_a_service_is_given_without_v1():
    ran = CliRunner().invoke(cli, ["lift", "home", "--url", "http://127.0.0.1:8787/v1"])
    assert "give http://HOST:PORT or https://HOST, without /v1" in str(ran.exception)
