"""Least-cost paths back to their sources, tile by tile, and corridors between two of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.distance.sources import check_same_place, snap_cells
from orograph.distance.trace import PathReader
from orograph.kernels.relax.models import MODELS
from orograph.kernels.relax.shortest_path_tree import NO_DIRECTION
from orograph.plotting import html
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.from_xarray import choose_variable
from orograph.tiles.raster.points import as_points, cells_of, coordinates_of, snap_to_valid
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.storage import open_storage
from orograph.tiles.store.dataset import open_dataset
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class LeastCostPath:
    """A path from a point to the source that serves it.

    Two paths are equal if they pass the same cells at the same places, at the same cost.

    Attributes
    ----------
    cells
        Rows and columns it passes, from the point to the source, shape (n, 2).
    coordinates
        Map coordinates (x, y) of their centres, shape (n, 2).
    cost
        Cost at the point, an int where costs are integers.
    crs
        Coordinate reference system of the coordinates in well-known text, None if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> og.least_cost_path(result, [(2, 0)])[0]
    <orograph.LeastCostPath: cost 2, 3 cells, length 2, from (2, 0) to (0, 0)>
    >>> path = og.least_cost_path(result, [(2, 0)])[0]
    >>> path.cost, path.cells.tolist()
    (2.0, [[0, 2], [0, 1], [0, 0]])
    """

    cells: npt.NDArray[np.int64]
    coordinates: npt.NDArray[np.float64]
    cost: float
    crs: str | None = field(default_factory=lambda: None)

    @cached_property
    def length(self) -> float:
        """Its length in units of the CRS; metres along the WGS 84 ellipsoid where it has degrees.

        Of a grid without coordinates, in cells.
        """
        if self.crs is not None and parse_crs(self.crs, "path").is_geographic:
            from pyproj import Geod

            return float(Geod(ellps="WGS84").line_length(*self.coordinates.T))
        return float(np.hypot(*np.diff(self.coordinates, axis=0).T).sum())

    @property
    def geometry(self) -> Any:
        """The path as a shapely LineString (a Point if it is one cell), if shapely is installed."""
        from shapely import LineString, Point

        if len(self.coordinates) == 1:
            return Point(self.coordinates[0])
        return LineString(self.coordinates)

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """The path as a GeoJSON feature, in its own CRS."""
        points = [tuple(point) for point in self.coordinates.tolist()]
        body: dict[str, Any] = {"type": "LineString", "coordinates": points}
        if len(points) == 1:
            body = {"type": "Point", "coordinates": points[0]}
        properties = {"cost": self.cost, "length": self.length}
        return {"type": "Feature", "geometry": body, "properties": properties}

    def to_geodataframe(self) -> Any:
        """Return the path as a ``geopandas.GeoDataFrame`` of one row: cost, length, geometry."""
        return LeastCostPaths([self]).to_geodataframe()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeastCostPath):
            return NotImplemented
        return (
            (self.cost, self.crs) == (other.cost, other.crs)
            and np.array_equal(self.cells, other.cells)
            and np.array_equal(self.coordinates, other.coordinates)
        )

    def __hash__(self) -> int:
        return hash((self.cost, self.cells.tobytes(), self.coordinates.tobytes()))

    def __repr__(self) -> str:
        start, end = self._ends
        if not self.coordinates.size:
            count = len(self.cells)
            return f"<orograph.LeastCostPath: {count} vertices of a graph, from {start} to {end}>"
        return (
            f"<orograph.LeastCostPath: cost {self.cost:g}, {len(self.cells)} cells, length "
            f"{self.length:g}, from ({start}) to ({end})>"
        )

    def _repr_html_(self) -> str:
        start, end = self._ends
        if not self.coordinates.size:
            rows = {"vertices": len(self.cells), "from": start, "to": end}
            return html.table("Path in a graph", rows)
        crs = "none" if self.crs is None else parse_crs(self.crs, "path").name
        rows = {
            "cost": f"{self.cost:g}",
            "length": f"{self.length:g}",
            "cells": len(self.cells),
            "from": start,
            "to": end,
            "CRS": crs,
        }
        return html.table("Least-cost path", rows, html.sketch(self.coordinates))

    @property
    def _ends(self) -> tuple[str, str]:
        """The first and the last point; the vertices, where a graph has no coordinates."""
        if not self.coordinates.size:
            first, last = self.cells[[0, -1]].tolist()
            return repr(first), repr(last)
        (x, y), (end_x, end_y) = self.coordinates[[0, -1]].tolist()
        return f"{x:.10g}, {y:.10g}", f"{end_x:.10g}, {end_y:.10g}"


class LeastCostPaths(list[LeastCostPath]):
    """A list of paths, which is a vector layer too.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> paths = og.least_cost_path(result, [(2, 0), (1, 0)])
    >>> len(paths), paths.layer.columns["cost"].tolist()
    (2, [2.0, 1.0])
    """

    @property
    def layer(self) -> VectorLayer:
        """The paths as lines, with columns ``path`` (numbers from 0), ``cost`` and ``length``."""
        columns = {
            "path": np.arange(len(self)),
            "cost": np.array([path.cost for path in self]),
            "length": np.array([path.length for path in self]),
        }
        geometry = np.empty(len(self), object)
        geometry[:] = [path.geometry for path in self]
        return VectorLayer(geometry, columns, self[0].crs if self else None)

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """The paths as a GeoJSON FeatureCollection, in their own CRS."""
        return self.layer.__geo_interface__

    def to_geodataframe(self) -> Any:
        """Return the paths as a ``geopandas.GeoDataFrame``, a row each."""
        return self.layer.to_geodataframe()

    def to_file(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the paths to a vector file; see `VectorLayer.to_file`."""
        return self.layer.to_file(path, overwrite=overwrite)


