"""Policies as text and as plain tables, for the command line, configuration and snapshots."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import Policy, canonical, registry

GRAMMAR = 'give a name, or a call such as "ucb1(alpha=0.5)" or "exploration-floor(ucb1, epsilon=0.1)"'


def policy_class(name: str) -> type[Policy]:
    """Find a policy class.

    Parameters
    ----------
    name : str
        A policy's name, in any case and with or without hyphens; or ``module:Class`` for a
        policy of one's own, whose module is imported.

    Raises
    ------
    UnknownName
        If there is no such policy.

    Examples
    --------
    >>> policy_class("epsilon-greedy").__name__
    'EpsilonGreedy'
    """
    if ":" in name:
        return _imported_class(name)
    if canonical(name) in registry:
        return registry[canonical(name)]
    names = sorted(policy.__name__ for policy in registry.values())
    near = get_close_matches(canonical(name), list(registry), n=1)
    hint = f"did you mean {registry[near[0]].__name__}? " if near else ""
    raise UnknownName(
        f"policy: no policy is called {name!r}; {hint}there are {', '.join(names)}, "
        'and "module:Class" for one of your own'
    )


def _imported_class(name: str) -> type[Policy]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownName(f"policy: cannot import {name!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise UnknownName(f"policy: {name!r} is not a subclass of tacit.Policy")
    return found


def policy_from_spec(spec: Any, arms: Any = None) -> Policy:
    """Make a policy from text or from a plain table.

    Parameters
    ----------
    spec : Policy, str or dict
        A policy is returned as it is, over ``arms`` if given. Text is a name or a call, as on
        the command line; it is parsed, never evaluated. A table has the key ``name`` and one
        key per hyperparameter, as in TOML and in snapshots.
    arms : int or sequence of str, optional
        The arms, where the spec does not say them.

    Raises
    ------
    UnknownName
        If there is no such policy.
    InvalidValue
        If the text cannot be parsed or a hyperparameter is unknown or out of range.

    Examples
    --------
    >>> policy_from_spec("exploration-floor(ucb1(alpha=1), epsilon=0.1)", arms=3)
    ExplorationFloor(policy=UCB1(arms=3, alpha=1.0, t0=0.0), epsilon=0.1)
    >>> policy_from_spec({"name": "thompson", "discount": 0.99}, arms=["a", "b"]).discount
    0.99
    """
    if isinstance(spec, Policy):
        return spec if arms is None else spec.with_arms(arms)
    if isinstance(spec, str):
        name, positional, named = _parsed(spec)
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        name, positional = spec["name"], []
        named = {key: value for key, value in spec.items() if key != "name"}
    else:
        raise InvalidValue("policy", spec, f"{GRAMMAR}, or a table with the key name")
    return _made(policy_class(name), positional, named, arms)


def _made(policy: type[Policy], positional: list[Any], named: dict[str, Any], arms: Any) -> Policy:
    allowed = [field.name for field in fields(policy) if field.init]
    if len(positional) > len(allowed):
        raise InvalidValue(policy.__name__, positional, f"it takes {', '.join(allowed)}")
    # Text names no arms by position: a first bare number would be read as the arms by mistake.
    given = dict(zip((name for name in allowed if name != "arms"), positional, strict=False))
    given |= named
    for name in given:
        if name not in allowed:
            raise InvalidValue(f"{policy.__name__}.{name}", given[name], f"it takes {', '.join(allowed)}")
    if "policy" in allowed and "policy" in given:
        given["policy"] = policy_from_spec(given["policy"], arms)
    elif "arms" in allowed and "arms" not in given:
        if arms is None:
            raise InvalidValue("arms", None, "say the number of arms or their names")
        given["arms"] = arms
    if isinstance(given.get("arms"), list):
        given["arms"] = tuple(given["arms"])
    try:
        return policy(**given)
    except TypeError as error:
        raise InvalidValue(policy.__name__, given, str(error)) from error


def _parsed(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split ``name(literal, name=literal, …)`` without evaluating anything."""
    match = re.fullmatch(r"\s*([\w.:-]+)\s*(\(.*\))?\s*", text, re.DOTALL)
    if not match:
        raise InvalidValue("policy", text, GRAMMAR)
    name, arguments = match.group(1), match.group(2) or "()"
    try:
        # A hyphen inside a name would be read as a minus.
        call = ast.parse("_" + re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", "_", arguments), mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [_value(node) for node in call.args]
        named = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise InvalidValue("policy", text, GRAMMAR) from None
    return name, positional, named


def _value(node: ast.expr) -> Any:
    """Return a literal's value; a bare name or a call stands for a policy, as text."""
    if isinstance(node, (ast.Name, ast.Call)):
        return ast.unparse(node)
    return ast.literal_eval(node)


def policy_to_spec(policy: Policy) -> dict[str, Any]:
    """Return a policy as a plain table of numbers, strings and tables.

    Examples
    --------
    >>> import tacit
    >>> policy_to_spec(tacit.EpsilonGreedy(arms=3))
    {'name': 'EpsilonGreedy', 'arms': 3, 'epsilon': 0.1}
    """
    spec: dict[str, Any] = {"name": type(policy).__name__}
    if any(field.name == "arms" and field.init for field in fields(policy)):
        spec["arms"] = policy.arms if isinstance(policy.arms, int) else list(policy.arms)
    for name, value in policy.hyperparameters.items():
        spec[name] = policy_to_spec(value) if isinstance(value, Policy) else value
    return spec
