"""Messages as they are sent: each field is checked as its name says, in one and in many alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from tacit.client.messages import Arm, Clicks, Message
from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.service.log.ids import decision_id as new_id

Check = Callable[[str, Any], Any]

LARGEST = sys.float_info.max
LONGEST_LIST = 100_000
MOST_CHANGES = 1000


def body(message: Message, place: str = "") -> dict[str, Any]:
    """Return a message as it is sent.

    What was left out stays out, except its id: with a new one in its place, the same body may be
    sent again.

    Parameters
    ----------
    message : Message
    place : str, default ""
        What errors put before a field: ``decisions[1].``.

    Raises
    ------
    InvalidValue
        If a field cannot be right.

    Examples
    --------
    >>> from tacit.client.messages import Feedback
    >>> body(Feedback("018bcfe5", 1, "click 7"))
    {'decision_id': '018bcfe5', 'reward': 1.0, 'feedback_id': 'click 7'}
    """
    if isinstance(message, Clicks) and (message.clicks is None) == (message.items is None):
        raise InvalidValue(f"{place}clicks", message.clicks, "give clicks, or items in place of them")
    fields = message.__struct_fields__
    required = len(fields) - len(message.__struct_defaults__)
    sent = {}
    for number, (field, sent_as) in enumerate(zip(fields, message.__struct_encode_fields__, strict=True)):
        value = getattr(message, field)
        if value is None and number >= required:
            if not field.endswith("_id"):
                continue
            value = new_id(time.time_ns() // 1000)
        sent[sent_as] = CHECKS[field](place + field, value)
    return sent


def list_of(check: Check) -> Check:
    """Return the check of a list all of whose values pass ``check``."""

    def checked(field: str, given: Any) -> list[Any]:
        if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
            raise InvalidValue(field, given, "give a list")
        return [check(f"{field}[{i}]", value) for i, value in enumerate(given)]

    return checked


def number_within(low: float, high: float) -> Check:
    """Return the check of a number in [low, high]."""
    return lambda field, given: checks.number(field, given, low, high)


def _arm(field: str, given: Any) -> Arm:
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, str):
        return checks.name(field, given)
    raise InvalidValue(field, given, "give the arm's name, or its number from 0")


def _position(field: str, given: Any) -> int:
    return checks.integer(field, given, 0, LONGEST_LIST)


def _named(field: str, given: Any) -> str | dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else checks.name(field, given)


def _limit(field: str, given: Any) -> int:
    return checks.integer(field, given, 1, MOST_CHANGES)


def _rankings(field: str, given: Any) -> dict[str, list[Arm]]:
    if not isinstance(given, Mapping):
        raise InvalidValue(field, given, "give each ranker's list")
    return {
        checks.name(field, ranker): CHECKS["items"](f"{field}.{ranker}", items)
        for ranker, items in given.items()
    }


def _metrics(field: str, given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise InvalidValue(field, given, "give an amount for each metric, by name")
    return {
        checks.name(field, name): checks.number(f"{field}.{name}", amount, -LARGEST, LARGEST)
        for name, amount in given.items()
    }


def _segments(field: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidValue(field, given, "give a value for each segment, by name")
    return {checks.name(field, name): checks.name(f"{field}.{name}", value) for name, value in given.items()}


def _new_arms(field: str, given: Any) -> int | list[Arm]:
    return list_of(_arm)(field, given) if not isinstance(given, int) else given


def _context(field: str, given: Any) -> Any:
    """Return numbers as numbers; of what is said by name, the service knows what it holds."""
    if not isinstance(given, Mapping):
        return _features(field, given)
    # Numbers and texts of NumPy are those of Python.
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


_features = list_of(number_within(-LARGEST, LARGEST))

CHECKS: dict[str, Check] = {
    "action": checks.name,
    "add": _new_arms,
    "arm": _arm,
    "arms": list_of(_arm),
    "begin": checks.name,
    "clicks": list_of(_position),
    "control": _named,
    "confidence": number_within(0.0, 1.0),
    "context": _context,
    "decision_id": checks.name,
    "daily": number_within(0.0, LARGEST),
    "deferred": checks.flag,
    "end": checks.name,
    "examination": list_of(_features),
    "false_share": number_within(0.0, 1.0),
    "feedback_id": checks.name,
    "items": list_of(_arm),
    "key": checks.name,
    "limit": _limit,
    "metrics": _metrics,
    "mode": checks.name,
    "propensity": number_within(0.0, 1.0),
    "policy": _named,
    "rankings": _rankings,
    "restore": list_of(_arm),
    "retire": list_of(_arm),
    "relevance": list_of(_features),
    "rate": number_within(0.0, 1.0),
    "reward": number_within(0.0, 1.0),
    "segments": _segments,
    "session": checks.name,
    "share": number_within(0.0, 0.5),
    "shown": number_within(0.0, LARGEST),
    "to": checks.name,
    "until": checks.name,
    "look": checks.name,
    "unit": checks.name,
    "user": checks.name,
}
