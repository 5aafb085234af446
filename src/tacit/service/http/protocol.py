"""A connection of the service: uvicorn's, within limits of what is sent and how long it takes.

Everything here comes before anybody has shown a key, so nothing may grow with what a stranger
sends. One sweep a second looks at all connections; none has a timer of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import typing
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tacit.service.config.schema import ServerConfig
from tacit.service.http.messages import DRAINED_LIMITS, Headers, head_of, lines, problem, refused
from tacit.service.http.route import Addressed, Header, LetIn

try:
    import resource
except ModuleNotFoundError:  # where there is no such limit
    resource = None  # type: ignore[assignment]

PERIOD = 1.0
"""Seconds between two sweeps; no time is kept more precisely than that."""
SWEPT = 256
"""Connections that are looked at before requests get their turn again."""
SLICE = 16_384
"""Bytes that are parsed before limits are looked at again."""
MOST_QUEUED, MOST_QUEUED_BYTES = 16, 65_536
"""Requests of a connection, and bytes of their bodies, that are parsed ahead of their turn."""
MOST_UNPARSED = 67_108_864
"""Bytes behind these that all connections together may leave unparsed."""
LINGER_SECONDS = 2.0
"""How long a client that was refused may take to read why."""
LINGER_BYTES = 1_048_576
"""How much of what it still sends is read for that, and thrown away."""
MOST_LINGERING = 64
"""Connections beyond the limit that may read why; others are closed at once."""
RESERVED_DESCRIPTORS = 256
"""Of the process, for the store, the log and connections that are about to be refused."""

MALFORMED = "malformed"
URL_LIMIT, HEADER_LIMIT, HEADER_COUNT = "url_limit", "header_limit", "header_count"
BODY_LIMIT, CONNECTIONS = "body_limit", "connections"
FIRST_BYTE, HEADER, BODY = "first_byte_timeout", "header_timeout", "body_timeout"
IDLE, SEND = "idle_timeout", "send_timeout"

CLOSED = (FIRST_BYTE, IDLE, SEND)
"""Why a connection ends without an answer: nothing was asked, or no answer is read."""
REFUSED = {
    MALFORMED: ("malformed-request", "request", "this is not HTTP/1.1"),
    URL_LIMIT: ("url-too-long", "url", "send a shorter address"),
    HEADER_LIMIT: ("headers-too-large", "headers", "send fewer bytes of headers"),
    HEADER_COUNT: ("headers-too-large", "headers", "send fewer headers"),
    BODY_LIMIT: ("body-too-large", "body", "send less in one request"),
    HEADER: ("timed-out", "headers", "send all of them sooner"),
    BODY: ("timed-out", "body", "send all of it sooner"),
    CONNECTIONS: ("overloaded", "service", "it has too many connections; try again later"),
}
REASONS = (*REFUSED, *CLOSED)

FAILED = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"))
"""What uvicorn says with a failure."""

END = b"\r\n\r\n"
"""Of a head."""
_BETWEEN, _IN_HEAD, _IN_BODY, _ENDING = range(4)

logger = logging.getLogger(__name__)


def _answer(reason: str) -> tuple[bytes, bytes]:
    """Return the status line, and all of the answer that comes after the date."""
    kind, field, remedy = REFUSED[reason]
    headers = [(b"connection", b"close"), *([(b"retry-after", b"1")] if reason == CONNECTIONS else [])]
    answer = refused(problem(kind, field, f"{field}: {remedy}"), *headers)
    return STATUS_LINE[answer.status], head_of(answer) + b"\r\n" + answer.body


_ANSWERS = {reason: _answer(reason) for reason in REFUSED}


class UsualRequests(typing.Protocol):
    """What answers usual requests without uvicorn; see :mod:`tacit.service.app.app`."""

    @property
    def heads(self) -> Mapping[bytes, LetIn]:
        """Return what is known of heads that were let in."""

    def begin_again(self, known: LetIn, body: bytes, connection: Protocol) -> None:
        """Begin to answer a request whose head is known."""

    def find(self, address: bytes) -> Addressed | None:
        """Return what an address names; None if that is not usual."""

    def size(self, headers: Headers) -> int | None:
        """Return the size of the body that comes with some headers; None if they are not usual."""

    def begin(
        self,
        found: Addressed,
        address: bytes,
        headers: Headers,
        head: bytes,
        body: bytes,
        connection: Protocol,
    ) -> None:
        """Begin to answer a request."""


class Connections:
    """What all connections of a service share: their limits, a clock, and counts.

    Parameters
    ----------
    server : ServerConfig

    Attributes
    ----------
    live : int
        Connections that are open now, without those that were one too many.
    ended : dict of int
        How many the service ended, by the limit.
    clock : float
        Seconds, as of the last sweep.
    unparsed : int
        Bytes that were read and wait until the requests before them are answered.
    usual : UsualRequests or None
        What answers usual requests; without it, uvicorn does all.
    """

    def __init__(self, server: ServerConfig) -> None:
        self.live = 0
        self.ended = dict.fromkeys(REASONS, 0)
        self.clock = 0.0
        self.unparsed = 0
        self.usual: UsualRequests | None = None
        self.dated: list[Header] = []
        self.date = b""
        self.configure(server)

    def configure(self, server: ServerConfig) -> None:
        """Take over limits, for connections that are open too."""
        self.limits = server
        self.most_body = DRAINED_LIMITS * max(server.body_limit, server.batch_limit)
        spare = _descriptors() - RESERVED_DESCRIPTORS
        # With very few descriptors, half of them.
        self.most = int(min(server.connections, max(spare, _descriptors() / 2)))
        if self.most < server.connections:
            logger.warning(
                "server.connections: %d of %d, since the process may have no more than %d "
                "descriptors; raise that limit (LimitNOFILE, ulimit -n)",
                self.most,
                server.connections,
                _descriptors(),
            )

    def dated_by(self, headers: list[Header]) -> bytes:
        """Return the headers that uvicorn makes anew each second, as they are sent."""
        self.dated, self.date = headers, lines(headers)
        return self.date

    async def watch(self, open: Iterable[Any]) -> None:
        """Sweep over connections for as long as the service runs."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(PERIOD)
            now = loop.time()
            # What came in while the loop was held up is not late.
            self.clock += min(now - before, 2 * PERIOD)
            before = now
            for number, connection in enumerate(list(open)):
                if number % SWEPT == SWEPT - 1:
                    await asyncio.sleep(0)
                try:
                    connection.check()
                except Exception:
                    # What is wrong with one must not keep all others open.
                    logger.exception("a connection could not be looked at")


