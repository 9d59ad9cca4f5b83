"""Shortest paths of a graph by Bellman and Ford on a GPU: the host's side of bellman_ford.cu."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orograph.kernels.device import Buffer, blocks_for
from orograph.kernels.device_rows import DeviceRows
from orograph.kernels.graph.forest_cuda import tails_of
from orograph.kernels.graph.spread_cuda import costs_of, keys_of
from orograph.tiles.arrays import Array

THREADS = 256
FEW_ARCS, BLOCK_ARCS = 16, 1024
"""Arcs per lane up to which some lanes pull a vertex, and from which a block does."""
BATCH = 16
"""Rounds that are launched before the host looks whether there is anything left to do."""
SOURCE = str(Path(__file__).with_name("bellman_ford.cu"))


def bellman_ford(rows: DeviceRows, cost: Array, strategy: str) -> None:
    """Lower costs to the least from any vertex that has one.

    Parameters are those of `papers.bellman_ford.bellman_ford`, with the rows on a device.
    """
    device, xp = rows.device, rows.device.array_module
    keys = device.upload(keys_of(cost))
    lowered = xp.zeros(1, np.int32)
    arcs = np.int64(rows.arcs)
    if strategy == "output":
        lanes, of_blocks, of_warps = rows.kept("by in-degree", _by_in_degree)
        grid = of_blocks.size + -(-of_warps.size // (THREADS // 32))
        grid += blocks_for(rows.n * lanes, THREADS)[0]
        degrees = of_blocks, np.int64(of_blocks.size), of_warps, np.int64(of_warps.size)
        pulling = {"LANES": lanes, "FEW": FEW_ARCS * lanes, "BLOCK_ARCS": BLOCK_ARCS}
    else:
        sums = xp.zeros(max(rows.arcs, 1), np.int64)
        heads = rows.kept("tails", tails_of)  # whose rows the arcs are in
        grid, pulling = blocks_for(rows.arcs, THREADS)[0], {}

    def launch(kernel: str, *arguments: object) -> None:
        defines = {**rows.defines, **pulling}
        device.launch(SOURCE, kernel, (grid,), (THREADS,), arguments, defines=defines)

    while True:
        # The mark accumulates over the rounds of a batch, so it is 0 only if none of them lowered a
        # cost.
        lowered[:] = 0
        for _ in range(BATCH):
            if strategy == "output":
                by_tail = rows.indptr, rows.indices, rows.weight, keys, np.int64(rows.n)
                launch("pull", *by_tail, *degrees, lowered)
            else:
                launch("add_weights", rows.indices, rows.weight, keys, sums, arcs)
                launch("take_least", heads, sums, keys, arcs, lowered)
        if device.download(lowered)[0] == 0:
            cost[:] = costs_of(device.download(keys), cost.dtype)
            return


def _by_in_degree(rows: DeviceRows) -> tuple[int, Buffer, Buffer]:
    """Return how many lanes pull a vertex, the vertices that a block pulls, and those of a warp."""
    xp, degree = rows.device.array_module, rows.indptr[1:] - rows.indptr[:-1]
    lanes = next(lanes for lanes in (1, 4, 8) if lanes == 8 or rows.arcs <= 2 * lanes * rows.n)
    many = degree > BLOCK_ARCS
    some = (degree > FEW_ARCS * lanes) & ~many
    return lanes, *(xp.flatnonzero(mask).astype(rows.word) for mask in (many, some))
