"""Cells in a device's memory as stores read and write them: frames are decoded and encoded there.

The CPU decodes damaged frames and those of other codecs, and encodes tiles of sides that the
kernels cannot cut into streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.blosc.cuda import Passable, decode_tiles, encode_tiles, stream_size
from orograph.kernels.device import Buffer, Device
from orograph.tiles.format.codec import decompress
from orograph.tiles.format.frames import StoredTile, TilesRead
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells


@dataclass(frozen=True)
class Target:
    """Cells of a device, to which the tiles of a window are decoded: a `CellTarget`."""

    device: Device
    cells: Buffer
    """(h, w), contiguous: a raster or, where ``mask``, one of which it is the mask."""
    row: int = 0
    """Row of the cells at which the window begins."""
    column: int = 0
    mask: bool = False
    nodata: float | None = None
    """Nodata value of the raster that is decoded to a mask."""

    def passable(self, nodata: float | None) -> Target:
        """Return the same cells as a mask."""
        return replace(self, mask=True, nodata=nodata)

    def decode(self, reads: Sequence[TilesRead], side: int, dtype: np.dtype[Any]) -> None:
        """Decode tiles; raise ValueError if one is damaged."""
        dtype = dtype.newbyteorder("=")
        placed = [(content, [self._placed(tile) for tile in tiles]) for content, tiles in reads]
        passable = Passable.of(dtype, self.nodata) if self.mask else None
        # Frames that the kernels cannot decode are left to the CPU's codec, which also reports
        # damage.
        for frame, tile in decode_tiles(self.device, placed, side, self.cells, dtype, passable):
            whole = np.empty((side, side), dtype)
            decompress(frame, whole)
            self._put(tile.row, tile.column, whole[tile.part.slices])

    def fill(self, part: tuple[slice, slice], value: np.generic) -> None:
        """Set rows and columns to a value."""
        rows, columns = part
        shape = rows.stop - rows.start, columns.stop - columns.start
        place = rows.start + self.row, columns.start + self.column
        self._put(*place, np.full(shape, value, value.dtype.newbyteorder("=")))

    def _placed(self, tile: StoredTile) -> StoredTile:
        return tile._replace(row=tile.row + self.row, column=tile.column + self.column)

    def _put(self, row: int, column: int, cells: npt.NDArray[Any]) -> None:
        if self.mask:
            cells = ((cells != 0) & valid_cells(cells, self.nodata)).astype(np.uint8)
        height, width = cells.shape
        self.device.upload_into(self.cells[row : row + height, column : column + width], cells)


@dataclass(frozen=True)
class Source:
    """Cells of a device that are written to a raster: a `DeviceCells`."""

    device: Device
    cells: Buffer
    """(h, w); the device encodes contiguous ones."""
    window: Window
    """The part of them that is meant."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.window.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells."""
        dtype: np.dtype[Any] = self.cells.dtype
        return dtype

    def to_host(self) -> npt.NDArray[Any]:
        """Return the cells in this process's memory."""
        return self.device.download(self.cells[self.window.slices])

    def encode(
        self, tiles: Sequence[Window], side: int, fill: np.generic, shuffle: int
    ) -> list[npt.NDArray[np.uint8]] | None:
        """Return windows of the cells as frames; None if the kernels cannot encode such tiles."""
        if stream_size(side, self.dtype.itemsize) is None or not self.cells.flags.c_contiguous:
            return None
        # Positions of tiles are relative to the window; kernels take positions relative to the
        # cells.
        own = self.window
        placed = [Window(own.y + t.y, own.x + t.x, t.height, t.width) for t in tiles]
        return encode_tiles(self.device, self.cells, placed, side, fill, shuffle)
