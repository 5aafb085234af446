"""What strangers send to a connection, how much of it, and how slowly."""

import contextlib
import json
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest
from forked import Forked
from harness import PATIENCE, configured, eventually

from tacit.service.app.server import DRAIN_SECONDS, run_in_thread
from tacit.service.http import protocol
from tacit.service.http.protocol import MOST_QUEUED, MOST_QUEUED_BYTES, SLICE, Protocol
from tests.service.test_guard import KEY, MADE, metrics, process
from tests.service.test_http import Client

HELLO = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
DECIDE = (
    b"POST /v1/placements/default/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
SMALL = {"server.url_limit": 200, "server.header_limit": 400, "server.header_count": 10}
SHORT = {f"server.{name}_timeout": 1.0 for name in ("first_byte", "header", "body", "idle", "send")}
SERVE = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(overrides={"store.path": sys.argv[1], "server.port": 0}))
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A service with small limits of size."""
    with run_in_thread(configured(tmp_path_factory.mktemp("small") / "s.db", **SMALL)) as address:
        yield address


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A service that waits for nobody."""
    with run_in_thread(configured(tmp_path_factory.mktemp("hasty") / "s.db", **SHORT)) as address:
        yield address


class Kept(Client):
    """Requests on one connection, which is kept."""

    connection = None

    def connected(self):
        self.connection = self.connection or super().connected()
        return self.connection

    def released(self, connection):
        """Keep it for the next request."""


def connected(address, **options):
    port = int(address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, **options)


