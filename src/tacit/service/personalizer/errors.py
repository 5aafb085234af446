"""Errors in the form of the Personalizer API."""

from __future__ import annotations

import msgspec

from tacit.errors import TacitError
from tacit.service.errors import UnknownDecision
from tacit.service.personalizer.wire import ErrorResponse, InnerError, PersonalizerError
from tacit.service.problems import problem_of
from tacit.service.wire import Problem

CODES = {
    "rank": "InvalidRankRequest",
    "multislot/rank": "InvalidRankRequest",
    "events/*/reward": "InvalidRewardRequest",
    "multislot/events/*/reward": "InvalidRewardRequest",
    "events/*/activate": "InvalidEventIdToActivate",
    "multislot/events/*/activate": "InvalidEventIdToActivate",
    "configurations/service": "InvalidServiceConfiguration",
    "configurations/policy": "InvalidPolicyConfiguration",
    "evaluations": "InvalidEvaluationContract",
}
NAMES = {"decision_id": "eventId", "reward": "value"}
"""How the API calls what others call otherwise."""
BAD_REQUEST, NOT_FOUND, FAILED = "BadRequest", "ResourceNotFound", "InternalServerError"


class Refused(TacitError):
    """What this service does not do; ``code`` is the API's name for it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def answer_of(error: TacitError | msgspec.MsgspecError, action: str) -> tuple[int, ErrorResponse]:
    """Return status and body for an error of an action."""
    if isinstance(error, Refused):
        return error.status, _body(error.status, str(error), error.code)
    found = problem_of(error)
    # The API knows no 422: what it cannot take is a bad request.
    status = 400 if found.status == 422 else found.status
    inner = "EventNotFound" if isinstance(error, UnknownDecision) else CODES.get(action)
    field = NAMES.get(found.field, found.field)
    return status, _body(status, field + found.detail.removeprefix(found.field), inner, field)


def refusal_of(found: Problem) -> ErrorResponse:
    """Return the body for what was refused before anybody looked at it."""
    kind = found.type.rpartition(":")[2]
    inner = "".join(word.capitalize() for word in kind.split("-"))
    return _body(found.status, found.detail, inner, found.field)


def _body(status: int, message: str, inner: str | None, target: str | None = None) -> ErrorResponse:
    code = FAILED if status >= 500 else NOT_FOUND if status == 404 else BAD_REQUEST
    return ErrorResponse(
        error=PersonalizerError(
            code=code,
            message=message,
            target=target,
            inner_error=None if inner is None else InnerError(code=inner),
        )
    )
