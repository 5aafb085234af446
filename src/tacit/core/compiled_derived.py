"""``derived`` taught to numba: SFC64 on the stack, behind the type of numpy's generators.

numba's distributions ask a generator's record for the address of a state and of three functions.
Here the state lies on the stack of the kernel, and the functions are written out for LLVM, so that
they can be inlined.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

from tacit.core.seeds import STEPS, derived

WORD, HALF = ir.IntType(64), ir.IntType(32)
STATE = ir.ArrayType(WORD, 6)
"""The words a, b, c and the counter; whether half a word is left, and that half."""


@type_callable(derived)
def _type_derived(context: Any) -> Any:
    def typer(first: Any, second: Any, third: Any) -> Any:
        if all(isinstance(number, types.Integer) for number in (first, second, third)):
            return types.npy_rng
        return None

    return typer


@lower_builtin(derived, types.Integer, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_derived(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    state = cgutils.alloca_once(builder, STATE)
    seeds = [
        context.cast(builder, number, kind, types.uint64)
        for number, kind in zip(arguments, signature.args, strict=True)
    ]
    for i, word in enumerate([*seeds, WORD(1), WORD(0), WORD(0)]):
        builder.store(word, _at(builder, state, i))
    address = builder.ptrtoint(state, WORD)
    module = builder.module
    with cgutils.for_range(builder, WORD(STEPS)):
        builder.call(_next_word(module), [address])
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    found = bits(context, builder)
    found.state_address = found.state = address
    found.fnptr_next_uint64 = builder.ptrtoint(_next_word(module), WORD)
    found.fnptr_next_uint32 = builder.ptrtoint(_next_half(module), WORD)
    found.fnptr_next_double = builder.ptrtoint(_next_double(module), WORD)
    generator = cgutils.create_struct_proxy(types.npy_rng)(context, builder)
    generator.bit_generator = found._getvalue()
    return generator._getvalue()


def _at(builder: Any, state: Any, i: int) -> Any:
    """Return the place of a word of the state."""
    return builder.gep(state, [HALF(0), HALF(i)])


def _function(module: Any, name: str, result: Any) -> tuple[Any, Any, Any]:
    """Return a function of the state's address: itself, and, if it is new, how to fill it."""
    name = f"tacit_derived_{name}"
    if name in module.globals:
        return module.globals[name], None, None
    function = ir.Function(module, ir.FunctionType(result, [WORD]), name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    return function, builder, builder.inttoptr(function.args[0], STATE.as_pointer())


def _next_word(module: Any) -> Any:
    """Return the function that gives the next 64 bits."""
    function, builder, state = _function(module, "word", WORD)
    if builder is not None:
        a, b, c, counter = (builder.load(_at(builder, state, i)) for i in range(4))
        drawn = builder.add(builder.add(a, b), counter)
        turned = builder.or_(builder.shl(c, WORD(24)), builder.lshr(c, WORD(40)))
        following = (
            builder.xor(b, builder.lshr(b, WORD(11))),
            builder.add(c, builder.shl(c, WORD(3))),
            builder.add(turned, drawn),
            builder.add(counter, WORD(1)),
        )
        for i, word in enumerate(following):
            builder.store(word, _at(builder, state, i))
        builder.ret(drawn)
    return function


def _next_half(module: Any) -> Any:
    """Return the function that gives the next 32 bits: the low ones of 64 first."""
    function, builder, state = _function(module, "half", HALF)
    if builder is not None:
        left, half = _at(builder, state, 4), _at(builder, state, 5)
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(left), WORD(0))):
            builder.store(WORD(0), left)
            builder.ret(builder.trunc(builder.load(half), HALF))
        drawn = builder.call(_next_word(module), [function.args[0]])
        builder.store(WORD(1), left)
        builder.store(builder.lshr(drawn, WORD(32)), half)
        builder.ret(builder.trunc(drawn, HALF))
    return function


def _next_double(module: Any) -> Any:
    """Return the function that gives the next number in [0, 1)."""
    function, builder, _ = _function(module, "double", ir.DoubleType())
    if builder is not None:
        drawn = builder.call(_next_word(module), [function.args[0]])
        whole = builder.uitofp(builder.lshr(drawn, WORD(11)), ir.DoubleType())
        builder.ret(builder.fmul(whole, ir.DoubleType()(2.0**-53)))
    return function
