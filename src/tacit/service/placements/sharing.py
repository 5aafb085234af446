"""What the shards of a placement learn together, and how each takes in what the others learned.

Each shard tells what it has learned itself, and since when; what it is told by another one takes
the place of what that one told before. So it does no harm if something is told twice, or is lost
and told later. What is told becomes a mark in the log before it counts: the state of a shard stays
a fold over its log.

Safe classifiers are joined. Posteriors and counts, of placements whose keys are spread over all
shards, are sums: natural parameters Λ and η, or plays and rewards, of each shard's own impressions.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import numpy as np

from tacit.classifiers import Classifier
from tacit.core.state import leaves, rebuilt
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.merging import delta, plus
from tacit.policies import Policy

NOISE = 1e-9
"""Sums smaller than this share of the whole are what rounding leaves, and nothing learned."""
SCRATCH = "scratch."

logger = logging.getLogger(__name__)

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class Learned(msgspec.Struct):
    """What a shard has learned, up to a moment of its log.

    Attributes
    ----------
    shard : int
    time : int
        Microseconds since 1970.
    parts : dict of str to dict of str to str
        The arrays of each key; of a classifier, which belongs to all keys, under the empty name.
    """

    shard: int
    time: int
    parts: dict[str, Value]


class Shared(Protocol):
    """What a placement's learner shares with those in other shards."""

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return what was learned here since the last time, or altogether."""

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return what of it is not known here."""

    def take(self, learner: Learner, told: Learned) -> None:
        """Take in what another shard has told."""

    def saved(self) -> Any:
        """Return what was taken in, as JSON data."""

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""


def shared_of(policy: Policy, spread: bool) -> Shared | None:
    """Return what placements of a policy share; None where every key learns alone."""
    classifier = classifier_of(policy)
    if spread:
        return Summed(policy)
    return None if classifier is None else Joined(classifier)


def classifier_of(policy: Policy) -> Classifier | None:
    """Return the classifier that all keys of a policy share."""
    classifier = getattr(policy, "classifier", None)
    if isinstance(classifier, Classifier):
        return None if getattr(policy, "per_key", False) else classifier
    inner = getattr(policy, "policy", None)
    wraps = isinstance(inner, Policy) and hasattr(policy.init(0), "classifier")
    return classifier_of(inner) if wraps else None  # type: ignore[arg-type]


class Joined:
    """A safe classifier, of which each shard has one: what any has learned, all may know.

    Parameters
    ----------
    classifier : Classifier
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._before: Value = _value(classifier.init(1))

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the classifier if it has changed since the last time."""
        now = _value(learner.state.classifier)
        before, self._before = self._before, now
        return {"": now} if everything or now != before else {}

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return nothing if the join would change nothing."""
        own = learner.state.classifier
        known = not told.parts or _value(self._join(own, told)) == _value(own)
        return Learned(told.shard, told.time, {} if known else told.parts)

    def take(self, learner: Learner, told: Learned) -> None:
        """Join what another shard knows."""
        own = learner.state.classifier
        _put(own, self._join(own, told))

    def _join(self, own: Any, told: Learned) -> Any:
        other = _arrays(told.parts[""], self._classifier.init(1))
        return self._classifier.merged(own, other)

    def saved(self) -> Any:
        """Return nothing: what was joined is in the state."""
        return None

    def restore(self, saved: Any) -> None:
        """Take over nothing."""


class Summed:
    """Sums over the impressions of each key, of which each shard sees some.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._prior = policy.init(1)
        self._nothing = delta(self._prior, self._prior)
        self._known: dict[int, dict[str, Any]] = {}
        # Of the lanes as they were when something was told or taken.
        self._before: dict[str, bytes] = {}
        self._learned: set[str] = set()
        self._told: dict[str, Value] = {}

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of the keys that were learned here since the last time."""
        self._look(learner, learner.keys)
        for key in sorted(self._learned):
            own = self._own(learner, key)
            if own is not None:
                self._told[key] = _value(own)
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
            if key not in known or _value(known[key]) != value
        }
        return Learned(told.shard, told.time, fresh)

    def take(self, learner: Learner, told: Learned) -> None:
        """Put what a shard tells in the place of what it told before."""
        known = self._known.setdefault(told.shard, {})
        learner.batch.lanes.admit(list(told.parts))
        self._look(learner, told.parts)
        for key, value in told.parts.items():
            sums = _arrays(value, self._nothing)
            lane = _lane(learner, key)
            try:
                whole = plus(lane, [_minus(sums, known.get(key, self._nothing))])
            except InvalidValue as error:
                logger.error("what shard %d learned of key %r: %s", told.shard, key, error)
                continue
            _put(lane, whole)
            known[key] = sums
            self._before[key] = _content(lane)

    def saved(self) -> Any:
        """Return what every other shard has told."""
        return [
            [shard, {key: _value(sums) for key, sums in known.items()}]
            for shard, known in self._known.items()
        ]

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""
        self._known = {
            shard: {key: _arrays(value, self._nothing) for key, value in known.items()}
            for shard, known in saved or ()
        }


# Trees of arrays -----------------------------------------------------------------------------


def _lane(learner: Learner, key: str) -> Any:
    """Return the view of one key's lane, with a lane axis of 1."""
    return learner.batch.lanes.view(learner.lane(key))


def _value(arrays: Any) -> Value:
    return {
        name: base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        for name, array in leaves(arrays)
        if not name.startswith(SCRATCH)
    }


def _arrays(value: Value, like: Any) -> Any:
    return rebuilt(
        like,
        (
            np.frombuffer(base64.b64decode(value[name]), array.dtype).reshape(array.shape)
            if name in value
            else array
            for name, array in leaves(like)
        ),
    )


def _content(arrays: Any) -> bytes:
    return b"".join(array.tobytes() for _, array in leaves(arrays))


def _put(target: Any, source: Any) -> None:
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array


def _minus(first: Any, second: Any) -> Any:
    pairs = zip(leaves(first), leaves(second), strict=True)
    return rebuilt(first, (a - b for (_, a), (_, b) in pairs))


def _size(arrays: Any) -> float:
    return max(float(np.abs(array).max(initial=0.0)) for _, array in leaves(arrays))
