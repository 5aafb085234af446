"""Which reward a decision earned: a pure function of the log.

The log holds what happened: decisions, rewards, examinations, activations, each with its time. A
rule says what they mean. Time itself comes from the log: a window closes when a row is logged at
or after its end, so folding the same rows gives the same state, whatever the clock said.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Literal, NamedTuple

import msgspec

from tacit.decisions import Decision
from tacit.service.store import ACTIVATE, EXAMINED, REWARD, DecisionRow, FeedbackRow

Aggregation = Literal["first", "last", "sum", "max"]
ClickAggregation = Literal["union", "first", "last"]

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
DUPLICATE = "duplicate"

OUTCOMES = {
    LEARNED: "it taught the policy",
    PENDING: "it counts, and is learned when the decision's window closes",
    REPEATED: "the decision had its reward already: recorded only",
    LATE: "it came after the decision's window: recorded only",
    CORRECTED: "it came after the window, and took the place of the default",
    LATE_EPOCH: "the key has restarted since the decision: recorded only",
    INACTIVE: "the decision was deferred and not activated: recorded only",
    FROZEN: "the placement does not learn at present: recorded only",
    NOTED: "an examination or activation, taken in",
    TIED: "the duel was a tie, from which nothing is learned here: recorded only",
    DUPLICATE: "this very feedback was recorded before: nothing was done",
}
"""What became of feedback."""


class Rule(msgspec.Struct, frozen=True):
    """How rewards are attributed to decisions.

    Attributes
    ----------
    window : int
        Microseconds from a decision (from its activation, if it was deferred) in which feedback
        counts.
    default : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum``
        (at most 1, at least ``lowest``), or the ``max``; where clicks are told by their
        positions, the ``union``.
    seen : str
        Which decisions without a reward earn the default: all that were ``decided``, or only those
        ``examined``; the others teach nothing.
    late : str
        What a reward after the window does: ``record``, or ``correct`` the default, if it is the
        first one.
    correction : int
        Microseconds after the end of a window in which it may be corrected.
    activation : int
        Microseconds in which a deferred decision must be activated; else it never counts.
    name : str
    version : int
        Of the meaning of all this.
    lowest : float
        The least reward, in [−1, 0]. A reward r is learned as (r − lowest)/(1 − lowest).
    """

    window: int = 30_000_000
    default: float = 0.0
    aggregation: Aggregation | ClickAggregation = "first"
    seen: Literal["decided", "examined"] = "decided"
    late: Literal["record", "correct"] = "record"
    activation: int = 3_600_000_000
    correction: int = 3_600_000_000
    name: str = "window"
    version: int = 1
    lowest: float = 0.0


class Open(msgspec.Struct, eq=False):
    """A decision whose window is open.

    Attributes
    ----------
    row : DecisionRow
    decision : Decision
        The same for the learner.
    shadow : Decision or None
        The same for the second policy's learner.
    deadline : int
    active : bool
    reward : float, list of int or None
        Where clicks are told by their positions, these positions.
    examined : bool
    settled : bool
        It was learned, and nothing can change that.
    told : int
        How much feedback came.
    ids : dict of str to (kind, reward, clicks)
        What came with an id.
    """

    row: DecisionRow
    decision: Any
    shadow: Any
    deadline: int
    active: bool
    reward: Any = None
    examined: bool = False
    settled: bool = False
    told: int = 0
    ids: dict[str, tuple[str, float | None, str | None]] | None = None


class Lesson(NamedTuple):
    """A decision and the reward that it earned, in place of the one that was learned before."""

    open: Open
    reward: Any
    before: float | None = None


class Attribution:
    """The open windows of one placement.

    Parameters
    ----------
    rule : Rule

    Examples
    --------
    >>> attribution = Attribution(Rule(window=30))
    >>> row = DecisionRow(1, "a", 1, 1, 100, "tomato", None, 0, 0.5, 0, None)
    >>> attribution.advance(row.time)
    []
    >>> _ = attribution.decided(row, decision=None)
    >>> attribution.advance(129), attribution.advance(130)[0].reward
    ([], 0.0)
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.time = 0
        self._by_seq: dict[int, Open] = {}
        self._by_id: dict[str, Open] = {}
        self.find = self._by_id.get
        """Return an open decision by its id, or None."""
        self._windows: deque[Open] = deque()
        self._deferred: deque[Open] = deque()
        self._defaulted: dict[int, Open] = {}

    def __len__(self) -> int:
        return len(self._by_seq)

    @property
    def due(self) -> int | None:
        """When the next window closes, or the next deferred decision is given up."""
        firsts = [opens[0].deadline for opens in (self._windows, self._deferred) if opens]
        return min(firsts, default=None)

    @property
    def oldest(self) -> int | None:
        """The place in the log of the first decision from which something may still be learned."""
        return min((*self._by_seq, *self._defaulted), default=None)

    def forget_shadow(self) -> None:
        """Let no open decision teach the second policy."""
        for open in (*self._by_seq.values(), *self._defaulted.values()):
            open.shadow = None

    def of(self, seq: int) -> Open | None:
        """Return an open decision by its place in the log."""
        return self._by_seq.get(seq)

    def advance(self, time: int) -> list[Lesson]:
        """Close the windows that end at or before ``time``; return what they teach."""
        self.time = time = max(self.time, time)
        lessons = []
        self._give_up(time)
        windows, deferred = self._windows, self._deferred
        while windows and windows[0].deadline <= time:
            open = windows.popleft()
            self._forget(open)
            if not open.settled and (reward := self._earned(open)) is not None:
                lessons.append(Lesson(open, reward))
                if self.rule.late == "correct" and open.reward is None:
                    self.keep_default(open)
        while deferred and (deferred[0].active or deferred[0].deadline <= time):
            open = deferred.popleft()
            if not open.active:
                self._forget(open)
        return lessons

    def keep_default(self, open: Open) -> None:
        """Remember a decision that earned the default, in the order in which windows close."""
        if open.deadline + self.rule.correction > self.time:
            self._defaulted[open.row.seq] = open

    def not_learned(self, open: Open) -> None:
        """Let a default stand that was not learned: there is nothing to correct."""
        self._defaulted.pop(open.row.seq, None)

    def _give_up(self, time: int) -> None:
        """Forget the defaults that can no longer be corrected."""
        while self._defaulted:
            seq, open = next(iter(self._defaulted.items()))
            if open.deadline + self.rule.correction > time:
                return
            del self._defaulted[seq]

    def _forget(self, open: Open) -> None:
        del self._by_seq[open.row.seq]
        # An id is unique in a placement, so whatever it names is this decision.
        del self._by_id[open.row.id]

    def _earned(self, open: Open) -> Any:
        if open.reward is not None:
            return self._bounded(open.reward)
        if self.rule.seen == "decided" or open.examined:
            return self.rule.default
        return None

    def decided(
        self, row: DecisionRow, decision: Decision | None, shadow: Decision | None = None
    ) -> Open:
        """Open the window of a decision."""
        length = self.rule.activation if row.deferred else self.rule.window
        open = Open(row, decision, shadow, self.time + length, not row.deferred)
        self._keep(open)
        return open

    def decided_many(
        self,
        rows: Sequence[DecisionRow],
        decisions: Iterable[Decision],
        shadows: Iterable[Decision | None],
    ) -> None:
        """Open the windows of decisions made at the same time."""
        if any(row.deferred for row in rows):
            for row, decision, shadow in zip(rows, decisions, shadows, strict=False):
                self.decided(row, decision, shadow)
            return
        deadline = self.time + self.rule.window
        opens = list(map(Open, rows, decisions, shadows, repeat(deadline), repeat(True)))
        self._by_seq.update(zip([row.seq for row in rows], opens, strict=True))
        self._by_id.update(zip([row.id for row in rows], opens, strict=True))
        if self._windows and self._windows[-1].deadline > deadline:
            for open in opens:
                _queue(self._windows, open)
        else:
            self._windows.extend(opens)

    def _keep(self, open: Open) -> None:
        self._by_seq[open.row.seq] = open
        self._by_id[open.row.id] = open
        _queue(self._windows if open.active else self._deferred, open)

    def told(self, feedback: FeedbackRow) -> tuple[str, Lesson | None]:
        """Take in feedback; return what became of it, and what is to be learned at once.

        A lesson is given as soon as no later feedback could change it.
        """
        open = self._by_seq.get(feedback.decision)
        if open is None:
            return self._corrected(feedback)
        open.told += 1
        if feedback.id is not None:
            open.ids = open.ids or {}
            open.ids[feedback.id] = feedback.content
        if feedback.kind == ACTIVATE:
            return self._activated(open), None
        if not open.active:
            return INACTIVE, None
        open.examined = True
        if feedback.kind == EXAMINED:
            return NOTED, None
        return self._rewarded(open, feedback)

    def _corrected(self, feedback: FeedbackRow) -> tuple[str, Lesson | None]:
        if feedback.kind != REWARD or feedback.decision not in self._defaulted:
            return LATE, None
        open = self._defaulted.pop(feedback.decision)
        return CORRECTED, Lesson(open, feedback.reward or 0.0, before=self.rule.default)

    def _activated(self, open: Open) -> str:
        if open.active:
            return REPEATED
        open.active = True
        open.deadline = self.time + self.rule.window
        _queue(self._windows, open)
        return NOTED

    def _rewarded(self, open: Open, feedback: FeedbackRow) -> tuple[str, Lesson | None]:
        if open.settled:
            return REPEATED, None
        reward, before, aggregation = feedback.reward or 0.0, open.reward, self.rule.aggregation
        if before is not None and aggregation in ("sum", "max"):
            reward = before + reward if aggregation == "sum" else max(before, reward)
        open.reward = reward
        # A reward below 0 may still lower a sum.
        tops = aggregation == "max" or (aggregation == "sum" and self.rule.lowest >= 0.0)
        open.settled = aggregation == "first" or (tops and reward >= 1.0)
        return (LEARNED, Lesson(open, self._bounded(reward))) if open.settled else (PENDING, None)

    def _bounded(self, reward: float) -> float:
        return min(max(reward, self.rule.lowest), 1.0)

    # Snapshots -------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        """Return the open decisions as what JSON can hold, in the order of their windows."""
        return self._packed([*self._windows, *(o for o in self._deferred if not o.active)])

    def saved_defaults(self) -> list[Any]:
        """Return the decisions whose defaults may still be corrected, as :meth:`saved` does."""
        return self._packed(self._defaulted.values())

    @staticmethod
    def _packed(kept: Iterable[Open]) -> list[Any]:
        return [
            (o.row, o.deadline, o.active, o.reward, o.examined, o.settled, o.told, o.ids,
             o.decision.epoch, o.shadow and o.shadow.epoch)
            for o in kept
        ]  # fmt: skip

    def restore(self, open: Open) -> None:
        """Take over an open decision of a snapshot, in the order of :meth:`saved`."""
        self._keep(open)