def least_cost_path(
    result: xr.Dataset | str | os.PathLike[str], points: Any, *, snap: bool | int = False
) -> LeastCostPaths:
    """Trace the least-cost paths from points back to the sources that serve them.

    Parameters
    ----------
    result : Dataset or path
        What `cost_distance` has returned with ``"back_direction"`` among its outputs, or the path
        of its store. Only the tiles that paths cross are read.
    points : points
        In map coordinates, shape (n, 2), x and y, or a vector layer of points (a GeoDataFrame,
        geometries, the path of a file), which is brought to the CRS of the result.
    snap : bool or int
        Move points that nothing has reached to the nearest cell that was: True within 10 cells,
        or a number of cells.

    Returns
    -------
    LeastCostPaths
        A list with a path for each point, which can be written to a file (`LeastCostPaths.to_file`)
        and become a GeoDataFrame.

    Raises
    ------
    InputError
        If the result has no back directions, or points lie outside it or were not reached, or if
        the result is a part of one and a path leaves it.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 9.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 1.0]])
    >>> result = og.cost_distance(
    ...     friction, [(0, 0)], connectivity=4, outputs=("cost", "back_direction")
    ... )
    >>> (path,) = og.least_cost_path(result, [(2, 1)])
    >>> path.coordinates.tolist()
    [[2.0, 1.0], [2.0, 2.0], [1.0, 2.0], [0.0, 2.0], [0.0, 1.0], [0.0, 0.0]]
    """
    dataset = as_dataset(result, "cost_distance")
    for name in ("cost", "back_direction"):
        if name not in dataset:
            raise InputError(
                f"result: it has no {name}; compute it with outputs=('cost', 'back_direction')"
            )
    codes = dataset["back_direction"]
    if codes.dtype != np.uint8 and codes.dtype.kind != "f":
        raise InputError(
            f"result: back_direction is {codes.dtype}, not uint8 nor a float that xarray has made "
            "of it (NaN where unreached); give what cost_distance has returned"
        )
    directions = open_raster(codes, nodata=NO_DIRECTION)
    costs = open_raster(dataset["cost"])
    reach = snap_cells(snap)
    place = directions.georeference
    where = as_points(points, "points", place)
    rows, columns = cells_of(where, place, directions.shape, "points")
    what = "cells that were not reached: barriers, or beyond barriers or max_cost"
    rows, columns = snap_to_valid(rows, columns, directions, where, reach, "points", what)
    reader = PathReader(directions, dataset)
    paths = LeastCostPaths()
    for number, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        cells = reader.trace(number, row, column)
        cost = costs.read(Window(row, column, 1, 1))[0, 0]
        coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
        paths.append(LeastCostPath(cells, coordinates, cost.item(), place.map_crs))
    return paths


