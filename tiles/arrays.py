"""Types of arrays for annotations, tables of arrays, and allocation of arrays of whole tiles.

A GPU backend reads tiles into page-locked memory, from which the GPU can copy by itself, and reuses
that memory for the next tile: allocating a large array takes as long as filling it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, Self

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


class Columns:
    """Base of dataclasses whose fields are arrays, or again `Columns`, of as many rows."""

    def take(self, which: Selection) -> Self:
        """Return the rows at some indices, or where a mask is True."""
        make: Any = type(self)
        columns = (getattr(self, field.name) for field in fields(make))
        taken: Self = make(
            *(c.take(which) if isinstance(c, Columns) else c[which] for c in columns)
        )
        return taken

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of several tables, one after the other."""
        make: Any = cls
        columns = ([getattr(table, field.name) for table in tables] for field in fields(make))
        joined: Self = make(
            *(
                type(parts[0]).concatenate(parts)
                if isinstance(parts[0], Columns)
                else np.concatenate(parts)
                for parts in columns
            )
        )
        return joined


Allocate = Callable[[tuple[int, ...], Any], Array]
"""Function that returns an uninitialised C-contiguous array of a shape and a dtype."""

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
