"""The guard: load, host, origin, key, scope and rate are checked before a request's body is read."""

# 1. ``Guard``: checks load, host, origin, key and scope, rate, in this order, before a body is read.
# 2. ``remember_head``: a head with the bytes of an admitted one is admitted by a look-up.
# 3. ``RateLimits``: a token bucket for each client.

from __future__ import annotations

import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.service.app.routes import find
from tacit.service.config.keys import ANYBODY, UNPROVEN, Caller, Keys, is_loopback
from tacit.service.config.schema import Config
from tacit.service.http import messages
from tacit.service.http.endpoint import CALLER, ROUTE_MATCH
from tacit.service.http.metrics import Metrics
from tacit.service.http.route import UNKNOWN_LABEL, AdmittedHead, Answer, Header, RouteMatch
from tacit.service.page.timeline import AnswerCounts

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
IDS_AT_ONCE = 128
MOST_CLIENTS = 10_000
BURST_SECONDS = 2.0
RETRY = (b"retry-after", b"1")
MOST_HEADS, LONGEST_HEAD = 1024, 1024
"""Greatest number and size of the admitted heads that are remembered."""
UNIQUE = frozenset((b"x-request-id", b"traceparent"))
"""Headers that differ between any two requests."""
Refusal = tuple[messages.Problem, *tuple[Header, ...]]
"""A problem, and headers for its answer."""

logger = logging.getLogger("tacit.requests")


class GuardedRequest(Protocol):
    """A request from its head to its answer.

    Attributes
    ----------
    addressed : RouteMatch
        Route and names of the address.
    method : str
    address : bytes
        Undecoded.
    id : str
    started : float
        Seconds of the performance counter.
    caller : Caller
        Client, by its key.
    admitted : bool
        Whether all checks passed.
    """

    addressed: RouteMatch
    method: str
    address: bytes
    id: str
    started: float
    caller: Caller
    admitted: bool


@dataclass(slots=True, eq=False)
class Visit:
    """A request whose whole head the guard has read.

    Attributes
    ----------
    headers : mapping
    shared : tuple
        Headers by which a page of an allowed origin may read the answer.
    """

    addressed: RouteMatch
    method: str
    address: bytes
    headers: messages.Headers
    shared: tuple[Header, ...]
    id: str
    caller: Caller = ANYBODY
    admitted: bool = False
    started: float = field(default_factory=time.perf_counter)


