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
from tacit.lazy_imports import pause_collector
from tacit.policies import Policy, policy_to_spec
from tacit.policies.context import schema_text
from tacit.policies.spec import is_compatible, policy_from_stored
from tacit.service.config.file import encode_settings, get_policy_name, start_learner
from tacit.service.config.schema import PlacementConfig
from tacit.service.errors import Damaged, StoreError
from tacit.service.log.blocks import Block, split_distinct
from tacit.service.log.change_events import PolicyVersion, find_start, read_policy_versions
from tacit.service.log.ids import DecisionIdGenerator, Shard
from tacit.service.log.removal import find_old_rows
from tacit.service.log.rows import ChangeRow, DecisionRow, Event, FeedbackRow, split_into_blocks
from tacit.service.log.sql import Store, add_placements
from tacit.service.log.store import BASES, FEEDBACK_RULE, Snapshot, StoredPlacement
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import draft_start, make_base_error, open_placement
from tacit.service.projections.feedback_rule import IN_ORDER

EVER = 2**62
"""Later than any row number and any time of the log."""

logger = logging.getLogger(__name__)


def load_placement(
    name: str,
    config: PlacementConfig,
    store: Store,
    new_seed: int,
    *,
    snapshot: bool = True,
    as_if: PolicyVersion | None = None,
    end: int | None = None,
) -> Placement:
    """Return a placement at its latest snapshot, before the later rows are folded.

    A new placement is created in the store. Without a valid snapshot the placement is at its base, or at the
    beginning of its log.

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
    end : int, optional
        The log's last row; by default it is looked up.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    StoreError
        If the store fails, or the base of the log is damaged.
    """
    spec = to_spec(config.policy)
    stored = store.placement(name, spec, new_seed if config.seed is None else config.seed)
    changes = store.changes(stored.id)
    # The last policy version holds, whatever is configured: a start must not undo a rebuild.
    versions = read_policy_versions(changes)
    if as_if is not None:
        versions.append(as_if)
    version = versions[-1] if versions else None
    # The stored settings tell whether the file names another policy now; without a change nobody asks.
    is_unchanged = stored.spec == spec and not versions
    noted = None if is_unchanged else store.configurations(name)[name]
    config = with_stored_policy(name, config, stored, [version.policy for version in versions], noted)
    if version is not None:
        rebuilt = {**version.policy, FEEDBACK_RULE: stored.feedback_rule}
        stored = stored._replace(policy=version.number, spec=json.dumps(rebuilt))
    end = store.end().seq if end is None else end
    latest = _load_latest(name, stored, store, end) if snapshot else None
    try:
        base = store.snapshots.load_base(stored.id)
    except Damaged as error:
        raise make_base_error(name, error) from error
    # If the log were shorter than its base, new rows would get sequence numbers that were used before.
    if base is not None and base.seq > end:
        raise StoreError(
            f"store: placement {name}: its log begins with what was learned up to row {base.seq}, "
            f"but the log ends with row {end}: rows are missing; restore a backup"
        )
    origin = None
    # A verification without a base folds the whole log from its first row, and needs no stored state.
    if version is not None and version.origin is not None and (snapshot or base or as_if):
        try:
            origin = store.snapshots.load_state(stored.id, version.origin)
        except Damaged as error:
            remedy = f"this state is {error}; roll back to another one, or restore a backup"
            raise InvalidValue("to", version.state, remedy) from error
    placement = open_placement(name, config, stored, latest, base, version, origin)
    start_file = find_start(changes)
    if start_file is not None and base is None:
        raise StoreError(
            f"store: placement {name}: it started from {start_file.file}, and what that had learned is "
            "missing; restore a backup"
        )
    placement.start_logged = start_file is not None
    return placement


