"""The fold of logged decisions: they are recorded as if they were new, without deciding again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.learning.columns import build_decisions
from tacit.learning.decisions import Decision
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.log import rows as log_rows
from tacit.service.log.blocks import Block
from tacit.service.placements.learning import FeedbackLearning
from tacit.service.placements.shows import Shows


@dataclass
class Recall:
    """Applies logged decisions to the state of a placement.

    Parameters
    ----------
    policy, secondary : PolicyDecider
        The placement's policy; the policy of the shadow or of the holdout's control, or None.
    shows : Shows
    learning : FeedbackLearning
    modes : Modes
    signals : PlacementSignals or None
    """

    policy: PolicyDecider
    secondary: PolicyDecider | None
    shows: Shows
    learning: FeedbackLearning
    modes: Modes
    signals: PlacementSignals | None

    def recall(self, rows: Block[log_rows.DecisionRow]) -> None:
        """Apply logged decisions of the same time and mode to the state, without deciding again.

        Learners, open decisions, counts and signals change as if the decisions were new.
        """
        if self.signals is not None:
            offers = [self.shows.get_offered_indices(log_rows.decode_json(row.offered)) for row in rows]
            self.signals.recall(rows, offers)
        mode = rows.column("mode")[0]
        # A batch is many times as fast, and equal if no decision can affect the next one: without restarts,
        # without a secondary policy and without modes in which nothing is learned.
        one_by_one = (
            self.learning.restarts
            or self.learning.learns_nothing
            or mode in (*log_rows.UNLEARNED_MODES, log_rows.SHADOW)
        )
        if one_by_one or log_rows.any_control_policy(rows):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        made_by, epochs = rows.column("policy"), rows.column("epoch")
        if made_by.count(self.policy.number) < len(rows):
            # This policy never restarts, but an earlier policy that made some of them may have.
            epochs = [0] * len(rows)
        decisions = self.restore_decisions(rows, epochs)
        self.policy.learner.observe_decisions(decisions)
        self.learning.open_decisions(rows, decisions)

    def restore_decisions(
        self, rows: Block[log_rows.DecisionRow], epochs: Sequence[int]
    ) -> Sequence[Decision]:
        """Return logged decisions as decisions of the learner, with the given epochs.

        New keys are admitted.
        """
        learner = self.policy.learner
        if not self.shows.has_plain_offers(rows):
            return list(map(self.policy.restore_open, rows, epochs))
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return build_decisions(
            learner,
            learner.loops.make_plain_batch(learner.lanes.admit(rows.column("key")), contexts),
            self.shows.get_actions(rows),
            np.array(epochs, np.int64),
            # NumPy converts None to NaN.
            np.array(log_rows.select_propensities(rows), np.float64),
        )

    def _recall_one(self, rows: Block[log_rows.DecisionRow]) -> None:
        """Apply one logged decision to the state; its key's epoch may differ from the one in the log."""
        row, keeps_state = rows[0], self.modes.frozen or self.learning.learns_nothing
        by_control_policy = log_rows.has_control_policy(row)
        in_control = bool(by_control_policy and row.control)
        # Nothing was drawn for a repetition.
        if in_control or row.mode == log_rows.KEPT:
            self.policy.learner.lanes.admit([row.key])
            decision = self.policy.restore_open(row, self.policy.learner.epoch(row.key))
        else:
            decision = self.policy.recall(row, keeps_state=keeps_state)
        secondary = None
        if self.secondary is not None and self.secondary.reads(row):
            if in_control or (not by_control_policy and row.mode == log_rows.SHADOW):
                secondary = [self.secondary.recall(row, keeps_state=keeps_state)]
            elif by_control_policy:
                self.secondary.learner.lanes.admit([row.key])
        by_control = np.array([in_control], np.bool_) if by_control_policy else None
        self.learning.open_decisions(rows, [decision], secondary, by_control)
