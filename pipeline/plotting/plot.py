"""Pictures of any result, with legend, units and a scale bar: `plot`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.distance.paths import LeastCostPath, LeastCostPaths
from orograph.forest_edges import forest_lines
from orograph.plotting.labels import colours, every
from orograph.plotting.tables import draw_table, read_table
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError, OrographError
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.raster.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.vector.layer import VectorLayer, read_layer

if TYPE_CHECKING:
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

Array = npt.NDArray[Any]


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
        Where to draw, such as over another result; by default a figure of its own.
    most : int
        Pixels of the longer side: of larger rasters every k-th cell of every k-th row is drawn.

    Returns
    -------
    matplotlib.axes.Axes
        Its ``figure`` can be saved.

    Raises
    ------
    InputError
        If it is nothing that can be drawn.
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
    if table is not None:
        draw_table(axes, table)
        crs = table.attrs.get("crs_wkt")
    elif layer is not None:
        _draw_layer(axes, layer, PATHS if isinstance(result, LeastCostPaths) else LAYERS)
        crs = layer.crs
    else:
        _draw_raster(axes, raster, most)
        crs = raster.georeference.map_crs
        if raster.georeference.y is None and not axes.yaxis_inverted():
            axes.invert_yaxis()
    if ax is None:
        axes.set_aspect("equal")
        _name_axes(axes, crs)
        _draw_scale_bar(axes, crs)
    return axes


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


def _draw_raster(axes: Axes, raster: Raster, most: int) -> None:
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
            _draw_values(axes, raster, cells, known, extent)
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


def _draw_values(axes: Axes, raster: Raster, cells: Array, known: Array, extent: Any) -> None:
    if raster.name == "edges":
        cells = np.bitwise_count(cells)
    if raster.name == "hops":
        known = known & (cells >= 0)
    shown = np.ma.masked_array(cells, ~known)
    image = axes.imshow(shown, extent=extent, cmap="viridis", interpolation="nearest")
    units = raster.attrs.get("units")
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
    if crs is None:
        axes.set(xlabel="x", ylabel="y")
        return
    parsed = parse_crs(crs, "result")
    units = {axis.unit_name for axis in parsed.axis_info} or {""}
    unit = {"metre": "m", "degree": "°"}.get(min(units), min(units))
    east, north = ("longitude", "latitude") if parsed.is_geographic else ("x", "y")
    axes.set(xlabel=f"{east} [{unit}]", ylabel=f"{north} [{unit}]")


def _draw_scale_bar(axes: Axes, crs: Any) -> None:
    """Draw a bar of 1, 2 or 5 times a power of ten, about a quarter of the width."""
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
    x, y = left + 0.05 * (right - left), low + 0.05 * (high - low)
    if axes.yaxis_inverted():
        y = high - 0.05 * (high - low)
    end = x + math.copysign(length / a_unit, right - left)
    axes.plot([x, end], [y, y], color="black", linewidth=3, solid_capstyle="butt")
    axes.annotate(text, ((x + end) / 2, y), (0, 4), textcoords="offset points", ha="center")
    axes.set_xlim(left, right)
