"""The web application: every route of the table as an endpoint, behind the guard."""

# 1. ``UsualAnswers``: single decisions and single feedback, nearly all traffic, without a framework.
# 2. ``create_application``: every other route of the table as an endpoint, behind the guard.

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from msgspec import MsgspecError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.app.guard import Guard, new_ids
from tacit.service.app.routes import APIS, PLACEMENTS, SITE, document, find
from tacit.service.config.keys import Caller
from tacit.service.engine.engine import Engine
from tacit.service.http import messages
from tacit.service.http.endpoint import JSON, ROUTE_MATCH, Endpoint, Live, encode
from tacit.service.http.feeds import Feeds, Hooks
from tacit.service.http.metrics import Metrics
from tacit.service.http.protocol import Connections, PendingAnswer, Protocol
from tacit.service.http.route import AdmittedHead, Answer, Path, RouteMatch
from tacit.service.http.site import Site
from tacit.service.page.pages import Pages
from tacit.service.page.timeline import AnswerCounts

# ---- The usual requests: single decisions and single feedback of any kind, without a framework
#
# They pass the same guard and endpoints, and are counted and logged in the same way, but without a
# coroutine, a scope and messages. A head with the same bytes as an admitted one needs no second check
# of its key. All other requests go through uvicorn.


METHOD = "POST"
PECULIAR = frozenset((b"expect", b"transfer-encoding", b"origin", b"sec-fetch-site"))
"""Headers of requests that are not usual."""
BROKEN = 500


class UsualAnswers:
    """Answers usual requests: decisions and feedback for existing placements, without a framework.

    Parameters
    ----------
    guard : Guard
    endpoints : mapping of Path to Endpoint
    engine : Engine
        Serves the requests, and holds the current configuration.

    Attributes
    ----------
    heads : mapping of bytes to AdmittedHead
        Admitted requests by the bytes of their heads.
    """

    heads: Mapping[bytes, AdmittedHead]

    def __init__(self, guard: Guard, endpoints: Mapping[Path, Endpoint], engine: Engine) -> None:
        self.guard, self.endpoints, self.engine = guard, endpoints, engine
        self.heads = guard.heads
        # Their handlers wait only for their turn in the engine.
        self._paths = [
            path
            for path in PLACEMENTS.paths.values()
            if METHOD in path.routes and path.routes[METHOD].split_handler is not None
        ]
        self._cache: dict[bytes, RouteMatch] = {}

    def find(self, address: bytes) -> RouteMatch | None:
        """Return route and placement of an undecoded address, and cache them.

        None if requests to it are not usual.
        """
        cached = self._cache.get(address)
        if cached is not None:
            return cached
        addressed = find(address.decode("latin-1"))
        # Unknown names must not fill the memory; uvicorn decodes addresses.
        if addressed.path in self._paths and addressed.name in self.engine.placements and b"%" not in address:
            self._cache[address] = addressed
            return addressed
        return None

    def size(self, headers: messages.Headers) -> int | None:
        """Return the body's size in bytes that headers declare.

        None if it is invalid or the request is not usual.
        """
        if not PECULIAR.isdisjoint(headers):
            return None
        length = headers.get(b"content-length", b"")
        # A size of ten digits is above any limit.
        if not length.isdigit() or len(length) > 9:
            return None
        size = int(length)
        return size if size <= self.engine.config.server.body_limit else None

    def begin(
        self,
        addressed: RouteMatch,
        address: bytes,
        headers: messages.Headers,
        head: bytes,
        body: bytes,
        connection: Protocol,
    ) -> None:
        """Check a usual request, and begin to answer it on its connection, without waiting.

        A refused request is answered at once. The head of an admitted one is stored, for later requests with
        the same bytes.
        """
        visit = self.guard.enter(addressed, METHOD, address, headers)
        refusal = self.guard.refusal(visit, connection.client)
        self.guard.remember_head(head, visit, len(body))
        work = UsualRequest(self, connection, addressed, address, visit.id, visit.caller)
        work.admitted = visit.admitted
        work.begin(body, refusal)

    def begin_again(self, known: AdmittedHead, body: bytes, connection: Protocol) -> None:
        """Begin to answer a request with a stored head; the guard checks only load and rate."""
        work = UsualRequest(self, connection, known.route_match, known.address, next(new_ids), known.caller)
        work.begin(body, self.guard.refusal_again(work, connection.client))


