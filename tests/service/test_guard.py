"""Keys, limits, headers, metrics, logs, reloading: what stands between the service and others."""

import base64
import contextlib
import hashlib
import json
import logging
import signal
import subprocess

import pytest
from click.testing import CliRunner
from forked import Forked
from harness import PATIENCE, SERVE, Client, configured, eventually

from tacit.cli import cli
from tacit.errors import ConfigError
from tacit.service.app.guard import RateLimits
from tacit.service.app.logging_setup import JsonLines
from tacit.service.app.server import run_in_thread, serve
from tacit.service.config.keys import KeyConfig, Keys, new_key

NAMES = {"decide": "page", "feedback": "tracker", "read": "people", "admin": "operator"}
MADE = {scope: new_key() for scope in NAMES}
KEY = {scope: key for scope, (key, _) in MADE.items()}

DECIDE = ("POST", "/v1/placements/default/decide", {"key": "a"})
FEEDBACK = ("POST", "/v1/placements/default/feedback", {"decision_id": "x", "reward": 1})
MODE = ("POST", "/v1/placements/default/mode", {"mode": "online"})
LIST = ("GET", "/v1/placements", None)
METRICS = ("GET", "/metrics", None)


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    values = {
        "keys": {NAMES[scope]: {"sha256": sha256, "scopes": [scope]} for scope, (_, sha256) in MADE.items()}
    }
    with run_in_thread(configured(tmp_path_factory.mktemp("keys") / "s.db", **values)) as address:
        yield Client(address)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("request_", "scope", "status"),
    [(DECIDE, "decide", 200), (FEEDBACK, "feedback", 404), (MODE, "admin", 200),
     (LIST, "read", 200), (METRICS, "read", 200), (("GET", "/", None), "read", 200),
     (("GET", "/openapi.json", None), "read", 200)],
)  # fmt: skip
def test_a_key_opens_what_its_scope_says_and_no_more(locked, request_, scope, status):
    for held, key in KEY.items():
        expected = status if held in (scope, "admin") else 403
        assert locked.ask(*request_, bearer(key))[0] == expected, held
    password = base64.b64encode(f"anybody:{KEY[scope]}".encode()).decode()
    assert locked.ask(*request_, {"Authorization": f"Basic {password}"})[0] == status


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer tacit_wrong", "Basic !!!", f"Token {KEY['admin']}", KEY["admin"],
     f"Bearer {KEY['admin']}x", f"Bearer {MADE['admin'][1]}"],
    # Without the keys, which differ from one process of the tests to the next.
    ids=range(8),
)  # fmt: skip
def test_without_a_key_that_is_known_nothing_opens(locked, header):
    for request_ in (DECIDE, FEEDBACK, MODE, LIST, METRICS):
        status, headers, problem = locked.ask(*request_, {"Authorization": header})
        assert (status, problem["field"]) == (401, "authorization")
        assert "tacit" in headers["www-authenticate"]
        assert "tacit_" not in json.dumps(problem)
    assert locked.ask("GET", "/healthz")[0] == 200


def test_whoever_has_a_key_hears_that_v1_was_forgotten_and_no_stranger_does(locked):
    for home in ("default", "nowhere"):
        asked = "POST", f"/placements/{home}/decide", b"{}"
        status, _, problem = locked.ask(*asked, bearer(KEY["decide"]))
        assert (status, f"did you mean /v1/placements/{home}/decide? " in problem["detail"]) == (404, True)
        assert locked.ask(*asked)[0] == 401


def test_who_is_refused_leaves_no_metric_of_his_own(locked):
    """Anybody could fill the memory with paths otherwise."""
    assert locked.ask("GET", "/made/up/by/anybody")[0] == 401
    assert locked.ask("GET", "/made/up/by/callers", None, bearer(KEY["read"]))[0] in (403, 404)
    assert not any("/made/up" in name for name in metrics(locked, bearer(KEY["read"])))


