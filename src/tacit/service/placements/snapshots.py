"""Snapshots of a placement: written in pieces, and restored at a start."""

# 1. ``fold_spec``: settings on which the fold depends; a snapshot with other settings is not used.
# 2. ``draft``: a copy of the state, encoded piece by piece while the placement continues.
# 3. ``_begin_from_base``: the state at the log's beginning: after retention, from a file, or by a rollback.
# 4. ``_restore_snapshot``, ``_load_snapshot``: the latest snapshot; the whole log is folded if it is damaged.

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from tacit.core.arrays import Ints, byte_count
from tacit.errors import InvalidValue, TacitError
from tacit.learning.learner import Learner, get_arrays, make_snapshot, restore_learner
from tacit.learning.snapshot import CopyBuffer, LearnerSnapshot, from_bytes, iter_pieces
from tacit.policies import policy_to_spec
from tacit.policies.spec import is_compatible
from tacit.service.config.file import list_differences, to_config_keys
from tacit.service.errors import StoreError
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import StartFile
from tacit.service.log.ids import as_text
from tacit.service.log.rows import DecisionRow
from tacit.service.log.store import Draft, Snapshot
from tacit.service.placements.aspects.arm_lifecycle import match_arms
from tacit.service.placements.aspects.aspect import SavedState
from tacit.service.placements.learning import PlacementLearning
from tacit.service.placements.series import Series

OPEN_BATCH = 500
MIN_WORKSPACE = 2**22
"""Size in bytes from which memory for a copy of the state is allocated ahead."""
WINDOW_FIELDS = 8
"""Number of fields of an open decision that describe its window; additional columns follow."""
NOTHING_OPEN = b'"defaults":[],"open":[]}'

logger = logging.getLogger(__name__)