class UsualRequest(PendingAnswer):
    """A usual request from its head to its answer, for connection, guard and engine.

    It is the connection's pending answer, the guard's :class:`~tacit.service.app.guard.GuardedRequest` and
    the engine's :class:`~tacit.service.engine.writer.Waiter`.
    """

    __slots__ = (
        "_answer",
        "_done",
        "_usual",
        "address",
        "addressed",
        "admitted",
        "caller",
        "id",
        "route",
        "started"
    )  # fmt: skip
    method = METHOD

    def __init__(
        self,
        usual: UsualAnswers,
        connection: Protocol,
        addressed: RouteMatch,
        address: bytes,
        id: str,
        caller: Caller,
    ) -> None:
        self._connection, self._usual = connection, usual
        connection.cycle = connection.current_answer = self  # type: ignore[assignment]
        self.addressed, self.address, self.id, self.caller = addressed, address, id, caller
        self.route = addressed.path.routes[METHOD]
        self.keep_alive = True
        self.disconnected = self.response_complete = self.admitted = self._done = False
        self.started = time.perf_counter()

    def begin(self, body: bytes, refusal: Answer | None) -> None:
        """Decode the body and queue the request in the engine, or answer with ``refusal`` if it is not None.

        The engine sets the result, now or later. An invalid body is answered with an error.
        """
        token = messages.request_id.set(self.id)
        try:
            if refusal is not None:
                self._end(refusal)
            else:
                endpoint = self._usual.endpoints[self.addressed.path]
                request, self._answer = endpoint.read_request(self.route, self.addressed, body, self.caller)
                self._usual.engine.begin(request, self)
        except BaseException as error:
            self._fail(error)
        messages.request_id.reset(token)

    def done(self) -> bool:
        """True if the request is answered."""
        return self._done

    def set_result(self, result: Any) -> None:
        """Send the engine's result as the answer; an error if it cannot be encoded."""
        token = messages.request_id.set(self.id)
        try:
            self._end(Answer(200, JSON, encode(self._answer(result))))
        except BaseException as error:
            self._fail(error)
        messages.request_id.reset(token)

    def set_exception(self, error: BaseException) -> None:
        """Send the engine's error as the answer."""
        token = messages.request_id.set(self.id)
        self._fail(error)
        messages.request_id.reset(token)

    def _fail(self, error: BaseException) -> None:
        """Answer with the problem of an error of tacit or of the body; other errors have status 500."""
        if isinstance(error, TacitError | MsgspecError):
            self._end(self._usual.endpoints[self.addressed.path].refusal(self.route, error))
            return
        self._done = True
        self.fail(error)
        self._usual.guard.leave(self, BROKEN)

    def _end(self, answer: Answer) -> None:
        """Send an answer with the request's id, and count the request as answered in the guard."""
        self._done = True
        self.send(
            answer.status,
            b"%sx-request-id: %s\r\n" % (messages.encode_headers(answer), self.id.encode()),
            answer.body,
        )
        self._usual.guard.leave(self, answer.status)


# ---- The application: every route of the table as an endpoint, behind the guard


STATIC = pathlib.Path(__file__).parent.parent / "page" / "static"


def create_application(engine: Engine, connections: Connections | None = None) -> Guard:
    """Return the ASGI application of an engine, behind its guard; its lifespan starts and stops the engine.

    With ``connections``, usual requests are answered without a framework.

    Parameters
    ----------
    engine : Engine
        Opened, not yet started.
    connections : Connections, optional
        Connections of the server, for metrics.
    """
    feeds = Feeds()
    metrics = Metrics(engine.merged, connections, feeds)
    live = Live(engine.merged, messages.DATA_HEADERS | messages.PAGE_HEADERS)
    answers = AnswerCounts(lambda: engine.placements)
    pages, openapi_json = Pages(engine.merged, answers, feeds.list_feeds), msgspec.json.encode(document())
    site = Site(engine, pages, metrics, openapi_json, feeds, Hooks(engine, feeds))
    endpoints, large_answers = {}, asyncio.Semaphore(messages.AT_ONCE)
    for api in APIS:
        service = api.get_service(site)
        for path in (*api.paths.values(), api.unknown):
            endpoints[path] = Endpoint(path, service, lambda: engine.config.server, large_answers)
    site_app = Starlette(
        routes=[
            Route("/live", live.stream),
            Mount("/static", _Static(directory=STATIC)),
            # Starlette redirects addresses with a slash at the end to these.
            *(Route(path.template, endpoints[path]) for path in SITE.paths.values()),
        ],
        exception_handlers={HTTPException: _answer_http_error},
        lifespan=_make_lifespan(engine),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to its endpoint; requests to the site, and the lifespan, to Starlette."""
        # Only requests have an address, not the lifespan.
        path = scope[ROUTE_MATCH].path if ROUTE_MATCH in scope else SITE.unknown
        # In a shard, reads that need a key show statistics of all shards; others, as health checks, none.
        if engine.merged is not engine and path.scope("GET") and scope.get("method") in messages.SAFE_METHODS:
            await engine.merged.refresh()  # type: ignore[attr-defined]
        if path.api is SITE:
            await site_app(scope, receive, send)
        else:
            await endpoints[path](scope, receive, send)

    guard = Guard(app, engine.config, metrics, answers, live.close)
    if connections is not None:
        # Without this line, uvicorn answers all requests.
        connections.usual = UsualAnswers(guard, endpoints, engine)
    return guard


def _make_lifespan(engine: Engine) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return the lifespan of an application, which starts the engine and stops it at the end."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Start the engine, and stop it when the context ends."""
        await engine.start()
        yield
        await engine.stop()

    return lifespan


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Return the answer to an error of Starlette: unknown paths get 404, methods not allowed get 405."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET")
        refusal = messages.make_problem(
            "method-not-allowed",
            "method",
            f"method: {request.method!r} is not allowed; this path takes {allowed}",
        )
    else:
        refusal = messages.make_problem(
            "unknown-path", "path", messages.describe_unknown_path(request.url.path)
        )
    status, media, body, *_ = messages.answer_problem(refusal)
    return Response(body, status, {**messages.DATA_HEADERS, **(error.headers or {})}, media)


class _Static(StaticFiles):
    """The page's own script and styles, with the page's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a static file as a response with the page's headers, to be revalidated by caches."""
        response = await super().get_response(path, scope)
        response.headers.update(messages.DATA_HEADERS | messages.PAGE_HEADERS | {"cache-control": "no-cache"})
        return response
