"""ASGI applications: an endpoint for each path of the service, and the event stream of its pages."""

# 1. ``Endpoint``: read and decode a request, call the route's handler, encode the answer; only here, errors
#    become problems.
# 2. ``Live``: server-sent events that tell an open page to refresh.

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.config.keys import Caller
from tacit.service.config.schema import ServerConfig
from tacit.service.engine.engine import Engine
from tacit.service.errors import Busy, Overloaded
from tacit.service.http import messages
from tacit.service.http.route import Answer, Error, Path, Route, RouteCall, RouteMatch
from tacit.service.log.requests import Decide, Record

# ---- A path of the service as an ASGI application

JSON = "application/json"
ROUTE_MATCH = "tacit.found"
"""Key of an ASGI scope for the path, placement and id of the address."""
CALLER = "tacit.caller"
"""Key of an ASGI scope for the caller."""

LATER = (b"retry-after", b"5")
encode = msgspec.json.Encoder().encode


class Endpoint:
    """ASGI application for all routes of one path.

    Parameters
    ----------
    path : Path
    service : object
        The first argument of the API's handlers.
    server : function
        Returns the current configuration of the server, for its limits.
    large_answers : Semaphore
        Limits the large answers in transmission over all paths; at the limit, requests are refused.
    """

    def __init__(
        self, path: Path, service: Any, server: Callable[[], ServerConfig], large_answers: Semaphore
    ) -> None:
        self._path, self._service, self._server, self._large_answers = path, service, server, large_answers
        self._decode = {
            method: msgspec.json.Decoder(route.request).decode
            for method, route in path.routes.items()
            if route.request is not None and not route.accepts_signature
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the handler of its route; errors of the request become problems.

        A large answer to a reading request is refused if too many are in transmission.
        """
        answer, api = await self._answer_request(scope, receive), self._path.api
        # A request that changed something always gets its answer; its size is bounded by the request's.
        if answer.size <= messages.LARGE or scope["method"] not in messages.SAFE_METHODS:
            await messages.send_answer(send, answer)
        elif self._large_answers.locked():
            what = "service: as many large answers as may be are on their way; ask again later"
            refusal = messages.make_problem("too-many-requests", "service", what)
            await messages.send_answer(send, api.refusals.answer_problem(refusal, LATER))
        else:
            async with self._large_answers:
                await messages.send_answer(send, answer)

    async def _answer_request(self, scope: Scope, receive: Receive) -> Answer:
        """Read the body, call the route's handler, and return its answer or one that refuses the request.

        Refused are unknown paths, wrong methods, too large bodies, and requests for which the handler raises
        a TacitError.
        """
        routes, refusals = self._path.routes, self._path.api.refusals
        if not routes:
            return refusals.answer_problem(
                messages.make_problem("unknown-path", "path", messages.describe_unknown_path(scope["path"]))
            )
        route = routes.get(scope["method"])
        if route is None:
            allowed = ", ".join(routes)
            what = f"method: {scope['method']!r} is not allowed; this path takes {allowed}"
            refusal = messages.make_problem("method-not-allowed", "method", what)
            return refusals.answer_problem(refusal, (b"allow", allowed.encode()))
        if route.check_head is not None:
            try:
                route.check_head(self._service, dict(scope["headers"]))
            except TacitError as error:
                return self.refusal(route, error)
        body = b""
        if route.limit is not None:
            limit = getattr(self._server(), route.limit)
            content = await messages.read_body(receive, limit)
            if content is None:
                what = f"body: send at most {limit} bytes in one request"
                refusal = messages.make_problem("body-too-large", "body", what)
                return refusals.answer_problem(refusal, (b"connection", b"close"))
            body = content
        assert route.handler is not None
        try:
            call = self._make_call(route, scope[ROUTE_MATCH], scope["query_string"], body, scope[CALLER])
            if route.accepts_signature or route.check_head is not None:
                call = call._replace(request=body)
            if route.accepts_signature or route.reads_headers:
                call = call._replace(headers=dict(scope["headers"]))
            result = await route.handler(self._service, call)
        except (TacitError, msgspec.MsgspecError) as error:
            return self.refusal(route, error, scope[ROUTE_MATCH].id)
        return make_answer(result)

    def read_request(
        self, route: Route, route_match: RouteMatch, body: bytes, caller: Caller
    ) -> tuple[Decide | Record, Callable[[Any], Any]]:
        """Decode the body of a route whose requests are queued.

        Return the request, and a function for the answer.

        The function converts the engine's result to an answer. Raises an error if the caller may not use the
        placement or the body is invalid.
        """
        assert route.split_handler is not None
        if caller.placements is not None:
            caller.check(self._find_placement(route, route_match, b""))
        try:
            request = self._decode[route.method](body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Decode again, for an error message that names the field.
            request = messages.decode_body(self._decode[route.method], body, route.request)
        return route.split_handler(
            self._service, RouteCall(route_match.name, route_match.id, b"", request, caller)
        )

    def refusal(self, route: Route, error: Error, id: str = "") -> Answer:
        """Return the answer for an error of a request, with a Retry-After header if the service is busy.

        ``id`` is the id in the request's address.
        """
        refusals = self._path.api.refusals
        if isinstance(error, Busy | Overloaded):
            return refusals.answer_problem(messages.convert_error(error), LATER)
        return refusals.answer_error(error, route, id)

    def _make_call(
        self, route: Route, route_match: RouteMatch, query: bytes, body: bytes, caller: Caller
    ) -> RouteCall:
        """Check that the caller may use the placement; return the decoded request for the handler.

        Decoded is the body, or the query's parameters if the route takes no body.

        Raises
        ------
        TacitError, msgspec.MsgspecError
            If the caller may not use the placement, or if body or query are invalid.
        """
        decode = self._decode.get(route.method)
        if caller.placements is not None and route.placement_source not in ("each", "none"):
            caller.check(self._find_placement(route, route_match, query))
        request = None if decode is None else messages.decode_body(decode, body, route.request)
        # With a body, the query is only checked: it must be empty.
        if route.query_type is not None:
            parameters = messages.decode_query(query, route.query_type)
            request = parameters if decode is None else request
        return RouteCall(route_match.name, route_match.id, query, request, caller)

    def _find_placement(self, route: Route, route_match: RouteMatch, query: bytes) -> str | None:
        """Return the name of the placement that a request's address or query contains.

        "" if the query has none, None if the address has none.
        """
        match route.placement_source:
            case "id":
                return route_match.id
            case "query":
                return QueryParams(query).get("placement", "")
        return route_match.name


def make_answer(result: Any) -> Answer:
    """Return a handler's result as an answer.

    An answer is returned as it is, bytes become a file, None an empty body, and anything else JSON.
    """
    if isinstance(result, Answer):
        return result
    if isinstance(result, bytes):
        return Answer(200, messages.BYTES, result)
    return Answer(200, JSON, b"" if result is None else encode(result))


# ---- Server-sent events that tell an open page to refresh

PERIOD = 1.0
"""Least number of seconds between two events."""
PATIENCE = 10.0
"""Seconds after which an event is sent even if nothing was logged, since rates and ages change with time."""
MEDIA = "text/event-stream"


class Live:
    """Streams an event to each open page whenever the log has grown.

    Parameters
    ----------
    engine : Engine
    headers : dict
        Headers of the answers.
    """

    def __init__(self, engine: Engine, headers: dict[str, str]) -> None:
        self._engine, self._headers = engine, headers
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End all open streams: the service stops, or visitors must send their key again."""
        self._closed.set()
        self._closed = asyncio.Event()

    async def stream(self, request: Request) -> StreamingResponse:
        """Return a streaming response to a page, with an event whenever the log has grown."""
        events = self._iterate_events(request.scope[CALLER], self._closed)
        return StreamingResponse(events, headers=self._headers, media_type=MEDIA)

    async def _iterate_events(self, caller: Caller, closed: asyncio.Event) -> AsyncIterator[str]:
        """Yield an event whenever the number of rows has changed, or after ``PATIENCE`` seconds.

        End at ``closed``.
        """
        last_count, quiet_seconds = -1, 0.0
        while not closed.is_set():
            count = self._count_rows(caller)
            if count != last_count or quiet_seconds >= PATIENCE:
                last_count, quiet_seconds = count, 0.0
                yield f"event: changed\ndata: {count}\n\n"
            quiet_seconds += PERIOD
            try:
                await asyncio.wait_for(closed.wait(), PERIOD)
            except TimeoutError:
                continue

    def _count_rows(self, caller: Caller) -> int:
        """Return the number of logged rows; for a key of some placements, of their decisions and feedback."""
        if caller.placements is None:
            return self._engine.health().events
        reached = (p for name, p in self._engine.placements.items() if caller.reaches(name))
        return sum(placement.decisions + placement.feedback for placement in reached)
