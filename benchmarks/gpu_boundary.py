"""boundary.cu on a GPU; run by gpu.py. A raster has a quarter of the side, for bits an eighth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from device_time import TimedDevice, milliseconds

from orograph.kernels.boundary import cuda as boundary_cuda
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import BlockCosts, block_costs, boundary_matrix
from orograph.kernels.boundary.merge import merge_blocks
from orograph.kernels.boundary.steps import Step, steps_of
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths

DTYPES = ("float32", "float64", "int64")
NUMBA_BLOCKS = 12  # blocks that the CPU does


def costs_of(side: int, dtype: str, model: str = "friction", connectivity: int = 8) -> BlockCosts:
    """A raster of random costs, a twentieth of it barriers."""
    rng = np.random.default_rng(side)
    friction, elevation = rng.integers(1, 100, (2, side + 2, side + 2)).astype(dtype)
    if dtype != "int64":
        friction /= 7
        elevation /= 3
    gone = rng.random(friction.shape) < 0.05
    friction[gone] = elevation[gone] = BARRIER if dtype == "int64" else np.nan
    lengths = edge_lengths(side + 2)
    return block_costs(
        None if model == "absolute_difference" else friction,
        None if model == "friction" else elevation,
        lengths=np.round(lengths) if dtype == "int64" else lengths,
        model=CostModel(model),
        connectivity=connectivity,
    )


def additions(step: Step) -> int:
    """How many additions a step takes for a block of symmetric costs."""
    n, m = step.border, step.line
    if step.leaf:
        return len(step.nodes) * (step.shape[0] * step.shape[1]) ** 3
    return len(step.nodes) * (m**3 + m * m * n + n * (n + 1) // 2 * m)


def tiling(side: int, block: int) -> list[Rectangle]:
    """The blocks of a raster, those at its end shorter."""
    starts = range(0, side, block)
    return [
        Rectangle(y, x, min(block, side - y), min(block, side - x)) for y in starts for x in starts
    ]


def same(what: str, one: np.ndarray, other: np.ndarray) -> None:
    """Raise unless two arrays have one type and the same bits."""
    if one.dtype != other.dtype or one.tobytes() != other.tobytes():
        raise AssertionError(f"{what}: {(one != other).sum()} entries differ")


def bits(side: int) -> None:
    """Matrices of blocks and of pairs of them, against the Numba kernel."""
    side = max(side // 8, 512)
    for dtype, model, connectivity in (
        *((dtype, "friction", 8) for dtype in DTYPES),
        ("int64", "absolute_difference", 4),
        ("float32", "tobler", 8),
        ("float64", "walk", 4),
    ):
        costs = costs_of(side - 5, dtype, model, connectivity)
        for block in (64, 32, 101):
            parts = tiling(side - 5, block)
            chosen = [*parts[: NUMBA_BLOCKS // 2], *parts[-NUMBA_BLOCKS // 2 :]]
            found = boundary_cuda.block_matrices(costs, parts)
            alone = boundary_cuda.block_matrices(costs, chosen)
            numbers = [parts.index(part) for part in chosen]
            for part, number, mine in zip(chosen, numbers, alone, strict=True):
                expected = boundary_matrix(costs, part)
                same(f"{part} {dtype} {model}", mine, expected)
                same(f"{part} {dtype} {model}, with others", found[number], expected)
        for block in (64, 130):
            first, second = Rectangle(0, 0, block, block), Rectangle(0, block, block, block)
            halves = [(part, boundary_matrix(costs, part)) for part in (first, second)]
            whole, expected = merge_blocks(costs, *halves)
            mine = boundary_cuda.block_matrices(costs, [whole], block)[0]
            same(f"{whole} {dtype} {model}, merged", mine, expected)
        print(f"{dtype}, {model}, {connectivity} neighbours: as Numba", flush=True)


def seconds(call: Callable[[], object]) -> float:
    """Median of three calls, after one that compiles."""
    call()
    spent = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)


def by_numba(costs: BlockCosts, parts: Sequence[Rectangle]) -> None:
    """All of them, one after the other."""
    for part in parts:
        boundary_matrix(costs, part)


def speed(side: int) -> None:
    """Blocks on the device, and to the host, beside the Numba kernel on one core."""
    side //= 4
    device = TimedDevice()
    for dtype in DTYPES:
        costs = costs_of(side, dtype)
        resident = boundary_cuda.ResidentCosts(costs)
        timed = boundary_cuda.ResidentCosts(costs, device)
        for block in (64, 32):
            parts = tiling(side, block)
            steps = steps_of(block, block)
            together = min(len(parts), boundary_cuda.blocks_at_once(steps, np.dtype(dtype)))
            places = [(part.top, part.left) for part in parts[:together]]
            call = partial(resident.solve, steps, places)
            spent = statistics.median(milliseconds(call, repeat=7)) / 1e3
            numba = NUMBA_BLOCKS / seconds(partial(by_numba, costs, parts[:NUMBA_BLOCKS]))
            whole = len(parts) / seconds(partial(boundary_cuda.block_matrices, costs, parts))
            sums = sum(map(additions, steps))
            print(
                f"{dtype}, blocks of {block}, {together} at a time: "
                f"{together / spent:.0f} blocks/s, {together * sums / spent / 1e12:.2f} Tsum/s on "
                f"the device; {whole:.0f} blocks/s from and to the host; "
                f"Numba, one core: {numba:.0f} blocks/s, {numba * sums / 1e12:.3f} Tsum/s",
                flush=True,
            )
            with device.by_kernel(f"{dtype}, blocks of {block}"):
                timed.solve(steps, places)
        # blocks of an index, merged up the quadtree
        for parts in (tiling(side, 256), tiling(side, 256)[:1]):
            rate = seconds(partial(boundary_cuda.block_matrices, costs, parts, 64)) / len(parts)
            print(
                f"{dtype}, {len(parts)} of 256 by parts of 64, from and to the host: "
                f"{rate * 1e3:.2f} ms a block",
                flush=True,
            )
