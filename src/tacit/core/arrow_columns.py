"""Columns of record batches: fields of structs by dotted paths, and variants of text as plain text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CODES = pa.dictionary(pa.int32(), pa.string())
"""The type of texts that stay a dictionary."""
PLAIN_TYPES = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Variants of text, and the type to which each is converted."""


def find_root(name: str, names: Collection[str]) -> str:
    """Return the column among ``names`` that contains ``name``: itself, or the struct of a dotted path; else
    ``name``.

    Examples
    --------
    >>> find_root("user.country", ["user", "arm"]), find_root("arm.id", ["arm.id", "arm"])
    ('user', 'arm.id')
    """
    stems = [name[:place] for place, letter in enumerate(name) if letter == "."]
    return next((stem for stem in (name, *stems) if stem in names), name)


def list_nested_names(schema: Any) -> list[str]:
    """Return the names of an Arrow schema's columns and, with dots, of the fields of its structs.

    Examples
    --------
    >>> list_nested_names(pa.schema({"arm": pa.string(), "user": pa.struct({"age": pa.int8()})}))
    ['arm', 'user', 'user.age']
    """
    names: list[str] = []
    for field in schema:
        names.append(field.name)
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{name}" for name in list_nested_names(field.type)]
    return names


def get_column(batch: Any, name: str) -> Any:
    """Return a column of a record batch or, for a dotted path, a field of a struct; see
    :func:`simplify_array`.
    """
    root = find_root(name, batch.schema.names)
    column = batch[root]
    for field in name[len(root) + 1 :].split(".") if root != name else ():
        column = pc.struct_field(column, [field])
    return simplify_array(column)


def simplify_array(values: Any) -> Any:
    """Return an Arrow array converted to a plain type: no views, large texts, runs, or extension types.

    Dictionaries are decoded, except ``CODES``, as which texts of Parquet files are read.

    Examples
    --------
    >>> simplify_array(pa.array(["film"], pa.string_view()).dictionary_encode()).type
    DataType(string)
    """
    kind = values.type
    if pa.types.is_primitive(kind):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return simplify_array(values.storage)
    if pa.types.is_run_end_encoded(kind):
        return simplify_array(pc.run_end_decode(values))
    if kind in PLAIN_TYPES:
        return values.cast(PLAIN_TYPES[kind])
    if pa.types.is_dictionary(kind) and kind != CODES:
        return simplify_array(values.dictionary).take(values.indices)
    lists = pa.types.is_list(kind), pa.types.is_large_list(kind), pa.types.is_fixed_size_list(kind)
    if any(lists) and is_varied_text(kind.value_type):
        elements = simplify_array(values.flatten())
        sizes = pc.list_value_length(values).fill_null(0).to_numpy()
        offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
        return pa.ListArray.from_arrays(offsets, elements, mask=values.is_null())
    return values


def is_varied_text(kind: Any) -> bool:
    """True if an Arrow type is a dictionary other than ``CODES``, or a text type other than string."""
    return kind in PLAIN_TYPES or (pa.types.is_dictionary(kind) and kind != CODES)
