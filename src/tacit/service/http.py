"""The service over HTTP: hot routes as bare ASGI callables, the rest on Starlette."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tacit.errors import TacitError
from tacit.policies import policy_to_spec
from tacit.service import openapi, wire, wire_lists, wire_ubi
from tacit.service.attribution import CORRECTED, LEARNED
from tacit.service.blocks import Block
from tacit.service.engine import Engine
from tacit.service.guard import PLACEMENT_PATH, Guard
from tacit.service.health import ShardHealth
from tacit.service.impressions import Impression
from tacit.service.keys import Keys
from tacit.service.list_routes import ListRoutes, clicks_told, number_asked
from tacit.service.live import Live
from tacit.service.messages import DATA_HEADERS, received, sent
from tacit.service.metrics import Metrics
from tacit.service.page import Page
from tacit.service.personalizer.paths import place_of
from tacit.service.personalizer.routes import PersonalizerRoutes
from tacit.service.placement import Placement
from tacit.service.problems import problem, problem_of
from tacit.service.requests import Told, rewards
from tacit.service.rows import ACTIVATE, EXAMINED, REWARD, DecisionRow
from tacit.service.ubi_routes import UbiRoutes
from tacit.service.validation import checked_within
from tacit.service.wire import Placements, PlacementSummary, Problem, ShardSummary, Status

STATIC = Path(__file__).parent / "static"

JSON = "application/json"
PROBLEM = "application/problem+json"
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

_but_key = attrgetter(
    "arms", "context", "decision_id", "deferred", "relevance", "examination", "session"
)
JUST_A_KEY = (None, None, None, False, None, None, None)

Answer = Callable[[str, Any], Awaitable[msgspec.Struct]]


def application(engine: Engine) -> Guard:
    """Return the ASGI application of an engine, which it starts and stops.

    Parameters
    ----------
    engine : Engine
        Opened, not yet started.
    """
    page, live = Page(engine), Live(engine, PAGE_HEADERS)
    lists = ListRoutes(engine)
    personalizer = PersonalizerRoutes(engine)
    limit, many = engine.config.server.body_limit, engine.config.server.batch_limit

    async def decide(placement: str, request: wire.DecideRequest) -> wire.DecideAnswer:
        known = engine.placement(placement)
        (row,) = await engine.decide_many(placement, [known.checked(*_impression(request))])
        return _decided(known, row, engine.durability(placement))

    async def decide_many(placement: str, request: wire.DecideManyRequest) -> wire.DecideManyAnswer:
        known = engine.placement(placement)
        rows = await engine.decide_many(placement, _impressions(known, request.decisions))
        durability = engine.durability(placement)
        if isinstance(rows, Block) and known.signals is None and not any(rows.column("would")):
            columns = map(rows.column, ("id", "arm", "propensity", "epoch"))
            answers = list(map(wire.DecideAnswer, *columns, repeat(durability)))
        else:
            answers = [_decided(known, row, durability) for row in rows]
        return wire.DecideManyAnswer(answers)

    async def tell(placement: str, told: Told) -> wire.FeedbackAnswer:
        (outcome,) = await engine.tell_many(placement, [told])
        if isinstance(outcome, TacitError):
            raise outcome
        return _recorded(told.decision, outcome, engine.durability(placement))

    async def tell_many(placement: str, told: Sequence[Told]) -> wire.FeedbackManyAnswer:
        outcomes = await engine.tell_many(placement, told)
        ids = [one.decision for one in told]
        return wire.FeedbackManyAnswer(
            list(map(_recorded, ids, outcomes, repeat(engine.durability(placement))))
        )

    def feedback(placement: str, request: wire.FeedbackRequest) -> Awaitable[wire.FeedbackAnswer]:
        told = Told(request.decision_id, REWARD, request.reward, request.feedback_id)
        return tell(placement, told)

    def examined(placement: str, request: wire.EventRequest) -> Awaitable[wire.FeedbackAnswer]:
        return tell(placement, Told(request.decision_id, EXAMINED, None, request.feedback_id))

    def activate(placement: str, request: wire.EventRequest) -> Awaitable[wire.FeedbackAnswer]:
        return tell(placement, Told(request.decision_id, ACTIVATE, None, request.feedback_id))

    def feedback_many(
        placement: str, request: wire.FeedbackManyRequest
    ) -> Awaitable[wire.FeedbackManyAnswer]:
        fields = ((f.decision_id, f.reward, f.feedback_id) for f in request.feedback)
        decisions, values, ids = zip(*fields, strict=True)
        return tell_many(placement, rewards(decisions, values, ids))

    async def clicks(placement: str, request: wire_lists.ClicksRequest) -> wire.FeedbackAnswer:
        return await tell(placement, clicks_told(request))

    async def clicks_many(
        placement: str, request: wire_lists.ClicksManyRequest
    ) -> wire.FeedbackManyAnswer:
        told = [
            checked_within(f"feedback[{i}]", clicks_told, (one,))
            for i, one in enumerate(request.feedback)
        ]
        return await tell_many(placement, told)

    async def standings(request: Request) -> Response:
        query = request.query_params
        try:
            confidence = number_asked("confidence", query.get("confidence", "0.95"))
            name = request.path_params["name"]
            return _response(await lists.standings(name, query.get("key"), confidence))
        except TacitError as error:
            return _refusal(problem_of(error))

    async def mode(placement: str, request: wire.ModeRequest) -> wire.ModeAnswer:
        await engine.switch(placement, request.mode)
        return wire.ModeAnswer(request.mode)

    async def placements(request: Request) -> Response:
        summaries = [
            _summary(placement, engine.shared_seconds(name))
            for name, placement in engine.placements.items()
        ]
        return _response(Placements(summaries, [_shard(shard) for shard in engine.shards()]))

    async def alive(request: Request) -> Response:
        return _response(Status("ok"))

    async def ready(request: Request) -> Response:
        if engine.health().ready:
            return _response(Status("ok"))
        return _refusal(problem("unavailable", "store", "store: commits fail, or it is stopping"))

    async def described(request: Request) -> Response:
        return Response(specification, media_type=JSON, headers=DATA_HEADERS)

    async def measured(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST, headers=DATA_HEADERS)

    async def whole_page(request: Request) -> Response:
        return HTMLResponse(page.whole(), headers=PAGE_HEADERS)

    async def one_key(request: Request) -> Response:
        query = request.query_params
        try:
            shown = page.key(query.get("placement", ""), query.get("key", ""))
        except TacitError as error:
            return _refusal(problem_of(error))
        return HTMLResponse(shown, headers=PAGE_HEADERS)

    async def fragment(request: Request) -> Response:
        return HTMLResponse(page.fragment(), headers=PAGE_HEADERS)

    specification = _encode(openapi.document())
    metrics = Metrics(engine)
    hot = {
        path: _HotRoute(request, answer, many if path.endswith(("batch", "ubi")) else limit)
        for path, request, answer in (
            ("decide", wire.DecideRequest, decide),
            ("feedback", wire.FeedbackRequest, feedback),
            ("examined", wire.EventRequest, examined),
            ("activate", wire.EventRequest, activate),
            ("decide/batch", wire.DecideManyRequest, decide_many),
            ("feedback/batch", wire.FeedbackManyRequest, feedback_many),
            ("mode", wire.ModeRequest, mode),
            ("slate", wire_lists.SlateRequest, lists.slate),
            ("slate/batch", wire_lists.SlateManyRequest, lists.slate_many),
            ("duel", wire_lists.DuelRequest, lists.duel),
            ("duel/batch", wire_lists.DuelManyRequest, lists.duel_many),
            ("clicks", wire_lists.ClicksRequest, clicks),
            ("clicks/batch", wire_lists.ClicksManyRequest, clicks_many),
            ("ubi", wire_ubi.UbiRequest, UbiRoutes(engine).take),
        )
    }
    rest = Starlette(
        routes=[
            Route("/v1/placements", placements),
            Route("/v1/placements/{name}/duels", standings),
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route("/metrics", measured),
            Route("/openapi.json", described),
            Route("/", whole_page),
            Route("/key", one_key),
            Route("/fragment/placements", fragment),
            Route("/live", live.stream),
            Mount("/static", _Static(directory=STATIC)),
        ],
        exception_handlers={HTTPException: _http_problem},
        lifespan=_lifespan(engine),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        place = PLACEMENT_PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        route = hot.get(place[2]) if place else None
        if place is not None and route is not None:
            await route(place[1], scope, receive, send)
            return
        asked = place_of(scope["path"]) if scope["type"] == "http" else None
        if asked is not None:
            await personalizer(asked, scope, receive, send)
        else:
            await rest(scope, receive, send)

    return Guard(app, engine.config.server, Keys(engine.config.keys), metrics, live.close)


def _lifespan(engine: Engine) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    return lifespan


def _shard(shard: ShardHealth) -> ShardSummary:
    events = None if shard.health is None else shard.health.events
    return ShardSummary(
        shard.number,
        shard.pid,
        shard.up,
        shard.losses,
        shard.recovery_seconds,
        shard.waiting,
        events,
    )


def _summary(placement: Placement, shared_seconds: float | None) -> PlacementSummary:
    return PlacementSummary(
        name=placement.name,
        kind=placement.config.kind,
        mode=placement.mode,
        durability=placement.config.durability,
        policy=policy_to_spec(placement.config.policy),
        arms=placement.arms,
        keys=placement.key_count,
        decisions=placement.decisions,
        feedback=placement.feedback,
        rewards=placement.series.rewards,
        pending=placement.pending,
        outcomes=dict(placement.outcomes),
        seed=placement.seed,
        shared_seconds=shared_seconds,
    )


def _impression(request: wire.DecideRequest) -> tuple[Any, ...]:
    return request.key, *_but_key(request)


def _impressions(
    placement: Placement, requests: Sequence[wire.DecideRequest]
) -> Sequence[Impression]:
    """Return many requests as the placement takes them, checked."""
    if all(map(JUST_A_KEY.__eq__, map(_but_key, requests))):
        # Where a key does not fit, the other way says which.
        with contextlib.suppress(TacitError):
            return placement.checked_keys([request.key for request in requests])
    return [
        checked_within(f"decisions[{i}]", placement.checked, _impression(request))
        for i, request in enumerate(requests)
    ]


def _decided(placement: Placement, row: DecisionRow, durability: Any) -> wire.DecideAnswer:
    would = None if row.would is None else wire.Would(row.would, row.would_propensity)
    signals = None if placement.signals is None else placement.signals.of(row)
    return wire.DecideAnswer(row.id, row.arm, row.propensity, row.epoch, durability, would, signals)


def _recorded(id: str, outcome: str | TacitError, durability: Any) -> wire.FeedbackAnswer:
    if isinstance(outcome, TacitError):
        outcome = problem_of(outcome).type.rpartition(":")[2]
    return wire.FeedbackAnswer(id, outcome in (LEARNED, CORRECTED), outcome, durability)


class _HotRoute:
    """A POST that takes one structure and answers with another, without a framework's detours."""

    def __init__(self, request: type[msgspec.Struct], answer: Answer, limit: int) -> None:
        self._decode = msgspec.json.Decoder(request).decode
        self._answer = answer
        self._limit = limit

    async def __call__(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            refusal = problem("method-not-allowed", "method", "method: this path takes POST")
            await _send_problem(send, refusal, (b"allow", b"POST"))
            return
        body = await received(receive, self._limit)
        if body is None:
            refusal = problem(
                "body-too-large", "body", f"body: send at most {self._limit} bytes in one request"
            )
            await _send_problem(send, refusal, (b"connection", b"close"))
            return
        try:
            request = self._decode(body)
            answer = await self._answer(name, request)
        except (TacitError, msgspec.MsgspecError) as error:
            await _send_problem(send, problem_of(error))
            return
        await sent(send, 200, JSON, _encode(answer))


async def _send_problem(send: Send, refusal: Problem, *headers: tuple[bytes, bytes]) -> None:
    await sent(send, refusal.status, PROBLEM, _encode(refusal), *headers)


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
