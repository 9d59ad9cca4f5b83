"""Blosc frames on a GPU: those of c-blosc decode there, and c-blosc decodes those made there."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import ORDERS, Emulator, find_compiler
from numcodecs import blosc

from orograph.kernels.blosc.cuda import decode_tiles, encode_tiles, stream_size
from orograph.tiles.format.frames import StoredTile
from orograph.tiles.grid.window import Window

Array = np.ndarray[Any, Any]
DTYPES = ("uint8", "int16", "float32", "int64")
KINDS = ("terrain", "random", "constant", "labels", "mask")
SIDE = 48

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")


def cells_of(kind: str, dtype: str, side: int = SIDE, seed: int = 0) -> Array:
    """Cells that compress well, badly, or not at all."""
    rng = np.random.default_rng(seed)
    shape = side, side
    if kind == "random":
        return rng.integers(0, 256, (side, side * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    if kind == "constant":
        return np.full(shape, 7, dtype)
    if kind == "labels":
        return np.repeat(rng.integers(0, 200, (side, -(-side // 5))), 5, 1)[:, :side].astype(dtype)
    if kind == "mask":
        return (rng.random(shape) < 0.6).astype(dtype)
    return np.cumsum(rng.normal(0, 3, shape), 1).astype(dtype)


def decoded(
    frames: list[bytes], like: Array, device: Emulator
) -> tuple[list[Array], list[StoredTile]]:
    """The tiles of frames, and those that must be decoded elsewhere."""
    side = len(like)
    raster = device.upload(np.full((side, side * len(frames)), 1, like.dtype))
    ends = np.cumsum([len(frame) for frame in frames])
    tiles = [
        StoredTile(int(end) - len(frame), int(end), Window(0, 0, side, side), 0, n * side)
        for n, (frame, end) in enumerate(zip(frames, ends))
    ]
    reads = [(np.frombuffer(b"".join(frames), np.uint8), tiles)]
    left = [tile for _, tile in decode_tiles(device, reads, side, raster, like.dtype)]
    found = device.download(raster)
    return [found[:, n * side : (n + 1) * side] for n in range(len(frames))], left


def compress(cells: Array, level: int, shuffle: int, block: int = 0) -> bytes:
    frame: bytes = blosc.compress(np.ascontiguousarray(cells), b"lz4", level, shuffle, block)
    return frame


@pytest.mark.diagonal
@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_frames_of_blosc_decode_to_their_cells(dtype: str, shuffle: int) -> None:
    """Of all levels and kinds of cells, in one block or many, the last of which is shorter."""
    cells = [cells_of(kind, dtype) for kind in KINDS]
    width = np.dtype(dtype).itemsize
    frames = []
    for n, some in enumerate(cells):
        frames.append(compress(some, 1 + (4 * n + shuffle) % 9, shuffle, 1000 * width))
    found, left = decoded(frames, cells[0], Emulator(ORDERS[shuffle], 3))
    assert not left
    for ours, theirs in zip(found, cells):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("side", [16, 31, 33, 50])
def test_sides_that_are_no_powers_of_two(side: int) -> None:
    for dtype, shuffle in (("uint8", 2), ("int16", 1), ("float32", 2), ("int64", 2)):
        cells = cells_of("terrain", dtype, side)
        for block in (0, 3000):
            (found,), left = decoded([compress(cells, 5, shuffle, block)], cells, Emulator())
            assert left or found.tobytes() == cells.tobytes()
            assert not left or side == 16


@pytest.mark.parametrize("period", [1, 3, 31, 300, 511, 513, 7000, 7680, 7690, 8192, 12000])
def test_matches_near_and_far(period: int) -> None:
    """Streams longer than what a warp holds, that repeat what is in it or no longer."""
    rng = np.random.default_rng(period)
    side = 200
    cells = np.resize(rng.integers(0, 256, period, np.uint8), (side, side))
    cells[rng.random(cells.shape) < 0.001] = 0
    cells[100, :150] = rng.integers(0, 256, 150)
    (found,), left = decoded([compress(cells, 9, 0)], cells, Emulator(ORDERS[period % 3], 3))
    assert not left
    assert found.tobytes() == cells.tobytes()


def check_encoding(cells: Array, shuffle: int, device: Emulator, rows: int, columns: int) -> float:
    """Encode a corner of some cells as a tile; return how much smaller it is than c-blosc's."""
    side, fill = len(cells), cells.dtype.type(3)
    raster = device.upload(np.pad(cells, ((2, 0), (5, 1)), constant_values=9))
    (frame,) = encode_tiles(device, raster, [Window(2, 5, rows, columns)], side, fill, shuffle)
    expected = np.full_like(cells, fill)
    expected[:rows, :columns] = cells[:rows, :columns]
    there = np.empty_like(cells)
    blosc.decompress(frame, there)
    assert there.tobytes() == expected.tobytes()
    (here,), left = decoded([frame.tobytes()], cells, device)
    assert not left
    assert here.tobytes() == expected.tobytes()
    return len(compress(expected, 5, shuffle)) / frame.size


