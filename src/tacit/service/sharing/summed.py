"""Posteriors and counts of keys that are spread over all shards, added up key by key."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from tacit.core.state import leaves, rebuilt
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.merging import delta, plus
from tacit.policies import Policy
from tacit.service.sharing.base import NOISE, Learned, Value, arrays_of, put, value_of

logger = logging.getLogger(__name__)


class Summed:
    """Sums over the impressions of each key, of which each shard sees some.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, dict[str, Any]] = {}
        # Of the lanes as they were when something was told or taken.
        self._before: dict[str, bytes] = {}
        self._learned: set[str] = set()
        self._told: dict[str, Value] = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        self._prior = policy.init(1)
        self._nothing = delta(self._prior, self._prior)
        for known in self._known.values():
            known |= {key: self._reached(value_of(sums)) for key, sums in known.items()}
        self._told |= {key: value_of(self._reached(value)) for key, value in self._told.items()}

    def _reached(self, value: Value) -> Any:
        """Return the sums that are told, of all arms."""
        return arrays_of(value, self._nothing)

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of the keys that were learned here since the last time."""
        self._look(learner, learner.keys)
        for key in sorted(self._learned):
            own = self._own(learner, key)
            if own is not None:
                self._told[key] = value_of(own)
        learned, self._learned = self._learned, set()
        return {key: value for key, value in self._told.items() if everything or key in learned}

    def _own(self, learner: Learner, key: str) -> Any:
        """Return the sums over the impressions of this shard; None for nothing."""
        whole = own = delta(_lane(learner, key), self._prior)
        for known in self._known.values():
            if key in known:
                own = _minus(own, known[key])
        return None if _size(own) <= NOISE * _size(whole) else own

    def _look(self, learner: Learner, keys: Iterable[str]) -> None:
        """Note which keys were learned here."""
        for key in keys:
            now = _content(_lane(learner, key))
            before = self._before.get(key)
            if now != before and (before is not None or now != _content(self._prior)):
                self._learned.add(key)
            self._before[key] = now

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return the keys of which another shard has told something else before."""
        known = self._known.get(told.shard, {})
        fresh = {
            key: value
            for key, value in told.parts.items()
            if key not in known or _content(arrays_of(value, self._nothing)) != _content(known[key])
        }
        return Learned(told.shard, told.time, fresh)

    def take(self, learner: Learner, told: Learned) -> None:
        """Put what a shard tells in the place of what it told before."""
        known = self._known.setdefault(told.shard, {})
        learner._batch.lanes.admit(list(told.parts))
        self._look(learner, told.parts)
        for key, value in told.parts.items():
            sums = arrays_of(value, self._nothing)
            lane = _lane(learner, key)
            try:
                whole = plus(lane, [_minus(sums, known.get(key, self._nothing))])
            except InvalidValue as error:
                logger.error("what shard %d learned of key %r: %s", told.shard, key, error)
                continue
            put(lane, whole)
            known[key] = sums
            self._before[key] = _content(lane)

    def saved(self) -> Any:
        """Return what every other shard has told."""
        return [
            [shard, {key: value_of(sums) for key, sums in known.items()}]
            for shard, known in self._known.items()
        ]

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""
        self._known = {
            shard: {key: arrays_of(value, self._nothing) for key, value in known.items()}
            for shard, known in saved or ()
        }


def _lane(learner: Learner, key: str) -> Any:
    """Return the view of one key's lane, with a lane axis of 1."""
    return learner._batch.lanes.view(learner.lane(key))


def _content(arrays: Any) -> bytes:
    return b"".join(array.tobytes() for _, array in leaves(arrays))


def _minus(first: Any, second: Any) -> Any:
    pairs = zip(leaves(first), leaves(second), strict=True)
    return rebuilt(first, (a - b for (_, a), (_, b) in pairs))


def _size(arrays: Any) -> float:
    return max(float(np.abs(array).max(initial=0.0)) for _, array in leaves(arrays))
