"""Lazy imports: names of a package that are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Later = tuple[Callable[[str], Any], Callable[[], list[str]]]


def later(package: str, homes: Mapping[str, str]) -> Later:
    """Return functions ``__getattr__`` and ``__dir__`` for a package with lazily imported names.

    A module and its dependencies are imported only when one of its names is used. For type checkers
    and the reference, the package repeats the imports under ``TYPE_CHECKING``.

    Parameters
    ----------
    package : str
    homes : mapping of str to str
        For each module of the package its names, separated by blanks.

    Raises
    ------
    AttributeError
        Raised by ``__getattr__`` for an unknown name.

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
