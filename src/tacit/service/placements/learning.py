"""Learning of a placement: from feedback, and from windows that close."""

# 1. ``open_decisions``: decisions open their windows, and wait for their turn to be learned.
# 2. ``recall``: logged decisions are recorded as if they were new, without deciding again.
# 3. ``advance``: windows that close are learned with their reward so far, or with the default.
# 4. ``apply_feedback``: attributes feedback of the same time; the rule determines which rewards are final.
# 5. ``_learn_batch``: final rewards go to the policy that made the decision, and are counted.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.columns import build_decisions
from tacit.learning.decisions import Decision
from tacit.service.deciders.control_group import ControlGroup
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.deciders.windows import AT_ONCE, LEARNED_IN_TURN, WAITING
from tacit.service.log.blocks import Block
from tacit.service.log.rows import (
    ACTIVATE,
    FROZEN,
    KEPT,
    REWARD,
    SHADOW,
    UNLEARNED_MODES,
    DecisionRow,
    FeedbackRow,
    any_control_policy,
    decode_json,
    has_control_policy,
    select_propensities,
)
from tacit.service.placements.results import Results
from tacit.service.projections.attribution import FROZEN as NOT_LEARNING
from tacit.service.projections.attribution import LATE_EPOCH, LEARNED, NO_CLOSED_WINDOWS, NOTED, PENDING
from tacit.service.projections.closed_batch import ClosedBatch
from tacit.service.projections.learning_order import TrainingBatch
from tacit.service.projections.projection import Projections

CLOSED = "window-closed"


@dataclass
class DecisionCounts:
    """Numbers of decisions, of rewards by their outcomes, and of events since the last snapshot."""

    decisions: int = 0
    feedback: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    since_snapshot: int = 0


