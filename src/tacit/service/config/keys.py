"""API keys, stored as hashes, with their scopes; and secrets for signed bodies of webhook feeds.

1. ``KeyConfig``, ``Caller``, ``Keys``: keys, their placements and scopes.
2. ``Secret``, ``HookConfig``: webhook feeds and the secrets of their signatures.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.feed.event_map import EventMap
from tacit.service.errors import Forbidden

DECIDE, FEEDBACK, READ, ADMIN = SCOPES = ("decide", "feedback", "read", "admin")
PREFIX = "tacit_"
RANDOM_BYTES = 32
DIGEST = {"such": "64 digits and letters from a to f, the hash of a key"}
PATTERN = re.compile(r"([\w.*?-]|\[!?[\w.-]+\])+", re.ASCII)
"""Allowed names and patterns of placements."""


class KeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key with its scopes and placements.

    Attributes
    ----------
    sha256 : str
        Hash of the key, as :func:`new_key` returns it.
    scopes : list of str
        ``decide``, ``feedback``, ``read``, ``admin``; the last includes the others.
    placements : list of str or None
        Names of placements that the key may use, or patterns such as ``shop-*``; by default all.
    """

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", extra=DIGEST)]
    scopes: Annotated[list[Literal["decide", "feedback", "read", "admin"]], msgspec.Meta(min_length=1)]
    placements: list[str] | None = None

    def check(self) -> None:
        """Check that each name or pattern of placements is possible.

        Raises
        ------
        InvalidValue
            If a name or pattern is impossible for a placement.
        """
        names = self.placements
        if names is not None and not (names and all(map(PATTERN.fullmatch, names))):
            raise InvalidValue(
                "placements",
                names,
                "give names of placements, or patterns such as 'shop-*'; leave it out for all",
            )


class Caller(NamedTuple):
    """The caller of a request: the name of its key, and its placements (None for all).

    Examples
    --------
    >>> caller = Caller("shop", ("home", "shop-*"))
    >>> caller.reaches("shop-1"), caller.reaches("news"), Caller("operator").reaches("news")
    (True, False, True)
    """

    name: str | None = None
    placements: tuple[str, ...] | None = None

    def reaches(self, placement: str) -> bool:
        """True if the caller may use the named placement: its key is for all, or a name or pattern fits."""
        return self.placements is None or any(fnmatchcase(placement, p) for p in self.placements)

    def check(self, placement: str | None) -> None:
        """Raise Forbidden unless the caller may use the named placement; for None, unless it may use all.

        Raises
        ------
        Forbidden
            If it may not.
        """
        if self.placements is None or (placement is not None and self.reaches(placement)):
            return
        field, purpose = "authorization", "for what is of all"
        if placement is not None:
            field, purpose = "placement", f"for {placement!r}"
        raise Forbidden(
            f"{field}: the key reaches the placements {', '.join(self.placements)}, and this "
            f"is {purpose}; send one that does"
        )


