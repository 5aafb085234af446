"""The service over HTTP: every route of the table as an endpoint, behind the guard."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tacit.service.app.guard import Guard
from tacit.service.app.routes import APIS, SITE, document
from tacit.service.config.keys import Keys
from tacit.service.engine.engine import Engine
from tacit.service.engine.service import Service
from tacit.service.http.endpoint import FOUND, Endpoint, Live
from tacit.service.http.messages import AT_ONCE, DATA_HEADERS, PAGE_HEADERS, problem, refused
from tacit.service.http.metrics import Metrics
from tacit.service.http.site import Site
from tacit.service.page.history import Answers
from tacit.service.page.pages import Pages

if TYPE_CHECKING:
    from tacit.service.http.protocol import Connections
from asyncio import Future
from collections.abc import Awaitable, Mapping
from contextvars import copy_context
from typing import Any

from tacit.service.app.guard import Visit
from tacit.service.app.routes import PLACEMENTS, find
from tacit.service.config.schema import ServerConfig
from tacit.service.http.messages import Headers, request_id
from tacit.service.http.protocol import AnswerUnderWay
from tacit.service.http.route import Addressed, Answer, Path

# ---- The usual requests, one decision and one piece of feedback, without a framework's detours
#
# They pass the same guard, are done by the same endpoints, and are counted and logged alike. What
# they do without is a task, a scope and messages. All other requests go through uvicorn.


USUAL = "decide", "feedback"
"""Their paths; what answers them awaits nothing but futures."""
METHOD = "POST"
PECULIAR = frozenset((b"expect", b"transfer-encoding", b"origin", b"sec-fetch-site"))
"""Headers of requests that are not usual."""
BROKEN = 500


class UsualAnswers:
    """Answers the usual requests to the placements that there are.

    Parameters
    ----------
    guard : Guard
    endpoints : mapping of Path to Endpoint
    placements : mapping
        By their names.
    server : function
        Returns the configuration of now, for its limits.
    """

    def __init__(
        self,
        guard: Guard,
        endpoints: Mapping[Path, Endpoint],
        placements: Mapping[str, Any],
        server: Callable[[], ServerConfig],
    ) -> None:
        self._guard, self._endpoints = guard, endpoints
        self._placements, self._server = placements, server
        self._paths = [PLACEMENTS.paths[name] for name in USUAL]
        self._found: dict[bytes, Addressed] = {}

    def find(self, address: bytes) -> Addressed | None:
        """Return what an address names; None if that is not usual."""
        known = self._found.get(address)
        if known is not None:
            return known
        found = find(address.decode("latin-1"))
        # What strangers ask for must not fill the memory, and how they spell it is uvicorn's.
        if found.path in self._paths and found.name in self._placements and b"%" not in address:
            self._found[address] = found
            return found
        return None

    def size(self, headers: Headers) -> int | None:
        """Return the size of the body that comes with some headers; None if they are not usual."""
        if not PECULIAR.isdisjoint(headers):
            return None
        length = headers.get(b"content-length", b"")
        # Ten digits are too long for any limit.
        if not length.isdigit() or len(length) > 9:
            return None
        size = int(length)
        return size if size <= self._server().body_limit else None

    def begin(
        self,
        found: Addressed,
        address: bytes,
        headers: Headers,
        body: bytes,
        client: tuple[str, int] | None,
        reply: AnswerUnderWay,
    ) -> None:
        """Begin to answer a request."""
        visit = self._guard.enter(found, METHOD, address, headers)
        refusal = self._guard.refusal(visit, client)
        if refusal is not None:
            _finish(self._guard, visit, reply, refusal)
            return
        work = self._endpoints[found.path].answer(METHOD, found, b"", body, visit.caller)
        _Work(self._guard, visit, work, reply).begin()


class _Work:
    """An endpoint's work for one request, taken further whenever what it awaits has come."""

    __slots__ = ("_guard", "_reply", "_steps", "_visit")

    def __init__(self, guard: Guard, visit: Visit, work: Awaitable[Answer], reply: AnswerUnderWay) -> None:
        self._guard, self._visit, self._reply = guard, visit, reply
        self._steps = work.__await__()

    def begin(self) -> None:
        """Work, in a context that knows whose work it is."""
        context = copy_context()
        context.run(request_id.set, self._visit.id)
        context.run(self._go_on)

    def _go_on(self, came: Future[Any] | None = None) -> None:
        try:
            awaited = self._steps.send(None)
        except StopIteration as end:
            _finish(self._guard, self._visit, self._reply, end.value)
        except BaseException as error:
            self._reply.fail(error)
            self._guard.leave(self._visit, BROKEN)
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._go_on)


def _finish(guard: Guard, visit: Visit, reply: AnswerUnderWay, answer: Answer) -> None:
    reply.send(answer, visit.id)
    guard.leave(visit, answer.status)


# ---- The application: every route of the table as an endpoint, behind the guard


STATIC = pathlib.Path(__file__).parent.parent / "page" / "static"


def application(engine: Service, connections: Connections | None = None) -> Guard:
    """Return the ASGI application of an engine, which it starts and stops.

    Parameters
    ----------
    engine : Service
        Opened, not yet started.
    connections : Connections, optional
        Those of the server that it runs in, for its metrics.
    """
    metrics, live = Metrics(engine, connections), Live(engine, DATA_HEADERS | PAGE_HEADERS)
    answers = Answers(lambda: engine.placements)
    site = Site(engine, Pages(engine, answers), metrics, msgspec.json.encode(document()))
    endpoints, places = {}, asyncio.Semaphore(AT_ONCE)
    for api in APIS:
        opened = api.opened(site)
        for path in (*api.paths.values(), api.unknown):
            endpoints[path] = Endpoint(path, opened, lambda: engine.config.server, places)
    rest = Starlette(
        routes=[
            Route("/live", live.stream),
            Mount("/static", _Static(directory=STATIC)),
            # Their addresses with a slash at the end lead to them.
            *(Route(path.template, endpoints[path]) for path in SITE.paths.values()),
        ],
        exception_handlers={HTTPException: _http_problem},
        lifespan=_lifespan(engine),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Only requests name an address, not the beginning and the end.
        path = scope[FOUND].path if FOUND in scope else SITE.unknown
        if path.api is SITE:
            await rest(scope, receive, send)
        else:
            await endpoints[path](scope, receive, send)

    guard = Guard(app, engine.config.server, Keys(engine.config.keys), metrics, answers, live.close)
    if connections is not None and isinstance(engine, Engine):
        # Without this line, uvicorn does all.
        connections.usual = UsualAnswers(guard, endpoints, engine.placements, lambda: engine.config.server)
    return guard


def _lifespan(engine: Service) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    return lifespan


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET")
        refusal = problem("method-not-allowed", "method", f"method: this path takes {allowed}")
    else:
        refusal = problem("unknown-path", "path", f"path: there is nothing at {request.url.path!r}")
    status, media, body, *_ = refused(refusal)
    return Response(body, status, {**DATA_HEADERS, **(error.headers or {})}, media)


class _Static(StaticFiles):
    """The page's own script and styles, with the page's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(DATA_HEADERS | PAGE_HEADERS | {"cache-control": "no-cache"})
        return response
