"""Which changes were shifts of intent, and how their contexts differ from normal ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.evaluate.proposal.history import KeyHistory, LogColumns
from tacit.evaluate.proposal.result import Shift

RARE = 1e-3
"""Share of the contexts without a shift that may lie outside of what is called normal."""


class NormalContexts(NamedTuple):
    """Contexts as they are without a shift.

    Attributes
    ----------
    low, high : array of float64, shape (dim,)
        The box that holds all but a few.
    loud : float
        What one in a thousand of them exceeds, as its distance from the box.
    """

    low: Floats
    high: Floats
    loud: float

    def excess(self, contexts: Floats) -> Floats:
        """Return how far each context lies outside of the box, in its worst coordinate."""
        outside = np.maximum(self.low - contexts, contexts - self.high)
        return np.asarray(outside.max(axis=1))


def shifts_of(columns: LogColumns, histories: list[KeyHistory]) -> tuple[list[Shift], NormalContexts | None]:
    """Return all shifts, and what contexts are like elsewhere."""
    quiet = np.ones(len(columns.lanes), dtype=bool)
    for history in histories:
        for change in history.changes:
            quiet[history.rows[change.first : change.last + 1]] = False
    normal = None
    if columns.contexts.shape[1] and quiet.any():
        contexts = columns.contexts[quiet]
        low, high = np.quantile(contexts, [RARE, 1.0 - RARE], axis=0)
        normal = NormalContexts(low, high, 0.0)
        normal = normal._replace(loud=float(np.quantile(normal.excess(contexts), 1.0 - RARE)))
    shifts = []
    for history in histories:
        for change, size in zip(history.changes, history.shift_sizes(), strict=True):
            if size == 0.0:
                continue
            near = columns.contexts[history.rows[change.first : change.last + 1]]
            excess = float(normal.excess(near).max()) if normal else None
            names = columns.names[history.lane]
            shifts.append(Shift(*names, change.round + 1, size, excess))
    return shifts, normal
