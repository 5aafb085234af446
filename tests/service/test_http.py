"""The service over HTTP, as a real server on a loopback port."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner
from forked import Forked
from harness import PATIENCE, Client, configured, eventually

from tacit.cli import cli
from tacit.errors import ConfigError, MissingExtra
from tacit.service.app.server import run_in_thread, serve
from tacit.service.maintenance import doctor

ARMS = ["holiday", "film", "recipe"]
LIMIT = 2000
SERVE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(overrides={"store.path": sys.argv[1], "server.port": 0}))
print("stopped cleanly", flush=True)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    values = {
        "server.body_limit": LIMIT,
        "placements.default.arms": ARMS,
        "placements.default.seed": 7,
        "placements.untaught.arms": ARMS,
        "placements.who": {"arms": ARMS, "context_dim": 2},
        "placements.plain.arms": 3,
        "placements.plain.policy": "ucb1",
    }
    with run_in_thread(configured(tmp_path_factory.mktemp("http") / "s.db", **values)) as address:
        yield address


def test_a_decision_and_its_feedback(client):
    status, headers, decision = client.post("untaught/decide", {"key": "tomato"})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert decision.keys() >= {"decision_id", "arm", "propensity", "epoch", "durability"}
    assert decision["arm"] in ARMS
    assert decision["propensity"] == pytest.approx(1 / 3)
    told = {"decision_id": decision["decision_id"], "reward": 1}
    answer = {
        "decision_id": decision["decision_id"],
        "learned": True,
        "outcome": "learned",
        "durability": "committed",
    }
    assert client.post("untaught/feedback", told)[::2] == (200, answer)


def test_arms_on_offer_and_context(client):
    status, _, decision = client.post("who/decide", {"key": "tomato", "arms": ["film"], "context": [0.5, 1]})
    assert (status, decision["arm"], decision["propensity"]) == (200, "film", 1.0)
    status, _, decision = client.post("plain/decide", {"key": "tomato", "arms": [2]})
    assert (status, decision["arm"], decision["propensity"]) == (200, 2, None)


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("default/decide", b"{", 400, "body"),
        ("default/decide", b"", 400, "body"),
        ("default/decide", b"\xff\xfe", 400, "body"),
        ("default/decide", b'{"key": "\\ud800"}', 400, "body"),
        ("default/decide", {"key": "ä" * 257}, 422, "key"),
        ("default/decide", {"key": "a", "session": "x" * 257}, 422, "session"),
        ("default/feedback", b'{"decision_id": "x", "reward": NaN}', 400, "body"),
        ("default/feedback", b'{"decision_id": "x", "reward": 1e999}', 422, "reward"),
        ("default/decide", {"key": "a" * LIMIT}, 413, "body"),
    ],
)
def test_a_wrong_request_is_refused_by_its_field(client, path, body, status, field):
    answer = client.post(path, body)
    assert answer[0] == status
    assert answer[1]["content-type"] == "application/problem+json"
    problem = answer[2]
    assert problem.keys() >= {"type", "title", "status", "detail", "field"}
    assert (problem["status"], problem["field"]) == (status, field)
    assert problem["detail"].startswith(field)
    assert problem["type"].startswith("urn:tacit:problem:")


def test_repeated_feedback_is_recorded_and_teaches_once(client):
    _, _, decision = client.post("default/decide", {"key": "a"})
    told = {"decision_id": decision["decision_id"], "reward": 0, "feedback_id": "no click"}
    outcomes = [client.post("default/feedback", told)[2] for _ in range(2)]
    # Others of this placement may wait before it.
    assert outcomes[0]["outcome"] in ("learned", "pending")
    assert outcomes[1]["outcome"] == "duplicate"
    status, _, problem = client.post("default/feedback", {**told, "reward": 1})
    assert (status, problem["field"]) == (409, "feedback_id")
    assert problem["type"] == "urn:tacit:problem:conflict"
    del told["feedback_id"]
    assert client.post("default/feedback", told)[2]["outcome"] == "repeated"


def test_the_same_request_gets_the_same_answer(client):
    asked = {"key": "a", "arms": ["film", "recipe"], "decision_id": "page 7 / slot 1"}
    first = client.post("default/decide", asked)[::2]
    assert client.post("default/decide", asked)[::2] == first
    assert first[1]["decision_id"] == "page 7 / slot 1"
    status, _, problem = client.post("default/decide", {**asked, "arms": ["film"]})
    assert (status, problem["field"]) == (409, "decision_id")
    # An id belongs to its placement.
    assert client.post("plain/decide", {"key": "b", "decision_id": "page 7 / slot 1"})[0] == 200


def test_many_at_once(client):
    asked = [{"key": f"key {i % 3}", "decision_id": f"many {i}"} for i in range(20)]
    status, _, answer = client.post("default/decide/batch", {"decisions": asked})
    assert status == 200
    assert [d["decision_id"] for d in answer["decisions"]] == [a["decision_id"] for a in asked]
    assert client.post("default/decide/batch", {"decisions": asked})[2] == answer
    told = [{"decision_id": f"many {i}", "reward": i % 2} for i in range(19)]
    told.append({"decision_id": "never made", "reward": 1})
    status, _, answer = client.post("default/feedback/batch", {"feedback": told})
    outcomes = [f["outcome"] for f in answer["feedback"]]
    # Others of this placement may wait before them.
    assert (status, outcomes[-1]) == (200, "unknown-decision")
    assert set(outcomes[:-1]) <= {"learned", "pending"}
    for wrong, field in (
        ([{"key": "a"}, {"key": "a", "arms": ["opera"]}], "decisions[1].arms"),
        ([{"key": "a"}, {"kye": "a"}], "decisions[1].kye"),
        ([], "decisions"),
    ):
        status, _, problem = client.post("default/decide/batch", {"decisions": wrong})
        assert (status, problem["field"]) == (422, field)
        assert problem["detail"].endswith(" (nothing of the batch counts)")
    # One that stands for something else refuses the whole batch.
    wrong = [{"key": "a", "decision_id": "fresh"}, {"key": "other", "decision_id": "many 1"}]
    status, _, problem = client.post("default/decide/batch", {"decisions": wrong})
    assert (status, problem["field"]) == (409, "decisions[1].decision_id")
    assert problem["detail"].startswith("decisions[1].decision_id: 'many 1' stands for a decision")
    told = {"decision_id": "fresh", "reward": 1}
    assert client.post("default/feedback", told)[0] == 404


def test_a_deferred_decision_counts_once_it_is_activated(client):
    _, _, decision = client.post("plain/decide", {"key": "ahead", "deferred": True})
    id = {"decision_id": decision["decision_id"]}
    assert client.post("plain/feedback", {**id, "reward": 1})[2]["outcome"] == "inactive"
    assert client.post("plain/activate", id)[2]["outcome"] == "noted"
    assert client.post("plain/activate", id)[2]["outcome"] == "repeated"
    assert client.post("plain/examined", id)[2]["outcome"] == "noted"
    assert client.post("plain/feedback", {**id, "reward": 1})[2]["outcome"] in ("learned", "pending")


def test_the_mode_is_switched_while_running(client):
    assert client.post("plain/mode", {"mode": "frozen"})[::2] == (200, {"mode": "frozen"})
    _, _, decision = client.post("plain/decide", {"key": "frozen", "arms": [2, 0]})
    told = {"decision_id": decision["decision_id"], "reward": 1}
    assert client.post("plain/feedback", told)[2]["outcome"] == "frozen"
    assert client.post("plain/mode", {"mode": "shadow"})[0] == 422
    assert client.post("plain/mode", {"mode": "idle"})[0] == 422
    assert client.post("plain/mode", {"mode": "online"})[0] == 200
    assert "would" not in client.post("plain/decide", {"key": "frozen"})[2]


def test_the_decision_of_another_placement_is_unknown(client):
    _, _, decision = client.post("default/decide", {"key": "a"})
    assert client.post("plain/feedback", {"decision_id": decision["decision_id"], "reward": 0})[0] == 404


@pytest.mark.parametrize("path", ["/", "/live"])
def test_a_wrong_method_of_a_page_is_refused(client, path):
    status, headers, problem = client.ask("POST", path)
    assert (status, problem["field"]) == (405, "method")
    assert "GET" in headers["allow"]


@pytest.mark.parametrize("path", ["/nowhere", "/static/nothing.js", "/static/../page.py"])
def test_an_unknown_path_is_refused(client, path):
    status, _, problem = client.ask("GET", path)
    assert (status, problem["field"]) == (404, "path")


def send_chunks(address, count):
    """Send a body in chunks of 1 kB without saying its length; return all of the answer."""
    with socket.create_connection(("127.0.0.1", Client(address).port), timeout=PATIENCE) as raw:
        raw.sendall(
            b"POST /v1/placements/default/decide HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(count):
            raw.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        raw.sendall(b"0\r\n\r\n")
        return b"".join(iter(lambda: raw.recv(65536), b""))


@pytest.mark.parametrize("count", [2, 20])
def test_a_body_over_the_limit_is_refused_whatever_length_it_claims(address, count):
    answer = send_chunks(address, count)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer


def test_an_endless_body_is_not_read_to_its_end(address):
    with pytest.raises(OSError):
        send_chunks(address, 100_000)


def test_the_list_of_placements_counts(client):
    def listed():
        return {each["name"]: each for each in client.ask("GET", "/v1/placements")[2]["placements"]}

    before = listed()
    client.post("plain/decide", {"key": "counted"})
    after = listed()
    assert set(after) == {"default", "untaught", "who", "plain"}
    assert after["default"]["policy"]["name"] == "DriftMixture"
    assert (after["default"]["arms"], after["plain"]["arms"]) == (ARMS, [0, 1, 2])
    assert after["plain"]["decisions"] == before["plain"]["decisions"] + 1
    assert after["plain"]["keys"] == before["plain"]["keys"] + 1


def test_security_headers(client):
    for path in ("/", "/placements/plain", "/static/page.js", "/static/page.css"):
        status, headers, _ = client.ask("GET", path)
        policy = headers["content-security-policy"]
        assert status == 200
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    _, headers, _ = client.post("default/decide", {"key": "a"})
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def references(node):
    """Give every $ref within a document."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "$ref")
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_openapi_document_describes_what_is_served(client):
    status, _, document = client.ask("GET", "/openapi.json")
    assert status == 200
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    assert set(references(document)) == {f"#/components/schemas/{name}" for name in schemas}
    for path, item in document["paths"].items():
        parameters = {p["name"] for p in item.get("parameters", []) if p["in"] == "path"}
        assert parameters == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for method in item.keys() - {"parameters"}:
            assert all(r["description"] for r in item[method]["responses"].values())
            concrete = path.replace("{name}", "default")
            status, *_ = client.ask(method.upper(), concrete, {"key": "described"})
            assert str(status) in item[method]["responses"]
    _, _, decision = client.post("default/decide", {"key": "a"})
    answer = schemas["Decided"]
    assert [*answer["required"], "would", "signals", "warning"] == list(answer["properties"])
    assert answer["required"] == list(decision)
    assert schemas["Feedback"]["properties"]["reward"]["anyOf"][0]["maximum"] == 1


