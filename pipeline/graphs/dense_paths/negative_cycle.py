"""Find a negative cycle of a graph by Bellman-Ford rounds over blocks of its matrix.

All vertices begin with distance 0; each round every edge may lower its end. A cycle among the
predecessors that this leaves is a negative one, and if there is a negative cycle, one appears after
n rounds at the latest; mostly after a few. Cherkassky and Goldberg, "Negative-cycle detection
algorithms", doi:10.1007/s101070050058.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.graphs.dense_paths.edge_matrix import EdgeMatrix
from orograph.kernels.graph.negative_cycle import negative_cycle
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import NO_VERTEX
from orograph.tiles.errors import InputError

SIDE = 512


def find_negative_cycle(
    graph: EdgeMatrix, tolerance: float = 0.0
) -> tuple[list[int], float] | None:
    """Return the vertices of a negative cycle in order, and its length; None without one.

    Parameters
    ----------
    graph : EdgeMatrix
    tolerance : float
        An edge must lower its end by more than that. Cycles longer than n times its negative may
        go unseen.

    Returns
    -------
    tuple or None
        The length is the exact sum of the edges, rounded once. None: there is no such cycle.
    """
    n = graph.n
    integer = graph.dtype.kind == "i"
    distance: npt.NDArray[Any] = np.zeros(n, np.int64 if integer else np.float64)
    margin = int(tolerance) if integer else tolerance
    before = np.full(n, -1, np.int64)
    for _ in range(n + 1):
        lowered = False
        for y in range(0, n, SIDE):
            rows = slice(y, min(y + SIDE, n))
            for x in range(0, n, SIDE):
                columns = slice(x, min(x + SIDE, n))
                lengths = graph.block(rows, columns).astype(distance.dtype)
                # Twice as far: a barrier plus a negative distance must not look like a path.
                if integer:
                    lengths[lengths >= BARRIER] = 2 * BARRIER
                sums = distance[rows, None] + lengths
                first = sums.argmin(axis=0)
                least = sums[first, np.arange(sums.shape[1])]
                better = least < distance[columns] - margin
                if better.any():
                    lowered = True
                    # A slice is a view: this writes to the whole arrays.
                    distance[columns][better] = least[better]
                    before[columns][better] = first[better] + y
        cycle = _cycle(before)
        if cycle is not None:
            length = length_of(graph, cycle)
            if length < 0:
                return cycle, length
        if not lowered:
            return None
    return None


def length_of(graph: EdgeMatrix, cycle: list[int]) -> float:
    """Return the sum of the edge lengths of a cycle, rounded once."""
    edges = [
        graph.block(slice(u, u + 1), slice(v, v + 1))[0, 0]
        for u, v in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    ]
    if graph.dtype.kind == "i":
        return sum(int(edge) for edge in edges)
    return math.fsum(float(edge) for edge in edges)


def _cycle(before: npt.NDArray[np.int64]) -> list[int] | None:
    """Return a cycle among the predecessors, from its least vertex on, or None."""
    parent = before.tolist()
    # Each vertex bears the start of the walk that came to it first. A walk that comes to its own
    # mark has closed a cycle.
    seen = [-1] * len(parent)
    for start in range(len(parent)):
        v = start
        while v >= 0 and seen[v] < 0:
            seen[v] = start
            v = parent[v]
        if v >= 0 and seen[v] == start:
            cycle = [v]
            while parent[cycle[-1]] != v:
                cycle.append(parent[cycle[-1]])
            # Predecessors were followed, so the cycle was found backwards.
            cycle.reverse()
            least = cycle.index(min(cycle))
            return cycle[least:] + cycle[:least]
    return None


@dataclass(frozen=True)
class MaskedPairs:
    """Pairs of vertices joined by a walk through a negative cycle."""

    groups: tuple[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], ...]
    """Vertices that lead to each strong component with a negative cycle, and that it leads to."""

    def apply(
        self, distance: npt.NDArray[Any], predecessor: npt.NDArray[Any] | None = None
    ) -> None:
        """Set the distance of the pairs to minus infinity (integers: -2**60), in place."""
        for before, behind in self.groups:
            pairs = np.ix_(before, behind)
            distance[pairs] = -BARRIER if distance.dtype.kind == "i" else -np.inf
            if predecessor is not None:
                predecessor[pairs] = NO_VERTEX


def without_negative_cycles(graph: EdgeMatrix) -> tuple[EdgeMatrix, MaskedPairs | None]:
    """Remove the strong components with negative cycles; return the rest and masked pairs.

    A pair of vertices is masked if a walk between them goes through such a component: from there
    it may go round the cycle as often as it likes. All other pairs have no walk through it, so
    they lose nothing with its edges.
    """
    if graph.statistics.least >= 0:
        return graph, None
    from scipy import sparse  # slow to import
    from scipy.sparse import csgraph

    edges = graph.as_sparse()
    rows = edges.indptr, edges.indices, edges.data
    _, component = csgraph.connected_components(edges, connection="strong")
    bad = np.isin(component, component[_negative_loops(graph)])
    tolerance = (
        0.0 if graph.dtype.kind == "i" else graph.n**2 * 2.0**-52 * graph.statistics.greatest
    )
    while (found := negative_cycle(rows, ~bad, np.dtype(np.float64))) is not None:
        cycle, length = found
        if length >= -tolerance:
            raise InputError(
                f"graph: the cycle {cycle[:10]} has length {length:g}, which may be rounding; pass "
                "dtype='int64'"
            )
        bad |= component == component[cycle[0]]
    if not bad.any():
        return graph, None
    groups = []
    for number in np.unique(component[bad]):
        # All vertices of a strong component reach the same ones, and are reached from the same
        # ones.
        one = int(np.flatnonzero(component == number)[0])
        groups.append(tuple(
            csgraph.breadth_first_order(way, one, return_predecessors=False).astype(np.int64)
            for way in (edges.T.tocsr(), edges)
        ))  # fmt: skip
    entries = edges.tocoo()
    kept = ~(bad[entries.row] | bad[entries.col])
    ends = entries.row[kept], entries.col[kept]
    rest = sparse.csr_array((entries.data[kept], ends), shape=edges.shape)
    return replace(graph, values=rest, no_edge=None), MaskedPairs(tuple(groups))


def _negative_loops(graph: EdgeMatrix) -> npt.NDArray[np.bool_]:
    """Return a mask of the vertices that have an edge of negative length to themselves."""
    negative = np.zeros(graph.n, np.bool_)
    for y in range(0, graph.n, SIDE):
        part = slice(y, min(y + SIDE, graph.n))
        negative[part] = graph.block(part, part).diagonal() < 0
    return negative
