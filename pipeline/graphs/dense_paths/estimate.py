"""Estimate tasks, memory and disk of `all_pairs`; see `Operation.plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orograph.graphs.dense_paths.all_pairs import DIJKSTRA, few_edges, usual_tile
from orograph.graphs.dense_paths.blocked import METHODS
from orograph.graphs.dense_paths.edge_matrix import DTYPES, open_edges
from orograph.graphs.dense_paths.graphs import labelled
from orograph.graphs.dense_paths.on_devices import SHARE
from orograph.plans.grid import Gpus
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    TASK_BYTES,
    WORKER_BYTES,
    Plan,
    RasterSpec,
)
from orograph.tiles.arguments import check_choice, check_dtype, check_flag
from orograph.tiles.errors import InputError
from orograph.tiles.graph.sparse import is_sparse
from orograph.tiles.store.create import Layout

if TYPE_CHECKING:
    from orograph.tiles.graph.graph import Graph
    from orograph.tiles.graph.read import GraphLike

TILES_TO_BEGIN = 8  # in the memory of the client, while it cuts the graph; measured


def estimate_all_pairs(
    graph: npt.ArrayLike | GraphLike | Graph | RasterSpec,
    *,
    workers: int,
    dtype: npt.DTypeLike = "float64",
    tile: int | None = None,
    method: str = "auto",
    predecessors: bool = False,
    gpus: Gpus | None = None,
) -> Plan:
    """Return an upper bound on the resources of `all_pairs`, with ``out`` or on a cluster.

    Edges of a dense matrix are not counted: for them ``"auto"`` stands for Floyd-Warshall.
    """
    method = check_choice("method", method, ("auto", *METHODS, DIJKSTRA))
    predecessors = check_flag("predecessors", predecessors)
    name = check_dtype("dtype", dtype, DTYPES)
    itemsize = np.dtype(name).itemsize
    if isinstance(graph, RasterSpec):
        n, columns = graph.shape
        if n != columns:
            raise InputError(
                f"shape: {graph.shape}; a row and a column for every vertex: give a square"
            )
        edges = n * n
        stored = held = edges * itemsize
    else:
        matrix = open_edges(labelled(graph)[0], name, 0)
        n, values = matrix.n, matrix.values
        edges = int(values.nnz) if is_sparse(values) else n * n
        stored = edges * (values.dtype.itemsize + 4 * is_sparse(values))
        held = stored if isinstance(values, np.ndarray) or is_sparse(values) else 0
    if method == "auto":
        method = DIJKSTRA if few_edges(edges, n) else "floyd-warshall"
    side = min(Layout(tile, tile).tile if tile is not None else usual_tile(n, method), n)
    count = -(-n // side)
    rounds = {"floyd-warshall": count, "squaring": max(1, (n - 1).bit_length())}.get(method, 0)
    each = itemsize + 4 * predecessors
    # three tiles, and one that is read or written; predecessors are written by whole rows of tiles,
    # and once more in one piece each where they have to be mended
    work = 4 * side * side * each
    if predecessors:
        work = max(work, side * n * (each + itemsize + 4))
    checkpoints = n * n * (2 * each + itemsize * predecessors)
    if method == DIJKSTRA:
        # edges as they were read and as a graph; SciPy counts in float64
        checkpoints = edges * 12 + 4 * n
        work = 2 * checkpoints + side * n * (8 + 1 + each)
    idle, threads, on_gpu = WORKER_BYTES, 1, 0
    if gpus is not None and method != DIJKSTRA:
        idle, threads = GPU_WORKER_BYTES, gpus.threads
        # four tiles for each thread, or all rows on the GPU of this process where they fit
        on_gpu = 4 * side * side * each * threads
        whole = (n + 4 * side) * n * each
        if not gpus.worker_memory and whole <= SHARE * gpus.free:
            on_gpu = whole
        on_gpu += GPU_CONTEXT_BYTES
    return Plan(
        operation="all_pairs",
        shape=(n, n),
        tile=side,
        shard=side,
        tiles=count * count,
        # and one that sums up each squaring
        tasks=rounds * (count * count + (method == "squaring")) + count,
        memory_per_worker=idle + threads * work,
        memory_client=CLIENT_BYTES
        + count * (count if rounds else 1) * TASK_BYTES
        + held
        + TILES_TO_BEGIN * side * side * each,
        bytes_read=stored,
        bytes_written=n * n * each,
        bytes_checkpoints=checkpoints,
        workers=workers,
        memory_gpu=on_gpu,
        threads_per_worker=threads,
    )
