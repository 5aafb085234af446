"""Which clicks a decision that showed a list earned."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np

from tacit.core.arrays import Ints
from tacit.service.attribution import windows as codes
from tacit.service.attribution.attribution import Attribution
from tacit.service.attribution.windows import OPEN, FeedbackColumns
from tacit.service.config.rule import Rule
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import action_of, clicks_in
from tacit.service.log.rows import DecisionRow, FeedbackRow


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

    def _earned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        return [self._clicked.get(slot, []) for slot in slots.tolist()]

    def _learned(self, slots: Ints, rewards: list[float]) -> list[Any]:
        pairs = zip(slots.tolist(), rewards, strict=True)
        return [self._clicked.get(slot, reward) for slot, reward in pairs]

    def _aggregate(self, feedback: Block[FeedbackRow], came: FeedbackColumns) -> None:
        for i in np.flatnonzero(came.outcomes == OPEN).tolist():
            slot, clicks = int(came.slots[i]), feedback.column("clicks")[i]
            if clicks is None:
                self._windows.reward[slot] = came.rewards[i]
                self._clicked.pop(slot, None)
            else:
                positions = json.loads(clicks)
                if self.rule.aggregation == "union":
                    told = (*self._clicked.get(slot, ()), *positions)
                    positions = [one for _, one in sorted({action_of(o): o for o in told}.items())]
                self._take_so_far(slot, positions)
            settled = clicks is None or self.rule.aggregation == "first"
            self._windows.settled[slot] = came.teaches[i] = settled
            came.outcomes[i] = codes.LEARNED if settled else codes.PENDING

    def clicked(self, slots: Ints) -> list[bool]:
        """Return for each decision whether there was a click, or an outcome that is not 0."""
        pairs = zip(slots.tolist(), super().clicked(slots), strict=True)
        return [
            bool(clicks_in(self._clicked[slot])) if slot in self._clicked else reward
            for slot, reward in pairs
        ]

    def _so_far(self, slots: Ints) -> list[Any]:
        pairs = zip(slots.tolist(), super()._so_far(slots), strict=True)
        return [self._clicked.get(slot, reward) for slot, reward in pairs]

    def _take_so_far(self, slot: int, reward: Any) -> None:
        if isinstance(reward, list):
            # Any number says that something came.
            self._clicked[slot], reward = reward, 0.0
        super()._take_so_far(slot, reward)

    def _given(self, block: Block[DecisionRow], deadline: int, *, in_order: bool = True) -> Ints:
        slots = super()._given(block, deadline, in_order=in_order)
        for slot in slots.tolist() if self._clicked else ():
            self._clicked.pop(slot, None)
        return slots
