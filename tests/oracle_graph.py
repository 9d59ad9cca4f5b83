"""Small graphs of every kind, and SciPy's answers to the questions that we ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse, spatial

Array = np.ndarray[Any, np.dtype[Any]]


def random_edges(
    seed: int, n: int = 60, m: int = 150, *, floats: bool = False, negative: bool = False
) -> tuple[Array, Array, Array]:
    """Tails, heads and weights; loops, parallel edges and weights of 0 among them.

    Negative weights come from potentials, so that no cycle is negative.
    """
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, n, (2, m))
    weight = rng.integers(0, 9, m)
    if negative:
        potential = rng.integers(0, 50, n)
        weight = weight + potential[head] - potential[tail]
    return tail, head, weight * 0.37 if floats else weight


def least_matrix(n: int, tail: Array, head: Array, weight: Array) -> Any:
    """Return a sparse matrix with the least weight of parallel edges; zeros are stored."""
    order = np.lexsort((weight, head, tail))
    key = tail[order] * n + head[order]
    first = np.ones(key.size, bool)
    first[1:] = key[1:] != key[:-1]
    kept = order[first]
    return sparse.csr_array(
        (weight[kept].astype(np.float64), (tail[kept], head[kept])), shape=(n, n)
    )


def as_floats(cost: xr.DataArray) -> Array:
    """Return costs with infinity where there is no path, also those of integers."""
    if cost.dtype.kind == "f":
        assert "_FillValue" not in cost.attrs
        return cost.values
    return np.where(cost.values == cost.attrs["_FillValue"], np.inf, cost.values)


def kruskal(n: int, tail: Array, head: Array, weight: Array) -> list[int]:
    """Return the edges of the forest, taken in the order of weights, then of numbers."""
    group = list(range(n))
    kept = []
    for edge in np.argsort(weight, kind="stable").tolist():
        a, b = group[tail[edge]], group[head[edge]]
        if a != b:
            group = [a if g == b else g for g in group]
            kept.append(edge)
    return kept


def grid_edges(side: int, seed: int) -> tuple[int, Array, Array]:
    """Return a square mesh: number of vertices, tails and heads."""
    cells = np.arange(side * side).reshape(side, side)
    tail = np.append(cells[:, :-1], cells[:-1])
    return cells.size, tail, np.append(cells[:, 1:], cells[1:])


def delaunay_edges(side: int, seed: int) -> tuple[int, Array, Array]:
    """Return the Delaunay triangulation of random points."""
    points = np.random.default_rng(seed).random((side * side, 2))
    corners = spatial.Delaunay(points).simplices
    ends = np.sort(corners[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2))
    return len(points), *np.unique(ends, axis=0).T


def geometric_edges(side: int, seed: int) -> tuple[int, Array, Array]:
    """Return random points and the pairs nearer than 0.55 sqrt(ln n / n), as rgg_n_2."""
    n = side * side
    points = np.random.default_rng(seed).random((n, 2))
    near = 0.55 * np.sqrt(np.log(n) / n)
    return n, *spatial.cKDTree(points).query_pairs(near, output_type="ndarray").astype(np.int64).T


def kronecker_edges(side: int, seed: int) -> tuple[int, Array, Array]:
    """Return a graph with the skewed degrees of Graph500: loops and parallel edges among them."""
    bits = max((side * side).bit_length() - 1, 1)
    ends = np.zeros((2, 8 << bits), np.int64)
    for _ in range(bits):
        quarter = np.random.default_rng(seed).choice(4, ends.shape[1], p=[0.57, 0.19, 0.19, 0.05])
        ends = 2 * ends + [quarter >> 1, quarter & 1]
        seed += 1
    return 1 << bits, *ends


FAMILIES = {
    "grid": grid_edges,
    "delaunay": delaunay_edges,
    "geometric": geometric_edges,
    "kronecker": kronecker_edges,
}
