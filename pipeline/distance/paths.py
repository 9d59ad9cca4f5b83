"""Trace least-cost paths back to their sources, and count them in each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.places import Places, least_of_each, parse_places, values_at
from orograph.distance.eikonal.job import EIKONAL
from orograph.distance.eikonal.path import FieldReader, line_on_map
from orograph.distance.strengths.attributes import SOURCE_RUNS
from orograph.distance.trace import PathReader
from orograph.kernels.shortest_path_tree.tile import NO_DIRECTION
from orograph.results.costs import COST, cost_variable
from orograph.results.names import name_labels
from orograph.results.opening import ResultLike, open_result
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError, OptionMissingError, own_errors
from orograph.tiles.grid.cf import encoding_of_place, georeference_of, with_read_coordinates
from orograph.tiles.grid.crs import parse_crs, same_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.from_xarray import choose_variable
from orograph.tiles.raster.points import PointsLike, coordinates_of
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.raster.snapping import SnapLike
from orograph.tiles.raster.wrap import states_wrap, turn_of
from orograph.tiles.vector.turns import over_poles, turns_of, unwound

if TYPE_CHECKING:
    import xarray as xr

UNREACHED = "cells that were not reached: barriers, or beyond barriers or max_cost"


@own_errors
def least_cost_path(
    result: ResultLike | Sequence[ResultLike],
    points: PointsLike,
    *,
    label: str | None = None,
    snap: SnapLike = False,
    outside: str = "error",
    unreachable: str = "error",
    all_touched: bool = False,
) -> LeastCostPaths:
    """Trace the least-cost paths from points, lines or areas back to their nearest sources.

    Parameters
    ----------
    result : Dataset or path
        Result of `cost_distance` or `walking_time` with ``"back_direction"`` among its outputs, or
        with ``cost="eikonal"``; or the path of its store or file. GeoTIFFs hold one raster each:
        give a list of them, costs first. Only the tiles that paths cross are read.
    points : points
        Points (x, y) in map coordinates, shape (n, 2), or a vector layer (a GeoDataFrame,
        geometries, the path of a file), which is transformed to the CRS of the result. A line or an
        area has one path, from the cell of least cost that it covers; among equal ones, the first
        row by row.
    label : str, optional
        Column of a vector layer with the names of its geometries, for `LeastCostPath.point`.
    snap : bool, int or str
        Move points on unreached cells to the nearest reached cell: True within 10 cells, or within
        a number of cells, or within a length such as ``"300 m"``.
    outside : {"error", "skip"}
        Refuse points, lines and areas outside the result, or skip them. `LeastCostPaths.outside`
        counts the skipped ones, and for paths without names `LeastCostPath.point` is the number of
        the point.
    unreachable : {"error", "skip"}
        Refuse points, lines and areas on unreached cells alone, or skip them.
        `LeastCostPaths.unreachable` counts the skipped ones; else as for ``outside``.
    all_touched : bool
        Include all cells that areas touch, not only those whose centres lie within.

    Returns
    -------
    LeastCostPaths
        A list with one path for each point. It can be written to a file (`LeastCostPaths.to_file`)
        and converted to a GeoDataFrame. If the result has an allocation, `LeastCostPath.source`
        tells which source each path leads to.

    Raises
    ------
    InputError
        If the result has no back directions, if points lie outside it or are unreached, if the
        result is a part of a larger one and a path leaves it, or if sources differ in strength
        (``source_cost``) and a path crosses cells that another source wins.

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
    dataset = open_result(result, "cost_distance")
    given: dict[str, Any] = {
        "label": label,
        "snap": snap,
        "outside": outside,
        "unreachable": unreachable,
        "all_touched": all_touched,
    }
    if dataset.attrs.get("cost_model") == EIKONAL:
        return _down(dataset, points, given)
    variable = cost_variable(dataset) or COST
    for name in (variable, "back_direction"):
        if name not in dataset.data_vars:
            raise InputError(
                f"result: it has no {name}; compute it with the outputs {variable} and "
                "back_direction"
            )
    codes = dataset["back_direction"]
    if codes.dtype != np.uint8 and codes.dtype.kind != "f":
        raise InputError(
            f"result: back_direction is {codes.dtype}, not uint8 nor a float that xarray has made "
            "of it (NaN where unreached); give what cost_distance has returned"
        )
    directions = open_raster(codes, nodata=NO_DIRECTION)
    costs = open_raster(dataset[variable])
    place = directions.georeference
    places = parse_places(points, directions, "points", barriers=UNREACHED, **given)
    turn = turn_of(directions) if states_wrap(directions) else None
    reader = PathReader(directions, dataset, place.orientation, wraps=turn is not None)
    allocation = open_raster(dataset["allocation"]) if "allocation" in dataset else None
    several = dataset.attrs.get(SOURCE_RUNS, 1) > 1
    if several and allocation is None:
        raise InputError(
            "result: its sources differ in strength, so a path may cross cells that another "
            f"source wins, which only an allocation shows; compute it with the outputs {variable}, "
            "back_direction and allocation"
        )
    paths = LeastCostPaths()
    paths.outside, paths.unreachable = places.skipped, places.unreachable
    ends = least_of_each(places, costs).tolist()
    starts = zip(ends, places.numbers.tolist(), _ends(places), strict=True)
    moved = [None] * len(places) if places.moved is None else places.moved.tolist()
    for ((row, column), number, point), snapped in zip(starts, moved, strict=True):
        cells, links = reader.trace(number, row, column)
        cost = costs.read(Window(row, column, 1, 1))[0, 0]
        coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
        line = unwound(coordinates, turn)
        over = over_poles(line, cells, directions.shape[1]) if any(reader.poles) else {}
        if links or over:
            line = line_of_path(line, links, over)
        source: Any = None
        if allocation is not None:
            source = allocation.read(Window(row, column, 1, 1))[0, 0].item()
            if several:
                _check_not_overtaken(number, cells, values_at(allocation, cells), source)
            source = (name_labels(dataset.attrs, [source]) or [source])[0]
        crossed = _crossed_by_knights(cells, links, directions.shape[1] if reader.wraps else None)
        paths.append(
            LeastCostPath(
                *(cells, coordinates, cost.item(), place.map_crs, line, point, source, crossed),
                *(snapped, turn),
            )
        )
    return paths


