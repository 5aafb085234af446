"""Whether a loop makes arrays, found out before it is compiled: then it has to count references.

Otherwise it would be tried without counting first, and everything up to the first array that it
makes would be compiled twice: a quarter of the time of ``Thompson``'s first decision.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from tacit.core import dispatch
from tacit.core.code_key import reached

MAKERS = {"arange", "array", "empty", "empty_like", "full", "ones", "zeros", "zeros_like"}
"""Functions of NumPy with which kernels make arrays."""


def makes_arrays(
    loop: Callable[..., Any], parts: Sequence[type], generics: Iterable[Callable[..., Any]]
) -> bool:
    """Say whether a loop surely makes arrays, if no branch of it is left out for a ``None``.

    Parameters
    ----------
    loop : function
        What is to be compiled.
    parts : sequence of type
        The parts whose ``Params`` it is called with, and those within them.
    generics : functions
        What is resolved by the type of ``Params``.
    """
    functions = list(reached(loop, parts, generics))
    # It calls propensity for few parts, and that is found out only by its types.
    if dispatch.learned_propensity in functions:
        return False
    kernels = {getattr(part, generic.__name__, None) for part in parts for generic in generics}
    compiled = kernels.union(dispatch.helpers, [loop])  # others are known to numba in its own way
    return any(function in compiled and _makes_an_array(function) for function in functions)


def _makes_an_array(function: FunctionType) -> bool:
    """Say whether a function has ``np.empty`` or the like in it."""
    if MAKERS.isdisjoint(function.__code__.co_names):
        return False
    of_numpy = False
    for step in dis.get_instructions(function):
        if of_numpy and step.argval in MAKERS:
            return True
        of_numpy = step.opname == "LOAD_GLOBAL" and function.__globals__.get(step.argval) is np
    return False
