"""Learning of a placement: from feedback, from windows that close, and from its log."""

# 1. ``advance``: windows that close are learned with their reward so far, or with the default.
# 2. ``apply_feedback``: attributes feedback of the same time; the rule determines which rewards are final.
# 3. ``_learn_batch``: final rewards go to the learner and to the secondary policy, each for its own
#    decisions.
# 4. ``_count_rewards``: the same rewards are counted for views.
# 5. ``recall``: the fold. A logged decision is treated as a new one; its feedback then follows 1. to 4.

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.decisions import Decision
from tacit.learning.learner import Learner
from tacit.policies.features.click_model import with_seen
from tacit.service.log.blocks import Block, split_distinct
from tacit.service.log.rows import (
    ACTIVATE,
    REWARD,
    SHADOW,
    UNLEARNED_MODES,
    DecisionRow,
    FeedbackRow,
    any_control_policy,
    decode_json,
    drop_unread_context,
    has_control_policy,
    select_propensities,
)
from tacit.service.placements.attribution import FROZEN as NOT_LEARNING
from tacit.service.placements.attribution import (
    LATE_EPOCH,
    LEARNED,
    NO_CLOSED_WINDOWS,
    NOTED,
    PENDING,
    TrainingBatch,
)
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.service.placements.series import weigh_reward
from tacit.service.placements.state import PlacementState
from tacit.service.placements.windows import AT_ONCE, LEARNED_IN_TURN, WAITING

CLOSED = "window-closed"
ArmRewards = list[tuple[int | None, list[float]]]
"""Arm indices, and the amounts that their rewards add to the sums."""


