"""Imports: names of a package that are imported on first use; the garbage collector paused meanwhile."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

IMPORT_FOLDERS: list[str] = []
"""Folders for ``module:Class``, searched after installed packages: in a command the current one."""
LazyAccess = tuple[Callable[[str], Any], Callable[[], list[str]]]


def add_import_folders() -> None:
    """Append ``IMPORT_FOLDERS`` to the path for imports.

    Only when a module in them is asked for: optional packages are not to be taken from there.
    """
    sys.path.extend(folder for folder in IMPORT_FOLDERS if folder not in sys.path)


def load_lazily(package: str, names_by_module: Mapping[str, str]) -> LazyAccess:
    """Return ``__getattr__`` and ``__dir__`` for a package that imports names on first use.

    A module and its dependencies are imported only when one of its names is used. For type checkers and the
    reference, the package repeats the imports under ``TYPE_CHECKING``.

    Parameters
    ----------
    package : str
    names_by_module : mapping of str to str
        For each module of the package its names, separated by blanks.

    Raises
    ------
    AttributeError
        Raised by ``__getattr__`` for an unknown name.

    Examples
    --------
    >>> named, listed = load_lazily("tacit", {"learning.learner": "Learner", "simulation": "simulate"})
    >>> named("Learner").__name__, listed()
    ('Learner', ['Learner', 'simulate'])
    """
    module_of = {name: home for home, names in names_by_module.items() for name in names.split()}

    def get_name(name: str) -> Any:
        """Import the module that defines a name, and return its value; raise AttributeError for others."""
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return get_name, lambda: sorted(module_of)


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the garbage collector in the ``with`` block: it slows down what makes many objects that stay."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
