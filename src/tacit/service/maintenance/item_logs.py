"""Click logs of items that requests describe, with the vectors that these had."""

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
from tacit.service.log.rows import DecisionRow
from tacit.service.log.store import Store

ROWS = 10_000
ITEMS_SCHEMA = pa.schema(
    {"id": pa.string(), "from": pa.timestamp("us", "UTC"), "vector": pa.list_(pa.float64())}
)


class _Described:
    """The vectors of the items that requests describe, each from when on it held."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[float]]] = {}
        self.rows: list[dict[str, Any]] = []

    def named(self, row: DecisionRow) -> DecisionRow | None:
        """Return a decision with the names that its items have in the table; None if it describes none."""
        asked = json.loads(row.asked or "{}")
        vectors = asked.get("relevance")
        if vectors is None or asked.get("examination") is not None or row.offered is None:
            return None
        offered = json.loads(row.offered)
        names = [self._name(str(arm), vector, row) for arm, vector in zip(offered, vectors, strict=True)]
        return row._replace(offered=json.dumps(names), arm=names[offered.index(row.arm)])

    def _name(self, name: str, vector: list[float], row: DecisionRow) -> str:
        time, known = self._known.get(name, (-1, None))
        if known != vector:
            # Of two vectors at the same moment, the second one is another item.
            name = f"{name}#{row.seq}" if time == row.time else name
            self._known[name] = row.time, vector
            self.rows.append(
                {"id": name, "from": datetime.fromtimestamp(row.time / 1e6, UTC), "vector": vector}
            )
        return name


def by_items(config: Config) -> set[str]:
    """Return the placements whose requests describe items, of which nothing is known before."""
    known = config.placements.items()
    return {
        name
        for name, each in known
        if each.served_as.by_features and each.served_as.form is not None and each.policy.arms is None
    }


def export_items(store: Store, name: str, rewards: dict[int, Any], folder: Path) -> dict[str, int]:
    """Write the click log of a placement that knows items by vectors, and these; return the rows of each."""
    from tacit.logs import write_log
    from tacit.logs.schema import SCHEMA

    stored = store.placements()[name]
    policy, described, count = policy_from_stored(json.loads(stored.spec)), _Described(), 0
    own = (e for e in store.events(0) if isinstance(e, DecisionRow) and e.placement == stored.id)
    known = filter(None, map(described.named, own))
    first = next(known, None)
    if first is None:
        return {}
    known = itertools.chain([first], known)  # type: ignore[assignment]

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        while group := list(itertools.islice(known, ROWS)):
            count += len(group)
            yield pa.RecordBatch.from_pylist(
                [click_row(row, name, policy, rewards) for row in group], schema=SCHEMA
            )

    write_log(batches(), folder / f"clicks-{name}.parquet")
    table = pa.Table.from_pylist(described.rows, schema=ITEMS_SCHEMA)
    pq.write_table(table, folder / f"items-{name}.parquet")
    return {f"clicks-{name}": count, f"items-{name}": table.num_rows}


def click_row(row: DecisionRow, name: str, policy: Any, rewards: dict[int, float]) -> dict[str, Any]:
    """Return a decision for one arm as a row of a click log."""
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