@pause_collector()
def load_placements(
    names: Sequence[str], configs: Mapping[str, PlacementConfig], store: Store, shard: Shard | None
) -> dict[str, Placement]:
    """Load placements and fold the whole log into them.

    Return them by name. New ones are created in the store.

    Configured start learners are stored as bases. In a shard, the placements get the shard's generator of
    ids.

    Raises
    ------
    ConfigError
        If a placement does not fit its state in the store, or has no room in memory.
    StoreError
        If the store fails.
    """
    for name in names:
        store_start_learner(name, configs[name], store, secrets.randbits(63))
    known, end = store.placements(), store.end().seq
    store.configurations()  # refuses damaged configurations, even unused ones
    new = {name: configs[name] for name in names if name not in known}
    loaded: dict[str, Placement] = {}
    for group in ([name for name in names if name in known], new):
        if group is new and new:
            # Stored together, after everything that may be refused.
            seeds = (secrets.randbits(63) if c.seed is None else c.seed for c in new.values())
            specs = (to_spec(config.policy) for config in new.values())
            add_placements(store, list(zip(new, specs, seeds, strict=True)))
        for name in group:
            try:
                # All are in the store now, with their seeds.
                loaded[name] = load_placement(name, configs[name], store, new_seed=0, end=end)
            except MemoryError as error:
                arms = configs[name].policy.arm_count
                raise ConfigError(
                    f"placements.{name}: what its policy learns of {arms:,} arms has no room in memory; "
                    "give fewer arms or numbers, or another policy"
                ) from error
    placements = {name: loaded[name] for name in names}
    fold({placement.id: placement for placement in placements.values()}, store)
    if shard is not None:
        for name, placement in placements.items():
            placement.new_ids = DecisionIdGenerator(name, shard, placement.config.spread)
    return placements


def store_start_learner(name: str, config: PlacementConfig, store: Store, new_seed: int) -> None:
    """Store the configured start learner of a placement as the base of its log; create the placement if new.

    Nothing happens without a configured start, or if it was stored before. Later starts of the service read
    the base and not the learner's file.

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
    changes = [] if stored is None else store.changes(stored.id)
    began, file = find_start(changes), Path(config.start).name
    if began is not None and began.file == file:
        return
    if began is not None or (stored is not None and _has_begun(stored, changes, store)):
        before = "nothing" if began is None else began.file
        raise ConfigError(
            f"placements.{name}.start: it has started from {before}, not from {file}; set that "
            "back, or give the placement a new name"
        )
    if stored is not None:
        config = with_stored_policy(name, config, stored)
    start_file, learner = start_learner(name, config)
    stored = store.placement(name, to_spec(learner.policy), new_seed if config.seed is None else config.seed)
    placement = open_placement(name, with_stored_policy(name, config, stored), stored)
    for _ in store.snapshots.save_in_steps(draft_start(placement, start_file, learner), BASES):
        pass


def to_spec(policy: Policy) -> str:
    """Return a new placement's policy, with the newest rule for learning feedback, as JSON for the store."""
    return json.dumps({**policy_to_spec(policy), FEEDBACK_RULE: IN_ORDER})


def _has_begun(stored: StoredPlacement, changes: list[ChangeRow], store: Store) -> bool:
    """True if a placement in the store has decisions, dropped rows or a policy version."""
    base_end = store.snapshots.find_base_end(stored.id)
    # A base at row 0 is a start learner; a later one means that older rows were dropped.
    if (base_end is not None and base_end.seq) or read_policy_versions(changes):
        return True
    return bool(find_old_rows(store, stored.id, EVER, EVER, limit=1).rows.decisions)


