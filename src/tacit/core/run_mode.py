"""Run loops compiled, or as plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.errors import InvalidValue


class Interpreted:
    """A loop as plain Python, with the interface of compiled loops."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        """Store the loop, which runs as plain Python."""
        self._loop = loop

    def entry(self, arguments: tuple[Any, ...]) -> Interpreted:
        """Return this object; compiled loops have the same method, which compiles for the arguments'
        types.
        """
        return self

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop as plain Python, without warnings of floating-point errors."""
        # Compiled code does not warn of overflow either.
        with np.errstate(all="ignore"):
            return self._loop(*arguments)


def compiles_loops() -> bool:
    """True if loops are compiled: unless the environment has ``TACIT_COMPILE=0``.

    Raises
    ------
    InvalidValue
        If ``TACIT_COMPILE`` is neither 0 nor 1.
    """
    setting = os.environ.get("TACIT_COMPILE") or "1"
    if setting not in ("0", "1"):
        raise InvalidValue("TACIT_COMPILE", setting, "give 0, so that nothing is compiled, or leave it out")
    return setting == "1"


def compile_loop(driver: Callable[..., Any], *all_params: Any) -> Any:
    """Return ``driver`` as compiled code for parts with these ``Params``, or to run as plain Python.

    ``TACIT_COMPILE`` decides which. Without compilation it runs as plain Python: debuggers stop in kernels,
    kernels may print, and an index out of bounds raises.

    Parameters
    ----------
    driver : function
        A module-level function in numba's subset that calls the generic functions.
    *all_params : named tuple
        The ``Params`` of each part that the loop is called with.
    """
    if not compiles_loops():
        return Interpreted(driver)
    from tacit.core import compiled as compilation  # loads numba

    return compilation.driver(driver, *all_params)
