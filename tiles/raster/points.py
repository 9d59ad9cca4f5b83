"""Convert between map coordinates and cells of a grid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import check_path
from orograph.tiles.arrays import Indices
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import Coordinates
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.vector.layer import VectorLayer, VectorLike, read_layer


class HasXY(Protocol):
    """A point with its coordinates as attributes, or columns of such."""

    @property
    def x(self) -> npt.ArrayLike:
        """The first coordinate."""

    @property
    def y(self) -> npt.ArrayLike:
        """The second coordinate."""


PointsLike = npt.ArrayLike | HasXY | Sequence[HasXY] | VectorLike
"""Points: one (x, y) or several, objects with ``x`` and ``y``, or a vector layer of points."""

MOST_LISTED = 5
_NO_NUMBERS = str | bytes | bool | np.bool_


def as_points(points: PointsLike, name: str, place: Georeference) -> Coordinates:
    """Convert points or a layer of points to an array of x and y in the raster's CRS.

    Parameters
    ----------
    points
        Shape (n, 2), x and y; or one point (x, y); or a vector layer of points (see `read_layer`),
        reprojected from its CRS to that of the raster; or a sequence of objects with ``x`` and
        ``y``. Only vector layers have a CRS of their own. Longitudes are turned by 360 degrees
        where they then lie in the grid.
    name
        Name of the argument, for the message.
    place
        Georeference of the raster.

    Returns
    -------
    (n, 2) float64 array

    Raises
    ------
    InputError
        If there are no points, geometries other than points, coordinates that are not finite, or
        if only one of layer and raster has a CRS.
    """
    layer = read_layer(points, name)
    if layer is not None:
        return _points_of(layer.on_grid(place, name), name)
    # A DataArray may have coordinates x and y too: its values are the points.
    if hasattr(points, "x") and hasattr(points, "y") and not hasattr(points, "dims"):
        given: object = np.stack([np.atleast_1d(points.x), np.atleast_1d(points.y)], axis=1)
    elif isinstance(points, Sequence) and points and hasattr(points[0], "x"):
        several: Sequence[Any] = points
        try:
            given = [(point.x, point.y) for point in several]
        except AttributeError as error:
            raise InputError(f"{name}: {error}; give points, each as (x, y)") from None
    else:
        given = points
    array = _as_numbers(given, name)
    if array.ndim != 2 or array.shape[1] != 2 or array.shape[0] == 0:
        raise InputError(f"{name}: shape {array.shape}; give at least one point, each as (x, y)")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        at = int(np.argmin(finite))
        raise InputError(f"{name}: point {at} is {tuple(array[at].tolist())}; it must be finite")
    turn = place.turns(array[:, 0], array[:, 0])
    return array + np.stack([turn, np.zeros(len(turn))], axis=1) if turn.any() else array


def is_point(geometry: Any) -> bool:
    """Return whether a geometry is a single point, or a multipoint of one."""
    kind = geometry.geom_type
    return bool(kind == "Point" or (kind == "MultiPoint" and len(geometry.geoms) == 1))


def _points_of(layer: VectorLayer, name: str) -> Coordinates:
    """Return the coordinates of a layer of points; raise InputError for another geometry."""
    for number, geometry in enumerate(layer.geometry):
        if not is_point(geometry):
            raise InputError(
                f"{name}: geometry {number} is a {geometry.geom_type}; give points, such as "
                ".explode() or .representative_point() makes; where sources are taken, areas and "
                "lines are too"
            )
    return layer.points()[0]


def _as_numbers(given: object, name: str) -> Coordinates:
    """Convert coordinates to float64; raise InputError if they are not real numbers."""
    if isinstance(given, str | os.PathLike):
        path = check_path(name, given)
        raise InputError(
            f"{name}: {path!r} is a path, and not of a vector file; give points, such as "
            f"geopandas.read_file({path!r})"
        )
    try:
        array = np.atleast_2d(np.asarray(given))
        # of objects NumPy would take text and truth for numbers
        text = array.dtype.kind == "O" and any(isinstance(v, _NO_NUMBERS) for v in array.flat)
        if array.dtype.kind in "iufO" and not text:
            return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}; give numbers, each point as (x, y)") from None
    kind = "text or bool" if text else array.dtype
    raise InputError(f"{name}: they are {kind}; give real numbers, each point as (x, y)")


def inside_grid(
    points: Coordinates, place: Georeference, shape: tuple[int, int]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the points that lie in a cell of a grid."""
    rows, columns = _cells(points, place, shape)
    return (rows >= 0) & (columns >= 0)


