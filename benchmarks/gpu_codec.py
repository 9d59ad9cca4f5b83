"""blosc.cu on a GPU; run by gpu.py.

Each kind of cells is encoded as stores encode it: frames of c-blosc are decoded there, and what is
encoded there c-blosc decodes. Ratios are beside those of c-blosc at the level of stores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np
from device_time import TimedDevice
from terrain import fractal, noise

from orograph.kernels.blosc.cuda import decode_tiles, encode_tiles
from orograph.kernels.forest.cuda import tile_forest
from orograph.kernels.label.cuda import label_tile
from orograph.kernels.relax.cuda import relax
from orograph.kernels.relax.tile import seed, tile_state
from orograph.tiles.arrays import use_allocator
from orograph.tiles.format.codec import BITSHUFFLE, SHUFFLE, compress, decompress
from orograph.tiles.format.frames import StoredTile
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import DENSE_LEVEL

TILES = 4  # that are decoded or encoded together
REPEATS = 7

Array = np.ndarray[Any, Any]


def tiles(side: int) -> Iterator[tuple[str, Array, int]]:
    """A tile of each kind that runs read or write, and how its cells are shuffled."""
    heights, uneven = fractal(side), noise(side)
    yield "heights, terrain", heights, SHUFFLE
    yield "heights, noise", uneven, SHUFFLE
    rise = np.hypot(*np.gradient(heights.astype(np.float64)))
    slopes = (1 + 20 * rise / rise.mean()).astype(np.float32)
    yield "slopes", slopes, SHUFFLE
    classes = (noise(side, 1) < 600).astype(np.float32)
    yield "classes, noise", classes, SHUFFLE
    for what, cells in (("terrain", heights), ("noise", uneven)):
        found = tile_forest(cells, None, (True,) * 4)
        yield f"packed edges, {what}", found.packed[: side**2 // 2].reshape(side, -1), BITSHUFFLE
        yield f"edges, {what}", found.mask, BITSHUFFLE
    yield "labels, noise", label_tile(classes, None).labels.astype(np.int64), SHUFFLE
    yield (
        "labels, blobs",
        label_tile((heights > 500).astype(np.uint8), None).labels.astype(np.int64),
        SHUFFLE,
    )
    state = tile_state(
        np.full((side + 2, side + 2), np.inf, np.float32),
        lengths=np.ones((5, side + 2)),
        friction=np.pad(slopes, 1, constant_values=np.nan),
    )
    seed(state, np.array([side // 2]), np.array([side // 2]))
    relax(state)
    yield "costs, slopes", np.ascontiguousarray(state.dist[1:-1, 1:-1]), SHUFFLE
    hops = np.abs(np.indices((side, side), np.int32) - side // 2).max(0)
    yield "hops, open", hops, BITSHUFFLE
    uneven_hops = hops + (classes[::-1] > 0).astype(np.int32)
    yield "hops, uneven", uneven_hops, BITSHUFFLE


def square(cells: Array) -> Array:
    """Cells as a tile, which is a square."""
    side = min(cells.shape)
    return np.ascontiguousarray(cells[:side, :side])


def bits(side: int) -> None:
    """Frames of each of the two decode to the same cells with the other."""
    device = TimedDevice()
    for what, cells, shuffle in tiles(side):
        tile = square(cells)
        count = len(tile)
        raster = device.upload(tile)
        for level in (1, DENSE_LEVEL, 9):
            frame = np.frombuffer(compress(tile, level, shuffle), np.uint8)
            there = cupy.zeros_like(raster)
            whole = StoredTile(0, frame.size, Window(0, 0, count, count), 0, 0)
            left = decode_tiles(device, [(frame, [whole])], count, there, tile.dtype)
            if left or cupy.asnumpy(there).tobytes() != tile.tobytes():
                raise AssertionError(f"{what}, level {level}: other cells than c-blosc's")
        window = [Window(0, 0, count, count)]
        (made,) = encode_tiles(device, raster, window, count, tile.dtype.type(0), shuffle)
        back = np.empty_like(tile)
        decompress(made, back)
        if back.tobytes() != tile.tobytes():
            raise AssertionError(f"{what}: c-blosc decodes other cells")
        print(f"{what} {count}^2 {tile.dtype}: the same cells both ways", flush=True)


def speed(side: int) -> None:
    """Some tiles at once, from and to page-locked memory, and the kernels alone.

    GB are of cells.
    """
    side = min(side, 4096)  # a tile
    device = TimedDevice()
    with use_allocator(device.host_array):
        for what, cells, shuffle in tiles(side):
            _tell(device, what, square(cells), shuffle)
            cupy.get_default_memory_pool().free_all_blocks()


def _tell(device: TimedDevice, what: str, tile: Array, shuffle: int) -> None:
    side, size = len(tile), TILES * tile.nbytes
    begin = time.perf_counter()
    frame = compress(tile, DENSE_LEVEL, shuffle)
    packing = time.perf_counter() - begin
    begin = time.perf_counter()
    decompress(np.frombuffer(frame, np.uint8), np.empty_like(tile))
    unpacking = time.perf_counter() - begin
    content = device.host_array((len(frame) * TILES,), np.uint8)
    content[:] = np.frombuffer(frame * TILES, np.uint8)
    whole = Window(0, 0, side, side)
    places = [
        StoredTile(n * len(frame), (n + 1) * len(frame), whole, n * side, 0) for n in range(TILES)
    ]
    raster = cupy.empty((TILES * side, side), tile.dtype)
    windows = [Window(n * side, 0, side, side) for n in range(TILES)]
    fill = tile.dtype.type(0)

    def decode() -> None:
        assert not decode_tiles(device, [(content, places)], side, raster, tile.dtype)

    def encode() -> int:
        made = encode_tiles(device, raster, windows, side, fill, shuffle)
        return sum(one.size for one in made)

    decoding, encoding = seconds(decode), seconds(encode)
    print(
        f"{what} {tile.dtype}: decoded {size / decoding / 1e9:.1f} GB/s, encoded "
        f"{size / encoding / 1e9:.1f}; c-blosc, one thread: {tile.nbytes / unpacking / 1e9:.1f} "
        f"and {tile.nbytes / packing / 1e9:.1f}; ratio {size / encode():.3f}, c-blosc "
        f"{tile.nbytes / len(frame):.3f}",
        flush=True,
    )
    with device.by_kernel("    kernels"):
        decode()
        encode()


def seconds(call: Callable[[], object]) -> float:
    """Median seconds of a call that waits for its end."""
    call()
    spent = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)
