"""How a run is done, as against what it computes: the arguments that every operation has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from orograph.execution.clusters import LateClient, check_client, current_client
from orograph.kernels.backends import BACKENDS
from orograph.settings import check_settings
from orograph.tiles.arguments import check_choice, check_flag, check_integer
from orograph.tiles.errors import InputError
from orograph.tiles.extensions import GEOTIFF, STORE, check_extension
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.raster.raster import ArrayRaster, Raster
from orograph.tiles.store.create import Layout
from orograph.tiles.store.storage import Location, open_storage
from orograph.tiles.vector.raster import LayerRaster

if TYPE_CHECKING:
    from distributed import Client

SHARD_SIDE = 2048
MOST_TILES_A_SIDE = 16


@dataclass(frozen=True)
class RunOptions:
    """How a run is done; see `minimum_spanning_forest` for what each option means.

    Raises
    ------
    InputError
        If an option, or a setting that stands in for one, cannot be used.
    """

    tile: int | None = None
    out: Location | None = None
    overwrite: bool = False
    resume: bool = False
    client: Client | LateClient | None = None
    backend: str | None = None
    shard: int | None = None
    takeover: bool = False
    wait: bool = True
    compute: bool = True

    def __post_init__(self) -> None:
        check_settings()
        if self.tile is not None:
            Layout(self.tile, self.tile)
        if self.shard is not None:
            check_integer("shard", self.shard, 1, LONGEST_SIDE, "cells")
        if self.out is not None:
            # from its root: a change of the working directory does not move it
            object.__setattr__(self, "out", open_storage(self.out, "out"))
            written = "a Zarr store, or a GeoTIFF of a single raster"
            check_extension("out", self.out, written, (*STORE, *GEOTIFF))
        for name in ("overwrite", "resume", "takeover", "wait", "compute"):
            object.__setattr__(self, name, check_flag(name, getattr(self, name)))
        if self.backend is not None:
            check_choice("backend", self.backend, BACKENDS)
        check_client(self.client)
        if not (self.compute or self.wait):
            raise InputError(
                "wait: of no use with compute=False, which begins no run; leave it out"
            )
        if not self.compute and self.client is not None:
            raise InputError(
                "client: of no use with compute=False, where Dask chooses the workers; leave it out"
            )


class RunKeywords(TypedDict, total=False):
    """The options of an operation on rasters beside ``wait``, for overloads of its signature."""

    tile: int | None
    shard: int | None
    out: str | Path | None
    overwrite: bool
    resume: bool
    takeover: bool
    compute: bool
    backend: str | None
    client: Client | None


def stays_in_memory(rasters: tuple[Raster, ...], options: RunOptions) -> bool:
    """Return whether a run has no workspace on disk."""
    in_memory = all(isinstance(raster, ArrayRaster | LayerRaster) for raster in rasters)
    return options.out is None and options.client is None and in_memory


def where_to_work(rasters: tuple[Raster, ...], options: RunOptions) -> Client | LateClient | None:
    """Return the client of the cluster that does the work; None: threads of this process."""
    return None if stays_in_memory(rasters, options) else options.client or current_client()


def run_layout(shape: tuple[int, int], tile: int, shard: int | None = None) -> Layout:
    """Return the sides of tiles and of the shards that one task does, no larger than the grid.

    By default a shard has some 2048 cells a side, and 16 tiles at the most.
    """
    given = Layout(tile, tile if shard is None else shard)
    side = min(given.tile, max(shape))
    most = min(SHARD_SIDE, MOST_TILES_A_SIDE * side)
    if shard is not None:
        most = side * (given.shard // given.tile)
    own = side
    while own < min(most, max(shape)):
        own *= 2
    return Layout(side, own)


def shard_level(layout: Layout) -> int:
    """Return the level of the tree of tiles whose nodes are shards."""
    return (layout.shard // layout.tile).bit_length() - 1


def task_level(tree: Quadtree) -> int:
    """Return the level whose nodes one task does in memory: 2**18 to 2**20 cells each, about.

    Above it each node makes two tasks more, so that there are at most four a tile; along a grid one
    such node wide as many nodes lie above as in it, and up to 2 log2(nodes) tasks come on top.
    """
    level = 0
    while level < tree.root.level and tree.window(Node(level, 0)).size <= 2**18:
        level += 1
    return level
