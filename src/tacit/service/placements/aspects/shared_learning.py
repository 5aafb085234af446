"""Shared learning: the shards of a placement exchange their learning.

1. ``SharedUpdate``, and arrays as text.
2. Three ways to merge states: sums for each key, sums over all keys, a safe classifier.
3. ``SharedLearning``: the placement's aspect.
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

# ---- Updates between shards, and arrays as text

NOISE = 1e-9
"""Sums below this share of the whole are rounding errors."""
CLASSIFIER, SUMS = "", "sums"
"""Names of the parts that belong to all keys."""
SCRATCH = "scratch."

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class NotYet(NotDurable):
    """The update is about arms that are not known here yet."""


class Learned(msgspec.Struct):
    """An update with the learning of one shard, up to a time of its log.

    Attributes
    ----------
    shard : int
    time : int
        Microseconds since 1970.
    parts : dict of str to dict of str to str
        Arrays of each key, or of the classifier and the sums of all keys.
    """

    shard: int
    time: int
    parts: dict[str, Value]


class Shared(Protocol):
    """A state that a placement's learner shares with other shards."""

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the learning of this shard since the last call, or altogether."""

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return the parts of an update that are not known here."""

    def take(self, learner: Learner, learned: Learned) -> None:
        """Apply an update of another shard."""

    def reach(self, policy: Policy) -> None:
        """Extend the state to a policy with more arms."""
        return None

    def saved(self) -> Any:
        """Return the received updates as JSON data."""
        return None

    def restore(self, saved: Any) -> None:
        """Restore the updates that :meth:`save_state` wrote."""
        return None


# Arrays as text ------------------------------------------------------------------------------


def text_of(array: Any) -> str:
    """Encode the shape and bytes of an array as text."""
    shape = "x".join(map(str, array.shape))
    return f"{shape}:{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"


def array_of(text: str, like: Any) -> Any:
    """Decode an array of the form of another one.

    Arms that were added since have zeros.

    Raises
    ------
    UnknownArms
        If the array has arms that ``like`` lacks.

    Examples
    --------
    >>> array_of(text_of(np.array([[1.0, 2.0]])), like=np.zeros((1, 3))).tolist()
    [[1.0, 2.0, 0.0]]
    """
    shape, _, content = text.rpartition(":")
    # Texts without a shape are from a version before arms could be added.
    sizes = tuple(map(int, shape.split("x"))) if shape else like.shape
    array = np.frombuffer(base64.b64decode(content), like.dtype).reshape(sizes)
    if sizes == like.shape:
        return array
    if len(sizes) != like.ndim or any(n > m for n, m in zip(sizes, like.shape, strict=True)):
        raise NotYet("shard: it has not the arms yet of which another one tells; tell it later")
    return padded(array, np.zeros_like(like))


def padded(small: Any, large: Any) -> Any:
    """Copy ``source`` into the leading corner of ``target``."""
    large[tuple(map(slice, small.shape))] = small
    return large


def value_of(arrays: Any) -> Value:
    """Encode a named tuple's arrays by name, without workspace arrays."""
    return {name: text_of(array) for name, array in leaves(arrays) if not name.startswith(SCRATCH)}


def arrays_of(value: Value, like: Any) -> Any:
    """Decode a named tuple; arrays without a text are taken from ``like``."""
    return rebuilt(
        like, (array_of(value[name], array) if name in value else array for name, array in leaves(like))
    )


def put(target: Any, source: Any) -> None:
    """Copy arrays into the arrays of the same names."""
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array


# ---- Sums for each key: posteriors and counts of keys that are spread over all shards

logger = logging.getLogger(__name__)


