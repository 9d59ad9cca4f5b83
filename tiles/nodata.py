"""Supported dtypes and nodata values of rasters."""

from __future__ import annotations

import base64
import math
import reprlib
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import InputError, OptionMissingError


def supported_dtype(dtype: npt.DTypeLike, what: str) -> np.dtype[Any]:
    """Return the dtype to which cells of ``dtype`` are converted.

    Parameters
    ----------
    dtype : dtype
        Type of the cells of a source.
    what : str
        Name of the source, for the message.

    Returns
    -------
    dtype
        In native byte order; bool becomes uint8 and float16 becomes float32, both without loss.

    Raises
    ------
    InputError
        For complex, text, object, date and extended precision cells.
    """
    try:
        given = np.dtype(dtype)
    except TypeError:  # what NumPy does not have, such as GDAL's complex integers
        raise _unsupported(dtype, what) from None
    if given.kind == "b":
        return np.dtype(np.uint8)
    if given.kind == "f" and given.itemsize == 2:
        return np.dtype(np.float32)
    if given.kind in "iu" or (given.kind == "f" and given.itemsize in (4, 8)):
        native: np.dtype[Any] = given.newbyteorder("=")
        return native
    raise _unsupported(given, what)


def _unsupported(dtype: object, what: str) -> InputError:
    return InputError(
        f"{what}: dtype {dtype}; cells must be bool, an integer of 8 to 64 bits or a float of "
        "16 to 64 bits: convert with .astype(...) and say what the values mean"
    )


def native_nodata(
    value: SupportsFloat | str | None, dtype: np.dtype[Any], what: str
) -> int | float | None:
    """Convert a nodata value to the dtype of a raster's cells.

    Parameters
    ----------
    value : number or None
        Value from the user or from a file's header.
    dtype : dtype
        Type of the cells.
    what : str
        Name of the source, for the message.

    Returns
    -------
    int, float or None
        An int for integer cells. For float cells, the value rounded to their type, as the cells
        in the file are.

    Raises
    ------
    InputError
        If it is not a number, or ``dtype`` cannot represent it.
    """
    if value is None:
        return None
    number = _number(value, what)
    if dtype.kind == "f":
        if isinstance(number, int) or math.isfinite(number):
            bound = float(np.finfo(dtype).max)
            with np.errstate(over="ignore"):
                try:
                    held = float(dtype.type(number))
                except OverflowError:  # an int beyond float64
                    held = math.inf
            if not math.isfinite(held):
                raise InputError(
                    f"{what}: nodata={value!r} does not fit {dtype} (at most {bound}); "
                    "pass a nodata= that its cells can hold"
                )
            return held
        return float(number)
    info = np.iinfo(dtype)
    if (isinstance(number, float) and not number.is_integer()) or not (
        info.min <= number <= info.max
    ):
        raise InputError(
            f"{what}: nodata={value!r} is no {dtype} (whole numbers {info.min} to {info.max}); "
            "pass a nodata= that its cells can hold, or convert the cells first"
        )
    return int(number)


