"""Learning of a placement: from feedback, and from windows that close."""

# 1. ``open_decisions``: decisions open their windows, and wait for their turn to be learned.
# 2. ``advance``: windows that close are learned with their reward so far, or with the default.
# 3. ``apply_feedback``: attributes feedback of the same time; the rule determines which rewards are final.
# 4. ``_learn_batch``: final rewards go to the policy that made the decision, and are counted.

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from tacit.core.arrays import Booleans, Ints
from tacit.learning.decisions import Decision
from tacit.service.deciders.choices import EntryFlags
from tacit.service.deciders.control_group import ControlGroup
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.log.blocks import Block, split_distinct
from tacit.service.log.rows import (
    ACTIVATE,
    KEPT,
    REWARD,
    UNLEARNED_MODES,
    DecisionRow,
    FeedbackRow,
    decode_json,
)
from tacit.service.placements.results import Results
from tacit.service.projections.attribution import FROZEN as NOT_LEARNING
from tacit.service.projections.attribution import (
    LATE_EPOCH,
    LEARNED,
    NO_CLOSED_WINDOWS,
    NOTED,
    PENDING,
    TrainingBatch,
)
from tacit.service.projections.closed_batch import ClosedBatch
from tacit.service.projections.learning_order import LearningOrder
from tacit.service.projections.projection import Projections
from tacit.service.projections.windows import AT_ONCE, LEARNED_IN_TURN, WAITING

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
        # Open decisions that were made while nothing was learned.
        self._unlearned = EntryFlags()

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
        entries = self._windows.open_windows(rows)
        self.store(entries, rows, decisions, secondary, by_control)
        self._begin_turns(entries)
        for add_decisions in self._projections.decided:
            add_decisions(rows)
        count, deferred = len(rows), rows.column("deferred")
        self.counts.decisions += count
        self.counts.since_snapshot += count
        if not any(deferred):
            self._results.count(rows)
        elif not all(deferred):
            self._results.count(rows.take([i for i, is_deferred in enumerate(deferred) if not is_deferred]))

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
        shorten, plain = self._shows.shorten, self._shows.has_plain_offers(rows)
        texts = rows.column("shown")
        self._policy.keep(entries, shorten(decisions, texts), plain=plain)
        modes = rows.column("mode")
        if self._unlearned or not set(modes).isdisjoint(UNLEARNED_MODES):
            self._unlearned.set(entries, [mode in UNLEARNED_MODES for mode in modes])
        if by_control is not None:
            self._policy.unlearned.set(entries, by_control)
        if self._secondary is None:
            return
        self._secondary.unlearned.set(entries, flags=True)
        if secondary is not None:
            if by_control is not None:
                entries, texts = entries[by_control], list(compress(texts, by_control.tolist()))
            self._secondary.keep(entries, shorten(secondary, texts), plain=plain)

    def _begin_turns(self, entries: Ints) -> None:
        """Add new open decisions to the learning order; nothing if there is none.

        Decisions made while nothing is learned leave the order at once.
        """
        order, open_decisions = self._windows.order, self._policy.open
        if order is None:
            return
        lanes = np.full(len(entries), -1, np.int64)
        # Decisions that the policy does not learn from are not counted as open in its belief.
        if order.counts_open and not self.learns_nothing and not self._modes.frozen:
            lanes = open_decisions.get_lanes(entries)
            for flags in (self._unlearned, self._policy.unlearned):
                if flags:
                    lanes = np.where(flags.get(entries), -1, lanes)
        order.begin(entries, lanes, open_decisions.get_actions(entries)[:, 0], self._windows.time)
        if self._unlearned and (unlearned := self._unlearned.get(entries)).any():
            order.skip(entries[unlearned])
            # At once, so that later decisions of the same moment do not depend on the grouping.
            self._windows.take_turns(decides=False)

    # Windows that close ----------------------------------------------------------------------

    def advance(self, time: int) -> None:
        """Close the windows that end by a time of the log, and learn and count their rewards.

        Decisions whose turn in the learning order has come are learned, too. Projections fold all closed
        decisions; signals count their feedback.
        """
        windows, signals = self._windows, self._signals
        rewards = windows.advance(time)
        if windows.turn_batch.values:
            self._learn_in_turn(windows.turn_batch)
        if windows.closed_windows is NO_CLOSED_WINDOWS:
            return
        # Rewards of all closed windows are summed, even if they are not learned: the lift must not depend on
        # the mode.
        closed = self._get_closed_batch()
        for add_closed in self._projections.closed:
            add_closed(closed)
        if not rewards.values:
            return
        # Signals count answers at the end of the window, not at the next request: a replay has other
        # requests, and must compute the same numbers.
        if signals is not None:
            keys = self._open.get_column(rewards.entries, "key")
            ends = list(map(self._open.get_deadline, rewards.entries.tolist()))
            signals.count_answers(keys, ends, self._open.is_clicked(rewards.entries))
        self.counts.outcomes[CLOSED] += len(rewards.values)
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            # A late reward must not correct a default that was never learned.
            unlearned = np.setdiff1d(rewards.entries, learned.entries)
            windows.forbid_correction(unlearned)
            self._results.count_unlearned(rewards, unlearned.tolist())
        self._learn_now(learned)

    def _get_closed_batch(self) -> ClosedBatch:
        """Return the decisions whose windows have just closed."""
        return ClosedBatch(
            self._windows.closed_windows,
            self._results,
            self._control.assigner,
            has_control_policy=self._has_control_policy,
        )

    def learn_turns(self) -> None:
        """Learn the decisions that are due in the learning order before a new decision."""
        rewards = self._windows.take_turns(decides=True)
        if rewards.values:
            self._learn_in_turn(rewards)

    def _learn_in_turn(self, rewards: TrainingBatch) -> tuple[TrainingBatch, Booleans]:
        """Learn decisions that are due in the learning order; their rewards are not counted.

        Returns the part that may be learned in the current mode, and for each of its decisions True if its
        key has not restarted since.
        """
        learned = self._select_learnable(rewards)
        return learned, self._learn_batch(learned, counts=False)

    def _learn_now(self, rewards: TrainingBatch) -> tuple[TrainingBatch, Booleans]:
        """Learn the rewards of decisions that are in no learning order, and count all rewards.

        Of decisions already learned in turn, corrections are learned, and other rewards if the order says so.
        Returns the batch that was learned, and for each of its decisions True if its key has not restarted
        since.
        """
        order = self._windows.order
        if order is None or not rewards.values:
            return rewards, self._learn_batch(rewards)
        turns = order.get_turns(rewards.entries)
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
        if entries is not None:
            return self._apply_part(feedback, entries)
        # The compiled loop takes each decision once: a second row for it depends on the outcome of the first.
        parts = split_distinct(feedback, "decision")
        return [outcome for part in parts for outcome in self._apply_part(part)]

    def _apply_part(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        """Attribute, learn and count feedback of one time on different decisions; return the outcomes."""
        outcomes, parts = self._windows.apply_feedback(feedback, entries)
        for add_feedback in self._projections.answered:
            add_feedback(feedback, outcomes)
        if NOTED in outcomes:
            self._count_activations(feedback, outcomes)
        time = feedback.column("time")[0]
        for rewards in parts:
            if self._signals is not None and rewards.previous is None:
                keys = self._open.get_column(rewards.entries, "key")
                clicked = self._open.is_clicked(rewards.entries)
                self._signals.count_answers(keys, [time] * len(keys), clicked)
            self._learn_final(rewards, outcomes)
        # Counted before turns are taken, which depend on the other feedback of the same time.
        self.counts.outcomes.update(outcomes)
        if self._windows.order is not None:
            self._learn_answered_turns(self._windows.order, parts, outcomes)
        return outcomes

    def _learn_answered_turns(
        self, order: LearningOrder, parts: Sequence[TrainingBatch], outcomes: list[str]
    ) -> None:
        """Learn the decisions that feedback has made due in the learning order; correct outcomes in place.

        "learned" becomes "pending" for decisions still in the order, and "late-epoch" for decisions whose key
        has restarted.
        """
        learned, has_same_epoch = self._learn_in_turn(self._windows.take_turns(decides=False))
        row_indices = [row_index for rewards in parts for row_index in rewards.row_indices]
        entries = np.concatenate([rewards.entries for rewards in parts] or [learned.entries[:0]])
        restarted_entries = learned.entries[~has_same_epoch] if self.restarts else learned.entries[:0]
        waits = order.get_turns(entries) == WAITING
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
                row = self._open.find_row(seq)
                self._results.count(Block.from_rows(DecisionRow, [row]))
                if self._signals is not None:
                    offer = self._shows.get_offered_indices(decode_json(row.offered))
                    self._signals.count_activation(row, offer, time)

    def _learn_final(self, rewards: TrainingBatch, outcomes: list[str]) -> None:
        """Learn and count final rewards of feedback; correct the outcomes of rewards not learned, in place.

        They become "frozen", "late-epoch", or "noted" for decisions that repeat what a user was shown.
        """
        learned = self._select_learnable(rewards)
        if len(learned.values) < len(rewards.values):
            entry_modes = self._windows.open.get_column(rewards.entries, "mode")
            modes = dict(zip(rewards.row_indices, entry_modes, strict=True))
            for row_index in set(rewards.row_indices).difference(learned.row_indices):
                outcomes[row_index] = NOTED if modes[row_index] == KEPT else NOT_LEARNING
            self._results.count_unlearned(
                rewards, set(rewards.entries.tolist()) - set(learned.entries.tolist())
            )
        batch, has_same_epoch = self._learn_now(learned)
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
        if self.learns_nothing or self._modes.frozen:
            return rewards.select([])
        if not self._unlearned or not rewards.values:
            return rewards
        return rewards.select(np.flatnonzero(~self._unlearned.get(rewards.entries)).tolist())

    def _learn_batch(self, rewards: TrainingBatch, *, counts: bool = True) -> Booleans:
        """Let each policy learn the rewards of its own decisions; with ``counts`` also count the rewards.

        Returns for each decision True if its key has not restarted since.
        """
        count = len(rewards.values)
        if not count:
            return np.zeros(0, np.bool_)
        values, entries = self._results.convert_rewards(rewards), rewards.entries
        examined, previous = self._windows.get_examined(entries), None
        if rewards.previous is not None:
            previous = self._results.scale_rewards([rewards.previous] * count)
        # Some rewards are counted but not learned, such as a duel without a winner.
        rewarded = np.array([value is not None for value in values], np.bool_)
        has_same_epoch = np.ones(count, np.bool_)
        # The secondary policy first: the placement's policy determines the result.
        for policy in (self._secondary, self._policy):
            if policy is None:
                continue
            is_learned = rewarded & ~policy.unlearned.get(entries) if policy.unlearned else rewarded
            if is_learned.all():
                has_same_epoch = policy.learn(entries, values, previous, examined)
            elif is_learned.any():
                rows = np.flatnonzero(is_learned)
                has_same_epoch[rows] = policy.learn(
                    entries[rows],
                    [values[i] for i in rows.tolist()],
                    previous and previous[: len(rows)],
                    None if examined is None else examined[rows],
                )
        if counts:
            self._results.count_rewards(rewards)
        return has_same_epoch
