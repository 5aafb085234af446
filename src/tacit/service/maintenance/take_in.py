"""An exported log read back into an empty store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.service.errors import StoreError
from tacit.service.log.parquet import FILES
from tacit.service.log.regimes import Regime
from tacit.service.log.rows import POLICY, DecisionRow, RecordRow, Rows
from tacit.service.maintenance.export import ROWS, VERSION
from tacit.service.stores.base import BASES, Snapshot, Store, save

PLACEMENT, MADE_BY = (DecisionRow._fields.index(field) for field in ("placement", "policy"))


def take_in(store: Store, folder: Path) -> int:
    """Fill an empty store with an exported log; return how many rows it has.

    Raises
    ------
    StoreError
        If the store is not empty, or the folder holds no exported log, or a damaged one.
    """
    if store.end().seq or store.placements():
        raise StoreError("store: it is not empty; import into a new one")
    try:
        return _take_in(store, folder)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: is damaged: {error}; export it anew, and import it into a new store"
        ) from error


def _take_in(store: Store, folder: Path) -> int:
    try:
        header = json.loads((folder / "placements.json").read_text())
        placements = header["placements"]
        if header["format"] != "tacit-log":
            raise StoreError(f"{folder}: is no exported log")
        if header["version"] > VERSION:
            raise StoreError(
                f"{folder}: is of version {header['version']}, this tacit reads up to {VERSION}; update tacit"
            )
        files = [_parquet(folder / f"{name}.parquet") for name in FILES]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise StoreError(f"{folder}: holds no exported log: {error}") from error
    ids, policies = {}, {}
    for name, old in placements.items():
        new = store.placement(name, old["spec"], old["seed"])
        ids[old["id"]], policies[old["policy"]] = new.id, new.policy
    regimes = _regimes(folder / "marks.parquet")
    for regime in regimes:
        policies[regime.number] = store.policy(json.dumps(regime.policy))
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


def _regimes(path: Path) -> list[Regime]:
    """Return all regimes that exported marks tell."""
    table = _parquet(path).read(["kind", "value"]).to_pylist()
    return [msgspec.json.decode(one["value"], type=Regime) for one in table if one["kind"] == POLICY]


def _parquet(path: Path) -> pq.ParquetFile:
    # Version 0.1 wrote no checksums; what has none is read as it is.
    return pq.ParquetFile(path, page_checksum_verification=True)


def _take_in_bases(store: Store, path: Path, ids: dict[int, int], policies: dict[int, int]) -> None:
    # The first two versions had none.
    if not path.exists():
        return
    for values in _parquet(path).read().to_pylist():
        base = Snapshot(**values)
        windows = msgspec.json.decode(base.windows)
        for row, *_ in windows["open"]:
            row[PLACEMENT], row[MADE_BY] = ids[row[PLACEMENT]], policies[row[MADE_BY]]
        encoded = msgspec.json.encode(windows)
        save(store, base._replace(placement=ids[base.placement], windows=encoded), BASES)


def _take_in_records(store: Store, path: Path, ids: dict[int, int]) -> int:
    # The first two versions had none.
    if not path.exists():
        return 0
    count = 0
    for batch in _parquet(path).iter_batches(ROWS):
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
    if values.get("kind") == POLICY:
        regime = msgspec.json.decode(values["value"], type=Regime)
        values["value"] = msgspec.structs.replace(regime, number=policies[regime.number]).text
    return FILES[name](**values)
