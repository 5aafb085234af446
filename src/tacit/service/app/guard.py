"""What every request passes first: is it meant for us, who sent it, is there room for it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.service.app.routes import find
from tacit.service.config.keys import Keys, is_loopback
from tacit.service.config.schema import ServerConfig
from tacit.service.http.endpoint import FOUND
from tacit.service.http.headers import PREFLIGHT, is_foreign, request_id, says_json, shared_with
from tacit.service.http.messages import NO_CONTENT, sent
from tacit.service.http.metrics import Metrics
from tacit.service.http.problems import Problem, problem
from tacit.service.http.route import OTHER, Answer, Header, Path

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
MOST_CLIENTS = 10_000
BURST_SECONDS = 2.0
RETRY = (b"retry-after", b"1")

logger = logging.getLogger("tacit.requests")


class Guard:
    """The application behind its guard.

    Parameters
    ----------
    app : ASGI application
    server : ServerConfig
    keys : Keys
        None, on the loopback only: then everybody may do everything.
    metrics : Metrics
    close : function
        Ends answers that go on for as long as somebody listens; called before the end.
    """

    def __init__(
        self,
        app: ASGIApp,
        server: ServerConfig,
        keys: Keys,
        metrics: Metrics,
        close: Callable[[], None],
    ) -> None:
        self._app = app
        self._metrics = metrics
        self.close = close
        self._running = 0
        self.configure(server, keys)

    def configure(self, server: ServerConfig, keys: Keys) -> None:
        """Take over limits and keys, from the next request on."""
        self._server, self._keys = server, keys
        self._rates = Rates(server.rate)
        self._origins = frozenset(origin.encode() for origin in server.allow_origins)
        # Without keys, a page of somebody else could reach us under a name of its own.
        self._hosts = None if keys else {b"localhost", b"127.0.0.1", b"[::1]", _host(server.host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = dict(scope["headers"])
        shared = shared_with(headers, self._origins)
        id = _id(headers.get(b"x-request-id"))
        token = request_id.set(id)
        status = 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"], (b"x-request-id", id.encode()), *shared
                ]  # fmt: skip
            await send(message)

        found = scope[FOUND] = find(scope["path"])
        refused = True
        self._running += 1
        try:
            if shared and scope["method"] == "OPTIONS":
                await sent(answered, Answer(NO_CONTENT, "", b"", PREFLIGHT))
                return
            refusal = self._refusal(scope, headers, found.path)
            refused = refusal is not None
            if refusal is None:
                await self._app(scope, receive, answered)
            else:
                await sent(answered, found.path.api.refusals.refused(*refusal))
        finally:
            self._running -= 1
            seconds = time.perf_counter() - started
            # Any path may be asked for, so only those that exist are told apart.
            shown = found.path.label if not refused and status not in (404, 405) else OTHER
            self._metrics.answered(shown, status, seconds)
            if self._server.access_log:
                # As it came: decoded, it could say what nobody asked for.
                asked = scope["raw_path"].decode("latin-1")
                logger.info("%s %s %d %.1f ms", scope["method"], asked, status, 1000 * seconds)
            request_id.reset(token)

    def _refusal(
        self, scope: Scope, headers: dict[bytes, bytes], path: Path
    ) -> tuple[Problem, *tuple[Header, ...]] | None:
        """Return what is wrong with a request, and headers that say so; None if nothing is."""
        if self._running > self._server.concurrency:
            return problem(
                "overloaded", "service", "service: it has too much to do; try again later"
            ), RETRY
        if self._hosts is not None and _host_of(headers.get(b"host", b"")) not in self._hosts:
            return (problem(
                "misdirected", "host",
                "host: without keys, only names of this machine are answered",
            ),)  # fmt: skip
        wanted = path.scope(scope["method"])
        if wanted is None:
            return None
        if is_foreign(scope["method"], headers, self._origins):
            origin = headers.get(b"origin", b"elsewhere").decode("latin-1")
            return (problem(
                "foreign-origin", "origin",
                f"origin: a page of {origin!r} may not ask; if it shall, name its origin in "
                "server.allow_origins",
            ),)  # fmt: skip
        who = (scope.get("client") or ("",))[0]
        if self._keys:
            key = headers.get(b"authorization", b"")
            if path.api.key_header in headers:
                key = b"Bearer " + headers[path.api.key_header]
            name = self._keys.name(key)
            if name is None:
                scheme = b"Basic" if scope["method"] == "GET" else b"Bearer"
                return problem(
                    "unauthorized", "authorization", "authorization: send a key that is known"
                ), (b"www-authenticate", scheme + b' realm="tacit"')
            if not self._keys.allow(name, wanted):
                return (problem(
                    "forbidden", "authorization", f"authorization: this needs the scope {wanted!r}"
                ),)  # fmt: skip
            who = name
        if not self._rates.allow(who):
            return problem("too-many-requests", "service", "service: slow down"), RETRY
        if not says_json(scope["method"], headers):
            return (problem(
                "unsupported-media-type", "content-type", "content-type: send application/json"
            ),)  # fmt: skip
        return None


class Rates:
    """A token bucket for each client: so many requests a second, twice as many at once.

    Parameters
    ----------
    rate : float
        0 for no limit.
    clock : function, optional
        Seconds.

    Examples
    --------
    >>> now = 0.0
    >>> rates = Rates(1.0, lambda: now)
    >>> [rates.allow("a") for _ in range(3)]
    [True, True, False]
    >>> now = 1.0
    >>> rates.allow("a"), rates.allow("b")
    (True, True)
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, who: str) -> bool:
        """Say whether a client may send one more request now, and count it."""
        if not self._rate:
            return True
        now, full = self._clock(), self._rate * BURST_SECONDS
        tokens, then = self._buckets.pop(who, (full, now))
        tokens = min(full, tokens + (now - then) * self._rate)
        allowed = tokens >= 1.0
        self._buckets[who] = tokens - allowed, now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return allowed


def _id(given: bytes | None) -> str:
    if given is not None and REQUEST_ID.fullmatch(given):
        return given.decode()
    return os.urandom(8).hex()


def _host(name: str) -> bytes:
    if not is_loopback(name):
        return b"localhost"
    return (f"[{name}]" if ":" in name else name).encode()


def _host_of(header: bytes) -> bytes:
    """Return the name in a Host header, without the port."""
    name, colon, port = header.rpartition(b":")
    return (name if colon and port.isdigit() else header).lower()
