"""Metadata of stores, read as JSON, so that opening a store does not import Zarr."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.tiles.errors import InputError
from orograph.tiles.store.publish import (
    FORMAT,
    MARK,
    check_format,
    group_attributes,
    member_documents,
    partial_storage,
    shard_grid,
)
from orograph.tiles.store.storage import Location, Storage, open_storage

_NOT_THE_USERS = {"_FillValue", "grid_mapping", "coordinates"}


def store_variables(place: Location, unfinished: bool = False) -> list[str]:
    """Return the names of the rasters of a store.

    Raises
    ------
    InputError
        If there is no store, or it is unfinished.
    """
    storage = open_storage(place)
    attributes = group_attributes(storage)
    if attributes is None or MARK not in attributes:
        beside = partial_storage(storage)
        if not storage.exists() and beside.exists():
            raise InputError(
                f"{storage} does not exist, but {beside.name} does: it was never finished; "
                "resume the run that writes it, or start again"
            )
        raise InputError(f"{storage} is no store of orograph; make one with ingest")
    check_format(f"the store {storage}", attributes[MARK].get("format"), (FORMAT,), "make it again")
    if not (unfinished or attributes[MARK].get("complete")):
        raise InputError(
            f"{storage} is unfinished; resume the run that writes it, or delete it and start again"
        )
    table = set(attributes[MARK].get("table", []))
    return [
        name
        for name, document in member_documents(storage).items()
        if name not in table and shard_grid(document) is not None
    ]


@dataclass(frozen=True)
class Header:
    """Metadata of one raster of a store."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    tile: int
    shard: int
    nodata: int | float | None
    attrs: dict[str, Any]
    dimensions: tuple[str, str]
    absent: frozenset[tuple[int, int]] | None


def read_header(storage: Storage, variable: str, unfinished: bool) -> Header:
    """Return the metadata of one raster of a store."""
    document = json.loads(storage.get(f"{variable}/zarr.json"))
    mark = (group_attributes(storage) or {})[MARK]
    grid = shard_grid(document)
    assert grid is not None
    dtype = np.dtype(document["data_type"])
    attributes = document.get("attributes", {})
    names = document.get("dimension_names") or ("y", "x")
    absent = None
    if mark.get("complete") and not unfinished:
        listed = mark.get("absent_shards", {}).get(variable, [])
        absent = frozenset((i, j) for i, j in listed)
    return Header(
        grid[0],
        dtype,
        mark["tile"],
        grid[1][0],
        _decode_fill_value(attributes.get("_FillValue"), dtype),
        {key: value for key, value in attributes.items() if key not in _NOT_THE_USERS},
        (names[0], names[1]),
        absent,
    )


def _decode_fill_value(value: Any, dtype: np.dtype[Any]) -> int | float | None:
    if isinstance(value, str):
        return float(struct.unpack("<d", base64.standard_b64decode(value))[0])
    if value is None:
        return None
    return float(value) if dtype.kind == "f" else int(value)
