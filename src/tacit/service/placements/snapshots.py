"""Snapshots of a placement: written in pieces, and restored at a start."""

# 1. ``make_fold_spec``: settings on which the fold depends; a snapshot with other settings is not used.
# 2. ``draft``: a copy of the state, encoded piece by piece while the placement continues.
# 3. ``open_placement``: a placement at its latest snapshot; the whole log is folded if that is damaged.
# 4. ``_begin_from_base``: the state at the log's beginning: after retention, from a file, or by a rollback.
# 5. ``_load``: a snapshot becomes the state of all parts.

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import msgspec
import numpy as np

from tacit.core.arrays import Ints, byte_count
from tacit.errors import InvalidValue, TacitError
from tacit.learning.columns import find_catalogue
from tacit.learning.delayed_feedback import NO_CLICK
from tacit.learning.learner import Learner, get_arrays, make_snapshot, restore_learner
from tacit.learning.snapshot import CopyBuffer, LearnerSnapshot, from_bytes, iter_pieces
from tacit.policies import policy_to_spec
from tacit.policies.spec import is_compatible
from tacit.service.config.file import list_differences, to_config_keys
from tacit.service.config.schema import PlacementConfig
from tacit.service.deciders.arm_lifecycle import match_arms
from tacit.service.deciders.aspect import SavedState
from tacit.service.deciders.open_decisions import ROW_COLUMNS, WINDOW_COLUMNS
from tacit.service.deciders.windows import AT_ONCE
from tacit.service.errors import StoreError
from tacit.service.log.change_events import PolicyVersion, StartFile, read_plan_start
from tacit.service.log.ids import as_text
from tacit.service.log.rows import any_control_policy, has_control_policy
from tacit.service.log.store import Draft, Snapshot, StoredPlacement
from tacit.service.placements.placement import Placement
from tacit.service.projections.series import Series

OPEN_BATCH = 500
MIN_WORKSPACE = 2**22
"""Size in bytes from which memory for a copy of the state is allocated ahead."""
PLAIN_FIELDS = WINDOW_COLUMNS + 2
"""Number of fields of a decision before its turn, which is a list in a snapshot of version 0.3."""
NO_TURN = [AT_ONCE, NO_CLICK, -1, -1, -1, -1, 0]
"""Turn and feedback in the learning order of a decision that was not in it."""
NOTHING_OPEN = b'"defaults":[],"open":[]}'

logger = logging.getLogger(__name__)

# ---- Snapshots are written


def make_fold_spec(placement: Placement) -> str:
    """Return the settings on which the fold of the log depends, as JSON.

    A snapshot with other settings is not used; the log is folded again.
    """
    config = placement.config
    rule = msgspec.to_builtins(config.rule)
    # Late rewards that are only recorded are never corrected, so the time for corrections has no effect.
    if rule["late"] == "record":
        del rule["correction"]
    # Newer settings are left out unless they are used: snapshots without them stay usable.
    spec = {
        "rule": rule,
        "shadow": config.shadow and policy_to_spec(config.shadow),
        "propensities": config.propensities,
        **({"spread": True} if config.spread else {}),
        **placement.shows.fold_settings,
    }
    if placement.policy_version is not None:
        spec["regime"] = placement.policy_version.seq
    if placement.start is not None:
        spec["start"] = msgspec.to_builtins(placement.start)
    if config.sticky is not None:
        spec["sticky"] = msgspec.to_builtins(config.sticky)
    if config.signals is not None:
        spec["signals"] = msgspec.to_builtins(config.signals)
    return json.dumps(spec, sort_keys=True)


def make_workspaces(placement: Placement) -> dict[str, CopyBuffer] | None:
    """Allocate memory for copies of the learners in the next draft; return it by the snapshot's field.

    None if the learners take less than ``MIN_WORKSPACE`` bytes.
    """
    states = {name: get_arrays(learner) for name, learner in _list_learners(placement).items()}
    if sum(map(byte_count, states.values())) < MIN_WORKSPACE:
        return None
    return {name: CopyBuffer(state) for name, state in states.items()}


def make_workspace(placement: Placement) -> CopyBuffer:
    """Allocate memory for a copy of a placement's learner."""
    return CopyBuffer(get_arrays(placement.learner))


