"""Connections of the service: uvicorn's protocol with limits on the size and the time of requests.

A *usual* request is a POST of a frequent route that arrives in one piece; uvicorn does not answer it.
All of this runs before a client is authenticated, so its memory must not grow with what clients send.
One sweep a second checks all connections for timeouts; connections have no timers of their own.
"""

# 1. Limits, and the answers to requests that exceed them.
# 2. ``Connections``: the state that all connections share.
# 3. ``Protocol``: one connection: parse requests, begin usual ones, check limits.
# 4. Limits of file descriptors.

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
from tacit.service.http.messages import (
    DRAINED_LIMITS,
    Headers,
    answer_problem,
    encode_headers,
    encode_lines,
    make_problem,
)
from tacit.service.http.route import AdmittedHead, Header, RouteMatch

try:
    import resource
except ModuleNotFoundError:  # systems without limits of resources, such as Windows
    resource = None  # type: ignore[assignment]

PERIOD = 1.0
"""Seconds between two sweeps, which is the precision of all timeouts."""
SWEPT = 256
"""Connections that a sweep checks before it lets requests run."""
SLICE = 16_384
"""Bytes that are parsed before limits are checked again."""
MOST_QUEUED, MOST_QUEUED_BYTES = 16, 65_536
"""Pipelined requests of a connection, and bytes of their bodies, that are parsed ahead of their turn."""
MOST_UNPARSED = 67_108_864
"""Unparsed bytes that all connections together may hold beyond their parsed requests."""
LINGER_SECONDS = 2.0
"""Seconds for which a refused connection stays open so that the client can read the answer."""
LINGER_BYTES = 1_048_576
"""Bytes that are read from a refused connection and discarded before it is closed."""
MOST_LINGERING = 64
"""Connections beyond the limit that get an answer with the reason; others are closed at once."""
RESERVED_DESCRIPTORS = 256
"""File descriptors reserved for the store, the log and connections that are being refused."""

MALFORMED = "malformed"
URL_LIMIT, HEADER_LIMIT, HEADER_COUNT = "url_limit", "header_limit", "header_count"
BODY_LIMIT, CONNECTIONS = "body_limit", "connections"
FIRST_BYTE, HEADER, BODY = "first_byte_timeout", "header_timeout", "body_timeout"
IDLE, SEND = "idle_timeout", "send_timeout"

CLOSED = (FIRST_BYTE, IDLE, SEND)
"""Reasons that end a connection without an answer: no request came, or the client does not read."""
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
"""uvicorn's headers of a status 500."""

END = b"\r\n\r\n"
"""The end of a request's head."""
_BETWEEN, _IN_HEAD, _IN_BODY, _ENDING = range(4)
"""Phases of a connection: between requests, in the head or body of one, or refused."""

logger = logging.getLogger(__name__)


def _make_refusal(reason: str) -> tuple[bytes, bytes]:
    """Return the status line of a refusal, and the bytes of the answer that follow the date header."""
    kind, field, remedy = REFUSED[reason]
    headers = [(b"connection", b"close"), *([(b"retry-after", b"1")] if reason == CONNECTIONS else [])]
    answer = answer_problem(make_problem(kind, field, f"{field}: {remedy}"), *headers)
    return STATUS_LINE[answer.status], encode_headers(answer) + b"\r\n" + answer.body


_ANSWERS = {reason: _make_refusal(reason) for reason in REFUSED}


class UsualRequests(typing.Protocol):
    """Answers usual requests without uvicorn; implemented in :mod:`tacit.service.app.app`."""

    @property
    def heads(self) -> Mapping[bytes, AdmittedHead]:
        """Heads of earlier requests that were admitted, by their bytes."""

    def begin_again(self, admitted_head: AdmittedHead, body: bytes, connection: Protocol) -> None:
        """Begin to answer a request with this body on the connection; its head was admitted before."""

    def find(self, address: bytes) -> RouteMatch | None:
        """Return the route and placement of an address; None if the request is not usual."""

    def size(self, headers: Headers) -> int | None:
        """Return the body's size in bytes that headers declare; None if they do not suit a usual request."""

    def begin(
        self,
        route_match: RouteMatch,
        address: bytes,
        headers: Headers,
        head: bytes,
        body: bytes,
        connection: Protocol,
    ) -> None:
        """Check a parsed request and begin to answer it on the connection.

        ``head`` are its bytes before the body.
        """


