"""The function `plot`, which draws any result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from orograph.kernels.relax.models import MODELS
from orograph.plotting.frame import draw_scale_bar, name_axes, same_view, set_aspect, update_marks
from orograph.plotting.layers import LAYERS, PATHS, SOURCES, draw_layer, draw_points
from orograph.plotting.look import Look
from orograph.plotting.rasters import draw_raster
from orograph.plotting.relief import draw_relief
from orograph.plotting.sources import find_sources
from orograph.plotting.tables import draw_table, read_table
from orograph.results.costs import COSTS
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.results.units import check_times
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError, own_errors, report_missing
from orograph.tiles.grid.crs import CRSLike, reproject
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.points import PointsLike, as_points, cells_of
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike, read_layer

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# what a result is drawn by, in this order
_MAIN = (*COSTS, "hops", "labels", "edges", "paths", "corridor", "allocation", "back_direction",
         "filled", "level", "catchment")  # fmt: skip
MOST_PIXELS = 2**16

_STATED_UNITS = {model.units for model in MODELS.values()} - {""}


_SHOWN: WeakKeyDictionary[Artist, CRSLike | None] = WeakKeyDictionary()
"""CRS of axes, by the scale bar that `plot` has drawn on them. A value that led to the axes, as the
bar does, would keep them for ever."""


@own_errors
def plot(
    result: RasterLike | VectorLike,
    *,
    variable: str | None = None,
    column: str | None = None,
    cmap: str | Colormap | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    unit: str | None = None,
    title: str | None = None,
    sources: PointsLike | None = None,
    basemap: RasterLike | None = None,
    ax: Axes | None = None,
    max_pixels: int = 2000,
) -> Axes:
    """Draw a result, with legend, units and a scale bar.

    Parameters
    ----------
    result : Dataset, DataArray, path, LeastCostPath, VectorLayer, or anything that is one
        Result of an operation, or the path of its store. It is drawn according to its kind:

        - costs and hops by colour, with their sources if these are points;
        - depths, lengths and accumulations on a scale that also shows small values;
        - components, allocations and watersheds in colours that differ between neighbours;
        - directions by the compass;
        - forests as lines if there are at most 2**18 cells, else by the number of edges of a cell;
        - paths and layers as lines, points and areas;
        - peaks, passes and depressions as points, with key cols, paths and spill cells.
    variable : str, optional
        Raster of a Dataset to draw; by default the one that the operation is named for.
    column : str, optional
        Column of a layer by which its shapes are coloured: numbers by value; up to twelve whole
        ones, such as the orders of streams, and anything else as classes.
    cmap : str or matplotlib Colormap, optional
        Colours of values.
    vmin, vmax : float, optional
        Values of the first and the last colour, in ``unit`` if that is given; by default the least
        and the greatest.
    unit : str, optional
        Unit in which values are shown, as for `convert_units`.
    title : str, optional
        Title of the axes; by default the name of a raster.
    sources : sequence of (x, y), or vector layer, optional
        Points, lines or areas to mark as sources, in the form given to the operation. By default
        the sources that the result shows are marked: at most 256 cells whose back direction, hops
        or cost is 0, the cost only if it is not 0 next to it too. They are searched for in rasters
        of up to 2**24 cells.
    basemap : DataArray, array or path, optional
        Elevation whose hillshade is drawn below the result.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure. A result drawn over another is
        reprojected to its CRS, and the extent is kept. Anything else already drawn there is assumed
        to have the CRS of this result.
    max_pixels : int
        Greatest number of pixels along the longer side: of larger rasters only every k-th cell of
        every k-th row is drawn.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; its ``figure`` can be saved.

    Raises
    ------
    InputError
        If the argument cannot be drawn, or cannot be reprojected to the CRS of the axes; if colours
        are chosen for classes, which have their own.
    OrographError
        If matplotlib is not installed.

    Notes
    -----
    Colours of classes differ by at least 15 in CIEDE2000, also for people with deuteranopia or
    protanopia. With more than twelve labels some share a colour, but neighbours never do. A pixel
    of a reprojected raster shows the cell in which its centre lies.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((3, 4)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> axes = og.plot(result)
    >>> axes.get_title()
    'cost from the nearest source'
    >>> og.plot(og.least_cost_path(result, [(3, 2)]), ax=axes) is axes
    True
    """
    with report_missing("plot", "matplotlib", "plot"):
        from matplotlib import pyplot
    max_pixels = check_integer("max_pixels", max_pixels, 1, MOST_PIXELS)
    if ax is not None and not hasattr(ax, "imshow"):
        raise InputError(f"ax: {shown(ax)}; it must be axes of matplotlib, or be left out")
    if not (title is None or isinstance(title, str)):
        raise InputError(f"title: {shown(title)}; it must be text, or be left out")
    look = Look.checked(cmap, vmin, vmax, unit, column)
    table, layer, raster, crs, marked = read_result(result, variable, sources)
    terrain = None if basemap is None else open_raster(basemap, argument="basemap")
    axes = ax if ax is not None else pyplot.subplots(figsize=(8, 6), layout="compressed")[1]
    empty = not axes.has_data()
    # Axes that `plot` has drawn on are known by their scale bar; what follows is brought to their
    # CRS.
    before = None if empty else next((bar for bar in axes.artists if bar in _SHOWN), None)
    target = _SHOWN[before] if before else crs
    if terrain is not None:
        with same_view(axes):
            draw_relief(axes, terrain, target, max_pixels)
    if table is not None:
        look.refuse(Look._fields, "tables")
        with same_view(axes):
            draw_table(axes, table, lambda points: move_points(points, crs, target))
    elif layer is not None:
        with same_view(axes):
            is_path = isinstance(result, LeastCostPath | LeastCostPaths)
            draw_layer(
                axes,
                layer.in_crs(target, "result") if before else layer,
                PATHS if is_path else LAYERS,
                label="path" if is_path else None,
                look=look,
            )
    elif raster is not None and before:
        with same_view(axes):
            draw_raster(axes, raster, target, max_pixels, units_of(result, raster), look)
    elif raster is not None:
        draw_raster(axes, raster, target, max_pixels, units_of(result, raster), look)
        # Without coordinates the first row is drawn at the top.
        if raster.georeference.y is None and not axes.yaxis_inverted():
            axes.invert_yaxis()
    if marked is not None:
        with same_view(axes):
            _mark_sources(axes, marked, crs, target)
    if empty:
        set_aspect(axes, target)
    if title is not None:
        axes.set_title(title, wrap=True)
    name_axes(axes, target)
    update_marks(axes)
    # The bar comes last: its length and its corner depend on all that is drawn.
    if before:
        before.remove()
    _SHOWN[draw_scale_bar(axes, target)] = target
    return axes


class Result(NamedTuple):
    """A table, a layer or a raster to draw, and its sources."""

    table: xr.Dataset | None
    layer: VectorLayer | None
    raster: Raster | None
    crs: CRSLike | None
    sources: VectorLayer | Array | None
    """Sources to be marked: a layer, or points in the CRS of the result."""


def read_result(
    result: RasterLike | VectorLike, variable: str | None, sources: PointsLike | None
) -> Result:
    """Read a result and its sources from the arguments of `plot`."""
    if isinstance(result, LeastCostPath):
        result = LeastCostPaths([result])
    table = read_table(result)
    layer = None if table is not None else read_layer(result, "result")
    raster = None
    marked: VectorLayer | Array | None = None
    if table is not None:
        crs = table.attrs.get("crs_wkt")
    elif layer is not None:
        crs = layer.crs
    else:
        raster = open_raster(
            cast("RasterLike", result),
            variable=_variable_of(result, variable),
            argument="result",
            offers=("variable",),
        )
        crs = raster.georeference.map_crs
    if sources is not None:
        marked = _read_sources(sources, raster, crs)
    elif raster is not None:
        marked = find_sources(result, raster)
    return Result(table, layer, raster, crs, marked)


def _read_sources(
    sources: PointsLike, raster: Raster | None, crs: CRSLike | None
) -> VectorLayer | Array:
    """Return sources as a layer, or as points in the CRS of the result."""
    layer = read_layer(sources, "sources")
    if layer is not None:
        return layer
    if raster is None:
        return as_points(sources, "sources", Georeference())
    points = as_points(sources, "sources", raster.georeference)
    cells_of(points, raster.georeference, raster.shape, "sources")  # raises if one is outside
    return points


def _mark_sources(
    axes: Axes, marked: VectorLayer | Array, crs: CRSLike | None, target: CRSLike | None
) -> None:
    """Mark the sources of a result: a layer, or points in its CRS."""
    if isinstance(marked, VectorLayer):
        if marked.has_extent():
            draw_layer(axes, marked.in_crs(target, "sources"), SOURCES, label="source")
            return
        points = marked.in_crs(target, "sources").points()[0]
    else:
        points = move_points(marked, crs, target)
    draw_points(axes, points, "*", SOURCES, "source", size=13)


def move_points(points: Array, crs: CRSLike | None, target: CRSLike | None) -> Array:
    """Reproject points to the CRS of the axes; NaN points stay NaN."""
    moved = points.astype(float)
    known = np.isfinite(moved).all(axis=1)
    moved[known] = reproject(moved[known], crs, target, "result")
    return moved


def units_of(result: Any, raster: Raster) -> str | None:
    """Return the units of a raster; None if they are unknown or no longer apply.

    The units that an operation has stated do not apply to values computed from its result
    (``cost * 2``): xarray keeps attributes in arithmetic, but drops the encoding.

    Raises
    ------
    InputError
        If values in metres and seconds cannot be times in the units; see `check_times`.
    """
    check_times(raster, "result")
    units = raster.attrs.get("units")
    array = result[raster.name] if hasattr(result, "data_vars") else result
    computed = not getattr(array, "encoding", True)
    return None if computed and raster.name in COSTS and units in _STATED_UNITS else units


def _variable_of(result: object, variable: str | None) -> str | None:
    if variable is not None or not hasattr(result, "data_vars"):
        return variable
    rasters = [str(name) for name, array in result.data_vars.items() if array.ndim == 2]
    named = [name for name in _MAIN if name in rasters]
    if not named and len(rasters) != 1:
        raise InputError(
            f"variable: the result has {', '.join(rasters) or 'no raster'}; name one of them"
        )
    return (named or rasters)[0]
