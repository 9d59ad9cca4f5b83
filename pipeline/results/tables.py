"""Convert tables of peaks, depressions, passes, components, streams and links to geometries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.results.names import name_labels
from orograph.results.opening import is_table_path, open_result
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.arguments import shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike, as_layer
from orograph.tiles.vector.turns import lines_of, stated_turn
from orograph.tiles.vector.write import import_shapely
from orograph.tiles.warn import warn_user

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
    "facility_x": (("facility",), "facility_"),
    "site_x": (("site",), "site_"),
}

_PAIRS = ("from", "to"), ("from", "rank")
"""Dimensions of tables of costs by an index, of all pairs and of the nearest targets."""

OF_LINKS = ("strahler", "shreve", "length", "drop", "downstream", "upstream")
"""Columns of the table of links of a stream network."""


@own_errors
def to_geodataframe(
    result: xr.Dataset | VectorLike | Table,
) -> GeoDataFrame:
    """Return a table of peaks, depressions, passes or components as a GeoDataFrame.

    Parameters
    ----------
    result : Dataset, path or DataFrame
        Result of `peaks`, `depressions`, `pass_elevation`, `streams` or `linkages`, or its store; a
        result of `component_table`; or a table of costs of a `DistanceIndex`, by
        ``distance_matrix`` or ``nearest``. Layers, vector files and paths are also accepted.

    Returns
    -------
    geopandas.GeoDataFrame
        One row for each peak, depression, component, or pair of point and target, with all columns
        of the table under their own names. The first columns are the numbers by which other rows
        refer to a row: ``peak``, ``depression``, ``label``, or ``point`` and ``target``. Geometries
        are points in the CRS of the raster: peaks, lowest cells, centroids or passes; passes with
        paths have the paths as geometries, as have linkages, and streams have lines, as from
        `stream_lines`. Of a table of costs each pair is a row, with a straight line.
        ``attrs["units"]`` holds the known units of columns.

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
            f"result: {shown(type(result))} is not a table of points or lines; give what peaks, "
            "depressions, pass_elevation, streams, linkages or component_table returns; of labels "
            "og.polygonize makes areas"
        )
    return layer.to_geodataframe()


def table_layer(result: object) -> VectorLayer | None:
    """Return a table as a layer of points or lines; None if the argument is not a table."""
    import pandas as pd
    import xarray as xr

    if isinstance(layer := getattr(result, "layer", None), VectorLayer):  # of paths
        return layer
    if isinstance(result, list) and result and isinstance(result[0], LeastCostPath):
        return LeastCostPaths(result).layer
    if (layer := as_layer(result, "result")) is not None:
        return layer
    if isinstance(result, pd.DataFrame):
        return _of_components(result)
    if isinstance(result, str | os.PathLike) and is_table_path(result):
        result = open_result(result, "peaks")
    if isinstance(result, xr.DataArray) and result.dims == ("from", "to"):
        result = result.to_dataset(name="cost").assign_attrs(result.attrs)
    if not isinstance(result, xr.Dataset):
        return None
    if "cost" in result and result["cost"].dims in _PAIRS:
        return _pairs(result)
    if is_network(result):
        return network_lines(result)
    if all(name in result.variables for name in ("vertex_link", "cost_to_length")):
        return _linkage_lines(result)
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
    crs = result.attrs.get("crs_wkt")
    return VectorLayer(geometry, columns, crs, units=units, places=_places(columns))


