"""Read and encode Zarr shards directly, without zarr-python.

zarr-python, with its event loop, takes twice as long for a tile and more than three times as much
of a processor (docs/decisions/008-storage.md). All rasters of a store have the same codecs, and the
format is fixed [1]_ [2]_: tiles in Morton order, each compressed by Blosc and followed by its
crc32c; then the index, offset and length of each tile as little-endian uint64 (all ones: no such
tile), followed by its crc32c. A raster with other metadata is read and written by zarr-python, see
`shard_format`.

One idea, long: all that knows the bytes of a shard stands together.

References
----------
.. [1] Zarr sharding codec, version 1.0, https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/v1.0.html
.. [2] Blosc chunk format, https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arrays import empty
from orograph.tiles.concurrent_requests import map_at_once
from orograph.tiles.files import Part
from orograph.tiles.format.checksums import check_stated, checksum_in, checksum_of_end
from orograph.tiles.format.codec import (
    check_frame,
    compress,
    decompress,
    with_checksum,
    without_checksum,
)
from orograph.tiles.format.frames import CellTarget, StoredTile
from orograph.tiles.format.metadata import read_document, read_metadata
from orograph.tiles.grid.window import Window
from orograph.tiles.storage import Reader, State, Storage
from orograph.tiles.store.decoded_cache import TILE_CACHE

ABSENT = 2**64 - 1
# Bytes. Adjacent tiles are read together up to this size; a larger range would only take memory.
RANGE_BYTES = 2**23
# Bytes of encoded tiles that a thread reads before it needs them, where requests take long.
AHEAD_BYTES = 2**24
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
    """Encoding of the shards of one raster.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the raster.
    dtype : dtype
        Type of the stored cells, little-endian.
    tile, shard : int
        Cells a side; ``shard`` is ``tile`` times a power of two.
    fill : scalar of ``dtype``
        Value of cells that were never written, and of those beyond the raster's edges.
    compressor : (str, int, int, int)
        Blosc's compressor, level, shuffle and block size.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    tile: int
    shard: int
    fill: np.generic
    compressor: tuple[str, int, int, int]

    @property
    def tiles(self) -> int:
        """Tiles a side of a shard."""
        return self.shard // self.tile

    @property
    def index_bytes(self) -> int:
        """Bytes of the index of a shard, with its checksum."""
        return 16 * self.tiles**2 + 4


def shard_format(document: Mapping[str, Any]) -> ShardFormat | None:
    """Return the shard format of an array, from its metadata.

    Parameters
    ----------
    document : mapping
        The array's ``zarr.json``.

    Returns
    -------
    ShardFormat or None
        None if the array is not encoded like the rasters that `create_store` creates: only
        zarr-python can read and write it then.
    """
    try:
        return _shard_format(document)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None  # metadata of another structure


def _shard_format(document: Mapping[str, Any]) -> ShardFormat | None:
    if document["data_type"] not in _TYPES:
        return None
    dtype = np.dtype(document["data_type"]).newbyteorder("<")
    # In metadata of another structure a key is missing or unpacking fails, which `shard_format`
    # catches.
    (sharding,) = document["codecs"]
    inner = sharding["configuration"]
    order, compression, checksum = inner["codecs"]
    blosc = compression["configuration"]
    rows, columns = document["chunk_grid"]["configuration"]["chunk_shape"]
    tile, width = inner["chunk_shape"]
    ratio, rest = divmod(rows, tile)
    height, breadth = document["shape"]
    # All that decoding relies on. What is not known here is left to zarr-python.
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


def _fill_value(value: float | str, dtype: np.dtype[Any]) -> Any:
    known = type(value) is int or (
        dtype.kind == "f" and (type(value) is float or value in ("NaN", "Infinity", "-Infinity"))
    )
    if not known:  # such as a NaN with a payload
        raise ValueError(f"fill value {value!r}")
    return dtype.type(float(value) if dtype.kind == "f" else value)


def stored_format(storage: Storage, variable: str) -> ShardFormat | None:
    """Return the `shard_format` of a raster of a store; cached until its metadata change."""
    key = f"{variable}/zarr.json"
    return _format_at(storage, key, storage.state(key))


@lru_cache(maxsize=64)
def format_in_group(storage: Storage, variable: str, state: State | None) -> ShardFormat | None:
    """Return the `shard_format` of a raster as the metadata of its store state it.

    ``state`` is that of these metadata, which the caller has already.
    """
    member = read_metadata(storage, unfinished=True).members.get(variable)
    return None if member is None else shard_format(member.document)


