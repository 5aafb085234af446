"""Bodies in and out, for routes without a framework."""

from __future__ import annotations

from starlette.types import Receive, Send

# So that a client which is still sending gets to read why its body was refused.
DRAINED_LIMITS = 16
NO_CONTENT = 204

DATA_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_raw_data_headers = [(name.encode(), value.encode()) for name, value in DATA_HEADERS.items()]


async def received(receive: Receive, limit: int) -> bytes | None:
    """Return the body, or None if it is over the limit, whatever length it claims."""
    message = await receive()
    body: bytes = message.get("body", b"")
    size = len(body)
    while message.get("more_body") and size <= limit * DRAINED_LIMITS:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            body += part
    return body if size <= limit else None


async def sent(
    send: Send, status: int, media: str, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    """Answer with a body."""
    described = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
    # An answer without content says nothing of it (RFC 9110, section 8.6).
    start = [*([] if status == NO_CONTENT else described), *_raw_data_headers, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
