"""Allocate the arrays that hold whole tiles, with NumPy or another allocator.

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

Allocate = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
"""Return an uninitialised C-contiguous array of a shape and a dtype."""

_allocate: ContextVar[Allocate] = ContextVar("orograph_allocate", default=np.empty)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
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
