"""The OpenAPI document, assembled from the structures that really travel."""

from __future__ import annotations

from typing import Any

import msgspec

import tacit
from tacit.service import wire
from tacit.service.problems import STATUSES, TITLES

MODELS = (
    wire.DecideRequest,
    wire.DecideAnswer,
    wire.FeedbackRequest,
    wire.FeedbackAnswer,
    wire.Placements,
    wire.Status,
    wire.Problem,
)
REFERENCE = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service."""
    _, schemas = msgspec.json.schema_components(MODELS, ref_template=REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tacit",
            "version": tacit.__version__,
            "description": "Decides what to show, and learns from what came back.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/placements/{name}/decide": {
                "parameters": [_placement_name()],
                "post": _operation(
                    "decide",
                    "Choose an arm for one impression",
                    answer=wire.DecideAnswer,
                    request=wire.DecideRequest,
                    problems=(400, 404, 413, 422, 503),
                ),
            },
            "/v1/placements/{name}/feedback": {
                "parameters": [_placement_name()],
                "post": _operation(
                    "feedback",
                    "Say what came back for a decision",
                    answer=wire.FeedbackAnswer,
                    request=wire.FeedbackRequest,
                    problems=(400, 404, 409, 413, 422, 503),
                ),
            },
            "/v1/placements": {
                "get": _operation("placements", "List the placements", answer=wire.Placements)
            },
            "/healthz": {
                "get": _operation("alive", "Say whether the process runs", answer=wire.Status)
            },
            "/readyz": {
                "get": _operation(
                    "ready",
                    "Say whether decisions can be made durable",
                    answer=wire.Status,
                    problems=(503,),
                )
            },
        },
        "components": {"schemas": schemas},
    }


def _placement_name() -> dict[str, Any]:
    return {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def _operation(
    id: str,
    summary: str,
    *,
    answer: type[msgspec.Struct],
    request: type[msgspec.Struct] | None = None,
    problems: tuple[int, ...] = (),
) -> dict[str, Any]:
    responses = {"200": _content(answer, "application/json", answer.__doc__ or "")}
    for status in problems:
        meanings = [TITLES[kind] for kind, value in STATUSES.items() if value == status]
        responses[str(status)] = _content(
            wire.Problem, "application/problem+json", "; or: ".join(meanings)
        )
    operation: dict[str, Any] = {"operationId": id, "summary": summary, "responses": responses}
    if request is not None:
        body = _content(request, "application/json", request.__doc__ or "")
        operation["requestBody"] = {**body, "required": True}
    return operation


def _content(model: type[msgspec.Struct], media: str, description: str) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(name=model.__name__)}
    return {"description": description, "content": {media: {"schema": schema}}}