ANYBODY = Caller()
UNPROVEN = Caller(None, ())
"""Caller of a request with a signature that is not verified yet; it may use no placement."""


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
    >>> keys.has_scope("shop", "decide"), keys.has_scope("shop", "admin")
    (True, False)
    """

    def __init__(self, keys: Mapping[str, KeyConfig]) -> None:
        """Index hashes, scopes and callers by the names of the keys."""
        self._hashes = [(bytes.fromhex(key.sha256), name) for name, key in keys.items()]
        self._scopes = {
            name: set(SCOPES if ADMIN in key.scopes else key.scopes) for name, key in keys.items()
        }
        self._callers = {
            name: Caller(name, None if key.placements is None else tuple(key.placements))
            for name, key in keys.items()
        }

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def name(self, authorization: bytes) -> str | None:
        """Return the name of the key in an ``Authorization`` header.

        None if it is unknown. Takes constant time.
        """
        digest = hashlib.sha256(_extract_key(authorization)).digest()
        match = None
        for key_hash, name in self._hashes:
            if hmac.compare_digest(key_hash, digest):
                match = name
        return match

    def get_caller(self, name: str) -> Caller:
        """Return the caller that sends the key of this name; raise KeyError if there is no such key."""
        return self._callers[name]

    def has_scope(self, name: str, scope: str) -> bool:
        """True if the key of this name has the scope; ``admin`` includes all others."""
        return scope in self._scopes[name]


def _extract_key(authorization: bytes) -> bytes:
    """Return the key in an ``Authorization`` header: a bearer token or a basic password; b"" otherwise."""
    scheme, _, credentials = authorization.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return credentials.strip()
        case b"basic":
            try:
                return base64.b64decode(credentials, validate=True).partition(b":")[2]
            except binascii.Error:
                return b""
    return b""


def new_key() -> tuple[str, str]:
    """Draw a random API key; return the key, and its hexadecimal SHA-256 for the configuration.

    A key has 256 random bits, so a fast hash is as hard to invert as a slow one.
    """
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return key, hashlib.sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """True if a host is ``localhost`` or a loopback address; False for other host names.

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


# ---- Webhook feeds: the map of their events, and the secret of their signatures

MIN_SECRET = 16
"""Least number of characters of a secret."""
MAP = {"such": "the path of a file: tacit feed --example segment"}


class Secret(NamedTuple):
    """The secret with which a sender signs bodies; never printed.

    Attributes
    ----------
    value : bytes
    """

    value: bytes

    def __repr__(self) -> str:
        return "Secret(…)"

    def verify(self, body: bytes, signature: bytes) -> bool:
        """True if the signature is the hexadecimal HMAC-SHA1 of the body with this secret; in constant time.

        Segment signs so: https://www.twilio.com/docs/segment/connections/destinations/catalog/actions-webhook

        Examples
        --------
        >>> Secret(b"key").verify(b"{}", b"c9963b837183dc667106461b3de91d0885f539b3")
        True
        """
        expected = hmac.new(self.value, body, hashlib.sha1).hexdigest().encode()
        return hmac.compare_digest(expected, signature.strip().lower())


class HookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A webhook feed as a table [feeds.NAME] of the configuration file.

    Attributes
    ----------
    map : str
        File with the map of events, as for ``tacit feed``; relative to the configuration file.
    secret_env, secret_file : str, optional
        Environment variable, or file, with the secret of the signatures in ``x-signature``, as by Segment.
        Without either, senders need a key with the scope ``feedback``.
    """

    map: Annotated[str, msgspec.Meta(extra=MAP)]
    secret_env: str | None = None
    secret_file: str | None = None


class HookConfig(msgspec.Struct, frozen=True):
    """A webhook feed: the map of its events, and its secret.

    Attributes
    ----------
    map : EventMap
    secret : Secret or None
    """

    map: EventMap
    secret: Secret | None = None


def load_secret(table: HookTable, folder: Path) -> Secret | None:
    """Read a feed's secret from its environment variable or file; None if the table names neither.

    File names are relative to ``folder``; surrounding white space is removed.

    Raises
    ------
    ConfigError
        If both are named, or the secret is missing or too short; the message never contains it.
    """
    name, file = table.secret_env, table.secret_file
    if name is None and file is None:
        return None
    if name is not None and file is not None:
        raise ConfigError("secret_env: give it, or secret_file, and not both")
    if name is not None:
        field, text = "secret_env", os.environ.get(name, "").encode()
    else:
        field, text = "secret_file", _read_secret_file(folder / str(file))
    text = text.strip()
    if len(text) < MIN_SECRET:
        raise ConfigError(f"{field}: {name or file} has {len(text)} characters; give {MIN_SECRET} at least")
    return Secret(text)


def _read_secret_file(path: Path) -> bytes:
    """Return the bytes of a file with a secret; raise ConfigError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"secret_file: {path} cannot be read: {error.strerror}") from error
