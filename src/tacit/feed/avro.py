"""Messages of Avro, whose schemas a registry has: a zero, four bytes with the schema's number, the event."""

from __future__ import annotations

import base64
import io
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from tacit.errors import InvalidValue, LogError, needing

with needing("avro"):
    import fastavro

PATIENCE = 10.0
"""Seconds in which the registry must have answered."""
LARGEST = 2**24
HEAD = 5


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _Registered(msgspec.Struct):
    schema: str
    references: Sequence[_Reference] = ()


class Registry:
    """A schema registry, as Confluent's and those that answer like it.

    Parameters
    ----------
    url : str
    user : str, optional
        Name and password, with a colon between.

    Raises
    ------
    InvalidValue
        If the URL is none of a registry.
    """

    def __init__(self, url: str, user: str | None = None) -> None:
        if not url.startswith(("http://", "https://")) or "@" in url:
            shown = "…@…" if "@" in url else url
            raise InvalidValue("registry", shown, "give http://HOST:PORT, and who asks as a property")
        self._url, self._user = url.rstrip("/"), user
        self._schemas: dict[int, Any] = {}

    def event(self, content: bytes) -> Any:
        """Return what a message holds.

        Raises
        ------
        ValueError
            If it is no Avro, or not of its schema.
        LogError
            If the registry gives no answer.
        """
        number = int.from_bytes(content[1:HEAD], "big")
        if len(content) < HEAD or content[0] != 0:
            raise ValueError("it does not begin with a zero and the number of a schema")
        if number not in self._schemas:
            self._schemas[number] = self._read(f"schemas/ids/{number}", {})
        try:
            return fastavro.schemaless_reader(io.BytesIO(content[HEAD:]), self._schemas[number], None)
        except Exception as error:
            # What foreign bytes can raise there is not written down.
            raise ValueError(f"it is not of schema {number}: {type(error).__name__}") from error

    def _read(self, path: str, named: dict[str, Any]) -> Any:
        """Return a schema, after those that it refers to."""
        content = self._got(path)
        try:
            registered = msgspec.json.decode(content, type=_Registered)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} of the registry is no schema") from error
        for each in registered.references:
            self._read(f"subjects/{quote(each.subject, safe='')}/versions/{each.version}", named)
        try:
            return fastavro.parse_schema(msgspec.json.decode(registered.schema), named)
        except Exception as error:
            raise ValueError(
                f"{path} of the registry is no schema of Avro: {type(error).__name__}"
            ) from error

    def _got(self, path: str) -> bytes:
        request = urllib.request.Request(f"{self._url}/{path}")  # noqa: S310 (checked above)
        if self._user is not None:
            token = base64.b64encode(self._user.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
                return bytes(answer.read(LARGEST))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise ValueError(f"the registry has no {path}") from None
            raise LogError(f"registry: {self._url} answers {error.code} for {path}") from None
        except OSError as error:
            raise LogError(f"registry: {self._url} gives no answer: {error}") from None
