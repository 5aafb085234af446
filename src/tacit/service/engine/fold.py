"""The fold: placements as the store has them, and the rows of the log taken in.

What a placement has learned is a function of its log alone, so a start has three phases:

1. :func:`start`, once in a placement's life: it may begin with what a learner of a file knows;
2. :func:`opened`: the placement at its latest snapshot that the log bears out, or where its log begins. The
   configuration has to fit what the log says of its policy, seed and arms, and the *regime* that a rebuild
   or rollback began holds from its mark on;
3. :func:`fold`: the rows after the snapshot are taken in as they were when they came: decisions are recalled
   and not chosen anew, feedback teaches, marks change, and windows close by the log's time.

The same functions rebuild a placement into another policy (:mod:`tacit.service.engine.rebuilding`), follow a
log that another process writes, and verify one.
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
    """Return a placement at its latest snapshot, made in the store if it is new.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    store : Store
    new_seed : int
        Of a new placement, where the configuration has none.
    snapshot : bool
        Whether to begin at a snapshot, or where the log begins.
    as_if : Regime, optional
        A regime that the log does not have yet.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    StoreError
        If the store fails, or what the log begins with is damaged.
    """
    stored = store.placement(name, new_spec(config.policy), new_seed if config.seed is None else config.seed)
    marks = store.changes(stored.id)
    # The last regime holds, whatever is configured: a start must not undo a rebuild.
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
    # A log that is shorter than what was learned from it would be continued with numbers that were used
    # before.
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
    """Return placements that have taken in the whole log; those of a shard name decisions as it does."""
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
    """Let a placement that has decided nothing yet begin with the learner that is configured.

    What was learned is kept where the log begins, so that nobody reads the file again.

    Parameters
    ----------
    name, config, store, new_seed
        As for :func:`opened`.

    Raises
    ------
    ConfigError
        If the learner is not for the placement, or this has decided, or started, without it.
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
    """Return what the store keeps of a new placement's policy: with the rule by which feedback is learned."""
    return json.dumps({**policy_to_spec(policy), FEEDBACK_RULE: IN_ORDER})


def _has_begun(stored: StoredPlacement, marks: list[MarkRow], store: Store) -> bool:
    """Whether a placement has decided anything, or has a policy of its own."""
    begins = store.begins(stored.id)
    if (begins is not None and begins.seq) or regimes_of(marks):
        return True
    return bool(store.old(stored.id, EVER, EVER, 1).rows.decisions)


def _latest(name: str, stored: StoredPlacement, store: Store, end: int) -> Snapshot | None:
    """Return the latest snapshot of what is in the log; those of more are removed for good.

    The rows to come have the numbers of those that are missing, and would count as learned.
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
    """Take in, per placement, what the log holds after its snapshot; then let time go by to its
    end."""
    if not placements:
        return
    end = store.end()
    behind = min(placement.covered for placement in placements.values())
    take_in(placements, store.events(behind))
    for placement in placements.values():
        # Windows close by the time of the log's end, which rows of other placements may have set.
        placement.advance(end.time)


def take_in(placements: Mapping[int, Placement], events: Iterable[Event]) -> None:
    """Take in a stretch of the log, by placements of these ids."""
    for rows in stretches(events):
        id = rows.column("placement")[0]
        concerned = placements.values() if id is None else filter(None, [placements.get(id)])
        # Rows without a placement are ticks: time goes by for all of them.
        for placement in concerned:
            _take_in(placement, rows)


def _take_in(placement: Placement, rows: Block[Any]) -> None:
    # Snapshots differ in age: a stretch that is new to one placement may be known to another.
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
        # What closed before, by the rows of other placements too, teaches as those before did.
        until = block.column("time")[0] if closed is None else closed
        placement.advance(max(until, placement.windows.time))
        placement.sets_aside = closed is not None
        _take_part(placement, block)


def _take_part(placement: Placement, rows: Block[Any]) -> None:
    # As in a running service, windows that were due close before anything else happens.
    placement.advance(rows.column("time")[0])
    if rows.kind is DecisionRow:
        placement.learn_turns()
        placement.recall(rows)
    elif rows.kind is FeedbackRow:
        placement.take_in(rows)
    else:
        for mark in rows:
            placement.marked(mark)


# ---- Whether a placement's configuration fits what the store has of it


def as_stored(
    name: str,
    config: PlacementConfig,
    stored: StoredPlacement,
    rebuilt: Sequence[dict[str, Any]] = (),
    noted: str | None = None,
) -> PlacementConfig:
    """Return a placement's configuration with the policy and the seed that the store has of it.

    The policy may differ in defaults that an earlier version had; the recommended one gives way to
    the one that the store has. Where arms come and go, both policies get the arms that the
    placement began with; which arms are configured is compared apart. Where the log was folded into
    other policies since, the last one holds, whichever of them is configured, as long as that stays so.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
    rebuilt : sequence of dict
        The policies, as the log has them.
    noted : str, optional
        How it was configured, as :func:`settings_of` says it.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_stored(json.loads(stored.spec))
    if config.served_as.living:
        config = _as_begun(config, before)
    known = [before, *map(policy_from_stored, rebuilt)]
    # What is named anew in the file is meant; what a later version recommends is not.
    named_anew = noted is not None and policy_name(noted) != policy_name(settings_of(config))
    same = any(goes_on(config.policy, each) for each in (known[-1:] if named_anew else known))
    kinds = [type(getattr(policy, "policy", policy)) for policy in (config.policy, *known)]
    gives_way = config.recommended and not named_anew and kinds[0] not in kinds[1:]
    if not (same or ((gives_way or config.rebuild) and _for_same(config, before, config.rebuild))):
        field, then, now = _differing(known[-1], config.policy)
        # The log has what was shown then, and what the schema of then made of contexts.
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
    """Return which setting makes policies differ, and what it is for either, as short as it can be said."""
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
    """Return a configuration over the arms that its placement began with."""
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
    """Whether a policy is for the same arms, features and contexts as one before, and promises the same.

    One to which the log is folded anew may promise other shares, and read no numbers of a context.
    """
    asked, stored = (
        (getattr(policy, "arms", None), policy.feature_dims, policy.action_width, policy.schema)
        + (() if rebuild else (getattr(policy, "at_least", ()),))
        for policy in (config.policy, before)
    )
    return asked == stored and (not rebuild or config.policy.context_dim in (0, before.context_dim))
