"""The bytes of a shard, read and written here: zarr-python's own way waits longer than it decodes.

Over its event loop zarr-python 3.1.6 takes about 4 ms for a tile of 1024 x 1024 that decodes in
1 ms. The rasters of a store all have one chain of codecs, and the format is fixed [1]_ [2]_: tiles
in Morton order, each compressed by Blosc and followed by its crc32c, then the index, offset and
length of each tile as little-endian uint64 (all ones: no such tile), and its crc32c. A raster with
any other metadata is left to zarr-python, see `shard_format`.

References
----------
.. [1] Zarr sharding codec, version 1.0, https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/v1.0.html
.. [2] Blosc chunk format, https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.grid.window import Window
from orograph.tiles.memory import empty
from orograph.tiles.store.codec import compress, decompress, with_checksum, without_checksum
from orograph.tiles.store.decoded_cache import TILE_CACHE
from orograph.tiles.store.storage import Reader, State, Storage

ABSENT = 2**64 - 1
# Ranges that touch are read in one go up to this: more would only hold memory.
RANGE_BYTES = 2**23
_SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
_CHECKSUM = {"name": "crc32c"}
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_KEY_ENCODING = {"name": "default", "configuration": {"separator": "/"}}
_KEYS = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
    *("fill_value", "codecs", "attributes", "dimension_names", "storage_transformers"),
}
_TYPES = {
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
}


@dataclass(frozen=True)
class ShardFormat:
    """How the shards of one raster are encoded.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the raster.
    dtype : dtype
        Type of the cells in a file: little endian.
    tile, shard : int
        Cells a side; ``shard`` is ``tile`` times a power of two.
    fill : scalar of ``dtype``
        The value of cells that were never written, and of those beyond the raster's edges.
    compressor : (str, int, int, int)
        Name, level, shuffle and block size of Blosc.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    tile: int
    shard: int
    fill: Any
    compressor: tuple[str, int, int, int]

    @property
    def tiles(self) -> int:
        """Tiles a side of a shard."""
        return self.shard // self.tile


def shard_format(document: Mapping[str, Any]) -> ShardFormat | None:
    """What the metadata of an array say, if it is a raster encoded as those of a store are.

    Parameters
    ----------
    document : mapping
        Its ``zarr.json``.

    Returns
    -------
    ShardFormat or None
        None if anything in them is otherwise: only zarr-python can read and write it then.
    """
    try:
        return _shard_format(document)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None  # metadata of another build


def _shard_format(document: Mapping[str, Any]) -> ShardFormat | None:
    if document["data_type"] not in _TYPES:
        return None
    dtype = np.dtype(document["data_type"]).newbyteorder("<")
    (sharding,) = document["codecs"]
    inner = sharding["configuration"]
    order, compression, checksum = inner["codecs"]
    blosc = compression["configuration"]
    rows, columns = document["chunk_grid"]["configuration"]["chunk_shape"]
    tile, width = inner["chunk_shape"]
    ratio, rest = divmod(rows, tile)
    height, breadth = document["shape"]
    ours = (
        document.keys() <= _KEYS
        and (document["zarr_format"], document["node_type"]) == (3, "array")
        and document["chunk_grid"]["name"] == "regular"
        and document["chunk_key_encoding"] == _KEY_ENCODING
        and not document.get("storage_transformers")
        and (sharding["name"], inner["index_location"]) == ("sharding_indexed", "end")
        and inner["index_codecs"] == [_LITTLE, _CHECKSUM]
        and (order == _LITTLE or (order == {"name": "bytes"} and dtype.itemsize == 1))
        and (compression["name"], checksum) == ("blosc", _CHECKSUM)
        and blosc.keys() == {"typesize", "cname", "clevel", "shuffle", "blocksize"}
        and (blosc["typesize"], blosc["cname"]) == (dtype.itemsize, "lz4")
        and (rows, tile) == (columns, width)
        and ratio >= 1
        and not (rest or ratio & (ratio - 1))
    )
    if not ours:
        return None
    compressor = (blosc["cname"], blosc["clevel"], _SHUFFLES[blosc["shuffle"]], blosc["blocksize"])
    fill = _fill_value(document["fill_value"], dtype)
    return ShardFormat((height, breadth), dtype, tile, rows, fill, compressor)


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    known = type(value) is int or (
        dtype.kind == "f" and (type(value) is float or value in ("NaN", "Infinity", "-Infinity"))
    )
    if not known:  # such as the bits of a NaN of one's own
        raise ValueError(f"fill value {value!r}")
    return dtype.type(float(value) if dtype.kind == "f" else value)