class Connections:
    """The state that all connections of a service share: limits, a clock and counts.

    Parameters
    ----------
    server : ServerConfig

    Attributes
    ----------
    live : int
        Number of open connections, without those beyond the limit.
    ended : dict of int
        Number of connections that the service ended, by reason.
    clock : float
        Seconds, as of the last sweep.
    unparsed : int
        Bytes that were read and wait until the requests before them are answered.
    usual : UsualRequests or None
        Answers usual requests; if it is None, uvicorn answers all requests.
    """

    def __init__(self, server: ServerConfig) -> None:
        self.live = 0
        self.ended = dict.fromkeys(REASONS, 0)
        self.clock = 0.0
        self.unparsed = 0
        self.usual: UsualRequests | None = None
        self.date_headers: list[Header] = []
        self.date = b""
        self.configure(server)

    def configure(self, server: ServerConfig) -> None:
        """Set the limits, also for connections that are already open.

        The number of connections is lowered, with a warning in the process' log, if the process may open too
        few file descriptors for it.
        """
        self.limits = server
        self.most_body = DRAINED_LIMITS * max(server.body_limit, server.batch_limit)
        spare = _read_descriptor_limit() - RESERVED_DESCRIPTORS
        # If descriptors are very few, connections may use half of them.
        self.most_connections = int(min(server.connections, max(spare, _read_descriptor_limit() / 2)))
        if self.most_connections < server.connections:
            logger.warning(
                "server.connections: %d of %d, since the process may have no more than %d "
                "descriptors; raise that limit (LimitNOFILE, ulimit -n)",
                self.most_connections,
                server.connections,
                _read_descriptor_limit(),
            )

    def encode_date_headers(self, headers: list[Header]) -> bytes:
        """Encode uvicorn's default headers, which change each second with the date, as lines; cache both."""
        self.date_headers, self.date = headers, encode_lines(headers)
        return self.date

    async def watch(self, open: Iterable[Any]) -> None:
        """Check all open connections for timeouts once a second, and advance ``clock``; runs until cancelled.

        An error in the check of one connection is logged.
        """
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(PERIOD)
            now = loop.time()
            # Time for which the event loop was blocked does not count against clients.
            self.clock += min(now - before, 2 * PERIOD)
            before = now
            for number, connection in enumerate(list(open)):
                if number % SWEPT == SWEPT - 1:
                    await asyncio.sleep(0)
                try:
                    connection.check()
                except Exception:
                    # An error with one connection must not exempt the others from the check.
                    logger.exception("a connection could not be looked at")


class PendingAnswer:
    """An answer in progress, in place of uvicorn's request-response cycle.

    It has the attributes that uvicorn reads of a cycle, so uvicorn handles pipelining, shutdown and
    disconnects as usual.
    """

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")
    message_event = asyncio.Event()  # uvicorn sets it; no task awaits it
    response_started = False

    def __init__(self, connection: Protocol) -> None:
        self._connection = connection
        self.disconnected = self.response_complete = False
        self.keep_alive = True

    def fail(self, error: BaseException) -> None:
        """Log an error, send an answer with status 500 as uvicorn does, and close the connection."""
        self._connection.logger.error("Exception in ASGI application\n", exc_info=error)
        self.keep_alive = False
        self.send(500, encode_lines(FAILED), b"Internal Server Error")

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        """Write status, header lines and body to the connection, and mark the answer as complete.

        Then the next queued request begins, or the connection is closed unless it is kept alive. Nothing
        happens if the client has disconnected.
        """
        if self.disconnected:
            return
        connection, self.response_complete = self._connection, True
        shared, headers_now = connection.shared, connection.server_state.default_headers
        date = shared.date if shared.date_headers is headers_now else shared.encode_date_headers(headers_now)
        close = b"" if self.keep_alive else b"connection: close\r\n"
        connection.transport.write(b"".join((STATUS_LINE[status], date, headers, close, b"\r\n", body)))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


