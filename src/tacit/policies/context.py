"""Context as people have it: who is asking, as a dict or a table with names, made numbers by a schema.

A schema says of each field what it holds, and so which columns of numbers it takes:

====================  ==========================================================================
``"number"``          the number
``"boolean"``         1 or 0
``["ios", "web"]``    one column for each of these values, and one for any other
``"category"``        values that are not known before: hashed to 16 columns, each with a sign
``"category(64)"``    the same, to 64
====================  ==========================================================================

Each field has one more column, which is 1 where the value is missing. What policies read are the columns:
:class:`~tacit.ContextMixture` brings their numbers to a common size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from numbers import Real
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.frames import frame_batches, frame_names, is_frame

Declared = tuple[tuple[str, str | tuple[str, ...]], ...]
"""A schema as a policy keeps it: fields in their order, each with what it holds."""

NUMBER, BOOLEAN, CATEGORY = "number", "boolean", "category"
HASHED = 16
MOST_HASHED = 4096
MOST_COLUMNS = 1024
HOLDS = f"say {NUMBER!r}, {BOOLEAN!r}, {CATEGORY!r}, 'category(COLUMNS)', or a list of the values"

_HASHED = re.compile(rf"{CATEGORY}\(([0-9]{{1,4}})\)")


def declared(field: str, given: Any) -> Declared:
    """Return a schema in its canonical form; empty for none.

    Parameters
    ----------
    field : str
        What errors call it.
    given : mapping from str to str or sequence of str, or a canonical schema

    Raises
    ------
    InvalidValue
        If a name or what it holds is not allowed, or there are too many columns.

    Examples
    --------
    >>> declared("context", {"device": ["ios", "web"], "age": "number"})
    (('device', ('ios', 'web')), ('age', 'number'))
    """
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise InvalidValue(field, given, f"name each field and what it holds; {HOLDS}")
    try:
        pairs = [(name, holds) for name, holds in (given.items() if isinstance(given, Mapping) else given)]
    except (TypeError, ValueError):
        raise InvalidValue(field, given, f"name each field and what it holds; {HOLDS}") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidValue(field, given, "name each field once")
    known = tuple((checks.name(field, name), _held(f"{field}.{name}", holds)) for name, holds in pairs)
    width = len(columns_of(known))
    if width > MOST_COLUMNS:
        raise InvalidValue(field, f"{width} columns", f"declare at most {MOST_COLUMNS}; hash to fewer")
    return known


def _held(field: str, holds: Any) -> str | tuple[str, ...]:
    """Return what a field holds, in its canonical form."""
    if isinstance(holds, str):
        if holds not in (NUMBER, BOOLEAN, CATEGORY) and not 1 <= _width(holds) <= MOST_HASHED:
            raise InvalidValue(field, holds, HOLDS)
        return holds
    if not isinstance(holds, Sequence) or not holds:
        raise InvalidValue(field, holds, HOLDS)
    values = tuple(checks.name(f"{field}[{i}]", value) for i, value in enumerate(holds))
    if len(set(values)) < len(values):
        raise InvalidValue(field, list(values), "give each value once")
    return values


def _width(holds: str) -> int:
    """Return to how many columns a category is hashed; 0 if it is none."""
    if holds == CATEGORY:
        return HASHED
    match = _HASHED.fullmatch(holds)
    return int(match[1]) if match else 0


@lru_cache(maxsize=256)
def columns_of(schema: Declared) -> tuple[str, ...]:
    """Return the names of a schema's columns.

    Examples
    --------
    >>> columns_of((("device", ("ios", "web")), ("age", "number")))
    ('device=ios', 'device=web', 'device=other', 'device missing', 'age', 'age missing')
    """
    names: list[str] = []
    for name, holds in schema:
        if isinstance(holds, tuple):
            names += [f"{name}={value}" for value in (*holds, "other")]
        elif holds in (NUMBER, BOOLEAN):
            names.append(name)
        else:
            names += [f"{name}#{i}" for i in range(_width(holds))]
        names.append(f"{name} missing")
    return tuple(names)


class Encoder:
    """Make the columns of a schema from what is known of those who ask.

    Parameters
    ----------
    schema : Declared

    Attributes
    ----------
    width : int
        How many columns there are.
    fields : tuple of str
    others : int
        Values so far of declared fields that were none of those declared.
    """

    def __init__(self, schema: Declared) -> None:
        self._schema = schema
        self.width = len(columns_of(schema))
        self.others = 0
        self.fields = tuple(name for name, _ in schema)
        self._first: dict[str, int] = {}
        first = 0
        for name, holds in schema:
            self._first[name] = first
            first += len(columns_of(((name, holds),)))

    def row(self, given: Mapping[str, Any], field: str = "context") -> Floats:
        """Return the columns of one context.

        Parameters
        ----------
        given : mapping from str to str, float or bool
            A field that is left out, or None or NaN, is missing.
        field : str, default "context"
            What errors call it.

        Raises
        ------
        InvalidValue
            If the schema does not know a field, or a value is not what it holds.

        Examples
        --------
        >>> encoder = Encoder((("device", ("ios", "web")), ("age", "number")))
        >>> encoder.row({"device": "web", "age": 31}).tolist()
        [0.0, 1.0, 0.0, 0.0, 31.0, 0.0]
        >>> encoder.row({"device": "tv"}).tolist(), encoder.others
        ([0.0, 0.0, 1.0, 0.0, 0.0, 1.0], 1)
        """
        row = np.zeros(self.width)
        for name in given:
            if name not in self._first:
                known = ", ".join(self._first)
                raise InvalidValue(f"{field}.{name}", given[name], f"the schema has the fields {known}")
        for name, holds in self._schema:
            self._fill(row, name, holds, given.get(name), field)
        return row

    def rows(self, given: Any, field: str = "context") -> Any:
        """Return the columns of many contexts; what holds numbers already as it is.

        Parameters
        ----------
        given : sequence of mapping, or table
            A table, such as a data frame, has a column for each field.
        field : str, default "context"
        """
        if is_frame(given):
            names = frame_names(given)
            given = [row for batch in frame_batches(given, names) for row in batch.to_pylist()]
        if not isinstance(given, Sequence) or not all(map(_is_named, given)):
            return given
        single = len(given) == 1
        rows = [self.row(_named(each), field if single else f"{field}[{i}]") for i, each in enumerate(given)]
        return np.array(rows).reshape(len(rows), self.width)

    def _fill(self, row: Floats, name: str, holds: Any, value: Any, field: str) -> None:
        first = self._first[name]
        if isinstance(holds, tuple):
            last = first + len(holds) + 1
        else:
            last = first + (_width(holds) or 1)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            row[last] = 1.0
        elif isinstance(holds, tuple):
            known = _text(f"{field}.{name}", value)
            if known in holds:
                row[first + holds.index(known)] = 1.0
            else:
                row[last - 1] = 1.0
                self.others += 1
        elif holds == NUMBER:
            row[first] = _number(f"{field}.{name}", value)
        elif holds == BOOLEAN:
            row[first] = float(_flag(f"{field}.{name}", value))
        else:
            place, sign = _hashed(name, _text(f"{field}.{name}", value), last - first)
            row[first + place] = sign


def _is_named(value: Any) -> bool:
    """Whether a value is a mapping, or the row of a data frame."""
    return isinstance(value, Mapping) or (hasattr(value, "to_dict") and hasattr(value, "index"))


def _named(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else value.to_dict()  # type: ignore[no-any-return]


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidValue(field, value, "give a finite number, or None where it is missing")
    return float(value)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InvalidValue(field, value, "give True or False, or None where it is missing")
    return bool(value)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue(field, value, "give a string, or None where it is missing")
    return value


@lru_cache(maxsize=65_536)
def _hashed(name: str, value: str, width: int) -> tuple[int, float]:
    """Return the column and the sign of a value.

    References
    ----------
    Weinberger, Dasgupta, Langford, Smola, Attenberg (2009), "Feature hashing for large scale multitask
    learning", section 2.
    """
    number = int.from_bytes(blake2b(f"{name}={value}".encode(), digest_size=8).digest(), "little")
    return (number >> 1) % width, 1.0 if number & 1 else -1.0


def context_width(context: Any, context_dim: int) -> int:
    """Return how many numbers a context has, by its schema where there is one."""
    if not context:
        return context_dim
    width = len(columns_of(declared("context", context)))
    if context_dim not in (0, width):
        raise InvalidValue("context_dim", context_dim, f"leave it out: context has {width} columns")
    return width
