"""The operation `isochrones`: bands of equal cost as polygons, or the lines between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.engines.sweep_problems import Table
from orograph.kernels.label.union_find import rem_components
from orograph.operations.operation import operation
from orograph.polygons.contouring import Chains, Contours, Pieces
from orograph.polygons.job import check_shapely, edges_of_cells, join_geometries, tracing_job
from orograph.results.costs import COSTS
from orograph.results.units import check_times, parse_unit, unit_scale
from orograph.run.options import LayerOptions, RunSpec
from orograph.tiles.arguments import as_text, check_flag, check_number, shown
from orograph.tiles.arrays import Array, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    from orograph.run.job import Job


MOST_LEVELS = 254


@operation()
def isochrones(
    cost: RasterLike,
    levels: Sequence[float],
    *,
    polygons: bool = True,
    parts: bool = False,
    unit: str | None = None,
    **options: Unpack[LayerOptions],
) -> Job[VectorLayer]:
    """Return the bands between cost levels of a raster of any size as polygons, or the lines of
    equal cost.

    Parameters
    ----------
    cost : raster
        Costs, shape (y, x), of any real dtype, such as those of `cost_distance` or `walking_time`.
        Of a dataset of several variables, ``cost`` or ``time`` is read by default.
    levels : sequence of float
        Increasing costs, in the units of the raster or in ``unit``, at most 254.
    polygons : bool
        Return bands: the first contains all costs below the first level, each other band those from
        one level up to, but not including, the next. Otherwise return lines, one for each level.
    parts : bool
        Return one row for each polygon or line. By default one row for each band or level, with all
        of its polygons or lines. One that lies across the seam of a raster that wraps is cut there:
        it is one row, a multipolygon or a multiline.
    unit : {"s", "min", "h", "m", "km", "m2", "ha", "km2"}, optional
        Unit of the levels and of the columns of the result, in place of that of the raster, whose
        own unit must be known: for walking times in seconds, ``unit="h"`` takes levels in hours.
    **options

    Returns
    -------
    VectorLayer
        Multipolygons in the CRS of the raster, with the columns ``lower`` and ``upper``; ``lower``
        of the first band is 0, or -inf if its level is not positive. Or multilines with the column
        ``level``. Empty bands and levels do not have a row. Without coordinates, cells are unit
        squares centred on their row and column.

    Raises
    ------
    InputError
        If an argument is invalid, such as levels that do not increase, or if the raster's values
        cannot be times in its ``units``: half of its cells would be passed at more than 100 km/h,
        as those of ``cost / 3600``, which keeps the unit.
    OrographError
        If Shapely is not installed.
    BackendError

    Notes
    -----
    Costs apply at the centres of cells and are interpolated linearly between them (marching
    squares); a cell whose cost equals a level counts as just above it. Next to unreached cells and
    at the edge of the raster, bands extend to the sides of cells. So their areas add up to the area
    of all reached cells, and the area of a band agrees with the count of its cells except for
    partial cells. Neighbouring bands share their lines exactly. Polygons are valid: outer rings run
    counterclockwise, holes clockwise. Any tiling gives the same coordinates. The raster is read
    tile by tile; lines and polygons are in memory.

    References
    ----------
    W. E. Lorensen, H. E. Cline, "Marching cubes: a high resolution 3D surface construction
    algorithm", doi:10.1145/37402.37422.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> walk = og.cost_distance(np.ones((40, 60)), [(10, 20)])["cost"]
    >>> bands = og.isochrones(walk, [5, 10, 20])
    >>> bands.to_geodataframe()[["lower", "upper"]].assign(area=[g.area for g in bands.geometry])
       lower  upper        area
    0    0.0    5.0   70.235498
    1    5.0   10.0  212.598846
    2   10.0   20.0  657.270852
    """
    spec = RunSpec(**options)
    raster = spec.open(cost, "cost", COSTS)
    named = check_levels(levels)
    of_costs = raster.attrs.get("units")
    bounds = named
    if unit is not None:
        unit = parse_unit(unit)
        scale = unit_scale(of_costs, unit, "cost")
        # Costs stay in their own units; levels are converted, and named as they were given.
        bounds = tuple(level / scale for level in named)
    check_flag("polygons", polygons)
    check_flag("parts", parts)
    edges_of_cells("cost", raster.georeference, raster.shape)
    check_shapely("isochrones")
    check_times(raster, "cost")
    problem, wraps = Contours(raster.shape, raster.nodata, bounds), wraps_of(raster, spec.wrap)

    def join(tables: Sequence[Table], place: Georeference) -> VectorLayer:
        pieces = Pieces(tables, raster.shape, len(bounds))
        make = bands_of if polygons else lines_of
        layer = make(pieces, named, place, raster.shape, parts, wraps)
        units = unit or of_costs
        return layer if units is None else replace(layer, units=dict.fromkeys(layer.columns, units))

    return tracing_job(raster, problem, join, spec)


def check_levels(levels: object) -> tuple[float, ...]:
    """Return levels as floats; refuse them if they do not increase."""
    if isinstance(levels, (str, bytes)) or not np.iterable(levels):
        raise InputError(f"levels: {shown(levels)}; give a list of numbers that increase")
    found = tuple(float(check_number("levels", level)) for level in levels)
    if not 1 <= len(found) <= MOST_LEVELS:
        raise InputError(f"levels: there are {len(found)}; give 1 to {MOST_LEVELS}")
    for one, other in pairwise(found):
        if one >= other:
            raise InputError(
                f"levels: {as_text(other)} comes after {as_text(one)}; give numbers that increase"
            )
    return found


def bands_of(
    pieces: Pieces,
    levels: tuple[float, ...],
    place: Georeference,
    shape: tuple[int, int],
    parts: bool,
    wraps: bool,
) -> VectorLayer:
    """Return the bands as a layer of polygons."""
    import shapely

    rings = _without_straight_corners(pieces.rings())
    vertices, mirrored = _on_map(rings, place, shape)
    sizes = np.diff(rings.ends, prepend=0)
    of_ring = np.repeat(np.arange(sizes.size), sizes)
    # seen with rows downwards, from the first vertex of each, so that rings without area have none
    first = (rings.ends - sizes)[of_ring]
    x, y = rings.columns - rings.columns[first], rings.rows[first] - rings.rows
    after = _next_in_ring(rings.ends)
    # Twice the signed areas of the rings (shoelace formula). Rings around no area, at cells that
    # equal a level, are left out.
    doubled = np.bincount(of_ring, x * y[after] - x[after] * y, minlength=sizes.size)
    kept = (sizes > 2) & (doubled != 0)
    # On a mirrored map a ring runs the other way round: its vertices are reversed.
    if mirrored:
        vertices = vertices[2 * first + sizes[of_ring] - 1 - np.arange(of_ring.size)]
    chosen = kept[of_ring]
    number = np.cumsum(kept) - 1
    lines = shapely.linearrings(vertices[chosen], indices=number[of_ring[chosen]])
    areas, bands = _with_holes(lines, doubled[kept], rings.number[kept])
    bands, which = np.unique(bands, return_inverse=True)
    areas = shapely.multipolygons(areas, indices=which)
    for n in np.flatnonzero(~shapely.is_valid(areas)):  # they touch where cells equal a level
        areas[n] = _mended(areas[n])
    if parts:
        areas, which = shapely.get_parts(areas, return_index=True)
        bands = bands[which]
        if wraps:
            area = _across_seam(areas, bands, place, shape)
            areas, first = join_geometries(areas, area, shapely.multipolygons)
            bands = bands[first]
    # The first band begins at 0, where costs begin, unless levels show that values may be less.
    lowest = 0.0 if levels[0] > 0 else -np.inf
    lower, upper = np.array([lowest, *levels[:-1]]), np.array(levels)
    columns = {"lower": lower[bands], "upper": upper[bands]}
    return VectorLayer(np.asarray(areas, object), columns, place.map_crs)


def lines_of(
    pieces: Pieces,
    levels: tuple[float, ...],
    place: Georeference,
    shape: tuple[int, int],
    parts: bool,
    wraps: bool,
) -> VectorLayer:
    """Return the lines of equal cost as a layer."""
    import shapely

    chains = pieces.paths()
    vertices, _ = _on_map(chains, place, shape)
    sizes = np.diff(chains.ends, prepend=0)
    of_chain = np.repeat(np.arange(sizes.size), sizes)
    lines = shapely.linestrings(vertices, indices=of_chain)
    kept = shapely.length(lines) > 0
    lines, number = lines[kept], chains.number[kept]
    if parts and wraps:
        line = pieces.across_seam(chains)[kept]
        lines, first = join_geometries(lines, line, shapely.multilinestrings)
        number = number[first]
    elif not parts:
        number, which = np.unique(number, return_inverse=True)
        lines = shapely.multilinestrings(lines, indices=which)
    columns = {"level": np.array(levels)[number]}
    return VectorLayer(np.asarray(lines, object), columns, place.map_crs)


def _across_seam(
    areas: Array, number: npt.NDArray[np.int64], place: Georeference, shape: tuple[int, int]
) -> npt.NDArray[np.int64]:
    """Return for each polygon the first of those of its number that share a side with it across
    the seam, or with one that does.
    """
    import shapely

    x, y, _ = edges_of_cells("cost", place, shape)
    found = []
    for end in (x[0], x[-1]):
        seam = shapely.linestrings([[end, y.min()], [end, y.max()]])
        meets = np.flatnonzero(shapely.intersects(areas, seam))
        sides = shapely.intersection(areas[meets], seam)
        found.append((meets, shapely.transform(sides, lambda points: points * [0, 1])))
    (one, west), (other, east) = found
    k, n = shapely.STRtree(west).query(east, predicate="intersects")
    # They may touch at a point alone.
    is_side = shapely.length(shapely.intersection(west[n], east[k])) > 0
    same = is_side & (number[one[n]] == number[other[k]])
    return rem_components(number.size, one[n[same]], other[k[same]])


def _mended(areas: Any) -> Any:
    """Return a valid multipolygon of the parts that have an area, outer rings counterclockwise."""
    import shapely

    valid = shapely.make_valid(areas, method="structure", keep_collapsed=False)
    polygons = [shapely.geometry.polygon.orient(p) for p in shapely.get_parts(valid)]
    return shapely.MultiPolygon(polygons)


def _with_holes(
    rings: Array, areas: Reals, bands: npt.NDArray[np.int64]
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return rings as polygons with holes (rings of negative area), and the band of each."""
    import shapely

    outer, holes = np.flatnonzero(areas > 0), np.flatnonzero(areas < 0)
    shells = shapely.polygons(rings[outer])
    # A point within the hole, since its vertices may lie on the rings of other areas.
    inside = shapely.point_on_surface(shapely.polygons(rings[holes]))
    hole, shell = shapely.STRtree(shells).query(inside, predicate="within")
    # of those around it in its band the smallest that is larger than it
    fits = (bands[outer[shell]] == bands[holes[hole]]) & (areas[outer[shell]] > -areas[holes[hole]])
    hole, shell = hole[fits], shell[fits]
    order = np.lexsort((areas[outer[shell]], hole))
    # In the order of holes, then of areas: the first shell of each hole is the smallest.
    hole, smallest = np.unique(hole[order], return_index=True)
    owner = shell[order][smallest]
    owners = np.concatenate([np.arange(outer.size), owner])
    together = np.concatenate([rings[outer], rings[holes[hole]]])
    order = np.argsort(owners, kind="stable")
    return shapely.polygons(together[order], indices=owners[order]), bands[outer]


