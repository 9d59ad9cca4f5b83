"""Draw forests, costs and paths over a hillshade of the terrain, to image files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.kernels.forest.cut_sizes import cut_sizes
from orograph.tiles.grid.border import DIRECTION_STEPS

if TYPE_CHECKING:
    from orograph.results.paths import LeastCostPath

_STEPS = np.array(DIRECTION_STEPS)


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
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    heights = np.ma.masked_invalid(np.asarray(elevation.values, np.float64))
    mask = np.asarray(edges.values)
    first, second, branch = _branches(mask)
    width = mask.shape[1]
    drawn = branch >= max(3, mask.size // 20_000)
    order = np.argsort(branch[drawn])
    first, second, branch = first[drawn][order], second[drawn][order], branch[drawn][order]

    figure, axes = _hillshade(heights)
    ends = np.stack([np.stack(np.divmod(v, width)[::-1], axis=-1) for v in (first, second)], axis=1)
    share = np.log(branch) / np.log(mask.size)
    lines = LineCollection(
        list(ends),
        linewidths=0.15 + 2.6 * share**3,
        colors=colormaps["YlGnBu"](0.15 + 0.85 * share),
        capstyle="round",
    )
    axes.add_collection(lines)
    return _finish(figure, axes, heights.shape, title, path)


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
    heights = np.ma.masked_invalid(np.asarray(elevation.values, np.float64))
    figure, axes = _hillshade(heights)
    values = np.ma.masked_invalid(np.asarray(cost.values, np.float64))
    axes.imshow(values, cmap="magma_r", alpha=0.45, interpolation="bilinear")
    axes.contour(values, levels=24, colors="white", linewidths=0.5, alpha=0.7)
    for way in paths:
        rows, columns = way.cells.T
        axes.plot(columns, rows, color="black", linewidth=3.4, solid_capstyle="round")
        axes.plot(columns, rows, color="#ffd23f", linewidth=1.8, solid_capstyle="round")
        axes.plot(columns[0], rows[0], "o", color="#ffd23f", markeredgecolor="black", markersize=9)
        axes.plot(columns[-1], rows[-1], "*", color="white", markeredgecolor="black", markersize=18)
    return _finish(figure, axes, heights.shape, title, path)


def _hillshade(heights: Any) -> tuple[Any, Any]:
    """Return a figure and its axes with the hillshade of a terrain."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LightSource

    height, width = heights.shape
    figure, axes = plt.subplots(figsize=(11, 11 * height / width), layout="constrained")
    light = LightSource(azdeg=315, altdeg=40)
    exaggeration = 0.35 * width / max(float(np.ptp(heights)), 1.0) * 0.3
    shaded = light.shade(
        heights.filled(float(heights.min())),
        plt.colormaps["gist_earth"],
        vert_exag=exaggeration,
        blend_mode="soft",
        vmin=float(heights.min()) - 0.35 * float(np.ptp(heights)),
        vmax=float(heights.max()) + 0.25 * float(np.ptp(heights)),
    )
    axes.imshow(shaded, interpolation="bilinear")
    return figure, axes


def _finish(figure: Any, axes: Any, shape: tuple[int, int], title: str, path: str | Path) -> Path:
    import matplotlib.pyplot as plt

    height, width = shape
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), title=title)
    axes.set_axis_off()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return Path(path)


def _branches(mask: npt.NDArray[np.uint8]) -> tuple[Any, Any, Any]:
    """Return the edges of a forest, and the size of the smaller part each would cut off."""
    width = mask.shape[1]
    firsts, seconds = [], []
    for direction, (dy, dx) in enumerate(DIRECTION_STEPS):
        first = np.flatnonzero(mask.ravel() >> direction & 1)
        firsts.append(first)
        seconds.append(first + dy * width + dx)
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    return first, second, cut_sizes(first, second, mask.size)
