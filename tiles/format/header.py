"""The part of a store's metadata that describes one raster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.tiles.format.metadata import ArrayMetadata, StoreMetadata
from orograph.tiles.grid.georeference import GRID_MAPPING
from orograph.tiles.nodata import decode_fill_value

_NOT_THE_USERS = {"_FillValue", "grid_mapping", "coordinates"}


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
    axes: tuple[ArrayMetadata | None, ArrayMetadata | None]
    """Metadata of the coordinates of rows and of columns; None where there are none."""
    grid_mapping: dict[str, Any]
    """Attributes of the grid mapping variable."""
    absent: frozenset[tuple[int, int]] | None
    """Places of shards that were not written; None: the store is unfinished, any may be missing."""


def header_of(store: StoreMetadata, variable: str, unfinished: bool) -> Header:
    """Return the header of one raster of a store."""
    member = store.members[variable]
    y, x = member.dimensions
    mapping = store.members.get(GRID_MAPPING)
    return Header(
        (member.shape[0], member.shape[1]),
        member.dtype,
        store.tile,
        store.shard,
        decode_fill_value(member.attributes.get("_FillValue"), member.dtype),
        {key: value for key, value in member.attributes.items() if key not in _NOT_THE_USERS},
        (y, x),
        (store.members.get(y), store.members.get(x)),
        mapping.attributes if mapping else {},
        None if unfinished else store.absent.get(variable, frozenset()),
    )
