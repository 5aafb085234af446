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
from tacit.service.log.ids import decision_id as new_id
from tacit.wire.lists import Clicks

Check = Callable[[str, Any], Any]

LARGEST = sys.float_info.max


class Field(NamedTuple):
    """A field of a message, with the check of its values."""

    name: str
    sent_as: str
    required: bool
    check: Check


def body(message: msgspec.Struct, place: str = "") -> dict[str, Any]:
    """Return the JSON body of a message.

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
    sent = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if value is None and not field.required:
            if not field.name.endswith("_id"):
                continue
            value = new_id(time.time_ns() // 1000)
        if hasattr(value, "decision_id"):
            raise InvalidValue(place + field.name, type(value).__name__, "give its .decision_id")
        sent[field.sent_as] = field.check(place + field.name, value)
    return sent


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of a structure of the wire, with their checks.

    Examples
    --------
    >>> from tacit.wire.lift import LiftOf
    >>> [field.encoded_name for field in read_fields(LiftOf)][:3]
    ['confidence', 'control', 'from']
    """
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return tuple(
        Field(field.name, field.encode_name, field.required, check_of(field.type))
        for field in described.fields
    )


def check_of(kind: inspect.Type, schema: Mapping[str, Any] | None = None) -> Check:
    """Return the check of values of a type; ``schema`` has the constraints of its annotation.

    Examples
    --------
    >>> share = make_check(inspect.type_info(float), {"exclusiveMinimum": 0, "maximum": 0.5})
    >>> share("share", np.float32(0.25))
    0.25
    """
    match kind:
        case inspect.Metadata():
            return check_of(kind.type, {**(kind.extra_json_schema or {}), **(kind.extra or {})})
        case inspect.LiteralType():
            return _text(f"one of {', '.join(map(str, kind.values))}")
        case inspect.StrType():
            return _text((schema or {}).get("such"))
        case inspect.BoolType():
            return checks.flag
        case inspect.IntType():
            low = -(2**62) if kind.ge is None else kind.ge
            return lambda field, given: checks.integer(field, given, low, kind.le or 2**62)
        case inspect.FloatType():
            return _number(kind, schema or {})
        case inspect.ListType():
            return _list_of(check_of(kind.item_type))
        case inspect.DictType():
            return _mapping_to(check_of(kind.value_type))
        case inspect.UnionType():
            return _one_of(kind.types)
    # The service checks the content.
    return lambda field, given: dict(given) if isinstance(given, Mapping) else given


def _text(such: str | None) -> Check:
    """Return the check of a text; with ``note``, of a time, which may also be a date or datetime."""

    def checked(field: str, given: Any) -> str:
        if such and not isinstance(given, str | date):
            raise InvalidValue(field, given, f"give {such}")
        if such and isinstance(given, datetime) and given.tzinfo is None and given.astimezone().utcoffset():
            doubt = f"{field}: {given:%Y-%m-%d %H:%M} has no zone, and is taken as UTC"
            doubt += "; if it is a time of here, give it .astimezone()"
            # The warning points at the call of the client's method.
            warnings.warn(doubt, AssumptionWarning, stacklevel=7)
        return checks.name(field, given.isoformat() if such and isinstance(given, date) else given)

    return checked


def _number(kind: inspect.FloatType, schema: Mapping[str, Any]) -> Check:
    """Return the check of a number within the bounds of its type or schema."""
    above, high = schema.get("exclusiveMinimum", kind.gt), schema.get("exclusiveMaximum", LARGEST)
    low = next((bound for bound in (above, kind.ge) if bound is not None), -LARGEST)
    most = schema.get("maximum", high) if kind.le is None else kind.le

    def checked(field: str, given: Any) -> float:
        try:
            return checks.number(field, given, low, most, open_low=above is not None)
        except InvalidValue as error:
            such = schema.get("such")
            raise InvalidValue(field, given, f"give {such}" if such else error.allowed) from None

    return checked


def _list_of(check: Check) -> Check:
    def checked(field: str, given: Any) -> list[Any]:
        if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
            raise InvalidValue(field, given, "give a list")
        return [check(f"{field}[{i}]", value) for i, value in enumerate(given)]

    return checked


def _mapping_to(check: Check) -> Check:
    def checked(field: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise InvalidValue(field, given, "give a value for each by name: {name: value}")
        return {checks.name(field, name): check(f"{field}.{name}", value) for name, value in given.items()}

    return checked


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


def _one_of(kinds: Sequence[inspect.Type]) -> Check:
    """Return the check of a value of one of several types."""
    if len(named := [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]) == 1:
        return check_of(named[0])
    named = sorted(kinds, key=lambda kind: list(FORMS).index(type(kind)))
    forms = [(*FORMS[type(kind)], check_of(kind)) for kind in named]

    def checked(field: str, given: Any) -> Any:
        given = given.item() if isinstance(given, np.generic) else given
        if isinstance(given, float) and math.isnan(given) and type(None) in {form for form, *_ in forms}:
            # As in the library, NaN means a missing value.
            return None
        for form, _, check in forms:
            if isinstance(given, form):
                return check(field, given)
        raise InvalidValue(field, given, f"give {' or '.join(words for _, words, _ in forms)}")

    return checked