class FeedbackLearning:
    """Opens the windows of decisions, and learns their rewards.

    Parameters
    ----------
    results : Results
        Has the windows, the policy and what is shown.
    secondary : PolicyDecider or None
        The policy of the shadow, or of the holdout's control.
    modes : Modes
    control : ControlGroup
    signals : PlacementSignals or None
    projections : Projections

    Attributes
    ----------
    counts : DecisionCounts
    restarts : bool
        Whether the policy, or the control's policy, restarts keys.
    learns_nothing : bool
        Whether feedback is recorded without being learned.
    """

    def __init__(
        self,
        results: Results,
        secondary: PolicyDecider | None,
        modes: Modes,
        control: ControlGroup,
        signals: PlacementSignals | None,
        projections: Projections,
    ) -> None:
        """Begin without open decisions."""
        self._results, self._secondary, self._modes = results, secondary, modes
        self._windows, self._policy, self._shows = results.windows, results.policy, results.shows
        self._open = results.windows.open
        self._control, self._projections, self._signals = control, projections, signals
        self.counts = DecisionCounts()
        config = results.shows.config
        self._has_control_policy = config.holdout is not None and config.holdout.policy is not None
        self.restarts = any(
            hasattr(policy, "epoch")
            for policy in (config.policy, config.shadow if self._has_control_policy else None)
            if policy is not None
        )
        self.learns_nothing = False

    # Decisions, new or from the log ----------------------------------------------------------

    def open_decisions(
        self,
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        secondary: Sequence[Decision] | None = None,
        by_control: Booleans | None = None,
    ) -> None:
        """Open the windows of decisions of the same time, new or logged; store and count them.

        They are stored for learning. Deferred decisions count as impressions once they are activated.
        Projections fold all of them.

        Parameters
        ----------
        rows : Block
        decisions : sequence of Decision
            The decisions in the form of the policy.
        secondary : sequence of Decision, optional
            The decisions from which the secondary policy learns, in its form.
        by_control : array of bool, optional
            The rows that the control's policy made: ``secondary`` has these, and the policy does not learn
            them. By default ``secondary`` has all rows.
        """
        # Windows come first: they assign the entries by which everything else is stored.
        windows, order = self._windows, self._windows.order
        entries = windows.open_windows(rows)
        self.store(entries, rows, decisions, secondary, by_control)
        if order is not None:
            columns, unlearned = self._policy.columns, self._open.windows.unlearned[entries]
            # Decisions that the policy does not learn from are not counted as open in its belief.
            counts_open = order.counts_open and not self.learns_nothing and self._modes.mode != FROZEN
            is_skipped = unlearned | columns.unlearned[entries] | (not counts_open)
            lanes = np.where(is_skipped, -1, columns.lanes[entries])
            order.enqueue(entries, windows.time, lanes, columns.actions[entries, 0])
            if unlearned.any():
                order.skip(entries[unlearned])
                # At once, so that later decisions of the same moment do not depend on the grouping.
                order.take_turns(windows.time)
        for add_decisions in self._projections.decided:
            add_decisions(rows)
        count, deferred = len(rows), rows.column("deferred")
        self.counts.decisions += count
        self.counts.since_snapshot += count
        if any(deferred):
            rows = rows.take([i for i, is_deferred in enumerate(deferred) if not is_deferred])
        if rows:
            self._results.count(rows)
        # Most keys have never restarted.
        if self._results.series.epochs or any(rows.column("epoch")):
            self._results.note_epochs(rows)

    def store(
        self,
        entries: Ints,
        rows: Block[DecisionRow],
        decisions: Sequence[Decision],
        secondary: Sequence[Decision] | None = None,
        by_control: Booleans | None = None,
    ) -> None:
        """Store decisions at their entries, for each policy that learns from them.

        Also notes which decisions a policy must not learn. Other parameters are as in :meth:`open_decisions`.
        """
        plain = self._shows.has_plain_arms and not any(rows.column("offered"))
        texts = rows.column("shown")
        offers = None if plain else self._shows.describe_offers(decisions, texts)
        self._policy.keep(entries, decisions, offers)
        modes = rows.column("mode")
        if not set(modes).isdisjoint(UNLEARNED_MODES):
            self._open.windows.unlearned[entries] = [mode in UNLEARNED_MODES for mode in modes]
        if by_control is not None:
            self._policy.columns.unlearned[entries] = by_control
        if self._secondary is None:
            return
        # Then ``keep`` marks the ones that the secondary policy learns.
        self._secondary.columns.unlearned[entries] = True
        if secondary is not None:
            if by_control is not None:
                entries, texts = entries[by_control], list(compress(texts, by_control.tolist()))
            offers = None if plain else self._shows.describe_offers(secondary, texts)
            self._secondary.keep(entries, secondary, offers)

    # Decisions of the log --------------------------------------------------------------------

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Apply logged decisions of the same time and mode to the state, without deciding again.

        Learners, open decisions, counts and signals change as if the decisions were new.
        """
        if self._signals is not None:
            offers = [self._shows.get_offered_indices(decode_json(row.offered)) for row in rows]
            self._signals.recall(rows, offers)
        mode = rows.column("mode")[0]
        # A batch is many times as fast, and equal if no decision can affect the next one: without restarts,
        # without a secondary policy and without modes in which nothing is learned.
        one_by_one = self.restarts or self.learns_nothing or mode in (*UNLEARNED_MODES, SHADOW)
        if one_by_one or any_control_policy(rows):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        made_by, epochs = rows.column("policy"), rows.column("epoch")
        if made_by.count(self._policy.number) < len(rows):
            # This policy never restarts, but an earlier policy that made some of them may have.
            epochs = [0] * len(rows)
        decisions = self.restore_decisions(rows, epochs)
        self._policy.learner.observe_decisions(decisions)
        self.open_decisions(rows, decisions)

    def restore_decisions(self, rows: Block[DecisionRow], epochs: Sequence[int]) -> Sequence[Decision]:
        """Return logged decisions as decisions of the learner, with the given epochs.

        New keys are admitted.
        """
        learner = self._policy.learner
        if not self._shows.has_plain_offers(rows):
            return list(map(self._policy.restore_open, rows, epochs))
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return build_decisions(
            learner,
            learner.loops.make_plain_batch(learner.lanes.admit(rows.column("key")), contexts),
            self._shows.get_actions(rows),
            np.array(epochs, np.int64),
            # NumPy converts None to NaN.
            np.array(select_propensities(rows), np.float64),
        )

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Apply one logged decision to the state; its key's epoch may differ from the one in the log."""
        row, keeps_state = rows[0], self._modes.frozen or self.learns_nothing
        by_control_policy = has_control_policy(row)
        in_control = bool(by_control_policy and row.control)
        # Nothing was drawn for a repetition.
        if in_control or row.mode == KEPT:
            self._policy.learner.lanes.admit([row.key])
            decision = self._policy.restore_open(row, self._policy.learner.epoch(row.key))
        else:
            decision = self._policy.recall(row, keeps_state=keeps_state)
        secondary = None
        if self._secondary is not None and self._secondary.reads(row):
            if in_control or (not by_control_policy and row.mode == SHADOW):
                secondary = [self._secondary.recall(row, keeps_state=keeps_state)]
            elif by_control_policy:
                self._secondary.learner.lanes.admit([row.key])
        by_control = np.array([in_control], np.bool_) if by_control_policy else None
        self.open_decisions(rows, [decision], secondary, by_control)

    # Windows that close ----------------------------------------------------------------------

    def advance(self, time: int) -> None:
        """Close the windows that end by a time of the log, and learn and count their rewards.

        Decisions whose turn in the learning order has come (``turn_batch``) are learned, too. Projections
        fold all closed decisions. Nothing else is done for a decision without a reward, or whose reward was
        learned when its feedback came. Signals count the feedback of the others.
        """
        windows, signals = self._windows, self._signals
        rewards = windows.advance(time)
        if windows.turn_batch.values:
            self._learn_batch(self._select_learnable(windows.turn_batch), counts=False)
        if windows.closed_windows is NO_CLOSED_WINDOWS:
            return
        # Rewards of all closed windows are summed, even if they are not learned: the lift must not depend on
        # the mode.
        closed = ClosedBatch(
            windows.closed_windows,
            self._results,
            self._control.assigner,
            has_control_policy=self._has_control_policy,
        )
        for add_closed in self._projections.closed:
            add_closed(closed)
        if not rewards.values:
            return
        # Signals count answers at the end of the window, not at the next request: a replay has other
        # requests, and must compute the same numbers.
        if signals is not None:
            (keys,) = self._open.get_columns(rewards.entries, "key")
            ends = self._open.windows.deadline[rewards.entries].tolist()
            signals.count_answers(keys, ends, self._open.is_clicked(rewards.entries))
        self.counts.outcomes[CLOSED] += len(rewards.values)
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            # A late reward must not correct a default that was never learned.
            unlearned = np.setdiff1d(rewards.entries, learned.entries)
            self._open.windows.defaulted[unlearned] = False
            self._results.count_unlearned(rewards, unlearned.tolist())
        self._learn_now(learned)

    def learn_turns(self) -> None:
        """Learn the decisions that are due in the learning order before a new decision."""
        order = self._windows.order
        if order is not None and (due := order.take_turns(self._windows.time, decides=True)).values:
            self._learn_batch(self._select_learnable(due), counts=False)

    def _learn_now(self, rewards: TrainingBatch) -> tuple[TrainingBatch, Booleans]:
        """Learn the rewards of decisions that are in no learning order, and count all rewards.

        Of decisions already learned in turn, corrections are learned, and other rewards if the order says so.
        Returns the batch that was learned, and for each of its decisions True if its key has not restarted
        since.
        """
        order = self._windows.order
        if order is None or not rewards.values:
            return rewards, self._learn_batch(rewards)
        turns = self._open.windows.turn[rewards.entries]
        # Only feedback has ``row_indices``: rewards of windows that close are not late.
        is_late_learned = order.learns_late or rewards.previous is not None
        late = (turns == LEARNED_IN_TURN) & (is_late_learned and bool(rewards.row_indices))
        if late.any() and not order.rule.only_examined:
            # The default was already learned in their turn.
            late &= np.array([value != order.rule.default for value in rewards.values], np.bool_)
        (rows,) = ((turns == AT_ONCE) | late).nonzero()
        if len(rows) == len(turns):
            return rewards, self._learn_batch(rewards)
        self._results.count_rewards(rewards.select(np.setdiff1d(np.arange(len(turns)), rows).tolist()))
        batch = rewards.select(rows.tolist())
        return batch, self._learn_batch(batch)

    # Feedback --------------------------------------------------------------------------------

    def apply_feedback(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        """Apply feedback of the same time: attribute, learn and count it; return the outcome of each row.

        Parameters
        ----------
        feedback : Block
        entries : array of int64, optional
            Entries of the decisions, if they are known to be open and different.
        """
        self.counts.since_snapshot += len(feedback)
        self.counts.feedback += feedback.column("kind").count(REWARD)
        outcomes, parts = self._windows.apply_feedback(feedback, entries)
        for add_feedback in self._projections.answered:
            add_feedback(feedback, outcomes)
        if NOTED in outcomes:
            self._count_activations(feedback, outcomes)
        time = feedback.column("time")[0]
        for rewards in parts:
            if self._signals is not None and rewards.previous is None:
                (keys,) = self._open.get_columns(rewards.entries, "key")
                clicked = self._open.is_clicked(rewards.entries)
                self._signals.count_answers(keys, [time] * len(keys), clicked)
            self._learn_final(rewards, outcomes)
        # Counted before turns are taken, which depend on the other feedback of the same time.
        self.counts.outcomes.update(outcomes)
        if (order := self._windows.order) is not None:
            due = order.take_turns(self._windows.time)
            if due.values or any(rewards.row_indices for rewards in parts):
                self._learn_due_turns(due, parts, outcomes)
        return outcomes

    def _learn_due_turns(
        self, due: TrainingBatch, parts: Sequence[TrainingBatch], outcomes: list[str]
    ) -> None:
        """Learn the decisions that feedback has made due in the learning order; correct outcomes in place.

        "learned" becomes "pending" for decisions still in the order, and "late-epoch" for decisions whose key
        has restarted.
        """
        learned = self._select_learnable(due)
        has_same_epoch = self._learn_batch(learned, counts=False)
        row_indices = [row_index for rewards in parts for row_index in rewards.row_indices]
        entries = np.concatenate([rewards.entries for rewards in parts] or [learned.entries[:0]])
        restarted_entries = learned.entries[~has_same_epoch] if self.restarts else learned.entries[:0]
        waits = self._open.windows.turn[entries] == WAITING
        for row_index, is_waiting, is_late in zip(
            row_indices, waits.tolist(), np.isin(entries, restarted_entries).tolist(), strict=True
        ):
            if outcomes[row_index] == LEARNED and (is_waiting or is_late):
                outcomes[row_index] = PENDING if is_waiting else LATE_EPOCH

    def _count_activations(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Count decisions that feedback has activated as impressions, also in the signals."""
        columns = (feedback.column(name) for name in ("kind", "decision", "time"))
        for kind, seq, time, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED:
                row = self._open.get_row(self._open.find_entry(seq))
                rows = Block.from_rows(DecisionRow, [row])
                self._results.count(rows)
                self._results.note_epochs(rows)
                if self._signals is not None:
                    offer = self._shows.get_offered_indices(decode_json(row.offered))
                    self._signals.count_activation(row, offer, time)

    def _learn_final(self, rewards: TrainingBatch, outcomes: list[str]) -> None:
        """Learn and count final rewards of feedback; correct the outcomes of rewards not learned, in place.

        They become "frozen", "late-epoch", or "noted" for decisions that repeat what a user was shown.
        """
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            (entry_modes,) = self._open.get_columns(rewards.entries, "mode")
            modes = dict(zip(rewards.row_indices, entry_modes, strict=True))
            for row_index in set(rewards.row_indices).difference(learned.row_indices):
                outcomes[row_index] = NOTED if modes[row_index] == KEPT else NOT_LEARNING
            self._results.count_unlearned(
                rewards, set(rewards.entries.tolist()) - set(learned.entries.tolist())
            )
        batch, has_same_epoch = self._learn_now(learned)
        if self._results.refine_outcomes is not None:
            self._results.refine_outcomes(learned, outcomes)
        # A policy that has restarted the key does not learn earlier decisions. Corrections do not report it.
        if self.restarts and rewards.previous is None:
            for row_index, is_current in zip(batch.row_indices, has_same_epoch.tolist(), strict=True):
                if not is_current:
                    outcomes[row_index] = LATE_EPOCH

    # Learning --------------------------------------------------------------------------------

    def _select_learnable(self, rewards: TrainingBatch) -> TrainingBatch:
        """Return the part of a batch that may be learned in the current mode.

        Empty while the placement is frozen; otherwise without decisions that were made while it was.
        """
        if self.learns_nothing or self._modes.mode == FROZEN:
            return rewards.select([])
        unlearned = self._open.windows.unlearned[rewards.entries]
        return rewards.select((~unlearned).nonzero()[0].tolist()) if unlearned.any() else rewards

    def _learn_batch(self, rewards: TrainingBatch, *, counts: bool = True) -> Booleans:
        """Let each policy learn the rewards of its own decisions; with ``counts`` also count the rewards.

        Returns for each decision True if its key has not restarted since.
        """
        count = len(rewards.values)
        if not count:
            return np.zeros(0, np.bool_)
        values, entries = self._results.convert_rewards(rewards), rewards.entries
        examined: Floats | None = None
        if self._windows.rule.seen == "learned":
            examined = self._open.windows.examined[entries].astype(np.float64)
        previous = None
        if rewards.previous is not None:
            previous = self._results.scale_rewards([rewards.previous] * count)
        # Some rewards are counted but not learned, such as a duel without a winner.
        rewarded = np.array([value is not None for value in values], np.bool_)
        has_same_epoch = np.ones(count, np.bool_)
        # The secondary policy first: the placement's policy determines the result.
        for policy in (self._secondary, self._policy):
            if policy is None:
                continue
            is_learned = rewarded & ~policy.columns.unlearned[entries]
            if is_learned.all():
                has_same_epoch = policy.learn(entries, values, previous, examined)
            elif is_learned.any():
                rows = np.flatnonzero(is_learned)
                has_same_epoch[rows] = policy.learn(
                    entries[rows],
                    [values[i] for i in rows.tolist()],
                    previous and previous[: len(rows)],  # all are equal
                    None if examined is None else examined[rows],
                )
        if counts:
            self._results.count_rewards(rewards)
        return has_same_epoch
