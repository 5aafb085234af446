"""HTTP messages: checks of request headers, decoding of bodies, answers, and problem details."""

# 1. Request headers: the media type of the body, and the origin of the page that sends it.
# 2. Bodies: read and decode requests within limits of size and depth; encode and send answers.
# 3. Errors as problem details that name the field (RFC 9457).

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, TypeVar

import msgspec
import msgspec.structs
from msgspec import Meta
from starlette.datastructures import QueryParams
from starlette.types import Receive, Send

from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.service import errors
from tacit.service.http.route import Answer, Error, Header, Refusals, Route
from tacit.wire.error_messages import explain_error, explain_invalid_json, locate_error, suggest_fields

# ---- Request headers: the media type of the body, and the origin of the page that sends it

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request that is being answered."""

Headers = Mapping[bytes, bytes]
"""Values of headers by lower-case name."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, if-none-match, traceparent, x-request-id",
    ),
    (b"access-control-max-age", b"600"),
)
"""Headers of the answer to a CORS preflight request."""


CLOUD_EVENTS = b"application/cloudevents+json", b"application/cloudevents-batch+json"
"""Media types of CloudEvents 1.0: one event, and a batch."""


def is_json_request(method: str, headers: Headers, also: Collection[bytes] = ()) -> bool:
    """True if a request has no body, or a body that is JSON by its content type.

    Parameters
    ----------
    method : str
    headers : mapping from bytes to bytes
    also : collection of bytes
        Further media types that are accepted.

    Examples
    --------
    >>> is_json_request("POST", {b"content-type": b"application/json; charset=utf-8"})
    True
    >>> is_json_request("POST", {b"content-length": b"2"}), is_json_request("POST", {})
    (False, True)
    """
    if method in SAFE_METHODS:
        return True
    media = headers.get(b"content-type")
    if media == b"application/json":
        return True
    if media is None:
        chunked = b"transfer-encoding" in headers
        return not chunked and headers.get(b"content-length", b"0") == b"0"
    return media.partition(b";")[0].strip().lower() in (b"application/json", *also)


def is_cross_origin(method: str, headers: Headers, allowed: Collection[bytes] = ()) -> bool:
    """True if a browser sends a request for a page of another origin that is not allowed.

    Browsers report the origin in ``Sec-Fetch-Site``, which pages cannot change, or without TLS in ``Origin``
    (Fetch Metadata, W3C; RFC 6454). Other clients send neither. Navigation, as by a link on another site, is
    allowed.

    Examples
    --------
    >>> is_cross_origin("POST", {b"sec-fetch-site": b"same-site"})
    True
    >>> is_cross_origin("POST", {b"host": b"localhost:8787", b"origin": b"http://localhost:8787"})
    False
    >>> is_cross_origin("POST", {b"origin": b"https://a.example"}, allowed=[b"https://a.example"])
    False
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if origin is not None and origin in allowed:
        return False
    if site is None:
        return origin is not None and origin.partition(b"://")[2] != headers.get(b"host")
    if site in (b"same-origin", b"none"):
        return False
    return method not in SAFE_METHODS or headers.get(b"sec-fetch-mode") != b"navigate"


def make_cors_headers(headers: Headers, allowed: Collection[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the CORS headers by which a page may read the answer; none for origins that are not allowed.

    Examples
    --------
    >>> make_cors_headers({b"origin": b"https://a.example"}, [b"https://a.example"])
    ((b'access-control-allow-origin', b'https://a.example'), (b'vary', b'origin'))
    """
    origin = headers.get(b"origin")
    if origin is None or origin not in allowed:
        return ()
    return (b"access-control-allow-origin", origin), (b"vary", b"origin")


# ---- Bodies in and out, for routes without a framework

Body = TypeVar("Body")

# Bodies over the limit are read up to this many limits: a client that cannot finish sending would not read
# why its body was refused.
DRAINED_LIMITS = 16
NO_CONTENT, NOT_MODIFIED = 204, 304
EMPTY = NO_CONTENT, NOT_MODIFIED
"""Statuses of answers without content."""
BYTES = "application/octet-stream"

PIECE = 65_536
"""Bytes of an answer that are sent at a time; the next piece follows when this one is written."""
LARGE = 262_144
"""Size in bytes above which an answer is large."""
AT_ONCE = 4
"""Large answers that may be in transmission at the same time."""

DATA_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
"""Additional headers of pages, their scripts and styles."""