def _queue(opens: deque[Open], open: Open) -> None:
    """Put a decision behind all whose deadlines are no later: last, unless windows got shorter."""
    place = len(opens)
    while place and opens[place - 1].deadline > open.deadline:
        place -= 1
    opens.insert(place, open)


class ClickAttribution(Attribution):
    """The open windows of a placement that shows lists: what came back is clicked positions.

    No click is an answer too: the empty list. Which clicks a decision had is known when its window
    closes, unless the first feedback is to hold them all. A reward, which stands for the outcome
    of a pair, is final.
    """

    def _earned(self, open: Open) -> Any:
        if open.reward is not None:
            return open.reward
        return [] if self.rule.seen == "decided" or open.examined else None

    def _rewarded(self, open: Open, feedback: FeedbackRow) -> tuple[str, Lesson | None]:
        if open.settled:
            return REPEATED, None
        if feedback.clicks is None:
            open.reward, open.settled = feedback.reward, True
            return LEARNED, Lesson(open, open.reward)
        clicks = json.loads(feedback.clicks)
        if self.rule.aggregation == "union":
            clicks = sorted({*(open.reward or ()), *clicks})
        open.reward, open.settled = clicks, self.rule.aggregation == "first"
        return (LEARNED, Lesson(open, clicks)) if open.settled else (PENDING, None)
