"""Move points to valid cells nearby, and tell how far they were moved."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import shown
from orograph.tiles.arrays import Indices
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import Coordinates
from orograph.tiles.grid.georeference import Georeference, parse_wkt
from orograph.tiles.grid.lengths import warn_of_web_mercator
from orograph.tiles.grid.units import ellipsoid_of, parse_length_unit
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.points import coordinates_of, list_points
from orograph.tiles.raster.raster import Raster

SnapLike = bool | int | str
"""Distance within which points are moved: True, a number of cells, or a length with its unit."""
SNAP_CELLS = 10
READ_SIDE = 512
_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z][\w .-]*)")


class SnapRadius(NamedTuple):
    """A radius within which points may be moved."""

    cells: int | None
    """Radius in rows and in columns; None: ``metres`` counts."""
    metres: float
    """Radius on the ground in metres; 0 if ``cells`` counts."""
    text: str
    """Radius in words, for messages."""

    def __bool__(self) -> bool:
        return bool(self.cells or self.metres)


ROUNDING = 2.0**-40
"""Relative error of a distance, at most."""
OF_COORDINATES = 2.0**-49
"""Relative error of coordinates, of some roundings."""
DEGREE = 111_700.0
"""Length of the longest degree of a meridian in metres, on the ellipsoid of the Earth."""


def parse_snap(snap: SnapLike, place: Georeference | None) -> SnapRadius:
    """Return how far points on a grid may be moved by the argument ``snap``.

    ``place`` is None to check the argument before there is a grid.

    Raises
    ------
    InputError
        If it is nothing of the kind, or nothing tells the unit of the grid.
    """
    if isinstance(snap, str):
        length = _LENGTH.fullmatch(snap)
        unit = parse_length_unit(length[2]) if length else None
        if length is None or unit is None:
            raise InputError(
                f"snap: {shown(snap)}; it must be True, False, a whole number of cells, or a "
                "length with its unit, such as '300 m'"
            )
        if place is not None and place.length_unit is None:
            raise InputError(
                f"snap: {shown(snap)}, but nothing tells the unit of the grid, which has no CRS; "
                "pass a number of cells"
            )
        if place is not None:
            warn_of_web_mercator(place)
        # A cell just as far away counts, whatever its distance and coordinates are rounded to.
        radius = float(length[1]) * unit.metres * (1 + ROUNDING)
        if place is not None:
            axes = [axis for axis in (place.y, place.x) if axis is not None]
            farthest = max((float(np.abs(axis).max()) for axis in axes), default=0.0)
            metres = DEGREE if place.in_degrees else place.metres
            radius += OF_COORDINATES * farthest * metres
        return SnapRadius(None, radius, f"{length[1]} {unit.name}")
    if isinstance(snap, bool | np.bool_):
        snap = SNAP_CELLS if snap else 0
    if not isinstance(snap, Integral) or not 0 <= snap <= LONGEST_SIDE:
        raise InputError(
            f"snap: {shown(snap)}; it must be True, False, a whole number of cells, 0 to "
            f"{LONGEST_SIDE}, or a length with its unit, such as '300 m'"
        )
    return SnapRadius(int(snap), 0.0, f"{int(snap)} cells")


def snap_to_valid(
    rows: Indices,
    columns: Indices,
    raster: Raster,
    points: Coordinates,
    snap: SnapRadius,
    name: str,
    what: str = "nodata",
) -> tuple[Indices, Indices]:
    """Move each cell to the nearest valid cell, as `nearest_valid` does; return rows and columns.

    Parameters
    ----------
    rows, columns, raster, snap
        As of `nearest_valid`.
    points
        Points that the cells were computed from, for the message.
    name
        Name of the argument, for the message.
    what
        Description of cells that are not valid, for the message.

    Raises
    ------
    InputError
        If a cell has no valid cell within ``snap``; the message lists the first few.
    """
    rows, columns, lost = nearest_valid(rows, columns, raster, snap)
    if lost.size:
        step = "move it or pass snap=True"
        if snap:
            step = f"and no valid cell within {snap.text}: raise snap="
        raise InputError(f"{name}: {list_points(points, lost)} on {what}; {step}")
    return rows, columns


def nearest_valid(
    rows: Indices, columns: Indices, raster: Raster, snap: SnapRadius
) -> tuple[Indices, Indices, Indices]:
    """Move each cell to the nearest valid cell; return rows, columns, and which have none.

    Parameters
    ----------
    rows, columns
        The cells.
    raster
        Raster whose valid cells count.
    snap
        Within which a valid cell is searched. Of equally near cells the northernmost is taken, of
        these the westernmost.
    """
    rows, columns = rows.copy(), columns.copy()
    lost = []
    side = raster.tile or READ_SIDE
    # Sorted by tile, so that each tile is read once.
    order = np.lexsort((columns // side, rows // side))
    tile, around = (_ValidityCache(raster) for _ in range(2))
    for i in order[~_are_valid(rows[order], columns[order], side, tile)].tolist():
        row, column = int(rows[i]), int(columns[i])
        near = window_around(row, column, raster, snap)
        y, x = row // side * side, column // side * side
        window, mask = Window(y, x, side, side).clip(raster.shape), tile
        if near.overlap(window) != near:
            # the cells around the tile are read only here, since few points need them
            high, wide = _sides(row, raster, snap)
            window = Window(y - high, x - wide, side + 2 * high, side + 2 * wide)
            window, mask = window.clip(raster.shape), around
        valid = mask.read(window)[near.within(window)]
        found = np.argwhere(valid) + np.array([near.y, near.x])
        found = within(found, (row, column), raster, snap)
        if not found.size:
            lost.append(i)
            continue
        rows[i], columns[i] = nearest_of(found, (row, column), raster.georeference, snap)
    return rows, columns, np.sort(np.array(lost, np.int64))


def window_around(row: int, column: int, raster: Raster, snap: SnapRadius) -> Window:
    """Return the cells in which those within ``snap`` of a cell lie."""
    high, wide = _sides(row, raster, snap)
    found = Window(row - high, column - wide, 2 * high + 1, 2 * wide + 1)
    return found.clip(raster.shape)


def within(cells: Indices, cell: tuple[int, int], raster: Raster, snap: SnapRadius) -> Indices:
    """Return the cells, shape (n, 2), that are within ``snap`` of a cell."""
    if snap.cells is not None or not cells.size:
        return cells
    near: Indices = cells[_distances(cells, cell, raster.georeference) <= snap.metres]
    return near


def nearest_of(
    cells: Indices, cell: tuple[int, int], place: Georeference, snap: SnapRadius
) -> Indices:
    """Return the nearest to a cell of some cells, shape (n, 2), as ``snap`` counts.

    Of equally near ones the northernmost, and of these the westernmost.
    """
    # How far south and east each cell is on the compass. lexsort takes the last key first: the
    # distance, then the row, then the column.
    off = (cells - cell) * place.orientation
    far = (off**2).sum(axis=1) if snap.cells is not None else _distances(cells, cell, place)
    nearest: Indices = cells[np.lexsort((*off.T[::-1], far))[0]]
    return nearest


def distances_moved(
    points: Coordinates, rows: Indices, columns: Indices, before: Indices, place: Georeference
) -> npt.NDArray[np.float64]:
    """Return how far each point lies from the centre of the cell that it was moved to.

    In metres, in the unit of the coordinates where that is not known; 0 where the cell is the one
    in ``before``, shape (2, n).
    """
    moved = np.flatnonzero((np.stack([rows, columns]) != before).any(axis=0))
    found = np.zeros(len(points))
    to = coordinates_of(rows[moved], columns[moved], place)
    found[moved] = _lengths(points[moved], to, place)
    return found


def _distances(
    cells: Indices, cell: tuple[int, int], place: Georeference
) -> npt.NDArray[np.float64]:
    """Return the distances of cells, shape (n, 2), from a cell, between centres, in metres."""
    at = coordinates_of(np.array(cell[:1]), np.array(cell[1:]), place)
    to = coordinates_of(cells[:, 0], cells[:, 1], place)
    return _lengths(np.broadcast_to(at, to.shape), to, place)


def _lengths(begin: Coordinates, end: Coordinates, place: Georeference) -> npt.NDArray[np.float64]:
    """Return the lengths between points in metres, or in the unit of the coordinates."""
    if place.in_degrees:
        return np.asarray(_ellipsoid(place).inv(*begin.T, *end.T)[2])
    lengths: npt.NDArray[np.float64] = np.hypot(*(end - begin).T)
    return lengths * place.metres


def _ellipsoid(place: Georeference) -> Any:
    return ellipsoid_of(None if place.crs_wkt is None else parse_wkt(place.crs_wkt))


def _sides(row: int, raster: Raster, snap: SnapRadius) -> tuple[int, int]:
    """Return how many rows and columns, or more, are within ``snap`` of a cell of a row."""
    if snap.cells is not None:
        return snap.cells, snap.cells
    place, metres = raster.georeference, snap.metres
    axes = [np.zeros(1) if axis is None else axis for axis in (place.y, place.x)]
    sides = place.side_lengths or tuple(float(np.abs(np.diff(axis)).min()) for axis in axes)
    high, wide = (side * place.metres for side in sides)
    if place.in_degrees:
        # shorter than any degree of a meridian, so that the bounds are not too small
        degree = 0.99 * math.radians(1) * _ellipsoid(place).b
        # A degree of longitude is shortest where the radius reaches farthest from the equator.
        farthest = min(abs(float(axes[0][row])) + metres / degree, 90.0)
        high, wide = sides[0] * degree, sides[1] * degree * math.cos(math.radians(farthest))
    least = metres / max(raster.shape)  # at the most all rows or columns
    return math.ceil(metres / max(high, least)), math.ceil(metres / max(wide, least))


def _are_valid(
    rows: Indices, columns: Indices, side: int, tile: _ValidityCache
) -> npt.NDArray[np.bool_]:
    """Return whether cells are valid; they are in the order of their tiles."""
    found = np.zeros(rows.size, np.bool_)
    corner = np.stack([rows, columns]) // side * side
    # Runs of cells in the same tile.
    begins = np.flatnonzero(np.append(True, (np.diff(corner) != 0).any(axis=0))[: rows.size])
    for begin, end in pairwise([*begins.tolist(), rows.size]):
        y, x = corner[:, begin].tolist()
        valid = tile.read(Window(y, x, side, side))
        found[begin:end] = valid[rows[begin:end] - y, columns[begin:end] - x]
    return found


class _ValidityCache:
    """Mask of the valid cells in the window that was read last."""

    def __init__(self, raster: Raster) -> None:
        self._raster = raster
        self._window: Window | None = None
        self._valid = np.empty((0, 0), np.bool_)

    def read(self, window: Window) -> npt.NDArray[np.bool_]:
        """Return a mask of a window's valid cells, reading the raster only if it is new."""
        window = window.clip(self._raster.shape)
        if window != self._window:
            cells = self._raster.read(window)
            self._window, self._valid = window, valid_cells(cells, self._raster.nodata)
        return self._valid
