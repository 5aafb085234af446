"""Where compiled loops are kept: beside the package, if its wheel brought them, and by the user.

A platform wheel brings what numba keeps in its cache, compiled for no processor in particular. Its
index is a pickle: it is read from inside of the installed package only, which is code anyway.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core import caching
from numba.core.runtime.nrt import rtsys

from tacit.core.compilation import notice
from tacit.core.compilation.loops import set_environments

PACKAGE = Path(__file__).parents[2]
SHIPPED = PACKAGE / "compiled"
"""What came with the package; only a platform wheel has it."""
SHIPPED_FOR = {"x86_64": "x86-64-v3"}.get(platform.machine(), "generic")
"""The processor that shipped code is made for, by LLVM's name. Without the vectors of x86-64-v3
(2013) an integrated propensity takes 1.5 times as long."""
NEEDS = {"x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"), "generic": ()}


@cache
def cache_root() -> Path:
    """Return the folder of compiled code.

    ``TACIT_CACHE_DIR`` if set; else the package's own ``__pycache__`` where that is writable;
    else the user's cache folder.
    """
    chosen = os.environ.get("TACIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    beside = PACKAGE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=beside).close()
        return beside / "compiled"
    except OSError:
        import platformdirs

        return Path(platformdirs.user_cache_dir("tacit")) / "compiled"


@cache
def shipped_runs_here() -> bool:
    """Whether this machine's processor has all that shipped code needs."""
    has = llvm.get_host_cpu_features()
    return all(has.get(feature) for feature in NEEDS[SHIPPED_FOR])


def is_noted(key: str, name: str) -> bool:
    """Whether something was noted of a loop, by its key."""
    return any((root / key / name).exists() for root in (SHIPPED, cache_root()))


def note(key: str, name: str) -> None:
    """Note something of a loop, for later processes."""
    folder = cache_root() / key
    with _kept_if_possible():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@contextmanager
def _kept_if_possible() -> Iterator[None]:
    """Go on without keeping what cannot be written: it runs all the same."""
    try:
        yield
    except OSError as error:
        notice.not_kept(cache_root(), error)


class LoopCache(caching.FunctionCache):
    """numba's cache of one loop, safe when several processes write.

    Parameters
    ----------
    function : function
        The loop.
    key : str
        Of all the code that it can reach.
    variant : str
        How it was compiled.
    """

    def __init__(self, function: Callable[..., Any], key: str, variant: str) -> None:
        self._folder = cache_root() / key / variant
        self._impl_class: Any = type("Impl", (_Entries,), {"_locator_classes": [_at(self._folder)]})
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._turns = ExitStack()
        self._shipped = caching.IndexDataCacheFile(  # type: ignore[no-untyped-call]
            str(SHIPPED / key / variant), self._impl.filename_base, variant
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return _index_key(sig, codegen.magic_tuple())

    def close(self) -> None:
        """Let other processes go on that wait for what was compiled."""
        self._turns.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._found(sig, target_context)
        if found is None:
            notice.compiling()
            # One process compiles it, and those that want it meanwhile take what it has made.
            if self._takes_turns(_index_key(sig, target_context.codegen().magic_tuple())):
                found = self._found(sig, target_context)
        return found

    def _takes_turns(self, index_key: Any) -> bool:
        """Wait for a process that compiles the same; whether that could be."""
        import filelock

        name = hashlib.sha256(repr(index_key).encode()).hexdigest()[:20]
        with _kept_if_possible():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._turns.enter_context(filelock.FileLock(self._folder / f"{name}.lock"))
            return True
        return False

    def _found(self, sig: Any, target_context: Any) -> Any:
        # numba would first learn all rules by which code is made. What is made already needs but
        # the functions that it calls.
        rtsys.initialize(target_context)  # type: ignore[no-untyped-call]
        try:
            with self._guard_against_spurious_io_errors():  # type: ignore[no-untyped-call]
                return self._load_shipped(sig, target_context) or self._load_overload(  # type: ignore[no-untyped-call]
                    sig, target_context
                )
        except (AttributeError, ImportError):
            # It was compiled for classes that have moved since.
            return None

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        triple, *_ = target_context.codegen().magic_tuple()
        stored = self._shipped.load(_index_key(sig, (triple, SHIPPED_FOR, "")))
        if stored is None or not shipped_runs_here():
            return None
        return self._impl.rebuild(target_context, stored)

    def save_overload(self, sig: Any, data: Any) -> None:
        set_environments(data)
        # It brings asyncio along, which those who find all compiled do not need.
        import filelock

        with _kept_if_possible():
            self._folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self._folder / "lock"):
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _index_key(sig: Any, target: tuple[str, str, str]) -> Any:
    # The folder stands for the code. Types go by their names, so that a class which is defined
    # anew in every process, at a prompt or in a notebook, finds what was compiled for it.
    return tuple(map(str, sig)), target


class _Entries(caching.CompileResultCacheImpl):
    """Keeps of a loop what calling it takes: machine code, and the name by which to call it.

    numba would keep its intermediate code as well, for other code to be linked with it, which is
    three quarters of the whole; and a listing of its types.
    """

    def reduce(self, cres: Any) -> Any:
        library, description, *rest = super().reduce(cres)  # type: ignore[no-untyped-call]
        name, kind, (machine_code, _) = library
        entry = f'define void @"{description.llvm_cpython_wrapper_name}"() {{ unreachable }}'
        library = name, kind, (machine_code, llvm.parse_assembly(entry).as_bitcode())
        environment, signature, in_object_mode, lifted, _, *others = rest
        return library, description, environment, signature, in_object_mode, lifted, "", *others


def _at(folder: Path) -> type[caching._CacheLocator]:
    class Locator(caching._CacheLocator):
        """Keeps a loop in a folder."""

        def get_cache_path(self) -> str:
            return str(folder)

        def get_source_stamp(self) -> str:
            return folder.name

        def get_disambiguator(self) -> str:
            return ""

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
            return cls()

    return Locator
