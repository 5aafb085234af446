"""A route is one record: what serves, guards, counts, traces and describes it reads the same."""

# 1. ``Route``: one record of what is done, by whom, and how it is described.
# 2. ``asking_route``, ``route_of``: the routes of a placement.
# 3. ``Path``, ``Api``: how an address finds its route.

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
from tacit.wire.verbs import Verb, schemas_of

Header = tuple[bytes, bytes]
Limit = Literal["body_limit", "batch_limit"]
Error = TacitError | msgspec.MsgspecError

OTHER = "other"
"""What metrics and traces call every address that is none of ours."""
GUARDED = (401, 403, 405, 421, 429, 503)
"""What may be refused wherever a key is asked for."""
POSTED = (*GUARDED, 400, 404, 413, 415, 422)
"""What a body may be refused with, whatever it asks for."""
OPEN = (405, 421, 503)
"""What may be refused where none is."""


class RouteCall(NamedTuple):
    """What a handler is given.

    Attributes
    ----------
    placement : str or None
        The name in the address, None without one.
    id : str
        The id in the address; empty without one.
    query : bytes
    request : object
        The body, or what the address asks for, decoded as the route says.
    caller : Caller
        Who asks.
    headers : mapping from bytes to bytes
        Of a route whose bodies may be signed; empty otherwise.
    """

    placement: Any
    id: str = ""
    query: bytes = b""
    request: Any = None
    caller: Caller = ANYBODY
    headers: Mapping[bytes, bytes] = MappingProxyType({})

    @property
    def who(self) -> str | None:
        """The name of the key that was sent; None without keys."""
        return self.caller.name


Handler = Callable[[Any, RouteCall], Awaitable[Any]]
"""Called with what the API opened for a service, and a :class:`RouteCall`."""


Asking = Callable[[Any, RouteCall], tuple[Decide | Record, Callable[[Any], Any]]]
"""Returns, likewise, what the one who serves groups is asked, and what makes an answer of the result."""


class Answer(NamedTuple):
    """An answer, ready to be sent.

    Attributes
    ----------
    status : int
    media : str
    body : bytes
    headers : tuple
    parts : sequence of bytes or memoryview
        What follows the body; others may be sent the same.
    """

    status: int
    media: str
    body: bytes
    headers: tuple[Header, ...] = ()
    parts: Sequence[bytes | memoryview] = ()

    @property
    def size(self) -> int:
        """How many bytes its content has."""
        return len(self.body) + sum(map(len, self.parts))


BODIED = "POST", "PUT"
"""Methods whose requests have a body."""
MANY = "/batch", "items"
"""Ends of paths that take many things in one body."""


