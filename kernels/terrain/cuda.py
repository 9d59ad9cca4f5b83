"""Basins of one tile on a GPU: the host's side of basins.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.device import (
    Buffer,
    Device,
    blocks_for,
    current_device,
    scalar,
    value_type,
)
from orograph.kernels.forest.keys import key_limits, native_buffer
from orograph.kernels.terrain.basins import FIRST_OF_GROUPS, TileBasins
from orograph.tiles.arrays import Array

SOURCE = "terrain/basins.cu"
BLOCK = 32  # cells along the side of a block, as in basins.cu
THREADS = (32, 8)
RAISE_THREADS = 256


class DeviceBasins(NamedTuple):
    """A tile's basins in device memory; fields as in `TileBasins`."""

    labels: Buffer
    """(h, w) uint16 if the basins can be counted in it, else uint32."""
    pits: Buffer
    first: Buffer
    second: Buffer
    cell: Buffer


def basins_on_device(
    values: Buffer,
    nodata: Any,
    connectivity: int,
    upside_down: bool = False,
    *,
    device: Device | None = None,
) -> DeviceBasins:
    """Return the basins of a tile, and the edges at its saddles, in device memory.

    Parameters
    ----------
    values : (h, w) C-contiguous buffer of a native integer dtype, float32 or float64
    nodata : scalar of that dtype, or None
    connectivity, upside_down
        As in `orograph.kernels.terrain.basins.tile_basins`.
    device : Device
        Device of ``values``; by default the current one.
    """
    device = device or current_device()
    xp = device.array_module
    h, w = values.shape
    size, words = (scalar(np.int32, h), scalar(np.int32, w)), h * -(-w // 32)
    defines = _types(values.dtype)
    key = np.uint64 if values.dtype.itemsize == 8 else np.uint32

    def launch(kernel: str, blocks: tuple[int], *arguments: Any) -> None:
        device.launch(SOURCE, kernel, blocks, THREADS, arguments, defines=defines)

    lead, ways = xp.empty((h, w), np.int32), xp.empty((h, w), np.uint8)
    is_pit, counts = xp.empty(words, np.uint32), xp.empty(words, np.int32)
    launch(
        *("descend", (-(-h // BLOCK) * -(-w // BLOCK),), values, *size),
        *(*key_limits(np.dtype(values.dtype), nodata), scalar(np.int32, nodata is not None)),
        # Keys are combined with this word by exclusive or: all ones turn their order round.
        *(scalar(key, np.iinfo(key).max if upside_down else 0),),
        *(device.upload(FIRST_OF_GROUPS[connectivity]), lead, ways, is_pit, counts),
    )
    ends, count = _prefix_sums(device, counts)
    # How many pits there are is known now, so labels take as few bytes as they need.
    label = np.dtype(np.uint16 if count < 2**16 else np.uint32)
    defines["LABEL"] = f"UInt{8 * label.itemsize}"
    labels, pits = xp.empty((h, w), label), xp.empty(count, np.int32)
    grid = blocks_for(words, THREADS[1])
    launch("label_cells", grid, lead, *size, is_pit, counts, ends, labels, pits)
    launch("count_edges", grid, *size, labels, ways, counts)
    ends, count = _prefix_sums(device, counts)
    edges = tuple(xp.empty(count, np.int32) for _ in range(3))
    launch("list_edges", grid, *size, labels, ways, counts, ends, *edges)
    return DeviceBasins(labels, pits, *edges)


def _types(dtype: Any) -> dict[str, object]:
    return {"VALUE": value_type(dtype), "VALUE_BITS": 8 * dtype.itemsize}


def _prefix_sums(device: Device, counts: Buffer) -> tuple[Buffer, int]:
    """Return the inclusive prefix sums and the last of them."""
    ends = device.array_module.cumsum(counts, dtype=np.int32)
    return ends, int(device.download(ends[-1:])[0])


def tile_basins(
    values: Array,
    nodata: float | None,
    connectivity: int,
    upside_down: bool = False,
    *,
    device: Device | None = None,
) -> TileBasins:
    """Return the basins of a tile, and the edges at its saddles, from a GPU.

    Parameters, result and errors are those of `orograph.kernels.terrain.basins.tile_basins`;
    ``device`` is the process's GPU by default.

    Notes
    -----
    Takes 7 to 9 bytes per cell on the device besides the values, and 12 per edge.
    """
    device = device or current_device()
    cells, mark = native_buffer(device, values, nodata)
    found = basins_on_device(cells, mark, connectivity, upside_down, device=device)
    labels, *others = map(device.download, found)
    return TileBasins(labels if labels.itemsize == 2 else labels.view(np.int32), *others)


def raise_cells(
    values: Array, labels: Array, levels: Array, *, device: Device | None = None
) -> Buffer:
    """Return values raised to at least ``levels[label]``, on the GPU; all have the same dtype.

    As `orograph.kernels.terrain.basins.raise_cells`.
    """
    device = device or current_device()
    cells, _ = native_buffer(device, values, None)
    words = labels.view(f"u{labels.itemsize}")
    out = device.array_module.empty(cells.shape, cells.dtype)
    device.launch(
        *(SOURCE, "raise_cells", blocks_for(cells.size, RAISE_THREADS), (RAISE_THREADS,)),
        (
            *(cells, *map(device.upload, (words, levels.astype(cells.dtype, copy=False)))),
            *(out, scalar(np.int64, cells.size)),
        ),
        defines={**_types(cells.dtype), "LABEL": f"UInt{8 * words.itemsize}"},
    )
    return out
