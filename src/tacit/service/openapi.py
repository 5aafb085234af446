"""The OpenAPI document, assembled from the structures that really travel."""

from __future__ import annotations

from typing import Any

import msgspec

import tacit
from tacit.service import wire, wire_lists, wire_ubi
from tacit.service.personalizer import openapi as personalizer
from tacit.service.problems import STATUSES, TITLES

MODELS = (
    wire.DecideRequest,
    wire.DecideAnswer,
    wire.DecideManyRequest,
    wire.DecideManyAnswer,
    wire.FeedbackRequest,
    wire.FeedbackAnswer,
    wire.FeedbackManyRequest,
    wire.FeedbackManyAnswer,
    wire.EventRequest,
    wire.ModeRequest,
    wire.ModeAnswer,
    wire_lists.SlateRequest,
    wire_lists.SlateAnswer,
    wire_lists.SlateManyRequest,
    wire_lists.SlateManyAnswer,
    wire_lists.DuelRequest,
    wire_lists.DuelAnswer,
    wire_lists.DuelManyRequest,
    wire_lists.DuelManyAnswer,
    wire_lists.ClicksRequest,
    wire_lists.ClicksManyRequest,
    wire_lists.DuelStandings,
    wire_ubi.UbiRequest,
    wire_ubi.UbiAnswer,
    wire.Placements,
    wire.Status,
    wire.Problem,
    *personalizer.MODELS,
)
POSTS = (
    ("decide", "decide", "Choose an arm for one impression",
     wire.DecideRequest, wire.DecideAnswer, (409,)),
    ("decide/batch", "decideMany", "Choose for many impressions, all or none",
     wire.DecideManyRequest, wire.DecideManyAnswer, (409,)),
    ("feedback", "feedback", "Say what came back for a decision",
     wire.FeedbackRequest, wire.FeedbackAnswer, (409,)),
    ("feedback/batch", "feedbackMany", "Say what came back for many decisions",
     wire.FeedbackManyRequest, wire.FeedbackManyAnswer, ()),
    ("examined", "examined", "Say that what was shown was looked at",
     wire.EventRequest, wire.FeedbackAnswer, (409,)),
    ("activate", "activate", "Let a deferred decision count from now on",
     wire.EventRequest, wire.FeedbackAnswer, (409,)),
    ("mode", "mode", "Change the mode of a placement",
     wire.ModeRequest, wire.ModeAnswer, ()),
    ("slate", "slate", "Choose which arms to list",
     wire_lists.SlateRequest, wire_lists.SlateAnswer, (409,)),
    ("slate/batch", "slateMany", "Do so for many impressions, all or none",
     wire_lists.SlateManyRequest, wire_lists.SlateManyAnswer, (409,)),
    ("duel", "duel", "Interleave two of the rankers' lists",
     wire_lists.DuelRequest, wire_lists.DuelAnswer, (409,)),
    ("duel/batch", "duelMany", "Do so for many searches, all or none",
     wire_lists.DuelManyRequest, wire_lists.DuelManyAnswer, (409,)),
    ("clicks", "clicks", "Say what was clicked in a list",
     wire_lists.ClicksRequest, wire.FeedbackAnswer, (409,)),
    ("clicks/batch", "clicksMany", "Say what was clicked in many lists",
     wire_lists.ClicksManyRequest, wire.FeedbackManyAnswer, ()),
    ("ubi", "ubi", "Send records of User Behavior Insights",
     wire_ubi.UbiRequest, wire_ubi.UbiAnswer, ()),
)  # fmt: skip
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
            **{
                f"/v1/placements/{{name}}/{path}": {
                    "parameters": [_placement_name()],
                    "post": _operation(
                        id,
                        summary,
                        answer=answer,
                        request=request,
                        problems=(400, 401, 403, 404, *problems, 413, 415, 421, 422, 429, 503),
                    ),
                }
                for path, id, summary, request, answer, problems in POSTS
            },
            "/v1/placements": {
                "get": _operation(
                    "placements",
                    "List the placements",
                    answer=wire.Placements,
                    problems=(401, 403, 421, 429, 503),
                )
            },
            "/v1/placements/{name}/duels": {
                "parameters": [_placement_name(), *_DUELS_QUERY],
                "get": _operation(
                    "duels",
                    "Say which ranker is best, which are out, and when it is safe to stop",
                    answer=wire_lists.DuelStandings,
                    problems=(404, 422),
                ),
            },
            **personalizer.paths(REFERENCE),
            "/healthz": {
                "get": _operation(
                    "alive", "Say whether the process runs", answer=wire.Status, problems=(421, 503)
                )
            },
            "/readyz": {
                "get": _operation(
                    "ready",
                    "Say whether decisions can be made durable",
                    answer=wire.Status,
                    problems=(421, 503),
                )
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                **personalizer.KEY_SCHEME,
            },
        },
        "security": [{}, {"bearer": []}, {"basic": []}, {"subscription": []}],
    }


_DUELS_QUERY: tuple[dict[str, Any], ...] = (
    {
        "name": "key",
        "in": "query",
        "description": "By default that with the most duels.",
        "schema": {"type": "string"},
    },
    {
        "name": "confidence",
        "in": "query",
        "schema": {
            "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.95,
        },
    },
)  # fmt: skip


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
