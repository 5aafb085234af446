"""Guardrail: stop showing an arm, or the policy, once degradation of a metric is proved."""

# 1. ``LoggedGuardrail``: values of its change events: terms, or a proved degradation.
# 2. ``Guardrail``: sums of a metric besides the reward; after each group ``plan_changes`` returns the
#    change events to log.

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.ids import as_text
from tacit.service.log.rows import ARMS, CONTROL, GUARDRAIL, MODE, MarkRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Note, Saved
from tacit.service.placements.aspects.reward_sums import AT_ONCE, Closed
from tacit.service.placements.lift_report import lift_of_metric
from tacit.uplift.boundary import Interval
from tacit.uplift.metric_degradation import HarmSums, buckets_of, comparisons_of
from tacit.wire.control import ArmsOf
from tacit.wire.lift import GuardrailNow, Harm

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

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


class Guardrail(Aspect):
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
    sums : HarmSums
        Sums of the arms, without a holdout.
    """

    mark = GUARDRAIL

    def __init__(self, placement: PlacementConfig) -> None:
        assert placement.guardrail is not None
        self.config = placement.guardrail
        self._metric = placement.metrics[self.config.metric]
        held = placement.holdout is not None
        self.against = None if held else self.config.arm_of(placement)
        self.terms: str | None = None
        self._begin(0)
        self._looked = 0.0

    def _begin(self, arms: int) -> None:
        self.begun, self.harms, self.sums = arms, list[Harm](), HarmSums(arms)
        # Decisions that are in no sum yet, and the number of decisions since the last check.
        self._waiting: list[tuple[Closed, Sequence[Ints], Ints]] = []
        self._unsettled = self._closed = 0

    # The log ---------------------------------------------------------------------------------

    def beginning(self, placement: Placement) -> str | None:
        """Return the change event's value that begins the guardrail; None if it began with these terms."""
        terms = msgspec.json.encode([self.config, self.against, self._metric], order="sorted").decode()
        if terms == self.terms:
            return None
        return text_of(LoggedGuardrail(terms, len(placement.living.names)))

    def current(self, placement: Placement) -> str | None:
        """Return the terms with which the guardrail began."""
        return self.terms

    def is_news(self, placement: Placement, value: str) -> bool:
        """True: every change event changes the guardrail."""
        return True

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Begin with new terms, or add a proved degradation."""
        logged = msgspec.json.decode(mark.value, type=LoggedGuardrail)
        if logged.harm is not None:
            self.harms.append(msgspec.structs.replace(logged.harm, at=as_text(mark.time)))
        else:
            self.terms = logged.terms
            self._begin(logged.arms)
            self.arms_named(placement)

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note | None:
        """Return the proved degradation of a change event, if any."""
        harm = json.loads(mark.value).get("harm")
        return None if harm is None else (GUARDRAIL, harm | {"at": as_text(mark.time)})

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format a proved degradation as text."""
        who = "the policy" if detail["arm"] is None else detail["arm"]
        return f"{detail['metric']} harmed by {who}: {detail['then']}"

    def arms_named(self, placement: Placement) -> None:
        """Resize the sums to the current arms."""
        if self.terms is not None:
            self.settle(placement)
            self.sums.reach(len(placement.living.names))

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's field of a snapshot."""
        self.settle(placement)
        harms, sums = msgspec.to_builtins(self.harms), self.sums.saved()
        return {"guardrail": {"terms": self.terms, "begun": self.begun, "harms": harms, "sums": sums}}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the guardrail from a snapshot."""
        if saved.guardrail is not None:
            self.terms, self.begun = saved.guardrail["terms"], saved.guardrail["begun"]
            self.harms = msgspec.convert(saved.guardrail["harms"], list[Harm])
            self.sums = HarmSums.restored(saved.guardrail["sums"])

    def still(self) -> Self:
        """Return a copy for reader threads."""
        seen = copy(self)
        seen.harms = list(self.harms)
        return seen

    # Watching --------------------------------------------------------------------------------

    def closed(self, placement: Placement, entries: Ints, closed: Closed) -> None:
        """Add decisions whose windows have closed."""
        if self.terms is None:
            return
        self._closed += len(closed.rewards)
        if placement.holdout is None:
            keys = placement.windows.values(entries, "key")
            self._waiting.append((closed, placement.open.offers(entries), buckets_of(keys)))
            self._unsettled += len(closed.rewards)
            if self._unsettled >= AT_ONCE:
                self.settle(placement)

    def settle(self, placement: Placement) -> None:
        """Add pending decisions to the sums."""
        if not self._waiting:
            return
        parts, offers, buckets = zip(*self._waiting, strict=True)
        self._waiting, self._unsettled = [], 0
        closed = Closed.joined(parts)
        offered = np.zeros((len(closed.rewards), self.sums.sums.shape[1]), np.bool_)
        for row, offer in zip(offered, chain.from_iterable(offers), strict=True):
            row[offer] = True
        known = np.flatnonzero(closed.propensities > 0)
        self.sums.add(
            closed.shown[known],
            closed.metrics[self.config.metric][known],
            closed.propensities[known],
            offered[known],
            self._baseline(placement),
            np.concatenate(buckets)[known],
        )

    def _baseline(self, placement: Placement) -> int:
        assert self.against is not None
        return placement.living.slots[self.against]

    # Acting ----------------------------------------------------------------------------------

    def marks(self, placement: Placement) -> list[tuple[str, str]]:
        """Return the change events (kind, value) to log now: proved degradations and their actions."""
        if self._closed < max(AT_ONCE, (GROWTH - 1) * self._looked):
            return []
        self._looked, self._closed = self._looked + self._closed, 0
        self.settle(placement)
        harms = self._proved(placement)
        marks = [(GUARDRAIL, text_of(LoggedGuardrail(harm=harm))) for harm in harms]
        if not harms or self.config.then == "tell":
            return marks
        arms = [harm.arm for harm in harms if harm.arm is not None]
        if not arms:
            return [*marks, (MODE, CONTROL)]
        return [*marks, (ARMS, text_of(placement.living.after(placement, ArmsOf(retire=arms))))]

    def _proved(self, placement: Placement) -> list[Harm]:
        """Return newly proved degradations."""
        found = self._of_arms(placement) if placement.holdout is None else self._of_policy(placement)
        known = {harm.arm for harm in self.harms}
        return [
            Harm(arm, self.config.metric, *interval, then=self.config.then)
            for arm, interval in found.items()
            if arm not in known
        ]

    def _of_arms(self, placement: Placement) -> dict[Arm | None, Interval]:
        names, offered = placement.living.names, set(placement.offer.arms)
        comparisons = comparisons_of(len(names), self.begun)
        found = self.sums.harms(self.config.margin, self._metric.better, comparisons)
        return {names[slot]: harm for slot, harm in found.items() if names[slot] in offered}

    def _of_policy(self, placement: Placement) -> dict[Arm | None, Interval]:
        harm = lift_of_metric(placement, self.config.metric).difference
        if harm is None:
            return {}
        margin, less = self.config.margin, self._metric.better == "less"
        return {None: harm} if (harm.low > margin if less else harm.high < -margin) else {}

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return the guardrail's status."""
        return {"guardrail": self.now}

    @property
    def now(self) -> GuardrailNow:
        """The guardrail's metric, margin, action, baseline and proved degradations."""
        config = self.config
        return GuardrailNow(config.metric, config.margin, config.then, self.against, list(self.harms))
