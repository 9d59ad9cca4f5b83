"""Targets for results: a store, written in whole shards, or arrays in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arrays import empty
from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.files import Part
from orograph.tiles.format.frames import DeviceCells, on_host
from orograph.tiles.format.metadata import ArrayMetadata, read_array
from orograph.tiles.grid.window import Window
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, Storage
from orograph.tiles.store.raster import StoreRaster, shards_by_row
from orograph.tiles.store.shard import (
    ShardEncoder,
    ShardFormat,
    damaged_tiles,
    shard_format,
    stored_format,
)


class ShardWriter(Protocol):
    """Interface to write one shard, a few tiles at a time and in any order."""

    def block(self, part: Window) -> NDArray[Any]:
        """Return an array to fill with the cells of ``part`` and pass to `put`."""

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        """Store the cells of ``part``, a window of whole tiles; the caller may reuse ``cells``."""

    def close(self) -> None:
        """Write the shard, once all its tiles have been put."""


class Sink(Protocol):
    """Interface of a target to which results are written."""

    def writer(self, variable: str, window: Window) -> ShardWriter:
        """Return a writer of the shard ``window`` of one variable."""

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Write ``array`` as the cells of ``window`` of one variable."""

    def written(self, variable: str, window: Window) -> bool:
        """Return whether the cells of ``window`` have been written and still exist."""

    def intact(self, variable: str, window: Window) -> bool:
        """Return whether the cells of ``window`` have been written and can all be read back."""

    @property
    def known(self) -> Mapping[str, ArrayMetadata]:
        """Metadata of rasters that have been read and need not be read again."""