class Nodata(NamedTuple):
    """Rule by which cells of a raster are nodata, beside NaN and infinity."""

    value: int | float | None = None
    """Value of the nodata cells once they are read; None if there are none."""
    ranges: tuple[tuple[int | float, int | float], ...] = ()
    """Least and greatest stored value that mean nodata, where cells of other values do."""

    @classmethod
    def of(cls, given: Iterable[object], dtype: np.dtype[Any], what: str) -> Nodata:
        """Return the rule for values that a source declares; those that no cell has are left out.

        As GDAL does it, cells of floats are nodata if they differ from a value in its last digits
        only. The first value stands for all; NaN if it is among them.

        Raises
        ------
        InputError
            If a value is not a number.
        """
        values = [held for value in given if (held := _held(value, dtype, what)) is not None]
        if not values:
            return cls()
        value = next((value for value in values if math.isnan(value)), values[0])
        ranges = [_range_of(other, dtype) for other in values if math.isfinite(other)]
        return cls(value, tuple(both for both in ranges if both != (value, value)))

    def unify(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return cells in which all nodata cells have the one value; a copy if any change."""
        for low, high in self.ranges:
            hidden = (cells >= low) & (cells <= high)
            # Cells of the one value itself do not count: without others no copy is made.
            if low <= self.value <= high:  # type: ignore[operator]
                hidden &= cells != self.value
            if hidden.any():
                cells = np.where(hidden, cells.dtype.type(self.value), cells)
        return cells


def _held(value: object, dtype: np.dtype[Any], what: str) -> int | float | None:
    """Return a declared nodata value in the dtype of the cells; None if none of them can have it.

    Arithmetic and casts of xarray keep the attribute of what they began with.
    """
    number = _number(value, what)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            held = math.inf if abs(number) > LARGEST else float(dtype.type(number))
        return None if math.isinf(held) else held
    info = np.iinfo(dtype)
    whole = isinstance(number, int) or number.is_integer()
    return int(number) if whole and info.min <= number <= info.max else None


def _number(value: Any, what: str) -> int | float:
    """Return a nodata value as a number; raise InputError if it is not one."""
    try:
        number = value.item() if hasattr(value, "item") else value
        return number if isinstance(number, int) else float(number)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: nodata={value!r} is not a number; pass one, or leave it out"
        ) from None


def _range_of(value: int | float, dtype: np.dtype[Any]) -> tuple[int | float, int | float]:
    """Return the least and the greatest cell that a finite nodata value stands for."""
    if dtype.kind != "f" or (dtype.itemsize == 8 and abs(value) <= LARGEST_USUAL) or value == 0:
        return value, value
    nodata = dtype.type(value)

    def means_nodata(cell: Any) -> bool:
        if dtype.itemsize == 8:
            return bool(np.float32(cell) == np.float32(nodata))
        # of GDAL, in the arithmetic of float32
        apart, together = abs(cell - nodata), abs(cell + nodata)
        return bool(apart < np.float32(2) * np.finfo(np.float32).eps * together)

    with np.errstate(over="ignore"):
        nearer = _last(nodata, dtype.type(0), means_nodata)
        farther = _last(nodata, np.copysign(np.finfo(dtype).max, nodata), means_nodata)
    return (nearer, farther) if nearer < farther else (farther, nearer)


def _last(start: Any, end: Any, holds: Callable[[Any], bool]) -> float:
    """Return the last float from ``start`` towards ``end`` for which a condition holds.

    It holds from ``start`` up to that one, which is found by doubling a step, then by halving it.
    """
    word = np.dtype(f"i{start.itemsize}")
    sign = -1.0 if start < 0 else 1.0

    def value(bits: int) -> Any:
        return np.copysign(np.array(bits, word).view(start.dtype)[()], sign)

    # Positive floats are in the same order as their bits taken for integers, so the search runs
    # over these, and a step of 1 is to the next float.
    first, last = (int(np.abs(number).view(word)) for number in (start, end))
    size = abs(last - first)
    way = 1 if last > first else -1
    inside, step = 0, 1
    while inside < size and holds(value(first + way * min(inside + step, size))):
        inside = min(inside + step, size)
        step *= 2
    while step > 1:
        step //= 2
        if inside + step <= size and holds(value(first + way * (inside + step))):
            inside += step
    return float(value(first + way * inside))


LARGEST = float(np.finfo(np.float64).max)
LARGEST_USUAL = 1e30
"""Bound above which a nodata value of float64 is a float32 written with fewer digits."""


def fill_masked(
    cells: np.ma.MaskedArray[Any, Any], dtype: np.dtype[Any], nodata: float | None, what: str
) -> tuple[np.ndarray[Any, Any], int | float | None]:
    """Convert masked cells to ``dtype`` with nodata filled in; return cells and nodata value.

    Raises
    ------
    InputError
        If integers are masked and have no nodata value, or a cell that is not masked equals it.
    """
    hidden = np.ma.getmaskarray(cells)
    plain = np.array(cells.data, dtype=dtype)
    if not hidden.any():
        return plain, nodata
    if nodata is None:
        if dtype.kind != "f":
            count = int(hidden.sum())
            raise OptionMissingError(
                f"{what}: {count} masked cells of {dtype}, but no value stands for them",
                *("nodata", "pass nodata= with a value that no other cell has"),
                "fill them, such as with .filled(0)",
            )
        nodata = math.nan
    clash = int((plain[~hidden] == nodata).sum())
    if clash:
        raise InputError(
            f"{what}: nodata={nodata} is also the value of {clash} cells that are not masked; "
            "pass another nodata="
        )
    plain[hidden] = nodata
    return plain, nodata


def valid_cells(values: npt.NDArray[Any], nodata: float | int | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells that are finite and not equal to ``nodata``.

    Examples
    --------
    >>> valid_cells(np.array([1.0, np.nan, -9999.0, np.inf]), -9999.0)
    array([ True, False, False, False])
    """
    if values.dtype.kind == "f":
        valid: npt.NDArray[np.bool_] = np.isfinite(values)
    else:
        valid = np.ones(values.shape, np.bool_)
    if nodata is not None and not np.isnan(nodata):
        valid &= values != values.dtype.type(nodata)
    return valid


UNUSED_LABEL = {"nodata": -1}
"""Attribute of labels whose 0 is a class, the background: rioxarray pads with a value of no label.

It is not ``_FillValue``, by which xarray would open integers of a store or a file as floats.
"""


def fill_value_in_xarray(
    value: int | float | None, dtype: np.dtype[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes and the encoding by which xarray and rioxarray know a nodata value.

    NaN stands in the encoding, as of cells that have been masked: arithmetic and casts to integers
    keep attributes, and no integer is NaN.
    """
    if value is None:
        return {}, {}
    fill = {"_FillValue": dtype.type(value)}
    return ({}, fill) if math.isnan(value) else (fill, {})


def decode_fill_value(value: object, dtype: np.dtype[Any]) -> int | float | None:
    """Decode the nodata value in the attribute ``_FillValue``.

    Raises
    ------
    ValueError
        If it encodes none that cells of this type can have.
    """
    if value is None:
        return None
    if isinstance(value, str):
        # xarray writes the fill value of floats so: as a float64, little-endian, in base64.
        content = base64.b64decode(value, validate=True)
        if len(content) != 8:
            raise ValueError(f"_FillValue is {reprlib.repr(value)}, not 8 bytes")
        value = struct.unpack("<d", content)[0]
    if type(value) is not int and type(value) is not float:
        raise ValueError(f"_FillValue is {reprlib.repr(value)}")
    if dtype.kind == "f":
        return float(value)
    if not (math.isfinite(value) and value == int(value)):
        raise ValueError(f"_FillValue is {value}, and cells are {dtype}")
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"_FillValue is {value}, beyond {dtype}")
    return int(value)
