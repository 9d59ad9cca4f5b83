"""The minimum spanning forest of a graph on a GPU: the host's side of forest.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.tiles.arrays import Array

SOURCE = "graph/forest.cu"
THREADS = 256
MAX_BLOCKS = 4096
"""Blocks that go over a list whose length the host does not know."""
BATCH = 4
"""Rounds that are launched before the host looks whether an edge is left."""
ROUNDS = 72
"""No graph takes more, in whole batches: each round halves the components."""
KINDS = {np.dtype(np.int32): 0, np.dtype(np.int64): 1, np.dtype(np.float64): 2}


def spanning_forest(
    indptr: Array, indices: Array, weight: Array, edge: Array, *, device: Device | None = None
) -> npt.NDArray[np.int64]:
    """Return the arcs of the forest, one an edge, int64, in any order.

    Parameters are those of `orograph.kernels.graph.forest.spanning_forest`; ``device`` is the
    process's GPU by default.
    """
    where = device or current_device()
    most = max(indptr.size, indices.size, int(edge.max(initial=0)) + 1)
    word = np.uint32 if most < 2**32 else np.uint64
    rows = (where.upload(np.ascontiguousarray(part, word)) for part in (indptr, indices, edge))
    starts, heads, numbers = rows
    weights = where.upload(np.ascontiguousarray(weight))
    found = where.download(forest_on_device(where, starts, heads, weights, numbers))
    return found.astype(np.int64)


def forest_on_device(
    device: Device, indptr: Buffer, indices: Buffer, weight: Buffer, edge: Buffer
) -> Buffer:
    """Return the arcs of the forest of a graph on the device, in any order.

    Parameters
    ----------
    indptr, indices, edge : uint32, or uint64 if a number in them, or of arcs, passes 2**32 - 2
    weight : int32, int64 or float64
    """
    empty, zeros = device.array_module.empty, device.array_module.zeros
    n, word = indptr.size - 1, np.dtype(indptr.dtype)
    kind = KINDS[np.dtype(weight.dtype)]
    wide = kind > 0 or word.itemsize > 4
    defines = {"WEIGHT": kind, "WORD_BITS": 8 * word.itemsize, "WIDE": int(wide)}
    edges = max(indices.size // 2, 1)
    lists = [[empty(edges, word) for _ in range(3)] for _ in range(2)]
    best = [empty(max(n, 1), np.uint64) for _ in range(2)]
    numbers = [empty(max(n, 1) if wide else 1, word) for _ in range(2)]
    parent, chosen = empty(max(n, 1), word), empty(max(n, 1), word)
    counts = zeros(ROUNDS + 2, np.uint64)
    lengths, chosen_count = counts[: ROUNDS + 1], counts[ROUNDS + 1 :]

    def launch(kernel: str, count: int, *arguments: Any) -> None:
        device.launch(SOURCE, kernel, (count,), (THREADS,), arguments, defines=defines)

    everywhere = blocks_for(n, THREADS)[0]
    launch("start_components", everywhere, parent, *best, *numbers, np.int64(n))
    launch("list_edges", everywhere, indptr, indices, np.int64(n), *lists[0], lengths)
    blocks = min(blocks_for(edges, THREADS)[0], MAX_BLOCKS)
    for done in range(ROUNDS):
        if done % BATCH == 0 and int(device.download(lengths[done : done + 1])[0]) == 0:
            break
        now, then = done % 2, 1 - done % 2
        where = lengths, np.int32(done)
        of_arcs = weight, edge
        launch(
            "propose", blocks, *lists[now], *lists[then], *where,
            parent, best[now], best[then], numbers[then], *of_arcs,
        )  # fmt: skip
        if wide:
            launch(
                "propose_numbers", blocks, *lists[then], *where, best[now], numbers[now], *of_arcs
            )
        launch(
            "join_components", blocks, *lists[then], *where,
            parent, best[now], numbers[now], *of_arcs, chosen, chosen_count,
        )  # fmt: skip
    return chosen[: int(device.download(chosen_count)[0])]
