"""Routes of the HTTP API as records, which the server, guard, metrics, traces and OpenAPI document read."""

# 1. ``RouteCall``, ``Answer``, ``Route``: a request, its answer, and the record of a route.
# 2. ``make_split_route``, ``make_route``: make routes of verbs of a placement.
# 3. ``Path``, ``Api``: find the route of an address.

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from tacit.errors import TacitError
from tacit.service.config.keys import ANYBODY, READ, Caller
from tacit.service.log.requests import Decide, Record
from tacit.wire.control import Nothing
from tacit.wire.verbs import Verb, make_schemas

Header = tuple[bytes, bytes]
Limit = Literal["body_limit", "batch_limit", "peer_limit"]
Error = TacitError | msgspec.MsgspecError

UNKNOWN_LABEL = "other"
"""Label in metrics and traces of all addresses that the API does not have."""
GUARDED = (401, 403, 405, 421, 429, 503)
"""Statuses of refusals of routes that need a key."""
POSTED = (*GUARDED, 400, 404, 413, 415, 422)
"""Statuses of refusals of routes that need a key and take a body."""
OPEN = (405, 421, 503)
"""Statuses of refusals of routes without a key."""


class RouteCall(NamedTuple):
    """One request, as handlers receive it.

    Attributes
    ----------
    placement : str or None
        The placement's name in the address; None if there is none.
    id : str
        The id in the address; empty if there is none.
    query : bytes
    request : object
        The body or the query, decoded as the type of the route.
    caller : Caller
        The sender's key and what it may access.
    headers : mapping from bytes to bytes
        The request's headers, for a route that reads them or whose bodies may be signed; empty otherwise.
    """

    placement: Any
    id: str = ""
    query: bytes = b""
    request: Any = None
    caller: Caller = ANYBODY
    headers: Mapping[bytes, bytes] = MappingProxyType({})

    @property
    def key_name(self) -> str | None:
        """The name of the caller's key; None if the service has no keys."""
        return self.caller.name


Handler = Callable[[Any, RouteCall], Awaitable[Any]]
"""Called with the API's service object (``Api.get_service``) and a :class:`RouteCall`; returns the result."""


SplitHandler = Callable[[Any, RouteCall], tuple[Decide | Record, Callable[[Any], Any]]]
"""Called as a handler; returns the engine's request, and a function from its result to an answer."""


class Answer(NamedTuple):
    """An HTTP answer that is ready to be sent.

    Attributes
    ----------
    status : int
    media : str
        Media type of the body.
    body : bytes
    headers : tuple
    parts : sequence of bytes or memoryview
        Content after the body, which answers may share.
    """

    status: int
    media: str
    body: bytes
    headers: tuple[Header, ...] = ()
    parts: Sequence[bytes | memoryview] = ()

    @property
    def size(self) -> int:
        """Size of the content in bytes."""
        return len(self.body) + sum(map(len, self.parts))


BODIED = "POST", "PUT"
"""Methods whose requests have a body."""
MANY = "/batch", "items"
"""Ends of the paths whose bodies hold many requests, so that the batch limit applies."""


