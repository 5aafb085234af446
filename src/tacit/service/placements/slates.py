"""Slate placements: an ordered list of arms out, clicks on its positions in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm, Decision, Decisions
from tacit.service.attribution.attribution import Rewards
from tacit.service.attribution.clicks import ClickAttribution
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.lift.controls import Control, ListControl
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import Clicks, Impression, clicked_positions
from tacit.service.log.rows import CLICKS, REWARD, DecisionRow
from tacit.service.log.slates import slate_of, slate_text
from tacit.service.placements.base import Placement
from tacit.service.placements.learning import Earned

# Rows of a tally over the positions: lists with something there, with a click there, with their
# first click there.
SHOWN, CLICKED, FIRST = range(3)


class SlatePlacement(Placement):
    """Decides which arms to list, best first, and learns from the clicks on each position.

    Parameters are those of :class:`Placement`.
    """

    attribution = ClickAttribution
    shows_one = False

    def _begin(self) -> None:
        super()._begin()
        self.tally = np.zeros((3, self._positions), np.int64)

    @property
    def _positions(self) -> int:
        return self.config.policy.action_width

    def _control(self, holdout: HoldoutConfig) -> Control:
        return ListControl(holdout.named, self._positions)

    def _mixed(self, made: Decisions, offers: Sequence[Ints]) -> Decisions:
        mixed = super()._mixed(made, offers)
        if self.coin is None or not len(made.prefixes):
            return mixed
        control: Any = self.coin.control
        prefixes = self.coin.mixed(made.prefixes, control.prefixes(made.actions, offers))
        places = self.coin.mixed(made.places, control.places(made.actions, offers))
        return replace(mixed, prefixes=prefixes, places=places)

    def _all_shown(
        self,
        asked: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> list[str | None]:
        return [
            slate_text(self._listed(decision), decision.prefix_propensities, decision.position_propensities)
            for decision in decisions
        ]

    def _listed(self, decision: Decision) -> list[Arm | None]:
        """Return the arm at each position down to the last one; None where it stays empty."""
        slots = decision.slots.tolist()
        while slots and slots[-1] < 0:
            slots.pop()
        return [None if slot < 0 else self.arms[slot] for slot in slots]

    @property
    def _most_pinned(self) -> int:
        return self._positions

    def _counterfactual(self, decision: Decision) -> Arm:
        return json.dumps(self._listed(decision))

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        first = decision.offered[: self._positions]
        return tuple(self.arms[slot] for slot in first.tolist())

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision listed, best first; None at an empty position."""
        return tuple(slate_of(row.shown).arms)  # type: ignore[arg-type]

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        slots = np.full(self._positions, -1, np.int64)
        slots[: len(shown)] = [self._slots.get(arm, -1) for arm in shown]
        return slots

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        return np.array([self._slots_shown(self.shown(row), None) for row in rows])

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        slots = [self._slots[arm] for row in rows for arm in self.shown(row) if arm in self._slots]
        unknown = [None] * len(slots)
        self.series.decided_many(rows[0].time, slots, unknown, [1] * len(slots), len(rows))

    def positions(self, row: DecisionRow, kind: str, clicks: Clicks | None) -> str | None:
        """Return clicked positions of a decision as the log keeps them; see the base class."""
        if kind == REWARD:
            raise InvalidValue("reward", "a number", "the decision showed a list; send its clicks")
        if kind != CLICKS or clicks is None:
            return None
        listed = self.shown(row)
        positions = clicked_positions(clicks, listed)
        for position in json.loads(positions):
            if listed[position] not in self._slots:
                raise InvalidValue("clicks", position, "nothing was shown at this position")
        return positions

    def _policy_rewards(self, rewards: Rewards) -> list[Any]:
        """Return, for each, 1 for each clicked position and 0 for the others."""
        return list(map(self._clicked, rewards.values))

    def _clicked(self, clicks: Sequence[int]) -> float | list[float]:
        rewards = [0.0] * self._positions
        for position in clicks:
            rewards[position] = 1.0
        return rewards if self._positions > 1 else rewards[0]

    def _note(self, rewards: Rewards) -> None:
        times = self.windows.values(rewards.slots, "time")
        actions = self._open.actions(rewards.slots)
        for time, slots, clicks in zip(times, actions, rewards.values, strict=True):
            for position in clicks:
                self.series.rewarded(time, None, 1, 1.0, int(slots[position]))
            self.tally[SHOWN] += slots >= 0
            self.tally[CLICKED, clicks] += 1
            self.tally[FIRST, clicks[:1]] += 1

    def _earned(self, rewards: Rewards) -> list[Earned]:
        listed = self._open.actions(rewards.slots).tolist()
        return [
            [(slots[position], [1.0]) for position in clicks]
            for slots, clicks in zip(listed, rewards.values, strict=True)
        ]

    def counts(self) -> Any:
        """Return the tally of all positions, as JSON data."""
        return self.tally.tolist()

    def _take_counts(self, counts: Any) -> None:
        # A snapshot from before there was a tally has None, is refused, and the log is folded.
        self.tally[:] = np.array(counts, np.int64)
