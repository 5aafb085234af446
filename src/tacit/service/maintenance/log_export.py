"""Log export: write the log to Parquet files, import them into an empty store, stream rows as JSON lines.

1. Export: rows, and each placement as a click log.
2. Import: the same rows into an empty store.
3. Stream: each row once, as a JSON line.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.errors import BEFORE_0_3, TacitError
from tacit.policies.spec import policy_from_stored
from tacit.service.config.schema import Config
from tacit.service.errors import StoreError
from tacit.service.kind import ExportTable
from tacit.service.log.archive import FILES, RECORDS_SCHEMA, SCHEMAS, to_table
from tacit.service.log.blocks import split_distinct
from tacit.service.log.change_events import PolicyVersion
from tacit.service.log.owned_file import open_private
from tacit.service.log.rows import (
    POLICY,
    UNEXPORTED_MODES,
    ChangeRow,
    DecisionRow,
    Event,
    FeedbackRow,
    RecordRow,
    Rows,
    split_into_blocks,
)
from tacit.service.log.sql import Store, add_records, adopt_salt, read_records, save_snapshot
from tacit.service.log.store import BASES, Snapshot
from tacit.service.maintenance.item_logs import (
    ROWS,
    click_row,
    export_items,
    list_item_placements,
    write_clicks,
)
from tacit.service.placements.snapshots import iterate_open_columns, pack_columns
from tacit.service.projections.attribution import make_attribution

# ---- Export: a folder of Parquet files with the rows and click logs

VERSION = 4
BASES_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "seq": pa.int64(), "time": pa.int64(), "plan": pa.string(),
        "learner": pa.binary(), "shadow": pa.binary(), "series": pa.binary(),
        "windows": pa.binary(),
    }
)  # fmt: skip


def export(config: Config, store: Store, folder: Path) -> dict[str, int]:
    """Write the log of a store to a folder of Parquet files; return the number of rows of each file.

    ``decisions.parquet``, ``feedback.parquet``, ``marks.parquet`` and ``placements.json`` hold every row
    unchanged, for :func:`import_log`; ``records.parquet`` holds the records that are stored besides the log,
    and ``bases.parquet`` the snapshot at the beginning of each placement's log if old rows were dropped.
    ``clicks.parquet`` is a click log for :func:`tacit.logs.read_log` with the configured placements, if any;
    its rewards are attributed by the rule (null while the window is open). A placement that knows items by
    their features has its own click log, ``clicks-NAME.parquet`` (or, of lists, ``lists-NAME.parquet``), and
    ``items-NAME.parquet`` with the vectors of its items and their times. ``duels-NAME.parquet`` holds the
    closed duels of a placement for :func:`tacit.evaluate.duels.read_duels`; ``lists-NAME.parquet`` is a click
    log of lists.

    Returns
    -------
    dict of str to int
        Number of rows of each file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(FILES, 0)
    writers = {
        name: pq.ParquetWriter(folder / f"{name}.parquet", schema, write_page_checksum=True)
        for name, schema in SCHEMAS.items()
    }
    try:
        for rows in _split_rows(store.events(0)):
            for name, part in zip(FILES, rows, strict=True):
                counts[name] += len(part)  # type: ignore[arg-type]
                writers[name].write_table(to_table(name, part))
    finally:
        for writer in writers.values():
            writer.close()
    counts["records"] = _export_records(store, folder / "records.parquet")
    placements = {name: stored._asdict() for name, stored in store.placements().items()}
    bases = [store.snapshots.load_base(stored["id"]) for stored in placements.values()]
    base_rows = [base._asdict() for base in bases if base is not None]
    table = pa.Table.from_pylist(base_rows, schema=BASES_SCHEMA)
    pq.write_table(table, folder / "bases.parquet", write_page_checksum=True)
    header = {"format": "tacit-log", "version": VERSION, "placements": placements}
    # The owner's alone, as the store: it has the salt of the hashes of users.
    with open(folder / "placements.json", "w", encoding="utf-8", opener=open_private) as file:
        json.dump(header, file, indent=1)
    earned = attribute_rewards(config, store)
    if not placements or placements.keys() & config.placements.keys():
        # An empty file would look like a log without clicks.
        counts["clicks"] = _export_clicks(config, store, earned, folder / "clicks.parquet")
    items = placements.keys() & list_item_placements(config)
    for name in items:
        counts |= export_items(config, store, name, earned, folder)
    for name, placement_config in config.placements.items():
        export = placement_config.policy_kind.export
        if export is not None and name in placements.keys() - items:
            schema = export.schema(placement_config.options)
            table = pa.Table.from_pylist(_list_records(export, store, name, earned), schema=schema)
            pq.write_table(table, folder / f"{export.name}-{name}.parquet")
            counts[f"{export.name}-{name}"] = table.num_rows
    return counts


