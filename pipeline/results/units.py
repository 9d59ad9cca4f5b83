"""Convert results between units of time, length or area, and tell times in wrong units."""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.results.costs import COSTS, cost_variable
from orograph.results.opening import open_result
from orograph.tiles.arguments import check_choice, shown
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.grid.cf import encoding_of_place, with_read_coordinates
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.grid.units import parse_length_unit
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster

TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0}
LENGTHS = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "us-ft": 1200 / 3937}
AREAS = {"m2": 1.0, "ha": 1e4, "km2": 1e6}
NAMES = {
    "metre": "m", "meter": "m", "metres": "m", "meters": "m",
    "kilometre": "km", "kilometer": "km", "kilometres": "km", "kilometers": "km",
    "second": "s", "seconds": "s", "sec": "s", "minute": "min", "minutes": "min",
    "hour": "h", "hours": "h", "hr": "h", "m^2": "m2", "m²": "m2", "km^2": "km2", "km²": "km2",
    "hectare": "ha", "hectares": "ha",
}  # fmt: skip
"""Other spellings of units, as people, CRSs and other programs have them."""
UNITS = (*TIMES, *LENGTHS, *AREAS)
FASTEST = 100 / 3.6
"""Speed in m/s that no walk reaches: a faster one shows that times are in another unit."""
SAMPLE, ENOUGH = 128, 100
"""Side of the windows that are sampled, and the number of cells that suffice."""


@overload
def convert_units(result: xr.DataArray, unit: str) -> xr.DataArray: ...


@overload
def convert_units(result: xr.Dataset | str | os.PathLike[str], unit: str) -> xr.Dataset: ...


@own_errors
def convert_units(
    result: xr.Dataset | xr.DataArray | str | os.PathLike[str], unit: str
) -> xr.Dataset | xr.DataArray:
    """Convert a result to another unit of time, length or area, and update its attributes.

    Parameters
    ----------
    result : Dataset, DataArray or path
        Result with known ``units``, such as that of `walking_time` (``"s"``) or `flow_distance`
        (``"m"``), or the path of its store or file.
    unit : {"s", "min", "h", "m", "km", "ft", "us-ft", "m2", "ha", "km2"}
        The unit to convert to; words such as ``"hours"`` are taken too.

    Returns
    -------
    Dataset or DataArray
        The converted result, lazy if the input is. If the unit is one of time, all rasters and
        columns that are times are converted; if it is one of length or area, all of these.
        ``units`` and ``max_cost`` are updated. Values are divided or multiplied once, in their own
        dtype; integers become float64. The given result and its store do not change.

    Raises
    ------
    InputError
        If no part of the result has such a unit.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> walk = og.walking_time(np.zeros((1, 3)), [(0, 0)], cell_size=5000)
    >>> hours = og.convert_units(walk, "h")["time"]
    >>> hours.values.round(2), hours.attrs["units"]
    (array([[0.  , 0.99, 1.99]]), 'h')
    """
    unit = parse_unit(unit)
    if isinstance(result, str | os.PathLike):
        result = open_result(result, "walking_time")
    if isinstance(result, xr.DataArray):
        scale = unit_scale(result.attrs.get("units"), unit, "result")
        return with_read_coordinates(_converted(result, unit, scale))
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
            f"result: it has {listed}, of which nothing becomes {unit!r}; only what is in one of "
            f"{', '.join(map(repr, _quantity(unit)))} does: correct the attribute units of a "
            "variable if it says another unit than that of its values"
        )
    found = result.assign(changed)
    # An infinite maximum is a text and stays.
    most = result.attrs.get("max_cost")
    if (costs := cost_variable(result)) in changed and isinstance(most, int | float):
        units = str(result[costs].attrs["units"])
        found.attrs["max_cost"] = most * unit_scale(units, unit, "result")
    return with_read_coordinates(found)


def parse_unit(unit: object) -> str:
    """Return the short form of a unit, such as "h" for "hours"; raise InputError if unknown."""
    known = isinstance(unit, str) and _plain(unit) in UNITS
    return check_choice("unit", _plain(str(unit)) if known else unit, UNITS)