# The state is there for the cache alone: metadata that have been replaced are read again.
@lru_cache(maxsize=64)
def _format_at(storage: Storage, key: str, state: State | None) -> ShardFormat | None:
    return shard_format(read_document(storage, key))


def chunk_checksum(storage: Storage, key: str, form: ShardFormat | None) -> int:
    """Return the checksum stored at the end of a shard or of any other chunk.

    Raises
    ------
    FileNotFoundError
        If there is no such chunk.
    """
    return checksum_in(storage, key, form.index_bytes if form else 0)


def read_window(
    storage: Storage,
    variable: str,
    form: ShardFormat,
    stated: NDArray[np.uint32] | None,
    window: Window,
) -> NDArray[Any]:
    """Return the cells of a window of a raster, contiguous, in native byte order.

    ``stated`` are the checksums of the shards' ends, if the store states them. A missing shard
    reads as fill values, of which the caller checks whether it may be missing; in an object store
    only if no checksum of it is stated.

    Raises
    ------
    OSError, ValueError
        As `read_tiles`.
    """
    out = empty(window.shape, form.dtype.newbyteorder("="))
    side = form.shard
    corner = window.y // form.tile * form.tile, window.x // form.tile * form.tile
    # no other part of a tile that is read whole and alone will be read, at a clipped edge too
    keep = window != Window(*corner, form.tile, form.tile).clip(form.shape)
    for i, j, cells in windows_of_shards(form.shard, window):
        inside = Window(cells.y - i * side, cells.x - j * side, cells.height, cells.width)
        key = f"{variable}/c/{i}/{j}"
        expected = None if stated is None else int(stated[i, j])
        read_tiles(storage, key, form, inside, out[cells.within(window)], keep, expected)
    return out


def decode_window(
    storage: Storage,
    variable: str,
    form: ShardFormat,
    stated: NDArray[np.uint32] | None,
    window: Window,
    target: CellTarget,
) -> None:
    """Read a window of a raster to a device, which decodes it; otherwise as `read_window`."""
    for i, j, cells in windows_of_shards(form.shard, window):
        rows, columns = cells.within(window)
        try:
            opened = storage.open(f"{variable}/c/{i}/{j}")
        except FileNotFoundError:
            target.fill((rows, columns), form.fill)
            continue
        expected = None if stated is None else int(stated[i, j])
        inside = Window(cells.y - i * form.shard, cells.x - j * form.shard, *cells.shape)
        corner = rows.start, columns.start
        with opened as reader:
            _decode_opened(reader, form, expected, inside, target, corner)


def _decode_opened(
    reader: Reader,
    form: ShardFormat,
    stated: int | None,
    window: Window,
    target: CellTarget,
    corner: tuple[int, int],
) -> None:
    """Decode a window of an open shard to a device, from row and column ``corner`` on."""
    top, left = corner

    def placed(part: tuple[slice, slice]) -> tuple[slice, slice]:
        rows, columns = part
        return (
            slice(rows.start + top, rows.stop + top),
            slice(columns.start + left, columns.stop + left),
        )

    def fill(part: tuple[slice, slice]) -> None:
        target.fill(placed(part), form.fill)

    wanted, stop = _tiles_in_window(reader, form, stated, window, fill)
    reads = []
    for _, content, tiles in _read_ranges(reader, wanted, stop):
        found = []
        for begin, end, row, column in tiles:
            frame = without_checksum(content[begin:end], "the tile")
            source, part = _intersect(form, window, row, column)
            rows, columns = placed(part)
            place = source, rows.start, columns.start
            found.append(StoredTile(begin, begin + frame.size, *place))
        reads.append((content, found))
    target.decode(reads, form.tile, form.dtype)


