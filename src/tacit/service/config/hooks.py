"""Feeds that others push: what their events mean, and by which signature a body is their sender's."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tacit.errors import ConfigError
from tacit.events.event_map import EventMap, map_at

SHORTEST = 16
"""Characters of a secret."""


class Secret(NamedTuple):
    """What a sender signs its bodies with; it is never shown.

    Attributes
    ----------
    value : bytes
    """

    value: bytes

    def __repr__(self) -> str:
        return "Secret(…)"

    def signed(self, body: bytes, signature: bytes) -> bool:
        """Whether a signature is that of a body, in a time that is the same however it is wrong.

        Segment's is the hexadecimal HMAC-SHA1 of the body:
        https://www.twilio.com/docs/segment/connections/destinations/catalog/actions-webhook

        Examples
        --------
        >>> Secret(b"key").signed(b"{}", b"c9963b837183dc667106461b3de91d0885f539b3")
        True
        """
        expected = hmac.new(self.value, body, hashlib.sha1).hexdigest().encode()
        return hmac.compare_digest(expected, signature.strip().lower())


class HookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feed that others push, as a table [feeds.NAME] says it.

    Attributes
    ----------
    map : str
        File with the map of its events, the one of ``tacit feed``; relative to the configuration's.
    secret_env, secret_file : str, optional
        The variable, or the file, with the secret by which bodies are signed in ``x-signature``, as
        Segment does. Without either, senders need a key with the scope ``feedback``.
    """

    map: str
    secret_env: str | None = None
    secret_file: str | None = None


class HookConfig(msgspec.Struct, frozen=True):
    """A feed that others push.

    Attributes
    ----------
    map : EventMap
    secret : Secret or None
    """

    map: EventMap
    secret: Secret | None = None


def hook_of(table: HookTable, folder: Path, environment: Mapping[str, str] = os.environ) -> HookConfig:
    """Return the feed of a table, with its map and its secret.

    Parameters
    ----------
    table : HookTable
    folder : path
        To which its files are relative.
    environment : mapping from str to str

    Raises
    ------
    ConfigError
        If the map is wrong, or there is no secret where one is named; it never says what that is.
    """
    return HookConfig(map_at(folder / table.map), _secret(table, folder, environment))


def _secret(table: HookTable, folder: Path, environment: Mapping[str, str]) -> Secret | None:
    name, file = table.secret_env, table.secret_file
    if name is None and file is None:
        return None
    if name is not None and file is not None:
        raise ConfigError("secret_env: give it, or secret_file, and not both")
    if name is not None:
        field, text = "secret_env", environment.get(name, "").encode()
    else:
        field, text = "secret_file", _content(folder / str(file))
    text = text.strip()
    if len(text) < SHORTEST:
        raise ConfigError(f"{field}: {name or file} has {len(text)} characters; give {SHORTEST} at least")
    return Secret(text)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"secret_file: {path} cannot be read: {error.strerror}") from error
