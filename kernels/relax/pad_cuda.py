"""Padding and read-out of a tile on a GPU: CUDA counterpart of pad.py.

Cells are uploaded as they were read, and results stay there, as they are written, until they are
downloaded. What lies between is done by pad.cu, not by CuPy, which flushes subnormal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import (
    Buffer,
    Device,
    blocks_for,
    current_device,
    on_device,
    scalar,
    value_type,
)
from orograph.kernels.relax.pad import ReadOut, barrier_of
from orograph.kernels.relax.tile import TileState
from orograph.tiles.grid.window import Window

SOURCE = "relax/pad.cu"
THREADS = 256


def pad_costs(
    cells: Buffer,
    nodata: float | None,
    shape: tuple[int, int],
    corner: tuple[int, int],
    dtype: np.dtype[Any],
    mask: bool = False,
    unit: int = 1,
    *,
    device: Device | None = None,
) -> Buffer:
    """Run `orograph.kernels.relax.pad.pad_costs` on a GPU; cells may lie in its memory."""
    device = device or current_device()
    there = on_device(device, cells)
    padded = device.array_module.empty(shape, dtype)
    # Cells that are NaN are barriers anyway, so a nodata value of NaN needs no comparison.
    stated = nodata is not None and not np.isnan(nodata)
    mark = scalar(there.dtype, nodata if stated else 0)
    device.launch(
        SOURCE,
        "pad_costs",
        blocks_for(padded.size, THREADS),
        (THREADS,),
        (
            *(there, padded, *map(np.int32, (*there.shape, *shape, *corner))),
            *(mark, np.int32(stated), np.int32(mask), barrier_of(dtype), np.int32(unit)),
        ),
        defines=_types(dtype, there.dtype),
    )
    return padded


def are_within(
    cells: Buffer,
    part: Window,
    limits: tuple[float, float],
    nodata: float | None,
    dtype: np.dtype[Any],
    *,
    device: Device | None = None,
) -> bool:
    """Return whether all cells of a part of a raster are nodata, not finite, or within limits.

    ``dtype`` is that of distances, for which the other kernels are compiled too.
    """
    device = device or current_device()
    found = device.array_module.zeros(1, np.int32)
    stated = nodata is not None and not np.isnan(nodata)
    pitch = cells.shape[1]
    device.launch(
        SOURCE,
        "find_outside",
        blocks_for(part.size, THREADS),
        (THREADS,),
        (
            *(cells, np.int64(part.y * pitch + part.x)),
            *(np.int32(pitch), *map(np.int32, part.shape), *map(np.float64, limits)),
            *(scalar(cells.dtype, nodata if stated else 0), np.int32(stated), found),
        ),
        defines=_types(dtype, cells.dtype),
    )
    return not device.download(found)[0]


def read_out(
    state: TileState,
    dtype: np.dtype[Any],
    blank: float,
    per: int = 1,
    *,
    device: Device | None = None,
) -> ReadOut:
    """Run `orograph.kernels.relax.pad.read_out` on a tile whose arrays are on a GPU."""
    device = device or current_device()
    dist, reach = state.dist, state.rules.reach
    height, width = (n - 2 * reach for n in dist.shape)
    # One raster alone is passed twice: a kernel has no optional arguments.
    rasters = [raster for raster in (state.friction, state.elevation) if raster.size]
    found = device.array_module.empty((height, width), dtype)
    counts = device.array_module.zeros(3, np.uint64)
    device.launch(
        SOURCE,
        "read_out",
        blocks_for(found.size, THREADS),
        (THREADS,),
        (
            *(dist, rasters[0], rasters[-1], found, counts),
            *map(np.int32, (height, width, reach)),
            *(scalar(dist.dtype, state.unreached), scalar(dtype, blank), np.int32(per)),
        ),
        defines=_types(dist.dtype, dtype),
    )
    return ReadOut(found, *device.download(counts).tolist())


def _types(value: npt.DTypeLike, cell: npt.DTypeLike) -> dict[str, object]:
    """Return the definitions with which pad.cu is compiled."""
    integer = np.dtype(value).kind == "i"
    return {"VALUE": value_type(value), "INTEGER": int(integer), "CELL": value_type(cell)}