def copy_learner(placement: Placement, workspace: CopyBuffer) -> LearnerSnapshot:
    """Return a copy of a placement's learner, in preallocated memory, for replicas and readers."""
    return _snapshot_learner(placement, placement.learner, workspace)


def draft(
    placement: Placement, seq: int, time: int, workspaces: Mapping[str, CopyBuffer] | None = None
) -> Draft:
    """Return a draft of a snapshot of the state after row ``seq`` of the log, logged at ``time``.

    The draft holds copies: it is encoded later, while the placement continues. Sets the placement's
    ``snapshot_after``, the number of events after which the next snapshot is due.
    """
    workspaces = workspaces or {}
    placement.snapshot_after = _compute_snapshot_after(placement)
    fields: dict[str, Any] = {}
    for name, aspect in placement.aspects.items():
        if name not in placement.added:
            fields |= aspect.save_state()
    if placement.added:
        fields["added"] = {name: aspect.save_state() for name, aspect in placement.added.items()}
    windows, results, counts = placement.windows, placement.results, placement.counts
    saved = SavedState(
        time=windows.time,
        decisions=counts.decisions,
        feedback=counts.feedback,
        outcomes=dict(counts.outcomes),
        counts=results.export_counts(),
        results=results.series.results.save_state(),
        **fields,
    )
    # Columns are copied now; rows are built later, when no request waits.
    extra_columns = partial(_list_extra_columns, placement)
    batches_by_field: dict[str, Iterable[list[Any]]] = {
        "defaults": map(pack_columns, windows.export_defaults(extra_columns)),
        "open": map(pack_columns, windows.export_open(extra_columns)),
    }
    if placement.sticky is not None:
        users = iter(placement.sticky.export_arms())
        batches = iter(lambda: list(islice(users, OPEN_BATCH)), [])
        batches_by_field = {"sticky": batches, **batches_by_field}
    learners = {
        name: _snapshot_learner(placement, learner, workspaces.get(name))
        for name, learner in _list_learners(placement).items()
    }
    pieces = _encode_pieces(learners, results.series.to_bytes(), saved, batches_by_field)
    return Draft(placement.id, seq, time, make_fold_spec(placement), pieces)


def draft_start(placement: Placement, start: StartFile, learner: Learner) -> Draft:
    """Set a new placement's learner to the one of a start file; return the draft of the log's base.

    Restarts of keys before the start do not count.
    """
    placement.start = start
    placement.policy.set_learner(learner, placement.lifecycle.initial_indices)
    placement.feedback_rule.begin_order()
    if placement.restarts:
        # Earlier restarts must not count as restarts of this placement.
        epochs = {key: learner.epoch(key) for key in learner.keys}
        placement.series.epochs = {key: epoch for key, epoch in epochs.items() if epoch}
        placement.series.restarts = sum(epochs.values())
    return draft(placement, seq=0, time=0)


def export_open_windows(placement: Placement) -> list[Any]:
    """Return the values of each open decision as JSON data, in the order of their windows."""
    pieces = placement.windows.export_open(partial(_list_extra_columns, placement))
    return [values for columns in pieces for values in zip(*columns, strict=True)]


def _compute_snapshot_after(placement: Placement) -> int:
    """Return the number of events after which the next snapshot is due, at least as many as are configured.

    It is the size of a snapshot now, its keys, open windows, sticky users and items, so that the total time
    of all snapshots is linear in the number of events.
    """
    items = find_catalogue(placement.learner) or ()
    users = 0 if placement.sticky is None else placement.sticky.count
    size = len(placement.learner) + len(placement.windows.open.by_id) + users + len(items)
    return max(placement.config.snapshot_every, size)


def _list_extra_columns(placement: Placement, entries: Ints) -> tuple[Ints | list[Any], ...]:
    """Return a snapshot's additional columns of open decisions: both policies' epochs, learning order."""
    secondary_epochs: list[int | None] = [None] * len(entries)
    if placement.secondary is not None:
        secondary_epochs = placement.secondary.list_epochs(entries)
    order = placement.windows.order
    turns = [] if order is None else order.export_entries(entries)
    return placement.policy.columns.epochs[entries], secondary_epochs, *turns


def _list_learners(placement: Placement) -> dict[str, Learner]:
    """Return the learners by the name of their field in a snapshot: "learner" and, if any, "shadow"."""
    return dict(zip(("learner", "shadow"), placement.learners, strict=False))


