"""Read rasters for pictures: every k-th cell, north up, on the grid of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import CRSLike, parse_crs, same_crs
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    from pyproj import Transformer

READ_SIDE = 1024
LEAST_SIDE = 512  # pixels of a raster that is resampled
HALF = 20037508.342789244  # metres from the equator to the edges of a map in Web Mercator

Extent = tuple[float, float, float, float]
"""Left, right, bottom and top on the map."""


class Picture(NamedTuple):
    """Cells of a raster on a map."""

    cells: Array
    known: npt.NDArray[np.bool_]
    """Mask of the valid cells."""
    extent: Extent


def every(raster: Raster, step: int) -> Array:
    """Read every ``step``-th cell of every ``step``-th row of a raster, tile by tile."""
    rows, columns = (np.arange(_first(n, step), n, step) for n in raster.shape)
    cells = np.empty((rows.size, columns.size), raster.dtype)
    side = raster.tile or READ_SIDE
    for i in np.unique(rows // side).tolist():
        # A tile is read once, from its first to its last row and column that are drawn.
        ys = np.flatnonzero(rows // side == i)
        y = int(rows[ys[0]])
        for j in np.unique(columns // side).tolist():
            xs = np.flatnonzero(columns // side == j)
            x = int(columns[xs[0]])
            window = Window(y, x, int(rows[ys[-1]]) - y + 1, int(columns[xs[-1]]) - x + 1)
            cells[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1] = raster.read(window)[::step, ::step]
    return cells


def read_picture(
    raster: Raster,
    crs: CRSLike | None,
    max_pixels: int,
    argument: str = "result",
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Picture:
    """Read a raster for a map.

    Parameters
    ----------
    raster
        What is drawn.
    crs
        CRS of the map. A raster of another CRS is resampled: a pixel shows the cell in which its
        centre lies. So is one whose rows or columns are not evenly spaced.
    max_pixels
        Pixels of the longer side.
    argument
        What holds the raster, for messages.
    within
        Lowest and highest y of a picture in another CRS.

    Raises
    ------
    InputError
        If the raster cannot be brought to the CRS.
    """
    place = raster.georeference
    transformer = _transformer(place.map_crs, crs, argument)
    step = -(-max(raster.shape) // max_pixels)
    cells = every(raster, step)
    known = valid_cells(cells, raster.nodata)
    if place.y is None or place.x is None:
        height, width = raster.shape
        return Picture(cells, known, (-0.5, width - 0.5, height - 0.5, -0.5))
    cell = place.cell_size or (1.0, 1.0)
    sides = cell_sides(place.y, cell[0]), cell_sides(place.x, cell[1])
    (bottom, top), (left, right) = (sorted((side[0], side[-1])) for side in sides)
    extent = (left, right, bottom, top)
    # Pictures have even pixels: a raster in another CRS, or with uneven coordinates, is resampled.
    if transformer is not None or (place.transform is None and min(raster.shape) > 1):
        middle, span = 0.0, None
        if transformer is not None and _is_web_map(transformer):
            if not place.in_degrees:
                span = _span_over_180(extent, transformer)
            elif max(-left, right) > 180:
                # A Mercator map shifts what is turned around the globe, and ends half a turn away.
                middle = (left + right) / 2
        extent, rows, columns = _pixels(
            extent, sides, raster.shape, transformer, max_pixels, argument, within, middle, span
        )
        inside = (rows >= 0) & (columns >= 0)
        at = tuple(
            # From a cell of the raster to the one that was read for its group.
            np.clip(index // step, 0, length - 1)
            for index, length in zip((rows, columns), cells.shape, strict=True)
        )
        return Picture(cells[at], known[at] & inside, extent)
    # North up and east on the right, whatever the order of rows and columns.
    turned = (
        slice(None, None, 1 if sides[0][0] > sides[0][-1] else -1),
        slice(None, None, 1 if sides[1][0] < sides[1][-1] else -1),
    )
    return Picture(cells[turned], known[turned], extent)


def cell_sides(centres: npt.NDArray[np.float64], cell: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the sides of cells along an axis, in its order; ``cell``: the size of a single one."""
    if centres.size == 1:
        return np.array([centres[0] - cell / 2, centres[0] + cell / 2])
    middles = (centres[1:] + centres[:-1]) / 2
    first, last = 2 * centres[0] - middles[0], 2 * centres[-1] - middles[-1]
    return np.concatenate([[first], middles, [last]])


