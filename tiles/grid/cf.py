"""Read the georeference of a DataArray, by CF conventions and as rioxarray does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import report_crs_error
from orograph.tiles.grid.georeference import (
    GRID_MAPPING,
    IDENTITY,
    Georeference,
    GeoTransform,
    check_upright,
    encoding_with,
    parse_wkt,
)
from orograph.tiles.grid.units import in_unit_of_coordinates

if TYPE_CHECKING:
    import xarray as xr

Placed = TypeVar("Placed", "xr.Dataset", "xr.DataArray")
X_NAMES = {"x", "lon", "longitude", "easting", "col", "column"}
Y_NAMES = {"y", "lat", "latitude", "northing", "row"}


def georeference_of(array: xr.DataArray) -> Georeference:
    """Return the georeference of a DataArray with dimensions (y, x)."""
    y_name, x_name = (str(name) for name in array.dims[-2:])
    if y_name.lower() in X_NAMES and x_name.lower() in Y_NAMES:
        raise InputError(
            f"dimensions ({y_name}, {x_name}): rows come first; "
            f"use .transpose({x_name!r}, {y_name!r})"
        )
    attributes = _grid_mapping_attributes(array)
    stated = _parse_geotransform(attributes.get("GeoTransform"))
    if stated is not None:
        check_upright(stated)
    y, x = _axis(array, y_name), _axis(array, x_name)
    if y is None or x is None:
        y = x = None
        if stated is not None and stated != IDENTITY:
            # rioxarray leaves coordinates out with parse_coordinates=False, and states the
            # transform.
            placed = Georeference.from_geotransform(stated, (array.shape[-2], array.shape[-1]))
            y, x = placed.y, placed.x
    # one that does not agree is stale: the array has been sliced or reprojected since
    transform = stated if y is not None and x is not None and _agrees(stated, y, x) else None
    y_attrs, x_attrs = (_attributes_of(array, name) for name in (y_name, x_name))
    wkt = _crs_of(array, attributes)
    if wkt is not None:
        parse_wkt(wkt)  # else it would be found when the result is made
        lacking = ""
        if y is None or x is None:
            lacking = "coordinates"
        elif stated == IDENTITY and _are_numbers(y) and _are_numbers(x):
            lacking = "geotransform"
        if lacking:
            raise InputError(
                f"it has a CRS, but no {lacking}, so the place of its cells is not known; give it "
                "coordinates, or a transform by rio.write_transform(...), or drop the variable of "
                "the CRS to measure in cells"
            )
        wkt = in_unit_of_coordinates(wkt, (y_attrs, x_attrs))
    return Georeference(y, x, wkt, y_name, x_name, transform, y_attrs, x_attrs)


def _are_numbers(values: NDArray[np.float64]) -> bool:
    """Return whether coordinates are the numbers of rows or columns and a half, as of no place."""
    return bool(values[0] % 1 == 0.5 and np.all(np.diff(values) == 1))


def _attributes_of(array: xr.DataArray, name: str) -> dict[str, Any]:
    """Return the attributes of a coordinate, without those that only encode it in a file."""
    kept = {"_FillValue", "missing_value", "scale_factor", "add_offset"}
    attrs = array.coords[name].attrs if name in array.coords else {}
    return {str(key): value for key, value in attrs.items() if key not in kept}


def _axis(array: xr.DataArray, name: str) -> NDArray[np.float64] | None:
    if name not in array.coords:
        return None
    values = array.coords[name].values
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(
            f"coordinate {name} has {values.ndim} dimensions of {values.dtype}; "
            f"it must be one dimension of numbers: replace it, or .drop_vars({name!r})"
        )
    return np.ascontiguousarray(values, dtype=np.float64)


def encoding_of_place(array: xr.DataArray) -> dict[str, str]:
    """Return the encoding of a DataArray's grid mapping, see `encoding_with`; else none."""
    # xarray moves the attribute to the encoding when it decodes coordinates. Without either, the
    # grid mapping may have one of the usual names.
    name = array.encoding.get("grid_mapping", array.attrs.get("grid_mapping", GRID_MAPPING))
    for candidate in (name, GRID_MAPPING, "crs"):
        if candidate in array.coords and array.coords[candidate].attrs:
            return encoding_with(candidate)
    return {}


def with_read_coordinates(found: Placed) -> Placed:
    """Return a result whose coordinates are in memory, unless they are of Dask.

    A coordinate that xarray has not read yet, such as that of the CRS, holds its file open.
    """
    coordinates = {
        name: coordinate.compute()
        for name, coordinate in found.coords.items()
        if name not in found.indexes and coordinate.chunks is None
    }
    return found.assign_coords(coordinates)


def _grid_mapping_attributes(array: xr.DataArray) -> dict[str, Any]:
    name = encoding_of_place(array).get("grid_mapping")
    attributes = {} if name is None else array.coords[name].attrs
    return {str(key): value for key, value in attributes.items()}


def _parse_geotransform(text: str | Iterable[float] | None) -> GeoTransform | None:
    if text is None:
        return None
    try:
        a, b, c, d, e, f = (
            float(item) for item in (text.split() if isinstance(text, str) else text)
        )
    except (TypeError, ValueError):
        return None
    return a, b, c, d, e, f


def matching_geotransform(
    text: str | Iterable[float] | None, y: NDArray[np.float64] | None, x: NDArray[np.float64] | None
) -> GeoTransform | None:
    """Parse the transform of a grid mapping; None if coordinates contradict it."""
    six = _parse_geotransform(text)
    if y is None or x is None:
        return None
    return six if _agrees(six, y, x) else None


def _agrees(
    six: GeoTransform | None, y: NDArray[np.float64], x: NDArray[np.float64]
) -> TypeGuard[GeoTransform]:
    """Return whether there is a transform that agrees with the first and last cells."""
    if six is None:
        return False
    for values, start, step in ((y, six[3], six[5]), (x, six[0], six[1])):
        for index in (0, values.size - 1):
            # The transform is of cell corners, and coordinates are of centres. NaN does not agree.
            if not abs(start + (index + 0.5) * step - values[index]) <= 1e-3 * abs(step):
                return False
    return True


def _crs_of(array: xr.DataArray, attributes: dict[str, Any]) -> str | None:
    # `crs_wkt` is of CF, `spatial_ref` of GDAL and rioxarray. Files with neither may state the
    # parameters of a projection by the attributes of CF.
    for key in ("crs_wkt", "spatial_ref"):
        if attributes.get(key):
            return str(attributes[key])
    if "grid_mapping_name" in attributes:
        from pyproj import CRS

        with report_crs_error("raster"):
            return str(CRS.from_cf(attributes).to_wkt())
    if "rioxarray" in sys.modules:  # only then can its accessor hold a CRS (rio.set_crs)
        crs = array.rio.crs
        return None if crs is None else str(crs.to_wkt())
    return None