def all_of(connection):
    """Return everything that comes until the connection is closed."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def answers(raw):
    """Return status, headers and body of each answer."""
    found = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        size = int(headers["content-length"])
        found.append((int(lines[0].split()[1]), headers, json.loads(raw[:size])))
        raw = raw[size:]
    return found


def asked(address, raw):
    """Send something, and return the answers that came until the service closed."""
    with connected(address) as connection:
        connection.sendall(raw)
        return answers(all_of(connection))


def ended_by(client, reason):
    """Return how many connections a limit has ended."""
    return metrics(client)[f'tacit_connections_ended_total{{reason="{reason}"}}']


def ended(address, reason):
    return ended_by(Client(address), reason)


def sent_ahead(address, raw):
    """Send something, as far as it is taken, while answers are read; return all that come."""
    with connected(address) as connection:
        sender = threading.Thread(target=send_all, args=(connection, raw))
        sender.start()
        content = all_of(connection)
        sender.join()
    return content


def send_all(connection, raw):
    with contextlib.suppress(ConnectionError):
        connection.sendall(raw)


def header(size):
    """Return a header that counts for so many bytes."""
    return b"A: " + b"x" * (size - 5) + b"\r\n"


HOST = len(b"Host: localhost\r\n")
UPGRADE = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
)

REFUSED = {
    "url": (b"GET /healthz?" + b"x" * 192, 414, "url_limit", "url-too-long"),
    "header": (HELLO + header(401 - HOST), 431, "header_limit", "headers-too-large"),
    "count": (HELLO + b"A:b\r\n" * 10, 431, "header_count", "headers-too-large"),
    "long url": (b"GET /healthz?" + b"x" * 100_000, 414, "url_limit", "url-too-long"),
    "long header": (HELLO + header(100_000), 431, "header_limit", "headers-too-large"),
    "many headers": (HELLO + b"A:b\r\n" * 30_000, 431, "header_count", "headers-too-large"),
    "upgrade": (DECIDE + UPGRADE + header(401), 431, "header_limit", "headers-too-large"),
    "not HTTP": (b"hello\r\n", 400, "malformed", "malformed-request"),
}
# Byte by byte what is long is the same as in steps of 1000, for longer.
STEPS = [
    (step, name) for step in (None, 1000, 1) for name in REFUSED if step != 1 or len(REFUSED[name][0]) <= 1000
]


@pytest.mark.parametrize(("step", "name"), STEPS)
def test_a_head_over_a_limit_is_refused(small, step, name):
    """However it is cut into pieces, and before its end where that does not come."""
    request_, status, reason, problem = REFUSED[name]
    before = ended(small, reason)
    end = b" HTTP/1.1\r\nHost: localhost\r\n\r\n" if b"\r\n" not in request_ else b"\r\n"
    raw = request_ + (b"" if len(request_) > 10_000 else end)
    step = step or len(raw)
    with connected(small) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(raw), step):
                connection.sendall(raw[start : start + step])
        (answer,) = answers(all_of(connection))
    assert answer[0] == status
    assert answer[1]["connection"] == "close"
    assert answer[1]["content-type"] == "application/problem+json"
    assert answer[2]["type"] == f"urn:tacit:problem:{problem}"
    assert ended(small, reason) == before + 1


@pytest.mark.parametrize(
    "request_",
    [b"GET /healthz?" + b"x" * 191 + b" HTTP/1.1\r\nHost: localhost\r\n",
     HELLO + header(400 - HOST), HELLO + b"A:b\r\n" * 9],
    ids=["url", "header", "count"],
)  # fmt: skip
def test_a_head_at_a_limit_is_answered(small, request_):
    with connected(small) as connection:
        connection.sendall(request_ + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "part",
    [b"x" * 100_000, b"1;" + b"x" * 100_000 + b"\r\n", b"0\r\nA: " + b"x" * 100_000,
     b"0\r\n" + b"A: b\r\n" * 20_000],
    ids=["no size", "extension", "trailer", "trailers"],
)  # fmt: skip
def test_what_frames_a_body_is_limited_too(small, part):
    """It counts for no body, and would be kept for as long as it goes on."""
    raw = DECIDE + b"Transfer-Encoding: chunked\r\n\r\n" + part
    assert [status for status, _, _ in asked(small, raw)] in ([431], [400])


def test_one_huge_header_stops_nobody(tmp_path):
    """It is not read to its end, whatever the limits are by default."""
    with run_in_thread(configured(tmp_path / "s.db")) as address, connected(address) as connection:
        sent = 0
        with contextlib.suppress(ConnectionError):
            connection.sendall(HELLO + b"A: ")
            for _ in range(1000):
                connection.sendall(b"x" * 65_536)
                sent += 65_536
        assert sent < 60_000_000
        assert Client(address).ask("GET", "/healthz")[0] == 200


def test_a_body_that_nobody_reads_is_limited(tmp_path):
    values = {"server.body_limit": 1000, "server.batch_limit": 1000}
    with run_in_thread(configured(tmp_path / "s.db", **values)) as address, connected(address) as connection:
        connection.sendall(HELLO + b"Content-Length: 1000000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * 64_000_000)
        assert ended(address, "body_limit") == 1


def test_what_comes_after_a_body_is_no_header(tmp_path):
    """A proxy that has looked at the headers has not looked at these."""
    keys = {"operator": {"sha256": MADE["admin"][1], "scopes": ["admin"]}}
    body = b'{"key": "a"}'
    chunks = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    secret = b"Authorization: Bearer " + KEY["admin"].encode() + b"\r\n"
    head = DECIDE + b"Connection: close\r\nTransfer-Encoding: chunked\r\n"
    with run_in_thread(configured(tmp_path / "s.db", keys=keys)) as address:
        assert asked(address, head + secret + b"\r\n" + chunks + b"\r\n")[0][0] == 200
        assert asked(address, head + b"\r\n" + chunks + secret + b"\r\n")[0][0] == 401


def decisions(address):
    return Client(address).ask("GET", "/v1/placements")[2]["placements"][0]["decisions"]


def test_a_body_whose_end_never_came_asks_for_nothing(small):
    before = decisions(small)
    with connected(small) as connection:
        connection.sendall(DECIDE + b'Content-Length: 100\r\n\r\n{"key": "a"}')
    # Only the connection that asks is left.
    eventually(lambda: metrics(Client(small))["tacit_connections"] == 1)
    assert decisions(small) == before


@pytest.mark.parametrize(
    ("raw", "reason", "statuses"),
    [(b"", "first_byte_timeout", []), (b"\r\n", "first_byte_timeout", []),
     (b"P", "header_timeout", [408]), (HELLO, "header_timeout", [408]),
     (HELLO + b"\r\n", "idle_timeout", [200]), (HELLO + b"\r\n\r\n", "idle_timeout", [200]),
     (HELLO + b"\r\n" + HELLO, "header_timeout", [200, 408]),
     (DECIDE + b'Content-Length: 100\r\n\r\n{"key": "a"}', "body_timeout", [408]),
     (DECIDE + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "body_timeout", [408]),
     (HELLO + b"Content-Length: 100\r\n\r\n", "body_timeout", [200])],
)  # fmt: skip
def test_nobody_keeps_a_connection_by_waiting(hasty, raw, reason, statuses):
    before, known = ended(hasty, reason), decisions(hasty)
    assert [status for status, _, _ in asked(hasty, raw)] == statuses
    assert ended(hasty, reason) == before + 1
    assert decisions(hasty) == known


@pytest.mark.parametrize(
    ("start", "drop", "status"),
    [(b"", b"\r\n", None), (HELLO, b"A:b\r\n", 408),
     (DECIDE + b"Content-Length: 1000\r\n\r\n", b" ", 408)],
    ids=["nothing", "headers", "body"],
)  # fmt: skip
def test_nobody_keeps_a_connection_by_sending_slowly(hasty, start, drop, status):
    with connected(hasty) as connection:
        connection.settimeout(0.05)
        connection.sendall(start)
        end, came = time.monotonic() + PATIENCE, None
        while came is None:
            assert time.monotonic() < end
            with contextlib.suppress(ConnectionError):
                connection.sendall(drop)
            try:
                came = connection.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                came = b""
    assert [each[0] for each in answers(came)] == ([] if status is None else [status])


def test_nobody_keeps_a_connection_by_not_reading(hasty):
    with connected(hasty) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        before = ended(hasty, "send_timeout")
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.settimeout(1)
            connection.sendall(request * 2000)
        eventually(lambda: ended(hasty, "send_timeout") == before + 1)


def test_who_listens_is_not_sent_away(hasty):
    """A stream is an answer that goes on, and no waiting for the client."""
    with connected(hasty) as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client, told = Client(hasty), b""
        end = time.monotonic() + PATIENCE
        while told.count(b"changed") < 4:
            assert time.monotonic() < end
            assert client.post("default/decide", {"key": "a"})[0] == 200
            part = connection.recv(65536)
            assert part
            told += part


def test_requests_sent_ahead_are_answered_in_their_order(small):
    """One that is refused among them ends nothing."""
    bodies = [b'{"key": "a", "decision_id": "ahead-%d"}' % n for n in range(100)]
    bodies.insert(50, b'{"key": 7}')
    raw = b"".join(DECIDE + b"Content-Length: %d\r\n\r\n%s" % (len(b), b) for b in bodies)
    found = answers(sent_ahead(small, raw + HELLO + b"Connection: close\r\n\r\n"))
    assert [status for status, _, _ in found] == [*[200] * 50, 422, *[200] * 51]
    names = [body.get("decision_id") for status, _, body in found if status == 200]
    assert names == [*(f"ahead-{n}" for n in range(100)), None]


@pytest.fixture
def queued(monkeypatch):
    """Requests that wait in a queue as each is parsed, and the bytes of their bodies."""
    lengths, sizes = [0], [0]
    on_message_complete = Protocol.on_message_complete

    def observed(connection):
        on_message_complete(connection)
        lengths.append(len(connection.pipeline))
        sizes.append(sum(len(cycle.body) for cycle, _ in connection.pipeline))

    monkeypatch.setattr(Protocol, "on_message_complete", observed)
    return lengths, sizes


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\n\r\n", HELLO + b"\r\n"], ids=["bare", "usual"])
def test_few_requests_are_parsed_ahead(small, queued, head):
    """However many are sent at once, before anybody has shown a key."""
    count = 4000
    found = sent_ahead(small, head * count + HELLO + b"Connection: close\r\n\r\n")
    assert found.count(b"HTTP/1.1 ") == count + 1
    # A head that began in the piece before may come on top.
    assert 1 < max(queued[0]) <= MOST_QUEUED + 1


def test_bodies_sent_ahead_are_not_piled_up(tmp_path, queued):
    body = b'{"key": "a"%s}' % (b" " * 60_000)
    raw = DECIDE + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with run_in_thread(configured(tmp_path / "s.db")) as address:
        found = answers(sent_ahead(address, raw * 40 + HELLO + b"Connection: close\r\n\r\n"))
    assert [status for status, _, _ in found] == [200] * 41
    # What is looked at between two slices: one more body may have begun.
    assert max(queued[1]) <= MOST_QUEUED_BYTES + len(body) + SLICE


def test_what_all_connections_send_ahead_is_bounded(tmp_path, monkeypatch):
    """Who sends too much ahead is answered what was parsed, and sent away; others go on."""
    monkeypatch.setattr(protocol, "MOST_UNPARSED", 10_000)
    with run_in_thread(configured(tmp_path / "s.db")) as address:
        assert 1 <= sent_ahead(address, (HELLO + b"\r\n") * 4000).count(b"HTTP/1.1 200") < 4000
        assert ended(address, "connections") == 1
        client = Client(address)
        for _ in range(3):
            assert client.post("default/decide", {"key": "a"})[0] == 200


def test_a_bad_request_does_not_overtake_good_ones(small):
    body = b'{"key": "a"}'
    good = DECIDE + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    statuses = [status for status, _, _ in asked(small, good * 3 + HELLO + header(1000) + b"\r\n")]
    assert statuses in ([200] * 3, [200] * 3 + [431])


BODY = b'{"key": "a", "decision_id": "%s"}'


@pytest.mark.parametrize("step", [None, 1000, 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_who_offers_an_upgrade_is_answered_as_others(small, step, chunked):
    """Java's client offers HTTP/2 with its first request."""
    raw, ids = b"", [f"{step}-{chunked}-{n}" for n in range(3)]
    for id in ids:
        body = BODY % id.encode()
        if chunked:
            frame, body = b"Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            frame = b"Content-Length: %d\r\n" % len(body)
        raw += DECIDE + UPGRADE + frame + b"\r\n" + body
        raw += HELLO + UPGRADE + b"\r\n"
    raw += HELLO + b"Connection: close\r\n\r\n"
    with connected(small) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(raw), step or len(raw)):
            connection.sendall(raw[start : start + (step or len(raw))])
        found = answers(all_of(connection))
    assert [status for status, _, _ in found] == [200] * 7
    assert [body["decision_id"] for _, _, body in found[:-1:2]] == ids


