"""Attribution of feedback to decisions, as a pure function of the log."""

# In the order of a decision's life:
# 1. ``open_windows``: the window of a decision opens, or, if the decision is deferred, waits for activation.
# 2. ``apply_feedback``: feedback is located and passed to the compiled loops; final rewards are returned.
# 3. ``advance``: windows close by the log's time; defaults can be corrected for a while; entries are freed.
# 4. ``export_open``, ``restore``: open windows in a snapshot.
# 5. ``ClickAttribution``: the same for lists, whose clicks are sets of positions.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.learning.decisions import none_for_nan
from tacit.service.config.schema import Rule
from tacit.service.log.blocks import Block
from tacit.service.log.requests import action_of, clicks_in
from tacit.service.log.rows import ACTIVATE, CLICKS, EXAMINED, REWARD, DecisionRow, FeedbackRow
from tacit.service.placements import windows as codes
from tacit.service.placements.learning_order import LearningOrder, Turns
from tacit.service.placements.open_decisions import Beside, OpenEntries
from tacit.service.placements.windows import LISTED, OPEN, Closing, Deadlines, Ending, FeedbackColumns

# ---- Rewards of decisions
#
# The log holds decisions, rewards, examinations and activations, each with its time; the rule attributes
# them. Time comes from the log: a window closes when a row is logged at or after its end, so folding the same
# rows gives the same state, whatever the clock.
#
# Open decisions are columns, one entry each (:mod:`tacit.service.placements.windows`), without a Python
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
_BECAME = {
    codes.LEARNED: LEARNED,
    codes.PENDING: PENDING,
    codes.REPEATED: REPEATED,
    codes.LATE: LATE,
    codes.CORRECTED: CORRECTED,
    codes.INACTIVE: INACTIVE,
    codes.NOTED: NOTED,
}


class Lessons(NamedTuple):
    """A training batch: decisions and their rewards.

    Attributes
    ----------
    entries : array of int64
        Entries of the decisions; valid until the next decisions are made.
    values : list
        Reward of each decision, or its clicked positions.
    previous : float or None
        Reward learned earlier for these decisions, to be replaced.
    row_indices : list of int
        Indices of the feedback rows; empty if the rewards come from closed windows.
    """

    entries: Ints
    values: list[Any]
    before: float | None = None
    places: Sequence[int] = ()

    def take(self, places: Sequence[int]) -> Lessons:
        """Return the decisions at some positions of the batch."""
        return Lessons(
            self.entries[places],
            [self.values[i] for i in places],
            self.before,
            [self.places[i] for i in places] if self.places else (),
        )


class Ended(NamedTuple):
    """Decisions whose windows have just closed, in the order in which they were made.

    Attributes
    ----------
    entries : array of int64
        Entries of the decisions; valid until the next decisions are made.
    rewards : array of float64
        Rewards, learned before or not; NaN if there is none.
    is_answered : array of bool
        Whether the reward is feedback, not the default.
    """

    entries: Ints
    rewards: Floats
    answered: Booleans


NONE_ENDED = Ended(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_))
NOTHING_EARNED = Lessons(np.empty(0, np.int64), [])


