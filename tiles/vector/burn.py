"""Rasterize geometries into spans of cells, identically for any window of a grid.

Coordinates are those of the grid's cells: cell (row, column) is the square from (column, row) to
(column + 1, row + 1). A line takes every cell that it passes, joined by edges: no path of 4, 8 or
16 neighbours slips through between them. An area takes the cells whose centre lies in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orograph.tiles.arrays import Indices, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.vector.layer import Geometries, VectorLayer

CORNER = 1e-6
"""Length in cells below which a line that passes a cell passes its corner."""


class Spans(NamedTuple):
    """Runs of cells, from ``start`` up to ``stop`` of a row, with the index of their geometry."""

    row: Indices
    start: Indices
    stop: Indices
    number: Indices


def burn(
    layer: VectorLayer,
    place: Georeference,
    shape: tuple[int, int],
    all_touched: bool,
    name: str,
    partly: bool = False,
) -> Spans:
    """Return the cells that the geometries of a layer cover, as spans.

    Parameters
    ----------
    layer
        In the CRS of the grid.
    place, shape
        The grid.
    all_touched
        Take all cells that an area touches, not those alone whose centre lies in it.
    name
        Name of the argument, for messages.
    partly
        Leave out geometries that cover no cell, unless none covers any.

    Raises
    ------
    InputError
        If a geometry covers no cell, or cells are not evenly spaced.
    """
    from shapely import get_dimensions, transform

    in_cells = transform(layer.geometry, lambda points: cell_space(points, place, name))
    turned, of = _turned(in_cells, place, shape)
    parts, number = simple_parts(turned)
    number = of[number]
    kind = get_dimensions(parts)
    found = [
        _points(parts[kind == 0], number[kind == 0], shape),
        _lines(parts[kind == 1], number[kind == 1], shape),
        _areas(parts[kind == 2], number[kind == 2], shape),
    ]
    if all_touched:
        from shapely import boundary

        edges, of = simple_parts(boundary(parts[kind == 2]))
        found.append(_lines(edges, number[kind == 2][of], shape))
    spans = Spans(*(np.concatenate(column) for column in zip(*found)))
    if not (partly and spans.row.size):
        _refuse_lost(spans, layer, in_cells, shape, name)
    return spans


def _refuse_lost(
    spans: Spans, layer: VectorLayer, in_cells: Geometries, shape: tuple[int, int], name: str
) -> None:
    """Raise InputError if a geometry covers no cell, naming the first."""
    from shapely import box, intersects

    lost = np.bincount(spans.number, minlength=len(layer)) == 0
    if not lost.any():
        return
    number = int(lost.argmax())
    geometry = layer.geometry[number]
    low_x, low_y, high_x, high_y = geometry.bounds
    where = f"x = {low_x:.10g} to {high_x:.10g}, y = {low_y:.10g} to {high_y:.10g}"
    more = f" (and {lost.sum() - 1} more)" if lost.sum() > 1 else ""
    if intersects(in_cells[number], box(0, 0, shape[1], shape[0])):
        raise InputError(
            f"{name}: geometry {number}, a {geometry.geom_type} of {where}, covers the centre of "
            f"no cell{more}; pass all_touched=True, or give a point of it"
        )
    raise InputError(
        f"{name}: geometry {number}, a {geometry.geom_type} of {where}, lies outside the grid"
        f"{more}; leave it out, or check its CRS"
    )


def cell_space(points: Reals, place: Georeference, name: str) -> Reals:
    """Convert map points (x, y) to fractional (column, row); integers are cell corners."""
    if place.x is None:
        # Without coordinates whole numbers are the centres of cells.
        return points + 0.5
    across = place.transform
    if across is None:
        raise InputError(
            f"{name}: coordinates of the raster are not evenly spaced: lines and areas cannot be "
            "brought to it; give points"
        )
    inside: Reals = (points - (across.c, across.f)) / (across.a, across.e)
    return inside


def _turned(
    geometries: Geometries, place: Georeference, shape: tuple[int, int]
) -> tuple[Geometries, Indices]:
    """Append what meets a grid of degrees once more, turned by 360, with the source indices."""
    from shapely import bounds, transform

    every, numbers = [geometries], [np.arange(len(geometries))]
    if place.in_degrees and place.transform is not None:
        low, _, high, _ = bounds(geometries).T
        # Columns in a turn of 360 degrees.
        around = abs(360 / place.transform.a)
        for by in (around, -around):
            (again,) = np.nonzero((low + by < shape[1]) & (high + by > 0))
            every.append(transform(geometries[again], (np.array([by, 0.0])).__add__))
            numbers.append(again)
    return np.concatenate(every), np.concatenate(numbers)


def simple_parts(geometries: Geometries) -> tuple[Geometries, Indices]:
    """Split geometries into points, lines and polygons, with the source index of each."""
    from shapely import get_parts, get_type_id

    parts, number = get_parts(geometries, return_index=True)
    # Shapely's types up to 3 are point, line, ring and polygon.
    while (get_type_id(parts) > 3).any():  # collections may hold collections
        parts, of = get_parts(parts, return_index=True)
        number = number[of]
    return parts, np.asarray(number, np.int64)


def _cells(column: Indices, row: Indices, number: Indices, shape: tuple[int, int]) -> Spans:
    """Make spans of single cells, dropping duplicates and cells outside the grid."""
    inside = (column >= 0) & (column < shape[1]) & (row >= 0) & (row < shape[0])
    every = np.stack([number[inside], row[inside], column[inside]])
    number, row, column = np.unique(every, axis=1)
    return Spans(row, column, column + 1, number)


def _floor(values: Reals, length: int) -> Indices:
    """Return the index of the cell that contains each value along an axis."""
    cells = np.floor(values)
    # The far edge of the grid belongs to its last cell. Cells outside become -1 or `length`, which
    # `_cells` leaves out.
    return np.where(values == length, length - 1, cells.clip(-1, length)).astype(np.int64)


def _points(points: Geometries, number: Indices, shape: tuple[int, int]) -> Spans:
    from shapely import get_coordinates

    at = get_coordinates(points)
    return _cells(_floor(at[:, 0], shape[1]), _floor(at[:, 1], shape[0]), number, shape)


def _lines(lines: Geometries, number: Indices, shape: tuple[int, int]) -> Spans:
    """Return the cells that lines pass through, connected by edges."""
    from shapely import clip_by_rect, get_coordinates, is_empty

    # what is far away would be many cells
    near, of = simple_parts(clip_by_rect(lines, -1, -1, shape[1] + 1, shape[0] + 1))
    near, of = near[~is_empty(near)], of[~is_empty(near)]
    points, line = get_coordinates(near, return_index=True)
    at, own = _passed(points, line, shape)
    column, row, own = join_corners(_floor(at[:, 0], shape[1]), _floor(at[:, 1], shape[0]), own)
    return _cells(column, row, number[of[own]], shape)


def chains(
    lines: Geometries, place: Georeference, shape: tuple[int, int], wraps: bool, name: str
) -> tuple[Indices, Indices, Indices, Indices]:
    """Return the cells that lines pass, in their order: column, row and number of the chain.

    And the index of the line of each chain. Consecutive cells of a chain share an edge or a corner.
    Beyond the grid columns and rows are -1 or their number. On a grid that ``wraps``, columns go
    around; on another of degrees what comes back from beyond an edge is a chain of its own.
    """
    from shapely import get_coordinates, transform

    in_cells = transform(lines, lambda points: cell_space(points, place, name))
    of = np.arange(len(lines))
    if not wraps:
        in_cells, of = _turned(in_cells, place, shape)
    points, line = get_coordinates(in_cells, return_index=True)
    # On borders of cells ties go by the compass, in whichever order rows and columns are stored.
    south, east = place.orientation
    points = np.where((east < 0, south < 0), np.array(shape[::-1]) - points, points)
    if wraps:
        west = np.full(len(lines), np.inf)
        np.minimum.at(west, line, points[:, 0])
        points[:, 0] -= (np.floor(west / shape[1]) * shape[1])[line]
    # At a corner a third cell is passed only by rounding.
    at, own = _passed(points, line, (shape[0], 2 * shape[1]) if wraps else shape, CORNER)
    # The cell of the last point too, which on a border is that of another line that begins there.
    last = np.flatnonzero(np.append(line[1:] != line[:-1], True))
    at = np.concatenate([at, points[last]])
    order = np.argsort(np.concatenate([own, line[last]]), kind="stable")
    at, own = at[order], np.concatenate([own, line[last]])[order]
    row = _floor(at[:, 1], shape[0])
    if wraps:
        column = np.floor(at[:, 0]).astype(np.int64) % shape[1]
    else:
        column = _floor(at[:, 0], shape[1])
    new = np.ones(len(own), np.bool_)
    new[1:] = (own[1:] != own[:-1]) | (column[1:] != column[:-1]) | (row[1:] != row[:-1])
    column, row = column[new], row[new]
    column = shape[1] - 1 - column if east < 0 else column
    row = shape[0] - 1 - row if south < 0 else row
    return column, row, own[new], of


def join_corners(column: Indices, row: Indices, own: Indices) -> tuple[Indices, Indices, Indices]:
    """Insert a cell where consecutive cells of a line meet at a corner only.

    That in the row of the first and the column of the second joins them by edges.
    """
    after = np.flatnonzero(
        (own[1:] == own[:-1]) & (column[1:] != column[:-1]) & (row[1:] != row[:-1])
    )
    return (
        np.insert(column, after + 1, column[after + 1]),
        np.insert(row, after + 1, row[after]),
        np.insert(own, after + 1, own[after]),
    )


def _passed(
    points: Reals, line: Indices, shape: tuple[int, int], least: float = 0
) -> tuple[Reals, Indices]:
    """Return a point in each cell that lines pass, in their order, and the line of each.

    What is shorter than ``least``, in cells, is left out.
    """
    same = line[1:] == line[:-1]
    start, end = points[:-1][same], points[1:][same]
    segment, share = _crossings(start, end, shape)
    # Between two crossings a segment stays in one cell, which is that of the point halfway.
    middle = (share[1:] + share[:-1]) / 2
    size = np.diff(share) * abs(end - start).max(axis=1)[segment[1:]]
    within = (segment[1:] == segment[:-1]) & (size >= least)
    segment, middle = segment[1:][within], middle[within, None]
    return start[segment] * (1 - middle) + end[segment] * middle, line[:-1][same][segment]


def _crossings(start: Reals, end: Reals, shape: tuple[int, int]) -> tuple[Indices, Reals]:
    """Return the fractions of each segment at which it crosses cell boundaries, with both ends.

    Those in the grid, and its edges.
    """
    segments = np.arange(len(start))
    number, share = [segments, segments], [np.zeros(len(start)), np.ones(len(start))]
    for axis in (0, 1):
        low = np.minimum(start[:, axis], end[:, axis])
        high = np.maximum(start[:, axis], end[:, axis])
        # Boundaries of cells are at whole numbers; those strictly between the two ends are crossed.
        first = np.maximum(np.floor(low) + 1, 0)
        last = np.minimum(np.ceil(high), shape[1 - axis] + 1)
        of, line = _runs(first, np.maximum(last - first, 0))
        number.append(of)
        share.append((line - start[of, axis]) / (end[of, axis] - start[of, axis]))
    every, shares = np.concatenate(number), np.concatenate(share)
    order = np.lexsort((shares, every))
    return every[order], shares[order]


def _runs(first: Reals, count: Reals) -> tuple[Indices, Reals]:
    """Return ``count`` consecutive numbers from each ``first`` on, and the run of each number."""
    counts = count.astype(np.int64)
    of = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return of, first[of] + (np.arange(len(of)) - before[of])


def _areas(areas: Geometries, number: Indices, shape: tuple[int, int]) -> Spans:
    """Return the cells whose centres lie in polygons, by scanning rows."""
    from shapely import get_coordinates, get_rings

    rings, area = get_rings(areas, return_index=True)
    points, ring = get_coordinates(rings, return_index=True)
    same = ring[1:] == ring[:-1]
    start, end, own = points[:-1][same], points[1:][same], area[ring[:-1][same]]
    # upwards, so that an edge that two areas share is crossed at the same place
    turned = start[:, 1] > end[:, 1]
    start[turned], end[turned] = end[turned], start[turned]
    # Rows whose centre lies from the lower end, included, to the upper one, excluded. So where two
    # edges meet at the height of a centre, an outline that goes on is crossed once.
    first = np.maximum(np.ceil(start[:, 1] - 0.5), 0)
    last = np.minimum(np.ceil(end[:, 1] - 0.5), shape[0])
    edge, row = _runs(first, np.maximum(last - first, 0))
    (x1, y1), (x2, y2) = start[edge].T, end[edge].T
    x = x1 + (row + 0.5 - y1) * (x2 - x1) / (y2 - y1)
    owner = own[edge]
    order = np.lexsort((x, row, owner))
    x, row, owner = x[order], row[order].astype(np.int64), owner[order]
    # Even-odd rule: in a row the crossings of an area are in pairs, with its inside between the
    # two. A bound is the first cell whose centre is not left of the crossing.
    bounds = np.ceil(x - 0.5).clip(0, shape[1]).astype(np.int64)
    begin, stop = bounds[::2], bounds[1::2]
    some = begin < stop
    return Spans(row[::2][some], begin[some], stop[some], number[owner[::2][some]])
