"""Pinned arms: every decision shows them if they are on offer, with propensity 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

import msgspec
import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm, nan_to_none
from tacit.service.deciders.choices import Choices, Decider, ImpressionBatch
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.shadow import Texts
from tacit.service.log.requests import Impression


class Pin(msgspec.Struct, frozen=True):
    """A pin, as a change event of the log holds it.

    Attributes
    ----------
    arms : list of arms
        One arm, or the top of a list.
    until : int
        End of the pin, in microseconds since 1970.
    """

    arms: list[int | str]
    until: int


class Pinnable(Texts, Protocol):
    """The offers and actions of a placement, which depend on its kind."""

    has_plain_offer: bool
    """Whether arms have fixed indices, and impressions that name none have all arms on offer."""

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the arms on offer to an impression."""

    def pin_action(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the action that shows pinned arms."""

    def get_shown_indices(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of shown arms."""


@dataclass
class PinnedDecider:
    """Shows the pinned arms if all are on offer, until the pin ends.

    The policy's own decisions are recorded as counterfactuals.

    Parameters
    ----------
    decider : Decider
        Decides all other impressions.
    pin : Pin
    policy : PolicyDecider
    shows : Pinnable
    mode : str
        Mode that the log gives to decisions that show the pinned arms.
    keeps_state : bool
        Whether nothing is learned, so that choosing must not change the policy's state either.
    """

    decider: Decider
    pin: Pin
    policy: PolicyDecider
    shows: Pinnable
    mode: str
    keeps_state: bool

    def choose(self, batch: ImpressionBatch) -> Iterator[Choices]:
        """Yield decisions that show the pinned arms, for runs of impressions that offer all of them.

        The inner decider decides the others, and everything once the pin has ended.
        """
        if batch.time >= self.pin.until:
            yield from self.decider.choose(batch)
            return
        arms = batch.impressions.column("arms")
        # Impressions that name no arms have the same offer, unless their features or lists say it.
        plain = self.shows.has_plain_offer and arms.count(None) == len(arms)
        offered = [self._is_offered(batch.impressions[0])] * len(arms) if plain else None
        start = 0
        for is_offered, run in groupby(offered or map(self._is_offered, batch.impressions)):
            stop = start + len(list(run))
            part = batch.select(slice(start, stop))
            if is_offered:
                yield self._show(part)
            else:
                yield from self.decider.choose(part)
            start = stop

    def _is_offered(self, impression: Impression) -> bool:
        """True if all pinned arms are on offer to an impression."""
        return set(self.pin.arms) <= set(self.shows.list_offer(impression))

    def _show(self, batch: ImpressionBatch) -> Choices:
        """Return decisions that show the pinned arms; the policy's decisions are their counterfactuals."""
        counterfactuals = self.policy.choose(batch, keeps_state=self.keeps_state)
        action = self.shows.pin_action(self.pin.arms)
        offers = batch.impressions.column("arms")
        if self.shows.has_plain_offer:
            # All have the same arms, hence the same indices: they are looked up once.
            offers = offers[:1]
        actions = np.array([self.shows.get_shown_indices(action, offer) for offer in offers])
        ones = np.ones_like(counterfactuals.propensities)
        decisions = replace(
            counterfactuals,
            actions=np.repeat(actions, len(batch.ids) // len(actions), axis=0),
            propensities=ones,
            prefixes=np.ones_like(counterfactuals.prefixes),
            places=np.ones_like(counterfactuals.places),
        )
        return Choices(
            batch,
            decisions,
            self.mode,
            counterfactuals=self.shows.format_counterfactuals(counterfactuals),
            counterfactual_propensities=nan_to_none(counterfactuals.propensities),
        )
