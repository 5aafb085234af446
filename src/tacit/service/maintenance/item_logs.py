"""Click logs of items that requests describe by vectors, with the table of these vectors."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.core.arrays import Floats
from tacit.learning.decisions import Arm
from tacit.policies.base import NO_FEATURES
from tacit.policies.spec import policy_from_stored
from tacit.service.config.schema import Config
from tacit.service.deciders.items import CatalogueHistory, make_catalogue_history
from tacit.service.log.ids import as_datetime
from tacit.service.log.rows import (
    PIN_MODES,
    ChangeRow,
    DecisionRow,
    decode_json,
    decode_list,
    encode_list,
    make_click_row,
)
from tacit.service.log.sql import Store

ROWS = 10_000

logger = logging.getLogger(__name__)
ITEMS_SCHEMA = pa.schema(
    {"id": pa.string(), "from": pa.timestamp("us", "UTC"), "vector": pa.list_(pa.float64())}
)


class _ItemVectors:
    """The vectors of items that requests describe, each with the time from which it holds."""

    def __init__(self, items: CatalogueHistory | None) -> None:
        self._items = items
        self._last_vectors: dict[str, tuple[int, bytes]] = {}
        self.rows: list[dict[str, Any]] = []
        self.nameless = 0

    def rename_items(self, event: DecisionRow | ChangeRow) -> DecisionRow | None:
        """Return a decision whose items have the names of the vector table; add new vectors to the table.

        Change events are applied to the catalogue; for them, and for decisions whose items have no names,
        which are counted, None is returned.
        """
        if isinstance(event, ChangeRow):
            if self._items is not None:
                self._items.apply_change(event)
            return None
        offered, vectors = self._find_candidates(event)
        if not len(offered):
            self.nameless += 1
            return None
        item_names = [
            self._name_item(str(arm), vector, event) for arm, vector in zip(offered, vectors, strict=True)
        ]
        names = dict(zip(offered, item_names, strict=True))
        return event._replace(
            offered=json.dumps(item_names),
            arm=names[event.arm],
            shown=_rename_shown_items(event.shown, names),
        )

    def _find_candidates(self, row: DecisionRow) -> tuple[Sequence[Arm], Floats]:
        """Return the names and vectors of a decision's candidates; both empty if the items had no names."""
        candidates = None if self._items is None else self._items.find_candidates(row)
        if candidates is not None:
            return candidates.ids, candidates.vectors
        request = decode_json(row.asked) or {}
        if row.offered is None or request.get("relevance") is None or request.get("examination") is not None:
            return (), NO_FEATURES
        return json.loads(row.offered), np.array(request["relevance"], np.float64)

    def _name_item(self, name: str, vector: Floats, row: DecisionRow) -> str:
        """Return the name of an item in the table; if its vector is new, add a row with the decision's time.

        A second vector at the same time gets the number of the decision's row behind its name.
        """
        (time, last_vector), numbers = self._last_vectors.get(name, (-1, None)), vector.tobytes()
        if last_vector != numbers:
            # Of two vectors at the same time, the second one gets a name of its own.
            name = f"{name}#{row.seq}" if time == row.time else name
            self._last_vectors[name] = row.time, numbers
            self.rows.append({"id": name, "from": as_datetime(row.time), "vector": vector.tolist()})
        return name


def _rename_shown_items(shown: str | None, names: Mapping[Arm, str]) -> str | None:
    """Return a shown list as JSON with the items' new names; anything but a list is returned unchanged."""
    if shown is None or not (shown.startswith("[") or '"slate":' in shown):
        return shown
    slate = decode_list(shown)
    arms = [None if arm is None else names[arm] for arm in slate.arms]
    return encode_list(arms, np.array(slate.prefix_propensities), np.array(slate.position_propensities))


def list_item_placements(config: Config) -> set[str]:
    """Return the names of the placements whose requests describe items by vectors."""
    placements = config.placements.items()
    return {
        name
        for name, placement_config in placements
        if placement_config.policy_kind.by_features and placement_config.policy.arms is None
    }


def export_items(
    config: Config, store: Store, name: str, rewards: dict[int, Any], folder: Path
) -> dict[str, int]:
    """Write the click log of a placement whose items have vectors, and a Parquet table of the vectors.

    Returns the number of rows of each file by its name; {} and no files if no decision has named items. The
    number of decisions left out is logged as a warning.
    """
    stored = store.placements()[name]
    policy = policy_from_stored(json.loads(stored.spec))
    described = _ItemVectors(make_catalogue_history(policy, store.snapshots.load_base(stored.id)))
    export = config.placements[name].policy_kind.export
    log = "clicks" if export is None else export.name
    events = (
        event
        for event in store.events(0)
        if isinstance(event, DecisionRow | ChangeRow) and event.placement == stored.id
    )
    decisions = filter(None, map(described.rename_items, events))
    # The first one is read before a file is begun, and put back afterwards.
    first = next(decisions, None)
    if first is None:
        _warn_left_out(name, described.nameless)
        return {}
    decisions = itertools.chain([first], decisions)  # type: ignore[assignment]

    def make_records(row: DecisionRow) -> list[dict[str, Any]]:
        """Return a decision's rows of the click log; none for a pinned arm, or a list with an open window."""
        if row.mode in PIN_MODES:
            return []
        if export is None:
            return [click_row(row, name, policy, rewards)]
        # The feedback on a list is complete once its window has closed.
        return export.rows(row, rewards[row.seq], name, policy) if row.seq in rewards else []

    rows = (record for row in decisions for record in make_records(row))
    count = write_clicks(rows, folder / f"{log}-{name}.parquet", {name: config.placements[name].scale})
    table = pa.Table.from_pylist(described.rows, schema=ITEMS_SCHEMA)
    pq.write_table(table, folder / f"items-{name}.parquet")
    _warn_left_out(name, described.nameless)
    return {f"{log}-{name}": count, f"items-{name}": table.num_rows}


def write_clicks(rows: Iterator[dict[str, Any]], path: Path, scales: Mapping[str, Any]) -> int:
    """Write rows to a click log in a Parquet file; return their number.

    The file's metadata has the placements' units of rewards (``scales``).
    """
    from tacit.logs import write_log
    from tacit.logs.schema import SCHEMA
    from tacit.logs.writer import write_valid_batches

    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        """Yield record batches of the rows, and count the rows."""
        nonlocal count
        while group := list(itertools.islice(rows, ROWS)):
            count += len(group)
            yield pa.RecordBatch.from_pylist(group, schema=SCHEMA)

    notes = [f"at {name} {text}" for name, scale in scales.items() if (text := scale.legend)]
    # The check of rows takes rewards in [0, 1] alone.
    write = write_valid_batches if any(scale.is_open for scale in scales.values()) else write_log
    write(batches(), path, rewards="; ".join(notes))
    return count


def _warn_left_out(name: str, count: int) -> None:
    """Log a warning that ``count`` decisions of a placement are in no click log; nothing for 0."""
    if count:
        logger.warning(
            "placement %s: %d decisions are in no click log: their requests named no items, or described "
            "how likely these are seen; send arms and their relevance", name, count,
        )  # fmt: skip


def click_row(row: DecisionRow, name: str, policy: Any, rewards: dict[int, float]) -> dict[str, Any]:
    """Return a decision for one arm as a row of a click log; its reward is None if ``rewards`` has none."""
    columns = {"arm": str(row.arm), "propensity": row.propensity or None, "reward": rewards.get(row.seq)}
    return make_click_row(row, name, policy) | columns
