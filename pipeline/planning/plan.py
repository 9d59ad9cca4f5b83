"""What a run will take, told before it starts: tasks, memory, disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.execution.clusters import current_client
from orograph.execution.options import check_choice, run_layout
from orograph.settings import config
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.nodata import supported_dtype
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import TABLE_ROWS, Layout
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

MIB = 2**20
COMPONENTS = "connected_components"

# Resident memory of processes that have imported all they need and done nothing yet, and what
# the scheduler holds for a task. Measured, see benchmarks/memory.py.
CLIENT_BYTES = 240 * MIB
WORKER_BYTES = 215 * MIB
TASK_BYTES = 20_000
STATE_BYTES = 16  # of a cell in the state of a tile: its distance, and its friction as one
CELLS_A_COMPONENT = 10  # four cells in ten of white noise, by 4 neighbours
PART_BYTES, ROW_BYTES = 65, 48  # of a component in checkpoints: in a residue, and in the table


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes
    ----------
    operation
        Its name.
    shape, tile, shard
        The grid, and how it is cut: cells a side of a tile (an index: of a stored block) and of
        what one task does.
    tiles, tasks
        How many there are. Distances: tasks at the least, as their number depends on the data.
    memory_per_worker, memory_client, memory_total
        Peak resident bytes of a worker of one thread, of the process with client and scheduler,
        and of both together with ``workers`` workers.
    memory_kept
        How much of ``memory_per_worker`` is tiles that a worker of a distance keeps by choice, up
        to half of what it may use. It needs no more than the rest: with less memory tiles are put
        on disk and read again.
    memory_table
        How much of ``memory_client`` is for the table of components, which is written when workers
        have let go of what they held.
    bytes_read, bytes_written, bytes_checkpoints
        Uncompressed bytes of the input, of the result and of the checkpoints; on disk they are
        less. Of an index ``bytes_written`` is exactly its ``bytes_uncompressed``.
    workers
        For how many workers ``memory_total`` is.
    bytes_on_disk
        What an index will take, compressed, estimated from some of its blocks, usually to a few
        hundredths; None where there is only a shape, and for all other operations.

    Examples
    --------
    >>> import orograph as og
    >>> og.plan("minimum_spanning_forest", (4096, 4096)).bytes_written // 2**20
    16
    """

    operation: str
    shape: tuple[int, int]
    tile: int
    shard: int
    tiles: int
    tasks: int
    memory_per_worker: int
    memory_client: int
    bytes_read: int
    bytes_written: int
    bytes_checkpoints: int
    workers: int
    bytes_on_disk: int | None
    memory_kept: int = 0
    memory_table: int = 0

    @property
    def bytes_per_cell(self) -> float:
        """Bytes of the result for each cell: on disk if that is known, else uncompressed."""
        count = self.bytes_written if self.bytes_on_disk is None else self.bytes_on_disk
        return count / (self.shape[0] * self.shape[1])

    @property
    def memory_total(self) -> int:
        """Peak resident bytes of client, scheduler and workers together."""
        at_work = self.memory_client - self.memory_table + self.workers * self.memory_per_worker
        return max(at_work, self.memory_client + self.workers * WORKER_BYTES)

    def __str__(self) -> str:
        rows, columns = self.shape
        pieces = "blocks" if self.operation == INDEX else "tiles"
        kept = f" ({_size(self.memory_kept)} of it by choice)" if self.memory_kept else ""
        lines = [
            f"{self.operation} of {rows} x {columns} cells",
            f"  {self.tiles} {pieces} of {self.tile} x {self.tile} cells, "
            f"written in shards of {self.shard} x {self.shard}",
            f"  {self.tasks} tasks",
            f"  memory: {_size(self.memory_per_worker)} a worker{kept}, "
            f"{_size(self.memory_client)} client and scheduler, "
            f"{_size(self.memory_total)} with {self.workers} worker(s)",
            f"  disk, uncompressed: {_size(self.bytes_read)} read, "
            f"{_size(self.bytes_written)} written, "
            f"{_size(self.bytes_checkpoints)} of checkpoints on the way",
        ]
        if self.bytes_on_disk is not None:
            lines.append(
                f"  on disk: some {_size(self.bytes_on_disk)}, "
                f"{self.bytes_per_cell:.1f} bytes a cell"
            )
        return "\n".join(lines)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count = count / 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def plan(
    operation: str,
    raster: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    tile: int | None = None,
    workers: int = 1,
    **options: Any,
) -> Plan:
    """Tell what a run will take, before anything is started.

    Parameters
    ----------
    operation
        Name of the operation: ``"minimum_spanning_forest"``, ``"cost_distance"``,
        ``"hop_distance"``, ``"connected_components"`` or ``"distance_index"``.
    raster
        What the operation will be given, or only its shape (rows, columns). Of an index friction,
        or None for a cost that goes without.
    dtype
        Type of the cells where only a shape is given; float32 by default. Of an index the type of
        its costs, as `DistanceIndex.build` takes it.
    tile
        As the operation will be given it.
    workers
        Number of workers of one thread each.
    **options
        Components: ``components``, how many there will be; memory and the table grow with them.
        By default it is estimated from some patches of the raster, for ``connectivity`` neighbours
        (8); of a shape alone as many as in white noise, one in ten cells.

        Distances and hops: ``memory_limit``, what a worker may use, in bytes or such as
        ``"4 GiB"``; by default the limit of the active cluster's workers, or of those that
        `cluster` would start here.

        An index: ``elevation``, ``cost``, ``coefficients``, ``connectivity``, ``block``,
        ``levels``, ``cell_size``, ``nodata`` and ``sparsify``, as of `DistanceIndex.build`.

    Returns
    -------
    Plan
        Printed, it reads as a short table.

    Raises
    ------
    InputError
        If the operation or an option is unknown, or the raster cannot be used.

    Notes
    -----
    Only rasters of an index and of components are read, and only a part of them. That takes a
    second or two.

    Examples
    --------
    >>> import orograph as og
    >>> p = og.plan("minimum_spanning_forest", (16384, 16384), dtype="float32", workers=2)
    >>> p.tiles, p.tasks, p.bytes_read // 2**20
    (256, 171, 1024)
    >>> index = og.plan("distance_index", (4096, 4096), block=64, levels=2)
    >>> index.tiles, round(index.bytes_per_cell, 1)
    (256, 72.6)
    """
    check_choice("operation", operation, (*_OPERATIONS, INDEX))
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        raise InputError(f"workers: {workers!r}; it must be a whole number, at least 1")
    known = _OPTIONS.get(operation, ())
    for name in options.keys() - set(known):
        others = [other for other, names in _OPTIONS.items() if name in names]
        raise InputError(
            f"{name}: no option of a plan of {operation}, which has "
            f"{', '.join(known) or 'none'}" + "".join(f"; it is one of {other}" for other in others)
        )
    if operation == INDEX:
        from orograph.index.estimate import plan_index

        if tile is not None:
            raise InputError(f"tile: {tile}; an index is cut by block and levels, give those")
        return plan_index(raster, dtype=dtype, workers=workers, **options)
    if operation == COMPONENTS:
        check_choice("connectivity", options.get("connectivity", 8), (4, 8))
    if isinstance(raster, tuple):
        shape, cell = check_shape(raster), _cell_type(dtype)
    else:
        opened = open_raster(raster)
        shape, cell = opened.shape, opened.dtype
        tile = opened.tile if tile is None else tile
        if operation == COMPONENTS and options.get("components") is None:
            from orograph.planning.components import estimate_components

            options["components"] = estimate_components(opened, options.get("connectivity", 8))
    layout = run_layout(shape, config.get("tile") if tile is None else tile)
    return _OPERATIONS[operation](shape, cell, layout, workers, **options)


