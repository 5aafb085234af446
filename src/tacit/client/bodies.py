"""Convert messages to JSON bodies, with checks derived from the annotations of the wire's structures.

The fields of a structure are read once (:func:`read_fields`); the check of a field (:func:`make_check`)
accepts values such as NumPy's numbers and arrays, and returns values of JSON.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import inspect

from tacit.core import checks
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.service.log.ids import create_decision_id as new_id
from tacit.wire.lists import Clicks

Check = Callable[[str, Any], Any]

LARGEST = sys.float_info.max


class NewId(str):
    """An id of a decision that the client made, and may replace by one that says the decision's shard."""


class Field(NamedTuple):
    """A field of a message, with the check of its values."""

    name: str
    encoded_name: str
    required: bool
    check: Check


def make_body(message: msgspec.Struct, place: str = "") -> dict[str, Any]:
    """Return the JSON body of a message as a dict, with its fields checked.

    Fields of None are left out, except that a missing id is replaced by a new one, so that the body
    can be sent again safely.

    Parameters
    ----------
    message : Struct
        A structure of :mod:`tacit.wire`.
    place : str, default ""
        Prefix of the field in errors: ``decisions[1].``.

    Raises
    ------
    InvalidValue
        If a field is not valid.

    Examples
    --------
    >>> from tacit.wire.decisions import Feedback
    >>> make_body(Feedback("018bcfe5", 1, "click 7"))
    {'decision_id': '018bcfe5', 'reward': 1.0, 'feedback_id': 'click 7'}
    """
    if isinstance(message, Clicks) and (message.clicks is None) == (message.items is None):
        raise InvalidValue(f"{place}clicks", message.clicks, "give clicks, or items in place of them")
    content: dict[str, Any] = {}
    for field in read_fields(type(message)):
        value = getattr(message, field.name)
        if value is None and not field.required:
            if not field.name.endswith("_id"):
                continue
            value = new_id(time.time_ns() // 1000)
            if field.name == "decision_id":
                content[field.encoded_name] = NewId(value)
                continue
        if hasattr(value, "decision_id"):
            raise InvalidValue(place + field.name, type(value).__name__, "give its .decision_id")
        content[field.encoded_name] = field.check(place + field.name, value)
    return content


@cache
def read_fields(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of a structure of the wire with the checks of their values.

    The result is cached.

    Examples
    --------
    >>> from tacit.wire.lift import LiftOf
    >>> [field.encoded_name for field in read_fields(LiftOf)][:3]
    ['confidence', 'control', 'from']
    """
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple(
        Field(field.name, field.encode_name, field.required, make_check(field.type)) for field in info.fields
    )


def make_check(kind: inspect.Type, schema: Mapping[str, Any] | None = None) -> Check:
    """Return a function ``check(field, value)`` for values of a type, such as that of a structure's field.

    It returns the value in JSON's types, or raises ``InvalidValue``, which names the field. ``schema`` has
    the constraints of the type's annotation.

    Examples
    --------
    >>> share = make_check(inspect.type_info(float), {"exclusiveMinimum": 0, "maximum": 0.5})
    >>> share("share", np.float32(0.25))
    0.25
    """
    match kind:
        case inspect.Metadata():
            return make_check(kind.type, {**(kind.extra_json_schema or {}), **(kind.extra or {})})
        case inspect.LiteralType():
            return _make_text_check(f"one of {', '.join(map(str, kind.values))}")
        case inspect.StrType():
            return _make_text_check((schema or {}).get("such"))
        case inspect.BoolType():
            return checks.flag
        case inspect.IntType():
            low = -(2**62) if kind.ge is None else kind.ge
            return lambda field, given: checks.integer(field, given, low, kind.le or 2**62)
        case inspect.FloatType():
            return _make_number_check(kind, schema or {})
        case inspect.ListType():
            return _make_list_check(make_check(kind.item_type))
        case inspect.DictType():
            return _make_mapping_check(make_check(kind.value_type))
        case inspect.UnionType():
            return _make_union_check(kind.types)
    # The service checks the content.
    return lambda field, given: dict(given) if isinstance(given, Mapping) else given


def _make_text_check(note: str | None) -> Check:
    """Return a function that checks a text of at most 512 bytes.

    With ``note``, which says in errors what to give, a date or datetime is allowed and converted to text.
    """

    def check(field: str, value: Any) -> str:
        """Return a text, or a date's text in ISO 8601; raise InvalidValue for other values.

        A warning says if a datetime without a zone is taken as UTC.
        """
        if note and not isinstance(value, str | date):
            raise InvalidValue(field, value, f"give {note}")
        if note and isinstance(value, datetime) and value.tzinfo is None and value.astimezone().utcoffset():
            warning = f"{field}: {value:%Y-%m-%d %H:%M} has no zone, and is taken as UTC"
            warning += "; if it is a time of here, give it .astimezone()"
            # The warning points at the call of the client's method.
            warnings.warn(warning, AssumptionWarning, stacklevel=7)
        return checks.name(field, value.isoformat() if note and isinstance(value, date) else value)

    return check


def _make_number_check(kind: inspect.FloatType, schema: Mapping[str, Any]) -> Check:
    """Return a function that converts a number to float and checks the bounds of its type or schema."""
    above, high = schema.get("exclusiveMinimum", kind.gt), schema.get("exclusiveMaximum", LARGEST)
    low = next((bound for bound in (above, kind.ge) if bound is not None), -LARGEST)
    most = schema.get("maximum", high) if kind.le is None else kind.le

    def check(field: str, value: Any) -> float:
        """Return the number as float if it is within the bounds; else raise InvalidValue."""
        try:
            return checks.number(field, value, low, most, open_low=above is not None)
        except InvalidValue as error:
            note = schema.get("such")
            raise InvalidValue(field, value, f"give {note}" if note else error.allowed) from None

    return check


def _make_list_check(check: Check) -> Check:
    """Return a function that checks each item of an iterable other than a text and returns a list."""

    def check_list(field: str, items: Any) -> list[Any]:
        """Return a list of the checked items; raise InvalidValue for a text or for no iterable."""
        if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
            raise InvalidValue(field, items, "give a list")
        return [check(f"{field}[{i}]", value) for i, value in enumerate(items)]

    return check_list


def _make_mapping_check(check: Check) -> Check:
    """Return a function that checks the names and values of a mapping and returns a dict."""

    def check_mapping(field: str, mapping: Any) -> dict[str, Any]:
        """Return a dict of the checked values; raise InvalidValue if the value is no mapping."""
        if not isinstance(mapping, Mapping):
            raise InvalidValue(field, mapping, "give a value for each by name: {name: value}")
        return {checks.name(field, name): check(f"{field}.{name}", value) for name, value in mapping.items()}

    return check_mapping


FORMS: dict[type[inspect.Type], tuple[type, str]] = {
    inspect.NoneType: (type(None), "None"),
    inspect.StrType: (str, "a text"),
    inspect.LiteralType: (str, "a text"),
    inspect.BoolType: (bool, "true or false"),
    inspect.IntType: (Integral, "a whole number"),
    inspect.FloatType: (Real, "a number"),
    inspect.DictType: (Mapping, "values by name"),
    inspect.StructType: (Mapping, "values by name"),
    inspect.ListType: (Iterable, "a list"),
}
"""Python type and description of each type, in the order of the checks, since a text is also iterable."""


def _make_union_check(kinds: Sequence[inspect.Type]) -> Check:
    """Return a function that checks a value by the first of several types that it has.

    A NumPy number becomes Python's, and NaN becomes None if that is allowed.
    """
    if len(ordered := [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]) == 1:
        return make_check(ordered[0])
    ordered = sorted(kinds, key=lambda kind: list(FORMS).index(type(kind)))
    forms = [(*FORMS[type(kind)], make_check(kind)) for kind in ordered]

    def check_value(field: str, value: Any) -> Any:
        """Return the checked value; raise ``InvalidValue`` if it has none of the types."""
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, float) and math.isnan(value) and type(None) in {form for form, *_ in forms}:
            # As in the library, NaN means a missing value.
            return None
        for form, _, check in forms:
            if isinstance(value, form):
                return check(field, value)
        raise InvalidValue(field, value, f"give {' or '.join(words for _, words, _ in forms)}")

    return check_value
