"""Implementations for numba of ``derive_generator``, local generators and borrowed workspaces.

``derive_generator`` is SFC64 on the stack, with the type of numpy's generators. numba's distributions read
the addresses of a state and of three functions from a generator's record. Here the state is on the stack of
the kernel, and the functions are generated in LLVM, so that they can be inlined. The local copy of
numpy's PCG64 works in the same way, while numba calls numpy's functions by address, with the state in memory.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import make_array, populate_array

from tacit.core.arrays import borrow_array, release_array
from tacit.core.seeds import STEPS, borrow_generator, derive_generator, write_back_generator

WORD, HALF = ir.IntType(64), ir.IntType(32)
STATE = ir.ArrayType(WORD, 6)
"""The words a, b, c and the counter; a flag of a buffered half word, and that half."""


@type_callable(derive_generator)
def _type_derive_generator(context: Any) -> Any:
    """Return the function by which numba types ``derive_generator``: three integers give a generator, others
    are refused.
    """

    def typer(first: Any, second: Any, third: Any) -> Any:
        """Return numba's type of generators, or None if an argument is not an integer."""
        if all(isinstance(number, types.Integer) for number in (first, second, third)):
            return types.npy_rng
        return None

    return typer


@lower_builtin(derive_generator, types.Integer, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_derive_generator(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit code that puts a new generator's state on the stack, seeded by three integers; return the
    generator.
    """
    state = cgutils.alloca_once(builder, STATE)
    seeds = [
        context.cast(builder, number, kind, types.uint64)
        for number, kind in zip(arguments, signature.args, strict=True)
    ]
    for i, word in enumerate([*seeds, WORD(1), WORD(0), WORD(0)]):
        builder.store(word, _word_pointer(builder, state, i))
    address = builder.ptrtoint(state, WORD)
    module = builder.module
    with cgutils.for_range(builder, WORD(STEPS)):
        builder.call(_next_word(module), [address])
    return _make_generator(context, builder, address, _next_word, _next_half)


def _make_generator(context: Any, builder: Any, address: Any, word: Any, half: Any) -> Any:
    """Return numba's record of a generator whose state is at ``address``.

    ``word`` and ``half`` return the LLVM functions for its next 64 and 32 bits in a module.
    """
    module = builder.module
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    bit_generator = bits(context, builder)
    bit_generator.state_address = bit_generator.state = address
    bit_generator.fnptr_next_uint64 = builder.ptrtoint(word(module), WORD)
    bit_generator.fnptr_next_uint32 = builder.ptrtoint(half(module), WORD)
    bit_generator.fnptr_next_double = builder.ptrtoint(_next_double(module, word(module)), WORD)
    generator = cgutils.create_struct_proxy(types.npy_rng)(context, builder)
    generator.bit_generator = bit_generator._getvalue()
    return generator._getvalue()


def _word_pointer(builder: Any, state: Any, i: int) -> Any:
    """Return an LLVM pointer to word ``i`` of the state."""
    return builder.gep(state, [HALF(0), HALF(i)])


def _function(module: Any, name: str, result: Any, state: Any = STATE) -> tuple[Any, Any, Any]:
    """Return the LLVM function ``name``, which takes the state's address, a builder of its body, and a
    pointer to the state.

    Builder and pointer are None if the module has the function already; else the caller must build the body.
    """
    name = f"tacit_{name}"
    if name in module.globals:
        return module.globals[name], None, None
    function = ir.Function(module, ir.FunctionType(result, [WORD]), name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    return function, builder, builder.inttoptr(function.args[0], state.as_pointer())


def _next_word(module: Any) -> Any:
    """Return the LLVM function for the next 64 bits of SFC64; define it in the module if it is new."""
    function, builder, state = _function(module, "derived_word", WORD)
    if builder is not None:
        a, b, c, counter = (builder.load(_word_pointer(builder, state, i)) for i in range(4))
        output = builder.add(builder.add(a, b), counter)
        rotated = builder.or_(builder.shl(c, WORD(24)), builder.lshr(c, WORD(40)))
        following = (
            builder.xor(b, builder.lshr(b, WORD(11))),
            builder.add(c, builder.shl(c, WORD(3))),
            builder.add(rotated, output),
            builder.add(counter, WORD(1)),
        )
        for i, word in enumerate(following):
            builder.store(word, _word_pointer(builder, state, i))
        builder.ret(output)
    return function


def _next_half(module: Any) -> Any:
    """Return the LLVM function for the next 32 bits of SFC64: of each word, the low half first."""
    return _half_function(module, "derived_half", _next_word(module), STATE, 4)


def _half_function(module: Any, name: str, word: Any, kind: Any, place: int) -> Any:
    """Return an LLVM function for the next 32 bits; it buffers the other half of each word in the state.

    The state has the flag and the buffered half from index ``place`` on; ``word`` is the function for 64
    bits.
    """
    function, builder, state = _function(module, name, HALF, kind)
    if builder is not None:
        has_half, half = _word_pointer(builder, state, place), _word_pointer(builder, state, place + 1)
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(has_half), WORD(0))):
            builder.store(WORD(0), has_half)
            builder.ret(builder.trunc(builder.load(half), HALF))
        full_word = builder.call(word, [function.args[0]])
        builder.store(WORD(1), has_half)
        builder.store(builder.lshr(full_word, WORD(32)), half)
        builder.ret(builder.trunc(full_word, HALF))
    return function


def _next_double(module: Any, word: Any) -> Any:
    """Return an LLVM function for the next number in [0, 1), from ``word``, the function for 64 bits."""
    function, builder, _ = _function(module, f"{word.name}_double", ir.DoubleType())
    if builder is not None:
        full_word = builder.call(word, [function.args[0]])
        whole = builder.uitofp(builder.lshr(full_word, WORD(11)), ir.DoubleType())
        builder.ret(builder.fmul(whole, ir.DoubleType()(2.0**-53)))
    return function


# ---- PCG64 with its state on the stack of a loop, which LLVM moves into registers

LONG = ir.IntType(128)
PCG = ir.LiteralStructType([LONG, LONG, WORD, WORD])
"""State and increment; a flag of a buffered half word, and that half."""
MULTIPLIER = LONG(2549297995355413924 << 64 | 4865540595714422341)
LOW, HIGH = (1, 0) if sys.platform == "win32" else (0, 1)
"""Order of the words of numpy's 128-bit numbers; on Windows, numpy has a structure for them."""


@type_callable(borrow_generator)
def _type_borrow_generator(context: Any) -> Any:
    """Return the function by which numba types ``borrow_generator``: a generator gives a generator, others
    are refused.
    """
    return lambda rng: types.npy_rng if rng == types.npy_rng else None


@type_callable(write_back_generator)
def _type_write_back_generator(context: Any) -> Any:
    """Return the function by which numba types ``write_back_generator``: two generators give None."""
    return lambda own, rng: types.none


@lower_builtin(borrow_generator, types.npy_rng)  # type: ignore[untyped-decorator]
def _lower_borrow_generator(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit code that copies a PCG64's state to the stack; return a generator of the copy."""
    words, has_half, half = _numpy_pointers(context, builder, arguments[0])
    state = cgutils.alloca_once(builder, PCG)
    for i in range(2):
        low, high = (builder.zext(builder.load(words[2 * i + part]), LONG) for part in (LOW, HIGH))
        builder.store(builder.or_(low, builder.shl(high, LONG(64))), _word_pointer(builder, state, i))
    builder.store(builder.zext(builder.load(has_half), WORD), _word_pointer(builder, state, 2))
    builder.store(builder.zext(builder.load(half), WORD), _word_pointer(builder, state, 3))
    return _make_generator(context, builder, builder.ptrtoint(state, WORD), _next_of_pcg, _half_of_pcg)


@lower_builtin(write_back_generator, types.npy_rng, types.npy_rng)  # type: ignore[untyped-decorator]
def _lower_write_back_generator(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit code that writes the state of a local copy back to its generator; return numba's None."""
    local, rng = arguments
    words, has_half, half = _numpy_pointers(context, builder, rng)
    state = builder.inttoptr(_state_address(context, builder, local), PCG.as_pointer())
    long = builder.load(_word_pointer(builder, state, 0))
    builder.store(builder.trunc(long, WORD), words[LOW])
    builder.store(builder.trunc(builder.lshr(long, LONG(64)), WORD), words[HIGH])
    builder.store(builder.trunc(builder.load(_word_pointer(builder, state, 2)), HALF), has_half)
    builder.store(builder.trunc(builder.load(_word_pointer(builder, state, 3)), HALF), half)
    return context.get_dummy_value()


def _state_address(context: Any, builder: Any, generator: Any) -> Any:
    """Return the address of the state in numba's record of a generator."""
    record = cgutils.create_struct_proxy(types.npy_rng)(context, builder, value=generator)
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    return bits(context, builder, value=record.bit_generator).state


def _numpy_pointers(context: Any, builder: Any, generator: Any) -> tuple[list[Any], Any, Any]:
    """Return pointers into numpy's state of a PCG64: to its four words, to the flag and to the buffered half
    word.
    """
    # The state is a pointer to the words; behind it, flag and half word of 32 bits each.
    address = _state_address(context, builder, generator)
    state_pointer = builder.inttoptr(address, WORD.as_pointer().as_pointer())
    words = builder.load(state_pointer)
    halves = builder.bitcast(builder.gep(state_pointer, [WORD(1)]), HALF.as_pointer())
    has_half, half = (builder.gep(halves, [WORD(i)]) for i in range(2))
    return [builder.gep(words, [WORD(i)]) for i in range(4)], has_half, half


def _next_of_pcg(module: Any) -> Any:
    """Return the LLVM function for the next 64 bits of PCG64: PCG XSL RR 128/64 of O'Neill (2014)."""
    function, builder, state = _function(module, "pcg_word", WORD, PCG)
    if builder is not None:
        step, increment = (builder.load(_word_pointer(builder, state, i)) for i in range(2))
        step = builder.add(builder.mul(step, MULTIPLIER), increment)
        builder.store(step, _word_pointer(builder, state, 0))
        mixed = builder.trunc(builder.xor(builder.lshr(step, LONG(64)), step), WORD)
        turn = builder.trunc(builder.lshr(step, LONG(122)), WORD)
        back = builder.and_(builder.neg(turn), WORD(63))
        builder.ret(builder.or_(builder.lshr(mixed, turn), builder.shl(mixed, back)))
    return function


def _half_of_pcg(module: Any) -> Any:
    """Return the LLVM function for the next 32 bits of PCG64."""
    return _half_function(module, "pcg_half", _next_of_pcg(module), PCG, 2)


# ---- Borrowed workspaces: memory from Python's allocator without reference counting

POINTER = ir.IntType(8).as_pointer()
WORKSPACE = types.Array(types.float64, 2, "C")  # type: ignore[no-untyped-call]


@type_callable(borrow_array)
def _type_borrow_array(context: Any) -> Any:
    """Return the function by which numba types ``borrow_array``: two integers give a 2-dimensional array of
    float64.
    """
    return lambda rows, columns: WORKSPACE


@type_callable(release_array)
def _type_release_array(context: Any) -> Any:
    """Return the function by which numba types ``release_array``: an array gives None."""
    return lambda room: types.none


@lower_builtin(borrow_array, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_borrow_array(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit code that allocates the memory of a workspace of rows and columns; return its array."""
    rows, columns = (
        context.cast(builder, number, kind, types.intp)
        for number, kind in zip(arguments, signature.args, strict=True)
    )
    width = builder.mul(columns, WORD(8))
    allocate = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(POINTER, [WORD]), "PyMem_RawMalloc"
    )
    allocate.return_value.add_attribute("noalias")
    workspace = make_array(WORKSPACE)(context, builder)
    data = builder.bitcast(builder.call(allocate, [builder.mul(rows, width)]), workspace.data.type)
    populate_array(workspace, data, (rows, columns), (width, WORD(8)), WORD(8), None)
    return workspace._getvalue()


@lower_builtin(release_array, types.Array)  # type: ignore[untyped-decorator]
def _lower_release_array(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit code that frees the memory of a workspace; return numba's None."""
    workspace = make_array(WORKSPACE)(context, builder, arguments[0])
    kind = ir.FunctionType(ir.VoidType(), [POINTER])
    free = cgutils.get_or_insert_function(builder.module, kind, "PyMem_RawFree")
    builder.call(free, [builder.bitcast(workspace.data, POINTER)])
    return context.get_dummy_value()
