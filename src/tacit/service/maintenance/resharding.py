"""Resharding: distribute a log over more or fewer shards, or from a single server over shards.

Every row goes to the shard of its partition, in order of time, so each key's part of the log is unchanged.
Learning for a single key is then the same, bit for bit. Safe classifiers, which all keys share, are followed
while the log is read, and each of their changes becomes a change event for all shards. Each shard computes
sums over all keys from its own rows; they are merged again once the shards serve.

1. ``reshard``: the new layout is filled and then takes effect.
2. ``NewShard`` and ``Source``: a shard that is written, a log that is read.
3. Rows, records and updates are written to their shards.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import ConfigError
from tacit.service.config.schema import Config
from tacit.service.deciders.arm_lifecycle import parse_arms
from tacit.service.engine import shard_layout
from tacit.service.engine.fold import apply_rows, load_placement
from tacit.service.log import rows
from tacit.service.log.ids import MOST_SHARDS, find_id_partition, find_shard, hash_partition
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.sql import Store, add_records, read_records
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.placement import Placement
from tacit.service.projections.shared_learning import JoinedClassifier, SharedUpdate

ROWS = 5000


def reshard(config: Config, shards: int, *, drop: bool = False) -> list[int]:
    """Distribute the log of a configuration over shards, while no service runs; return the rows of each.

    The next generation is filled first and then takes effect at once; until then nothing has changed. The
    rows of the previous layout stay unless they are dropped.

    Parameters
    ----------
    config : Config
        With the placements of the log.
    shards : int
        From 1 to 1024.
    drop : bool, default False
        Whether to remove the shards of the layout before, afterwards.

    Returns
    -------
    list of int
        Number of rows of each shard.

    Raises
    ------
    ConfigError
        If the log is not in PostgreSQL, holds a placement that is not configured, or has rows
        that were dropped for their age; or a placement is of a kind that has no shards.
    StoreError
        If it is in use, or fails.
    """
    checks.integer("shards", shards, 1, MOST_SHARDS)
    shard_layout.check_starts(config)
    url, schema = config.store.url, config.store.schema
    if url is None:
        raise ConfigError(
            "store.url: shards keep their log in PostgreSQL; give postgresql://user@host/database"
        )
    layouts = PostgresStore(url, schema)
    opened_stores: list[PostgresStore] = [layouts]
    try:
        before = shard_layout.read_layout(layouts)
        after = shard_layout.Layout(before.generation + 1 if before else 1, shards)
        # Rows of an interrupted attempt.
        shard_layout.clear_layout(layouts, after)
        sources = [layouts] if before is None else _open_stores(url, schema, before, opened_stores)
        targets = [NewShard(store) for store in _open_stores(url, schema, after, opened_stores)]
        _distribute(config, layouts, sources, targets)
        shard_layout.begin_layout(layouts, after)
        if drop and before is not None:
            shard_layout.clear_layout(layouts, before)
        return [target.seq for target in targets]
    finally:
        for store in reversed(opened_stores):
            store.close()


def _open_stores(
    url: str, schema: str, layout: shard_layout.Layout, opened_stores: list[PostgresStore]
) -> list[PostgresStore]:
    """Open and return the stores of all shards of a layout; add each to ``opened_stores`` for closing."""
    stores = []
    for shard in range(layout.shards):
        stores.append(PostgresStore(url, shard_layout.name_schema(schema, layout, shard)))
        opened_stores.append(stores[-1])
    return stores


class NewShard:
    """A shard that is being filled.

    Parameters
    ----------
    store : Store
        Empty.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seq = 0
        self.placements: dict[str, StoredPlacement] = {}
        self._parts: tuple[list[Any], ...] = [], [], []
        self._last_values: dict[tuple[int, str], str] = {}

    def add(self, row: Any) -> int:
        """Append a row with the shard's next sequence number, and return the number.

        Rows are written to the store 5000 at a time.
        """
        self.seq += 1
        row = row._replace(seq=self.seq)
        kinds = rows.DecisionRow, rows.FeedbackRow, rows.ChangeRow
        self._parts[kinds.index(type(row))].append(row)
        if sum(map(len, self._parts)) >= ROWS:
            self.flush()
        return self.seq

    def append_change(self, placement: int, change: rows.ChangeRow) -> None:
        """Append a change event, unless the placement's last event of this kind has the same value."""
        if self._last_values.get((placement, change.kind)) != change.value:
            self._last_values[placement, change.kind] = change.value
            self.add(change._replace(placement=placement))

    def lacks_change(self, placement: int, change: rows.ChangeRow) -> bool:
        """True if a change event of arms is newer than the last one of the placement in this shard."""
        before = self._last_values.get((placement, rows.ARMS))
        return before is None or parse_arms(before).changes < parse_arms(change.value).changes

    def flush(self) -> None:
        """Write the appended rows to the store, and drop them from memory."""
        self.store.append(rows.Rows(*self._parts))
        self._parts = [], [], []


