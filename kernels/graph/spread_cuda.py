"""Shortest paths of a graph by the algorithm of Bellman and Ford, on a GPU: the host's side of
spread.cu.

Without negative weights arcs of active vertices are relaxed by near_far.cu, as one bucket.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.device_rows import DeviceRows, upload_rows
from orograph.kernels.graph.forest_cuda import tails_of
from orograph.kernels.graph.near_far_cuda import search
from orograph.kernels.graph.spread import STRATEGIES, unreached
from orograph.tiles.arrays import Array

THREADS = 256
SCAN_THREADS = 1024
PUSH_BLOCKS = 1024
FEW_ARCS, BLOCK_ARCS = 16, 1024
"""Arcs a lane up to which some lanes pull a vertex, and from which a block does: see spread.cu."""
BATCH = 16
"""Rounds that are launched before the host looks whether there is anything left to do."""
SOURCE = "graph/spread.cu"


def spread(
    rows: tuple[Array, Array, Array] | DeviceRows,
    starts: Array,
    cost: Array,
    strategy: str,
    rounds: int,
    *,
    device: Device | None = None,
) -> bool:
    """Lower the costs to the least from any start; return whether they are the least.

    Parameters and result are those of `orograph.kernels.graph.spread.spread`, and rows may be on a
    device already; ``device`` is the process's GPU by default.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy: {strategy!r} is unknown; use one of {STRATEGIES}")
    if isinstance(rows, DeviceRows):
        where, held = rows.device, rows
    else:
        where = device or current_device()
        held = upload_rows(where, *rows)
    if strategy == "active" and not held.kept("signed", _is_signed):
        none = unreached(cost.dtype)
        cost[:] = where.download(search(held, starts, cost[starts], none, none))
        return True
    keys = where.upload(_keys(cost))
    if strategy == "active":
        converged = _push(held, starts, keys, rounds)
    else:
        converged = _over_all(held, keys, strategy, rounds)
    cost[:] = _costs(where.download(keys), cost.dtype)
    return converged


def _is_signed(rows: DeviceRows) -> bool:
    """Return whether a weight is negative."""
    assert rows.weight is not None
    negative = (rows.weight < 0).any().reshape(1)
    return bool(rows.device.download(negative)[0])


def _launch(rows: DeviceRows, kernel: str, count: int, arguments: tuple[Any, ...]) -> None:
    grid = blocks_for(count, THREADS)
    rows.device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=rows.defines)


def _push(rows: DeviceRows, starts: Array, keys: Buffer, rounds: int) -> bool:
    """Relax active vertices round by round; return whether none is left."""
    device, xp = rows.device, rows.device.array_module
    first = np.zeros(max(rows.n, 1), rows.word)
    first[: starts.size] = starts
    lists = device.upload(first), xp.zeros(first.size, rows.word)
    sums = xp.zeros(rows.n + 1, np.int64)
    listed = xp.zeros(max(rows.n, 1), np.uint32)
    counts = device.upload(np.array([starts.size, 0], np.int64))
    done = 0
    while True:
        parity = done % 2
        # The only wait for the device: once in BATCH rounds. Rounds behind the end have no active
        # vertex.
        left = int(device.download(counts)[parity])
        if left == 0 or done == rounds:
            return left == 0
        for _ in range(min(BATCH, rounds - done)):
            parity = done % 2
            active, following = lists[parity], lists[1 - parity]
            device.launch(
                SOURCE, "scan_degrees", (1,), (SCAN_THREADS,),
                (rows.indptr, active, sums, counts, np.int32(parity)), defines=rows.defines,
            )  # fmt: skip
            done += 1
            most = min(rows.arcs, PUSH_BLOCKS * THREADS)
            _launch(
                rows, "push", most,
                (rows.indptr, rows.indices, rows.weight, keys, active, sums, following, counts,
                 np.int32(parity), listed, np.uint32(done)),
            )  # fmt: skip


def _over_all(rows: DeviceRows, keys: Buffer, strategy: str, rounds: int) -> bool:
    """Go over all vertices, or all arcs, until nothing is lowered; return whether that came."""
    device, xp = rows.device, rows.device.array_module
    lowered = xp.zeros(1, np.int32)
    if strategy == "output":
        lanes, of_blocks, of_warps = rows.kept("by in-degree", _by_in_degree)
        warps_a_block = THREADS // 32
        grid = of_blocks.size + -(-of_warps.size // warps_a_block)
        grid += blocks_for(rows.n * lanes, THREADS)[0]
        of_degrees = (
            *(of_blocks, np.int64(of_blocks.size), of_warps, np.int64(of_warps.size)),
            lowered,
        )
        pulling = {
            **rows.defines,
            "LANES": lanes,
            "FEW": FEW_ARCS * lanes,
            "BLOCK_ARCS": BLOCK_ARCS,
        }
    if strategy == "input":
        sums = xp.zeros(max(rows.arcs, 1), np.int64)
        heads = rows.kept("tails", tails_of)  # whose rows the arcs are in
    for done in range(rounds):
        if strategy == "output":
            device.launch(
                SOURCE, "pull", (grid,), (THREADS,),
                (rows.indptr, rows.indices, rows.weight, keys, np.int64(rows.n), *of_degrees),
                defines=pulling,
            )  # fmt: skip
        else:
            count = np.int64(rows.arcs)
            _launch(rows, "add_weights", rows.arcs, (rows.indices, rows.weight, keys, sums, count))
            _launch(rows, "take_least", rows.arcs, (heads, sums, keys, count, lowered))
        # The mark accumulates over the rounds of a batch, so it is 0 only if none of them lowered a
        # cost.
        if (done + 1) % BATCH == 0 or done + 1 == rounds:
            if device.download(lowered)[0] == 0:
                return True
            lowered[:] = 0
    return False


def _by_in_degree(rows: DeviceRows) -> tuple[int, Buffer, Buffer]:
    """Return how many lanes pull a vertex, the vertices that a block pulls, and those of a warp."""
    xp, degree = rows.device.array_module, rows.indptr[1:] - rows.indptr[:-1]
    lanes = next(lanes for lanes in (1, 4, 8) if lanes == 8 or rows.arcs <= 2 * lanes * rows.n)
    many = degree > BLOCK_ARCS
    some = (degree > FEW_ARCS * lanes) & ~many
    return lanes, *(xp.flatnonzero(mask).astype(rows.word) for mask in (many, some))


def _keys(cost: Array) -> npt.NDArray[np.int64]:
    """Return costs as keys: see spread.cu."""
    if cost.dtype.kind == "i":
        return cost.astype(np.int64)
    # Adding 0 turns -0 into 0, so that equal costs have equal keys.
    return _flip((cost + 0.0).view(np.int64))


def _costs(keys: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> Array:
    return keys if dtype.kind == "i" else _flip(keys).view(np.float64)


def _flip(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    # A negative float has the reverse order of its bits: all but the sign are inverted. The same
    # again gives the float back.
    return bits ^ (bits >> 63 & np.int64(2**63 - 1))
