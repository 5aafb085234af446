"""Calls of the clients without a transport: requests, retries, decoding of answers, and errors."""

# 1. ``ServiceError``: errors for refused requests.
# 2. Retries: which replies are worth a retry, and after which pause.
# 3. ``Call``: a request that is the same on every try, with the decoder of its answer.
# 4. ``call``: the decorator of methods of both clients, which gives them their types.

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)
from urllib.parse import urlencode

import msgspec
import numpy as np

from tacit.client.bodies import make_body
from tacit.errors import AssumptionWarning, InvalidValue, TacitError
from tacit.wire.verbs import Verb

# ---- Errors for refused requests, which name the field, the value and the remedy

LONGEST_SHOWN = 200


class ServiceError(TacitError):
    """The service refused a request or did not answer; the subclasses distinguish the remedies.

    Parameters
    ----------
    field : str
        The invalid field: ``reward``, ``decisions[1].arms``, ``placement``, ``store``, ``url`` …
    value : object
        The value of the field; None if it is unknown or secret.
    what : str
        The problem with the value and, after the last semicolon, the remedy.
    kind : str
        The end of the problem's type: ``conflict``, ``unknown-decision`` …; ``no-answer`` if there
        was no answer, ``foreign`` if the answer is not from the service.
    status : int or None
        The HTTP status, if there was one.

    Examples
    --------
    >>> error = Conflict("feedback_id", "f", "'f' stands for other feedback; send the same")
    >>> print(error)
    feedback_id: 'f' stands for other feedback; send the same
    >>> error.remedy
    'send the same'
    """

    def __init__(self, field: str, value: Any, what: str, kind: str = "", status: int | None = None) -> None:
        text = repr(value)
        text = text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
        suffix = "" if value is None or text in what else f" (given: {text})"
        super().__init__(f"{field}: {what}{suffix}")
        self.field, self.value, self.what = field, value, what
        self.remedy = what.rpartition("; ")[2]
        self.kind, self.status = kind, status

    def __reduce__(self) -> tuple[type[ServiceError], tuple[Any, ...]]:
        return type(self), (self.field, self.value, self.what, self.kind, self.status)


class InvalidRequest(ServiceError, ValueError):
    """A value is missing, unknown or not allowed: correct the request."""


class NotFound(ServiceError, LookupError):
    """There is no such placement, or the placement never made this decision."""


class Conflict(ServiceError):
    """The id is in use for another request, or the decision has had too much feedback."""


class Denied(ServiceError):
    """The key is missing, unknown, or does not allow the request."""


class Unavailable(ServiceError):
    """The service did not answer, or could not serve the request at present, after all tries.

    Whether the request took effect may be unknown. It is safe to send it again with the same ids.
    """


def get_error_class(status: int) -> type[ServiceError]:
    """Return the class of :class:`ServiceError` for an HTTP status other than 200, or ServiceError itself.

    Examples
    --------
    >>> [get_error_class(status).__name__ for status in (301, 403, 404, 409, 422, 429, 503)]
    ['ServiceError', 'Denied', 'NotFound', 'Conflict', 'InvalidRequest', 'Unavailable',
     'Unavailable']
    """
    if status in ERROR_CLASSES:
        return ERROR_CLASSES[status]
    if status >= 500:
        return Unavailable
    return InvalidRequest if status >= 400 else ServiceError


ERROR_CLASSES: dict[int, type[ServiceError]] = {
    401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 408: Unavailable, 429: Unavailable,
}  # fmt: skip
"""Classes of errors for statuses below 500; for others below 500 it is ``InvalidRequest``."""


# ---- Retries

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
# If the service asks for a longer pause, an error is better than a call that hangs.
LONGEST_RETRY_AFTER = 60.0
MOST_DOUBLINGS = 20

_SECONDS = re.compile(r"[0-9]{1,9}")


class Reply(NamedTuple):
    """The reply to one try: an HTTP response, or a failure of the connection."""

    status: int | None
    body: bytes = b""
    retry_after: str = ""
    failure: str = ""
    shards: str = ""

    @property
    def is_transient(self) -> bool:
        """True if a retry of the same request may succeed."""
        return self.status is None or self.status in (408, 429) or self.status >= 500


