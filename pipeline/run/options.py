"""Run options that all operations share, such as ``out``, ``tile`` and ``client``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from orograph.arguments.keywords import Choice, RasterChoice
from orograph.arguments.settings import check_settings
from orograph.kernels.backends import BACKENDS
from orograph.run.cluster.clusters import LateClient, check_client, current_client, pause_share
from orograph.tiles.arguments import (
    check_choice,
    check_flag,
    check_integer,
    refuse_arguments,
    shown,
)
from orograph.tiles.errors import InputError
from orograph.tiles.extensions import LAYERS, RESULTS, check_extension
from orograph.tiles.grid.crs import CRSLike, parse_crs
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.object_options import use_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.from_zarr import is_icechunk
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.places import PlaceRaster
from orograph.tiles.raster.raster import CHOICE, ArrayRaster, Raster
from orograph.tiles.storage import Location, Storage
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


class SearchOptions(RasterChoice, WorkOptions, total=False):
    """Options of runs on a raster that store nothing."""

    tile: int | None
    shard: int | None


class LayerOptions(SearchOptions, total=False):
    """Options of runs on a raster whose result is a vector layer.

    out : path, optional
        Vector file to write in addition, in the format of its extension: ``.gpkg``, ``.geojson``,
        ``.fgb``, ``.parquet``, ``.shp`` or ``.csv``.
    crs : CRS, optional
        CRS in which to write ``out``, such as ``"EPSG:4326"``; by default that of the raster.
        GeoJSON is always in longitude and latitude.
    """

    out: str | Path | None
    crs: CRSLike | str | None
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


class RunOptions(RasterChoice, GraphOptions, total=False):
    """The options of a run on a raster.

    tile : int, optional
        Side of a tile in cells; by default that of the stored input, else ``config["tile"]``. The
        result does not depend on it.
    shard : int, optional
        Side of a shard in cells, ``tile`` times a power of two; about 2048 by default. One task
        writes a whole shard. The result does not depend on it.
    out : path or icechunk.Repository, optional
        Where to write the result. Either a Zarr store, or a file in the format of its extension:
        ``.tif`` (one raster) or ``.nc``; for tables of points ``.gpkg``, ``.geojson``, ``.fgb``,
        ``.parquet`` or ``.csv``. Or an Icechunk repository, whose branch main is moved once, to the
        complete result. Without it the result is in memory.
    overwrite : bool
        Replace ``out`` if it exists.
    resume : bool
        Continue a run that was killed or cancelled from the state saved in ``out.partial``.
    takeover : bool
        Take over from another writer that is working on ``out``; that writer ends with an error.
        Not needed for a writer that was killed.
    detach : bool or str
        Let a task of the cluster drive the run, so that it continues without this session; `attach`
        finds it. Needs ``.submit`` and ``out``. A string is the name of a Dask resource: the driver
        then runs on a worker that has it.
    backend : {"auto", "numba", "cuda"}, optional
        Backend for the computation; by default ``config["backend"]``.
    client : distributed.Client, optional
        Dask client whose cluster does the work. By default the active client of the session if the
        input or ``out`` is on disk, else threads of this process.
    storage_options : dict, optional
        Region, endpoint, credentials and similar options for addresses in object stores, with
        obstore's names; by default those of the environment. They are never stored.
    """

    tile: int | None
    shard: int | None


class TableOptions(RunOptions, total=False):
    """Options of runs on a raster whose result is a table of points or lines.

    crs : CRS, optional
        CRS in which to write a vector file ``out``, such as ``"EPSG:4326"``; by default that of the
        raster. GeoJSON is always in longitude and latitude.
    """

    crs: CRSLike | str | None


@dataclass(frozen=True)
class RunSpec(Choice):
    """The checked options of a run; see `RunOptions` for their meaning.

    Raises
    ------
    InputError
        If an option, or the setting used as its default, cannot be used.
    """

    heading = "Other Parameters"
    documented = RunOptions

    tile: int | None = None
    shard: int | None = None
    out: Location | Repository | None = None
    crs: CRSLike | str | None = None
    overwrite: bool = False
    resume: bool = False
    takeover: bool = False
    detach: bool | str = False
    backend: str | None = None
    client: Client | LateClient | None = None
    storage_options: Mapping[str, str | bool] | None = field(default=None, repr=False)
    """Options of object stores; None after the checks: the opened storages keep them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings()
        if self.tile is not None:
            # Raises if no tile can have this side.
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
        if self.crs is not None:
            parse_crs(self.crs, "crs")
            if Path(str(self.out)).suffix.lower() not in LAYERS:
                raise InputError(
                    f"crs: {shown(self.crs)} is for a vector file that out= writes, such as "
                    ".gpkg; leave crs= out, or pass it to to_file"
                )
        for name in ("overwrite", "resume", "takeover"):
            object.__setattr__(self, name, check_flag(name, getattr(self, name)))
        if not (isinstance(self.detach, str) and self.detach):
            object.__setattr__(self, "detach", check_flag("detach", self.detach))
        if self.backend is not None:
            check_choice("backend", self.backend, BACKENDS)
        check_client(self.client)

    @property
    def storage(self) -> Storage | None:
        """The storage of the result, if it is a store or a file."""
        found: Any = self.out
        return None if is_icechunk(found) else found

    def refuse_of_rasters(self, **given: bool) -> None:
        """Raise InputError if an argument is given that does not apply to graphs.

        ``given`` tells for each of the operation's own arguments whether it is given.
        """
        of_rasters = {name: getattr(self, name) is not None for name in (*CHOICE, "tile", "shard")}
        refuse_arguments("a graph", **of_rasters, **given)


