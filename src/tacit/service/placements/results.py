"""Results of a placement: impressions and rewards in its series, and rewards as the learner takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any, Self

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.blocks import Block
from tacit.service.log.requests import FeedbackRequest
from tacit.service.log.rows import CLICKS, UNWEIGHTED_MODES, DecisionRow
from tacit.service.placements.shows import Shows
from tacit.service.projections.attribution import Attribution
from tacit.service.projections.learning_order import TrainingBatch
from tacit.service.projections.series import Series, weigh_reward

OFFER_FIELDS = "offered", "shown", "asked"
"""Fields of a row from which the number of arms on offer is counted."""
ArmRewards = list[tuple[int | None, list[float]]]
"""Arm indices, and the amounts that their rewards add to the sums."""


class Results:
    """Counts impressions and rewards of a placement that shows one arm; kinds override it.

    Parameters
    ----------
    name : str
        Name of the placement.
    shows : Shows
    windows : Attribution
    policy : PolicyDecider

    Attributes
    ----------
    series : Series
    refine_outcomes : function or None
        Replaces outcomes of feedback, in place, by more specific ones of the kind.
    """

    refine_outcomes: Callable[[TrainingBatch, list[str]], None] | None = None

    def __init__(self, name: str, shows: Shows, windows: Attribution, policy: PolicyDecider) -> None:
        self.name, self.shows, self.windows, self.policy = name, shows, windows, policy
        self._lifecycle = shows.lifecycle
        self.series = Series(shows.layers)

    # Impressions -----------------------------------------------------------------------------

    def note_epochs(self, rows: Block[DecisionRow]) -> None:
        """Note restarts of keys, which show as new epochs; epochs of other policies are ignored."""
        for row in rows:
            if row.policy == self.policy.number:
                self.series.note_epoch(row.time, row.key, row.epoch, row.context)

    def count(self, rows: Block[DecisionRow]) -> None:
        """Count decisions of the same time and mode as impressions of their arms in the series.

        Arms that come with requests count as arm 0.
        """
        offered, arm_indices = [len(self._lifecycle.initial_indices)] * len(rows), self._lifecycle.arm_indices
        if not self.shows.has_plain_arms or any(rows.column("offered")):
            offered = list(map(self.shows.count_offered, *map(rows.column, OFFER_FIELDS)))
        # An action that is always shown has no information about uniform exploration.
        is_fixed = rows.column("mode")[0] in UNWEIGHTED_MODES
        self.series.count_decisions(
            rows.column("time")[0],
            [arm_indices.get(arm, 0) for arm in rows.column("arm")],
            [None] * len(rows) if is_fixed else rows.column("propensity"),
            offered,
        )

    def count_offers(self, entries: Ints) -> list[int]:
        """Return the number of arms on offer to each open decision."""
        if self.shows.has_plain_arms and not any(self.windows.open.get_columns(entries, "offered")[0]):
            return [len(self._lifecycle.initial_indices)] * len(entries)
        return list(map(self.shows.count_offered, *self.windows.open.get_columns(entries, *OFFER_FIELDS)))

    # Rewards ---------------------------------------------------------------------------------

    def convert_rewards(self, rewards: TrainingBatch) -> list[Any]:
        """Return rewards in the form that the learner takes, one for each decision; None is not learned."""
        return self.scale_rewards(rewards.values) if self.windows.params.lowest else rewards.values

    def scale_rewards(self, rewards: list[float]) -> list[float]:
        """Scale rewards linearly from [lowest, 1] to [0, 1], the range of policies.

        ``lowest`` is the rule's least reward; with 0, the list itself is returned.
        """
        least = self.windows.params.lowest
        if not least:
            return rewards
        return [(reward - least) / (1.0 - least) for reward in rewards]

    def format_clicks(self, row: DecisionRow, feedback: FeedbackRequest) -> str | None:
        """Return the clicked positions of feedback as JSON for the log.

        Here always None, as one arm is shown.

        Raises
        ------
        InvalidValue
            If the feedback does not fit the decision.
        """
        if feedback.kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def count_rewards(self, rewards: TrainingBatch) -> None:
        """Add the rewards of open decisions to the series; corrected rewards replace the ones counted before.

        Decisions whose reward is and was 0 add nothing.
        """
        if self.windows.params.zero:
            rewards = self._subtract_zero(rewards)
        previous = rewards.previous or 0.0
        indices = [i for i, reward in enumerate(rewards.values) if reward or previous]
        if indices:
            entries = rewards.entries
            if len(indices) < len(entries):
                entries = entries[indices]
            self.series.count_rewards(
                self.windows.open.get_columns(entries, "time")[0],
                self._get_propensities(entries),
                self.count_offers(entries),
                [rewards.values[i] for i in indices],
                [previous] * len(indices),
                self._get_rewarded_arms(entries),
            )

    def _subtract_zero(self, rewards: TrainingBatch) -> TrainingBatch:
        """Return the rewards minus the reward of the amount 0: decisions without feedback add 0 to sums."""
        zero = self.windows.params.zero
        if not zero:
            return rewards
        previous = None if rewards.previous is None else rewards.previous - zero
        return rewards._replace(values=[value - zero for value in rewards.values], previous=previous)

    def count_unlearned(self, rewards: TrainingBatch, entries: Collection[int]) -> None:
        """Add the rewards of the decisions at ``entries``, which were not learned, to the arms' results."""
        unlearned = rewards.select(
            [i for i, entry in enumerate(rewards.entries.tolist()) if entry in entries]
        )
        (times,) = self.windows.open.get_columns(unlearned.entries, "time")
        for time, arm_rewards in zip(times, self._attribute_rewards(unlearned), strict=True):
            for arm_index, amounts in arm_rewards:
                self.series.results.count_reward(time, arm_index, amounts)

    def _attribute_rewards(self, rewards: TrainingBatch) -> list[ArmRewards]:
        """Return for each decision a list of (rewarded arm's index or None, amounts to add to sums)."""
        rewards = self._subtract_zero(rewards)
        entries = rewards.entries
        propensities, offered_counts = self._get_propensities(entries), self.count_offers(entries)
        columns = self._get_rewarded_arms(entries), propensities, offered_counts
        return [
            [(arm_index, weigh_reward(propensity, offered, value, rewards.previous or 0.0))]
            for arm_index, propensity, offered, value in zip(*columns, rewards.values, strict=True)
        ]

    def _get_rewarded_arms(self, entries: Ints) -> list[int | None]:
        """Return for each open decision the index of the arm that its reward counts for; None if no arm."""
        return self.policy.columns.actions[entries, 0].tolist()  # type: ignore[no-any-return]

    def _get_propensities(self, entries: Ints) -> list[float | None]:
        """Return the logged propensities of open decisions; None where an arm was always shown."""
        propensities, modes = self.windows.open.get_columns(entries, "propensity", "mode")
        if set(modes).isdisjoint(UNWEIGHTED_MODES):
            return propensities
        pairs = zip(propensities, modes, strict=True)
        return [None if mode in UNWEIGHTED_MODES else value for value, mode in pairs]

    def read_copy(self) -> Self:
        """Return a copy for reader threads, with a copy of the series."""
        reader_copy = copy(self)
        reader_copy.series = self.series.read_copy()
        return reader_copy

    # The kind's own counts -------------------------------------------------------------------

    def export_counts(self) -> Any:
        """Return additional counts of the kind as JSON data; None without any, as here."""
        return None

    def restore_counts(self, counts: Any) -> None:
        """Set the kind's counts from the output of :meth:`export_counts`; here nothing."""

    def merge_counts(self, parts: Sequence[Any]) -> None:
        """Set the kind's counts to the sum of :meth:`export_counts` over all shards; here nothing."""
