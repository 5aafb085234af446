"""Contexts with names: dicts or tables that describe users, converted to numbers by a schema.

A schema maps each field to its type, which determines its columns of numbers:

====================  ==========================================================================
``"number"``          the number
``"boolean"``         1 or 0
``["ios", "web"]``    one column for each of these values, and one for all other values
``"category"``        values that are not known in advance: hashed to 16 columns, with a sign
``"category(64)"``    the same, to 64
``"signal"``          a number that may announce a change of tastes, such as traffic
====================  ==========================================================================

Each field has one more column, which is 1 if the value is missing: its other columns then count as
average. A signal has no such column, must not be missing, and comes after all other fields. Policies read
the columns; :class:`~tacit.ContextMixture` scales their numbers to a common size.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.frames import frame_batches, frame_names, is_frame

Schema = tuple[tuple[str, str | tuple[str, ...]], ...]
"""A schema as a policy stores it: the fields in their order, each with its type."""

NUMBER, BOOLEAN, CATEGORY, SIGNAL = "number", "boolean", "category", "signal"
HASHED = 16
MOST_HASHED = 4096
MOST_COLUMNS = 1024
ABSENT: Any = object()
"""Placeholder for a field that a context does not have."""
MOST_EXAMPLES = 3
"""Number of values stored for each hash, so that reports show values and not only column numbers."""
TYPES_HINT = (
    f"say {NUMBER!r}, {BOOLEAN!r}, {CATEGORY!r}, 'category(COLUMNS)', {SIGNAL!r}, or a list of the values"
)

LOG_COLUMNS = {"arm", "arms", "reward", "propensity", "click", "clicked", "clicks", "decision_id", "key"}
"""Names of columns that no schema is inferred for: known only after a decision, or the key."""
FINITE = f"a finite number (up to {checks.HUGE:g})"
TEXT = "a string, or nothing where it is missing"
BARE = r"[A-Za-z0-9_-]+"
_HASHED = re.compile(rf"{CATEGORY}\(([0-9]{{1,4}})\)")


def normalize_schema(field: str, schema: Any) -> Schema:
    """Return a schema in its canonical form: pairs of field name and type, signals last.

    Warns (AssumptionWarning) about a field that has the name of a log's column, such as ``reward``, and about
    a number that has the name of an id.

    Parameters
    ----------
    field : str
        Name of the field for error messages.
    schema : mapping from str to str or sequence of str, a canonical schema, names, or rows
        Names alone, as ``["age", "visits"]``, are those of numbers. From rows, a data frame or a list of
        dicts, the schema is inferred (:func:`infer_schema`).

    Raises
    ------
    InvalidValue
        If a mapping is empty, a name or a type is not allowed, or there are too many columns.

    Examples
    --------
    >>> normalize_schema("context", {"device": ["ios", "web"], "age": "number"})
    (('device', ('ios', 'web')), ('age', 'number'))
    """
    if _is_rows(schema):
        schema = infer_schema(schema)
    if isinstance(schema, str) or not isinstance(schema, Mapping | Sequence) or schema == {}:
        raise InvalidValue(field, schema, f"name each field and what it holds; {TYPES_HINT}")
    if not isinstance(schema, Mapping) and schema and all(isinstance(name, str) for name in schema):
        schema = dict.fromkeys(schema, NUMBER)
    try:
        pairs = [(name, holds) for name, holds in (schema.items() if isinstance(schema, Mapping) else schema)]
    except (TypeError, ValueError):
        raise InvalidValue(field, schema, f"name each field and what it holds; {TYPES_HINT}") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidValue(field, schema, "name each field once")
    for name, holds in pairs if isinstance(schema, Mapping) else ():
        doubt = "what is known only with a decision, or after it;" if name in LOG_COLUMNS - {"key"} else ""
        if holds == NUMBER and ID.search(str(name)):
            doubt = f"an id, of which more is not more; say {CATEGORY!r} if many have the same, or"
        if doubt:
            warnings.warn(f"{field}.{name}: its name is of {doubt} leave it out", AssumptionWarning, 4)
    fields = [(checks.name(field, name), _normalize_type(f"{field}.{name}", holds)) for name, holds in pairs]
    ordered = tuple(sorted(fields, key=lambda pair: pair[1] == SIGNAL))
    width = len(list_columns(ordered))
    if width > MOST_COLUMNS:
        raise InvalidValue(field, f"{width} columns", f"declare at most {MOST_COLUMNS}; hash to fewer")
    return ordered


def _normalize_type(field: str, holds: Any) -> str | tuple[str, ...]:
    """Return the declared type of a field as a text such as ``"number"``, or as a tuple of allowed values.

    Raises InvalidValue if ``holds`` is neither the name of a type nor a list of texts. ``field`` names it in
    the error.
    """
    if isinstance(holds, str):
        if holds not in (NUMBER, BOOLEAN, CATEGORY, SIGNAL) and not 1 <= _count_hashed(holds) <= MOST_HASHED:
            raise InvalidValue(field, holds, TYPES_HINT)
        return holds
    if not isinstance(holds, Sequence) or not holds:
        raise InvalidValue(field, holds, TYPES_HINT)
    if {True, False}.issuperset(holds):
        raise InvalidValue(field, holds, f"say {BOOLEAN!r}")
    values = tuple(checks.name(f"{field}[{i}]", value) for i, value in enumerate(holds))
    if len(set(values)) < len(values):
        raise InvalidValue(field, list(values), "give each value once")
    return values


def _count_hashed(holds: str) -> int:
    """Return the number of hashed columns of a type: n for ``category(n)``, 16 for ``category``, else 0."""
    if holds == CATEGORY:
        return HASHED
    match = _HASHED.fullmatch(holds)
    return int(match[1]) if match else 0


def find_missing_flags(schema: Schema) -> Ints | None:
    """Return for each column of a schema the index of the column that is 1 if the same field is missing.

    It is −1 for such a flag itself, and for a signal, which has none. Returns None for an empty schema.

    Examples
    --------
    >>> find_missing_flags((("age", "number"), ("visits", "signal")))
    array([ 1, -1, -1])
    """
    names = list_columns(schema)
    flags = [
        names.index(flag) if (flag := f"{name} missing") in names and flag != column else -1
        for column, name in zip(names, list_column_fields(schema), strict=True)
    ]
    return np.array(flags, np.int64) if schema else None


@lru_cache(maxsize=256)
def list_columns(schema: Schema) -> tuple[str, ...]:
    """Return the names of the columns of a schema.

    Examples
    --------
    >>> list_columns((("device", ("ios", "web")), ("age", "number")))
    ('device=ios', 'device=web', 'device=other', 'device missing', 'age', 'age missing')
    """
    names: list[str] = []
    for name, holds in schema:
        if isinstance(holds, tuple):
            names += [f"{name}={value}" for value in (*holds, "other")]
        elif holds in (NUMBER, BOOLEAN, SIGNAL):
            names.append(name)
        else:
            names += [f"{name}#{i}" for i in range(_count_hashed(holds))]
        names += [f"{name} missing"] if holds != SIGNAL else []
    return tuple(names)


def list_column_fields(schema: Schema) -> tuple[str, ...]:
    """Return for each column of a schema the name of its field.

    Examples
    --------
    >>> list_column_fields((("new", "boolean"), ("visits", "signal")))
    ('new', 'new', 'visits')
    """
    return tuple(name for name, holds in schema for _ in list_columns(((name, holds),)))


def count_signals(schema: Schema) -> int:
    """Return the number of fields of a schema that are signals.

    Examples
    --------
    >>> count_signals((("age", "number"), ("visits", "signal")))
    1
    """
    return sum(holds == SIGNAL for _, holds in schema)


# ---- A schema that is inferred from rows

FIRST_ROWS = 1000
MOST_VALUES, VALUE_REPEATS = 20, 5
"""Text of at most 20 distinct values, each seen 5 times on average, becomes a list of values."""
MANY = 100
"""Rows from which on an ordered column is no coincidence."""
NEW_SHARE = 0.9
"""A field with a larger share of distinct values identifies users."""
SECONDS = 1e9, 2.2e9
"""Seconds from 1970 until 2001, and until 2039: the range of plausible timestamps."""
DENSE = 5
"""Whole numbers are counts if at least one in 5 numbers of their range occurs, else codes."""
ID = re.compile(r"(^|_)(id|uid|uuid)$|[a-z]I[dD]$")
CODE = re.compile(r"-1\.0|-9+\.0|9{3,}\.0")


def _is_rows(value: Any) -> bool:
    """True if a value is a data frame or a non-empty sequence of mappings; a mapping alone is neither."""
    if isinstance(value, Mapping):
        return False
    return is_frame(value) or (isinstance(value, Sequence) and bool(value) and all(map(_is_named, value)))


def infer_schema(rows: Any, first: int = FIRST_ROWS) -> dict[str, str | list[str]]:
    """Return the schema that fits the first rows: a dict from each field to its type.

    The same rows give the same schema. Text of at most 20 distinct values, each seen five times on
    average, becomes a list of these values; other text a ``"category"``. Whole numbers become a
    ``"number"``: convert them to text if they are codes. Warns (AssumptionWarning) about suspicious values,
    such as ids, times, codes of missing values, or numbers in text.

    Parameters
    ----------
    rows : data frame, sequence of mapping, or mapping of columns
    first : int, default 1000
        Number of rows to read.

    Raises
    ------
    InvalidValue
        If there is no row, or a field has the name of a column of a log, such as ``reward`` or ``arm``, is
        missing in all rows, or holds neither numbers, nor text, nor booleans.

    Examples
    --------
    >>> rows = [{"device": "ios", "age": 31, "new": True}, {"device": "web", "age": None, "new": False}] * 10
    >>> infer_schema(rows)
    {'device': ['ios', 'web'], 'age': 'number', 'new': 'boolean'}
    """
    contexts: list[Mapping[str, Any]] = []
    if is_frame(rows):
        names = frame_names(rows)
        for batch in frame_batches(rows, names, first):
            contexts += batch.slice(0, first - len(contexts)).to_pylist()
            if len(contexts) >= first:
                break
    elif _is_rows(rows):
        contexts = list(map(_to_mapping, rows[:first]))
    if not contexts:
        raise InvalidValue("context", rows, "give rows with names: a data frame, or dicts")
    fields = dict.fromkeys(name for row in contexts for name in row)
    if log_columns := [name for name in fields if name in LOG_COLUMNS]:
        remedy = "columns of a log say nothing of who is asking; name those that do: frame[[...]]"
        raise InvalidValue("context", log_columns, remedy)
    return {name: _infer_type(f"context.{name}", [row.get(name) for row in contexts]) for name in fields}


def _infer_type(field: str, values: Sequence[Any]) -> str | list[str]:
    """Return the type of a field from its values: boolean, number, category, or a list of its distinct texts.

    Texts become a list if there are at most 20 distinct ones, each seen 5 times on average. Warns about
    suspicious values. Raises InvalidValue if all values are missing, or if they are not all booleans, all
    numbers or all texts.
    """
    present = [value for value in values if not _is_missing(value)]
    if not present:
        remedy = f"it is missing in all of {len(values)} rows: say what it holds, or leave it out"
        raise InvalidValue(field, None, remedy)
    for holds, check in ((BOOLEAN, _is_flag), (NUMBER, _is_number), (CATEGORY, _is_text)):
        if all(map(check, present)):
            different = sorted(set(present)) if holds == CATEGORY else []
            few = 0 < len(different) <= min(MOST_VALUES, len(present) // VALUE_REPEATS)
            if doubt := _describe_numeric_texts(different, field) or _describe_doubt(holds, present):
                warnings.warn(f"{field}: {doubt}", AssumptionWarning, stacklevel=3)
            return list(map(str, different)) if few else holds
    # The error names the first value whose type differs from the first one's.
    kind = next(
        check for check in (_is_flag, _is_number, _is_text, bool) if check is bool or check(present[0])
    )
    odd = next((value for value in present if not kind(value)), present[0])
    remedy = "let all rows hold numbers, or text, or True and False; times are none of these"
    raise InvalidValue(field, odd, remedy)


def _describe_doubt(holds: Any, present: Sequence[Any]) -> str:
    """Return a warning about suspicious values of a field of type ``holds``; an empty text if none is.

    ``present`` has the values that are not missing, by row. Suspicious are ids, times, numbers that stand for
    a missing value, and a declared list of which no value occurs.
    """
    texts = len(present) >= FIRST_ROWS // 2 and isinstance(present[0], str)
    if texts and len(set(present)) > NEW_SHARE * len(present):
        what = "nearly every value is another, as of an id, and says nothing of those who come next"
        return f"{what}; leave it out, or give what they have in common"
    if len(present) < MANY:
        return ""
    if isinstance(holds, tuple) and set(holds).isdisjoint(present):
        what = "none of the schema's values came, so all count as other"
        return f"{what}; list those that come: {present[0]!r}, …"
    if holds != NUMBER:
        return ""
    steps = list(pairwise(present))
    rises = all(a < b for a, b in steps) or all(a > b for a, b in steps)
    if rises and all(float(value).is_integer() for value in present):
        return "it rises or falls from row to row, as an id or a time does; leave it out, or make text of it"
    counts, least, most = Counter(present), min(present), max(present)
    timely = any(SECONDS[0] <= least / unit <= most / unit <= SECONDS[1] for unit in (1, 1e3, 1e6, 1e9))
    if timely and len(counts) > MOST_VALUES:
        return "all are times counted from 1970; give what matters of one: the hour, or how long ago it is"
    code = _find_missing_code(counts)
    return "" if code is None else f"{code:g} stands for no number, and counts as one; give None in its place"


def _find_missing_code(counts: Counter[Any]) -> Any:
    """Return the number that stands for a missing value, such as 999 or -1; None if there is none.

    ``counts`` has the number of rows by value. Such a code is −1 or made of nines, is the least or the
    largest value, has at least 1 % of the rows, and lies apart from the other values.
    """
    for code in (min(counts), max(counts)):
        other_counts = {value: count for value, count in counts.items() if value != code}
        often = counts[code] >= counts.total() / MANY and len(other_counts) >= MOST_VALUES // 2
        if often and CODE.fullmatch(str(float(code))):
            low, high = min(other_counts), max(other_counts)
            far = max(low - code, code - high) > high - low
            if far or (code < 0 <= low and counts[code] > 2 * max(other_counts.values())):
                return code
    return None


def _describe_numeric_texts(texts: Sequence[Any], field: str) -> str:
    """Return a warning if texts are numbers: all, all with the same unit, or at least half; else an empty
    text.

    ``texts`` are distinct. Codes are not warned of: there are few, or they lie far apart, as post codes do.
    """
    units = {re.sub(r"^[+-]?[0-9]+([.,][0-9]+)?\s*", "", str(text).strip()) for text in texts}
    name = field.removeprefix("context.")
    if len(texts) > MOST_VALUES and units == {""} and not ID.search(name):
        plain = all(re.fullmatch(r"[+-]?(0|[1-9][0-9]*)([.,][0-9]+)?", text.strip()) for text in texts)
        numbers = [float(text.replace(",", ".")) for text in texts] if plain else [0.0]
        whole = all(number.is_integer() for number in numbers)
        if plain and not (whole and max(numbers) - min(numbers) > DENSE * len(numbers)):
            remedy = f"make numbers of them, as by frame.astype({{{name!r}: float}}), if more of it is more"
            return f"all are numbers in text, such as {texts[0]!r}, and count as a category; {remedy}"
    if len(texts) > MOST_VALUES and len(units) == 1 and not re.search("[0-9]", unit := units.pop()) and unit:
        return f"all are numbers with {unit!r} behind, and count as text, a category; give them without it"
    non_numbers = [text for text in texts if not re.fullmatch(r"[+-]?[0-9]+([.,][0-9]+)?", str(text).strip())]
    if 0 < len(non_numbers) <= len(texts) // 2:
        doubt = f"{non_numbers[0]!r} is no number as most others are, so all count as text, a category"
        return f"{doubt}; give None in place of it if they are numbers"
    return ""


def schema_text(schema: Schema) -> str:
    """Return a schema as a line of TOML, for a configuration.

    Examples
    --------
    >>> print(schema_text((("device", ("ios", "web")), ("age", "number"))))
    context = { device = ["ios", "web"], age = "number" }
    """
    fields = (
        f"{name if re.fullmatch(BARE, name) else json.dumps(name)} = {json.dumps(holds)}"
        for name, holds in schema
    )
    return f"context = {{ {', '.join(fields)} }}"


def _is_missing(value: Any) -> bool:
    """True if a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_flag(value: Any) -> bool:
    """True if a value is a boolean of Python or NumPy."""
    return isinstance(value, bool | np.bool_)


