"""Draw components in colours that differ between neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.plotting.colours import GREY, PALETTE, as_rgb, region_colours
from orograph.plotting.sampled_raster import every
from orograph.tiles.arrays import Array
from orograph.tiles.errors import report_missing
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import RasterLike, open_raster

LEAST_SIDE = 512  # pixels: pictures of small rasters are enlarged to at least this side


def components_picture(
    labels: RasterLike,
    path: str | Path,
    *,
    classes: RasterLike | None = None,
    max_pixels: int = 2000,
) -> Path:
    """Draw labels to an image file, in colours that differ between neighbours.

    Parameters
    ----------
    labels
        The variable ``labels`` of `connected_components`, its Dataset or its store, of any size.
    path
        File to write; its ending tells matplotlib the format. Those without transparency have a
        white background.
    classes
        The raster that was labelled, to distinguish its nodata cells from its background.
    max_pixels
        Pixels of the picture's longer side. Of larger rasters every k-th cell of every k-th row is
        drawn, read tile by tile: labels cannot be averaged.

    Returns
    -------
    pathlib.Path
        ``path``.

    Raises
    ------
    OrographError
        If matplotlib is not installed.
    """
    save = image_writer()
    raster = open_raster(labels, variable="labels")
    longest = max(raster.shape)
    step = -(-longest // max_pixels)
    numbers = every(raster, step)
    known = numbers > 0
    picture = paint_regions(numbers, known, *region_colours(numbers, known))
    if classes is not None:
        other = open_raster(classes)
        picture[~valid_cells(every(other, step), other.nodata)] = [*GREY, 1.0]
    # Whole pixels a cell, so that edges stay sharp.
    factor = max(LEAST_SIDE // longest, 1)
    save(path, picture.repeat(factor, 0).repeat(factor, 1))
    return Path(path)


def image_writer() -> Any:
    """Return matplotlib's ``imsave``; raise OrographError if matplotlib is not installed."""
    with report_missing("picture", "matplotlib", "plot"):
        from matplotlib.image import imsave
    return imsave


def paint_regions(
    cells: Array, known: npt.NDArray[np.bool_], numbers: Array, colour: Array
) -> npt.NDArray[np.float64]:
    """Return the colours of labels, shape (h, w, 4), transparent where they are unknown.

    ``numbers`` and ``colour`` are what `region_colours` returns.
    """
    picture = np.zeros((*cells.shape, 4))
    picture[known, :3] = as_rgb(PALETTE)[colour[np.searchsorted(numbers, cells[known])]]
    picture[known, 3] = 1.0
    return picture
