"""Small graphs of every kind, and SciPy's answers to the questions that we ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

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


def as_floats(cost: Array) -> Array:
    """Return costs with infinity where there is no path, also those of integers."""
    return np.where(cost == 2**60, np.inf, cost) if cost.dtype.kind == "i" else cost


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
