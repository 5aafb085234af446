"""The parts of a learner.

From top to bottom: its arms and the subset on offer, the lanes that hold each key's state, and the
compiled loops over batches.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cached_property, partial
from typing import Any, overload
from weakref import ref

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints, byte_count, copy_to_larger, lane_rows, lanes_view
from tacit.core.checks import ONLY_KEY
from tacit.core.dispatch import learns_from_propensity
from tacit.core.run_mode import compile_loop
from tacit.errors import AssumptionWarning, InvalidValue, UnknownName
from tacit.learning.batch import (
    Batch,
    choose_rows,
    correct_rows,
    force_rows,
    learn_rows,
    observe_rows,
    place_rows,
    refit_shared,
    replay_rows,
    weigh_cells,
    weigh_rows,
)
from tacit.learning.decisions import Arm
from tacit.policies.base import NO_FEATURES, Policy

# ---- Arms: their indices, and the subset on offer


class Offer:
    """The arms of a policy, some of them retired; immutable.

    Parameters
    ----------
    arms : int, tuple of str, or None
        The policy's ``arms``; None if arms are identified by their features.
    retired : sequence of arms

    Attributes
    ----------
    all : int, tuple of str, or None
        ``arms``.
    names : tuple
        The arm of each arm index.
    arm_indices : array of int64
        Indices of the arms on offer.
    """

    def __init__(self, arms: int | tuple[str, ...] | None, retired: Sequence[Arm] = ()) -> None:
        """Create an offer of all arms except the retired ones."""
        self.names: tuple[Any, ...] = tuple(range(arms)) if isinstance(arms, int) else arms or ()
        self._index_of_arm = {name: index for index, name in enumerate(self.names)}
        self.all = arms
        retired_indices = {self._index_of_arm[name] for name in retired}
        self.arm_indices = np.array([s for s in range(len(self.names)) if s not in retired_indices], np.int64)

    @property
    def arms(self) -> list[Any]:
        """The arms on offer."""
        return [self.names[index] for index in self.arm_indices.tolist()]

    @property
    def retired(self) -> list[Any]:
        """The arms that are not on offer."""
        offered = set(self.arm_indices.tolist())
        return [name for index, name in enumerate(self.names) if index not in offered]

    def find_arm_indices(self, arms: Sequence[Arm], call: str = "{}_arms") -> Ints:
        """Return the indices of arms, all of which must be on offer.

        ``call`` says, in errors, how arms are changed: its {} becomes "add" or "restore".

        Raises
        ------
        InvalidValue
            If the list is empty or has an arm twice, or is one string in place of a list.
        UnknownName
            If an arm is unknown or retired.
        """
        offered = set(self.arm_indices.tolist())
        arm_indices = []
        for arm in checks.offer(arms):
            index = self._index_of_arm.get(arm)
            if index is None or index not in offered:
                why, change = ("", "add") if index is None else (", as it is retired", "restore")
                remedy = f"leave it out, or put it on offer ({call.format(change)})"
                raise UnknownName(f"arms: {arm!r} is not on offer{why}; on offer are {self.arms}; {remedy}")
            arm_indices.append(index)
        if not arm_indices or len(set(arm_indices)) < len(arm_indices):
            raise InvalidValue("arms", arms, "offer at least one arm, and each only once")
        return np.array(arm_indices, np.int64)

    def with_new_arms(self, arms: int | Sequence[str]) -> tuple[list[Any], Offer]:
        """Return the list of new arms, and a new offer that includes them; this offer is unchanged.

        Parameters
        ----------
        arms : int or sequence of str
            Number of new arms if arms are numbered; otherwise their names.

        Raises
        ------
        InvalidValue
            If an arm exists already, or names are passed for numbered arms, or the reverse.
        """
        if self.all is None:
            raise InvalidValue(
                "arms",
                arms,
                "this policy knows arms by features; say at each decision what is on, or put it into .items",
            )
        if isinstance(self.all, int):
            if not isinstance(arms, int):
                raise InvalidValue("arms", arms, "arms are numbered here; say how many come")
            count = self.all + checks.integer("arms", arms, 1)
            return list(range(self.all, count)), Offer(count, self.retired)
        names = checks.arms("arms", arms)
        if isinstance(names, int):
            raise InvalidValue("arms", arms, "arms have names here; give those of the new ones")
        for name in names:
            if name in self._index_of_arm:
                status = "retired; restore it" if name in self.retired else "on offer already"
                raise InvalidValue("arms", name, f"it is {status}")
        return list(names), Offer((*self.all, *names), self.retired)

    def exclude_arms(self, arms: Sequence[Arm]) -> Offer:
        """Return a new offer without some arms, which become retired.

        Raises
        ------
        UnknownName
            If an arm does not exist.
        InvalidValue
            If no arm would remain on offer.
        """
        arm_indices = self._find_indices(arms)
        if arm_indices and set(self.arm_indices.tolist()) <= arm_indices:
            raise InvalidValue("arms", arms, "no arm would be on offer; add another one first")
        return Offer(self.all, [*self.retired, *(self.names[index] for index in arm_indices)])

    def with_restored_arms(self, arms: Sequence[Arm]) -> Offer:
        """Return a new offer with some retired arms on offer again; arms already on offer are ignored.

        Raises
        ------
        UnknownName
            If an arm does not exist.
        """
        back = {self.names[index] for index in self._find_indices(arms)}
        return Offer(self.all, [arm for arm in self.retired if arm not in back])

    def _find_indices(self, arms: Sequence[Arm]) -> set[int]:
        """Return the indices of arms, on offer or retired; raise UnknownName if an arm does not exist."""
        arm_indices = set()
        for arm in checks.offer(arms):
            if arm not in self._index_of_arm:
                arms_hint = f"the arms are {list(self.names)}"
                hint = arms_hint if self.names else "items are put and removed by .items"
                raise UnknownName(f"arms: there is no arm {arm!r}; {hint}")
            arm_indices.add(self._index_of_arm[arm])
        return arm_indices


# ---- Lanes: each key's row of the state; the only place where states are created and grow
#
# Arrays that all keys share have no lanes: they exist before the first key, and stay when other arrays grow.

SPARE_LANES = 64
SHORT = 128
"""Number of characters of a key up to which it is never too long."""


WARNING_BYTES = 2**30
"""Bytes of all keys together above which a warning is given."""
MAX_SUGGESTION_KEYS = 1000
"""Number of keys up to which an error about an unknown key suggests a similar one."""


class Lanes:
    """The state of a policy, a lane for each key.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    lane_of_key : dict of str to int
        The lane of each key, in the order of first use.
    state : named tuple
        Arrays with a leading lane axis, of which some lanes may be spare; arrays that all keys
        share have an axis of length 1.
    plays : array of int64, shape (lanes, arms)
        How often each arm was ever shown and learned from, even if the policy has forgotten it;
        without columns if the policy forgets nothing.
    logged : bool
        True if all keys come from logs that were learned.
    """

    def __init__(self, policy: Policy) -> None:
        """Create the state of a policy without keys."""
        self.logged = False
        self.lane_of_key: dict[str, int] = {}
        self._names: list[str] = []
        self.plays = make_plays(policy, 0)
        self._policy = policy
        self._capacity = 0
        if not type(getattr(policy, "policy", policy)).__module__.startswith("tacit."):
            self.state = policy.init(0)  # a policy of one's own that cannot begin says so at once
        self._measured: tuple[Callable[[], Any], int] = (lambda: None), 0

    @cached_property
    def state(self) -> Any:
        """The state without keys until the first key; made at first use, as a snapshot may replace it."""
        return self._policy.init(0)

    def lane(self, key: str) -> int:
        """Return the lane of a known key.

        Raises
        ------
        UnknownName
            If the key has none.
        """
        try:
            return self.lane_of_key[key]
        except KeyError:
            has_few_keys = len(self.lane_of_key) <= MAX_SUGGESTION_KEYS
            near = get_close_matches(key, self.lane_of_key, 1) if has_few_keys else []
            suggestion = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnknownName(
                f"key: nothing was ever chosen for {key!r} by this learner{suggestion}; choose for it "
                "first, give a key that is in keys, or a decision to the learner that made it"
            ) from None

    @property
    def bytes(self) -> int:
        """Size of the state's arrays in bytes, 0 before the first use; other threads may ask for it."""
        if "state" not in vars(self):
            return 0
        # The plays are replaced after the state, whenever that is; a weak reference keeps no old ones.
        plays = self.plays
        if self._measured[0]() is not plays:
            self._measured = ref(plays), byte_count(self.state)
        return self._measured[1]

    @cached_property
    def rows(self) -> list[int]:
        """For each array of the state, the number of rows of a lane; 0 for arrays that all lanes share."""
        return lane_rows(self._policy.init)

    def keys(self) -> KeySnapshot:
        """Return a view of the present keys in the order of their lanes; it excludes keys added later."""
        return KeySnapshot(self._names)

    def view(self, lane: int) -> Any:
        """Return writable views of a lane's rows of the state and of all shared arrays.

        The views are valid until another key gets a lane.
        """
        return lanes_view(self.state, self.rows, lane, lane + 1)

    def admit(self, keys: Sequence[str]) -> Ints:
        """Return the lanes of keys in their order; a new key gets the next lane, and the state grows if
        needed.

        Warns if the state grows beyond 1 GiB, or if a new key does not fit the log that was learned.

        Raises
        ------
        InvalidValue
            If a key is too long, or one string is given in place of a list of keys; then no key
            gets a lane.
        """
        lanes = list(map(self.lane_of_key.get, keys)) if type(keys) is list else [None]
        if None in lanes:
            checks.names("keys", keys)
            lanes = list(map(self.lane_of_key.get, keys))
            new = dict.fromkeys(k for k, lane in zip(keys, lanes, strict=True) if lane is None)
            for key in new:
                checks.name("key", key)
            for key in new:
                self._add(key)
            lanes = list(map(self.lane_of_key.get, keys))
        return np.array(lanes, dtype=np.int64)

    def _add(self, key: str) -> None:
        """Give a new key the next lane; enlarge the state, with warnings, if no spare lane is left."""
        lane = len(self.lane_of_key)
        if self.logged:
            self._warn_of_unlearned_key(key)
        if lane >= self._capacity:
            self._capacity = max(SPARE_LANES, 2 * self._capacity)
            self._warn_of_memory()
            self._grow(self._policy)
        self.lane_of_key[key] = lane
        self._names.append(key)

    def _warn_of_unlearned_key(self, key: str) -> None:
        """Warn if a new key does not fit the learned log, and clear ``logged``: it is checked once.

        It does not fit if the log had keys and this is the default key, or the reverse.
        """
        self.logged = False
        is_unlearned = len(self.lane_of_key) == 1 if ONLY_KEY in self.lane_of_key else key == ONLY_KEY
        if is_unlearned and all(self.rows):
            logged_key = next(iter(self.lane_of_key))
            message = f"key: nothing is known of {key!r}, as the log was learned of {logged_key!r}"
            remedy = "choose for a key of the log, or fit_log with columns={'key': ...}"
            warnings.warn(f"{message}; {remedy}", AssumptionWarning, stacklevel=6)

    def _warn_of_memory(self) -> None:
        """Warn if the state, about to be enlarged, takes more than 1 GiB."""
        key_bytes = self._policy.key_bytes
        if key_bytes * self._capacity > WARNING_BYTES:
            warnings.warn(
                f"keys: room is made for {self._capacity:,} of {key_bytes:,} bytes each, "
                f"{key_bytes * self._capacity / 2**30:.1f} GiB; let keys share what is learned "
                "(per_key=False, where a policy has it), or give fewer keys, arms or numbers",
                AssumptionWarning,
                stacklevel=5,
            )

    def resize(self, policy: Policy) -> None:
        """Enlarge the state and the plays for a policy with more arms, without losing what was learned."""
        self._grow(policy)
        self._policy = policy

    def count_plays(self, lane: int) -> Floats:
        """Return how often each arm was ever shown to a lane's key and learned from, shape (arms,).

        All are NaN if the policy forgets nothing, as plays are not counted here then; an arm is NaN if
        unknown.
        """
        if not self.plays.shape[1]:
            return np.full(self._policy.arm_count, np.nan)
        # Where the first plays were not counted, version 0.3 started counting below 0.
        return np.where(self.plays[lane] < 0, np.nan, self.plays[lane])

    def copy_all(self) -> tuple[dict[str, int], Any, Ints, int]:
        """Return a copy of keys, state, plays and capacity, for :meth:`roll_back`."""
        return dict(self.lane_of_key), copy.deepcopy(self.state), self.plays.copy(), self._capacity

    def roll_back(self, backup: tuple[dict[str, int], Any, Ints, int]) -> None:
        """Restore keys, state, plays and capacity from what :meth:`copy_all` returned; keys added since lose
        their lanes.
        """
        self.lane_of_key.clear()
        lane_of_key, self.state, self.plays, self._capacity = backup
        self.lane_of_key.update(lane_of_key)
        self._names = list(lane_of_key)

    def view_all(self) -> Any:
        """Return views of the state's arrays, without spare lanes; writing to them changes the state."""
        return lanes_view(self.state, self.rows, 0, len(self.lane_of_key))

    def restore(self, state: Any, plays: Ints, keys: Sequence[str]) -> None:
        """Replace keys, state and plays by a snapshot's, with a lane for each key in order."""
        # A million keys are checked one by one only if one of them may be wrong.
        if (
            set(map(type, keys)) - {str}
            or not all(map(str.isascii, keys))
            or max(map(len, keys), default=0) > SHORT
        ):
            keys = [checks.name("key", key) for key in keys]
        self.lane_of_key = dict(zip(keys, range(len(keys)), strict=True))
        self._names = list(self.lane_of_key)
        self.state, self._capacity = state, len(keys)
        self.plays = plays

    def _grow(self, policy: Policy) -> None:
        """Move state and plays to arrays of the present capacity; new lanes and arms are as ``policy``
        initializes them.
        """
        # Spare lanes are not copied: the policy may initialize them differently now.
        self.state = copy_to_larger(self.view_all(), policy.init(self._capacity))
        plays, old_plays = make_plays(policy, self._capacity), self.plays[: len(self.lane_of_key)]
        plays[: len(old_plays), : old_plays.shape[1]] = old_plays
        self.plays = plays