def _next_in_ring(ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the next vertex of each vertex in its ring."""
    after = np.arange(1, (ends[-1] if ends.size else 0) + 1)
    after[ends - 1] = ends - np.diff(ends, prepend=0)
    return after


def _without_straight_corners(rings: Chains) -> Chains:
    """Remove corners of the outline where rings go straight on."""
    after = _next_in_ring(rings.ends)
    before = np.empty_like(after)
    before[after] = np.arange(after.size)
    straight = np.zeros(after.size, np.bool_)
    for along in (rings.rows, rings.columns):
        # The outline runs along rows and columns, so it goes straight on where one coordinate
        # stays.
        straight |= (along[before] == along) & (along[after] == along)
    kept = ~(straight & rings.corner)
    ends = np.append(0, np.cumsum(kept))[rings.ends]
    rows, columns, corner = rings.rows[kept], rings.columns[kept], rings.corner[kept]
    return Chains(rows, columns, corner, rings.keys[kept], ends, rings.number)


def _on_map(chains: Chains, place: Georeference, shape: tuple[int, int]) -> tuple[Reals, bool]:
    """Return the coordinates of vertices, shape (n, 2), and whether the map is mirrored."""
    x, y, mirrored = edges_of_cells("cost", place, shape)
    found = []
    for positions, edges, centres in ((chains.columns, x, place.x), (chains.rows, y, place.y)):
        # Edges and centres of cells in turn: places are in half cells, and cells need not be even.
        lattice = np.empty(2 * edges.size - 1)
        lattice[::2] = edges
        lattice[1::2] = (edges[1:] + edges[:-1]) / 2 if centres is None else centres
        found.append(np.interp(2 * positions, np.arange(lattice.size), lattice))
    return np.stack(found, axis=1), mirrored