class PlacementLearning(PlacementState):
    """Learns from feedback and from windows that close."""

    def advance(self, time: int) -> None:
        """Close the windows that end by a time: learn and count their rewards, and the decisions in turn.

        Closed decisions are added to the reward sums, and signals count their answers.
        """
        rewards = self.windows.advance(time)
        self._learn_in_turn(self.windows.turn_batch)
        if self.windows.closed_windows is NO_CLOSED_WINDOWS:
            return
        # Rewards of all closed windows are summed, even if they are not learned: the lift must not depend on
        # the mode.
        self.reward_sums.add_closed(self.as_placement, self.windows.closed_windows)
        if not rewards.values:
            return
        # Signals count answers at the end of the window, not at the next request: a replay has other
        # requests, and must compute the same numbers.
        if self.signals is not None:
            keys = self.windows.values(rewards.entries, "key")
            ends = list(map(self.windows.deadline, rewards.entries.tolist()))
            self.signals.count_answers(self.learner, keys, ends, self.windows.is_clicked(rewards.entries))
        self.outcomes[CLOSED] += len(rewards.values)
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            # A late reward must not correct a default that was never learned.
            unlearned = np.setdiff1d(rewards.entries, learned.entries)
            self.windows.forbid_correction(unlearned)
            self._count_unlearned(rewards, unlearned.tolist())
        self._learn_now(learned)

    def learn_turns(self) -> None:
        """Take the decisions whose turn has come from the queue and learn them, before a new decision."""
        self._learn_in_turn(self.windows.take_turns(decides=True))

    def _learn_in_turn(self, rewards: TrainingBatch) -> tuple[TrainingBatch, Booleans]:
        """Learn a batch of decisions whose turn has come, without counting their rewards.

        Returns the part that was learned in this mode, and for each of its decisions True if its key has not
        restarted since.
        """
        learned = self._select_learnable(rewards)
        return learned, self._learn_batch(learned, counts=False)

    def _learn_now(self, rewards: TrainingBatch) -> tuple[TrainingBatch, Booleans]:
        """Learn the rewards of decisions that do not wait for their turn, and count all rewards.

        Returns the batch to learn, and for each of its decisions True if its key has not restarted since.
        """
        order = self.windows.order
        if order is None or not rewards.values:
            return rewards, self._learn_batch(rewards)
        turns = self.windows.get_turns(rewards.entries)
        late = (turns == LEARNED_IN_TURN) & (order.learns_late and bool(rewards.row_indices))
        if late.any() and not order.rule.only_examined:
            # The default was already learned in their turn.
            late &= np.array([value != order.rule.default for value in rewards.values], np.bool_)
        (rows,) = ((turns == AT_ONCE) | late).nonzero()
        if len(rows) == len(turns):
            return rewards, self._learn_batch(rewards)
        self._count_rewards(rewards.select(np.setdiff1d(np.arange(len(turns)), rows).tolist()))
        batch = rewards.select(rows.tolist())
        return batch, self._learn_batch(batch)

    def apply_feedback(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        """Apply feedback of the same time: attribute, learn and count it; return the outcome of each row.

        Parameters
        ----------
        feedback : Block
        entries : array of int64, optional
            Entries of the decisions, if they are known to be open and different.
        """
        self.since_snapshot += len(feedback)
        self.feedback += feedback.column("kind").count(REWARD)
        outcomes: list[str] = []
        if entries is not None:
            outcomes += self._apply_feedback(feedback, entries)
        else:
            # The compiled loop takes each decision once: a second row for it depends on the outcome of the
            # first.
            for part in split_distinct(feedback, "decision"):
                outcomes += self._apply_feedback(part)
        return outcomes

    def _apply_feedback(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        """Apply feedback in which each decision occurs once; return the outcome of each row."""
        outcomes, parts = self.windows.apply_feedback(feedback, entries)
        self.reward_sums.add_metrics(feedback, outcomes)
        if NOTED in outcomes:
            self._count_activations(feedback, outcomes)
        time = feedback.column("time")[0]
        for rewards in parts:
            if self.signals is not None and rewards.previous is None:
                keys = self.windows.values(rewards.entries, "key")
                clicked = self.windows.is_clicked(rewards.entries)
                self.signals.count_answers(self.learner, keys, [time] * len(keys), clicked)
            self._learn_final(rewards, outcomes)
        # Counted before turns are taken, which depend on the other feedback of the same time.
        self.outcomes.update(outcomes)
        if self.windows.order is not None:
            self._learn_answered_turns(parts, outcomes)
        return outcomes

    def _learn_answered_turns(self, parts: Sequence[TrainingBatch], outcomes: list[str]) -> None:
        """Learn the decisions whose turn has come after feedback.

        Changes outcomes in place: "learned" becomes "pending" for decisions that still wait, and "late-epoch"
        for those whose key has restarted.
        """
        learned, fresh = self._learn_in_turn(self.windows.take_turns(decides=False))
        row_indices = [row_index for rewards in parts for row_index in rewards.row_indices]
        entries = np.concatenate([rewards.entries for rewards in parts] or [learned.entries[:0]])
        before = learned.entries[~fresh] if self.restarts else learned.entries[:0]
        waits = self.windows.get_turns(entries) == WAITING
        for row_index, wait, late in zip(
            row_indices, waits.tolist(), np.isin(entries, before).tolist(), strict=True
        ):
            if outcomes[row_index] == LEARNED and (wait or late):
                outcomes[row_index] = PENDING if wait else LATE_EPOCH

    def _count_activations(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Count the impressions of decisions that the feedback activated, also in the signals."""
        columns = (feedback.column(field) for field in ("kind", "decision", "time"))
        for kind, seq, time, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED:
                row = self.windows.find_row(seq)
                self._count(Block.from_rows(DecisionRow, [row]))
                if self.signals is not None:
                    offer = self.get_offered_indices(decode_json(row.offered))
                    self.signals.count_activation(self.learner, row, offer, time)

    def _learn_final(self, rewards: TrainingBatch, outcomes: list[str]) -> None:
        """Learn the final rewards of feedback and count them.

        Changes the outcomes of rows that were not learned, in place: "frozen" or "late-epoch".
        """
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            for row_index in set(rewards.row_indices).difference(learned.row_indices):
                outcomes[row_index] = NOT_LEARNING
            self._count_unlearned(rewards, set(rewards.entries.tolist()) - set(learned.entries.tolist()))
        batch, fresh = self._learn_now(learned)
        self._refine_outcomes(learned, outcomes)
        # A policy that has restarted the key does not learn earlier decisions. Corrections do not report it.
        if self.restarts and rewards.previous is None:
            for row_index, present in zip(batch.row_indices, fresh.tolist(), strict=True):
                if not present:
                    outcomes[row_index] = LATE_EPOCH

    def _select_learnable(self, rewards: TrainingBatch) -> TrainingBatch:
        """Return the part of a batch that may be learned in the current mode."""
        return rewards.select([]) if self.learns_nothing else self.modes.learnable(rewards)

    def _learn_batch(self, rewards: TrainingBatch, *, counts: bool = True) -> Booleans:
        """Let the learner and the secondary policy learn rewards, each from its own decisions.

        With ``counts`` the rewards are counted, too. Returns for each decision True if its key has not
        restarted since.
        """
        if not rewards.values:
            return np.zeros(0, np.bool_)
        values = self._convert_rewards(rewards)
        if (
            rewards.previous is None
            and self.secondary is None
            and not self.control.control_entries
            and None not in values
        ):
            examined = self.windows.get_examined(rewards.entries)
            fresh: Booleans = _learn_or_correct(
                self.learner, self.open, rewards.entries, values, None, examined
            )
            if counts:
                self._count_rewards(rewards)
            return fresh
        rewarded = [i for i, value in enumerate(values) if value is not None]
        # Some rewards are counted but not learned, such as a duel without a winner.
        fresh = np.ones(len(values), np.bool_)
        entries, positions = rewards.entries, np.arange(len(values))
        if len(rewarded) < len(values):
            positions = np.array(rewarded, np.int64)
            entries, values = entries[positions], [values[i] for i in rewarded]
        examined = self.windows.get_examined(entries)
        previous = None if rewards.previous is None else self.scale_rewards([rewards.previous] * len(values))
        entry_list = entries.tolist()
        targets = [(self.learner, self.open, self.control.select_indices(entry_list))]
        if self.secondary is not None:
            # The secondary policy first: the placement's learner determines the result.
            targets.insert(0, self.secondary.select_decisions(entry_list))
        for learner, open_decisions, indices in targets:
            if not indices:
                continue
            if len(indices) == len(entry_list):
                fresh[positions] = _learn_or_correct(
                    learner, open_decisions, entries, values, previous, examined
                )
            else:
                some_values, some_previous = (
                    [values[i] for i in indices],
                    previous and previous[: len(indices)],
                )
                some_examined = None if examined is None else examined[indices]
                fresh[positions[indices]] = _learn_or_correct(
                    learner, open_decisions, entries[indices], some_values, some_previous, some_examined
                )
        if counts:
            self._count_rewards(rewards)
        return fresh

    def _count_rewards(self, rewards: TrainingBatch) -> None:
        """Add the rewards of decisions to the series, replacing rewards counted before."""
        previous = rewards.previous or 0.0
        indices = [i for i, reward in enumerate(rewards.values) if reward or previous]
        if indices:
            entries = rewards.entries
            if len(indices) < len(entries):
                entries = entries[indices]
            self.series.count_rewards(
                self.windows.values(entries, "time"),
                self._propensities(entries),
                self.offer_sizes(entries),
                [rewards.values[i] for i in indices],
                [previous] * len(indices),
                self._get_rewarded_arms(entries),
            )

    def _count_unlearned(self, rewards: TrainingBatch, entries: Collection[int]) -> None:
        """Add the rewards of some entries, which were not learned, to the arms' results."""
        unlearned = rewards.select(
            [i for i, entry in enumerate(rewards.entries.tolist()) if entry in entries]
        )
        times = self.windows.values(unlearned.entries, "time")
        for time, arm_rewards in zip(times, self._attribute_rewards(unlearned), strict=True):
            for arm_index, amounts in arm_rewards:
                self.series.results.count_reward(time, arm_index, amounts)

    def _attribute_rewards(self, rewards: TrainingBatch) -> list[ArmRewards]:
        """Return for each decision pairs of a rewarded arm index (or None) and amounts for the sums."""
        columns = self._get_rewarded_arms(rewards.entries), self._propensities(rewards.entries)
        return [
            [(arm_index, weigh_reward(propensity, offered, value, rewards.previous or 0.0))]
            for arm_index, propensity, offered, value in zip(
                *columns, self.offer_sizes(rewards.entries), rewards.values, strict=True
            )
        ]

    def _get_rewarded_arms(self, entries: Ints) -> list[int | None]:
        """Return the index of the arm to which the reward of each open decision is counted; None for none."""
        return self.open.actions(entries)[:, 0].tolist()  # type: ignore[no-any-return]

    # The fold: decisions of the log ------------------------------------------------------------

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Repeat logged decisions of the same time and mode in this state, without new draws.

        Learner, open decisions, counts and signals are updated as if the decisions were new.
        """
        if self.signals is not None:
            offers = [self.get_offered_indices(decode_json(offered)) for offered in rows.column("offered")]
            self.signals.recall(self.learner, rows, offers)
        mode = rows.column("mode")[0]
        # A batch is many times as fast, and equal if no decision can affect the next one: without restarts,
        # without a secondary policy and without modes in which nothing is learned.
        one_by_one = self.restarts or self.learns_nothing or mode in (*UNLEARNED_MODES, SHADOW)
        if one_by_one or any_control_policy(rows):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        made_by, epochs = rows.column("policy"), rows.column("epoch")
        if made_by.count(self.policy_id) < len(rows):
            # This policy never restarts, but an earlier policy that made some of them may have.
            epochs = [0] * len(rows)
        decisions = self._restore_decisions(rows, epochs)
        self.learner.observe_decisions(decisions)
        self.record_decisions(rows, decisions)

    def _restore_decisions(self, rows: Block[DecisionRow], epochs: Sequence[int]) -> Sequence[Decision]:
        """Return logged decisions in the learner's form, with the given epochs; admits new keys."""
        learner = self.learner
        if not self._has_plain_offers(rows):
            decisions = map(self.restore_decision, rows, epochs)
            return [drop_unread_context(learner, decision) for decision in decisions]
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return learner.build_decisions(
            learner.loops.make_plain_batch(learner.lanes.admit(rows.column("key")), contexts),
            self._get_actions(rows),
            np.array(epochs, np.int64),
            # NumPy converts None to NaN.
            np.array(select_propensities(rows), np.float64),
        )

    def _get_actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return the arm indices that logged decisions showed, shape (rows, width)."""
        indices = list(map(self.lifecycle.arm_indices.__getitem__, rows.column("arm")))
        return np.array(indices, np.int64).reshape(-1, 1)

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Repeat one logged decision in this state; its epoch may differ from the log's."""
        row = rows[0]
        if has_control_policy(row):
            self.record_decisions(rows, *self._recall_by_group(row))
            return
        decision = self.recall_decision(self.learner, row)
        secondary_decision = (
            None if self.secondary is None else self.secondary.recall_counterfactual(self.as_placement, row)
        )
        self.record_decisions(rows, [decision], secondary_decision)

    def _recall_by_group(self, row: DecisionRow) -> tuple[list[Decision], Decision | None]:
        """Restore a logged decision of the group's own policy; returns it and the secondary policy's form.

        The policy of the other group only admits the key. The second is None for decisions of the policy.
        """
        secondary_decision = (
            None if self.secondary is None else self.secondary.recall_by_group(self.as_placement, row)
        )
        if not row.control:
            return [self.recall_decision(self.learner, row)], secondary_decision
        self.learner.lanes.admit([row.key])
        return [
            drop_unread_context(self.learner, self.restore_decision(row, self.learner.epoch(row.key)))
        ], secondary_decision

    def recall_decision(self, learner: Learner, row: DecisionRow) -> Decision:
        """Let a learner observe a logged decision; return the learner's form of it, in the current epoch."""
        decision = drop_unread_context(learner, self.restore_decision(row, row.epoch))
        with self.protect_state(learner, row.key):
            learner.observe_decisions([decision])
        # The epoch of this fold, not of the log: another policy may restart at other times.
        return decision._replace(epoch=learner.epoch(row.key))


def _learn_or_correct(
    learner: Learner,
    open_decisions: OpenDecisions,
    entries: Ints,
    values: list[Any],
    previous: list[float] | None,
    examined: Floats | None,
) -> Any:
    """Learn rewards, or replace learned rewards (``previous``) by late ones.

    Returns whether each was learned, that is, its key has not restarted since; True for corrections.
    """
    # If the policy cannot replace a reward, the late one is learned in addition.
    if previous is not None and learner.policy.correctable:
        learner.correct_many(open_decisions.decisions(entries), previous, values)
        return True
    # The control's policy may not learn examination.
    if examined is not None and learner.policy.learns_seen:
        values = with_seen(np.array(values), examined).tolist()
    return open_decisions.learn(entries, values)
