"""The decorator of all compiled functions: Numba with a disk cache that is never stale.

Numba compiles the functions that a function calls and the constants that it reads into it, but
checks only the function's own file to decide whether its cache is valid. Here the names of the
cached files contain a digest of all Python files of this folder and its subfolders, so a change of
any of them invalidates the cache. A compiled function may therefore use functions and constants
from other files of this folder, but none from outside it.

Numba chooses the cache folder: ``NUMBA_CACHE_DIR``, else ``__pycache__`` beside the source, else
the user's cache folder. If none is writable, functions are compiled in each process.
"""

from __future__ import annotations

import gc
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from numba.core import caching, codegen, compiler
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys

Function = TypeVar("Function", bound=Callable[..., Any])

of_thread = threading.local()  # ``load_with_help``: see second_process.py


@cache
def source_digest() -> str:
    """Return a digest of the names and texts of all Python files here; RuntimeError without any."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise RuntimeError(f"{folder} holds no source, as in a zip file")
    for path in files:
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


class _Files(caching.CompileResultCacheImpl):
    """Numba's cache files of a function, with the digest in their names."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        base = super().get_filename_base(fullname, abiflags)
        self.older = base.replace(f"-{self.locator.get_disambiguator()}.", "-*.") + ".*"
        return f"{base}.{source_digest()}"


class _Cache(caching.FunctionCache):
    """Cache of one function, which deletes files of older digests.

    It loads machine code without what Numba needs to compile, whose import takes a second.
    """

    _impl_class = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # symbols by which machine code reaches arrays
        with self._guard_against_spurious_io_errors():
            load = partial(self._load_overload, sig, target_context)
            load_with_help = getattr(of_thread, "load_with_help", None)
            return load_with_help(self._py_func, load) if load_with_help else load()

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        for path in Path(self.cache_path).glob(self._impl.older):
            if source_digest() not in path.name:
                with suppress(OSError):
                    path.unlink()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from looking for cycles, which takes a tenth of the time of compiling."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Flags(compiler.Flags):
    """Numba's flags, which are compared at each call in a function and listed whole for that."""

    __slots__ = ()
    _hash = hash(tuple(sorted(compiler.Flags.options)))  # as Numba's: the names alone

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        alike = isinstance(other, Flags) and self._values == other._values
        return alike or super().__eq__(other) is True


class _Draft(codegen.JITCodeLibrary):
    """Code of a function that compiled functions call: linked into theirs, and run nowhere else.

    So it is optimised as part of theirs alone, and not once more at each function in between.
    """

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Library(codegen.JITCodeLibrary):
    """Code of a function that Python calls, and of all that it calls, directly or not."""

    def finalize(self) -> None:
        libraries: dict[Any, None] = {}
        self._collect(self, libraries)
        self._linking_libraries = list(libraries)
        super().finalize()

    def _collect(self, library: Any, found: dict[Any, None]) -> None:
        for callee in library._linking_libraries:
            if callee not in found:
                found[callee] = None
                if isinstance(callee, _Draft):
                    self._collect(callee, found)


class _Compiler(compiler.Compiler):
    """Numba's pipeline, ending in machine code."""

    library_class: type[codegen.JITCodeLibrary] = _Library

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, *rest: Any) -> None:
        return_type, flags, local_types = rest
        super().__init__(typing, target, library, args, return_type, Flags(flags), local_types)

    def define_pipelines(self) -> Any:
        state = self.state
        name = state.func_id.func_qualname
        state.library = self.library_class(state.targetctx.codegen(), name)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _DraftCompiler(_Compiler):
    """Numba's pipeline, ending in a draft."""

    library_class = _Draft

    def define_pipelines(self) -> Any:
        self.state.flags.no_compile = True
        return super().define_pipelines()


class _Drafts(CPUDispatcher):
    """The drafts of a function, one for each set of argument types."""

    def add_overload(self, cres: Any) -> None:
        cres = cres._replace(entry_point=object())  # by which lowering finds it
        self.targetctx.insert_user_function(cres.entry_point, cres.fndesc, [cres.library])
        self.overloads[tuple(cres.signature.args)] = cres


class _Dispatcher(CPUDispatcher):
    """Numba's dispatcher, which compiles to machine code what Python calls, and that alone.

    Numba translates a function anew within each function that calls it, directly or not. So what is
    called only from compiled code needs no machine code of its own, no wrapper by which Python
    could call it, and no file in the cache.
    """

    @cached_property
    def _drafts(self) -> Any:
        options = {**self.targetoptions, "no_cpython_wrapper": True}
        return _Drafts(self.py_func, targetoptions=options, pipeline_class=_DraftCompiler)

    def compile(self, sig: Any) -> Any:
        with _no_collection():
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self._drafts.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self._drafts.get_overload(sig)


@overload
def compiled(function: Function) -> Function: ...
@overload
def compiled(
    *, error_model: Literal["python", "numpy"] = ..., inline: bool = ...
) -> Callable[[Function], Function]: ...
def compiled(
    function: Any = None,
    *,
    error_model: Literal["python", "numpy"] = "python",
    inline: bool = False,
) -> Any:
    """Return a function that Numba compiles at its first call for each set of argument types.

    The compiled function releases the GIL.

    Parameters
    ----------
    function : callable
        Omitted in the form ``@compiled(error_model="numpy")``.
    error_model : {"python", "numpy"}
        Whether a division by zero raises, or returns infinity or NaN, which allows vectorisation.
    inline : bool
        Whether it becomes part of every function that calls it.

    Notes
    -----
    Without ``fastmath``, because results must not depend on the compiler, and without ``parallel``,
    because Dask provides the parallelism.
    """

    def decorate(function: Any) -> Any:
        options = {
            "nopython": True,
            "nogil": True,
            "error_model": error_model,
            "no_cfunc_wrapper": True,
            "boundscheck": None,
            "forceinline": inline,
        }
        dispatcher: Any = _Dispatcher(function, targetoptions=options, pipeline_class=_Compiler)
        with suppress(RuntimeError):  # no folder is writable
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate if function is None else decorate(function)
