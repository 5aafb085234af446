"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Later = tuple[Callable[[str], Any], Callable[[], list[str]]]


def later(package: str, modules: Mapping[str, str]) -> Later:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    What a module of the package needs is thus brought along only by those who use it, and not by
    those who import its neighbours. Type checkers and the reference go by imports that stand beside
    under ``TYPE_CHECKING``.

    Parameters
    ----------
    package : str
    modules : mapping of str to str
        For each name the module that has it.

    Raises
    ------
    AttributeError
        By the first, where a name is not known.

    Examples
    --------
    >>> named, listed = later("tacit", {"Learner": "tacit.learning.learner"})
    >>> named("Learner").__name__, listed()
    ('Learner', ['Learner'])
    """

    def named(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return named, lambda: sorted(modules)
