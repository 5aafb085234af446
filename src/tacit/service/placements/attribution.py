"""Which reward a decision earned: a pure function of the log; last, which clicks a list earned."""

# What stands here, in the order of a decision's life:
# 1. ``decided``: its window opens, or, if it is deferred, waits for an activation.
# 2. ``take_in``: feedback is located, handed to the compiled loops, and what is final is given back.
# 3. ``advance``: windows close by the log's time; defaults may be corrected for a while; entries are freed.
# 4. ``saved``, ``restore``: the open windows in a snapshot, and from one.
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

# ---- Which reward a decision earned: a pure function of the log
#
# The log holds what happened: decisions, rewards, examinations, activations, each with its time. A
# rule says what they mean. Time itself comes from the log: a window closes when a row is logged at
# or after its end, so folding the same rows gives the same state, whatever the clock said.
#
# Open decisions are columns, each an entry of its own (:mod:`tacit.service.placements.windows`):
# nothing is made for one of them alone.

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
    """Decisions and the rewards that they earned.

    Attributes
    ----------
    entries : array of int64
        Of the decisions; theirs until the next ones are decided.
    values : list
        A number for each, or the clicked positions.
    before : float or None
        What was learned for them before, and is to be taken out.
    places : list of int
        Which rows of the feedback taught this; empty where windows have closed.
    """

    entries: Ints
    values: list[Any]
    before: float | None = None
    places: Sequence[int] = ()

    def take(self, places: Sequence[int]) -> Lessons:
        """Return some of them."""
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
        Theirs until the next ones are decided.
    rewards : array of float64
        What they have earned, learned before or not; NaN for nothing.
    answered : array of bool
        Whether a reward came, and not the default.
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
        """In which decisions are learned; None where each is learned when its reward is final."""
        self.closed_turns = NOTHING_EARNED
        """What the decisions teach whose turn has come by the windows that closed last."""
        self._queue, self._deferred, self._defaulted = Deadlines(), Deadlines(), Deadlines()
        self.rule = rule

    @property
    def rule(self) -> Rule:
        """What the log means; another one holds from now on."""
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
        """How many bytes they take, nearly."""
        order = 0 if self.order is None else self.order.bytes
        return super().bytes + self._queue.bytes + self._deferred.bytes + self._defaulted.bytes + order

    @property
    def due(self) -> int | None:
        """When the next window closes, or the next deferred decision is given up."""
        first, given_up = self._queue.first, self._deferred.first
        if first is None or given_up is None:
            return given_up if first is None else first
        return min(first, given_up)

    @property
    def closes(self) -> int | None:
        """When the last window closes that is open."""
        return self._queue.last

    def decided(self, block: Block[DecisionRow]) -> Ints:
        """Open the windows of decisions made at the same time; return their entries."""
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
        """The rule as compiled loops read it."""
        return self._params

    def begin_turns(self, entries: Ints, lanes: Ints, arms: Ints) -> None:
        """Let decisions that were just made wait for their turn to be learned.

        Parameters
        ----------
        entries : array of int64
        lanes, arms : array of int64
            For which key and arm they count in what is believed; −1 where they do not.
        """
        if self.order is None:
            return
        self.order.describe(entries, lanes, arms)
        active = entries[self._windows.active[entries]]
        self.order.enqueue(active, self._windows, self.time)

    def take_turns(self, *, decides: bool) -> Lessons:
        """Return what the decisions teach whose turn has come: more of them where the next one is made."""
        if self.order is None:
            return NOTHING_EARNED
        if decides:
            self.order.pass_time(self.time)
        return self._lessons_in_turn(self.order.release(self._windows, self.time, decides=decides))

    def _lessons_in_turn(self, turns: Turns) -> Lessons:
        """Return what decisions teach in their turn; nothing where they were to be examined, and were not."""
        (places,) = (turns.rewards == turns.rewards).nonzero()
        if not len(places):
            return NOTHING_EARNED
        entries, rewards = turns.entries[places], turns.rewards[places].tolist()
        return Lessons(entries, self._learned_in_turn(entries, rewards))

    def _learned_in_turn(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return what decisions have earned when their turn comes."""
        return rewards

    def saved_turns(self, entries: Ints) -> list[Any] | None:
        """Return what is known of the turns of open decisions, as what JSON can hold; None without turns."""
        return None if self.order is None else self.order.columns(self._windows, entries)

    def reopen_turns(self, entries: Ints, lanes: Ints, saved: Sequence[Any], *, anew: bool) -> None:
        """Let open decisions of a snapshot wait for their turns; of a new learner, count them anew."""
        if self.order is not None:
            self.order.reopen(self._windows, entries, lanes, saved, anew=anew)

    def turns_of(self, entries: Ints) -> Ints:
        """Return of decisions whether they are learned at once, wait for their turn, or had it."""
        return self._windows.turn[entries].astype(np.int64)

    # Time ------------------------------------------------------------------------------------

    def advance(self, time: int) -> Lessons:
        """Close the windows that end at or before ``time``; return what they teach."""
        # Time never goes back, whatever a clock says: the order in which windows close is that of the log.
        self.time = time = max(self.time, time)
        self.ended, self.closed_turns = NONE_ENDED, NOTHING_EARNED
        if self.order is not None and (latest := self._queue.find_latest(time)) is not None:
            # Before any entry is given to another decision. Up to the last window that closes, and not to
            # now: the row that says that it closed may be another placement's, which the fold does not see.
            self.order.pass_time(latest)
            self.closed_turns = self.take_turns(decides=False)
        # Three queues, in this order: a default that can be corrected no longer must be gone before its entry
        # is given to a decision that is made at this moment.
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
        # NaN says that there is nothing to learn: already settled, or not examined where that is asked for.
        (places,) = (closing.taught == closing.taught).nonzero()
        taught = closing.entries[places]
        return Lessons(taught, self._earned(taught, closing.taught[places].tolist()))

    def _earned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return what decisions have earned whose windows closed."""
        return rewards

    def _forget(self, closed: Ending) -> None:
        """Forget closed decisions, but for defaults that may be corrected."""
        entries = closed.entries
        # An id is unique in a placement, so whatever it names is this decision.
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
        """Give up deferred decisions that nobody has activated."""
        windows = self._windows
        # The queue still has those that were activated since; and their entries may have gone to others.
        found = given_up.where(self._waits(given_up))
        windows.open[found.entries] = False
        if len(found.entries):
            self._forget(found)

    def _waits(self, deferred: Ending) -> Booleans:
        """Return of each of some decisions whether nobody has activated it."""
        windows, at = self._windows, deferred.entries
        return np.asarray(windows.open[at] & ~windows.active[at] & (windows.seq[at] == deferred.seqs))

    def _keep_defaults(self, closed: Ending) -> None:
        """Remember decisions that earned the default, in the order in which windows close."""
        late = closed.deadlines + self.rule.correction <= self.time
        self._end_defaults(closed.entries[late])
        kept = closed.where(~late)
        self._defaulted.put(kept.deadlines, kept.entries, kept.seqs)

    def _end_defaults(self, entries: Ints) -> None:
        """Forget defaults that can no longer be corrected."""
        if len(entries):
            self._windows.defaulted[entries] = False
            self._spent.append(entries)

    def not_learned(self, entries: Ints) -> None:
        """Keep defaults from being corrected that were not learned."""
        self._windows.defaulted[entries] = False

    # Feedback --------------------------------------------------------------------------------

    def take_in(
        self, feedback: Block[FeedbackRow], entries: Ints | None = None
    ) -> tuple[list[str], list[Lessons]]:
        """Take in feedback of one moment; return what became of each, and what is to be learned.

        No decision may come twice. A reward is given as soon as no later feedback could change
        it; those that follow each other are together.

        Parameters
        ----------
        feedback : Block
        entries : array of int64, optional
            Of the decisions, where they are known to be open.
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
        """Let the order know what came for decisions: how long it took, and whether it is final."""
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
        """Return for each decision whether what came for it is an answer, and not silence."""
        return self.clicked(entries)

    def _came(self, feedback: Block[FeedbackRow], entries: Ints) -> FeedbackColumns:
        kinds = np.array(list(map(KINDS.__getitem__, feedback.column("kind"))), np.int64)
        # NumPy takes None for NaN.
        return FeedbackColumns.of(entries, kinds, np.array(feedback.column("reward"), np.float64))

    def _note_ids(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        ids = feedback.column("id")
        if not any(ids):
            return
        for i, (id, entry) in enumerate(zip(ids, came.entries.tolist(), strict=True)):
            if id is not None and entry >= 0 and self._windows.open[entry]:
                self._ids.setdefault(entry, {})[id] = feedback[i].content

    def _aggregate(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        """Work out what the compiled loop leaves to the kind of placement."""

    def _start_windows(self, came: FeedbackColumns) -> None:
        """Begin the windows of decisions that were activated."""
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
        # Corrections and first rewards are taught by different kernels, and their order is the log's: a run
        # each.
        for corrected, run in groupby(corrects):
            stop = start + len(list(run))
            before = self.rule.default if corrected else None
            yield self._taught(came, taught[start:stop], before)
            start = stop

    def _taught(self, came: FeedbackColumns, places: Ints, before: float | None = None) -> Lessons:
        """Return what some rows of feedback taught, in place of what was learned before."""
        entries, rewards = came.entries[places], came.rewards[places].tolist()
        return Lessons(entries, self._learned(entries, rewards), before, places.tolist())

    def _learned(self, entries: Ints, rewards: list[float]) -> list[Any]:
        """Return what decisions have earned that are to be learned at once."""
        return rewards

    def seen(self, entries: Ints) -> Floats | None:
        """Return of each decision whether it was examined, 1 or 0; None where that is not learned."""
        return self._windows.examined[entries].astype(np.float64) if self._rule.seen == "learned" else None

    def earned(self, rewards: Lessons) -> Iterator[tuple[int, Any]]:
        """Yield the numbers of decisions in the log, and what each has earned."""
        return zip(self.seqs(rewards.entries), rewards.values, strict=True)

    # Snapshots -------------------------------------------------------------------------------

    def saved(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Yield the open decisions as what JSON can hold, in the order of their windows.

        They are those of the moment of the call, however much happens before all are given.

        Parameters
        ----------
        beside : function
            Returns columns of what is to be saved beside some entries.
        """
        deferred = self._deferred.all()
        waiting = deferred.entries[self._waits(deferred)]
        return self._packed(np.concatenate([self._queue.all().entries, waiting]), beside)

    def saved_defaults(self, beside: Beside) -> Iterator[tuple[Any, ...]]:
        """Yield the decisions whose defaults may still be corrected, as :meth:`saved` does."""
        entries = self._defaulted.all().entries
        return self._packed(entries[self._windows.defaulted[entries]], beside)

    def restore(self, saved: Iterable[Sequence[Any]], *, defaulted: bool = False) -> Ints:
        """Take over open decisions of a snapshot, as :meth:`saved` gave them; return their entries.

        Parameters
        ----------
        saved : iterable of sequence
            Of each, what comes first is read.
        defaulted : bool
            Whether their windows have closed, and they earned a default.
        """
        # Feedback for a default is late, and its id is looked up in the store.
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


# ---- Which clicks a decision that showed a list earned


class ClickAttribution(Attribution):
    """The open windows of a placement that shows lists: what came back is clicked positions.

    Other actions than clicks stand among them, as the log keeps them.

    No click is an answer too: the empty list. Which clicks a decision had is known when its window
    closes, unless the first feedback is to hold them all. A reward, which stands for the outcome
    of a pair, is final.
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
        """Return for each decision whether there was a click, or an outcome that is not 0."""
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
            # Any number says that something came.
            self._clicked[entry], reward = reward, 0.0
        super()._take_so_far(entry, reward)

    def _given(self, block: Block[DecisionRow], deadline: int, *, in_order: bool = True) -> Ints:
        entries = super()._given(block, deadline, in_order=in_order)
        for entry in entries.tolist() if self._clicked else ():
            self._clicked.pop(entry, None)
        return entries
