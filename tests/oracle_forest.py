"""An independent answer to "what is the minimum spanning forest of this grid?".

Written from the contract alone, with NumPy, SciPy and NetworkX, and slow on purpose where that
makes it plainer. The order of the edges is total, so there is one right mask, not one of many:

- every edge between valid neighbours is listed, with its place (first end, direction);
- the list is sorted by the total order and each edge gets its rank 1..m;
- SciPy's minimum spanning tree over the *ranks* is the forest. Ranks are distinct, exact in
  float64 and never zero (SciPy drops edges of weight zero, which a flat DEM is full of).

`kruskal` and `networkx_forest` are two further ways for small grids; they check the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

STEPS = ((0, 1), (1, -1), (1, 0), (1, 1))
"""(dy, dx) of bit 0 east, 1 south-west, 2 south, 3 south-east."""

WEIGHTS = ("max", "absolute_difference", "mean")


@dataclass(frozen=True)
class Edges:
    """Every edge of a grid, in the order of its id (first end, direction)."""

    size: int
    first: np.ndarray
    second: np.ndarray
    direction: np.ndarray
    weight: np.ndarray
    order: np.ndarray
    """Positions of the edges, least first."""


@dataclass(frozen=True)
class Forest:
    """The forest and its counts."""

    mask: np.ndarray
    total_weight: float
    vertex_count: int
    edge_count: int
    tree_count: int


def valid_cells(elevation: np.ndarray, nodata: float | int | None = None) -> np.ndarray:
    """Which cells are vertices: finite, and not the nodata value."""
    valid = np.ones(elevation.shape, bool)
    if elevation.dtype.kind == "f":
        valid &= np.isfinite(elevation)
    if nodata is not None and not (isinstance(nodata, float) and math.isnan(nodata)):
        valid &= elevation != elevation.dtype.type(nodata)
    return valid


def directions(connectivity: int) -> tuple[int, ...]:
    return {4: (0, 2), 8: (0, 1, 2, 3)}[connectivity]


def list_edges(elevation: np.ndarray, valid: np.ndarray, weight: str, connectivity: int) -> Edges:
    """List and order the edges between valid neighbours."""
    height, width = elevation.shape
    y, x = np.indices(elevation.shape)
    parts = []
    for direction in directions(connectivity):
        dy, dx = STEPS[direction]
        inside = (y + dy < height) & (x + dx >= 0) & (x + dx < width) & valid
        first = np.flatnonzero(inside)
        second = first + dy * width + dx
        keep = valid.ravel()[second]
        first, second = first[keep], second[keep]
        parts.append((first, second, np.full(first.size, direction)))
    first, second, direction = (np.concatenate(p) for p in zip(*parts))
    by_id = np.lexsort((direction, first))
    first, second, direction = first[by_id], second[by_id], direction[by_id]

    z = elevation.ravel()
    if z.dtype.kind == "f":
        z = z + z.dtype.type(0)  # -0.0 becomes 0.0
    zu, zv = z[first], z[second]
    edge_id = first * 4 + direction
    if weight == "max":
        high, low = np.maximum(zu, zv), np.minimum(zu, zv)
        value = high.astype(np.float64)
        order = np.lexsort((edge_id, low, high))
    else:
        fu, fv = zu.astype(np.float64), zv.astype(np.float64)
        value = np.abs(fu - fv) if weight == "absolute_difference" else (fu + fv) / 2
        order = np.lexsort((edge_id, value))
    return Edges(elevation.size, first, second, direction, value, order)


def mask_of(edges: Edges, chosen: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The mask with the bits of the chosen edges set."""
    mask = np.zeros(edges.size, np.uint8)
    np.bitwise_or.at(mask, edges.first[chosen], (1 << edges.direction[chosen]).astype(np.uint8))
    return mask.reshape(shape)


