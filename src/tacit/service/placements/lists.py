"""Placements that show ordered lists of arms, and learn from clicks on positions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm, Decision, Decisions
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.deciders.assignment import Control, ListControl
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log import requests
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, decode_json, decode_list, encode_list
from tacit.service.placements.results import ArmRewards, Results
from tacit.service.placements.shows import LogTexts, Shows
from tacit.service.projections.attribution import Attribution
from tacit.service.projections.learning_order import TrainingBatch

# Rows of the tally by position: lists with an arm at the position, with a click there, and with their first
# click there.
SHOWN_COUNTS, CLICKED_COUNTS, FIRST_COUNTS = range(3)


class ListShows(Shows):
    """Actions of a placement that lists arms, best first."""

    @property
    def positions(self) -> int:
        """Number of positions of a list."""
        return self.config.policy.action_width

    @property
    def max_pinned(self) -> int:
        """Maximum number of arms in a pin: the number of positions."""
        return self.positions

    def make_control(self, holdout: HoldoutConfig) -> Control:
        """Return the control of a holdout, which lists arms."""
        return ListControl(holdout.named, self.positions)

    def list_arms(self, decision: Decision) -> list[Arm | None]:
        """Return the arm at each position, None at an empty one; empty positions at the end are left out."""
        indices = decision.slots.tolist()
        while indices and indices[-1] < 0:
            indices.pop()
        return [None if index < 0 else self.lifecycle.names[index] for index in indices]

    def get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the arm index at each position, −1 for an empty or unknown one, shape (positions,)."""
        indices = np.full(self.positions, -1, np.int64)
        indices[: len(shown)] = [self.lifecycle.arm_indices.get(arm, -1) for arm in shown]
        return indices

    def format_shown(
        self,
        impressions: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> LogTexts:
        """Return each decision's list with its propensities by position as JSON for the log."""
        return [
            encode_list(self.list_arms(each), each.prefix_propensities, each.position_propensities)
            for each in decisions
        ]

    def format_counterfactuals(self, decisions: Decisions) -> Sequence[Arm]:
        """Return the lists of a shadow's decisions as JSON for the log."""
        return [json.dumps(self.list_arms(decision)) for decision in decisions]

    def get_shown_arms(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision listed, best first; None at an empty position."""
        return tuple(decode_list(row.shown).arms)  # type: ignore[arg-type]

    def get_actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return the arm index at each position of logged decisions, shape (rows, positions)."""
        return np.array([self.get_shown_indices(self.get_shown_arms(row), offered=None) for row in rows])


class ListResults(Results):
    """Counts listed arms and clicks on positions.

    Attributes
    ----------
    tally : array of int64, shape (3, positions)
        Lists with an arm at each position, with a click there, and with their first click there.
    """

    shows: ListShows

    def __init__(self, name: str, shows: ListShows, windows: Attribution, policy: PolicyDecider) -> None:
        super().__init__(name, shows, windows, policy)
        self.tally = np.zeros((3, shows.positions), np.int64)

    def count(self, rows: Block[DecisionRow]) -> None:
        """Count every listed arm as an impression in the series, without propensities."""
        arm_indices = self._lifecycle.arm_indices
        listed = [arm for row in rows for arm in self.shows.get_shown_arms(row)]
        indices = [arm_indices[arm] for arm in listed if arm in arm_indices]
        unknown = [None] * len(indices)
        self.series.count_decisions(rows[0].time, indices, unknown, [1] * len(indices), count=len(rows))

    def format_clicks(self, row: DecisionRow, feedback: requests.FeedbackRequest) -> str | None:
        """Return the clicked positions of feedback as JSON for the log; None without clicks.

        Raises
        ------
        InvalidValue
            If a click does not fit the list, or nothing was shown at its position.
        """
        listed = self.shows.get_shown_arms(row)
        positions = requests.encode_clicks(feedback, listed)
        if positions is None:
            return None
        for position in requests.select_clicks(decode_json(positions)) if None in listed else ():
            if listed[position] is None:
                raise InvalidValue("clicks", position, "nothing was shown at this position")
        return positions

    def convert_rewards(self, rewards: TrainingBatch) -> list[Any]:
        """Return for each decision the reward of each position, 0 without a click; a number for one."""
        return list(map(self._click_values, rewards.values))

    def _click_values(self, clicks: Sequence[Any]) -> float | list[float]:
        """Return the reward of each position, 0 without a click; a number instead of a list for one."""
        rewards = [0.0] * self.shows.positions
        for position, reward in requests.select_clicks(clicks).items():
            rewards[position] = reward
        return rewards if len(rewards) > 1 else rewards[0]

    def count_rewards(self, rewards: TrainingBatch) -> None:
        """Add clicks to the series and to the tally of positions."""
        actions = self.policy.columns.actions[rewards.entries]
        clicks = list(map(requests.select_clicks, rewards.values))
        rows = np.repeat(np.arange(len(clicks)), list(map(len, clicks)))
        positions = np.fromiter(chain.from_iterable(clicks), np.int64)
        firsts = np.fromiter((next(iter(each)) for each in clicks if each), np.int64)
        self.tally[SHOWN_COUNTS] += (actions >= 0).sum(axis=0)
        self.tally[CLICKED_COUNTS] += np.bincount(positions, minlength=self.shows.positions)
        self.tally[FIRST_COUNTS] += np.bincount(firsts, minlength=self.shows.positions)
        if not len(rows):
            return
        self.series.count_rewards(
            self.windows.open.get_columns(rewards.entries[rows], "time")[0],
            propensities=[None] * len(rows),
            offered=[1] * len(rows),  # unused without a propensity
            rewards=[reward for each in clicks for reward in each.values()],
            before=[0.0] * len(rows),
            arm_indices=list(map(self._get_click_arm, actions[rows, positions].tolist())),
        )

    def _attribute_rewards(self, rewards: TrainingBatch) -> list[ArmRewards]:
        """Return for each decision the reward of the arm at each clicked position."""
        listed = self.policy.columns.actions[rewards.entries].tolist()
        return [
            [
                (self._get_click_arm(indices[position]), [reward])
                for position, reward in requests.select_clicks(clicks).items()
            ]
            for indices, clicks in zip(listed, rewards.values, strict=True)
        ]

    def _get_click_arm(self, arm_index: int) -> int | None:
        """Return the index of the arm that clicks on a listed arm count for; None for no arm."""
        return int(arm_index)

    def export_counts(self) -> Any:
        """Return the tally by position as JSON data."""
        return self.tally.tolist()

    def restore_counts(self, counts: Any) -> None:
        """Replace the tally by position by the output of :meth:`export_counts`."""
        self.tally[:] = np.array(counts, np.int64)

    def merge_counts(self, parts: Sequence[Any]) -> None:
        """Set the tally to the sum over all shards."""
        self.tally = np.sum(np.array(parts, np.int64), axis=0)