def _first(length: int, step: int) -> int:
    # The middle of the first group of cells that one pixel stands for.
    return min(step // 2, (length - 1) // 2)


def _transformer(
    given: CRSLike | None, target: CRSLike | None, argument: str
) -> Transformer | None:
    """Return the transformer between two CRSs of maps, or None if they are the same."""
    if given is None and target is None:
        return None
    one, other = (None if crs is None else parse_crs(crs, argument) for crs in (given, target))
    if one is None or other is None:
        raise InputError(
            f"{argument}: its CRS is {one.name if one else 'unknown'}, but that of the axes is "
            f"{other.name if other else 'unknown'}; set it with rio.write_crs(...)"
        )
    if same_crs(one, other):
        return None
    from pyproj import Transformer

    return Transformer.from_crs(one, other, always_xy=True)


def _is_web_map(transformer: Transformer) -> bool:
    """Return whether coordinates become those of Web Mercator."""
    projection = getattr(transformer.target_crs, "coordinate_operation", None)
    return projection is not None and "Pseudo Mercator" in projection.method_name


def _span_over_180(extent: Extent, transformer: Transformer) -> tuple[float, float] | None:
    """Return the longitudes of a raster that lies over the 180th meridian, from west to east.

    The second is beyond 180. None if it does not lie there, or has no longitudes.
    """
    from pyproj import Transformer
    from pyproj.exceptions import ProjError

    left, right, bottom, top = extent
    degrees = Transformer.from_crs(transformer.source_crs, "EPSG:4326", always_xy=True)
    try:
        west, _, east, _ = degrees.transform_bounds(left, bottom, right, top)
    except ProjError:
        return None
    middle, _ = degrees.transform((left + right) / 2, (bottom + top) / 2)
    # The bounds of a raster of the whole globe may be those of what lies beyond its ends.
    over = east < west and (middle - west) % 360 <= east - west + 360
    return (west, east + 360) if over else None


def _pixels(
    extent: Extent,
    sides: tuple[Reals, Reals],
    shape: tuple[int, int],
    transformer: Transformer | None,
    max_pixels: int,
    argument: str,
    within: tuple[float, float],
    middle: float,
    span: tuple[float, float] | None,
) -> tuple[Extent, Array, Array]:
    """Return the extent of even pixels in the CRS of the map, and their rows and columns.

    Rows and columns are those of the raster in which the centres of pixels lie; -1 outside. A
    raster with longitudes beyond 180 degrees is brought to the map with its ``middle`` at 0. The
    picture of one in metres over the 180th meridian goes on beyond the map: ``span``, in degrees.
    """
    left, right, bottom, top = extent
    left, right, shift = left - middle, right - middle, 0.0
    if transformer is not None:
        from pyproj.exceptions import ProjError

        try:
            left, bottom, right, top = transformer.transform_bounds(left, bottom, right, top)
        except ProjError as error:
            raise InputError(
                f"{argument}: it cannot be brought to the CRS of the axes ({error}); draw it on "
                "axes of its own"
            ) from None
        bottom, top = max(bottom, within[0]), min(top, within[1])
        right += 360.0 if right < left else 0.0  # over the 180th meridian
        if span is not None:
            left, right = (x / 180 * HALF for x in span)
        shift = middle * transformer.transform(1, 0)[0] if middle else 0.0
    if not np.isfinite([left, right, bottom, top]).all():
        raise InputError(
            f"{argument}: parts of it have no place in the CRS of the axes; clip it, or draw it on "
            "axes of its own"
        )
    longest = min(max_pixels, max(LEAST_SIDE, 2 * max(shape)))
    scale = longest / max(right - left, top - bottom)
    width, height = (max(round(length * scale), 1) for length in (right - left, top - bottom))
    xs, ys = np.meshgrid(
        left + (np.arange(width) + 0.5) * (right - left) / width,
        top - (np.arange(height) + 0.5) * (top - bottom) / height,
    )
    if transformer is not None:
        xs, ys = transformer.transform(xs, ys, direction="INVERSE")
    rows, columns = _containing(ys, sides[0]), _containing(xs + middle, sides[1])
    return (left + shift, right + shift, bottom, top), rows, columns


def _containing(values: Array, sides: Array) -> Array:
    """Return the cell of an axis in which each coordinate lies, -1 outside."""
    count = sides.size - 1
    rising = sides[0] < sides[-1]
    # Bisection needs rising coordinates; falling ones are counted from the other end.
    index = np.searchsorted(sides if rising else sides[::-1], values, side="right") - 1
    index[(index < 0) | (index >= count)] = -1
    return index if rising else np.where(index >= 0, count - 1 - index, -1)
