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

from tacit.core.arrays import borrowed, give_back
from tacit.core.seeds import STEPS, derived, handed_back, taken_over

WORD, HALF = ir.IntType(64), ir.IntType(32)
STATE = ir.ArrayType(WORD, 6)
"""The words a, b, c and the counter; a flag of a buffered half word, and that half."""


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
    return _drawing(context, builder, address, _next_word, _next_half)


def _drawing(context: Any, builder: Any, address: Any, word: Any, half: Any) -> Any:
    """Return numba's record of a generator with a state's address and the functions that ``word`` and
    ``half`` generate."""
    module = builder.module
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    found = bits(context, builder)
    found.state_address = found.state = address
    found.fnptr_next_uint64 = builder.ptrtoint(word(module), WORD)
    found.fnptr_next_uint32 = builder.ptrtoint(half(module), WORD)
    found.fnptr_next_double = builder.ptrtoint(_next_double(module, word(module)), WORD)
    generator = cgutils.create_struct_proxy(types.npy_rng)(context, builder)
    generator.bit_generator = found._getvalue()
    return generator._getvalue()


def _at(builder: Any, state: Any, i: int) -> Any:
    """Return a pointer to a word of the state."""
    return builder.gep(state, [HALF(0), HALF(i)])


def _function(module: Any, name: str, result: Any, state: Any = STATE) -> tuple[Any, Any, Any]:
    """Return a function of the state's address, and, if it is new, its builder and a pointer to the state."""
    name = f"tacit_{name}"
    if name in module.globals:
        return module.globals[name], None, None
    function = ir.Function(module, ir.FunctionType(result, [WORD]), name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    return function, builder, builder.inttoptr(function.args[0], state.as_pointer())


def _next_word(module: Any) -> Any:
    """Return the function for the next 64 bits."""
    function, builder, state = _function(module, "derived_word", WORD)
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
    """Return the function for the next 32 bits: of each word, the low half first."""
    return _halving(module, "derived_half", _next_word(module), STATE, 4)


def _halving(module: Any, name: str, word: Any, kind: Any, place: int) -> Any:
    """Return the function for half words; the state has the flag and the buffered half from ``place`` on."""
    function, builder, state = _function(module, name, HALF, kind)
    if builder is not None:
        left, half = _at(builder, state, place), _at(builder, state, place + 1)
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(left), WORD(0))):
            builder.store(WORD(0), left)
            builder.ret(builder.trunc(builder.load(half), HALF))
        drawn = builder.call(word, [function.args[0]])
        builder.store(WORD(1), left)
        builder.store(builder.lshr(drawn, WORD(32)), half)
        builder.ret(builder.trunc(drawn, HALF))
    return function


def _next_double(module: Any, word: Any) -> Any:
    """Return the function for the next number in [0, 1)."""
    function, builder, _ = _function(module, f"{word.name}_double", ir.DoubleType())
    if builder is not None:
        drawn = builder.call(word, [function.args[0]])
        whole = builder.uitofp(builder.lshr(drawn, WORD(11)), ir.DoubleType())
        builder.ret(builder.fmul(whole, ir.DoubleType()(2.0**-53)))
    return function


# ---- PCG64 with its state on the stack of a loop, which LLVM moves into registers

LONG = ir.IntType(128)
PCG = ir.LiteralStructType([LONG, LONG, WORD, WORD])
"""State and increment; a flag of a buffered half word, and that half."""
MULTIPLIER = LONG(2549297995355413924 << 64 | 4865540595714422341)
LOW, HIGH = (1, 0) if sys.platform == "win32" else (0, 1)
"""Order of the words of numpy's 128-bit numbers; on Windows, numpy has a structure for them."""


@type_callable(taken_over)
def _type_taken_over(context: Any) -> Any:
    return lambda rng: types.npy_rng if rng == types.npy_rng else None


@type_callable(handed_back)
def _type_handed_back(context: Any) -> Any:
    return lambda own, rng: types.none


