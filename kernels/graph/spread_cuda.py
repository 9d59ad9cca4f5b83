"""Shortest paths of a graph by Bellman and Ford on a GPU: the host's side of spread.cu.

For weights of which some are negative; `orograph.kernels.graph.near_far_cuda` takes the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import blocks_for
from orograph.kernels.device_rows import DeviceRows
from orograph.tiles.arrays import Array

THREADS = 256
SCAN_THREADS = 1024
PUSH_BLOCKS = 1024
BATCH = 16
"""Rounds that are launched before the host looks whether there is anything left to do."""
SOURCE = "graph/spread.cu"


def spread(rows: DeviceRows, starts: Array, cost: Array, rounds: int) -> bool:
    """Lower the costs to the least from any start; return whether they are the least.

    Parameters
    ----------
    rows
        The arcs that leave each vertex.
    starts : (k,)
        Vertices that have a cost.
    cost : (n,) int64 or float64
        All others have the greatest cost there is, ``2**60`` or infinity.
    rounds : int
        How many at most.
    """
    device, xp = rows.device, rows.device.array_module
    keys = device.upload(keys_of(cost))
    first = np.zeros(max(rows.n, 1), rows.word)
    first[: starts.size] = starts
    lists = device.upload(first), xp.zeros(first.size, rows.word)
    sums = xp.zeros(rows.n + 1, np.int64)
    listed = xp.zeros(max(rows.n, 1), np.uint32)
    counts = device.upload(np.array([starts.size, 0], np.int64))
    grid = blocks_for(min(rows.arcs, PUSH_BLOCKS * THREADS), THREADS)
    done = 0
    while True:
        # The only wait for the device: once in BATCH rounds. Rounds behind the end have no active
        # vertex.
        left = int(device.download(counts)[done % 2])
        if left == 0 or done == rounds:
            cost[:] = costs_of(device.download(keys), cost.dtype)
            return left == 0
        for _ in range(min(BATCH, rounds - done)):
            parity = np.int32(done % 2)
            active, following = lists[parity], lists[1 - parity]
            device.launch(
                SOURCE, "scan_degrees", (1,), (SCAN_THREADS,),
                (rows.indptr, active, sums, counts, parity), defines=rows.defines,
            )  # fmt: skip
            done += 1
            device.launch(
                SOURCE, "push", grid, (THREADS,),
                (rows.indptr, rows.indices, rows.weight, keys, active, sums, following, counts,
                 parity, listed, np.uint32(done)), defines=rows.defines,
            )  # fmt: skip


def keys_of(cost: Array) -> npt.NDArray[np.int64]:
    """Return costs as keys: see spread.cu."""
    if cost.dtype.kind == "i":
        return cost.astype(np.int64)
    # Adding 0 turns -0 into 0, so that equal costs have equal keys.
    return _flip((cost + 0.0).view(np.int64))


def costs_of(keys: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> Array:
    """Return the costs of keys; the inverse of `keys_of`."""
    return keys if dtype.kind == "i" else _flip(keys).view(np.float64)


def _flip(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    # A negative float has the reverse order of its bits: all but the sign are inverted. The same
    # again gives the float back.
    return bits ^ (bits >> 63 & np.int64(2**63 - 1))