def _crossed_by_knights(
    cells: npt.NDArray[np.int64], links: Iterable[int], columns: int | None
) -> npt.NDArray[np.int64]:
    """Return the two cells that each knight's move of a path crosses, shape (n, 2).

    ``links`` are the places in the path from which it goes along a link; ``columns`` is the number
    of columns of a grid that wraps.
    """
    # A knight's move goes two cells along one axis and one along the other.
    if columns is not None:
        around = columns * turns_of(cells[:, 1], columns)
        cells = cells + np.stack([0 * around, around], 1)
    move = np.diff(cells, axis=0)
    long = np.abs(move) == 2
    knight = (np.abs(move).sum(axis=1) == 3) & long.any(axis=1)
    knight[[place for place in links if place < len(knight)]] = False
    begin, move, half = cells[:-1][knight], move[knight], move[knight] // 2 * long[knight]
    # halfway along the longer side, in the rows or columns of both ends
    crossed: npt.NDArray[np.int64] = np.concatenate([begin + half, begin + move - half])
    if columns is not None:
        crossed[:, 1] %= columns
    return crossed


def _check_not_overtaken(
    number: int, cells: npt.NDArray[np.int64], winners: npt.NDArray[Any], source: Any
) -> None:
    """Raise InputError if a path crosses cells that another source wins."""
    other = winners != source
    if other.any():
        at = int(other.argmax())
        row, column = cells[at].tolist()
        raise InputError(
            f"result: the path of point {number} to source {source} crosses row {row}, column "
            f"{column}, where source {winners[at]} wins, and the direction leads to that source; "
            f"compute cost_distance from source {source} alone, with the same source_cost"
        )


def _ends(places: Places) -> list[Any]:
    """Return the names of the points of paths, or their numbers if some were skipped."""
    if places.names is None and places.skipped is None and places.unreachable is None:
        return [None] * len(places)
    return places.numbers.tolist() if places.names is None else list(places.names)


def _down(dataset: xr.Dataset, points: PointsLike, given: dict[str, Any]) -> LeastCostPaths:
    """Trace paths from points down the costs of an eikonal result."""
    if "cost" not in dataset:
        raise InputError("result: it has no cost; give what cost_distance has returned")
    if dataset["cost"].dtype != np.float64:
        raise InputError(
            f"result: costs are {dataset['cost'].dtype}, too coarse to go down by them; compute "
            "them with dtype='float64'"
        )
    costs = open_raster(dataset["cost"])
    place = costs.georeference
    places = parse_places(points, costs, "points", barriers=UNREACHED, **given)
    reader = FieldReader(costs)
    paths = LeastCostPaths()
    paths.outside, paths.unreachable = places.skipped, places.unreachable
    ends = least_of_each(places, costs).tolist()
    moved = [None] * len(places) if places.moved is None else places.moved.tolist()
    for (row, column), point, snapped in zip(ends, _ends(places), moved, strict=True):
        cells, points_of_line = reader.trace(row, column)
        line = line_on_map(points_of_line, place)
        cost = costs.read(Window(row, column, 1, 1))[0, 0]
        coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
        path = LeastCostPath(
            *(cells, coordinates, cost.item(), place.map_crs, line, point), snap_distance=snapped
        )
        paths.append(path)
    return paths