def _snapshot_learner(
    placement: Placement, learner: Learner, workspace: CopyBuffer | None = None
) -> LearnerSnapshot:
    """Return a copy of a learner's state, after resetting its random generator."""
    # Reset the generator: its state is not part of a snapshot.
    placement.policy.draws.begin(learner.rng, "")
    return make_snapshot(learner).copy(workspace)


# ---- Placements are restored


def open_placement(
    name: str,
    config: PlacementConfig,
    stored: StoredPlacement,
    snapshot: Snapshot | None = None,
    base: Snapshot | None = None,
    policy_version: PolicyVersion | None = None,
    origin: Snapshot | None = None,
) -> Placement:
    """Create a placement with the state of its latest snapshot, or of the beginning of its log.

    The rows of the log after that state are not applied yet: the caller folds them. The placement's loops are
    compiled.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        The placement's row in the store.
    snapshot : Snapshot, optional
        Latest snapshot; without one, or with one that cannot be loaded, the state is the beginning's.
    base : Snapshot, optional
        Snapshot at the beginning of the log, if older rows were dropped.
    policy_version : PolicyVersion, optional
        Current policy version, if the policy was replaced since the beginning.
    origin : Snapshot, optional
        State to which the placement was rolled back.

    Raises
    ------
    StoreError
        If the base is damaged.
    """
    placement = Placement(name, config, stored, policy_version)
    placement.start = None if base is None else read_plan_start(base.plan)
    if snapshot is not None and base is not None and snapshot.seq < base.seq:
        snapshot = None
    if snapshot is None or not _restore(placement, snapshot):
        _begin_from_base(placement, base, origin)
    placement.compile()
    return placement


def _begin_from_base(placement: Placement, base: Snapshot | None, origin: Snapshot | None) -> None:
    """Restore the state at the log's beginning (``base``), or the state of a rollback (``origin``).

    Without either, the placement stays as it is. A secondary policy that has changed since the base begins
    untrained. Raises StoreError if the base is damaged.
    """
    learner = None
    # A rollback's state that is not before the base has all that the base has.
    if base is None or (origin is not None and base.seq <= origin.seq):
        base = origin
    elif json.loads(base.plan).get("regime") != (placement.policy_version and placement.policy_version.seq):
        # The dropped rows were learned by another policy version ("regime"); this one cannot use them.
        learner = _make_initial_learner(placement, base, origin)
    if base is None:
        return
    try:
        _load(placement, base, learner)
    except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        raise make_base_error(placement.name, error) from error
    secondary = placement.secondary
    if (
        secondary is not None
        and json.loads(base.plan)["shadow"] != json.loads(make_fold_spec(placement))["shadow"]
    ):
        new = placement.make_secondary_learner()
        match_arms(new, placement.lifecycle.logged_arms)
        secondary.set_learner(new, placement.lifecycle.initial_indices)


def _make_initial_learner(placement: Placement, base: Snapshot, origin: Snapshot | None) -> Learner:
    """Return the learner with which a new policy version begins if older rows of the log were dropped.

    It is the learner of the start file or of ``origin``, or untrained; if untrained, a note in
    ``approximate`` says what is missing.

    Raises
    ------
    InvalidValue, StoreError
        If signals rest on dropped rows, or the state of a rollback is missing.
    """
    name, version = placement.name, placement.policy_version
    if not base.seq and (version is None or version.origin is None):
        return _make_start_learner(placement, base)
    if placement.signals is not None:
        raise InvalidValue(
            "placement", name, "its signals rest on rows that were dropped, and cannot be "
            "worked out for another policy; begin a placement of another name",
        )  # fmt: skip
    if origin is not None:
        return from_bytes(origin.learner, f"state of placement {name}", restore_learner)
    if version is not None and version.origin is not None:
        raise StoreError(
            f"store: placement {name}: the state that it has gone back to is missing; restore a backup"
        )
    saved = msgspec.json.decode(base.windows, type=SavedState)
    count = saved.decisions - sum(len(columns[0]) for columns in iterate_open_columns(saved.open))
    placement.approximate.append(
        f"what {count} decisions up to {as_text(base.time)} taught was folded away by "
        "retention: the new policy begins after them"
    )
    return Learner(placement.config.policy, placement.seed, propensities=placement.config.propensities)


