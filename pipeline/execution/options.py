"""Run options that all operations share, such as ``out``, ``tile`` and ``client``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from orograph.execution.clusters import LateClient, check_client, current_client
from orograph.execution.settings import check_settings
from orograph.kernels.backends import BACKENDS
from orograph.tiles.arguments import check_choice, check_flag, check_integer, refuse_arguments
from orograph.tiles.errors import InputError
from orograph.tiles.extensions import LAYERS, RESULTS, check_extension
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.object_options import use_storage_options
from orograph.tiles.raster.from_zarr import is_icechunk
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.raster import ArrayRaster, Raster
from orograph.tiles.storage import Location, Storage, open_storage
from orograph.tiles.store.create import Layout

if TYPE_CHECKING:
    from distributed import Client
    from icechunk import Repository

SHARD_SIDE = 2048
MOST_TILES_A_SIDE = 16
USUAL_TILE = 1024
# what client and scheduler hold of each shard until a run ends, see benchmarks/coordination.py
BYTES_A_SHARD = 2000


class WorkOptions(TypedDict, total=False):
    """Options of runs that store nothing: the backend and the client."""

    backend: str | None
    client: Client | None
    storage_options: Mapping[str, str | bool] | None


class SearchOptions(WorkOptions, total=False):
    """Options of runs on a raster that store nothing."""

    tile: int | None
    shard: int | None


class LayerOptions(SearchOptions, total=False):
    """Options of runs on a raster whose result is a vector layer.

    out : path, optional
        Vector file to write as well, in the format of its extension: ``.gpkg``, ``.geojson``,
        ``.fgb``, ``.parquet``, ``.shp`` or ``.csv``.
    """

    out: str | Path | None
    overwrite: bool
    takeover: bool


class BuildOptions(WorkOptions, total=False):
    """Options of runs that always write a store."""

    overwrite: bool
    resume: bool
    takeover: bool
    detach: bool | str


class GraphOptions(BuildOptions, total=False):
    """Options of runs on a graph."""

    out: str | Path | Repository | None


class RunOptions(GraphOptions, total=False):
    """The options of a run on a raster.

    tile : int, optional
        Cells a side of a tile; by default as the input is stored, else ``config["tile"]``. The
        result does not depend on it.
    shard : int, optional
        Cells a side of a shard, which one task writes whole: ``tile`` times a power of two; about
        2048 by default. The result does not depend on it.
    out : path or icechunk.Repository, optional
        Zarr store to write, or a file that its extension names: ``.tif`` (one raster) or ``.nc``;
        of tables of points ``.gpkg``, ``.geojson``, ``.fgb``, ``.parquet`` or ``.csv``; or a
        repository, whose branch main is moved once, to the whole result. Without it the result is
        in memory.
    overwrite : bool
        Replace ``out`` if it exists.
    resume : bool
        Continue a run that was killed or cancelled, from what it left in ``out.partial``.
    takeover : bool
        Take the place of another writer that is at work on ``out``; that one ends with an error.
        A writer that was killed does not need it.
    detach : bool or str
        Of ``.submit`` with ``out``: a task of the cluster drives the run, which goes on without
        this session; `attach` finds it. A name: on a worker with a Dask resource of that name.
    backend : {"auto", "numba", "cuda"}, optional
        What computes; by default ``config["backend"]``.
    client : distributed.Client, optional
        The Dask client whose cluster does the work; by default the one that is active in the
        session if the input or ``out`` is on disk, else threads of this process.
    storage_options : dict, optional
        Region, endpoint, credentials and the like of addresses in object stores, by obstore's
        names; by default the environment's. They are written nowhere.
    """

    tile: int | None
    shard: int | None


def option_help(options: type) -> dict[str, str]:
    """Return the entry of each option in a docstring, as these options describe it.

    What they do not describe is as in `RunOptions`.
    """
    return {
        entry.split(" ", 1)[0]: entry.rstrip() + "\n"
        for described in (RunOptions, options)
        for entry in re.findall(
            r"^\w+ : .*\n(?:    .*\n?)+", cleandoc(described.__doc__ or ""), re.M
        )
    }


@dataclass(frozen=True)
class RunSpec:
    """The checked options of a run; see `RunOptions` for their meaning.

    Raises
    ------
    InputError
        If an option, or a setting that stands in for one, cannot be used.
    """

    tile: int | None = None
    shard: int | None = None
    out: Location | Repository | None = None
    overwrite: bool = False
    resume: bool = False
    takeover: bool = False
    detach: bool | str = False
    backend: str | None = None
    client: Client | LateClient | None = None
    storage_options: Mapping[str, str | bool] | None = field(default=None, repr=False)
    """Kept by the storages that are opened with them; here None after the checks."""

    def __post_init__(self) -> None:
        check_settings()
        if self.tile is not None:
            Layout(self.tile, self.tile)
        if self.shard is not None:
            check_integer("shard", self.shard, 1, LONGEST_SIDE, "cells")
        if self.out is not None and not is_icechunk(self.out, "Repository"):
            if is_icechunk(self.out, "Session"):
                raise InputError(
                    "out: a session of Icechunk; pass its repository, whose branch main is moved "
                    "once, when the result is whole"
                )
            # from its root: a change of the working directory does not move it
            with use_storage_options(self.storage_options):
                storage = open_storage(self.out, "out")  # type: ignore[arg-type]
            object.__setattr__(self, "out", storage)
            written = "a Zarr store, or a GeoTIFF, NetCDF, vector or CSV file"
            check_extension("out", storage, written, (*RESULTS, *LAYERS))
        object.__setattr__(self, "storage_options", None)
        for name in ("overwrite", "resume", "takeover"):
            object.__setattr__(self, name, check_flag(name, getattr(self, name)))
        if not (isinstance(self.detach, str) and self.detach):
            object.__setattr__(self, "detach", check_flag("detach", self.detach))
        if self.backend is not None:
            check_choice("backend", self.backend, BACKENDS)
        check_client(self.client)

    @property
    def storage(self) -> Storage | None:
        """The storage of the result, if that is a store or a file."""
        found: Any = self.out
        return None if is_icechunk(found) else found

    def refuse_of_rasters(
        self,
        nodata: float | int | None,
        band: int | None,
        variable: str | None,
        **given: bool,
    ) -> None:
        """Raise InputError if an argument is given that does not apply to a graph.

        ``given`` says for each of an operation's own arguments whether it is.
        """
        optional = {
            "nodata": nodata,
            "band": band,
            "variable": variable,
            "tile": self.tile,
            "shard": self.shard,
        }
        of_rasters = {name: value is not None for name, value in optional.items()}
        refuse_arguments("a graph", **of_rasters, **given)


def stays_in_memory(rasters: tuple[Raster, ...], spec: RunSpec) -> bool:
    """Return whether a run works in memory, without a workspace on disk."""
    in_memory = all(isinstance(raster, ArrayRaster | LayerRaster) for raster in rasters)
    return spec.out is None and spec.client is None and in_memory


def where_to_work(rasters: tuple[Raster, ...], spec: RunSpec) -> Client | LateClient | None:
    """Return the client whose cluster does the work; None: threads of this process."""
    return None if stays_in_memory(rasters, spec) else spec.client or current_client()


def run_layout(shape: tuple[int, int], tile: int, shard: int | None = None) -> Layout:
    """Return the tile and shard sides of a run on a grid, no larger than the grid.

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


