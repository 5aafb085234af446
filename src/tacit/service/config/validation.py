"""msgspec's complaints, taken apart into the field and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tacit.errors import InvalidValue, UnknownName

Result = TypeVar("Result")

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


def checked_as(field: str, check: Callable[[Any], Result], value: Any) -> Result:
    """Check a value, and name it as the caller knows it where it is wrong.

    Raises
    ------
    InvalidValue, UnknownName
        As ``check`` does, with another field.
    """
    try:
        return check(value)
    except InvalidValue as error:
        raise InvalidValue(field, error.value, error.allowed) from error
    except UnknownName as error:
        raise UnknownName(f"{field}: {str(error).partition(': ')[2]}") from error


def checked_within(place: str, check: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """Check one of many, and name its place where it is wrong.

    Raises
    ------
    InvalidValue, UnknownName
        As ``check`` does, with the place before the field.
    """
    try:
        return check(*arguments)
    except InvalidValue as error:
        raise InvalidValue(f"{place}.{error.field}", error.value, error.allowed) from error
    except UnknownName as error:
        raise UnknownName(f"{place}.{error}") from error
