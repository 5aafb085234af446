"""Errors as answers: problem details for HTTP (RFC 9457) that name the field."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.service.config.validation import complaint
from tacit.service.errors import Busy, Conflict, Forbidden, RepeatedFeedback, Unavailable, UnknownDecision
from tacit.service.http.route import Answer, Error, Header, Refusals, Route

PROBLEMS = {
    "malformed-request": (400, "The request is not HTTP"),
    "malformed-body": (400, "The body is not JSON"),
    "timed-out": (408, "The request took too long to arrive"),
    "body-too-large": (413, "The body is too large"),
    "url-too-long": (414, "The address is too long"),
    "headers-too-large": (431, "The headers are too many or too large"),
    "invalid-value": (422, "A value is not allowed"),
    "unknown-placement": (404, "There is no such placement"),
    "unknown-decision": (404, "There is no such decision"),
    "unknown-path": (404, "There is nothing at this path"),
    "method-not-allowed": (405, "This path takes another method"),
    "repeated-feedback": (409, "The decision has had too much feedback"),
    "conflict": (409, "The id stands for something else, or a rebuild is under way"),
    "unavailable": (503, "Nothing can be made durable at present"),
    "unauthorized": (401, "The request has no key that is known"),
    "forbidden": (403, "The key is not for this"),
    "foreign-origin": (403, "The request is from a page of elsewhere"),
    "too-many-requests": (429, "There were too many requests"),
    "unsupported-media-type": (415, "The body is not JSON by its content type"),
    "misdirected": (421, "The request is for another host"),
    "overloaded": (503, "There are too many requests at once"),
}
"""Status and title of every kind of problem."""

MEDIA = "application/problem+json"
HEADERS = {401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After"}
"""What a refusal of a status says in a header."""


class Problem(msgspec.Struct):
    """What was wrong with a request (RFC 9457)."""

    type: Annotated[str, Meta(examples=["urn:tacit:problem:invalid-value"])]
    title: str
    status: int
    detail: Annotated[str, Meta(description="The value, and what is allowed.")]
    field: Annotated[str, Meta(description="The field that was wrong.", examples=["reward"])]


def problem(kind: str, field: str, detail: str) -> Problem:
    """Return the problem of a kind.

    Examples
    --------
    >>> problem("invalid-value", "reward", "give a number in [0, 1]").status
    422
    """
    status, title = PROBLEMS[kind]
    return Problem(f"urn:tacit:problem:{kind}", title, status, detail, field)


def headers_of(status: int) -> dict[str, Any]:
    """Return what the OpenAPI document says of the headers of a refusal."""
    if status not in HEADERS:
        return {}
    return {"headers": {HEADERS[status]: {"required": True, "schema": {"type": "string"}}}}


def meaning(status: int) -> str:
    """Return the titles of all problems of a status."""
    return "; or: ".join(title for value, title in PROBLEMS.values() if value == status)


def problem_of(error: Error) -> Problem:
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
        case Forbidden():
            return "forbidden"
        case Busy():
            return "too-many-requests"
        case UnknownName() if field == "placement":
            return "unknown-placement"
        case Unavailable():
            return "unavailable"
    return "invalid-value"


def refused(found: Problem, *headers: Header) -> Answer:
    """Return a problem as an answer."""
    return Answer(found.status, MEDIA, msgspec.json.encode(found), headers)


def _failed(error: Error, route: Route) -> Answer:
    return refused(problem_of(error))


REFUSALS = Refusals(refused, _failed, Problem, MEDIA, meaning)
