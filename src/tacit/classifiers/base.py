"""Safe classifiers: the base class, classifiers from text, and ``SafeClassifier`` for direct use."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.core import dispatch
from tacit.core.arrays import Booleans, Floats
from tacit.core.dispatch import learn_false, predict
from tacit.core.part import Part, find_class, int_range, match_arguments, read_call
from tacit.core.run_mode import compile_loop
from tacit.errors import InvalidValue

# ---- Many contexts at once: the compiled loops behind :class:`~tacit.classifiers.SafeClassifier`


def check_classifier(field: str, value: Any) -> Classifier:
    """Return ``value`` if it is a classifier; raise InvalidValue otherwise. ``field`` names it in the
    error.
    """
    if not isinstance(value, Classifier):
        raise InvalidValue(field, value, "give a safe classifier, such as Rectangle(dim=2, margin=0.1)")
    return value


def predict_all(params: Any, state: Any, row: int, contexts: Floats, positive: Booleans) -> None:
    """Fill ``positive`` with whether each context may be an event, by one row of the classifier's state."""
    for i in range(len(contexts)):
        positive[i] = predict(params, state, row, contexts[i])


def learn_all_false(params: Any, state: Any, row: int, contexts: Floats) -> None:
    """Learn, in order, that each of the contexts was no event; updates one row of the state."""
    for i in range(len(contexts)):
        learn_false(params, state, row, contexts[i])


# ---- The base class: frozen hyperparameters, a state of arrays, and kernels

TIE = 1e-12
"""A distance counts as within a margin if it exceeds it by no more than this."""


registry: dict[str, type[Classifier]] = {}
"""Every classifier class that has been defined, by its canonical name."""


@dataclass(frozen=True)
class Classifier(Part, abstract=True):
    """Base of all safe classifiers: hyperparameters that are frozen, validated and hashable.

    A safe classifier has a class of concepts, one of which is the truth, and learns from contexts
    that were no events (*false-labelled* contexts). It predicts "positive" (an event) if any concept
    that fits all labels so far calls the context an event. So, with correct labels, it never misses an
    event, and :attr:`diameter` bounds the number of false positives.

    A subclass is a frozen dataclass with a nested named tuple ``State`` (arrays with a leading row
    axis: one row if all keys share the state, else one per lane), the methods :meth:`init`
    and :meth:`merge_states`, and the static methods ``predict`` and ``learn_false``, whose ``params`` have
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
    """Description of valid contexts, for error messages."""

    dim: Annotated[int, int_range(1, 2**16)]

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        """Return an example instance, for contexts of length ``dim`` if the length can be chosen."""
        return cls(dim)

    @property
    def diameter(self) -> float:
        """Largest number of false positives, if each is learned before the next context; each subclass
        defines it.
        """
        raise NotImplementedError

    def check_contexts(self, contexts: Any) -> Floats:
        """Return contexts as an array of shape (contexts, dim); raise InvalidValue if one is invalid.

        Parameters
        ----------
        contexts : array of float, shape (contexts, dim)

        Raises
        ------
        InvalidValue
            If a context has another length or is outside the classifier's universe.
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
        """Return for each context whether it is in the classifier's universe: by default, all numbers in [0,
        1].
        """
        return np.asarray(((contexts >= 0.0) & (contexts <= 1.0)).all(axis=1))

    def init(self, rows: int) -> Any:
        """Return the initial state of ``rows`` rows, before any label."""
        raise NotImplementedError

    def merge_states(self, first: Any, second: Any) -> Any:
        """Return a new state that joins two states, row by row: the state after the labels of both.

        A join is associative, commutative and idempotent: states may be joined in any order, and more than
        once.
        """
        raise NotImplementedError

    @staticmethod
    def predict(params: Any, state: Any, row: int, context: Floats) -> bool:
        """Return True if the context may be an event, by the labels in a row of the state."""
        raise NotImplementedError

    @staticmethod
    def learn_false(params: Any, state: Any, row: int, context: Floats) -> None:
        """Update a row of the state with the label that the context was no event."""
        raise NotImplementedError


# ---- Classifiers as text and as plain tables, for the command line, configuration and snapshots


def classifier_from_spec(spec: Any, *, imports: bool = True) -> Classifier:
    """Return a classifier from the text of a call or from a plain table; a classifier is returned unchanged.

    Parameters
    ----------
    spec : Classifier, str or dict
        A classifier is returned as it is. Text is a call, as on the command line; it is parsed,
        never evaluated. A table has the key ``name`` and one key per hyperparameter.
    imports : bool, default True
        Whether ``module:Class`` may import; False for specs from untrusted files.

    Raises
    ------
    UnknownName
        If there is no such classifier.
    InvalidValue
        If the text cannot be parsed or a hyperparameter is unknown or out of range.

    Examples
    --------
    >>> classifier_from_spec("rectangle(dim=2, margin=0.1)")
    Rectangle(dim=2, margin=0.1, anchored=False)
    """
    if isinstance(spec, Classifier):
        return spec
    remedy = 'give one such as "rectangle(dim=2, margin=0.1)", or a table'
    name, positional, named = read_call("classifier", spec, remedy, imports=imports)
    classifier_class = find_class(name, registry, Classifier)
    order = [field.name for field in fields(classifier_class) if field.init]
    return classifier_class(**match_arguments(classifier_class, order, positional, named))