def test_only_hashes_are_kept():
    key, sha256 = new_key()
    assert hashlib.sha256(key.encode()).hexdigest() == sha256
    assert len({new_key()[0] for _ in range(100)}) == 100
    assert key not in repr(vars(Keys({"a": KeyConfig(sha256, ["decide"])})))
    made = json.loads(CliRunner().invoke(cli, ["key", "shop", "--scope", "read", "--json"]).output)
    assert hashlib.sha256(made["key"].encode()).hexdigest() == made["sha256"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_other_machines_need_keys(tmp_path, host):
    with pytest.raises(ConfigError, match="needs keys"):
        configured(tmp_path / "s.db", **{"server.host": host})
    with pytest.raises(ConfigError, match="needs keys"):
        serve(configured(tmp_path / "s.db"), host=host)
    keys = {"shop": {"sha256": MADE["decide"][1], "scopes": ["decide"]}}
    assert configured(tmp_path / "s.db", **{"server.host": host, "keys": keys}).keys["shop"]


@pytest.fixture(scope="module")
def open_(tmp_path_factory):
    config = configured(tmp_path_factory.mktemp("open") / "s.db", **{"server.access_log": True})
    with run_in_thread(config) as address:
        yield Client(address)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_without_keys_only_names_of_this_machine_are_answered(open_, host):
    status, _, problem = open_.ask(*DECIDE, {"Host": host})
    assert (status, problem["detail"].partition(" is none")[0]) == (421, f"host: {host!r}")
    for name in ("localhost", "127.0.0.1:80", "[::1]:9", "LOCALHOST"):
        assert open_.ask(*DECIDE, {"Host": name})[0] == 200


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_what_a_foreign_page_could_send_is_refused(open_, media):
    status, _, problem = open_.ask(*DECIDE, {"Content-Type": media})
    assert (status, problem["field"]) == (415, "content-type")
    assert open_.ask(*DECIDE, {"Content-Type": "application/json; charset=utf-8"})[0] == 200
    status, headers, _ = open_.ask("OPTIONS", DECIDE[1], None, {"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in headers


def test_requests_have_ids_which_may_come_from_outside(open_, caplog):
    with caplog.at_level(logging.INFO, "tacit.requests"):
        _, headers, _ = open_.ask(*DECIDE, {"X-Request-Id": "trace-7.a_B"})
        assert headers["x-request-id"] == "trace-7.a_B"
        _, headers, _ = open_.ask(*DECIDE, {"X-Request-Id": "a b; forged"})
        assert len(headers["x-request-id"]) == 16
    assert "POST /v1/placements/default/decide 200" in caplog.text
    assert "forged" not in caplog.text


def test_log_lines_are_json_that_nobody_can_break():
    record = logging.makeLogRecord({"msg": "a\n%s", "args": ('"}\n{',), "levelname": "INFO"})
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == 'a\n"}\n{'


def metrics(client, headers=None):
    text = client.ask("GET", "/metrics", None, headers)[2].decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_metrics_count(open_):
    before = metrics(open_)
    _, _, decision = open_.ask(*DECIDE)
    told = {"decision_id": decision["decision_id"], "reward": 1}
    open_.ask("POST", "/v1/placements/default/feedback", told)
    open_.ask("GET", "/no/such/path")
    after = metrics(open_)

    def grown(name):
        return after[name] - before.get(name, 0.0)

    assert grown('tacit_decisions_total{placement="default"}') == 1
    assert grown('tacit_rewards_total{placement="default"}') == 1
    # Another test may have left a decision that waits.
    learned, waits = (
        f'tacit_feedback_total{{outcome="{name}",placement="default"}}' for name in ("learned", "pending")
    )
    assert after.get(learned, 0) + after.get(waits, 0) - before.get(learned, 0) - before.get(waits, 0) == 1
    assert grown('tacit_request_seconds_count{path="decide",status="200"}') == 1
    assert grown('tacit_request_seconds_count{path="other",status="404"}') == 1
    buckets = [value for name, value in after.items() if "seconds_bucket" in name and "decide" in name]
    assert buckets == sorted(buckets)
    assert buckets[-1] == after['tacit_request_seconds_count{path="decide",status="200"}']
    assert grown("tacit_commit_rows_sum") == 2
    assert after["tacit_ready"] == 1
    assert after['tacit_mode{mode="online",placement="default"}'] == 1
    assert not any("/no/such" in name for name in after)


def test_more_requests_than_allowed_are_refused(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db", **{"server.rate": 2.0})) as address:
        client = Client(address)
        answers = [client.ask(*DECIDE) for _ in range(12)]
        assert [status for status, *_ in answers[:4]] == [200] * 4
        refused = [(status, headers) for status, headers, _ in answers if status != 200]
        assert {status for status, _ in refused} == {429}
        assert refused[0][1]["retry-after"] == "1"
        assert client.ask("GET", "/healthz")[0] == 200


def test_clients_that_are_forgotten_start_anew():
    rates = RateLimits(1.0, lambda: 0.0)
    assert [rates.take_token("a") for _ in range(3)] == [True, True, False]
    for remembered in (9_999, 10_000):
        assert not rates.take_token("a")
        for number in range(remembered):
            rates.take_token(f"{number} of {remembered}")
    assert rates.take_token("a")


FIRST = """
[server]
port = 0
log = "json"
[store]
path = "s.db"
[placements.home]
arms = 3
"""


@contextlib.contextmanager
def process(path):
    started = Forked(["-c", SERVE, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def reread(text):
        path.write_text(text)
        started.send_signal(signal.SIGHUP)

    try:
        yield started, Client(started.stdout.readline().split()[3]), reread
    finally:
        started.terminate()
        started.communicate(timeout=PATIENCE)


def test_the_configuration_is_reloaded_without_loss(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(FIRST)
    with process(path) as (server, client, reread):
        _, _, decision = client.post("home/decide", {"key": "a"})
        assert client.post("new/decide", {"key": "a"})[0] == 404
        reread(FIRST + "[placements.new]\narms = 2\n")
        eventually(lambda: client.post("new/decide", {"key": "a"})[0] == 200)
        told = {"decision_id": decision["decision_id"], "reward": 1}
        assert client.post("home/feedback", told)[2]["outcome"] == "learned"
        # A configuration that cannot be used changes nothing.
        reread(FIRST.replace("arms = 3", 'arms = 3\npolicy = "exp3"'))
        refused = next(line for line in map(json.loads, server.stderr) if line["level"] == "error")
        assert "placements.home.policy" in refused["message"]
        assert client.post("new/decide", {"key": "a"})[0] == 200
        home, _ = client.ask("GET", "/v1/placements")[2]["placements"]
        assert (home["decisions"], home["feedback"]) == (1, 1)
        # Limits are reloaded, too.
        asked = {"key": "k" * 200}
        assert client.post("home/decide", asked)[0] == 200
        reread(FIRST.replace("[server]\n", "[server]\nbody_limit = 100\nbatch_limit = 150\n"))
        eventually(lambda: client.post("home/decide", asked)[0] == 413)
        many = client.post("home/decide/batch", {"decisions": [asked]})
        assert (many[0], "150 bytes" in many[2]["detail"]) == (413, True)
