"""The table of all routes of the service, and the OpenAPI document made from it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

import tacit
from tacit.service.adapters.ofrep import OFREP
from tacit.service.http import site, verbs
from tacit.service.http.messages import REFUSALS, describe_refusal_headers
from tacit.service.http.route import Api, Path, Route, RouteMatch
from tacit.service.log.requests import LONGEST_ID
from tacit.wire.verbs import make_schemas

# ---- The table of all routes

PLACEMENTS = Api(
    "/v1/placements/{name}/", "/v1/placements/(?P<name>[^/]+)/", verbs.ROUTES, REFUSALS, attrgetter("engine")
)
SITE = Api("", "", site.ROUTES, REFUSALS, lambda site: site)
PEERS = Api("/v1/shards/", "/v1/shards/", site.PEER_ROUTES, REFUSALS, lambda site: site)
APIS = PLACEMENTS, PEERS, SITE, OFREP


def find(address: str) -> RouteMatch:
    """Return the route of a path, with the names in it; the site's route of unknown paths if there is none.

    Examples
    --------
    >>> addressed = find("/v1/placements/home/decide")
    >>> addressed.path.template, addressed.name
    ('/v1/placements/{name}/decide', 'home')
    >>> find("/ofrep/v1/evaluate/flags/home").id
    'home'
    >>> find("/favicon.ico").path.label
    'other'
    """
    for api in APIS:
        addressed = api.find(address)
        if addressed is not None:
            return addressed
    return RouteMatch(SITE.unknown)


# ---- The OpenAPI document, made from the table of routes and the structures of requests and answers

SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
ID = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID}
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service, made from the table of routes."""
    paths = [path for api in APIS for path in api.paths.values()]
    routes = [route for path in paths for route in path.routes.values() if route.operation]
    bodies = [body for route in routes for body in (route.request, route.answer)]
    bodies = [*dict.fromkeys([*bodies, *(api.refusals.body for api in APIS)])]
    bodies = [body for body in bodies if body not in (None, bytes)]
    references, schemas = make_schemas(bodies)
    schema_of = dict(zip(bodies, references, strict=True))
    # Types cannot say that one of two fields must be there.
    schemas["Clicks"]["oneOf"] = [_require_list("clicks"), _require_list("items")]
    items = {path.template: _describe_path(path, schema_of) for path in paths}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tacit",
            "version": tacit.__version__,
            "description": "Decides what to show, and learns from what came back.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {template: item for template, item in items.items() if item},
        "components": {"schemas": schemas, "securitySchemes": SCHEMES},
        "security": [{}, *({scheme: []} for scheme in SCHEMES)],
    }


def _require_list(name: str) -> dict[str, Any]:
    """Return a JSON schema of objects that must have a list in the field ``name``."""
    return {"required": [name], "properties": {name: {"type": "array"}}}


def _describe_path(path: Path, schema_of: dict[Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI item of a path: its parameters and operations; {} if none is documented."""
    routes = [route for method, route in path.routes.items() if method != "HEAD"]
    routes = [route for route in routes if route.operation]
    if not routes:
        return {}
    schemas = {"name": {"type": "string"}, "id": ID}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in schemas.items()
        if f"{{{name}}}" in path.template
    ]
    parameters += [parameter for route in routes for parameter in route.query]
    item: dict[str, Any] = {"parameters": parameters} if parameters else {}
    return item | {route.method.lower(): _describe_operation(path, route, schema_of) for route in routes}


def _describe_operation(path: Path, route: Route, schema_of: dict[Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI operation of a route: its summary, request body, and answers by status."""
    refusals = path.api.refusals
    answers: dict[int, dict[str, Any]] = {200: {"description": _read_summary(route.answer) or route.summary}}
    if route.answer is bytes:
        answers[200]["content"] = BINARY
    elif route.answer is not None:
        answers[200] |= _make_content(schema_of[route.answer])
    for status in route.problems:
        refusal = _make_content(schema_of[refusals.body], refusals.media) | describe_refusal_headers(status)
        answers[status] = {"description": refusals.describe_status(status)} | refusal
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "responses": {str(status): answers[status] for status in sorted(answers)},
    }
    if route.request is not None:
        body = {"description": _read_summary(route.request)} | _make_content(schema_of[route.request])
        operation["requestBody"] = {**body, "required": True}
    return operation


def _make_content(schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    """Return the OpenAPI content of a body, by its schema and media type."""
    return {"content": {media: {"schema": schema}}}


def _read_summary(body: Any) -> str:
    """Return the first paragraph of a ``msgspec.Struct`` class's docstring; "" for other types."""
    is_struct = isinstance(body, type) and issubclass(body, msgspec.Struct)
    return (body.__doc__ or "").partition("\n\n")[0] if is_struct else ""
