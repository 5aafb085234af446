"""numba's compilation of loops with inlined kernels, and the cache of compiled loops."""

from __future__ import annotations

import dis
import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import caching, cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.datamodel.models import PrimitiveModel
from numba.core.imputils import impl_ret_borrowed
from numba.core.pythonapi import NativeValue, _unboxers
from numba.core.runtime.nrt import rtsys
from numba.extending import lower_builtin, lower_getattr_generic, register_model, unbox
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import as_dtype

from tacit.core import dispatch
from tacit.core.code_key import find_functions
from tacit.core.compilation import notice

# ---- Detecting whether a loop creates arrays, before it is compiled: then it must count references
#
# Without this, every loop would first be compiled without counting, and everything up to the first array
# that it creates would be compiled twice: a quarter of the time of ``Thompson``'s first decision.

ARRAY_FUNCTIONS = {"arange", "array", "empty", "empty_like", "full", "ones", "zeros", "zeros_like"}
"""Functions of NumPy with which kernels create arrays."""


def creates_arrays(
    loop: Callable[..., Any], parts: Sequence[type], generics: Iterable[Callable[..., Any]]
) -> bool:
    """True if a loop certainly creates arrays.

    It is assumed that no argument is None, as numba would prune branches.

    Parameters
    ----------
    loop : function
        The loop to compile.
    parts : sequence of type
        The parts whose ``Params`` it is called with, and the parts nested in them.
    generics : functions
        The functions that are resolved by the type of ``Params``.
    """
    functions = list(find_functions(loop, parts, generics))
    # It calls propensity for few parts only, depending on types.
    if dispatch.learned_propensity in functions:
        return False
    kernels = {dispatch.find_kernel(part, generic) for part in parts for generic in generics}
    compiled = kernels.union(dispatch.helpers, [loop])  # numba has its own implementation of others
    return any(function in compiled and _creates_an_array(function) for function in functions)


def _creates_an_array(function: FunctionType) -> bool:
    """True if a function uses ``np.empty`` or another of the :data:`ARRAY_FUNCTIONS`."""
    if ARRAY_FUNCTIONS.isdisjoint(function.__code__.co_names):
        return False
    of_numpy = False
    for step in dis.get_instructions(function):
        if of_numpy and step.argval in ARRAY_FUNCTIONS:
            return True
        of_numpy = step.opname == "LOAD_GLOBAL" and function.__globals__.get(step.argval) is np
    return False


# ---- How kernels are compiled: linked into the loops that call them, and optimised there
#
# numba optimises every function on its own and generates its machine code, before linking it into
# its callers, which are optimised again as a whole: most of the time of a compilation. This is unnecessary
# for kernels, which are only called in loops.


class _NoCode:
    """Replaces the code generator of functions without machine code."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Do nothing: the loop that the kernel is linked into defines the environment under the same name."""


class InlinedLibrary(JITCodeLibrary):
    """Code that is only linked into other code."""

    level: int
    """Level of optimisation, from 0 to 3."""

    @property
    def codegen(self) -> Any:
        """A replacement of numba's code generator that does nothing, as inlined kernels have no machine
        code.
        """
        return _NoCode

    def _optimize_functions(self, module: Any) -> None:
        """Optimise each function of a module on its own; the loop is optimised again as a whole."""
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            passes, builder = self._codegen._function_pass_manager(opt=self.level)
            passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        """Do nothing: the loop that the code is linked into is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        """Mark the code as finished without generating machine code."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class KernelCompiler(CompilerBase):
    """numba's compiler, for kernels."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's default passes, with a library of inlined code."""
        codegen = self.state.targetctx.codegen()
        self.state.library = InlinedLibrary(codegen, "kernel")  # type: ignore[no-untyped-call]
        # With reference counting, a higher level makes no loop faster.
        self.state.library.level = 1 if self.state.flags.nrt else 3
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]  # type: ignore[no-untyped-call]


def set_environments(loop: Any) -> None:
    """Set the addresses of the kernels' environments in the machine code of a newly compiled loop.

    Parameters
    ----------
    loop : CompileResult
        A newly compiled loop.
    """
    codegen = loop.target_context.codegen()
    for environment in loop._find_referenced_environments():
        codegen.set_env(environment.env_name, environment)


# ---- Passing a generator to a loop, by the addresses in NumPy's capsule
#
# numba looks up each of a generator's functions with ctypes, which takes 5 µs at every call of a loop, and
# takes a reference to the generator, which a loop without reference counting never releases.


