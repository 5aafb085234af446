"""Guardrail: stop showing an arm, or the policy, once degradation of a metric is proved."""

# 1. ``LoggedGuardrail``: values of its change events: terms, or a proved degradation.
# 2. ``Guardrail``: sums of a metric besides the reward; after each group ``plan_changes`` returns the
#    change events to log.

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain
from typing import Any, Self

import msgspec
import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm
from tacit.service.config.schema import PlacementConfig, find_baseline
from tacit.service.deciders.arm_lifecycle import ArmLifecycle
from tacit.service.deciders.aspect import Note, SavedState
from tacit.service.log.ids import as_text
from tacit.service.log.rows import GUARDRAIL, ChangeRow, encode_json
from tacit.service.log.store import Snapshot
from tacit.service.projections.closed_batch import ClosedBatch
from tacit.service.projections.projection import Projection
from tacit.service.projections.reward_sums import BLOCK_SIZE, ClosedDecisions, RewardSums
from tacit.uplift.metric_degradation import DegradationSums, hash_keys
from tacit.wire.lift import GuardrailNow, Harm

GROWTH = 1.01
"""Growth of the number of decisions, besides ``BLOCK_SIZE``, until the next check: a check costs time."""


class LoggedGuardrail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of a change event: either the guardrail's terms at its beginning, or a proved degradation.

    Attributes
    ----------
    terms : str or None
        JSON of the configuration.
    arms : int
        Number of arms at the beginning.
    harm : Harm or None
    """

    terms: str | None = None
    arms: int = 0
    harm: Harm | None = None


class Guardrail(Projection):
    """Watches a metric and acts when degradation beyond the margin is proved.

    Its state follows from the log; its actions are change events, once for each arm or for the policy.

    Attributes
    ----------
    terms : str or None
        Terms at the beginning; None before it.
    initial_arm_count : int
        Number of arms at the beginning.
    degradations : list of Harm
        Proved degradations, in order.
    sums : DegradationSums
        Sums of the arms, without a holdout.
    """

    change_kind = GUARDRAIL

    def __init__(self, placement: PlacementConfig, lifecycle: ArmLifecycle, reward_sums: RewardSums) -> None:
        """Take metric and baseline from the configuration.

        Decisions count once a change event sets the terms.
        """
        self._lifecycle, self._reward_sums = lifecycle, reward_sums
        assert placement.guardrail is not None
        self.config = placement.guardrail
        self.metric = placement.metrics[self.config.metric]
        has_holdout = placement.holdout is not None
        self.against = None if has_holdout else find_baseline(self.config, placement)
        self.terms: str | None = None
        self._begin(0)
        self._checked_count = 0.0

    def _begin(self, arms: int) -> None:
        """Clear the proved degradations, the sums and the queued decisions, for a number of arms."""
        self.initial_arm_count, self.degradations, self.sums = arms, list[Harm](), DegradationSums(arms)
        # Decisions that are in no sum yet, their number, and the number of decisions since the last check.
        self._queued: list[tuple[ClosedDecisions, Sequence[Ints], Ints]] = []
        self._queued_count = self._unchecked_count = 0

    # The log ---------------------------------------------------------------------------------

    def make_begin_change(self) -> str | None:
        """Return the JSON value of the change event that begins the guardrail with the current terms.

        None if it already has these terms. Changes nothing.
        """
        terms = msgspec.json.encode([self.config, self.against, self.metric], order="sorted").decode()
        if terms == self.terms:
            return None
        return encode_json(LoggedGuardrail(terms, len(self._lifecycle.names)))

    def current(self) -> str | None:
        """Return the JSON of the terms with which the guardrail began; None before its first change event."""
        return self.terms

    def is_change(self, value: str) -> bool:
        """Return True: every change event changes the guardrail."""
        return True

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: begin again with new terms and empty sums, or record a proved degradation."""
        logged = msgspec.json.decode(change.value, type=LoggedGuardrail)
        if logged.harm is not None:
            self.degradations.append(msgspec.structs.replace(logged.harm, at=as_text(change.time)))
        else:
            self.terms = logged.terms
            self._begin(logged.arms)
            self.update_arms()
        return 0

    @staticmethod
    def parse_change(
        change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note | None:
        """Return ("guardrail", details of the degradation); None for an event that only begins."""
        harm = json.loads(change.value).get("harm")
        return None if harm is None else (GUARDRAIL, harm | {"at": as_text(change.time)})

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a proved degradation as text: metric, arm (or the policy) and action."""
        who = "the policy" if detail["arm"] is None else detail["arm"]
        return f"{detail['metric']} harmed by {who}: {detail['then']}"

    def update_arms(self) -> None:
        """Add queued decisions to the sums, and enlarge the sums for new arms.

        Nothing before the terms are set.
        """
        if self.terms is not None:
            self.settle()
            self.sums.grow(len(self._lifecycle.names))

    def save_state(self) -> dict[str, Any]:
        """Add queued decisions to the sums, and return the snapshot's field "guardrail"."""
        self.settle()
        degradations, sums = msgspec.to_builtins(self.degradations), self.sums.as_dict()
        saved = {"terms": self.terms, "begun": self.initial_arm_count, "harms": degradations, "sums": sums}
        return {"guardrail": saved}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set terms, proved degradations and sums from a snapshot, if it has them."""
        if saved.guardrail is not None:
            self.terms, self.initial_arm_count = saved.guardrail["terms"], saved.guardrail["begun"]
            self.degradations = msgspec.convert(saved.guardrail["harms"], list[Harm])
            self.sums = DegradationSums.from_dict(saved.guardrail["sums"])

    def read_copy(self) -> Self:
        """Return a copy for reader threads, with its own list of degradations."""
        reader_copy = copy(self)
        reader_copy.degradations = list(self.degradations)
        return reader_copy

    # Watching --------------------------------------------------------------------------------

    def add_closed(self, batch: ClosedBatch) -> None:
        """Count closed decisions towards the next check; without a holdout, queue them for the sums of arms.

        ``RewardSums`` has counted these decisions last; nothing happens before the terms are set.
        The queue is added to the sums as soon as it has ``BLOCK_SIZE`` decisions.
        """
        if self.terms is None or self._reward_sums.last_counted is None:
            return
        counted, closed = self._reward_sums.last_counted
        self._unchecked_count += len(closed.rewards)
        if not batch.has_holdout:
            self._queued.append((closed, counted.offers, hash_keys(counted.get_column("key"))))
            self._queued_count += len(closed.rewards)
            if self._queued_count >= BLOCK_SIZE:
                self.settle()

    def begin_due_check(self) -> bool:
        """Return whether enough decisions have closed since the last check; if so, begin to count again.

        Enough are ``BLOCK_SIZE``, or 1 % of all decisions up to the last check if that is more.
        """
        if self._unchecked_count < max(BLOCK_SIZE, (GROWTH - 1) * self._checked_count):
            return False
        self._checked_count, self._unchecked_count = self._checked_count + self._unchecked_count, 0
        return True

    def settle(self) -> None:
        """Move all queued decisions into the sums of arms, without decisions of unknown propensity."""
        if not self._queued:
            return
        parts, offers, buckets = zip(*self._queued, strict=True)
        self._queued, self._queued_count = [], 0
        closed = ClosedDecisions.concatenate(parts)
        offered = np.zeros((len(closed.rewards), self.sums.sums.shape[1]), np.bool_)
        for row, offer in zip(offered, chain.from_iterable(offers), strict=True):
            row[offer] = True
        rows = np.flatnonzero(closed.propensities > 0)
        self.sums.add(
            closed.arm_indices[rows],
            closed.metrics[self.config.metric][rows],
            closed.propensities[rows],
            offered[rows],
            self._lifecycle.arm_indices[self.against],  # type: ignore[index]
            np.concatenate(buckets)[rows],
        )

    # Views -----------------------------------------------------------------------------------

    def summary(self, now: int) -> dict[str, Any]:
        """Return {"guardrail": status}."""
        return {"guardrail": self.status}

    @property
    def status(self) -> GuardrailNow:
        """The guardrail's metric, margin, action, baseline and proved degradations."""
        config = self.config
        return GuardrailNow(config.metric, config.margin, config.then, self.against, list(self.degradations))
