"""Arrays of the emulated device, and the functions for them: NumPy's, with CuPy's arithmetic.

CuPy compiles its kernels with ``-ftz=true``: single precision takes subnormal numbers for zero and
gives zero for them, in arithmetic, in comparisons and minima, and where it is converted to double
precision or from it. Copies keep all bits. So do these, else tests would not see what a GPU loses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SINGLE = np.dtype(np.float32)
NEW = frozenset({"arange", "array", "ascontiguousarray", "empty", "full", "ones", "zeros"})


class DeviceArray(np.ndarray[Any, Any]):
    """An array of the emulated device."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        plain = [_flushed(_plain(value)) for value in inputs]
        results = tuple(map(_plain, out))
        if results:
            options["out"] = results
        found = getattr(ufunc, method)(*plain, **options)
        for result in results:
            np.copyto(result, _flushed(result), where=options.get("where", True))
        if out:
            return out if len(out) > 1 else out[0]
        return tuple(map(_owned, found)) if isinstance(found, tuple) else _owned(found)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto:
            target, source, *rest = args
            args = (target, _converted(source, target.dtype), *rest)
        return super().__array_function__(function, types, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _converted(value, self.dtype))

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        found = _converted(self, np.dtype(dtype))
        return np.ndarray.astype(found, dtype, *args, **kwargs)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, DeviceArray) else value


def _owned(value: Any) -> Any:
    """The result of a function, with subnormal numbers of single precision flushed to zero."""
    value = _flushed(value)
    return value.view(DeviceArray) if isinstance(value, np.ndarray) else value


def _flushed(value: Any) -> Any:
    if getattr(value, "dtype", None) != SINGLE:
        return value
    subnormal = np.abs(value) < np.finfo(SINGLE).tiny
    return np.where(subnormal, np.copysign(SINGLE.type(0), value), value)[()]


def _converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as they are in another dtype, still in their own if that is not single precision."""
    given = getattr(value, "dtype", dtype)
    if given == dtype or "f" not in given.kind + dtype.kind:
        return value
    with np.errstate(all="ignore"):
        found = _flushed(_plain(value) if dtype != SINGLE else _plain(value).astype(dtype))
    return found.view(DeviceArray) if isinstance(value, DeviceArray) else found


class ArrayModule:
    """NumPy's functions; the memory of new arrays is asked for by their bytes."""

    ndarray = DeviceArray

    def __init__(self, take: Callable[[int], None]) -> None:
        self._take = take

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if name not in NEW:
            return function

        def create(*args: Any, **kwargs: Any) -> DeviceArray:
            array = np.array(function(*args, **kwargs), copy=None)
            self._take(array.nbytes)
            return array.view(DeviceArray)

        return create
