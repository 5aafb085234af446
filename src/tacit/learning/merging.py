"""Merging what several learners have learned apart, as pure functions of their states.

Learners that began from the same *base* and then met different impressions are merged exactly
where what they learn is a sum over impressions: counts of plays and rewards, and the natural
parameters Λ = Σ⁻¹ and η = Σ⁻¹μ of Gaussian posteriors. Each sends what it has learned since the
base, its *delta*, and the merged state is the base and all deltas. Sums are associative and
commutative; they are not idempotent, so each delta must be added once. What safe classifiers
have learned is joined instead (:func:`joined`), which may be done again and again.

Learners of other keys have nothing to merge but what all keys share. What a policy says to be a
sum of it (``sums``) is added (:func:`shared_sums`, :func:`add_shared`), and what follows from that
is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers.base import Classifier
from tacit.core.arrays import Floats, lane_rows, leaves
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.policies.base import Counts, Policy
from tacit.policies.exploration_floor import Past
from tacit.policies.features.gaussian import Gaussian


class Natural(NamedTuple):
    """Natural parameters of Gaussians, or a difference of such.

    Attributes
    ----------
    precision : array of float64, shape (lanes, d, d)
        Σ⁻¹.
    linear : array of float64, shape (lanes, d)
        Σ⁻¹μ.
    """

    precision: Floats
    linear: Floats


def natural(posterior: Gaussian) -> Natural:
    """Return the natural parameters of Gaussians.

    Parameters
    ----------
    posterior : Gaussian

    Examples
    --------
    >>> natural(Gaussian.prior(1, 2, variance=4.0)).precision.tolist()
    [[[0.25, 0.0], [0.0, 0.25]]]
    """
    inverse = np.linalg.inv(posterior.root)
    precision = np.swapaxes(inverse, 1, 2) @ inverse
    return Natural(precision, (precision @ posterior.mean[:, :, None])[:, :, 0])


def gaussian(parameters: Natural) -> Gaussian:
    """Return the Gaussians with these natural parameters, their roots being triangular.

    Parameters
    ----------
    parameters : Natural

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
    return Gaussian((root @ half)[:, :, 0], np.ascontiguousarray(root), np.zeros((lanes, 3, dim)))


def delta(state: Any, base: Any) -> Any:
    """Return what a state has learned since its base.

    Parameters
    ----------
    state, base : Counts, Gaussian, or named tuple of these
        Of the same shapes. Learners must not forget (``discount`` 1): what was forgotten is no
        sum over impressions.

    Returns
    -------
    Counts, Natural, or named tuple of these

    Raises
    ------
    InvalidValue
        If they hold anything else, or do not fit each other.

    Examples
    --------
    >>> base = Counts(np.array([[4.0]]), np.array([[1.0]]), np.array([4.0]))
    >>> later = Counts(np.array([[6.0]]), np.array([[2.0]]), np.array([6.0]))
    >>> delta(later, base).plays.tolist()
    [[2.0]]
    """
    return _each(np.subtract, _sums(state), _sums(base))


def plus(base: Any, deltas: Sequence[Any]) -> Any:
    """Return the state that has learned what the base has and all that the deltas hold.

    Parameters
    ----------
    base : Counts, Gaussian, or named tuple of these
    deltas : sequence
        As :func:`delta` returns them, each once, in any order.

    Raises
    ------
    InvalidValue
        If they do not fit the base, or a posterior would not be positive definite.

    Examples
    --------
    >>> base = Counts(np.array([[4.0]]), np.array([[1.0]]), np.array([4.0]))
    >>> learned = delta(Counts(np.array([[6.0]]), np.array([[2.0]]), np.array([6.0])), base)
    >>> plus(base, [learned, learned]).plays.tolist()
    [[8.0]]
    """
    return _state(reduce(lambda a, b: _each(np.add, a, b), deltas, _sums(base)))