class KeySnapshot(Sequence[str]):
    """View of the present items of a list that only grows; avoids copying a million keys.

    Examples
    --------
    >>> names = ["a", "b"]
    >>> keys = KeySnapshot(names)
    >>> names.append("c")
    >>> list(keys), keys[1:9], keys[-1]
    (['a', 'b'], ['b'], 'b')
    """

    def __init__(self, names: list[str]) -> None:
        """Fix the view's length to the present length of ``names``."""
        self._names, self._count = names, len(names)

    def __len__(self) -> int:
        """Return the number of keys when the view was created."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return the name at an index, or the list of names of a slice."""
        if isinstance(index, slice):
            return [self._names[i] for i in range(*index.indices(self._count))]
        return self._names[range(self._count)[index]]


def make_plays(policy: Policy, lanes: int) -> Ints:
    """Return an array of zeros, shape (lanes, arms), to count plays of arms in.

    It has no columns if the policy forgets nothing or has no fixed arms, as plays are not counted then.
    """
    counted = policy.forgets and policy.arms is not None
    return np.zeros((lanes, policy.arm_count if counted else 0), np.int64)


# ---- The compiled loops of one learner, and buffers for a batch of one


class Loops:
    """Loops over batches, each compiled at its first use.

    Parameters
    ----------
    policy : Policy
    offer : Offer
    lanes : Lanes
    rng : Generator
    reported : bool
        Whether decisions carry their propensity.

    Attributes
    ----------
    params : named tuple
    single_batch : Batch
        One impression: all arms on offer, no context.
    action, feedback, epoch, propensity, fresh, prefixes, places : array
        Buffers for the decision on that impression and its feedback.
    action_row, feedback_row, context, lane : array
        The only rows of ``action``, ``feedback`` and the contexts of ``single_batch``, and its lanes.
    outcome : tuple of array
        The buffers in the order in which ``learn`` takes them.
    propensity_buffer : array or None
        ``propensity`` if decisions carry their propensity, else None.
    """

    def __init__(self, policy: Policy, offer: Offer, lanes: Lanes, rng: Generator, reported: bool) -> None:
        """Allocate the buffers for a batch of one; nothing is compiled yet."""
        self.params = policy.params
        self._user_class = None if type(policy).__module__.startswith("tacit.") else type(policy).__name__
        self._offered = offer.arm_indices
        # Start and stop of a single impression's arms; no loop writes there, so they are shared.
        self._single_bounds = np.zeros(1, np.int64), np.full(1, len(offer.arm_indices), np.int64)
        self._lanes, self._rng = lanes, rng
        self.single_batch = self.make_plain_batch(np.zeros(1, np.int64), np.zeros((1, policy.context_dim)))
        self.action = np.empty((1, policy.action_width), np.int64)
        self.action_row, self.context = self.action[0], self.single_batch.contexts[0]
        self.lane, self.feedback = self.single_batch.lanes, np.empty((1, policy.feedback_width))
        self.epoch, self.propensity = np.empty(1, np.int64), np.full(1, np.nan)
        self.fresh, self.feedback_row = np.zeros(1, np.bool_), self.feedback[0]
        self.outcome = self.action, self.feedback, self.propensity, self.epoch, self.fresh
        self.prefixes, self.places = np.empty((2, 1, policy.action_width))
        has_propensity = reported or learns_from_propensity(self.params)
        self.propensity_buffer = self.propensity if has_propensity else None

    def make_plain_batch(self, lanes: Ints, contexts: Floats) -> Batch:
        """Return a batch of one impression per lane, each with all arms on offer and no features of arms."""
        rows, arms = len(lanes), self._offered
        if rows == 1:
            starts, stops = self._single_bounds
        else:
            starts, stops = np.zeros(rows, np.int64), np.full(rows, len(arms), np.int64)
        return Batch(lanes, arms, starts, stops, contexts, NO_FEATURES, NO_FEATURES)

    @cached_property
    def choose(self) -> Any:
        """The compiled loop over ``choose_rows``.

        For a user-defined policy, it warns of choices that are not on offer.
        """
        loop = self._compile_entry(choose_rows, self._rng, self.action, self.epoch, self.propensity_buffer)
        return loop if self._user_class is None else partial(_choose_checked, self._user_class, loop)

    @cached_property
    def force(self) -> Any:
        """The compiled loop over ``force_rows``, which shows forced arms."""
        forced = np.empty((0, 0), np.int64), False
        return self._compile_entry(force_rows, self._rng, *forced, self.action, self.epoch, self.propensity)

    @cached_property
    def observe(self) -> Any:
        """The compiled loop over ``observe_rows``, which lets the policy observe impressions without
        deciding.
        """
        return self._compile_entry(observe_rows)

    @cached_property
    def learn(self) -> Any:
        """The compiled loop over ``learn_rows``, which learns feedback."""
        outcome_buffers = self.feedback, self.propensity, self.epoch, self.fresh
        return self._compile_entry(learn_rows, self._lanes.plays, self.action, *outcome_buffers)

    @cached_property
    def correct(self) -> Any:
        """The compiled loop over ``correct_rows``, which replaces learned rewards."""
        return self._compile(correct_rows)

    @cached_property
    def replay(self) -> Any:
        """The compiled loop over ``replay_rows``, which learns logged impressions and their feedback."""
        return self._compile(replay_rows)

    @cached_property
    def refit(self) -> Any:
        """The compiled loop over ``refit_shared``, which updates quantities derived from shared sums."""
        return self._compile(refit_shared)

    @cached_property
    def weigh(self) -> Any:
        """The compiled loop over ``weigh_rows``, which computes the probability of each arm."""
        return self._compile_entry(weigh_rows, np.empty(0))

    @cached_property
    def weigh_cells(self) -> Any:
        """The compiled loop over ``weigh_cells``, which computes the probability of each arm at each
        position.
        """
        return self._compile_entry(weigh_cells, np.empty((0, 0)))

    @cached_property
    def place(self) -> Any:
        """The compiled loop over ``place_rows``, which computes the propensities of lists by position."""
        return self._compile_entry(place_rows, self.action, self.prefixes, self.places)

    def _compile(self, loop: Callable[..., Any]) -> Any:
        """Return ``loop`` compiled for the policy, or loaded from the cache."""
        return compile_loop(loop, self.params)

    def _compile_entry(self, loop: Callable[..., Any], *arguments: Any) -> Any:
        """Return the entry point of a compiled loop, which is fast to call with arguments of the same types
        as here.
        """
        return self._compile(loop).entry((self.params, self._lanes.state, self.single_batch, *arguments))


def _choose_checked(
    name: str,
    choose: Any,
    params: Any,
    state: Any,
    batch: Batch,
    rng: Generator,
    actions: Ints,
    *buffers: Any,
) -> None:
    """Run the compiled loop ``choose`` of a user-defined policy named ``name``, and warn of choices not on
    offer.

    Fills ``actions`` and the buffers; nothing is raised.
    """
    choose(params, state, batch, rng, actions, *buffers)
    bounds, offered = None, {-1}
    for action, *row_bounds in zip(
        actions.tolist(), batch.starts.tolist(), batch.stops.tolist(), strict=True
    ):
        if row_bounds != bounds:
            bounds, offered = row_bounds, {-1, *batch.arms[slice(*row_bounds)].tolist()}
        if not offered.issuperset(action):
            message = f"{name}.choose: {action[0] if len(action) == 1 else action} is not on offer"
            # Without the −1, which stands for an empty position.
            remedy = f"return what is, as impression.arms has it: {sorted(offered)[1:]}"
            warnings.warn(f"{message}; {remedy}", AssumptionWarning, stacklevel=4)