@pytest.mark.diagonal
@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blosc_decodes_frames_made_on_the_device(dtype: str, shuffle: int) -> None:
    for n, kind in enumerate(KINDS):
        cells = cells_of(kind, dtype)
        device = Emulator(ORDERS[(n + shuffle) % 3], n)
        check_encoding(cells, shuffle, device, SIDE - n, SIDE - 3 * n)


def test_frames_do_not_depend_on_the_order_of_threads() -> None:
    cells = cells_of("labels", "int64")
    window = [Window(0, 0, SIDE, SIDE)]
    made = [
        encode_tiles(device, device.upload(cells), window, SIDE, np.int64(0), 1)[0].tobytes()
        for device in (Emulator(order, seed) for seed, order in enumerate(ORDERS))
    ]
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("shuffle", [1, 2])
@pytest.mark.parametrize("kind", ["labels", "terrain"])
def test_damaged_frames_change_nothing_outside_of_their_tile(kind: str, shuffle: int) -> None:
    """Bits flipped, bytes replaced, cut short: those beside it decode, the cells around are kept.

    What decodes here decodes to the same cells with c-blosc. What does not is left to it.
    """
    rng = np.random.default_rng(shuffle)
    cells = cells_of(kind, "int16", 32)
    whole = np.frombuffer(compress(cells, 5, shuffle, 700), np.uint8)
    device = Emulator()
    agreed = refused = 0
    expected_tile = np.empty_like(cells)
    for attempt in range(150):
        frame = whole.copy()
        if attempt % 3 == 0:
            frame[rng.integers(frame.size)] ^= 1 << rng.integers(8)
        elif attempt % 3 == 1:
            at = rng.integers(4, frame.size - 4)
            frame[at : at + 4] = rng.integers(0, 256, 4)
        else:  # cut short, and its head says so
            frame = frame[: rng.integers(1, frame.size)].copy()
            if frame.size >= 16:
                frame[12:16] = np.frombuffer(struct.pack("<I", frame.size), np.uint8)
        content = np.concatenate([whole, frame, whole])
        ends = np.cumsum([0, whole.size, frame.size, whole.size]).tolist()
        part = Window(0, 0, 32, 32)
        tiles = [StoredTile(ends[n], ends[n + 1], part, 1, 3 + 32 * n) for n in range(3)]
        raster = device.upload(np.full((34, 102), 77, np.int16))
        left = decode_tiles(device, [(content, tiles)], 32, raster, cells.dtype)
        found = device.download(raster)
        expected = np.full((34, 102), 77, np.int16)
        expected[1:33, 3:35] = expected[1:33, 67:99] = cells
        if [tile for _, tile in left] == [tiles[1]]:
            refused += 1
        else:
            assert not left
            blosc.decompress(frame, expected_tile)
            expected[1:33, 35:67] = expected_tile
            agreed += 1
        assert found.tobytes() == expected.tobytes()
    assert refused > 30
    assert agreed > 10


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"", id="no token"),
        pytest.param(b"\xf0", id="a length that does not end"),
        pytest.param(b"\xf0" + b"\xff" * 40, id="a length beyond what is left"),
        pytest.param(b"\x40abc", id="literals beyond the end"),
        pytest.param(b"\x40abcd\x00\x00\x00", id="an offset of zero"),
        pytest.param(b"\x40abcd\x05\x00\x00", id="an offset before the first byte"),
        pytest.param(b"\x40abcd\x04", id="half an offset"),
        pytest.param(b"\x4fabcd\x04\x00" + b"\xff" * 9 + b"\x00", id="a match beyond the end"),
        pytest.param(b"\x44abcd\x04\x00\x00", id="too few bytes"),
        pytest.param(b"\xf0\xea" + b"a" * 249, id="too many literals"),
    ],
)
def test_blocks_that_break_a_rule_are_refused(block: bytes) -> None:
    """Each in a frame whose head is right; c-blosc refuses them too."""
    side = 16
    stream = struct.pack("<I", len(block)) + block
    length = 16 + 4 + len(stream)
    head = struct.pack("<BBBBIIII", 2, 1, 0x31, 1, side**2, side**2, length, 20)
    like = np.zeros((side, side), np.uint8)
    (found,), left = decoded([head + stream], like, Emulator())
    assert left
    assert (found == 1).all()
    with pytest.raises(RuntimeError):
        blosc.decompress(head + stream, like)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        pytest.param(0, b"\x03", id="version"),
        pytest.param(1, b"\x02", id="version of lz4"),
        pytest.param(2, b"\x01", id="another compressor"),
        pytest.param(2, b"\x25", id="both shuffles"),
        pytest.param(3, b"\x04", id="another width"),
        pytest.param(4, b"\x00\x00\x00\x01", id="another size"),
        pytest.param(8, b"\x00\x00\x00\x00", id="no block"),
        pytest.param(8, b"\x03\x01\x00\x00", id="a block that ends within a cell"),
        pytest.param(8, b"\xff\xff\xff\xff", id="a block larger than all"),
        pytest.param(12, b"\x00\x00\x00\x00", id="another length"),
        pytest.param(16, b"\x00\x00\x00\x80", id="a block before the frame"),
        pytest.param(16, b"\xff\xff\xff\x7f", id="a block behind the frame"),
        pytest.param(16, b"\x04\x00\x00\x00", id="a block within the head"),
    ],
)
def test_heads_that_are_not_known_are_left_to_blosc(at: int, value: bytes) -> None:
    cells = cells_of("labels", "int16")
    frame = bytearray(compress(cells, 5, 1))
    frame[at : at + len(value)] = value
    (found,), left = decoded([bytes(frame)], cells, Emulator())
    assert left
    assert (found == 1).all()


