"""Usual requests take a shorter way: whatever is sent, the answers are those of the long one."""

import asyncio
import json
import re
from contextlib import closing

import pytest
import uvicorn
from drawn import examples
from harness import Clock, reached, with_home
from hypothesis import given
from hypothesis import strategies as st
from placement_access import Engine, count_decisions
from uvicorn.server import ServerState

from tacit.service.app import app as site
from tacit.service.app.app import UsualAnswers
from tacit.service.http.protocol import Connections, Protocol
from tacit.service.log.sqlite import SqliteStore
from tests.service.test_guard import KEY, MADE

KEYS = {scope: {"sha256": sha256, "scopes": [scope]} for scope, (_, sha256) in MADE.items()}
DATE = [(b"date", b"now")]
HOME = {"arms": ["a", "b", "c"], "policy": "ucb1", "seed": 3, "attribution_window": 1e6}
TURNS = 10
ANY = re.compile(
    rb"(?<=x-request-id: )[0-9a-f]{16}"
    rb'|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(","arm":"[abc]","propensity":[^,]+)?'
)
"""What differs between two answers to one request: names, and draws that follow names."""


class Transport(asyncio.Transport):
    """A connection whose other end is the test."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 5)})
        self.written, self.closed, self.lost = b"", False, False

    def write(self, data):
        if self.lost:
            raise RuntimeError("the handler is closed")
        if not self.closed:
            self.written += data

    def close(self):
        self.closed = True

    abort = close

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return 0

    def write_eof(self):
        pass

    pause_reading = resume_reading = write_eof


class Side:
    """A service, asked on connections without a network."""

    def __init__(self, path, short, **values):
        self.path, self.short = path, short
        self.config = self.configured({"server.body_limit": 500, **values})

    def configured(self, values):
        values = {"home": HOME} | values
        return with_home(self.path, **values.pop("home"), values=values)

    async def start(self):
        connections = Connections(self.config.server)
        self.engine = Engine(self.config, SqliteStore(self.config.store.path), Clock())
        app = site.create_application(self.engine, connections)
        assert isinstance(connections.usual, UsualAnswers)
        if not self.short:
            connections.usual = None
        self.state = ServerState()
        self.state.default_headers = DATE
        self.settings = uvicorn.Config(app, log_config=None, access_log=False, ws="none")
        self.connection = type("Connection", (Protocol,), {"shared": connections})
        self.metrics, self.app = app.metrics, app
        await self.engine.start()

    async def take_over(self, **values):
        """Go on with another configuration, as a server does."""
        config = self.configured(values)
        await self.engine.reload(config)
        self.app.configure(config)

    async def answered(self, pieces, ahead=False, leaves=False):
        """Return what is answered to pieces, and whether the connection was closed.

        Parameters
        ----------
        pieces : list of bytes
        ahead : bool
            Whether a piece is sent before what came before it is answered.
        leaves : bool
            Whether the client leaves when the last one is sent.
        """
        transport = Transport()
        connection = self.connection(self.settings, self.state, {})
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.closed:
                connection.data_received(piece)
                if not ahead:
                    await settled(connection)
        if not leaves:
            await settled(connection)
        closed, transport.lost = transport.closed, True
        connection.connection_lost(None)
        await reached(lambda: not self.state.tasks and not self.settings.app.running)
        return ANY.sub(b"*", transport.written), closed


async def settled(connection):
    """Wait until all is answered that was asked for and came whole."""
    for _ in range(TURNS):
        await asyncio.sleep(0)

    def done():
        waits = connection.answering and not getattr(connection.cycle, "more_body", False)
        return connection.transport.is_closing() or not (waits or connection.pipeline)

    await reached(done)


class Pair:
    """Two services of one configuration: one takes the shorter way, one never does."""

    def __init__(self, folder, **values):
        self.loop = asyncio.new_event_loop()
        self.sides = [Side(folder / f"{short}.db", short, **values) for short in (True, False)]
        for side in self.sides:
            self.loop.run_until_complete(side.start())

    def configure(self, **values):
        for side in self.sides:
            self.loop.run_until_complete(side.take_over(**values))

    def check(self, pieces, ahead=False):
        """Check that both answer the same."""
        short, long = (self.loop.run_until_complete(side.answered(pieces, ahead)) for side in self.sides)
        assert short == long
        return short

    def close(self):
        for side in self.sides:
            self.loop.run_until_complete(side.engine.stop())
        self.loop.close()


@pytest.fixture
def open_(tmp_path):
    with closing(Pair(tmp_path)) as pair:
        yield pair


@pytest.fixture
def locked(tmp_path):
    with closing(Pair(tmp_path, keys=KEYS, **{"server.allow_origins": ["https://shop.example"]})) as pair:
        yield pair


# Requests, most of them usual ----------------------------------------------------------------


def mostly(usual, *others):
    """Draw what is usual, or now and then something else."""
    return st.one_of(*[st.just(usual)] * 6, st.sampled_from(others))


IDS = st.sampled_from([f"d{i}" for i in range(6)])
BODIES = st.one_of(
    IDS.map(lambda id: json.dumps({"key": "film", "decision_id": id}).encode()),
    st.builds(
        lambda id, reward: json.dumps({"decision_id": id, "reward": reward}).encode(),
        IDS, st.sampled_from([0, 1, 0.5, 2]),
    ),
    st.sampled_from([
        b'{"key": "film"}', b'{"key": "film", "arms": ["a", "c"]}', b'{"key": "fi\xc3\xa9m"}',
        b'{"key": "\xff"}', b'{"key": 1}', b'{"key": ""}', b"{", b"", b"[" * 300, b"null",
        b'{"key": "film", "else": 1}', b'{"key": "' + b"x" * 600 + b'"}',
        b'{"decisions": [{"key": "film"}]}', b'{"key": "a\\r\\n\\r\\nb"}', b"\r\n\r\n",
    ]),
)  # fmt: skip
PATHS = mostly(
    b"/v1/placements/home/decide", b"/v1/placements/home/feedback",
    b"/v1/placements/home/feedback", b"/v1/placements/home/feedback",
    b"/v1/placements/nobody/decide", b"/v1/placements/h%6fme/decide",
    b"/v1/placements/home/decide?key=1", b"/v1/placements/home/decide#", b"/v1/placements",
    b"/v1/placements/home/decide/", b"//v1/placements/home/decide", b"*", b"/healthz",
    b"http://localhost/v1/placements/home/decide", b"/v1/placements/home/decide/batch",
    b"/v1/placements/home/examined", b"/v1/placements/h%c3%b6me/decide",
)  # fmt: skip
METHODS = mostly(b"POST", b"GET", b"HEAD", b"PUT", b"OPTIONS")
VERSIONS = mostly(b"HTTP/1.1", b"HTTP/1.0")
HOSTS = mostly(b"Host: localhost", b"Host: evil.example", b"host:127.0.0.1:80", b"")
MEDIA = mostly(
    b"Content-Type: application/json", b"Content-Type: text/plain", b"",
    b"content-type:application/json;charset=utf-8",
)  # fmt: skip
MORE = (
    b"X-Request-Id: mine", b"X-Request-Id: \xe4", b"Connection: keep-alive",
    b"Connection: close", b"Connection: upgrade\r\nUpgrade: h2c", b"Expect: 100-continue",
    b"Origin: https://shop.example", b"Origin: https://evil.example", b"Origin: null",
    b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Site: same-origin", b"User-Agent: x",
    b"Transfer-Encoding: chunked", b"Authorization: Bearer nobody",
    b"A: " + b"x" * 3000,
    *(b"Authorization: Bearer " + key.encode() for key in KEY.values()),
)  # fmt: skip
WRONG_STARTS = (b"POST /v1/placements/home/decide http/1.1", b"PRI * HTTP/2.0", b"post / HTTP/1.1",
                b"POST /v1/placements/home/decide HTTP/2.0", b"POST /v1/placements/home/decide",
                b"POST  /v1/placements/home/decide HTTP/1.1",
                b"POST /v1/placements/h\xc3\xb6me/decide HTTP/1.1")  # fmt: skip
WRONG = (
    b"Content-Length: 15", b"Content-Length: +15", b"Content-Length: 015", b"Content-Length: -1",
    b"Content-Length: 15, 15", b"Content-Length: 15x", b"Transfer-Encoding: identity",
    b"Folded: a\r\n b", b"Wrong name: x", b": x", b"Wrong", b"a: \x00", b"Lone: a\nb: c",
)  # fmt: skip


@st.composite
def requests(draw, key=b"", wrong=False):
    """Draw the bytes of a request, which may be wrong as HTTP."""
    body = draw(BODIES)
    start = b" ".join((draw(METHODS), draw(PATHS), draw(VERSIONS)))
    lines = [start, draw(HOSTS), draw(MEDIA), key, *draw(st.lists(st.sampled_from(MORE), max_size=2))]
    chunked = any(line.startswith(b"Transfer-Encoding") for line in lines)
    if chunked:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    if not chunked or (wrong and draw(st.booleans())):
        lines.append(b"Content-Length: %d" % len(body))
    if wrong:
        lines[0] = draw(mostly(start, *WRONG_STARTS))
        lines.insert(draw(st.integers(1, len(lines))), draw(mostly(b"", *WRONG)))
    return b"\r\n".join(line for line in lines if line) + b"\r\n\r\n" + body


@st.composite
def streams(draw, key=b"", wrong=False):
    """Draw requests that are sent in pieces, each alone, together, or cut."""
    pieces = draw(st.lists(requests(key, wrong), min_size=1, max_size=3))
    how = draw(st.sampled_from(["alone", "alone", "together", "cut"]))
    if how != "alone":
        pieces = [b"".join(pieces)]
    if how == "cut":
        cut = draw(st.integers(0, len(pieces[0])))
        pieces = [pieces[0][:cut], pieces[0][cut:]]
    return pieces


@given(streams(wrong=True))
@examples(200)
def test_the_same_bytes_get_the_same_answers(open_, pieces):
    open_.check(pieces)


@given(streams())
def test_what_is_sent_ahead_gets_the_same_answers(open_, pieces):
    """Of what is HTTP: of the rest, the time of an answer decides how much is said."""
    open_.check(pieces, ahead=True)


@given(st.one_of(*(streams(b"Authorization: Bearer " + key.encode()) for key in KEY.values())))
def test_the_same_keys_open_the_same(locked, pieces):
    locked.check(pieces)


DECIDE = (
    b"POST /v1/placements/home/decide HTTP/1.1\r\nHost: localhost\r\n"
    b'Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{"key": "film"}'
)


def test_what_is_usual_takes_the_shorter_way_and_counts_the_same(open_, monkeypatch):
    """Whatever was asked before."""
    taken = []
    for name in ("begin", "begin_again"):
        begin = getattr(UsualAnswers, name)
        monkeypatch.setattr(UsualAnswers, name, lambda *told, begin=begin: taken.append(told) or begin(*told))
    for _ in range(3):
        answer, closed = open_.check([DECIDE, DECIDE])
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert not closed
    assert len(taken) == 6
    open_.check([DECIDE + DECIDE])
    assert len(taken) == 6
    texts = [open_.loop.run_until_complete(side.metrics.text()) for side in open_.sides]
    short, long = ([line for line in text.decode().splitlines() if "seconds_count" in line] for text in texts)
    assert short == long


OTHER = DECIDE.replace(b"Host: localhost", b"Host: localhost\r\nUser-Agent: curl")


def known(pair):
    """Return the heads that the side with the shorter way knows."""
    return pair.sides[0].app.heads


ROW = {"decision_id": "d0"}
DUEL = ROW | {"rankings": {"x": ["i", "j"], "y": ["j", "i"]}}
KINDS = {
    "duel": {"kind": "duels", "rankers": ["x", "y"]},
    "slate": {"kind": "slates", "arms": 5, "positions": 2},
}
REPORTS = [("activate", ROW), ("examined", ROW), ("clicks", ROW), ("feedback", ROW | {"reward": 1.0})]
REPORTS += [("clicks", {"decision_id": id, "clicks": [place]}) for id in ("d0", "d1") for place in (0, 7)]


@pytest.mark.parametrize("path", KINDS)
def test_duels_lists_and_reports_take_the_shorter_way_too(path, tmp_path):
    asked = [(path, DUEL if path == "duel" else ROW | {"key": "film"})] * 2 + [(path, {"key": 1}), *REPORTS]
    with closing(Pair(tmp_path, home=KINDS[path] | {"seed": 3})) as pair:
        for path, values in asked:
            head, body = DECIDE.partition(b"{")[0], json.dumps(values).encode()
            head = head.replace(b"/decide", f"/{path}".encode()).replace(b"15", b"%d" % len(body))
            pair.check([head + body])
            assert head in known(pair)


def test_a_head_that_was_let_in_is_known_by_its_bytes_and_by_nothing_less(open_):
    head, body = DECIDE.partition(b"{")[0], b'{"key": "film"}'
    open_.check([DECIDE])
    assert head in known(open_)
    for piece in (
        DECIDE, head + b'{"key": "fil"}}', head + body[:-1], head + body + b" ", head, b"\r\n" + DECIDE,
        head.replace(b"15", b"16") + body, head.replace(b"localhost", b"evil.example") + body,
        DECIDE[:50], DECIDE + DECIDE, body + DECIDE,
    ):  # fmt: skip
        open_.check([DECIDE, piece])
        open_.check([piece[:20], piece[20:]])
    for unique in (b"x-request-id: mine", b"traceparent: 00-1-1-00"):
        open_.check([DECIDE.replace(b"Host: localhost", b"Host: localhost\r\n" + unique)])
    assert all(b"mine" not in head and b"traceparent" not in head for head in known(open_))


def test_heads_that_are_known_are_few_and_short(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.service.app.guard.MOST_HEADS", 3)
    with closing(Pair(tmp_path)) as pair:
        for name in range(9):
            pair.check([OTHER.replace(b"curl", b"curl/%d" % name)])
            assert len(known(pair)) == min(name + 1, 3)
        pair.check([OTHER.replace(b"curl", b"x" * 1024)])
        assert max(map(len, known(pair))) < 200


def test_a_known_head_is_forgotten_with_each_configuration_and_key(tmp_path):
    def sent(scope):
        key = b"\r\nAuthorization: Bearer " + KEY[scope].encode()
        return DECIDE.replace(b"Host: localhost", b"Host: localhost" + key)

    pair = Pair(tmp_path, keys=KEYS)

    def answered():
        return [pair.check([sent(scope)])[0][9:12] for scope in ("decide", "read")]

    assert [answered(), answered()] == [[b"200", b"403"]] * 2
    assert len(known(pair)) == 1
    swapped = {"decide": KEYS["read"] | {"scopes": ["decide"]}, "read": KEYS["decide"] | {"scopes": ["read"]}}
    for values, expected in (
        ({"keys": KEYS, "server.body_limit": 14}, [b"413", b"403"]),
        ({"keys": KEYS}, [b"200", b"403"]),
        ({"keys": swapped}, [b"403", b"200"]),
        ({"keys": {"read": swapped["read"]}}, [b"403", b"401"]),
    ):
        pair.configure(**values)
        assert not known(pair)
        assert [answered(), answered()] == [expected] * 2
    pair.close()


def test_a_known_head_still_waits_for_its_turn(tmp_path, monkeypatch):
    # Two at once, and the next one in a quarter of an hour.
    monkeypatch.setattr("tacit.service.app.guard.BURST_SECONDS", 2000)
    with closing(Pair(tmp_path, **{"server.rate": 0.001})) as pair:
        answers = [pair.check([DECIDE])[0] for _ in range(4)]
    assert [answer[9:12] for answer in answers] == [b"200", b"200", b"429", b"429"]


def test_who_leaves_before_the_answer_harms_nobody(open_):
    side = open_.sides[0]
    before = count_decisions(side.engine.placement("home"))
    written, _ = open_.loop.run_until_complete(side.answered([DECIDE], True, leaves=True))
    assert written == b""
    assert count_decisions(side.engine.placement("home")) == before + 1


@pytest.mark.parametrize("turn", [0, 1], ids=["usual", "unusual"])
def test_who_leaves_with_requests_sent_ahead_is_written_no_more(open_, turn, caplog):
    """Whichever of them is being answered: it is none that anybody waits for."""
    pieces = [DECIDE, b"GET /v1/placements/home/history HTTP/1.1\r\nHost: localhost\r\n\r\n", DECIDE][turn:]
    for side in open_.sides:
        written, _ = open_.loop.run_until_complete(side.answered(pieces, True, leaves=True))
        assert written == b""
        assert side.settings.app.running == 0
    assert not caplog.records


def test_what_fails_ends_the_connection_and_nothing_else(open_, monkeypatch, caplog):
    for side in open_.sides:
        monkeypatch.setattr(side.engine, "placement", None)
    answer, closed = open_.check([DECIDE, DECIDE])
    assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert closed
    assert caplog.text.count("Exception in ASGI application") == 2