def _export_records(store: Store, path: Path) -> int:
    """Write all records of a store to a Parquet file, and return their number."""
    count = 0
    records = read_records(store)
    with pq.ParquetWriter(path, RECORDS_SCHEMA, write_page_checksum=True) as writer:
        while group := list(islice(records, ROWS)):
            count += len(group)
            rows = [row._asdict() for row in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=RECORDS_SCHEMA))
    return count


def _list_records(export: ExportTable, store: Store, name: str, earned: dict[int, Any]) -> list[Any]:
    """Return a placement's decisions with closed windows as rows of its additional export table.

    Decisions that showed a pinned arm, or repeat what a user was shown, are left out.
    """
    placement = store.placements()[name]
    policy = policy_from_stored(json.loads(placement.spec))
    return [
        record
        for row in store.events(0)
        if isinstance(row, DecisionRow) and row.placement == placement.id
        if row.seq in earned and row.mode not in UNEXPORTED_MODES
        for record in export.rows(row, earned[row.seq], name, policy)
    ]


def _split_rows(events: Iterator[Event]) -> Iterator[Rows]:
    """Yield events in groups of up to 10,000; in each, decisions, feedback and changes are separate."""
    while group := list(islice(events, ROWS)):
        yield Rows(
            [event for event in group if isinstance(event, DecisionRow)],
            [event for event in group if isinstance(event, FeedbackRow)],
            [event for event in group if isinstance(event, ChangeRow)],
        )


def _export_clicks(config: Config, store: Store, rewards: dict[int, Any], path: Path) -> int:
    """Write decisions of configured placements that show one arm to a click log; return their number.

    Decisions that showed a pinned arm, or repeat what a user was shown, are left out.
    """
    stored = store.placements()
    exported = {
        name for name, placement_config in config.placements.items() if placement_config.policy_kind.click_log
    }
    names = {placement.id: name for name, placement in stored.items() if name in exported}
    policies = {placement.id: policy_from_stored(json.loads(placement.spec)) for placement in stored.values()}
    decisions = (e for e in store.events(0) if isinstance(e, DecisionRow) and e.placement in names)
    # Forced actions cannot evaluate another policy.
    unpinned_rows = (row for row in decisions if row.mode not in UNEXPORTED_MODES)
    rows = (click_row(row, names[row.placement], policies[row.placement], rewards) for row in unpinned_rows)
    return write_clicks(rows, path, {name: config.placements[name].scale for name in names.values()})


def attribute_rewards(config: Config, store: Store) -> dict[int, Any]:
    """Return the reward, or a list's clicked positions, of each decision whose window has closed.

    By sequence number of the decision; windows close up to the time of the log's last row.
    """
    stored = store.placements()
    rules = {
        stored[name].id: make_attribution(placement_config.policy_kind.parts.attribution, placement_config)
        for name, placement_config in config.placements.items()
        if name in stored
    }
    rewards: dict[int, Any] = {}
    for rows in split_into_blocks(store.events(0)):
        # Ticks have no placement; no placement has the number 0.
        attribution = rules.get(rows[0].placement or 0)
        if attribution is None:
            continue
        rewards.update(attribution.iterate_rewards(attribution.advance(rows[0].time)))
        if rows.kind is DecisionRow:
            attribution.open_windows(rows)
        elif rows.kind is FeedbackRow:
            for part in split_distinct(rows, "decision"):
                for earned in attribution.apply_feedback(part)[1]:
                    rewards.update(attribution.iterate_rewards(earned))
    end = store.end().time
    for attribution in rules.values():
        rewards.update(attribution.iterate_rewards(attribution.advance(end)))
    return rewards