def stored_format(storage: Storage, variable: str) -> ShardFormat | None:
    """`shard_format` of a raster of a store, read again only when its metadata change."""
    key = f"{variable}/zarr.json"
    return _format_at(storage, key, storage.state(key))


@lru_cache(maxsize=64)
def _format_at(storage: Storage, key: str, state: State | None) -> ShardFormat | None:
    return shard_format(json.loads(storage.get(key)))


def read_window(storage: Storage, variable: str, form: ShardFormat, window: Window) -> NDArray[Any]:
    """Cells of ``window`` of a raster of a store, contiguous, in native byte order.

    Shards that are not there read as fill values: whether one may be missing, the caller knows.

    Raises
    ------
    OSError, ValueError
        As `read_tiles`.
    """
    out = empty(window.shape, form.dtype.newbyteorder("="))
    side = form.shard
    bottom, right = window.y + window.height, window.x + window.width
    corner = window.y // form.tile * form.tile, window.x // form.tile * form.tile
    # nobody comes back for parts of a tile that is read whole and alone, at a ragged edge too
    keep = window != Window(*corner, form.tile, form.tile).clip(form.shape)
    for i in range(window.y // side, -(-bottom // side)):
        for j in range(window.x // side, -(-right // side)):
            y, x = max(window.y, i * side), max(window.x, j * side)
            cells = Window(y, x, min(bottom, (i + 1) * side) - y, min(right, (j + 1) * side) - x)
            inside = Window(y - i * side, x - j * side, cells.height, cells.width)
            key = f"{variable}/c/{i}/{j}"
            read_tiles(storage, key, form, inside, out[cells.within(window)], keep)
    return out


def read_tiles(
    storage: Storage,
    key: str,
    form: ShardFormat,
    window: Window,
    out: NDArray[Any] | None = None,
    keep: bool = True,
) -> NDArray[Any]:
    """Cells of a window of one shard.

    Reads the index and the tiles that meet the window, nothing else, all from one opened object: a
    shard replaced meanwhile is read as it was.

    Parameters
    ----------
    storage, key : Storage, str
        Where it is. If it is not there, every cell is the fill value.
    form : ShardFormat
        How it is encoded.
    window : Window
        The cells, counted from the first of the shard.
    out : array of ``window.shape``, optional
        Where to put them.
    keep : bool
        Whether tiles that are decoded for a part of them are kept for a while.

    Returns
    -------
    array of ``window.shape``
        ``out``, or a new array in native byte order.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is damaged: cut short, or a checksum of the index or of a tile of the window does not
        match.
    """
    if out is None:
        out = np.empty(window.shape, form.dtype.newbyteorder("="))
    try:
        opened = storage.open(key)
    except FileNotFoundError:
        out[...] = form.fill
        return out
    with opened as reader:
        wanted, stop = _tiles_in_window(reader, form, window, out)
        state = reader.state
        missing = []
        for tile in wanted:
            source, target = _intersect(form, window, *tile[2:])
            cells = TILE_CACHE.get(state, tile[0], form.tile, source)
            if cells is None:
                missing.append(tile)
            else:
                out[target] = cells
        for first, content, tiles in _read_ranges(reader, missing, stop):
            for begin, end, row, column in tiles:
                source, target = _intersect(form, window, row, column)
                cells = _decode(content[begin:end], form, source, out[target])
                if keep and cells is not None:
                    TILE_CACHE.put(state, first + begin, cells)
    return out


_Tile = tuple[int, int, int, int]  # first byte, byte after the last, row and column in the shard


def _tiles_in_window(
    reader: Reader, form: ShardFormat, window: Window, out: NDArray[Any]
) -> tuple[list[_Tile], int]:
    """The tiles to be read, as they lie in the shard, and where they end; the absent are filled."""
    length = 16 * form.tiles**2 + 4
    tail = reader.tail(length)
    size = reader.state.size
    if size < length:
        raise ValueError(f"the shard has {size} bytes, fewer than its index, {length}: cut short")
    index = without_checksum(tail, "the index")
    table = index.view("<u8").reshape(form.tiles, form.tiles, 2)
    found = []
    for row in range(window.y // form.tile, -(-(window.y + window.height) // form.tile)):
        for column in range(window.x // form.tile, -(-(window.x + window.width) // form.tile)):
            begin, count = table[row, column].tolist()
            if begin == count == ABSENT:
                out[_intersect(form, window, row, column)[1]] = form.fill
            else:
                found.append((begin, begin + count, row, column))
    return sorted(found), size - length


def _read_ranges(
    reader: Reader, wanted: list[_Tile], stop: int
) -> Iterator[tuple[int, NDArray[np.uint8], list[_Tile]]]:
    """Where tiles lie one after the other, their bytes, and where in them each of them lies."""
    first = 0
    while first < len(wanted):
        begin, end = wanted[first][:2]
        last = first + 1
        while (
            last < len(wanted) and wanted[last][0] == end and wanted[last][1] - begin <= RANGE_BYTES
        ):
            end = wanted[last][1]
            last += 1
        if not begin <= end <= stop:
            raise ValueError(
                f"the index puts it at bytes {begin} to {end}, beyond the {stop} bytes of tiles"
            )
        tiles = [(a - begin, b - begin, row, column) for a, b, row, column in wanted[first:last]]
        yield begin, reader.range(begin, end - begin), tiles
        first = last


def _intersect(
    form: ShardFormat, window: Window, row: int, column: int
) -> tuple[Window, tuple[slice, slice]]:
    """The part of a tile that lies in a window of its shard, within the tile and the window."""
    top, left = row * form.tile, column * form.tile
    y, x = max(window.y, top), max(window.x, left)
    height = min(window.y + window.height, top + form.tile) - y
    width = min(window.x + window.width, left + form.tile) - x
    return Window(y - top, x - left, height, width), Window(y, x, height, width).within(window)


def _decode(
    content: NDArray[np.uint8],
    form: ShardFormat,
    source: Window,
    out: NDArray[Any],
) -> NDArray[Any] | None:
    """Put the part ``source`` of a tile into ``out``; the whole tile, if it had to be set apart."""
    content = without_checksum(content, "the tile")
    side = form.tile
    if out.shape == (side, side) and out.flags.c_contiguous and out.dtype == form.dtype:
        decompress(content, out)
        return None
    cells = np.empty((side, side), form.dtype)
    decompress(content, cells)
    out[...] = cells[source.slices]
    return cells


class ShardEncoder:
    """Makes the bytes of one shard, a tile at a time; no more than they and one tile are held.

    They are the same as zarr-python 3.1.6 makes, in whatever order the tiles come.
    """

    def __init__(self, form: ShardFormat) -> None:
        self._form = form
        self._tiles: dict[tuple[int, int], bytes] = {}

    def put(self, row: int, column: int, cells: NDArray[Any]) -> None:
        """Take the tile at a row and column of the shard; a second one there replaces the first.

        ``cells`` are of the type of the shard, in any byte order. At the right and bottom edges of
        the raster they may be fewer than a tile has: the others are fill values.
        """
        name, level, shuffle, block = self._form.compressor
        side = self._form.tile
        if cells.shape != (side, side):
            whole = np.full((side, side), self._form.fill, self._form.dtype)
            whole[: cells.shape[0], : cells.shape[1]] = cells
            cells = whole
        # It takes the size of a cell from the array.
        cells = np.ascontiguousarray(cells, self._form.dtype)
        self._tiles[row, column] = compress(cells, level, shuffle, block, name)

    def parts(self) -> list[bytes]:
        """The bytes, in parts: tiles, index and checksums."""
        index = np.full((self._form.tiles, self._form.tiles, 2), ABSENT, "<u8")
        parts, end = [], 0
        for place in _morton_order(self._form.tiles):
            if place in self._tiles:
                begin, (tile, checksum) = end, with_checksum(self._tiles[place])
                parts += [tile, checksum]
                end = begin + len(tile) + len(checksum)
                index[place] = begin, end - begin
        return [*parts, *with_checksum(index.tobytes())]


@lru_cache
def _morton_order(side: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of a square of a power of two a side, along the curve; rows turn fastest."""
    order: list[tuple[int, int]] = [(0, 0)]
    step = 1
    while step < side:
        corners = ((0, 0), (step, 0), (0, step), (step, step))
        order = [(y + row, x + column) for y, x in corners for row, column in order]
        step *= 2
    return tuple(order)
