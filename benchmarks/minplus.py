"""Min-plus products on one core, beside Numba's plain loops; and boundary matrices of blocks.

    python benchmarks/minplus.py --sizes 256 1024 --blocks 32 64 --repeat 5

Runs are interleaved; figures are medians, with the fastest and slowest run, in thousand million
additions and minima a second. *plain* is the triple loop in the order i, k, j whose innermost loop
LLVM turns into vectors; *with if* is the same with ``if sum < c: c = sum``, which it does not.
Elimination is compared with a Dijkstra from each border cell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from forest_kernel import time_interleaved
from numba import njit

from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
from orograph.kernels.minplus.closure import floyd_warshall_block
from orograph.kernels.minplus.product import minplus
from orograph.kernels.relax.models import edge_lengths

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from oracle_boundary import boundary_by_dijkstra


@njit(nogil=True)
def plain(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            first = a[i, k]
            for j in range(b.shape[1]):
                total = first + b[k, j]
                old = c[i, j]
                c[i, j] = total if total < old else old


@njit(nogil=True)
def with_if(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            first = a[i, k]
            for j in range(b.shape[1]):
                total = first + b[k, j]
                if total < c[i, j]:
                    c[i, j] = total


def closed(matrix: np.ndarray, traced: bool) -> None:
    """Floyd and Warshall on a copy."""
    before = np.zeros(matrix.shape, np.int32) if traced else None
    floyd_warshall_block(matrix.copy(), before=before)


def compare_products(n: int, dtype: str, repeat: int) -> None:
    """Print Gop/s."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(1, 1000, (n, n)).astype(dtype) for _ in range(2))
    c = np.full((n, n), 2**60 if dtype == "int64" else np.inf, dtype)
    p = np.zeros((n, n), np.int32)
    results = [c.copy() for _ in range(4)]
    calls: dict[str, Callable[[], object]] = {
        "orograph": partial(minplus, a, b, results[0]),
        "orograph, signed": partial(minplus, a, b, results[1], signed=True),
        "plain": partial(plain, a, b, results[2]),
        "with if": partial(with_if, a, b, results[3]),
        "orograph, predecessors": partial(minplus, a, b, c.copy(), before_b=p, before=p.copy()),
        "closure": partial(closed, a, False),
        "closure, predecessors": partial(closed, a, True),
    }
    spent = time_interleaved(calls, repeat)
    assert all(np.array_equal(results[0], other) for other in results[1:])
    for name, seconds in spent.items():
        rates = ", ".join(f"{n**3 / s / 1e9:.1f}" for s in seconds)
        print(f"{dtype} {n}, {name}: {rates} Gop/s", flush=True)
    ratio = spent["plain"][0] / spent["orograph"][0]
    print(f"{dtype} {n}: {ratio:.1f} times plain, ", end="")
    print(f"{spent['with if'][0] / spent['orograph'][0]:.1f} times with if", flush=True)


def compare_blocks(side: int, dtype: str, repeat: int) -> None:
    """Print milliseconds a block."""
    friction = np.random.default_rng(0).integers(10, 100, (side + 2, side + 2)).astype(dtype)
    lengths = edge_lengths(side + 2)
    costs = block_costs(friction, lengths=lengths.round() if dtype == "int64" else lengths)
    calls: dict[str, Callable[[], object]] = {
        "elimination": partial(boundary_matrix, costs),
        "Dijkstra": partial(boundary_by_dijkstra, costs),
    }
    spent = time_interleaved(calls, repeat)
    for name, seconds in spent.items():
        times = ", ".join(f"{s * 1e3:.2f}" for s in seconds)
        print(f"{dtype} block of {side}, {name}: {times} ms")
    print(f"{dtype} block of {side}: {spent['Dijkstra'][0] / spent['elimination'][0]:.0f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 1024])
    parser.add_argument("--blocks", type=int, nargs="*", default=[32, 64])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64", "int64"])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    for dtype in options.dtypes:
        for n in options.sizes:
            compare_products(n, dtype, options.repeat)
        for side in options.blocks:
            compare_blocks(side, dtype, options.repeat)


if __name__ == "__main__":
    main()