# ---- Import: an exported log into an empty store

PLACEMENT, MADE_BY = (DecisionRow._fields.index(field) for field in ("placement", "policy"))
"""Indices of columns with numbers that the new store may give anew."""


def import_log(store: Store, folder: Path) -> int:
    """Import an exported log into an empty store, with placements, policies and bases.

    Returns the number of imported rows and records.

    Raises
    ------
    StoreError
        If the store is not empty, or the folder holds no exported log, or a damaged one.
    """
    if store.end().seq or store.placements():
        raise StoreError("store: it is not empty; import into a new one")
    try:
        return _import_rows(store, folder)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: is damaged: {error}; export it anew, and import it into a new store"
        ) from error


def _import_rows(store: Store, folder: Path) -> int:
    """Import placements, rows, bases and records from a folder; return the number of rows and records.

    Raises StoreError if the folder has no exported log of this version.
    """
    try:
        header = json.loads((folder / "placements.json").read_text())
        placements = header["placements"]
        if header["format"] != "tacit-log":
            raise StoreError(f"{folder}: is no exported log")
        if header["version"] > VERSION:
            raise StoreError(
                f"{folder}: is of version {header['version']}, this tacit reads up to {VERSION}; update tacit"
            )
        if header["version"] < VERSION:
            raise StoreError(
                f"{folder}: is of version {header['version']} and {BEFORE_0_3}, and export it again"
            )
        files = [_open_parquet(folder / f"{name}.parquet") for name in FILES]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: holds no exported log, as tacit log export writes it: {error}"
        ) from error
    ids, policies = {}, {}
    # In their order placements get the same numbers, which, with the salt, are in the hashes of users.
    ordered = sorted(placements.items(), key=lambda entry: entry[1]["id"])
    if salt := next((old["salt"] for _, old in ordered if old.get("salt")), ""):
        adopt_salt(store, salt)
    for name, old in ordered:
        new = store.placement(name, old["spec"], old["seed"])
        ids[old["id"]], policies[old["policy"]] = new.id, new.policy
    versions = _read_policy_versions(folder / "marks.parquet")
    for version in versions:
        policies[version.number] = store.add_policy(json.dumps(version.policy))
    count = 0
    # Feedback refers to decisions, so all of these come first.
    for i, (name, file) in enumerate(zip(FILES, files, strict=True)):
        for batch in file.iter_batches(ROWS):
            parts: list[list[Any]] = [[], [], []]
            parts[i] = [_parse_row(name, values, ids, policies) for values in batch.to_pylist()]
            store.append(Rows(*parts))
            count += batch.num_rows
    _import_bases(store, folder / "bases.parquet", ids, policies)
    return count + _import_records(store, folder / "records.parquet", ids)


def _read_policy_versions(path: Path) -> list[PolicyVersion]:
    """Return all policy versions in a Parquet file of exported change events."""
    table = _open_parquet(path).read(["kind", "value"]).to_pylist()
    return [msgspec.json.decode(row["value"], type=PolicyVersion) for row in table if row["kind"] == POLICY]


