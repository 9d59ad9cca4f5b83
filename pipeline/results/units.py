"""Convert results between units of time or of length."""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np
import xarray as xr

from orograph.results.opening import open_result
from orograph.tiles.arguments import check_choice, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.cf import encoding_of_place

TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0}
LENGTHS = {"m": 1.0, "km": 1000.0}
NAMES = {"metre": "m", "meter": "m", "metres": "m", "meters": "m", "second": "s", "seconds": "s"}
"""Other spellings of units, as CRSs and other programs have them."""
UNITS = (*TIMES, *LENGTHS)


@overload
def convert_units(result: xr.DataArray, unit: str) -> xr.DataArray: ...


@overload
def convert_units(result: xr.Dataset | str | os.PathLike[str], unit: str) -> xr.Dataset: ...


def convert_units(
    result: xr.Dataset | xr.DataArray | str | os.PathLike[str], unit: str
) -> xr.Dataset | xr.DataArray:
    """Convert a result to another unit of time or length, and update its attributes.

    Parameters
    ----------
    result : Dataset, DataArray or path
        Result with known ``units``, such as that of `walking_time` (``"s"``) or `flow_distance`
        (``"m"``), or the path of its store or file.
    unit : {"s", "min", "h", "m", "km"}
        The unit to convert to.

    Returns
    -------
    Dataset or DataArray
        The converted result, lazy if the input is. If the unit is one of time, all rasters and
        columns that are times are converted; if it is one of length, all lengths. ``units`` and
        ``max_cost`` are updated. Values are divided or multiplied once, in their own dtype;
        integers become float64. The given result and its store do not change.

    Raises
    ------
    InputError
        If no part of the result has such a unit.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> walk = og.walking_time(np.zeros((1, 3)), [(0, 0)], cell_size=5000)
    >>> hours = og.convert_units(walk, "h")["cost"]
    >>> hours.values.round(2), hours.attrs["units"]
    (array([[0.  , 0.99, 1.99]]), 'h')
    """
    unit = check_choice("unit", unit, UNITS)
    if isinstance(result, str | os.PathLike):
        result = open_result(result, "walking_time")
    if isinstance(result, xr.DataArray):
        return _converted(result, unit, unit_scale(result.attrs.get("units"), unit, "result"))
    if not isinstance(result, xr.Dataset):
        raise InputError(f"result: {shown(result)}; give a Dataset, a DataArray or a store")
    known = {
        name: str(array.attrs["units"])
        for name, array in result.data_vars.items()
        if "units" in array.attrs
    }
    changed = {
        name: _converted(result[name], unit, unit_scale(units, unit, "result"))
        for name, units in known.items()
        if _quantity(units) is _quantity(unit)
    }
    if not changed:
        listed = ", ".join(f"{name} in {units}" for name, units in known.items()) or "no units"
        raise InputError(
            f"result: it has {listed}, of which nothing becomes {unit!r}; set the attribute units "
            f"of a variable to one of {', '.join(map(repr, _quantity(unit)))}"
        )
    found = result.assign(changed)
    most = result.attrs.get("max_cost")
    if "cost" in changed and isinstance(most, int | float):
        units = str(result["cost"].attrs["units"])
        found.attrs["max_cost"] = most * unit_scale(units, unit, "result")
    return found


def unit_scale(units: object, wanted: str, argument: str) -> float:
    """Return the factor from one unit to another of the same quantity.

    Raises
    ------
    InputError
        If the units of ``argument`` are unknown, or belong to another quantity.
    """
    quantity = _quantity(wanted)
    if units is None or _quantity(str(units)) is not quantity:
        of_it = "does not say its units" if units is None else f"is in {shown(units)}"
        raise InputError(
            f"unit: {wanted!r}, but {argument} {of_it}; set the attribute units to one of "
            f"{', '.join(map(repr, quantity))}, or leave unit out"
        )
    return quantity[_plain(str(units))] / quantity[wanted]


def _plain(units: str) -> str:
    return NAMES.get(units, units)


def _quantity(units: str) -> dict[str, float]:
    """Return the units of the quantity that a unit measures; empty if it is unknown."""
    return next((known for known in (TIMES, LENGTHS) if _plain(units) in known), {})


def _converted(array: xr.DataArray, unit: str, scale: float) -> xr.DataArray:
    """Return values times a scale, with the array's attributes and the new unit."""
    attributes = {**array.attrs, "units": unit}
    encoding: dict[str, Any] = {}
    if array.encoding.get("_FillValue") is not None:
        encoding["_FillValue"] = array.encoding["_FillValue"]
    values = array
    if values.dtype.kind != "f":
        fill = attributes.pop("_FillValue", None)
        values = values.astype(np.float64)
        values = values if fill is None else values.where(values != fill)
        encoding["_FillValue"] = np.nan
    kind = values.dtype.type
    # 3600 is a float, and its reciprocal is not
    found: xr.DataArray = values / kind(1 / scale) if scale < 1 else values * kind(scale)
    of_place = encoding_of_place(array)
    found.attrs, found.encoding = attributes, {"dtype": values.dtype, **encoding, **of_place}
    return found