def check_times(raster: Raster, argument: str) -> None:
    """Raise InputError if times in a raster's units mean more than 100 km/h, as after ``/ 3600``.

    xarray keeps ``units`` in arithmetic. The speed is the median over a sample of reached cells,
    each with its greatest step to a neighbour.
    """
    units, place = _plain(str(raster.attrs.get("units"))), raster.georeference
    if units not in TIMES or raster.name not in (None, *COSTS) or place.length_unit is None:
        return
    dy, dx = place.side_lengths or (0.0, 0.0)
    if not dy * dx or min(raster.shape) < 2:
        return
    if place.is_geographic:
        lengths = step_lengths(place, raster.shape)[:2]
    else:
        lengths = np.array([[dx], [dy]]) * place.length_unit.metres
    speeds: list[npt.NDArray[np.float64]] = []
    height, width = raster.shape
    # Windows in the middle, at the corners and at the sides, in halves of the room that a window
    # has; usually the first one has enough reached cells.
    for share in ((1, 1), (0, 0), (2, 2), (0, 2), (2, 0), (0, 1), (1, 0), (1, 2), (2, 1)):
        y, x = (max(n - SAMPLE, 0) * part // 2 for n, part in zip(raster.shape, share))
        window = Window(y, x, SAMPLE, SAMPLE).clip((height, width))
        cells = raster.read(window)
        times = np.where(valid_cells(cells, raster.nodata), cells, np.nan) * TIMES[units]
        # Times from sources are never negative, so nothing is known of the units of these.
        if (times < 0).any():
            return
        rows = slice(0, None) if lengths.shape[1] == 1 else slice(y, y + window.height)
        speeds.append(_speeds(times, *(lengths[:, rows, None])))
        if sum(map(len, speeds)) >= ENOUGH or max(raster.shape) <= SAMPLE:
            break
    found = np.concatenate(speeds)
    if len(found) and float(np.median(found)) > FASTEST:
        speed = float(np.median(found)) * 3.6
        raise InputError(
            f"{argument}: its units are {units!r}, by which half of its cells are passed at more "
            f"than {speed:.4g} km/h; was it divided, as by / 3600? xarray keeps units in "
            "arithmetic: convert by og.convert_units(result, 'h'), or set the attribute units"
        )


def _speeds(
    times: npt.NDArray[np.float64], dx: npt.NDArray[np.float64], dy: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the speed of each cell's slowest step to a neighbour, in metres a second."""
    slowness = np.zeros(times.shape)
    across = np.abs(np.diff(times, axis=1)) / dx
    # Entry i of ``dy`` is the length between rows i - 1 and i.
    down = np.abs(np.diff(times, axis=0)) / (dy if len(dy) == 1 else dy[1:])
    for side, steps in (
        (slowness[:, 1:], across),
        (slowness[:, :-1], across),
        (slowness[1:], down),
        (slowness[:-1], down),
    ):
        # fmax passes over NaN, the difference to an unreached cell.
        np.fmax(side, steps, out=side)
    return 1 / slowness[slowness > 0]


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
            f"unit: {wanted!r}, but {argument} {of_it}; give what is in one of "
            f"{', '.join(map(repr, quantity))}, or correct the attribute units if it says another "
            "unit than that of the values"
        )
    return quantity[_plain(str(units))] / quantity[wanted]


def _plain(units: str) -> str:
    length = parse_length_unit(units)
    return NAMES.get(units) or (units if length is None else length.name)


def _quantity(units: str) -> dict[str, float]:
    """Return the units of the quantity that a unit measures; empty if it is unknown."""
    return next((known for known in (TIMES, LENGTHS, AREAS) if _plain(units) in known), {})


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
        # Integers become floats, so nodata becomes NaN.
        values = values if fill is None else values.where(values != fill)
        encoding["_FillValue"] = np.nan
    kind = values.dtype.type
    # 3600 is a float, and its reciprocal is not
    found: xr.DataArray = values / kind(1 / scale) if scale < 1 else values * kind(scale)
    of_place = encoding_of_place(array)
    found.attrs, found.encoding = attributes, {"dtype": values.dtype, **encoding, **of_place}
    return found