@dataclass(frozen=True)
class ArraySink:
    """Target in memory: one array of the whole grid for each variable."""

    arrays: MutableMapping[str, NDArray[Any]]

    def writer(self, variable: str, window: Window) -> ShardWriter:
        """Return a writer of the shard ``window`` of one variable."""
        return _ArrayWriter(self.arrays[variable])

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Write ``array`` as the cells of ``window`` of one variable."""
        self.arrays[variable][window.slices] = array

    def written(self, variable: str, window: Window) -> bool:
        """Return True: cells in memory do not get lost."""
        return True

    def intact(self, variable: str, window: Window) -> bool:
        """Return True: cells in memory do not get damaged."""
        return True

    @property
    def known(self) -> Mapping[str, ArrayMetadata]:
        """Metadata of stored rasters: none."""
        return {}


@dataclass(frozen=True)
class _ArrayWriter:
    array: NDArray[Any]

    def block(self, part: Window) -> NDArray[Any]:
        return self.array[part.slices]

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        cells = on_host(cells)
        if not np.may_share_memory(self.array, cells):  # a block is in its place
            self.array[part.slices] = cells

    def close(self) -> None:
        """Do nothing: `put` has written all cells."""


@dataclass(frozen=True)
class StoreSink:
    """Target in a store, written in whole shards.

    Any number of processes and threads may write at once, different shards, or the same shard with
    the same cells: a shard is put into the storage when it is whole.
    """

    storage: Storage
    _arrays: dict[str, ArrayMetadata] = field(compare=False, repr=False)
    """Metadata of the rasters in an object store, which are read once."""

    def __init__(self, place: Location, arrays: Mapping[str, ArrayMetadata] | None = None) -> None:
        object.__setattr__(self, "storage", open_storage(place))
        object.__setattr__(self, "_arrays", dict(arrays or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreSink, (self.storage, self._arrays)

    @property
    def known(self) -> Mapping[str, ArrayMetadata]:
        """Metadata of rasters that have been read and need not be read again."""
        return self._arrays

    def _array(self, variable: str) -> ArrayMetadata:
        if not self.storage.etags:
            return read_array(self.storage, variable)
        if variable not in self._arrays:
            self._arrays[variable] = read_array(self.storage, variable)
        return self._arrays[variable]

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Write one whole shard.

        Parameters
        ----------
        variable : str
            Name of the raster.
        window : Window
            Window of the shard, clipped at the right and bottom edges of the grid. A part of a
            shard is refused: the rest of the shard would be lost silently.
        array : array of ``window.shape``, of the variable's dtype
            The cells.

        Raises
        ------
        InputError
            If the window is not one shard, or the array does not fit it.
        StorageFullError
            If there is no room for it. The shard is then unchanged.
        """
        if array.shape != window.shape:
            raise InputError(
                f"{variable}: cells of shape {array.shape} for a window of "
                f"{window.shape}; they must agree"
            )
        writer = self.writer(variable, window)
        writer.put(window, array)
        writer.close()

    def writer(self, variable: str, window: Window) -> ShardWriter:
        """Return a writer of one shard, which stores the shard when closed.

        Raises
        ------
        FileNotFoundError
            If there is no such raster.
        InputError
            If the window is none of its shards.
        """
        raster = self._array(variable)
        key = _shard_key(raster, window, variable)
        encoder = _encoder(raster.document, window, key, variable)
        return _StoreWriter(self.storage, f"{variable}/{key}", encoder)

    def written(self, variable: str, window: Window) -> bool:
        """Return whether the shard that holds the first cell of ``window`` exists."""
        return self.storage.state(self._key(variable, window)) is not None

    def intact(self, variable: str, window: Window) -> bool:
        """Return whether the shard ``window`` exists, and all its bytes match their checksums."""
        if not self.written(variable, window):
            return False
        form = stored_format(self.storage, variable)
        if form is not None:
            faults = damaged_tiles(self.storage, self._key(variable, window), form, window.shape)
            return next(faults, None) is None
        try:
            StoreRaster(self.storage, variable, unfinished=True).read(window)
        except DamagedStoreError:
            return False
        return True

    def count_written(self, variable: str, windows: Sequence[Window]) -> int:
        """Return how many of ``windows`` have their shards in the store."""
        rows, columns = self._array(variable).chunk
        wanted: dict[int, set[str]] = {}
        for window in windows:
            wanted.setdefault(window.y // rows, set()).add(str(window.x // columns))
        found = shards_by_row(self.storage, variable, wanted)
        return sum(len(names & found[row]) for row, names in wanted.items())

    def _key(self, variable: str, window: Window) -> str:
        rows, columns = self._array(variable).chunk
        return f"{variable}/c/{window.y // rows}/{window.x // columns}"


def count_written(sink: Sink, variable: str, windows: Sequence[Window]) -> int:
    """Return how many of ``windows``, one shard each, have been written to a sink."""
    if isinstance(sink, StoreSink):
        return sink.count_written(variable, windows)
    return sum(sink.written(variable, window) for window in windows)


def _shard_key(raster: ArrayMetadata, window: Window, variable: str) -> str:
    if len(raster.shape) != 2:
        raise InputError(f"{variable}: an array of shape {raster.shape} is not a raster")
    shape, (rows, columns) = (raster.shape[0], raster.shape[1]), raster.chunk
    i, j = window.y // rows, window.x // columns
    whole = Window(i * rows, j * columns, rows, columns).clip(shape)
    if whole != window or window.size == 0:
        raise InputError(
            f"{variable}: {window} is not one whole shard of {rows} x {columns} cells in a grid "
            f"of {shape[0]} x {shape[1]}; the one at its corner is {whole}"
        )
    return f"c/{i}/{j}"


class _Encoder(Protocol):
    """Interface of an encoder of one shard."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells, in native byte order."""

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        """Encode the cells of a part of the shard."""

    def parts(self) -> list[Part]:
        """Return the bytes of the shard, in consecutive parts."""


@dataclass(frozen=True)
class _StoreWriter:
    """Writer of one shard to a storage; it holds encoded tiles only."""

    storage: Storage
    key: str
    encoder: _Encoder

    def block(self, part: Window) -> NDArray[Any]:
        return empty(part.shape, self.encoder.dtype)

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        self.encoder.put(part, cells)

    def close(self) -> None:
        self.storage.put(self.key, *self.encoder.parts())
        self.storage.sync(self.key)  # its run will soon delete what it was made from


class _TileEncoder:
    """Shard encoder that encodes each tile as soon as it is put."""

    def __init__(self, form: ShardFormat, window: Window, variable: str) -> None:
        self.form, self.window, self.variable = form, window, variable
        self.encoder = ShardEncoder(form)
        side = form.tile
        self.missing = set(np.ndindex(-(-window.height // side), -(-window.width // side)))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.form.dtype.newbyteorder("=")

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        _check_type(cells, self.form.dtype, self.variable)
        side = self.form.tile
        y, x = part.y - self.window.y, part.x - self.window.x
        places: dict[tuple[int, int], Window] = {}
        for row in range(y // side, -(-(y + part.height) // side)):
            for column in range(x // side, -(-(x + part.width) // side)):
                # Tiles at the right and bottom edges of the grid are clipped, as the shard's window
                # is.
                tile = Window(row * side, column * side, side, side).clip(self.window.shape)
                inside = Window(tile.y - y, tile.x - x, tile.height, tile.width)
                if inside.clip(part.shape) != inside:
                    raise InputError(f"{self.variable}: {part} is not made of whole tiles")
                places[row, column] = inside
        self.missing -= places.keys()
        if isinstance(cells, DeviceCells):
            shuffle = self.form.compressor[2]
            frames = cells.encode(list(places.values()), side, self.form.fill, shuffle)
            # None: the device has no kernel for such tiles, and they are encoded here.
            if frames is not None:
                for place, frame in zip(places, frames, strict=True):
                    self.encoder.put_frame(*place, frame)
                return
            cells = cells.to_host()
        for place, inside in places.items():
            self.encoder.put(*place, cells[inside.slices])

    def parts(self) -> list[Part]:
        if self.missing:
            raise InputError(f"{self.variable}: {len(self.missing)} tiles were not given")
        return self.encoder.parts()


class _ZarrEncoder:
    """Shard encoder that uses zarr-python, for rasters with other codecs than ours.

    The shard is encoded in a store in memory: in the store on disk zarr-python would read the old
    shard before it replaces it, which is slow, and fails if the old shard is damaged.
    """

    def __init__(
        self, document: Mapping[str, Any], window: Window, key: str, variable: str
    ) -> None:
        import zarr
        from zarr.core.buffer import default_buffer_prototype
        from zarr.storage import MemoryStore

        prototype = default_buffer_prototype()
        self.key, self.window, self.variable = key, window, variable
        self.memory: dict[str, Any] = {
            "zarr.json": prototype.buffer.from_bytes(json.dumps(document).encode())
        }
        # open_array accepts this setting as an argument, but ignores it
        self.target = zarr.open_array(
            MemoryStore(self.memory), mode="r+", zarr_format=3
        ).with_config({"write_empty_chunks": True})
        self.cells = np.empty(window.shape, self.target.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        native: np.dtype[Any] = self.cells.dtype.newbyteorder("=")
        return native

    def put(self, part: Window, cells: NDArray[Any] | DeviceCells) -> None:
        _check_type(cells, self.cells.dtype, self.variable)
        self.cells[part.within(self.window)] = on_host(cells)

    def parts(self) -> list[Part]:
        self.target[self.window.slices] = self.cells
        return [bytes(self.memory[self.key].to_bytes())]


def _encoder(document: Mapping[str, Any], window: Window, key: str, variable: str) -> _Encoder:
    form = shard_format(document)
    if form is None:
        return _ZarrEncoder(document, window, key, variable)
    return _TileEncoder(form, window, variable)


def _check_type(cells: NDArray[Any] | DeviceCells, dtype: np.dtype[Any], variable: str) -> None:
    native = dtype.newbyteorder("=")
    if cells.dtype.newbyteorder("=") != native:
        raise InputError(f"{variable}: cells of {cells.dtype} for {native}; convert first")


def encode_shard(
    document: Mapping[str, Any], window: Window, key: str, array: NDArray[Any], variable: str
) -> list[Part]:
    """Encode one shard; return its bytes in parts.

    Tiles that contain only fill values are encoded too, so a shard that has been written exists.
    """
    encoder = _encoder(document, window, key, variable)
    encoder.put(window, array)
    return encoder.parts()
