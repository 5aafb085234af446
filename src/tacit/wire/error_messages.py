"""Convert msgspec's validation errors to messages of tacit: the field, the value, and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import msgspec.structs

from tacit.core.text import convert_duration
from tacit.errors import InvalidValue, TacitError

_PLACE = re.compile(r"^(?P<what>.*) - at `(?P<path>[^`]+)`$", re.DOTALL)
_FIELD = re.compile(r"field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"^Expected `(?P<types>[^`]+)`(?P<range>.*?)(, got `.*`)?$", re.DOTALL)


class Hidden:
    """Placeholder in messages for a value that may be a secret."""

    def __repr__(self) -> str:
        return "(hidden)"


HIDDEN = Hidden()

NAMES = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of names and values",
}
MOST_LISTED, SURELY = 9, 0.8
SYNONYMS = {
    "arms": "rankers",
    "rankers": "arms",
    "positions": "length",
    "length": "positions",
    "query": "key",
}
SYNONYMS |= dict.fromkeys(("variations", "variants", "options", "actions"), "arms")
"""Fields by the names that other kinds of placements, or other libraries, use for them."""
RANGES = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def locate_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the dotted path of the invalid field, and msgspec's message without the path.

    Examples
    --------
    >>> locate_error(msgspec.ValidationError("Expected `str`, got `int` - at `$.server.host`"))
    ('server.host', 'Expected `str`, got `int`')
    >>> locate_error(msgspec.ValidationError("Object missing required field `key`"))
    ('key', 'Object missing required field `key`')
    """
    what, path = _split_path(error)
    field_match = _FIELD.search(what)
    parts = [path.removeprefix("."), field_match["name"] if field_match else ""]
    return ".".join(part for part in parts if part) or "body", what


def explain_error(
    error: msgspec.ValidationError, content: Any, kind: Any, within: str = "", secret: Sequence[str] = ()
) -> TacitError:
    """Convert a validation error of msgspec to one that names the field, its value, and the allowed values.

    Parameters
    ----------
    error : msgspec.ValidationError
    content : object
        The value that msgspec could not convert, as plain values.
    kind : type
        The type to which it should be converted.
    within : str, optional
        The path of the value, if it is a part of a larger one.
    secret : sequence of str, optional
        Paths below the value that may hold secrets, which are not shown; the empty path is all of it.

    Examples
    --------
    >>> from tacit.service.config.keys import KeyConfig
    >>> def refused(given):
    ...     try:
    ...         msgspec.convert(given, KeyConfig)
    ...     except msgspec.ValidationError as error:
    ...         print(explain_error(error, given, KeyConfig))
    >>> refused({"sha256": 7})
    sha256: 7 is not allowed; give 64 digits and letters from a to f, the hash of a key
    >>> refused({"sha256": "0" * 64, "scopes": ["decides"]})
    scopes[0]: 'decides' is not allowed; give one of decide, feedback, read, admin
    >>> refused({"scope": []})
    scope: Object contains unknown field `scope`; did you mean scopes? there is sha256, scopes, placements
    """
    what, path = _split_path(error)
    path, value, kind = _follow_path(path, content, kind)
    unit, shape = _find_note(kind, "unit"), _find_note(kind, "such")
    hidden = path in secret
    path = ".".join(part for part in (within, path) if part)
    if named := _FIELD.search(what):
        name = named["name"]
        wrong = (
            what + suggest_fields(name, kind)
            if "unknown" in what
            else _describe_missing(_find_inner_type(kind, name))
        )
        return TacitError(f"{f'{path}.{name}' if path else name}: {wrong}")
    expected = _EXPECTED.match(what)
    choices = [choice for alternative in _list_alternatives(kind) for choice in _list_choices(alternative)]
    names = _list_field_names(kind)
    if expected is not None and not choices:
        number = convert_duration(value, unit) if unit else ""
        words = (
            shape
            if shape and "array" not in what
            else _describe_expected(expected, f", in {unit}" * bool(unit) + f": {number}" * bool(number))
        )
        table = "a table of" if path else "an object with"
        if 0 < len(names) < 10:
            words = words.replace(NAMES["object"], f"{table} {', '.join(names)}")
        example = "" if hidden or not path else _suggest_wrapped(value, kind)
        return InvalidValue(path or "body", HIDDEN if hidden else value, f"give {words}{example}")
    if choices:
        table = f", or a table of {' or '.join(names)}" if names else ""
        return InvalidValue(
            path or "body",
            value,
            f"give one of {', '.join(map(str, choices))}{table}{_suggest_wrapped(value, kind)}",
        )
    return TacitError(f"{path or 'body'}: {what}")


def _split_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return msgspec's message without the path, and the path; "" for the outermost value."""
    place_match = _PLACE.match(str(error))
    return (place_match["what"], place_match["path"].removeprefix("$")) if place_match else (str(error), "")


def _follow_path(path: str, value: Any, kind: Any) -> tuple[str, Any, Any]:
    """Return the path of the invalid value, the value, and its expected type.

    msgspec's ``...`` in the path, which stands for any key, is replaced by the first invalid key.
    """
    full_path = ""
    for name, index in _STEP.findall(path):
        kind = _find_inner_type(kind, name)
        if not isinstance(value, Mapping | list):
            return path.removeprefix("."), value, kind
        if index == "...":
            name = next((key for key in value if not _is_valid(value[key], kind)), index)
        if isinstance(value, Mapping):
            value, full_path = value.get(name), f"{full_path}.{name}"
        else:
            value, full_path = value[int(index)], f"{full_path}[{index}]"
    return full_path.removeprefix("."), value, kind


