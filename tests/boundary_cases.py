"""Cases shared by the tests of boundary matrices: rasters, costs, and SciPy's Dijkstra on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import oracle_distance as oracle
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from orograph.kernels.boundary.dissection import (
    border_cells,
)
from orograph.kernels.boundary.elimination import (
    BlockCosts,
    block_costs,
)
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths

Array = npt.NDArray[np.generic]
MODELS = ("friction", "absolute_difference", "tobler", "walk")
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "int64": 0.0}


def rasters(
    rng: np.random.Generator, shape: tuple[int, int], dtype: str, gaps: float
) -> tuple[Array, Array]:
    """Friction and elevation, float64, NaN where there is no cell; even friction for integers."""
    friction = rng.integers(1, 200, shape) / 8.0
    elevation = rng.integers(0, 100, shape) / 4.0
    if dtype == "int64":
        friction, elevation = 2 * np.ceil(friction), np.ceil(elevation)
    gone = rng.random(shape) < gaps
    friction[gone] = np.nan
    elevation[gone] = np.nan
    return friction, elevation


def padded(raster: Array, dtype: str) -> Array:
    wide = np.pad(raster, 1, constant_values=np.nan)
    if dtype == "int64":
        return np.where(np.isnan(wide), BARRIER, np.nan_to_num(wide)).astype(dtype)
    return wide.astype(dtype)


def costs_of(friction: Array, elevation: Array, dtype: str, model: str, four: bool) -> BlockCosts:
    lengths = edge_lengths(friction.shape[0] + 2)
    friction = friction / 2 if dtype == "int64" else friction  # tiles of integers hold the half
    return block_costs(
        None if model == "absolute_difference" else padded(friction, dtype),
        None if model == "friction" else padded(elevation, dtype),
        lengths=np.round(lengths) if dtype == "int64" else lengths,
        model=CostModel(model),
        connectivity=4 if four else 8,
    )


def all_pairs(
    friction: Array, elevation: Array, dtype: str, model: str, four: bool, links: Any = None
) -> Array:
    """Distances from every border cell to every cell: SciPy's Dijkstra.

    ``links``: tails, heads (numbers of cells) and costs of further steps; then from all cells.
    """
    steps = oracle.list_steps(
        None if model == "absolute_difference" else friction,
        None if model == "friction" else elevation,
        cost=model,
        connectivity=4 if four else 8,
        lengths=whole_lengths if dtype == "int64" else None,
        dtype=dtype,
    )
    n = friction.size
    tail, head, weight = (
        np.concatenate([getattr(step, part) for step in steps])
        for part in ("tail", "head", "weight")
    )
    if links is None:
        cells = border_cells(*friction.shape)
        sources = cells[:, 0] * friction.shape[1] + cells[:, 1]
    else:
        sources = np.arange(n)
        ways = zip((tail, head, weight), links, strict=True)
        tail, head, weight = (np.concatenate(pair) for pair in ways)
        # of several ways from one cell to another the cheapest: SciPy would add them
        order = np.lexsort((weight, head, tail))
        code, first = np.unique((tail * n + head)[order], return_index=True)
        tail, head, weight = *np.divmod(code, n), weight[order][first]
    graph = csr_array((weight.astype(np.float64), (tail, head)), shape=(n, n))
    return dijkstra(graph, indices=sources)


def whole_lengths(dy: int, dx: int, row: Array) -> Array:
    return np.full(row.shape, round(np.hypot(dy, dx)), np.float64)


def expected_matrix(found: Array, shape: tuple[int, int]) -> Array:
    cells = border_cells(*shape)
    return found[:, cells[:, 0] * shape[1] + cells[:, 1]]


def assert_same(mine: Array, expected: Array) -> None:
    dtype = mine.dtype.name
    if dtype == "int64":
        expected = np.where(np.isinf(expected), BARRIER, expected)
    np.testing.assert_allclose(mine, expected, rtol=TOLERANCE[dtype], atol=0)
