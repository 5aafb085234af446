"""The arms that users keep, for placements that show them again: a fold of the decisions in the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.config.schema import StickyConfig
from tacit.service.deciders.aspect import SavedState
from tacit.service.deciders.sticky import KeptArm, read_user
from tacit.service.log.blocks import Block
from tacit.service.log.rows import ACTIVATE, FROZEN, HOLDOUT, ONLINE, ChangeRow, DecisionRow, FeedbackRow
from tacit.service.log.store import Snapshot
from tacit.service.projections.attribution import NOTED
from tacit.service.projections.projection import Projection

MOST_KEPT = 1_000_000
"""Users, each with a key, whose arms are kept; of more, those drawn first are forgotten."""
REASON_NOT_LOCAL = "only the service knows the arms that users keep"


class StickyUsers(Projection):
    """The arm that each user keeps for a key.

    An arm is kept for as long as the configuration says, or until it goes, the holdout changes, or the user
    is forgotten. Not kept are arms of requests without a user, pinned arms, and arms of the mode ``control``.

    Parameters
    ----------
    config : StickyConfig
    """

    def __init__(self, config: StickyConfig) -> None:
        self._lifetime = config.lifetime
        self._arms: dict[tuple[str, str], KeptArm] = {}
        # Decisions that may still be activated, by their row.
        self._unlearned: dict[int, tuple[str, str]] = {}

    @property
    def count(self) -> int:
        """Number of pairs of a user and a key with a kept arm."""
        return len(self._arms)

    def find(self, key: str, user: str, time: int, offered: Collection[Arm]) -> KeptArm | None:
        """Return the arm that a user keeps for a key.

        None if there is none, it has expired or is not on offer.
        """
        entry = self._arms.get((key, user))
        if entry is None or self._has_expired(entry, time) or entry.arm not in offered:
            return None
        return entry

    def _has_expired(self, entry: KeptArm, time: int) -> bool:
        """True if a kept arm has reached its lifetime at a time."""
        return self._lifetime is not None and time >= entry.time + self._lifetime

    # Decisions and activations ---------------------------------------------------------------

    def add_decisions(self, rows: Block[DecisionRow]) -> None:
        """Keep the arms of decisions with a user, and note whether the policy learns from each decision.

        Only the modes ``online`` and ``frozen`` keep arms. Expired arms are dropped.
        """
        if not any(rows.column("asked")):
            return
        names = "seq", "key", "asked", "arm", "propensity", "time", "mode", "deferred"
        for seq, key, asked, arm, propensity, time, mode, deferred in zip(
            *map(rows.column, names), strict=True
        ):
            user = read_user(asked)
            if user is None or mode not in (ONLINE, FROZEN):
                continue
            is_learned = mode == ONLINE and not deferred
            entry = self._arms.get((key, user))
            if entry is not None:
                self._unlearned.pop(entry.seq, None)
            # A kept arm that was learned is shown again in the mode ``kept``: here another one was drawn.
            if entry is None or self._has_expired(entry, time) or entry.is_learned or entry.arm != arm:
                # At the end: arms are in the order of their draws.
                self._arms.pop((key, user), None)
                entry = KeptArm(arm, propensity, time, seq, is_learned)
            self._arms[key, user] = entry._replace(seq=seq, is_learned=is_learned)
            if not is_learned:
                self._unlearned[seq] = key, user
            self._drop_old(time)

    def _drop_old(self, time: int) -> None:
        """Forget expired arms, and the oldest beyond ``MOST_KEPT``."""
        while self._arms:
            owner, entry = next(iter(self._arms.items()))
            if len(self._arms) <= MOST_KEPT and not self._has_expired(entry, time):
                break
            self._remove(owner)

    def _remove(self, owner: tuple[str, str]) -> None:
        """Forget the arm that a user keeps for a key."""
        self._unlearned.pop(self._arms.pop(owner).seq, None)

    def add_feedback(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Note which decisions have been activated: the policy learns from them."""
        if not self._unlearned or ACTIVATE not in feedback.column("kind"):
            return
        columns = feedback.column("kind"), feedback.column("decision")
        for kind, decision, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED and decision in self._unlearned:
                owner = self._unlearned.pop(decision)
                self._arms[owner] = self._arms[owner]._replace(is_learned=True)

    # Changes ---------------------------------------------------------------------------------

    def add_change(self, change: ChangeRow) -> None:
        """Forget all arms when the holdout changes: users may be in another group."""
        if change.kind == HOLDOUT:
            self._arms.clear()
            self._unlearned.clear()

    def forget(self, users: Collection[str]) -> None:
        """Forget the arms of users, given by their hashes."""
        for owner in [owner for owner in self._arms if owner[1] in users]:
            self._remove(owner)

    # Snapshots and views ---------------------------------------------------------------------

    def export_arms(self) -> Iterable[tuple[tuple[str, str], KeptArm]]:
        """Return ((key, user's hash), kept arm) pairs for a snapshot, in the order of their draws."""
        # A copy of a dict makes no tuples, of which a million would take the collector seconds.
        return self._arms.copy().items()

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the kept arms from a snapshot; none from one that was written without."""
        saved_arms: Any = () if saved.sticky is msgspec.UNSET else saved.sticky
        self._arms = dict(msgspec.convert(saved_arms, list[tuple[tuple[str, str], KeptArm]]))
        self._unlearned = {arm.seq: owner for owner, arm in self._arms.items() if not arm.is_learned}

    def get_reason_not_local(self, time: int | None) -> str | None:
        """Return why clients cannot decide locally: only the service knows the arms that users keep."""
        return REASON_NOT_LOCAL

    def make_remark(self, now: int) -> str:
        """Return the number of users whose arms are kept, as text."""
        return f"users who keep their arms: {self.count:,}"
