"""The operation `polygonize`: areas of equal labels as polygons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import numpy as np

from orograph.engines.sweep_problems import Table
from orograph.operations.operation import operation
from orograph.polygons.job import check_shapely, edges_of_cells, join_geometries, tracing_job
from orograph.polygons.tracing import Rings, Tracing, join_tables
from orograph.results.names import name_labels
from orograph.run.options import LayerOptions, RunSpec
from orograph.tiles.arguments import check_flag
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    from orograph.run.job import Job


LABELS = ("allocation", "labels", "watershed", "depression", "link")
"""Names of labels among the rasters of results."""


@operation()
def polygonize(
    labels: RasterLike,
    *,
    parts: bool = False,
    **options: Unpack[LayerOptions],
) -> Job[VectorLayer]:
    """Return the areas of equal labels in a raster of any size as polygons along the sides of
    cells.

    Parameters
    ----------
    labels : raster
        Labels, shape (y, x), such as watersheds, components or an allocation: whole numbers, which
        may be stored as floats. Of a dataset of several variables, ``allocation``, ``labels``,
        ``watershed``, ``depression`` or ``link`` is read by default.
    parts : bool
        Return one row, a polygon, for each area that is connected by the sides of its cells. By
        default one row, a multipolygon, for each label. An area that lies across the seam of a
        raster that wraps is cut there: it is one row, a multipolygon.
    **options

    Returns
    -------
    VectorLayer
        Polygons in the CRS of the labels with the column ``label``, in the order of the labels;
        parts are in the order in which a scan meets their first cells. Labels that are numbers of
        names, such as an allocation to villages, also have a column ``name``. Without coordinates,
        cells are unit squares centred on their row and column.

    Raises
    ------
    InputError
        If an argument is invalid, or labels are not whole numbers.
    OrographError
        If Shapely is not installed.
    BackendError

    Notes
    -----
    Polygons are valid, and neighbours share their corners exactly, so there are no gaps and no
    overlaps. Outer rings run counterclockwise, holes clockwise. Cells that only touch at a corner
    belong to different areas. Any tiling gives the same polygons. The raster is read tile by tile;
    the polygons are in memory.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> layer = og.polygonize(np.array([[1, 1, 2], [1, 1, 2]]))
    >>> layer.to_geodataframe()
       label                                           geometry
    0      1  MULTIPOLYGON (((-0.5 -0.5, 1.5 -0.5, 1.5 1.5, ...
    1      2  MULTIPOLYGON (((1.5 -0.5, 2.5 -0.5, 2.5 1.5, 1...
    """
    spec = RunSpec(**options)
    raster = spec.open(labels, "labels", LABELS)
    check_flag("parts", parts)
    edges_of_cells("labels", raster.georeference, raster.shape)
    check_shapely("polygonize")
    problem, wraps = Tracing(raster.shape, raster.nodata), wraps_of(raster, spec.wrap)

    def join(tables: Sequence[Table], place: Georeference) -> VectorLayer:
        rings = join_tables(tables, raster.shape, wraps)
        layer = areas_of(rings, place, raster.shape, parts)
        names = name_labels(raster.attrs, layer.columns["label"].tolist())
        if names is None:
            return layer
        return replace(layer, columns={**layer.columns, "name": np.array(names, object)})

    return tracing_job(raster, problem, join, spec, cut_at_seam=True)


def areas_of(rings: Rings, place: Georeference, shape: tuple[int, int], parts: bool) -> VectorLayer:
    """Return rings as a layer of polygons, or of one multipolygon for each label."""
    import shapely

    x, y, mirrored = edges_of_cells("labels", place, shape)
    corners, sizes = rings.corners, np.diff(rings.ends, prepend=0)
    if mirrored:  # the other way round, from the same corner
        begin = np.repeat(rings.ends - sizes, sizes)
        rank = np.arange(corners.size) - begin
        # Corner 0 stays the first; then come the last, the one before it, and so on.
        corners = corners[begin + (np.repeat(sizes, sizes) - rank) % np.repeat(sizes, sizes)]
    row, column = np.divmod(corners, shape[1] + 1)
    vertices = np.stack([x[column], y[row]], axis=1)
    number = np.repeat(np.arange(sizes.size), sizes)
    lines = shapely.linearrings(vertices, indices=number)
    areas = shapely.polygons(lines, indices=rings.region)
    found = rings.labels
    if not parts:
        # `multipolygons` takes sorted indices; a stable sort keeps the polygons of a label in
        # order.
        order = np.argsort(found, kind="stable")
        found, of_label = np.unique(found, return_inverse=True)
        areas = shapely.multipolygons(areas[order], indices=of_label[order])
    elif rings.area is not None:
        areas, first = join_geometries(areas, rings.area, shapely.multipolygons)
        found = found[first]
    return VectorLayer(np.asarray(areas, object), {"label": found}, place.map_crs)
