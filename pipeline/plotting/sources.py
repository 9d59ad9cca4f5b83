"""Find the sources that a result of distances tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from orograph.results.costs import COSTS
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster

if TYPE_CHECKING:
    from orograph.tiles.vector.layer import VectorLike

MOST_CELLS = 2**24
MOST_SOURCES = 256


def find_sources(result: RasterLike | VectorLike, raster: Raster) -> npt.NDArray[np.float64] | None:
    """Return the coordinates of a result's source cells, or None if it does not tell them.

    A direction back or a number of hops is 0 at sources alone. So is a cost, except beside them
    where the friction is 0.

    Parameters
    ----------
    result
        What is drawn.
    raster
        The raster of it that is drawn.
    """
    if raster.name not in {*COSTS, "hops", "back_direction", "allocation"}:
        return None
    if raster.shape[0] * raster.shape[1] > MOST_CELLS:
        return None
    known = raster
    if raster.name in {*COSTS, "allocation"} and "back_direction" in getattr(
        result, "data_vars", ()
    ):
        known = open_raster(
            cast("RasterLike", result), variable="back_direction", argument="result"
        )
    elif raster.name == "allocation":
        return None
    cells = known.read(Window(0, 0, *known.shape))
    zero = valid_cells(cells, known.nodata) & (cells == 0)
    if known.name in COSTS:
        from scipy.ndimage import label  # slow to import

        # Several cells of cost 0 side by side may be ground without friction around a source.
        regions, count = label(zero, np.ones((3, 3)))
        alone = np.bincount(regions.ravel(), minlength=count + 1) == 1
        zero &= alone[regions]
    rows, columns = np.nonzero(zero)
    if not 0 < rows.size <= MOST_SOURCES:
        return None
    return np.asarray(coordinates_of(rows, columns, known.georeference), float)
