"""Machine code of CUDA kernels, kept on disk so that each is compiled once on a machine.

It lies in the cache folder of CuPy (``CUPY_CACHE_DIR``, by default ``~/.cupy/kernel_cache``). The
name of a file contains a digest of all CUDA sources of this folder and of the file compiled, so
that a change of any of them, of the compiler or of its options compiles anew. A folder that cannot
be read or written is done without.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
DIGEST_BYTES = 32


def folder() -> Path:
    """Return the folder in which machine code is kept."""
    return Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()


@cache
def sources_digest() -> bytes:
    """Return a digest of all CUDA files here."""
    files = sorted(path for ending in ("*.cu", "*.cuh") for path in SOURCES.rglob(ending))
    return _digest(
        part
        for path in files
        for part in (path.relative_to(SOURCES).as_posix().encode(), path.read_bytes())
    )


def kept_code(parts: Iterable[str], compile_code: Callable[[], bytes]) -> bytes:
    """Return the machine code that ``parts`` name, from disk or by ``compile_code``.

    Parameters
    ----------
    parts
        The source file and its text, the target, the version of the compiler and its options.
    compile_code
        Compiles the code; called if it is not on disk, or damaged there.
    """
    name = _digest([sources_digest(), *(part.encode() for part in parts)]).hex()
    path = folder() / f"orograph-{name}.cubin"
    with suppress(OSError):
        found = path.read_bytes()
        digest, code = found[:DIGEST_BYTES], found[DIGEST_BYTES:]
        if code and _digest([code]) == digest:
            return code
    code = compile_code()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all: other processes may be reading, or writing the same
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix="orograph-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest([code]) + code)
            Path(partial).replace(path)
        except OSError:
            Path(partial).unlink(missing_ok=True)
            raise
    return code


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        # The length comes first, so that the same bytes cut into other parts have another digest.
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