def _is_number(value: Any) -> bool:
    """True if a value is a real number within ±``checks.HUGE``, and no boolean."""
    number: Any = value
    return isinstance(value, Real) and not _is_flag(value) and bool(abs(number) <= checks.HUGE)


def _is_text(value: Any) -> bool:
    """True if a value is a string."""
    return isinstance(value, str)


# ---- From contexts to columns


class Encoder:
    """Convert contexts to the columns of a schema.

    Parameters
    ----------
    schema : Schema

    Attributes
    ----------
    width : int
        Number of columns.
    fields : tuple of str
    listed : list of str
        Fields with a list of declared values.
    undeclared_counts : Counter of str
        By field, the number of values so far that were not declared.
    data_warnings : dict of str to str
        By field, a warning about the first undeclared value that differs from a declared one only by
        capitals or blanks, or about the values in the first contexts.
    hashed_values : dict of (int, float) to list of str
        By column and sign, the first few values that were hashed to these.
    """

    def __init__(self, schema: Schema) -> None:
        """Create an encoder for a schema; nothing has been counted yet."""
        self._schema = schema
        self.width = len(list_columns(schema))
        self.undeclared_counts: Counter[str] = Counter()
        self.data_warnings: dict[str, str] = {}
        self.hashed_values: dict[tuple[int, float], list[str]] = {}
        self._contexts: list[tuple[Any, ...]] | None = []
        self.fields = tuple(name for name, _ in schema)
        self.listed = [name for name, holds in schema if isinstance(holds, tuple)]
        self._first_column: dict[str, int] = {}
        first = 0
        for name, holds in schema:
            self._first_column[name] = first
            first += len(list_columns(((name, holds),)))

    def encode_row(self, context: Mapping[str, Any], field: str = "context") -> Floats:
        """Return the columns of one context, as an array of shape (width,).

        Counts undeclared values in ``undeclared_counts``, stores examples of hashed values in
        ``hashed_values``, and warns once per field (AssumptionWarning, stored in ``data_warnings``) about
        suspicious values.

        Parameters
        ----------
        context : mapping from str to str, float or bool
            A field that is left out, or is None or NaN, is missing.
        field : str, default "context"
            Name of the context for error messages.

        Raises
        ------
        InvalidValue
            If the schema does not have a field, or a value does not fit the field's type.

        Examples
        --------
        >>> encoder = Encoder((("device", ("ios", "web")), ("age", "number")))
        >>> encoder.encode_row({"device": "web", "age": 31}).tolist()
        [0.0, 1.0, 0.0, 0.0, 31.0, 0.0]
        >>> encoder.encode_row({"device": "tv"}).tolist(), encoder.undeclared_counts
        ([0.0, 0.0, 1.0, 0.0, 0.0, 1.0], Counter({'device': 1}))
        """
        row = np.zeros(self.width)
        for name in context:
            if name not in self._first_column:
                field_names = ", ".join(self._first_column)
                remedy = f"the schema has the fields {field_names}"
                raise InvalidValue(f"{field}.{name}", context[name], remedy)
        for name, holds in self._schema:
            self._fill(row, name, holds, context.get(name), field)
        if self._contexts is not None:
            self._contexts.append(tuple([context.get(name, ABSENT) for name in self.fields]))
            if len(self._contexts) == FIRST_ROWS:
                self._check_contexts(self._contexts)
        return row

    def _check_contexts(self, contexts: list[tuple[Any, ...]]) -> None:
        """Warn about suspicious fields of the first 1,000 contexts, and store the warnings in
        ``data_warnings``.

        ``contexts`` has a value per field. No further contexts are collected.
        """
        self._contexts = None
        for (name, holds), values in zip(self._schema, zip(*contexts, strict=True), strict=True):
            doubt = _describe_doubt(holds, [v for v in values if v is not ABSENT and not _is_missing(v)])
            if values.count(ABSENT) == FIRST_ROWS:
                doubt = (
                    f"none of the first {FIRST_ROWS:,} contexts has it; "
                    "send it, or leave it out of the schema"
                )
            if doubt and name not in self.data_warnings:
                self.data_warnings[name] = f"context.{name}: {doubt}"
                warnings.warn(self.data_warnings[name], AssumptionWarning, stacklevel=2)

    def find_warning(self, context: Any) -> str | None:
        """Return a warning if a value of a context almost equals a declared one; else None. Nothing changes.

        To save time, nothing is looked for while ``data_warnings`` is empty: until an encoded context had
        such a value.

        Examples
        --------
        >>> encoder = Encoder((("device", ("ios", "web")),))
        >>> encoder.data_warnings["device"] = "of another one"
        >>> encoder.find_warning({"device": "ios"}), encoder.find_warning({"device": "iOS"})
        (None, "context.device: 'iOS' counts as other; send 'ios', as the schema has it, if that is meant")
        """
        for name, values in self._schema if self.data_warnings and isinstance(context, Mapping) else ():
            if not isinstance(values, tuple) or context.get(name) is None:
                continue
            if warning := _describe_near_match(f"context.{name}", context[name], values):
                return warning
        return None

    def encode_rows(self, contexts: Any, field: str = "context") -> Any:
        """Return the columns of many contexts, of shape (contexts, width).

        Contexts that are numbers already are returned as they are. Counts and warns as :meth:`encode_row`
        does.

        Parameters
        ----------
        contexts : sequence of mapping, or table
            A table, such as a data frame, has a column for each field.
        field : str, default "context"
            Name of the contexts for error messages.

        Raises
        ------
        InvalidValue
            If only some contexts have names, or a value does not fit its field.
        """
        if (
            isinstance(contexts, list)
            and len(contexts) == 1
            and np.ndim(contexts[0]) == 2
            and is_frame(contexts[0])
        ):
            contexts = contexts[0]
        if isinstance(contexts, Mapping) and not all(map(np.ndim, contexts.values())):
            raise InvalidValue(field, contexts, "give a dict for each impression, in a list")
        if is_frame(contexts):
            names = frame_names(contexts)
            contexts = [row for batch in frame_batches(contexts, names) for row in batch.to_pylist()]
        if not isinstance(contexts, Sequence) or not any(map(_is_named, contexts)):
            return contexts
        for i, context in enumerate(contexts):
            if not _is_named(context):
                remedy = "give a dict, as elsewhere; {} if nothing is known"
                raise InvalidValue(f"{field}[{i}]", context, remedy)
        single = len(contexts) == 1
        rows = [
            self.encode_row(_to_mapping(context), field if single else f"{field}[{i}]")
            for i, context in enumerate(contexts)
        ]
        return np.array(rows).reshape(len(rows), self.width)

    def _fill(self, row: Floats, name: str, holds: Any, value: Any, field: str) -> None:
        """Write the columns of one field's value into ``row``; raise InvalidValue for a value of another
        type.

        ``name`` and ``holds`` are the field's name and type, ``field`` names the context in errors. Counts an
        undeclared value, warns if it almost equals a declared one, and stores examples of hashed values.
        """
        first, path = self._first_column[name], f"{field}.{name}"
        if isinstance(holds, tuple):
            last = first + len(holds) + 1
        else:
            last = first + (_count_hashed(holds) or 1)
        if holds == SIGNAL:
            row[first] = _require(path, value, _is_number, f"{FINITE}: a signal is never missing")
        elif _is_missing(value):
            row[last] = 1.0
        elif isinstance(holds, tuple):
            text = _require(path, value, _is_text, TEXT)
            if text in holds:
                row[first + holds.index(text)] = 1.0
            else:
                row[last - 1] = 1.0
                self.undeclared_counts[name] += 1
                if name not in self.data_warnings and (doubt := _describe_near_match(path, text, holds)):
                    self.data_warnings[name] = doubt
                    warnings.warn(doubt, AssumptionWarning, stacklevel=2)
        elif holds == NUMBER:
            row[first] = _require(path, value, _is_number, f"{FINITE}, or nothing where it is missing")
        elif holds == BOOLEAN:
            row[first] = _require(path, value, _is_flag, "True or False, or nothing where it is missing")
        else:
            offset, sign = _hash_value(name, _require(path, value, _is_text, TEXT), last - first)
            row[first + offset] = sign
            examples = self.hashed_values.setdefault((first + offset, sign), [])
            if len(examples) < MOST_EXAMPLES and value not in examples:
                examples.append(value)


