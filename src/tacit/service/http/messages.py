"""Bodies in and out, for routes without a framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.types import Receive, Send

from tacit.service.http.route import Answer

Body = TypeVar("Body")

# So that a client which is still sending gets to read why its body was refused.
DRAINED_LIMITS = 16
NO_CONTENT = 204

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


async def sent(send: Send, answer: Answer) -> None:
    """Send an answer."""
    status, media, body, headers = answer
    described = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
    # An answer without content says nothing of it (RFC 9110, section 8.6).
    start = [*([] if status == NO_CONTENT else described), *_raw_data_headers, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