def test_many_clients_at_once_get_decisions_of_their_own(address):
    seen, lock = [], threading.Lock()

    def work(name):
        client = Client(address)
        for i in range(25):
            _, _, decision = client.post("default/decide", {"key": f"{name} {i % 3}"})
            told = {"decision_id": decision["decision_id"], "reward": i % 2}
            status, _, answer = client.post("default/feedback", told)
            # Those of the others may still wait for theirs.
            assert (status, answer["learned"]) == (200, answer["outcome"] == "learned")
            assert answer["outcome"] in {"learned", "pending"}
            with lock:
                seen.append(decision["decision_id"])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen) == 8 * 25


# Starting and stopping -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_nothing_is_lost(tmp_path, number):
    path = tmp_path / "s.db"
    process = Forked(["-c", SERVE, path], stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("tacit serves at http://127.0.0.1:")
    _, _, decision = Client(line.split()[3]).post("default/decide", {"key": "a"})
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE) == 0
    assert process.stdout.read() == "stopped cleanly\n"
    process.stdout.close()
    assert not os.path.exists(f"{path}-wal")
    with run_in_thread(configured(path)) as address:
        told = {"decision_id": decision["decision_id"], "reward": 1}
        assert Client(address).post("default/feedback", told)[2]["learned"] is True