class Route(NamedTuple):
    """A method at a path: its handler, types of bodies, access rules and description.

    Attributes
    ----------
    method, path : str
        The path below the prefix of the API, with ``{id}`` for an id.
    operation, summary : str
        Name in the OpenAPI document, and description; a route without a name is left out of it.
    handler : function or None
        Called with the API's service object and a :class:`RouteCall`; returns a structure, an
        :class:`Answer`, bytes, or None for an empty body. None if the framework serves the route.
    request, answer : type or None
        Types of the request's and the answer's body.
    scope : str or None
        The scope that a key must have; None if no key is needed.
    limit : str or None
        The limit of the configuration that applies to the body; None if no body is read.
    problems : tuple of int
        Statuses with which a request may be refused.
    query : tuple of dict
        Parameters of the query, as the OpenAPI document describes them.
    query_type : type or None
        Type of the query; for routes with a body an empty one, so that parameters are refused.
    split_handler : function or None
        The handler split in two, if all that it awaits is the engine.
    accepts_signature : bool
        Whether a sender may sign bodies, as the configuration says, in place of sending a key: the
        handler gets the raw body and checks the signature.
    reads_headers : bool
        Whether the handler gets the request's headers.
    check_head : function or None
        Called with the API's service object and the headers before the body is read, which the handler then
        gets as it is; raises the error that refuses the request.
    placement_source : str
        Where the placement is found that a key must reach: the ``name`` or the ``id`` in the address,
        or the ``query``; ``each`` if the handler selects the placements that the key reaches; or
        ``none``. If ``name`` is given and the address has none, the key must reach all placements.
    """

    method: str
    path: str
    operation: str
    summary: str
    handler: Handler | None
    request: Any = None
    answer: Any = None
    scope: str | None = READ
    limit: Limit | None = None
    problems: tuple[int, ...] = GUARDED
    query: tuple[dict[str, Any], ...] = ()
    query_type: Any = None
    placement_source: Literal["name", "id", "query", "each", "none"] = "name"
    split_handler: SplitHandler | None = None
    accepts_signature: bool = False
    reads_headers: bool = False
    check_head: Callable[[Any, Mapping[bytes, bytes]], None] | None = None


def join_handler(split_handler: SplitHandler) -> Handler:
    """Return a handler that makes the engine's request, awaits its result, and converts it to an answer."""

    async def handler(service: Any, call: RouteCall) -> Any:
        """Let the service serve the engine's request for a call, and return the answer."""
        request, answer = split_handler(service, call)
        return answer(await service.serve(request))

    return handler


def make_split_route(verb: Verb[Any], split_handler: SplitHandler) -> Route:
    """Return the route of a verb with a split handler: the engine serves its requests in groups."""
    return make_route(verb, join_handler(split_handler))._replace(split_handler=split_handler)


def make_route(verb: Verb[Any], handler: Handler) -> Route:
    """Return the route of a placement's verb, with limit, scope and statuses of refusal from the verb.

    If the verb's method takes no body, the verb's request type describes the query.
    """
    common = verb.path, verb.name, verb.summary, handler
    if verb.method in BODIED:
        limit: Limit = "batch_limit" if verb.path.endswith(MANY) else "body_limit"
        problems = *POSTED, *verb.problems
        return Route(
            verb.method, *common, verb.request, verb.answer, verb.scope, limit, problems, query_type=Nothing
        )
    problems = *GUARDED, 404, *verb.problems
    return Route(
        verb.method, *common, None, verb.answer, verb.scope, None, problems,
        query=tuple(_list_parameters(verb.request)), query_type=verb.request,
    )  # fmt: skip


