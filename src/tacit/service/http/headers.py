"""What a request says of itself in its headers: what its body is, and which page sends it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered."""

Headers = Mapping[bytes, bytes]
"""By their names in lower case."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, ocp-apim-subscription-key, traceparent, x-request-id",
    ),
    (b"access-control-max-age", b"600"),
)
"""What a browser is told that asks before it sends something."""


def says_json(method: str, headers: Headers) -> bool:
    """Whether a request's body is JSON by its header; without a body, none is needed.

    Examples
    --------
    >>> says_json("POST", {b"content-type": b"application/json; charset=utf-8"})
    True
    >>> says_json("POST", {b"content-length": b"2"}), says_json("POST", {})
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
    return media.partition(b";")[0].strip().lower() == b"application/json"


def is_foreign(method: str, headers: Headers, allowed: Collection[bytes] = ()) -> bool:
    """Whether a browser sends a request for a page of another origin that is not allowed.

    Browsers say so in ``Sec-Fetch-Site``, which no page can change, or at least, where they reach
    the service without TLS, in ``Origin`` (Fetch Metadata, W3C; RFC 6454). Other clients send
    neither. Whoever follows a link comes from elsewhere, too, and may.

    Examples
    --------
    >>> is_foreign("POST", {b"sec-fetch-site": b"same-site"})
    True
    >>> is_foreign("POST", {b"host": b"localhost:8787", b"origin": b"http://localhost:8787"})
    False
    >>> is_foreign("POST", {b"origin": b"https://a.example"}, allowed=[b"https://a.example"])
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


def shared_with(headers: Headers, allowed: Collection[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers by which a page of an allowed origin may read the answer; else none.

    Examples
    --------
    >>> shared_with({b"origin": b"https://a.example"}, [b"https://a.example"])
    ((b'access-control-allow-origin', b'https://a.example'), (b'vary', b'origin'))
    """
    origin = headers.get(b"origin")
    if origin is None or origin not in allowed:
        return ()
    return (b"access-control-allow-origin", origin), (b"vary", b"origin")