def too_many_shards(shape: tuple[int, int], shard: int, memory: int) -> str:
    """Return a warning if a run has too many shards for the client's memory, else "".

    Parameters
    ----------
    shape, shard
        The grid, and the cells a side of a shard.
    memory
        Bytes of their machine; half of them are taken to be free.

    Examples
    --------
    >>> too_many_shards((10**6, 10**6), 2048, 2**34)
    ''
    >>> too_many_shards((10**6, 10**6), 128, 2**34)[:47]
    'shard: 61042969 shards of 128 cells a side take'
    """

    def count(side: int) -> int:
        return -(-shape[0] // side) * -(-shape[1] // side)

    most = memory // 2 // BYTES_A_SHARD
    if count(shard) <= most:
        return ""
    larger = max(shard, SHARD_SIDE)
    while count(larger) > most:
        larger *= 2
    return (
        f"shard: {count(shard)} shards of {shard} cells a side take client and scheduler about "
        f"{count(shard) * BYTES_A_SHARD / 2**30:.1f} GiB, more than half of the "
        f"{memory / 2**30:.1f} GiB of this machine; pass tile={USUAL_TILE}, shard={larger}, which "
        f"are {count(larger)} shards"
    )


def shard_level(layout: Layout) -> int:
    """Return the quadtree level whose nodes are shards."""
    return (layout.shard // layout.tile).bit_length() - 1


def task_level(tree: Quadtree) -> int:
    """Return the quadtree level whose nodes are one task each, in a run in memory.

    Above it each node makes two tasks more, so that there are at most four a tile; along a grid one
    such node wide as many nodes lie above as in it, and up to 2 log2(nodes) tasks come on top.
    """
    level = 0
    while level < tree.root.level and tree.window(Node(level, 0)).size <= 2**18:
        level += 1
    return level
