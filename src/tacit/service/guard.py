"""What every request passes first: is it meant for us, who sent it, is there room for it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.service.config import ServerConfig
from tacit.service.keys import ADMIN, DECIDE, FEEDBACK, READ, Keys, is_loopback
from tacit.service.metrics import Metrics
from tacit.service.personalizer.errors import refusal_of
from tacit.service.personalizer.paths import Place, place_of, scope_of
from tacit.service.personalizer.wire import ErrorResponse
from tacit.service.problems import problem
from tacit.service.wire import Problem

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
OPEN_PATHS = ("/healthz", "/readyz", "/static/")
MOST_CLIENTS = 10_000
KEY_HEADER = b"ocp-apim-subscription-key"
BURST_SECONDS = 2.0

SCOPE_OF = {
    "decide": DECIDE,
    "decide/batch": DECIDE,
    "feedback": FEEDBACK,
    "feedback/batch": FEEDBACK,
    "examined": FEEDBACK,
    "activate": FEEDBACK,
    "mode": ADMIN,
    "slate": DECIDE,
    "slate/batch": DECIDE,
    "duel": DECIDE,
    "duel/batch": DECIDE,
    "clicks": FEEDBACK,
    "clicks/batch": FEEDBACK,
    "ubi": FEEDBACK,
}
PLACEMENT_PATH = re.compile(r"/v1/placements/([^/]+)/(.+)")

request_id: ContextVar[str] = ContextVar("request_id", default="")
logger = logging.getLogger("tacit.requests")

_encode = msgspec.json.encode


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
        # Without keys, a page of somebody else could reach us under a name of its own.
        self._hosts = None if keys else {b"localhost", b"127.0.0.1", b"[::1]", _host(server.host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = dict(scope["headers"])
        id = _id(headers.get(b"x-request-id"))
        token = request_id.set(id)
        status = 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", id.encode())]
            await send(message)

        path = scope["path"]
        place = PLACEMENT_PATH.fullmatch(path)
        personalizer = place_of(path)
        action = place[2] if place else path
        if personalizer is not None:
            action = personalizer.label
        refused = True
        self._running += 1
        try:
            refusal = self._refusal(scope, headers, action, personalizer)
            refused = refusal is not None
            if refusal is None:
                await self._app(scope, receive, answered)
            else:
                body = refusal[0] if personalizer is None else refusal_of(refusal[0])
                await _refuse(answered, refusal[0].status, body, refusal[1])
        finally:
            self._running -= 1
            seconds = time.perf_counter() - started
            # Any path may be asked for, so only those that exist are told apart.
            shown = action if not refused and status not in (404, 405) else "other"
            self._metrics.answered(shown, status, seconds)
            if self._server.access_log:
                logger.info("%s %s %d %.1f ms", scope["method"], path, status, 1000 * seconds)
            request_id.reset(token)

    def _refusal(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        action: str,
        personalizer: Place | None,
    ) -> tuple[Problem, tuple[tuple[bytes, bytes], ...]] | None:
        if self._running > self._server.concurrency:
            return problem(
                "overloaded", "service", "service: it has too much to do; try again later"
            ), ((b"retry-after", b"1"),)
        if self._hosts is not None and _host_of(headers.get(b"host", b"")) not in self._hosts:
            return problem(
                "misdirected", "host",
                "host: without keys, only names of this machine are answered",
            ), ()  # fmt: skip
        if scope["path"].startswith(OPEN_PATHS):
            return None
        who = (scope.get("client") or ("",))[0]
        if self._keys:
            key = headers.get(b"authorization", b"")
            if personalizer is not None and KEY_HEADER in headers:
                key = b"Bearer " + headers[KEY_HEADER]
            name = self._keys.name(key)
            if name is None:
                scheme = b"Basic" if scope["method"] == "GET" else b"Bearer"
                return problem(
                    "unauthorized", "authorization", "authorization: send a key that is known"
                ), ((b"www-authenticate", scheme + b' realm="tacit"'),)
            if personalizer is not None:
                wanted = scope_of(scope["method"], personalizer.action)
            else:
                wanted = SCOPE_OF.get(action, READ)
            if not self._keys.allow(name, wanted):
                return problem(
                    "forbidden", "authorization", f"authorization: this needs the scope {wanted!r}"
                ), ()
            who = name
        if not self._rates.allow(who):
            return problem("too-many-requests", "service", "service: slow down"), (
                (b"retry-after", b"1"),
            )
        if scope["method"] in ("POST", "PUT"):
            media = headers.get(b"content-type", b"application/json")
            if media.partition(b";")[0].strip().lower() != b"application/json":
                return problem(
                    "unsupported-media-type", "content-type", "content-type: send application/json"
                ), ()
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


async def _refuse(
    send: Send,
    status: int,
    refusal: Problem | ErrorResponse,
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    body = _encode(refusal)
    problem = b"application/problem+json" if isinstance(refusal, Problem) else b"application/json"
    start = [
        (b"content-type", problem),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
