"""Aspects: the base class, its hooks, and the state of a placement in a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.log.rows import ChangeRow
from tacit.service.log.store import Snapshot

Note = tuple[str, dict[str, Any]]
"""Kind of a change, and its details."""


class Aspect:
    """A function of a placement besides deciding and learning.

    A placement has the aspects that its configuration needs (``placement.aspects``). Each of them reads its
    part of every change event, snapshot and change of arms. A hook does nothing by default.

    Attributes
    ----------
    change_kind : str or None
        Kind of the change events that change the aspect.
    """

    change_kind: ClassVar[str | None] = None

    # Change events of the aspect's own kind

    def apply_change(self, change: ChangeRow) -> int:
        """Change the aspect's state by a change event of its kind from the log; by default nothing.

        Returns the number of events that the change counts towards the next snapshot.
        """
        return 0

    def current(self) -> str | None:
        """Return the value of the last change event of the aspect's kind; None if there was none."""
        return None

    def is_change(self, value: str) -> bool:
        """True if a change event with this value would change anything."""
        return self.current() != value

    @staticmethod
    def parse_change(
        change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note | None:
        """Return the kind and details of a change event for lists of changes; None to leave it out.

        Parameters
        ----------
        change, previous : ChangeRow
            The change event, and the previous one of its kind; None for the first.
        initial_arms : sequence of arms
            Arms that the placement began with.
        """
        return None

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str | None:
        """Format the details of :meth:`parse_change` as text; None to show the details as they are."""
        return None

    def update_arms(self) -> None:
        """Update the aspect's state after the placement's arms changed; by default nothing."""

    # Decisions

    def get_reason_not_local(self, time: int | None) -> str | None:
        """Return why clients must not decide locally, with replicas of the policy; None if they may.

        With a time (microseconds) the state at that time counts; with None only the configuration.
        """
        return None

    # Snapshots

    def save_state(self) -> dict[str, Any]:
        """Return the aspect's fields of a snapshot (:class:`SavedState`)."""
        return {}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the aspect's state from a snapshot, after the aspects before it; by default nothing."""

    # Views

    def summary(self, now: int) -> dict[str, Any]:
        """Return the aspect's fields of ``PlacementSummary`` in the list of placements."""
        return {}

    def make_remark(self, now: int) -> str | None:
        """Return a text for the placement's page, next to its mode; None to show nothing."""
        return None

    def export_part(self) -> Any:
        """Return the state of this shard that pages show, as data for :meth:`merge_parts`.

        None, the default, if all shards have the same state.
        """
        return None

    def merge_parts(self, parts: Sequence[Any]) -> None:
        """Replace the state that pages show by the merged states of all shards; by default nothing.

        The aspects before it have been merged already.
        """

    def read_copy(self) -> Self:
        """Return a copy for reader threads."""
        return copy(self)


class SavedState(msgspec.Struct):
    """The state in a snapshot besides the learners and the series.

    Fields with a default may be missing.
    """

    time: int
    mode: str
    decisions: int
    feedback: int
    outcomes: dict[str, int]
    lift: dict[str, Any]
    results: dict[str, Any]
    counts: Any = None
    signals: bytes | None = None
    shared: Any = None
    # Structures that the aspects decode.
    pin: Any = None
    guardrail: dict[str, Any] | None = None
    fed: dict[str, dict[str, int]] = {}
    # All full offers since the first change of arms.
    offers: list[str] = []
    # Set once the arms have changed; the aspect decodes it.
    arms: Any = None
    # Since feedback has been learned in the order of decisions.
    feedback_rule: int = 1
    delays: dict[str, Any] | None = None
    # The states of aspects that a kind adds, by name.
    added: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    # At the end, so that they can be written in pieces; the first one, what users were shown, only where
    # they are shown it again.
    sticky: Any = msgspec.UNSET
    defaults: list[msgspec.Raw] = []
    open: list[msgspec.Raw] = []