class Source:
    """A log that is being read, and the classifiers that its keys share.

    Placements with such a classifier are *followed*: they are folded while the log is read.

    Parameters
    ----------
    number : int
    config : Config
    store : Store
    """

    def __init__(self, number: int, config: Config, store: Store) -> None:
        self.number, self.store = number, store
        self.names = {stored.id: name for name, stored in store.placements().items()}
        self.places = np.zeros(store.end().seq + 1, np.int64)
        """Shard · 2⁴⁸ + new number of each decision, by its old number."""
        self._followed: dict[int, Placement] = {}
        self._joined: dict[int, JoinedClassifier] = {}
        for id, name in self.names.items():
            # It is stored with its seed, so that no new one is needed.
            placement = load_placement(name, config.placements[name], store, new_seed=0, snapshot=False)
            joined = None if placement.shared is None else placement.shared.classifier
            if joined is not None:
                self._followed[id], self._joined[id] = placement, joined

    def iterate_events(self) -> Iterator[tuple[Source, rows.Event]]:
        """Yield this source with each event of its log, in order."""
        for event in self.store.events(0):
            yield self, event

    def close_windows(self, event: rows.Event) -> Iterator[tuple[str, SharedUpdate]]:
        """Close the windows of followed placements that end by an event's time.

        Yield updates of their classifiers with the placements' names.
        """
        for placement in self._followed.values():
            placement.learning.advance(event.time)
        yield from self._export_updates(event.time)

    def apply_event(self, event: rows.Event) -> Iterator[tuple[str, SharedUpdate]]:
        """Apply an event to the followed placements.

        Yield updates of their classifiers with the placements' names.
        """
        apply_rows(self._followed, [event])
        yield from self._export_updates(event.time)

    def _export_updates(self, time: int) -> Iterator[tuple[str, SharedUpdate]]:
        """Yield (placement's name, update) for each classifier that has changed since the last call."""
        for id, placement in self._followed.items():
            parts = self._joined[id].export_update(placement.learner, everything=False)
            if parts:
                yield placement.name, SharedUpdate(self.number, time, parts)


# Rows get new numbers, so references to rows are written with the new numbers.
def _distribute(
    config: Config, layouts: PostgresStore, stores: list[PostgresStore], targets: list[NewShard]
) -> None:
    """Write the rows and records of all stores to the new shards, in order of time, with new numbers.

    Raises ConfigError if a placement cannot be distributed.
    """
    for store in stores:
        _add_placements(config, layouts, store, targets)
    sources = [Source(number, config, store) for number, store in enumerate(stores)]
    end = 0
    merged = heapq.merge(
        *(source.iterate_events() for source in sources), key=lambda pair: (pair[1].time, pair[0].number)
    )
    for source, event in merged:
        end = event.time
        # Updates stand where they were learned: from windows that close before the event, then from it.
        _write_updates(targets, source.close_windows(event))
        _write_event(config, source, event, targets, alone=len(sources) == 1)
        _write_updates(targets, source.apply_event(event))
    for source in sources:
        _distribute_records(source, targets)
    for target in targets:
        if end:
            # Closes all windows that had closed before; ``add`` replaces the number 0.
            target.add(rows.ChangeRow(0, None, end, rows.TICK, ""))
        target.flush()


