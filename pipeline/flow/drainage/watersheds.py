"""The operation `watersheds`: the outlet that each cell drains to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from orograph.arguments.grids import check_same_grid
from orograph.arguments.sources import MOST_LABELS, is_raster, labelled_points
from orograph.flow.drainage.watershed_sweep import LabelledWatersheds, Watersheds
from orograph.flow.flow_problem import open_directions
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import refuse_arguments, shown
from orograph.tiles.arrays import Integers
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import Coordinates
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.marks import holds_mark, warn_once_read
from orograph.tiles.raster.points import PointsLike, cells_of
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.raster.snapping import (
    SnapLike,
    SnapRadius,
    distances_moved,
    nearest_of,
    parse_snap,
    window_around,
    within,
)
from orograph.tiles.vector.layer import read_layer

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@operation()
def watersheds(
    direction: RasterLike,
    outlets: PointsLike | RasterLike | None = None,
    *,
    label: str | None = None,
    snap: SnapLike = False,
    accumulation: RasterLike | None = None,
    codes: str | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the watershed of each cell: the label of the first outlet that its water passes.

    The outlets may be the links of a stream network: then these are the sub-basins of the links.

    Parameters
    ----------
    direction
    outlets : points, vector layer of points or raster, optional
        Outlets: points (x, y), any object with point geometries, or a raster of their labels on the
        same grid, such as ``link`` of `streams`, where the cells that are not 0 or nodata are
        outlets. By default every cell where water leaves the grid, flows into nodata or ends.
    label : str, optional
        Column of the vector layer with the labels of the outlets: integers, or names, which are
        numbered from 0 as they first occur and listed in the attribute ``source_names``. By default
        outlets are numbered from 0.
    snap : bool, int or str
        Move each outlet to the cell of the largest ``accumulation`` near it: True within 10 rows
        and columns, or within a number of them, or within a length such as ``"300 m"``. Among equal
        ones the nearest is chosen, and among these the first. The attribute ``snap_distances``
        tells how far, in metres.
    accumulation : raster, optional
        Accumulation as returned by `flow_accumulation`; needed for ``snap``.
    codes
    **options

    Returns
    -------
    xarray.Dataset
        ``watershed``, int64: the label of the outlet; -1 (``_FillValue``) where water passes no
        outlet, and on nodata. Without ``outlets``, watersheds are numbered from 1, in the row-major
        order of the cells where water ends, and ``watershed_count`` is an attribute. With
        points there is also a table of them: ``label``; ``parent``, the label of the next
        outlet that the water passes, or -1; ``outlet_x`` and ``outlet_y``.

    Raises
    ------
    InputError
        If an argument is invalid, an outlet lies outside the grid or on nodata, two outlets lie on
        one cell, a label of a raster is not a whole number from 1, a code is not one of ``codes``,
        or directions form a cycle without an outlet.
    StoreExistsError, BackendError

    Notes
    -----
    Outlets may lie upstream of one another: the watershed of an outlet contains the cells whose
    water does not pass another outlet first. Any tiling gives the same result.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> found = og.watersheds(og.flow_direction(valley), [(1, 1), (3, 1)])
    >>> found["watershed"].values
    array([[0, 0, 1, 1],
           [0, 0, 1, 1],
           [0, 0, 1, 1]])
    >>> found["parent"].values
    array([ 1, -1])
    >>> labels = np.array([[0, 0, 0, 0], [0, 5, 5, 6], [0, 0, 0, 0]])
    >>> og.watersheds(og.flow_direction(valley), labels)["watershed"].values
    array([[5, 5, 5, 6],
           [5, 5, 5, 6],
           [5, 5, 5, 6]])
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    reach = parse_snap(snap, raster.georeference)
    orientation = raster.georeference.orientation
    if read_layer(outlets, "outlets") is None and is_raster(outlets, raster.shape):
        labelled = open_raster(outlets, argument="outlets", usual=("link",))
        check_same_grid("outlets", labelled, raster)
        refuse_arguments(
            "a raster of outlets",
            label=label is not None,
            snap=bool(reach),
            accumulation=accumulation is not None,
        )
        warn_once_read(partial(_doubt_outlets, labelled), labelled)
        of_labels = LabelledWatersheds(
            *(code, None, None, None, None, labelled.nodata), orientation=orientation
        )
        return raster_job(of_labels, (raster, labelled), spec)
    if outlets is None and label is not None:
        raise InputError(f"label: {shown(label)}; it is a column of outlets; leave it out")
    if outlets is None and reach:
        raise InputError(f"snap: {shown(snap)}; it moves outlets; pass outlets=, or leave it out")
    if reach and accumulation is None:
        raise InputError(
            f"snap: {shown(snap)}; outlets are moved to the largest accumulation: pass "
            "accumulation= too"
        )
    if accumulation is not None and not reach:
        raise InputError("accumulation: used with snap= alone; pass that too, or leave it out")
    rows = columns = labels = names = None
    notes: dict[str, Any] = {}
    if outlets is not None:
        points, rows, columns, labels, names = _read_outlets(
            cast("PointsLike", outlets), raster, label
        )
        if names is not None:
            notes["source_names"] = names
        if accumulation is not None:
            amounts = open_raster(accumulation, argument="accumulation")
            check_same_grid("accumulation", amounts, raster)
            before = np.stack([rows, columns])
            rows, columns = _snap(rows, columns, amounts, reach)
            if len(points) <= MOST_LABELS:
                moved = distances_moved(points, rows, columns, before, raster.georeference)
                notes["snap_distances"] = moved.tolist()
        _refuse_same_cells(rows * raster.shape[1] + columns, raster.shape[1])
    problem = Watersheds(code, rows, columns, labels, names, orientation=orientation)
    return raster_job(problem, (raster,), spec, notes=notes)


def _read_outlets(
    outlets: PointsLike, raster: Raster, label: str | None
) -> tuple[Coordinates, Integers, Integers, Integers, list[str] | None]:
    """Return outlets, their cells and labels, and names if labels are numbers of names."""
    layer = read_layer(outlets, "outlets")
    if layer is None and label is not None:
        raise InputError(f"label: {shown(label)}; it is a column of a vector layer; leave it out")
    if layer is not None and layer.has_extent():
        raise InputError("outlets: lines or areas; give points, such as the ends of the lines")
    names = None
    if layer is not None and label is not None:
        layer, label, names = layer.numbered(label, "outlets")
    points, _, labels = labelled_points(outlets, layer, raster, label, "outlets")
    rows, columns = cells_of(points, raster.georeference, raster.shape, "outlets")
    return points, rows, columns, labels, names


def _snap(
    rows: Integers, columns: Integers, amounts: Raster, reach: SnapRadius
) -> tuple[Integers, Integers]:
    """Move each outlet to the cell of largest accumulation near it; return rows and columns."""
    moved = []
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        near = window_around(row, column, amounts, reach)
        cells = amounts.read(near)
        there = np.argwhere(valid_cells(cells, amounts.nodata)) + np.array([near.y, near.x])
        there = within(there, (row, column), amounts, reach)
        if not there.size:
            raise InputError(
                f"outlets: no accumulation within {reach.text} of row {row}, column {column}; "
                "move the point, or pass a larger snap="
            )
        found = cells[there[:, 0] - near.y, there[:, 1] - near.x]
        # Of equal accumulations the nearest cell.
        greatest = there[found == found.max()]
        moved.append(nearest_of(greatest, (row, column), amounts.georeference, reach))
    found = np.array(moved, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _refuse_same_cells(cells: Integers, width: int) -> None:
    """Raise InputError if two outlets lie on one cell."""
    # Of two outlets on one cell, one would have no watershed.
    order = np.argsort(cells, kind="stable")
    same = np.flatnonzero(np.diff(cells[order]) == 0)
    if same.size:
        first, second = order[same[0]], order[same[0] + 1]
        row, column = divmod(int(cells[first]), width)
        raise InputError(
            f"outlets: points {first} and {second} lie on one cell, row {row}, column {column}; "
            "leave one of them out"
        )


def _doubt_outlets(outlets: Raster, copies: Mapping[Raster, Raster]) -> str | None:
    if holds_mark(copies.get(outlets, outlets)):
        return None
    return "outlets: no cell is one, so that no water passes any; are the labels all 0?"
