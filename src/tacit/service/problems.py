"""Errors as answers: problem details for HTTP (RFC 9457) that name the field."""

from __future__ import annotations

import msgspec

from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.service.errors import Conflict, RepeatedFeedback, Unavailable, UnknownDecision
from tacit.service.validation import complaint
from tacit.service.wire import Problem

TITLES = {
    "malformed-body": "The body is not JSON",
    "body-too-large": "The body is too large",
    "invalid-value": "A value is not allowed",
    "unknown-placement": "There is no such placement",
    "unknown-decision": "There is no such decision",
    "unknown-path": "There is nothing at this path",
    "method-not-allowed": "This path takes another method",
    "repeated-feedback": "The decision has had too much feedback",
    "conflict": "The id stands for something else",
    "unavailable": "Nothing can be made durable at present",
}
STATUSES = {
    "malformed-body": 400,
    "unknown-placement": 404,
    "unknown-decision": 404,
    "unknown-path": 404,
    "method-not-allowed": 405,
    "repeated-feedback": 409,
    "conflict": 409,
    "body-too-large": 413,
    "invalid-value": 422,
    "unavailable": 503,
}


def problem(kind: str, field: str, detail: str) -> Problem:
    """Return the problem of a kind.

    Examples
    --------
    >>> problem("invalid-value", "reward", "give a number in [0, 1]").status
    422
    """
    return Problem(f"urn:tacit:problem:{kind}", TITLES[kind], STATUSES[kind], detail, field)


def problem_of(error: TacitError | msgspec.MsgspecError) -> Problem:
    """Return the problem that stands for an error."""
    if isinstance(error, msgspec.ValidationError):
        field, what = complaint(error)
        return problem("invalid-value", field, f"{field}: {what}")
    if isinstance(error, msgspec.MsgspecError):
        return problem("malformed-body", "body", f"body: {error}; send one JSON object in UTF-8")
    # Every message begins with the field.
    field = error.field if isinstance(error, InvalidValue) else str(error).partition(":")[0]
    return problem(_kind(error, field), field, str(error))


def _kind(error: TacitError, field: str) -> str:
    match error:
        case UnknownDecision():
            return "unknown-decision"
        case RepeatedFeedback():
            return "repeated-feedback"
        case Conflict():
            return "conflict"
        case UnknownName() if field == "placement":
            return "unknown-placement"
        case Unavailable():
            return "unavailable"
    return "invalid-value"
