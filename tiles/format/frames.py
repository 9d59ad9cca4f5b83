"""Cells in the memory of a device, which decodes and encodes the frames of tiles by itself.

Stores read and write tiles of arrays in this process's memory. Where a device has the kernels for
that, frames go to it and come from it as they are stored. What the two tell each other is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.grid.window import Window


class StoredTile(NamedTuple):
    """A tile of a shard, or a part of it, and where its cells go."""

    begin: int
    """Position of the tile's frame in the bytes that were read; ``end`` is where it ends."""
    end: int
    part: Window
    """Cells of the tile that are to be read."""
    row: int
    """Row of the target to which the first of the tile's cells goes."""
    column: int


TilesRead = tuple[NDArray[np.uint8], Sequence[StoredTile]]
"""Bytes that were read together, and the tiles in them."""


class CellTarget(Protocol):
    """Cells of a device, to which the tiles of a window of a raster are decoded."""

    def decode(self, reads: Sequence[TilesRead], side: int, dtype: np.dtype[Any]) -> None:
        """Decode tiles of ``side`` cells a side.

        Raises
        ------
        ValueError
            If a frame is damaged.
        """

    def fill(self, part: tuple[slice, slice], value: np.generic) -> None:
        """Set rows and columns to a value."""

    def passable(self, nodata: float | None) -> CellTarget:
        """Return a target that takes cells for a mask.

        It sets cells to 1, or to 0 where those that are decoded are 0, nodata or not finite.
        """


@runtime_checkable
class DeviceCells(Protocol):
    """Cells of a device that can be written to a raster."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells."""

    def to_host(self) -> NDArray[Any]:
        """Return the cells in this process's memory."""

    def encode(
        self, tiles: Sequence[Window], side: int, fill: np.generic, shuffle: int
    ) -> list[NDArray[np.uint8]] | None:
        """Return windows of the cells as frames of tiles of ``side`` cells a side.

        Cells that a window has not are ``fill``. None: the device has no kernel for such tiles.
        """


def on_host(cells: NDArray[Any] | DeviceCells) -> NDArray[Any]:
    """Return cells as an array in this process's memory."""
    return cells.to_host() if isinstance(cells, DeviceCells) else cells
