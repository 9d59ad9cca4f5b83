"""Draw forests, costs and paths over a hillshade of the terrain, to image files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.kernels.forest.cut_sizes import cut_sizes
from orograph.plotting.frame import (
    add_colorbar,
    draw_scale_bar,
    name_axes,
    set_aspect,
    update_marks,
)
from orograph.plotting.layers import draw_points
from orograph.plotting.plot import plot
from orograph.plotting.relief import draw_relief
from orograph.plotting.sampled_raster import read_picture
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.grid.border import DIRECTION_STEPS
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import open_raster

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PIXELS = 2000


def forest_picture(
    elevation: xr.DataArray, edges: xr.DataArray, path: str | Path, *, title: str = ""
) -> Path:
    """Draw a forest over the hillshade of its terrain.

    Of the edges those are drawn that carry a branch of some size, the wider the larger the
    branch, so that the picture shows the forest's skeleton and not a carpet of cells.

    Parameters
    ----------
    elevation
        Heights, shape (y, x), small enough for memory.
    edges
        The variable ``edges`` of `minimum_spanning_forest`.
    path
        File to write; its ending tells matplotlib the format.
    title
        Title of the picture.

    Returns
    -------
    pathlib.Path
        ``path``.
    """
    pyplot = _pyplot()
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LogNorm

    raster = open_raster(elevation)
    place = raster.georeference
    mask = np.asarray(edges.values)
    first, second, branch = _branches(mask, place.orientation)
    # Edges that cut off a few cells alone are too many to be seen.
    drawn = branch >= max(3, mask.size // 20_000)
    # The largest branches are drawn last, over all others.
    order = np.argsort(branch[drawn])
    first, second, branch = first[drawn][order], second[drawn][order], branch[drawn][order]
    width = mask.shape[1]
    ends = [coordinates_of(cells // width, cells % width, place) for cells in (first, second)]

    axes = pyplot.subplots(figsize=(11, 9), layout="compressed")[1]
    draw_relief(axes, raster, place.map_crs, MOST_PIXELS)
    share = np.log(branch) / np.log(mask.size)
    lines = LineCollection(
        list(np.stack(ends, axis=1)),
        linewidths=0.15 + 2.6 * share**3,
        array=branch,
        cmap="viridis_r",
        norm=LogNorm(),
        capstyle="round",
    )
    axes.add_collection(lines)
    set_aspect(axes, place.map_crs)
    name_axes(axes, place.map_crs)
    draw_scale_bar(axes, place.map_crs)
    add_colorbar(axes, lines, "cells of the smaller part that the edge joins")
    return _save(axes, title, path)


def cost_picture(
    elevation: xr.DataArray,
    cost: xr.DataArray,
    paths: Sequence[LeastCostPath],
    path: str | Path,
    *,
    title: str = "",
) -> Path:
    """Draw lines of equal cost and least-cost paths over the hillshade of a terrain.

    Parameters
    ----------
    elevation, cost
        Heights, and the variable ``cost`` of `cost_distance`; shape (y, x), small enough for
        memory.
    paths
        What `least_cost_path` has returned.
    path
        File to write; its ending tells matplotlib the format.
    title
        Title of the picture.

    Returns
    -------
    pathlib.Path
        ``path``.
    """
    pyplot = _pyplot()
    axes = pyplot.subplots(figsize=(11, 9), layout="compressed")[1]
    plot(cost, basemap=elevation, ax=axes)
    raster = open_raster(cost)
    picture = read_picture(raster, raster.georeference.map_crs, MOST_PIXELS)
    left, right, bottom, top = picture.extent
    height, width = picture.cells.shape
    axes.contour(
        left + (np.arange(width) + 0.5) * (right - left) / width,
        top - (np.arange(height) + 0.5) * (top - bottom) / height,
        np.ma.masked_array(picture.cells, ~picture.known),
        levels=24,
        colors="white",
        linewidths=0.5,
        alpha=0.7,
    )
    plot(LeastCostPaths(paths), ax=axes)
    starts = np.array([path.coordinates[0] for path in paths])
    draw_points(axes, starts, "o", "#ffffff", "start", size=8)
    update_marks(axes)
    return _save(axes, title, path)


def _pyplot() -> Any:
    """Return pyplot with a backend that needs no display."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _save(axes: Axes, title: str, path: str | Path) -> Path:
    figure: Any = axes.figure
    axes.set_title(title)
    figure.savefig(path, dpi=150)
    _pyplot().close(figure)
    return Path(path)


def _branches(mask: npt.NDArray[np.uint8], orientation: Orientation) -> tuple[Any, Any, Any]:
    """Return the edges of a forest, and the size of the smaller part each would cut off."""
    width = mask.shape[1]
    firsts, seconds = [], []
    for direction, (dy, dx) in enumerate(DIRECTION_STEPS):
        first = np.flatnonzero(mask.ravel() >> direction & 1)
        firsts.append(first)
        seconds.append(first + orientation.south * dy * width + orientation.east * dx)
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    return first, second, cut_sizes(first, second, mask.size)