def _pairs(table: xr.Dataset) -> VectorLayer:
    """Return a table of costs by an index as straight lines between its places."""
    import_shapely("result")
    cost = table["cost"]
    row, column = np.indices(cost.shape).reshape(2, -1)
    columns = {"from": labels_of(table, "from")[row]}
    starts = np.stack([table["from_x"].values, table["from_y"].values], axis=1)[row]
    if "rank" in cost.dims:
        target = table.get("target_name", table["target"])
        columns |= {"rank": column + 1, "to": target.values.ravel()}
        ends = np.stack([table["target_x"].values, table["target_y"].values], axis=2).reshape(-1, 2)
    else:
        columns["to"] = labels_of(table, "to")[column]
        ends = np.stack([table["to_x"].values, table["to_y"].values], axis=1)[column]
    columns["cost"] = cost.values.ravel()
    there = np.isfinite(ends[:, 0])  # fewer targets than ranks can be reached
    points = np.stack([starts, ends], axis=1)[there].reshape(-1, 2)
    lines = lines_of(points, np.full(len(points) // 2, 2), stated_turn(table.attrs))
    units = {"cost": str(cost.attrs["units"])} if "units" in cost.attrs else {}
    kept = {name: values[there] for name, values in columns.items()}
    return VectorLayer(lines, kept, table.attrs.get("crs_wkt"), units=units)


def labels_of(table: xr.Dataset, dim: str) -> Array:
    """Return the names of the places of a table of costs, or their numbers, along a dimension."""
    if dim in table.coords:
        return table[dim].values
    number = table[f"{dim}_number"]  # as the store has them
    names: Array = np.array(number.attrs.get("names", number.values))
    return names


def _places(columns: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the prefixes of the columns ``x`` and ``y`` of a table."""
    pairs = [name.removesuffix("x") for name in columns if name == "x" or name.endswith("_x")]
    return tuple(prefix for prefix in pairs if f"{prefix}y" in columns)


def has_rasters(result: object) -> bool:
    """Return whether a table, or its store, has rasters beside its columns."""
    import xarray as xr

    if isinstance(result, str | os.PathLike) and is_table_path(result):
        result = open_result(result, "peaks")
    if not isinstance(result, xr.Dataset):
        return False
    of_tables = {dim for dims, _ in _TABLES.values() for dim in dims}
    return any(v.ndim == 2 and not of_tables & set(v.dims) for v in result.data_vars.values())


def table_columns(result: xr.Dataset) -> dict[str, Array] | None:
    """Return the columns of a table, row numbers first; None if the argument is not such a table.

    Vertices of paths and a raster of labels are left out.
    """
    known = next((_TABLES[name] for name in _TABLES if name in result), None)
    if known is None:
        return None
    dims, _ = known
    shape = tuple(result.sizes[dim] for dim in dims)
    # labels of rows, where they have some
    labels = [result[dim].values for dim in dims]
    numbers = np.meshgrid(*labels, indexing="ij")
    columns = {dim: number.ravel() for dim, number in zip(dims, numbers, strict=True)}
    for name, column in {**result.coords, **result.data_vars}.items():
        if column.dims and set(column.dims) <= set(dims) and name not in columns:
            variable: Any = column.variable
            # A column along one of two dimensions is repeated along the other.
            ours = variable.set_dims(dict(zip(dims, shape, strict=True)))
            columns[str(name)] = ours.values.ravel()
    return columns


def is_network(result: object) -> bool:
    """Return whether a result is a stream network."""
    names = ("vertex_link", "vertex_y", "vertex_x", "downstream", "link")
    return all(name in getattr(result, "variables", ()) for name in names)


def network_lines(network: xr.Dataset) -> VectorLayer:
    """Return the links of a stream network as lines."""
    import_shapely("result")
    number = network["vertex_link"].values
    vertices = np.stack([network["vertex_x"].values, network["vertex_y"].values], axis=1)
    downstream = network["downstream"].values
    # Links are numbered from 1; 0 stands for no link downstream.
    links = np.arange(1, downstream.size + 1)
    first = np.searchsorted(number, links)
    flows = np.flatnonzero(downstream)
    # each line ends with the first cell of the next one
    at = np.append(first, number.size)[flows + 1]
    number = np.insert(number, at, flows + 1)
    vertices = np.insert(vertices, at, vertices[first[downstream[flows] - 1]], axis=0)
    sizes = np.bincount(number, minlength=links.size + 1)[1:]
    kept = np.flatnonzero(sizes > 1)
    if kept.size < links.size:
        warn_user(
            f"{links.size - kept.size} of {links.size} links have no line: each is a single cell "
            "from which water leaves the grid, and no line is shorter than a step"
        )
    wide = (sizes > 1)[number - 1]
    lines = lines_of(vertices[wide], sizes[kept], stated_turn(network.attrs))
    place = open_raster(network["link"], argument="streams").georeference
    columns = {"link": links[kept]} | {
        name: network[name].values[kept] for name in OF_LINKS if name in network.variables
    }
    unit = network["length"].attrs.get("units") if "length" in network.variables else None
    units = {} if unit is None else {"length": unit}
    return VectorLayer(lines, columns, place.map_crs, units=units)


def _linkage_lines(linkages: xr.Dataset) -> VectorLayer:
    """Return the paths of linkages as lines; those of a single cell as points."""
    shapely = import_shapely("result")
    number = linkages["vertex_link"].values
    vertices = np.stack([linkages["vertex_x"].values, linkages["vertex_y"].values], axis=1)
    of_links = {n: column for n, column in linkages.data_vars.items() if column.dims == ("links",)}
    columns = {str(name): column.values for name, column in of_links.items()}
    sizes = np.bincount(number, minlength=linkages.sizes["links"])
    geometry = np.full(sizes.size, None, object)
    wide, alone = sizes > 1, sizes == 1
    if wide.any():
        turn = stated_turn(linkages.attrs)
        geometry[wide] = lines_of(vertices[wide[number]], sizes[wide], turn)
    geometry[alone] = shapely.points(vertices[alone[number]])
    for end in ("from", "to"):
        names = name_labels(linkages.attrs, columns[end].tolist())
        columns[end] = columns[end] if names is None else np.array(names, object)
    place = open_raster(linkages["corridor"], argument="result").georeference
    units = {n: linkages[n].attrs["units"] for n in columns if "units" in linkages[n].attrs}
    return VectorLayer(geometry, columns, place.map_crs, units=units)


def _of_components(table: pd.DataFrame) -> VectorLayer | None:
    """Return a table of components as a layer of their centroids."""
    if not {"cells", "area", "x", "y"} <= set(table.columns):
        return None
    columns = {"label": table.index.to_numpy()}
    columns |= {str(name): table[name].to_numpy() for name in table.columns}
    units = {"area": str(table.attrs["area_unit"])} if "area_unit" in table.attrs else {}
    geometry = _points(columns["x"], columns["y"])
    crs = table.attrs.get("crs_wkt")
    return VectorLayer(geometry, columns, crs, units=units, places=_places(columns))


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
        turn = stated_turn(result.attrs)
        geometry[lines] = lines_of(vertices[lines[number]], sizes[lines], turn)
    geometry[alone] = shapely.points(vertices[alone[number]])
    return geometry
