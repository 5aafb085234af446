"""The log as a whole: checked against what was learned, written to Parquet, read back."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.policies import policy_from_spec
from tacit.service.blocks import distinct
from tacit.service.config import DUELS, ONE_ARM, Config
from tacit.service.duels import duel_of
from tacit.service.errors import StoreError
from tacit.service.folding import fold, opened, placement_class, stretches
from tacit.service.placement import Placement
from tacit.service.rows import DecisionRow, Event, FeedbackRow, MarkRow, RecordRow, Rows
from tacit.service.store import BASES, Old, Snapshot, Store, save
from tacit.state import leaves

ROWS = 10_000
VERSION = 3
PLACEMENT, POLICY = (DecisionRow._fields.index(field) for field in ("placement", "policy"))
FILES: dict[str, Any] = {"decisions": DecisionRow, "feedback": FeedbackRow, "marks": MarkRow}
SCHEMAS = {
    "decisions": pa.schema(
        {
            "seq": pa.int64(), "id": pa.string(), "placement": pa.int32(), "policy": pa.int32(),
            "time": pa.int64(), "key": pa.string(), "offered": pa.string(), "arm": pa.string(),
            "propensity": pa.float64(), "epoch": pa.int64(), "context": pa.string(),
            "mode": pa.string(), "would": pa.string(), "would_propensity": pa.float64(),
            "deferred": pa.int8(), "asked": pa.string(), "shown": pa.string(),
        }
    ),
    "feedback": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "decision": pa.int64(), "id": pa.string(),
            "time": pa.int64(), "kind": pa.string(), "reward": pa.float64(),
            "clicks": pa.string(),
        }
    ),
    "marks": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "time": pa.int64(), "kind": pa.string(),
            "value": pa.string(),
        }
    ),
}  # fmt: skip
RECORDS_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "kind": pa.string(), "id": pa.string(), "time": pa.int64(),
        "content": pa.string(),
    }
)  # fmt: skip
BASES_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "seq": pa.int64(), "time": pa.int64(), "plan": pa.string(),
        "learner": pa.binary(), "shadow": pa.binary(), "series": pa.binary(),
        "windows": pa.binary(),
    }
)  # fmt: skip
DUELS_SCHEMA = pa.schema(
    {
        "decision_id": pa.string(), "key": pa.string(), "left": pa.string(), "right": pa.string(),
        "outcome": pa.float64(), "interleaved": pa.string(), "clicks": pa.string(),
    }
)  # fmt: skip


def verify(config: Config, store: Store) -> list[str]:
    """Fold the log anew and compare with what the snapshots lead to.

    Returns
    -------
    list of str
        The first difference of each placement, and the first row out of order; empty if all is
        well.
    """
    wrong = _disorder(store)
    for name, each in config.placements.items():
        if name not in store.placements():
            continue
        kept = opened(name, each, store, 0)
        anew = opened(name, each, store, 0, snapshot=False)
        for placement in (kept, anew):
            fold({placement.id: placement}, store)
        difference = _difference(kept, anew)
        if difference:
            wrong.append(f"placement {name}: {difference}")
    return wrong


def _disorder(store: Store) -> list[str]:
    seq = time = 0
    for event in store.events(0):
        if event.seq <= seq:
            return [f"row {event.seq} comes after row {seq}"]
        if event.time < time:
            # Stores of the first version kept the wall's time, which may go back.
            return [f"row {event.seq} is older than the row before it"]
        if isinstance(event, FeedbackRow) and event.decision >= event.seq:
            return [f"row {event.seq} is feedback for the later row {event.decision}"]
        seq, time = event.seq, event.time
    return []


def _difference(kept: Placement, anew: Placement) -> str | None:
    pairs = [("policy", kept.learner, anew.learner), ("shadow", kept.shadow, anew.shadow)]
    for what, one, other in pairs:
        if one is None or other is None:
            continue
        if one.keys != other.keys:
            return f"{what}: the snapshot has {len(one.keys)} keys, the log {len(other.keys)}"
        for (field, a), (_, b) in zip(leaves(one.state), leaves(other.state), strict=True):
            for lane, key in enumerate(one.keys):
                if lane < len(a) and a[lane].tobytes() != b[lane].tobytes():
                    return (
                        f"{what}: {field} of key {key!r} is {a[lane]} after the snapshot, "
                        f"{b[lane]} by the log"
                    )
    for what in ("mode", "decisions", "feedback", "outcomes"):
        if getattr(kept, what) != getattr(anew, what):
            return (
                f"{what}: {getattr(kept, what)} after the snapshot, "
                f"{getattr(anew, what)} by the log"
            )
    if msgspec.json.encode(kept.counts()) != msgspec.json.encode(anew.counts()):
        return f"counts: {kept.counts()} after the snapshot, {anew.counts()} by the log"
    known = [p.signals and p.signals.saved(p.learner) for p in (kept, anew)]
    if known[0] != known[1]:
        return "signals: those after the snapshot are not those by the log"
    after, by_log = (
        [msgspec.json.encode(open) for open in placement.open_windows()]
        for placement in (kept, anew)
    )
    for mine, its in itertools.zip_longest(after, by_log):
        if mine != its:
            return f"open windows: {mine!r} after the snapshot, {its!r} by the log"
    return None


# Export --------------------------------------------------------------------------------------


def export(config: Config, store: Store, folder: Path) -> dict[str, int]:
    """Write the log to a folder.

    ``decisions.parquet``, ``feedback.parquet``, ``marks.parquet`` and ``placements.json`` hold
    every row as it is, for :func:`take_in`; so do ``records.parquet`` the records that were kept
    beside the log, and ``bases.parquet`` where the log of each placement begins if old rows were
    dropped. ``clicks.parquet`` is a click log for :func:`tacit.logs.read_log`, with the reward that
    the rule attributes to each decision (null while its window is open). ``duels-NAME.parquet``
    holds the duels of a placement whose windows have closed, for
    :func:`tacit.evaluate.duels.read_duels`.

    Returns
    -------
    dict of str to int
        How many rows each file has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(FILES, 0)
    writers = {
        name: pq.ParquetWriter(folder / f"{name}.parquet", schema)
        for name, schema in SCHEMAS.items()
    }
    try:
        for rows in _groups(store.events(0)):
            for name, part in zip(FILES, rows, strict=True):
                counts[name] += len(part)  # type: ignore[arg-type]
                writers[name].write_table(_table(name, part))
    finally:
        for writer in writers.values():
            writer.close()
    counts["records"] = _export_records(store, folder / "records.parquet")
    placements = {name: stored._asdict() for name, stored in store.placements().items()}
    bases = [store.base(stored["id"]) for stored in placements.values()]
    known = [base._asdict() for base in bases if base is not None]
    pq.write_table(pa.Table.from_pylist(known, schema=BASES_SCHEMA), folder / "bases.parquet")
    header = {"format": "tacit-log", "version": VERSION, "placements": placements}
    (folder / "placements.json").write_text(json.dumps(header, indent=1))
    worths = attributed(config, store)
    counts["clicks"] = _export_clicks(config, store, worths, folder / "clicks.parquet")
    for name, each in config.placements.items():
        if each.kind == DUELS and name in placements:
            table = _duels(store, placements[name]["id"], worths)
            pq.write_table(table, folder / f"duels-{name}.parquet")
            counts[f"duels-{name}"] = table.num_rows
    return counts


