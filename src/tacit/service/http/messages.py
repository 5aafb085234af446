"""Bodies in and out, for routes without a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from starlette.types import Receive, Send

from tacit.service.http.route import Answer, Header

Body = TypeVar("Body")

# So that a client which is still sending gets to read why its body was refused.
DRAINED_LIMITS = 16
NO_CONTENT = 204
BYTES = "application/octet-stream"

PIECE = 65_536
"""Bytes of an answer that are handed on at once; the next ones when these are on their way."""
LARGE = 262_144
"""Bytes of an answer above which it is large."""
AT_ONCE = 4
"""Large answers that may be on their way."""

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
"""Of a page and all that belongs to it, besides."""

_raw_data_headers = [(name.encode(), value.encode()) for name, value in DATA_HEADERS.items()]


async def received(receive: Receive, limit: int) -> bytes | None:
    """Return the body, or None if it is over the limit, whatever length it claims.

    None, too, for one that is not complete since its sender has left: it asks for nothing, and
    nobody reads the answer.
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
    complete = message["type"] == "http.request"
    return body if complete and size <= limit else None


def decoded(decode: Callable[[bytes], Body], body: bytes) -> Body:
    """Return a body as ``decode`` understands it.

    Raises
    ------
    msgspec.MsgspecError
        If it is not JSON, not UTF-8, nested too deep, or not what was expected.

    Examples
    --------
    >>> decoded(msgspec.json.decode, b'"\\xff"')
    Traceback (most recent call last):
    msgspec.DecodeError: it is not UTF-8
    """
    try:
        return decode(body)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("it is not UTF-8") from error
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deep") from error


def headers_of(answer: Answer) -> list[Header]:
    """Return the headers of an answer."""
    described = [(b"content-type", answer.media.encode()), (b"content-length", b"%d" % answer.size)]
    # An answer without content says nothing of it (RFC 9110, section 8.6).
    return [
        *([] if answer.status == NO_CONTENT else described), *_raw_data_headers, *answer.headers
    ]  # fmt: skip


def lines(headers: Iterable[Header]) -> bytes:
    """Return headers as they are sent.

    Examples
    --------
    >>> lines([(b"allow", b"POST"), (b"vary", b"origin")])
    b'allow: POST\\r\\nvary: origin\\r\\n'
    """
    return b"".join([b"%s: %s\r\n" % header for header in headers])


_DATA_LINES = lines(_raw_data_headers)


def head_of(answer: Answer) -> bytes:
    """Return the headers of an answer as they are sent: the lines of :func:`headers_of`."""
    if answer.headers or answer.status == NO_CONTENT:
        return lines(headers_of(answer))
    described = answer.media.encode(), len(answer.body), _DATA_LINES
    return b"content-type: %s\r\ncontent-length: %d\r\n%s" % described


def file(parts: Sequence[bytes | memoryview]) -> Answer:
    """Return a file in parts as an answer."""
    return Answer(200, BYTES, b"", (), parts)


async def sent(send: Send, answer: Answer) -> None:
    """Send an answer; a large one in pieces, each when the one before is on its way."""
    await send({"type": "http.response.start", "status": answer.status, "headers": headers_of(answer)})
    if answer.size > PIECE:
        for part in (answer.body, *answer.parts):
            for first in range(0, len(part), PIECE):
                piece = memoryview(part)[first : first + PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        answer = Answer(*answer[:2], b"")
    await send({"type": "http.response.body", "body": b"".join((answer.body, *answer.parts))})
