"""Supported dtypes and nodata values of rasters."""

from __future__ import annotations

import base64
import math
import reprlib
import struct
from typing import Any, SupportsFloat

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import InputError


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
    try:
        number = value.item() if hasattr(value, "item") else value
        number = number if isinstance(number, int) else float(number)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: nodata={value!r} is no number; pass one, or leave it out"
        ) from None
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
            raise InputError(
                f"{what}: {int(hidden.sum())} masked cells of {dtype}, but no value stands for "
                "them; pass nodata= with a value that no other cell has"
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
