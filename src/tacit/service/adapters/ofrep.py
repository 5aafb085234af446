"""OpenFeature Remote Evaluation Protocol (OFREP): placements as flags, decisions as evaluations."""

# 1. Structures of requests and answers.
# 2. ``evaluate``: one flag, a decision as any other, logged and durable.
# 3. ``evaluate_all``: all flags of a caller, deferred decisions, which count once they are activated.
# 4. ``make_etag``: flags that a client holds stay valid, so that nothing is decided again for it.
# 5. Failures as the protocol has them, and ``OFREP``, the table of routes.

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tacit.core.checks import ONLY_KEY
from tacit.errors import InvalidValue, TacitError
from tacit.service.config.holdout import USER
from tacit.service.config.keys import DECIDE
from tacit.service.engine.engine import Engine
from tacit.service.http.endpoint import JSON
from tacit.service.http.messages import NOT_MODIFIED, Problem, convert_error, describe_status
from tacit.service.http.route import GUARDED, Answer, Api, Error, Header, Refusals, Route, RouteCall
from tacit.service.log.requests import check_id
from tacit.service.placements.placement import Placement

# ---- Requests and answers of the OpenFeature Remote Evaluation Protocol (OFREP, version 0.3)

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


class BulkEvaluationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One context for all flags.

    Attributes
    ----------
    context : dict of str to object, default {}
        As for one flag, without `decision_id`. `deferred` is true if left out.
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