class Guard:
    """The application behind its guard.

    Parameters
    ----------
    app : ASGI application
    config : Config
        Limits, keys (without keys, every client on the loopback may do everything), and signed feeds.
    metrics : Metrics
    answers : AnswerCounts
        Counts answers for the page.
    close : function
        Ends streamed answers; called before the end.

    Attributes
    ----------
    heads : dict of bytes to AdmittedHead
        Heads of admitted requests; cleared when limits or keys change.
    """

    def __init__(
        self, app: ASGIApp, config: Config, metrics: Metrics, answers: AnswerCounts, close: Callable[[], None]
    ) -> None:
        self._app = app
        self.metrics, self._answers = metrics, answers
        self.close = close
        self.running = 0
        self.heads: dict[bytes, AdmittedHead] = {}
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a configuration's limits, keys and signed feeds from the next request on.

        Stored heads and the rates of all clients are dropped.
        """
        server, keys = config.server, Keys(config.keys)
        self._server, self._keys = server, keys
        self._signed = {name for name, feed in config.feeds.items() if feed.secret is not None}
        self.heads.clear()
        self._rates = RateLimits(server.rate)
        self._origins = frozenset(origin.encode() for origin in server.allow_origins)
        # Without keys, a foreign page could reach the service by DNS rebinding.
        self._hosts = None if keys else {b"localhost", b"127.0.0.1", b"[::1]", _choose_host(server.host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, answer it by the application or with a refusal, and count and log the answer.

        The answer gets a request id, and headers for pages of other origins; their preflight requests are
        answered here.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        addressed = scope[ROUTE_MATCH] = find(scope["path"])
        # Undecoded: a decoded address could contain another path or line breaks.
        visit = self.enter(addressed, scope["method"], scope["raw_path"], dict(scope["headers"]))
        token = messages.request_id.set(visit.id)
        status = 500

        async def send_answer(message: Message) -> None:
            """Send a message of the answer; store its status, and add the request id and shared headers."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"], (b"x-request-id", visit.id.encode()), *visit.shared
                ]  # fmt: skip
            await send(message)

        try:
            if visit.shared and scope["method"] == "OPTIONS":
                await messages.send_answer(
                    send_answer, Answer(messages.NO_CONTENT, "", b"", messages.PREFLIGHT)
                )
                return
            refusal = self.refusal(visit, scope.get("client"))
            scope[CALLER] = visit.caller
            if refusal is None:
                await self._app(scope, receive, send_answer)
            else:
                await messages.send_answer(send_answer, refusal)
        finally:
            self.leave(visit, status)
            messages.request_id.reset(token)

    def enter(self, addressed: RouteMatch, method: str, address: bytes, headers: messages.Headers) -> Visit:
        """Count a request as running, until :meth:`leave`, and return it as a visit with a request id.

        The id is the ``x-request-id`` header, if it is valid, or a new one.
        """
        self.running += 1
        shared = messages.make_cors_headers(headers, self._origins)
        return Visit(addressed, method, address, headers, shared, _choose_id(headers.get(b"x-request-id")))

    def refusal_again(self, visit: GuardedRequest, client: tuple[str, int] | None) -> Answer | None:
        """Check load and rate for a request with a stored head; return the answer that refuses it, or None.

        Counts the request as running, and marks it as admitted if it is not refused.
        """
        self.running += 1
        if self._server.rate or self.running > self._server.concurrency:
            return self._admit(visit, self._check_load() or self._check_rate(visit, client))
        visit.admitted = True
        return None

    def remember_head(self, head: bytes, visit: Visit, body_size: int) -> None:
        """Store the parsed head of an admitted request, so that equal heads pass without a check of the key.

        Equal heads are not parsed again, and host and origin not checked either; load and rate are. Heads
        that are long or have a header unique to the request are not stored; of more than 1024, the oldest is
        dropped.

        Parameters
        ----------
        head : bytes
            The undecoded head.
        visit : Visit
            The request.
        body_size : int
            Size of its body in bytes.
        """
        if not visit.admitted or len(head) > LONGEST_HEAD or not UNIQUE.isdisjoint(visit.headers):
            return
        if len(self.heads) == MOST_HEADS:
            del self.heads[next(iter(self.heads))]
        self.heads[head] = AdmittedHead(visit.addressed, visit.address, body_size, visit.caller)

    def refusal(self, visit: Visit, client: tuple[str, int] | None) -> Answer | None:
        """Check a request by its head; return the answer that refuses it, or None if it is admitted.

        Marks an admitted request, and sets ``visit.caller`` to the client of its key.
        """
        return self._admit(visit, self._find_refusal(visit, client))

    def _admit(self, visit: GuardedRequest, refusal: Refusal | None) -> Answer | None:
        """Return a refusal as an answer of the request's API.

        None, and mark the request as admitted, without one.
        """
        if refusal is not None:
            return visit.addressed.path.api.refusals.answer_problem(*refusal)
        visit.admitted = True
        return None

    def leave(self, visit: GuardedRequest, status: int) -> None:
        """Count a running request as answered, with status and duration; log it if the access log is on."""
        self.running -= 1
        seconds = time.perf_counter() - visit.started
        # Clients can request any path, so metrics distinguish only existing ones.
        is_known = visit.admitted and status not in (404, 405)
        self.metrics.count_request(visit.addressed.path.label if is_known else UNKNOWN_LABEL, status, seconds)
        if visit.method == "POST":
            self._answers.count(visit.addressed.name, status, seconds)
        if self._server.access_log:
            address = visit.address.decode("latin-1")
            logger.info("%s %s %d %.1f ms", visit.method, address, status, 1000 * seconds)

    def _check_load(self) -> Refusal | None:
        """Return a refusal if too many requests are running, else None."""
        if self.running > self._server.concurrency:
            return _refuse("overloaded", "service", "it has too much to do; try again later", RETRY)
        return None

    def _check_rate(self, visit: GuardedRequest, client: tuple[str, int] | None) -> Refusal | None:
        """Count a request for its key, or else its client's address.

        Return a refusal if the rate is exceeded.
        """
        # Without keys, clients differ by address; "" stands for an unknown one.
        who = visit.caller.name
        if not self._rates.take_token((client or ("",))[0] if who is None else who):
            return _refuse("too-many-requests", "service", "slow down", RETRY)
        return None

    def _find_refusal(self, visit: Visit, client: tuple[str, int] | None) -> Refusal | None:
        """Check load, host, origin, key, scope, rate and media type, in this order; return the first refusal.

        None if there is none. Sets ``visit.caller`` by the request's key; to ``UNPROVEN`` for a feed that
        signs its bodies, whose signature is checked later.
        """
        path, method, headers = visit.addressed.path, visit.method, visit.headers
        if crowded := self._check_load():
            return crowded
        if self._hosts is not None and _strip_port(host := headers.get(b"host", b"")) not in self._hosts:
            what = f"{host.decode('latin-1')!r} is none of the names of this machine, and without keys only"
            return _refuse("misdirected", "host", f"{what} they are answered; ask localhost, or add keys")
        scope = path.scope(method)
        if scope is None:
            return None
        if messages.is_cross_origin(method, headers, self._origins):
            origin = headers.get(b"origin", b"elsewhere").decode("latin-1")
            what = f"a page of {origin!r} may not ask; if it shall, name its origin in server.allow_origins"
            return _refuse("foreign-origin", "origin", what)
        signed = path.accepts_signature(method)
        if signed and visit.addressed.id in self._signed:
            visit.caller = UNPROVEN
        elif self._keys:
            key = headers.get(b"authorization", b"")
            name = self._keys.name(key)
            if name is None:
                # Browsers ask for a password, and so for the key, only by this scheme.
                scheme = b"Basic" if method == "GET" else b"Bearer"
                header = (b"www-authenticate", scheme + b' realm="tacit"')
                why = "this key is not known" if key else "there is no key"
                what = (
                    f"{why}; send Authorization: Bearer KEY (a command: --key KEY); tacit key NAME makes one"
                )
                return _refuse("unauthorized", "authorization", what, header)
            # A missing path is reported as missing, whatever the key's scope.
            if path.routes and not self._keys.has_scope(name, scope):
                what = f"this needs the scope {scope!r}, which key {name!r} has not: send one that has it"
                return _refuse("forbidden", "authorization", what)
            visit.caller = self._keys.get_caller(name)
        if hurried := self._check_rate(visit, client):
            return hurried
        if not messages.is_json_request(method, headers, messages.CLOUD_EVENTS if signed else ()):
            media_type = headers.get(b"content-type", b"").decode("latin-1")
            what = f"{media_type!r} is not allowed; send application/json"
            return _refuse("unsupported-media-type", "content-type", what)
        return None


