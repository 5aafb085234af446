"""How kernels are compiled: linked into the loops that call them, and optimised there.

numba optimises every function for itself, and makes machine code of it, before it is linked into
its callers, which are optimised whole again: most of the time of a compilation. No kernel is ever
called from outside of a loop.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder


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