def _make_start_learner(placement: Placement, base: Snapshot) -> Learner:
    """Return the start file's learner if the placement's policy is compatible with it, else an untrained one.

    In the latter case a note is added to ``approximate``.
    """
    learner = from_bytes(base.learner, f"start of placement {placement.name}", restore_learner)
    policy = placement.config.policy
    if is_compatible(policy, learner.policy):
        return learner
    placement.approximate.append(
        f"what {placement.start.file if placement.start else 'the start'} taught was for "
        f"{type(learner.policy).__name__}: the new policy begins without it"
    )
    return Learner(policy, placement.seed, propensities=placement.config.propensities)


def _restore(placement: Placement, snapshot: Snapshot) -> bool:
    """Set the placement's state from a snapshot; return False, with a warning logged, if it is unusable."""
    fold_spec = make_fold_spec(placement)
    if snapshot.plan != fold_spec:
        then, now = (to_config_keys(json.loads(plan)) for plan in (snapshot.plan, fold_spec))
        what = "; ".join(list_differences(f"placements.{placement.name}", then, now))
        logger.warning("%s; folding anew what the log holds", what)
        return False
    try:
        _load(placement, snapshot)
    except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        logger.warning("snapshot of placement %s: %s; replaying the whole log instead", placement.name, error)
        placement.begin()
        return False
    return True


def _load(placement: Placement, snapshot: Snapshot, learner: Learner | None = None) -> None:
    """Set the whole state from a snapshot: learners, aspects, series, counts and open decisions.

    Another learner, if given, takes the place of the saved one and gets its arms.
    """
    saved = msgspec.json.decode(snapshot.windows, type=SavedState)
    name, lifecycle, results = placement.name, placement.lifecycle, placement.results
    saved_learner = from_bytes(snapshot.learner, f"snapshot of placement {name}", restore_learner)
    # Arms first: everything else uses their indices.
    lifecycle.load_offer(saved_learner)
    lifecycle.restore(saved, snapshot)
    if learner is not None:
        match_arms(learner, lifecycle.logged_arms)
        # The catalogue does not depend on the policy.
        learner.catalogue = find_catalogue(saved_learner) or learner.catalogue
    placement.policy.set_learner(learner or saved_learner, lifecycle.initial_indices)
    placement.update_arms()
    if placement.secondary is not None and snapshot.shadow is not None:
        secondary = from_bytes(snapshot.shadow, f"snapshot of the shadow of {name}", restore_learner)
        placement.secondary.set_learner(secondary, lifecycle.initial_indices)
    results.series = Series.from_bytes(snapshot.series)
    placement.counts.decisions, placement.counts.feedback = saved.decisions, saved.feedback
    placement.counts.outcomes = Counter(saved.outcomes)
    # No window is open yet, so this only sets the time.
    placement.windows.advance(saved.time)
    results.restore_counts(saved.counts)
    results.series.results.restore(saved.results)
    for aspect in placement.aspects.values():
        aspect.restore(saved, snapshot)
    is_new_learner = learner is not None
    if is_new_learner:
        results.series.epochs = {}
    # Last, because open decisions are stored with data of the learner and the aspects.
    for pieces, defaulted in (saved.open, False), (saved.defaults, True):
        for columns in iterate_open_columns(pieces):
            _reopen(placement, columns, defaulted=defaulted, is_new_learner=is_new_learner)
    # The base of a start file has time 0.
    placement.snapshot_seq, placement.snapshot_time = snapshot.seq, snapshot.time or None
    placement.snapshot_after = _compute_snapshot_after(placement)
    placement.build_deciders()


def pack_columns(columns: Sequence[list[Any]]) -> list[Any]:
    """Return a piece of open decisions for JSON: their number, and columns; equal values are written once."""
    count = len(columns[0])
    return [[count, *(column[:1] if _is_constant(column) else column for column in columns)]]


def _is_constant(column: list[Any]) -> bool:
    """True if all values are the same text, whole number, or None."""
    return isinstance(column[0], str | int | None) and column.count(column[0]) == len(column)


