"""Aspects: what a placement does besides deciding and learning, each an object with a few hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec

from tacit.learning.decisions import Arm
from tacit.service.log.rows import MarkRow
from tacit.service.log.store import Snapshot

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


Note = tuple[str, dict[str, Any]]
"""What somebody changed, and the details."""


class Aspect:
    """Something that a placement does besides deciding and learning.

    A placement has the aspects that its configuration needs (``placement.aspects``). Of each mark of the log,
    of each snapshot, and of each change of arms every one of them takes what is its own. A hook does nothing
    unless the aspect says otherwise.

    Attributes
    ----------
    mark : str or None
        The kind of the marks in the log that change it.
    changes : mapping of type to Effect
        By the type of a request that changes it, what that does.
    """

    mark: ClassVar[str | None] = None
    changes: ClassVar[Mapping[type, Effect]] = {}

    # The log

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark of its kind."""

    def current(self, placement: Placement) -> str | None:
        """Return what the last mark of its kind says, or would say; None where none need say it."""
        return None

    def is_news(self, placement: Placement, value: str) -> bool:
        """Whether a mark says what was not so before."""
        return self.current(placement) != value

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note | None:
        """Return what somebody changed by a mark of its kind, and the details; None for nothing of note.

        Parameters
        ----------
        mark, before : MarkRow
            The mark, and the one of this kind before it; None for the first.
        arms : sequence of arms
            Those that the placement began with.
        """
        return None

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str | None:
        """Return such a change in words, times by a clock; None for what its details say by themselves."""
        return None

    def arms_named(self, placement: Placement) -> None:
        """Go on with the arms that the placement has now."""

    # Decisions

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made next to the caller at a time; without one, at any time."""
        return None

    # Snapshots

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its fields of a snapshot (:class:`Saved`)."""
        return {}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its fields of a snapshot, after those of the aspects before it."""

    # Those who look

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return its fields of what the list of placements says (``PlacementSummary``)."""
        return {}

    def remark(self, placement: Placement, now: int) -> str | None:
        """Return what the page says beside the placement's mode; None for nothing."""
        return None

    def part(self, placement: Placement) -> Any:
        """Return what is seen of it in one of several shards."""
        return None

    def show(self, placement: Placement, parts: Sequence[Any]) -> None:
        """Show what all shards have of it, after the aspects before it."""

    def still(self) -> Self:
        """Return what there is to see of it by now, for another thread while this one goes on."""
        return copy(self)


class Saved(msgspec.Struct):
    """What a snapshot holds besides the learners and the series.

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
    # What aspects read as structures of their own.
    pin: Any = None
    guardrail: dict[str, Any] | None = None
    fed: dict[str, dict[str, int]] = {}
    # Since the arms changed first, the offers of all that there were.
    offers: list[str] = []
    # Since they changed: a structure of its own, which the aspect reads.
    arms: Any = None
    # Since feedback is learned in the order of decisions.
    feedback_rule: int = 1
    delays: dict[str, Any] | None = None
    # The last ones, so that they can be written bit by bit.
    defaults: list[tuple[Any, ...]] = []
    open: list[tuple[Any, ...]] = []


class Effect(NamedTuple):
    """What a request to change a placement does.

    Attributes
    ----------
    kind : str
        Of the mark that it makes in the log.
    mark : function
        Returns what the mark says, from the placement, the request and the time of the log; None
        where nothing changes. Raises TacitError where it cannot be; changes nothing itself.
    answer : function
        Returns what is so now, from the placement and the time.
    leads : bool
        Whether, of several shards, the first one changes first.
    in_shards : bool
        Whether shards alone know if it can be, which all have the same of it.
    """

    kind: str
    mark: Callable[[Placement, Any, int], str | None]
    answer: Callable[[Placement, int], Any]
    leads: bool = False
    in_shards: bool = False
