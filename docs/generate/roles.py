"""Roles of docstrings (``:class:`~tacit.Learner```), made into links of the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`([^`]+)`")


class Roles(griffe.Extension):
    """Replaces each role by a link to what it names; by its name where the reference lacks it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(lambda match: linked(match[1], obj), obj.docstring.value)


def linked(target: str, obj: griffe.Object) -> str:
    """Return a link to what a role of an object's docstring names."""
    path = target.removeprefix("~")
    shown = path.rpartition(".")[2] if target.startswith("~") else path
    identifier = path if path.startswith("tacit") else resolved(path, obj)
    return f'<autoref identifier="{identifier}" optional><code>{shown}</code></autoref>'


def resolved(name: str, obj: griffe.Object) -> str:
    """Return the full path of a name as its docstring's class or module knows it."""
    first, _, rest = name.partition(".")
    scope: Any = obj
    while scope is not None:
        if first in scope.members:
            found = scope.members[first].path
            return f"{found}.{rest}" if rest else str(found)
        scope = scope.parent
    return name