ADDRESS, CHARACTERS = ir.IntType(64), ir.IntType(8).as_pointer()
FIELDS = "state_address", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double"
"""The first fields of NumPy's ``bitgen_t``, with numba's names."""


def _unbox_generator(typ: Any, generator: Any, c: Any) -> NativeValue:
    """Emit code that reads a generator into numba's record without taking a reference; the caller holds the
    generator.
    """
    builder, api = c.builder, c.pyapi
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    record = cgutils.create_struct_proxy(typ)(c.context, builder)
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
        get_pointer = cgutils.get_or_insert_function(builder.module, kind, "PyCapsule_GetPointer")
        name = c.context.insert_const_string(builder.module, "BitGenerator")
        address = builder.call(get_pointer, [capsule, name])
        api.decref(capsule)
        with cgutils.early_exit_if_null(builder, stack, address):
            pass
        words = builder.bitcast(address, ADDRESS.as_pointer())
        for i, field in enumerate(FIELDS):
            setattr(bits, field, builder.load(builder.gep(words, [ADDRESS(i)])))
        bits.state = bits.state_address
        bits.parent = source
        record.bit_generator = bits._getvalue()
        record.parent = generator
        record.meminfo = cgutils.voidptr_t(None)
        builder.store(cgutils.false_bit, failed)
    return NativeValue(record._getvalue(), is_error=builder.load(failed))  # type: ignore[no-untyped-call]


# ---- Passing arrays to a loop without references, as the caller holds them
#
# numba calls a function for each array, which allocates a record to count references: most of the time of a
# single decision of a policy with many arrays.


def _unbox_array(typ: Any, array: Any, c: Any) -> NativeValue:
    """Emit code that reads NumPy's ``PyArrayObject``; return numba's record of the array."""
    builder = c.builder
    record = c.context.make_array(typ)(c.context, builder)
    # Behind the head of every object: data, number of axes (skipped), lengths, strides; 8 bytes each.
    words, first = builder.bitcast(array, ADDRESS.as_pointer()), object.__basicsize__ // 8
    data, _, dimensions, strides = (builder.load(builder.gep(words, [ADDRESS(first + i)])) for i in range(4))
    lengths, steps = (
        [builder.load(builder.gep(start, [ADDRESS(axis)])) for axis in range(typ.ndim)]
        for start in (builder.inttoptr(dimensions, words.type), builder.inttoptr(strides, words.type))
    )
    itemsize = c.context.get_constant(types.intp, as_dtype(typ.dtype).itemsize)
    address = builder.inttoptr(data, record.data.type)
    populate_array(record, address, lengths, steps, itemsize, None, parent=array)
    return NativeValue(record._getvalue())  # type: ignore[no-untyped-call]


class LoopCompiler(Compiler):
    """numba's compiler for loops, with unboxing of generators and arrays for their arguments only."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a loop, while numba converts arguments by the functions above."""
        import numba.core.boxing  # noqa: F401  registers numba's own unboxing, which is restored below

        registered = _unboxers.functions
        unreferenced = {types.NumPyRandomGeneratorType: _unbox_generator, types.Array: _unbox_array}
        _unboxers.functions = registered | unreferenced
        try:
            return super().compile_extra(func)  # type: ignore[no-untyped-call]
        finally:
            _unboxers.functions = registered


# ---- Passing named tuples by address in a loop that counts references
#
# By value, each call of a kernel would pass some hundred words, count a reference to each array, and be a
# third of the compiled code.


class AddressedTuple(types.NamedTuple):
    """The type of a named tuple that is passed by address."""

    def __init__(self, whole: Any) -> None:
        """Store ``whole``, the type of the named tuple itself; nested named tuples are passed by address,
        too.
        """
        super().__init__(map(address_type, whole.types), whole.instance_class)  # type: ignore[no-untyped-call]
        self.whole = whole


def address_type(kind: Any) -> Any:
    """Return numba's type by which a loop that counts references takes values of type ``kind``.

    It is an address for named tuples, and ``kind`` itself for others.
    """
    return AddressedTuple(kind) if type(kind) is types.NamedTuple else kind