class Summed:
    """Sums over the impressions of each key, which are spread over all shards.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, dict[str, Any]] = {}
        # Lanes at the last exchange, by key.
        self._before: dict[str, bytes] = {}
        self._learned: set[str] = set()
        self._sent: dict[str, Value] = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Extend the sums to a policy with more arms."""
        self._prior = policy.init(1)
        self._nothing = delta(self._prior, self._prior)
        for known in self._known.values():
            known |= {key: self._reached(value_of(sums)) for key, sums in known.items()}
        self._sent |= {key: value_of(self._reached(value)) for key, value in self._sent.items()}

    def _reached(self, value: Value) -> Any:
        """Return sums of an update, extended to all arms."""
        return arrays_of(value, self._nothing)

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the sums of the keys that were learned here since the last call."""
        self._look(learner, learner.keys)
        for key in sorted(self._learned):
            own = self._own(learner, key)
            if own is not None:
                self._sent[key] = value_of(own)
        learned, self._learned = self._learned, set()
        return {key: value for key, value in self._sent.items() if everything or key in learned}

    def _own(self, learner: Learner, key: str) -> Any:
        """Return the sums over this shard's impressions; None for nothing."""
        whole = own = delta(_lane(learner, key), self._prior)
        for known in self._known.values():
            if key in known:
                own = _minus(own, known[key])
        return None if _size(own) <= NOISE * _size(whole) else own

    def _look(self, learner: Learner, keys: Iterable[str]) -> None:
        """Note the keys that were learned here."""
        for key in keys:
            now = _content(_lane(learner, key))
            before = self._before.get(key)
            if now != before and (before is not None or now != _content(self._prior)):
                self._learned.add(key)
            self._before[key] = now

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return the keys whose sums differ from the shard's last update."""
        known = self._known.get(learned.shard, {})
        fresh = {
            key: value
            for key, value in learned.parts.items()
            if key not in known or _content(arrays_of(value, self._nothing)) != _content(known[key])
        }
        return Learned(learned.shard, learned.time, fresh)

    def take(self, learner: Learner, learned: Learned) -> None:
        """Replace the last update of a shard by a new one."""
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
        """Return the last update of each other shard."""
        return [
            [shard, {key: value_of(sums) for key, sums in known.items()}]
            for shard, known in self._known.items()
        ]

    def restore(self, saved: Any) -> None:
        """Restore the updates that :meth:`save_state` wrote."""
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


# ---- Sums over all keys: each shard adds the sums of its own keys

GROWTH = 0.02
"""Relative change of a shard's sums at which it sends them again."""

Sums = dict[str, Floats]
"""Arrays by their names."""


class Added:
    """Sums over all keys: each shard adds the sums of its own keys.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        self._known: dict[int, Sums] = {}
        self._sent: Sums = {}
        self.reach(policy)

    def reach(self, policy: Policy) -> None:
        """Extend the sums to a policy with more arms."""
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
        """Return the sums of this shard if they have changed enough, or always with ``everything``."""
        own = whole = shared_sums(learner.policy, learner.state)
        for other in (self._begun, *self._known.values()):
            own = {name: own[name] - other[name] for name in own}
        least = 0.0 if everything else GROWTH
        if not _differ(own, self._nothing if everything else self._sent, whole, least):
            return {}
        self._sent = own
        return {SUMS: {name: text_of(array) for name, array in own.items()}}

    def news(self, learner: Learner, learned: Learned) -> Learned:
        """Return nothing if the sums equal the shard's last update."""
        sums, known = self._read(learned), self._known.get(learned.shard, self._nothing)
        fresh = sums is not None and _differ(sums, known, sums, 0.0)
        return Learned(learned.shard, learned.time, {SUMS: learned.parts[SUMS]} if fresh else {})

    def take(self, learner: Learner, learned: Learned) -> None:
        """Replace the last update of a shard by a new one."""
        sums, known = self._read(learned), self._known.get(learned.shard, self._nothing)
        if sums is not None:
            add_shared(learner, {name: array - known[name] for name, array in sums.items()})
            self._known[learned.shard] = sums

    def _read(self, learned: Learned) -> Sums | None:
        """Return the sums of an update; None if it has none or they do not fit."""
        value = learned.parts.get(SUMS)
        if value is None:
            return None
        try:
            return {name: array_of(value[name], like) for name, like in self._nothing.items()}
        except (KeyError, ValueError) as error:
            logger.error("the sums of shard %d do not fit: %s", learned.shard, error)
            return None

    def saved(self) -> Any:
        """Return the last update of each other shard."""
        return [
            [shard, {name: text_of(array) for name, array in known.items()}]
            for shard, known in self._known.items()
        ]

    def restore(self, saved: Any) -> None:
        """Restore the updates that :meth:`save_state` wrote."""
        self._known = {
            shard: {name: array_of(known[name], like) for name, like in self._nothing.items()}
            for shard, known in saved or ()
        }


