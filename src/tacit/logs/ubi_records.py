"""Parse User Behavior Insights (UBI) 1.3: query and event records, in JSON lines."""

# 1. ``read_records``: JSON lines, also of bulk requests, whose action lines are skipped.
# 2. ``UbiQuery``, ``UbiEvent``: validated records.
# 3. Single fields: texts, objects, times.

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tacit.core import checks
from tacit.errors import InvalidValue

# ---- JSON lines as search engines and event shippers write them

BULK = ("index", "create")
"""Keys of the action lines that precede each record of a bulk request."""


def read_records(path: Any) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield each record of a file of JSON lines with its line number, from 1.

    Action lines of bulk requests and empty lines are skipped; of search hits, ``_source`` is the record. A
    line that is no JSON object is yielded as text.
    """
    from tacit.logs.formats import open_lines, parse_object

    with open_lines(path) as file:
        for row, line in enumerate(file, 1):
            if not line.strip():
                continue
            record = parse_object(line)
            if record is None:
                yield row, line.decode(errors="replace").rstrip("\n")
            elif not (len(record) == 1 and next(iter(record)) in BULK):
                source = record.get("_source")
                yield row, source if isinstance(source, dict) else record


# ---- User Behavior Insights (UBI) 1.3: query and event records
#
# A *query* record lists the objects that a search returned, in order; an *event* record is an action
# of a user on one of them. Both are JSON objects that allow further attributes. tacit adds its own in
# ``query_attributes.tacit`` and ``event_attributes.tacit``.
#
# References
# ----------
# o19s/ubi, ``schema/1.3.0/query.request.schema.json`` and ``event.schema.json``.

TACIT_ATTRIBUTE = "tacit"
"""Attribute with the fields that tacit adds."""
CLICK, IMPRESSION = "click", "impression"
CLICKS = (CLICK,)
"""Names of actions that are clicks."""
EXAMINED = (IMPRESSION, "view")
"""Names of actions that mean that the user saw an object."""
LONGEST_NAME = 100
"""Most characters of an id or a name."""
LONGEST_OBJECT = 256
"""Most characters of an object's id."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UbiQuery(NamedTuple):
    """The fields of a query record.

    Attributes
    ----------
    id : str
    text : str
        The user's query text.
    hits : tuple of str or None
        Ids of the objects returned, in order; None if the record has none.
    time : str or None
        ISO 8601.
    application : str or None
    attributes : dict
        The fields in ``query_attributes.tacit``.
    """

    id: str
    text: str
    hits: tuple[str, ...] | None
    time: str | None
    application: str | None
    attributes: Mapping[str, Any]


class UbiEvent(NamedTuple):
    """The fields of an event record.

    Attributes
    ----------
    action : str
    query : str
        The query's id.
    objects : tuple of str
        Ids under which its object may be among the hits, the likeliest first.
    ordinal : int or None
        The position on the page, from 1.
    time : str
        ISO 8601.
    reward : float or None
        That in ``event_attributes.tacit``.
    """

    action: str
    query: str
    objects: tuple[str, ...]
    ordinal: int | None
    time: str
    reward: float | None


def is_event(record: Mapping[str, Any]) -> bool:
    """True if a record is an event, which has an ``action_name``; otherwise it is a query."""
    return record.get("action_name") is not None


def parse_query(record: Mapping[str, Any]) -> UbiQuery:
    """Return the validated fields of a query record; only ``query_id`` and ``user_query`` are required.

    Raises
    ------
    InvalidValue
        If a field is missing or of another type than the schema says.

    Examples
    --------
    >>> query = parse_query(
    ...     {"query_id": "1", "user_query": "toner", "query_response_hit_ids": ["a", "b"]}
    ... )
    >>> query.text, query.hits
    ('toner', ('a', 'b'))
    """
    hits = record.get("query_response_hit_ids")
    if hits is not None:
        if not isinstance(hits, list) or not all(isinstance(hit, str) for hit in hits):
            raise InvalidValue("query_response_hit_ids", hits, "give a list of text")
        hits = tuple(hits)
    return UbiQuery(
        _get_text(record, "query_id", LONGEST_NAME),
        _get_text(record, "user_query"),
        hits,
        None if record.get("timestamp") is None else _get_time(record),
        _get_optional_text(record, "application", LONGEST_NAME),
        _get_attributes(record, "query_attributes"),
    )


