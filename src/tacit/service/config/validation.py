"""msgspec's complaints, taken apart into the field and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

import msgspec
import msgspec.structs

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


def meant(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    """Return which field of a structure may have been meant by one that it has not, as a question.

    Examples
    --------
    >>> from tacit.service.config.keys import KeyConfig
    >>> try:
    ...     msgspec.convert({"scope": []}, KeyConfig)
    ... except msgspec.ValidationError as error:
    ...     print(meant(error, KeyConfig))
    ; did you mean scopes? there is sha256, scopes, placements
    """
    field, what = complaint(error)
    if "unknown field" not in what:
        return ""
    *outer, name = field.split(".")
    inner: Any = kind
    for step in outer:
        inner = next((f.type for f in _fields(inner) if f.encode_name == step), None)
    known = [one.encode_name for one in _fields(inner)]
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"; {hint}there is {', '.join(known)}" if known else ""


def _fields(kind: Any) -> tuple[Any, ...]:
    """Return the fields of a structure, be it optional; none of anything else."""
    for one in (kind, *get_args(kind)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return msgspec.structs.fields(one)
    return ()


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
