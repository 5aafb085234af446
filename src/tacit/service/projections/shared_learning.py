"""Shared learning: the shards of a placement exchange their learning.

1. ``SharedUpdate``, and arrays as text.
2. Three ways to merge states: sums for each key, sums over all keys, a safe classifier.
3. ``SharedLearning``: the placement's aspect.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Any, Protocol

import msgspec
import numpy as np

from tacit.classifiers import Classifier
from tacit.core.arrays import Floats, leaves, rebuild_state
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.merging import add_deltas, add_shared, compute_delta, read_shared_sums
from tacit.policies import Policy
from tacit.service.deciders.aspect import Aspect, SavedState
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.errors import NotDurable
from tacit.service.log.rows import MERGE, ChangeRow
from tacit.service.log.store import Snapshot

# ---- Updates between shards, and arrays as text

NOISE = 1e-9
"""Sums below this share of the whole are rounding errors."""
CLASSIFIER, SUMS = "", "sums"
"""Names of the parts that belong to all keys."""
SCRATCH = "scratch."

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class UnknownArms(NotDurable):
    """The update is about arms that are not known here yet."""


class SharedUpdate(msgspec.Struct):
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


class SharedState(Protocol):
    """A state that a placement's learner shares with other shards."""

    def export_update(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return encoded arrays of what this shard learned since the last call, or ever with ``everything``.

        They are by key, or by the name of a part that belongs to all keys. They count as sent.
        """

    def filter_update(self, learner: Learner, update: SharedUpdate) -> SharedUpdate:
        """Return another shard's update with only the parts that would change this shard's learner."""

    def apply_update(self, learner: Learner, update: SharedUpdate) -> None:
        """Add an update of another shard to the learner, in place of the last update of that shard."""

    def resize(self, policy: Policy) -> None:
        """Resize the state for a policy with more arms."""
        return None

    def save_state(self) -> Any:
        """Return the last updates of other shards as JSON data; None if the state keeps none."""
        return None

    def restore(self, saved: Any) -> None:
        """Set the updates that :meth:`save_state` returned."""
        return None


# Arrays as text ------------------------------------------------------------------------------


def encode_array(array: Any) -> str:
    """Encode an array as text: shape, colon, and base64 of its bytes."""
    shape = "x".join(map(str, array.shape))
    return f"{shape}:{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"


def decode_array(text: str, like: Any) -> Any:
    """Decode the text of an array; it gets the type and shape of ``like``.

    Arms that were added since have zeros.

    Raises
    ------
    UnknownArms
        If the array has arms that ``like`` lacks.

    Examples
    --------
    >>> decode_array(encode_array(np.array([[1.0, 2.0]])), like=np.zeros((1, 3))).tolist()
    [[1.0, 2.0, 0.0]]
    """
    shape, _, content = text.rpartition(":")
    # Texts without a shape are from a version before arms could be added.
    sizes = tuple(map(int, shape.split("x"))) if shape else like.shape
    array = np.frombuffer(base64.b64decode(content), like.dtype).reshape(sizes)
    if sizes == like.shape:
        return array
    if len(sizes) != like.ndim or any(n > m for n, m in zip(sizes, like.shape, strict=True)):
        raise UnknownArms("shard: it has not the arms yet of which another one tells; tell it later")
    return pad_array(array, np.zeros_like(like))


def pad_array(source: Any, target: Any) -> Any:
    """Copy ``source`` into the leading corner of ``target``, in place, and return ``target``."""
    target[tuple(map(slice, source.shape))] = source
    return target


def encode_arrays(arrays: Any) -> Value:
    """Encode the arrays of a state as {name: text}, except workspace arrays."""
    return {name: encode_array(array) for name, array in leaves(arrays) if not name.startswith(SCRATCH)}


def decode_arrays(value: Value, like: Any) -> Any:
    """Decode {name: text} to a state with the structure of ``like``.

    Arrays of ``like`` replace missing ones.
    """
    return rebuild_state(
        like, (decode_array(value[name], array) if name in value else array for name, array in leaves(like))
    )


def copy_arrays(target: Any, source: Any) -> None:
    """Overwrite the arrays of ``target``, in place, by the arrays of ``source``, in the same order."""
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array


# ---- Sums for each key: posteriors and counts of keys that are spread over all shards

logger = logging.getLogger(__name__)


class KeySums:
    """Sums of each key, whose impressions are spread over all shards.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        """Begin without updates of other shards."""
        self._received: dict[int, dict[str, Any]] = {}
        # Lanes at the last exchange, by key.
        self._last_lanes: dict[str, bytes] = {}
        self._changed_keys: set[str] = set()
        self._sent: dict[str, Value] = {}
        self.resize(policy)

    def resize(self, policy: Policy) -> None:
        """Resize prior and stored sums for a policy with more arms; new arms have zeros."""
        self._prior = policy.init(1)
        self._zeros = compute_delta(self._prior, self._prior)
        for updates in self._received.values():
            updates |= {key: self._extend(encode_arrays(sums)) for key, sums in updates.items()}
        self._sent |= {key: encode_arrays(self._extend(value)) for key, value in self._sent.items()}

    def _extend(self, value: Value) -> Any:
        """Decode sums of an update; arms that they lack have zeros."""
        return decode_arrays(value, self._zeros)

    def export_update(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the encoded sums of this shard's own impressions for the keys changed since the last call.

        With ``everything``, all sums ever sent are returned as well. The changed keys are cleared.
        """
        self._note_changed_keys(learner, learner.keys)
        for key in sorted(self._changed_keys):
            sums = self._compute_sums(learner, key)
            if sums is not None:
                self._sent[key] = encode_arrays(sums)
        keys, self._changed_keys = self._changed_keys, set()
        return {key: value for key, value in self._sent.items() if everything or key in keys}

    def _compute_sums(self, learner: Learner, key: str) -> Any:
        """Return the sums over this shard's own impressions of a key.

        None if they are only rounding errors.
        """
        whole = sums = compute_delta(_view_lane(learner, key), self._prior)
        for updates in self._received.values():
            if key in updates:
                sums = _subtract(sums, updates[key])
        return None if _find_largest(sums) <= NOISE * _find_largest(whole) else sums

    def _note_changed_keys(self, learner: Learner, keys: Iterable[str]) -> None:
        """Add the keys whose state has changed since the last call to the keys changed on this shard."""
        for key in keys:
            now = _to_bytes(_view_lane(learner, key))
            before = self._last_lanes.get(key)
            # A new key that is still as its prior has learned nothing.
            if now != before and (before is not None or now != _to_bytes(self._prior)):
                self._changed_keys.add(key)
            self._last_lanes[key] = now

    def filter_update(self, learner: Learner, update: SharedUpdate) -> SharedUpdate:
        """Return the update with only the keys whose sums differ from the last update of its shard."""
        updates = self._received.get(update.shard, {})
        fresh = {
            key: value
            for key, value in update.parts.items()
            if key not in updates or _to_bytes(decode_arrays(value, self._zeros)) != _to_bytes(updates[key])
        }
        return SharedUpdate(update.shard, update.time, fresh)

    def apply_update(self, learner: Learner, update: SharedUpdate) -> None:
        """Replace the sums of another shard by its new ones, by key, in the learner's state.

        New keys are admitted. A key whose sums do not fit is logged as an error and skipped.
        """
        updates = self._received.setdefault(update.shard, {})
        learner.lanes.admit(list(update.parts))
        self._note_changed_keys(learner, update.parts)
        for key, value in update.parts.items():
            sums = decode_arrays(value, self._zeros)
            lane = _view_lane(learner, key)
            try:
                whole = add_deltas(lane, [_subtract(sums, updates.get(key, self._zeros))])
            except InvalidValue as error:
                logger.error("what shard %d learned of key %r: %s", update.shard, key, error)
                continue
            copy_arrays(lane, whole)
            updates[key] = sums
            self._last_lanes[key] = _to_bytes(lane)

    def save_state(self) -> Any:
        """Return the last update of each other shard as JSON data."""
        return [
            [shard, {key: encode_arrays(sums) for key, sums in updates.items()}]
            for shard, updates in self._received.items()
        ]

    def restore(self, saved: Any) -> None:
        """Set the updates that :meth:`save_state` returned; none for None."""
        self._received = {
            shard: {key: decode_arrays(value, self._zeros) for key, value in updates.items()}
            for shard, updates in saved or ()
        }


def _view_lane(learner: Learner, key: str) -> Any:
    """Return the view of one key's lane, with a lane axis of 1."""
    return learner.lanes.view(learner.lane(key))


def _to_bytes(arrays: Any) -> bytes:
    """Return the bytes of all arrays of a state, one after the other."""
    return b"".join(array.tobytes() for _, array in leaves(arrays))


def _subtract(first: Any, second: Any) -> Any:
    """Return a state with the differences of two states' arrays."""
    pairs = zip(leaves(first), leaves(second), strict=True)
    return rebuild_state(first, (a - b for (_, a), (_, b) in pairs))


def _find_largest(arrays: Any) -> float:
    """Return the largest absolute value in the arrays of a state; 0 if they are empty."""
    return max(float(np.abs(array).max(initial=0.0)) for _, array in leaves(arrays))


# ---- Sums over all keys: each shard adds the sums of its own keys

GROWTH = 0.02
"""Relative change of a shard's sums at which it sends them again."""

Sums = dict[str, Floats]
"""Arrays by their names."""


class GlobalSums:
    """Sums over all keys: each shard adds the sums of its own keys.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        """Begin without updates of other shards."""
        self._received: dict[int, Sums] = {}
        self._sent: Sums = {}
        self._policy = policy

    def resize(self, policy: Policy) -> None:
        """Resize initial and stored sums for a policy with more arms; new arms have zeros."""
        self._policy = policy
        for name in ("_initial_sums", "_zeros"):
            vars(self).pop(name, None)
        self._received = {shard: self._extend(sums) for shard, sums in self._received.items()}

    # A server alone needs none of these, and may have a thousand placements.
    @cached_property
    def _initial_sums(self) -> Sums:
        """Sums of a state without keys."""
        return read_shared_sums(self._policy, self._policy.init(0))

    @cached_property
    def _zeros(self) -> Sums:
        """Zeros in the shapes of the sums."""
        return {name: np.zeros_like(array) for name, array in self._initial_sums.items()}

    def _extend(self, sums: Sums) -> Sums:
        """Return sums padded with zeros to the current arms; missing arrays are zeros."""
        return {
            name: pad_array(sums[name], like.copy()) if name in sums else like
            for name, like in self._zeros.items()
        }

    def export_update(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return this shard's own sums if they changed by 2 % since they were last sent; otherwise {}.

        With ``everything`` they are returned if they are not zero. Returned sums count as sent.
        """
        sums = whole = read_shared_sums(learner.policy, learner.state)
        for update in (self._initial_sums, *self._received.values()):
            sums = {name: sums[name] - update[name] for name in sums}
        least = 0.0 if everything else GROWTH
        if not _differ(sums, self._zeros if everything else self._extend(self._sent), whole, least):
            return {}
        self._sent = sums
        return {SUMS: {name: encode_array(array) for name, array in sums.items()}}

    def filter_update(self, learner: Learner, update: SharedUpdate) -> SharedUpdate:
        """Return the update's sums if they differ from the shard's last update; otherwise an empty update."""
        sums, updates = self._read(update), self._received.get(update.shard, self._zeros)
        fresh = sums is not None and _differ(sums, updates, sums, 0.0)
        return SharedUpdate(update.shard, update.time, {SUMS: update.parts[SUMS]} if fresh else {})

    def apply_update(self, learner: Learner, update: SharedUpdate) -> None:
        """Add to the learner the difference between a shard's new sums and its last ones, and store them.

        An update without fitting sums changes nothing.
        """
        sums, updates = self._read(update), self._received.get(update.shard, self._zeros)
        if sums is not None:
            add_shared(learner, {name: array - updates[name] for name, array in sums.items()})
            self._received[update.shard] = sums

    def _read(self, update: SharedUpdate) -> Sums | None:
        """Return the sums of an update; None without any, or if they do not fit (logged as an error)."""
        value = update.parts.get(SUMS)
        if value is None:
            return None
        try:
            return {name: decode_array(value[name], like) for name, like in self._zeros.items()}
        except (KeyError, ValueError) as error:
            logger.error("the sums of shard %d do not fit: %s", update.shard, error)
            return None

    def save_state(self) -> Any:
        """Return the last update of each other shard as JSON data."""
        return [
            [shard, {name: encode_array(array) for name, array in updates.items()}]
            for shard, updates in self._received.items()
        ]

    def restore(self, saved: Any) -> None:
        """Set the updates that :meth:`save_state` returned; none for None."""
        self._received = {
            shard: {name: decode_array(updates[name], like) for name, like in self._zeros.items()}
            for shard, updates in saved or ()
        }


def _differ(sums: Sums, others: Sums, whole: Sums, least: float) -> bool:
    """True if ``sums`` and ``others`` differ in any row by more than a share of ``others`` and than rounding.

    Rows, such as arms, are compared separately, so that rare ones count. ``least`` is the share, ``whole``
    gives the scale of rounding errors.
    """
    return any(
        bool((change > least * _sum_by_row(others[name]) + NOISE * _sum_by_row(whole[name])).any())
        for name, array in sums.items()
        for change in [_sum_by_row(array - others[name])]
    )


def _sum_by_row(array: Floats) -> Floats:
    """Return the sum of absolute values over all axes but the first two."""
    sums: Floats = np.abs(array).sum(axis=tuple(range(2, array.ndim)))
    return sums


# ---- A safe classifier of all keys, joined over the shards


def find_shared_classifier(policy: Policy) -> Classifier | None:
    """Return the classifier that all keys of a policy, or of its inner policy, share; None without one."""
    classifier = getattr(policy, "classifier", None)
    if isinstance(classifier, Classifier):
        return None if getattr(policy, "per_key", False) else classifier
    inner = getattr(policy, "policy", None)
    wraps = isinstance(inner, Policy) and hasattr(policy.init(0), "classifier")
    return find_shared_classifier(inner) if wraps else None  # type: ignore[arg-type]


class JoinedClassifier(SharedState):
    """A safe classifier that each shard joins with the classifiers of the others.

    It is independent of the arms; the joined classifier is in the learner's state.

    Parameters
    ----------
    classifier : Classifier
    """

    def __init__(self, classifier: Classifier) -> None:
        """Begin as if the untrained classifier had been sent."""
        self._classifier = classifier
        self._last_value: Value = encode_arrays(classifier.init(1))

    def export_update(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the encoded classifier if it changed since the last call; else {}, unless ``everything``."""
        now = encode_arrays(learner.state.classifier)
        before, self._last_value = self._last_value, now
        return {CLASSIFIER: now} if everything or now != before else {}

    def filter_update(self, learner: Learner, update: SharedUpdate) -> SharedUpdate:
        """Return the update with its classifier.

        Without it if joining it would change nothing on this shard.
        """
        classifier = learner.state.classifier
        part = {name: value for name, value in update.parts.items() if name == CLASSIFIER}
        is_known = not part or encode_arrays(self._join(classifier, update)) == encode_arrays(classifier)
        return SharedUpdate(update.shard, update.time, {} if is_known else part)

    def apply_update(self, learner: Learner, update: SharedUpdate) -> None:
        """Join another shard's classifier into the one in the learner's state."""
        if CLASSIFIER in update.parts:
            classifier = learner.state.classifier
            copy_arrays(classifier, self._join(classifier, update))

    def _join(self, classifier: Any, update: SharedUpdate) -> Any:
        """Return the join of a classifier's state and the state in an update; neither is changed."""
        received = decode_arrays(update.parts[CLASSIFIER], self._classifier.init(1))
        return self._classifier.merge_states(classifier, received)


# ---- The aspect: shared states of a placement
#
# Each shard sends the total of its own learning; an update replaces the previous one of its shard, so
# updates may be repeated or lost and sent later. An update is logged as a change event before it is
# applied: the state of a shard stays a fold over its log.
#
# Safe classifiers are joined. Other arrays of all keys are added if the policy declares them as sums.
# Posteriors and counts of placements whose keys are spread over all shards are sums, too: natural
# parameters Λ and η, or plays and rewards, of each shard's own impressions.


def make_shared_states(policy: Policy, spread: bool) -> list[SharedState]:
    """Return the states that the shards of a placement exchange.

    [] if each key is learned on one shard alone.

    ``spread`` means that impressions of each key are spread over all shards.
    """
    if spread:
        return [KeySums(policy)]
    classifier = find_shared_classifier(policy)
    parts: list[SharedState] = [] if classifier is None else [JoinedClassifier(classifier)]
    return [*parts, GlobalSums(policy)] if policy.sums else parts


class SharedLearning(Aspect):
    """The states that a placement shares with the other shards.

    Parameters
    ----------
    parts : sequence of SharedState
        Shared states; each selects its parts of an update.
    policy : PolicyDecider
    modes : Modes
    """

    change_kind = MERGE

    def __init__(self, parts: Sequence[SharedState], policy: PolicyDecider, modes: Modes) -> None:
        self._parts, self._policy, self._modes = parts, policy, modes

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: add another shard's update to the learner, unless the placement is frozen.

        Always counts as one event towards the next snapshot.
        """
        if not self._modes.frozen:
            update = msgspec.json.decode(change.value, type=SharedUpdate)
            for part in self._parts:
                part.apply_update(self._policy.learner, update)
        return 1

    def update_arms(self) -> None:
        """Resize the shared states for the policy's current arms."""
        for part in self._parts:
            part.resize(self._policy.learner.policy)

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's field "shared": the state as JSON data, or a list of several states."""
        states = [part.save_state() for part in self._parts]
        return {"shared": states if len(states) > 1 else states[0]}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the shared states from a snapshot."""
        # A single state is saved as it is, several as a list; None if there was none.
        count = len(self._parts)
        states = saved.shared if count > 1 and saved.shared else [saved.shared] * count
        for part, state in zip(self._parts, states, strict=True):
            part.restore(state)

    def export_update(self, everything: bool) -> dict[str, Value]:
        """Return this shard's learning since the last call, or all of it, as encoded arrays by part."""
        return reduce(or_, (part.export_update(self._policy.learner, everything) for part in self._parts))

    def filter_update(self, update: SharedUpdate) -> SharedUpdate:
        """Return another shard's update with only the parts that would change something here."""
        parts = (part.filter_update(self._policy.learner, update).parts for part in self._parts)
        return SharedUpdate(update.shard, update.time, reduce(or_, parts))

    @property
    def classifier(self) -> JoinedClassifier | None:
        """The shared classifier's state among the parts; None without one."""
        return next((part for part in self._parts if isinstance(part, JoinedClassifier)), None)