def _cell_type(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        return supported_dtype(np.float32 if dtype is None else dtype, "dtype")
    except TypeError:
        raise InputError(f"dtype: {dtype!r} is none; give one such as 'float32'") from None


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Refuse what is no shape of a grid."""
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"shape: {shape}; give rows and columns, at least 1 each")
    return int(shape[0]), int(shape[1])


def _tasks_of_pass(tree: Quadtree, layout: Layout) -> tuple[int, int]:
    """Tasks of an up-and-down pass, and shards."""
    level = (layout.shard // layout.tile).bit_length() - 1
    above = sum(tree.count(upper) for upper in range(level + 1, tree.root.level + 1))
    shards = tree.count(level)
    return 2 * shards + 2 * above + 1, shards


def _forest(shape: tuple[int, int], dtype: np.dtype[Any], layout: Layout, workers: int) -> Plan:
    tree = Quadtree(shape, layout.tile)
    tasks, shards = _tasks_of_pass(tree, layout)
    tile_cells = min(layout.tile, shape[0]) * min(layout.tile, shape[1])
    shard_cells = min(layout.shard, shape[0]) * min(layout.shard, shape[1])
    border = 4 * (shape[0] + shape[1])
    worker = WORKER_BYTES + tile_cells * (2 * dtype.itemsize + 24) + shard_cells * 3 + border * 160
    return Plan(
        operation="minimum_spanning_forest",
        shape=shape,
        tile=layout.tile,
        shard=layout.shard,
        tiles=tree.count(0),
        tasks=tasks,
        memory_per_worker=worker,
        memory_client=CLIENT_BYTES + tasks * TASK_BYTES,
        bytes_read=shape[0] * shape[1] * dtype.itemsize,
        bytes_written=shape[0] * shape[1],
        bytes_checkpoints=shape[0] * shape[1] // 2 + 60 * shards * 4 * layout.shard,
        workers=workers,
        bytes_on_disk=None,
    )


def _relaxation(
    operation: str,
    message: int,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    layout: Layout,
    workers: int,
    memory_limit: int | str | None = None,
) -> Plan:
    """What the frontier engine takes at the least: each tile visited once, by a task a shard.

    A worker keeps the states of tiles in up to half of the memory it may use, and puts what is
    more on disk: more memory saves reading and is not needed. ``message`` is bytes a cell.
    """
    limit = _memory_of_a_worker() if memory_limit is None else _bytes_of(memory_limit)
    tree = Quadtree(shape, layout.tile)
    shards = tree.count((layout.shard // layout.tile).bit_length() - 1)
    tile_cells = min(layout.tile, shape[0]) * min(layout.tile, shape[1])
    shard_cells = min(layout.shard, shape[0]) * min(layout.shard, shape[1])
    cells = shape[0] * shape[1]
    borders = tree.count(0) * 4 * layout.tile * 8
    # a tile's home is that of its shard
    states = min(cells, -(-shards // workers) * shard_cells) * STATE_BYTES
    kept = min(limit // 2, states)
    working = tile_cells * (2 * dtype.itemsize + 48) + shard_cells * 3 * message
    if kept == states:
        # that of the tile that is visited is among them, and writing gives back more than it takes
        working = tile_cells * (2 * dtype.itemsize + 48 - STATE_BYTES)
    return Plan(
        operation=operation,
        shape=shape,
        tile=layout.tile,
        shard=layout.shard,
        tiles=tree.count(0),
        tasks=2 * shards,
        memory_per_worker=WORKER_BYTES + min(LIMIT_BYTES, cells * dtype.itemsize) + working + kept,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=cells * dtype.itemsize,
        bytes_written=cells * message,
        bytes_checkpoints=cells * 8 + borders,
        workers=workers,
        bytes_on_disk=None,
        memory_kept=kept,
    )


def _bytes_of(memory_limit: int | str) -> int:
    """Bytes that a user has named."""
    from dask.utils import parse_bytes

    try:
        limit = parse_bytes(memory_limit)
    except (ValueError, TypeError, AttributeError):
        limit = 0
    if limit < 1:
        raise InputError(
            f"memory_limit: {memory_limit!r}; give bytes, at least 1, or a size such as '4 GiB'"
        )
    return limit


def _memory_of_a_worker() -> int:
    """What a worker of the active cluster may use, or of one that would be started here."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    client = current_client()
    if client is not None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        # 0 stands for no limit but the machine's
        limits = [worker["memory_limit"] or MEMORY_LIMIT for worker in workers]
        if limits:
            return min(limits)
    return MEMORY_LIMIT // CPU_COUNT


def _components(
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    layout: Layout,
    workers: int,
    components: int | None = None,
    connectivity: int = 8,
) -> Plan:
    """What a pass takes that keeps all labels of a shard, and a row for each component."""
    tree = Quadtree(shape, layout.tile)
    tasks, shards = _tasks_of_pass(tree, layout)
    cells = shape[0] * shape[1]
    count = -(-cells // CELLS_A_COMPONENT) if components is None else components
    if isinstance(count, bool) or not isinstance(count, Integral) or not 0 <= count <= cells:
        raise InputError(f"components: {count!r}; it must be a whole number, 0 to {cells}")
    tile_cells = min(layout.tile, shape[0]) * min(layout.tile, shape[1])
    shard_cells = min(layout.shard, shape[0]) * min(layout.shard, shape[1])
    band_cells = min(layout.shard, shape[0]) * shape[1]
    border = 4 * (shape[0] + shape[1])
    # evenly spread; those of a row of shards are put in order by the client, and written by chunks
    of_shard, of_band = (-(-count * part // cells) for part in (shard_cells, band_cells))
    worker = (
        WORKER_BYTES
        + tile_cells * (2 * dtype.itemsize + 16)
        + shard_cells * 13
        + of_shard * 130
        + border * 200
    )
    table = of_band * 32 + of_shard * 65 + min(count, TABLE_ROWS) * 80
    return Plan(
        operation="connected_components",
        shape=shape,
        tile=layout.tile,
        shard=layout.shard,
        tiles=tree.count(0),
        tasks=tasks,
        memory_per_worker=worker,
        memory_client=CLIENT_BYTES + tasks * TASK_BYTES + table,
        bytes_read=cells * dtype.itemsize,
        bytes_written=cells * 8 + count * (8 + 4 * 8),
        bytes_checkpoints=cells * 4
        + count * (PART_BYTES + ROW_BYTES)
        + 4 * shards * layout.shard * 60,
        workers=workers,
        bytes_on_disk=None,
        memory_table=table,
    )


_OPERATIONS: dict[str, Callable[..., Plan]] = {
    "minimum_spanning_forest": _forest,
    "cost_distance": partial(_relaxation, "cost_distance", 8),
    "hop_distance": partial(_relaxation, "hop_distance", 4),
    COMPONENTS: _components,
}
INDEX = "distance_index"
_OPTIONS = {
    COMPONENTS: ("components", "connectivity"),
    "cost_distance": ("memory_limit",),
    "hop_distance": ("memory_limit",),
    INDEX: (
        "elevation", "cost", "coefficients", "connectivity", "block", "levels", "cell_size",
        "nodata", "sparsify",
    ),
}  # fmt: skip
