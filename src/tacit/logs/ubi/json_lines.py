"""JSON lines as search engines and shippers of events write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

BULK = ("index", "create")
"""What a line says, alone, that goes before each record of a bulk request."""


def records_in(path: Any) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield each record with its line's number, also of bulk requests and of search hits.

    A line that is no object is given as text.
    """
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                yield row, line.decode(errors="replace").rstrip("\n")
            elif not (len(record) == 1 and next(iter(record)) in BULK):
                source = record.get("_source")
                yield row, source if isinstance(source, dict) else record
