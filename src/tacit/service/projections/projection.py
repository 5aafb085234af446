"""Projections: aspects that fold the events of a placement, and change nothing of what it decides."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.service.deciders.aspect import Aspect
from tacit.service.log.blocks import Block
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow
from tacit.service.projections.closed_batch import ClosedBatch


class Projection(Aspect):
    """An aspect that folds decisions, feedback, closed windows and changes; it never holds the placement."""

    def add_decisions(self, rows: Block[DecisionRow]) -> None:
        """Fold decisions of the same time, new or from the log; by default nothing."""

    def add_feedback(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Fold feedback of the same time with its outcomes; by default nothing."""

    def add_closed(self, batch: ClosedBatch) -> None:
        """Fold decisions whose windows have closed; by default nothing."""

    def add_change(self, change: ChangeRow) -> None:
        """Fold a change event of any kind, once it is applied; by default nothing."""


class Projections:
    """The projections of a placement.

    Parameters
    ----------
    aspects : sequence of Aspect
        Each event reaches the projections among them in this order.

    Attributes
    ----------
    decided, answered, closed, changed : list of function
        The methods that fold each event.
    """

    def __init__(self, aspects: Sequence[Aspect]) -> None:
        """List for each event the projections that fold it, so that the others cost nothing."""
        self.decided, self.answered, self.closed, self.changed = (
            [getattr(aspect, event) for aspect in aspects if _overrides(aspect, event)]
            for event in ("add_decisions", "add_feedback", "add_closed", "add_change")
        )


def _overrides(aspect: Aspect, event: str) -> bool:
    """True if a projection folds an event, which means that it overrides the method of this name."""
    return isinstance(aspect, Projection) and (getattr(type(aspect), event) is not getattr(Projection, event))
