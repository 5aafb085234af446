"""A key of all the code that a compiled loop can reach.

Two loops with the same key compile to the same machine code, so the key names a compiled loop in
the cache. It is a hash of everything that the interpreter would run (bytecode, constants, the values of
global names, fields of named tuples), from the loop through every function that it calls; a
generic function is replaced by the kernels of the loop's parts. Docstrings, comments, line numbers and
unreachable code do not count. No source is read, so that parts may also be defined
at a prompt or in a notebook.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tacit.core.dispatch import find_kernel

VERSIONED_PACKAGES = {"builtins", "math", "numba", "numpy"}
"""Packages whose functions are identified by the package's version."""
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(...))


def code_key(
    loop: Callable[..., Any],
    parts: Sequence[type],
    generics: Iterable[Callable[..., Any]],
    versions: Iterable[str],
) -> str:
    """Return a hash of all code that a loop can reach when it runs the kernels of parts.

    Parameters
    ----------
    loop : function
        The loop to compile.
    parts : sequence of type
        The parts whose ``Params`` it is called with, and the parts nested in them.
    generics : functions
        The functions that are resolved by the type of ``Params``.
    versions : str
        Versions of everything else that machine code depends on.

    Returns
    -------
    str
        20 hexadecimal digits.

    Examples
    --------
    >>> def one(x):
    ...     "Add one."
    ...     return x + 1
    >>> def next(x):
    ...     "Return the successor of x."
    ...     return x + 1  # the same
    >>> def two(x):
    ...     "Add two."
    ...     return x + 2
    >>> keys = [code_key(f, (), (), ()) for f in (one, next, two)]
    >>> keys[0] == keys[1], keys[0] == keys[2]
    (True, False)
    """
    digest = hashlib.sha256(repr((sys.version_info[:2], *versions)).encode())
    for part in parts:
        digest.update(_describe_part(part).encode())
    for function in find_functions(loop, parts, generics):
        digest.update(_describe_function(function)[0].encode())
    return digest.hexdigest()[:20]


def find_functions(
    loop: Callable[..., Any], parts: Sequence[type], generics: Iterable[Callable[..., Any]]
) -> Iterator[Any]:
    """Yield each function that a loop may call, directly or not, once; generic functions lead to the parts'
    kernels.
    """
    kernels = frozenset(generics)
    pending: list[Any] = [loop]
    visited: set[Any] = set()
    while pending:
        function = pending.pop()
        if function in visited:
            continue
        visited.add(function)
        if function in kernels:
            part_kernels = (find_kernel(part, function) for part in reversed(parts))
            pending.extend(kernel for kernel in part_kernels if kernel is not None)
        yield function
        pending.extend(reversed(_describe_function(function)[1]))


def clear_descriptions() -> None:
    """Clear the caches of descriptions, as is needed after a function or class was edited in place."""
    _describe_part.cache_clear()
    _describe_function.cache_clear()


@cache
def _describe_part(part: Any) -> str:
    """Return a text that identifies a part's layout: its name, and the fields of its named tuples; cached."""
    layouts = [_layout(attribute) for attribute in vars(part).values() if _is_layout(attribute)]
    # Cached code names the modules of its types and imports them: it must not import another package's.
    home = "" if part.__module__.startswith("tacit.") else part.__module__
    return repr((home, part.__qualname__, getattr(part, "learns_from_propensity", None), layouts))


@cache
def _describe_function(function: FunctionType) -> tuple[str, list[Any]]:
    """Return a text that identifies a function's code and the values that it uses, and the functions it may
    call; cached.
    """
    called: list[Any] = []
    closure_values = [cell.cell_contents for cell in function.__closure__ or ()]
    values = [_describe_value(value, called) for value in (*closure_values, *_find_globals(function))]
    code = _describe_code(function.__code__, function.__doc__)
    return repr((code, function.__defaults__, values)), called


def _describe_code(code: CodeType, doc: str | None = None) -> Any:
    """Return a description of a code object: bytecode, names and constants, without the docstring ``doc``."""
    constants = [_describe_constant(value) for value in code.co_consts if doc is None or value != doc]
    names = code.co_names, code.co_varnames[: code.co_argcount], code.co_freevars
    return code.co_code, names, constants


def _describe_constant(value: Any) -> Any:
    """Return a description of a constant of bytecode; nested code is described itself, and sets are
    sorted.
    """
    if isinstance(value, CodeType):
        return _describe_code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _find_globals(function: FunctionType) -> Iterator[Any]:
    """Yield the values of the global names in a function, and the attributes that it may use of modules and
    classes.
    """
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                value = function.__globals__[name]
                yield value
                if isinstance(value, (ModuleType, type)) and not _is_foreign(value):
                    yield from (vars(value)[n] for n in code.co_names if n in vars(value))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code objects nested in it, such as lambdas."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_foreign(value: Any) -> bool:
    """True if a value belongs to a package that the key identifies by its version alone."""
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return name.partition(".")[0] in VERSIONED_PACKAGES


def _describe_value(value: Any, called: list[Any]) -> Any:
    """Return a description of a global or closure value; append it to ``called`` if it is a function.

    Functions of packages that are identified by version are not appended.
    """
    value = getattr(value, "py_func", value)
    if isinstance(value, staticmethod):
        value = value.__func__
    if isinstance(value, FunctionType):
        if not _is_foreign(value):
            called.append(value)
        return value.__qualname__
    if isinstance(value, CONSTANTS):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return [_describe_value(entry, called) for entry in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if _is_layout(value):
        return _layout(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def _is_layout(value: Any) -> bool:
    """True if a value is a class of named tuples."""
    return isinstance(value, type) and hasattr(value, "_fields")


def _layout(named_tuple: Any) -> Any:
    """Return the qualified name and the fields of a named tuple class."""
    return named_tuple.__qualname__, named_tuple._fields