def _add_placements(
    config: Config, layouts: PostgresStore, store: PostgresStore, targets: list[NewShard]
) -> None:
    """Create a store's placements in all new shards and in the store of the layout.

    Raises ConfigError if one is not configured, or its log begins with a base.
    """
    for name, stored in store.placements().items():
        if name not in config.placements:
            raise ConfigError(f"placements.{name}: the log holds it; configure it as it was when it learned")
        begins = store.snapshots.find_base_end(stored.id)
        if begins is not None:
            why = "its oldest rows were dropped, and what they taught"
            why = why if begins.seq else "it started from a learner, which"
            raise ConfigError(f"placements.{name}: {why} cannot be dealt out; begin with a new schema")
        layouts.placement(name, stored.spec, stored.seed)
        for target in targets:
            target.placements[name] = target.store.placement(name, stored.spec, stored.seed)


def _write_event(
    config: Config, source: Source, event: rows.Event, targets: list[NewShard], *, alone: bool
) -> None:
    """Write an event of a source to the new shards that need it.

    Decisions and feedback go to the shard of the key, change events to all shards; ticks are left out.
    ``alone`` means that there is only one source.
    """
    if isinstance(event, rows.DecisionRow):
        _write_decision(config, source, event, targets)
    elif isinstance(event, rows.FeedbackRow):
        number, seq = divmod(int(source.places[event.decision]), 1 << 48)
        target = targets[number]
        stored = target.placements[source.names[event.placement]]
        target.add(event._replace(placement=stored.id, decision=seq))
    elif event.placement is not None and (event.kind != rows.ITEMS or source.number == 0):
        # Items are the same in all shards.
        _write_change(source.names[event.placement], event, targets, alone=alone)


def _write_change(name: str, change: rows.ChangeRow, targets: list[NewShard], *, alone: bool) -> None:
    """Append a placement's change event to all shards that do not have it yet; some kinds are left out.

    Raises ConfigError for a change of the policy, which shards cannot follow.
    """
    if change.kind == rows.POLICY:
        raise ConfigError(
            f"placements.{name}: its log was folded into another policy, which shards cannot "
            "follow; begin with a new schema"
        )
    for target in targets:
        stored = target.placements[name]
        # Each shard logged all changes of arms, by its own clock.
        if change.kind in (rows.MODE, rows.HOLDOUT, rows.PIN, rows.ITEMS) or (
            change.kind == rows.ARMS and (alone or target.lacks_change(stored.id, change))
        ):
            target.append_change(stored.id, change)


def _distribute_records(source: Source, targets: list[NewShard]) -> None:
    """Copy each record of a source to the new shard of its id."""
    for record in read_records(source.store):
        name = source.names[record.placement]
        target = targets[find_shard(hash_partition(name, record.id), len(targets))]
        add_records(target.store, [record._replace(placement=target.placements[name].id)])


def _write_decision(config: Config, source: Source, row: rows.DecisionRow, targets: list[NewShard]) -> None:
    """Append a decision to its new shard, with the shard's numbers; note its new number for its feedback."""
    name = source.names[row.placement]
    is_spread = config.placements[name].spread
    partition = find_id_partition(name, row.id) if is_spread else hash_partition(name, row.key)
    number = find_shard(partition, len(targets))
    target = targets[number]
    stored = target.placements[name]
    seq = target.add(row._replace(placement=stored.id, policy=stored.policy))
    source.places[row.seq] = number << 48 | seq


def _write_updates(targets: list[NewShard], updates: Iterator[tuple[str, SharedUpdate]]) -> None:
    """Append a MERGE change event to every new shard for each (placement's name, update) pair."""
    for name, update in updates:
        value = msgspec.json.encode(update).decode()
        # ``add`` replaces the number 0.
        for target in targets:
            target.add(rows.ChangeRow(0, target.placements[name].id, update.time, rows.MERGE, value))