def _load_latest(name: str, stored: StoredPlacement, store: Store, end: int) -> Snapshot | None:
    """Return the latest snapshot; None, with a warning, if it is damaged, or if there is none.

    Snapshots and states beyond row ``end``, the last of the log, are deleted with a warning: new rows get the
    numbers of the missing rows, and would be taken for learned ones.
    """
    try:
        snapshot = store.snapshots.load(stored.id)
    except Damaged as error:
        logger.warning("snapshot of placement %s: %s; replaying the whole log instead", name, error)
        return None
    beyond = [state.seq for state in store.snapshots.list_states(stored.id) if state.seq > end]
    if snapshot is not None and snapshot.seq > end:
        beyond.append(snapshot.seq)
        snapshot = None
    if beyond:
        logger.warning(
            "placement %s: the log ends with row %d, before what was learned up to row %d: rows "
            "are missing; that is set aside, and the log folded anew",
            name,
            end,
            max(beyond),
        )
        store.snapshots.drop_later_states(stored.id, end)
    return snapshot


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Apply the rows of the log after each placement's snapshot, and close windows up to the last row's time.

    ``placements`` are by their number in the store; they change in place.
    """
    if not placements:
        return
    end = store.end()
    apply_rows(placements, store.events(min(placement.snapshot_seq for placement in placements.values())))
    for placement in placements.values():
        # Windows close by the time of the log's last row, which may be another placement's.
        placement.learning.advance(end.time)


def apply_rows(placements: Mapping[int, Placement], events: Iterable[Event]) -> None:
    """Apply consecutive rows of the log to placements, given by their number in the store, in place.

    Rows of other placements are ignored; ticks advance the time of all.
    """
    for rows in split_into_blocks(events):
        id = rows.column("placement")[0]
        # Rows without a placement are ticks: they advance all placements.
        concerned = placements.values() if id is None else filter(None, [placements.get(id)])
        for placement in concerned:
            _apply_block(placement, rows)


def _apply_block(placement: Placement, rows: Block[Any]) -> None:
    """Apply consecutive rows of one kind and placement, without the rows that its snapshot includes.

    Nothing is learned from rows that the current policy version skips, after rollbacks and rebuilds.
    """
    # Snapshots differ in age: some of the rows may be in this placement's snapshot.
    seqs = rows.column("seq")
    if seqs[-1] <= placement.snapshot_seq:
        return
    new_rows = rows[bisect_right(seqs, placement.snapshot_seq) :]
    policy_version = placement.policy_version
    if policy_version is None or not policy_version.aside:
        _apply_part(placement, new_rows)
        return
    # ``skip_time`` is None for rows that are learned.
    for skip_time, part in groupby(new_rows, lambda row: policy_version.find_skip_time(row.seq)):
        block = Block.from_rows(rows.kind, list(part))
        # Windows that closed before the skipped rows, also by rows of other placements, are learned.
        until = block.column("time")[0] if skip_time is None else skip_time
        placement.learning.advance(max(until, placement.windows.time))
        placement.learning.learns_nothing = skip_time is not None
        _apply_part(placement, block)


def _apply_part(placement: Placement, rows: Block[Any]) -> None:
    """Close the windows due by the first row's time, then apply rows of one kind to a placement.

    Decisions are recorded, feedback is learned, and change events are applied.
    """
    # The same order as in a running service.
    placement.learning.advance(rows.column("time")[0])
    if rows.kind is DecisionRow:
        # When it was made, a decision used all rewards whose turn in the learning order had come.
        placement.learning.learn_turns()
        placement.learning.recall(rows)
    elif rows.kind is FeedbackRow:
        # The compiled loop takes each decision once: a second row for it depends on the outcome of the first.
        for part in split_distinct(rows, "decision"):
            placement.learning.apply_feedback(part)
    else:
        for change in rows:
            placement.apply_change(change)


# ---- Does a placement's configuration fit the store?


def with_stored_policy(
    name: str,
    config: PlacementConfig,
    stored: StoredPlacement,
    rebuilt: Sequence[dict[str, Any]] = (),
    noted: str | None = None,
) -> PlacementConfig:
    """Return a placement's configuration with its stored policy and seed.

    Raise ConfigError if they do not fit.

    The configured policy may differ in defaults of an earlier version, and a recommended policy is replaced
    by the stored one. For placements with changing arms, both policies get the placement's first arms;
    configured arms are compared elsewhere. After rebuilds, the last policy holds, whichever of the
    placement's policies is configured, unless the configuration now names another one.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
    rebuilt : sequence of dict
        Policies of the policy versions in the log, as specifications.
    noted : str, optional
        The stored configuration, as :func:`encode_settings` returns it.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    # Most often nothing has changed since; to read a policy takes a quarter of a placement's start.
    unchanged = stored.spec == to_spec(config.policy)
    before = config.policy if unchanged else policy_from_stored(json.loads(stored.spec))
    if config.policy_kind.has_arm_lifecycle:
        config = _with_first_arms(config, before)
    policies = [before, *map(policy_from_stored, rebuilt)]
    # A policy that is newly named in the file is intended; one that a new version recommends is not.
    named_anew = noted is not None and get_policy_name(noted) != get_policy_name(encode_settings(config))
    is_same = any(
        is_compatible(config.policy, stored_policy)
        for stored_policy in (policies[-1:] if named_anew else policies)
    )
    # Of the configured policy first; of a policy within MinimumShares, its own class.
    classes = [type(getattr(policy, "policy", policy)) for policy in (config.policy, *policies)]
    # A recommended policy gives way to a stored one of another class; in the same class, a setting differs.
    gives_way = config.recommended and not named_anew and classes[0] not in classes[1:]
    if not (is_same or ((gives_way or config.rebuild) and _can_learn_log(config, before, config.rebuild))):
        field, then, now = _find_difference(policies[-1], config.policy)
        # A rebuild (True) cannot change the shown arms or the encoded contexts in the log.
        helps = (
            field in ("policy", "at_least") and not config.rebuild and _can_learn_log(config, before, True)
        )
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
    if not (config.recommended or config.rebuild or is_compatible(config.policy, policies[-1])):
        labels = name, policies[-1].label, config.policy.label
        logger.info("placements.%s.policy: %s, set by a request, goes on, not the configured %s", *labels)
    return msgspec.structs.replace(config, policy=policies[-1], seed=stored.seed)