def _is_valid(value: Any, kind: Any) -> bool:
    """True if msgspec can convert the value to the type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _suggest_wrapped(value: Any, kind: Any) -> str:
    """Return the end of a message with an example that wraps a value in the expected table or list.

    "" if the value does not fit in either.
    """
    for member in _list_alternatives(kind):
        first = next(iter(_list_fields(member)), None)
        if first is not None and _is_valid(value, first.type):
            return f", such as {{ {first.encode_name} = {_encode_literal(value)} }}"
        origin, inner_type = get_origin(member), _find_inner_type(member, "")
        if inner_type is Any or not _is_valid(value, inner_type):
            continue
        if origin in (dict, Mapping):
            return f", such as {{ NAME = {_encode_literal(value)} }}"
        if isinstance(value, str):
            return f", such as {_encode_literal([part.strip() for part in value.split(',')])}"
    return ""


def _encode_literal(value: Any) -> str:
    """Return a value as JSON text, for an example in a message."""
    return msgspec.json.encode(value).decode()


def _find_inner_type(kind: Any, name: str) -> Any:
    """Return the type of a structure's field, of a mapping's values or of a list's items.

    ``Any`` for other types, or if there is no such field.
    """
    for alternative in _list_alternatives(kind):
        if field := next((field for field in _list_fields(alternative) if field.encode_name == name), None):
            return field.type
        if get_origin(alternative) in (dict, Mapping, list, tuple):
            return get_args(alternative)[1 if get_origin(alternative) in (dict, Mapping) else 0]
    return Any


def _list_alternatives(kind: Any) -> Iterator[Any]:
    """Yield the members of a union without annotations; of any other type, the type itself."""
    if get_origin(kind) is Annotated:
        yield from _list_alternatives(get_args(kind)[0])
    elif get_origin(kind) in (None, dict, Mapping, list, tuple, Literal) or _list_fields(kind):
        yield kind
    else:
        for alternative in get_args(kind):
            yield from _list_alternatives(alternative)


def _find_note(kind: Any, name: str) -> str:
    """Return a note in a type's annotation by its name, such as the unit of a number; "" if it has none."""
    notes = [note for part in (kind, *get_args(kind)) for note in getattr(part, "__metadata__", ())]
    return next((note.extra[name] for note in notes if name in (note.extra or ())), "")


def _describe_missing(kind: Any) -> str:
    """Return the message about a missing field of a type, with the values to give."""
    if shape := _find_note(kind, "such"):
        return f"it is missing; give {shape}"
    try:
        msgspec.convert(HIDDEN, kind)
    except msgspec.ValidationError as error:
        if expected := _EXPECTED.match(str(error)):
            return f"it is missing; give {_describe_expected(expected)}"
    return "it is missing; give it"


def explain_invalid_json(error: Exception, content: bytes) -> str:
    """Return why a body is not JSON, and if possible at which byte, for a message.

    Examples
    --------
    >>> explain_invalid_json(msgspec.DecodeError("Input data was truncated"), b'{"key": "a"')
    'it ends at byte 11 with a bracket or quote still open'
    """
    if not content.strip():
        return "it is empty"
    if content.startswith(b"\x1f\x8b"):
        return "it is compressed"
    if content.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark"
    if "truncated" not in str(error):
        place = re.search(r"byte (\d+)", str(error))
        number = place and re.match(rb"NaN|Infinity", content[int(place[1]) :])
        return f"{error}: {number[0].decode()} is no JSON, null is" if number else str(error)
    return f"it ends at byte {len(content)} with a bracket or quote still open"


def _list_choices(kind: Any) -> tuple[Any, ...]:
    """Return the values of a ``Literal`` type; none for other types."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def _list_fields(kind: Any) -> tuple[Any, ...]:
    """Return msgspec's fields of a structure, also a generic one; none for other types."""
    struct = get_origin(kind) or kind
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        return msgspec.structs.fields(kind)
    return ()


def _list_field_names(kind: Any) -> list[str]:
    """Return the names of the fields of a structure, or of all structures of a union; empty without any."""
    return [field.encode_name for member in _list_alternatives(kind) for field in _list_fields(member)]


def suggest_fields(name: str, kind: Any) -> str:
    """Return the end of a message about an unknown field: a similar field, and the fields of the type.

    "" if the type has no fields.
    """
    names = _list_field_names(kind)
    if name in ("decisions", "feedback") and "decision_id" in names:
        return "; send many at once to this path with /batch behind it"
    if name == "policy" and names == ["arm"]:
        return "; a control's own policy is set in the configuration, and taken over at SIGHUP"
    near = [known_name for known_name in names if known_name == SYNONYMS.get(name)] or get_close_matches(
        name, names, 1
    )
    hint = f"did you mean {near[0]}? " if near else ""
    # If there are many fields, a suggestion that is nearly certain is enough.
    sure = len(names) > MOST_LISTED and get_close_matches(name, near, 1, SURELY)
    return f"; {hint}{'' if sure else 'there is ' + ', '.join(names)}".rstrip() if names else ""


def _describe_expected(expected: re.Match[str], unit: str = "") -> str:
    """Return the types and ranges that msgspec expects in words, followed by ``unit``."""
    names, ranges = expected["types"].split(" | "), expected["range"]
    types = " or ".join(NAMES.get(name, f"`{name}`") for name in names if name != "null")
    if "length" not in ranges:
        ranges = re.sub(r"[<>]=?", lambda sign: RANGES[sign[0]], ranges)
    return f"{types}{ranges}{unit}{', or nothing' if 'null' in names else ''}"
