"""The `Plan` of a run, what a raster to plan for is, and memory that all plans count."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.run.cluster.clusters import memory_of_machine
from orograph.run.options import too_many_shards
from orograph.tiles import html
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError
from orograph.tiles.nodata import supported_dtype

MIB = 2**20

# Resident memory of processes that have imported all they need and done nothing yet, and what
# the scheduler holds for a task. Measured, see benchmarks/memory.py.
# The system maps about 40 MiB more or less of their libraries, as these lie in its file cache.
# pandas imports pyarrow where that is installed, of which 31 to 85 MiB are mapped.
ARROW_BYTES = 60 * MIB if find_spec("pyarrow") else 0
CLIENT_BYTES = 285 * MIB + ARROW_BYTES
WORKER_BYTES = 270 * MIB + ARROW_BYTES
SCHEDULER_BYTES = 110 * MIB
# Of a worker with a GPU, whose context takes some of its memory, too. Measured on an H100.
GPU_WORKER_BYTES = 1000 * MIB + ARROW_BYTES
GPU_CONTEXT_BYTES = 640 * MIB
TASK_BYTES = 20_000
# Of a large sweep it knows some graphs at a time: two, and more where there are many workers.
TASKS_KNOWN = 6000
TASKS_OF_WORKER = 22


@dataclass(frozen=True)
class Plan:
    """Tasks, memory and disk that a run will need.

    Attributes
    ----------
    operation
        Name of the operation.
    shape, tile, shard
        Shape of the grid, and the sides of a tile and of a shard in cells. For an index, ``tile``
        is the side of a stored block. Distances, and workers with GPUs, join tiles of the store;
        then it is the side of the joined tiles.
    tiles, tasks
        Number of tiles and of tasks. For distances, ``tasks`` is a lower bound, because their
        number depends on the data.
    memory_per_worker, memory_client, memory_total
        Peak resident bytes of a worker, of the process with client and scheduler, and of both
        together with ``workers`` workers. Without workers, all of it is that of the client.
        ``memory_scheduler`` comes on top if the scheduler is a separate process.
    memory_gpu
        Bytes of the memory of each GPU that the run needs, with what CUDA takes for itself; 0 on
        CPUs. As long as more is free, it also keeps memory that it may use again.
    threads_per_worker
        Threads of a worker: 1 on CPUs.
    memory_kept
        The part of ``memory_per_worker`` (of ``memory_client``, without workers) that a worker of a
        distance uses to keep tiles by choice, up to half of what it may use, and no more than the
        rest leaves of the share at which Dask pauses a worker (80 %). It only needs the
        rest: with less memory, tiles are written to disk and read again.
    memory_table
        The part of ``memory_client`` for the table of components, peaks or depressions, which is
        written after the workers have released their memory.
    bytes_read, bytes_written, bytes_checkpoints
        Uncompressed bytes of the input, the result and the checkpoints; compressed sizes are
        smaller. For an index, ``bytes_written`` is exactly its ``bytes_uncompressed``. The number
        of table rows is estimated from the number of pits or components in white noise unless it is
        given.
    workers
        Number of workers that ``memory_total`` is for; 0 means threads of this process.
    runs
        For distances: the number of consecutive runs, one for each strength of sources.

    Examples
    --------
    >>> import orograph as og
    >>> og.minimum_spanning_forest.plan(og.RasterSpec((4096, 4096))).bytes_written // 2**20
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
    memory_kept: int = 0
    memory_table: int = 0
    runs: int = 1
    memory_gpu: int = 0
    threads_per_worker: int = 1

    @property
    def bytes_per_cell(self) -> float:
        """Uncompressed bytes of the result per cell."""
        return self.bytes_written / (self.shape[0] * self.shape[1])

    @property
    def memory_scheduler(self) -> int:
        """Peak resident bytes of a scheduler in a separate process; 0 without workers.

        The client still needs up to ``memory_client``. `orograph.cluster` runs both in one process.
        """
        if not self.workers:
            return 0
        beside = self.memory_client - self.memory_table - CLIENT_BYTES
        return SCHEDULER_BYTES + min(self.tasks * TASK_BYTES, beside)

    @property
    def memory_total(self) -> int:
        """Peak resident bytes of client, scheduler and workers together."""
        # The greater of two moments: workers at work, or the table being written while they are
        # idle.
        at_work = self.memory_client - self.memory_table + self.workers * self.memory_per_worker
        return max(at_work, self.memory_client + self.workers * WORKER_BYTES)

    def _head(self) -> list[str]:
        """Return the first lines of the printed plan: the operation, grid size and tiling."""
        rows, columns = self.shape
        pieces = "blocks" if self.operation == "DistanceIndex.build" else "tiles"
        return [
            f"{self.operation} of {rows} x {columns} cells",
            f"  {self.tiles} {pieces} of {self.tile} x {self.tile} cells, "
            f"written in shards of {self.shard} x {self.shard}",
        ]

    def __str__(self) -> str:
        kept = f" ({size_of(self.memory_kept)} of it by choice)" if self.memory_kept else ""
        memory = f"{size_of(self.memory_client)} in this process{kept}, without a cluster"
        if self.workers:
            threads = self.threads_per_worker
            memory = (
                f"{size_of(self.memory_per_worker)} a worker"
                f"{f' of {threads} threads' if threads > 1 else ''}{kept}, "
                f"{size_of(self.memory_client)} client and scheduler, "
                f"{size_of(self.memory_total)} with {self.workers} worker(s), "
                f"{size_of(self.memory_scheduler)} more for a scheduler of its own process"
            )
        if self.memory_gpu:
            memory += f"; {size_of(self.memory_gpu)} of each GPU"
        lines = [
            *self._head(),
            f"  {self.tasks} task{'s' * (self.tasks != 1)}"
            + (f" of {self.runs} runs" if self.runs > 1 else ""),
            f"  memory: {memory}",
            f"  disk, at most: {size_of(self.bytes_read)} read, "
            f"{size_of(self.bytes_written)} written ({self.bytes_per_cell:.1f} bytes a cell), "
            f"{size_of(self.bytes_checkpoints)} of checkpoints on the way",
        ]
        if excess := too_many_shards(self.shape, self.shard, memory_of_machine()):
            lines.append(f"  warning: {excess}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return html.table(title, dict(_named(line.strip()) for line in lines))


def _named(line: str) -> tuple[str, str]:
    """Split a line of a printed plan into a name and a value."""
    name, colon, value = line.partition(": ")
    if colon:
        return name, value
    count, _, rest = line.partition(" ")
    return rest.partition(" ")[0], f"{count} {rest}"


def size_of(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count = count / 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


@dataclass(frozen=True)
class RasterSpec:
    """Shape and dtype of a raster to plan for; the raster need not exist yet.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    dtype : dtype
        Dtype of the cells; float32 by default.

    Raises
    ------
    InputError
        If a raster cannot have this shape or dtype.

    Examples
    --------
    >>> import orograph as og
    >>> plan = og.minimum_spanning_forest.plan(og.RasterSpec((16384, 16384)), workers=2)
    >>> plan.tiles, plan.tasks, plan.bytes_read // 2**20
    (256, 171, 1024)
    """

    shape: tuple[int, int]
    dtype: npt.DTypeLike | None = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "dtype", _cell_type(self.dtype))

    def _repr_html_(self) -> str:
        cells = f"{self.shape[0]} x {self.shape[1]}"
        return html.table("Raster to plan for", {"cells": cells, "dtype": self.dtype})


def _cell_type(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        return supported_dtype(np.float32 if dtype is None else dtype, "dtype")
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"dtype: {shown(dtype)} is none; give one such as 'float32'") from None


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a shape as two integers, or raise InputError if it is invalid."""
    try:
        rows, columns = (check_integer("side", side, 1) for side in shape)
    except (TypeError, ValueError):  # InputError is one
        raise InputError(f"shape: {shown(shape)}; give rows and columns, at least 1 each") from None
    return rows, columns


def bytes_of(name: str, size: int | str) -> int:
    """Parse an argument such as ``"4 GiB"`` into bytes."""
    from dask.utils import parse_bytes

    try:
        count = parse_bytes(size or 0)
    except (ValueError, TypeError, AttributeError, OverflowError):
        count = 0
    if isinstance(size, bool) or not 1 <= count < 2**63:
        raise InputError(
            f"{name}: {shown(size)}; give bytes, at least 1, or a size such as '4 GiB'"
        )
    return count
