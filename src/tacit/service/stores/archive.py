"""The archive: rows that a store lets go are written to Parquet files first."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.service.log.parquet import FILES, RECORDS_SCHEMA, table_of
from tacit.service.log.searches import Subject, Told, without_unit
from tacit.service.stores.base import Forgotten, Old, StoredPlacement
from tacit.service.stores.owned_file import private


def write_old(old: Old, folder: Path) -> None:
    """Write rows that are about to be dropped to a folder, a file of its own for each kind.

    Their names tell the first row, so that the files of a folder follow one another.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts: tuple[Sequence[Any], ...] = old.rows
    for name, rows in zip(FILES, parts, strict=True):
        if rows:
            first = rows[0].seq
            write_whole(table_of(name, rows), folder / f"{name}-{first:012}.parquet")
    if old.records:
        table = pa.Table.from_pylist([r._asdict() for r in old.records], schema=RECORDS_SCHEMA)
        write_whole(table, folder / f"records-{old.records[0].time:016}.parquet")


def forget_archived(
    folder: Path, subject: Subject, placements: Mapping[str, StoredPlacement]
) -> dict[str, Forgotten]:
    """Blank what archived rows tell of somebody; return how many rows it was, by placement.

    Every file is replaced as a whole, so whatever is interrupted can be done again.
    """
    done = {}
    for name, of in placements.items():
        units = subject.units(of.salt, of.id, of.seed)
        found = Forgotten(
            _blanked(folder / name, "decisions", "asked", partial(_without_units, units)),
            _blanked(folder / name, "records", "content", partial(_without, subject)),
        )
        if any(found):
            done[name] = found
    return done


def _without_units(units: Sequence[str], asked: str | None) -> str | None:
    return without_unit(asked) if Told.read(asked).unit in units else asked


def _without(subject: Subject, content: str) -> str:
    return subject.without(content) or content


def _blanked(folder: Path, kind: str, column: str, blank: Callable[[Any], Any]) -> int:
    """Change a column of the files of a kind; return how many rows have changed."""
    rows = 0
    for path in sorted(folder.glob(f"{kind}-*.parquet")):
        table = pq.read_table(path)
        before = table.column(column).to_pylist()
        after = [blank(value) for value in before]
        changed = sum(a != b for a, b in zip(after, before, strict=True))
        if changed:
            place = table.schema.get_field_index(column)
            field = table.schema.field(place)
            write_whole(table.set_column(place, field, pa.array(after, field.type)), path)
        rows += changed
    return rows


def write_whole(table: pa.Table, path: Path) -> None:
    """Write a table to a file that is there as a whole or not at all, for nobody else to read."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", opener=private) as file:
        pq.write_table(table, file, write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
