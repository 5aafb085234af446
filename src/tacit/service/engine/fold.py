"""The fold: placements are loaded from snapshots, and the later rows of the log are applied to them.

The learned state of a placement is a function of its log alone, so a start has three phases:

1. :func:`store_start_learner`, once for a new placement: it may begin with a learner from a file;
2. :func:`load_placement`: the placement at its latest valid snapshot, or at the beginning of its log. Its
   configuration must fit the policy, seed and arms in the log. Each rebuild or rollback begins a *policy
   version*, which holds from its change event on;
3. :func:`fold`: the rows after the snapshot are applied as when they arrived: decisions are recorded and not
   made again, feedback is learned, change events are applied, and windows close by the log's time.

The same functions rebuild a placement with another policy (:mod:`tacit.service.engine.rebuilding`), follow a
log that another process writes, and verify a log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.policies import Policy, policy_to_spec
from tacit.policies.context import schema_text
from tacit.policies.spec import goes_on, policy_from_stored
from tacit.service.config.file import policy_name, settings_of, start_learner
from tacit.service.config.schema import PlacementConfig
from tacit.service.errors import Damaged, StoreError
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import Regime, marked_start, regimes_of
from tacit.service.log.ids import DecisionNames, Shard
from tacit.service.log.rows import DecisionRow, Event, FeedbackRow, MarkRow, stretches
from tacit.service.log.sql import Store
from tacit.service.log.store import BASES, FEEDBACK_RULE, Snapshot, StoredPlacement
from tacit.service.placements.aspects.feedback_rule import IN_ORDER
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import damaged_base

EVER = 2**62

logger = logging.getLogger(__name__)


def opened(
    name: str,
    config: PlacementConfig,
    store: Store,
    new_seed: int,
    *,
    snapshot: bool = True,
    as_if: Regime | None = None,
) -> Placement:
    """Return a placement at its latest snapshot; create it in the store if it is new.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    store : Store
    new_seed : int
        Seed of a new placement, if the configuration has none.
    snapshot : bool
        Whether to begin at the latest snapshot, or at the beginning of the log.
    as_if : PolicyVersion, optional
        A policy version that is not in the log yet.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    StoreError
        If the store fails, or the base of the log is damaged.
    """
    stored = store.placement(name, new_spec(config.policy), new_seed if config.seed is None else config.seed)
    marks = store.changes(stored.id)
    # The last policy version holds, whatever is configured: a start must not undo a rebuild.
    regimes = regimes_of(marks)
    if as_if is not None:
        regimes.append(as_if)
    regime = regimes[-1] if regimes else None
    noted = store.configuration(stored.id)
    config = as_stored(name, config, stored, [regime.policy for regime in regimes], noted)
    if regime is not None:
        spec = {**regime.policy, FEEDBACK_RULE: stored.feedback_rule}
        stored = stored._replace(policy=regime.number, spec=json.dumps(spec))
    end = store.end().seq
    latest = _latest(name, stored, store, end) if snapshot else None
    try:
        base = store.base(stored.id)
    except Damaged as error:
        raise damaged_base(name, error) from error
    # If the log were shorter than its base, new rows would get sequence numbers that were used before.
    if base is not None and base.seq > end:
        raise StoreError(
            f"store: placement {name}: its log begins with what was learned up to row {base.seq}, "
            f"but the log ends with row {end}: rows are missing; restore a backup"
        )
    origin = None
    if regime is not None and regime.origin is not None and (snapshot or base or as_if):
        origin = store.state(stored.id, regime.origin)
    kind = config.served_as
    made: Placement = kind.placement(name, config, stored, latest, base, regime, origin)
    began = marked_start(marks)
    if began is not None and base is None:
        raise StoreError(
            f"store: placement {name}: it started from {began.file}, and what that had learned is "
            "missing; restore a backup"
        )
    made.start_marked = began is not None
    return made


def all_opened(
    names: Sequence[str], configs: Mapping[str, PlacementConfig], store: Store, shard: Shard | None
) -> dict[str, Placement]:
    """Return placements that have learned from the whole log; in a shard, with its generator of ids."""
    for name in names:
        start(name, configs[name], store, secrets.randbits(63))
    made = {}
    for name in names:
        try:
            made[name] = opened(name, configs[name], store, secrets.randbits(63))
        except MemoryError as error:
            arms = configs[name].policy.arm_count
            raise ConfigError(
                f"placements.{name}: what its policy learns of {arms:,} arms has no room in memory; "
                "give fewer arms or numbers, or another policy"
            ) from error
    fold({placement.id: placement for placement in made.values()}, store)
    if shard is not None:
        for name, placement in made.items():
            placement.new_ids = DecisionNames(name, shard, placement.config.spread)
    return made


def start(name: str, config: PlacementConfig, store: Store, new_seed: int) -> None:
    """Store the configured start learner of a placement without decisions as the base of its log.

    Later starts read the base and not the learner's file.

    Parameters
    ----------
    name, config, store, new_seed
        As for :func:`load_placement`.

    Raises
    ------
    ConfigError
        If the learner does not fit the placement, or the placement already has decisions or another start.
    """
    if config.start is None:
        return
    stored = store.placements().get(name)
    marks = [] if stored is None else store.changes(stored.id)
    began, file = marked_start(marks), Path(config.start).name
    if began is not None and began.file == file:
        return
    if began is not None or (stored is not None and _has_begun(stored, marks, store)):
        before = "nothing" if began is None else began.file
        raise ConfigError(
            f"placements.{name}.start: it has started from {before}, not from {file}; set that "
            "back, or give the placement a new name"
        )
    if stored is not None:
        config = as_stored(name, config, stored)
    mark, learner = start_learner(name, config)
    stored = store.placement(name, new_spec(learner.policy), new_seed if config.seed is None else config.seed)
    made: Placement = config.served_as.placement(name, as_stored(name, config, stored), stored)
    for _ in store.saving(made.started(mark, learner), BASES):
        pass


def new_spec(policy: Policy) -> str:
    """Return a new placement's policy as JSON for the store, with its rule for learning feedback."""
    return json.dumps({**policy_to_spec(policy), FEEDBACK_RULE: IN_ORDER})


