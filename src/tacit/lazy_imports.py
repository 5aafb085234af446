"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Later = tuple[Callable[[str], Any], Callable[[], list[str]]]


def later(package: str, homes: Mapping[str, str]) -> Later:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    What a module of the package needs is thus brought along only by those who use it, and not by
    those who import its neighbours. Type checkers and the reference go by imports that stand beside
    under ``TYPE_CHECKING``.

    Parameters
    ----------
    package : str
    homes : mapping of str to str
        For each module of the package the names that it has, with blanks between them.

    Raises
    ------
    AttributeError
        By the first, where a name is not known.

    Examples
    --------
    >>> named, listed = later("tacit", {"learning.learner": "Learner", "simulation": "simulate"})
    >>> named("Learner").__name__, listed()
    ('Learner', ['Learner', 'simulate'])
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def named(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)

    return named, lambda: sorted(home_of)
