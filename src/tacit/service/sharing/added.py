"""Sums over the rewards of all keys: each shard adds those of its own keys."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.learning.learner import Learner
from tacit.learning.merging import add_shared, shared_sums
from tacit.policies import Policy
from tacit.service.sharing.base import NOISE, SUMS, Learned, Value, array_of, padded, text_of

GROWTH = 0.02
"""By which share of what a shard has told its sums change before it tells them again."""

Sums = dict[str, Floats]
"""Arrays by their names."""

logger = logging.getLogger(__name__)


class Added:
    """Sums that belong to all keys: each shard adds those of its own keys.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, Sums] = {}
        self._told: Sums = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        self._begun = shared_sums(policy, policy.init(0))
        self._nothing = {name: np.zeros_like(array) for name, array in self._begun.items()}
        self._told = self._reached(self._told)
        self._known = {shard: self._reached(sums) for shard, sums in self._known.items()}

    def _reached(self, sums: Sums) -> Sums:
        return {
            name: padded(sums[name], like.copy()) if name in sums else like
            for name, like in self._nothing.items()
        }

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of this shard if they have changed enough, or altogether."""
        own = whole = shared_sums(learner.policy, learner.state)
        for other in (self._begun, *self._known.values()):
            own = {name: own[name] - other[name] for name in own}
        least = 0.0 if everything else GROWTH
        if not _differ(own, self._nothing if everything else self._told, whole, least):
            return {}
        self._told = own
        return {SUMS: {name: text_of(array) for name, array in own.items()}}

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return nothing if the same was told before."""
        sums, known = self._read(told), self._known.get(told.shard, self._nothing)
        fresh = sums is not None and _differ(sums, known, sums, 0.0)
        return Learned(told.shard, told.time, {SUMS: told.parts[SUMS]} if fresh else {})

    def take(self, learner: Learner, told: Learned) -> None:
        """Put what a shard tells in the place of what it told before."""
        sums, known = self._read(told), self._known.get(told.shard, self._nothing)
        if sums is not None:
            add_shared(learner, {name: array - known[name] for name, array in sums.items()})
            self._known[told.shard] = sums

    def _read(self, told: Learned) -> Sums | None:
        """Return the sums that a shard has told; None for none, or such as do not fit."""
        value = told.parts.get(SUMS)
        if value is None:
            return None
        try:
            return {name: array_of(value[name], like) for name, like in self._nothing.items()}
        except (KeyError, ValueError) as error:
            logger.error("the sums of shard %d do not fit: %s", told.shard, error)
            return None

    def saved(self) -> Any:
        """Return what every other shard has told."""
        return [
            [shard, {name: text_of(array) for name, array in known.items()}]
            for shard, known in self._known.items()
        ]

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""
        self._known = {
            shard: {name: array_of(known[name], like) for name, like in self._nothing.items()}
            for shard, known in saved or ()
        }


def _differ(sums: Sums, others: Sums, whole: Sums, least: float) -> bool:
    """Whether sums differ from others by more than a share of them, and than rounding leaves.

    What they have in common is judged row by row, as of arms: what is rare counts as well.
    """
    return any(
        bool((change > least * _by_row(others[name]) + NOISE * _by_row(whole[name])).any())
        for name, array in sums.items()
        for change in [_by_row(array - others[name])]
    )


def _by_row(array: Floats) -> Floats:
    """Return the sum of absolute values over all axes but the first two."""
    sums: Floats = np.abs(array).sum(axis=tuple(range(2, array.ndim)))
    return sums
