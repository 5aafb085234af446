"""How placements of a kind are asked for decisions, and how they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tacit.service.config.file import checked_within
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow
from tacit.wire.verbs import Verb


def _each_read(form: Form, placement: Any, requests: Sequence[Any]) -> Sequence[Impression]:
    return [checked_within(f"decisions[{i}]", form.read, (placement, one)) for i, one in enumerate(requests)]


def _each_written(form: Form, placement: Any, rows: Sequence[DecisionRow], durability: Any) -> list[Any]:
    return [form.write(placement, row, durability) for row in rows]


class Form(NamedTuple):
    """How placements of a kind are asked, and how they answer.

    Attributes
    ----------
    verb, verb_many : Verb
        What they are asked for one decision, and for many.
    read : function
        Returns a request to a placement as an impression, checked.
    write : function
        Returns the answer that tells a row of a placement's log.
    read_many, write_many : function
        The same for many, which may be faster than one by one.
    """

    verb: Verb[Any]
    verb_many: Verb[Any]
    read: Callable[[Any, Any], Impression]
    write: Callable[[Any, DecisionRow, Any], msgspec.Struct]
    read_many: Callable[[Form, Any, Sequence[Any]], Sequence[Impression]] = _each_read
    write_many: Callable[[Form, Any, Sequence[DecisionRow], Any], list[Any]] = _each_written
