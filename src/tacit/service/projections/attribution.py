"""Attribution of feedback to decisions, as a pure function of the log."""

# 1. ``RewardFeedback``, ``AmountFeedback``, ``ClickFeedback``: the value to learn, of rewards, of a metric's
#    amounts, and of clicks in a list.
# ``Attribution``, in the order of a decision's life:
# 1. ``open_windows``: the window of a decision opens, or, if the decision is deferred, waits for activation.
# 2. ``apply_feedback``: feedback is located and passed to the compiled loops; final rewards are returned.
# 3. ``advance``: windows close by the log's time; defaults can be corrected for a while; entries are freed.
# 4. ``export_open``, ``restore``: open windows in a snapshot.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from tacit.core.arrays import Booleans, Ints
from tacit.service.config.holdout import MetricConfig
from tacit.service.config.schema import PlacementConfig, Rule
from tacit.service.deciders import windows as codes
from tacit.service.deciders.open_decisions import ExtraColumns, OpenDecisions
from tacit.service.deciders.windows import LISTED, OPEN, Closing, DeadlineQueue, DueDecisions, FeedbackColumns
from tacit.service.log.blocks import Block
from tacit.service.log.requests import get_click_reward, parse_action
from tacit.service.log.rows import ACTIVATE, CLICKS, EXAMINED, REWARD, DecisionRow, FeedbackRow, decode_json
from tacit.service.projections.learning_order import EMPTY_BATCH, LearningOrder, TrainingBatch

# ---- Rewards of decisions
#
# The log holds decisions, rewards, examinations and activations, each with its time; the rule attributes
# them. Time comes from the log: a window closes when a row is logged at or after its end, so folding the same
# rows gives the same state, whatever the clock.
#
# Open decisions are columns, one entry each (:mod:`tacit.service.deciders.windows`), without a Python
# object for a single decision.

LEARNED = "learned"
PENDING = "pending"
REPEATED = "repeated"
LATE = "late"
LATE_EPOCH = "late-epoch"
CORRECTED = "corrected"
INACTIVE = "inactive"
FROZEN = "frozen"
NOTED = "noted"
TIED = "tied"
HELD_OUT = "held-out"
DUPLICATE = "duplicate"

KINDS = {REWARD: codes.REWARD, CLICKS: codes.CLICKS, EXAMINED: codes.EXAMINED, ACTIVATE: codes.ACTIVATE}
AGGREGATIONS = {"first": codes.FIRST, "last": codes.LAST, "sum": codes.SUM, "max": codes.MAX}
_OUTCOMES = LEARNED, PENDING, REPEATED, LATE, CORRECTED, INACTIVE, NOTED
"""Outcomes by their codes in the compiled loops."""
NO_CLOSED_WINDOWS = Closing.from_entries(np.empty(0, np.int64))


# ---- Kinds of feedback


class RewardFeedback:
    """Feedback that is a reward."""

    aggregations: ClassVar[dict[str, int]] = AGGREGATIONS

    def read_rewards(self, feedback: Block[FeedbackRow]) -> list[float | None]:
        """Return the logged reward of each feedback; None where there is none."""
        return feedback.column("reward")

    def get_values(self, entries: Ints, rewards: list[float], open: OpenDecisions) -> list[Any]:
        """Return the value that each decision's policy learns: here its reward."""
        return rewards

    def is_answer(self, entries: Ints, open: OpenDecisions) -> list[bool]:
        """Return for each decision whether its feedback counts as a click, as opposed to silence."""
        return open.is_clicked(entries)

    def aggregate(
        self, feedback: Block[FeedbackRow], columns: FeedbackColumns, open: OpenDecisions, aggregation: str
    ) -> None:
        """Set outcomes, in place, that the compiled loop leaves open; rewards have none."""


class AmountFeedback(RewardFeedback):
    """Feedback with an amount of the metric that is learned.

    The log holds rewards only of metrics with a largest amount that begin at 0 or above.

    Parameters
    ----------
    name : str
    metric : MetricConfig
    """

    def __init__(self, name: str, metric: MetricConfig) -> None:
        self._name, self._metric = name, metric

    def read_rewards(self, feedback: Block[FeedbackRow]) -> list[float | None]:
        """Return the reward of each feedback, as logged or by its amount; None where there is none."""
        rewards, contents = feedback.column("reward"), feedback.column("metrics")
        if not self._metric.attribution and None not in rewards:
            return rewards
        return [
            self._read_amount(content, reward) if reward is None or self._metric.attribution else reward
            for reward, content in zip(rewards, contents, strict=True)
        ]

    def _read_amount(self, content: str | None, reward: float | None) -> float | None:
        """Return the reward for the metric's amount in the JSON of feedback.

        The logged reward without an amount.
        """
        amounts = decode_json(content) or {}
        return self._metric.to_reward(amounts[self._name]) if self._name in amounts else reward


