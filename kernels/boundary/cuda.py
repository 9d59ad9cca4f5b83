"""Boundary matrices of many blocks at once on a GPU: the host's side of boundary.cu.

Blocks of one shape go through the steps of steps.py together, as many as fit in ``BYTES_AT_ONCE``
of device memory. All kernels are launched asynchronously; only the matrices of the blocks are
copied back. They equal those of `orograph.kernels.boundary.elimination.boundary_matrix`, and for
merged blocks those of `orograph.kernels.boundary.merge.merge_blocks`, bit for bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.dissection import LEAF, Rectangle
from orograph.kernels.boundary.elimination import BlockCosts, check_block
from orograph.kernels.boundary.steps import Step, last_uses, peak_elements, steps_of
from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.minplus.closure import LARGE_STEP, STEP
from orograph.kernels.relax.definitions import definitions, upload_coefficients
from orograph.tiles.arrays import Array
from orograph.tiles.errors import BackendError

SOURCE = "boundary/boundary.cu"
BYTES_AT_ONCE = 1 << 30
LEAVES = 4  # per thread block
SPAN = 4  # rows and columns per thread
SMALL = 64  # most border cells of a part that a single thread block joins,
SMALL_BYTES = 32 * 1024  # and the most shared memory that it may need
WIDE = 96  # border cells above which the larger tiles are used
MAX_CELLS = 2**31 - 1  # most cells of a raster
MAX_BORDER = 16320  # most border cells: the tiles of a matrix must fit the y extent of a grid


class ResidentCosts:
    """Rasters and their cost rules in the memory of a device.

    Parameters
    ----------
    costs : BlockCosts
        From `orograph.kernels.boundary.elimination.block_costs`.
    device : Device, optional
        By default this process's GPU.

    Raises
    ------
    BackendError
        If the raster has 2**31 cells or more.
    """

    def __init__(self, costs: BlockCosts, device: Device | None = None) -> None:
        self.device = device = device or current_device()
        self.rules = rules = costs.rules
        self.dtype = np.dtype(costs.dtype)
        rasters = [raster for raster in (costs.friction, costs.elevation) if raster.size]
        rows, stride = rasters[0].shape
        if rows * stride > MAX_CELLS:
            raise BackendError(
                f"a raster of {rows} x {stride} cells, halo included; on a GPU {MAX_CELLS} at "
                "most: pass it in parts, or use backend='numba'"
            )
        self._defines = {k: v for k, v in definitions(rules).items() if k != "WARPS"}
        # Kernels take a pointer to either raster; one that the model does not have is never read.
        spare = device.upload(rasters[0])
        friction, elevation = (
            (spare if raster is rasters[0] else device.upload(raster)) if raster.size else spare
            for raster in (costs.friction, costs.elevation)
        )
        coefficients = upload_coefficients(rules, rules.coefficients, device)
        lengths = device.upload(np.ascontiguousarray(rules.factors))
        self._costs = friction, elevation, lengths, coefficients
        self._sizes = np.int32(stride), np.int32(rows), np.int32(rules.reverse)

    def solve(self, steps: Sequence[Step], blocks: Sequence[tuple[int, int]]) -> Buffer:
        """Return the boundary matrices of blocks of one shape; asynchronous.

        Parameters
        ----------
        steps : sequence of Step
            From `orograph.kernels.boundary.steps.steps_of`, for the shape of the blocks.
        blocks : sequence of (row, column)
            First cell of each block, in coordinates without the halo.

        Returns
        -------
        (blocks, n, n) on the device
        """
        device, empty = self.device, self.device.array_module.empty
        count = len(blocks)
        tables = [np.array(blocks, np.int32)]
        tables += [table for step in steps for table in step.tables]
        places, *rest = _upload_together(device, tables)
        matrices: list[Buffer] = []
        for step, done in zip(steps, last_uses(steps), strict=True):
            out = empty(count * step.matrices, self.dtype)
            laid = rest[: len(step.tables)]
            rest = rest[len(laid) :]
            if step.leaf:
                self._solve_leaves(step, places, count, laid, out)
            else:
                borders = [np.int32(steps[half].border) for half in step.halves]
                halves = zip([matrices[half] for half in step.halves], borders, strict=True)
                self._join(step, places, count, [*chain(*halves)], laid, out)
            matrices.append(out)
            # Memory is free as soon as no later step needs it, as `peak_elements` assumes.
            for half in done:
                matrices[half] = None
        n = steps[-1].border
        return matrices[-1].reshape(count, n, n)

    def _solve_leaves(
        self, step: Step, places: Buffer, blocks: int, tables: Sequence[Buffer], out: Buffer
    ) -> None:
        parts = blocks * len(step.nodes)
        nodes, *_, edges = tables
        cells = step.shape[0] * step.shape[1]
        self._launch(
            "solve_leaves",
            blocks_for(parts, LEAVES),
            32 * LEAVES,
            (*self._costs, *self._sizes, places, nodes, np.int32(blocks), np.int32(parts), edges),
            (len(step.edges), cells, step.border),
            (out,),
        )

    def _join(
        self,
        step: Step,
        places: Buffer,
        blocks: int,
        halves: Sequence[Any],
        tables: Sequence[Buffer],
        out: Buffer,
    ) -> None:
        """Join the halves of all parts of a shape."""
        n, m = step.border, step.line
        parts = blocks * len(step.nodes)
        nodes, inside, line_in, begins, edges = tables
        which = (*halves, nodes, np.int32(blocks), inside)
        bytes_of_all = (3 * n * m + m * m) * self.dtype.itemsize
        # All of a small part fits into shared memory, so one kernel joins it.
        if n <= SMALL and bytes_of_all <= SMALL_BYTES and not step.seam:
            self._launch(
                "join_small", (parts,), 128, (*which, line_in), (n, m), (out,), shared=bytes_of_all
            )
            return
        empty = self.device.array_module.empty
        to_line, from_line, work = (empty(parts * n * m, self.dtype) for _ in range(3))
        line = empty(parts * m * m, self.dtype)
        shares = (parts, min(64, blocks_for(n * m, 1024)[0]))
        laid = to_line, from_line, line
        if step.seam:
            count = len(step.edges)
            seam = empty(parts * 2 * count, self.dtype)
            self._launch(
                "weigh_seam",
                (parts,),
                128,
                (*self._costs, *self._sizes, places, nodes, np.int32(blocks), edges),
                (count,),
                (seam,),
            )
            named = (*which, line_in, begins, edges, np.int32(count), seam)
            self._launch("gather_seam", shares, 256, named, (n, m), laid)
        else:
            self._launch("gather_line", shares, 256, (*which, line_in), (n, m), laid)
        self.close_lines(line, parts, m)
        lanes = 16 if n > WIDE else 8
        down, across = (-(-cells // (lanes * SPAN)) for cells in (m, n))
        self._launch(
            "carry_lines",
            (parts, down * across),
            lanes * lanes,
            (line, from_line),
            (n, m),
            (work,),
            lanes=lanes,
        )
        # Of a symmetric matrix the tiles up to the diagonal.
        tiles = across * (across + 1) // 2 if self.rules.symmetric else across * across
        self._launch(
            "join_halves",
            (parts, tiles),
            lanes * lanes,
            (*which, to_line, work),
            (n, m),
            (out,),
            lanes=lanes,
        )

    def close_lines(self, lines: Buffer, parts: int, m: int) -> None:
        """Compute closures of lines of m cells, in the steps of `minplus.closure.close`."""
        shared = min(m, STEP) ** 2 * self.dtype.itemsize
        threads = 256 if m > LEAF else 32
        if m > 2 * LARGE_STEP:
            self._launch("close_long_lines", (parts,), 256, (lines,), (m,), (), shared=shared)
            return
        tiles = -(-m // STEP)
        # The blocked closure: the diagonal block, then the blocks in its row and column, then all
        # others.
        turns = ((0, 2 * tiles), (1, tiles * tiles)) if tiles > 1 else ()
        for k in range(0, m, STEP):
            self._launch("close_diagonals", (parts,), threads, (lines,), (m, k), (), shared=shared)
            for rest, count in turns:
                self._launch("pass_lines", (parts, count), 256, (lines,), (m, k, rest), ())

    def _launch(
        self,
        kernel: str,
        grid: tuple[int, ...],
        threads: int,
        head: tuple[Any, ...],
        sizes: tuple[int, ...],
        tail: tuple[Any, ...],
        *,
        lanes: int = 16,
        shared: int = 0,
    ) -> None:
        self.device.launch(
            SOURCE,
            kernel,
            grid,
            (threads,),
            (*head, *(np.int32(size) for size in sizes), *tail),
            defines={**self._defines, "LANES": lanes},
            shared=shared,
        )


def _upload_together(device: Device, tables: Sequence[npt.NDArray[np.int32]]) -> list[Buffer]:
    """Return tables on the device, uploaded in one copy; None for an empty table."""
    whole = device.upload(np.concatenate([table.reshape(-1) for table in tables]))
    found, at = [], 0
    for table in tables:
        found.append(whole[at : at + table.size] if table.size else None)
        at += table.size
    return found


def blocks_at_once(steps: Sequence[Step], dtype: np.dtype[Any]) -> int:
    """Return how many blocks go through the steps together; at least one."""
    return max(1, BYTES_AT_ONCE // (peak_elements(steps) * dtype.itemsize))


def solve_blocks(
    costs: BlockCosts,
    parts: Sequence[Rectangle],
    block: int | None = None,
    *,
    device: Device | None = None,
) -> Iterator[tuple[int, Array]]:
    """Yield the boundary matrices of parts of a raster, by elimination and merging.

    Parameters
    ----------
    costs : BlockCosts
        From `orograph.kernels.boundary.elimination.block_costs`.
    parts : sequence of Rectangle
        They may overlap. Parts of one shape are processed together.
    block : int, optional
        Largest side, in cells, of a block that is solved by elimination. Larger parts are cut as in
        a quadtree of such blocks, and merged. By default nothing is cut.
    device : Device, optional
        By default this process's GPU.

    Yields
    ------
    int
        Index in ``parts``; in any order.
    (n, n)
        As from `orograph.kernels.boundary.elimination.boundary_matrix` and
        `orograph.kernels.boundary.merge.merge_blocks`. Matrices that were computed together share
        their memory.

    Raises
    ------
    ValueError
        If a part lies outside the raster, or ``block`` is below 1.
    BackendError
        If the raster has 2**31 cells or more, or a part more border cells than ``MAX_BORDER``.
    """
    if block is not None and block < 1:
        raise ValueError(f"block={block}; must be 1 or more")
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    checked = [check_block(costs, part) for part in parts]
    for number, part in enumerate(checked):
        shapes[part.height, part.width].append(number)
    diagonals = costs.rules.steps > 1
    planned = {shape: steps_of(*shape, block, diagonals=diagonals) for shape in shapes}
    for (height, width), steps in planned.items():
        most = max(step.border for step in steps)
        if most > MAX_BORDER:
            raise BackendError(
                f"a block of {height} x {width} cells has parts of {most} border cells; on a GPU "
                f"{MAX_BORDER} at most: use smaller blocks, or backend='numba'"
            )
    resident = ResidentCosts(costs, device)
    for shape, steps in planned.items():
        numbers = shapes[shape]
        together = blocks_at_once(steps, resident.dtype)
        for begin in range(0, len(numbers), together):
            chosen = numbers[begin : begin + together]
            places = [(checked[n].top, checked[n].left) for n in chosen]
            matrices = resident.device.download(resident.solve(steps, places))
            yield from zip(chosen, matrices, strict=True)


def block_matrices(
    costs: BlockCosts,
    parts: Sequence[Rectangle],
    block: int | None = None,
    *,
    device: Device | None = None,
) -> list[Array]:
    """Return the matrices of `solve_blocks`, in the order of ``parts``."""
    found = dict(solve_blocks(costs, parts, block, device=device))
    return [found[number] for number in range(len(parts))]


def boundary_matrix(
    costs: BlockCosts, block: Rectangle | None = None, *, device: Device | None = None
) -> Array:
    """Run `orograph.kernels.boundary.elimination.boundary_matrix` on a GPU."""
    return block_matrices(costs, [check_block(costs, block)], device=device)[0]


__all__ = [
    "ResidentCosts",
    "block_matrices",
    "blocks_at_once",
    "boundary_matrix",
    "solve_blocks",
]
