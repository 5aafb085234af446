"""What travels in the OpenFeature Remote Evaluation Protocol (OFREP, version 0.2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

ErrorCode = Literal["PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "FLAG_NOT_FOUND", "GENERAL"]
Value = bool | int | str | list[Any]


class EvaluationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One impression: the evaluation context."""

    context: Annotated[
        dict[str, Any],
        Meta(
            description="`targetingKey` is who is asking, for a holdout of users. Of the other "
            "attributes those count that a request for a decision has: `key` (what it is for; "
            "`default` if left out), `arms`, `context`, `relevance`, `examination`, `decision_id`, "
            "`deferred`, `session`, `user`."
        ),
    ] = {}


class EvaluationMetadata(msgspec.Struct, omit_defaults=True):
    """What feedback and evaluation need."""

    decision_id: Annotated[str, Meta(description="Names the decision when feedback comes back.")]
    epoch: int
    durability: str
    propensity: Annotated[float | None, Meta(description="Left out where the policy is deterministic.")] = (
        None
    )


class EvaluationAnswer(msgspec.Struct):
    """What to show, logged: the flag's value."""

    key: Annotated[str, Meta(description="The flag: a placement's name.")]
    value: Annotated[
        Value,
        Meta(
            description="The arm; of lists, the arms, best first; a truth value where the arms "
            "are called `true` and `false`."
        ),
    ]
    variant: Annotated[str, Meta(description="The same as text.")]
    reason: Literal["SPLIT", "TARGETING_MATCH"]
    metadata: EvaluationMetadata


class EvaluationFailure(msgspec.Struct, rename="camel"):
    """Why a flag has no value; the client takes its default."""

    key: str
    error_code: ErrorCode
    error_details: str