def _differ(sums: Sums, others: Sums, whole: Sums, least: float) -> bool:
    """True if sums differ from a reference by more than a share of it and than rounding errors.

    Rows, such as arms, are compared separately, so that rare ones count.
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


# ---- A safe classifier of all keys, joined over the shards


def classifier_of(policy: Policy) -> Classifier | None:
    """Return the classifier that all keys of a policy share."""
    classifier = getattr(policy, "classifier", None)
    if isinstance(classifier, Classifier):
        return None if getattr(policy, "per_key", False) else classifier
    inner = getattr(policy, "policy", None)
    wraps = isinstance(inner, Policy) and hasattr(policy.init(0), "classifier")
    return classifier_of(inner) if wraps else None  # type: ignore[arg-type]


class Joined(Shared):
    """A safe classifier of each shard, joined over all shards, so that each has what any has learned.

    It is independent of the arms; the joined classifier is in the learner's state.

    Parameters
    ----------
    classifier : Classifier
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._before: Value = value_of(classifier.init(1))

    def learned(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the classifier if it has changed since the last call."""
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
        """Join the classifier of another shard."""
        if CLASSIFIER in learned.parts:
            own = learner.state.classifier
            put(own, self._join(own, learned))

    def _join(self, own: Any, learned: Learned) -> Any:
        other = arrays_of(learned.parts[CLASSIFIER], self._classifier.init(1))
        return self._classifier.merged(own, other)


# ---- The aspect: shared states of a placement
#
# Each shard sends the total of its own learning; an update replaces the previous one of its shard, so
# updates may be repeated or lost and sent later. An update is logged as a change event before it is
# applied: the state of a shard stays a fold over its log.
#
# Safe classifiers are joined. Other arrays of all keys are added if the policy declares them as sums.
# Posteriors and counts of placements whose keys are spread over all shards are sums, too: natural
# parameters Λ and η, or plays and rewards, of each shard's own impressions.


def shared_of(policy: Policy, spread: bool) -> list[Shared]:
    """Return the shared states of a policy's placements; none if every key learns alone."""
    if spread:
        return [Summed(policy)]
    classifier = classifier_of(policy)
    parts: list[Shared] = [] if classifier is None else [Joined(classifier)]
    return [*parts, Added(policy)] if policy.sums else parts


class Sharing(Aspect):
    """The states that a placement shares with the other shards.

    Parameters
    ----------
    parts : sequence of SharedState
        Shared states; each selects its parts of an update.
    """

    mark = MERGE

    def __init__(self, parts: Sequence[Shared]) -> None:
        self._parts = parts

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Apply an update of another shard."""
        placement.since_snapshot += 1
        if not placement.modes.frozen:
            learned = msgspec.json.decode(mark.value, type=Learned)
            for part in self._parts:
                part.take(placement.learner, learned)

    def arms_named(self, placement: Placement) -> None:
        """Extend the shared states to a policy with more arms."""
        for part in self._parts:
            part.reach(placement.learner.policy)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's field of a snapshot; a single state is stored without a list."""
        kept = [part.saved() for part in self._parts]
        return {"shared": kept if len(kept) > 1 else kept[0]}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the shared states from a snapshot."""
        count = len(self._parts)
        kept = saved.shared if count > 1 and saved.shared else [saved.shared] * count
        for part, own in zip(self._parts, kept, strict=True):
            part.restore(own)

    def learned(self, placement: Placement, everything: bool) -> dict[str, Value]:
        """Return the learning of this shard since the last call, or altogether."""
        return reduce(or_, (part.learned(placement.learner, everything) for part in self._parts))

    def news(self, placement: Placement, learned: Learned) -> Learned:
        """Return the parts of another shard's update that are not known here."""
        news = (part.news(placement.learner, learned).parts for part in self._parts)
        return Learned(learned.shard, learned.time, reduce(or_, news))

    @property
    def joined(self) -> Joined | None:
        """The shared classifier, or None."""
        return next((part for part in self._parts if isinstance(part, Joined)), None)
