"""Read rasters from stores; errors name the damaged chunk.

One idea, long: a raster of a store, read here or by a device.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.concurrent_requests import map_at_once
from orograph.tiles.errors import (
    BackendError,
    DamagedChunkError,
    InputError,
    OptionMissingError,
)
from orograph.tiles.format.checksums import check_stated, checksum_in
from orograph.tiles.format.dense import MEND, DenseArray
from orograph.tiles.format.frames import CellTarget
from orograph.tiles.format.header import Header, header_of
from orograph.tiles.format.metadata import (
    GROUP,
    StoreMetadata,
    damaged,
    read_metadata,
    stated_checksums,
)
from orograph.tiles.grid.cf import matching_geotransform
from orograph.tiles.grid.georeference import GRID_MAPPING, Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import Nodata, native_nodata
from orograph.tiles.open_storage import open_storage
from orograph.tiles.patience import patiently
from orograph.tiles.storage import Location, State, Storage
from orograph.tiles.store.shard import (
    AHEAD_BYTES,
    Fetched,
    ShardFormat,
    decode_window,
    describe,
    fetch_window,
    format_in_group,
    read_window,
    shard_format,
    stored_format,
    tile_name,
    windows_of_shards,
)


class StoreRaster:
    """One raster of a store.

    Parameters
    ----------
    place : path or Storage
        The store.
    variable : str, optional
        Its name; optional if there is only one.
    unfinished : bool
        Whether the store may be unfinished: shards that do not exist yet read as fill values.
    nodata : number, optional
        Value of cells that have none, in place of the store's.
    metadata : StoreMetadata, optional
        Those of the store, if they have been read.

    Raises
    ------
    InputError
        If there is no finished store, or no such variable, or its dtype cannot hold ``nodata``.
    DamagedStoreError
        If its metadata are damaged.
    """

    _waited = False

    def __init__(
        self,
        place: Location,
        variable: str | None = None,
        *,
        unfinished: bool = False,
        nodata: float | None = None,
        metadata: StoreMetadata | None = None,
    ) -> None:
        self.storage = open_storage(place)
        path = self.path
        store = metadata or read_metadata(self.storage, unfinished)
        names = store.rasters
        if variable is None and not names:
            raise InputError(f"{path} is empty")
        if variable is None and len(names) > 1:
            opened = f"og.open({os.fspath(path)!r})"
            message = f"{path} has the variables {', '.join(names)}"
            first = names[0]
            raise OptionMissingError(
                *(message, "variable", f"pass variable={first!r}"),
                *(f"pass one of them, such as {opened}[{first!r}]", names),
            )
        self.variable = names[0] if variable is None else variable
        if self.variable not in names:
            raise InputError(f"{path} has no variable {variable!r}; it has {', '.join(names)}")
        header = header_of(store, self.variable, unfinished)
        own = native_nodata(nodata, header.dtype, path)
        self._header = header if own is None else replace(header, nodata=own)
        self._given = nodata
        self._rule = Nodata() if own is None else Nodata.of((own,), header.dtype, path)
        member = store.members[self.variable]
        self._opened = store.state, member.checksums, shard_format(member.document)
        """State of the first metadata read, and the checksums and format of shards in them."""
        self._seen: State | None = None if unfinished else store.state
        """State of the metadata by which cells of an object store were last read."""

    def again(self) -> StoreRaster:
        """Return the same raster, opened anew: its metadata may be others by now."""
        return StoreRaster(self.storage, self.variable, nodata=self._given)

    @property
    def path(self) -> str:
        """Address of the store."""
        return str(self.storage)

    @property
    def name(self) -> str | None:
        """Name of the variable."""
        return self.variable

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells."""
        return self._header.dtype

    @property
    def nodata(self) -> int | float | None:
        """Nodata value, or None."""
        return self._header.nodata

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes, without those that describe the storage."""
        return self._header.attrs

    @property
    def tile(self) -> int | None:
        """Cells a side of a tile."""
        return self._header.tile

    @property
    def shard(self) -> int | None:
        """Cells a side of a shard."""
        return self._header.shard

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of a cell in memory."""
        return self.dtype.itemsize

    @cached_property
    def georeference(self) -> Georeference:
        """Coordinates and CRS."""
        header = self._header
        y, x = map_at_once(self.storage, partial(self._axis, header), (0, 1))
        wkt, text = (header.grid_mapping.get(name) for name in ("crs_wkt", "GeoTransform"))
        six = matching_geotransform(text, y, x)
        y_attrs, x_attrs = (dict(axis.attributes) if axis else {} for axis in header.axes)
        try:
            if text is not None and six is None:
                raise InputError(f"GeoTransform is {text!r}, which the coordinates contradict")
            if not (wkt is None or isinstance(wkt, str)):
                raise InputError(f"crs_wkt is {wkt!r}")
            Georeference(crs_wkt=wkt, geotransform=six).check_crs()
        except InputError as error:
            raise damaged(self.storage, f"{GRID_MAPPING}/zarr.json", error) from None
        try:
            return Georeference(y, x, wkt, *header.dimensions, six, y_attrs, x_attrs)
        except InputError as error:
            raise damaged(self.storage, "zarr.json", error) from None

    def _axis(self, header: Header, axis: int) -> NDArray[np.float64] | None:
        """Return the y (axis 0) or x coordinates; None if the raster has none."""
        member = header.axes[axis]
        if member is None:
            return None
        if (member.shape, member.dtype) != ((header.shape[axis],), np.dtype(np.float64)):
            raise damaged(
                self.storage,
                f"{member.name}/zarr.json",
                f"{member.shape} coordinates of {member.dtype} for {header.shape[axis]} cells",
            )
        return DenseArray(self.storage, member).read(0, header.shape[axis])

    def read(self, window: Window) -> NDArray[Any]:
        """Return the cells of ``window``, contiguous, in native byte order.

        Raises
        ------
        DamagedChunkError
            If a tile cannot be decoded or its shard is missing; the message names them.
        """
        return self._rule.unify(self._read(window, None))

    def decode(self, window: Window, target: CellTarget) -> bool:
        """Read the cells of ``window`` to a device, which decodes them; return whether it was done.

        It is not where the raster has another encoding, the window cuts tiles, of which the rest
        will be wanted too, or requests take long.

        Raises
        ------
        DamagedChunkError
            As `read`.
        """
        tile, whole = self._header.tile, Window(0, 0, *self.shape)
        ends = window.y + window.height, window.x + window.width
        aligned = not (window.y % tile or window.x % tile) and all(
            end % tile == 0 or end == most for end, most in zip(ends, whole.shape, strict=True)
        )
        # A device decodes cells as they are stored. It cannot change several nodata values into
        # one.
        if self.storage.etags or not aligned or self._opened[2] is None or self._rule.ranges:
            return False
        self._read(window, target)
        return True

    def _read(self, window: Window, target: CellTarget | None) -> Any:
        """Read the cells of ``window``; to a target, if there is one."""
        self._check_window(window)
        # In an object store each look for a shard is a request, so it is left until a read has
        # failed.
        late = self.storage.etags and self._header.absent is not None
        if not late:
            self._check_present(window)
        while True:
            # Where checksums of all shards are stated, the state seen last is tried without a
            # request. If the read fails by it, it is asked for, and the window is read again.
            known = self._seen if late and self._is_stated(window, self._seen) else None
            state = known or self.storage.state(GROUP)
            decode = self._decoder(state)
            try:
                cells = None
                if target is None:
                    cells = decode(window)
                else:
                    self._decode(state, window, target)
            except (MemoryError, BackendError):  # no memory for the cells: they are not damaged
                raise
            except Exception as error:
                if known is not None:  # its metadata may be others now
                    self._seen = None
                    continue
                # Under the same metadata as before the read, the cells themselves are damaged.
                # Under others, the window is read again from the store that they describe.
                if self.storage.state(GROUP) == state:
                    if late:  # a request for each shard that need not be made if all is well
                        self._check_present(window)
                    raise self._damage(decode, window, error) from error
                # another store has taken its name meanwhile
            else:
                self._seen = state if late else None
                return cells

    def fetch(self, window: Window, limit: int = AHEAD_BYTES) -> Fetched:
        """Read tiles of a window by few requests for `using`, up to ``limit`` bytes, undecoded.

        Nothing is read where requests take no time.
        """
        form = self._opened[2]
        if not self.storage.etags or form is None or self._seen != self._opened[0]:
            return {}
        return fetch_window(self.storage, self.variable, form, self._opened[1], window, limit)

    def _is_stated(self, window: Window, state: State | None) -> bool:
        """Return whether metadata of a state state the checksums of all shards of a window.

        A shard that has the checksum is theirs, so nobody needs to ask whether they still hold.
        """
        stated = self._stated(state)
        return stated is not None and all(stated[place] for place in self._shards(window))

    def _stated(self, state: State | None) -> NDArray[np.uint32] | None:
        """Return the checksums of the shards that metadata of a state state."""
        if state == self._opened[0]:
            return self._opened[1]
        return stated_checksums(self.storage, self.variable, state)

    def _decode(self, state: State | None, window: Window, target: CellTarget) -> None:
        """Read a window to a device; ``state`` is that of the store's metadata."""
        form, stated = self._form(state)
        if form is None:  # another store has taken its name meanwhile
            raise ValueError("it has another encoding")
        decode_window(self.storage, self.variable, form, stated, window, target)

    def _form(self, state: State | None) -> tuple[ShardFormat | None, NDArray[np.uint32] | None]:
        """Return the format of the shards, None if only zarr-python reads them, and checksums.

        ``state`` is the state of the store's metadata, which list the checksums.
        """
        unfinished = self._header.absent is None
        stated = None if unfinished else self._stated(state)
        if unfinished or not self.storage.etags:
            form = stored_format(self.storage, self.variable)
        elif state == self._opened[0]:
            form = self._opened[2]
        else:
            form = format_in_group(self.storage, self.variable, state)
        if form is None or (form.shape, form.dtype.newbyteorder("=")) != (self.shape, self.dtype):
            return None, stated
        return form, stated

    def _decoder(self, state: State | None) -> Callable[[Window], NDArray[Any]]:
        """Return the function that reads a window: `read_window`, or one by zarr-python.

        ``state`` is that of the store's metadata.
        """
        form, stated = self._form(state)
        if form is not None:
            return partial(read_window, self.storage, self.variable, form, stated)
        try:
            array = _open_cached(self.storage, self.variable)
        except Exception as error:  # zarr-python knows none of its codecs, or the like
            raise damaged(self.storage, f"{self.variable}/zarr.json", error) from error

        def read(window: Window) -> NDArray[Any]:
            if stated is not None:
                # zarr-python does not know the checksums that the store states.
                for place in self._shards(window):
                    with suppress(FileNotFoundError):
                        found = checksum_in(self.storage, self._shard_key(*place))
                        check_stated(found, int(stated[place]))
            cells = np.empty(window.shape, self.dtype)
            try:
                cells[...] = array[window.slices]
            except MemoryError:  # there is memory for the cells
                raise ValueError("it states more bytes than memory holds") from None
            return cells

        return read

    def fingerprint(self, objects: list[tuple[str, State]] | None = None) -> str:
        """Return a digest of metadata and all tile checksums, which identifies the content.

        A shard that is copied or restored does not change it. Of a tile only the checksum is read,
        4 bytes; of an object store the ETags of the shards are listed instead, so that a store that
        is written anew there has another. ``objects`` are those of that store, if they have been
        listed.

        Raises
        ------
        DamagedChunkError
            If a shard is missing that the metadata do not list as absent.
        """
        digest = hashlib.blake2b(digest_size=16)
        header = self._header
        plain = (
            self.variable,
            header.shape,
            str(header.dtype),
            header.tile,
            header.shard,
            repr(header.nodata),
            self.georeference.token,
        )
        digest.update(repr(plain).encode())
        shards = f"{self.variable}/c"
        if self.storage.etags:
            found = self.storage.objects(shards) if objects is None else objects
            its_own = sorted(one for one in found if one[0].startswith(f"{shards}/"))
            self._check_complete(its_own)
            for key, state in its_own:
                digest.update(repr((key, state)).encode())
            return f"store-{digest.hexdigest()}"
        self._check_complete()
        for row in sorted(self.storage.names(shards)):
            for name in sorted(self.storage.names(f"{shards}/{row}")):
                digest.update(f"{row}/{name}".encode())
                digest.update(_checksums(self.storage, f"{shards}/{row}/{name}", header))
        return f"store-{digest.hexdigest()}"

    def is_as_opened(self, objects: list[tuple[str, State]]) -> bool:
        """Return whether the metadata read first are among the objects of the store."""
        return (GROUP, self._opened[0]) in objects

    def states(self, objects: list[tuple[str, State]] | None = None) -> str:
        """Return a digest of the names, sizes and times of all of the store's files.

        It tells in less time than a fingerprint that nothing has changed, but a copy has another.
        ``objects`` are those files, if they have been listed.

        Raises
        ------
        DamagedChunkError
            As `fingerprint`.
        """
        objects = sorted(self.storage.objects() if objects is None else objects)
        self._check_complete(objects if self.storage.etags else None)
        stated = [(key, repr(state)) for key, state in objects]
        return hashlib.blake2b(repr(stated).encode(), digest_size=16).hexdigest()

    def _check_window(self, window: Window) -> None:
        if window.size == 0 or window.clip(self.shape) != window:
            raise InputError(
                f"{self.path}/{self.variable}: {window} is empty or not inside a grid of "
                f"{self.shape[0]} x {self.shape[1]} cells; clip it first"
            )

    def _shard_key(self, i: int, j: int) -> str:
        return f"{self.variable}/c/{i}/{j}"

    def _check_complete(self, objects: list[tuple[str, State]] | None = None) -> None:
        """Raise DamagedChunkError if any shard is missing; ``objects`` are those of the store."""
        if self._header.absent is None:
            return
        side, (height, width) = self._header.shard, self.shape
        absent = Counter(i for i, _ in self._header.absent)
        rows = range(-(-height // side))
        present = shards_by_row(self.storage, self.variable, rows, objects)
        # Shards are counted by row, and looked at one by one only in rows that have too few.
        for i in rows:
            if len(present[i]) + absent[i] < -(-width // side):
                self._check_present(Window(i * side, 0, side, width).clip(self.shape))

    def _shards(self, window: Window) -> Iterator[tuple[int, int]]:
        """Yield row and column of each shard that a window overlaps."""
        return ((i, j) for i, j, _ in windows_of_shards(self._header.shard, window))

    def _check_present(self, window: Window) -> None:
        side = self._header.shard
        for i, j in self._shards(window):
            state = self.storage.state(self._shard_key(i, j))
            if state is None and (self._header.absent is None or (i, j) in self._header.absent):
                continue  # it reads as fill values
            state = state or self._awaited(self._shard_key(i, j))
            if state is None or not state.size:  # zarr-python reads an empty one as those too
                cells = Window(i * side, j * side, side, side).clip(self.shape)
                raise DamagedChunkError(
                    f"{self.path}/{self._shard_key(i, j)} is "
                    f"{'empty' if state else 'missing'}: shard "
                    f"({i}, {j}) of {self.variable}, {describe(cells)}; {MEND}"
                )

    def _awaited(self, key: str) -> State | None:
        """Wait for a missing shard file to reappear; return its state, or None.

        A file system of a network may be away for a while. Objects that do not come are waited for
        once, not for each of them anew.
        """

        def look() -> State:
            state = self.storage.state(key)
            if state is None:
                raise FileNotFoundError(key)
            return state

        if self._waited:
            return None
        try:
            return patiently(look, lambda: None, FileNotFoundError)
        except FileNotFoundError:
            self._waited = True
            return None

    def _damage(
        self, decode: Callable[[Window], NDArray[Any]], window: Window, error: Exception
    ) -> OSError:
        """Return the error that names the first unreadable tile in ``window``."""
        tile, side = self._header.tile, self._header.shard
        for row in range(window.y // tile, -(-(window.y + window.height) // tile)):
            for column in range(window.x // tile, -(-(window.x + window.width) // tile)):
                cells = Window(row * tile, column * tile, tile, tile).clip(self.shape)
                try:
                    decode(cells)
                except Exception as cause:
                    key = self._shard_key(cells.y // side, cells.x // side)
                    what = tile_name(self.variable, tile, side, (row, column), self.shape)
                    return DamagedChunkError(
                        f"{self.path}/{key}: {what}, cannot be read: {cause}; {MEND}"
                    )
        return DamagedChunkError(
            f"{self.path}: {self.variable}, {describe(window)}, could not be "
            f"read ({error}) but can now; read it again"
        )

    def __repr__(self) -> str:
        return f"StoreRaster({self.path!r}, {self.variable!r})"


def shards_by_row(
    storage: Storage,
    variable: str,
    rows: Iterable[int],
    objects: Iterable[tuple[str, State]] | None = None,
) -> dict[int, set[str]]:
    """Return the columns, as text, of the shards that a raster has in each of some rows.

    ``objects`` are those of the store, if an object store has listed them already.
    """
    folder = f"{variable}/c"
    if not storage.etags:
        return {row: set(storage.names(f"{folder}/{row}")) for row in rows}
    found: dict[int, set[str]] = {row: set() for row in rows}
    for key, _ in storage.objects(folder) if objects is None else objects:
        row, _, column = key[len(folder) + 1 :].partition("/")
        if key.startswith(f"{folder}/") and row.isdecimal() and int(row) in found:
            found[int(row)].add(column)
    return found


_arrays: dict[tuple[int, Storage, str], tuple[State | None, Any]] = {}
_lock = threading.Lock()
_MOST_OPEN = 64


def _open_cached(storage: Storage, variable: str) -> Any:
    """Return the Zarr array, opened once per process: opening is slower than reading a small tile.

    The process is part of the cache key, so a forked child opens its own. The cache holds the state
    of the metadata, so a store that replaces another of the same name is opened again.
    """
    import zarr

    key, state = (os.getpid(), storage, variable), storage.state(f"{variable}/zarr.json")
    cached = _arrays.get(key)
    if cached is not None and cached[0] == state:
        return cached[1]
    array = zarr.open_array(storage.zarr_store(), path=variable, mode="r", zarr_format=3)
    # Two threads may have opened the array at the same time; either result may stay.
    with _lock:
        if len(_arrays) >= _MOST_OPEN:
            _arrays.clear()
        _arrays[key] = state, array
    return array


def _checksums(storage: Storage, key: str, header: Header) -> bytes:
    """Return the stored checksums of a shard's tiles; all its bytes if it is truncated.

    A shard ends with its index, offset and length of each tile as little-endian uint64 (all ones:
    no such tile), and the checksum of the index; a tile ends with its crc32c.
    """
    count = (header.shard // header.tile) ** 2
    with storage.open(key) as reader:
        content = reader.tail(16 * count + 4)[: 16 * count]
        if len(content) < 16 * count:
            return content.tobytes()
        found: list[Any] = []
        end = reader.state.size
        for offset, length in content.view("<u8").reshape(-1, 2).tolist():
            # The ones that stand for an absent tile lie beyond the end of the shard too.
            there = offset + length <= end and length >= 4
            found.append(reader.range(offset + length - 4, 4) if there else b"none")
    return b"".join(found)
