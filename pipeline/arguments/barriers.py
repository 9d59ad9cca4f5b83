"""Parse the barriers of distances: a raster, or a vector layer burnt onto the grid."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from orograph.arguments.grids import check_same_grid
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.vector.layer import VectorLike, read_layer

BARRIERS = "barriers"
"""Name of the argument for barriers, and of their raster among the inputs of a run."""


BarriersLike = RasterLike | VectorLike
"""Barriers: a raster whose cells that are not 0 or nodata are barriers, or a vector layer."""


def parse_barriers(barriers: BarriersLike | None, first: Raster) -> Raster | None:
    """Return a raster whose cells that are not 0 or nodata are barriers; None if there are none.

    Geometries cover all cells that they touch: so no path slips through.
    """
    if barriers is None:
        return None
    layer = read_layer(barriers, BARRIERS)
    if layer is None:
        raster = open_raster(cast("RasterLike", barriers), argument=BARRIERS)
        check_same_grid(BARRIERS, raster, first)
        return raster
    place, shape = first.georeference, first.shape
    burnt = LayerRaster.of_layer(layer, place, shape, BARRIERS, all_touched=True, partly=True)
    # All geometries are barriers alike, whatever their numbers.
    return replace(burnt, label=np.ones_like(burnt.label), labels=(1,))
