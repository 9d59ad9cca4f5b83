"""Creation of stores: rasters of one shape in a Zarr v3 group, tiles as chunks in square shards."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.format.metadata import (
    FORMAT,
    GROUP,
    MARK,
    MOST_CELLS_A_SIDE,
    read_document,
    write_group_metadata,
)
from orograph.tiles.grid.georeference import GRID_MAPPING, Georeference
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.nodata import native_nodata, supported_dtype
from orograph.tiles.storage import Location, Storage, open_storage
from orograph.tiles.store.publish import check_target

SHARD_SIDE = 4096
# Bytes of a shard in memory, of which a writer briefly holds two: 4096 cells a side of 4 bytes, or
# 2048 of 8 bytes.
SHARD_BYTES = 2**26
TABLE_ROWS = 2**20
# A shard has at most 16 x 16 tiles, since every read of a tile reads the whole index of its shard.
MOST_TILES_A_SIDE = 16

_Location = TypeVar("_Location", bound=Location)


@dataclass(frozen=True)
class Layout:
    """Division of a grid: cells a side of a tile and of a shard.

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
        cls, shape: tuple[int, int], dtype: Any, tile: int = 1024, shard: int | None = None
    ) -> Layout:
        """Return a layout for a grid: shards of about 4096 cells a side, or of a smaller grid's."""
        if shard is None and isinstance(tile, Integral) and 1 <= tile <= MOST_CELLS_A_SIDE:
            most = min(SHARD_SIDE, math.isqrt(SHARD_BYTES // np.dtype(dtype).itemsize))
            shard = tile
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
    """

    name: str
    dtype: Any
    fill_value: int | float | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)


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
    import zarr
    from zarr.codecs import Crc32cCodec

    storage = open_storage(path)
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
    header = _jsonable(attrs or {}) | {"Conventions": "CF-1.10", MARK: mark}
    if mapping:
        header["coordinates"] = GRID_MAPPING  # xarray then reads it as a coordinate
    with report_full_storage(str(storage)):
        group = zarr.create_group(store=storage.zarr_store(), zarr_format=3, attributes=header)
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
                compressors=[_compressor(dtype), Crc32cCodec()],
                fill_value=blank,
                dimension_names=(place.y_name, place.x_name),
                attributes=_jsonable(variable.attrs) | extra,
            )
        if mapping:
            group.create_array(
                GRID_MAPPING, shape=(), dtype="int64", fill_value=0, attributes=_jsonable(mapping)
            )[...] = 0
        _write_axes(storage, place)
        write_group_metadata(storage, read_document(storage, GROUP))
    return path


def _compressor(dtype: np.dtype[Any], level: int = 5) -> Any:
    """Return the codec Blosc lz4, with byte shuffle, or bit shuffle for cells of one byte.

    Measured on tiles of 1024 x 1024, one core: ratio, MB/s of encoding, MB/s of decoding. Float
    terrain: lz4 with shuffle 2.8, 2800, 6900; zstd level 1 2.1, 1500, 3200; Blosc zstd 1 with
    shuffle 2.9, 700, 2000. int16 terrain, in the same order: 1.7, 1700, 3700; 1.3, 560, 1300; 1.8,
    720, 1700. Masks: lz4 with bit shuffle 2.0, 5900, 2800; zstd 1 2.4, 550, 2200. Kernels process
    10 to 100 Mcell/s, so the codec must not be the bottleneck of a run; zstd would save little more
    on disk.
    """
    from zarr.codecs import BloscCodec

    return BloscCodec(
        typesize=dtype.itemsize,
        cname="lz4",
        clevel=level,
        shuffle="shuffle" if dtype.itemsize > 1 else "bitshuffle",
    )


def _write_axes(storage: Storage, place: Georeference) -> None:
    axes = ((place.y_name, place.y, place.y_attrs), (place.x_name, place.x, place.x_attrs))
    for name, values, attributes in axes:
        if values is not None:
            shape, attrs = values.shape, _jsonable(attributes)
            create_dense(storage, name, shape, values.dtype, shape, (name,), attrs)[...] = values


def add_table(
    path: Location,
    columns: Mapping[str, tuple[tuple[str, ...], Iterable[NDArray[Any]]]],
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Add a table to an unfinished store: one array per column, rows in chunks.

    Parameters
    ----------
    path : path or Storage
        The store.
    columns : mapping
        For each column its dimensions and its values, rows first, in one or more pieces. No column
        may have the name of a raster.
    attributes : mapping, optional
        Attributes of some columns.
    """
    if not columns:
        return
    storage = open_storage(path)
    with report_full_storage(str(storage)):
        for name, (dimensions, pieces) in columns.items():
            array: Any = None
            for values in _whole_chunks(pieces):
                if array is None:
                    chunks = max(values.shape[0], 1), *values.shape[1:]
                    attrs = (attributes or {}).get(name)
                    array = create_dense(
                        storage, name, values.shape, values.dtype, chunks, dimensions, attrs
                    )
                    array[...] = values
                else:
                    array.append(values)
            storage.sync(*(key for key, _ in storage.objects(f"{name}/c")))
    list_table(storage, list(columns))


def create_dense(
    storage: Storage,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunks: tuple[int, ...],
    dimensions: tuple[str, ...],
    attrs: Mapping[str, Any] | None = None,
    level: int = 5,
) -> Any:
    """Return a new array of an unfinished store, for `orograph.tiles.format.dense`.

    The metadata of the group remain as they are, until `list_table` lists the array in them.
    """
    import zarr
    from zarr.codecs import Crc32cCodec

    return zarr.create_array(
        storage.zarr_store(),
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
    """List arrays as the table of an unfinished store."""
    document = read_document(storage, GROUP)
    document["attributes"][MARK]["table"] = names
    write_group_metadata(storage, document)


def _whole_chunks(pieces: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the same rows in pieces of one chunk each; the last may be smaller."""
    kept: list[NDArray[Any]] = []
    for piece in pieces:
        done = 0
        while (missing := TABLE_ROWS - sum(map(len, kept))) < len(piece) - done:
            yield np.concatenate([*kept, piece[done : done + missing]])
            kept, done = [], done + missing
        kept.append(piece[done:].copy())
        del piece  # free it before the next is created
    yield np.concatenate(kept)


def encode_fill_value(value: float, dtype: np.dtype[Any]) -> int | str:
    """Return a fill value as xarray encodes it in JSON of Zarr v3: exact, also if not finite."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return int(value)


def update_attributes(path: Location, variable: str | None, mapping: Mapping[str, Any]) -> None:
    """Set attributes of a store, or of one variable of it.

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
    document.setdefault("attributes", {}).update(_jsonable(mapping))
    if variable is not None:
        storage.put(f"{variable}/zarr.json", json.dumps(document, indent=2).encode())
    write_group_metadata(storage, group)


def _jsonable(value: Any) -> Any:
    """Return ``value`` in types that JSON supports."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        return _jsonable(value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
