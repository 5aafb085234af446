"""What is given of impressions to decide on: arms on offer, features, and what these must be like."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.classifiers import Classifier
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue, UnknownName
from tacit.frames import matrix
from tacit.learning.decisions import Arm
from tacit.policies.base import NO_FEATURES, Policy

# ---- What data must be like for a policy, and what is said where they are not

WATCHED = 30
"""Decisions whose features are looked at: so many that flags are not alike by chance."""


def classifier_of(policy: Any) -> Classifier | None:
    """Return the classifier to which a policy, or one inside of it, shows contexts."""
    while policy is not None:
        found = getattr(policy, "classifier", None)
        if isinstance(found, Classifier):
            return found
        policy = getattr(policy, "policy", None)
    return None


class ContextWatch:
    """Count the contexts that a policy's classifier does not know, and warn of the first.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    outside : int
        Contexts so far that are outside of the classifier's universe.
    """

    def __init__(self, policy: Any) -> None:
        self._classifier = classifier_of(policy)
        self.outside = 0

    def look(self, contexts: Floats) -> None:
        """Look at the contexts of some impressions, shape (impressions, context_dim)."""
        classifier = self._classifier
        if classifier is None:
            return
        feasible = classifier.feasible(contexts[:, : classifier.dim])
        if feasible.all():
            return
        if self.outside == 0:
            first = contexts[int(np.argmin(feasible)), : classifier.dim].tolist()
            warnings.warn(
                f"context: {first} is outside of what {type(classifier).__name__} is safe for; "
                f"give {classifier.universe}",
                AssumptionWarning,
                stacklevel=5,
            )
        self.outside += int(np.count_nonzero(~feasible))


class UserWatch:
    """Warn of relevance features that put no arm before another, as all on offer have the same.

    Features of a user are such. The first decisions tell: a column must have varied from one to
    another, and within none of them.
    """

    def __init__(self) -> None:
        self._left = WATCHED
        self._first: Floats | None = None
        self._alike: Booleans | None = None
        self._varied: Booleans | None = None

    def look(self, relevance: Floats, sizes: Ints) -> None:
        """Look at the features of some decisions.

        Parameters
        ----------
        relevance : array of float64, shape (arms on offer, d)
            Of all decisions, one below the other.
        sizes : array of int64, shape (decisions,)
            How many arms were on offer in each.
        """
        if self._left <= 0 or not relevance.size or (sizes < 2).any():
            return
        self._left -= len(sizes)
        firsts = relevance[np.cumsum(sizes) - sizes]
        alike = (relevance == np.repeat(firsts, sizes, axis=0)).all(axis=0)
        if self._first is None:
            self._first, self._alike = firsts[0], alike
            self._varied = np.zeros(len(alike), np.bool_)
        self._alike = self._alike & alike
        self._varied = self._varied | (firsts != self._first).any(axis=0)
        if self._left <= 0:
            self._warn(np.flatnonzero(self._alike & self._varied).tolist())

    def _warn(self, columns: list[int]) -> None:
        if columns:
            warnings.warn(
                f"relevance: the columns {columns} are the same for all arms of a decision, as "
                "features of a user are, and put no arm before another; give them as context to a "
                "policy that multiplies them with those of arms: "
                f"ClickMixture(…, context_dim={len(columns)})",
                AssumptionWarning,
                stacklevel=6,
            )


# ---- Arms: their slots, and which of them are on offer


class Offer:
    """The arms of a policy, some of them retired; never changed, only replaced.

    Parameters
    ----------
    arms : int, tuple of str, or None
        As a policy's ``arms``; None where arms are known by their features.
    retired : sequence of arms

    Attributes
    ----------
    all : int, tuple of str, or None
        ``arms``.
    names : tuple
        The arm of each slot.
    slots : array of int64
        The slots on offer.
    """

    def __init__(self, arms: int | tuple[str, ...] | None, retired: Sequence[Arm] = ()) -> None:
        self.names: tuple[Any, ...] = tuple(range(arms)) if isinstance(arms, int) else arms or ()
        self._slot_of = {name: slot for slot, name in enumerate(self.names)}
        self.all = arms
        out = {self._slot_of[name] for name in retired}
        self.slots = np.array([s for s in range(len(self.names)) if s not in out], np.int64)

    @property
    def arms(self) -> list[Any]:
        """The arms on offer."""
        return [self.names[slot] for slot in self.slots.tolist()]

    @property
    def retired(self) -> list[Any]:
        """The other ones."""
        offered = set(self.slots.tolist())
        return [name for slot, name in enumerate(self.names) if slot not in offered]

    def slots_of(self, arms: Sequence[Arm]) -> Ints:
        """Return the slots of arms that may be offered.

        Raises
        ------
        InvalidValue
            If there is none, or one twice, or one string in place of a list of arms.
        UnknownName
            If an arm is unknown or retired.
        """
        offered = set(self.slots.tolist())
        slots = []
        for arm in checks.names("arms", arms):
            slot = self._slot_of.get(arm)
            if slot is None or slot not in offered:
                raise UnknownName(f"arms: {arm!r} is not on offer; on offer are {self.arms}")
            slots.append(slot)
        if not slots or len(set(slots)) < len(slots):
            raise InvalidValue("arms", arms, "offer at least one arm, and each only once")
        return np.array(slots, np.int64)

    def with_new(self, arms: int | Sequence[str]) -> tuple[list[Any], Offer]:
        """Return the arms that come, and the offer with them.

        Parameters
        ----------
        arms : int or sequence of str
            How many, where arms are numbered; or their names.

        Raises
        ------
        InvalidValue
            If there is such an arm already, or arms are numbered and are given names, or the
            reverse.
        """
        if self.all is None:
            raise InvalidValue(
                "arms", arms, "this policy knows arms by features; say at each decision what is on"
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
            if name in self._slot_of:
                known = "retired; restore it" if name in self.retired else "on offer already"
                raise InvalidValue("arms", name, f"it is {known}")
        return list(names), Offer((*self.all, *names), self.retired)

    def without(self, arms: Sequence[Arm]) -> Offer:
        """Return the offer without some arms.

        Raises
        ------
        UnknownName
            If there is no such arm.
        InvalidValue
            If none would be left on offer.
        """
        slots = self._known(arms)
        if slots and set(self.slots.tolist()) <= slots:
            raise InvalidValue("arms", arms, "no arm would be on offer; add another one first")
        return Offer(self.all, [*self.retired, *(self.names[slot] for slot in slots)])

    def restored(self, arms: Sequence[Arm]) -> Offer:
        """Return the offer with some arms back on it.

        Raises
        ------
        UnknownName
            If there is no such arm.
        """
        back = {self.names[slot] for slot in self._known(arms)}
        return Offer(self.all, [arm for arm in self.retired if arm not in back])

    def _known(self, arms: Sequence[Arm]) -> set[int]:
        """Return the slots of arms, be they on offer or retired."""
        slots = set()
        for arm in checks.names("arms", arms):
            if arm not in self._slot_of:
                raise UnknownName(f"arms: there is no arm {arm!r}; the arms are {list(self.names)}")
            slots.add(self._slot_of[arm])
        return slots


# ---- What is given of impressions to decide on, checked and made columns

Columns = tuple[Ints, Ints, Ints, Floats, Floats, Floats]


class ImpressionReader:
    """Read impressions for a policy, and watch over what it assumes of them.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    watch : ContextWatch
    """

    def __init__(self, policy: Policy) -> None:
        self.watch = ContextWatch(policy)
        self._users = UserWatch()
        self._first_features: list[tuple[Floats, Floats]] | None = []

    def read(self, policy: Policy, offer: Offer, rows: int, given: tuple[Any, Any, Any, Any]) -> Columns:
        """Return all columns of a :class:`~tacit.learning.batch.Batch` but the lanes.

        Parameters
        ----------
        policy : Policy
            The one of the reader, or a tuned one.
        offer : Offer
        rows : int
        given : tuple
            Contexts, arms, relevance and examination as ``choose_many`` takes them.

        Raises
        ------
        InvalidValue, UnknownName
            As ``choose_many``.
        """
        contexts, arms, relevance, examination = given
        if arms is not None and len(checks.names("arms", arms)) != rows:
            raise InvalidValue("arms", arms, f"give one list of arms for each of {rows} impressions")
        blocks, sizes = _features(policy, relevance, examination, rows)
        offers = _offers(offer, arms, sizes, rows)
        context_rows = _contexts(policy, contexts, rows)
        if policy.context_dim:
            self.watch.look(context_rows)
        if sizes is not None:
            self._users.look(blocks[0], sizes)
        return *offers, context_rows, *blocks

    def advise(self, policy: Policy, relevance: Floats, examination: Floats) -> None:
        """Let the policy judge the features once, when there are enough of them."""
        if self._first_features is None:
            return
        if 0 in policy.feature_dims:
            self._first_features = None
            return
        self._first_features.append((relevance, examination))
        if sum(len(block) for block, _ in self._first_features) > 2 * sum(policy.feature_dims):
            policy.advise(*map(np.concatenate, zip(*self._first_features, strict=True)))
            self._first_features = None


def _contexts(policy: Policy, contexts: Any, rows: int) -> Floats:
    dim = policy.context_dim
    if contexts is None and dim == 0:
        return np.zeros((rows, 0))
    try:
        array = np.ascontiguousarray(matrix("context", contexts), dtype=np.float64)
    except InvalidValue:
        raise
    except (TypeError, ValueError):
        array = np.full((0, 0), np.nan)
    if dim == 0 and array.ndim == 2 and len(array) == rows:
        return np.zeros((rows, 0))
    if array.shape != (rows, dim) or not np.isfinite(array).all():
        numbers = f"give {dim} finite numbers"
        if _is_one(contexts, rows):
            raise InvalidValue("context", contexts[0], numbers)
        raise InvalidValue("context", contexts, f"{numbers} for each impression")
    return array


def _features(
    policy: Policy, relevance: Any, examination: Any, rows: int
) -> tuple[tuple[Floats, Floats], Ints | None]:
    """Return both blocks of features with how many arms each row of them is for."""
    blocks, sizes = [NO_FEATURES, NO_FEATURES], None
    names = "relevance", "examination"
    for i, (field, given) in enumerate(zip(names, (relevance, examination), strict=True)):
        dim = policy.feature_dims[i]
        if dim == 0:
            continue
        blocks[i], block_sizes = _stacked(field, given, rows, dim)
        if sizes is not None and not np.array_equal(sizes, block_sizes):
            raise InvalidValue(field, given, "give as many rows as of relevance: one for each arm on offer")
        sizes = block_sizes
    return (blocks[0], blocks[1]), sizes


def _stacked(field: str, given: Any, rows: int, dim: int) -> tuple[Floats, Ints]:
    """Return the feature matrices of all rows one below the other, with their lengths."""

    def refusal() -> InvalidValue:
        # Made only when needed: its message prints the features, which takes its time.
        each = f"a row of {dim} finite numbers for each arm on offer"
        if given is None or _is_one(given, rows):
            return InvalidValue(field, given and given[0], f"give {each}")
        return InvalidValue(field, given, f"give, for each of {rows} impressions, {each}")

    try:
        matrices = [np.asarray(matrix(field, block), dtype=np.float64) for block in given]
    except InvalidValue:
        raise
    except (TypeError, ValueError):
        raise refusal() from None
    sizes = np.array([len(matrix) if matrix.ndim == 2 else 0 for matrix in matrices], np.int64)
    fits = all(matrix.shape[1] == dim for matrix in matrices) if sizes.all() else False
    if len(matrices) != rows or not fits:
        raise refusal()
    stacked = np.concatenate(matrices) if rows else np.zeros((0, dim))
    if not np.isfinite(stacked).all():
        raise refusal()
    return stacked, sizes


def _is_one(given: Any, rows: int) -> bool:
    """Whether something is given of one impression, as :meth:`tacit.Learner.choose` does it."""
    return isinstance(given, list) and rows == len(given) == 1


def _offers(
    offer: Offer, arms: Sequence[Sequence[Arm] | None] | None, sizes: Ints | None, rows: int
) -> tuple[Ints, Ints, Ints]:
    """Return the slots on offer, all rows in one array, and where each row's are."""
    if arms is None and sizes is None:
        stops = np.empty(rows, np.int64)
        stops.fill(len(offer.slots))
        return offer.slots, np.zeros(rows, np.int64), stops
    each = [None] * rows if arms is None else arms
    if not offer.names:
        assert sizes is not None
        for names, size in zip(each, sizes.tolist(), strict=True):
            _check_names(names, size)
        offered = [np.arange(size) for size in sizes.tolist()]
    else:
        offered = [offer.slots if given is None else offer.slots_of(given) for given in each]
    counts = np.array([len(slots) for slots in offered], np.int64)
    if sizes is not None and not np.array_equal(sizes, counts):
        raise InvalidValue(
            "relevance", sizes.tolist(), f"give a row for each arm on offer: {counts.tolist()}"
        )
    stops = np.cumsum(counts)
    joined = np.concatenate(offered) if offered else offer.slots
    return joined, stops - counts, stops


def _check_names(names: Sequence[Arm] | None, size: int) -> None:
    """Refuse names that do not fit the arms on offer."""
    checks.names("arms", names)
    if names is not None and not len(names) == len(set(names)) == size:
        raise InvalidValue("arms", names, f"name each of the {size} arms on offer, all differently")
