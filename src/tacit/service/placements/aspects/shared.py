"""What the shards of a placement learn together.

First what shards tell each other and how it is written; then the three ways in which states join:
posteriors added key by key, sums over all keys, a safe classifier; last the placement's part in it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from tacit.classifiers import Classifier
from tacit.core.arrays import Floats, leaves, rebuilt
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.merging import add_shared, delta, plus, shared_sums
from tacit.policies import Policy
from tacit.service.errors import NotDurable
from tacit.service.log.rows import MERGE, MarkRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Saved

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

# ---- What shards tell each other, and how it is written

NOISE = 1e-9
"""Sums smaller than this share of the whole are what rounding leaves, and nothing learned."""
CLASSIFIER, SUMS = "", "sums"
"""Names of the parts that belong to all keys."""
SCRATCH = "scratch."

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class NotYet(NotDurable):
    """What was learned is of arms that are not known here yet."""


class Learned(msgspec.Struct):
    """What a shard has learned, up to a moment of its log.

    Attributes
    ----------
    shard : int
    time : int
        Microseconds since 1970.
    parts : dict of str to dict of str to str
        The arrays of each key; or, of what belongs to all keys, of the classifier and of the sums.
    """

    shard: int
    time: int
    parts: dict[str, Value]


class Shared(Protocol):
    """Something that a placement's learner shares with those in other shards."""

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return what was learned here since the last time, or altogether."""

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return what of it is not known here."""

    def take(self, learner: Learner, learned: Learned) -> None:
        """Take in what another shard has sent."""

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        return None

    def saved(self) -> Any:
        """Return what was taken in, as JSON data."""
        return None

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""
        return None


# Arrays as text ------------------------------------------------------------------------------


def text_of(array: Any) -> str:
    """Return the shape and the bytes of an array as text."""
    shape = "x".join(map(str, array.shape))
    return f"{shape}:{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"


def array_of(text: str, like: Any) -> Any:
    """Return the array of such a text, which is to be of the form of another one.

    One from before some arms came has nothing for these.

    Raises
    ------
    NotYet
        If it knows of arms which the other one does not.

    Examples
    --------
    >>> array_of(text_of(np.array([[1.0, 2.0]])), like=np.zeros((1, 3))).tolist()
    [[1.0, 2.0, 0.0]]
    """
    shape, _, content = text.rpartition(":")
    # Without its shape, it is from a version before arms could come.
    sizes = tuple(map(int, shape.split("x"))) if shape else like.shape
    array = np.frombuffer(base64.b64decode(content), like.dtype).reshape(sizes)
    if sizes == like.shape:
        return array
    if len(sizes) != like.ndim or any(n > m for n, m in zip(sizes, like.shape, strict=True)):
        raise NotYet("shard: it has not the arms yet of which another one tells; tell it later")
    return padded(array, np.zeros_like(like))


def padded(small: Any, large: Any) -> Any:
    """Return ``large`` with ``small`` in its leading corner."""
    large[tuple(map(slice, small.shape))] = small
    return large


def value_of(arrays: Any) -> Value:
    """Return a named tuple's arrays by their names, but for scratch."""
    return {name: text_of(array) for name, array in leaves(arrays) if not name.startswith(SCRATCH)}


def arrays_of(value: Value, like: Any) -> Any:
    """Return a named tuple like another one; what is not named stays as it is there."""
    return rebuilt(
        like, (array_of(value[name], array) if name in value else array for name, array in leaves(like))
    )


def put(target: Any, source: Any) -> None:
    """Copy arrays into their namesakes."""
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array


# ---- Posteriors and counts of keys that are spread over all shards, added up key by key

logger = logging.getLogger(__name__)