def _describe_near_match(field: str, text: str, values: tuple[str, ...]) -> str:
    """Return a warning if a text differs from one of ``values`` only by capitals, blanks or Unicode form.

    Returns an empty text otherwise, also if the text is one of ``values``.
    """
    matches = [value for value in values if _fold(value) == _fold(text)]
    if not matches or text in values:
        return ""
    # Forms of a character look the same, so their code points are shown.
    composed = unicodedata.normalize("NFC", text) == unicodedata.normalize("NFC", matches[0])
    got, declared_value = map(ascii if composed else repr, (text, matches[0]))
    return f"{field}: {got} counts as other; send {declared_value}, as the schema has it, if that is meant"


def _fold(text: str) -> str:
    """Return a text in lower case, without blanks around it, in one Unicode form."""
    return unicodedata.normalize("NFKC", text).strip().casefold()


def _is_named(value: Any) -> bool:
    """True if a value is a mapping, or a row of a data frame."""
    return isinstance(value, Mapping) or (hasattr(value, "to_dict") and hasattr(value, "index"))


def _to_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, or a row of a data frame as a dict without its missing values."""
    return value if isinstance(value, Mapping) else value.dropna().to_dict()  # type: ignore[no-any-return]


def _require(field: str, value: Any, check: Callable[[Any], bool], allowed: str) -> Any:
    """Return the value if it passes ``check``; else raise InvalidValue, which says ``allowed``."""
    if not check(value):
        raise InvalidValue(field, value, f"give {allowed}")
    return value


@lru_cache(maxsize=65_536)
def _hash_value(name: str, value: str, width: int) -> tuple[int, float]:
    """Return the hashed column, from 0 to ``width`` − 1, and the sign (±1) of a value of the field ``name``.

    References
    ----------
    Weinberger, Dasgupta, Langford, Smola, Attenberg (2009), "Feature hashing for large scale multitask
    learning", section 2.
    """
    number = int.from_bytes(blake2b(f"{name}={value}".encode(), digest_size=8).digest(), "little")
    return (number >> 1) % width, 1.0 if number & 1 else -1.0


def resolve_context_dim(context: Schema, context_dim: int) -> int:
    """Return the length of a context: its schema's number of columns, or ``context_dim`` without a schema.

    Raises InvalidValue if ``context_dim`` is neither 0 nor the schema's number of columns.
    """
    if not context:
        return context_dim
    width = len(list_columns(context))
    if context_dim not in (0, width):
        raise InvalidValue("context_dim", context_dim, f"leave it out: context has {width} columns")
    return width


def resolve_signals_dim(context: Schema, context_dim: int, signals_dim: int) -> int:
    """Return the number of signals, which are the last numbers of a context: the schema's, or
    ``signals_dim`` without a schema.

    Raises
    ------
    InvalidValue
        If the schema has another number of signals, or the context has nothing but signals.
    """
    signal_count = count_signals(context) if context else signals_dim
    if signals_dim not in (0, signal_count):
        remedy = f'leave it out, and say of each in context that it is a "signal": context has {signal_count}'
        raise InvalidValue("signals_dim", signals_dim, remedy)
    if signal_count >= context_dim:
        remedy = "say who is asking as well; for signals alone, tacit.auto(arms=…, signals_dim=…)"
        raise InvalidValue("context" if context else "signals_dim", context or signal_count, remedy)
    return signal_count
