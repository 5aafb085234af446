"""The fold: placements as the store has them, and the rows of the log taken in."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from tacit.errors import ConfigError
from tacit.policies import policy_from_spec, policy_to_spec
from tacit.service.blocks import Block
from tacit.service.config import DUELS, FEATURES, PERSONALIZER, SLATES, PlacementConfig
from tacit.service.placement import Placement
from tacit.service.rows import DecisionRow, Event, FeedbackRow
from tacit.service.store import Store, StoredPlacement

FOLD_ROWS = 4096


def opened(
    name: str, config: PlacementConfig, store: Store, new_seed: int, *, snapshot: bool = True
) -> Placement:
    """Return a placement at its latest snapshot, made in the store if it is new.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    StoreError
        If the store fails, or what the log begins with is damaged.
    """
    spec = json.dumps(policy_to_spec(config.policy))
    stored = store.placement(name, spec, new_seed if config.seed is None else config.seed)
    checked_stored(name, config, stored)
    latest = store.snapshot(stored.id) if snapshot else None
    return placement_class(config.kind)(name, config, stored, latest, store.base(stored.id))


def checked_stored(name: str, config: PlacementConfig, stored: StoredPlacement) -> None:
    """Check that a placement fits what the store has of it.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_spec(json.loads(stored.spec))
    if before != config.policy:
        raise ConfigError(
            f"placements.{name}.policy: the store holds what {before} learned, which is not for "
            f"{config.policy}; set it back, or give the placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )


def placement_class(kind: str) -> type[Placement]:
    """Return the class of the placements of a kind."""
    if kind == DUELS:
        from tacit.service.duels import DuelPlacement

        return DuelPlacement
    if kind == FEATURES:
        from tacit.service.features import FeaturePlacement

        return FeaturePlacement
    if kind == PERSONALIZER:
        from tacit.service.personalizer.placement import PersonalizerPlacement

        return PersonalizerPlacement
    if kind == SLATES:
        from tacit.service.slates import SlatePlacement

        return SlatePlacement
    return Placement


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Take in, per placement, what the log holds after its snapshot; then let time go by to its
    end."""
    if not placements:
        return
    end = store.end()
    behind = min(placement.covered for placement in placements.values())
    take_in(placements, store.events(behind))
    for placement in placements.values():
        placement.advance(end.time)


def take_in(placements: Mapping[int, Placement], events: Iterable[Event]) -> None:
    """Take in a stretch of the log, by placements of these ids."""
    for rows in stretches(events):
        id = rows.column("placement")[0]
        concerned = placements.values() if id is None else filter(None, [placements.get(id)])
        for placement in concerned:
            _take_in(placement, rows)


def _take_in(placement: Placement, rows: Block[Any]) -> None:
    seqs = rows.column("seq")
    if seqs[-1] <= placement.covered:
        return
    fresh = rows[bisect_right(seqs, placement.covered) :]
    placement.advance(fresh.column("time")[0])
    if rows.kind is DecisionRow:
        placement.recall(fresh)
    elif rows.kind is FeedbackRow:
        placement.told(fresh)
    else:
        for mark in fresh:
            placement.marked(mark)


def stretches(events: Iterable[Event]) -> Iterator[Block[Any]]:
    """Cut the log where the kind of row, the placement, the time or the mode changes."""
    for (kind, *_), run in groupby(events, key=_kind):
        while rows := list(islice(run, FOLD_ROWS)):
            yield Block.of(kind, rows)


def _kind(event: Event) -> tuple[Any, ...]:
    mode = event.mode if isinstance(event, DecisionRow) else None
    return type(event), event.placement, event.time, mode
