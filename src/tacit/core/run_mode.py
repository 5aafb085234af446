"""How a loop runs: compiled, or as plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.errors import InvalidValue


class Interpreted:
    """A loop as plain Python, called as compiled ones are."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        self._loop = loop

    def entry(self, arguments: tuple[Any, ...]) -> Interpreted:
        """Return what takes arguments of these types."""
        return self

    def __call__(self, *arguments: Any) -> Any:
        # Compiled code says nothing of numbers that overflow, either.
        with np.errstate(all="ignore"):
            return self._loop(*arguments)


def compiles_loops() -> bool:
    """Whether loops are compiled; ``TACIT_COMPILE=0`` says that they are not.

    Raises
    ------
    InvalidValue
        If it says something else.
    """
    given = os.environ.get("TACIT_COMPILE") or "1"
    if given not in ("0", "1"):
        raise InvalidValue("TACIT_COMPILE", given, "give 0, so that nothing is compiled, or leave it out")
    return given == "1"


def compiled(driver: Callable[..., Any], *all_params: Any) -> Any:
    """Return ``driver`` as compiled code for parts with these ``Params``.

    Where none is compiled it runs as plain Python: debuggers stop in kernels, they may print, and an index
    that is out of bounds is noticed.

    Parameters
    ----------
    driver : function
        A module-level function in numba's subset that calls the generic functions.
    *all_params : named tuple
        The ``Params`` of each part it will be called with.
    """
    if not compiles_loops():
        return Interpreted(driver)
    from tacit.core import compiled as compilation  # loads numba

    return compilation.driver(driver, *all_params)
