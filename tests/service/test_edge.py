"""What strangers may send: every route, with bytes, headers and pages that mean no good."""

import contextlib
import http.client
import http.server
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from forked import Forked
from fuzz import of_all_kinds
from harness import PATIENCE, eventually

from tacit.service.app import routes as openapi
from tacit.service.app.logging_setup import JsonLines, TextLines
from tacit.service.app.routes import APIS
from tacit.service.app.server import run_in_thread
from tests.service.test_guard import metrics
from tests.service.test_http import Client

HOW = {"decide": "default", "duel": "duels", "slate": "slates", "clicks": "slates"}
WRITES = [
    (route.method, path.template.format(name=HOW.get(name.partition("/")[0], "default"), id="e"))
    for api in APIS
    for name, path in api.paths.items()
    for route in path.routes.values()
    if route.request is not None
]
DEEP = 20_000
NOT_UTF8 = (b"\xff\xfe", b'"\xc3', b'{"\xff": 1}', b'{"key": "\xff"}')
TOO_DEEP = [
    start + b"[" * DEEP + b"]" * DEEP + end
    for start, end in (
        (b"", b""), (b'{"unknown": ', b"}"), (b'{"policy": {"a": ', b"}}"),
    )
] + [b'{"a":' * (DEEP // 2)]  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with run_in_thread(of_all_kinds(tmp_path_factory.mktemp("edge"))) as address:
        yield address


def detail(content):
    """Return what a problem says, of any API."""
    return content.get("detail") or content["errorDetails"]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_bytes_that_are_no_text_and_json_that_is_a_well_are_refused(client, method, path):
    for body in (*NOT_UTF8, *TOO_DEEP):
        status, headers, content = client.ask(method, path, body)
        assert status in (400, 422), (body[:40], content)
        assert "json" in headers["content-type"]
        assert ":" in detail(content)


def test_what_is_wrong_with_the_bytes_is_named(client):
    _, _, problem = client.ask("POST", "/v1/placements/default/decide", b'{"key": "\xff"}')
    assert (problem["status"], problem["field"]) == (400, "body")
    assert "UTF-8" in problem["detail"]
    _, _, problem = client.ask("POST", "/v1/placements/default/rebuild", TOO_DEEP[2])
    assert (problem["status"], problem["field"]) == (400, "body")
    assert "nested" in problem["detail"]


@pytest.mark.parametrize("text", ["this:Zen", 'exploration-floor("this\\x3aZen", epsilon=0.1)'])
def test_no_policy_that_a_request_names_is_imported(client, text):
    """A module that is imported runs."""
    status, _, answer = client.ask("POST", "/v1/placements/default/rebuild", {"policy": text})
    assert (status, answer["field"]) == (422, "policy")
    assert "this" not in sys.modules


# Pages of elsewhere --------------------------------------------------------------------------

FREEZE = {"mode": "frozen"}
MODE = ("POST", "/v1/placements/default/mode", FREEZE)
FLAG = ("POST", "/ofrep/v1/evaluate/flags/default", {"context": {}})
FRIEND = "https://shop.example"


def sent_without_media(address, method, path, body):
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_body_without_a_content_type_is_refused(address, method, path):
    for body in (b'{"mode": "frozen"}', iter([b"{}"])):
        status, content = sent_without_media(address, method, path, body)
        assert status == 415
        assert "content-type: '' is not allowed; send application/json" in detail(json.loads(content))


def test_where_there_is_no_body_no_content_type_is_asked_for(address):
    status, content = sent_without_media(address, "DELETE", "/v1/placements/default/pin", None)
    assert status == 200, content


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        # Another port of this machine is another origin of the same site.
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
    ],
)
def test_what_comes_from_a_page_of_elsewhere_is_refused(client, headers):
    for request in (MODE, FLAG):
        status, answered, content = client.ask(*request, headers)
        assert status == 403
        assert "server.allow_origins" in detail(content)
        assert "access-control-allow-origin" not in answered
    assert client.ask("DELETE", "/v1/placements/default/pin", None, headers)[0] == 403
    assert client.ask("GET", "/v1/placements")[2]["placements"][0]["mode"] == "online"
    for path in ("/v1/placements", "/metrics", "/live", "/v1/placements/default/learner"):
        if "Sec-Fetch-Mode" not in headers:
            assert client.ask("GET", path, None, headers)[0] == 403, path
        elif path != "/live":
            # Whoever follows a link may see where it leads.
            assert client.ask("GET", path, None, headers)[0] == 200, path


