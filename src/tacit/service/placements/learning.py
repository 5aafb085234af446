"""How a placement learns: what feedback, and windows that close without any, teach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Booleans, Ints
from tacit.learning.learner import Learner
from tacit.service.attribution.attribution import FROZEN as NOT_LEARNING
from tacit.service.attribution.attribution import LATE_EPOCH, NOTED, Ended, Rewards
from tacit.service.lift.sums import Closed
from tacit.service.log.blocks import Block, distinct
from tacit.service.log.rows import (
    ACTIVATE,
    APPRENTICE,
    FROZEN,
    REWARD,
    DecisionRow,
    FeedbackRow,
)
from tacit.service.placements.open_decisions import OpenDecisions
from tacit.service.placements.opening import Opening
from tacit.service.placements.state import parsed

CLOSED = "window-closed"


class Learning(Opening):
    """Learns from feedback and from windows that close."""

    def advance(self, time: int) -> None:
        """Advance to a time: learn what the windows that close by then teach."""
        rewards = self.windows.advance(time)
        self._add_lift(self.windows.ended)
        if not rewards.values:
            return
        if self.signals is not None:
            keys = self.windows.values(rewards.slots, "key")
            ends = list(map(self.windows.deadline, rewards.slots.tolist()))
            self.signals.answered(self.learner, keys, ends, self.windows.clicked(rewards.slots))
        self.outcomes[CLOSED] += len(rewards.values)
        learned = self._learnable(rewards)
        if len(learned.values) < len(rewards.values):
            left = np.setdiff1d(rewards.slots, learned.slots)
            self.windows.not_learned(left)
        self._teach(learned)

    def _add_lift(self, ended: Ended) -> None:
        """Add decisions whose windows have closed to the sums behind the lift."""
        if not self.shows_one or self.mode == APPRENTICE or not len(ended.slots):
            return
        seqs = self.windows.seqs(ended.slots)
        metrics = self.lift.amounts_of(seqs)
        counts = np.array(seqs) >= self.lift.seq
        counts &= ended.rewards == ended.rewards
        slots = ended.slots[counts]
        if not len(slots):
            return
        shown, logged = self._open.actions(slots)[:, 0], self._open.propensities(slots)
        policy, control, bucket = logged, None, None
        if self.coin is not None:
            control, bucket = (self.windows.values(slots, name) for name in ("control", "bucket"))
            policy = self.coin.unmixed(logged, shown, self._open.offers(slots))
        self.lift.add(
            Closed(
                self.windows.values(slots, "time"),
                np.array(self._scaled(ended.rewards[counts].tolist())),
                ended.answered[counts],
                control,
                bucket,
                shown if self._slots else np.zeros_like(shown),
                np.array(self._sizes(slots)),
                logged,
                policy,
                {name: amounts[counts] for name, amounts in metrics.items()},
            )
        )

    def told(self, feedback: Block[FeedbackRow], slots: Ints | None = None) -> list[str]:
        """Take in feedback of one moment for decisions of the log; return what became of each.

        Parameters
        ----------
        feedback : Block
        slots : array of int64, optional
            Of the decisions, where they are known to be open, and none comes twice.
        """
        self.since_snapshot += len(feedback)
        self.feedback += feedback.column("kind").count(REWARD)
        outcomes: list[str] = []
        if slots is not None:
            outcomes += self._told(feedback, slots)
        else:
            for part in distinct(feedback, "decision"):
                outcomes += self._told(part)
        self.outcomes.update(outcomes)
        return outcomes

    def _told(self, feedback: Block[FeedbackRow], slots: Ints | None = None) -> list[str]:
        outcomes, parts = self.windows.told(feedback, slots)
        if any(contents := feedback.column("metrics")):
            self.lift.note(feedback.column("decision"), contents, outcomes)
        if NOTED in outcomes:
            self._activated(feedback, outcomes)
        time = feedback.column("time")[0]
        for rewards in parts:
            if self.signals is not None and rewards.before is None:
                keys = self.windows.values(rewards.slots, "key")
                clicked = self.windows.clicked(rewards.slots)
                self.signals.answered(self.learner, keys, [time] * len(keys), clicked)
            self._learned(rewards, outcomes)
        return outcomes

    def _activated(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Count the decisions that were activated."""
        columns = (feedback.column(field) for field in ("kind", "decision", "time"))
        for kind, seq, time, outcome in zip(*columns, outcomes, strict=True):
            if kind == ACTIVATE and outcome == NOTED:
                row = self.windows.of(seq)
                self._count(Block.of(DecisionRow, [row]))
                if self.signals is not None:
                    offer = self._offered_slots(parsed(row.offered))
                    self.signals.activated(self.learner, row, offer, time)

    def _learned(self, rewards: Rewards, outcomes: list[str]) -> None:
        """Learn what feedback taught; where that was something else, say so."""
        learned = self._learnable(rewards)
        if len(learned.values) < len(rewards.values):
            for place in set(rewards.places).difference(learned.places):
                outcomes[place] = NOT_LEARNING
        fresh = self._teach(learned)
        self._name(learned, outcomes)
        if self.restarts and rewards.before is None:
            for place, taught in zip(learned.places, fresh.tolist(), strict=True):
                if not taught:
                    outcomes[place] = LATE_EPOCH

    def _learnable(self, rewards: Rewards) -> Rewards:
        """Return those rewards that are to be learned: nothing while frozen, or shown so."""
        if self.mode == FROZEN:
            return rewards.take([])
        if not self._unlearned:
            return rewards
        slots = rewards.slots.tolist()
        return rewards.take([i for i, slot in enumerate(slots) if slot not in self._unlearned])

    def _teach(self, rewards: Rewards) -> Booleans:
        """Learn; say of each lesson whether its decision was of the key's present epoch."""
        if not rewards.values:
            return np.zeros(0, np.bool_)
        values = self._policy_rewards(rewards)
        told = [i for i, value in enumerate(values) if value is not None]
        fresh = np.ones(len(values), np.bool_)
        slots = rewards.slots
        if len(told) < len(values):
            slots, values = slots[told], [values[i] for i in told]
        before = None if rewards.before is None else self._scaled([rewards.before] * len(values))
        if told:
            fresh[told] = self._taught(self.learner, self._open, slots, values, before)
        shadowed = [i for i, slot in enumerate(slots.tolist()) if slot in self._shadowed]
        if shadowed and self.shadow is not None and self._shadow_open is not None:
            some = [values[i] for i in shadowed]
            old = before and before[: len(some)]
            self._taught(self.shadow, self._shadow_open, slots[shadowed], some, old)
        self._note(rewards)
        return fresh

    @staticmethod
    def _taught(
        learner: Learner,
        kept: OpenDecisions,
        slots: Ints,
        values: list[Any],
        before: list[float] | None,
    ) -> Any:
        """Teach a learner, or put rewards that came late in the place of the defaults."""
        decisions = kept.decisions(slots)
        if before is not None:
            learner.batch.correct(decisions, before, values)
            return True
        return learner.batch.learn(decisions, values)

    def _note(self, rewards: Rewards) -> None:
        """Count what came back for decisions, in place of what was counted before."""
        before = rewards.before or 0.0
        came = [i for i, reward in enumerate(rewards.values) if reward or before]
        if came:
            slots = rewards.slots[came]
            self.series.rewarded_many(
                self.windows.values(slots, "time"),
                self._propensities(slots),
                self._sizes(slots),
                [rewards.values[i] for i in came],
                [before] * len(came),
            )
