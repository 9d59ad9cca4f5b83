"""Shortest paths and hops of a graph on a GPU: the host's side of spread.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.graph.spread import STRATEGIES, unreached
from orograph.tiles.arrays import Array

THREADS = 256
SCAN_THREADS = 1024
PUSH_BLOCKS = 1024
BATCH = 16
"""Rounds that are launched before the host looks whether there is anything left to do."""
SOURCE = "graph/spread.cu"
KINDS = {np.dtype(np.int32): 0, np.dtype(np.int64): 1, np.dtype(np.float64): 2}
UNIT = 3
PART, PART_THREADS = 1024, 512
MOST_DEGREE = 64
"""Of graphs that are relaxed in parts, a thread a vertex; others are relaxed a thread an arc."""


class _Rows:
    """CSR rows of a graph on a device, and the compile options of its kernels."""

    def __init__(self, device: Device, rows: tuple[Array, Array, Array | None]) -> None:
        indptr, indices, weight = rows
        wide = max(indptr.itemsize, indices.itemsize) > 4
        word = np.dtype(np.uint64 if wide else np.uint32)
        self.device, self.word = device, word
        self.n, self.arcs = indptr.size - 1, indices.size
        self.in_parts = bool(
            (weight is None or weight.min(initial=0) >= 0)
            and np.diff(indptr).max(initial=0) <= MOST_DEGREE
        )
        self.indptr = device.upload(indptr.astype(word))
        self.indices = device.upload(indices.astype(word))
        self.weight = None if weight is None else device.upload(np.ascontiguousarray(weight))
        kind = UNIT if weight is None else KINDS[weight.dtype]
        self.defines = {"WORD_BITS": 8 * word.itemsize, "WEIGHT": kind}

    def launch(self, kernel: str, count: int, arguments: tuple[Any, ...]) -> None:
        grid = blocks_for(count, THREADS)
        self.device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=self.defines)


def spread(
    rows: tuple[Array, Array, Array],
    starts: Array,
    cost: Array,
    strategy: str,
    rounds: int,
    *,
    device: Device | None = None,
) -> bool:
    """Lower the costs to the least from any start; return whether they are the least.

    Parameters and result are those of `orograph.kernels.graph.spread.spread`; ``device`` is the
    process's GPU by default.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy: {strategy!r} is unknown; use one of {STRATEGIES}")
    where = device or current_device()
    on_device = _Rows(where, rows)
    keys = where.upload(_keys(cost))
    if strategy == "active" and on_device.in_parts:
        converged = _relax_parts(on_device, starts, keys, rounds)
    elif strategy == "active":
        converged = _push(on_device, starts, keys, rounds)
    else:
        converged = _over_all(on_device, rows[0], keys, strategy, rounds)
    cost[:] = _costs(where.download(keys), cost.dtype)
    return converged


def graph_hops(
    rows: tuple[Array, Array, Array], starts: Array, most: int, *, device: Device | None = None
) -> Array:
    """Return the least number of hops from any start, (n,) int32 or int64; -1 beyond `most`.

    Parameters and result are those of `orograph.kernels.graph.hops.graph_hops`.
    """
    where = device or current_device()
    n = rows[0].size - 1
    nothing = unreached(np.dtype(np.int64))
    cost = np.full(n, nothing)
    cost[starts] = 0
    keys = where.upload(cost)
    on_device = _Rows(where, (rows[0], rows[1], None))
    if on_device.in_parts and most >= n:
        _relax_parts(on_device, starts, keys, n)
    else:
        _push(on_device, np.unique(starts), keys, min(most, n))
    found = where.download(keys)
    found[found == nothing] = -1
    return found.astype(np.int32 if n < 2**31 else np.int64)


def _push(rows: _Rows, starts: Array, keys: Buffer, rounds: int) -> bool:
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
            rows.launch(
                "push",
                most,
                (rows.indptr, rows.indices, rows.weight, keys, active, sums, following, counts,
                 np.int32(parity), listed, np.uint32(done)),
            )  # fmt: skip


def _relax_parts(rows: _Rows, starts: Array, keys: Buffer, rounds: int) -> bool:
    """Relax parts with active vertices round by round; return whether none is left."""
    device, xp = rows.device, rows.device.array_module
    part_count = blocks_for(rows.n, PART)
    first = np.zeros(part_count, np.int32)
    first[starts // PART] = 1
    flags = device.upload(first), xp.zeros(part_count, np.int32)
    nothing = unreached(np.dtype(np.float64 if rows.defines["WEIGHT"] == 2 else np.int64))
    relaxed = device.upload(np.full(rows.n, nothing).view(np.int64))
    latest = xp.zeros(1, np.int32)
    defines = {**rows.defines, "PART": PART, "PART_THREADS": PART_THREADS}
    for done in range(rounds):
        arguments = (
            *(rows.indptr, rows.indices, rows.weight, keys, relaxed, np.int64(rows.n)),
            *(flags[done % 2], flags[1 - done % 2], np.int32(done + 1), latest),
        )
        device.launch(
            SOURCE, "relax_parts", part_count, (PART_THREADS,), arguments, defines=defines
        )
        checked = (done + 1) % BATCH == 0 or done + 1 == rounds
        if checked and int(device.download(latest)[0]) <= done:
            return True
    return False


def _over_all(rows: _Rows, indptr: Array, keys: Buffer, strategy: str, rounds: int) -> bool:
    """Go over all vertices, or all arcs, until nothing is lowered; return whether that came."""
    device, xp = rows.device, rows.device.array_module
    lowered = xp.zeros(1, np.int32)
    if strategy == "input":
        sums = xp.zeros(max(rows.arcs, 1), np.int64)
        degrees: Array = np.diff(indptr.astype(np.int64))
        heads = device.upload(np.repeat(np.arange(rows.n, dtype=rows.word), degrees))
    for done in range(rounds):
        if strategy == "output":
            count = np.int64(rows.n)
            rows.launch(
                "pull", rows.n, (rows.indptr, rows.indices, rows.weight, keys, count, lowered)
            )
        else:
            count = np.int64(rows.arcs)
            rows.launch("add_weights", rows.arcs, (rows.indices, rows.weight, keys, sums, count))
            rows.launch("take_least", rows.arcs, (heads, sums, keys, count, lowered))
        if (done + 1) % BATCH == 0 or done + 1 == rounds:
            if device.download(lowered)[0] == 0:
                return True
            lowered[:] = 0
    return False


def _keys(cost: Array) -> npt.NDArray[np.int64]:
    """Return costs as keys: see spread.cu."""
    if cost.dtype.kind == "i":
        return cost.astype(np.int64)
    return _flip((cost + 0.0).view(np.int64))


def _costs(keys: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> Array:
    return keys if dtype.kind == "i" else _flip(keys).view(np.float64)


def _flip(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return bits ^ (bits >> 63 & np.int64(2**63 - 1))