def test_the_page_itself_and_clients_that_are_no_browsers_are_answered(client):
    host = f"127.0.0.1:{client.port}"
    for headers in (
        {},
        {"Origin": f"http://{host}"},
        {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"},
        # A proxy may know the service under another name than browsers do.
        {"Origin": "https://tacit.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert client.ask(*FLAG, headers)[0] == 200, headers
        assert client.ask("GET", "/v1/placements", None, headers)[0] == 200, headers


def test_pages_of_origins_that_are_allowed_may_ask_and_read(tmp_path):
    with run_in_thread(of_all_kinds(tmp_path, **{"server.allow_origins": [FRIEND]})) as address:
        client = Client(address)
        there = {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"}
        asked = {"Access-Control-Request-Method": "POST"}
        status, headers, _ = client.ask("OPTIONS", FLAG[1], None, there | asked)
        assert status == 204
        assert headers["access-control-allow-origin"] == FRIEND
        assert "POST" in headers["access-control-allow-methods"]
        for name in ("content-type", "authorization"):
            assert name in headers["access-control-allow-headers"].lower()
        for request, expected in ((FLAG, 200), (("POST", FLAG[1], []), 400)):
            status, headers, _ = client.ask(*request, there)
            assert status == expected
            assert headers["access-control-allow-origin"] == FRIEND
            assert headers["vary"].lower() == "origin"
        other = {"Origin": FRIEND + ".evil.example", "Sec-Fetch-Site": "cross-site"}
        status, headers, _ = client.ask("OPTIONS", FLAG[1], None, other | asked)
        assert (status, headers["access-control-allow-origin"]) == (403, None)
        assert client.ask(*FLAG, other)[0] == 403


ATTACKS = {
    "blob": "fetch(url, {method: 'POST', mode: 'no-cors', body: new Blob([text])})",
    "buffer": "fetch(url, {method: 'POST', mode: 'no-cors', body: bytes.buffer})",
    "text": "fetch(url, {method: 'POST', mode: 'no-cors', body: text})",
    "beacon of a blob": "navigator.sendBeacon(url, new Blob([text]))",
    "beacon of bytes": "navigator.sendBeacon(url, bytes.buffer)",
    "json": "fetch(url, {method: 'POST', body: text, headers: {'content-type': "
    "'application/json'}}).catch(() => null)",
}


@contextlib.contextmanager
def listening(method, answer):
    """Answer requests of one method on a port of its own by a function of their handler; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    setattr(Handler, f"do_{method}", answer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def elsewhere():
    """Serve an empty page on a port of its own."""

    def send_nothing(handler):
        handler.send_response(200)
        handler.send_header("content-length", "0")
        handler.send_header("content-type", "text/html")
        handler.end_headers()

    with listening("GET", send_nothing) as port:
        yield port


def answered(client):
    """Return how many requests were answered, all but those for metrics."""
    found = metrics(client)
    return sum(
        count for name, count in found.items()
        if name.startswith("tacit_request_seconds_count") and 'path="/' not in name
    )  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_page_of_elsewhere_freezes_a_placement(client, address, browser, elsewhere, host, attack):
    before = answered(client)
    page = browser.new_page()
    page.goto(f"http://{host}:{elsewhere}")
    page.evaluate(
        f"""async ([url, text]) => {{
            const bytes = new TextEncoder().encode(text);
            await {ATTACKS[attack]};
        }}""",
        [address + MODE[1], json.dumps(FREEZE)],
    )
    eventually(lambda: answered(client) != before)
    page.close()
    assert client.ask("GET", "/v1/placements")[2]["placements"][0]["mode"] == "online"


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_form_of_elsewhere_changes_nothing(client, address, browser, elsewhere, method):
    page = browser.new_page()
    page.goto(f"http://localhost:{elsewhere}")
    page.set_content(
        f'<form method="{method}" enctype="text/plain" action="{address}{MODE[1]}">'
        """<input name='{"mode": "frozen", "x": "' value='"}'></form>"""
    )
    with page.expect_navigation() as navigation:
        page.evaluate("document.forms[0].submit()")
    assert navigation.value.status == (403 if method == "POST" else 405)
    page.close()
    assert client.ask("GET", "/v1/placements")[2]["placements"][0]["mode"] == "online"


def test_in_a_browser_a_page_that_is_allowed_asks_and_reads(tmp_path, browser, elsewhere):
    origin = f"http://localhost:{elsewhere}"
    with run_in_thread(of_all_kinds(tmp_path, **{"server.allow_origins": [origin]})) as address:
        page = browser.new_page()
        page.goto(origin)
        told = page.evaluate(
            """async (url) => {
                const headers = {"content-type": "application/json"};
                const body = JSON.stringify({key: "a"});
                return await (await fetch(url, {method: "POST", headers, body})).json();
            }""",
            f"{address}/v1/placements/default/decide",
        )
        page.close()
    assert told["durability"] == "committed"


# Lines of the log ----------------------------------------------------------------------------

TROUBLE = """
import logging, signal, sys, threading, warnings
from tacit.cli import main

class Odd:
    def __del__(self):
        raise ValueError("one object\\nforged")

def fail():
    raise ValueError("one thread\\nforged")

other = logging.getLogger("other")
other.addHandler(logging.StreamHandler())
other.propagate = False

def trouble(*_):
    other.error("one other\\nforged")
    warnings.warn("one warning\\nforged\\x1b[31m")
    threading.Thread(target=fail).start()
    Odd()

signal.signal(signal.SIGUSR1, trouble)
main(["serve", "--config", sys.argv[1]])
"""
FORGED = "/x%0aINFO tacit: forged%1b[31m%c2%85%e2%80%a8%7f".replace(" ", "%20")
SAID = ("GET /x", "one warning\\n", "one thread\\n", "one object\\n", "one other\\n")


@contextlib.contextmanager
def troubled(tmp_path, form, source=TROUBLE, store="s.db"):
    path = tmp_path / "tacit.toml"
    path.write_text(f'[server]\nport = 0\nlog = "{form}"\naccess_log = true\n[store]\npath = "{store}"\n')
    with (tmp_path / "log").open("w") as log:
        process = Forked(["-c", source, path], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield process, tmp_path / "log"
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_line_of_the_log_is_one_event_that_nobody_forged(tmp_path, form):
    with troubled(tmp_path, form) as (process, log):
        client = Client(process.stdout.readline().split()[3])
        with socket.create_connection(("127.0.0.1", client.port)) as raw:
            raw.sendall(b"forged\r\n\x1b[31m\r\n\r\n")
            assert b" 400 " in raw.recv(1000)
        process.send_signal(signal.SIGUSR1)

        def said_all():
            assert client.ask("GET", FORGED)[0] == 404
            return all(said in log.read_text() for said in SAID)

        eventually(said_all)
    lines = log.read_text().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    for line in lines:
        if form == "json":
            assert json.loads(line).keys() >= {"time", "level", "logger", "message"}
        else:
            assert re.match(r"(INFO|WARNING|ERROR) [\w.]+: ", line), line
    for said in SAID[1:]:
        assert sum(said in line for line in lines) == 1, said


def test_a_log_that_is_json_ends_in_json(tmp_path):
    (tmp_path / "file").touch()
    with troubled(tmp_path, "json", store="file/s.db") as (process, log):
        assert process.wait(PATIENCE) == 1
    (line,) = log.read_text().splitlines()
    told = json.loads(line)
    assert told["level"] == "critical"
    assert str(tmp_path) in told["message"]


def test_what_no_stream_can_take_is_escaped():
    for form in (JsonLines(), TextLines("%(message)s")):
        line = form.format(logging.makeLogRecord({"msg": "a\ud800\x7f\x9b\u2028\U000e0001é"}))
        assert line.isprintable()
        line.encode()


# The document --------------------------------------------------------------------------------

METHODS = {"get", "post", "put", "delete", "patch", "options", "trace"}


@pytest.mark.parametrize("path", openapi.document()["paths"])
def test_methods_that_the_document_does_not_name_are_refused_by_those_it_does(client, path):
    declared = METHODS & openapi.document()["paths"][path].keys()
    for method in METHODS - declared:
        asked = path.format(name="default", id="e")
        status, headers, content = client.ask(method.upper(), asked)
        assert (status, detail(content).partition(":")[0]) == (405, "method")
        assert {one.strip().lower() for one in headers["allow"].split(",")} - {"head"} == declared


def test_every_refusal_of_the_edge_is_in_the_document():
    for path, item in openapi.document()["paths"].items():
        for method in METHODS & item.keys():
            responses = item[method]["responses"]
            if path not in ("/healthz", "/readyz"):
                assert responses.keys() >= {"401", "403", "405", "421", "429", "503"}
            if "requestBody" in item[method]:
                assert responses.keys() >= {"400", "404", "413", "415"}
            assert "Allow" in responses["405"]["headers"]


def test_a_body_of_the_other_api_that_is_too_large_is_refused_and_ends_the_connection(tmp_path):
    with run_in_thread(of_all_kinds(tmp_path, **{"server.body_limit": 1000})) as address:
        status, headers, _ = Client(address).ask("POST", FLAG[1], b"x" * 1001)
    assert (status, headers["connection"]) == (413, "close")
