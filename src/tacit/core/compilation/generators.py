"""How a loop is handed the generator that it draws from: by the address that NumPy lends.

numba has ctypes find each of a generator's functions, which takes 5 µs at every call of a loop, and
takes a reference to the generator, which a loop that counts no references never gives back.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler import Compiler
from numba.core.pythonapi import NativeValue, _unboxers

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
