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
from tacit.service.log.blocks import Block, distinct
from tacit.service.log.rows import (
    ACTIVATE,
    REWARD,
    SHADOW,
    UNLEARNED,
    DecisionRow,
    FeedbackRow,
    by_two,
    learned_propensities,
    parsed,
    read_by,
    some_by_two,
)
from tacit.service.placements.attribution import FROZEN as NOT_LEARNING
from tacit.service.placements.attribution import LATE_EPOCH, LEARNED, NONE_ENDED, NOTED, PENDING, Lessons
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.service.placements.series import weighed
from tacit.service.placements.state import State
from tacit.service.placements.windows import AT_ONCE, TAUGHT, WAITING

CLOSED = "window-closed"
Earned = list[tuple[int | None, list[float]]]
"""Arm indices, and the amounts that their rewards add to the sums."""


class Teaching(State):
    """Learns from feedback and from windows that close."""

    def advance(self, time: int) -> None:
        """Advance to a time: learn the rewards of windows that close by then."""
        rewards = self.windows.advance(time)
        self._learn_in_turn(self.windows.closed_turns)
        if self.windows.ended is NONE_ENDED:
            return
        # Rewards of all closed windows are summed, even if they are not learned: the lift must not depend on
        # the mode.
        self.earnings.closed(self.here, self.windows.ended)
        if not rewards.values:
            return
        # Signals count answers at the end of the window, not at the next request: a replay has other
        # requests, and must compute the same numbers.
        if self.signals is not None:
            keys = self.windows.values(rewards.entries, "key")
            ends = list(map(self.windows.deadline, rewards.entries.tolist()))
            self.signals.answered(self.learner, keys, ends, self.windows.clicked(rewards.entries))
        self.outcomes[CLOSED] += len(rewards.values)
        learned = self._learnable(rewards)
        if len(learned.values) < len(rewards.values):
            # A late reward must not correct a default that was never learned.
            left = np.setdiff1d(rewards.entries, learned.entries)
            self.windows.not_learned(left)
            self._count_unlearned(rewards, left.tolist())
        self._teach_at_once(learned)

    def learn_turns(self) -> None:
        """Learn the decisions whose turn has come, before a new decision is made."""
        self._learn_in_turn(self.windows.take_turns(decides=True))

    def _learn_in_turn(self, rewards: Lessons) -> tuple[Lessons, Booleans]:
        """Learn decisions whose turn has come, without counting their rewards again.

        Returns the learned batch, and True for each decision in its key's current epoch.
        """
        learned = self._learnable(rewards)
        return learned, self._teach(learned, counts=False)

    def _teach_at_once(self, rewards: Lessons) -> tuple[Lessons, Booleans]:
        """Learn the rewards of decisions that do not wait for their turn, and count all rewards.

        Returns the learned batch, and True for each decision in its key's current epoch.
        """
        order = self.windows.order
        if order is None or not rewards.values:
            return rewards, self._teach(rewards)
        turns = self.windows.turns_of(rewards.entries)
        late = (turns == TAUGHT) & (order.learns_late and bool(rewards.places))
        if late.any() and not order.rule.only_examined:
            # The default was already learned in their turn.
            late &= np.array([value != order.rule.default for value in rewards.values], np.bool_)
        (now,) = ((turns == AT_ONCE) | late).nonzero()
        if len(now) == len(turns):
            return rewards, self._teach(rewards)
        self._count_rewards(rewards.take(np.setdiff1d(np.arange(len(turns)), now).tolist()))
        taught = rewards.take(now.tolist())
        return taught, self._teach(taught)

    def take_in(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        """Apply feedback of the same time; return the outcome of each row.

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
            outcomes += self._take_in(feedback, entries)
        else:
            # The compiled loop takes each decision once: a second row for it depends on the outcome of the
            # first.
            for part in distinct(feedback, "decision"):
                outcomes += self._take_in(part)
        return outcomes

    def _take_in(self, feedback: Block[FeedbackRow], entries: Ints | None = None) -> list[str]:
        outcomes, parts = self.windows.take_in(feedback, entries)
        self.earnings.noted(feedback, outcomes)
        if NOTED in outcomes:
            self._activated(feedback, outcomes)
        time = feedback.column("time")[0]
        for rewards in parts:
            if self.signals is not None and rewards.before is None:
                keys = self.windows.values(rewards.entries, "key")
                clicked = self.windows.clicked(rewards.entries)
                self.signals.answered(self.learner, keys, [time] * len(keys), clicked)
            self._learned(rewards, outcomes)
        # Counted before turns are taken, which depend on the other feedback of the same time.
        self.outcomes.update(outcomes)
        if self.windows.order is not None:
            self._learn_answered(parts, outcomes)
        return outcomes

    def _learn_answered(self, parts: Sequence[Lessons], outcomes: list[str]) -> None:
        """Learn the decisions whose turn has come; set the outcomes of feedback that still waits."""
        learned, fresh = self._learn_in_turn(self.windows.take_turns(decides=False))
        places = [place for rewards in parts for place in rewards.places]
        entries = np.concatenate([rewards.entries for rewards in parts] or [learned.entries[:0]])
        before = learned.entries[~fresh] if self.restarts else learned.entries[:0]
        waits = self.windows.turns_of(entries) == WAITING
        for place, wait, late in zip(places, waits.tolist(), np.isin(entries, before).tolist(), strict=True):
            if outcomes[place] == LEARNED and (wait or late):
                outcomes[place] = PENDING if wait else LATE_EPOCH

    def _activated(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Count decisions that the feedback activated."""
        columns = (feedback.column(field) for field in ("kind", "decision", "time"))
        for kind, seq, time, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED:
                row = self.windows.of(seq)
                self._count(Block.of(DecisionRow, [row]))
                if self.signals is not None:
                    offer = self.offered_slots(parsed(row.offered))
                    self.signals.activated(self.learner, row, offer, time)

    def _learned(self, rewards: Lessons, outcomes: list[str]) -> None:
        """Learn the final rewards of feedback; correct the outcomes of rows that were not learned."""
        learned = self._learnable(rewards)
        if len(learned.values) < len(rewards.values):
            for place in set(rewards.places).difference(learned.places):
                outcomes[place] = NOT_LEARNING
            self._count_unlearned(rewards, set(rewards.entries.tolist()) - set(learned.entries.tolist()))
        taught, fresh = self._teach_at_once(learned)
        self._name(learned, outcomes)
        # A policy that has restarted the key does not learn earlier decisions. Corrections do not report it.
        if self.restarts and rewards.before is None:
            for place, present in zip(taught.places, fresh.tolist(), strict=True):
                if not present:
                    outcomes[place] = LATE_EPOCH

    def _learnable(self, rewards: Lessons) -> Lessons:
        """Return the rewards that may be learned in the current mode."""
        return rewards.take([]) if self.sets_aside else self.modes.learnable(rewards)

    def _teach(self, rewards: Lessons, *, counts: bool = True) -> Booleans:
        """Learn and count rewards; return True for each decision in its key's current epoch."""
        if not rewards.values:
            return np.zeros(0, np.bool_)
        values = self._policy_rewards(rewards)
        if rewards.before is None and self.second is None and not self.control.not_own and None not in values:
            seen = self.windows.seen(rewards.entries)
            fresh: Booleans = _taught(self.learner, self.open, rewards.entries, values, None, seen)
            if counts:
                self._count_rewards(rewards)
            return fresh
        rewarded = [i for i, value in enumerate(values) if value is not None]
        # Some rewards are counted but not learned, such as a duel without a winner.
        fresh = np.ones(len(values), np.bool_)
        entries, places = rewards.entries, np.arange(len(values))
        if len(rewarded) < len(values):
            places = np.array(rewarded, np.int64)
            entries, values = entries[places], [values[i] for i in rewarded]
        seen = self.windows.seen(entries)
        before = None if rewards.before is None else self.scaled([rewards.before] * len(values))
        of = entries.tolist()
        lessons = [(self.learner, self.open, self.control.own(of))]
        if self.second is not None:
            # The secondary policy first: the placement's learner determines the result.
            lessons.insert(0, self.second.lessons(of))
        for learner, kept, own in lessons:
            if not own:
                continue
            if len(own) == len(of):
                fresh[places] = _taught(learner, kept, entries, values, before, seen)
            else:
                of_some, old = [values[i] for i in own], before and before[: len(own)]
                seen_of_some = None if seen is None else seen[own]
                fresh[places[own]] = _taught(learner, kept, entries[own], of_some, old, seen_of_some)
        if counts:
            self._count_rewards(rewards)
        return fresh

    def _count_rewards(self, rewards: Lessons) -> None:
        """Count rewards of decisions, replacing rewards counted before."""
        before = rewards.before or 0.0
        came = [i for i, reward in enumerate(rewards.values) if reward or before]
        if came:
            entries = rewards.entries
            if len(came) < len(entries):
                entries = entries[came]
            self.series.rewarded_many(
                self.windows.values(entries, "time"),
                self._propensities(entries),
                self.sizes(entries),
                [rewards.values[i] for i in came],
                [before] * len(came),
                self._earning(entries),
            )

    def _count_unlearned(self, rewards: Lessons, entries: Collection[int]) -> None:
        """Count rewards that were not learned, in the arms' results."""
        left = rewards.take([i for i, entry in enumerate(rewards.entries.tolist()) if entry in entries])
        times = self.windows.values(left.entries, "time")
        for time, earned in zip(times, self._earned(left), strict=True):
            for slot, amounts in earned:
                self.series.results.rewarded(time, slot, amounts)

    def _earned(self, rewards: Lessons) -> list[Earned]:
        """Return for each decision the rewarded arms and the amounts for the sums."""
        columns = self._earning(rewards.entries), self._propensities(rewards.entries)
        return [
            [(slot, weighed(propensity, offered, value, rewards.before or 0.0))]
            for slot, propensity, offered, value in zip(
                *columns, self.sizes(rewards.entries), rewards.values, strict=True
            )
        ]

    def _earning(self, entries: Ints) -> list[int | None]:
        """Return the indices of the arms to which the rewards of open decisions are counted."""
        return self.open.actions(entries)[:, 0].tolist()  # type: ignore[no-any-return]

    # The fold: decisions of the log ------------------------------------------------------------

    def recall(self, rows: Block[DecisionRow]) -> None:
        """Restore logged decisions of the same time and mode."""
        if self.signals is not None:
            offers = [self.offered_slots(parsed(offered)) for offered in rows.column("offered")]
            self.signals.recall(self.learner, rows, offers)
        mode = rows.column("mode")[0]
        # A batch is many times as fast, and equal if no decision can affect the next one: without restarts,
        # without a secondary policy and without modes in which nothing is learned.
        one_by_one = self.restarts or self.sets_aside or mode in (*UNLEARNED, SHADOW)
        if one_by_one or some_by_two(rows):
            for i in range(len(rows)):
                self._recall_one(rows[i : i + 1])
            return
        made_by, epochs = rows.column("policy"), rows.column("epoch")
        if made_by.count(self.policy_id) < len(rows):
            # This policy never restarts, but an earlier policy that made some of them may have.
            epochs = [0] * len(rows)
        decisions = self._recalled_many(rows, epochs)
        self.learner.recall(decisions)
        self.decided(rows, decisions)

    def _recalled_many(self, rows: Block[DecisionRow], epochs: Sequence[int]) -> Sequence[Decision]:
        """Return the learner's form of logged decisions."""
        learner = self.learner
        if not self._offers_all(rows):
            made = map(self.decision_of, rows, epochs)
            return [read_by(learner, decision) for decision in made]
        contexts = np.zeros((len(rows), learner.policy.context_dim))
        if learner.policy.context_dim:
            contexts[:] = list(map(json.loads, rows.column("context")))
        return learner.decisions_of(
            learner.loops.plain_batch(learner.lanes.admit(rows.column("key")), contexts),
            self._actions(rows),
            np.array(epochs, np.int64),
            # NumPy converts None to NaN.
            np.array(learned_propensities(rows), np.float64),
        )

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return the arm indices that logged decisions showed, shape (rows, width)."""
        slots = list(map(self.living.slots.__getitem__, rows.column("arm")))
        return np.array(slots, np.int64).reshape(-1, 1)

    def _recall_one(self, rows: Block[DecisionRow]) -> None:
        """Restore one logged decision, whose epoch may differ in this fold."""
        row = rows[0]
        if by_two(row):
            self.decided(rows, *self._recalled_by_two(row))
            return
        decision = self.recalled(self.learner, row)
        second = None if self.second is None else self.second.recalled(self.here, row)
        self.decided(rows, [decision], second)

    def _recalled_by_two(self, row: DecisionRow) -> tuple[list[Decision], Decision | None]:
        """Restore a logged decision of the group's own policy, if the control has a policy, too."""
        second = None if self.second is None else self.second.recalled_by_two(self.here, row)
        if not row.control:
            return [self.recalled(self.learner, row)], second
        self.learner.lanes.admit([row.key])
        return [read_by(self.learner, self.decision_of(row, self.learner.epoch(row.key)))], second

    def recalled(self, learner: Learner, row: DecisionRow) -> Decision:
        """Restore a logged decision in a learner; return the learner's form of it."""
        decision = read_by(learner, self.decision_of(row, row.epoch))
        with self.standing(learner, row.key):
            learner.recall([decision])
        # The epoch of this fold, not of the log: another policy may restart at other times.
        return decision._replace(epoch=learner.epoch(row.key))


def _taught(
    learner: Learner,
    kept: OpenDecisions,
    entries: Ints,
    values: list[Any],
    before: list[float] | None,
    seen: Floats | None,
) -> Any:
    """Learn rewards, or replace learned defaults (``previous``) by late rewards."""
    # If the policy cannot replace a reward, the late one is learned in addition.
    if before is not None and learner.policy.correctable:
        learner.correct_many(kept.decisions(entries), before, values)
        return True
    # The control's policy may not learn examination.
    if seen is not None and learner.policy.learns_seen:
        values = with_seen(np.array(values), seen).tolist()
    return kept.learn(entries, values)