def line_of_path(
    centres: npt.NDArray[np.float64],
    links: Mapping[int, npt.NDArray[np.float64]],
    over: Mapping[int, npt.NDArray[np.float64]],
) -> npt.NDArray[np.float64]:
    """Return the points of a path: ends of links where it uses them, else centres of cells.

    ``over`` are points by which it goes on to the next cell where no link leads there.
    """
    points: list[npt.NDArray[np.float64]] = []
    for i, centre in enumerate(centres):
        # A cell between two links has the end of one and the beginning of the next: a single point
        # if both links meet there.
        here = [links[i - 1][1]] if i - 1 in links else []
        if i in links and not (here and (here[0] == links[i][0]).all()):
            here.append(links[i][0])
        points += here or [centre]
        if i not in links:
            points += list(over.get(i, ()))
    return np.stack(points)


@own_errors
def path_mask(paths: Sequence[LeastCostPath], like: xr.Dataset | xr.DataArray) -> xr.DataArray:
    """Return a raster that counts the paths through each cell.

    A path with knight's moves (16 neighbours) also passes the two cells that each of them crosses.

    Parameters
    ----------
    paths : sequence of LeastCostPath
        Result of `least_cost_path`.
    like : Dataset or DataArray
        A raster or Dataset of the same grid.

    Returns
    -------
    xarray.DataArray
        uint32, shape (y, x), with the coordinates of ``like``.

    Raises
    ------
    InputError
        If ``like`` does not have two dimensions, or another grid or CRS than the paths.

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
        try:
            raster = like[cost_variable(like) or choose_variable(like, "like", None)]
        except OptionMissingError as error:
            raise InputError(error.without) from None
    if raster.ndim != 2:
        dims = ", ".join(map(str, raster.dims))
        raise InputError(
            f"like: it has {raster.ndim} dimensions ({dims}); give a raster of two, y and x, such "
            "as one from .isel(...)"
        )
    place = georeference_of(raster)
    count = np.zeros(raster.shape, np.uint32)
    if isinstance(paths, Mapping) or not isinstance(paths, Iterable):
        raise InputError(f"paths: {shown(paths)}; give a list of what least_cost_path returns")
    paths = list(paths)
    for number, path in enumerate(paths):
        if not isinstance(path, LeastCostPath):
            raise InputError(f"paths: {shown(path)} at {number}; give what least_cost_path returns")
    for number, path in enumerate(paths):
        _check_on_grid(number, path, place, count.shape)
        # A path counts once in a cell that two of its knight's moves cross.
        rows, columns = np.unique(np.concatenate([path.cells, path.crossed]), axis=0).T
        count[rows, columns] += 1
    # a value of no cell, with which rioxarray pads
    attrs = {"long_name": "least-cost paths in the cell", "nodata": np.iinfo(count.dtype).max}
    mask = xr.DataArray(count, raster.coords, raster.dims, "paths", attrs)
    mask.encoding = encoding_of_place(raster)
    return with_read_coordinates(mask)


def _check_on_grid(
    number: int, path: LeastCostPath, place: Georeference, shape: tuple[int, ...]
) -> None:
    """Raise InputError if a path was traced on another grid."""
    step = "give the raster that it was traced on, or one of the same grid"
    if path.crs is not None and place.map_crs is not None:
        theirs, ours = parse_crs(path.crs, "paths"), parse_crs(place.map_crs, "like")
        if not same_crs(theirs, ours):
            raise InputError(
                f"like: its CRS is {ours.name}, that of path {number} {theirs.name}; {step}"
            )
    outside = (path.cells < 0).any(axis=1) | (path.cells >= shape).any(axis=1)
    if outside.any():
        row, column = path.cells[int(outside.argmax())].tolist()
        raise InputError(
            f"paths: path {number} passes row {row}, column {column}, but like has {shape[0]} x "
            f"{shape[1]} cells; {step}"
        )
    here = coordinates_of(path.cells[:, 0], path.cells[:, 1], place)
    # Mean sides of cells, as coordinates need not be even; 1 without coordinates or of a single
    # cell.
    sides = [
        1.0 if axis is None or axis.size < 2 else abs(float(axis[-1] - axis[0])) / (axis.size - 1)
        for axis in (place.x, place.y)
    ]
    # Coordinates of one grid may differ by rounding, as after writing and reading: up to a
    # thousandth of a cell it is the same grid.
    off = (np.abs(here - path.coordinates) > 1e-3 * np.array(sides)).any(axis=1)
    if off.any():
        at = int(off.argmax())
        row, column = path.cells[at].tolist()
        there, at_like = (tuple(xy[at].tolist()) for xy in (path.coordinates, here))
        raise InputError(
            f"paths: path {number} has row {row}, column {column} at {there}, like at {at_like}; "
            f"{step}"
        )
