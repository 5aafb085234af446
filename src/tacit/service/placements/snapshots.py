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
from tacit.learning.learner import Learner, arrays_of, restored, snapshot_of
from tacit.learning.snapshot import CopyRoom, LearnerSnapshot, from_bytes, pieces
from tacit.policies import policy_to_spec
from tacit.policies.spec import goes_on
from tacit.service.config.file import by_key, changed
from tacit.service.errors import StoreError
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import Start
from tacit.service.log.ids import as_text
from tacit.service.log.rows import DecisionRow
from tacit.service.log.store import Draft, Snapshot
from tacit.service.placements.aspects.arm_lifecycle import fit
from tacit.service.placements.aspects.aspect import Saved
from tacit.service.placements.learning import Teaching
from tacit.service.placements.series import Series

OPEN_AT_ONCE = 500
LEAST_ROOM = 2**22
"""Size in bytes from which memory for a copy of the state is allocated ahead."""
WINDOW_FIELDS = 8
"""Number of fields of an open decision that describe its window; additional columns follow."""
NOTHING_OPEN = b'"defaults":[],"open":[]}'

logger = logging.getLogger(__name__)


class Saving(Teaching):
    """Writes and restores snapshots.

    Attributes
    ----------
    start : Start or None
        Start file of the placement.
    start_logged : bool
        Whether the log has its change event.
    """

    start: Start | None = None
    start_marked = False

    @property
    def fold_spec(self) -> str:
        """Settings on which the fold of the log depends, as JSON."""
        rule = msgspec.to_builtins(self.config.rule)
        if rule["late"] == "record":
            del rule["correction"]
        spec = {
            "rule": rule,
            "shadow": self.config.shadow and policy_to_spec(self.config.shadow),
            "propensities": self.config.propensities,
            **({"spread": True} if self.config.spread else {}),
            **self._own_fold_spec(),
        }
        if self.regime is not None:
            spec["regime"] = self.regime.seq
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
        return max(self.config.snapshot_every, self._held)

    @property
    def _size(self) -> int:
        """Size of a snapshot: number of keys, open windows and items."""
        items = self.learner.kept_items
        return len(self.learner) + len(self.windows) + (0 if items is None else len(items))

    def rooms(self) -> dict[str, CopyRoom] | None:
        """Return memory for the copies of the next draft, by field; None if the state is small."""
        states = {name: arrays_of(learner) for name, learner in self._by_field.items()}
        if sum(map(byte_count, states.values())) < LEAST_ROOM:
            return None
        return {name: CopyRoom(state) for name, state in states.items()}

    def room(self) -> CopyRoom:
        """Return memory for a copy of the learner."""
        return CopyRoom(arrays_of(self.learner))

    def copied(self, room: CopyRoom) -> LearnerSnapshot:
        """Return a copy of the learner, in memory of :meth:`make_workspace`, for replicas and readers."""
        return self._frozen(self.learner, room)

    def draft(self, seq: int, time: int, rooms: Mapping[str, CopyRoom] | None = None) -> Draft:
        """Return a draft of a snapshot, after the log up to ``seq``, its last row.

        It is a copy, so that it can be encoded while the placement continues.
        """
        rooms = rooms or {}
        # The next snapshot is due after as many events as this one is large.
        self._held = self._size
        fields: dict[str, Any] = {}
        for aspect in self.aspects.values():
            fields |= aspect.saved(self.here)
        saved = Saved(
            time=self.windows.time,
            decisions=self.decisions,
            feedback=self.feedback,
            outcomes=dict(self.outcomes),
            counts=self.counts(),
            results=self.series.results.saved(),
            **fields,
        )
        # Columns are copied now; rows are built later, when no request waits.
        known = self.windows.saved_defaults(self._columns_beside), self.windows.saved(self._columns_beside)
        learners = {name: self._frozen(each, rooms.get(name)) for name, each in self._by_field.items()}
        series = self.series.to_bytes()
        return Draft(self.id, seq, time, self.fold_spec, _pieces(learners, series, saved, known))

    def started(self, start: Start, learner: Learner) -> Draft:
        """Start a new placement with a learner from a file; return the draft of its base."""
        self.start, self.learner = start, learner
        self.windows.order = self.feedback_rule.order(self.here)
        if self.restarts:
            # Earlier restarts must not count as restarts of this placement.
            epochs = {key: learner.epoch(key) for key in learner.keys}
            self.series.epochs = {key: epoch for key, epoch in epochs.items() if epoch}
            self.series.restarts = sum(epochs.values())
        return self.draft(0, 0)

    def open_windows(self) -> list[Any]:
        """Return the open decisions as JSON data, in the order of their windows."""
        return list(self.windows.saved(self._columns_beside))

    def _columns_beside(self, entries: Ints) -> tuple[Ints | list[Any], ...]:
        """Return additional columns of open decisions: the epochs of both policies, and the turns."""
        of_second: list[int | None] = [None] * len(entries)
        if self.second is not None:
            of_second = list(self.second.epochs(entries))
        turns = self.windows.saved_turns(entries)
        return self.open.epochs(entries), of_second, *([] if turns is None else [turns])

    @property
    def _by_field(self) -> dict[str, Learner]:
        """The learners by their field of a snapshot."""
        return dict(zip(("learner", "shadow"), self.learners, strict=False))

    def _frozen(self, learner: Learner, room: CopyRoom | None = None) -> LearnerSnapshot:
        # Reset the generator: its state is not part of a snapshot.
        self.draws.begin(learner.rng, "")
        return snapshot_of(learner).copied(room)

    def _rest_on(self, base: Snapshot | None, origin: Snapshot | None) -> None:
        """Restore the state at the log's beginning, or the state to which the placement was rolled back."""
        learner = None
        if base is None or (origin is not None and base.seq <= origin.seq):
            base = origin
        elif self._regime_of(base) != self._regime:
            # The dropped rows were learned by another policy version; this one cannot use them.
            learner = self._without_base(base, origin)
        if base is None:
            return
        try:
            self._take(base, learner)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            raise damaged_base(self.name, error) from error
        if json.loads(base.plan)["shadow"] != json.loads(self.fold_spec)["shadow"]:
            self.second = self._second_anew()
            if self.second is not None:
                fit(self.second.learner, self.living.now)

    @property
    def _regime(self) -> int | None:
        return None if self.regime is None else self.regime.seq

    @staticmethod
    def _regime_of(snapshot: Snapshot) -> int | None:
        regime: int | None = json.loads(snapshot.plan).get("regime")
        return regime

    def _without_base(self, base: Snapshot, origin: Snapshot | None) -> Learner:
        """Return the initial learner if the base of the log is of another policy version."""
        if not base.seq and (self.regime is None or self.regime.origin is None):
            return self._started_otherwise(base)
        if self.signals is not None:
            raise InvalidValue(
                "placement", self.name, "its signals rest on rows that were dropped, and cannot be "
                "worked out for another policy; begin a placement of another name",
            )  # fmt: skip
        if origin is not None:
            return from_bytes(origin.learner, f"state of placement {self.name}", restored)
        if self.regime is not None and self.regime.origin is not None:
            raise StoreError(
                f"store: placement {self.name}: the state that it has gone back to is missing; "
                "restore a backup"
            )
        saved = msgspec.json.decode(base.windows, type=Saved)
        count = saved.decisions - len(saved.open)
        self.approximate.append(
            f"what {count} decisions up to {as_text(base.time)} taught was folded away by "
            "retention: the new policy begins after them"
        )
        config = self.config
        return Learner(config.policy, self.seed, propensities=config.propensities)

    def _started_otherwise(self, base: Snapshot) -> Learner:
        """Return the initial learner of a rebuilt policy: from the start file if it is compatible."""
        learner = from_bytes(base.learner, f"start of placement {self.name}", restored)
        policy = self.config.policy
        if goes_on(policy, learner.policy):
            return learner
        self.approximate.append(
            f"what {self.start.file if self.start else 'the start'} taught was for "
            f"{type(learner.policy).__name__}: the new policy begins without it"
        )
        return Learner(policy, self.seed, propensities=self.config.propensities)

    def _restored(self, snapshot: Snapshot) -> bool:
        """Restore a snapshot; return False if it is unusable."""
        if snapshot.plan != self.fold_spec:
            then, now = (by_key(json.loads(plan)) for plan in (snapshot.plan, self.fold_spec))
            what = "; ".join(changed(f"placements.{self.name}", then, now))
            logger.warning("%s; folding anew what the log holds", what)
            return False
        try:
            self._take(snapshot)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            logger.warning("snapshot of placement %s: %s; replaying the whole log instead", self.name, error)
            self._begin()
            return False
        return True

    def _take(self, snapshot: Snapshot, learner: Learner | None = None) -> None:
        """Load the state of a snapshot, with another learner if one is given."""
        saved = msgspec.json.decode(snapshot.windows, type=Saved)
        self.learner = from_bytes(snapshot.learner, f"snapshot of placement {self.name}", restored)
        # Arms first: everything else uses their indices.
        self.living.restore(self.here, saved, snapshot)
        if learner is not None:
            fit(learner, self.living.now)
            # The catalogue does not depend on the policy.
            learner.kept_items = self.learner.kept_items
            self.learner = learner
        self.name_arms()
        self._open_none()
        if self.second is not None and snapshot.shadow is not None:
            second = from_bytes(snapshot.shadow, f"snapshot of the shadow of {self.name}", restored)
            self.second.go_on(second, self.living.first)
        self.series = Series.from_bytes(snapshot.series)
        self.decisions, self.feedback = saved.decisions, saved.feedback
        self.outcomes = Counter(saved.outcomes)
        # No window is open yet, so this only sets the time.
        self.windows.advance(saved.time)
        self._take_counts(saved.counts)
        self.series.results.restore(saved.results)
        for aspect in self.aspects.values():
            aspect.restore(self.here, saved, snapshot)
        if learner is not None:
            self.series.epochs = {}
        anew = learner is not None
        # Last, because open decisions are stored with data of the learner and the aspects.
        self._reopen(saved.open, defaulted=False, anew=anew)
        self._reopen(saved.defaults, defaulted=True, anew=anew)
        # The base of a start file has time 0.
        self.covered, self.snapshot_time = snapshot.seq, snapshot.time or None
        self._held = self._size

    def _reopen(self, saved: Sequence[tuple[Any, ...]], *, defaulted: bool, anew: bool) -> None:
        """Restore open decisions of a snapshot; with ``is_new_learner``, in the epochs of a new learner."""
        if not saved:
            return
        entries = self.windows.restore(saved, defaulted=defaulted)
        rows: Block[DecisionRow] = Block.of(DecisionRow, self.windows.rows(entries))
        epochs, second_epochs, *turns = list(zip(*saved, strict=True))[WINDOW_FIELDS:]
        if anew:
            known, epoch = self.learner.__contains__, self.learner.epoch
            # Another learner restarts at other times: open decisions get its current epochs.
            epochs = tuple(epoch(key) if known(key) else 0 for key in rows.column("key"))
        self._keep(entries, rows, self._recalled_many(rows, epochs), None)
        if turns and not defaulted:
            self.windows.reopen_turns(entries, self.open.lanes(entries), turns[0], anew=anew)
        for i, epoch in enumerate(second_epochs):
            if epoch is not None and self.second is not None:
                row = rows[i : i + 1]
                decision = self.second.reopened(self.here, rows[i], epoch)
                self.second.keep(entries[i : i + 1], decision, plain=self._offers_all(row))


def damaged_base(name: str, error: Exception) -> StoreError:
    """Return the error for a damaged base of a placement's log."""
    return StoreError(
        f"store: placement {name}: what it had learned where its log begins is damaged: {error}; "
        "restore a backup"
    )


def _pieces(
    learners: dict[str, LearnerSnapshot],
    series: bytes,
    saved: Saved,
    known: tuple[Iterator[tuple[Any, ...]], ...],
) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a snapshot in pieces, because encoding a whole field would block requests."""
    for field, learner in learners.items():
        for piece in pieces(learner):
            yield field, piece
    yield "series", series
    head = msgspec.json.encode(saved)
    assert head.endswith(NOTHING_OPEN)
    yield "windows", head.removesuffix(NOTHING_OPEN)
    for name, opens in zip((b'"defaults":[', b'],"open":['), known, strict=True):
        between = name
        while batch := list(islice(opens, OPEN_AT_ONCE)):
            yield "windows", between + msgspec.json.encode(batch)[1:-1]
            between = b","
        if between is name:
            yield "windows", name
    yield "windows", b"]}"
