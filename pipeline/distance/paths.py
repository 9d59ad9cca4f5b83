"""Least-cost paths back to their sources, tile by tile, and corridors between two of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.distance.sources import snap_cells
from orograph.kernels.relax.backtrack import LOST, SOURCE, follow
from orograph.kernels.relax.shortest_path_tree import NO_DIRECTION
from orograph.tiles.errors import InputError
from orograph.tiles.grid.points import as_points, cells_of, coordinates_of, on_valid_cells
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.store.dataset import open_dataset

if TYPE_CHECKING:
    import xarray as xr

READ_SIDE = 512


@dataclass(frozen=True)
class LeastCostPath:
    """A path from a point to the source that serves it.

    Attributes
    ----------
    cells
        Rows and columns it passes, from the point to the source, shape (n, 2).
    coordinates
        Map coordinates (x, y) of their centres, shape (n, 2).
    cost
        Cost at the point.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> (path,) = og.least_cost_path(result, [(2, 0)])
    >>> path.cost, path.cells.tolist()
    (2.0, [[0, 2], [0, 1], [0, 0]])
    """

    cells: npt.NDArray[np.int64]
    coordinates: npt.NDArray[np.float64]
    cost: float

    @property
    def geometry(self) -> Any:
        """The path as a shapely LineString (a Point if it is one cell), if shapely is installed."""
        from shapely import LineString, Point

        if len(self.coordinates) == 1:
            return Point(self.coordinates[0])
        return LineString(self.coordinates)


def least_cost_path(
    result: xr.Dataset | str | os.PathLike[str], points: Any, *, snap: bool | int = False
) -> list[LeastCostPath]:
    """Trace the least-cost paths from points back to the sources that serve them.

    Parameters
    ----------
    result
        What `cost_distance` has returned with ``"back_direction"`` among its outputs, or the path
        of its store. Only the tiles that paths cross are read.
    points
        In map coordinates, shape (n, 2), x and y, or anything with a ``geometry`` of points; a
        vector layer is brought to the CRS of the result.
    snap
        Move points that nothing has reached to the nearest cell that was: True within 10 cells,
        or a number of cells.

    Returns
    -------
    list of LeastCostPath
        One for each point.

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
    dataset = open_dataset(result) if isinstance(result, str | os.PathLike) else result
    for name in ("cost", "back_direction"):
        if name not in dataset:
            raise InputError(
                f"result: it has no {name}; compute it with outputs=('cost', 'back_direction')"
            )
    codes = dataset["back_direction"]
    if codes.dtype != np.uint8:
        raise InputError(
            f"result: back_direction is {codes.dtype}, not uint8; open a stored result with "
            "og.open(...), or with mask_and_scale=False"
        )
    directions = open_raster(codes, nodata=NO_DIRECTION)
    costs = open_raster(dataset["cost"])
    reach = snap_cells(snap)
    place = directions.georeference
    where = as_points(points, "points", place)
    rows, columns = cells_of(where, place, directions.shape, "points")
    what = "cells that were not reached: barriers, or beyond barriers or max_cost"
    rows, columns = on_valid_cells(rows, columns, directions, where, reach, "points", what)
    reader = _Reader(directions)
    paths = []
    for number, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        cells = reader.trace(number, row, column)
        cost = costs.read(Window(row, column, 1, 1))[0, 0]
        coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
        paths.append(LeastCostPath(cells, coordinates, float(cost)))
    return paths


def path_mask(paths: Sequence[LeastCostPath], like: xr.Dataset | xr.DataArray) -> xr.DataArray:
    """A raster of how many paths pass each cell.

    Parameters
    ----------
    paths
        What `least_cost_path` has returned.
    like
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

    raster = like if isinstance(like, xr.DataArray) else like["cost"]
    count = np.zeros(raster.shape, np.uint32)
    for path in paths:
        np.add.at(count, (path.cells[:, 0], path.cells[:, 1]), 1)
    attrs = {"long_name": "number of least-cost paths through the cell"}
    return xr.DataArray(count, raster.coords, raster.dims, "paths", attrs)


def corridor(a: xr.Dataset, b: xr.Dataset) -> xr.DataArray:
    """The least cost of a way from one set of sources to another through each cell.

    Parameters
    ----------
    a, b
        Results of `cost_distance` from the two, on one grid and with one cost model.

    Returns
    -------
    xarray.DataArray
        The sum of the two costs, shape (y, x): least along the least-cost path, NaN where either
        has not reached. Lazy if they are.

    Raises
    ------
    InputError
        If their grids or cost models differ.

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
    if a["cost"].shape != b["cost"].shape:
        raise InputError(
            f"corridor: {a['cost'].shape} and {b['cost'].shape} cells; compute both on one grid"
        )
    for name in ("cost_model", "connectivity"):
        if a.attrs.get(name) != b.attrs.get(name):
            raise InputError(
                f"corridor: {name} is {a.attrs.get(name)!r} and {b.attrs.get(name)!r}; "
                "compute both with the same"
            )
    total = a["cost"] + b["cost"]
    return total.rename("corridor").assign_attrs(long_name="least cost of a way through the cell")


class _Reader:
    """Back directions window by window; the last few windows are kept."""

    def __init__(self, directions: Raster) -> None:
        self._directions = directions
        self._side = directions.tile or READ_SIDE
        self._kept: dict[tuple[int, int], tuple[Window, npt.NDArray[np.uint8]]] = {}

    def trace(self, number: int, row: int, column: int) -> npt.NDArray[np.int64]:
        """Return the cells from that of a point, by its number, to its source.

        Ends: a way that goes on for ever goes round inside a window, or comes into one twice where
        it has come in before.
        """
        parts: list[npt.NDArray[np.int64]] = []
        entered: set[tuple[int, int]] = set()
        height, width = self._directions.shape
        while True:
            entered.add((row, column))
            window, codes = self._window(row, column)
            cells, how, outside = follow(codes, row - window.y, column - window.x)
            parts.append(cells + np.array([window.y, window.x]))
            if how == SOURCE:
                return np.concatenate(parts)
            y, x = parts[-1][-1].tolist()
            row, column = outside[0] + window.y, outside[1] + window.x
            if how == LOST or (row, column) in entered:
                raise InputError(
                    f"result: back directions of point {number} lead nowhere at row {y}, column "
                    f"{x}; is back_direction what cost_distance has written, whole?"
                )
            if not (0 <= row < height and 0 <= column < width):
                raise InputError(
                    f"result: the path of point {number} leaves it at row {y}, column {x}, towards "
                    f"row {row}, column {column}: it is a part of a result; give the whole one, or "
                    "a part with the way to the source"
                )

    def _window(self, row: int, column: int) -> tuple[Window, npt.NDArray[np.uint8]]:
        name = row // self._side, column // self._side
        if name not in self._kept:
            if len(self._kept) >= 64:
                self._kept.pop(next(iter(self._kept)))
            window = Window(name[0] * self._side, name[1] * self._side, self._side, self._side)
            window = window.clip(self._directions.shape)
            self._kept[name] = window, self._directions.read(window)
        return self._kept[name]
