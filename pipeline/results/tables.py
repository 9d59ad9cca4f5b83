"""Convert tables of peaks, depressions, passes and components to points and lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.storage import open_storage
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.vector.layer import VectorLayer, VectorLike
from orograph.tiles.vector.write import import_shapely

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from geopandas import GeoDataFrame

    from orograph.tiles.graph.tables import Table


# by a column that only this table has: its dimensions, and the prefix of the columns with the
# coordinates of its points
_TABLES = {
    "prominence": (("peak",), ""),
    "spill_elevation": (("depression",), "pit_"),
    "pass_x": (("point", "target"), "pass_"),
}


def to_geodataframe(
    result: xr.Dataset | VectorLike | Table,
) -> GeoDataFrame:
    """Return a table of peaks, depressions, passes or components as a GeoDataFrame.

    Parameters
    ----------
    result : Dataset, path or DataFrame
        Result of `peaks`, `depressions` or `pass_elevation`, or its store; or a result of
        `component_table`. Layers and paths are also accepted.

    Returns
    -------
    geopandas.GeoDataFrame
        One row for each peak, depression, component, or pair of point and target, with all columns
        of the table under their own names. The first columns are the numbers by which other rows
        refer to a row: ``peak``, ``depression``, ``label``, or ``point`` and ``target``. Geometries
        are points in the CRS of the raster: peaks, lowest cells, centroids or passes; passes with
        paths have the paths as geometries. ``attrs["units"]`` holds the known units of columns.

    Raises
    ------
    InputError
        If the result is not such a table.
    OrographError
        If GeoPandas is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> found = og.peaks(np.array([[5, 2, 9, 4, 7]]))
    >>> og.to_geodataframe(found)[["peak", "elevation", "prominence", "geometry"]]
       peak  elevation  prominence     geometry
    0     0          5         3.0  POINT (0 0)
    1     1          9         inf  POINT (2 0)
    2     2          7         3.0  POINT (4 0)
    """
    layer = table_layer(result)
    if layer is None:
        raise InputError(
            f"result: {shown(type(result))} is not a table of points; give what peaks, "
            "depressions, pass_elevation or component_table returns; of labels og.polygonize "
            "makes areas"
        )
    return layer.to_geodataframe()


def table_layer(result: object) -> VectorLayer | None:
    """Return a table as a layer of points or lines; None if the argument is not a table."""
    import pandas as pd
    import xarray as xr

    if isinstance(result, VectorLayer):
        return result
    if isinstance(layer := getattr(result, "layer", None), VectorLayer):  # of paths
        return layer
    if isinstance(result, pd.DataFrame):
        return _of_components(result)
    if isinstance(result, str | os.PathLike) and os.path.isdir(result):
        result = open_dataset(open_storage(result, "result"))
    if not isinstance(result, xr.Dataset):
        return None
    columns = table_columns(result)
    if columns is None:
        return None
    name = next(name for name in _TABLES if name in result)
    prefix = _TABLES[name][1]
    geometry = _points(columns[f"{prefix}x"], columns[f"{prefix}y"])
    if "path_cells" in columns:
        geometry = _paths(result, columns["path_cells"])
    units = {
        name: str(result[name].attrs["units"])
        for name in columns
        if name in result.variables and "units" in result[name].attrs
    }
    if "area" in columns and "area_unit" in result.attrs:
        units["area"] = str(result.attrs["area_unit"])
    return VectorLayer(geometry, columns, result.attrs.get("crs_wkt"), units=units)


def table_columns(result: xr.Dataset) -> dict[str, Array] | None:
    """Return the columns of a table, row numbers first; None if the argument is not such a table.

    Vertices of paths and a raster of labels are left out.
    """
    known = next((_TABLES[name] for name in _TABLES if name in result), None)
    if known is None:
        return None
    dims, _ = known
    shape = tuple(result.sizes[dim] for dim in dims)
    numbers = np.meshgrid(*(np.arange(size) for size in shape), indexing="ij")
    columns = {dim: number.ravel() for dim, number in zip(dims, numbers, strict=True)}
    for name, column in {**result.coords, **result.data_vars}.items():
        if column.dims and set(column.dims) <= set(dims) and name not in columns:
            variable: Any = column.variable
            ours = variable.set_dims(dict(zip(dims, shape, strict=True)))
            columns[str(name)] = ours.values.ravel()
    return columns


def _of_components(table: pd.DataFrame) -> VectorLayer | None:
    """Return a table of components as a layer of their centroids."""
    if not {"cells", "area", "x", "y"} <= set(table.columns):
        return None
    columns = {"label": table.index.to_numpy()}
    columns |= {str(name): table[name].to_numpy() for name in table.columns}
    units = {"area": str(table.attrs["area_unit"])} if "area_unit" in table.attrs else {}
    geometry = _points(columns["x"], columns["y"])
    return VectorLayer(geometry, columns, table.attrs.get("crs_wkt"), units=units)


def _points(x: Array, y: Array) -> npt.NDArray[np.object_]:
    """Return points; None where coordinates are NaN."""
    shapely = import_shapely("result")
    geometry = np.full(x.size, None, object)
    known = np.isfinite(x) & np.isfinite(y)
    geometry[known] = shapely.points(x[known], y[known])
    return geometry


def _paths(result: xr.Dataset, sizes: Array) -> npt.NDArray[np.object_]:
    """Return the paths over passes as lines, or as points if they have one cell."""
    shapely = import_shapely("result")
    geometry = np.full(sizes.size, None, object)
    vertices = np.stack([result["path_x"].values, result["path_y"].values], axis=1)
    number = np.repeat(np.arange(sizes.size), sizes)
    lines, alone = sizes >= 2, sizes == 1
    if lines.any():
        rank = np.cumsum(lines) - 1
        inside = lines[number]
        geometry[lines] = shapely.linestrings(vertices[inside], indices=rank[number[inside]])
    geometry[alone] = shapely.points(vertices[alone[number]])
    return geometry