def iterate_open_columns(saved: Sequence[msgspec.Raw]) -> Iterator[list[Any]]:
    """Yield the columns of the open decisions of a snapshot, piece by piece; the rows' columns are complete.

    Other columns of equal values may have only one.
    Snapshots of version 0.3 have a list for each decision.
    """
    # A piece at a time: the objects of all rows would fill the memory, not the processor's cache.
    if not saved or not bytes(saved[0]).startswith(b"[["):
        for piece in saved:
            count, *columns = msgspec.json.decode(piece)
            # Equal columns of equal values are one list.
            lists: dict[Any, list[Any]] = {}
            for i, column in enumerate(columns[:ROW_COLUMNS]):
                if len(column) < count:
                    columns[i] = lists.setdefault(repr(column), column * count)
            yield columns
        return
    for first in range(0, len(saved), OPEN_BATCH):
        decisions = msgspec.json.decode(b"[%b]" % b",".join(saved[first : first + OPEN_BATCH]))
        rows, *fields = zip(*decisions, strict=True)
        fields = [*zip(*rows, strict=True), *fields]
        # At most one such field, which its parts replace.
        for turns in fields[PLAIN_FIELDS:]:
            fields[PLAIN_FIELDS:] = zip(*(turn or NO_TURN for turn in turns), strict=True)
        yield list(map(list, fields))


def _reopen(
    placement: Placement, saved: Sequence[list[Any]], *, defaulted: bool, is_new_learner: bool
) -> None:
    """Open decisions of a snapshot again, from its columns, with the data that learning needs.

    ``defaulted`` decisions have closed with the default reward, and can only be corrected. With
    ``is_new_learner`` all get the new learner's current epochs.
    """
    windows, policy, secondary = placement.windows, placement.policy, placement.secondary
    entries, rows = windows.restore(saved, defaulted=defaulted)
    epochs, secondary_epochs, *turns = saved[WINDOW_COLUMNS:]
    if len(epochs) < len(rows):
        epochs *= len(rows)
    if is_new_learner:
        learner = policy.learner
        # Another learner restarts at other times: open decisions get its current epochs.
        epochs = [learner.epoch(key) if key in learner else 0 for key in rows.column("key")]
    by_control = None
    if any_control_policy(rows):
        by_control = np.array([bool(row.control) and has_control_policy(row) for row in rows], np.bool_)
    decisions = placement.learning.restore_decisions(rows, epochs)
    placement.learning.store(entries, rows, decisions, secondary=None, by_control=by_control)
    if turns and windows.order is not None:
        windows.order.reopen(entries, policy.columns.lanes[entries], turns, is_new_learner=is_new_learner)
    if secondary is None:
        return
    # One value stands for all rows if they are equal; None for a decision that it does not learn.
    for i, epoch in zip(range(len(rows)), cycle(secondary_epochs), strict=False):
        if epoch is not None:
            row = rows[i : i + 1]
            shows, decisions = placement.shows, [secondary.restore_open(row[0], epoch)]
            plain = shows.has_plain_offers(row)
            offers = None if plain else shows.describe_offers(decisions, row.column("shown"))
            secondary.keep(entries[i : i + 1], decisions, offers)


def make_base_error(name: str, error: Exception) -> StoreError:
    """Return the error for a damaged base of a placement's log, for the caller to raise."""
    return StoreError(
        f"store: placement {name}: what it had learned where its log begins is damaged: {error}; "
        "restore a backup"
    )


def _encode_pieces(
    learners: dict[str, LearnerSnapshot],
    series: bytes,
    saved: SavedState,
    batches_by_field: Mapping[str, Iterable[list[Any]]],
) -> Iterator[tuple[str, bytes]]:
    """Yield a snapshot as (field, bytes) pieces; encoding a whole field at once would delay requests."""
    for field, learner in learners.items():
        for piece in iter_pieces(learner):
            yield field, piece
    yield "series", series
    head = msgspec.json.encode(saved)
    assert head.endswith(NOTHING_OPEN)
    yield "windows", head.removesuffix(NOTHING_OPEN)
    # Each field's batches become one JSON list, so their own brackets are cut off.
    before = ""
    for field, batches in batches_by_field.items():
        begin = between = f'{before}"{field}":['.encode()
        for batch in batches:
            yield "windows", between + msgspec.json.encode(batch)[1:-1]
            between = b","
        if between is begin:  # there was no batch
            yield "windows", begin
        before = "],"
    yield "windows", b"]}"
