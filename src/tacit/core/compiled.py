"""Compilation: generic functions registered with numba, and a cache that is never stale.

Importing this module loads numba; no other module of the package does so at import time.

numba's own cache checks the file of the outermost compiled function only, so it would run a
stale kernel after an edit of a policy. Here each compiled driver is cached in a folder named by a
key of all the code that it can reach (:mod:`tacit.core.code_key`); :mod:`tacit.core.compilation.loops`
has the locations.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.extending import overload, register_jitable

import tacit.core.compiled_derived  # noqa: F401  teaches numba what kernels may derive
from tacit.core import dispatch
from tacit.core.code_key import clear_descriptions, code_key, find_functions
from tacit.core.compilation import notice
from tacit.core.compilation.loops import (
    KernelCompiler,
    LoopCache,
    LoopCompiler,
    address_type,
    creates_arrays,
    has_note,
    note,
)
from tacit.core.compilation.notice import explain_error
from tacit.lazy_imports import pause_collector

# Division by zero gives inf or nan, as in C; kernels guard against it where needed.
OPTIONS: Any = {"error_model": "numpy"}
# A kernel that is not inlined costs a reference count per array and call: twice the time.
# Kernels are only called from compiled code, so they need no wrappers.
KERNEL_OPTIONS: Any = OPTIONS | {
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": KernelCompiler,
}

GENERICS = (
    *dispatch.POLICY_KERNELS,
    *dispatch.FEATURE_KERNELS,
    *dispatch.COUPLED_KERNELS,
    *dispatch.SHIFT_KERNELS,
    *dispatch.INDEX_KERNELS,
    *dispatch.LIST_KERNELS,
    *dispatch.ENVIRONMENT_KERNELS,
    *dispatch.CLASSIFIER_KERNELS,
)
COMPILATION_VERSION = "5"
"""Version of the compilation in :mod:`tacit.core.compilation`; change it whenever that changes."""
# Machine code does not depend on the last part of NumPy's version.
VERSIONS = COMPILATION_VERSION, numba.__version__, *np.__version__.split(".")[:2]

_dispatchers: list[Any] = []
_registered_helpers = 0


def _register_generic(generic: Callable[..., Any]) -> None:
    """Register ``generic`` with numba, so that compiled code calls the kernel of the part of its first
    argument.
    """

    def resolve(params: Any, *rest: Any) -> Any:
        """Return the kernel of the part whose ``Params`` has numba's type ``params``."""
        return dispatch.find_kernel(dispatch.parts[params.instance_class], generic)

    overload(generic, jit_options=KERNEL_OPTIONS, strict=False)(resolve)


for _generic in GENERICS:
    _register_generic(_generic)


def _learns_from_propensity(params: Any) -> bool:
    """True if the part of numba's type ``params``, or a part nested in it, learns from propensities."""
    part = dispatch.parts.get(getattr(params, "instance_class", type(None)))
    return part is not None and (
        part.learns_from_propensity or any(_learns_from_propensity(inner) for inner in params)
    )


@overload(dispatch.learned_propensity, jit_options=KERNEL_OPTIONS, strict=False)
def _resolve_learned_propensity(params: Any, *rest: Any) -> Any:
    """Return the kernel that computes the propensity if the part learns from it, else one that returns
    NaN.
    """
    if _learns_from_propensity(params):
        return dispatch.parts[params.instance_class].propensity
    return lambda params, state, lane, impression, shown: math.nan


@cache
def _dispatcher(function: Callable[..., Any], key: str, counting: bool) -> Any:
    """Return numba's dispatcher of a loop, with this package's cache; :func:`cache_statistics` will count it.

    ``counting`` enables reference counting.
    """
    options: Any = OPTIONS | {
        "nogil": True,
        "_nrt": counting,
        "no_cfunc_wrapper": True,
        "pipeline_class": LoopCompiler,
    }
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher._cache = LoopCache(function, key, "counting" if counting else "lean")
    _dispatchers.append(dispatcher)
    return dispatcher


