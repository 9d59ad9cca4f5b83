"""Lines of a layer as arrays of points on the grid of a raster."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.road_links.tags import add_tags
from orograph.tiles.arguments import check_path, shown
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference, parse_wkt
from orograph.tiles.grid.lengths import warn_of_web_mercator
from orograph.tiles.grid.units import ellipsoid_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike, read_layer

OSM_SUFFIXES = (".osm", ".pbf", ".osm.bz2")


class Lines(NamedTuple):
    """Points of lines, one line after the other."""

    points: npt.NDArray[np.float64]
    """Columns and rows of the points, in cells from the corner of the grid, shape (n, 2)."""
    size: npt.NDArray[np.float64]
    """Length from each point to the next, shape (n,)."""
    first: Integers
    """Index of the first point of each line, and last the number of points; shape (m + 1,)."""
    node: Integers
    """Number of the node at each point, -1 without one, shape (n,)."""
    nodes: int
    where: npt.NDArray[np.float64]
    """Columns and rows of the nodes, shape (nodes, 2)."""


def read_roads(lines: VectorLike) -> VectorLayer:
    """Read a layer of lines, each a single one, with its columns.

    Raises
    ------
    InputError
        If it cannot be read, is empty, or a geometry is not a line.
    """
    if isinstance(lines, str | os.PathLike) and os.fspath(lines).lower().endswith(OSM_SUFFIXES):
        layer: VectorLayer | None = _read_osm(check_path("lines", lines))
    else:
        layer = read_layer(lines, "lines")
    if layer is None:
        raise InputError(
            f"lines: {shown(lines)}; give a GeoDataFrame, geometries, or the path of a vector file "
            "or of an extract of OpenStreetMap (.osm, .osm.pbf)"
        )
    from shapely import get_parts, get_type_id

    kinds = get_type_id(layer.geometry)
    wrong = np.flatnonzero(~np.isin(kinds, (1, 2, 5)))  # lines, rings, several lines
    if wrong.size:
        at = int(wrong[0])
        raise InputError(
            f"lines: geometry {at} is a {layer.geometry[at].geom_type}; give lines alone"
        )
    # Each part of a multi-line becomes a line with the columns of the whole.
    if (kinds == 5).any():
        parts, number = get_parts(layer.geometry, return_index=True)
        columns = {name: np.asarray(values)[number] for name, values in layer.columns.items()}
        layer = VectorLayer(parts, columns, layer.crs, layer.bare)
    return add_tags(layer)


def _read_osm(path: str) -> VectorLayer:
    """Read the ways of an extract of OpenStreetMap that have a tag ``highway``."""
    try:
        import pyogrio
        from shapely import from_wkb
    except ImportError:
        raise InputError(
            f"lines: {path} needs pyogrio and shapely (pip install 'orograph[vector]')"
        ) from None
    if not os.path.isfile(path):
        raise InputError(f"lines: {shown(path)} does not exist; is the path right?")
    try:
        meta, _, geometry, values = pyogrio.raw.read(
            path, layer="lines", where="highway IS NOT NULL"
        )
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        raise InputError(
            f"lines: {path} is not an extract of OpenStreetMap that can be read ({error})"
        ) from None
    if not len(geometry):
        raise InputError(f"lines: {path} has no way with a tag 'highway'; give another extract")
    columns = {str(name): column for name, column in zip(meta["fields"], values, strict=True)}
    return VectorLayer(from_wkb(geometry), columns, meta["crs"])


def place_lines(layer: VectorLayer, raster: Raster, metres: bool) -> Lines:
    """Bring lines to the grid of a raster, find their nodes and measure them.

    ``metres`` says whether lengths are metres, whatever the unit of the CRS.

    Raises
    ------
    InputError
        If only one of layer and raster has a CRS, or the raster's cells differ in size.
    """
    from shapely import get_num_coordinates

    place = raster.georeference
    first = np.concatenate([[0], np.cumsum(get_num_coordinates(layer.geometry))])
    # before they are reprojected
    node, nodes = _nodes(layer.points()[0], first)
    moved = layer.on_grid(place, "lines").points()[0]
    points = grid_of(place).to_cells(moved)
    where = np.empty((nodes, 2))
    where[node[node >= 0]] = points[node >= 0]
    return Lines(points, _sizes(moved, place, metres), first, node, nodes, where)


def _nodes(points: Array, first: Integers) -> tuple[Integers, int]:
    """Return the node at each point, and how many there are.

    Nodes are the ends of lines, and points that occur twice: in two lines or in one.
    """
    import pandas as pd

    # A complex number stands for both coordinates, which must be equal to the last bit.
    number, known = pd.factorize(points[:, 0] + 1j * points[:, 1])
    count = np.bincount(number, minlength=len(known))
    same = np.flatnonzero(number[1:] == number[:-1]) + 1
    # a point that follows itself in a line occurs once
    same = same[~np.isin(same, first)]
    count -= np.bincount(number[same], minlength=len(known))
    is_node = count > 1
    # The first and the last point of each line.
    is_node[number[first[:-1]]] = is_node[number[first[1:] - 1]] = True
    names = np.cumsum(is_node) - 1
    return np.where(is_node[number], names[number], -1), int(is_node.sum())


def _sizes(points: Array, place: Georeference, metres: bool) -> Array:
    """Return the length from each point to the next."""
    size = np.zeros(len(points))
    (x, y), (to_x, to_y) = points[:-1].T, points[1:].T
    if place.is_geographic:
        assert place.crs_wkt is not None
        size[:-1] = ellipsoid_of(parse_wkt(place.crs_wkt)).inv(x, y, to_x, to_y)[2]
        return size
    warn_of_web_mercator(place)
    # The length from the last point of a line to the first of the next is computed too, and never
    # used.
    size[:-1] = np.hypot(to_x - x, to_y - y)
    if metres:
        size *= place.metres
    return size


class Grid(NamedTuple):
    """Corner and sides of the cells of a grid, in map units."""

    corner: tuple[float, float]
    sides: tuple[float, float]
    """Sides of a cell along x and y; negative where coordinates fall."""

    def to_cells(self, points: Array) -> Array:
        """Return columns and rows of points, in cells from the corner."""
        return (points - self.corner) / self.sides

    def to_map(self, cells: Array) -> Array:
        """Return map coordinates of columns and rows."""
        return cells * self.sides + self.corner


def grid_of(place: Georeference) -> Grid:
    """Return the regular grid of a georeference.

    Raises
    ------
    InputError
        If its cells differ in size.
    """
    if place.x is None:
        return Grid((-0.5, -0.5), (1.0, 1.0))
    transform = place.transform
    if transform is None:
        raise InputError(
            "like: its coordinates are not evenly spaced, or there are too few to know the size "
            "of a cell; set a transform with rio.write_transform"
        )
    return Grid((transform.c, transform.f), (transform.a, transform.e))