class AnswerUnderWay:
    """An answer under way, in the place of uvicorn's cycle, with what uvicorn asks of that.

    So what is sent ahead, a stop and a client that leaves are uvicorn's to deal with.
    """

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")
    message_event = asyncio.Event()  # nobody waits for it
    response_started = False

    def __init__(self, connection: Protocol) -> None:
        self._connection = connection
        self.disconnected = self.response_complete = False
        self.keep_alive = True

    def fail(self, error: BaseException) -> None:
        """Answer that the service failed, as uvicorn does, and close the connection."""
        self._connection.logger.error("Exception in ASGI application\n", exc_info=error)
        self.keep_alive = False
        self.send(500, lines(FAILED), b"Internal Server Error")

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer with lines of headers and a body."""
        if self.disconnected:
            return
        connection, self.response_complete = self._connection, True
        shared, headers_now = connection.shared, connection.server_state.default_headers
        date = shared.date if shared.dated is headers_now else shared.dated_by(headers_now)
        close = b"" if self.keep_alive else b"connection: close\r\n"
        connection.transport.write(b"".join((STATUS_LINE[status], date, headers, close, b"\r\n", body)))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


class ReadControl(FlowControl):
    """uvicorn's flow control, which reads no more of a connection that has unparsed bytes.

    uvicorn resumes reading with each request that it begins, however many wait behind that.
    """

    has_unparsed = False

    def resume_reading(self) -> None:
        """Read on, unless there are unparsed bytes."""
        if not self.has_unparsed:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection; a server is given a subclass that has ``shared``.

    uvicorn parses and answers. What is overridden sees each piece of a request before uvicorn
    does: ``data_received`` gets whatever was sent, and feeds it to the parser. When a head is
    complete, either the request is usual, or uvicorn gets it from its beginning.
    """

    shared: Connections
    flow: ReadControl

    _unparsed = b""
    _phase = _BETWEEN
    _since = 0.0
    _asked = False
    _counted = False
    _exceeded: str | None = None
    _unfinished = 0
    """Bytes of the head, or of what frames a body, that are not complete; at most so many."""
    _body_size = 0
    _blocked: float | None = None
    _piece = b""
    """What the parser is being fed."""
    _declines_upgrade = False
    """Whether the latest head offers an upgrade, and is to be parsed again without it."""
    _fresh = False
    """Whether that began between two requests."""
    _found: Addressed | None = None
    """What a usual request names whose body is on its way."""
    _said: Headers
    _body = b""
    turn: Any = None
    """The answer that is under way, or was last; of requests that are sent ahead not the latest."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse one connection too many."""
        super().connection_made(transport)
        self.flow = ReadControl(transport)
        shared = self.shared
        self._since = shared.clock
        if shared.live < shared.most:
            shared.live += 1
            self._counted = True
        else:
            self._refuse(CONNECTIONS)
            if len(self.connections) - shared.live > MOST_LINGERING:
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave; uvicorn says so to the latest request alone."""
        if self.turn is not None:
            self.turn.disconnected = True
            self.turn.message_event.set()
        self._keep_unparsed(b"")
        super().connection_lost(exc)
        if self._counted:
            self._counted = False
            self.shared.live -= 1

    def data_received(self, data: bytes) -> None:
        """Parse what was sent, as long as it is within the limits."""
        if self._unparsed:
            self._keep_unparsed(self._unparsed + data)
        elif not (self._phase == _BETWEEN and len(data) <= SLICE and self._again(data)):
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse bytes until enough requests wait for their turn, and keep the rest unparsed."""
        start, queue = 0, self.pipeline
        while start < len(data):
            waiting = sum(len(cycle.body) for cycle, _ in queue)
            if len(queue) >= MOST_QUEUED or waiting > MOST_QUEUED_BYTES:
                self._keep_unparsed(data[start:])
                return
            stop = _end_piece(data, start, MOST_QUEUED - len(queue))
            self._feed(data[start:stop])
            start = stop

    def _keep_unparsed(self, data: bytes) -> None:
        """Keep bytes for later and read no more meanwhile; refuse them if all connections keep too many."""
        shared = self.shared
        shared.unparsed += len(data) - len(self._unparsed)
        self._unparsed, self.flow.has_unparsed = data, bool(data)
        if shared.unparsed > MOST_UNPARSED and data:
            self._keep_unparsed(b"")
            self._refuse(CONNECTIONS)
        elif data:
            self.flow.pause_reading()

    def _feed(self, data: bytes) -> None:
        if self._phase == _ENDING:
            self._unfinished += len(data)
            if self._unfinished > LINGER_BYTES:
                self.transport.close()
            return
        self._fresh = self._phase == _BETWEEN
        self._piece = data
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._declines_upgrade:
                self._declines_upgrade, self._unfinished = False, 0
                self._feed(self._head_without_upgrade() + data[upgrade.args[0] :])
                return
        except httptools.HttpParserError:
            self._refuse(self._exceeded or MALFORMED)
            return
        self._unfinished += len(data)
        if self._phase in (_IN_HEAD, _IN_BODY):
            exceeded = self._over()
            if exceeded is not None:
                self._refuse(exceeded)

    def _head_without_upgrade(self) -> bytes:
        """Return the head that was parsed last, without the upgrade that it offers."""
        # The parser takes what follows an upgrade for another protocol, so it gets the head again.
        start = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        )  # fmt: skip
        return start + lines(field for field in self.headers if field[0] != b"upgrade") + b"\r\n"

    def _again(self, data: bytes) -> bool:
        """Whether this is a whole request with a head that is known; then it is begun."""
        usual, before = self.shared.usual, self.cycle
        if usual is None or (before is not None and not before.response_complete) or self.pipeline:
            return False
        start = data.find(END) + len(END)
        known = usual.heads.get(data[:start])
        if known is None or start + known.size != len(data):
            return False
        if self.flow.write_paused or self.transport.is_closing():
            return False
        # As the parser would leave it.
        self._asked, self._since, self._unfinished = True, self.shared.clock, len(data)
        usual.begin_again(known, data[start:], self)
        return True

    @property
    def _waits(self) -> bool:
        """Whether a request would have to wait, or find nobody any more."""
        return self.answering or bool(self.pipeline) or self.flow.write_paused or self.transport.is_closing()

    def _over(self) -> str | None:
        """Return the limit that a head, or the trailers after a body, exceeds so far."""
        limits, headers = self.shared.limits, self.headers
        if len(self.url) > limits.url_limit:
            return URL_LIMIT
        if len(headers) > limits.header_count:
            return HEADER_COUNT
        # A colon, a space and the line's end belong to each.
        size = sum(map(len, chain.from_iterable(headers))) + 4 * len(headers)
        most_unfinished = limits.url_limit + limits.header_limit + SLICE
        if size > limits.header_limit or self._unfinished > most_unfinished:
            return HEADER_LIMIT
        return None

    # What the parser says, in its order ------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request; uvicorn begins when the head is complete."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._phase, self._since = _IN_HEAD, self.shared.clock
        self._asked = True

    def on_headers_complete(self) -> None:
        """Let uvicorn start the request if it is not usual, unless its head is over a limit."""
        self._exceeded = self._over()
        if self._exceeded is not None:
            raise ValueError(self._exceeded)
        self._declines_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._declines_upgrade:
            return
        self._found = self._usual()
        if self._found is None:
            self._tell_uvicorn()
        self._phase, self._since = _IN_BODY, self.shared.clock
        self._unfinished = self._body_size = 0
        # What comes after the body must not pass for a header (RFC 9110, section 6.5.1).
        self.headers = []

    def _usual(self) -> Addressed | None:
        """Return what a usual request names that came in one piece, and alone."""
        usual, parser = self.shared.usual, self.parser
        if usual is None or not self._fresh or self._waits:
            return None
        found = usual.find(self.url)
        if found is None or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        if parser.should_upgrade() or not parser.should_keep_alive():
            return None
        self._said = dict(self.headers)
        size, head = usual.size(self._said), self._piece.find(END)
        if size is None or head < 0 or head + len(END) + size != len(self._piece):
            return None
        return found

    def _tell_uvicorn(self) -> None:
        """Tell uvicorn all that a head has said."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expects
        super().on_headers_complete()
        if not self.pipeline:
            self.turn = self.cycle

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body."""
        self._unfinished = 0
        if self._found is not None:
            self._body += body
            return
        self._body_size += len(body)
        if self._body_size > self.shared.most_body:
            self._exceeded = BODY_LIMIT
            raise ValueError(BODY_LIMIT)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        if self._declines_upgrade:
            return
        found, usual = self._found, self.shared.usual
        if found is None or usual is None:
            super().on_message_complete()
        self._phase, self._since = _BETWEEN, self.shared.clock
        self._unfinished = 0
        if found is not None and usual is not None:
            body, self._body, self._found = self._body, b"", None
            head = self._piece[: len(self._piece) - len(body)]
            usual.begin(found, self.url, self._said, head, body, self)

    def on_response_complete(self) -> None:
        """Go on with what was sent meanwhile, or wait for what will be."""
        self._since = self.shared.clock
        if self.pipeline or self.transport.is_closing():
            if self.pipeline:
                self.turn = self.pipeline[-1][0]
            super().on_response_complete()
        else:
            # As uvicorn does, but for its timer.
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        if self._unparsed and not self.pipeline and not self.transport.is_closing():
            data = self._unparsed
            self._keep_unparsed(b"")
            self._parse(data)

    # Limits ----------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        """Go on, since the client took most of what waited for it."""
        super().resume_writing()
        self._blocked = None

    @property
    def answering(self) -> bool:
        """Whether the answer to the latest request is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, reason: str) -> None:
        """Answer with the reason, if nothing was answered yet, and close the connection."""
        self.shared.ended[reason] += 1
        of_this, answering = self._phase == _IN_BODY, self.answering
        self._phase, self._since = _ENDING, self.shared.clock
        self._unfinished = 0
        if answering and not of_this:
            # Earlier requests are still to be answered.
            self.cycle.keep_alive = False
            return
        if of_this and (not answering or self.cycle.response_started or self.pipeline):
            # It is answered already, or it is not its turn.
            self.transport.close()
            return
        if of_this:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        line, rest = _ANSWERS[reason]
        date = self.shared.dated_by(self.server_state.default_headers)
        self.transport.write(b"".join((line, date, rest)))
        # Closed at once, with something unread, the answer could be lost.
        self.transport.write_eof()
        self.flow.resume_reading()

    def check(self) -> None:
        """End the connection if it has kept the service waiting for too long."""
        shared, limits, transport = self.shared, self.shared.limits, self.transport
        if not transport.get_write_buffer_size():
            self._blocked = None
        elif self._blocked is None:
            self._blocked = shared.clock
        elif shared.clock - self._blocked > limits.send_timeout:
            shared.ended[SEND] += 1
            transport.abort()
            return
        if transport.is_closing():
            return
        waited = shared.clock - self._since - PERIOD
        if self._phase == _ENDING:
            if waited > LINGER_SECONDS and not (self.answering and not self.cycle.disconnected):
                transport.abort()
        elif self._phase == _IN_BODY:
            if waited > limits.body_timeout and not self.flow.read_paused:
                self._refuse(BODY)
        elif self.answering:
            return
        elif self._phase == _IN_HEAD:
            if waited > limits.header_timeout:
                self._refuse(HEADER)
        elif waited > (limits.idle_timeout if self._asked else limits.first_byte_timeout):
            shared.ended[IDLE if self._asked else FIRST_BYTE] += 1
            transport.close()


def _end_piece(data: bytes, start: int, heads: int) -> int:
    """Return where a piece of at most SLICE bytes ends that completes at most so many heads."""
    stop = min(start + SLICE, len(data))
    for _ in range(heads):
        end = data.find(END, start, stop)
        if end < 0:
            return stop
        start = end + len(END)
    return start


def raise_descriptors(connections: int) -> None:
    """Let this process have descriptors for so many connections, as far as it may."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _descriptors() -> float:
    """Return how many descriptors this process may have."""
    if resource is None:
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft
