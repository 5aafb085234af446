"""The mode of a placement: whether its policy decides and learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tacit.learning.decisions import Arm
from tacit.service.deciders.aspect import Aspect, Note, SavedState
from tacit.service.log import rows
from tacit.service.log.store import Snapshot


class Modes(Aspect):
    """The mode of a placement.

    Attributes
    ----------
    mode : str
        ``online``, ``frozen`` (nothing is learned), ``shadow`` (a secondary policy computes
        counterfactuals) or ``control`` (the control of the holdout decides everything).
    """

    change_kind = rows.MODE

    def __init__(self) -> None:
        self.mode = rows.ONLINE

    def apply_change(self, change: rows.ChangeRow) -> int:
        """Apply a change event: set another mode."""
        self.mode = change.value
        return 0

    def current(self) -> str:
        """Return the mode of the last change event."""
        return self.mode

    @staticmethod
    def parse_change(
        change: rows.ChangeRow, previous: rows.ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note:
        """Return ("mode", {"mode": mode}) of a change event."""
        return rows.MODE, {"mode": change.value}

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a change of mode as text: "mode: NAME"."""
        return f"mode: {detail.get('mode')}"

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's field: {"mode": mode}."""
        return {"mode": self.mode}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the mode from a snapshot."""
        self.mode = saved.mode

    def summary(self, now: int) -> dict[str, Any]:
        """Return {"mode": mode}."""
        return {"mode": self.mode}

    def get_reason_not_local(self, time: int | None) -> str | None:
        """Return that the service compares each decision, if the mode is ``shadow`` and a time is given.

        Else None.
        """
        if time is None or not self.has_counterfactuals:
            return None
        return f"in mode {self.mode!r} each decision is compared here"

    @property
    def frozen(self) -> bool:
        """True if nothing is learned."""
        return self.mode == rows.FROZEN

    @property
    def control_decides(self) -> bool:
        """True if the control of the holdout decides everything."""
        return self.mode == rows.CONTROL

    @property
    def has_counterfactuals(self) -> bool:
        """True if a secondary policy computes counterfactual decisions."""
        return self.mode == rows.SHADOW
