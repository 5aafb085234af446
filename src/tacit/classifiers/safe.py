"""Classifiers as text and tables; and a classifier with what it has learned in one object."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.classifiers.base import Classifier, checked_classifier, learn_all_false, predict_all, registry
from tacit.core.arrays import Booleans
from tacit.core.part import matched, named_class, read_call
from tacit.errors import InvalidValue

# ---- Classifiers as text and as plain tables, for the command line, configuration and snapshots


def classifier_from_spec(spec: Any, *, imports: bool = True) -> Classifier:
    """Return a classifier from text or from a plain table.

    Parameters
    ----------
    spec : Classifier, str or dict
        A classifier is returned as it is. Text is a call, as on the command line; it is parsed,
        never evaluated. A table has the key ``name`` and one key per hyperparameter.
    imports : bool, default True
        Whether ``module:Class`` may import; not for specs from files that nobody vouches for.

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
    made = named_class(name, registry, Classifier)
    order = [field.name for field in fields(made) if field.init]
    return made(**matched(made, order, positional, named))


def classifier_to_spec(classifier: Classifier) -> dict[str, Any]:
    """Return a classifier as a plain table.

    Examples
    --------
    >>> from tacit.classifiers import Hyperplane
    >>> classifier_to_spec(Hyperplane(dim=2, margin=0.1))
    {'name': 'Hyperplane', 'dim': 2, 'margin': 0.1, 'capacity': 1024}
    """
    made = {field.name: getattr(classifier, field.name) for field in fields(classifier) if field.init}
    return {"name": type(classifier).__name__, **made}


# ---- A classifier and what it has learned in one object


class SafeClassifier:
    """Predict events, and learn from contexts that were none.

    Not safe for use from several threads at once.

    Parameters
    ----------
    classifier : Classifier
        The class of concepts and its hyperparameters.

    Attributes
    ----------
    state : named tuple of arrays
        What was learned; one row.
    positives, false_labels : int
        How many positive predictions this object has made, and how many labels it was taught.

    Raises
    ------
    InvalidValue
        If ``classifier`` is none.

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
        from tacit.core.compiled import compiled

        self.classifier = checked_classifier("classifier", classifier)
        self.state = classifier.init(1)
        self.positives = 0
        self.false_labels = 0
        self._params = params = classifier.params
        contexts, positive = np.empty((0, classifier.dim)), np.empty(0, np.bool_)
        self._predict = compiled(predict_all, params).entry((params, self.state, 0, contexts, positive))
        self._learn = compiled(learn_all_false, params).entry((params, self.state, 0, contexts))

    def predict(self, context: npt.ArrayLike) -> bool:
        """Return whether a context may be an event.

        Parameters
        ----------
        context : array of float, shape (dim,)

        Returns
        -------
        bool
            False only if it is none, provided that all labels were correct.

        Raises
        ------
        InvalidValue
            If the context does not fit the classifier.
        """
        return bool(self.predict_many([context])[0])

    def predict_many(self, contexts: Any) -> Booleans:
        """Return, for each of many contexts, whether it may be an event.

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
        array = self.classifier.checked(contexts)
        positive = np.empty(len(array), np.bool_)
        self._predict(self._params, self.state, 0, array, positive)
        self.positives += int(np.count_nonzero(positive))
        return positive

    def learn_false(self, context: npt.ArrayLike) -> None:
        """Learn that a context was no event.

        Parameters
        ----------
        context : array of float, shape (dim,)

        Raises
        ------
        InvalidValue
            If the context does not fit the classifier; then nothing is learned.
        """
        array = self.classifier.checked([context])
        self._learn(self._params, self.state, 0, array)
        self.false_labels += 1

    def merge(self, other: SafeClassifier) -> None:
        """Take in what another one has learned; the counts stay this object's own.

        Parameters
        ----------
        other : SafeClassifier
            One of the same class and hyperparameters.

        Raises
        ------
        InvalidValue
            If it is of another class or has other hyperparameters.
        """
        if not isinstance(other, SafeClassifier) or other.classifier != self.classifier:
            given = other.classifier if isinstance(other, SafeClassifier) else other
            raise InvalidValue("other", given, f"merge only with one of {self.classifier}")
        self.state = self.classifier.merged(self.state, other.state)