def test_tiles_of_several_reads_with_codecs_of_their_own() -> None:
    """Parts of tiles, read together or not; what is stored as it is, and what the CPU must do."""
    rng = np.random.default_rng(4)
    cells = rng.integers(0, 9, (2 * SIDE, 2 * SIDE)).astype(np.int32)
    corners = [(0, 0), (0, SIDE), (SIDE, 0), (SIDE, SIDE)]
    tiles = [np.ascontiguousarray(cells[y : y + SIDE, x : x + SIDE]) for y, x in corners]
    frames = [compress(tiles[0], 9, 1), compress(tiles[1], 0, 2), compress(tiles[2], 3, 2, 900)]
    frames.append(blosc.compress(tiles[3], b"zstd", 5, 1, 0))
    device = Emulator()
    raster = device.upload(np.zeros((70, 75), np.int32))
    # rows 20 to 90, columns 12 to 87 of the grid
    parts = [
        (Window(20, 12, 28, 36), 0, 0),
        (Window(20, 0, 28, 39), 0, 36),
        (Window(0, 12, 42, 36), 28, 0),
        (Window(0, 0, 42, 39), 28, 36),
    ]
    reads = []
    for names in ((0, 1), (2,), (3,)):
        content, some = b"", []
        for n in names:
            content += frames[n]
            part, row, column = parts[n]
            some.append(StoredTile(len(content) - len(frames[n]), len(content), part, row, column))
            content += b"crc "
        reads.append((np.frombuffer(content, np.uint8), some))
    left = decode_tiles(device, reads, SIDE, raster, cells.dtype)
    assert [tile for _, tile in left] == reads[2][1]
    assert left[0][0].tobytes() == frames[3]
    expected = cells[20:90, 12:87].copy()
    expected[28:, 36:] = 0
    np.testing.assert_array_equal(device.download(raster), expected)


def test_which_tiles_can_be_encoded() -> None:
    """Streams are rows of a tile, of a multiple of eight cells."""
    assert stream_size(4096, 8) == 8192
    assert stream_size(1000, 4) == 25000
    assert stream_size(2021, 4) is None
    assert stream_size(8, 4) is None


# Streams of 8 or 32 KiB have heads of their own, and what repeats over longer ones is not found.
LEAST_COMPRESSION = {"terrain": 0.95, "random": 0.95, "mask": 0.95, "constant": 0.65, "labels": 0.6}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_compression_beside_that_of_blosc(kind: str) -> None:
    """At the level of a store."""
    for dtype, shuffle in (("uint8", 2), ("float32", 1), ("int64", 1)):
        cells = cells_of(kind, dtype, 256)
        found = check_encoding(cells, shuffle, Emulator(), 256, 256)
        assert found > LEAST_COMPRESSION[kind]