def _refuse(kind: str, field: str, what: str, *headers: Header) -> Refusal:
    """Return a problem about a field, with headers for its answer."""
    return messages.make_problem(kind, field, f"{field}: {what}"), *headers


class RateLimits:
    """A token bucket for each client: a number of requests per second, and twice that number at once.

    Parameters
    ----------
    rate : float
        0 for no limit.
    clock : function, optional
        Seconds.

    Examples
    --------
    >>> now = 0.0
    >>> rates = RateLimits(1.0, lambda: now)
    >>> [rates.take_token("a") for _ in range(3)]
    [True, True, False]
    >>> now = 1.0
    >>> rates.take_token("a"), rates.take_token("b")
    (True, True)
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take_token(self, client: str) -> bool:
        """Take a token from a client's bucket; return False if it is empty.

        Always True without a limit. Of more than 10,000 clients, the one that sent no request for longest is
        dropped.
        """
        if not self._rate:
            return True
        now, full = self._clock(), self._rate * BURST_SECONDS
        tokens, then = self._buckets.pop(client, (full, now))
        tokens = min(full, tokens + (now - then) * self._rate)
        allowed = tokens >= 1.0
        self._buckets[client] = tokens - allowed, now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return allowed


def _choose_id(client_id: bytes | None) -> str:
    """Return the request id that a client sent, if it is valid; a new one otherwise."""
    if client_id is not None and REQUEST_ID.fullmatch(client_id):
        return client_id.decode()
    return next(new_ids)


def _make_ids() -> list[str]:
    """Return new request ids of 16 hexadecimal digits; random bytes are read for many at once."""
    digits = os.urandom(8 * IDS_AT_ONCE).hex()
    return [digits[i : i + 16] for i in range(0, len(digits), 16)]


new_ids = chain.from_iterable(iter(_make_ids, None))
"""New request ids, without end."""


def _choose_host(name: str) -> bytes:
    """Return the host that a Host header may name: ``name`` if it is a loopback address, or ``localhost``."""
    if not is_loopback(name):
        return b"localhost"
    return (f"[{name}]" if ":" in name else name).encode()


def _strip_port(header: bytes) -> bytes:
    """Return a Host header's host in lower case, without the port."""
    name, colon, port = header.rpartition(b":")
    return (name if colon and port.isdigit() else header).lower()
