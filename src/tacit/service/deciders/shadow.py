"""A shadow: a secondary policy that computes what it would have shown, and learns from what was shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tacit.learning.decisions import Arm, Decisions, nan_to_none
from tacit.service.deciders.choices import Choices, Decider, ImpressionBatch
from tacit.service.deciders.policy import PolicyDecider


class Texts(Protocol):
    """Texts of actions for the log, which depend on the placement's kind."""

    def format_counterfactuals(self, decisions: Decisions) -> Sequence[Arm]:
        """Return counterfactual actions as the log's column ``would`` holds them."""


@dataclass
class ShadowDecider:
    """Adds the counterfactual decisions of a secondary policy, which learns from the arms shown.

    Parameters
    ----------
    decider : Decider
        Decides what is shown.
    secondary : PolicyDecider
    texts : Texts
    """

    decider: Decider
    secondary: PolicyDecider
    texts: Texts

    def choose(self, batch: ImpressionBatch) -> Iterator[Choices]:
        """Yield the inner decider's decisions, with the secondary policy's decisions as counterfactuals."""
        for choices in self.decider.choose(batch):
            # The secondary policy decides afterwards, with its own draws: it cannot affect the shown arm.
            counterfactuals = self.secondary.choose(choices.batch)
            choices.counterfactuals = self.texts.format_counterfactuals(counterfactuals)
            choices.counterfactual_propensities = nan_to_none(counterfactuals.propensities)
            shown = choices.decisions
            assert isinstance(shown, Decisions)
            choices.secondary = replace(
                counterfactuals, actions=shown.actions, propensities=shown.propensities
            )
            yield choices
