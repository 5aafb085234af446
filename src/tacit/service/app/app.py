"""The service over HTTP: every route of the table as an endpoint, behind the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
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
from tacit.service.app.usual import UsualAnswers
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

STATIC = Path(__file__).parent.parent / "page" / "static"


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
