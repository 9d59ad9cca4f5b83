"""Compiled functions for compiled callers: lowered, but neither optimised nor translated.

Numba optimises each function and makes machine code of it, and then does so once more within each
function that calls it, directly or not. Here a function has a second dispatcher, a `Callee`, for
compiled callers. It stops at LLVM's intermediate language; LLVM inlines and optimises that once,
with the function that Python calls. This saves a third of the first cost distance, whose kernels
call one another through many levels.

This extends classes that Numba does not document: `CPUDispatcher`, the library of a function's
code, the pass that lowers it, and `CompileResult`, which the cache holds. The tests fail if a
version of Numba changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, compile_result
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """The code of a function and of all that it calls, for the libraries of its callers."""

    def finalize(self) -> None:
        """Link what the function calls, and leave the rest to its callers."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        """Return the name and the code, as `CompileResult` asks for them; no object code."""
        return self.name, self._get_module_for_linking().as_bitcode()

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, bytes]) -> _Library:
        name, code = state
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(code)
        library._finalized = True
        return library


def _enter(context: Any, description: Any, library: _Library) -> object:
    """Let callers find a function's code, by the key that is returned."""
    key = object()
    context.insert_user_function(key, description, [library])
    return key


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Lower a function without making machine code."""

    _name = "callee_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the function of a state."""
        state.flags.no_compile = True
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        key = _enter(state.targetctx, state["cr"].fndesc, state.library)
        state["cr"] = state["cr"]._replace(cfunc=key)
        return True


class _Compiler(CompilerBase):
    """Numba's passes with the other lowering."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_Lowering if each is NativeLowering else each, what) for each, what in passes.passes
        ]
        passes.finalize()
        return [passes]


class Callee(CPUDispatcher):
    """The dispatcher of a function for compiled callers; Python cannot call it."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], cache: FunctionCache
    ) -> None:
        options = {**options, "nopython": True, "no_cpython_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=_Compiler)
        self._cache = cache

    def add_overload(self, result: Any) -> None:
        """Keep what was compiled for a signature, without an entry for Python."""
        self.overloads[tuple(result.signature.args)] = result


def set_environments(result: Any) -> None:
    """Give the machine code of a function the constants of the functions compiled into it.

    What they raise may need them. Numba sets those of functions that have machine code.
    """
    for environment in result._find_referenced_environments():
        result.codegen.set_env(environment.env_name, environment)


def rebuild(context: Any, payload: tuple[Any, ...]) -> Any:
    """Return the result of a `Callee` from what the cache holds."""
    code, description, environment, signature, _, _, annotation, reload_init, environments = payload
    for initialise in reload_init:
        initialise()
    library = _Library._unserialize(context.codegen(), code)
    return compile_result(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=_enter(context, description, library),
        type_annotation=annotation,
        signature=signature,
        objectmode=False,
        lifted=(),
        fndesc=description,
        library=library,
        environment=environment,
        reload_init=reload_init,
        referenced_envs=environments,
    )
