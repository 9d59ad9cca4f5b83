"""Where the arrays of whole tiles come from: NumPy, or for a while somewhere else.

Who computes on a GPU wants tiles read into memory that the GPU copies from by itself, and the same
memory again for the next tile: to get new memory for a large array takes as long as to fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

Allocate = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
"""From a shape and a dtype an array, C-contiguous, whatever it holds."""

_allocate: ContextVar[Allocate] = ContextVar("orograph_allocate", default=np.empty)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A C-contiguous array, whatever it holds."""
    return _allocate.get()(shape, dtype)


@contextmanager
def arrays_from(allocate: Allocate) -> Iterator[None]:
    """Let `empty` get arrays from ``allocate`` in this context."""
    token = _allocate.set(allocate)
    try:
        yield
    finally:
        _allocate.reset(token)