def minimum_spanning_forest(
    elevation: np.ndarray,
    *,
    weight: str = "max",
    connectivity: int = 8,
    nodata: float | int | None = None,
) -> Forest:
    """The forest by SciPy over the ranks of the total order."""
    valid = valid_cells(elevation, nodata)
    edges = list_edges(elevation, valid, weight, connectivity)
    m, n = edges.order.size, edges.size
    rank = np.empty(m)
    rank[edges.order] = np.arange(1, m + 1)
    tree = minimum_spanning_tree(
        coo_array((rank, (edges.first, edges.second)), shape=(n, n)).tocsr()
    )
    chosen = np.sort(edges.order[tree.data.astype(np.int64) - 1])
    graph = coo_array((np.ones(m, np.int8), (edges.first, edges.second)), shape=(n, n))
    components = connected_components(graph, directed=False, return_labels=False)
    return Forest(
        mask=mask_of(edges, chosen, elevation.shape),
        total_weight=math.fsum(edges.weight[chosen].tolist()),
        vertex_count=int(valid.sum()),
        edge_count=chosen.size,
        tree_count=int(components - (~valid).sum()),
    )


def kruskal(
    elevation: np.ndarray, *, weight: str, connectivity: int, nodata: float | int | None = None
) -> np.ndarray:
    """The mask by the textbook: edges in order, each kept if it joins two trees."""
    edges = list_edges(elevation, valid_cells(elevation, nodata), weight, connectivity)
    parent = list(range(edges.size))

    def root(cell: int) -> int:
        while parent[cell] != cell:
            parent[cell] = parent[parent[cell]]
            cell = parent[cell]
        return cell

    chosen = []
    for k in edges.order.tolist():
        a, b = root(int(edges.first[k])), root(int(edges.second[k]))
        if a != b:
            parent[a] = b
            chosen.append(k)
    return mask_of(edges, np.array(chosen, np.int64), elevation.shape)


def networkx_forest(
    elevation: np.ndarray, *, weight: str, connectivity: int, nodata: float | int | None = None
) -> np.ndarray:
    """The mask by NetworkX' Prim, with neighbours and weights found cell by cell in Python.

    It shares nothing with `list_edges`: an edge's weight is the tuple of the total order itself.
    """
    height, width = elevation.shape
    valid = valid_cells(elevation, nodata)
    graph = nx.Graph()
    for y in range(height):
        for x in range(width):
            if not valid[y, x]:
                continue
            for direction in directions(connectivity):
                v, u = y + STEPS[direction][0], x + STEPS[direction][1]
                if v >= height or not 0 <= u < width or not valid[v, u]:
                    continue
                a, b = elevation[y, x].item(), elevation[v, u].item()
                if weight == "max":
                    key = (max(a, b), min(a, b))
                elif weight == "absolute_difference":
                    key = (abs(float(a) - float(b)),)
                else:
                    key = ((float(a) + float(b)) / 2,)
                graph.add_edge((y, x), (v, u), order=(*key, y * width + x, direction))
    ordered = sorted(graph.edges(data="order"), key=lambda e: e[2])
    for rank, (a, b, _) in enumerate(ordered):
        graph.edges[a, b]["rank"] = rank
    mask = np.zeros(elevation.shape, np.uint8)
    tree = nx.minimum_spanning_edges(graph, algorithm="prim", weight="rank", data=False)
    for a, b in tree:
        (y, x), (v, u) = sorted((a, b))
        mask[y, x] |= 1 << STEPS.index((v - y, u - x))
    return mask


def ends_of(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row-major indices of the two ends of each edge of a mask; an edge off the grid raises."""
    height, width = mask.shape
    firsts, seconds = [], []
    for direction, (dy, dx) in enumerate(STEPS):
        y, x = np.nonzero(mask & (1 << direction))
        if ((y + dy >= height) | (x + dx < 0) | (x + dx >= width)).any():
            raise AssertionError(f"bit {direction} of the mask points off the grid")
        firsts.append(y * width + x)
        seconds.append((y + dy) * width + x + dx)
    return np.concatenate(firsts), np.concatenate(seconds)
