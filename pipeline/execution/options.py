"""Options of a run, which every operation has, as against those of the operation itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from orograph.execution.clusters import LateClient, check_client, current_client
from orograph.kernels.backends import BACKENDS
from orograph.settings import check_settings
from orograph.tiles.arguments import check_choice, check_flag, check_integer
from orograph.tiles.extensions import GEOTIFF, STORE, check_extension
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.raster import ArrayRaster, Raster
from orograph.tiles.storage import Location, open_storage
from orograph.tiles.store.create import Layout

if TYPE_CHECKING:
    from distributed import Client

SHARD_SIDE = 2048
MOST_TILES_A_SIDE = 16


class WorkOptions(TypedDict, total=False):
    """The options of a run whose result is not stored: what does the work."""

    backend: str | None
    client: Client | None


class SearchOptions(WorkOptions, total=False):
    """The options of a run on a raster whose result is not stored."""

    tile: int | None
    shard: int | None


class BuildOptions(WorkOptions, total=False):
    """The options of a run that always writes a store."""

    overwrite: bool
    resume: bool
    takeover: bool


class GraphOptions(BuildOptions, total=False):
    """The options of a run on a graph."""

    out: str | Path | None


class RunOptions(GraphOptions, total=False):
    """The options of a run on a raster.

    tile : int, optional
        Cells a side of a tile; by default as the input is stored, else ``config["tile"]``. The
        result does not depend on it.
    shard : int, optional
        Cells a side of a shard, which one task reads and one task writes: ``tile`` times a power of
        two; about 2048 by default. The result does not depend on it.
    out : path, optional
        Zarr store to write, or a GeoTIFF if it ends in ``.tif``. Without it the result is in
        memory.
    overwrite : bool
        Replace ``out`` if it exists.
    resume : bool
        Continue a run that was killed or cancelled, from what it left in ``out.partial``.
    takeover : bool
        Take the place of another writer that is at work on ``out``; that one ends with an error.
        A writer that was killed does not need it.
    backend : {"auto", "numba", "cuda"}, optional
        What computes; by default ``config["backend"]``.
    client : distributed.Client, optional
        The Dask client whose cluster does the work; by default the one that is active in the
        session if the input or ``out`` is on disk, else threads of this process.
    """

    tile: int | None
    shard: int | None


OPTION_HELP = {
    entry.split(" ", 1)[0]: entry.rstrip() + "\n"
    for entry in re.findall(r"^\w+ : .*\n(?:    .*\n?)+", cleandoc(RunOptions.__doc__ or ""), re.M)
}
"""The entry of each option in a docstring."""


@dataclass(frozen=True)
class RunSpec:
    """The checked options of a run; `RunOptions` says what each of them means.

    Raises
    ------
    InputError
        If an option, or a setting that stands in for one, cannot be used.
    """

    tile: int | None = None
    shard: int | None = None
    out: Location | None = None
    overwrite: bool = False
    resume: bool = False
    takeover: bool = False
    backend: str | None = None
    client: Client | LateClient | None = None

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
        for name in ("overwrite", "resume", "takeover"):
            object.__setattr__(self, name, check_flag(name, getattr(self, name)))
        if self.backend is not None:
            check_choice("backend", self.backend, BACKENDS)
        check_client(self.client)


def stays_in_memory(rasters: tuple[Raster, ...], spec: RunSpec) -> bool:
    """Return whether a run has no workspace on disk."""
    in_memory = all(isinstance(raster, ArrayRaster | LayerRaster) for raster in rasters)
    return spec.out is None and spec.client is None and in_memory


def where_to_work(rasters: tuple[Raster, ...], spec: RunSpec) -> Client | LateClient | None:
    """Return the client of the cluster that does the work; None: threads of this process."""
    return None if stays_in_memory(rasters, spec) else spec.client or current_client()


def run_layout(shape: tuple[int, int], tile: int, shard: int | None = None) -> Layout:
    """Return the sides of tiles and of the shards that one task does, no larger than the grid.

    By default a shard has about 2048 cells a side, and 16 tiles at the most.
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