@register_model(AddressedTuple)
class _Address(PrimitiveModel):
    """Data model of an address in compiled code."""

    def __init__(self, manager: Any, kind: AddressedTuple) -> None:
        """Store LLVM's type of the named tuple itself as ``tuple_type``."""
        super().__init__(manager, kind, CHARACTERS)  # type: ignore[no-untyped-call]
        self.tuple_type = manager.lookup(kind.whole).get_value_type()

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Return the address of a named tuple for a function's body; in a loop, the address of a local
        copy.
        """
        if "alwaysinline" in builder.function.attributes:
            return value
        # A loop makes a local copy, which LLVM splits into scalars after inlining the kernels.
        whole = builder.load(builder.bitcast(value, self.tuple_type.as_pointer()))
        return builder.bitcast(cgutils.alloca_once_value(builder, whole), CHARACTERS)


def _member(context: Any, builder: Any, kind: AddressedTuple, address: Any, index: int) -> Any:
    """Return the member of a named tuple at an index: a nested tuple as its address, other values loaded."""
    tuple_type = context.data_model_manager[kind].tuple_type
    offset = ADDRESS(tuple_type.get_element_offset(context.target_data, index))
    place = builder.gep(address, [offset], inbounds=True)
    if isinstance(kind[index], AddressedTuple):
        return place
    member = builder.load(builder.bitcast(place, context.get_value_type(kind[index]).as_pointer()))
    return impl_ret_borrowed(context, builder, kind[index], member)


@lower_getattr_generic(AddressedTuple)  # type: ignore[untyped-decorator]
def _lower_getattr(context: Any, builder: Any, kind: AddressedTuple, address: Any, name: str) -> Any:
    """Emit the code of ``value.name`` for a named tuple passed by address; return the field's value."""
    return _member(context, builder, kind, address, kind.fields.index(name))


