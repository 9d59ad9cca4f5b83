"""Masks computed from rasters: of passable cells, and of cells valid in several rasters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.format.frames import CellTarget
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, StoreRaster


@dataclass(frozen=True, eq=False)
class MaskRaster:
    """Mask of a raster: 1 for passable cells, 0 (its nodata) for cells that are 0 or nodata."""

    raster: Raster

    dtype = np.dtype(np.uint8)
    nodata = 0
    bytes_per_cell = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.raster.shape

    @property
    def georeference(self) -> Georeference:
        """Coordinates and CRS."""
        return self.raster.georeference

    @property
    def name(self) -> str | None:
        """Name of the variable, if it has one."""
        return self.raster.name

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes that describe the values."""
        return self.raster.attrs

    @property
    def tile(self) -> int | None:
        """Cells a side of a stored tile; None if not stored in tiles."""
        return self.raster.tile

    @property
    def shard(self) -> int | None:
        """Cells a side of a stored shard; None if not stored in shards."""
        return self.raster.shard

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the mask of ``window``, uint8."""
        cells = self.raster.read(window)
        passable: npt.NDArray[np.bool_] = (cells != 0) & valid_cells(cells, self.raster.nodata)
        return passable.astype(np.uint8)

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        return f"passable-{self.raster.fingerprint()}"


@dataclass(frozen=True, eq=False)
class ValidRaster(MaskRaster):
    """Mask of several rasters on one grid: 1 where all are valid and no barrier is, else 0."""

    others: tuple[Raster, ...]
    barriers: Raster | None = None
    """Raster of barriers: its cells that are not 0 or nodata are barriers."""

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the mask of ``window``, uint8."""
        rasters = self.raster, *self.others
        valid = [valid_cells(raster.read(window), raster.nodata) for raster in rasters]
        mask: npt.NDArray[np.uint8] = np.logical_and.reduce(valid).astype(np.uint8)
        if self.barriers is not None:
            mask[MaskRaster(self.barriers).read(window) != 0] = 0
        return mask

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        rasters = [self.raster, *self.others, *([self.barriers] if self.barriers else [])]
        return "-".join(["valid", *(raster.fingerprint() for raster in rasters)])


def decode(raster: Raster, window: Window, target: CellTarget) -> bool:
    """Read the cells of a window to a device, which decodes them; return whether it was done.

    Only stored rasters, and masks of one, are decoded there; see `StoreRaster.decode`.
    """
    if isinstance(raster, StoreRaster):
        return raster.decode(window, target)
    # Not of subclasses, which compute other values than a mask, or of several rasters.
    if type(raster) is MaskRaster:
        return decode(raster.raster, window, target.passable(raster.raster.nodata))
    return False


def stores_of(raster: Raster) -> Iterator[StoreRaster]:
    """Yield the stored rasters that a raster, or one computed from others, reads."""
    return (part for part in sources_of(raster) if isinstance(part, StoreRaster))


def sources_of(raster: Raster) -> Iterator[Raster]:
    """Yield the rasters that a raster computed from others reads, or the raster itself."""
    if not isinstance(raster, MaskRaster):
        yield raster
        return
    others = (*raster.others, raster.barriers) if isinstance(raster, ValidRaster) else ()
    for part in (raster.raster, *others):
        if part is not None:
            yield from sources_of(part)


def replace_sources(raster: Raster, known: Mapping[Raster, Raster]) -> Raster:
    """Return a raster in which those that it reads are replaced by what stands for them."""
    if not isinstance(raster, MaskRaster):
        return known.get(raster, raster)
    changes: dict[str, Any] = {"raster": replace_sources(raster.raster, known)}
    if isinstance(raster, ValidRaster):
        changes["others"] = tuple(replace_sources(other, known) for other in raster.others)
        if raster.barriers is not None:
            changes["barriers"] = replace_sources(raster.barriers, known)
    return replace(raster, **changes)
