"""Copies of the log outside the store: rows as Parquet tables, the archive of dropped rows, backups."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.service.errors import StoreError
from tacit.service.log.owned_file import open_private
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow
from tacit.service.log.search_records import SearchFields, Subject, remove_unit
from tacit.service.log.sqlite import APPLICATION_ID
from tacit.service.log.store import BlankedRows, OldRows, StoredPlacement

# ---- The rows of the log as tables of Parquet files, for export, import and archives

FILES: dict[str, Any] = {"decisions": DecisionRow, "feedback": FeedbackRow, "marks": ChangeRow}
SCHEMAS = {
    "decisions": pa.schema(
        {
            "seq": pa.int64(), "id": pa.string(), "placement": pa.int32(), "policy": pa.int32(),
            "time": pa.int64(), "key": pa.string(), "offered": pa.string(), "arm": pa.string(),
            "propensity": pa.float64(), "epoch": pa.int64(), "context": pa.string(),
            "mode": pa.string(), "would": pa.string(), "would_propensity": pa.float64(),
            "deferred": pa.int8(), "asked": pa.string(), "shown": pa.string(),
            "control": pa.int8(), "bucket": pa.int16(),
        }
    ),
    "feedback": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "decision": pa.int64(), "id": pa.string(),
            "time": pa.int64(), "kind": pa.string(), "reward": pa.float64(),
            "clicks": pa.string(), "metrics": pa.string(),
        }
    ),
    "marks": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "time": pa.int64(), "kind": pa.string(),
            "value": pa.string(), "who": pa.string(),
        }
    ),
}  # fmt: skip
RECORDS_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "kind": pa.string(), "id": pa.string(), "time": pa.int64(),
        "content": pa.string(),
    }
)  # fmt: skip


def to_table(name: str, rows: Any) -> pa.Table:
    """Return rows of the log as an Arrow table for Parquet; ``name`` is their kind in :data:`FILES`.

    Arms become JSON text.
    """
    columns = {field: [getattr(row, field) for row in rows] for field in FILES[name]._fields}
    for field in ("arm", "would"):
        if field in columns:
            columns[field] = [None if a is None else json.dumps(a) for a in columns[field]]
    return pa.table(columns, schema=SCHEMAS[name])


# ---- The archive: rows are written to Parquet files before a store drops them


def write_old_rows(old: OldRows, folder: Path) -> None:
    """Write rows that are about to be dropped to new Parquet files in a folder, one for each kind of row.

    The file names contain the number of the first row, so that sorting them sorts the rows.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts: tuple[Sequence[Any], ...] = old.rows
    for name, rows in zip(FILES, parts, strict=True):
        if rows:
            first = rows[0].seq
            write_atomically(to_table(name, rows), folder / f"{name}-{first:012}.parquet")
    if old.records:
        table = pa.Table.from_pylist([r._asdict() for r in old.records], schema=RECORDS_SCHEMA)
        write_atomically(table, folder / f"records-{old.records[0].time:016}.parquet")


def blank_archived_rows(
    folder: Path, subject: Subject, placements: Mapping[str, StoredPlacement]
) -> dict[str, BlankedRows]:
    """Blank a subject's data in the archive's files; return the numbers of blanked rows by placement.

    Every file is replaced as a whole, so an interrupted call can be repeated.
    """
    done = {}
    for name, stored in placements.items():
        units = subject.hash_units(stored.salt, stored.id, stored.seed)
        counts = BlankedRows(
            _blank_column(folder / name, "decisions", "asked", partial(_blank_units, units)),
            _blank_column(
                folder / name, "records", "content", lambda text: subject.blank_record(text) or text
            ),
        )
        if any(counts):
            done[name] = counts
    return done


def _blank_units(units: Sequence[str], asked: str | None) -> str | None:
    """Return a decision's ``asked`` field without its user's hash, if the hash is one of ``units``."""
    return remove_unit(asked) if SearchFields.read(asked).unit in units else asked


def _blank_column(folder: Path, kind: str, column: str, blank: Callable[[Any], Any]) -> int:
    """Apply ``blank`` to a column in all archive files of a kind; return the number of changed values.

    Files with changed values are rewritten.
    """
    rows = 0
    for path in sorted(folder.glob(f"{kind}-*.parquet")):
        table = pq.read_table(path)
        before = table.column(column).to_pylist()
        after = [blank(value) for value in before]
        changed = sum(a != b for a, b in zip(after, before, strict=True))
        if changed:
            place = table.schema.get_field_index(column)
            field = table.schema.field(place)
            write_atomically(table.set_column(place, field, pa.array(after, field.type)), path)
        rows += changed
    return rows


def write_atomically(table: pa.Table, path: Path) -> None:
    """Write a table to a file that only its owner may read; after a crash it is complete or unchanged."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", opener=open_private) as file:
        pq.write_table(table, file, write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---- Backups of a store while the service runs


def _is_replaceable(path: Path) -> bool:
    """True if a backup may replace a file: it is empty, or an SQLite file with tacit's application id."""
    with path.open("rb") as file:
        # Bytes 68 to 71 of an SQLite file are its application id.
        header = file.read(72)
    return not header or header[68:] == APPLICATION_ID.to_bytes(4)


def backup(path: str | Path, target: str | Path) -> int:
    """Copy an SQLite store at one moment to a file; return the size of the copy in bytes.

    The store may be in use: reading takes no lock that its writer would wait for. The copy contains
    all rows that were committed when it began.

    Parameters
    ----------
    path : path
        The store.
    target : path
        Replaced only by a complete copy.

    Raises
    ------
    StoreError
        If there is no store, the target is the store itself or not a backup, or the copy cannot be written.
    """
    path, target = Path(path), Path(target)
    part = target.with_name(f".{target.name}.part")
    if not path.is_file():
        raise StoreError(f"store.path: there is no store at {path}; give another, or the service's --config")
    if target.exists() and path.samefile(target):
        raise StoreError(f"{target}: is the store itself; give another path for the backup")
    try:
        if target.is_file() and not _is_replaceable(target):
            raise StoreError(f"{target}: is there, and no backup; give another path, or delete it")
        part.unlink(missing_ok=True)
        os.close(open_private(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as source:
            if source.pragma("application_id") != APPLICATION_ID:
                raise StoreError(f"store.path: {path} is no tacit store; give another path")
            source.execute("VACUUM INTO ?", (str(part),))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except (apsw.Error, OSError) as error:
        why = f"{getattr(error, 'strerror', None) or error}; give another path, or make its folder"
        raise StoreError(f"{target}: the backup cannot be written: {why}") from error
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size