def test_a_taken_port_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = configured(tmp_path / "s.db")
        with pytest.raises(ConfigError, match=f"server.port: cannot listen on 127.0.0.1 port {port}"):
            serve(config, port=port)
        (check,) = (c for c in doctor.checks(port) if c.name == f"port {port}")
        assert check.ok is False
    assert not (tmp_path / "s.db").exists()


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    config = configured(tmp_path / "s.db")
    for name in ("apsw", "tacit.service.log.sqlite"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"tacit-learn\[service\]"):
        serve(config)


def test_the_doctor_finds_this_installation_fit():
    found = {check.name: check for check in doctor.checks(0)}
    assert found["SQLite"].ok is True
    assert found["extra service"].ok is True
    assert found["compiled cache"].ok is True
    assert all(check.remedy for check in found.values() if check.ok is False)


def test_the_doctor_warns_of_an_old_sqlite(monkeypatch):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: "3.51.2")
    found = {check.name: check for check in doctor.checks(0)}
    assert found["SQLite"].ok is False
    assert "corrupt" in found["SQLite"].detail


def test_the_doctor_looks_at_a_configuration(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text("server.port = 0\n[placements.home]\narms = ['only']\n")
    found = [check for check in doctor.checks(config=path) if check.name in ("configuration", "port 0")]
    assert [check.ok for check in found] == [True, None, True]
    assert found[0].detail == f"{path}: home"
    assert "placements.home.arms: of one there is nothing to choose" in found[1].detail
    path.write_text("[placements.home]\narm = 3\n")
    typed = CliRunner().invoke(cli, ["doctor", "--config", str(path)])
    assert (typed.exit_code, "WRONG  configuration: " in typed.output) == (1, True)
    assert "did you mean arms?" in typed.output


def test_readiness_follows_the_store(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db")) as address:
        client = Client(address)
        client.post("default/decide", {"key": "a"})
        # A second writer that holds the file makes commits fail, as a full disk would.
        import apsw

        other = apsw.Connection(str(tmp_path / "s.db"))
        other.set_busy_timeout(int(1000 * PATIENCE))
        other.execute("BEGIN IMMEDIATE")
        status, _, problem = client.post("default/decide", {"key": "b"})
        assert (status, problem["field"]) == (503, "store")
        assert client.ask("GET", "/readyz")[0] == 503
        assert client.ask("GET", "/healthz")[::2] == (200, {"status": "ok"})
        assert b"commits fail" in client.ask("GET", "/")[2]
        other.execute("ROLLBACK")
        other.close()
        eventually(lambda: client.ask("GET", "/readyz")[::2] == (200, {"status": "ok"}))
        assert client.post("default/decide", {"key": "b"})[0] == 200
        (placement,) = client.ask("GET", "/v1/placements")[2]["placements"]
        assert (placement["decisions"], placement["keys"]) == (2, 2)


def test_the_stream_tells_what_is_new_and_ends_with_the_service(tmp_path, monkeypatch):
    # Whoever watches does not keep the service from stopping, which would else wait for so long.
    monkeypatch.setattr("tacit.service.app.server.DRAIN_SECONDS", round(2 * PATIENCE))
    config = configured(tmp_path / "s.db")
    with contextlib.ExitStack() as service:
        client = Client(service.enter_context(run_in_thread(config)))
        with client.opened("GET", "/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert told(stream) == 0
            client.post("default/decide", {"key": "a"})
            assert told(stream) == 1
            began = time.monotonic()
            service.close()
            assert time.monotonic() - began < PATIENCE
            assert stream.read() == b""


def told(stream):
    """Return the next count of rows in a stream of events."""
    event, data, end = (stream.readline().decode() for _ in range(3))
    assert (event, end) == ("event: changed\n", "\n")
    return int(data.removeprefix("data: "))
