"""The part of the OpenAPI document that is the Personalizer API, below one of its addresses."""

from __future__ import annotations

from typing import Any

import msgspec

from tacit.service.personalizer import wire

PREFIX = "/personalizer/v1.0"
REFUSALS = (400, 401, 403, 404, 409, 413, 415, 421, 429, 503)
KEY_SCHEME = {
    "subscription": {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
}

OPERATIONS: tuple[tuple[str, str, str, str, Any, Any, int], ...] = (
    ("post", "rank", "rank", "Choose one of the actions",
     wire.RankRequest, wire.RankResponse, 201),
    ("post", "events/{id}/reward", "reward", "Say what an event was worth",
     wire.RewardRequest, None, 204),
    ("post", "events/{id}/activate", "activateEvent", "Let a deferred event count",
     None, None, 204),
    ("post", "multislot/rank", "rankSlots", "Choose an action for each slot",
     wire.MultiSlotRankRequest, wire.MultiSlotRankResponse, 201),
    ("post", "multislot/events/{id}/reward", "rewardSlots", "Say what its slots were worth",
     wire.MultiSlotRewardRequest, None, 204),
    ("post", "multislot/events/{id}/activate", "activateSlots", "Let a deferred event count",
     None, None, 204),
    ("get", "configurations/service", "configuration", "Say how rewards are waited for",
     None, wire.ServiceConfiguration, 200),
    ("put", "configurations/service", "configure", "Change that, from now on",
     wire.ServiceConfiguration, wire.ServiceConfiguration, 200),
    ("get", "configurations/policy", "policy", "Name the policy",
     None, wire.PolicyContract, 200),
    ("put", "configurations/policy", "setPolicy", "Confirm the policy",
     wire.PolicyContract, wire.PolicyContract, 200),
    ("get", "model/properties", "modelProperties", "Say when something was learned",
     None, wire.ModelProperties, 200),
    ("get", "logs/properties", "logProperties", "Say what the log holds",
     None, wire.LogsProperties, 200),
    ("get", "evaluations", "evaluations", "List offline evaluations",
     None, list[wire.Evaluation], 200),
    ("post", "evaluations", "evaluate", "Begin an offline evaluation",
     wire.EvaluationContract, wire.Evaluation, 201),
    ("get", "evaluations/{id}", "evaluation", "Return an offline evaluation",
     None, wire.Evaluation, 200),
    ("delete", "evaluations/{id}", "forgetEvaluation", "Forget an offline evaluation",
     None, None, 204),
)  # fmt: skip

MODELS = tuple(
    dict.fromkeys(
        [
            model
            for *_, request, answer, _ in OPERATIONS
            for model in (request, answer)
            if isinstance(model, type) and issubclass(model, msgspec.Struct)
        ]
        + [wire.Evaluation, wire.ErrorResponse]
    )
)


def paths(reference: str) -> dict[str, Any]:
    """Return the operations by their addresses.

    Parameters
    ----------
    reference : str
        Where a schema is found, with ``{name}`` for its name.
    """
    found: dict[str, Any] = {}
    for method, path, id, summary, request, answer, status in OPERATIONS:
        item = found.setdefault(f"{PREFIX}/{path}", {})
        if "{id}" in path:
            schema = {"type": "string", "minLength": 1, "maxLength": wire.LONGEST}
            item["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": schema}]
        good = {"description": summary} | _content(answer, reference)
        bad = {"description": "It was refused"} | _content(wire.ErrorResponse, reference)
        operation = {
            "operationId": f"personalizer_{id}",
            "summary": summary,
            "responses": {str(status): good, **{str(refused): bad for refused in REFUSALS}},
        }
        if request is not None:
            operation["requestBody"] = _content(request, reference) | {"required": True}
        item[method] = operation
    return found


def _content(model: Any, reference: str) -> dict[str, Any]:
    if model is None:
        return {}
    if isinstance(model, type) and issubclass(model, msgspec.Struct):
        schema: dict[str, Any] = {"$ref": reference.format(name=model.__name__)}
    else:
        inner = {"$ref": reference.format(name=wire.Evaluation.__name__)}
        schema = {"type": "array", "items": inner}
    return {"content": {"application/json": {"schema": schema}}}
