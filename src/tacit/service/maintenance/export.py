"""The log written to a folder of Parquet files: its rows, and as a click log."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.policies.spec import policy_from_stored
from tacit.service.config.schema import Config
from tacit.service.kind import Export, kind_of
from tacit.service.log.blocks import distinct
from tacit.service.log.parquet import FILES, RECORDS_SCHEMA, SCHEMAS, table_of
from tacit.service.log.rows import DecisionRow, Event, FeedbackRow, MarkRow, Rows, stretches
from tacit.service.stores.base import Store

ROWS = 10_000
VERSION = 4
BASES_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "seq": pa.int64(), "time": pa.int64(), "plan": pa.string(),
        "learner": pa.binary(), "shadow": pa.binary(), "series": pa.binary(),
        "windows": pa.binary(),
    }
)  # fmt: skip


def export(config: Config, store: Store, folder: Path) -> dict[str, int]:
    """Write the log to a folder.

    ``decisions.parquet``, ``feedback.parquet``, ``marks.parquet`` and ``placements.json`` hold
    every row as it is, for :func:`take_in`; so do ``records.parquet`` the records that were kept
    beside the log, and ``bases.parquet`` where the log of each placement begins if old rows were
    dropped. ``clicks.parquet`` is a click log for :func:`tacit.logs.read_log`, with the reward that
    the rule attributes to each decision (null while its window is open). ``duels-NAME.parquet``
    holds the duels of a placement whose windows have closed, for
    :func:`tacit.evaluate.duels.read_duels`; ``lists-NAME.parquet`` is a click log of such lists.

    Returns
    -------
    dict of str to int
        How many rows each file has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(FILES, 0)
    writers = {
        name: pq.ParquetWriter(folder / f"{name}.parquet", schema, write_page_checksum=True)
        for name, schema in SCHEMAS.items()
    }
    try:
        for rows in _groups(store.events(0)):
            for name, part in zip(FILES, rows, strict=True):
                counts[name] += len(part)  # type: ignore[arg-type]
                writers[name].write_table(table_of(name, part))
    finally:
        for writer in writers.values():
            writer.close()
    counts["records"] = _export_records(store, folder / "records.parquet")
    placements = {name: stored._asdict() for name, stored in store.placements().items()}
    bases = [store.base(stored["id"]) for stored in placements.values()]
    known = [base._asdict() for base in bases if base is not None]
    table = pa.Table.from_pylist(known, schema=BASES_SCHEMA)
    pq.write_table(table, folder / "bases.parquet", write_page_checksum=True)
    header = {"format": "tacit-log", "version": VERSION, "placements": placements}
    (folder / "placements.json").write_text(json.dumps(header, indent=1))
    earned = attributed(config, store)
    counts["clicks"] = _export_clicks(config, store, earned, folder / "clicks.parquet")
    for name, each in config.placements.items():
        export = kind_of(each.kind).export
        if export is not None and name in placements:
            schema = export.schema(each.options)
            table = pa.Table.from_pylist(_of_kind(export, store, name, earned), schema=schema)
            pq.write_table(table, folder / f"{export.name}-{name}.parquet")
            counts[f"{export.name}-{name}"] = table.num_rows
    return counts


def _export_records(store: Store, path: Path) -> int:
    count = 0
    records = store.records()
    with pq.ParquetWriter(path, RECORDS_SCHEMA, write_page_checksum=True) as writer:
        while group := list(itertools.islice(records, ROWS)):
            count += len(group)
            rows = [row._asdict() for row in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=RECORDS_SCHEMA))
    return count


def _of_kind(export: Export, store: Store, name: str, earned: dict[int, Any]) -> list[Any]:
    placement = store.placements()[name]
    policy = policy_from_stored(json.loads(placement.spec))
    return [
        told
        for row in store.events(0)
        if isinstance(row, DecisionRow) and row.placement == placement.id and row.seq in earned
        for told in export.rows(row, earned[row.seq], name, policy)
    ]


def _groups(events: Iterator[Event]) -> Iterator[Rows]:
    while group := list(itertools.islice(events, ROWS)):
        yield Rows(
            [event for event in group if isinstance(event, DecisionRow)],
            [event for event in group if isinstance(event, FeedbackRow)],
            [event for event in group if isinstance(event, MarkRow)],
        )


def _export_clicks(config: Config, store: Store, rewards: dict[int, Any], path: Path) -> int:
    from tacit.logs import write_log
    from tacit.logs.schema import SCHEMA

    stored = store.placements()
    one = {name for name, each in config.placements.items() if kind_of(each.kind).click_log}
    names = {placement.id: name for name, placement in stored.items() if name in one}
    policies = {placement.id: policy_from_stored(json.loads(placement.spec)) for placement in stored.values()}
    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        decisions = (e for e in store.events(0) if isinstance(e, DecisionRow))
        known = (row for row in decisions if row.placement in names)
        while group := list(itertools.islice(known, ROWS)):
            count += len(group)
            yield pa.RecordBatch.from_pylist(
                [_click(row, names[row.placement], policies[row.placement], rewards) for row in group],
                schema=SCHEMA,
            )

    write_log(batches(), path)
    return count


def _click(row: DecisionRow, name: str, policy: Any, rewards: dict[int, float]) -> dict[str, Any]:
    arms = range(policy.arms) if isinstance(policy.arms, int) else policy.arms
    return {
        "timestamp": datetime.fromtimestamp(row.time / 1e6, UTC),
        "decision_id": row.id,
        "placement": name,
        "key": row.key,
        "arms": [str(arm) for arm in (arms if row.offered is None else json.loads(row.offered))],
        "arm": str(row.arm),
        "propensity": row.propensity or None,
        "reward": rewards.get(row.seq),
        "context": None if row.context is None else json.loads(row.context),
        "policy": policy.label,
        "version": None,
    }


def attributed(config: Config, store: Store) -> dict[int, Any]:
    """Return what came back for each decision whose window has closed, by its sequence number.

    It is a reward, or the clicked positions of a list.
    """
    stored = store.placements()
    rules = {
        stored[name].id: kind_of(each.kind).placement.attribution(each.rule)
        for name, each in config.placements.items()
        if name in stored
    }
    rewards: dict[int, Any] = {}
    for rows in stretches(store.events(0)):
        attribution = rules.get(rows[0].placement or 0)
        if attribution is None:
            continue
        rewards.update(attribution.earned(attribution.advance(rows[0].time)))
        if rows.kind is DecisionRow:
            attribution.decided(rows)
        elif rows.kind is FeedbackRow:
            for part in distinct(rows, "decision"):
                for earned in attribution.told(part)[1]:
                    rewards.update(attribution.earned(earned))
    end = store.end().time
    for attribution in rules.values():
        rewards.update(attribution.earned(attribution.advance(end)))
    return rewards