@lower_builtin("static_getitem", AddressedTuple, types.IntegerLiteral)  # type: ignore[untyped-decorator]
def _lower_getitem(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the code of ``value[i]``, with constant i, for a named tuple passed by address; return the
    item.
    """
    kind, (address, index) = signature.args[0], arguments
    return _member(context, builder, kind, address, range(kind.count)[index])


@unbox(AddressedTuple)  # type: ignore[untyped-decorator]
def _unbox_addressed(kind: AddressedTuple, value: Any, c: Any) -> NativeValue:
    """Emit code that converts a Python named tuple and stores it on the stack; return its address."""
    native = c.unbox(kind.whole, value)
    address = c.builder.bitcast(cgutils.alloca_once_value(c.builder, native.value), CHARACTERS)
    return NativeValue(address, native.is_error)  # type: ignore[no-untyped-call]


# ---- The cache of compiled loops
#
# A platform wheel includes numba's cache files, compiled for a baseline processor. Their
# index is a pickle: it is only read from inside of the installed package, which is code anyway.


PACKAGE = Path(__file__).parents[2]
SHIPPED = PACKAGE / "compiled"
"""Compiled code of the package; only a platform wheel has it."""
SHIPPED_FOR = {"x86_64": "x86-64-v3"}.get(platform.machine(), "generic")
"""The processor that shipped code is compiled for, by LLVM's name. Without the vectors of x86-64-v3
(2013) an integrated propensity takes 1.5 times as long."""
CPU_FEATURES = {"x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"), "generic": ()}


@cache
def cache_root() -> Path:
    """Return the folder of the cache of compiled code; it need not exist.

    ``TACIT_CACHE_DIR`` if set; else in the user's cache folder, so that nothing is written where the package
    is installed. Its folders are named by code keys, so several checkouts can share it.
    """
    folder = os.environ.get("TACIT_CACHE_DIR")
    if folder:
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tacit")) / "compiled"


@cache
def can_run_shipped() -> bool:
    """True if this machine's processor has all features that the shipped code needs."""
    has = llvm.get_host_cpu_features()
    return all(has.get(feature) for feature in CPU_FEATURES[SHIPPED_FOR])


def has_note(key: str, name: str) -> bool:
    """True if :func:`note` has written the file ``name`` for the loop with this key, in this or another
    process.
    """
    return any((root / key / name).exists() for root in (SHIPPED, cache_root()))


def note(key: str, name: str) -> None:
    """Write an empty file ``name`` for the loop with this key, as a flag for later processes.

    If it cannot be written, a warning is recorded instead of an error.
    """
    folder = cache_root() / key
    with _ignore_write_errors():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@contextmanager
def _ignore_write_errors() -> Iterator[None]:
    """Record a warning if the ``with`` block cannot write to the cache, in place of an error: loops run
    without it.
    """
    try:
        yield
    except OSError as error:
        notice.warn_not_cached(cache_root(), error)


class LoopCache(caching.FunctionCache):
    """numba's cache of one loop, safe when several processes write.

    Parameters
    ----------
    function : function
        The loop.
    key : str
        The loop's code key.
    variant : str
        Name of the compiler options.
    """

    def __init__(self, function: Callable[..., Any], key: str, variant: str) -> None:
        """Locate the loop's cache files, in the user's cache folder and in the installed package."""
        self._folder = cache_root() / key / variant
        self._impl_class: Any = type("Impl", (_Entries,), {"_locator_classes": [_make_locator(self._folder)]})
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._locks = ExitStack()
        self._shipped = caching.IndexDataCacheFile(  # type: ignore[no-untyped-call]
            str(SHIPPED / key / variant), self._impl.filename_base, variant
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Return the loop's key in numba's index: the names of its argument types, and the target."""
        return _index_key(sig, codegen.magic_tuple())

    def close(self) -> None:
        """Release the lock of the loop, so that processes that wait for it continue."""
        self._locks.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled loop for these types from the cache, or None if this process must compile it.

        If another process compiles it, waits for its result. With None, the lock of the loop is held until
        :meth:`close`, and the notice of the compilation is started.
        """
        loaded = self._load_any(sig, target_context)
        if loaded is None:
            notice.start_notice()
            # One process compiles the loop; others wait and load the result.
            if self._wait_for_lock(_index_key(sig, target_context.codegen().magic_tuple())):
                loaded = self._load_any(sig, target_context)
        return loaded

    def _wait_for_lock(self, index_key: Any) -> bool:
        """Take the lock of a loop, after any process that compiles it has released it; it is held until
        :meth:`close`.

        Returns False if the lock cannot be written.
        """
        import filelock

        name = hashlib.sha256(repr(index_key).encode()).hexdigest()[:20]
        with _ignore_write_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._locks.enter_context(filelock.FileLock(self._folder / f"{name}.lock"))
            return True
        return False

    def _load_any(self, sig: Any, target_context: Any) -> Any:
        """Return the loop for these types from the shipped code or the cache, or None if neither has it."""
        # numba would first load all its compilation rules. Compiled code only needs the functions
        # that it calls.
        rtsys.initialize(target_context)  # type: ignore[no-untyped-call]
        try:
            with self._guard_against_spurious_io_errors():  # type: ignore[no-untyped-call]
                return self._load_shipped(sig, target_context) or self._load_overload(  # type: ignore[no-untyped-call]
                    sig, target_context
                )
        except (AttributeError, ImportError):
            # It was compiled for classes that have been moved or renamed since.
            return None

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        """Return the loop for these types from the code in the package; None if it has none, or the processor
        cannot run it.
        """
        triple, *_ = target_context.codegen().magic_tuple()
        stored = self._shipped.load(_index_key(sig, (triple, SHIPPED_FOR, "")))
        if stored is None or not can_run_shipped():
            return None
        return self._impl.rebuild(target_context, stored)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Set the kernels' environments in a newly compiled loop, and write it to the cache.

        If that cannot be written, a warning is recorded instead of an error.
        """
        set_environments(data)
        # filelock imports asyncio, which is not needed if all loops are cached.
        import filelock

        with _ignore_write_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self._folder / "lock"):
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _index_key(sig: Any, target: tuple[str, str, str]) -> Any:
    """Return the key of a loop in numba's index: the names of its argument types, and the target."""
    # The folder identifies the code. Types are identified by name, so that a class that is defined
    # again in every process, at a prompt or in a notebook, finds its compiled code.
    return tuple(map(str, sig)), target


class _Entries(caching.CompileResultCacheImpl):
    """Stores only a loop's machine code and the name of its entry point.

    numba would also store its intermediate code, for linking with other code, which is
    three quarters of the size; and a listing of its types.
    """

    def reduce(self, cres: Any) -> Any:
        """Return the fields of a compiled loop to store: its machine code, with an empty entry point."""
        library, description, *fields = super().reduce(cres)  # type: ignore[no-untyped-call]
        name, kind, (machine_code, _) = library
        entry = f'define void @"{description.llvm_cpython_wrapper_name}"() {{ unreachable }}'
        library = name, kind, (machine_code, llvm.parse_assembly(entry).as_bitcode())
        environment, signature, in_object_mode, lifted, _, *remaining = fields
        return library, description, environment, signature, in_object_mode, lifted, "", *remaining


def _make_locator(folder: Path) -> type[caching._CacheLocator]:
    """Return a locator class for numba's cache that always points to this folder."""

    class Locator(caching._CacheLocator):
        """Locates the cache of a loop in a folder."""

        def get_cache_path(self) -> str:
            """Return the folder's path."""
            return str(folder)

        def get_source_stamp(self) -> str:
            """Return the folder's name, always the same: another version of the code has another folder."""
            return folder.name

        def get_disambiguator(self) -> str:
            """Return "", as each loop has a folder of its own."""
            return ""

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
            """Return a locator of the folder, for any function."""
            return cls()

    return Locator