def added(base: Any, states: Sequence[Any]) -> Any:
    """Return the state that has learned what the base has and what each state has since.

    Parameters
    ----------
    base : Counts, Gaussian, or named tuple of these
    states : sequence
        Learned from the base on, each from impressions of its own.

    Raises
    ------
    InvalidValue
        As for :func:`delta` and :func:`plus`.

    Examples
    --------
    >>> prior = Gaussian.prior(1, 1, variance=1.0)
    >>> seen = Gaussian(np.array([[0.5]]), np.sqrt([[[0.5]]]), np.zeros((1, 3, 1)))
    >>> both = added(prior, [seen, seen])  # two observations of 1, each of variance 1
    >>> both.mean.round(6).tolist(), (both.root**2).round(6).tolist()
    ([[0.666667]], [[[0.333333]]])
    """
    if len(states) == 1:
        # The base and its only delta.
        return states[0]
    return plus(base, [delta(state, base) for state in states])


def shared_sums(policy: Policy, state: Any) -> dict[str, Floats]:
    """Return the sums that all keys share, by their names in the state; the arrays are its own.

    Parameters
    ----------
    policy : Policy
    state : named tuple
        Of the policy.

    Raises
    ------
    TypeError
        If the policy names as a sum what is no shared array of float64.
    """
    arrays = list(zip(leaves(state), lane_rows(policy.init), strict=True))
    found: dict[str, Floats] = {}
    for wanted in policy.sums:
        own = {name: array for (name, array), _ in arrays if f"{name}.".startswith(f"{wanted}.")}
        rows = [rows for (name, _), rows in arrays if name in own]
        if not own or any(rows) or any(array.dtype != np.float64 for array in own.values()):
            raise TypeError(
                f"{type(policy).__name__}.sums: {wanted!r} is no array of float64 with one row for "
                "all lanes, and no tuple of such arrays"
            )
        found |= own
    return found


def add_shared(learner: Learner, more: Mapping[str, Floats]) -> None:
    """Add to what all keys of a learner share; then compute anew what follows from it.

    Parameters
    ----------
    learner : Learner
    more : dict of str to array of float64
        As :func:`shared_sums` names them: what another learner's have grown by.

    Examples
    --------
    >>> import tacit
    >>> add_shared(tacit.Learner(tacit.UCB1(arms=2), seed=1), {})  # its keys share nothing
    """
    for name, array in shared_sums(learner.policy, learner.state).items():
        array += more[name]
    learner.refit()


def joined(classifier: Classifier, states: Sequence[Any]) -> Any:
    """Return what follows from the labels of all states: their join, row by row.

    Associative, commutative and idempotent: states may be joined in any order, again and again.
    A :class:`~tacit.classifiers.Hyperplane` that has to give up points is so only as long as it keeps all.

    Parameters
    ----------
    classifier : Classifier
    states : sequence
        Of the classifier; at least one.

    Raises
    ------
    InvalidValue
        If there is none.

    Examples
    --------
    >>> from tacit.classifiers import Rectangle
    >>> box = Rectangle(dim=1, margin=0.1)
    >>> here, there = (box.State(*np.array([[[at]], [[at]]])) for at in (0.2, 0.6))
    >>> join = joined(box, [here, there])
    >>> join.low.tolist(), join.high.tolist()
    ([[0.2]], [[0.6]])
    """
    if not states:
        raise InvalidValue("states", states, "give one at least")
    return reduce(classifier.merged, states)


def _sums(state: Any) -> Any:
    """Return a state in the parameters in which learning adds."""
    if isinstance(state, Gaussian):
        return natural(state)
    if isinstance(state, Counts | Past):
        return state
    if isinstance(state, tuple) and state and all(isinstance(part, tuple) for part in state):
        return type(state)(*map(_sums, state))
    raise InvalidValue("state", type(state).__name__, "give counts, or Gaussians without the rest")


def _state(sums: Any) -> Any:
    """Return parameters as the state that they are of."""
    if isinstance(sums, Natural):
        return gaussian(sums)
    return sums if isinstance(sums, Counts | Past) else type(sums)(*map(_state, sums))


def _each(operation: Any, first: Any, second: Any) -> Any:
    """Return what an operation gives for each pair of arrays."""
    if type(first) is not type(second):
        raise InvalidValue("state", type(second).__name__, f"give {type(first).__name__}")
    if isinstance(first, Past):
        # A past is the learner's own: none of it is given away, and none added.
        return first if operation is np.add else Past(np.zeros_like(first.code))
    if isinstance(first, tuple):
        return type(first)(*(_each(operation, a, b) for a, b in zip(first, second, strict=True)))
    if first.shape != second.shape:
        raise InvalidValue("state", second.shape, f"give arrays of the base's shape {first.shape}")
    return operation(first, second)
