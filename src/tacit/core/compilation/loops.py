"""How loops and their kernels are compiled: whether arrays are counted, what is inlined, whose generator."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.pythonapi import NativeValue, _unboxers

from tacit.core import dispatch
from tacit.core.code_key import reached

# ---- Whether a loop makes arrays, found out before it is compiled: then it has to count references
#
# Otherwise it would be tried without counting first, and everything up to the first array that it
# makes would be compiled twice: a quarter of the time of ``Thompson``'s first decision.

MAKERS = {"arange", "array", "empty", "empty_like", "full", "ones", "zeros", "zeros_like"}
"""Functions of NumPy with which kernels make arrays."""


def makes_arrays(
    loop: Callable[..., Any], parts: Sequence[type], generics: Iterable[Callable[..., Any]]
) -> bool:
    """Whether a loop surely makes arrays, if no branch of it is left out for a ``None``.

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
    """Whether a function has ``np.empty`` or the like in it."""
    if MAKERS.isdisjoint(function.__code__.co_names):
        return False
    of_numpy = False
    for step in dis.get_instructions(function):
        if of_numpy and step.argval in MAKERS:
            return True
        of_numpy = step.opname == "LOAD_GLOBAL" and function.__globals__.get(step.argval) is np
    return False


# ---- How kernels are compiled: linked into the loops that call them, and optimised there
#
# numba optimises every function for itself, and makes machine code of it, before it is linked into
# its callers, which are optimised whole again: most of the time of a compilation. No kernel is ever
# called from outside of a loop.


class _NoCode:
    """Stands for a code generator that has no machine code of a function."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Leave it to the loop's own code, which has the same name for it."""


class InlinedLibrary(JITCodeLibrary):
    """Code that is only ever linked into other code."""

    @property
    def codegen(self) -> Any:
        """What would have the machine code."""
        return _NoCode

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class KernelCompiler(CompilerBase):
    """numba's compiler, for kernels."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of any function."""
        codegen = self.state.targetctx.codegen()
        self.state.library = InlinedLibrary(codegen, "kernel")  # type: ignore[no-untyped-call]
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]  # type: ignore[no-untyped-call]


def set_environments(loop: Any) -> None:
    """Tell a loop's machine code where the environments of its kernels are.

    Parameters
    ----------
    loop : CompileResult
        Just compiled.
    """
    codegen = loop.target_context.codegen()
    for environment in loop._find_referenced_environments():
        codegen.set_env(environment.env_name, environment)


# ---- How a loop is handed the generator that it draws from: by the address that NumPy lends
#
# numba has ctypes find each of a generator's functions, which takes 5 µs at every call of a loop, and
# takes a reference to the generator, which a loop that counts no references never gives back.


ADDRESS, CHARACTERS = ir.IntType(64), ir.IntType(8).as_pointer()
FIELDS = "state_address", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double"
"""The beginning of NumPy's ``bitgen_t``, in numba's names."""


def _lent(typ: Any, generator: Any, c: Any) -> NativeValue:
    """Return a generator as compiled code sees it; the caller holds it meanwhile."""
    builder, api = c.builder, c.pyapi
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    lent = cgutils.create_struct_proxy(typ)(c.context, builder)
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))(c.context, builder)
    with ExitStack() as stack:
        source = api.object_getattr_string(generator, "bit_generator")
        with cgutils.early_exit_if_null(builder, stack, source):
            pass
        capsule = api.object_getattr_string(source, "capsule")
        api.decref(source)
        with cgutils.early_exit_if_null(builder, stack, capsule):
            pass
        kind = ir.FunctionType(CHARACTERS, [api.pyobj, CHARACTERS])
        opened = cgutils.get_or_insert_function(builder.module, kind, "PyCapsule_GetPointer")
        name = c.context.insert_const_string(builder.module, "BitGenerator")
        address = builder.call(opened, [capsule, name])
        api.decref(capsule)
        with cgutils.early_exit_if_null(builder, stack, address):
            pass
        words = builder.bitcast(address, ADDRESS.as_pointer())
        for i, field in enumerate(FIELDS):
            setattr(bits, field, builder.load(builder.gep(words, [ADDRESS(i)])))
        bits.state = bits.state_address
        bits.parent = source
        lent.bit_generator = bits._getvalue()
        lent.parent = generator
        lent.meminfo = cgutils.voidptr_t(None)
        builder.store(cgutils.false_bit, failed)
    return NativeValue(lent._getvalue(), is_error=builder.load(failed))  # type: ignore[no-untyped-call]


class LoopCompiler(Compiler):
    """numba's compiler, for loops that are lent their generators; others' code is left as it is."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a loop."""
        import numba.core.boxing  # noqa: F401  has numba's own way known, to be put back

        known = _unboxers.functions
        before = known[types.NumPyRandomGeneratorType]
        known[types.NumPyRandomGeneratorType] = _lent
        try:
            return super().compile_extra(func)  # type: ignore[no-untyped-call]
        finally:
            known[types.NumPyRandomGeneratorType] = before
