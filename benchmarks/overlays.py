"""Measure the size, the cost and the use of further levels of blocks in a distance index.

    python benchmarks/overlays.py --side 1024 --block 128

Blocks are solved by elimination, then merged four by four as in a quadtree, up to the children of
the whole raster. Of each level: the bytes that its boundary matrices take as an index stores them
(compressed, half of each), and the seconds of CPU time to merge it from the level below, of all
blocks and of one, which is what an update of an ancestor costs. Then what two cells in opposite
corners have to read, with all levels stored: along the way up from each of them the matrices of the
siblings, up to the four children of the raster. A graph of the border cells would be smaller if few
of a matrix's entries were links of their own; how many are, `sparsify` tells: the others are sums
of two others, to the bit.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from orograph.index.format import encode_record
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
from orograph.kernels.boundary.merge import merge_blocks
from orograph.kernels.boundary.propagate import copy_lower_triangle
from orograph.kernels.boundary.sparsify import sparsify_matrix

LARGEST_SPARSIFIED = 512  # cells a side: more take minutes


def stored_bytes(matrix: np.ndarray) -> int:
    """Return the bytes of the lower half of a matrix, compressed as in an index."""
    n = len(matrix)
    half = np.empty(n * (n + 1) // 2, matrix.dtype)
    copy_lower_triangle(matrix, half)
    return len(encode_record(half))


def main() -> None:
    """Build all levels, and print what each takes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=1024, help="cells a side, block times 2**n")
    parser.add_argument("--block", type=int, default=128, help="cells a side of the lowest level")
    options = parser.parse_args()
    side, block = options.side, options.block
    rng = np.random.default_rng(0)
    costs = block_costs(np.pad(rng.uniform(1, 10, (side, side)), 1, constant_values=np.nan))
    merge_blocks(costs, *((p, boundary_matrix(costs, p)) for p in
                          (Rectangle(0, 0, 8, 8), Rectangle(0, 8, 8, 8))))  # fmt: skip
    begin = time.process_time()
    level = {
        (y, x): (part, boundary_matrix(costs, part))
        for y in range(side // block)
        for x in range(side // block)
        for part in [Rectangle(y * block, x * block, block, block)]
    }
    base = spent = time.process_time() - begin
    cells, total, far, now = side * side, 0, 0, 0
    print(f"{side} x {side} cells, float64, friction from 1 to 10")
    while True:
        size = sum(stored_bytes(matrix) for _, matrix in level.values())
        total += size
        line = f"blocks of {block}: {size / cells:.1f} bytes a cell, {spent:.2f} s of CPU time"
        if block > options.block:
            line += f", {spent / len(level):.3f} s a block"
        if block <= LARGEST_SPARSIFIED:
            matrix = level[0, 0][1]
            kept, _ = sparsify_matrix(matrix, symmetric=True)
            n = len(matrix)
            line += f"; {100 * len(kept) / (n * (n + 1) / 2):.0f} % of the pairs are no sums"
        print(line, flush=True)
        if block == options.block:
            now = size
        if len(level) == 4:
            far += size
            break
        far += 2 * 3 * size // len(level)  # three siblings at both ends
        begin = time.process_time()
        level = {
            (y, x): merge_blocks(
                costs,
                merge_blocks(costs, level[2 * y, 2 * x], level[2 * y, 2 * x + 1]),
                merge_blocks(costs, level[2 * y + 1, 2 * x], level[2 * y + 1, 2 * x + 1]),
            )
            for y in range(side // block // 2)
            for x in range(side // block // 2)
        }
        spent = time.process_time() - begin
        base += spent
        block *= 2
    print(
        f"all levels: {total / now:.1f} times the bytes of the lowest, {base:.1f} s to build; a "
        f"far pair reads {far / cells:.1f} bytes a cell, {100 * far / total:.0f} % of all levels, "
        f"{100 * far / now:.0f} % of what an index of the lowest alone holds"
    )


if __name__ == "__main__":
    main()
