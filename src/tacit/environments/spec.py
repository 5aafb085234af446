"""Parse environments from text, for the command line."""

from __future__ import annotations

from dataclasses import fields

from tacit.core.dispatch import canonical_name
from tacit.core.part import find_class, match_arguments, parse_call
from tacit.environments.base import Environment, registry
from tacit.environments.duels import NAMED, PreferenceMatrix


def environment_from_spec(spec: str) -> Environment:
    """Return an environment from text: a name or a call, parsed and never evaluated.

    Parameters
    ----------
    spec : str
        As in the examples; or ``module:Class(…)`` for a user-defined class. The name of a preference
        matrix of the literature stands for the ``PreferenceMatrix`` with it.

    Raises
    ------
    UnknownName
        If there is no environment of that name.
    InvalidValue
        If the text cannot be parsed or a parameter is unknown or out of range.

    Examples
    --------
    >>> environment_from_spec("bernoulli-arms([0.1, 0.2], delay=10)").arm_count
    2
    >>> environment_from_spec("shifting-arms(arms=3, events=(1, 4))").events
    (1, 4)
    >>> environment_from_spec("uniform-gap(50, 0.1)").arm_count
    50
    >>> environment_from_spec("preference-matrix(arxiv, regret_kind=weak)").arm_count
    6
    """
    remedy = 'give a call such as "bernoulli-arms([0.1, 0.2])"'
    name, positional, named = parse_call(spec, "environment", remedy)
    if canonical_name(name) in NAMED:
        return PreferenceMatrix(spec)
    environment = find_class(name, registry, Environment)
    order = [field.name for field in fields(environment) if field.init and not field.kw_only]
    return environment(**match_arguments(environment, order, positional, named))