@lower_builtin(taken_over, types.npy_rng)  # type: ignore[untyped-decorator]
def _lower_taken_over(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    words, left, half = _held_by_numpy(context, builder, arguments[0])
    state = cgutils.alloca_once(builder, PCG)
    for i in range(2):
        low, high = (builder.zext(builder.load(words[2 * i + part]), LONG) for part in (LOW, HIGH))
        builder.store(builder.or_(low, builder.shl(high, LONG(64))), _at(builder, state, i))
    builder.store(builder.zext(builder.load(left), WORD), _at(builder, state, 2))
    builder.store(builder.zext(builder.load(half), WORD), _at(builder, state, 3))
    return _drawing(context, builder, builder.ptrtoint(state, WORD), _next_of_pcg, _half_of_pcg)


@lower_builtin(handed_back, types.npy_rng, types.npy_rng)  # type: ignore[untyped-decorator]
def _lower_handed_back(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    own, rng = arguments
    words, left, half = _held_by_numpy(context, builder, rng)
    state = builder.inttoptr(_address_in(context, builder, own), PCG.as_pointer())
    long = builder.load(_at(builder, state, 0))
    builder.store(builder.trunc(long, WORD), words[LOW])
    builder.store(builder.trunc(builder.lshr(long, LONG(64)), WORD), words[HIGH])
    builder.store(builder.trunc(builder.load(_at(builder, state, 2)), HALF), left)
    builder.store(builder.trunc(builder.load(_at(builder, state, 3)), HALF), half)
    return context.get_dummy_value()


def _address_in(context: Any, builder: Any, generator: Any) -> Any:
    """Return the address of a generator's state."""
    lent = cgutils.create_struct_proxy(types.npy_rng)(context, builder, value=generator)
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    return bits(context, builder, value=lent.bit_generator).state


def _held_by_numpy(context: Any, builder: Any, generator: Any) -> tuple[list[Any], Any, Any]:
    """Return pointers to numpy's words of a PCG64's state and increment, its flag and its buffered half."""
    address = _address_in(context, builder, generator)
    held = builder.inttoptr(address, WORD.as_pointer().as_pointer())
    words = builder.load(held)
    halves = builder.bitcast(builder.gep(held, [WORD(1)]), HALF.as_pointer())
    left, half = (builder.gep(halves, [WORD(i)]) for i in range(2))
    return [builder.gep(words, [WORD(i)]) for i in range(4)], left, half


def _next_of_pcg(module: Any) -> Any:
    """Return the function for the next 64 bits: PCG XSL RR 128/64 of O'Neill (2014)."""
    function, builder, state = _function(module, "pcg_word", WORD, PCG)
    if builder is not None:
        step, increment = (builder.load(_at(builder, state, i)) for i in range(2))
        step = builder.add(builder.mul(step, MULTIPLIER), increment)
        builder.store(step, _at(builder, state, 0))
        mixed = builder.trunc(builder.xor(builder.lshr(step, LONG(64)), step), WORD)
        turn = builder.trunc(builder.lshr(step, LONG(122)), WORD)
        back = builder.and_(builder.neg(turn), WORD(63))
        builder.ret(builder.or_(builder.lshr(mixed, turn), builder.shl(mixed, back)))
    return function


def _half_of_pcg(module: Any) -> Any:
    """Return the function for the next 32 bits."""
    return _halving(module, "pcg_half", _next_of_pcg(module), PCG, 2)


# ---- Borrowed workspaces: memory from Python's allocator without reference counting

POINTER = ir.IntType(8).as_pointer()
ROOM = types.Array(types.float64, 2, "C")  # type: ignore[no-untyped-call]


@type_callable(borrowed)
def _type_borrowed(context: Any) -> Any:
    return lambda rows, columns: ROOM


@type_callable(give_back)
def _type_give_back(context: Any) -> Any:
    return lambda room: types.none


@lower_builtin(borrowed, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_borrowed(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    rows, columns = (
        context.cast(builder, number, kind, types.intp)
        for number, kind in zip(arguments, signature.args, strict=True)
    )
    width = builder.mul(columns, WORD(8))
    take = cgutils.get_or_insert_function(builder.module, ir.FunctionType(POINTER, [WORD]), "PyMem_RawMalloc")
    take.return_value.add_attribute("noalias")
    room = make_array(ROOM)(context, builder)
    data = builder.bitcast(builder.call(take, [builder.mul(rows, width)]), room.data.type)
    populate_array(room, data, (rows, columns), (width, WORD(8)), WORD(8), None)
    return room._getvalue()


@lower_builtin(give_back, types.Array)  # type: ignore[untyped-decorator]
def _lower_give_back(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    room = make_array(ROOM)(context, builder, arguments[0])
    kind = ir.FunctionType(ir.VoidType(), [POINTER])
    give = cgutils.get_or_insert_function(builder.module, kind, "PyMem_RawFree")
    builder.call(give, [builder.bitcast(room.data, POINTER)])
    return context.get_dummy_value()
