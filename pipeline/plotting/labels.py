"""Draw components in colours that differ between neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import OrographError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, open_raster

READ_SIDE = 1024
LEAST_SIDE = 512  # pixels: pictures of small rasters are enlarged to at least this side
GOLDEN_RATIO = 0.6180339887498949
LIGHTNESS = np.array([0.38, 0.55, 0.72])
SATURATION = np.array([0.6, 0.95])
GREY = np.array([0.6, 0.6, 0.6, 1.0])

Array = npt.NDArray[Any]


def components_picture(
    labels: Any, path: str | Path, *, classes: Any = None, most: int = 2000
) -> Path:
    """Draw labels to an image file, each in a colour of its own.

    Hues follow one another by the golden ratio, in three lightnesses and two saturations, so that
    labels that differ by less than a hundred, as those of neighbours mostly do, differ visibly.

    Parameters
    ----------
    labels
        The variable ``labels`` of `connected_components`, its Dataset or its store, of any size.
    path
        File to write; its ending tells matplotlib the format. Those without transparency have a
        white background.
    classes
        The raster that was labelled, to distinguish its nodata cells from its background.
    most
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
    step = -(-longest // most)
    numbers = every(raster, step)
    picture = np.zeros((*numbers.shape, 4))
    labelled = numbers > 0
    picture[labelled, :3] = colours(numbers[labelled])
    picture[labelled, 3] = 1.0
    if classes is not None:
        other = open_raster(classes)
        picture[~valid_cells(every(other, step), other.nodata)] = GREY
    factor = max(LEAST_SIDE // longest, 1)
    save(path, picture.repeat(factor, 0).repeat(factor, 1))
    return Path(path)


def image_writer() -> Any:
    """Return matplotlib's ``imsave``; raise OrographError if matplotlib is not installed."""
    try:
        from matplotlib.image import imsave
    except ImportError as error:
        raise OrographError(
            "picture: it needs matplotlib; install it with pip install 'orograph[plot]'"
        ) from error
    return imsave


def colours(labels: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
    """Return the RGB colours of labels, shape (n, 3), from 0 to 1."""
    hue = labels * GOLDEN_RATIO % 1
    lightness, saturation = LIGHTNESS[labels % 3], SATURATION[labels // 3 % 2]
    width = saturation * np.minimum(lightness, 1 - lightness)
    channels = []
    for offset in (0, 8, 4):
        turn = (offset + 12 * hue) % 12
        channels.append(lightness - width * np.clip(np.minimum(turn - 3, 9 - turn), -1, 1))
    return np.stack(channels, axis=-1)


def every(raster: Raster, step: int) -> Array:
    """Read every ``step``-th cell of every ``step``-th row of a raster, tile by tile."""
    rows, columns = (np.arange(min(step // 2, (n - 1) // 2), n, step) for n in raster.shape)
    cells = np.empty((rows.size, columns.size), raster.dtype)
    side = raster.tile or READ_SIDE
    for i in np.unique(rows // side).tolist():
        ys = np.flatnonzero(rows // side == i)
        y = int(rows[ys[0]])
        for j in np.unique(columns // side).tolist():
            xs = np.flatnonzero(columns // side == j)
            x = int(columns[xs[0]])
            window = Window(y, x, int(rows[ys[-1]]) - y + 1, int(columns[xs[-1]]) - x + 1)
            cells[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1] = raster.read(window)[::step, ::step]
    return cells
