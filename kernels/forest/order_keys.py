"""Order-preserving keys: values of any real dtype as uint64 in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Keys

Values = npt.NDArray[Any]

_TOP_BIT = np.uint64(1 << 63)


def order_keys(values: Values) -> Keys:
    """Return uint64 keys of the values: ``key(a) < key(b)`` if and only if ``a < b``.

    -0.0 and 0.0 have the same key. The key of NaN is undefined.

    Examples
    --------
    >>> keys = order_keys(np.array([-2.5, -0.0, 0.0, 1.0]))
    >>> bool(keys[0] < keys[1] == keys[2] < keys[3])
    True
    """
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64) ^ _TOP_BIT
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)
    return np.where(bits & _TOP_BIT, ~bits, bits | _TOP_BIT)


def key_values(keys: Keys, dtype: npt.DTypeLike) -> npt.NDArray[np.float64]:
    """Return the values, as float64, of the keys that ``order_keys`` gives for ``dtype``."""
    return decode_keys(keys, dtype).astype(np.float64)


def decode_keys(keys: Keys, dtype: npt.DTypeLike) -> Values:
    """Return the values of ``dtype`` that have these keys, exactly; 0.0 for that of -0.0."""
    dtype = np.dtype(dtype)
    if dtype.kind == "u":
        return keys.astype(dtype)
    if dtype.kind == "i":
        return (keys ^ _TOP_BIT).view(np.int64).astype(dtype)
    values = np.where(keys & _TOP_BIT, keys & ~_TOP_BIT, ~keys).view(np.float64)
    return values.astype(dtype)
