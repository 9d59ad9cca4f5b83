"""The decorator of all compiled functions: ``numba.njit`` with a disk cache that is never stale.

Numba checks only a function's own file to decide whether its cache is valid, though it compiles
functions and constants of other files into it. Here the names of the cached files contain the stamp
of all these (`orograph.kernels.stamps`), and neither times of files nor numbers of lines. A
compiled function may therefore use functions and constants from other files of this folder, but
none from outside it. A comment invalidates nothing, and a cache is valid in any copy of the source
that has the same path.

Numba chooses the cache folder: ``NUMBA_CACHE_DIR``, else ``__pycache__`` beside the source, else
the user's cache folder. If none is writable, functions are compiled in each process. So they are if
a cache cannot be read or written, with one warning; damaged files are replaced.

What compiled functions call is typed and lowered once, and becomes machine code with the function
that Python calls (`orograph.kernels.callees`); what both call is compiled twice. To compile less,
declare a function that has one caller ``@compiled(single_call=True)``.

Two classes of ``numba.core.caching`` are extended, which Numba does not document:
``FunctionCache``, which loads and saves, and ``CompileResultCacheImpl``, which names the files. A
compiled function finds its cache in the attribute ``_cache``, and what callers are told of it in
``get_call_template`` and ``get_overload``. The tests fail if a version of Numba changes that.
"""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numba
from numba import types
from numba.core import caching, event

from orograph.kernels.callees import Callee, rebuild, set_environments
from orograph.kernels.stamps import read_source, stamp

Function = TypeVar("Function", bound=Callable[..., Any])


class _Files(caching.CompileResultCacheImpl):
    """Numba's cache files of a function, with the stamp in their names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        path = inspect.getfile(function)
        self.stamp = stamp(path)
        self.places = read_source(path).places
        super().__init__(function)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        # Numba names files by the first line of a function. Its ordinal in the file takes the
        # line's place, so that comments above it change nothing.
        line = self.locator.get_disambiguator()
        base = super().get_filename_base(fullname, abiflags)
        self.older = base.replace(f"-{line}.", "-*.") + ".*"
        place = self.places.get(int(line), line)  # comments move lines
        return f"{base.replace(f'-{line}.', f'-{place}.')}.{self.stamp}"


class _Cache(caching.FunctionCache):
    """Cache of one function, which deletes damaged files and those of older stamps.

    If it cannot be read or written, the function is compiled without it. It is opened at the first
    call, as to look for folders and to read sources takes time.
    """

    _impl_class = _Files
    _impl: _Files

    _cache_path: str | None = None  # until it is opened

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _opened(self) -> bool:
        """Whether there is a cache; False if no folder is writable or no source can be read."""
        try:
            super().__init__(self._function)
        except (OSError, RuntimeError):
            return False
        self._cache_file._source_stamp = self._impl.stamp  # Numba's own knows one file alone
        return True

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # Numba takes two classes of one name for the same, whatever the order of their fields.
        return *super()._index_key(sig, codegen), _fields(sig)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self._opened:
            return None
        try:
            found = super().load_overload(sig, target_context)
        except OSError as error:
            self._leave_aside(error)
        except Exception:  # whatever damaged bytes make of pickle or LLVM
            for ending in ("nbi", "*.nbc"):
                self._delete(f"{self._impl.filename_base}.{ending}")
        else:
            # of two processes that save at once one may overwrite the other's file
            if found is not None and found.signature.args == tuple(sig):
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        set_environments(data)
        self._save(sig, data)

    def _save(self, sig: Any, data: Any) -> None:
        if not self._opened:
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self._leave_aside(error)
        else:
            self._delete(self._impl.older, kept=self._impl.stamp)

    def _delete(self, pattern: str, kept: str | None = None) -> None:
        """Delete the files of a pattern, except those whose names contain ``kept``."""
        for path in Path(self.cache_path).glob(pattern):
            if kept is None or kept not in path.name:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    self._leave_aside(error)

    def _leave_aside(self, error: OSError) -> None:
        """Do without the cache of this function; the first time in a process, warn."""
        self.disable()
        if _warned:
            return
        _warned.append(self.cache_path)
        warnings.warn(
            f"{self.cache_path}: the cache of compiled kernels is not used: "
            f"{error.strerror or error}; each process compiles them until the folder can be read "
            "and written, or NUMBA_CACHE_DIR names another",
            RuntimeWarning,
            stacklevel=2,
        )


class _CalleeFiles(_Files):
    """Cache files of what the callers of a function need of it."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}.callee"

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        return rebuild(target_context, payload)


class _CalleeCache(_Cache):
    """Cache of what the callers of one function need of it."""

    _impl_class = _CalleeFiles
    save_overload = _Cache._save


def _fields(kind: Any) -> tuple[Any, ...]:
    """Return the fields of all named tuples among types."""
    if isinstance(kind, types.Optional):
        return _fields(kind.type)
    if isinstance(kind, tuple | types.BaseTuple):
        parts: Any = kind
        return getattr(kind, "fields", ()), tuple(map(_fields, parts))
    return ()


_warned: list[str] = []  # the folder that was warned of


class _Collection(event.Listener):
    """Keep Python from looking for cycles while Numba compiles: it takes a tenth of the time."""

    depth = 0  # of functions compiled within one another, under Numba's lock
    enabled = False

    def on_start(self, event: Any) -> None:
        if self.depth == 0:
            self.enabled = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.enabled:
            gc.enable()


event.register("numba:compile", _Collection())


@overload
def compiled(function: Function) -> Function: ...
@overload
def compiled(
    *,
    error_model: Literal["python", "numpy"] = ...,
    inline: bool = ...,
    single_call: bool = ...,
) -> Callable[[Function], Function]: ...
def compiled(
    function: Any = None,
    *,
    error_model: Literal["python", "numpy"] = "python",
    inline: bool = False,
    single_call: bool = False,
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
        Whether its machine code becomes part of every function that calls it.
    single_call : bool
        Whether it is compiled as part of its caller alone. The call must not use ``*``.

    Notes
    -----
    Without ``fastmath``, because results must not depend on the compiler, and without ``parallel``,
    because Dask provides the parallelism.
    """

    def decorate(function: Any) -> Any:
        options: dict[str, Any] = {  # not all of them are in Numba's types
            "nogil": True,
            "error_model": error_model,
            "no_cfunc_wrapper": True,
            "boundscheck": None,
            "forceinline": inline,
            "inline": "always" if single_call else "never",
        }
        dispatcher: Any = numba.njit(**options)(function)
        if dispatcher is not function:  # as with NUMBA_DISABLE_JIT
            dispatcher._cache = _Cache(function)
            if not single_call:
                callee = Callee(function, options, _CalleeCache(function))
                dispatcher.callee = callee
                dispatcher.get_call_template = callee.get_call_template
                dispatcher.get_overload = callee.get_overload
        return dispatcher

    return decorate if function is None else decorate(function)