def points_inside(
    points: Coordinates, place: Georeference, shape: tuple[int, int], name: str
) -> npt.NDArray[np.bool_]:
    """Return a mask of the points that lie in a cell of a grid; raise InputError if none does."""
    inside = inside_grid(points, place, shape)
    if not inside.any():
        raise InputError(
            f"{name}: all {len(points)} points lie outside the grid; are they in its "
            "coordinate system?"
        )
    return inside


def cells_of(
    points: Coordinates,
    place: Georeference,
    shape: tuple[int, int],
    name: str,
    step: str | None = None,
) -> tuple[Indices, Indices]:
    """Return the rows and columns of the cells that contain points.

    In a grid without coordinates x is the column and y the row. ``step`` is a further next step,
    for the message.

    Raises
    ------
    InputError
        If points lie outside the grid; the message lists the first few.
    """
    rows, columns = _cells(points, place, shape)
    outside = (rows < 0) | (columns < 0)
    if outside.any():
        listed = list_points(points, np.flatnonzero(outside))
        swapped = _cells(points[outside, ::-1], place, shape)
        dy, dx = place.side_lengths or (1.0, 1.0)
        hint = "are they in its coordinate system?" + (f" Or {step}" if step else "")
        if min(index.min() for index in swapped) >= 0:
            hint = "as (y, x) they would be inside: give x first, the longitude before the latitude"
        raise InputError(
            f"{name}: {listed} outside the grid, whose cells span "
            f"{_span(place.x, shape[1], 'x', dx)} and {_span(place.y, shape[0], 'y', dy)}; {hint}"
        )
    return rows, columns


def _cells(
    points: Coordinates, place: Georeference, shape: tuple[int, int]
) -> tuple[Indices, Indices]:
    """Return the rows and columns of points, -1 for points outside the grid."""
    dy, dx = place.side_lengths or (1.0, 1.0)
    rows = _nearest(points[:, 1], place.y, shape[0], dy)
    return rows, _nearest(points[:, 0], place.x, shape[1], dx)


def coordinates_of(rows: npt.NDArray[Any], columns: npt.NDArray[Any], place: Georeference) -> Any:
    """Return the map coordinates (x, y) of cell centres, shape (n, 2)."""
    x = columns.astype(np.float64) if place.x is None else place.x[columns]
    y = rows.astype(np.float64) if place.y is None else place.y[rows]
    return np.stack([x, y], axis=1)


def _nearest(values: Coordinates, axis: Coordinates | None, length: int, side: float) -> Indices:
    """Return the index of the cell that contains each value, or -1.

    ``side`` is that of the cell where there is one alone.
    """
    if length == 1:
        centre = 0.0 if axis is None else axis[0]
        return np.where(np.abs(values - centre) <= side / 2, 0, -1).astype(np.int64)
    if axis is None:  # centres are at whole numbers: of many rows no list is made
        whole = np.floor(values)
        with np.errstate(invalid="ignore"):  # infinity less itself
            index = np.minimum(whole + (values - whole >= 0.5), length - 1)
        return np.where((values >= -0.5) & (values <= length - 0.5), index, -1).astype(np.int64)
    centres = axis
    descending = centres[0] > centres[-1]
    ascending = centres[::-1] if descending else centres
    # Cells end halfway between centres. A point on the edge of two cells belongs to the one of
    # larger coordinates, whichever way the axis runs.
    middles = (ascending[1:] + ascending[:-1]) / 2
    index = np.searchsorted(middles, values, side="right").astype(np.int64)
    low, high = _edges(ascending)
    index = length - 1 - index if descending else index
    return np.where((values >= low) & (values <= high), index, -1)


def _edges(ascending: Coordinates) -> tuple[float, float]:
    """Return the outer edges of the first and last cell along an axis, given the centres."""
    low = ascending[0] - (ascending[1] - ascending[0]) / 2
    high = ascending[-1] + (ascending[-1] - ascending[-2]) / 2
    return float(low), float(high)


def _span(axis: Coordinates | None, length: int, name: str, side: float) -> str:
    centres = np.arange(length, dtype=np.float64) if axis is None else np.sort(axis)
    if length == 1:
        half = side / 2
        return f"{name} = {centres[0] - half:.10g} to {centres[0] + half:.10g}"
    low, high = _edges(centres)
    return f"{name} = {low:.10g} to {high:.10g}"


def list_points(points: Coordinates, which: npt.NDArray[Any]) -> str:
    """Return the words for points, of which ``which`` are the numbers."""
    shown = ", ".join(
        "point {} (x={:.10g}, y={:.10g})".format(i, *points[i])
        for i in which[:MOST_LISTED].tolist()
    )
    more = f" and {which.size - MOST_LISTED} more" if which.size > MOST_LISTED else ""
    return f"{shown}{more} {'lies' if which.size == 1 else 'lie'}"
