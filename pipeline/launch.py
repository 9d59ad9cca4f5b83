"""From the arguments of an operation to a run: the door, where bad input is refused.

Everything that can be known to be wrong is found here, before any task exists and before
anything is written.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from dask.base import tokenize

from orograph import __version__
from orograph.clusters import current_client
from orograph.layers import Layers
from orograph.passes import Pass, Problem
from orograph.run import Progress, Run, compute
from orograph.settings import config
from orograph.tiles.dataset import open_dataset
from orograph.tiles.errors import InputError
from orograph.tiles.quadtree import Quadtree
from orograph.tiles.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.sink import ArraySink, StoreSink
from orograph.tiles.store import Layout, create_store, update_attributes
from orograph.vault import MemoryVault
from orograph.workspace import Workspace

if TYPE_CHECKING:
    from distributed import Client

# attributes of a raster that speak of its values, and so not of the result's
_OF_VALUES = {
    "_FillValue", "missing_value", "scale_factor", "add_offset", "units", "long_name",
    "standard_name", "valid_min", "valid_max", "valid_range", "actual_range", "grid_mapping",
    "flag_values", "flag_masks", "flag_meanings", "AREA_OR_POINT", "dtype",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How a run is done, as against what it computes: the arguments every operation has."""

    tile: int | None = None
    out: str | Path | None = None
    overwrite: bool = False
    resume: bool = False
    wait: bool = True
    client: Client | None = None


def check_choice(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        listed = ", ".join(repr(k) for k in known)
        raise InputError(f"{name}: {value!r} is unknown; use one of {listed}")


def launch_pass(
    raster: Raster,
    problem: Problem,
    parameters: Mapping[str, Any],
    options: Options,
    warm_up: Callable[[], None],
) -> xr.Dataset | Run:
    """Start a problem of the up-and-down pass on a raster.

    A raster in memory without ``out`` and ``client`` is worked on by threads of this process, and
    the result is in memory. All else goes through a workspace on disk.
    """
    tile = options.tile or raster.tile or config.get("tile")
    layout = run_layout(raster.shape, tile)
    client = options.client
    if options.out is None and client is None and isinstance(raster, ArrayRaster):
        if options.resume:
            raise InputError("resume: a run in memory leaves nothing to go on with; pass out=")
        work, progress, cancelled = _in_memory(raster, problem, layout, warm_up)
    else:
        client = client or current_client()
        work, progress, cancelled = _on_disk(
            raster, problem, parameters, layout, options, client, warm_up
        )
    run = Run(work, progress, cancelled, client)
    return run.result() if options.wait else run


def run_layout(shape: tuple[int, int], tile: int) -> Layout:
    """Tiles, and the shards that one task does: some 2048 cells a side, 16 tiles at the most."""
    shard = tile
    while shard < min(2048, max(shape)) and 0 < shard < 16 * tile:
        shard *= 2
    return Layout(tile, shard)


_Parts = tuple[Callable[[], xr.Dataset], Callable[[], Progress], Event]


def _in_memory(
    raster: Raster, problem: Problem, layout: Layout, warm_up: Callable[[], None]
) -> _Parts:
    arrays = {v.name: np.empty(raster.shape, v.dtype) for v in problem.outputs}
    cancelled = Event()
    run = Pass(
        problem,
        raster,
        Quadtree(raster.shape, layout.tile),
        _memory_level(layout.tile),
        MemoryVault(),
        ArraySink(arrays),
        cancelled,
    )

    def work() -> xr.Dataset:
        warm_up()
        tasks, root, writes = run.graph(Layers(problem.name, tokenize(id(run))), run)
        _, attributes = compute(tasks, [root, *writes], None, cancelled)
        place = raster.georeference
        dims = (place.y_name, place.x_name)
        variables = {v.name: (dims, arrays[v.name], dict(v.attrs)) for v in problem.outputs}
        attributes = {**_inherited(raster), "Conventions": "CF-1.10", **attributes}
        return xr.Dataset(variables, coords=place.coords(), attrs=attributes)

    return work, run.progress, cancelled


def _memory_level(tile: int) -> int:
    """The level of the nodes that one task does in memory: about a million cells each."""
    return max(0, (1024 // tile).bit_length() - 1)


def _on_disk(
    raster: Raster,
    problem: Problem,
    parameters: Mapping[str, Any],
    layout: Layout,
    options: Options,
    client: Client | None,
    warm_up: Callable[[], None],
) -> _Parts:
    scratch = None
    out = options.out
    if out is None:
        scratch = tempfile.TemporaryDirectory(
            prefix="orograph-", dir=config.get("scratch") or None, ignore_cleanup_errors=True
        )
        out = Path(scratch.name) / "result.zarr"
    identity = {
        "operation": problem.name,
        **parameters,
        "input": raster.fingerprint(),
        "tile": layout.tile,
        "shard": layout.shard,
        "orograph": __version__,
    }
    space = Workspace(out, identity, overwrite=options.overwrite, resume=options.resume)
    cancelled = Event()
    runs: list[Pass] = []
    latest = Progress(0, 0)

    def work() -> xr.Dataset:
        warm_up()
        vault = space.open(
            lambda path: create_store(
                path, raster.shape, layout, problem.outputs, raster.georeference, _inherited(raster)
            )
        )
        run = Pass(
            problem,
            _reachable(raster, space, layout, client),
            Quadtree(raster.shape, layout.tile),
            (layout.shard // layout.tile).bit_length() - 1,
            vault,
            StoreSink(space.result),
            None if client else cancelled,
        )
        runs.append(run)
        # names of tasks are never used twice: a result that the cluster still holds from an
        # earlier run would stand for work that this one has to do
        token = tokenize(str(space.folder.absolute()), identity, time.time_ns())
        handle: Pass | str = run
        if client is not None:
            job = space.folder.absolute() / f"job-{token}.pickle"
            job.write_bytes(pickle.dumps(run))
            handle = str(job)
        tasks, root, writes = run.graph(Layers(problem.name, token), handle)
        _, attributes = compute(tasks, [root, *writes], client, cancelled)
        run.check_complete()
        update_attributes(space.result, None, attributes)
        space.publish(options.overwrite)
        result = open_dataset(space.out)
        if scratch is not None:
            result = result.load()
            result.close()
            scratch.cleanup()
        return result

    def progress() -> Progress:
        nonlocal latest
        if runs and space.folder.exists():
            latest = runs[0].progress()
        return latest

    return work, progress, cancelled


def _reachable(raster: Raster, space: Workspace, layout: Layout, client: Client | None) -> Raster:
    """The raster itself, or a stored copy of one that lives in this process's memory only."""
    if client is None or not isinstance(raster, ArrayRaster):
        return raster
    from orograph.tiles.ingest import ingest

    copy = space.folder / "input.zarr"
    if not copy.exists():
        ingest(raster, copy, tile=layout.tile, shard=layout.shard)
    return StoreRaster(copy)


def _inherited(raster: Raster) -> dict[str, Any]:
    return {name: value for name, value in raster.attrs.items() if name not in _OF_VALUES}
