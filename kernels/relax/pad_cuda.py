"""A tile's costs before it is relaxed on a GPU, and its result after: CUDA counterpart of pad.py.

Cells are uploaded as they were read, and results stay there, as they are written, until they are
downloaded: what lies between is done by functions of the device's arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, current_device
from orograph.kernels.relax.models import BARRIER
from orograph.kernels.relax.pad import ReadOut, barrier_of
from orograph.kernels.relax.tile import TileState

Array = npt.NDArray[Any]


def pad_costs(
    cells: Buffer,
    nodata: float | None,
    shape: tuple[int, int],
    corner: tuple[int, int],
    dtype: np.dtype[Any],
    mask: bool = False,
    *,
    device: Device | None = None,
) -> Buffer:
    """As `orograph.kernels.relax.pad.pad_costs`, in the device's memory; cells may lie there."""
    device = device or current_device()
    xp = device.array_module
    there = device.upload(cells) if isinstance(cells, np.ndarray) else cells
    known = xp.isfinite(there)
    if nodata is not None and not np.isnan(nodata):
        known &= there != there.dtype.type(nodata)
    if mask:
        known &= there != 0
    padded = xp.full(shape, barrier_of(dtype), dtype)
    y, x = corner
    inside = padded[y : y + cells.shape[0], x : x + cells.shape[1]]
    xp.copyto(inside, 1 if mask else there, where=known, casting="unsafe")
    return padded


def read_out(
    state: TileState,
    dtype: np.dtype[Any],
    blank: float,
    per: int = 1,
    *,
    device: Device | None = None,
) -> ReadOut:
    """As `orograph.kernels.relax.pad.read_out`, of a tile whose arrays are the device's."""
    device = device or current_device()
    xp, reach = device.array_module, state.rules.reach
    inner = np.s_[reach:-reach, reach:-reach]
    dist = state.dist[inner]
    there = dist < state.unreached
    values = xp.where(there, dist // per if per > 1 else dist, dist.dtype.type(blank))
    passable = xp.ones(dist.shape, bool)
    for raster in (state.friction, state.elevation):
        if raster.size:
            own = raster[inner]
            passable &= own < BARRIER if state.rules.integer else xp.isfinite(own)
    reached = int(xp.count_nonzero(there))
    return ReadOut(
        values.astype(dtype, copy=False),
        reached,
        int(xp.count_nonzero(passable & ~there)),
        passable.size - int(xp.count_nonzero(passable)),
    )
