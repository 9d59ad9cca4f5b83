"""Estimate tasks, memory and disk of building a distance index; see `Operation.plan`.

How many numbers an index holds follows from its form alone. Compressed they take less: of float
sums nearly as much, of whole numbers and where there are barriers far less.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from orograph.arguments.keywords import Choice
from orograph.arguments.steps import DTYPES, SlopeSpec, StepSpec
from orograph.index.arguments import BLOCK, LEVELS, wanted_index
from orograph.index.format import Form
from orograph.kernels.boundary.cuda import BYTES_AT_ONCE
from orograph.plans.grid import Gpus, memory_of_tasks
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    MIB,
    WORKER_BYTES,
    Plan,
    RasterSpec,
)
from orograph.tiles.arguments import check_dtype
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.raster import ArrayRaster, RasterLike
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

# Compiled code of eliminations and products, measured as the rest is.
KERNEL_BYTES = 45 * MIB
# Workers keep freed memory for their next arrays; in about half of the runs these do not fit there.
FREED_BYTES = 60 * MIB
# While one is made or written, in matrices of the stored blocks' size: two halves, their whole and
# the products between; then the record, packed, and packed with its checksum.
MATRICES = 3.4
MATRICES_SPARSIFIED = 5.4  # and while sums are left out


def estimate_index(
    raster: RasterLike | RasterSpec,
    *,
    workers: int,
    cost: str = "friction",
    block: int = BLOCK,
    levels: int = LEVELS,
    sparsify: bool = False,
    gpus: Gpus | None = None,
    **options: Any,
) -> Plan:
    """Return the plan of `DistanceIndex.build`, for a raster or a `RasterSpec`.

    ``options`` are those of `IndexOptions` that say what the index holds.
    """
    steps, slopes = StepSpec.of(options), SlopeSpec.of(options)
    if isinstance(raster, RasterSpec):
        outline = RasterOutline(raster.shape, np.dtype(check_dtype("dtype", steps.dtype, DTYPES)))
        raster = outline
        slopes = replace(slopes, friction=None if slopes.friction is None else outline)
    wanted = wanted_index(
        raster,
        cost=cost,
        block=block,
        levels=levels,
        sparsify=sparsify,
        snap=None,
        steps=steps,
        slopes=slopes,
        choice=Choice.of(options),
    )
    read = [r.dtype.itemsize for r in wanted.rasters]
    cells = wanted.form.shape[0] * wanted.form.shape[1]
    # workers cannot see what is in this process's memory
    copied = sum(cells * r.dtype.itemsize for r in wanted.rasters if isinstance(r, ArrayRaster))
    return _plan_of(wanted.form, workers, read, copied, gpus)


def _plan_of(form: Form, workers: int, read: list[int], copied: int, gpus: Gpus | None) -> Plan:
    """Return the plan of an index; ``read`` are the bytes of a cell of each raster."""
    layout, itemsize = form.layout, np.dtype(form.dtype).itemsize
    # shards with the cells around them: all, and the largest, along each axis
    down, across = layout.count(form.shape)
    axes = tuple(zip(form.shape, (down, across), strict=True))
    read_cells = math.prod(n + 2 * (count - 1) for n, count in axes)
    largest = math.prod(min(layout.shard, n) + min(2, count - 1) for n, count in axes)
    height, width = (min(form.side, n) for n in form.shape)
    border = 2 * (height + width) + form.terminals
    # cells as they are read and stored, and whether they are barriers, of a shard; the padded
    # rasters and the steps' weights of a block
    shard = largest * (sum(read) + 2 * itemsize + 2)
    block = height * width * itemsize * (2 * len(read) + 4)
    # tiles that are read in parts, for the cells around shards, are kept for a while
    kept = min(LIMIT_BYTES, form.shape[0] * form.shape[1] * sum(read))
    matrices = MATRICES_SPARSIFIED if form.sparsify else MATRICES
    task = shard + block + int(matrices * border * border * itemsize)
    idle, threads, on_gpu = WORKER_BYTES, 1, 0
    if gpus is not None:
        idle, threads = GPU_WORKER_BYTES, gpus.threads
        # the padded rasters of a shard; matrices of many blocks at once, or at least of one
        there = largest * itemsize * (len(read) + 1)
        there += max(BYTES_AT_ONCE, int(MATRICES * border * border * itemsize))
        on_gpu = GPU_CONTEXT_BYTES + min(threads, down * across) * there
    return Plan(
        operation="DistanceIndex.build",
        shape=form.shape,
        tile=form.side,
        shard=layout.shard,
        tiles=form.count,
        tasks=down * across,
        memory_per_worker=idle + KERNEL_BYTES + kept + threads * (FREED_BYTES + task),
        memory_client=CLIENT_BYTES + memory_of_tasks(down * across, workers),
        bytes_read=read_cells * sum(read),
        bytes_written=form.bytes_uncompressed,
        bytes_checkpoints=copied,
        workers=workers,
        memory_gpu=on_gpu,
        threads_per_worker=threads,
    )
