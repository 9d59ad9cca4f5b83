"""Trace least-cost paths back to their sources, and compute corridors between two sources."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.grids import check_same_place
from orograph.arguments.sources import snap_cells
from orograph.distance.trace import PathReader
from orograph.kernels.relax.models import MODELS
from orograph.kernels.shortest_path_tree.tile import NO_DIRECTION
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.from_xarray import choose_variable
from orograph.tiles.raster.points import as_points, cells_of, coordinates_of, snap_to_valid
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.dataset import as_dataset

if TYPE_CHECKING:
    import xarray as xr


def least_cost_path(
    result: xr.Dataset | str | os.PathLike[str], points: Any, *, snap: bool | int = False
) -> LeastCostPaths:
    """Trace the least-cost paths from points back to their nearest sources.

    Parameters
    ----------
    result : Dataset or path
        What `cost_distance` or `walking_time` has returned with ``"back_direction"`` among its
        outputs, or the path of its store. Only the tiles that paths cross are read.
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
        cells, links = reader.trace(number, row, column)
        cost = costs.read(Window(row, column, 1, 1))[0, 0]
        coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
        line = _line(coordinates, links) if links else coordinates
        paths.append(LeastCostPath(cells, coordinates, cost.item(), place.map_crs, line))
    return paths


def _line(
    centres: npt.NDArray[np.float64], links: Mapping[int, npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Return the points of a path: ends of links where it goes along them, else cells' centres."""
    points: list[npt.NDArray[np.float64]] = []
    for i, centre in enumerate(centres):
        here = [links[i - 1][1]] if i - 1 in links else []
        if i in links and not (here and (here[0] == links[i][0]).all()):
            here.append(links[i][0])
        points += here or [centre]
    return np.stack(points)


def path_mask(paths: Sequence[LeastCostPath], like: xr.Dataset | xr.DataArray) -> xr.DataArray:
    """Return a raster that counts the paths through each cell.

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
    """Raise InputError if a path was traced on another grid."""
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
        Results of `cost_distance`, or both of `walking_time`, from the two, on one grid and with
        one cost model. Of walking times one is ``"from"`` the sources where ways begin, the other
        ``"to"`` those where they end.

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
            f"corridor: direction is {ways[0]!r} and {ways[1]!r}; with the model "
            f"{a.attrs['cost_model']!r} compute one with direction='from', from where ways begin, "
            "and the other with direction='to'"
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
    """Return an attribute value as a scalar or a list, whatever type the file gave it."""
    values = np.ravel(value).tolist()
    return values[0] if len(values) == 1 else values


def _check_equal(name: str, one: Any, other: Any) -> None:
    numbers = all(np.asarray(value).dtype.kind in "iuf" for value in (one, other))
    # the cell size of one grid may be known by a transform here and by coordinates there
    same = numbers and np.shape(one) == np.shape(other) and np.allclose(one, other, 1e-9, 0)
    if not same and one != other:
        raise InputError(f"corridor: {name} is {one!r} and {other!r}; compute both with the same")
