"""Parse the places that paths and tables of an index begin or end at: points, lines or areas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import OUTSIDE, SKIP, geometries_inside, point_names
from orograph.tiles.arguments import check_choice, check_flag
from orograph.tiles.arrays import Array, Indices
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.points import (
    PointsLike,
    as_points,
    cells_of,
    points_inside,
)
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.snapping import (
    READ_SIDE,
    SnapLike,
    distances_moved,
    nearest_valid,
    parse_snap,
    snap_to_valid,
)
from orograph.tiles.vector.burn import burn
from orograph.tiles.vector.layer import VectorLayer, read_layer


class Places(NamedTuple):
    """Cells of points, lines and areas."""

    cells: Indices
    """Rows and columns of the cells, shape (n, 2), grouped by place and row by row in each."""
    first: Indices
    """Index of the first cell of each place."""
    numbers: Indices
    """Index of each place among those that were given."""
    names: Array | None
    """Name of each place; None if places have no names."""
    points: npt.NDArray[np.float64]
    """Map coordinates of each place, shape (m, 2); of lines and areas those of a point on them."""
    skipped: int | None
    """Number of places left out because they lie outside the grid; None: such places are
    refused."""
    unreachable: int | None = None
    """Number of places left out because they cover no valid cell; None: such places are refused."""
    moved: npt.NDArray[np.float64] | None = None
    """Distance by which each place, a point, was moved; None: places are not moved."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def labels(self) -> Array:
        """The names of the places, or else their numbers."""
        return self.numbers if self.names is None else self.names

    @property
    def are_cells(self) -> bool:
        """Whether each place is one cell."""
        return len(self.cells) == len(self.numbers)

    def notes(self, name: str) -> dict[str, Any]:
        """Return attributes of a result: how many places were left out, and how far moved."""
        notes: dict[str, Any] = {} if self.skipped is None else {f"{name}_outside": self.skipped}
        if self.moved is not None:
            key = "snap_distances" if name == "points" else "target_snap_distances"
            notes[key] = self.moved.tolist()
        return notes


def parse_places(
    given: PointsLike,
    raster: Raster,
    name: str,
    *,
    label: str | None = None,
    snap: SnapLike = False,
    outside: str = "error",
    all_touched: bool = False,
    barriers: str = "nodata",
    extended: bool = True,
    unreachable: str = "error",
) -> Places:
    """Return the valid cells of points, or of the geometries of a layer.

    Parameters
    ----------
    given
        Points or a vector layer.
    raster
        Whose valid cells count.
    name
        Name of the argument, for messages.
    label, snap, outside, all_touched, unreachable
        As of `least_cost_path`.
    barriers
        What the cells are that are not valid, for messages.
    extended
        Whether lines and areas are taken.
    """
    outside = check_choice("outside", outside, OUTSIDE)
    skip = check_choice("unreachable", unreachable, OUTSIDE) == "skip"
    all_touched = check_flag("all_touched", all_touched)
    reach = parse_snap(snap, raster.georeference)
    names = point_names(given, label, name)
    layer = read_layer(given, name) if extended else None
    if layer is not None and layer.has_extent():
        return _covered(layer, raster, name, names, outside, all_touched, barriers, skip)
    place = raster.georeference
    points = as_points(given, name, place)
    numbers, skipped = np.arange(len(points)), None
    if outside == "skip":
        inside = points_inside(points, place, raster.shape, name)
        numbers, skipped = np.flatnonzero(inside), int(np.count_nonzero(~inside))
        points = points[inside]
    rows, columns = cells_of(points, place, raster.shape, name, SKIP)
    lost, before = None, np.stack([rows, columns])
    if skip:
        rows, columns, without = nearest_valid(rows, columns, raster, reach)
        lost = without.size
        rows, columns, numbers = (np.delete(array, without) for array in (rows, columns, numbers))
        points, before = np.delete(points, without, axis=0), np.delete(before, without, axis=1)
    else:
        rows, columns = snap_to_valid(rows, columns, raster, points, reach, name, barriers)
    kept = None if names is None else names[numbers]
    cells = np.stack([rows, columns], axis=1)
    moved = distances_moved(points, rows, columns, before, place) if reach else None
    return Places(cells, np.arange(len(cells)), numbers, kept, points, skipped, lost, moved)


def _covered(
    layer: VectorLayer,
    raster: Raster,
    name: str,
    names: Array | None,
    outside: str,
    all_touched: bool,
    barriers: str,
    skip: bool,
) -> Places:
    """Return the valid cells that geometries cover; those that cover the same ones share them."""
    import shapely

    inside, moved = geometries_inside(layer, raster, name, outside)
    numbers = np.flatnonzero(inside)
    kept = VectorLayer(moved.geometry[inside], {}, moved.crs, moved.bare)
    spans = burn(kept, raster.georeference, raster.shape, all_touched, name)
    # From runs of cells to cells, each with the number of its geometry.
    size = spans.stop - spans.start
    before = np.cumsum(size) - size
    row, owner = np.repeat(spans.row, size), np.repeat(spans.number, size)
    column = np.arange(int(size.sum())) - np.repeat(before - spans.start, size)
    # Once each, although runs of a geometry may overlap, and in order: geometry, row, column.
    found = np.unique(np.stack([owner, row, column], axis=1), axis=0)
    found = found[are_valid(raster, found[:, 1:])]
    # Geometries of which a valid cell is left.
    owner, first = np.unique(found[:, 0], return_index=True)
    if len(owner) < len(numbers) and not skip:
        lost = numbers[np.setdiff1d(np.arange(len(numbers)), owner)]
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise InputError(
            f"{name}: geometry {lost[0]}{more} covers only {barriers}; move it, or leave it out"
        )
    unreached = len(numbers) - len(owner) if skip else None
    numbers = numbers[owner]
    points = shapely.get_coordinates(shapely.point_on_surface(kept.geometry[owner]))
    chosen = None if names is None else names[numbers]
    skipped = int(np.count_nonzero(~inside)) if outside == "skip" else None
    return Places(found[:, 1:], first, numbers, chosen, points, skipped, unreached)


def are_valid(raster: Raster, cells: Indices) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells that are valid in a raster."""
    valid: npt.NDArray[np.bool_] = valid_cells(values_at(raster, cells), raster.nodata)
    return valid


def values_at(raster: Raster, cells: Indices) -> Array:
    """Return the values of cells, reading each tile that has some once."""
    side = raster.tile or READ_SIDE
    found = np.empty(len(cells), raster.dtype)
    tile, which = np.unique(cells // side, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(tile)))
    for (y, x), here in zip((tile * side).tolist(), np.split(order, ends)[:-1], strict=True):
        window = Window(y, x, side, side).clip(raster.shape)
        found[here] = raster.read(window)[tuple((cells[here] - (y, x)).T)]
    return found


def least_of_each(places: Places, raster: Raster) -> Indices:
    """Return the cell of each place with the least value, (m, 2).

    Of equal ones the northernmost, and of these the westernmost.
    """
    if places.are_cells:
        return places.cells
    values = values_at(raster, places.cells)
    owner = np.repeat(np.arange(len(places)), np.diff(np.append(places.first, len(values))))
    # Signed such that they ascend from north to south and from west to east. The last key of
    # `lexsort` comes first.
    turned = places.cells * raster.georeference.orientation
    order = np.lexsort((*turned.T[::-1], values, owner))
    return places.cells[order[places.first]]