_raw_data_headers = [(name.encode(), value.encode()) for name, value in DATA_HEADERS.items()]


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Receive the body of a request; None if it exceeds ``limit`` bytes or the client leaves before its end.

    Bytes are counted as they arrive, whatever length the request declares. The rest of a body over the limit
    is received and discarded, up to ``DRAINED_LIMITS`` limits.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    size = len(body)
    while message.get("more_body") and size <= limit * DRAINED_LIMITS:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            body += part
    return body if message["type"] == "http.request" and size <= limit else None


def decode_body(decode: Callable[[bytes], Body], body: bytes, kind: Any = Any) -> Body:
    """Decode a body by ``decode``; convert errors to messages for clients, which name fields of ``kind``.

    Raises
    ------
    msgspec.DecodeError
        If the body is not JSON, not UTF-8, or nested too deep.
    TacitError
        If the body is JSON of another type; the message names the field.

    Examples
    --------
    >>> decode_body(msgspec.json.decode, b'"\\xff"')
    Traceback (most recent call last):
    msgspec.DecodeError: it is not UTF-8
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise explain_error(error, _decode_plain(body), kind) from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("it is not UTF-8") from error
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deep") from error
    except msgspec.DecodeError as error:
        raise msgspec.DecodeError(explain_invalid_json(error, body)) from error


def _decode_plain(body: bytes) -> Any:
    """Decode a body to plain values; None if it is not valid JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_query(query: bytes, kind: type[msgspec.Struct]) -> Any:
    """Convert the query string of an address to a structure; texts are read as numbers where it has numbers.

    Raises
    ------
    TacitError
        If a value has another type, or the structure has no such field.
    """
    parameters = dict(QueryParams(query))
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name in parameters:
        if name not in names:
            hint = suggest_fields(name, kind) or "; leave it out of the address"
            raise TacitError(f"{name}: nothing is asked by this name{hint}")
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise explain_error(error, parameters, kind) from error


def make_headers(answer: Answer) -> list[Header]:
    """Return all headers of an answer: type and length of its content, the usual ones, and its own.

    Statuses 204 and 304 have no headers of content.
    """
    content_headers = [(b"content-type", answer.media.encode()), (b"content-length", b"%d" % answer.size)]
    # An answer without content must not have headers that describe it (RFC 9110, section 8.6).
    return [
        *([] if answer.status in EMPTY else content_headers), *_raw_data_headers, *answer.headers
    ]  # fmt: skip


def encode_lines(headers: Iterable[Header]) -> bytes:
    """Return headers, pairs of name and value, as lines of HTTP.

    Examples
    --------
    >>> encode_lines([(b"allow", b"POST"), (b"vary", b"origin")])
    b'allow: POST\\r\\nvary: origin\\r\\n'
    """
    return b"".join([b"%s: %s\r\n" % header for header in headers])


_DATA_LINES = encode_lines(_raw_data_headers)


def encode_headers(answer: Answer) -> bytes:
    """Return all headers of an answer as encoded lines of HTTP."""
    if answer.headers or answer.status in EMPTY:
        return encode_lines(make_headers(answer))
    fields = answer.media.encode(), len(answer.body), _DATA_LINES
    return b"content-type: %s\r\ncontent-length: %d\r\n%s" % fields


