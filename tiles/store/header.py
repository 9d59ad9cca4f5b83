"""What the metadata of a store says, read as JSON: opening a store needs no Zarr."""

from __future__ import annotations

import base64
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orograph.tiles.errors import InputError
from orograph.tiles.store.publish import MARK, group_attributes, partial_path, shard_grid

_NOT_THE_USERS = {"_FillValue", "grid_mapping", "coordinates"}


def store_variables(path: str | os.PathLike[str], unfinished: bool = False) -> list[str]:
    """Names of the rasters of a store.

    Raises
    ------
    InputError
        If there is no store, or it is unfinished.
    """
    path = Path(path)
    attributes = group_attributes(path)
    if attributes is None or MARK not in attributes:
        beside = partial_path(path)
        if not path.exists() and beside.exists():
            raise InputError(
                f"{path} does not exist, but {beside.name} does: it was never finished; "
                "resume the run that writes it, or start again"
            )
        raise InputError(f"{path} is no store of orograph; make one with ingest")
    if not (unfinished or attributes[MARK].get("complete")):
        raise InputError(
            f"{path} is unfinished; resume the run that writes it, or delete it and start again"
        )
    table = set(attributes[MARK].get("table", []))
    names = [
        entry.parent.name
        for entry in path.glob("*/zarr.json")
        if entry.parent.name not in table and shard_grid(json.loads(entry.read_bytes())) is not None
    ]
    return sorted(names)


@dataclass(frozen=True)
class Header:
    """What is known of a raster from its metadata alone."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    tile: int
    shard: int
    nodata: int | float | None
    attrs: dict[str, Any]
    dimensions: tuple[str, str]
    absent: frozenset[tuple[int, int]] | None


def read_header(path: str, variable: str, unfinished: bool) -> Header:
    """What the metadata says of one raster of a store."""
    document = json.loads(Path(path, variable, "zarr.json").read_bytes())
    mark = (group_attributes(path) or {})[MARK]
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