class ReadControl(FlowControl):
    """uvicorn's flow control, except that reading stays paused while there are unparsed bytes.

    uvicorn resumes reading with each request that it begins, however many are queued behind that.
    """

    has_unparsed = False

    def resume_reading(self) -> None:
        """Resume reading from the transport unless there are unparsed bytes."""
        if not self.has_unparsed:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection; servers use a subclass that sets ``shared``.

    uvicorn parses and answers. The overridden methods see each piece of a request before uvicorn
    does: ``data_received`` gets the bytes and feeds them to the parser. When a head is complete, a
    usual request is answered without uvicorn; any other is passed to uvicorn from its beginning.
    """

    shared: Connections
    flow: ReadControl

    _unparsed = b""
    _phase = _BETWEEN
    _since = 0.0
    """Time on the shared clock at which the phase or the last answer began."""
    _has_request = False
    """True once a request has begun on the connection."""
    _is_counted = False
    """True if the connection counts in ``shared.live``: it is not beyond the limit."""
    _exceeded: str | None = None
    """The limit because of which a callback stopped the parser."""
    _unfinished = 0
    """Upper bound of the bytes fed to the parser since it last completed a head or a piece of a body."""
    _body_size = 0
    _blocked: float | None = None
    """Time since which the client has not read all of its answers; None if it has."""
    _piece = b""
    """The bytes that the parser is being fed."""
    _declines_upgrade = False
    """True if the latest head offers an upgrade and must be parsed again without it."""
    _starts_request = False
    """True if ``_piece`` began between two requests."""
    _usual_match: RouteMatch | None = None
    """The route and placement of a usual request whose body is still arriving."""
    _usual_headers: Headers
    _body = b""
    current_answer: Any = None
    """The current or the last answer; with pipelined requests, not that of the latest one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection; over the limit, refuse it with an answer, or close it at once."""
        super().connection_made(transport)
        self.flow = ReadControl(transport)
        shared = self.shared
        self._since = shared.clock
        if shared.live < shared.most_connections:
            shared.live += 1
            self._is_counted = True
        else:
            self._refuse(CONNECTIONS)
            # uvicorn counts all connections, also refused ones that still linger.
            if len(self.connections) - shared.live > MOST_LINGERING:
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the current answer as disconnected, drop unparsed bytes, and uncount the connection."""
        if self.current_answer is not None:
            self.current_answer.disconnected = True
            self.current_answer.message_event.set()
        self._keep_unparsed(b"")
        super().connection_lost(exc)
        if self._is_counted:
            self._is_counted = False
            self.shared.live -= 1

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and begin the requests in them.

        A complete request with the same head as an earlier one skips the parser. If there are unparsed bytes,
        the new ones are only appended to them.
        """
        if self._unparsed:
            self._keep_unparsed(self._unparsed + data)
        elif not (self._phase == _BETWEEN and len(data) <= SLICE and self._begin_repeated(data)):
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Feed bytes to the parser.

        Store the remaining ones once 16 requests or over 64 KiB of bodies are queued.
        """
        start, queue = 0, self.pipeline
        while start < len(data):
            waiting = sum(len(cycle.body) for cycle, _ in queue)
            if len(queue) >= MOST_QUEUED or waiting > MOST_QUEUED_BYTES:
                self._keep_unparsed(data[start:])
                return
            stop = _find_piece_end(data, start, MOST_QUEUED - len(queue))
            self._feed(data[start:stop])
            start = stop

    def _keep_unparsed(self, data: bytes) -> None:
        """Replace the stored unparsed bytes; pause reading if there are any.

        If all connections together store too many, the bytes are dropped and this connection is refused.
        """
        shared = self.shared
        shared.unparsed += len(data) - len(self._unparsed)
        self._unparsed, self.flow.has_unparsed = data, bool(data)
        if shared.unparsed > MOST_UNPARSED and data:
            self._keep_unparsed(b"")
            self._refuse(CONNECTIONS)
        elif data:
            self.flow.pause_reading()

    def _feed(self, data: bytes) -> None:
        """Feed bytes to the parser.

        Refuse the connection if they are malformed or exceed a limit of the head.

        On a refused connection bytes are only counted, and too many close it. A head that offers an upgrade
        is parsed again without it.
        """
        if self._phase == _ENDING:
            self._unfinished += len(data)
            if self._unfinished > LINGER_BYTES:
                self.transport.close()
            return
        self._starts_request = self._phase == _BETWEEN
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
            limit = self._find_exceeded_limit()
            if limit is not None:
                self._refuse(limit)

    def _head_without_upgrade(self) -> bytes:
        """Return the latest head as bytes, without its ``Upgrade`` header."""
        # The parser treats bytes after an upgrade as another protocol, so it must parse the head again.
        start = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        )  # fmt: skip
        return start + encode_lines(field for field in self.headers if field[0] != b"upgrade") + b"\r\n"

    def _begin_repeated(self, data: bytes) -> bool:
        """Begin to answer ``data`` if it is one complete request whose head was admitted before.

        Return whether.

        Nothing begins for other data, while another request is being answered, or while the client does not
        read.
        """
        usual, before = self.shared.usual, self.cycle
        if usual is None or (before is not None and not before.response_complete) or self.pipeline:
            return False
        # Without an end of a head, ``start`` is 3, and no head is so short.
        start = data.find(END) + len(END)
        admitted_head = usual.heads.get(data[:start])
        if admitted_head is None or start + admitted_head.size != len(data):
            return False
        if self.flow.write_paused or self.transport.is_closing():
            return False
        # The state that the parser would leave.
        self._has_request, self._since, self._unfinished = True, self.shared.clock, len(data)
        usual.begin_again(admitted_head, data[start:], self)
        return True

    @property
    def _is_busy(self) -> bool:
        """True if a request cannot be answered at once: others are queued, or the client does not read."""
        return self.answering or bool(self.pipeline) or self.flow.write_paused or self.transport.is_closing()

    def _find_exceeded_limit(self) -> str | None:
        """Return the name of the limit that a head, or trailers after a body, exceed so far; None if none."""
        limits, headers = self.shared.limits, self.headers
        if len(self.url) > limits.url_limit:
            return URL_LIMIT
        if len(headers) > limits.header_count:
            return HEADER_COUNT
        # Each header also has a colon, a space and a line end of two bytes.
        size = sum(map(len, chain.from_iterable(headers))) + 4 * len(headers)
        most_unfinished = limits.url_limit + limits.header_limit + SLICE
        if size > limits.header_limit or self._unfinished > most_unfinished:
            return HEADER_LIMIT
        return None

    # Callbacks of the parser, in the order of a request --------------------------------------

    def on_message_begin(self) -> None:
        """Reset the state for a new request; uvicorn gets the request only when its head is complete."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._phase, self._since = _IN_HEAD, self.shared.clock
        self._has_request = True

    def on_headers_complete(self) -> None:
        """Check the limits of a complete head, and pass it to uvicorn unless the request is usual.

        The body of a usual request is collected and answered without uvicorn. If the head offers an upgrade,
        only ``_declines_upgrade`` is set, and :meth:`_feed` parses the head again without the offer. Raises
        ``ValueError``, which stops the parser, if a limit is exceeded.
        """
        self._exceeded = self._find_exceeded_limit()
        if self._exceeded is not None:
            raise ValueError(self._exceeded)
        # The parser takes CONNECT for an upgrade, too, although no header offers one.
        self._declines_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._declines_upgrade:
            return
        self._usual_match = self._find_usual_match()
        if self._usual_match is None:
            self._pass_to_uvicorn()
        self._phase, self._since = _IN_BODY, self.shared.clock
        self._unfinished = self._body_size = 0
        # Trailers after the body must not count as headers (RFC 9110, section 6.5.1).
        self.headers = []

    def _find_usual_match(self) -> RouteMatch | None:
        """Return route and placement if the request is usual and can be answered now, else None.

        Also stores its headers for ``UsualRequests.begin``.
        """
        usual, parser = self.shared.usual, self.parser
        if usual is None or not self._starts_request or self._is_busy:
            return None
        route_match = usual.find(self.url)
        if route_match is None or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        if parser.should_upgrade() or not parser.should_keep_alive():
            return None
        self._usual_headers = dict(self.headers)
        size, head = usual.size(self._usual_headers), self._piece.find(END)
        # The piece must be this request and nothing else.
        if size is None or head < 0 or head + len(END) + size != len(self._piece):
            return None
        return route_match

    def _pass_to_uvicorn(self) -> None:
        """Pass a complete head to uvicorn, which begins or queues the request.

        Its answer becomes the current one if none is queued before it.
        """
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expects
        super().on_headers_complete()
        if not self.pipeline:
            self.current_answer = self.cycle

    def on_body(self, body: bytes) -> None:
        """Store a piece of a usual request's body; pass a piece of another body to uvicorn.

        Raises ``ValueError``, which stops the parser, if the body exceeds the limit.
        """
        self._unfinished = 0
        if self._usual_match is not None:
            self._body += body
            return
        self._body_size += len(body)
        if self._body_size > self.shared.most_body:
            self._exceeded = BODY_LIMIT
            raise ValueError(BODY_LIMIT)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request: begin to answer it if it is usual, else pass the end to uvicorn."""
        if self._declines_upgrade:
            return
        route_match, usual = self._usual_match, self.shared.usual
        if route_match is None or usual is None:
            super().on_message_complete()
        self._phase, self._since = _BETWEEN, self.shared.clock
        self._unfinished = 0
        if route_match is not None and usual is not None:
            body, self._body, self._usual_match = self._body, b"", None
            head = self._piece[: len(self._piece) - len(body)]
            usual.begin(route_match, self.url, self._usual_headers, head, body, self)

    def on_response_complete(self) -> None:
        """After an answer, begin the next queued request, or resume reading.

        Parse stored bytes if none is queued.
        """
        self._since = self.shared.clock
        if self.pipeline or self.transport.is_closing():
            if self.pipeline:
                # uvicorn adds at the left, so the next request is the last.
                self.current_answer = self.pipeline[-1][0]
            super().on_response_complete()
        else:
            # As uvicorn does, except for its keep-alive timer.
            self.server_state.total_requests += 1
            if self.flow.read_paused:
                self.flow.resume_reading()
        if self._unparsed and not self.pipeline and not self.transport.is_closing():
            data = self._unparsed
            self._keep_unparsed(b"")
            self._parse(data)

    # Limits ----------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        """Resume writing, because the client has read most of the buffer; its timeout for reading ends."""
        super().resume_writing()
        self._blocked = None

    @property
    def answering(self) -> bool:
        """True if the answer to the latest request is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, reason: str) -> None:
        """Count a refusal by its reason, write an answer that explains it, and end the connection.

        Earlier requests are answered before. Without an explanation the connection is closed if the refused
        request's own answer has begun, or others are queued before it.
        """
        self.shared.ended[reason] += 1
        in_body, answering = self._phase == _IN_BODY, self.answering
        self._phase, self._since = _ENDING, self.shared.clock
        self._unfinished = 0
        if answering and not in_body:
            # Earlier requests are answered first.
            self.cycle.keep_alive = False
            return
        if in_body and (not answering or self.cycle.response_started or self.pipeline):
            # The request already has its answer, or it is not its turn.
            self.transport.close()
            return
        if in_body:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        line, tail = _ANSWERS[reason]
        date = self.shared.encode_date_headers(self.server_state.default_headers)
        self.transport.write(b"".join((line, date, tail)))
        # If the connection were closed now, with bytes unread, the client could lose the answer.
        self.transport.write_eof()
        self.flow.resume_reading()

    def check(self) -> None:
        """End the connection if a timeout has passed, and count the reason; called once a second.

        A timeout of a head or body is explained in an answer. An idle connection, and one whose client does
        not read, is closed without an answer.
        """
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
        # The clock stands still between two sweeps: a wait may have begun up to a period later than noted.
        wait_seconds = shared.clock - self._since - PERIOD
        if self._phase == _ENDING:
            # Earlier requests are answered before the end.
            if wait_seconds > LINGER_SECONDS and not (self.answering and not self.cycle.disconnected):
                transport.abort()
        elif self._phase == _IN_BODY:
            # While reading is paused, the service is late and not the client.
            if wait_seconds > limits.body_timeout and not self.flow.read_paused:
                self._refuse(BODY)
        # The client waits for the service.
        elif self.answering:
            return
        elif self._phase == _IN_HEAD:
            if wait_seconds > limits.header_timeout:
                self._refuse(HEADER)
        elif wait_seconds > (limits.idle_timeout if self._has_request else limits.first_byte_timeout):
            shared.ended[IDLE if self._has_request else FIRST_BYTE] += 1
            transport.close()


def _find_piece_end(data: bytes, start: int, heads: int) -> int:
    """Return the end in ``data`` of the next piece to parse, which begins at index ``start``.

    A piece has at most ``SLICE`` bytes and completes at most ``heads`` heads.
    """
    stop = min(start + SLICE, len(data))
    for _ in range(heads):
        end = data.find(END, start, stop)
        if end < 0:
            return stop
        start = end + len(END)
    return start


def raise_descriptor_limit(connections: int) -> None:
    """Raise this process's soft limit of file descriptors to serve a number of connections.

    At most to the hard limit. Nothing changes if the limit is high enough, or if the system has none or
    refuses.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = connections + RESERVED_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= new_limit:
        return
    if hard != resource.RLIM_INFINITY:
        new_limit = min(new_limit, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def _read_descriptor_limit() -> float:
    """Return the soft limit of file descriptors of this process; infinity if there is none."""
    if resource is None:
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft
