"""The decorator of all compiled functions: Numba, with a cache on disk that cannot be stale.

Numba compiles into a function whatever it calls and every constant that it reads, and looks at the
function's own file alone to see whether its cache is fresh. Here the names of the cached files hold
a digest of all Python files of this folder and the folders in it: after any change there nothing
older is read. So a compiled function and what it uses may stand in different files of this folder,
but nothing compiled may come from outside it.

Where the cache lies is Numba's choice: ``NUMBA_CACHE_DIR``, else ``__pycache__`` beside the source,
else the user's cache folder. If none can be written, functions are compiled anew in each process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from numba import njit
from numba.core import caching

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def source_digest() -> str:
    """Digest of the names and texts of all Python files here; raises RuntimeError without any."""
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
    """Where and by which names a function is cached: Numba's, with the digest."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        base = super().get_filename_base(fullname, abiflags)
        self.older = base.replace(f"-{self.locator.get_disambiguator()}.", "-*.") + ".*"
        return f"{base}.{source_digest()}"


class _Cache(caching.FunctionCache):
    """Cache of one function."""

    _impl_class = _Files

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        for path in Path(self.cache_path).glob(self._impl.older):
            if source_digest() not in path.name:
                with suppress(OSError):
                    path.unlink()


@overload
def compiled(function: Function) -> Function: ...
@overload
def compiled(*, error_model: Literal["python", "numpy"]) -> Callable[[Function], Function]: ...
def compiled(function: Any = None, *, error_model: Literal["python", "numpy"] = "python") -> Any:
    """Compile a function when it is called, for the types of its arguments; without the GIL.

    Parameters
    ----------
    function : callable
        Left out where the decorator is called: ``@compiled(error_model="numpy")``.
    error_model : {"python", "numpy"}
        Whether a division by zero raises, or gives infinity or NaN and so may take vectors.

    Notes
    -----
    Never ``fastmath`` and never ``parallel``: bits must not depend on the compiler, and Dask
    brings the parallelism.
    """

    def decorate(function: Any) -> Any:
        dispatcher: Any = njit(nogil=True, error_model=error_model)(function)
        with suppress(RuntimeError):  # there is no folder to write to
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate if function is None else decorate(function)