def parse_event(record: Mapping[str, Any]) -> UbiEvent:
    """Return the validated fields of an event record.

    Raises
    ------
    InvalidValue
        If a field is missing or of another type than the schema says.
    """
    attributes = _get_object(record, "event_attributes")
    object = _get_object(attributes, "object", "event_attributes.")
    position = _get_object(attributes, "position", "event_attributes.")
    ids = [_get_id(object, field) for field in ("object_id", "internal_id")]
    ordinal = position.get("ordinal")
    reward = _get_attributes(record, "event_attributes").get("reward")
    if ordinal is not None and (isinstance(ordinal, bool) or not isinstance(ordinal, int)):
        raise InvalidValue("event_attributes.position.ordinal", ordinal, "give a whole number")
    return UbiEvent(
        _get_text(record, "action_name", LONGEST_NAME),
        _get_text(record, "query_id", LONGEST_NAME),
        tuple(dict.fromkeys(id for id in ids if id is not None)),
        ordinal,
        _get_time(record),
        None if reward is None else checks.finite("event_attributes.tacit.reward", reward),
    )


def find_position(objects: tuple[str, ...], ordinal: int | None, hits: Sequence[str]) -> int | None:
    """Return the position of an event's object among the hits, from 0; None if it is not there.

    An object is identified by its ids, the likeliest first, or by its ordinal if the event has no ids.

    Examples
    --------
    >>> find_position(("b",), 7, ["a", "b"]), find_position((), 1, ["a", "b"])
    (1, 0)
    >>> find_position(("c",), 1, ["a"]) is None
    True
    """
    for name in objects:
        if name in hits:
            return hits.index(name)
    if objects or ordinal is None or not 0 < ordinal <= len(hits):
        return None
    return ordinal - 1


def digest_record(record: Mapping[str, Any]) -> str:
    """Return an id for a record, a hash of its content, because UBI events have no id.

    Examples
    --------
    >>> digest_record({"a": 1, "b": 2}) == digest_record({"b": 2, "a": 1}) != digest_record({"a": 1})
    True
    """
    content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    return "ubi-" + hashlib.blake2b(content, digest_size=16).hexdigest()


def format_time(microseconds: int) -> str:
    """Return a time, in microseconds since 1970, as ISO 8601 text in UTC.

    Examples
    --------
    >>> format_time(1_542_140_439_000_000)
    '2018-11-13T20:20:39.000000Z'
    """
    return f"{EPOCH + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%S.%fZ}"


def _get_text(record: Mapping[str, Any], field: str, max_length: int | None = None) -> str:
    """Return a text field; raise InvalidValue if it is missing, no text, or longer than ``max_length``."""
    value = record.get(field)
    if not isinstance(value, str) or (max_length is not None and len(value) > max_length):
        limit = "" if max_length is None else f" of at most {max_length} characters"
        raise InvalidValue(field, value, f"give text{limit}")
    return value


def _get_optional_text(record: Mapping[str, Any], field: str, max_length: int) -> str | None:
    """Return a text field, or None if it is missing; raise InvalidValue if it is no text or too long."""
    return None if record.get(field) is None else _get_text(record, field, max_length)


def _get_object(record: Mapping[str, Any], field: str, prefix: str = "") -> Mapping[str, Any]:
    """Return a field that is a JSON object, {} if it is missing; raise InvalidValue for other values.

    The error names the field with ``prefix`` before it.
    """
    value = record.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidValue(prefix + field, value, "give an object")
    return value


def _get_attributes(record: Mapping[str, Any], attributes: str) -> Mapping[str, Any]:
    """Return the object in the field ``attributes`` under the name "tacit", or {}."""
    return _get_object(_get_object(record, attributes), TACIT_ATTRIBUTE, f"{attributes}.")


def _get_id(object: Mapping[str, Any], field: str) -> str | None:
    """Return an object's id in ``field`` as text, None if missing; raise InvalidValue if it is wrong.

    It must be text of at most 256 characters or a whole number.
    """
    value = object.get(field)
    if value is None:
        return None
    if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) <= LONGEST_OBJECT:
        return str(value)
    remedy = f"give text of at most {LONGEST_OBJECT} characters, or a whole number"
    raise InvalidValue(f"event_attributes.object.{field}", value, remedy)


def _get_time(record: Mapping[str, Any]) -> str:
    """Return a record's timestamp as ISO 8601 text; numbers are milliseconds since 1970.

    Raises InvalidValue if it is missing or no time.
    """
    value = record.get("timestamp")
    try:
        if isinstance(value, str):
            datetime.fromisoformat(value)
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return format_time(1000 * value)
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidValue("timestamp", value, "give a time in ISO 8601")
