"""What is given of impressions to decide on, checked and made columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.frames import matrix
from tacit.learning.assumptions import ContextWatch, UserWatch
from tacit.learning.decisions import Arm
from tacit.learning.offer import Offer
from tacit.policies.base import NO_FEATURES, Policy

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