class Summed:
    """Sums over the impressions of each key, of which each shard sees some.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, dict[str, Any]] = {}
        # Of the lanes as they were when something was sent or taken.
        self._before: dict[str, bytes] = {}
        self._learned: set[str] = set()
        self._sent: dict[str, Value] = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        self._prior = policy.init(1)
        self._nothing = delta(self._prior, self._prior)
        for known in self._known.values():
            known |= {key: self._reached(value_of(sums)) for key, sums in known.items()}
        self._sent |= {key: value_of(self._reached(value)) for key, value in self._sent.items()}

    def _reached(self, value: Value) -> Any:
        """Return the sums that are sent, of all arms."""
        return arrays_of(value, self._nothing)

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of the keys that were learned here since the last time."""
        self._look(learner, learner.keys)
        for key in sorted(self._learned):
            own = self._own(learner, key)
            if own is not None:
                self._sent[key] = value_of(own)
        learned, self._learned = self._learned, set()
        return {key: value for key, value in self._sent.items() if everything or key in learned}

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

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return the keys of which another shard has sent something else before."""
        known = self._known.get(learned.shard, {})
        fresh = {
            key: value
            for key, value in learned.parts.items()
            if key not in known or _content(arrays_of(value, self._nothing)) != _content(known[key])
        }
        return Learned(learned.shard, learned.time, fresh)

    def take(self, learner: Learner, learned: Learned) -> None:
        """Put what a shard sends in the place of what it sent before."""
        known = self._known.setdefault(learned.shard, {})
        learner.lanes.admit(list(learned.parts))
        self._look(learner, learned.parts)
        for key, value in learned.parts.items():
            sums = arrays_of(value, self._nothing)
            lane = _lane(learner, key)
            try:
                whole = plus(lane, [_minus(sums, known.get(key, self._nothing))])
            except InvalidValue as error:
                logger.error("what shard %d learned of key %r: %s", learned.shard, key, error)
                continue
            put(lane, whole)
            known[key] = sums
            self._before[key] = _content(lane)

    def saved(self) -> Any:
        """Return what every other shard has sent."""
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
    return learner.lanes.view(learner.lane(key))


def _content(arrays: Any) -> bytes:
    return b"".join(array.tobytes() for _, array in leaves(arrays))


def _minus(first: Any, second: Any) -> Any:
    pairs = zip(leaves(first), leaves(second), strict=True)
    return rebuilt(first, (a - b for (_, a), (_, b) in pairs))


def _size(arrays: Any) -> float:
    return max(float(np.abs(array).max(initial=0.0)) for _, array in leaves(arrays))


# ---- Sums over the rewards of all keys: each shard adds those of its own keys

GROWTH = 0.02
"""By which share of what a shard has sent its sums change before it sends them again."""

Sums = dict[str, Floats]
"""Arrays by their names."""


class Added:
    """Sums that belong to all keys: each shard adds those of its own keys.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, Sums] = {}
        self._sent: Sums = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        self._begun = shared_sums(policy, policy.init(0))
        self._nothing = {name: np.zeros_like(array) for name, array in self._begun.items()}
        self._sent = self._reached(self._sent)
        self._known = {shard: self._reached(sums) for shard, sums in self._known.items()}

    def _reached(self, sums: Sums) -> Sums:
        return {
            name: padded(sums[name], like.copy()) if name in sums else like
            for name, like in self._nothing.items()
        }

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of this shard if they have changed enough, or altogether."""
        own = whole = shared_sums(learner.policy, learner.state)
        for other in (self._begun, *self._known.values()):
            own = {name: own[name] - other[name] for name in own}
        least = 0.0 if everything else GROWTH
        if not _differ(own, self._nothing if everything else self._sent, whole, least):
            return {}
        self._sent = own
        return {SUMS: {name: text_of(array) for name, array in own.items()}}

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return nothing if the same was sent before."""
        sums, known = self._read(learned), self._known.get(learned.shard, self._nothing)
        fresh = sums is not None and _differ(sums, known, sums, 0.0)
        return Learned(learned.shard, learned.time, {SUMS: learned.parts[SUMS]} if fresh else {})

    def take(self, learner: Learner, learned: Learned) -> None:
        """Put what a shard sends in the place of what it sent before."""
        sums, known = self._read(learned), self._known.get(learned.shard, self._nothing)
        if sums is not None:
            add_shared(learner, {name: array - known[name] for name, array in sums.items()})
            self._known[learned.shard] = sums

    def _read(self, learned: Learned) -> Sums | None:
        """Return the sums that a shard has sent; None for none, or such as do not fit."""
        value = learned.parts.get(SUMS)
        if value is None:
            return None
        try:
            return {name: array_of(value[name], like) for name, like in self._nothing.items()}
        except (KeyError, ValueError) as error:
            logger.error("the sums of shard %d do not fit: %s", learned.shard, error)
            return None

    def saved(self) -> Any:
        """Return what every other shard has sent."""
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