class PlacementSnapshots(PlacementLearning):
    """Writes and restores snapshots.

    Attributes
    ----------
    start : StartFile or None
        Start file of the placement.
    start_logged : bool
        Whether the log has its change event.
    """

    start: StartFile | None = None
    start_logged = False

    @property
    def fold_spec(self) -> str:
        """Settings on which the fold of the log depends, as JSON text; a snapshot with others is not used."""
        rule = msgspec.to_builtins(self.config.rule)
        if rule["late"] == "record":
            del rule["correction"]
        spec = {
            "rule": rule,
            "shadow": self.config.shadow and policy_to_spec(self.config.shadow),
            "propensities": self.config.propensities,
            **({"spread": True} if self.config.spread else {}),
            **self._extra_fold_spec(),
        }
        if self.policy_version is not None:
            spec["regime"] = self.policy_version.seq
        if self.start is not None:
            spec["start"] = msgspec.to_builtins(self.start)
        if self.config.signals is not None:
            spec["signals"] = msgspec.to_builtins(self.config.signals)
        return json.dumps(spec, sort_keys=True)

    @property
    def snapshot_after(self) -> int:
        """Number of events after which the next snapshot is due.

        It grows with the size of the last snapshot, so that the total time of all snapshots is linear in the
        number of events.
        """
        return max(self.config.snapshot_every, self._snapshot_size)

    @property
    def _size(self) -> int:
        """Size of a snapshot: number of keys, open windows and items."""
        items = self.learner.items_or_none
        return len(self.learner) + len(self.windows) + (0 if items is None else len(items))

    def make_workspaces(self) -> dict[str, CopyBuffer] | None:
        """Allocate memory for the copies of learners in the next draft, by field; None if they are small."""
        states = {name: get_arrays(learner) for name, learner in self._learners_by_field.items()}
        if sum(map(byte_count, states.values())) < MIN_WORKSPACE:
            return None
        return {name: CopyBuffer(state) for name, state in states.items()}

    def make_workspace(self) -> CopyBuffer:
        """Allocate memory for a copy of the learner."""
        return CopyBuffer(get_arrays(self.learner))

    def copy_learner(self, workspace: CopyBuffer) -> LearnerSnapshot:
        """Return a copy of the learner, in memory of :meth:`make_workspace`, for replicas and readers."""
        return self._snapshot_learner(self.learner, workspace)

    def draft(self, seq: int, time: int, workspaces: Mapping[str, CopyBuffer] | None = None) -> Draft:
        """Return a draft of a snapshot, after the log up to ``seq``, its last row, at ``time``.

        It holds copies, so that it can be encoded while the placement continues. The size is noted: it
        determines when the next snapshot is due.
        """
        workspaces = workspaces or {}
        # The next snapshot is due after as many events as this one is large.
        self._snapshot_size = self._size
        fields: dict[str, Any] = {}
        for aspect in self.aspects.values():
            fields |= aspect.save_state(self.as_placement)
        saved = SavedState(
            time=self.windows.time,
            decisions=self.decisions,
            feedback=self.feedback,
            outcomes=dict(self.outcomes),
            counts=self.export_counts(),
            results=self.series.results.save_state(),
            **fields,
        )
        # Columns are copied now; rows are built later, when no request waits.
        open_rows = (
            self.windows.export_defaults(self._extra_columns),
            self.windows.export_open(self._extra_columns),
        )
        learners = {
            name: self._snapshot_learner(learner, workspaces.get(name))
            for name, learner in self._learners_by_field.items()
        }
        series = self.series.to_bytes()
        return Draft(self.id, seq, time, self.fold_spec, _encode_pieces(learners, series, saved, open_rows))

    def draft_start(self, start: StartFile, learner: Learner) -> Draft:
        """Replace the learner of a new placement by one from a start file; return the draft of its base."""
        self.start, self.learner = start, learner
        self.windows.order = self.feedback_rule.order(self.as_placement)
        if self.restarts:
            # Earlier restarts must not count as restarts of this placement.
            epochs = {key: learner.epoch(key) for key in learner.keys}
            self.series.epochs = {key: epoch for key, epoch in epochs.items() if epoch}
            self.series.restarts = sum(epochs.values())
        return self.draft(0, 0)

    def export_open_windows(self) -> list[Any]:
        """Return the open decisions as JSON data, in the order of their windows."""
        return list(self.windows.export_open(self._extra_columns))

    def _extra_columns(self, entries: Ints) -> tuple[Ints | list[Any], ...]:
        """Return additional columns of open decisions: the epochs of both policies, and the turns."""
        secondary_epochs: list[int | None] = [None] * len(entries)
        if self.secondary is not None:
            secondary_epochs = list(self.secondary.epochs(entries))
        turns = self.windows.export_turns(entries)
        return self.open.epochs(entries), secondary_epochs, *([] if turns is None else [turns])

    @property
    def _learners_by_field(self) -> dict[str, Learner]:
        """The learners by their field of a snapshot."""
        return dict(zip(("learner", "shadow"), self.learners, strict=False))

    def _snapshot_learner(self, learner: Learner, workspace: CopyBuffer | None = None) -> LearnerSnapshot:
        """Return a copy of a learner's state, after resetting its random generator."""
        # Reset the generator: its state is not part of a snapshot.
        self.draws.begin(learner.rng, "")
        return make_snapshot(learner).copy(workspace)

    def _begin_from_base(self, base: Snapshot | None, origin: Snapshot | None) -> None:
        """Restore the state at the log's beginning, or the state to which the placement was rolled back.

        Nothing happens without either. Raises StoreError if it is damaged.
        """
        learner = None
        if base is None or (origin is not None and base.seq <= origin.seq):
            base = origin
        elif self._read_policy_version(base) != self._policy_version_seq:
            # The dropped rows were learned by another policy version; this one cannot use them.
            learner = self._make_initial_learner(base, origin)
        if base is None:
            return
        try:
            self._load_snapshot(base, learner)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            raise make_base_error(self.name, error) from error
        if json.loads(base.plan)["shadow"] != json.loads(self.fold_spec)["shadow"]:
            self.secondary = self._new_secondary()
            if self.secondary is not None:
                match_arms(self.secondary.learner, self.lifecycle.logged_arms)

    @property
    def _policy_version_seq(self) -> int | None:
        """Row of the log at which the current policy version began; None for the first policy."""
        return None if self.policy_version is None else self.policy_version.seq

    @staticmethod
    def _read_policy_version(snapshot: Snapshot) -> int | None:
        """Return the row at which the snapshot's policy version began; None for the first policy."""
        seq: int | None = json.loads(snapshot.plan).get("regime")
        return seq

    def _make_initial_learner(self, base: Snapshot, origin: Snapshot | None) -> Learner:
        """Return the initial learner if the base of the log is of another policy version.

        It comes from the start file or from ``origin``, or is untrained; then ``approximate`` gets a note.

        Raises
        ------
        InvalidValue, StoreError
            If signals rest on dropped rows, or the state of a rollback is missing.
        """
        if not base.seq and (self.policy_version is None or self.policy_version.origin is None):
            return self._make_start_learner(base)
        if self.signals is not None:
            raise InvalidValue(
                "placement", self.name, "its signals rest on rows that were dropped, and cannot be "
                "worked out for another policy; begin a placement of another name",
            )  # fmt: skip
        if origin is not None:
            return from_bytes(origin.learner, f"state of placement {self.name}", restore_learner)
        if self.policy_version is not None and self.policy_version.origin is not None:
            raise StoreError(
                f"store: placement {self.name}: the state that it has gone back to is missing; "
                "restore a backup"
            )
        saved = msgspec.json.decode(base.windows, type=SavedState)
        count = saved.decisions - len(saved.open)
        self.approximate.append(
            f"what {count} decisions up to {as_text(base.time)} taught was folded away by "
            "retention: the new policy begins after them"
        )
        config = self.config
        return Learner(config.policy, self.seed, propensities=config.propensities)

    def _make_start_learner(self, base: Snapshot) -> Learner:
        """Return the initial learner of a rebuilt policy: from the start file if it is compatible.

        Otherwise it is untrained, and a note is added to ``approximate``.
        """
        learner = from_bytes(base.learner, f"start of placement {self.name}", restore_learner)
        policy = self.config.policy
        if is_compatible(policy, learner.policy):
            return learner
        self.approximate.append(
            f"what {self.start.file if self.start else 'the start'} taught was for "
            f"{type(learner.policy).__name__}: the new policy begins without it"
        )
        return Learner(policy, self.seed, propensities=self.config.propensities)

    def _restore_snapshot(self, snapshot: Snapshot) -> bool:
        """Restore a snapshot; return False, with a warning in the log of the process, if it is unusable."""
        if snapshot.plan != self.fold_spec:
            then, now = (to_config_keys(json.loads(plan)) for plan in (snapshot.plan, self.fold_spec))
            what = "; ".join(list_differences(f"placements.{self.name}", then, now))
            logger.warning("%s; folding anew what the log holds", what)
            return False
        try:
            self._load_snapshot(snapshot)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            logger.warning("snapshot of placement %s: %s; replaying the whole log instead", self.name, error)
            self._begin()
            return False
        return True

    def _load_snapshot(self, snapshot: Snapshot, learner: Learner | None = None) -> None:
        """Set the whole state from a snapshot: learners, aspects, series, counts and open decisions.

        Another learner, if given, takes the place of the saved one and gets its arms.
        """
        saved = msgspec.json.decode(snapshot.windows, type=SavedState)
        self.learner = from_bytes(snapshot.learner, f"snapshot of placement {self.name}", restore_learner)
        # Arms first: everything else uses their indices.
        self.lifecycle.restore(self.as_placement, saved, snapshot)
        if learner is not None:
            match_arms(learner, self.lifecycle.logged_arms)
            # The catalogue does not depend on the policy.
            learner.items_or_none = self.learner.items_or_none
            self.learner = learner
        self.update_arms()
        self._reset_open()
        if self.secondary is not None and snapshot.shadow is not None:
            secondary_learner = from_bytes(
                snapshot.shadow, f"snapshot of the shadow of {self.name}", restore_learner
            )
            self.secondary.set_learner(secondary_learner, self.lifecycle.initial_indices)
        self.series = Series.from_bytes(snapshot.series)
        self.decisions, self.feedback = saved.decisions, saved.feedback
        self.outcomes = Counter(saved.outcomes)
        # No window is open yet, so this only sets the time.
        self.windows.advance(saved.time)
        self._restore_counts(saved.counts)
        self.series.results.restore(saved.results)
        for aspect in self.aspects.values():
            aspect.restore(self.as_placement, saved, snapshot)
        if learner is not None:
            self.series.epochs = {}
        is_new_learner = learner is not None
        # Last, because open decisions are stored with data of the learner and the aspects.
        self._reopen(saved.open, defaulted=False, is_new_learner=is_new_learner)
        self._reopen(saved.defaults, defaulted=True, is_new_learner=is_new_learner)
        # The base of a start file has time 0.
        self.snapshot_seq, self.snapshot_time = snapshot.seq, snapshot.time or None
        self._snapshot_size = self._size

    def _reopen(self, saved: Sequence[tuple[Any, ...]], *, defaulted: bool, is_new_learner: bool) -> None:
        """Restore open decisions of a snapshot; ``defaulted`` ones can only be corrected.

        With ``is_new_learner`` they get the current epochs of the new learner.
        """
        if not saved:
            return
        entries = self.windows.restore(saved, defaulted=defaulted)
        rows: Block[DecisionRow] = Block.from_rows(DecisionRow, self.windows.rows(entries))
        epochs, second_epochs, *turns = list(zip(*saved, strict=True))[WINDOW_FIELDS:]
        if is_new_learner:
            has_key, epoch = self.learner.__contains__, self.learner.epoch
            # Another learner restarts at other times: open decisions get its current epochs.
            epochs = tuple(epoch(key) if has_key(key) else 0 for key in rows.column("key"))
        self._store_open(entries, rows, self._restore_decisions(rows, epochs), None)
        if turns and not defaulted:
            self.windows.reopen_turns(
                entries, self.open.lanes(entries), turns[0], is_new_learner=is_new_learner
            )
        for i, epoch in enumerate(second_epochs):
            if epoch is not None and self.secondary is not None:
                row = rows[i : i + 1]
                decision = self.secondary.restore_open(self.as_placement, rows[i], epoch)
                self.secondary.keep(entries[i : i + 1], decision, plain=self._has_plain_offers(row))


def make_base_error(name: str, error: Exception) -> StoreError:
    """Return (not raise) the error for a damaged base of a placement's log."""
    return StoreError(
        f"store: placement {name}: what it had learned where its log begins is damaged: {error}; "
        "restore a backup"
    )


def _encode_pieces(
    learners: dict[str, LearnerSnapshot],
    series: bytes,
    saved: SavedState,
    open_rows: tuple[Iterator[tuple[Any, ...]], ...],
) -> Iterator[tuple[str, bytes]]:
    """Yield a snapshot as (field, bytes) pieces, because encoding a whole field would block requests."""
    for field, learner in learners.items():
        for piece in iter_pieces(learner):
            yield field, piece
    yield "series", series
    head = msgspec.json.encode(saved)
    assert head.endswith(NOTHING_OPEN)
    yield "windows", head.removesuffix(NOTHING_OPEN)
    for name, opens in zip((b'"defaults":[', b'],"open":['), open_rows, strict=True):
        between = name
        while batch := list(islice(opens, OPEN_BATCH)):
            yield "windows", between + msgspec.json.encode(batch)[1:-1]
            between = b","
        if between is name:
            yield "windows", name
    yield "windows", b"]}"