class Driver:
    """A loop that is compiled, or loaded from the cache, for each new combination of argument types.

    If nothing in it creates an array, it is compiled without numba's reference counting of
    arrays, which costs more than many kernels; the caller holds all arrays while it runs.
    A call releases the global interpreter lock.

    Parameters
    ----------
    function : function
    parts : tuple of type
        The parts whose kernels it runs.
    key : str
        The :func:`~tacit.core.code_key.code_key` of the function and the parts.
    """

    def __init__(self, function: Callable[..., Any], parts: tuple[type, ...], key: str) -> None:
        """Store the loop, its parts and the key of its code; nothing is compiled yet."""
        self._function, self._parts, self._key = function, parts, key
        self._entries: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The loop's name with the names of its parts, for notices."""
        whose = " and ".join(dict.fromkeys(part.__name__ for part in self._parts))
        what = self._function.__name__.removesuffix("_rows").replace("_", " ")
        return f"{what} for {whose}" if whose else what

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled loop on the arguments; compile it first if their types are new."""
        return self.entry(arguments)(*arguments)

    def entry(self, arguments: tuple[Any, ...]) -> Any:
        """Return the compiled loop for arguments of exactly these types.

        It is compiled, or loaded from the cache, at the first call for these types. It does not check types
        (which takes some 10 µs a call), so every call of it must pass arguments of the same types. Raises
        KernelError if it cannot be compiled.
        """
        form = _type_key(arguments)
        if form not in self._entries:
            types = tuple(numba.typeof(argument) for argument in arguments)
            try:
                with notice.announce(self.name):
                    self._entries[form] = self._compile(types)
            except Exception as error:
                raise explain_error(error, self._function, self._parts) from _shorten_error(error)
        return self._entries[form]

    def _compile(self, types: tuple[Any, ...]) -> Any:
        """Compile the loop for these types, or load it from the cache, and return its entry point.

        References are counted only if needed; that this is so is noted in the cache.
        """
        tuple_classes = [getattr(kind, "instance_class", None) for kind in types]
        name = f"{self._function.__qualname__} {types} {tuple_classes}"
        # The result of an earlier attempt is stored, so that it is not repeated in every process.
        counts = f"{hashlib.sha256(name.encode()).hexdigest()[:20]}.counts"
        noted = has_note(self._key, counts)
        # ``creates_arrays`` can only tell if no argument is None.
        whole = numba.types.none not in types
        if not (noted or (whole and creates_arrays(self._function, self._parts, GENERICS))):
            try:
                return _entry(_dispatcher(self._function, self._key, counting=False), types)
            except NumbaError:
                pass
        counting = _dispatcher(self._function, self._key, counting=True)
        try:
            entry_point = _entry(counting, tuple(map(address_type, types)))
        except Exception:
            # For example an address cannot be sliced or returned; numba also raises other errors.
            entry_point = _entry(counting, types)
        if not noted:
            note(self._key, counts)
        return entry_point


def _shorten_error(error: Exception) -> Exception:
    """Shorten the text of numba's error to its first line, and remove its traceback; return it.

    Its ``msg`` has the full text. Other errors keep their text.
    """
    if isinstance(error, NumbaError):
        whole: Any = str(error)
        vars(error)["msg"] = whole
        error.patch_message(f"{whole.splitlines()[0]}; all of it is in .msg")
    return error.with_traceback(None)


def _type_key(value: Any) -> Any:
    """Return a hashable key of an argument's type, nested tuples included; 20 times as fast as numba's
    check.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype, value.ndim, value.flags.num
    return (kind, *map(_type_key, value)) if isinstance(value, tuple) else kind


def _entry(dispatcher: Any, types: tuple[Any, ...]) -> Any:
    """Compile a loop for these types, or load it from the cache, and return its entry point."""
    with pause_collector(), closing(dispatcher._cache):
        return dispatcher.compile(types)


# ---- Functions that are edited in place, as by IPython's autoreload

_drivers: dict[Any, tuple[Driver, list[tuple[Any, Any]]]] = {}
"""Drivers by function and parts, with the reachable functions and their code at that time."""


def _driver(function: Callable[..., Any], parts: tuple[type, ...]) -> Driver:
    """Return the driver of a loop for parts: a cached one, unless code that it can reach was edited.

    After an edit all caches that depend on code are cleared.
    """
    cached = _drivers.get((function, parts))
    if cached is not None and all(fn.__code__ is code for fn, code in cached[1]):
        return cached[0]
    if cached is not None:
        _clear_caches()
    driver = Driver(function, parts, code_key(function, parts, GENERICS, VERSIONS))
    # Functions are edited in place: their code object is replaced.
    reach = [(fn, fn.__code__) for fn in find_functions(function, parts, GENERICS) if hasattr(fn, "__code__")]
    _drivers[function, parts] = driver, reach
    return driver


def _clear_caches() -> None:
    """Clear the descriptions of functions and numba's caches of implementations, after code was edited."""
    clear_descriptions()
    for taught in (*GENERICS, dispatch.learned_propensity, *dispatch.helpers[:_registered_helpers]):
        try:
            kind = cpu_target.typing_context.resolve_value_type(taught)
        except ValueError:
            continue  # it has not been called yet
        for template in getattr(kind, "templates", ()):
            # numba's cache of implementations by types, which it does not invalidate.
            getattr(template, "_impl_cache", {}).clear()


def _collect_parts(params: Any) -> Iterable[type]:
    """Yield the part of a ``Params`` tuple and the parts of nested tuples."""
    yield dispatch.parts[type(params)]
    for value in params:
        if type(value) in dispatch.parts:
            yield from _collect_parts(value)


def driver(loop: Callable[..., Any], *all_params: Any) -> Driver:
    """Return the driver of ``loop`` for parts with these ``Params``; first registers new helper functions
    with numba.
    """
    global _registered_helpers
    for helper in dispatch.helpers[_registered_helpers:]:
        register_jitable(**KERNEL_OPTIONS)(helper)
    _registered_helpers = len(dispatch.helpers)
    parts = (part for params in all_params for part in _collect_parts(params))
    return _driver(loop, tuple(parts))


def cache_statistics() -> tuple[int, int]:
    """Return how many loops this process loaded from the cache, and how many it compiled."""
    hits = sum(sum(d.stats.cache_hits.values()) for d in _dispatchers)
    return hits, sum(sum(d.stats.cache_misses.values()) for d in _dispatchers)