class Route(NamedTuple):
    """What is done, by whom, and how it is described, for a method at a path.

    Attributes
    ----------
    method, path : str
        The path below the prefix of its API, with ``{id}`` for an id.
    operation, summary : str
        Its name in the OpenAPI document, and what it does; without a name it is not in there.
    handler : function or None
        Called with what the API opened for a service, and a :class:`RouteCall`; returns a structure, an
        :class:`Answer`, bytes, or None for nothing. None where a framework serves it.
    request, answer : type or None
        What its bodies hold.
    scope : str or None
        What a key must be for; None if no key is asked for.
    limit : str or None
        Which limit of the configuration its body has; None if no body is read.
    problems : tuple of int
        What it may be refused with.
    query : tuple of dict
        Its parameters, as the OpenAPI document says them.
    asked : type or None
        What they are decoded into; beside a body, to refuse what it should have said.
    asking : function or None
        The handler in two halves, where all that it awaits is its turn.
    signed : bool
        Whether a sender may sign its bodies, as the configuration says, in place of a key: the handler
        is given the body as it came, and checks that.
    of : str
        Which placement it is about, for keys that reach some: that of the address by its ``name``
        or its ``id``, or that of the ``query``; ``each`` that the key reaches, as its handler sees
        to; or ``none``. Without a placement, ``name`` is for keys that reach all.
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
    asked: Any = None
    of: Literal["name", "id", "query", "each", "none"] = "name"
    asking: Asking | None = None
    signed: bool = False


def awaited(asking: Asking) -> Handler:
    """Return the handler that awaits what is asked for."""

    async def handler(service: Any, call: RouteCall) -> Any:
        request, answer = asking(service, call)
        return answer(await service.serve(request))

    return handler


def asking_route(verb: Verb[Any], asking: Asking) -> Route:
    """Return the route of what can be asked of a placement in groups."""
    return route_of(verb, awaited(asking))._replace(asking=asking)


def route_of(verb: Verb[Any], handler: Handler) -> Route:
    """Return the route of what can be asked of a placement."""
    common = verb.path, verb.name, verb.summary, handler
    if verb.method in BODIED:
        limit: Limit = "batch_limit" if verb.path.endswith(MANY) else "body_limit"
        problems = *POSTED, *verb.problems
        return Route(
            verb.method, *common, verb.request, verb.answer, verb.scope, limit, problems, asked=Nothing
        )
    problems = *GUARDED, 404, *verb.problems
    return Route(
        verb.method, *common, None, verb.answer, verb.scope, None, problems,
        query=tuple(_parameters(verb.request)), asked=verb.request,
    )  # fmt: skip


def _parameters(asked: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """Yield what a structure asks for as parameters of an address, as the OpenAPI document says them."""
    _, schemas = schemas_of([asked])
    for name, field in schemas[asked.__name__]["properties"].items():
        # What may be left out is never null in an address.
        schema = next(iter(field.get("anyOf", [field])))
        said = (
            {"description": text} if (text := field.pop("description", schema.pop("description", ""))) else {}
        )
        yield {"name": name, "in": "query", **said, "schema": schema}


class Path:
    """All routes of one path.

    Parameters
    ----------
    api : Api
    path : str or None
        As the routes have it; None for all that the API has not.
    routes : iterable of Route

    Attributes
    ----------
    routes : dict of Route
        By their methods.
    template : str
        The whole address, with ``{name}`` for a placement.
    label : str
        What metrics call it.
    """

    def __init__(self, api: Api, path: str | None, routes: Iterable[Route] = ()) -> None:
        self.api = api
        self.routes = {route.method: route for route in routes}
        if "GET" in self.routes:
            self.routes["HEAD"] = self.routes["GET"]
        self.template = self.label = OTHER
        if path is not None:
            self.template = api.template + path
            self.label = api.label + path.replace("{id}", "*")

    def scope(self, method: str) -> str | None:
        """Return what a key must be for; None if none is asked for."""
        routes = self.routes
        route = routes.get(method) or next(iter(routes.values()), None)
        return READ if route is None else route.scope

    def signed(self, method: str) -> bool:
        """Whether bodies may be signed in place of a key."""
        return method in self.routes and self.routes[method].signed


class Addressed(NamedTuple):
    """What an address names: a path, perhaps a placement, perhaps an id."""

    path: Path
    name: str | None = None
    id: str = ""


class LetIn(NamedTuple):
    """What is known of a head whose bytes were let in before.

    Attributes
    ----------
    found : Addressed
    address : bytes
    size : int
        Of the body that comes with it.
    caller : Caller
    """

    found: Addressed
    address: bytes
    size: int
    caller: Caller


class Refusals(NamedTuple):
    """How an API says no.

    Attributes
    ----------
    refused : function
        Returns the answer for a problem that was found before any handler was called; headers may
        follow it.
    failed : function
        Returns the answer for an error that a route met.
    body, media : type, str
        What such answers hold, and as what.
    meaning : function
        Returns what a status means, for the document.
    """

    refused: Callable[..., Answer]
    failed: Callable[[Error, Route], Answer]
    body: type[msgspec.Struct]
    media: str
    meaning: Callable[[int], str]


class Api:
    """Routes below one prefix.

    Parameters
    ----------
    template : str
        The prefix as the document and traces tell it, with ``{name}`` for a placement.
    prefix : str
        A regular expression of it, with the group ``name`` for a placement.
    routes : iterable of Route
    refusals : Refusals
    opened : function
        Returns what handlers are given first, from a :class:`~tacit.service.http.site.Site`.
    label : str
        The prefix as metrics tell it.
    whole : bool
        Whether all below the prefix is this API's, also what it does not know.
    """

    def __init__(
        self,
        template: str,
        prefix: str,
        routes: Iterable[Route],
        refusals: Refusals,
        opened: Callable[[Any], Any],
        *,
        label: str = "",
        whole: bool = False,
    ) -> None:
        self.template, self.label, self.refusals = template, label, refusals
        self.opened, self.whole = opened, whole
        self._pattern = re.compile(f"{prefix}(?P<rest>.+)", re.DOTALL)
        self._named = "name" in self._pattern.groupindex
        of_path: dict[str, list[Route]] = {}
        for route in routes:
            of_path.setdefault(route.path, []).append(route)
        self.paths = {path: Path(self, path, routes_there) for path, routes_there in of_path.items()}
        self.unknown = Path(self, None)
        self._with_id = [
            (re.compile(re.escape(path).replace(r"\{id\}", inner), re.DOTALL), of)
            for path, of in self.paths.items()
            if "{id}" in path
            # A placement's name has no slash: what is below its page is mostly asked of it without its /v1.
            for inner in ["([^/]+)" if next(iter(of.routes.values())).of == "id" else "(.+)"]
        ]

    def find(self, address: str) -> Addressed | None:
        """Return what an address names; None if it is not of this API."""
        match = self._pattern.fullmatch(address)
        if match is None:
            return None
        name = match["name"] if self._named else None
        path = self.paths.get(match["rest"])
        if path is not None:
            return Addressed(path, name)
        for pattern, path in self._with_id:
            inner = pattern.fullmatch(match["rest"])
            if inner is not None:
                return Addressed(path, name, inner[1])
        return Addressed(self.unknown, name) if self.whole else None