def test_connections_beyond_the_limit_are_refused(tmp_path):
    values = {"server.connections": 3}
    with run_in_thread(configured(tmp_path / "s.db", **values)) as address, contextlib.ExitStack() as stack:
        client = Kept(address)
        assert client.ask("GET", "/healthz")[0] == 200
        held = [stack.enter_context(connected(address)) for _ in range(2)]
        for connection in held:
            connection.sendall(HELLO + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            ((status, headers, problem),) = asked(address, b"")
            assert (status, problem["type"]) == (503, "urn:tacit:problem:overloaded")
            assert headers["connection"] == "close"
        # Who has a connection may go on, and who leaves makes room.
        assert ended_by(client, "connections") == 3
        held[0].close()
        eventually(lambda: asked(address, HELLO + b"Connection: close\r\n\r\n")[0][0] == 200)


def test_too_few_descriptors_lock_nobody_out(tmp_path):
    """Connections stop short of what the process may have."""
    most = 300
    command = "-c", SERVE, tmp_path / "s.db", most
    process = Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split()[3]
        client = Kept(address)
        assert client.ask("GET", "/healthz")[0] == 200
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(connected(address)) for _ in range(2 * most)]
            eventually(lambda: ended_by(client, "connections") > 0)
            # New files of the store can still be opened, and old connections are answered.
            for n in range(20):
                assert client.post("default/decide", {"key": f"k{n}"})[0] == 200
            assert any(one.recv(12) == b"HTTP/1.1 503" for one in crowd[-1:])
        eventually(lambda: answered(address))
    finally:
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=PATIENCE)
    assert "server.connections" in told
    assert "LimitNOFILE" in told
    assert "Too many open files" not in told