class Attribution(OpenEntries):
    """The open windows of one placement.

    Parameters
    ----------
    rule : Rule

    Examples
    --------
    >>> attribution = Attribution(Rule(window=30))
    >>> row = DecisionRow(1, "a", 1, 1, 100, "tomato", None, 0, 0.5, 0, None)
    >>> attribution.advance(row.time).values
    []
    >>> _ = attribution.decided(Block.of(DecisionRow, [row]))
    >>> attribution.advance(129).values, attribution.advance(130).values
    ([], [0.0])
    """

    aggregations: ClassVar[dict[str, int]] = AGGREGATIONS

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.time = 0
        self.ended = NONE_ENDED
        self.order: LearningOrder | None = None
        """Order in which decisions are learned; None if each is learned when its reward is final."""
        self.closed_turns = NOTHING_EARNED
        """Decisions whose turn to be learned came with the windows that closed last."""
        self._queue, self._deferred, self._defaulted = Deadlines(), Deadlines(), Deadlines()
        self.rule = rule

    @property
    def rule(self) -> Rule:
        """The rule of attribution; a new rule applies from now on."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        self._rule = rule
        self._params = codes.RuleParams(
            int(rule.window),
            float(rule.default),
            float(rule.lowest),
            self.aggregations.get(rule.aggregation, LISTED),
            rule.seen == "examined",
            rule.late == "correct",
        )

    @property
    def bytes(self) -> int:
        """Approximate size in bytes."""
        order = 0 if self.order is None else self.order.bytes
        return super().bytes + self._queue.bytes + self._deferred.bytes + self._defaulted.bytes + order

    @property
    def due(self) -> int | None:
        """Time at which the next window closes or the next deferred decision expires; None without any."""
        first, given_up = self._queue.first, self._deferred.first
        if first is None or given_up is None:
            return given_up if first is None else first
        return min(first, given_up)

    @property
    def closes(self) -> int | None:
        """Time at which the last open window closes; None without any."""
        return self._queue.last

    def decided(self, block: Block[DecisionRow]) -> Ints:
        """Open the windows of decisions of the same time; return their entries."""
        deadline = self.time + self._params.window
        entries = self._given(block, deadline)
        windows, deferred = self._windows, block.column("deferred")
        if not any(deferred):
            self._queue.put(deadline, entries, windows.seq[entries])
            return entries
        for waits, queue, length in (
            (0, self._queue, self.rule.window),
            (1, self._deferred, self.rule.activation),
        ):
            opened = entries[np.array(deferred) == waits]
            windows.active[opened] = not waits
            windows.deadline[opened] = self.time + length
            queue.put(self.time + length, opened, windows.seq[opened])
        return entries

    @property
    def params(self) -> codes.RuleParams:
        """The rule as parameters of the compiled loops."""
        return self._params

    def begin_turns(self, entries: Ints, lanes: Ints, arms: Ints) -> None:
        """Queue new decisions for learning.

        Parameters
        ----------
        entries : array of int64
        lanes, arms : array of int64
            Lane and arm for which each decision counts as open in the policy's belief; −1 if it does not.
        """
        if self.order is None:
            return
        self.order.describe(entries, lanes, arms)
        active = entries[self._windows.active[entries]]
        self.order.enqueue(active, self._windows, self.time)

    def take_turns(self, *, decides: bool) -> Lessons:
        """Return the decisions whose turn to be learned has come; with ``decides``, before a new decision."""
        if self.order is None:
            return NOTHING_EARNED
        if decides:
            self.order.pass_time(self.time)
        return self._lessons_in_turn(self.order.release(self._windows, self.time, decides=decides))

    def _lessons_in_turn(self, turns: Turns) -> Lessons:
        """Return the training batch of decisions whose turn has come, without those without a reward."""
        (places,) = (turns.rewards == turns.rewards).nonzero()
        if not len(places):
            return NOTHING_EARNED
        entries, rewards = turns.entries[places], turns.rewards[places].tolist()
        return Lessons(entries, self._learned_in_turn(entries, rewards))

    def _learned_in_turn(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return the values to learn of decisions whose turn has come."""
        return rewards

    def saved_turns(self, entries: Ints) -> list[Any] | None:
        """Return the turns of open decisions as JSON data; None if there is no order."""
        return None if self.order is None else self.order.columns(self._windows, entries)

    def reopen_turns(self, entries: Ints, lanes: Ints, saved: Sequence[Any], *, anew: bool) -> None:
        """Restore the turns of open decisions from a snapshot; ``is_new_learner`` counts them again."""
        if self.order is not None:
            self.order.reopen(self._windows, entries, lanes, saved, anew=anew)

    def turns_of(self, entries: Ints) -> Ints:
        """Return the turn of each decision: ``AT_ONCE``, ``WAITING`` or ``LEARNED_IN_TURN``."""
        return self._windows.turn[entries].astype(np.int64)

    # Time ------------------------------------------------------------------------------------

    def advance(self, time: int) -> Lessons:
        """Close the windows that end at or before ``time``; return the rewards to learn."""
        # Time never goes back, whatever the clock: windows close in the order of the log.
        self.time = time = max(self.time, time)
        self.ended, self.closed_turns = NONE_ENDED, NOTHING_EARNED
        if self.order is not None and (latest := self._queue.find_latest(time)) is not None:
            # Before any entry is reused. Only up to the last window that closes: a row of another placement
            # may have advanced the time, which the fold of this placement does not see.
            self.order.pass_time(latest)
            self.closed_turns = self.take_turns(decides=False)
        # The order matters: a default that can no longer be corrected must be dropped before its entry is
        # reused by a decision of this moment.
        if self._defaulted.first is not None:
            self._end_defaults(self._defaulted.take(time - self.rule.correction).entries)
        if self._deferred.first is not None and self._deferred.first <= time:
            self._abandon(self._deferred.take(time))
        if self._queue.first is None or self._queue.first > time:
            return NOTHING_EARNED
        return self._closed(self._queue.take(time))

    def _closed(self, closed: Ending) -> Lessons:
        closing = Closing.of(closed.entries)
        self._loops.close(self._windows, self._params, closing)
        self.ended = Ended(closing.entries, closing.earned, closing.answered)
        self._forget(closed)
        # NaN means nothing to learn: already settled, or not examined although the rule requires it.
        (places,) = (closing.taught == closing.taught).nonzero()
        taught = closing.entries[places]
        return Lessons(taught, self._earned(taught, closing.taught[places].tolist()))

    def _earned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return the values to learn of decisions whose windows closed."""
        return rewards

    def _forget(self, closed: Ending) -> None:
        """Drop closed decisions, except defaults that may be corrected."""
        entries = closed.entries
        # Ids are unique in a placement.
        for id in self.values(entries, "id"):
            del self._open[id]
        for entry in entries.tolist() if self._ids else ():
            self._ids.pop(entry, None)
        kept = self._windows.defaulted[entries]
        if self._params.corrects and kept.any():
            self._keep_defaults(closed.where(kept))
            entries = entries[~kept]
        self._spent.append(entries)

    def _abandon(self, given_up: Ending) -> None:
        """Drop deferred decisions that were not activated in time."""
        windows = self._windows
        # The queue also has decisions that were activated since, whose entries may be reused.
        found = given_up.where(self._waits(given_up))
        windows.open[found.entries] = False
        if len(found.entries):
            self._forget(found)

    def _waits(self, deferred: Ending) -> Booleans:
        """True for each deferred decision that has not been activated."""
        windows, at = self._windows, deferred.entries
        return np.asarray(windows.open[at] & ~windows.active[at] & (windows.seq[at] == deferred.seqs))

    def _keep_defaults(self, closed: Ending) -> None:
        """Queue decisions that got the default, for corrections, in the order in which windows close."""
        late = closed.deadlines + self.rule.correction <= self.time
        self._end_defaults(closed.entries[late])
        kept = closed.where(~late)
        self._defaulted.put(kept.deadlines, kept.entries, kept.seqs)

    def _end_defaults(self, entries: Ints) -> None:
        """Drop defaults that can no longer be corrected."""
        if len(entries):
            self._windows.defaulted[entries] = False
            self._spent.append(entries)

    def not_learned(self, entries: Ints) -> None:
        """Forbid corrections of defaults that were not learned."""
        self._windows.defaulted[entries] = False

    # Feedback --------------------------------------------------------------------------------

    def take_in(
        self, feedback: Block[FeedbackRow], entries: Ints | None = None
    ) -> tuple[list[str], list[Lessons]]:
        """Apply feedback of the same time; return the outcome of each row, and the final rewards.

        Each decision may occur once. A reward is returned as soon as no later feedback can change it;
        consecutive rewards of the same kind are in one batch.

        Parameters
        ----------
        feedback : Block
        entries : array of int64, optional
            Entries of the decisions, if they are known to be open.
        """
        if entries is None:
            entries = np.array(list(map(self._located, feedback.column("decision"))), np.int64)
        came = self._came(feedback, entries)
        if self.order is not None:
            self.order.pass_time(self.time)
        self._loops.tell(self._windows, self._params, self.time, came)
        self._note_ids(feedback, came)
        self._aggregate(feedback, came)
        if self.order is not None:
            self._note_outcomes(self.order, came)
        if ACTIVATE in feedback.column("kind"):
            self._start_windows(came)
        outcomes = list(map(_BECAME.__getitem__, came.outcomes.tolist()))
        return outcomes, list(self._to_learn(came))

    def _note_outcomes(self, order: LearningOrder, came: FeedbackColumns) -> None:
        """Record the delays of feedback in the order, and whether rewards are final."""
        (fresh,) = ((came.outcomes == codes.LEARNED) | (came.outcomes == codes.PENDING)).nonzero()
        turns = self._windows.turn[came.entries[fresh]]
        fresh, turns = fresh[turns != codes.AT_ONCE], turns[turns != codes.AT_ONCE]
        if not len(fresh):
            return
        entries = came.entries[fresh]
        order.note(self._windows, entries, np.array(self._answers_of(entries), np.bool_), self.time)
        if not order.learns_late:
            came.outcomes[fresh[turns == codes.TAUGHT]] = codes.NOTED

    def _answers_of(self, entries: Ints) -> list[bool]:
        """True for each decision whose feedback counts as a click, not as silence."""
        return self.clicked(entries)

    def _came(self, feedback: Block[FeedbackRow], entries: Ints) -> FeedbackColumns:
        kinds = np.array(list(map(KINDS.__getitem__, feedback.column("kind"))), np.int64)
        # NumPy converts None to NaN.
        return FeedbackColumns.of(entries, kinds, np.array(feedback.column("reward"), np.float64))

    def _note_ids(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        ids = feedback.column("id")
        if not any(ids):
            return
        for i, (id, entry) in enumerate(zip(ids, came.entries.tolist(), strict=True)):
            if id is not None and entry >= 0 and self._windows.open[entry]:
                self._ids.setdefault(entry, {})[id] = feedback[i].content

    def _aggregate(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        """Compute the outcomes that the compiled loop leaves open; a hook of subclasses."""

    def _start_windows(self, came: FeedbackColumns) -> None:
        """Start the windows of activated decisions."""
        started = (came.kinds == KINDS[ACTIVATE]) & (came.outcomes == codes.NOTED)
        for i in np.flatnonzero(started).tolist():
            entry = came.entries[i : i + 1]
            self._queue.put(self._windows.deadline[entry], entry, self._windows.seq[entry])
            if self.order is not None:
                self.order.enqueue(entry, self._windows, self.time)

    def _to_learn(self, came: FeedbackColumns) -> Iterator[Lessons]:
        (taught,) = came.teaches.nonzero()
        if not self._params.corrects:
            if len(taught):
                yield self._taught(came, taught)
            return
        corrects = (came.outcomes[taught] == codes.CORRECTED).tolist()
        start = 0
        # Corrections and first rewards use different kernels, and the log's order must stay: one batch for
        # each run.
        for corrected, run in groupby(corrects):
            stop = start + len(list(run))
            before = self.rule.default if corrected else None
            yield self._taught(came, taught[start:stop], before)
            start = stop

    def _taught(self, came: FeedbackColumns, places: Ints, before: float | None = None) -> Lessons:
        """Return the training batch of some feedback rows, with the reward that it replaces."""
        entries, rewards = came.entries[places], came.rewards[places].tolist()
        return Lessons(entries, self._learned(entries, rewards), before, places.tolist())

    def _learned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return the values to learn of decisions whose rewards are final."""
        return rewards

    def seen(self, entries: Ints) -> Floats | None:
        """Return 1.0 for each examined decision, 0.0 for others; None if examination is not learned."""
        return self._windows.examined[entries].astype(np.float64) if self._rule.seen == "learned" else None

    def earned(self, rewards: Lessons) -> Iterator[tuple[int, Any]]:
        """Yield the sequence number and the reward of each decision of a batch."""
        return zip(self.seqs(rewards.entries), rewards.values, strict=True)

    # Snapshots -------------------------------------------------------------------------------

    def saved(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Yield the open decisions as JSON data, in the order of their windows.

        The state is that at the time of the call, even if decisions change while the iterator is read.

        Parameters
        ----------
        extra_columns : function
            Returns additional columns for some entries.
        """
        deferred = self._deferred.all()
        waiting = deferred.entries[self._waits(deferred)]
        return self._packed(np.concatenate([self._queue.all().entries, waiting]), beside)

    def saved_defaults(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Yield the decisions whose defaults may still be corrected, as :meth:`export_open` does."""
        entries = self._defaulted.all().entries
        return self._packed(entries[self._windows.defaulted[entries]], beside)

    def restore(self, saved: Iterable[Sequence[Any]], *, defaulted: bool = False) -> Ints:
        """Restore open decisions of a snapshot, as :meth:`export_open` yielded them; return their entries.

        Parameters
        ----------
        saved : iterable of sequence
            The first fields of each are read; additional columns are ignored.
        defaulted : bool
            Whether their windows have closed with the default.
        """
        # Feedback for a default is late; its id is looked up in the store.
        entries = self._unpacked(saved, named=not defaulted)
        self._requeue(entries, defaulted)
        return entries

    def _requeue(self, entries: Ints, defaulted: bool) -> None:
        windows = self._windows
        ends = zip(windows.deadline[entries].tolist(), windows.active[entries].tolist(), strict=True)
        start = 0
        for (deadline, active), run in groupby(ends):
            stop = start + len(list(run))
            part, start = entries[start:stop], stop
            if defaulted:
                windows.open[part], windows.defaulted[part] = False, True
                for id in self.values(part, "id"):
                    del self._open[id]
                self._keep_defaults(Ending(windows.deadline[part], part, windows.seq[part]))
            else:
                queue = self._queue if active else self._deferred
                queue.put(deadline, part, windows.seq[part])


# ---- Clicks of decisions that show lists


class ClickAttribution(Attribution):
    """The open windows of a placement that shows lists: feedback is clicked positions.

    Actions other than clicks are among the positions, as in the log. The empty list means no click. The
    clicks of a decision are final when its window closes, or with the first feedback if the rule says so. A
    reward, the outcome of a pair, is final.
    """

    aggregations: ClassVar[dict[str, int]] = {}

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._clicked: dict[int, list[Any]] = {}

    def _earned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        return [self._clicked.get(entry, []) for entry in entries.tolist()]

    def _learned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        pairs = zip(entries.tolist(), rewards, strict=True)
        return [self._clicked.get(entry, reward) for entry, reward in pairs]

    def _learned_in_turn(self, entries: Ints, rewards: list[float]) -> list[Any]:
        came = ~np.isnan(self._windows.reward[entries])
        return [
            self._clicked.get(entry, reward if answered else [])
            for entry, reward, answered in zip(entries.tolist(), rewards, came.tolist(), strict=True)
        ]

    def _answers_of(self, entries: Ints) -> list[bool]:
        # Any outcome of a pair is an answer.
        return [entry not in self._clicked or bool(self._clicked[entry]) for entry in entries.tolist()]

    def _aggregate(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        for i in np.flatnonzero(came.outcomes == OPEN).tolist():
            entry, clicks = int(came.entries[i]), feedback.column("clicks")[i]
            if clicks is None:
                self._windows.reward[entry] = came.rewards[i]
                self._clicked.pop(entry, None)
            else:
                positions = json.loads(clicks)
                if self.rule.aggregation == "union":
                    together = (*self._clicked.get(entry, ()), *positions)
                    positions = [action for _, action in sorted({action_of(o): o for o in together}.items())]
                self._take_so_far(entry, positions)
            settled = clicks is None or self.rule.aggregation == "first"
            self._windows.settled[entry] = came.teaches[i] = settled
            came.outcomes[i] = codes.LEARNED if settled else codes.PENDING

    def clicked(self, entries: Ints) -> list[bool]:
        """True for each decision with a click, or with an outcome other than 0."""
        pairs = zip(entries.tolist(), super().clicked(entries), strict=True)
        return [
            bool(clicks_in(self._clicked[entry])) if entry in self._clicked else reward
            for entry, reward in pairs
        ]

    def _so_far(self, entries: Ints) -> list[Any]:
        pairs = zip(entries.tolist(), none_for_nan(self._windows.reward[entries]), strict=True)
        return [self._clicked.get(entry, reward) for entry, reward in pairs]

    def _take_so_far(self, entry: int, reward: Any) -> None:
        if isinstance(reward, list):
            # Any number marks the decision as answered.
            self._clicked[entry], reward = reward, 0.0
        super()._take_so_far(entry, reward)

    def _given(self, block: Block[DecisionRow], deadline: int, *, in_order: bool = True) -> Ints:
        entries = super()._given(block, deadline, in_order=in_order)
        for entry in entries.tolist() if self._clicked else ():
            self._clicked.pop(entry, None)
        return entries