def compute_pause(reply: Reply, tries: int, retries: int, now: float, rng: np.random.Generator) -> float:
    """Return the seconds to wait before the next try; infinity if there should be none.

    There is no further try if the reply is final, if all retries are used, or if the service asks for a pause
    of more than ``LONGEST_RETRY_AFTER`` seconds.

    The pause is uniform between 0 and a bound that doubles with each try, so that clients that failed
    together do not retry together; the pause that the service asks for is added.

    Parameters
    ----------
    reply : Reply
    tries : int
        Number of tries so far, at least 1.
    retries : int
        Number of tries that may follow the first.
    now : float
        Seconds since 1970, for a ``Retry-After`` that is a date.
    rng : numpy.random.Generator

    Returns
    -------
    float
        Seconds.

    References
    ----------
    M. Brooker, Exponential Backoff and Jitter, AWS Architecture Blog, 2015: full jitter.
    RFC 9110, section 10.2.3: Retry-After.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> 5 <= compute_pause(Reply(503, retry_after="5"), 1, 3, 0.0, rng) < 5.1
    True
    >>> compute_pause(Reply(503), 4, 3, 0.0, rng), compute_pause(Reply(409), 1, 3, 0.0, rng)
    (inf, inf)
    """
    retry_seconds = parse_retry_after(reply.retry_after, now)
    if not reply.is_transient or tries > retries or retry_seconds > LONGEST_RETRY_AFTER:
        return float("inf")
    bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, MOST_DOUBLINGS))
    return retry_seconds + bound * float(rng.random())


def parse_retry_after(retry_after: str, now: float) -> float:
    """Return the pause in seconds that a ``Retry-After`` header asks for; 0 if it is invalid.

    Examples
    --------
    >>> parse_retry_after("120", 0.0), parse_retry_after("soon", 0.0)
    (120.0, 0.0)
    >>> parse_retry_after("Fri, 31 Dec 1999 23:59:59 GMT", 946684790.0)
    9.0
    """
    text = retry_after.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone is one in UTC (RFC 5322, section 3.3).
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


# ---- Calls

A = TypeVar("A")
M = TypeVar("M", bound=msgspec.Struct)

PROBLEM = "urn:tacit:problem:"

_PLACEMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_STEP = re.compile(r"[^.\[\]]+")

decode = msgspec.json.decode
encode = msgspec.json.Encoder(enc_hook=str).encode


class Call(NamedTuple, Generic[A]):
    """A request to a placement, with the function ``read`` that decodes its answer."""

    placement: str
    action: str
    content: Any
    read: Callable[[bytes], A]
    method: str

    @property
    def body(self) -> bytes | None:
        """Content of the request in JSON; None without any."""
        return None if self.content is None else encode(self.content)

    @property
    def path(self) -> str:
        """Path of the request, below the address of the service."""
        return f"/v1/placements/{self.placement}/{self.action}"

    def get_value(self, field: str) -> Any:
        """Return the value that the call's body has for a field such as ``decisions[1].arms``.

        The result is None if it has none.
        """
        if field == "placement":
            return self.placement
        value = {} if self.body is None else decode(self.body)
        for step in _STEP.findall(field):
            try:
                value = value[int(step)] if isinstance(value, list) else value[step]
            except (KeyError, IndexError, TypeError, ValueError):
                return None
        return value


class SiteCall(Call[A]):
    """A request to the service as a whole."""

    @property
    def path(self) -> str:
        """Path of the request, below the address of the service."""
        return f"/v1/{self.action}"


def make_call(verb: Verb[Any], placement: str, fields: dict[str, Any], read: Callable[[bytes], A]) -> Call[A]:
    """Return a call of a placement's verb, not yet sent; ``read`` decodes its answer.

    The fields are sent as the body of a POST or PUT, in JSON, or else as the query of the address.

    Raises
    ------
    InvalidValue
        If the placement's name is not valid.
    """
    # An invalid name could lead to another path.
    if not (isinstance(placement, str) and _PLACEMENT.fullmatch(placement)):
        raise InvalidValue("placement", placement, "give a name of 1 to 128 letters, digits, dots, _ and -")
    if verb.method in ("POST", "PUT"):
        return Call(placement, verb.path, fields, read, verb.method)
    path = f"{verb.path}?{urlencode(fields)}" if fields else verb.path
    return Call(placement, path, content=None, read=read, method=verb.method)


def make_verb_call(verb: Verb[A], placement: str, message: msgspec.Struct) -> Call[A]:
    """Return the call of a placement's verb with the fields of a message of :mod:`tacit.wire`, not yet sent.

    Raises
    ------
    InvalidValue
        If the placement's name or a field is not valid.
    """
    read = verb.answer if verb.answer is bytes else partial(decode, type=verb.answer)
    return make_call(verb, placement, make_body(message), read)


def select_field(name: str, call: Call[Any]) -> Call[Any]:
    """Return a copy of a call, whose answer is only this field of the call's answer."""
    return call._replace(read=lambda reply: getattr(call.read(reply), name))


