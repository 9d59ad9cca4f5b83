"""Create stores: a Zarr v3 group of rasters, tiles as chunks in square shards, and tables.

One idea, long: all that writes the metadata of a store that is begun.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from orograph.tiles.arguments import shown
from orograph.tiles.concurrent_requests import at_once
from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.format.codec import BITSHUFFLE, SHUFFLE, compress, with_checksum
from orograph.tiles.format.json_object import jsonable
from orograph.tiles.format.metadata import (
    FORMAT,
    GROUP,
    MARK,
    MOST_CELLS_A_SIDE,
    ArrayMetadata,
    member_documents,
    read_document,
    write_group_metadata,
)
from orograph.tiles.grid.georeference import GRID_MAPPING, Georeference
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.nodata import native_nodata, supported_dtype
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, Storage
from orograph.tiles.store.publish import check_target

SHARD_SIDE = 4096
# Bytes of a shard in memory, of which a writer briefly holds two: 4096 cells a side of 4 bytes, or
# 2048 of 8 bytes.
SHARD_BYTES = 2**26
DENSE_LEVEL = 5
TABLE_ROWS = 2**20
# A shard has at most 16 x 16 tiles, since every read of a tile reads the whole index of its shard.
MOST_TILES_A_SIDE = 16

_Location = TypeVar("_Location", bound=Location)
Columns = Mapping[str, tuple[tuple[str, ...], Iterable[NDArray[Any]]]]
"""Dimensions of each column of a table, rows first, and its values in pieces."""


@dataclass(frozen=True)
class Layout:
    """Sides of tiles and of shards, in cells, by which a grid is divided.

    Raises
    ------
    InputError
        If ``tile`` is not 1 to 8192, or ``shard`` is not ``tile`` times a power of two.
    """

    tile: int
    shard: int

    def __post_init__(self) -> None:
        for name, side in (("tile", self.tile), ("shard", self.shard)):
            if isinstance(side, bool) or not isinstance(side, Integral):
                raise InputError(
                    f"{name}={shown(side)}: it must be a whole number of cells; 512 to 4096 are "
                    "usual"
                )
            object.__setattr__(self, name, int(side))
        if not 1 <= self.tile <= MOST_CELLS_A_SIDE:
            raise InputError(
                f"tile={self.tile}: it must be 1 to {MOST_CELLS_A_SIDE} cells a side; 512 to 4096 "
                "are usual"
            )
        ratio, rest = divmod(self.shard, self.tile)
        if self.shard > LONGEST_SIDE or rest or ratio < 1 or ratio & (ratio - 1):
            raise InputError(
                f"shard={self.shard}: it must be tile={self.tile} times a power of two, such as "
                f"{self.tile}, {2 * self.tile} or {4 * self.tile}"
            )

    @classmethod
    def default(
        cls, shape: tuple[int, int], dtype: DTypeLike, tile: int = 1024, shard: int | None = None
    ) -> Layout:
        """Return a layout with shards of about 4096 cells a side, less for small grids."""
        if shard is None and isinstance(tile, Integral) and 1 <= tile <= MOST_CELLS_A_SIDE:
            most = min(SHARD_SIDE, math.isqrt(SHARD_BYTES // np.dtype(dtype).itemsize))
            shard = tile
            # Doubled, since a shard has a power of two of tiles a side, which Morton order needs.
            while shard < max(shape) and 2 * shard <= min(most, MOST_TILES_A_SIDE * tile):
                shard *= 2
        return cls(tile, tile if shard is None else shard)

    def windows(self, shape: tuple[int, int]) -> Iterable[Window]:
        """Yield the windows of a grid's shards, in row-major order, clipped at its edges."""
        for y in range(0, shape[0], self.shard):
            for x in range(0, shape[1], self.shard):
                yield Window(y, x, self.shard, self.shard).clip(shape)

    def count(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return the number of shards of a grid, in rows and columns."""
        return -(-shape[0] // self.shard), -(-shape[1] // self.shard)


@dataclass(frozen=True)
class Variable:
    """Specification of one raster of a store.

    Parameters
    ----------
    name : str
        Its name in the group.
    dtype : dtype
        Type of its cells.
    fill_value : number or None
        Nodata value (``_FillValue``), which cells have that were never written. None: there is no
        nodata value, and such cells are 0 (NaN for floats).
    attrs : mapping
        CF and other attributes, of types that JSON supports.
    by_bits : bool
        Whether to compress its cells with bit shuffle, see `_compressor`.
    """

    name: str
    dtype: np.dtype[Any]
    fill_value: int | float | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    by_bits: bool = False


def create_store(
    path: _Location,
    shape: tuple[int, int],
    layout: Layout,
    variables: Iterable[Variable],
    georeference: Georeference | None = None,
    attrs: Mapping[str, Any] | None = None,
    run: str | None = None,
) -> _Location:
    """Create an empty, unfinished store; `StoreSink` writes its cells and `publish` finishes it.

    Parameters
    ----------
    path : path or Storage
        A location at which nothing exists, usually `partial_path` of the final name.
    shape : (int, int)
        Rows and columns.
    layout : Layout
        Sides of tiles and shards.
    variables : iterable of Variable
        The rasters.
    georeference : Georeference, optional
        Their coordinates and CRS.
    attrs : mapping, optional
        Attributes of the group.
    run : str, optional
        Token of the run that writes the store, see `run_of`.

    Returns
    -------
    path or Storage
        ``path``.

    Raises
    ------
    StoreExistsError
        If something exists at ``path``.
    InputError
        For an empty grid, names that cannot be used, or fill values that do not fit.
    StorageFullError
        If there is no room.
    """
    begin_store(open_storage(path), shape, layout, variables, georeference, attrs, run)
    return path


def begin_store(
    storage: Storage,
    shape: tuple[int, int],
    layout: Layout,
    variables: Iterable[Variable],
    georeference: Georeference | None = None,
    attrs: Mapping[str, Any] | None = None,
    run: str | None = None,
) -> dict[str, ArrayMetadata]:
    """Create an empty store as `create_store`, and return the metadata of its rasters.

    They are those that a `StoreSink` need not read again: none where that takes no time.
    """
    import zarr
    from zarr.codecs import Crc32cCodec

    place = georeference or Georeference()
    variables = list(variables)
    if min(shape) < 1:
        raise InputError(f"{storage}: a grid of {shape[0]} x {shape[1]} cells; at least 1 x 1")
    place.check_shape(shape, str(storage))
    reserved = {place.y_name, place.x_name, GRID_MAPPING, "c", "zarr.json", ""}
    names = [variable.name for variable in variables]
    for name in names:
        if name in reserved or "/" in name or name.startswith((".", "__")) or names.count(name) > 1:
            raise InputError(f"variable name {name!r} is taken or no file name; rename it")
    if run is None or not storage.etags:  # a run has drawn a name of its own
        check_target(storage, overwrite=False)
    mapping = place.grid_mapping_attributes()
    mark: dict[str, Any] = {
        "format": FORMAT,
        "complete": False,
        "tile": layout.tile,
        "shard": layout.shard,
    }
    if run is not None:
        mark["run"] = run
    header = jsonable(attrs or {}) | {"Conventions": "CF-1.10", MARK: mark}
    if mapping:
        header["coordinates"] = GRID_MAPPING  # xarray then reads it as a coordinate
    with report_full_storage(str(storage)):
        begun: dict[str, Any] = {}  # each request to an object store takes time
        memory = zarr.storage.MemoryStore(begun)
        store: Any = memory if storage.etags else storage.zarr_store()
        group = zarr.create_group(store=store, zarr_format=3, attributes=header)
        for variable in variables:
            dtype = supported_dtype(variable.dtype, variable.name)
            fill = native_nodata(variable.fill_value, dtype, variable.name)
            extra = {} if fill is None else {"_FillValue": encode_fill_value(fill, dtype)}
            if mapping:
                extra["grid_mapping"] = GRID_MAPPING
            blank = (np.nan if dtype.kind == "f" else 0) if fill is None else fill
            group.create_array(
                variable.name,
                shape=shape,
                dtype=dtype,
                chunks=(layout.tile, layout.tile),
                shards=(layout.shard, layout.shard),
                compressors=[_compressor(dtype, by_bits=variable.by_bits), Crc32cCodec()],
                fill_value=blank,
                dimension_names=(place.y_name, place.x_name),
                attributes=jsonable(variable.attrs) | extra,
            )
        if mapping:
            # CF states a CRS by the attributes of a variable, whose one value means nothing.
            group.create_array(
                GRID_MAPPING, shape=(), dtype="int64", fill_value=0, attributes=jsonable(mapping)
            )[...] = 0
        _write_axes(store, place)
        if not storage.etags:
            described = member_documents(storage)
            # Rasters come first, in the order in which they were given, then the other arrays by
            # name.
            described = {name: described[name] for name in (*names, *described)}
            write_group_metadata(storage, read_document(storage, GROUP), described)
            return {}
        objects = {key: content.to_bytes() for key, content in begun.items()}
        described = {
            key.removesuffix("/zarr.json"): json.loads(content)
            for key, content in sorted(objects.items())
            if key.endswith("/zarr.json")
        }
        described = {name: described[name] for name in (*names, *described)}
        document = json.loads(objects.pop(GROUP))
        writes = [partial(storage.put, key, content) for key, content in objects.items()]
        at_once(storage, *writes, partial(write_group_metadata, storage, document, described))
    return {name: ArrayMetadata.parse(name, described[name]) for name in names}


def _compressor(dtype: np.dtype[Any], level: int = DENSE_LEVEL, *, by_bits: bool = False) -> Any:
    """Return the codec Blosc lz4, with byte shuffle, or bit shuffle for cells of one byte.

    Measured on tiles of 1024 x 1024, one core: ratio, MB/s of encoding, MB/s of decoding. Float
    terrain: lz4 with shuffle 2.8, 2800, 6900; zstd level 1 2.1, 1500, 3200; Blosc zstd 1 with
    shuffle 2.9, 700, 2000. int16 terrain, in the same order: 1.7, 1700, 3700; 1.3, 560, 1300; 1.8,
    720, 1700. Masks: lz4 with bit shuffle 2.0, 5900, 2800; zstd 1 2.4, 550, 2200. Kernels process
    10 to 100 Mcell/s, so the codec must not be the bottleneck of a run; zstd would save little more
    on disk. ``by_bits`` asks for bit shuffle: numbers of hops on a noisy mask, of which neighbours
    differ by little, are encoded twice as fast then and take half as many bytes; smooth ones and
    labels are better off with byte shuffle.
    """
    from zarr.codecs import BloscCodec

    return BloscCodec(
        typesize=dtype.itemsize,
        cname="lz4",
        clevel=level,
        shuffle="shuffle" if dtype.itemsize > 1 and not by_bits else "bitshuffle",
    )


def _write_axes(store: Any, place: Georeference) -> None:
    axes = ((place.y_name, place.y, place.y_attrs), (place.x_name, place.x, place.x_attrs))
    for name, values, attributes in axes:
        if values is not None:
            shape, attrs = values.shape, jsonable(attributes)
            create_dense(store, name, shape, values.dtype, shape, (name,), attrs)[...] = values


class ColumnsInTurns(NamedTuple):
    """A table whose columns are produced alternately, one piece at a time."""

    dimensions: Mapping[str, tuple[str, ...]]
    """Dimensions of each column, rows first."""
    pieces: Iterable[tuple[str, NDArray[Any], bool]]
    """Pieces of columns: the name of a column, some rows of it, and whether these are its last."""

    def gather(self) -> Columns:
        """Collect the pieces of each column in memory, and return the columns."""
        pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in self.dimensions}
        for name, piece, _ in self.pieces:
            pieces[name].append(piece)
        return {name: (dims, pieces[name]) for name, dims in self.dimensions.items()}


def add_table(
    path: Location,
    columns: Columns | ColumnsInTurns,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Add a table to an unfinished store, one array for each column, chunked along rows.

    Parameters
    ----------
    path : path or Storage
        The store.
    columns : mapping or ColumnsInTurns
        For each column its dimensions and its values, rows first, in one or more pieces. No column
        may have the name of a raster.
    attributes : mapping, optional
        Attributes of some columns.
    """
    if not columns:
        return
    if isinstance(columns, ColumnsInTurns):
        writer = TableWriter(path, columns.dimensions, attributes)
        for name, piece, is_last in columns.pieces:
            writer.append(name, piece)
            del piece  # free it before the next is created
            if is_last:
                writer.close(name)
        writer.finish()
        return
    writer = TableWriter(path, {name: dims for name, (dims, _) in columns.items()}, attributes)
    for name, (_, pieces) in columns.items():
        for values in pieces:
            writer.append(name, values)
            del values  # free it before the next is created
        writer.close(name)
    writer.finish()


class TableWriter:
    """Writer of a table to an unfinished store; columns may be written alternately.

    Of each column less than a chunk is kept in memory, until it is closed.

    Parameters
    ----------
    path : path or Storage
        The store.
    dimensions : mapping
        The dimensions of each column, rows first.
    attributes : mapping, optional
        Attributes of some columns.
    """

    def __init__(
        self,
        path: Location,
        dimensions: Mapping[str, tuple[str, ...]],
        attributes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._storage, self._dimensions = open_storage(path), dimensions
        self._attributes = attributes or {}
        self._kept: dict[str, list[NDArray[Any]]] = {name: [] for name in dimensions}
        # of the chunks that are written: of each its shape, and how many rows they all have
        self._chunk: dict[str, tuple[int, ...]] = {}
        self._rows = dict.fromkeys(dimensions, 0)
        self._documents: dict[np.dtype[Any], dict[str, Any]] = {}
        """Metadata that zarr-python writes about an array, by the array's dtype."""

    def append(self, name: str, piece: NDArray[Any]) -> None:
        """Append rows to a column; the caller must not change them afterwards."""
        kept, done = self._kept[name], 0
        # A full chunk is written only when more rows follow it, so that `close` always has a last
        # piece to write.
        while (missing := TABLE_ROWS - sum(map(len, kept))) < len(piece) - done:
            kept.append(piece[done : done + missing])
            self._write(name)
            done += missing
        kept.append(piece[done:].copy() if done else piece)  # the rest of a piece is not kept whole

    def close(self, name: str) -> None:
        """Write the last rows and the metadata of a column, and flush it to disk."""
        dtype, chunk = self._write(name), self._chunk[name]
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
        # The number of rows is known only now. `_begin` has stated those of the first chunk.
        document = {
            **self._documents[dtype],
            "shape": (self._rows[name], *chunk[1:]),
            "chunk_grid": grid,
            "dimension_names": self._dimensions[name],
            "attributes": self._attributes.get(name, {}),
        }
        with report_full_storage(str(self._storage)):
            self._storage.put(f"{name}/zarr.json", json.dumps(document).encode())
        self._storage.sync(*(key for key, _ in self._storage.objects(f"{name}/c")))

    def finish(self) -> None:
        """Record the closed columns as the store's table in its metadata."""
        list_table(self._storage, list(self._dimensions))

    def _write(self, name: str) -> np.dtype[Any]:
        """Write the buffered rows of a column as one chunk, and return their dtype."""
        kept = self._kept[name]
        values = np.ascontiguousarray(kept[0]) if len(kept) == 1 else np.concatenate(kept)
        kept.clear()
        if name not in self._chunk:
            self._begin(name, values)
        chunk, rows = self._chunk[name], len(values)
        if rows == 0:
            return values.dtype
        # All chunks of a Zarr array have the same shape: the last one is filled up with zeros.
        if rows < chunk[0]:
            values = np.concatenate([values, np.zeros((chunk[0] - rows, *chunk[1:]), values.dtype)])
        number = self._rows[name] // chunk[0]
        shuffle = SHUFFLE if values.itemsize > 1 else BITSHUFFLE
        key = "/".join((name, "c", str(number), *["0"] * (len(chunk) - 1)))
        with report_full_storage(str(self._storage)):
            self._storage.put(key, *with_checksum(compress(values, DENSE_LEVEL, shuffle)))
        self._rows[name] += rows
        return values.dtype

    def _begin(self, name: str, values: NDArray[Any]) -> None:
        """Create the array of a column from its first chunk."""
        # A column that is shorter than a chunk has one chunk of its own length.
        chunk = self._chunk[name] = max(len(values), 1), *values.shape[1:]
        if values.dtype in self._documents:  # zarr-python takes more than a millisecond for each
            self._storage.delete_all(name)  # what a run that was killed has left
            return
        create_dense(
            self._storage.zarr_store(), name, chunk, values.dtype, chunk, self._dimensions[name]
        )
        self._documents[values.dtype] = read_document(self._storage, f"{name}/zarr.json")


def create_dense(
    store: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunks: tuple[int, ...],
    dimensions: tuple[str, ...],
    attrs: Mapping[str, Any] | None = None,
    level: int = DENSE_LEVEL,
) -> Any:
    """Create a Zarr array in an unfinished store of zarr-python, chunked along rows; return it.

    The metadata of the group remain as they are, until `list_table` lists the array in them.
    """
    import zarr
    from zarr.codecs import Crc32cCodec

    return zarr.create_array(
        store,
        name=name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=[_compressor(dtype, level), Crc32cCodec()],
        fill_value=0,
        dimension_names=dimensions,
        attributes=dict(attrs or {}),
        zarr_format=3,
        overwrite=True,
        config={"write_empty_chunks": True},  # a missing file is damage
    )


def list_table(storage: Storage, names: list[str]) -> None:
    """Record the names of arrays as the table of an unfinished store."""
    document = read_document(storage, GROUP)
    document["attributes"][MARK]["table"] = names
    write_group_metadata(storage, document)


def encode_fill_value(value: float, dtype: np.dtype[Any]) -> int | str:
    """Encode a fill value for JSON as xarray does: base64 for floats, else an integer."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return int(value)


def update_attributes(path: Location, variable: str | None, mapping: Mapping[str, Any]) -> None:
    """Set attributes of a store or of one of its variables.

    Raises
    ------
    InputError
        If there is no such store or variable, or an attribute is reserved for the store.
    """
    storage = open_storage(path)
    try:
        group = read_document(storage, GROUP)
        document = group if variable is None else read_document(storage, f"{variable}/zarr.json")
    except FileNotFoundError:
        raise InputError(f"{storage}: no {variable or 'store'} there; is the path right?") from None
    kept = {MARK, "_FillValue", "grid_mapping", "coordinates"} & set(mapping)
    if kept:
        raise InputError(f"{storage}: the store itself keeps {sorted(kept)}; name them otherwise")
    document.setdefault("attributes", {}).update(jsonable(mapping))
    if variable is not None:
        storage.put(f"{variable}/zarr.json", json.dumps(document, indent=2).encode())
    write_group_metadata(storage, group)
