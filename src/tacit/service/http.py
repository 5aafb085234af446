"""The service over HTTP: hot routes as bare ASGI callables, the rest on Starlette."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tacit.errors import TacitError
from tacit.policies import policy_to_spec
from tacit.service import openapi
from tacit.service.engine import Engine
from tacit.service.page import Page
from tacit.service.placement import Placement
from tacit.service.problems import problem, problem_of
from tacit.service.wire import (
    DecideAnswer,
    DecideRequest,
    FeedbackAnswer,
    FeedbackRequest,
    Placements,
    PlacementSummary,
    Problem,
    Status,
)

STATIC = Path(__file__).parent / "static"

# So that a client which is still sending gets to read why its body was refused.
DRAINED_LIMITS = 16

JSON = "application/json"
PROBLEM = "application/problem+json"
DATA_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
PAGE_HEADERS = {
    **DATA_HEADERS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}

_encode = msgspec.json.Encoder().encode
_raw_data_headers = [(name.encode(), value.encode()) for name, value in DATA_HEADERS.items()]

Answer = Callable[[str, Any], Awaitable[msgspec.Struct]]


def application(engine: Engine) -> Starlette:
    """Return the ASGI application of an engine, which it starts and stops.

    Parameters
    ----------
    engine : Engine
        Opened, not yet started.
    """
    page = Page(engine)
    limit = engine.config.server.body_limit

    async def decide(placement: str, request: DecideRequest) -> DecideAnswer:
        row = await engine.decide(placement, request.key, request.arms, request.context)
        return DecideAnswer(row.id, row.arm, row.propensity, row.epoch)

    async def feedback(placement: str, request: FeedbackRequest) -> FeedbackAnswer:
        learned = await engine.feedback(placement, request.decision_id, request.reward)
        return FeedbackAnswer(request.decision_id, learned)

    async def placements(request: Request) -> Response:
        return _response(Placements([_summary(p) for p in engine.placements.values()]))

    async def alive(request: Request) -> Response:
        return _response(Status("ok"))

    async def ready(request: Request) -> Response:
        if engine.health().ready:
            return _response(Status("ok"))
        return _refusal(problem("unavailable", "store", "store: commits fail, or it is stopping"))

    async def described(request: Request) -> Response:
        return Response(specification, media_type=JSON, headers=DATA_HEADERS)

    async def whole_page(request: Request) -> Response:
        return HTMLResponse(page.whole(), headers=PAGE_HEADERS)

    async def fragment(request: Request) -> Response:
        return HTMLResponse(page.fragment(), headers=PAGE_HEADERS)

    specification = _encode(openapi.document())
    return Starlette(
        routes=[
            Route("/v1/placements/{name}/decide", _HotRoute(DecideRequest, decide, limit)),
            Route("/v1/placements/{name}/feedback", _HotRoute(FeedbackRequest, feedback, limit)),
            Route("/v1/placements", placements),
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route("/openapi.json", described),
            Route("/", whole_page),
            Route("/fragment/placements", fragment),
            Mount("/static", _Static(directory=STATIC)),
        ],
        exception_handlers={HTTPException: _http_problem},
        lifespan=_lifespan(engine),
    )


def _lifespan(engine: Engine) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    return lifespan


def _summary(placement: Placement) -> PlacementSummary:
    return PlacementSummary(
        name=placement.name,
        policy=policy_to_spec(placement.config.policy),
        arms=placement.arms,
        keys=len(placement.learner.keys),
        decisions=placement.decisions,
        feedback=placement.feedback,
        rewards=placement.series.rewards,
    )


class _HotRoute:
    """A POST that takes one structure and answers with another, without a framework's detours."""

    def __init__(self, request: type[msgspec.Struct], answer: Answer, limit: int) -> None:
        self._decode = msgspec.json.Decoder(request).decode
        self._answer = answer
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            refusal = problem("method-not-allowed", "method", "method: this path takes POST")
            await _send_problem(send, refusal, (b"allow", b"POST"))
            return
        body = await self._body(receive)
        if body is None:
            refusal = problem(
                "body-too-large", "body", f"body: send at most {self._limit} bytes in one request"
            )
            await _send_problem(send, refusal, (b"connection", b"close"))
            return
        try:
            request = self._decode(body)
            answer = await self._answer(scope["path_params"]["name"], request)
        except (TacitError, msgspec.MsgspecError) as error:
            await _send_problem(send, problem_of(error))
            return
        await _send(send, 200, JSON, _encode(answer))

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body, or None if it is over the limit, whatever length it claims."""
        message = await receive()
        body: bytes = message.get("body", b"")
        size = len(body)
        while message.get("more_body") and size <= self._limit * DRAINED_LIMITS:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size <= self._limit:
                body += part
        return body if size <= self._limit else None


async def _send(
    send: Send, status: int, media: str, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    start = [
        (b"content-type", media.encode()),
        (b"content-length", b"%d" % len(body)),
        *_raw_data_headers,
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def _send_problem(send: Send, refusal: Problem, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, refusal.status, PROBLEM, _encode(refusal), *headers)


def _response(answer: msgspec.Struct) -> Response:
    return Response(_encode(answer), media_type=JSON, headers=DATA_HEADERS)


def _refusal(refusal: Problem, headers: Any = None) -> Response:
    return Response(
        _encode(refusal), refusal.status, {**DATA_HEADERS, **(headers or {})}, media_type=PROBLEM
    )


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET")
        refusal = problem("method-not-allowed", "method", f"method: this path takes {allowed}")
    else:
        refusal = problem("unknown-path", "path", f"path: there is nothing at {request.url.path!r}")
    return _refusal(refusal, error.headers)


class _Static(StaticFiles):
    """The page's own script and styles, with the page's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(PAGE_HEADERS | {"cache-control": "no-cache"})
        return response