def make_batch_call(
    verb: Verb[Any], placement: str, kind: type[M], messages: Iterable[M | msgspec.Raw]
) -> Call[list[Any]]:
    """Return the call of a verb for many messages of type ``kind``, not yet sent.

    Its answer is a list, in the order of the messages. Messages that are already encoded are not checked.

    Raises
    ------
    InvalidValue
        If a message is not of that type, or has a field that is not valid.
    """
    (field,) = (field.name for field in msgspec.structs.fields(verb.answer))
    bodies: list[Any] = []
    if isinstance(messages, kind):
        raise InvalidValue(field, messages, f"give a list of {kind.__name__}, of one, too")
    for i, message in enumerate(messages):
        if isinstance(message, msgspec.Raw):
            bodies.append(message)
        elif isinstance(message, kind):
            bodies.append(make_body(message, f"{field}[{i}]."))
        else:
            raise InvalidValue(f"{field}[{i}]", message, f"give a tacit.client.{kind.__name__}")

    def read(reply: bytes) -> list[Any]:
        """Return the answers in a reply.

        Raises ``ValidationError`` if their number is not that of the messages.
        """
        answers: list[Any] = getattr(decode(reply, type=verb.answer), field)
        if len(answers) != len(bodies):
            raise msgspec.ValidationError(f"{len(answers)} answers to {len(bodies)} questions")
        return answers

    return make_call(verb, placement, {field: bodies}, read)


class _Problem(msgspec.Struct):
    type: str
    detail: str
    field: str


def read_answer(call: Call[A], replies: list[Reply], url: str) -> A:
    """Return the answer to a call from the reply to its last try, or raise the error of that reply.

    Warnings of the service in the answer are issued as ``AssumptionWarning``.

    Raises
    ------
    ServiceError
        One of its subclasses, by the status.
    """
    reply, tries = replies[-1], len(replies)
    if reply.status is None:
        unchanged = all(item.failure.startswith("ConnectError") for item in replies)
        effect = "nothing was changed" if unchanged else "it is not known whether it took effect"
        remedy = "see whether the service runs there, or give its url (--url of a command)"
        if "WRONG_VERSION_NUMBER" in reply.failure:
            remedy = f"it answers without TLS: give {url.replace('https', 'http', 1)}"
        raise Unavailable(
            "url", url,
            f"no answer in {tries} {'try' if tries == 1 else 'tries'} ({reply.failure})"
            f"{'' if call.method == 'GET' else f', so {effect}'}; {remedy}", "no-answer",
        )  # fmt: skip
    if reply.status != 200:
        _raise_error(call, reply.status, reply.body, url)
    try:
        result = call.read(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ServiceError(
            "url", url, f"its answer is not one of the service ({error}); give the service's",
            "foreign", reply.status,
        ) from error  # fmt: skip
    for item in result if isinstance(result, list) else [result]:
        if warning := getattr(item, "warning", None):
            # The warning points at the call of the client's method.
            warnings.warn(warning, AssumptionWarning, stacklevel=4)
    return result


def _raise_error(call: Call[Any], status: int, content: bytes, url: str) -> NoReturn:
    """Raise the error for a reply that refuses the request, of a class by its status.

    It has the field, its value in the call, and the remedy. If the body is not from the service, the error's
    kind is ``foreign``.
    """
    try:
        problem = decode(content, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The reply is not from the service, but perhaps from a proxy.
        raise get_error_class(status)(
            "url", url, f"it answered {status} and no more; see what is there", "foreign", status
        ) from None
    what = problem.detail.removeprefix(f"{problem.field}: ")
    kind = problem.type.removeprefix(PROBLEM)
    raise get_error_class(status)(problem.field, call.get_value(problem.field), what, kind, status)


# ---- Calls as methods of the clients, and their types
#
# Classes of calls have methods that return a :class:`Call`. Both clients have a method for each: one returns
# the answer, the other is a coroutine.

P = ParamSpec("P")
A_co = TypeVar("A_co", covariant=True)


class Blocking:
    """Base of the client whose methods return answers."""


class Asynchronous:
    """Base of the client whose methods are coroutines."""


class Method(Protocol[P, A_co]):
    """The type of a call as a method of either client, with the call's own parameters."""

    @overload
    def __get__(self, client: Blocking, owner: type[Blocking]) -> Callable[P, A_co]: ...
    @overload
    def __get__(
        self, client: Asynchronous, owner: type[Asynchronous]
    ) -> Callable[P, Coroutine[Any, Any, A_co]]: ...
    @overload
    def __get__(self, client: None, owner: type[Blocking]) -> Callable[Concatenate[Blocking, P], A_co]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Asynchronous]
    ) -> Callable[Concatenate[Asynchronous, P], Coroutine[Any, Any, A_co]]: ...


def call(make: Callable[Concatenate[Any, P], Call[A]]) -> Method[P, A]:
    """Return ``make`` unchanged, with the type of the clients' method for type checkers."""
    return cast("Method[P, A]", make)
