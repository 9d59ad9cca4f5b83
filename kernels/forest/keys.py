"""Edge order of a tile: unsigned keys of its heights for weight "max", else float heights.

Keys preserve the order of the values. The key with all bits set stands for nodata and the halo. A
float's key is its bit pattern with the sign bit flipped, or with all bits flipped if it is
negative; -0.0 has the key of 0.0. Keys are uint32, or uint64 for dtypes of 64 bits. Heights (for
the other weights) are float64, infinite where there is no cell. Both arrays have a halo of one cell
and rows of a multiple of 8 cells.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.device import Buffer, Device
from orograph.kernels.forest.weigh import weigh
from orograph.tiles.arrays import Array

FULL = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def pad_keys(bits, limits, has_nodata, keys):
    """Write order-preserving keys inside a halo of nodata (all ones).

    limits : seven numbers of the keys' dtype: the bits to flip in words without and with the sign
        bit, the sign bit, -0.0 (or 0), the least and the greatest key of a valid cell, and the key
        of nodata.
    Returns the number of valid cells, the number of those whose key is also all ones, and the least
    and the greatest valid key.
    """
    h, w = bits.shape
    low, high, sign, minus_zero, least, greatest, nodata = limits
    full = keys[0, 0]
    key_type = keys.dtype.type
    valid = 0
    clash = 0
    bottom = full
    top = key_type(0)
    for y in range(h):
        row = bits[y]
        out = keys[y + 1, 1 : w + 1]
        for x in range(w):
            v = key_type(row[x])
            v = key_type(0) if v == minus_zero else v
            k = key_type(v ^ (high if v >= sign else low))
            ok = (k >= least) & (k <= greatest) & ((k != nodata) | (not has_nodata))
            valid += ok
            clash += ok & (k == full)
            top = max(top, k if ok else key_type(0))
            k = k if ok else full
            bottom = min(bottom, k)
            out[x] = k
    return valid, clash, bottom, top


@compiled
def pad_heights(values, nodata, has_nodata, heights):
    """Copy values as float64 into a halo of inf; return valid cells and the greatest magnitude."""
    h, w = values.shape
    valid = 0
    greatest = 0.0
    for y in range(h):
        row = values[y]
        out = heights[y + 1, 1 : w + 1]
        for x in range(w):
            z = np.float64(row[x])
            ok = (abs(z) < np.inf) & ((row[x] != nodata) | (not has_nodata))
            z = z + 0.0 if ok else np.inf
            valid += ok
            greatest = max(greatest, abs(z) if ok else 0.0)
            out[x] = z
    return valid, greatest


@compiled
def weigh_row(heights, y, w, mode, diagonal, out):
    """Write weights (4, w + 2) of the edges of padded row y by direction; inf for no edge."""
    for d in range(4):
        row = out[d]
        if d % 2 == 1 and not diagonal:
            row[:] = np.inf
            continue
        row[0] = np.inf
        row[w + 1] = np.inf
        first = heights[y, 1 : w + 1]
        if d == 0:
            other = heights[y, 2 : w + 2]
        else:
            other = heights[y + 1, d - 1 : w - 1 + d]
        target = row[1 : w + 1]
        for x in range(w):
            t = weigh(mode, first[x], other[x])
            target[x] = t if t == t else np.inf


@compiled
def order_float(weight):
    """Return the order-preserving key of a float64 that is not NaN; -0.0 has that of 0.0."""
    word = np.float64(weight + 0.0).view(np.uint64)
    top = np.uint64(1) << np.uint64(63)
    return word ^ (FULL if word >= top else top)


@compiled
def decode_row(keys, kind, bias, gap, out):
    """Write the values of keys as float64. kind 0: floats; 1: integers + bias; 2: uint64.

    See `make_keys` for bias and gap.
    """
    if kind == 0 and keys.itemsize == 4:
        sign, full = np.uint32(0x80000000), np.uint32(0xFFFFFFFF)
        for x in range(out.size):
            k = np.uint32(keys[x])
            out[x] = np.uint32(k ^ (sign if k >= sign else full)).view(np.float32)
    elif kind == 0:
        top, ones = np.uint64(1) << np.uint64(63), FULL
        for x in range(out.size):
            j = np.uint64(keys[x])
            out[x] = np.uint64(j ^ (top if j >= top else ones)).view(np.float64)
    elif kind == 1:
        for x in range(out.size):
            i = np.int64(keys[x]) + np.int64(keys[x] >= gap)
            out[x] = np.float64(i - bias)
    else:
        for x in range(out.size):
            out[x] = np.float64(np.uint64(keys[x]) + np.uint64(keys[x] >= gap))


def native_values(values: Array, nodata: float | None) -> tuple[Array, Any]:
    """Return the values in one of ten native dtypes, and nodata in it (None if it cannot occur)."""
    native, mark = _native(values.dtype, nodata)
    values = np.ascontiguousarray(values, native).view()
    values.flags.writeable = False  # arrays from a store may be read-only: compile for one type
    return values, mark


def native_buffer(device: Device, values: Any, nodata: float | None) -> tuple[Buffer, Any]:
    """Return `native_values` of a tile in the memory of a device, in which it may lie already."""
    if isinstance(values, device.array_module.ndarray):
        native, mark = _native(values.dtype, nodata)
        return values.astype(native, copy=False), mark
    values, mark = native_values(values, nodata)
    return device.upload(values), mark


def _native(dtype: np.dtype[Any], nodata: float | None) -> tuple[np.dtype[Any], Any]:
    """Return the native dtype of values, and nodata in it."""
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise TypeError(
            f"values: dtype {dtype} has no order-preserving 64-bit key; cast to an integer,"
            " float32 or float64"
        )
    mark = None
    if nodata is not None and dtype.kind == "f":
        # As in NumPy's comparison, nodata is first rounded to the dtype of the values.
        with np.errstate(over="ignore"):
            mark = dtype.newbyteorder("=").type(nodata)
        mark = mark if np.isfinite(mark) else None
    elif nodata is not None and math.isfinite(nodata) and nodata == int(nodata):
        limits = np.iinfo(dtype)
        mark = dtype.type(int(nodata)) if limits.min <= nodata <= limits.max else None
    native = np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")
    return native, None if mark is None else native.type(mark)


class PaddedKeys(NamedTuple):
    """Padded keys of a tile, and the parameters of `decode_row`."""

    keys: Array
    valid: int
    kind: int
    bias: int
    gap: Any
    greatest: float
    """Greatest magnitude."""


def key_limits(dtype: Any, nodata: Any) -> tuple[Any, ...]:
    """Return the limits of `pad_keys` for a native dtype; ``nodata`` in that dtype, or None."""
    word = np.dtype(f"u{dtype.itemsize}")
    key = np.uint64 if dtype.itemsize == 8 else np.uint32
    full, top = int(np.iinfo(key).max), 1 << (8 * dtype.itemsize - 1)
    low = 0 if dtype.kind == "u" else top
    high = full if dtype.kind == "f" else low
    least, greatest, zero = 0, full, 0
    if dtype.kind == "f":
        zero = top
        least = (full ^ int(dtype.type(-np.inf).view(word))) + 1
        greatest = (int(dtype.type(np.inf).view(word)) ^ top) - 1
    mark = 0
    if nodata is not None:
        mark = int((nodata + dtype.type(0)).view(word))
        mark ^= high if mark >= top else low
    return tuple(key(k) for k in (low, high, top, zero, least, greatest, mark))


def unused_key(used: Array) -> int:
    """Return the least key that does not occur in ``used``, which ascends."""
    if int(used[0]) > 0:
        return 0
    return int(used[np.flatnonzero(np.diff(used) > 1)[0]]) + 1


def make_keys(values: Array, nodata: Any, stride: int) -> PaddedKeys:
    """Return the order-preserving keys of the values inside a halo; all ones stands for nodata."""
    h, w = values.shape
    dtype = values.dtype
    bits = values.view(f"u{dtype.itemsize}")
    key = np.uint64 if dtype.itemsize == 8 else np.uint32
    full, top = int(np.iinfo(key).max), 1 << (8 * dtype.itemsize - 1)
    keys = np.empty((h + 2, stride), key)
    for halo in (keys[0], keys[-1], keys[:, 0], keys[:, w + 1 :]):
        halo[...] = full
    limits = key_limits(dtype, nodata)
    valid, clash, first, last = pad_keys(bits, limits, nodata is not None, keys)
    gap = full
    if clash:
        # A valid value has the key of nodata. Lower all keys above an unused key by one.
        inside = np.ones(values.shape, bool) if nodata is None else values != nodata
        part = keys[1 : h + 1, 1 : w + 1]
        gap = unused_key(np.unique(part[inside]))
        part[inside & (part > gap)] -= key(1)
    kind = 0 if dtype.kind == "f" else 2 if dtype == np.uint64 else 1
    bias = top if dtype.kind == "i" and dtype.itemsize < 8 else -top if dtype.kind == "i" else 0
    # A key of all ones would decode to the least value; one less has the same exponent.
    ends = np.array([first, min(last, full - 1)], key)
    if kind == 0:
        decoded = (ends ^ np.where(ends >= key(top), key(top), key(full))).view(dtype).tolist()
    else:
        decoded = [k + (k == full) - (top if dtype.kind == "i" else 0) for k in ends.tolist()]
    magnitude = max(abs(float(value)) for value in decoded) if valid else 0.0
    return PaddedKeys(keys, int(valid), kind, bias, key(gap), magnitude)
