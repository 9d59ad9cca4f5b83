"""Parse the barriers of distances: rasters, or vector layers burnt onto the grid."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from orograph.arguments.grids import check_same_grid
from orograph.kernels.relax.models import MOST_CROSSED
from orograph.tiles.arguments import check_number
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.mask import MaskRaster, ValidRaster
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike, read_layer

BARRIERS = "barriers"
"""Name of the argument for barriers, and of their raster among the inputs of a run."""


BarrierLike = RasterLike | VectorLike | tuple[RasterLike | VectorLike, float]
"""A barrier: a raster whose cells that are not 0 or nodata are barriers, or a vector layer.

With a number it can be crossed, at that cost.
"""

BarriersLike = BarrierLike | Sequence[BarrierLike]
"""Barriers: one, or several in a list."""


@dataclass(frozen=True, eq=False)
class BarrierRaster(ValidRaster):
    """Bits that tell which of several rasters have a barrier in a cell: bit 0 for the first."""

    dtype = np.dtype(np.int32)  # type: ignore[assignment]
    nodata = None  # type: ignore[assignment]
    bytes_per_cell = 4

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the bits of ``window``, int32."""
        bits = np.zeros(window.shape, np.int32)
        for k, raster in enumerate((self.raster, *self.others)):
            bits |= MaskRaster(raster).read(window).astype(np.int32) << k
        return bits

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        rasters = self.raster, *self.others
        return "-".join(["barriers", *(raster.fingerprint() for raster in rasters)])


class Barriers(NamedTuple):
    """Barriers as rasters of one grid."""

    barred: Raster | None = None
    """Raster whose cells that are not 0 or nodata cannot be entered; None if there are none."""
    crossed: Raster | None = None
    """Raster of bits: which of the barriers that can be crossed a cell is in; None without any."""
    penalties: tuple[float, ...] = ()
    """Cost of crossing each of these."""


def parse_barriers(
    barriers: BarriersLike | None, first: Raster, *, no_penalties: str = ""
) -> Barriers:
    """Return barriers on the grid of a raster.

    Geometries cover all cells that they touch: so no path slips through. ``no_penalties``: why
    barriers cannot be crossed at a cost; empty if they can.

    Raises
    ------
    InputError
    """
    barred: list[Raster] = []
    crossed: list[Raster] = []
    penalties: list[float] = []
    for barrier, penalty in _listed(barriers):
        if penalty == math.inf:
            barred.append(_on_grid(barrier, first))
            continue
        number = check_number(f"{BARRIERS}: penalty", penalty, 0, sys.float_info.max / 16)
        if no_penalties:
            raise InputError(
                f"{BARRIERS}: a penalty of {number:g}, but {no_penalties}; leave it out"
            )
        crossed.append(_on_grid(barrier, first))
        penalties.append(number)
    if len(crossed) > MOST_CROSSED:
        raise InputError(
            f"{BARRIERS}: {len(crossed)} with penalties, which can be {MOST_CROSSED} at most; put "
            "those of equal penalties into one layer"
        )
    together = BarrierRaster(barred[0], (*barred[1:],)) if len(barred) > 1 else None
    bits = BarrierRaster(crossed[0], (*crossed[1:],)) if crossed else None
    return Barriers(together or next(iter(barred), None), bits, tuple(penalties))


def _listed(barriers: Any) -> list[tuple[Any, Any]]:
    """Return barriers one by one, each with its penalty; infinity for those without one."""
    if barriers is None:
        return []
    # A sequence of geometries is one layer, and some operations return lists that have a layer.
    sequence = isinstance(barriers, list | tuple) and not hasattr(barriers, "layer")
    several = sequence and not _has_penalty(barriers) and any(map(_is_one, barriers))
    listed = list(barriers) if several else [barriers]
    return [item if _has_penalty(item) else (item, math.inf) for item in listed]


def _has_penalty(item: Any) -> bool:
    """Return whether this is a barrier with a number."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Real)


def _is_one(item: Any) -> bool:
    """Return whether an item of a list is a barrier of its own, and not a geometry of a layer."""
    own = isinstance(item, str | os.PathLike | VectorLayer) or hasattr(item, "shape")
    return own or _has_penalty(item)


def _on_grid(barrier: Any, first: Raster) -> Raster:
    """Return a raster whose cells that are not 0 or nodata are a barrier."""
    layer = read_layer(barrier, BARRIERS)
    if layer is None:
        raster = open_raster(cast("RasterLike", barrier), argument=BARRIERS)
        check_same_grid(BARRIERS, raster, first)
        return raster
    place, shape = first.georeference, first.shape
    burnt = LayerRaster.of_layer(layer, place, shape, BARRIERS, all_touched=True, partly=True)
    # All geometries are barriers alike, whatever their numbers.
    return replace(burnt, label=np.ones_like(burnt.label), labels=(1,))
