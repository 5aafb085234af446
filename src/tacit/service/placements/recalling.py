"""The fold: decisions of the log taken in again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block
from tacit.service.log.rows import SHADOW, UNLEARNED, DecisionRow, by_two, some_by_two
from tacit.service.placements.opening import Opening
from tacit.service.placements.state import learned_propensities, parsed, read_by


class Recalling(Opening):
    """Takes in decisions from the log."""

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Take in decisions from the log, made by the same moment in the same mode."""
        if self.signals is not None:
            offers = [self._offered_slots(parsed(offered)) for offered in rows.column("offered")]
            self.signals.recall(self.learner, rows, offers)
        mode = rows.column("mode")[0]
        one_by_one = self.restarts or self.sets_aside or mode in (*UNLEARNED, SHADOW)
        if one_by_one or some_by_two(rows):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        made_by, epochs = rows.column("policy"), rows.column("epoch")
        if made_by.count(self.policy_id) < len(rows):
            # This policy never restarts; another one, which made some of them, may have.
            epochs = [0] * len(rows)
        decisions = self._recalled_many(rows, epochs)
        self.learner._batch.recall(decisions)
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
        return learner._batch.decisions(
            learner._batch.impressions(learner._batch.lanes.admit(rows.column("key")), contexts),
            self._actions(rows),
            np.array(epochs, np.int64),
            # NumPy takes None for NaN.
            np.array(learned_propensities(rows), np.float64),
        )

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return what decisions showed, as the slots of arms."""
        slots = list(map(self._slots.__getitem__, rows.column("arm")))
        return np.array(slots, np.int64).reshape(-1, 1)

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Take in a decision in whose epoch this fold may differ from the one that made it."""
        row = rows[0]
        if by_two(row):
            self._decided(rows, *self._recalled_by_two(row))
            return
        decision = self._recalled(self.learner, row)
        shadow = None
        if row.mode == SHADOW and self.shadow is not None and self._fits_shadow(row):
            shadow = self._recalled(self.shadow, row)
        self._decided(rows, [decision], shadow)

    def _recalled_by_two(self, row: DecisionRow) -> tuple[list[Decision], Decision | None]:
        """Take in a decision beside a control with a policy of its own; only its maker saw it."""
        second = self.shadow if self._fits_shadow(row) else None
        if not row.control:
            if second is not None:
                second._batch.lanes.admit([row.key])
            return [self._recalled(self.learner, row)], None
        self.learner._batch.lanes.admit([row.key])
        decision = read_by(self.learner, self._decision(row, self.learner.epoch(row.key)))
        return [decision], None if second is None else self._recalled(second, row)

    def _recalled(self, learner: Learner, row: DecisionRow) -> Decision:
        decision = read_by(learner, self._decision(row, row.epoch))
        with self._standing(learner, row.key):
            learner._batch.recall([decision])
        return decision._replace(epoch=learner.epoch(row.key))

    def _fits_shadow(self, row: DecisionRow) -> bool:
        """Whether the second policy can read a context, which may be older than that."""
        dim = 0 if self.shadow is None else self.shadow.policy.context_dim
        return dim == 0 or len(parsed(row.context) or ()) == dim
