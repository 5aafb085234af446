"""Classifiers as text and as plain tables, for the command line, configuration and snapshots."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tacit.classifiers.base import Classifier, registry
from tacit.core.calls import matched, named_class, read_call


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
