"""Errors in the form of the Personalizer API."""

from __future__ import annotations

from msgspec.json import encode

from tacit.errors import TacitError
from tacit.service.errors import UnknownDecision
from tacit.service.http.problems import Problem, problem_of
from tacit.service.http.route import Answer, Error, Header, Refusals, Route
from tacit.service.personalizer.wire import ErrorResponse, InnerError, PersonalizerError

CODES = {
    "rank": "InvalidRankRequest",
    "multislot/rank": "InvalidRankRequest",
    "events/{id}/reward": "InvalidRewardRequest",
    "multislot/events/{id}/reward": "InvalidRewardRequest",
    "events/{id}/activate": "InvalidEventIdToActivate",
    "multislot/events/{id}/activate": "InvalidEventIdToActivate",
    "configurations/service": "InvalidServiceConfiguration",
    "configurations/policy": "InvalidPolicyConfiguration",
    "evaluations": "InvalidEvaluationContract",
    "evaluations/{id}": "InvalidEvaluationContract",
}
OF_PATHS = {
    "unknown-path": "ResourceNotFound",
    "method-not-allowed": "BadRequest",
    "body-too-large": "PayloadSizeExceeded",
}
"""How the API calls what is wrong with no field of a request."""
NAMES = {"decision_id": "eventId", "reward": "value"}
"""How the API calls what others call otherwise."""
BAD_REQUEST, NOT_FOUND, FAILED = "BadRequest", "ResourceNotFound", "InternalServerError"


class Refused(TacitError):
    """What this service does not do; ``code`` is the API's name for it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def _failed(error: Error, route: Route) -> Answer:
    if isinstance(error, Refused):
        return _answer(error.status, str(error), error.code)
    found = problem_of(error)
    # The API knows no 422: what it cannot take is a bad request.
    status = 400 if found.status == 422 else found.status
    inner = "EventNotFound" if isinstance(error, UnknownDecision) else CODES.get(route.path)
    field = NAMES.get(found.field, found.field)
    return _answer(status, field + found.detail.removeprefix(found.field), inner, field)


def _refused(found: Problem, *headers: Header) -> Answer:
    kind = found.type.rpartition(":")[2]
    if kind in OF_PATHS:
        return _answer(found.status, found.detail, OF_PATHS[kind], None, *headers)
    inner = "".join(word.capitalize() for word in kind.split("-"))
    return _answer(found.status, found.detail, inner, found.field, *headers)


def _answer(
    status: int, message: str, inner: str | None, target: str | None = None, *headers: Header
) -> Answer:
    code = FAILED if status >= 500 else NOT_FOUND if status == 404 else BAD_REQUEST
    inner_error = None if inner is None else InnerError(code=inner)
    error = PersonalizerError(code=code, message=message, target=target, inner_error=inner_error)
    return Answer(status, "application/json", encode(ErrorResponse(error=error)), headers)


REFUSALS = Refusals(_refused, _failed, ErrorResponse, "application/json", lambda status: "It was refused")