def make_file_answer(parts: Sequence[bytes | memoryview]) -> Answer:
    """Return an answer of status 200 and binary media type with these parts as its content, in order."""
    return Answer(200, BYTES, b"", (), parts)


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer over ASGI; in pieces if it is larger than ``PIECE`` bytes, so that less is buffered."""
    await send({"type": "http.response.start", "status": answer.status, "headers": make_headers(answer)})
    if answer.size > PIECE:
        for part in (answer.body, *answer.parts):
            for first in range(0, len(part), PIECE):
                piece = memoryview(part)[first : first + PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        # All content is sent; the end has none.
        answer = Answer(*answer[:2], b"")
    await send({"type": "http.response.body", "body": b"".join((answer.body, *answer.parts))})


# ---- Errors as answers: problem details for HTTP (RFC 9457) that name the field

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
    "conflict": (409, "It clashes with what was sent before, or is under way"),
    "unavailable": (503, "Nothing can be made durable at present"),
    "unauthorized": (401, "The request has no key that is known"),
    "forbidden": (403, "The key is not for this"),
    "foreign-origin": (403, "The request is from a page of elsewhere"),
    "too-many-requests": (429, "There were too many requests"),
    "unsupported-media-type": (415, "The body is not JSON by its content type"),
    "misdirected": (421, "The request is for another host"),
    "overloaded": (503, "There are too many requests, or open decisions, at once"),
}
"""Status and title of every kind of problem."""

MEDIA = "application/problem+json"
HEADERS = {401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After"}
"""Header that a refusal with a status must have."""


class Problem(msgspec.Struct):
    """The problem with a request (RFC 9457).

    Attributes
    ----------
    type, title : str
    status : int
    detail : str
        The value, and which values are allowed.
    field : str
        The field that was wrong.
    """

    type: Annotated[str, Meta(examples=["urn:tacit:problem:invalid-value"])]
    title: str
    status: int
    detail: str
    field: Annotated[str, Meta(examples=["reward"])]

    @property
    def kind(self) -> str:
        """The kind of problem, as in ``PROBLEMS``: the end of ``type``."""
        return self.type.rpartition(":")[2]


def make_problem(kind: str, field: str, detail: str) -> Problem:
    """Return a problem of a kind in ``PROBLEMS``, about a field.

    Examples
    --------
    >>> make_problem("invalid-value", "reward", "give a number in [0, 1]").status
    422
    """
    status, title = PROBLEMS[kind]
    return Problem(f"urn:tacit:problem:{kind}", title, status, detail, field)


COMMON_ACTIONS = ("decide", "slate", "duel", "feedback", "clicks")
"""Last parts of the paths that are requested most, for which a wrong path gets a suggestion."""


def describe_unknown_path(path: str) -> str:
    """Return the error message for a path that does not exist; it suggests a similar path if there is one."""
    # ``tail`` follows the last /placements/; it is "" if the path has none.
    whole = path.rstrip("/")
    tail, action = ["", *whole.split("/placements/")[1:]][-1], whole.rpartition("/")[2]
    if action in COMMON_ACTIONS and "/" not in tail:
        tail = f"NAME/{action}"
    suggestion = f"/v1/placements/{tail}"
    hint = f"did you mean {suggestion}? " if tail and suggestion != path else ""
    return f"path: there is nothing at {path!r}; {hint}GET /openapi.json lists what there is"


def describe_refusal_headers(status: int) -> dict[str, Any]:
    """Return the OpenAPI description of the header that refusals of this status have.

    {} if they have none.
    """
    if status not in HEADERS:
        return {}
    return {"headers": {HEADERS[status]: {"required": True, "schema": {"type": "string"}}}}


def describe_status(status: int) -> str:
    """Return the titles of all problems with an HTTP status, joined by "; or: "."""
    return "; or: ".join(title for value, title in PROBLEMS.values() if value == status)


def convert_error(error: Error) -> Problem:
    """Convert an error to a problem: its kind by the error's type, its field as the error names it."""
    if isinstance(error, msgspec.ValidationError):
        field, what = locate_error(error)
        return make_problem("invalid-value", field, f"{field}: {what}")
    if isinstance(error, msgspec.MsgspecError):
        return make_problem("malformed-body", "body", f"body: {error}; send one JSON object in UTF-8")
    # Messages begin with the name of the field.
    what = str(error)
    field = error.field if isinstance(error, InvalidValue) else what.partition(":")[0]
    # Clients know these values by JSON's names: null, true, false.
    if isinstance(error, InvalidValue) and (error.value is None or isinstance(error.value, bool)):
        what = f"{field}: {msgspec.json.encode(error.value).decode()} is not allowed; {error.allowed}"
    return make_problem(_find_problem_kind(error, field), field, what)


PROBLEM_KINDS: dict[type[TacitError], str] = {
    errors.UnknownDecision: "unknown-decision",
    errors.RepeatedFeedback: "repeated-feedback",
    errors.InConflict: "conflict",
    errors.Forbidden: "forbidden",
    errors.Busy: "too-many-requests",
    errors.Overloaded: "overloaded",
    errors.NotDurable: "unavailable",
}


def _find_problem_kind(error: TacitError, field: str) -> str:
    """Return the kind of problem in ``PROBLEMS`` for an error, by its type; "invalid-value" by default."""
    if isinstance(error, UnknownName) and field == "placement":
        return "unknown-placement"
    kinds = (kind for error_type, kind in PROBLEM_KINDS.items() if isinstance(error, error_type))
    return next(kinds, "invalid-value")


def answer_problem(problem: Problem, *headers: Header) -> Answer:
    """Return an answer with a problem as its JSON body, the problem's status, and the given headers."""
    return Answer(problem.status, MEDIA, msgspec.json.encode(problem), headers)


def _answer_error(error: Error, route: Route, id: str) -> Answer:
    """Return the answer for an error of a route; for a batch it says that nothing of the batch counts.

    ``id`` is not used; other APIs name it in their answers.
    """
    problem = convert_error(error)
    if route.path.endswith("/batch") and problem.status in (409, 422):
        problem = msgspec.structs.replace(problem, detail=f"{problem.detail} (nothing of the batch counts)")
    return answer_problem(problem)


REFUSALS = Refusals(answer_problem, _answer_error, Problem, MEDIA, describe_status)