class ClickFeedback(RewardFeedback):
    """Feedback that is clicked positions of a list.

    Actions other than clicks are among the positions, as in the log. The empty list means no click. The
    clicks of a decision are final when its window closes, or with the first feedback if the rule says so. A
    reward, the outcome of a pair, is final.
    """

    aggregations: ClassVar[dict[str, int]] = {}

    def get_values(self, entries: Ints, rewards: list[float], open: OpenDecisions) -> list[Any]:
        """Return the value that each decision's policy learns: clicked positions, or the outcome of a duel.

        Without feedback it is the empty list.
        """
        is_answered = ~np.isnan(open.windows.reward[entries])
        return [
            open.clicks.get(entry, reward if answered else [])
            for entry, reward, answered in zip(entries.tolist(), rewards, is_answered.tolist(), strict=True)
        ]

    def is_answer(self, entries: Ints, open: OpenDecisions) -> list[bool]:
        """Return for each decision whether it has a clicked position or any outcome of a duel."""
        # Any outcome of a pair is an answer.
        return [bool(open.clicks.get(entry, True)) for entry in entries.tolist()]

    def aggregate(
        self, feedback: Block[FeedbackRow], columns: FeedbackColumns, open: OpenDecisions, aggregation: str
    ) -> None:
        """Store the clicks or the duel's outcome of feedback with its decision.

        Set ``outcomes`` and ``is_final``.

        The outcome is learned if no later feedback can change it, else pending. With ``union``, clicks are
        added to earlier ones.
        """
        entries, all_clicks = columns.entries.tolist(), feedback.column("clicks")
        for i in np.flatnonzero(columns.outcomes == OPEN).tolist():
            entry, clicks = entries[i], all_clicks[i]
            if clicks is None:
                open.set_feedback(entry, columns.rewards[i])
            else:
                positions = decode_json(clicks)
                if aggregation == "union":
                    # The largest reward of a position is the last.
                    all_positions = sorted((*open.clicks.get(entry, ()), *positions), key=get_click_reward)
                    positions = [
                        action for _, action in sorted({parse_action(o): o for o in all_positions}.items())
                    ]
                open.set_feedback(entry, positions)
            settled = clicks is None or aggregation == "first"
            open.windows.settled[entry] = columns.is_final[i] = settled
            columns.outcomes[i] = codes.LEARNED if settled else codes.PENDING


# ---- Open windows


