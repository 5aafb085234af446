"""Mistakes that a service finds while it runs: at its start, at SIGHUP, in what it is sent."""

import json
import re
import signal
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
import warnings
from datetime import datetime

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT
from forked import Forked, ran
from harness import Clock, by_clock, configured, eventually, served, with_home
from placement_access import decide

from tacit.cli import cli
from tacit.client import Client, Feedback, Impression, InvalidRequest, Unavailable
from tacit.errors import AssumptionWarning, ConfigError
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.maintenance.doctor import check_service
from tacit.service.page.overview import list_problems

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
    ("at_least", 'mode = "frozen"\nat_least'): "home.mode: frozen is for a placement without decisions;",
    ("at_least = { a = 0.3 }", ""): "home.at_least: the store holds what was learned with {'a': 0.3}",
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
            for text, news in ((BEGUN.replace(old, new), what), (BEGUN, "was read anew")):
                # At once: half a file could be read.
                (tmp_path / "next.toml").write_text(text)
                (tmp_path / "next.toml").replace(path)
                service.send_signal(signal.SIGHUP)
                # Only then is the file read, or refused: the next one would be compared with another.
                said += until(service.stderr, news, "the configuration ")
        service.terminate()
    for what in DOUBTED:
        assert any(what in line for line in said)
    assert all(line.startswith("WARNING") for line in said if "needs a restart" in line)


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
    ("table", "clicked", "said"), [({}, 1, "100 % of 200"), ({}, 2, ""), ({"default_reward": 1}, 1, "")]
)
async def test_a_reward_for_all_that_is_shown_is_doubted_on_the_page(table, clicked, said, tmp_path):
    async with served(tmp_path / "s.db", with_home(arms=2, **table)) as engine:
        home = engine.placements["home"]
        made = await decide(engine, *(DecisionRequest("a") for _ in range(200)))
        told = [FeedbackRequest(row.id, reward=float(i % clicked == 0)) for i, row in enumerate(made)]
        await engine.record_many("home", told)
        (found,) = list_problems(home, engine.clock()) or [""]
    assert found.startswith(said)
    assert found.endswith("in place of what was clicked?" * bool(said))
    assert bool(found) == bool(said)


def test_what_nobody_has_activated_has_no_open_window_and_lacks_no_feedback(tmp_path):
    clock, config = Clock(), with_home(tmp_path / "s.db", arms=2, attribution_window=90, activation_window=60)

    def read(url, path):
        return urllib.request.urlopen(url + path).read().decode()

    with by_clock(config, clock) as url, Client(url) as client:
        client.decide_many("home", [Impression("a", deferred=True)] * 200 + [Impression("a")] * 5)
        (placement,) = json.loads(read(url, "/v1/placements"))["placements"]
        report, page, metrics = client.lift("home"), read(url, "/placements/home"), read(url, "/metrics")
        clock.now += 60_000_000
        client.decide("home", "a")
        later, later_page = client.lift("home"), read(url, "/placements/home")
    assert 'tacit_open_windows{placement="home"} 5.0' in metrics
    assert re.findall('"(open|deferred)">([0-9]+)<', page) == [("open", "5"), ("deferred", "200")]
    assert (placement["pending"], report.pending, later.pending) == (5, 205, 6)
    assert report.counted.endswith("until 22:14:50 (UTC), and nobody has activated 200 of them.")
    assert "activated" not in later.counted
    # Those that were never shown earn nothing, and nothing is said of that.
    assert "has come for" not in later_page


def test_that_nothing_was_earned_and_no_amount_was_sent_is_said(tmp_path):
    home = {"arms": 2, "holdout": {"share": 0.5}, "metrics": {"revenue": {}}}
    clock, config = Clock(), with_home(tmp_path / "s.db", **home)
    with by_clock(config, clock) as url, Client(url) as client:
        made = client.decide_many("home", [Impression("a")] * 200)
        client.feedback_many("home", [Feedback(each.decision_id, 0) for each in made])
        clock.now += 60_000_000
        client.decide("home", "a")
        report, since = client.lift("home"), client.lift("home", begin="1970-01-01")
        checks, page = check_service(url), urllib.request.urlopen(url).read().decode()
    assert "No reward above 0 has come for 200 decisions: nothing can be learned from clicks." in page
    unearned = "none of 200 decisions has earned a reward above 0"
    remedy = "send clicks (reward 1, or places)"
    assert all(f"Not known: {unearned}; {remedy}." in each.verdict for each in (report, since))
    assert report.metrics[0].verdict.startswith("Not known: no amount of revenue has come for 200 decisions;")
    silent = "no amount of revenue has come", 'send it with feedback: metrics = {"revenue": 5.9}'
    assert {(unearned, remedy), silent} == {(each.detail, each.remedy) for each in checks if each.ok is None}


def until(lines, *said):
    """Return lines up to the last one of those that say what must come."""
    read = []
    for line in lines:
        read.append(line)
        if all(any(what in line for line in read) for what in said):
            return read
    raise AssertionError(f"{said} was never said: {read}")


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


@pytest.mark.parametrize(
    ("body", "media", "status", "why"),
    [
        (b"\x1f\x8b\x08", "application/json", 400, "body: it is compressed; send one JSON object"),
        (b"\xef\xbb\xbf{}", "application/json", 400, "body: it begins with a byte order mark"),
        (b"{}", "text/plain", 415, "content-type: 'text/plain' is not allowed; send application/json"),
    ],
)
def test_a_body_that_is_no_json_is_called_what_it_is(body, media, status, why, tmp_path):
    with run_in_thread(with_home(tmp_path / "s.db", arms=2)) as url:
        request = urllib.request.Request(f"{url}/v1/placements/home/decide", body, {"content-type": media})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        answer = json.load(caught.value)
    assert (answer["status"], answer["field"]) == (status, why.partition(":")[0])
    assert answer["detail"].startswith(why)


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


def test_the_table_of_a_key_is_toml_whatever_its_name():
    made = CliRunner().invoke(cli, ["key", "my key"]).output.partition("configuration:\n\n")[2]
    assert list(tomllib.loads(made)["keys"]) == ["my key"]


def test_every_example_of_a_command_has_all_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("clicks.parquet", "items.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "exported").mkdir()
    for words, found in commands(cli, []):
        if any(parameter.required for parameter in found.params):
            example = CliRunner().invoke(cli, words).output.rpartition("for example: ")[2].split()[1:]
            found.make_context(words[-1], example[len(words) :], resilient_parsing=False)


def commands(found, words):
    if not isinstance(found, click.Group):
        yield words, found
        return
    context = click.Context(found)
    for name in found.list_commands(context):
        yield from commands(found.get_command(context, name), [*words, name])


def test_a_time_of_here_without_its_zone_is_doubted(monkeypatch):
    now = datetime(2030, 1, 1, 12)
    with Client("http://127.0.0.1:9", retries=0) as client:
        for zone, said in (("Europe/Berlin", 1), ("UTC", 0)):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            with warnings.catch_warnings(record=True, action="always", category=AssumptionWarning) as found:
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