def _open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; reading it verifies checksums."""
    return pq.ParquetFile(path, page_checksum_verification=True)


def _import_bases(store: Store, path: Path, ids: dict[int, int], policies: dict[int, int]) -> None:
    """Write the exported bases to a store, with the new numbers of placements and policies."""
    for values in _open_parquet(path).read().to_pylist():
        base = Snapshot(**values)
        windows: dict[str, Any] = msgspec.json.decode(base.windows, type=dict[str, msgspec.Raw])
        # Both fields hold decisions, as columns.
        for field in ("defaults", "open"):
            pieces = list(iterate_open_columns(msgspec.json.decode(windows[field], type=list[msgspec.Raw])))
            for columns in pieces:
                for i, numbers in (PLACEMENT, ids), (MADE_BY, policies):
                    columns[i] = [numbers[number] for number in columns[i]]
            windows[field] = [piece for columns in pieces for piece in pack_columns(columns)]
        encoded = msgspec.json.encode(windows)
        save_snapshot(store.snapshots, base._replace(placement=ids[base.placement], windows=encoded), BASES)


def _import_records(store: Store, path: Path, ids: dict[int, int]) -> int:
    """Add the exported records to a store, with the new numbers of placements; return their number."""
    count = 0
    for batch in _open_parquet(path).iter_batches(ROWS):
        rows = [RecordRow(**values) for values in batch.to_pylist()]
        add_records(store, [row._replace(placement=ids[row.placement]) for row in rows])
        count += len(rows)
    return count


def _parse_row(name: str, values: dict[str, Any], ids: dict[int, int], policies: dict[int, int]) -> Any:
    """Return a row of a Parquet file as a row of the log, with new numbers of placement and policy.

    ``ids`` and ``policies`` are the new numbers by the exported ones.
    """
    values["placement"] = ids.get(values["placement"])
    if name == "decisions":
        values["policy"] = policies[values["policy"]]
        for field in ("arm", "would"):
            values[field] = values[field] and json.loads(values[field])
    if values.get("kind") == POLICY:
        version = msgspec.json.decode(values["value"], type=PolicyVersion)
        values["value"] = msgspec.structs.replace(version, number=policies[version.number]).text
    return FILES[name](**values)


# ---- Stream: rows as JSON lines, each once, from any row on

POLL_SECONDS = 0.2
"""Interval at which a log without new rows is read."""
AT_ONCE = 5_000
"""Rows per transaction: a slow reader must not hold the store's files."""
JSON_FIELDS = "offered", "context", "asked", "shown", "clicks", "metrics"
"""Fields that the log stores as JSON text."""

SORTS = {DecisionRow: "decision", FeedbackRow: "feedback", ChangeRow: "mark"}

logger = logging.getLogger(__name__)


class LogLine(NamedTuple):
    """A row as JSON, with its number and its decision's number; None for a change event."""

    seq: int
    decision: int | None
    text: str


def follow(
    store: Any,
    take: Callable[[Sequence[LogLine]], None],
    after: int,
    stopping: Callable[[], bool],
    *,
    once: bool = False,
) -> None:
    """Pass the rows of a log after row ``after`` to ``take`` as they come, until ``stopping`` returns True.

    The store is polled for new rows; with ``once``, it returns at the end of the log.

    Parameters
    ----------
    store : Store
        Opened read-only.
    take : function
        Called with consecutive rows.
    after : int
    stopping : function
    once : bool

    Raises
    ------
    TacitError
        If the log does not reach so far.
    """
    while not stopping():
        lines = list(iterate_lines(store, after))
        # An open read transaction keeps the service from shortening its write-ahead log, which it tries
        # at each commit.
        store.renew()
        if lines:
            take(lines)
            after = lines[-1].seq
        elif once:
            return
        else:
            time.sleep(POLL_SECONDS)


def iterate_lines(store: Store, after: int) -> Iterator[LogLine]:
    """Yield the next rows after row ``after`` as JSON lines, at most 5000; none if the log ends there.

    Warns if the log's first rows were dropped.

    Parameters
    ----------
    store : Store
    after : int

    Raises
    ------
    TacitError
        If the log does not reach so far.
    """
    names = {stored.id: name for name, stored in store.placements().items()}
    rows = list(islice(store.events(after), AT_ONCE))
    if not rows and after > (end := store.end().seq):
        raise TacitError(f"after: {after} is not in the log, which ends at {end}; give a number up to that")
    if rows and not after and rows[0].seq > 1:
        logger.warning("the log begins with row %s: those before it were dropped by age", rows[0].seq)
    for row in rows:
        decision = row.seq if isinstance(row, DecisionRow) else getattr(row, "decision", None)
        yield LogLine(row.seq, decision, msgspec.json.encode(_as_dict(row, names)).decode())


def _as_dict(row: Any, names: dict[int, str]) -> dict[str, Any]:
    """Return a row as a dict for JSON: its kind, its placement's name, and all fields that are not None."""
    fields = (
        {"seq": row.seq, "row": SORTS[type(row)]} | row._asdict() | {"placement": names.get(row.placement)}
    )
    return {
        field: msgspec.Raw(value.encode()) if field in JSON_FIELDS else value
        for field, value in fields.items()
        if value is not None
    }