def stays_in_memory(rasters: tuple[Raster, ...], spec: RunSpec) -> bool:
    """Return whether a run works in memory, without a workspace on disk."""
    there = ArrayRaster | LayerRaster | PlaceRaster
    in_memory = all(isinstance(raster, there) for raster in rasters)
    return spec.out is None and spec.client is None and in_memory


def where_to_work(rasters: tuple[Raster, ...], spec: RunSpec) -> Client | LateClient | None:
    """Return the client whose cluster does the work; None means threads of this process."""
    return None if stays_in_memory(rasters, spec) else spec.client or current_client()


def run_layout(shape: tuple[int, int], tile: int, shard: int | None = None) -> Layout:
    """Return the tile and shard sides of a run on a grid, no larger than the grid.

    By default a shard has about 2048 cells a side, and at most 16 tiles.
    """
    given = Layout(tile, tile if shard is None else shard)
    side = min(given.tile, max(shape))
    most = min(SHARD_SIDE, MOST_TILES_A_SIDE * side)
    # Tiles may have become smaller than asked for: a shard keeps its number of tiles.
    if shard is not None:
        most = side * (given.shard // given.tile)
    own = side
    while own < min(most, max(shape)):
        own *= 2
    return Layout(side, own)


def too_many_shards(shape: tuple[int, int], shard: int, memory: int) -> str:
    """Return a warning if the client's memory is too small for the shards of a run, else "".

    Parameters
    ----------
    shape, shard
        Shape of the grid, and side of a shard in cells.
    memory
        Memory of the client's machine in bytes; half of it is assumed to be free.

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


def small_workers(planned: Mapping[str, int] | None, limit: int) -> str:
    """Return a warning if workers have less memory than a run needs by its plan, else "".

    ``planned`` has the bytes of a worker, and those that it keeps by choice; ``limit`` is the
    smallest memory limit of a worker.

    Examples
    --------
    >>> small_workers({"worker": 2**29, "kept": 2**28}, 2**30)
    ''
    >>> small_workers({"worker": 2**30, "kept": 0}, 2**30)[:51]
    'client: its smallest worker may use 1024 MiB, of wh'
    """
    share = pause_share()
    needed = 0 if planned is None else planned["worker"] - planned["kept"]
    if needed <= share * limit:
        return ""
    return (
        f"client: its smallest worker may use {limit / 2**20:.0f} MiB, of which Dask leaves tasks "
        f"{share:.0%} before it pauses the worker, and the run needs {needed / 2**20:.0f} MiB; "
        f"give workers {needed / share / 2**20:.0f} MiB each, or pass a smaller tile="
    )


def shard_level(layout: Layout) -> int:
    """Return the quadtree level whose nodes are shards."""
    return (layout.shard // layout.tile).bit_length() - 1


def task_level(tree: Quadtree) -> int:
    """Return the quadtree level whose nodes are one task each, for a run in memory.

    Each node above that level adds two tasks, so there are at most four tasks per tile. For a grid
    that is only one such node wide, there are as many nodes above the level as in it, and up to 2
    log2(nodes) more tasks.
    """
    level = 0
    while level < tree.root.level and tree.window(Node(level, 0)).size <= 2**18:
        level += 1
    return level