# ---- A safe classifier of all keys, joined: what any shard knows, all may know


def classifier_of(policy: Policy) -> Classifier | None:
    """Return the classifier that all keys of a policy share."""
    classifier = getattr(policy, "classifier", None)
    if isinstance(classifier, Classifier):
        return None if getattr(policy, "per_key", False) else classifier
    inner = getattr(policy, "policy", None)
    wraps = isinstance(inner, Policy) and hasattr(policy.init(0), "classifier")
    return classifier_of(inner) if wraps else None  # type: ignore[arg-type]


class Joined(Shared):
    """A safe classifier, of which each shard has one: what any has learned, all may know.

    It knows no arms, and what was joined is in the state.

    Parameters
    ----------
    classifier : Classifier
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._before: Value = value_of(classifier.init(1))

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the classifier if it has changed since the last time."""
        now = value_of(learner.state.classifier)
        before, self._before = self._before, now
        return {CLASSIFIER: now} if everything or now != before else {}

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return nothing if the join would change nothing."""
        own = learner.state.classifier
        part = {name: value for name, value in learned.parts.items() if name == CLASSIFIER}
        known = not part or value_of(self._join(own, learned)) == value_of(own)
        return Learned(learned.shard, learned.time, {} if known else part)

    def take(self, learner: Learner, learned: Learned) -> None:
        """Join what another shard knows."""
        if CLASSIFIER in learned.parts:
            own = learner.state.classifier
            put(own, self._join(own, learned))

    def _join(self, own: Any, learned: Learned) -> Any:
        other = arrays_of(learned.parts[CLASSIFIER], self._classifier.init(1))
        return self._classifier.merged(own, other)


# ---- What the shards of a placement learn together, and how each takes in what the others learned
#
# Each shard sends what it has learned itself, and since when; what comes from another one takes
# the place of what that one sent before. So it does no harm if something is sent twice, or is lost
# and sent later. What was sent becomes a mark in the log before it counts: the state of a shard stays
# a fold over its log.
#
# Safe classifiers are joined. Other arrays that all keys share are added up, where the policy says
# that they are sums. Posteriors and counts of placements whose keys are spread over all shards are
# sums, too: natural parameters Λ and η, or plays and rewards, of each shard's own impressions.


def shared_of(policy: Policy, spread: bool) -> list[Shared]:
    """Return what placements of a policy share; nothing where every key learns alone."""
    if spread:
        return [Summed(policy)]
    classifier = classifier_of(policy)
    parts: list[Shared] = [] if classifier is None else [Joined(classifier)]
    return [*parts, Added(policy)] if policy.sums else parts


class Sharing(Aspect):
    """What a placement shares with those of its name in other shards.

    Parameters
    ----------
    parts : sequence of Shared
        What is shared, and how; each knows what of all that is sent is its own.
    """

    mark = MERGE

    def __init__(self, parts: Sequence[Shared]) -> None:
        self._parts = parts

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in what another shard has learned."""
        placement.since_snapshot += 1
        if not placement.modes.frozen:
            learned = msgspec.json.decode(mark.value, type=Learned)
            for part in self._parts:
                part.take(placement.learner, learned)

    def arms_named(self, placement: Placement) -> None:
        """Go on with a policy of more arms."""
        for part in self._parts:
            part.reach(placement.learner.policy)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot; a part that is alone is written as itself."""
        kept = [part.saved() for part in self._parts]
        return {"shared": kept if len(kept) > 1 else kept[0]}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        count = len(self._parts)
        kept = saved.shared if count > 1 and saved.shared else [saved.shared] * count
        for part, own in zip(self._parts, kept, strict=True):
            part.restore(own)

    def learned(self, placement: Placement, everything: bool) -> dict[str, Value]:
        """Return what was learned here since the last time, or altogether."""
        return reduce(or_, (part.learned(placement.learner, everything) for part in self._parts))

    def news(self, placement: Placement, learned: Learned) -> Learned:
        """Return what another shard has learned that is not known here."""
        news = (part.news(placement.learner, learned).parts for part in self._parts)
        return Learned(learned.shard, learned.time, reduce(or_, news))

    @property
    def joined(self) -> Joined | None:
        """The classifier among what is shared."""
        return next((part for part in self._parts if isinstance(part, Joined)), None)
