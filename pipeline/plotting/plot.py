"""The function `plot`, which draws any result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from orograph.forest.edges import forest_lines
from orograph.kernels.relax.models import MODELS
from orograph.plotting.labels import colours, every
from orograph.plotting.tables import draw_table, read_table
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError, OrographError
from orograph.tiles.grid.crs import parse_crs, reproject, same_crs
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.vector.layer import VectorLayer, read_layer

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# what a result is drawn by, in this order
_MAIN = ("cost", "hops", "labels", "edges", "paths", "corridor", "allocation", "back_direction",
         "filled", "level")  # fmt: skip
_NUMBERED = {"labels", "allocation", "depression"}
_WITH_BACKGROUND = {"labels", "depression"}
_COMPASS = ("source", "east", "south-east", "south", "south-west", "west", "north-west", "north",
            "north-east")  # fmt: skip
PATHS, LAYERS = "#d1495b", "#f39c12"
MOST_LINES = 2**18
MOST_PIXELS = 2**16

_STATED_UNITS = {model.units for model in MODELS.values()} - {""}

Array = npt.NDArray[Any]


class _Shown(NamedTuple):
    """CRS and scale bar of axes on which `plot` has drawn."""

    crs: Any
    bar: Artist


_SHOWN: WeakKeyDictionary[Axes, _Shown] = WeakKeyDictionary()


def plot(
    result: Any, *, variable: str | None = None, ax: Axes | None = None, most: int = 2000
) -> Axes:
    """Draw a result, with legend, units and a scale bar.

    Parameters
    ----------
    result : Dataset, DataArray, path, LeastCostPath, VectorLayer, or anything that is one
        What an operation has returned, or the path of its store: costs and hops by colour,
        components and allocations each in a colour of its own, back directions by the compass,
        forests as lines where there are at most 2**18 cells, else by the number of edges of a cell;
        paths and layers as lines and points. Peaks, passes and depressions as points, with key
        cols, paths and spill cells; their places are best seen over the elevation.
    variable : str, optional
        Which raster of a Dataset; by default that which the operation is named for.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own. Over another result, layers and tables are
        brought to its CRS, and the extent of a raster is kept. What others have drawn there is
        taken to have the CRS of this result.
    most : int
        Pixels of the longer side: of larger rasters every k-th cell of every k-th row is drawn.

    Returns
    -------
    matplotlib.axes.Axes
        Its ``figure`` can be saved.

    Raises
    ------
    InputError
        If it is nothing that can be drawn, or cannot be brought to the CRS of the axes.
    OrographError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((3, 4)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> axes = og.plot(result)
    >>> axes.get_title()
    'least cost from the nearest source'
    >>> og.plot(og.least_cost_path(result, [(3, 2)]), ax=axes) is axes
    True
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise OrographError(
            "plot: it needs matplotlib; install it with pip install 'orograph[plot]'"
        ) from error
    most = check_integer("most", most, 1, MOST_PIXELS)
    if ax is not None and not hasattr(ax, "imshow"):
        raise InputError(f"ax: {shown(ax)}; it must be axes of matplotlib, or be left out")
    if isinstance(result, LeastCostPath):
        result = LeastCostPaths([result])
    table = read_table(result)
    layer = None if table is not None else read_layer(result, "result")
    if table is None and layer is None:
        raster = open_raster(result, variable=_variable_of(result, variable), argument="result")
    axes = ax if ax is not None else pyplot.subplots(layout="constrained")[1]
    empty = not axes.has_data()
    before = None if empty else _SHOWN.get(axes)
    if table is not None:
        crs = table.attrs.get("crs_wkt")
        target = before.crs if before else crs
        with _same_view(axes):
            draw_table(axes, table, lambda points: _move(points, crs, target))
    elif layer is not None:
        layer = layer.in_crs(before.crs, "result") if before else layer
        crs = layer.crs
        with _same_view(axes):
            _draw_layer(axes, layer, PATHS if isinstance(result, LeastCostPaths) else LAYERS)
    else:
        crs = raster.georeference.map_crs
        if before:
            _check_crs(crs, before.crs)
        _draw_raster(axes, raster, most, _units(result, raster))
        if raster.georeference.y is None and not axes.yaxis_inverted():
            axes.invert_yaxis()
    crs = before.crs if before else crs
    if empty:
        axes.set_aspect("equal")
    _name_axes(axes, crs)
    if before:
        before.bar.remove()
    _SHOWN[axes] = _Shown(crs, _draw_scale_bar(axes, crs))
    return axes


@contextmanager
def _same_view(axes: Axes) -> Iterator[None]:
    """Restore the axis limits on exit if the axes already show a raster."""
    view = (axes.get_xlim(), axes.get_ylim()) if axes.images else None
    yield
    if view is not None:
        axes.set(xlim=view[0], ylim=view[1])


def _move(points: Array, crs: Any, target: Any) -> Array:
    """Reproject points to the CRS of the axes; NaN points stay NaN."""
    moved = points.astype(float)
    known = np.isfinite(moved).all(axis=1)
    moved[known] = reproject(moved[known], crs, target, "result")
    return moved


def _check_crs(crs: Any, target: Any) -> None:
    """Raise InputError if a raster has another CRS than what the axes show."""
    one, other = (None if wkt is None else parse_crs(wkt, "result") for wkt in (crs, target))
    if (one is None) != (other is None) or (one and other and not same_crs(one, other)):
        raise InputError(
            f"result: its CRS is {one.name if one else 'unknown'}, but that of the axes is "
            f"{other.name if other else 'unknown'}; draw the raster first and layers over it, or "
            "bring it to that CRS with rio.reproject(...)"
        )


def _units(result: Any, raster: Raster) -> str | None:
    """Return the units of a raster, or None if unknown or no longer true.

    Those that an operation has stated are not the units of what was computed of its result
    (``cost / 3600``): xarray keeps attributes in arithmetic, but no encoding.
    """
    units = raster.attrs.get("units")
    array = result[raster.name] if hasattr(result, "data_vars") else result
    computed = not getattr(array, "encoding", True)
    return None if computed and raster.name == "cost" and units in _STATED_UNITS else units


def _variable_of(result: Any, variable: str | None) -> str | None:
    if variable is not None or not hasattr(result, "data_vars"):
        return variable
    rasters = [str(name) for name, array in result.data_vars.items() if array.ndim == 2]
    named = [name for name in _MAIN if name in rasters]
    if not named and len(rasters) != 1:
        raise InputError(
            f"variable: the result has {', '.join(rasters) or 'no raster'}; name one of them"
        )
    return (named or rasters)[0]


def _draw_raster(axes: Axes, raster: Raster, most: int, units: str | None) -> None:
    step = -(-max(raster.shape) // most)
    name = raster.name or ""
    title = str(raster.attrs.get("long_name") or name)
    if name == "edges" and raster.shape[0] * raster.shape[1] <= MOST_LINES:
        _draw_layer(axes, forest_lines(_lazily(raster)), PATHS, width=0.6)
    else:
        cells = every(raster, step)
        known = valid_cells(cells, raster.nodata)
        extent = _extent(raster)
        if name in _NUMBERED:
            _draw_numbers(
                axes, cells, known & ((cells != 0) | (name not in _WITH_BACKGROUND)), extent
            )
        elif name == "back_direction":
            _draw_directions(axes, cells, known, extent)
        else:
            _draw_values(axes, raster, cells, known, extent, units)
    axes.set_title(title)


def _lazily(raster: Raster) -> Any:
    import xarray as xr

    from orograph.tiles.grid.window import Window

    place = raster.georeference
    cells = raster.read(Window(0, 0, *raster.shape))
    return xr.DataArray(cells, place.coords(), (place.y_name, place.x_name), "edges")


def _extent(raster: Raster) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of a raster on the map."""
    place = raster.georeference
    sides: list[float] = []
    for axis, length in ((place.x, raster.shape[1]), (place.y, raster.shape[0])):
        centres = np.arange(length, dtype=float) if axis is None else axis
        half = (centres[-1] - centres[0]) / max(length - 1, 1) / 2 or 0.5
        sides += [float(centres[0] - half), float(centres[-1] + half)]
    left, right, top, bottom = sides
    return left, right, bottom, top


def _draw_values(
    axes: Axes, raster: Raster, cells: Array, known: Array, extent: Any, units: str | None
) -> None:
    if raster.name == "edges":
        cells = np.bitwise_count(cells)
    if raster.name == "hops":
        known = known & (cells >= 0)
    shown = np.ma.masked_array(cells, ~known)
    image = axes.imshow(shown, extent=extent, cmap="viridis", interpolation="nearest")
    name = "edges" if raster.name == "edges" else raster.name or ""
    label = f"{name} [{units}]" if units else name
    axes.figure.colorbar(image, ax=axes, label=label, shrink=0.8)


def _draw_numbers(axes: Axes, cells: Array, known: Array, extent: Any) -> None:
    picture = np.zeros((*cells.shape, 4))
    picture[known, :3] = colours(cells[known].astype(np.int64))
    picture[known, 3] = 1.0
    axes.imshow(picture, extent=extent, interpolation="nearest")
    numbers = np.unique(cells[known])
    _add_legend(axes, [(str(n), colours(np.array([n]))[0]) for n in numbers[:12].tolist()],
                f"{numbers.size} in all" if numbers.size > 12 else "")  # fmt: skip


def _draw_directions(axes: Axes, cells: Array, known: Array, extent: Any) -> None:
    from matplotlib import colormaps

    around = colormaps["twilight"]
    # knight's moves are named by the eighth of the compass in which they lie
    eighth = np.where(cells > 8, (cells - 9) // 2 + 1, cells)
    picture = around((eighth - 1) % 8 / 8.0)
    picture[cells == 0] = (0.85, 0.1, 0.1, 1)
    picture[~known] = 0
    axes.imshow(picture, extent=extent, interpolation="nearest")
    entries = [("source", (0.85, 0.1, 0.1))]
    entries += [(_COMPASS[n], around((n - 1) / 8.0)[:3]) for n in range(1, 9)]
    _add_legend(axes, entries, "step back")


def _add_legend(axes: Axes, entries: list[tuple[str, Any]], title: str) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=tuple(colour), label=label) for label, colour in entries]
    axes.legend(handles=patches, title=title or None, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_layer(axes: Axes, layer: VectorLayer, colour: str, width: float = 1.8) -> None:
    from matplotlib.collections import LineCollection
    from shapely import boundary, get_coordinates, get_dimensions

    from orograph.tiles.vector.burn import simple_parts

    parts, _ = simple_parts(layer.geometry)
    kinds = get_dimensions(parts)
    outlines, _ = simple_parts(boundary(parts[kinds == 2]))
    lines = [get_coordinates(line) for line in [*parts[kinds == 1], *outlines]]
    axes.add_collection(LineCollection(lines, linewidths=width, colors=colour))
    points = get_coordinates(parts[kinds == 0])
    if len(points):
        axes.plot(*points.T, "o", color=colour, markeredgecolor="white")
    axes.autoscale_view()


def _name_axes(axes: Axes, crs: Any) -> None:
    """Set axis labels with units, unless the axes have labels."""
    unit, east, north = "", "x", "y"
    if crs is not None:
        parsed = parse_crs(crs, "result")
        unit = min({axis.unit_name for axis in parsed.axis_info} or {""})
        unit = f" [{ {'metre': 'm', 'degree': '°'}.get(unit, unit) }]"
        east, north = ("longitude", "latitude") if parsed.is_geographic else ("x", "y")
    if not axes.get_xlabel() and not axes.get_ylabel():
        axes.set(xlabel=f"{east}{unit}", ylabel=f"{north}{unit}")


def _draw_scale_bar(axes: Axes, crs: Any) -> Artist:
    """Draw a bar of 1, 2 or 5 times a power of ten, about a quarter of the width."""
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    left, right = axes.get_xlim()
    low, high = sorted(axes.get_ylim())
    a_unit, unit = 1.0, "cells"
    if crs is not None:
        parsed = parse_crs(crs, "result")
        unit = "m"
        if parsed.is_geographic:
            from pyproj import Geod

            middle = min(max((low + high) / 2, -90.0), 90.0)
            a_unit = Geod(ellps="WGS84").line_length([0, 1], [middle, middle])
        else:
            a_unit = float(parsed.axis_info[0].unit_conversion_factor) if parsed.axis_info else 1.0
    quarter = abs(right - left) * a_unit / 4
    power = 10.0 ** math.floor(math.log10(quarter))
    length = max(n * power for n in (1, 2, 5) if n * power <= quarter)
    text = f"{length / 1000:g} km" if unit == "m" and length >= 1000 else f"{length:g} {unit}"
    bar = AnchoredSizeBar(
        *(axes.transData, length / a_unit, text, "lower left"),
        size_vertical=(high - low) / 150,
        pad=0.3,
        borderpad=0.6,
        sep=3,
        label_top=True,
        fill_bar=True,
    )
    bar.patch.set(alpha=0.75, linewidth=0)  # to be read over any colours
    return axes.add_artist(bar)
