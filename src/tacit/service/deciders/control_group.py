"""The holdout of a placement: its terms, its assigner, and the control's actions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm
from tacit.service.config.holdout import UNIFORM, HoldoutConfig
from tacit.service.config.lift_terms import parse_holdout
from tacit.service.deciders.aspect import Aspect, Note, SavedState
from tacit.service.deciders.assignment import Control, HoldoutAssigner
from tacit.service.log.rows import CONFIGURATION, HOLDOUT, ChangeRow, DecisionRow
from tacit.service.log.store import Snapshot

REASON_NOT_LOCAL = (
    "the coin of its holdout is tossed here; where something else decides, take the holdout away"
)


class Terms(Protocol):
    """The current terms of the lift, and the row of the log from which they hold."""

    terms: str
    seq: int

    def has_holdout_by_unit(self, unit: str) -> bool:
        """True if the current or a past holdout assigns decisions by this unit."""


class ControlGroup(Aspect):
    """The holdout and its assigner.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        None without a holdout.
    seed : int
        Seed of the placement.
    make_control : function
        Returns the control of a holdout.
    read_terms : function
        Returns the current terms, which have the current holdout.

    Attributes
    ----------
    holdout : HoldoutConfig or None
    assigner : HoldoutAssigner or None
        Knows the index of the control's arm.
    """

    change_kind = HOLDOUT

    def __init__(
        self,
        holdout: HoldoutConfig | None,
        seed: int,
        make_control: Callable[[HoldoutConfig], Control],
        read_terms: Callable[[], Terms],
    ) -> None:
        """Make the assigner of the holdout."""
        self._seed, self._make_control, self._read_terms = seed, make_control, read_terms
        self._set_holdout(holdout)

    def _set_holdout(self, holdout: HoldoutConfig | None) -> None:
        """Replace the holdout (None for none), and make its assigner."""
        self.holdout = holdout
        self.update_arms()

    def update_arms(self) -> None:
        """Make the assigner again, because the index of the control's arm may have changed.

        It is None without a holdout.
        """
        self.assigner: HoldoutAssigner | None = None
        if self.holdout is not None:
            self.assigner = HoldoutAssigner(self.holdout, self._seed, self._make_control(self.holdout))

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: set another holdout or none."""
        self._set_holdout(parse_holdout(change.value))
        return 0

    def current(self) -> str:
        """Return the current terms as JSON: the value of the last change event, or the initial terms."""
        return self._read_terms().terms

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the holdout from the terms in the reward sums, which must be restored before."""
        if saved.lift is not None:
            self._set_holdout(parse_holdout(self._read_terms().terms))

    @staticmethod
    def parse_change(
        change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note | None:
        """Return ("holdout", {"holdout": settings or None}) for a request's change.

        None for a change by the configuration, which has its own change event.
        """
        if change.who == CONFIGURATION:
            return None
        return HOLDOUT, {"holdout": (json.loads(change.value) or {}).get("holdout")}

    def get_reason_not_local(self, time: int | None) -> str | None:
        """Return that only the service can assign decisions to the holdout; None without a holdout."""
        return None if self.assigner is None else REASON_NOT_LOCAL

    def get_constant_action(self, offer: Ints) -> list[int] | None:
        """Return the arm indices that the control always shows for an offer.

        None if the control draws at random, or without a holdout.
        """
        if self.assigner is None or self.assigner.config.control == UNIFORM:
            return None
        (action,) = self.assigner.control.choose_actions([offer], np.zeros(1, np.uint64)).tolist()
        return action  # type: ignore[no-any-return]

    def has_bucket(self, row: DecisionRow, unit: str | None) -> bool:
        """True if a logged decision may be of this user or session: the log holds only a hash bucket of it.

        Also True if the row has no bucket of the current holdout.
        """
        # Buckets of decisions before the current holdout are of another unit.
        if self.assigner is None or row.bucket is None or row.seq <= self._read_terms().seq:
            return True
        return row.bucket == self.assigner.get_bucket(row.id, unit)

    def has_had_unit(self, unit: str) -> bool:
        """True if the current or a past holdout assigns decisions by this unit."""
        return self._read_terms().has_holdout_by_unit(unit)