class Attribution:
    """The open windows of one placement.

    Parameters
    ----------
    rule : Rule
    form : RewardFeedback, optional
        The kind of feedback; rewards by default.

    Attributes
    ----------
    open : OpenDecisions
        The open decisions.
    form : RewardFeedback
        The kind of feedback.
    time : int
        Time of the log, in microseconds since 1970.
    closed_windows : Closing
        Decisions whose windows closed last.
    order : LearningOrder or None
        Order in which decisions are learned; None if each is learned when its reward is final.
    params : RuleParams
        The rule as parameters of the compiled loops.
    deferred_count : int
        Number of deferred decisions that wait for their activation: no window of theirs is open.
    turn_batch : TrainingBatch
        Decisions whose turn to be learned came with the windows that closed last.

    Examples
    --------
    >>> attribution = Attribution(Rule(window=30))
    >>> row = DecisionRow(1, "a", 1, 1, 100, "tomato", None, 0, 0.5, 0, None)
    >>> attribution.advance(row.time).values
    []
    >>> _ = attribution.open_windows(Block.from_rows(DecisionRow, [row]))
    >>> attribution.advance(129).values, attribution.advance(130).values
    ([], [0.0])
    """

    def __init__(self, rule: Rule, form: RewardFeedback | None = None) -> None:
        """Begin without open windows, at time 0."""
        self.open, self.form, self._loops = OpenDecisions(), form or RewardFeedback(), codes.compile_loops()
        self.time = 0
        self.closed_windows, self.turn_batch = NO_CLOSED_WINDOWS, EMPTY_BATCH
        self.order: LearningOrder | None = None
        self._queue, self._deferred, self._defaulted = DeadlineQueue(), DeadlineQueue(), DeadlineQueue()
        self.rule, self.deferred_count = rule, 0

    @property
    def rule(self) -> Rule:
        """The rule of attribution; a new rule applies from now on."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        """Set the rule and its parameters for the compiled loops; open windows keep their deadlines."""
        self._rule, self.open.zero = rule, rule.zero
        self.params = codes.RuleParams(
            int(rule.window),
            float(rule.default),
            float(rule.lowest),
            self.form.aggregations.get(rule.aggregation, LISTED),
            rule.seen == "examined",
            rule.late == "correct",
            rule.highest,
            rule.zero,
        )

    @property
    def bytes(self) -> int:
        """Approximate size of open windows, queues and learning order in bytes."""
        order = 0 if self.order is None else self.order.bytes
        return self.open.bytes + self._queue.bytes + self._deferred.bytes + self._defaulted.bytes + order

    @property
    def next_deadline(self) -> int | None:
        """Time at which the next window closes or the next deferred decision expires.

        None if none is open.
        """
        first, first_deferred = self._queue.first, self._deferred.first
        if first is None or first_deferred is None:
            return first_deferred if first is None else first
        return min(first, first_deferred)

    @property
    def last_deadline(self) -> int | None:
        """Time at which the last open window closes; None without any."""
        return self._queue.last

    def open_windows(self, block: Block[DecisionRow]) -> Ints:
        """Add decisions made at the current time, with their deadlines; return their entries.

        The window of a deferred decision opens when it is activated; until then its deadline is the end of
        the time for its activation.
        """
        deadline = self.time + self.params.window
        entries = self.open.add(block, deadline)
        windows, deferred = self.open.windows, block.column("deferred")
        if not any(deferred):
            self._queue.insert(deadline, entries, windows.seq[entries])
            return entries
        for is_deferred, queue, length in (
            (0, self._queue, self.rule.window),
            (1, self._deferred, self.rule.activation),
        ):
            queued = entries[np.array(deferred) == is_deferred]
            windows.active[queued] = not is_deferred
            self.deferred_count += is_deferred * len(queued)
            windows.deadline[queued] = self.time + length
            queue.insert(self.time + length, queued, windows.seq[queued])
        return entries

    # Time ------------------------------------------------------------------------------------

    def advance(self, time: int) -> TrainingBatch:
        """Move the log's time to ``time`` and close the windows that end by then.

        Return the rewards to learn.

        Also sets ``closed_windows`` and ``turn_batch``, and drops expired deferred decisions and defaults
        that can no longer be corrected. An earlier ``time`` than the current one counts as the current one.
        """
        # Time never goes back, whatever the clock: windows close in the order of the log.
        self.time = time = max(self.time, time)
        self.closed_windows, self.turn_batch = NO_CLOSED_WINDOWS, EMPTY_BATCH
        closes = self._queue.first is not None and self._queue.first <= time
        if self.order is not None and closes:
            # Before any entry is reused. Only up to the last window that closes: a row of another placement
            # may have advanced the time, which the fold of this placement does not see.
            self.order.update_open_counts(self._queue.find_latest(time))
            self.turn_batch = self.order.take_turns(self.time)
        # The order matters: a default that can no longer be corrected must be dropped before its entry is
        # reused by a decision of this moment.
        if self._defaulted.first is not None:
            self._end_defaults(self._defaulted.pop_due(time - self.rule.correction).entries)
        if self._deferred.first is not None and self._deferred.first <= time:
            due = self._deferred.pop_due(time)
            # The queue also has decisions that were activated since, whose entries may be reused.
            abandoned = due.select(self._is_deferred(due))
            self.open.windows.open[abandoned.entries] = False
            self.deferred_count -= len(abandoned.entries)
            if len(abandoned.entries):
                self._forget(abandoned)
        return self._close_windows(self._queue.pop_due(time)) if closes else EMPTY_BATCH

    def _close_windows(self, closed: DueDecisions) -> TrainingBatch:
        """Compute the final rewards of due decisions, set ``closed_windows`` and drop the decisions.

        Returns the batch of the decisions that have not been learned yet.
        """
        self.closed_windows = closing = Closing.from_entries(closed.entries)
        self._loops.close(self.open.windows, self.params, closing)
        self._forget(closed)
        # NaN means nothing to learn: already settled, or not examined although the rule requires it.
        (rows,) = (closing.rewards_to_learn == closing.rewards_to_learn).nonzero()
        entries, rewards = closing.entries[rows], closing.rewards_to_learn[rows].tolist()
        return TrainingBatch(entries, self.form.get_values(entries, rewards, self.open))

    def _forget(self, closed: DueDecisions) -> None:
        """Drop closed decisions and free their entries.

        Defaults that may be corrected move to their own queue.
        """
        entries = closed.entries
        self.open.forget_ids(entries)
        is_correctable = self.open.windows.defaulted[entries]
        if self.params.corrects and is_correctable.any():
            self._queue_defaults(closed.select(is_correctable))
            entries = entries[~is_correctable]
        self.open.mark_free(entries)

    def _is_deferred(self, deferred: DueDecisions) -> Booleans:
        """Return for each decision of the deferred queue whether it is still not activated."""
        # An entry may hold another decision by now, of another sequence number.
        windows, at = self.open.windows, deferred.entries
        return np.asarray(windows.open[at] & ~windows.active[at] & (windows.seq[at] == deferred.seqs))

    def _queue_defaults(self, closed: DueDecisions) -> None:
        """Queue decisions that closed with the default, for corrections.

        Drop the ones that are already too late.
        """
        late = closed.deadlines + self.rule.correction <= self.time
        self._end_defaults(closed.entries[late])
        correctable = closed.select(~late)
        self._defaulted.insert(correctable.deadlines, correctable.entries, correctable.seqs)

    def _end_defaults(self, entries: Ints) -> None:
        """Drop defaults that can no longer be corrected, and free their entries."""
        if len(entries):
            self.open.windows.defaulted[entries] = False
            self.open.mark_free(entries)

    # Feedback --------------------------------------------------------------------------------

    def apply_feedback(
        self, feedback: Block[FeedbackRow], entries: Ints | None = None
    ) -> tuple[list[str], list[TrainingBatch]]:
        """Apply feedback of the same time to open windows; return the outcomes and the final rewards.

        There is one outcome for each row. Each decision may occur once. A reward is returned as soon as no
        later feedback can change it; consecutive rewards of the same kind are in one batch.

        Parameters
        ----------
        feedback : Block
        entries : array of int64, optional
            Entries of the decisions, if they are known to be open.
        """
        if entries is None:
            entries = np.array(list(map(self.open.find_entry, feedback.column("decision"))), np.int64)
        kinds, ids = feedback.column("kind"), feedback.column("id")
        # NumPy converts None to NaN.
        rewards = np.array(self.form.read_rewards(feedback), np.float64)
        kind_codes = np.array([KINDS[kind] for kind in kinds], np.int64)
        outputs = np.empty(len(kinds), np.int64), np.empty(len(kinds), np.bool_)
        columns = FeedbackColumns(entries, kind_codes, rewards, *outputs)
        if self.order is not None:
            self.order.update_open_counts(self.time)
        self._loops.apply(self.open.windows, self.params, self.time, columns)
        for row, entry in zip(feedback, entries.tolist(), strict=True) if any(ids) else ():
            # By their ids, to recognize repeated requests.
            if row.id is not None and entry >= 0 and self.open.windows.open[entry]:
                self.open.named_feedback.setdefault(entry, {})[row.id] = row.content
        if self.params.aggregation == LISTED:
            self.form.aggregate(feedback, columns, self.open, self._rule.aggregation)
        if self.order is not None:
            self._note_outcomes(self.order, columns)
        if ACTIVATE in kinds:
            self._start_windows(columns)
        outcomes = list(map(_OUTCOMES.__getitem__, columns.outcomes.tolist()))
        return outcomes, list(self._split_batches(columns))

    def _note_outcomes(self, order: LearningOrder, columns: FeedbackColumns) -> None:
        """Pass feedback on queued or learned decisions to the learning order.

        Outcomes become "noted" for decisions that are already learned, unless the order learns late feedback.
        """
        (fresh,) = ((columns.outcomes == codes.LEARNED) | (columns.outcomes == codes.PENDING)).nonzero()
        turns = self.open.windows.turn[columns.entries[fresh]]
        fresh, turns = fresh[turns != codes.AT_ONCE], turns[turns != codes.AT_ONCE]
        if not len(fresh):
            return
        entries = columns.entries[fresh]
        is_answer = np.array(self.form.is_answer(entries, self.open), np.bool_)
        order.note_feedback(entries, is_answer, self.time)
        if not order.learns_late:
            columns.outcomes[fresh[turns == codes.LEARNED_IN_TURN]] = codes.NOTED

    def _start_windows(self, columns: FeedbackColumns) -> None:
        """Queue the windows of the decisions that feedback has just activated, also in the learning order."""
        windows = self.open.windows
        started = (columns.kinds == KINDS[ACTIVATE]) & (columns.outcomes == codes.NOTED)
        for i in np.flatnonzero(started).tolist():
            entry = columns.entries[i : i + 1]
            self._queue.insert(windows.deadline[entry], entry, windows.seq[entry])
            self.deferred_count -= 1
            if self.order is not None:
                self.order.enqueue(entry, self.time)

    def _split_batches(self, columns: FeedbackColumns) -> Iterator[TrainingBatch]:
        """Yield the final rewards in the log's order; each run of corrections or other rewards is a batch."""
        (final,) = columns.is_final.nonzero()
        corrects = (columns.outcomes[final] == codes.CORRECTED).tolist()
        start = 0
        # Corrections and first rewards use different kernels, and the log's order must stay: one batch for
        # each run.
        for corrected, run in groupby(corrects):
            rows = final[start : start + len(list(run))]
            start += len(rows)
            entries, rewards = columns.entries[rows], columns.rewards[rows].tolist()
            values = self.form.get_values(entries, rewards, self.open)
            yield TrainingBatch(entries, values, self._rule.default if corrected else None, rows.tolist())

    def iterate_rewards(self, rewards: TrainingBatch) -> Iterator[tuple[int, Any]]:
        """Yield (row number in the log, reward) of each decision of a batch."""
        return zip(self.open.windows.seq[rewards.entries].tolist(), rewards.values, strict=True)

    # Snapshots -------------------------------------------------------------------------------

    def export_open(self, extra_columns: ExtraColumns) -> Iterator[list[list[Any]]]:
        """Return an iterator over pieces of the open decisions as columns, in the order of their windows.

        It yields the state at the time of the call, even if decisions change meanwhile.

        Parameters
        ----------
        extra_columns : function
            Returns additional columns for some entries.
        """
        deferred = self._deferred.all()
        waiting = deferred.entries[self._is_deferred(deferred)]
        return self.open.export(np.concatenate([self._queue.all().entries, waiting]), extra_columns)

    def export_defaults(self, extra_columns: ExtraColumns) -> Iterator[list[list[Any]]]:
        """Yield the decisions whose defaults may still be corrected, in the form of :meth:`export_open`."""
        entries = self._defaulted.all().entries
        return self.open.export(entries[self.open.windows.defaulted[entries]], extra_columns)

    def restore(
        self, saved: Sequence[list[Any]], *, defaulted: bool = False
    ) -> tuple[Ints, Block[DecisionRow]]:
        """Restore open decisions of a snapshot; return their entries and their rows.

        Parameters
        ----------
        saved : sequence of list
            A piece of :meth:`export_open`; additional columns are ignored.
        defaulted : bool
            Whether their windows have closed with the default.
        """
        # Feedback for a default is late; its id is looked up in the store.
        entries, rows = self.open.restore(saved, named=not defaulted)
        windows = self.open.windows
        active = windows.active[entries]
        if defaulted:
            windows.open[entries], windows.defaulted[entries] = False, True
            self.open.forget_ids(entries)
            self._queue_defaults(DueDecisions(windows.deadline[entries], entries, windows.seq[entries]))
            return entries, rows
        for queue, part in (self._queue, entries[active]), (self._deferred, entries[~active]):
            queue.insert(windows.deadline[part], part, windows.seq[part])
        self.deferred_count += int(np.count_nonzero(~active))
        return entries, rows


def make_attribution(make: Callable[[Rule], Attribution], config: PlacementConfig) -> Attribution:
    """Return the attribution for a placement's feedback.

    If the configuration names a learned metric, its amounts are the feedback; otherwise ``make``, the
    function of the placement's kind, returns it.
    """
    if config.learned is None:
        return make(config.rule)
    return Attribution(config.rule, AmountFeedback(config.learned, config.metrics[config.learned]))


def attribute_clicks(rule: Rule) -> Attribution:
    """Return an attribution of clicks in lists, without open windows."""
    return Attribution(rule, ClickFeedback())
