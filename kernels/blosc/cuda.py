"""Blosc frames of tiles on a GPU: the host's side of blosc.cu.

Frames are uploaded as they are stored, and decoded to the raster that lies on the device; cells are
encoded there, and frames downloaded. The cells are those that the CPU's codec decodes, to the bit;
the bytes of frames are others than those that it encodes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import LifoQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, scalar
from orograph.tiles.format.frames import StoredTile, TilesRead
from orograph.tiles.grid.window import Window

SOURCE = "blosc/blosc.cu"
THREADS = 128
WARPS = THREADS // 32
CHUNK = 128  # cells that a warp shuffles
HEAD = struct.Struct("<BBBBIII")
VERSION, LZ4 = 2, 1
SHUFFLED, STORED, SHUFFLED_BY_BITS, UNSPLIT = 1, 2, 4, 16
"""Flags of a frame; its three highest bits are the compressor."""
MODES = {0: 0, SHUFFLED: 1, SHUFFLED_BY_BITS: 2}
"""The numbers by which the kernels know how the cells of a frame are shuffled."""
AS_STORED = 4  # that of a frame whose cells are as they were
SPLITTABLE = 128  # bytes of the shortest streams into which a block is split
LONGEST = {1: 2**13, 2: 2**13, 4: 2**15, 8: 2**13}
"""Bytes of a stream that is encoded, by those of a cell, as in blosc.cu."""
STREAMS_AT_ONCE = 8
"""Batches that one GPU decodes or encodes at once, each on a stream with its memory.

