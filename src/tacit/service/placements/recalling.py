"""The fold: decisions of the log taken in again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import NOTHING, Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block
from tacit.service.log.rows import (
    FROZEN,
    SHADOW,
    DecisionRow,
)
from tacit.service.placements.opening import Opening
from tacit.service.placements.state import parsed


class Recalling(Opening):
    """Takes in decisions from the log."""

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Take in decisions from the log, made by the same moment in the same mode."""
        if self.signals is not None:
            offers = [self._offered_slots(parsed(offered)) for offered in rows.column("offered")]
            self.signals.recall(self.learner, rows, offers)
        if self.restarts or rows.column("mode")[0] in (FROZEN, SHADOW):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        decisions = self._recalled_many(rows, rows.column("epoch"))
        self.learner.batch.recall(decisions)
        self._decided(rows, decisions)

    def _recalled_many(self, rows: Block[DecisionRow], epochs: Sequence[int]) -> Sequence[Decision]:
        """Return the learner's form of decisions of the log."""
        learner = self.learner
        if not self._offers_all(rows):
            made = map(self._decision, rows, epochs)
            return [read_by(learner, decision) for decision in made]
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return learner.batch.decisions(
            learner.batch.impressions(learner.batch.lanes.admit(rows.column("key")), contexts),
            self._actions(rows),
            np.array(epochs, np.int64),
            # NumPy takes None for NaN.
            np.array(rows.column("propensity"), np.float64),
        )

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return what decisions showed, as the slots of arms."""
        slots = list(map(self._slots.__getitem__, rows.column("arm")))
        return np.array(slots, np.int64).reshape(-1, 1)

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Take in a decision in whose epoch this fold may differ from the one that made it."""
        row = rows[0]
        decision = self._recalled(self.learner, row)
        shadow = None
        if row.mode == SHADOW and self.shadow is not None and self._fits_shadow(row):
            shadow = self._recalled(self.shadow, row)
        self._decided(rows, [decision], shadow)

    def _recalled(self, learner: Learner, row: DecisionRow) -> Decision:
        decision = read_by(learner, self._decision(row, row.epoch))
        with self._standing(learner, row.key):
            learner.batch.recall([decision])
        return decision._replace(epoch=learner.epoch(row.key))

    def _fits_shadow(self, row: DecisionRow) -> bool:
        """Whether the second policy can read a context, which may be older than that."""
        dim = 0 if self.shadow is None else self.shadow.policy.context_dim
        return dim == 0 or len(parsed(row.context) or ()) == dim


def read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)