def as_dataset(result: Any, operation: str) -> xr.Dataset:
    """Return the result of an operation, given as such or by the path of its store."""
    import xarray as xr

    if isinstance(result, str | os.PathLike):
        result = open_dataset(open_storage(result, "result"))
    if not isinstance(result, xr.Dataset):
        raise InputError(f"result: {shown(result)}; give what {operation} returns, or its path")
    return result


def path_mask(paths: Sequence[LeastCostPath], like: xr.Dataset | xr.DataArray) -> xr.DataArray:
    """Return a raster of the number of paths through each cell.

    Parameters
    ----------
    paths : sequence of LeastCostPath
        What `least_cost_path` has returned.
    like : Dataset or DataArray
        A raster or Dataset of the same grid.

    Returns
    -------
    xarray.DataArray
        uint32, shape (y, x), with the coordinates of ``like``.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> og.path_mask(og.least_cost_path(result, [(2, 0), (1, 0)]), result).values
    array([[2, 2, 1]], dtype=uint32)
    """
    import xarray as xr

    if isinstance(like, xr.DataArray):
        raster = like
    elif not isinstance(like, xr.Dataset):
        raise InputError(f"like: {shown(like)}; give a DataArray or a Dataset of the same grid")
    else:
        raster = like["cost" if "cost" in like else choose_variable(like, "like", None)]
    place = Georeference.from_dataarray(raster)
    count = np.zeros(raster.shape, np.uint32)
    if isinstance(paths, Mapping) or not isinstance(paths, Iterable):
        raise InputError(f"paths: {shown(paths)}; give a list of what least_cost_path returns")
    paths = list(paths)
    for number, path in enumerate(paths):
        if not isinstance(path, LeastCostPath):
            raise InputError(f"paths: {shown(path)} at {number}; give what least_cost_path returns")
    for number, path in enumerate(paths):
        _check_on_grid(number, path, place, count.shape)
        np.add.at(count, (path.cells[:, 0], path.cells[:, 1]), 1)
    attrs = {"long_name": "number of least-cost paths through the cell"}
    return xr.DataArray(count, raster.coords, raster.dims, "paths", attrs)


def _check_on_grid(
    number: int, path: LeastCostPath, place: Georeference, shape: tuple[int, ...]
) -> None:
    """Refuse a path whose cells lie elsewhere on this grid."""
    step = "give the raster that it was traced on, or one of the same grid"
    outside = (path.cells < 0).any(axis=1) | (path.cells >= shape).any(axis=1)
    if outside.any():
        row, column = path.cells[int(outside.argmax())].tolist()
        raise InputError(
            f"paths: path {number} passes row {row}, column {column}, but like has {shape[0]} x "
            f"{shape[1]} cells; {step}"
        )
    here = coordinates_of(path.cells[:, 0], path.cells[:, 1], place)
    sides = [
        1.0 if axis is None or axis.size < 2 else abs(float(axis[-1] - axis[0])) / (axis.size - 1)
        for axis in (place.x, place.y)
    ]
    off = (np.abs(here - path.coordinates) > 1e-3 * np.array(sides)).any(axis=1)
    if off.any():
        at = int(off.argmax())
        row, column = path.cells[at].tolist()
        theirs, ours = (tuple(xy[at].tolist()) for xy in (path.coordinates, here))
        raise InputError(
            f"paths: path {number} has row {row}, column {column} at {theirs}, like at {ours}; "
            f"{step}"
        )