def classifier_to_spec(classifier: Classifier) -> dict[str, Any]:
    """Return a classifier as a dict of its name and hyperparameters, which ``classifier_from_spec`` reads.

    Examples
    --------
    >>> from tacit.classifiers import Hyperplane
    >>> classifier_to_spec(Hyperplane(dim=2, margin=0.1))
    {'name': 'Hyperplane', 'dim': 2, 'margin': 0.1, 'capacity': 1024}
    """
    hyperparameters = {each.name: getattr(classifier, each.name) for each in fields(classifier) if each.init}
    return {"name": type(classifier).__name__, **hyperparameters}


# ---- A classifier and its state in one object


class SafeClassifier:
    """Predict events, and learn from contexts that were no events.

    Not safe for use from several threads at once.

    Parameters
    ----------
    classifier : Classifier
        The class of concepts and its hyperparameters.

    Attributes
    ----------
    state : named tuple of arrays
        State of the classifier; one row.
    positives, false_labels : int
        Number of positive predictions by this object, and number of labels it has learned.

    Raises
    ------
    InvalidValue
        If ``classifier`` is no classifier.

    Examples
    --------
    >>> from tacit.classifiers import Rectangle
    >>> here, there = (SafeClassifier(Rectangle(dim=1, margin=0.1)) for _ in range(2))
    >>> here.learn_false([0.2])
    >>> there.learn_false([0.6])
    >>> here.merge(there)
    >>> here.predict_many([[0.0], [0.4], [0.7], [0.8]]).tolist()
    [True, False, False, True]
    """

    def __init__(self, classifier: Classifier) -> None:
        """Create a classifier without labels and compile its loops."""
        self.classifier = check_classifier("classifier", classifier)
        self.state = classifier.init(1)
        self.positives = 0
        self.false_labels = 0
        self._params = params = classifier.params
        contexts, positive = np.empty((0, classifier.dim)), np.empty(0, np.bool_)
        self._predict = compile_loop(predict_all, params).entry((params, self.state, 0, contexts, positive))
        self._learn = compile_loop(learn_all_false, params).entry((params, self.state, 0, contexts))

    def predict(self, context: npt.ArrayLike) -> bool:
        """Return whether a context may be an event; a positive prediction is counted in ``positives``.

        Parameters
        ----------
        context : array of float, shape (dim,)

        Returns
        -------
        bool
            False only if the context is no event, provided that all labels were correct.

        Raises
        ------
        InvalidValue
            If the context does not fit the classifier.
        """
        return bool(self.predict_many([context])[0])

    def predict_many(self, contexts: Any) -> Booleans:
        """Return, for each of many contexts, whether it may be an event; count positives in ``positives``.

        Parameters
        ----------
        contexts : array of float, shape (contexts, dim)

        Returns
        -------
        array of bool, shape (contexts,)

        Raises
        ------
        InvalidValue
            If a context does not fit the classifier; then nothing is counted.
        """
        array = self.classifier.check_contexts(contexts)
        positive = np.empty(len(array), np.bool_)
        self._predict(self._params, self.state, 0, array, positive)
        self.positives += int(np.count_nonzero(positive))
        return positive

    def learn_false(self, context: npt.ArrayLike) -> None:
        """Update the state with a context that was no event, and count it in ``false_labels``.

        Parameters
        ----------
        context : array of float, shape (dim,)

        Raises
        ------
        InvalidValue
            If the context does not fit the classifier; then nothing is learned.
        """
        self._learn(self._params, self.state, 0, self.classifier.check_contexts([context]))
        self.false_labels += 1

    def merge(self, other: SafeClassifier) -> None:
        """Add the labels of another classifier's state to this one's state; the counts do not change.

        Parameters
        ----------
        other : SafeClassifier
            A classifier with the same class and hyperparameters.

        Raises
        ------
        InvalidValue
            If its class or hyperparameters differ.
        """
        if not isinstance(other, SafeClassifier) or other.classifier != self.classifier:
            value = other.classifier if isinstance(other, SafeClassifier) else other
            raise InvalidValue("other", value, f"merge only with one of {self.classifier}")
        self.state = self.classifier.merge_states(self.state, other.state)
