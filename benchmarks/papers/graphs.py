"""Graphs of the families that the documents use, generated; each is drawn the same every time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay, cKDTree

import orograph as og

DATA = Path(os.environ.get("ORO_TEST_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
NEW_YORK = DATA / "graphs/USA-road-d.NY.gr.xz"
Ends = Any  # (n, 2) integers


def points(n: int) -> Any:
    """Return random points in the unit square."""
    return np.random.default_rng(0).random((n, 2))


def delaunay(n: int) -> Ends:
    """Return the edges of the triangulation of random points."""
    corners = Delaunay(points(n)).simplices
    ends = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    keys = np.unique(np.sort(ends, axis=1).astype(np.int64) @ [n, 1])
    return np.stack([keys // n, keys % n], axis=1)


def geometric(n: int) -> Ends:
    """Return the pairs of random points nearer than 0.55 sqrt(ln n / n), as rgg_n_2."""
    return cKDTree(points(n)).query_pairs(0.55 * np.sqrt(np.log(n) / n), output_type="ndarray")


def kronecker(n: int) -> Ends:
    """Return 48 n edges between n vertices (a power of two), drawn as by Graph500."""
    rng = np.random.default_rng(0)
    ends = np.zeros((48 * n, 2), np.int64)
    for _ in range(n.bit_length() - 1):
        quarter = np.searchsorted([0.57, 0.76, 0.95], rng.random(48 * n))
        ends = 2 * ends + np.stack([quarter >> 1, quarter & 1], axis=1)
    return ends


def bubbles(n: int) -> Ends:
    """Return a mesh of hexagons with about n vertices, three edges at each, as hugebubbles."""
    side = int(np.sqrt(n))
    cell = np.arange(side * side).reshape(side, side)
    rows, columns = np.indices((side - 1, side))
    down = (rows + columns) % 2 == 0
    across = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
    return np.concatenate([across, np.stack([cell[:-1][down], cell[1:][down]], axis=1)])


def mesh(n: int) -> Ends:
    """Return a cube of about n vertices, each joined to its 26 neighbours, as nlpkkt."""
    side = round(n ** (1 / 3))
    cell = np.arange(side**3).reshape((side,) * 3)
    found = []
    for step in np.ndindex(3, 3, 3):
        dz, dy, dx = (part - 1 for part in step)
        if (dz, dy, dx) > (0, 0, 0):
            from_, to = (
                tuple(slice(max(sign * d, 0), side + min(sign * d, 0)) for d in (dz, dy, dx))
                for sign in (-1, 1)
            )
            found.append(np.stack([cell[from_].ravel(), cell[to].ravel()], axis=1))
    return np.concatenate(found)


def cliques(n: int) -> Ends:
    """Return papers of up to 40 authors out of n, all of a paper joined, as coPapers."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.zipf(1.8, n // 8) + 1, 40)
    near = rng.integers(0, n, sizes.size)
    found = []
    for size in np.unique(sizes):
        first = near[sizes == size]
        authors = (first[:, None] + rng.integers(0, n // 16, (first.size, size))) % n
        one, other = np.triu_indices(size, 1)
        found.append(np.stack([authors[:, one].ravel(), authors[:, other].ravel()], axis=1))
    return np.concatenate(found)


def roads(n: int, edges: int) -> tuple[Any, Ends, Any]:
    """Return points, the edges of a connected planar graph with these counts, and their lengths.

    Of a triangulation its minimum spanning tree is kept, and the shortest other edges.
    """
    place, ends = points(n), delaunay(n)
    length = np.hypot(*(place[ends[:, 0]] - place[ends[:, 1]]).T)
    weight = np.maximum((length / length.mean() * 1000).astype(np.int64), 1)
    order = np.argsort(weight, kind="stable")  # distinct ranks: a tree without ties
    rank = np.empty(order.size)
    rank[order] = np.arange(1, order.size + 1)
    tree = minimum_spanning_tree(sparse.coo_array((rank, tuple(ends.T)), shape=(n, n)))
    first = np.zeros(order.size + 1, bool)
    first[tree.data.astype(np.int64)] = True
    in_tree = first[1:][np.argsort(order)]
    kept = np.concatenate([np.flatnonzero(in_tree), order[~in_tree[order]]])[:edges]
    return place, ends[kept], weight[kept]


def graph_of(ends: Ends, **options: Any) -> og.Graph:
    """Return the undirected graph of some edges."""
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    return og.read_graph(table, directed=False, **options)


def copies(ends: Ends, count: int) -> Ends:
    """Return ``count`` copies of a graph with no edges between them."""
    n = int(ends.max()) + 1
    return np.concatenate([ends + number * n for number in range(count)])
