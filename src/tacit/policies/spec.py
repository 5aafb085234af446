"""Policies as text and as plain tables, for the command line, configuration and snapshots."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from tacit.dispatch import canonical
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import Policy, registry

Kind = TypeVar("Kind")

GRAMMAR = (
    'give a name, or a call such as "ucb1(alpha=0.5)" or "exploration-floor(ucb1, epsilon=0.1)"'
)


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
    return named_class(name, registry, Policy)


def named_class(name: str, known: dict[str, type[Kind]], base: type[Kind]) -> type[Kind]:
    """Find a class by its name in ``known``, or as ``module:Class`` below ``base``."""
    if ":" in name:
        return _imported_class(name, base)
    if canonical(name) in known:
        return known[canonical(name)]
    kind = base.__name__.lower()
    names = ", ".join(sorted(found.__name__ for found in known.values()))
    near = get_close_matches(canonical(name), list(known), n=1)
    hint = f"did you mean {known[near[0]].__name__}? " if near else ""
    raise UnknownName(
        f'{kind}: none is called {name!r}; {hint}there are {names}, and "module:Class" for your own'
    )


def _imported_class(name: str, base: type[Kind]) -> type[Kind]:
    module, _, attribute = name.partition(":")
    kind = base.__name__.lower()
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownName(f"{kind}: cannot import {name!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UnknownName(f"{kind}: {name!r} is not a subclass of tacit.{base.__name__}")
    return found


def policy_from_spec(spec: Any, arms: Any = None, *, imports: bool = True) -> Policy:
    """Make a policy from text or from a plain table.

    Parameters
    ----------
    spec : Policy, str or dict
        A policy is returned as it is, over ``arms`` if given. Text is a name or a call, as on
        the command line; it is parsed, never evaluated. A table has the key ``name`` and one
        key per hyperparameter, as in TOML and in snapshots.
    arms : int or sequence of str, optional
        The arms, where the spec does not say them.
    imports : bool, default True
        Whether ``module:Class`` may import; not for specs from files that nobody vouches for.

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
        name, positional, named = parsed_call(spec)
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        name, positional = spec["name"], []
        named = {key: value for key, value in spec.items() if key != "name"}
    else:
        raise InvalidValue("policy", spec, f"{GRAMMAR}, or a table with the key name")
    if ":" in name and not imports:
        raise UnknownName(f"policy: {name!r} may not be imported from here; import it yourself")
    return _made(policy_class(name), positional, named, arms, imports)


def _made(
    policy: type[Policy], positional: list[Any], named: dict[str, Any], arms: Any, imports: bool
) -> Policy:
    # Text names no arms by position: a first bare number would be read as the arms by mistake.
    allowed = [field.name for field in fields(policy) if field.init]
    given = matched(policy, [name for name in allowed if name != "arms"], positional, named)
    if "policy" in given:
        given["policy"] = policy_from_spec(given["policy"], arms, imports=imports)
    elif "arms" in allowed and given.setdefault("arms", arms) is None:
        raise InvalidValue("arms", None, "say the number of arms or their names")
    return policy(**given)


def matched(
    made: type, order: list[str], positional: list[Any], named: dict[str, Any]
) -> dict[str, Any]:
    """Match a call's arguments to the fields of a dataclass, or say what it takes."""
    takes = [field.name for field in fields(made) if field.init]
    surplus = [*positional[len(order) :], *(name for name in named if name not in takes)]
    if surplus:
        raise InvalidValue(made.__name__, surplus[0], f"it takes {', '.join(takes)}")
    given = dict(zip(order, positional, strict=False)) | named
    for field in fields(made):
        lacks = field.default is MISSING and field.default_factory is MISSING
        if field.init and lacks and field.name not in given and field.name != "arms":
            raise InvalidValue(f"{made.__name__}.{field.name}", None, "it must be given")
    return given


def parsed_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split ``name(literal, name=literal, …)`` without evaluating anything."""
    match = re.fullmatch(r"\s*([\w.:-]+)\s*(\(.*\))?\s*", text, re.DOTALL)
    if not match:
        raise InvalidValue("policy", text, GRAMMAR)
    name, arguments = match.group(1), match.group(2) or "()"
    try:
        call = ast.parse("_" + _without_hyphens(arguments), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError(text)
        positional = [_value(node) for node in call.args]
        named = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise InvalidValue("policy", text, GRAMMAR) from None
    return name, positional, named


def _without_hyphens(arguments: str) -> str:
    """Replace hyphens inside bare names, which would be read as minus signs, by underscores."""
    pieces = re.split(r"""("[^"]*"|'[^']*')""", arguments)
    return "".join(
        piece if i % 2 else re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", "_", piece)
        for i, piece in enumerate(pieces)
    )


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
