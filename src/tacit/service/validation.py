"""msgspec's complaints, taken apart into the field and what is wrong with it."""

from __future__ import annotations

import re

import msgspec

_PLACE = re.compile(r"^(?P<what>.*) - at `(?P<path>[^`]+)`$", re.DOTALL)
_FIELD = re.compile(r"field `(?P<name>[^`]*)`")


def complaint(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the dotted name of the field that is wrong, and what is wrong with it.

    Examples
    --------
    >>> complaint(msgspec.ValidationError("Expected `str`, got `int` - at `$.server.host`"))
    ('server.host', 'Expected `str`, got `int`')
    >>> complaint(msgspec.ValidationError("Object missing required field `key`"))
    ('key', 'Object missing required field `key`')
    """
    text = str(error)
    placed = _PLACE.match(text)
    what, path = (placed["what"], placed["path"]) if placed else (text, "$")
    named = _FIELD.search(what)
    parts = [path.removeprefix("$").removeprefix("."), named["name"] if named else ""]
    return ".".join(part for part in parts if part) or "body", what
