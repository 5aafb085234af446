"""What every safe classifier is: hyperparameters, a state of arrays, and kernels, for one context or many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Booleans, Floats
from tacit.core.dispatch import learn_false, predict
from tacit.core.part import Part, whole
from tacit.errors import InvalidValue

# ---- Many contexts at once: the compiled loops behind :class:`~tacit.classifiers.SafeClassifier`


def checked_classifier(field: str, value: Any) -> Classifier:
    """Return a classifier, or refuse what is none."""
    if not isinstance(value, Classifier):
        raise InvalidValue(field, value, "give a safe classifier, such as Rectangle(dim=2, margin=0.1)")
    return value


def predict_all(params: Any, state: Any, row: int, contexts: Floats, positive: Booleans) -> None:
    """Predict each context from one row of the state; fill ``positive``."""
    for i in range(len(contexts)):
        positive[i] = predict(params, state, row, contexts[i])


def learn_all_false(params: Any, state: Any, row: int, contexts: Floats) -> None:
    """Learn in order, in one row of the state, that each context was no event."""
    for i in range(len(contexts)):
        learn_false(params, state, row, contexts[i])


# ---- What every safe classifier is: frozen hyperparameters, a state of arrays, and kernels

TIE = 1e-12
"""A distance counts as within a margin if it exceeds it by no more than this."""


registry: dict[str, type[Classifier]] = {}
"""Every classifier class that has been defined, by its canonical name."""


@dataclass(frozen=True)
class Classifier(Part, abstract=True):
    """Base of all safe classifiers: hyperparameters that are frozen, validated and hashable.

    A safe classifier knows a class of concepts, one of which is the truth, and learns from
    contexts that were no event (*false-labelled* ones). It says "positive" (an event) unless no
    concept that fits all it has learned could call the context an event. So, with correct
    labels, it never misses one, and :attr:`diameter` bounds how often it can be wrong otherwise.

    A subclass is a frozen dataclass with a nested named tuple ``State`` (arrays with a leading row
    axis: one row if all keys share what is learned, else one per lane), the methods :meth:`init`
    and :meth:`merged`, and the static methods ``predict`` and ``learn_false``, whose ``params`` have
    the fields that are numbers (:class:`~tacit.core.part.Part`).

    Parameters
    ----------
    dim : int
        Length of a context; at least 1.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries",
    section 5 of the full version.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.CLASSIFIER_KERNELS
    named: ClassVar[dict[str, Any]] = registry
    universe: ClassVar[str] = "numbers in [0, 1]; rescale your signals if they go beyond"
    """What contexts are made of, phrased as the remedy."""

    dim: Annotated[int, whole(1, 2**16)]

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        """Return one of its kind, for contexts of ``dim`` signals where that can be chosen."""
        return cls(dim)

    @property
    def diameter(self) -> float:
        """The most false positives there can be, if each is learned before the next."""
        raise NotImplementedError

    def checked(self, contexts: Any) -> Floats:
        """Return contexts as an array of shape (contexts, dim).

        Parameters
        ----------
        contexts : array of float, shape (contexts, dim)

        Raises
        ------
        InvalidValue
            If one has another length or is outside the universe that the classifier knows.
        """
        try:
            array = np.ascontiguousarray(contexts, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != self.dim:
            raise InvalidValue("context", contexts, f"give {self.dim} numbers for each context")
        for i in np.flatnonzero(~self.feasible(array)):
            raise InvalidValue("context", array[i].tolist(), f"give {self.universe}")
        return array

    def feasible(self, contexts: Floats) -> Booleans:
        """Return, for each context, whether it is in the universe that the classifier knows."""
        return np.asarray(((contexts >= 0.0) & (contexts <= 1.0)).all(axis=1))

    def init(self, rows: int) -> Any:
        """Return the state of ``rows`` rows that have learned nothing."""
        raise NotImplementedError

    def merged(self, first: Any, second: Any) -> Any:
        """Return the join of two states, row by row: what follows from the labels of both.

        Joins are associative, commutative and idempotent, so states may be merged in any order
        and more than once.
        """
        raise NotImplementedError

    @staticmethod
    def predict(params: Any, state: Any, row: int, context: Floats) -> bool:
        """Return whether the context may be an event."""
        raise NotImplementedError

    @staticmethod
    def learn_false(params: Any, state: Any, row: int, context: Floats) -> None:
        """Learn that the context was no event."""
        raise NotImplementedError
