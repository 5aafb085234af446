"""OpenFeature Remote Evaluation Protocol (OFREP): placements as flags, decisions as evaluations."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tacit.core.checks import ONLY_KEY
from tacit.errors import InvalidValue, TacitError
from tacit.service.config.keys import DECIDE
from tacit.service.engine.service import Service
from tacit.service.http.endpoint import JSON
from tacit.service.http.messages import Problem, convert_error, describe_status
from tacit.service.http.route import GUARDED, Answer, Api, Error, Header, Refusals, Route, RouteCall
from tacit.service.placements.placement import Placement

# ---- Requests and answers of the OpenFeature Remote Evaluation Protocol (OFREP, version 0.2)

ErrorCode = Literal["PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "FLAG_NOT_FOUND", "GENERAL"]
Value = bool | int | str | list[Any]


class EvaluationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One impression: the evaluation context.

    Attributes
    ----------
    context : dict of str to object, default {}
        `targetingKey` is the user, for a holdout of users. The other attributes are the fields of a
        decision request: `key` (`default` if left out), `arms`, `context`, `relevance`,
        `examination`, `decision_id`, `deferred`, `session`, `user`; the rest is ignored.
    """

    context: dict[str, Any] = {}


class EvaluationMetadata(msgspec.Struct, omit_defaults=True):
    """Metadata for feedback and evaluation.

    Attributes
    ----------
    decision_id : str
        Id of the decision, for its feedback.
    epoch : int
    durability : str
    propensity : float, optional
        Left out if the policy is deterministic.
    """

    decision_id: str
    epoch: int
    durability: str
    propensity: float | None = None


class EvaluationAnswer(msgspec.Struct):
    """The flag's value: the arm or arms to show, logged.

    Attributes
    ----------
    key : str
        The flag: a placement's name.
    value : bool, int, str or list
        The arm; of lists, the arms, best first; a truth value where the arms are called `true` and
        `false`.
    variant : str
        The same as text.
    reason : str
    metadata : EvaluationMetadata
    """

    key: str
    value: Value
    variant: str
    reason: Literal["SPLIT", "TARGETING_MATCH"]
    metadata: EvaluationMetadata


class EvaluationFailure(msgspec.Struct, rename="camel"):
    """The reason why a flag has no value; the client uses its default."""

    key: str
    error_code: ErrorCode
    error_details: str


# ---- The route of the OpenFeature Remote Evaluation Protocol: a placement is a flag
#
# An evaluation is a decision like any other, logged and durable. There is no evaluation of all flags at
# once: it would decide for placements that are not shown.

TARGETING_KEY = "targetingKey"
BOOLEANS = {"true": True, "false": False}


async def evaluate(engine: Service, call: RouteCall) -> EvaluationAnswer | Answer:
    """Decide for one impression, log the decision, and return the evaluation of the flag.

    If the decision is refused, a failure of the protocol is returned.
    """
    try:
        return await _evaluate_flag(engine, call)
    except (TacitError, msgspec.ValidationError) as error:
        return _answer_problem(convert_error(error), flag=call.id)


async def _evaluate_flag(engine: Service, call: RouteCall) -> EvaluationAnswer:
    """Decide for the placement that the flag names, log the decision, and return the evaluation.

    Raises ``InvalidValue`` for placements that compare rankers.
    """
    placement = engine.placement(call.id)
    form = placement.kind.form
    if placement.kind.showing.compared:
        raise InvalidValue(
            "placement", call.id, f"a flag is a placement of arms or lists, not of {placement.kind.name}"
        )
    request = _make_request(form.verb.request, call.request.context, placement)
    (row,) = await engine.decide_many(call.id, [form.read(placement, request)])
    answer = form.write(placement, row, engine.durability(call.id))
    value = _read_value(placement, answer)
    metadata = EvaluationMetadata(answer.decision_id, answer.epoch, answer.durability, answer.propensity)
    # A decision with a propensity was drawn at random.
    reason: Any = "TARGETING_MATCH" if answer.propensity is None else "SPLIT"
    return EvaluationAnswer(call.id, value, _format_value(value), reason, metadata)


def _make_request(kind: type[msgspec.Struct], context: dict[str, Any], placement: Placement) -> Any:
    """Return the decision request, of type ``kind``, with the fields that an evaluation context has of it.

    Attributes that the placement's context declares become the request's ``context``, the targeting key its
    ``user``; other attributes are ignored. Raises ``msgspec.ValidationError`` if a value has a wrong type.
    """
    if placement.reader.encoder is not None:
        fields_of_context = {
            name: context[name] for name in placement.reader.encoder.fields if name in context
        }
        context = {"context": fields_of_context} | context
    fields = {name: context[name] for name in kind.__struct_fields__ if name in context}
    if TARGETING_KEY in context:
        fields.setdefault("user", context[TARGETING_KEY])
    return msgspec.convert({"key": ONLY_KEY} | fields, kind)


def _read_value(placement: Placement, answer: Any) -> Value:
    """Return the flag's value: a list of arms, a truth value if the arms are true and false, else the arm."""
    if placement.kind.showing.listed:
        return list(answer.slate)
    if set(placement.offer.arms) == set(BOOLEANS):
        return BOOLEANS[answer.arm]
    arm: int | str = answer.arm
    return arm


def _format_value(value: Value) -> str:
    """Format a flag's value as text: a list with commas, truth values as "true" and "false"."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _answer_problem(problem: Problem, *headers: Header, flag: str = "") -> Answer:
    """Return the answer that reports a problem as a failure of the protocol.

    The statuses 409 and 422 become 400, as the protocol says.
    """
    code: Any = {
        "unknown-placement": "FLAG_NOT_FOUND",
        "invalid-value": "INVALID_CONTEXT",
        "malformed-body": "PARSE_ERROR",
    }.get(problem.kind, "GENERAL")
    status = {422: 400, 409: 400}.get(problem.status, problem.status)
    body = EvaluationFailure(flag, code, problem.detail)
    return Answer(status, JSON, msgspec.json.encode(body), headers)


def _answer_error(error: Error, route: Route) -> Answer:
    """Return the answer that reports an error as a failure of the protocol; ``route`` is not used."""
    return _answer_problem(convert_error(error))


OFREP = Api(
    "/ofrep/v1/",
    "/ofrep/v1/",
    (
        Route(
            "POST",
            "evaluate/flags/{id}",
            "evaluateFlag",
            "Choose for one impression, as OpenFeature asks",
            evaluate,
            EvaluationRequest,
            EvaluationAnswer,
            DECIDE,
            "body_limit",
            (*GUARDED, 400, 404, 413, 415),
            placement_source="id",
        ),
    ),
    Refusals(_answer_problem, _answer_error, EvaluationFailure, JSON, describe_status),
    lambda site: site.engine,
    label="ofrep/",
    is_exclusive=True,
)
