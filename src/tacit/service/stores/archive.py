"""The archive: rows that a store lets go are written to Parquet files first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.service.log.parquet import FILES, RECORDS_SCHEMA, table_of, write_whole
from tacit.service.stores.base import Old


def write_old(old: Old, folder: Path) -> None:
    """Write rows that are about to be dropped to a folder, a file of its own for each kind.

    Their names tell the first row, so that the files of a folder follow one another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: tuple[Sequence[Any], ...] = old.rows
    for name, rows in zip(FILES, parts, strict=True):
        if rows:
            first = rows[0].seq
            write_whole(table_of(name, rows), folder / f"{name}-{first:012}.parquet")
    if old.records:
        table = pa.Table.from_pylist([r._asdict() for r in old.records], schema=RECORDS_SCHEMA)
        write_whole(table, folder / f"records-{old.records[0].time:016}.parquet")
