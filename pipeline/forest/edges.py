"""Convert the edges of a forest to lines on the map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orograph.tiles.errors import InputError, own_errors, report_missing
from orograph.tiles.grid.border import DIRECTION_STEPS
from orograph.tiles.grid.window import Window, parse_window
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.raster.wrap import states_wrap, turn_of
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.vector.turns import lines_of

if TYPE_CHECKING:
    import os

    import xarray as xr

MOST_CELLS = 2**24


@own_errors
def forest_lines(
    forest: xr.Dataset | xr.DataArray | str | os.PathLike[str],
    window: Window | tuple[int, int, int, int] | None = None,
) -> VectorLayer:
    """Return the edges of a forest as lines from cell centre to cell centre.

    Parameters
    ----------
    forest : Dataset, DataArray or path
        Result of `minimum_spanning_forest`, its variable ``edges``, or the path of its store. Only
        the window is read.
    window : (int, int, int, int), optional
        Window of cells whose edges are returned: first row, first column, rows and columns. By
        default all cells, if there are at most 2**24.

    Returns
    -------
    VectorLayer
        One line for each edge between two cells of the window, in the CRS of the forest, in
        row-major order of its first cell. The columns ``row`` and ``column`` are the position of
        that cell.

    Raises
    ------
    InputError
        If the argument has no edges, or the window lies outside the grid or is too large.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> forest = og.minimum_spanning_forest(np.array([[1, 5, 2], [9, 9, 2]]))
    >>> lines = og.forest_lines(forest, window=(0, 0, 1, 3))
    >>> [line.wkt for line in lines.geometry]
    ['LINESTRING (0 0, 1 0)', 'LINESTRING (1 0, 2 0)']
    """
    with report_missing("forest_lines", "shapely"):
        import shapely  # noqa: F401
    raster = open_raster(forest, usual=("edges",), argument="forest")
    # xarray makes floats of masked integers, and keeps their attributes
    masked = raster.dtype.kind == "f" and "flag_meanings" in raster.attrs
    if raster.dtype != np.uint8 and not masked:
        raise _not_edges(str(raster.dtype))
    part = parse_window(window, raster.shape)
    if part.size > MOST_CELLS:
        raise InputError(
            f"window: {part.height} x {part.width} cells; at most {MOST_CELLS} become lines at "
            "once: give a window (first row, first column, rows, columns)"
        )
    edges, place = raster.read(part), raster.georeference
    if masked:  # NaN where nodata was
        edges = np.where(np.isnan(edges), 0, edges)
        if not np.isin(edges, range(1 << len(DIRECTION_STEPS))).all():
            raise _not_edges(f"{edges.dtype}, from {edges.min():g} to {edges.max():g}")
        edges = edges.astype(np.uint8)
    # In a part of the columns of a raster that wraps nothing leads over the seam.
    turn = turn_of(raster) if states_wrap(raster) and part.width == raster.shape[1] else None
    firsts, seconds = [], []
    for direction, (dy, dx) in enumerate(DIRECTION_STEPS):
        cells = np.argwhere(edges >> direction & 1)
        # Steps are those of the compass, by which the edges of a cell are named.
        other = cells + np.array([dy, dx]) * place.orientation
        if turn is not None:
            other[:, 1] %= part.width
        # An edge that leads out of the window belongs to a larger one.
        inside = ((other >= 0) & (other < part.shape)).all(axis=1)
        firsts.append(cells[inside])
        seconds.append(other[inside])
    start, end = np.concatenate(firsts), np.concatenate(seconds)
    # By first cells, row by row; a stable sort keeps the directions of one cell in order.
    order = np.lexsort((start[:, 1], start[:, 0]))
    corner = np.array([part.y, part.x])
    start, end = start[order] + corner, end[order] + corner
    ends = [coordinates_of(cells[:, 0], cells[:, 1], place) for cells in (start, end)]
    lines = lines_of(np.stack(ends, axis=1).reshape(-1, 2), np.full(len(start), 2), turn)
    columns = {"row": start[:, 0], "column": start[:, 1]}
    return VectorLayer(lines, columns, place.map_crs)


def _not_edges(what: str) -> InputError:
    return InputError(
        f"forest: its edges are {what}; give what minimum_spanning_forest has returned"
    )
