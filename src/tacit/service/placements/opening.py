"""Decisions as they are made or recalled: their windows opened, and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tacit.core.arrays import Ints
from tacit.core.state import leaves
from tacit.learning.decisions import Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block
from tacit.service.log.rows import FIXED, FROZEN, UNLEARNED, DecisionRow, by_two, some_by_two
from tacit.service.placements.state import State


class Opening(State):
    """Opens the windows of decisions, keeps what learning needs of them, and counts them."""

    def _decided(
        self, rows: Block[DecisionRow], decisions: Sequence[Decision], shadow: Decision | None = None
    ) -> None:
        """Open the windows of decisions made at the same time.

        Where the second policy is to learn from it too, there is one decision.
        """
        slots = self.windows.decided(rows)
        self._keep(slots, rows, decisions, shadow)
        self._lift.made(rows.column("control"), rows.column("time")[0])
        self.decisions += len(rows)
        self.since_snapshot += len(rows)
        deferred = rows.column("deferred")
        counted = rows
        if any(deferred):
            counted = rows.take([i for i, waits in enumerate(deferred) if not waits])
        self._count(counted)

    def _keep(
        self, slots: Ints, rows: Block[DecisionRow], decisions: Sequence[Decision], shadow: Decision | None
    ) -> None:
        self._open.keep(slots, decisions, plain=self._offers_all(rows))
        for some in filter(None, (self._shadowed, self._unlearned, self._not_own)):
            some.difference_update(slots.tolist())
        if some_by_two(rows):
            made = zip(slots.tolist(), rows, strict=True)
            self._not_own.update(slot for slot, row in made if row.control and by_two(row))
        if not set(modes := rows.column("mode")).isdisjoint(UNLEARNED):
            pairs = zip(slots.tolist(), modes, strict=True)
            self._unlearned.update(slot for slot, mode in pairs if mode in UNLEARNED)
        if shadow is not None:
            self._keep_shadow(slots, rows, shadow)

    def _keep_shadow(self, slots: Ints, rows: Block[DecisionRow], shadow: Decision) -> None:
        if self._shadow_open is not None:
            self._shadow_open.keep(slots, [shadow], plain=self._offers_all(rows))
            self._shadowed.update(slots.tolist())

    def _offers_all(self, rows: Block[DecisionRow]) -> bool:
        """Whether each decision could choose among all arms, without features."""
        return self._plain and not any(rows.column("offered"))

    def _count(self, rows: Block[DecisionRow]) -> None:
        """Count impressions of the same time, and the restarts that they show."""
        if not len(rows):
            return
        self._count_impressions(rows)
        # Most keys have never restarted.
        if self.series.epochs or any(rows.column("epoch")):
            for row in rows:
                # How often another policy had restarted says nothing about this one.
                if row.policy == self.policy_id:
                    self.series.at_epoch(row.time, row.key, row.epoch, row.context)

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        self.series.decided_many(
            rows.column("time")[0],
            list(map(self._slots.__getitem__, rows.column("arm"))),
            self._weighable(rows),
            self._offer_sizes(rows),
        )

    @staticmethod
    def _weighable(rows: Block[DecisionRow]) -> list[float | None]:
        """Return the propensities by which decisions of one mode may be weighed."""
        # What is always shown says nothing about uniform exploration.
        if rows.column("mode")[0] in FIXED:
            return [None] * len(rows)
        return rows.column("propensity")

    def _offer_sizes(self, rows: Block[DecisionRow]) -> list[int]:
        """Return how many arms were on offer."""
        if not any(rows.column("offered")):
            return [len(self._all)] * len(rows)
        return list(map(self._offered, rows))

    def _propensities(self, slots: Ints) -> list[float | None]:
        """Return the propensities by which open decisions may be weighed."""
        propensities, modes = self.windows.columns(slots, "propensity", "mode")
        if set(modes).isdisjoint(FIXED):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in FIXED else value for value, mode in pairs]

    def _sizes(self, slots: Ints) -> list[int]:
        """Return how many arms open decisions could choose among."""
        if self._plain and not any(self.windows.values(slots, "offered")):
            return [len(self._all)] * len(slots)
        return list(map(self._offered, self.windows.rows(slots)))

    @contextmanager
    def _standing(self, learner: Learner, key: str) -> Iterator[None]:
        """While nothing is learned, leave the state as it was, even by what the policy observes."""
        if self.mode != FROZEN and not self.sets_aside:
            yield
            return
        with untouched(learner, key):
            yield


@contextmanager
def untouched(learner: Learner, key: str) -> Iterator[None]:
    """Leave what a learner knows of a key as it was."""
    lanes = learner._batch.lanes
    (lane,) = lanes.admit([key]).tolist()
    kept = [array.copy() for _, array in leaves(lanes.view(lane))]
    yield
    for (_, array), values in zip(leaves(lanes.view(lane)), kept, strict=True):
        array[:] = values