A tile of 64 MiB has some 1,000 streams of bytes, and a large GPU room for 8,000 warps.
"""
BATCH_BYTES = 2**26  # cells that are decoded or encoded at once, if a tile does not have more

_streams: LifoQueue[int] = LifoQueue()
for _number in range(STREAMS_AT_ONCE):
    _streams.put(_number)


class Passable(NamedTuple):
    """Bits of words that tell the passable cells: those that are finite, not 0 and not nodata."""

    magnitude: np.generic
    exponent: np.generic
    nodata: np.generic

    @classmethod
    def of(cls, dtype: np.dtype[Any], nodata: float | None) -> Passable:
        """Return the bits for a dtype and its nodata value."""
        word = np.dtype(f"u{dtype.itemsize}")
        full = np.iinfo(word).max
        stated = nodata is not None and not math.isnan(nodata)
        mark = scalar(dtype, nodata).view(word) if stated else word.type(0)
        if dtype.kind != "f":
            return cls(word.type(full), word.type(0), mark)
        return cls(word.type(full >> 1), scalar(dtype, np.inf).view(word), mark)


@contextmanager
def _turn(device: Device) -> Iterator[None]:
    """Wait for one of few streams: memory that is given back is used again by the next."""
    number = _streams.get()
    try:
        with device.on_stream(number):
            yield
    finally:
        _streams.put(number)


def decode_tiles(
    device: Device,
    reads: Sequence[TilesRead],
    side: int,
    raster: Buffer,
    dtype: np.dtype[Any],
    passable: Passable | None = None,
) -> list[tuple[npt.NDArray[np.uint8], StoredTile]]:
    """Decode tiles to where they lie in a raster; return those that must be decoded elsewhere.

    Parameters
    ----------
    device : Device
    reads : sequence
        Frames of one raster in the order in which they were read, each without its checksum.
    side : int
        Cells a side of a tile.
    raster : (h, w) C-contiguous buffer
        It has the dtype of the tiles; or it is a mask, uint8.
    dtype : dtype
        Of the tiles.
    passable : Passable, optional
        What a mask is made of.

    Returns
    -------
    list of (frame, StoredTile)
        Those with other codecs, and damaged ones: what is wrong the CPU's decoder says.
    """
    size = side**2 * dtype.itemsize
    step = max(1, BATCH_BYTES // size)
    left: list[tuple[npt.NDArray[np.uint8], StoredTile]] = []
    known: list[tuple[npt.NDArray[np.uint8], StoredTile, tuple[int, int, int]]] = []
    for content, tiles in reads:
        for tile in tiles:
            frame = content[tile.begin : tile.end]
            head = _parse_head(frame, size, dtype.itemsize)
            if head is None:
                left.append((frame, tile))
            else:
                known.append((frame, tile, head))
    for first in range(0, len(known), step):
        some = known[first : first + step]
        faults = _decode(device, some, side, raster, dtype, passable)
        left += [part[:2] for part, fault in zip(some, faults, strict=True) if fault]
    return left


def _decode(
    device: Device,
    tiles: Sequence[tuple[npt.NDArray[np.uint8], StoredTile, tuple[int, int, int]]],
    side: int,
    raster: Buffer,
    dtype: np.dtype[Any],
    passable: Passable | None,
) -> list[int]:
    """Decode tiles, each with its frame and what its head says; return whether each is damaged."""
    width, pitch = dtype.itemsize, raster.shape[1]
    # A row of the table says where the bytes, streams and chunks of a tile begin among all of them,
    # and where its cells go. The last number becomes the fault that the kernels find.
    size, used, streams, chunks = side**2 * width, 0, 0, 0
    specs = []
    for frame, tile, (block, splits, mode) in tiles:
        blocks, part = -(-size // block), tile.part
        window = part.y, part.x, part.height, part.width, tile.row * pitch + tile.column, 0
        specs.append((used, frame.size, block, splits, mode, streams, chunks, *window))
        used += frame.size
        streams += blocks * splits
        chunks += blocks * -(-block // width // CHUNK)
    xp, word = device.array_module, np.dtype(f"u{width}")
    marks = passable or (word.type(0),) * 3
    device.synchronize()  # nothing uses the raster's memory any more
    with _turn(device):
        frames, shuffled = xp.empty((1, used), np.uint8), xp.empty(len(tiles) * size, np.uint8)
        for (frame, *_), (at, *_) in zip(tiles, specs, strict=True):
            device.upload_into(frames[:, at : at + frame.size], frame[None], wait=False)
        table = device.upload(np.array(specs, np.int64))
        count, sizes = np.int32(len(tiles)), (np.int32(size), np.int32(side))
        defines = {"WIDTH": width}
        device.launch(
            *(SOURCE, "decode_streams", (streams,), (32,)),
            (frames, table, count, np.int64(streams), sizes[0], shuffled),
            defines=defines,
        )
        # One of the two is a null pointer: the kernel writes cells or a mask.
        targets = (None, raster) if passable else (raster.view(word), None)
        device.launch(
            *(SOURCE, "unshuffle_cells", (-(-chunks // WARPS),), (THREADS,)),
            (
                *(shuffled, table, count, np.int64(chunks), *sizes, *targets, *marks),
                np.int64(pitch),
            ),
            defines=defines,
        )
        faults: list[int] = device.download(table)[:, -1].tolist()
    return faults


def _parse_head(frame: npt.NDArray[np.uint8], size: int, width: int) -> tuple[int, int, int] | None:
    """Return block size, streams a block and mode of a frame; None if the kernels know it not."""
    if frame.size < HEAD.size:
        return None
    version, lz4_version, flags, typesize, decoded, block, length = HEAD.unpack_from(frame.data)
    shuffle = MODES.get(flags & (SHUFFLED | SHUFFLED_BY_BITS))
    known = (
        (version, lz4_version, flags >> 5, typesize) == (VERSION, 1, LZ4, width)
        and (decoded, length) == (size, frame.size)
        and not flags & 8
        and 0 < block <= size
        and block % width == 0
    )
    if not known or shuffle is None:
        return None
    if flags & STORED:
        return block, 1, AS_STORED
    if flags & UNSPLIT:
        return block, 1, shuffle
    # whether shorter streams are split depends on the version
    return None if block // width < SPLITTABLE else (block, width, shuffle)


def stream_size(side: int, width: int) -> int | None:
    """Return the bytes of the streams into which tiles are encoded; None if they cannot be.

    Blocks have one for each byte of a cell, and a tile has whole blocks.
    """
    sizes = (side * rows for rows in range(1, LONGEST[width] // side + 1) if side % rows == 0)
    # Multiples of 8, since shuffling by bits takes eight cells at a time.
    return max((n for n in sizes if n % 8 == 0 and n >= SPLITTABLE), default=None)


def encode_tiles(
    device: Device, raster: Buffer, tiles: Sequence[Window], side: int, fill: Any, shuffle: int
) -> list[npt.NDArray[np.uint8]]:
    """Return windows of a raster as Blosc frames of whole tiles.

    Parameters
    ----------
    device : Device
    raster : (h, w) C-contiguous buffer
    tiles : sequence of Window
        Each has at most ``side`` cells a side; the rest of its tile is ``fill``.
    side : int
        Cells a side of a tile, for which there is a `stream_size`.
    fill : scalar of the raster's dtype
    shuffle : int
        0, 1 or 2: none, by bytes, by bits.
    """
    size = side**2 * raster.dtype.itemsize
    step = max(1, BATCH_BYTES // size)
    found: list[npt.NDArray[np.uint8]] = []
    for first in range(0, len(tiles), step):
        found += _encode(device, raster, tiles[first : first + step], side, fill, shuffle)
    return found


def _encode(
    device: Device, raster: Buffer, tiles: Sequence[Window], side: int, fill: Any, shuffle: int
) -> list[npt.NDArray[np.uint8]]:
    width, pitch, count = raster.dtype.itemsize, raster.shape[1], len(tiles)
    stream = stream_size(side, width)
    assert stream is not None
    cells = side**2
    size, blocks = cells * width, cells // stream
    streams, word = count * blocks * width, np.dtype(f"u{width}")
    chunks = count * blocks * -(-stream // CHUNK)
    corners = [(tile.y * pitch + tile.x, tile.height, tile.width) for tile in tiles]
    xp, defines = device.array_module, {"WIDTH": width}
    device.synchronize()  # the cells are there
    with _turn(device):
        table = device.upload(np.array(corners, np.int64))
        where = raster.view(word), np.int64(pitch), table
        blank = scalar(raster.dtype, fill).view(word)
        shuffled, encoded = xp.empty(count * size, np.uint8), xp.empty(count * size, np.uint8)
        sizes, starts = xp.empty(streams, np.int32), xp.empty(count * blocks, np.int32)
        totals = xp.empty(count, np.int64)

        def launch(kernel: str, grid: int, threads: int, *arguments: Any) -> None:
            device.launch(SOURCE, kernel, (grid,), (threads,), arguments, defines=defines)

        launch(
            *("shuffle_cells", -(-chunks // WARPS), THREADS, *where, np.int64(chunks)),
            *(np.int32(side), blank, np.int32(stream), np.int32(shuffle), shuffled),
        )
        launch(
            *("encode_streams", streams, 32, shuffled, np.int64(streams)),
            *(np.int32(stream), encoded, sizes),
        )
        parts = np.int32(blocks), np.int32(width), np.int32(size)
        launch("add_sizes", count, 256, sizes, *parts, starts, totals)
        # Frame sizes are known only after encoding. The frames are then packed without gaps and
        # downloaded in one transfer.
        ends = np.cumsum(device.download(totals))
        frames = xp.empty(int(ends[-1]), np.uint8)
        launch(
            *("write_frames", count * blocks, THREADS, shuffled, encoded, sizes, starts, totals),
            *(*parts, np.int32(shuffle), *where, np.int32(side), blank, frames),
        )
        content = device.download(frames)
    return np.split(content, ends[:-1])