def _export_records(store: Store, path: Path) -> int:
    count = 0
    records = store.records()
    with pq.ParquetWriter(path, RECORDS_SCHEMA) as writer:
        while group := list(itertools.islice(records, ROWS)):
            count += len(group)
            rows = [row._asdict() for row in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=RECORDS_SCHEMA))
    return count


def write_old(old: Old, folder: Path) -> None:
    """Write rows that are about to be dropped to a folder, a file of its own for each kind.

    Their names tell the first row, so that the files of a folder follow one another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: tuple[Sequence[Any], ...] = old.rows
    for name, rows in zip(FILES, parts, strict=True):
        if rows:
            first = rows[0].seq
            _write_whole(_table(name, rows), folder / f"{name}-{first:012}.parquet")
    if old.records:
        table = pa.Table.from_pylist([r._asdict() for r in old.records], schema=RECORDS_SCHEMA)
        _write_whole(table, folder / f"records-{old.records[0].time:016}.parquet")


def _write_whole(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _duels(store: Store, placement: int, worths: dict[int, Any]) -> pa.Table:
    rows = [
        duel_of(row, worths[row.seq])
        for row in store.events(0)
        if isinstance(row, DecisionRow) and row.placement == placement and row.seq in worths
    ]
    return pa.Table.from_pylist(rows, schema=DUELS_SCHEMA)


def _groups(events: Iterator[Event]) -> Iterator[Rows]:
    while group := list(itertools.islice(events, ROWS)):
        yield Rows(
            [event for event in group if isinstance(event, DecisionRow)],
            [event for event in group if isinstance(event, FeedbackRow)],
            [event for event in group if isinstance(event, MarkRow)],
        )


def _table(name: str, rows: Any) -> pa.Table:
    columns = {field: [getattr(row, field) for row in rows] for field in FILES[name]._fields}
    for field in ("arm", "would"):
        if field in columns:
            columns[field] = [None if a is None else json.dumps(a) for a in columns[field]]
    return pa.table(columns, schema=SCHEMAS[name])


def _export_clicks(config: Config, store: Store, rewards: dict[int, Any], path: Path) -> int:
    from tacit.logs import write_log
    from tacit.logs.schema import SCHEMA

    stored = store.placements()
    one = {name for name, each in config.placements.items() if each.kind in ONE_ARM}
    names = {placement.id: name for name, placement in stored.items() if name in one}
    policies = {
        placement.id: policy_from_spec(json.loads(placement.spec)) for placement in stored.values()
    }
    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        decisions = (e for e in store.events(0) if isinstance(e, DecisionRow))
        known = (row for row in decisions if row.placement in names)
        while group := list(itertools.islice(known, ROWS)):
            count += len(group)
            yield pa.RecordBatch.from_pylist(
                [
                    _click(row, names[row.placement], policies[row.placement], rewards)
                    for row in group
                ],
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
        stored[name].id: placement_class(each.kind).attribution(each.rule)
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
                for lessons in attribution.told(part)[1]:
                    rewards.update(attribution.earned(lessons))
    end = store.end().time
    for attribution in rules.values():
        rewards.update(attribution.earned(attribution.advance(end)))
    return rewards


# Import --------------------------------------------------------------------------------------


def take_in(store: Store, folder: Path) -> int:
    """Fill an empty store with an exported log; return how many rows it has.

    Raises
    ------
    StoreError
        If the store is not empty, or the folder holds no exported log.
    """
    if store.end().seq or store.placements():
        raise StoreError("store: it is not empty; import into a new one")
    try:
        header = json.loads((folder / "placements.json").read_text())
        placements = header["placements"]
        if header["format"] != "tacit-log":
            raise StoreError(f"{folder}: is no exported log")
        if header["version"] > VERSION:
            raise StoreError(
                f"{folder}: is of version {header['version']}, this tacit reads up to {VERSION}; "
                "update tacit"
            )
        files = [pq.ParquetFile(folder / f"{name}.parquet") for name in FILES]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise StoreError(f"{folder}: holds no exported log: {error}") from error
    ids, policies = {}, {}
    for name, old in placements.items():
        new = store.placement(name, old["spec"], old["seed"])
        ids[old["id"]], policies[old["policy"]] = new.id, new.policy
    count = 0
    # Feedback refers to decisions, so all of these come first.
    for i, (name, file) in enumerate(zip(FILES, files, strict=True)):
        for batch in file.iter_batches(ROWS):
            rows = Rows.none()
            rows[i].extend(_row(name, values, ids, policies) for values in batch.to_pylist())  # type: ignore[attr-defined]
            store.append(rows)
            count += batch.num_rows
    _take_in_bases(store, folder / "bases.parquet", ids, policies)
    return count + _take_in_records(store, folder / "records.parquet", ids)


def _take_in_bases(store: Store, path: Path, ids: dict[int, int], policies: dict[int, int]) -> None:
    # The first two versions had none.
    if not path.exists():
        return
    for values in pq.read_table(path).to_pylist():
        base = Snapshot(**values)
        windows = msgspec.json.decode(base.windows)
        for row, *_ in windows["open"]:
            row[PLACEMENT], row[POLICY] = ids[row[PLACEMENT]], policies[row[POLICY]]
        encoded = msgspec.json.encode(windows)
        save(store, base._replace(placement=ids[base.placement], windows=encoded), BASES)


def _take_in_records(store: Store, path: Path, ids: dict[int, int]) -> int:
    # The first two versions had none.
    if not path.exists():
        return 0
    count = 0
    for batch in pq.ParquetFile(path).iter_batches(ROWS):
        rows = [RecordRow(**values) for values in batch.to_pylist()]
        store.keep([row._replace(placement=ids[row.placement]) for row in rows])
        count += len(rows)
    return count


def _row(name: str, values: dict[str, Any], ids: dict[int, int], policies: dict[int, int]) -> Any:
    values["placement"] = ids.get(values["placement"])
    if name == "decisions":
        values["policy"] = policies[values["policy"]]
        for field in ("arm", "would"):
            values[field] = values[field] and json.loads(values[field])
    return FILES[name](**values)