def _has_begun(stored: StoredPlacement, marks: list[MarkRow], store: Store) -> bool:
    """True if a placement has decisions or a policy version."""
    begins = store.begins(stored.id)
    if (begins is not None and begins.seq) or regimes_of(marks):
        return True
    return bool(store.old(stored.id, EVER, EVER, 1).rows.decisions)


def _latest(name: str, stored: StoredPlacement, store: Store, end: int) -> Snapshot | None:
    """Return the latest snapshot; delete snapshots and states that include rows after the log's end.

    New rows get the numbers of the missing rows, and would be taken for learned ones.
    """
    try:
        found = store.snapshot(stored.id)
    except Damaged as error:
        logger.warning("snapshot of placement %s: %s; replaying the whole log instead", name, error)
        return None
    beyond = [state.seq for state in store.states(stored.id) if state.seq > end]
    if found is not None and found.seq > end:
        beyond.append(found.seq)
        found = None
    if beyond:
        logger.warning(
            "placement %s: the log ends with row %d, before what was learned up to row %d: rows "
            "are missing; that is set aside, and the log folded anew",
            name,
            end,
            max(beyond),
        )
        store.set_aside(stored.id, end)
    return found


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Apply the rows after each placement's snapshot, then advance the placements to the log's end."""
    if not placements:
        return
    end = store.end()
    behind = min(placement.covered for placement in placements.values())
    take_in(placements, store.events(behind))
    for placement in placements.values():
        # Windows close by the time of the log's last row, which may be another placement's.
        placement.advance(end.time)


def take_in(placements: Mapping[int, Placement], events: Iterable[Event]) -> None:
    """Apply consecutive rows of the log to placements, which are given by their numbers."""
    for rows in stretches(events):
        id = rows.column("placement")[0]
        concerned = placements.values() if id is None else filter(None, [placements.get(id)])
        # Rows without a placement are ticks: they advance all placements.
        for placement in concerned:
            _take_in(placement, rows)


def _take_in(placement: Placement, rows: Block[Any]) -> None:
    # Snapshots differ in age: some of the rows may be in this placement's snapshot.
    seqs = rows.column("seq")
    if seqs[-1] <= placement.covered:
        return
    fresh = rows[bisect_right(seqs, placement.covered) :]
    regime = placement.regime
    if regime is None or not regime.aside:
        _take_part(placement, fresh)
        return
    for closed, part in groupby(fresh, lambda row: regime.sets_aside(row.seq)):
        block = Block.of(rows.kind, list(part))
        # Windows that closed before the skipped rows, also by rows of other placements, are learned.
        until = block.column("time")[0] if closed is None else closed
        placement.advance(max(until, placement.windows.time))
        placement.sets_aside = closed is not None
        _take_part(placement, block)


def _take_part(placement: Placement, rows: Block[Any]) -> None:
    # As in a running service, due windows close before the rows are applied.
    placement.advance(rows.column("time")[0])
    if rows.kind is DecisionRow:
        placement.learn_turns()
        placement.recall(rows)
    elif rows.kind is FeedbackRow:
        placement.take_in(rows)
    else:
        for mark in rows:
            placement.marked(mark)


# ---- Does a placement's configuration fit the store?


def as_stored(
    name: str,
    config: PlacementConfig,
    stored: StoredPlacement,
    rebuilt: Sequence[dict[str, Any]] = (),
    noted: str | None = None,
) -> PlacementConfig:
    """Return a placement's configuration with its stored policy and seed.

    The configured policy may differ in defaults of an earlier version, and a recommended policy is replaced
    by the stored one. For placements with changing arms, both policies get the placement's first arms;
    the configured arms are compared separately. After rebuilds, the last policy holds, whichever of the
    placement's policies is configured, unless the configuration now names another one.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
    rebuilt : sequence of dict
        Policies of the policy versions in the log, as specifications.
    noted : str, optional
        The stored configuration, as :func:`settings_of` returns it.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_stored(json.loads(stored.spec))
    if config.served_as.living:
        config = _as_begun(config, before)
    known = [before, *map(policy_from_stored, rebuilt)]
    # A policy that is newly named in the file is intended; one that a new version recommends is not.
    named_anew = noted is not None and policy_name(noted) != policy_name(settings_of(config))
    same = any(goes_on(config.policy, each) for each in (known[-1:] if named_anew else known))
    kinds = [type(getattr(policy, "policy", policy)) for policy in (config.policy, *known)]
    gives_way = config.recommended and not named_anew and kinds[0] not in kinds[1:]
    if not (same or ((gives_way or config.rebuild) and _for_same(config, before, config.rebuild))):
        field, then, now = _differing(known[-1], config.policy)
        # A rebuild cannot change the shown arms or the encoded contexts in the log.
        helps = field in ("policy", "at_least") and not config.rebuild and _for_same(config, before, True)
        rebuild = "rebuild it with rebuild = true, " if helps else ""
        raise ConfigError(
            f"placements.{name}.{field}: the store holds what was learned with {then}, which is not for "
            f"{now}; set it back, {rebuild}or give the placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )
    return msgspec.structs.replace(config, policy=known[-1], seed=stored.seed)


def _differing(before: Policy, now: Policy) -> tuple[str, Any, Any]:
    """Return the first setting in which policies differ, and its value for each, for a message."""
    said: dict[str, Callable[[Policy], Any]] = {
        "kind": lambda policy: f"a policy of {policy.shows}s",
        "positions": lambda policy: policy.action_width,
        "at_least": lambda policy: dict(getattr(policy, "at_least", ())) or "no share promised",
        "context": lambda policy: schema_text(policy.schema) if policy.schema else "no context",
        "arms": lambda policy: getattr(policy, "arms", None),
        "policy": lambda policy: policy.label,
    }
    ways = ((field, say(before), say(now)) for field, say in said.items())
    return next((way for way in ways if way[1] != way[2]), ("policy", before, now))


def _as_begun(config: PlacementConfig, before: Policy) -> PlacementConfig:
    """Return a configuration whose policies have the placement's first arms."""
    if type(config.policy.arms) is not type(before.arms):
        return config
    with contextlib.suppress(InvalidValue):
        return msgspec.structs.replace(
            config,
            policy=config.policy.with_arms(before.arms),
            shadow=config.shadow and config.shadow.with_arms(before.arms),
            arms=config.configured_arms,
        )
    return config


def _for_same(config: PlacementConfig, before: Policy, rebuild: bool) -> bool:
    """True if a policy has the same arms, features, positions, context and minimum shares as one before.

    For a rebuild, the minimum shares may differ, and the policy may ignore contexts.
    """
    asked, stored = (
        (getattr(policy, "arms", None), policy.feature_dims, policy.action_width, policy.schema)
        + (() if rebuild else (getattr(policy, "at_least", ()),))
        for policy in (config.policy, before)
    )
    return asked == stored and (not rebuild or config.policy.context_dim in (0, before.context_dim))
