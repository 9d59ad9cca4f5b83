"""The checksum crc32c of bytes, computed while other threads of Python run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import google_crc32c
import numpy as np

SMALL = 2**16
"""Size in bytes below which a checksum takes less time than to let another thread run."""


def crc32c(content: Any, before: int = 0) -> int:
    """Return the crc32c of contiguous bytes or an array; ``before`` is that of what precedes them.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    >>> crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")
    True
    """
    extend = _extend() if memoryview(content).nbytes >= SMALL else None
    if extend is None:
        return int(google_crc32c.extend(before, content))
    flat = np.frombuffer(content, np.uint8)
    # ctypes calls a function of a CDLL without the GIL.
    return extend(before, flat.ctypes.data, flat.size)


@cache
def _extend() -> Callable[[int, int, int], int] | None:
    """Return the function of the library below google_crc32c, or None where it is not found.

    google_crc32c itself keeps all threads waiting while it reads an array: several threads that
    read or write tiles of a GPU spent more time in that than in anything else.
    """
    try:
        from google_crc32c import _crc32c

        extend = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):  # such as its version in Python
        return None
    extend.restype, extend.argtypes = (
        ctypes.c_uint32,
        (*(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t),),
    )
    return extend