class EvaluationFailure(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The reason why a flag has no value; the client uses its default.

    Attributes
    ----------
    key : str, optional
        The flag; left out where all flags are asked for.
    errorCode, errorDetails : str
    """

    key: str = ""
    error_code: ErrorCode
    error_details: str


class BulkEvaluationAnswer(msgspec.Struct):
    """The values of all flags that the key of the request reaches.

    Attributes
    ----------
    flags : list of objects
        For each placement of arms or lists, its evaluation, or the failure of it.
    """

    flags: list[dict[str, Any]]


# ---- One flag

TARGETING_KEY = "targetingKey"
BOOLEANS = {"true": True, "false": False}


class TargetingKeyMissing(InvalidValue):
    """The placement needs a user, and the evaluation context has none."""


async def evaluate(engine: Engine, call: RouteCall) -> EvaluationAnswer | Answer:
    """Decide for one impression, log the decision, and return the evaluation of the flag, or a failure.

    A failure of the protocol is returned if the decision is refused.
    """
    try:
        return await _evaluate_flag(engine, call.id, call.request.context)
    except (TacitError, msgspec.ValidationError) as error:
        return _answer_problem(convert_error(error), flag=call.id, code=_find_code(error))


async def _evaluate_flag(engine: Engine, flag: str, context: dict[str, Any]) -> EvaluationAnswer:
    """Decide for the placement that a flag names, log the decision, and return the evaluation.

    Raises ``InvalidValue`` for placements that compare rankers.
    """
    placement = engine.placement(flag)
    form = placement.kind.form
    if placement.kind.showing.compared:
        raise InvalidValue(
            "placement", flag, f"a flag is a placement of arms or lists, not of {placement.kind.name}"
        )
    request = _make_request(form.verb.request, context, placement)
    (row,) = await engine.decide_many(flag, [form.read(placement, request)])
    answer = form.write(placement, row, placement.config.durability)
    value = _read_value(placement, answer)
    metadata = EvaluationMetadata(answer.decision_id, answer.epoch, answer.durability, answer.propensity)
    # A decision with a propensity was drawn at random.
    reason: Any = "TARGETING_MATCH" if answer.propensity is None else "SPLIT"
    return EvaluationAnswer(flag, value, _format_value(value), reason, metadata)


def _make_request(kind: type[msgspec.Struct], context: dict[str, Any], placement: Placement) -> Any:
    """Return a decision request of type ``kind`` from the fields of an evaluation context.

    Attributes that the placement's context declares become the request's ``context``, the targeting key
    becomes its ``user``; other attributes are ignored. Raises ``msgspec.ValidationError`` if a value has a
    wrong type, and ``TargetingKeyMissing`` if the placement needs a user.
    """
    if placement.reader.encoder is not None:
        fields_of_context = {
            name: context[name] for name in placement.reader.encoder.fields if name in context
        }
        context = {"context": fields_of_context} | context
    fields = {name: context[name] for name in kind.__struct_fields__ if name in context}
    if (user := _read_targeting_key(context)) is not None:
        fields.setdefault("user", user)
    if fields.get("user") is None and _needs_user(placement):
        remedy = f"placement {placement.name!r} keeps users apart: send the user's id as {TARGETING_KEY}"
        raise TargetingKeyMissing(TARGETING_KEY, None, remedy)
    return msgspec.convert({"key": ONLY_KEY} | fields, kind)


def _needs_user(placement: Placement) -> bool:
    """True if users of a placement stay in their group, or keep their arms."""
    by_user = placement.holdout is not None and placement.holdout.unit == USER
    return by_user or placement.config.sticky is not None


def _read_targeting_key(context: dict[str, Any]) -> str | None:
    """Return the valid targeting key of an evaluation context; None if it is left out, null or empty.

    Raises
    ------
    InvalidValue
        If it is no valid id.
    """
    targeting_key = context.get(TARGETING_KEY)
    if targeting_key in (None, ""):
        return None
    if not isinstance(targeting_key, str):
        raise InvalidValue(TARGETING_KEY, targeting_key, 'give the user\'s id as text, such as "17"')
    return check_id(TARGETING_KEY, targeting_key)


def _read_value(placement: Placement, answer: Any) -> Value:
    """Return a flag's value: a list of arms, True or False if the arms are named so, else the arm."""
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


# ---- All flags at once

WHOLE = 429, 503
"""Statuses of errors that refuse all flags together: the service cannot answer at present."""


async def evaluate_all(engine: Engine, call: RouteCall) -> Answer:
    """Decide for all placements that the caller reaches, and return the evaluations with an entity tag.

    Placements of duels are left out. If the client's tag is still valid, nothing is decided, and the status
    is 304.

    Raises
    ------
    TacitError
        If the context fits no flag, or the service cannot answer at present.
    """
    context = {"deferred": True} | call.request.context
    _read_targeting_key(context)
    if "decision_id" in context:
        raise InvalidValue(
            "decision_id", context["decision_id"], "leave it out: each flag has a decision of its own"
        )
    reached = [
        placement
        for name, placement in engine.placements.items()
        if call.caller.reaches(name) and not placement.kind.showing.compared
    ]
    now = engine.clock()
    known_tags = call.headers.get(b"if-none-match", b"").decode("latin-1")
    for tag in known_tags.split(","):
        if is_valid_etag(tag.strip().removeprefix("W/"), context, reached, now):
            return Answer(NOT_MODIFIED, "", b"", ((b"etag", tag.strip().encode("latin-1")),))
    evaluations = (_evaluate_one_of_all(engine, placement.name, context) for placement in reached)
    flags = await asyncio.gather(*evaluations)
    tag = make_etag(context, reached, now)
    # A page of another origin reads only headers that are named to its browser.
    headers = (b"etag", tag.encode()), (b"access-control-expose-headers", b"etag")
    body = msgspec.json.encode(BulkEvaluationAnswer([msgspec.to_builtins(flag) for flag in flags]))
    return Answer(200, JSON, body, headers)


async def _evaluate_one_of_all(
    engine: Engine, flag: str, context: dict[str, Any]
) -> EvaluationAnswer | EvaluationFailure:
    """Return the evaluation of a flag, or its failure; raise errors that concern all flags."""
    try:
        return await _evaluate_flag(engine, flag, context)
    except (TacitError, msgspec.ValidationError) as error:
        problem = convert_error(error)
        if problem.status in WHOLE:
            raise
        code = _find_code(error) or CODES.get(problem.kind, "GENERAL")
        return EvaluationFailure(key=flag, error_code=code, error_details=problem.detail)


# ---- Entity tags: how long the flags that a client holds stay valid

TAG_DIGITS = 20


def make_etag(context: dict[str, Any], placements: Sequence[Placement], time: int) -> str:
    """Return the entity tag of flags evaluated at a time (microseconds).

    It depends on the context, the flags, and their settings by hand or configuration. Learning does not
    change it, so that a user sees the same arms.
    """
    terms = [context, time, *map(_list_terms, placements)]
    digest = hashlib.sha256(msgspec.json.encode(terms, order="deterministic")).hexdigest()
    return f'"{digest[:TAG_DIGITS]}-{time:x}"'


def is_valid_etag(tag: str, context: dict[str, Any], placements: Sequence[Placement], time: int) -> bool:
    """True if a tag is of the same context, flags and settings, and its decisions can still be activated.

    It is valid for half of the shortest time in which a decision can be activated, and at most until a pin
    ends.
    """
    try:
        begin = int(tag.strip('"').partition("-")[2], 16)
    except ValueError:
        return False
    ends = [begin + placement.config.rule.activation / 2 for placement in placements]
    pins = (placement.pins.last for placement in placements)
    ends += [pin.until for pin in pins if pin is not None and pin.until > begin]
    return begin <= time < min(ends, default=0) and tag == make_etag(context, placements, begin)


def _list_terms(placement: Placement) -> list[Any]:
    """Return the settings of a placement that an entity tag depends on.

    They are arms, items, pin, mode, holdout, and the policy's version; not what was learned.
    """
    version = placement.policy_version
    return [
        placement.name,
        placement.lifecycle.current(),
        None if placement.items is None else placement.items.get_status().version,
        placement.pins.current(),
        placement.mode,
        placement.control.current(),
        None if version is None else (version.number, version.left),
    ]


# ---- Failures

CODES: dict[str, ErrorCode] = {
    "unknown-placement": "FLAG_NOT_FOUND",
    "invalid-value": "INVALID_CONTEXT",
    "malformed-body": "PARSE_ERROR",
}
"""The protocol's code for a kind of problem; for others it is ``GENERAL``."""


def _find_code(error: Error) -> ErrorCode | None:
    """Return the protocol's code of an error, if it has a special one; None otherwise."""
    return "TARGETING_KEY_MISSING" if isinstance(error, TargetingKeyMissing) else None


def _answer_problem(
    problem: Problem, *headers: Header, flag: str = "", code: ErrorCode | None = None
) -> Answer:
    """Return the answer to a problem, as a failure of the protocol.

    The statuses 409 and 422 become 400, as the protocol demands.
    """
    status = {422: 400, 409: 400}.get(problem.status, problem.status)
    code = code or CODES.get(problem.kind, "GENERAL")
    body = EvaluationFailure(key=flag, error_code=code, error_details=problem.detail)
    return Answer(status, JSON, msgspec.json.encode(body), headers)


def _answer_error(error: Error, route: Route, flag: str) -> Answer:
    """Return the answer to an error, as a failure of the protocol; ``route`` is not used."""
    return _answer_problem(convert_error(error), flag=flag)


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
        Route(
            "POST",
            "evaluate/flags",
            "evaluateFlags",
            "Choose for all placements at once, as OpenFeature asks in browsers",
            evaluate_all,
            BulkEvaluationRequest,
            BulkEvaluationAnswer,
            DECIDE,
            "body_limit",
            (*GUARDED, 400, 404, 413, 415),
            placement_source="each",
            reads_headers=True,
        ),
    ),
    Refusals(_answer_problem, _answer_error, EvaluationFailure, JSON, describe_status),
    lambda site: site.engine,
    label="ofrep/",
    is_exclusive=True,
)
