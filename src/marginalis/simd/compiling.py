"""How kernels and the functions that they call are compiled: by Numba, without the work that they do not need.

The first call on a machine waits for the compiler, so that its time counts. By default Numba compiles each function of
a kernel on its own, as if others were to call it from Python: it optimizes it, translates it to machine code, and does
both again where the function becomes a part of its caller. Here a function that only kernels call is translated to
LLVM's language and nothing else; LLVM optimizes a kernel once, when all its parts are known.

Numba's own documented interfaces have no place for this, so that some of its inner classes are extended here. They are
the same in all versions that ``pyproject.toml`` allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.runtime import rtsys
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

# Numba's passes, without those for closures, array expressions, parallel loops, and literal arguments.
_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    untyped_passes.DeadBranchPrune,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class _PartLibrary(JITCodeLibrary):
    """The code of a function that only kernels call, which is never turned into machine code on its own."""

    @property
    def codegen(self) -> Any:
        return _NoEnvironment(self._codegen)

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def add_linking_library(self, library: Any) -> None:
        if library is not rtsys.library:  # Nothing is allocated.
            super().add_linking_library(library)

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # There is no machine code.


class _NoEnvironment:
    """Numba's code generator, which does not look for the Python environment of a function without machine code."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, env_name: str, env: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel, which is optimized when all its parts have been linked."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def _optimize_final_module(self) -> None:
        # Numba runs a quick pass before this one, to find references to Python objects that can be dropped.
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Compiler(CompilerBase):
    """Numba's compiler with fewer passes and a library of its own kind."""

    library: type[JITCodeLibrary]

    def define_pipelines(self) -> list[PassManager]:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        passes = PassManager("kernels")
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class PartCompiler(_Compiler):
    """Compiler of functions that only kernels call."""

    library = _PartLibrary


class KernelCompiler(_Compiler):
    """Compiler of kernels that allocate nothing and consist of loops over numbers."""

    library = _KernelLibrary


def intrinsic(definition: Callable) -> Callable:
    """Return a function for kernels, as Numba's decorator of this name does, which looks for new functions less often.

    The definition receives the typing context and the types of the arguments, and returns the signature and a function
    that emits LLVM's instructions.
    """
    emitters: dict[Any, Callable] = {}

    def function(*args: Any) -> Any:
        raise NotImplementedError(f"{definition.__name__} is for compiled functions")

    class Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            signature, emit = definition(self.context, *args, **kws)
            emitters[signature.args] = emit
            return signature

    infer_global(function, types.Function(Template))

    @lower_builtin(function, types.VarArg(types.Any))
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emitters[sig.args](context, builder, sig, args)

    function.__name__, function.__doc__ = definition.__name__, definition.__doc__
    return function