def windows_of_shards(side: int, window: Window) -> Iterator[tuple[int, int, Window]]:
    """Yield row and column of each shard that a window overlaps, and the cells they share."""
    bottom, right = window.y + window.height, window.x + window.width
    for i in range(window.y // side, -(-bottom // side)):
        for j in range(window.x // side, -(-right // side)):
            y, x = max(window.y, i * side), max(window.x, j * side)
            below, beside = min(bottom, (i + 1) * side), min(right, (j + 1) * side)
            yield i, j, Window(y, x, below - y, beside - x)


def read_tiles(
    storage: Storage,
    key: str,
    form: ShardFormat,
    window: Window,
    out: NDArray[Any] | None = None,
    keep: bool = True,
    stated: int | None = None,
) -> NDArray[Any]:
    """Return the cells of a window of one shard.

    Only the index and the tiles that overlap the window are read, all from one open object: if the
    shard is replaced meanwhile, all cells are those of the old one.

    Parameters
    ----------
    storage, key : Storage, str
        The shard. If it does not exist, all cells are the fill value; see `read_window`.
    form : ShardFormat
        Its encoding.
    window : Window
        The cells, relative to the first cell of the shard.
    out : array of ``window.shape``, optional
        Array for the cells.
    keep : bool
        Whether to put tiles that are read in part into the decoded-tile cache.
    stated : int, optional
        The checksum of its index and its last tile, if the store states it.

    Returns
    -------
    array of ``window.shape``
        ``out``, or a new array in native byte order.

    Raises
    ------
    OSError
        If the shard cannot be read.
    ValueError
        If the shard is damaged: it is truncated, or the checksum of its index or of a tile of the
        window does not match; or it is another than the store states.
    """
    if out is None:
        out = np.empty(window.shape, form.dtype.newbyteorder("="))
    # Tiles come from what was fetched ahead; else by the index of the shard that this thread has
    # read last; else from the shard, opened anew. If one of the first two fails, the next
    # overwrites all that it has put into `out`.
    place, last = (storage, key), getattr(_THREAD, "last", None)
    held = getattr(_THREAD, "fetched", {}).get(place)
    if held is not None:
        with suppress(OSError, ValueError):  # it may have been replaced
            return _read_opened(held, place, form, window, out, keep, stated)
    _THREAD.last = None
    if last is not None and last[0] == place and not keep:
        with suppress(OSError, ValueError):  # it may have been replaced
            return _read_opened(last[1], place, form, window, out, keep, stated)
    try:
        opened = storage.open(key)
    except FileNotFoundError:
        if stated and storage.etags:  # the caller has not looked whether it is there
            raise
        out[...] = form.fill
        return out
    return _read_opened(opened, place, form, window, out, keep, stated)


_THREAD = local()
"""Shard that each thread has read last, where another request would be made for its index, and the
shards of which it has fetched tiles."""
Fetched = dict[tuple[Storage, str], Reader]
"""Open shards, of which some tiles have been read but not decoded."""


@contextmanager
def using(fetched: Fetched) -> Iterator[None]:
    """Take tiles that this thread reads within the context from those that have been fetched."""
    _THREAD.fetched = fetched
    try:
        yield
    finally:
        _THREAD.fetched = {}


def fetch_window(
    storage: Storage,
    variable: str,
    form: ShardFormat,
    stated: NDArray[np.uint32] | None,
    window: Window,
    limit: int,
) -> Fetched:
    """Read the encoded tiles of a window: the index of each shard, then each run of tiles.

    Tiles beyond ``limit`` bytes are left, and those of a shard that cannot be read: `read_window`
    reads them, and says what is wrong. The other arguments are those of `read_window`.
    """

    def fetch(part: tuple[int, int, Window]) -> tuple[str, Reader | None]:
        i, j, cells = part
        key, expected = f"{variable}/c/{i}/{j}", None if stated is None else int(stated[i, j])
        inside = Window(cells.y - i * form.shard, cells.x - j * form.shard, *cells.shape)
        share = limit * cells.size // window.size
        return key, _fetch_tiles(storage, key, form, inside, expected, share)

    found = map_at_once(storage, fetch, windows_of_shards(form.shard, window))
    return {(storage, key): reader for key, reader in found if reader is not None}


def _fetch_tiles(
    storage: Storage, key: str, form: ShardFormat, window: Window, stated: int | None, limit: int
) -> Reader | None:
    """Read the encoded tiles of a window of one shard, if something is saved by that."""
    try:
        opened = storage.open(key)
        table, stop = _index(opened, form, stated)
        tiles = sorted(
            (begin, begin + count)
            for row, column in _places(form, window)
            for begin, count in [table[row, column].tolist()]
            if (begin, count) != (ABSENT, ABSENT) and begin + count <= stop
        )
        runs: list[tuple[int, int]] = []
        for begin, end in tiles:
            limit -= end - begin
            if limit < 0:
                break
            # A run is an offset and a length, so its sum is where it ends.
            if runs and sum(runs[-1]) == begin:
                runs[-1] = runs[-1][0], end - runs[-1][0]
            else:
                runs.append((begin, end - begin))
        return opened.holding(runs)
    except (OSError, ValueError):
        return None


def _places(form: ShardFormat, window: Window) -> Iterator[tuple[int, int]]:
    """Yield row and column of each tile of a shard that a window of the shard overlaps."""
    for row in range(window.y // form.tile, -(-(window.y + window.height) // form.tile)):
        for column in range(window.x // form.tile, -(-(window.x + window.width) // form.tile)):
            yield row, column


def _read_opened(
    opened: Reader,
    place: tuple[Storage, str],
    form: ShardFormat,
    window: Window,
    out: NDArray[Any],
    keep: bool,
    stated: int | None,
) -> NDArray[Any]:
    """Read a window of an open shard into ``out``; see `read_tiles`."""
    with opened as reader:

        def fill(part: tuple[slice, slice]) -> None:
            out[part] = form.fill

        wanted, stop = _tiles_in_window(reader, form, stated, window, fill)
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
                cells = _decode(content[begin:end], form, source, out[target], keep)
                if keep and cells is not None:
                    TILE_CACHE.put(state, first + begin, cells)
    if not keep and (index := opened.only_tail(form.index_bytes + 4)) is not None:
        _THREAD.last = place, index
    return out


_Tile = tuple[int, int, int, int]  # first byte, byte after the last, row and column in the shard


def _tiles_in_window(
    reader: Reader,
    form: ShardFormat,
    stated: int | None,
    window: Window,
    fill: Callable[[tuple[slice, slice]], None],
) -> tuple[list[_Tile], int]:
    """Return byte ranges of the tiles that overlap a window, and the index's offset.

    ``fill`` is called with the place of each tile that the shard does not contain.
    """
    table, stop = _index(reader, form, stated)
    found = []
    for row, column in _places(form, window):
        begin, count = table[row, column].tolist()
        if begin == count == ABSENT:
            fill(_intersect(form, window, row, column)[1])
        else:
            found.append((begin, begin + count, row, column))
    # By offset, so that `_read_ranges` finds tiles that are adjacent.
    return sorted(found), stop


def _index(reader: Reader, form: ShardFormat, stated: int | None) -> tuple[NDArray[np.uint64], int]:
    """Read the index of a shard: offset and length of each tile, and the index's own offset."""
    length = form.index_bytes
    tail = reader.tail(length + 4)  # and the checksum of the last tile
    size = reader.state.size
    if size < length:
        raise ValueError(f"the shard has {size} bytes, fewer than its index, {length}: cut short")
    index = without_checksum(tail[-length:], "the index")
    check_stated(checksum_of_end(tail, length), stated)
    return index.view("<u8").reshape(form.tiles, form.tiles, 2), size - length


def _read_ranges(
    reader: Reader, wanted: list[_Tile], stop: int
) -> Iterator[tuple[int, NDArray[np.uint8], list[_Tile]]]:
    """Read adjacent tiles together; yield offset, bytes, and each tile's range in the bytes."""
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
    """Return the intersection of a tile and a window of its shard, relative to each of them."""
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
    keep: bool,
) -> NDArray[Any] | None:
    """Decode the part ``source`` of a tile into ``out``.

    Return the whole tile if it was decoded to an array of its own, else None; ``keep`` tells
    whether the caller keeps that.
    """
    content = without_checksum(content, "the tile")
    side = form.tile
    # A whole tile is decompressed in its place, without a copy.
    if out.shape == (side, side) and out.flags.c_contiguous and out.dtype == form.dtype:
        decompress(content, out)
        return None
    # of what is not kept the memory is used again: new memory takes longer to clear than to fill
    cells = (np.empty if keep else empty)((side, side), form.dtype)
    decompress(content, cells)
    out[...] = cells[source.slices]
    return cells


def tile_name(
    variable: str, tile: int, shard: int, place: tuple[int, int], shape: tuple[int, int]
) -> str:
    """Describe a tile for error messages: its position, shard and cells."""
    row, column = place
    cells = Window(row * tile, column * tile, tile, tile).clip(shape)
    i, j = cells.y // shard, cells.x // shard
    inner = (row - i * shard // tile, column - j * shard // tile)
    return (
        f"tile ({row}, {column}) of {variable}, chunk {inner} of shard ({i}, {j}), "
        f"{describe(cells)}"
    )


def describe(cells: Window) -> str:
    return (
        f"rows {cells.y} to {cells.y + cells.height - 1}, "
        f"columns {cells.x} to {cells.x + cells.width - 1}"
    )


def damaged_tiles(
    storage: Storage,
    key: str,
    form: ShardFormat,
    shape: tuple[int, int],
    stated: int | None = None,
) -> Iterator[tuple[tuple[int, int] | None, str]]:
    """Yield row and column of each tile of a shard that cannot be read, and why.

    All bytes are read and compared with their checksums; the decoded-tile cache is not asked.

    Parameters
    ----------
    storage, key : Storage, str
        The shard.
    form : ShardFormat
        Its encoding.
    shape : (int, int)
        Cells of the shard that lie in the grid. Each tile that contains some must be there.
    stated : int, optional
        The checksum of its index and its last tile, if the store states it.

    Yields
    ------
    tile, fault : (int, int) or None, str
        None: nothing of the shard can be read.
    """
    side = form.tile
    try:
        with storage.open(key) as reader:
            table, stop = _index(reader, form, stated)
            for row, column in np.ndindex(-(-shape[0] // side), -(-shape[1] // side)):
                begin, count = table[row, column].tolist()
                try:
                    if begin == count == ABSENT:
                        raise ValueError("it is not in the shard")
                    tile = (begin, begin + count, row, column)
                    ((_, content, _),) = _read_ranges(reader, [tile], stop)
                    # All bytes of the frame match their checksum, so it is enough that its header
                    # states the size of a tile: nothing is decompressed.
                    check_frame(
                        without_checksum(content, "the tile"), side * side * form.dtype.itemsize
                    )
                except (OSError, ValueError) as error:
                    yield (row, column), str(error)
    except FileNotFoundError:
        yield None, "it is missing"
    except (OSError, ValueError) as error:
        yield None, str(error)


class ShardEncoder:
    """Encoder of one shard, tile by tile; it holds the encoded tiles in memory.

    The bytes equal what zarr-python 3.1.6 writes, in whatever order tiles are put. Tiles that a
    device has encoded have other bytes, and decode to the same cells.
    """

    def __init__(self, form: ShardFormat) -> None:
        self._form = form
        self._tiles: dict[tuple[int, int], Part] = {}

    def put(self, row: int, column: int, cells: NDArray[Any]) -> None:
        """Encode a tile and store it at a row and column of the shard.

        ``cells`` have the dtype of the shard, in any byte order. At the right and bottom edges of
        the raster they may be fewer than a tile has; the rest are fill values.
        """
        name, level, shuffle, block = self._form.compressor
        side = self._form.tile
        if cells.shape != (side, side):
            whole = np.full((side, side), self._form.fill, self._form.dtype)
            whole[: cells.shape[0], : cells.shape[1]] = cells
            cells = whole
        # compress takes the size of a cell from the dtype of the array
        cells = np.ascontiguousarray(cells, self._form.dtype)
        self._tiles[row, column] = compress(cells, level, shuffle, block, name)

    def put_frame(self, row: int, column: int, frame: NDArray[np.uint8]) -> None:
        """Store an encoded tile at a row and column of the shard."""
        self._tiles[row, column] = frame

    def parts(self) -> list[Part]:
        """Return the bytes of the shard in parts: tiles, their checksums, and the index."""
        index = np.full((self._form.tiles, self._form.tiles, 2), ABSENT, "<u8")
        parts: list[Part] = []
        end = 0
        for place in _morton_order(self._form.tiles):
            if place in self._tiles:
                begin, (tile, checksum) = end, with_checksum(self._tiles[place])
                parts += [tile, checksum]
                end = begin + len(tile) + len(checksum)
                index[place] = begin, end - begin
        return [*parts, *with_checksum(index.tobytes())]


@lru_cache
def _morton_order(side: int) -> tuple[tuple[int, int], ...]:
    """Return the (row, column) pairs of a square in Morton order."""
    order: list[tuple[int, int]] = [(0, 0)]
    step = 1
    while step < side:
        # The square of the last step is repeated in each quadrant. As in zarr-python the lowest bit
        # of the code belongs to the row, so the quadrant below comes second.
        corners = ((0, 0), (step, 0), (0, step), (step, step))
        order = [(y + row, x + column) for y, x in corners for row, column in order]
        step *= 2
    return tuple(order)
