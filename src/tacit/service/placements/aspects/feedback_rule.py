"""By which version of the rule feedback becomes knowledge: when it comes, or in the order of decisions.

Placements of version 0.3 learned each reward when it came. They take the new rule at their next start, by a
change event; what the log holds before that is folded as it was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm
from tacit.service.log import rows
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Note, Saved
from tacit.service.placements.learning_order import LearningOrder

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

WHEN_IT_COMES, IN_ORDER = 1, 2
FIRST = "first"
ENOUGH_CLICKS = 100
"""From so many on it is said how long clicks take."""
LATE_SHARE, EARLY_SHARE = 0.9, 0.001
"""Above and below these shares of the window, clicks come late, or the window is far longer than needed."""


class FeedbackRule(Aspect):
    """The version of the rule.

    Attributes
    ----------
    version : int
        1, when feedback comes; 2, in the order of decisions.
    """

    mark = rows.FEEDBACK_RULE

    def __init__(self, version: int) -> None:
        self.version = version

    def order(self, placement: Placement) -> LearningOrder | None:
        """Return the order in which a placement learns its decisions; None before version 2."""
        if self.version < IN_ORDER:
            return None
        rule, showing = placement.config.rule, placement.kind.showing
        late = showing.compared or (showing.single and rule.aggregation == FIRST)
        # Whether a decision was examined may be known later than any click.
        whole = rule.seen != "decided"
        params = placement.windows.params
        return LearningOrder(placement.learner, params, waits_whole=whole, learns_late=late)

    def marked(self, placement: Placement, mark: rows.MarkRow) -> None:
        """Learn what is decided from here on by another version of the rule."""
        self.version = int(mark.value)
        placement.windows.order = self.order(placement)
        placement.lift.begin_part(f"feedback rule {mark.value}", mark.seq, mark.time)

    def begin_turns(self, placement: Placement, entries: Ints) -> None:
        """Let decisions that were just made wait for their turn to be learned."""
        order, kept = placement.windows.order, placement.open
        if order is None:
            return
        unlearned = placement.modes.unlearned
        lanes = np.full(len(entries), -1, np.int64)
        # What teaches the policy nothing is no part of what it believes.
        if order.counts_open and not placement.sets_aside and not placement.modes.frozen:
            lanes = kept.lanes(entries)
            if others := unlearned | placement.control.not_own:
                lanes = np.where(np.isin(entries, list(others)), -1, lanes)
        placement.windows.begin_turns(entries, lanes, kept.actions(entries)[:, 0])
        if unlearned:
            order.skip(entries[np.isin(entries, list(unlearned))])
            # At once: what a later decision of the same moment finds must not depend on how they came.
            placement.windows.take_turns(decides=False)

    def current(self, placement: Placement) -> str:
        """Return the version as a change event holds it."""
        return str(self.version)

    @staticmethod
    def change(mark: rows.MarkRow, before: rows.MarkRow | None, arms: Sequence[Arm]) -> Note:
        """Return the version of a change event."""
        return rows.FEEDBACK_RULE, {"version": int(mark.value)}

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Return the change in words."""
        return "feedback is learned in the order of decisions, clicks and silence alike"

    def arms_named(self, placement: Placement) -> None:
        """Let new arms have delays of their own."""
        if placement.windows.order is not None:
            placement.windows.order.reach(placement.learner.policy.arm_count)

    def remark(self, placement: Placement, now: int) -> str | None:
        """Return how long clicks take, and what to do where the window does not suit that."""
        order = placement.windows.order
        if order is None or order.delays.clicks.sum() < ENOUGH_CLICKS:
            return None
        age, window = int(order.delays.age[0]) / 1e6, order.rule.window / 1e6
        text = f"95 % of clicks come within {age:.3g} s, and decisions are learned then"
        if age > LATE_SHARE * window:
            return f"{text}: the window of {window:g} s may cut later ones off; lengthen attribution_window"
        if age < EARLY_SHARE * window:
            return f"{text}: a window of {window:g} s is longer than it need be"
        return text

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its fields of a snapshot."""
        order = placement.windows.order
        return {"feedback_rule": self.version, "delays": None if order is None else order.saved()}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its fields of a snapshot; one of version 0.3 has none."""
        self.version = saved.feedback_rule
        placement.windows.order = self.order(placement)
        if placement.windows.order is not None:
            placement.windows.order.restore(saved.delays)
