"""Types of arrays for annotations, and allocation of the arrays that hold whole tiles.

A GPU backend reads tiles into page-locked memory, from which the GPU can copy by itself, and reuses
that memory for the next tile: allocating a large array takes as long as filling it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Selection = Array | slice
"""Elements of an array: their indices, a mask of them, or a slice."""
Keys = npt.NDArray[np.uint64]
"""Numbers that sort as what they stand for, such as heights."""

Allocate = Callable[[tuple[int, ...], Any], Array]
"""Return an uninitialised C-contiguous array of a shape and a dtype."""

_allocate: ContextVar[Allocate] = ContextVar("orograph_allocate", default=np.empty)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an uninitialized C-contiguous array."""
    return _allocate.get()(shape, dtype)


@contextmanager
def use_allocator(allocate: Allocate) -> Iterator[None]:
    """Make `empty` call ``allocate`` within this context."""
    token = _allocate.set(allocate)
    try:
        yield
    finally:
        _allocate.reset(token)