def _list_parameters(query_type: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """Yield the fields of a structure as OpenAPI descriptions of query parameters."""
    _, schemas = make_schemas([query_type])
    for name, field in schemas[query_type.__name__]["properties"].items():
        # Optional parameters are left out of an address, never null: only their first type applies.
        schema = next(iter(field.get("anyOf", [field])))
        description = (
            {"description": text} if (text := field.pop("description", schema.pop("description", ""))) else {}
        )
        yield {"name": name, "in": "query", **description, "schema": schema}


class Path:
    """All routes of one path.

    Parameters
    ----------
    api : Api
    path : str or None
        The path of the routes; None for all paths that the API does not have.
    routes : iterable of Route

    Attributes
    ----------
    routes : dict of Route
        Routes by method.
    template : str
        The whole address, with ``{name}`` for a placement.
    label : str
        Label in metrics.
    """

    def __init__(self, api: Api, path: str | None, routes: Iterable[Route] = ()) -> None:
        self.api = api
        self.routes = {route.method: route for route in routes}
        if "GET" in self.routes:
            self.routes["HEAD"] = self.routes["GET"]
        self.template = self.label = UNKNOWN_LABEL
        if path is not None:
            self.template = api.template + path
            self.label = api.label + path.replace("{id}", "*")

    def scope(self, method: str) -> str | None:
        """Return the scope that a key must have for a method; None if no key is needed.

        For a method that the path does not have, it is the scope of the path's first route.
        """
        routes = self.routes
        route = routes.get(method) or next(iter(routes.values()), None)
        return READ if route is None else route.scope

    def accepts_signature(self, method: str) -> bool:
        """True if a sender may sign the body of this method instead of sending a key."""
        return method in self.routes and self.routes[method].accepts_signature


class RouteMatch(NamedTuple):
    """The path that an address matches, with the placement's name and the id in it, if any."""

    path: Path
    name: str | None = None
    id: str = ""


class AdmittedHead(NamedTuple):
    """The parsed head of an admitted request, for later requests with the same bytes.

    Attributes
    ----------
    route_match : RouteMatch
    address : bytes
    size : int
        Size of the body in bytes.
    caller : Caller
    """

    route_match: RouteMatch
    address: bytes
    size: int
    caller: Caller


class Refusals(NamedTuple):
    """How an API answers requests that it refuses.

    Attributes
    ----------
    answer_problem : function
        Returns the answer for a problem; more headers may be given after it.
    answer_error : function
        Returns the answer for an error that the handler of a route raised, with the id in the address.
    body, media : type, str
        Type and media type of the body of these answers.
    describe_status : function
        Returns the description of a status for the OpenAPI document.
    """

    answer_problem: Callable[..., Answer]
    answer_error: Callable[[Error, Route, str], Answer]
    body: type[msgspec.Struct]
    media: str
    describe_status: Callable[[int], str]


class Api:
    """Routes below one prefix.

    Parameters
    ----------
    template : str
        The prefix in the OpenAPI document and traces, with ``{name}`` for a placement.
    prefix : str
        The prefix as a regular expression, with the group ``name`` for a placement.
    routes : iterable of Route
    refusals : Refusals
    get_service : function
        Returns the service object that handlers get, from a :class:`~tacit.service.http.site.Site`.
    label : str
        The prefix in metrics.
    is_exclusive : bool
        Whether the API also answers unknown paths below the prefix.
    """

    def __init__(
        self,
        template: str,
        prefix: str,
        routes: Iterable[Route],
        refusals: Refusals,
        get_service: Callable[[Any], Any],
        *,
        label: str = "",
        is_exclusive: bool = False,
    ) -> None:
        self.template, self.label, self.refusals = template, label, refusals
        self.get_service, self.is_exclusive = get_service, is_exclusive
        self._pattern = re.compile(f"{prefix}(?P<rest>.+)", re.DOTALL)
        self._has_name = "name" in self._pattern.groupindex
        routes_by_path: dict[str, list[Route]] = {}
        for route in routes:
            routes_by_path.setdefault(route.path, []).append(route)
        self.paths = {path: Path(self, path, routes_there) for path, routes_there in routes_by_path.items()}
        self.unknown = Path(self, None)
        self._id_patterns = [
            (re.compile(re.escape(text).replace(r"\{id\}", inner), re.DOTALL), path)
            for text, path in self.paths.items()
            if "{id}" in text
            # ``inner`` is the pattern of the id. A placement's name has no slash: a path below its page is
            # mostly one that lacks its /v1.
            for inner in ["([^/]+)" if next(iter(path.routes.values())).placement_source == "id" else "(.+)"]
        ]

    def find(self, address: str) -> RouteMatch | None:
        """Return the path, placement and id that an address matches.

        None if it is not an address of this API.

        For an address below its prefix that matches no path, an exclusive API returns its ``unknown`` path.
        """
        match = self._pattern.fullmatch(address)
        if match is None:
            return None
        name = match["name"] if self._has_name else None
        path = self.paths.get(match["rest"])
        if path is not None:
            return RouteMatch(path, name)
        for pattern, path in self._id_patterns:
            inner = pattern.fullmatch(match["rest"])
            if inner is not None:
                return RouteMatch(path, name, inner[1])
        return RouteMatch(self.unknown, name) if self.is_exclusive else None
