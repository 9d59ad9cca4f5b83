"""The operation `polygonize`: areas of equal labels as polygons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.execution.backends import choose_backend
from orograph.execution.context import RunContext
from orograph.execution.options import RunSpec, SearchOptions
from orograph.kernels.polygons.rings import compile_kernels
from orograph.operations.job import Job, layout_of
from orograph.operations.operation import operation
from orograph.polygons.tracing import Rings, TracedRegions, Tracing
from orograph.tiles.arguments import check_flag
from orograph.tiles.errors import InputError, OrographError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.store.sink import ArraySink
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    from affine import Affine

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PolygonJob(Job[VectorLayer]):
    """Job of tracing the areas of a raster of labels; its result is not stored."""

    nodata: float | int | None
    parts: bool

    stored = False

    def identity(self) -> dict[str, Any]:
        """Return the operation's name only, since such runs are never resumed."""
        return {"operation": "polygonize"}

    def warm_up(self) -> None:
        """Compile the kernels for labels of this dtype."""
        compile_kernels(self.rasters[0].dtype)

    def engine(
        self, rasters: tuple[Raster, ...], context: RunContext, backend: str
    ) -> TracedRegions:
        """Return the engine that traces the areas."""
        return TracedRegions(Tracing(self.shape, self.nodata, backend), rasters, context)

    def collect(
        self, engine: TracedRegions, sink: ArraySink, attributes: dict[str, Any]
    ) -> VectorLayer:
        """Return the areas as a layer."""
        return areas_of(engine.rings(), self.rasters[0].georeference, self.shape, self.parts)


@operation("orograph.polygons.estimate:estimate_polygonize")
def polygonize(
    labels: Any,
    *,
    parts: bool = False,
    nodata: float | int | None = None,
    **options: Unpack[SearchOptions],
) -> Job[VectorLayer]:
    """Return the areas of equal labels as polygons along the sides of cells, at any size.

    Parameters
    ----------
    labels : raster
        Whole numbers, shape (y, x), such as watersheds, components or an allocation.
    parts : bool
        A row for each area that is connected by the sides of its cells, as a polygon. By default a
        row for each label, as a multipolygon of all its areas.
    nodata : float or int, optional
        The value of cells without a label, in place of what the raster itself says.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    VectorLayer
        Polygons in the CRS of the labels with the column ``label``, in the order of the labels;
        of parts as a scan meets their first cells. Without coordinates cells are squares about
        their row and column.

    Raises
    ------
    InputError
        If an argument is invalid, or labels are not whole numbers.
    OrographError
        If Shapely is not installed.
    BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    Polygons are valid, and neighbours share their corners exactly: they leave no gaps and do not
    overlap. Outer rings run counterclockwise, holes clockwise. Cells that touch at a corner alone
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
    raster = open_raster(labels, nodata=nodata, argument="labels")
    if raster.dtype.kind not in "iub":
        raise InputError(
            f"labels: they are {raster.dtype}, and areas of equal numbers need whole ones; convert "
            "them, such as by .astype('int32'), or sort them into classes"
        )
    check_flag("parts", parts)
    _edges_of_cells(raster.georeference, raster.shape)
    try:
        import shapely  # noqa: F401
    except ImportError as error:
        raise OrographError(
            "polygonize: it needs shapely; install it with pip install 'orograph[vector]'"
        ) from error
    spec = RunSpec(**options)
    backend = choose_backend("trace_boundaries", (raster,), spec)
    layout = layout_of(raster, spec)
    return PolygonJob((raster,), raster.shape, layout, backend, raster.nodata, parts, spec=spec)


def areas_of(rings: Rings, place: Georeference, shape: tuple[int, int], parts: bool) -> VectorLayer:
    """Return rings as a layer of polygons, or of a multipolygon for each label."""
    import shapely

    x, y, mirrored = _edges_of_cells(place, shape)
    corners, sizes = rings.corners, np.diff(rings.ends, prepend=0)
    if mirrored:  # the other way round, from the same corner
        begin = np.repeat(rings.ends - sizes, sizes)
        rank = np.arange(corners.size) - begin
        corners = corners[begin + (np.repeat(sizes, sizes) - rank) % np.repeat(sizes, sizes)]
    row, column = np.divmod(corners, shape[1] + 1)
    vertices = np.stack([x[column], y[row]], axis=1)
    number = np.repeat(np.arange(sizes.size), sizes)
    lines = shapely.linearrings(vertices, indices=number)
    areas = shapely.polygons(lines, indices=rings.region)
    found = rings.labels
    if not parts:
        order = np.argsort(found, kind="stable")
        found, of_label = np.unique(found, return_inverse=True)
        areas = shapely.multipolygons(areas[order], indices=of_label[order])
    return VectorLayer(np.asarray(areas, object), {"label": found}, place.map_crs)


def _edges_of_cells(place: Georeference, shape: tuple[int, int]) -> tuple[Array, Array, bool]:
    """Return the coordinates of the edges of columns and of rows, and if the map is mirrored.

    It is where rows run in the direction of y, while columns run in that of x, or the reverse.
    """
    rows, columns = np.arange(shape[0] + 1), np.arange(shape[1] + 1)
    if place.y is None or place.x is None:
        return columns - 0.5, rows - 0.5, True
    transform: Affine | None = place.transform
    x: Array
    y: Array
    if transform is None:
        x, y = (_between(values) for values in (place.x, place.y))
    else:
        x, y = transform.c + transform.a * columns, transform.f + transform.e * rows
    return x, y, bool((x[-1] > x[0]) == (y[-1] > y[0]))


def _between(centres: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the edges of cells halfway between their centres."""
    if centres.size < 2:
        raise InputError(
            "labels: a single row or column does not tell the size of its cells; give a transform, "
            "or drop the coordinates (.drop_vars)"
        )
    middle = (centres[:-1] + centres[1:]) / 2
    first, last = 2 * centres[0] - middle[0], 2 * centres[-1] - middle[-1]
    edges: npt.NDArray[np.float64] = np.concatenate([[first], middle, [last]])
    return edges
