"""Merge the states of learners that learned from different impressions, by pure functions.

Learners that began from the same *base* state are merged exactly if their state is a sum over
impressions: counts of plays and rewards, and the natural parameters Λ = Σ⁻¹ and η = Σ⁻¹μ of
Gaussian posteriors. Each learner sends its *delta*, the difference between its state and the
base; the merged state is the base plus all deltas. Sums are associative and commutative but not
idempotent, so each delta must be added exactly once. States of safe classifiers are joined
instead (:func:`join_states`), which is idempotent.

Learners of different keys share only the sums over all keys (a policy's ``sums``). These are
added (:func:`read_shared_sums`, :func:`add_shared`), then the quantities derived from them are
computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers.base import Classifier
from tacit.core.arrays import Floats, lane_rows, leaves
from tacit.errors import InvalidValue
from tacit.learning.columns import refit_sums
from tacit.learning.learner import Learner
from tacit.policies.base import Counts, Policy
from tacit.policies.exploration_floor import HistoryHash
from tacit.policies.features.gaussian import Gaussian


class NaturalParameters(NamedTuple):
    """Natural parameters of Gaussians, or a difference of two sets of them.

    Attributes
    ----------
    precision : array of float64, shape (lanes, d, d)
        Σ⁻¹.
    linear : array of float64, shape (lanes, d)
        Σ⁻¹μ.
    """

    precision: Floats
    linear: Floats


def to_natural(posterior: Gaussian) -> NaturalParameters:
    """Return the natural parameters of Gaussians: precision Σ⁻¹ and linear term Σ⁻¹μ.

    Parameters
    ----------
    posterior : Gaussian

    Examples
    --------
    >>> to_natural(Gaussian.prior(1, 2, variance=4.0)).precision.tolist()
    [[[0.25, 0.0], [0.0, 0.25]]]
    """
    inverse = np.linalg.inv(posterior.root)
    precision = np.swapaxes(inverse, 1, 2) @ inverse
    return NaturalParameters(precision, (precision @ posterior.mean[:, :, None])[:, :, 0])


def to_gaussian(parameters: NaturalParameters) -> Gaussian:
    """Return Gaussians from their natural parameters; the roots of their covariances are triangular.

    Parameters
    ----------
    parameters : NaturalParameters

    Raises
    ------
    InvalidValue
        If a precision is not positive definite.
    """
    try:
        root = np.swapaxes(np.linalg.inv(np.linalg.cholesky(parameters.precision)), 1, 2)
    except np.linalg.LinAlgError:
        remedy = "give positive definite ones: states that come from the base, each once"
        raise InvalidValue("precision", parameters.precision, remedy) from None
    half = np.swapaxes(root, 1, 2) @ parameters.linear[:, :, None]
    lanes, dim = parameters.linear.shape
    return Gaussian((root @ half)[:, :, 0], np.ascontiguousarray(root), room=np.zeros((lanes, 3, dim)))


def compute_delta(state: Any, base: Any) -> Any:
    """Return the difference between a learner's state and its base state.

    Parameters
    ----------
    state, base : Counts, Gaussian, or named tuple of these
        Of the same shapes. Learners must not forget (``discount`` 1): a discounted state is not
        a sum over impressions.

    Returns
    -------
    Counts, NaturalParameters, or named tuple of these

    Raises
    ------
    InvalidValue
        If a state has another type, or the shapes differ.

    Examples
    --------
    >>> base = Counts(np.array([[4.0]]), np.array([[1.0]]), np.array([4.0]))
    >>> later = Counts(np.array([[6.0]]), np.array([[2.0]]), np.array([6.0]))
    >>> compute_delta(later, base).plays.tolist()
    [[2.0]]
    """
    return _map_arrays(np.subtract, _to_sums(state), _to_sums(base))


def add_deltas(base: Any, deltas: Sequence[Any]) -> Any:
    """Return the state that is the base state plus all deltas; the base is unchanged.

    Parameters
    ----------
    base : Counts, Gaussian, or named tuple of these
    deltas : sequence
        Results of :func:`compute_delta`, each once, in any order.

    Raises
    ------
    InvalidValue
        If they do not fit the base, or a posterior would not be positive definite.

    Examples
    --------
    >>> base = Counts(np.array([[4.0]]), np.array([[1.0]]), np.array([4.0]))
    >>> learned = compute_delta(Counts(np.array([[6.0]]), np.array([[2.0]]), np.array([6.0])), base)
    >>> add_deltas(base, [learned, learned]).plays.tolist()
    [[8.0]]
    """
    return _to_state(reduce(lambda a, b: _map_arrays(np.add, a, b), deltas, _to_sums(base)))


def merge_states(base: Any, states: Sequence[Any]) -> Any:
    """Return the merged state of states that were learned from the same base on different impressions.

    Parameters
    ----------
    base : Counts, Gaussian, or named tuple of these
    states : sequence
        Each began as the base; no impression was learned by two of them.

    Raises
    ------
    InvalidValue
        If types or shapes of the states differ, or a merged posterior would not be positive definite.

    Examples
    --------
    >>> prior = Gaussian.prior(1, 1, variance=1.0)
    >>> seen = Gaussian(np.array([[0.5]]), np.sqrt([[[0.5]]]), np.zeros((1, 3, 1)))
    >>> both = merge_states(prior, [seen, seen])  # two observations of 1, each of variance 1
    >>> both.mean.round(6).tolist(), (both.root**2).round(6).tolist()
    ([[0.666667]], [[[0.333333]]])
    """
    if len(states) == 1:
        # A single state is the base plus its delta already.
        return states[0]
    return add_deltas(base, [compute_delta(state, base) for state in states])


def read_shared_sums(policy: Policy, state: Any) -> dict[str, Floats]:
    """Return the sums that all keys share, by their names in the state; the arrays are not copied.

    Parameters
    ----------
    policy : Policy
    state : named tuple
        A state of the policy.

    Raises
    ------
    TypeError
        If an entry of ``policy.sums`` is not a shared array of float64.
    """
    arrays = list(zip(leaves(state), lane_rows(policy.init), strict=True))
    sums: dict[str, Floats] = {}
    for sum_name in policy.sums:
        # The array of this name, or all arrays of the tuple of this name.
        named_arrays = {name: array for (name, array), _ in arrays if f"{name}.".startswith(f"{sum_name}.")}
        rows = [rows for (name, _), rows in arrays if name in named_arrays]
        if not named_arrays or any(rows) or any(array.dtype != np.float64 for array in named_arrays.values()):
            raise TypeError(
                f"{type(policy).__name__}.sums: {sum_name!r} is no array of float64 with one row for "
                "all lanes, and no tuple of such arrays"
            )
        sums |= named_arrays
    return sums


def add_shared(learner: Learner, increments: Mapping[str, Floats]) -> None:
    """Add increments to the sums that all keys of a learner share, and recompute the values that follow from
    them.

    The learner's state changes in place.

    Parameters
    ----------
    learner : Learner
    increments : dict of str to array of float64
        By the names of :func:`read_shared_sums`: the growth of another learner's sums.

    Examples
    --------
    >>> import tacit
    >>> add_shared(tacit.Learner(tacit.UCB1(arms=2), seed=1), {})  # its keys share nothing
    """
    for name, array in read_shared_sums(learner.policy, learner.state).items():
        array += increments[name]
    refit_sums(learner)


def join_states(classifier: Classifier, states: Sequence[Any]) -> Any:
    """Return the join of a classifier's states row by row: the state after the labels of all of them.

    The join is associative, commutative and idempotent: states may be joined in any order and repeatedly. For
    a :class:`~tacit.classifiers.Hyperplane` this holds only as long as it stores all of its points.

    Parameters
    ----------
    classifier : Classifier
    states : sequence
        States of the classifier; at least one.

    Raises
    ------
    InvalidValue
        If ``states`` is empty.

    Examples
    --------
    >>> from tacit.classifiers import Rectangle
    >>> box = Rectangle(dim=1, margin=0.1)
    >>> here, there = (box.State(*np.array([[[at]], [[at]]])) for at in (0.2, 0.6))
    >>> join = join_states(box, [here, there])
    >>> join.low.tolist(), join.high.tolist()
    ([[0.2]], [[0.6]])
    """
    if not states:
        raise InvalidValue("states", states, "give one at least")
    return reduce(classifier.merge_states, states)


def _to_sums(state: Any) -> Any:
    """Return a state whose parts can be added: Gaussians as natural parameters, counts unchanged.

    Raises InvalidValue for a state that holds anything else.
    """
    if isinstance(state, Gaussian):
        return to_natural(state)
    if isinstance(state, Counts | HistoryHash):
        return state
    if isinstance(state, tuple) and state and all(isinstance(part, tuple) for part in state):
        return type(state)(*map(_to_sums, state))
    raise InvalidValue("state", type(state).__name__, "give counts, or Gaussians without the rest")


def _to_state(sums: Any) -> Any:
    """Return the state of sums that ``_to_sums`` returned: natural parameters become Gaussians again."""
    if isinstance(sums, NaturalParameters):
        return to_gaussian(sums)
    return sums if isinstance(sums, Counts | HistoryHash) else type(sums)(*map(_to_state, sums))


def _map_arrays(operation: Any, first: Any, second: Any) -> Any:
    """Return a state whose arrays are ``operation`` of the arrays of two states; raise InvalidValue if they
    do not match.

    History hashes are not added: a sum keeps the first one, a difference has 0.
    """
    if type(first) is not type(second):
        raise InvalidValue("state", type(second).__name__, f"give {type(first).__name__}")
    if isinstance(first, HistoryHash):
        # A past is private to its learner: it is neither sent nor added.
        return first if operation is np.add else HistoryHash(np.zeros_like(first.code))
    if isinstance(first, tuple):
        return type(first)(*(_map_arrays(operation, a, b) for a, b in zip(first, second, strict=True)))
    if first.shape != second.shape:
        raise InvalidValue("state", second.shape, f"give arrays of the base's shape {first.shape}")
    return operation(first, second)
