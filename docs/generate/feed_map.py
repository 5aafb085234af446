"""The reference of a feed's map, from its classes."""

from __future__ import annotations

import re

from generate.configuration import keys
from generate.tables import summary, table
from tacit.feed.event_map import EventMap, EventReward, SeenMap, ShownMap

TABLES: dict[str, type] = {
    "The map": EventMap,
    "A kind of event in `[reward]`": EventReward,
    "`[shown]`": ShownMap,
    "`[seen]`": SeenMap,
}
SCALAR = "string or integer or number or boolean"
WORDS = {
    rf"{SCALAR} or list of {SCALAR}": "values, each with one or with a list",
    r"list of integer or string, at least 1": "list of arms",
    r"\[Fixed_[^\]]*\]\([^)]*\)": "`{ value = … }`",
    r"string": "field",
}
"""What the types of a schema are in a map, in which text names a field."""


def part() -> str:
    """Return every table of the map with its keys."""
    return "\n\n".join(
        f"## {title} {{ #{what.__name__.lower()} }}\n\n{summary(what)}\n\n"
        f"{table(['key', 'type', 'default', 'meaning'], rows(what))}"
        for title, what in TABLES.items()
    )


def rows(structure: type) -> list[list[str]]:
    """Return the row of every key."""
    kinds = {"`metric`": "text"}
    return [[name, kinds.get(name, in_a_map(kind)), *more] for name, kind, *more in keys(structure).values()]


def in_a_map(kind: str) -> str:
    """Return a type as a map has it.

    Examples
    --------
    >>> in_a_map("string or [Fixed_str_](#fixed_str_)")
    'field or `{ value = … }`'
    """
    for schema, words in WORDS.items():
        kind = re.sub(schema, words, kind)
    return kind