def _find_difference(before: Policy, now: Policy) -> tuple[str, Any, Any]:
    """Return the first setting in which two policies differ, and its values in both, for a message."""
    settings: dict[str, Callable[[Policy], Any]] = {
        "kind": lambda policy: f"a policy of {policy.shows}s",
        "positions": lambda policy: policy.action_width,
        "at_least": lambda policy: dict(getattr(policy, "at_least", ())) or "no share promised",
        "context": lambda policy: schema_text(policy.schema) if policy.schema else "no context",
        "arms": lambda policy: getattr(policy, "arms", None),
        "metrics": lambda policy: f"rewards in {policy.reward_range.text}",
        "policy": lambda policy: policy.label,
    }
    values = ((field, read(before), read(now)) for field, read in settings.items())
    return next((value for value in values if value[1] != value[2]), ("policy", before, now))


def _with_first_arms(config: PlacementConfig, before: Policy) -> PlacementConfig:
    """Return a configuration whose policy and shadow have the arms of ``before``, the stored policy.

    It is returned unchanged if the policy cannot have these arms, or arms of this kind.
    """
    if type(config.policy.arms) is not type(before.arms):
        return config
    # The field ``arms`` keeps the configured ones, which are compared with the current ones later.
    with contextlib.suppress(InvalidValue):
        return msgspec.structs.replace(
            config,
            policy=config.policy.with_arms(before.arms),
            shadow=config.shadow and config.shadow.with_arms(before.arms),
            arms=config.config_arms,
        )
    return config


def _can_learn_log(config: PlacementConfig, before: Policy, rebuild: bool) -> bool:
    """True if a configured policy can learn from the log of ``before``, the stored policy.

    Arms, features, positions, context schema, range of rewards and minimum shares must be equal. For a
    rebuild, minimum shares may differ, and the policy may ignore contexts.
    """

    def list_fixed(policy: Policy) -> tuple[Any, ...]:
        """Return the properties of a policy that must be equal."""
        minimum_shares = () if rebuild else getattr(policy, "at_least", ())
        dims = policy.feature_dims, policy.action_width, policy.schema
        return getattr(policy, "arms", None), *dims, policy.reward_range, minimum_shares

    # Without a rebuild the stored policy decides, so the context of the configured one does not matter.
    fits_context = not rebuild or config.policy.context_dim in (0, before.context_dim)
    return fits_context and list_fixed(config.policy) == list_fixed(before)
