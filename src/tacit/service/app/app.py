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
from tacit.service.engine.engine import Engine
from tacit.service.engine.service import Service
from tacit.service.http.endpoint import FOUND, Endpoint, Live, written
from tacit.service.http.feeds import Feeds, Hooks
from tacit.service.http.messages import AT_ONCE, DATA_HEADERS, PAGE_HEADERS, problem, refused
from tacit.service.http.metrics import Metrics
from tacit.service.http.site import Site
from tacit.service.page.pages import Pages
from tacit.service.page.timeline import Answers

if TYPE_CHECKING:
    from tacit.service.http.protocol import Connections
from collections.abc import Mapping
from typing import Any

from msgspec import MsgspecError

from tacit.errors import TacitError
from tacit.service.app.guard import LetIn, Visit
from tacit.service.app.routes import PLACEMENTS, find
from tacit.service.http.messages import Headers, request_id
from tacit.service.http.protocol import AnswerUnderWay
from tacit.service.http.route import Addressed, Answer, Path

# ---- The usual requests, one decision and one piece of feedback, without a framework's detours
#
# They pass the same guard, are done by the same endpoints, and are counted and logged alike. What
# they do without is a coroutine, a scope and messages; and whoever sends the bytes of a head again
# that was let in is known by them. All other requests go through uvicorn.


USUAL = "decide", "feedback"
"""Their paths; what answers them waits for nothing but their turn."""
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
    engine : Engine
        What serves them, and its configuration of now.
    """

    def __init__(self, guard: Guard, endpoints: Mapping[Path, Endpoint], engine: Engine) -> None:
        self._guard, self._endpoints, self._engine = guard, endpoints, engine
        self._paths = [PLACEMENTS.paths[name] for name in USUAL]
        self._found: dict[bytes, Addressed] = {}

    def find(self, address: bytes) -> Addressed | None:
        """Return what an address names; None if that is not usual."""
        known = self._found.get(address)
        if known is not None:
            return known
        found = find(address.decode("latin-1"))
        # What strangers ask for must not fill the memory, and how they spell it is uvicorn's.
        if found.path in self._paths and found.name in self._engine.placements and b"%" not in address:
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
        return size if size <= self._engine.config.server.body_limit else None

    @property
    def heads(self) -> Mapping[bytes, LetIn]:
        """What is known of heads that were let in."""
        return self._guard.heads

    def begin(
        self,
        found: Addressed,
        address: bytes,
        headers: Headers,
        head: bytes,
        body: bytes,
        client: tuple[str, int] | None,
        reply: AnswerUnderWay,
    ) -> None:
        """Begin to answer a request."""
        visit = self._guard.enter(found, METHOD, address, headers)
        refusal = self._guard.refusal(visit, client)
        self._guard.remember(head, visit, len(body))
        self._go_on(visit, refusal, body, reply)

    def begin_again(
        self, known: LetIn, body: bytes, client: tuple[str, int] | None, reply: AnswerUnderWay
    ) -> None:
        """Begin to answer a request whose head is known."""
        visit = self._guard.enter_again(known, METHOD)
        self._go_on(visit, self._guard.refusal_again(visit, client), body, reply)

    def _go_on(self, visit: Visit, refusal: Answer | None, body: bytes, reply: AnswerUnderWay) -> None:
        work = _Work(self._guard, visit, self._endpoints[visit.found.path], reply)
        token = request_id.set(visit.id)
        if refusal is not None:
            work.end(refusal)
        else:
            work.begin(self._engine.begin, body)
        request_id.reset(token)


class _Work:
    """A usual request: the :class:`~tacit.service.engine.writer.Waiter` to what it asks."""

    __slots__ = ("_answer", "_done", "_endpoint", "_guard", "_reply", "_route", "_visit")

    def __init__(self, guard: Guard, visit: Visit, endpoint: Endpoint, reply: AnswerUnderWay) -> None:
        self._guard, self._visit, self._endpoint, self._reply = guard, visit, endpoint, reply
        self._route = visit.found.path.routes[METHOD]
        self._done = False

    def begin(self, begin: Callable[[Any, Any], None], body: bytes) -> None:
        """Ask, and be given the result now or later."""
        visit = self._visit
        try:
            asked, self._answer = self._endpoint.asking(self._route, visit.found, body, visit.caller)
            begin(asked, self)
        except BaseException as error:
            self._fail(error)

    def done(self) -> bool:
        """Whether it is answered."""
        return self._done

    def set_result(self, result: Any) -> None:
        """Answer with a result."""
        token = request_id.set(self._visit.id)
        try:
            self.end(written(self._route, self._answer(result)))
        except BaseException as error:
            self._fail(error)
        request_id.reset(token)

    def set_exception(self, error: BaseException) -> None:
        """Answer with an error."""
        token = request_id.set(self._visit.id)
        self._fail(error)
        request_id.reset(token)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, TacitError | MsgspecError):
            self.end(self._endpoint.refusal(self._route, error))
            return
        self._done = True
        self._reply.fail(error)
        self._guard.leave(self._visit, BROKEN)

    def end(self, answer: Answer) -> None:
        """Answer."""
        self._done = True
        self._reply.send(answer, self._visit.id)
        self._guard.leave(self._visit, answer.status)


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
    feeds = Feeds()
    metrics, live = Metrics(engine, connections, feeds), Live(engine, DATA_HEADERS | PAGE_HEADERS)
    answers = Answers(lambda: engine.placements)
    pages, described = Pages(engine, answers, feeds.now), msgspec.json.encode(document())
    site = Site(engine, pages, metrics, described, feeds, Hooks(engine, feeds))
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

    guard = Guard(app, engine.config, metrics, answers, live.close)
    if connections is not None and isinstance(engine, Engine):
        # Without this line, uvicorn does all.
        connections.usual = UsualAnswers(guard, endpoints, engine)
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
