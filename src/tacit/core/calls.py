"""Parts as text: calls such as ``ucb1(alpha=0.5)``, parsed and never evaluated."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from tacit.core.dispatch import canonical
from tacit.errors import InvalidValue, UnknownName

Kind = TypeVar("Kind")

GRAMMAR = 'give a name, or a call such as "ucb1(alpha=0.5)" or "exploration-floor(ucb1, epsilon=0.1)"'


def named_class(name: str, known: dict[str, type[Kind]], base: type[Kind]) -> type[Kind]:
    """Find a class by its name in ``known``, or as ``module:Class`` below ``base``."""
    if ":" in name:
        return _imported_class(name, base)
    if canonical(name) in known:
        return known[canonical(name)]
    kind = base.__name__.lower()
    names = ", ".join(sorted(found.__name__ for found in known.values()))
    near = get_close_matches(canonical(name), list(known), n=1)
    remedy = f"did you mean {known[near[0]].__name__}?" if near else f"there are {names};"
    raise UnknownName(f'{kind}: none is called {name!r}; {remedy} "module:Class" is for your own')


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


def matched(made: type, order: list[str], positional: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Match a call's arguments to the fields of a dataclass, or say what it takes."""
    takes = [field.name for field in fields(made) if field.init]
    surplus = [*positional[len(order) :], *(name for name in named if name not in takes)]
    if surplus:
        raise InvalidValue(made.__name__, surplus[0], f"it takes {', '.join(takes)}")
    given = dict(zip(order, positional, strict=False)) | named
    for field in fields(made):
        lacks = field.default is MISSING and field.default_factory is MISSING
        if field.init and lacks and field.name not in given and field.name != "arms":
            remedy = f"it must be given, as in {made.__name__}({field.name}=…)"
            raise InvalidValue(f"{made.__name__}.{field.name}", None, remedy)
    return given


def read_call(kind: str, spec: Any, remedy: str, *, imports: bool) -> tuple[str, list[Any], dict[str, Any]]:
    """Return name and arguments of a part that is given as text or as a table with its ``name``.

    Raises
    ------
    InvalidValue
        If it is neither.
    UnknownName
        If it would be imported where ``imports`` forbids it.
    """
    if isinstance(spec, str):
        name, positional, named = parsed_call(spec)
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        name, positional = spec["name"], []
        named = {key: value for key, value in spec.items() if key != "name"}
    else:
        raise InvalidValue(kind, spec, remedy)
    if ":" in name and not imports:
        raise UnknownName(f"{kind}: {name!r} may not be imported from here; import it yourself")
    return name, positional, named


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