def answered(address):
    try:
        return Client(address).ask("GET", "/healthz")[0] == 200
    except OSError:
        return False


def test_descriptors_are_asked_for(tmp_path):
    """Up to what the process may raise its own limit to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(2048, hard) if hard != resource.RLIM_INFINITY else 2048
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    try:
        with run_in_thread(configured(tmp_path / "s.db", **{"server.connections": 2000})) as address:
            assert answered(address)
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= wanted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_limits_change_while_it_runs(tmp_path):
    path = tmp_path / "tacit.toml"
    text = '[server]\nport = 0\nurl_limit = {}\n[store]\npath = "s.db"\n[placements.a]\narms = 2\n'
    path.write_text(text.format(1000))
    asked = "/healthz?" + "x" * 500
    with process(path) as (_, client, reread):
        assert client.ask("GET", asked)[0] == 200
        reread(text.format(100))
        eventually(lambda: client.ask("GET", asked)[0] == 414)


def test_a_stop_waits_for_no_half_sent_request(tmp_path):
    values = {"server.body_timeout": 0.2, "server.send_timeout": 0.2}
    with contextlib.ExitStack() as stack:
        with run_in_thread(configured(tmp_path / "s.db", **values)) as address:
            for raw in (b"", b"P", HELLO, HELLO + b"\r\n", DECIDE + b"Content-Length: 9\r\n\r\n"):
                stack.enter_context(connected(address)).sendall(raw)
            assert answered(address)
            started = time.monotonic()
        assert time.monotonic() - started < DRAIN_SECONDS
