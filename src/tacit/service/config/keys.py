"""API keys: who may do what, by keys of which only hashes are kept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

DECIDE, FEEDBACK, READ, ADMIN = SCOPES = ("decide", "feedback", "read", "admin")
PREFIX = "tacit_"
RANDOM_BYTES = 32


class KeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key and what it is for.

    Attributes
    ----------
    sha256 : str
        Hash of the key, as :func:`new_key` gives it.
    scopes : list of str
        ``decide``, ``feedback``, ``read``, ``admin``; the last includes the others.
    """

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    scopes: Annotated[
        list[Literal["decide", "feedback", "read", "admin"]], msgspec.Meta(min_length=1)
    ]


class Keys:
    """The keys of a configuration.

    Parameters
    ----------
    keys : mapping of str to KeyConfig

    Examples
    --------
    >>> key, sha256 = new_key()
    >>> keys = Keys({"shop": KeyConfig(sha256, ["decide"])})
    >>> keys.name(f"Bearer {key}".encode())
    'shop'
    >>> keys.allow("shop", "decide"), keys.allow("shop", "admin")
    (True, False)
    """

    def __init__(self, keys: Mapping[str, KeyConfig]) -> None:
        self._hashes = [(bytes.fromhex(key.sha256), name) for name, key in keys.items()]
        self._scopes = {
            name: set(SCOPES if ADMIN in key.scopes else key.scopes) for name, key in keys.items()
        }

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def name(self, authorization: bytes) -> str | None:
        """Return the name of the key in an ``Authorization`` header, in a time that is the same
        whichever it is."""
        digest = hashlib.sha256(_presented(authorization)).digest()
        found = None
        for known, name in self._hashes:
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def allow(self, name: str, scope: str) -> bool:
        """Whether a key may be used for something."""
        return scope in self._scopes[name]


def _presented(authorization: bytes) -> bytes:
    """Return the key in a header: a bearer token, or the password of the basic scheme."""
    scheme, _, rest = authorization.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return rest.strip()
        case b"basic":
            try:
                return base64.b64decode(rest, validate=True).partition(b":")[2]
            except binascii.Error:
                return b""
    return b""


def new_key() -> tuple[str, str]:
    """Return a new key and its hash.

    A key has 256 random bits, so a fast hash is as hard to invert as a slow one.
    """
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return key, hashlib.sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address answers to this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost")
    (True, True, True)
    >>> is_loopback("0.0.0.0")
    False
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
