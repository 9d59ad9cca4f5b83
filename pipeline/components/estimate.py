"""Estimate tasks, memory and disk of `connected_components`; see `Operation.plan`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from orograph.components.patches import neighbour_pairs, patches
from orograph.operations.plan import Grid, Plan
from orograph.tiles.arguments import check_choice, check_dtype, check_integer, check_outputs
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import TABLE_ROWS

PATCHES = 4  # in each direction
SIDE = 256  # cells
CELLS_A_COMPONENT = 10  # four cells in ten of white noise, by 4 neighbours
# of a component in memory of a worker, and in checkpoints: in saved states, in the table
COMPONENT_BYTES, PART_BYTES, ROW_BYTES = 130, 65, 48
COMPONENT_ALONE, PART_ALONE = 10, 10  # where it is not measured
COLUMN_BYTES = {"component_size": 8, "component_box": 4 * 8}


def estimate_components(
    grid: Grid,
    *,
    workers: int,
    components: int | None = None,
    connectivity: int = 8,
    min_size: int = 1,
    outputs: str | Sequence[str] = ("labels",),
    dtype: str = "int64",
) -> Plan:
    """Return the plan of `connected_components`.

    Without a table components are not kept but numbered, and measured only where ``min_size`` asks.
    """
    wanted = {"labels", *check_outputs(outputs, ("labels", *COLUMN_BYTES))}
    label = np.dtype(check_dtype("dtype", dtype, ("int64", "int32"))).itemsize
    measured = check_integer("min_size", min_size, 1, LONGEST_SIDE**2, "cells") > 1
    with_table = len(wanted) > 1
    measured |= with_table
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    if components is None and grid.raster is not None:
        components = count_components(grid.raster, connectivity)
    cells = grid.cells
    count = -(-cells // CELLS_A_COMPONENT)
    if components is not None:
        count = check_integer("components", components, 0, cells)
    band_cells = min(grid.layout.shard, grid.shape[0]) * grid.shape[1]
    # evenly spread; those of a row of shards are put in order by the client, and written by chunks
    of_shard, of_band = (-(-count * part // cells) for part in (grid.shard_cells, band_cells))
    table = of_band * 32 + of_shard * 65 + min(count, TABLE_ROWS) * 80 if with_table else 0
    in_memory = COMPONENT_BYTES if measured else COMPONENT_ALONE
    saved = PART_BYTES if measured else PART_ALONE
    plan = grid.plan_sweep(
        "connected_components",
        workers=workers,
        memory=grid.tile_cells * (2 * grid.dtype.itemsize + 16)
        + grid.shard_cells * (label + 5)
        + of_shard * in_memory,
        written=label,
        checkpoints=cells * 4 + count * (saved + with_table * ROW_BYTES),
        border=(200, 60),
    )
    return replace(
        plan,
        memory_client=plan.memory_client + table,
        memory_table=table,
        bytes_written=plan.bytes_written
        + count * sum(COLUMN_BYTES.get(name, 0) for name in wanted),
    )


def count_components(raster: Raster, connectivity: int) -> int:
    """Estimate the number of connected components of a raster from sample patches.

    A component that touches the border of its patch may go on beyond it, and counts half, unless
    it is a single cell.
    """
    count, cells_looked_at = 0.0, 0
    for part in patches(raster, SIDE, PATCHES):
        labels, size = _label(raster.read(part), raster.nodata, connectivity)
        edges = (
            (labels[0], part.y > 0),
            (labels[-1], part.y + part.height < raster.shape[0]),
            (labels[:, 0], part.x > 0),
            (labels[:, -1], part.x + part.width < raster.shape[1]),
        )
        touching = np.zeros(size.size, bool)
        for border, goes_on in edges:
            touching[border] |= goes_on
        count += size.size - 1 - (touching[1:] & (size[1:] > 1)).sum() / 2
        cells_looked_at += labels.size
    return math.ceil(count / cells_looked_at * raster.shape[0] * raster.shape[1])


def _label(
    cells: npt.NDArray[Any], nodata: float | None, connectivity: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Label the components of an array with SciPy; return labels and the size of each.

    By SciPy: to compile a kernel takes longer than all else that a plan does.
    """
    inside = valid_cells(cells, nodata) & (cells != 0)
    number = np.arange(cells.size).reshape(cells.shape)
    pairs = []
    for v, u in zip(neighbour_pairs(number, connectivity), neighbour_pairs(cells, connectivity)):
        joined = (u[0] == u[1]) & inside.flat[v[0]] & inside.flat[v[1]]
        pairs.append((v[0][joined], v[1][joined]))
    one, other = (np.concatenate(ends) for ends in zip(*pairs))
    graph = coo_array((np.ones(one.size, bool), (one, other)), shape=(cells.size, cells.size))
    parts = connected_components(graph, directed=False)[1].reshape(cells.shape)
    found, labels = np.unique(np.where(inside, parts, -1), return_inverse=True)
    labels = labels.reshape(cells.shape) + (found[0] >= 0)
    return labels, np.bincount(labels.flat)