def corridor(a: xr.Dataset, b: xr.Dataset) -> xr.DataArray:
    """Return the least cost of a path between two sets of sources through each cell.

    Parameters
    ----------
    a, b : Dataset
        Results of `cost_distance` from the two, on one grid and with one cost model. Where costs
        depend on the direction (``"tobler"``, ``"walk"``), one of them ``"from"`` the sources where
        ways begin, the other ``"to"`` those where they end.

    Returns
    -------
    xarray.DataArray
        The sum of the two costs, shape (y, x): least along the least-cost path, NaN (integers: -1)
        where either has not reached. Lazy if they are.

    Raises
    ------
    InputError
        If their grids, cost models, coefficients, connectivities or cell sizes differ, or one
        counts in integers and the other not, or both go the same way where ways matter.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 1.0]])
    >>> west = og.cost_distance(friction, [(0, 0)], connectivity=4)
    >>> east = og.cost_distance(friction, [(2, 0)], connectivity=4)
    >>> og.corridor(west, east).values
    array([[2., 2., 2.],
           [4., 6., 4.]])
    """
    import xarray as xr

    for name, given in (("a", a), ("b", b)):
        if not isinstance(given, xr.Dataset) or "cost" not in given:
            raise InputError(f"{name}: {shown(given)}; give what cost_distance returns")
    first, second = a["cost"], b["cost"]
    ours, theirs = (Georeference.from_dataarray(cost) for cost in (first, second))
    shapes = [(cost.shape[0], cost.shape[1]) for cost in (first, second)]
    check_same_place("corridor", shapes[1], theirs, shapes[0], ours)
    for name in ("cost_model", "coefficients", "connectivity", "cell_size", "links"):
        _check_equal(name, *(_plain(result.attrs.get(name)) for result in (a, b)))
    kinds = [np.dtype(r.attrs.get("dtype", r["cost"].dtype)).kind == "i" for r in (a, b)]
    _check_equal("dtype", *("int64" if integer else "float" for integer in kinds))
    ways = [result.attrs.get("direction") for result in (a, b)]
    model = MODELS.get(a.attrs.get("cost_model", ""))
    if model is not None and not model.symmetric and set(ways) != {"from", "to"}:
        raise InputError(
            f"corridor: direction is {ways[0]!r} and {ways[1]!r}; with "
            f"cost={a.attrs['cost_model']!r} compute one with direction='from', from where ways "
            "begin, and the other with direction='to'"
        )
    # the data alone, as coordinates may differ in the last bit
    one, other = first.data, second.data
    attrs: dict[str, Any] = {"long_name": "least cost of a way through the cell"}
    nothing: Any = math.nan
    if one.dtype.kind == other.dtype.kind == "i":
        nothing = attrs["_FillValue"] = -1
    total = xr.DataArray(one + other, first.coords, first.dims, "corridor", attrs)
    return total.where(total.copy(data=(one >= 0) & (other >= 0)), nothing)


def _plain(value: Any) -> Any:
    """Return an attribute as one value or a list, however its file has kept it."""
    values = np.ravel(value).tolist()
    return values[0] if len(values) == 1 else values


def _check_equal(name: str, one: Any, other: Any) -> None:
    numbers = all(np.asarray(value).dtype.kind in "iuf" for value in (one, other))
    # the cell size of one grid may be known by a transform here and by coordinates there
    same = numbers and np.shape(one) == np.shape(other) and np.allclose(one, other, 1e-9, 0)
    if not same and one != other:
        raise InputError(f"corridor: {name} is {one!r} and {other!r}; compute both with the same")
